//! Sojourn times of a policy at the grain of queues: no packets and no network, only arrivals, a [`Scheduler`] and workers.
//!
//! It answers for policies that have no exact queue (`jsq:D`), and shows that the code which places requests behaves like the
//! queue that theory calls by the policy's name.
//!
//! Invariant: arrivals are Poisson, service times are exponential, workers serve in the order in which they were given, and a
//! departure takes effect before an arrival at the same time. The same seed gives the same figures.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::Rng;
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::quantity::Unit;
use tailcut_measure::queueing::{QueueingError, Sojourn};
use tailcut_measure::workers::FifoWorker;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Policy, WorkerId};
use tailcut_proto::scheduler::{Outcome, Scheduler};

/// Runs `requests` requests through `policy` before `workers` workers at `load` of their capacity. The first tenth of them
/// fills the queues and is left out of the sojourns.
///
/// # Errors
///
/// No worker, no request, more requests than the central queue can hold (2^30), or a load outside of (0, 1).
pub fn simulate<P: Policy>(
    policy: P,
    workers: usize,
    load: f64,
    requests: usize,
    seed: u64,
) -> Result<SimulatedSojourn, QueueingError> {
    if workers == 0 {
        return Err(QueueingError::Zero("the number of workers"));
    }
    if requests == 0 {
        return Err(QueueingError::Zero("the number of requests"));
    }
    if requests >= REQUESTS_END {
        return Err(QueueingError::TooLarge("fewer than 2^30 requests"));
    }
    if !(load > 0.0 && load < 1.0) {
        return Err(QueueingError::Load(load));
    }
    let rate_per_s = workers as f64 * load / SERVICE_S;
    let arrivals = Arrivals::new(Process::Poisson, rate_per_s, generator(seed, ARRIVALS));
    let arrivals = arrivals.map_err(|_| QueueingError::TooLarge("at most 1,000,000 workers"))?;
    let service = Distribution::parse(SERVICE, Unit::Time).expect("the constant is in the grammar");
    let mut services = generator(seed, SERVICES);
    let mut queues = Queues::new(policy, workers, requests, generator(seed, PLACEMENTS));
    for arrived in arrivals.take(requests) {
        let service_ns = service.sample_whole(&mut services);
        queues.handle_departures(arrived);
        queues.handle_arrival(Request { arrived, service_ns });
    }
    queues.handle_departures(Time::MAX);
    Ok(SimulatedSojourn::new(queues.sojourns_ns.split_off(requests / WARMUP_SHARE)))
}

/// The sojourn times of a simulation, in units of the mean service time.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedSojourn {
    /// Ascending, at least one; ns.
    sorted_ns: Vec<u64>,
    /// Of the mean service time.
    mean: f64,
}

impl SimulatedSojourn {
    /// Requests whose sojourn counts.
    pub fn count(&self) -> usize {
        self.sorted_ns.len()
    }

    fn new(mut sojourns_ns: Vec<u64>) -> Self {
        sojourns_ns.sort_unstable();
        let sum_ns: f64 = sojourns_ns.iter().map(|&sojourn_ns| sojourn_ns as f64).sum();
        let mean = sum_ns / sojourns_ns.len() as f64 / SERVICE_NS;
        Self { sorted_ns: sojourns_ns, mean }
    }
}

impl Sojourn for SimulatedSojourn {
    fn mean(&self) -> f64 {
        self.mean
    }

    fn tail(&self, time: f64) -> f64 {
        let within = self.sorted_ns.partition_point(|&sojourn_ns| sojourn_ns as f64 <= time * SERVICE_NS);
        1.0 - within as f64 / self.sorted_ns.len() as f64
    }

    /// The smallest simulated sojourn that at most `1 - p` of them exceed; infinite for a `p` of 1 or more, as theory has it.
    fn percentile(&self, p: f64) -> f64 {
        if p.is_nan() || p >= 1.0 {
            return if p.is_nan() { p } else { f64::INFINITY };
        }
        let rank = (p.max(0.0) * self.sorted_ns.len() as f64).ceil() as usize;
        self.sorted_ns[rank.saturating_sub(1)] as f64 / SERVICE_NS
    }
}

/// A request that no worker has finished.
#[derive(Clone, Copy, Debug)]
struct Request {
    arrived: Time,
    service_ns: u64,
}

/// The central queue, the workers, and what will leave them.
struct Queues<P> {
    scheduler: Scheduler<Request, P>,
    workers: Vec<FifoWorker>,
    /// When each placed request leaves, and whom.
    departures: BinaryHeap<Reverse<(Time, WorkerId)>>,
    placements: Generator,
    /// In the order of arrival, because the scheduler places in that order; ns.
    sojourns_ns: Vec<u64>,
}

impl<P: Policy> Queues<P> {
    fn new(policy: P, workers: usize, requests: usize, placements: Generator) -> Self {
        let mut scheduler = Scheduler::new(policy, requests);
        for _ in 0..workers {
            scheduler.add_worker();
        }
        let workers = vec![FifoWorker::new(); workers];
        Self { scheduler, workers, departures: BinaryHeap::new(), placements, sojourns_ns: Vec::with_capacity(requests) }
    }

    fn handle_arrival(&mut self, request: Request) {
        match self.scheduler.offer(request, Time::MAX, self.placements.next_u64()) {
            Outcome::Placed(workers, request) => self.start(workers.first, request, request.arrived),
            Outcome::Held(_) => {}
            Outcome::Full(_) => unreachable!("the queue has a place for every request"),
        }
    }

    /// Everything that leaves a worker until `until`, and what that lets out of the central queue.
    fn handle_departures(&mut self, until: Time) {
        while let Some(&Reverse((now, worker))) = self.departures.peek()
            && now <= until
        {
            self.departures.pop();
            self.scheduler.conclude(worker);
            while let Some((workers, request)) = self.scheduler.poll_placed(now, self.placements.next_u64()) {
                self.start(workers.first, request, now);
            }
        }
    }

    fn start(&mut self, worker: WorkerId, request: Request, now: Time) {
        let finish = self.workers[worker.index()].serve(now, request.service_ns);
        self.departures.push(Reverse((finish, worker)));
        self.sojourns_ns.push(finish - request.arrived);
    }
}

/// Far above the nanosecond that times are rounded to, and of no other consequence.
const SERVICE: &str = "exp:1ms";
const SERVICE_NS: f64 = 1e6;
const SERVICE_S: f64 = 1e-3;
/// One request in so many warms up.
const WARMUP_SHARE: usize = 10;
/// What a [`Scheduler`] holds at most.
const REQUESTS_END: usize = 1 << 30;
/// Streams of the generator.
const ARRIVALS: u64 = 0;
const SERVICES: u64 = 1;
const PLACEMENTS: u64 = 2;

#[cfg(test)]
mod tests {
    use tailcut_measure::queueing::{EkM1, Jbsq, MMk};
    use tailcut_proto::policy::PolicySpec;

    use super::*;

    #[test]
    fn random_is_a_queue_for_each_worker() {
        check_exact("random", &MMk::new(1, 0.7).unwrap());
    }

    #[test]
    fn round_robin_is_a_queue_with_erlang_gaps() {
        check_exact("rr", &EkM1::new(8, 0.7).unwrap());
    }

    #[test]
    fn a_bound_of_one_is_a_single_queue() {
        check_exact("jbsq:1", &MMk::new(8, 0.7).unwrap());
    }

    #[test]
    fn a_bound_of_two_is_its_markov_chain() {
        check_exact("jbsq:2", &Jbsq::new(8, 2, 0.7).unwrap());
    }

    #[test]
    fn two_choices_lie_between_none_and_all() {
        let p99 = |policy| run(policy, 1).percentile(0.99);
        assert!(p99("jsq:8") < p99("jsq:2") && p99("jsq:2") < p99("random"));
    }

    #[test]
    fn a_seed_replays_and_another_differs() {
        assert_eq!(run("jsq:2", 1), run("jsq:2", 1));
        assert_ne!(run("jsq:2", 1), run("jsq:2", 2));
    }

    #[test]
    fn percentiles_are_sojourns_of_the_simulation() {
        let sojourn = SimulatedSojourn::new((1..=1000).map(|index| index * 1_000_000).collect());
        assert_eq!([0.0, 0.5, 0.99, 0.999].map(|p| sojourn.percentile(p)), [1.0, 500.0, 990.0, 999.0]);
        assert!((sojourn.tail(990.0) - 0.01).abs() < 1e-12);
        assert_eq!(sojourn.mean(), 500.5);
    }

    #[test]
    fn what_has_no_answer_is_refused() {
        let run = |workers, load, requests| simulate(PolicySpec::Random.build(), workers, load, requests, 1).map(|_| ());
        assert_eq!(run(0, 0.5, 10), Err(QueueingError::Zero("the number of workers")));
        assert_eq!(run(8, 0.5, 0), Err(QueueingError::Zero("the number of requests")));
        assert_eq!(run(8, 1.0, 10), Err(QueueingError::Load(1.0)));
    }

    fn run(policy: &str, seed: u64) -> SimulatedSojourn {
        simulate(policy.parse::<PolicySpec>().unwrap().build(), 8, 0.7, 200_000, seed).unwrap()
    }

    /// 180,000 requests are 32 s of this system. Over 4 s the p99 of independent queues has a standard deviation of 8 %, so
    /// here 3 %; of the others less. The tolerance is three of them.
    fn check_exact(policy: &str, exact: &dyn Sojourn) {
        let simulated = run(policy, 1);
        for (what, ratio) in [
            ("mean", simulated.mean() / exact.mean()),
            ("p50", simulated.percentile(0.5) / exact.percentile(0.5)),
            ("p99", simulated.percentile(0.99) / exact.percentile(0.99)),
        ] {
            assert!((ratio - 1.0).abs() < 0.09, "{policy}: the {what} is {ratio} of the exact one");
        }
    }
}
