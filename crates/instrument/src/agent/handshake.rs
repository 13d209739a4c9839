//! Handshake of a coordinator and an agent: the version that each speaks, and who has the key.
//!
//! | from | what |
//! |---|---|
//! | coordinator | its hello: magic, version, whether it has a key |
//! | agent | its hello |
//! | both | the handshake of TLS 1.3, the coordinator being the client; each shows that it has the key |
//!
//! After that come frames. An agent that speaks another version, or that differs about the key,
//! ends after its hello, from which the coordinator can say why. Whoever changes a hello on its way
//! gains no more than a refusal, for nothing follows from one but whether to go on.
//!
//! Invariant: the agent acts on nothing before it has seen that the coordinator has the key, and
//! keeps no more than a hello and a handshake, which TLS bounds, until then.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex};

use rustls::{AlertDescription, CertificateError, Connection};
use thiserror::Error;

use super::frames::{BODY_LEN_MAX, Opener, Sealer};
use super::key::Key;
use super::stream::{Hurried, Stream};

/// Both directions of a session that has begun.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) sealer: Sealer<Stream>,
    pub(super) opener: Opener<Hurried>,
}

/// Reason why no session began; each reads as what the other side did.
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
    #[error("has another key, or a certificate of another authority")]
    OtherKey,
    #[error("does not take the certificate that it was shown, or who has it")]
    NotAdmitted,
    #[error("shows a certificate that is not taken: {0}")]
    Untrusted(CertificateError),
    #[error("shows a certificate of somebody who is not admitted")]
    Stranger,
    #[error("speaks something else under its certificate")]
    OtherProtocol,
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
            // What TLS refuses; sockets have no such error.
            ErrorKind::InvalidData => match error.get_ref().and_then(|why| why.downcast_ref()) {
                Some(rustls::Error::InvalidCertificate(
                    why @ (CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. }
                    | CertificateError::NotValidYetContext { .. }
                    | CertificateError::ExpiredContext { .. }
                    | CertificateError::InvalidPurpose
                    | CertificateError::InvalidPurposeContext { .. }
                    | CertificateError::Revoked
                    | CertificateError::UnknownRevocationStatus
                    | CertificateError::ExpiredRevocationListContext { .. }),
                )) => Self::Untrusted(why.clone()),
                Some(rustls::Error::InvalidCertificate(
                    CertificateError::ApplicationVerificationFailure,
                )) => Self::Stranger,
                // Another root than the one that counts, or a signature by another key. Seen here,
                // or said by the other side.
                Some(
                    rustls::Error::InvalidCertificate(_)
                    | rustls::Error::AlertReceived(AlertDescription::DecryptError),
                ) => Self::OtherKey,
                Some(rustls::Error::AlertReceived(
                    AlertDescription::AccessDenied
                    | AlertDescription::BadCertificate
                    | AlertDescription::CertificateExpired
                    | AlertDescription::CertificateRevoked
                    | AlertDescription::CertificateUnknown,
                )) => Self::NotAdmitted,
                _ => Self::Failed(error.into()),
            },
            _ => Self::Failed(error.into()),
        }
    }
}

/// Output that may come before an agent's hello.
#[derive(Clone, Copy, Debug)]
pub(super) enum Before {
    /// Nothing.
    Nothing,
    /// Output of a login shell's startup files, and perhaps [`ABSENT`] and a line instead of a
    /// hello.
    ShellNoise,
}

/// Magic that a host prints where there is no agent to start.
pub(super) const ABSENT: &[u8; MAGIC_LEN] = b"tcabsent";

/// Begins as the coordinator of an agent at a host.
pub(super) fn begin(
    stream: &Stream,
    patience_ns: u64,
    (key, host): (Option<&Key>, &str),
    before: Before,
) -> Result<Session, Refusal> {
    let mut hurried = Hurried::new(stream.clone(), patience_ns);
    hurried.write_all(&hello(key.is_some()))?;
    let theirs = hear(&mut hurried, before)?;
    check(theirs, key.is_some())?;
    let tls = key_or_public(key).and_then(|key| key.coordinator(host)).map_err(Refusal::Failed)?;
    secure(tls, key, (hurried, stream), BODY_LEN_MAX)
}

/// Begins as the agent.
pub(super) fn accept(
    stream: &Stream,
    patience_ns: u64,
    key: Option<&Key>,
) -> Result<Session, Refusal> {
    let mut hurried = Hurried::new(stream.clone(), patience_ns);
    let theirs = hear(&mut hurried, Before::Nothing)?;
    hurried.write_all(&hello(key.is_some()))?;
    check(theirs, key.is_some())?;
    let tls = key_or_public(key).and_then(|key| key.agent()).map_err(Refusal::Failed)?;
    secure(tls, key, (hurried, stream), ORDER_LEN_MAX)
}

fn key_or_public(key: Option<&Key>) -> anyhow::Result<Key> {
    key.cloned().map_or_else(Key::public, Ok)
}

/// Shakes hands, after which frames come with bodies of so many bytes at most.
fn secure(
    mut tls: Connection,
    key: Option<&Key>,
    (mut hurried, stream): (Hurried, &Stream),
    body_len_max: u32,
) -> Result<Session, Refusal> {
    tls.complete_io(&mut hurried)?;
    if key.is_some_and(|key| !key.is_spoken_in(&tls)) {
        return Err(Refusal::OtherProtocol);
    }
    let tls = Arc::new(Mutex::new(tls));
    Ok(Session {
        sealer: Sealer::new(stream.clone(), tls.clone()),
        opener: Opener::new(hurried, tls, body_len_max),
    })
}

fn hello(keyed: bool) -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes(), &[u8::from(keyed)]].concat()
}

/// Reads a hello and gives what follows its magic.
fn hear(reader: &mut impl Read, before: Before) -> Result<[u8; HELLO_LEN - MAGIC_LEN], Refusal> {
    find_magic(reader, before)?;
    let mut rest = [0; HELLO_LEN - MAGIC_LEN];
    reader.read_exact(&mut rest)?;
    Ok(rest)
}

fn check([low, high, has_key]: [u8; HELLO_LEN - MAGIC_LEN], keyed: bool) -> Result<(), Refusal> {
    let version = u16::from_le_bytes([low, high]);
    if version != VERSION {
        return Err(Refusal::OtherVersion { theirs: version });
    }
    match (has_key != 0, keyed) {
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
pub(super) const VERSION: u16 = 5;

/// The longest body that a coordinator sends: a job with certificates.
const ORDER_LEN_MAX: u32 = 1 << 20;
const MAGIC_LEN: usize = 8;
const MAGIC: &[u8; MAGIC_LEN] = b"tcagent\0";
/// Magic, version, whether there is a key.
pub(super) const HELLO_LEN: usize = MAGIC_LEN + 2 + 1;
/// Longer than messages of the day.
const NOISE_LEN_MAX: usize = 16 << 10;
const LINE_LEN_MAX: u64 = 200;
