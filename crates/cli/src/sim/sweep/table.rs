//! All results of a sweep as one table: a row for each point, a column for each key of the grid and
//! for each figure.

use serde_json::Value;

use super::point::Point;

/// The results side by side.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Keys of the grid.
    pub(super) keys: Vec<String>,
    /// Dotted names, in the order in which they are first seen.
    pub(super) figures: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// One point.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Under the keys.
    pub(super) at: Vec<String>,
    /// Under the figures; `None` where a point has no such figure.
    pub(super) figures: Vec<Option<f64>>,
}

impl Table {
    /// The table of points with their files.
    pub(super) fn new(keys: &[&str], results: &[(&Point, Value)]) -> Self {
        let flat: Vec<Vec<(String, f64)>> =
            results.iter().map(|(_, file)| flatten(&file["result"])).collect();
        let mut figures: Vec<String> = Vec::new();
        for name in flat.iter().flatten().map(|(name, _)| name) {
            if !figures.contains(name) {
                figures.push(name.clone());
            }
        }
        let row = |((point, _), flat): (&(&Point, Value), &Vec<(String, f64)>)| {
            let of = |name: &String| {
                flat.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
            };
            Row {
                at: point.at.iter().map(|flag| flag.value.clone()).collect(),
                figures: figures.iter().map(of).collect(),
            }
        };
        let rows = results.iter().zip(&flat).map(row).collect();
        Self { keys: keys.iter().map(|&key| key.to_owned()).collect(), figures, rows }
    }

    /// As comma-separated values (RFC 4180) with a line of names.
    pub(super) fn csv(&self) -> String {
        let head = self.keys.iter().chain(&self.figures).map(|name| quoted(name));
        let mut lines = vec![head.collect::<Vec<_>>().join(",")];
        for row in &self.rows {
            let figures =
                row.figures.iter().map(|figure| figure.map_or(String::new(), seven_digits));
            let cells = row.at.iter().map(|value| quoted(value)).chain(figures);
            lines.push(cells.collect::<Vec<_>>().join(","));
        }
        lines.join("\n") + "\n"
    }

    /// Index of the column of a figure.
    pub(super) fn figure_index(&self, name: &str) -> Option<usize> {
        self.figures.iter().position(|figure| figure == name)
    }
}

/// Every number of a result under its dotted name, but those of its configuration.
fn flatten(result: &Value) -> Vec<(String, f64)> {
    let mut figures = Vec::new();
    for (name, value) in
        result.as_object().into_iter().flatten().filter(|(name, _)| *name != "config")
    {
        collect(name, value, &mut figures);
    }
    figures
}

fn collect(name: &str, value: &Value, figures: &mut Vec<(String, f64)>) {
    match value {
        Value::Number(number) => {
            figures.extend(number.as_f64().map(|number| (name.to_owned(), number)))
        }
        Value::Object(members) => members
            .iter()
            .for_each(|(key, value)| collect(&format!("{name}.{key}"), value, figures)),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| collect(&format!("{name}.{index}"), value, figures));
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// A number without the digits that no simulation knows: whole ones exactly, others to seven
/// digits.
fn seven_digits(value: f64) -> String {
    let is_whole = value == value.trunc() && value.abs() < 1e15;
    let rounded = if is_whole { value } else { format!("{value:.6e}").parse().unwrap_or(value) };
    rounded.to_string()
}

fn quoted(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_found_at_any_depth_and_configuration_is_none() {
        let result = json!({
            "schema": "a/1", "config": { "seed": 7 },
            "sojourn": { "p99": 2.5, "standard_error": null }, "buckets": [{ "count": 3 }],
        });
        assert_eq!(
            flatten(&result),
            [("buckets.0.count".to_owned(), 3.0), ("sojourn.p99".to_owned(), 2.5)]
        );
    }

    #[test]
    fn seven_digits_are_written() {
        for (value, written) in [
            (4.605_170_185_988_092, "4.60517"),
            (7.657_472_000_000_001, "7.657472"),
            (0.301_050_000_000_000_04, "0.30105"),
            (1_922.724_007_166_666_8, "1922.724"),
            (123_456_789.0, "123456789"),
            (1e-7 / 3.0, "0.00000003333333"),
        ] {
            assert_eq!(seven_digits(value), written);
        }
    }

    #[test]
    fn a_figure_that_a_point_lacks_is_an_empty_cell() {
        let row = |at: &str, figures: [Option<f64>; 2]| Row {
            at: vec![at.to_owned()],
            figures: figures.to_vec(),
        };
        let table = Table {
            keys: vec!["policy".to_owned()],
            figures: vec!["p99".to_owned(), "exact.p99".to_owned()],
            rows: vec![row("jsq:2", [Some(5.25), None]), row("a,\"b\"", [Some(1e-7), Some(3.0)])],
        };
        assert_eq!(table.csv(), "policy,p99,exact.p99\njsq:2,5.25,\n\"a,\"\"b\"\"\",0.0000001,3\n");
    }
}
