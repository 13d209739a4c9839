//! Amount that is asked for again at once, and its delay in a crowd.

use super::*;

/// Ranges that the RESENDs among what was sent ask for.
pub(super) fn asked(sent: &[Sent]) -> Vec<(u32, u32)> {
    let of = |sent: &Sent| match sent.packet().body {
        Body::Resend(resend) => Some((resend.offset, resend.length)),
        _ => None,
    };
    sent.iter().filter_map(of).collect()
}

/// The first packet of 9,000 bytes from each of so many clients, of which the rest does not come.
fn of_many(count: u8) -> Lone {
    let mut server = Lone::new();
    (0..count).for_each(|client| server.give(&address(client), &part(2, 9000, 0, 1396)));
    server
}

/// The first packets of 9,000 bytes from thirteen clients, and of 8,000 from one more, whose turn
/// to ask is behind theirs.
fn last_of_fourteen() -> Lone {
    let mut server = Lone::new();
    server.give(&address(13), &part(2, 8000, 0, 1396));
    (0..13).for_each(|client| server.give(&address(client), &part(2, 9000, 0, 1396)));
    server
}

fn address(client: u8) -> String {
    format!("10.0.1.{client}:32769")
}

/// The packet of [`part`], sent again.
fn part_again(id: u64, len: u32, offset: u32, bytes: u32) -> Vec<u8> {
    let mut packet = part(id, len, offset, bytes);
    packet[RETRANSMIT_AT] = 200;
    packet
}

/// Offset of [`DataHeader::retransmit`].
const RETRANSMIT_AT: usize = std::mem::offset_of!(DataHeader, retransmit);

/// 13 x 7,604 bytes are 98,852.
#[test]
fn a_hundred_kilobytes_are_asked_for_at_once_and_more_as_they_come() {
    let mut server = of_many(20);
    server.pass(MS + MS / 10);
    assert_eq!(asked(&server.take()), [(1396, 7604); 13]);
    // Four packets leave room for 6,732 bytes, a fifth for 8,128.
    for (place, next) in [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1)] {
        server.give(&address(0), &part_again(2, 9000, place * 1396, 1396));
        assert_eq!(asked(&server.take()).len(), next, "after {place} packets");
    }
}

#[test]
fn what_was_asked_for_and_does_not_come_counts_as_lost_after_a_silence() {
    let mut server = of_many(20);
    server.pass(MS + MS / 10);
    assert_eq!(asked(&server.take()).len(), 13);
    server.pass(MS + MS / 10);
    let found = asked(&server.take());
    // Those that have waited have never asked, and are not as patient as the others.
    assert_eq!(found, [(1396, 7604); 7]);
    server.pass(2 * MS);
    assert_eq!(asked(&server.take()).len(), 20, "one part of them, and then the other");
}

/// A client of which all has come, or that is gone, does not keep others from asking.
#[test]
fn who_waits_to_ask_and_misses_nothing_any_more_is_passed_over() {
    let mut server = of_many(20);
    server.pass(MS + MS / 10);
    server.take();
    for place in 1..7 {
        let bytes = (9000 - place * 1396).min(1396);
        server.give(&address(13), &part(2, 9000, place * 1396, bytes));
        server.give(&address(14), &part(2, 9000, place * 1396, bytes));
    }
    (1..6).for_each(|place| server.give(&address(0), &part_again(2, 9000, place * 1396, 1396)));
    assert_eq!((server.requests.len(), asked(&server.take()).len()), (2, 1));
}

#[test]
fn a_message_longer_than_what_may_be_asked_for_is_asked_for_alone() {
    let mut server = Lone::with(|config| config.recovery.asked_bytes_max = 5000);
    [0, 1].iter().for_each(|&client| server.give(&address(client), &part(2, 9000, 0, 1396)));
    server.pass(MS + MS / 10);
    assert_eq!(asked(&server.take()), [(1396, 5000)]);
}

/// One that has been asked sends a byte each time that nearly counts as lost.
#[test]
fn who_trickles_keeps_nobody_from_asking_for_longer_than_a_crowd() {
    let mut server = last_of_fourteen();
    server.pass(MS + MS / 10);
    assert_eq!(asked(&server.take()), [(1396, 7604); 13]);
    let is_asked = |step: u32| {
        server.give(&address(0), &part_again(2, 9000, 1396 + step, 1));
        server.pass(MS / 4);
        asked(&server.take()).contains(&(1396, 6604))
    };
    let first = (0..40).map(is_asked).position(|is_asked| is_asked);
    assert!(first.is_some_and(|step| (8..=14).contains(&step)), "3 ms: {first:?}");
}

/// The one that waits longest is next, also where what others were asked for is lost.
#[test]
fn who_has_waited_asks_before_who_comes() {
    let mut server = last_of_fourteen();
    server.pass(MS + MS / 10);
    server.take();
    server.pass(MS);
    let found = asked(&server.take());
    assert_eq!(found.first(), Some(&(1396, 6604)), "{found:?}");
}

/// They could be anybody, and send nothing of what they are asked for.
#[test]
fn strangers_have_no_part_in_what_may_be_asked_for() {
    let mut server = Lone::new();
    (1..=30).for_each(|host| {
        server.give(&format!("192.0.2.{host}:32769"), &part(2, 9000, 0, 1396));
    });
    server.give(&address(13), &part(2, 8000, 0, 1396));
    server.pass(MS + MS / 10);
    let found = asked(&server.take());
    assert_eq!((found.len(), found.contains(&(1396, 6604))), (31, true));
}

/// They say that somebody has lost something, and nothing of a queue in which others wait.
#[test]
fn what_is_sent_again_to_others_is_no_sign_of_a_crowd() {
    for (again, expected) in [(false, 0), (true, 1)] {
        let mut server = of_many(1);
        for step in 0..12 {
            let message = if again { part_again } else { part };
            server.give("10.0.0.11:32769", &message(2, 9000, step * 100, 100));
            server.pass(MS / 10);
        }
        let of_the_first =
            |sent: &[Sent]| asked(sent).iter().filter(|range| **range == (1396, 7604)).count();
        assert_eq!(of_the_first(&server.take()), expected, "sent again: {again}");
    }
}

/// True if a client that sends but one packet of 9,000 bytes is asked for the rest within so many
/// tenths of a millisecond, in each of which another sends some of as much.
fn is_asked_in_crowd(server: &mut Lone, steps: u32) -> bool {
    server.give(CLIENT, &part(2, 9000, 0, 1396));
    (0..steps).any(|step| {
        server.give("10.0.0.12:32769", &part(2, 9000, step * 100, 100));
        server.pass(MS / 10);
        asked(&server.take()).contains(&(1396, 7604))
    })
}

/// Grants that are soon obeyed show that nothing waits for long before this host.
#[test]
fn in_a_crowd_is_asked_as_soon_as_what_was_granted_of_late_came() {
    for (granted_after_ns, expected) in [(10_000, true), (2 * MS, false)] {
        let mut server = Lone::new();
        server.give("10.0.0.11:32769", &part(2, 40_000, 0, 1396));
        server.now += granted_after_ns;
        (1..8).for_each(|place| {
            server.give("10.0.0.11:32769", &part(2, 40_000, place * 1396, 1396));
        });
        server.take();
        assert_eq!(is_asked_in_crowd(&mut server, 16), expected, "{granted_after_ns} ns");
    }
}

/// Bytes come every 4 ns. Without the twelve others less than 200 kB may come, which takes 0.8 ms;
/// with them 660 kB.
#[test]
fn where_much_may_come_at_once_it_is_missed_later() {
    for (others, expected) in [(0, true), (12, false)] {
        let mut server = Lone::new();
        server.give("10.0.0.11:32769", &part(2, 1_000_000, 0, 1396));
        (1..200).for_each(|place| {
            server.now += 5584;
            server.give("10.0.0.11:32769", &part(2, 1_000_000, place * 1396, 1396));
        });
        (0..others).for_each(|other| {
            let mut first = DataHeader::new(TO_SERVER, 2, 40_000, 0);
            (first.incoming, first.cutoff_version) = (40_000.into(), 1.into());
            server.give(&address(other), &[first.as_bytes(), &[1; 1396]].concat());
        });
        server.take();
        assert_eq!(is_asked_in_crowd(&mut server, 30), expected, "{others} others");
    }
}

/// Karn: what comes after a question may be what was sent first or its answer.
#[test]
fn what_comes_after_a_question_measures_no_round_trip() {
    for (is_late, guard_ns) in [(false, 10_000), (true, 50_000)] {
        let mut server = Lone::new();
        server.give(CLIENT, &part(2, 12_000, 0, 9328));
        let after_ns = if is_late { 2 * MS } else { 10_000 };
        server.pass(after_ns);
        assert_eq!(asked(&server.take()).len(), usize::from(is_late));
        server.give(CLIENT, &part(2, 12_000, 9328, 2672));
        server.reply(100).unwrap();
        let mut resent = |at_ns: u64| {
            server.now += at_ns;
            server.give(CLIENT, &resend(TO_SERVER, 2, 0, RESEND_ALL));
            server.node.metrics().resent_bytes
        };
        assert_eq!((resent(guard_ns - 1), resent(1)), (0, 100), "late: {is_late}");
    }
}
