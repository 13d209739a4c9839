//! One connection of an HTTP/1.1 client with keep-alive, whose requests have no bodies.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, bail, ensure};

/// Reads requests and writes what `answer` says to their queries, until the client ends.
///
/// # Errors
///
/// That the connection ended within a request, or a request is none that is taken.
pub fn serve(
    mut stream: TcpStream,
    mut answer: impl FnMut(String) -> Result<String>,
) -> Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut buffer) = (Vec::new(), [0; 8 << 10]);
    loop {
        while let Some((query, length)) = request(&input)? {
            input.drain(..length);
            stream.write_all(&response(query.map(&mut answer)))?;
        }
        match stream.read(&mut buffer)? {
            0 if input.is_empty() => return Ok(()),
            0 => bail!("the client ended within a request"),
            length => input.extend_from_slice(&buffer[..length]),
        }
    }
}

/// The response to a request, of which the answer is `None` if it has no query.
pub fn response(answer: Option<Result<String>>) -> Vec<u8> {
    let (status, body) = match answer {
        None => ("404 Not Found", "no query\n".to_owned()),
        Some(Err(error)) => ("400 Bad Request", format!("{error}\n")),
        Some(Ok(body)) => ("200 OK", body),
    };
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The query of the request that `bytes` begin with, where it has one, and its length; `None` while
/// more is to come.
///
/// # Errors
///
/// That it is none that is taken.
pub fn request(bytes: &[u8]) -> Result<Option<(Option<String>, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(bytes)? else {
        ensure!(bytes.len() < HEAD_BYTES_MAX, "a request is too long");
        return Ok(None);
    };
    let has_body = |header: &httparse::Header<'_>| {
        header.name.eq_ignore_ascii_case("transfer-encoding")
            || header.name.eq_ignore_ascii_case("content-length") && header.value != b"0"
    };
    ensure!(!head.headers.iter().any(has_body), "bodies are not taken");
    let query = head.path.and_then(|path| path.strip_prefix("/search?q=")).map(decoded);
    Ok(Some((query, length)))
}

/// Text without the percent signs of URLs.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%').then(|| after.get(..2)).flatten();
        let code = escaped
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, code) {
            (_, Some(code)) => {
                bytes.push(code);
                rest = &after[2..];
            }
            (b'+', None) => {
                bytes.push(b' ');
                rest = after;
            }
            (_, None) => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

const HEAD_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_comes_out_of_its_path() {
        let bytes = b"GET /search?q=%2Bone+%22two%22%zz HTTP/1.1\r\nHost: a\r\n\r\n";
        let query = Some("+one \"two\"%zz".to_owned());
        assert_eq!(request(bytes).ok(), Some(Some((query, bytes.len()))));
        assert_eq!(request(&bytes[..20]).ok(), Some(None));
        assert!(request(b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\n").is_err());
    }
}
