//! `tailcut keys`: files of keys of sealed services, and their reading for `--seal`.

mod serve;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use tailcut_instrument::agent::key::Key;
use tailcut_net::clock::Clock;
use tailcut_net::keys::{AccessSource, LiveAccess, LiveKeys, Source, file};
use tailcut_net::open::Opening;
use tailcut_proto::sealed::{CLIENT_MAX, Cipher, Keys, Role};

use crate::control::protocol::Seal;
use crate::distribution_file::parse_positive_ns;
use crate::output;

/// Make and look at the keys of sealed services
///
/// A group of servers has one file of keys. What routers and clients are given is derived from it:
/// a router can place requests and read none, a client can speak for itself alone.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the keys of a group of servers
    New {
        /// The file to write; it must not exist
        file: PathBuf,
        /// The name of the group
        #[arg(long, value_name = "NAME", default_value = "default")]
        group: String,
        /// aes-128-gcm or chacha20-poly1305 [default: the former where this host has instructions
        /// for it]
        #[arg(long, value_name = "NAME", value_parser = parse_cipher)]
        cipher: Option<Cipher>,
        /// Keys to make, each used for --every after the one before
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
        epochs: u16,
        /// How long each of several keys is used
        #[arg(long, value_name = "TIME", default_value = "3600s", value_parser = parse_positive_ns)]
        every: u64,
    },
    /// Add the next key to a group's file and drop those that are no longer taken
    Rotate {
        /// The servers' keys
        file: PathBuf,
        /// When clients begin to use it, from now: all that use the group must have it by then
        #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_positive_ns)]
        after: u64,
    },
    /// Derive the keys of a router or of a client
    Derive {
        /// The servers' keys
        file: PathBuf,
        /// The file to write; it must not exist
        to: PathBuf,
        /// For routers
        #[arg(long, conflicts_with = "client", required_unless_present = "client")]
        router: bool,
        /// For the client with this number
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(CLIENT_MAX)))]
        client: Option<u32>,
    },
    /// Hand keys out to those who are listed, and add the next ones ahead of time
    ///
    /// Who connects shows by TLS 1.3 who it is: by an X.509 certificate, with a SPIFFE URI or DNS
    /// names, or by a pre-shared key. It is answered with the keys of its role. Where `--seal FILE`
    /// is taken, the file may name an agent in the place of keys (`tailcut-keys-from 1`).
    Serve(serve::Args),
    /// Make a pre-shared key for a client of a key agent
    Psk {
        /// The file to write; it must not exist
        file: PathBuf,
    },
    /// Print what a file is for and when its keys are used, and no secret
    Show {
        /// The keys
        file: PathBuf,
    },
}

impl Args {
    /// True if it serves until it is told to end.
    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.action, Action::Serve(_))
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.action {
        Action::New { file: path, group, cipher, epochs, every } => {
            let now_ms = now_ms();
            let every_ms = (every / 1_000_000).max(1);
            let key = |at: u64| file::new_key(at as u8 + 1, now_ms + at * every_ms);
            let epochs = (0..u64::from(*epochs)).map(key).collect::<io::Result<_>>();
            let epochs = epochs.context("cannot draw a secret")?;
            let cipher = cipher.unwrap_or_else(fastest);
            let reset = Some(file::new_reset().context("cannot draw a secret")?);
            let keys = Keys { role: Role::Server, group: group.clone(), cipher, reset, epochs };
            // What cannot be read again must not be written.
            let keys: Keys = keys.to_text().parse().context("the name of a group is one word")?;
            Ok(file::create(path, &keys)?)
        }
        Action::Rotate { file: path, after } => rotate(path, after / 1_000_000),
        Action::Derive { file: path, to, client, .. } => {
            let role = client.map_or(Role::Router, Role::Client);
            let derived = read(path)?.for_role(role);
            let derived = derived.context("only a server's keys derive those of others")?;
            Ok(file::create(to, &derived)?)
        }
        Action::Serve(args) => serve::run(args),
        Action::Psk { file: path } => Key::make(path),
        Action::Show { file: path } => output::print(&match Source::check(path)? {
            Some(keys) => described(&keys),
            None => "keys of a key agent, which is asked for them where --seal names this file\n"
                .to_owned(),
        }),
    }
}

/// Owner of the keys that a command is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Servers,
    Routers,
    Clients,
}

impl Whose {
    /// Checks that keys of this role fit; the error says what is wrong, and what would help.
    fn check(self, path: &Path, role: Role) -> Result<()> {
        let (needed, flag) = match (self, role) {
            (Self::Servers, Role::Server)
            | (Self::Routers, Role::Router | Role::Server)
            | (Self::Clients, Role::Client(_)) => return Ok(()),
            (Self::Servers, _) => ("the servers' file, which derives the others", None),
            (Self::Routers, _) => ("a router's", Some("--router")),
            (Self::Clients, _) => ("a client's", Some("--client N")),
        };
        let (path, article) = (path.display(), if let Role::Client(_) = role { "" } else { "a " });
        let help =
            flag.map(|flag| format!(": `tailcut keys derive SERVERS FILE {flag}` makes them"));
        let help = help.unwrap_or_default();
        bail!("{path} has the keys of {article}{role}, and this takes {needed}{help}")
    }
}

/// The keys in a file, or from the agent that it names, if they are whose they are to be. What is
/// odd about them is logged.
fn source_of(path: &Path, whose: Whose) -> Result<Source> {
    let source = Source::open(path)?;
    let keys = source.keys().current();
    whose.check(path, keys.role)?;
    let file = path.display();
    if whose == Whose::Routers && keys.role == Role::Server {
        tracing::warn!(%file, "a router needs a router's keys alone, and by these it could read what it places");
    }
    if let Some(problem) = problem_of_age(&keys, now_ms()) {
        tracing::warn!(%file, "{problem}");
    }
    Ok(source)
}

/// Reason why sessions cannot begin, or not yet, under the current key.
fn problem_of_age(keys: &Keys, now_ms: u64) -> Option<String> {
    let key = &keys.epochs[keys.current(now_ms)];
    let epoch = key.epoch;
    if key.from_ms > now_ms {
        let seconds = (key.from_ms - now_ms).div_ceil(1_000);
        return Some(format!(
            "the first key, epoch {epoch}, is used in {seconds} s: no call is taken before"
        ));
    }
    let days = (now_ms - key.from_ms) / DAY_MS;
    (now_ms - key.from_ms > EPOCH_MS_MAX).then(|| {
        format!(
            "the last key, epoch {epoch}, is {days} days old: no session can begin under it. Rotate"
        )
    })
}

/// Keys that `--seal` names, and the list of who may call what that `--access` names, both read
/// again when their files change.
#[derive(Debug)]
pub(crate) struct Secured {
    keys: Option<Source>,
    access: Option<AccessSource>,
}

impl Secured {
    /// Reads what a server's flags name.
    pub(crate) fn of_server(seal: Option<&Path>, access: Option<&Path>) -> Result<Self> {
        ensure!(
            access.is_none() || seal.is_some(),
            "--access names clients by the keys of a sealed service: give --seal too, or leave it out"
        );
        let keys = seal.map(|path| source_of(path, Whose::Servers)).transpose()?;
        Ok(Self { keys, access: access.map(AccessSource::open).transpose()? })
    }

    /// Reads what a client's flag names.
    pub(crate) fn of_client(seal: Option<&Path>) -> Result<Self> {
        Ok(Self { keys: seal.map(of_client).transpose()?, access: None })
    }

    /// Has endpoints opened with it.
    pub(crate) fn apply(&self, opening: &mut Opening) {
        opening.keys = self.keys.as_ref().map(LiveKeys::from);
        opening.access = self.access.as_ref().map(LiveAccess::from);
    }

    /// Has the files read again, for who asks for that by a signal. What comes of it is in the log.
    pub(crate) fn reload(&self) {
        self.keys.iter().for_each(Source::reload_soon);
        self.access.iter().for_each(AccessSource::reload_soon);
    }
}

/// A client's keys for `--seal`, which are read again when their file changes.
pub(crate) fn of_client(path: &Path) -> Result<Source> {
    source_of(path, Whose::Clients)
}

/// A router's keys for `--seal`, which are read again when their file changes.
pub(crate) fn of_router(path: &Path) -> Result<Source> {
    source_of(path, Whose::Routers)
}

/// Has keys read again, where there are any, for who asks for that by a signal. What comes of it is
/// in the log.
pub(crate) fn reload(keys: Option<&Source>) {
    keys.map(Source::reload_soon);
}

/// Status of a router's keys.
pub(crate) fn status(keys: &Keys) -> Seal {
    Seal {
        group: keys.group.clone(),
        cipher: keys.cipher.to_string(),
        epochs: keys.epochs.iter().map(|key| key.epoch).collect(),
        current: keys.epochs[keys.current(now_ms())].epoch,
    }
}

/// A router's keys in a file, where it has any, for who only looks whether it is well.
pub(crate) fn look(path: &Path) -> Result<Option<Keys>> {
    let keys = Source::check(path)?;
    keys.as_ref().map_or(Ok(()), |keys| Whose::Routers.check(path, keys.role))?;
    Ok(keys)
}

/// The keys in a file, which nobody else may read.
pub(crate) fn read(path: &Path) -> Result<Keys> {
    Ok(file::read(path)?)
}

/// Adds a key that begins `after_ms` from now, and drops those of which packets are no longer
/// taken.
fn rotate(path: &Path, after_ms: u64) -> Result<()> {
    let keys = read(path)?;
    let now_ms = now_ms();
    let last = keys.epochs.last().expect("there is a key");
    let (from_ms, soonest_ms) = (now_ms + after_ms, last.from_ms + EPOCH_MS_MIN);
    let is_group = keys.role == Role::Server;
    ensure!(
        !is_group || from_ms >= soonest_ms,
        "the last key of {} begins in {} s, and is to be used for {} s at least: take --after {}s",
        path.display(),
        last.from_ms.saturating_sub(now_ms).div_ceil(1_000),
        EPOCH_MS_MIN / 1_000,
        (soonest_ms - now_ms).div_ceil(1_000) + 1,
    );
    Ok(file::replace(path, &file::rotated(keys, from_ms, now_ms)?)?)
}

fn described(keys: &Keys) -> String {
    let whose = match keys.role {
        Role::Server => "servers".to_owned(),
        Role::Router => "routers".to_owned(),
        Role::Client(client) => format!("client {client}"),
    };
    let mut text = format!("keys of {whose} of the group {}, {}\n", keys.group, keys.cipher);
    if keys.reset.is_some() {
        text += "with a reset key: requests under keys that are not there are answered\n";
    }
    let current = keys.current(now_ms());
    for (at, key) in keys.epochs.iter().enumerate() {
        let from = UNIX_EPOCH + Duration::from_millis(key.from_ms);
        let from = humantime::format_rfc3339_seconds(from);
        let is_current = if at == current { ", current" } else { "" };
        text += &format!("epoch {} from {from}{is_current}\n", key.epoch);
    }
    text
}

fn now_ms() -> u64 {
    Clock.unix_ns() / 1_000_000
}

/// The cipher that this host has instructions for.
fn fastest() -> Cipher {
    #[cfg(target_arch = "x86_64")]
    let has_aes = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    if has_aes { Cipher::Aes128Gcm } else { Cipher::ChaCha20Poly1305 }
}

fn parse_cipher(text: &str) -> Result<Cipher, String> {
    let known = [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];
    let found = known.into_iter().find(|cipher| cipher.to_string() == text);
    found.ok_or_else(|| "take aes-128-gcm or chacha20-poly1305".to_owned())
}

/// The shortest use of a key before the one that a rotation adds: the files of those that use the
/// group must come to them meanwhile.
const EPOCH_MS_MIN: u64 = 60_000;

/// The longest: a session says in 32 bits when it began, ms.
const EPOCH_MS_MAX: u64 = u32::MAX as u64;

const DAY_MS: u64 = 86_400_000;

const EXAMPLES: &str = "\
Examples:
  tailcut keys new servers.keys --group search
  tailcut keys derive servers.keys router.keys --router
  tailcut keys derive servers.keys web.keys --client 17
  tailcut serve --listen 10.0.0.2:8000 --app echo --seal servers.keys
  tailcut route --listen 10.0.0.1:8000 --server 10.0.0.2:8000 --seal router.keys
  tailcut measure --target 10.0.0.1:8000 --app echo:64 --rate 10k --seal web.keys";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_somebody_else_are_told_with_the_remedy() {
        let check = |whose: Whose, role| whose.check(Path::new("a.keys"), role);
        let [server, router, client] = [Role::Server, Role::Router, Role::Client(17)];
        for (whose, fit) in [
            (Whose::Servers, &[server][..]),
            (Whose::Routers, &[server, router]),
            (Whose::Clients, &[client]),
        ] {
            for role in [server, router, client] {
                assert_eq!(check(whose, role).is_ok(), fit.contains(&role), "{whose:?} {role}");
            }
        }
        let told = check(Whose::Clients, router).expect_err("a router's").to_string();
        assert!(told.starts_with("a.keys has the keys of a router"), "{told}");
        assert!(told.contains("`tailcut keys derive SERVERS FILE --client N`"), "{told}");
        assert!(!check(Whose::Servers, client).expect_err("a client's").to_string().contains('`'));
    }

    #[test]
    fn a_key_that_begins_no_session_is_told() {
        let from_ms = 1_000_000;
        let epochs = vec![file::new_key(3, from_ms).expect("random numbers")];
        let (role, group, cipher) = (Role::Server, "g".to_owned(), Cipher::Aes128Gcm);
        let keys = Keys { role, group, cipher, reset: None, epochs };
        let told = |now_ms| problem_of_age(&keys, now_ms);
        assert!(told(from_ms - 1_001).is_some_and(|text| text.contains("epoch 3, is used in 2 s")));
        assert_eq!((told(from_ms), told(from_ms + EPOCH_MS_MAX)), (None, None));
        let old = told(from_ms + EPOCH_MS_MAX + 1).expect("it is too old");
        assert!(old.contains("49 days old"), "{old}");
    }
}
