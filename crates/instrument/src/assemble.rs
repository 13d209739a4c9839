//! From what a run has measured to its result.

use std::collections::BTreeMap;

use strum::VariantArray;
use tailcut_measure::app::ErrorKind;
use tailcut_measure::control::{Known, Report};
use tailcut_measure::objective::percentile_name;
use tailcut_measure::quantity::duration;
use tailcut_measure::statistics::autocorrelation::autocorrelation;
use tailcut_measure::verdict;

use super::causes;
use super::coordinator::{AgentSession, Measured};
use super::hdr;
use super::job::{ClientCounts, StampKind};
use super::percentile;
use super::record::{Kept, MOMENTS_MAX, Record};
use super::result::{
    Agent, ArrivalTest, Client, Counts, Histograms, Interval, Latencies, Latency, Moment, Point,
    Rates, Reason, StationarityTest, Tests, Timestamps, Verdict,
};

/// The point of a load.
pub(super) fn point(measured: &Measured, arrivals: &str) -> Point {
    let Measured { report, record, sessions, .. } = measured;
    let mut client = ClientCounts::default();
    sessions.iter().for_each(|session| client.add(&session.client));
    let rates = record.rates();
    Point {
        verdict: verdict_of(measured),
        rate_per_s: Rates {
            offered: rates.offered_per_s,
            sent: rates.sent_per_s,
            achieved: rates.replied_per_s,
        },
        counts: counts(record, &client),
        latency_us: Latencies {
            intended: latency(&record.intended),
            actual: latency(&record.actual),
        },
        intervals_us: intervals(report),
        histograms: Histograms {
            intended: hdr::encode(&record.intended.histogram),
            actual: hdr::encode(&record.actual.histogram),
        },
        series: series(record),
        tests: tests(record, report, arrivals),
        timestamps: timestamps(measured),
        client: Client {
            mismatched: client.mismatched,
            saturated: client.saturated,
            resent: client.resent,
            sleeps: client.sleeps,
            icmp_errors: client.icmp_errors,
            kernel_drops: client.kernel_drops,
            cpu: causes::cpu(sessions),
            host_drops: client.host_drops.any(),
            clones: client.clones.any(),
        },
        agents: sessions.iter().map(agent).collect(),
        warmup_s: report.spent_before_ns as f64 / 1e9,
        measured_s: record.duration_ns as f64 / 1e9,
    }
}

/// The answer of several loads that were to be more, but for `cut`.
pub(super) fn note_cut(point: &mut Point, cut: &verdict::Reason) {
    let cut = reason(cut);
    if point.verdict.reasons.iter().all(|known| known.name != cut.name) {
        point.verdict.reasons.insert(0, cut);
    }
    point.verdict.trustworthy = false;
}

fn reason(reason: &verdict::Reason) -> Reason {
    Reason { name: reason.as_ref().to_owned(), what: reason.to_string(), advice: reason.advice() }
}

fn verdict_of(Measured { report, record, .. }: &Measured) -> Verdict {
    let reasons = report.verdict.reasons();
    let is_busy = reasons.iter().any(|found| matches!(found, verdict::Reason::HostBusy { .. }));
    // More threads would not help where there is no CPU for those that there are.
    let reason = |found: &verdict::Reason| match found {
        verdict::Reason::RateNotReached { .. }
        | verdict::Reason::ClientLate { .. }
        | verdict::Reason::ArrivalsWrong { .. }
            if is_busy =>
        {
            Reason { advice: "Fix host_busy first.".to_owned(), ..reason(found) }
        }
        found => reason(found),
    };
    Verdict {
        trustworthy: report.verdict.is_ok(),
        in_short: in_short(report, record),
        reasons: reasons.iter().map(reason).collect(),
        tried: report.tried.iter().map(ToString::to_string).collect(),
    }
}

/// Summary of the finding, in a sentence.
fn in_short(report: &Report, record: &Record) -> String {
    let rate = record.rates().replied_per_s;
    let known = report.intended.map(|known| {
        let [value, low, high] = [known.value_ns, known.low_ns, known.high_ns].map(duration);
        let name = percentile_name(known.p);
        format!("{name} is {value} ({low} to {high}) at {rate:.0} replies/s")
    });
    match (report.verdict.reasons().first(), known) {
        (None, Some(known)) => format!("{known}."),
        (None, None) => "nothing speaks against it.".to_owned(),
        (Some(reason), _) => format!("the figures cannot be relied on: {}.", reason.in_short()),
    }
}

fn counts(record: &Record, client: &ClientCounts) -> Counts {
    let tailcut_measure::outcome::Counts { sent, replied, lost, refused, timeout } = record.counts;
    let errors =
        ErrorKind::VARIANTS.iter().zip(record.tally.errors).filter(|&(_, count)| count > 0);
    Counts {
        sent,
        replied,
        lost,
        refused,
        timeout,
        misses: record.tally.misses,
        errors: errors.map(|(kind, count)| (kind.as_ref().to_owned(), count)).collect(),
        error_codes: record.errors.named().into_iter().collect(),
        reconnects: client.reconnects,
    }
}

fn latency(kept: &Kept) -> Latency {
    let us = |ns: f64| ns / 1e3;
    let percentile = |p| kept.percentile_ns(p).map(us);
    Latency {
        mean: kept.mean_ns().map(us),
        p50: percentile(0.5),
        p90: percentile(0.9),
        p95: percentile(0.95),
        p99: percentile(0.99),
        p999: percentile(0.999),
        p9999: percentile(0.9999),
        max: (!kept.histogram.is_empty()).then_some(kept.max_ns as f64 / 1e3),
    }
}

/// Intervals of the percentiles that the samples support.
fn intervals(report: &Report) -> BTreeMap<String, Interval> {
    report.known.iter().map(|known| (percentile::key(known.estimate.p), interval(known))).collect()
}

fn interval(known: &Known) -> Interval {
    let estimate = &known.estimate;
    Interval {
        value: estimate.value_ns / 1e3,
        low: estimate.low_ns / 1e3,
        high: estimate.high_ns / 1e3,
        confidence: estimate.confidence,
        effective_samples: estimate.effective(),
        trustworthy: known.verdict.is_ok(),
    }
}

fn series(record: &Record) -> Vec<Moment> {
    let moments = record.over_time(MOMENTS_MAX).into_iter();
    let moment = moments.map(|(at_s, length_s, moment)| {
        let Latency { p50, p99, max, .. } = latency(&moment.intended);
        Moment {
            at_s,
            length_s,
            sent: moment.counts.sent,
            replied: moment.counts.replied,
            failed: moment.counts.lost + moment.counts.refused + moment.counts.timeout,
            p50_us: p50,
            p99_us: p99,
            max_us: max,
            histograms: moment.histograms().map(|[intended, actual]| Histograms {
                intended: hdr::encode(&intended),
                actual: hdr::encode(&actual),
            }),
        }
    });
    moment.collect()
}

fn tests(record: &Record, report: &Report, arrivals: &str) -> Tests {
    let arrivals = record.arrivals.as_ref().map(|(fit, gaps_ns)| ArrivalTest {
        asked: arrivals.to_owned(),
        gaps: fit.gaps,
        anderson_darling: fit.statistic,
        p_value: fit.p_value,
        fault: fit.fault,
        quantiles: gap_quantiles(arrivals, gaps_ns),
    });
    let (dickey_fuller, drift) = (report.stationarity.dickey_fuller, report.stationarity.drift);
    let stationarity = (dickey_fuller.is_some() || drift.is_some()).then(|| StationarityTest {
        dickey_fuller: dickey_fuller.map(|test| test.statistic),
        dickey_fuller_p_value: dickey_fuller.map(|test| test.p_value),
        drift: drift.map(|drift| drift.largest()),
        drift_p_value: drift.map(|drift| drift.body_p_value),
    });
    let correlations = autocorrelation(record.series.samples(), LAG_MAX);
    let kept = correlations.iter().enumerate().filter(|&(lag, _)| is_shown(lag));
    let autocorrelation = kept.map(|(lag, &correlation)| (lag as u32, correlation)).collect();
    Tests { arrivals, stationarity, autocorrelation }
}

/// Few lags say as much as all: every one at first, then ever fewer.
fn is_shown(lag: usize) -> bool {
    lag > 0 && (lag <= 10 || lag <= 100 && lag.is_multiple_of(10) || lag.is_multiple_of(100))
}

/// Quantiles of the gaps, asked for and found, in units of the mean gap that was found.
fn gap_quantiles(arrivals: &str, gaps_ns: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = gaps_ns.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let mean = sorted.iter().sum::<f64>() / (sorted.len() as f64).max(1.0);
    let quantile = asked_quantile(arrivals);
    let pair = |index: usize| {
        let p = (index as f64 + 0.5) / QUANTILES as f64;
        Some((quantile(p)?, sorted.get((p * sorted.len() as f64) as usize)? / mean))
    };
    (0..QUANTILES).filter_map(pair).collect()
}

/// Quantiles of the gaps that were asked for, in units of their mean.
fn asked_quantile(arrivals: &str) -> Box<dyn Fn(f64) -> Option<f64>> {
    use tailcut_measure::arrivals::Process;
    match Process::parse(arrivals) {
        Ok(Process::Poisson) => Box::new(|p| Some(-(1.0 - p).ln())),
        Ok(Process::Fixed) => Box::new(|_| Some(1.0)),
        Ok(Process::Shaped(gaps)) => Box::new(move |p| Some(gaps.quantile(p)? / gaps.mean()?)),
        Err(_) => Box::new(|_| None),
    }
}

fn timestamps(measured: &Measured) -> Timestamps {
    let used = measured.sessions.iter().map(|session| session.stamps).max().unwrap_or_default();
    let clocks = &measured.clocks;
    let bias = clocks.bias();
    let us = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
    let bias_us = (bias.count > 0).then(|| Latency {
        mean: bias.mean_ns.map(|ns| ns / 1e3),
        p50: us(bias.p50_ns),
        p99: us(bias.p99_ns),
        max: us(bias.max_ns),
        ..Latency::default()
    });
    Timestamps {
        used: used.as_ref().to_owned(),
        // Every request has these, and whole percentiles are of every request.
        answers: StampKind::User.as_ref().to_owned(),
        latency_us: clocks
            .by_kind()
            .map(|(kind, kept)| (kind.as_ref().to_owned(), latency(kept)))
            .collect(),
        stamped: clocks
            .by_kind()
            .map(|(kind, kept)| (kind.as_ref().to_owned(), kept.histogram.len()))
            .collect(),
        bias_us,
        asked: clocks.counts.requests,
        missing: clocks.counts.missing_kernel + clocks.counts.missing_hardware,
        late: clocks.counts.late,
    }
}

fn agent(session: &AgentSession) -> Agent {
    Agent {
        name: session.name().to_owned(),
        role: session.job.role.as_ref().to_owned(),
        threads: session.job.threads,
        connections: session.job.connections,
        sent: session.counts.sent,
        replied: session.counts.replied,
        p99_us: session.kept.percentile_ns(0.99).map(|ns| ns / 1e3),
        start_uncertainty_us: session.start_uncertainty_us(),
        lost: session.lost().map(str::to_owned),
    }
}

/// Correlations up to so many requests apart.
const LAG_MAX: usize = 1_000;

/// Points of the quantile-quantile plot.
const QUANTILES: usize = 100;
