//! Times, sizes and rates in text form.
//!
//! A number may carry a unit: `300ns`, `25us`, `1ms`, `2s` for times; `64`, `64B`, `100kB`,
//! `1MiB` for sizes; `10k`, `2.5M` for rates and other plain numbers. Exponents, signs of infinity
//! and not-a-number are no part of it.
//!
//! Invariant: an accepted number is finite and at most [`MAGNITUDE_MAX`] in its base unit, and a
//! decimal is rounded once: `0.3us` is exactly 300 ns.

use std::fmt;

use thiserror::Error;

/// Dimension of a number, which decides the suffixes that it may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A time in nanoseconds. A suffix is required, except on zero.
    Time,
    /// A size in bytes. No suffix means bytes.
    Size,
    /// A number without a dimension: a rate, a rank, a shape.
    Plain,
}

impl Unit {
    /// Reads `text` as a number of this unit, in the base unit (ns, bytes, or one).
    ///
    /// # Errors
    ///
    /// What is wrong with the number or its suffix.
    pub fn parse(self, text: &str) -> Result<f64, QuantityError> {
        let digits_end = text
            .char_indices()
            .find(|&(at, c)| !(c.is_ascii_digit() || c == '.' || (at == 0 && c == '-')))
            .map_or(text.len(), |(at, _)| at);
        let (number, suffix) = text.split_at(digits_end);
        let bare: f64 =
            number.parse().map_err(|_| QuantityError::NotANumber { text: text.to_owned() })?;
        if suffix.is_empty() {
            if self == Unit::Time && bare != 0.0 {
                return Err(QuantityError::UnitMissing { text: text.to_owned() });
            }
            return bounded(text, bare);
        }
        let scale = self.scales().iter().find(|scale| scale.suffix == suffix).ok_or_else(|| {
            QuantityError::UnitUnknown {
                text: text.to_owned(),
                suffix: suffix.to_owned(),
                unit: self,
            }
        })?;
        // The decimal exponent joins the digits, so that the decimal is rounded once.
        let scaled: f64 = format!("{number}e{}", scale.decimal_exponent)
            .parse()
            .map_err(|_| QuantityError::NotANumber { text: text.to_owned() })?;
        bounded(text, scaled * scale.binary_factor)
    }

    /// Writes `value` (in the base unit) so that [`Unit::parse`] reads it back unchanged.
    pub fn format(self, value: f64) -> String {
        if self != Unit::Time {
            return format!("{value}");
        }
        let (divisor, suffix) = TIME_DIVISORS
            .into_iter()
            .find(|(divisor, _)| value != 0.0 && value % divisor == 0.0)
            .unwrap_or((1.0, "ns"));
        format!("{}{suffix}", value / divisor)
    }

    fn scales(self) -> &'static [Scale] {
        match self {
            Unit::Time => TIME_SCALES,
            Unit::Size => SIZE_SCALES,
            Unit::Plain => PLAIN_SCALES,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Time => "a time takes ns, us, ms or s",
            Unit::Size => "a size takes B, kB, MB, GB, KiB, MiB or GiB",
            Unit::Plain => "a number takes k, M or G",
        })
    }
}

/// Reason why a number was refused.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// The text does not begin with a decimal number.
    #[error("{text:?} is not a number")]
    NotANumber {
        /// Text that was given.
        text: String,
    },
    /// A time without its unit.
    #[error("{text:?} has no unit: {}", Unit::Time)]
    UnitMissing {
        /// Text that was given.
        text: String,
    },
    /// A suffix that this kind of number does not have.
    #[error("{text:?} has the unknown unit {suffix:?}: {unit}")]
    UnitUnknown {
        /// Text that was given.
        text: String,
        /// The suffix found.
        suffix: String,
        /// Dimension that the number should have.
        unit: Unit,
    },
    /// Beyond [`MAGNITUDE_MAX`].
    #[error("{text:?} is too large: at most 1e18 in the base unit (31 years in nanoseconds)")]
    TooLarge {
        /// Text that was given.
        text: String,
    },
    /// Below zero, where that has no meaning.
    #[error("{text:?} is below zero")]
    Negative {
        /// Text that was given.
        text: String,
    },
    /// A fraction of a nanosecond or of a byte.
    #[error("{text:?} is not a whole number of {of}")]
    NotWhole {
        /// Text that was given.
        text: String,
        /// The base unit, in the plural.
        of: &'static str,
    },
    /// Zero, where that has no meaning.
    #[error("{text:?} must be above zero")]
    Zero {
        /// Text that was given.
        text: String,
    },
}

struct Scale {
    suffix: &'static str,
    decimal_exponent: u8,
    /// A power of two, so that the product is exact.
    binary_factor: f64,
}

/// Reads a duration such as `25us`, in nanoseconds.
///
/// # Errors
///
/// What is wrong with it; a fraction of a nanosecond is refused.
pub fn parse_duration_ns(text: &str) -> Result<u64, QuantityError> {
    whole(text, Unit::Time.parse(text)?, "nanoseconds")
}

/// Reads a size such as `64`, `100kB` or `1MiB`, in bytes.
///
/// # Errors
///
/// What is wrong with it; a fraction of a byte is refused.
pub fn parse_size_bytes(text: &str) -> Result<u64, QuantityError> {
    whole(text, Unit::Size.parse(text)?, "bytes")
}

/// Reads a rate such as `300000`, `10k` or `2.5M`, in events per second.
///
/// # Errors
///
/// What is wrong with it; a rate is above zero.
pub fn parse_rate_per_s(text: &str) -> Result<f64, QuantityError> {
    let rate = Unit::Plain.parse(text)?;
    if rate < 0.0 {
        return Err(QuantityError::Negative { text: text.to_owned() });
    }
    if rate == 0.0 {
        return Err(QuantityError::Zero { text: text.to_owned() });
    }
    Ok(rate)
}

/// Reads a count such as `64`, `500k` or `2M`.
///
/// # Errors
///
/// What is wrong with it; a count is whole and above zero.
pub fn parse_count(text: &str) -> Result<u64, QuantityError> {
    match whole(text, Unit::Plain.parse(text)?, "things")? {
        0 => Err(QuantityError::Zero { text: text.to_owned() }),
        count => Ok(count),
    }
}

fn bounded(text: &str, value: f64) -> Result<f64, QuantityError> {
    if value.abs() > MAGNITUDE_MAX {
        return Err(QuantityError::TooLarge { text: text.to_owned() });
    }
    // Turns -0 into 0, so that equal values print alike.
    Ok(value + 0.0)
}

fn whole(text: &str, value: f64, of: &'static str) -> Result<u64, QuantityError> {
    if value < 0.0 {
        return Err(QuantityError::Negative { text: text.to_owned() });
    }
    if value.fract() != 0.0 {
        return Err(QuantityError::NotWhole { text: text.to_owned(), of });
    }
    Ok(value as u64)
}

const fn decimal(suffix: &'static str, decimal_exponent: u8) -> Scale {
    Scale { suffix, decimal_exponent, binary_factor: 1.0 }
}

const fn binary(suffix: &'static str, shift: u8) -> Scale {
    Scale { suffix, decimal_exponent: 0, binary_factor: (1u64 << shift) as f64 }
}

/// The largest magnitude accepted, in the base unit: 31 years in nanoseconds, an exabyte.
pub const MAGNITUDE_MAX: f64 = 1e18;

const TIME_SCALES: &[Scale] =
    &[decimal("ns", 0), decimal("us", 3), decimal("ms", 6), decimal("s", 9)];
const SIZE_SCALES: &[Scale] = &[
    decimal("B", 0),
    decimal("kB", 3),
    decimal("MB", 6),
    decimal("GB", 9),
    binary("KiB", 10),
    binary("MiB", 20),
    binary("GiB", 30),
];
const PLAIN_SCALES: &[Scale] = &[decimal("k", 3), decimal("M", 6), decimal("G", 9)];
const TIME_DIVISORS: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];

/// A time as people say it: three digits and the unit that needs the fewest, such as `278 ms`.
pub fn duration(ns: f64) -> String {
    let (value, unit) = DURATION_UNITS
        .iter()
        .map(|&(unit_ns, unit)| (ns / unit_ns, unit))
        .find(|(value, _)| value.abs() >= 0.9995)
        .unwrap_or((ns, "ns"));
    let decimals = match value.abs() {
        value if value >= 99.95 || unit == "ns" => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// From the longest on; people take a minute for sixty seconds.
const DURATION_UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_is_said_as_people_say_it() {
        for (ns, expected) in [
            (277_610_000.0, "278 ms"),
            (19_200.0, "19.2 us"),
            (1_234_000_000.0, "1.23 s"),
            (999_960.0, "1.00 ms"),
            (999.4, "999 ns"),
            (9_999.0, "10.0 us"),
            (99_960.0, "100 us"),
            (0.0, "0 ns"),
            (-1_500.0, "-1.50 us"),
            (250e9, "250 s"),
        ] {
            assert_eq!(duration(ns), expected);
        }
    }

    #[test]
    fn counts_are_whole_and_above_zero() {
        assert_eq!(
            (parse_count("500k"), parse_count("2.5M"), parse_count("64")),
            (Ok(500_000), Ok(2_500_000), Ok(64))
        );
        for text in ["0", "-1", "0.5", "many", ""] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_carry_units() {
        for (text, ns) in [
            ("300ns", 300),
            ("25us", 25_000),
            ("0.3us", 300),
            ("1ms", 1_000_000),
            ("2s", 2_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_duration_ns(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes_unless_they_say_otherwise() {
        for (text, bytes) in
            [("64", 64), ("64B", 64), ("100kB", 100_000), ("1MiB", 1 << 20), ("1.5KiB", 1536)]
        {
            assert_eq!(parse_size_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn rates_are_per_second() {
        for (text, rate) in [("10k", 1e4), ("2.5M", 2.5e6), ("300000", 3e5), ("0.5", 0.5)] {
            assert_eq!(parse_rate_per_s(text), Ok(rate), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_its_reason() {
        check_refused(parse_duration_ns("25"), "has no unit");
        check_refused(parse_duration_ns("25kg"), "takes ns, us, ms or s");
        check_refused(parse_duration_ns("-1us"), "below zero");
        check_refused(parse_duration_ns("0.5ns"), "whole number of nanoseconds");
        check_refused(parse_duration_ns("9999999999s"), "too large");
        check_refused(parse_duration_ns(""), "not a number");
        check_refused(parse_duration_ns("."), "not a number");
        check_refused(parse_duration_ns("1.2.3us"), "not a number");
        check_refused(parse_size_bytes("infMB"), "not a number");
        check_refused(parse_size_bytes("1e3"), "unknown unit \"e3\"");
        check_refused(parse_rate_per_s("0"), "above zero");
        check_refused(parse_rate_per_s("NaN"), "not a number");
    }

    fn check_refused<T: fmt::Debug>(result: Result<T, QuantityError>, reason: &str) {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }

    proptest! {
        #[test]
        fn a_formatted_value_parses_back(value in 0.0..MAGNITUDE_MAX, whole in 0u64..1 << 53) {
            for unit in [Unit::Time, Unit::Size, Unit::Plain] {
                for value in [value, whole as f64, whole as f64 / 64.0] {
                    prop_assert_eq!(unit.parse(&unit.format(value)), Ok(value));
                }
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,12}") {
            for unit in [Unit::Time, Unit::Size, Unit::Plain] {
                if let Ok(value) = unit.parse(&text) {
                    prop_assert!(value.abs() <= MAGNITUDE_MAX);
                }
            }
        }
    }
}
