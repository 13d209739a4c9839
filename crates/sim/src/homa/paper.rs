//! The network of the Homa paper's simulation (Montazeri et al., SIGCOMM'18, section 5.2), and what
//! it charges and measures.
//!
//! | what | constant |
//! |---|---|
//! | hosts | 16 a rack, at 10 Gbit/s |
//! | between racks | four spines at 40 Gbit/s, each packet over one drawn at random; no propagation delay, buffers without end |
//! | delays | 0.25 us at each switch's output, 0.5 us of software at each host, 0.5 us in the sender's NIC |
//! | a packet on the wire | data, its header, 28 bytes of IPv4 and UDP, at least 46; and 38 of Ethernet, preamble and gap |
//! | headers | 30 bytes while the sender needs no grant, 16 bytes after; a grant is the shortest frame, 84 bytes |
//! | unscheduled | 9,328 bytes of data in packets of 1,442, then granted packets of 1,456 |
//!
//! Invariant: these are published numbers, but for [`Cut::Short`]; nothing here follows from what a
//! transport does.

use tailcut_measure::workload::Workload;

use crate::fabric::port::{Link, SwitchBuffer};
use crate::fabric::topology::{Pods, Racks, Spreading, Switch, Topology};
use crate::network::HostDelays;

/// Hosts of a rack.
pub const RACK_HOSTS: u32 = 16;
/// Bytes of data in a full packet that needs no grant.
pub const UNSCHEDULED_DATA_LEN: u64 = 1442;
/// Bytes of data in a full packet that was granted.
pub const SCHEDULED_DATA_LEN: u64 = 1456;
/// Bytes of a message that need no grant.
pub const UNSCHEDULED_BYTES: u64 = 9328;
/// Bytes on the wire that a sender may have under way for one message.
pub const RTT_BYTES: u64 = 10_000;
/// Bytes of a control packet on the wire: the shortest frame.
pub const CONTROL_WIRE_BYTES: u32 = 84;
/// The delays of each host's software; the sender's with its NIC's.
pub const DELAYS: HostDelays = HostDelays { transmit_ns: 1000, receive_ns: 500 };
/// The rate of a host's link.
pub const HOST_GBIT: f64 = 10.0;

/// Cut of messages into packets, and amount of one that is granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Full ones and a rest, each of which is granted by itself, as published.
    Full,
    /// Packets of 1,000 bytes, equal ones where a message needs no grant; ten are granted at once,
    /// which is what a sender may have under way.
    Short,
}

impl Cut {
    /// Bytes of data in the first packet of a message of `len` bytes, if it is longer than that.
    pub fn packet_len(self, len: u64) -> u64 {
        match self {
            Self::Full => UNSCHEDULED_DATA_LEN,
            Self::Short if (1..=UNSCHEDULED_BYTES).contains(&len) => {
                len.div_ceil(len.div_ceil(SHORT_DATA_LEN))
            }
            Self::Short => SHORT_DATA_LEN,
        }
    }

    /// Bytes of data in a packet that was granted, and in all that is granted at once.
    pub fn granted_lens(self) -> (u64, u64) {
        match self {
            Self::Full => (SCHEDULED_DATA_LEN, SCHEDULED_DATA_LEN),
            Self::Short => (SHORT_DATA_LEN, SHORT_GRANT_LEN),
        }
    }
}

/// Pods of racks, in place of racks that are all under the same four spines: those of a pod are
/// under four spines of its own, above each of which are cores, by links of 40 Gbit/s. It is no
/// network of the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodShape {
    /// Racks of a pod; a multiple of `oversubscription`.
    pub racks: u32,
    /// Ratio of the rate of a pod's links of racks to that of its spines' links to cores: 1 where
    /// the core has room for everything.
    pub oversubscription: u32,
}

/// Racks of 16 hosts under four spines, or in pods; a single switch for 16 hosts or fewer.
pub fn topology(
    hosts: u32,
    pods: Option<PodShape>,
    buffer: SwitchBuffer,
    spreading: Spreading,
) -> Topology {
    let switch = Switch { delay_ps: SWITCH_PS, buffer };
    let link = Link::new(SPINE_GBIT, 0);
    let pods = pods.map(|PodShape { racks, oversubscription }| Pods {
        racks,
        cores: racks / oversubscription,
        link,
    });
    let racks = Racks { hosts: RACK_HOSTS, spines: SPINES, link, spreading, pods };
    Topology { link: Link::new(HOST_GBIT, 0), switch, racks: (hosts > RACK_HOSTS).then_some(racks) }
}

/// Bytes on the wire of a packet that needs no grant.
pub fn unscheduled_wire_bytes(data_len: u32) -> u32 {
    wire_bytes(data_len, UNSCHEDULED_HEADER_LEN)
}

/// Bytes on the wire of a packet that was granted.
pub fn scheduled_wire_bytes(data_len: u32) -> u32 {
    wire_bytes(data_len, SCHEDULED_HEADER_LEN)
}

/// The share of the wire's bytes that are data, where grants are counted too: what the paper
/// multiplies a load with to get a rate of data (0.657, 0.796, 0.887, 0.898, 0.898 for W1 to W5).
pub fn data_share(workload: &Workload) -> f64 {
    workload.mean_bytes() / expected_bytes(workload, message_wire_bytes)
}

/// The time that a slowdown is the multiple of: that of a message of `len` bytes on an idle network
/// without a transport's headers. Between its switches are `links`: none within a rack, two between
/// racks, and four between pods.
///
/// Where sender and receiver share a rack the paper's code leaves the switch's delay out, and so
/// does this, because its curves have it so; a short message in a rack has a slowdown of at least
/// 1.15 for that reason.
pub fn ideal_ps(len: u64, links: u64) -> u64 {
    let first_frame = ideal_frame(len.min(IDEAL_DATA_LEN));
    let across_ps = (links + 1) * SWITCH_PS + links * first_frame * SPINE_PS_PER_BYTE;
    let hosts_ps = (DELAYS.transmit_ns + DELAYS.receive_ns) * crate::PS_PER_NS;
    let switches_ps = first_frame * HOST_PS_PER_BYTE + if links == 0 { 0 } else { across_ps };
    ideal_link_ps(len) + hosts_ps + switches_ps
}

/// The time of a message's frames on a host's link, without a transport's headers.
pub fn ideal_link_ps(len: u64) -> u64 {
    let full = len / IDEAL_DATA_LEN * ideal_frame(IDEAL_DATA_LEN);
    (full + ideal_frame(len % IDEAL_DATA_LEN)) * HOST_PS_PER_BYTE
}

/// Bytes on the wire of a frame with so much data.
fn ideal_frame(data_len: u64) -> u64 {
    if data_len == 0 {
        0
    } else {
        (data_len + IDEAL_OVERHEAD_BYTES).max(u64::from(CONTROL_WIRE_BYTES))
    }
}

/// The shortest time of a message of `len` bytes over one switch with a transport's own headers, if
/// grants are never late.
pub fn single_switch_ps(len: u64) -> u64 {
    alone_ps(len, 0, Cut::Full)
}

/// The shortest time of a message of `len` bytes on an idle network with its packets' headers and
/// so many links between switches, if grants are never late.
pub fn alone_ps(len: u64, links: u64, cut: Cut) -> u64 {
    let first_bytes = u64::from(unscheduled_wire_bytes(len.min(cut.packet_len(len)) as u32));
    let hosts_ps = (DELAYS.transmit_ns + DELAYS.receive_ns) * crate::PS_PER_NS;
    let mut bytes = first_bytes;
    data_packets(len, cut, |count, wire_bytes| bytes += count * u64::from(wire_bytes));
    let spines_ps = links * (SWITCH_PS + first_bytes * SPINE_PS_PER_BYTE);
    bytes * HOST_PS_PER_BYTE + SWITCH_PS + hosts_ps + spines_ps
}

/// Bytes on the wire of a message's data.
pub fn data_wire_bytes(len: u64) -> u64 {
    let mut bytes = 0;
    data_packets(len, Cut::Full, |count, wire_bytes| bytes += count * u64::from(wire_bytes));
    bytes
}

/// The packets of a message's data: how many, and bytes on the wire of each.
pub fn data_packets(len: u64, cut: Cut, mut packets: impl FnMut(u64, u32)) {
    let unscheduled = len.min(UNSCHEDULED_BYTES);
    let mut part = |len: u64, data_len_max: u64, wire_bytes: fn(u32) -> u32| {
        packets(len / data_len_max, wire_bytes(data_len_max as u32));
        if !len.is_multiple_of(data_len_max) {
            packets(1, wire_bytes((len % data_len_max) as u32));
        }
    };
    part(unscheduled, cut.packet_len(len), unscheduled_wire_bytes);
    part(len - unscheduled, cut.granted_lens().0, scheduled_wire_bytes);
}

/// The share of the hosts' links that data takes with its headers at a load, which counts grants
/// too.
pub fn busy_share(workload: &Workload, load: f64) -> f64 {
    let bytes = |of: fn(u64) -> u64| expected_bytes(workload, of);
    load * bytes(data_wire_bytes) / bytes(message_wire_bytes)
}

/// Bytes on the wire of a message, its grants among them.
fn message_wire_bytes(len: u64) -> u64 {
    let grants = len.saturating_sub(UNSCHEDULED_BYTES).div_ceil(SCHEDULED_DATA_LEN);
    data_wire_bytes(len) + grants * u64::from(CONTROL_WIRE_BYTES)
}

/// The mean over messages of what `of` says of their length.
fn expected_bytes(workload: &Workload, of: fn(u64) -> u64) -> f64 {
    let mut before = 0.0;
    let mut bytes = 0.0;
    for &(size, cumulative) in workload.points() {
        bytes += of(size) as f64 * (cumulative - before);
        before = cumulative;
    }
    bytes
}

fn wire_bytes(data_len: u32, header_len: u32) -> u32 {
    (data_len + header_len + IP_UDP_LEN).max(ETHERNET_DATA_LEN_MIN) + ETHERNET_LEN
}

const SHORT_DATA_LEN: u64 = 1000;
const SHORT_GRANT_LEN: u64 = 10 * SHORT_DATA_LEN;
const SPINES: u32 = 4;
const SPINE_GBIT: f64 = 40.0;
const SWITCH_PS: u64 = 250_000;
/// Time of a byte on a host's link.
pub(super) const HOST_PS_PER_BYTE: u64 = 800;
const SPINE_PS_PER_BYTE: u64 = 200;
/// Ratio of the rate of the spines' links to that of a host's.
pub(super) const SPINE_SPEEDUP: usize = (HOST_PS_PER_BYTE / SPINE_PS_PER_BYTE) as usize;
const UNSCHEDULED_HEADER_LEN: u32 = 30;
const SCHEDULED_HEADER_LEN: u32 = 16;
const IP_UDP_LEN: u32 = 28;
/// Header, checksum, preamble and gap between frames.
const ETHERNET_LEN: u32 = 38;
const ETHERNET_DATA_LEN_MIN: u32 = 46;
/// Data of a full packet that has no transport's header.
const IDEAL_DATA_LEN: u64 = 1472;
const IDEAL_OVERHEAD_BYTES: u64 = 66;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_data_is_the_published_one() {
        for (name, published) in
            [("w1", 0.657), ("w2", 0.796), ("w3", 0.887), ("w4", 0.898), ("w5", 0.898)]
        {
            let share = data_share(&Workload::named(name).expect("it is kept"));
            assert!((share - published).abs() < 0.002, "{name}: {share}");
        }
    }

    /// Published: 2.3 us for a short message, and 10 kB under way in 7.8 us of round trip.
    #[test]
    fn ideal_times_can_be_computed_by_hand() {
        // 84 bytes: 67.2 + 67.2 + 2 x 16.8 ns on links, 3 x 250 in switches, 1500 in hosts.
        assert_eq!(ideal_ps(1, 2), 2_418_000);
        assert_eq!(ideal_ps(1, 0), 1_634_400);
        // Two links and two switches more.
        assert_eq!(ideal_ps(1, 4), 2_418_000 + 2 * 16_800 + 500_000);
        // 1538 bytes: 1230.4 twice, 307.6 twice.
        assert_eq!(ideal_ps(1472, 2), 5_326_000);
        // One byte more is a second frame of 84 bytes.
        assert_eq!(ideal_ps(1473, 2), 5_393_200);
    }

    /// Three packets of 1,538, 1,538 and 112 bytes: one after the other on a host's link, and the
    /// first of them on three more. Of short ones there are as many, with 967 bytes of data and
    /// 1,063 in all, the last a byte less.
    #[test]
    fn a_message_alone_takes_its_packets_and_the_way_of_the_first() {
        let [full, short] = [Cut::Full, Cut::Short].map(|cut| alone_ps(2900, 0, cut));
        assert_eq!(full, (3188 + 1538) * 800 + 250_000 + 1_500_000);
        assert_eq!(short, full - (1538 - 1063) * 800);
        for links in [2, 4] {
            assert_eq!(alone_ps(2900, links, Cut::Full), full + links * (250_000 + 1538 * 200));
        }
    }

    /// After 10 packets of what needs no grant, the last with 328 bytes.
    #[test]
    fn short_packets_have_a_thousand_bytes() {
        let mut packets = Vec::new();
        data_packets(12_000, Cut::Short, |count, wire_bytes| packets.push((count, wire_bytes)));
        assert_eq!(packets, [(9, 1096), (1, 328 + 96), (2, 1082), (1, 672 + 82)]);
    }

    /// W4 has few bytes that need no grant, so that grants are 84 bytes for almost each 1,538.
    #[test]
    fn grants_are_no_data() {
        let share = busy_share(&Workload::named("w4").expect("it is kept"), 0.8);
        assert!((share / (0.8 * 1538.0 / (1538.0 + 84.0)) - 1.0).abs() < 0.01, "{share}");
    }

    #[test]
    fn a_full_packet_is_a_full_frame() {
        assert_eq!(unscheduled_wire_bytes(UNSCHEDULED_DATA_LEN as u32), 1538);
        assert_eq!(scheduled_wire_bytes(SCHEDULED_DATA_LEN as u32), 1538);
        assert_eq!(
            (unscheduled_wire_bytes(1), scheduled_wire_bytes(1), scheduled_wire_bytes(3)),
            (97, 84, 85)
        );
    }
}
