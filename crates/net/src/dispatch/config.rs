//! Configuration of a dispatcher.

use std::num::NonZeroU32;

use tailcut_proto::scheduler::typed::TYPES_MAX;

use super::hand_off::BOUND_MAX;
use crate::driver::Wait;
use crate::spin::SpinTime;

/// The configuration of a dispatcher. [`Config::new`] has the defaults of the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Worker threads: 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// The jobs that a worker may have at once. Default [`Bound::Auto`].
    pub bound: Bound,
    /// Jobs that may wait for a worker; more are refused. Default 65,536: at a microsecond each on
    /// one worker, what a client of a second's patience waits for. Fewer refuse earlier.
    pub queue_len_max: usize,
    /// Types of jobs, which [`Wait::of_type`](tailcut_proto::scheduler::Wait::of_type) tells apart:
    /// each has a queue of its own, and workers are reserved for the short ones. 1 to
    /// [`TYPES_MAX`]. Default 1: one queue.
    pub types: usize,
    /// Delivery of a job from the queue to its worker. Default [`Delivery::Push`].
    pub delivery: Delivery,
    /// Longest time that an idle worker spins before it sleeps, where gaps are short enough to be
    /// worth it; nanoseconds. Between looks it yields its core to whoever would give it something.
    /// Default [`Wait::SPIN_NS`].
    pub spin_ns_max: u64,
    /// Cores to pin the workers to, in turn. Default none: the kernel places them.
    pub cores: Vec<usize>,
    /// The jobs that the dispatcher's owner runs on its own thread, where it can. Default
    /// [`InPlace::Auto`].
    pub in_place: InPlace,
}

/// The jobs that are run where they arrive, because a hand-off would cost more than they do. An
/// owner of a dispatcher has to take them
/// ([`Dispatcher::set_in_place`](super::Dispatcher::set_in_place)), as `run_workers` of tailcut's
/// server does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InPlace {
    /// Those of types whose mean service is at most half of the measured hand-off RTT, and 500 ns
    /// at most, as measured over thousands of jobs at workers, and of which hardly one in a
    /// thousand is long.
    #[default]
    Auto,
    /// Those of types whose mean service is at most so many nanoseconds; 50,000 at most. For tests,
    /// and for who prefers one busy core to two.
    Below(u64),
    /// None: workers run all jobs. For handlers that must run on the workers' threads, or of which
    /// no more than there are workers may run at once.
    Never,
}

/// A job's way from the queue to its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// The dispatcher pushes it over a lane that the two share with nobody.
    #[default]
    Push,
    /// Whichever worker is free first pulls it from a queue that all share, under an MCS lock:
    /// RPCValet's single queue in software, to compare with. It has one type of jobs, the hand-off
    /// is not measured, and no job is committed to a worker; the bound, 2 by default, times the
    /// workers is how many may be with them.
    Pull,
}

/// The jobs that a worker may have at once, the one that it is at included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// From the measured hand-off RTT and the measured service S: ceil(1 + RTT / S), and 1 where S
    /// is 20 RTT or longer. At most 16.
    #[default]
    Auto,
    /// So many, at most 16. 1 is the true single queue, whose workers wait for a hand-off after
    /// each job.
    Fixed(NonZeroU32),
}

/// An error of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// There are no workers, or more than [`WORKERS_MAX`].
    Workers(usize),
    /// The bound is more than 16.
    Bound(u32),
    /// There are no types, or more than [`TYPES_MAX`].
    Types(usize),
    /// There are several types, and workers pull.
    TypesPulled,
    /// Services of so many nanoseconds, more than 50,000, are to be run in place.
    InPlace(u64),
}

impl Config {
    /// `workers` workers behind one queue.
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            bound: Bound::Auto,
            queue_len_max: QUEUE_LEN_MAX,
            types: 1,
            delivery: Delivery::Push,
            spin_ns_max: Wait::SPIN_NS,
            cores: Vec::new(),
            in_place: InPlace::Auto,
        }
    }

    /// This configuration with another bound.
    #[must_use]
    pub fn bound(self, bound: Bound) -> Self {
        Self { bound, ..self }
    }

    /// This configuration with so many types of jobs.
    #[must_use]
    pub fn types(self, types: usize) -> Self {
        Self { types, ..self }
    }

    /// This configuration with another way to the workers.
    #[must_use]
    pub fn delivery(self, delivery: Delivery) -> Self {
        Self { delivery, ..self }
    }

    /// This configuration with other jobs run in place.
    #[must_use]
    pub fn in_place(self, in_place: InPlace) -> Self {
        Self { in_place, ..self }
    }

    /// Checks it; every dispatcher does so first.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.bound {
            _ if !(1..=WORKERS_MAX).contains(&self.workers) => {
                Err(ConfigError::Workers(self.workers))
            }
            _ if !(1..=TYPES_MAX).contains(&self.types) => Err(ConfigError::Types(self.types)),
            _ if self.types > 1 && self.delivery == Delivery::Pull => Err(ConfigError::TypesPulled),
            Bound::Fixed(bound) if bound.get() > BOUND_MAX => Err(ConfigError::Bound(bound.get())),
            Bound::Fixed(_) | Bound::Auto => self.check_in_place(),
        }
    }

    fn check_in_place(&self) -> Result<(), ConfigError> {
        match self.in_place {
            InPlace::Below(ns) if ns > LONG_NS => Err(ConfigError::InPlace(ns)),
            InPlace::Below(_) | InPlace::Auto | InPlace::Never => Ok(()),
        }
    }

    pub(super) fn spin_time(&self) -> SpinTime {
        SpinTime::new(self.spin_ns_max)
    }
}

impl From<usize> for Config {
    fn from(workers: usize) -> Self {
        Self::new(workers)
    }
}

impl Bound {
    /// The bound before anything is measured.
    pub(super) fn initial(self) -> NonZeroU32 {
        match self {
            Self::Auto => super::hand_off::BOUND_INITIAL,
            Self::Fixed(bound) => bound,
        }
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Workers(count) => {
                write!(formatter, "{count} workers; take 1 to {WORKERS_MAX}")
            }
            Self::Types(count) => write!(formatter, "{count} types; take 1 to {TYPES_MAX}"),
            Self::TypesPulled => {
                write!(formatter, "workers that pull take what comes first; let types be pushed")
            }
            Self::InPlace(ns) => {
                write!(formatter, "services of {ns} ns in place; take {LONG_NS} at most")
            }
            Self::Bound(bound) => {
                write!(formatter, "a bound of {bound} jobs at a worker; take 1 to {BOUND_MAX}")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// The most workers of one dispatcher: a bit each, and as many as one dispatcher feeds with
/// services of 2 us (`rpcvalet.md` section 6, 30 ns each).
pub const WORKERS_MAX: usize = 64;

/// The requests that may wait by default.
pub const QUEUE_LEN_MAX: usize = 65_536;

/// A job of a service from here on is long, nanoseconds: another thread could have been woken for
/// it twice. No type of a longer mean runs in place.
pub const LONG_NS: u64 = 50_000;
