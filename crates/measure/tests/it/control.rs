//! Steps of the controller, by what it is handed.

use tailcut_measure::control::{
    Controller, Correction, Leg, Report, Settings, Step, Target, Window,
};
use tailcut_measure::load::Rates;
use tailcut_measure::objective::Objective;
use tailcut_measure::outcome::Counts;
use tailcut_measure::statistics::series::Timed;
use tailcut_measure::verdict::Reason;

#[test]
fn a_steady_server_is_ok_after_the_first_look() {
    let report = run(Settings::new(0.99), |leg| window(leg.for_ns, 0));
    assert!(report.verdict.is_ok() && report.tried.is_empty(), "{report:?}");
    assert_eq!((report.measured_ns, report.spent_before_ns), (10 * SECOND_NS, SECOND_NS));
}

#[test]
fn a_lost_agent_ends_the_run() {
    let report = run(Settings::new(0.99), |leg| Window {
        agents_lost: vec!["b: gone".to_owned()],
        ..window(leg.for_ns, 0)
    });
    assert_eq!(report.verdict.reasons()[0], Reason::AgentLost { agent: "b: gone".to_owned() });
}

#[test]
fn an_interruption_ends_the_run_with_what_there_is() {
    let mut legs = 0;
    let report = run(Settings::new(0.99), |leg| {
        legs += 1;
        let for_ns = if legs == 2 { leg.for_ns / 2 } else { leg.for_ns };
        Window { is_interrupted: legs == 2, ..window(for_ns, 0) }
    });
    assert_eq!(
        (report.verdict.reasons(), report.measured_ns),
        (&[Reason::Interrupted][..], 5 * SECOND_NS)
    );
    assert!(
        report.intended.is_some() && report.known.iter().all(|known| !known.verdict.is_ok()),
        "{report:?}"
    );
}

#[test]
fn an_interruption_of_the_warm_up_leaves_nothing_measured() {
    let report =
        run(Settings::new(0.99), |leg| Window { is_interrupted: true, ..window(leg.for_ns, 0) });
    assert_eq!((report.verdict.reasons()[0].clone(), report.measured_ns), (Reason::Interrupted, 0));
}

/// Its slow requests come in a few long episodes, which the percentiles below them do not see.
#[test]
fn where_the_percentile_cannot_be_relied_on_lower_ones_may() {
    let report = run(Settings::new(0.99), |leg| {
        let mut window = window(leg.for_ns, 0);
        let slow = |sample: &&mut Timed| (sample.intended_ns / 1_000_000) % 5_000 < 75;
        window.samples.iter_mut().filter(slow).for_each(|sample| sample.latency_ns *= 10);
        window
    });
    assert!(!report.verdict.is_ok());
    let ok: Vec<f64> = report
        .known
        .iter()
        .filter(|known| known.verdict.is_ok())
        .map(|known| known.estimate.p)
        .collect();
    assert_eq!(ok, [0.5, 0.9, 0.95], "{}", report.verdict);
}

#[test]
fn a_load_that_does_not_leave_is_tried_again_and_then_told() {
    let report = run(Settings::new(0.99), |leg| {
        let mut window = window(leg.for_ns, 0);
        window.rates.sent_per_s *= 0.9;
        window
    });
    assert!(
        matches!(report.verdict.reasons(), [Reason::RateNotReached { .. }, ..]),
        "{}",
        report.verdict
    );
    assert_eq!(report.tried, [Correction::Restart, Correction::Restart]);
}

#[test]
fn what_has_no_reply_is_told_and_speaks_against_the_result_where_it_could_move_it() {
    let with_lost = |lost| {
        run(Settings::new(0.99), move |leg| {
            let mut window = window(leg.for_ns, 0);
            window.counts.lost = lost;
            window
        })
    };
    // Of 10,000 requests; a thousandth is a tenth of what lies beyond the p99.
    let few = with_lost(9);
    assert!(
        few.verdict.is_ok() && matches!(few.unanswered, Some(Reason::Unanswered { .. })),
        "{few:?}"
    );
    assert!(matches!(with_lost(11).verdict.reasons(), [Reason::Unanswered { .. }]));
}

#[test]
fn sampling_is_raised_before_the_run_is_prolonged() {
    let mut settings = Settings::new(0.99);
    settings.target = Target::Nanoseconds(1.0);
    settings.setup.sampling = 0.1;
    let report = run(settings, |leg| window(leg.for_ns, 0));
    let prolonged =
        report.tried.iter().position(|tried| matches!(tried, Correction::Measure(_))).unwrap();
    assert_eq!(report.tried[prolonged - 1], Correction::Sampling(1.0), "{:?}", report.tried);
}

#[test]
fn the_limit_ends_a_run_that_does_not_reach_its_target_and_says_what_would() {
    let mut settings = Settings::new(0.99);
    settings.target = Target::Nanoseconds(1.0);
    let report = run(settings, |leg| window(leg.for_ns, 0));
    assert_eq!(report.measured_ns, 60 * SECOND_NS);
    let needed_ns = report.verdict.reasons().iter().find_map(|reason| match reason {
        Reason::IntervalWide { needed_ns, .. } => Some(*needed_ns),
        _ => None,
    });
    assert!(needed_ns.unwrap() > 60 * SECOND_NS && report.intended.is_some());
}

#[test]
fn a_limit_on_everything_is_kept_whatever_is_wrong() {
    let mut settings = Settings::new(0.99);
    settings.limits.total_max_ns = 15 * SECOND_NS;
    let spent = |report: &Report| report.measured_ns + report.spent_before_ns;
    // One that would be prolonged, one that would begin again, and one that would warm up for ever.
    let wide = run(Settings { target: Target::Nanoseconds(1.0), ..settings.clone() }, |leg| {
        window(leg.for_ns, 0)
    });
    assert_eq!((spent(&wide), wide.measured_ns), (15 * SECOND_NS, 14 * SECOND_NS));
    let unsent = run(settings.clone(), |leg| {
        let mut window = window(leg.for_ns, 0);
        window.rates.sent_per_s *= 0.9;
        window
    });
    assert_eq!((spent(&unsent), unsent.measured_ns), (11 * SECOND_NS, 10 * SECOND_NS));
    let mut level = 1;
    let unsettled = run(settings, |leg| {
        let mut window = window(leg.for_ns, 0);
        let half = window.samples.len() / 2;
        level *= 2;
        window.samples[half..].iter_mut().for_each(|sample| sample.latency_ns *= level);
        window
    });
    assert_eq!((spent(&unsettled), unsettled.measured_ns), (15 * SECOND_NS, 10 * SECOND_NS));
}

#[test]
fn a_forecast_comes_before_the_leg_that_it_is_of() {
    let mut settings = Settings::new(0.99);
    settings.target = Target::Nanoseconds(1.0);
    let mut controller = Controller::new(settings);
    let Step::WarmUp(leg) = controller.start() else { panic!("a run begins with its warm-up") };
    let Step::Measure(leg) = controller.handle_window(&window(leg.for_ns, 0)) else {
        panic!("a settled server is measured")
    };
    assert_eq!(leg.forecast, None);
    let Step::Measure(leg) = controller.handle_window(&window(leg.for_ns, 0)) else {
        panic!("the target is far")
    };
    let forecast = leg.forecast.unwrap();
    assert!(
        forecast.total_ns > forecast.limit_ns && forecast.limit_ns == 60 * SECOND_NS,
        "{forecast:?}"
    );
}

#[test]
fn samples_that_do_not_support_the_percentile_give_none() {
    let report = run(Settings::new(0.9999), |leg| window(leg.for_ns, 0));
    assert!(
        matches!(report.verdict.reasons(), [Reason::SamplesFew { needed: 100_000, .. }]),
        "{}",
        report.verdict
    );
    assert_eq!(report.intended, None);
}

#[test]
fn an_objective_is_decided_by_the_whole_interval() {
    let decide = |text: &str| {
        run(Settings::deciding(text.parse::<Objective>().unwrap()), |leg| window(leg.for_ns, 0))
    };
    // The p99 is 10.99 ms.
    assert!(decide("p99<15ms").verdict.is_ok());
    assert!(decide("p99<10ms").verdict.is_ok());
    assert!(matches!(decide("p99<10991172ns").verdict.reasons(), [Reason::Undecided { .. }]));
}

fn run(settings: Settings, mut load: impl FnMut(Leg) -> Window) -> Report {
    let mut controller = Controller::new(settings);
    let mut step = controller.start();
    for _ in 0..100 {
        step = match step {
            Step::WarmUp(leg) | Step::Measure(leg) => controller.handle_window(&load(leg)),
            Step::Stop(report) => return *report,
        };
    }
    panic!("the run does not end");
}

/// A thousand requests a second, with latencies of 10 to 11 ms without memory, that are `late_ns`
/// late.
fn window(for_ns: u64, late_ns: u64) -> Window {
    let count = for_ns / 1_000_000;
    let latency_ns = |index: u64| 10_000_000 + index * 617_189 % 1_000_003;
    let samples = (0..count).map(|index| Timed {
        intended_ns: index * 1_000_000,
        latency_ns: latency_ns(index),
        late_ns,
    });
    Window {
        duration_ns: for_ns,
        samples: samples.collect(),
        counts: Counts { sent: count, replied: count, ..Counts::default() },
        rates: Rates { offered_per_s: 1e3, sent_per_s: 1e3, replied_per_s: 1e3 },
        ..Window::default()
    }
}

const SECOND_NS: u64 = 1_000_000_000;
