//! `tailcut keys`: files of keys of sealed services, and their reading for `--seal`.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use tailcut_instrument::text_file::CONFIG_BYTES_MAX;
use tailcut_net::clock::Clock;
use tailcut_net::entropy;
use tailcut_proto::sealed::{CLIENT_MAX, Cipher, EpochKey, HopKey, Keys, Role, Sealing, Secret};

use crate::distribution_file::parse_positive_ns;
use crate::output;

/// Make and look at the keys of sealed services
///
/// A group of servers has one file of keys. What routers and clients are given is derived from it: a
/// router can place requests and read none, a client can speak for itself alone.
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
        /// aes-128-gcm or chacha20-poly1305 [default: the former where this host has instructions for it]
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
    /// Print what a file is for and when its keys are used, and no secret
    Show {
        /// The keys
        file: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.action {
        Action::New { file, group, cipher, epochs, every } => {
            let now_ms = now_ms();
            let every_ms = (every / 1_000_000).max(1);
            let key = |at: u64| new_key(at as u8 + 1, now_ms + at * every_ms);
            let epochs = (0..u64::from(*epochs)).map(key).collect::<Result<_>>()?;
            let cipher = cipher.unwrap_or_else(fastest);
            let keys = Keys { role: Role::Server, group: group.clone(), cipher, epochs };
            // What cannot be read again must not be written.
            let keys: Keys = keys.to_text().parse().context("the name of a group is one word")?;
            create(file, &keys)
        }
        Action::Rotate { file, after } => rotate(file, after / 1_000_000),
        Action::Derive { file, to, client, .. } => {
            let role = client.map_or(Role::Router, Role::Client);
            let derived = read(file)?.for_role(role);
            create(to, &derived.context("only a server's keys derive those of others")?)
        }
        Action::Show { file } => output::print(&described(&read(file)?)),
    }
}

/// The keys in a file, for `--seal`.
pub(crate) fn sealing(path: &Path) -> Result<Sealing> {
    Ok(Sealing::new(Arc::new(read(path)?), 0))
}

/// The keys in a file, which nobody else may read.
pub(crate) fn read(path: &Path) -> Result<Keys> {
    let unreadable = || format!("cannot read the keys from {}", path.display());
    // What is read is what was looked at, whatever has the name by then.
    let file = File::open(path).with_context(unreadable)?;
    let mode = file.metadata().with_context(unreadable)?.mode();
    ensure!(
        mode & 0o077 == 0,
        "others may read the keys in {path}: chmod 600 {path}",
        path = path.display()
    );
    let mut text = String::new();
    file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).with_context(unreadable)?;
    ensure!(text.len() as u64 <= CONFIG_BYTES_MAX, "{} is too long", path.display());
    text.parse::<Keys>().with_context(|| path.display().to_string())
}

/// Adds a key that begins `after_ms` from now, and drops those of which packets are no longer taken.
fn rotate(path: &Path, after_ms: u64) -> Result<()> {
    let mut keys = read(path)?;
    if keys.role != Role::Server {
        bail!("{} are not a server's keys, from which all others are derived", path.display());
    }
    let now_ms = now_ms();
    let last = keys.epochs.last().expect("there is a key");
    let (from_ms, soonest_ms) = (now_ms + after_ms, last.from_ms + EPOCH_MS_MIN);
    ensure!(
        from_ms >= soonest_ms,
        "the last key of {} begins in {} s, and is to be used for {} s at least: take --after {}s",
        path.display(),
        last.from_ms.saturating_sub(now_ms).div_ceil(1_000),
        EPOCH_MS_MIN / 1_000,
        (soonest_ms - now_ms).div_ceil(1_000) + 1,
    );
    let next = new_key(last.epoch.wrapping_add(1), from_ms)?;
    // The one before the current is still taken.
    let oldest = keys.current(now_ms).saturating_sub(1);
    keys.epochs.drain(..oldest);
    keys.epochs.push(next);
    // What cannot be read again must not be written.
    let keys: Keys = keys.to_text().parse().context("there is no room for another key")?;
    let beside = path.with_extension("new");
    ensure!(
        !beside.exists(),
        "{} is in the way, perhaps of a rotation that was interrupted: delete it",
        beside.display()
    );
    create(&beside, &keys)?;
    std::fs::rename(&beside, path).with_context(|| format!("cannot replace {}", path.display()))
}

fn new_key(epoch: u8, from_ms: u64) -> Result<EpochKey> {
    let mut secret = [0; 32];
    for half in secret.chunks_mut(16) {
        half.copy_from_slice(&entropy::secret().context("cannot draw a secret")?);
    }
    Ok(EpochKey { epoch, from_ms, secret: Secret::new(secret), hop: HopKey::default() })
}

/// Writes a file that was not there, for its owner alone.
fn create(path: &Path, keys: &Keys) -> Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.with_context(|| format!("cannot create {}", path.display()))?;
    file.write_all(keys.to_text().as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("cannot write {}", path.display()))
}

fn described(keys: &Keys) -> String {
    let whose = match keys.role {
        Role::Server => "servers".to_owned(),
        Role::Router => "routers".to_owned(),
        Role::Client(client) => format!("client {client}"),
    };
    let mut text = format!("keys of {whose} of the group {}, {}\n", keys.group, keys.cipher);
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

/// The shortest use of a key before the one that a rotation adds: the files of those that use the group must
/// come to them meanwhile.
const EPOCH_MS_MIN: u64 = 60_000;

const EXAMPLES: &str = "\
Examples:
  tailcut keys new servers.keys --group search
  tailcut keys derive servers.keys router.keys --router
  tailcut keys derive servers.keys web.keys --client 17
  tailcut serve --listen 10.0.0.2:8000 --app echo --seal servers.keys
  tailcut route --listen 10.0.0.1:8000 --server 10.0.0.2:8000 --seal router.keys
  tailcut measure --target 10.0.0.1:8000 --app echo:64 --rate 10k --seal web.keys";
