//! The augmented Dickey-Fuller test: does the level of a series wander, or does it return?
//!
//! With a constant, the number of lags by Akaike's criterion over a common sample, and MacKinnon's
//! approximate p-values (1994, with his tables of 2010), as statsmodels' `adfuller` does it. A
//! small p-value means that the level returns: stationary.
//!
//! Invariant: the regression is by orthogonal columns, whose one sweep answers for every number of
//! lags.

use super::reference::normal_cdf;

/// Result of the test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DickeyFuller {
    /// The t statistic of the level's coefficient; very negative where the level returns.
    pub statistic: f64,
    /// Probability that a series with a wandering level shows a statistic as low.
    pub p_value: f64,
    /// Lagged differences in the regression.
    pub lags: usize,
    /// Observations in the regression.
    pub observations: usize,
}

/// Tests `values`, which follow each other in time. `None` where they are constant, follow a rule
/// without an error, or are fewer than [`VALUES_MIN`].
pub fn dickey_fuller(values: &[f64]) -> Option<DickeyFuller> {
    if values.len() < VALUES_MIN {
        return None;
    }
    let count = values.len() as f64;
    // Schwert's rule (1989), and never more than the values carry.
    let lag_max = ((12.0 * (count / 100.0).powf(0.25)).ceil() as usize).min(values.len() / 2 - 2);
    let all = Regression::new(values, lag_max)?;
    let lags = all.best_lags();
    let best = Regression::new(values, lags)?;
    let statistic = best.level_t()?;
    Some(DickeyFuller {
        statistic,
        p_value: mackinnon_p(statistic),
        lags,
        observations: best.observations,
    })
}

/// The differences on a constant, on differences before them, and on the level.
struct Regression {
    observations: usize,
    /// Residual sum of squares of the differences after the constant, the level, and each further
    /// lag.
    residuals: Vec<f64>,
    /// The coefficient of the level and its column's length where all other columns are taken out
    /// first.
    level: (f64, f64),
}

impl Regression {
    /// `None` where a column follows from the others.
    fn new(values: &[f64], lags: usize) -> Option<Self> {
        let differences: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let observations = differences.len() - lags;
        let target = &differences[lags..];
        let constant = vec![1.0; observations];
        let level = values[lags..values.len() - 1].to_vec();
        let lagged =
            (1..=lags).map(|lag| differences[lags - lag..differences.len() - lag].to_vec());
        // Nested models in the order of the search: constant, level, lags.
        let nested: Vec<_> =
            [constant.clone(), level.clone()].into_iter().chain(lagged.clone()).collect();
        let mut residuals = Vec::with_capacity(lags + 1);
        let mut rest = target.to_vec();
        for (index, column) in orthonormal(nested)?.iter().enumerate() {
            take_out(&mut rest, column);
            if index > 0 {
                residuals.push(dot(&rest, &rest));
            }
        }
        // The level comes last to tell its coefficient alone.
        let last: Vec<_> =
            std::iter::once(constant).chain(lagged).chain(std::iter::once(level.clone())).collect();
        let orthogonal = orthonormal(last)?;
        let column = &orthogonal[lags + 1];
        let length = dot(column, &level);
        Some(Self { observations, residuals, level: (dot(column, target) / length, length) })
    }

    /// The number of lags with the smallest criterion; of equal ones the smallest.
    fn best_lags(&self) -> usize {
        let count = self.observations as f64;
        let criterion =
            |lags: usize| count * (self.residuals[lags] / count).ln() + 2.0 * (lags as f64 + 2.0);
        (0..self.residuals.len())
            .min_by(|&a, &b| criterion(a).total_cmp(&criterion(b)))
            .unwrap_or(0)
    }

    /// The t statistic of the level's coefficient.
    fn level_t(&self) -> Option<f64> {
        let columns = self.residuals.len() + 1;
        let freedom = self.observations.checked_sub(columns).filter(|&freedom| freedom > 0)?;
        let (coefficient, length) = self.level;
        let variance = self.residuals[self.residuals.len() - 1] / freedom as f64;
        let t = coefficient * length / variance.sqrt();
        t.is_finite().then_some(t)
    }
}

/// Gram and Schmidt's columns, each taken out twice so that rounding leaves nothing behind. `None`
/// where a column follows from those before it.
fn orthonormal(columns: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let mut done: Vec<Vec<f64>> = Vec::with_capacity(columns.len());
    for mut column in columns {
        let before = dot(&column, &column);
        for _ in 0..2 {
            done.iter().for_each(|other| take_out(&mut column, other));
        }
        let length = dot(&column, &column);
        if length <= before * DEPENDENT || length == 0.0 {
            return None;
        }
        let scale = length.sqrt().recip();
        column.iter_mut().for_each(|value| *value *= scale);
        done.push(column);
    }
    Some(done)
}

fn take_out(rest: &mut [f64], unit: &[f64]) {
    let along = dot(rest, unit);
    rest.iter_mut().zip(unit).for_each(|(value, part)| *value -= along * part);
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// MacKinnon (1994), table 3, one series with a constant.
fn mackinnon_p(statistic: f64) -> f64 {
    if statistic > P_ONE_ABOVE {
        return 1.0;
    }
    if statistic < P_ZERO_BELOW {
        return 0.0;
    }
    let coefficients: &[f64] = if statistic <= P_SMALL_UNTIL { &P_SMALL } else { &P_LARGE };
    normal_cdf(
        coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * statistic + coefficient),
    )
}

/// Fewer values than this leave no freedom to test with.
pub const VALUES_MIN: usize = 20;
/// Residue of a column's square where rounding alone is left.
const DEPENDENT: f64 = 1e-24;
const P_ONE_ABOVE: f64 = 2.74;
const P_ZERO_BELOW: f64 = -18.83;
const P_SMALL_UNTIL: f64 = -1.61;
const P_SMALL: [f64; 3] = [2.1659, 1.4412, 0.038_269];
const P_LARGE: [f64; 4] = [1.7339, 0.932_02, -0.127_45, -0.010_368];
