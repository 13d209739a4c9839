//! Progress of a run: a bar on a terminal, and a line now and then elsewhere.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};
use tailcut_instrument::result::Point;
use tailcut_instrument::view::{AgentStatus, Phase, View};
use tailcut_measure::control::Leg;

use super::text;

/// The view of a run of `title` on standard error: a bar, or lines.
pub(super) fn progress(title: String) -> Box<dyn View> {
    if stderr().is_terminal() {
        Box::new(Bar::new(title))
    } else {
        Box::new(Lines { title: Some(title), ..Lines::new(|line| eprintln!("{line}")) })
    }
}

/// A line for each leg of the run, and one for every ten seconds of it.
struct Lines<F> {
    print: F,
    /// Said before the first leg: by then the target has answered.
    title: Option<String>,
    phase: Phase,
    leg_ns: u64,
    next_ns: u64,
}

impl<F: FnMut(&str)> Lines<F> {
    fn new(print: F) -> Self {
        Self { print, title: None, phase: Phase::Preparing, leg_ns: 0, next_ns: LINE_EVERY_NS }
    }
}

impl<F: FnMut(&str)> View for Lines<F> {
    fn begin(&mut self, phase: Phase, leg: Option<&Leg>) {
        let Some(leg) = leg else { return };
        if let Some(title) = self.title.take() {
            (self.print)(&title);
        }
        let is_new = phase != self.phase;
        (self.phase, self.leg_ns, self.next_ns) = (phase, leg.for_ns, LINE_EVERY_NS);
        if is_new || leg.for_ns >= LINE_EVERY_NS {
            (self.print)(&format!("{}{}", phase.as_ref(), forecast(leg)));
        }
    }

    fn show(&mut self, passed_ns: u64, _agents: &[AgentStatus<'_>]) {
        if passed_ns >= self.next_ns {
            self.next_ns = passed_ns + LINE_EVERY_NS;
            let seconds = |ns: u64| ns / 1_000_000_000;
            (self.print)(&format!(
                "{}, {} of {} s",
                self.phase.as_ref(),
                seconds(passed_ns),
                seconds(self.leg_ns)
            ));
        }
    }

    fn handle_point(&mut self, point: &Point) {
        (self.print)(&text::line(point));
    }
}

/// Whoever waits for a program that says nothing wonders after that long.
const LINE_EVERY_NS: u64 = 10_000_000_000;

/// A bar with what is going on beside it.
struct Bar {
    bar: ProgressBar,
    /// Said before the first leg.
    title: Option<String>,
}

impl Bar {
    fn new(title: String) -> Self {
        let bar = ProgressBar::new(1);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}")
            .expect("the template is a valid constant");
        bar.set_style(style);
        Self { bar, title: Some(title) }
    }
}

impl View for Bar {
    fn begin(&mut self, phase: Phase, leg: Option<&Leg>) {
        match leg {
            Some(leg) => {
                if let Some(title) = self.title.take() {
                    self.bar.suspend(|| eprintln!("{title}"));
                }
                self.bar.set_length(leg.for_ns.max(1));
                self.bar.set_position(0);
                self.bar.set_message(format!("{}{}", phase.as_ref(), forecast(leg)));
            }
            None if phase == Phase::Ending => self.bar.finish_and_clear(),
            None => {}
        }
    }

    fn show(&mut self, passed_ns: u64, _agents: &[AgentStatus<'_>]) {
        self.bar.set_position(passed_ns);
    }

    fn handle_point(&mut self, point: &Point) {
        self.bar.suspend(|| eprintln!("{}", text::line(point)));
    }
}

/// The forecast of the time until the target is reached, as far as there is one.
pub(super) fn forecast(leg: &Leg) -> String {
    let seconds = |ns: u64| format!("{} s", ns / 1_000_000_000);
    leg.forecast.map_or_else(String::new, |forecast| match forecast.total_ns > forecast.limit_ns {
        true => format!(
            ", would take {}, ends after {}",
            seconds(forecast.total_ns),
            seconds(forecast.limit_ns)
        ),
        false => format!(", {} in all", seconds(forecast.total_ns)),
    })
}

#[cfg(test)]
mod tests {
    use tailcut_measure::control::Setup;

    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn lines_say_what_begins_and_how_far_it_is() {
        let mut said = Vec::new();
        let mut lines = Lines::new(|line: &str| said.push(line.to_owned()));
        let leg = |for_ns| Leg { for_ns, setup: Setup::default(), forecast: None };
        lines.begin(Phase::Preparing, None);
        lines.show(0, &[]);
        lines.begin(Phase::WarmingUp, Some(&leg(2 * S)));
        lines.show(S, &[]);
        lines.begin(Phase::Measuring, Some(&leg(S)));
        lines.begin(Phase::Measuring, Some(&leg(30 * S)));
        (0..=300).for_each(|tenth| lines.show(tenth * S / 10, &[]));
        let expected = [
            "warming up",
            "measuring",
            "measuring",
            "measuring, 10 of 30 s",
            "measuring, 20 of 30 s",
            "measuring, 30 of 30 s",
        ];
        assert_eq!(said, expected);
    }
}
