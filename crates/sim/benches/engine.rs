//! Cost of the engine: events of bare links and switches a second, how that changes with the number
//! of hosts, and packets of R2P2 nodes and of Homa's a second.
//!
//! Every host keeps a few packets under way: who receives one sends one, to a host drawn at random.
//! Sizes are compared side by side, in turns, and the ratio is the median over the turns.

// A bench reads the clock.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_measure::workload::Workload;
use tailcut_proto::policy::Draws;
use tailcut_sim::agenda::Agenda;
use tailcut_sim::fabric::port::Link;
use tailcut_sim::fabric::topology::{Racks, Spreading, Switch, Topology};
use tailcut_sim::fabric::{Event, Fabric, Happening, Packet};
use tailcut_sim::homa::{self, Settings, Transport};
use tailcut_sim::impair::Impairment;
use tailcut_sim::network::HostDelays;
use tailcut_sim::r2p2::{self, Experiment};

fn main() {
    let (turns, events) = if std::env::var_os("TAILCUT_BENCH_QUICK").is_some() {
        (3, 300_000)
    } else {
        (9, 5_000_000)
    };
    if std::env::args().any(|argument| argument == "packets") {
        return bench_packets(turns, events / 10);
    }
    if std::env::args().any(|argument| argument == "homa") {
        return bench_homa(turns, events);
    }
    let hosts = [16, 160, 1600];
    let mut rates = vec![Vec::new(); hosts.len()];
    let mut growth = Vec::new();
    let mut fabrics: Vec<Bench> = hosts.iter().map(|&hosts| Bench::new(&single(), hosts)).collect();
    let mut spine = Bench::new(&leaf_spine(), 144);
    let mut spine_rates = Vec::new();
    for _ in 0..turns {
        let costs: Vec<f64> = fabrics.iter_mut().map(|bench| bench.run(events)).collect();
        rates.iter_mut().zip(&costs).for_each(|(rates, cost)| rates.push(1e3 / cost));
        growth.push(costs[hosts.len() - 1] / costs[0]);
        spine_rates.push(1e3 / spine.run(events));
    }
    println!("bare links and switches, {turns} turns of {events} events, medians:");
    for (hosts, rates) in hosts.iter().zip(&mut rates) {
        println!("  one switch, {hosts:>4} hosts   {:6.1} M events/s", median(rates));
    }
    println!("  leaf-spine,  144 hosts   {:6.1} M events/s", median(&mut spine_rates));
    println!(
        "  cost of an event at 1600 hosts over 16 hosts: {:.2}   (at most 1.5)",
        median(&mut growth)
    );
    bench_packets(turns, events / 10);
    bench_homa(turns, events);
}

fn bench_packets(turns: usize, calls: u64) {
    println!("R2P2 nodes over one switch, {turns} turns, medians:");
    let settings = [
        ("32 B, client and server", None, 32, calls),
        ("32 B, client, router jbsq:6, server", Some("jbsq:6"), 32, calls),
        ("100 kB requests, client and server", None, 100_000, calls / 50),
    ];
    for (name, policy, request_len, calls) in settings {
        let mut rates: Vec<f64> =
            (0..turns).map(|_| packets_per_us(policy, request_len, calls)).collect();
        println!("  {name:<36}{:6.2} M packets/s", median(&mut rates));
    }
}

/// The run of the gate, 20 ms of W3 over 144 hosts, has some 4.6 M packets.
fn bench_homa(turns: usize, events: u64) {
    println!("Homa nodes at a load of 0.8, {turns} turns, medians:");
    let duration_ns = (2 * events).max(1_000_000);
    for (name, workload, hosts) in
        [("W3, one switch", "w3", 16), ("W4, one switch", "w4", 16), ("W3, leaf-spine", "w3", 144)]
    {
        let workload = Workload::named(workload).expect("it is kept");
        // One switch has fewer hosts, and more time for it.
        let duration_ns = if hosts == 16 { 4 * duration_ns } else { duration_ns };
        let mut rates: Vec<f64> =
            (0..turns).map(|_| messages_per_us(&workload, (hosts, 1), duration_ns)).collect();
        println!("  {name}, {hosts:>3} hosts        {:6.2} M packets/s", median(&mut rates));
    }
    let workload = Workload::named("w3").expect("it is kept");
    let mut ratios: Vec<f64> = (0..turns)
        .map(|_| {
            let [one, two] =
                [1, 2].map(|threads| messages_per_us(&workload, (144, threads), duration_ns));
            two / one
        })
        .collect();
    println!("  W3, leaf-spine, 144 hosts, two threads over one  {:4.2}", median(&mut ratios));
}

/// Packets delivered for each microsecond of real time.
fn messages_per_us(workload: &Workload, (hosts, threads): (u32, usize), duration_ns: u64) -> f64 {
    let homa = Transport::Homa(Settings::default());
    let experiment = homa::Experiment {
        duration_ns,
        warmup_ns: 0,
        threads,
        ..homa::Experiment::new(workload.clone(), 0.8, hosts, homa)
    };
    let started = Instant::now();
    let findings = homa::run(&experiment).expect("it can be run");
    findings.network.delivered as f64 / started.elapsed().as_secs_f64() / 1e6
}

/// Packets delivered for each microsecond of real time. The load is below that of the links.
fn packets_per_us(policy: Option<&str>, request_len: usize, calls: u64) -> f64 {
    let experiment = Experiment {
        clients: 4,
        servers: 4,
        workers: 4,
        policy: policy.map(|text| text.parse().expect("a policy")),
        dispatch: "jbsq:1".parse().expect("a policy"),
        service: Distribution::parse(
            if request_len > 1000 { "exp:100us" } else { "exp:5us" },
            Unit::Time,
        )
        .expect("a distribution"),
        request_len,
        reply_len: 32,
        load: 0.5,
        load_after: None,
        calls,
        timeout_ns: 100_000_000,
        is_paced: false,
        topology: Topology {
            link: Link::new(100.0, 200),
            switch: Switch { delay_ps: 250_000, ..Switch::default() },
            racks: None,
        },
        delays: HostDelays { transmit_ns: 500, receive_ns: 500 },
        impairment: Impairment::NONE,
        seal: None,
        seed: 1,
    };
    let started = Instant::now();
    let findings = r2p2::run(&experiment).expect("it can be run");
    findings.network.delivered as f64 / started.elapsed().as_secs_f64() / 1e6
}

struct Bench {
    fabric: Fabric,
    agenda: Agenda<Event>,
    draws: Draws,
    hosts: u32,
}

impl Bench {
    fn new(topology: &Topology, hosts: u32) -> Self {
        let mut bench = Self {
            fabric: Fabric::new(topology, hosts, 1),
            agenda: Agenda::new(),
            draws: Draws::new(2),
            hosts,
        };
        for host in 0..hosts {
            for _ in 0..UNDER_WAY {
                bench.send(0, host);
            }
        }
        bench.run(200_000);
        bench
    }

    /// Nanoseconds of real time for each event.
    fn run(&mut self, events: u64) -> f64 {
        let started = Instant::now();
        for _ in 0..events {
            let (now, event) = self.agenda.pop().expect("packets are always under way");
            if let Some(Happening::Delivered(packet)) =
                self.fabric.handle(now, event, &mut self.agenda)
            {
                self.send(now, packet.to);
            }
        }
        started.elapsed().as_nanos() as f64 / events as f64
    }

    fn send(&mut self, now: u64, from: u32) {
        let to = (from + 1 + self.draws.below(self.hosts - 1)) % self.hosts;
        let bytes = 84 + self.draws.below(1454);
        let packet = Packet {
            from,
            to,
            wire_bytes: bytes,
            priority: (bytes % 8) as u8,
            ..Packet::default()
        };
        assert_eq!(self.fabric.send(now, packet, &mut self.agenda), None);
    }
}

fn single() -> Topology {
    Topology {
        link: Link::new(10.0, 200),
        switch: Switch { delay_ps: 250_000, ..Switch::default() },
        racks: None,
    }
}

/// For 9 racks.
fn leaf_spine() -> Topology {
    let (link, spreading) = (Link::new(40.0, 200), Spreading::Spray);
    Topology {
        racks: Some(Racks { hosts: 16, spines: 4, link, spreading, pods: None }),
        ..single()
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Packets of each host under way.
const UNDER_WAY: usize = 4;
