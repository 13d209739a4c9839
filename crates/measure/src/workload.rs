//! Message sizes of datacenters: the five workloads of the Homa paper, and any other that a file
//! gives.
//!
//! A workload is a step distribution: a draw u takes the first size whose cumulative probability is
//! u or more, and nothing between two sizes is ever drawn. W1 to W5 (Montazeri et al., SIGCOMM'18)
//! are kept in `workload/` in at most 40 points each. The sizes at which the published tables have
//! their 10th, 50th, 90th and 99th percentile, their largest size and the middle of their bytes are
//! points of their own, no point stands for sizes on both sides of 10 kB, and every other one is
//! the mean of the sizes that it stands for; so quantiles, mean, and the share of the bytes that a
//! Homa sender may send unasked are those of the whole tables.
//!
//! Invariant: neither sizes nor probabilities fall, the latter end at one, and every size is at
//! least 1 byte.

use std::sync::Arc;

use rand::{Rng, RngExt};
use rand_distr::Open01;
use thiserror::Error;

/// A distribution of message sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    name: Arc<str>,
    /// Falling in neither.
    points: Arc<[Point]>,
    mean_bytes: f64,
}

/// A size in bytes, and the probability that a message is of this size or a smaller one.
pub type Point = (u64, f64);

impl Workload {
    /// One of `w1` to `w5`; `None` for another name.
    pub fn named(name: &str) -> Option<Self> {
        let (name, text) = TABLES.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(name, text).expect("the tables are workloads"))
    }

    /// The names of the workloads that are kept here.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLES.iter().map(|(name, _)| *name)
    }

    /// Checks `points`, so that they can be drawn from; `name` is for people.
    ///
    /// # Errors
    ///
    /// What is wrong with the points.
    pub fn new(name: &str, points: Vec<Point>) -> Result<Self, WorkloadError> {
        let mut before = (0, 0.0);
        for (place, &(size, cumulative)) in points.iter().enumerate() {
            let is_in_order =
                size >= before.0.max(1) && cumulative >= before.1 && cumulative <= 1.0;
            if !is_in_order {
                return Err(WorkloadError::Order { place: place + 1, size, cumulative });
            }
            before = (size, cumulative);
        }
        if before.1 < 1.0 - ROUNDING {
            return Err(WorkloadError::Incomplete(before.1));
        }
        let mut points: Arc<[Point]> = points.into();
        Arc::get_mut(&mut points)
            .and_then(<[Point]>::last_mut)
            .expect("a probability of one has a point")
            .1 = 1.0;
        let mean_bytes = expectation(&points, |size| size as f64);
        Ok(Self { name: name.into(), points, mean_bytes })
    }

    /// Reads a file's text: the mean on the first line, then `size cumulative_probability` a line,
    /// neither falling; empty lines are left out. The mean is checked only to be a number, because
    /// published files round it; [`Workload::mean_bytes`] is computed.
    ///
    /// # Errors
    ///
    /// The line that is wrong, and why.
    pub fn parse(name: &str, text: &str) -> Result<Self, WorkloadError> {
        let mut lines =
            text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
        let bad = |index: usize, line: &str| WorkloadError::Line {
            number: index + 1,
            text: line.chars().take(40).collect(),
        };
        let (index, first) = lines.next().ok_or(WorkloadError::Incomplete(0.0))?;
        first.parse::<f64>().map_err(|_| bad(index, first))?;
        let point = |(index, line): (usize, &str)| {
            let (size, cumulative) =
                line.split_once(char::is_whitespace).ok_or_else(|| bad(index, line))?;
            let size = size.parse::<u64>().map_err(|_| bad(index, line))?;
            let cumulative = cumulative.trim().parse::<f64>().map_err(|_| bad(index, line))?;
            Ok((size, cumulative))
        };
        Self::new(name, lines.map(point).collect::<Result<_, _>>()?)
    }

    /// Name of the workload.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sizes and their cumulative probabilities.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The mean size, bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.mean_bytes
    }

    /// The share of all bytes that are among the first `limit` of their message.
    pub fn share_within(&self, limit: u64) -> f64 {
        expectation(&self.points, |size| size.min(limit) as f64) / self.mean_bytes
    }

    /// The first size whose cumulative probability is `p` or more; the largest from 1 on.
    pub fn quantile(&self, p: f64) -> u64 {
        let at = self.points.partition_point(|&(_, cumulative)| cumulative < p);
        self.points[at.min(self.points.len() - 1)].0
    }

    /// Draws a size, bytes.
    pub fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> u64 {
        self.quantile(rng.sample(Open01))
    }
}

/// Reason why there is no workload of some points.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A line that is neither the mean nor a size and a probability.
    #[error("line {number} is no `size cumulative_probability`: {text:?}")]
    Line {
        /// Counted from 1.
        number: usize,
        /// Text of the line, or its beginning.
        text: String,
    },
    /// Sizes or probabilities that fall, or a size of 0.
    #[error(
        "neither sizes from 1 on nor probabilities up to 1 may fall, but point {place} is {size} {cumulative}"
    )]
    Order {
        /// Counted from 1.
        place: usize,
        /// Bytes.
        size: u64,
        /// Cumulative probability.
        cumulative: f64,
    },
    /// The last probability is not one.
    #[error("the probabilities must end at 1, but end at {0}")]
    Incomplete(f64),
}

fn expectation(points: &[Point], of: impl Fn(u64) -> f64) -> f64 {
    let before = [0.0].into_iter().chain(points.iter().map(|point| point.1));
    points
        .iter()
        .zip(before)
        .map(|(&(size, cumulative), before)| of(size) * (cumulative - before))
        .sum()
}

/// By how much a published table may miss one at its end.
const ROUNDING: f64 = 1e-6;

/// Names and texts of the workloads that are kept here, in the format of [`Workload::parse`].
const TABLES: [(&str, &str); 5] = [
    // Facebook's memcached.
    ("w1", include_str!("workload/w1.txt")),
    // Google's search.
    ("w2", include_str!("workload/w2.txt")),
    // All RPCs of a Google datacenter.
    ("w3", include_str!("workload/w3.txt")),
    // Facebook's Hadoop.
    ("w4", include_str!("workload/w4.txt")),
    // DCTCP's web search.
    ("w5", include_str!("workload/w5.txt")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::generator;

    /// A row of the table of published workloads.
    struct Row {
        name: &'static str,
        mean_bytes: f64,
        /// p10, p50, p90, p99.
        quantiles: [u64; 4],
        max: u64,
        byte_median: u64,
        /// The share of the bytes that are among the first 10 kB of their message.
        share_10_kb: f64,
    }

    const ROWS: [Row; 5] = [
        Row {
            name: "w1",
            mean_bytes: 187.5,
            quantiles: [2, 27, 503, 1876],
            max: 100_000,
            byte_median: 655,
            share_10_kb: 0.995,
        },
        Row {
            name: "w2",
            mean_bytes: 440.8,
            quantiles: [3, 269, 512, 3151],
            max: 3_529_904,
            byte_median: 853,
            share_10_kb: 0.773,
        },
        Row {
            name: "w3",
            mean_bytes: 2927.4,
            quantiles: [36, 268, 1755, 31_013],
            max: 15_158_197,
            byte_median: 171_850,
            share_10_kb: 0.298,
        },
        Row {
            name: "w4",
            mean_bytes: 127_796.6,
            quantiles: [315, 662, 120_373, 3_430_822],
            max: 10_000_000,
            byte_median: 3_430_822,
            share_10_kb: 0.027,
        },
        Row {
            name: "w5",
            mean_bytes: 2_564_715.0,
            quantiles: [5880, 72_030, 4_899_510, 27_440_490],
            max: 29_400_000,
            byte_median: 19_600_980,
            share_10_kb: 0.004,
        },
    ];

    #[test]
    fn the_condensed_workloads_have_the_published_quantiles() {
        for row in &ROWS {
            let workload = Workload::named(row.name).unwrap();
            assert_eq!(
                [0.1, 0.5, 0.9, 0.99].map(|p| workload.quantile(p)),
                row.quantiles,
                "{}",
                row.name
            );
            assert_eq!(
                (workload.quantile(1.0), workload.points().len() <= 40),
                (row.max, true),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn the_condensed_workloads_have_the_published_means_within_a_hundredth() {
        for row in &ROWS {
            let ratio = Workload::named(row.name).unwrap().mean_bytes() / row.mean_bytes;
            assert!((ratio - 1.0).abs() < 0.01, "{}: {ratio}", row.name);
        }
    }

    #[test]
    fn the_condensed_workloads_have_their_bytes_where_the_published_ones_do() {
        for row in &ROWS {
            let workload = Workload::named(row.name).unwrap();
            let share = workload.share_within(10_000);
            assert!((share - row.share_10_kb).abs() < 0.001, "{}: {share}", row.name);
            let below = |size: u64| {
                let bytes = |of: u64| if of < size { of as f64 } else { 0.0 };
                expectation(workload.points(), bytes) / workload.mean_bytes()
            };
            assert!(
                below(row.byte_median) < 0.5 && below(row.byte_median + 1) >= 0.5,
                "{}",
                row.name
            );
        }
    }

    /// The mean over draws is within four of its standard errors.
    #[test]
    fn draws_have_the_mean() {
        for name in Workload::names() {
            let workload = Workload::named(name).unwrap();
            let mut rng = generator(1, 0);
            let count = 200_000;
            let sum: f64 = (0..count).map(|_| workload.sample(&mut rng) as f64).sum();
            let square = expectation(workload.points(), |size| (size as f64).powi(2));
            let error = ((square - workload.mean_bytes().powi(2)) / f64::from(count)).sqrt();
            let mean = sum / f64::from(count);
            assert!(
                (mean - workload.mean_bytes()).abs() < 4.0 * error,
                "{name}: {mean} +- {error}"
            );
        }
    }

    #[test]
    fn a_draw_takes_the_first_size_that_reaches_it() {
        let workload = Workload::parse("test", "15\n10 0.5\n20 1\n").unwrap();
        assert_eq!([0.1, 0.5, 0.500_001, 1.0].map(|p| workload.quantile(p)), [10, 10, 20, 20]);
        assert_eq!((workload.mean_bytes(), workload.share_within(10)), (15.0, 10.0 / 15.0));
    }

    #[test]
    fn a_bad_file_is_refused_with_its_line() {
        let refused = |text: &str| Workload::parse("test", text).unwrap_err().to_string();
        for (text, part) in [
            ("", "end at 1, but end at 0"),
            ("mean\n1 1", "line 1"),
            ("1\n10\n", "line 2"),
            ("1\n\n10 x\n", "line 3"),
            ("1\n-3 1\n", "line 2"),
            ("1\n0 1\n", "point 1"),
            ("1\n10 0.5\n9 1\n", "point 2"),
            ("1\n10 0.5\n11 0.4\n", "point 2"),
            ("1\n10 0.5\n11 1.5\n", "point 2"),
            ("1\n10 nan\n", "point 1"),
            ("1\n10 0.5\n", "end at 0.5"),
        ] {
            assert!(refused(text).contains(part), "{text:?}: {}", refused(text));
        }
    }

    #[test]
    fn a_name_that_is_not_kept_is_none() {
        assert_eq!(Workload::named("w6"), None);
    }
}
