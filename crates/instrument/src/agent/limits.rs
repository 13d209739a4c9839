//! Limits of an agent: what it does for whoever has its key, and what for nobody.

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};
use tailcut_wire::netclone::SERVERS_MAX;

use crate::job::{Granted, Job, LoadShare};
use crate::network::{is_private, resolve, unix_path};

/// Set where the agent is started, by its owner; no coordinator can raise them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests a second.
    pub rate_max_per_s: f64,
    /// Targets that the agent loads.
    pub targets: Targets,
}

/// Targets that may be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Loopback and private ranges.
    Private,
    /// Whatever the agent's owner says is theirs, which is any.
    Any,
}

impl Limits {
    /// Grant for a job; an error if the job is none that this agent does.
    pub(super) fn check(&self, job: &Job) -> Result<Granted> {
        self.check_load(job)?;
        ensure!(job.datapath.is_none(), "an agent loads by sockets; leave --datapath out");
        within("netclone_servers", u64::from(job.netclone_servers), 1, u64::from(SERVERS_MAX))?;
        within("threads", u64::from(job.threads), 1, THREADS_MAX)?;
        check_connections(job.connections)?;
        within("pipeline", u64::from(job.pipeline), 1, OUTSTANDING_MAX)?;
        within("timeout_ns", job.timeout_ns, 1, TIMEOUT_NS_MAX)?;
        within("slice_ns", job.slice_ns, SLICE_NS_MIN, SLICE_NS_MAX)?;
        check_texts(job)?;
        within("targets", job.targets.len() as u64, 1, TARGETS_MAX)?;
        let addresses = job.targets.iter().map(|target| self.check_target(target));
        let addresses = addresses.collect::<Result<_>>()?;
        Ok(Granted { rate_max_per_s: Some(self.rate_max_per_s), addresses })
    }

    fn check_load(&self, job: &Job) -> Result<()> {
        let rate_per_s = match job.load {
            LoadShare::Closed { outstanding } => {
                return within("outstanding", u64::from(outstanding), 1, OUTSTANDING_MAX);
            }
            LoadShare::Open { rate_per_s, .. } => rate_per_s,
        };
        ensure!(
            rate_per_s.is_finite() && rate_per_s > 0.0,
            "a rate of {rate_per_s} requests a second is none"
        );
        if rate_per_s > self.rate_max_per_s {
            bail!(
                "{rate_per_s} requests a second are more than its limit of {}; it was started with that --rate-max",
                self.rate_max_per_s
            );
        }
        let slice_requests = rate_per_s * job.slice_ns as f64 / 1e9;
        ensure!(
            slice_requests <= SLICE_REQUESTS_MAX,
            "{slice_requests:.0} requests in a slice are too many: make slices shorter"
        );
        Ok(())
    }

    /// The address of a target that is loaded. A name is resolved once, for it may have another
    /// address the next time.
    fn check_target(&self, target: &str) -> Result<SocketAddr> {
        ensure!(
            target.len() <= TARGET_LEN_MAX,
            "a target's name of {} bytes is too long",
            target.len()
        );
        ensure!(
            unix_path(target).is_none(),
            "a Unix socket is measured from its own host: leave --agent out"
        );
        let address = resolve(target)?;
        if self.targets == Targets::Private && !is_private(address.ip()) {
            bail!(
                "{target} is at {address}, neither this machine nor a private network; if it is yours to load, start the agent \
                 with --i-own-these-targets"
            );
        }
        Ok(address)
    }
}

/// Checks a number of connections against the limit.
pub(super) fn check_connections(connections: u32) -> Result<()> {
    within("connections", u64::from(connections), 1, CONNECTIONS_MAX)
}

/// A job names nothing of the agent's host: no file is read for a coordinator.
fn check_texts(job: &Job) -> Result<()> {
    let arrivals = match &job.load {
        LoadShare::Open { arrivals, .. } => arrivals,
        LoadShare::Closed { .. } => "",
    };
    for text in [job.app.as_str(), arrivals] {
        ensure!(
            text.len() <= TEXT_LEN_MAX,
            "an application or a distribution of {} bytes is too long",
            text.len()
        );
        // At a place where a distribution can stand; a path of HTTP may well have such a part.
        let names_file = text.starts_with("file:")
            || [":file:", "=file:", "+file:"].iter().any(|part| text.contains(part));
        ensure!(!names_file, "{text:?} names a file, which an agent elsewhere does not read");
    }
    let roots_len = job.tls.as_ref().and_then(|tls| tls.roots_pem.as_ref()).map_or(0, String::len);
    ensure!(roots_len <= ROOTS_LEN_MAX, "certificates of {roots_len} bytes are too many");
    Ok(())
}

fn within(what: &str, value: u64, min: u64, max: u64) -> Result<()> {
    ensure!((min..=max).contains(&value), "{what} is {value}, which is not within {min} and {max}");
    Ok(())
}

const THREADS_MAX: u64 = 1_024;
const CONNECTIONS_MAX: u64 = 1_000_000;
const OUTSTANDING_MAX: u64 = 1_000_000;
/// As `tailcut measure` has it.
const TIMEOUT_NS_MAX: u64 = 60_000_000_000;
const SLICE_NS_MIN: u64 = 1_000_000;
const SLICE_NS_MAX: u64 = 10_000_000_000;
/// Limits by what fits in a frame.
const SLICE_REQUESTS_MAX: f64 = 1e6;
const TARGETS_MAX: u64 = 1_024;
const TARGET_LEN_MAX: usize = 300;
const TEXT_LEN_MAX: usize = 64 << 10;
const ROOTS_LEN_MAX: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests::{LIMITS, job};

    fn check(change: impl FnOnce(&mut Job), says: &str) {
        let mut job = job();
        change(&mut job);
        let error = format!("{:#}", LIMITS.check(&job).unwrap_err());
        assert!(error.contains(says), "{error}");
    }

    fn open(job: &mut Job, rate: f64, arrivals_text: &str) {
        job.load = LoadShare::Open { rate_per_s: rate, arrivals: arrivals_text.to_owned() };
    }

    #[test]
    fn a_job_like_others_is_done() {
        let granted = LIMITS.check(&job()).unwrap();
        assert_eq!(granted.addresses, ["127.0.0.1:1".parse().unwrap()]);
        assert_eq!(granted.rate_max_per_s, Some(1e6));
    }

    #[test]
    fn a_job_beyond_a_limit_is_not_done() {
        check(|job| open(job, 1e6 + 1.0, "exp"), "--rate-max");
        check(|job| open(job, f64::NAN, "exp"), "is none");
        check(|job| open(job, -1.0, "exp"), "is none");
        check(
            |job| {
                job.slice_ns = 2_000_000_000;
                open(job, 1e6, "exp");
            },
            "make slices shorter",
        );
        check(|job| job.load = LoadShare::Closed { outstanding: 0 }, "outstanding");
        check(|job| job.threads = 0, "threads");
        check(|job| job.connections = u32::MAX, "connections");
        check(|job| job.pipeline = 0, "pipeline");
        check(|job| job.timeout_ns = u64::MAX, "timeout_ns");
        check(|job| job.slice_ns = 0, "slice_ns");
        check(|job| job.targets.clear(), "targets");
        check(|job| job.targets = vec!["x".repeat(1_000)], "too long");
        check(|job| job.app = "x".repeat(100_000), "too long");
    }

    /// 192.0.2.0/24 is for documentation; nothing is sent there.
    #[test]
    fn a_foreign_target_is_refused_unless_the_agents_owner_says_otherwise() {
        let foreign =
            |job: &mut Job| job.targets = vec!["127.0.0.1:1".to_owned(), "192.0.2.1:9".to_owned()];
        check(foreign, "--i-own-these-targets");
        let mut job = job();
        foreign(&mut job);
        Limits { targets: Targets::Any, ..LIMITS }.check(&job).unwrap();
    }

    #[test]
    fn no_file_is_read_for_a_coordinator() {
        check(|job| open(job, 1.0, "file:/etc/passwd"), "names a file");
        check(|job| job.app = "synthetic:file:/etc/passwd".to_owned(), "names a file");
        check(|job| job.app = "redis:value=file:/etc/passwd".to_owned(), "names a file");
    }
}
