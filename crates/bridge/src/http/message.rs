//! Contents of a call: a request or a response of HTTP/1.1, whose body is all that follows its
//! head.
//!
//! What is of one connection alone (Connection, Keep-Alive, Transfer-Encoding, TE, Trailer,
//! Upgrade, Expect and what Connection names) is left out, and a body has its length in
//! Content-Length. Trailers are left out too.

use hyper::body::Bytes;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::{request, response};
use hyper::{Method, Request, Response, StatusCode, Version};

/// Reason why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Its head is malformed, or ends nowhere.
    #[error("the head of the message is malformed")]
    Head,
    /// Its body is not as long as its head says, or is not to be told by it.
    #[error("the message's length is not what its Content-Length says")]
    Length,
    /// It asks for another protocol on the connection.
    #[error("CONNECT and Upgrade are for a connection, and calls share some")]
    Connection,
}

/// Writes a request as a call carries it.
pub fn write_request(head: &request::Parts, body: &[u8], out: &mut Vec<u8>) {
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    out.extend_from_slice(head.method.as_str().as_bytes());
    for part in [" ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    // A target in absolute form names the host where the header need not, and one of HTTP/1.0 needs
    // none.
    if !head.headers.contains_key(HOST) {
        let host = head.uri.authority().map_or("localhost", |host| host.as_str());
        write_header("host", host.as_bytes(), out);
    }
    let has_body = !body.is_empty() || head.headers.contains_key(CONTENT_LENGTH);
    write_rest(&head.headers, has_body.then_some(body.len()), body, out);
}

/// Writes a response as a call carries it; `is_head` where it answers a HEAD, and its length is
/// that of a body that does not follow.
pub fn write_response(head: &response::Parts, is_head: bool, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(head.status.as_str().as_bytes());
    out.extend_from_slice(b" ");
    let usual = head.status.canonical_reason().unwrap_or_default().as_bytes();
    let reason = head.extensions.get::<ReasonPhrase>();
    out.extend_from_slice(reason.map_or(usual, |reason| reason.as_bytes()));
    out.extend_from_slice(b"\r\n");
    let told = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let len = match head.status {
        StatusCode::NO_CONTENT => None,
        _ if is_head => told,
        StatusCode::NOT_MODIFIED => told,
        _ => Some(body.len()),
    };
    write_rest(&head.headers, len, body, out);
}

/// Reads a request.
///
/// # Errors
///
/// Where nothing of it may be sent to a server.
pub fn read_request(message: &[u8]) -> Result<Request<Bytes>, MessageError> {
    let mut room = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut room);
    let httparse::Status::Complete(len) = head.parse(message).map_err(|_| MessageError::Head)?
    else {
        return Err(MessageError::Head);
    };
    let method = Method::from_bytes(head.method.unwrap_or_default().as_bytes());
    let method = method.map_err(|_| MessageError::Head)?;
    if method == Method::CONNECT {
        return Err(MessageError::Connection);
    }
    let target = head.path.unwrap_or_default();
    let mut request = Request::builder().method(method).uri(target).version(Version::HTTP_11);
    let headers = request.headers_mut().ok_or(MessageError::Head)?;
    read_headers(head.headers, headers)?;
    let body = &message[len..];
    let told = told_len(headers)?;
    if told.unwrap_or(0) != body.len() {
        return Err(MessageError::Length);
    }
    request.body(Bytes::copy_from_slice(body)).map_err(|_| MessageError::Head)
}

/// Reads a response; of one to a HEAD too.
///
/// # Errors
///
/// Where it is none.
pub fn read_response(message: &[u8]) -> Result<Response<Bytes>, MessageError> {
    let mut room = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut room);
    let httparse::Status::Complete(len) = head.parse(message).map_err(|_| MessageError::Head)?
    else {
        return Err(MessageError::Head);
    };
    let mut response = Response::builder().status(head.code.unwrap_or_default());
    let reason = head.reason.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok());
    if let (Some(reason), Some(extensions)) = (reason, response.extensions_mut()) {
        extensions.insert(reason);
    }
    read_headers(head.headers, response.headers_mut().ok_or(MessageError::Head)?)?;
    response.body(Bytes::copy_from_slice(&message[len..])).map_err(|_| MessageError::Head)
}

fn read_headers(
    read: &[httparse::Header<'_>],
    headers: &mut HeaderMap,
) -> Result<(), MessageError> {
    for header in read {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_bytes(header.value);
        let (Ok(name), Ok(value)) = (name, value) else { return Err(MessageError::Head) };
        if name == "upgrade" {
            return Err(MessageError::Connection);
        }
        if name == "transfer-encoding" {
            return Err(MessageError::Length);
        }
        if !is_of_connection(&name) {
            headers.append(name, value);
        }
    }
    Ok(())
}

/// The body's length as the head tells it.
fn told_len(headers: &HeaderMap) -> Result<Option<usize>, MessageError> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.any(|value| value != first) {
        return Err(MessageError::Length);
    }
    let len = first.to_str().ok().and_then(|text| text.parse().ok());
    len.map(Some).ok_or(MessageError::Length)
}

fn write_rest(headers: &HeaderMap, len: Option<usize>, body: &[u8], out: &mut Vec<u8>) {
    let is_named = |name: &HeaderName| {
        let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let mut words = named.flat_map(|value| value.split(','));
        words.any(|word| word.trim().eq_ignore_ascii_case(name.as_str()))
    };
    for (name, value) in headers {
        if !is_of_connection(name) && name != CONTENT_LENGTH && !is_named(name) {
            write_header(name.as_str(), value.as_bytes(), out);
        }
    }
    if let Some(len) = len {
        write_header("content-length", len.to_string().as_bytes(), out);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}

fn write_header(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// True if a header is of one connection alone.
fn is_of_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "transfer-encoding"
            | "te"
            | "trailer"
            | "upgrade"
            | "expect"
    )
}

/// Headers of a message, as many as hyper takes.
const HEADERS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rewritten(text: &str) -> Result<String, MessageError> {
        let (head, body) = read_request(text.as_bytes())?.into_parts();
        let mut out = Vec::new();
        write_request(&head, &body, &mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_request_is_read_and_written() {
        for text in [
            "GET /a?b=c HTTP/1.1\r\nhost: x\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: x\r\naccept: a\r\naccept: b\r\ncontent-length: 3\r\n\r\nabc",
            "PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert_eq!(rewritten(text).unwrap(), text);
        }
        let text = "GET http://x/a HTTP/1.1\r\nKeep-Alive: 5\r\nConnection: close, foo\r\n\r\n";
        assert_eq!(rewritten(text).unwrap(), "GET /a HTTP/1.1\r\nhost: x\r\n\r\n");
    }

    #[test]
    fn what_would_disturb_a_connection_is_refused() {
        let check = |text: &str, error| assert_eq!(rewritten(text), Err(error), "{text:?}");
        check("GET / HTTP/1.1\r\n", MessageError::Head);
        check("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", MessageError::Length);
        check("GET / HTTP/1.1\r\ncontent-length: 1\r\n\r\n", MessageError::Length);
        check(
            "GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\na",
            MessageError::Length,
        );
        check(
            "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            MessageError::Length,
        );
        check("GET / HTTP/1.1\r\nupgrade: websocket\r\n\r\n", MessageError::Connection);
        check("CONNECT x:1 HTTP/1.1\r\n\r\n", MessageError::Connection);
    }

    #[test]
    fn a_response_to_a_head_keeps_the_length_that_it_tells() {
        let head =
            Response::builder().header("content-length", "1234").body(()).unwrap().into_parts().0;
        let mut out = Vec::new();
        write_response(&head, true, b"", &mut out);
        assert_eq!(out, b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n");
        let response = read_response(&out).unwrap();
        assert_eq!((response.status(), response.body().len()), (StatusCode::OK, 0));
        out.clear();
        write_response(&head, false, b"abc", &mut out);
        assert_eq!(out, b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc");
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..80), start in 0_usize..3) {
            let bytes = [[&b""[..], b"GET / HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n"][start], &bytes].concat();
            let _ = read_request(&bytes);
            let _ = read_response(&bytes);
        }
    }
}
