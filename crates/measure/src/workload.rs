//! Message sizes of datacenters: the five workloads of the Homa paper, and any other that a file
//! gives.
//!
//! A workload is a step distribution: a draw u takes the first size whose cumulative probability is
//! u or more, and nothing between two sizes is ever drawn. W1 to W5 (Montazeri et al., SIGCOMM'18)
//! are kept here in at most 40 points each. The sizes at which the published tables have their
//! 10th, 50th, 90th and 99th percentile, their largest size and the middle of their bytes are
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
        let (name, points) = TABLES.iter().find(|(known, _)| *known == name)?;
        Some(Self::new(name, points.to_vec()).expect("the tables are workloads"))
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

    /// What it is called.
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

/// Why there is no workload of some points.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A line that is neither the mean nor a size and a probability.
    #[error("line {number} is no `size cumulative_probability`: {text:?}")]
    Line {
        /// Counted from 1.
        number: usize,
        /// What it says, or its beginning.
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

const TABLES: [(&str, &[Point]); 5] =
    [("w1", &W1), ("w2", &W2), ("w3", &W3), ("w4", &W4), ("w5", &W5)];

/// Facebook's memcached.
const W1: [Point; 39] = [
    (1, 0.00583),
    (2, 0.18403),
    (3, 0.27642),
    (5, 0.30465),
    (8, 0.31931),
    (11, 0.42175),
    (15, 0.4786),
    (22, 0.49696),
    (27, 0.50059),
    (32, 0.51697),
    (41, 0.53936),
    (58, 0.58366),
    (77, 0.6104),
    (93, 0.63572),
    (111, 0.66308),
    (133, 0.69219),
    (158, 0.72263),
    (186, 0.7486),
    (219, 0.77994),
    (257, 0.8057),
    (297, 0.8307),
    (344, 0.8545),
    (398, 0.87675),
    (461, 0.89714),
    (503, 0.90097),
    (573, 0.9285),
    (655, 0.93155),
    (745, 0.95271),
    (940, 0.96855),
    (1203, 0.98097),
    (1583, 0.98963),
    (1876, 0.99027),
    (2180, 0.99496),
    (2987, 0.99782),
    (4377, 0.9992802),
    (7104, 0.9998475),
    (12_920, 0.999974),
    (28_548, 0.9999997),
    (100_000, 1.0),
];
/// Google's search.
const W2: [Point; 40] = [
    (2, 0.0756),
    (3, 0.13231),
    (4, 0.15121),
    (8, 0.17011),
    (34, 0.21649),
    (40, 0.25772),
    (49, 0.29895),
    (62, 0.32949),
    (89, 0.33865),
    (146, 0.39056),
    (184, 0.4272),
    (234, 0.46384),
    (269, 0.5085),
    (292, 0.59781),
    (331, 0.68712),
    (380, 0.77643),
    (446, 0.86574),
    (512, 0.9104),
    (588, 0.92948),
    (734, 0.9438),
    (853, 0.94857),
    (1020, 0.96269),
    (1378, 0.97414),
    (1921, 0.98244),
    (2580, 0.9896),
    (3151, 0.99103),
    (3959, 0.99656),
    (6854, 0.99857),
    (12_336, 0.99885),
    (19_826, 0.9990688),
    (39_256, 0.9993073),
    (75_560, 0.99961),
    (105_708, 0.9998187),
    (147_183, 0.9999335),
    (248_184, 0.999982),
    (622_305, 0.9999879),
    (926_656, 0.9999931),
    (1_471_147, 0.9999965),
    (2_243_665, 0.9999983),
    (3_529_904, 1.0),
];
/// All RPCs of a Google datacenter.
const W3: [Point; 40] = [
    (3, 0.06488),
    (32, 0.09732),
    (36, 0.10891),
    (51, 0.15527),
    (77, 0.25342),
    (103, 0.31886),
    (145, 0.42474),
    (219, 0.4979),
    (268, 0.52399),
    (297, 0.60227),
    (353, 0.68055),
    (435, 0.75883),
    (536, 0.80729),
    (769, 0.85761),
    (1280, 0.89871),
    (1755, 0.90125),
    (2223, 0.92191),
    (3432, 0.9359),
    (5217, 0.95673),
    (8184, 0.97127),
    (11_358, 0.97922),
    (14_869, 0.98523),
    (22_731, 0.98997),
    (31_013, 0.99008),
    (39_092, 0.99235),
    (62_238, 0.99394),
    (87_575, 0.99627),
    (131_752, 0.99775),
    (171_850, 0.99776),
    (200_528, 0.9983),
    (273_688, 0.99878),
    (356_391, 0.9992045),
    (470_002, 0.999526),
    (720_903, 0.9997327),
    (1_250_532, 0.9998538),
    (2_139_130, 0.9999193),
    (3_611_656, 0.9999597),
    (6_086_493, 0.9999823),
    (10_441_868, 0.9999975),
    (15_158_197, 1.0),
];
/// Facebook's Hadoop.
const W4: [Point; 40] = [
    (53, 0.00074),
    (73, 0.0074),
    (126, 0.0119),
    (237, 0.0383),
    (302, 0.09475),
    (315, 0.1033),
    (337, 0.18958),
    (403, 0.23527),
    (502, 0.3615),
    (591, 0.49942),
    (662, 0.50518),
    (729, 0.5792),
    (924, 0.6097),
    (1229, 0.63828),
    (1621, 0.67322),
    (3076, 0.68865),
    (6321, 0.7095),
    (16_448, 0.7186),
    (37_410, 0.7491),
    (47_825, 0.82044),
    (75_467, 0.87674),
    (102_876, 0.89964),
    (120_373, 0.90056),
    (135_974, 0.91452),
    (171_486, 0.92754),
    (216_348, 0.9442),
    (269_393, 0.95443),
    (396_403, 0.96336),
    (638_332, 0.96914),
    (930_426, 0.97396),
    (1_295_242, 0.97861),
    (1_709_297, 0.98252),
    (2_022_009, 0.987),
    (2_735_946, 0.9896),
    (3_430_822, 0.9909),
    (4_327_354, 0.9935),
    (5_426_418, 0.9948),
    (6_844_433, 0.9974),
    (8_582_787, 0.9987),
    (10_000_000, 1.0),
];
/// DCTCP's web search.
const W5: [Point; 40] = [
    (1470, 0.025),
    (2940, 0.05),
    (4410, 0.075),
    (5880, 0.1),
    (8085, 0.15),
    (11_760, 0.17143),
    (16_170, 0.19286),
    (21_682, 0.25),
    (27_783, 0.32143),
    (36_750, 0.35714),
    (44_835, 0.4),
    (54_390, 0.4455),
    (65_415, 0.4975),
    (72_030, 0.504),
    (77_246, 0.53612),
    (102_165, 0.55188),
    (135_240, 0.5755),
    (179_754, 0.60337),
    (262_395, 0.61348),
    (349_861, 0.62509),
    (519_903, 0.65506),
    (765_428, 0.68764),
    (1_045_843, 0.72252),
    (1_409_512, 0.76261),
    (1_821_860, 0.805),
    (2_437_260, 0.825),
    (3_062_010, 0.8475),
    (3_760_260, 0.8725),
    (4_495_260, 0.8975),
    (4_899_510, 0.9),
    (11_026_079, 0.91),
    (13_230_922, 0.9225),
    (15_680_765, 0.935),
    (18_131_216, 0.94751),
    (19_600_980, 0.95),
    (21_560_742, 0.9675),
    (25_235_809, 0.9875),
    (27_440_490, 0.99),
    (28_420_458, 0.9975),
    (29_400_000, 1.0),
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
