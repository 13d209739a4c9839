//! Causes that a verdict's reasons may come of: a busy host, a server that was silent, packets that
//! a host dropped.
//!
//! Invariant: a cause is named only beside a reason that it may explain, so that it never spoils
//! figures that hold in spite of it.

use tailcut_measure::control::Report;
use tailcut_measure::verdict::{Reason, Verdict};

use super::coordinator::{AgentSession, Measured};
use super::host_load::CpuCounts;
use super::job::ClientCounts;
use super::packet_drops::DropCounts;
use super::record::{Record, Silence};
use super::result::Cpu;

/// Adds the causes to the report's verdict.
pub(super) fn name_causes(measured: &mut Measured) {
    let Measured { report, record, sessions, .. } = measured;
    let mut client = ClientCounts::default();
    sessions.iter().for_each(|session| client.add(&session.client));
    let causes = busy(report, cpu(sessions)).into_iter().chain(silent(report, record));
    let causes = causes.chain(dropped(report, record, client.host_drops));
    let all = report.verdict.reasons().iter().cloned().chain(causes).collect();
    report.verdict = Verdict::from_reasons(all);
}

/// CPU contention on the hosts, where their kernels report it.
pub(super) fn cpu(sessions: &[AgentSession]) -> Option<Cpu> {
    let mut counts = CpuCounts::default();
    sessions.iter().for_each(|session| counts.add(&session.cpu));
    Some(Cpu {
        waited_share: counts.waited_share()?,
        stolen_share: counts.stolen_share().unwrap_or(0.0),
        pressed_share: counts.pressed_share().filter(|&share| share > 0.0),
    })
}

/// That a host was busy, where it was and something may come of it.
fn busy(report: &Report, cpu: Option<Cpu>) -> Option<Reason> {
    let Cpu { waited_share, stolen_share, .. } = cpu?;
    let is_busy = waited_share >= WAITED_SHARE_MAX || stolen_share >= STOLEN_SHARE_MAX;
    (is_busy && report.verdict.reasons().iter().any(may_come_of_pauses))
        .then_some(Reason::HostBusy { waited_share, stolen_share })
}

/// True if a reason may be due to pauses, this host's or the server's.
fn may_come_of_pauses(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::RateNotReached { .. }
            | Reason::Overloaded { .. }
            | Reason::ClientLate { .. }
            | Reason::ArrivalsWrong { .. }
            | Reason::NotStationary { .. }
            | Reason::FewEpisodes { .. }
            | Reason::IntervalWide { .. }
    )
}

/// That no reply came for a while, where something may come of it.
fn silent(report: &Report, record: &Record) -> Option<Reason> {
    let silence = record.longest_silence()?;
    let may_come_of_it =
        |reason: &Reason| may_come_of_pauses(reason) || matches!(reason, Reason::Unanswered { .. });
    let Silence { length_ns: silent_ns, due } = silence;
    let reasons = report.verdict.reasons();
    reasons.iter().any(may_come_of_it).then_some(Reason::ServerSilent { silent_ns, due })
}

/// That hosts that loaded dropped packets, where requests went without a reply for which it may be
/// why.
fn dropped(report: &Report, record: &Record, drops: DropCounts) -> Option<Reason> {
    let tailcut_measure::outcome::Counts { lost, timeout, .. } = record.counts;
    let may_come_of_it =
        |reason: &Reason| matches!(reason, Reason::Unanswered { .. } | Reason::Overloaded { .. });
    if drops.sum() * DROPS_FACTOR < (lost + timeout).max(1)
        || !report.verdict.reasons().iter().any(may_come_of_it)
    {
        return None;
    }
    let named = [
        ("at interfaces", drops.interfaces),
        ("in the backlogs of CPUs", drops.backlog),
        ("at UDP sockets without room", drops.sockets),
    ];
    let places = named.into_iter().filter(|&(_, count)| count > 0).collect();
    Some(Reason::PacketsDropped { places })
}

/// Share of the time that load threads wanted to run: from here on their wait is a part of what is
/// measured.
const WAITED_SHARE_MAX: f64 = 0.1;
/// Share of the CPUs' time.
const STOLEN_SHARE_MAX: f64 = 0.05;
/// Packets dropped may be why requests have no reply where they are a tenth as many.
const DROPS_FACTOR: u64 = 10;
