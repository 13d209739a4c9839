//! Messages of clients: requests of HTTP/1.1 without bodies, and commands of Redis' protocol.

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

/// What clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum App {
    /// HTTP/1.1
    Http,
    /// Redis' protocol
    Redis,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Takes so many nanoseconds.
    Timed(u64),
    /// A command that reads.
    Read,
    /// A command that writes.
    Write,
    /// Asks whether anybody is there, which takes no time.
    Ping,
}

impl App {
    /// The request that `bytes` begin with, and its length; `None` while more of it is to come.
    ///
    /// # Errors
    ///
    /// That it is none that this server knows: its connection is of no use any more.
    pub fn request(self, bytes: &[u8]) -> Result<Option<(Request, usize)>> {
        match self {
            Self::Http => http(bytes),
            Self::Redis => redis(bytes),
        }
    }

    /// The reply to a request.
    pub fn reply(self, request: Request) -> &'static [u8] {
        match (self, request) {
            (Self::Http, _) => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            (Self::Redis, Request::Write) => b"+OK\r\n",
            (Self::Redis, Request::Ping) => b"+PONG\r\n",
            (Self::Redis, _) => b"$8\r\nemulated\r\n",
        }
    }
}

fn http(bytes: &[u8]) -> Result<Option<(Request, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(bytes)? else {
        ensure!(bytes.len() < REQUEST_BYTES_MAX, "a request is too long");
        return Ok(None);
    };
    let has_body = |header: &&httparse::Header<'_>| {
        header.name.eq_ignore_ascii_case("transfer-encoding")
            || header.name.eq_ignore_ascii_case("content-length") && header.value != b"0"
    };
    ensure!(head.headers.iter().find(has_body).is_none(), "bodies are not taken");
    let path = head.path.context("a request has no path")?;
    let Some((_, text)) = path.split_once("ns=") else { return Ok(Some((Request::Ping, length))) };
    let service_ns = text.parse().ok().filter(|service_ns| *service_ns <= SERVICE_NS_MAX);
    let service_ns = service_ns.with_context(|| format!("{text:?} is no service time"))?;
    Ok(Some((Request::Timed(service_ns), length)))
}

/// An array of bulk strings, which is how clients write commands.
fn redis(bytes: &[u8]) -> Result<Option<(Request, usize)>> {
    let Some((count, mut at)) = length(bytes, b'*')? else { return Ok(None) };
    ensure!(count >= 1, "a command has no words");
    let mut name = None;
    for _ in 0..count {
        let Some((size, head)) = length(&bytes[at..], b'$')? else { return Ok(None) };
        let begin = at + head;
        at = begin + size + LINE_END.len();
        ensure!(at <= REQUEST_BYTES_MAX, "a command is too long");
        if bytes.len() < at {
            return Ok(None);
        }
        name.get_or_insert(&bytes[begin..begin + size]);
    }
    let name = name.unwrap_or_default();
    let request = match () {
        () if name.eq_ignore_ascii_case(b"get") => Request::Read,
        () if name.eq_ignore_ascii_case(b"set") => Request::Write,
        () if name.eq_ignore_ascii_case(b"ping") => Request::Ping,
        () => bail!("{:?} is not emulated", String::from_utf8_lossy(name)),
    };
    Ok(Some((request, at)))
}

/// The number of a line that begins with `mark`, and the line's length.
fn length(bytes: &[u8], mark: u8) -> Result<Option<(usize, usize)>> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    ensure!(first == mark, "a command is an array of bulk strings");
    let line = &bytes[..bytes.len().min(NUMBER_BYTES_MAX)];
    let Some(end) = line.windows(2).position(|pair| pair == LINE_END) else {
        ensure!(bytes.len() < NUMBER_BYTES_MAX, "a number is too long");
        return Ok(None);
    };
    let number = std::str::from_utf8(&bytes[1..end])?.parse()?;
    ensure!(number <= REQUEST_BYTES_MAX, "a command is too long");
    Ok(Some((number, end + LINE_END.len())))
}

const LINE_END: &[u8] = b"\r\n";
const HEADERS_MAX: usize = 64;
/// More than any command or head that the measurements send.
const REQUEST_BYTES_MAX: usize = 1 << 20;
const NUMBER_BYTES_MAX: usize = 16;
/// As `tailcut serve` has it.
const SERVICE_NS_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";

    fn check(app: App, bytes: &[u8], wanted: Request) {
        let whole = [bytes, b"rest"].concat();
        assert_eq!(app.request(&whole).ok().flatten(), Some((wanted, bytes.len())), "{whole:?}");
        for length in 0..bytes.len() {
            assert_eq!(app.request(&bytes[..length]).ok(), Some(None), "{length} of {bytes:?}");
        }
    }

    #[test]
    fn requests_come_whole_or_in_parts() {
        check(App::Redis, GET, Request::Read);
        check(App::Redis, b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$2\r\nvv\r\n", Request::Write);
        check(App::Redis, b"*1\r\n$4\r\nPING\r\n", Request::Ping);
        check(App::Http, b"GET /?ns=1500 HTTP/1.1\r\nHost: a\r\n\r\n", Request::Timed(1500));
        check(App::Http, b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", Request::Ping);
    }

    #[test]
    fn what_is_not_emulated_is_refused() {
        for bytes in [
            &b"GET k\r\n"[..],
            b"*0\r\n",
            b"*99999999999\r\n",
            b"*1\r\n$9999999\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$3\r\nDEL\r\n",
            b"*11111111111111111111",
        ] {
            assert!(App::Redis.request(bytes).is_err(), "{bytes:?}");
        }
        for bytes in [
            &b"\0\0\r\n\r\n"[..],
            b"GET /?ns=2000000000 HTTP/1.1\r\n\r\n",
            b"GET /?ns=x HTTP/1.1\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
        ] {
            assert!(App::Http.request(bytes).is_err(), "{bytes:?}");
        }
    }
}
