//! The commands of a client's connection, out of fragments.
//!
//! Invariant: an inline command is given as the array that it stands for, so that whoever takes
//! commands knows one form.

use super::scan::{self, Command, ProtocolError, Scan};

/// The bytes of one connection that are no command yet.
#[derive(Debug)]
pub struct Requests {
    /// Bytes as they came; the first `start` of them are done with.
    held: Vec<u8>,
    /// Offset of the next command.
    start: usize,
    /// Progress of the scan from there.
    scan: Scan,
    /// The last inline command, as an array.
    inline: Vec<u8>,
    /// Most bytes of a command.
    len_max: usize,
}

impl Requests {
    /// No bytes yet; a command has at most `len_max` bytes.
    pub fn new(len_max: usize) -> Self {
        Self { held: Vec::new(), start: 0, scan: Scan::default(), inline: Vec::new(), len_max }
    }

    /// Takes what has come.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start == self.held.len() {
            self.held.clear();
            self.start = 0;
            // What a long command took is given back.
            self.held.shrink_to(HELD_KEPT);
        } else if self.start > self.held.len() / 2 {
            self.held.drain(..self.start);
            self.start = 0;
        }
        self.held.extend_from_slice(bytes);
    }

    /// Bytes that are held.
    pub fn len(&self) -> usize {
        self.held.len() - self.start
    }

    /// None are.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next command, if all of it is there.
    ///
    /// # Errors
    ///
    /// Where there is none: nothing more is to be had from the connection.
    pub fn poll(&mut self) -> Result<Option<Command<'_>>, ProtocolError> {
        loop {
            self.skip_blank();
            let rest = &self.held[self.start..];
            match rest.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => match self.read_inline()? {
                    // A line of blanks.
                    true if self.inline.is_empty() => continue,
                    true => return Ok(Some(Command::new(&self.inline))),
                    false => return Ok(None),
                },
            }
            let Some(len) = self.scan.advance(rest, self.len_max)? else { return Ok(None) };
            let start = self.start;
            self.start += len;
            self.scan = Scan::default();
            // One without arguments is passed over, as in Redis.
            if !Command::new(&self.held[start..start + len]).is_empty() {
                return Ok(Some(Command::new(&self.held[start..start + len])));
            }
        }
    }

    /// Empty lines between commands mean nothing.
    fn skip_blank(&mut self) {
        let rest = &self.held[self.start..];
        let blank = rest.iter().take_while(|&&byte| matches!(byte, b'\r' | b'\n')).count();
        // A return alone may be the first half of one.
        self.start += blank;
    }

    /// Reads a line into `inline`; false where its end has not come.
    fn read_inline(&mut self) -> Result<bool, ProtocolError> {
        let rest = &self.held[self.start..];
        let Some(end) = memchr::memchr(b'\n', &rest[..rest.len().min(INLINE_LEN_MAX)]) else {
            return if rest.len() < INLINE_LEN_MAX {
                Ok(false)
            } else {
                Err(ProtocolError::InlineLength)
            };
        };
        let arguments = split(&rest[..end]).ok_or(ProtocolError::Quotes)?;
        self.inline.clear();
        if !arguments.is_empty() {
            let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
            scan::write(&arguments, &mut self.inline);
        }
        self.start += end + 1;
        Ok(true)
    }
}

/// The words of a line, as Redis and its client read them: in quotes there may be blanks and, in
/// double ones, `\n`, `\x41` and the like. `None` where a quote does not close, or is not followed
/// by a blank.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut at) = (Vec::new(), 0);
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at == line.len() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(&byte) = line.get(at).filter(|byte| !byte.is_ascii_whitespace()) {
            at += 1;
            match byte {
                b'"' | b'\'' => {
                    at = unquote(line, at, byte, &mut word)?;
                    if line.get(at).is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return None;
                    }
                }
                byte => word.push(byte),
            }
        }
        words.push(word);
    }
}

/// Appends what stands in quotes, and returns where it goes on behind them.
fn unquote(line: &[u8], mut at: usize, quote: u8, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        let byte = *line.get(at)?;
        at += 1;
        if byte == quote {
            return Some(at);
        }
        if byte != b'\\' {
            word.push(byte);
            continue;
        }
        let escaped = *line.get(at)?;
        let hex = line.get(at + 1..at + 3).filter(|_| quote == b'"' && escaped == b'x');
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        match (quote, escaped, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (_, _, Some(value)) => {
                word.push(value);
                at += 2;
            }
            (b'\'', b'\'', _) => word.push(b'\''),
            (b'\'', ..) => {
                word.push(b'\\');
                continue;
            }
            (_, b'n', _) => word.push(b'\n'),
            (_, b'r', _) => word.push(b'\r'),
            (_, b't', _) => word.push(b'\t'),
            (_, b'b', _) => word.push(8),
            (_, b'a', _) => word.push(7),
            (_, other, _) => word.push(other),
        }
        at += 1;
    }
}

/// Longest line, as in Redis.
const INLINE_LEN_MAX: usize = 64 << 10;

/// Memory that a connection keeps between commands.
const HELD_KEPT: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split(line.as_bytes())?;
        Some(words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect())
    }

    fn all(bytes: &[u8], fragment_len: usize) -> (Vec<Vec<u8>>, Option<ProtocolError>) {
        let (mut requests, mut found) = (Requests::new(1 << 10), Vec::new());
        for fragment in bytes.chunks(fragment_len) {
            requests.push(fragment);
            loop {
                match requests.poll() {
                    Ok(None) => break,
                    Ok(Some(command)) => found.push(command.bytes().to_vec()),
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn a_line_is_split_as_redis_does() {
        assert_eq!(words(" SET  a b\r").unwrap(), ["SET", "a", "b"]);
        assert_eq!(words(r#"SET "a b" 'c\'d'"#).unwrap(), ["SET", "a b", "c'd"]);
        assert_eq!(words(r#""\x41\n\q""#).unwrap(), ["A\nq"]);
        assert_eq!(words("''").unwrap(), [""]);
        assert_eq!(words("\"a"), None);
        assert_eq!(words("\"a\"b"), None);
    }

    #[test]
    fn inline_commands_are_arrays() {
        let (found, error) = all(b"\r\nPING\r\nGET a\n*1\r\n$4\r\nPING\r\n  \r\n", 3);
        let expected: [&[u8]; 3] =
            [b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", b"*1\r\n$4\r\nPING\r\n"];
        assert_eq!((found, error), (expected.map(<[u8]>::to_vec).to_vec(), None));
    }

    #[test]
    fn commands_without_arguments_are_passed_over() {
        assert_eq!(all(b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n", 100).0.len(), 1);
    }

    /// Redis answers it, so that a client waits for that.
    #[test]
    fn a_name_of_no_letters_is_a_command() {
        let array = b"*1\r\n$0\r\n\r\n";
        assert_eq!(all(array, 100).0, [array.to_vec()]);
        assert_eq!(all(b"\"\"\r\n", 100).0, [array.to_vec()]);
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let (found, error) = all(&b"a".repeat(INLINE_LEN_MAX), 1 << 10);
        assert_eq!((found.len(), error), (0, Some(ProtocolError::InlineLength)));
    }

    proptest! {
        #[test]
        fn how_it_is_cut_changes_nothing(
            commands in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5), 0..6),
            garbage in prop::collection::vec(any::<u8>(), 0..20),
            fragment_len in 1_usize..40,
        ) {
            let mut bytes = Vec::new();
            for command in &commands {
                let arguments: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                scan::write(&arguments, &mut bytes);
            }
            let (found, _) = all(&bytes, fragment_len);
            prop_assert_eq!(found.len(), commands.len());
            prop_assert_eq!(found.iter().filter(|at| !bytes.windows(at.len()).any(|window| window == &at[..])).count(), 0);
            bytes.extend_from_slice(&garbage);
            prop_assert_eq!(all(&bytes, fragment_len), all(&bytes, bytes.len().max(1)));
        }
    }
}
