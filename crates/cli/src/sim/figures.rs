//! Figures of sojourn times over seeds, for JSON and for people.

use serde_json::{Map, Value};
pub(super) use tailcut_experiments::cores::{NAMES, estimates};
use tailcut_sim::sojourn::Estimate;

/// The values under their names, each times `scale`.
pub(super) fn values_json(estimates: &[Estimate; 5], scale: f64) -> Value {
    named(estimates.map(|estimate| estimate.value * scale))
}

/// The standard errors under their names, each times `scale`; null for a single seed.
pub(super) fn errors_json(estimates: &[Estimate; 5], scale: f64) -> Value {
    named(estimates.map(|estimate| estimate.standard_error.map(|error| error * scale)))
}

/// Values under the names of figures; what is not finite is null.
pub(super) fn named(values: [impl Into<Value>; 5]) -> Value {
    let values = values.map(Into::into);
    NAMES.iter().map(|name| (*name).to_owned()).zip(values).collect::<Map<_, _>>().into()
}
