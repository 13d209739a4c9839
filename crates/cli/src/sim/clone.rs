//! `tailcut sim clone`: who gets a request and who a copy of it, and what that does to the tail.

use std::str::FromStr;

use anyhow::{Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use strum::VariantNames;
use tailcut_experiments::cores;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::parse_count;
use tailcut_sim::PS_PER_NS;
use tailcut_sim::cloning::{
    CloningError, Config, Coordinator, Copies, Counts, Delays, Discard, JITTER_FACTOR, Loser,
    Outcome as Run, REQUESTS_MAX, Report, Scheme, Sending, Slots, ZeroLoad, simulate,
};
use tailcut_sim::sojourn::Estimate;

use super::Outcome;
use super::figures::{NAMES, errors_json, estimates, named, values_json};
use crate::distribution_file::{parse_delay_ns, parse_times};
use crate::output;

/// Simulate request cloning: C-Clone, NetClone, LAEDGE, and RackSched without clones
///
/// Clients send to servers with many workers, by way of a switch or a coordinator that clones.
/// Latency is from a request's departure to its first response. The load is relative to all
/// workers, by the mean service with jitter; clones come on top.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Who clones: none (a random server), cclone, netclone, racksched (no clones),
    /// netclone+racksched, laedge, or a policy of the router: auto-clone, jbsq:N, jbsq:N+clone
    #[arg(long, value_name = "NAME", default_value = "netclone")]
    scheme: Scheme,
    /// Servers [default: 6, or as --workers lists]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=SERVERS_MAX))]
    servers: Option<u32>,
    /// Workers of every server, or a list of WORKERS*SERVERS: 7*4,4*4
    #[arg(long, value_name = "N|LIST", default_value = "15", value_parser = parse_workers)]
    workers: Workers,
    /// Service time of a copy
    #[arg(long, value_name = "DIST", default_value = "exp:25us", value_parser = parse_times)]
    service: Distribution,
    /// Probability that a copy takes 15 times its service
    #[arg(long, value_name = "P", default_value_t = 0.01)]
    jitter: f64,
    /// Share of the capacity that requests need, clones left out; may exceed 1
    #[arg(long, value_name = "L", default_value_t = 0.5)]
    load: f64,
    /// Requests of a run, of which the first tenth warms up
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_requests)]
    requests: u32,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Whether each copy draws its service, or both share one and draw their jitter
    #[arg(long, default_value_t, value_parser = one_of::<Copies>())]
    copies: Copies,
    /// How clients send: Poisson, or two clients with uniform gaps as those of the NetClone
    /// artifact
    #[arg(long, default_value_t, value_parser = one_of::<Sending>())]
    arrivals: Sending,
    /// What servers report: waiting requests (NetClone's), or those that run too (RackSched's)
    #[arg(long, default_value_t, value_parser = one_of::<Report>())]
    report: Report,
    /// Keep clones that find a queue
    #[arg(long)]
    no_discard: bool,
    /// When a request is answered its other copy runs to its end, or leaves the queue if it waits
    /// there, or is also stopped where it runs
    #[arg(long, default_value_t, value_parser = one_of::<Loser>())]
    loser: Loser,
    /// Simulate random placement under the same seeds too, and give the gain
    #[arg(long)]
    compare: bool,
    #[command(flatten)]
    network: NetworkArgs,
}

/// Delays, each way, and LAEDGE's coordinator.
#[derive(Debug, clap::Args)]
struct NetworkArgs {
    /// Delay between client and switch
    #[arg(long, value_name = "TIME", default_value = "1.5us", value_parser = parse_delay_ns)]
    client_delay: u64,
    /// Delay between switch and server
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = parse_delay_ns)]
    server_delay: u64,
    /// By which the switch's clone is later than its original
    #[arg(long, value_name = "TIME", default_value = "700ns", value_parser = parse_delay_ns)]
    recirculation: u64,
    /// Delay between switch and coordinator (laedge)
    #[arg(long, value_name = "TIME", default_value = "500ns", value_parser = parse_delay_ns)]
    coordinator_delay: u64,
    /// What a packet costs the coordinator (laedge)
    #[arg(long, value_name = "TIME", default_value = "500ns", value_parser = parse_delay_ns)]
    packet_cost: u64,
    /// Threads of the coordinator (laedge)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// A server is busy with one request, or with one a worker (laedge)
    #[arg(long, default_value_t, value_parser = one_of::<Slots>())]
    slots: Slots,
}

/// The value of `--workers`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Workers {
    /// Number of every server, all alike.
    Each(u32),
    /// Number of each server.
    List(Vec<u32>),
}

/// A scheme's runs, put together.
struct Summary {
    /// us.
    latency: [Estimate; 5],
    runs: Vec<Run>,
}

pub(super) fn check(args: &Args) -> Result<()> {
    Ok(config(args)?.check()?)
}

pub(super) fn run(args: &Args) -> Result<Outcome> {
    let config = config(args)?;
    let summary = Summary::of(&config, args)?;
    let compared =
        args.compare.then(|| Summary::of(&Config { scheme: Scheme::None, ..config.clone() }, args));
    let baseline = compared.transpose()?;
    let exact = ZeroLoad::of(&config);
    Ok(Outcome {
        json: json(args, &config, &summary, (baseline.as_ref(), exact.as_ref())),
        text: text(&summary, baseline.as_ref(), exact.as_ref()),
        failure: None,
    })
}

fn config(args: &Args) -> Result<Config> {
    let network = &args.network;
    Ok(Config {
        jitter: args.jitter,
        requests: args.requests,
        copies: args.copies,
        sending: args.arrivals,
        discard: if args.no_discard { Discard::Off } else { Discard::On },
        loser: args.loser,
        report: args.report,
        delays: Delays {
            client_switch_ps: network.client_delay * PS_PER_NS,
            switch_server_ps: network.server_delay * PS_PER_NS,
            recirculation_ps: network.recirculation * PS_PER_NS,
            switch_coordinator_ps: network.coordinator_delay * PS_PER_NS,
        },
        coordinator: Coordinator {
            packet_ps: network.packet_cost * PS_PER_NS,
            threads: network.threads,
            slots: network.slots,
        },
        ..Config::new(args.scheme, servers(args)?, args.service.clone(), args.load)
    })
}

/// The workers of each server.
fn servers(args: &Args) -> Result<Vec<u32>> {
    match (&args.workers, args.servers) {
        (Workers::Each(workers), servers) => {
            Ok(vec![*workers; servers.unwrap_or(SERVERS) as usize])
        }
        (Workers::List(list), Some(servers)) if list.len() != servers as usize => {
            bail!("--workers lists {} servers, but --servers says {servers}", list.len())
        }
        (Workers::List(list), _) => Ok(list.clone()),
    }
}

impl Summary {
    fn of(config: &Config, args: &Args) -> Result<Self, CloningError> {
        let runs = cores::over_seeds(args.seed, args.seeds, |seed| simulate(config, seed));
        let runs = runs.into_iter().collect::<Result<Vec<_>, _>>()?;
        let figures: Vec<_> = runs.iter().map(|run| run.latency.figures(PS_PER_US)).collect();
        Ok(Self { latency: estimates(&figures), runs })
    }

    /// The mean of a figure over the runs.
    fn mean(&self, figure: fn(&Run) -> f64) -> f64 {
        Estimate::of(&self.runs.iter().map(figure).collect::<Vec<_>>()).value
    }

    /// A count, over all runs.
    fn total(&self, count: fn(&Counts) -> u64) -> u64 {
        self.runs.iter().map(|run| count(&run.counts)).sum()
    }

    /// The ratio of each figure of `self` to that of `other`.
    fn ratios(&self, other: &Self) -> [f64; 5] {
        std::array::from_fn(|at| self.latency[at].value / other.latency[at].value)
    }
}

fn json(
    args: &Args,
    config: &Config,
    summary: &Summary,
    (baseline, exact): (Option<&Summary>, Option<&ZeroLoad>),
) -> Value {
    let latency = |summary: &Summary| {
        (values_json(&summary.latency, 1.0), errors_json(&summary.latency, 1.0))
    };
    let (latency_us, standard_error_us) = latency(summary);
    json!({
        "schema": "tailcut.sim.clone/1",
        "config": config_json(args, config),
        "latency_us": latency_us,
        "standard_error_us": standard_error_us,
        "counts": counts_json(summary),
        "shares": {
            "replied": summary.mean(Run::goodput_share),
            "cloned": summary.mean(Run::clone_share),
            "clones_discarded": summary.mean(Run::discarded_share),
            "utilisation": summary.mean(|run| run.utilisation),
        },
        "rates_per_s": {
            "capacity": config.capacity_per_s(),
            "offered": summary.mean(|run| run.offered_per_s),
            "replied": summary.mean(|run| run.goodput_share() * run.offered_per_s),
        },
        "coordinator_queue_len": {
            "mean": summary.mean(Run::queue_len_mean),
            "max": summary.runs.iter().map(|run| run.counts.queue_len_max).max(),
        },
        "exact": exact.map(|exact| json!({ "zero_load_us": named(zero_load_us(exact)) })),
        "baseline": baseline.map(|baseline| {
            let (latency_us, standard_error_us) = latency(baseline);
            json!({ "scheme": "none", "latency_us": latency_us, "standard_error_us": standard_error_us })
        }),
        "gain": baseline.map(|baseline| named(baseline.ratios(summary))),
    })
}

fn config_json(args: &Args, config: &Config) -> Value {
    let us = |time_ps: u64| time_ps as f64 / PS_PER_US;
    json!({
        "scheme": config.scheme.to_string(),
        "workers": config.servers,
        "service": config.service.to_string(),
        "jitter": config.jitter,
        "jitter_factor": JITTER_FACTOR,
        "load": config.load,
        "requests": config.requests,
        "seed": args.seed,
        "seeds": args.seeds,
        "copies": config.copies.to_string(),
        "arrivals": config.sending.to_string(),
        "report": config.report.to_string(),
        "discard": config.discard == Discard::On,
        "loser": config.loser.to_string(),
        "delays_us": {
            "client_switch": us(config.delays.client_switch_ps),
            "switch_server": us(config.delays.switch_server_ps),
            "recirculation": us(config.delays.recirculation_ps),
            "switch_coordinator": us(config.delays.switch_coordinator_ps),
        },
        "coordinator": {
            "packet_us": us(config.coordinator.packet_ps),
            "threads": config.coordinator.threads,
            "slots": config.coordinator.slots.to_string(),
        },
    })
}

fn counts_json(summary: &Summary) -> Value {
    json!({
        "sent": summary.total(|counts| counts.sent),
        "replied": summary.total(|counts| counts.completed),
        "cloned": summary.total(|counts| counts.cloned),
        "discarded": summary.total(|counts| counts.discarded),
        "filtered": summary.total(|counts| counts.filtered),
        "duplicates": summary.total(|counts| counts.duplicates),
        "told": summary.total(|counts| counts.told),
        "withdrawn": summary.total(|counts| counts.withdrawn),
        "stopped": summary.total(|counts| counts.stopped),
        "held": summary.total(|counts| counts.held),
    })
}

/// The exact figures, us; not a number on a knife edge.
fn zero_load_us(exact: &ZeroLoad) -> [f64; 5] {
    let percentile = |p| exact.percentile(p).unwrap_or(f64::NAN);
    [exact.mean(), percentile(0.5), percentile(0.9), percentile(0.99), percentile(0.999)]
        .map(|time_ns| time_ns / NS_PER_US)
}

fn text(summary: &Summary, baseline: Option<&Summary>, exact: Option<&ZeroLoad>) -> String {
    let mut rows = vec![["latency, us", "", "error"].map(str::to_owned).to_vec()];
    rows[0].extend(baseline.iter().flat_map(|_| ["random", "gain"]).map(str::to_owned));
    rows[0].extend(exact.map(|_| "exact at load 0".to_owned()));
    for (at, name) in NAMES.iter().enumerate() {
        let Estimate { value, standard_error } = summary.latency[at];
        let error = standard_error.map_or_else(|| "-".to_owned(), |error| format!("{error:.2}"));
        let mut row = vec![(*name).to_owned(), format!("{value:.2}"), error];
        if let Some(baseline) = baseline {
            row.push(format!("{:.2}", baseline.latency[at].value));
            row.push(format!("{:.2}", baseline.ratios(summary)[at]));
        }
        row.extend(
            exact
                .map(|exact| zero_load_us(exact)[at])
                .map(|value| if value.is_nan() { "-".to_owned() } else { format!("{value:.2}") }),
        );
        rows.push(row);
    }
    format!("{}\n{}", output::table(&rows, 1), output::table(&shares(summary), 1))
}

/// The outcomes of requests and clones, as rows.
fn shares(summary: &Summary) -> Vec<Vec<String>> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut rows = vec![
        ("offered", format!("{:.4} M/s", summary.mean(|run| run.offered_per_s) / 1e6)),
        ("replied", percent(summary.mean(Run::goodput_share))),
        ("workers busy", percent(summary.mean(|run| run.utilisation))),
        ("requests cloned", percent(summary.mean(Run::clone_share))),
        ("clones discarded", percent(summary.mean(Run::discarded_share))),
        ("responses filtered", summary.total(|counts| counts.filtered).to_string()),
        ("duplicates at clients", summary.total(|counts| counts.duplicates).to_string()),
    ];
    if summary.total(|counts| counts.told) > 0 {
        rows.push(("losers told", summary.total(|counts| counts.told).to_string()));
        rows.push(("that waited", summary.total(|counts| counts.withdrawn).to_string()));
        rows.push(("that were stopped", summary.total(|counts| counts.stopped).to_string()));
    }
    if summary.total(|counts| counts.held) > 0 {
        let held =
            summary.total(|counts| counts.held) as f64 / summary.total(|counts| counts.sent) as f64;
        rows.push(("requests held", percent(held)));
        rows.push(("coordinator's queue", format!("{:.1}", summary.mean(Run::queue_len_mean))));
    }
    rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect()
}

/// Any of the names of an enum, as they are listed in the help.
fn one_of<T>() -> impl TypedValueParser<Value = T>
where
    T: VariantNames + FromStr + Clone + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(T::VARIANTS).try_map(|name| name.parse())
}

fn parse_workers(text: &str) -> Result<Workers, String> {
    if let Ok(workers) = text.parse() {
        return Ok(Workers::Each(workers));
    }
    let mut list = Vec::new();
    for part in text.split(',') {
        let parsed = part
            .split_once('*')
            .and_then(|(workers, servers)| Some((workers.parse().ok()?, servers.parse().ok()?)));
        let (workers, servers): (u32, u32) =
            parsed.ok_or_else(|| format!("{part:?} is not WORKERS*SERVERS, such as 7*4"))?;
        if i64::from(servers) > SERVERS_MAX || list.len() as i64 > SERVERS_MAX {
            return Err(format!("more than {SERVERS_MAX} servers"));
        }
        list.extend(std::iter::repeat_n(workers, servers as usize));
    }
    Ok(Workers::List(list))
}

fn parse_requests(text: &str) -> Result<u32, String> {
    let requests = parse_count(text).map_err(|error| error.to_string())?;
    let requests = u32::try_from(requests).ok().filter(|&requests| requests <= REQUESTS_MAX);
    requests.ok_or_else(|| format!("{text:?} is more than {REQUESTS_MAX}"))
}

const AFTER_HELP: &str = "\
Copies are fresh by default: each draws its service anew when it starts, base and jitter, because that is what the published \
NetClone artifact does. The first of two then also escapes the size of the request itself, which makes most of the published gain. \
Where requests have a size of their own, `--copies shared` is the better model: both copies have the same base, and only the jitter \
is drawn for each.

Examples:
  tailcut sim clone --scheme netclone --load 0.5 --compare
  tailcut sim clone --scheme laedge --servers 5 --load 0.02 --slots server
  tailcut sim clone --scheme auto-clone --load 0.5 --compare
  tailcut sim clone --scheme netclone --load 0.7 --loser stops --compare
  tailcut sim clone --scheme racksched --workers 7*4,4*4 --load 0.9 --report outstanding";
/// Servers unless told, as on the NetClone testbed.
const SERVERS: u32 = 6;
const SERVERS_MAX: i64 = 10_000;
const PS_PER_US: f64 = 1e6;
const NS_PER_US: f64 = 1e3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_a_number_or_a_list() {
        assert_eq!(parse_workers("15"), Ok(Workers::Each(15)));
        assert_eq!(parse_workers("7*2,4*1"), Ok(Workers::List(vec![7, 7, 4])));
    }

    #[test]
    fn what_is_no_list_of_workers_is_refused() {
        for (text, reason) in [
            ("", "\"\" is not"),
            ("7*2,4", "\"4\" is not"),
            ("7*x", "\"7*x\" is not"),
            ("7*20000", "more than 10000"),
        ] {
            assert!(parse_workers(text).unwrap_err().contains(reason), "{text}");
        }
    }

    #[test]
    fn requests_are_whole_and_bounded() {
        assert_eq!(parse_requests("1.5M"), Ok(1_500_000));
        for text in ["0", "0.5", "200M", "x"] {
            assert!(parse_requests(text).is_err(), "{text}");
        }
    }
}
