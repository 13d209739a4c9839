//! Links and switches: packets on their way between hosts, in picoseconds.
//!
//! | module | what it is |
//! |---|---|
//! | [`topology`] | which ports there are, and which of them a packet leaves a switch by |
//! | [`port`] | an egress: eight strict priorities, a buffer, a link |
//!
//! Every element sends through ports of one kind: a host's NIC is a port to its switch, a switch
//! has one for each neighbour. A packet is stored in whole and then forwarded.
//!
//! | event | when | then |
//! |---|---|---|
//! | a host sends | any time | queued at its NIC |
//! | [`Event::Free`] | a link has carried a packet, and another waits | the next by priority goes out |
//! | [`Event::Arrive`] | transmission, propagation and switching are over | queued at the switch's egress, or delivered |
//!
//! Invariant: packets of one priority leave a port in the order in which they came. A packet is
//! delivered, or dropped and counted.

pub mod port;
pub mod topology;

use tailcut_proto::policy::Draws;

use self::port::Element;
use self::port::{Admission, Port, PortCounters};
use self::topology::{Map, Split, Topology};
use crate::agenda::Agenda;

/// A packet as links and switches see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The host that sends it.
    pub from: u32,
    /// The host that it goes to.
    pub to: u32,
    /// Bytes on the wire, with all headers and the gap between frames.
    pub wire_bytes: u32,
    /// Strict priority, 0 lowest to 7.
    pub priority: u8,
    /// Marked by a switch because its queue was long.
    pub is_marked: bool,
    /// The sender's word for what it carries.
    pub tag: u32,
}

/// A future event of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A port may send its next packet.
    Free(u32),
    /// A packet has reached the next element.
    Arrive(u32),
}

/// An outcome of an event that its owner must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A packet has reached the host that it was for.
    Delivered(Packet),
    /// A packet was dropped by a switch whose buffer was full.
    Dropped(Packet),
    /// The NIC of this host has room again.
    NicFree(u32),
}

/// The links and switches between hosts.
#[derive(Debug)]
pub struct Fabric {
    map: Map,
    ports: Vec<Port>,
    /// Time of each host's software on the way out and in; in the delays of its ports already.
    software_ps: Vec<(u64, u64)>,
    /// Packets under way, and free places.
    flights: Vec<Flight>,
    /// First free place.
    free: u32,
    /// Draws of the paths of sprayed packets.
    draws: Draws,
    /// The region of the topology that this is, if it is one of several.
    region: Option<(Split, u32)>,
    /// Packets that have left it; empty between events.
    left: Vec<Left>,
}

/// A packet on a link to another region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Time at which it can be queued at the end of the link, ps.
    pub(crate) at_ps: u64,
    /// That end.
    pub(crate) next: Element,
    /// The region that has it.
    pub(crate) region: u32,
    pub(crate) packet: Packet,
}

/// A packet under way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    packet: Packet,
    /// Next element on its path.
    next: Element,
    /// The packet behind it in its queue, the first for the last; or the next free place.
    behind: u32,
}

impl Fabric {
    /// The fabric of a topology for `hosts` hosts at least; `seed` decides which way packets are
    /// sprayed.
    pub fn new(topology: &Topology, hosts: u32, seed: u64) -> Self {
        let (map, ports) = topology.build(hosts);
        let software_ps = vec![(0, 0); map.host_count()];
        let (flights, draws, left) = (Vec::new(), Draws::new(seed), Vec::new());
        Self { map, ports, software_ps, flights, free: NONE, draws, region: None, left }
    }

    /// Is one region of several from now on: what others have is theirs to carry.
    pub(crate) fn set_region(&mut self, split: Split, region: u32) {
        for port in &mut self.ports {
            port.is_border = matches!(port.to, Element::Spine(_) | Element::Core(_));
        }
        self.region = Some((split, region));
    }

    /// A packet that has left the region.
    pub(crate) fn poll_left(&mut self) -> Option<Left> {
        self.left.pop()
    }

    /// A packet is on a link from another region.
    pub(crate) fn enter<E: From<Event>>(&mut self, left: Left, agenda: &mut Agenda<E>) {
        let Left { at_ps, next, packet, .. } = left;
        let flight = self.take_place(Flight { packet, next, behind: NONE });
        agenda.post(at_ps, Event::Arrive(flight).into());
    }

    /// Hosts of the topology.
    pub fn host_count(&self) -> usize {
        self.map.host_count()
    }

    /// A host sends a packet.
    ///
    /// # Panics
    /// When `from` or `to` is no host of the topology.
    pub fn send<E: From<Event>>(
        &mut self,
        now: u64,
        packet: Packet,
        agenda: &mut Agenda<E>,
    ) -> Option<Happening> {
        let hosts = self.host_count();
        assert!(
            (packet.from.max(packet.to) as usize) < hosts,
            "hosts {} and {} of {hosts}",
            packet.from,
            packet.to
        );
        let flight =
            self.take_place(Flight { packet, next: Element::Host(packet.from), behind: NONE });
        self.queue(now, packet.from, flight, agenda)
    }

    /// Makes an event happen.
    pub fn handle<E: From<Event>>(
        &mut self,
        now: u64,
        event: Event,
        agenda: &mut Agenda<E>,
    ) -> Option<Happening> {
        match event {
            Event::Free(port) => {
                self.ports[port as usize].is_armed = false;
                if self.ports[port as usize].free_at > now {
                    // A packet that came at this very instant has taken the link already.
                    self.arm(port, agenda);
                    return None;
                }
                self.transmit(now, port, agenda);
                let is_nic = self.ports[port as usize].is_watched;
                is_nic.then_some(Happening::NicFree(port))
            }
            Event::Arrive(flight) => {
                let Flight { packet, next, .. } = self.flights[flight as usize];
                if let Element::Host(_) = next {
                    self.release(flight);
                    return Some(Happening::Delivered(packet));
                }
                let egress = self.map.egress(next, &packet, &mut self.draws);
                self.queue(now, egress, flight, agenda)
            }
        }
    }

    /// Bytes that wait at the NIC of a host.
    pub fn nic_backlog_bytes(&self, host: u32) -> u64 {
        self.ports[host as usize].queued_bytes()
    }

    /// True while the link of a host's NIC carries nothing, and nothing waits for it.
    pub fn nic_is_idle(&self, host: u32, now: u64) -> bool {
        let nic = &self.ports[host as usize];
        nic.is_empty() && nic.free_at <= now
    }

    /// Bytes that wait at the switch port that leads to a host; the packet on its link is not among
    /// them.
    pub fn last_hop_backlog_bytes(&self, host: u32) -> u64 {
        self.ports[self.map.last_hop(host) as usize].queued_bytes()
    }

    /// Reports [`Happening::NicFree`] for a host's NIC after each of its packets.
    pub fn watch_nic(&mut self, host: u32) {
        self.ports[host as usize].is_watched = true;
    }

    /// Sets what a host's software takes for each packet, from now on.
    ///
    /// It is put on the host's links: a NIC gives the same packets the same distances whether all
    /// of them come to it later or leave it later, and an event for each of them is saved.
    pub fn set_host_delays(&mut self, host: u32, transmit_ps: u64, receive_ps: u64) {
        let last_hop = self.map.last_hop(host);
        let before =
            std::mem::replace(&mut self.software_ps[host as usize], (transmit_ps, receive_ps));
        for (port, was, is) in [(host, before.0, transmit_ps), (last_hop, before.1, receive_ps)] {
            let egress = &mut self.ports[port as usize];
            egress.delay_ps = egress.delay_ps - was + is;
        }
    }

    /// Counters of a host's NIC.
    pub fn nic_counters(&self, host: u32) -> PortCounters {
        self.ports[host as usize].counters
    }

    /// Counters of the switch port that leads to a host.
    pub fn last_hop_counters(&self, host: u32) -> PortCounters {
        self.ports[self.map.last_hop(host) as usize].counters
    }

    /// Counters of all ports of switches.
    pub fn switch_counters(&self) -> PortCounters {
        self.ports[self.host_count()..]
            .iter()
            .fold(PortCounters::default(), |sum, port| sum.plus(port.counters))
    }

    /// Packets under way.
    pub fn in_flight(&self) -> usize {
        let free = std::iter::successors(Some(self.free), |&place| {
            self.flights.get(place as usize).map(|flight| flight.behind)
        });
        self.flights.len() - free.take_while(|&place| place != NONE).count()
    }

    fn queue<E: From<Event>>(
        &mut self,
        now: u64,
        port: u32,
        flight: u32,
        agenda: &mut Agenda<E>,
    ) -> Option<Happening> {
        let packet = &mut self.flights[flight as usize].packet;
        let egress = &mut self.ports[port as usize];
        match egress.admit(packet.wire_bytes) {
            Admission::Full => {
                let packet = *packet;
                self.release(flight);
                return Some(Happening::Dropped(packet));
            }
            Admission::Marked => packet.is_marked = true,
            Admission::Queued => {}
        }
        if egress.is_empty() && egress.free_at <= now {
            self.carry(now, port, flight, agenda);
            return None;
        }
        let last = egress.push(packet.priority, flight, packet.wire_bytes);
        let first = if last == NONE {
            flight
        } else {
            std::mem::replace(&mut self.flights[last as usize].behind, flight)
        };
        self.flights[flight as usize].behind = first;
        self.arm(port, agenda);
        None
    }

    /// Sends the next packet of a port whose link is free.
    fn transmit<E: From<Event>>(&mut self, now: u64, port: u32, agenda: &mut Agenda<E>) {
        let egress = &mut self.ports[port as usize];
        let Some((priority, last)) = egress.highest() else {
            return;
        };
        let first = self.flights[last as usize].behind;
        if first == last {
            egress.clear(priority);
        } else {
            self.flights[last as usize].behind = self.flights[first as usize].behind;
        }
        egress.unqueue(self.flights[first as usize].packet.wire_bytes);
        self.carry(now, port, first, agenda);
        if !self.ports[port as usize].is_empty() {
            self.arm(port, agenda);
        }
    }

    /// Puts a packet on the link of a port.
    fn carry<E: From<Event>>(&mut self, now: u64, port: u32, flight: u32, agenda: &mut Agenda<E>) {
        let egress = &mut self.ports[port as usize];
        let place = &mut self.flights[flight as usize];
        let free_at = egress.carry(now, place.packet.wire_bytes);
        let at_ps = free_at + egress.delay_ps;
        if egress.is_border
            && let Some((split, own)) = self.region
        {
            let (next, packet) = (egress.to, place.packet);
            let region = split.of_egress(next, packet.to);
            if region != own {
                self.left.push(Left { at_ps, next, region, packet });
                return self.release(flight);
            }
        }
        (place.next, place.behind) = (egress.to, NONE);
        agenda.post(at_ps, Event::Arrive(flight).into());
        if egress.is_watched {
            self.arm(port, agenda);
        }
    }

    /// Looks at a port again when its link is free.
    fn arm<E: From<Event>>(&mut self, port: u32, agenda: &mut Agenda<E>) {
        let egress = &mut self.ports[port as usize];
        if !egress.is_armed {
            egress.is_armed = true;
            agenda.post(egress.free_at, Event::Free(port).into());
        }
    }

    fn take_place(&mut self, flight: Flight) -> u32 {
        if self.free == NONE {
            self.flights.push(flight);
            return u32::try_from(self.flights.len() - 1)
                .expect("fewer than 2^32 packets are under way");
        }
        let place = self.free;
        self.free = self.flights[place as usize].behind;
        self.flights[place as usize] = flight;
        place
    }

    fn release(&mut self, flight: u32) {
        self.flights[flight as usize].behind = self.free;
        self.free = flight;
    }
}

/// No packet.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests;
