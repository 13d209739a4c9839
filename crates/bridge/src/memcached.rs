//! memcached's protocols, the text one and the binary one.
//!
//! | message | reply |
//! |---|---|
//! | a command of text, with its data | lines and data up to the one that ends it |
//! | a binary request | one binary response |
//!
//! What has no answer (`noreply`, quiet opcodes) is no call, and what has several binary ones
//! (stat) neither.

use std::str::FromStr;

use crate::due::{Dialect, Nonsense};

/// Reason why a message is not for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is not one whole command.
    #[error("the message is not one whole command of memcached")]
    Malformed,
    /// It has no answer, several, or is for who runs the server.
    #[error("it cannot be called: a call has one answer, and the server is its owner's to run")]
    Forbidden,
}

/// Properties of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Protocol of the message.
    pub dialect: Dialect,
    /// It changes nothing.
    pub is_idempotent: bool,
}

/// Reads a message.
///
/// # Errors
///
/// Where it is not for a server: nothing of it may be sent.
pub fn read(message: &[u8]) -> Result<Request, MessageError> {
    if message.first() == Some(&BINARY_REQUEST) { read_binary(message) } else { read_text(message) }
}

fn read_binary(message: &[u8]) -> Result<Request, MessageError> {
    let (Some(header), opcode) = (message.first_chunk::<HEADER_LEN>(), message.get(1)) else {
        return Err(MessageError::Malformed);
    };
    if body_len(header) != message.len() - HEADER_LEN {
        return Err(MessageError::Malformed);
    }
    let is_idempotent = match opcode {
        // Get, version, get with key, noop.
        Some(0x00 | 0x0a | 0x0b | 0x0c) => true,
        // Set to flush, append and prepend, touch, get and touch.
        Some(0x01..=0x06 | 0x08 | 0x0e | 0x0f | 0x1c | 0x1d | 0x23) => false,
        _ => return Err(MessageError::Forbidden),
    };
    Ok(Request { dialect: Dialect::Binary, is_idempotent })
}

fn read_text(message: &[u8]) -> Result<Request, MessageError> {
    let end = memchr::memchr(b'\n', message).ok_or(MessageError::Malformed)?;
    let (line, data) = message.split_at(end + 1);
    let line = line.strip_suffix(b"\r\n").ok_or(MessageError::Malformed)?;
    // A server would read another line after it.
    // Or stop at it, and answer nothing.
    if line.len() > LINE_LEN_MAX || line.iter().any(|&byte| byte < b' ') {
        return Err(MessageError::Malformed);
    }
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    if words.iter().any(|word| word.is_empty()) {
        return Err(MessageError::Malformed);
    }
    let Some((&name, words)) = words.split_first() else { return Err(MessageError::Malformed) };
    if words.last().is_some_and(|&word| word == b"noreply") {
        return Err(MessageError::Forbidden);
    }
    let is_quiet = || words.iter().skip(1).any(|word| word.first() == Some(&b'q'));
    let (len_at, is_idempotent) = match name {
        b"get" | b"gets" if !words.is_empty() => (None, true),
        b"version" => (None, true),
        // The answers of others end otherwise.
        b"stats"
            if matches!(*words, [] | [b"items" | b"slabs" | b"settings" | b"sizes" | b"conns"]) =>
        {
            (None, true)
        }
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
            if !is_store(name, words) {
                return Err(MessageError::Malformed);
            }
            (Some(3), false)
        }
        b"ms" if !is_quiet() && words.first().is_some_and(|key| key.len() <= KEY_LEN_MAX) => {
            (Some(1), false)
        }
        // Some of its flags change what is read.
        b"mg" | b"md" | b"ma" if !words.is_empty() && !is_quiet() => (None, false),
        b"delete" | b"incr" | b"decr" | b"touch" | b"gat" | b"gats" if !words.is_empty() => {
            (None, false)
        }
        b"flush_all" => (None, false),
        b"get" | b"gets" | b"delete" | b"incr" | b"decr" | b"touch" | b"gat" | b"gats" => {
            return Err(MessageError::Malformed);
        }
        _ => return Err(MessageError::Forbidden),
    };
    let has_data = match len_at {
        None => data.is_empty(),
        Some(at) => {
            let len = words.get(at).and_then(|word| number(word)).ok_or(MessageError::Malformed)?;
            data.len() as u64 == len + 2 && data.ends_with(b"\r\n")
        }
    };
    if has_data {
        Ok(Request { dialect: Dialect::Text, is_idempotent })
    } else {
        Err(MessageError::Malformed)
    }
}

/// True if a server takes the words of a line that stores: of one that it does not, it would run
/// the data as a line.
fn is_store(name: &[u8], words: &[&[u8]]) -> bool {
    let (fixed, unique) = words.split_at(words.len().min(4));
    let &[key, flags, expires, _] = fixed else { return false };
    let is_whole = match (name, unique) {
        (b"cas", [unique]) => digits::<u64>(unique).is_some(),
        (b"cas", _) => false,
        (_, rest) => rest.is_empty(),
    };
    let seconds = expires.strip_prefix(b"-").unwrap_or(expires);
    let are_numbers = digits::<u32>(flags).is_some() && digits::<i32>(seconds).is_some();
    key.len() <= KEY_LEN_MAX && is_whole && are_numbers
}

/// The end of an answer in text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextEnd {
    /// The line that is coming, as far as it has.
    line: Vec<u8>,
    /// Bytes of data that are to come, with their end.
    data_left: u64,
    /// The answer ends with them.
    is_last: bool,
}

impl TextEnd {
    /// Takes bytes up to the end of the answer, and returns how many those are; `None` where all
    /// are taken and it goes on.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
        let mut at = 0;
        while at < bytes.len() {
            if self.data_left > 0 {
                let taken =
                    (bytes.len() - at).min(usize::try_from(self.data_left).unwrap_or(usize::MAX));
                (at, self.data_left) = (at + taken, self.data_left - taken as u64);
                if self.data_left == 0 && std::mem::take(&mut self.is_last) {
                    return Ok(Some(at));
                }
                continue;
            }
            let end = memchr::memchr(b'\n', &bytes[at..]);
            let part = &bytes[at..][..end.map_or(bytes.len() - at, |end| end + 1)];
            if self.line.len() + part.len() > LINE_LEN_MAX {
                return Err(Nonsense::Framing);
            }
            self.line.extend_from_slice(part);
            at += part.len();
            if end.is_some() && self.end_line()? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// A line is whole; true if the answer ends with it.
    fn end_line(&mut self) -> Result<bool, Nonsense> {
        let line = self.line.strip_suffix(b"\r\n").ok_or(Nonsense::Framing)?;
        let mut words = line.split(|&byte| byte == b' ');
        let data_at = match words.next().unwrap_or_default() {
            b"VALUE" => Some(2),
            b"VA" => Some(0),
            b"STAT" | b"ITEM" => None,
            word if word.is_empty()
                || !word.iter().all(|byte| {
                    byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_'
                }) =>
            {
                return Err(Nonsense::Framing);
            }
            _ => {
                self.line.clear();
                return Ok(true);
            }
        };
        if let Some(at) = data_at {
            let len = words.nth(at).and_then(number).ok_or(Nonsense::Framing)?;
            (self.data_left, self.is_last) = (len + 2, at == 0);
        }
        self.line.clear();
        Ok(false)
    }
}

/// The end of a binary answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BinaryEnd {
    /// The header, as far as it has come.
    header: Vec<u8>,
    /// Bytes of the body that are to come.
    left: usize,
}

impl BinaryEnd {
    /// As [`TextEnd::take`].
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
        let part = &bytes[..bytes.len().min(HEADER_LEN - self.header.len())];
        self.header.extend_from_slice(part);
        if self.header.first() != Some(&BINARY_RESPONSE) {
            return Err(Nonsense::Framing);
        }
        let mut at = part.len();
        if at > 0
            && let Some(header) = self.header.first_chunk::<HEADER_LEN>()
        {
            self.left = body_len(header);
        }
        if self.header.len() < HEADER_LEN {
            return Ok(None);
        }
        let taken = self.left.min(bytes.len() - at);
        at += taken;
        self.left -= taken;
        if self.left > 0 {
            return Ok(None);
        }
        self.header.clear();
        Ok(Some(at))
    }
}

/// A request that does nothing, and is answered.
pub(crate) fn noop() -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    (bytes[0], bytes[1]) = (BINARY_REQUEST, 0x0a);
    bytes
}

/// True if an answer is an error of the server's.
pub(crate) fn is_error(answer: &[u8]) -> bool {
    let is_text = [&b"ERROR"[..], b"SERVER_ERROR", b"CLIENT_ERROR"]
        .iter()
        .any(|word| answer.starts_with(word));
    // Not found, exists and not stored are answers; what is above is not.
    is_text
        || answer.first() == Some(&BINARY_RESPONSE)
            && answer.get(6..8).is_some_and(|status| status > &[0, 6][..])
}

fn body_len(header: &[u8; HEADER_LEN]) -> usize {
    u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize
}

fn number(text: &[u8]) -> Option<u64> {
    digits::<u32>(text).map(u64::from)
}

/// A number of digits alone.
fn digits<T: FromStr>(text: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(text).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

const BINARY_REQUEST: u8 = 0x80;
const BINARY_RESPONSE: u8 = 0x81;
const HEADER_LEN: usize = 24;

/// Longest key.
const KEY_LEN_MAX: usize = 250;

/// Longest line: a hundred keys of 250 bytes.
const LINE_LEN_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(message: &str, expected: Result<bool, MessageError>) {
        assert_eq!(
            read(message.as_bytes()).map(|request| request.is_idempotent),
            expected,
            "{message:?}"
        );
    }

    #[test]
    fn a_message_is_one_command() {
        check("get a b\r\n", Ok(true));
        check("set a 0 0 3\r\nabc\r\n", Ok(false));
        check("ms a 3 T5\r\nabc\r\n", Ok(false));
        check("mg a v\r\n", Ok(false));
        check("incr a 1\r\n", Ok(false));
        for text in [
            "get a",
            "get\r\n",
            "get a\r\nget b\r\n",
            "set a 0 0 3\r\nabcd\r\n",
            "set a 0 0 -1\r\n",
            "\r\n",
            "get a\rb\r\n",
            "",
            // A server reads no data behind these, and runs it as a line.
            "set a x 0 7\r\nversion\r\n",
            "set a 4294967296 0 1\r\nx\r\n",
            "set a 0 2147483648 1\r\nx\r\n",
            "set a 0 0 1 more\r\nx\r\n",
            "cas a 0 0 1\r\nx\r\n",
            "cas a 0 0 1 x\r\nx\r\n",
            // Or it stops at the byte, and answers nothing.
            "set a 0 0 1 noreply\0\r\nx\r\n",
            "delete a noreply\0x\r\n",
            "get  a\r\n",
        ] {
            check(text, Err(MessageError::Malformed));
        }
        check("set a 4294967295 -1 1\r\nx\r\n", Ok(false));
        check("cas a 0 0 1 18446744073709551615\r\nx\r\n", Ok(false));
        check("stats items\r\n", Ok(true));
        let key = "k".repeat(251);
        check(&format!("set {key} 0 0 7\r\nversion\r\n"), Err(MessageError::Malformed));
        check(&format!("ms {key} 7\r\nversion\r\n"), Err(MessageError::Forbidden));
        check("stats detail dump\r\n", Err(MessageError::Forbidden));
        for text in
            ["set a 0 0 1 noreply\r\nx\r\n", "mg a q\r\n", "quit\r\n", "shutdown\r\n", "watch\r\n"]
        {
            check(text, Err(MessageError::Forbidden));
        }
    }

    fn binary(opcode: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = noop().to_vec();
        bytes[1] = opcode;
        bytes[8..12].copy_from_slice(&(body.len() as u32).to_be_bytes());
        [&bytes[..], body].concat()
    }

    #[test]
    fn a_binary_message_is_one_request_with_one_answer() {
        assert!(read(&binary(0x00, b"key")).unwrap().is_idempotent);
        assert!(!read(&binary(0x01, b"key")).unwrap().is_idempotent);
        for opcode in [0x07, 0x09, 0x10, 0x11, 0x20] {
            assert_eq!(read(&binary(opcode, b"")), Err(MessageError::Forbidden), "{opcode}");
        }
        assert_eq!(read(&binary(0, b"key")[..26]), Err(MessageError::Malformed));
        assert_eq!(read(&[0x80]), Err(MessageError::Malformed));
    }

    fn text_end(text: &str, len: usize) -> Result<Option<usize>, Nonsense> {
        let (mut end, mut seen) = (TextEnd::default(), 0);
        for part in text.as_bytes().chunks(len) {
            if let Some(taken) = end.take(part)? {
                return Ok(Some(seen + taken));
            }
            seen += part.len();
        }
        Ok(None)
    }

    #[test]
    fn answers_end_where_they_do() {
        for text in [
            "STORED\r\n",
            "12\r\n",
            "END\r\n",
            "VALUE a 0 3\r\nEND\r\nVALUE b 0 5 17\r\n\r\nEND\r\nEND\r\n",
            "VA 3 f0\r\nEND\r\n",
            "HD\r\n",
            "STAT pid 1\r\nSTAT x 2\r\nEND\r\n",
            "SERVER_ERROR out of memory\r\n",
            "VERSION 1.6\r\n",
        ] {
            for len in 1..=text.len() {
                assert_eq!(
                    text_end(&format!("{text}x"), len),
                    Ok(Some(text.len())),
                    "{text:?} {len}"
                );
            }
        }
        for text in ["HTTP/1.1 200 OK\r\n", "STORED\n", "VALUE a 0 x\r\n", "-ERR\r\n"] {
            assert_eq!(text_end(text, 3), Err(Nonsense::Framing), "{text:?}");
        }
    }

    #[test]
    fn binary_answers_end_with_their_body() {
        let mut answer = binary(0, b"value");
        answer[0] = BINARY_RESPONSE;
        for len in 1..=answer.len() {
            let (mut end, mut seen, mut found) = (BinaryEnd::default(), 0, None);
            for part in answer.chunks(len) {
                assert_eq!(found, None);
                found = end.take(part).unwrap().map(|taken| seen + taken);
                seen += part.len();
            }
            assert_eq!((found, end), (Some(answer.len()), BinaryEnd::default()), "{len}");
        }
        assert_eq!(BinaryEnd::default().take(b"VALUE"), Err(Nonsense::Framing));
    }

    proptest! {
        #[test]
        fn nothing_panics_and_cuts_change_nothing(text in "(VALUE|VA|END|STAT|[0-9]| |\r\n|a){0,20}", len in 1_usize..9) {
            prop_assert_eq!(text_end(&text, len), text_end(&text, text.len().max(1)));
            let _ = read(text.as_bytes());
        }
    }
}
