//! Protocols told by the first bytes that a server says, for whoever asked it in another one.
//!
//! Invariant: what is named is certain enough to be told to a person; anything else is `None`.

/// A protocol that a server speaks. As text it is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr)]
pub enum Spoken {
    /// A TLS record, or the complaint of a server that wanted one.
    #[strum(serialize = "TLS")]
    Tls,
    /// HTTP/1, or an error page of it.
    #[strum(serialize = "HTTP")]
    Http,
    /// The frame that a server of HTTP/2 begins with.
    #[strum(serialize = "HTTP/2")]
    Http2,
    /// A value of Redis' protocol.
    #[strum(serialize = "Redis")]
    Redis,
    /// A line or a head of memcached's protocols.
    #[strum(serialize = "memcached")]
    Memcached,
    /// The greeting of SSH.
    #[strum(serialize = "SSH")]
    Ssh,
    /// The greeting of SMTP and FTP.
    #[strum(serialize = "SMTP or FTP")]
    Mail,
    /// The greeting of MySQL.
    #[strum(serialize = "MySQL")]
    Mysql,
    /// An error of PostgreSQL.
    #[strum(serialize = "PostgreSQL")]
    Postgres,
}

impl Spoken {
    /// The protocol of a server whose first bytes these are.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let begins = |with: &[u8]| bytes.starts_with(with);
        let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        let lower: Vec<u8> = bytes.iter().take(16).map(u8::to_ascii_lowercase).collect();
        let is_page = [&b"<html"[..], b"<!doctype html"].iter().any(|tag| lower.starts_with(tag));
        if begins(&[0x15, 3]) || begins(&[0x16, 3]) {
            return Some(Self::Tls);
        }
        if begins(b"HTTP/1.") || is_page {
            // NGINX's and Go's words for a request without TLS at a port of it.
            let wants_tls = holds(b"sent to HTTPS port") || holds(b"request to an HTTPS server");
            return Some(if wants_tls { Self::Tls } else { Self::Http });
        }
        if bytes.len() >= 9 && bytes[0] == 0 && bytes[3] == 4 && bytes[5..9] == [0; 4] {
            return Some(Self::Http2);
        }
        if begins(b"SSH-") {
            return Some(Self::Ssh);
        }
        if begins(b"220 ") || begins(b"220-") {
            return Some(Self::Mail);
        }
        if bytes.len() > 5 && bytes[3..5] == [0, 10] && bytes[5].is_ascii_digit() {
            return Some(Self::Mysql);
        }
        if begins(b"E\0") && holds(b"SFATAL") {
            return Some(Self::Postgres);
        }
        if is_memcached(bytes) {
            return Some(Self::Memcached);
        }
        is_redis(bytes).then_some(Self::Redis)
    }

    /// True if the application of this name speaks the protocol.
    pub fn is_of(self, app: &str) -> bool {
        match self {
            Self::Http => app == "http",
            Self::Http2 => matches!(app, "http2" | "grpc"),
            Self::Redis => app == "redis",
            Self::Postgres => app == "postgres",
            Self::Memcached => app.starts_with("memcached-"),
            _ => false,
        }
    }

    /// The scheme of a URL by which it is measured, where it is.
    pub fn scheme(self) -> Option<&'static str> {
        match self {
            Self::Http => Some("http"),
            Self::Http2 => Some("h2"),
            Self::Redis => Some("redis"),
            Self::Postgres => Some("postgres"),
            Self::Memcached => Some("memcached"),
            _ => None,
        }
    }
}

fn is_memcached(bytes: &[u8]) -> bool {
    let lines: [&[u8]; 8] = [
        b"ERROR\r\n",
        b"CLIENT_ERROR",
        b"SERVER_ERROR",
        b"END\r\n",
        b"VALUE ",
        b"STORED\r\n",
        b"NOT_STORED\r\n",
        b"NOT_FOUND\r\n",
    ];
    lines.iter().any(|line| bytes.starts_with(line)) || (bytes.len() >= 24 && bytes[0] == 0x81)
}

fn is_redis(bytes: &[u8]) -> bool {
    let Some(end) = bytes.iter().position(|&byte| byte == b'\r') else { return false };
    let (kind, rest) = (bytes[0], &bytes[1..end.max(1)]);
    if bytes.get(end + 1).is_some_and(|&byte| byte != b'\n') {
        return false;
    }
    match kind {
        b'+' => rest.iter().all(|byte| byte.is_ascii_graphic()),
        b'-' => rest.first().is_some_and(u8::is_ascii_uppercase),
        b'$' | b'*' | b':' | b'%' => {
            let digits = rest.strip_prefix(b"-").unwrap_or(rest);
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_told_by_its_first_bytes() {
        let wants_tls = b"HTTP/1.1 400 Bad Request\r\n\r\n<html>The plain HTTP request was sent to HTTPS port</html>";
        let table: &[(&[u8], Option<Spoken>)] = &[
            (&[0x15, 3, 3, 0, 2, 2, 70], Some(Spoken::Tls)),
            (wants_tls, Some(Spoken::Tls)),
            (b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", Some(Spoken::Tls)),
            (b"HTTP/1.1 404 Not Found\r\n", Some(Spoken::Http)),
            (b"<html>\r\n<head><title>400 Bad Request", Some(Spoken::Http)),
            (b"<!DOCTYPE HTML>\n<html lang=\"en\">", Some(Spoken::Http)),
            (&[0, 0, 18, 4, 0, 0, 0, 0, 0, 0, 3], Some(Spoken::Http2)),
            (b"+PONG\r\n", Some(Spoken::Redis)),
            (b"-ERR unknown command 'x'\r\n", Some(Spoken::Redis)),
            (b"-NOAUTH Authentication required.\r\n", Some(Spoken::Redis)),
            (b"$-1\r\n", Some(Spoken::Redis)),
            (b"$5\r\nvalue\r\n", Some(Spoken::Redis)),
            (b"ERROR\r\n", Some(Spoken::Memcached)),
            (b"CLIENT_ERROR bad data chunk\r\n", Some(Spoken::Memcached)),
            (&[0x81; 24], Some(Spoken::Memcached)),
            (b"SSH-2.0-OpenSSH_9.2p1\r\n", Some(Spoken::Ssh)),
            (b"220 mail ESMTP\r\n", Some(Spoken::Mail)),
            (b"\x4a\0\0\0\x0a8.0.36\0", Some(Spoken::Mysql)),
            (b"E\0\0\0\x8dSFATAL\0VFATAL\0C0A000\0", Some(Spoken::Postgres)),
            (b"", None),
            (b"-", None),
            (b"+", None),
            (b"\r\n", None),
            (b"$x\r\n", None),
            (b"hello\r\n", None),
            (&[0; 64], None),
        ];
        for (bytes, expected) in table {
            assert_eq!(Spoken::of(bytes), *expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn an_application_is_of_its_protocol() {
        for (spoken, app) in [
            (Spoken::Http, "http"),
            (Spoken::Redis, "redis"),
            (Spoken::Memcached, "memcached-ascii"),
        ] {
            assert!(spoken.is_of(app) && !Spoken::Tls.is_of(app) && !spoken.is_of("echo"), "{app}");
        }
    }
}
