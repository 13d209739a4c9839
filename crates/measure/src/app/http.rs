//! `http`: one request of HTTP/1.1, always the same, and the framing of replies to it (RFC 9112,
//! section 6).
//!
//! | reply | body |
//! |---|---|
//! | 1xx | none, and the reply is yet to come |
//! | 204, 304, to HEAD | none |
//! | `Transfer-Encoding` that ends in chunked | chunks and trailers |
//! | any other `Transfer-Encoding` | until the connection closes |
//! | `Content-Length` | so many bytes |
//! | else | until the connection closes |

use std::fmt;
use std::sync::Arc;

use super::codec::{Carrier, Codec, Expected, Framer, Loader, Setting, Write};
use super::entry::{Entry, Serves};
use super::error::AppError;
use super::lines::{Line, Lines, decimal, skip};
use super::options::{Options, quoted};
use super::reply::{After, BODY_BYTES_MAX, ErrorCode, ErrorKind, Malformed, Outcome, Reply};
use crate::generator::Generator;

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "http",
    form: "http:METHOD:/PATH",
    parse,
    carrier: Carrier::Stream,
    serves: Serves::Nothing,
}];

#[derive(Debug, PartialEq)]
struct Http {
    /// A token, such as `GET`.
    method: String,
    /// Path and query, from the slash on.
    path: String,
    /// The `Host`; the target's, if there is none.
    host: Option<String>,
    /// Further lines of the head, such as `Accept: */*`.
    headers: Vec<String>,
    /// What it carries; empty for nothing.
    body: String,
}

fn parse(text: &str, _: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError> {
    let mut http = Http::default();
    let (method, path) = text.split_once(':').unwrap_or(("", ""));
    if text.starts_with('/') {
        text.clone_into(&mut http.path);
    } else if path.starts_with('/')
        && !method.is_empty()
        && method.bytes().all(|c| c.is_ascii_alphabetic())
    {
        (http.method, http.path) = (method.to_owned(), path.to_owned());
    } else {
        let mut options = Options::parse("http", text)?;
        http.method = options.take("method")?.unwrap_or(http.method);
        http.path = options.take("path")?.unwrap_or(http.path);
        http.host = options.take("host")?;
        http.headers = options.take_all("header")?;
        http.body = options.take("body")?.unwrap_or_default();
        options.finish("METHOD:/PATH, or method=, path=, host=, header= (often) and body=")?;
    }
    http.check()?;
    Ok(Arc::new(http))
}

impl Default for Http {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            host: None,
            headers: Vec::new(),
            body: String::new(),
        }
    }
}

impl Http {
    /// Refuses what would be no request, or another one than is meant.
    fn check(&self) -> Result<(), AppError> {
        let refuse = |reason: &'static str| Err(AppError::Http(reason));
        if self.method.is_empty() || !self.method.bytes().all(is_token) || self.method == "CONNECT"
        {
            return refuse("a method is a word such as GET, and not CONNECT");
        }
        if !self.path.starts_with('/') || !self.path.bytes().all(|c| c.is_ascii_graphic()) {
            return refuse(
                "a path begins with a slash and has no spaces; write what is not ASCII as %XX",
            );
        }
        if self
            .host
            .as_ref()
            .is_some_and(|host| host.is_empty() || !host.bytes().all(|c| c.is_ascii_graphic()))
        {
            return refuse("a host is a name, and a port behind it where that is not 80");
        }
        for header in &self.headers {
            let (name, value) = header.split_once(':').unwrap_or_default();
            if name.is_empty() || !name.bytes().all(is_token) || value.chars().any(char::is_control)
            {
                return refuse("a header is a line such as `Accept: */*`");
            }
            if FRAMING_HEADERS.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
                return refuse(
                    "Host, Content-Length, Transfer-Encoding and Expect are not for the headers",
                );
            }
        }
        Ok(())
    }

    /// The request to `authority`, a name with its port.
    fn encode(&self, authority: &str) -> Vec<u8> {
        let host = self.host.as_deref().unwrap_or(authority);
        let mut request = format!("{} {} HTTP/1.1\r\nHost: {host}\r\n", self.method, self.path);
        for header in &self.headers {
            request.push_str(header);
            request.push_str("\r\n");
        }
        // Methods that mean a body say so even of an empty one.
        if !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH") {
            request.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        request.push_str("\r\n");
        request.push_str(&self.body);
        request.into_bytes()
    }
}

impl Codec for Http {
    fn requests(&self, setting: Setting<'_>, _: &mut Generator) -> Result<Write, AppError> {
        let request = self.encode(setting.authority);
        let due = if self.method == "HEAD" { NO_BODY } else { BODY };
        Ok(Box::new(move |tag, _, out| {
            out.extend_from_slice(&request);
            Expected { tag, due }
        }))
    }

    fn replies(&self) -> Box<dyn Framer> {
        Box::new(Replies::new())
    }

    /// Servers are not to be trusted with more than one.
    fn pipeline_max(&self) -> Option<u32> {
        Some(1)
    }
}

impl fmt::Display for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, host, headers, body } = self;
        let short = Self { method: method.clone(), path: path.clone(), ..Self::default() };
        if *self == short && method.bytes().all(|c| c.is_ascii_alphabetic()) {
            return write!(f, "{method}:{path}");
        }
        write!(f, "method={method},path={}", quoted(path))?;
        let body = Some(body).filter(|body| !body.is_empty());
        let host = host.iter().map(|host| ("host", host));
        let headers = headers.iter().map(|header| ("header", header));
        let mut options = host.chain(headers).chain(body.map(|body| ("body", body)));
        options.try_for_each(|(name, value)| write!(f, ",{name}={}", quoted(value)))
    }
}

/// The replies of one connection.
#[derive(Debug)]
struct Replies {
    lines: Lines,
    at: At,
    head: Head,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Status,
    Headers,
    /// Within a body, or a chunk; so much is left.
    Length(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// Within a body that the end of the connection ends.
    UntilClose,
}

/// What the head has said so far.
#[derive(Clone, Copy, Debug)]
struct Head {
    status: u16,
    after: After,
    length: Option<u64>,
    encoding: Encoding,
    /// Bytes of it, or of the trailers.
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    None,
    Chunked,
    Other,
}

impl Framer for Replies {
    #[inline]
    fn take(&mut self, bytes: &mut &[u8], expected: Expected) -> Result<Option<Reply>, Malformed> {
        loop {
            match &mut self.at {
                At::UntilClose => {
                    *bytes = &[];
                    return Ok(None);
                }
                At::Length(left) => {
                    let is_over = skip(bytes, left);
                    return Ok(is_over.then(|| self.end()));
                }
                At::Chunk(left) => {
                    if !skip(bytes, left) {
                        return Ok(None);
                    }
                    self.at = At::ChunkEnd;
                }
                _ => {}
            }
            let Some(line) = self.lines.take(bytes, HEAD_BYTES_MAX - self.head.bytes)? else {
                return Ok(None);
            };
            let len = line.len;
            match self.at {
                At::Status => self.head = status(line)?,
                At::Headers if !line.text.is_empty() => self.head.read(line)?,
                At::Headers => {
                    if self.begin_body(expected)? {
                        return Ok(Some(self.end()));
                    }
                    continue;
                }
                At::ChunkSize => {
                    self.at = match chunk_len(line)? {
                        0 => At::Trailers,
                        len => At::Chunk(len),
                    };
                    continue;
                }
                At::ChunkEnd if line.text.is_empty() => {
                    self.at = At::ChunkSize;
                    continue;
                }
                At::ChunkEnd => return Err(Malformed::Syntax("the end of a chunk")),
                At::Trailers if line.text.is_empty() => return Ok(Some(self.end())),
                At::Trailers | At::Length(_) | At::Chunk(_) | At::UntilClose => {}
            }
            if self.at == At::Status {
                self.at = At::Headers;
            }
            self.head.bytes += len;
        }
    }

    fn is_within(&self) -> bool {
        self.at != At::Status || self.lines.is_within()
    }

    fn error_code(&self) -> ErrorCode {
        ErrorCode::of(itoa::Buffer::new().format(self.head.status).as_bytes())
    }

    fn finish(&mut self) -> Option<Reply> {
        (self.at == At::UntilClose).then(|| self.end())
    }
}

impl Replies {
    fn new() -> Self {
        Self { lines: Lines::new(), at: At::Status, head: Head::new(0, After::Keep) }
    }

    /// Whether the reply ends with its head.
    fn begin_body(&mut self, expected: Expected) -> Result<bool, Malformed> {
        let head = &mut self.head;
        // What counts from here on are the trailers.
        head.bytes = 0;
        if head.status == 101 {
            return Err(Malformed::Mismatched("nobody asked for another protocol"));
        }
        if head.status < 200 {
            self.at = At::Status;
            return Ok(false);
        }
        if expected.due == NO_BODY || matches!(head.status, 204 | 304) {
            return Ok(true);
        }
        self.at = match (head.encoding, head.length) {
            (Encoding::Chunked, length) => {
                // Who sends both may mean another end than we do (RFC 9112, section 6.1).
                if length.is_some() {
                    head.after = After::Close;
                }
                At::ChunkSize
            }
            (Encoding::None, Some(0)) => return Ok(true),
            (Encoding::None, Some(length)) => At::Length(length),
            (Encoding::Other, _) | (Encoding::None, None) => {
                head.after = After::Close;
                At::UntilClose
            }
        };
        Ok(false)
    }

    fn end(&mut self) -> Reply {
        self.at = At::Status;
        self.head.bytes = 0;
        Reply { outcome: outcome(self.head.status), after: self.head.after }
    }
}

impl Head {
    fn new(status: u16, after: After) -> Self {
        Self { status, after, length: None, encoding: Encoding::None, bytes: 0 }
    }

    /// Reads a header, of which few say where the reply ends.
    #[inline]
    fn read(&mut self, line: Line<'_>) -> Result<(), Malformed> {
        let Some(colon) = memchr::memchr(b':', line.text) else {
            return Err(Malformed::Syntax("a header of HTTP's"));
        };
        let (name, value) = (&line.text[..colon], line.text[colon + 1..].trim_ascii());
        let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
        // Most are none of ours, which the length of their names tells.
        let ours = match name.len() {
            14 if is(b"content-length") => {
                let length = decimal(value).ok_or(Malformed::Syntax("a Content-Length"))?;
                if length > BODY_BYTES_MAX {
                    return Err(Malformed::TooLong("bodies"));
                }
                if self.length.replace(length).is_some_and(|before| before != length) {
                    return Err(Malformed::Syntax("one Content-Length"));
                }
                true
            }
            17 if is(b"transfer-encoding") => {
                let last = value.rsplit(|&c| c == b',').next().unwrap_or_default();
                let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
                self.encoding = if is_chunked { Encoding::Chunked } else { Encoding::Other };
                true
            }
            10 if is(b"connection") => {
                for option in value.split(|&c| c == b',').map(<[u8]>::trim_ascii) {
                    if option.eq_ignore_ascii_case(b"close") {
                        self.after = After::Close;
                    } else if option.eq_ignore_ascii_case(b"keep-alive") {
                        self.after = After::Keep;
                    }
                }
                true
            }
            _ => false,
        };
        if ours && line.is_cut { Err(Malformed::TooLong("headers")) } else { Ok(()) }
    }
}

/// Reads `HTTP/1.1 200 OK`; the words behind the number may be missing.
fn status(line: Line<'_>) -> Result<Head, Malformed> {
    let not_http = Malformed::Syntax("a status line of HTTP/1.1");
    let (after, rest) = match line.text.split_at_checked(9) {
        Some((b"HTTP/1.1 ", rest)) => (After::Keep, rest),
        // It closes, unless it says otherwise.
        Some((b"HTTP/1.0 ", rest)) => (After::Close, rest),
        _ => return Err(not_http),
    };
    let (digits, rest) = rest.split_at_checked(3).ok_or(not_http)?;
    let status = decimal(digits).filter(|status| (100..600).contains(status)).ok_or(not_http)?;
    if !rest.is_empty() && rest[0] != b' ' {
        return Err(not_http);
    }
    Ok(Head::new(status as u16, after))
}

/// The size in `1f;name=value`.
fn chunk_len(line: Line<'_>) -> Result<u64, Malformed> {
    let not_chunk = Malformed::Syntax("the size of a chunk");
    let digits = line.text.split(|&c| c == b';').next().unwrap_or_default().trim_ascii();
    if digits.is_empty() || digits.len() > 16 {
        return Err(not_chunk);
    }
    let digit = |c: u8| char::from(c).to_digit(16).map(u64::from);
    let len =
        digits.iter().try_fold(0u64, |len, &c| Some(len << 4 | digit(c)?)).ok_or(not_chunk)?;
    if len > BODY_BYTES_MAX { Err(Malformed::TooLong("bodies")) } else { Ok(len) }
}

fn outcome(status: u16) -> Outcome {
    match status {
        401 | 403 | 407 => Outcome::Error(ErrorKind::Unauthorised),
        429 | 503 => Outcome::Error(ErrorKind::Busy),
        400..=499 => Outcome::Error(ErrorKind::Refused),
        500..=599 => Outcome::Error(ErrorKind::Failed),
        _ => Outcome::Ok,
    }
}

fn is_token(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c)
}

/// What the request says itself.
const FRAMING_HEADERS: [&str; 4] = ["host", "content-length", "transfer-encoding", "expect"];
/// Of a reply's head, or of its trailers.
const HEAD_BYTES_MAX: u64 = 1 << 16;

/// What a reply may carry ([`Expected::due`]): a body as its head says, or never one, whatever the
/// head says, for it answers HEAD.
const BODY: u32 = 0;
const NO_BODY: u32 = 1;
