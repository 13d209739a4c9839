//! NetClone's switch, as a node between clients and servers that speak its published format.
//!
//! | a packet is | event | then |
//! |---|---|---|
//! | a request | the pair of its group reports nobody waiting | cloned: marked, one copy to each |
//! | a request | otherwise | to the first of the pair, or with RackSched to the one where less wait |
//! | a request | servers of the pair are out or drained | to the other, or to the next that is in service |
//! | a response | its server is ours | its load is noted |
//! | a response | its id and its epoch are ours too | judged |
//! | a response of a clone | the other copy's has passed | dropped: filtered |
//! | a response | otherwise | forwarded to its client |
//!
//! The published program rewrites a packet's destination and leaves its source, since it stands in
//! the network where responses pass again. This node is a host: it sends from its own address, so
//! that responses come back, and keeps the client of each id, in a cell that the id picks. Clients
//! and servers see no difference but the address.
//!
//! Ids count as the switch's do, but begin at a random one; the bits of `tidx` above the lowest,
//! which servers echo and nobody reads, hold a random epoch towards servers and what the client
//! sent towards clients. So a response to what an earlier run of this node has sent goes nowhere.
//!
//! A published server that dies while idle keeps the load that it has reported last, and with it
//! gets originals and clones for ever. Here it is taken out once requests to it have gone
//! unanswered for `silent_ns` and others than it have answered meanwhile, and tried again. So a
//! network that pauses takes nobody out, and one server is always left.
//!
//! Servers may be drained while the switch runs. Their number and ids are part of the format's
//! groups, so that a server can only come under the id of one that was removed.
//!
//! A data plane before the switch may place what it can alone, by the same servers: what it has
//! placed and heard the switch is told ([`Switch::note_elsewhere`]), and decides who is out.
//!
//! Invariant: a response goes to the client of its request alone, once for each copy; no first
//! response is dropped for another id's.

mod config;
mod state;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use tailcut_wire::netclone::{CloneMark, Header, Malformed, Op, Packet, SEQ_MAX};
use zerocopy::FromBytes;

pub use self::config::{Fallback, SwitchConfig, SwitchError};
pub use self::state::pair;
use self::state::{Leave, Server};
use crate::node::{Node, Path, Source, Time, Transmit, is_unanswerable};
use crate::policy::Draws;
use crate::reply_filter::{ReplyFilter, Verdict};
use crate::router::outbox::{Datagram, Outbox};

/// The switch. See the module for what it does and [`SwitchConfig`] for its limits.
#[derive(Debug)]
pub struct Switch {
    /// The configuration; its servers are in `servers`.
    config: SwitchConfig,
    /// The servers, by their ids.
    servers: Vec<Server>,
    /// The last id that was given.
    seq: u32,
    /// Time of the last answer of any of them.
    answered_at: Time,
    /// This run, in the bits of `tidx` above the lowest.
    epoch: u32,
    /// Requests whose responses may come, by their ids.
    flights: Box<[Flight]>,
    /// Ids that wait for their second response.
    filter: ReplyFilter<NonZeroU32>,
    /// Datagrams to send.
    outbox: Outbox,
    /// Counters since the start.
    metrics: SwitchMetrics,
}

/// A request whose responses may come.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Its id; 0 for none.
    seq: u32,
    /// Value of `tidx` that its client sent.
    tidx: u32,
    /// Its client.
    client: SocketAddr,
    /// This host's address that the client asked.
    local: Option<IpAddr>,
}

/// A switch's counters since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchMetrics {
    /// Datagrams received.
    pub received: u64,
    /// Requests placed, cloned ones among them.
    pub placed: u64,
    /// Requests placed on two servers.
    pub cloned: u64,
    /// Requests of an unknown group, which get the first pair, as published.
    pub unknown_group: u64,
    /// Responses sent on to their clients.
    pub replies_forwarded: u64,
    /// Responses dropped because the other copy's has passed.
    pub replies_filtered: u64,
    /// Cloned requests whose clone was answered first.
    pub clones_won: u64,
    /// Ids whose cell in the filter another has taken.
    pub filter_evicted: u64,
    /// Responses that did not come from the server that they name, and requests from addresses that
    /// nothing can be sent to.
    pub replies_stranger: u64,
    /// Responses to an earlier run's requests, or to none that is remembered.
    pub replies_unknown: u64,
    /// Times that a server was taken out because it did not answer.
    pub servers_silenced: u64,
    /// Times that one returned.
    pub servers_returned: u64,
    /// Datagrams of a wrong length.
    pub malformed_length: u64,
    /// Datagrams that are neither requests nor responses.
    pub malformed_op: u64,
    /// Datagrams with a clone mark above 2.
    pub malformed_mark: u64,
    /// Requests longer than the configuration allows.
    pub too_large: u64,
    /// Datagrams dropped because the driver does not drain the outbox.
    pub outbox_full: u64,
    /// Datagrams dropped because they are longer than the driver's buffer.
    pub oversize: u64,
}

/// A server as the switch sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchServer {
    /// Its address.
    pub addr: SocketAddr,
    /// Requests that wait there, as it has reported last.
    pub load: u32,
    /// It is taken out, because it does not answer.
    pub is_silent: bool,
    /// It is to get nothing.
    pub is_drained: bool,
    /// And another may have its id.
    pub is_removed: bool,
    /// Requests sent there, clones among them.
    pub placed: u64,
    /// Responses that it has sent.
    pub answered: u64,
}

/// Counts of a server by a data plane before the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Requests that it has placed there, without clones.
    pub asked: u32,
    /// Responses that it has seen of the server.
    pub answered: u32,
    /// Requests that wait there, as the last of them said.
    pub load: u32,
}

impl Switch {
    /// A switch before the servers of the configuration, which are idle until they say otherwise.
    ///
    /// # Errors
    /// When a field is out of its range, or two servers share an address.
    pub fn new(now: Time, mut config: SwitchConfig) -> Result<Self, SwitchError> {
        config.check()?;
        let mut draws = Draws::new(config.seed);
        let servers = std::mem::take(&mut config.servers);
        let nobody = SocketAddr::from(([0; 4], 0));
        let flight = Flight { seq: 0, tidx: 0, client: nobody, local: None };
        Ok(Self {
            servers: servers.into_iter().map(Server::new).collect(),
            answered_at: now,
            seq: draws.below(SEQ_MAX),
            epoch: (draws.word() as u32) & !TABLE_BIT,
            flights: vec![flight; config.flights_len].into(),
            filter: ReplyFilter::new(config.filter_len),
            outbox: Outbox::new(config.outbox_len_max, 0),
            metrics: SwitchMetrics::default(),
            config,
        })
    }

    /// The counters.
    pub fn metrics(&self) -> SwitchMetrics {
        let (oversize, filter_evicted) = (self.outbox.oversize_count, self.filter.evicted());
        SwitchMetrics { oversize, filter_evicted, ..self.metrics }
    }

    /// The servers as they are now, by their ids.
    pub fn servers(&self) -> impl Iterator<Item = SwitchServer> + '_ {
        self.servers.iter().map(Server::status)
    }

    /// Takes note of what a data plane before this node has placed on a server, by its id, and
    /// heard of it since the last call. Panics for an id that no server has.
    pub fn note_elsewhere(&mut self, now: Time, id: usize, heard: Elsewhere) {
        self.metrics.servers_returned += u64::from(self.servers[id].note_elsewhere(now, heard));
        if heard.answered > 0 {
            self.answered_at = now;
        }
    }

    /// Gives a server nothing more, until it is resumed.
    ///
    /// # Errors
    ///
    /// For an address that no server has, and for the last that is not drained.
    pub fn drain_server(&mut self, addr: SocketAddr) -> Result<(), SwitchError> {
        self.leave(addr, Leave::Drained)
    }

    /// Gives a drained server requests again.
    ///
    /// # Errors
    ///
    /// For an address that no server has.
    pub fn resume_server(&mut self, addr: SocketAddr) -> Result<(), SwitchError> {
        self.server_mut(addr)?.leave = None;
        Ok(())
    }

    /// Gives a server nothing more, and its id to the next that is added. What it answers still
    /// passes until then.
    ///
    /// # Errors
    ///
    /// As [`Switch::drain_server`].
    pub fn remove_server(&mut self, addr: SocketAddr) -> Result<(), SwitchError> {
        self.leave(addr, Leave::Removed)
    }

    /// Takes a server into service, under the id of the first that was removed, which it must send;
    /// returns it.
    ///
    /// # Errors
    ///
    /// For an address that a server has, and where none was removed.
    pub fn add_server(&mut self, addr: SocketAddr) -> Result<usize, SwitchError> {
        if self.server_mut(addr).is_ok() {
            return Err(SwitchError::Exists { addr });
        }
        let is_free = |server: &Server| server.leave == Some(Leave::Removed);
        let id = self.servers.iter().position(is_free).ok_or(SwitchError::NoId)?;
        self.servers[id] = Server::new(addr);
        Ok(id)
    }

    fn leave(&mut self, addr: SocketAddr, leave: Leave) -> Result<(), SwitchError> {
        self.server_mut(addr)?;
        if !self.servers.iter().any(|server| server.leave.is_none() && server.addr != addr) {
            return Err(SwitchError::Last { addr });
        }
        self.server_mut(addr)?.leave = Some(leave);
        Ok(())
    }

    /// A server that was not removed.
    fn server_mut(&mut self, addr: SocketAddr) -> Result<&mut Server, SwitchError> {
        let known =
            |server: &&mut Server| server.addr == addr && server.leave != Some(Leave::Removed);
        self.servers.iter_mut().find(known).ok_or(SwitchError::Unknown { addr })
    }

    /// Nothing waits to be sent.
    pub fn is_idle(&self) -> bool {
        self.outbox.is_empty()
    }

    fn handle_request(&mut self, now: Time, path: Path, header: Header, bytes: &[u8]) {
        if bytes.len() > self.config.packet_len_max {
            self.metrics.too_large += 1;
            return;
        }
        // Two copies leave or none, so that what the filter hears of comes twice.
        if self.outbox.room() < 2 {
            self.metrics.outbox_full += 1;
            return;
        }
        if is_unanswerable(path.peer.ip()) || path.peer.port() == 0 {
            self.metrics.replies_stranger += 1;
            return;
        }
        let (first, second) = self.pair_of(now, header.grp.get());
        self.seq = if self.seq >= SEQ_MAX { 1 } else { self.seq + 1 };
        let tidx = header.tidx.get();
        let flight = Flight { seq: self.seq, tidx, client: path.peer, local: path.local };
        let place = self.flight_of(self.seq);
        self.flights[place] = flight;
        self.metrics.placed += 1;
        let loads = (self.servers[first].load, self.servers[second].load);
        let (seq, tidx) = (self.seq, self.epoch | tidx & TABLE_BIT);
        let mut header = Header { seq: seq.into(), tidx: tidx.into(), ..header };
        if first != second && loads == (0, 0) {
            self.metrics.cloned += 1;
            header.sid = (second as u32).into();
            self.send(now, first, header.marked(CloneMark::Original), bytes);
            return self.send(now, second, header.marked(CloneMark::Clone), bytes);
        }
        let is_second_shorter = self.config.fallback == Fallback::Shorter && loads.0 > loads.1;
        let chosen = if is_second_shorter { second } else { first };
        self.send(now, chosen, header.marked(CloneMark::Single), bytes);
    }

    /// The servers of a group, those that are out replaced. They are the same where one is left.
    fn pair_of(&mut self, now: Time, group: u32) -> (usize, usize) {
        let count = self.servers.len();
        let (first, second) = pair(group, count as u32).unwrap_or_else(|| {
            self.metrics.unknown_group += 1;
            (0, 1 % count)
        });
        let in_service = |server: &Server| server.is_in_service(now, &self.config);
        match (in_service(&self.servers[first]), in_service(&self.servers[second])) {
            (true, true) => (first, second),
            (true, false) => (first, first),
            (false, true) => (second, second),
            (false, false) => {
                let mut others = (first + 1..first + count).map(|at| at % count);
                // Who has answered last may be drained: then one that is silent must do.
                let other = others
                    .find(|&at| in_service(&self.servers[at]))
                    .or_else(|| (0..count).find(|&at| self.servers[at].leave.is_none()))
                    .expect("the last server is not drained");
                (other, other)
            }
        }
    }

    fn send(&mut self, now: Time, server: usize, header: Header, bytes: &[u8]) {
        let to = self.servers[server].addr;
        self.servers[server].note_sent(now, header.clo.get() != CloneMark::Clone as u32);
        self.push(to, Source::Any, header, bytes);
    }

    fn push(&mut self, to: SocketAddr, from: Source, header: Header, bytes: &[u8]) {
        let mut bytes = self.outbox.buffer(bytes);
        if let Ok((place, _)) = Header::mut_from_prefix(&mut bytes) {
            *place = header;
        }
        self.outbox.push(Datagram { to, from, bytes });
    }

    fn handle_response(&mut self, now: Time, path: Path, packet: &Packet, bytes: &[u8]) {
        let header = *packet.header;
        let sid = header.sid.get() as usize;
        let Some(server) = self.servers.get_mut(sid).filter(|server| server.addr == path.peer)
        else {
            self.metrics.replies_stranger += 1;
            return;
        };
        // Also of a response that is dropped below.
        self.metrics.servers_returned += u64::from(server.note_answer(header.load.get()));
        self.answered_at = now;
        let (seq, tidx) = (header.seq.get(), header.tidx.get());
        let flight = self.flights[self.flight_of(seq)];
        let id = NonZeroU32::new(seq).filter(|_| flight.seq == seq);
        let Some(id) = id.filter(|_| tidx & !TABLE_BIT == self.epoch) else {
            self.metrics.replies_unknown += 1;
            return;
        };
        if self.outbox.room() == 0 {
            // Before it is judged: what is lost here may not stand for the other.
            self.metrics.outbox_full += 1;
            return;
        }
        if packet.mark != CloneMark::Single {
            if self.filter.judge(tidx, seq.into(), id) == Verdict::Drop {
                self.metrics.replies_filtered += 1;
                return;
            }
            self.metrics.clones_won += u64::from(packet.mark == CloneMark::Clone);
        }
        let header = Header { tidx: flight.tidx.into(), ..header };
        self.metrics.replies_forwarded += 1;
        self.push(flight.client, flight.local.into(), header, bytes);
    }

    fn flight_of(&self, seq: u32) -> usize {
        seq as usize % self.flights.len()
    }

    /// Takes out servers that do not answer while others do.
    fn take_out(&mut self, now: Time) {
        let silent_ns = self.config.silent_ns;
        for server in &mut self.servers {
            let is_lost = server.is_lost(now, self.answered_at, silent_ns);
            self.metrics.servers_silenced += u64::from(is_lost);
        }
    }
}

impl Node for Switch {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.metrics.received += 1;
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(reason) => return self.metrics.count(reason),
        };
        match packet.op {
            Op::Request => self.handle_request(now, path, *packet.header, bytes),
            Op::Response => self.handle_response(now, path, &packet, bytes),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.take_out(now);
    }

    fn poll_transmit(&mut self, _now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.outbox.poll(buffer)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.servers.iter().filter_map(|server| server.lost_at(self.config.silent_ns)).min()
    }
}

impl SwitchMetrics {
    fn count(&mut self, reason: Malformed) {
        match reason {
            Malformed::Length => self.malformed_length += 1,
            Malformed::Op => self.malformed_op += 1,
            Malformed::Mark => self.malformed_mark += 1,
        }
    }
}

/// The bit of `tidx` that picks the filter's table.
const TABLE_BIT: u32 = 1;

#[cfg(test)]
mod tests;
