//! `tailcut sim queue`: a policy before workers, at the grain of queues, with exact theory beside.

use std::str::FromStr;

use anyhow::Result;
use serde_json::{Value, json};
use tailcut_experiments::cores::over_seeds;
use tailcut_measure::arrivals::Process;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::{Unit, parse_count};
use tailcut_measure::queueing::{self, Exact, Sojourn, exact};
use tailcut_proto::policy::{self, PolicySpec};
use tailcut_sim::queue::{Jitter, Run, System, TieRule, Trace, Typing, WORKERS_MAX};
use tailcut_sim::sojourn::{Estimate, Figures};
use tailcut_sim::{PS_PER_NS, WARMUP_SHARE};

use super::Outcome;
use super::figures::{NAMES, errors_json, estimates, named, values_json};
use crate::distribution_file::{parse_delay_ns, parse_positive_ns, parse_times, read};
use crate::output;

/// Simulate a policy before workers, request by request, with the exact answer beside where there
/// is one
///
/// A sojourn lasts from the arrival at the router to the end of the service; the way back is
/// not included.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Workers in all [default: 16, or as the layout says]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Queues x workers of each: a request picks a queue at random, the policy places it there
    /// [default: 1x16, or 1xN]
    #[arg(long, value_name = "QxU")]
    layout: Option<Layout>,
    #[arg(long, value_name = "POLICY", default_value = "jbsq:2")]
    #[arg(help = format!("Worker that gets a request: {}", policy::grammar("or")))]
    policy: PolicySpec,
    /// Worker that gets it where several have the fewest, with jbsq: rotate, random, lowest, or
    /// tokens [default: rotate]
    #[arg(long, value_name = "RULE")]
    ties: Option<TieRule>,
    /// Service time at a worker of speed 1
    #[arg(long, value_name = "DIST", default_value = "exp:1us", value_parser = parse_times)]
    service: Distribution,
    /// Shape of the gaps between arrivals: poisson, fixed, a distribution of plain numbers, or
    /// trace:FILE for recorded gaps in their order, one a line; all are scaled to the load
    #[arg(long, value_name = "GAPS", default_value = "poisson", value_parser = parse_gaps)]
    arrivals: Gaps,
    /// What arrives over what the workers can serve; from 1 on with --deadline
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    load: f64,
    /// From the arrival until nobody wants the answer: requests wait for as long as a router lets
    /// them, and figures are of what was answered in time
    #[arg(long, value_name = "TIME", value_parser = parse_positive_ns)]
    deadline: Option<u64>,
    /// Share of services that take longer
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    jitter: f64,
    /// How much longer they take
    #[arg(long, value_name = "FACTOR", default_value_t = 15.0)]
    jitter_factor: f64,
    /// Speed of each worker, such as 1,1,0.5 or 1*12,0.5*4 [default: all 1]
    #[arg(long, value_name = "LIST", value_parser = parse_speeds)]
    speeds: Option<Speeds>,
    /// From the router to a worker
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = parse_delay_ns)]
    to_worker: u64,
    /// From the end of a service until the router knows of it
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = parse_delay_ns)]
    feedback: u64,
    /// From the scheduler to a worker and back, half of it each way, in place of --to-worker and
    /// --feedback: the hand-off of a host's dispatcher
    #[arg(long, value_name = "TIME", conflicts_with_all = ["to_worker", "feedback"], value_parser = parse_delay_ns)]
    handoff: Option<u64>,
    /// How long the scheduler takes for each request, one after the other
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = parse_delay_ns)]
    occupancy: u64,
    /// Have the scheduler run requests itself whose mean service (of each type, with --darc) is at
    /// most half of the hand-off, once it has seen 4,096 of them
    #[arg(long, requires = "handoff")]
    in_place: bool,
    /// Service times that part the requests into types, such as 10us or 10us,1ms: figures of each
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', value_parser = parse_positive_ns)]
    types: Vec<u64>,
    /// Give each of the --types a queue, and reserve workers for short ones (DARC)
    #[arg(long, requires = "types")]
    darc: bool,
    /// Longest service at a time, with jbsq: what is left waits behind the others (preemption)
    #[arg(long, value_name = "TIME", value_parser = parse_positive_ns)]
    slice: Option<u64>,
    /// Requests, warm-up included
    #[arg(long, value_name = "N", default_value = "2M", value_parser = parse_count)]
    requests: u64,
    /// Requests of them that warm up [default: a tenth]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    warmup: Option<u64>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs, with consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
}

/// Q queues before U workers each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    queues: usize,
    workers: usize,
}

/// A speed for each worker.
#[derive(Clone, Debug, PartialEq)]
struct Speeds(Vec<f64>);

pub(super) fn check(args: &Args) -> Result<()> {
    Ok(args.system()?.check()?)
}

pub(super) fn run(args: &Args) -> Result<Outcome> {
    let system = args.system()?;
    system.check()?;
    let runs = over_seeds(args.seed, args.seeds, |seed| system.run(seed))
        .into_iter()
        .collect::<Result<Vec<Run>, _>>()?;
    let mean_ps = system.service_mean_ps();
    let figures: Vec<Figures> = runs.iter().map(|run| run.sojourns.figures(mean_ps)).collect();
    let found = Findings { estimates: estimates(&figures), exact: exact_of(&system)?, runs };
    Ok(Outcome { json: found.json(args, &system), text: found.text(args, &system), failure: None })
}

struct Findings {
    /// In units of the mean service time.
    estimates: [Estimate; 5],
    exact: Option<Exact>,
    runs: Vec<Run>,
}

impl Findings {
    fn json(&self, args: &Args, system: &System) -> Value {
        let mean_ns = system.service_mean_ps() / 1e3;
        let exact = self.exact.as_ref().map(|exact| {
            let mut object = named(exact_figures(exact));
            object["model"] = json!(exact.model);
            object
        });
        json!({
            "schema": "tailcut.sim.queue/1",
            "config": args.config_json(system),
            "service_mean_ns": mean_ns,
            "sojourn_over_service": values_json(&self.estimates, 1.0),
            "sojourn_ns": values_json(&self.estimates, mean_ns),
            "standard_error": errors_json(&self.estimates, 1.0),
            "exact": exact,
            "requests_counted": self.sum(|run| run.sojourns.count()),
            "refused": self.sum(|run| run.refused),
            "late": self.sum(|run| run.late),
            "goodput_over_capacity": self.goodput(args),
            "held_share": self.average(Run::held_share),
            "queue_len_max": self.runs.iter().map(|run| run.queue_len_max).max(),
            "utilisation": self.average(|run| run.utilisation),
            "types": self.by_type(args, system).map(|(_, up_to_ns, estimates)| json!({
                "up_to_ns": up_to_ns,
                "sojourn_ns": values_json(&estimates, 1.0),
                "standard_error_ns": errors_json(&estimates, 1.0),
            })).collect::<Vec<_>>(),
        })
    }

    /// Name of each type, its longest service where there is one, and its sojourns in ns.
    fn by_type<'a>(
        &'a self,
        args: &'a Args,
        system: &'a System,
    ) -> impl Iterator<Item = (String, Option<u64>, [Estimate; 5])> + 'a {
        let count = if system.types_ps.is_empty() { 0 } else { system.types_ps.len() + 1 };
        (0..count).map(|kind| {
            let up_to_ns = args.types.get(kind).copied();
            let name = up_to_ns.map_or_else(
                || "longer, ns".to_owned(),
                |up_to_ns| format!("up to {}, ns", Unit::Time.format(up_to_ns as f64)),
            );
            let figures: Vec<Figures> =
                self.runs.iter().map(|run| run.by_type[kind].figures(PS_PER_NS as f64)).collect();
            (name, up_to_ns, estimates(&figures))
        })
    }

    fn text(&self, args: &Args, system: &System) -> String {
        let head = [vec!["sojourn".to_owned()], NAMES.map(str::to_owned).to_vec()].concat();
        let row = |name: &str, cell: fn(&Estimate) -> String| {
            [vec![name.to_owned()], self.estimates.iter().map(cell).collect::<Vec<_>>()].concat()
        };
        let mut rows =
            vec![head, row("over the mean service", |estimate| format!("{:.4}", estimate.value))];
        if args.seeds > 1 {
            rows.push(row("standard error", |estimate| {
                estimate.standard_error.map_or_else(String::new, |e| format!("{e:.4}"))
            }));
        }
        if let Some(exact) = &self.exact {
            let cells = exact_figures(exact).map(|value| format!("{value:.4}"));
            rows.push([vec![format!("exact: {}", exact.model)], cells.to_vec()].concat());
        }
        let mean_ns = system.service_mean_ps() / 1e3;
        let in_ns = self.estimates.map(|estimate| format!("{:.0}", estimate.value * mean_ns));
        rows.push([vec!["ns".to_owned()], in_ns.to_vec()].concat());
        for (name, _, estimates) in self.by_type(args, system) {
            let cells = estimates.map(|estimate| format!("{:.0}", estimate.value));
            rows.push([vec![name], cells.to_vec()].concat());
        }
        let line = format!(
            "held centrally: {:.4} of the requests; longest queue {}; utilisation {:.4}\n",
            self.average(Run::held_share),
            self.runs.iter().map(|run| run.queue_len_max).max().unwrap_or(0),
            self.average(|run| run.utilisation),
        );
        output::table(&rows, 1) + &line + &self.deadline_text(args)
    }

    /// Outcomes of the deadlines, where there are some.
    fn deadline_text(&self, args: &Args) -> String {
        let Some(deadline_ns) = args.deadline else { return String::new() };
        format!(
            "in time, within {}: {}; refused {}, late {}; goodput over capacity {:.4}\n",
            Unit::Time.format(deadline_ns as f64),
            self.sum(|run| run.sojourns.count()),
            self.sum(|run| run.refused),
            self.sum(|run| run.late),
            self.goodput(args),
        )
    }

    /// Requests answered in time, over what the workers can serve.
    fn goodput(&self, args: &Args) -> f64 {
        args.load * self.average(Run::answered_share)
    }

    fn sum(&self, count: impl Fn(&Run) -> u64) -> u64 {
        self.runs.iter().map(count).sum()
    }

    fn average(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        self.runs.iter().map(figure).sum::<f64>() / self.runs.len() as f64
    }
}

impl Args {
    fn system(&self) -> Result<System> {
        let layout = match (self.layout, self.workers) {
            (None, workers) => Layout { queues: 1, workers: workers.unwrap_or(WORKERS) },
            (Some(layout), Some(workers))
                if layout.queues.saturating_mul(layout.workers) != workers =>
            {
                anyhow::bail!(
                    "a layout of {}x{} has not {workers} workers",
                    layout.queues,
                    layout.workers
                )
            }
            (Some(layout), _) => layout,
        };
        Ok(System {
            groups: layout.queues,
            ties: self.ties,
            arrivals: self.arrivals.process.clone(),
            trace: self.arrivals.trace.clone(),
            jitter: Jitter { probability: self.jitter, factor: self.jitter_factor },
            speeds: self.speeds.clone().map_or_else(Vec::new, |speeds| speeds.0),
            to_worker_ps: self.handoff.map_or(self.to_worker.saturating_mul(1000), half_ps),
            feedback_ps: self.handoff.map_or(self.feedback.saturating_mul(1000), half_ps),
            occupancy_ps: self.occupancy.saturating_mul(1000),
            in_place_ps: self.handoff.filter(|_| self.in_place).map(half_ps),
            types_ps: self.types.iter().map(|limit_ns| limit_ns.saturating_mul(1000)).collect(),
            typing: if self.darc { Typing::Reserved } else { Typing::Shown },
            deadline_ps: self.deadline.map(|deadline_ns| deadline_ns.saturating_mul(1000)),
            slice_ps: self.slice.map(|slice_ns| slice_ns.saturating_mul(1000)),
            load: self.load,
            requests: self.requests,
            warmup: self.warmup.unwrap_or(self.requests / WARMUP_SHARE),
            ..System::new(layout.workers, self.policy, self.service.clone())
        })
    }

    fn config_json(&self, system: &System) -> Value {
        json!({
            "workers": system.groups * system.workers,
            "layout": format!("{}x{}", system.groups, system.workers),
            "policy": self.policy.to_string(),
            "bound": system.bound(),
            "ties": system.bound().map(|_| system.ties.unwrap_or_default().to_string()),
            "service": self.service.to_string(),
            "arrivals": self.arrivals.text,
            "load": self.load,
            "deadline_ns": self.deadline,
            "jitter": self.jitter,
            "jitter_factor": self.jitter_factor,
            "speeds": self.speeds.as_ref().map(|speeds| &speeds.0),
            "to_worker_ns": self.to_worker,
            "feedback_ns": self.feedback,
            "handoff_ns": self.handoff,
            "occupancy_ns": self.occupancy,
            "in_place": self.in_place,
            "types_ns": self.types,
            "darc": self.darc,
            "slice_ns": self.slice,
            "requests": self.requests,
            "warmup": system.warmup,
            "seed": self.seed,
            "seeds": self.seeds,
        })
    }
}

impl FromStr for Layout {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('x').map(|(queues, workers)| (queues.parse(), workers.parse()));
        match parts {
            Some((Ok(queues), Ok(workers))) if queues > 0 && workers > 0 => {
                Ok(Self { queues, workers })
            }
            _ => Err("write QxU, such as 4x4: queues, and the workers of each"),
        }
    }
}

/// Exact figures by theory, where it knows the system: without delays, jitter and unequal workers,
/// and with counted places.
fn exact_of(system: &System) -> Result<Option<Exact>> {
    let is_plain = system.jitter.probability == 0.0
        && system.to_worker_ps == 0
        && system.feedback_ps == 0
        && system.occupancy_ps == 0
        && system.in_place_ps.is_none()
        && system.deadline_ps.is_none()
        && system.slice_ps.is_none()
        && system.typing == Typing::Shown
        && system.speeds.iter().all(|&speed| speed == 1.0)
        && system.arrivals == Process::Poisson
        && system.trace.is_none()
        && (system.ties != Some(TieRule::Tokens) || system.workers == 1);
    if !is_plain {
        return Ok(None);
    }
    let reference = queueing::System {
        groups: system.groups,
        servers: system.workers,
        policy: system.fixed_policy(),
        service: &system.service,
        load: system.load,
    };
    Ok(exact(&reference)?)
}

fn exact_figures(exact: &Exact) -> [f64; 5] {
    let percentile = |p| exact.sojourn.percentile(p);
    [exact.sojourn.mean(), percentile(0.5), percentile(0.9), percentile(0.99), percentile(0.999)]
}

/// Half of a time in nanoseconds, in picoseconds.
fn half_ps(time_ns: u64) -> u64 {
    time_ns.saturating_mul(500)
}

/// Gaps between arrivals, with their text form.
#[derive(Clone, Debug)]
struct Gaps {
    text: String,
    process: Process,
    /// In the place of the process, if there is one.
    trace: Option<Trace>,
}

fn parse_gaps(text: &str) -> Result<Gaps, String> {
    if let Some(path) = text.strip_prefix("trace:") {
        let gaps = read(path, Unit::Time).map_err(|error| format!("{path}: {error}"))?;
        let trace = Trace::new(gaps).map_err(|error| format!("{path}: {error}"))?;
        return Ok(Gaps { text: text.to_owned(), process: Process::Poisson, trace: Some(trace) });
    }
    let (process, text) = match text {
        "poisson" => (Process::Poisson, text.to_owned()),
        "fixed" => (Process::Fixed, text.to_owned()),
        _ => {
            let load = |path: &str| read(path, Unit::Plain);
            let gaps = Distribution::parse_with(text, Unit::Plain, load);
            let gaps = gaps.map_err(|error| error.to_string())?;
            let text = gaps.to_string();
            (Process::Shaped(gaps), text)
        }
    };
    Ok(Gaps { text, process, trace: None })
}

fn parse_speeds(text: &str) -> Result<Speeds, String> {
    let mut speeds = Vec::new();
    for part in text.split(',') {
        let (speed, count) = part.split_once('*').unwrap_or((part, "1"));
        let parsed = speed.parse::<f64>().ok().zip(count.parse::<usize>().ok());
        let (speed, count) = parsed
            .ok_or_else(|| format!("{part:?} is neither SPEED nor SPEED*WORKERS, such as 0.5*4"))?;
        if count > WORKERS_MAX || speeds.len() > WORKERS_MAX {
            return Err(format!("more than {WORKERS_MAX} workers"));
        }
        speeds.extend(std::iter::repeat_n(speed, count));
    }
    Ok(Speeds(speeds))
}

const WORKERS: usize = 16;

const AFTER_HELP: &str = "\
Examples:
  tailcut sim queue --workers 16 --policy jbsq:2 --service exp:1us --load 0.8
  tailcut sim queue --layout 4x4 --policy jbsq:1 --service fixed:1us --load 0.9 --seeds 5
  tailcut sim queue --policy jbsq:3 --service exp:10us --to-worker 5us --feedback 5us --load 0.9
  tailcut sim queue --policy jbsq:2 --handoff 130ns --occupancy 30ns --load 0.9
  tailcut sim queue --workers 1 --handoff 1us --in-place --service exp:300ns --load 0.7
  tailcut sim queue --policy jbsq:1 --service exp:1ms --load 10 --deadline 100ms --requests 300k
  tailcut sim queue --policy jbsq:1 --service bimodal:1us:500us:0.995 --load 0.7 --types 10us --darc
  tailcut sim queue --policy jbsq:1 --service bimodal:1us:500us:0.995 --load 0.7 --types 10us --slice 5us
  tailcut sim queue --speeds 1*12,0.5*4 --jitter 0.01 --json -";
