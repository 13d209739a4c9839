//! Delivery by pulling: the queue that workers share, behind the dispatcher's own.
//!
//! The scheduler counts as before: what it takes for a worker is a place, of which there are as
//! many as workers times the bound. So the rules of waiting hold here too, and what no worker has
//! pulled yet are these few.

use tailcut_proto::node::Time;
use tailcut_proto::policy::{Policy, WorkerId};

use super::config::{Config, Delivery};
use super::hand_off::Sample;
use super::worker::Shared;
use super::{Dispatcher, TypeId};
use crate::sys::{Feeder, Puller, shared_queue};

/// The dispatcher's end of the queue that workers pull from.
#[derive(Debug)]
pub(super) struct Pulled<J> {
    /// The queue; what it keeps beside a job is the worker that the scheduler counts it at.
    feeder: Feeder<J>,
    /// Jobs pushed since the last flush.
    pushed: u32,
}

impl<J: Send> Pulled<J> {
    /// The queue, if the configuration has one, and its workers' ends.
    pub(super) fn new(config: &Config) -> (Option<Self>, impl Iterator<Item = Puller<J>>) {
        let (feeder, pullers) = match config.delivery {
            Delivery::Push => (None, Vec::new()),
            Delivery::Pull => {
                let places = config.workers * config.bound.initial().get() as usize;
                let (feeder, pullers) = shared_queue(places.next_power_of_two(), config.workers);
                (Some(feeder), pullers)
            }
        };
        (feeder.map(|feeder| Self { feeder, pushed: 0 }), pullers.into_iter())
    }

    /// Wakes workers that sleep, as many as there are jobs for.
    #[inline]
    pub(super) fn flush(&mut self, shared: &Shared) -> u64 {
        match std::mem::take(&mut self.pushed) {
            0 => 0,
            pushed => shared.wake_any(pushed),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.feeder.is_done()
    }
}

impl<J: Send, P: Policy> Dispatcher<J, P> {
    /// Gives whichever worker pulls it next a job, which the scheduler counts at `worker`.
    #[inline]
    pub(super) fn push_pulled(&mut self, worker: WorkerId, job: J) {
        let Some(pulled) = &mut self.pulled else { return };
        self.busy |= 1 << worker.index();
        let note = u32::from(self.hand_off.samples_next());
        let is_pushed = pulled.feeder.push(job, note, worker.0).is_ok();
        assert!(is_pushed, "a slot for each place");
        pulled.pushed += 1;
        self.counts.dispatched += 1;
    }

    /// Hands back what workers have pulled and are done with.
    #[inline]
    pub(super) fn collect_pulled(&mut self, done: &mut impl FnMut(J)) {
        let mut at = 0;
        while let Some((job, note, place)) =
            self.pulled.as_mut().and_then(|pulled| pulled.feeder.collect(&mut at))
        {
            self.release(place as usize);
            if note != 0 {
                self.scheduler.note_service(TypeId(0), u64::from(note));
                let sample = Sample { pushed_at: Time::MAX, is_hand_off: false };
                self.hand_off.record(sample, u64::from(note), self.now);
            }
            done(job);
        }
    }
}
