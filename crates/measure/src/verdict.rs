//! Verdict on a measurement: whether it may be relied on, and if not, why not, what was tried, and
//! what would help.
//!
//! Invariant: `ok` means that no reason speaks against the result. Whatever was lost is said even
//! then.

use std::fmt;

use strum::{AsRefStr, EnumDiscriminants, VariantNames};
use thiserror::Error;

use crate::objective::percentile_name;
use crate::quantity::duration;

/// Verdict on whether a measurement may be relied on.
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

    /// True if the measurement may be relied on.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok)
    }

    /// Reasons against the measurement; empty where there are none.
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

/// Reason against a measurement. As text it is one clause; [`Reason::advice`] says what would help,
/// and [`AsRef`] is a stable name, for results.
///
/// The weightiest comes first: a load that was not the one asked for makes the rest pointless.
#[derive(Clone, Debug, PartialEq, AsRefStr, EnumDiscriminants, Error, VariantNames)]
#[strum(serialize_all = "snake_case")]
#[strum_discriminants(name(Weight), vis(), derive(PartialOrd, Ord))]
#[non_exhaustive]
pub enum Reason {
    /// An agent was lost, so that the load was not what was asked for.
    #[error("an agent was lost: {agent}")]
    AgentLost {
        /// Name of the agent, and the reason.
        agent: String,
    },
    /// Somebody ended the run before it was content. Whoever looks until he likes what he sees
    /// stops at a lucky moment.
    #[error("the run was interrupted")]
    Interrupted,
    /// Requests that the server answered with an error, whose latency is no latency of an answer.
    #[error("{:.3} % of the requests were answered with an error: {}", share * 100.0, times(errors))]
    Errors {
        /// Texts of the errors, each with its count, the most frequent first.
        errors: Vec<(String, u64)>,
        /// Share of the requests sent.
        share: f64,
    },
    /// Most replies say that a key is not there: the store was not filled.
    #[error("{misses} of {replied} replies say that the key is not there")]
    Misses {
        /// Replies that say so.
        misses: u64,
        /// All replies.
        replied: u64,
    },
    /// The load threads had to wait for a CPU, or the hypervisor gave theirs away.
    #[error("this host was busy: load threads waited {:.0} % of the time for a CPU{}", waited_share * 100.0, stolen(*stolen_share))]
    HostBusy {
        /// Share of the time that load threads wanted to run in which they waited for a CPU.
        waited_share: f64,
        /// Share of the time of the host's CPUs that the hypervisor gave to others.
        stolen_share: f64,
    },
    /// No reply came for a while: the server, the network or this host paused.
    #[error("no reply came for {}, while {due} requests were due", duration(*silent_ns as f64))]
    ServerSilent {
        /// The longest such time, ns.
        silent_ns: u64,
        /// Requests that should have left meanwhile.
        due: u64,
    },
    /// The hosts that loaded dropped packets, and requests went without a reply.
    #[error("this host dropped packets: {}", listed(places))]
    PacketsDropped {
        /// Places where packets were dropped, each with its count.
        places: Vec<(&'static str, u64)>,
    },
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
    #[error("the client sent late: {} is {} from the intended send and {} from the actual one", percentile_name(*p), duration(*intended_ns), duration(*actual_ns))]
    ClientLate {
        /// The percentile, as a share.
        p: f64,
        /// From the intended send, ns: what a user would see.
        intended_ns: f64,
        /// From the actual send, ns: what the server does.
        actual_ns: f64,
    },
    /// The gaps between sends were not of the distribution asked for.
    #[error("the gaps between sends do not follow the distribution asked for (fault {fault:.4})")]
    ArrivalsWrong {
        /// The fault, see [`ArrivalFit::fault`](crate::statistics::arrival_fit::ArrivalFit::fault).
        fault: f64,
    },
    /// Requests without a reply, whose latency is in no percentile.
    #[error("{:.3} % of the requests got no reply: {}", share * 100.0, listed(outcomes))]
    Unanswered {
        /// Outcomes of these requests, each count above zero with its name.
        outcomes: Vec<(&'static str, u64)>,
        /// Share of the requests sent.
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
    #[error("only about {} beyond {}", independent(*beyond), percentile_name(*p))]
    FewEpisodes {
        /// The percentile, as a share.
        p: f64,
        /// Independent samples beyond it.
        beyond: f64,
    },
    /// The interval is wider than asked for.
    #[error("{} is known to within {:.1} %, and {:.1} % was asked for", percentile_name(*p), half_width_share * 100.0, asked_share * 100.0)]
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
    #[error("{} needs {needed} samples, and there are {samples}", percentile_name(*p))]
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
    /// Meaning of the reason to somebody who wants the number, as one clause for people.
    pub fn in_short(&self) -> String {
        match self {
            Self::AgentLost { .. } => "an agent went away, so the load was not the one asked for",
            Self::Interrupted => "the run was ended early",
            Self::Errors { .. } => "the server answers with errors",
            Self::Misses { .. } => "the store does not hold the keys asked for",
            Self::HostBusy { .. } => "this host was too busy to measure from",
            Self::ServerSilent { .. } => "the server did not answer at all for a while",
            Self::PacketsDropped { .. } => "this host dropped packets, replies perhaps among them",
            Self::RateNotReached { .. } => "this client could not send as fast as asked",
            Self::Overloaded { .. } => "the server cannot keep up with this rate",
            Self::ClientLate { .. } => "this client sent late, and its own delay is in the figures",
            Self::ArrivalsWrong { .. } => "this client could not keep to its schedule",
            Self::Unanswered { .. } => "too many requests got no reply",
            Self::NotStationary { .. } => "the latency changed during the run",
            Self::FewEpisodes { .. } => {
                "the tail comes from a few slow moments, so it takes a longer run"
            }
            Self::IntervalWide { .. } => "the run was too short for the precision asked for",
            Self::Undecided { .. } => "the figure is too close to the limit to tell",
            Self::SamplesFew { .. } => "there are too few requests",
        }
        .to_owned()
    }

    /// Advice on what would help, as one sentence for people.
    pub fn advice(&self) -> String {
        match self {
            Self::AgentLost { .. } => "Find out why the agent went away, and measure again.".to_owned(),
            Self::Interrupted => "Let it run to its end, or ask for a shorter one.".to_owned(),
            Self::Errors { .. } => "Correct the request, or look in the server's log: an error is often faster than an answer.".to_owned(),
            Self::Misses { .. } => "Fill the store first (--preload), or name keys that exist.".to_owned(),
            Self::HostBusy { .. } => {
                "Stop whatever else is running on this host, give client and server CPUs of their own, or load from another host (--agent). More threads make it worse.".to_owned()
            }
            Self::ServerSilent { .. } => {
                "See whether the server was stopped (SIGSTOP, a debugger, a frozen cgroup), collected garbage or swapped, or its host or the network paused.".to_owned()
            }
            Self::PacketsDropped { .. } => {
                "Raise net.core.rmem_max and net.core.netdev_max_backlog and the rings of the interface (ethtool -G), or lower the rate; `ip -s link` and `nstat` show the counters.".to_owned()
            }
            Self::RateNotReached { .. } => "Lower the rate, or use more threads, connections or agents.".to_owned(),
            Self::Overloaded { .. } => "Lower the rate: above its capacity a server has no steady latency.".to_owned(),
            Self::ClientLate { .. } => {
                "Use more connections, threads or agents; or, if the server pauses, use latencies from the intended send time.".to_owned()
            }
            Self::ArrivalsWrong { .. } => "Lower the rate of each thread, use more threads, or free the client's CPUs.".to_owned(),
            Self::Unanswered { .. } => "Look for overload and packet loss, raise --timeout, or lower the rate.".to_owned(),
            Self::NotStationary { .. } => {
                "Warm up for longer, and check whether something else uses the server or the network.".to_owned()
            }
            Self::FewEpisodes { .. } => {
                "Look for pauses in the latency over time; a run that contains many of them can be relied on.".to_owned()
            }
            Self::IntervalWide { needed_ns, .. } | Self::Undecided { needed_ns } => {
                format!("Measure for about {:.0} s, accept a wider interval, or ask for a lower percentile.", seconds(*needed_ns))
            }
            Self::SamplesFew { needed, .. } => {
                format!("Measure until there are {needed} samples, or ask for a lower percentile.")
            }
        }
    }
}

/// Clause on what the hypervisor took, where that is worth a word.
fn stolen(share: f64) -> String {
    if share < STOLEN_SHARE_TOLD {
        return String::new();
    }
    format!(", and the hypervisor took {:.0} % of the CPUs' time", share * 100.0)
}

/// The most frequent with their counts, and how many more there are.
fn times(errors: &[(String, u64)]) -> String {
    let told: Vec<_> =
        errors.iter().take(ERRORS_TOLD).map(|(name, count)| format!("{count} x {name}")).collect();
    let more = errors.len().saturating_sub(ERRORS_TOLD);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{more}", told.join(", "))
}

/// Counts with their names.
fn listed(outcomes: &[(&str, u64)]) -> String {
    let listed: Vec<_> = outcomes.iter().map(|(name, count)| format!("{count} {name}")).collect();
    listed.join(", ")
}

fn independent(samples: f64) -> String {
    match samples.round() {
        1.0 => "1 independent sample lies".to_owned(),
        samples => format!("{samples:.0} independent samples lie"),
    }
}

fn moved(change: Option<f64>) -> String {
    match change {
        Some(change) => {
            let percent = change * 100.0;
            format!("the latency moved by {percent:+.1} % from the first half to the second")
        }
        None => "the latency drifts instead of settling".to_owned(),
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Kinds of errors in a sentence.
const ERRORS_TOLD: usize = 4;
/// A hypervisor always takes a little.
const STOLEN_SHARE_TOLD: f64 = 0.01;

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
            "not trustworthy: an agent was lost: host-3: no answer for 2 s; p99.9 needs 10000 samples, and there are 100"
        );
        assert!(!verdict.is_ok());
    }

    #[test]
    fn no_reason_is_ok() {
        assert_eq!(Verdict::from_reasons(Vec::new()), Verdict::Ok);
        assert_eq!(Verdict::Ok.to_string(), "ok");
    }

    #[test]
    fn what_was_answered_with_errors_is_listed() {
        let named = |name: &str, count| (name.to_owned(), count);
        let mut errors = vec![named("404 Not Found", 201), named("500 Internal Server Error", 3)];
        let text = |errors: &[(String, u64)]| {
            Reason::Errors { errors: errors.to_vec(), share: 1.0 }.to_string()
        };
        assert_eq!(
            text(&errors),
            "100.000 % of the requests were answered with an error: 201 x 404 Not Found, 3 x 500 Internal Server Error"
        );
        errors.extend(["A", "B", "C"].map(|name| named(name, 1)));
        assert!(text(&errors).ends_with(", 1 x A, 1 x B, and 1 more"), "{}", text(&errors));
    }

    #[test]
    fn a_busy_host_comes_before_what_it_causes() {
        let late = Reason::RateNotReached { offered_per_s: 10.0, sent_per_s: 5.0 };
        let busy = Reason::HostBusy { waited_share: 0.46, stolen_share: 0.12 };
        let verdict = Verdict::from_reasons(vec![late, busy]);
        assert!(
            verdict.to_string().starts_with(
                "not trustworthy: this host was busy: load threads waited 46 % of the time for a CPU, and the hypervisor took 12 % of the CPUs' time; 5 requests/s"
            ),
            "{verdict}"
        );
    }

    #[test]
    fn a_silence_and_dropped_packets_come_before_what_they_cause() {
        let outcomes = vec![("timed out", 1_200)];
        let unanswered = Reason::Unanswered { outcomes, share: 0.1 };
        let dropped = Reason::PacketsDropped { places: vec![("at interfaces", 7)] };
        let silent = Reason::ServerSilent { silent_ns: 1_200_000_000, due: 1_200 };
        let verdict = Verdict::from_reasons(vec![unanswered, dropped, silent]);
        assert!(
            verdict.to_string().starts_with(
                "not trustworthy: no reply came for 1.20 s, while 1200 requests were due; this host dropped packets: 7 at interfaces; 10.000 %"
            ),
            "{verdict}"
        );
    }

    #[test]
    fn what_went_without_a_reply_is_listed() {
        let outcomes = vec![("lost", 2), ("timed out", 1)];
        let reason = Reason::Unanswered { outcomes, share: 0.003 };
        assert_eq!(reason.to_string(), "0.300 % of the requests got no reply: 2 lost, 1 timed out");
    }
}
