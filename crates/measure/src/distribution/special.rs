//! Functions that neither the standard library nor `libm` has.

/// (e^(shape y) - 1) / shape, whose limit at shape 0 is y.
pub(super) fn box_cox(y: f64, shape: f64) -> f64 {
    if shape == 0.0 {
        return y;
    }
    (shape * y).exp_m1() / shape
}

/// The sum of r^-exponent over the ranks 1 to `ranks`: exact for the first thousand, then by
/// Euler and Maclaurin, whose first neglected term is below 1e-12 of the sum.
pub(super) fn power_sum(ranks: u64, exponent: f64) -> f64 {
    let term = |rank: f64| rank.powf(-exponent);
    let head: f64 = (1..=ranks.min(HEAD_RANKS)).map(|rank| term(rank as f64)).sum();
    if ranks <= HEAD_RANKS {
        return head;
    }
    let (from, to) = (HEAD_RANKS as f64, ranks as f64);
    let log_ratio = (to / from).ln();
    let integral = from * term(from) * box_cox(log_ratio, 1.0 - exponent);
    let slope = |rank: f64| -exponent * term(rank) / rank;
    head + integral + (term(to) - term(from)) / 2.0 + (slope(to) - slope(from)) / 12.0
}

const HEAD_RANKS: u64 = 1000;
