//! Times and their distributions as arguments, `file:PATH` among them, which only this crate can
//! read.

use std::fs;
use std::io::Read as _;

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

/// Reads a delay, in nanoseconds; one above a second is a mistake.
pub(crate) fn parse_delay_ns(text: &str) -> Result<u64, String> {
    let delay_ns = parse_duration_ns(text).map_err(|error| error.to_string())?;
    if delay_ns > DELAY_NS_MAX {
        Err(format!("{text:?} is more than a second"))
    } else {
        Ok(delay_ns)
    }
}

/// The samples of a file, one time a line; empty lines and those that begin with `#` are left out.
fn load_times(path: &str) -> Result<Vec<f64>, String> {
    read(path, Unit::Time)
}

/// The samples of a file, one a line in the given unit; empty lines and those that begin with `#`
/// are left out.
pub(crate) fn read(path: &str, unit: Unit) -> Result<Vec<f64>, String> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    let lines = text
        .lines()
        .map(str::trim)
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(index, line)| {
            unit.parse(line).map_err(|error| format!("line {}: {error}", index + 1))
        })
        .collect()
}

const DELAY_NS_MAX: u64 = 1_000_000_000;
/// Ten million samples of a few digits each.
const FILE_BYTES_MAX: u64 = 100_000_000;
