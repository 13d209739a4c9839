//! The highest load that keeps a limit.

use anyhow::Result;

/// The highest load of (0, 1) up to which `keeps` holds, by bisection to 0.0005. Where all loads
/// see the same requests, nearer together, percentiles grow with the load, and so there is one such
/// load.
pub(super) fn highest_load(keeps: impl FnMut(f64) -> Result<bool>) -> Result<f64> {
    highest_load_between((0.0, 1.0), keeps)
}

/// As [`highest_load`], between two loads; near one of them where it is not between them.
pub(super) fn highest_load_between(
    (mut low, mut high): (f64, f64),
    mut keeps: impl FnMut(f64) -> Result<bool>,
) -> Result<f64> {
    while high - low > LOAD_STEP {
        let load = f64::midpoint(low, high);
        *(if keeps(load)? { &mut low } else { &mut high }) = load;
    }
    Ok(f64::midpoint(low, high))
}

const LOAD_STEP: f64 = 0.0005;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_load_is_found() {
        // The p99 of M/M/1 is ln(100) / (1 - load) mean services.
        let found = highest_load(|load| Ok(100f64.ln() / (1.0 - load) <= 10.0)).unwrap();
        assert!((found - (1.0 - 100f64.ln() / 10.0)).abs() < LOAD_STEP, "{found}");
    }
}
