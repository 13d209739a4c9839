//! The accounting of a server against reports made by hand.

use super::*;

const PLACED: u32 = u32::MAX - 1;

fn server() -> (Server, RouterConfig) {
    let addr = SocketAddr::from(([10, 0, 0, 1], 1));
    let config = ServerConfig { addr, speaks: Speaks::Extension };
    (Server::new(ServerKey { slot: 0, serial: 0 }, config, 0, PLACED), RouterConfig::default())
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
