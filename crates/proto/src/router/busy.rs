//! Measurements of a server while requests are held: its rate, and whether it idles for want of
//! requests.
//!
//! | a report comes | then |
//! |---|---|
//! | requests were held since the one before | the window goes on |
//! | that of [`BUSY_COUNT`] conclusions or more | it ends: the time of each is known, and maybe the way |
//! | none was held | there is no window |
//!
//! A server all of whose workers are busy after a report concludes the next request without having
//! waited for any, so that the time up to there, F, is that of a service over its workers. Where
//! the time I between any two conclusions is longer, it idles at times. Then the bound is what
//! slows it down, and by Little's law the L requests that it has take L I each, of which W F is
//! service and the rest is the way there and back, with all that processes there wait for cores. A
//! probe does not show that: it wants a server that has nothing, which none has under load.
//!
//! Invariant: a window has reports of one run of a server alone.

use crate::node::Time;

/// Measurements of a server while requests are held.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy(Option<Window>);

/// A report, as it concerns the rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    /// Requests that the server has concluded. Wraps.
    pub(super) concluded: u32,
    /// Requests that it had before that do not wait there.
    pub(super) load: u32,
    /// Its workers, where these are known and all are busy from here on.
    pub(super) full: Option<u32>,
}

/// The findings of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// Its length, nanoseconds.
    pub(super) time_ns: u64,
    /// Requests concluded.
    pub(super) count: u32,
    /// The way to the server and back, nanoseconds, where that keeps it idle for a fifth of the
    /// time.
    pub(super) delay_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    /// Time at which it began, and requests concluded by then.
    first: (Time, u32),
    /// Time of the latest report, and requests concluded by then.
    last: (Time, u32),
    /// Workers, where all are busy since the latest report.
    full: Option<u32>,
    /// Sum over reports of [`Report::load`].
    loads: u64,
    /// Reports since it began.
    reports: u32,
    /// Time up to a conclusion from reports after which all workers were busy, times these;
    /// nanoseconds.
    full_ns: u64,
    /// Such reports.
    full_count: u32,
}

impl Busy {
    /// There is no window any more.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Takes a report that comes while requests are held.
    pub(super) fn note(&mut self, now: Time, report: Report) -> Option<Rate> {
        let at = (now, report.concluded);
        let Some(window) = &mut self.0 else {
            self.0 = Some(Window::new(at, report.full));
            return None;
        };
        window.note(now, report);
        let count = report.concluded.wrapping_sub(window.first.1);
        if count < BUSY_COUNT {
            return None;
        }
        let rate = window.rate(now, count);
        self.0 = Some(Window::new(at, report.full));
        Some(rate)
    }
}

impl Window {
    fn new(at: (Time, u32), full: Option<u32>) -> Self {
        Self { first: at, last: at, full, loads: 0, reports: 0, full_ns: 0, full_count: 0 }
    }

    fn note(&mut self, now: Time, report: Report) {
        let newly = report.concluded.wrapping_sub(self.last.1);
        if newly == 0 {
            // Of a probe.
            return;
        }
        // Of several the first alone is known to have ended a time without idling.
        if let Some(workers) = self.full.filter(|_| newly == 1) {
            let time_ns = now.saturating_sub(self.last.0);
            self.full_ns = self.full_ns.saturating_add(time_ns.saturating_mul(workers.into()));
            self.full_count += 1;
        }
        self.loads += u64::from(report.load);
        self.reports += 1;
        (self.last, self.full) = ((now, report.concluded), report.full);
    }

    fn rate(&self, now: Time, count: u32) -> Rate {
        let time_ns = now.saturating_sub(self.first.0);
        Rate { time_ns, count, delay_ns: self.delay_ns(time_ns, count) }
    }

    fn delay_ns(&self, time_ns: u64, count: u32) -> Option<u64> {
        let workers = u64::from(self.full?);
        if self.full_count < FULL_COUNT {
            return None;
        }
        let service_ns = self.full_ns / u64::from(self.full_count);
        // What is busy all the time concludes one in each of these.
        let idles = time_ns.saturating_mul(workers) / u64::from(count) > service_ns / 4 * 5;
        let load = u128::from(self.loads) * u128::from(time_ns);
        let stay_ns = load / (u128::from(self.reports.max(1)) * u128::from(count));
        let stay_ns = u64::try_from(stay_ns).unwrap_or(u64::MAX);
        idles.then(|| stay_ns.saturating_sub(service_ns))
    }
}

/// Requests that are concluded before they show a rate: a few GSO batches, lest it is that of one.
const BUSY_COUNT: u32 = 32;

/// Times that show a service.
const FULL_COUNT: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports of (time, concluded, load, workers all of which are busy); the rate that the last
    /// shows.
    fn last(reports: impl IntoIterator<Item = (Time, u32, u32, Option<u32>)>) -> Option<Rate> {
        let mut busy = Busy::default();
        let note = |(now, concluded, load, full)| busy.note(now, Report { concluded, load, full });
        reports.into_iter().map(note).last().flatten()
    }

    #[test]
    fn conclusions_while_requests_are_held_show_the_rate() {
        let first = (500, 50, 1, None);
        let rate = Rate { time_ns: 400, count: 40, delay_ns: None };
        assert_eq!(last([first]), None, "the first of a window");
        assert_eq!(last([first, (600, 60, 1, None)]), None, "too few");
        assert_eq!(last([first, (600, 60, 1, None), (900, 90, 1, None)]), Some(rate));
    }

    #[test]
    fn a_window_ends_where_nothing_is_held() {
        let mut busy = Busy::default();
        let report = |concluded| Report { concluded, load: 1, full: None };
        assert_eq!(busy.note(0, report(0)), None);
        busy.clear();
        assert_eq!(busy.note(400, report(BUSY_COUNT)), None);
    }

    /// A server that may have two requests of 240 us, and waits 7 ms for a core whenever it has
    /// none.
    #[test]
    fn a_server_that_idles_shows_the_way_to_it() {
        let turn = |index: u32| {
            let at = Time::from(index) * 7_480_000;
            [(at + 7_240_000, 2 * index + 1, 2, Some(1)), (at + 7_480_000, 2 * index + 2, 2, None)]
        };
        let reports = (0..17).flat_map(turn).take(33);
        let rate = last(reports).expect("32 are concluded");
        assert_eq!(rate.count, 32);
        assert_eq!(rate.delay_ns, Some(7_240_000));
    }

    #[test]
    fn a_server_that_is_never_idle_shows_none() {
        let reports = (0..=32).map(|index| (Time::from(index) * 240_000, index, 2, Some(1)));
        let rate = last(reports).expect("32 are concluded");
        assert_eq!(rate, Rate { time_ns: 32 * 240_000, count: 32, delay_ns: None });
        // Sixteen workers that all serve.
        let reports = (0..=32).map(|index| (Time::from(index) * 15_000, index, 17, Some(16)));
        assert_eq!(last(reports).expect("32 are concluded").delay_ns, None);
    }

    /// Services of 100 ns: what idles for more than a fifth of the time shows the way, after four.
    #[test]
    fn four_services_and_a_fifth_of_the_time_idle_show_the_way() {
        let delay_ns = |full_count: u32, interval_ns: u64| {
            let full_ns = 100 * u64::from(full_count);
            let window = Window::new((0, 0), Some(1));
            let window = Window { loads: 64, reports: 32, full_ns, full_count, ..window };
            window.delay_ns(32 * interval_ns, 32)
        };
        assert_eq!(delay_ns(4, 125), None);
        // Two requests on average, one every 126 ns: each stays for 252.
        assert_eq!(delay_ns(4, 126), Some(152));
        assert_eq!(delay_ns(5, 126), Some(152));
        assert_eq!(delay_ns(3, 126), None);
    }
}
