//! The seal of a router by itself.

use tailcut_wire::r2p2::RequestRepr;

use super::seals::*;
use super::*;

/// A router is a server to the one before it in a chain.
#[test]
fn routers_in_a_chain_hear_of_each_other_and_of_claims() {
    let mut seals = Seals::new();
    let (now, sealing) = (seals.now, of_role(&seals.keys, Role::Router));
    let mut first = router_seal(&sealing, 7);
    assert_eq!(of_router(now, &mut first, MessageType::Claim), None, "it knows nobody to name");
    acquaint(now, &mut first, &mut seals.router);
    let claim = of_router(now, &mut first, MessageType::Claim).unwrap();
    assert!(seals.router.opens(now, &claim) && !seals.router.is_asked());
    let claimed = ReplyRepr::control(MessageType::Claimed, 0, RpcId(0));
    let mut claimed = seals.router.says(now, &claimed).unwrap();
    assert!(first.open(now, at(SERVER), &mut claimed).is_some());
    assert!(!seals.router.opens(now, &claim), "the same again");
    assert_eq!(seals.router.metrics().replayed, 1);
}

#[test]
fn a_router_takes_requests_of_the_last_two_routers_at_an_address() {
    let mut seals = Seals::new();
    let mut router = router_seal(&of_role(&seals.keys, Role::Router), 4);
    assert_eq!(taken_of_three(&mut seals, &mut router), [false, true, true]);
    assert_eq!((router.metrics().forged, router.metrics().unnamed), (1, 3));
}

/// It may be taken late by the tolerance of a clock that is behind, and early by that of one that
/// is ahead: what a router remembers of it has to last for as long as both together.
#[test]
fn a_request_is_taken_for_its_deadline_and_the_slack_of_clocks() {
    for tolerance_ms in [100, 7] {
        for (deadline_us, lasts_ms) in [(0, 500), (500, 0), (20_000, 20), (u32::MAX, 500)] {
            let mut seals = Seals::new();
            let sealing = of_role(&seals.keys, Role::Router);
            let sealing = Sealing { clock_tolerance_ms: tolerance_ms, ..sealing };
            seals.router = router_seal(&sealing, 2);
            seals.now += 1_000 * MS;
            seals.introduce(ROUTER);
            let sent_ms = seals.now / MS;
            let request = seals.of_client(ROUTER, &RequestRepr { deadline_us, ..request(1) });
            // By the router's clock.
            let is_taken = |&at_ms: &u64| {
                seals.now = at_ms * MS;
                seals.verdict(CLIENT, &request) == Some(SealVerdict::Fit)
            };
            let taken: Vec<u64> = (sent_ms - 150..sent_ms + 700).filter(is_taken).collect();
            let (first_ms, last_ms) = (sent_ms - tolerance_ms, sent_ms + lasts_ms + tolerance_ms);
            assert_eq!(taken, (first_ms..=last_ms).collect::<Vec<_>>(), "{deadline_us} us");
            let slack_ns = (last_ms - first_ms - lasts_ms) * MS;
            assert_eq!((sealing.slack_ns(), seals.router.slack_ns()), (slack_ns, slack_ns));
        }
    }
}

/// A request may be as much older as the client's clock is behind.
#[test]
fn a_request_that_is_older_than_clocks_are_apart_tells_its_age() {
    let mut seals = Seals::new();
    seals.introduce(ROUTER);
    let request = seals.of_client(ROUTER, &request(1));
    let sent = seals.now;
    for (later_ms, expected_ms) in [(0, None), (100, None), (101, Some(201)), (250, Some(350))] {
        seals.now = sent + later_ms * MS;
        assert_eq!(seals.verdict(CLIENT, &request), Some(SealVerdict::Fit));
        assert_eq!(seals.router.age_ns(), expected_ms.map(|ms: u64| ms * MS), "{later_ms} ms");
    }
}

/// A session begins once: one that would be younger than it was is a client's that has made it up.
#[test]
fn a_session_does_not_begin_again() {
    let mut seals = Seals::new();
    seals.introduce(ROUTER);
    let genuine = seals.of_client(ROUTER, &request(1));
    assert_eq!(seals.verdict(CLIENT, &genuine), Some(SealVerdict::Fit));
    seals.now += 5 * MS;
    seals.client = endpoint(&of_role(&seals.keys, Role::Client(17)), 1);
    seals.client.note_session(seals.now, SESSION);
    let younger = seals.of_client(ROUTER, &request(2));
    let before = seals.router.metrics();
    assert_eq!(seals.verdict(CLIENT, &younger), None);
    let expected = SealMetrics { forged: before.forged + 1, ..before };
    assert_eq!(seals.router.metrics(), expected);
}

/// A packet that names nobody may have been recorded, and says nothing of where its session is.
#[test]
fn a_session_is_bound_by_what_names_the_router() {
    let mut seals = Seals::new();
    let unnamed = seals.of_client(ROUTER, &request(0));
    assert_eq!(seals.verdict(STRANGER, &unnamed), Some(SealVerdict::Unnamed));
    seals.introduce(ROUTER);
    for sequence in [1, 2] {
        let named = seals.of_client(ROUTER, &request(sequence));
        assert_eq!(seals.verdict(CLIENT, &named), Some(SealVerdict::Fit));
        assert_eq!(seals.verdict(STRANGER, &named), Some(SealVerdict::Evicted));
    }
}

/// Its client has said that it has ended, by one that names the router.
#[test]
fn a_call_below_the_floor_is_not_placed() {
    let mut seals = Seals::new();
    seals.introduce(ROUTER);
    let first = seals.of_client(ROUTER, &request(1));
    assert_eq!(seals.verdict(CLIENT, &first), Some(SealVerdict::Fit));
    let later = seals.of_client(ROUTER, &RequestRepr { floor: 2, ..request(2) });
    assert_eq!(seals.verdict(CLIENT, &later), Some(SealVerdict::Fit));
    assert_eq!(seals.verdict(CLIENT, &first), None);
    assert_eq!(seals.verdict(CLIENT, &later), Some(SealVerdict::Fit), "at the floor");
    assert_eq!(seals.router.metrics().replayed, 1);
}
