//! The request level: a request is a token. Arrivals, a [`Scheduler`] with a policy, workers and
//! delays, without packets, for tens of millions of requests.
//!
//! | layout | what it is |
//! |---|---|
//! | 1x16 | one scheduler before 16 workers |
//! | 4x4 | four schedulers before 4 workers each; a request goes to one of them, all equally likely |
//! | 16x1 | a queue for each worker, whatever the policy |
//!
//! A sojourn lasts from the arrival at the router to the end of the service at the worker: it holds
//! the way to the worker, and not the way back. The way back counts where it matters to the next
//! request: a worker's conclusion is known to the scheduler only after it.
//!
//! Each service time is drawn when its request arrives, and arrivals, services, jitter, groups and
//! placements draw from streams of their own, so two policies under one seed see the same requests.
//!
//! Where requests have deadlines, a scheduler refuses as a router does, and what is refused or
//! comes late has no sojourn; a worker does not look at deadlines.
//!
//! With a slice a worker serves a request for so long at most, and what is left waits behind the
//! others: the order in which they were given is that of slices.
//!
//! Invariant: workers serve in the order in which they were given, and a conclusion that is known
//! at the time of an arrival takes effect before it. The same seed gives the same run, to the bit.
//! Time is in picoseconds, and does not drift.
//!
//! [`Scheduler`]: tailcut_proto::scheduler::Scheduler

mod departures;
mod group;
mod requests;
mod system;
mod tokens;
mod trace;

use rand::Rng;
use tailcut_measure::generator::generator;
use tailcut_measure::queueing::Sojourn;
use tailcut_proto::policy::{Draws, Jbsq, Policy, Ties};

pub use self::requests::{Request, Requests};
pub use self::system::{Jitter, REQUESTS_MAX, System, SystemError, TieRule, Typing, WORKERS_MAX};
pub use self::tokens::Tokens;
pub use self::trace::{Trace, TraceError};

use self::group::Group;
use crate::sojourn::Sojourns;

/// The findings of a simulation of the request level. As a [`Sojourn`] it is in units of the mean
/// service time.
#[derive(Clone, Debug)]
pub struct Run {
    /// Sojourn times after the warm-up, in picoseconds; where there are deadlines, of what was
    /// answered in time.
    pub sojourns: Sojourns,
    /// Sojourn times by type, where there are several.
    pub by_type: Vec<Sojourns>,
    /// The mean service time at a speed of 1, jitter included; picoseconds.
    pub service_mean_ps: f64,
    /// Requests that went through, warm-up included.
    pub requests: u64,
    /// After the warm-up, requests that a scheduler refused.
    pub refused: u64,
    /// After the warm-up, requests that were served, and not in time.
    pub late: u64,
    /// Requests that the central queue of a scheduler held.
    pub held: u64,
    /// The longest that the central queue of any scheduler was.
    pub queue_len_max: usize,
    /// The share of the time, from the first arrival's gap to the last departure, that a worker was
    /// busy; the mean over workers.
    pub utilisation: f64,
}

impl Run {
    /// The share of requests that a central queue held.
    pub fn held_share(&self) -> f64 {
        self.held as f64 / self.requests as f64
    }

    /// The share of requests after the warm-up that were answered in time.
    pub fn answered_share(&self) -> f64 {
        let answered = self.sojourns.count();
        answered as f64 / (answered + self.refused + self.late) as f64
    }
}

impl Sojourn for Run {
    fn mean(&self) -> f64 {
        self.sojourns.mean() / self.service_mean_ps
    }

    fn tail(&self, time: f64) -> f64 {
        self.sojourns.tail(time * self.service_mean_ps)
    }

    /// As [`Sojourns::percentile`]; infinite for a `p` of 1 or more, as theory has it.
    fn percentile(&self, p: f64) -> f64 {
        if p.is_nan() || p >= 1.0 {
            return if p.is_nan() { p } else { f64::INFINITY };
        }
        self.sojourns.percentile(p) / self.service_mean_ps
    }
}

impl System {
    /// Simulates the system under `seed`.
    ///
    /// # Errors
    ///
    /// Why the system has no answer, see [`System::check`].
    pub fn run(&self, seed: u64) -> Result<Run, SystemError> {
        self.run_observed(seed, |_, _| {})
    }

    /// As [`System::run`]; `observe` hears of each request that was served, warm-up included, its
    /// number in the order of arrival and its sojourn in picoseconds. Before one scheduler the
    /// numbers come in order, because it places in that order, where services are not sliced.
    ///
    /// # Errors
    ///
    /// As [`System::run`].
    pub fn run_observed(
        &self,
        seed: u64,
        observe: impl FnMut(u64, u64),
    ) -> Result<Run, SystemError> {
        let Some(bound) = self.bound().filter(|_| self.has_ties()) else {
            return self.run_policy(seed, || self.fixed_policy().build(), observe);
        };
        let ties = match self.ties.unwrap_or_default() {
            TieRule::Rotate => Ties::Rotate,
            TieRule::Random => Ties::Random,
            TieRule::Lowest => Ties::Lowest,
            TieRule::Tokens => {
                let tokens = || Box::new(Tokens::new(self.workers, bound));
                return self.run_policy(seed, tokens, observe);
            }
        };
        self.run_policy(seed, || Box::new(Jbsq::with_ties(bound, ties)), observe)
    }

    /// As [`System::run_observed`], with a policy for each scheduler from `policy` instead of the
    /// system's own.
    ///
    /// # Errors
    ///
    /// As [`System::run`].
    pub fn run_policy<P: Policy + ?Sized>(
        &self,
        seed: u64,
        policy: impl Fn() -> Box<P>,
        mut observe: impl FnMut(u64, u64),
    ) -> Result<Run, SystemError> {
        let mut requests = self.requests(seed)?;
        let mut sojourns = Sojourns::new();
        let types = if self.types_ps.is_empty() { 0 } else { self.types_ps.len() + 1 };
        let mut by_type = vec![Sojourns::new(); types];
        let (mut refused, mut late) = (0, 0);
        let deadline_ps = self.deadline_ps.unwrap_or(u64::MAX);
        let mut record = |number: u64, request: Request, sojourn_ps: Option<u64>| {
            let is_counted = number >= self.warmup;
            let Some(sojourn_ps) = sojourn_ps else {
                refused += u64::from(is_counted);
                return;
            };
            if is_counted && sojourn_ps > deadline_ps {
                late += 1;
            } else if is_counted {
                sojourns.record(sojourn_ps);
                if types > 0 {
                    let kind = group::kind(&self.types_ps, request.service_ps);
                    by_type[kind.index()].record(sojourn_ps);
                }
            }
            observe(number, sojourn_ps);
        };
        let mut groups: Vec<_> =
            (0..self.groups).map(|index| Group::new(self, index, policy(), seed)).collect();
        let mut choices = Draws::new(generator(seed, CHOICES).next_u64());
        let count = self.groups as u32;
        for number in 0..self.requests {
            let request = requests.draw();
            // Groups have nothing in common but their arrivals, so each may live in a time of its
            // own.
            let group = if count == 1 { 0 } else { choices.below(count) as usize };
            groups[group].handle_arrival(number, request, &mut record);
        }
        groups.iter_mut().for_each(|group| group.finish(&mut record));
        Ok(Run { refused, late, ..self.gather(&groups, sojourns, by_type)? })
    }

    fn gather<P: Policy + ?Sized>(
        &self,
        groups: &[Group<P>],
        sojourns: Sojourns,
        by_type: Vec<Sojourns>,
    ) -> Result<Run, SystemError> {
        let ends_ps = groups.iter().map(|group| group.end_ps().ok_or(SystemError::TooLong));
        let end_ps = ends_ps.collect::<Result<Vec<_>, _>>()?.into_iter().fold(1, u64::max);
        let busy_ps: f64 = groups.iter().map(Group::busy_ps).sum();
        Ok(Run {
            sojourns,
            by_type,
            service_mean_ps: self.service_mean_ps(),
            requests: self.requests,
            refused: 0,
            late: 0,
            held: groups.iter().map(|group| group.held).sum(),
            queue_len_max: groups.iter().map(|group| group.queue_len_max).max().unwrap_or(0),
            utilisation: busy_ps / (self.groups * self.workers) as f64 / end_ps as f64,
        })
    }
}

/// Streams of the generator; [`PLACEMENTS`] and those after it are one for each group.
const ARRIVALS: u64 = 0;
const SERVICES: u64 = 1;
const JITTER: u64 = 2;
const CHOICES: u64 = 3;
const PLACEMENTS: u64 = 4;

#[cfg(test)]
mod tests;
