//! The end of a command: an array of bulk strings.
//!
//! | at | comes | then |
//! |---|---|---|
//! | head | `*N\r\n` | N arguments, or the end where N is 0 or less |
//! | argument | `$L\r\n` | its L bytes and `\r\n` |
//! | body | all of it | the next argument, or the end |
//!
//! Invariant: a scan goes on where the last one stopped, so that bytes are looked at once.

/// Error in a client's bytes, in the words of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is none, or too large.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// The length of an argument is none, or longer than a message may be.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// Something else in the place of a command.
    #[error("Protocol error: expected '*', got '{}'", char::from(*.0).escape_default())]
    Head(u8),
    /// Something else in the place of an argument.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0).escape_default())]
    Expected(u8),
    /// A line that does not end.
    #[error("Protocol error: too big inline request")]
    InlineLength,
    /// An inline command whose quotes do not close.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// An argument that does not end where it said.
    #[error("Protocol error: an argument does not end where its length says")]
    Terminator,
    /// A command that is longer than a message may be.
    #[error("Protocol error: the command has more than {0} bytes")]
    TooLong(usize),
}

/// A scan under way, of a command that begins at the front of what it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Bytes that have been looked at.
    at: usize,
    /// Arguments that have not ended; `None` before the head has.
    left: Option<u32>,
    /// The end of the argument that is being skipped, its `\r\n` included.
    body_end: Option<usize>,
}

impl Scan {
    /// Looks at what has come since; `bytes` begins where it did before. The command's length, once
    /// all of it is there.
    ///
    /// # Errors
    ///
    /// Where it is no array of bulk strings, which a server would read as a line, or has more than
    /// `len_max` bytes.
    pub fn advance(
        &mut self,
        bytes: &[u8],
        len_max: usize,
    ) -> Result<Option<usize>, ProtocolError> {
        if self.left.is_none() {
            if let Some(&other) = bytes.first().filter(|&&byte| byte != b'*') {
                return Err(ProtocolError::Head(other));
            }
            let Some((count, end)) =
                number(bytes, 1).map_err(|()| ProtocolError::MultibulkLength)?
            else {
                return Ok(None);
            };
            if count > ARGUMENTS_MAX {
                return Err(ProtocolError::MultibulkLength);
            }
            self.at = end;
            self.left = Some(u32::try_from(count).unwrap_or(0));
        }
        while self.left != Some(0) {
            if !self.skip_argument(bytes, len_max)? {
                return Ok(None);
            }
            self.left = self.left.map(|left| left - 1);
        }
        Ok(Some(self.at))
    }

    /// Skips an argument; false where not all of it is there.
    fn skip_argument(&mut self, bytes: &[u8], len_max: usize) -> Result<bool, ProtocolError> {
        let end = match self.body_end {
            Some(end) => end,
            None => {
                match bytes.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(&other) => return Err(ProtocolError::Expected(other)),
                }
                let read = number(bytes, self.at + 1).map_err(|()| ProtocolError::BulkLength)?;
                let Some((len, start)) = read else { return Ok(false) };
                let len = usize::try_from(len).ok().filter(|&len| len <= len_max);
                let end = start + len.ok_or(ProtocolError::BulkLength)? + END.len();
                if end > len_max {
                    return Err(ProtocolError::TooLong(len_max));
                }
                self.body_end = Some(end);
                end
            }
        };
        let Some(terminator) = bytes.get(end - END.len()..end) else { return Ok(false) };
        if terminator != END {
            return Err(ProtocolError::Terminator);
        }
        (self.at, self.body_end) = (end, None);
        Ok(true)
    }
}

/// A command: an array of bulk strings, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    bytes: &'a [u8],
}

impl<'a> Command<'a> {
    /// Command of which a scan has found the end.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// All of it.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Its arguments, its name first.
    pub fn arguments(self) -> Arguments<'a> {
        let start = memchr::memchr(b'\n', self.bytes).map_or(self.bytes.len(), |at| at + 1);
        Arguments { rest: &self.bytes[start..] }
    }

    /// True if it has no arguments, not even a name: no server answers such a command.
    pub fn is_empty(self) -> bool {
        self.arguments().next().is_none()
    }

    /// Its name, which may be of no letters; empty for one that has no arguments.
    pub fn name(self) -> &'a [u8] {
        self.arguments().next().unwrap_or_default()
    }
}

/// The arguments of a command.
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        // All of it is there, as the scan has seen.
        let (len, start) = number(self.rest, 1).ok()??;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        let argument = self.rest.get(start..end)?;
        self.rest = self.rest.get(end + END.len()..).unwrap_or_default();
        Some(argument)
    }
}

/// Appends a command.
pub fn write(arguments: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(END);
    }
}

/// The number of a line that begins at `at`, and where the line ends; `None` where that has not
/// come.
fn number(bytes: &[u8], at: usize) -> Result<Option<(i64, usize)>, ()> {
    let rest = bytes.get(at..).unwrap_or_default();
    let shown = &rest[..rest.len().min(NUMBER_LEN_MAX)];
    // Nearly all are a digit or two, of which each command has one more than it has words.
    let digits = shown.iter().take(SHORT_LEN_MAX).take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 && shown[digits..].starts_with(END) && (digits == 1 || shown[0] != b'0') {
        let value = shown[..digits].iter().fold(0, |sum, &byte| 10 * sum + i64::from(byte - b'0'));
        return Ok(Some((value, at + digits + END.len())));
    }
    let Some(end) = memchr::memchr(b'\n', shown) else {
        return if rest.len() < NUMBER_LEN_MAX { Ok(None) } else { Err(()) };
    };
    let text = shown[..end].strip_suffix(b"\r").ok_or(())?;
    let text = std::str::from_utf8(text).map_err(|_| ())?;
    // As Redis writes it, which takes no other.
    let digits = text.strip_prefix('-').unwrap_or(text);
    if text.starts_with('+') || text == "-0" || digits.len() > 1 && digits.starts_with('0') {
        return Err(());
    }
    Ok(Some((text.parse().map_err(|_| ())?, at + end + 1)))
}

/// The end of a line.
pub(super) const END: &[u8] = b"\r\n";

/// Most arguments of a command, as in Redis.
const ARGUMENTS_MAX: i64 = 1 << 20;

/// Digits of a number that is read by itself.
const SHORT_LEN_MAX: usize = 8;

/// The longest number with the end of its line.
const NUMBER_LEN_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for (line, value) in [
            ("0", 0),
            ("7", 7),
            ("12345678", 12_345_678),
            ("123456789", 123_456_789),
            ("-1", -1),
            ("9223372036854775807", i64::MAX),
        ] {
            let bytes = format!("x{line}\r\n:");
            assert_eq!(number(bytes.as_bytes(), 1), Ok(Some((value, line.len() + 3))), "{line}");
            for cut in 1..bytes.len() - 1 {
                assert_eq!(number(&bytes.as_bytes()[..cut], 1), Ok(None), "{line} up to {cut}");
            }
        }
        for bad in [
            "\r\n",
            "1\n",
            "1x\r\n",
            "+1\r\n",
            "1\r\r\n",
            "9223372036854775808\r\n",
            "- 1\r\n",
            "007\r\n",
            "01\r\n",
            "-0\r\n",
            "-01\r\n",
        ] {
            assert_eq!(number(bad.as_bytes(), 0), Err(()), "{bad:?}");
        }
    }

    fn check(bytes: &[u8], expected: Result<Option<usize>, ProtocolError>) {
        assert_eq!(Scan::default().advance(bytes, 100), expected);
    }

    #[test]
    fn a_command_ends_with_its_last_argument() {
        check(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1", Ok(Some(20)));
        check(b"*1\r\n$0\r\n\r\n", Ok(Some(10)));
        check(b"*0\r\n", Ok(Some(4)));
        check(b"*-1\r\n", Ok(Some(5)));
    }

    #[test]
    fn what_is_cut_goes_on() {
        let whole = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        let mut scan = Scan::default();
        for len in 0..whole.len() {
            assert_eq!(scan.advance(&whole[..len], 100), Ok(None), "{len}");
        }
        assert_eq!(scan.advance(whole, 100), Ok(Some(whole.len())));
    }

    #[test]
    fn what_no_client_says_is_refused_at_its_header() {
        check(b"*1\r\n$1073741824\r\n", Err(ProtocolError::BulkLength));
        check(b"*1\r\n$-1\r\n", Err(ProtocolError::BulkLength));
        check(b"*2147483647\r\n", Err(ProtocolError::MultibulkLength));
        check(b"*x\r\n", Err(ProtocolError::MultibulkLength));
        check(b"*+1\r\n", Err(ProtocolError::MultibulkLength));
        check(b"*1\r\n:1\r\n", Err(ProtocolError::Expected(b':')));
        check(b"*1\r\n$1\r\nabc", Err(ProtocolError::Terminator));
        // Redis would read it as lines.
        check(b"X1\r\n$25\r\nFLUSHALL\r\nCONFIG GET port\r\n", Err(ProtocolError::Head(b'X')));
        check(b"$", Err(ProtocolError::Head(b'$')));
        check(b"*01\r\n", Err(ProtocolError::MultibulkLength));
        check(b"*2\r\n$60\r\n", Ok(None));
        check(&[b"*", &b"1".repeat(24)[..]].concat(), Err(ProtocolError::MultibulkLength));
        check(b"*1\r\n$99\r\n", Err(ProtocolError::TooLong(100)));
    }

    #[test]
    fn arguments_are_read_back() {
        let mut bytes = Vec::new();
        write(&[b"SET", b"", b"\r\n$"], &mut bytes);
        let command = Command::new(&bytes);
        assert_eq!(command.name(), b"SET");
        assert_eq!(command.arguments().collect::<Vec<_>>(), [&b"SET"[..], b"", b"\r\n$"]);
        assert_eq!(Scan::default().advance(&bytes, 100), Ok(Some(bytes.len())));
    }
}
