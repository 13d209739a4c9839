//! Requests that count against a router's bound.

use tailcut_wire::r2p2::sealed::{SEALED_VERSION, TRAILER_LEN, VERSION_AT};
use tailcut_wire::r2p2::{RequestRepr, Route, RpcId, Segment};
use zerocopy::IntoBytes;

use super::super::plan::{ClientPlan, RouterPlan, SealPlan, ServerPlan};
use super::super::recorder::Expected;
use super::*;

const SERVER: Host = Host::Server(0);

/// The books of a router of bound 1 and a sealed server, with three calls.
fn watch() -> Watch {
    let plan = Plan {
        seal: Some(SealPlan::default()),
        router: Some(RouterPlan::default()),
        servers: vec![ServerPlan::default()],
        clients: vec![ClientPlan::default()],
        calls: vec![CallPlan { is_idempotent: true, ..CallPlan::default() }; 3],
        ..Plan::default()
    };
    let mut watch = Watch::new(&plan, Options::default());
    watch.numbers = (0..3).map(|number| (id_of(number), number)).collect();
    watch.note_bound(Some(1));
    watch
}

fn id_of(number: u32) -> u64 {
    77 << 24 | u64::from(number)
}

/// A call's request as the router has sent it on at its placement of this number.
fn routed(number: u32) -> Vec<u8> {
    let repr = RequestRepr {
        policy: Policy::Unrestricted,
        segment: Segment { message_len: 8, segment_len: 1000, index: 0, count: 1 },
        flags: Flags::IDEMPOTENT,
        ..RequestRepr::control(MessageType::Request, 1, RpcId(id_of(number)))
    };
    let route = Route { routed: 1, placement: (100 + number).into(), ..Route::default() };
    let mut bytes = [repr.header().as_bytes(), route.as_bytes(), &[0; 8 + TRAILER_LEN]].concat();
    bytes[VERSION_AT] = SEALED_VERSION;
    bytes
}

/// The router places a call, and its request comes to the server.
fn place(watch: &mut Watch, number: u32) {
    watch.leaves(Host::Router, SERVER.address(), &routed(number));
    assert!(watch.arrives(SERVER, Host::Client(0).address(), &routed(number)));
}

fn replay(watch: &mut Watch, number: u32) {
    let set = |watch: &mut Watch, expected| {
        watch.sealed.as_mut().expect("it is sealed").intruding = expected;
    };
    set(watch, Some(Expected::Anything));
    watch.arrives(SERVER, Host::Client(0).address(), &routed(number));
    set(watch, None);
}

/// Runs the `replayed` calls, which a stranger sends again once they were refused, then the
/// `placed` ones, and checks whether the bound holds.
fn check(replayed: &[u32], placed: &[u32], holds: bool) {
    let mut watch = watch();
    for &number in replayed {
        place(&mut watch, number);
        replay(&mut watch, number);
        watch.runs_at(0, number);
    }
    for &number in placed {
        place(&mut watch, number);
        watch.runs_at(0, number);
    }
    let broken = watch.violation.map(|violation| violation.invariant);
    assert_eq!(broken, (!holds).then_some(Invariant::Bound), "{replayed:?}, {placed:?}");
}

#[test]
fn what_a_router_has_placed_counts() {
    check(&[], &[0], true);
    check(&[], &[0, 1], false);
}

/// The server had refused it, and the router counts it no more.
#[test]
fn what_a_stranger_brings_again_counts_for_nothing() {
    check(&[0], &[1], true);
    check(&[0], &[1, 2], false);
}

/// A copy of what runs takes nothing from the count.
#[test]
fn what_runs_counts_on_whatever_a_stranger_brings() {
    let mut watch = watch();
    place(&mut watch, 0);
    watch.runs_at(0, 0);
    replay(&mut watch, 0);
    place(&mut watch, 1);
    watch.runs_at(0, 1);
    assert_eq!(watch.violation.map(|it| it.invariant), Some(Invariant::Bound));
}
