//! Greeting of a connection to a server.

use std::fmt;

use crate::due::Dialect;
use crate::memcached;
use crate::resp::scan;

/// Credentials for a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The default user, if there is none.
    pub user: Option<String>,
    /// In clear, as the server wants it.
    pub password: String,
}

/// Without the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Appends it, and returns how many replies are due: the first that a server that takes connections
/// and serves nobody does not give.
pub(crate) fn write(dialect: Dialect, login: Option<&Login>, out: &mut Vec<u8>) -> u32 {
    let user = |login: &Login| login.user.clone().unwrap_or_else(|| "default".to_owned());
    match (dialect, login) {
        (Dialect::Http, _) => 0,
        (Dialect::Text, _) => {
            out.extend_from_slice(b"version\r\n");
            1
        }
        (Dialect::Binary, _) => {
            out.extend_from_slice(&memcached::noop());
            1
        }
        (Dialect::Resp2, None) => {
            scan::write(&[b"PING"], out);
            1
        }
        (Dialect::Resp2, Some(login)) => {
            match &login.user {
                Some(user) => {
                    scan::write(&[b"AUTH", user.as_bytes(), login.password.as_bytes()], out);
                }
                None => scan::write(&[b"AUTH", login.password.as_bytes()], out),
            }
            scan::write(&[b"PING"], out);
            2
        }
        (Dialect::Resp3, None) => {
            scan::write(&[b"HELLO", b"3"], out);
            1
        }
        (Dialect::Resp3, Some(login)) => {
            let (user, password) = (user(login), login.password.as_bytes());
            scan::write(&[b"HELLO", b"3", b"AUTH", user.as_bytes(), password], out);
            1
        }
    }
}

/// True if the answer lets us in: no reply is an error.
pub(crate) fn is_accepted(dialect: Dialect, words: &[u8]) -> bool {
    match dialect {
        Dialect::Text => return words.starts_with(b"VERSION"),
        Dialect::Binary => return !memcached::is_error(words),
        Dialect::Resp2 | Dialect::Resp3 | Dialect::Http => {}
    }
    !words.starts_with(b"-") && !words.windows(3).any(|part| part == b"\r\n-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dialect: Dialect, user: Option<&str>, expected: &str) {
        let login = Login { user: user.map(str::to_owned), password: "x".to_owned() };
        let mut out = Vec::new();
        let replies = write(dialect, Some(&login), &mut out);
        let text = String::from_utf8(out).unwrap();
        let words: Vec<&str> = text.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        assert_eq!(words.join(" "), expected);
        assert_eq!(replies as usize, text.matches('*').count());
        assert!(!format!("{login:?}").contains("\"x\""));
    }

    #[test]
    fn a_login_is_said_as_the_dialect_says_it() {
        check(Dialect::Resp2, None, "AUTH x PING");
        check(Dialect::Resp2, Some("me"), "AUTH me x PING");
        check(Dialect::Resp3, None, "HELLO 3 AUTH default x");
        check(Dialect::Resp3, Some("me"), "HELLO 3 AUTH me x");
    }

    #[test]
    fn any_error_keeps_us_out() {
        assert!(is_accepted(Dialect::Resp2, b"+OK\r\n+PONG\r\n"));
        assert!(!is_accepted(Dialect::Resp2, b"-NOAUTH\r\n"));
        assert!(is_accepted(Dialect::Text, b"VERSION 1.6\r\n"));
        assert!(!is_accepted(Dialect::Text, b"ERROR\r\n"));
        assert!(!is_accepted(Dialect::Resp2, b"+OK\r\n-LOADING\r\n"));
    }
}
