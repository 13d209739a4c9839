//! Types of requests: a queue for each, and workers that are reserved for the short ones.
//!
//! In one queue a short request waits whenever long ones have all workers. Here the types are put
//! in the order of their mean services, and each may use the workers from its first on: its own and
//! those of longer types, never those of shorter ones. So workers that long requests cannot have
//! are there for the next short one, idle if need be: DARC (Demoulin et al., When Idling is Ideal,
//! SOSP 2021).
//!
//! | a request finds | then |
//! |---|---|
//! | an idle worker of its own | it goes there |
//! | none, but an idle worker of a longer type | it goes there |
//! | neither, but a worker of its own below the bound | it goes to that which has the fewest |
//! | none of these | it waits; when a worker can take one more, the shortest type that may use it goes first |
//!
//! | types | are |
//! |---|---|
//! | whose mean services differ by less than a factor of 2 | one group with the same workers |
//! | of a group | given workers by its share of the demand, arrivals times mean service; one at least |
//! | whose service nobody has measured | taken for the longest, once another's is known |
//!
//! Services are learned from samples (`Scheduler::note_service`), arrivals are counted, and workers
//! are dealt anew at the end of each window of arrivals.
//!
//! Invariant: the first worker of a type is not before that of a shorter one, and every type may
//! use the last worker.

use crate::policy::WorkerId;

/// Most types.
pub const TYPES_MAX: usize = 16;

/// A type of requests, below the count of [`Scheduler::with_types`]; the last of them stands for
/// all above.
///
/// [`Scheduler::with_types`]: super::Scheduler::with_types
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u8);

impl TypeId {
    /// The index for slices.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// State that is known of the types, and the workers that each may use.
#[derive(Clone, Debug)]
pub struct Types {
    /// By [`TypeId::index`].
    profiles: Vec<Profile>,
    /// The types by ascending mean service.
    order: Vec<TypeId>,
    /// Arrivals until workers are dealt anew.
    window_left: u32,
    /// Workers that were dealt.
    worker_count: usize,
}

/// State that is known of a type.
#[derive(Clone, Copy, Debug, Default)]
struct Profile {
    /// Its services.
    services: Services,
    /// Arrivals in the window.
    arrived: u32,
    /// Mean arrivals in a window, in 1024ths.
    arrivals_1024: u64,
    /// Its first worker. It may use this and all after it.
    first: usize,
    /// The first worker of a longer group, or the count of workers.
    end: usize,
}

/// The mean of services, learned from samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Services {
    /// The mean, ns; `None` before the first sample.
    mean_ns: Option<u64>,
    /// The longest of the eager samples, which is not in their mean, ns.
    longest_ns: u64,
    /// Samples so far, up to [`EAGER_SAMPLES`].
    samples: u32,
    /// Placements until the next sample.
    countdown: u32,
}

impl Services {
    /// The mean, ns; `None` before the first sample.
    #[inline]
    pub(super) fn mean_ns(self) -> Option<u64> {
        self.mean_ns
    }

    /// True if the next placement is a sample: the first ones are, and then one of
    /// [`SAMPLE_EVERY`].
    #[inline]
    pub(super) fn samples_next(&mut self) -> bool {
        if self.countdown > 0 {
            self.countdown -= 1;
            return false;
        }
        self.countdown = if self.samples < EAGER_SAMPLES { 0 } else { SAMPLE_EVERY - 1 };
        true
    }

    /// A service took so long. One of the first counts as much as any other but the longest of
    /// them, which may have found cold caches; later one that was interrupted moves the mean by as
    /// much again at most.
    pub(super) fn note(&mut self, service_ns: u64) {
        let mean_ns = match (self.samples, self.mean_ns) {
            (0, _) | (_, None) => service_ns,
            (before @ ..EAGER_SAMPLES, Some(mean_ns)) => {
                let before = u64::from(before);
                let counted_ns = service_ns.min(self.longest_ns);
                (mean_ns.saturating_mul(before - 1).saturating_add(counted_ns)) / before
            }
            (_, Some(mean_ns)) => {
                let most_ns = mean_ns.saturating_mul(OUTLIER_FACTOR).saturating_add(1_000);
                let sum = mean_ns.saturating_mul(SERVICE_WEIGHT - 1);
                sum.saturating_add(service_ns.min(most_ns)) / SERVICE_WEIGHT
            }
        };
        self.longest_ns = self.longest_ns.max(service_ns);
        self.samples = (self.samples + 1).min(EAGER_SAMPLES);
        self.mean_ns = Some(mean_ns.max(1));
    }
}

impl Types {
    /// `count` types of which nothing is known: all may use all workers.
    pub(super) fn new(count: usize) -> Self {
        let count = count.clamp(1, TYPES_MAX);
        Self {
            profiles: vec![Profile::default(); count],
            order: (0..count as u8).map(TypeId).collect(),
            window_left: WINDOW_FIRST,
            worker_count: 0,
        }
    }

    /// Number of types.
    pub fn count(&self) -> usize {
        self.profiles.len()
    }

    /// The mean service of a type, ns; `None` before the first sample.
    ///
    /// # Panics
    /// When there is no such type.
    pub fn service_ns(&self, kind: TypeId) -> Option<u64> {
        self.profiles[kind.index()].services.mean_ns()
    }

    /// Workers that are reserved for a type and those of its group: longer types never get them.
    ///
    /// # Panics
    /// When there is no such type.
    pub fn reserved(&self, kind: TypeId) -> u32 {
        let Profile { first, end, .. } = self.profiles[kind.index()];
        (end - first) as u32
    }

    /// The type that stands for `kind`.
    #[inline]
    pub(super) fn clamp(&self, kind: TypeId) -> TypeId {
        TypeId(kind.0.min(self.profiles.len() as u8 - 1))
    }

    /// The first worker that a type may use.
    pub(super) fn first(&self, kind: TypeId) -> usize {
        self.profiles[kind.index()].first
    }

    /// The types, the shortest first.
    #[inline]
    pub(super) fn order(&self) -> &[TypeId] {
        &self.order
    }

    /// True if the service of the next placement of a type is to be measured: the first ones are,
    /// and then one of [`SAMPLE_EVERY`] of each type, so that rare ones are known too.
    #[inline]
    pub(super) fn samples_next(&mut self, kind: TypeId) -> bool {
        self.profiles[kind.index()].services.samples_next()
    }

    /// A service of a type took so long.
    pub(super) fn note_service(&mut self, kind: TypeId, service_ns: u64) {
        let kind = self.clamp(kind);
        let services = &mut self.profiles[kind.index()].services;
        let is_first = services.mean_ns().is_none();
        services.note(service_ns);
        if is_first {
            self.deal();
        }
    }

    /// A request of a type has come, before so many workers.
    #[inline]
    pub(super) fn note_arrival(&mut self, kind: TypeId, worker_count: usize) {
        self.profiles[kind.index()].arrived += 1;
        self.window_left -= 1;
        if self.window_left == 0 || worker_count != self.worker_count {
            self.roll(worker_count);
        }
    }

    /// The worker for a request of a type, by what each has outstanding; `None` where it has to
    /// wait. A worker of its own is never given more than `bound`.
    #[inline]
    pub(super) fn place(&self, kind: TypeId, outstanding: &[u32], bound: u32) -> Option<WorkerId> {
        let Profile { first, end, .. } = self.profiles[kind.index()];
        // The workers may have become fewer since they were dealt; the last is there for all.
        let first = first.min(outstanding.len().saturating_sub(1));
        let own = outstanding.get(first..end.clamp(first, outstanding.len()))?;
        let fewest = (first..).zip(own).min_by_key(|&(_, load)| load);
        if let Some((index, 0)) = fewest {
            return Some(WorkerId::at(index));
        }
        let longer = outstanding.iter().skip(first + own.len()).position(|&load| load == 0);
        if let Some(index) = longer {
            return Some(WorkerId::at(first + own.len() + index));
        }
        let (index, &load) = fewest?;
        // No bound is above the load of a worker out of service.
        (load < bound).then(|| WorkerId::at(index))
    }

    /// Ends the window.
    fn roll(&mut self, worker_count: usize) {
        if self.window_left == 0 {
            for profile in &mut self.profiles {
                let arrived_1024 = u64::from(profile.arrived) * 1024;
                profile.arrivals_1024 = match profile.arrivals_1024 {
                    0 => arrived_1024,
                    // Rounded down to nothing, for a type that no longer comes is to have no
                    // worker.
                    mean => mean - mean.div_ceil(ARRIVALS_WEIGHT) + arrived_1024 / ARRIVALS_WEIGHT,
                };
                profile.arrived = 0;
            }
            self.window_left = WINDOW;
        }
        self.worker_count = worker_count;
        self.deal();
    }

    /// Deals the workers to the groups, the shortest first.
    fn deal(&mut self) {
        let Self { profiles, order, worker_count, .. } = self;
        let service = |kind: TypeId, profiles: &[Profile]| {
            profiles[kind.index()].services.mean_ns().unwrap_or(u64::MAX)
        };
        order.sort_by_key(|&kind| service(kind, profiles));
        let demand_of = |profile: &Profile| {
            let arrivals_1024 = profile.arrivals_1024.max(u64::from(profile.arrived) * 1024);
            // A type that nobody has measured is not given any workers for it.
            u128::from(profile.services.mean_ns().unwrap_or(0)) * u128::from(arrivals_1024)
        };
        let demand_all: u128 = profiles.iter().map(demand_of).sum();
        let mut rest = &order[..];
        let mut first = 0;
        while let Some(&shortest) = rest.first() {
            let least = service(shortest, profiles);
            // Those that nobody has measured are one group too.
            let is_longer = |&kind: &TypeId| {
                let service = service(kind, profiles);
                service > least && service >= least.saturating_mul(GROUP_FACTOR)
            };
            let len = rest.iter().skip(1).position(is_longer).map_or(rest.len(), |at| at + 1);
            let (group, longer) = rest.split_at(len);
            let demand: u128 = group.iter().map(|kind| demand_of(&profiles[kind.index()])).sum();
            let share = (demand * *worker_count as u128 * 2 + demand_all)
                .checked_div(demand_all * 2)
                .unwrap_or(0) as usize;
            let has_come = demand > 0;
            let end = match longer {
                [] => *worker_count,
                _ => (first + share.max(usize::from(has_come))).min(worker_count.saturating_sub(1)),
            };
            for kind in group {
                let profile = &mut profiles[kind.index()];
                (profile.first, profile.end) = (first, end);
            }
            (first, rest) = (end, longer);
        }
    }
}

/// Types whose services differ by less are one group: to tell them apart would cost workers that
/// idle for nothing.
const GROUP_FACTOR: u64 = 2;

/// Arrivals of a window, so that one of a thousand is there a few times.
const WINDOW: u32 = 4096;
/// Arrivals of the first.
const WINDOW_FIRST: u32 = 256;
/// Weight of the mean arrivals: of so many windows.
const ARRIVALS_WEIGHT: u64 = 8;
/// The first services of a type are all measured.
const EAGER_SAMPLES: u32 = 16;
/// Later one of so many: four readings of the clock, 90 ns, are 1.5 ns a request.
const SAMPLE_EVERY: u32 = 64;
/// Weight of the mean service: of so many samples.
const SERVICE_WEIGHT: u64 = 16;
/// A sample counts as so many times the mean at most.
const OUTLIER_FACTOR: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{OUT_OF_SERVICE, PolicySpec};
    use crate::scheduler::{Cloning, Outcome, Scheduler, Wait};

    const SHORT: TypeId = TypeId(0);
    const LONG: TypeId = TypeId(1);

    /// Types with these services and arrivals of a window, before 16 workers.
    fn learned(types: &[(u64, u32)]) -> Types {
        let mut all = Types::new(types.len());
        for (kind, &(service_ns, _)) in (0..).map(TypeId).zip(types) {
            all.note_service(kind, service_ns);
        }
        let total: u32 = types.iter().map(|&(_, arrivals)| arrivals).sum();
        for arrival in 0..20 * WINDOW {
            // Spread evenly: of each `total` arrivals the first are of the first type, and so on.
            let mut at = arrival * 7 % total;
            let kind = types.iter().position(|&(_, arrivals)| {
                let is_here = at < arrivals;
                at = at.saturating_sub(arrivals);
                is_here
            });
            all.note_arrival(TypeId(kind.unwrap_or(0) as u8), 16);
        }
        all
    }

    fn reserved(types: &[(u64, u32)]) -> Vec<u32> {
        let all = learned(types);
        (0..types.len() as u8).map(|kind| all.reserved(TypeId(kind))).collect()
    }

    #[test]
    fn workers_are_dealt_by_demand() {
        // 99 % of 1 us and 1 % of 100 us: as much work of each.
        assert_eq!(reserved(&[(1_000, 990), (100_000, 10)]), [8, 8]);
        assert_eq!(reserved(&[(200_000, 10), (1_000, 990)]), [11, 5]);
        assert_eq!(reserved(&[(1_000, 1), (10_000, 1)]), [1, 15]);
    }

    #[test]
    fn a_type_with_hardly_any_demand_has_a_worker() {
        assert_eq!(reserved(&[(100, 1), (1_000_000, 1)]), [1, 15]);
        assert_eq!(reserved(&[(100, 100), (1_000_000, 0)]), [15, 1]);
    }

    #[test]
    fn a_type_that_no_longer_comes_has_no_worker() {
        let mut types = learned(&[(1_000, 1), (100_000, 1)]);
        assert_eq!(types.reserved(SHORT), 1);
        (0..200 * WINDOW).for_each(|_| types.note_arrival(LONG, 16));
        assert_eq!([SHORT, LONG].map(|kind| types.reserved(kind)), [0, 16]);
        types.note_arrival(SHORT, 16);
        (0..WINDOW).for_each(|_| types.note_arrival(LONG, 16));
        assert_eq!(types.reserved(SHORT), 1, "it has come again");
    }

    #[test]
    fn like_types_are_one_group() {
        assert_eq!(reserved(&[(1_000, 50), (1_900, 50), (100_000, 1)]), [9, 9, 7]);
    }

    #[test]
    fn an_unmeasured_type_stays_away_from_short_ones() {
        let mut types = Types::new(3);
        types.note_service(SHORT, 1_000);
        types.note_service(LONG, 100_000);
        for arrival in 0..WINDOW {
            types.note_arrival(TypeId((arrival % 3) as u8), 16);
        }
        let outstanding = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(types.place(TypeId(2), &outstanding, 1), Some(WorkerId(15)));
    }

    #[test]
    fn a_long_request_never_takes_a_reserved_worker() {
        let types = learned(&[(1_000, 990), (100_000, 10)]);
        let (mut outstanding, mut placed) = ([0_u32; 16], Vec::new());
        while let Some(worker) = types.place(LONG, &outstanding, 1) {
            outstanding[worker.index()] += 1;
            placed.push(worker.0);
        }
        assert_eq!(placed, (8..16).collect::<Vec<_>>());
        assert_eq!(types.place(SHORT, &outstanding, 1), Some(WorkerId(0)));
    }

    #[test]
    fn a_short_request_takes_its_own_worker_first_and_then_an_idle_one() {
        let types = learned(&[(1_000, 990), (100_000, 10)]);
        let mut outstanding = [0_u32; 16];
        outstanding[..7].fill(1);
        assert_eq!(types.place(SHORT, &outstanding, 2), Some(WorkerId(7)));
        outstanding[7] = 1;
        assert_eq!(types.place(SHORT, &outstanding, 2), Some(WorkerId(8)));
        outstanding[8..].fill(1);
        outstanding[9] = 0;
        assert_eq!(types.place(SHORT, &outstanding, 2), Some(WorkerId(9)));
        outstanding[9] = 1;
        // Behind a short one, not behind a long one.
        outstanding[0] = 2;
        assert_eq!(types.place(SHORT, &outstanding, 2), Some(WorkerId(1)));
        assert_eq!(types.place(SHORT, &outstanding, 1), None);
    }

    /// A scheduler that has seen both types, with nothing outstanding.
    fn scheduler() -> Scheduler<TypeId> {
        let policy = "jbsq:1".parse::<PolicySpec>().unwrap().build();
        let mut scheduler = Scheduler::new(policy, 100).with_types(2);
        for _ in 0..16 {
            scheduler.add_worker();
        }
        for (kind, service_ns) in [(SHORT, 1_000), (LONG, 500_000)] {
            scheduler.note_service(kind, service_ns);
        }
        for arrival in 0..10 * WINDOW {
            let kind = if arrival % 200 == 0 { LONG } else { SHORT };
            let wait = Wait::of(1, 0, 1_000_000).of_type(kind);
            let Outcome::Placed(workers, _) = scheduler.offer(kind, Cloning::Forbidden, wait, 0)
            else {
                panic!("all workers are idle")
            };
            scheduler.conclude(workers.first());
        }
        scheduler
    }

    fn offer(scheduler: &mut Scheduler<TypeId>, kind: TypeId) -> Option<WorkerId> {
        let wait = Wait::of(1, 0, 1_000_000).of_type(kind);
        match scheduler.offer(kind, Cloning::Forbidden, wait, 0) {
            Outcome::Placed(workers, _) => Some(workers.first()),
            Outcome::Held(_) => None,
            Outcome::Full(_) => panic!("the queue has room"),
        }
    }

    #[test]
    fn short_requests_overtake_long_ones_that_wait() {
        let mut scheduler = scheduler();
        let long: Vec<_> = (0..20).filter_map(|_| offer(&mut scheduler, LONG)).collect();
        assert_eq!((long.len(), scheduler.queue_len_of(LONG)), (11, 9));
        let short: Vec<_> = (0..8).filter_map(|_| offer(&mut scheduler, SHORT)).collect();
        assert_eq!((short.len(), scheduler.queue_len_of(SHORT)), (5, 3));
        scheduler.conclude(long[0]);
        // A worker of the long ones takes a short one first, which came later.
        let (workers, kind) = scheduler.poll_placed(0, 0).unwrap();
        assert_eq!((workers.first(), kind), (long[0], SHORT));
        scheduler.conclude(short[0]);
        assert_eq!(scheduler.poll_placed(0, 0).map(|(_, kind)| kind), Some(SHORT));
        scheduler.conclude(short[1]);
        assert_eq!(scheduler.poll_placed(0, 0).map(|(_, kind)| kind), Some(SHORT));
        scheduler.conclude(short[2]);
        // Reserved: it idles rather than take a long one.
        assert_eq!(scheduler.poll_placed(0, 0), None);
        scheduler.conclude(long[1]);
        assert_eq!(scheduler.poll_placed(0, 0).map(|(_, kind)| kind), Some(LONG));
    }

    #[test]
    fn what_its_type_takes_too_long_for_is_refused_when_its_turn_comes() {
        let mut scheduler = scheduler();
        for kind in [LONG, SHORT] {
            while offer(&mut scheduler, kind).is_some() {}
        }
        assert_eq!([LONG, SHORT].map(|kind| scheduler.queue_len_of(kind)), [1, 1]);
        // They are wanted until 1 ms.
        assert_eq!(scheduler.poll_expired(500_000), None);
        assert_eq!(scheduler.poll_expired(600_000), Some(LONG));
        assert_eq!(scheduler.poll_expired(600_000), None);
        assert_eq!(scheduler.poll_expired(999_001), Some(SHORT));
    }

    #[test]
    fn items_of_each_type_expire_and_are_removed() {
        let mut scheduler = scheduler();
        for kind in [LONG, SHORT] {
            for _ in 0..16 {
                let wait = Wait::from(1_000 + u64::from(kind.0)).of_type(kind);
                let _ = scheduler.offer(kind, Cloning::Forbidden, wait, 0);
            }
        }
        assert_eq!((scheduler.queue_len_of(SHORT), scheduler.queue_len_of(LONG)), (11, 5));
        let Outcome::Held(ticket) =
            scheduler.offer(LONG, Cloning::Forbidden, Wait::from(5_000).of_type(LONG), 0)
        else {
            panic!("it waits")
        };
        assert_eq!((scheduler.queue_len(), scheduler.next_expiry()), (17, Some(1_000)));
        assert_eq!(scheduler.remove(ticket), Some(LONG));
        assert_eq!(scheduler.remove(ticket), None);
        let expired: Vec<_> = std::iter::from_fn(|| scheduler.poll_expired(1_001)).collect();
        assert_eq!(expired, [vec![SHORT; 11], vec![LONG; 5]].concat());
        assert_eq!((scheduler.queue_len(), scheduler.next_expiry()), (0, None));
    }

    #[test]
    fn each_type_is_sampled_often_at_first_and_then_seldom() {
        let mut types = Types::new(2);
        assert!((0..100).all(|_| types.samples_next(LONG)));
        (0..16).for_each(|_| types.note_service(SHORT, 1_000));
        assert_eq!((0..6_400).filter(|_| types.samples_next(SHORT)).count(), 100);
        assert!(types.samples_next(LONG));
    }

    #[test]
    fn workers_out_of_service_get_nothing() {
        let types = learned(&[(1_000, 990), (100_000, 10)]);
        assert_eq!(types.place(SHORT, &[OUT_OF_SERVICE; 16], u32::MAX), None);
    }

    #[test]
    fn a_cold_first_service_is_not_in_the_mean() {
        let mut services = Services::default();
        services.note(10_000_000);
        assert_eq!(services.mean_ns(), Some(10_000_000), "nothing else is known");
        for service_ns in [100_000, 120_000, 80_000, 100_000] {
            services.note(service_ns);
        }
        assert_eq!(services.mean_ns(), Some(100_000));
        // Of equal ones each counts.
        let mut services = Services::default();
        (1..=16).for_each(|sample| services.note(1_000 * (1 + sample % 2)));
        assert!(services.mean_ns().is_some_and(|ns| ns.abs_diff(22_000 / 15) <= 15));
    }

    #[test]
    fn a_mean_follows_its_samples_and_not_an_outlier() {
        let mut types = Types::new(1);
        for _ in 0..100 {
            types.note_service(SHORT, 1_000);
        }
        types.note_service(SHORT, 1_000_000_000);
        assert!(types.service_ns(SHORT).is_some_and(|ns| ns <= 2_000), "{types:?}");
        for _ in 0..200 {
            types.note_service(SHORT, 5_000);
        }
        assert!(types.service_ns(SHORT).is_some_and(|ns| ns > 4_900), "{types:?}");
    }

    #[test]
    fn the_last_type_stands_for_all_above() {
        let mut types = Types::new(2);
        assert_eq!([0, 1, 2, 255].map(|kind| types.clamp(TypeId(kind)).0), [0, 1, 1, 1]);
        types.note_service(TypeId(9), 5_000);
        assert_eq!([SHORT, LONG].map(|kind| types.service_ns(kind)), [None, Some(5_000)]);
    }

    #[test]
    fn a_scheduler_tells_what_it_knows_of_types() {
        let mut scheduler = scheduler();
        let types = scheduler.types().expect("there are types");
        assert_eq!(
            [SHORT, LONG].map(|kind| (types.first(kind), types.reserved(kind))),
            [(0, 5), (5, 11)]
        );
        for kind in [LONG, SHORT] {
            assert!(offer(&mut scheduler, kind).is_some());
            assert_eq!(scheduler.placed_type(), kind);
        }
        while scheduler.has_idle(LONG) {
            assert!(offer(&mut scheduler, LONG).is_some());
        }
        assert_eq!(offer(&mut scheduler, LONG), None, "none is idle");
        assert!(scheduler.has_idle(SHORT), "four of its own are");
        let samples = |scheduler: &mut Scheduler<TypeId>, kind| {
            (0..640).filter(|_| scheduler.samples_next(kind)).count()
        };
        (0..16).for_each(|_| scheduler.note_service(LONG, 500_000));
        assert_eq!([SHORT, LONG].map(|kind| samples(&mut scheduler, kind)), [640, 10]);
    }

    #[test]
    fn arrivals_follow_their_windows_by_an_eighth() {
        let mut types = Types::new(1);
        let window = |types: &mut Types, len| (0..len).for_each(|_| types.note_arrival(SHORT, 4));
        window(&mut types, WINDOW_FIRST);
        assert_eq!(types.profiles[0].arrivals_1024, 1_024 * u64::from(WINDOW_FIRST));
        window(&mut types, WINDOW);
        let expected = 1_024 * u64::from(WINDOW_FIRST / 8 * 7 + WINDOW / 8);
        assert_eq!(types.profiles[0].arrivals_1024, expected);
    }

    /// All of the first window's are of the long type, and none of it is known.
    #[test]
    fn what_has_come_in_this_window_counts_where_it_is_more() {
        let mut types = Types::new(2);
        types.note_service(SHORT, 1_000);
        (0..WINDOW_FIRST).for_each(|_| types.note_arrival(LONG, 16));
        (0..100).for_each(|_| types.note_arrival(SHORT, 16));
        types.note_service(LONG, 10_000);
        // 100 of 1 us, and 256 of 10 us: a 27th of the work, which is 0.6 workers.
        assert_eq!([SHORT, LONG].map(|kind| types.reserved(kind)), [1, 15]);
        (0..1_000).for_each(|_| types.note_arrival(SHORT, 16));
        types.note_arrival(SHORT, 17);
        types.note_arrival(SHORT, 16);
        // 1,102 of 1 us are 0.3 of it, and of 16 workers 4.8.
        assert_eq!([SHORT, LONG].map(|kind| types.reserved(kind)), [5, 11]);
    }

    #[test]
    fn types_that_nobody_has_measured_are_one_group() {
        let mut types = Types::new(3);
        (0..WINDOW_FIRST).for_each(|at| types.note_arrival(TypeId((at % 3) as u8), 16));
        assert_eq!([0, 1, 2].map(|kind| types.reserved(TypeId(kind))), [16; 3]);
    }
}
