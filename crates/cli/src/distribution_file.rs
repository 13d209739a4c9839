//! Times and their distributions as arguments, `file:PATH` among them, which only this crate can read.

use std::fs;

use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::{Unit, parse_duration_ns};

/// Reads a distribution of times.
pub(crate) fn parse_times(text: &str) -> Result<Distribution, String> {
    Distribution::parse_with(text, Unit::Time, load_times).map_err(|error| error.to_string())
}

/// Reads a duration above zero, in nanoseconds.
pub(crate) fn parse_positive_ns(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text) {
        Ok(0) => Err(format!("{text:?} must be above zero")),
        Ok(duration_ns) => Ok(duration_ns),
        Err(error) => Err(error.to_string()),
    }
}

/// The samples of a file, one time a line; empty lines and those that begin with `#` are left out.
fn load_times(path: &str) -> Result<Vec<f64>, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(index, line)| Unit::Time.parse(line).map_err(|error| format!("line {}: {error}", index + 1))).collect()
}
