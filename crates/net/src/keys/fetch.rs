//! Asking a key agent.
//!
//! ```text
//! tailcut-keys-from 1
//! agent keys.example.org:7000
//! ca /etc/tailcut/ca.pem             who has signed the agent's certificate
//! cert /etc/tailcut/web.pem          what is shown to it
//! key /etc/tailcut/web.key
//! name keys.example.org              the agent's name in its certificate; the host's if left out
//! crl /etc/tailcut/crl.pem           those of its authority that are revoked; may be left out
//! psk /etc/tailcut/web.psk           in the place of the five
//! ```

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tailcut_proto::sealed::Keys;
use zeroize::Zeroizing;

use super::file::invalid;
use super::hurried::Hurried;
use super::pinned;
use super::tls::{self, ALPN, ANSWER, BYTES_MAX, Pem, REFUSED};

/// Key agent to ask, and what to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    /// Host and port.
    agent: String,
    /// The name in its certificate, where it is another than the host.
    name: Option<String>,
    /// Certificate or secret that is shown.
    shown: Shown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    Certificate(Pem<PathBuf>),
    Secret(PathBuf),
}

/// Answer of a key agent.
#[derive(Debug)]
pub(super) struct Answer {
    /// The keys.
    pub(super) keys: Keys,
    /// Delay until it is to be asked again.
    pub(super) again_in: Duration,
}

impl Asking {
    /// True if a text names a key agent to ask, and has no keys itself.
    pub(super) fn is_asking(text: &str) -> bool {
        lines(text).next().is_some_and(|(_, line)| line.starts_with(TITLE))
    }

    /// Reads such a text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut found: [Option<&str>; WORDS.len()] = [None; WORDS.len()];
        let mut lines = lines(text);
        if lines.next().is_none_or(|(_, line)| line.trim_end() != format!("{TITLE} 1")) {
            return Err(format!("the first line should be `{TITLE} 1`"));
        }
        for (number, line) in lines {
            let (word, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let place = WORDS.iter().position(|known| *known == word);
            let value = Some(value.trim()).filter(|value| !value.is_empty());
            let (Some(place), Some(value)) = (place, value) else {
                return Err(format!("line {number} is none of {} with a value", WORDS.join(", ")));
            };
            if found[place].replace(value).is_some() {
                return Err(format!("line {number}: {word} is there twice"));
            }
        }
        let [agent, name, ca, cert, key, crl, psk] = found;
        let agent = agent.ok_or("the agent is missing")?.trim_start_matches("tcp://").to_owned();
        let path = PathBuf::from;
        let shown = match (ca, cert, key, psk) {
            (Some(ca), Some(cert), Some(key), None) => {
                let crl = crl.map(path);
                Shown::Certificate(Pem { ca: path(ca), cert: path(cert), key: path(key), crl })
            }
            (None, None, None, Some(psk)) if name.or(crl).is_none() => Shown::Secret(path(psk)),
            _ => return Err("give ca, cert and key, or psk alone".to_owned()),
        };
        Ok(Self { agent, name: name.map(str::to_owned), shown })
    }

    /// Asks, and waits for the answer, a few seconds at most. What is to be done `meanwhile` costs
    /// no time: the agent has its first flight to make.
    pub(super) fn fetch(&self, meanwhile: &mut dyn FnMut()) -> io::Result<Answer> {
        let (config, name) = self.identity()?;
        let failed = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("the key agent at {}: {}", self.agent, self.told(&error)),
            )
        };
        let stream = connect(&self.agent).map_err(failed)?;
        exchange(stream, (config, name), meanwhile).map_err(failed)
    }

    /// Description of an error, in words of who asks.
    fn told(&self, error: &io::Error) -> String {
        use rustls::{AlertDescription as Alert, CertificateError as Invalid, Error};
        match error.get_ref().and_then(|why| why.downcast_ref::<Error>()) {
            Some(Error::InvalidCertificate(
                why @ (Invalid::UnknownRevocationStatus
                | Invalid::ExpiredRevocationList
                | Invalid::ExpiredRevocationListContext { .. }),
            )) => format!("the revocation lists that are to tell of its certificate do not: {why}"),
            Some(Error::InvalidCertificate(why)) => {
                format!("its certificate is not the one that was expected: {why}")
            }
            Some(Error::AlertReceived(alert)) => match (alert, &self.shown) {
                (Alert::AccessDenied, Shown::Certificate(_)) => {
                    "it has no certificate: pre-shared keys alone count there".to_owned()
                }
                (
                    Alert::HandshakeFailure | Alert::AccessDenied | Alert::UnrecognisedName,
                    Shown::Secret(_),
                ) => "it knows nobody by this pre-shared key".to_owned(),
                _ => format!("it refuses the certificate that it was shown: {alert:?}"),
            },
            _ if error.kind() == io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            _ => error.to_string(),
        }
    }

    /// The client's end of TLS, and the name that the agent must show.
    pub(super) fn identity(&self) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
        let (config, name) = match &self.shown {
            Shown::Certificate(pem) => {
                let host = self.agent.rsplit_once(':').map_or(&*self.agent, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let name = self.name.as_deref().unwrap_or(host).to_owned();
                (tls::client_by_certificate(pem, ALPN)?, name)
            }
            Shown::Secret(path) => {
                let (identity, name) = pinned::pre_shared(path)?;
                (tls::client_by_secret(identity)?, name)
            }
        };
        let name = ServerName::try_from(name.clone())
            .map_err(|_| invalid(format!("{name} cannot be a name in a certificate")))?;
        Ok((config, name))
    }
}

/// Lines with something in them, from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn connect(agent: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let addresses: Vec<SocketAddr> = agent.to_socket_addrs()?.take(ADDRESSES_MAX).collect();
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn exchange(
    stream: TcpStream,
    (config, name): (Arc<ClientConfig>, ServerName<'static>),
    meanwhile: &mut dyn FnMut(),
) -> io::Result<Answer> {
    let mut stream = Hurried::new(stream, PATIENCE, BYTES_MAX)?;
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    while tls.wants_write() {
        tls.write_tls(&mut stream)?;
    }
    meanwhile();
    tls.complete_io(&mut stream)?;
    // An end that is not said is an answer cut off.
    let text = read_all(&mut rustls::Stream::new(&mut tls, &mut stream))?;
    stream.close();
    parse(std::str::from_utf8(&text).map_err(|_| invalid("it answers something else".to_owned()))?)
}

/// Everything up to the end. A buffer that grew would leave copies: what is outgrown is wiped, and
/// so is the rest.
fn read_all(stream: &mut impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(vec![0; ANSWER_LEN]);
    let mut len = 0;
    loop {
        if len == text.len() {
            let mut longer = Zeroizing::new(vec![0; 2 * len]);
            longer[..len].copy_from_slice(&text);
            text = longer;
        }
        match stream.read(&mut text[len..]) {
            Ok(0) => {
                text.truncate(len);
                return Ok(text);
            }
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads an answer.
pub(super) fn parse(text: &str) -> io::Result<Answer> {
    if let Some(why) = text.strip_prefix(REFUSED) {
        let why: String = why.trim_end().chars().filter(|letter| !letter.is_control()).collect();
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("refused: {why}")));
    }
    let answer = text.strip_prefix(ANSWER).and_then(|rest| rest.split_once('\n'));
    let (ms, keys) = answer.ok_or_else(|| invalid("it answers something else".to_owned()))?;
    let ms: u64 = ms.parse().map_err(|_| invalid("it says no time to ask again".to_owned()))?;
    let keys = keys.parse().map_err(|error| invalid(format!("its answer: {error}")))?;
    Ok(Answer { keys, again_in: Duration::from_millis(ms.clamp(AGAIN_MS_MIN, AGAIN_MS_MAX)) })
}

/// Bytes of usual answers: those with 16 keys.
const ANSWER_LEN: usize = 2_048;

const TITLE: &str = "tailcut-keys-from";
const WORDS: [&str; 7] = ["agent", "name", "ca", "cert", "key", "crl", "psk"];
/// For a connection, and for all that follows.
const CONNECT_MAX: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(5);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;
/// Whatever an agent says: neither in a loop, nor never.
pub(super) const AGAIN_MS_MIN: u64 = 100;
pub(super) const AGAIN_MS_MAX: u64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[&str], expected: &str) {
        let text = [&["tailcut-keys-from 1"], lines].concat().join("\n");
        assert!(Asking::is_asking(&text));
        let error = Asking::parse(&text).expect_err("something is wrong");
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_text_says_whom_to_ask() {
        let text = "# whom to ask\ntailcut-keys-from 1\nagent tcp://h:1\nca a b\ncert c\nkey k\n";
        let asking = Asking::parse(text).expect("it is sound");
        let pem = Pem { ca: "a b".into(), cert: "c".into(), key: "k".into(), crl: None };
        assert_eq!((asking.agent.as_str(), asking.shown), ("h:1", Shown::Certificate(pem)));
        assert!(!Asking::is_asking("tailcut-keys 1\nrole server\n"));
        check(&["agent h:1", "ca a"], "give ca, cert and key, or psk alone");
        check(&["agent h:1", "psk a", "name n"], "give ca, cert and key, or psk alone");
        check(&["agent h:1", "psk a", "crl c"], "give ca, cert and key, or psk alone");
        check(&["psk a"], "the agent is missing");
        check(&["agent h:1", "agent h:2"], "line 3: agent is there twice");
        check(
            &["agents h:1"],
            "line 2 is none of agent, name, ca, cert, key, crl, psk with a value",
        );
        check(&["agent"], "line 2 is none of");
        let error = Asking::parse("tailcut-keys-from 2\n").expect_err("another version");
        assert!(error.contains("tailcut-keys-from 1"), "{error}");
    }

    #[test]
    fn an_answer_that_is_none_is_told_without_a_secret() {
        let check = |text: &str, expected: &str| {
            let error = parse(text).expect_err("it is none").to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("tailcut-keys-refused 1 dns:a is not listed\u{1b}\n", "refused: dns:a is not listed");
        check("HTTP/1.1 200 OK\r\n", "it answers something else");
        check("tailcut-keys-answer 1 soon\n", "no time to ask again");
        let secret = "0f".repeat(31);
        let text =
            format!("tailcut-keys-answer 1 5\ntailcut-keys 1\nrole server\nkey 1 2 {secret}");
        check(&text, "line 3 of the keys: a secret is 64 hexadecimal digits");
        assert!(!parse(&text).expect_err("it is short").to_string().contains("0f0f"));
    }
}
