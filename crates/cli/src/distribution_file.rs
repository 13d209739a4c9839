//! Times and their distributions as arguments, `file:PATH` among them.

pub(crate) use tailcut_instrument::distribution_file::read;
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

const DELAY_NS_MAX: u64 = 1_000_000_000;
