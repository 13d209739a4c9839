//! The experiment that flags and a file describe.

use std::net::IpAddr;

use anyhow::{Context, Result};
use tailcut_instrument::agent::key::Key;
use tailcut_instrument::experiment::{Experiment, Load};
use tailcut_instrument::job::{Job, Tls, Transport};
use tailcut_instrument::pattern::Pattern;
use tailcut_instrument::text_file::{self, CONFIG_BYTES_MAX};
use tailcut_measure::control::{Limits, Settings, Setup, Target};
use tailcut_net::keys::LiveKeys;

use super::flags::{Flags, Precision};
use crate::{apps, keys};

/// The experiment, which loads nothing yet.
///
/// # Errors
///
/// A flag that is missing, and a file of certificates or of a key that cannot be read.
pub(super) fn experiment(flags: &Flags) -> Result<Experiment> {
    let app = flags.app.as_ref().context("say what to ask: --app")?;
    // The settings keep what was typed; agents elsewhere read no file.
    let (_, app_text) = apps::parse(app.text()).map_err(anyhow::Error::msg)?;
    let transport = flags.carried_by();
    let rate = flags.rate.as_deref().map(|&rate_per_s| Load::Rate(rate_per_s));
    let load = match (flags.pattern, flags.outstanding) {
        (Some(pattern), _) => Load::Pattern(pattern),
        (None, Some(outstanding)) => Load::Outstanding(outstanding),
        (None, None) => rate.context("say how much to load: --rate")?,
    };
    let mut experiment = Experiment::new(transport, &app_text, flags.target.clone(), load)?;
    set_job(&mut experiment.job, flags)?;
    if let Some(arrivals) = &flags.arrivals {
        experiment.arrivals = arrivals.text().to_owned();
    }
    experiment.stamp_every = flags.stamp_every;
    if !flags.agent.is_empty() {
        experiment.agents = flags.agent.iter().map(|agent| (**agent).clone()).collect();
    }
    experiment.key = flags.key_file.as_deref().map(Key::read).transpose()?;
    experiment.settings = settings(flags, experiment.job.connections);
    experiment.objective = flags.slo.as_deref().copied();
    experiment.assertions = flags.assert.iter().map(|assertion| **assertion).collect();
    experiment.config = repeating(flags, transport, &experiment.job)?.to_json()?;
    Ok(experiment)
}

/// The flags that repeat the run: those that were given, and the defaults of others, which another
/// version may not have.
fn repeating(flags: &Flags, transport: Transport, job: &Job) -> Result<Flags> {
    // A search wants no percentile but its objective's, and knows it well enough when it can
    // decide.
    let is_search = matches!(flags.pattern, Some(Pattern::Find { .. }));
    let percentile = P_DEFAULT_TEXT.parse().map_err(anyhow::Error::msg)?;
    let precision = PRECISION_DEFAULT_TEXT.parse().map_err(anyhow::Error::msg)?;
    Ok(Flags {
        transport: Some(transport),
        threads: Some(job.threads),
        connections: Some(job.connections),
        pipeline: Some(job.pipeline),
        seed: Some(job.seed),
        spin_ns: (!flags.busy_poll).then_some(job.spin_ns),
        percentile: flags.percentile.clone().or(Some(percentile).filter(|_| !is_search)),
        precision: flags.precision.clone().or(Some(precision).filter(|_| !is_search)),
        ..flags.clone()
    })
}

fn set_job(job: &mut Job, flags: &Flags) -> Result<()> {
    job.threads = flags.threads.unwrap_or(job.threads);
    job.connections = flags.connections.unwrap_or(job.connections.max(job.threads));
    job.pipeline = flags.pipeline.unwrap_or(job.pipeline);
    job.timeout_ns = flags.timeout.as_deref().copied().unwrap_or(job.timeout_ns);
    job.seed = flags.seed.unwrap_or(job.seed);
    job.stamp_every = flags.stamp_every.unwrap_or(job.stamp_every);
    job.preload = flags.preload;
    job.no_probe = flags.no_probe;
    job.busy_poll = flags.busy_poll;
    job.spin_ns = flags.spin_ns.unwrap_or(job.spin_ns);
    (job.r2p2.idempotent, job.r2p2.v1) = (flags.idempotent, flags.v1);
    job.r2p2.clones = flags.clone.as_deref().copied().unwrap_or_default();
    job.r2p2.cancel_loser = flags.cancel_loser;
    job.r2p2.failover = flags.failover;
    job.netclone_servers = flags.netclone_servers.unwrap_or(job.netclone_servers);
    job.r2p2.paced = flags.paced;
    job.is_sealed = flags.seal.is_some();
    job.seal = flags.seal.as_deref().map(keys::of_client).transpose()?.map(LiveKeys::from);
    job.datapath = flags.datapath.as_ref().map(|datapath| datapath.text().to_owned());
    let read = |path: &String| {
        text_file::read(path, CONFIG_BYTES_MAX).with_context(|| format!("cannot read {path}"))
    };
    let roots_pem = flags.ca.as_ref().map(read).transpose()?;
    if job.transport == Transport::Tls {
        let name = flags.server_name.clone().or_else(|| host_name(flags.target.first()?));
        let insecure = flags.insecure;
        job.tls = Some(Tls { name, roots_pem, insecure });
    }
    Ok(())
}

/// The name in `HOST:PORT`; none where it is an address.
fn host_name(target: &str) -> Option<String> {
    let (host, _) = target.rsplit_once(':')?;
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    (!is_address).then(|| host.to_owned())
}

/// The controller's settings: its target and its limits.
fn settings(flags: &Flags, connections: u32) -> Settings {
    let is_search = matches!(flags.pattern, Some(Pattern::Find { .. }));
    let defaults = Settings::new(flags.percentile.as_deref().copied().unwrap_or(P_DEFAULT));
    let mut settings = match flags.slo.as_deref().filter(|_| is_search) {
        Some(objective) => Settings::deciding(*objective),
        None => defaults,
    };
    match flags.precision.as_deref() {
        Some(&Precision::Share(share)) => settings.target = Target::Share(share),
        Some(&Precision::Nanoseconds(ns)) => settings.target = Target::Nanoseconds(ns),
        None => {}
    }
    settings.setup = Setup { connections, ..Setup::default() };
    let defaults = Limits::default();
    let warmup = flags.warmup.as_deref().copied();
    let duration = flags.duration.as_deref().copied();
    let measure_max_ns = duration.or(flags.duration_max.as_deref().copied());
    let measure_max_ns = measure_max_ns.unwrap_or(defaults.measure_max_ns);
    let measure_min_ns = duration.or(flags.duration_min.as_deref().copied());
    settings.limits = Limits {
        warmup_min_ns: warmup.unwrap_or(defaults.warmup_min_ns),
        // A duration that was given is kept to: nothing is prolonged and nothing begins again.
        warmup_max_ns: match duration {
            Some(_) => warmup.unwrap_or(defaults.warmup_min_ns),
            None => defaults.warmup_max_ns.max(warmup.unwrap_or(0)),
        },
        measure_min_ns: measure_min_ns.unwrap_or(defaults.measure_min_ns).min(measure_max_ns),
        measure_max_ns,
        total_max_ns: flags.time_max.as_deref().copied().unwrap_or(defaults.total_max_ns),
        restarts_max: if duration.is_some() { 0 } else { defaults.restarts_max },
        connections_max: flags.connections_max.unwrap_or(connections),
        ..defaults
    };
    settings
}

const P_DEFAULT: f64 = 0.99;

// As flags have them.
const P_DEFAULT_TEXT: &str = "p99";
const PRECISION_DEFAULT_TEXT: &str = "5%";

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(more: &str) -> Flags {
        let text = "target = [\"127.0.0.1:9\"]\napp = \"echo:64\"\n";
        toml::from_str(&format!("{text}{more}")).expect("flags")
    }

    #[test]
    fn a_result_says_the_defaults_that_the_run_had() {
        let config = experiment(&flags("rate = \"1k\"\n")).expect("an experiment").config;
        let said =
            ["seed", "threads", "connections", "pipeline", "spin-ns"].map(|key| &config[key]);
        assert_eq!(said, [1, 1, 1, 16_384, 200_000]);
        assert_eq!((&config["percentile"], &config["precision"]), (&"p99".into(), &"5%".into()));
        assert_eq!(config["transport"], "r2p2");
        let again: Flags = serde_json::from_value(config).expect("keys of an experiment");
        let (first, second) = (settings(&flags(""), 1), settings(&again, 1));
        assert_eq!((first.p, first.target), (second.p, second.target));
    }

    #[test]
    fn what_was_given_stands_and_what_the_run_did_not_use_is_not_said() {
        let more = "pattern = \"find:1k:40k\"\nslo = \"p50<1ms\"\nbusy-poll = true\nseed = 7\n";
        let config = experiment(&flags(more)).expect("an experiment").config;
        assert_eq!(config["seed"], 7);
        for key in ["percentile", "precision", "spin-ns"] {
            assert!(config.get(key).is_none(), "{key}: {config}");
        }
    }
}
