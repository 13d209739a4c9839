//! The configuration of a system, and the checks that it has an answer.

use std::num::NonZeroU32;

use strum::{Display, EnumString};
use tailcut_measure::arrivals::Process;
use tailcut_measure::distribution::{Distribution, Form};
use tailcut_measure::quantity::Unit;
use tailcut_proto::policy::{BoundEstimator, Jbsq, PolicySpec, QueueModel, Scope};
use tailcut_proto::scheduler::typed::TYPES_MAX;
use thiserror::Error;

use super::departures::Departures;
use super::trace::Trace;
use crate::{PS_PER_NS, WARMUP_SHARE};

/// Schedulers, their workers, and the requests that come to them. [`System::new`] has the defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// Q of a layout Q x U: groups of workers, each behind a scheduler of its own. A request goes
    /// to any of them, all equally likely. Default 1.
    pub groups: usize,
    /// U of a layout Q x U: workers in each group.
    pub workers: usize,
    /// The policy that places requests. `jbsq:auto` takes the bound that [`BoundEstimator`] derives
    /// from the delays and the mean service.
    pub policy: PolicySpec,
    /// The tie rule where several workers have the fewest outstanding; for JBSQ alone. Default: the
    /// policy's own rule, rotation.
    pub ties: Option<TieRule>,
    /// The shape of the gaps between arrivals; the rate follows from the load. Default Poisson.
    pub arrivals: Process,
    /// Recorded gaps in the place of [`System::arrivals`]. Default none.
    pub trace: Option<Trace>,
    /// The service time at a worker of speed 1.
    pub service: Distribution,
    /// The jitter of services. Default none.
    pub jitter: Jitter,
    /// The speed of each worker, group after group: it serves for the service time divided by its
    /// speed. Default empty: all 1.
    pub speeds: Vec<f64>,
    /// From the router to a worker, picoseconds. Default 0.
    pub to_worker_ps: u64,
    /// From the end of a service until the scheduler knows of it, picoseconds. Default 0.
    pub feedback_ps: u64,
    /// Time that a scheduler takes to place a request: for those that arrive one after the other,
    /// and once more for one that has waited for a worker; picoseconds. Default 0.
    pub occupancy_ps: u64,
    /// The longest mean service of types whose requests the scheduler runs itself, one after the
    /// other and at speed 1, instead of placing them: those of which it has seen 4,096, as a host's
    /// dispatcher does ([`Typing::Reserved`] has several types). It is half of a hand-off there;
    /// picoseconds. Default none.
    pub in_place_ps: Option<u64>,
    /// Service times that part the requests into types: up to the first, above it and up to the
    /// second, and so on; ascending, picoseconds. Default none: all are of one type.
    pub types_ps: Vec<u64>,
    /// Use of the types. Default [`Typing::Shown`].
    pub typing: Typing,
    /// From the arrival of a request until nobody wants its answer, picoseconds; at least 1 ns.
    /// With it the schedulers let requests wait as routers and hosts do
    /// ([`OverloadConfig::DEFAULT`]), and loads may be above 1. Default none: requests wait for as
    /// long as it takes.
    ///
    /// [`OverloadConfig::DEFAULT`]: tailcut_proto::scheduler::overload::OverloadConfig::DEFAULT
    pub deadline_ps: Option<u64>,
    /// The longest service that a request gets at a time, at a worker of speed 1; what is left goes
    /// behind the requests that wait then, as a host's preempted handlers do, and is handed off and
    /// placed once more. For JBSQ, without deadlines and reserved workers; at least 1 ns and a
    /// thousandth of the mean service; picoseconds. Default none: services run to completion.
    pub slice_ps: Option<u64>,
    /// The load, arrivals over capacity: the rate times the mean service (jitter
    /// included) over the sum of speeds.
    pub load: f64,
    /// Requests to simulate, warm-up included; at most [`REQUESTS_MAX`].
    pub requests: u64,
    /// Requests from the first on that fill the queues and whose sojourns are left out. Default a
    /// tenth.
    pub warmup: u64,
}

/// A share of services that take longer: a page fault, an interrupt, a neighbour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// The probability that a service is one of them. Default 0.
    pub probability: f64,
    /// The factor on their time. Default 15, the factor of NetClone's evaluation.
    pub factor: f64,
}

/// Use of types of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Typing {
    /// Findings by type, of one queue.
    #[default]
    Shown,
    /// A queue for each type, and workers reserved for the short ones
    /// ([`Types`](tailcut_proto::scheduler::typed::Types)), which learn services as they begin.
    Reserved,
}

impl Default for Jitter {
    fn default() -> Self {
        Self { probability: 0.0, factor: 15.0 }
    }
}

/// The tie rule where several workers have the fewest outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = SystemError, parse_err_fn = no_tie_rule)]
pub enum TieRule {
    /// The first of them after the worker that was placed on last: `rotate`.
    #[default]
    Rotate,
    /// Any of them, all equally likely: `random`.
    Random,
    /// The one with the lowest index: `lowest`.
    Lowest,
    /// No counts at all, but the oldest returned token ([`Tokens`](super::Tokens)): `tokens`.
    Tokens,
}

impl System {
    /// One scheduler before `workers` workers, with the defaults of the fields. Nothing is checked
    /// before [`System::check`] or a run.
    pub fn new(workers: usize, policy: PolicySpec, service: Distribution) -> Self {
        Self {
            groups: 1,
            workers,
            policy,
            ties: None,
            arrivals: Process::Poisson,
            trace: None,
            service,
            jitter: Jitter::default(),
            speeds: Vec::new(),
            to_worker_ps: 0,
            feedback_ps: 0,
            occupancy_ps: 0,
            in_place_ps: None,
            types_ps: Vec::new(),
            typing: Typing::Shown,
            deadline_ps: None,
            slice_ps: None,
            load: 0.8,
            requests: 2_000_000,
            warmup: 200_000,
        }
    }

    /// This system at `load`.
    pub fn at_load(self, load: f64) -> Self {
        Self { load, ..self }
    }

    /// This system for `requests` requests, of which the first tenth is warm-up.
    pub fn for_requests(self, requests: u64) -> Self {
        Self { requests, warmup: requests / WARMUP_SHARE, ..self }
    }

    /// Checks that the system has an answer; every run does so first.
    ///
    /// A load that the workers or one group of them cannot serve is refused where requests have no
    /// deadline, or where they wait at the workers, which do not look at it. With delays the bound
    /// of JBSQ limits what a worker serves to `bound` requests in a service time and both delays;
    /// loads from there on are refused too. Somewhat below that ceiling, where service times vary,
    /// queues may already grow without end, and a run shows what its requests saw.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), SystemError> {
        let workers =
            self.groups.checked_mul(self.workers).filter(|&workers| workers <= WORKERS_MAX);
        let workers = workers.ok_or(SystemError::Workers)?;
        if workers == 0 {
            return Err(SystemError::Workers);
        }
        if self.requests == 0 || self.requests > REQUESTS_MAX {
            return Err(SystemError::Requests(self.requests));
        }
        if self.warmup >= self.requests {
            return Err(SystemError::Warmup { warmup: self.warmup, requests: self.requests });
        }
        if !self.speeds.is_empty() && self.speeds.len() != workers {
            return Err(SystemError::SpeedCount { speeds: self.speeds.len(), workers });
        }
        if let Some(&speed) =
            self.speeds.iter().find(|speed| !(SPEED_MIN..=SPEED_MAX).contains(*speed))
        {
            return Err(SystemError::Speed(speed));
        }
        if self.policy.scope() == Scope::Routers {
            return Err(SystemError::Policy(self.policy));
        }
        if self.ties.is_some() && !self.has_ties() {
            return Err(SystemError::Ties(self.policy));
        }
        if self.ties == Some(TieRule::Tokens)
            && self.bound().is_some_and(|bound| bound.get() > TOKENS_MAX)
        {
            return Err(SystemError::Tokens);
        }
        let is_ascending = self.types_ps.windows(2).all(|pair| pair[0] < pair[1]);
        if self.types_ps.len() >= TYPES_MAX || !is_ascending {
            return Err(SystemError::Types);
        }
        if self.typing == Typing::Reserved
            && (self.types_ps.is_empty()
                || self.bound().is_none()
                || self.ties == Some(TieRule::Tokens))
        {
            return Err(SystemError::Reserved);
        }
        self.check_slice()?;
        self.check_times()?;
        self.check_load()
    }

    /// The bound of a policy that has one.
    pub fn bound(&self) -> Option<NonZeroU32> {
        match self.policy.model() {
            QueueModel::Bounded(Some(bound)) => Some(bound),
            QueueModel::Bounded(None) => {
                let mut estimator = BoundEstimator::new();
                estimator.sample_delay((self.delay_ps() / PS_PER_NS as f64) as u64);
                estimator.sample_service((self.service_mean_ps() / PS_PER_NS as f64) as u64);
                NonZeroU32::new(estimator.bound())
            }
            _ => None,
        }
    }

    /// The policy with the bound that it has in this system.
    pub fn fixed_policy(&self) -> PolicySpec {
        self.bound().map_or(self.policy, |bound| self.policy.with_bound(bound))
    }

    /// True where a tie rule means anything to the policy: JBSQ has one.
    pub(super) fn has_ties(&self) -> bool {
        self.policy.name() == Jbsq::AUTO.name()
    }

    /// The mean service time at a speed of 1, jitter included; picoseconds. Infinite where the
    /// distribution has no mean.
    pub fn service_mean_ps(&self) -> f64 {
        let mean_ns = self.service.mean().unwrap_or(f64::INFINITY);
        mean_ns * PS_PER_NS as f64 * (1.0 + self.jitter.probability * (self.jitter.factor - 1.0))
    }

    /// The speed of a worker, counted over all groups.
    pub(super) fn speed(&self, worker: usize) -> f64 {
        self.speeds.get(worker).copied().unwrap_or(1.0)
    }

    /// The distribution of gaps, and the factor that makes them picoseconds.
    pub(super) fn gaps(&self) -> Result<(Distribution, f64), SystemError> {
        let gaps = match &self.arrivals {
            Process::Poisson => Distribution::new(Form::Exponential { mean: 1.0 }, Unit::Plain),
            Process::Fixed => Distribution::new(Form::Fixed { value: 1.0 }, Unit::Plain),
            Process::Shaped(gaps) => Ok(gaps.clone()),
        };
        let gaps = gaps.expect("the constants are in range");
        let mean = gaps
            .mean()
            .filter(|&mean| mean > 0.0)
            .ok_or_else(|| SystemError::Arrivals(gaps.to_string()))?;
        Ok((gaps, self.gap_scale_ps(mean)))
    }

    /// The factor that makes gaps of a mean picoseconds between arrivals of the load.
    pub(super) fn gap_scale_ps(&self, mean: f64) -> f64 {
        let capacity =
            (0..self.groups * self.workers).map(|worker| self.speed(worker)).sum::<f64>();
        self.service_mean_ps() / (self.load * capacity * mean)
    }

    fn delay_ps(&self) -> f64 {
        self.to_worker_ps as f64 + self.feedback_ps as f64
    }

    fn check_slice(&self) -> Result<(), SystemError> {
        let Some(slice_ps) = self.slice_ps else { return Ok(()) };
        let is_plain = self.has_ties() && self.deadline_ps.is_none();
        let is_long = slice_ps >= PS_PER_NS && self.slices() <= SLICES_MAX;
        if is_plain && is_long && self.typing == Typing::Shown {
            return Ok(());
        }
        Err(SystemError::Slice)
    }

    /// The slices of a service of the mean length, at least 1.
    fn slices(&self) -> f64 {
        self.slice_ps.map_or(1.0, |slice_ps| (self.service_mean_ps() / slice_ps as f64).max(1.0))
    }

    fn check_times(&self) -> Result<(), SystemError> {
        let Jitter { probability, factor } = self.jitter;
        if !(0.0..=1.0).contains(&probability) {
            return Err(SystemError::JitterProbability(probability));
        }
        if !(1.0..=JITTER_FACTOR_MAX).contains(&factor) {
            return Err(SystemError::JitterFactor(factor));
        }
        if self.service.unit() != Unit::Time
            || !(SERVICE_MIN_PS..f64::INFINITY).contains(&self.service_mean_ps())
        {
            return Err(SystemError::Service(self.service.to_string()));
        }
        if self.deadline_ps.is_some_and(|deadline_ps| deadline_ps < PS_PER_NS) {
            return Err(SystemError::Deadline);
        }
        match self.deadline_ps {
            None if !(self.load > 0.0 && self.load < 1.0) => {
                return Err(SystemError::Load(self.load));
            }
            Some(_) if !(self.load > 0.0 && self.load <= LOAD_MAX) => {
                return Err(SystemError::DeadlineLoad(self.load));
            }
            _ => {}
        }
        let capacity =
            (0..self.groups * self.workers).map(|worker| self.speed(worker)).sum::<f64>();
        let length_ps = self.service_mean_ps() / (self.load * capacity) * self.requests as f64;
        // Half of what can be kept, because a run of random length may take longer than expected.
        let end_ps = LENGTH_MAX_PS.min(Departures::time_end(self.workers) as f64 / 2.0);
        if length_ps + self.delay_ps() > end_ps || self.service_mean_ps() > end_ps {
            return Err(SystemError::TooLong);
        }
        self.gaps().map(drop)
    }

    /// Compares what comes to each group, and to the workers that a policy may be stuck with, with
    /// what they can serve.
    fn check_load(&self) -> Result<(), SystemError> {
        let count = self.groups * self.workers;
        let speeds: Vec<f64> = (0..count).map(|worker| self.speed(worker)).collect();
        // In services of speed 1.
        let offered = self.load * speeds.iter().sum::<f64>() / self.groups as f64;
        let served = |group: &[f64]| self.served(group);
        let ceiling = speeds.chunks(self.workers).map(served).fold(f64::INFINITY, f64::min)
            / offered
            * self.load;
        // What a scheduler takes in a mean service is all that it can place in one, or run itself.
        let placements_ps = self.scheduler_ps() * self.slices();
        let placed = self.service_mean_ps() / placements_ps / offered * self.load;
        if self.deadline_ps.is_some() && placed <= self.load {
            return Err(SystemError::Occupancy { load: self.load, ceiling: placed });
        }
        let ceiling = if self.is_all_in_place() { placed } else { ceiling.min(placed) };
        if ceiling <= self.load && self.deadline_ps.is_some() && self.bound().is_none() {
            return Err(SystemError::WaitsAtWorkers { load: self.load, policy: self.policy });
        }
        if ceiling <= self.load && self.deadline_ps.is_none() {
            return Err(SystemError::Overload { load: self.load, ceiling });
        }
        Ok(())
    }

    /// Upper bound of a scheduler's mean time for a request; picoseconds.
    fn scheduler_ps(&self) -> f64 {
        let occupancy_ps = self.occupancy_ps as f64;
        match self.in_place_ps {
            _ if self.is_all_in_place() => self.service_mean_ps(),
            Some(limit_ps) if self.typing == Typing::Reserved => {
                // Types whose shortest service is longer than the limit are the workers'.
                let short_up_to_ps = self.types_ps.iter().find(|&&up_to_ps| up_to_ps >= limit_ps);
                let share = short_up_to_ps.map_or(1.0, |&up_to_ps| {
                    1.0 - self.service.tail(up_to_ps as f64 / PS_PER_NS as f64)
                });
                occupancy_ps.max(share * limit_ps as f64 + (1.0 - share) * occupancy_ps)
            }
            _ => occupancy_ps,
        }
    }

    /// Requests are of one type, and it is short.
    fn is_all_in_place(&self) -> bool {
        let is_short = |limit_ps| self.service_mean_ps() <= limit_ps as f64;
        self.typing == Typing::Shown && self.in_place_ps.is_some_and(is_short)
    }

    /// The largest arrival rate that the policy can serve with workers of these speeds; or a bound
    /// of it, see [`System::check`]. In requests per mean service.
    fn served(&self, speeds: &[f64]) -> f64 {
        let delay = self.delay_ps() * self.slices() / self.service_mean_ps();
        match self.policy.model() {
            QueueModel::Independent | QueueModel::Cyclic => served_by_samples(speeds, 1),
            QueueModel::Sampled(samples) => served_by_samples(speeds, samples.get() as usize),
            QueueModel::Bounded(_) => {
                let bound = f64::from(self.bound().expect("the policy has a bound").get());
                speeds.iter().map(|speed| speed.min(bound / (1.0 / speed + delay))).sum()
            }
            QueueModel::Other => speeds.iter().sum(),
        }
    }
}

/// Reason why a system has no answer.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SystemError {
    /// No workers, or too many.
    #[error("a layout has at least 1 group of 1 worker, and at most {WORKERS_MAX} workers")]
    Workers,
    /// A policy that goes by what servers report, or that clones.
    #[error(
        "{0} is for routers, whose servers report their load; simulate it by `sim clone` or `sim r2p2`"
    )]
    Policy(PolicySpec),
    /// No requests, or too many.
    #[error("the number of requests must be 1 to {REQUESTS_MAX}, but is {0}")]
    Requests(u64),
    /// Nothing would be left to measure.
    #[error("a warm-up of {warmup} requests leaves nothing of {requests}")]
    Warmup {
        /// Requests left out.
        warmup: u64,
        /// All requests.
        requests: u64,
    },
    /// Not a speed for each worker.
    #[error("{speeds} speeds are given for {workers} workers")]
    SpeedCount {
        /// Speeds given.
        speeds: usize,
        /// Workers of all groups.
        workers: usize,
    },
    /// A speed that is no speed.
    #[error("a worker's speed must be from {SPEED_MIN} to {SPEED_MAX}, but is {0}")]
    Speed(f64),
    /// A tie rule for a policy without one.
    #[error("a tie rule is for jbsq alone, not for {0}")]
    Ties(PolicySpec),
    /// No tie rule.
    #[error("{0:?} is no tie rule; there are rotate, random, lowest and tokens")]
    TieRule(String),
    /// Tokens are held in memory, one by one.
    #[error("a worker has at most {TOKENS_MAX} tokens")]
    Tokens,
    /// Too many types, or not in their order.
    #[error("the service times that part types must ascend, {} at most", TYPES_MAX - 1)]
    Types,
    /// Workers reserved without types, or where nobody counts what workers have.
    #[error("workers are reserved for types, by a policy with a bound: give types, and jbsq:N")]
    Reserved,
    /// A slice that is too short, or where nobody takes a request twice.
    #[error(
        "a slice is at least 1 ns and a thousandth of the mean service, for jbsq:N, without deadlines and reserved workers"
    )]
    Slice,
    /// A probability that is none.
    #[error("the probability of jitter must be from 0 to 1, but is {0}")]
    JitterProbability(f64),
    /// A factor that would shorten services, or that is beyond reason.
    #[error("the factor of jitter must be from 1 to {JITTER_FACTOR_MAX}, but is {0}")]
    JitterFactor(f64),
    /// A service whose mean is infinite or too short for picoseconds.
    #[error("the service time {0} needs a finite mean of at least 1 ns")]
    Service(String),
    /// Gaps whose mean is zero or infinite.
    #[error("the arrivals {0} have no mean gap above zero, so they cannot be scaled to a load")]
    Arrivals(String),
    /// A queue that is never used, or never empties.
    #[error("the load must be above 0 and below 1, but is {0}; more needs a deadline")]
    Load(f64),
    /// A load that is none, or beyond reason.
    #[error("the load must be above 0 and at most {LOAD_MAX}, but is {0}")]
    DeadlineLoad(f64),
    /// Less than a scheduler's time can tell.
    #[error("a deadline must be at least 1 ns")]
    Deadline,
    /// A scheduler that is itself too slow refuses nobody in time.
    #[error(
        "a load of {load} is more than the scheduler's own occupancy lets it place: it must stay below {ceiling:.4}"
    )]
    Occupancy {
        /// The load asked for.
        load: f64,
        /// The load that a scheduler can place.
        ceiling: f64,
    },
    /// Overload where nobody refuses.
    #[error(
        "a load of {load} never settles with {policy}, by which requests wait at the workers; jbsq:N holds them where deadlines count"
    )]
    WaitsAtWorkers {
        /// The load asked for.
        load: f64,
        /// The policy.
        policy: PolicySpec,
    },
    /// More than some workers can serve.
    #[error(
        "a load of {load} never settles: with this layout, policy, speeds and delays it must stay below {ceiling:.4}"
    )]
    Overload {
        /// The load asked for.
        load: f64,
        /// The highest load that can be served.
        ceiling: f64,
    },
    /// Virtual time has an end.
    #[error("the run would last for more than {} days of virtual time, or longer than so many workers allow", LENGTH_MAX_PS / 8.64e16)]
    TooLong,
}

fn no_tie_rule(text: &str) -> SystemError {
    SystemError::TieRule(text.to_owned())
}

/// A request goes to one of `samples` random workers, so it cannot leave a subset of the workers
/// that holds them all: the rate into each subset must be below what the subset serves. Of those of
/// one size the slowest are the tightest.
fn served_by_samples(speeds: &[f64], samples: usize) -> f64 {
    let mut speeds = speeds.to_vec();
    speeds.sort_unstable_by(f64::total_cmp);
    let (count, samples) = (speeds.len(), samples.min(speeds.len()));
    let mut served = f64::INFINITY;
    // C(size, samples) / C(count, samples): 1 for all workers, and from each size to the one below
    // by one factor.
    let mut inside = 1.0;
    let mut total: f64 = speeds.iter().sum();
    for size in (samples..=count).rev() {
        served = served.min(total / inside);
        inside *= (size - samples) as f64 / size as f64;
        total -= speeds[size - 1];
    }
    served
}

/// More workers than any host or rack; each has a queue.
pub const WORKERS_MAX: usize = 1 << 16;
/// One less than what a scheduler can hold, so that even a queue of all requests fits.
pub const REQUESTS_MAX: u64 = (1 << 30) - 1;
/// Rounding to picoseconds is a thousandth of such a service.
const SERVICE_MIN_PS: f64 = 1e3;
const SPEED_MIN: f64 = 1e-3;
const SPEED_MAX: f64 = 1e3;
const JITTER_FACTOR_MAX: f64 = 1e6;
const TOKENS_MAX: u32 = 1 << 10;
/// Slices of a mean service.
const SLICES_MAX: f64 = 1e3;
/// Load where requests have deadlines.
const LOAD_MAX: f64 = 1000.0;
/// 50 days, which leaves as many again before times saturate.
const LENGTH_MAX_PS: f64 = 4.32e18;
