//! `http` and `http2`: requests by their weights, and the framing of replies to them in HTTP/1.1
//! (RFC 9112, section 6). In HTTP/2 they are streams.
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

use rand::RngExt;

use super::codec::{Carrier, Codec, Expected, Framer, Loader, Session, Setting, Write};
use super::entry::{AppOption, Entry, Serves};
use super::error::AppError;
use super::http2::{self, Http2};
use super::lines::{Line, Lines, decimal, skip};
use super::options::{Options, quoted};
use super::reply::{After, BODY_BYTES_MAX, ErrorCode, ErrorKind, Malformed, Outcome, Reply};
use super::requests_file::{ReadFile, read_text, weighted_lines};
use crate::generator::Generator;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: NAMES[0],
        form: "http:METHOD:/PATH",
        about: "requests of HTTP/1.1: http:/PATH, http:METHOD:/PATH, each with options behind a comma, or http:@FILE with a request a line and its weight in front",
        options: &[OPTIONS],
        parse,
        carrier: Carrier::Stream,
        with_files: Some(|text, read| with_files(NAMES[0], text, read)),
        serves: Serves::Nothing,
    },
    Entry {
        name: NAMES[1],
        form: "http2:METHOD:/PATH",
        about: "the same requests in HTTP/2, many at a time on a connection; in clear the server must know it beforehand",
        options: &[OPTIONS],
        parse: parse_2,
        carrier: Carrier::Stream,
        with_files: Some(|text, read| with_files(NAMES[1], text, read)),
        serves: Serves::Nothing,
    },
];

/// Names of the applications, by version.
const NAMES: [&str; 2] = ["http", "http2"];

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1 = 0,
    V2 = 1,
}

impl Version {
    fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// Requests with their weights.
#[derive(Debug, PartialEq)]
struct Http {
    version: Version,
    requests: Vec<(u32, Request)>,
}

/// A request.
#[derive(Debug, PartialEq)]
struct Request {
    /// A token, such as `GET`.
    method: String,
    /// Path and query, from the slash on.
    path: String,
    /// The `Host`; the target's, if there is none.
    host: Option<String>,
    /// Further lines of the head, such as `Accept: */*`.
    headers: Vec<String>,
    /// Body of the request; empty for none.
    body: String,
}

fn parse(text: &str, _: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError> {
    Ok(Arc::new(Http::parse(Version::V1, text)?))
}

fn parse_2(text: &str, _: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError> {
    Ok(Arc::new(Http::parse(Version::V2, text)?))
}

impl Http {
    fn parse(version: Version, text: &str) -> Result<Self, AppError> {
        if text.starts_with('@') {
            return Err(AppError::Http("a file of requests is read where the command is given"));
        }
        let name = version.name();
        let listed =
            text.starts_with("requests=").then(|| Options::parse(name, text)).transpose()?;
        let Some(mut options) = listed else {
            return Ok(Self { version, requests: vec![(1, Request::parse(version, text)?)] });
        };
        let lines = options.take("requests")?.unwrap_or_default();
        options.finish(&[OPTIONS])?;
        let requests = weighted_lines("requests", &lines)
            .map(|line| Ok((line.weight?, Request::parse(version, line.text)?)))
            .collect::<Result<Vec<_>, AppError>>()?;
        if requests.is_empty() {
            return Err(AppError::Http("there is no request in the list"));
        }
        Ok(Self { version, requests })
    }

    /// Writes one of the encoded requests, by their weights.
    fn writer(encoded: Vec<(u32, Vec<u8>, u32)>, bound: u32) -> Write {
        Box::new(move |tag, rng, out| {
            let place = match encoded.len() {
                1 => 0,
                _ => {
                    let drawn = rng.random_range(0..bound);
                    encoded.partition_point(|&(below, ..)| below <= drawn)
                }
            };
            let (_, request, due) = &encoded[place];
            out.extend_from_slice(request);
            Expected { tag, due: *due }
        })
    }
}

/// Replaces the files that an application names by what they hold: `body=@FILE`, and `http:@FILE`,
/// a list of requests. This crate does no IO: `read` gives what a file holds.
fn with_files(name: &'static str, text: &str, read: &mut ReadFile<'_>) -> Result<String, AppError> {
    let mut read = |path: &str| read_text(path, read);
    let Some(path) = text.strip_prefix('@') else { return with_body(name, text, &mut read) };
    let list = read(path)?;
    let mut lines = Vec::new();
    for line in weighted_lines("requests", &list) {
        lines.push(format!("{} {}", line.weight?, with_body(name, line.text, &mut read)?));
    }
    Ok(format!("requests={}", quoted(&lines.join("\n"))))
}

fn with_body(
    name: &'static str,
    text: &str,
    read: &mut dyn FnMut(&str) -> Result<String, AppError>,
) -> Result<String, AppError> {
    let (short, rest) = split_short(text);
    let mut options = Options::parse(name, rest)?;
    let file = options.look("body").and_then(|body| body.strip_prefix('@')).map(str::to_owned);
    let Some(path) = file else { return Ok(text.to_owned()) };
    options.replace("body", ("data", read(&path)?));
    let short = Some(short.to_owned()).filter(|short| !short.is_empty());
    Ok(short.into_iter().chain(options.written()).collect::<Vec<_>>().join(","))
}

/// `/PATH` or `METHOD:/PATH` in front, which may be missing, and the options behind it.
fn split_short(text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once(',').unwrap_or((text, ""));
    let (method, path) = first.split_once(':').unwrap_or(("", ""));
    let is_method = !method.is_empty() && method.bytes().all(|c| c.is_ascii_alphabetic());
    if first.starts_with('/') || (is_method && path.starts_with('/')) {
        (first, rest)
    } else {
        ("", text)
    }
}

impl Default for Request {
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

impl Request {
    fn parse(version: Version, text: &str) -> Result<Self, AppError> {
        let mut request = Self::default();
        let (short, rest) = split_short(text);
        let mut options = Options::parse(version.name(), rest)?;
        if let Some((method, path)) = short.split_once(':').filter(|_| !short.starts_with('/')) {
            (request.method, request.path) = (method.to_owned(), path.to_owned());
        } else if !short.is_empty() {
            short.clone_into(&mut request.path);
        }
        request.method = options.take("method")?.unwrap_or(request.method);
        let path = options.take("path")?;
        if path.is_some() && !short.is_empty() {
            return Err(AppError::Together("http: a path in front and path="));
        }
        request.path = path.unwrap_or(request.path);
        request.host = options.take("host")?;
        request.headers = options.take_all("header")?;
        let (body, data) = (options.take("body")?, options.take("data")?);
        match (&body, &data) {
            (Some(_), Some(_)) => return Err(AppError::Together("http: body and data")),
            (Some(body), None) if body.starts_with('@') => {
                return Err(AppError::Http("a body's file is read where the command is given"));
            }
            _ => {}
        }
        request.body = body.or(data).unwrap_or_default();
        options.finish(&[OPTIONS])?;
        request.check(version)?;
        Ok(request)
    }

    /// Refuses what would be no request, or another one than is meant.
    fn check(&self, version: Version) -> Result<(), AppError> {
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
            let is_of_connection =
                CONNECTION_HEADERS.iter().any(|of| name.eq_ignore_ascii_case(of));
            if version == Version::V2 && is_of_connection {
                return refuse("Connection, Keep-Alive and such are not spoken in HTTP/2");
            }
            if FRAMING_HEADERS.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
                return refuse(
                    "Host, Content-Length, Transfer-Encoding and Expect are not for the headers",
                );
            }
        }
        Ok(())
    }

    /// The request in HTTP/2, as its session reads it.
    fn encode_2(&self, setting: Setting<'_>) -> Vec<u8> {
        let mut head = Vec::new();
        match self.method.as_str() {
            "GET" => http2::write_indexed(METHOD_GET, &mut head),
            "POST" => http2::write_indexed(METHOD_POST, &mut head),
            method => http2::write_named(METHOD_GET, method.as_bytes(), &mut head),
        }
        http2::write_indexed(if setting.is_tls { SCHEME_HTTPS } else { SCHEME_HTTP }, &mut head);
        http2::write_named(PATH, self.path.as_bytes(), &mut head);
        let authority = self.host.as_deref().unwrap_or(setting.authority);
        http2::write_named(AUTHORITY, authority.as_bytes(), &mut head);
        for header in &self.headers {
            let (name, value) = header.split_once(':').unwrap_or_default();
            let name = name.to_ascii_lowercase();
            http2::write_literal(name.as_bytes(), value.trim().as_bytes(), &mut head);
        }
        let length = self.body.len().to_string();
        if !self.body.is_empty() || self.means_body() {
            http2::write_named(CONTENT_LENGTH, length.as_bytes(), &mut head);
        }
        let mut request = Vec::new();
        let body = self.body.as_bytes();
        http2::Request { head: &head, body, message_len: 0 }.write(&mut request);
        request
    }

    /// Methods that mean a body say so even of an empty one.
    fn means_body(&self) -> bool {
        matches!(self.method.as_str(), "POST" | "PUT" | "PATCH")
    }

    /// The request to `authority`, a name with its port.
    fn encode(&self, authority: &str) -> Vec<u8> {
        let host = self.host.as_deref().unwrap_or(authority);
        let mut request = format!("{} {} HTTP/1.1\r\nHost: {host}\r\n", self.method, self.path);
        for header in &self.headers {
            request.push_str(header);
            request.push_str("\r\n");
        }
        if !self.body.is_empty() || self.means_body() {
            request.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        request.push_str("\r\n");
        request.push_str(&self.body);
        request.into_bytes()
    }
}

impl Codec for Http {
    fn requests(&self, setting: Setting<'_>, _: &mut Generator) -> Result<Write, AppError> {
        let mut bound = 0;
        let encode = |(weight, request): &(u32, Request)| {
            bound += weight;
            let due = if request.method == "HEAD" { NO_BODY } else { BODY };
            let bytes = match self.version {
                Version::V1 => request.encode(setting.authority),
                Version::V2 => request.encode_2(setting),
            };
            (bound, bytes, due)
        };
        let encoded = self.requests.iter().map(encode).collect();
        Ok(Self::writer(encoded, bound))
    }

    fn replies(&self) -> Box<dyn Framer> {
        Box::new(Replies::new())
    }

    fn session(&self) -> Option<Box<dyn Session>> {
        let judge = |status, _| (outcome(status), code(status));
        (self.version == Version::V2).then(|| Box::new(Http2::new(judge)) as Box<dyn Session>)
    }

    fn alpn(&self) -> Option<&'static str> {
        (self.version == Version::V2).then_some("h2")
    }

    fn credentials_advice(&self) -> &'static str {
        "Send credentials: --app 'http:/PATH,header=Authorization: ...'."
    }

    /// Servers of HTTP/1.1 are not to be trusted with more than one.
    fn pipeline_max(&self) -> Option<u32> {
        Some(match self.version {
            Version::V1 => 1,
            Version::V2 => http2::STREAMS_USUAL,
        })
    }
}

impl fmt::Display for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(1, request)] = self.requests.as_slice() {
            return request.fmt(f);
        }
        let lines = self.requests.iter().map(|(weight, request)| format!("{weight} {request}"));
        write!(f, "requests={}", quoted(&lines.collect::<Vec<_>>().join("\n")))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, host, headers, body } = self;
        let short = Self { method: method.clone(), path: path.clone(), ..Self::default() };
        let is_plain = method.bytes().all(|c| c.is_ascii_alphabetic()) && !path.contains(',');
        if *self == short && is_plain {
            return write!(f, "{method}:{path}");
        }
        write!(f, "method={method},path={}", quoted(path))?;
        let name = if body.starts_with('@') { "data" } else { "body" };
        let body = Some(body).filter(|body| !body.is_empty());
        let host = host.iter().map(|host| ("host", host));
        let headers = headers.iter().map(|header| ("header", header));
        let mut options = host.chain(headers).chain(body.map(|body| (name, body)));
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

/// Contents of the head so far.
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
        code(self.head.status)
    }

    fn finish(&mut self) -> Option<Reply> {
        (self.at == At::UntilClose).then(|| self.end())
    }
}

impl Replies {
    fn new() -> Self {
        Self { lines: Lines::new(), at: At::Status, head: Head::new(0, After::Keep) }
    }

    /// Begins the body; true if the reply ends with its head.
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

/// A status by its name.
pub(super) fn code(status: u16) -> ErrorCode {
    ErrorCode::of(itoa::Buffer::new().format(status).as_bytes())
}

/// Outcome that a status means.
pub(super) fn outcome(status: u16) -> Outcome {
    match status {
        401 | 403 | 407 => Outcome::Error(ErrorKind::Unauthorised),
        429 | 503 => Outcome::Error(ErrorKind::Busy),
        400..=499 => Outcome::Error(ErrorKind::Refused),
        500..=599 => Outcome::Error(ErrorKind::Failed),
        _ => Outcome::Ok,
    }
}

pub(super) fn is_token(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c)
}

const OPTIONS: &[AppOption] = &[
    AppOption {
        name: "method",
        form: "method=METHOD",
        about: "the method; GET by default",
        example: "http:method=POST,path=/items",
    },
    AppOption {
        name: "path",
        form: "path=PATH",
        about: "path and query, in quotes where they hold a comma; / by default",
        example: "http:path=\"/items?ids=1,2\"",
    },
    AppOption {
        name: "host",
        form: "host=NAME",
        about: "the Host; the target's by default",
        example: "http:/,host=example.com",
    },
    AppOption {
        name: "header",
        form: "header=LINE",
        about: "a line of the head, such as \"Accept: */*\"; may be repeated",
        example: "http:/,header=Accept: */*,header=Authorization: Bearer x",
    },
    AppOption {
        name: "body",
        form: "body=TEXT|@FILE",
        about: "what the request carries: a text, or what a file holds",
        example: "http:POST:/items,body=\"{}\"",
    },
    AppOption {
        name: "data",
        form: "data=TEXT",
        about: "as body, of a text that may begin with @",
        example: "http:POST:/items,data=@literal",
    },
    AppOption {
        name: "requests",
        form: "requests=LIST",
        about: "several requests, a line each with its weight in front; what http:@FILE reads from a file",
        example: "http:requests=\"9 /a\\n1 POST:/b,body=x\"",
    },
];

/// Headers that the request writes itself.
const FRAMING_HEADERS: [&str; 4] = ["host", "content-length", "transfer-encoding", "expect"];
/// Headers about a connection of HTTP/1.1 (RFC 9113, section 8.2.2).
const CONNECTION_HEADERS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "upgrade", "te"];
/// Headers of the static table of HTTP/2 (RFC 7541, appendix A).
pub(super) const AUTHORITY: u8 = 1;
const METHOD_GET: u8 = 2;
pub(super) const METHOD_POST: u8 = 3;
pub(super) const PATH: u8 = 4;
pub(super) const SCHEME_HTTP: u8 = 6;
pub(super) const SCHEME_HTTPS: u8 = 7;
const CONTENT_LENGTH: u8 = 28;
/// Most bytes of a reply's head, or of its trailers.
const HEAD_BYTES_MAX: u64 = 1 << 16;

/// Body that a reply may carry ([`Expected::due`]): one as its head says, or never one, whatever
/// the head says, for it answers HEAD.
const BODY: u32 = 0;
const NO_BODY: u32 = 1;
