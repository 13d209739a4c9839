//! Files of samples, which `file:PATH` in a distribution names.

use tailcut_measure::quantity::Unit;

use super::text_file;

/// The samples of a file, one a line in the given unit; empty lines and those that begin with `#`
/// are left out.
///
/// # Errors
///
/// That the file cannot be read, is too long, or has a line that is no value.
pub fn read(path: &str, unit: Unit) -> Result<Vec<f64>, String> {
    let text = text_file::read(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
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

/// Ten million samples of a few digits each.
const FILE_BYTES_MAX: u64 = 100_000_000;
