//! Speed of a server: [`Pace`], from what is outstanding there and what ends, and the numbers by
//! which `outliers` judges it.
//!
//! Invariant: a window's time is a lower bound of what its requests took on average.

use crate::node::Time;

/// Criteria by which servers are too slow. The defaults do nothing to servers that pause for 20 ms
/// under load (`tailcut sim reproduce detection`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlierConfig {
    /// Multiple of the worst window of three of four servers that is too slow; 0 ejects none.
    /// Default 3. Raise it where servers differ by their making.
    pub factor: u32,
    /// Least time that it must be slower by besides. Default 500 us: the scheduler of a busy host
    /// takes as much.
    pub least_ns: u64,
    /// Length of a window. Default 100 ms.
    pub window_ns: u64,
    /// Windows in a row in which a server is too slow. Default 5.
    pub windows: u32,
    /// Number of servers of which one may be out. Default 4, but one of three.
    pub servers_per_ejected: u32,
    /// Time for which it is out at first; each time in a row it is twice as long. Default 1 s.
    pub ejected_ns: u64,
    /// Longest that it is out. Default 60 s.
    pub ejected_ns_max: u64,
}

impl OutlierConfig {
    /// The value of [`Default`].
    pub const DEFAULT: Self = Self {
        factor: 3,
        least_ns: 500_000,
        window_ns: 100_000_000,
        windows: 5,
        servers_per_ejected: 4,
        ejected_ns: 1_000_000_000,
        ejected_ns_max: 60_000_000_000,
    };
}

impl Default for OutlierConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Speed of a server, and its health.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Requests outstanding since `counted_at`.
    outstanding: u32,
    /// Up to when `area` counts.
    counted_at: Time,
    /// Requests outstanding times how long they were, since the window began; request-nanoseconds.
    area: u64,
    /// Requests concluded before the window, of those since the server was added.
    concluded_before: u64,
    /// Average time of a request in the worst window of late; it decays by an eighth with each
    /// window in which a request has ended. Nanoseconds.
    pub(super) peak_ns: Option<u64>,
    /// Windows in a row in which it was too slow.
    pub(super) strikes: u32,
    /// Its state among the servers that are slow and those that are not.
    pub(super) health: Health,
    /// Times that it was ejected in a row.
    times: u32,
    /// Time at which it was last readmitted.
    well_at: Time,
}

/// State of a server among those that are slow and those that are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Health {
    /// It gets requests as the others.
    #[default]
    Well,
    /// It gets none until then.
    Ejected(Time),
    /// It gets one at a time.
    Probation,
}

/// A window of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The least that its requests took on average, ns.
    pub(super) at_least_ns: u64,
    /// Number of requests that have ended.
    pub(super) concluded: u64,
}

impl Pace {
    /// That of a server with nothing outstanding, of which so many requests have ended before
    /// `now`.
    pub(super) fn since(now: Time, concluded_total: u64) -> Self {
        Self { counted_at: now, concluded_before: concluded_total, ..Self::default() }
    }

    /// So many requests are outstanding from now on.
    #[inline]
    pub(super) fn note(&mut self, now: Time, outstanding: u32) {
        let lasted_ns = now.saturating_sub(self.counted_at);
        let area = lasted_ns.saturating_mul(self.outstanding.into());
        self.area = self.area.saturating_add(area);
        (self.outstanding, self.counted_at) = (outstanding, now);
    }

    /// True if it gets no more requests, for it is ejected, or has one on probation.
    pub(super) fn is_out(&self) -> bool {
        match self.health {
            Health::Well => false,
            Health::Ejected(_) => true,
            Health::Probation => self.outstanding > 0,
        }
    }

    /// True if it is ejected.
    pub(super) fn is_ejected(&self) -> bool {
        matches!(self.health, Health::Ejected(_))
    }

    pub(super) fn is_limited(&self) -> bool {
        self.health != Health::Well
    }

    /// The window up to now; a new one begins, but while too few have ended on probation.
    pub(super) fn window(&mut self, now: Time, concluded_total: u64) -> Window {
        self.note(now, self.outstanding);
        let concluded = concluded_total.saturating_sub(self.concluded_before);
        let at_least_ns = self.area / (concluded + 1);
        if let Some(mean_ns) = self.area.checked_div(concluded) {
            let kept_ns = self.peak_ns.map_or(0, |peak_ns| peak_ns - peak_ns / 8);
            self.peak_ns = Some(mean_ns.max(kept_ns));
        }
        if self.health != Health::Probation || concluded >= PROBATION_COUNT {
            self.begin(concluded_total);
        }
        Window { at_least_ns, concluded }
    }

    pub(super) fn begin(&mut self, concluded_total: u64) {
        (self.area, self.concluded_before) = (0, concluded_total);
    }

    pub(super) fn eject(&mut self, now: Time, config: &OutlierConfig) {
        // One that fails on probation was never taken back, however long ago it was well.
        let was_well = self.health == Health::Well;
        if was_well && now.saturating_sub(self.well_at) > config.ejected_ns_max {
            self.times = 0;
        }
        let out_ns = config.ejected_ns.saturating_mul(1 << self.times.min(16));
        self.health = Health::Ejected(now.saturating_add(out_ns.min(config.ejected_ns_max)));
        self.times = self.times.saturating_add(1);
        self.strikes = 0;
    }

    pub(super) fn readmit(&mut self, now: Time) {
        (self.health, self.well_at, self.strikes) = (Health::Well, now, 0);
    }
}

/// Requests that end probation.
pub(super) const PROBATION_COUNT: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: OutlierConfig =
        OutlierConfig { ejected_ns: 10, ejected_ns_max: 70, ..OutlierConfig::DEFAULT };

    #[test]
    fn a_window_shows_the_least_that_its_requests_took() {
        // Seven have ended before the window, four in it while two were outstanding.
        let mut pace = Pace::since(100, 7);
        pace.note(100, 2);
        let window = pace.window(200, 11);
        assert_eq!((window.concluded, window.at_least_ns), (4, 200 / 5));
        let window = pace.window(300, 11);
        assert_eq!(
            (window.concluded, window.at_least_ns),
            (0, 200),
            "it has taken so long already"
        );
    }

    #[test]
    fn the_worst_window_fades_by_an_eighth_with_each_that_shows_something() {
        let mut pace = Pace::default();
        pace.note(0, 2);
        let peaks = [(100, 4), (200, 4), (300, 14), (400, 16)].map(|(now, concluded)| {
            pace.window(now, concluded);
            pace.peak_ns
        });
        assert_eq!(peaks, [Some(50), Some(50), Some(50 - 50 / 8), Some(100)]);
    }

    #[test]
    fn a_window_of_probation_lasts_until_enough_have_ended() {
        let mut pace = Pace { health: Health::Probation, ..Pace::default() };
        pace.note(0, 1);
        let concluded = [(100, 15), (200, 16), (300, 17)].map(|(now, concluded)| {
            let window = pace.window(now, concluded);
            (window.concluded, window.at_least_ns)
        });
        assert_eq!(concluded, [(15, 100 / 16), (16, 200 / 17), (1, 100 / 2)]);
    }

    #[test]
    fn on_probation_there_is_one_request_at_a_time() {
        for (health, outstanding, is_out) in [
            (Health::Well, 5, false),
            (Health::Ejected(9), 0, true),
            (Health::Probation, 0, false),
            (Health::Probation, 1, true),
            (Health::Probation, 2, true),
        ] {
            let mut pace = Pace { health, ..Pace::default() };
            pace.note(0, outstanding);
            assert_eq!(pace.is_out(), is_out, "{health:?} with {outstanding}");
            assert_eq!(pace.is_limited(), health != Health::Well);
        }
    }

    /// Ejects a server; for how long it is out.
    fn out_ns(pace: &mut Pace, now: Time) -> u64 {
        pace.eject(now, &CONFIG);
        assert!(pace.is_ejected());
        let Health::Ejected(until) = pace.health else { unreachable!("it is ejected") };
        until - now
    }

    #[test]
    fn each_time_in_a_row_it_is_out_for_twice_as_long() {
        let mut pace = Pace { strikes: 5, ..Pace::default() };
        assert_eq!([10, 20, 40, 70].map(|now| out_ns(&mut pace, now)), [10, 20, 40, 70]);
        assert_eq!(pace.strikes, 0, "its windows count anew");
        pace.readmit(150);
        assert_eq!((pace.is_limited(), out_ns(&mut pace, 150 + 70)), (false, 70), "too soon");
        pace.readmit(300);
        assert_eq!(out_ns(&mut pace, 300 + 71), 10, "it was well for long");
    }

    #[test]
    fn one_that_fails_on_probation_is_out_for_longer_however_long_it_was_well() {
        let mut pace = Pace::default();
        assert_eq!(out_ns(&mut pace, 1_000), 10);
        pace.health = Health::Probation;
        assert_eq!(out_ns(&mut pace, 1_010), 20);
        pace.health = Health::Probation;
        assert_eq!(out_ns(&mut pace, 1_100), 40);
    }
}
