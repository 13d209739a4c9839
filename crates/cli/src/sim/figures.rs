//! Figures of sojourn times over seeds, for JSON and for people.

use serde_json::{Map, Value, json};
use tailcut_sim::sojourn::{Estimate, Figures};

/// The names of a sojourn's figures, in the order in which they are shown.
pub(super) const NAMES: [&str; 5] = ["mean", "p50", "p90", "p99", "p999"];

/// The figures of each seed, put together: one [`Estimate`] for each of [`NAMES`].
pub(super) fn estimates(runs: &[Figures]) -> [Estimate; 5] {
    let each =
        |figure: fn(&Figures) -> f64| Estimate::of(&runs.iter().map(figure).collect::<Vec<_>>());
    [each(|f| f.mean), each(|f| f.p50), each(|f| f.p90), each(|f| f.p99), each(|f| f.p999)]
}

/// The values under their names, each times `scale`.
pub(super) fn values_json(estimates: &[Estimate; 5], scale: f64) -> Value {
    object(estimates.map(|estimate| json!(estimate.value * scale)))
}

/// The standard errors under their names, each times `scale`; null for a single seed.
pub(super) fn errors_json(estimates: &[Estimate; 5], scale: f64) -> Value {
    object(estimates.map(|estimate| json!(estimate.standard_error.map(|error| error * scale))))
}

fn object(values: [Value; 5]) -> Value {
    Value::Object(NAMES.iter().map(|name| (*name).to_owned()).zip(values).collect::<Map<_, _>>())
}
