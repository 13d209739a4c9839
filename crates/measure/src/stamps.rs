//! Matches transmit and receive timestamps to requests.
//!
//! A request is seen by up to three clocks: the user's own before it sends and after it received
//! (CLOCK_MONOTONIC), the kernel's when it hands the packet to the device and gets it from there
//! (CLOCK_REALTIME), and the network interface's own. A latency is the difference of two stamps of
//! one clock; the three latencies of one request, side by side, tell how much of the first is the
//! client's own doing.
//!
//! A transmit stamp comes by itself, later than the send: perhaps after the reply, twice, out of
//! order, or never. A sample stays open until it has what it was promised, or until the wait is
//! over.
//!
//! | what comes | what happens |
//! |---|---|
//! | a request | the sample opens |
//! | a stamp of a send that covers its key | kept, if it is the first of its clock; counted as a duplicate otherwise |
//! | a packet of the reply | the latest stamp of each clock is kept |
//! | the reply | the sample closes, once each promised clock has stamped the send |
//! | the end of the wait | the sample closes with what it has; what is missing is counted |
//! | a stamp after that | counted as late |
//!
//! A retransmission is stamped again. Where the interface lost its stamp of the first transmission
//! and not of the second, the second would pass for the first; the kernel's stamps, which are never
//! lost, tell: a sample that the kernel has stamped more often than the interface has no latency of
//! the interface's. With [`Promised::Hardware`] nothing tells.
//!
//! Keys: for TCP the offset of the request's last byte, since one write, and so one stamp, may
//! carry several requests; for UDP the number of the datagram, the first one of a request that has
//! several; for R2P2 the token of its first packet.
//!
//! Invariants: stamps of two clocks cannot be subtracted, for nobody gets at them; a stamp is
//! never given to a request that it does not cover; open samples are bounded in number and in time.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// One packet's stamps, as far as they exist: by the user's clock, which the process that measures
/// reads (CLOCK_MONOTONIC), by the kernel (CLOCK_REALTIME), and by the network interface, whose
/// clock need not agree with any other.
///
/// Nobody gets at the stamps themselves, so that those of one clock are subtracted from no other's:
///
/// ```compile_fail
/// use tailcut_measure::stamps::Stamps;
/// let [user, kernel, _] = Stamps::of_ns(Some(2), Some(1), None).ns;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// Nanoseconds since each clock's own epoch.
    ns: ByClock<Option<u64>>,
}

/// Values by clock: the user's, the kernel's, and the interface's.
type ByClock<T> = [T; 3];

impl Stamps {
    /// Stamps given in nanoseconds of each clock.
    pub fn of_ns(user: Option<u64>, kernel: Option<u64>, hardware: Option<u64>) -> Self {
        Self { ns: [user, kernel, hardware] }
    }

    /// Keeps the later stamp of each clock.
    fn advance(&mut self, other: &Self) {
        self.ns.iter_mut().zip(other.ns).for_each(|(mine, theirs)| *mine = (*mine).max(theirs));
    }

    /// Keeps the first stamp of each clock; whether one of them was not the first.
    fn fill(&mut self, other: &Self) -> bool {
        let mut is_repeated = false;
        for (mine, theirs) in self.ns.iter_mut().zip(other.ns) {
            is_repeated |= mine.is_some() && theirs.is_some();
            *mine = mine.or(theirs);
        }
        is_repeated
    }
}

/// One request's latency by each clock, ns; `None` where one of its two stamps does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// From the user's read of the clock before the send to that after the receive.
    pub user_ns: Option<u64>,
    /// From the kernel's hand-over to the device to its receive from there.
    pub kernel_ns: Option<u64>,
    /// From the interface's send to its receive.
    pub hardware_ns: Option<u64>,
}

impl Latencies {
    /// True if two clocks at least have a latency, so that they can be compared.
    pub fn is_by_several(&self) -> bool {
        [self.user_ns, self.kernel_ns, self.hardware_ns].iter().flatten().count() > 1
    }

    /// By each clock that has both.
    fn between(sent: &Stamps, received: &Stamps) -> Self {
        let [user_ns, kernel_ns, hardware_ns] =
            [0, 1, 2].map(|clock| received.ns[clock]?.checked_sub(sent.ns[clock]?));
        Self { user_ns, kernel_ns, hardware_ns }
    }
}

/// A request with its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedSample {
    /// Key that [`Matcher::handle_request`] was given.
    pub key: u64,
    /// Latency by each clock.
    pub latencies: Latencies,
}

/// The clocks whose transmit stamps a sample waits for: what a probe has shown to arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promised {
    /// None: a sample closes with its reply.
    #[default]
    Nothing,
    /// The kernel's.
    Kernel,
    /// The interface's, and the kernel's too.
    Both,
    /// The interface's alone: the kernel leaves out its own where both are asked of old drivers.
    Hardware,
}

impl Promised {
    /// The clocks whose stamps have not come though they were promised.
    fn missing(self, sent: &Stamps) -> ByClock<bool> {
        let kernel = matches!(self, Self::Kernel | Self::Both);
        let hardware = matches!(self, Self::Hardware | Self::Both);
        [false, kernel && sent.ns[KERNEL].is_none(), hardware && sent.ns[HARDWARE].is_none()]
    }
}

/// Configuration of a [`Matcher`]'s waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatcherConfig {
    /// Stamps that are waited for. Default nothing.
    pub promised: Promised,
    /// Longest time after the reply at which a transmit stamp may come. Default 100 ms: drivers
    /// take up to some 10 ms.
    pub wait_ns: u64,
    /// Samples open at a time; requests beyond are not sampled, and counted. Default 1,024: what an
    /// interface that loses half of its stamps leaves open of 20,000 samples a second.
    pub open_max: usize,
}

impl Default for MatcherConfig {
    fn default() -> Self {
        Self { promised: Promised::Nothing, wait_ns: 100_000_000, open_max: 1_024 }
    }
}

/// Counters of a [`Matcher`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchCounts {
    /// Requests sampled.
    pub requests: u64,
    /// Requests not sampled because [`MatcherConfig::open_max`] samples were open, or their key was
    /// not above all earlier ones.
    pub refused: u64,
    /// Requests picked but not sampled because their send has a stamp for another request, or could
    /// not be written whole. Common where a busy machine makes requests leave together.
    pub skipped: u64,
    /// Samples handed out.
    pub samples: u64,
    /// Samples that lack the kernel's transmit stamp though it was promised.
    pub missing_kernel: u64,
    /// Samples that lack the interface's transmit stamp though it was promised.
    pub missing_hardware: u64,
    /// Requests that ended without a reply.
    pub unanswered: u64,
    /// Transmit stamps that came after the wait was over.
    pub late: u64,
    /// Transmit stamps of a send that the same clock had stamped already: retransmissions.
    pub duplicates: u64,
    /// Transmit stamps that no request was waiting for.
    pub unexpected: u64,
    /// Samples that lack the latency of the interface because its stamp may be that of a
    /// retransmission.
    pub ambiguous: u64,
    /// Samples in which a clock has the reply before the request: they lack the latency of that
    /// clock.
    pub reversed: u64,
}

impl MatchCounts {
    /// Adds another flow's counts.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.skipped += other.skipped;
        self.samples += other.samples;
        self.missing_kernel += other.missing_kernel;
        self.missing_hardware += other.missing_hardware;
        self.unanswered += other.unanswered;
        self.late += other.late;
        self.duplicates += other.duplicates;
        self.unexpected += other.unexpected;
        self.ambiguous += other.ambiguous;
        self.reversed += other.reversed;
    }
}

/// Matches the stamps of one flow: one connection, one socket, one port.
#[derive(Clone, Debug)]
pub struct Matcher {
    config: MatcherConfig,
    /// By ascending key.
    open: VecDeque<Open>,
    /// Requests whose wait is over, by ascending key of the latest ones, with what they lacked.
    expired: VecDeque<(u64, ByClock<bool>)>,
    /// Samples that nobody has polled yet.
    closed: VecDeque<StampedSample>,
    /// No key may be lower.
    next_key: u64,
    counts: MatchCounts,
}

impl Matcher {
    /// A matcher without requests.
    pub fn new(config: MatcherConfig) -> Self {
        Self {
            config,
            open: VecDeque::new(),
            expired: VecDeque::new(),
            closed: VecDeque::new(),
            next_key: 0,
            counts: MatchCounts::default(),
        }
    }

    /// Opens a sample for a request that leaves by a send that will be stamped. Call it before the
    /// stamp can come. `key` is as the module says, and ascends. `sent` holds the user's stamp.
    /// Returns whether the request is sampled.
    pub fn handle_request(&mut self, key: u64, sent: Stamps) -> bool {
        if key < self.next_key || self.open.len() + self.closed.len() >= self.config.open_max {
            self.counts.refused += 1;
            return false;
        }
        self.next_key = key + 1;
        self.counts.requests += 1;
        self.open.push_back(Open {
            key,
            sent,
            received: Stamps::default(),
            deadline_ns: None,
            sent_counts: [0; 3],
        });
        true
    }

    /// Counts a request that was picked and has no stamp of its own.
    pub fn skip_request(&mut self) {
        self.counts.skipped += 1;
    }

    /// Takes transmit stamps of a send that carried the keys of `range`, and gives them to each
    /// request whose key is in it.
    pub fn handle_sent(&mut self, range: RangeInclusive<u64>, stamps: Stamps) {
        let first = self.open.partition_point(|open| open.key < *range.start());
        let after = self.open.partition_point(|open| open.key <= *range.end());
        let Self { open, counts, .. } = self;
        for open in open.range_mut(first..after.max(first)) {
            counts.duplicates += u64::from(open.sent.fill(&stamps));
            for (count, stamp) in open.sent_counts.iter_mut().zip(stamps.ns) {
                *count += u32::from(stamp.is_some());
            }
        }
        if first >= after {
            self.count_stray(&range, &stamps);
        }
        // From the last to the first, so that closing one moves none that is still to be looked at.
        for index in (first..after).rev() {
            self.close_if_complete(index);
        }
    }

    /// Takes the receive stamps of a packet of the reply that is not the one that completes it.
    pub fn handle_packet(&mut self, key: u64, received: Stamps) {
        if let Some(index) = self.find(key) {
            self.open[index].received.advance(&received);
        }
    }

    /// Takes the receive stamps of the packet, or of the read, that completed the reply, the user's
    /// among them. Later calls for the same key do nothing.
    pub fn handle_reply(&mut self, key: u64, received: Stamps, now_ns: u64) {
        let Some(index) = self.find(key).filter(|&index| self.open[index].deadline_ns.is_none())
        else {
            return;
        };
        self.open[index].received.advance(&received);
        self.open[index].deadline_ns = Some(now_ns.saturating_add(self.config.wait_ns));
        self.close_if_complete(index);
    }

    /// Gives up a request that ends without a reply.
    pub fn handle_failure(&mut self, key: u64) {
        if let Some(index) = self.find(key).filter(|&index| self.open[index].deadline_ns.is_none())
        {
            self.open.remove(index);
            self.counts.unanswered += 1;
        }
    }

    /// Closes the samples whose wait is over.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let mut index = 0;
        while index < self.open.len() {
            if self.open[index].deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns) {
                self.close(index);
            } else {
                index += 1;
            }
        }
    }

    /// Time at which [`Matcher::handle_timeout`] wants to be called next; `None` for never.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.open.iter().filter_map(|open| open.deadline_ns).min()
    }

    /// The next sample that has closed. Samples that are not polled count as open.
    pub fn poll_sample(&mut self) -> Option<StampedSample> {
        self.closed.pop_front()
    }

    /// Counts so far.
    pub fn counts(&self) -> &MatchCounts {
        &self.counts
    }

    /// Counts since the last call.
    pub fn take_counts(&mut self) -> MatchCounts {
        std::mem::take(&mut self.counts)
    }

    /// Samples that wait for their reply or for a stamp.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    fn find(&self, key: u64) -> Option<usize> {
        self.open.binary_search_by_key(&key, |open| open.key).ok()
    }

    fn close_if_complete(&mut self, index: usize) {
        let open = &self.open[index];
        if open.deadline_ns.is_some() && self.config.promised.missing(&open.sent) == [false; 3] {
            self.close(index);
        }
    }

    fn close(&mut self, index: usize) {
        let Some(open) = self.open.remove(index) else { return };
        let missing = self.config.promised.missing(&open.sent);
        let Open { key, mut sent, received, sent_counts, .. } = open;
        if self.config.promised == Promised::Both
            && (1..sent_counts[KERNEL]).contains(&sent_counts[HARDWARE])
        {
            self.counts.ambiguous += 1;
            sent.ns[HARDWARE] = None;
        }
        self.counts.missing_kernel += u64::from(missing[KERNEL]);
        self.counts.missing_hardware += u64::from(missing[HARDWARE]);
        if missing.contains(&true) {
            if self.expired.len() >= EXPIRED_MAX {
                self.expired.pop_front();
            }
            self.expired.push_back((key, missing));
        }
        let mut clocks = received.ns.iter().zip(sent.ns);
        let is_reversed = clocks.any(|(received, sent)| received.is_some_and(|at| Some(at) < sent));
        self.counts.reversed += u64::from(is_reversed);
        self.counts.samples += 1;
        self.closed
            .push_back(StampedSample { key, latencies: Latencies::between(&sent, &received) });
    }

    /// Counts stamps that no open request wants.
    fn count_stray(&mut self, range: &RangeInclusive<u64>, stamps: &Stamps) {
        let lacks = |missing: &ByClock<bool>| {
            missing.iter().zip(stamps.ns).any(|(&missing, stamp)| missing && stamp.is_some())
        };
        if self.expired.iter().any(|(key, missing)| range.contains(key) && lacks(missing)) {
            self.counts.late += 1;
        } else if *range.end() < self.next_key {
            self.counts.duplicates += 1;
        } else {
            self.counts.unexpected += 1;
        }
    }
}

/// Share of what the user measures that is the user's own doing: the user's latency minus the
/// kernel's, of the same requests.
#[derive(Clone, Debug)]
pub struct Bias {
    differences: Histogram<u64>,
    sum_ns: u64,
    below: u64,
}

/// Summary of a [`Bias`]; figures in nanoseconds, `None` without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BiasSummary {
    /// Samples with both latencies.
    pub count: u64,
    /// Samples with both latencies in which the kernel's was the longer, which no client explains:
    /// a clock was set meanwhile.
    pub below: u64,
    /// Mean of the others.
    pub mean_ns: Option<f64>,
    /// Their median, to 1 %.
    pub p50_ns: Option<u64>,
    /// Their 99th percentile, to 1 %; needs 1,000 of them.
    pub p99_ns: Option<u64>,
    /// The largest of them, to 1 %.
    pub max_ns: Option<u64>,
}

impl Bias {
    /// No samples yet.
    pub fn new() -> Self {
        let differences = Histogram::new_with_bounds(1, BIAS_MAX_NS, 2)
            .expect("the bounds and the digits are valid constants");
        Self { differences, sum_ns: 0, below: 0 }
    }

    /// Takes one request's latencies; those that lack one of the two are passed over.
    pub fn record(&mut self, latencies: &Latencies) {
        let (Some(user_ns), Some(kernel_ns)) = (latencies.user_ns, latencies.kernel_ns) else {
            return;
        };
        match user_ns.checked_sub(kernel_ns) {
            Some(difference_ns) => {
                self.differences.saturating_record(difference_ns);
                self.sum_ns = self.sum_ns.saturating_add(difference_ns);
            }
            None => self.below += 1,
        }
    }

    /// Adds another part's samples.
    pub fn merge(&mut self, other: &Self) {
        self.differences.add(&other.differences).expect("all have the same bounds");
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.below += other.below;
    }

    /// The figures so far.
    pub fn summary(&self) -> BiasSummary {
        let count = self.differences.len();
        let when = |samples_min: u64, quantile: f64| {
            (count >= samples_min).then(|| self.differences.value_at_quantile(quantile))
        };
        BiasSummary {
            count: count + self.below,
            below: self.below,
            mean_ns: (count > 0).then(|| self.sum_ns as f64 / count as f64),
            p50_ns: when(1, 0.5),
            p99_ns: when(1_000, 0.99),
            max_ns: when(1, 1.0),
        }
    }
}

impl Default for Bias {
    fn default() -> Self {
        Self::new()
    }
}

/// A request that waits for its reply or for stamps.
#[derive(Clone, Copy, Debug)]
struct Open {
    key: u64,
    sent: Stamps,
    received: Stamps,
    /// End of the wait, once the reply is there.
    deadline_ns: Option<u64>,
    /// Transmit stamps.
    sent_counts: ByClock<u32>,
}

/// Places of clocks in what is [`ByClock`].
const KERNEL: usize = 1;
const HARDWARE: usize = 2;

/// Requests whose wait is over that are remembered, to tell a late stamp from one that was never
/// asked for.
const EXPIRED_MAX: usize = 1_024;

/// The largest bias told apart, 1 s.
const BIAS_MAX_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
