//! Times, orders and counts that can be computed by hand.

use super::port::{Link, SwitchBuffer};
use super::topology::{Pods, Racks, Spreading, Switch};
use super::*;

/// 10 Gbit/s and 5 ns a hop, 250 ns in the switch: 1,000 bytes take 2 x (800 + 5) + 250 ns.
#[test]
fn a_packet_is_stored_and_forwarded() {
    let mut bench = Bench::new(&single(2, SwitchBuffer::default()));
    bench.send(0, packet(0, 1, 1000, 0));
    assert_eq!(bench.run(), [(1_860_000, 0)]);
}

#[test]
fn packets_of_one_sender_share_its_link() {
    let mut bench = Bench::new(&single(3, SwitchBuffer::default()));
    bench.send(0, Packet { tag: 1, ..packet(0, 1, 1000, 0) });
    bench.send(0, Packet { tag: 2, ..packet(0, 2, 1000, 0) });
    assert_eq!(bench.run(), [(1_860_000, 1), (2_660_000, 2)]);
}

#[test]
fn a_higher_priority_overtakes_what_waits() {
    let mut bench = Bench::new(&single(3, SwitchBuffer::default()));
    for (tag, priority) in [(1, 0), (2, 0), (3, 7), (4, 3)] {
        bench.send(0, Packet { tag, ..packet(0, 1, 1000, priority) });
    }
    let order: Vec<u32> = bench.run().iter().map(|&(_, tag)| tag).collect();
    assert_eq!(order, [1, 3, 4, 2]);
}

#[test]
fn a_full_buffer_drops_and_counts() {
    let mut bench =
        Bench::new(&single(4, SwitchBuffer { capacity_bytes: 2000, mark_bytes: u64::MAX }));
    // Three senders at once: one packet is on the link to host 3, two wait, and the fourth and
    // fifth find no place.
    for from in [0, 1, 2] {
        bench.send(0, packet(from, 3, 1000, 0));
    }
    bench.send(0, packet(0, 3, 1000, 0));
    bench.send(0, packet(1, 3, 1000, 0));
    bench.send(0, packet(2, 3, 1000, 0));
    let delivered = bench.run().len();
    let counters = bench.fabric.switch_counters();
    assert_eq!((delivered as u64 + counters.dropped, bench.dropped), (6, counters.dropped));
    assert!(counters.dropped > 0 && counters.queued_bytes_max <= 2000, "{counters:?}");
    assert_eq!(bench.fabric.in_flight(), 0);
}

#[test]
fn a_long_queue_marks() {
    let mut bench =
        Bench::new(&single(4, SwitchBuffer { capacity_bytes: u64::MAX, mark_bytes: 1500 }));
    for from in [0, 1, 2] {
        bench.send(0, packet(from, 3, 1000, 0));
    }
    bench.run();
    // The first is on the link before the second comes; the third finds 1,000 bytes and makes it
    // 2,000.
    assert_eq!(bench.fabric.last_hop_counters(3).marked, 1);
}

#[test]
fn spraying_uses_every_spine_and_a_flow_uses_one() {
    for (spreading, expected) in [(Spreading::Spray, 4), (Spreading::Flow, 1)] {
        let mut bench = Bench::new(&leaf_spine(spreading));
        for _ in 0..100 {
            bench.send(0, packet(0, 5, 1000, 0));
        }
        assert_eq!(bench.run().len(), 100);
        let up = &bench.fabric.ports[16..16 + 4];
        assert_eq!(up.iter().filter(|port| port.counters.sent > 0).count(), expected);
    }
}

/// Two 10 Gbit/s and two 40 Gbit/s links, three switches: 2 x 800 + 2 x 200 + 4 x 5 + 3 x 250 ns.
#[test]
fn another_rack_is_two_hops_further() {
    let mut bench = Bench::new(&leaf_spine(Spreading::Spray));
    bench.send(0, packet(0, 5, 1000, 0));
    assert_eq!(bench.run(), [(2_770_000, 0)]);
}

/// There are 3 pods of 2 racks of 2 hosts under 2 spines, with 2 cores above each: links of a rack,
/// a pod and the core. Each host reaches each other, by as many hops as it is away.
#[test]
fn pods_are_joined_by_cores() {
    for spreading in [Spreading::Spray, Spreading::Flow] {
        for from in 0..12 {
            for to in (0..12).filter(|to| *to != from) {
                let mut bench = Bench::new(&pods(spreading));
                assert_eq!(bench.fabric.ports.len(), 12 + 12 + 6 * 2 + 6 * 2 + 6 * 2 + 4 * 3);
                bench.send(0, packet(from, to, 1000, 0));
                // Two links of 10 Gbit/s; between racks two of 40 Gbit/s, between pods two of 20
                // Gbit/s more.
                let expected = match (from / 2 == to / 2, from / 4 == to / 4) {
                    (true, _) => 1_860_000,
                    (false, true) => 2_770_000,
                    (false, false) => 2_770_000 + 2 * (400_000 + 5_000 + 250_000),
                };
                assert_eq!(bench.run(), [(expected, 0)], "{spreading:?}: {from} to {to}");
            }
        }
    }
}

#[test]
fn spraying_uses_every_core_and_a_flow_uses_one() {
    for (spreading, expected) in [(Spreading::Spray, 4), (Spreading::Flow, 1)] {
        let mut bench = Bench::new(&pods(spreading));
        for _ in 0..100 {
            bench.send(0, packet(0, 11, 1000, 0));
        }
        assert_eq!(bench.run().len(), 100);
        let count = |ports: std::ops::Range<usize>| {
            bench.fabric.ports[ports].iter().filter(|port| port.counters.sent > 0).count()
        };
        // The last three groups: towards leaves, cores, and from cores.
        assert_eq!((count(48..60), count(60..72)), (expected, expected), "{spreading:?}");
        assert_eq!(count(36..48), expected.min(2), "the two spines of the last pod");
    }
    // Flows that share a spine do not share a core.
    let mut bench = Bench::new(&pods(Spreading::Flow));
    for (from, to) in (0..4).flat_map(|from| (4..12).map(move |to| (from, to))) {
        bench.send(0, packet(from, to, 1000, 0));
    }
    assert_eq!(bench.run().len(), 32);
    let up = &bench.fabric.ports[48..52];
    assert!(up.iter().all(|port| port.counters.sent > 2), "each core of each of its spines");
}

#[test]
fn a_watched_nic_tells_when_it_is_free() {
    let mut bench = Bench::new(&single(2, SwitchBuffer::default()));
    bench.fabric.watch_nic(0);
    bench.send(0, packet(0, 1, 1000, 0));
    bench.send(0, packet(0, 1, 1000, 0));
    bench.run();
    assert_eq!(bench.nic_free, [800_000, 1_600_000]);
}

/// The second packet comes at the instant at which the link is free, before the fabric has looked
/// at it; the third waits for it.
#[test]
fn a_watched_nic_carries_one_packet_at_a_time() {
    let mut bench = Bench::new(&single(2, SwitchBuffer::default()));
    bench.fabric.watch_nic(0);
    bench.send(0, Packet { tag: 1, ..packet(0, 1, 1000, 0) });
    bench.send(800_000, Packet { tag: 2, ..packet(0, 1, 1000, 0) });
    bench.send(800_000, Packet { tag: 3, ..packet(0, 1, 1000, 0) });
    assert_eq!(bench.run(), [(1_860_000, 1), (2_660_000, 2), (3_460_000, 3)]);
    assert_eq!(bench.nic_free, [1_600_000, 2_400_000]);
}

struct Bench {
    fabric: Fabric,
    agenda: Agenda<Event>,
    dropped: u64,
    nic_free: Vec<u64>,
}

impl Bench {
    fn new((topology, hosts): &(Topology, u32)) -> Self {
        Self {
            fabric: Fabric::new(topology, *hosts, 1),
            agenda: Agenda::new(),
            dropped: 0,
            nic_free: Vec::new(),
        }
    }

    fn send(&mut self, now: u64, packet: Packet) {
        let happening = self.fabric.send(now, packet, &mut self.agenda);
        assert_eq!(happening, None, "a NIC has no end");
    }

    /// Arrival time and tag of each packet.
    fn run(&mut self) -> Vec<(u64, u32)> {
        let mut delivered = Vec::new();
        while let Some((now, event)) = self.agenda.pop() {
            match self.fabric.handle(now, event, &mut self.agenda) {
                Some(Happening::Delivered(packet)) => delivered.push((now, packet.tag)),
                Some(Happening::Dropped(_)) => self.dropped += 1,
                Some(Happening::NicFree(_)) => self.nic_free.push(now),
                None => {}
            }
        }
        delivered
    }
}

fn packet(from: u32, to: u32, wire_bytes: u32, priority: u8) -> Packet {
    Packet { from, to, wire_bytes, priority, ..Packet::default() }
}

/// A topology, and how many hosts it is for.
fn single(hosts: u32, buffer: SwitchBuffer) -> (Topology, u32) {
    let switch = Switch { delay_ps: 250_000, buffer };
    (Topology { link: Link::new(10.0, 5), switch, racks: None }, hosts)
}

fn pods(spreading: Spreading) -> (Topology, u32) {
    let (topology, hosts) = single(12, SwitchBuffer::default());
    let pods = Some(Pods { racks: 2, cores: 2, link: Link::new(20.0, 5) });
    let racks = Racks { hosts: 2, spines: 2, link: Link::new(40.0, 5), spreading, pods };
    (Topology { racks: Some(racks), ..topology }, hosts)
}

fn leaf_spine(spreading: Spreading) -> (Topology, u32) {
    let (topology, hosts) = single(8, SwitchBuffer::default());
    let racks = Racks { hosts: 4, spines: 4, link: Link::new(40.0, 5), spreading, pods: None };
    (Topology { racks: Some(racks), ..topology }, hosts)
}
