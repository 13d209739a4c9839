//! The central queue, the loads of the workers and a policy: who runs next, and where.
//!
//! | an item is | event | then |
//! |---|---|---|
//! | offered | nobody is held and the policy names a worker | placed, the worker's count rises |
//! | offered | somebody is held, or the policy holds | held, behind those held before |
//! | offered | as many are held as may be, or its share of the queue, or it would be too late | returned: full |
//! | held | a worker may take one more, and it is the first of the queue | placed |
//! | held | its expiry passes, or it has waited for as long as [`overload`] lets it | handed back as expired |
//! | held, and the next of its type | its deadline comes before a mean service, begun now, would end | handed back as expired |
//! | held | it is removed | handed back |
//!
//! | a worker is | event | then |
//! |---|---|---|
//! | in service | `set_in_service(.., Out)` | out of service: it gets nothing, what it has counts on |
//! | out of service | `set_in_service(.., In)` | in service |
//! | any | `remove_worker` | removed: its index is given to the next worker that is added |
//!
//! It serves three times unchanged: the router over its servers, the host over its cores, and the
//! simulator for both. So it knows nothing of what it queues.
//!
//! Where the policy clones and the item may be cloned, the item counts at two workers, and the
//! caller gives it to both: [`Workers`] can be walked or handed out, and says no more.
//!
//! Where items have types, each type has a queue of its own and the worker is that of [`typed`].
//! Where workers have weights or zones, the policy sees them as [`Rank`] says, but not of types.
//!
//! Invariant: items of one share and type leave in the order in which they came, shares take turns,
//! no item leaves by placement at or after its expiry, and no worker that is out of service gets
//! one.

pub mod overload;
mod queue;
mod spread;
pub mod typed;

use crate::Time;
use crate::policy::{HeldBounds, Load, Loads, OUT_OF_SERVICE, Placement, Policy, WorkerId};
use crate::slab::SlotKey;

use self::overload::{Order, Overload, OverloadConfig};
use self::queue::Queue;
use self::spread::{Presence, Spread};
pub use self::spread::{Rank, WEIGHT_MAX};
use self::typed::{Services, TypeId, Types};

/// Fate of an offered item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It goes to these workers now.
    Placed(Workers, T),
    /// It waits in the queue; the ticket takes it out again.
    Held(Ticket),
    /// The queue is full, or what its share may have of it; or it would wait for too long.
    Full(T),
}

/// Limits of an offered item's wait, and the share of the queue that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Arrival time; `None` where it may wait until `until` whatever the queue does.
    since: Option<Time>,
    /// Time from which nobody wants it any more.
    until: Time,
    /// Time at which it is handed back at the latest, however much later it is still wanted.
    held_until: Time,
    /// Share of the queue that it belongs to. Shares take turns.
    share: u64,
    /// Type of the item.
    kind: TypeId,
}

impl Wait {
    /// An item that comes at `now`, for the share of one client, and that nobody wants from
    /// `deadline` on. It waits as the scheduler's [`OverloadConfig`] says, where it has one.
    pub fn of(share: u64, now: Time, deadline: Time) -> Self {
        Self { since: Some(now), until: deadline, held_until: deadline, share, kind: TypeId(0) }
    }

    /// This wait for an item that is handed back at `held_until` at the latest.
    #[must_use]
    pub fn at_most(self, held_until: Time) -> Self {
        Self { held_until, ..self }
    }

    /// The item's type.
    pub fn kind(&self) -> TypeId {
        self.kind
    }

    /// This wait of an item of a type.
    #[must_use]
    pub fn of_type(self, kind: TypeId) -> Self {
        Self { kind, ..self }
    }
}

/// An item that may wait until a time.
impl From<Time> for Wait {
    fn from(until: Time) -> Self {
        Self { since: None, until, held_until: until, share: 0, kind: TypeId(0) }
    }
}

/// The one or two workers that an item goes to, each of which concludes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// The worker.
    first: WorkerId,
    /// The worker of the clone; `first` where there is none, so that both fit a register.
    last: WorkerId,
}

impl Workers {
    /// The workers of a placement; `None` where it holds. What may not be cloned goes to the first
    /// of two alone.
    #[inline]
    pub fn of(placement: Placement, cloning: Cloning) -> Option<Self> {
        match (placement, cloning) {
            (Placement::Hold, _) => None,
            (Placement::Two(first, last), Cloning::Allowed) => Some(Self { first, last }),
            (Placement::One(first) | Placement::Two(first, _), _) => {
                Some(Self { first, last: first })
            }
        }
    }

    /// The worker that the item itself goes to.
    pub fn first(self) -> WorkerId {
        self.first
    }

    /// Gives the item to each of the workers.
    pub fn each<T: Clone>(self, item: T, mut give: impl FnMut(WorkerId, T)) {
        if let Some(second) = self.second() {
            give(self.first, item.clone());
            give(second, item);
        } else {
            give(self.first, item);
        }
    }

    /// The worker of the clone, where there is one; another than the first.
    #[inline]
    fn second(self) -> Option<WorkerId> {
        (self.last != self.first).then_some(self.last)
    }
}

impl IntoIterator for Workers {
    type Item = WorkerId;
    type IntoIter = EachWorker;

    #[inline]
    fn into_iter(self) -> EachWorker {
        EachWorker { next: Some(self.first), last: self.last }
    }
}

/// The workers of an item, that of the clone last.
#[derive(Clone, Copy, Debug)]
pub struct EachWorker {
    /// The next; `None` at the end.
    next: Option<WorkerId>,
    /// The last.
    last: WorkerId,
}

impl Iterator for EachWorker {
    type Item = WorkerId;

    #[inline]
    fn next(&mut self) -> Option<WorkerId> {
        let worker = self.next?;
        self.next = (worker != self.last).then_some(self.last);
        Some(worker)
    }
}

/// Permission to give an item to two workers at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloning {
    /// It may: the item is idempotent.
    Allowed,
    /// It goes to one worker, the first that the policy names.
    Forbidden,
}

/// Names a held item. A ticket whose item has left names nothing, also when its place has been used
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The type, whose queue it is in.
    kind: TypeId,
    /// Its place there.
    key: SlotKey,
}

/// State of service of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// It does.
    In,
    /// It does not.
    Out,
}

/// A bounded FIFO queue in front of workers, with a policy that pairs them.
#[derive(Debug)]
pub struct Scheduler<T, P: ?Sized = dyn Policy> {
    /// Pairs the first of the queue with a worker.
    policy: Box<P>,
    /// The held items, by type.
    lines: Vec<Line<T>>,
    /// Items held, of all types.
    held: usize,
    /// The type of the last item that was refused.
    refused: TypeId,
    /// The type of the last item that was placed.
    placed: TypeId,
    /// The types, where there are several.
    types: Option<Types>,
    /// The services of items, where there are no types.
    services: Services,
    /// Loads as the policy sees them: the items that a worker in service has, or `OUT_OF_SERVICE`.
    /// As long as `workers`.
    loads: Vec<u32>,
    /// The load that each worker last reported. As long as `workers`.
    reported: Vec<u32>,
    /// Number of the reported requests that wait. As long as `workers`.
    waiting: Vec<u32>,
    /// Every worker that was ever added.
    workers: Vec<Worker>,
    /// Loads that the policy sees in the place of `loads`, where not all workers are alike.
    spread: Option<Box<Spread>>,
    /// Workers in service.
    in_service_count: u32,
    /// The bound of the policy by what is held, where it depends on that.
    held_bounds: Option<Box<HeldBounds>>,
}

/// The items of one type that are held.
#[derive(Debug)]
struct Line<T> {
    /// The held items.
    queue: Queue<Held<T>>,
    /// The limit of waiting, where there is one besides the expiry of each item.
    overload: Option<Overload>,
}

/// An item that is held.
#[derive(Debug)]
struct Held<T> {
    /// The item.
    item: T,
    /// Permission to give it to two workers.
    cloning: Cloning,
    /// Time from which nobody wants it any more.
    until: Time,
}

impl<T> Line<T> {
    /// The item whose turn it is.
    #[inline]
    fn first(&mut self, now: Time) -> Option<(Ticket, &Held<T>)> {
        if self.queue.len() == 0 {
            return None;
        }
        let order = self.overload.as_ref().map_or(Order::OldestFirst, |at| at.order(now));
        self.queue.first(order)
    }
}

impl<T, P: Policy + ?Sized> Scheduler<T, P> {
    /// A scheduler without workers that holds at most `queue_len_max` items.
    ///
    /// # Panics
    /// When `queue_len_max` does not fit 31 bits.
    pub fn new(policy: Box<P>, queue_len_max: usize) -> Self {
        assert!(
            queue_len_max < u32::MAX as usize / 2,
            "a queue of {queue_len_max} items is not supported"
        );
        Self {
            policy,
            lines: vec![Line { queue: Queue::new(TypeId(0), queue_len_max), overload: None }],
            held: 0,
            refused: TypeId(0),
            placed: TypeId(0),
            types: None,
            services: Services::default(),
            loads: Vec::new(),
            reported: Vec::new(),
            waiting: Vec::new(),
            workers: Vec::new(),
            spread: None,
            in_service_count: 0,
            held_bounds: None,
        }
    }

    /// Bounds how long items wait, by their deadlines and by how long the queue stands.
    #[must_use]
    pub fn with_overload(mut self, config: OverloadConfig) -> Self {
        for line in &mut self.lines {
            line.queue.set_seed(config.seed);
            line.overload = Some(Overload::new(config));
        }
        self
    }

    /// Tells `count` types of items apart, up to [`typed::TYPES_MAX`]: each has a queue of its own,
    /// as long as the one that there was, and the workers that [`typed`] gives it. The policy says
    /// no more than the bound.
    #[must_use]
    pub fn with_types(mut self, count: usize) -> Self {
        let types = Types::new(count);
        let len_max = self.lines[0].queue.len_max();
        let overload = self.lines[0].overload;
        self.lines.extend((1..types.count()).map(|index| {
            let kind = TypeId(index as u8);
            let mut queue = Queue::new(kind, len_max);
            queue.set_seed(overload.map_or(0, |overload| overload.seed()));
            Line { queue, overload }
        }));
        self.types = Some(types);
        self
    }

    /// Places `item`, or holds it behind those of its share. `random` is 64 uniform bits, fresh
    /// for each call. After [`Scheduler::conclude`] or a change of workers, drain
    /// [`Scheduler::poll_placed`] first, or the item queues for nothing.
    pub fn offer(
        &mut self,
        item: T,
        cloning: Cloning,
        wait: impl Into<Wait>,
        random: u64,
    ) -> Outcome<T> {
        let mut wait = wait.into();
        if let Some(types) = &mut self.types {
            wait.kind = types.clamp(wait.kind);
            types.note_arrival(wait.kind, self.loads.len());
        } else {
            wait.kind = TypeId(0);
        }
        let is_empty = self.lines[wait.kind.index()].queue.len() == 0;
        let placed = if is_empty {
            self.follow_held(self.held + 1);
            self.place(wait.kind, cloning, random)
        } else {
            None
        };
        let mut expires_at = wait.until.min(wait.held_until);
        let line = &mut self.lines[wait.kind.index()];
        if let (Some(overload), Some(since)) = (&mut line.overload, wait.since) {
            overload.note_offered(since, is_empty);
            if placed.is_none() {
                expires_at = overload.expiry(since, wait.until).min(wait.held_until);
                if expires_at <= since {
                    if is_empty {
                        overload.doubt_residence();
                    }
                    overload.note_refused(since);
                    self.refused = wait.kind;
                    return Outcome::Full(item);
                }
            }
        }
        if let Some(workers) = placed {
            if let Some(overload) = &mut line.overload {
                overload.count_placed();
            }
            return Outcome::Placed(workers, item);
        }
        let times = (wait.since.unwrap_or(wait.until), expires_at);
        let held = Held { item, cloning, until: wait.until };
        match line.queue.push(held, times, wait.share) {
            Ok(ticket) => {
                self.held += 1;
                Outcome::Held(ticket)
            }
            Err(Held { item, .. }) => {
                if let (Some(overload), Some(since)) = (&mut line.overload, wait.since) {
                    overload.note_refused(since);
                }
                self.refused = wait.kind;
                Outcome::Full(item)
            }
        }
    }

    /// The next held item that may go now. `None` when there is none, or while an expired item has
    /// not been taken by [`Scheduler::poll_expired`].
    pub fn poll_placed(&mut self, now: Time, random: u64) -> Option<(Workers, T)> {
        if self.held == 0 || self.next_expiry().is_some_and(|expiry| expiry <= now) {
            return None;
        }
        self.follow_held(self.held);
        if self.types.is_none() {
            return self.poll_placed_of(TypeId(0), now, random);
        }
        (0..self.lines.len()).find_map(|rank| {
            let kind = self.types.as_ref()?.order()[rank];
            self.poll_placed_of(kind, now, random)
        })
    }

    #[inline]
    fn poll_placed_of(&mut self, kind: TypeId, now: Time, random: u64) -> Option<(Workers, T)> {
        let (ticket, &Held { cloning, .. }) = self.lines[kind.index()].first(now)?;
        // A clone never takes the place of an item that is held.
        let cloning = if self.held > 1 { Cloning::Forbidden } else { cloning };
        let workers = self.place(kind, cloning, random)?;
        let line = &mut self.lines[kind.index()];
        let (Held { item, .. }, since) =
            line.queue.take(ticket).expect("the first of the queue is held");
        self.held -= 1;
        if let Some(overload) = &mut line.overload {
            let first = self.types.as_ref().map_or(0, |types| types.first(kind));
            let loads = self.loads.get(first..).unwrap_or_default();
            overload.note_placed((since, now), line.queue.len(), loads);
        }
        Some((workers, item))
    }

    /// A held item whose expiry has passed, or that has waited for as long as it may, the earliest
    /// expiry first; or else the next item of a type, where it could not end by its deadline any
    /// more: a worker's time for it would be lost to those behind it.
    ///
    /// Drain it before each [`Scheduler::poll_placed`], which does not look at services.
    pub fn poll_expired(&mut self, now: Time) -> Option<T> {
        let (earliest, expiry) = self.earliest()?;
        let ticket = if expiry <= now { earliest } else { self.next_too_late(now)? };
        if let Some(overload) = &mut self.lines[ticket.kind.index()].overload {
            overload.note_refused(now);
        }
        self.refused = ticket.kind;
        self.remove(ticket)
    }

    /// Time for which a client that is refused now is to stay away, ns; 0 where nothing limits
    /// waiting.
    pub fn retry_after_ns(&self) -> u64 {
        let overload = &self.lines[self.refused.index()].overload;
        overload.as_ref().map_or(0, Overload::retry_after_ns)
    }

    /// Likely wait of one more item that is held now, ns; 0 before that is known. Of several types,
    /// the longest.
    pub fn expected_wait_ns(&self) -> u64 {
        let waits = self.lines.iter().map(|line| {
            let gap_ns = line.overload.as_ref().map_or(0, Overload::gap_ns);
            gap_ns.saturating_mul(line.queue.len() as u64)
        });
        waits.max().unwrap_or(0)
    }

    /// Time at which the next held item expires.
    pub fn next_expiry(&self) -> Option<Time> {
        self.lines.iter().filter_map(|line| line.queue.next_expiry()).min()
    }

    #[inline]
    fn earliest(&self) -> Option<(Ticket, Time)> {
        if self.types.is_none() {
            return self.lines[0].queue.earliest();
        }
        let lines = self.lines.iter();
        lines.filter_map(|line| line.queue.earliest()).min_by_key(|&(_, expiry)| expiry)
    }

    /// The next item of a type that would end after its deadline, if its service began now and took
    /// as long as the mean.
    fn next_too_late(&mut self, now: Time) -> Option<Ticket> {
        let (types, service_ns) = (self.types.as_ref(), self.services.mean_ns());
        (0_u8..).map(TypeId).zip(&mut self.lines).find_map(|(kind, line)| {
            let service_ns = types.map_or(service_ns, |types| types.service_ns(kind))?;
            let (ticket, held) = line.first(now)?;
            (now.saturating_add(service_ns) > held.until).then_some(ticket)
        })
    }

    /// Takes a held item out; `None` when it has left.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let Held { item, .. } = self.lines[ticket.kind.index()].queue.remove(ticket)?;
        self.held -= 1;
        Some(item)
    }

    /// Takes the held item out whose expiry comes first.
    pub fn pop_held(&mut self) -> Option<T> {
        let (ticket, _) = self.earliest()?;
        self.remove(ticket)
    }

    /// A service of an item of this type took so long.
    pub fn note_service(&mut self, kind: TypeId, service_ns: u64) {
        if let Some(types) = &mut self.types {
            types.note_service(kind, service_ns);
        } else {
            self.services.note(service_ns);
        }
    }

    /// True if the service of the item of this type that was placed last is to be measured.
    #[inline]
    pub fn samples_next(&mut self, kind: TypeId) -> bool {
        match &mut self.types {
            Some(types) => types.samples_next(kind),
            None => self.services.samples_next(),
        }
    }

    /// The type of the item that was placed last.
    #[inline]
    pub fn placed_type(&self) -> TypeId {
        self.placed
    }

    /// True if an item of this type would find an idle worker that it may use; always where there
    /// are no types.
    pub fn has_idle(&self, kind: TypeId) -> bool {
        let types = self.types.as_ref();
        types.is_none_or(|types| types.place(kind, &self.loads, 0).is_some())
    }

    /// State that is known of the types, where there are some.
    pub fn types(&self) -> Option<&Types> {
        self.types.as_ref()
    }

    /// Items of a type that are held. Panics for one that there is not.
    pub fn queue_len_of(&self, kind: TypeId) -> usize {
        self.lines[kind.index()].queue.len()
    }

    /// Adds a worker, in service and with nothing outstanding. It takes the lowest index that is
    /// free. Where some have ranks, what the policy sees is made anew once, for all that are added
    /// until something is placed or concluded.
    pub fn add_worker(&mut self) -> WorkerId {
        let index = self
            .workers
            .iter()
            .position(|worker| worker.state == State::Removed)
            .unwrap_or(self.workers.len());
        if index == self.workers.len() {
            self.workers.push(Worker { outstanding: 0, state: State::Removed });
            self.loads.push(OUT_OF_SERVICE);
            self.reported.push(0);
            self.waiting.push(0);
        }
        let worker = WorkerId::at(index);
        self.workers[index].outstanding = 0;
        self.reported[index] = 0;
        self.waiting[index] = 0;
        if let Some(spread) = &mut self.spread {
            spread.add(worker);
        }
        self.set_state(worker, State::In);
        worker
    }

    /// Says how a worker stands among the others, until it is removed. Drain
    /// [`Scheduler::poll_placed`] after.
    pub fn set_rank(&mut self, worker: WorkerId, rank: Rank) {
        self.set_ranks(&[(worker, rank)]);
    }

    /// Sets the ranks of several workers, at the cost of one.
    pub fn set_ranks(&mut self, changes: &[(WorkerId, Rank)]) {
        if changes.iter().all(|&(worker, rank)| self.rank(worker) == rank) {
            return;
        }
        let mut ranks = vec![Rank::default(); self.workers.len()];
        if let Some(spread) = &self.spread {
            ranks.copy_from_slice(spread.ranks());
        }
        for &(worker, rank) in changes {
            ranks[worker.index()] = rank;
        }
        self.replace_ranks(ranks);
    }

    /// Rank of a worker among the others.
    pub fn rank(&self, worker: WorkerId) -> Rank {
        let ranks = self.spread.as_ref().map(|spread| spread.ranks()[worker.index()]);
        ranks.unwrap_or_default()
    }

    /// Nothing is kept where all are alike, which is the rule.
    fn replace_ranks(&mut self, ranks: Vec<Rank>) {
        self.spread = None;
        if ranks.iter().any(|&rank| rank != Rank::default()) {
            self.spread = Some(Box::new(Spread::new(ranks)));
            self.spread_all();
        }
    }

    /// Makes what the policy sees anew, where workers have been added since.
    #[inline]
    fn refresh_spread(&mut self) {
        if let Some(spread) = &self.spread
            && spread.is_stale()
        {
            self.replace_ranks(spread.ranks().to_vec());
        }
    }

    /// Gives the loads of all workers to what the policy sees.
    fn spread_all(&mut self) {
        for index in 0..self.workers.len() {
            self.spread(WorkerId::at(index));
        }
    }

    /// Gives the load of a worker to what the policy sees.
    #[inline]
    fn spread(&mut self, worker: WorkerId) {
        if self.spread.is_some() {
            self.spread_now(worker);
        }
    }

    #[inline(never)]
    fn spread_now(&mut self, worker: WorkerId) {
        let load = self.load(worker);
        let presence = match self.workers[worker.index()].state {
            State::In => Presence::In,
            State::Out => Presence::Out,
            State::Removed => Presence::Removed,
        };
        if let Some(spread) = &mut self.spread {
            spread.update(worker, load, presence);
        }
    }

    /// Releases the worker and what it has outstanding; its index may be given to another. Harmless
    /// when it is removed.
    pub fn remove_worker(&mut self, worker: WorkerId) {
        self.set_state(worker, State::Removed);
        self.set_rank(worker, Rank::default());
    }

    /// Takes the worker into service or out of it. Harmless when it is there, or removed.
    pub fn set_in_service(&mut self, worker: WorkerId, service: Service) {
        if self.workers[worker.index()].state != State::Removed {
            self.set_state(worker, if service == Service::In { State::In } else { State::Out });
        }
    }

    /// Replaces the outstanding count of a worker, where something else than this scheduler knows
    /// it.
    pub fn set_outstanding(&mut self, worker: WorkerId, outstanding: u32) {
        *self.outstanding_mut(worker) = outstanding.min(OUT_OF_SERVICE - 1);
        self.spread(worker);
    }

    /// Notes the load that a worker has reported, and how much of that waits.
    pub fn set_reported(&mut self, worker: WorkerId, reported: u32, waiting: u32) {
        self.reported[worker.index()] = reported;
        self.waiting[worker.index()] = waiting;
        self.spread(worker);
    }

    /// One item of the worker has ended. Harmless when it has none.
    pub fn conclude(&mut self, worker: WorkerId) {
        self.refresh_spread();
        let seat = self.spread.as_ref().map_or(worker, |spread| spread.seat(worker));
        self.policy.note_concluded(seat);
        let outstanding = self.outstanding_mut(worker);
        *outstanding = outstanding.saturating_sub(1);
        self.spread(worker);
    }

    /// Counts one more item at the worker, which somebody else placed there: past the bound if need
    /// be.
    pub fn charge(&mut self, worker: WorkerId) {
        self.set_outstanding(worker, self.outstanding(worker).saturating_add(1));
    }

    /// Items that the worker has.
    pub fn outstanding(&self, worker: WorkerId) -> u32 {
        match self.loads[worker.index()] {
            OUT_OF_SERVICE => self.workers[worker.index()].outstanding,
            outstanding => outstanding,
        }
    }

    /// Load of the worker, as the policy sees it.
    pub fn load(&self, worker: WorkerId) -> Load {
        let (outstanding, reported, waiting) = (&self.loads, &self.reported, &self.waiting);
        Loads { outstanding, reported, waiting }.of(worker)
    }

    /// Workers in service.
    pub fn in_service_count(&self) -> u32 {
        self.in_service_count
    }

    /// Items held.
    pub fn queue_len(&self) -> usize {
        self.held
    }

    /// Holds at most so many items of each type from now on. Those that are held beyond it stay.
    ///
    /// # Panics
    /// When `queue_len_max` does not fit 31 bits.
    pub fn set_queue_len_max(&mut self, queue_len_max: usize) {
        assert!(
            queue_len_max < u32::MAX as usize / 2,
            "a queue of {queue_len_max} items is not supported"
        );
        self.lines.iter_mut().for_each(|line| line.queue.set_len_max(queue_len_max));
    }

    /// The policy's bound, where it has one; where that follows what is held, the last that was in
    /// force.
    pub fn bound(&self) -> Option<u32> {
        self.policy.bound()
    }

    /// The policy's bound while so many are held, where it has one.
    pub fn bound_at(&self, held: usize) -> Option<u32> {
        let bounds = self.held_bounds.as_ref();
        bounds.map(|bounds| bounds.clone().at(held)).or_else(|| self.policy.bound())
    }

    /// Sets the bound of a policy that has one, whatever is held. Drain [`Scheduler::poll_placed`]
    /// after.
    pub fn set_bound(&mut self, bound: u32) {
        self.held_bounds = None;
        self.policy.set_bound(bound);
    }

    /// Has the bound of a policy follow what is held. Drain [`Scheduler::poll_placed`] after, and
    /// whenever something has been held.
    pub fn set_held_bounds(&mut self, bounds: &HeldBounds) {
        match &mut self.held_bounds {
            Some(own) => **own = bounds.clone(),
            none => *none = Some(Box::new(bounds.clone())),
        }
        self.follow_held(self.held);
    }

    /// The bound that holds while so many are held.
    #[inline]
    fn follow_held(&mut self, held: usize) {
        if let Some(bounds) = &mut self.held_bounds {
            self.policy.set_bound(bounds.at(held));
        }
    }

    /// As [`Scheduler::poll_placed`], where nobody may go: places the first of the queue past the
    /// bound by one.
    pub fn poll_placed_past(&mut self, now: Time, random: u64) -> Option<(Workers, T)> {
        let is_expired = self.next_expiry().is_some_and(|expiry| expiry <= now);
        let may_go = self.held > 0 && !is_expired && self.types.is_none();
        let bound = self.policy.bound().filter(|_| may_go)?;
        self.policy.set_bound(bound.saturating_add(1));
        let placed = self.poll_placed_of(TypeId(0), now, random);
        self.policy.set_bound(bound);
        placed
    }

    #[inline]
    fn place(&mut self, kind: TypeId, cloning: Cloning, random: u64) -> Option<Workers> {
        self.refresh_spread();
        let (outstanding, reported, waiting) = (&self.loads, &self.reported, &self.waiting);
        let workers = if let Some(types) = &self.types {
            let bound = self.policy.bound().unwrap_or(1);
            let first = types.place(kind, outstanding, bound)?;
            self.policy.note_placed(first);
            self.placed = kind;
            Workers { first, last: first }
        } else if let Some(spread) = &self.spread {
            Workers::of(spread.place(&mut *self.policy, random), cloning)?
        } else {
            let loads = Loads { outstanding, reported, waiting };
            Workers::of(self.policy.place(loads, random), cloning)?
        };
        self.count_placed(workers.first);
        if let Some(second) = workers.second() {
            self.count_placed(second);
        }
        Some(workers)
    }

    #[inline]
    fn count_placed(&mut self, worker: WorkerId) {
        let load = &mut self.loads[worker.index()];
        if *load < OUT_OF_SERVICE - 1 {
            *load += 1;
        } else {
            assert!(*load != OUT_OF_SERVICE, "a policy places on workers in service");
        }
        self.spread(worker);
    }

    /// Outstanding count of a worker, wherever it is kept.
    #[inline]
    fn outstanding_mut(&mut self, worker: WorkerId) -> &mut u32 {
        let load = &mut self.loads[worker.index()];
        match *load {
            OUT_OF_SERVICE => &mut self.workers[worker.index()].outstanding,
            _ => load,
        }
    }

    fn set_state(&mut self, worker: WorkerId, state: State) {
        let (slot, load) = (&mut self.workers[worker.index()], &mut self.loads[worker.index()]);
        let (was, is) = (slot.state == State::In, state == State::In);
        slot.state = state;
        match (was, is) {
            (false, true) => *load = slot.outstanding,
            (true, false) => slot.outstanding = std::mem::replace(load, OUT_OF_SERVICE),
            _ => {}
        }
        self.in_service_count = self.in_service_count + u32::from(is) - u32::from(was);
        self.spread(worker);
    }
}

/// One worker.
#[derive(Clone, Copy, Debug)]
struct Worker {
    /// Items placed and not concluded, while it is out of service; below `OUT_OF_SERVICE`. In
    /// service its load is.
    outstanding: u32,
    /// True if it takes more.
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    In,
    Out,
    Removed,
}

#[cfg(test)]
mod tests;
