//! The distributions against their closed forms, and the grammar against itself.

use proptest::prelude::*;

use super::moments::{extreme_value_spread, mean_of};
use super::*;
use crate::generator::generator;

#[test]
fn fixed_has_its_moments() {
    check_moments("fixed:25us", 25_000.0, 0.0);
}

#[test]
fn uniform_has_its_moments() {
    check_moments("uni:600ns", 300.0, 30_000.0);
}

#[test]
fn exponential_has_its_moments() {
    check_moments("exp:1us", 1000.0, 1e6);
}

#[test]
fn bimodal_has_its_moments() {
    check_moments("bimodal:1us:10us:0.9", 1900.0, 0.09 * 81e6);
}

#[test]
fn trimodal_has_its_moments() {
    // Mean 0.5 + 1 + 20 = 21.5; second moment 0.5 + 5 + 2000 = 2005.5.
    check_moments("trimodal:1ns:5ns:100ns:0.5:0.3", 22.0, 0.5 + 7.5 + 2000.0 - 484.0);
}

#[test]
fn lognormal_has_its_moments() {
    // Mean e^(mu + s^2/2), variance (e^(s^2) - 1) mean^2, at mu 7 and s 0.5.
    check_moments("lognorm:7:0.5", 1_242.648_169, 438_584.796);
}

#[test]
fn gamma_has_its_moments() {
    check_moments("gamma:4:250ns", 1000.0, 250_000.0);
}

#[test]
fn generalised_pareto_has_its_moments() {
    // scale / (1 - shape) and scale^2 / ((1 - shape)^2 (1 - 2 shape)).
    check_moments("pareto:100ns:800ns:0.2", 1100.0, 1e6 / 0.6);
}

#[test]
fn pareto_of_shape_zero_is_exponential() {
    check_moments("pareto:0:1us:0", 1000.0, 1e6);
}

#[test]
fn pareto_of_negative_shape_is_bounded() {
    // Shape -1 is uniform on [0, scale].
    check_moments("pareto:0:600ns:-1", 300.0, 30_000.0);
}

#[test]
fn extreme_value_has_its_moments() {
    // Gamma(0.8) = 1.164229713725 and Gamma(0.6) = 1.489192248813.
    check_moments("gev:1us:100ns:0.2", 1_082.114_857, 33_440.336);
}

#[test]
fn extreme_value_of_shape_zero_is_gumbel() {
    check_moments("gev:1us:100ns:0", 1_057.721_566, 16_449.340_7);
}

#[test]
fn zipf_has_its_moments() {
    // H(10, 1) = 2.928968254: mean 10 / H, second moment 55 / H.
    check_moments("zipf:10:1", 3.414_171_521, 18.777_943_27 - 11.656_567_17);
}

#[test]
fn a_constant_shifts_the_mean_alone() {
    check_moments("300ns+exp:300ns", 600.0, 90_000.0);
}

#[test]
fn recorded_samples_have_their_moments() {
    let distribution = Distribution::empirical("a", vec![4.0, 1.0, 1.0], Unit::Plain).unwrap();
    check_moments_of(&distribution, 2.0, 2.0);
}

#[test]
fn the_service_time_of_rpcvalet_has_its_published_figures() {
    // In cycles of 2 GHz.
    let gev = parse_plain("gev:363:100:0.65");
    check_near(gev.mean().unwrap(), 600.86, 1e-4);
    assert_eq!(gev.variance(), None);
}

#[test]
fn moments_that_are_infinite_are_none() {
    for text in ["pareto:0:1:1", "gev:100:1:1.5"] {
        assert_eq!(parse_plain(text).mean(), None, "{text}");
        assert_eq!(parse_plain(text).variance(), None, "{text}");
    }
    assert_eq!(parse_plain("pareto:0:1:0.5").variance(), None);
}

#[test]
fn moments_are_continuous_where_the_shape_is_small() {
    for shape in ["0.0000001", "0.00000009", "-0.00000011", "0"] {
        let gev = parse_plain(&format!("gev:100:1:{shape}"));
        check_near(gev.mean().unwrap(), 100.577_215_7, 1e-8);
        check_near(gev.variance().unwrap(), 1.644_934, 1e-5);
    }
}

#[test]
fn the_variance_of_a_small_shape_joins_its_series() {
    let [below, above] = [0.000_099_999, 0.000_100_001].map(extreme_value_spread);
    check_near(above, below, 1e-6);
}

#[test]
fn samples_follow_the_tail_of_their_form() {
    for distribution in every_form() {
        let mut rng = generator(23, 0);
        let samples: Vec<f64> = (0..SAMPLES).map(|_| distribution.sample(&mut rng)).collect();
        for p in PROBABILITIES {
            let quantile = distribution.quantile(p).unwrap();
            let expected = distribution.tail(quantile);
            let share =
                samples.iter().filter(|&&sample| sample > quantile).count() as f64 / SAMPLES as f64;
            let standard_error = (expected * (1.0 - expected) / SAMPLES as f64).sqrt();
            let error = (share - expected).abs();
            assert!(
                error <= 5.0 * standard_error,
                "{distribution}: {share} of samples exceed {quantile}, not {expected}"
            );
        }
    }
}

#[test]
fn a_quantile_is_the_smallest_value_that_is_exceeded_so_seldom() {
    for distribution in every_form() {
        for p in PROBABILITIES {
            check_inverse(&distribution, p);
        }
    }
}

#[test]
fn quantiles_have_their_known_values() {
    // ln 2 and ln 100; the normal quantiles 1.281552 and 2.326348; gamma's by 40-digit arithmetic;
    // GEV as published, to the cycle.
    for (text, p, value, relative) in [
        ("exp:1000", 0.5, 693.147_180_56, 1e-11),
        ("300+exp:1000", 0.99, 4_905.170_185_988, 1e-11),
        ("lognorm:7:0.5", 0.5, 1_096.633_158_428, 1e-11),
        ("lognorm:7:0.5", 0.9, (7.0 + 0.5 * 1.281_551_565_544_600_5f64).exp(), 1e-13),
        ("lognorm:7:0.5", 0.99, (7.0 + 0.5 * 2.326_347_874_040_841f64).exp(), 1e-13),
        ("lognorm:7:0.5", 1e-12, (7.0 - 0.5 * 7.034_483_825_301_132f64).exp(), 1e-12),
        ("gamma:0.5:1000", 0.01, 7.854_392_895_485_1e-2, 1e-12),
        ("gamma:2:1000", 0.99, 6_638.352_067_993_81, 1e-12),
        ("gamma:4:250", 0.5, 918.015_187_212_725, 1e-12),
        ("gamma:4:250", 0.999, 3_265.560_194_797_025, 1e-12),
        ("gamma:100:1", 0.01, 78.215_983_053_795_8, 1e-12),
        ("pareto:100:800:0.2", 0.5, 100.0 + 4000.0 * (2f64.powf(0.2) - 1.0), 1e-12),
        ("gev:363:100:0.65", 0.0, 209.0, 1e-3),
        ("gev:363:100:0.65", 0.5, 404.0, 1e-3),
        ("gev:363:100:0.65", 0.99, 3268.0, 3e-4),
        ("gev:363:100:0.65", 0.999, 1.39e4, 4e-3),
        ("600+gev:363:100:0.65", 0.99, 3868.0, 3e-4),
        ("zipf:10:1", 0.6, 3.0, 0.0),
    ] {
        check_near(parse_plain(text).quantile(p).unwrap(), value, relative);
    }
}

#[test]
fn tails_have_their_known_values() {
    for (text, x, tail) in [
        ("fixed:5", 4.999, 1.0),
        ("fixed:5", 5.0, 0.0),
        ("uni:600", 150.0, 0.75),
        ("uni:600", 700.0, 0.0),
        ("300+exp:1000", 299.0, 1.0),
        ("300+exp:1000", 2300.0, (-2f64).exp()),
        ("bimodal:1:10:0.75", 1.0, 0.25),
        ("bimodal:1:10:0.75", 10.0, 0.0),
        ("trimodal:1:5:100:0.5:0.25", 5.0, 0.25),
        ("lognorm:0:1", 1.0, 0.5),
        ("lognorm:2:0", 7.389_056_098_930, 1.0),
        ("lognorm:2:0", 7.389_056_098_931, 0.0),
        ("gamma:4:250", 3000.0, 0.002_291_791_207_791_422),
        ("gamma:1:1000", 2000.0, (-2f64).exp()),
        ("pareto:0:1:-1", 0.25, 0.75),
        ("pareto:0:1:-1", 2.0, 0.0),
        ("pareto:10:1:0.5", 5.0, 1.0),
        ("gev:1000:100:0", 1000.0, 1.0 - (-1f64).exp()),
        ("gev:363:100:0.65", 100.0, 1.0),
        ("gev:363:10:-0.3", 1000.0, 0.0),
        ("zipf:10:1", 0.5, 1.0),
        ("zipf:10:1", 2.5, 1.0 - 1.5 / 2.928_968_253_968_254),
        ("zipf:10:1", 10.0, 0.0),
        ("exp:1000", -1.0, 1.0),
        ("exp:1000", f64::INFINITY, 0.0),
    ] {
        let value = parse_plain(text).tail(x);
        assert!((value - tail).abs() <= 1e-12, "{text} at {x}: {value} is not {tail}");
    }
}

#[test]
fn the_tail_of_recorded_samples_counts_them() {
    let distribution = Distribution::empirical("a", vec![1.0, 1.0, 4.0, 6.0], Unit::Plain).unwrap();
    assert_eq!([0.5, 1.0, 4.0, 6.0].map(|x| distribution.tail(x)), [1.0, 0.5, 0.25, 0.0]);
    assert_eq!(
        [0.0, 0.5, 0.51, 1.0].map(|p| distribution.quantile(p).unwrap()),
        [1.0, 1.0, 4.0, 6.0]
    );
}

#[test]
fn the_tail_of_zipf_goes_on_beyond_the_ranks_that_are_added_one_by_one() {
    let zipf = parse_plain("zipf:100000:0.99");
    let power = |rank: u32| f64::from(rank).powf(-0.99);
    let total: f64 = (1..=100_000).map(power).sum();
    for rank in [1, 999, 1000, 1001, 50_000, 99_999] {
        let above: f64 = (rank + 1..=100_000).map(power).sum();
        check_near(zipf.tail(f64::from(rank)), above / total, 1e-9);
    }
}

#[test]
fn zipf_moments_agree_with_direct_sums() {
    for exponent in [0.0, 0.5, 0.99, 1.0, 1.2, 2.0, 3.5] {
        let direct = |power: f64| -> f64 {
            (1..=100_000u32).map(|rank| f64::from(rank).powf(power - exponent)).sum()
        };
        let form = Form::Zipf { ranks: 100_000, exponent };
        let zipf = Distribution::new(form, Unit::Plain).unwrap();
        let mean = direct(1.0) / direct(0.0);
        check_near(zipf.mean().unwrap(), mean, 1e-10);
        let variance = direct(2.0) / direct(0.0) - mean * mean;
        check_near(zipf.variance().unwrap(), variance, 1e-8);
    }
}

#[test]
fn the_points_of_a_mixture_are_its_quantiles() {
    let bimodal = parse_plain("bimodal:10:1:0.1");
    assert_eq!(bimodal.quantile(0.9), Some(1.0));
    assert_eq!(bimodal.quantile(0.91), Some(10.0));
    assert_eq!(parse_plain("trimodal:1:2:3:0.9:0.1").quantile(1.0), Some(2.0));
}

#[test]
fn a_quantile_outside_of_probabilities_is_none() {
    let exponential = parse_plain("exp:1");
    assert_eq!(exponential.quantile(-0.1), None);
    assert_eq!(exponential.quantile(f64::NAN), None);
    assert_eq!(exponential.quantile(1.0), Some(f64::INFINITY));
}

#[test]
fn units_are_read_and_written() {
    for (text, written) in [
        ("exp:1000ns", "exp:1us"),
        ("0.3us+exp:300ns", "300ns+exp:300ns"),
        ("bimodal:1ms:2500us:0.25", "bimodal:1ms:2500us:0.25"),
        ("gev:-5ns:1ns:-0.5", "refused"),
        ("lognorm:9.2:0.5", "lognorm:9.2:0.5"),
        ("fixed:0", "fixed:0ns"),
    ] {
        let read = Distribution::parse(text, Unit::Time);
        let read = read.map_or("refused".to_owned(), |distribution| distribution.to_string());
        assert_eq!(read, written);
    }
}

#[test]
fn parameters_that_could_not_work_are_refused_with_the_reason() {
    for (text, reason) in [
        ("exp", "is no distribution; the forms are"),
        ("expo:1", "\"expo\" is no distribution"),
        ("exp:1:2", "exp:MEAN takes 1 parameters, but 2 are given"),
        ("exp:0", "the mean of exp must be above 0"),
        ("exp:-1", "the mean of exp must be above 0"),
        ("exp:NaN", "is not a number"),
        ("uni:0", "the maximum of uni must be above 0"),
        ("fixed:-1", "the value of fixed must be 0 or more"),
        ("bimodal:1:2:1.5", "the probability of bimodal must be from 0 to 1"),
        ("trimodal:1:2:3:0.6:0.6", "the sum of trimodal's P1 and P2"),
        ("lognorm:0:-1", "the sigma of lognorm"),
        ("lognorm:800:1", "the mu of lognorm"),
        ("gamma:0:1", "the shape of gamma"),
        ("gamma:1:0", "the scale of gamma"),
        ("pareto:-1:1:0", "the location of pareto"),
        ("pareto:0:0:0", "the scale of pareto"),
        ("pareto:0:1:100", "the shape of pareto must be from -10 to 10"),
        ("gev:0:1:0.1", "gev would be negative with probability"),
        ("zipf:0:1", "the ranks of zipf must be a whole number"),
        ("zipf:1.5:1", "the ranks of zipf must be a whole number"),
        ("zipf:10:-1", "the exponent of zipf"),
        ("-5+exp:1", "the constant must be 0 or more"),
        ("1+2+exp:1", "\"2+exp\" is no distribution"),
        ("file:a", "the file form needs a loader"),
    ] {
        let message = Distribution::parse(text, Unit::Plain).unwrap_err().to_string();
        assert!(message.contains(reason), "{text}: {message}");
    }
}

#[test]
fn a_time_without_unit_is_refused() {
    let message = Distribution::parse("exp:25", Unit::Time).unwrap_err().to_string();
    assert!(message.contains("ns, us, ms or s"), "{message}");
}

#[test]
fn a_constant_may_lift_an_extreme_value_above_zero() {
    assert!(Distribution::parse("gev:0:1:0.1", Unit::Plain).is_err());
    assert!(Distribution::parse("20+gev:0:1:0.1", Unit::Plain).is_ok());
}

#[test]
fn a_loader_gives_the_samples_of_a_file() {
    let loaded = Distribution::parse_with("5us+file:a+b:c", Unit::Time, |path| {
        assert_eq!(path, "a+b:c");
        Ok(vec![3.0, 1.0])
    })
    .unwrap();
    assert_eq!(loaded.to_string(), "5us+file:a+b:c");
    assert_eq!(loaded.mean(), Some(5002.0));
    assert_eq!(loaded.quantile(0.5), Some(5001.0));
}

#[test]
fn what_a_loader_says_is_passed_on() {
    let refused = Distribution::parse_with("file:x", Unit::Time, |_| Err("it is gone".to_owned()));
    let message = refused.unwrap_err().to_string();
    assert_eq!(message, "cannot load the samples of \"x\": it is gone");
}

#[test]
fn samples_that_are_none_or_not_finite_are_refused() {
    for samples in [vec![], vec![f64::NAN], vec![1.0, f64::INFINITY], vec![-1.0]] {
        assert!(Distribution::empirical("x", samples, Unit::Plain).is_err());
    }
}

#[test]
fn whole_samples_are_rounded() {
    let fixed = parse_plain("fixed:2.5");
    assert_eq!(fixed.sample_whole(&mut generator(1, 0)), 3);
}

fn parse_plain(text: &str) -> Distribution {
    Distribution::parse(text, Unit::Plain).unwrap()
}

fn check_near(value: f64, expected: f64, relative: f64) {
    let error = (value - expected).abs();
    assert!(error <= relative * expected.abs(), "{value} is not {expected}");
}

fn check_moments(text: &str, mean: f64, variance: f64) {
    let unit = if text.starts_with("zipf") || text.starts_with("lognorm") {
        Unit::Plain
    } else {
        Unit::Time
    };
    check_moments_of(&Distribution::parse(text, unit).unwrap(), mean, variance);
}

/// The closed moments to seven digits, and those of 400,000 samples within five standard errors, of
/// which that of the variance follows from the fourth moment of the samples.
fn check_moments_of(distribution: &Distribution, mean: f64, variance: f64) {
    check_near(distribution.mean().unwrap(), mean, 1e-7);
    let closed = distribution.variance().unwrap();
    assert!((closed - variance).abs() <= 1e-6 * variance, "{closed} is not {variance}");
    let mut rng = generator(17, 0);
    let samples: Vec<f64> = (0..SAMPLES).map(|_| distribution.sample(&mut rng)).collect();
    let sampled_mean = mean_of(samples.iter().copied());
    let standard_error = (variance / SAMPLES as f64).sqrt();
    assert!(
        (sampled_mean - mean).abs() <= 5.0 * standard_error + 1e-9 * mean,
        "{distribution}: {sampled_mean} is not {mean}"
    );
    let central = |power| mean_of(samples.iter().map(|sample| (sample - mean).powi(power)));
    let (sampled_variance, fourth) = (central(2), central(4));
    let standard_error = ((fourth - variance * variance).max(0.0) / SAMPLES as f64).sqrt();
    let error = (sampled_variance - variance).abs();
    assert!(
        error <= 5.0 * standard_error + 1e-6 * variance,
        "{distribution}: {sampled_variance} is not {variance}"
    );
}

/// Just above the quantile of `p` the tail is at most 1 - p, just below it is at least that.
fn check_inverse(distribution: &Distribution, p: f64) {
    let quantile = distribution.quantile(p).unwrap();
    let [below, above] =
        [1.0 - 1e-14, 1.0 + 1e-14].map(|factor| distribution.tail(quantile * factor));
    assert!(above <= 1.0 - p + 1e-10, "{distribution} at {p}: {above} is above {quantile}");
    assert!(
        quantile == 0.0 || below >= 1.0 - p - 1e-10,
        "{distribution} at {p}: {below} is above less than {quantile}"
    );
}

/// At least one of each form, with the ends of what its shape may be.
fn every_form() -> Vec<Distribution> {
    let recorded = vec![3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
    let mut distributions = vec![Distribution::empirical("a", recorded, Unit::Plain).unwrap()];
    distributions.extend(
        [
            "fixed:25000",
            "uni:600",
            "exp:1000",
            "bimodal:1000:10000:0.9",
            "trimodal:1:5:100:0.5:0.3",
            "lognorm:7:0.5",
            "lognorm:0:20",
            "gamma:4:250",
            "gamma:0.5:1000",
            "gamma:200000:1",
            "pareto:0:214.476:0.348238",
            "pareto:5:100:2",
            "pareto:5:100:0",
            "pareto:5:100:-0.5",
            "gev:30.7984:8.20449:0.078688",
            "gev:363:100:0.65",
            "gev:1000:100:0",
            "gev:363:10:-0.3",
            "zipf:10:1",
            "zipf:100000:0.99",
            "300+exp:300",
            "600+gev:363:100:0.65",
        ]
        .map(parse_plain),
    );
    distributions
}

fn any_form() -> impl Strategy<Value = Form> {
    let value = || prop_oneof![0.0..1e6, (0u64..1 << 50).prop_map(|whole| whole as f64)];
    let scale = || value().prop_map(|value| value + 0.001);
    let shape = || prop_oneof![Just(0.0), -10.0..10.0, -1e-6..1e-6];
    let exponent = || prop_oneof![Just(1.0), 0.0..100.0, 0.999_999..1.000_001];
    prop_oneof![
        value().prop_map(|value| Form::Fixed { value }),
        scale().prop_map(|max| Form::Uniform { max }),
        scale().prop_map(|mean| Form::Exponential { mean }),
        (value(), value(), 0.0..=1.0)
            .prop_map(|(a, b, probability)| Form::Bimodal { values: [a, b], probability }),
        ([value(), value(), value()], 0.0..=1.0, 0.0..=1.0).prop_map(|(values, p, q)| {
            Form::Trimodal { values, probabilities: [p, (1.0 - p) * q] }
        }),
        (-41.0..41.0, 0.0..20.0).prop_map(|(mu, sigma)| Form::LogNormal { mu, sigma }),
        (0.001..1e9, scale()).prop_map(|(shape, scale)| Form::Gamma { shape, scale }),
        (value(), scale(), shape()).prop_map(|(location, scale, shape)| Form::Pareto {
            location,
            scale,
            shape
        }),
        (value(), scale(), shape()).prop_map(|(location, scale, shape)| Form::ExtremeValue {
            location,
            scale,
            shape
        }),
        (1u64..=1 << 53, exponent()).prop_map(|(ranks, exponent)| Form::Zipf { ranks, exponent }),
        (1u64..=20, exponent()).prop_map(|(ranks, exponent)| Form::Zipf { ranks, exponent }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_reads_back(form in any_form(), offset in 0.0..1e6) {
        for unit in [Unit::Time, Unit::Size, Unit::Plain] {
            for offset in [0.0, offset] {
                if let Ok(distribution) = Distribution::with_offset(offset, form.clone(), unit) {
                    let text = distribution.to_string();
                    prop_assert_eq!(Distribution::parse(&text, unit), Ok(distribution));
                }
            }
        }
    }

    #[test]
    fn every_accepted_form_gives_finite_samples(form in any_form(), seed in any::<u64>()) {
        if let Ok(distribution) = Distribution::new(form, Unit::Plain) {
            let mut rng = generator(seed, 0);
            for _ in 0..100 {
                let sample = distribution.sample(&mut rng);
                prop_assert!(sample.is_finite() && sample >= 0.0, "{} gave {}", distribution, sample);
            }
            for moment in [distribution.mean(), distribution.variance()].into_iter().flatten() {
                prop_assert!(moment.is_finite() && moment >= 0.0, "{}: {}", distribution, moment);
            }
        }
    }

    #[test]
    fn every_accepted_form_has_quantiles_that_invert_its_tail(form in any_form(), p in 0.001..0.999) {
        if let Ok(distribution) = Distribution::new(form, Unit::Plain) {
            check_inverse(&distribution, p);
            let ends = [0.0, p, 1.0].map(|p| distribution.quantile(p).unwrap());
            prop_assert!(ends.is_sorted() && ends[0] >= 0.0, "{}: {:?}", distribution, ends);
        }
    }

    #[test]
    fn no_text_panics(text in "[a-z]{3,8}(:[-0-9.a-z]{0,4}){0,5}") {
        for unit in [Unit::Time, Unit::Plain] {
            let _ = Distribution::parse(&text, unit);
        }
    }
}

const SAMPLES: usize = 400_000;
const PROBABILITIES: [f64; 5] = [0.1, 0.5, 0.9, 0.99, 0.999];
