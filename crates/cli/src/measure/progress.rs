//! How far a run is as a bar, on a terminal; nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use tailcut_measure::control::Leg;

use super::coordinator::Seat;
use super::view::{Phase, View, forecast};

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
}

impl View for Progress {
    fn begin(&mut self, phase: Phase, leg: Option<&Leg>) {
        match leg {
            Some(leg) => {
                self.bar.set_length(leg.for_ns.max(1));
                self.bar.set_position(0);
                self.bar.set_message(format!("{}{}", phase.name(), forecast(leg)));
            }
            None if phase == Phase::Ending => self.bar.finish_and_clear(),
            None => {}
        }
    }

    fn show(&mut self, passed_ns: u64, _seats: &[Seat]) {
        self.bar.set_position(passed_ns);
    }

    fn say(&mut self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}
