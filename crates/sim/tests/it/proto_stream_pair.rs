//! Streams between two hosts over an impaired path: every byte once and in order, in both
//! directions, in bounded memory.
//!
//! The applications act on what [`Streams::poll_changed`] names and on nothing else, so that a
//! change that it keeps to itself stops a test.

use std::net::SocketAddr;

use crate::pair::Transport;
use tailcut_proto::node::Time;
use tailcut_proto::rpc::Failure;
use tailcut_proto::stream::{Config, Fault, Holdings, StreamId, Streams};
use tailcut_proto::{homa, r2p2};
use tailcut_sim::impair::Impairment;
use tailcut_sim::network::{Damage, Network, Statistics};

const MS: Time = 1_000_000;
const SECOND: Time = 1000 * MS;
const SIZES: [u64; 8] = [0, 1, 100, 65_535, 65_536, 65_537, 1_000_000, 5_000_000];

/// Two hosts and their applications.
struct Stage<E> {
    network: Network<Streams<E>>,
    sides: [Side; 2],
}

/// An application: what it does with each stream, and how far it is.
#[derive(Default)]
struct Side {
    flows: Vec<Flow>,
    /// Bytes that it sends on each stream, and bytes that it expects.
    lens: (u64, u64),
    is_opener: bool,
    /// It reads nothing.
    is_paused: bool,
    /// It writes nothing before it has heard everything.
    is_second: bool,
    /// Most bytes held at any time.
    held_max: usize,
}

struct Flow {
    id: StreamId,
    /// Known to the opener, and to the other side when it has read it.
    number: Option<u64>,
    head: Vec<u8>,
    written: u64,
    read: u64,
    has_finished: bool,
    has_ended: bool,
    is_closed: bool,
    fault: Option<Fault>,
}

/// The byte at `at` of stream `number`: its first eight bytes from the opener are the number.
fn byte(number: u64, from_opener: bool, at: u64) -> u8 {
    match at {
        0..8 if from_opener => number.to_be_bytes()[at as usize],
        _ => {
            (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
                ^ (number as u8)
                ^ u8::from(from_opener)
        }
    }
}

impl Flow {
    fn new(id: StreamId, number: Option<u64>) -> Self {
        let (head, fault) = (Vec::new(), None);
        Self {
            id,
            number,
            head,
            written: 0,
            read: 0,
            has_finished: false,
            has_ended: false,
            is_closed: false,
            fault,
        }
    }

    fn is_done(&self) -> bool {
        self.is_closed || self.fault.is_some()
    }
}

impl Side {
    fn act<E: Transport>(&mut self, node: &mut Streams<E>, now: Time) {
        while let Some((id, _)) = node.accept() {
            let number = (self.lens.1 < 8).then_some(0);
            self.flows.push(Flow::new(id, number));
        }
        while let Some(id) = node.poll_changed() {
            if let Some(place) = self.flows.iter().position(|flow| flow.id == id) {
                self.step(node, now, place);
            }
        }
        self.held_max = self.held_max.max(node.holdings().buffered_bytes);
    }

    fn step<E: Transport>(&mut self, node: &mut Streams<E>, now: Time, place: usize) {
        if !self.is_paused {
            self.read(node, place);
        }
        let flow = &mut self.flows[place];
        if flow.number.is_some() && (!self.is_second || flow.has_ended) {
            self.write(node, place);
        }
        let flow = &mut self.flows[place];
        if flow.has_ended && node.status(flow.id).is_some_and(|status| status.is_finished) {
            node.close(now, flow.id);
            flow.is_closed = true;
        }
    }

    fn read<E: Transport>(&mut self, node: &mut Streams<E>, place: usize) {
        let flow = &mut self.flows[place];
        let mut buffer = [0; 10_007];
        loop {
            match node.read(flow.id, &mut buffer) {
                Ok(None) => return,
                Ok(Some(0)) => {
                    assert_eq!(flow.read, self.lens.1, "the end comes after everything");
                    flow.has_ended = true;
                    return;
                }
                Ok(Some(len)) => {
                    if !self.is_opener && flow.number.is_none() {
                        flow.head.extend(&buffer[..len.min(8 - flow.head.len())]);
                        flow.number =
                            flow.head.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                    }
                    for (&found, at) in buffer[..len].iter().zip(flow.read..) {
                        let number = flow.number.unwrap_or(0);
                        assert!(
                            flow.number.is_none() || found == byte(number, !self.is_opener, at),
                            "stream {number} at {at}"
                        );
                    }
                    flow.read += len as u64;
                }
                Err(fault) => {
                    flow.fault = Some(fault);
                    return;
                }
            }
        }
    }

    fn write<E: Transport>(&mut self, node: &mut Streams<E>, place: usize) {
        let flow = &mut self.flows[place];
        let number = flow.number.unwrap_or(0);
        while flow.written < self.lens.0 {
            let len = (self.lens.0 - flow.written).min(30_011);
            let bytes: Vec<u8> = (flow.written..flow.written + len)
                .map(|at| byte(number, self.is_opener, at))
                .collect();
            match node.write(flow.id, &bytes) {
                Ok(0) => return,
                Ok(taken) => flow.written += taken as u64,
                Err(fault) => {
                    flow.fault = Some(fault);
                    return;
                }
            }
        }
        if !flow.has_finished && flow.fault.is_none() {
            node.finish(flow.id).expect("it may be finished");
            flow.has_finished = true;
        }
    }
}

impl<E: Transport> Stage<E> {
    /// Two hosts; each stream carries `lens` bytes from its opener and back.
    fn new(
        impairment: Impairment,
        seed: u64,
        lens: (u64, u64),
        adjust: impl Fn(&mut Config),
    ) -> Self {
        let mut network = Network::new();
        for place in 0..2 {
            let node = start::<E>(0, (seed, place), &adjust);
            network.add(address(place), node, impairment, 2 * seed + place as u64);
        }
        network.set_damage(Damage::Noticed);
        network.run(SECOND, |_| {});
        let opener = Side { lens, is_opener: true, ..Side::default() };
        let other = Side { lens: (lens.1, lens.0), ..Side::default() };
        Self { network, sides: [opener, other] }
    }

    fn connect(&mut self, number: u64) {
        let now = self.network.now();
        let id = self.network.node_mut(0).connect(now, address(1)).expect("a stream");
        self.sides[0].flows.push(Flow::new(id, Some(number)));
        let place = self.sides[0].flows.len() - 1;
        self.sides[0].step(self.network.node_mut(0), now, place);
        self.network.flush(0);
    }

    fn run_for(&mut self, span_ns: Time) {
        let Self { network, sides } = self;
        network.run(network.now() + span_ns, |turn| sides[turn.place].act(turn.node, turn.now));
    }

    /// Runs until every stream is done on both sides, or for so many seconds.
    fn run_to_end(&mut self, streams: usize, seconds: u64) {
        let limit = self.network.now() + seconds * SECOND;
        let is_done =
            |side: &Side| side.flows.len() == streams && side.flows.iter().all(Flow::is_done);
        while !self.sides.iter().all(is_done) && self.network.now() < limit {
            self.run_for(MS);
        }
    }

    fn step(&mut self, place: usize, flow: usize) {
        let now = self.network.now();
        self.sides[place].step(self.network.node_mut(place), now, flow);
        self.network.flush(place);
    }

    /// Every stream carried everything, and nothing is left of it.
    fn check(&mut self, streams: usize, what: &str) {
        for side in &self.sides {
            assert_eq!(side.flows.len(), streams, "{what}");
            for flow in &side.flows {
                assert_eq!(
                    (flow.fault, flow.is_closed),
                    (None, true),
                    "{what}: {} of {}",
                    flow.read,
                    side.lens.1
                );
                assert_eq!((flow.written, flow.read), side.lens, "{what}");
            }
        }
        self.run_for(20 * SECOND);
        for place in 0..2 {
            let node = self.network.node(place);
            assert_eq!(node.holdings(), Holdings::default(), "{what}: nothing is held for ever");
            assert_eq!((node.metrics().broken, node.metrics().failed), (0, 0), "{what}");
        }
    }
}

fn start<E: Transport>(
    salt: u8,
    (seed, place): (u64, usize),
    adjust: &impl Fn(&mut Config),
) -> Streams<E> {
    let mut secret = [salt; 16];
    secret[..8].copy_from_slice(&seed.to_be_bytes());
    secret[8] = place as u8;
    let mut config = Config { secret, ..Config::default() };
    adjust(&mut config);
    Streams::new(E::start(E::config(secret)), config)
}

fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, place as u8 + 1], 33_000))
}

fn plain(_: &mut Config) {}

fn carry<E: Transport>(
    impairment: Impairment,
    seed: u64,
    lens: (u64, u64),
    streams: u64,
) -> Stage<E> {
    let mut stage = Stage::<E>::new(impairment, seed, lens, plain);
    (0..streams).for_each(|number| stage.connect(number));
    stage.run_to_end(streams as usize, 120);
    stage.check(streams as usize, &format!("{lens:?} bytes, seed {seed}, {impairment:?}"));
    stage
}

#[test]
fn streams_of_every_size_arrive() {
    for there in SIZES {
        for back in [0, 1, 65_536, 3_000_000] {
            carry::<homa::Endpoint>(Impairment::default(), 1, (there, back), 1);
            carry::<r2p2::Endpoint>(Impairment::default(), 1, (there, back), 1);
        }
    }
}

#[test]
fn streams_survive_loss_duplicates_and_reordering() {
    for (seed, loss) in [(1, 0.001), (2, 0.01), (3, 0.05), (4, 0.2)] {
        let jitter_ns = 100_000;
        let impairment = Impairment {
            loss,
            duplicate: 0.02,
            corrupt: 0.01,
            delay_ns: 5000,
            jitter_ns,
            ..Impairment::NONE
        };
        carry::<homa::Endpoint>(impairment, seed, (700_000, 1_300_000), 3);
        carry::<r2p2::Endpoint>(impairment, seed, (700_000, 300_000), 3);
    }
}

#[test]
fn messages_overtake_each_other_and_bytes_do_not() {
    let impairment =
        Impairment { reorder: 0.1, reorder_ns: 300_000, delay_ns: 5000, ..Impairment::NONE };
    let stage = carry::<homa::Endpoint>(impairment, 7, (5_000_000, 100), 1);
    assert!(stage.network.node(1).metrics().early_bytes > 0, "nothing came early");
}

#[test]
fn many_streams_share_the_hosts() {
    let impairment =
        Impairment { loss: 0.01, delay_ns: 5000, jitter_ns: 20_000, ..Impairment::NONE };
    carry::<homa::Endpoint>(impairment, 9, (20_000, 50_000), 100);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let impairment = Impairment { loss: 0.05, jitter_ns: 50_000, ..Impairment::default() };
    let run = |seed| -> Statistics {
        carry::<homa::Endpoint>(impairment, seed, (300_000, 300_000), 2).network.statistics()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn a_side_may_answer_after_the_other_has_ended() {
    for second in [0, 1] {
        let impairment = Impairment { loss: 0.01, ..Impairment::default() };
        let mut stage = Stage::<homa::Endpoint>::new(impairment, 5, (200_000, 300_000), plain);
        stage.sides[second].is_second = true;
        // The other side cannot wait for a number that is not sent before it has ended itself.
        stage.sides[1].lens = if second == 0 { (300_000, 7) } else { (300_000, 200_000) };
        stage.sides[0].lens = if second == 0 { (7, 300_000) } else { (200_000, 300_000) };
        stage.connect(0);
        stage.run_to_end(1, 20);
        stage.check(1, &format!("side {second} is second"));
    }
}

#[test]
fn a_reader_that_stops_stops_the_writer() {
    let window = 300_000;
    let mut stage =
        Stage::<homa::Endpoint>::new(Impairment::default(), 1, (5_000_000, 0), |config| {
            config.window_max = window
        });
    stage.sides[1].is_paused = true;
    // What the other side is to be told it reads from the stream, which it does not.
    stage.sides[1].lens = (0, 5_000_000);
    stage.connect(0);
    stage.run_for(SECOND);
    let (written, sent) = (stage.sides[0].flows[0].written, stage.network.statistics().sent);
    let held = [0, 1].map(|place| stage.network.node(place).holdings().buffered_bytes);
    assert!(held.iter().all(|&held| held <= window), "{held:?}");
    assert_eq!(written, 2 * window as u64, "a window at each side");
    stage.run_for(10 * SECOND);
    assert_eq!(stage.sides[0].flows[0].written, written);
    assert_eq!(stage.network.statistics().sent, sent, "nothing is sent while nothing is read");
    stage.sides[1].is_paused = false;
    stage.step(1, 0);
    stage.run_to_end(1, 10);
    stage.check(1, "after a pause");
    assert!(stage.sides.iter().all(|side| side.held_max <= window));
}

#[test]
fn windows_shrink_when_there_are_many() {
    let total = 2 << 20;
    let shrink =
        |config: &mut Config| (config.windows_bytes_max, config.window_min) = (total, 16 << 10);
    let mut stage =
        Stage::<homa::Endpoint>::new(Impairment::default(), 1, (1_000_000, 1000), shrink);
    stage.sides[1].is_paused = true;
    (0..20).for_each(|number| stage.connect(number));
    stage.run_for(SECOND);
    let held = stage.network.node(1).holdings();
    assert_eq!(held.streams, 20);
    assert!(held.windows_bytes <= total && held.buffered_bytes <= total, "{held:?}");
    stage.sides[1].is_paused = false;
    (0..20).for_each(|flow| stage.step(1, flow));
    stage.run_to_end(20, 20);
    stage.check(20, "twenty streams");
}

/// Both sides are in the middle of something when the second falls silent, or comes back without
/// its memory.
fn crash(is_back: bool) -> Stage<homa::Endpoint> {
    // A window a round trip: a tenth of it passes in the time.
    let far = Impairment { delay_ns: MS, ..Impairment::default() };
    let mut stage = Stage::<homa::Endpoint>::new(far, 1, (100_000_000, 100_000_000), plain);
    stage.connect(0);
    stage.run_for(20 * MS);
    assert!(stage.sides.iter().all(|side| side.flows[0].read > 0 && !side.flows[0].has_ended));
    stage.network.set_up(1, false);
    if is_back {
        stage.run_for(100 * MS);
        stage.network.replace(1, start(9, (1, 1), &plain));
    }
    stage.run_for(8 * SECOND);
    stage
}

#[test]
fn a_peer_that_dies_ends_both_directions() {
    let mut stage = crash(false);
    assert_eq!(stage.sides[0].flows[0].fault, Some(Fault::Lost(Failure::Unreachable)));
    let (id, now) = (stage.sides[0].flows[0].id, stage.network.now());
    let node = stage.network.node_mut(0);
    assert_eq!(node.write(id, b"x"), Err(Fault::Lost(Failure::Unreachable)));
    assert_eq!(node.read(id, &mut [0; 9]), Err(Fault::Lost(Failure::Unreachable)));
    node.close(now, id);
    stage.run_for(40 * SECOND);
    assert_eq!(stage.network.node(0).holdings(), Holdings::default());
    assert_eq!(stage.network.node(0).rpc().holdings(), Default::default());
}

#[test]
fn a_peer_that_restarts_ends_both_directions() {
    let stage = crash(true);
    assert_eq!(
        stage.sides[0].flows[0].fault,
        Some(Fault::Reset),
        "the new process knows nothing of the old one's streams"
    );
}

/// The transport refuses what may have run before a restart, unless it may run twice.
#[test]
fn a_host_that_has_just_started_takes_streams_although_packets_are_lost() {
    for seed in 0..20 {
        let impairment = Impairment { loss: 0.2, ..Impairment::default() };
        let mut stage = Stage::<homa::Endpoint>::new(impairment, seed, (200_000, 200_000), plain);
        let secret = [7; 16];
        let endpoint = homa::Endpoint::new(
            stage.network.now(),
            homa::Config { secret, ..homa::Config::default() },
        );
        stage.network.replace(1, Streams::new(endpoint, Config { secret, ..Config::default() }));
        stage.connect(0);
        stage.run_to_end(1, 20);
        stage.check(1, &format!("seed {seed}"));
    }
}

#[test]
fn a_reader_learns_that_its_peer_has_died() {
    let mut stage = Stage::<homa::Endpoint>::new(Impairment::default(), 1, (10, 1000), plain);
    stage.sides[1].is_second = true;
    stage.sides[1].is_paused = true;
    stage.connect(0);
    stage.run_for(SECOND);
    stage.network.set_up(1, false);
    stage.run_for(28 * SECOND);
    assert_eq!(stage.sides[0].flows[0].fault, None);
    stage.run_for(8 * SECOND);
    assert_eq!(stage.sides[0].flows[0].fault, Some(Fault::Lost(Failure::Unreachable)));
}

#[test]
fn idle_streams_are_quiet() {
    let mut stage = Stage::<homa::Endpoint>::new(Impairment::default(), 1, (10, 1000), plain);
    stage.sides[1].is_paused = true;
    (0..10).for_each(|number| stage.connect(number));
    stage.run_for(SECOND);
    let before = stage.network.statistics().sent;
    stage.run_for(600 * SECOND);
    // Every half minute, one side of each asks, and the other answers; Homa may acknowledge, or ask
    // whether it may release state.
    let sent = stage.network.statistics().sent - before;
    assert!(sent <= 10 * 20 * 2 * 4, "{sent} datagrams");
    assert_eq!(stage.network.node(0).holdings().streams, 10);
}

#[test]
fn nobody_listens_where_nobody_listens() {
    let mut stage = Stage::<homa::Endpoint>::new(Impairment::default(), 1, (10, 10), |config| {
        config.is_listening = false
    });
    stage.connect(0);
    stage.run_for(SECOND);
    assert_eq!(stage.sides[0].flows[0].fault, Some(Fault::Refused));
}

/// Four hosts: one that listens, two ports of a host that opens what it can, and another.
#[test]
fn one_host_holds_thousands_of_idle_streams_and_others_open_and_carry() {
    let host = |host: u8, port| SocketAddr::from(([10, 0, 0, host], port));
    let mut network = Network::new();
    for (place, address) in
        [host(9, 33_000), host(1, 33_000), host(1, 33_001), host(2, 33_000)].into_iter().enumerate()
    {
        // Whoever is greedy has other limits than who is asked.
        let node = start::<homa::Endpoint>(0, (1, place), &|config: &mut Config| {
            config.streams_per_peer_max = if place == 0 { 4096 } else { 8192 };
        });
        network.add(address, node, Impairment::default(), place as u64);
    }
    network.run(SECOND, |_| {});
    for place in [1, 2] {
        let now = network.now();
        for _ in 0..5000 {
            network.node_mut(place).connect(now, host(9, 33_000)).expect("a stream");
        }
        network.flush(place);
        network.run(now + SECOND, |turn| while turn.place == 0 && turn.node.accept().is_some() {});
    }
    let held = network.node(0).holdings();
    // 4096 of the first port, and then what one host may have in all.
    assert_eq!((held.streams, held.half_open), (6145, 0));
    assert_eq!(network.node(1).metrics().opened, 4096);
    let now = network.now();
    let ids: Vec<StreamId> = (0..10)
        .map(|_| network.node_mut(3).connect(now, host(9, 33_000)).expect("a stream"))
        .collect();
    let bytes = vec![7; 300_000];
    let mut written = vec![0; ids.len()];
    let mut read = 0;
    network.flush(3);
    network.run(now + SECOND, |turn| {
        if turn.place == 3 {
            for (&id, written) in ids.iter().zip(&mut written) {
                *written += turn.node.write(id, &bytes[*written..]).expect("room");
            }
        }
        if turn.place == 0 {
            while turn.node.accept().is_some() {}
            while let Some(id) = turn.node.poll_changed() {
                while let Ok(Some(len @ 1..)) = turn.node.read(id, &mut [0; 10_000]) {
                    read += len;
                }
            }
        }
    });
    assert_eq!((written, read), (vec![300_000; 10], 3_000_000));
}
