//! The load: messages with their sizes, receivers and times.
//!
//! Invariant: a host's messages follow from the seed and the host alone, so that every transport is
//! given the same ones.

use tailcut_measure::arrivals::{Arrivals, ArrivalsError, Process};
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::workload::Workload;
use tailcut_proto::node::Time;

/// The messages of one host: exponential gaps, sizes of a workload, each to any of the receivers
/// with the same probability.
#[derive(Clone, Debug)]
pub(super) struct Source {
    arrivals: Arrivals,
    draws: Generator,
    /// The host itself, and the hosts that it may send to: from the first on, so many.
    host: u32,
    first: u32,
    count: u32,
    /// When the next message is due, from the start of the load, ns.
    next_ns: Time,
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// When it is due, from the start of the load, ns.
    pub(super) at_ns: Time,
    pub(super) from: u32,
    pub(super) to: u32,
    /// Bytes.
    pub(super) len: u64,
}

impl Source {
    /// Messages of `host` at `rate_per_s` to the hosts of `receivers`, of which it may be one.
    pub(super) fn new(
        seed: u64,
        host: u32,
        receivers: std::ops::Range<u32>,
        rate_per_s: f64,
    ) -> Result<Self, ArrivalsError> {
        let stream = u64::from(host);
        let mut arrivals =
            Arrivals::new(Process::Poisson, rate_per_s, generator(seed, ARRIVALS + stream))?;
        let next_ns = arrivals.next_ns();
        let draws = generator(seed, SIZES + stream);
        Ok(Self {
            arrivals,
            draws,
            host,
            first: receivers.start,
            count: receivers.end - receivers.start,
            next_ns,
        })
    }

    /// When the next message is due, from the start of the load.
    pub(super) fn next_ns(&self) -> Time {
        self.next_ns
    }

    /// Takes the next message.
    pub(super) fn take(&mut self, workload: &Workload) -> Message {
        let at_ns = std::mem::replace(&mut self.next_ns, self.arrivals.next_ns());
        let len = workload.sample(&mut self.draws);
        Message { at_ns, from: self.host, to: self.receiver(), len }
    }

    fn receiver(&mut self) -> u32 {
        use rand::RngExt as _;
        let receivers = self.first..self.first + self.count;
        if !receivers.contains(&self.host) {
            return self.draws.random_range(receivers);
        }
        // All but the host itself.
        let place = self.draws.random_range(receivers.start..receivers.end - 1);
        if place >= self.host { place + 1 } else { place }
    }
}

/// Streams of the generator.
const ARRIVALS: u64 = 1 << 32;
const SIZES: u64 = 2 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_sends_to_all_others_and_never_to_itself() {
        let workload = Workload::named("w1").expect("it is kept");
        let mut source = Source::new(1, 3, 0..8, 1e6).expect("a rate");
        let mut seen = [0; 8];
        (0..7000).for_each(|_| seen[source.take(&workload).to as usize] += 1);
        assert_eq!(seen[3], 0);
        // A mean of 1000 with a standard deviation of 29.
        assert!(
            seen.iter().enumerate().all(|(host, &count)| host == 3 || (850..1150).contains(&count)),
            "{seen:?}"
        );
    }

    #[test]
    fn a_host_keeps_its_rate() {
        let workload = Workload::named("w1").expect("it is kept");
        let mut source = Source::new(1, 0, 8..16, 1e6).expect("a rate");
        let last = (0..100_000).map(|_| source.take(&workload)).last().expect("there are some");
        assert!(
            (last.at_ns as f64 / 1e8 - 1.0).abs() < 0.02 && (8..16).contains(&last.to),
            "{last:?}"
        );
    }
}
