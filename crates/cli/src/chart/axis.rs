//! Positions of values on a side of a frame, and those that are written there.

use serde::Deserialize;
use tailcut_measure::quantity::duration;

/// Scale of an axis, by the meaning of equal lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Growth {
    /// As `Log` where the values span decades, else as `Linear`.
    #[default]
    Auto,
    /// Equal differences.
    Linear,
    /// Equal ratios; where a value is not above zero, equal differences.
    Log,
}

/// A side of a frame: linear, logarithmic, or names side by side.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    title: String,
    from: f64,
    to: f64,
    is_log: bool,
    /// Values and what is written there, ascending.
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis with ticks where the caller wants them.
    pub(crate) fn with_ticks(
        title: String,
        (from, to): (f64, f64),
        ticks: Vec<(f64, String)>,
    ) -> Self {
        Self { title, from, to, is_log: false, ticks }
    }

    /// A linear axis with a tick at every multiple of the step between its ends.
    pub(crate) fn linear(title: String, (from, to): (f64, f64), step: f64) -> Self {
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let multiples =
            (from / step - ROUNDING).ceil() as i64..=(to / step + ROUNDING).floor() as i64;
        let tick = |multiple: i64| {
            (multiple as f64 * step, format!("{:.decimals$}", multiple as f64 * step))
        };
        Self::with_ticks(title, (from, to), multiples.map(tick).collect())
    }

    /// From zero to the highest of the values, with some room; logarithmic where they span decades.
    pub(crate) fn from_zero(title: String, values: impl IntoIterator<Item = f64>) -> Self {
        Self::from_zero_as(Growth::Auto, title, values)
    }

    /// The axis of [`Axis::from_zero`], of this growth.
    pub(crate) fn from_zero_as(
        growth: Growth,
        title: String,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        let Some((low, high)) = ends(values) else { return Self::linear(title, (0.0, 1.0), 0.5) };
        if growth.is_log(low, high) {
            return Self::logarithmic(title, (low, high));
        }
        let span = high.max(0.0) - low.min(0.0);
        let step = nice_step(if span > 0.0 { ROOM * span } else { 1.0 });
        let from = (low.min(0.0) / step).floor() * step;
        // Shares and loads end at 1, however near to it they come.
        let end = if high <= 1.0 && ROOM * high > 1.0 { 1.0 } else { ROOM * high };
        Self::linear(title, (from, (end.max(from + step) / step - ROUNDING).ceil() * step), step)
    }

    /// From the lowest to the highest of the values; logarithmic where they span decades.
    pub(crate) fn covering(title: String, values: impl IntoIterator<Item = f64>) -> Self {
        Self::covering_as(Growth::Auto, title, values)
    }

    /// The axis of [`Axis::covering`], of this growth.
    pub(crate) fn covering_as(
        growth: Growth,
        title: String,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        match ends(values) {
            Some((low, high)) if growth.is_log(low, high) => Self::logarithmic(title, (low, high)),
            Some((low, high)) if low < high => {
                Self::linear(title, (low, high), nice_step(high - low))
            }
            Some((only, _)) => {
                Self::with_ticks(title, (only - 0.5, only + 0.5), vec![(only, only.to_string())])
            }
            None => Self::linear(title, (0.0, 1.0), 0.5),
        }
    }

    /// The axis of values that are times in us, written as people say them.
    pub(crate) fn of_times(mut self) -> Self {
        for (value, label) in &mut self.ticks {
            let text = duration(*value * 1e3);
            let (digits, unit) = text.split_once(' ').unwrap_or((&text, ""));
            let digits = match digits.contains('.') {
                true => digits.trim_end_matches('0').trim_end_matches('.'),
                false => digits,
            };
            *label = if *value == 0.0 { "0".to_owned() } else { format!("{digits} {unit}") };
        }
        self
    }

    /// Names at 0, 1, 2 and so on.
    pub(crate) fn categories(title: String, names: Vec<String>) -> Self {
        let last = names.len().saturating_sub(1) as f64;
        let ends = if last > 0.0 { (0.0, last) } else { (-0.5, 0.5) };
        Self::with_ticks(title, ends, (0u32..).map(f64::from).zip(names).collect())
    }

    /// Position of a value: 0 at the beginning, 1 at the end.
    pub(super) fn share(&self, value: f64) -> f64 {
        if self.is_log {
            let (from, to) = (self.from.ln(), self.to.ln());
            return (value.ln() - from) / (to - from);
        }
        (value - self.from) / (self.to - self.from)
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn from(&self) -> f64 {
        self.from
    }

    pub(super) fn to(&self) -> f64 {
        self.to
    }

    pub(super) fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }

    /// Length of the longest label, in letters.
    pub(super) fn label_len_max(&self) -> u32 {
        self.ticks.iter().map(|(_, label)| label.chars().count() as u32).max().unwrap_or(0)
    }

    /// Length of the last label, in letters.
    pub(super) fn last_label_len(&self) -> u32 {
        self.ticks.last().map_or(0, |(_, label)| label.chars().count() as u32)
    }

    /// Between numbers of the series 1, 2, 5, 10, ...; with only the powers of ten written where
    /// there are many.
    fn logarithmic(title: String, (low, high): (f64, f64)) -> Self {
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        let of_decade =
            |decade: i32| [1.0, 2.0, 5.0].map(|digit| round_at(digit * 10f64.powi(decade), decade));
        let series: Vec<f64> = (first..=last).flat_map(of_decade).collect();
        let from = series
            .iter()
            .copied()
            .filter(|&value| value <= low * (1.0 + ROUNDING))
            .fold(series[0], f64::max);
        let to = series
            .iter()
            .copied()
            .filter(|&value| value >= high * (1.0 - ROUNDING))
            .fold(f64::INFINITY, f64::min);
        let is_written = |value: f64| {
            last - first <= LOG_DECADES_DENSE || value == from || is_power_of_ten(value)
        };
        let ticks =
            series.iter().filter(|&&value| value >= from && value <= to && is_written(value));
        Self {
            title,
            from,
            to,
            is_log: true,
            ticks: ticks.map(|&value| (value, value.to_string())).collect(),
        }
    }
}

impl Growth {
    fn is_log(self, low: f64, high: f64) -> bool {
        // Closer ends would be the same tick.
        let may_be = low > 0.0 && high > low * (1.0 + 2.0 * ROUNDING);
        may_be
            && match self {
                Self::Auto => high / low >= LOG_FROM,
                Self::Linear => false,
                Self::Log => true,
            }
    }
}

/// The lowest and the highest of the values that are finite.
fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |ends, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}

/// A step of the series 1, 2, 5, 10, ... of which a span has eight at most.
fn nice_step(span: f64) -> f64 {
    let decade = (span / STEPS_MAX).log10().floor();
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * 10f64.powf(decade));
    step.into_iter().find(|step| span / step <= STEPS_MAX + ROUNDING).unwrap_or(span)
}

/// A number of the series as its decimal says, without the noise of a power.
fn round_at(value: f64, decade: i32) -> f64 {
    let decimals = usize::try_from(-decade).unwrap_or(0);
    format!("{value:.decimals$}").parse().unwrap_or(value)
}

fn is_power_of_ten(value: f64) -> bool {
    (value.log10() - value.log10().round()).abs() < ROUNDING
}

/// Values that are so many times apart are told apart only on a logarithmic axis.
const LOG_FROM: f64 = 30.0;
/// Up to so many decades, 2 and 5 are written too.
const LOG_DECADES_DENSE: i32 = 3;
const STEPS_MAX: f64 = 8.0;
/// Above the highest value.
const ROOM: f64 = 1.05;
/// Error of a quotient that is a whole number but for rounding.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_number_that_people_use() {
        check(&Axis::covering(String::new(), [0.1, 0.9]), "0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9");
        check(&Axis::covering(String::new(), [0.0, 12.0]), "0 2 4 6 8 10 12");
        check(&Axis::covering(String::new(), [0.95, 1.0]), "0.95 0.96 0.97 0.98 0.99 1.00");
    }

    #[test]
    fn times_have_the_units_that_people_use() {
        let axis = |low, high| Axis::covering(String::new(), [low, high]).of_times();
        check(&axis(10.0, 1e6), "10 us 100 us 1 ms 10 ms 100 ms 1 s");
        check(&axis(0.0, 12.0), "0 2 us 4 us 6 us 8 us 10 us 12 us");
        check(&axis(900.0, 1_100.0), "900 us 950 us 1 ms 1.05 ms 1.1 ms");
    }

    #[test]
    fn an_axis_from_zero_leaves_room_above() {
        check(&Axis::from_zero(String::new(), [4.0, 10.0]), "0 2 4 6 8 10 12");
        check(&Axis::from_zero(String::new(), [0.3, 0.99]), "0.0 0.2 0.4 0.6 0.8 1.0");
        check(&Axis::from_zero(String::new(), [-3.0, 10.0]), "-4 -2 0 2 4 6 8 10 12");
    }

    #[test]
    fn decades_make_an_axis_logarithmic() {
        let axis = Axis::from_zero(String::new(), [0.3, 46.0]);
        check(&axis, "0.2 0.5 1 2 5 10 20 50");
        assert!((axis.share(10f64.sqrt()) - 0.5).abs() < 1e-12, "the middle is the geometric mean");
        check(&Axis::from_zero(String::new(), [1.0, 20_000.0]), "1 10 100 1000 10000");
    }

    #[test]
    fn an_axis_grows_as_it_is_asked_to() {
        let axis = |growth, values| Axis::from_zero_as(growth, String::new(), values);
        check(&axis(Growth::Linear, [0.3, 46.0]), "0 10 20 30 40 50");
        check(&axis(Growth::Log, [4.0, 10.0]), "2 5 10");
        check(&axis(Growth::Log, [0.0, 12.0]), "0 2 4 6 8 10 12 14");
        check(&axis(Growth::Log, [5.0, 5.0]), "0 1 2 3 4 5 6");
        let covering = |growth| Axis::covering_as(growth, String::new(), [1.0, 100.0]);
        check(&covering(Growth::Linear), "20 40 60 80 100");
        check(&covering(Growth::Log), "1 2 5 10 20 50 100");
    }

    #[test]
    fn an_axis_of_nothing_and_of_one_value_has_an_extent() {
        for axis in [
            Axis::covering(String::new(), []),
            Axis::covering(String::new(), [0.7]),
            Axis::from_zero(String::new(), [f64::NAN]),
            Axis::from_zero(String::new(), [0.0]),
            Axis::categories(String::new(), vec!["one".into()]),
        ] {
            assert!(axis.from() < axis.to() && !axis.ticks().is_empty(), "{axis:?}");
        }
    }

    fn check(axis: &Axis, labels: &str) {
        let written: Vec<&str> = axis.ticks().iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(written.join(" "), labels);
    }
}
