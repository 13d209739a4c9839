//! Functions that neither the standard library nor `libm` has.

use std::f64::consts::{PI, SQRT_2};

/// (e^(shape y) - 1) / shape, whose limit at shape 0 is y.
pub(super) fn box_cox(y: f64, shape: f64) -> f64 {
    if shape == 0.0 {
        return y;
    }
    (shape * y).exp_m1() / shape
}

/// ln(1 + shape z) / shape, which inverts [`box_cox`]; infinite on either side of where that ends.
pub(super) fn box_cox_inverse(z: f64, shape: f64) -> f64 {
    if shape == 0.0 {
        return z;
    }
    // The logarithm of what is not positive is a number no more.
    (shape * z).max(-1.0).ln_1p() / shape
}

/// The probability that a standard normal variable exceeds `z`.
pub(super) fn normal_tail(z: f64) -> f64 {
    libm::erfc(z / SQRT_2) / 2.0
}

/// The probabilities that a gamma variable of scale 1 is at most `x`, and above it: P(shape, x) and
/// Q(shape, x), to ten digits.
pub(super) fn gamma(shape: f64, x: f64) -> (f64, f64) {
    if x <= 0.0 || x == f64::INFINITY {
        return if x > 0.0 { (1.0, 0.0) } else { (0.0, 1.0) };
    }
    if shape >= SHAPE_LARGE {
        return gamma_large(shape, x);
    }
    let front = (shape * x.ln() - x - libm::lgamma(shape)).exp();
    if x < shape + 1.0 {
        // The power series, DLMF 8.11.4.
        let (mut term, mut sum, mut at) = (1.0 / shape, 0.0, shape);
        while sum + term != sum {
            sum += term;
            at += 1.0;
            term *= x / at;
        }
        let below = (front * sum).min(1.0);
        return (below, 1.0 - below);
    }
    let above = front * gamma_fraction(shape, x);
    (1.0 - above, above)
}

/// The continued fraction of Q(shape, x) Gamma(shape) e^x x^-shape, DLMF 8.9.2 in its even part, by
/// Lentz's method (Press et al., Numerical Recipes, section 6.2), for x above shape + 1.
fn gamma_fraction(shape: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - shape;
    let mut c = f64::INFINITY;
    let mut d = 1.0 / b;
    let mut fraction = d;
    for step in 1..=STEPS_MAX {
        let step = f64::from(step);
        let a = -step * (step - shape);
        b += 2.0;
        d = 1.0 / (a * d + b);
        c = b + a / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < 2.0 * f64::EPSILON {
            break;
        }
    }
    fraction
}

/// Temme's uniform expansion, DLMF 8.12.3 to 8.12.10, to the first of its terms: what is left out
/// is below 1e-3 shape^-1.5, and no series would settle as fast.
fn gamma_large(shape: f64, x: f64) -> (f64, f64) {
    let deviation = x / shape - 1.0;
    let eta = (2.0 * (deviation - deviation.ln_1p())).sqrt().copysign(deviation);
    let deviations = eta * shape.sqrt();
    // The Taylor series of c0 at 0; far from it the exponential leaves nothing.
    let c0 = -1.0 / 3.0 + eta * (1.0 / 12.0 - eta * (2.0 / 135.0));
    let correction = c0 * (-shape * eta * eta / 2.0).exp() / (2.0 * PI * shape).sqrt();
    (normal_tail(-deviations) - correction, normal_tail(deviations) + correction)
}

/// The sum of r^-exponent over the ranks 1 to `ranks`.
pub(super) fn power_sum(ranks: u64, exponent: f64) -> f64 {
    let head = ranks.min(HEAD_RANKS);
    let sum: f64 = (1..=head).map(|rank| (rank as f64).powf(-exponent)).sum();
    sum + power_sum_above(head, ranks, exponent)
}

/// The sum of r^-exponent over the ranks above `from` up to `to`, by Euler and Maclaurin. From
/// [`HEAD_RANKS`] on the first neglected term is below 1e-12 of what all ranks add up to.
pub(super) fn power_sum_above(from: u64, to: u64, exponent: f64) -> f64 {
    if from >= to {
        return 0.0;
    }
    let (from, to) = (from as f64, to as f64);
    let term = |rank: f64| rank.powf(-exponent);
    let log_ratio = (to / from).ln();
    let integral = from * term(from) * box_cox(log_ratio, 1.0 - exponent);
    let slope = |rank: f64| -exponent * term(rank) / rank;
    integral + (term(to) - term(from)) / 2.0 + (slope(to) - slope(from)) / 12.0
}

/// The ranks whose powers are added one by one.
pub(super) const HEAD_RANKS: u64 = 1000;
/// From here the power series needs thousands of terms and its factor loses digits.
const SHAPE_LARGE: f64 = 1e5;
/// More than the continued fraction takes for any shape below that.
const STEPS_MAX: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_incomplete_gamma_function_has_its_known_values() {
        // Q(shape, x) by 40-digit arithmetic, on each side of where the method changes.
        for (shape, x, above) in [
            (0.001, 1e-300, 0.498_523_801_989_113_4),
            (0.5, 0.1, 0.654_720_846_018_577),
            (0.5, 3.0, 0.014_305_878_435_429_64),
            (2.0, 6.638_352, 0.010_000_000_590_921_8),
            (4.0, 1.0, 0.981_011_843_123_846_2),
            (4.0, 12.0, 0.002_291_791_207_791_422),
            (100.0, 80.0, 0.982_891_686_964_867),
            (100.0, 140.0, 0.000_161_057_174_712_555_86),
            (99_999.0, 99_999.0, 0.499_579_475_787_008),
            (99_999.0, 101_000.0, 0.000_799_722_205_250_691_6),
            (100_000.0, 100_000.0, 0.499_579_477_889_634_8),
            (100_000.0, 101_000.0, 0.000_808_421_512_925_590_7),
            (100_000.0, 99_000.0, 0.999_242_580_078_825_2),
        ] {
            let (p, q) = gamma(shape, x);
            assert!((q - above).abs() < 1e-10, "Q({shape}, {x}) is {q}, not {above}");
            assert!(
                (p - (1.0 - above)).abs() < 1e-10,
                "P({shape}, {x}) is {p}, not {}",
                1.0 - above
            );
        }
    }

    #[test]
    fn the_ends_of_the_incomplete_gamma_function_are_certain() {
        for shape in [0.001, 1.0, 1e9] {
            assert_eq!((gamma(shape, 0.0), gamma(shape, f64::INFINITY)), ((0.0, 1.0), (1.0, 0.0)));
        }
    }

    #[test]
    fn the_inverse_of_box_and_cox_ends_where_the_shape_does() {
        assert_eq!(box_cox_inverse(-2.0, 0.5), f64::NEG_INFINITY);
        assert_eq!(box_cox_inverse(3.0, -0.5), f64::INFINITY);
        assert_eq!(box_cox_inverse(1.5, 0.0), 1.5);
        assert!((box_cox_inverse(box_cox(0.7, 0.3), 0.3) - 0.7).abs() < 1e-15);
    }
}
