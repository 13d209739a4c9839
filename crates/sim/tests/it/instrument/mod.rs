//! The instrument against servers of which the truth is known: its intervals contain it, and its
//! verdicts tell a steady server from one that drifts or pauses.
//! `cargo bench -p tailcut-sim --bench coverage -- 200` prints the table with 200 runs each.

mod subject;

use tailcut_measure::arrivals::Process;
use tailcut_measure::control::{Correction, Report, Settings};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_measure::queueing::{MG1, MMk, Sojourn};
use tailcut_measure::verdict::Reason;

use self::subject::{Bench, Habit, Subject};

/// Fewer than 35 of 40 runs with a true coverage of 95 % cover in one of 70 cases; seeds are fixed.
/// M/M/1 at 0.8 is below.
#[test]
fn the_interval_of_a_p99_contains_the_exact_one() {
    for (workers, load) in [(1, 0.2), (1, 0.5), (4, 0.5), (4, 0.7), (4, 0.8)] {
        let subject = Subject::steady(workers, time("exp:10us"), load);
        let exact_ns = MMk::new(workers, load).unwrap().percentile(0.99) * 10_000.0;
        check_coverage(&subject, exact_ns);
    }
}

#[test]
fn the_interval_of_a_p99_of_two_kinds_of_requests_contains_the_exact_one() {
    let service = time("bimodal:5us:50us:0.9");
    let subject = Subject::steady(1, service.clone(), 0.5);
    let exact_ns = MG1::new(&service, 0.5).unwrap().percentile(0.99) * 9_500.0;
    check_coverage(&subject, exact_ns);
}

/// 19 of 20 intervals of 95 % contain the truth: those of the first 20 seeds.
#[test]
fn the_load_loop_in_virtual_time_finds_the_p99_of_known_queues() {
    let exponential = MMk::new(1, 0.8).unwrap().percentile(0.99) * 10_000.0;
    let runs = check_coverage(&Subject::steady(1, time("exp:10us"), 0.8), exponential);
    check_loop(&runs[..20], exponential);
    let deterministic = time("fixed:10us");
    let fixed = MG1::new(&deterministic, 0.8).unwrap().percentile(0.99) * 10_000.0;
    let subject = Subject::steady(1, deterministic, 0.8);
    check_loop(&reports(&subject, &from_10_000_requests(&subject), 20), fixed);
}

/// A request every millisecond, each served in 100 us, and a pause of 100 ms: the first that meets
/// it waits to its end, and each that follows 0.9 ms less, until the queue is empty again. So it is
/// from the intended send, whether or not the client may send meanwhile; a client of one connection
/// that counts from the actual send sees the pause once.
#[test]
fn a_pause_is_in_the_latencies_of_all_that_should_have_been_sent_in_it() {
    for (connections, hit) in [(u32::MAX, 111), (1, 1)] {
        let mut subject = Subject::steady(1, time("fixed:100us"), 0.1);
        subject.arrivals = Process::Fixed;
        subject.habit = Habit::Pausing { every_ns: 2_000_000_000, for_ns: 100_000_000 };
        subject.connections = connections;
        let window = Bench::new(subject, 1).unwrap().load(2_000_000_000);
        let latencies: Vec<u64> = window.samples.iter().map(|sample| sample.latency_ns).collect();
        let first = latencies.iter().position(|&latency_ns| latency_ns > 100_000).unwrap();
        let peak_ns = latencies[first];
        assert!((99_000_000..=100_200_000).contains(&peak_ns), "{peak_ns}");
        let expected = |place: usize| match place.checked_sub(first) {
            Some(after) => peak_ns.saturating_sub(900_000 * after as u64).max(100_000),
            None => 100_000,
        };
        for (place, &latency_ns) in latencies.iter().enumerate() {
            assert_eq!(latency_ns, expected(place), "request {place}, {connections} connections");
        }
        let late = window.samples.iter().filter(|sample| sample.actual_ns() > 100_000).count();
        assert!(late.abs_diff(hit) <= 1, "{late} are late from their actual send");
    }
}

/// At a load of a half four workers hardly queue, and their samples are nearly independent: it
/// takes no more than four times as many. 7,159 independent samples of an exponential tail are
/// known to 5 %.
#[test]
fn honesty_costs_at_most_four_times_the_independent_samples() {
    let subject = Subject::steady(4, time("exp:10us"), 0.5);
    let runs = reports(&subject, &from_10_000_requests(&subject), 40);
    let samples = runs
        .iter()
        .filter_map(|report| report.intended)
        .map(|found| found.samples as f64)
        .sum::<f64>()
        / 40.0;
    assert!(samples < 4.0 * 7_159.0, "{samples}");
}

#[test]
fn a_steady_server_under_heavy_load_passes() {
    let runs = reports(&Subject::steady(1, time("exp:10us"), 0.9), &Settings::new(0.99), 12);
    assert!(count_ok(&runs) >= 11, "{:?}", verdicts(&runs));
}

#[test]
fn a_drifting_server_is_not_ok() {
    let mut subject = Subject::steady(1, time("exp:100us"), 0.5);
    subject.habit = Habit::Drifting { per_s: 0.01 };
    let runs = reports(&subject, &Settings::new(0.99), 40);
    assert!(count_ok(&runs) <= 2, "{:?}", verdicts(&runs));
}

#[test]
fn a_server_that_pauses_for_a_second_in_ten_is_not_ok() {
    let mut subject = Subject::steady(1, time("exp:100us"), 0.5);
    subject.habit = Habit::Pausing { every_ns: 10_000_000_000, for_ns: 1_000_000_000 };
    let runs = reports(&subject, &Settings::new(0.99), 40);
    assert!(count_ok(&runs) <= 2, "{:?}", verdicts(&runs));
}

/// In a pause of 100 ms in every second, the last of its requests to see a latency above x wait for
/// 100 ms - x: the p99 is 90 ms and what the queue adds after the pause, a few per cent at this
/// load.
#[test]
fn the_p99_of_a_server_that_pauses_often_is_that_of_the_pauses_or_not_ok() {
    let mut subject = frozen();
    subject.rate_per_s = 1_000.0;
    let runs = reports(&subject, &Settings::new(0.99), 10);
    for report in runs.iter().filter(|report| report.verdict.is_ok()) {
        let value_ms = report.intended.unwrap().value_ns / 1e6;
        assert!((85.0..=95.0).contains(&value_ms), "{report:?}");
    }
}

#[test]
fn a_client_that_waits_for_a_frozen_server_is_told_to_be_late() {
    let mut subject = frozen();
    subject.connections = 1;
    let report = subject.measure(Settings::new(0.99), 1).unwrap();
    assert!(matches!(report.verdict.reasons()[0], Reason::ClientLate { .. }), "{}", report.verdict);
    // The actual clock hides the pauses, and the intended one does not.
    assert!(report.actual.unwrap().value_ns < 1e6 && report.intended.unwrap().value_ns > 80e6);
}

#[test]
fn a_late_client_gets_more_connections_up_to_the_limit() {
    let mut subject = frozen();
    subject.connections = 1;
    let mut settings = Settings::new(0.99);
    settings.limits.connections_max = 4;
    let report = subject.measure(settings, 1).unwrap();
    let raised: Vec<_> =
        report.tried.iter().filter(|tried| matches!(tried, Correction::Connections(_))).collect();
    assert_eq!(raised, [&Correction::Connections(2), &Correction::Connections(4)]);
    assert_eq!(report.setup.connections, 4);
}

#[test]
fn a_seed_gives_its_report_again() {
    let subject = Subject::steady(1, time("exp:100us"), 0.5);
    let settings = from_10_000_requests(&subject);
    assert_eq!(subject.measure(settings.clone(), 9), subject.measure(settings, 9));
}

/// At least 35 of 40 intervals contain `exact_ns`, and all are reached.
fn check_coverage(subject: &Subject, exact_ns: f64) -> Vec<Report> {
    let runs = reports(subject, &from_10_000_requests(subject), 40);
    let found = |report: &Report| report.intended.filter(|_| report.verdict.is_ok());
    let covered = runs
        .iter()
        .filter_map(found)
        .filter(|found| (found.low_ns..=found.high_ns).contains(&exact_ns))
        .count();
    let missed = count_ok(&runs) - covered;
    assert!(
        covered >= 35 && missed <= 3,
        "{subject:?}: {covered} cover and {missed} do not; {:?}",
        verdicts(&runs)
    );
    runs
}

/// At least 19 of 20 intervals contain `exact_ns`, and all are reached.
fn check_loop(runs: &[Report], exact_ns: f64) {
    let is_covered = |report: &&Report| {
        report.intended.is_some_and(|found| (found.low_ns..=found.high_ns).contains(&exact_ns))
    };
    let covered = runs.iter().filter(is_covered).count();
    assert!(covered >= 19 && count_ok(runs) >= 19, "{covered} of {:?}", verdicts(runs));
}

/// Looks from 10,000 requests on, without a limit: the lengths are those that the percentile needs,
/// not those of a clock.
fn from_10_000_requests(subject: &Subject) -> Settings {
    let mut settings = Settings::new(0.99);
    let first_ns = (10_000.0 / subject.rate_per_s * 1e9) as u64;
    settings.limits.warmup_min_ns = first_ns;
    settings.limits.warmup_max_ns = 100 * first_ns;
    settings.limits.measure_min_ns = first_ns;
    settings.limits.measure_max_ns = 10_000 * first_ns;
    settings
}

/// 100 ms in every second, otherwise fast.
fn frozen() -> Subject {
    let mut subject = Subject::steady(1, time("exp:10us"), 0.1);
    subject.habit = Habit::Pausing { every_ns: 1_000_000_000, for_ns: 100_000_000 };
    subject
}

fn reports(subject: &Subject, settings: &Settings, runs: u64) -> Vec<Report> {
    (0..runs).map(|seed| subject.measure(settings.clone(), seed).unwrap()).collect()
}

fn count_ok(runs: &[Report]) -> usize {
    runs.iter().filter(|report| report.verdict.is_ok()).count()
}

fn verdicts(runs: &[Report]) -> Vec<String> {
    runs.iter().map(|report| report.verdict.to_string()).collect()
}

fn time(text: &str) -> Distribution {
    Distribution::parse(text, Unit::Time).unwrap()
}
