//! When the requests of one sender should have left, and when they did.
//!
//! A sender does one thing at a time: a request that comes due while the one before it is being sent leaves as soon as that send
//! is over. That is no fault of its schedule, though it shows in the gaps: where a send takes an eighth of the mean gap, as many
//! gaps are as long as a send. So a departure counts as in time up to what a send takes, which is read off the departures
//! themselves, and what is later counts as late by the rest. Requests that were held back for longer leave close together
//! however this is looked at, and so are found.
//!
//! Invariant: no faster a sender is assumed than [`SEND_NS`] a send, and no slower a one than a quarter of the mean gap.

use super::arrival_fit::{ArrivalFit, Asked};

/// The departures of one sender, the first [`DEPARTURES_MAX`] of them and what was noted together with those.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    departures: Vec<Departure>,
}

#[derive(Clone, Copy, Debug)]
struct Departure {
    sent_ns: u64,
    intended_ns: u64,
}

impl Departures {
    /// Notes `departures`, pairs of when a request should have left and when it did, in any order.
    pub fn note(&mut self, departures: impl IntoIterator<Item = (u64, u64)>) {
        if self.departures.len() < DEPARTURES_MAX {
            let departure = |(intended_ns, sent_ns)| Departure { sent_ns, intended_ns };
            self.departures.extend(departures.into_iter().map(departure));
        }
    }

    /// Ends the notes: whether the departures are those `asked` for, and the gaps between them in ns. No fit where there are too
    /// few.
    pub fn take(&mut self, asked: &Asked) -> (Option<ArrivalFit>, Vec<f64>) {
        let mut departures = std::mem::take(&mut self.departures);
        departures.sort_unstable_by_key(|departure| (departure.sent_ns, departure.intended_ns));
        let send_ns = send_ns(&departures).clamp(SEND_NS, SEND_NS.max((asked.mean_ns() * SEND_SHARE_MAX) as u64));
        let in_time = gaps_ns(&departures, |departure| departure.intended_ns.max(departure.sent_ns.saturating_sub(send_ns)));
        (ArrivalFit::of(&in_time, asked), gaps_ns(&departures, |departure| departure.sent_ns))
    }
}

/// What a send takes: the time to the next one, where that came due just after the send began. 0 where too few did.
fn send_ns(departures: &[Departure]) -> u64 {
    let came_due = |pair: &&[Departure]| (1..=SEND_NS).contains(&pair[1].intended_ns.saturating_sub(pair[0].sent_ns));
    let mut took_ns: Vec<u64> = departures.windows(2).filter(came_due).map(|pair| pair[1].sent_ns - pair[0].sent_ns).collect();
    if took_ns.len() < SENDS_MIN {
        return 0;
    }
    let middle = took_ns.len() / 2;
    *took_ns.select_nth_unstable(middle).1
}

fn gaps_ns(departures: &[Departure], at_ns: impl Fn(&Departure) -> u64) -> Vec<f64> {
    departures.windows(2).map(|pair| at_ns(&pair[1]) as f64 - at_ns(&pair[0]) as f64).collect()
}

/// Departures that are looked at: their fault is known to a hundredth of its limit.
pub const DEPARTURES_MAX: usize = 50_000;
/// What a send takes at least, about a system call.
pub const SEND_NS: u64 = 3_000;
/// A sender that takes a larger share of the mean gap for a send does not keep a schedule.
const SEND_SHARE_MAX: f64 = 0.25;
/// Sends whose median is taken for that of all.
const SENDS_MIN: usize = 20;
