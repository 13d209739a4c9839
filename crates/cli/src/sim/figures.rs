//! Figures of sojourn times over seeds, for JSON and for people.

use serde_json::{Map, Value, json};
pub(super) use tailcut_experiments::cores::{NAMES, estimates};
use tailcut_sim::sojourn::Estimate;

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
