//! Nodes at addresses in virtual time, at the grain of packets: the very state machines of `proto`,
//! over links and switches, in hosts whose software takes time and whose clocks are wrong.
//!
//! A datagram passes, in this order: the sender's impairments (lost, duplicated, corrupted), its
//! software ([`HostDelays::transmit_ns`]), NIC, links and switches of a [`Topology`] or nothing,
//! the receiver's software ([`HostDelays::receive_ns`]), and the delay of the impairments, so that
//! a jitter reorders.
//!
//! Invariant: the same calls with the same seeds give the same run, to the byte;
//! [`Statistics::trace_hash`] tells.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path, Source, Time, Transmit};

mod border;
mod event;
mod members;
mod places;

use self::border::Border;
pub(crate) use self::border::Outbox;
use self::event::{Event, Posted};
use self::members::Members;
use self::places::Places;
use crate::PS_PER_NS;
use crate::agenda::Agenda;
use crate::clock::Clock;
use crate::fabric::topology::Topology;
use crate::fabric::{self, Fabric, Happening, Packet};
use crate::impair::{ImpairedPath, Impairment};

/// A network of nodes of one kind (an enum where several kinds meet).
#[derive(Debug)]
pub struct Network<N> {
    members: Members<N>,
    /// All but the members, so that both can be at hand at once.
    wire: Wire,
    /// Buffer that nodes write datagrams to.
    buffer: Vec<u8>,
    /// Buffer in which datagrams of which only the head is kept are put together again: zeros but
    /// for the head.
    whole: Vec<u8>,
}

/// Datagrams under way between the members, and when they arrive.
#[derive(Debug)]
struct Wire {
    agenda: Agenda<Posted>,
    /// Time that [`Network::run`] has reached; ps.
    now_ps: u64,
    /// Time that [`Network::run`] has reached; ns.
    now: Time,
    places: Places,
    /// By place.
    delays: Vec<HostDelays>,
    /// Links and switches between the hosts; `None` where impairments are all.
    fabric: Option<Fabric>,
    datagrams: Vec<Datagram>,
    free: Vec<u32>,
    /// Ordered pairs of places between which nothing arrives.
    blocked: BTreeSet<(u32, u32)>,
    damage: Damage,
    framing: Framing,
    /// Bytes of each datagram that are kept.
    head_len_max: usize,
    /// Border of this network, if it is one region of several.
    border: Option<Box<Border>>,
    statistics: Statistics,
}

/// The share of the links that a datagram takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriage {
    /// So many bytes on each of them, with all headers and the gap between frames.
    Links(u32),
    /// Nothing: it goes from host to host beside them, delayed by their software alone. For what an
    /// experiment needs, but must not load the network that it is about.
    Aside,
}

/// Tells what a datagram of these bytes takes of the links.
pub type Framing = fn(&[u8]) -> Carriage;

/// Condition under which a node is asked for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NicRoom {
    Always,
    /// While fewer bytes wait at its NIC.
    Below(u64),
    /// One datagram of at most so many bytes when the NIC's link is idle.
    Idle(usize),
}

/// The fate of a datagram of which the network has flipped a bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Damage {
    /// The node gets it as it is: what a checksum misses, or has been switched off for.
    #[default]
    Delivered,
    /// The receiver's UDP checksum finds it, and the node never sees it.
    Noticed,
}

/// Counters of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Datagrams delivered to a node.
    pub delivered: u64,
    /// Datagrams lost by impairments.
    pub lost: u64,
    /// Datagrams that a switch dropped.
    pub dropped: u64,
    /// Datagrams between places that are partitioned.
    pub blocked: u64,
    /// Datagrams to an address that no node has, or from one that is not the sender's.
    pub stray: u64,
    /// Datagrams to a node that was down.
    pub unheard: u64,
    /// Datagrams to a paused node, beyond what its socket keeps.
    pub overflowed: u64,
    /// Datagrams that were under way for longer than [`Network::set_transit_ns_max`] allows.
    pub late: u64,
    /// Second copies that impairments made.
    pub duplicated: u64,
    /// Datagrams, copies included, of which impairments flipped a bit.
    pub damaged: u64,
    /// A hash over every datagram delivered, its time and its place: equal runs have equal hashes.
    pub trace_hash: u64,
}

impl Statistics {
    /// The sum of two networks; the hash is over those of both.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            delivered: self.delivered + other.delivered,
            lost: self.lost + other.lost,
            dropped: self.dropped + other.dropped,
            blocked: self.blocked + other.blocked,
            stray: self.stray + other.stray,
            unheard: self.unheard + other.unheard,
            overflowed: self.overflowed + other.overflowed,
            late: self.late + other.late,
            duplicated: self.duplicated + other.duplicated,
            damaged: self.damaged + other.damaged,
            trace_hash: mix(self.trace_hash, other.trace_hash),
        }
    }
}

/// Time that a host's software takes for each datagram; more for a slow host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostDelays {
    /// From the node to the NIC.
    pub transmit_ns: u64,
    /// From the NIC to the node.
    pub receive_ns: u64,
}

/// A node after an input, for its application.
#[derive(Debug)]
pub struct Turn<'a, N> {
    /// The node: take its events, give it work.
    pub node: &'a mut N,
    /// Its place.
    pub place: usize,
    /// The virtual time.
    pub now: Time,
    /// The time of the host's clock, which the node knows.
    pub local: Time,
    /// The word of the alarm that is due; `None` where the node had an input of its own.
    pub alarm: Option<u64>,
    agenda: &'a mut Agenda<Posted>,
}

impl<N> Turn<'_, N> {
    /// Gives the application of this place another turn after `delay_ns`, with `word` in
    /// [`Turn::alarm`].
    pub fn wake_in(&mut self, delay_ns: u64, word: u64) {
        post_alarm(self.agenda, self.place, self.now + delay_ns, word);
    }
}

#[derive(Debug)]
struct Member<N> {
    /// The first of its addresses: what it sends leaves from there where it names no other.
    address: SocketAddr,
    node: N,
    /// Impairments of the datagrams that it sends.
    path: ImpairedPath,
    clock: Clock,
    is_up: bool,
    /// Backlog while it is paused; `None` while it runs.
    pause: Option<Backlog>,
    /// Longest time that a datagram may be under way to it before it is lost, ps; [`u64::MAX`] for
    /// no limit.
    transit_ps_max: u64,
    /// Times at which an [`Event::Wake`] is on the agenda for it, ps; the earliest last. None is
    /// posted at or after another, so that a node whose deadline comes and goes before a far one
    /// does not fill the agenda with that.
    wakes: Vec<u64>,
    nic_room: NicRoom,
}

/// Datagrams and alarms that wait for a paused host.
#[derive(Debug)]
struct Backlog {
    /// Datagrams in its socket.
    datagrams: Vec<u32>,
    /// Most of them.
    len_max: usize,
    /// Words of its application's alarms.
    alarms: Vec<u64>,
}

/// Source and destination of a datagram.
#[derive(Clone, Copy, Debug)]
struct Hop {
    place: u32,
    to: u32,
    /// The address that it was sent to.
    to_address: SocketAddr,
    /// Its source, as the receiver sees it.
    from: SocketAddr,
    priority: u8,
}

/// A datagram on its way; its buffer is used again.
#[derive(Debug)]
struct Datagram {
    hop: Hop,
    /// Time at which it left its node, or the socket of a paused one, ps.
    sent_ps: u64,
    /// Delay that the impairments add, ps.
    extra_ps: u64,
    /// The receiver's checksum will find it.
    is_damaged: bool,
    /// Bytes that were sent. What is behind `head` is zeros.
    len: usize,
    head: Vec<u8>,
}

impl Datagram {
    /// All its bytes; put together in `whole` where only the head was kept. That is zeros before
    /// and after, up to a head's length.
    fn whole<'a>(&'a mut self, whole: &'a mut [u8]) -> &'a mut [u8] {
        if self.head.len() == self.len {
            return &mut self.head;
        }
        whole[..self.head.len()].copy_from_slice(&self.head);
        &mut whole[..self.len]
    }
}

impl<N: Node> Network<N> {
    /// An empty network at time 0 in which impairments are all that lies between nodes.
    pub fn new() -> Self {
        Self::with_fabric(None)
    }

    /// An empty network at time 0 over links and switches. The nodes that are added stand at its
    /// `hosts` hosts, in order; `seed` decides which way packets are sprayed.
    pub fn over(topology: &Topology, hosts: u32, seed: u64) -> Self {
        Self::with_fabric(Some(Fabric::new(topology, hosts, seed)))
    }

    fn with_fabric(fabric: Option<Fabric>) -> Self {
        let wire = Wire {
            agenda: Agenda::new(),
            now_ps: 0,
            now: 0,
            places: Places::new(),
            delays: Vec::new(),
            fabric,
            datagrams: Vec::new(),
            free: Vec::new(),
            blocked: BTreeSet::new(),
            damage: Damage::default(),
            framing: udp_framing,
            head_len_max: usize::MAX,
            border: None,
            statistics: Statistics::default(),
        };
        let (members, buffer) = (Members::default(), vec![0; GSO_BYTES_MAX]);
        Self { members, wire, buffer, whole: Vec::new() }
    }

    /// Adds a node; tells its place.
    ///
    /// # Panics
    /// When the topology has no host left, or another node has the address.
    pub fn add(
        &mut self,
        address: SocketAddr,
        node: N,
        impairment: Impairment,
        seed: u64,
    ) -> usize {
        let place = self.members.end();
        let hosts = self.wire.fabric.as_ref().map_or(usize::MAX, Fabric::host_count);
        assert!(place < hosts, "the topology has {hosts} hosts");
        let earlier = self.wire.places.insert(address, place as u32);
        assert!(earlier.is_none(), "{address} is taken");
        let path = ImpairedPath::new(impairment, seed);
        let clock = Clock::default();
        if place >= self.wire.delays.len() {
            self.wire.delays.push(HostDelays::default());
        }
        self.members.push(Member {
            address,
            node,
            path,
            clock,
            is_up: true,
            pause: None,
            transit_ps_max: u64::MAX,
            wakes: Vec::new(),
            nic_room: NicRoom::Always,
        });
        self.rewake(place);
        place
    }

    /// Gives the host at a place another address, with the port of the first.
    ///
    /// # Panics
    /// When another node has it.
    pub fn add_address(&mut self, place: usize, ip: IpAddr) {
        let address = SocketAddr::new(ip, self.members[place].address.port());
        let earlier = self.wire.places.insert(address, place as u32);
        assert!(earlier.is_none(), "{address} is taken");
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.wire.now
    }

    /// The time of the clock of the host at a place.
    pub fn local(&self, place: usize) -> Time {
        self.members[place].clock.local(self.now())
    }

    /// The node at a place.
    pub fn node(&self, place: usize) -> &N {
        &self.members[place].node
    }

    /// The node at a place; call [`Network::flush`] after giving it work.
    pub fn node_mut(&mut self, place: usize) -> &mut N {
        &mut self.members[place].node
    }

    /// The address of the node at a place.
    pub fn address(&self, place: usize) -> SocketAddr {
        self.members[place].address
    }

    /// The links and switches, where there are any.
    pub fn fabric(&self) -> Option<&Fabric> {
        self.wire.fabric.as_ref()
    }

    /// Takes a node off the network or puts it back: while down it gets nothing and does nothing.
    pub fn set_up(&mut self, place: usize, is_up: bool) {
        self.members[place].is_up = is_up;
        if let Some(backlog) = &mut self.members[place].pause {
            // What waits in a socket goes with its process.
            self.wire.statistics.unheard += backlog.datagrams.len() as u64;
            self.wire.free.append(&mut backlog.datagrams);
            backlog.alarms.clear();
            backlog.len_max = 0;
        }
        self.rewake(place);
    }

    /// Pauses the processes of a host: it sends nothing, at most `len_max` datagrams wait in its
    /// socket, and what is due waits too. Harmless when it is paused.
    pub fn pause(&mut self, place: usize, len_max: usize) {
        let backlog = || Backlog { datagrams: Vec::new(), len_max, alarms: Vec::new() };
        self.members[place].pause.get_or_insert_with(backlog);
    }

    /// Ends [`Network::pause`]: the host takes what has waited, datagrams first. Harmless when it
    /// runs.
    pub fn resume(&mut self, place: usize) {
        let Some(backlog) = self.members[place].pause.take() else {
            return;
        };
        let now_ps = self.wire.now_ps;
        for index in backlog.datagrams {
            self.wire.datagrams[index as usize].sent_ps = now_ps;
            self.wire.agenda.post(now_ps, Event::Deliver(index).into());
        }
        for word in backlog.alarms {
            self.wire.agenda.post(now_ps, Event::Alarm(place as u32, word).into());
        }
        self.rewake(place);
    }

    /// Loses what is under way to a node for longer than so many ns, from now on: its network holds
    /// nothing for longer. What waits in the socket of a paused host has arrived.
    pub fn set_transit_ns_max(&mut self, place: usize, transit_ns_max: u64) {
        self.members[place].transit_ps_max = transit_ns_max.saturating_mul(PS_PER_NS);
    }

    /// Another node takes the place and the address: the host has restarted.
    pub fn replace(&mut self, place: usize, node: N) {
        self.members[place].node = node;
        self.set_up(place, true);
    }

    /// Replaces what happens to the datagrams that a node sends from now on.
    pub fn impair(&mut self, place: usize, impairment: Impairment, seed: u64) {
        self.members[place].path = ImpairedPath::new(impairment, seed);
    }

    /// Says what becomes of damaged datagrams, from now on.
    pub fn set_damage(&mut self, damage: Damage) {
        self.wire.damage = damage;
    }

    /// Sets how long the software of a host takes, from now on.
    pub fn set_delays(&mut self, place: usize, delays: HostDelays) {
        self.wire.delays[place] = delays;
        if let Some(fabric) = &mut self.wire.fabric {
            fabric.set_host_delays(
                place as u32,
                delays.transmit_ns * PS_PER_NS,
                delays.receive_ns * PS_PER_NS,
            );
        }
    }

    /// Sets the clock of a host. Do so before the node has seen a later time: a node's time never
    /// decreases.
    pub fn set_clock(&mut self, place: usize, clock: Clock) {
        self.members[place].clock = clock;
        self.rewake(place);
    }

    /// Asks a node for datagrams only while fewer than `bytes` wait at its NIC, as a host with
    /// backpressure does.
    pub fn limit_nic(&mut self, place: usize, bytes: u64) {
        if let Some(fabric) = &mut self.wire.fabric {
            self.members[place].nic_room = NicRoom::Below(bytes);
            fabric.watch_nic(place as u32);
        }
    }

    /// Asks a node for one datagram, of at most `datagram_len_max` bytes, each time its NIC's link
    /// is idle: what it sends next is decided when it can leave.
    pub fn pace_nic(&mut self, place: usize, datagram_len_max: usize) {
        if let Some(fabric) = &mut self.wire.fabric {
            self.members[place].nic_room = NicRoom::Idle(datagram_len_max);
            fabric.watch_nic(place as u32);
        }
    }

    /// Sets what datagrams take of the links, from now on. As it begins, each is a UDP datagram
    /// over IPv4 and Ethernet.
    pub fn set_framing(&mut self, framing: Framing) {
        self.wire.framing = framing;
    }

    /// Keeps the first `head_len_max` bytes of each datagram from now on, and delivers zeros behind
    /// them: for nodes that send nothing else there, which it spares the copies.
    ///
    /// # Panics
    /// Later, when impairments flip a bit that is not kept.
    pub fn keep_heads(&mut self, head_len_max: usize) {
        self.wire.head_len_max = head_len_max;
        self.whole = vec![0; GSO_BYTES_MAX];
    }

    /// Nothing that `from` sends reaches `to` from now on; the other way is open.
    pub fn block(&mut self, from: usize, to: usize) {
        self.wire.blocked.insert((from as u32, to as u32));
    }

    /// Ends [`Network::block`].
    pub fn unblock(&mut self, from: usize, to: usize) {
        self.wire.blocked.remove(&(from as u32, to as u32));
    }

    /// Counters of the network so far.
    pub fn statistics(&self) -> Statistics {
        self.wire.statistics
    }

    /// Gives the application of a place a turn at `at`, with `word` in [`Turn::alarm`].
    pub fn wake_at(&mut self, place: usize, at: Time, word: u64) {
        post_alarm(&mut self.wire.agenda, place, at, word);
    }

    /// Sends what the node at a place has to send.
    pub fn flush(&mut self, place: usize) {
        let Self { members, wire, buffer, .. } = self;
        let member = &mut members[place];
        if !member.is_up || member.pause.is_some() {
            return;
        }
        let local = member.clock.local(wire.now);
        let buffer = match member.nic_room {
            NicRoom::Idle(datagram_len_max) => &mut buffer[..datagram_len_max],
            NicRoom::Always | NicRoom::Below(_) => buffer,
        };
        while wire.has_room(place, member.nic_room) {
            // Read where it is, not copied out.
            let polled = member.node.poll_transmit(local, buffer);
            let Some(transmit) = &polled else { break };
            let bytes = &buffer[..transmit.len];
            if transmit.segment_len >= transmit.len {
                wire.send(member, place, transmit, bytes);
            } else {
                bytes
                    .chunks(transmit.segment_len)
                    .for_each(|segment| wire.send(member, place, transmit, segment));
            }
        }
        wire.rewake(member, place);
    }

    /// Runs until `until`. After each input to a node, `application` has a turn with it, to take
    /// events and give work.
    pub fn run(&mut self, until: Time, mut application: impl FnMut(&mut Turn<'_, N>)) {
        self.run_to_ps(until.saturating_mul(PS_PER_NS), &mut application);
    }

    /// As [`Network::run`], to a time in ps.
    pub(crate) fn run_to_ps(
        &mut self,
        until_ps: u64,
        application: &mut impl FnMut(&mut Turn<'_, N>),
    ) {
        while let Some((now_ps, event)) = self.wire.agenda.pop_until(until_ps) {
            self.wire.advance_to(now_ps);
            self.handle(event.event(), application);
        }
        self.wire.advance_to(until_ps);
    }

    /// Makes the next thing happen, if it is due at `until` or before; tells whether it was.
    pub fn step(&mut self, until: Time, mut application: impl FnMut(&mut Turn<'_, N>)) -> bool {
        let Some((now_ps, event)) = self.wire.agenda.pop_until(until.saturating_mul(PS_PER_NS))
        else {
            return false;
        };
        self.wire.advance_to(now_ps);
        self.handle(event.event(), &mut application);
        true
    }

    /// Time at which something may happen next.
    pub fn next_time(&mut self) -> Option<Time> {
        self.wire.agenda.next_time().map(|at_ps| at_ps.div_ceil(PS_PER_NS).max(self.now()))
    }

    fn handle(&mut self, event: Event, application: &mut impl FnMut(&mut Turn<'_, N>)) {
        match event {
            Event::Fabric(event) => self.handle_fabric(event, application),
            Event::Deliver(datagram) => self.deliver(datagram, application),
            Event::Wake(place) => self.wake(place as usize, application),
            Event::Alarm(place, word) if self.members[place as usize].pause.is_some() => {
                if let Some(backlog) = &mut self.members[place as usize].pause {
                    backlog.alarms.push(word);
                }
            }
            Event::Alarm(place, word) if self.members[place as usize].is_up => {
                self.turn(place as usize, Some(word), application);
            }
            Event::Alarm(..) => {}
        }
    }

    fn handle_fabric(
        &mut self,
        event: fabric::Event,
        application: &mut impl FnMut(&mut Turn<'_, N>),
    ) {
        let Wire { fabric: Some(fabric), agenda, now_ps, .. } = &mut self.wire else {
            return;
        };
        match fabric.handle(*now_ps, event, agenda) {
            // From the last link to the node, unless impairments delay it.
            Some(Happening::Delivered(packet)) => {
                match self.wire.datagrams[packet.tag as usize].extra_ps {
                    0 => self.deliver(packet.tag, application),
                    extra_ps => {
                        let event = Event::Deliver(packet.tag).into();
                        self.wire.agenda.post(self.wire.now_ps + extra_ps, event);
                    }
                }
            }
            Some(Happening::Dropped(packet)) => self.wire.drop_datagram(packet.tag),
            Some(Happening::NicFree(host)) => self.flush(host as usize),
            None => self.wire.emigrate(),
        }
    }

    fn wake(&mut self, place: usize, application: &mut impl FnMut(&mut Turn<'_, N>)) {
        let Self { members, wire, .. } = self;
        let member = &mut members[place];
        member.wakes.pop();
        let local = member.clock.local(wire.now);
        let is_running = member.is_up && member.pause.is_none();
        if is_running && member.node.poll_timeout().is_some_and(|at| at <= local) {
            member.node.handle_timeout(local);
            self.turn(place, None, application);
        } else {
            wire.rewake(member, place);
        }
    }

    fn deliver(&mut self, index: u32, application: &mut impl FnMut(&mut Turn<'_, N>)) {
        let Self { members, wire, whole, .. } = self;
        let datagram = &mut wire.datagrams[index as usize];
        let place = datagram.hop.to as usize;
        let member = &mut members[place];
        if wire.now_ps - datagram.sent_ps > member.transit_ps_max {
            wire.statistics.late += 1;
            wire.free.push(index);
            return;
        }
        if let Some(backlog) = &mut member.pause {
            if backlog.datagrams.len() < backlog.len_max {
                backlog.datagrams.push(index);
            } else {
                wire.statistics.overflowed += 1;
                wire.free.push(index);
            }
            return;
        }
        let is_heard = member.is_up && !datagram.is_damaged;
        if is_heard {
            note(&mut wire.statistics.trace_hash, wire.now_ps, datagram);
            wire.statistics.delivered += 1;
            let Hop { from, to_address, .. } = datagram.hop;
            let local = member.clock.local(wire.now);
            let path = Path { local: Some(to_address.ip()), peer: from };
            member.node.handle_datagram(local, path, datagram.whole(whole));
        } else if !member.is_up {
            wire.statistics.unheard += 1;
        }
        wire.free.push(index);
        if is_heard {
            self.turn(place, None, application);
        }
    }

    /// The application's turn, and what the node has to send after it.
    fn turn(
        &mut self,
        place: usize,
        alarm: Option<u64>,
        application: &mut impl FnMut(&mut Turn<'_, N>),
    ) {
        let Self { members, wire, .. } = self;
        let member = &mut members[place];
        let (now, local) = (wire.now, member.clock.local(wire.now));
        application(&mut Turn {
            node: &mut member.node,
            place,
            now,
            local,
            alarm,
            agenda: &mut wire.agenda,
        });
        self.flush(place);
    }

    /// Puts a wake on the agenda for the node's deadline, unless an earlier one is there.
    fn rewake(&mut self, place: usize) {
        self.wire.rewake(&mut self.members[place], place);
    }
}

impl Wire {
    fn advance_to(&mut self, now_ps: u64) {
        self.now_ps = self.now_ps.max(now_ps);
        self.now = self.now_ps / PS_PER_NS;
    }

    fn has_room(&self, place: usize, nic_room: NicRoom) -> bool {
        let (Some(fabric), place) = (&self.fabric, place as u32) else {
            return true;
        };
        match nic_room {
            NicRoom::Always => true,
            NicRoom::Below(bytes) => fabric.nic_backlog_bytes(place) < bytes,
            NicRoom::Idle(_) => fabric.nic_is_idle(place, self.now_ps),
        }
    }

    fn rewake<N: Node>(&mut self, member: &mut Member<N>, place: usize) {
        if !member.is_up || member.pause.is_some() {
            return;
        }
        if let Some(local) = member.node.poll_timeout() {
            let at_ps = member.clock.global(local).saturating_mul(PS_PER_NS).max(self.now_ps);
            if member.wakes.last().is_none_or(|&earliest| at_ps < earliest) {
                member.wakes.push(at_ps);
                self.agenda.post(at_ps, Event::Wake(place as u32).into());
            }
        }
    }

    /// One datagram leaves its node.
    fn send<N>(&mut self, member: &mut Member<N>, place: usize, transmit: &Transmit, bytes: &[u8]) {
        self.statistics.sent += 1;
        self.statistics.sent_bytes += bytes.len() as u64;
        let fate = member.path.fate(bytes.len());
        let from = match transmit.from {
            Source::Any | Source::Toward(_) => Some(member.address),
            Source::Local(ip) => {
                let own = SocketAddr::new(ip, member.address.port());
                let is_own = self.places.find(&own) == Some(place as u32);
                is_own.then_some(own)
            }
            Source::Spoofed(from) => Some(from),
        };
        let (Some(to), Some(from)) = (self.places.find(&transmit.to), from) else {
            self.statistics.stray += 1;
            return;
        };
        if !self.blocked.is_empty() && self.blocked.contains(&(place as u32, to)) {
            self.statistics.blocked += 1;
            return;
        }
        let (to_address, priority) = (transmit.to, transmit.priority);
        let hop = Hop { place: place as u32, to, to_address, from, priority };
        match fate.delay_ns {
            Some(delay_ns) => self.launch(&hop, bytes, delay_ns, fate.flipped_bit),
            None => self.statistics.lost += 1,
        }
        if let Some(delay_ns) = fate.second_delay_ns {
            self.statistics.duplicated += 1;
            self.launch(&hop, bytes, delay_ns, fate.flipped_bit);
        }
    }

    /// From the sender to its NIC, or to the receiver where there is no fabric.
    fn launch(&mut self, hop: &Hop, bytes: &[u8], delay_ns: u64, flipped_bit: Option<usize>) {
        let index = self.take_datagram();
        let datagram = &mut self.datagrams[index as usize];
        datagram.hop = *hop;
        datagram.sent_ps = self.now_ps;
        datagram.extra_ps = delay_ns * PS_PER_NS;
        datagram.len = bytes.len();
        datagram.head.clear();
        datagram.head.extend_from_slice(&bytes[..bytes.len().min(self.head_len_max)]);
        datagram.is_damaged = flipped_bit.is_some() && self.damage == Damage::Noticed;
        if let Some(bit) = flipped_bit {
            self.statistics.damaged += 1;
            datagram.head[bit / 8] ^= 1 << (bit % 8);
        }
        let Hop { place, to, priority, .. } = *hop;
        let (Some(fabric), Carriage::Links(wire_bytes)) = (&mut self.fabric, (self.framing)(bytes))
        else {
            let software_ns =
                self.delays[place as usize].transmit_ns + self.delays[to as usize].receive_ns;
            return self.send_aside(index, self.now_ps + (delay_ns + software_ns) * PS_PER_NS);
        };
        let packet = Packet { from: place, to, wire_bytes, priority, is_marked: false, tag: index };
        if let Some(Happening::Dropped(_)) = fabric.send(self.now_ps, packet, &mut self.agenda) {
            self.drop_datagram(index);
        }
    }

    /// It reaches its host at a time, without a link.
    fn send_aside(&mut self, index: u32, at_ps: u64) {
        let to = self.datagrams[index as usize].hop.to;
        match &self.border {
            Some(border) if border.is_beyond(to) => self.leave_aside(index, at_ps, to),
            _ => self.agenda.post(at_ps, Event::Deliver(index).into()),
        }
    }

    /// A switch has dropped it.
    fn drop_datagram(&mut self, index: u32) {
        self.statistics.dropped += 1;
        self.free.push(index);
    }

    fn take_datagram(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let hop = Hop { place: 0, to: 0, to_address: nowhere, from: nowhere, priority: 0 };
        self.datagrams.push(Datagram {
            hop,
            sent_ps: 0,
            extra_ps: 0,
            is_damaged: false,
            len: 0,
            head: Vec::new(),
        });
        u32::try_from(self.datagrams.len() - 1).expect("fewer than 2^32 datagrams are under way")
    }
}

impl<N: Node> Default for Network<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// A UDP datagram in an IPv4 packet in an Ethernet frame.
fn udp_framing(bytes: &[u8]) -> Carriage {
    Carriage::Links((bytes.len() as u32 + WIRE_OVERHEAD_BYTES).max(WIRE_BYTES_MIN))
}

fn post_alarm(agenda: &mut Agenda<Posted>, place: usize, at: Time, word: u64) {
    agenda.post(at.saturating_mul(PS_PER_NS), Event::Alarm(place as u32, word).into());
}

/// Mixes what makes a delivery into the hash: sixteen bytes at a time, long ones in four lanes that
/// do not wait for each other.
fn note(hash: &mut u64, now_ps: u64, datagram: &Datagram) {
    let start = mix(*hash ^ now_ps, u64::from(datagram.hop.to) << 32 | datagram.len as u64);
    let mut lanes = [start, 1, 2, 3];
    let (blocks, rest) = datagram.head.as_chunks::<64>();
    for block in blocks {
        for (lane, part) in lanes.iter_mut().zip(block.as_chunks::<16>().0) {
            *lane = mix_in(*lane, *part);
        }
    }
    let (parts, tail) = rest.as_chunks::<16>();
    for (lane, part) in lanes.iter_mut().zip(parts) {
        *lane = mix_in(*lane, *part);
    }
    let mut last = [0; 16];
    last[..tail.len()].copy_from_slice(tail);
    *hash = mix(mix_in(lanes[0], last) ^ lanes[1], lanes[2] ^ lanes[3].rotate_left(32));
}

fn mix_in(lane: u64, part: [u8; 16]) -> u64 {
    let word = u128::from_le_bytes(part);
    mix(lane ^ word as u64, (word >> 64) as u64)
}

/// The halves of a product, folded (wyhash).
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0xa076_1d64_78bd_642f) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    product as u64 ^ (product >> 64) as u64
}

/// Ethernet, IPv4 and UDP headers, checksum, preamble and gap between frames: 14 + 20 + 8 + 4 + 8 +
/// 12.
const WIRE_OVERHEAD_BYTES: u32 = 66;
/// The shortest Ethernet frame with preamble and gap.
const WIRE_BYTES_MIN: u32 = 84;

#[cfg(test)]
mod tests {
    use tailcut_proto::r2p2::{Config, Endpoint};
    use tailcut_proto::rpc::{Call, CallOptions, Rpc};

    use super::*;

    /// A call whose every datagram is damaged.
    fn check(damage: Damage, (delivered, damaged): (u64, u64)) {
        let mut network = Network::new();
        network.set_damage(damage);
        let [client, server] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 1)));
        let path = Impairment { corrupt: 1.0, duplicate: 1.0, delay_ns: 10, ..Impairment::NONE };
        network.add(client, Endpoint::new(0, Config::default()), path, 1);
        network.add(server, Endpoint::new(0, Config::default()), Impairment::default(), 2);
        let options = CallOptions::default();
        let call =
            Call { target: server, payload: vec![0; 8], deadline: 1_000_000, context: 0, options };
        network.node_mut(0).call(0, call).unwrap();
        network.flush(0);
        while network.next_time() == Some(10) {
            network.step(10, |_| {});
        }
        let found = network.statistics();
        assert_eq!((found.duplicated, found.damaged, found.delivered), (1, damaged, delivered));
    }

    #[test]
    fn damage_that_a_checksum_notices_reaches_no_node() {
        check(Damage::Noticed, (0, 2));
    }

    #[test]
    fn damage_that_nothing_notices_is_delivered() {
        check(Damage::Delivered, (2, 2));
    }
}
