//! The simulation against the tables of `rpcvalet.md` section 4: exact values, and p99 that others
//! simulated.
//!
//! A cell is 5 seeds of 2 M requests after 200 k of warm-up, as there; 2 seeds at a load of 0.5 and
//! 3 at 0.7, where figures vary less. The tolerance is the spec's: 1 % up to a load of 0.8, and 3 %
//! at 0.9. The exceptions:
//! - Round robin, exponential, 0.8: 20 seeds. Five know the p99.9 to 0.5 %, and were off by 1.4 %;
//!   twenty are off by 0.1 %.
//! - Round robin, bimodal, 0.7 and 0.8, and exponential, 0.9: two published standard errors on top.
//!   Forty seeds here put the bimodal p99 at 16.05 and 24.19, both with an error of 0.2 %, so the
//!   published 15.91 and 24.0 are low by two of theirs; the published 26.0 +- 0.4 is 3 % above the
//!   exact 25.23.

use tailcut_sim::queue::{System, TieRule};
use tailcut_sim::sojourn::{Estimate, Figures};

use super::service;

#[test]
fn a_single_queue_fixed() {
    Cells::new("1x16", "jbsq:1", FIXED).check(
        Some([(1.000, 0.000), (1.313, 0.001), (1.545, 0.003), (2.258, 0.006)]),
        Some(&M_D_16),
    );
}

#[test]
fn jbsq_2_fixed() {
    Cells::new("1x16", "jbsq:2", FIXED)
        .check(Some([(1.000, 0.000), (1.873, 0.000), (1.963, 0.000), (2.381, 0.006)]), None);
}

#[test]
fn jbsq_3_fixed() {
    Cells::new("1x16", "jbsq:3", FIXED)
        .check(Some([(1.000, 0.000), (1.872, 0.000), (1.962, 0.000), (2.651, 0.008)]), None);
}

#[test]
fn jsq_2_fixed() {
    Cells::new("1x16", "jsq:2", FIXED)
        .check(Some([(1.988, 0.000), (2.678, 0.001), (2.937, 0.001), (3.834, 0.003)]), None);
}

#[test]
fn round_robin_fixed() {
    Cells::new("1x16", "rr", FIXED).check(
        Some([(1.000, 0.000), (1.313, 0.001), (1.545, 0.003), (2.258, 0.006)]),
        Some(&M_D_16),
    );
}

#[test]
fn random_fixed() {
    Cells::new("1x16", "random", FIXED)
        .check(Some([(4.342, 0.004), (7.471, 0.017), (11.33, 0.02), (23.1, 0.2)]), Some(&M_D_1));
}

#[test]
fn a_single_queue_exp() {
    Cells::new("1x16", "jbsq:1", EXP).check(
        Some([(4.610, 0.002), (4.637, 0.002), (4.740, 0.002), (5.287, 0.024)]),
        Some(&M_M_16),
    );
}

#[test]
fn jbsq_2_exp() {
    Cells::new("1x16", "jbsq:2", EXP).check(
        Some([(4.634, 0.002), (4.920, 0.003), (5.344, 0.004), (6.253, 0.022)]),
        Some(&JBSQ_2),
    );
}

#[test]
fn jbsq_3_exp() {
    Cells::new("1x16", "jbsq:3", EXP).check(
        Some([(4.634, 0.003), (4.921, 0.003), (5.381, 0.004), (6.538, 0.020)]),
        Some(&JBSQ_3),
    );
}

#[test]
fn jsq_2_exp() {
    Cells::new("1x16", "jsq:2", EXP)
        .check(Some([(5.642, 0.004), (6.725, 0.007), (7.719, 0.006), (9.725, 0.031)]), None);
}

#[test]
fn round_robin_exp() {
    Cells::new("1x16", "rr", EXP)
        .check(Some([(5.992, 0.007), (9.034, 0.022), (13.12, 0.04), (26.0, 0.4)]), Some(&E16_M_1));
}

#[test]
fn random_exp() {
    Cells::new("1x16", "random", EXP)
        .check(Some([(9.239, 0.016), (15.29, 0.04), (23.2, 0.1), (46.0, 0.4)]), Some(&M_M_1));
}

#[test]
fn a_single_queue_bimodal() {
    Cells::new("1x16", "jbsq:1", BIMODAL)
        .check(Some([(5.263, 0.000), (5.325, 0.001), (5.691, 0.004), (6.957, 0.036)]), None);
}

#[test]
fn jbsq_2_bimodal() {
    Cells::new("1x16", "jbsq:2", BIMODAL)
        .check(Some([(5.263, 0.000), (5.449, 0.005), (6.015, 0.013), (8.343, 0.063)]), None);
}

#[test]
fn jbsq_3_bimodal() {
    Cells::new("1x16", "jbsq:3", BIMODAL)
        .check(Some([(5.263, 0.000), (5.447, 0.006), (5.892, 0.024), (9.474, 0.067)]), None);
}

#[test]
fn jsq_2_bimodal() {
    Cells::new("1x16", "jsq:2", BIMODAL)
        .check(Some([(7.352, 0.019), (9.991, 0.005), (10.91, 0.01), (14.36, 0.04)]), None);
}

#[test]
fn round_robin_bimodal() {
    Cells::new("1x16", "rr", BIMODAL)
        .check(Some([(9.313, 0.021), (15.91, 0.05), (24.0, 0.1), (49.4, 0.9)]), None);
}

#[test]
fn random_bimodal() {
    Cells::new("1x16", "random", BIMODAL)
        .check(Some([(13.36, 0.02), (22.8, 0.1), (34.6, 0.3), (69.5, 0.5)]), None);
}

#[test]
fn a_single_queue_uniform() {
    Cells::new("1x16", "jbsq:1", UNIFORM)
        .check(Some([(1.981, 0.000), (2.002, 0.001), (2.268, 0.003), (3.026, 0.010)]), None);
}

#[test]
fn jbsq_2_uniform() {
    Cells::new("1x16", "jbsq:2", UNIFORM)
        .check(Some([(1.984, 0.000), (2.533, 0.002), (3.002, 0.003), (3.584, 0.006)]), None);
}

#[test]
fn jbsq_3_uniform() {
    Cells::new("1x16", "jbsq:3", UNIFORM)
        .check(Some([(1.984, 0.000), (2.532, 0.002), (3.007, 0.003), (3.694, 0.008)]), None);
}

#[test]
fn jsq_2_uniform() {
    Cells::new("1x16", "jsq:2", UNIFORM)
        .check(Some([(3.152, 0.001), (3.791, 0.002), (4.451, 0.005), (5.708, 0.013)]), None);
}

#[test]
fn round_robin_uniform() {
    Cells::new("1x16", "rr", UNIFORM)
        .check(Some([(2.143, 0.002), (3.205, 0.003), (4.671, 0.012), (9.145, 0.079)]), None);
}

#[test]
fn random_uniform() {
    Cells::new("1x16", "random", UNIFORM)
        .check(Some([(5.749, 0.003), (9.895, 0.018), (15.0, 0.1), (30.8, 0.3)]), None);
}

#[test]
fn jbsq_4_exp() {
    Cells::new("1x16", "jbsq:4", EXP).check(None, Some(&JBSQ_4));
}

#[test]
fn four_by_four_exp() {
    Cells::new("4x4", "jbsq:1", EXP).check(None, Some(&M_M_4));
}

#[test]
fn four_by_four_fixed() {
    Cells::new("4x4", "jbsq:1", FIXED).check(None, Some(&M_D_4));
}

/// A queue for each worker is random placement, whatever the policy within its group of one.
#[test]
fn sixteen_by_one_exp() {
    Cells::new("16x1", "jbsq:2", EXP).check(None, Some(&M_M_1));
}

#[test]
fn sixteen_by_one_fixed() {
    Cells::new("16x1", "jbsq:2", FIXED).check(None, Some(&M_D_1));
}

/// One policy, layout and service at all loads.
#[derive(Debug)]
struct Cells {
    layout: &'static str,
    policy: &'static str,
    service: &'static str,
}

impl Cells {
    fn new(layout: &'static str, policy: &'static str, service: &'static str) -> Self {
        Self { layout, policy, service }
    }

    fn check(&self, published: Option<Published>, exact: Option<&Exact>) {
        let mut failures = Vec::new();
        for (at, load) in LOADS.into_iter().enumerate() {
            let figures = self.figures(load);
            let tolerance = if load < 0.85 { 0.01 } else { 0.03 };
            let mut hold = |what: &str, figure: &Estimate, expected: f64, room: f64| {
                if (figure.value - expected).abs() > tolerance * expected + room {
                    failures.push(format!(
                        "{self:?} at {load}: the {what} is {figure:?}, not {expected}"
                    ));
                }
            };
            if let Some(published) = published {
                let (p99, error) = published[at];
                let room = if PUBLISHED_LOOSELY.contains(&(self.policy, self.service, load)) {
                    2.0 * error
                } else {
                    0.0
                };
                hold("published p99", &figures[3], p99, room);
            }
            for (expected, (name, figure)) in
                exact.into_iter().flat_map(|exact| exact[at]).zip(NAMES.iter().zip(&figures))
            {
                hold(name, figure, expected, 0.0);
            }
        }
        assert!(failures.is_empty(), "{failures:#?}");
    }

    fn figures(&self, load: f64) -> [Estimate; 5] {
        let (groups, workers) = self.layout.split_once('x').unwrap();
        let ties = self.policy.starts_with("jbsq").then_some(TieRule::Random);
        let system = System::new(
            workers.parse().unwrap(),
            self.policy.parse().unwrap(),
            service(self.service),
        );
        let system = System {
            groups: groups.parse().unwrap(),
            ties,
            requests: 2_200_000,
            warmup: 200_000,
            ..system
        };
        let system = system.at_load(load);
        let seeds = match load {
            0.8 if (self.policy, self.service) == ("rr", EXP) => 20,
            0.5 => 2,
            0.7 => 3,
            _ => 5,
        };
        let figures =
            |seed| system.run(seed).map(|run| run.sojourns.figures(run.service_mean_ps)).unwrap();
        let runs: Vec<_> = (1..=seeds).map(figures).collect();
        let each = |figure: fn(&Figures) -> f64| {
            Estimate::of(&runs.iter().map(figure).collect::<Vec<_>>())
        };
        [each(|f| f.mean), each(|f| f.p50), each(|f| f.p90), each(|f| f.p99), each(|f| f.p999)]
    }
}

/// p99 and its standard error, by load.
type Published = [(f64, f64); 4];
/// Mean, p50, p90, p99 and p99.9, by load.
type Exact = [[f64; 5]; 4];

const NAMES: [&str; 5] = ["exact mean", "exact p50", "exact p90", "exact p99", "exact p99.9"];
/// Policy, service and load of the cells that get two published standard errors.
const PUBLISHED_LOOSELY: [(&str, &str, f64); 3] =
    [("rr", BIMODAL, 0.7), ("rr", BIMODAL, 0.8), ("rr", EXP, 0.9)];
const LOADS: [f64; 4] = [0.5, 0.7, 0.8, 0.9];

const FIXED: &str = "fixed:1us";
const EXP: &str = "exp:1us";
/// 90 % short of 1/1.9, 10 % long of 10/1.9, in units of their mean.
const BIMODAL: &str = "bimodal:1us:10us:0.9";
const UNIFORM: &str = "uni:2us";

/// E16/M/1 (RR exp).
const E16_M_1: Exact = [
    [1.2983, 0.8999, 2.9894, 5.9787, 8.9681],
    [1.9658, 1.3626, 4.5265, 9.0530, 13.5795],
    [2.8361, 1.9659, 6.5304, 13.0609, 19.5913],
    [5.4796, 3.7982, 12.6173, 25.2347, 37.8520],
];
/// JBSQ(2) exp.
const JBSQ_2: Exact = [
    [1.0054, 0.6969, 2.3150, 4.6299, 6.9446],
    [1.0755, 0.7480, 2.4738, 4.9211, 7.3492],
    [1.2016, 0.8508, 2.7449, 5.3400, 7.8629],
    [1.5649, 1.1902, 3.4443, 6.2409, 8.8596],
];
/// JBSQ(3) exp.
const JBSQ_3: Exact = [
    [1.0054, 0.6969, 2.3150, 4.6299, 6.9446],
    [1.0756, 0.7480, 2.4742, 4.9234, 7.3543],
    [1.2031, 0.8491, 2.7515, 5.3754, 7.9336],
    [1.5775, 1.1702, 3.5191, 6.5220, 9.3257],
];
/// JBSQ(4) exp.
const JBSQ_4: Exact = [
    [1.0054, 0.6969, 2.3150, 4.6299, 6.9446],
    [1.0756, 0.7480, 2.4742, 4.9234, 7.3543],
    [1.2031, 0.8491, 2.7515, 5.3766, 7.9377],
    [1.5779, 1.1668, 3.5204, 6.5906, 9.4955],
];
/// M/D/1 (16x1 fixed, random).
const M_D_1: Exact = [
    [1.5000, 1.0000, 2.5157, 4.3363, 6.1684],
    [2.1667, 1.7298, 4.0771, 7.4855, 10.8944],
    [3.0000, 2.2759, 6.0115, 11.3559, 16.7003],
    [5.5000, 4.0130, 11.7825, 22.8982, 34.0140],
];
/// M/D/16 (1x16 fixed) = RR+fixed.
const M_D_16: Exact = [
    [1.0008, 1.0000, 1.0000, 1.0000, 1.2016],
    [1.0161, 1.0000, 1.0276, 1.3107, 1.5179],
    [1.0525, 1.0000, 1.2069, 1.5435, 1.8784],
    [1.1925, 1.0553, 1.5688, 2.2639, 2.9586],
];
/// M/D/4 (4x4 fixed).
const M_D_4: Exact = [
    [1.0497, 1.0000, 1.1888, 1.7108, 2.1690],
    [1.1897, 1.0000, 1.6415, 2.4880, 3.3407],
    [1.3861, 1.1372, 2.1193, 3.4546, 4.7907],
    [2.0000, 1.6211, 3.5604, 6.3394, 9.1183],
];
/// M/M/1 (16x1 exp, random).
const M_M_1: Exact = [
    [2.0000, 1.3863, 4.6052, 9.2103, 13.8155],
    [3.3333, 2.3105, 7.6753, 15.3506, 23.0259],
    [5.0000, 3.4657, 11.5129, 23.0259, 34.5388],
    [10.0000, 6.9315, 23.0259, 46.0517, 69.0776],
];
/// M/M/16 (1x16 exp).
const M_M_16: Exact = [
    [1.0011, 0.6944, 2.3039, 4.6065, 6.9090],
    [1.0270, 0.7246, 2.3361, 4.6387, 6.9413],
    [1.0953, 0.8019, 2.4318, 4.7350, 7.0375],
    [1.3696, 1.0780, 2.8972, 5.2698, 7.5884],
];
/// M/M/4 (4x4 exp).
const M_M_4: Exact = [
    [1.0870, 0.7834, 2.4501, 4.7642, 7.0680],
    [1.3572, 1.0285, 2.9763, 5.4926, 7.9017],
    [1.7455, 1.3462, 3.7760, 6.8932, 9.8797],
    [2.9694, 2.2545, 6.4244, 12.1932, 17.9500],
];
