//! Traces of NetClone's switch: requests of groups, and responses in any order, some of which never
//! come.

use std::fmt;
use std::net::SocketAddr;

use tailcut_wire::netclone::{CloneMark, Header, Op, Packet};
use zerocopy::IntoBytes;

use super::STEPS;
use crate::netclone::{Fallback, Switch, SwitchConfig};
use crate::node::Node;
use crate::policy::Draws;

/// A trace of one way to place what is not cloned.
#[derive(Clone, Debug)]
pub struct CloningTrace {
    /// Placement of a request that is not cloned.
    pub fallback: Fallback,
    /// Its parts, each of which begins with an empty switch.
    pub parts: Vec<CloningPart>,
}

/// Steps over the same servers.
#[derive(Clone, Debug)]
pub struct CloningPart {
    /// Number of servers.
    pub servers: u16,
    /// Cells in each of the filter's tables, a power of two.
    pub filter_len: u32,
    /// The id of the first request.
    pub first_seq: u32,
    /// The bits of `tidx` above the lowest, towards servers, of a switch that is a host.
    pub epoch: u32,
    /// The steps.
    pub steps: Vec<CloningStep>,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloningStep {
    /// A request comes.
    Request {
        /// The group that its client has drawn.
        group: u32,
        /// The filter's table that its client has drawn.
        table: u32,
        /// The id that it gets.
        seq: u32,
        /// Destinations of its copies.
        copies: Copies,
    },
    /// A response comes.
    Response {
        /// The server that answers.
        server: u16,
        /// The id of the request.
        seq: u32,
        /// The table of the request.
        table: u32,
        /// Mark of the copy that it answers.
        mark: CloneMark,
        /// Requests that wait at the server.
        load: u32,
        /// It goes on to the client; else it is the slower of two, and dropped.
        passes: bool,
    },
}

/// The servers that a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// One.
    One(u16),
    /// The original goes to the first and the clone to the second.
    Two(u16, u16),
}

impl CloningTrace {
    /// The trace of a fallback.
    pub fn new(fallback: Fallback) -> Self {
        Self { fallback, parts: PARTS.iter().map(|&part| Generator::run(fallback, part)).collect() }
    }
}

impl fmt::Display for CloningTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            let CloningPart { servers, filter_len, first_seq, .. } = part;
            writeln!(f, "servers {servers} filter {filter_len} seq {first_seq}")?;
            part.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for CloningStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Request { group, table, seq, copies } => {
                write!(f, "request {group} {table} -> {seq} {copies}")
            }
            Self::Response { server, seq, table, mark, load, passes } => {
                let verdict = if passes { "pass" } else { "drop" };
                write!(f, "response {server} {seq} {table} {} {load} -> {verdict}", mark as u32)
            }
        }
    }
}

impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(server) => write!(f, "{server}"),
            Self::Two(first, second) => write!(f, "{first} {second}"),
        }
    }
}

/// A switch, and what its servers have not answered yet.
struct Generator {
    /// Decides.
    switch: Switch,
    /// Number of servers.
    servers: u16,
    /// Draws that decide the next event.
    draws: Draws,
    /// Copies that are at servers.
    pending: Vec<(u16, Header)>,
}

impl Generator {
    fn run(fallback: Fallback, (servers, filter_len): (u16, u32)) -> CloningPart {
        let seed = u64::from(servers);
        let config = SwitchConfig {
            servers: (0..servers).map(addr).collect(),
            fallback,
            filter_len: filter_len as usize,
            seed,
            ..SwitchConfig::default()
        };
        let switch = Switch::new(0, config).expect("the configuration is in its limits");
        let draws = Draws::new(seed);
        let mut generator = Self { switch, servers, draws, pending: Vec::new() };
        let mut part =
            CloningPart { servers, filter_len, first_seq: 0, epoch: 0, steps: Vec::new() };
        while part.steps.len() < STEPS / PARTS.len() {
            let step = generator.step();
            if let (CloningStep::Request { seq, .. }, 0) = (step, part.first_seq) {
                part.first_seq = seq;
                part.epoch = generator.pending[0].1.tidx.get() & !1;
            }
            part.steps.push(step);
        }
        part
    }

    fn step(&mut self) -> CloningStep {
        // So that many wait for their answers, and a small filter has collisions.
        let is_request = self.draws.below(100) < if self.pending.len() < 60 { 55 } else { 20 };
        if is_request || self.pending.is_empty() {
            return self.request();
        }
        let index = self.draws.below(self.pending.len() as u32) as usize;
        let (server, header) = self.pending.swap_remove(index);
        if header.clo.get() == CloneMark::Clone as u32 && self.draws.below(8) == 0 {
            // Its server has discarded it.
            return self.request();
        }
        self.response(server, header)
    }

    fn request(&mut self) -> CloningStep {
        let groups = u32::from(self.servers) * u32::from(self.servers - 1);
        // The first and the last that there are not, too.
        let (group, table) = (self.draws.below(groups + 2), self.draws.below(2));
        let header = Header { grp: group.into(), tidx: table.into(), ..Header::default() };
        let sent = self.pass(SocketAddr::from(CLIENT), header);
        let place = |&(to, header): &(SocketAddr, Header)| (to.port() - FIRST_PORT, header);
        let copies: Vec<_> = sent.iter().map(place).collect();
        self.pending.extend_from_slice(&copies);
        let seq = copies[0].1.seq.get();
        let copies = match copies[..] {
            [(first, _), (second, _)] => Copies::Two(first, second),
            _ => Copies::One(copies[0].0),
        };
        CloningStep::Request { group, table, seq, copies }
    }

    fn response(&mut self, server: u16, header: Header) -> CloningStep {
        let load = match self.draws.below(10) {
            0..8 => 0,
            _ => 1 + self.draws.below(3),
        };
        let (op, sid) = ((Op::Response as u32).into(), u32::from(server).into());
        let header = Header { op, sid, load: load.into(), ..header };
        let passes = !self.pass(addr(server), header).is_empty();
        CloningStep::Response {
            server,
            seq: header.seq.get(),
            table: header.tidx.get() & 1,
            mark: CloneMark::from_field(header.clo).expect("the switch has set it"),
            load,
            passes,
        }
    }

    /// Packets that the switch sends for one, with their destinations.
    fn pass(&mut self, from: SocketAddr, mut header: Header) -> Vec<(SocketAddr, Header)> {
        self.switch.handle_datagram(0, from.into(), header.as_mut_bytes());
        let (mut buffer, mut sent) = ([0; 256], Vec::new());
        while let Some(transmit) = self.switch.poll_transmit(0, &mut buffer) {
            for datagram in buffer[..transmit.len].chunks(transmit.segment_len) {
                let packet = Packet::parse(datagram).expect("the switch sends packets");
                sent.push((transmit.to, *packet.header));
            }
        }
        sent
    }
}

fn addr(server: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 1], FIRST_PORT + server))
}

/// Port of the server 0.
const FIRST_PORT: u16 = 1_000;
const CLIENT: ([u8; 4], u16) = ([10, 0, 2, 1], 40_000);

/// Servers and cells of each part: small filters, in which ids collide, and published ones.
const PARTS: [(u16, u32); 4] = [(2, 16), (3, 64), (6, 1 << 17), (16, 1 << 17)];

#[cfg(test)]
mod tests {
    use super::*;

    /// A switch that is a host has the epoch in `tidx`, above the table that the client has drawn.
    #[test]
    fn the_epoch_of_a_part_is_what_its_switch_adds_to_the_table() {
        let part = Generator::run(Fallback::First, PARTS[0]);
        let CloningStep::Request { table, seq, .. } = part.steps[0] else { panic!("no request") };
        assert_eq!((part.first_seq, part.epoch & 1), (seq, 0));
        let config = SwitchConfig {
            servers: (0..part.servers).map(addr).collect(),
            filter_len: part.filter_len as usize,
            seed: part.servers.into(),
            ..SwitchConfig::default()
        };
        let switch = Switch::new(0, config).expect("the configuration is in its limits");
        let draws = Draws::new(0);
        let mut replay = Generator { switch, servers: part.servers, draws, pending: Vec::new() };
        let header = Header { tidx: table.into(), ..Header::default() };
        let sent = replay.pass(SocketAddr::from(CLIENT), header);
        assert_eq!(sent[0].1.tidx.get(), part.epoch | table);
    }
}
