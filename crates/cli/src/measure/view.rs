//! What shows how far a measurement is, while it is made.
//!
//! The coordinator tells it what it learns; whether that becomes a bar, a screen or lines is the
//! view's own.
//!
//! Invariant: a view changes nothing about a run but that it may end it, because whoever watches
//! said so.

use tailcut_measure::control::Leg;
use tailcut_measure::slices::Slice;
use tailcut_measure::statistics::quantile::Estimate;

use super::coordinator::Seat;
use super::job::Role;

/// What goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Agents connect and fill stores.
    #[default]
    Preparing,
    /// Nothing of it counts.
    WarmingUp,
    Measuring,
    /// Agents tell what is left.
    Ending,
}

/// Shows how far a run is.
pub(super) trait View {
    /// A load begins to be prepared or to end, without a leg, or a leg of it begins.
    fn begin(&mut self, phase: Phase, leg: Option<&Leg>);

    /// Whether slices are to be taken while the load goes on, which takes the coordinator's core
    /// for a while each time. Otherwise they are when their leg is over.
    fn follows(&self) -> bool {
        false
    }

    /// What an agent of a role told about a slice of the leg. A slice is told once by each thread.
    fn take(&mut self, _slice: &Slice, _role: Role) {}

    /// All slices of so much of the leg were taken, ns. Called many times a second, changed or not.
    fn show(&mut self, passed_ns: u64, seats: &[Seat]);

    /// What the latest look found the percentile to be.
    fn note_look(&mut self, _known: Option<&Estimate>) {}

    /// Whether somebody has asked for the end.
    fn is_stopped(&mut self) -> bool {
        false
    }

    /// The run is given up: nothing more is shown of it, and the terminal is the user's again while
    /// agents still end.
    fn close(&mut self) {}

    /// A line that stays.
    fn say(&mut self, line: &str);
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::WarmingUp => "warming up",
            Self::Measuring => "measuring",
            Self::Ending => "ending",
        }
    }
}

/// What reaching the target will take, as far as one can tell.
pub(super) fn forecast(leg: &Leg) -> String {
    let seconds = |ns: u64| format!("{} s", ns / 1_000_000_000);
    leg.forecast.map_or_else(String::new, |forecast| match forecast.total_ns > forecast.limit_ns {
        true => format!(
            ", would take {}, ends after {}",
            seconds(forecast.total_ns),
            seconds(forecast.limit_ns)
        ),
        false => format!(", {} in all", seconds(forecast.total_ns)),
    })
}
