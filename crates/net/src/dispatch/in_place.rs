//! Jobs that the thread that dispatches runs itself: those of types whose services are shorter than
//! what a hand-off costs (Concord's work-conserving dispatcher, for what is short alone).
//!
//! | a type is | event | then |
//! |---|---|---|
//! | learned | workers were timed at 4,096 of its jobs, and these were short | in place |
//! | learned, in place | of at most 4,096 timed jobs, these were not short | barred for 100 ms |
//! | in place | one job was long | barred for 1 s, and for twice as long each time, up to 64 s |
//! | barred | the time is over | learned |
//!
//! Jobs are short where their mean is at most half of a hand-off's round trip, but 500 ns at most,
//! and at most 4 of 4,096 were long. In place one of 8 is timed. Bars after long jobs begin anew
//! where the type was in place for as long as the last one took. So a thread that another relieves
//! of a job within 2 ms loses no more than a five-hundredth of its time to those that turn out to
//! be long.
//!
//! Invariants: a type that was never measured is not in place; one whose services are longer than
//! the limit is in place for 8,192 jobs at most before it is given back.

use std::collections::VecDeque;

use tailcut_proto::node::Time;
use tailcut_proto::scheduler::Wait;
use tailcut_proto::scheduler::typed::{TYPES_MAX, TypeId};

use super::config::{InPlace, LONG_NS};
use super::metrics::InPlaceCounts;

/// The jobs that are to run in place, and the rule by which they are chosen.
#[derive(Debug)]
pub(super) struct OwnJobs<J> {
    /// The types that run in place.
    pub(super) rule: Rule,
    /// Jobs until the owner takes them; [`GO_JOBS_MAX`] at most.
    pending: VecDeque<(J, Wait)>,
    /// The owner runs jobs now.
    is_open: bool,
}

/// State of each type of jobs, and the counters.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// As configured.
    mode: InPlace,
    /// By type.
    kinds: [Kind; TYPES_MAX],
    /// Events so far.
    pub(super) counts: InPlaceCounts,
}

/// State of one type of jobs.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Handling of its jobs.
    state: State,
    /// Those that were timed since the state began or they were last found to be short.
    window: Window,
    /// Length of its last bar after a long job, nanoseconds; 0 before the first.
    barred_ns: u64,
    /// Jobs that were about to run in place.
    begun: u32,
}

/// Handling of jobs of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Workers run them and time each.
    Learned,
    /// They run in place.
    InPlace {
        /// Time at which that began.
        since: Time,
    },
    /// Workers run them.
    Barred {
        /// Time at which they are timed again.
        until: Time,
    },
}

/// Timed jobs of one type.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// Jobs that were not long.
    short: u32,
    /// Jobs that were.
    long: u32,
    /// Time of those that were not, nanoseconds.
    short_ns: u64,
}

impl<J> OwnJobs<J> {
    pub(super) fn new(mode: InPlace) -> Self {
        let capacity = if mode == InPlace::Never { 0 } else { GO_JOBS_MAX };
        Self { rule: Rule::new(mode), pending: VecDeque::with_capacity(capacity), is_open: false }
    }

    /// Sets whether the owner runs jobs from here on.
    #[inline]
    pub(super) fn set_open(&mut self, is_open: bool) {
        self.is_open = is_open;
    }

    /// Keeps a job, if its type is short and the owner runs another.
    #[inline]
    pub(super) fn offer(&mut self, job: J, wait: Wait) -> Result<(), J> {
        if !self.is_open || self.pending.len() >= GO_JOBS_MAX || !self.rule.is_in_place(wait.kind())
        {
            return Err(job);
        }
        self.pending.push_back((job, wait));
        Ok(())
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<(J, Wait)> {
        self.pending.pop_front()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// True if workers are to time a job of a type.
    #[inline]
    pub(super) fn is_timed(&mut self, kind: TypeId, now: Time) -> bool {
        self.is_open && self.rule.is_timed(kind, now)
    }
}

impl Rule {
    fn new(mode: InPlace) -> Self {
        let window = Window::default();
        let kind = Kind { state: State::Learned, window, barred_ns: 0, begun: 0 };
        Self { mode, kinds: [kind; TYPES_MAX], counts: InPlaceCounts::default() }
    }

    #[inline]
    fn is_in_place(&self, kind: TypeId) -> bool {
        matches!(self.kinds[place(kind)].state, State::InPlace { .. })
    }

    #[inline]
    fn is_timed(&mut self, kind: TypeId, now: Time) -> bool {
        if self.mode == InPlace::Never {
            return false;
        }
        let kind = &mut self.kinds[place(kind)];
        if let State::Barred { until } = kind.state
            && now >= until
        {
            kind.enter(State::Learned);
        }
        kind.state == State::Learned
    }

    /// A worker took so long for a job of a type. `round_trip_ns` is that of a hand-off, where it
    /// has been measured.
    pub(super) fn note_at_worker(
        &mut self,
        kind: TypeId,
        service_ns: u64,
        (round_trip_ns, now): (Option<u64>, Time),
    ) {
        let limit_ns = self.limit_ns(round_trip_ns);
        let kind = &mut self.kinds[place(kind)];
        if kind.state != State::Learned {
            return;
        }
        match kind.window.note(1, service_ns, limit_ns) {
            Some(true) => {
                kind.enter(State::InPlace { since: now });
                self.counts.begun += 1;
            }
            Some(false) => kind.enter(State::Barred { until: now.saturating_add(BAR_NS) }),
            None => {}
        }
    }

    /// True if the owner is to time the job of a type that it runs next: one of [`TIMED_EVERY`] of
    /// each type.
    #[inline]
    pub(super) fn times_next(&mut self, kind: TypeId) -> bool {
        let begun = &mut self.kinds[place(kind)].begun;
        *begun = begun.wrapping_add(1);
        begun.is_multiple_of(TIMED_EVERY)
    }

    /// The owner has run a job of a type, which took so long where that is known.
    #[inline]
    pub(super) fn note_in_place(
        &mut self,
        kind: TypeId,
        service_ns: Option<u64>,
        (round_trip_ns, now): (Option<u64>, Time),
    ) {
        self.counts.run += 1;
        let Some(service_ns) = service_ns else { return };
        if service_ns > LONG_NS {
            return self.note_long(kind, now);
        }
        let limit_ns = self.limit_ns(round_trip_ns);
        let kind = &mut self.kinds[place(kind)];
        let State::InPlace { .. } = kind.state else { return };
        // It stands for those that were not timed.
        match kind.window.note(TIMED_EVERY, service_ns, limit_ns) {
            Some(true) => kind.window = Window::default(),
            Some(false) => {
                kind.enter(State::Barred { until: now.saturating_add(BAR_NS) });
                self.counts.ended += 1;
            }
            None => {}
        }
    }

    /// A job of a type that ran in place was long.
    #[cold]
    pub(super) fn note_long(&mut self, kind: TypeId, now: Time) {
        let kind = &mut self.kinds[place(kind)];
        let State::InPlace { since } = kind.state else { return };
        let is_anew = now >= since.saturating_add(kind.barred_ns);
        let doubled_ns = if is_anew { 0 } else { kind.barred_ns * 2 };
        kind.barred_ns = doubled_ns.clamp(BAR_NS_LONG, BAR_NS_MAX);
        kind.enter(State::Barred { until: now.saturating_add(kind.barred_ns) });
        self.counts.ended += 1;
    }

    fn limit_ns(&self, round_trip_ns: Option<u64>) -> u64 {
        match self.mode {
            InPlace::Auto => {
                round_trip_ns.map_or(LIMIT_NS_UNKNOWN, |ns| (ns / 2).min(LIMIT_NS_MAX))
            }
            InPlace::Below(ns) => ns,
            InPlace::Never => 0,
        }
    }
}

impl Kind {
    fn enter(&mut self, state: State) {
        self.state = state;
        self.window = Window::default();
    }
}

impl Window {
    /// Takes as many jobs in that took so long each; whether jobs of its type are short, once there
    /// are enough of them.
    #[inline]
    fn note(&mut self, jobs: u32, service_ns: u64, limit_ns: u64) -> Option<bool> {
        if service_ns > LONG_NS {
            self.long += jobs;
        } else {
            self.short += jobs;
            self.short_ns += u64::from(jobs) * service_ns;
        }
        let count = self.short + self.long;
        let is_above = |ns: u64| self.short_ns > ns * u64::from(self.short);
        if self.long > LONG_MAX || count >= LOOK_AT && is_above(2 * limit_ns) {
            return Some(false);
        }
        (count >= WINDOW_JOBS).then(|| !is_above(limit_ns))
    }
}

/// Types past the last one are the last one.
fn place(kind: TypeId) -> usize {
    kind.index().min(TYPES_MAX - 1)
}

/// The longest mean of a type that runs in place where no hand-off was to a worker that was awake:
/// to wake one costs more than ten times as much.
const LIMIT_NS_UNKNOWN: u64 = 200;

/// The longest in any case. A hand-off takes the dispatching thread 500 to 1,600 ns of processor
/// over UDP, however long its round trip: what is in place for longer would cost that thread calls.
const LIMIT_NS_MAX: u64 = 500;

/// Jobs by which a type is judged.
const WINDOW_JOBS: u32 = 4096;

/// Long ones among them: what was descheduled at a worker looks long as well.
const LONG_MAX: u32 = 4;

/// Jobs after which a type that is far from short is known to be.
const LOOK_AT: u32 = 64;

/// An owner times one job of so many of a type: two readings of the clock are a tenth of what an
/// echo costs.
const TIMED_EVERY: u32 = 8;

/// Jobs that run in place between two looks at the network.
const GO_JOBS_MAX: usize = 256;

/// For how long a type that was not short is not timed: timing 4,096 jobs costs a worker 0.2 ms.
const BAR_NS: u64 = 100_000_000;

/// The shortest bar after a long job in place, and the longest.
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

    /// Jobs of so many nanoseconds in place.
    fn own(rule: &mut Rule, jobs: u32, service_ns: u64) {
        for number in 0..jobs {
            let is_timed = number % TIMED_EVERY == 0;
            rule.note_in_place(ONE, is_timed.then_some(service_ns), (RTT, 5));
        }
    }

    /// A rule that has found a type to be short.
    fn in_place(now: Time) -> Rule {
        let mut rule = rule();
        work(&mut rule, WINDOW_JOBS, 100, now);
        assert!(rule.is_in_place(ONE));
        rule
    }

    #[test]
    fn a_type_of_thousands_of_short_services_runs_in_place() {
        let mut rule = rule();
        work(&mut rule, WINDOW_JOBS - 1, 500, 0);
        assert!(!rule.is_in_place(ONE) && rule.is_timed(ONE, 0));
        work(&mut rule, 1, 500, 0);
        assert!(rule.is_in_place(ONE) && !rule.is_timed(ONE, 0));
        assert!(!rule.is_in_place(TypeId(1)));
        assert_eq!(rule.counts.begun, 1);
    }

    #[test]
    fn services_that_the_hand_off_is_short_for_stay_with_the_workers() {
        for (service_ns, judged_after) in [(501, WINDOW_JOBS), (1_001, LOOK_AT)] {
            let mut rule = rule();
            work(&mut rule, judged_after - 1, service_ns, 0);
            assert!(rule.is_timed(ONE, 0), "{service_ns}");
            work(&mut rule, 1, service_ns, 0);
            assert!(!rule.is_in_place(ONE) && !rule.is_timed(ONE, BAR_NS - 1), "{service_ns}");
            assert!(rule.is_timed(ONE, BAR_NS));
            assert_eq!(rule.counts, InPlaceCounts::default());
        }
    }

    #[test]
    fn what_is_mostly_short_is_not_short() {
        for (long, is_short) in [(LONG_MAX, true), (LONG_MAX + 1, false)] {
            let mut rule = rule();
            work(&mut rule, long, 500_000, 0);
            work(&mut rule, WINDOW_JOBS - long, 50, 0);
            assert_eq!(rule.is_in_place(ONE), is_short, "{long} long");
        }
    }

    #[test]
    fn one_long_service_ends_it_at_once_and_each_for_longer() {
        let mut rule = rule();
        let mut now = 0;
        for bar_ns in [1, 2, 4, 8, 16, 32, 64, 64].map(|times| times * BAR_NS_LONG) {
            work(&mut rule, WINDOW_JOBS, 100, now);
            assert!(rule.is_in_place(ONE), "{rule:?}");
            rule.note_in_place(ONE, Some(LONG_NS + 1), (RTT, now));
            assert!(!rule.is_in_place(ONE));
            now += bar_ns;
            assert!(!rule.is_timed(ONE, now - 1), "{bar_ns}");
        }
        assert_eq!((rule.counts.begun, rule.counts.ended), (8, 8));
        // As long in place as it was barred, and the count is forgiven.
        work(&mut rule, WINDOW_JOBS, 100, now);
        now += BAR_NS_MAX;
        rule.note_long(ONE, now);
        assert!(rule.is_timed(ONE, now + BAR_NS_LONG));
    }

    #[test]
    fn services_that_grow_go_back_to_the_workers() {
        // A window that began with short ones may go on for its length, and the next one judges.
        for (service_ns, most) in [(501, 2 * WINDOW_JOBS), (5_000, WINDOW_JOBS / 4)] {
            let mut rule = in_place(0);
            own(&mut rule, WINDOW_JOBS / 2, 100);
            let more = (0..most / TIMED_EVERY).take_while(|_| {
                own(&mut rule, TIMED_EVERY, service_ns);
                rule.is_in_place(ONE)
            });
            assert!((more.count() as u32) < most / TIMED_EVERY, "{service_ns}");
            assert_eq!(rule.counts.ended, 1);
            assert!(!rule.is_timed(ONE, 5 + BAR_NS - 1) && rule.is_timed(ONE, 5 + BAR_NS));
        }
    }

    #[test]
    fn of_types_that_take_turns_each_is_timed() {
        for types in [2, 4, 8] {
            let mut rule = rule();
            let timed: Vec<u8> = (0..8 * u32::from(types))
                .map(|number| (number % u32::from(types)) as u8)
                .filter(|&kind| rule.times_next(TypeId(kind)))
                .collect();
            assert_eq!(timed, (0..types).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn services_that_stay_short_stay_in_place() {
        let mut rule = in_place(0);
        own(&mut rule, 5 * WINDOW_JOBS, 500);
        assert!(rule.is_in_place(ONE));
        let run = u64::from(5 * WINDOW_JOBS);
        assert_eq!(rule.counts, InPlaceCounts { run, begun: 1, ..InPlaceCounts::default() });
    }

    #[test]
    fn limits_are_as_configured() {
        let check = |mode, round_trip, expected| {
            assert_eq!(Rule::new(mode).limit_ns(round_trip), expected, "{mode:?} {round_trip:?}");
        };
        check(InPlace::Auto, None, 200);
        check(InPlace::Auto, Some(100), 50);
        check(InPlace::Auto, Some(900), 450);
        check(InPlace::Auto, Some(40_000), 500);
        check(InPlace::Below(9_000), Some(100), 9_000);
        let mut never = Rule::new(InPlace::Never);
        work(&mut never, 2 * WINDOW_JOBS, 1, 0);
        assert!(!never.is_in_place(ONE) && !never.is_timed(ONE, 0));
    }

    #[test]
    fn nothing_is_taken_while_the_owner_runs_none_or_has_enough() {
        let mut own = OwnJobs::new(InPlace::Auto);
        own.rule = in_place(0);
        let of = |kind| Wait::from(Time::MAX).of_type(kind);
        assert!(own.offer((), of(ONE)).is_err());
        own.set_open(true);
        for _ in 0..GO_JOBS_MAX {
            assert!(own.offer((), of(TypeId(1))).is_err() && own.offer((), of(ONE)).is_ok());
        }
        assert!(own.offer((), of(ONE)).is_err());
        assert!(own.next().is_some() && own.offer((), of(ONE)).is_ok());
    }
}
