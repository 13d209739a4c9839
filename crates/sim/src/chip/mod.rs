//! RPCValet's chip: 16 cores, and a network interface that gives them messages from one queue
//! (ASPLOS'19).
//!
//! A model at the level of messages. A message arrives at one of four backends, its completion goes
//! to a dispatcher, which is the product's scheduler with JBSQ, the dispatcher writes to the core's
//! private queue, and the replenish that the core posts at its end makes it available again. Each
//! step takes the chip's time ([`machine::Latencies`]), each hop goes over the mesh ([`mesh`]).
//!
//! | layout | queues | who decides |
//! |---|---|---|
//! | [`Layout::Single`] `1x16` | one | one dispatcher: the core with the fewest outstanding, below the threshold |
//! | [`Layout::Rows`] `4x4` | four | each backend the same for the cores of its row |
//! | [`Layout::Private`] `16x1` | sixteen | chance, as with receive-side scaling |
//! | [`Layout::Software`] `sw` | one, in memory | cores pull under a fair lock |
//! | [`Layout::Ideal`] `ideal` | one | cores take from it without delay |
//!
//! Threshold 1 is a single queue, but a core idles for the way of its replenish and of its next
//! message, 28 to 42 ns. Threshold 2 hides that, at the price that a message may be committed
//! behind a long one. The load is relative to 16 cores that never pause.
//!
//! Ties rotate from the core after the one used last, where the published code begins at that core
//! itself; it is the one core that has just been given a message, so the two differ only where it
//! has already replenished.
//!
//! Invariant: the same seed gives the same figures, and every layout sees the same messages at the
//! same load and seed.

pub mod machine;
pub mod mesh;
pub mod reference;

pub mod workload;

use std::fmt;
use std::num::NonZeroU32;

use rand::RngExt;
use strum::{Display, EnumString, VariantArray};
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::generator::{Generator, generator};
use thiserror::Error;

use self::machine::{Latencies, Message, Rpc, Sharing, run_hardware, run_software};
use self::mesh::{Backend, CORES, Core};
use self::workload::Workload;
use crate::sojourn::{Figures, Sojourns};
use crate::{PS_PER_NS, WARMUP_SHARE};

/// The layout of queues: the cores that share one, and how it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, VariantArray)]
#[strum(parse_err_ty = ChipError, parse_err_fn = layout_unknown)]
pub enum Layout {
    /// One dispatcher in hardware for all cores: `1x16`.
    #[strum(serialize = "1x16")]
    Single,
    /// A dispatcher in hardware for each row of four cores, which gets the messages of its own
    /// backend: `4x4`.
    #[strum(serialize = "4x4")]
    Rows,
    /// Messages go to a random core: `16x1`.
    #[strum(serialize = "16x1")]
    Private,
    /// One queue in memory, from which cores take under a lock: `sw`.
    #[strum(serialize = "sw")]
    Software,
    /// One queue without any delay: `ideal`.
    #[strum(serialize = "ideal")]
    Ideal,
}

impl Layout {
    /// True where the threshold matters.
    pub fn has_threshold(self) -> bool {
        matches!(self, Self::Single | Self::Rows)
    }
}

/// A chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    /// The layout of queues.
    pub layout: Layout,
    /// Messages that a core may have outstanding, of the layouts for which that matters. The
    /// paper's is 2.
    pub threshold: NonZeroU32,
}

impl Chip {
    /// A chip with this threshold.
    ///
    /// # Panics
    /// With a threshold of 0.
    pub const fn with_threshold(layout: Layout, threshold: u32) -> Self {
        Self { layout, threshold: NonZeroU32::new(threshold).expect("a threshold is above zero") }
    }
}

impl fmt::Display for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layout.has_threshold() {
            true => write!(f, "{} threshold {}", self.layout, self.threshold),
            false => write!(f, "{}", self.layout),
        }
    }
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// From a message's last packet to the end of its core loop, with the reply sent and the
    /// replenish posted, ns.
    pub latency_ns: Figures,
    /// From a message's last packet until its replenish has been processed, which is how the paper
    /// defines an RPC's latency; ns.
    pub replenished_ns: Figures,
    /// Messages concluded, those of the warm-up included, millions a second.
    pub throughput_mrps: f64,
}

/// The highest load at which the 99th percentile keeps a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SloPoint {
    /// Share of the capacity; 0 where no load keeps the limit.
    pub load: f64,
    /// Load in millions of messages a second.
    pub throughput_mrps: f64,
}

/// Runs `requests` messages through the chip at `load` of its capacity. The first tenth warms up
/// and is left out of the latency.
///
/// # Errors
/// A load outside of (0, 2], no request or 2^30 and more, or a run longer than a month of simulated
/// time.
pub fn simulate(
    chip: Chip,
    workload: &Workload,
    load: f64,
    requests: usize,
    seed: u64,
) -> Result<Point, ChipError> {
    let warmup = requests as u64 / WARMUP_SHARE;
    let (mut latency, mut replenished) = (Sojourns::new(), Sojourns::new());
    let mut last_ps = 0;
    trace(chip, Source::new(workload, load, requests, seed)?, |rpc| {
        last_ps = last_ps.max(rpc.finished_ps);
        if rpc.message.counts && rpc.message.number >= warmup {
            latency.record(rpc.finished_ps - rpc.message.arrived_ps);
            replenished.record(rpc.replenished_ps - rpc.message.arrived_ps);
        }
    });
    Ok(Point {
        latency_ns: latency.figures(PS_PER_NS as f64),
        replenished_ns: replenished.figures(PS_PER_NS as f64),
        throughput_mrps: requests as f64 / last_ps as f64 * PS_PER_US,
    })
}

/// Finds the throughput at which the 99th percentile of the latency reaches `slo_ns`, by bisection
/// over the load to 0.0005. All loads see the same messages, nearer together, so that the
/// percentile grows with the load.
///
/// # Errors
/// As of [`simulate`], and a limit that is not above zero.
pub fn slo_throughput(
    chip: Chip,
    workload: &Workload,
    slo_ns: f64,
    requests: usize,
    seed: u64,
) -> Result<SloPoint, ChipError> {
    if !(slo_ns > 0.0 && slo_ns.is_finite()) {
        return Err(ChipError::Slo(slo_ns));
    }
    let (mut low, mut high) = (0.0, 1.0);
    while high - low > LOAD_STEP {
        let load = f64::midpoint(low, high);
        let point = simulate(chip, workload, load, requests, seed)?;
        *(if point.latency_ns.p99 <= slo_ns { &mut low } else { &mut high }) = load;
    }
    Ok(SloPoint { load: low, throughput_mrps: low * workload.capacity_mrps() })
}

/// Runs messages, in the order of their arrival, through the chip, and shows every concluded one in
/// the order of dispatch.
pub fn trace(chip: Chip, messages: impl Iterator<Item = Message>, conclude: impl FnMut(&Rpc)) {
    let (sharing, latencies, threshold) = match chip.layout {
        Layout::Single => (Sharing::All, &Latencies::CHIP, chip.threshold),
        Layout::Rows => (Sharing::Row, &Latencies::CHIP, chip.threshold),
        Layout::Private => (Sharing::None, &Latencies::CHIP, UNBOUNDED),
        Layout::Ideal => (Sharing::All, &Latencies::ZERO, NonZeroU32::MIN),
        Layout::Software => return run_software(&Latencies::CHIP, messages, conclude),
    };
    run_hardware((sharing, threshold), latencies, messages, conclude);
}

/// The messages of a run: Poisson arrivals, each at a random backend.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    workload: &'a Workload,
    /// Its nanosecond stands for a picosecond.
    arrivals: Arrivals,
    services: Generator,
    placements: Generator,
    /// Number of the next message.
    number: u64,
    requests: u64,
}

impl<'a> Source<'a> {
    /// `requests` messages at `load` of the capacity.
    ///
    /// # Errors
    /// As of [`simulate`].
    pub fn new(
        workload: &'a Workload,
        load: f64,
        requests: usize,
        seed: u64,
    ) -> Result<Self, ChipError> {
        if !(load > 0.0 && load <= LOAD_MAX) {
            return Err(ChipError::Load(load));
        }
        if !(1..REQUESTS_END).contains(&requests) {
            return Err(ChipError::Requests(requests));
        }
        let rate_per_ps = load * CORES as f64 / (workload.service_mean_ns() * PS_PER_NS as f64);
        if requests as f64 / rate_per_ps > SPAN_MAX_PS {
            return Err(ChipError::Span);
        }
        let arrivals =
            Arrivals::new(Process::Poisson, rate_per_ps * TICKS_PER_S, generator(seed, ARRIVALS));
        let arrivals = arrivals.map_err(|_| ChipError::Load(load))?;
        let (services, placements) = (generator(seed, SERVICES), generator(seed, PLACEMENTS));
        Ok(Self { workload, arrivals, services, placements, number: 0, requests: requests as u64 })
    }
}

impl Iterator for Source<'_> {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.number == self.requests {
            return None;
        }
        let number = self.number;
        self.number += 1;
        let arrived_ps = self.arrivals.next_ns();
        let work = self.workload.draw(&mut self.services);
        let core = Core(self.placements.random_range(0..CORES));
        let backend = Backend(core.row());
        Some(Message {
            number,
            arrived_ps,
            service_ps: work.service_ps,
            backend,
            column: core.column(),
            counts: work.counts,
        })
    }
}

/// Reason why a chip cannot be simulated.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ChipError {
    /// A load that says nothing.
    #[error("the load must be above 0 and at most {LOAD_MAX}, but is {0}")]
    Load(f64),
    /// No request, or more than a dispatcher can hold.
    #[error("the number of requests must be at least 1 and below 2^30, but is {0}")]
    Requests(usize),
    /// More simulated time than a run may take.
    #[error(
        "the run would take more than a month of simulated time; take fewer requests or shorter services"
    )]
    Span,
    /// A limit that nothing keeps.
    #[error("the limit on the p99 must be above zero, but is {0} ns")]
    Slo(f64),
    /// A share that is none.
    #[error("the share of long messages must be at least 0 and below 1, but is {0}")]
    Share(f64),
    /// Sizes or plain numbers.
    #[error("{0} is no distribution of times")]
    NoTime(String),
    /// A service that has no capacity.
    #[error("{0} has no finite mean, so there is no capacity to load")]
    NoMean(String),
    /// A name that no layout has.
    #[error("no layout is called {0:?}; there are 1x16, 4x4, 16x1, sw and ideal")]
    LayoutUnknown(String),
    /// A name that no preset has.
    #[error("no workload is called {0:?}; there are fixed, uniform, exp, gev, herd and masstree")]
    PresetUnknown(String),
}

fn layout_unknown(text: &str) -> ChipError {
    ChipError::LayoutUnknown(text.to_owned())
}

/// Above 1 the queue grows for as long as the run lasts, which shows what the cores can do.
const LOAD_MAX: f64 = 2.0;
/// Requests that a scheduler holds at most.
const REQUESTS_END: usize = 1 << 30;
/// 30 days; times overflow after 213.
const SPAN_MAX_PS: f64 = 30.0 * 86_400.0 * 1e12;
/// The load is found to this.
const LOAD_STEP: f64 = 0.0005;
const UNBOUNDED: NonZeroU32 = NonZeroU32::new(u32::MAX - 1).unwrap();
/// The schedule of arrivals counts ticks of which it takes a second to have so many.
const TICKS_PER_S: f64 = 1e9;
const PS_PER_US: f64 = 1e6;
/// Streams of the generator.
const ARRIVALS: u64 = 0;
const SERVICES: u64 = 1;
const PLACEMENTS: u64 = 2;

#[cfg(test)]
mod tests;
