//! M/D/k: one queue before k servers, fixed service.
//!
//! With k = 1 it is random placement; round robin with fixed service is the same, sample path for
//! sample path. The number in the system, seen once a service time, is a Markov chain: what is in
//! service leaves, and a Poisson number arrives. Franx (2001) gives the waiting time from it as a
//! sum of positive terms.
//!
//! Invariant: the chain is solved by elimination without subtraction (Grassmann, Taksar and
//! Heyman, 1985), so every probability has its full relative precision.

use super::{QueueingError, Sojourn, check_count, check_load};

/// One queue before k servers with a service time of exactly 1.
#[derive(Clone, Debug, PartialEq)]
pub struct MDk {
    servers: usize,
    /// Arrivals in one service time.
    arrival_rate: f64,
    /// The probability of at most i in the system, by i.
    cumulative: Vec<f64>,
    mean_wait: f64,
}

impl MDk {
    /// `servers` servers at `load` of their capacity.
    ///
    /// # Errors
    ///
    /// No server, a load outside of (0, 1), or more than 256 servers or a load so near to 1 that
    /// the chain is too long to solve at once.
    pub fn new(servers: usize, load: f64) -> Result<Self, QueueingError> {
        check_count("the number of servers", servers)?;
        check_load(load)?;
        if servers > SERVERS_MAX {
            return Err(QueueingError::TooLarge("at most 256 servers"));
        }
        let arrival_rate = servers as f64 * load;
        let in_system = Band::new(servers, arrival_rate, load)?.stationary();
        let mean_queue: f64 = in_system
            .iter()
            .skip(servers + 1)
            .zip(1u32..)
            .map(|(probability, waiting)| probability * f64::from(waiting))
            .sum();
        let cumulative = in_system
            .iter()
            .scan(0.0, |sum, probability| {
                *sum += probability;
                Some(*sum)
            })
            .collect();
        Ok(Self { servers, arrival_rate, cumulative, mean_wait: mean_queue / arrival_rate })
    }

    /// The probability that a request does not wait.
    pub fn no_wait_probability(&self) -> f64 {
        self.wait_cdf(0.0)
    }

    /// The probability of a wait of at most `time`, for a `time` of 0 or more. Franx, "A simple
    /// solution for the M/D/c waiting time distribution", Operations Research Letters 29 (2001).
    fn wait_cdf(&self, time: f64) -> f64 {
        let services = time.floor() + 1.0;
        // With more places than the chain has states every sum below is one.
        let places_max = (self.cumulative.len() + POISSON_TERMS_MAX) as f64;
        if services * self.servers as f64 > places_max {
            return 1.0;
        }
        let places = services as usize * self.servers;
        let arrivals = self.arrival_rate * (services - time);
        let mut weight = (-arrivals).exp();
        let mut sum = 0.0;
        for count in 0..places {
            // At most this many queue; with the servers' own that is the number in the system.
            let queued = places - 1 - count;
            let at = (self.servers + queued).min(self.cumulative.len() - 1);
            sum += weight * self.cumulative[at];
            weight *= arrivals / (count + 1) as f64;
        }
        sum
    }
}

impl Sojourn for MDk {
    fn mean(&self) -> f64 {
        1.0 + self.mean_wait
    }

    fn tail(&self, time: f64) -> f64 {
        if time < 1.0 {
            return 1.0;
        }
        (1.0 - self.wait_cdf(time - 1.0)).max(0.0)
    }
}

/// The embedded chain, one row a state. From i it goes to i less those in service, plus a Poisson
/// number; so a row spans a fixed number of columns, and elimination fills none outside of it.
struct Band {
    servers: usize,
    states: usize,
    /// Columns a row.
    width: usize,
    /// The probability of row i's j-th column, which is state `first(i) + j`.
    cells: Vec<f64>,
}

impl Band {
    fn new(servers: usize, arrival_rate: f64, load: f64) -> Result<Self, QueueingError> {
        let poisson = poisson_weights(arrival_rate, servers);
        let width = poisson.len();
        let states = (LOG_PRECISION / decay_rate(load)).ceil() + (servers + width) as f64;
        if states * width as f64 > CELLS_MAX {
            return Err(QueueingError::TooLarge("the load is too near to 1"));
        }
        let states = states as usize;
        Ok(Self { servers, states, width, cells: poisson.repeat(states) })
    }

    fn first(&self, row: usize) -> usize {
        row.saturating_sub(self.servers)
    }

    fn cell(&self, row: usize, column: usize) -> usize {
        row * self.width + column - self.first(row)
    }

    /// The stationary probabilities. States beyond the last are left out; elimination divides by
    /// what leads downwards, so what is left out needs no folding back.
    fn stationary(mut self) -> Vec<f64> {
        for top in (1..self.states).rev() {
            let lower = self.first(top)..top;
            let downwards: f64 = lower.clone().map(|to| self.cells[self.cell(top, to)]).sum();
            for from in self.rows_into(top) {
                let into = self.cell(from, top);
                self.cells[into] /= downwards;
                let share = self.cells[into];
                for to in lower.clone() {
                    let (target, source) = (self.cell(from, to), self.cell(top, to));
                    self.cells[target] += share * self.cells[source];
                }
            }
        }
        let mut stationary = vec![1.0];
        for state in 1..self.states {
            let inflow = self
                .rows_into(state)
                .map(|from| stationary[from] * self.cells[self.cell(from, state)])
                .sum();
            stationary.push(inflow);
        }
        let total: f64 = stationary.iter().sum();
        stationary.iter().map(|weight| weight / total).collect()
    }

    /// The rows below `state` that reach it.
    fn rows_into(&self, state: usize) -> std::ops::Range<usize> {
        let earliest = if state < self.width { 0 } else { state + 1 + self.servers - self.width };
        earliest.min(state)..state
    }
}

/// The probabilities of 0, 1, 2, ... arrivals as long as they matter, and of `least` at least.
fn poisson_weights(mean: f64, least: usize) -> Vec<f64> {
    let mut weights = vec![(-mean).exp()];
    loop {
        let count = weights.len() as f64;
        let weight = weights[weights.len() - 1] * mean / count;
        if weights.len() > least && count > mean && weight < WEIGHT_MIN {
            return weights;
        }
        weights.push(weight);
    }
}

/// Decay rate of the number in the system: the positive root x of load (e^x - 1) = x.
fn decay_rate(load: f64) -> f64 {
    // Newton's method from above converges, as the function is convex: at -2 ln(load) it is
    // positive.
    let mut rate = -2.0 * load.ln();
    for _ in 0..NEWTON_STEPS {
        let step = (load * rate.exp_m1() - rate) / (load * rate.exp() - 1.0);
        rate -= step;
    }
    rate
}

const SERVERS_MAX: usize = 256;
/// e^-41 is 1e-18.
const LOG_PRECISION: f64 = 41.0;
const WEIGHT_MIN: f64 = 1e-20;
/// 80 MB.
const CELLS_MAX: f64 = 1e7;
/// More arrivals in a service time than 256 servers at full load ever see.
const POISSON_TERMS_MAX: usize = 1024;
const NEWTON_STEPS: usize = 60;
