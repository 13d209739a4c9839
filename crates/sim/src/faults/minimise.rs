//! Takes away from a failing plan what it does not need to fail in the same way.
//!
//! Delta debugging (Zeller and Hildebrandt, 2002) over calls and faults; then hosts; then what can
//! be simpler: no links and switches, right clocks, short messages, default limits. Every candidate
//! is run, and kept where the same invariant breaks.

use super::plan::{Fault, FaultKind, Host, Plan};
use super::{Invariant, Options, Report, differs, run};
use crate::clock::Clock;

/// A plan from which nothing more could be taken away.
#[derive(Clone, Debug)]
pub struct Minimised {
    /// The plan that is left.
    pub plan: Plan,
    /// Its run, with a trace of what happened last.
    pub report: Report,
    /// Runs that it took.
    pub run_count: u32,
}

/// Minimises a plan that breaks `invariant`, in at most `run_count_max` runs.
pub fn minimise(
    plan: &Plan,
    invariant: Invariant,
    options: Options,
    run_count_max: u32,
) -> Minimised {
    let mut search = Search { best: plan.clone(), invariant, options, run_count: 0, run_count_max };
    // What a simplification made superfluous goes in the next round.
    loop {
        let before = (search.best.item_count(), host_count(&search.best));
        search.take_items_away();
        search.take_hosts_away();
        search.simplify();
        if before == (search.best.item_count(), host_count(&search.best)) || search.is_spent() {
            break;
        }
    }
    let report = outcome(&search.best, Options { trace_len: TRACE_LEN, ..options });
    Minimised { plan: search.best, report, run_count: search.run_count }
}

struct Search {
    best: Plan,
    invariant: Invariant,
    options: Options,
    run_count: u32,
    run_count_max: u32,
}

impl Search {
    /// Takes the candidate where it still fails; whether it does.
    fn try_plan(&mut self, candidate: Plan) -> bool {
        if self.is_spent() {
            return false;
        }
        self.run_count += 1;
        let report = outcome(&candidate, self.options);
        let is_failing =
            report.violation.is_some_and(|violation| violation.invariant == self.invariant);
        if is_failing {
            self.best = candidate;
        }
        is_failing
    }

    fn is_spent(&self) -> bool {
        self.run_count >= self.run_count_max
    }

    /// Takes ever smaller pieces of the script away: calls first, faults behind them.
    fn take_items_away(&mut self) {
        let mut piece = self.best.item_count().div_ceil(2);
        while piece > 0 && !self.is_spent() {
            let mut at = 0;
            while at < self.best.item_count() {
                if !self.try_plan(without(&self.best, at..at + piece)) {
                    at += piece;
                }
            }
            piece /= 2;
        }
    }

    fn take_hosts_away(&mut self) {
        let hosts: Vec<Host> = self.best.hosts().collect();
        for host in hosts.into_iter().rev() {
            if let Some(candidate) = without_host(&self.best, host) {
                self.try_plan(candidate);
            }
        }
    }

    fn simplify(&mut self) {
        let edits: [fn(&mut Plan); 6] = [
            |plan| plan.topology = None,
            |plan| {
                plan.router.iter_mut().for_each(|router| router.clock = Clock::default());
                plan.servers.iter_mut().for_each(|server| server.clock = Clock::default());
                plan.clients.iter_mut().for_each(|client| client.clock = Clock::default());
            },
            |plan| plan.segment_len = 1380,
            |plan| plan.long_len = 0,
            |plan| plan.calls.iter_mut().for_each(|call| call.cancel_after_ns = None),
            |plan| {
                plan.calls
                    .iter_mut()
                    .for_each(|call| (call.is_fixed, call.is_refused) = (false, false))
            },
        ];
        for edit in edits {
            let mut candidate = self.best.clone();
            edit(&mut candidate);
            self.try_plan(candidate);
        }
        for number in 0..self.best.calls.len() {
            let mut candidate = self.best.clone();
            candidate.calls[number].request_len = 8;
            self.try_plan(candidate);
            let mut candidate = self.best.clone();
            candidate.calls[number].reply_len = 0;
            self.try_plan(candidate);
        }
        for index in 0..self.best.faults.len() {
            let mut candidate = self.best.clone();
            candidate.faults[index].lasts_ns /= 2;
            while candidate.faults[index].lasts_ns >= LASTS_NS_MIN
                && self.try_plan(candidate.clone())
            {
                candidate.faults[index].lasts_ns /= 2;
            }
        }
    }
}

/// Runs a plan, twice where it does not break before.
fn outcome(plan: &Plan, options: Options) -> Report {
    let mut report = run(plan, options);
    if report.violation.is_none() && options.sabotage == Some(super::Sabotage::RunsDiffer) {
        report.violation = differs(plan, &report, options);
    }
    report
}

fn host_count(plan: &Plan) -> usize {
    plan.hosts().count()
}

/// The plan without items of this range: calls, then streams, then faults.
fn without(plan: &Plan, range: std::ops::Range<usize>) -> Plan {
    let mut left = plan.clone();
    let calls = plan.calls.len();
    let mut index = 0..;
    left.calls.retain(|_| index.next().is_none_or(|index| !range.contains(&index)));
    let mut index = calls..;
    left.streams.retain(|_| index.next().is_none_or(|index| !range.contains(&index)));
    let mut index = calls + plan.streams.len()..;
    left.faults.retain(|_| index.next().is_none_or(|index| !range.contains(&index)));
    left
}

/// The plan without a host, its calls and its faults; `None` for the last of its kind. Without a
/// router clients call servers.
fn without_host(plan: &Plan, host: Host) -> Option<Plan> {
    let mut left = plan.clone();
    let is_about = |fault: &Fault| fault.kind.hosts().contains(&host);
    left.faults.retain(|fault| !is_about(fault));
    match host {
        Host::Standby => {
            left.router.iter_mut().for_each(|router| router.has_standby = false);
        }
        Host::Router => {
            left.faults.retain(|fault| !fault.kind.hosts().contains(&Host::Standby));
            left.router = None;
            left.faults.retain(|fault| {
                !matches!(fault.kind, FaultKind::Drain { .. } | FaultKind::Removal { .. })
            });
        }
        Host::Server(gone) => {
            left.servers.remove(gone);
            for call in &mut left.calls {
                call.server -= usize::from(call.server > gone);
                call.server = call.server.min(left.servers.len().saturating_sub(1));
            }
            left.streams.retain(|stream| stream.server != gone);
            for stream in &mut left.streams {
                stream.server -= usize::from(stream.server > gone);
            }
        }
        Host::Client(gone) => {
            left.clients.remove(gone);
            left.calls.retain(|call| call.client != gone);
            left.calls.iter_mut().for_each(|call| call.client -= usize::from(call.client > gone));
            left.streams.retain(|stream| stream.client != gone);
            for stream in &mut left.streams {
                stream.client -= usize::from(stream.client > gone);
            }
            left.flooding_client = plan.flooding_client.filter(|&client| client != gone);
            left.flooding_client.iter_mut().for_each(|at| *at -= usize::from(*at > gone));
        }
    }
    let name = |other: Host| match (host, other) {
        (Host::Server(gone), Host::Server(index)) if index > gone => Host::Server(index - 1),
        (Host::Client(gone), Host::Client(index)) if index > gone => Host::Client(index - 1),
        (_, other) => other,
    };
    let named = left.faults.iter_mut().flat_map(|fault| fault.kind.hosts_mut());
    named.for_each(|host| *host = name(*host));
    (!left.servers.is_empty() && !left.clients.is_empty()).then_some(left)
}

/// Faults are not made shorter than this.
const LASTS_NS_MIN: u64 = 1000;

/// Lines of the trace that people are shown.
const TRACE_LEN: usize = 60;
