//! The accounting of a server against reports made by hand.

use super::*;
use crate::policy::WorkerId;
use crate::router::census::Census;
use crate::router::counts::{AT_SERVER_MAX, IN_FLIGHT_MAX};

const PLACED: u32 = u32::MAX - 1;

fn server() -> (Server, RouterConfig) {
    let addr = SocketAddr::from(([10, 0, 0, 1], 1));
    let config = ServerConfig { addr, speaks: Speaks::Extension };
    (
        Server::new(ServerKey { slot: WorkerId(0), serial: 0 }, config, 0, PLACED),
        RouterConfig::default(),
    )
}

fn body(epoch: u32, placement_seen: u32, received: u32, concluded: u32) -> FeedbackBody {
    let [epoch, placement_seen, received, concluded] =
        [epoch, placement_seen, received, concluded].map(Into::into);
    FeedbackBody { epoch, placement_seen, received, concluded }
}

/// After four placements, across the wrap: the feedback (epoch, seen beyond the start,
/// received, concluded) in order, each with the outstanding count after it, or `None` where it
/// is stale and changes nothing.
fn check(steps: &[(u32, u32, u32, u32, Option<u32>)]) {
    let (mut server, config) = server();
    for _ in 0..4 {
        server.place(0, None);
    }
    assert_eq!(server.outstanding(), 4);
    for &(epoch, seen, received, concluded, expected) in steps {
        let before = server.outstanding();
        let taken = server.take_feedback(
            1,
            &body(epoch, PLACED.wrapping_add(seen), received, concluded),
            0,
            &config,
        );
        assert_eq!(taken.is_ok(), expected.is_some(), "{steps:?}");
        assert_eq!(server.outstanding(), expected.unwrap_or(before), "{steps:?}");
    }
}

#[test]
fn feedback_is_absolute() {
    check(&[(1, 1, 1, 0, Some(4)), (1, 2, 2, 1, Some(3)), (1, 4, 4, 4, Some(0))]);
}

#[test]
fn lost_feedback_heals_with_the_next() {
    check(&[(1, 4, 4, 4, Some(0))]);
}

#[test]
fn repeated_feedback_changes_nothing() {
    check(&[(1, 4, 4, 2, Some(2)), (1, 4, 4, 2, Some(2))]);
}

#[test]
fn reordered_feedback_is_stale() {
    check(&[(1, 4, 4, 3, Some(1)), (1, 4, 4, 1, None), (1, 3, 3, 3, None), (1, 3, 4, 3, None)]);
}

#[test]
fn a_lost_request_heals_when_a_later_one_is_seen() {
    check(&[(1, 4, 3, 0, Some(3)), (1, 4, 3, 3, Some(0))]);
}

#[test]
fn counts_that_wrap_are_counts() {
    check(&[
        (1, 4, u32::MAX, u32::MAX - 2, Some(2)),
        (1, 4, 1, 0, Some(1)),
        (1, 4, u32::MAX, u32::MAX, None),
    ]);
}

#[test]
fn feedback_that_contradicts_itself_is_stale() {
    check(&[(1, 4, 3, 4, None), (1, 4, u32::MAX / 2, 0, None)]);
}

#[test]
fn a_restarted_server_begins_anew_and_its_old_epoch_is_ignored() {
    check(&[
        (1, 4, 9, 7, Some(2)),
        (2, 4, 0, 0, Some(0)),
        (1, 4, 9, 8, None),
        (2, 4, 1, 0, Some(1)),
    ]);
}

#[test]
fn a_retired_epoch_that_stays_is_believed() {
    let (mut server, config) = server();
    for (now, epoch, is_ok) in
        [(0, 1, true), (10, 2, true), (20, 1, false), (10 + config.silent_ns, 1, true)]
    {
        let taken = server.take_feedback(now, &body(epoch, PLACED, 0, 0), 0, &config);
        assert_eq!(taken.is_ok(), is_ok, "epoch {epoch} at {now}");
    }
}

#[test]
fn a_server_that_does_not_know_the_placements_keeps_them_in_flight() {
    // 1 million is far outside the window.
    check(&[(1, 1_000_000, 3, 1, Some(6)), (1, 4, 3, 1, Some(2))]);
}

/// A restarted router's first number is random and may lie a little behind the last that the
/// server knows from before.
#[test]
fn placements_go_on_from_where_an_earlier_incarnation_came_to() {
    check(&[(1, 100, 7, 7, Some(4)), (1, 100, 8, 7, Some(5)), (1, 104, 10, 10, Some(0))]);
}

/// A late report from before the router's own restart knows another incarnation; one from
/// before the server's is behind.
#[test]
fn a_late_report_of_an_epoch_never_heard_is_stale() {
    check(&[(2, 4, 1, 0, Some(1)), (1, 1_000_000, 69, 69, None), (2, 4, 1, 1, Some(0))]);
    check(&[(2, 4, 1, 0, Some(1)), (1, 2, 3, 3, None), (2, 4, 1, 1, Some(0))]);
}

#[test]
fn a_lone_request_measures_the_service_and_an_idle_probe_the_round_trip() {
    let (mut server, config) = server();
    server.take_feedback(0, &body(1, PLACED, 0, 0), 0, &config).unwrap();
    server.probe(100, 0, &config);
    let shown = server.take_feedback(150, &body(1, PLACED, 0, 0), 0, &config).unwrap();
    assert_eq!(shown.delay_ns, Some(50));
    let placement = server.place(200, None);
    let shown = server.take_feedback(500, &body(1, placement, 1, 1), 0, &config).unwrap();
    assert_eq!(shown.service_ns, Some(250));
}

/// It is awake, where one that was asked nothing for long may sleep.
#[test]
fn the_probe_that_echoes_a_new_token_measures_the_round_trip() {
    let (mut server, config) = server();
    server.probe(100, 0, &config);
    server.learn_token(5_000, 7);
    server.probe(5_000, 0, &config);
    let shown = server.take_feedback(5_040, &body(1, PLACED, 0, 0), 0, &config).unwrap();
    assert_eq!(shown.delay_ns, Some(40));
}

#[test]
fn a_pause_of_the_router_is_not_a_silence_of_the_server() {
    let (mut server, config) = server();
    server.probe(0, 0, &config);
    server.check_silence(100 * config.silent_ns, Crowd::Answers, &config);
    assert!(!server.is_silent);
}

/// A server that has reported once, at 0, and is probed next after `probe_interval_ns`.
fn heard() -> (Server, RouterConfig) {
    let (mut server, config) = server();
    server.take_feedback(0, &body(1, PLACED, 0, 0), 0, &config).expect("it is new");
    assert_eq!(server.probe_due(config.probe_interval_ns - 1), None);
    (server, config)
}

#[test]
fn what_a_data_plane_has_placed_before_a_place_counts_as_placed() {
    let (mut server, _) = server();
    let taken = PLACED.wrapping_add(4);
    assert_eq!(server.place(0, Some(taken)), taken);
    assert_eq!((server.status().placed, server.outstanding()), (4, 4));
}

#[test]
fn what_a_data_plane_has_heard_is_what_the_server_has() {
    let (mut server, config) = heard();
    server.adopt(server.shared_counts());
    let placed = PLACED.wrapping_add(5);
    let counts = SharedCounts {
        placed,
        seen: placed,
        received: 5,
        concluded: 2,
        epoch: Some(1),
        reported: 3,
        waiting: 1,
        reports: 1,
        is_in_service: true,
    };
    assert!(server.take_over(1, counts, &config));
    let status = server.status();
    assert_eq!((status.placed, status.concluded, status.outstanding), (5, 2, 3));
    assert_eq!((status.reported, status.waiting), (3, 1));
    assert!(!server.take_over(1, counts, &config), "nothing is new");
}

#[test]
fn a_server_counts_for_each_of_its_members_and_each_unit_of_weight() {
    let (mut server, _) = server();
    assert_eq!((server.members(), server.units()), (1, 1));
    server.note_members(6);
    server.rank.weight = std::num::NonZeroU8::new(2).expect("it is 2");
    assert_eq!((server.members(), server.units()), (6, 12));
    server.note_members(0);
    assert_eq!((server.members(), server.units()), (1, 2), "one that says nothing is one");
}

#[test]
fn a_lease_counts_until_its_feedback_or_its_end() {
    let (mut server, config) = server();
    assert!(!server.lease(0, &config) && !server.lease(1, &config) && !server.lease(2, &config));
    assert!(server.conclude_lease());
    assert_eq!((server.outstanding(), server.status().concluded), (2, 1));
    assert!(!server.expire_lease(config.lease_ns, &config), "the second ends later");
    assert!(server.expire_lease(config.lease_ns + 1, &config));
    assert_eq!((server.outstanding(), server.status().concluded), (1, 1));
}

#[test]
fn so_many_requests_may_be_on_their_way_and_no_more() {
    let (mut server, config) = heard();
    for _ in 0..IN_FLIGHT_MAX {
        server.place(0, None);
    }
    // It has begun anew, and has seen none of them yet.
    let shown = server.take_feedback(1, &body(2, PLACED, 0, 0), 0, &config).expect("it is new");
    assert!(!shown.is_unaware);
    let shown = server.take_feedback(2, &body(2, PLACED, 0, 0), 0, &config).expect("it is new");
    assert!(!shown.is_unaware);
    server.place(2, None);
    let shown = server.take_feedback(3, &body(2, PLACED, 0, 0), 0, &config).expect("it is new");
    assert!(shown.is_unaware, "one too many: it does not know this router");
    let stale = server.take_feedback(4, &body(3, PLACED, 0, 0), 0, &config);
    assert_eq!(stale, Err(Stale), "of another it is an old packet");
}

#[test]
fn a_server_has_so_many_requests_and_no_more() {
    check(&[(1, 4, AT_SERVER_MAX, 0, Some(AT_SERVER_MAX))]);
    check(&[(1, 4, AT_SERVER_MAX + 1, 0, None)]);
}

/// Probes a server for so long at `now` before it answers.
fn answer_late(
    server: &mut Server,
    (now, epoch): (Time, u32),
    late_ns: u64,
    config: &RouterConfig,
) {
    server.probe(now, 0, config);
    server.take_feedback(now + late_ns, &body(epoch, PLACED, 0, 0), 0, config).expect("it is new");
}

#[test]
fn a_server_is_given_an_eighth_more_than_it_has_let_a_probe_wait() {
    const MS: u64 = 1_000_000;
    let (mut server, config) = heard();
    assert_eq!((config.silent_ns, config.silent_ns_max), (24 * MS, 200 * MS));
    assert_eq!(server.probes.patience_ns(&config), 24 * MS);
    answer_late(&mut server, (0, 1), 80 * MS, &config);
    assert_eq!(server.probes.patience_ns(&config), 90 * MS);
    // Half of it has decayed in half of 2^32 ns.
    answer_late(&mut server, ((80 * MS) + (1 << 31), 1), 0, &config);
    let patience_ns = server.probes.patience_ns(&config);
    assert!((45 * MS..46 * MS).contains(&patience_ns), "{patience_ns}");
}

#[test]
fn a_restart_or_a_long_absence_is_no_pause_to_be_patient_for() {
    let late = |epoch, late_ns| {
        let (mut server, config) = heard();
        answer_late(&mut server, (0, epoch), late_ns, &config);
        server.probes.patience_ns(&config)
    };
    let RouterConfig { silent_ns, silent_ns_max, .. } = RouterConfig::default();
    assert_eq!(late(1, silent_ns_max), silent_ns_max);
    assert_eq!(late(1, silent_ns_max + 1), silent_ns, "it was away");
    assert_eq!(late(2, silent_ns_max / 2), silent_ns, "it has restarted");
}

#[test]
fn a_token_that_is_known_asks_for_no_probe() {
    let (mut server, config) = heard();
    server.learn_token(10, 7);
    assert_eq!(server.probe_due(10), Some(ProbeCause::Turn));
    server.probe(10, 0, &config);
    server.learn_token(20, 7);
    assert_eq!((server.token(), server.probe_due(20)), (7, None));
    let addr = SocketAddr::from(([10, 0, 0, 1], 1));
    let old = ServerConfig { addr, speaks: Speaks::V1 };
    let mut old = Server::new(ServerKey { slot: WorkerId(0), serial: 0 }, old, 0, PLACED);
    old.learn_token(10, 7);
    assert_eq!(old.token(), 0, "version 1 knows none");
}

/// A server that was probed and has answered at 0 and has got so many requests: true if a probe
/// goes out behind the last, at `now`.
fn is_asked(now: Time, requests: u32, prepare: impl FnOnce(&mut Server, &RouterConfig)) -> bool {
    let (mut server, config) = heard();
    answer_late(&mut server, (0, 1), 0, &config);
    prepare(&mut server, &config);
    for _ in 0..requests {
        server.place(now, None);
    }
    server.ask_whether_some_wait(now, &config);
    server.probe_due(now) == Some(ProbeCause::Turn)
}

#[test]
fn a_server_with_more_requests_than_workers_is_asked_whether_some_wait() {
    let RouterConfig { stall_probe_ns: soon, .. } = RouterConfig::default();
    assert!(is_asked(soon, 2, |_, _| {}));
    assert!(!is_asked(soon, 1, |_, _| {}), "its worker has that one");
    assert!(!is_asked(soon - 1, 2, |_, _| {}), "it was probed a moment ago");
    assert!(!is_asked(soon, 2, |server, _| server.crew.is_counted = true), "that is known");
    let probe = |server: &mut Server, config: &RouterConfig| {
        server.probe(0, 0, config);
    };
    assert!(!is_asked(2 * soon, 2, probe), "the answer to a probe is on its way");
    // Never probed, as of a server that a data plane before the router hears.
    assert!(is_asked(soon, 2, |server, _| server.probes.clear_sent()));
    for (requests, is) in [(2, false), (3, false), (6, false), (7, true)] {
        let six = |server: &mut Server, _: &RouterConfig| {
            server.crew.seen = 3;
            server.rank.weight = std::num::NonZeroU8::new(2).expect("it is 2");
        };
        assert_eq!(is_asked(soon, requests, six), is, "{requests} at three workers, twice");
    }
}

#[test]
fn only_a_single_probe_to_an_idle_server_measures_the_way() {
    // Two probes on their way: the answer may be to either.
    let (mut server, config) = heard();
    server.probe(100, 0, &config);
    answer_late(&mut server, (200, 1), 50, &config);
    assert_eq!(server.status().rtt_ns, None);
    // What is placed there may be served first.
    server.place(300, None);
    answer_late(&mut server, (400, 1), 50, &config);
    assert_eq!(server.status().rtt_ns, None);
    // Before the first answer it may not have known the router.
    let (mut server, config) = self::server();
    answer_late(&mut server, (100, 1), 50, &config);
    assert_eq!(server.status().rtt_ns, None);
}

#[test]
fn while_most_are_silent_a_server_is_given_the_longest_time() {
    let (mut server, config) = heard();
    for at in 0..3 {
        server.probe(at, 0, &config);
    }
    let RouterConfig { silent_ns, silent_ns_max, .. } = config;
    server.check_silence(silent_ns, Crowd::IsSilent, &config);
    assert!(!server.is_silent);
    // It is looked at again, for others may answer before.
    assert_eq!(server.probes.silence_at(), silent_ns + silent_ns / 4 + 1);
    server.check_silence(silent_ns_max - 1, Crowd::IsSilent, &config);
    assert_eq!((server.is_silent, server.probes.silence_at()), (false, silent_ns_max));
    server.check_silence(silent_ns_max, Crowd::IsSilent, &config);
    assert!(server.is_silent);
}

#[test]
fn a_server_with_requests_is_probed_sooner_at_its_bound() {
    let (mut server, config) = heard();
    server.watch_bound(0, Some(2), &config);
    assert_eq!(server.probes.stall_at(), None, "it has none");
    server.place(0, None);
    server.watch_bound(0, Some(2), &config);
    assert_eq!(server.probes.stall_at(), Some(config.silent_ns / 12));
    server.place(0, None);
    server.watch_bound(10, Some(2), &config);
    assert_eq!(server.probes.stall_at(), Some(10 + config.stall_probe_ns));
    assert_eq!(server.probe_due(10 + config.stall_probe_ns), Some(ProbeCause::Stall));
    server.rewatch_bound();
    server.watch_bound(20, None, &config);
    assert_eq!(
        server.probes.stall_at(),
        Some(20 + config.silent_ns / 12),
        "feedback begins it anew"
    );
}

#[test]
fn a_state_says_why_a_server_gets_nothing() {
    let state = |prepare: fn(&mut Server)| {
        let (mut server, _) = heard();
        prepare(&mut server);
        server.status().state
    };
    assert_eq!(state(|_| {}), ServerState::InService);
    assert_eq!(state(|server| server.is_draining = true), ServerState::Draining);
    assert_eq!(state(|server| server.is_silent = true), ServerState::Silent);
    assert_eq!(state(|server| server.is_stopping = true), ServerState::Stopping);
    assert_eq!(state(|server| server.is_starting = true), ServerState::Starting);
    // One that is to be removed is so whatever else it is.
    let both = |server: &mut Server| (server.is_draining, server.is_silent) = (true, true);
    assert_eq!(state(both), ServerState::Draining);
}

/// Reports of (time, concluded, load, of that waiting) while requests are held, or not; each comes
/// when one is left at the server. The rate that the last shows.
fn rate(
    prepare: impl FnOnce(&mut Server),
    is_holding: bool,
    reports: impl Iterator<Item = (Time, u32, u16, u32)>,
) -> Option<Rate> {
    let (mut server, config) = heard();
    server.crew.is_counted = true;
    prepare(&mut server);
    reports.fold(None, |_, (now, concluded, reported, waiting)| {
        let report = body(1, PLACED, concluded + 1, concluded);
        let shown = server.take_feedback(now, &report, reported, &config).expect("it is new");
        server.reported.waiting = waiting;
        server.busy_rate(now, shown.newly, is_holding)
    })
}

#[test]
fn conclusions_of_a_server_show_its_rate_while_requests_are_held() {
    let reports = || (0..=32).map(|count| (100 * Time::from(count), count, 4, 3));
    assert_eq!(rate(|_| {}, false, reports()), None, "its worker may have been idle");
    let busy = Rate { time_ns: 3_200, count: 32, delay_ns: None };
    assert_eq!(rate(|_| {}, true, reports()), Some(busy));
    // A router: the time of each of the four that it stands for.
    let rate_of_four = rate(|server| server.note_members(4), true, reports());
    assert_eq!(rate_of_four, Some(Rate { time_ns: 12_800, ..busy }));
}

/// One worker that serves two requests of 240 us, and then waits 7 ms for the next two.
#[test]
fn a_server_whose_workers_are_known_shows_the_way_to_it_when_it_idles() {
    let turn = |index: u32| {
        let at = Time::from(index) * 7_480_000;
        [(at + 7_240_000, 2 * index + 1, 1, 0), (at + 7_480_000, 2 * index + 2, 0, 0)]
    };
    let reports = || (0..17).flat_map(turn).take(33);
    let delay_ns = |prepare: fn(&mut Server)| rate(prepare, true, reports()).unwrap().delay_ns;
    assert_eq!(delay_ns(|_| {}), Some(7_240_000));
    assert_eq!(delay_ns(|server| server.crew.is_counted = false), None, "it may have more");
    assert_eq!(delay_ns(|server| server.note_members(2)), None, "others may serve too");
}

#[test]
fn what_a_removed_server_had_is_in_no_sum() {
    let mut census = Census::default();
    let mut servers = [heard().0, heard().0, heard().0];
    servers[0].place(0, None);
    servers[0].reported.waiting = 2;
    let mut counted = [Counted::default(); 3];
    for (server, counted) in servers.iter().zip(&mut counted) {
        assert!(census.recount(counted, server.counted()));
    }
    assert_eq!(census.load(), Load { outstanding: 1, waiting: 2, servers: 3 });
    census.remove(counted[0]);
    assert_eq!(census.load(), Load { outstanding: 0, waiting: 0, servers: 2 });
    assert_eq!((census.count(Standing::Answering), census.crowd()), (2, Crowd::Answers));
    servers[1].is_silent = true;
    assert!(census.recount(&mut counted[1], servers[1].counted()));
    assert_eq!(census.crowd(), Crowd::IsSilent, "both would be");
}
