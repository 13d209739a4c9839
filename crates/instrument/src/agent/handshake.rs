//! How a coordinator and an agent begin: who speaks which version, and who has the key.
//!
//! | from | what |
//! |---|---|
//! | coordinator | its hello: magic, version, whether it has a key, a random number |
//! | agent | its hello |
//! | agent | its proof of the key, over both hellos |
//! | coordinator | its proof |
//!
//! After that come frames. An agent that speaks another version, or that differs about the key,
//! ends after its hello, from which the coordinator can say why.
//!
//! Invariant: the agent acts on nothing before the coordinator's proof, and keeps no more than a
//! hello and a proof until then.

use std::io::{self, ErrorKind, Read, Write};

use thiserror::Error;

use super::frames::{BODY_LEN_MAX, Opener, Sealer};
use super::key::{KEY_LEN, Key, Purpose, TAG_LEN, random};
use super::stream::{Hurried, Stream};

/// Both directions of a session that has begun.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) sealer: Sealer<Stream>,
    pub(super) opener: Opener<Hurried>,
}

/// Why no session began; each reads as what the other side did.
#[derive(Debug, Error)]
pub(super) enum Refusal {
    #[error("is no tailcut agent: it answered something else")]
    NotOurs,
    #[error(
        "speaks version {theirs} of the agents' protocol, and this tailcut version {VERSION}: use the same tailcut at both"
    )]
    OtherVersion { theirs: u16 },
    #[error("has a key: give the same one with --key-file")]
    KeyWanted,
    #[error("has no key: start it with --key-file, or leave the key out")]
    NoKeyThere,
    #[error("has another key")]
    OtherKey,
    #[error("ended before the session began")]
    Ended,
    #[error("did not answer in time")]
    Slow,
    #[error("does not have what was asked for")]
    Absent(Vec<u8>),
    #[error("cannot be spoken to: {0}")]
    Failed(anyhow::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                Self::Ended
            }
            ErrorKind::TimedOut => Self::Slow,
            _ => Self::Failed(error.into()),
        }
    }
}

/// What may come before an agent's hello.
#[derive(Clone, Copy, Debug)]
pub(super) enum Before {
    /// Nothing.
    Nothing,
    /// What a login shell's startup files print, and perhaps [`ABSENT`] and a line instead of a
    /// hello.
    ShellNoise,
}

/// What a host prints where there is no agent to start.
pub(super) const ABSENT: &[u8; MAGIC_LEN] = b"tcabsent";

/// Begins as the coordinator.
pub(super) fn begin(
    stream: &Stream,
    patience_ns: u64,
    key: Option<&Key>,
    before: Before,
) -> Result<Session, Refusal> {
    let mut reader = Hurried::new(stream.clone(), patience_ns);
    let mine = hello(key.is_some()).map_err(Refusal::Failed)?;
    reader.write_all(&mine)?;
    find_magic(&mut reader, before)?;
    let mut theirs = [0; HELLO_LEN];
    theirs[..MAGIC_LEN].copy_from_slice(MAGIC);
    reader.read_exact(&mut theirs[MAGIC_LEN..])?;
    check(&theirs, key.is_some())?;
    let transcript = [mine, theirs].concat();
    let key = key.cloned().unwrap_or_else(Key::public);
    let mut proof = [0; TAG_LEN];
    reader.read_exact(&mut proof)?;
    if !key.verify(Purpose::AgentHasKey, &transcript, &proof) {
        return Err(Refusal::OtherKey);
    }
    reader.write_all(&key.prove(Purpose::CoordinatorHasKey, &transcript))?;
    Ok(Session {
        sealer: Sealer::new(stream.clone(), key.session(Purpose::FromCoordinator, &transcript)),
        opener: Opener::new(reader, key.session(Purpose::FromAgent, &transcript), BODY_LEN_MAX),
    })
}

/// Begins as the agent.
pub(super) fn accept(
    stream: &Stream,
    patience_ns: u64,
    key: Option<&Key>,
) -> Result<Session, Refusal> {
    let mut reader = Hurried::new(stream.clone(), patience_ns);
    find_magic(&mut reader, Before::Nothing)?;
    let mut theirs = [0; HELLO_LEN];
    theirs[..MAGIC_LEN].copy_from_slice(MAGIC);
    reader.read_exact(&mut theirs[MAGIC_LEN..])?;
    let mine = hello(key.is_some()).map_err(Refusal::Failed)?;
    reader.write_all(&mine)?;
    check(&theirs, key.is_some())?;
    let transcript = [theirs, mine].concat();
    let key = key.cloned().unwrap_or_else(Key::public);
    reader.write_all(&key.prove(Purpose::AgentHasKey, &transcript))?;
    let mut proof = [0; TAG_LEN];
    reader.read_exact(&mut proof)?;
    if !key.verify(Purpose::CoordinatorHasKey, &transcript, &proof) {
        return Err(Refusal::OtherKey);
    }
    Ok(Session {
        sealer: Sealer::new(stream.clone(), key.session(Purpose::FromAgent, &transcript)),
        opener: Opener::new(
            reader,
            key.session(Purpose::FromCoordinator, &transcript),
            ORDER_LEN_MAX,
        ),
    })
}

fn hello(keyed: bool) -> anyhow::Result<[u8; HELLO_LEN]> {
    let mut hello = [0; HELLO_LEN];
    let (magic, rest) = hello.split_at_mut(MAGIC_LEN);
    magic.copy_from_slice(MAGIC);
    rest[..2].copy_from_slice(&VERSION.to_le_bytes());
    rest[2] = u8::from(keyed);
    rest[3..].copy_from_slice(&random()?);
    Ok(hello)
}

fn check(theirs: &[u8; HELLO_LEN], keyed: bool) -> Result<(), Refusal> {
    let version = u16::from_le_bytes([theirs[MAGIC_LEN], theirs[MAGIC_LEN + 1]]);
    if version != VERSION {
        return Err(Refusal::OtherVersion { theirs: version });
    }
    match (theirs[MAGIC_LEN + 2] != 0, keyed) {
        (true, false) => Err(Refusal::KeyWanted),
        (false, true) => Err(Refusal::NoKeyThere),
        _ => Ok(()),
    }
}

/// Reads up to the end of the magic.
fn find_magic(reader: &mut impl Read, before: Before) -> Result<(), Refusal> {
    let mut window = [0; MAGIC_LEN];
    reader.read_exact(&mut window)?;
    let noise_len_max = match before {
        Before::Nothing => 0,
        Before::ShellNoise => NOISE_LEN_MAX,
    };
    for _ in 0..=noise_len_max {
        if window == *MAGIC {
            return Ok(());
        }
        if noise_len_max > 0 && window == *ABSENT {
            let mut line = Vec::new();
            reader.take(LINE_LEN_MAX).read_to_end(&mut line)?;
            return Err(Refusal::Absent(line));
        }
        if noise_len_max > 0 {
            window.rotate_left(1);
            reader.read_exact(&mut window[MAGIC_LEN - 1..])?;
        }
    }
    Err(Refusal::NotOurs)
}

/// The version of the protocol: of the handshake, the frames and the messages.
pub(super) const VERSION: u16 = 2;

/// The longest body that a coordinator sends: a job with certificates.
const ORDER_LEN_MAX: u32 = 1 << 20;
const MAGIC_LEN: usize = 8;
const MAGIC: &[u8; MAGIC_LEN] = b"tcagent\0";
/// Magic, version, whether there is a key, random number.
pub(super) const HELLO_LEN: usize = MAGIC_LEN + 2 + 1 + KEY_LEN;
/// Longer than messages of the day.
const NOISE_LEN_MAX: usize = 16 << 10;
const LINE_LEN_MAX: u64 = 200;
