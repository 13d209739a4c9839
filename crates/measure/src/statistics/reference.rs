//! The distributions that tests are judged by: the normal, Student's t and the beta.
//!
//! Invariant: probabilities are good to ten digits, and a quantile to twelve of what its
//! probability allows.

use std::f64::consts::SQRT_2;

/// The probability that a standard normal variable is at most `z`.
pub fn normal_cdf(z: f64) -> f64 {
    libm::erfc(-z / SQRT_2) / 2.0
}

/// The probability that Student's t with `freedom` degrees of freedom is further from zero than
/// `t`: a two-sided p-value.
pub fn student_beyond(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    beta_cdf(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// Bound that Student's t with `freedom` degrees of freedom stays within, on both sides of zero,
/// with probability `confidence`.
pub fn student_within(confidence: f64, freedom: f64) -> f64 {
    let beyond = 1.0 - confidence;
    let mut high = 1.0;
    while student_beyond(high, freedom) > beyond && high < STUDENT_MAX {
        high *= 2.0;
    }
    bisect(0.0, high, |t| student_beyond(t, freedom) <= beyond)
}

/// The probability that a beta variable with parameters `a` and `b` (above zero) is at most `x`:
/// the regularised incomplete beta function.
pub fn beta_cdf(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    let front =
        (a * x.ln() + b * (-x).ln_1p() + libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b))
            .exp();
    // The fraction settles fast only below the mean.
    if x < (a + 1.0) / (a + b + 2.0) {
        return front * beta_fraction(x, a, b) / a;
    }
    1.0 - front * beta_fraction(1.0 - x, b, a) / b
}

/// The value that a beta variable with parameters `a` and `b` stays at or below with probability
/// `p`.
pub fn beta_quantile(p: f64, a: f64, b: f64) -> f64 {
    bisect(0.0, 1.0, |x| beta_cdf(x, a, b) >= p)
}

/// The continued fraction of the incomplete beta function, DLMF 8.17.22, by Lentz's method.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    let safe = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / safe(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..=STEPS_MAX {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / safe(1.0 + term * d);
            c = safe(1.0 + term / c);
            fraction *= c * d;
        }
        if (fraction / before - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    fraction
}

/// The smallest number between `low` and `high` for which `reached` holds, as it does from there
/// on.
fn bisect(mut low: f64, mut high: f64, reached: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if reached(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// Beyond this Student's t has no probability that matters.
const STUDENT_MAX: f64 = 1e12;
/// More than any range here needs to reach the spacing of an `f64`.
const BISECTIONS: u32 = 100;
/// The fraction takes some sqrt(a + b) terms.
const STEPS_MAX: u32 = 100_000;
const TINY: f64 = 1e-300;
