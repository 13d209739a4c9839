//! `tailcut sim faults`: random runs of R2P2 or Homa under faults, with what it promises checked at
//! every step.

use std::panic;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};
use tailcut_experiments::cores;
use tailcut_net::clock::Clock;
use tailcut_proto::policy::PolicySpec;
use tailcut_sim::faults::family::Family;
use tailcut_sim::faults::plan::Plan;
use tailcut_sim::faults::{
    self, Coverage, Invariant, Minimised, Options, Report, Sabotage, Violation,
};

use super::Outcome;
use crate::output;

/// Prove R2P2 or Homa under random faults
///
/// Each seed draws clients, servers, mostly a router, a network, calls, and faults: loss, bursts of
/// it, duplicates, damage, jitter, reordering, partitions, crashes, stops, slow hosts, wrong
/// clocks, full switches, changes of the router's servers. What the protocol promises is checked at
/// every step. The first seed that breaks a promise is minimised, and printed with what happened
/// last; the command then fails.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// How many seeds to run: 200, or only the one of --seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Run each so many-th seed twice, and compare
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    twice_each: u64,
    /// What the endpoints speak
    #[arg(long, value_enum, default_value_t = Transport::R2p2)]
    transport: Transport,
    /// Route by this policy in every run, with mostly idempotent calls: what clones is proven so
    #[arg(long, value_name = "POLICY", conflicts_with = "client_clones")]
    policy: Option<PolicySpec>,
    /// Let clients send copies themselves, without a router: hedged, and of all calls
    #[arg(long)]
    client_clones: bool,
    /// The family of plans that seeds draw from [default: drawn]
    ///
    /// `drawn` has every kind of host, call and fault. The others look for one thing: `life`,
    /// restarts and reloads; `failover`, a router that dies; `detection`, servers that die and come
    /// back; `hostile`, strangers that attack; `feedback`, reports that are forged and replayed;
    /// `late`, datagrams that take longer than the protocol is told; `overflow`, buffers that are
    /// full; `flood`, a client that calls far more than its share; `cookies`, strangers where those
    /// are asked for; `streams`, byte streams under faults; `sealed`, packets that are sealed,
    /// which strangers forge and replay; `sealed-streams`, the same of byte streams, over Homa;
    /// `sealed-coalesced`, of short calls that go together in datagrams; `long`, as `drawn`, with
    /// packets as long as within a host.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["policy", "client_clones", "load"])]
    plan: Option<Family>,
    /// Calls come at so many times what the servers can serve, from 0.1 to 100 [default: as drawn]
    #[arg(long, value_name = "SHARE", value_parser = parse_load)]
    load: Option<f64>,
    /// Put a bug in, to see that it is found
    #[arg(long, value_name = "NAME", hide = true)]
    sabotage: Option<Sabotage>,
}

/// The protocol of the runs' endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Transport {
    R2p2,
    /// Without a router, as Homa has none.
    Homa,
}

/// Source of the plans, and the load that they are brought to.
#[derive(Clone, Copy, Debug)]
struct Source {
    drawn: Drawn,
    load: Option<f64>,
}

/// Kind of the plans that are drawn.
#[derive(Clone, Copy, Debug)]
enum Drawn {
    R2p2(Family),
    Homa(Family),
    /// A router that may clone.
    Policy(PolicySpec),
    /// Clients that clone.
    ClientClones,
}

impl Source {
    fn plan(self, seed: u64) -> Plan {
        let plan = self.drawn.plan(seed);
        match self.load {
            Some(load) => plan.at_load(load),
            None => plan,
        }
    }

    /// The options that ask for it.
    fn options(self) -> String {
        let load = self.load.map_or(String::new(), |load| format!(" --load {load}"));
        self.drawn.option() + &load
    }
}

impl Drawn {
    fn of(args: &Args) -> Result<Self> {
        let family = args.plan.unwrap_or_default();
        match (args.transport, args.policy) {
            (Transport::Homa, Some(_)) => bail!("--policy is R2P2's; leave out --transport homa"),
            (Transport::Homa, None) if args.client_clones => {
                bail!("--client-clones is R2P2's; leave out --transport homa")
            }
            (Transport::Homa, None) if family.of_homa(0).is_none() => {
                bail!(
                    "--plan {family} is about routers, which Homa has none of; leave out --transport homa"
                )
            }
            (Transport::Homa, None) => Ok(Self::Homa(family)),
            (Transport::R2p2, Some(policy)) => Ok(Self::Policy(policy)),
            (Transport::R2p2, None) if args.client_clones => Ok(Self::ClientClones),
            (Transport::R2p2, None) if family.of_r2p2(0).is_none() => {
                bail!("--plan {family} is of streams that Homa carries; add --transport homa")
            }
            (Transport::R2p2, None) => Ok(Self::R2p2(family)),
        }
    }

    fn plan(self, seed: u64) -> Plan {
        match self {
            Self::R2p2(family) => family.of_r2p2(seed).unwrap_or_else(|| Plan::of_seed(seed)),
            Self::Homa(family) => family.of_homa(seed).unwrap_or_else(|| Plan::homa_of_seed(seed)),
            Self::Policy(policy) => Plan::cloning_of_seed(seed, policy),
            Self::ClientClones => Plan::client_cloning_of_seed(seed),
        }
    }

    /// The option that asks for it.
    fn option(self) -> String {
        let named = |family| match family {
            Family::Drawn => String::new(),
            family => format!(" --plan {family}"),
        };
        match self {
            Self::R2p2(family) => named(family),
            Self::Homa(family) => named(family) + " --transport homa",
            Self::Policy(policy) => format!(" --policy {policy}"),
            Self::ClientClones => " --client-clones".to_owned(),
        }
    }
}

pub(super) fn run(args: &Args) -> Result<Outcome> {
    let source = Source { drawn: Drawn::of(args)?, load: args.load };
    let first = args.seed.unwrap_or(0);
    let count = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { SEEDS });
    let options = Options { sabotage: args.sabotage, ..Options::default() };
    let started_ns = Clock.now();
    // A panic of a node is a violation like others, and is told as one.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let found = run_seeds((first, count), args.twice_each, source, options);
    let failure = found.failure.as_ref().map(|(seed, violation)| {
        let minimised =
            faults::minimise(&source.plan(*seed), violation.invariant, options, MINIMISE_RUNS_MAX);
        Failure { seed: *seed, source, violation: violation.clone(), minimised }
    });
    panic::set_hook(hook);
    let seeds_per_s = found.seeds as f64 / ((Clock.now() - started_ns).max(1) as f64 / 1e9);
    let json = json!({
        "schema": "tailcut.sim.faults/1",
        "config": { "transport": format!("{:?}", args.transport).to_lowercase(), "seed": first, "seeds": count, "twice_each": args.twice_each,
            "policy": args.policy.map(|policy| policy.to_string()), "client_clones": args.client_clones, "plan": args.plan.unwrap_or_default().to_string(), "load": args.load },
        "seeds": found.seeds,
        "hash": format!("{:016x}", found.hash),
        "counts": counts_json(&found.coverage),
        "failure": failure.as_ref().map(Failure::json),
    });
    let mut text = text(&found, seeds_per_s);
    if let Some(failure) = &failure {
        text.push_str(&failure.text(args.sabotage));
    }
    let failure = failure.map(|failure| format!("seed {}: {}", failure.seed, failure.violation));
    Ok(Outcome { json, text, failure })
}

/// The findings over all seeds.
struct Found {
    /// Seeds run.
    seeds: u64,
    coverage: Coverage,
    hash: u64,
    /// The first seed that broke a promise.
    failure: Option<(u64, Violation)>,
}

/// Runs the seeds, up to the first lot in which one fails.
fn run_seeds(
    (first, count): (u64, u64),
    twice_each: u64,
    source: Source,
    options: Options,
) -> Found {
    let bar = ProgressBar::new(count);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} seeds, {per_sec}, {eta} left");
    bar.set_style(style.expect("the template is a valid constant"));
    let mut found = Found { seeds: 0, coverage: Coverage::default(), hash: 0, failure: None };
    while found.seeds < count && found.failure.is_none() {
        let lot = LOT.min(count - found.seeds);
        let begin = first.wrapping_add(found.seeds);
        let reports: Vec<Report> = cores::over_seeds(begin, lot, |seed| {
            let report = faults::check_plan(&source.plan(seed), twice_each, options);
            bar.inc(1);
            report
        });
        for (index, report) in (0..).zip(reports) {
            found.seeds += 1;
            found.coverage.add(&report.coverage);
            found.hash = found.hash.rotate_left(1) ^ report.hash;
            let seed = begin.wrapping_add(index);
            found.failure = found.failure.or(report.violation.map(|violation| (seed, violation)));
        }
    }
    bar.finish_and_clear();
    found
}

/// A broken promise, and the least that breaks it.
struct Failure {
    seed: u64,
    source: Source,
    violation: Violation,
    minimised: Minimised,
}

impl Failure {
    fn json(&self) -> Value {
        let Minimised { plan, report, run_count } = &self.minimised;
        json!({
            "seed": self.seed,
            "invariant": format!("{:?}", self.violation.invariant),
            "at_ms": self.violation.at as f64 / 1e6,
            "detail": self.violation.detail,
            "minimised": {
                "runs": run_count,
                "items": plan.item_count(),
                "plan": plan.to_string().lines().collect::<Vec<_>>(),
                "violation": report.violation.as_ref().map(Violation::to_string),
                "trace": report.trace,
            },
            "replay": self.replay(None),
        })
    }

    fn text(&self, sabotage: Option<Sabotage>) -> String {
        let Minimised { plan, report, run_count } = &self.minimised;
        let (seed, violation) = (self.seed, &self.violation);
        let minimal = report.violation.as_ref().map(Violation::to_string).unwrap_or_default();
        format!(
            "\nseed {seed}: {violation}\n\nThe least that breaks it, after {run_count} runs:\n\n{plan}\nWhat happened last:\n\n{}\n\
             {minimal}\n\nReplay it by `{}`.\n",
            report.trace.join("\n"),
            self.replay(sabotage),
        )
    }

    fn replay(&self, sabotage: Option<Sabotage>) -> String {
        let sabotage = sabotage.map_or(String::new(), |name| format!(" --sabotage {name}"));
        // Where a run differs from itself, every replay must look for it.
        let twice =
            if self.violation.invariant == Invariant::Determinism { " --twice-each 1" } else { "" };
        let source = self.source.options();
        format!("tailcut sim faults --seed {}{source}{sabotage}{twice}", self.seed)
    }
}

/// `calls.replied` and the like as objects of objects, and what belongs to no group.
fn counts_json(coverage: &Coverage) -> Value {
    let mut groups = Map::new();
    for (name, count) in coverage.figures() {
        let (group, name) = name.split_once('.').unwrap_or(("other", &name));
        let group = groups.entry(group).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(group) = group {
            group.insert(name.to_owned(), count.into());
        }
    }
    groups.insert("requests_run".to_owned(), coverage.runs.into());
    groups.insert("packets".to_owned(), coverage.packets.into());
    groups.insert("virtual_s".to_owned(), (coverage.virtual_ns as f64 / 1e9).into());
    Value::Object(groups)
}

fn text(found: &Found, seeds_per_s: f64) -> String {
    let coverage = &found.coverage;
    let calls: u64 = coverage.endings.iter().sum();
    let faults: u64 = coverage.faults.iter().sum();
    let mut text = format!(
        "{} seeds, {seeds_per_s:.0} a second: {calls} calls, {} requests run, {faults} faults, {} packets, {:.1} s of virtual time\n\n",
        found.seeds,
        coverage.runs,
        coverage.packets,
        coverage.virtual_ns as f64 / 1e9,
    );
    let groups = [
        ("calls", "calls by their end"),
        ("faults", "faults"),
        ("effects", "effects"),
        ("forged", "forged by strangers"),
        ("replayed", "replayed by strangers"),
    ];
    for (group, title) in groups {
        let rows = coverage.figures().into_iter().filter_map(|(name, count)| {
            let name = name.strip_prefix(group)?.strip_prefix('.')?.replace('_', " ");
            Some(vec![name, count.to_string()])
        });
        let rows: Vec<_> =
            [vec![title.to_owned(), String::new()]].into_iter().chain(rows).collect();
        text.push_str(&output::table(&rows, 1));
        text.push('\n');
    }
    let verdict =
        if found.failure.is_some() { "A promise was broken." } else { "Every promise was kept." };
    text.push_str(verdict);
    text.push('\n');
    text
}

fn parse_load(text: &str) -> Result<f64, String> {
    let load = text.parse::<f64>().ok().filter(|load| (0.1..=100.0).contains(load));
    load.ok_or_else(|| format!("{text:?} is no load from 0.1 to 100"))
}

/// Seeds where nothing is said.
const SEEDS: u64 = 200;

/// Seeds that are run before it is looked whether one has failed.
const LOT: u64 = 256;

/// Runs that minimising may take: some ten seconds.
const MINIMISE_RUNS_MAX: u32 = 2000;

const AFTER_HELP: &str = "\
Examples:
  tailcut sim faults --seeds 2000
  tailcut sim faults --seeds 2000 --transport homa
  tailcut sim faults --seeds 500 --plan hostile
  tailcut sim faults --seeds 2000 --policy netclone+racksched
  tailcut sim faults --seeds 2000 --load 10
  tailcut sim faults --seed 668            the run of one seed again
  tailcut sim faults --seeds 100000 --json -";
