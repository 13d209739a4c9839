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
    // In cycles of 2 GHz: mean 600.86, infinite variance, minimum 209, median 404, p99 3268.
    let gev = parse_plain("gev:363:100:0.65");
    check_near(gev.mean().unwrap(), 600.86, 1e-4);
    assert_eq!(gev.variance(), None);
    check_near(gev.quantile(0.0).unwrap(), 209.15, 1e-4);
    check_near(gev.quantile(0.5).unwrap(), 404.4, 1e-3);
    check_near(gev.quantile(0.99).unwrap(), 3268.0, 1e-3);
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
fn samples_follow_the_closed_quantiles() {
    for text in [
        "uni:600",
        "exp:1000",
        "pareto:0:214.476:0.348238",
        "pareto:5:100:2",
        "gev:30.7984:8.20449:0.078688",
        "gev:363:100:0.65",
        "gev:363:10:-0.3",
        "50+exp:1000",
    ] {
        let distribution = parse_plain(text);
        for p in [0.5, 0.9, 0.99] {
            let quantile = distribution.quantile(p).unwrap();
            check_below(&distribution, quantile, p);
        }
    }
}

#[test]
fn a_lognormal_has_its_median() {
    check_below(&parse_plain("lognorm:7:0.5"), 7f64.exp(), 0.5);
    // The normal distribution's 0.99 quantile is 2.326348.
    check_below(&parse_plain("lognorm:7:0.5"), (7.0 + 0.5 * 2.326_348f64).exp(), 0.99);
}

#[test]
fn a_gamma_of_shape_two_has_its_quantile() {
    // 1 - (1 + x) e^-x is 0.99 at x = 6.638352.
    check_below(&parse_plain("gamma:2:1000"), 6638.352, 0.99);
}

#[test]
fn zipf_gives_each_rank_its_probability() {
    let zipf = parse_plain("zipf:10:1");
    check_below(&zipf, 1.5, 1.0 / 2.928_968_254);
    check_below(&zipf, 2.5, 1.5 / 2.928_968_254);
    check_below(&zipf, 10.5, 1.0);
}

#[test]
fn zipf_moments_agree_with_direct_sums() {
    for exponent in [0.0, 0.5, 0.99, 1.0, 1.2, 2.0, 3.5] {
        let direct = |power: f64| -> f64 { (1..=100_000u32).map(|rank| f64::from(rank).powf(power - exponent)).sum() };
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
    let unit = if text.starts_with("zipf") || text.starts_with("lognorm") { Unit::Plain } else { Unit::Time };
    check_moments_of(&Distribution::parse(text, unit).unwrap(), mean, variance);
}

/// The closed moments to seven digits, and those of 400,000 samples within five standard errors
/// of the mean and, as fourth moments differ between forms, 5 % of the variance.
fn check_moments_of(distribution: &Distribution, mean: f64, variance: f64) {
    check_near(distribution.mean().unwrap(), mean, 1e-7);
    let closed = distribution.variance().unwrap();
    assert!((closed - variance).abs() <= 1e-6 * variance, "{closed} is not {variance}");
    let mut rng = generator(17, 0);
    let samples: Vec<f64> = (0..SAMPLES).map(|_| distribution.sample(&mut rng)).collect();
    let sampled_mean = mean_of(samples.iter().copied());
    let standard_error = (variance / SAMPLES as f64).sqrt();
    assert!((sampled_mean - mean).abs() <= 5.0 * standard_error + 1e-9 * mean, "{distribution}: {sampled_mean} is not {mean}");
    let sampled_variance = mean_of(samples.iter().map(|sample| (sample - mean).powi(2)));
    assert!((sampled_variance - variance).abs() <= 0.05 * variance, "{distribution}: {sampled_variance} is not {variance}");
}

/// The share of samples below `value` is `p` within five standard errors.
fn check_below(distribution: &Distribution, value: f64, p: f64) {
    let mut rng = generator(23, 0);
    let below = (0..SAMPLES).filter(|_| distribution.sample(&mut rng) <= value).count();
    let share = below as f64 / SAMPLES as f64;
    let standard_error = (p * (1.0 - p) / SAMPLES as f64).sqrt();
    assert!((share - p).abs() <= 5.0 * standard_error, "{distribution}: {share} of samples are below {value}, not {p}");
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
        (value(), value(), 0.0..=1.0).prop_map(|(a, b, probability)| Form::Bimodal { values: [a, b], probability }),
        ([value(), value(), value()], 0.0..=1.0, 0.0..=1.0)
            .prop_map(|(values, p, q)| { Form::Trimodal { values, probabilities: [p, (1.0 - p) * q] } }),
        (-41.0..41.0, 0.0..20.0).prop_map(|(mu, sigma)| Form::LogNormal { mu, sigma }),
        (0.001..1e9, scale()).prop_map(|(shape, scale)| Form::Gamma { shape, scale }),
        (value(), scale(), shape()).prop_map(|(location, scale, shape)| Form::Pareto { location, scale, shape }),
        (value(), scale(), shape()).prop_map(|(location, scale, shape)| Form::ExtremeValue { location, scale, shape }),
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
            for p in [0.0, 0.5, 1.0] {
                let quantile = distribution.quantile(p).unwrap_or(0.0);
                prop_assert!(quantile >= 0.0, "{} at {}: {}", distribution, p, quantile);
            }
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
