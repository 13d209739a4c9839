//! Timestamps of one request in so many: which kinds there are, and what they say.
//!
//! A probe sends before the load and tells which stamps arrive. A load thread then marks one
//! request in [`Job::stamp_every`](crate::job::Job::stamp_every), and tells its latency by
//! each clock that has stamped it, side by side.
//!
//! | transport | the key of a request |
//! |---|---|
//! | TCP, TLS | the offset of the last byte of the write that carried it, counted from the connection's beginning |
//! | UDP | its number on its flow |
//! | R2P2 | its number among the endpoint's marked ones, from 1 |
//!
//! Invariant: a request is sampled once at most, whatever becomes of it.

use tailcut_measure::stamps::{Latencies, MatchCounts, Matcher, MatcherConfig, Promised, Stamps};
use tailcut_net::probe::Arrived;
use tailcut_net::stamps::{SentStamp, StampConfig, StampSource, Stamping, Stamps as Seen};
use tailcut_proto::node::Time;

use crate::job::StampKind;

/// Stamps that a probe has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    stamping: Stamping,
    promised: Promised,
    source: StampSource,
}

impl Found {
    /// Stamps that threads ask their sockets for.
    pub(super) fn config(&self) -> StampConfig {
        StampConfig { stamping: self.stamping, source: self.source }
    }

    pub(super) fn kind(&self) -> StampKind {
        match self.stamping {
            Stamping::Off => StampKind::User,
            Stamping::Kernel => StampKind::Kernel,
            Stamping::Hardware => StampKind::Hardware,
        }
    }

    pub(super) fn of(arrived: Arrived, source: StampSource) -> Self {
        let stamping = arrived.best();
        let promised = match stamping {
            Stamping::Off => Promised::Nothing,
            Stamping::Kernel => Promised::Kernel,
            Stamping::Hardware if arrived.sent_kernel => Promised::Both,
            Stamping::Hardware => Promised::Hardware,
        };
        Self { stamping, promised, source }
    }
}

/// Picks the requests to be stamped and matches their stamps.
pub(super) struct Sampler {
    every: u32,
    /// Requests until the next that is picked.
    left: u32,
    found: Found,
    /// By lane.
    matchers: Vec<Matcher>,
    /// Counts of lanes that have begun anew, since the last telling.
    past: MatchCounts,
    /// Latencies of requests that several clocks have stamped, since the last telling.
    stamped: Vec<Latencies>,
}

impl Sampler {
    pub(super) fn new(stamp_every: u32, found: Found) -> Self {
        let every = if found.stamping == Stamping::Off { 0 } else { stamp_every };
        let (matchers, past) = (Vec::new(), MatchCounts::default());
        Self { every, left: every, found, matchers, past, stamped: Vec::new() }
    }

    /// Stamps that sockets are asked for.
    pub(super) fn config(&self) -> StampConfig {
        self.found.config()
    }

    /// True if there is anything to be stamped.
    pub(super) fn is_on(&self) -> bool {
        self.every > 0
    }

    /// True if the next request is to be stamped.
    #[inline]
    pub(super) fn picks(&mut self) -> bool {
        if self.every == 0 {
            return false;
        }
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.left = self.every;
        true
    }

    /// A lane begins, or begins anew, so that its keys begin from 0.
    pub(super) fn begin(&mut self, lane: usize) {
        let config = MatcherConfig { promised: self.found.promised, ..MatcherConfig::default() };
        while self.matchers.len() <= lane {
            self.matchers.push(Matcher::new(config));
        }
        let mut past = std::mem::replace(&mut self.matchers[lane], Matcher::new(config));
        past.handle_timeout(Time::MAX);
        drain(&mut past, &mut self.stamped);
        self.past.merge(&past.take_counts());
    }

    /// A request that was picked leaves by a send that is marked; whether it is sampled.
    pub(super) fn handle_request(&mut self, lane: usize, key: u64, sent_ns: Time) -> bool {
        self.matchers[lane].handle_request(key, Stamps::of_ns(Some(sent_ns), None, None))
    }

    /// A request that was picked leaves by a send whose stamp is another's.
    pub(super) fn skip_request(&mut self, lane: usize) {
        self.matchers[lane].skip_request();
    }

    pub(super) fn handle_sent(&mut self, lane: usize, sent: &SentStamp) {
        self.matchers[lane].handle_sent(sent.first..=sent.last, seen_by(None, sent.stamps));
        drain(&mut self.matchers[lane], &mut self.stamped);
    }

    /// A packet of the reply, but not the last.
    pub(super) fn handle_packet(&mut self, lane: usize, key: u64, seen: Seen) {
        self.matchers[lane].handle_packet(key, seen_by(None, seen));
    }

    /// The reply is whole.
    pub(super) fn handle_reply(&mut self, lane: usize, key: u64, seen: Seen, now: Time) {
        self.matchers[lane].handle_reply(key, seen_by(Some(now), seen), now);
        drain(&mut self.matchers[lane], &mut self.stamped);
    }

    pub(super) fn handle_failure(&mut self, lane: usize, key: u64) {
        self.matchers[lane].handle_failure(key);
    }

    /// Counts, and the latencies by several clocks, since the last call.
    pub(super) fn take(&mut self, now: Time) -> (MatchCounts, Vec<Latencies>) {
        let mut counts = std::mem::take(&mut self.past);
        for matcher in &mut self.matchers {
            matcher.handle_timeout(now);
            drain(matcher, &mut self.stamped);
            counts.merge(&matcher.take_counts());
        }
        (counts, std::mem::take(&mut self.stamped))
    }
}

fn drain(matcher: &mut Matcher, stamped: &mut Vec<Latencies>) {
    let samples = std::iter::from_fn(|| matcher.poll_sample()).map(|sample| sample.latencies);
    stamped.extend(samples.filter(Latencies::is_by_several));
}

fn seen_by(user_ns: Option<Time>, seen: Seen) -> Stamps {
    Stamps::of_ns(user_ns, seen.kernel_ns, seen.hardware_ns)
}
