//! Where a request goes: pure deciders over the outstanding counts of the workers and one random word.
//!
//! | policy | grammar | places on | holds |
//! |---|---|---|---|
//! | [`Random`] | `random` | any worker, all equally likely | when no worker is in service |
//! | [`RoundRobin`] | `rr` | the next worker in a fixed circle | when no worker is in service |
//! | [`Jsq`] | `jsq:D` | the fewest outstanding of D distinct random workers, ties at random | when no worker is in service |
//! | [`Jbsq`] | `jbsq:N`, `jbsq:auto` | the fewest outstanding, ties by rotation | when every worker has N outstanding |
//!
//! A policy sees one `u32` a worker: its outstanding requests, or [`OUT_OF_SERVICE`]. It owns no more than a cursor, and the
//! random word is an argument, so that XDP and P4 data planes replay the same decisions from the same trace.
//!
//! Invariant: a placement names workers that are in service, and `place` neither allocates nor looks at a worker twice more
//! than it must: O(workers) at most.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// The load of a worker that takes nothing: removed, drained or silent.
pub const OUT_OF_SERVICE: u32 = u32::MAX;

/// The index of a worker among those of one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

impl WorkerId {
    /// The worker at `index`.
    ///
    /// # Panics
    /// When `index` does not fit 32 bits; a scheduler has far fewer workers.
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("a worker's index fits 32 bits"))
    }

    /// The index for slices.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a policy decides for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Nobody may take it now: it waits in the central queue.
    Hold,
    /// One worker takes it.
    One(WorkerId),
    /// Two distinct workers take it: a cloned request.
    Two(WorkerId, WorkerId),
}

/// Decides where a request goes.
pub trait Policy {
    /// Places one request. `loads` has the outstanding requests of each worker, or [`OUT_OF_SERVICE`]; `random` is 64
    /// uniform bits, fresh for each call.
    fn place(&mut self, loads: &[u32], random: u64) -> Placement;

    /// Outstanding requests at which a worker takes no more; `None` where the policy has no such bound.
    fn bound(&self) -> Option<u32> {
        None
    }

    /// Sets the bound of a policy that has one; the others ignore it. A bound of 0 is taken as 1.
    fn set_bound(&mut self, _bound: u32) {}

    /// Hears that a worker has concluded one request, for policies that remember the order of conclusions.
    fn note_concluded(&mut self, _worker: WorkerId) {}
}

/// Every worker in service is equally likely: the independent queues of `k x M/G/1`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Policy for Random {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        let count = count_in_service(loads);
        if count == 0 {
            return Placement::Hold;
        }
        Placement::One(nth_in_service(loads, count, Draws::new(random).below(count)))
    }
}

/// Workers take turns, those out of service are passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    /// Index of the worker whose turn it is; may be past the end after a removal.
    next: usize,
}

impl Policy for RoundRobin {
    fn place(&mut self, loads: &[u32], _random: u64) -> Placement {
        let start = if self.next < loads.len() { self.next } else { 0 };
        let turn = rotated(loads.len(), start).find(|&index| loads[index] != OUT_OF_SERVICE);
        let Some(index) = turn else {
            return Placement::Hold;
        };
        self.next = index + 1;
        Placement::One(WorkerId::at(index))
    }
}

/// Join the shortest of `d` queues. With `d` at or above the number of workers in service it sees them all: full JSQ.
///
/// The `d` workers are distinct. A tie goes to each of the tied with equal probability.
#[derive(Clone, Copy, Debug)]
pub struct Jsq {
    /// Workers sampled.
    d: NonZeroU32,
}

impl Jsq {
    /// Samples `d` workers for each request.
    pub fn new(d: NonZeroU32) -> Self {
        Self { d }
    }
}

impl Policy for Jsq {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        let count = count_in_service(loads);
        let mut draws = Draws::new(random);
        let mut best = Shortest::default();
        match (self.d.get(), count) {
            (_, 0) => return Placement::Hold,
            (1, _) => best.see(loads, nth_in_service(loads, count, draws.below(count)), &mut draws),
            (2, 2..) => {
                let first = draws.below(count);
                let other = draws.below(count - 1);
                let second = if other >= first { other + 1 } else { other };
                best.see(loads, nth_in_service(loads, count, first), &mut draws);
                best.see(loads, nth_in_service(loads, count, second), &mut draws);
            }
            (d, _) => sample_shortest(loads, (d.min(count), count), &mut best, &mut draws),
        }
        best.worker.map_or(Placement::Hold, Placement::One)
    }
}

/// Join the bounded shortest queue: the worker with the fewest outstanding takes the request if that is below the bound,
/// else it waits centrally.
///
/// The tie rule: the scan begins at the worker after the one that was placed on last and goes round once; of several with
/// the fewest outstanding the first in that order wins. With a fixed service time this is the single queue's optimum,
/// because the worker used longest ago is the one that is free first, where ties at random or by lowest index cost a
/// quarter of the p99 at load 0.8 (the RPCValet tables, JBSQ(2): 1.54 against 1.96). For other services the rule matters
/// little. A hold does not move the start.
#[derive(Clone, Copy, Debug)]
pub struct Jbsq {
    /// Outstanding requests at which a worker takes no more; at least 1.
    bound: u32,
    /// Who wins where several have the fewest.
    ties: Ties,
    /// Index at which the next scan of [`Ties::Rotate`] begins; may be past the end after a removal.
    next: usize,
}

/// Who takes a request where several workers have the fewest outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// The first of them after the worker that was placed on last: the rule of the router and of RPCValet's dispatcher.
    #[default]
    Rotate,
    /// Each with equal probability.
    Random,
    /// The one with the lowest index.
    Lowest,
}

impl Jbsq {
    /// Bounds every worker to `bound` outstanding requests; ties rotate.
    pub fn new(bound: NonZeroU32) -> Self {
        Self::with_ties(bound, Ties::Rotate)
    }

    /// Bounds every worker to `bound` outstanding requests, with a tie rule to compare with.
    pub fn with_ties(bound: NonZeroU32, ties: Ties) -> Self {
        Self { bound: bound.get(), ties, next: 0 }
    }

    /// The worker with `fewest` outstanding that the tie rule names.
    fn tied(&self, loads: &[u32], fewest: u32, random: u64) -> Option<usize> {
        let is_fewest = |&load: &u32| load == fewest;
        match self.ties {
            Ties::Rotate => {
                let (before, after) = loads.split_at(if self.next < loads.len() { self.next } else { 0 });
                let ahead = after.iter().position(is_fewest).map(|offset| before.len() + offset);
                ahead.or_else(|| before.iter().position(is_fewest))
            }
            Ties::Random => {
                let tied_count = loads.iter().map(|load| u32::from(is_fewest(load))).sum();
                if tied_count == 0 {
                    return None;
                }
                let rank = Draws::new(random).below(tied_count) as usize;
                loads.iter().enumerate().filter(|(_, load)| is_fewest(load)).nth(rank).map(|(index, _)| index)
            }
            Ties::Lowest => loads.iter().position(is_fewest),
        }
    }
}

impl Policy for Jbsq {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        // Nobody has fewer than an idle worker.
        if let Some(index) = self.tied(loads, 0, random) {
            self.next = index + 1;
            return Placement::One(WorkerId::at(index));
        }
        // Two passes, because each is a loop without branches that the compiler turns into vector instructions.
        let Some(fewest) = loads.iter().copied().min().filter(|&fewest| fewest < self.bound) else {
            return Placement::Hold;
        };
        let index = self.tied(loads, fewest, random).expect("the fewest is somewhere");
        self.next = index + 1;
        Placement::One(WorkerId::at(index))
    }

    fn bound(&self) -> Option<u32> {
        Some(self.bound)
    }

    fn set_bound(&mut self, bound: u32) {
        self.bound = bound.clamp(1, OUT_OF_SERVICE - 1);
    }
}

/// A policy as people write it: `random`, `rr`, `jsq:D`, `jbsq:N` or `jbsq:auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySpec {
    /// [`Random`].
    Random,
    /// [`RoundRobin`].
    RoundRobin,
    /// [`Jsq`] of so many samples.
    Jsq(NonZeroU32),
    /// [`Jbsq`] with a fixed bound.
    Jbsq(NonZeroU32),
    /// [`Jbsq`] whose bound a [`BoundEstimator`] derives from measured delays.
    JbsqAuto,
}

impl PolicySpec {
    /// The policy in its initial state.
    pub fn build(self) -> AnyPolicy {
        match self {
            Self::Random => AnyPolicy::Random(Random),
            Self::RoundRobin => AnyPolicy::RoundRobin(RoundRobin::default()),
            Self::Jsq(d) => AnyPolicy::Jsq(Jsq::new(d)),
            Self::Jbsq(bound) => AnyPolicy::Jbsq(Jbsq::new(bound)),
            Self::JbsqAuto => AnyPolicy::Jbsq(Jbsq::new(BoundEstimator::INITIAL)),
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::RoundRobin => f.write_str("rr"),
            Self::Jsq(d) => write!(f, "jsq:{d}"),
            Self::Jbsq(bound) => write!(f, "jbsq:{bound}"),
            Self::JbsqAuto => f.write_str("jbsq:auto"),
        }
    }
}

impl FromStr for PolicySpec {
    type Err = PolicyParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, argument) = text.split_once(':').map_or((text, None), |(name, argument)| (name, Some(argument)));
        match (name, argument) {
            ("random", None) => Ok(Self::Random),
            ("rr", None) => Ok(Self::RoundRobin),
            ("jbsq", Some("auto")) => Ok(Self::JbsqAuto),
            ("jsq", Some(d)) => Ok(Self::Jsq(parse_count(text, d)?)),
            ("jbsq", Some(bound)) => Ok(Self::Jbsq(parse_count(text, bound)?)),
            ("random" | "rr", Some(_)) => Err(PolicyParseError::Argument { text: text.to_owned() }),
            ("jsq" | "jbsq", None) => Err(PolicyParseError::NoArgument { name: name.to_owned() }),
            _ => Err(PolicyParseError::Unknown { name: name.to_owned() }),
        }
    }
}

/// Why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyParseError {
    /// The name is none that is known.
    #[error("no policy is called {name:?}; there are random, rr, jsq:D, jbsq:N and jbsq:auto")]
    Unknown {
        /// What stands before the colon.
        name: String,
    },
    /// The policy takes no argument.
    #[error("{text:?}: this policy takes no argument")]
    Argument {
        /// The whole text.
        text: String,
    },
    /// The policy needs an argument.
    #[error("{name:?} needs a number: {name}:2, for example")]
    NoArgument {
        /// The policy.
        name: String,
    },
    /// The argument is not a number from 1 to [`COUNT_MAX`].
    #[error("{text:?}: {argument:?} is not a whole number from 1 to {COUNT_MAX}")]
    Number {
        /// The whole text.
        text: String,
        /// What stands after the colon.
        argument: String,
    },
}

/// Any policy of the grammar, without a box.
#[derive(Clone, Copy, Debug)]
pub enum AnyPolicy {
    /// [`Random`].
    Random(Random),
    /// [`RoundRobin`].
    RoundRobin(RoundRobin),
    /// [`Jsq`].
    Jsq(Jsq),
    /// [`Jbsq`].
    Jbsq(Jbsq),
}

impl Policy for AnyPolicy {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        match self {
            Self::Random(policy) => policy.place(loads, random),
            Self::RoundRobin(policy) => policy.place(loads, random),
            Self::Jsq(policy) => policy.place(loads, random),
            Self::Jbsq(policy) => policy.place(loads, random),
        }
    }

    fn bound(&self) -> Option<u32> {
        match self {
            Self::Jbsq(policy) => policy.bound(),
            _ => None,
        }
    }

    fn set_bound(&mut self, bound: u32) {
        if let Self::Jbsq(policy) = self {
            policy.set_bound(bound);
        }
    }
}

/// Derives the bound of `jbsq:auto` from what is measured.
///
/// A worker that is allowed n requests runs at most n of them per S + D, where S is the service time and D the round trip
/// to the worker and back less the service. It is kept busy from n = 1 + ceil(D/S) on; service times that vary want one
/// more, and that one also covers a D of a quarter of S, where the R2P2 queueing tables have a bound of 2 best. So the rule
/// is `n = 2 + ceil(D/S - 1/4)`, clamped to [`BoundEstimator::MIN`] and [`BoundEstimator::MAX`]: below 2 a worker idles
/// for D after every request, and above 16 the bound hardly differs from full JSQ.
///
/// D and S are moving averages of weight 1/16. The first pair of measurements sets the bound; then it moves when D/S is an
/// eighth past the edge of its step, so that noise around an edge does not flip it. Until both have been measured it is
/// [`BoundEstimator::INITIAL`].
#[derive(Clone, Copy, Debug)]
pub struct BoundEstimator {
    /// Average D, nanoseconds; `None` before the first sample.
    delay_ns: Option<u64>,
    /// Average S, nanoseconds; `None` before the first sample.
    service_ns: Option<u64>,
    /// The bound in force; `None` before the first pair of samples.
    bound: Option<u32>,
}

impl BoundEstimator {
    /// Least bound.
    pub const MIN: u32 = 2;
    /// Largest bound.
    pub const MAX: u32 = 16;
    /// Bound until something is measured: the best one at D = S.
    pub const INITIAL: NonZeroU32 = NonZeroU32::new(4).unwrap();

    /// Nothing measured yet.
    pub fn new() -> Self {
        Self { delay_ns: None, service_ns: None, bound: None }
    }

    /// Takes one round trip to a worker and back, without service, in nanoseconds.
    pub fn sample_delay(&mut self, delay_ns: u64) {
        self.delay_ns = Some(average(self.delay_ns, delay_ns));
        self.update();
    }

    /// Takes one service time in nanoseconds.
    pub fn sample_service(&mut self, service_ns: u64) {
        self.service_ns = Some(average(self.service_ns, service_ns.max(1)));
        self.update();
    }

    /// The bound to use now.
    pub fn bound(&self) -> u32 {
        self.bound.unwrap_or(Self::INITIAL.get())
    }

    /// The average D, nanoseconds.
    pub fn delay_ns(&self) -> Option<u64> {
        self.delay_ns
    }

    /// The average S, nanoseconds.
    pub fn service_ns(&self) -> Option<u64> {
        self.service_ns
    }

    fn update(&mut self) {
        let (Some(delay), Some(service)) = (self.delay_ns, self.service_ns) else {
            return;
        };
        let (delay, service) = (delay.min(SAMPLE_NS_MAX), service.clamp(1, SAMPLE_NS_MAX));
        let bound_at = |eighths: u64| -> u32 {
            let steps = eighths.div_ceil(8 * service);
            u32::try_from(steps).unwrap_or(u32::MAX).saturating_add(2).clamp(Self::MIN, Self::MAX)
        };
        let exact = bound_at((8 * delay).saturating_sub(2 * service));
        let up = bound_at((8 * delay).saturating_sub(3 * service));
        let down = bound_at((8 * delay).saturating_sub(service));
        let bound = self.bound.unwrap_or(exact);
        self.bound = Some(bound.max(up).min(down));
    }
}

impl Default for BoundEstimator {
    fn default() -> Self {
        Self::new()
    }
}

/// SplitMix64: a stream of words from one, the same on every machine for all time.
#[derive(Clone, Copy, Debug)]
pub struct Draws(u64);

impl Draws {
    /// The stream that `seed` begins.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 uniform bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below `limit`, which is not 0. The bias is below 2^-22 for up to 1,024 workers.
    pub fn below(&mut self, limit: u32) -> u32 {
        (((self.word() >> 32) * u64::from(limit)) >> 32) as u32
    }
}

/// The least loaded of the workers seen so far, each tie decided by a draw.
#[derive(Default)]
struct Shortest {
    /// The best so far.
    worker: Option<WorkerId>,
    /// Its load.
    load: u32,
    /// Workers seen with that load.
    tied_count: u32,
}

impl Shortest {
    fn see(&mut self, loads: &[u32], worker: WorkerId, draws: &mut Draws) {
        let load = loads[worker.index()];
        if self.worker.is_none() || load < self.load {
            *self = Self { worker: Some(worker), load, tied_count: 1 };
        } else if load == self.load {
            self.tied_count += 1;
            if draws.below(self.tied_count) == 0 {
                self.worker = Some(worker);
            }
        }
    }
}

/// Shows `best` a uniform sample of `wanted` of the `count` workers in service, in one pass (Knuth's selection sampling).
fn sample_shortest(loads: &[u32], (wanted, count): (u32, u32), best: &mut Shortest, draws: &mut Draws) {
    let (mut wanted, mut left) = (wanted, count);
    for (index, _) in loads.iter().enumerate().filter(|&(_, &load)| load != OUT_OF_SERVICE) {
        if wanted == left || draws.below(left) < wanted {
            best.see(loads, WorkerId::at(index), draws);
            wanted -= 1;
        }
        left -= 1;
        if wanted == 0 {
            return;
        }
    }
}

fn parse_count(text: &str, argument: &str) -> Result<NonZeroU32, PolicyParseError> {
    let number = argument.parse::<NonZeroU32>().ok().filter(|number| number.get() <= COUNT_MAX);
    number.ok_or_else(|| PolicyParseError::Number { text: text.to_owned(), argument: argument.to_owned() })
}

fn count_in_service(loads: &[u32]) -> u32 {
    loads.iter().map(|&load| u32::from(load != OUT_OF_SERVICE)).sum()
}

/// The worker of rank `rank` among the `count` in service.
fn nth_in_service(loads: &[u32], count: u32, rank: u32) -> WorkerId {
    if count as usize == loads.len() {
        return WorkerId(rank);
    }
    let in_service = loads.iter().enumerate().filter(|&(_, &load)| load != OUT_OF_SERVICE);
    let (index, _) = in_service.into_iter().nth(rank as usize).expect("the rank is below the count");
    WorkerId::at(index)
}

fn rotated(len: usize, start: usize) -> impl Iterator<Item = usize> {
    (start..len).chain(0..start)
}

fn average(old: Option<u64>, sample: u64) -> u64 {
    let sample = sample.min(SAMPLE_NS_MAX);
    old.map_or(sample, |old| (old * 15 + sample) / 16)
}

/// Largest D of `jsq:D` and N of `jbsq:N`: more outstanding at one worker than any queue here may hold.
pub const COUNT_MAX: u32 = 1 << 20;

/// Samples above a minute are clocks gone wrong, and 8 of them must fit 64 bits.
const SAMPLE_NS_MAX: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OUT: u32 = OUT_OF_SERVICE;

    fn count(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    /// Places as many requests as there are expected workers, all against the same loads; 99 stands for a hold.
    fn check(policy: &mut impl Policy, loads: &[u32], expected: &[u32]) {
        let found: Vec<u32> = (0..expected.len() as u64)
            .map(|random| match policy.place(loads, random) {
                Placement::Hold => 99,
                Placement::One(worker) => worker.0,
                Placement::Two(..) => panic!("no policy here clones"),
            })
            .collect();
        assert_eq!(found, expected, "loads {loads:?}");
    }

    fn check_refused(text: &str, message: &str) {
        assert_eq!(text.parse::<PolicySpec>().unwrap_err().to_string(), message);
    }

    #[test]
    fn round_robin_takes_turns_and_passes_over_those_out_of_service() {
        check(&mut RoundRobin::default(), &[7, OUT, 7, 7], &[0, 2, 3, 0, 2]);
    }

    #[test]
    fn round_robin_survives_a_removal() {
        let mut policy = RoundRobin::default();
        check(&mut policy, &[0, 0, 0], &[0, 1]);
        check(&mut policy, &[0], &[0, 0]);
    }

    #[test]
    fn nobody_in_service_holds() {
        for spec in ["random", "rr", "jsq:1", "jsq:2", "jsq:9", "jbsq:2"] {
            let mut policy = spec.parse::<PolicySpec>().unwrap().build();
            check(&mut policy, &[OUT, OUT], &[99]);
            check(&mut policy, &[], &[99]);
        }
    }

    #[test]
    fn jbsq_ties_rotate() {
        check(&mut Jbsq::new(count(2)), &[1, 1, 1], &[0, 1, 2, 0]);
    }

    #[test]
    fn jbsq_ties_go_to_the_lowest_index_when_told() {
        check(&mut Jbsq::with_ties(count(2), Ties::Lowest), &[OUT, 1, 0, 0], &[2, 2, 2]);
    }

    #[test]
    fn jbsq_ties_are_uniform_when_told() {
        // As for `random`: 6 sigma of 30,000 draws over 3.
        let (mut policy, mut hits, mut draws) = (Jbsq::with_ties(count(2), Ties::Random), [0u32; 4], Draws::new(4));
        for _ in 0..30_000 {
            if let Placement::One(worker) = policy.place(&[1, 0, 0, 0], draws.word()) {
                hits[worker.index()] += 1;
            }
        }
        assert_eq!(hits[0], 0);
        assert!(hits[1..].iter().all(|hit| hit.abs_diff(10_000) < 500), "{hits:?}");
    }

    #[test]
    fn jbsq_prefers_fewer_to_the_rotation() {
        check(&mut Jbsq::new(count(3)), &[1, 2, 0], &[2, 2]);
    }

    #[test]
    fn jbsq_holds_when_all_are_at_the_bound() {
        check(&mut Jbsq::new(count(2)), &[2, 3, OUT], &[99]);
    }

    #[test]
    fn jbsq_hold_does_not_move_the_rotation() {
        let mut policy = Jbsq::new(count(1));
        check(&mut policy, &[0, 0, 0], &[0]);
        check(&mut policy, &[1, 1, 1], &[99]);
        check(&mut policy, &[0, 0, 0], &[1]);
    }

    #[test]
    fn jbsq_takes_a_new_bound() {
        let mut policy = Jbsq::new(count(1));
        check(&mut policy, &[1], &[99]);
        policy.set_bound(2);
        check(&mut policy, &[1], &[0]);
    }

    #[test]
    fn random_is_uniform_over_those_in_service() {
        // 30,000 draws over 3: sigma is 82, so 500 is 6 sigma.
        let loads = [0, OUT, 5, 9];
        let mut hits = [0u32; 4];
        let mut draws = Draws::new(1);
        for _ in 0..30_000 {
            if let Placement::One(worker) = Random.place(&loads, draws.word()) {
                hits[worker.index()] += 1;
            }
        }
        assert_eq!(hits[1], 0);
        assert!([hits[0], hits[2], hits[3]].iter().all(|hit| hit.abs_diff(10_000) < 500), "{hits:?}");
    }

    /// With distinct loads the i-th shortest wins when it is sampled and no shorter one is: C(k-1-i, d-1)/C(k, d).
    fn check_samples(d: u32, expected: [u32; 4]) {
        // 60,000 draws: sigma is at most 123, so 750 is 6 sigma.
        let mut hits = [0u32; 4];
        let mut draws = Draws::new(2);
        for _ in 0..60_000 {
            if let Placement::One(worker) = Jsq::new(count(d)).place(&[0, 1, 2, 3], draws.word()) {
                hits[worker.index()] += 1;
            }
        }
        assert!(hits.iter().zip(expected).all(|(hit, expected)| hit.abs_diff(expected) < 750), "{hits:?} of {expected:?}");
    }

    #[test]
    fn jsq_of_one_is_random() {
        check_samples(1, [15_000, 15_000, 15_000, 15_000]);
    }

    #[test]
    fn jsq_of_two_samples_distinct_pairs_uniformly() {
        check_samples(2, [30_000, 20_000, 10_000, 0]);
    }

    #[test]
    fn jsq_of_three_samples_distinct_triples_uniformly() {
        check_samples(3, [45_000, 15_000, 0, 0]);
    }

    #[test]
    fn jsq_of_all_or_more_is_full_jsq() {
        check_samples(4, [60_000, 0, 0, 0]);
        check_samples(100, [60_000, 0, 0, 0]);
    }

    #[test]
    fn jsq_ties_are_decided_uniformly() {
        // As for `random`: 6 sigma of 30,000 draws over 3.
        for d in [2, 3, 4] {
            let mut hits = [0u32; 3];
            let mut draws = Draws::new(3);
            for _ in 0..30_000 {
                if let Placement::One(worker) = Jsq::new(count(d)).place(&[4, 4, 4], draws.word()) {
                    hits[worker.index()] += 1;
                }
            }
            assert!(hits.iter().all(|hit| hit.abs_diff(10_000) < 500), "jsq:{d} {hits:?}");
        }
    }

    #[test]
    fn specs_read_and_print_alike() {
        for text in ["random", "rr", "jsq:2", "jsq:16", "jbsq:1", "jbsq:3", "jbsq:auto"] {
            assert_eq!(text.parse::<PolicySpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_specs_say_what_is_wrong() {
        check_refused("", "no policy is called \"\"; there are random, rr, jsq:D, jbsq:N and jbsq:auto");
        check_refused("fifo:2", "no policy is called \"fifo\"; there are random, rr, jsq:D, jbsq:N and jbsq:auto");
        check_refused("rr:2", "\"rr:2\": this policy takes no argument");
        check_refused("jbsq", "\"jbsq\" needs a number: jbsq:2, for example");
        check_refused("jsq:0", "\"jsq:0\": \"0\" is not a whole number from 1 to 1048576");
        check_refused("jsq:auto", "\"jsq:auto\": \"auto\" is not a whole number from 1 to 1048576");
        check_refused("jbsq:-1", "\"jbsq:-1\": \"-1\" is not a whole number from 1 to 1048576");
        check_refused("jbsq:9999999999", "\"jbsq:9999999999\": \"9999999999\" is not a whole number from 1 to 1048576");
    }

    fn check_bound(delay_ns: u64, service_ns: u64, expected: u32) {
        let mut estimator = BoundEstimator::new();
        estimator.sample_delay(delay_ns);
        estimator.sample_service(service_ns);
        assert_eq!(estimator.bound(), expected, "D {delay_ns} S {service_ns}");
    }

    #[test]
    fn bound_follows_the_ratio() {
        check_bound(0, 10_000, 2);
        check_bound(2_000, 10_000, 2);
        check_bound(10_000, 10_000, 3);
        check_bound(15_000, 10_000, 4);
        check_bound(35_000, 10_000, 6);
        check_bound(1_000_000, 1_000, 16);
        check_bound(u64::MAX, 0, 16);
        check_bound(0, u64::MAX, 2);
    }

    #[test]
    fn bound_stays_near_an_edge() {
        let mut estimator = BoundEstimator::new();
        estimator.sample_service(10_000);
        let steps = [(15_000, 4), (22_900, 4), (23_600, 4), (12_000, 4), (24_000, 5), (21_500, 5), (21_000, 4)];
        for (delay, expected) in steps {
            estimator.delay_ns = Some(delay);
            estimator.update();
            assert_eq!(estimator.bound(), expected, "D {delay}");
        }
    }

    #[test]
    fn bound_waits_for_both_measurements() {
        let mut estimator = BoundEstimator::new();
        estimator.sample_delay(1_000_000);
        assert_eq!(estimator.bound(), BoundEstimator::INITIAL.get());
    }

    fn loads() -> impl Strategy<Value = Vec<u32>> {
        proptest::collection::vec(prop_oneof![3 => 0u32..6, 1 => Just(OUT)], 0..20)
    }

    proptest! {
        #[test]
        fn jbsq_places_on_the_fewest_below_the_bound(bound in 1u32..6, steps in proptest::collection::vec(loads(), 1..20)) {
            let mut policy = Jbsq::new(count(bound));
            for loads in steps {
                let fewest = loads.iter().copied().min().filter(|&load| load < bound);
                match policy.place(&loads, 0) {
                    Placement::One(worker) => prop_assert_eq!(Some(loads[worker.index()]), fewest),
                    placement => prop_assert!(placement == Placement::Hold && fewest.is_none()),
                }
            }
        }

        #[test]
        fn jbsq_never_exceeds_its_bound(bound in 1u32..5, steps in proptest::collection::vec(0usize..16, 1..200)) {
            let mut policy = Jbsq::new(count(bound));
            let mut loads = [0u32; 8];
            for step in steps {
                match (step < 8, policy.place(&loads, 0)) {
                    (true, Placement::One(worker)) => loads[worker.index()] += 1,
                    (true, _) => prop_assert!(loads.iter().all(|&load| load == bound)),
                    (false, _) => loads[step - 8] = loads[step - 8].saturating_sub(1),
                }
                prop_assert!(loads.iter().all(|&load| load <= bound));
            }
        }

        #[test]
        fn full_jsq_places_on_a_shortest(loads in loads(), random: u64) {
            let fewest = loads.iter().copied().min().filter(|&load| load != OUT);
            match Jsq::new(count(20)).place(&loads, random) {
                Placement::One(worker) => prop_assert_eq!(Some(loads[worker.index()]), fewest),
                _ => prop_assert!(fewest.is_none()),
            }
        }

        #[test]
        fn jsq_beats_all_but_its_unsampled_rivals(loads in loads(), d in 1u32..20, random: u64) {
            // At least d - 1 of the workers in service are as loaded as the chosen one, for they were sampled too.
            let in_service = loads.iter().filter(|&&load| load != OUT).count();
            if let Placement::One(worker) = Jsq::new(count(d)).place(&loads, random) {
                let chosen = loads[worker.index()];
                prop_assert!(chosen != OUT);
                let not_less = loads.iter().filter(|&&load| load != OUT && load >= chosen).count();
                prop_assert!(not_less >= in_service.min(d as usize));
            } else {
                prop_assert_eq!(in_service, 0);
            }
        }
    }
}
