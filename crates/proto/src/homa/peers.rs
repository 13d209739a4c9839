//! What an endpoint remembers of each peer: its cutoffs, its round trips, its ids, and what is
//! under way with it.
//!
//! Invariant: the table is bounded, and a peer is forgotten only when nothing is under way with it
//! and it has been idle for longer than the network can hold a duplicate. Above half of the bound a
//! stranger is added only with a proof of its address, so that forged addresses cannot fill the
//! table.

use std::collections::HashMap;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use foldhash::fast::FixedState;
use siphasher::sip::SipHasher24;
use tailcut_wire::homa::{ACKS_MAX, Ack};

use super::config::{Config, Serving};
use super::cutoffs::Cutoffs;
use super::heap::Heap;
use super::ids::{ClientId, Numbering};
use super::seen::Seen;
use crate::address::AddressKey;
use crate::node::Time;
use crate::rtt::Rtt;

/// Peers by address.
#[derive(Debug)]
pub(super) struct Peers {
    index: Index,
    records: Vec<Peer>,
    proofs: SipHasher24,
    /// Found last, with its address; most packets come from the peer of the one before.
    last: Option<(SocketAddr, u32)>,
    /// Where the search for a peer to forget goes on.
    hand: usize,
    /// Records of peers that have been forgotten.
    vacant: Vec<u32>,
}

/// Peers by address, IPv4 apart: their keys are a word, so that the table of many fits a cache.
#[derive(Debug)]
struct Index {
    v4: HashMap<u64, u32, FixedState>,
    others: HashMap<AddressKey, u32, FixedState>,
}

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) is_trusted: bool,
    /// It knows neither grants nor priorities.
    pub(super) is_stripped: bool,
    /// What it has told of its priorities.
    pub(super) cutoffs: Cutoffs,
    /// When it was last told of ours.
    pub(super) advised_at: Option<Time>,
    /// Added to the version of our cutoffs that it is told: its proof.
    salt: u16,
    /// From a grant or a question to what answers it.
    pub(super) rtt: Rtt,
    /// From a request to its reply, service included.
    pub(super) reply_rtt: Rtt,
    /// When it was last heard of.
    pub(super) heard_at: Time,
    /// Calls to it.
    pub(super) calls: usize,
    /// Requests of it that the server holds, in any state, and their bytes.
    pub(super) requests: usize,
    pub(super) held_bytes: usize,
    pub(super) numbering: Numbering,
    pub(super) acks: Acks,
    /// Its messages that want grants, by what the policy ranks them by.
    pub(super) wanting: Heap,
    /// It gets no grant before.
    pub(super) grant_at: Time,
    sessions: Vec<Session>,
}

/// Calls that have ended and whose server has not been told.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// At most [`ACKS_HELD_MAX`].
    waiting: Vec<Ack>,
    /// Bytes of their replies, which the server keeps.
    reply_bytes: usize,
    /// They are about to be said in packets of their own.
    is_called: bool,
    /// A timer will look whether they still wait.
    is_timed: bool,
}

/// What is to be done about a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Nothing: a packet to the server or a timer will see to it.
    Waits,
    /// Set the timer.
    Later,
    /// Say all that wait.
    Now,
}

/// One session of a client's ids.
#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    /// Sequences that have run or were refused.
    pub(super) seen: Seen,
    /// A request of this session that was first sent after this has run only if `seen` says so.
    pub(super) known_since: Time,
    used_at: Time,
}

impl Peers {
    pub(super) fn new(secret: &[u8; 16], seed: u64) -> Self {
        let proofs = SipHasher24::new_with_key(&secret.map(|byte| byte ^ 0x36));
        Self {
            index: Index::new(seed),
            records: Vec::new(),
            proofs,
            last: None,
            hand: 0,
            vacant: Vec::new(),
        }
    }

    pub(super) fn at(&self, peer: u32) -> &Peer {
        &self.records[peer as usize]
    }

    pub(super) fn at_mut(&mut self, peer: u32) -> &mut Peer {
        &mut self.records[peer as usize]
    }

    pub(super) fn find(&mut self, address: SocketAddr) -> Option<u32> {
        if let Some((last, peer)) = self.last
            && last == address
        {
            return Some(peer);
        }
        let found = self.index.find(address)?;
        self.last = Some((address, found));
        Some(found)
    }

    /// The record of `address`, added if need be; `None` when the table is full of peers that may
    /// not be forgotten.
    pub(super) fn find_or_add(
        &mut self,
        now: Time,
        address: SocketAddr,
        config: &Config,
    ) -> Option<u32> {
        if let Some(found) = self.find(address) {
            return Some(found);
        }
        if self.vacant.is_empty() && self.records.len() >= config.peers_max {
            self.forget_idle(now, &config.serving);
        }
        let peer = self.stranger(now, address, config);
        let added = match self.vacant.pop() {
            Some(place) => {
                self.records[place as usize] = peer;
                place
            }
            None if self.records.len() < config.peers_max => {
                self.records.push(peer);
                self.records.len() as u32 - 1
            }
            None => return None,
        };
        self.index.insert(address, added);
        self.last = Some((address, added));
        Some(added)
    }

    /// Whether a stranger at `address`, who tells back `version`, may be added. May forget an idle
    /// peer to make room.
    pub(super) fn takes(
        &mut self,
        now: Time,
        address: SocketAddr,
        version: (u16, u16),
        config: &Config,
    ) -> bool {
        let limit = config.peers_max / 2;
        if self.index.len() >= limit {
            self.forget_idle(now, &config.serving);
        }
        self.index.len() < limit || self.is_trusted(address, &config.serving) || {
            let (told, ours) = version;
            told == salted(ours, self.salt(address))
        }
    }

    /// The version that a stranger at `address` is told for `version`.
    pub(super) fn version_for(&self, address: SocketAddr, version: u16) -> u16 {
        salted(version, self.salt(address))
    }

    fn stranger(&self, now: Time, address: SocketAddr, config: &Config) -> Peer {
        let is_trusted = self.is_trusted(address, &config.serving);
        Peer {
            address,
            is_trusted,
            is_stripped: false,
            cutoffs: config.assumed,
            advised_at: None,
            salt: if is_trusted { 0 } else { self.salt(address) },
            rtt: Rtt::default(),
            reply_rtt: Rtt::default(),
            heard_at: now,
            calls: 0,
            requests: 0,
            held_bytes: 0,
            numbering: Numbering::default(),
            acks: Acks::default(),
            wanting: Heap::default(),
            grant_at: 0,
            sessions: Vec::new(),
        }
    }

    fn is_trusted(&self, address: SocketAddr, serving: &Serving) -> bool {
        serving.trusted.iter().any(|prefix| prefix.contains(address.ip()))
    }

    fn salt(&self, address: SocketAddr) -> u16 {
        let mut hasher = self.proofs;
        match address.ip() {
            IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
            IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
        }
        hasher.write_u16(address.port());
        hasher.finish() as u16
    }

    /// Forgets one peer with whom nothing is under way and that has been idle for long, if a few
    /// steps find one.
    fn forget_idle(&mut self, now: Time, serving: &Serving) {
        for _ in 0..FORGET_STEPS.min(self.records.len()) {
            self.hand = (self.hand + 1) % self.records.len();
            let record = &mut self.records[self.hand];
            let is_idle = record.calls == 0 && record.requests == 0;
            if is_idle
                && now.saturating_sub(record.heard_at) > serving.session_idle_ns
                && record.address != NOBODY
            {
                self.index.remove(record.address);
                self.last = None;
                record.sessions = Vec::new();
                record.address = NOBODY;
                return self.vacant.push(self.hand as u32);
            }
        }
    }
}

impl Index {
    fn new(seed: u64) -> Self {
        let state = || FixedState::with_seed(seed);
        Self { v4: HashMap::with_hasher(state()), others: HashMap::with_hasher(state()) }
    }

    fn find(&self, address: SocketAddr) -> Option<u32> {
        match v4_key(address) {
            Some(key) => self.v4.get(&key).copied(),
            None => self.others.get(&AddressKey(address)).copied(),
        }
    }

    fn insert(&mut self, address: SocketAddr, peer: u32) {
        match v4_key(address) {
            Some(key) => self.v4.insert(key, peer),
            None => self.others.insert(AddressKey(address), peer),
        };
    }

    fn remove(&mut self, address: SocketAddr) {
        match v4_key(address) {
            Some(key) => self.v4.remove(&key),
            None => self.others.remove(&AddressKey(address)),
        };
    }

    fn len(&self) -> usize {
        self.v4.len() + self.others.len()
    }
}

fn v4_key(address: SocketAddr) -> Option<u64> {
    match address {
        SocketAddr::V4(v4) => Some(u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port())),
        SocketAddr::V6(_) => None,
    }
}

impl Peer {
    /// The version of our cutoffs that this peer is told; `version` is that of all.
    pub(super) fn version(&self, version: u16) -> u16 {
        salted(version, self.salt)
    }

    /// Whether `told` proves that the peer receives at its address: our cutoffs' version, or the
    /// one before.
    pub(super) fn is_proof(&self, told: u16, version: u16) -> bool {
        self.is_trusted
            || told == self.version(version)
            || told == self.version(version.wrapping_sub(1))
    }

    /// The session of `id`, added if need be; `None` when there are too many that may not be
    /// forgotten.
    pub(super) fn session(
        &mut self,
        now: Time,
        started_at: Time,
        id: ClientId,
        serving: &Serving,
    ) -> Option<&mut Session> {
        let wanted = id.session();
        if let Some(place) = self.sessions.iter().position(|session| session.id == wanted) {
            self.sessions[place].used_at = now;
            return self.sessions.get_mut(place);
        }
        // It may have been known before, and forgotten after it was idle for so long.
        let known_since = started_at.max(now.saturating_sub(serving.session_idle_ns));
        if self.sessions.len() < serving.sessions_per_client_max {
            self.sessions.push(Session {
                id: wanted,
                seen: Seen::default(),
                known_since,
                used_at: now,
            });
            return self.sessions.last_mut();
        }
        let idlest = self.sessions.iter_mut().min_by_key(|session| session.used_at)?;
        if now.saturating_sub(idlest.used_at) <= serving.session_idle_ns {
            return None;
        }
        idlest.id = wanted;
        idlest.known_since = known_since;
        idlest.used_at = now;
        idlest.seen.clear();
        Some(idlest)
    }

    /// Remembers that `id` runs or is refused.
    pub(super) fn see(&mut self, id: ClientId) {
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id.session()) {
            session.seen.insert(id.sequence());
        }
    }
}

impl Acks {
    /// Adds a call that has ended with a reply of so many bytes; tells what is to be done. One that
    /// is too many is left for the server to ask about.
    pub(super) fn push(&mut self, id: ClientId, server_port: u16, reply_len: usize) -> Telling {
        if self.waiting.len() < ACKS_HELD_MAX {
            self.waiting.push(Ack::new(id.0, server_port));
            self.reply_bytes += reply_len;
        }
        let is_much =
            self.waiting.len() == ACKS_HELD_MAX || self.reply_bytes > REPLY_BYTES_HELD_MAX;
        if is_much && !self.is_called {
            self.is_called = true;
            Telling::Now
        } else if !self.is_timed {
            self.is_timed = true;
            Telling::Later
        } else {
            Telling::Waits
        }
    }

    /// The timer has come; tells whether any are to be said.
    pub(super) fn expire(&mut self) -> bool {
        self.is_timed = false;
        let is_due = !self.waiting.is_empty() && !self.is_called;
        self.is_called |= is_due;
        is_due
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes one, to go with a DATA packet or to head an ACK packet.
    pub(super) fn pop(&mut self) -> Option<Ack> {
        let ack = self.waiting.pop();
        if self.waiting.is_empty() {
            self.reply_bytes = 0;
            self.is_called = false;
        }
        ack
    }

    /// Takes as many as go with `named`, which an ACK packet has in its header.
    pub(super) fn take(&mut self, named: ClientId) -> ([Ack; ACKS_MAX], usize) {
        self.waiting.retain(|ack| ack.client_id.get() != named.0);
        let mut acks = [Ack::default(); ACKS_MAX];
        let count = self.waiting.len().min(ACKS_MAX);
        acks[..count].fill_with(|| self.pop().unwrap_or_default());
        (acks, count)
    }
}

/// The version that a peer with `salt` is told for `version`; never 0, which stands for none.
fn salted(version: u16, salt: u16) -> u16 {
    version.wrapping_add(salt).max(1)
}

/// Calls that have ended and that a client keeps to itself at most: those of several trains of
/// replies, so that under load each goes with a request and none needs a packet of its own.
const ACKS_HELD_MAX: usize = 4 * crate::node::TRAIN_DATAGRAMS_MAX;

/// Bytes of replies that a server keeps for them at most.
const REPLY_BYTES_HELD_MAX: usize = 100_000;

/// Peers looked at for one that may be forgotten, each time one is needed.
const FORGET_STEPS: usize = 32;

/// The address of a record that is vacant.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: u8) -> SocketAddr {
        ([192, 0, 2, host], 1).into()
    }

    #[test]
    fn strangers_fill_half_of_the_table_and_proven_ones_the_rest() {
        let config = Config { peers_max: 4, ..Config::default() };
        let mut peers = Peers::new(&[1; 16], 1);
        for host in 0..2 {
            assert!(peers.takes(0, address(host), (0, 1), &config));
            peers.find_or_add(0, address(host), &config).unwrap();
        }
        assert!(!peers.takes(0, address(2), (0, 1), &config));
        let proof = salted(1, peers.salt(address(2)));
        assert!(peers.takes(0, address(2), (proof, 1), &config));
        assert!(
            peers.takes(0, ([10, 0, 0, 1], 1).into(), (0, 1), &config),
            "its network is trusted"
        );
    }

    #[test]
    fn who_is_idle_for_long_makes_room() {
        let config = Config { peers_max: 2, ..Config::default() };
        let mut peers = Peers::new(&[1; 16], 1);
        (0..2).for_each(|host| assert!(peers.find_or_add(0, address(host), &config).is_some()));
        assert_eq!(peers.find_or_add(1_000_000_000, address(2), &config), None);
        peers.at_mut(0).calls = 1;
        assert_eq!(peers.find_or_add(10_000_000_000, address(2), &config), Some(1));
        assert_eq!((peers.find(address(0)), peers.find(address(1))), (Some(0), None));
    }

    #[test]
    fn acks_wait_for_a_packet_until_they_are_many_or_late() {
        let mut acks = Acks::default();
        let told: Vec<Telling> = (1..=129).map(|id| acks.push(ClientId(2 * id), 9, 10)).collect();
        assert_eq!((told[0], told[127]), (Telling::Later, Telling::Now));
        assert!(told[1..127].iter().chain(&told[128..]).all(|&telling| telling == Telling::Waits));
        assert!(!acks.expire(), "they are about to be said");
        assert_eq!(acks.pop().unwrap(), Ack::new(256, 9));
        let (taken, count) = acks.take(ClientId(252));
        assert_eq!(
            (taken[..count].iter().map(|ack| ack.client_id.get()).collect::<Vec<_>>()),
            [254, 250, 248, 246, 244]
        );
        assert_eq!(std::iter::from_fn(|| acks.pop()).count(), 121);
        assert_eq!(acks.push(ClientId(2), 9, 10), Telling::Later);
        assert!(acks.expire() && !acks.expire());
    }

    #[test]
    fn acks_of_long_replies_do_not_wait() {
        let mut acks = Acks::default();
        let told: Vec<Telling> = (1..=3).map(|id| acks.push(ClientId(2 * id), 9, 60_000)).collect();
        assert_eq!(told, [Telling::Later, Telling::Now, Telling::Waits]);
    }
}
