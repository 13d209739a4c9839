//! Keys of a service group: who holds which, and what is derived from them.
//!
//! ```text
//! group secret (servers)          one for each epoch, 32 random bytes
//!   |- route secret (routers)     places, reports and refusals; no payload
//!   |    |- router key            router <-> server, router <-> router
//!   |    '- hop secret
//!   |         '- hop key of a client    client <-> router, and client -> server
//!   '- client secret (a client)
//!        |- request key           of a session: client -> server
//!        '- reply key             of a server's instance: server -> client
//!
//! reset secret (servers, routers) of no epoch: of it each client has its reset key
//! ```
//!
//! All of an epoch is HKDF-Expand under a label, but a client's hop key: a SipHash of its number,
//! since strangers have it derived for whatever number they like. Nothing is stored for a
//! connection. Keys are wiped when they are dropped; what is expanded of them aws-lc wipes.

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher24};
use zeroize::{Zeroize, Zeroizing};

use super::access::Access;
use super::names::{OwnName, name_of};
use super::primitives::{AeadKey, Cipher, Prk};

/// Role that a file of keys is for, which decides what its secrets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A server: holds the group's secrets, and can act as anyone.
    Server,
    /// A router: authenticates and places, and can read no payload.
    Router,
    /// The client of this number, at most [`CLIENT_MAX`](super::CLIENT_MAX).
    Client(u32),
}

/// A secret, wiped when it is dropped and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) [u8; 32]);

/// The key of one epoch, as a role has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochKey {
    /// Its number on the wire.
    pub epoch: u8,
    /// Time at which clients begin to use it: Unix time, ms.
    pub from_ms: u64,
    /// The role's secret.
    pub secret: Secret,
    /// A client's hop key; zero for the others, who derive it.
    pub hop: HopKey,
}

/// A key of SipHash, by which packets for one hop are authenticated, wiped when it is dropped and
/// never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HopKey(Zeroizing<[u8; 16]>);

/// The keys of a group as one role has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Role that they are for.
    pub role: Role,
    /// The group's name, which is in every label.
    pub group: String,
    /// The group's AEAD.
    pub cipher: Cipher,
    /// The group's reset secret, a client's own reset key: by which requests are answered of whose
    /// epoch a node has no key. `None` where nothing answers them, and no such answer counts.
    pub reset: Option<HopKey>,
    /// By time, the oldest first; at least one.
    pub epochs: Vec<EpochKey>,
}

/// Configuration of the seal of an endpoint or a router: keys, and the clock by which they are told
/// apart.
#[derive(Clone, Debug)]
pub struct Sealing {
    /// A server's or a router's keys, or a client's. An endpoint with a server's keys serves alone;
    /// one with a client's calls alone.
    pub keys: Arc<Keys>,
    /// Wall-clock time at the node's time 0: Unix time, ns.
    pub clock_ns: u64,
    /// Furthest that a client's clock may be ahead of a server's, ms: its first requests are
    /// dropped until the server's clock has come so far, and sent again. Of one that is further
    /// ahead all are refused. Default [`CLOCK_TOLERANCE_MS`].
    pub clock_tolerance_ms: u64,
    /// The name of an address that several nodes share, by sessions: random, and another at every
    /// start. Its low byte does not count. Default `None`: each node draws its own.
    pub name: Option<u64>,
    /// Number of this node among those that share a name. Default 0.
    pub member: u8,
    /// Access policy of a server: which clients may call what. Default `None`: all may call
    /// everything.
    pub access: Option<Arc<Access>>,
    /// A server may call its clients back, in sessions in which they have called it, and a client
    /// takes such calls. Over Homa alone: both ends of a byte stream call. Default false.
    pub calls_back: bool,
}

/// The default of [`Sealing::clock_tolerance_ms`]: hosts of a datacenter that keep time are within
/// 10 ms.
pub const CLOCK_TOLERANCE_MS: u64 = 100;

impl Sealing {
    /// Sealing with these keys at a host whose wall clock was `clock_ns` at the node's time 0.
    pub fn new(keys: Arc<Keys>, clock_ns: u64) -> Self {
        let (clock_tolerance_ms, name, member, access) = (CLOCK_TOLERANCE_MS, None, 0, None);
        Self { keys, clock_ns, clock_tolerance_ms, name, member, access, calls_back: false }
    }

    /// The name of a node, which it draws itself unless it is given one.
    pub(super) fn own_name(&self, draw: impl FnOnce() -> u64) -> OwnName {
        // 0 names nobody.
        OwnName { name: name_of(self.name.unwrap_or_else(draw)).max(1 << 8), member: self.member }
    }

    /// Time beyond the end of its call for which a packet may be taken, by clocks that are apart,
    /// ns.
    pub(crate) fn slack_ns(&self) -> u64 {
        2 * self.clock_tolerance_ms * 1_000_000
    }

    /// True if the keys are a client's.
    pub fn is_client(&self) -> bool {
        matches!(self.keys.role, Role::Client(_))
    }
}

/// Reason why keys cannot take the place of others while nodes run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangedKeys {
    /// They are somebody else's.
    #[error("the keys are of {new}, and were of {old}: that takes a restart")]
    Role {
        /// The role before.
        old: Role,
        /// The role now.
        new: Role,
    },
    /// They are another group's.
    #[error("the keys are of the group {new}, and were of {old}: that takes a restart")]
    Group {
        /// The group before.
        old: String,
        /// The group now.
        new: String,
    },
    /// They are for another AEAD.
    #[error("the keys are for {new}, and were for {old}: that takes a restart")]
    Cipher {
        /// The cipher before.
        old: Cipher,
        /// The cipher now.
        new: Cipher,
    },
    /// A number, or a time, stands for another key than before, so that calls in progress would be
    /// lost.
    #[error("epoch {epoch} has another key or time than before: that takes a restart")]
    Epoch {
        /// Its number.
        epoch: u8,
    },
}

impl Secret {
    /// A secret of random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes, to be written to a file of keys.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl EpochKey {
    /// Time at which a session of this epoch began, which says that by ticks: Unix time, ms.
    pub(super) fn began_ms(&self, ticks: u32) -> u64 {
        self.from_ms.saturating_add(u64::from(ticks) * TICK_MS)
    }
}

impl HopKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its bytes, to be written to a file of keys.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The key of a client that follows from this one, which is a group's: the first cost of what
    /// strangers send, so that it is no HMAC.
    pub(super) fn of_client(&self, client: u32) -> Self {
        Self::new(self.hash(&client.to_be_bytes()))
    }

    /// The pass of a session under its client's key, which each of its packets of Homa has: for who
    /// has none nothing is derived.
    pub(super) fn pass(&self, session: u64, began: u32) -> u32 {
        let mut begun = [0; 12];
        begun[..8].copy_from_slice(&session.to_be_bytes());
        begun[8..].copy_from_slice(&began.to_be_bytes());
        let [a, b, c, d, ..] = self.hash(&begun);
        u32::from_be_bytes([a, b, c, d])
    }

    /// SipHash-2-4 of 128 bits.
    fn hash(&self, bytes: &[u8]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(self.bytes());
        hasher.write(bytes);
        hasher.finish128().as_bytes()
    }
}

impl fmt::Debug for HopKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HopKey")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Keys {
    /// A group's keys as another role is given them: derived, so that it can derive no more than
    /// its own. `None` unless these are a server's.
    pub fn for_role(&self, role: Role) -> Option<Self> {
        if self.role != Role::Server {
            return None;
        }
        let derive = |key: &EpochKey| {
            let master = Master::of_server(key, &self.group);
            let (secret, hop) = match role {
                Role::Server => (key.secret.clone(), HopKey::default()),
                Role::Router => (master.route_secret, HopKey::default()),
                Role::Client(client) => (master.client_secret(client), master.hop_key(client)),
            };
            EpochKey { secret, hop, ..key.clone() }
        };
        let epochs = self.epochs.iter().map(derive).collect();
        let reset = match role {
            Role::Server | Role::Router => self.reset.clone(),
            Role::Client(client) => self.reset.as_ref().map(|secret| secret.of_client(client)),
        };
        Some(Self { role, reset, epochs, ..self.clone() })
    }

    /// Newer keys of the same holder, with what calls in progress need of these: those that have
    /// begun, and are or were accepted until [`EPOCH_KEPT_MS`] ago. `wall_ms` is the Unix time, ms.
    ///
    /// # Errors
    ///
    /// That role, group or cipher are others, or that an epoch in use has another key: nothing in
    /// progress could be told apart then.
    pub fn followed_by(&self, newer: &Self, wall_ms: u64) -> Result<Self, ChangedKeys> {
        let (old, new) = (self, newer);
        if old.role != new.role {
            return Err(ChangedKeys::Role { old: old.role, new: new.role });
        }
        if old.group != new.group {
            return Err(ChangedKeys::Group { old: old.group.clone(), new: new.group.clone() });
        }
        if old.cipher != new.cipher {
            return Err(ChangedKeys::Cipher { old: old.cipher, new: new.cipher });
        }
        let mut epochs = new.epochs.clone();
        for (at, key) in old.epochs.iter().enumerate() {
            let is_over = |next: &EpochKey| next.from_ms.saturating_add(EPOCH_KEPT_MS) <= wall_ms;
            // Also by the newer keys: those of a node that was idle for long may come again under
            // its numbers.
            let mut later = new.epochs.iter().filter(|other| other.from_ms > key.from_ms);
            let is_spent =
                old.epochs.get(at + 2).is_some_and(is_over) || later.nth(1).is_some_and(is_over);
            let in_its_place =
                |other: &&EpochKey| other.epoch == key.epoch || other.from_ms == key.from_ms;
            match new.epochs.iter().find(in_its_place) {
                Some(other) if other == key => {}
                Some(_) if is_spent => {}
                Some(_) => return Err(ChangedKeys::Epoch { epoch: key.epoch }),
                None if is_spent || key.from_ms > wall_ms => {}
                None => epochs.push(key.clone()),
            }
        }
        epochs.sort_by_key(|key| key.from_ms);
        Ok(Self { epochs, ..new.clone() })
    }

    /// By number, which epochs these keys have as other ones have them.
    pub(super) fn kept(&self, other: &Self) -> [bool; 256] {
        let mut kept = [false; 256];
        for key in self.epochs.iter().filter(|key| other.epochs.contains(key)) {
            kept[usize::from(key.epoch)] = true;
        }
        kept
    }

    /// True if all epochs of these keys are among `kept`.
    pub(super) fn are_all(&self, kept: &[bool; 256]) -> bool {
        self.epochs.iter().all(|key| kept[usize::from(key.epoch)])
    }

    /// The place of the key that clients use at a time: the newest that has begun, else the first.
    pub fn current(&self, wall_ms: u64) -> usize {
        self.epochs.iter().rposition(|key| key.from_ms <= wall_ms).unwrap_or(0)
    }

    /// The place of the latest key of an epoch.
    #[inline]
    pub(super) fn place_of(&self, epoch: u8) -> Option<usize> {
        self.epochs.iter().rposition(|key| key.epoch == epoch)
    }

    /// The place of the key of an epoch, if packets of it are taken at a time: of the current
    /// epoch, the one before and the one after, so that no call is lost by a rotation or a clock
    /// that is off.
    pub(super) fn accepted(&self, wall_ms: u64, epoch: u8) -> Option<usize> {
        let current = self.current(wall_ms);
        let span = current.saturating_sub(1)..(current + 2).min(self.epochs.len());
        span.into_iter().find(|&at| self.epochs[at].epoch == epoch)
    }
}

/// Secrets and keys that servers and routers derive from the secret of an epoch.
pub(super) struct Master {
    /// A server's alone: the group secret.
    prk: Option<Prk>,
    /// Secret that routers are given.
    route_secret: Secret,
    /// Secret of which clients have their hop keys.
    hop_secret: HopKey,
    /// Between routers and servers.
    pub(super) router_key: HopKey,
    /// The group's name.
    group: String,
}

impl fmt::Debug for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Master")
    }
}

impl Master {
    pub(super) fn of_server(key: &EpochKey, group: &str) -> Self {
        let prk = Prk::new(&key.secret.0);
        let route_secret = Secret(prk.expand(&[LABEL, b"route", &[0], group.as_bytes()]));
        Self { prk: Some(prk), ..Self::of_router(&route_secret, group) }
    }

    pub(super) fn of_router(route_secret: &Secret, group: &str) -> Self {
        let route = Prk::new(&route_secret.0);
        let expand = |purpose| HopKey::new(route.expand(&[LABEL, purpose, &[0], group.as_bytes()]));
        let (hop_secret, router_key) = (expand(b"hop"), expand(b"router"));
        let (route_secret, group) = (route_secret.clone(), group.to_owned());
        Self { prk: None, route_secret, hop_secret, router_key, group }
    }

    /// The hop key of a client.
    pub(super) fn hop_key(&self, client: u32) -> HopKey {
        self.hop_secret.of_client(client)
    }

    fn client_secret(&self, client: u32) -> Secret {
        let prk = self.prk.as_ref().expect("these are a server's keys");
        let group = self.group.as_bytes();
        Secret(prk.expand(&[LABEL, b"client", &[0], group, &[0], &client.to_be_bytes()]))
    }

    /// The keys of one client.
    pub(super) fn client(&self, client: u32, of: (Cipher, Transport)) -> ClientSecret {
        ClientSecret::new(&self.client_secret(client), of)
    }
}

/// Source of the keys that are derived from the secret of a client in an epoch.
#[derive(Clone, Debug)]
pub(super) struct ClientSecret {
    /// To derive from it.
    prk: Prk,
    /// The group's.
    cipher: Cipher,
    /// Transport that the keys are for: no two transports share one.
    transport: Transport,
}

/// Transport whose packets a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    R2p2,
    Homa,
}

impl ClientSecret {
    pub(super) fn new(secret: &Secret, (cipher, transport): (Cipher, Transport)) -> Self {
        Self { prk: Prk::new(&secret.0), cipher, transport }
    }

    /// The key of a session's packets to servers. `began` is when it began, in ticks.
    pub(super) fn request_key(&self, session: u64, began: u32) -> AeadKey {
        let purpose: &[u8] = match self.transport {
            Transport::R2p2 => b"request",
            Transport::Homa => b"homa request",
        };
        let parts = [LABEL, purpose, &[0], &session.to_be_bytes(), &began.to_be_bytes()];
        self.prk.aead(self.cipher, &parts)
    }

    /// The key of a server's packets: of the instance that it has drawn at its start.
    pub(super) fn reply_key(&self, instance: u64) -> AeadKey {
        let purpose: &[u8] = match self.transport {
            Transport::R2p2 => b"reply",
            Transport::Homa => b"homa reply",
        };
        self.prk.aead(self.cipher, &[LABEL, purpose, &[0], &instance.to_be_bytes()])
    }
}

/// Values made of each epoch's key, for keys that take the place of others: those for keys that
/// both have are taken over.
pub(super) fn carried<T>(
    (old, made): (&Keys, Vec<T>),
    new: &Keys,
    make: impl Fn(&EpochKey) -> T,
) -> Vec<T> {
    let mut made: Vec<Option<T>> = made.into_iter().map(Some).collect();
    let of = |key: &EpochKey| {
        let known = old.epochs.iter().position(|known| known == key);
        known.and_then(|at| made[at].take()).unwrap_or_else(|| make(key))
    };
    new.epochs.iter().map(of).collect()
}

/// For how long after it is accepted no more an epoch's key is kept, so that calls that began under
/// it are answered: as long as a call lasts, twice, ms.
pub const EPOCH_KEPT_MS: u64 = 120_000;

/// The start of every label.
const LABEL: &[u8] = b"tailcut sealed 1 ";

/// Milliseconds of a tick, in which sessions say when they began, counted from the start of the
/// epoch: 32 bits of them last for 49 days, by which a key must have been rotated.
pub(super) const TICK_MS: u64 = 1;
