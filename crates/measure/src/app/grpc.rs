//! `grpc`: calls of gRPC over HTTP/2, always with the same message, whose bytes are given: this
//! crate knows no `.proto`. A call is unary or sends and receives streams: it is over with its
//! status, however many messages come before that. In a conversation (`turns`) each message waits
//! for one of the reply.
//!
//! | reply | outcome |
//! |---|---|
//! | `grpc-status` 0 | ok |
//! | another `grpc-status` | an error of that name |
//! | none, and an HTTP status | an error of that status; with 200 there is no gRPC |

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;

use super::codec::{Carrier, Codec, Expected, Loader, Session, Setting, Write};
use super::entry::{AppOption, Entry, Serves};
use super::error::AppError;
use super::http::{
    AUTHORITY, METHOD_POST, PATH, SCHEME_HTTP, SCHEME_HTTPS, code, is_token, outcome,
};
use super::http2::{self, Http2, PREFIX_LEN};
use super::options::{Options, quoted};
use super::reply::{ErrorCode, ErrorKind, Outcome};
use super::requests_file::ReadFile;
use crate::generator::Generator;
use crate::quantity::parse_count;

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: NAME,
    form: "grpc:PACKAGE.SERVICE/METHOD",
    about: "calls of gRPC, unary or of streams, with a message of these bytes, many at a time on a connection",
    options: &[OPTIONS],
    parse,
    carrier: Carrier::Stream,
    with_files: Some(with_files),
    serves: Serves::Nothing,
}];

/// A call.
#[derive(Debug, PartialEq)]
struct Grpc {
    /// `/package.Service/Method`.
    path: String,
    /// The `:authority`; the target's, if there is none.
    host: Option<String>,
    /// Metadata, a line each, such as `authorization: Bearer x`.
    headers: Vec<String>,
    /// As its definition encodes it.
    message: Vec<u8>,
    /// Number of times that a call sends it: once in a unary call.
    count: u32,
    /// True if each message waits until the server has answered the one before with a message.
    takes_turns: bool,
}

fn parse(text: &str, _: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError> {
    let (path, rest) = text.split_once(',').unwrap_or((text, ""));
    let mut options = Options::parse(NAME, rest)?;
    let [message, hex, base64] = ["message", "hex", "base64"].map(|name| options.take(name));
    let message = match (message?, hex?, base64?) {
        (None, None, None) => Vec::new(),
        (Some(file), None, None) if file.starts_with('@') => return Err(NOT_READ),
        (Some(text), None, None) => text.into_bytes(),
        (None, Some(hex), None) => decode_hex(&hex).ok_or(NOT_HEX)?,
        (None, None, Some(base64)) => BASE64.decode(base64).map_err(|_| NOT_BASE64)?,
        _ => return Err(AppError::Together("grpc: message, hex and base64")),
    };
    let mut number = |name| options.take(name)?.map(|text| times(name, &text)).transpose();
    let (count, takes_turns) = match (number("count")?, number("turns")?) {
        (Some(_), Some(_)) => return Err(AppError::Together("grpc: count and turns")),
        (count, None) => (count.unwrap_or(1), false),
        (None, Some(turns)) => (turns, true),
    };
    let (host, headers) = (options.take("host")?, options.take_all("header")?);
    options.finish(&[OPTIONS])?;
    let path = format!("/{}", path.strip_prefix('/').unwrap_or(path));
    let grpc = Grpc { path, host, headers, message, count, takes_turns };
    grpc.check()?;
    Ok(Arc::new(grpc))
}

/// The number in an option.
fn times(option: &'static str, text: &str) -> Result<u32, AppError> {
    let count = parse_count(text).map_err(|source| AppError::Quantity { option, source })?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Replaces `message=@FILE` by what the file holds.
fn with_files(text: &str, read: &mut ReadFile<'_>) -> Result<String, AppError> {
    let (path, rest) = text.split_once(',').unwrap_or((text, ""));
    let mut options = Options::parse(NAME, rest)?;
    let file = options.look("message").and_then(|text| text.strip_prefix('@'));
    let Some(file) = file.map(str::to_owned) else { return Ok(text.to_owned()) };
    let bytes = read(&file).map_err(|reason| AppError::File { path: file, reason })?;
    options.replace("message", ("hex", encode_hex(&bytes)));
    Ok([vec![path.to_owned()], options.written()].concat().join(","))
}

impl Grpc {
    fn check(&self) -> Result<(), AppError> {
        let mut parts = self.path.split('/').skip(1);
        let is_name = |part: Option<&str>| {
            let is_letter = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
            part.is_some_and(|part| !part.is_empty() && part.bytes().all(is_letter))
        };
        if !is_name(parts.next()) || !is_name(parts.next()) || parts.next().is_some() {
            return Err(AppError::Grpc("write which method: grpc:package.Service/Method"));
        }
        let is_host =
            |host: &String| !host.is_empty() && host.bytes().all(|c| c.is_ascii_graphic());
        if !self.host.as_ref().is_none_or(is_host) {
            return Err(AppError::Grpc("a host is a name, and a port behind it"));
        }
        for header in &self.headers {
            let (name, value) = header.split_once(':').unwrap_or_default();
            if name.is_empty() || !name.bytes().all(is_token) || value.chars().any(char::is_control)
            {
                return Err(AppError::Grpc("a header is a line such as `authorization: Bearer x`"));
            }
            let is_ours = ["te", "content-type", "connection", "content-length", "host"]
                .iter()
                .any(|ours| name.eq_ignore_ascii_case(ours));
            if is_ours {
                return Err(AppError::Grpc("te, content-type and such are not for the headers"));
            }
        }
        if self.message.len() > MESSAGE_BYTES_MAX {
            return Err(AppError::Grpc("a message has 4 MiB at most"));
        }
        if (PREFIX_LEN + self.message.len()).saturating_mul(self.count as usize) > CALL_BYTES_MAX {
            return Err(AppError::Grpc("the messages of a call have 16 MiB at most together"));
        }
        Ok(())
    }

    /// The call, as a session of HTTP/2 reads it.
    fn encode(&self, setting: Setting<'_>) -> Vec<u8> {
        let mut head = Vec::new();
        http2::write_indexed(METHOD_POST, &mut head);
        http2::write_indexed(if setting.is_tls { SCHEME_HTTPS } else { SCHEME_HTTP }, &mut head);
        http2::write_named(PATH, self.path.as_bytes(), &mut head);
        let authority = self.host.as_deref().unwrap_or(setting.authority);
        http2::write_named(AUTHORITY, authority.as_bytes(), &mut head);
        http2::write_literal(b"te", b"trailers", &mut head);
        http2::write_named(CONTENT_TYPE, b"application/grpc", &mut head);
        for header in &self.headers {
            let (name, value) = header.split_once(':').unwrap_or_default();
            let name = name.to_ascii_lowercase();
            http2::write_literal(name.as_bytes(), value.trim().as_bytes(), &mut head);
        }
        // Not compressed, and its length.
        let mut message = vec![0];
        message.extend_from_slice(&(self.message.len() as u32).to_be_bytes());
        message.extend_from_slice(&self.message);
        let body = message.repeat(self.count as usize);
        let message_len = if self.takes_turns { message.len() } else { 0 };
        let mut request = Vec::new();
        http2::Request { head: &head, body: &body, message_len }.write(&mut request);
        request
    }
}

impl Codec for Grpc {
    fn requests(&self, setting: Setting<'_>, _: &mut Generator) -> Result<Write, AppError> {
        let request = self.encode(setting);
        Ok(Box::new(move |tag, _, out| {
            out.extend_from_slice(&request);
            Expected { tag, due: 0 }
        }))
    }

    fn session(&self) -> Option<Box<dyn Session>> {
        Some(Box::new(Http2::new(judge)))
    }

    fn alpn(&self) -> Option<&'static str> {
        Some("h2")
    }

    fn credentials_advice(&self) -> &'static str {
        "Send credentials: --app 'grpc:SERVICE/METHOD,header=authorization: ...'."
    }

    fn pipeline_max(&self) -> Option<u32> {
        Some(http2::STREAMS_USUAL)
    }
}

impl fmt::Display for Grpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path[1..])?;
        if !self.message.is_empty() {
            write!(f, ",hex={}", encode_hex(&self.message))?;
        }
        if self.takes_turns {
            write!(f, ",turns={}", self.count)?;
        } else if self.count != 1 {
            write!(f, ",count={}", self.count)?;
        }
        let host = self.host.iter().map(|host| ("host", host));
        let mut options = host.chain(self.headers.iter().map(|header| ("header", header)));
        options.try_for_each(|(name, value)| write!(f, ",{name}={}", quoted(value)))
    }
}

/// Names and numbers as gRPC's documentation has them (doc/statuscodes.md).
fn judge(status: u16, grpc_status: Option<u16>) -> (Outcome, ErrorCode) {
    let Some(grpc) = grpc_status else {
        let kind = match outcome(status) {
            Outcome::Error(kind) => kind,
            // A page of somebody who knows nothing of gRPC.
            Outcome::Ok | Outcome::Miss => ErrorKind::Refused,
        };
        return (Outcome::Error(kind), code(status));
    };
    let outcome = match grpc {
        0 => return (Outcome::Ok, ErrorCode::default()),
        7 | 16 => ErrorKind::Unauthorised,
        8 | 14 => ErrorKind::Busy,
        3 | 5 | 6 | 9 | 11 | 12 => ErrorKind::Refused,
        _ => ErrorKind::Failed,
    };
    let mut text = *b"grpc-00000";
    let mut number = itoa::Buffer::new();
    let number = number.format(grpc).as_bytes();
    text[5..5 + number.len()].copy_from_slice(number);
    (Outcome::Error(outcome), ErrorCode::of(&text[..5 + number.len()]))
}

fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|&[high, low]| Some((digit(high)? << 4 | digit(low)?) as u8)).collect()
}

const NAME: &str = "grpc";
const NOT_READ: AppError =
    AppError::Grpc("a message is read from its file where the command is given");
const NOT_HEX: AppError = AppError::Grpc("hex is two digits for each byte");
const NOT_BASE64: AppError = AppError::Grpc("base64 has letters, digits, + and /");

const OPTIONS: &[AppOption] = &[
    AppOption {
        name: "message",
        form: "message=TEXT|@FILE",
        about: "the message: a text, or what a file holds, as the call's definition encodes it; an empty one by default",
        example: "grpc:echo.Echo/Say,message=hi",
    },
    AppOption {
        name: "hex",
        form: "hex=DIGITS",
        about: "the message, two digits for each byte",
        example: "grpc:echo.Echo/Say,hex=0a026869",
    },
    AppOption {
        name: "base64",
        form: "base64=TEXT",
        about: "the message in base64",
        example: "grpc:echo.Echo/Say,base64=CgJoaQ==",
    },
    AppOption {
        name: "count",
        form: "count=N",
        about: "how often a call sends the message, where the method takes a stream; once by default",
        example: "grpc:echo.Echo/Collect,message=hi,count=10",
    },
    AppOption {
        name: "turns",
        form: "turns=N",
        about: "how often a call sends the message, each time after the server has answered the one before with a message; for methods that stream both ways",
        example: "grpc:echo.Echo/Talk,message=hi,turns=10",
    },
    AppOption {
        name: "host",
        form: "host=NAME",
        about: "the authority; the target's by default",
        example: "grpc:echo.Echo/Say,host=example.com",
    },
    AppOption {
        name: "header",
        form: "header=LINE",
        about: "a line of metadata, such as \"authorization: Bearer x\"; may be repeated",
        example: "grpc:echo.Echo/Say,header=authorization: Bearer x",
    },
];

/// `content-type` in the static table of HTTP/2.
const CONTENT_TYPE: u8 = 31;
/// A call's messages are held once for all calls, and once for each that waits for a window.
const CALL_BYTES_MAX: usize = 16 << 20;
/// Largest message that gRPC's servers take where nobody has said more.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
