//! The end of a reply, RESP2 or RESP3.
//!
//! | begins with | then |
//! |---|---|
//! | `+` `-` `:` `_` `#` `,` `(` | a line |
//! | `$` `!` `=` | a length, as many bytes, `\r\n`; -1 stands for null |
//! | `*` `~` `>` | a count, as many values |
//! | `%` | a count, twice as many |
//! | `\|` | the same, and the value that they belong to |
//!
//! Invariant: values are counted and not kept, so that a reply takes no memory here however it is
//! nested.

use crate::due::Nonsense;

/// A reply under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyEnd {
    /// Values whose type has not come; the reply ends with the last.
    left: u64,
    /// Part that comes next.
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A type.
    Type,
    /// The number of a type, as far as it has come.
    Number { kind: u8, value: u64, digits: u8, is_negative: bool },
    /// A line that nobody reads; the last byte of it.
    Line { last: u8 },
    /// The line feed of a number.
    NumberEnd { kind: u8, value: u64, is_negative: bool },
    /// So many bytes.
    Body(u64),
    /// The end of a body.
    Return,
    /// The end of that.
    Feed,
}

impl Default for ReplyEnd {
    fn default() -> Self {
        Self { left: 1, at: At::Type }
    }
}

impl ReplyEnd {
    /// True if a reply has begun.
    pub fn is_within(&self) -> bool {
        *self != Self::default()
    }

    /// Takes bytes up to the end of the reply, and returns how many those are; `None` where all are
    /// taken and it goes on.
    ///
    /// # Errors
    ///
    /// Where it is no reply.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
        let mut at = 0;
        while at < bytes.len() {
            at += self.step(&bytes[at..])?;
            if self.left == 0 && self.at == At::Type {
                *self = Self::default();
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Takes what stands together of at least one byte.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Nonsense> {
        let byte = bytes[0];
        match self.at {
            At::Type => self.at = self.begin(byte)?,
            At::Line { last } => return self.skip_line(bytes, last),
            At::Body(left) => {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let left = left - taken as u64;
                self.at = if left == 0 { At::Return } else { At::Body(left) };
                return Ok(taken);
            }
            At::Return if byte == b'\r' => self.at = At::Feed,
            At::Feed if byte == b'\n' => self.at = At::Type,
            At::Number { kind, value, digits, is_negative } => {
                self.at = match byte {
                    b'-' if digits == 0 && !is_negative => {
                        At::Number { kind, value, digits, is_negative: true }
                    }
                    b'0'..=b'9' if digits < DIGITS_MAX => {
                        let value = value * 10 + u64::from(byte - b'0');
                        At::Number { kind, value, digits: digits + 1, is_negative }
                    }
                    b'\r' if digits > 0 => At::NumberEnd { kind, value, is_negative },
                    _ => return Err(Nonsense::Framing),
                }
            }
            At::NumberEnd { kind, value, is_negative } if byte == b'\n' => {
                self.at = self.count(kind, value, is_negative)?;
            }
            At::Return | At::Feed | At::NumberEnd { .. } => return Err(Nonsense::Framing),
        }
        Ok(1)
    }

    fn begin(&mut self, kind: u8) -> Result<At, Nonsense> {
        self.left -= 1;
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Ok(At::Line { last: kind }),
            b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|' => {
                Ok(At::Number { kind, value: 0, digits: 0, is_negative: false })
            }
            _ => Err(Nonsense::Framing),
        }
    }

    fn skip_line(&mut self, bytes: &[u8], last: u8) -> Result<usize, Nonsense> {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.at = At::Line { last: bytes[bytes.len() - 1] };
            return Ok(bytes.len());
        };
        let before = if end == 0 { last } else { bytes[end - 1] };
        if before != b'\r' {
            return Err(Nonsense::Framing);
        }
        self.at = At::Type;
        Ok(end + 1)
    }

    /// Part that follows a number.
    fn count(&mut self, kind: u8, value: u64, is_negative: bool) -> Result<At, Nonsense> {
        if is_negative {
            // Null, of which RESP2 has two.
            return if value == 1 && matches!(kind, b'$' | b'*') {
                Ok(At::Type)
            } else {
                Err(Nonsense::Framing)
            };
        }
        let values = match kind {
            b'$' | b'!' | b'=' => return Ok(if value == 0 { At::Return } else { At::Body(value) }),
            b'%' => 2 * value,
            b'|' => 2 * value + 1,
            _ => value,
        };
        self.left += values;
        if self.left > VALUES_MAX { Err(Nonsense::Framing) } else { Ok(At::Type) }
    }
}

/// Digits of a length or a count: no reply is longer.
const DIGITS_MAX: u8 = 12;

/// Values that may be outstanding in a reply, far above what a message holds.
const VALUES_MAX: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(bytes: &[u8], expected: Result<Option<usize>, Nonsense>) {
        assert_eq!(ReplyEnd::default().take(bytes), expected, "{}", bytes.escape_ascii());
    }

    fn check_whole(text: &str) {
        let bytes = text.as_bytes();
        check(&[bytes, b"+next"].concat(), Ok(Some(bytes.len())));
        let mut end = ReplyEnd::default();
        for (index, byte) in bytes.iter().enumerate() {
            let expected = (index + 1 == bytes.len()).then_some(1);
            assert_eq!(end.take(std::slice::from_ref(byte)), Ok(expected), "{text:?} at {index}");
        }
        assert!(!end.is_within());
    }

    #[test]
    fn replies_of_every_type_end_where_they_do() {
        for text in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":-1\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "$0\r\n\r\n",
            "$4\r\na\r\nb\r\n",
            "*0\r\n",
            "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            "_\r\n",
            "#t\r\n",
            ",1.5\r\n",
            "(1234\r\n",
            "!3\r\nERR\r\n",
            "=5\r\ntxt:a\r\n",
            "~1\r\n+a\r\n",
            "%1\r\n+a\r\n*1\r\n:1\r\n",
            "|1\r\n+a\r\n:1\r\n:2\r\n",
        ] {
            check_whole(text);
        }
    }

    #[test]
    fn what_is_no_reply_is_nonsense() {
        for text in [
            "HTTP/1.1",
            "+OK\n",
            "$x\r\n",
            "$\r\n",
            "*1\n",
            "$-2\r\n",
            "%-1\r\n",
            "$1\r\nab\r\n",
            "$1\r\na\rb",
        ] {
            check(text.as_bytes(), Err(Nonsense::Framing));
        }
        check(b"*9999999999999\r\n", Err(Nonsense::Framing));
        check(b"*999999999999\r\n*999999999999\r\n", Err(Nonsense::Framing));
    }

    proptest! {
        #[test]
        fn nothing_panics_and_cuts_change_nothing(bytes in prop::collection::vec(prop::sample::select(&b"+-:$*%|~>!=0123\r\na"[..]), 0..60), len in 1_usize..20) {
            let whole = ReplyEnd::default().take(&bytes);
            let (mut end, mut seen, mut found) = (ReplyEnd::default(), 0, Ok(None));
            for fragment in bytes.chunks(len) {
                match end.take(fragment) {
                    Ok(None) => seen += fragment.len(),
                    Ok(Some(taken)) => { found = Ok(Some(seen + taken)); break }
                    Err(error) => { found = Err(error); break }
                }
            }
            prop_assert_eq!(found, whole);
        }
    }
}
