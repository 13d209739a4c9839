//! A sweep as it is written: what is fixed, what varies, what is drawn.

use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use toml::{Table, Value};

use crate::chart::{Growth, WIDE};

/// The file, as TOML.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepFile {
    /// Name of the table and the page.
    pub(super) name: String,
    pub(super) simulation: Kind,
    /// Flags that all points have, without their dashes.
    #[serde(default)]
    fixed: Table,
    /// Flags that vary, each with a list of values.
    #[serde(default)]
    grid: Table,
    #[serde(default)]
    pub(super) report: ReportSpec,
}

/// Simulation that a sweep runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Queue,
    Chip,
    Clone,
    R2p2,
    Homa,
}

/// The wishes for the page; whatever is left out is chosen.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ReportSpec {
    /// The key of the grid along the horizontal axis.
    pub(super) x: Option<String>,
    /// The figures along the vertical axis, one chart each.
    #[serde(default)]
    pub(super) y: OneOrMore,
    /// The key of the grid that tells curves of one chart apart; each combination of further keys
    /// has a chart of its own.
    pub(super) series: Option<String>,
    /// Scale of the horizontal axis, where its values are numbers or times.
    #[serde(default)]
    pub(super) x_axis: Growth,
    /// Scale of the vertical axes.
    #[serde(default)]
    pub(super) y_axis: Growth,
    /// The typeface of the picture, as a list of CSS.
    pub(super) font: Option<String>,
    /// Width of the picture, in pixels, of which letters have 13.
    pub(super) width: Option<u32>,
}

impl ReportSpec {
    /// The typeface of the picture.
    pub(super) fn font(&self) -> &str {
        self.font.as_deref().unwrap_or("sans-serif")
    }

    /// The width of the picture.
    pub(super) fn width(&self) -> u32 {
        self.width.unwrap_or(WIDE)
    }

    fn check(&self) -> Result<()> {
        let is_width = WIDTHS.contains(&self.width());
        ensure!(is_width, "[report]: width has {} to {} pixels", WIDTHS.start(), WIDTHS.end());
        // What could end a rule of CSS is no name of a typeface.
        let is_font = |font: &str| {
            let is_letter = |c: char| c.is_alphanumeric() || " -_.,".contains(c);
            !font.trim().is_empty() && font.chars().all(is_letter)
        };
        let font = self.font();
        ensure!(
            is_font(font),
            "[report]: {font:?} is not a font; write names such as \"Libertinus Serif, serif\""
        );
        Ok(())
    }
}

/// A word, or a list of words.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub(super) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::More(words) => words,
        }
    }
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

/// A flag with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    pub(super) key: String,
    /// As it is shown: a switch is `true` or `false`.
    pub(super) value: String,
    is_switch: bool,
}

impl Flag {
    /// As a command line has it; nothing for a switch that is off.
    pub(super) fn argument(&self) -> Option<String> {
        let Self { key, value, is_switch } = self;
        match (is_switch, value.as_str()) {
            (false, _) => Some(format!("--{key}={value}")),
            (true, "true") => Some(format!("--{key}")),
            (true, _) => None,
        }
    }

    fn new(key: &str, value: &Value) -> Result<Self> {
        let is_flag = !key.is_empty()
            && key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        ensure!(
            is_flag && !key.starts_with('-'),
            "{key:?} is not a flag: write it without its dashes, such as workers"
        );
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(on) => on.to_string(),
            _ => {
                bail!(
                    "{key}: {value} is not a value for a flag: write a text, a number, true or false"
                )
            }
        };
        Ok(Self { key: key.to_owned(), value: text, is_switch: matches!(value, Value::Boolean(_)) })
    }
}

impl SweepFile {
    /// Reads the file's text.
    ///
    /// # Errors
    ///
    /// A text that TOML or the format of sweeps refuses, with its place.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let file: Self = toml::from_str(text).context("not a sweep")?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name =
            file.name.chars().all(is_plain) && !file.name.is_empty() && !file.name.starts_with('.');
        ensure!(
            is_name,
            "name = {:?}: it names files, so write letters, digits, -, _ and dots, no dot first",
            file.name
        );
        let twice = file.grid.keys().find(|key| file.fixed.contains_key(key.as_str()));
        ensure!(
            twice.is_none(),
            "{} is in [fixed] and in [grid]",
            twice.map_or("", String::as_str)
        );
        let keys = file.report.x.iter().chain(&file.report.series);
        for key in keys {
            let known: Vec<&str> = file.keys().collect();
            ensure!(
                known.contains(&key.as_str()),
                "[report]: {key:?} is not in [grid], which has {}",
                known.join(", ")
            );
        }
        ensure!(
            file.report.x.is_none() || file.report.x != file.report.series,
            "[report]: x and series are the same"
        );
        file.report.check()?;
        Ok(file)
    }

    /// The keys of the grid, in their order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.grid.keys().map(String::as_str)
    }

    /// The flags that all points have.
    pub(super) fn fixed(&self) -> Result<Vec<Flag>> {
        self.fixed
            .iter()
            .map(|(key, value)| Flag::new(key, value))
            .collect::<Result<_>>()
            .context("[fixed]")
    }

    /// Every combination of the grid's values, the last key varying fastest; one that is empty
    /// where there is no key.
    pub(super) fn combinations(&self) -> Result<Vec<Vec<Flag>>> {
        let mut combinations = vec![Vec::new()];
        for (key, values) in &self.grid {
            let axis = axis(key, values).context("[grid]")?;
            ensure!(
                combinations.len() * axis.len() <= POINTS_MAX,
                "[grid] has more than {POINTS_MAX} points"
            );
            combinations = combinations
                .iter()
                .flat_map(|flags: &Vec<Flag>| {
                    axis.iter().map(|flag| [flags.as_slice(), std::slice::from_ref(flag)].concat())
                })
                .collect();
        }
        Ok(combinations)
    }
}

fn axis(key: &str, values: &Value) -> Result<Vec<Flag>> {
    let Value::Array(values) = values else {
        bail!("{key}: write a list, or put it into [fixed]");
    };
    ensure!(!values.is_empty(), "{key}: the list is empty");
    let axis = values.iter().map(|value| Flag::new(key, value)).collect::<Result<Vec<_>>>()?;
    for (index, flag) in axis.iter().enumerate() {
        ensure!(!axis[..index].contains(flag), "{key}: {} is there twice", flag.value);
    }
    Ok(axis)
}

/// Widths of a picture: from what a legend has room in to what still is one.
const WIDTHS: RangeInclusive<u32> = 240..=4_000;

/// A file of results each: what a directory still carries.
const POINTS_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_every_combination_in_the_order_of_the_file() {
        let file =
            SweepFile::parse(&with("[grid]\npolicy = [\"rr\", \"random\"]\nload = [0.5, 1]"))
                .unwrap();
        let of = |flags: &Vec<Flag>| {
            flags.iter().filter_map(Flag::argument).collect::<Vec<_>>().join(" ")
        };
        let combinations: Vec<String> = file.combinations().unwrap().iter().map(of).collect();
        let expected = [
            "--policy=rr --load=0.5",
            "--policy=rr --load=1",
            "--policy=random --load=0.5",
            "--policy=random --load=1",
        ];
        assert_eq!(combinations, expected);
    }

    #[test]
    fn a_switch_is_a_flag_without_value() {
        let file = SweepFile::parse(&with("[fixed]\non = true\noff = false")).unwrap();
        let arguments: Vec<Option<String>> =
            file.fixed().unwrap().iter().map(Flag::argument).collect();
        assert_eq!(arguments, [Some("--on".to_owned()), None]);
    }

    #[test]
    fn a_sweep_without_grid_is_one_point() {
        assert_eq!(SweepFile::parse(&with("")).unwrap().combinations().unwrap(), [Vec::new()]);
    }

    #[test]
    fn mistakes_are_refused_with_what_to_write() {
        check("[grids]\nload = [0.5]", "unknown field `grids`");
        check("[report]\nz = \"load\"", "unknown field `z`");
        check("[fixed]\nload = 0.5\n[grid]\nload = [0.5]", "load is in [fixed] and in [grid]");
        check("[grid]\nload = 0.5", "load: write a list, or put it into [fixed]");
        check("[grid]\nload = []", "load: the list is empty");
        check("[grid]\nload = [0.5, 0.6, 0.5]", "load: 0.5 is there twice");
        check("[fixed]\nload = [0.5]", "is not a value for a flag");
        check("[fixed]\n\"--load\" = 0.5", "without its dashes");
        check(
            "[grid]\nload = [0.5]\n[report]\nx = \"policy\"",
            "\"policy\" is not in [grid], which has load",
        );
        check(
            "[grid]\nload = [0.5]\n[report]\nx = \"load\"\nseries = \"load\"",
            "x and series are the same",
        );
        check("[report]\ny-axis = \"cubic\"", "unknown variant `cubic`, expected one of");
        check("[report]\nwidth = 12", "width has 240 to 4000 pixels");
        check("[report]\nfont = \"a; b\"", "\"a; b\" is not a font");
        check("[report]\nfont = \" \"", "is not a font");
    }

    #[test]
    fn a_simulation_that_does_not_exist_is_refused() {
        let error = SweepFile::parse("name = \"a\"\nsimulation = \"faults\"").unwrap_err();
        assert!(
            format!("{error:#}")
                .contains("expected one of `queue`, `chip`, `clone`, `r2p2`, `homa`"),
            "{error:#}"
        );
    }

    #[test]
    fn a_name_stays_in_its_directory() {
        for name in ["../up", "", ".hidden", "a/b"] {
            assert!(
                SweepFile::parse(&format!("name = {name:?}\nsimulation = \"queue\"")).is_err(),
                "{name}"
            );
        }
    }

    fn check(tables: &str, part: &str) {
        let parsed = SweepFile::parse(&with(tables))
            .and_then(|file| file.fixed().and(file.combinations().map(|_| ())));
        let error = format!("{:#}", parsed.expect_err(tables));
        assert!(error.contains(part), "{tables}: {error}");
    }

    fn with(tables: &str) -> String {
        format!("name = \"test\"\nsimulation = \"queue\"\n{tables}\n")
    }
}
