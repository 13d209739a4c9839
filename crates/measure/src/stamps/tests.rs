//! Stamps by tables, and under loss, delay, repetition and reordering.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[test]
fn three_clocks_side_by_side() {
    let mut matcher = matcher(Promised::Both);
    matcher.handle_request(0, user(1_000));
    matcher.handle_sent(0..=0, kernel(70_000));
    matcher.handle_sent(0..=0, hardware(500));
    matcher.handle_reply(0, Stamps::of_ns(Some(9_000), Some(76_000), Some(4_500)), 9_000);
    check(&mut matcher, &[(0, Some(8_000), Some(6_000), Some(4_000))]);
}

#[test]
fn a_stamp_may_come_after_the_reply() {
    let mut matcher = matcher(Promised::Kernel);
    matcher.handle_request(5, user(1));
    matcher.handle_reply(5, Stamps::of_ns(Some(3), Some(30), None), 3);
    check(&mut matcher, &[]);
    matcher.handle_sent(5..=5, kernel(10));
    check(&mut matcher, &[(5, Some(2), Some(20), None)]);
}

#[test]
fn without_a_promise_the_reply_closes() {
    let mut matcher = matcher(Promised::Nothing);
    matcher.handle_request(0, user(1));
    matcher.handle_reply(0, user(4), 4);
    check(&mut matcher, &[(0, Some(3), None, None)]);
}

#[test]
fn one_write_of_tcp_covers_the_requests_whose_last_byte_it_carried() {
    let mut matcher = matcher(Promised::Kernel);
    // Three requests of 100 bytes; the first write carried 250 of them.
    assert_eq!([99, 199, 299].map(|key| matcher.handle_request(key, user(1))), [true; 3]);
    matcher.handle_sent(0..=249, kernel(10));
    matcher.handle_sent(250..=299, kernel(11));
    for key in [99, 199, 299] {
        matcher.handle_reply(key, Stamps::of_ns(Some(9), Some(30), None), 9);
    }
    check(
        &mut matcher,
        &[
            (99, Some(8), Some(20), None),
            (199, Some(8), Some(20), None),
            (299, Some(8), Some(19), None),
        ],
    );
}

#[test]
fn a_retransmission_is_a_duplicate_and_the_first_stamp_holds() {
    let mut matcher = matcher(Promised::Kernel);
    matcher.handle_request(0, user(1));
    matcher.handle_sent(0..=0, kernel(10));
    matcher.handle_sent(0..=0, kernel(15));
    matcher.handle_reply(0, Stamps::of_ns(Some(9), Some(30), None), 9);
    matcher.handle_sent(0..=0, kernel(40));
    check(&mut matcher, &[(0, Some(8), Some(20), None)]);
    assert_eq!(matcher.counts().duplicates, 2);
}

/// The interface lost its stamp of the first transmission.
#[test]
fn a_stamp_that_may_be_a_retransmissions_gives_no_latency() {
    let mut matcher = matcher(Promised::Both);
    matcher.handle_request(0, user(1));
    for stamps in [kernel(10), kernel(5_010), hardware(7_000)] {
        matcher.handle_sent(0..=0, stamps);
    }
    matcher.handle_reply(0, Stamps::of_ns(Some(6_001), Some(6_010), Some(8_000)), 6_001);
    check(&mut matcher, &[(0, Some(6_000), Some(6_000), None)]);
    assert_eq!((matcher.counts().ambiguous, matcher.counts().missing_hardware), (1, 0));
}

#[test]
fn the_last_packet_of_a_reply_counts_even_when_it_is_overtaken() {
    let mut matcher = matcher(Promised::Kernel);
    matcher.handle_request(0, user(1));
    matcher.handle_sent(0..=0, kernel(10));
    matcher.handle_packet(0, kernel(50));
    matcher.handle_reply(0, Stamps::of_ns(Some(9), Some(40), None), 9);
    check(&mut matcher, &[(0, Some(8), Some(40), None)]);
}

#[test]
fn the_wait_is_bounded_and_what_is_missing_is_counted() {
    let mut matcher = matcher(Promised::Both);
    matcher.handle_request(0, user(1));
    matcher.handle_sent(0..=0, kernel(10));
    assert_eq!(matcher.poll_timeout(), None);
    matcher.handle_reply(0, Stamps::of_ns(Some(9), Some(30), Some(3)), 9);
    assert_eq!(matcher.poll_timeout(), Some(9 + WAIT_NS));
    matcher.handle_timeout(8 + WAIT_NS);
    check(&mut matcher, &[]);
    matcher.handle_timeout(9 + WAIT_NS);
    check(&mut matcher, &[(0, Some(8), Some(20), None)]);
    matcher.handle_sent(0..=0, hardware(1));
    let counts = MatchCounts {
        requests: 1,
        samples: 1,
        missing_hardware: 1,
        late: 1,
        ..MatchCounts::default()
    };
    assert_eq!(*matcher.counts(), counts);
}

#[test]
fn a_request_without_a_reply_is_let_go() {
    let mut matcher = matcher(Promised::Kernel);
    matcher.handle_request(0, user(1));
    matcher.handle_failure(0);
    matcher.handle_reply(0, user(2), 2);
    check(&mut matcher, &[]);
    assert_eq!((matcher.counts().unanswered, matcher.open_count()), (1, 0));
}

#[test]
fn a_stamp_that_nobody_asked_for_is_counted() {
    let mut matcher = matcher(Promised::Kernel);
    matcher.handle_sent(3..=3, kernel(1));
    assert_eq!(matcher.counts().unexpected, 1);
}

#[test]
fn open_samples_are_bounded() {
    let mut matcher = Matcher::new(MatcherConfig { open_max: 2, ..MatcherConfig::default() });
    let taken = [0, 1, 2].map(|key| matcher.handle_request(key, user(1)));
    assert_eq!((taken, matcher.counts().refused), ([true, true, false], 1));
}

#[test]
fn keys_ascend() {
    let mut matcher = matcher(Promised::Nothing);
    assert!(matcher.handle_request(7, user(1)));
    assert!(!matcher.handle_request(7, user(1)));
}

#[test]
fn a_clock_that_runs_backwards_gives_no_latency() {
    let mut matcher = matcher(Promised::Kernel);
    matcher.handle_request(0, user(1));
    matcher.handle_sent(0..=0, kernel(100));
    matcher.handle_reply(0, Stamps::of_ns(Some(5), Some(50), None), 5);
    check(&mut matcher, &[(0, Some(4), None, None)]);
    assert_eq!(matcher.counts().reversed, 1);
}

#[test]
fn the_bias_is_the_users_latency_minus_the_kernels() {
    let mut bias = Bias::new();
    for difference_ns in 1..=1_000 {
        let latencies = Latencies {
            user_ns: Some(5_000 + difference_ns),
            kernel_ns: Some(5_000),
            hardware_ns: None,
        };
        bias.record(&latencies);
    }
    bias.record(&Latencies { user_ns: Some(1), kernel_ns: Some(2), hardware_ns: None });
    bias.record(&Latencies { user_ns: Some(1), kernel_ns: None, hardware_ns: None });
    let mut merged = Bias::new();
    merged.merge(&bias);
    let summary = merged.summary();
    assert_eq!((summary.count, summary.below, summary.mean_ns), (1_001, 1, Some(500.5)));
    let near = |value: Option<u64>, expected: u64| {
        value.is_some_and(|value| value.abs_diff(expected) * 100 <= expected)
    };
    assert!(
        near(summary.p50_ns, 500) && near(summary.p99_ns, 990) && near(summary.max_ns, 1_000),
        "{summary:?}"
    );
}

proptest! {
    /// Whatever happens to the stamps on their way, a latency that is given is the true one.
    #[test]
    fn stamps_are_never_given_to_another_request(fates in vec(any::<u32>(), 1..200), lens in vec(1_u64..40, 200)) {
        let mut matcher = Matcher::new(MatcherConfig { promised: Promised::Both, wait_ns: 50, open_max: 64 });
        let (mut stamps, mut key) = (Vec::new(), 0);
        let mut truth = std::collections::BTreeMap::new();
        for (at, (fate, len)) in fates.iter().zip(&lens).enumerate() {
            let (at, fate) = (at as u64, Fate(*fate));
            let range = key..=key + len - 1;
            key += len;
            let is_sampled = matcher.handle_request(key - 1, user(at));
            // Each request's stamps and latencies are its own.
            truth.insert(key - 1, (is_sampled, fate.is_answered()));
            stamps.extend(fate.arrivals(at, &range));
            stamps.sort_by_key(|(due, ..)| *due);
            while stamps.first().is_some_and(|(due, ..)| *due <= at) {
                let (_, range, stamp) = stamps.remove(0);
                matcher.handle_sent(range, stamp);
            }
            match fate.is_answered() {
                true => matcher.handle_reply(key - 1, reply(at), at),
                false => matcher.handle_failure(key - 1),
            }
            matcher.handle_timeout(at);
            while let Some(sample) = matcher.poll_sample() {
                prop_assert_eq!(truth.remove(&sample.key), Some((true, true)), "key {}", sample.key);
                let Latencies { user_ns, kernel_ns, hardware_ns } = sample.latencies;
                prop_assert_eq!(user_ns, Some(7));
                prop_assert!(kernel_ns.is_none_or(|ns| ns == 1_003), "{:?}", kernel_ns);
                prop_assert!(hardware_ns.is_none_or(|ns| ns == 30_011), "{:?}", hardware_ns);
            }
        }
        matcher.handle_timeout(u64::MAX);
        while let Some(sample) = matcher.poll_sample() {
            truth.remove(&sample.key);
        }
        prop_assert!(truth.values().all(|&(is_sampled, is_answered)| !is_sampled || !is_answered), "lost: {:?}", truth);
        let counts = matcher.counts();
        prop_assert_eq!(counts.samples + counts.unanswered, counts.requests);
        prop_assert_eq!(matcher.open_count(), 0);
    }
}

/// Fate of one request: bits for a reply, and for the loss, repetition and delay of its stamps.
#[derive(Clone, Copy, Debug)]
struct Fate(u32);

impl Fate {
    fn is_answered(self) -> bool {
        !self.0.is_multiple_of(8)
    }

    /// Times at which its stamps come, and the keys that they are for.
    fn arrivals(
        self,
        at: u64,
        range: &RangeInclusive<u64>,
    ) -> Vec<(u64, RangeInclusive<u64>, Stamps)> {
        let copy = |shift: u32, stamp: Stamps| {
            let bits = u64::from(self.0 >> shift & 0x7f);
            // Lost half of the time; else late by up to 63 requests, more than the wait.
            (bits >= 64).then(|| (at + bits - 64, range.clone(), stamp))
        };
        let (kernel, hardware) = (kernel(kernel_at(at)), hardware(hardware_at(at)));
        [copy(3, kernel), copy(10, kernel), copy(17, hardware), copy(24, hardware)]
            .into_iter()
            .flatten()
            .collect()
    }
}

fn reply(at: u64) -> Stamps {
    Stamps::of_ns(Some(at + 7), Some(kernel_at(at) + 1_003), Some(hardware_at(at) + 30_011))
}

fn kernel_at(at: u64) -> u64 {
    5_000_000 + at * 10_000
}

fn hardware_at(at: u64) -> u64 {
    9 + at * 77_777
}

/// Compares the samples that have closed: key, and latency by each clock.
fn check(matcher: &mut Matcher, expected: &[Row]) {
    let closed =
        std::iter::from_fn(|| matcher.poll_sample()).map(|StampedSample { key, latencies }| {
            let Latencies { user_ns, kernel_ns, hardware_ns } = latencies;
            (key, user_ns, kernel_ns, hardware_ns)
        });
    assert_eq!(closed.collect::<Vec<_>>(), expected);
}

fn matcher(promised: Promised) -> Matcher {
    Matcher::new(MatcherConfig { promised, wait_ns: WAIT_NS, ..MatcherConfig::default() })
}

fn user(ns: u64) -> Stamps {
    Stamps::of_ns(Some(ns), None, None)
}

fn kernel(ns: u64) -> Stamps {
    Stamps::of_ns(None, Some(ns), None)
}

fn hardware(ns: u64) -> Stamps {
    Stamps::of_ns(None, None, Some(ns))
}

/// A sample: its key, and its latency by the user's clock, the kernel's and the interface's.
type Row = (u64, Option<u64>, Option<u64>, Option<u64>);

const WAIT_NS: u64 = 1_000;
