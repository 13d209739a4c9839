//! Services that are computed on worker threads, behind one dispatcher.
//!
//! | a request | event | then |
//! |---|---|---|
//! | waits | it is cancelled, its deadline passes | it leaves |
//! | is with a worker, not begun | its deadline passes | it is not computed |
//! | is computed | its service has passed | finished |

use std::collections::HashMap;
use std::num::NonZeroU32;

use anyhow::{Context, Result};
use foldhash::fast::FixedState;
use tailcut_net::clock::Clock;
use tailcut_net::dispatch::{Bound, Config, Dispatcher, Metrics};
use tailcut_net::driver::Waker;
use tailcut_proto::node::Time;
use tailcut_proto::rpc::RequestId;
use tailcut_proto::scheduler::Ticket;

use super::app::spin;
use super::emulated::Job;
use super::times::Times;

/// The workers of one port. They end when it is dropped, each after the service that it is at.
#[derive(Debug)]
pub(super) struct Crew<W> {
    pub(super) dispatcher: Dispatcher<Computed<W>>,
    /// Places in the queue, for cancels.
    held: HashMap<RequestId, Ticket, FixedState>,
    /// Of what has finished.
    times: Times,
}

/// A request on its way to a worker and back.
#[derive(Debug)]
pub(super) struct Computed<W> {
    job: Job<W>,
    deadline: Time,
    /// When its service began; `None` before.
    began_at: Option<Time>,
}

impl<W: Send + 'static> Crew<W> {
    /// `count` threads behind one queue of at most `queue_len_max` requests, which wake the driver
    /// of `waker`; each may have `bound` requests, or as many as the measured hand-off asks for.
    pub(super) fn start(
        count: u32,
        bound: Option<NonZeroU32>,
        queue_len_max: usize,
        waker: &Waker,
    ) -> Result<Self> {
        let config = Config { queue_len_max, ..Config::new(count as usize) };
        let config = config.bound(bound.map_or(Bound::Auto, Bound::Fixed));
        let (dispatcher, workers) = Dispatcher::new(&config, waker)?;
        for worker in workers {
            let thread = std::thread::Builder::new().name(format!("worker-{}", worker.index()));
            thread.spawn(move || worker.run(compute)).context("cannot start a worker")?;
        }
        let held = HashMap::with_hasher(FixedState::with_seed(0));
        Ok(Self { dispatcher, held, times: Times::default() })
    }

    /// Takes a request; false when the queue is full.
    pub(super) fn offer(&mut self, job: Job<W>, deadline: Time) -> bool {
        let id = job.id;
        let offered = self.dispatcher.offer(Computed { job, deadline, began_at: None }, deadline);
        if let Ok(Some(ticket)) = offered {
            self.held.insert(id, ticket);
        }
        offered.is_ok()
    }

    /// Takes a request out of the queue.
    pub(super) fn cancel(&mut self, id: RequestId) {
        if let Some(ticket) = self.held.remove(&id) {
            self.dispatcher.withdraw(ticket);
        }
    }

    /// Hands back what has been computed, and lets workers begin what has come since.
    pub(super) fn poll_finished(&mut self, now: Time, mut finished: impl FnMut(Job<W>)) {
        let Self { dispatcher, held, times } = self;
        dispatcher.poll_done(now, |Computed { job, began_at, .. }| {
            held.remove(&job.id);
            // The others' deadlines have passed, and their endpoint has given them up.
            if let Some(began_at) = began_at {
                times.record(began_at.saturating_sub(job.arrived_at), job.service_ns);
                finished(job);
            }
        });
    }

    /// How long what has finished waited and ran.
    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    pub(super) fn metrics(&self) -> Metrics {
        self.dispatcher.metrics()
    }
}

fn compute<W>(computed: &mut Computed<W>) {
    let now = Clock.now();
    if computed.deadline > now {
        computed.began_at = Some(now);
        spin(now, computed.job.service_ns);
    }
}
