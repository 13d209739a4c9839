//! Flags of `tailcut measure`, which are also the keys of an experiment file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tailcut_instrument::agent::spec::{AgentSpec, Place};
use tailcut_instrument::job::{Clones, Role, Transport};
use tailcut_instrument::network::unix_path;
use tailcut_instrument::pattern::Pattern;
use tailcut_instrument::text_file::{self, CONFIG_BYTES_MAX};
use tailcut_measure::app::App;
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::generator::generator;
use tailcut_measure::objective::{Objective, parse_percentile};
use tailcut_measure::quantity::{parse_duration_ns, parse_rate_per_s};
use tailcut_net::xdp::XdpConfig;

use super::written::{Read, Written};
use crate::apps;
use crate::distribution_file::parse_positive_ns;

/// Everything that repeats a measurement. What is absent has the default that its help says.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Flags {
    /// A server, or a router before several, where no URL names it: HOST:PORT or unix:PATH; repeat
    /// it to spread connections over several
    #[arg(long, value_name = "ADDR")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) target: Vec<String>,
    /// What carries requests [default: tcp for what others' servers speak, else r2p2]
    #[arg(long, value_name = "NAME")]
    pub(crate) transport: Option<Transport>,
    /// xdp:IF takes packets past the kernel's stack at an interface (AF_XDP), for R2P2 and Homa,
    /// from this machine [default: sockets]
    #[arg(long, value_name = "DATAPATH")]
    pub(crate) datapath: Option<Written<DatapathText>>,
    /// What to send: echo:BYTES, synthetic:DIST, stss, memcached-ascii, memcached-binary, redis,
    /// http:/PATH, http2:/PATH, grpc:SERVICE/METHOD or postgres:query=SQL, with options such as
    /// redis:keys=1M,get=1; `tailcut help apps` lists them
    #[arg(long, value_name = "APP")]
    pub(crate) app: Option<Written<AppText>>,
    /// Fill the target's store with every key before the load
    #[arg(long)]
    pub(crate) preload: bool,
    /// Start the load even if the request sent before it is refused, is not answered, or finds an
    /// empty store
    #[arg(long)]
    pub(crate) no_probe: bool,
    /// Requests per second on average
    #[arg(long, value_name = "R")]
    pub(crate) rate: Option<Written<Rate>>,
    /// Closed loop instead of --rate: this many requests outstanding at any time. It measures
    /// capacity, not users' latency
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with_all = ["rate", "arrivals", "pattern"])]
    pub(crate) outstanding: Option<u32>,
    /// Instead of --rate: steps:FROM:TO:BY, find:FROM:TO (the highest rate that meets --slo), or
    /// sweep:FROM:TO or sweep:FROM:TO:POINTS, whose points settle around the knee
    #[arg(long, value_name = "PATTERN", conflicts_with = "rate")]
    pub(crate) pattern: Option<Pattern>,
    /// What to find the highest rate for, such as 'p99<200us'
    #[arg(long, value_name = "OBJECTIVE")]
    pub(crate) slo: Option<Written<ObjectiveText>>,
    /// Highest rate accepted, which guards against typing errors [default: 1M]
    #[arg(long, value_name = "R")]
    pub(crate) rate_max: Option<Written<Rate>>,
    /// Gaps between requests: poisson, fixed, or a distribution of plain numbers, whose mean is
    /// scaled to the rate
    /// [default: poisson]
    #[arg(long, value_name = "GAPS")]
    pub(crate) arrivals: Option<Written<Gaps>>,
    /// Connections over all threads and targets [default: one a thread]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) connections: Option<u32>,
    /// Let the client open up to this many connections if it falls behind its schedule [default:
    /// --connections]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) connections_max: Option<u32>,
    /// Load threads [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: Option<u32>,
    /// Requests outstanding on a connection at most [default: 1 for http and postgres, 100 for
    /// http2 and grpc, 1024 for others over tcp and tls, else 16384]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) pipeline: Option<u32>,
    /// Measure for exactly this long instead of until the percentile is known well enough
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Written<PositiveTime>>,
    /// How long to load before measuring [default: 1s, and longer while the latency moves]
    #[arg(long, value_name = "TIME")]
    pub(crate) warmup: Option<Written<Time>>,
    /// The percentile to determine [default: that of --slo, or p99]
    #[arg(long, value_name = "P")]
    pub(crate) percentile: Option<Written<PercentileText>>,
    /// How precisely to determine it: half of its 95 % interval, as a share of it (5%) or a time
    /// (10us) [default: 5%]
    #[arg(long, value_name = "WIDTH")]
    pub(crate) precision: Option<Written<PrecisionText>>,
    /// Measure for at least this long before looking at the percentile; rarer events may be missed
    /// [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub(crate) duration_min: Option<Written<PositiveTime>>,
    /// Measure for at most this long [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(crate) duration_max: Option<Written<PositiveTime>>,
    /// Limit the whole run to this long, repeated warm-ups and measurements included [default: no
    /// limit]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["duration", "pattern"])]
    pub(crate) time_max: Option<Written<PositiveTime>>,
    /// Give up on a request after this long, counted from when it was sent; at most 60s [default:
    /// 1s]
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Written<Timeout>>,
    /// Have the kernel timestamp one request in N as it is sent, where it can; 0 for none [default:
    /// 16, or 500 stamps a second if that is fewer]
    #[arg(long, value_name = "N")]
    pub(crate) stamp_every: Option<u32>,
    /// Log in to redis or postgres as this user, where the URL names none
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Log in with the first line of FILE as the password, which no list of processes shows; or put
    /// it in the variable TAILCUT_PASSWORD [default: that of the URL]
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// TLS: certificates to trust, PEM [default: those that this host trusts]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<String>,
    /// TLS: the name to ask for and to verify [default: the target's]
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// TLS: accept any certificate
    #[arg(long, conflicts_with = "ca")]
    pub(crate) insecure: bool,
    /// R2P2, Homa: allow requests to run more than once, so that routers may clone them and they
    /// may be retried at another server
    #[arg(long)]
    pub(crate) idempotent: bool,
    /// R2P2: send copies of requests. c-clone copies each request to two targets; hedge:p95 copies
    /// a request that takes longer than 95 % do, to another target or through the router, and at
    /// most 5 % of them (or 10 %, as in hedge:p95:10%) [default: off]
    #[arg(long, value_name = "MODE")]
    pub(crate) clone: Option<Written<CloneText>>,
    /// R2P2: cancel the slower of two copies, a router's too, when the other has answered
    #[arg(long)]
    pub(crate) cancel_loser: bool,
    /// R2P2: the targets are routers in front of one set of servers; calls move on to the next if
    /// one does not answer
    #[arg(long)]
    pub(crate) failover: bool,
    /// NetClone: servers behind the switch, whose pairs clients draw [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) netclone_servers: Option<u32>,
    /// R2P2: keep the time between calls that an overloaded target asks for, as the library does;
    /// what is not sent counts as refused
    #[arg(long)]
    pub(crate) paced: bool,
    /// R2P2, Homa: seal packets by the client's keys in this file, which is read again when it
    /// changes; `tailcut keys` makes them
    #[arg(long, value_name = "FILE")]
    pub(crate) seal: Option<PathBuf>,
    /// R2P2: speak version 1, as the reference implementation does
    #[arg(long)]
    pub(crate) v1: bool,
    /// Seed of arrivals and requests [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Poll without ever sleeping: takes a whole core for each thread, and keeps wake-ups out of
    /// the latencies
    #[arg(long)]
    pub(crate) busy_poll: bool,
    /// Time to keep polling after the last traffic before sleeping, in nanoseconds; 0 where client
    /// and server share a core
    /// [default: 200000]
    #[arg(long, value_name = "N", conflicts_with = "busy_poll")]
    pub(crate) spin_ns: Option<u64>,
    /// Where the load comes from: local, tcp:HOST:PORT or ssh:USER@HOST, each with
    /// ,role=symmetric|throughput|latency; may be repeated
    /// [default: local]
    #[arg(long, value_name = "AGENT")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) agent: Vec<Written<AgentText>>,
    /// The key that is shared with agents at tcp:HOST:PORT, or the certificates that are shown to
    /// them
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Exit with status 4 if this does not hold, such as 'p99<200us'; may be repeated
    #[arg(long, value_name = "OBJECTIVE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) assert: Vec<Written<ObjectiveText>>,
    /// Load a target that is neither on this machine nor in a private network
    #[arg(long)]
    pub(crate) i_own_this_target: bool,
}

impl Flags {
    /// Reads an experiment file.
    ///
    /// # Errors
    ///
    /// A file that is no experiment, with line and column.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = text_file::read(path, CONFIG_BYTES_MAX)
            .with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text)
            .with_context(|| format!("{} is not an experiment file", path.display()))
    }

    /// As a file.
    pub(crate) fn to_toml(&self) -> Result<String> {
        toml::to_string(self).context("cannot write the experiment")
    }

    /// As the configuration of a result: what is absent has no key.
    pub(crate) fn to_json(&self) -> Result<Value> {
        let mut json = serde_json::to_value(self).context("cannot write the experiment")?;
        if let Some(keys) = json.as_object_mut() {
            keys.retain(|_, value| !value.is_null());
        }
        Ok(json)
    }

    /// The flags where they say something, and the file for the rest.
    ///
    /// # Errors
    ///
    /// A path that is not UTF-8.
    pub(crate) fn over(&self, file: &Self) -> Result<Self> {
        let (mut own, mut all) = (self.to_json()?, file.to_json()?);
        if let (Some(own), Some(all)) = (own.as_object_mut(), all.as_object_mut()) {
            // A switch that is off leaves the word to the file.
            own.retain(|_, value| *value != Value::Bool(false));
            // One way to say how much replaces the others.
            if LOADS.iter().any(|load| own.contains_key(*load)) {
                all.retain(|key, _| !LOADS.contains(&key.as_str()));
            }
            all.append(own);
        }
        serde_json::from_value(all).context("flags and file make no experiment")
    }

    /// Transport of requests: as said, or as the application usually is.
    pub(crate) fn carried_by(&self) -> Transport {
        let usual = || self.app.as_ref().map(|app| Transport::of(app.carrier()));
        self.transport.or_else(usual).unwrap_or(Transport::R2p2)
    }

    /// Refuses a load that is hardly meant.
    ///
    /// # Errors
    ///
    /// A rate above the highest accepted, and gaps that no factor scales to a rate.
    pub(crate) fn check_load(&self) -> Result<()> {
        let rate = self.pattern.map(Pattern::highest_per_s).or(self.rate.as_deref().copied());
        let (rate, rate_max) =
            (rate.unwrap_or(0.0), self.rate_max.as_deref().copied().unwrap_or(RATE_MAX_PER_S));
        if rate > rate_max {
            bail!("--rate {rate} is above {rate_max}; raise --rate-max if it is meant");
        }
        if let Some(gaps) = self.arrivals.as_deref() {
            let arrivals = Arrivals::new(gaps.clone(), 1.0, generator(1, 0));
            arrivals.context("--arrivals cannot be scaled to a rate")?;
        }
        Ok(())
    }

    fn check_seal(&self) -> Result<()> {
        let can_be_sealed = self.carried_by().has_endpoints() && !self.v1;
        if self.seal.is_some() && !can_be_sealed {
            bail!("--seal is of R2P2 and Homa, and not of version 1: leave it or --v1 out");
        }
        Ok(())
    }

    fn check_datapath(&self) -> Result<()> {
        if self.datapath.is_some() && !self.carried_by().has_endpoints() {
            bail!("--datapath is of R2P2 and Homa; leave it out, or change --transport");
        }
        if self.datapath.is_some() && !self.agent.is_empty() {
            bail!("--datapath is of this machine; leave it or --agent out");
        }
        Ok(())
    }

    /// A Unix socket stands alone, and is reached from its own host.
    fn check_unix(&self) -> Result<()> {
        if !self.target.iter().any(|target| unix_path(target).is_some()) {
            return Ok(());
        }
        if self.target.len() > 1 {
            bail!("a Unix socket is measured alone; leave the other targets out");
        }
        if self.carried_by() != Transport::Tcp {
            let transport = self.carried_by();
            let name = transport.as_ref();
            bail!("a Unix socket carries what TCP would, and not {name}: take --transport tcp");
        }
        if self.agent.iter().any(|agent| agent.place != Place::Local) {
            bail!("a Unix socket is measured from its own host: leave --agent out");
        }
        Ok(())
    }

    /// Refuses what is incomplete, or contradicts itself.
    ///
    /// # Errors
    ///
    /// A flag that is missing, or two that contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        if self.target.is_empty() {
            bail!(
                "say what to measure: a URL such as redis://localhost:6379, or --target HOST:PORT"
            );
        }
        if self.app.is_none() {
            bail!("say what to ask: --app, such as echo:64, redis or http:/");
        }
        let loads = [self.rate.is_some(), self.outstanding.is_some(), self.pattern.is_some()];
        match loads.into_iter().filter(|&given| given).count() {
            0 => {
                bail!("say how much to load: --rate <R>, --outstanding <N> or --pattern <PATTERN>")
            }
            1 => {}
            _ => bail!("--rate, --outstanding and --pattern exclude each other"),
        }
        if self.time_max.is_some() && (self.duration.is_some() || self.pattern.is_some()) {
            bail!(
                "--time-max bounds one load that chooses its length: it goes with neither --duration nor --pattern"
            );
        }
        self.check_unix()?;
        let speaks_r2p2 = self.carried_by() == Transport::R2p2;
        if self.v1 && !speaks_r2p2 {
            bail!("--v1 is R2P2's; take --transport r2p2, or leave it out");
        }
        let clones = self.clone.as_deref().copied().unwrap_or_default();
        if clones != Clones::Off {
            if !speaks_r2p2 || self.v1 {
                bail!("--clone is R2P2's, and not of version 1; leave it out");
            }
            if !self.idempotent {
                bail!("--clone runs requests twice; say that they may: --idempotent");
            }
        }
        if self.cancel_loser && (!speaks_r2p2 || self.v1 || !self.idempotent) {
            bail!("--cancel-loser is of R2P2's requests that may have copies: --idempotent");
        }
        if clones == Clones::All && self.target.len() < 2 {
            bail!("--clone c-clone needs two servers: repeat --target");
        }
        if self.paced && !speaks_r2p2 {
            bail!("--paced is R2P2's; take --transport r2p2, or leave it out");
        }
        self.check_seal()?;
        if self.failover && !speaks_r2p2 {
            bail!("--failover is R2P2's; take --transport r2p2, or leave it out");
        }
        self.check_datapath()?;
        let is_netclone = self.transport == Some(Transport::NetClone);
        if self.netclone_servers.is_some() && !is_netclone {
            bail!("--netclone-servers is NetClone's; take --transport netclone, or leave it out");
        }
        if self.preload && is_netclone {
            bail!("--preload fills a store, and a switch hides which; leave it out");
        }
        if self.failover && self.target.len() < 2 {
            bail!("--failover needs another --target to go to");
        }
        if matches!(self.pattern, Some(Pattern::Find { .. })) && self.slo.is_none() {
            bail!("say what to find the highest rate for: --slo, such as 'p99<200us'");
        }
        if !self.agent.is_empty() && self.agent.iter().all(|agent| agent.role == Role::Throughput) {
            bail!("no latency counts: one agent at least must be symmetric or have role=latency");
        }
        if self.connections.unwrap_or(u32::MAX) < self.threads.unwrap_or(1) {
            bail!("each thread needs a connection: --connections must be at least --threads");
        }
        Ok(())
    }
}

/// Kinds of values that are kept as they were written: what comes of the text, and what reads it.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $value:ty = $read:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $kind;

        impl Read for $kind {
            type Value = $value;

            fn read(text: &str) -> Result<$value, String> {
                ($read)(text).map_err(|error| error.to_string())
            }
        }
    )*};
}

kinds! {
    /// `--app`.
    AppText: App = |text| apps::parse(text).map(|(app, _)| app);
    /// `--datapath`.
    DatapathText: XdpConfig = XdpConfig::from_datapath;
    /// `--agent`.
    AgentText: AgentSpec = str::parse::<AgentSpec>;
    /// Requests a second.
    Rate: f64 = parse_rate_per_s;
    /// A time in ns.
    Time: u64 = parse_duration_ns;
    /// A time above zero, in ns.
    PositiveTime: u64 = parse_positive_ns;
    /// A time from 1 ns to 60 s, in ns.
    Timeout: u64 = parse_timeout_ns;
    /// Gaps between requests.
    Gaps: Process = Process::parse;
    /// Copies that clients send.
    CloneText: Clones = str::parse::<Clones>;
    /// An objective.
    ObjectiveText: Objective = str::parse::<Objective>;
    /// A percentile as a share.
    PercentileText: f64 = parse_percentile;
    /// Half the width of an interval.
    PrecisionText: Precision = parse_precision;
}

/// The precision in a [`PrecisionText`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Precision {
    /// Share of the percentile.
    Share(f64),
    /// In ns.
    Nanoseconds(f64),
}

fn parse_timeout_ns(text: &str) -> Result<u64, String> {
    match parse_positive_ns(text) {
        Ok(timeout_ns) if timeout_ns > TIMEOUT_NS_MAX => {
            Err("a request waits for 60s at most".to_owned())
        }
        parsed => parsed,
    }
}

fn parse_precision(text: &str) -> Result<Precision, String> {
    let Some(percent) = text.strip_suffix('%') else {
        return parse_positive_ns(text).map(|ns| Precision::Nanoseconds(ns as f64));
    };
    match percent.trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Precision::Share(percent / 100.0)),
        _ => Err(format!(
            "{text:?} is not a precision; write a share such as 5% or a time such as 10us"
        )),
    }
}

/// The ways to say how much to load, of which one counts.
const LOADS: [&str; 3] = ["rate", "outstanding", "pattern"];

/// Without `--rate-max`.
pub(crate) const RATE_MAX_PER_S: f64 = 1e6;

/// The longest that a request may wait.
const TIMEOUT_NS_MAX: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"target = ["127.0.0.1:6379"]
transport = "tcp"
app = "redis:keys=1000"
rate = 10000
warmup = "500ms"
"#;

    fn experiment(text: &str) -> Flags {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_file_says_what_flags_say() {
        let read = experiment(FILE);
        assert_eq!(*read.rate.clone().unwrap(), 10_000.0);
        assert_eq!(*read.warmup.clone().unwrap(), 500_000_000);
        let again = experiment(&read.to_toml().unwrap());
        assert_eq!(again.to_toml().unwrap(), read.to_toml().unwrap());
        read.check().unwrap();
    }

    #[test]
    fn a_mistake_has_its_line_and_column() {
        let check = |text: &str, place: &str, what: &str| {
            let error = toml::from_str::<Flags>(text).unwrap_err().to_string();
            assert!(error.contains(place) && error.contains(what), "{error}");
        };
        check("rate = 5\nwarmup = \"1\"\n", "line 2, column 10", "unit");
        check("rat = 5\n", "line 1, column 1", "unknown field");
        check("slo = \"p99>1us\"\n", "line 1, column 7", "objective");
        check("transport = \"udt\"\n", "line 1, column 13", "unknown variant");
    }

    #[test]
    fn flags_come_before_the_file() {
        let flags = Flags { outstanding: Some(4), seed: Some(7), ..Flags::default() };
        let both = flags.over(&experiment(FILE)).unwrap();
        assert!(
            both.rate.is_none() && both.outstanding == Some(4),
            "one way to say how much replaces the other"
        );
        assert_eq!((both.seed, both.target.len()), (Some(7), 1));
        both.check().unwrap();
    }

    #[test]
    fn what_is_missing_or_too_much_is_said() {
        let check = |text: &str, part: &str| {
            let experiment = experiment(text);
            let error =
                experiment.check().and_then(|()| experiment.check_load()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check("", "--target");
        check("target = [\"a:1\"]\n", "--app");
        check("target = [\"a:1\"]\napp = \"echo:64\"\n", "--rate");
        check("target = [\"a:1\"]\napp = \"echo:64\"\nrate = \"2M\"\n", "--rate-max");
        check("target = [\"a:1\"]\napp = \"echo:64\"\nrate = 1\noutstanding = 1\n", "exclude");
        check("target = [\"a:1\"]\napp = \"echo:64\"\npattern = \"find:1k:2k\"\n", "--slo");
        check(
            "target = [\"a:1\"]\napp = \"echo:64\"\npattern = \"steps:1k:2k:1k\"\ntime-max = \"9s\"\n",
            "--time-max",
        );
        check(
            "target = [\"a:1\"]\napp = \"echo:64\"\nrate = 1\nduration = \"1s\"\ntime-max = \"9s\"\n",
            "--time-max",
        );
        check(
            "target = [\"a:1\"]\napp = \"echo:64\"\nrate = 1\nthreads = 2\nconnections = 1\n",
            "--connections",
        );
    }
}
