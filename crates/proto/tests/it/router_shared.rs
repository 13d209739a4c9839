//! A router behind a data plane that places what it can by itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tailcut_proto::node::{Node, Time};
use tailcut_proto::policy::WorkerId;
use tailcut_proto::router::{ServerConfig, ServerState, SharedCounts, SharedPlaces, Speaks};
use tailcut_wire::r2p2::{DropReason, Flags, MessageType, Packet};

use crate::router_bench::{Ask, Bench, FakeServer, MS, client, drop_reason, route, server};

/// A data plane's memory: what a test, in its place, reads and changes.
#[derive(Clone, Debug, Default)]
struct Plane(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    counts: Vec<SharedCounts>,
    wanted: Vec<WorkerId>,
    held_until: Option<Time>,
    /// Counts that the data plane hears while the router is telling that it holds requests.
    heard_between: Option<SharedCounts>,
    is_closed: bool,
    bound: Option<u32>,
    gone: Vec<SocketAddr>,
}

impl Plane {
    fn with<R>(&self, change: impl FnOnce(&mut Memory) -> R) -> R {
        change(&mut self.0.lock().expect("no test has failed under it"))
    }

    /// The data plane places a request on a server.
    fn place(&self, slot: usize) {
        self.with(|memory| memory.counts[slot].placed += 1);
    }

    /// A server reports that it has concluded all that was placed there.
    fn conclude(&self, slot: usize) {
        self.with(|memory| conclude(&mut memory.counts[slot]));
    }
}

fn conclude(counts: &mut SharedCounts) {
    let newly = counts.placed - counts.seen;
    counts.received += newly;
    counts.concluded = counts.received;
    counts.seen = counts.placed;
    counts.reports += 1;
}

impl SharedPlaces for Plane {
    fn add(&mut self, slot: WorkerId, _: SocketAddr, counts: SharedCounts) -> SharedCounts {
        self.with(|memory| {
            if memory.counts.len() <= slot.index() {
                memory.counts.push(counts);
            }
            memory.counts[slot.index()]
        })
    }

    fn add_other(&mut self, _: SocketAddr) {}

    fn remove(&mut self, _: WorkerId, server: SocketAddr) {
        self.with(|memory| memory.gone.push(server));
    }

    fn counts(&self, slot: WorkerId) -> SharedCounts {
        self.with(|memory| memory.counts[slot.index()])
    }

    fn take(&self, slot: WorkerId) -> u32 {
        self.place(slot.index());
        self.counts(slot).placed
    }

    fn correct(&self, slot: WorkerId, before: &SharedCounts, counts: &SharedCounts) {
        self.with(|memory| {
            let more = memory.counts[slot.index()].placed - before.placed;
            memory.counts[slot.index()] = SharedCounts { placed: counts.placed + more, ..*counts };
        });
    }

    fn set_bound(&self, bound: u32) {
        self.with(|memory| memory.bound = Some(bound));
    }

    fn set_in_service(&self, slot: WorkerId, is_in_service: bool) {
        self.with(|memory| memory.counts[slot.index()].is_in_service = is_in_service);
    }

    fn want_feedback(&self, slot: WorkerId) {
        self.with(|memory| memory.wanted.push(slot));
    }

    fn set_held(&self, until: Option<Time>) {
        self.with(|memory| {
            memory.held_until = until;
            if let Some(counts) = memory.heard_between.take() {
                memory.counts[0] = counts;
            }
        });
    }

    fn close(&self) {
        self.with(|memory| memory.is_closed = true);
    }
}

/// A router at bound 2, and the data plane before it, over servers that have answered.
fn bench(count: u16) -> (Bench, Plane) {
    let mut bench = Bench::new(Speaks::Extension, count, |_| {});
    let plane = Plane::default();
    bench.router.share_places(bench.now, Box::new(plane.clone()));
    (bench, plane)
}

#[test]
fn what_the_data_plane_places_counts() {
    let (mut bench, plane) = bench(2);
    plane.place(0);
    plane.place(0);
    assert_eq!(bench.place(&Ask::id(1).bytes()), Some(1));
    assert_eq!(bench.outstanding(), [2, 1]);
    plane.conclude(0);
    assert_eq!(bench.place(&Ask::id(2).bytes()), Some(0));
    let status = bench.router.status().servers[0];
    assert_eq!((status.placed, status.concluded, status.outstanding), (3, 2, 1));
}

#[test]
fn a_place_is_taken_where_the_data_plane_takes_its_own() {
    let (mut bench, plane) = bench(1);
    plane.place(0);
    let number = plane.counts(WorkerId(0)).placed;
    let sent = bench.send(client(), &Ask::id(1).bytes());
    assert_eq!(route(&sent[0].bytes).placement.get(), number + 1);
    assert_eq!(plane.counts(WorkerId(0)).placed, number + 1);
}

#[test]
fn held_requests_are_told_and_told_again() {
    let (mut bench, plane) = bench(1);
    let mut fake = FakeServer::new(0);
    plane.place(0);
    plane.place(0);
    assert_eq!(bench.place(&Ask::id(1).bytes()), None);
    let first = plane.with(|memory| memory.held_until).expect("it is told");
    // Both have come.
    fake.received = 2;
    bench.live(&mut [&mut fake], 40 * MS);
    let second = plane.with(|memory| memory.held_until).expect("it is told again");
    assert!(first < second && second > bench.now);
    // The feedback comes up while something is held.
    plane.conclude(0);
    let told = plane.counts(WorkerId(0));
    fake.seen = told.seen;
    (fake.received, fake.concluded) = (told.received, told.concluded);
    let sent = bench.send(server(0), &fake.feedback());
    assert_eq!(Packet::parse(&sent[0].bytes).unwrap().message_type, MessageType::Request);
    assert_eq!(plane.with(|memory| memory.held_until), None);
}

/// A router that nothing but what it holds wakes, and a data plane that has filled its server:
/// until when that knows that one is held.
fn with_one_held() -> (Bench, Plane, Time) {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| {
        (config.probe_interval_ns, config.stall_probe_ns) = (10_000 * MS, 10_000 * MS);
        (config.silent_ns, config.silent_ns_max) = (60_000 * MS, 60_000 * MS);
    });
    let plane = Plane::default();
    bench.router.share_places(bench.now, Box::new(plane.clone()));
    (0..2).for_each(|_| plane.place(0));
    assert_eq!(bench.place(&Ask::id(1).bytes()), None);
    let until = plane.with(|memory| memory.held_until).expect("it is told");
    (bench, plane, until)
}

#[test]
fn it_is_told_again_that_requests_are_held_once_half_of_the_time_is_over() {
    let (mut bench, plane, until) = with_one_held();
    let half = (until - bench.now) / 2;
    for now in [1, half - 1] {
        bench.now = now;
        bench.router.handle_timeout(now);
        assert_eq!(plane.with(|memory| memory.held_until), Some(until), "at {now}");
    }
    bench.now = half;
    bench.router.handle_timeout(half);
    assert_eq!(plane.with(|memory| memory.held_until), Some(until + half));
}

/// Else the data plane would place past what is held.
#[test]
fn a_router_that_holds_requests_wakes_to_tell_so() {
    let (mut bench, plane, until) = with_one_held();
    let half = (until - bench.now) / 2;
    assert_eq!(bench.router.poll_timeout(), Some(half));
    bench.advance(10 * half);
    assert!(plane.with(|memory| memory.held_until).is_some_and(|until| until > bench.now));
    assert_eq!(bench.router.queue_len(), 1);
}

#[test]
fn a_place_that_comes_free_while_it_is_told_is_not_missed() {
    let (mut bench, plane) = bench(1);
    plane.place(0);
    plane.place(0);
    let mut counts = plane.counts(WorkerId(0));
    conclude(&mut counts);
    plane.with(|memory| memory.heard_between = Some(counts));
    assert_eq!(bench.place(&Ask::id(1).bytes()), Some(0));
    assert_eq!((bench.router.queue_len(), plane.with(|memory| memory.held_until)), (0, None));
}

/// The default policy's: of a server that has several workers, as it reports.
#[test]
fn the_data_plane_has_the_bound_that_the_router_derives() {
    let mut bench =
        Bench::new(Speaks::Extension, 2, |config| config.policy = "jbsq:auto".parse().unwrap());
    let plane = Plane::default();
    bench.router.share_places(bench.now, Box::new(plane.clone()));
    let bound = plane.with(|memory| memory.bound).expect("it is told at once");
    assert_eq!(Some(bound), bench.router.bound());
    let fake = FakeServer { load: 9, waiting: 1, ..FakeServer::new(0) };
    bench.send(server(0), &fake.feedback());
    assert_eq!(plane.with(|memory| memory.bound), Some(bound + 7));
    assert_eq!(Some(bound + 7), bench.router.bound());
}

#[test]
fn a_probe_wants_its_answer() {
    let (mut bench, plane) = bench(2);
    bench.advance(10 * MS);
    let mut wanted = plane.with(|memory| std::mem::take(&mut memory.wanted));
    wanted.sort_unstable();
    wanted.dedup();
    assert_eq!(wanted, [0, 1].map(WorkerId));
}

#[test]
fn feedback_that_only_the_router_understands_corrects_the_data_plane() {
    let (mut bench, plane) = bench(1);
    plane.place(0);
    let mut reborn = FakeServer { epoch: 2, ..FakeServer::new(0) };
    reborn.seen = plane.counts(WorkerId(0)).placed;
    bench.send(server(0), &reborn.feedback());
    let counts = plane.counts(WorkerId(0));
    assert_eq!((counts.epoch, counts.seen, counts.received), (Some(2), reborn.seen, 0));
}

#[test]
fn a_silent_server_gets_nothing_of_the_data_plane_until_it_is_heard() {
    let (mut bench, plane) = bench(2);
    let mut other = FakeServer { addr: server(1), ..FakeServer::new(0) };
    bench.live(&mut [&mut other], 200 * MS);
    assert_eq!(bench.states(), [ServerState::Silent, ServerState::InService]);
    assert!(!plane.counts(WorkerId(0)).is_in_service && plane.counts(WorkerId(1)).is_in_service);
    plane.conclude(0);
    bench.router.handle_timeout(bench.now);
    assert!(plane.counts(WorkerId(0)).is_in_service);
}

#[test]
fn a_server_that_the_data_plane_hears_returns_once() {
    let (mut bench, plane) = bench(2);
    let mut other = FakeServer { received: 1, concluded: 1, ..FakeServer::new(1) };
    let hear = |bench: &mut Bench, slot| {
        plane.place(slot);
        plane.conclude(slot);
        bench.router.handle_timeout(bench.now);
        bench.metrics().servers_returned
    };
    assert_eq!((0..2).map(|slot| hear(&mut bench, slot)).sum::<u64>(), 0, "they were there");
    bench.live(&mut [&mut other], 200 * MS);
    assert_eq!((bench.states()[0], bench.metrics().servers_returned), (ServerState::Silent, 0));
    assert_eq!([0, 0, 1].map(|slot| hear(&mut bench, slot)), [1, 1, 1]);
}

#[test]
fn a_request_that_may_have_been_placed_unseen_is_claimed() {
    let (mut bench, _plane) = bench(3);
    let mut all = [0, 1, 2].map(|at| FakeServer { addr: server(at), ..FakeServer::new(0) });
    let [a, b, c] = &mut all;
    bench.live(&mut [a, b, c], 100 * MS);
    let again = |flags, id| Ask { flags, age_ms: 5, ..Ask::id(id) }.bytes();
    let sent = bench.send(client(), &again(Flags::RETRANSMIT, 7));
    let types: Vec<_> =
        sent.iter().map(|sent| Packet::parse(&sent.bytes).unwrap().message_type).collect();
    assert_eq!(types, [MessageType::Claim; 2]);
    // One that may run twice need not be asked for.
    assert!(bench.place(&again(Flags::RETRANSMIT | Flags::IDEMPOTENT, 8)).is_some());
}

#[test]
fn a_router_after_another_takes_over_what_the_data_plane_knows() {
    let (bench, plane) = bench(1);
    plane.place(0);
    plane.place(0);
    let counts = plane.counts(WorkerId(0));
    drop(bench);
    let mut next = Bench::new(Speaks::Extension, 0, |_| {});
    next.router.share_places(next.now, Box::new(plane.clone()));
    let config = ServerConfig { addr: server(0), speaks: Speaks::Extension };
    next.router.add_server(next.now, config).expect("it is new");
    assert_eq!((next.states(), next.outstanding()), (vec![ServerState::InService], vec![2]));
    assert_eq!(plane.counts(WorkerId(0)), counts);
    plane.conclude(0);
    let sent = next.send(client(), &Ask::id(1).bytes());
    assert_eq!(route(&sent[0].bytes).placement.get(), counts.placed + 1);
}

#[test]
fn a_router_that_closes_closes_the_data_plane() {
    let (mut bench, plane) = bench(1);
    bench.router.close();
    assert!(plane.with(|memory| memory.is_closed));
    assert_eq!(drop_reason(&bench.send(client(), &Ask::id(1).bytes())), DropReason::Stopping);
    bench.router.remove_server(bench.now, server(0)).expect("it is there");
    assert_eq!(plane.with(|memory| memory.gone.clone()), [server(0)]);
}

#[test]
fn a_driver_gets_back_what_it_shares() {
    let (shared, plane) = bench(1);
    let places = shared.router.shared_places().expect("they are shared");
    assert_eq!(places.counts(WorkerId(0)), plane.counts(WorkerId(0)));
    assert!(Bench::new(Speaks::Extension, 1, |_| {}).router.shared_places().is_none());
}
