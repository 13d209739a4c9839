//! Homa with short packets against Homa as published, in the same run: how much shorter the tail
//! is, and what that costs.
//!
//! | judged, of W3 and of W4 over three seeds | at least |
//! |---|---|
//! | messages of the sizes whose p99 is lower than with the published settings | 0.8 |
//! | the p99 of the shorter nine tenths with the published settings over that with short packets | 1.1 |
//! | data received over that with the published settings | 0.97 |
//!
//! A size's p99 is the mean over the seeds. The bound, which no network can reach, stands beside.

use anyhow::{Result, anyhow};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tailcut_measure::workload::Workload;
use tailcut_sim::homa::slowdown::Bucket;
use tailcut_sim::homa::{Findings, Policy, Settings, Transport};

use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::homa::{MS, Setup, curve, panel, tail};
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let mut figure = Figure { panels: Vec::new(), verdicts: Vec::new() };
    for (name, duration_ns) in [("w3", 40 * MS), ("w4", 60 * MS)] {
        let compared = Compared::run(effort, name, duration_ns)?;
        figure.verdicts.extend(compared.judged(name, effort)?);
        figure.verdicts.extend(compared.shown(name));
        figure.panels.push(compared.panel(name));
    }
    Ok(figure)
}

/// The same messages with either setting, by seed, and by the bound.
struct Compared {
    published: Vec<Findings>,
    short: Vec<Findings>,
    bound: Findings,
}

impl Compared {
    fn run(effort: Effort, name: &str, duration_ns: u64) -> Result<Self> {
        let policy = |policy| Transport::Homa(Settings { policy, ..Settings::PUBLISHED });
        let by_seed = (0..SEEDS).flat_map(|seed| {
            [(seed, policy(Policy::Sigcomm)), (seed, policy(Policy::ShortPackets))]
        });
        let runs: Vec<(u64, Transport)> = by_seed.chain([(0, Transport::Oracle)]).collect();
        let run = |&(seed, transport): &(u64, Transport)| {
            let setup = Setup::new(name, duration_ns, transport)?;
            setup.run(effort.with_seed(effort.seed.wrapping_add(seed)))
        };
        let mut found = runs.par_iter().map(run).collect::<Result<Vec<Findings>>>()?;
        let bound = found.pop().ok_or_else(|| anyhow!("there is no run"))?;
        let (published, short): (Vec<_>, Vec<_>) =
            found.into_iter().enumerate().partition(|(place, _)| place % 2 == 0);
        let [published, short] =
            [published, short].map(|runs| runs.into_iter().map(|(_, run)| run).collect());
        Ok(Self { published, short, bound })
    }

    fn judged(&self, name: &str, effort: Effort) -> Result<Vec<Verdict>> {
        let workload =
            Workload::named(name).ok_or_else(|| anyhow!("there is no workload {name}"))?;
        let (published, short) = (mean(&self.published), mean(&self.short));
        let all: u64 = published.iter().map(|bucket| bucket.count).sum();
        let better =
            published.iter().zip(&short).filter(|(published, short)| short.p99 < published.p99);
        let share = better.map(|(bucket, _)| bucket.count).sum::<u64>() as f64 / all as f64;
        let most = workload.quantile(0.9);
        let data = |runs: &[Findings]| {
            runs.iter().filter_map(|run| run.links).map(|links| links.data_share).sum::<f64>()
        };
        // Few messages of a size have no p99.
        let of_all =
            if effort == Effort::full(effort.seed) { Tolerance::AtLeast } else { Tolerance::Shown };
        let verdict = |what: &str, expected, obtained, tolerance| {
            Verdict::fixed(
                format!("{name}: {what}"),
                (Basis::Claimed, expected),
                obtained,
                tolerance,
            )
        };
        Ok(vec![
            verdict("messages of sizes whose p99 is lower with short packets", 0.8, share, of_all),
            verdict(
                "p99 of the shorter nine tenths, as published over with short packets",
                1.1,
                tail(&published, most) / tail(&short, most),
                Tolerance::AtLeast,
            ),
            verdict(
                "data received with short packets over as published",
                0.97,
                data(&self.short) / data(&self.published),
                Tolerance::AtLeast,
            ),
        ])
    }

    /// The p99 of every size, published as what is expected.
    fn shown(&self, name: &str) -> Vec<Verdict> {
        let rows =
            mean(&self.published).into_iter().zip(mean(&self.short)).zip(&self.bound.buckets);
        let verdict = |((published, short), bound): ((Bucket, Bucket), &Bucket)| {
            let what = format!(
                "{name} up to {} bytes: p99 with short packets (bound {:.2})",
                published.size_max, bound.p99
            );
            Verdict::fixed(what, (Basis::Claimed, published.p99), short.p99, Tolerance::Shown)
        };
        rows.map(verdict).collect()
    }

    fn panel(&self, name: &str) -> Panel {
        let curves: [Curve; 3] = [
            curve("as published", &mean(&self.published)),
            curve("short packets", &mean(&self.short)),
            curve("bound", &self.bound.buckets),
        ];
        panel(format!("{name} at a load of 0.8"), curves.into())
    }
}

/// Buckets with the counts of all runs and the mean figures of each.
fn mean(runs: &[Findings]) -> Vec<Bucket> {
    let sizes = runs.first().map_or(&[][..], |run| &run.buckets);
    let bucket = |place: usize| {
        let of = |figure: fn(&Bucket) -> f64| {
            let figures = runs
                .iter()
                .map(|run| figure(&run.buckets[place]))
                .filter(|figure| !figure.is_nan());
            let (sum, count) =
                figures.fold((0.0, 0), |(sum, count), figure| (sum + figure, count + 1));
            sum / f64::from(count)
        };
        let count = runs.iter().map(|run| run.buckets[place].count).sum();
        Bucket {
            size_max: sizes[place].size_max,
            count,
            mean: of(|it| it.mean),
            p50: of(|it| it.p50),
            p99: of(|it| it.p99),
        }
    };
    (0..sizes.len()).map(bucket).collect()
}

const SEEDS: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_means_over_runs_that_have_them() {
        let bucket = |count, p99| Bucket { size_max: 10, count, mean: p99, p50: p99, p99 };
        let of = |bucket| Findings {
            buckets: vec![bucket],
            all: bucket,
            counts: tailcut_sim::homa::Counts::default(),
            links: None,
            homa: None,
            network: tailcut_sim::network::Statistics::default(),
            elapsed_ns: 0,
        };
        let found = mean(&[of(bucket(2, 3.0)), of(bucket(0, f64::NAN)), of(bucket(1, 5.0))]);
        assert_eq!((found[0].count, found[0].p99), (3, 4.0));
    }
}
