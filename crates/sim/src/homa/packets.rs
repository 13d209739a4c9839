//! A run of a transport over links and switches.
//!
//! A host hands its NIC one packet each time the link is idle, so that the transport decides what
//! leaves next, and not the NIC's queue.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tailcut_proto::node::Time;

use super::load::{Message, Source};
use super::messenger::Messenger;
use super::record::Record;
use super::{Counts, Experiment, Findings, Links, Said, paper};
use crate::PS_PER_NS;
use crate::fabric::port::SwitchBuffer;
use crate::fabric::topology::Spreading;
use crate::impair::Impairment;
use crate::network::{Framing, Network, Turn};

/// How packets are carried.
pub(super) struct Carrier {
    pub(super) framing: Framing,
    /// Bytes of a packet that may be anything but zero.
    pub(super) head_len: usize,
    pub(super) spreading: Spreading,
}

/// The applications of all hosts.
struct Hosts<'a> {
    experiment: &'a Experiment,
    sources: Vec<Source>,
    /// Messages of each host that wait because as many as may be are outstanding.
    backlogs: Vec<VecDeque<Message>>,
    /// Messages of each host that have been sent and have not arrived.
    outstanding: Vec<u32>,
    /// Messages under way, by their words; free places hold what was there.
    under_way: Vec<Message>,
    free: Vec<u32>,
    record: Record<'a>,
    counts: Counts,
}

/// Runs `experiment` with a `node` of a transport at every host.
pub(super) fn run<N: Messenger>(
    experiment: &Experiment,
    sources: Vec<Source>,
    carrier: Carrier,
    node: impl Fn(u32) -> N,
) -> Findings {
    let buffer = SwitchBuffer {
        capacity_bytes: experiment.buffer_bytes.unwrap_or(u64::MAX),
        ..SwitchBuffer::default()
    };
    let topology = paper::topology(experiment.hosts, experiment.pods, buffer, carrier.spreading);
    let mut network = Network::over(&topology, experiment.hosts, experiment.seed);
    network.set_framing(carrier.framing);
    network.keep_heads(carrier.head_len);
    for host in 0..experiment.hosts {
        let place = network.add(address(host), node(host), Impairment::NONE, 0);
        network.set_delays(place, paper::DELAYS);
        network.pace_nic(place, DATAGRAM_LEN_MAX);
    }
    for (place, source) in sources.iter().enumerate() {
        network.wake_at(place, START + source.next_ns(), 0);
    }
    let mut hosts = Hosts::new(experiment, sources);
    let links = hosts.run_load(&mut network);
    let limit = START + 2 * experiment.duration_ns;
    while !hosts.are_done() && network.now() < limit {
        let until = limit.min(network.now() + experiment.duration_ns / 16 + 1);
        network.run(until, |turn| hosts.handle(turn));
    }
    let counts = Counts {
        unfinished: hosts.counts.sent - hosts.counts.received - hosts.counts.refused,
        ..hosts.counts
    };
    Findings {
        buckets: hosts.record.slowdowns.buckets(),
        all: hosts.record.slowdowns.all(),
        incasts: hosts.record.incasts(),
        counts,
        links: Some(links),
        homa: said(&network),
        network: network.statistics(),
        elapsed_ns: network.now() - START,
    }
}

impl<'a> Hosts<'a> {
    fn new(experiment: &'a Experiment, sources: Vec<Source>) -> Self {
        let hosts = experiment.hosts as usize;
        Self {
            experiment,
            sources,
            backlogs: vec![VecDeque::new(); hosts],
            outstanding: vec![0; hosts],
            under_way: Vec::new(),
            free: Vec::new(),
            record: Record::new(experiment),
            counts: Counts::default(),
        }
    }

    fn are_done(&self) -> bool {
        self.free.len() == self.under_way.len() && self.backlogs.iter().all(VecDeque::is_empty)
    }

    /// Runs while messages come, and looks at the links between the end of the warm-up and then.
    fn run_load<N: Messenger>(&mut self, network: &mut Network<N>) -> Links {
        network.run(START + self.experiment.warmup_ns, |turn| self.handle(turn));
        let before = Meter::read(network);
        let (mut queued_bytes, mut samples) = (0, 0);
        let until = START + self.experiment.duration_ns;
        while network.now() < until {
            network.run(until.min(network.now() + SAMPLE_NS), |turn| self.handle(turn));
            queued_bytes += last_hops(network).sum::<u64>();
            samples += u64::from(self.experiment.hosts);
        }
        let after = Meter::read(network);
        let time_ns = self.experiment.duration_ns - self.experiment.warmup_ns;
        let capacity_bytes =
            time_ns as f64 * paper::HOST_GBIT / 8.0 * f64::from(self.experiment.hosts);
        let share =
            |bytes: fn(&Meter) -> u64| (bytes(&after) - bytes(&before)) as f64 / capacity_bytes;
        let fabric = network.fabric().expect("the network has links");
        let last_hop = |host| fabric.last_hop_counters(host).queued_bytes_max;
        Links {
            uplink_share: share(|meter| meter.up_bytes),
            downlink_share: share(|meter| meter.down_bytes),
            data_share: share(|meter| meter.data_bytes),
            last_hop_queue_mean_bytes: queued_bytes as f64 / samples as f64,
            last_hop_queue_max_bytes: (0..self.experiment.hosts).map(last_hop).max().unwrap_or(0),
            queue_max_bytes: fabric.switch_counters().queued_bytes_max,
            dropped: fabric.switch_counters().dropped,
        }
    }

    fn handle<N: Messenger>(&mut self, turn: &mut Turn<'_, N>) {
        if turn.alarm.is_some() {
            self.take(turn);
        }
        while let Some(arrival) = turn.node.poll_arrival(turn.now) {
            self.free.push(arrival.word as u32);
            self.receive(self.under_way[arrival.word as usize], arrival.at - START);
        }
        while self.outstanding[turn.place] < self.experiment.pattern.outstanding_max()
            && let Some(message) = self.backlogs[turn.place].pop_front()
        {
            self.send(turn, message);
        }
    }

    /// Takes the message that is due, and sets the alarm for the next.
    fn take<N: Messenger>(&mut self, turn: &mut Turn<'_, N>) {
        let source = &mut self.sources[turn.place];
        let message = source.take(&self.experiment.workload);
        if source.next_ns() < self.experiment.duration_ns {
            turn.wake_in(START + source.next_ns() - turn.now, 0);
        }
        self.counts.sent += u64::from(self.is_counted(&message));
        self.backlogs[turn.place].push_back(message);
    }

    fn send<N: Messenger>(&mut self, turn: &mut Turn<'_, N>, message: Message) {
        let word = self.free.pop().unwrap_or(self.under_way.len() as u32);
        match self.under_way.get_mut(word as usize) {
            Some(place) => *place = message,
            None => self.under_way.push(message),
        }
        let (len, other) = (message.len, address(message.caller_and_called().1));
        let is_taken = if message.is_asked {
            turn.node.ask(turn.now, other, len, u64::from(word))
        } else {
            turn.node.send(turn.now, other, len, u64::from(word))
        };
        if is_taken {
            self.outstanding[turn.place] += 1;
        } else {
            self.free.push(word);
            self.counts.refused += u64::from(self.is_counted(&message));
        }
    }

    fn receive(&mut self, message: Message, at_ns: Time) {
        self.outstanding[message.caller_and_called().0 as usize] -= 1;
        if self.is_counted(&message) {
            self.counts.received += 1;
            self.record.note(&message, (at_ns - message.at_ns) * PS_PER_NS);
        }
    }

    fn is_counted(&self, message: &Message) -> bool {
        message.at_ns >= self.experiment.warmup_ns
    }
}

/// Bytes that have gone over links so far, over all hosts.
struct Meter {
    up_bytes: u64,
    down_bytes: u64,
    data_bytes: u64,
}

impl Meter {
    fn read<N: Messenger>(network: &Network<N>) -> Self {
        let fabric = network.fabric().expect("the network has links");
        let hosts = 0..fabric.host_count() as u32;
        Self {
            up_bytes: hosts.clone().map(|host| fabric.nic_counters(host).sent_bytes).sum(),
            down_bytes: hosts.clone().map(|host| fabric.last_hop_counters(host).sent_bytes).sum(),
            data_bytes: hosts.map(|host| network.node(host as usize).data_received_bytes()).sum(),
        }
    }
}

/// Bytes that wait at each switch port towards a host.
fn last_hops<N: Messenger>(network: &Network<N>) -> impl Iterator<Item = u64> {
    let fabric = network.fabric().expect("the network has links");
    (0..fabric.host_count() as u32).map(|host| fabric.last_hop_backlog_bytes(host))
}

/// Control packets of the endpoints of all hosts, where they are Homa's.
fn said<N: Messenger>(network: &Network<N>) -> Option<Said> {
    let hosts = 0..network.fabric().expect("the network has links").host_count();
    hosts.filter_map(|host| network.node(host).said()).reduce(|sum, one| Said {
        grants: sum.grants + one.grants,
        resends: sum.resends + one.resends,
        busy: sum.busy + one.busy,
        resent_bytes: sum.resent_bytes + one.resent_bytes,
    })
}

/// The address of a host.
fn address(host: u32) -> SocketAddr {
    ((0x0a00_0000 + host).to_be_bytes(), PORT).into()
}

/// When the load begins.
const START: Time = 1_000_000;
/// Between two looks at the queues.
const SAMPLE_NS: u64 = 10_000;
/// A datagram that a NIC takes at once: a full packet's data with the endpoint's own header, which
/// is longer than the one that is charged.
const DATAGRAM_LEN_MAX: usize = 1600;
const PORT: u16 = 4000;

#[cfg(test)]
mod tests {
    use tailcut_measure::workload::Workload;

    use super::super::lanes::{self, Lanes, Sharing};
    use super::super::{Incast, Settings, Timers, Transport};
    use super::*;

    /// One message between two hosts of an idle network, ns.
    fn one_way_ns(to: u32, len: u64) -> Time {
        let topology = paper::topology(144, None, SwitchBuffer::default(), Spreading::Spray);
        let mut network = Network::over(&topology, 144, 1);
        network.set_framing(lanes::framing);
        for host in 0..144 {
            let place = network.add(address(host), Lanes::new(Sharing::Plain), Impairment::NONE, 0);
            network.set_delays(place, paper::DELAYS);
            network.pace_nic(place, DATAGRAM_LEN_MAX);
        }
        network.node_mut(0).send(0, address(to), len, 1);
        network.flush(0);
        let mut at = None;
        network.run(1_000_000, |turn| {
            at = at.or(turn.node.poll_arrival(turn.now).map(|arrival| arrival.at))
        });
        at.expect("it arrives")
    }

    /// Published: 2.42 us for the shortest frame across racks, 1.88 us in one; 13 bytes more of the
    /// header are 26 + 5 and 21 ns.
    #[test]
    fn the_shortest_message_takes_the_published_time() {
        assert_eq!(one_way_ns(16, 1), 2418 + 26);
        assert_eq!(one_way_ns(1, 1), 1884 + 21);
    }

    /// The headers of 30 bytes make two packets longer than the ideal by 2 x 30 bytes and a hop of
    /// 30, in all links.
    #[test]
    fn a_message_alone_takes_little_more_than_the_ideal_time() {
        for (to, links) in [(16, 2), (1, 0)] {
            let ideal_ps = paper::ideal_ps(2884, links);
            let ratio = one_way_ns(to, 2884) as f64 * 1e3 / ideal_ps as f64;
            assert!((1.0..1.06).contains(&ratio), "{ratio}");
        }
    }

    /// 64 hosts in two pods of two racks: half of the messages cross a core that has room for half of what hosts send.
    #[test]
    fn messages_between_pods_arrive_over_cores() {
        let workload = Workload::named("w2").expect("it is kept");
        let pods = Some(paper::PodShape { racks: 2, oversubscription: 2 });
        let experiment = Experiment {
            pods,
            duration_ns: 2_000_000,
            warmup_ns: 200_000,
            ..Experiment::new(workload, 0.5, 64, Transport::Homa(Default::default()))
        };
        let run = |experiment: &Experiment| super::super::run(experiment).expect("it can be run");
        let findings = run(&experiment);
        let Counts { sent, received, refused, unfinished } = findings.counts;
        assert_eq!((refused, unfinished, received), (0, 0, sent));
        assert!(sent > 50_000 && findings.all.p50 >= 1.0, "{findings:?}");
        // At 0.8 three quarters of what the hosts of four such pods send is more than their cores carry.
        let hosts = 128;
        let wide = Some(paper::PodShape { racks: 2, oversubscription: 1 });
        let [narrow, wide] = [pods, wide]
            .map(|pods| run(&Experiment { pods, hosts, load: 0.8, ..experiment.clone() }));
        assert!(wide.all.p99 < 4.0 && narrow.all.p99 > 2.0 * wide.all.p99, "{narrow:?} {wide:?}");
        for (racks, oversubscription) in [(0, 1), (2, 0), (3, 1), (2, 3), (4, 1), (1, 2)] {
            let pods = Some(paper::PodShape { racks, oversubscription });
            assert!(Experiment { pods, ..experiment.clone() }.check().is_err(), "{pods:?}");
        }
    }

    /// 20 messages of 10 kB, 168 us on the receiver's link: every 200 us one such burst, which all hosts take part in. What
    /// Homa sends without a grant waits in the last switch, and what others send to the same host behind it.
    #[test]
    fn incasts_arrive_and_are_counted_apart() {
        let workload = Workload::named("w1").expect("it is kept");
        let incast = Incast { senders: 20, len: 10_000, every_ns: 200_000, is_asked: false };
        let experiment = Experiment {
            duration_ns: 2_100_000,
            warmup_ns: 300_000,
            incast: Some(incast),
            ..Experiment::new(workload, 0.1, 32, Transport::Plain)
        };
        let run = |experiment: &Experiment| super::super::run(experiment);
        for transport in [Transport::Plain, Transport::Homa(Default::default()), Transport::Oracle]
        {
            let experiment = Experiment { transport, ..experiment.clone() };
            let findings = run(&experiment).expect("it can be run");
            let Counts { sent, received, refused, unfinished } = findings.counts;
            assert_eq!((refused, unfinished, received), (0, 0, sent), "{transport:?}");
            // From 0.4 to 2.0 ms.
            let bursts = findings.incasts.expect("there are some");
            assert_eq!(bursts.count, 9, "{transport:?}");
            assert!((0.95..1.5).contains(&bursts.mean), "{transport:?}: {bursts:?}");
            let counted: u64 = findings.buckets.iter().map(|bucket| bucket.count).sum();
            assert_eq!(counted + 9 * 20, sent, "in no bucket");
            let alone = run(&Experiment { incast: None, ..experiment }).expect("it can be run");
            assert!(alone.incasts.is_none() && alone.counts.sent == counted, "{alone:?}");
        }
        let asked = Incast { is_asked: true, ..incast };
        let transport = Transport::Homa(Default::default());
        let by_homa = Experiment { transport, ..experiment.clone() };
        assert!(Experiment { incast: Some(asked), ..by_homa.clone() }.check().is_ok());
        let short = Incast { len: 8, ..asked };
        assert!(Experiment { incast: Some(short), ..by_homa }.check().is_err());
        for incast in [
            Incast { senders: 32, ..incast },
            Incast { senders: 1, ..incast },
            Incast { len: 0, ..incast },
            Incast { every_ns: 999, ..incast },
            Incast { is_asked: true, ..incast },
        ] {
            let experiment = Experiment { incast: Some(incast), ..experiment.clone() };
            assert!(experiment.check().is_err(), "{incast:?}");
        }
    }

    /// Most of 20 messages of 10 kB, 168 us of the receiver's link, does not fit a port of 64 kB. All of it arrives after two or
    /// three silences of 300 us, and marks leave less to drop.
    #[test]
    fn what_an_incast_loses_in_a_short_buffer_comes_again() {
        let workload = Workload::named("w1").expect("it is kept");
        let run = |is_asked, marks_above, buffer_bytes| {
            let settings = Settings { timers: Timers::Network, marks_above, ..Settings::default() };
            let incast = Incast { senders: 20, len: 10_000, every_ns: 400_000, is_asked };
            let experiment = Experiment {
                incast: Some(incast),
                buffer_bytes,
                ..Experiment::new(workload.clone(), 0.1, 32, Transport::Homa(settings))
            };
            let findings = super::super::run(&experiment).expect("it can be run");
            let Counts { sent, received, refused, unfinished } = findings.counts;
            assert_eq!((refused, unfinished, received), (0, 0, sent));
            let bursts = findings.incasts.expect("there are some");
            assert_eq!(bursts.count, 45);
            (bursts.mean, findings.links.expect("it has links").dropped)
        };
        for is_asked in [false, true] {
            let (whole, none) = run(is_asked, None, None);
            let (mean, dropped) = run(is_asked, None, Some(64_000));
            println!("asked: {is_asked}: {whole:.2}; {mean:.2}, {dropped} dropped");
            assert!((0.95..1.3).contains(&whole) && none == 0, "{whole} {none}");
            assert!(mean < 8.0 && dropped > 45 * 40, "{mean} {dropped}");
        }
        let (mean, dropped) = run(true, Some(4), Some(64_000));
        println!("marked: {mean:.2}, {dropped} dropped");
        assert!(mean < 8.0 && dropped < 45 * 40, "{mean} {dropped}");
    }

    #[test]
    fn a_buffer_needs_who_sends_again_and_has_room_for_a_round_trip() {
        let workload = Workload::named("w1").expect("it is kept");
        let settings = Settings { timers: Timers::Network, ..Settings::default() };
        let check = |transport, bytes| {
            let buffer_bytes = Some(bytes);
            let experiment = Experiment::new(workload.clone(), 0.1, 32, transport);
            Experiment { buffer_bytes, ..experiment }.check()
        };
        assert_eq!(check(Transport::Homa(settings), 10_000), Ok(()));
        for (transport, bytes) in [
            (Transport::Homa(settings), 9_999),
            (Transport::Homa(Settings::default()), 100_000),
            (Transport::Plain, 100_000),
        ] {
            assert_eq!(check(transport, bytes), Err(super::super::ExperimentError::Buffer));
        }
        let settings = Settings { unscheduled_len: Some(0), ..settings };
        assert!(Experiment::new(workload, 0.1, 32, Transport::Homa(settings)).check().is_err());
    }

    #[test]
    fn all_messages_arrive_and_the_load_is_what_was_asked_for() {
        let workload = Workload::named("w2").expect("it is kept");
        let experiment = Experiment::new(workload, 0.5, 16, Transport::Plain);
        for transport in [Transport::Plain, Transport::Streams, Transport::Oracle] {
            let findings = super::super::run(&Experiment { transport, ..experiment.clone() })
                .expect("it can be run");
            let Counts { sent, received, refused, unfinished } = findings.counts;
            assert_eq!((refused, unfinished, received), (0, 0, sent), "{transport:?}");
            // 16 hosts at 0.5 x 0.796 x 10 Gbit/s for 18 ms of messages of 440.8 bytes.
            assert!((sent as f64 / 325_035.0 - 1.0).abs() < 0.01, "{sent}");
            let Some(links) = findings.links else { continue };
            assert!(
                (0.4..0.6).contains(&links.uplink_share) && (0.3..0.5).contains(&links.data_share),
                "{links:?}"
            );
        }
    }
}
