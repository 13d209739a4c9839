//! How far a run is, on a terminal; nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use tailcut_measure::control::Leg;
use tailcut_measure::quantity::Unit;

/// A bar with what is going on beside it.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new(1);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}").expect("the template is a valid constant");
        bar.set_style(style);
        Self { bar }
    }

    /// A leg begins.
    pub(super) fn begin(&self, is_measured: bool, leg: &Leg) {
        self.bar.set_length(leg.for_ns.max(1));
        self.bar.set_position(0);
        let what = if is_measured { "measuring" } else { "warming up" };
        let forecast = leg.forecast.map(|forecast| {
            let time = |ns: u64| Unit::Time.format((ns / 1_000_000_000 * 1_000_000_000) as f64);
            match forecast.total_ns > forecast.limit_ns {
                true => format!(", would take {}, ends after {}", time(forecast.total_ns), time(forecast.limit_ns)),
                false => format!(", {} in all", time(forecast.total_ns)),
            }
        });
        self.bar.set_message(format!("{what}{}", forecast.unwrap_or_default()));
    }

    /// So much of the leg is over, ns.
    pub(super) fn show(&self, passed_ns: u64) {
        self.bar.set_position(passed_ns);
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// A line above the bar.
    pub(super) fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}
