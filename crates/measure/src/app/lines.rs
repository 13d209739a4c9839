//! Lines and bodies out of fragments.
//!
//! Invariant: a line reads the same however it was cut. A whole one is not copied; of one that came
//! in pieces, as of any other, the first [`LINE_BYTES_MAX`] bytes are shown.

use super::reply::Malformed;

/// A line without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// At most [`LINE_BYTES_MAX`] bytes of it.
    pub(super) text: &'a [u8],
    /// Bytes of all of it, with its end.
    pub(super) len: u64,
    /// True if `text` is less than the whole line.
    pub(super) is_cut: bool,
    /// True if the line ended in CR LF, not in LF alone.
    pub(super) has_return: bool,
}

/// A line in the making.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// The beginning of a line whose end has not come.
    held: [u8; LINE_BYTES_MAX + 1],
    held_len: usize,
    /// Bytes of it that came so far, held or not.
    seen: u64,
    /// Last of these bytes.
    last: u8,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self { held: [0; LINE_BYTES_MAX + 1], held_len: 0, seen: 0, last: 0 }
    }

    /// Takes bytes up to the end of a line, or all of them when it does not end in them.
    ///
    /// A line of more than `bytes_max` bytes with its end is malformed.
    #[inline]
    pub(super) fn take<'a, 'b: 'a>(
        &'a mut self,
        bytes: &mut &'b [u8],
        bytes_max: u64,
    ) -> Result<Option<Line<'a>>, Malformed> {
        let found = memchr::memchr(b'\n', bytes);
        let taken = found.map_or(bytes.len(), |at| at + 1);
        if self.seen + taken as u64 > bytes_max {
            return Err(Malformed::TooLong("lines"));
        }
        let (part, rest) = bytes.split_at(taken);
        *bytes = rest;
        if self.seen == 0 && found.is_some() {
            return Ok(Some(line(part, taken as u64, part.iter().rev().nth(1).copied())));
        }
        Ok(self.join(part, found.is_some()))
    }

    /// The way of lines that came in pieces.
    fn join(&mut self, part: &[u8], ends: bool) -> Option<Line<'_>> {
        let room = part.len().min(self.held.len() - self.held_len);
        self.held[self.held_len..][..room].copy_from_slice(&part[..room]);
        self.held_len += room;
        self.seen += part.len() as u64;
        let before = part
            .iter()
            .rev()
            .nth(1)
            .copied()
            .or((part.len() == 1 && self.seen > 1).then_some(self.last));
        self.last = part.last().copied().unwrap_or(self.last);
        if !ends {
            return None;
        }
        let (held_len, seen) = (self.held_len, self.seen);
        (self.held_len, self.seen) = (0, 0);
        Some(line(&self.held[..held_len], seen, before))
    }

    /// True if a line has begun.
    pub(super) fn is_within(&self) -> bool {
        self.seen > 0
    }
}

/// Line of `len` bytes that begins with `bytes`; `before` is what came before its end.
fn line(bytes: &[u8], len: u64, before: Option<u8>) -> Line<'_> {
    let has_return = before == Some(b'\r');
    let text_len = len - 1 - u64::from(has_return);
    let shown = text_len.min(LINE_BYTES_MAX as u64);
    Line { text: &bytes[..shown as usize], len, is_cut: shown < text_len, has_return }
}

/// The head of a fixed length that a message begins with, in the making.
#[derive(Clone, Debug)]
pub(super) struct HeldHead<const N: usize> {
    held: [u8; N],
    held_len: usize,
}

impl<const N: usize> HeldHead<N> {
    pub(super) fn new() -> Self {
        Self { held: [0; N], held_len: 0 }
    }

    /// Takes bytes up to the end of a head of `len`, which is `N` at most; none where it goes on.
    /// One that comes whole is not copied.
    #[inline]
    pub(super) fn take<'a, 'b: 'a>(
        &'a mut self,
        bytes: &mut &'b [u8],
        len: usize,
    ) -> Option<&'a [u8]> {
        let (part, rest) = bytes.split_at(bytes.len().min(len - self.held_len));
        *bytes = rest;
        if part.len() == len {
            return Some(part);
        }
        self.held[self.held_len..][..part.len()].copy_from_slice(part);
        self.held_len = (self.held_len + part.len()) % len;
        (self.held_len == 0).then(|| &self.held[..len])
    }

    /// True if a head has begun.
    pub(super) fn is_within(&self) -> bool {
        self.held_len > 0
    }
}

/// Passes over `left` bytes; whether none is left.
#[inline]
pub(super) fn skip(bytes: &mut &[u8], left: &mut u64) -> bool {
    let taken = (bytes.len() as u64).min(*left);
    *bytes = &bytes[taken as usize..];
    *left -= taken;
    *left == 0
}

/// Decimal digits and nothing else.
#[inline]
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    // Nineteen digits fit.
    text.iter()
        .try_fold(0u64, |value, c| c.is_ascii_digit().then(|| value * 10 + u64::from(c - b'0')))
}

/// Bytes that are shown of a line. The longest that means something is memcached's, with a key of
/// 250 bytes.
pub(super) const LINE_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimals_are_digits_alone() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"0120"), Some(120));
        for text in ["", "-1", "+1", "1 ", "0x1", "99999999999999999999"] {
            assert_eq!(decimal(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_line_beyond_its_limit_is_malformed() {
        let mut lines = Lines::new();
        assert_eq!(lines.take(&mut &b"123456789\n"[..], 10).unwrap().unwrap().text, b"123456789");
        assert_eq!(lines.take(&mut &b"1234567890"[..], 10), Ok(None));
        assert_eq!(lines.take(&mut &b"1"[..], 10), Err(Malformed::TooLong("lines")));
    }

    proptest! {
        #[test]
        fn a_line_reads_the_same_however_it_was_cut(
            text in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'a'), Just(b'b')], 0..20),
            padding in prop_oneof![Just(0usize), 500usize..530],
            cuts in prop::collection::vec(1usize..100, 0..20),
        ) {
            let mut whole = vec![b'x'; padding];
            whole.extend(&text);
            whole.push(b'\n');
            let (mut one, mut many) = (Lines::new(), Lines::new());
            let mut bytes = &whole[..];
            let expected = one.take(&mut bytes, u64::MAX).unwrap().unwrap();
            prop_assert_eq!(expected.is_cut, whole.len() - 1 - usize::from(expected.has_return) > LINE_BYTES_MAX);
            let mut rest = &whole[..];
            for cut in cuts {
                if cut < rest.len() {
                    let (mut part, after) = rest.split_at(cut);
                    prop_assert_eq!(many.take(&mut part, u64::MAX).unwrap(), None);
                    rest = after;
                }
            }
            prop_assert_eq!(many.take(&mut rest, u64::MAX).unwrap(), Some(expected));
            prop_assert!(!many.is_within());
        }
    }
}
