//! Seals what clients and servers send to the program, by SipHash of the crate siphasher alone.

use std::cell::Cell;
use std::hash::Hasher;
use std::net::SocketAddr;
use std::sync::LazyLock;

use siphasher::sip::SipHasher24;
use tailcut_net::clock::Clock;
use tailcut_proto::policy::WorkerId;
use tailcut_proto::router::SharedPlaces;
use tailcut_proto::sealed::{
    ClientEpoch, HopKey, PlaneEpoch, PlaneSeal, PlaneSession, TRAILER_LEN,
};

use super::bench::{Bench, client, placed_payload};

/// The keys of a client, of a router and of its servers, and what they have sent.
pub(super) struct Seal {
    /// The sequence of the last request.
    sequence: Cell<u32>,
    /// The time of the last report.
    time: Cell<u64>,
}

/// Fields that a request says of itself.
#[derive(Clone, Copy)]
pub(super) struct Said {
    pub(super) session: u64,
    pub(super) sequence: u32,
    /// Below it calls have ended.
    pub(super) floor: u32,
    /// Time since it was sent; ms.
    pub(super) ago_ms: i64,
    pub(super) deadline_ms: u32,
    pub(super) receiver: u64,
    pub(super) epoch: u8,
}

impl Seal {
    pub(super) fn new() -> Self {
        Self { sequence: Cell::new(100), time: Cell::new(1 << 40) }
    }

    /// Tells the program of a bench all of it.
    pub(super) fn tell(&self, bench: &Bench, servers: u16) {
        bench.places.set_seal(&plane(), 10_000_000);
        for slot in 0..servers {
            bench.places.set_names(WorkerId(slot.into()), names(slot));
        }
        self.begin(bench, client(bench.listen), SESSION);
    }

    /// A session begins from an address.
    pub(super) fn begin(&self, bench: &Bench, from: SocketAddr, session: u64) {
        let sender = ClientEpoch::new(CLIENT, EPOCH);
        let hop_key = HopKey::new(HOP_KEY);
        let began_ms = FROM_MS + BEGAN;
        bench
            .places
            .know_session(from, &PlaneSession { sender, session, began_ms, floor: 0, hop_key });
    }

    /// Fields of the next request.
    pub(super) fn said(&self) -> Said {
        self.sequence.set(self.sequence.get() + 1);
        let (session, sequence) = (SESSION, self.sequence.get());
        let (receiver, epoch, deadline_ms) = (NAME, EPOCH, 1_000);
        Said { session, sequence, floor: 0, ago_ms: 0, deadline_ms, receiver, epoch }
    }

    /// The next request of the client.
    pub(super) fn request(&self, open: &[u8]) -> Vec<u8> {
        sealed(open, self.said())
    }

    /// A request as its server gets it.
    pub(super) fn placed(&self, slot: u16, request: &[u8], placement: u32) -> Vec<u8> {
        let mut bytes = placed_payload(request, placement);
        tag(&mut bytes, &ROUTER_KEY, names(slot));
        bytes
    }

    /// The next report of a server.
    pub(super) fn report(&self, slot: u16, open: &[u8]) -> Vec<u8> {
        self.time.set(self.time.get() + 1);
        let (name, alias) = names(slot);
        // Of a thread of its.
        hop_sealed(open, (name | 3, alias), self.time.get())
    }
}

/// A client's request.
pub(super) fn sealed(open: &[u8], said: Said) -> Vec<u8> {
    let mut bytes = open.to_vec();
    let rpc_id = said.session << 24 | u64::from(said.sequence);
    let since_ms = now_ms().saturating_add_signed(-said.ago_ms) - FROM_MS - BEGAN;
    bytes[8..16].copy_from_slice(&rpc_id.to_be_bytes());
    bytes[21] = 2;
    bytes[24..28].copy_from_slice(&(since_ms as u32 * 1_000).to_be_bytes());
    bytes[28..32].copy_from_slice(&(said.deadline_ms * 1_000).to_be_bytes());
    bytes[40..44].copy_from_slice(&said.floor.to_be_bytes());
    // Stands for the tag of the payload.
    bytes.extend_from_slice(&[0xa5; 16]);
    bytes.extend_from_slice(&(CLIENT << 8 | u32::from(said.epoch)).to_be_bytes());
    bytes.extend_from_slice(&(BEGAN as u32).to_be_bytes());
    bytes.extend_from_slice(&[0; 8]);
    tag(&mut bytes, &HOP_KEY, (said.receiver, 0));
    bytes
}

/// Packet of a server to the router, of a sender and a receiver.
pub(super) fn hop_sealed(open: &[u8], (sender, receiver): (u64, u64), time: u64) -> Vec<u8> {
    let mut bytes = open.to_vec();
    bytes[21] = 3;
    for word in [sender, receiver] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    let high = (time >> 32) as u32;
    bytes.extend_from_slice(&(high << 8 | u32::from(EPOCH)).to_be_bytes());
    bytes.extend_from_slice(&(time as u32).to_be_bytes());
    let mut hasher = SipHasher24::new_with_key(&ROUTER_KEY);
    hasher.write(&bytes);
    bytes.extend_from_slice(&hasher.finish().to_be_bytes());
    bytes
}

/// Writes the hop tag of a request, for a receiver and of a sender.
fn tag(bytes: &mut [u8], key: &[u8; 16], (receiver, sender): (u64, u64)) {
    let len = bytes.len();
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(&bytes[..72]);
    hasher.write(&bytes[len - TRAILER_LEN..len - 8]);
    hasher.write(&receiver.to_be_bytes());
    hasher.write(&sender.to_be_bytes());
    let tag = hasher.finish().to_be_bytes();
    bytes[len - 8..].copy_from_slice(&tag);
}

/// As the router tells it.
pub(super) fn plane() -> PlaneSeal {
    let epoch = PlaneEpoch { number: EPOCH, from_ms: FROM_MS, router_key: HopKey::new(ROUTER_KEY) };
    PlaneSeal {
        name: NAME,
        wall_zero_ns: *WALL_ZERO_MS * 1_000_000,
        tolerance_ms: 100,
        lifetime_ms: 60_000,
        secret: 0x0123_4567_89ab_cdef,
        epochs: vec![epoch],
    }
}

/// The name of the server of a slot, and the router's alias there.
pub(super) fn names(slot: u16) -> (u64, u64) {
    (SERVER_NAME + (u64::from(slot) << 8), ALIAS + u64::from(slot))
}

/// Unix time by the clock that the program is told, ms.
fn now_ms() -> u64 {
    *WALL_ZERO_MS + Clock.now() / 1_000_000
}

pub(super) const SESSION: u64 = 0x12_3456_789a;
pub(super) const NAME: u64 = 0x1111_2222_3333_4400;
pub(super) const CLIENT: u32 = 17;
pub(super) const EPOCH: u8 = 7;
const SERVER_NAME: u64 = 0x5555_6666_7777_8800;
const ALIAS: u64 = 0x9999_aaaa_bbbb_cccc;
const HOP_KEY: [u8; 16] = *b"of hops of 17...";
const ROUTER_KEY: [u8; 16] = *b"of routers here.";
const STARTED_MS: u64 = 1_764_086_400_000;
/// Unix time at 0 of the clock: a run begins at the same time of the day.
static WALL_ZERO_MS: LazyLock<u64> = LazyLock::new(|| STARTED_MS - Clock.now() / 1_000_000);
/// Time at which the epoch begins.
const FROM_MS: u64 = STARTED_MS - 100_000;
/// Time at which the session began, ms after that; packets say µs since then in 32 bits.
const BEGAN: u64 = 90_000;
