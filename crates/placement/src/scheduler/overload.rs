//! Limits on how long items may wait, and what those are told that may not.
//!
//! | the queue | an item may wait for |
//! |---|---|
//! | has been short within the interval | a share of the time to its deadline |
//! | the same, and stood lately | an eighth of the interval, if that is less |
//! | stands: for an interval it was not empty, and who left it had waited for half of the target | the target, if that is less |
//!
//! and never for so long that it could not be answered by its deadline any more. That is CoDel's
//! control of a standing queue (Nichols and Jacobson, CACM 2012) with the rule that servers use:
//! what has waited for longer than the target is refused, however much more comes (Maurer, ACM
//! Queue 2015). Short bursts wait; a queue that stays is of no use to anybody, since it makes every
//! answer late and not one more of them.
//!
//! | measured | from |
//! |---|---|
//! | gap: the time between two placements | placements of items that were held, while others wait |
//! | residence: from placement to conclusion | the gap times what the workers have (Little's law) |
//! | retry-after | the items offered in a window, over those placed in it |
//!
//! Retry-after is the time between two requests that each client is to keep. It grows while four
//! times as many come as are placed and shrinks while fewer than twice as many do, so that what
//! comes settles a little above what can be served, from however many clients; and it makes clients
//! equal. Refusals do not count: most are of what came earlier, at another pace.
//!
//! The queue is part of that loop: what it lets wait, nobody is told of. So once something has been
//! refused, it stands at once while clients keep a pace. A queue of a quarter of a second made them
//! come and stay away by turns, and left the workers idle for a fifth of the time.

use crate::Time;
use crate::policy::OUT_OF_SERVICE;

pub use super::queue::Order;

/// Limits of waiting in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverloadConfig {
    /// Longest time that an item may wait in a queue that stands. Default 5 ms, CoDel's, and at
    /// least the time of 32 placements, so that a worker finds something to do.
    pub target_ns: u64,
    /// Time without a short queue after which it stands. Default 100 ms, CoDel's: longer than
    /// bursts and pauses of a machine; and at least the time of 1024 placements, up to a second,
    /// which a queue at a load of 0.9 seldom takes to empty.
    pub interval_ns: u64,
    /// Divisor of the time to its deadline for which an item may wait. Default 4: the answer comes
    /// within half of it.
    pub deadline_divisor: u32,
    /// Item that leaves first while the queue stands. Default the oldest: the newest has the same
    /// goodput and the same 99th percentile, and answers out of order.
    pub order: Order,
    /// Keys the table of shares. Default 0; in service one that nobody can guess.
    pub seed: u64,
}

impl OverloadConfig {
    /// The defaults of the fields.
    pub const DEFAULT: Self = Self {
        target_ns: 5_000_000,
        interval_ns: 100_000_000,
        deadline_divisor: 4,
        order: Order::OldestFirst,
        seed: 0,
    };
}

impl Default for OverloadConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// State of a queue's limit of waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overload {
    /// The limits.
    config: OverloadConfig,
    /// Time at which the queue was last short: empty, or left by an item that had hardly waited.
    short_at: Time,
    /// Time at which it last stood; `None` before.
    stood_at: Option<Time>,
    /// Time at which the last item was placed, if others have waited since.
    placed_at: Option<Time>,
    /// Mean time between placements while items wait, in sixteenths of ns; 0 before the first.
    gap_16: u64,
    /// From placement to conclusion, ns.
    residence_ns: u64,
    /// Placements since `residence_ns` was computed.
    placed_count: u32,
    /// Time at which the window of the counts began.
    window_at: Time,
    /// Items offered in the window.
    offered: u32,
    /// Items placed in the window.
    placed: u32,
    /// Time between two requests that a client is to keep, ns; 0 while few are refused.
    retry_after_ns: u64,
}

impl Overload {
    pub(super) fn new(config: OverloadConfig) -> Self {
        Self {
            config,
            short_at: 0,
            stood_at: None,
            placed_at: None,
            gap_16: 0,
            residence_ns: 0,
            placed_count: 0,
            window_at: 0,
            offered: 0,
            placed: 0,
            retry_after_ns: 0,
        }
    }

    /// Keys the table of shares.
    pub(super) fn seed(&self) -> u64 {
        self.config.seed
    }

    /// Time at which an item that comes at `since` and is wanted until `until` is to be refused.
    pub(super) fn expiry(&self, since: Time, until: Time) -> Time {
        let left = until.saturating_sub(since);
        let gap_ns = self.gap_ns();
        let share_ns = (left / u64::from(self.config.deadline_divisor.max(1)))
            .max(gap_ns.saturating_mul(GAPS_OF_SHARE));
        let limit_ns = if self.stands(since) {
            share_ns.min(self.target_ns())
        } else if self.stood_lately(since) {
            share_ns.min(self.target_ns().max(self.interval_ns() / INTERVAL_DIVISOR))
        } else {
            share_ns
        };
        since.saturating_add(limit_ns.min(left.saturating_sub(self.residence_ns)))
    }

    #[inline]
    pub(super) fn order(&self, now: Time) -> Order {
        match self.config.order {
            Order::NewestFirst if self.stands(now) => Order::NewestFirst,
            Order::NewestFirst | Order::OldestFirst => Order::OldestFirst,
        }
    }

    #[inline]
    pub(super) fn note_offered(&mut self, now: Time, is_empty: bool) {
        if is_empty {
            // It may have been left by expiry or removal, which are no placements.
            (self.short_at, self.placed_at) = (now, None);
        } else if self.stands(now) {
            self.stood_at = Some(now);
        }
        self.offered += 1;
        self.roll(now);
    }

    /// An item that came while nothing was held is refused at once. Where that is for the
    /// residence, nothing would measure it again: it fades, until an item is held.
    pub(super) fn doubt_residence(&mut self) {
        self.residence_ns -= self.residence_ns.div_ceil(RESIDENCE_WEIGHT);
    }

    /// An item has been placed, held before or not.
    #[inline]
    pub(super) fn count_placed(&mut self) {
        self.placed += 1;
    }

    pub(super) fn note_refused(&mut self, now: Time) {
        // What waited here for long says that the queue stood; a deadline that was short anyway
        // does not.
        if now.saturating_sub(self.short_at) >= self.target_ns() {
            self.stood_at = Some(now);
        }
        self.roll(now);
    }

    /// An item that was held since a time has been placed now; `loads` are what the workers have.
    pub(super) fn note_placed(
        &mut self,
        (since, now): (Time, Time),
        queue_len: usize,
        loads: &[u32],
    ) {
        // Where the newest leave first, that one of them hardly waited says nothing.
        let is_oldest = self.order(now) == Order::OldestFirst;
        if is_oldest && now.saturating_sub(since) < self.target_ns() / 2 {
            self.short_at = now;
        }
        if let Some(placed_at) = self.placed_at {
            let sample_16 = now.saturating_sub(placed_at).saturating_mul(16);
            self.gap_16 = match self.gap_16 {
                0 => sample_16,
                gap => gap - gap / GAP_WEIGHT + sample_16 / GAP_WEIGHT,
            };
        }
        if queue_len == 0 {
            (self.placed_at, self.short_at) = (None, now);
        } else {
            self.placed_at = Some(now);
        }
        self.count_placed();
        self.placed_count += 1;
        if self.placed_count >= RESIDENCE_PERIOD {
            self.placed_count = 0;
            let outstanding: u64 = loads
                .iter()
                .filter(|&&load| load < OUT_OF_SERVICE)
                .map(|&load| u64::from(load))
                .sum();
            self.residence_ns = self.gap_ns().saturating_mul(outstanding);
        }
    }

    pub(super) fn retry_after_ns(&self) -> u64 {
        let least = self.gap_ns().max(RETRY_AFTER_NS_MIN);
        self.retry_after_ns.max(least).min(RETRY_AFTER_NS_MAX)
    }

    pub(super) fn gap_ns(&self) -> u64 {
        self.gap_16 / 16
    }

    fn target_ns(&self) -> u64 {
        self.config.target_ns.max(self.gap_ns().saturating_mul(GAPS_OF_TARGET))
    }

    /// True if the queue has not been short for an interval.
    fn stands(&self, now: Time) -> bool {
        // As CoDel goes on where it was when a queue stands again soon: clients that are told to
        // stay away let it become short for a moment, and come back.
        let is_again = self.stood_lately(now);
        // While they keep a pace, that it is short at times is the pace's doing.
        if is_again && self.retry_after_ns > self.gap_ns() {
            return true;
        }
        let divisor = if is_again { INTERVAL_DIVISOR } else { 1 };
        now.saturating_sub(self.short_at) >= self.interval_ns() / divisor
    }

    fn stood_lately(&self, now: Time) -> bool {
        let remembered_ns = self.interval_ns().saturating_mul(INTERVALS_REMEMBERED);
        self.stood_at.is_some_and(|stood_at| now.saturating_sub(stood_at) < remembered_ns)
    }

    fn interval_ns(&self) -> u64 {
        let gaps_ns = self.gap_ns().saturating_mul(GAPS_OF_INTERVAL).min(INTERVAL_NS_MAX);
        self.config.interval_ns.max(gaps_ns)
    }

    /// Ends the window, if it is over, and looks at its counts.
    fn roll(&mut self, now: Time) {
        let window_ns = self.config.interval_ns / WINDOWS_OF_INTERVAL;
        let elapsed_ns = now.saturating_sub(self.window_at);
        if elapsed_ns < window_ns {
            return;
        }
        if elapsed_ns >= WINDOWS_KEPT * window_ns {
            self.retry_after_ns = 0;
        } else if self.offered < WINDOW_OFFERED_MIN {
            return;
        } else if self.placed < self.offered / 4 {
            let at = self.retry_after_ns();
            self.retry_after_ns = (at + at / 4).min(RETRY_AFTER_NS_MAX);
        } else if self.placed > self.offered / 2 {
            self.retry_after_ns -= self.retry_after_ns.div_ceil(4);
        }
        (self.window_at, self.offered, self.placed) = (now, 0, 0);
    }
}

/// Weight of the mean gap: of so many placements.
const GAP_WEIGHT: u64 = 32;
/// Placements after which the residence is computed anew, which looks at every worker.
const RESIDENCE_PERIOD: u32 = 16;
/// An item that is refused for the residence takes one part of so many of it.
const RESIDENCE_WEIGHT: u64 = 16;
/// Placements that a queue must hold so that workers find something to do, also where hardly more
/// comes than can be served.
const GAPS_OF_TARGET: u64 = 32;
/// Placements that deadlines must leave time for.
const GAPS_OF_SHARE: u64 = 8;
/// Placements in an interval, at least.
const GAPS_OF_INTERVAL: u64 = 1024;
/// Longest interval that slow services make.
const INTERVAL_NS_MAX: u64 = 1_000_000_000;
/// Intervals for which it is remembered that the queue stood (CoDel's 16).
const INTERVALS_REMEMBERED: u64 = 16;
/// Divisor of the interval while that is remembered.
const INTERVAL_DIVISOR: u64 = 8;
/// Windows of the counts in an interval.
const WINDOWS_OF_INTERVAL: u64 = 5;
/// Windows without an item after which the counts say nothing.
const WINDOWS_KEPT: u64 = 10;
/// Items that a window must have.
const WINDOW_OFFERED_MIN: u32 = 8;
/// Least that a client is told to stay away, and where nothing is known of the gap.
const RETRY_AFTER_NS_MIN: u64 = 1_000;
/// Most that a client is told to stay away: that expires two of these and 100 ms later, and
/// normal service is within 200 ms of the end.
const RETRY_AFTER_NS_MAX: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{PolicySpec, WorkerId};
    use crate::scheduler::{Cloning, Outcome, Scheduler, Wait};

    const MS: Time = 1_000_000;

    /// Windows of 20 ms, in which so many items are offered, placed and refused each; the pace
    /// after.
    fn pace_after(windows: u64, (offered, placed, refused): (u32, u32, u32)) -> u64 {
        let mut overload = Overload::new(OverloadConfig::DEFAULT);
        for window in 0..windows {
            let now = window * 20 * MS;
            (0..offered).for_each(|_| overload.note_offered(now, false));
            (0..placed).for_each(|_| overload.count_placed());
            (0..refused).for_each(|_| overload.note_refused(now));
        }
        overload.retry_after_ns
    }

    #[test]
    fn the_pace_slows_while_four_times_as_many_come_as_can_be_placed() {
        assert_eq!(pace_after(20, (40, 20, 20)), 0);
        assert_eq!(pace_after(20, (40, 11, 29)), 0);
        assert!(pace_after(20, (40, 9, 31)) > 10 * RETRY_AFTER_NS_MIN);
        assert_eq!(pace_after(200, (40, 1, 39)), RETRY_AFTER_NS_MAX);
    }

    #[test]
    fn refusals_of_what_came_earlier_do_not_slow_the_pace() {
        assert_eq!(pace_after(20, (40, 30, 400)), 0);
    }

    /// Workers that take one item each, with the default limit of waiting.
    fn limited(workers: usize) -> Scheduler<u32> {
        let policy = "jbsq:1".parse::<PolicySpec>().unwrap().build();
        let mut scheduler = Scheduler::new(policy, 100).with_overload(OverloadConfig::DEFAULT);
        for _ in 0..workers {
            scheduler.add_worker();
        }
        scheduler
    }

    /// Offers an item that is wanted for so long, of any share; whether it is held.
    fn is_held(scheduler: &mut Scheduler<u32>, now: Time, wanted_ns: u64) -> bool {
        let wait = Wait::of(0, now, now + wanted_ns);
        matches!(scheduler.offer(0, Cloning::Forbidden, wait, 0), Outcome::Held(_))
    }

    #[test]
    fn the_gap_between_placements_does_not_span_an_empty_queue() {
        for is_removed in [false, true] {
            let mut scheduler = limited(1);
            assert!(!is_held(&mut scheduler, 0, 10 * MS));
            assert!(is_held(&mut scheduler, 0, 1_000 * MS));
            let wait = Wait::of(0, 0, 10 * MS);
            let Outcome::Held(last) = scheduler.offer(1, Cloning::Forbidden, wait, 0) else {
                panic!("there is room")
            };
            scheduler.conclude(WorkerId(0));
            assert!(scheduler.poll_placed(MS, 0).is_some());
            // The last leaves, and an hour later two are held for another.
            let left =
                if is_removed { scheduler.remove(last) } else { scheduler.poll_expired(10 * MS) };
            assert_eq!(left, Some(1));
            let later = 3_600_000 * MS;
            assert!((0..2).all(|_| is_held(&mut scheduler, later, 1_000 * MS)));
            scheduler.conclude(WorkerId(0));
            assert!(scheduler.poll_placed(later + MS, 0).is_some());
            assert_eq!(scheduler.expected_wait_ns(), 0, "no gap is known");
            scheduler.conclude(WorkerId(0));
            assert!(is_held(&mut scheduler, later + MS, 1_000 * MS));
            assert!(scheduler.poll_placed(later + 2 * MS, 0).is_some());
            assert_eq!(scheduler.expected_wait_ns(), MS, "one more waits");
        }
    }

    /// Four workers, services of 50 ms for half a second, and then of 100 us, with deadlines of 40
    /// ms.
    #[test]
    fn items_are_held_again_once_services_are_short_again() {
        let mut scheduler = limited(4);
        let mut now = 0;
        assert_eq!((0..10).filter(|_| is_held(&mut scheduler, now, 10_000 * MS)).count(), 6);
        for service in 0..40 {
            now += 50 * MS / 4;
            scheduler.conclude(WorkerId(service % 4));
            assert!(scheduler.poll_placed(now, 0).is_some());
            is_held(&mut scheduler, now, 10_000 * MS);
        }
        while scheduler.queue_len() > 0 {
            (0..4).for_each(|worker| scheduler.conclude(WorkerId(worker)));
            while scheduler.poll_placed(now, 0).is_some() {}
        }
        let mut held_count = 0;
        for _ in 0..1_000 {
            let held = (0..5).filter(|_| is_held(&mut scheduler, now, 40 * MS)).count();
            held_count += usize::from(held > 0);
            now += MS / 10;
            (0..4).for_each(|worker| scheduler.conclude(WorkerId(worker)));
            while scheduler.poll_expired(now).is_some() {}
            while scheduler.poll_placed(now, 0).is_some() {}
        }
        assert!(held_count > 700, "{held_count} of 1,000");
    }

    /// A refusal a moment ago says that the queue stands, where clients keep a pace.
    #[test]
    fn a_queue_stands_at_once_while_clients_keep_a_pace() {
        let mut overload = Overload::new(OverloadConfig::DEFAULT);
        let now = 5_000 * MS;
        overload.short_at = now;
        overload.retry_after_ns = MS;
        let until = now + 1_000 * MS;
        assert_eq!(overload.expiry(now, until), now + 250 * MS, "nothing has been refused");
        overload.note_refused(now + MS);
        overload.retry_after_ns = MS;
        assert_eq!(overload.expiry(now, until), now + 250 * MS, "its deadline was short anyway");
        overload.short_at = now - 5 * MS;
        overload.note_refused(now);
        overload.retry_after_ns = MS;
        assert_eq!(overload.expiry(now, until), now + 5 * MS);
        overload.retry_after_ns = 0;
        assert_eq!(overload.expiry(now, until), now + 12_500_000, "they keep none");
        let later = now + 2_000 * MS;
        overload.short_at = later;
        assert_eq!(overload.expiry(later, later + 1_000 * MS), later + 250 * MS, "it is forgotten");
    }

    #[test]
    fn the_newest_leave_first_only_while_the_queue_stands() {
        let of = |order| Overload::new(OverloadConfig { order, ..OverloadConfig::DEFAULT });
        let (newest, oldest) = (of(Order::NewestFirst), of(Order::OldestFirst));
        assert_eq!(
            [99, 100].map(|ms| newest.order(ms * MS)),
            [Order::OldestFirst, Order::NewestFirst]
        );
        assert_eq!([99, 100].map(|ms| oldest.order(ms * MS)), [Order::OldestFirst; 2]);
    }

    #[test]
    fn a_queue_is_short_when_the_oldest_has_waited_for_less_than_half_of_the_target() {
        let half_ns = 5 * MS / 2;
        for (order, waited_ns, is_short) in [
            (Order::OldestFirst, 0, true),
            (Order::OldestFirst, half_ns - 1, true),
            (Order::OldestFirst, half_ns, false),
            (Order::OldestFirst, half_ns + 1, false),
            (Order::NewestFirst, 0, false),
        ] {
            let mut overload = Overload::new(OverloadConfig { order, ..OverloadConfig::DEFAULT });
            let now = 200 * MS;
            overload.note_placed((now - waited_ns, now), 5, &[]);
            let short_at = if is_short { now } else { 0 };
            assert_eq!(overload.short_at, short_at, "{order:?} after {waited_ns} ns");
        }
    }

    /// Placements at these times, while others wait.
    fn placed_at(times: impl IntoIterator<Item = Time>, loads: &[u32]) -> Overload {
        let mut overload = Overload::new(OverloadConfig::DEFAULT);
        times.into_iter().for_each(|now| overload.note_placed((now, now), 5, loads));
        overload
    }

    #[test]
    fn the_mean_gap_follows_its_samples_by_a_32nd() {
        assert_eq!(placed_at([0], &[]).gap_ns(), 0);
        assert_eq!(placed_at([0, MS], &[]).gap_ns(), MS);
        assert_eq!(placed_at([0, MS, 3 * MS], &[]).gap_ns(), MS + MS / 32);
        assert_eq!(placed_at([0, MS, MS], &[]).gap_ns(), MS - MS / 32);
    }

    /// Little's law: five requests at a gap of 1 ms are there for 5 ms.
    #[test]
    fn the_residence_is_the_gap_times_what_workers_in_service_have() {
        let loads = [3, OUT_OF_SERVICE, 2];
        let of = |count| placed_at((0..count).map(|at| at * MS), &loads).residence_ns;
        assert_eq!([15, 16, 31, 32].map(of), [0, 5 * MS, 5 * MS, 5 * MS]);
        let mut changed = placed_at((0..16).map(|at| at * MS), &loads);
        (16..31).for_each(|at| changed.note_placed((0, at * MS), 5, &[1]));
        assert_eq!(changed.residence_ns, 5 * MS);
        changed.note_placed((0, 31 * MS), 5, &[1]);
        assert_eq!(changed.residence_ns, MS);
    }

    #[test]
    fn a_residence_in_doubt_fades_by_a_16th_and_to_nothing() {
        let mut overload = Overload::new(OverloadConfig::DEFAULT);
        overload.residence_ns = 1_600;
        overload.doubt_residence();
        assert_eq!(overload.residence_ns, 1_500);
        (0..200).for_each(|_| overload.doubt_residence());
        assert_eq!(overload.residence_ns, 0);
    }

    #[test]
    fn a_queue_that_stood_within_16_intervals_stands_again_after_an_eighth_of_one() {
        let mut overload = Overload::new(OverloadConfig::DEFAULT);
        overload.stood_at = Some(MS);
        let stands = |overload: &mut Overload, now, short_ns| {
            overload.short_at = now - short_ns;
            overload.stands(now)
        };
        let eighth_ns = 100 * MS / 8;
        let last = MS + 1_600 * MS - 1;
        for now in [200 * MS, last] {
            assert!(!stands(&mut overload, now, eighth_ns - 1));
            assert!(stands(&mut overload, now, eighth_ns));
        }
        assert!(!stands(&mut overload, last + 1, eighth_ns), "it is forgotten");
        assert!(stands(&mut overload, last + 1, 100 * MS));
    }

    /// The pace of 1 ms after a window of so many items offered and placed that ends after so long,
    /// and whether the counts begin anew.
    fn check_window(offered: u32, placed: u32, elapsed_ns: u64, expected: (u64, bool)) {
        let mut overload = Overload::new(OverloadConfig::DEFAULT);
        (overload.offered, overload.placed, overload.retry_after_ns) = (offered, placed, MS);
        overload.roll(elapsed_ns);
        let is_new = (overload.window_at, overload.offered, overload.placed) == (elapsed_ns, 0, 0);
        let found = (overload.retry_after_ns, is_new);
        assert_eq!(found, expected, "{placed} of {offered} placed in {elapsed_ns} ns");
    }

    #[test]
    fn a_window_slows_the_pace_by_a_fourth_or_quickens_it_or_leaves_it() {
        let window_ns = 20 * MS;
        let (slower, quicker) = (MS + MS / 4, MS - MS / 4);
        for (offered, placed, pace) in [
            (40, 0, slower),
            (40, 9, slower),
            (40, 10, MS),
            (40, 15, MS),
            (40, 20, MS),
            (40, 21, quicker),
            (40, 40, quicker),
            (8, 1, slower),
        ] {
            check_window(offered, placed, window_ns, (pace, true));
        }
        check_window(40, 0, window_ns - 1, (MS, false));
        check_window(7, 0, window_ns, (MS, false));
    }

    #[test]
    fn counts_of_long_ago_end_the_pace() {
        check_window(40, 9, 30 * MS, (MS + MS / 4, true));
        check_window(40, 9, 200 * MS - 1, (MS + MS / 4, true));
        check_window(40, 9, 200 * MS, (0, true));
        check_window(1, 0, 200 * MS, (0, true));
    }
}
