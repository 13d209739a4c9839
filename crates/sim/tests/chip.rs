//! The chip against the published tables, and where those are noise, against theory.
//!
//! Everything is held to 3 %. Two tables carry less than that: at a load of 0.9 the published 99th percentiles are of single
//! runs, and Masstree's throughputs have one or two digits. The work of the generalised extreme values is left out, because its
//! variance is infinite and its tail does not converge.

use tailcut_measure::queueing::{MDk, Sojourn};
use tailcut_sim::chip::published::{TAIL_CHIPS, TAILS, THROUGHPUT, THROUGHPUT_CHIPS, TailRow, ThroughputRow};
use tailcut_sim::chip::workload::Preset;
use tailcut_sim::chip::{Chip, Layout, Point, simulate, slo_throughput};

#[test]
fn tails_up_to_a_load_of_0_7_are_the_published_ones() {
    for row in tails().filter(|row| row.load <= 0.7) {
        for (chip, published_ns) in TAIL_CHIPS.into_iter().zip(row.p99_ns) {
            let p99_ns = mean(&p99s_ns(row.preset, chip, row.load, (300_000, 5)));
            check(&format!("{chip}, {} at {}", row.preset, row.load), p99_ns, published_ns);
        }
    }
}

/// Runs of 400,000 messages, which is the length that the published table names: the published one is within two standard
/// deviations of a run from the mean, and within 3 % but for four cells. Two of those are further than that from the exact value,
/// see below, and a third differs from the first as published, by 2.1 %, where all see the same messages.
#[test]
fn tails_at_a_load_of_0_9_are_the_published_ones_within_the_noise_of_a_run() {
    let ideal = Chip::with_threshold(Layout::Ideal, 1);
    let noisy = [
        (Preset::Fixed, ideal),
        (Preset::Fixed, Chip::with_threshold(Layout::Single, 2)),
        (Preset::Fixed, Chip::with_threshold(Layout::Private, 1)),
        (Preset::Exponential, Chip::with_threshold(Layout::Single, 1)),
    ];
    for row in tails().filter(|row| row.load > 0.7) {
        for (chip, published_ns) in TAIL_CHIPS.into_iter().zip(row.p99_ns) {
            let runs = p99s_ns(row.preset, chip, row.load, (400_000, 8));
            let deviations = (published_ns - mean(&runs)) / deviation(&runs);
            assert!(deviations.abs() < 2.0, "{chip}, {}: {deviations} standard deviations", row.preset);
            if !noisy.contains(&(row.preset, chip)) {
                check(&format!("{chip}, {} at {}", row.preset, row.load), mean(&runs), published_ns);
            }
        }
    }
    let ratio = |chip| mean(&p99s_ns(Preset::Fixed, chip, 0.9, (400_000, 8)));
    check("threshold 2 over ideal", ratio(Chip::with_threshold(Layout::Single, 2)) / ratio(ideal), 1_965.0 / 1_925.0);
}

#[test]
fn the_ideal_queue_at_a_load_of_0_9_is_theory() {
    let exact_ns = MDk::new(16, 0.9).unwrap().percentile(0.99) * SERVICE_NS;
    check("M/D/16", mean(&p99s_ns(Preset::Fixed, Chip::with_threshold(Layout::Ideal, 1), 0.9, (1_000_000, 5))), exact_ns);
}

/// A private queue adds the way of its messages, 31 ns and 1.5 for each of 2.5 hops on average, and nothing else.
#[test]
fn private_queues_at_a_load_of_0_9_are_theory() {
    let exact_ns = MDk::new(1, 0.9).unwrap().percentile(0.99) * SERVICE_NS + 31.0 + 3.75;
    check("M/D/1", mean(&p99s_ns(Preset::Fixed, Chip::with_threshold(Layout::Private, 1), 0.9, (1_000_000, 10))), exact_ns);
}

/// With threshold 1 the bubble is a part of the service: 24.5 ns and two ways over 3.25 hops on average. A message is known at the
/// dispatcher after 14 ns and one row on average.
#[test]
fn threshold_1_is_a_single_queue_with_the_bubble_in_its_service() {
    let service_ns = SERVICE_NS + 24.5 + 3.0 * 3.25;
    let exact_ns = MDk::new(16, 0.9 * service_ns / SERVICE_NS).unwrap().percentile(0.99) * service_ns + 14.0 + 1.5;
    let runs = points(Preset::Fixed, Chip::with_threshold(Layout::Single, 1), 0.9, (1_000_000, 5));
    check("the replenish", mean(&runs.iter().map(|run| run.replenished_ns.p99).collect::<Vec<_>>()), exact_ns);
}

/// At half load and with fixed work nobody waits, and one message in 64 goes the longest way: 45 ns to the core, 14.5 back.
#[test]
fn the_published_tails_end_with_the_core_loop() {
    let points = points(Preset::Fixed, Chip::with_threshold(Layout::Single, 2), 0.5, (300_000, 1));
    // The histogram keeps a time to 0.05 %.
    assert!((points[0].latency_ns.p99 - 865.0).abs() < 0.5, "{points:?}");
    assert!((points[0].replenished_ns.p99 - 879.5).abs() < 0.5, "{points:?}");
}

/// The table's 4x4 is at threshold 2: at threshold 1 its throughput would be 4 % lower.
#[test]
fn the_published_rows_have_threshold_2() {
    let chip = Chip::with_threshold(Layout::Rows, 1);
    assert!(p99_ns(Preset::Fixed, chip, 18.3 * 0.97 / Preset::Fixed.workload().capacity_mrps(), 300_000) > 8_200.0);
}

#[test]
fn throughput_under_the_limit_is_the_published_one() {
    for row in THROUGHPUT.iter().filter(|row| !matches!(row.preset, Preset::ExtremeValue | Preset::Masstree)) {
        for (chip, published_mrps) in THROUGHPUT_CHIPS.into_iter().zip(row.mrps) {
            check_throughput(row, chip, published_mrps * 0.97..published_mrps * 1.03, 300_000);
        }
    }
}

/// Its tail hangs on the scans, one message in a hundred, so the runs are longer. Each number stands for all that round to it.
#[test]
fn throughput_of_masstree_is_the_published_one() {
    for row in THROUGHPUT.iter().filter(|row| row.preset == Preset::Masstree) {
        for (chip, published_mrps) in THROUGHPUT_CHIPS.into_iter().zip(row.mrps) {
            check_throughput(row, chip, (published_mrps - 0.05) * 0.97..(published_mrps + 0.05) * 1.03, 1_000_000);
        }
    }
}

/// The search finds what the limits of the other tests enclose.
#[test]
fn the_search_finds_the_throughput_under_the_limit() {
    let chip = Chip::with_threshold(Layout::Single, 2);
    let found = slo_throughput(chip, &Preset::Herd.workload(), 5_500.0, 300_000, 1).unwrap();
    check("HERD", found.throughput_mrps, 28.6);
    assert!((found.load * Preset::Herd.workload().capacity_mrps() - found.throughput_mrps).abs() < 1e-9);
    assert!(p99_ns(Preset::Herd, chip, found.load, 300_000) <= 5_500.0);
    assert!(p99_ns(Preset::Herd, chip, found.load + 0.0005, 300_000) > 5_500.0);
}

/// The mean of the 99th percentiles is within the limit at the lower throughput and beyond it at the upper one.
fn check_throughput(row: &ThroughputRow, chip: Chip, mrps: std::ops::Range<f64>, requests: usize) {
    let capacity_mrps = row.preset.workload().capacity_mrps();
    let p99_ns = |mrps: f64| mean(&p99s_ns(row.preset, chip, mrps / capacity_mrps, (requests, 3)));
    let (below_ns, above_ns) = (p99_ns(mrps.start), p99_ns(mrps.end));
    assert!(below_ns <= row.slo_ns, "{chip}, {}: {below_ns} ns at {:.3} M/s", row.preset, mrps.start);
    assert!(above_ns > row.slo_ns, "{chip}, {}: {above_ns} ns at {:.3} M/s", row.preset, mrps.end);
}

fn check(what: &str, obtained: f64, expected: f64) {
    let error = obtained / expected - 1.0;
    assert!(error.abs() < 0.03, "{what}: {obtained:.1}, which is {:+.1} % off {expected:.1}", error * 100.0);
}

/// The rows whose tail converges.
fn tails() -> impl Iterator<Item = TailRow> {
    TAILS.into_iter().filter(|row| row.preset != Preset::ExtremeValue)
}

fn p99_ns(preset: Preset, chip: Chip, load: f64, requests: usize) -> f64 {
    points(preset, chip, load, (requests, 1))[0].latency_ns.p99
}

fn p99s_ns(preset: Preset, chip: Chip, load: f64, runs: (usize, u64)) -> Vec<f64> {
    points(preset, chip, load, runs).iter().map(|point| point.latency_ns.p99).collect()
}

fn points(preset: Preset, chip: Chip, load: f64, (requests, seeds): (usize, u64)) -> Vec<Point> {
    let workload = preset.workload();
    (1..=seeds).map(|seed| simulate(chip, &workload, load, requests, seed).expect("the point is valid")).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64).sqrt()
}

/// Core loop and fixed work.
const SERVICE_NS: f64 = 820.0;
