//! Messages that wait for grants: who gets what another leaves that ends.

use tailcut_proto::homa::GrantPolicy;

use super::*;

const OTHER: &str = "10.0.0.11:32769";

/// A server that lets 9,000 bytes come at once.
fn narrow() -> Lone {
    Lone::with(|config| {
        let (window, incoming_max, fifo_permille, fifo_increment) = (0, 9_000, 0, 0);
        config.grants.policy =
            GrantPolicy::Module { window, incoming_max, fifo_permille, fifo_increment };
    })
}

/// All that needs no grant of a request of `len` bytes comes; the grants that follow.
fn send_unscheduled(server: &mut Lone, from: &str, len: u32) -> Vec<(u64, u32, u8)> {
    for offset in (0..9_328).step_by(1_442) {
        server.give(from, &part(2, len, offset, (9_328 - offset).min(1_442)));
        server.pass(2_000);
    }
    grants(&server.take())
}

/// Requests of which one is to send all that may come, and the other waits.
fn one_waits(len: u32) -> Lone {
    let mut server = narrow();
    server.give(CLIENT, &part(2, len, 0, 1_396));
    assert_eq!(grants(&server.take()), []);
    assert_eq!(send_unscheduled(&mut server, OTHER, 50_000), [], "no packet more may come");
    server
}

#[test]
fn what_a_request_that_is_given_up_was_to_send_another_may() {
    let mut server = one_waits(20_000);
    server.give(CLIENT, &ack(TO_SERVER, 2, &[]));
    assert_eq!(grants(&server.take()), [(2, 9_328 + 9_000 / 2, 0)]);
}

#[test]
fn what_a_request_that_expires_was_to_send_another_may() {
    let mut server = one_waits(20_000);
    server.pass(95 * MS);
    assert_eq!(grants(&server.take()), []);
    // The one that waits has not been silent for so long.
    server.give(OTHER, &resend(TO_SERVER, 2, 0, RESEND_ALL));
    server.pass(10 * MS);
    assert_eq!(server.node.metrics().partials_expired, 1);
    assert_eq!(grants(&server.take()), [(2, 9_328 + 9_000 / 2, 0)]);
}

#[test]
fn the_last_packet_of_a_request_makes_room_for_another() {
    let mut server = one_waits(9_300);
    server.give(CLIENT, &part(2, 9_300, 1_396, 9_300 - 1_396));
    assert_eq!(server.requests.len(), 1);
    assert_eq!(grants(&server.take()), [(2, 9_328 + 9_000 / 2, 0)]);
}

/// A server that grants one request at a time, of which one has just been given up and the other
/// has its first grant.
fn sigcomm_turn() -> Lone {
    let mut server = Lone::with(sigcomm(1));
    server.give(CLIENT, &part(2, 40_000, 0, 1_442));
    server.take();
    assert_eq!(send_unscheduled(&mut server, OTHER, 50_000), [], "the other is shorter");
    server.give(CLIENT, &ack(TO_SERVER, 2, &[]));
    server
}

#[test]
fn sigcomm_gives_the_place_of_a_request_that_is_given_up_to_the_next() {
    assert_eq!(grants(&sigcomm_turn().take()), [(2, 9_328 + 1_456, 0)]);
}

/// Nothing of it is under way that could bring the next grant.
#[test]
fn sigcomm_grants_what_fits_a_round_trip_at_the_pace_of_the_link() {
    let mut server = sigcomm_turn();
    server.take();
    server.pass(MS / 10);
    let granted: Vec<u32> = grants(&server.take()).iter().map(|grant| grant.1).collect();
    assert!(granted.len() > 1 && granted.windows(2).all(|pair| pair[1] == pair[0] + 1_456));
    let in_flight = granted.last().unwrap() - 9_328;
    assert!((8_000..12_000).contains(&in_flight), "{in_flight}");
}

/// It is not late before it was allowed to come.
#[test]
fn what_was_granted_late_is_asked_for_when_that_is_not_used() {
    let mut server = one_waits(20_000);
    server.pass(5 * MS);
    server.give(CLIENT, &ack(TO_SERVER, 2, &[]));
    assert_eq!(grants(&server.take()), [(2, 9_328 + 9_000 / 2, 0)]);
    server.pass(9 * MS / 10);
    assert_eq!(server.take_types(), []);
    server.pass(MS / 5);
    assert_eq!(server.take_types(), [PacketType::Resend]);
}

/// Granted bytes of it that do not come are a window and two increments at most.
#[test]
fn the_oldest_message_gets_no_more_while_it_sends_nothing() {
    let mut server = Lone::with(|config| {
        let (window, incoming_max, fifo_increment) = (5_000, 400_000, 5_000);
        config.grants.policy =
            GrantPolicy::Module { window, incoming_max, fifo_permille: 1000, fifo_increment };
        config.grants.overcommit = 1;
    });
    server.give(CLIENT, &part(2, 1_000_000, 0, 1_396));
    let mut of_oldest = Vec::new();
    for (client, id) in [("10.0.1.1:9", 10), ("10.0.1.2:9", 12)] {
        let (mut from, mut to) = (0, 9_328);
        while from < 50_000 {
            let bytes = (to - from).min(1_396);
            server.give(client, &part(id, 50_000, from, bytes));
            from += bytes;
            for grant in grants(&server.take()) {
                if grant.0 == id { to = grant.1 } else { of_oldest.push(grant) }
            }
        }
    }
    // 7,932 bytes of it needed no grant and have not come.
    assert_eq!(of_oldest, [(2, 9_328 + 5_000, 7), (2, 9_328 + 10_000, 7)]);
    assert_eq!(server.node.metrics().fifo_grants, 2);
}

/// As [`one_waits`], 600 ms later.
fn one_has_waited_for_long() -> Lone {
    let mut server = one_waits(20_000);
    for step in 0..20 {
        server.give(CLIENT, &part(2, 20_000, 1_396 + step, 1));
        server.pass(30 * MS);
    }
    assert_eq!(grants(&server.take()), []);
    server
}

/// Nothing of it may come before.
#[test]
fn a_request_that_waits_for_grants_is_not_given_up_for_saying_nothing() {
    let server = one_has_waited_for_long();
    assert_eq!((server.node.holdings().partials, server.node.metrics().partials_expired), (2, 0));
}

#[test]
fn a_long_wait_for_a_grant_makes_no_question_wait() {
    let mut server = one_has_waited_for_long();
    server.give(CLIENT, &ack(TO_SERVER, 2, &[]));
    assert_eq!(grants(&server.take()), [(2, 9_328 + 9_000 / 2, 0)]);
    server.pass(MS + MS / 10);
    assert_eq!(server.take_types(), [PacketType::Resend]);
}

#[test]
fn of_requests_as_long_the_one_that_began_first_gets_the_grants() {
    for clients in [[CLIENT, OTHER], [OTHER, CLIENT]] {
        let mut server = Lone::with(|config| config.grants.overcommit = 1);
        server.give(CLIENT, &request(2, 4, 0, b"ping"));
        server.give(OTHER, &request(2, 4, 0, b"ping"));
        let granted = clients.map(|client| {
            server.take();
            server.give(client, &part(4, 500_000, 0, 1396));
            grants(&server.take()).len()
        });
        assert_eq!(granted, [1, 0], "{clients:?}");
    }
}

/// For every thousand bytes that others are granted it gets seven hundred, whatever is left of an
/// increment.
#[test]
fn the_oldest_message_gets_its_part_of_all_grants() {
    let (window, fifo_permille, fifo_increment) = (5_000, 700, 1_500);
    let mut server = Lone::with(|config| {
        let incoming_max = 400_000;
        config.grants.policy =
            GrantPolicy::Module { window, incoming_max, fifo_permille, fifo_increment };
        config.grants.overcommit = 1;
    });
    let mut sent = 9_328;
    server.give(CLIENT, &part(2, 1_000_000, 0, sent));
    for client in ["10.0.1.1:9", "10.0.1.2:9"] {
        let (mut from, mut to) = (0, 9_328);
        while from < 50_000 {
            let bytes = (to - from).min(1_396);
            server.give(client, &part(10, 50_000, from, bytes));
            from += bytes;
            for (id, offset, _) in grants(&server.take()) {
                if id == 10 {
                    to = offset;
                } else {
                    server.give(CLIENT, &part(2, 1_000_000, sent, offset - sent));
                    sent = offset;
                }
            }
        }
    }
    let granted = 2 * (50_000 - 9_328) + sent - 9_328;
    let of_oldest = server.node.metrics().fifo_grants as u32 * fifo_increment;
    // Others may get less than they have a claim to, as it is in whole packets.
    let permille = 1000 * of_oldest / (granted - of_oldest);
    assert!((690..780).contains(&permille), "{permille}");
}
