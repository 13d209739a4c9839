//! The autocorrelation function of a series.
//!
//! Invariant: as in statsmodels' `acf`, every lag is divided by the same variance over all samples,
//! so that no value leaves
//! [-1, 1].

/// The autocorrelations at lags 0 to `lag_max`; 1 at lag 0. A constant series, and lags beyond its
/// length, have 0.
pub fn autocorrelation(samples: &[f32], lag_max: usize) -> Vec<f64> {
    let count = samples.len() as f64;
    let mean = samples.iter().map(|&sample| f64::from(sample)).sum::<f64>() / count;
    let centred: Vec<f64> = samples.iter().map(|&sample| f64::from(sample) - mean).collect();
    let at =
        |lag: usize| centred.iter().zip(centred.iter().skip(lag)).map(|(a, b)| a * b).sum::<f64>();
    let variance = at(0);
    let scaled = |lag: usize| if variance > 0.0 { at(lag) / variance } else { 0.0 };
    std::iter::once(1.0).chain((1..=lag_max).map(scaled)).collect()
}
