//! Framing of typed services in the bytes of requests and replies.
//!
//! | request | bytes |
//! |---|---|
//! | 0 | version, 1 |
//! | 1-8 | the method's number, big-endian |
//! | 9- | the message |
//!
//! | reply | bytes |
//! |---|---|
//! | 0 | 0x80 + status code |
//! | 1- | of code 0: the message |
//! | 1-4 | of another code: bytes of the text, big-endian |
//! | 5- | the text, in UTF-8, and then the details |
//!
//! A status travels as a reply, which is sent again until it has come, and not as a refusal, whose
//! text goes once. Deadlines and idempotency are in the transport's own header. Version and code
//! never look like each other, so that a server that echoes is not taken for one of services.

use tailcut::sealed::METHOD_VERSION;

use crate::method::MethodId;
use crate::status::{Code, Status};

/// Reason why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// There are too few.
    #[error("it has {0} bytes, too few for a header")]
    TooShort(usize),
    /// A request of another version, or of no typed client.
    #[error("it begins with {0}, and not with version {VERSION}")]
    Version(u8),
    /// A reply of a server that serves no typed services.
    #[error("it begins with {0}, which is no status; are typed services served there?")]
    NoStatus(u8),
}

/// Begins a request to a method; its message is to be appended.
pub fn begin_request(bytes: &mut Vec<u8>, method: MethodId) {
    bytes.push(VERSION);
    bytes.extend_from_slice(&method.0.to_be_bytes());
}

/// The method that a request is for, and its message.
///
/// # Errors
///
/// When the bytes are no typed request.
pub fn parse_request(bytes: &[u8]) -> Result<(MethodId, &[u8]), FrameError> {
    match bytes.split_first_chunk::<REQUEST_HEADER_LEN>() {
        Some((&[VERSION, id @ ..], message)) => Ok((MethodId(u64::from_be_bytes(id)), message)),
        _ => match bytes {
            [version, ..] if *version != VERSION => Err(FrameError::Version(*version)),
            _ => Err(FrameError::TooShort(bytes.len())),
        },
    }
}

/// Begins a reply that has a message, which is to be appended.
pub fn begin_reply(bytes: &mut Vec<u8>) {
    bytes.push(STATUS_BASE);
}

/// Writes a reply that has a status instead.
pub fn write_status(bytes: &mut Vec<u8>, status: &Status) {
    bytes.push(STATUS_BASE + status.code() as u8);
    if status.code() == Code::Ok {
        return;
    }
    let text = status.message();
    // A text of 4 GiB cannot be sent anyway.
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(status.details());
}

/// A reply's message, or its status.
///
/// # Errors
///
/// The status; of [`Code::Internal`] where the bytes are no typed reply.
pub fn parse_reply(bytes: &[u8]) -> Result<&[u8], Status> {
    match bytes {
        [STATUS_BASE, message @ ..] => Ok(message),
        [code @ (STATUS_BASE..), rest @ ..] => Err(parse_status(code - STATUS_BASE, rest)),
        [first, ..] => Err(unreadable(FrameError::NoStatus(*first))),
        [] => Err(unreadable(FrameError::TooShort(0))),
    }
}

/// The status code of a reply that this end has made.
pub(crate) fn code(reply: &[u8]) -> Code {
    reply.first().map_or(Code::Unknown, |first| Code::from_number(first.wrapping_sub(STATUS_BASE)))
}

fn parse_status(code: u8, rest: &[u8]) -> Status {
    let Some((len, rest)) = rest.split_first_chunk() else {
        return unreadable(FrameError::TooShort(1 + rest.len()));
    };
    let len = u32::from_be_bytes(*len) as usize;
    let Some((text, details)) = rest.split_at_checked(len) else {
        return unreadable(FrameError::TooShort(1 + TEXT_LEN_LEN + rest.len()));
    };
    Status::with_details(Code::from_number(code), String::from_utf8_lossy(text), details)
}

fn unreadable(error: FrameError) -> Status {
    Status::internal(format!("the reply cannot be read: {error}"))
}

/// The version of this format, by which a server's access policy finds the method too.
const VERSION: u8 = METHOD_VERSION;

/// Bytes before a request's message.
pub const REQUEST_HEADER_LEN: usize = 9;

/// Bytes before a reply's message.
pub const REPLY_HEADER_LEN: usize = 1;

/// Base that a status code is added to: the first byte of a reply has the highest bit.
const STATUS_BASE: u8 = 0x80;

/// Bytes that say how long a status' text is.
const TEXT_LEN_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(status: &Status) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_status(&mut bytes, status);
        bytes
    }

    #[test]
    fn a_request_is_version_method_and_message() {
        let mut bytes = Vec::new();
        begin_request(&mut bytes, MethodId(0x0102_0304_0506_0708));
        bytes.extend_from_slice(b"hi");
        assert_eq!(bytes, [1, 1, 2, 3, 4, 5, 6, 7, 8, b'h', b'i']);
        let (method, message) = parse_request(&bytes).expect("a request");
        assert_eq!((method, message), (MethodId(0x0102_0304_0506_0708), &b"hi"[..]));
    }

    #[test]
    fn what_is_no_request_is_told() {
        assert_eq!(parse_request(b""), Err(FrameError::TooShort(0)));
        assert_eq!(parse_request(&[1; 8]), Err(FrameError::TooShort(8)));
        assert_eq!(parse_request(&[2; 20]), Err(FrameError::Version(2)));
    }

    #[test]
    fn a_status_is_code_text_and_details() {
        let status = Status::with_details(Code::NotFound, "gone", [7, 8]);
        let bytes = written(&status);
        assert_eq!(bytes, [0x85, 0, 0, 0, 4, b'g', b'o', b'n', b'e', 7, 8]);
        let read = parse_reply(&bytes).expect_err("a status");
        assert_eq!(
            (read.code(), read.message(), read.details()),
            (Code::NotFound, "gone", &[7, 8][..])
        );
    }

    #[test]
    fn a_message_follows_one_byte() {
        let mut bytes = Vec::new();
        begin_reply(&mut bytes);
        bytes.extend_from_slice(b"hello");
        assert_eq!(bytes, b"\x80hello");
        assert_eq!(parse_reply(&bytes).expect("a message"), b"hello");
    }

    #[test]
    fn any_prefix_of_a_status_is_a_status() {
        let bytes = written(&Status::with_details(Code::Aborted, "again", [1]));
        for len in 0..bytes.len() - 1 {
            let read = parse_reply(&bytes[..len]).expect_err("no message");
            assert_eq!(read.code(), Code::Internal, "{len} bytes");
        }
    }

    #[test]
    fn an_echoed_request_is_no_reply() {
        let mut bytes = Vec::new();
        begin_request(&mut bytes, MethodId(3));
        assert_eq!(parse_reply(&bytes).expect_err("no reply").code(), Code::Internal);
    }

    #[test]
    fn a_code_that_is_not_known_is_unknown() {
        assert_eq!(parse_reply(&[0xff, 0, 0, 0, 0]).expect_err("a status").code(), Code::Unknown);
    }
}
