//! View of a measurement's progress, while it is made.
//!
//! The coordinator tells it what it learns; whether that becomes a bar, a screen or lines is the
//! view's own.
//!
//! Invariant: a view changes nothing about a run but that it may end it, because whoever watches
//! said so.

use strum::AsRefStr;
use tailcut_measure::control::Leg;
use tailcut_measure::slices::Slice;
use tailcut_measure::statistics::quantile::Estimate;

use super::job::Role;
use super::result::{Point, Verdict};

/// Phase of a load; as text it is said as people say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Phase {
    /// Agents connect and fill stores.
    #[default]
    Preparing,
    /// Nothing of it counts.
    #[strum(serialize = "warming up")]
    WarmingUp,
    /// The result is made of it.
    Measuring,
    /// Agents tell what is left.
    Ending,
}

/// Shows how far a run is.
pub trait View {
    /// A load begins to be prepared or to end, without a leg, or a leg of it begins.
    fn begin(&mut self, phase: Phase, leg: Option<&Leg>);

    /// True if slices are to be taken while the load goes on, which takes the coordinator's core
    /// for a while each time. Otherwise they are when their leg is over.
    fn follows(&self) -> bool {
        false
    }

    /// Takes what an agent of a role told about a slice of the leg. A slice is told once by each
    /// thread.
    fn take(&mut self, _slice: &Slice, _role: Role) {}

    /// All slices of so much of the leg were taken, ns. Called many times a second, changed or not.
    fn show(&mut self, passed_ns: u64, agents: &[AgentStatus<'_>]);

    /// Takes the percentile as the latest look found it.
    fn note_look(&mut self, _known: Option<&Estimate>) {}

    /// True if somebody has asked for the end.
    fn is_stopped(&mut self) -> bool {
        false
    }

    /// The run is given up: nothing more is shown of it, and the terminal is the user's again while
    /// agents still end.
    fn close(&mut self) {}

    /// The only load was measured, and this is what the result says of it.
    fn handle_verdict(&mut self, _verdict: &Verdict) {}

    /// A load of several was measured.
    fn handle_point(&mut self, point: &Point);
}

/// Status of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentStatus<'a> {
    /// Its name in reports.
    pub name: &'a str,
    /// Role of the agent.
    pub role: Role,
    /// Its load threads.
    pub threads: u32,
    /// Its connections, over all threads.
    pub connections: u32,
    /// Requests of the measurement that it sent.
    pub sent: u64,
    /// Those of them that were answered.
    pub replied: u64,
    /// Activity of the agent, or the reason why it is lost; as it says itself.
    pub standing: &'a str,
    /// True if the agent is lost.
    pub is_lost: bool,
}

/// A view that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl View for Silent {
    fn begin(&mut self, _phase: Phase, _leg: Option<&Leg>) {}

    fn show(&mut self, _passed_ns: u64, _agents: &[AgentStatus<'_>]) {}

    fn handle_point(&mut self, _point: &Point) {}
}
