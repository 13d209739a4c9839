//! Whether a measurement may be relied on, and if not, why not, what was tried, and what would
//! help.
//!
//! Invariant: `ok` means that no reason speaks against the result. Whatever was lost is said even
//! then.

use std::fmt;

use strum::{AsRefStr, EnumDiscriminants};
use thiserror::Error;

use crate::objective::percentile_name;

/// Whether a measurement may be relied on.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It may.
    Ok,
    /// It may not, for at least one reason; the weightiest first.
    NotTrustworthy(Vec<Reason>),
}

impl Verdict {
    /// The verdict that follows from `reasons`.
    pub fn from_reasons(mut reasons: Vec<Reason>) -> Self {
        if reasons.is_empty() {
            return Self::Ok;
        }
        reasons.sort_by_key(|reason| Weight::from(reason));
        Self::NotTrustworthy(reasons)
    }

    /// Whether the measurement may be relied on.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok)
    }

    /// What speaks against it; empty where nothing does.
    pub fn reasons(&self) -> &[Reason] {
        match self {
            Self::Ok => &[],
            Self::NotTrustworthy(reasons) => reasons,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ok() {
            return f.write_str("ok");
        }
        f.write_str("not trustworthy")?;
        for (index, reason) in self.reasons().iter().enumerate() {
            write!(f, "{}{reason}", if index == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

/// What speaks against a measurement. As text it is one clause; [`Reason::advice`] says what would
/// help, and [`AsRef`] is a stable name, for results.
///
/// The weightiest comes first: a load that was not the one asked for makes the rest pointless.
#[derive(Clone, Debug, PartialEq, AsRefStr, EnumDiscriminants, Error)]
#[strum(serialize_all = "snake_case")]
#[strum_discriminants(name(Weight), vis(), derive(PartialOrd, Ord))]
#[non_exhaustive]
pub enum Reason {
    /// An agent was lost, so that the load was not what was asked for.
    #[error("an agent was lost: {agent}")]
    AgentLost {
        /// Which, and why.
        agent: String,
    },
    /// Somebody ended the run before it was content. Whoever looks until he likes what he sees
    /// stops at a lucky moment.
    #[error("the run was interrupted")]
    Interrupted,
    /// The load that left was not the one asked for.
    #[error("{sent_per_s:.0} requests/s left of {offered_per_s:.0} asked for")]
    RateNotReached {
        /// Asked for, requests a second.
        offered_per_s: f64,
        /// Left, requests a second.
        sent_per_s: f64,
    },
    /// Replies came more slowly than requests left: the server is overloaded.
    #[error("the server answered {replied_per_s:.0} of {sent_per_s:.0} requests/s")]
    Overloaded {
        /// Left, requests a second.
        sent_per_s: f64,
        /// Answered, requests a second.
        replied_per_s: f64,
    },
    /// The client sent so late that its own delay is a part of the percentile.
    #[error("the client sent late: {} is {:.1} us from the intended send and {:.1} us from the actual one", percentile_name(*p), intended_ns / 1e3, actual_ns / 1e3)]
    ClientLate {
        /// The percentile, as a share.
        p: f64,
        /// From the intended send, ns: what a user would see.
        intended_ns: f64,
        /// From the actual send, ns: what the server does.
        actual_ns: f64,
    },
    /// The gaps between sends were not of the distribution asked for.
    #[error("the gaps between sends are not of the distribution asked for (fault {fault:.4})")]
    ArrivalsWrong {
        /// The fault, see [`ArrivalFit::fault`](crate::statistics::arrival_fit::ArrivalFit::fault).
        fault: f64,
    },
    /// Requests without a reply, whose latency is in no percentile.
    #[error("{:.3} % of the requests have no reply: {}", share * 100.0, listed(outcomes))]
    Unanswered {
        /// What became of them, each count above zero with its name.
        outcomes: Vec<(&'static str, u64)>,
        /// Of the requests sent; a share.
        share: f64,
    },
    /// The server's latency moved during the run.
    #[error("{}", moved(*change))]
    NotStationary {
        /// By how much the second half differs from the first; a share. `None` where the level
        /// wanders without one.
        change: Option<f64>,
    },
    /// The percentile is a matter of a few episodes: a pause, or a queue that hardly ever empties.
    #[error("{} rests on what {beyond:.0} independent samples would tell", percentile_name(*p))]
    FewEpisodes {
        /// The percentile, as a share.
        p: f64,
        /// Independent samples beyond it.
        beyond: f64,
    },
    /// The interval is wider than asked for.
    #[error("{} is known to {:.1} %, not to the {:.1} % asked for", percentile_name(*p), half_width_share * 100.0, asked_share * 100.0)]
    IntervalWide {
        /// The percentile, as a share.
        p: f64,
        /// Half of its length over the percentile.
        half_width_share: f64,
        /// Asked for, in the same terms.
        asked_share: f64,
        /// The length of a run that would reach it, as far as one can tell; ns.
        needed_ns: u64,
    },
    /// The limit of the objective lies in the interval, however narrow.
    #[error("the limit lies within the interval")]
    Undecided {
        /// The length of a run that might decide, as far as one can tell; ns.
        needed_ns: u64,
    },
    /// The samples do not support the percentile.
    #[error("{} takes {needed} samples, and there are {samples}", percentile_name(*p))]
    SamplesFew {
        /// The percentile, as a share.
        p: f64,
        /// Samples there are.
        samples: u64,
        /// Samples it takes.
        needed: u64,
    },
}

impl Reason {
    /// What would help, as one sentence for people.
    pub fn advice(&self) -> String {
        match self {
            Self::AgentLost { .. } => "Find out why the agent went away, and measure again.".to_owned(),
            Self::Interrupted => "Let it run to its end, or ask for a shorter one.".to_owned(),
            Self::RateNotReached { .. } => "Offer less, or use more threads, connections or agents.".to_owned(),
            Self::Overloaded { .. } => "Offer less: beyond its capacity a server has no steady latency.".to_owned(),
            Self::ClientLate { .. } => {
                "Use more connections, threads or agents; or, if the server pauses, use latencies from the intended send time.".to_owned()
            }
            Self::ArrivalsWrong { .. } => "Offer less from each thread, or use more threads; free the client's cores.".to_owned(),
            Self::Unanswered { .. } => "Find out why requests go without a reply, or offer less.".to_owned(),
            Self::NotStationary { .. } => {
                "Warm up for longer, and see whether something else uses the server or the network.".to_owned()
            }
            Self::FewEpisodes { .. } => {
                "Look at the latency over time for pauses; a run that holds many of them can be relied on.".to_owned()
            }
            Self::IntervalWide { needed_ns, .. } | Self::Undecided { needed_ns } => {
                format!("Measure for some {:.0} s, ask for a wider interval, or for a lower percentile.", seconds(*needed_ns))
            }
            Self::SamplesFew { needed, .. } => {
                format!("Measure until there are {needed} samples, or ask for a lower percentile.")
            }
        }
    }
}

/// Counts with their names.
fn listed(outcomes: &[(&str, u64)]) -> String {
    let listed: Vec<_> = outcomes.iter().map(|(name, count)| format!("{count} {name}")).collect();
    listed.join(", ")
}

fn moved(change: Option<f64>) -> String {
    match change {
        Some(change) => {
            let percent = change * 100.0;
            format!("the latency moved by {percent:+.1} % from the first half to the second")
        }
        None => "the latency wanders instead of returning to a level".to_owned(),
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_gives_its_weightiest_reason_first() {
        let few = Reason::SamplesFew { p: 0.999, samples: 100, needed: 10_000 };
        let lost = Reason::AgentLost { agent: "host-3: no answer for 2 s".to_owned() };
        let verdict = Verdict::from_reasons(vec![few, lost]);
        assert_eq!(
            verdict.to_string(),
            "not trustworthy: an agent was lost: host-3: no answer for 2 s; p99.9 takes 10000 samples, and there are 100"
        );
        assert!(!verdict.is_ok());
    }

    #[test]
    fn no_reason_is_ok() {
        assert_eq!(Verdict::from_reasons(Vec::new()), Verdict::Ok);
        assert_eq!(Verdict::Ok.to_string(), "ok");
    }

    #[test]
    fn what_went_without_a_reply_is_listed() {
        let outcomes = vec![("lost", 2), ("timed out", 1)];
        let reason = Reason::Unanswered { outcomes, share: 0.003 };
        assert_eq!(
            reason.to_string(),
            "0.300 % of the requests have no reply: 2 lost, 1 timed out"
        );
    }
}
