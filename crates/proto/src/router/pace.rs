//! How fast a server is: [`Pace`], from what is outstanding there and what ends, and the numbers by which
//! `outliers` judges it.
//!
//! Invariant: a window's time is a lower bound of what its requests took on average.

use crate::node::Time;

/// When servers are too slow. The defaults do nothing to servers that pause for 20 ms under load
/// (`tailcut sim reproduce detection`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlierConfig {
    /// How many times the worst window of three of four servers is too slow; 0 ejects none. Default 3. Raise it
    /// where servers differ by their making.
    pub factor: u32,
    /// What it must be slower by besides. Default 500 us: the scheduler of a busy host takes as much.
    pub least_ns: u64,
    /// Length of a window. Default 100 ms.
    pub window_ns: u64,
    /// Windows in a row in which a server is too slow. Default 5.
    pub windows: u32,
    /// Of so many servers one may be out. Default 4, but one of three.
    pub servers_per_ejected: u32,
    /// How long it is out the first time; each time in a row it is twice as long. Default 1 s.
    pub ejected_ns: u64,
    /// Longest that it is out. Default 60 s.
    pub ejected_ns_max: u64,
}

impl OutlierConfig {
    /// What [`Default`] gives.
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

/// How fast a server is, and what follows.
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
    /// Average time of a request in the worst window of late; an eighth is forgotten with each
    /// window. Nanoseconds.
    pub(super) peak_ns: Option<u64>,
    /// Windows in a row in which it was too slow.
    pub(super) strikes: u32,
    /// Its state among the servers that are slow and those that are not.
    pub(super) health: Health,
    /// Times that it was ejected in a row.
    times: u32,
    /// When it was last taken back.
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
    /// How many have ended.
    pub(super) concluded: u64,
}

impl Pace {
    /// That of a server with nothing outstanding, of which so many requests have ended before `now`.
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
        if now.saturating_sub(self.well_at) > config.ejected_ns_max {
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
