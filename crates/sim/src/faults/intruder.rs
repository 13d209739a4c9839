//! A stranger between sealed nodes, who has heard everything and holds no key.
//!
//! | [`Attack`] | what is sent |
//! |---|---|
//! | `Forged` | a packet that was recorded, changed: bits, length, version, tags, trailer, id, the client's number; or nothing but noise |
//! | `Replayed` | a packet that was recorded, as it was |
//!
//! Each goes to the host that it has reached before or to another one, from the address that it had
//! or from another host's or a stranger's, at any later time: after restarts, and under other keys.
//! All types of packets take turns. What strangers send to nodes without seals is sent too, half of
//! it in the form of sealed packets.
//!
//! | a datagram | must |
//! |---|---|
//! | that is changed, or open | change nothing at a node and be answered by nothing, but that a key is not there |
//! | an answer that a key is not there, by which its client has gone | end and move no call |
//! | that is for another node, another start of it, or has been read before where times must rise | the same |
//! | else, as it was: to whom it was sent | break no other promise |
//!
//! Over Homa each packet is taken once, so that less may be done ([`super::homa_seals`]).
//!
//! A router reads no payload: a request of which nothing else is changed is placed, and dropped by
//! its server.

use std::net::SocketAddr;

use tailcut_proto::endpoint::{Endpoint, Metrics};
use tailcut_proto::node::{Node, Time};
use tailcut_proto::r2p2::{self, Holdings};
use tailcut_proto::router::{RouterMetrics, ServerStatus};
use tailcut_proto::sealed::SealMetrics;
use tailcut_wire::r2p2::sealed::{
    COALESCED_VERSION, HOP_VERSION, SEALED_VERSION, TRAILER_LEN, VERSION_AT,
};
use tailcut_wire::r2p2::{EXTENDED_LEN, EXTENSION_VERSION, ROUTED_LEN};

use super::Invariant;
use super::homa_seals::{self, noisy};
use super::host::Station;
use super::hostile::{self, Forged};
use super::plan::{Attack, FaultKind, Host, Plan, Transport};
use super::recorder::{
    Expected, PacketKind, RPC_ID_AT, Recorded, Recorder, TYPE_AT, is_answer, mixed,
};
use super::run::Run;

/// State of a node that tells whether it has acted on a datagram.
#[derive(Clone, Debug, PartialEq)]
struct State {
    /// An endpoint's, without those of its seal.
    endpoint: Option<(Metrics, Holdings)>,
    /// A router's, without those of its seal.
    router: Option<(RouterMetrics, Vec<ServerStatus>, usize, usize)>,
    /// Calls of a client for which a key was not there, which it then leaves alone.
    keys_missed: Option<u64>,
    /// Time at which it wants to be called.
    due: Option<Time>,
    /// Datagrams that have left all hosts, but for answers that a key is not there.
    left: u64,
}

impl State {
    /// But for what an endpoint has counted.
    fn uncounted(&self) -> Self {
        let none = Metrics::R2p2(r2p2::Metrics::default());
        let endpoint = self.endpoint.as_ref().map(|&(_, holdings)| (none, holdings));
        Self { endpoint, ..self.clone() }
    }
}

/// Datagram `count` of a stranger, and what it may do.
pub(super) fn intrude(
    plan: &Plan,
    (attack, count): (Attack, u64),
    (recorder, life): (&Recorder, impl Fn(Host) -> u32),
) -> Option<(Forged, Expected)> {
    let word = mixed(plan.seed ^ count << 1 ^ u64::from(attack == Attack::Forged));
    let recorded = recorder.pick(count, word)?;
    let hosts: Vec<Host> = plan.hosts().collect();
    let any_host = |word: u64| hosts[word as usize % hosts.len()];
    let to = if word >> 40 & 3 > 0 { recorded.to } else { any_host(word >> 42) };
    let from = match word >> 20 & 3 {
        0 | 1 => recorded.from,
        2 => any_host(word >> 22).address(),
        _ => SocketAddr::from(([10, 9, (word >> 24) as u8, 7], 1024 + (word >> 32) as u16 % 64)),
    };
    // Nobody has his own address as the source of what comes to him.
    let from = if from == to.address() { recorded.from } else { from };
    let mut bytes = recorded.bytes.clone();
    if attack == Attack::Replayed {
        let expected = expected_of(plan, recorded, (to, life(to)));
        return Some((Forged { to, from, bytes }, expected));
    }
    let other = recorder.pick(mixed(word), mixed(!word));
    match plan.transport {
        Transport::R2p2 => change(&mut bytes, word, other),
        Transport::Homa(_) => homa_seals::change(&mut bytes, word, other),
    }
    // With another's trailer it may be that one.
    if bytes == recorded.bytes || other.is_some_and(|other| bytes == other.bytes) {
        return None;
    }
    let is_router = matches!(to, Host::Router | Host::Standby);
    let expected = match is_router && is_fit_for_hop(&recorded.bytes, &bytes) {
        true => Expected::Anything,
        false => Expected::Ignored,
    };
    Some((Forged { to, from, bytes }, expected))
}

/// Permitted effect of a recorded packet that is sent to this host in this life of it.
fn expected_of(plan: &Plan, recorded: &Recorded, (to, life): (Host, u32)) -> Expected {
    let is_home = (recorded.to, recorded.life) == (to, life);
    let number = |host| match (host, plan.seal) {
        (Host::Client(client), Some(seal)) => Some(seal.number(client)),
        _ => None,
    };
    let is_client = number(to).is_some();
    let is_owner = recorded.owner.is_none_or(|owner| number(to) == Some(owner));
    if is_answer(plan.transport, &recorded.bytes) {
        return match (is_client && is_owner, recorded.is_unread) {
            (false, _) => Expected::Ignored,
            (true, false) => Expected::Counted,
            (true, true) => Expected::Anything,
        };
    }
    if let Transport::Homa(_) = plan.transport {
        return homa_seals::expected_of(recorded, is_home, number(to));
    }
    match (PacketKind::of(plan.transport, &recorded.bytes), recorded.bytes[VERSION_AT]) {
        // It may have reached somebody else, from whose address a stranger has sent the client's
        // request.
        (Some(kind), SEALED_VERSION | HOP_VERSION | COALESCED_VERSION) if kind.is_for_client() => {
            if is_client && is_owner {
                Expected::Anything
            } else {
                Expected::Ignored
            }
        }
        (_, SEALED_VERSION | COALESCED_VERSION) if is_client => Expected::Ignored,
        (_, SEALED_VERSION) if is_routed(&recorded.bytes) && !is_home => Expected::Ignored,
        (_, SEALED_VERSION | COALESCED_VERSION) => Expected::Anything,
        // It is answered by a name, and nothing is remembered of it.
        (Some(PacketKind::NameProbe), HOP_VERSION) if !is_client => Expected::Anything,
        // What a server has told whoever asked under the alias of a router is true, and may be news
        // there.
        (Some(PacketKind::HopAck), HOP_VERSION) if !is_client && !is_home => Expected::Anything,
        (_, HOP_VERSION) if recorded.is_unread && is_home => Expected::Anything,
        _ => Expected::Ignored,
    }
}

/// True if a router has written into the route block.
fn is_routed(bytes: &[u8]) -> bool {
    usize::from(bytes[1]) == ROUTED_LEN && bytes.get(ROUTED_AT).is_some_and(|&routed| routed != 0)
}

/// True if the bytes that are under a hop tag are those that it was made for: all but the payload,
/// and the tag of that, of a client's packet.
fn is_fit_for_hop(before: &[u8], after: &[u8]) -> bool {
    let kind = PacketKind::of(Transport::R2p2, before);
    let header_len = usize::from(before[1]);
    let covered = |bytes: &[u8]| {
        let rest = bytes.len().checked_sub(REST_LEN)?;
        Some((bytes.get(..header_len)?.to_vec(), bytes.get(rest..)?.to_vec()))
    };
    matches!(kind, Some(PacketKind::Request | PacketKind::Cancel))
        && before[VERSION_AT] == SEALED_VERSION
        && covered(before) == covered(after)
}

/// Changes a packet in one of many ways.
fn change(bytes: &mut Vec<u8>, word: u64, other: Option<&Recorded>) {
    let (len, noise) = (bytes.len(), mixed(word ^ 1));
    let mut flip = |at: usize| bytes[at % len] ^= 1 << (noise & 7);
    let place = (noise >> 8) as usize;
    match word >> 48 & 15 {
        0..4 => flip(place),
        4 => flip(place % EXTENDED_LEN),
        5 => flip(len - 1 - place % TRAILER_LEN),
        6 => bytes.truncate(len - 1 - place % len),
        7 => bytes.extend_from_slice(&noise.to_be_bytes()[..1 + place % 8]),
        8 => guess(bytes, noise),
        9 => bytes[VERSION_AT] = [1, 2, 3, noise as u8][place % 4],
        10 => {
            // An open packet.
            bytes[VERSION_AT] = EXTENSION_VERSION;
            bytes.truncate(len - TRAILER_LEN);
        }
        11 => {
            if let Some(other) = other {
                let from = other.bytes.len() - TRAILER_LEN;
                bytes[len - TRAILER_LEN..].copy_from_slice(&other.bytes[from..]);
            }
        }
        12 => bytes[RPC_ID_AT + 5 + place % 3] ^= noise as u8 | 1,
        13 => bytes[len - 16 + place % 3] ^= noise as u8 | 1,
        14 => bytes[TYPE_AT] ^= (noise as u8 | 1) << 4,
        _ => noisy(&mut bytes[..], noise),
    }
}

/// Tags are guessed.
fn guess(bytes: &mut [u8], noise: u64) {
    let at = bytes.len() - TRAILER_LEN;
    noisy(&mut bytes[at..at + 16], noise);
    let at = bytes.len() - 8;
    noisy(&mut bytes[at..], !noise);
}

/// Puts what is meant for nodes without seals into the form of a sealed packet, every other time.
fn dressed(transport: Transport, mut forged: Forged, count: u64) -> Forged {
    if let (Transport::Homa(_), false) = (transport, count.is_multiple_of(2)) {
        homa_seals::dress(&mut forged.bytes, mixed(count));
        return forged;
    }
    if !count.is_multiple_of(2) && forged.bytes.len() > VERSION_AT {
        forged.bytes[VERSION_AT] =
            if count.is_multiple_of(3) { HOP_VERSION } else { SEALED_VERSION };
        let at = forged.bytes.len();
        forged.bytes.resize(at + TRAILER_LEN, 0);
        noisy(&mut forged.bytes[at..], mixed(count));
        // The number of the first key.
        forged.bytes[at + 19] = 0;
    }
    forged
}

impl Run<'_> {
    /// A datagram of a stranger arrives at a node whose packets are sealed.
    pub(super) fn intrude(&mut self, fault: usize, count: u64) {
        let FaultKind::Hostile { attack, .. } = self.plan.faults[fault].kind else { return };
        let Some((forged, expected)) = self.intrusion(attack, count) else { return };
        let Forged { to, from, mut bytes } = forged;
        if self.is_down(to) || self.is_paused(to) {
            return;
        }
        let is_replay = matches!(attack, Attack::Replayed | Attack::StaleFeedback);
        if let Some(kind) = PacketKind::of(self.plan.transport, &bytes) {
            let counts = match is_replay {
                true => &mut self.coverage.replayed,
                false => &mut self.coverage.forged,
            };
            counts[kind as usize] += 1;
        }
        let place = self.plan.place(to);
        // What is due anyway is no answer.
        self.network.flush(place);
        let local = self.network.local(place);
        let before = self.state(place);
        self.set_intruding(Some(expected));
        self.network.node_mut(place).handle_datagram(local, from.into(), &mut bytes.clone());
        self.set_intruding(None);
        let now = self.network.now();
        self.network.wake_at(place, now, NO_ALARM);
        self.network.flush(place);
        let after = self.state(place);
        let is_kept = match expected {
            Expected::Anything => true,
            Expected::Counted => before.uncounted() == after.uncounted(),
            Expected::Ignored => before == after,
        };
        if !is_kept {
            let change = difference(&format!("{before:?}"), &format!("{after:?}"));
            let invariant =
                if is_replay { Invariant::NothingReplayed } else { Invariant::NothingForged };
            let kind = PacketKind::of(self.plan.transport, &bytes);
            bytes.truncate(SHOWN_MAX);
            self.watch.borrow_mut().violate(invariant, || {
                format!("{to} acts on {kind:?} from {from}: {change}; {bytes:02x?}")
            });
        }
    }

    fn set_intruding(&mut self, expected: Option<Expected>) {
        if let Some(sealed) = &mut self.watch.borrow_mut().sealed {
            sealed.intruding = expected;
        }
    }

    fn intrusion(&self, attack: Attack, count: u64) -> Option<(Forged, Expected)> {
        let watch = self.watch.borrow();
        match attack {
            Attack::Forged | Attack::Replayed => {
                let life = |host| watch.life(host);
                intrude(
                    self.plan,
                    (attack, count),
                    (watch.sealed.as_ref()?.recorder.as_ref()?, life),
                )
            }
            Attack::StaleFeedback => {
                let forged = hostile::forge(self.plan, attack, count, &watch)?;
                Some((forged, Expected::Ignored))
            }
            _ => {
                let forged = hostile::forge(self.plan, attack, count, &watch)?;
                Some((dressed(self.plan.transport, forged, count), Expected::Ignored))
            }
        }
    }

    fn state(&self, place: usize) -> State {
        let station: &Station = self.network.node(place);
        let endpoint =
            station.node.endpoint().map(|endpoint| (own_metrics(endpoint), endpoint.holdings()));
        let router = station.node.router().map(|router| {
            let mut metrics = router.metrics();
            (metrics.seal, metrics.received) = (SealMetrics::default(), 0);
            (metrics, router.servers().collect(), router.queue_len(), router.table_len())
        });
        let left = self.watch.borrow().left;
        let keys_missed = station.node.endpoint().map(|endpoint| endpoint.lost_keys().received);
        State { endpoint, router, keys_missed, due: station.node.poll_timeout(), left }
    }
}

/// The parts of a text that are others in another one.
fn difference(before: &str, after: &str) -> String {
    let pairs = before.split(", ").zip(after.split(", "));
    let others = pairs.filter(|(before, after)| before != after);
    others.map(|(before, after)| format!("{before} -> {after}")).collect::<Vec<_>>().join(", ")
}

/// Counters of an endpoint, except those of its seal and of all datagrams.
fn own_metrics(endpoint: &Endpoint) -> Metrics {
    match endpoint.metrics() {
        Metrics::R2p2(mut metrics) => {
            // What leaves is counted by the watch.
            metrics.seal = SealMetrics::default();
            (metrics.common.datagrams_in, metrics.common.datagrams_out) = (0, 0);
            Metrics::R2p2(metrics)
        }
        Metrics::Homa(mut metrics) => {
            metrics.seal = SealMetrics::default();
            (metrics.common.datagrams_in, metrics.common.datagrams_out) = (0, 0);
            Metrics::Homa(metrics)
        }
    }
}

/// The word of an alarm that no handler has set.
const NO_ALARM: u64 = u64::MAX;

/// Bytes of a datagram that are shown.
const SHOWN_MAX: usize = 110;

const ROUTED_AT: usize = 66;
/// Bytes of a trailer that a hop tag covers, with the tag itself.
const REST_LEN: usize = 16;
