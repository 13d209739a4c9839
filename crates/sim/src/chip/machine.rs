//! Messages through the chip: from the last packet at a backend to the replenish that makes the
//! core available again.
//!
//! | event | when | then |
//! |---|---|---|
//! | arrival | the last packet of a message is at a backend | its completion goes to a dispatcher |
//! | completion | a dispatcher knows of the message | it queues for a decision |
//! | decision | one begins, at a dispatcher that makes none; by what is known then | the first message goes to a core, or waits |
//! | replenish | a core's slot is free again at its dispatcher | the first waiting message may be decided |
//!
//! A dispatcher is the [`Scheduler`] of the product with its [`Jbsq`], whose ties rotate. What a
//! core does between is computed when the message is dispatched, because its private queue is
//! served in order.
//!
//! Invariant: a message that arrives is concluded once, and a core runs one message at a time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU32;

use tailcut_proto::node::Time;
use tailcut_proto::policy::{Jbsq, WorkerId};
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler};

use super::mesh::{Backend, COLUMNS, CORES, Core, DISPATCHER, ROWS};
use crate::agenda::Agenda;

/// A message that has arrived in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Counts the messages of a run from 0.
    pub number: u64,
    /// Arrival time of its last packet at the backend, ps.
    pub arrived_ps: u64,
    /// The core's time for it: the core loop and the emulated work, ps.
    pub service_ps: u64,
    /// Backend at which it arrives.
    pub backend: Backend,
    /// A uniform draw from the cores of the backend's row, for the layout whose queues are private:
    /// the column.
    pub column: usize,
    /// Its latency counts.
    pub counts: bool,
}

/// A message and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rpc {
    /// The message.
    pub message: Message,
    /// The core that ran it.
    pub core: Core,
    /// Time at which it was dispatched to the core, or taken by it, ps.
    pub dispatched_ps: u64,
    /// Time at which the core began with it, ps.
    pub started_ps: u64,
    /// Time at which the core loop ended, with the reply sent and the replenish posted, ps.
    pub finished_ps: u64,
    /// Time at which the dispatcher had processed the replenish, ps.
    pub replenished_ps: u64,
}

/// Delays of the message-level model, ps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// From the last packet to the completion at the backend: the receive pipeline, the write to
    /// the cache, the counter.
    pub reception_ps: u64,
    /// From a backend into the mesh towards the dispatcher, beside the hops.
    pub forward_ps: u64,
    /// A hop in the mesh.
    pub hop_ps: u64,
    /// A decision, of which a dispatcher makes one at a time.
    pub decision_ps: u64,
    /// The write of a completion queue's entry.
    pub queue_write_ps: u64,
    /// From that write until the core begins.
    pub core_poll_ps: u64,
    /// From the core's posting of a replenish until the frontend sees it, on average.
    pub replenish_poll_ps: u64,
    /// The dispatcher's processing of a replenish.
    pub replenish_ps: u64,
    /// In software: one dequeue under the lock, with the lock's hand-off to the next core.
    pub lock_ps: u64,
}

impl Latencies {
    /// The delays of the published chip: 2 GHz, 1.5 ns a hop.
    pub const CHIP: Self = Self {
        reception_ps: 12_000,
        forward_ps: 2_000,
        hop_ps: 1_500,
        decision_ps: 1_000,
        queue_write_ps: 8_000,
        core_poll_ps: 10_000,
        replenish_poll_ps: 3_500,
        replenish_ps: 2_000,
        lock_ps: 130_000,
    };

    /// No delays, as of an ideal queue.
    pub const ZERO: Self = Self {
        reception_ps: 0,
        forward_ps: 0,
        hop_ps: 0,
        decision_ps: 0,
        queue_write_ps: 0,
        core_poll_ps: 0,
        replenish_poll_ps: 0,
        replenish_ps: 0,
        lock_ps: 0,
    };
}

/// The cores that share a dispatcher in hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// All cores, at one designated backend.
    All,
    /// The cores of a row, at its backend.
    Row,
    /// Nobody: a backend draws a core of its row.
    None,
}

/// Runs messages, in the order of their arrival, through dispatchers in hardware, and shows every
/// concluded one.
pub(super) fn run_hardware(
    (sharing, bound): (Sharing, NonZeroU32),
    latencies: &Latencies,
    mut messages: impl Iterator<Item = Message>,
    mut conclude: impl FnMut(&Rpc),
) {
    let mut machine = Machine::new(sharing, bound, latencies);
    if let Some(first) = messages.next() {
        machine.agenda.post(first.arrived_ps, Event::Arrival(first));
    }
    while let Some((now, event)) = machine.agenda.pop() {
        match event {
            Event::Arrival(message) => {
                machine.handle_arrival(message);
                if let Some(next) = messages.next() {
                    machine.agenda.post(next.arrived_ps, Event::Arrival(next));
                }
            }
            Event::Completion(message) => machine.handle_completion(now, message),
            Event::Decision(dispatcher) => {
                if let Some(rpc) = machine.decide(now, dispatcher) {
                    conclude(&rpc);
                }
            }
            Event::Replenish(core) => machine.handle_replenish(now, core),
        }
    }
}

/// Runs messages, in the order of their arrival, through one queue in memory, from which cores take
/// under a lock.
///
/// The interface appends for free. The lock is fair: cores take in the order in which they became
/// free, one each [`Latencies::lock_ps`], and a core begins when it has released the lock.
pub(super) fn run_software(
    latencies: &Latencies,
    messages: impl Iterator<Item = Message>,
    mut conclude: impl FnMut(&Rpc),
) {
    let mut free: BinaryHeap<Reverse<(u64, Core)>> =
        (0..CORES).map(|core| Reverse((0, Core(core)))).collect();
    let mut unlocked_ps = 0;
    for message in messages {
        let Reverse((free_ps, core)) = free.pop().expect("every core is in the heap");
        let dispatched_ps =
            (message.arrived_ps + latencies.reception_ps).max(unlocked_ps).max(free_ps);
        unlocked_ps = dispatched_ps + latencies.lock_ps;
        let finished_ps = unlocked_ps.saturating_add(message.service_ps);
        let replenished_ps = finished_ps + replenish_path_ps(latencies, Backend(core.row()), core);
        conclude(&Rpc {
            message,
            core,
            dispatched_ps,
            started_ps: unlocked_ps,
            finished_ps,
            replenished_ps,
        });
        free.push(Reverse((finished_ps, core)));
    }
}

fn replenish_path_ps(latencies: &Latencies, dispatcher: Backend, core: Core) -> u64 {
    latencies.replenish_poll_ps
        + latencies.hop_ps * dispatcher.hops_to_core(core)
        + latencies.replenish_ps
}

#[derive(Debug)]
enum Event {
    Arrival(Message),
    Completion(Message),
    /// At the dispatcher of this index.
    Decision(usize),
    /// Replenishment of this core.
    Replenish(Core),
}

struct Machine<'a> {
    latencies: &'a Latencies,
    sharing: Sharing,
    agenda: Agenda<Event>,
    dispatchers: Vec<Dispatcher>,
    /// By core: time at which it will have run what it was given, ps.
    free_ps: [u64; CORES],
}

struct Dispatcher {
    backend: Backend,
    /// The core of worker 0; the others follow.
    first_core: Core,
    scheduler: Scheduler<Message, Jbsq>,
    /// Messages that no decision has seen, in order.
    undecided: VecDeque<Message>,
    /// Time at which the last decision is made and the next can begin, ps.
    decided_ps: u64,
    /// A decision is about to begin.
    is_deciding: bool,
}

impl<'a> Machine<'a> {
    fn new(sharing: Sharing, bound: NonZeroU32, latencies: &'a Latencies) -> Self {
        let count = match sharing {
            Sharing::All => 1,
            Sharing::Row => ROWS,
            Sharing::None => CORES,
        };
        let cores = CORES / count;
        let dispatchers = (0..count).map(|index| {
            let first_core = index * cores;
            let backend =
                if sharing == Sharing::All { DISPATCHER } else { Backend(Core(first_core).row()) };
            Dispatcher::new(backend, first_core..first_core + cores, bound)
        });
        Self {
            latencies,
            sharing,
            agenda: Agenda::new(),
            dispatchers: dispatchers.collect(),
            free_ps: [0; CORES],
        }
    }

    fn handle_arrival(&mut self, message: Message) {
        let forward_ps = match self.sharing {
            Sharing::All => {
                self.latencies.forward_ps
                    + self.latencies.hop_ps * message.backend.hops_to(DISPATCHER)
            }
            Sharing::Row | Sharing::None => 0,
        };
        let known_ps = message.arrived_ps + self.latencies.reception_ps + forward_ps;
        self.agenda.post(known_ps, Event::Completion(message));
    }

    fn handle_completion(&mut self, now: u64, message: Message) {
        let index = match self.sharing {
            Sharing::All => 0,
            Sharing::Row => message.backend.0,
            Sharing::None => message.backend.0 * COLUMNS + message.column,
        };
        self.dispatchers[index].undecided.push_back(message);
        self.wake(now, index);
    }

    fn handle_replenish(&mut self, now: u64, core: Core) {
        let index = core.0 / (CORES / self.dispatchers.len());
        let dispatcher = &mut self.dispatchers[index];
        dispatcher.scheduler.conclude(WorkerId::at(core.0 - dispatcher.first_core.0));
        self.wake(now, index);
    }

    /// Makes the dispatcher begin a decision as soon as it can, if there is something to decide.
    fn wake(&mut self, now: u64, index: usize) {
        let dispatcher = &mut self.dispatchers[index];
        if dispatcher.is_deciding || !dispatcher.has_work() {
            return;
        }
        dispatcher.is_deciding = true;
        self.agenda.post(now.max(dispatcher.decided_ps), Event::Decision(index));
    }

    /// Dispatches the first message that waits at the dispatcher, if a core may take it.
    fn decide(&mut self, now: u64, index: usize) -> Option<Rpc> {
        let dispatcher = &mut self.dispatchers[index];
        dispatcher.is_deciding = false;
        let (core, message) = dispatcher.place(now)?;
        let dispatched_ps = now + self.latencies.decision_ps;
        dispatcher.decided_ps = dispatched_ps;
        let hops_ps = self.latencies.hop_ps * dispatcher.backend.hops_to_core(core);
        let seen_ps =
            dispatched_ps + hops_ps + self.latencies.queue_write_ps + self.latencies.core_poll_ps;
        let started_ps = self.free_ps[core.0].max(seen_ps);
        let finished_ps = started_ps.saturating_add(message.service_ps);
        self.free_ps[core.0] = finished_ps;
        let replenished_ps =
            finished_ps + replenish_path_ps(self.latencies, dispatcher.backend, core);
        self.agenda.post(replenished_ps, Event::Replenish(core));
        self.wake(now, index);
        Some(Rpc { message, core, dispatched_ps, started_ps, finished_ps, replenished_ps })
    }
}

impl Dispatcher {
    fn new(backend: Backend, cores: std::ops::Range<usize>, bound: NonZeroU32) -> Self {
        let mut scheduler = Scheduler::new(Box::new(Jbsq::new(bound)), QUEUE_LEN_MAX);
        let first_core = Core(cores.start);
        for _ in cores {
            scheduler.add_worker();
        }
        Self {
            backend,
            first_core,
            scheduler,
            undecided: VecDeque::new(),
            decided_ps: 0,
            is_deciding: false,
        }
    }

    fn has_work(&self) -> bool {
        self.scheduler.queue_len() > 0 || !self.undecided.is_empty()
    }

    /// The first message and its core. Where no core may take one, all messages are held by the
    /// scheduler, in order.
    fn place(&mut self, now: Time) -> Option<(Core, Message)> {
        let mut placed = self.scheduler.poll_placed(now, NO_DRAW);
        while placed.is_none()
            && let Some(message) = self.undecided.pop_front()
        {
            match self.scheduler.offer(message, Cloning::Forbidden, Time::MAX, NO_DRAW) {
                Outcome::Placed(workers, message) => placed = Some((workers, message)),
                Outcome::Held(_) => {}
                Outcome::Full(_) => {
                    panic!("more than {QUEUE_LEN_MAX} messages wait at a dispatcher")
                }
            }
        }
        let (workers, message) = placed?;
        // An RPC runs at one core.
        let worker = workers.into_iter().next()?;
        Some((Core(self.first_core.0 + worker.index()), message))
    }
}

/// Messages that a dispatcher holds at most: more than a run has.
const QUEUE_LEN_MAX: usize = (1 << 30) - 1;
/// A policy whose ties rotate draws nothing.
const NO_DRAW: u64 = 0;
