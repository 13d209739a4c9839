//! Attacks of fuzzers on a key agent and on those who ask it: texts that anyone may have written,
//! and handshakes that someone on the way changes.

use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tailcut_proto::sealed::{Cipher, Keys, Role};

use super::agent::{AgentConfig, KeyAgent};
use super::fetch::{self, Asking};
use super::file;
use super::identities::Identities;

/// Reads a text as each of those that have to do with a key agent: it is refused, without a secret
/// in the reason, or means something that is within its limits.
///
/// # Panics
///
/// If not.
pub fn read_texts(text: &str) {
    let is_secret = |word: &&str| word.len() >= 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let secrets: Vec<&str> = text.split_whitespace().filter(is_secret).collect();
    let check_reason = |reason: &str| {
        let told = secrets.iter().find(|secret| reason.contains(**secret));
        assert_eq!(told, None, "a secret is in: {reason}");
    };
    match Asking::parse(text) {
        Ok(_) => assert!(Asking::is_asking(text)),
        Err(reason) => check_reason(&reason),
    }
    match fetch::parse(text) {
        Ok(answer) => {
            assert!(
                (fetch::AGAIN_MS_MIN..=fetch::AGAIN_MS_MAX)
                    .contains(&(answer.again_in.as_millis() as u64))
            );
        }
        // What an agent says of its own accord is shown, but for what moves a terminal's cursor.
        Err(reason) if reason.kind() == io::ErrorKind::PermissionDenied => {
            assert!(!reason.to_string().contains(char::is_control));
        }
        Err(reason) => check_reason(&reason.to_string()),
    }
    match text.parse::<Keys>() {
        Ok(keys) => assert_eq!(keys.to_text().parse(), Ok(keys)),
        Err(reason) => check_reason(&reason.to_string()),
    }
    let mut list = Identities::default();
    // Files of this host are none of a fuzzer's business.
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with("psk:")) {
        // The reason names the identity, which is no secret.
        let _ = list.add(line);
    }
}

/// An agent, and a client that is listed and has a pre-shared key, in one process.
#[derive(Debug)]
pub struct Exchanges {
    /// The agent.
    agent: Arc<KeyAgent>,
    /// The client's end of TLS.
    config: Arc<ClientConfig>,
    /// Name that it asks for.
    name: ServerName<'static>,
    /// Keys that the client should be given.
    keys: Keys,
}

impl Exchanges {
    /// Both, from files in a directory, which is made and removed again.
    ///
    /// # Errors
    ///
    /// That one of the files cannot be written.
    pub fn new(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok::<_, io::Error>(path)
        };
        let epochs = vec![file::new_key(1, 0)?];
        let group = Keys {
            role: Role::Server,
            group: "g".into(),
            cipher: Cipher::Aes128Gcm,
            reset: None,
            epochs,
        };
        let psk = write("client.psk", &"0a".repeat(32))?;
        let list = format!("tailcut-key-clients 1\npsk:{} client 6\n", psk.display());
        let config = AgentConfig {
            group: write("servers.keys", &group.to_text())?,
            clients: write("clients", &list)?,
            certificate: None,
            // Nothing is added meanwhile.
            every: Duration::from_secs(28 * 86_400),
        };
        let agent = KeyAgent::open(config.clone())?;
        let text = format!("tailcut-keys-from 1\nagent h:1\npsk {}\n", psk.display());
        let asking = Asking::parse(&text).map_err(file::invalid)?;
        let keys = file::read(&config.group)?.for_role(Role::Client(6));
        let keys = keys.ok_or_else(|| file::invalid("no server".into()))?;
        let (config, name) = asking.identity()?;
        fs::remove_dir_all(directory)?;
        Ok(Self { agent, config, name, keys })
    }

    /// Sends the agent what a stranger says, which gives it no keys.
    ///
    /// # Errors
    ///
    /// What the agent makes of it.
    pub fn say(&self, bytes: &[u8]) -> io::Result<()> {
        let mut said = Said { to_agent: bytes, to_stranger: Vec::new() };
        self.agent.converse(&mut said, NOWHERE)
    }

    /// One exchange, of which someone on the way changes bytes; whether the client has got its
    /// keys. Each three bytes of `changes` are one: a direction (the highest bit; if it is set, to
    /// the client) and a place, and what the byte there is xored with, 0 to cut what follows.
    ///
    /// # Errors
    ///
    /// That there are none.
    ///
    /// # Panics
    ///
    /// If they are others than the client's own.
    pub fn exchange(&self, changes: &[u8]) -> io::Result<()> {
        let client = ClientConnection::new(self.config.clone(), self.name.clone());
        let client = client.map_err(io::Error::other)?;
        let before = self.agent.counts().handed_out.load(Ordering::Relaxed);
        let mut way =
            Way { client, failed: None, changes, sent: [0; 2], to_agent: VecDeque::new() };
        let answered = self.agent.converse(&mut way, NOWHERE);
        let answers = self.agent.counts().handed_out.load(Ordering::Relaxed) - before;
        assert_eq!(answers, u64::from(answered.is_ok()), "keys are handed out once");
        if let Some(error) = way.failed {
            return Err(error);
        }
        let mut text = String::new();
        // Of an answer that is cut off it says so.
        way.client.reader().read_to_string(&mut text)?;
        let answer = fetch::parse(&text)?;
        assert_eq!(answer.keys, self.keys);
        Ok(())
    }
}

/// Connection of a stranger: what it says, and what it hears.
struct Said<'a> {
    /// Bytes that the agent has not read.
    to_agent: &'a [u8],
    /// All that the agent has said.
    to_stranger: Vec<u8>,
}

impl Read for Said<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.to_agent.read(bytes)
    }
}

impl Write for Said<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to_stranger.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connection between an agent and its client, and the client.
struct Way<'a> {
    /// It says what it has to say when the agent reads.
    client: ClientConnection,
    /// Error for which it gives up, if it does.
    failed: Option<io::Error>,
    /// As [`Exchanges::exchange`] has them.
    changes: &'a [u8],
    /// Bytes that have come by, to the agent and to the client.
    sent: [usize; 2],
    /// Bytes that the agent has not read.
    to_agent: VecDeque<u8>,
}

impl Way<'_> {
    /// Changes what goes by, or cuts it.
    fn pass(&mut self, direction: usize, bytes: &mut Vec<u8>) {
        let begin = self.sent[direction];
        self.sent[direction] += bytes.len();
        for change in self.changes.chunks_exact(3) {
            let place = usize::from(u16::from_be_bytes([change[0] & 0x7f, change[1]]));
            if usize::from(change[0] >> 7) != direction {
                continue;
            }
            match (change[2], place.checked_sub(begin)) {
                (0, at) => bytes.truncate(at.unwrap_or(0)),
                (mask, Some(at)) if at < bytes.len() => bytes[at] ^= mask,
                _ => {}
            }
        }
    }
}

impl Read for Way<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.client.wants_write() {
            let mut said = Vec::new();
            self.client.write_tls(&mut said)?;
            self.pass(0, &mut said);
            self.to_agent.extend(said);
        }
        self.to_agent.read(bytes)
    }
}

impl Write for Way<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut heard = bytes.to_vec();
        self.pass(1, &mut heard);
        let mut rest = &heard[..];
        while self.failed.is_none() && !rest.is_empty() {
            let read = self.client.read_tls(&mut rest);
            let taken =
                read.and_then(|_| self.client.process_new_packets().map_err(io::Error::other));
            self.failed = taken.err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn exchanges(name: &str) -> Exchanges {
        let path = std::env::temp_dir().join(format!("tailcut-{}-{name}", std::process::id()));
        Exchanges::new(&path).expect("files")
    }

    #[test]
    fn what_is_changed_on_its_way_gives_no_keys_but_the_clients_own() {
        let exchanges = exchanges("fuzzed-ways");
        exchanges.exchange(&[]).expect("nothing is changed");
        for direction in [0, 0x80] {
            let fails = |place: u16, mask| {
                let [high, low] = place.to_be_bytes();
                exchanges.exchange(&[direction | high, low, mask]).is_err()
            };
            // What the client says has some 720 bytes, what the agent says more.
            let places = || (0..715).step_by(13);
            let changed: Vec<_> = places().filter(|&place| fails(place, 1)).collect();
            // All but those that mean nothing, such as the version of a record before there are
            // keys.
            assert!(changed.len() + 3 >= places().len(), "{direction}: {changed:?}");
            let cut: Vec<_> = places().filter(|&place| fails(place, 0)).collect();
            assert_eq!(cut.len(), places().len(), "{direction}: {cut:?}");
        }
    }

    #[test]
    fn strangers_say_what_they_like() {
        let exchanges = exchanges("fuzzed-strangers");
        let hello = [22, 3, 1, 0x40, 0, 1, 0, 0x3f];
        for bytes in [&[][..], b"GET / HTTP/1.1\r\n\r\n", &hello, &[0; 700]] {
            exchanges.say(bytes).expect_err("it has shown nothing");
        }
    }

    #[test]
    fn texts_are_read() {
        for text in [
            "tailcut-keys-from 1\nagent h:1\npsk a\n",
            "tailcut-keys-refused 1 dns:a\u{1b} is not listed\n",
            "tailcut-key-clients 1\ndns:a client 1\n",
        ] {
            read_texts(text);
        }
    }
}
