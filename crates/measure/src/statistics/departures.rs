//! Departures of one sender's requests: when they should have left, and when they did.
//!
//! A sender does one thing at a time: a request that comes due while the one before it is being
//! sent leaves as soon as that send is over. That is no fault of its schedule, though it shows in
//! the gaps: where a send takes an eighth of the mean gap, as many gaps are as long as a send. So a
//! departure counts as in time up to what a send takes, which is read off the departures
//! themselves, and what is later counts as late by the rest. Requests that were held back for
//! longer leave close together however this is looked at, and so are found.
//!
//! Invariants: a send counts for no more than [`SEND_NS_MAX`] and a quarter of the mean gap, so
//! that neither a server that is waited for nor a sender that cannot keep its schedule passes for a
//! slow send; what is kept is spread over the whole time, and bounded.

use super::arrival_fit::Asked;

/// The departures of one sender, part by part: all of them, or at most [`DEPARTURES_MAX`] of parts
/// that lie evenly over the time.
#[derive(Clone, Debug)]
pub struct Departures {
    /// By their numbers, ascending.
    parts: Vec<(u32, Vec<Departure>)>,
    /// Parts whose numbers are multiples of this are kept.
    stride: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Departure {
    sent_ns: u64,
    intended_ns: u64,
}

/// Gaps between departures.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Between actual departures, ns.
    pub seen_ns: Vec<f64>,
    /// Places in (0, 1) of the gaps, what a send takes left out: even, if they are those asked for.
    pub places: Vec<f64>,
}

impl Default for Departures {
    fn default() -> Self {
        Self { parts: Vec::new(), stride: 1, len: 0 }
    }
}

impl Departures {
    /// Notes the departures of a part of the time, pairs of when a request should have left and
    /// when it did, in any order. Parts come by ascending numbers.
    pub fn note(&mut self, part: u32, departures: impl IntoIterator<Item = (u64, u64)>) {
        if !part.is_multiple_of(self.stride) {
            return;
        }
        let departure = |(intended_ns, sent_ns)| Departure { sent_ns, intended_ns };
        let departures: Vec<Departure> = departures.into_iter().map(departure).collect();
        self.len += departures.len();
        self.parts.push((part, departures));
        while self.len > DEPARTURES_MAX && self.parts.len() > 1 {
            self.stride *= 2;
            self.parts.retain(|(part, _)| part.is_multiple_of(self.stride));
            self.len = self.parts.iter().map(|(_, departures)| departures.len()).sum();
        }
    }

    /// Ends the notes: what the gaps between them are, by what was `asked`.
    pub fn take(&mut self, asked: &Asked) -> Gaps {
        let parts = std::mem::take(self).parts;
        let runs: Vec<Vec<Departure>> =
            parts.chunk_by(|(part, _), (next, _)| part + 1 == *next).map(in_order).collect();
        let send_ns = send_ns(&runs, asked);
        let mut gaps = Gaps::default();
        for run in &runs {
            let in_time = gaps_ns(run, |departure| {
                departure.intended_ns.max(departure.sent_ns.saturating_sub(send_ns))
            });
            gaps.places.extend(asked.places(&in_time));
            gaps.seen_ns.extend(gaps_ns(run, |departure| departure.sent_ns));
        }
        gaps
    }
}

/// The departures of parts that follow each other.
fn in_order(parts: &[(u32, Vec<Departure>)]) -> Vec<Departure> {
    let mut run: Vec<Departure> =
        parts.iter().flat_map(|(_, departures)| departures).copied().collect();
    run.sort_unstable_by_key(|departure| (departure.sent_ns, departure.intended_ns));
    run
}

/// Duration of a send: the time to the next one, where that came due just after the send began.
fn send_ns(runs: &[Vec<Departure>], asked: &Asked) -> u64 {
    let came_due = |pair: &&[Departure]| {
        (1..=SEND_NS).contains(&pair[1].intended_ns.saturating_sub(pair[0].sent_ns))
    };
    let pairs = runs.iter().flat_map(|run| run.windows(2)).filter(came_due);
    let mut took_ns: Vec<u64> = pairs.map(|pair| pair[1].sent_ns - pair[0].sent_ns).collect();
    let middle = took_ns.len() / 2;
    let took_ns =
        if took_ns.len() < SENDS_MIN { 0 } else { *took_ns.select_nth_unstable(middle).1 };
    // Longer than that, it is not the send that the next one waits for.
    let took_ns = if took_ns > SEND_NS_MAX { 0 } else { took_ns };
    took_ns.max(SEND_NS).min((asked.mean_ns() * SEND_SHARE_MAX) as u64)
}

fn gaps_ns(departures: &[Departure], at_ns: impl Fn(&Departure) -> u64) -> Vec<f64> {
    departures.windows(2).map(|pair| at_ns(&pair[1]) as f64 - at_ns(&pair[0]) as f64).collect()
}

/// Departures that are looked at: their fault is known to a hundredth of its limit.
pub const DEPARTURES_MAX: usize = 50_000;
/// Least duration of a send, about a system call.
pub const SEND_NS: u64 = 3_000;
/// Longest duration of a send, with the kernel's work for the receiver in it.
pub const SEND_NS_MAX: u64 = 20_000;
/// A sender that takes a larger share of the mean gap for a send does not keep a schedule.
const SEND_SHARE_MAX: f64 = 0.25;
/// Sends whose median is taken for that of all.
const SENDS_MIN: usize = 20;
