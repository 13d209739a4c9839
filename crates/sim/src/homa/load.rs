//! The load: messages with their sizes, receivers and times.
//!
//! Invariant: a host's messages follow from the seed and the host alone, so that every transport is
//! given the same ones.

use tailcut_measure::arrivals::{Arrivals, ArrivalsError, Process};
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::workload::Workload;
use tailcut_proto::node::Time;

use super::Incast;

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
    /// Time at which the next message is due that is of no incast, from the start of the load, ns.
    next_ns: Time,
    /// Incasts that it has a part in, besides.
    incasts: Option<Part>,
}

/// Part of a host in incasts.
#[derive(Clone, Debug)]
struct Part {
    incast: Incast,
    seed: u64,
    /// Hosts of the network.
    hosts: u32,
    /// The next one that it begins messages of: its number, to whom it sends or whom it asks, and
    /// which of its messages is next.
    next: (u32, u32, u32),
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Time at which it is due, from the start of the load, ns.
    pub(super) at_ns: Time,
    pub(super) from: u32,
    pub(super) to: u32,
    /// Bytes.
    pub(super) len: u64,
    /// The incast that it is of.
    pub(super) incast: Option<u32>,
    /// The receiver asks for it.
    pub(super) is_asked: bool,
}

impl Message {
    /// The host that begins, and the other.
    pub(super) fn caller_and_called(&self) -> (u32, u32) {
        if self.is_asked { (self.to, self.from) } else { (self.from, self.to) }
    }
}

impl Part {
    /// The first message that `host` begins of the incasts from `number` on, of which it has begun
    /// so many.
    fn seek(&mut self, host: u32, mut number: u32, mut begun: u32) {
        loop {
            let drawn = self.hosts_of(number);
            let other = if self.incast.is_asked {
                drawn.get(1 + begun as usize).filter(|_| drawn[0] == host)
            } else {
                drawn.first().filter(|_| begun == 0 && drawn[1..].contains(&host))
            };
            if let Some(&other) = other {
                self.next = (number, other, begun);
                return;
            }
            (number, begun) = (number + 1, 0);
        }
    }

    /// The receiver of an incast, and then its senders.
    fn hosts_of(&self, number: u32) -> Vec<u32> {
        let mut draws = generator(self.seed, INCASTS + u64::from(number));
        let count = self.incast.senders as usize + 1;
        let drawn = rand::seq::index::sample(&mut draws, self.hosts as usize, count);
        drawn.into_iter().map(|host| host as u32).collect()
    }

    fn next_ns(&self) -> Time {
        (u64::from(self.next.0) + 1) * self.incast.every_ns
    }
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
            incasts: None,
        })
    }

    /// This host, which sends its part of incasts too, in a network of so many hosts.
    pub(super) fn with_incasts(mut self, seed: u64, incast: Incast, hosts: u32) -> Self {
        let mut part = Part { incast, seed, hosts, next: (0, 0, 0) };
        part.seek(self.host, 0, 0);
        self.incasts = Some(part);
        self
    }

    /// Time at which the next message is due, from the start of the load.
    pub(super) fn next_ns(&self) -> Time {
        self.incasts.as_ref().map_or(self.next_ns, |part| part.next_ns().min(self.next_ns))
    }

    /// Takes the next message.
    pub(super) fn take(&mut self, workload: &Workload) -> Message {
        if let Some(part) = self.incasts.as_mut().filter(|part| part.next_ns() <= self.next_ns) {
            let (at_ns, (number, other, begun)) = (part.next_ns(), part.next);
            part.seek(self.host, number, begun + 1);
            let Incast { len, is_asked, .. } = part.incast;
            let (from, to) = if is_asked { (other, self.host) } else { (self.host, other) };
            return Message { at_ns, from, to, len, incast: Some(number), is_asked };
        }
        let at_ns = std::mem::replace(&mut self.next_ns, self.arrivals.next_ns());
        let len = workload.sample(&mut self.draws);
        let to = self.receiver();
        Message { at_ns, from: self.host, to, len, incast: None, is_asked: false }
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
const INCASTS: u64 = 3 << 32;

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
    fn the_hosts_of_an_incast_agree_on_it() {
        let incast = Incast { senders: 5, len: 10_000, every_ns: 1_000, is_asked: false };
        let (sent, asked) = (bursts(incast), bursts(Incast { is_asked: true, ..incast }));
        assert_eq!(sent, asked, "whoever begins");
    }

    /// The hosts that send in each of 20 incasts of 12 hosts.
    fn bursts(incast: Incast) -> Vec<Vec<u32>> {
        let workload = Workload::named("w1").expect("it is kept");
        let mut bursts = vec![Vec::new(); 20];
        let mut receivers = [None; 20];
        for host in 0..12 {
            let source = Source::new(7, host, 0..12, 1e3).expect("a rate");
            let mut source = source.with_incasts(7, incast, 12);
            let mut before = 0;
            while source.next_ns() <= 20_000 {
                let message = source.take(&workload);
                assert!(message.at_ns >= before && message.to != message.from);
                assert_eq!(message.caller_and_called().0, host);
                before = message.at_ns;
                let Some(number) = message.incast else { continue };
                assert_eq!((message.len, message.at_ns), (10_000, u64::from(number + 1) * 1_000));
                bursts[number as usize].push(message.from);
                let receiver = receivers[number as usize].get_or_insert(message.to);
                assert_eq!(*receiver, message.to);
            }
        }
        for burst in &mut bursts {
            burst.sort_unstable();
            assert!(burst.len() == 5 && burst.is_sorted_by(|a, b| a < b), "{burst:?}");
        }
        assert!(receivers.iter().any(|host| *host != receivers[0]), "not always the same");
        bursts
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
