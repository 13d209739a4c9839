//! A router that is killed and started again before a program that goes on placing: whose slots are
//! what.

use std::net::SocketAddr;

use tailcut_net::clock::Clock;
use tailcut_net::ebpf::Verdict;
use tailcut_proto::node::{Node, Time};
use tailcut_proto::policy::Draws;
use tailcut_proto::policy::WorkerId;
use tailcut_proto::router::{
    Forward, Router, RouterConfig, ServerConfig, ServerState, SharedPlaces, Speaks,
};
use tailcut_wire::r2p2::{MessageType, RpcId, Segment};

use super::bench::{Bench, Frame, Report, client, listen_v4, request, server};

#[test]
fn slots_are_exact_within_two_reports_of_a_restart() {
    let Some(mut world) = World::new() else { return };
    let (mut unsent, mut alone) = (0, 0);
    for _ in 0..40 {
        world.start();
        world.work(150);
        unsent += world.die_amid_a_burst();
        let before = world.placed_by_program;
        world.work(150);
        alone += world.placed_by_program - before;
        // And once more, with nothing after it that would tell.
        world.start();
        unsent += world.die_amid_a_burst();
        assert!(world.differs(), "a place is taken for what was never sent");
        world.start();
        for _ in 0..2 {
            world.probe();
        }
        assert!(!world.differs(), "{:?}", world.slots());
    }
    // Both kinds of counts were at stake: what was placed and never sent, and what the program
    // placed meanwhile.
    assert!(unsent > 80 && alone > 1_000, "{unsent} unsent, {alone} placed meanwhile");
    assert_eq!(world.lost_reports, 0, "each report is taken, or the router's");
}

/// A program, its router while it lives, and servers.
struct World {
    bench: Bench,
    router: Option<Router>,
    servers: Vec<Model>,
    draws: Draws,
    /// Ahead of the clock, which probes wait for.
    ahead: Time,
    next_id: u64,
    placed_by_program: u64,
    /// Reports that the program would have dropped without taking them.
    lost_reports: u64,
}

/// A server that has what it was sent until it concludes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Model {
    seen: u32,
    received: u32,
    concluded: u32,
}

impl Model {
    fn outstanding(self) -> u32 {
        self.received - self.concluded
    }
}

impl World {
    fn new() -> Option<Self> {
        let bench = Bench::new(listen_v4(), "jbsq:8".parse().expect("a policy"), SERVERS)?;
        // As the bench has told the program.
        let servers = vec![Model { seen: 100, ..Model::default() }; SERVERS.into()];
        Some(Self {
            bench,
            router: None,
            servers,
            draws: Draws::new(20),
            ahead: 0,
            next_id: 1,
            placed_by_program: 0,
            lost_reports: 0,
        })
    }

    fn now(&self) -> Time {
        Clock.now() + self.ahead
    }

    /// Begins a router, which finds what the program has.
    fn start(&mut self) {
        let named = (0..SERVERS).map(|slot| ServerConfig {
            addr: server(self.bench.listen, slot),
            speaks: Speaks::Extension,
        });
        let config = RouterConfig {
            policy: "jbsq:8".parse().expect("a policy"),
            forward: Forward::Keep,
            servers: named.collect(),
            ..RouterConfig::default()
        };
        let now = self.now();
        let mut router = Router::new(now, config).expect("a router");
        router.share_places(now, Box::new(self.bench.xdp.places()));
        let states: Vec<_> = router.servers().map(|server| server.state).collect();
        assert_eq!(states, [ServerState::InService; SERVERS as usize], "they stay in service");
        self.router = Some(router);
        self.drain();
    }

    /// Some requests come and some are concluded.
    fn work(&mut self, steps: u32) {
        for _ in 0..steps {
            let outstanding: u32 = self.servers.iter().map(|server| server.outstanding()).sum();
            if outstanding < 20 && self.draws.below(5) < 3 {
                let is_long = self.draws.below(4) == 0;
                self.call(is_long);
                self.drain();
            } else {
                let slot = self.draws.below(SERVERS.into()) as usize;
                self.conclude(slot);
            }
        }
    }

    /// The router takes places for requests, and ends before it has sent them; returns how many.
    fn die_amid_a_burst(&mut self) -> u32 {
        let before: u32 = self.placed();
        for _ in 0..3 {
            self.call(true);
        }
        self.router = None;
        self.placed().wrapping_sub(before)
    }

    fn placed(&self) -> u32 {
        (0..SERVERS).map(|slot| self.bench.places.counts(WorkerId(slot.into())).placed).sum()
    }

    /// A request, which the program places if it is short, and the router if it is long.
    fn call(&mut self, is_long: bool) {
        self.next_id += 1;
        let (id, len) = (RpcId(self.next_id), if is_long { 1_440 } else { 4 });
        let mut payload = request(|repr, _| {
            repr.rpc_id = id;
            repr.segment = Segment { message_len: len, segment_len: 1_440, ..Segment::CONTROL };
        });
        payload.resize(72 + len as usize, 0);
        let from = client(self.bench.listen);
        let tested = self.bench.send(from, &payload);
        match tested.verdict {
            Verdict::Transmit => {
                self.placed_by_program += 1;
                self.arrive(tested.packet[5].into(), &tested.packet[42..]);
            }
            Verdict::Pass => self.hand(from, payload),
            other => panic!("{other:?}"),
        }
    }

    /// Hands a packet to the router; it is lost where there is none.
    fn hand(&mut self, from: SocketAddr, mut payload: Vec<u8>) {
        let now = self.now();
        if let Some(router) = &mut self.router {
            router.handle_datagram(now, from.into(), &mut payload);
        }
    }

    /// Sends what the router has to send.
    fn drain(&mut self) {
        let (now, mut buffer) = (self.now(), vec![0; 9_000]);
        while let Some(transmit) =
            self.router.as_mut().and_then(|router| router.poll_transmit(now, &mut buffer))
        {
            let slot = (0..SERVERS).find(|&slot| server(self.bench.listen, slot) == transmit.to);
            if let Some(slot) = slot {
                self.arrive(slot.into(), &buffer[..transmit.len]);
            }
        }
    }

    /// A server sees a request, or a probe, which it answers.
    fn arrive(&mut self, slot: usize, bytes: &[u8]) {
        let is = |kind: MessageType| bytes[2] >> 4 == kind as u8;
        let at = if is(MessageType::Request) { 68 } else { 48 };
        let number = u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let server = &mut self.servers[slot];
        server.seen = server.seen.max(number);
        if is(MessageType::Request) {
            server.received += 1;
        } else if is(MessageType::Probe) {
            self.report(slot);
        }
    }

    fn conclude(&mut self, slot: usize) {
        if self.servers[slot].outstanding() > 0 {
            self.servers[slot].concluded += 1;
            self.report(slot);
            self.drain();
        }
    }

    fn report(&mut self, slot: usize) {
        let Model { seen, received, concluded } = self.servers[slot];
        let report = Report { seen, received, concluded }.bytes(|_, _| {});
        let from = server(self.bench.listen, slot as u16);
        let frame = Frame::new(from, self.bench.listen, &report).bytes();
        match self.bench.run(&frame).verdict {
            Verdict::Pass => self.hand(from, report),
            Verdict::Drop => {
                let known = self.bench.places.counts(WorkerId::at(slot));
                self.lost_reports += u64::from(known.concluded != concluded);
            }
            other => panic!("{other:?}"),
        }
    }

    /// An interval of feedback: each server is asked, and answers.
    fn probe(&mut self) {
        self.ahead += RouterConfig::default().probe_interval_ns + 1_000_000;
        let now = self.now();
        self.router.as_mut().expect("it runs").handle_timeout(now);
        self.drain();
    }

    /// Requests outstanding at each server: as the program reckons, and as there are.
    fn slots(&self) -> Vec<(u32, u32)> {
        let slot = |(slot, server): (u16, &Model)| {
            let known = self.bench.places.counts(WorkerId(slot.into()));
            let at_server = known.received.wrapping_sub(known.concluded);
            (known.placed.wrapping_sub(known.seen) + at_server, server.outstanding())
        };
        (0..SERVERS).zip(&self.servers).map(slot).collect()
    }

    fn differs(&self) -> bool {
        self.slots().iter().any(|(known, there)| known != there)
    }
}

const SERVERS: u16 = 4;
