//! Policies: where a request goes, as pure deciders over the loads of the workers and one random
//! word.
//!
//! | policy | text form | places on | holds |
//! |---|---|---|---|
//! | [`Random`] | `random` | any worker, all equally likely | when no worker is in service |
//! | [`RoundRobin`] | `rr` | the next worker in a fixed circle | when no worker is in service |
//! | [`Jsq`] | `jsq:D` | the fewest outstanding of D distinct random workers, ties at random | when no worker is in service |
//! | [`Jbsq`] | `jbsq:N`, `jbsq:auto` | the fewest outstanding, ties by rotation | when every worker has N outstanding |
//! | [`JbsqClone`] | `jbsq:N+clone` | as `jbsq:N`, and a copy on the next that has room and nobody waiting | when every worker has N outstanding |
//! | [`RackSched`] | `racksched` | the lower report of a random pair | when no worker is in service |
//! | [`NetClone`] | `netclone`, `netclone+racksched` | both of a random pair where nobody waits, else one of them | when no worker is in service |
//! | [`Laedge`] | `laedge`, `laedge:N` | two idle workers, or the only one | when every worker has N outstanding |
//! | [`AutoClone`] | `auto-clone` | an idle thread, and a copy on another while most servers have one | when every worker has its threads and an eighth |
//! | [`CClone`] | `cclone` | both of a random pair | when no worker is in service |
//!
//! Each policy is one file and one line of `registry!` below, from which `route`, `sim`, `demo` and
//! their help texts know it; docs/adding-a-policy.md shows how to add one.
//!
//! A policy sees the [`Load`] of each worker: the requests outstanding there, which who places
//! counts, and what the worker last reported, which is late by a packet: its outstanding requests
//! and, of these, those that wait. It owns no more
//! than a cursor, and the random word is an argument, so that XDP and P4 data planes replay the
//! same decisions from the same trace.
//!
//! A pair is ordered, its two workers are distinct, and each of the n(n-1) pairs of the n workers
//! in service is equally likely: it is what NetClone calls a group, which its client draws. Where
//! only one worker is in service it gets every request.
//!
//! Invariant: a placement names workers that are in service, a clone goes to another worker than
//! the original, and `place` neither allocates nor looks at a worker twice more than it must:
//! O(workers) at most.

mod draws;
mod estimator;
mod held_bounds;
mod registry;

use std::fmt;

pub use self::draws::Draws;
pub use self::estimator::BoundEstimator;
pub use self::held_bounds::{Basis, HeldBounds};
pub use self::registry::{
    Argument, COUNT_MAX, Entry, Form, PolicyParseError, PolicySpec, QueueModel, Scope, find,
    grammar, help,
};

/// Compiles the file of each policy, exports its types and lists its entries.
macro_rules! registry {
    ($($file:ident: $($public:ident),+;)+) => {
        $(
            mod $file;
            pub use self::$file::{$($public),+};
        )+

        /// The entries of every policy, file by file.
        pub const REGISTRY: &[&[Entry]] = &[$(self::$file::ENTRIES),+];
    };
}

registry! {
    random: Random;
    rr: RoundRobin;
    jsq: Jsq;
    jbsq: Jbsq, Ties;
    jbsq_clone: JbsqClone;
    racksched: RackSched;
    netclone: NetClone;
    laedge: Laedge;
    auto_clone: AutoClone;
    cclone: CClone;
}

/// Pairs that are drawn of all workers before those that may take a request are counted.
const PAIRS_TRIED: u32 = 3;

/// The index of no worker.
const NOBODY: u32 = u32::MAX;

/// The outstanding count of a worker that takes nothing: removed, drained or silent.
pub const OUT_OF_SERVICE: u32 = u32::MAX;

/// The index of a worker among those of one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

impl WorkerId {
    /// The worker at `index`.
    ///
    /// # Panics
    /// When `index` does not fit 32 bits; a scheduler has far fewer workers.
    #[inline]
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("a worker's index fits 32 bits"))
    }

    /// The index for slices.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Knowledge of a worker's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests placed there and not concluded, or [`OUT_OF_SERVICE`].
    pub outstanding: u32,
    /// Load that the worker last reported: requests queued or running there, as it counts them. 0
    /// before its first report, and where workers report nothing.
    pub reported: u32,
    /// Number of the reported requests that wait for a thread of the worker. 0 where `reported` is.
    pub waiting: u32,
}

/// The loads of all workers, in columns, so that a policy that reads one runs over nothing
/// else.
#[derive(Clone, Copy, Debug)]
pub struct Loads<'a> {
    /// [`Load::outstanding`] of each worker.
    pub outstanding: &'a [u32],
    /// [`Load::reported`] of each worker; as long as `outstanding`.
    pub reported: &'a [u32],
    /// [`Load::waiting`] of each worker; as long as `outstanding`.
    pub waiting: &'a [u32],
}

impl Loads<'_> {
    /// The load of a worker.
    ///
    /// # Panics
    /// When there is no such worker.
    #[inline]
    pub fn of(&self, worker: WorkerId) -> Load {
        let index = worker.index();
        Load {
            outstanding: self.outstanding[index],
            reported: self.reported[index],
            waiting: self.waiting[index],
        }
    }

    /// A uniform worker of those in service; holds where there is none.
    fn draw_one(&self, random: u64) -> Placement {
        match draws::count_below(self.outstanding, OUT_OF_SERVICE) {
            0 => Placement::Hold,
            count => {
                let rank = Draws::new(random).below(count);
                Placement::One(draws::nth_below(self.outstanding, OUT_OF_SERVICE, count, rank))
            }
        }
    }

    /// A uniform ordered pair of distinct workers with fewer than `limit` outstanding; the only
    /// one, or nobody, where there are fewer.
    #[inline]
    fn draw_pair(&self, limit: u32, random: u64) -> Placement {
        let loads = self.outstanding;
        let mut known = NOBODY;
        // Where most may take it, two of all are found sooner than those that may are counted; of
        // these, all pairs are as likely either way.
        if loads.len() >= 2 {
            let (first, second) = draws::distinct_of(random, loads.len() as u32);
            match (loads[first as usize] < limit, loads[second as usize] < limit) {
                (true, true) => return Placement::Two(WorkerId(first), WorkerId(second)),
                (true, false) => known = first,
                (false, true) => known = second,
                (false, false) => {}
            }
        }
        self.draw_pair_again(limit, known, random)
    }

    /// A pair as of [`Loads::draw_pair`] where `known` may take it, and whoever was drawn with it
    /// may not; or neither may, and `known` is nobody.
    #[inline(never)]
    fn draw_pair_again(&self, limit: u32, mut known: u32, random: u64) -> Placement {
        let loads = self.outstanding;
        let mut draws = Draws::new(random);
        // One that may take it, drawn of all, is as likely as any other that may, and so is one
        // more that is drawn of all the rest.
        for _ in 1..if loads.len() >= 2 { PAIRS_TRIED } else { 0 } {
            let (first, second) = draws.distinct_below(loads.len() as u32);
            for index in [first, second] {
                if loads[index as usize] < limit && index != known {
                    if known != NOBODY {
                        return Placement::Two(WorkerId(known), WorkerId(index));
                    }
                    known = index;
                }
            }
        }
        self.draw_counted_pair(limit, draws)
    }

    /// A pair as of [`Loads::draw_pair`] where few may take it.
    #[inline(never)]
    fn draw_counted_pair(&self, limit: u32, mut draws: Draws) -> Placement {
        let loads = self.outstanding;
        let count = draws::count_below(loads, limit);
        match count {
            0 => Placement::Hold,
            1 => Placement::One(draws::nth_below(loads, limit, count, 0)),
            _ => {
                let (first, second) = draws.distinct_below(count);
                Placement::Two(
                    draws::nth_below(loads, limit, count, first),
                    draws::nth_below(loads, limit, count, second),
                )
            }
        }
    }

    /// The worker of two that has less by a column, the first on a tie.
    fn shorter(column: &[u32], first: WorkerId, second: WorkerId) -> WorkerId {
        if column[second.index()] < column[first.index()] { second } else { first }
    }
}

/// Decision of a policy for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Nobody may take it now: it waits in the central queue.
    Hold,
    /// One worker takes it.
    One(WorkerId),
    /// Two distinct workers take it: a cloned request.
    Two(WorkerId, WorkerId),
}

/// A decider of where requests go.
///
/// A scheduler calls its policy directly or by a trait object, and nothing stands between them: a
/// method that a policy overrides is the one that runs.
pub trait Policy: fmt::Debug + Send {
    /// Places one request. `random` is 64 uniform bits, fresh for each call.
    fn place(&mut self, loads: Loads<'_>, random: u64) -> Placement;

    /// Outstanding requests at which a worker takes no more; `None` where the policy has no such
    /// bound.
    fn bound(&self) -> Option<u32> {
        None
    }

    /// Sets the bound of a policy that has one; the others ignore it. A bound of 0 is taken as 1.
    fn set_bound(&mut self, _bound: u32) {}

    /// Hears that a worker was given one request without being asked for it, for policies that
    /// count by themselves.
    fn note_placed(&mut self, _worker: WorkerId) {}

    /// Hears that a worker has concluded one request, for policies that remember the order of
    /// conclusions.
    fn note_concluded(&mut self, _worker: WorkerId) {}
}

#[cfg(test)]
mod tests;
