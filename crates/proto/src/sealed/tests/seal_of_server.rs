//! The seal of a server by itself.

use super::seals::*;
use super::*;

const HOUR: Time = 3_600_000 * MS;

#[test]
fn what_answers_a_router_is_sealed_for_no_client() {
    let mut seals = Seals::new();
    let mut bytes = seals.of_client(SERVER, &request(1));
    assert!(seals.server.open(seals.now, at(CLIENT), &mut bytes).is_some());
    assert_eq!(seals.server.addressee(), ClientEpoch::new(17, 7).addressee());
    let probe = of_router(seals.now, &mut seals.router, MessageType::Probe).unwrap();
    assert!(seals.server.opens(seals.now, &probe));
    assert_eq!(seals.server.addressee(), 0);
}

/// Requests that the router before has passed on may still be under way; those of the one before
/// that are not.
#[test]
fn a_server_takes_requests_of_the_last_two_routers_at_an_address() {
    let mut seals = Seals::new();
    let mut server = endpoint(&of_role(&seals.keys, Role::Server), 4);
    assert_eq!(taken_of_three(&mut seals, &mut server), [false, true, true]);
    assert_eq!(server.metrics(), SealMetrics { forged: 1, ..SealMetrics::default() });
}

/// Its hop tag is genuine, and says nothing of the payload: the session's key is at hand for what
/// comes next, which is its client's own, and no longer once the session is known.
#[test]
fn what_was_recorded_and_changed_begins_no_session_and_ends_none() {
    let mut seals = Seals::new();
    let repr = request(1);
    let header_len = repr.header_len();
    let mut genuine = to_server(&repr);
    genuine.splice(header_len..header_len, *b"words");
    assert!(seals.client.seal(seals.now, at(SERVER), &mut genuine));
    let (now, server) = (seals.now, &mut seals.server);
    let mut is_taken = |bytes: &[u8]| server.open(now, at(CLIENT), &mut bytes.to_vec()).is_some();
    let changed = |bit: usize| {
        let mut bytes = genuine.clone();
        bytes[header_len + bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    assert!((0..40).all(|bit| !is_taken(&changed(bit))), "each bit of the payload");
    assert!(
        is_taken(&genuine) && (0..40).all(|bit| !is_taken(&changed(bit))) && is_taken(&genuine)
    );
    let expected = SealMetrics { forged: 80, unnamed: 2, ..SealMetrics::default() };
    assert_eq!(server.metrics(), expected, "the genuine ones name nobody");
}

/// A clock that is ahead by no more than the tolerance is waited for: the request comes again.
#[test]
fn a_session_that_is_ahead_by_the_tolerance_is_waited_for() {
    for (ahead_ms, is_waited_for) in [(0, false), (1, true), (100, true), (101, false)] {
        let mut seals = Seals::new();
        let sealing = of_role(&seals.keys, Role::Client(17));
        seals.client = endpoint(&Sealing { clock_ns: ahead_ms * MS, ..sealing }, 1);
        seals.client.note_session(seals.now, SESSION);
        let mut bytes = seals.of_client(SERVER, &request(1));
        let is_opened = seals.server.open(seals.now, at(CLIENT), &mut bytes).is_some();
        assert_eq!(is_opened, !is_waited_for, "{ahead_ms} ms");
        assert_eq!(seals.server.metrics().ahead, u64::from(is_waited_for));
        if is_opened {
            let may_run = seals.server.may_run(seals.now, at(CLIENT), false);
            assert_eq!(may_run, ahead_ms == 0, "{ahead_ms} ms");
        }
    }
}

/// Requests that have run are remembered by address where they are run: a session that has been
/// known at one, and is not there, is nobody's elsewhere.
#[test]
fn a_session_that_was_known_runs_where_it_was_known_and_while_it_is() {
    let mut seals = Seals::new();
    let (now, server) = (seals.now, &mut Seals::new().server);
    let mut bytes = seals.of_client(SERVER, &request(1));
    assert!(server.open(now, at(CLIENT), &mut bytes).is_some());
    assert!(server.may_run(now, at(CLIENT), false), "it is new");
    server.note_known(at(CLIENT));
    for (address, is_sound, expected) in [
        (CLIENT, true, true),
        (CLIENT, false, false),
        (STRANGER, true, false),
        (STRANGER, false, false),
    ] {
        assert_eq!(server.may_run(now, at(address), is_sound), expected, "{address} {is_sound}");
    }
    assert_eq!(server.metrics().stale_sessions, 3);
}

/// It would make calls of before the start look new: none may be under way then.
#[test]
fn a_clock_that_is_set_back_counts_for_the_start_once_no_call_of_before_lasts() {
    let mut seals = Seals::new();
    let sealing = of_role(&seals.keys, Role::Server);
    seals.server = endpoint(&Sealing { clock_ns: HOUR, ..sealing }, 3);
    let mut bytes = seals.of_client(SERVER, &request(1));
    assert!(seals.server.open(seals.now, at(CLIENT), &mut bytes).is_some());
    let kept = EPOCH_KEPT_MS * MS;
    for (after, may_run) in [(20 * MS, false), (kept - 1, false), (kept, true)] {
        let now = START + after;
        seals.server.set_clock(now, now);
        assert_eq!(seals.server.may_run(now, at(CLIENT), false), may_run, "{after} ns");
    }
}

/// By a clock that was behind the server has started earlier than it did: at once it knows better.
#[test]
fn a_clock_that_is_set_ahead_makes_what_began_before_the_start_old() {
    let sealing = of_role(&Seals::new().keys, Role::Client(17));
    let sealing = Sealing { clock_ns: HOUR, ..sealing };
    for (began, may_run) in [(START - 5 * MS, false), (START + 5 * MS, true)] {
        let (now, server) = (START + 20 * MS, &mut Seals::new().server);
        server.set_clock(now, HOUR + now);
        let mut client = endpoint(&sealing, 1);
        client.note_session(began, SESSION);
        let mut bytes = to_server(&request(1));
        assert!(client.seal(now, at(SERVER), &mut bytes));
        assert!(server.open(now, at(CLIENT), &mut bytes).is_some());
        assert_eq!(server.may_run(now, at(CLIENT), false), may_run);
    }
}
