//! Homa's tail against what no transport can do better than, for all five workloads.
//!
//! | curve | is |
//! |---|---|
//! | as published | the p99 of the endpoint as in the published simulation |
//! | short packets | the same with packets of 1,000 bytes and grants of ten of them |
//! | packets | the bound from below of the waits behind the packets that links carry, at the sender, the spines and the receiver: of every transport without a common clock that cuts messages as published |
//! | sender's packets | the same at the sender alone: also of a transport with such a clock |
//! | oracle | the p99 of shortest remaining message first by one who knows all, without packets. No bound of one size's p99: another order has a shorter tail of some sizes, and a longer one of others |
//!
//! | judged | at least |
//! |---|---|
//! | p99 as published over the bound of packets, mean over sizes; and each published p99 of W3 and W4 over that bound | 1 |
//! | p99 as published over that with short packets, mean over sizes, of each workload; of all at 0.8 | 1; 1 / 0.95 |
//! | the same of the shorter nine tenths of the messages, but for W5, of which these are long | 1.1 |
//! | messages of sizes whose p99 is lower with short packets, but for W5 | 0.8 |
//! | data received with short packets over as published | 0.99 |
//!
//! A size's floor is the higher of the third and the last. Runs are short, and the links less
//! loaded than in the published ones; so the bound is computed for the share of the links that data
//! took in the run. The published curves, of W3 and W4 at 0.8, are held to the bound of the load
//! itself.

use anyhow::{Result, anyhow};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tailcut_measure::workload::Workload;
use tailcut_sim::homa::bound::{Bound, Ports};
use tailcut_sim::homa::paper::{self, Cut};
use tailcut_sim::homa::slowdown::Bucket;
use tailcut_sim::homa::{Findings, Policy, Settings, Transport};

use super::effort::Effort;
use super::figure::{Curve, Figure};
use super::homa::{HOMA, MS, Published, Setup, W3, W4, curve, panel, tail};
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let of_load = |&load: &f64| RUNS.map(|(name, duration_ns)| Case { name, load, duration_ns });
    let mut cases: Vec<Case> = LOADS.iter().flat_map(of_load).collect();
    if effort != Effort::full(effort.seed) {
        // At the higher load, and without W4 and W5, of which a short run has no p99.
        cases.truncate(RUNS.len() - 2);
    }
    let found = cases.par_iter().map(|case| case.run(effort)).collect::<Result<Vec<Compared>>>()?;
    let mut figure = Figure { panels: Vec::new(), verdicts: Vec::new() };
    for (case, compared) in cases.iter().zip(&found) {
        figure.verdicts.extend(compared.judged(case, effort)?);
        let title = format!("{} at a load of {}", case.name, case.load);
        figure.panels.push(panel(title, compared.curves()));
    }
    figure.verdicts.push(of_all_workloads(&found[..cases.len().min(RUNS.len())], effort));
    for published in [&W3, &W4] {
        figure.verdicts.extend(held(published)?);
    }
    Ok(figure)
}

/// A workload at a load.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    load: f64,
    /// Virtual time of a full reproduction.
    duration_ns: u64,
}

/// The p99 of every size, by whom and by which bound.
struct Compared {
    homa: Vec<Bucket>,
    short: Vec<Bucket>,
    oracle: Vec<Bucket>,
    /// The least behind packets at all ports, and at the sender's alone.
    packets: Vec<Bucket>,
    sender: Vec<Bucket>,
    /// Data received with short packets over that as published.
    data_ratio: f64,
}

impl Case {
    fn run(&self, effort: Effort) -> Result<Compared> {
        let policy = Policy::ShortPackets;
        let short = Transport::Homa(Settings { policy, ..Settings::PUBLISHED });
        let runs = [HOMA, short, Transport::Oracle].map(|transport| {
            Ok(Setup::new(self.name, self.duration_ns, transport)?.at_load(self.load))
        });
        let runs = runs.into_iter().collect::<Result<Vec<Setup>>>()?;
        let found = runs.par_iter().map(|setup| setup.run(effort)).collect::<Result<Vec<_>>>()?;
        let data_share = |found: &Findings| found.links.map_or(f64::NAN, |links| links.data_share);
        let [homa_share, short_share] = [0, 1].map(|place| data_share(&found[place]));
        let buckets = |place: usize| found[place].buckets.clone();
        let [packets, sender] =
            [Ports::All, Ports::Sender].map(|ports| self.bound(ports, homa_share, &found[0]));
        Ok(Compared {
            homa: buckets(0),
            short: buckets(1),
            oracle: buckets(2),
            packets: packets?,
            sender: sender?,
            data_ratio: short_share / homa_share,
        })
    }

    /// The bound where data without headers take `data_share` of the links.
    fn bound(&self, ports: Ports, data_share: f64, homa: &Findings) -> Result<Vec<Bucket>> {
        let workload = workload(self.name)?;
        let with_headers =
            paper::busy_share(&workload, 1.0) / paper::data_share(&workload) * data_share;
        let bound = Bound::new(&workload, Cut::Full, with_headers, HOSTS, ports);
        let of = |bucket: &Bucket| {
            let p99 = bound.slowdown(bucket.size_max, 0.01);
            Bucket { mean: f64::NAN, p50: f64::NAN, p99, ..*bucket }
        };
        Ok(homa.buckets.iter().map(of).collect())
    }
}

impl Compared {
    fn judged(&self, case: &Case, effort: Effort) -> Result<Vec<Verdict>> {
        let at = format!("{} at {}", case.name, case.load);
        let verdict = |what: &str, expected, obtained, tolerance| {
            let what = format!("{at}: {what}");
            Verdict::fixed(what, (Basis::Claimed, expected), obtained, tolerance)
        };
        let floors: Vec<Bucket> = self
            .packets
            .iter()
            .zip(&self.oracle)
            .map(|(packets, oracle)| Bucket { p99: packets.p99.max(oracle.p99), ..*packets })
            .collect();
        let of_all = of_all_sizes(effort);
        let (most, is_long) = (workload(case.name)?.quantile(0.9), case.name == "w5");
        let mut verdicts = vec![
            verdict(
                "p99 as published over the bound of packets, mean over sizes",
                1.0,
                ratio(&self.homa, &self.packets),
                Tolerance::AtLeast,
            ),
            verdict(
                "p99 as published over the floor, mean over sizes",
                1.0,
                ratio(&self.homa, &floors),
                Tolerance::Shown,
            ),
            verdict(
                "p99 as published over with short packets, mean over sizes",
                1.0,
                ratio(&self.homa, &self.short),
                of_all,
            ),
            verdict(
                "p99 of the shorter nine tenths, as published over with short packets",
                1.1,
                tail(&self.homa, most) / tail(&self.short, most),
                if is_long { Tolerance::Shown } else { Tolerance::AtLeast },
            ),
            verdict(
                "messages of sizes whose p99 is lower with short packets",
                0.8,
                self.lower_share(),
                if is_long { Tolerance::Shown } else { of_all },
            ),
            verdict(
                "data received, short packets over as published",
                0.99,
                self.data_ratio,
                of_all,
            ),
        ];
        for (place, (homa, short)) in self.homa.iter().zip(&self.short).enumerate() {
            let (packets, oracle) = (self.packets[place].p99, self.oracle[place].p99);
            let what = format!(
                "p99 up to {} bytes with short packets (packets {packets:.2}, oracle {oracle:.2})",
                homa.size_max
            );
            verdicts.push(verdict(&what, homa.p99, short.p99, Tolerance::Shown));
        }
        Ok(verdicts)
    }

    /// The share of the messages of which sizes have a lower p99 with short packets than as
    /// published.
    fn lower_share(&self) -> f64 {
        let count = |is_counted: fn(f64, f64) -> bool| {
            let pairs = self.homa.iter().zip(&self.short);
            let counted = pairs.filter(|(homa, short)| is_counted(short.p99, homa.p99));
            counted.map(|(homa, _)| homa.count).sum::<u64>() as f64
        };
        count(|short, homa| short < homa) / count(|_, _| true)
    }

    fn curves(&self) -> Vec<Curve> {
        [
            ("as published", &self.homa),
            ("short packets", &self.short),
            ("packets", &self.packets),
            ("sender's packets", &self.sender),
            ("oracle", &self.oracle),
        ]
        .map(|(label, buckets)| curve(label, buckets))
        .into()
    }
}

/// The mean over workloads of what is gained.
fn of_all_workloads(found: &[Compared], effort: Effort) -> Verdict {
    let ratios = found.iter().map(|compared| ratio(&compared.homa, &compared.short));
    let mean = ratios.sum::<f64>() / found.len() as f64;
    let what = format!(
        "all at {}: p99 as published over with short packets, mean over sizes and workloads",
        LOADS[0]
    );
    Verdict::fixed(what, (Basis::Claimed, 1.0 / 0.95), mean, of_all_sizes(effort))
}

/// Tolerance of a figure of all sizes: few messages of a size have no p99.
fn of_all_sizes(effort: Effort) -> Tolerance {
    if effort == Effort::full(effort.seed) { Tolerance::AtLeast } else { Tolerance::Shown }
}

/// The mean over sizes that have messages of the one p99 over the other.
fn ratio(ones: &[Bucket], others: &[Bucket]) -> f64 {
    let pairs = ones.iter().zip(others).map(|(one, other)| one.p99 / other.p99);
    let (sum, count) = pairs
        .filter(|ratio| ratio.is_finite())
        .fold((0.0, 0), |(sum, count), ratio| (sum + ratio, count + 1));
    sum / f64::from(count)
}

/// Published values are not below the bound at the load of their runs.
fn held(published: &Published) -> Result<Vec<Verdict>> {
    let workload = workload(published.name)?;
    let busy_share = paper::busy_share(&workload, 0.8);
    let bound = Bound::new(&workload, Cut::Full, busy_share, HOSTS, Ports::All);
    let verdict = |&(size, _, p99): &(u64, f64, f64)| {
        let what = format!("{} at 0.8, {size} bytes: published p99", published.name);
        Verdict::fixed(what, (Basis::Exact, bound.slowdown(size, 0.01)), p99, Tolerance::AtLeast)
    };
    Ok(published.slowdowns.iter().map(verdict).collect())
}

fn workload(name: &str) -> Result<Workload> {
    Workload::named(name).ok_or_else(|| anyhow!("there is no workload {name}"))
}

const HOSTS: u32 = 144;
const LOADS: [f64; 2] = [0.8, 0.5];
/// Workloads and virtual times.
const RUNS: [(&str, u64); 5] =
    [("w1", MS), ("w2", 2 * MS), ("w3", 16 * MS), ("w4", 60 * MS), ("w5", 160 * MS)];
