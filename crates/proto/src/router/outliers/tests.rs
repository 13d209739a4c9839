//! Ejection of slow servers, and their return.

use std::net::SocketAddr;

use tailcut_wire::r2p2::FeedbackBody;

use super::*;
use crate::node::Node;
use crate::router::{OutlierConfig, RouterConfig, ServerConfig, ServerState, Speaks};

/// A window of these tests, ns.
const WINDOW_NS: Time = 1_000;
/// Requests outstanding all along and concluded within a window, of which each takes 100 ns.
const USUAL: (u32, u32) = (1, 10);
/// Requests as in [`USUAL`], of which each takes 1,000 ns.
const SLOW: (u32, u32) = (10, 10);
/// Nothing is asked for.
const IDLE: (u32, u32) = (0, 0);

/// A router whose servers do what a test says.
struct Pool {
    router: Router,
    now: Time,
    /// Requests that each server has concluded.
    concluded: Vec<u32>,
}

impl Pool {
    fn new(count: u16, change: impl FnOnce(&mut OutlierConfig)) -> Self {
        let mut outliers = OutlierConfig {
            factor: 3,
            least_ns: 50,
            window_ns: WINDOW_NS,
            windows: 2,
            servers_per_ejected: 4,
            ejected_ns: 2 * WINDOW_NS,
            ejected_ns_max: 8 * WINDOW_NS,
        };
        change(&mut outliers);
        let server = |index| ServerConfig { addr: addr(index), speaks: Speaks::Extension };
        let servers = (0..count).map(server).collect();
        let config = RouterConfig { servers, outliers, ..RouterConfig::default() };
        let router = Router::new(0, config).expect("a good configuration");
        let mut pool = Self { router, now: 0, concluded: vec![0; count.into()] };
        (0..count).for_each(|slot| pool.report(slot, 0));
        pool.router.check_outliers(0);
        pool
    }

    /// A server reports that so many more have ended.
    fn report(&mut self, slot: u16, count: u32) {
        let concluded = &mut self.concluded[usize::from(slot)];
        *concluded += count;
        let slot = WorkerId(slot.into());
        let server = &mut self.router.fleet[slot];
        let body = FeedbackBody {
            epoch: 1.into(),
            placement_seen: server.shared_counts().placed.into(),
            received: (*concluded).into(),
            concluded: (*concluded).into(),
        };
        server.take_feedback(self.now, &body, 0, &self.router.config).expect("it is new");
        self.router.refresh(self.now, slot);
    }

    /// A window in which each server had so many requests outstanding and concluded so many. The
    /// router also looks in the middle of it, which changes nothing.
    fn window(&mut self, servers: &[(u32, u32)]) {
        for (slot, &(outstanding, _)) in servers.iter().enumerate() {
            let now = self.now;
            self.pace(slot).note(now, outstanding);
        }
        self.now += WINDOW_NS / 2;
        self.router.check_outliers(self.now);
        self.now += WINDOW_NS / 2;
        for (slot, &(outstanding, count)) in (0..).zip(servers) {
            let mut pace = *self.pace(slot.into());
            self.report(slot, count);
            pace.note(self.now, outstanding);
            *self.pace(slot.into()) = pace;
        }
        self.router.check_outliers(self.now);
    }

    /// Windows in which every server but the first is as usual.
    fn windows_of_first(&mut self, windows: &[(u32, u32)]) {
        let count = self.concluded.len();
        for &first in windows {
            let mut servers = vec![USUAL; count];
            servers[0] = first;
            self.window(&servers);
        }
    }

    fn pace(&mut self, slot: usize) -> &mut Pace {
        &mut self.router.fleet[WorkerId::at(slot)].pace
    }

    /// The health of the first server.
    fn first(&mut self) -> Health {
        self.pace(0).health
    }

    /// Servers that are out, and those that have been sent away and taken back so far.
    fn counts(&self) -> (usize, u64, u64) {
        let metrics = self.router.metrics();
        let limited_count = self.router.outliers.limited_count;
        (limited_count, metrics.servers_ejected, metrics.servers_readmitted)
    }

    fn ejected(&self) -> Vec<usize> {
        let states = self.router.servers().map(|server| server.state).enumerate();
        states.filter(|(_, state)| *state == ServerState::Ejected).map(|(slot, _)| slot).collect()
    }
}

fn addr(index: u16) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, 1], 8_000 + index))
}

#[test]
fn a_server_that_is_slow_in_a_row_of_windows_is_out() {
    let mut pool = Pool::new(4, |_| {});
    pool.windows_of_first(&[USUAL, SLOW]);
    assert_eq!((pool.ejected(), pool.counts()), (vec![], (0, 0, 0)), "one window is not a row");
    pool.windows_of_first(&[SLOW]);
    assert_eq!((pool.ejected(), pool.counts()), (vec![0], (1, 1, 0)));
    assert_eq!(pool.first(), Health::Ejected(pool.now + 2 * WINDOW_NS));
    assert_eq!(
        pool.router.fleet.census().load().servers,
        3,
        "upstreams are told of those in service"
    );
}

#[test]
fn a_window_as_usual_ends_the_row_and_one_without_requests_does_not() {
    let mut pool = Pool::new(4, |_| {});
    pool.windows_of_first(&[USUAL, SLOW, USUAL, SLOW]);
    assert_eq!(pool.ejected(), []);
    let mut pool = Pool::new(4, |_| {});
    pool.windows_of_first(&[USUAL, SLOW, IDLE, SLOW]);
    assert_eq!(pool.ejected(), [0]);
}

#[test]
fn exactly_so_many_times_as_long_is_not_too_long() {
    // At least 300 ns each: six for a window, of which 19 have ended.
    let mut pool = Pool::new(4, |_| {});
    pool.windows_of_first(&[USUAL, (6, 19), (6, 19), (6, 19)]);
    assert_eq!(pool.ejected(), []);
    let mut pool = Pool::new(4, |_| {});
    pool.windows_of_first(&[USUAL, (6, 18), (6, 18)]);
    assert_eq!(pool.ejected(), [0]);
}

#[test]
fn slower_by_less_than_the_least_is_not_slow() {
    let mut pool = Pool::new(4, |config| config.least_ns = 900);
    pool.windows_of_first(&[USUAL, SLOW, SLOW, SLOW]);
    assert_eq!(pool.ejected(), []);
}

/// The measure is the third of four: three times 200 ns, and not of the fastest 100.
#[test]
fn the_measure_is_what_three_of_four_take_at_most() {
    for (first, ejected) in [((5, 10), vec![]), ((7, 10), vec![0])] {
        let mut pool = Pool::new(4, |_| {});
        for _ in 0..3 {
            pool.window(&[first, USUAL, USUAL, (2, 10)]);
        }
        assert_eq!(pool.ejected(), ejected, "{first:?}");
    }
}

#[test]
fn two_servers_do_not_tell_which_of_them_is_slow() {
    let mut pool = Pool::new(2, |_| {});
    pool.windows_of_first(&[USUAL, SLOW, SLOW, SLOW]);
    assert_eq!(pool.ejected(), []);
}

#[test]
fn a_factor_of_zero_ejects_none() {
    let mut pool = Pool::new(4, |config| config.factor = 0);
    pool.windows_of_first(&[USUAL, SLOW, SLOW, SLOW]);
    assert_eq!(pool.ejected(), []);
}

#[test]
fn a_server_that_gets_nothing_new_is_not_slow() {
    let mut pool = Pool::new(4, |_| {});
    pool.windows_of_first(&[USUAL, SLOW]);
    pool.router.drain_server(pool.now, addr(0)).unwrap();
    pool.windows_of_first(&[(10, 0)]);
    pool.router.resume_server(pool.now, addr(0)).unwrap();
    pool.windows_of_first(&[SLOW]);
    assert_eq!(pool.ejected(), [], "its row begins anew");
}

#[test]
fn a_share_of_the_servers_may_be_out() {
    let slow = |count: usize, slow: usize| {
        let mut servers = vec![USUAL; count];
        servers[..slow].fill(SLOW);
        servers
    };
    // (servers, of these slow, servers for each that may be out, out)
    for (count, slow_count, per, out) in
        [(8, 2, 4, 2), (8, 2, 8, 1), (12, 2, 8, 1), (3, 1, 4, 1), (3, 1, 1, 1)]
    {
        let mut pool = Pool::new(count, |config| config.servers_per_ejected = per);
        pool.window(&vec![USUAL; count.into()]);
        (0..2).for_each(|_| pool.window(&slow(count.into(), slow_count)));
        assert_eq!(pool.ejected().len(), out, "{slow_count} of {count} at one of {per}");
        assert_eq!(pool.counts(), (out, out as u64, 0));
    }
}

/// A pool of four whose first server is out until the end of the next two windows.
fn with_first_out() -> Pool {
    let mut pool = Pool::new(4, |_| {});
    pool.windows_of_first(&[USUAL, SLOW, SLOW]);
    assert_eq!(pool.ejected(), [0]);
    pool
}

#[test]
fn what_was_out_is_on_probation_until_enough_have_ended() {
    let mut pool = with_first_out();
    pool.windows_of_first(&[IDLE]);
    assert_eq!(pool.ejected(), [0], "its time is not over");
    pool.windows_of_first(&[IDLE]);
    assert_eq!((pool.first(), pool.counts()), (Health::Probation, (1, 1, 0)));
    // Five in each, and 16 are to end.
    pool.windows_of_first(&[(1, 5); 3]);
    assert_eq!((pool.first(), pool.counts()), (Health::Probation, (1, 1, 0)));
    pool.windows_of_first(&[(1, 5)]);
    assert_eq!((pool.first(), pool.counts()), (Health::Well, (0, 1, 1)));
}

/// Alone they take 250 ns, which is well among others, and too long where nobody waits for another.
#[test]
fn requests_on_probation_are_to_take_two_thirds() {
    let mut pool = Pool::new(4, |_| {});
    pool.windows_of_first(&[(5, 19); 4]);
    assert_eq!(pool.first(), Health::Well);
    let mut pool = with_first_out();
    pool.windows_of_first(&[IDLE, IDLE, (1, 3)]);
    assert_eq!(pool.first(), Health::Ejected(pool.now + 4 * WINDOW_NS), "for twice as long");
    assert_eq!(pool.counts(), (1, 2, 0));
}

#[test]
fn a_slow_server_is_taken_back_where_no_other_is_in_service() {
    let mut pool = with_first_out();
    for index in 1..4 {
        assert_eq!(pool.ejected(), [0], "{} others are there", 4 - index);
        pool.router.drain_server(pool.now, addr(index)).unwrap();
    }
    assert_eq!((pool.first(), pool.counts()), (Health::Well, (0, 1, 1)));
}

#[test]
fn a_server_that_begins_anew_is_well() {
    let mut pool = with_first_out();
    pool.router.begin_pace(pool.now, WorkerId(0));
    assert_eq!((pool.first(), pool.counts()), (Health::Well, (0, 1, 1)));
    // Neither is a window before it one of its row.
    pool.windows_of_first(&[SLOW]);
    pool.router.begin_pace(pool.now, WorkerId(0));
    pool.windows_of_first(&[SLOW]);
    assert_eq!(pool.ejected(), []);
}

#[test]
fn a_removed_server_leaves_its_share_to_another() {
    let mut pool = with_first_out();
    pool.router.remove_server(pool.now, addr(0)).unwrap();
    assert_eq!(pool.counts(), (0, 1, 0));
}

/// Held requests are looked at again: there may be a place for them.
#[test]
fn what_is_held_is_looked_at_when_a_server_is_taken_back() {
    let mut pool = with_first_out();
    pool.router.queues.pump_at = None;
    pool.router.limit(pool.now, WorkerId(0), Health::Well);
    assert_eq!(pool.router.queues.pump_at, Some(pool.now));
}

/// A timeout alone finds them: neither requests nor reports are needed.
#[test]
fn windows_end_by_the_clock() {
    let mut pool = Pool::new(4, |_| {});
    pool.windows_of_first(&[USUAL, SLOW]);
    let now = pool.now;
    pool.pace(0).note(now, 10);
    pool.now += WINDOW_NS;
    pool.router.handle_timeout(pool.now);
    assert_eq!(pool.ejected(), [0]);
}
