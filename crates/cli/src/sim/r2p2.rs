//! `tailcut sim r2p2`: the protocol itself in virtual time, at the grain of packets.

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use serde_json::{Value, json};
use tailcut_experiments::cores::over_seeds;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::{parse_count, parse_size_bytes};
use tailcut_proto::policy::{self, PolicySpec};
use tailcut_sim::fabric::port::{Link, SwitchBuffer};
use tailcut_sim::fabric::topology::{Racks, Spreading, Switch, Topology};
use tailcut_sim::impair::Impairment;
use tailcut_sim::network::HostDelays;
use tailcut_sim::r2p2::{Experiment, Findings, run as simulate};
use tailcut_sim::sojourn::Figures;

use super::{Outcome, figures};
use crate::distribution_file::{parse_delay_ns, parse_positive_ns, parse_times};
use crate::output;

/// Simulate R2P2 packet by packet: clients, a router and servers over links and switches
///
/// Runs the endpoints and the router that also run over sockets. A latency is counted from the
/// intended send to the reply.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Hosts that call
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Hosts that serve
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    servers: u32,
    /// Workers of each server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    #[arg(long, value_name = "POLICY", default_value = "jbsq:3", value_parser = parse_policy)]
    #[arg(help = format!(
        "The router's policy: {}; or `none` for no router, clients draw a server for each call",
        policy::grammar("or"),
    ))]
    policy: Placing,
    /// How a server gives requests to its workers
    #[arg(long, value_name = "POLICY", default_value = "jbsq:1")]
    dispatch: PolicySpec,
    /// Service time at a worker
    #[arg(long, value_name = "DIST", default_value = "exp:10us", value_parser = parse_times)]
    service: Distribution,
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = parse_len)]
    request: usize,
    /// Bytes of a reply
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = parse_len)]
    reply: usize,
    /// Calls over what the workers can serve; above 1 is overload
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    load: f64,
    /// Load that follows for 600 ms, to see how soon all is normal after an overload
    #[arg(long, value_name = "SHARE")]
    load_after: Option<f64>,
    /// Calls, of which the first tenth is not counted
    #[arg(long, value_name = "N", default_value = "500k", value_parser = parse_count)]
    requests: u64,
    /// How long a call may take
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_ns)]
    timeout: u64,
    /// Clients keep the pace that an overloaded router or server asks for, as they do over sockets;
    /// what they do not send for it counts as refused
    #[arg(long)]
    paced: bool,
    #[command(flatten)]
    fabric: FabricArgs,
    #[command(flatten)]
    faults: FaultArgs,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs, with consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
}

/// The network between the hosts.
#[derive(Clone, Debug, clap::Args)]
struct FabricArgs {
    /// What joins the hosts
    #[arg(long, value_enum, default_value_t = TopologyKind::Single)]
    topology: TopologyKind,
    /// Hosts of a rack, with a leaf-spine topology
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    rack: u32,
    /// Spines, with a leaf-spine topology
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    spines: u32,
    /// Rate of the hosts' links, Gbit/s
    #[arg(long, value_name = "GBIT", default_value_t = 100.0, value_parser = parse_gbit)]
    link: f64,
    /// Rate of the links between leaves and spines, Gbit/s
    #[arg(long, value_name = "GBIT", default_value_t = 400.0, value_parser = parse_gbit)]
    spine_link: f64,
    /// Propagation on each link
    #[arg(long, value_name = "TIME", default_value = "100ns", value_parser = parse_delay_ns)]
    link_delay: u64,
    /// Time from a switch's ingress to its egress
    #[arg(long, value_name = "TIME", default_value = "250ns", value_parser = parse_delay_ns)]
    switch_delay: u64,
    /// Buffer of each egress of a switch; without end if not given
    #[arg(long, value_name = "SIZE", value_parser = parse_len)]
    buffer: Option<usize>,
    /// Queue from which a switch marks packets (ECN); never if not given
    #[arg(long, value_name = "SIZE", value_parser = parse_len)]
    mark: Option<usize>,
    /// Software of a host, for each packet out and for each packet in
    #[arg(long, value_name = "TIME", default_value = "500ns", value_parser = parse_delay_ns)]
    software: u64,
    /// Keep all packets of a pair of hosts on one spine instead of spraying them
    #[arg(long)]
    ecmp: bool,
}

/// The network's faults.
#[derive(Clone, Debug, clap::Args)]
struct FaultArgs {
    /// Share of packets that are lost
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_share)]
    loss: f64,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_share)]
    duplicate: f64,
    /// Most time that a packet is delayed, uniform, so that packets overtake each other
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = parse_delay_ns)]
    delay_jitter: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TopologyKind {
    /// All hosts at one switch
    Single,
    /// Racks under leaves, leaves joined by spines
    LeafSpine,
}

/// A policy, or none: an `Option` would make the flag optional to clap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placing(Option<PolicySpec>);

pub(super) fn check(args: &Args) -> Result<()> {
    Ok(args.experiment(args.seed).check()?)
}

pub(super) fn run(args: &Args) -> Result<Outcome> {
    let runs = over_seeds(args.seed, args.seeds, |seed| simulate(&args.experiment(seed)));
    let runs = runs
        .into_iter()
        .collect::<Result<Vec<Findings>, _>>()
        .map_err(|error| anyhow!("{error}"))?;
    let in_us: Vec<Figures> = runs.iter().map(|findings| findings.latencies.figures(1e3)).collect();
    let estimates = figures::estimates(&in_us);
    let sum = |count: fn(&Findings) -> u64| runs.iter().map(count).sum::<u64>();
    let counts = [
        ("sent", sum(|run| run.counts.sent)),
        ("replied", sum(|run| run.counts.replied)),
        ("timeout", sum(|run| run.counts.timeout)),
        ("refused", sum(|run| run.counts.refused)),
    ];
    let packets = [
        ("sent", sum(|run| run.network.sent)),
        ("delivered", sum(|run| run.network.delivered)),
        ("lost", sum(|run| run.network.lost)),
        ("dropped", sum(|run| run.network.dropped)),
        ("marked", sum(|run| run.switches.marked)),
        ("resent", sum(|run| run.resent)),
    ];
    let utilisation = runs.iter().map(|run| run.utilisation).sum::<f64>() / runs.len() as f64;
    let share = sum(|run| run.counts.replied) as f64 / sum(|run| run.counts.sent).max(1) as f64;
    let goodput = args.load * share;
    let over_time = |run: &Findings| run.goodput_over_time.clone();
    let least = runs.iter().flat_map(over_time).fold(f64::INFINITY, f64::min);
    let normal_after_ns = runs.iter().map(|run| run.normal_after_ns).max().unwrap_or(0);
    let queue_bytes_max = runs.iter().map(|run| run.switches.queued_bytes_max).max();
    let json = json!({
        "schema": "tailcut.sim.r2p2/1",
        "config": args.config_json(),
        "latency_us": figures::values_json(&estimates, 1.0),
        "standard_error_us": figures::errors_json(&estimates, 1.0),
        "counts": object(&counts),
        "packets": object(&packets),
        "switch_queue_bytes_max": queue_bytes_max,
        "utilisation": utilisation,
        "goodput_over_capacity": goodput,
        "goodput_over_time": runs.iter().map(over_time).collect::<Vec<_>>(),
        "normal_after_ms": args.load_after.map(|_| normal_after_ns as f64 / 1e6),
        "virtual_s": runs.iter().map(|run| run.elapsed_ns as f64 / 1e9).sum::<f64>(),
        "trace_hash": runs.iter().map(|run| format!("{:016x}", run.network.trace_hash)).collect::<Vec<_>>(),
    });
    let row = |name: &str, cells: Vec<String>| [vec![name.to_owned()], cells].concat();
    let value = |scale: fn(&tailcut_sim::sojourn::Estimate) -> String| {
        estimates.iter().map(scale).collect::<Vec<_>>()
    };
    let error = |estimate: &tailcut_sim::sojourn::Estimate| {
        estimate.standard_error.map_or("-".to_owned(), |e| format!("{e:.2}"))
    };
    let mut text = output::table(
        &[
            row("latency", figures::NAMES.map(str::to_owned).to_vec()),
            row("us", value(|estimate| format!("{:.2}", estimate.value))),
            row("standard error", value(error)),
        ],
        1,
    );
    let line = |rows: &[(&str, u64)]| {
        rows.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    };
    text += &format!("calls: {}\npackets: {}\n", line(&counts), line(&packets));
    text += &format!("utilisation of the workers: {utilisation:.3}\n");
    text += &format!("goodput over capacity: {goodput:.3}, at least {least:.3} at any time\n");
    if args.load_after.is_some() {
        text += &format!("normal after: {:.1} ms\n", normal_after_ns as f64 / 1e6);
    }
    Ok(Outcome { json, text, failure: None })
}

impl Args {
    fn experiment(&self, seed: u64) -> Experiment {
        let faults = &self.faults;
        Experiment {
            clients: self.clients,
            servers: self.servers,
            workers: self.workers,
            policy: self.policy.0,
            dispatch: self.dispatch,
            service: self.service.clone(),
            request_len: self.request,
            reply_len: self.reply,
            load: self.load,
            load_after: self.load_after,
            calls: self.requests,
            timeout_ns: self.timeout,
            is_paced: self.paced,
            topology: self.fabric.plan(),
            delays: HostDelays {
                transmit_ns: self.fabric.software,
                receive_ns: self.fabric.software,
            },
            seal: None,
            impairment: Impairment {
                loss: faults.loss,
                duplicate: faults.duplicate,
                jitter_ns: faults.delay_jitter,
                ..Impairment::NONE
            },
            seed,
        }
    }

    fn config_json(&self) -> Value {
        let fabric = &self.fabric;
        json!({
            "clients": self.clients,
            "servers": self.servers,
            "workers": self.workers,
            "policy": self.policy.0.map_or("none".to_owned(), |policy| policy.to_string()),
            "dispatch": self.dispatch.to_string(),
            "service": self.service.to_string(),
            "request_bytes": self.request,
            "reply_bytes": self.reply,
            "load": self.load,
            "load_after": self.load_after,
            "requests": self.requests,
            "timeout_ns": self.timeout,
            "paced": self.paced,
            "topology": if fabric.topology == TopologyKind::Single { "single" } else { "leaf-spine" },
            "rack": fabric.rack,
            "spines": fabric.spines,
            "link_gbit": fabric.link,
            "spine_link_gbit": fabric.spine_link,
            "link_delay_ns": fabric.link_delay,
            "switch_delay_ns": fabric.switch_delay,
            "buffer_bytes": fabric.buffer,
            "mark_bytes": fabric.mark,
            "software_ns": fabric.software,
            "ecmp": fabric.ecmp,
            "loss": self.faults.loss,
            "duplicate": self.faults.duplicate,
            "delay_jitter_ns": self.faults.delay_jitter,
            "seed": self.seed,
            "seeds": self.seeds,
        })
    }
}

impl FabricArgs {
    fn plan(&self) -> Topology {
        let bytes = |limit: Option<usize>| limit.map_or(u64::MAX, |bytes| bytes as u64);
        let buffer =
            SwitchBuffer { capacity_bytes: bytes(self.buffer), mark_bytes: bytes(self.mark) };
        let racks = || Racks {
            hosts: self.rack,
            spines: self.spines,
            link: Link::new(self.spine_link, self.link_delay),
            spreading: if self.ecmp { Spreading::Flow } else { Spreading::Spray },
            pods: None,
        };
        Topology {
            link: Link::new(self.link, self.link_delay),
            switch: Switch { delay_ps: self.switch_delay * 1000, buffer },
            racks: (self.topology == TopologyKind::LeafSpine).then(racks),
        }
    }
}

fn object(rows: &[(&str, u64)]) -> Value {
    rows.iter()
        .map(|(name, count)| ((*name).to_owned(), json!(count)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn parse_policy(text: &str) -> Result<Placing, String> {
    if text == "none" {
        return Ok(Placing(None));
    }
    text.parse()
        .map(|policy| Placing(Some(policy)))
        .map_err(|error: policy::PolicyParseError| error.to_string())
}

fn parse_len(text: &str) -> Result<usize, String> {
    let bytes = parse_size_bytes(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes).map_err(|_| format!("{text:?} is too large"))
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is no share from 0 to 1"))
}

fn parse_gbit(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| *rate >= 0.001 && *rate <= 8000.0);
    rate.ok_or_else(|| format!("{text:?} is no rate from 0.001 to 8000 Gbit/s"))
}

const AFTER_HELP: &str = "\
Examples:
  tailcut sim r2p2 --policy jbsq:3 --servers 16 --service exp:10us --load 0.8
  tailcut sim r2p2 --policy none --topology leaf-spine --clients 64 --servers 80 --load 0.5
  tailcut sim r2p2 --loss 0.001 --seeds 5 --json -
  tailcut sim r2p2 --load 10 --service exp:1ms --timeout 100ms --paced --load-after 0.5";
