//! Identification of nodes of a group among each other: by names that are under every hop tag, and
//! never by an address alone, which may be forged.
//!
//! A server or router draws its name at its start. A router draws one more for each server, by
//! which that server is to name the router: its alias there.
//!
//! | a router and a server | packet | sender | receiver |
//! |---|---|---|---|
//! | do not know each other | PROBE | a new alias | 0 |
//! | | ACK | the server's name | that alias |
//! | the router knows the server | PROBE, CLAIM, requests | the alias | the server's name |
//! | the server has been shown that | FEEDBACK, CLAIMED, ACK | the server's name | the alias |
//! | three probes stay unanswered | PROBE | a new alias | 0 |
//!
//! | a client and its target | packet | then |
//! |---|---|---|
//! | the client knows no name | REQUEST for 0 | not run; an ACK tells the name |
//! | the client knows it | REQUEST for that name | taken by that node alone |
//! | the client has only heard a server there, which has answered a call through a router | packet 0 for 0 | the same |
//! | it is sent again, and nothing has been heard of its target for 20 ms | REQUEST for 0 | the same, or what the call has come to |
//! | nothing has been heard of its target for 400 ms | REQUEST for 0 | the same: by the name of who was there before, it would have to be taken for run where that has gone |
//!
//! Invariant: nothing that was recorded makes anybody take a name for that of an address: an ACK
//! that tells one answers what was asked just before, by an alias or an id.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use tailcut_wire::r2p2::MessageType;
use tailcut_wire::r2p2::sealed::Trailer;

use super::names::{Names, OwnName, name_of};
use super::packet::hop_names;
use super::{Cause, Peers};
use crate::address::AddressKey;
use crate::call::numbering::Numbers;
use crate::node::Time;
use tailcut_placement::keyed::KeyedState;

/// Routers, as a server knows them, or a router that is a server to others.
#[derive(Debug)]
pub(super) struct Routers {
    /// The time of the latest packet under each alias.
    latest: HashMap<u64, u64, KeyedState>,
    /// Aliases in the order in which they were first seen.
    order: VecDeque<u64>,
    /// The last two aliases of those at an address, the latest first.
    by_address: Peers<[u64; 2]>,
    /// Latest requests for the name: the address and the alias of who has asked.
    asked: VecDeque<(SocketAddr, u64)>,
}

impl Routers {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            latest: HashMap::with_hasher(KeyedState::with_seed(seed)),
            order: VecDeque::new(),
            by_address: Peers::new(NEIGHBOURS_MAX, seed),
            asked: VecDeque::new(),
        }
    }

    /// Takes a packet that names this node; `false` if one as late has come of its sender.
    fn note(&mut self, from: SocketAddr, alias: u64, time: u64) -> bool {
        let latest = self.latest.get(&alias).copied();
        if latest.is_some_and(|latest| time <= latest) {
            return false;
        }
        if latest.is_none() {
            if self.order.len() >= NEIGHBOURS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.latest.remove(&oldest);
            }
            self.order.push_back(alias);
        }
        self.latest.insert(alias, time);
        let known = self.by_address.entry(from, || [alias; 2]);
        if known[0] != alias {
            *known = [alias, known[0]];
        }
        true
    }

    /// Takes a PROBE or CLAIM, whose tag is genuine; `false` if it asks for the name of this node.
    pub(super) fn hear(
        &mut self,
        own: OwnName,
        from: SocketAddr,
        (kind, trailer): (MessageType, &Trailer),
    ) -> Result<bool, Cause> {
        let names = hop_names(trailer);
        match names.receiver {
            0 if kind == MessageType::Probe => {
                self.note_asking(from, names.sender);
                Ok(false)
            }
            name if name == own.name => match self.note(from, names.sender, trailer.count()) {
                true => Ok(true),
                false => Err(Cause::Replayed),
            },
            _ => Err(Cause::Misdirected),
        }
    }

    /// Takes note that who does not know this node asks for its name.
    fn note_asking(&mut self, from: SocketAddr, alias: u64) {
        self.asked.retain(|&(address, _)| address != from);
        if self.asked.len() >= ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back((from, alias));
    }

    /// The aliases of who sends from an address, the latest first.
    #[inline]
    pub(super) fn at(&self, address: SocketAddr) -> Option<[u64; 2]> {
        self.by_address.find(address).copied()
    }

    /// By what name an ACK at an address is for who is there: who has just asked comes first.
    pub(super) fn answered(&mut self, address: SocketAddr) -> Option<u64> {
        match self.asked.iter().position(|&(from, _)| from == address) {
            Some(at) => self.asked.remove(at).map(|(_, alias)| alias),
            None => self.at(address).map(|known| known[0]),
        }
    }
}

/// Servers, as a router knows them, by address.
#[derive(Debug)]
pub(super) struct Servers {
    /// Each with its name and its alias for this router; the oldest make room.
    by_address: Peers<Server>,
    /// Draws aliases.
    numbers: Numbers,
}

/// One of them.
#[derive(Clone, Copy, Debug, Default)]
struct Server {
    /// By which it names the router, and its own name: both have been heard of each other.
    pair: Option<Names>,
    /// Names of a first contact: the alias, and the server's name once it has told that.
    contact: Option<Names>,
    /// The time of its latest packet.
    latest: u64,
    /// The time of the packet that has told the name of `contact`.
    contact_at: u64,
    /// Probes since it was last heard.
    unheard: u32,
}

impl Servers {
    pub(super) fn new(numbers: Numbers, seed: u64) -> Self {
        Self { by_address: Peers::new(SERVERS_MAX, seed), numbers }
    }

    /// The names on a probe to an address.
    pub(super) fn probe(&mut self, to: SocketAddr) -> Names {
        let numbers = &mut self.numbers;
        let server = self.by_address.entry(to, Server::default);
        server.unheard = server.unheard.saturating_add(1);
        let is_lost = server.unheard > UNHEARD_MAX;
        if is_lost && server.contact.is_some_and(|contact| contact.receiver != 0) {
            // It has been shown that alias, unless it is gone. It keeps two, of which the next is
            // one.
            server.pair = server.contact.take();
            server.latest = server.contact_at;
        }
        match (server.contact, server.pair) {
            (Some(contact), _) if contact.receiver != 0 && !is_lost => contact,
            (_, Some(pair)) if !is_lost => pair,
            (contact, _) => {
                let alias = || Names { receiver: 0, sender: numbers.draw(u64::BITS).max(1) };
                let contact = contact.filter(|contact| contact.receiver == 0);
                *server.contact.insert(contact.unwrap_or_else(alias))
            }
        }
    }

    /// The names on what else goes to a server; `None` before it has been heard of.
    #[inline]
    pub(super) fn names(&self, to: SocketAddr) -> Option<Names> {
        self.by_address.find(to).and_then(|server| server.pair)
    }

    /// A data plane has taken packets of a server up to this time.
    pub(super) fn heard_before(&mut self, from: SocketAddr, time: u64) {
        if let Some(server) = self.by_address.find_mut(from) {
            server.latest = server.latest.max(time);
        }
    }

    /// Takes a packet of a server, with the names and the time on it.
    pub(super) fn hear(
        &mut self,
        from: SocketAddr,
        kind: MessageType,
        (names, time): (Names, u64),
    ) -> Heard {
        let Some(server) = self.by_address.find_mut(from) else { return Heard::Misdirected };
        let name = name_of(names.sender);
        if let Some(contact) = &mut server.contact
            && contact.sender == names.receiver
        {
            match contact.receiver {
                0 => {
                    contact.receiver = name;
                    server.contact_at = time;
                    server.unheard = 0;
                    return Heard::Now;
                }
                known if known == name && time <= server.contact_at => return Heard::Before,
                // One that was stopped answers each of the probes that have asked for its name, and
                // has been shown the alias by none of them.
                known if known == name && kind == MessageType::Ack => {
                    server.contact_at = time;
                    return Heard::Now;
                }
                known if known == name => {
                    // It has been shown the alias. Its times begin anew.
                    server.pair = server.contact.take();
                    server.latest = server.contact_at;
                }
                _ => return Heard::Misdirected,
            }
        }
        let is_known =
            server.pair.is_some_and(|pair| (pair.sender, pair.receiver) == (names.receiver, name));
        if !is_known {
            return Heard::Misdirected;
        }
        if time <= server.latest {
            return Heard::Before;
        }
        server.latest = time;
        server.unheard = 0;
        Heard::Now
    }
}

/// Result of hearing a packet of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// News.
    Now,
    /// As late a one has come already.
    Before,
    /// For another router, or of another server.
    Misdirected,
}

/// The names of whom a client sends to, by address.
#[derive(Debug)]
pub(super) struct Targets {
    /// Each with its name; the oldest make room.
    by_address: Peers<Target>,
    /// Calls whose packets have named nobody: the first few to each address, since one answer is
    /// enough.
    asking: VecDeque<Asking>,
}

/// A call whose packet has named nobody.
#[derive(Clone, Copy, Debug)]
struct Asking {
    /// The call.
    rpc_id: u64,
    /// Destination of the packet.
    to: SocketAddr,
    /// Time at which it last went there.
    at: Time,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// Name of the node there; 0 where that is in doubt.
    name: u64,
    /// It has told that when it was asked; else it was only heard there, and a stranger may have
    /// passed on from there what it has sent from elsewhere.
    is_told: bool,
    /// It is a server that takes several packets in a datagram.
    takes_coalesced: bool,
    /// Time at which it was last heard.
    heard_at: Time,
}

impl Targets {
    pub(super) fn new(seed: u64) -> Self {
        Self { by_address: Peers::new(SERVERS_MAX, seed), asking: VecDeque::new() }
    }

    /// The name that a packet to an address is for by which a request may run; 0 where it is to
    /// name nobody, because nobody has told one there, or none has been heard for long, sooner
    /// where the packet `is_again`: another one may be there by now.
    #[inline]
    pub(super) fn name(&self, now: Time, to: SocketAddr, is_again: bool) -> u64 {
        let is_certain =
            |target: &&Target| target.is_told && now.saturating_sub(target.heard_at) < EXPIRE_NS;
        let told = self.by_address.find(to).filter(is_certain);
        told.map_or(0, |target| target.name_for(now, is_again))
    }

    /// The name for a packet of a call that runs: also of who has only been heard there.
    #[inline]
    pub(super) fn heard_name(&self, now: Time, to: SocketAddr, is_again: bool) -> u64 {
        self.by_address.find(to).map_or(0, |target| target.name_for(now, is_again))
    }

    /// True if this instance has told its name at this address.
    pub(super) fn has_told(&self, at: SocketAddr, instance: u64) -> bool {
        let target = self.by_address.find(at);
        target.is_some_and(|target| target.is_told && target.name == name_of(instance))
    }

    /// True of a server that has said that it takes several packets in a datagram.
    #[inline]
    pub(super) fn takes_coalesced(&self, to: SocketAddr) -> bool {
        self.by_address.find(to).is_some_and(|target| target.takes_coalesced)
    }

    /// A packet of a call goes to an address and names nobody.
    ///
    /// The first calls stay until they are answered, or nobody can be expected to answer them any
    /// more: were they to make room, none of many that begin at once would be there when its answer
    /// comes.
    pub(super) fn ask(&mut self, now: Time, rpc_id: u64, to: SocketAddr) {
        if let Some(asking) = self.asking.iter_mut().find(|of| (of.rpc_id, of.to) == (rpc_id, to)) {
            asking.at = now;
            return;
        }
        self.asking.retain(|of| now.saturating_sub(of.at) < ASKING_NS);
        let of_address = self.asking.iter().filter(|of| of.to == to).count();
        if of_address < ASKING_EACH_MAX && self.asking.len() < ASKING_MAX {
            self.asking.push_back(Asking { rpc_id, to, at: now });
        }
    }

    /// Somebody at an address tells its name in answer to a packet of a call: true if that has
    /// named nobody, so that it is believed.
    pub(super) fn learn(
        &mut self,
        now: Time,
        from: SocketAddr,
        rpc_id: u64,
        instance: u64,
    ) -> bool {
        let is_asked = self.asking.iter().any(|of| (of.rpc_id, of.to) == (rpc_id, from));
        if is_asked {
            self.asking.retain(|of| of.to != from);
            self.set(now, from, instance, true);
        }
        is_asked
    }

    /// Puts the name at an address in doubt: the node there is asked with the next packet.
    pub(super) fn doubt(&mut self, at: SocketAddr) {
        if let Some(target) = self.by_address.find_mut(at) {
            target.name = 0;
        }
    }

    /// Puts the names at all addresses in doubt.
    pub(super) fn doubt_all(&mut self) {
        let Peers { by_address, order, .. } = &mut self.by_address;
        for &address in order.iter() {
            if let Some(target) = by_address.get_mut(&AddressKey(address)) {
                target.name = 0;
            }
        }
    }

    /// Notes that the node known at an address takes several packets in a datagram.
    pub(super) fn note_taken(&mut self, at: SocketAddr) {
        if let Some(target) = self.by_address.find_mut(at) {
            target.takes_coalesced = true;
        }
    }

    /// A server has been heard at an address; `is_news` says that it has sent nothing as late
    /// before. Where another one was known, who is there is asked.
    #[inline]
    pub(super) fn hear(&mut self, now: Time, from: SocketAddr, (instance, is_news): (u64, bool)) {
        let name = name_of(instance);
        match self.by_address.find_mut(from) {
            // What was recorded says nothing of who is there now.
            _ if !is_news => {}
            Some(target) if target.name == name => target.heard_at = now,
            // Either another one is there, or it comes from elsewhere: the next packet asks.
            Some(target) => target.name = 0,
            None => self.set(now, from, instance, false),
        }
    }

    fn set(&mut self, now: Time, address: SocketAddr, instance: u64, is_told: bool) {
        let name = name_of(instance);
        let target = Target { name, is_told, takes_coalesced: false, heard_at: now };
        *self.by_address.entry(address, || target) = target;
    }
}

impl Target {
    /// Its name, where a packet that `is_again` may still be for it.
    #[inline]
    fn name_for(&self, now: Time, is_again: bool) -> u64 {
        let is_doubtful = is_again && now.saturating_sub(self.heard_at) >= DOUBT_NS;
        if is_doubtful { 0 } else { self.name }
    }
}

impl<T> Peers<T> {
    fn find_mut(&mut self, address: SocketAddr) -> Option<&mut T> {
        self.by_address.get_mut(&AddressKey(address))
    }
}

/// Routers that a server has heard of: they hold a key that no client has.
const NEIGHBOURS_MAX: usize = 4_096;

/// Servers that a router has probed, or a client has called.
const SERVERS_MAX: usize = 4_096;

/// Routers that have asked for a name and are not answered yet.
const ASKED_MAX: usize = 64;

/// Calls that have named nobody, of which an answer may tell a name.
const ASKING_MAX: usize = 512;

/// Calls of these to one address.
const ASKING_EACH_MAX: usize = 8;

/// Time after which no answer to a packet is expected any more: ten times [`DOUBT_NS`].
const ASKING_NS: u64 = 10 * DOUBT_NS;

/// Time without a packet of it after which a target may be another one by now: ten times the
/// shortest after which a request is sent again, and more.
const DOUBT_NS: u64 = 20_000_000;

/// Time without a packet of it after which a target is in doubt though nothing has been asked of it
/// in vain: a client that has been idle for so long pays a round trip.
const EXPIRE_NS: u64 = 20 * DOUBT_NS;

/// Probes without an answer after which a server may be another one by now.
const UNHEARD_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed::packet::hop_trailer;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn servers() -> Servers {
        Servers::new(Numbers::new(&[1; 16], b"test"), 1)
    }

    /// A router and a server that know each other, with the server's names on what it sends.
    fn acquainted(servers: &mut Servers, to: SocketAddr, name: u64, time: u64) -> Names {
        let first = servers.probe(to);
        assert_eq!(first.receiver, 0);
        let reply = Names { receiver: first.sender, sender: name };
        let (ack, feedback) = (MessageType::Ack, MessageType::Feedback);
        assert_eq!(servers.hear(to, ack, (reply, time)), Heard::Now);
        assert_eq!(servers.hear(to, ack, (reply, time)), Heard::Before, "the same again");
        assert_eq!(servers.names(to), None, "the server has yet to hear of the alias");
        assert_eq!(servers.probe(to), Names { receiver: name, sender: first.sender });
        assert_eq!(servers.hear(to, ack, (reply, time + 1)), Heard::Now, "another probe's answer");
        assert_eq!(servers.names(to), None, "which shows no more than the first");
        assert_eq!(servers.hear(to, feedback, (reply, time + 2)), Heard::Now);
        assert_eq!(servers.names(to), Some(Names { receiver: name, sender: first.sender }));
        reply
    }

    #[test]
    fn one_of_many_calls_that_begin_at_once_tells_a_name() {
        let mut targets = Targets::new(1);
        for call in 0..1_000 {
            targets.ask(call, call, at(1));
        }
        assert_eq!(targets.name(1_000, at(1), false), 0);
        targets.learn(1_000, at(1), 0, 7 << 8);
        assert_eq!(targets.name(1_000, at(1), false), 7 << 8);
        // Where none of the first is answered, others take their places.
        for call in 0..8 {
            targets.ask(0, call, at(2));
        }
        targets.ask(ASKING_NS, 8, at(2));
        targets.learn(ASKING_NS, at(2), 0, 8 << 8);
        assert_eq!(targets.name(ASKING_NS, at(2), false), 0, "that was too long ago");
        targets.learn(ASKING_NS, at(2), 8, 8 << 8);
        assert_eq!(targets.name(ASKING_NS, at(2), false), 8 << 8);
    }

    /// One answer is enough, and what waits for one is bounded.
    #[test]
    fn few_calls_to_an_address_ask_and_not_too_many_in_all() {
        let mut targets = Targets::new(1);
        let is_told = |targets: &mut Targets, call, port| {
            targets.learn(0, at(port), call, 0x500);
            targets.name(0, at(port), false) != 0
        };
        let each_max = ASKING_EACH_MAX as u64;
        (0..=each_max).for_each(|call| targets.ask(0, call, at(1)));
        assert!(!is_told(&mut targets, each_max, 1) && is_told(&mut targets, each_max - 1, 1));
        let ports = 1_000..1_000 + (ASKING_MAX / ASKING_EACH_MAX) as u16;
        for port in ports.clone() {
            (0..each_max).for_each(|call| targets.ask(0, call, at(port)));
        }
        targets.ask(0, 0, at(2));
        assert!(!is_told(&mut targets, 0, 2), "there is no room");
        assert!(ports.clone().all(|port| is_told(&mut targets, each_max - 1, port)));
        targets.ask(0, 0, at(2));
        assert!(is_told(&mut targets, 0, 2), "they have been told");
    }

    #[test]
    fn a_name_is_that_of_the_address_that_tells_it() {
        let mut targets = Targets::new(1);
        targets.ask(0, 5, at(1));
        targets.ask(0, 5, at(2));
        targets.learn(0, at(2), 5, 7 << 8);
        assert_eq!([1, 2].map(|port| targets.name(0, at(port), false)), [0, 7 << 8]);
    }

    #[test]
    fn nothing_of_one_server_is_anothers() {
        let mut servers = servers();
        let one = acquainted(&mut servers, at(1), 0x1000, 10);
        let other = acquainted(&mut servers, at(2), 0x2000, 10);
        assert_eq!(servers.hear(at(1), MessageType::Feedback, (other, 100)), Heard::Misdirected);
        let mixed = Names { receiver: one.receiver, sender: other.sender };
        assert_eq!(servers.hear(at(1), MessageType::Feedback, (mixed, 100)), Heard::Misdirected);
        assert_eq!(servers.hear(at(3), MessageType::Feedback, (one, 100)), Heard::Misdirected);
        assert_eq!(servers.hear(at(1), MessageType::Feedback, (one, 12)), Heard::Before);
        assert_eq!(servers.hear(at(1), MessageType::Feedback, (one, 13)), Heard::Now);
    }

    #[test]
    fn a_server_that_starts_again_is_asked_for_its_name_and_no_old_answer_tells_it() {
        let mut servers = servers();
        let old = acquainted(&mut servers, at(1), 0x1000, 1_000);
        let probes: Vec<Names> = (0..5).map(|_| servers.probe(at(1))).collect();
        assert!(probes[..3].iter().all(|names| names.receiver == 0x1000));
        assert!(probes[3].receiver == 0 && probes[3] == probes[4], "one alias while it asks");
        assert_ne!(probes[3].sender, old.receiver);
        assert_eq!(
            servers.hear(at(1), MessageType::Feedback, (Names { sender: 0x3000, ..old }, 2_000)),
            Heard::Misdirected
        );
        // Its clock may be behind that of the one before.
        let new = Names { receiver: probes[3].sender, sender: 0x4000 };
        assert_eq!(servers.hear(at(1), MessageType::Ack, (new, 5)), Heard::Now);
        assert_eq!(servers.probe(at(1)).receiver, 0x4000);
        assert_eq!(servers.hear(at(1), MessageType::Feedback, (new, 6)), Heard::Now);
        assert_eq!(servers.names(at(1)).unwrap().receiver, 0x4000);
    }

    #[test]
    fn a_server_that_is_heard_again_is_probed_by_its_name_again() {
        let mut servers = servers();
        let known = acquainted(&mut servers, at(1), 0x1000, 10);
        let probes: Vec<Names> = (0..5).map(|_| servers.probe(at(1))).collect();
        assert_eq!(probes[4].receiver, 0, "it asks who is there");
        assert_eq!(servers.hear(at(1), MessageType::Feedback, (known, 100)), Heard::Now);
        let named = Names { receiver: 0x1000, sender: known.receiver };
        assert_eq!(servers.probe(at(1)), named);
        assert_eq!(servers.names(at(1)), Some(named));
    }

    #[test]
    fn an_alias_is_shown_by_the_server_alone_that_was_told_it() {
        let mut servers = servers();
        let alias = servers.probe(at(1)).sender;
        let of = |sender| Names { receiver: alias, sender };
        assert_eq!(servers.hear(at(1), MessageType::Ack, (of(0x1000), 10)), Heard::Now);
        let another = servers.hear(at(1), MessageType::Feedback, (of(0x2000), 20));
        assert_eq!((another, servers.names(at(1))), (Heard::Misdirected, None));
        assert_eq!(servers.hear(at(1), MessageType::Feedback, (of(0x1000), 20)), Heard::Now);
        assert_eq!(servers.names(at(1)).unwrap().receiver, 0x1000);
    }

    #[test]
    fn a_server_that_pauses_again_keeps_the_alias_that_requests_are_under() {
        let mut servers = servers();
        acquainted(&mut servers, at(1), 0x1000, 10);
        let ask = |servers: &mut Servers| {
            let names = (0..4).map(|_| servers.probe(at(1))).last().unwrap();
            assert_eq!(names.receiver, 0);
            names.sender
        };
        let second = ask(&mut servers);
        let answer = Names { receiver: second, sender: 0x1000 };
        assert_eq!(servers.hear(at(1), MessageType::Ack, (answer, 1_000)), Heard::Now);
        let third = ask(&mut servers);
        assert_ne!(third, second);
        assert_eq!(servers.names(at(1)), Some(Names { receiver: 0x1000, sender: second }));
        assert_eq!(
            servers.hear(at(1), MessageType::Feedback, (answer, 1_001)),
            Heard::Now,
            "the answer to a probe"
        );
    }

    #[test]
    fn times_rise_for_each_router_and_not_for_each_address() {
        let mut routers = Routers::new(1);
        assert!(routers.note(at(1), 7, 1_000) && routers.note(at(2), 8, 5));
        assert!(!routers.note(at(2), 7, 1_000), "a packet of the one from the other's address");
        assert!(routers.note(at(2), 8, 6), "whose own time counts");
        assert_eq!(routers.at(at(2)), Some([8; 2]));
        assert!(routers.note(at(2), 9, 1) && routers.at(at(2)) == Some([9, 8]));
    }

    #[test]
    fn a_router_is_heard_by_the_name_of_this_node_and_may_ask_for_it() {
        let mut routers = Routers::new(1);
        let own = OwnName { name: 0x500, member: 1 };
        let mut hear = |kind, receiver, time| {
            let names = Names { receiver, sender: 7 };
            let trailer = hop_trailer(names, 1, time);
            routers.hear(own, at(1), (kind, &trailer))
        };
        let (probe, claim) = (MessageType::Probe, MessageType::Claim);
        assert_eq!(hear(claim, 0, 1), Err(Cause::Misdirected), "a claim is for somebody");
        assert_eq!(hear(probe, 0, 1), Ok(false));
        for kind in [probe, claim] {
            assert_eq!(hear(kind, 0x600, 2), Err(Cause::Misdirected));
        }
        assert_eq!(hear(probe, 0x500, 2), Ok(true));
        assert_eq!(hear(claim, 0x500, 2), Err(Cause::Replayed));
        assert_eq!(hear(claim, 0x500, 3), Ok(true));
        assert_eq!(routers.at(at(1)), Some([7; 2]));
    }

    #[test]
    fn who_asks_for_the_name_is_answered_and_not_remembered() {
        let mut routers = Routers::new(1);
        for port in 0..1_000 {
            routers.note_asking(at(port), u64::from(port));
        }
        assert_eq!(routers.asked.len(), ASKED_MAX);
        assert_eq!((routers.answered(at(999)), routers.answered(at(999))), (Some(999), None));
        assert_eq!(routers.at(at(999)), None);
    }

    #[test]
    fn a_client_names_whom_it_has_heard_and_asks_again_where_nothing_comes() {
        let mut targets = Targets::new(1);
        assert_eq!(targets.name(0, at(1), false), 0);
        targets.ask(0, 77, at(1));
        targets.learn(0, at(1), 78, 0x500);
        assert_eq!(targets.name(0, at(1), false), 0, "of a call that has named somebody");
        targets.learn(0, at(1), 77, 0x501);
        targets.learn(0, at(1), 77, 0x900);
        assert_eq!(targets.name(0, at(1), false), 0x500, "once, and not the member's number");
        assert_eq!(targets.name(DOUBT_NS - 1, at(1), true), 0x500);
        assert_eq!(targets.name(DOUBT_NS, at(1), true), 0, "nothing has come for long");
        assert_eq!(targets.name(DOUBT_NS, at(1), false), 0x500);
        assert_eq!(targets.name(EXPIRE_NS - 1, at(1), false), 0x500);
        assert_eq!(targets.name(EXPIRE_NS, at(1), false), 0, "the client has been idle");
        assert_eq!(targets.heard_name(EXPIRE_NS, at(1), false), 0x500, "of what runs there");
        targets.hear(DOUBT_NS, at(1), (0x502, false));
        assert_eq!(
            targets.name(DOUBT_NS, at(1), true),
            0,
            "a reply that was recorded says nothing"
        );
        targets.hear(DOUBT_NS, at(1), (0x502, true));
        assert_eq!(targets.name(DOUBT_NS, at(1), true), 0x500);
        targets.hear(DOUBT_NS, at(1), (0x600, false));
        assert_eq!(targets.name(0, at(1), false), 0x500, "a reply that was recorded tells no name");
        targets.hear(DOUBT_NS, at(1), (0x600, true));
        assert_eq!(targets.name(DOUBT_NS, at(1), false), 0, "it may have come from elsewhere");
        targets.hear(DOUBT_NS, at(1), (0x600, true));
        assert_eq!(targets.name(DOUBT_NS, at(1), false), 0);
        targets.ask(DOUBT_NS, 79, at(1));
        targets.learn(DOUBT_NS, at(1), 79, 0x600);
        assert_eq!(targets.name(0, at(1), false), 0x600);
    }

    /// A stranger may have passed on what that server has sent from elsewhere: no request is for it
    /// there.
    #[test]
    fn a_server_that_is_only_heard_at_an_address_is_asked_there() {
        let mut targets = Targets::new(1);
        targets.hear(0, at(1), (0x500, true));
        assert_eq!((targets.name(0, at(1), false), targets.name(0, at(1), true)), (0, 0));
        assert_eq!(targets.heard_name(0, at(1), false), 0x500);
        assert!(!targets.has_told(at(1), 0x500));
        targets.ask(0, 77, at(1));
        targets.learn(0, at(1), 77, 0x601);
        assert_eq!(targets.name(0, at(1), false), 0x600);
        assert!(targets.has_told(at(1), 0x602) && !targets.has_told(at(1), 0x500));
        targets.hear(0, at(1), (0x500, true));
        assert!(!targets.has_told(at(1), 0x600), "it is in doubt, and asked again");
    }
}
