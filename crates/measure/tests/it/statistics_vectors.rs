//! The statistics agree with SciPy and statsmodels to six digits. `vectors/make.py` made
//! `vectors/statistics.json`.

use serde_json::Value;
use tailcut_measure::statistics::arrival_fit::anderson_darling;
use tailcut_measure::statistics::autocorrelation::autocorrelation;
use tailcut_measure::statistics::dickey_fuller::dickey_fuller;
use tailcut_measure::statistics::quantile::estimate;
use tailcut_measure::statistics::reference::{
    beta_cdf, beta_quantile, normal_cdf, student_beyond, student_within,
};

#[test]
fn the_reference_distributions_are_those_of_scipy() {
    let vectors = vectors();
    let reference = |name: &str| rows(&vectors["reference"][name]);
    for row in reference("normal_cdf") {
        check("normal_cdf", normal_cdf(row[0]), row[1]);
    }
    for row in reference("student_beyond") {
        check("student_beyond", student_beyond(row[0], row[1]), row[2]);
    }
    for row in reference("student_within") {
        check("student_within", student_within(row[0], row[1]), row[2]);
    }
    for row in reference("beta_cdf") {
        check("beta_cdf", beta_cdf(row[0], row[1], row[2]), row[3]);
    }
}

#[test]
fn the_exact_interval_of_a_share_is_that_of_scipy() {
    for row in rows(&vectors()["reference"]["clopper_pearson"]) {
        let (hits, misses) = (row[0], row[1] - row[0]);
        check("low", beta_quantile(0.025, hits, misses + 1.0), row[2]);
        check("high", beta_quantile(0.975, hits + 1.0, misses), row[3]);
    }
}

#[test]
fn autocorrelations_are_those_of_statsmodels() {
    for series in series() {
        for (lag, (ours, theirs)) in autocorrelation(&series.samples, 12)
            .iter()
            .zip(series.floats("autocorrelation"))
            .enumerate()
        {
            check(&format!("{} at {lag}", series.name), *ours, theirs);
        }
    }
}

#[test]
fn the_dickey_fuller_test_is_that_of_statsmodels() {
    for series in series() {
        let values: Vec<f64> = series.samples.iter().map(|&sample| f64::from(sample)).collect();
        let ours = dickey_fuller(&values).unwrap();
        let expected = &series.case["dickey_fuller"];
        let counts = (
            expected["lags"].as_u64().unwrap() as usize,
            expected["observations"].as_u64().unwrap() as usize,
        );
        assert_eq!((ours.lags, ours.observations), counts, "{}", series.name);
        check(&series.name, ours.statistic, expected["statistic"].as_f64().unwrap());
        check(&series.name, ours.p_value, expected["p_value"].as_f64().unwrap());
    }
}

#[test]
fn the_distance_of_anderson_and_darling_is_that_of_scipy() {
    for case in vectors()["anderson_darling"].as_array().unwrap() {
        let ours = anderson_darling(&mut floats(&case["values"])).unwrap();
        check("A2", ours.statistic, case["statistic"].as_f64().unwrap());
        // SciPy samples the p-value 20,000 times: five standard errors.
        let sampled = case["p_value_sampled"].as_f64().unwrap();
        assert!(
            (ours.p_value - sampled).abs() < 5.0 * (0.25_f64 / 20_000.0).sqrt(),
            "{ours:?} {sampled}"
        );
    }
}

#[test]
fn the_limits_of_anderson_and_darling_are_the_published_ones() {
    // Stephens (1974), case 0: where A2 has the p-value on the right, for five values and more; his
    // are sampled, to 3 %.
    for (statistic, p_value) in [(1.933, 0.1), (2.492, 0.05), (3.857, 0.01)] {
        let found = p_value_near(statistic);
        assert!((found / p_value - 1.0).abs() < 0.03, "{statistic}: {found}");
    }
}

/// The interval of samples that follow each other without memory is the exact one of order
/// statistics.
#[test]
fn without_memory_the_interval_is_that_of_order_statistics() {
    // A permutation of 1 to 100,000 by a multiplier without structure.
    let samples: Vec<f32> =
        (1..=100_000_u64).map(|index| (index * 38_177 % 100_003) as f32).collect();
    let found = estimate(&samples, 0.5, 0.95).unwrap();
    // 1.96 x sqrt(100,000) / 2 = 309.9 ranks, and half a rank at each end for the exact one.
    assert!(
        (found.inflation - 1.0).abs() < 1e-9 && (found.half_width_ns() / 310.4 - 1.0).abs() < 0.002,
        "{found:?}"
    );
}

/// The p-value at `statistic`, from a grid that is stretched until its A2 is that.
fn p_value_near(statistic: f64) -> f64 {
    let grid = |power: f64| {
        let mut places: Vec<f64> =
            (0..1000).map(|index| ((f64::from(index) + 0.5) / 1000.0_f64).powf(power)).collect();
        anderson_darling(&mut places).unwrap()
    };
    let (mut low, mut high) = (1.0, 2.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if grid(middle).statistic < statistic { low = middle } else { high = middle }
    }
    grid(high).p_value
}

struct Series {
    name: String,
    samples: Vec<f32>,
    case: Value,
}

impl Series {
    fn floats(&self, name: &str) -> Vec<f64> {
        floats(&self.case[name])
    }
}

fn series() -> Vec<Series> {
    let read = |case: &Value| Series {
        name: case["name"].as_str().unwrap().to_owned(),
        samples: floats(&case["values"]).iter().map(|&value| value as f32).collect(),
        case: case.clone(),
    };
    vectors()["series"].as_array().unwrap().iter().map(read).collect()
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors/statistics.json")).unwrap()
}

fn rows(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().unwrap().iter().map(floats).collect()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Six digits.
fn check(what: &str, ours: f64, theirs: f64) {
    let error = (ours - theirs).abs() / theirs.abs().max(1e-12);
    assert!(error < 5e-7, "{what}: {ours} is not {theirs}");
}
