//! A result that was saved to a file.
//!
//! Invariant: what is given is a whole result of [`SCHEMA`]; everything else is an error that says
//! what the file is instead.

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use serde_json::error::Category;

use super::result::{MeasureResult, SCHEMA};
use super::text_file;

/// Reads the file.
///
/// # Errors
///
/// That it cannot be read, is cut short, is no JSON, is no result of a measurement, or of another
/// schema.
pub fn read(path: &str) -> Result<MeasureResult> {
    let text = text_file::read(path, BYTES_MAX).with_context(|| format!("cannot read {path}"))?;
    parse(&text).with_context(|| format!("{path} cannot be used"))
}

fn parse(text: &str) -> Result<MeasureResult> {
    let value: Value = serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Eof => {
            anyhow!("it is cut short: the JSON ends at line {}, in the middle", error.line())
        }
        _ => anyhow!("it is no JSON: {error}"),
    })?;
    let Some(schema) = value.get("schema").and_then(Value::as_str) else {
        bail!("it is no result of tailcut measure: it names no schema");
    };
    if schema != SCHEMA {
        let schema = schema.escape_default();
        match schema.to_string().starts_with("tailcut.measure/") {
            true => bail!(
                "its schema is {schema} and this tailcut reads {SCHEMA}; measure again, or use a tailcut of its age"
            ),
            false => {
                bail!("it is no result of tailcut measure: its schema is {schema}, not {SCHEMA}")
            }
        }
    }
    serde_json::from_value(value).map_err(|error| anyhow!("it is no whole {SCHEMA}: {error}"))
}

/// A thousand loads, each with histograms of 300 moments.
const BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let written = serde_json::to_string_pretty(&sample::full()).unwrap();
        let read = parse(&written).unwrap();
        assert_eq!(serde_json::to_string_pretty(&read).unwrap(), written);
    }

    #[test]
    fn what_is_no_result_is_called_by_its_name() {
        let whole = serde_json::to_string(&sample::full()).unwrap();
        check(&whole[..whole.len() / 2], "it is cut short: the JSON ends at line 1, in the middle");
        check("", "it is cut short");
        check("latency 5 us", "it is no JSON: expected value at line 1 column 1");
        check("[1, 2]", "it names no schema");
        check(
            "{\"schema\": \"tailcut.demo/1\"}",
            "its schema is tailcut.demo/1, not tailcut.measure/2",
        );
        check(
            "{\"schema\": \"tailcut.measure/1\"}",
            "this tailcut reads tailcut.measure/2; measure again",
        );
        check(
            "{\"schema\": \"tailcut.measure/2\", \"config\": {}}",
            "it is no whole tailcut.measure/2: missing field",
        );
        check("{\"schema\": \"\\u001b[2J\"}", "its schema is \\u{1b}[2J");
    }

    fn check(text: &str, part: &str) {
        let error = format!("{:#}", parse(text).unwrap_err());
        assert!(error.contains(part), "{error}");
    }
}
