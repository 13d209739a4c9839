//! Workers of one server, as its reports show them.

/// Workers that one server seems to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crew {
    /// Workers that have been seen, at least 1.
    pub(super) seen: u32,
    /// A report has shown that requests wait when so many run.
    pub(super) is_counted: bool,
}

impl Default for Crew {
    fn default() -> Self {
        Self { seen: 1, is_counted: false }
    }
}

impl Crew {
    /// Learns that so many run while others wait; true if that is news.
    pub(super) fn learn(&mut self, running: u32, is_any_waiting: bool) -> bool {
        let before = *self;
        if is_any_waiting {
            *self = Self { seen: running.clamp(1, WORKERS_MAX), is_counted: true };
        } else if running > self.seen {
            let seen = running.min(WORKERS_MAX);
            *self = Self { seen, is_counted: running >= WORKERS_MAX };
        }
        before != *self
    }

    /// Workers that it is taken to be: while there may be more, twice as many as have been seen and
    /// one, so that some wait where there are not.
    pub(super) fn assumed(&self) -> u32 {
        if self.is_counted { self.seen } else { (2 * self.seen + 1).min(WORKERS_MAX) }
    }
}

/// Most workers that a server is taken to have: one that does not tell what waits is not given
/// everything.
pub(super) const WORKERS_MAX: u32 = 64;
