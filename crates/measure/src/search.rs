//! The highest load that meets an objective, and sweeps whose points settle around the knee.
//!
//! Both are asked for the next load, have it measured by a
//! [`Controller`](crate::control::Controller), and are told the outcome.
//!
//! Invariant: a load counts as met only if its whole interval is within the limit and its verdict
//! is ok. The search ends after a bounded number of loads.

use crate::objective::{Answer, Objective};
use crate::statistics::quantile::Estimate;
use crate::verdict::{Reason, Verdict};

/// Outcome of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The objective is met.
    Met,
    /// It is missed, or the server cannot keep up with the load.
    Missed,
    /// The percentile is too close to the limit to tell.
    Close,
    /// The client, not the server, was at its end: nothing is known of the server at this load.
    Unjudged,
}

impl Outcome {
    /// Outcome by the verdict on a run that was to decide on `objective`, with the percentile as it
    /// was found.
    ///
    /// Give the whole verdict, with what is known of the hosts besides what the samples show: a
    /// load is not missed because the client was starved.
    pub fn of(verdict: &Verdict, intended: Option<Estimate>, objective: &Objective) -> Self {
        let of_the_client = |reason: &Reason| {
            matches!(
                reason,
                Reason::AgentLost { .. }
                    | Reason::Misses { .. }
                    | Reason::HostBusy { .. }
                    | Reason::PacketsDropped { .. }
                    | Reason::RateNotReached { .. }
                    | Reason::ArrivalsWrong { .. }
            )
        };
        let of_the_server = |reason: &Reason| {
            matches!(
                reason,
                Reason::Overloaded { .. }
                    | Reason::ServerSilent { .. }
                    | Reason::Errors { .. }
                    | Reason::Unanswered { .. }
                    | Reason::NotStationary { .. }
            )
        };
        let reasons = verdict.reasons();
        if reasons.iter().any(of_the_client) {
            return Self::Unjudged;
        }
        let answer = intended.map_or(Answer::Undecided, |estimate| objective.judge(&estimate));
        match answer {
            Answer::Missed => Self::Missed,
            // Late sends make a percentile worse, so that what is met in spite of them is met; but
            // what is not may be their fault.
            _ if reasons.iter().any(of_the_server) => Self::Missed,
            Answer::Met if verdict.is_ok() => Self::Met,
            _ if reasons.iter().any(|reason| matches!(reason, Reason::ClientLate { .. })) => {
                Self::Unjudged
            }
            _ => Self::Close,
        }
    }
}

/// Range of a search, and its resolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The lowest load, requests a second, above zero.
    pub from_per_s: f64,
    /// The highest load, requests a second.
    pub to_per_s: f64,
    /// The search ends where the highest load that is met and the lowest that is not are within
    /// this share of each other, such as 0.05.
    pub resolution: f64,
}

/// Finds the highest load that meets an objective, by bisection of the load's logarithm.
///
/// It begins at the lowest load and goes up by factors of two, because a load far beyond the
/// server's capacity harms more than it tells, and bisects from the first that is not met.
#[derive(Clone, Debug)]
pub struct Search {
    range: Range,
    /// The highest load that was met.
    met_per_s: Option<f64>,
    /// The lowest load that was not.
    not_met: Option<(f64, Outcome)>,
    probes: u32,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The highest load that was met, requests a second; `None` where not even the lowest was.
    pub met_per_s: Option<f64>,
    /// The lowest load that was not met, with its outcome; `None` where the whole range was met.
    pub not_met: Option<(f64, Outcome)>,
}

impl Search {
    /// A search of `range`, whose ends are put in order.
    pub fn new(range: Range) -> Self {
        let (from_per_s, to_per_s) =
            (range.from_per_s.min(range.to_per_s), range.from_per_s.max(range.to_per_s));
        Self {
            range: Range { from_per_s, to_per_s, ..range },
            met_per_s: None,
            not_met: None,
            probes: 0,
        }
    }

    /// The next load to measure, requests a second; `None` where the search has ended.
    pub fn next_per_s(&self) -> Option<f64> {
        if self.probes >= PROBES_MAX {
            return None;
        }
        match (self.met_per_s, self.not_met) {
            (None, None) => Some(self.range.from_per_s),
            (None, Some(_)) => None,
            (Some(met), None) if met >= self.range.to_per_s => None,
            (Some(met), None) => Some((met * 2.0).min(self.range.to_per_s)),
            (Some(met), Some((not_met, _))) if not_met / met <= 1.0 + self.range.resolution => None,
            (Some(met), Some((not_met, _))) => Some((met * not_met).sqrt()),
        }
    }

    /// Takes the outcome at the load that [`Search::next_per_s`] gave.
    pub fn handle_outcome(&mut self, load_per_s: f64, outcome: Outcome) {
        self.probes += 1;
        if outcome == Outcome::Met {
            self.met_per_s = Some(self.met_per_s.map_or(load_per_s, |met| met.max(load_per_s)));
        } else if self.not_met.is_none_or(|(lowest, _)| load_per_s < lowest) {
            self.not_met = Some((load_per_s, outcome));
        }
    }

    /// Result so far.
    pub fn found(&self) -> Found {
        Found { met_per_s: self.met_per_s, not_met: self.not_met }
    }
}

/// Chooses the loads of a sweep: first evenly, then in the middle of whichever neighbours enclose
/// the largest step of both load and latency, which is at the knee.
#[derive(Clone, Debug)]
pub struct Sweep {
    from_per_s: f64,
    to_per_s: f64,
    count: usize,
    /// Load, requests a second, and the logarithm of its latency; in the order of loads.
    points: Vec<(f64, f64)>,
    given: usize,
}

impl Sweep {
    /// A sweep of `count` points between two loads in requests a second, both included.
    pub fn new(from_per_s: f64, to_per_s: f64, count: usize) -> Self {
        Self { from_per_s, to_per_s, count, points: Vec::new(), given: 0 }
    }

    /// The next load to measure, requests a second; `None` after the last.
    pub fn next_per_s(&self) -> Option<f64> {
        if self.given >= self.count {
            return None;
        }
        let even = EVEN_POINTS.min(self.count);
        if self.given < even {
            let share = if even > 1 { self.given as f64 / (even - 1) as f64 } else { 0.0 };
            return Some(self.from_per_s + share * (self.to_per_s - self.from_per_s));
        }
        let area = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0) * (pair[1].1 - pair[0].1).abs();
        let widest = self.points.windows(2).max_by(|a, b| area(a).total_cmp(&area(b)))?;
        Some(f64::midpoint(widest[0].0, widest[1].0))
    }

    /// Takes the latency, ns, at the load that [`Sweep::next_per_s`] gave; `None` where there is
    /// none to speak of, as beyond the server's capacity, which counts as much worse than the
    /// worst.
    pub fn handle_latency(&mut self, load_per_s: f64, latency_ns: Option<f64>) {
        self.given += 1;
        let worst = self.points.iter().map(|&(_, logarithm)| logarithm).fold(0.0, f64::max);
        let logarithm = latency_ns.map_or(worst + OVERLOAD, |latency_ns| latency_ns.max(1.0).ln());
        let at = self.points.partition_point(|&(load, _)| load < load_per_s);
        self.points.insert(at, (load_per_s, logarithm));
    }
}

/// More than the doublings of any range and the bisections to any resolution that two runs could
/// tell apart.
const PROBES_MAX: u32 = 64;
/// Points of a sweep that are placed before anything is known.
const EVEN_POINTS: usize = 5;
/// By what an overload exceeds the worst latency, as a logarithm: ten times.
const OVERLOAD: f64 = 2.3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_a_busy_host_made_slow_is_not_judged() {
        let late = || Reason::ClientLate { p: 0.5, intended_ns: 3e6, actual_ns: 1e6 };
        let busy = || Reason::HostBusy { waited_share: 0.2, stolen_share: 0.0 };
        let silent = || Reason::ServerSilent { silent_ns: 1_000_000_000, due: 100 };
        let drifting = || Reason::NotStationary { change: Some(0.5) };
        check(vec![], (0.8e6, 0.9e6), Outcome::Met);
        check(vec![], (0.9e6, 1.1e6), Outcome::Close);
        check(vec![], (1.1e6, 1.2e6), Outcome::Missed);
        check(vec![late()], (1.1e6, 1.2e6), Outcome::Missed);
        check(vec![late()], (0.9e6, 1.1e6), Outcome::Unjudged);
        check(vec![late(), busy()], (1.1e6, 1.2e6), Outcome::Unjudged);
        check(vec![drifting(), busy()], (0.9e6, 1.1e6), Outcome::Unjudged);
        check(vec![drifting()], (0.9e6, 1.1e6), Outcome::Missed);
        check(vec![drifting(), silent()], (0.9e6, 1.1e6), Outcome::Missed);
        // By the host that loads: which of the two was at its end is not known.
        let overloaded = || Reason::Overloaded { sent_per_s: 2e3, replied_per_s: 1e3 };
        let dropped = || Reason::PacketsDropped { places: vec![("at interfaces", 9)] };
        check(vec![overloaded()], (0.8e6, 0.9e6), Outcome::Missed);
        check(vec![overloaded(), busy()], (1.1e6, 1.2e6), Outcome::Unjudged);
        check(vec![overloaded(), dropped()], (1.1e6, 1.2e6), Outcome::Unjudged);
    }

    /// Checks the outcome for a p50 below 1 ms, whose interval has these ends.
    fn check(reasons: Vec<Reason>, (low_ns, high_ns): (f64, f64), expected: Outcome) {
        let value_ns = f64::midpoint(low_ns, high_ns);
        let interval = Estimate::with_ends(0.5, value_ns, (low_ns, high_ns));
        let verdict = Verdict::from_reasons(reasons.clone());
        let objective: Objective = "p50<1ms".parse().unwrap();
        assert_eq!(Outcome::of(&verdict, Some(interval), &objective), expected, "{reasons:?}");
    }

    #[test]
    fn a_search_closes_in_on_the_edge_from_below() {
        let (found, probes) =
            search(Range { from_per_s: 1e3, to_per_s: 1e6, resolution: 0.05 }, 77_000.0);
        let met = found.met_per_s.unwrap();
        let (not_met, outcome) = found.not_met.unwrap();
        assert!(met <= 77_000.0 && 77_000.0 < not_met && not_met / met <= 1.05, "{found:?}");
        assert_eq!(outcome, Outcome::Missed);
        // Seven doublings are met and one is not; four halvings of a factor of two leave 4.4 %.
        assert_eq!(probes, 12);
    }

    #[test]
    fn a_range_that_is_all_met_or_all_missed_ends_at_its_ends() {
        let range = Range { from_per_s: 1e3, to_per_s: 5e3, resolution: 0.05 };
        assert_eq!(search(range, 1e9).0, Found { met_per_s: Some(5e3), not_met: None });
        assert_eq!(
            search(range, 10.0).0,
            Found { met_per_s: None, not_met: Some((1e3, Outcome::Missed)) }
        );
    }

    #[test]
    fn the_points_of_a_sweep_settle_around_the_knee() {
        // The p99 of M/M/1 with a capacity of 100,000 a second: it has doubled at a half, and grows
        // tenfold at nine tenths.
        let mut sweep = Sweep::new(5e3, 110e3, 20);
        let mut loads = Vec::new();
        while let Some(load) = sweep.next_per_s() {
            sweep.handle_latency(load, (load < 100e3).then(|| 46e3 / (1.0 - load / 100e3)));
            loads.push(load);
        }
        assert_eq!(loads.len(), 20);
        let near = loads.iter().filter(|&&load| (70e3..110e3).contains(&load)).count();
        assert!(near >= 12, "{loads:?}");
    }

    fn search(range: Range, edge_per_s: f64) -> (Found, u32) {
        let mut search = Search::new(range);
        while let Some(load) = search.next_per_s() {
            search.handle_outcome(
                load,
                if load <= edge_per_s { Outcome::Met } else { Outcome::Missed },
            );
        }
        (search.found(), search.probes)
    }
}
