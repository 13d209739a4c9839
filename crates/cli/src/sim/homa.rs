//! `tailcut sim homa`: messages under load over the network of Homa's published simulation, at the
//! grain of packets.

use std::num::NonZero;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use serde_json::{Value, json};
use tailcut_instrument::text_file;
use tailcut_measure::quantity::parse_duration_ns;
use tailcut_measure::workload::Workload;
use tailcut_sim::WARMUP_SHARE;
use tailcut_sim::homa::paper::PodShape;
use tailcut_sim::homa::slowdown::{Bucket, equal_shares};
use tailcut_sim::homa::{
    Experiment, Findings, Incast, Pattern, Policy, Said, Settings, Timers, Transport,
    run as simulate,
};

use super::Outcome;
use crate::distribution_file::parse_positive_ns;
use crate::output;

/// Simulate Homa packet by packet, and what it is compared with: slowdowns of messages by size
///
/// Runs the endpoint that also runs over sockets. Hosts at 10 Gbit/s in racks of 16, four spines at
/// 40 Gbit/s. A slowdown is the time of a message over that on an idle network.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Message sizes: w1 to w5, or a file with the mean on its first line and then
    /// `size cumulative_probability` a line
    #[arg(long, value_name = "NAME|FILE", default_value = "w3", value_parser = parse_workload)]
    workload: Workload,
    /// Share of the hosts' links that messages need with their headers and grants
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    load: f64,
    /// Hosts: up to 16 at one switch, or whole racks of 16
    #[arg(long, value_name = "N", default_value_t = 144)]
    hosts: u32,
    /// Racks of a pod, under four spines of its own, above each of which are cores; all racks are
    /// under the same four spines if not given
    #[arg(long, value_name = "RACKS")]
    pod_racks: Option<u32>,
    /// How many times as much the links of a pod's racks carry as those to cores
    #[arg(long, value_name = "N", default_value_t = 1, requires = "pod_racks")]
    oversubscription: u32,
    /// So many hosts send 10 kB to another at the same time, again and again, besides the load;
    /// drawn each time
    #[arg(long, value_name = "SENDERS", conflicts_with = "echo")]
    incast: Option<u32>,
    /// Bytes of each of these messages
    #[arg(long, value_name = "BYTES", default_value_t = 10_000, requires = "incast")]
    incast_len: u64,
    /// Time from one to the next
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = parse_positive_ns, requires = "incast")]
    incast_every: u64,
    /// The receiver of an incast asks for it, as for the replies of so many calls, and counts from
    /// then
    #[arg(long, requires = "incast")]
    incast_asked: bool,
    /// Bytes that wait at most at each port of a switch, which drops what comes then; without end
    /// if not given. Homa with `--timers network` sends it again
    #[arg(long, value_name = "BYTES")]
    buffer: Option<u64>,
    /// How long messages come
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_positive_ns)]
    duration: u64,
    /// Messages count that come later than this; a tenth of the duration if not given
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    warmup: Option<u64>,
    /// Who carries the messages
    #[arg(long, value_enum, default_value_t = Carrier::Homa)]
    transport: Carrier,
    /// Homa: priorities of the network
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=8))]
    priorities: u8,
    /// Homa: messages that a receiver grants at once; as published for the workload if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    overcommit: Option<u8>,
    /// Homa: how grants are given
    #[arg(long, value_enum, default_value_t = PolicyKind::Sigcomm)]
    policy: PolicyKind,
    /// Homa: bytes of a message that go without a grant; those of the policy if not given
    #[arg(long, value_name = "BYTES")]
    unscheduled: Option<u32>,
    /// Homa: calls outstanding above which a host marks its requests, to which replies come with
    /// 400 bytes without a grant; never if not given
    #[arg(long, value_name = "CALLS")]
    marks_above: Option<u32>,
    /// Homa: when endpoints ask for what has not come; nothing is lost where buffers have no end
    #[arg(long, value_enum, default_value_t = TimersKind::Quiet)]
    timers: TimersKind,
    /// Homa only: the first half of up to 16 hosts sends, and the other half sends each message
    /// back
    #[arg(long)]
    echo: bool,
    /// Also carry the same messages by these, to compare with
    #[arg(long, value_enum, value_name = "TRANSPORT,...", value_delimiter = ',')]
    beside: Vec<Carrier>,
    /// Buckets of sizes: a file with an upper size a line, ascending; equal shares of messages if
    /// not given
    #[arg(long, value_name = "FILE", value_parser = parse_buckets)]
    buckets: Option<Buckets>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads at most, each of which has some of the racks: the results are the same on any number
    /// [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
}

/// A transport of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Carrier {
    /// Homa, by the endpoint of this repository
    Homa,
    /// Packets of all messages in turns, without priorities and grants
    Plain,
    /// A byte stream between each two hosts, whose messages wait for each other, as over TCP
    Streams,
    /// Shortest remaining message first by one who knows all: the bound
    Oracle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyKind {
    /// As the published simulation
    Sigcomm,
    /// As the kernel module: a dynamic window, and 40 kB unscheduled
    Module,
    /// As the published simulation, with packets of 1,000 bytes and grants of ten of them
    ShortPackets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TimersKind {
    /// Never
    Quiet,
    /// As the endpoint does on a network
    Network,
}

/// Upper sizes. A type of its own, because a list would make the flag take many values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Buckets(Vec<u64>);

pub(super) fn check(args: &Args) -> Result<()> {
    let mut carriers = [args.transport].into_iter().chain(args.beside.iter().copied());
    Ok(carriers.try_for_each(|carrier| args.experiment(carrier, 1).check())?)
}

pub(super) fn run(args: &Args) -> Result<Outcome> {
    check(args)?;
    let carriers: Vec<Carrier> =
        [args.transport].into_iter().chain(args.beside.iter().copied()).collect();
    let found = simulate_all(args, &carriers)?;
    let mut json = json!({ "schema": "tailcut.sim.homa/1", "config": args.config_json() });
    let first = found_json(&found[0]);
    json.as_object_mut()
        .zip(first.as_object())
        .into_iter()
        .for_each(|(all, first)| all.extend(first.clone()));
    let beside = carriers.iter().zip(&found).skip(1).map(|(carrier, findings)| {
        let mut one = found_json(findings);
        one["transport"] = json!(name_of(*carrier));
        one
    });
    json["beside"] = beside.collect();
    let texts = carriers.iter().zip(&found).map(|(carrier, findings)| text(*carrier, findings));
    Ok(Outcome { json, text: texts.collect::<Vec<_>>().join("\n"), failure: None })
}

/// The runs of all carriers, on all cores.
fn simulate_all(args: &Args, carriers: &[Carrier]) -> Result<Vec<Findings>> {
    use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};
    let threads = match args.threads {
        Some(threads) => usize::from(threads),
        // A sweep, which has a run on each core.
        None if rayon::current_thread_index().is_some() => 1,
        None => (cores() / carriers.len()).max(1),
    };
    let run = |&carrier: &Carrier| {
        simulate(&args.experiment(carrier, threads)).map_err(|error| anyhow!("{error}"))
    };
    carriers.par_iter().map(run).collect()
}

impl Args {
    fn experiment(&self, carrier: Carrier, threads: usize) -> Experiment {
        Experiment {
            workload: self.workload.clone(),
            load: self.load,
            hosts: self.hosts,
            pods: self.pods(),
            incast: self.incast(),
            buffer_bytes: self.buffer,
            pattern: if self.echo { Pattern::Echo } else { Pattern::OneWay },
            duration_ns: self.duration,
            warmup_ns: self.warmup_ns(),
            transport: carrier.transport(self.settings()),
            buckets: self
                .buckets
                .clone()
                .map_or_else(|| equal_shares(&self.workload), |buckets| buckets.0),
            seed: self.seed,
            threads,
        }
    }

    fn pods(&self) -> Option<PodShape> {
        let oversubscription = self.oversubscription;
        self.pod_racks.map(|racks| PodShape { racks, oversubscription })
    }

    fn incast(&self) -> Option<Incast> {
        let (len, every_ns) = (self.incast_len, self.incast_every);
        let is_asked = self.incast_asked;
        self.incast.map(|senders| Incast { senders, len, every_ns, is_asked })
    }

    fn warmup_ns(&self) -> u64 {
        self.warmup.unwrap_or(self.duration / WARMUP_SHARE)
    }

    fn settings(&self) -> Settings {
        let policy = match self.policy {
            PolicyKind::Sigcomm => Policy::Sigcomm,
            PolicyKind::Module => Policy::Module,
            PolicyKind::ShortPackets => Policy::ShortPackets,
        };
        let timers = match self.timers {
            TimersKind::Quiet => Timers::Quiet,
            TimersKind::Network => Timers::Network,
        };
        Settings {
            policy,
            priorities: self.priorities,
            overcommit: self.overcommit,
            timers,
            unscheduled_len: self.unscheduled,
            marks_above: self.marks_above,
        }
    }

    fn config_json(&self) -> Value {
        json!({
            "workload": self.workload.name(),
            "load": self.load,
            "hosts": self.hosts,
            "pods": self.pods().map(|pods| {
                json!({ "racks": pods.racks, "oversubscription": pods.oversubscription })
            }),
            "incast": self.incast().map(|incast| {
                json!({
                    "senders": incast.senders,
                    "len": incast.len,
                    "every_ns": incast.every_ns,
                    "asked": incast.is_asked,
                })
            }),
            "buffer_bytes": self.buffer,
            "duration_ns": self.duration,
            "warmup_ns": self.warmup_ns(),
            "transport": name_of(self.transport),
            "beside": self.beside.iter().map(|&carrier| name_of(carrier)).collect::<Vec<_>>(),
            "priorities": self.priorities,
            "overcommit": self.settings().overcommit(&self.workload),
            "policy": name_of(self.policy),
            "timers": name_of(self.timers),
            "unscheduled_bytes": self.unscheduled,
            "marks_above": self.marks_above,
            "echo": self.echo,
            "seed": self.seed,
        })
    }
}

/// Cores that there are, or one where that is not known.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

impl Carrier {
    fn transport(self, settings: Settings) -> Transport {
        match self {
            Self::Homa => Transport::Homa(settings),
            Self::Plain => Transport::Plain,
            Self::Streams => Transport::Streams,
            Self::Oracle => Transport::Oracle,
        }
    }
}

/// As it is written on the command line.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn found_json(found: &Findings) -> Value {
    let bucket = |it: &Bucket| {
        let Bucket { size_max, count, mean, p50, p99 } = *it;
        json!({ "size_max": size_max, "count": count, "mean": mean, "p50": p50, "p99": p99 })
    };
    let counts = found.counts;
    let links = found.links.map(|links| {
        json!({
            "uplink_share": links.uplink_share,
            "downlink_share": links.downlink_share,
            "data_share": links.data_share,
            "last_hop_queue_bytes": { "mean": links.last_hop_queue_mean_bytes, "max": links.last_hop_queue_max_bytes },
            "queue_bytes_max": links.queue_max_bytes,
            "dropped": links.dropped,
        })
    });
    json!({
        "buckets": found.buckets.iter().map(bucket).collect::<Vec<_>>(),
        "all": { "mean": found.all.mean, "p50": found.all.p50, "p99": found.all.p99 },
        "incasts": found.incasts.as_ref().map(|it| {
            json!({ "count": it.count, "mean": it.mean, "p50": it.p50, "p99": it.p99 })
        }),
        "counts": {
            "sent": counts.sent,
            "received": counts.received,
            "refused": counts.refused,
            "unfinished": counts.unfinished,
        },
        "links": links,
        "packets": { "sent": found.network.sent, "delivered": found.network.delivered },
        "homa": found.homa.map(|homa| homa_json(&homa)),
        "virtual_s": found.elapsed_ns as f64 / 1e9,
        "trace_hash": format!("{:016x}", found.network.trace_hash),
    })
}

fn homa_json(said: &Said) -> Value {
    let Said { grants, resends, busy, resent_bytes } = *said;
    json!({ "grants": grants, "resends": resends, "busy": busy, "resent_bytes": resent_bytes })
}

fn text(carrier: Carrier, found: &Findings) -> String {
    let head = [
        format!("{}: size up to", name_of(carrier)),
        "messages".into(),
        "mean".into(),
        "p50".into(),
        "p99".into(),
    ];
    let size =
        |size_max: u64| if size_max == u64::MAX { "any".to_owned() } else { size_max.to_string() };
    let figure = |value: f64| if value.is_nan() { "-".to_owned() } else { format!("{value:.2}") };
    let row = |it: &Bucket| {
        vec![
            size(it.size_max),
            it.count.to_string(),
            figure(it.mean),
            figure(it.p50),
            figure(it.p99),
        ]
    };
    let rows: Vec<Vec<String>> =
        [head.to_vec()].into_iter().chain(found.buckets.iter().map(row)).collect();
    let mut text = output::table(&rows, 1);
    let counts = found.counts;
    let (sent, received, unfinished) = (counts.sent, counts.received, counts.unfinished);
    text += &format!(
        "messages: {sent} sent, {received} received, {} refused, {unfinished} unfinished\n",
        counts.refused
    );
    if let Some(Bucket { count, mean, p50, p99, .. }) = found.incasts {
        text += &format!(
            "incasts: {count}, which took {mean:.2} of the time that the receiver's link needs on average, {p50:.2} at the median, {p99:.2} at p99\n"
        );
    }
    if let Some(links) = found.links {
        let [up, down, data] =
            [links.uplink_share, links.downlink_share, links.data_share].map(|share| 100.0 * share);
        text += &format!(
            "links: {up:.1} % of the time towards the network, {down:.1} % towards hosts; data {data:.1} %\n"
        );
        let (mean, max) =
            (links.last_hop_queue_mean_bytes / 1e3, links.last_hop_queue_max_bytes as f64 / 1e3);
        let all = links.queue_max_bytes as f64 / 1e3;
        text += &format!(
            "queues towards hosts: {mean:.2} kB on average, {max:.1} kB at most; at any port {all:.1} kB\n"
        );
        if links.dropped > 0 {
            let resent = found.homa.map_or(0, |homa| homa.resent_bytes);
            text += &format!("dropped: {} packets; {resent} bytes sent again\n", links.dropped);
        }
    }
    text
}

/// A workload that is kept, or that of a file.
fn parse_workload(text: &str) -> Result<Workload, String> {
    if let Some(workload) = Workload::named(text) {
        return Ok(workload);
    }
    let names: Vec<&str> = Workload::names().collect();
    let content = text_file::read(text, FILE_BYTES_MAX)
        .map_err(|error| format!("neither one of {} nor a file: {error}", names.join(", ")))?;
    Workload::parse(text, &content).map_err(|error| error.to_string())
}

/// Upper sizes, one a line; empty lines and those that begin with `#` are left out.
fn parse_buckets(path: &str) -> Result<Buckets, String> {
    let content = text_file::read(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    let lines = content
        .lines()
        .map(str::trim)
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let size = |(index, line): (usize, &str)| {
        line.parse().map_err(|_| format!("line {}: {line:?} is no size", index + 1))
    };
    lines.map(size).collect::<Result<_, _>>().map(Buckets)
}

/// A hundred thousand points.
const FILE_BYTES_MAX: u64 = 4_000_000;

const AFTER_HELP: &str = "\
Examples:
  tailcut sim homa --workload w3 --load 0.8 --hosts 144 --duration 60ms --priorities 8 --overcommit 4 --policy sigcomm
  tailcut sim homa --workload w4 --beside plain,streams,oracle
  tailcut sim homa --workload w3 --hosts 16 --echo
  tailcut sim homa --workload w3 --load 0.4 --hosts 1024 --pod-racks 8 --oversubscription 2 --incast 100 --duration 2ms
  tailcut sim homa --load 0.4 --incast 100 --incast-asked --marks-above 32 --buffer 256000 --timers network
  tailcut sim homa --workload sizes.txt --buckets upper-sizes.txt --json -";
