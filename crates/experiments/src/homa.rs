//! Homa: the simulation of SIGCOMM'18 with the endpoint, and what it is compared with.
//!
//! | figure | what is judged |
//! |---|---|
//! | `homa-w1` ... `homa-w5` | slowdowns at a load of 0.8; of W3 and W4 against the published curves |
//! | `homa-priorities` | W3 with 1, 2, 4 and 8 priorities: four are almost as good as eight, one and two are visibly worse |
//! | `homa-overcommitment` | W4: one message at a time saturates near 0.54 of data received, seven carry a load of 0.87 |
//! | `homa-single-switch` | echoes between 8 clients and 8 servers at 80 %: the p99 of almost all sizes is at most 3.5 |
//! | `homa-basic` | the same without priorities and without a limit of messages at once: 5 to 15 times the tail |
//!
//! The published runs took seconds of virtual time, and a run here a fiftieth of that: the longest
//! messages have not filled the network by then, which lowers the load that short messages meet,
//! and their medians by a hundredth. Expected values are those of the published curve at the sizes
//! that the condensed workloads have. Medians are held to 5 %, p99 of W3 to 8 % and of W4, whose
//! buckets have fewer messages, to 15 %.

use anyhow::{Result, anyhow};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tailcut_measure::workload::Workload;
use tailcut_sim::homa::slowdown::{Bucket, equal_shares};
use tailcut_sim::homa::{Experiment, Findings, Pattern, Settings, Transport, run as simulate};

use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::verdict::{Basis, Tolerance, Verdict};

/// A workload's published values and tolerances.
pub(super) struct Published {
    pub(super) name: &'static str,
    /// Virtual time of a full reproduction.
    duration_ns: u64,
    /// The tolerance of a p99.
    p99_share: f64,
    /// The longest queue towards a host that others simulated, in shorter runs than the published
    /// ones.
    queue_max_kb: f64,
    pub(super) slowdowns: &'static [Slowdown],
}

/// A point of a published curve: size, p50, p99.
type Slowdown = (u64, f64, f64);

/// Homa and what it is compared with, over the same messages.
pub(super) fn workload(effort: Effort, published: &Published) -> Result<Figure> {
    let &Published { name, duration_ns, p99_share, queue_max_kb, slowdowns } = published;
    let setup = |transport| Setup::new(name, duration_ns, transport);
    let mut homa = setup(HOMA)?;
    homa.buckets.extend(slowdowns.iter().flat_map(|&(size, ..)| [size - 1, size]));
    let setups =
        [homa, setup(Transport::Plain)?, setup(Transport::Streams)?, setup(Transport::Oracle)?];
    let found: Vec<Findings> =
        setups.par_iter().map(|setup| setup.run(effort)).collect::<Result<_>>()?;
    let mut verdicts = Vec::new();
    for &(size, p50, p99) in slowdowns {
        let bucket = found[0].buckets.iter().find(|bucket| bucket.size_max == size);
        let bucket = bucket.ok_or_else(|| anyhow!("{size} bytes have no bucket"))?;
        for (what, expected, obtained, share) in
            [("p50", p50, bucket.p50, 0.05), ("p99", p99, bucket.p99, p99_share)]
        {
            let what = format!("{name}, {size} bytes: {what}");
            verdicts.push(Verdict::new(
                effort,
                what,
                (Basis::Published, expected),
                obtained,
                Tolerance::Relative(share),
            ));
        }
    }
    let median = Workload::named(name).map_or(0, |workload| workload.quantile(0.5));
    let tails: Vec<f64> = found.iter().map(|findings| tail(&findings.buckets, median)).collect();
    for (other, tail) in ["plain messages", "streams"].into_iter().zip(&tails[1..]) {
        let what = format!("{name}: p99 of the shorter half, {other} over Homa");
        verdicts.push(Verdict::fixed(
            what,
            (Basis::Published, 1.0),
            tail / tails[0],
            Tolerance::AtLeast,
        ));
    }
    let queue_kb =
        found[0].links.map_or(f64::NAN, |links| links.last_hop_queue_max_bytes as f64 / 1e3);
    let what = format!("{name}: longest queue towards a host, kB");
    verdicts.push(Verdict::fixed(
        what,
        (Basis::Simulated, queue_max_kb),
        queue_kb,
        Tolerance::Shown,
    ));
    let curves = ["Homa", "plain", "streams", "oracle"]
        .into_iter()
        .zip(&found)
        .map(|(label, found)| curve(label, &found.buckets));
    let mut curves: Vec<Curve> = curves.collect();
    curves[0].expected = shares(&found[0].buckets)
        .filter_map(|(share, bucket)| {
            let known = slowdowns.iter().find(|&&(size, ..)| size == bucket.size_max);
            known.map(|&(_, _, p99)| (share, p99))
        })
        .collect();
    Ok(Figure { panels: vec![panel(format!("{name} at a load of 0.8"), curves)], verdicts })
}

pub(super) fn priorities(effort: Effort) -> Result<Figure> {
    let levels = [8, 4, 2, 1];
    let setups = levels.map(|priorities| {
        let settings = Settings { priorities, ..Settings::default() };
        Setup::new("w3", 40 * MS, Transport::Homa(settings))
    });
    let found = run_all(effort, setups)?;
    let short = 1755;
    let tails: Vec<f64> = found.iter().map(|findings| tail(&findings.buckets, short)).collect();
    let verdict = |place: usize, expected, tolerance| {
        let what = format!(
            "W3 up to {short} bytes: p99 with {} priorities over that with 8",
            levels[place]
        );
        Verdict::fixed(what, (Basis::Published, expected), tails[place] / tails[0], tolerance)
    };
    let verdicts = vec![
        verdict(1, 1.0, Tolerance::Absolute(0.15)),
        verdict(2, 1.1, Tolerance::AtLeast),
        verdict(3, 1.5, Tolerance::AtLeast),
    ];
    let curves = levels
        .iter()
        .zip(&found)
        .map(|(levels, found)| curve(&format!("{levels} priorities"), &found.buckets));
    Ok(Figure { panels: vec![panel("W3 at a load of 0.8".to_owned(), curves.collect())], verdicts })
}

pub(super) fn overcommitment(effort: Effort) -> Result<Figure> {
    let setup = |overcommit, load| {
        let settings = Settings { overcommit: Some(overcommit), ..Settings::default() };
        Setup::new("w4", 80 * MS, Transport::Homa(settings)).map(|setup| Setup { load, ..setup })
    };
    let found = run_all(effort, [setup(1, 0.8), setup(7, 0.8), setup(7, 0.87)])?;
    // Data on the wire with its headers.
    let received = |findings: &Findings| {
        findings.links.map_or(f64::NAN, |links| links.data_share * 1538.0 / 1456.0)
    };
    let carried = received(&found[2]) / received(&found[1]);
    let what = "W4, 1 message at a time: share of the links that data takes".to_owned();
    let one = Verdict::new(
        effort,
        what,
        (Basis::Simulated, 0.54),
        received(&found[0]),
        Tolerance::Absolute(0.05),
    );
    let what = "W4, 7 at a time: data received at a load of 0.87 over 0.8".to_owned();
    let seven = Verdict::new(
        effort,
        what,
        (Basis::Simulated, 0.87 / 0.8),
        carried,
        Tolerance::Absolute(0.04),
    );
    let labels = ["1 at a time, load 0.8", "7 at a time, load 0.8", "7 at a time, load 0.87"];
    let curves = labels.into_iter().zip(&found).map(|(label, found)| curve(label, &found.buckets));
    Ok(Figure {
        panels: vec![panel("W4".to_owned(), curves.collect())],
        verdicts: vec![one, seven],
    })
}

pub(super) fn basic(effort: Effort) -> Result<Figure> {
    let basic =
        Transport::Homa(Settings { priorities: 1, overcommit: Some(16), ..Settings::default() });
    let mut figure = Figure { panels: Vec::new(), verdicts: Vec::new() };
    // Queues that nothing bounds take long to be as long as they get, and these few hosts are soon
    // simulated.
    let effort = Effort::full(effort.seed);
    for (name, short) in [("w3", 1755), ("w4", 1621)] {
        let found = run_all(effort, [HOMA, basic].map(|transport| echoes(name, transport)))?;
        let ratio = tail(&found[1].buckets, short) / tail(&found[0].buckets, short);
        let what = format!("{name} up to {short} bytes: p99 of the basic transport over Homa's");
        let tolerance = Tolerance::Sides { below: 5.0, above: 5.0 };
        figure.verdicts.push(Verdict::fixed(what, (Basis::Published, 10.0), ratio, tolerance));
        let curves = ["Homa", "basic"]
            .into_iter()
            .zip(&found)
            .map(|(label, found)| curve(label, &found.buckets));
        figure.panels.push(panel(format!("{name}, echoes at one switch, 80 %"), curves.collect()));
    }
    Ok(figure)
}

pub(super) fn single_switch(effort: Effort) -> Result<Figure> {
    let names = ["w3", "w4", "w5"];
    let found = run_all(effort, names.map(|name| echoes(name, HOMA)))?;
    let verdict = |(name, findings): (&str, &Findings)| {
        let all: u64 = findings.buckets.iter().map(|bucket| bucket.count).sum();
        let within: u64 = findings
            .buckets
            .iter()
            .filter(|bucket| bucket.p99 <= 3.5)
            .map(|bucket| bucket.count)
            .sum();
        let what = format!(
            "{name}, 8 clients and 8 servers at 80 %: messages in buckets with a p99 of at most 3.5"
        );
        Verdict::fixed(
            what,
            (Basis::Published, 0.8),
            within as f64 / all as f64,
            Tolerance::AtLeast,
        )
    };
    let verdicts = names.into_iter().zip(&found).map(verdict).collect();
    let curves = names.into_iter().zip(&found).map(|(name, found)| curve(name, &found.buckets));
    Ok(Figure {
        panels: vec![panel("echoes at one switch, 80 %".to_owned(), curves.collect())],
        verdicts,
    })
}

/// One run.
pub(super) struct Setup {
    workload: Workload,
    load: f64,
    hosts: u32,
    pattern: Pattern,
    duration_ns: u64,
    transport: Transport,
    buckets: Vec<u64>,
}

impl Setup {
    pub(super) fn new(name: &str, duration_ns: u64, transport: Transport) -> Result<Self> {
        let workload =
            Workload::named(name).ok_or_else(|| anyhow!("there is no workload {name}"))?;
        let buckets = equal_shares(&workload);
        Ok(Self {
            workload,
            load: 0.8,
            hosts: 144,
            pattern: Pattern::OneWay,
            duration_ns,
            transport,
            buckets,
        })
    }

    /// It at another load than 0.8.
    pub(super) fn at_load(self, load: f64) -> Self {
        Self { load, ..self }
    }

    pub(super) fn run(&self, effort: Effort) -> Result<Findings> {
        // Less than an eighth would not warm up.
        let duration_ns = effort.requests(self.duration_ns).max(self.duration_ns / 8);
        let mut buckets = self.buckets.clone();
        buckets.sort_unstable();
        buckets.dedup();
        let experiment = Experiment {
            pattern: self.pattern,
            duration_ns,
            warmup_ns: duration_ns / 3,
            buckets,
            seed: effort.seed,
            ..Experiment::new(self.workload.clone(), self.load, self.hosts, self.transport)
        };
        simulate(&experiment).map_err(|error| anyhow!("{error}"))
    }
}

/// Between 8 clients and 8 servers at one switch, as RAMCloud measured.
fn echoes(name: &str, transport: Transport) -> Result<Setup> {
    Ok(Setup { hosts: 16, pattern: Pattern::Echo, ..Setup::new(name, 200 * MS, transport)? })
}

/// All of them, on all cores.
fn run_all<const N: usize>(effort: Effort, setups: [Result<Setup>; N]) -> Result<Vec<Findings>> {
    let setups = setups.into_iter().collect::<Result<Vec<Setup>>>()?;
    setups.par_iter().map(|setup| setup.run(effort)).collect()
}

/// The mean p99 of the messages up to a size, by messages.
pub(super) fn tail(buckets: &[Bucket], size_max: u64) -> f64 {
    let short = || buckets.iter().filter(|bucket| bucket.size_max <= size_max && bucket.count > 0);
    let count: u64 = short().map(|bucket| bucket.count).sum();
    short().map(|bucket| bucket.p99 * bucket.count as f64).sum::<f64>() / count as f64
}

/// The p99 over the share of messages that are not longer.
pub(super) fn curve(label: &str, buckets: &[Bucket]) -> Curve {
    let obtained = shares(buckets).map(|(share, bucket)| (share, bucket.p99)).collect();
    Curve { label: label.to_owned(), obtained, expected: Vec::new() }
}

/// Buckets that have messages, each with the share of messages in it and in those before.
fn shares(buckets: &[Bucket]) -> impl Iterator<Item = (f64, &Bucket)> {
    let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let mut sum = 0;
    buckets.iter().filter(|bucket| bucket.count > 0).map(move |bucket| {
        sum += bucket.count;
        (100.0 * sum as f64 / all as f64, bucket)
    })
}

pub(super) fn panel(title: String, curves: Vec<Curve>) -> Panel {
    Panel { title, x: "messages up to a size (%)", y: "p99 slowdown", y_max: Some(20.0), curves }
}

pub(super) const HOMA: Transport = Transport::Homa(Settings::PUBLISHED);
pub(super) const MS: u64 = 1_000_000;

pub(super) const W1: Published = Published {
    name: "w1",
    duration_ns: 5 * MS,
    p99_share: 0.1,
    queue_max_kb: 43.0,
    slowdowns: &[],
};
pub(super) const W2: Published = Published {
    name: "w2",
    duration_ns: 10 * MS,
    p99_share: 0.1,
    queue_max_kb: 65.0,
    slowdowns: &[],
};
pub(super) const W3: Published = Published {
    name: "w3",
    duration_ns: 60 * MS,
    p99_share: 0.08,
    queue_max_kb: 113.0,
    slowdowns: &SLOWDOWNS_W3,
};
pub(super) const W4: Published = Published {
    name: "w4",
    duration_ns: 80 * MS,
    p99_share: 0.15,
    queue_max_kb: 120.0,
    slowdowns: &SLOWDOWNS_W4,
};
pub(super) const W5: Published = Published {
    name: "w5",
    duration_ns: 80 * MS,
    p99_share: 0.15,
    queue_max_kb: 88.0,
    slowdowns: &[],
};

/// Points of the published curve of W3, at sizes that the condensed workload has often.
const SLOWDOWNS_W3: [Slowdown; 7] = [
    (36, 1.492, 2.214),
    (103, 1.465, 2.143),
    (268, 1.416, 2.018),
    (353, 1.393, 1.957),
    (1755, 1.228, 1.676),
    (5217, 1.288, 2.210),
    (14_869, 1.490, 3.036),
];

/// Points of the published curve of W4, chosen likewise.
const SLOWDOWNS_W4: [Slowdown; 8] = [
    (302, 1.423, 2.079),
    (502, 1.372, 1.916),
    (591, 1.348, 1.869),
    (1621, 1.206, 1.561),
    (6321, 1.183, 1.656),
    (47_825, 1.296, 2.359),
    (102_876, 1.329, 2.822),
    (216_348, 1.480, 3.282),
];
