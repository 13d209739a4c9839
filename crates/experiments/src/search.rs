//! The highest load that keeps a limit.

use anyhow::Result;

use super::effort::Effort;

/// The highest load of (0, 1) up to which `keeps` holds, by bisection. Where all loads see the same
/// requests, nearer together, percentiles grow with the load, and so there is one such load.
pub(super) fn highest_load(effort: Effort, keeps: impl FnMut(f64) -> Result<bool>) -> Result<f64> {
    highest_load_between(effort, (0.0, 1.0), keeps)
}

/// As [`highest_load`], between two loads; near one of them where it is not between them.
pub(super) fn highest_load_between(
    effort: Effort,
    (mut low, mut high): (f64, f64),
    mut keeps: impl FnMut(f64) -> Result<bool>,
) -> Result<f64> {
    // As much wider as the tolerance.
    let step = LOAD_STEP * effort.widening();
    while high - low > step {
        let load = f64::midpoint(low, high);
        *(if keeps(load)? { &mut low } else { &mut high }) = load;
    }
    Ok(f64::midpoint(low, high))
}

/// Step of a full reproduction.
const LOAD_STEP: f64 = 0.0005;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_load_is_found() {
        // The p99 of M/M/1 is ln(100) / (1 - load) mean services.
        for (effort, step) in [(Effort::full(1), 0.0005), (Effort::quick(1), 0.002)] {
            let keeps = |load| Ok(100f64.ln() / (1.0 - load) <= 10.0);
            let found = highest_load(effort, keeps).unwrap();
            assert!((found - (1.0 - 100f64.ln() / 10.0)).abs() < step, "{found}");
        }
    }
}
