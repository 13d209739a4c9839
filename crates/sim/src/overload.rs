//! Overload at the grain of queues: more comes than workers can serve, each request has a deadline,
//! and a [`Scheduler`] decides which of them wait, and which are refused.
//!
//! | phase | load | what is counted |
//! |---|---|---|
//! | warm-up, a quarter of the overload | as configured | nothing |
//! | overload | as configured | goodput, sojourns of what is answered in time |
//! | recovery | half of the capacity | when the last request was refused or waited for long |
//!
//! Goodput is what is answered by its deadline, over the capacity. A client that gives up takes its
//! request out of the queue, but not from a worker.
//!
//! Invariant: the same configuration gives the same result, to the bit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use tailcut_measure::arrivals::{Arrivals, ArrivalsError, Process};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_proto::policy::{Jbsq, WorkerId};
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Wait};

use crate::sojourn::Sojourns;

/// A queue under overload.
#[derive(Clone, Debug)]
pub struct Config {
    /// Workers behind the queue, each with one request at a time.
    pub workers: u32,
    /// Service times, ns.
    pub service: Distribution,
    /// Arrivals over capacity; above 1 is overload.
    pub load: f64,
    /// Share of the requests that come from one client, which is one of `clients`.
    pub flood: f64,
    /// Clients.
    pub clients: u32,
    /// From the arrival of a request until nobody wants its answer, ns.
    pub deadline_ns: u64,
    /// The limit of waiting; `None` for a plain queue, which a request leaves at its deadline.
    pub overload: Option<OverloadConfig>,
    /// Most requests that wait.
    pub queue_len_max: usize,
    /// Time for which the overload is counted, ns.
    pub length_ns: u64,
    /// Everything random.
    pub seed: u64,
}

/// The findings of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Answers in time over capacity.
    pub goodput: f64,
    /// Share of the requests that were refused.
    pub refused: f64,
    /// Sojourns of what was answered in time, ns.
    pub sojourns: Sojourns,
    /// Sojourns of what was answered in time to all clients but the first, ns.
    pub others: Sojourns,
    /// Requests of the other clients that were refused, or not answered in time.
    pub others_failed: u64,
    /// From the end of the overload until the last request that was refused or waited for more than
    /// the target and ten services, ns.
    pub recovery_ns: u64,
}

impl Config {
    /// A queue before 16 workers with exponential services of 1 ms.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn new(load: f64, deadline_ns: u64, overload: Option<OverloadConfig>) -> Self {
        let service = tailcut_measure::quantity::Unit::Time;
        Self {
            workers: 16,
            service: Distribution::parse("exp:1ms", service).expect("the distribution is one"),
            load,
            flood: 0.0,
            clients: 1,
            deadline_ns,
            overload,
            queue_len_max: 65_536,
            length_ns: 4_000_000_000,
            seed: 1,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// When the load is none.
    pub fn run(&self) -> Result<Run, ArrivalsError> {
        let end_ns = self.length_ns + self.length_ns / 4;
        let mut queue = Queue::new(self);
        let mut sources = generator(self.seed, SOURCES);
        for (load, from_ns, until_ns, stream) in
            [(self.load, 0, end_ns, ARRIVALS), (0.5, end_ns, end_ns + RECOVERY_NS, ARRIVALS + 1)]
        {
            let rate_per_s = load * f64::from(self.workers) * 1e9 / queue.service_mean_ns;
            let gaps = generator(self.seed, stream);
            let mut arrivals = Arrivals::new(Process::Poisson, rate_per_s, gaps)?;
            loop {
                let at = from_ns + arrivals.next_ns();
                if at >= until_ns {
                    break;
                }
                queue.arrive(at, self.source(&mut sources));
            }
        }
        queue.finish_until(u64::MAX);
        let counted_ns = self.length_ns as f64;
        let capacity = f64::from(self.workers) * counted_ns / queue.service_mean_ns;
        Ok(Run {
            goodput: queue.sojourns.count() as f64 / capacity,
            refused: queue.refused as f64 / queue.offered.max(1) as f64,
            others_failed: queue.others_offered - queue.others.count(),
            sojourns: queue.sojourns,
            others: queue.others,
            recovery_ns: queue.disturbed_at.saturating_sub(end_ns),
        })
    }

    /// The client that a request comes from.
    fn source(&self, draws: &mut Generator) -> u32 {
        use rand::RngExt as _;
        if draws.random::<f64>() < self.flood {
            return 0;
        }
        let first = u32::from(self.flood > 0.0 && self.clients > 1);
        draws.random_range(first..self.clients.max(1))
    }
}

/// The queue and its workers.
struct Queue<'a> {
    config: &'a Config,
    scheduler: Scheduler<Request, Jbsq>,
    /// Services that run: when each ends, at which worker, and the request.
    running: BinaryHeap<Reverse<(u64, WorkerId, Request)>>,
    services: Generator,
    service_mean_ns: f64,
    offered: u64,
    refused: u64,
    others_offered: u64,
    sojourns: Sojourns,
    others: Sojourns,
    /// Time at which the last request was refused or waited for long.
    disturbed_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    arrived_at: u64,
    service_ns: u64,
    client: u32,
}

impl<'a> Queue<'a> {
    fn new(config: &'a Config) -> Self {
        let mut scheduler =
            Scheduler::new(Box::new(Jbsq::new(NonZeroU32::MIN)), config.queue_len_max);
        if let Some(overload) = config.overload {
            scheduler = scheduler.with_overload(overload);
        }
        for _ in 0..config.workers {
            scheduler.add_worker();
        }
        Self {
            config,
            scheduler,
            running: BinaryHeap::new(),
            services: generator(config.seed, SERVICES),
            service_mean_ns: config.service.mean().unwrap_or(f64::INFINITY),
            offered: 0,
            refused: 0,
            others_offered: 0,
            sojourns: Sojourns::new(),
            others: Sojourns::new(),
            disturbed_at: 0,
        }
    }

    fn arrive(&mut self, now: u64, client: u32) {
        self.finish_until(now);
        let service_ns = self.config.service.sample_whole(&mut self.services);
        let request = Request { arrived_at: now, service_ns, client };
        self.offered += u64::from(self.is_counted(now));
        self.others_offered += u64::from(self.is_counted(now) && client != 0);
        let deadline = now + self.config.deadline_ns;
        let wait = match self.config.overload {
            Some(_) => Wait::of(u64::from(client) + 1, now, deadline),
            None => deadline.into(),
        };
        match self.scheduler.offer(request, Cloning::Forbidden, wait, 0) {
            Outcome::Placed(workers, request) => {
                workers.each(request, |worker, request| self.start(now, worker, request));
            }
            Outcome::Held(_) => {}
            Outcome::Full(request) => self.refuse(now, request),
        }
    }

    /// Ends the services that end by `now`, and lets the queue move.
    fn finish_until(&mut self, now: u64) {
        loop {
            let finish_at = self.running.peek().map_or(u64::MAX, |Reverse(running)| running.0);
            let expires_at = self.scheduler.next_expiry().unwrap_or(u64::MAX);
            let at = finish_at.min(expires_at);
            if at > now || at == u64::MAX {
                return;
            }
            while let Some(request) = self.scheduler.poll_expired(at) {
                self.refuse(at, request);
            }
            if finish_at == at
                && let Some(Reverse((_, worker, request))) = self.running.pop()
            {
                self.scheduler.conclude(worker);
                self.answer(at, request);
            }
            while let Some((workers, request)) = self.scheduler.poll_placed(at, 0) {
                workers.each(request, |worker, request| self.start(at, worker, request));
            }
        }
    }

    fn start(&mut self, now: u64, worker: WorkerId, request: Request) {
        let waited_ns = now - request.arrived_at;
        if waited_ns as f64 > TARGET_NS + 10.0 * self.service_mean_ns {
            self.disturbed_at = now;
        }
        self.running.push(Reverse((now + request.service_ns, worker, request)));
    }

    fn answer(&mut self, now: u64, request: Request) {
        let sojourn_ns = now - request.arrived_at;
        if !self.is_counted(request.arrived_at) || sojourn_ns > self.config.deadline_ns {
            return;
        }
        self.sojourns.record(sojourn_ns);
        if request.client != 0 {
            self.others.record(sojourn_ns);
        }
    }

    fn refuse(&mut self, now: u64, request: Request) {
        self.refused += u64::from(self.is_counted(request.arrived_at));
        self.disturbed_at = self.disturbed_at.max(now);
    }

    fn is_counted(&self, arrived_at: u64) -> bool {
        let from_ns = self.config.length_ns / 4;
        (from_ns..from_ns + self.config.length_ns).contains(&arrived_at)
    }
}

/// Time for which the recovery is observed.
const RECOVERY_NS: u64 = 2_000_000_000;
/// The target of a standing queue.
const TARGET_NS: f64 = 5e6;
/// Streams of the generator.
const ARRIVALS: u64 = 0;
const SERVICES: u64 = 2;
const SOURCES: u64 = 3;
