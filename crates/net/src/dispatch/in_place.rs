//! Which jobs the thread that dispatches runs itself: those of types whose services are shorter than what a
//! hand-off costs it (Concord's work-conserving dispatcher, for what is short alone).
//!
//! | a type is | event | then |
//! |---|---|---|
//! | learned | workers were timed at 4,096 of its jobs: the mean is within the limit, and 4 at most were long | in place |
//! | learned | after 64 the mean is over twice the limit, after 4,096 over it, or 5 were long | barred |
//! | in place | the moving mean is over twice the limit | barred |
//! | in place | one job was long | barred, for 1 s at least |
//! | barred | the time is over | learned |
//!
//! A bar lasts twice as long as the one before, 10 ms to 64 s, and begins anew where the type was in place for
//! as long as the last one took. So a thread that somebody else relieves of a job within a millisecond or two
//! loses no more than about a five-hundredth of its time to those that turn out to be long.
//!
//! Invariant: a type that was never measured is not in place.

use tailcut_proto::node::Time;
use tailcut_proto::scheduler::typed::{TYPES_MAX, TypeId};

use super::config::InPlace;
use super::metrics::InPlaceCounts;

/// What is known of each type.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// As configured.
    mode: InPlace,
    /// By type.
    kinds: [Kind; TYPES_MAX],
    /// What happened so far.
    pub(super) counts: InPlaceCounts,
}

/// What is known of one type.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// What is done with its jobs.
    state: State,
    /// Moving mean of its services while it is in place, sixteenths of a nanosecond.
    mean_16ths: u64,
    /// Length of its last bar, nanoseconds; 0 before the first.
    barred_ns: u64,
}

/// What is done with jobs of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Workers run them and time each.
    Learned {
        /// Jobs that were not long.
        short: u32,
        /// Jobs that were.
        long: u32,
        /// Time of those that were not, nanoseconds.
        short_ns: u64,
    },
    /// They run in place.
    InPlace {
        /// When that began.
        since: Time,
    },
    /// Workers run them.
    Barred {
        /// When they are timed again.
        until: Time,
    },
}

impl Rule {
    pub(super) fn new(mode: InPlace) -> Self {
        let kind = Kind { state: State::LEARNED, mean_16ths: 0, barred_ns: 0 };
        Self { mode, kinds: [kind; TYPES_MAX], counts: InPlaceCounts::default() }
    }

    /// How many jobs of a type may run in place in one go; none where it is not in place.
    #[inline]
    pub(super) fn room(&self, kind: TypeId) -> usize {
        let kind = &self.kinds[place(kind)];
        match kind.state {
            State::InPlace { .. } => {
                (GO_NS * 16 / kind.mean_16ths.max(1)).clamp(1, GO_JOBS_MAX) as usize
            }
            State::Learned { .. } | State::Barred { .. } => 0,
        }
    }

    /// Whether workers are to time the jobs of a type.
    #[inline]
    pub(super) fn is_timed(&mut self, kind: TypeId, now: Time) -> bool {
        if self.mode == InPlace::Never {
            return false;
        }
        let kind = &mut self.kinds[place(kind)];
        match kind.state {
            State::Learned { .. } => true,
            State::InPlace { .. } => false,
            State::Barred { until } => {
                if now >= until {
                    kind.state = State::LEARNED;
                }
                now >= until
            }
        }
    }

    /// A worker took so long for a job of a type. `round_trip_ns` is that of a hand-off, where it has been
    /// measured.
    pub(super) fn note_at_worker(
        &mut self,
        kind: TypeId,
        service_ns: u64,
        (round_trip_ns, now): (Option<u64>, Time),
    ) {
        let limit_ns = self.limit_ns(round_trip_ns);
        let kind = &mut self.kinds[place(kind)];
        let State::Learned { short, long, short_ns } = &mut kind.state else { return };
        if service_ns > LONG_NS {
            *long += 1;
        } else {
            *short += 1;
            *short_ns += service_ns;
        }
        let (count, mean_ns) = (*short + *long, *short_ns / u64::from(*short).max(1));
        let is_too_long = *long > LONG_MAX || count >= LOOK_AT && mean_ns > 2 * limit_ns;
        if is_too_long || count >= LEARN_JOBS && mean_ns > limit_ns {
            kind.bar(BAR_NS_MIN, now);
        } else if count >= LEARN_JOBS {
            kind.mean_16ths = mean_ns * 16;
            kind.state = State::InPlace { since: now };
            self.counts.begun += 1;
        }
    }

    /// So many jobs of a type took so long in place, one after the other, of which none was long.
    #[inline]
    pub(super) fn note_run(
        &mut self,
        kind: TypeId,
        (jobs, took_ns): (u32, u64),
        (round_trip_ns, now): (Option<u64>, Time),
    ) {
        self.counts.run += u64::from(jobs);
        let limit_ns = self.limit_ns(round_trip_ns);
        let kind = &mut self.kinds[place(kind)];
        let each_16ths = took_ns.min(LONG_NS) * 16 / u64::from(jobs).max(1);
        kind.mean_16ths = (kind.mean_16ths * 15 + each_16ths) / 16;
        if kind.mean_16ths > 2 * 16 * limit_ns && matches!(kind.state, State::InPlace { .. }) {
            kind.bar(BAR_NS_MIN, now);
            self.counts.ended += 1;
        }
    }

    /// A job of a type that ran in place was long.
    pub(super) fn note_long(&mut self, kind: TypeId, now: Time) {
        let kind = &mut self.kinds[place(kind)];
        if matches!(kind.state, State::InPlace { .. }) {
            kind.bar(BAR_NS_LONG, now);
            self.counts.ended += 1;
        }
    }

    fn limit_ns(&self, round_trip_ns: Option<u64>) -> u64 {
        match self.mode {
            InPlace::Auto => (round_trip_ns.unwrap_or(0) / 2).clamp(LIMIT_NS_MIN, LIMIT_NS_MAX),
            InPlace::Below(ns) => ns,
            InPlace::Never => 0,
        }
    }
}

impl Kind {
    /// Workers run it, for twice the last time and `least_ns` at least.
    fn bar(&mut self, least_ns: u64, now: Time) {
        let since = match self.state {
            State::InPlace { since } => since,
            State::Learned { .. } | State::Barred { .. } => Time::MAX,
        };
        let is_anew = now >= since.saturating_add(self.barred_ns);
        let doubled_ns = if is_anew { 0 } else { self.barred_ns * 2 };
        self.barred_ns = doubled_ns.clamp(least_ns, BAR_NS_MAX);
        self.state = State::Barred { until: now.saturating_add(self.barred_ns) };
    }
}

impl State {
    /// Of nothing yet.
    const LEARNED: Self = Self::Learned { short: 0, long: 0, short_ns: 0 };
}

/// Types past the last one are the last one.
fn place(kind: TypeId) -> usize {
    kind.index().min(TYPES_MAX - 1)
}

/// The longest services that a configuration may have run in place.
pub(super) const IN_PLACE_NS_MAX: u64 = LONG_NS;

/// A service from here on is long, nanoseconds: another thread could have been woken for it twice.
pub const LONG_NS: u64 = 50_000;

/// What a hand-off costs the thread that dispatches at least: 160 to 290 ns were measured over UDP, more
/// where it crosses cores.
const LIMIT_NS_MIN: u64 = 200;

/// Where worker and dispatcher share a core the round trip is one of the kernel's scheduler.
const LIMIT_NS_MAX: u64 = 2_500;

/// Jobs that a type is learned from.
const LEARN_JOBS: u32 = 4096;

/// Long ones among them: what was descheduled looks long as well.
const LONG_MAX: u32 = 4;

/// Jobs after which a type that is far from short is given up.
const LOOK_AT: u32 = 64;

/// What runs in place in one go, before the network is looked at again: nanoseconds, and jobs.
const GO_NS: u64 = 50_000;
const GO_JOBS_MAX: u64 = 256;

/// The shortest bar, that after a long job in place, and the longest.
const BAR_NS_MIN: u64 = 10_000_000;
const BAR_NS_LONG: u64 = 1_000_000_000;
const BAR_NS_MAX: u64 = 64_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TypeId = TypeId(0);
    const RTT: Option<u64> = Some(1_000);

    fn rule() -> Rule {
        Rule::new(InPlace::Auto)
    }

    /// Jobs of so many nanoseconds at workers.
    fn work(rule: &mut Rule, jobs: u32, service_ns: u64, now: Time) {
        for _ in 0..jobs {
            if rule.is_timed(ONE, now) {
                rule.note_at_worker(ONE, service_ns, (RTT, now));
            }
        }
    }

    #[test]
    fn a_type_of_thousands_of_short_services_runs_in_place() {
        let mut rule = rule();
        work(&mut rule, LEARN_JOBS - 1, 400, 0);
        assert_eq!((rule.room(ONE), rule.is_timed(ONE, 0)), (0, true));
        work(&mut rule, 1, 400, 0);
        // 50 us of 400 ns each; nobody is timed any more.
        assert_eq!((rule.room(ONE), rule.is_timed(ONE, 0)), (125, false));
        assert_eq!(rule.counts.begun, 1);
        assert_eq!(rule.room(TypeId(1)), 0);
    }

    #[test]
    fn services_that_the_hand_off_is_short_for_stay_with_the_workers() {
        let mut rule = rule();
        work(&mut rule, LEARN_JOBS, 501, 0);
        assert_eq!((rule.room(ONE), rule.is_timed(ONE, BAR_NS_MIN - 1)), (0, false));
        assert!(rule.is_timed(ONE, BAR_NS_MIN));
        // Those that are far too long are given up soon, for twice as long.
        work(&mut rule, LOOK_AT, 1_001, BAR_NS_MIN);
        assert!(!rule.is_timed(ONE, 3 * BAR_NS_MIN - 1) && rule.is_timed(ONE, 3 * BAR_NS_MIN));
        assert_eq!(rule.counts, InPlaceCounts::default());
    }

    #[test]
    fn what_is_mostly_short_is_not_short() {
        for (long, is_short) in [(LONG_MAX, true), (LONG_MAX + 1, false)] {
            let mut rule = rule();
            work(&mut rule, long, 500_000, 0);
            work(&mut rule, LEARN_JOBS - long, 50, 0);
            assert_eq!(rule.room(ONE) > 0, is_short, "{long} long");
        }
    }

    #[test]
    fn one_long_service_ends_it_at_once_and_each_for_longer() {
        let mut rule = rule();
        let mut now = 0;
        for bar_ns in [1, 2, 4, 8, 16, 32, 64, 64].map(|times| times * BAR_NS_LONG) {
            work(&mut rule, LEARN_JOBS, 100, now);
            assert!(rule.room(ONE) > 0, "{rule:?}");
            rule.note_long(ONE, now);
            assert_eq!(rule.room(ONE), 0);
            now += bar_ns;
            assert!(!rule.is_timed(ONE, now - 1), "{bar_ns}");
        }
        assert_eq!((rule.counts.begun, rule.counts.ended), (8, 8));
        // As long in place as it was barred, and the count is forgiven.
        work(&mut rule, LEARN_JOBS, 100, now);
        now += BAR_NS_MAX;
        rule.note_long(ONE, now);
        assert!(rule.is_timed(ONE, now + BAR_NS_LONG));
    }

    #[test]
    fn services_that_grow_go_back_to_the_workers() {
        let mut rule = rule();
        work(&mut rule, LEARN_JOBS, 100, 0);
        (0..100).for_each(|_| rule.note_run(ONE, (8, 8 * 900), (RTT, 5)));
        assert!(rule.room(ONE) > 0, "{rule:?}");
        (0..100).for_each(|_| rule.note_run(ONE, (8, 8 * 1_100), (RTT, 5)));
        assert_eq!(rule.room(ONE), 0);
        assert_eq!((rule.counts.run, rule.counts.ended), (1_600, 1));
    }

    #[test]
    fn limits_are_as_configured() {
        let check = |mode, round_trip, expected| {
            assert_eq!(Rule::new(mode).limit_ns(round_trip), expected, "{mode:?} {round_trip:?}");
        };
        check(InPlace::Auto, None, 200);
        check(InPlace::Auto, Some(100), 200);
        check(InPlace::Auto, Some(3_000), 1_500);
        check(InPlace::Auto, Some(40_000), 2_500);
        check(InPlace::Below(9_000), Some(100), 9_000);
        let mut never = Rule::new(InPlace::Never);
        work(&mut never, 2 * LEARN_JOBS, 1, 0);
        assert_eq!((never.room(ONE), never.is_timed(ONE, 0)), (0, false));
    }
}
