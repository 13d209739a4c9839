//! State of a router's seal that the program is given, and the ids that both have taken.
//!
//! | the slot of an id has | then |
//! |---|---|
//! | nothing, or an id that has expired | who comes takes it |
//! | the id, with a server | the program has placed it there; user space sends it there again |
//! | the id, without | user space has it |
//! | another id | the program passes the packet on; user space has an exact table, and makes the slot last as long |
//!
//! Invariant: an id that either has taken has a slot, in which the program takes nothing, for as
//! long as its packets can come.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use tailcut_proto::node::Time;
use tailcut_proto::sealed::{CLIENT_MAX, HopKey, PlaneEpoch, PlaneSeal, PlaneSession};

use super::layout::{EPOCHS_LEN, IDS_LEN, SERVERS_MAX, epoch, router, server};
use super::{XdpPlaces, ip_bytes, port_word};

impl XdpPlaces {
    pub(super) fn write_seal(&self, seal: &PlaneSeal, transit_ns: u64) {
        let long = |offset, value| self.memory.long(offset).store(value, Ordering::Relaxed);
        let secret = self.memory.long(router::ID_SECRET);
        // What an earlier router has taken is found by its own.
        let _ = secret.compare_exchange(0, seal.secret, Ordering::Relaxed, Ordering::Relaxed);
        long(router::LIFETIME_MS, seal.lifetime_ms);
        long(router::TRANSIT_NS, transit_ns);
        long(router::WALL_ZERO_NS, seal.wall_zero_ns);
        long(router::NAME, seal.name.to_be());
        let tolerance_ms = seal.tolerance_ms.try_into().unwrap_or(u32::MAX);
        self.memory.word(router::TOLERANCE_MS).store(tolerance_ms, Ordering::Relaxed);
        for at in 0..EPOCHS_LEN {
            let of_place = |of: &&PlaneEpoch| usize::from(of.number) % EPOCHS_LEN == at;
            self.write_epoch(at, seal.epochs.iter().rev().find(of_place));
        }
        self.memory.word(router::IS_SEALED).store(1, Ordering::Release);
    }

    /// Changes the place of an epoch, where that has another one.
    fn write_epoch(&self, at: usize, of: Option<&PlaneEpoch>) {
        let offset = |field| router::EPOCHS + at * epoch::BYTES + field;
        let is_used = self.memory.word(offset(epoch::IS_USED));
        let number = self.memory.word(offset(epoch::NUMBER));
        let words = of.map(|of| key_words(&of.router_key));
        let longs = of.zip(words).map(|(of, [first, second])| {
            [
                (epoch::ROUTER_KEY, first),
                (epoch::ROUTER_KEY + 8, second),
                (epoch::FROM_MS, of.from_ms),
            ]
        });
        let holds = |&(field, value): &(usize, u64)| {
            self.memory.long(offset(field)).load(Ordering::Relaxed) == value
        };
        let is_there = of.is_some_and(|of| {
            is_used.load(Ordering::Relaxed) != 0
                && number.load(Ordering::Relaxed) == u32::from(of.number)
        });
        if is_there && longs.iter().flatten().all(holds) {
            return;
        }
        is_used.store(0, Ordering::SeqCst);
        let (Some(of), Some(longs)) = (of, longs) else {
            for field in [epoch::ROUTER_KEY, epoch::ROUTER_KEY + 8] {
                self.memory.long(offset(field)).store(0, Ordering::Relaxed);
            }
            return;
        };
        number.store(of.number.into(), Ordering::Relaxed);
        for (field, value) in longs {
            self.memory.long(offset(field)).store(value, Ordering::Relaxed);
        }
        is_used.store(1, Ordering::Release);
    }

    pub(super) fn write_names(&self, entry: usize, (name, alias): (u64, u64)) {
        let (name, alias) = (name.to_be(), alias.to_be());
        let field = |field| self.long(entry, field);
        let known = [server::NAME, server::ALIAS].map(|at| field(at).load(Ordering::Relaxed));
        if known == [name, alias] {
            return;
        }
        field(server::NAME).store(0, Ordering::SeqCst);
        // The times of another begin anew.
        for (at, value) in [(server::ALIAS, alias), (server::HEARD, 0), (server::PASSED, 0)] {
            field(at).store(value, Ordering::Relaxed);
        }
        field(server::NAME).store(name, Ordering::Release);
    }

    /// Writes a session to the map; where that is full the session that was used least is evicted.
    pub(super) fn write_session(&self, client: SocketAddr, of: &PlaneSession) {
        let [first, second] = key_words(&of.hop_key);
        let key = [u64::from(of.sender.bits()).to_ne_bytes(), of.session.to_ne_bytes()].concat();
        let numbers = [first, second, of.began_ms].map(u64::to_ne_bytes).concat();
        let ends = [port_word(client), of.floor].map(u32::to_ne_bytes).concat();
        let value = [&numbers[..], &ip_bytes(client), &ends].concat();
        if let Err(error) = self.object.insert(SESSIONS, &key, &value) {
            tracing::debug!(%error, "a session is placed by user space");
        }
    }

    /// Takes the slot of an id; the entry of the server on which the program has placed it.
    pub(super) fn take_slot(
        &self,
        now: Time,
        (client, rpc_id): (u32, u64),
        until: Time,
    ) -> Option<usize> {
        let secret = self.memory.long(router::ID_SECRET).load(Ordering::Relaxed);
        let hash = id_hash(secret, rpc_id, client & CLIENT_MAX);
        let index = hash as usize % IDS_LEN;
        let slot = self.memory.long(router::IDS + 8 * index);
        let (now, until) = (now >> ID_UNIT, (until >> ID_UNIT) + 2);
        let expires_in = until.saturating_sub(now).min(ID_TIME_MAX - 1);
        let mark = |of: u64, server: u64, expires_in: u64| {
            of & !0xffff_ffff | ((now + expires_in) & ID_TIME_MASK) << 6 | server
        };
        let left = |slot: u64| ((slot >> 6) & ID_TIME_MASK).wrapping_sub(now) & ID_TIME_MASK;
        let is_taken = |slot: u64| slot != 0 && left(slot) < ID_TIME_MAX;
        let taken = |slot| match is_taken(slot) {
            true => Some(mark(slot, slot & USER, left(slot).max(expires_in))),
            false => Some(mark(hash, USER, expires_in)),
        };
        let before = slot.fetch_update(Ordering::AcqRel, Ordering::Relaxed, taken);
        let before = before.unwrap_or_else(|slot| slot);
        let is_same = is_taken(before) && before >> 32 == hash >> 32;
        let entry = (before & USER) as usize;
        (is_same && entry < SERVERS_MAX).then_some(entry)
    }
}

/// A number for an id of a client, as `id_hash` in `ebpf/router.bpf.c`.
fn id_hash(secret: u64, rpc_id: u64, client: u32) -> u64 {
    let z = rpc_id ^ secret;
    let z = (z ^ z >> 30)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        .wrapping_add(u64::from(client).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn key_words(key: &HopKey) -> [u64; 2] {
    let word = |at: usize| {
        let bytes = key.bytes()[8 * at..].first_chunk().expect("a key has two words");
        u64::from_le_bytes(*bytes)
    };
    [word(0), word(1)]
}

/// The map of sessions.
pub(super) const SESSIONS: &str = "sessions";
/// Unit of the times in slots: 2^24 ns.
const ID_UNIT: u32 = 24;
/// Bits of such a time.
const ID_TIME_MASK: u64 = (1 << 26) - 1;
/// Bound on a time ahead: one that is further ahead has passed, since times wrap.
const ID_TIME_MAX: u64 = 1 << 17;
/// In the place of a server: user space has the id.
const USER: u64 = 63;
