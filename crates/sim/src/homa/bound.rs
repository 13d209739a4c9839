//! Bound that no transport can beat: the wait behind the packets that links are carrying.
//!
//! A message comes at a moment that nobody could foresee, and a link does not break off the packet
//! that it carries. So however good its priority is, the message's first packet waits for the rest
//! of one packet at each port that is busy:
//!
//! | bound | ports | holds for |
//! |---|---|---|
//! | [`Ports::Sender`] | the sender's link | every transport: arrivals are Poisson, so that a message finds the link as it is at any time |
//! | [`Ports::All`] | that, those of the spines, and the receiver's | every transport whose hosts have no common clock by which packets begin, and whose switches leave no port idle while a packet waits: the waits at the ports are then independent |
//!
//! A link that carries a load has packets on it for that share of the time, and of a packet of `S`
//! bytes the rest is longer than `t` in the share `(S - t) / S` of its time. Both are the same
//! whatever the order of packets is; they follow from how messages are cut. Grants are not counted:
//! a better transport might need none. What follows for a size's p99 is a bound from below for all
//! sizes at once; that of long messages, which must also wait for shorter ones, is far above it.
//!
//! Invariant: every rounding makes the bound lower.

use tailcut_measure::workload::Workload;

use super::paper::{self, Cut};

/// The bound for messages of a workload.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Cut of messages into packets.
    cut: Cut,
    /// Share of the messages that stay in their rack.
    same_rack_share: f64,
    /// Waits of a message across racks.
    across: Waits,
    /// Waits of a message in a rack.
    within: Waits,
}

/// The ports at which a message is said to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// The sender's.
    Sender,
    /// All on its way.
    All,
}

impl Bound {
    /// The bound where data, with headers, take `busy_share` of the links of `hosts` hosts in whole
    /// racks.
    pub fn new(workload: &Workload, cut: Cut, busy_share: f64, hosts: u32, ports: Ports) -> Self {
        let packets = packets(workload, cut);
        let same_rack_share =
            f64::from(paper::RACK_HOSTS - 1) / f64::from(hosts.max(paper::RACK_HOSTS) - 1);
        let host = Waits::behind(&packets, busy_share, 1);
        if ports == Ports::Sender {
            return Self { cut, same_rack_share, across: host.clone(), within: host };
        }
        let spine_share = busy_share * (1.0 - same_rack_share);
        let spine = Waits::behind(&packets, spine_share, paper::SPINE_SPEEDUP);
        let within = host.plus(&host);
        Self { cut, same_rack_share, across: within.plus(&spine.plus(&spine)), within }
    }

    /// The least slowdown that a share of `exceeded` of all messages of `len` bytes has to exceed.
    pub fn slowdown(&self, len: u64, exceeded: f64) -> f64 {
        let parts = [(2, 1.0 - self.same_rack_share), (0, self.same_rack_share)];
        let share_above = |slowdown: f64| -> f64 {
            let of = |&(links, share): &(u64, f64)| {
                let waits = if links == 0 { &self.within } else { &self.across };
                let most_ps = slowdown * paper::ideal_ps(len, links) as f64;
                share * waits.share_above(most_ps - paper::alone_ps(len, links, self.cut) as f64)
            };
            parts.iter().map(of).sum()
        };
        let (mut low, mut high) = (0.0, SLOWDOWN_MAX);
        for _ in 0..BISECTIONS {
            let middle = 0.5 * (low + high);
            if share_above(middle) > exceeded { low = middle } else { high = middle }
        }
        low
    }
}

/// The distribution of a wait, in times of a byte on a host's link, rounded down.
#[derive(Clone, Debug, PartialEq)]
struct Waits(Vec<f64>);

impl Waits {
    /// The wait behind what a link carries that is `speedup` times as fast as a host's and busy for
    /// `busy_share` of the time.
    fn behind(packets: &[f64], busy_share: f64, speedup: usize) -> Self {
        let bytes: f64 =
            packets.iter().zip(0u32..).map(|(share, len)| share * f64::from(len)).sum();
        let mut shares = vec![0.0; packets.len() / speedup + 1];
        // A packet of 3 bytes has rests of up to 1, 2 and 3 bytes for as long each.
        for (len, share) in packets.iter().enumerate() {
            for rest in 0..len {
                shares[rest / speedup] += busy_share * share / bytes;
            }
        }
        shares[0] += 1.0 - busy_share;
        Self(shares)
    }

    /// The sum of two waits that know nothing of each other.
    fn plus(&self, other: &Self) -> Self {
        let mut shares = vec![0.0; self.0.len() + other.0.len()];
        for (place, share) in self.0.iter().enumerate() {
            for (more, also) in other.0.iter().enumerate() {
                shares[place + more] += share * also;
            }
        }
        Self(shares)
    }

    /// The share of waits above `wait_ps`.
    fn share_above(&self, wait_ps: f64) -> f64 {
        if wait_ps < 0.0 {
            return 1.0;
        }
        let place = (wait_ps / paper::HOST_PS_PER_BYTE as f64) as usize;
        self.0.iter().skip(place + 1).sum()
    }
}

/// Mean number of packets for each message, by their bytes on the wire.
fn packets(workload: &Workload, cut: Cut) -> Vec<f64> {
    let mut by_len = vec![0.0; FRAME_BYTES_MAX + 1];
    let mut before = 0.0;
    for &(size, cumulative) in workload.points() {
        let probability = cumulative - before;
        before = cumulative;
        paper::data_packets(size, cut, |count, wire_bytes| {
            by_len[wire_bytes as usize] += probability * count as f64;
        });
    }
    by_len
}

/// A full frame.
const FRAME_BYTES_MAX: usize = 1538;
/// More than a wait behind a packet at each port can make.
const SLOWDOWN_MAX: f64 = 100.0;
/// To far less than the histogram of a run can tell.
const BISECTIONS: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(text: &str) -> Workload {
        Workload::parse("test", text).expect("a workload")
    }

    /// Two lengths of packet, 2 and 4 bytes, as many of each: of the time that a link is busy, a
    /// third goes to the shorter, and the rests of 0 and 1 bytes are of either.
    #[test]
    fn the_rest_of_a_packet_is_as_often_long_as_packets_are() {
        let packets = [0.0, 0.0, 1.0, 0.0, 1.0];
        let found = Waits::behind(&packets, 0.6, 1);
        let expected = [0.4 + 0.2, 0.2, 0.1, 0.1, 0.0, 0.0];
        assert!(found.0.iter().zip(expected).all(|(found, share)| (found - share).abs() < 1e-12));
        let fast = Waits::behind(&packets, 0.6, 2);
        assert!((fast.0[0] - 0.8).abs() < 1e-12 && (fast.0[1] - 0.2).abs() < 1e-12, "{fast:?}");
    }

    #[test]
    fn waits_at_two_ports_add_up() {
        let one = Waits(vec![0.5, 0.0, 0.5]);
        assert_eq!(one.plus(&one).0[..5], [0.25, 0.0, 0.5, 0.0, 0.25]);
        assert_eq!(
            (one.share_above(-1.0), one.share_above(0.0), one.share_above(1600.0)),
            (1.0, 0.5, 0.0)
        );
    }

    /// Long messages load the link to 0.8 with full frames of 1,230.4 ns, and a message of one byte
    /// has a p99 behind all but a hundredth of those: P(wait > t) = 0.8 (1 - t / 1230.4) is 0.01 at
    /// t = 1215 ns. The message itself takes 2,444 ns across racks, of 2,418 that it ideally would.
    #[test]
    fn at_the_sender_alone_the_bound_is_that_of_one_packet() {
        let long = workload("1442000\n1442000 1\n");
        let found = Bound::new(&long, Cut::Full, 0.8, 1_600_000, Ports::Sender).slowdown(1, 0.01);
        assert!((found / ((2444.0 + 1215.0) / 2418.0) - 1.0).abs() < 0.001, "{found}");
    }

    /// Two waits that are uniform in 0.8 of all cases have a sum above 1.823 packets in a
    /// hundredth.
    #[test]
    fn at_both_ends_of_a_rack_the_bound_is_that_of_two_packets() {
        let long = workload("1442000\n1442000 1\n");
        let found = Bound::new(&long, Cut::Full, 0.8, 16, Ports::All).slowdown(1, 0.01);
        let expected = (1905.2 + 1.823 * 1230.4) / 1634.4;
        assert!((found / expected - 1.0).abs() < 0.002, "{found} {expected}");
    }

    #[test]
    fn nobody_waits_for_idle_links() {
        let found = Bound::new(&workload("100\n100 1\n"), Cut::Full, 0.0, 144, Ports::All)
            .slowdown(100, 0.01);
        let alone = paper::alone_ps(100, 0, Cut::Full) as f64 / paper::ideal_ps(100, 0) as f64;
        assert!((found - alone).abs() < 1e-6, "{found} {alone}");
    }

    #[test]
    fn more_ports_more_load_and_longer_packets_make_more_of_a_wait() {
        let w3 = Workload::named("w3").expect("it is kept");
        let of = |cut, share, ports| Bound::new(&w3, cut, share, 144, ports).slowdown(268, 0.01);
        let most = of(Cut::Full, 0.8, Ports::All);
        assert!(of(Cut::Full, 0.8, Ports::Sender) < most);
        assert!(of(Cut::Full, 0.5, Ports::All) < most);
        assert!(of(Cut::Short, 0.8, Ports::All) < most);
    }
}
