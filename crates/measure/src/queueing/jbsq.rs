//! JBSQ(b) with exponential service: a central queue before workers that hold at most b each.
//!
//! A request goes to the worker with the fewest outstanding, if that is below the bound, and waits
//! centrally otherwise. By how many workers hold 0, 1, ... b requests the system is a Markov
//! chain; the central queue is used only while all hold b, and is geometric then. An arrival that
//! finds m at the least loaded worker stays m + 1 services; one that finds all full waits an
//! exponential time for a place, and then b services.
//!
//! Invariant: the flow up through each level of the chain (the number of requests that workers
//! hold) equals the flow down. The solver restores it after each sweep, which is what makes it
//! fast.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{QueueingError, Sojourn, check_count, check_load};

/// A central queue before workers that hold at most a bound each; service times have mean 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Jbsq {
    /// The probability that the least loaded worker holds m requests, by m below the bound.
    least_held: Vec<f64>,
    /// The probability that all workers hold the bound.
    full: f64,
    /// The rate at which the central queue drains: workers times (1 - load).
    drain_rate: f64,
}

impl Jbsq {
    /// `workers` workers that hold at most `bound` requests each, at `load` of their capacity. A
    /// bound of 1 is M/M/k.
    ///
    /// # Errors
    ///
    /// No worker, a bound of 0, a load outside of (0, 1), a bound above 64, or more than
    /// 200,000 states of the chain (16 workers have 4,845 at a bound of 4).
    pub fn new(workers: usize, bound: usize, load: f64) -> Result<Self, QueueingError> {
        check_count("the number of workers", workers)?;
        check_count("the bound", bound)?;
        check_load(load)?;
        if bound > BOUND_MAX || state_count(workers, bound) > STATES_MAX {
            let limits = "a bound of at most 64, and at most 200,000 states";
            return Err(QueueingError::TooLarge(limits));
        }
        let chain = Chain::new(workers, bound, load);
        let weights = chain.solve()?;
        let mut least_held = vec![0.0; bound + 1];
        for (state, weight) in chain.states.iter().zip(weights) {
            least_held[least(state)] += weight;
        }
        // The chain holds the full state with an empty central queue; behind it is a geometric one.
        least_held[bound] /= 1.0 - load;
        let total: f64 = least_held.iter().sum();
        least_held.iter_mut().for_each(|weight| *weight /= total);
        let full = least_held.pop().unwrap_or(0.0);
        Ok(Self { least_held, full, drain_rate: workers as f64 * (1.0 - load) })
    }

    /// The probability that some worker is idle.
    pub fn idle_probability(&self) -> f64 {
        self.least_held[0]
    }

    /// The probability that a request waits in the central queue.
    pub fn central_probability(&self) -> f64 {
        self.full
    }
}

impl Sojourn for Jbsq {
    fn mean(&self) -> f64 {
        let placed: f64 = (1u32..)
            .zip(&self.least_held)
            .map(|(services, probability)| f64::from(services) * probability)
            .sum();
        placed + self.full * (1.0 / self.drain_rate + self.least_held.len() as f64)
    }

    fn tail(&self, time: f64) -> f64 {
        if time <= 0.0 {
            return 1.0;
        }
        if time == f64::INFINITY {
            return 0.0;
        }
        let mut term = (-time).exp();
        let mut erlang = 0.0;
        let mut placed = 0.0;
        for (held, probability) in self.least_held.iter().enumerate() {
            erlang += term;
            term *= time / (held + 1) as f64;
            placed += probability * erlang;
        }
        placed + self.full * tandem_tail(self.drain_rate, self.least_held.len(), time)
    }
}

/// The chain of workers by how many requests they hold, with the central queue left out.
struct Chain {
    /// The number of workers that hold 0, 1, ... requests; by level, ascending.
    states: Vec<Vec<u32>>,
    /// The states of each level.
    levels: Vec<Range<usize>>,
    /// Transitions into each state: the state before, and the rate.
    incoming: Vec<Vec<(usize, f64)>>,
    /// Each state's rate of services.
    busy: Vec<f64>,
    arrival_rate: f64,
}

impl Chain {
    fn new(workers: usize, bound: usize, load: f64) -> Self {
        let mut states = Vec::new();
        compose(workers as u32, bound, &mut Vec::new(), &mut states);
        states.sort_by_key(|state| level(state));
        let index: BTreeMap<&[u32], usize> =
            states.iter().enumerate().map(|(at, state)| (state.as_slice(), at)).collect();
        let arrival_rate = workers as f64 * load;
        let mut incoming = vec![Vec::new(); states.len()];
        for (from, state) in states.iter().enumerate() {
            let held = least(state);
            if held < bound {
                incoming[index[moved(state, held, held + 1).as_slice()]].push((from, arrival_rate));
            }
            for held in (1..=bound).filter(|&held| state[held] > 0) {
                let rate = f64::from(state[held]);
                incoming[index[moved(state, held, held - 1).as_slice()]].push((from, rate));
            }
        }
        let busy = states.iter().map(|state| workers as f64 - f64::from(state[0])).collect();
        let levels = (0..=workers * bound)
            .map(|held| {
                let first = states.partition_point(|state| level(state) < held);
                first..states.partition_point(|state| level(state) <= held)
            })
            .collect();
        Self { states, levels, incoming, busy, arrival_rate }
    }

    /// The stationary weights, by Gauss-Seidel sweeps up and down the levels with aggregation of
    /// each level in between (Koury, McAllister and Stewart, 1984).
    fn solve(&self) -> Result<Vec<f64>, QueueingError> {
        let mut weights = vec![1.0; self.states.len()];
        self.balance_levels(&mut weights);
        for _ in 0..SWEEPS_MAX {
            let before = weights.clone();
            for state in (0..self.states.len()).chain((0..self.states.len()).rev()) {
                weights[state] = self.balanced(state, &weights);
            }
            self.balance_levels(&mut weights);
            let change = weights
                .iter()
                .zip(&before)
                .map(|(weight, before)| (weight - before).abs() / weight.max(WEIGHT_MIN))
                .fold(0.0, f64::max);
            if change < CHANGE_MAX {
                return Ok(weights);
            }
        }
        Err(QueueingError::TooLarge("the chain does not settle"))
    }

    /// A state's weight when what enters it equals what leaves it.
    fn balanced(&self, state: usize, weights: &[f64]) -> f64 {
        let is_full = state + 1 == self.states.len();
        // Arrivals to the full state join the central queue, which the chain leaves out.
        let arrivals = if is_full { 0.0 } else { self.arrival_rate };
        let inflow: f64 =
            self.incoming[state].iter().map(|&(from, rate)| weights[from] * rate).sum();
        inflow / (arrivals + self.busy[state])
    }

    /// Scales each level so that the flow into it from below equals the flow back.
    fn balance_levels(&self, weights: &mut [f64]) {
        let mut flow_up: Option<f64> = None;
        let mut total = 0.0;
        for level in &self.levels {
            let busy = &self.busy[level.clone()];
            let weights = &mut weights[level.clone()];
            let flow_down: f64 = weights.iter().zip(busy).map(|(w, busy)| w * busy).sum();
            let scale = match flow_up {
                Some(flow_up) if flow_down > 0.0 => flow_up / flow_down,
                // The lowest level has no flow down; one that light loads never reach has none
                // that an `f64` can hold.
                _ => 1.0,
            };
            weights.iter_mut().for_each(|weight| *weight *= scale);
            let mass: f64 = weights.iter().sum();
            flow_up = Some(mass * self.arrival_rate);
            total += mass;
        }
        weights.iter_mut().for_each(|weight| *weight /= total);
    }
}

/// All ways to give `workers` workers from `held` requests down to none, as counts from 0 up.
fn compose(workers: u32, held: usize, above: &mut Vec<u32>, states: &mut Vec<Vec<u32>>) {
    if held == 0 {
        let mut state = vec![workers];
        state.extend(above.iter().rev());
        states.push(state);
        return;
    }
    for count in 0..=workers {
        above.push(count);
        compose(workers - count, held - 1, above, states);
        above.pop();
    }
}

/// The requests that a state's workers hold.
fn level(state: &[u32]) -> usize {
    (0..).zip(state).map(|(held, &count)| held * count as usize).sum()
}

/// The requests that the least loaded worker holds.
fn least(state: &[u32]) -> usize {
    state.iter().position(|&count| count > 0).expect("a state has at least one worker")
}

fn moved(state: &[u32], from: usize, to: usize) -> Vec<u32> {
    let mut moved = state.to_vec();
    moved[from] -= 1;
    moved[to] += 1;
    moved
}

/// The binomial coefficient of workers + bound over bound, or more than enough.
fn state_count(workers: usize, bound: usize) -> u64 {
    let (few, many) = (workers.min(bound) as u64, workers.max(bound) as u64);
    let mut count = 1;
    for step in 1..=few {
        if many > STATES_MAX || count > STATES_MAX {
            return u64::MAX;
        }
        count = count * (many + step) / step;
    }
    count
}

/// The probability that an exponential time of `rate` and then `stages` of rate 1 exceed `time`,
/// by uniformisation: every term is positive, for any rate.
fn tandem_tail(rate: f64, stages: usize, time: f64) -> f64 {
    if rate.min(1.0) * time > LOG_NEGLIGIBLE {
        return 0.0;
    }
    let clock_rate = rate.max(1.0);
    let ticks_mean = clock_rate * time;
    let ticks_max = ticks_mean + 12.0 * ticks_mean.sqrt() + 60.0;
    let mut phases = vec![0.0; stages + 1];
    phases[0] = 1.0;
    let mut tail = 0.0;
    for tick in 0..=ticks_max as usize {
        let ticks = tick as f64;
        let log_weight = ticks * ticks_mean.ln() - ticks_mean - libm::lgamma(ticks + 1.0);
        tail += log_weight.exp() * phases.iter().sum::<f64>();
        for at in (0..=stages).rev() {
            let left = if at == 0 { rate } else { 1.0 } / clock_rate;
            let leaving = phases[at] * left;
            phases[at] -= leaving;
            if at < stages {
                phases[at + 1] += leaving;
            }
        }
    }
    tail
}

const BOUND_MAX: usize = 64;
const STATES_MAX: u64 = 200_000;
const SWEEPS_MAX: usize = 20_000;
const CHANGE_MAX: f64 = 1e-11;
/// Smaller weights are no figure of anything, and lose digits as subnormal numbers.
const WEIGHT_MIN: f64 = 1e-280;
/// 64 stages and the slower of the two rates leave less than e^-700 beyond this many mean times.
const LOG_NEGLIGIBLE: f64 = 2_000.0;
