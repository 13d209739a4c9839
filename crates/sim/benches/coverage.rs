//! Coverage of the 95 % interval of the p99: how often it contains the exact one, at the run
//! lengths that the controller chooses.
//!
//! `cargo bench -p tailcut-sim --bench coverage -- [RUNS] [WORKERS] [LOAD...]`; without, 20 runs of
//! 1 and of 4 workers (0 for both) at 0.2, 0.5, 0.7, 0.8 and 0.9. `TAILCUT_BENCH_QUICK=1` makes it
//! 2 runs at 0.2.
//!
//! Runs begin with 10,000 requests and may be as long as they need. "over independent" is the
//! number of samples over what it takes for as narrow an interval where samples are independent;
//! "inherent" is the part of that which the queue's own memory costs any interval, from the
//! variance over all runs.

#[path = "../tests/it/instrument/subject.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod subject;

use tailcut_measure::control::Settings;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_measure::queueing::{MMk, Sojourn};

use self::subject::Subject;

fn main() {
    let is_quick = std::env::var_os("TAILCUT_BENCH_QUICK").is_some();
    // Cargo adds `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let runs = arguments.next().map_or(if is_quick { 2 } else { 20 }, |runs| {
        runs.parse().expect("the first argument is a number of runs")
    });
    let chosen = arguments
        .next()
        .map_or(0, |workers| workers.parse().expect("the second argument is a number of workers"));
    let mut loads: Vec<f64> =
        arguments.map(|load| load.parse().expect("a load is a number below 1")).collect();
    if loads.is_empty() {
        loads = if is_quick { vec![0.2] } else { vec![0.2, 0.5, 0.7, 0.8, 0.9] };
    }
    println!(
        "queue  load   runs     ok  covered   width  samples (mean)  over independent  inherent  looks"
    );
    for workers in [1, 4].into_iter().filter(|&workers| chosen == 0 || chosen == workers) {
        for &load in &loads {
            row(workers, load, runs);
        }
    }
}

fn row(workers: usize, load: f64, runs: u64) {
    let service = Distribution::parse("exp:10us", Unit::Time).expect("the text is valid");
    let subject = Subject::steady(workers, service, load);
    let queue = MMk::new(workers, load).expect("the load is below 1");
    let exact_ns = queue.percentile(P) * MEAN_NS;
    let settings = settings(subject.rate_per_s);
    let mut sums = Sums::default();
    for seed in 0..runs {
        let report = subject.measure(settings.clone(), seed).expect("the load is valid");
        let Some(found) = report.intended.filter(|_| report.verdict.is_ok()) else {
            eprintln!("M/M/{workers} at {load}, seed {seed}: {}", report.verdict);
            continue;
        };
        sums.ok += 1;
        sums.covered += u64::from((found.low_ns..=found.high_ns).contains(&exact_ns));
        sums.width += found.half_width_share();
        sums.samples += found.samples as f64;
        sums.looks += report.tried.len() + 1;
        sums.independent += independent(&queue, found.half_width_share());
        sums.errors += (found.value_ns / exact_ns - 1.0).powi(2) * found.samples as f64;
    }
    let ok = sums.ok.max(1) as f64;
    println!(
        "M/M/{workers}  {load:.2}  {runs:5}  {:5}  {:6.1}%  {:5.2}%  {:14.0}  {:16.2}  {:8.2}  {:5.1}",
        sums.ok,
        100.0 * sums.covered as f64 / ok,
        100.0 * sums.width / ok,
        sums.samples / ok,
        sums.samples / sums.independent,
        sums.errors / ok / (independent(&queue, 1.0) / 1.96 / 1.96),
        sums.looks as f64 / ok,
    );
}

#[derive(Default)]
struct Sums {
    ok: u64,
    covered: u64,
    width: f64,
    samples: f64,
    independent: f64,
    errors: f64,
    looks: usize,
}

/// Independent samples for an interval of the p99 whose half is `share` of it.
fn independent(queue: &MMk, share: f64) -> f64 {
    let value = queue.percentile(P);
    let density = (queue.tail(value * 0.999) - queue.tail(value * 1.001)) / (value * 0.002);
    P * (1.0 - P) * (1.96 / density / value / share).powi(2)
}

fn settings(rate_per_s: f64) -> Settings {
    let mut settings = Settings::new(P);
    let first_ns = (10_000.0 / rate_per_s * 1e9) as u64;
    settings.limits.warmup_min_ns = first_ns;
    settings.limits.warmup_max_ns = 1000 * first_ns;
    settings.limits.measure_min_ns = first_ns;
    settings.limits.measure_max_ns = 10_000 * first_ns;
    settings
}

const P: f64 = 0.99;
const MEAN_NS: f64 = 10_000.0;
