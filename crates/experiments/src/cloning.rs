//! Common parts of the reproductions of cloning: a point over seeds, and its figures in
//! microseconds.

use anyhow::Result;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_sim::cloning::{CloningError, Config, Outcome, Scheme, simulate};
use tailcut_sim::sojourn::Estimate;

use super::cores::over_seeds;
use super::effort::Effort;

/// The runs of a point.
pub(super) struct Point(Vec<Outcome>);

impl Point {
    /// Runs `requests` requests, or the share of the effort, under each of [`SEEDS`] seeds.
    pub(super) fn run(effort: Effort, config: &Config, requests: u32) -> Result<Self> {
        Self::run_seeds(effort, config, requests, SEEDS)
    }

    /// As [`Point::run`], under so many seeds.
    pub(super) fn run_seeds(
        effort: Effort,
        config: &Config,
        requests: u32,
        seeds: u64,
    ) -> Result<Self> {
        let requests = effort.requests(u64::from(requests)) as u32;
        let config = Config { requests, ..config.clone() };
        let runs = over_seeds(effort.seed, seeds, |seed| simulate(&config, seed));
        Ok(Self(runs.into_iter().collect::<Result<_, CloningError>>()?))
    }

    /// The mean latency, us.
    pub(super) fn mean_us(&self) -> f64 {
        self.average(|run| run.latency.mean() / PS_PER_US)
    }

    /// A percentile of the latency, us.
    pub(super) fn percentile_us(&self, p: f64) -> f64 {
        self.average(|run| run.latency.percentile(p) / PS_PER_US)
    }

    /// The standard deviation of a single run's percentile, us.
    pub(super) fn deviation_us(&self, p: f64) -> f64 {
        let values: Vec<f64> =
            self.0.iter().map(|run| run.latency.percentile(p) / PS_PER_US).collect();
        Estimate::of(&values)
            .standard_error
            .map_or(f64::NAN, |error| error * (values.len() as f64).sqrt())
    }

    /// The mean over the runs.
    pub(super) fn average(&self, figure: impl Fn(&Outcome) -> f64) -> f64 {
        self.0.iter().map(figure).sum::<f64>() / self.0.len() as f64
    }
}

/// Servers of 15 workers, as many as the testbed has, with 1 % of jitter.
pub(super) fn config(scheme: Scheme, servers: usize, service: &str, load: f64) -> Result<Config> {
    Ok(Config::new(scheme, vec![15; servers], Distribution::parse(service, Unit::Time)?, load))
}

/// A scheme as figures call it.
pub(super) fn name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::None => "random",
        Scheme::CClone => "C-Clone",
        Scheme::NetClone => "NetClone",
        Scheme::RackSched => "RackSched",
        Scheme::NetCloneRackSched => "NetClone with RackSched",
        Scheme::Laedge => "LAEDGE",
        Scheme::Routed(policy) => policy.name(),
    }
}

/// For each point.
pub(super) const SEEDS: u64 = 4;
pub(super) const PS_PER_US: f64 = 1e6;
