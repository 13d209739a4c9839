//! The elements between nodes: partitions, crashes, slow hosts, wrong clocks, NICs with
//! backpressure.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_sim::clock::Clock;
use tailcut_sim::fabric::port::Link;
use tailcut_sim::fabric::topology::{Switch, Topology};
use tailcut_sim::impair::Impairment;
use tailcut_sim::network::{Carriage, HostDelays, Network};

/// Sends what it is told to, hears what it is sent, and notes when its timer fired.
#[derive(Default)]
struct Toy {
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
    heard: Vec<(Time, SocketAddr, Vec<u8>)>,
    deadline: Option<Time>,
    fired: Vec<Time>,
}

impl Node for Toy {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.heard.push((now, path.peer, bytes.to_vec()));
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.fired.push(now);
        }
    }

    fn poll_transmit(&mut self, _now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let (to, bytes) = self.outbox.pop_front()?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Some(Transmit::single(to, bytes.len()))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.deadline
    }
}

#[test]
fn a_partition_of_one_way_leaves_the_other_open() {
    let mut network = pair();
    network.block(0, 1);
    say(&mut network, 0, b"lost");
    say(&mut network, 1, b"heard");
    network.run(1_000_000, |_| {});
    assert_eq!((heard(&network, 1), heard(&network, 0)), (vec![], vec![(5000, b"heard".to_vec())]));
    assert_eq!(network.statistics().blocked, 1);
}

#[test]
fn a_healed_partition_carries_again() {
    let mut network = pair();
    network.block(0, 1);
    say(&mut network, 0, b"lost");
    network.unblock(0, 1);
    say(&mut network, 0, b"carried");
    network.run(1_000_000, |_| {});
    assert_eq!(heard(&network, 1), [(5000, b"carried".to_vec())]);
}

#[test]
fn a_dead_host_hears_nothing_and_its_successor_knows_nothing() {
    let mut network = pair();
    network.node_mut(1).deadline = Some(10_000);
    network.flush(1);
    network.set_up(1, false);
    say(&mut network, 0, b"unheard");
    network.run(20_000, |_| {});
    assert_eq!((network.statistics().unheard, network.node(1).fired.len()), (1, 0));
    network.replace(1, Toy::default());
    say(&mut network, 0, b"heard");
    network.run(1_000_000, |_| {});
    assert_eq!(heard(&network, 1), [(25_000, b"heard".to_vec())]);
}

#[test]
fn a_slow_host_is_late_both_ways() {
    let mut network = pair();
    network.set_delays(1, HostDelays { transmit_ns: 70_000, receive_ns: 300_000 });
    say(&mut network, 0, b"in");
    say(&mut network, 1, b"out");
    network.run(1_000_000, |_| {});
    assert_eq!((heard(&network, 1)[0].0, heard(&network, 0)[0].0), (305_000, 75_000));
}

#[test]
fn what_is_under_way_for_too_long_is_lost_where_there_is_a_bound() {
    let mut network = pair();
    network.set_transit_ns_max(1, 304_999);
    network.set_delays(1, HostDelays { transmit_ns: 300_000, receive_ns: 300_000 });
    say(&mut network, 0, b"late");
    say(&mut network, 1, b"without a bound");
    network.run(1_000_000, |_| {});
    assert_eq!((heard(&network, 1).len(), heard(&network, 0).len()), (0, 1));
    assert_eq!(network.statistics().late, 1);
    network.set_transit_ns_max(1, 305_000);
    say(&mut network, 0, b"in time");
    network.run(2_000_000, |_| {});
    assert_eq!(heard(&network, 1), [(1_305_000, b"in time".to_vec())]);
}

#[test]
fn what_waits_in_the_socket_of_a_paused_host_has_arrived() {
    let mut network = pair();
    network.set_transit_ns_max(1, 5_000);
    network.pause(1, 1);
    say(&mut network, 0, b"kept");
    network.run(1_000_000, |_| {});
    network.resume(1);
    network.run(2_000_000, |_| {});
    assert_eq!(heard(&network, 1), [(1_000_000, b"kept".to_vec())]);
}

/// A clock that is a tenth of a second ahead and 100 ppm too fast.
#[test]
fn a_node_lives_by_its_own_clock() {
    let mut network = pair();
    network.set_clock(1, Clock { offset_ns: 100_000_000, drift_ppb: 100_000 });
    network.node_mut(1).deadline = Some(1_100_000_000);
    network.flush(1);
    network.run(999_000_000, |_| {});
    assert!(network.node(1).fired.is_empty());
    network.run(1_000_000_000, |_| {});
    let fired = network.node(1).fired[0];
    assert!((1_100_000_000..1_100_000_002).contains(&fired), "{fired}");
    assert_eq!(network.local(1), 1_100_100_000);
}

#[test]
fn an_alarm_gives_the_application_a_turn_at_its_time() {
    let mut network = pair();
    network.wake_at(0, 700, 1);
    let mut turns = Vec::new();
    network.run(5_000, |turn| {
        turns.push((turn.now, turn.place, turn.alarm));
        if turn.alarm == Some(1) {
            turn.wake_in(50, 2);
            turn.node.outbox.push_back((address(1), b"from an alarm".to_vec()));
        }
    });
    assert_eq!(turns, [(700, 0, Some(1)), (750, 0, Some(2))]);
    network.run(10_000, |_| {});
    assert_eq!(heard(&network, 1)[0].0, 5700);
}

#[test]
fn a_stranger_s_datagram_goes_nowhere() {
    let mut network = pair();
    network.node_mut(0).outbox.push_back((address(77), b"hello".to_vec()));
    network.flush(0);
    network.run(1_000_000, |_| {});
    assert_eq!((network.statistics().stray, network.statistics().delivered), (1, 0));
}

#[test]
fn a_limited_nic_asks_for_more_as_it_drains() {
    let mut network = Network::over(&topology(), 2, 1);
    for host in 0..2 {
        network.add(address(host), Toy::default(), Impairment::NONE, 1);
    }
    network.limit_nic(0, 2000);
    network.node_mut(0).outbox = (0..10).map(|_| (address(1), vec![0; 934])).collect();
    network.flush(0);
    // One of 1,000 bytes on the wire is under way, two wait: that is the limit.
    assert_eq!(network.node(0).outbox.len(), 7);
    network.run(1_000_000, |_| {});
    assert_eq!((network.node(0).outbox.len(), network.node(1).heard.len()), (0, 10));
}

/// 1,000 bytes on the wire of 1 Gbit/s are 8 us each way: the second is asked for when the first
/// has left, not before.
#[test]
fn a_paced_nic_asks_for_one_datagram_when_it_is_idle() {
    let mut network = Network::over(&topology(), 2, 1);
    for host in 0..2 {
        network.add(address(host), Toy::default(), Impairment::NONE, 1);
    }
    network.pace_nic(0, 934);
    network.node_mut(0).outbox = (0..3).map(|_| (address(1), vec![0; 934])).collect();
    network.flush(0);
    let mut left = Vec::new();
    for until in [7_999, 8_000, 16_000, 24_000, 32_000] {
        left.push(network.node(0).outbox.len());
        network.run(until, |_| {});
    }
    assert_eq!(left, [2, 2, 1, 0, 0]);
    assert_eq!(
        heard(&network, 1).iter().map(|(at, _)| *at).collect::<Vec<_>>(),
        [16_000, 24_000, 32_000]
    );
}

/// Datagrams that go aside wait for nobody and nobody for them; what is left on the links is
/// charged as the framing says.
#[test]
fn a_framing_says_what_a_datagram_takes_of_the_links() {
    let mut network = Network::over(&topology(), 2, 1);
    for host in 0..2 {
        network.add(address(host), Toy::default(), Impairment::NONE, 1);
    }
    network.set_delays(0, HostDelays { transmit_ns: 100, receive_ns: 0 });
    network.set_framing(|bytes| {
        if bytes[0] == 0 { Carriage::Aside } else { Carriage::Links(10 * u32::from(bytes[0])) }
    });
    say(&mut network, 0, &[100]);
    say(&mut network, 0, &[0]);
    say(&mut network, 0, &[50]);
    network.run(1_000_000, |_| {});
    assert_eq!(heard(&network, 1), [(100, vec![0]), (16_100, vec![100]), (20_100, vec![50])]);
}

#[test]
fn equal_runs_have_equal_hashes_and_a_byte_makes_another() {
    let hash = |bytes: &[u8]| {
        let mut network = pair();
        say(&mut network, 0, bytes);
        network.run(1_000_000, |_| {});
        network.statistics().trace_hash
    };
    assert_eq!(hash(b"twenty bytes of text"), hash(b"twenty bytes of text"));
    assert_ne!(hash(b"twenty bytes of text"), hash(b"twenty bytes of tex."));
    assert_ne!(hash(b"a"), hash(b"a\0"));
}

#[test]
#[should_panic(expected = "the topology has 1 hosts")]
fn a_topology_has_so_many_hosts() {
    let mut network = Network::over(&topology(), 1, 1);
    for host in 0..2 {
        network.add(address(host), Toy::default(), Impairment::NONE, 1);
    }
}

fn pair() -> Network<Toy> {
    let mut network = Network::new();
    for host in 0..2 {
        network.add(address(host), Toy::default(), Impairment::default(), u64::from(host));
    }
    network
}

fn say(network: &mut Network<Toy>, from: usize, bytes: &[u8]) {
    network.node_mut(from).outbox.push_back((address(1 - from as u8), bytes.to_vec()));
    network.flush(from);
}

fn heard(network: &Network<Toy>, place: usize) -> Vec<(Time, Vec<u8>)> {
    network.node(place).heard.iter().map(|(at, _, bytes)| (*at, bytes.clone())).collect()
}

fn address(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 9000).into()
}

/// A switch of hosts at 1 Gbit/s.
fn topology() -> Topology {
    Topology { link: Link::new(1.0, 0), switch: Switch::default(), racks: None }
}
