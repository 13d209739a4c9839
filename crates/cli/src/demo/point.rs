//! One point of the demonstration: what was measured there, beside what was predicted.

use serde_json::{Value, json};

use super::measurement::Measurement;
use super::plan::Point;
use super::predict::{self, Figures};

/// One point, measured and predicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PointResult {
    pub(super) point: Point,
    pub(super) measurement: Measurement,
    /// From the measurement; in units of the mean service time.
    pub(super) measured: Figures,
    pub(super) predicted: Figures,
}

impl PointResult {
    /// The measured p99 over the predicted one.
    pub(super) fn ratio(&self) -> f64 {
        self.measured.p99 / self.predicted.p99
    }

    /// True if the measured p99 is further from the prediction than chance explains.
    pub(super) fn departs(&self) -> bool {
        (self.ratio() - 1.0).abs() > DEPARTURE_MAX
    }

    /// Requests that have been answered, and how many were not.
    pub(super) fn samples(&self) -> String {
        let replied = self.measurement.counts.replied;
        match self.measurement.failed() {
            0 => replied.to_string(),
            failed => format!("{replied} ({failed} failed)"),
        }
    }

    /// The ratio, with a star where it departs.
    pub(super) fn marked_ratio(&self) -> String {
        format!("{:.2}{}", self.ratio(), if self.departs() { " *" } else { "" })
    }
}

/// A point for programs.
pub(super) fn point_json(result: &PointResult) -> Value {
    let PointResult { point, measurement, measured, predicted } = result;
    json!({
        "policy": point.policy.to_string(),
        "load": point.load,
        "duration_ns": point.duration_ns,
        "rate_per_s": measurement.rate_per_s,
        "counts": measurement.counts,
        "latency_us": measurement.latency_us,
        "repeats": measurement.repeats,
        "sojourn_over_service": measured,
        "predicted": { "basis": predict::basis_at(point), "sojourn_over_service": predicted },
        "p99_over_predicted": result.ratio(),
        "departs": result.departs(),
    })
}

/// Three standard deviations of the most uncertain point that `--check` looks at, see
/// [`super::plan`].
const DEPARTURE_MAX: f64 = 0.15;
