//! One scheduler and its workers.
//!
//! | event | then |
//! |---|---|
//! | an arrival | of a type that is known to be short, where such run in place: the scheduler serves it itself |
//! | an arrival, else | what concluded by then is concluded first; then it is placed, or held |
//! | a conclusion is known | the worker's count falls, and held requests that may go are placed |
//! | a held request has waited for as long as its deadline and the overload rule let it | it is refused |
//! | a placement | the request reaches its worker after the way there, and its end of service is known |
//! | a conclusion is known, of a slice that was not the last | the request is placed, or held behind the others, once more |
//!
//! Invariant: conclusions are known in the order of their times, and none is missing from
//! [`Departures`].

use std::collections::VecDeque;

use rand::Rng;
use tailcut_measure::generator::generator;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Draws, Policy, WorkerId};
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::typed::{TYPES_MAX, TypeId};
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Wait, Workers};

use super::departures::Departures;
use super::requests::Request;
use super::{PLACEMENTS, System, Typing};
use crate::PS_PER_NS;

/// A scheduler, its workers and what will leave them.
#[derive(Debug)]
pub(super) struct Group<P: ?Sized> {
    scheduler: Scheduler<Job, P>,
    workers: Vec<Worker>,
    /// Time at which the scheduler hears of each worker's next conclusion.
    departures: Departures,
    placements: Draws,
    /// Longest service of each type, picoseconds; empty where types have no queues.
    types_ps: Vec<u64>,
    to_worker_ps: u64,
    feedback_ps: u64,
    occupancy_ps: u64,
    /// The longest mean service of types that it runs itself, where it does.
    in_place_ps: Option<u64>,
    /// By type, the requests that it has seen, up to [`LEARN_REQUESTS`], and the time of their
    /// services.
    learned: [(u64, u64); TYPES_MAX],
    /// From arrival until nobody wants the answer, where requests have deadlines.
    deadline_ps: Option<u64>,
    /// The longest service at a time, where it is sliced.
    slice_ps: Option<u64>,
    /// Time at which the scheduler is done with all that has arrived.
    placed_at_ps: u64,
    /// No conclusion is known later; where one would be, the run is refused at its end.
    time_last_ps: u64,
    /// Requests that the central queue held.
    pub(super) held: u64,
    /// The longest that the central queue was.
    pub(super) queue_len_max: usize,
}

/// A request, as far as it has not been served.
#[derive(Clone, Copy, Debug)]
struct Job {
    number: u64,
    request: Request,
    /// Remaining service time, picoseconds.
    rest_ps: u64,
}

/// A worker with a queue of its own.
#[derive(Clone, Debug)]
struct Worker {
    /// Time at which all that it was given is done.
    free_at_ps: u64,
    /// Times at which the scheduler hears of each conclusion after the next one, which is in
    /// [`Departures`]; ascending.
    later_ps: VecDeque<u64>,
    /// Remainders after the slices that it was given and that are not known to have ended, in
    /// order; empty where services are not sliced.
    left: VecDeque<Option<Job>>,
    /// The factor on service times: the inverse of the speed.
    pace: f64,
    /// Time spent serving.
    busy_ps: u64,
}

impl<P: Policy + ?Sized> Group<P> {
    /// Group `index` of a system that has been checked.
    pub(super) fn new(system: &System, index: usize, policy: Box<P>, seed: u64) -> Self {
        // A share of a queue leaves a part of it to others, and here all are of one.
        let len_max = system.requests as usize;
        let mut scheduler = Scheduler::new(policy, len_max + len_max / 16 + 1);
        let is_typed = system.typing == Typing::Reserved;
        if is_typed {
            scheduler = scheduler.with_types(system.types_ps.len() + 1);
        }
        if system.deadline_ps.is_some() {
            scheduler = scheduler.with_overload(OverloadConfig::DEFAULT);
        }
        let first = index * system.workers;
        let workers = (first..first + system.workers).map(|number| {
            scheduler.add_worker();
            Worker {
                free_at_ps: 0,
                later_ps: VecDeque::new(),
                left: VecDeque::new(),
                pace: 1.0 / system.speed(number),
                busy_ps: 0,
            }
        });
        Self {
            workers: workers.collect(),
            scheduler,
            departures: Departures::new(system.workers),
            placements: Draws::new(generator(seed, PLACEMENTS + index as u64).next_u64()),
            types_ps: if is_typed { system.types_ps.clone() } else { Vec::new() },
            to_worker_ps: system.to_worker_ps,
            feedback_ps: system.feedback_ps,
            occupancy_ps: system.occupancy_ps,
            in_place_ps: system.in_place_ps,
            learned: [(0, 0); TYPES_MAX],
            deadline_ps: system.deadline_ps,
            slice_ps: system.slice_ps,
            placed_at_ps: 0,
            time_last_ps: Departures::time_end(system.workers) - 1,
            held: 0,
            queue_len_max: 0,
        }
    }

    #[inline]
    pub(super) fn handle_arrival(
        &mut self,
        number: u64,
        request: Request,
        record: &mut impl FnMut(u64, Request, Option<u64>),
    ) {
        let kind = kind(&self.types_ps, request.service_ps);
        let is_in_place = self.in_place_ps.is_some() && self.is_in_place(kind, request.service_ps);
        let lasts_ps = if is_in_place { request.service_ps } else { self.occupancy_ps };
        let now = self.placed_at_ps.max(request.arrived_ps).saturating_add(lasts_ps);
        self.placed_at_ps = now.min(self.time_last_ps);
        self.handle_conclusions(now, record);
        if is_in_place {
            return record(number, request, Some(now - request.arrived_ps));
        }
        let random = self.placements.word();
        let wait = self.wait(now, request).of_type(kind);
        let job = Job { number, request, rest_ps: request.service_ps };
        match self.scheduler.offer(job, Cloning::Allowed, wait, random) {
            Outcome::Placed(workers, job) => self.start(workers, job, now, record),
            Outcome::Held(_) => {
                self.held += 1;
                self.queue_len_max = self.queue_len_max.max(self.scheduler.queue_len());
            }
            Outcome::Full(Job { number, request, .. }) => {
                assert!(self.deadline_ps.is_some(), "the queue has a place for every request");
                record(number, request, None);
            }
        }
    }

    /// True if the scheduler runs requests of a type itself; learns from one that takes
    /// `service_ps`.
    fn is_in_place(&mut self, kind: TypeId, service_ps: u64) -> bool {
        let (seen, total_ps) = &mut self.learned[kind.index()];
        if *seen < LEARN_REQUESTS {
            (*seen, *total_ps) = (*seen + 1, total_ps.saturating_add(service_ps));
            return false;
        }
        self.in_place_ps.is_some_and(|limit_ps| *total_ps / LEARN_REQUESTS <= limit_ps)
    }

    /// Longest time that a request may wait. The scheduler's time is in nanoseconds, by which it
    /// bounds waiting.
    #[inline]
    fn wait(&self, now: u64, request: Request) -> Wait {
        let Some(deadline_ps) = self.deadline_ps else { return Wait::from(Time::MAX) };
        let deadline = request.arrived_ps.saturating_add(deadline_ps) / PS_PER_NS;
        Wait::of(0, now / PS_PER_NS, deadline)
    }

    /// Lets everything leave.
    pub(super) fn finish(&mut self, record: &mut impl FnMut(u64, Request, Option<u64>)) {
        self.handle_conclusions(self.time_last_ps, record);
    }

    /// Time at which the last service ended; `None` where that is beyond the times that can be told
    /// apart.
    pub(super) fn end_ps(&self) -> Option<u64> {
        let end_ps = self.workers.iter().map(|worker| worker.free_at_ps).max().unwrap_or(0);
        let end_ps = end_ps.max(self.in_place_ps.map_or(0, |_| self.placed_at_ps));
        Some(end_ps).filter(|&end_ps| end_ps.saturating_add(self.feedback_ps) < self.time_last_ps)
    }

    /// Time spent serving, over all workers.
    pub(super) fn busy_ps(&self) -> f64 {
        self.workers.iter().map(|worker| worker.busy_ps as f64).sum()
    }

    /// Everything that the scheduler hears of until `until`, and what that lets out of the central
    /// queue.
    #[inline]
    fn handle_conclusions(
        &mut self,
        until: u64,
        record: &mut impl FnMut(u64, Request, Option<u64>),
    ) {
        while let Some((now, index)) = self.departures.earliest(until) {
            self.departures.follow(index, self.workers[index].later_ps.pop_front());
            self.scheduler.conclude(WorkerId(index as u32));
            if self.slice_ps.is_some()
                && let Some(job) = self.workers[index].left.pop_front().flatten()
            {
                self.offer_again(job, now, record);
            }
            loop {
                self.refuse_expired(now, record);
                if self.scheduler.queue_len() == 0 {
                    break;
                }
                let random = self.placements.word();
                let Some((workers, job)) = self.scheduler.poll_placed(now / PS_PER_NS, random)
                else {
                    break;
                };
                // A worker that waits for it waits for the decision too.
                self.start(workers, job, now.saturating_add(self.occupancy_ps), record);
            }
        }
        self.refuse_expired(until, record);
    }

    /// Takes what a slice has left behind all that waits.
    fn offer_again(
        &mut self,
        job: Job,
        now: u64,
        record: &mut impl FnMut(u64, Request, Option<u64>),
    ) {
        let random = self.placements.word();
        match self.scheduler.offer(job, Cloning::Forbidden, Wait::from(Time::MAX), random) {
            Outcome::Placed(workers, job) => {
                self.start(workers, job, now.saturating_add(self.occupancy_ps), record);
            }
            Outcome::Held(_) => {
                self.queue_len_max = self.queue_len_max.max(self.scheduler.queue_len());
            }
            Outcome::Full(_) => unreachable!("the queue has a place for every request"),
        }
    }

    /// Refuses what has waited for as long as it may.
    #[inline]
    fn refuse_expired(&mut self, now: u64, record: &mut impl FnMut(u64, Request, Option<u64>)) {
        if self.deadline_ps.is_none() {
            return;
        }
        while let Some(Job { number, request, .. }) = self.scheduler.poll_expired(now / PS_PER_NS) {
            record(number, request, None);
        }
    }

    /// Gives a request to its workers; of a clone, which takes as long, the first to finish counts.
    #[inline]
    fn start(
        &mut self,
        workers: Workers,
        job: Job,
        now: u64,
        record: &mut impl FnMut(u64, Request, Option<u64>),
    ) {
        let Job { number, request, rest_ps } = job;
        let mut first_finish = u64::MAX;
        let lasts_ps = self.slice_ps.map_or(rest_ps, |slice_ps| slice_ps.min(rest_ps));
        let rest_ps = rest_ps - lasts_ps;
        if !self.types_ps.is_empty() {
            // What its worker will have measured.
            let kind = kind(&self.types_ps, request.service_ps);
            self.scheduler.note_service(kind, request.service_ps / PS_PER_NS);
        }
        for id in workers {
            let index = id.index();
            let worker = &mut self.workers[index];
            let finish = worker.serve(now.saturating_add(self.to_worker_ps), lasts_ps);
            if self.slice_ps.is_some() {
                worker.left.push_back((rest_ps > 0).then_some(Job { rest_ps, ..job }));
            }
            let known_at = finish.saturating_add(self.feedback_ps).min(self.time_last_ps);
            match self.scheduler.outstanding(id) {
                1 => self.departures.begin(index, known_at),
                _ => worker.later_ps.push_back(known_at),
            }
            first_finish = first_finish.min(finish);
        }
        if rest_ps == 0 {
            record(number, request, Some(first_finish - request.arrived_ps));
        }
    }
}

/// The type of a request, where each has services up to a limit and the last has none.
#[inline]
pub(super) fn kind(types_ps: &[u64], service_ps: u64) -> TypeId {
    TypeId(types_ps.partition_point(|&limit_ps| limit_ps < service_ps) as u8)
}

impl Worker {
    /// Takes a request that reaches the worker at `now` and returns when its service ends.
    #[inline]
    fn serve(&mut self, now: u64, service_ps: u64) -> u64 {
        let lasts_ps = if self.pace == 1.0 {
            service_ps
        } else {
            (service_ps as f64 * self.pace + 0.5) as u64
        };
        self.busy_ps = self.busy_ps.saturating_add(lasts_ps);
        self.free_at_ps = self.free_at_ps.max(now).saturating_add(lasts_ps);
        self.free_at_ps
    }
}

/// Requests of a type by which a host's dispatcher learns whether it is short.
const LEARN_REQUESTS: u64 = 4096;
