//! A run of a transport over links and switches.
//!
//! A host hands its NIC one packet each time the link is idle, so that the transport decides what
//! leaves next, and not the NIC's queue.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;

use tailcut_proto::node::Time;

use super::load::{Message, Source};
use super::messenger::{Arrival, Messenger};
use super::record::Record;
use super::{Counts, Experiment, Findings, Links, Said, paper};
use crate::PS_PER_NS;
use crate::fabric::Fabric;
use crate::fabric::port::{PortCounters, SwitchBuffer};
use crate::fabric::topology::Spreading;
use crate::network::{Framing, Network, Turn};
use crate::regions::{Application, Regions, Span};

/// Carriage of packets.
pub(super) struct Carrier {
    pub(super) framing: Framing,
    /// Bytes of a packet that may be anything but zero.
    pub(super) head_len: usize,
    pub(super) spreading: Spreading,
}

/// The applications of the hosts of a region.
struct Hosts<'a> {
    experiment: &'a Experiment,
    /// Its index, in the upper half of a word.
    region: u64,
    /// The first host.
    first: usize,
    /// As the following: by host, from the first.
    sources: Vec<Source>,
    /// Messages that wait because as many as may be are outstanding.
    backlogs: Vec<VecDeque<Message>>,
    /// Messages that have been sent and have not arrived.
    outstanding: Vec<u32>,
    /// Messages under way, by their words; free places hold what was there.
    under_way: Vec<Message>,
    free: Vec<u32>,
    /// Messages that have arrived since they were recorded, and how long that took, ps.
    taken: Vec<(Message, u64)>,
    /// Arrivals of messages that hosts of other regions have sent.
    elsewhere: Vec<Arrival>,
    counts: Counts,
    /// Bytes that waited at the switch ports towards the hosts, over all looks.
    queued_bytes: u64,
    /// Number of looks at those.
    looks: u64,
}

/// A run: the network, and the hosts of each region.
struct Run<'a, N> {
    experiment: &'a Experiment,
    regions: Regions<N>,
    hosts: Vec<Hosts<'a>>,
    record: Record<'a>,
}

/// Runs `experiment` with a `node` of a transport at every host.
pub(super) fn run<N: Messenger>(
    experiment: &Experiment,
    sources: Vec<Source>,
    carrier: Carrier,
    node: impl Fn(u32) -> N,
) -> Findings {
    let mut run = Run::new(experiment, sources, carrier, node);
    let links = run.run_load();
    let limit = START + 2 * experiment.duration_ns;
    while !run.are_done() && run.regions.now() < limit {
        run.run_until(limit.min(run.regions.now() + experiment.duration_ns / 16 + 1), 0);
    }
    let counts = run.hosts.iter().map(|hosts| hosts.counts).fold(Counts::default(), Counts::plus);
    let unfinished = counts.sent - counts.received - counts.refused;
    Findings {
        buckets: run.record.slowdowns.buckets(),
        all: run.record.slowdowns.all(),
        incasts: run.record.incasts(),
        counts: Counts { unfinished, ..counts },
        links: Some(links),
        homa: said(&run.regions),
        network: run.regions.statistics(),
        elapsed_ns: run.regions.now() - START,
    }
}

impl<'a, N: Messenger> Run<'a, N> {
    fn new(
        experiment: &'a Experiment,
        sources: Vec<Source>,
        carrier: Carrier,
        node: impl Fn(u32) -> N,
    ) -> Self {
        let buffer = SwitchBuffer {
            capacity_bytes: experiment.buffer_bytes.unwrap_or(u64::MAX),
            ..SwitchBuffer::default()
        };
        let Experiment { hosts, pods, seed, .. } = *experiment;
        let topology = paper::topology(hosts, pods, buffer, carrier.spreading);
        let addresses: Vec<_> = (0..hosts).map(address).collect();
        let mut regions = Regions::new(&topology, &addresses, seed, node);
        regions.set_framing(carrier.framing);
        regions.keep_heads(carrier.head_len);
        for place in 0..hosts as usize {
            regions.set_delays(place, paper::DELAYS);
            regions.of_mut(place).pace_nic(place, DATAGRAM_LEN_MAX);
        }
        for (place, source) in sources.iter().enumerate() {
            regions.of_mut(place).wake_at(place, START + source.next_ns(), 0);
        }
        let mut sources = sources.into_iter();
        let all = regions.networks().iter().zip(0..).map(|(network, region)| {
            let places = network.region_hosts();
            Hosts::new(experiment, region, places.clone(), sources.by_ref().take(places.len()))
        });
        let hosts = all.collect();
        Self { experiment, regions, hosts, record: Record::new(experiment) }
    }

    fn are_done(&self) -> bool {
        self.hosts.iter().all(Hosts::are_done)
    }

    /// Runs, with a look at the queues every `look_ns` if that is not 0, and records what has
    /// arrived.
    fn run_until(&mut self, until: Time, look_ns: Time) {
        let Self { experiment, regions, hosts, record } = self;
        regions.run(Span { until, look_ns, threads: experiment.threads }, hosts);
        for index in 0..hosts.len() {
            for Arrival { word, at } in mem::take(&mut hosts[index].elsewhere) {
                hosts[(word >> REGION_SHIFT) as usize].receive(word, at);
            }
        }
        for (message, took_ps) in hosts.iter_mut().flat_map(|hosts| hosts.taken.drain(..)) {
            record.note(&message, took_ps);
        }
    }

    /// Runs while messages come, and looks at the links between the end of the warm-up and then.
    fn run_load(&mut self) -> Links {
        let Experiment { warmup_ns, duration_ns, hosts, .. } = *self.experiment;
        self.run_until(START + warmup_ns, 0);
        let before = Meter::read(&self.regions);
        self.run_until(START + duration_ns, SAMPLE_NS);
        let after = Meter::read(&self.regions);
        let time_ns = duration_ns - warmup_ns;
        let capacity_bytes = time_ns as f64 * paper::HOST_GBIT / 8.0 * f64::from(hosts);
        let share =
            |bytes: fn(&Meter) -> u64| (bytes(&after) - bytes(&before)) as f64 / capacity_bytes;
        let last_hop = |host: u32| {
            let counters = fabric(self.regions.of(host as usize)).last_hop_counters(host);
            counters.queued_bytes_max
        };
        let switches =
            self.regions.networks().iter().map(|network| fabric(network).switch_counters());
        let switches = switches.reduce(PortCounters::plus).unwrap_or_default();
        let queued_bytes: u64 = self.hosts.iter().map(|hosts| hosts.queued_bytes).sum();
        let samples: u64 = self.hosts.iter().map(|hosts| hosts.looks).sum();
        Links {
            uplink_share: share(|meter| meter.up_bytes),
            downlink_share: share(|meter| meter.down_bytes),
            data_share: share(|meter| meter.data_bytes),
            last_hop_queue_mean_bytes: queued_bytes as f64 / samples as f64,
            last_hop_queue_max_bytes: (0..hosts).map(last_hop).max().unwrap_or(0),
            queue_max_bytes: switches.queued_bytes_max,
            dropped: switches.dropped,
        }
    }
}

impl<'a> Hosts<'a> {
    /// The hosts at these places, whose messages are of `sources`; there may be fewer of those.
    fn new(
        experiment: &'a Experiment,
        region: u64,
        places: Range<u32>,
        sources: impl Iterator<Item = Source>,
    ) -> Self {
        Self {
            experiment,
            region,
            first: places.start as usize,
            sources: sources.collect(),
            backlogs: vec![VecDeque::new(); places.len()],
            outstanding: vec![0; places.len()],
            under_way: Vec::new(),
            free: Vec::new(),
            taken: Vec::new(),
            elsewhere: Vec::new(),
            counts: Counts::default(),
            queued_bytes: 0,
            looks: 0,
        }
    }

    fn are_done(&self) -> bool {
        self.free.len() == self.under_way.len() && self.backlogs.iter().all(VecDeque::is_empty)
    }

    /// Takes the message that is due, and sets the alarm for the next.
    fn take<N: Messenger>(&mut self, turn: &mut Turn<'_, N>) {
        let host = turn.place - self.first;
        let source = &mut self.sources[host];
        let message = source.take(&self.experiment.workload);
        if source.next_ns() < self.experiment.duration_ns {
            turn.wake_in(START + source.next_ns() - turn.now, 0);
        }
        self.counts.sent += u64::from(self.is_counted(&message));
        self.backlogs[host].push_back(message);
    }

    fn send<N: Messenger>(&mut self, turn: &mut Turn<'_, N>, message: Message) {
        let place = self.free.pop().unwrap_or(self.under_way.len() as u32);
        match self.under_way.get_mut(place as usize) {
            Some(known) => *known = message,
            None => self.under_way.push(message),
        }
        let word = self.region << REGION_SHIFT | u64::from(place);
        let (len, other) = (message.len, address(message.caller_and_called().1));
        let is_taken = if message.is_asked {
            turn.node.ask(turn.now, other, len, word)
        } else {
            turn.node.send(turn.now, other, len, word)
        };
        if is_taken {
            self.outstanding[turn.place - self.first] += 1;
        } else {
            self.free.push(place);
            self.counts.refused += u64::from(self.is_counted(&message));
        }
    }

    /// A message of this region has arrived.
    fn receive(&mut self, word: u64, at: Time) {
        self.free.push(word as u32);
        let message = self.under_way[word as u32 as usize];
        self.outstanding[message.caller_and_called().0 as usize - self.first] -= 1;
        if self.is_counted(&message) {
            self.counts.received += 1;
            self.taken.push((message, (at - START - message.at_ns) * PS_PER_NS));
        }
    }

    fn is_counted(&self, message: &Message) -> bool {
        message.at_ns >= self.experiment.warmup_ns
    }
}

impl<N: Messenger> Application<N> for Hosts<'_> {
    fn handle(&mut self, turn: &mut Turn<'_, N>) {
        if turn.alarm.is_some() {
            self.take(turn);
        }
        while let Some(arrival) = turn.node.poll_arrival(turn.now) {
            if arrival.word >> REGION_SHIFT == self.region {
                self.receive(arrival.word, arrival.at);
            } else {
                self.elsewhere.push(arrival);
            }
        }
        let host = turn.place - self.first;
        while self.outstanding[host] < self.experiment.pattern.outstanding_max()
            && let Some(message) = self.backlogs[host].pop_front()
        {
            self.send(turn, message);
        }
    }

    fn look(&mut self, network: &Network<N>) {
        let fabric = fabric(network);
        let hosts = network.region_hosts();
        self.looks += hosts.len() as u64;
        self.queued_bytes += hosts.map(|host| fabric.last_hop_backlog_bytes(host)).sum::<u64>();
    }
}

/// Bytes that have gone over links so far, over all hosts.
struct Meter {
    up_bytes: u64,
    down_bytes: u64,
    data_bytes: u64,
}

impl Meter {
    fn read<N: Messenger>(regions: &Regions<N>) -> Self {
        let mut meter = Self { up_bytes: 0, down_bytes: 0, data_bytes: 0 };
        for network in regions.networks() {
            for host in network.region_hosts() {
                meter.up_bytes += fabric(network).nic_counters(host).sent_bytes;
                meter.down_bytes += fabric(network).last_hop_counters(host).sent_bytes;
                meter.data_bytes += network.node(host as usize).data_received_bytes();
            }
        }
        meter
    }
}

fn fabric<N: Messenger>(network: &Network<N>) -> &Fabric {
    network.fabric().expect("the network has links")
}

/// Control packets of the endpoints of all hosts, where they are Homa's.
fn said<N: Messenger>(regions: &Regions<N>) -> Option<Said> {
    let nodes = regions
        .networks()
        .iter()
        .flat_map(|network| network.region_hosts().map(|host| network.node(host as usize)));
    nodes.filter_map(Messenger::said).reduce(|sum, one| Said {
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

/// Position in a word of the region of the host that sends the message; the lower half is the
/// message's place there.
const REGION_SHIFT: u32 = 32;
/// Time at which the load begins.
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
    use crate::impair::Impairment;

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

    /// Homa between racks and between pods, with incasts that fill buffers, and streams: whatever
    /// the threads are.
    #[test]
    fn the_trace_is_the_same_on_any_number_of_threads() {
        let workload = Workload::named("w2").expect("it is kept");
        let settings = Settings { timers: Timers::Network, ..Settings::default() };
        let homa = Experiment {
            incast: Some(Incast { senders: 20, len: 10_000, every_ns: 100_000, is_asked: false }),
            buffer_bytes: Some(64_000),
            ..Experiment::new(workload.clone(), 0.6, 80, Transport::Homa(settings))
        };
        let pods = Some(paper::PodShape { racks: 2, oversubscription: 2 });
        let over_cores = Experiment { hosts: 64, pods, ..homa.clone() };
        let streams = Experiment::new(workload, 0.6, 48, Transport::Streams);
        for experiment in [homa, over_cores, streams] {
            let run = |threads| {
                let times = (400_000, 40_000);
                let (duration_ns, warmup_ns) = times;
                let experiment =
                    Experiment { threads, duration_ns, warmup_ns, ..experiment.clone() };
                super::super::run(&experiment).expect("it can be run")
            };
            let one = run(1);
            assert!(one.counts.received > 5_000, "{one:?}");
            for threads in [2, 3, 100] {
                assert_eq!(format!("{:?}", run(threads)), format!("{one:?}"), "{threads} threads");
            }
        }
    }

    /// 64 hosts in two pods of two racks: half of the messages cross a core that has room for half
    /// of what hosts send.
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
        // At 0.8 three quarters of what the hosts of four such pods send is more than their cores
        // carry.
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

    /// 20 messages of 10 kB, 168 us on the receiver's link: every 200 us one such burst, which all
    /// hosts take part in. What Homa sends without a grant waits in the last switch, and what
    /// others send to the same host behind it.
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

    /// Most of 20 messages of 10 kB, 168 us of the receiver's link, does not fit a port of 64 kB.
    /// All of it arrives after two or three silences of 300 us, and marks leave less to drop.
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
