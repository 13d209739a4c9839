//! Nodes at addresses, joined by impaired paths, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use tailcut_proto::node::{Node, Path, TRAIN_BYTES_MAX, Time};

use crate::impair::{ImpairedPath, Impairment};

/// A network of nodes of one kind (an enum where several kinds meet).
#[derive(Debug)]
pub struct Network<N> {
    now: Time,
    members: Vec<Member<N>>,
    flights: BinaryHeap<Reverse<Flight>>,
    flown: u64,
    buffer: Vec<u8>,
    spare: Vec<Vec<u8>>,
    statistics: Statistics,
}

/// What went over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Datagrams lost.
    pub lost: u64,
    /// Datagrams to an address that no node has.
    pub stray: u64,
    /// A hash over every datagram delivered, its time and its place: equal runs have equal hashes.
    pub trace_hash: u64,
}

#[derive(Debug)]
struct Member<N> {
    address: SocketAddr,
    node: N,
    /// What happens to the datagrams that it sends.
    path: ImpairedPath,
    is_up: bool,
}

/// A datagram on its way. Ordered by arrival, then by sending, so that a run is determined.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    arrival: Time,
    order: u64,
    to: usize,
    from: SocketAddr,
    bytes: Vec<u8>,
}

impl<N: Node> Network<N> {
    /// An empty network at time 0.
    pub fn new() -> Self {
        let buffer = vec![0; TRAIN_BYTES_MAX];
        let (members, flights, spare) = (Vec::new(), BinaryHeap::new(), Vec::new());
        Self { now: 0, members, flights, flown: 0, buffer, spare, statistics: Statistics::default() }
    }

    /// Adds a node; tells its place.
    pub fn add(&mut self, address: SocketAddr, node: N, impairment: Impairment, seed: u64) -> usize {
        self.members.push(Member { address, node, path: ImpairedPath::new(impairment, seed), is_up: true });
        self.members.len() - 1
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
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

    /// Takes a node off the network or puts it back: while down it gets nothing and does nothing.
    pub fn set_up(&mut self, place: usize, is_up: bool) {
        self.members[place].is_up = is_up;
    }

    /// Replaces what happens to the datagrams that a node sends from now on.
    pub fn impair(&mut self, place: usize, impairment: Impairment, seed: u64) {
        self.members[place].path = ImpairedPath::new(impairment, seed);
    }

    /// What went over the network so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Sends what the node at a place has to send.
    pub fn flush(&mut self, place: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        if self.members[place].is_up {
            while let Some(transmit) = self.members[place].node.poll_transmit(self.now, &mut buffer) {
                let from = transmit.from.unwrap_or(self.members[place].address);
                for datagram in buffer[..transmit.len].chunks(transmit.segment_len.max(1)) {
                    self.send(place, from, transmit.to, datagram);
                }
            }
        }
        self.buffer = buffer;
    }

    /// Runs until `until`. After each input to a node, `application` sees it with the time and its place, to take events and
    /// give work.
    pub fn run(&mut self, until: Time, mut application: impl FnMut(&mut N, Time, usize)) {
        while let Some(next) = self.next_time().filter(|&next| next <= until) {
            self.now = self.now.max(next);
            self.step(&mut application);
        }
        self.now = self.now.max(until);
    }

    /// When something happens next.
    pub fn next_time(&self) -> Option<Time> {
        let flight = self.flights.peek().map(|Reverse(flight)| flight.arrival);
        let timeouts = self.members.iter().filter(|member| member.is_up).filter_map(|member| member.node.poll_timeout());
        flight.into_iter().chain(timeouts).min()
    }

    fn step(&mut self, application: &mut impl FnMut(&mut N, Time, usize)) {
        for place in 0..self.members.len() {
            let member = &mut self.members[place];
            if member.is_up && member.node.poll_timeout().is_some_and(|at| at <= self.now) {
                member.node.handle_timeout(self.now);
                application(&mut member.node, self.now, place);
                self.flush(place);
            }
        }
        while self.flights.peek().is_some_and(|Reverse(flight)| flight.arrival <= self.now) {
            let Some(Reverse(flight)) = self.flights.pop() else {
                return;
            };
            let member = &mut self.members[flight.to];
            if member.is_up {
                note(&mut self.statistics.trace_hash, &flight);
                member.node.handle_datagram(self.now, Path { peer: flight.from }, &flight.bytes);
                application(&mut member.node, self.now, flight.to);
                self.flush(flight.to);
            }
            self.spare.push(flight.bytes);
        }
    }

    fn send(&mut self, place: usize, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        self.statistics.sent += 1;
        self.statistics.sent_bytes += datagram.len() as u64;
        let fate = self.members[place].path.fate(self.now, datagram.len());
        let Some(to) = self.members.iter().position(|member| member.address == to) else {
            self.statistics.stray += 1;
            return;
        };
        if fate.arrival.is_none() {
            self.statistics.lost += 1;
        }
        for arrival in fate.arrival.into_iter().chain(fate.second_arrival) {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(datagram);
            if let Some(bit) = fate.flipped_bit {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            self.flown += 1;
            self.flights.push(Reverse(Flight { arrival, order: self.flown, to, from, bytes }));
        }
    }
}

impl<N: Node> Default for Network<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// FNV-1a over what makes a delivery.
fn note(hash: &mut u64, flight: &Flight) {
    let place = (flight.to as u64).to_be_bytes();
    for &byte in flight.arrival.to_be_bytes().iter().chain(&place).chain(&flight.bytes) {
        *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
}
