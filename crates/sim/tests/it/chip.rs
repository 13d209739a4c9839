//! The chip against the reference tables, and where those are noise, against theory.
//!
//! Everything is held to 3 %. Two tables carry less than that: at a load of 0.9 the reference 99th
//! percentiles are of single runs, and Masstree's throughputs have one or two digits. The work of
//! the generalised extreme values is left out, because its variance is infinite and its tail does
//! not converge.

use tailcut_measure::queueing::{MDk, Sojourn};
use tailcut_sim::chip::reference::{
    TAIL_CHIPS, TAILS, THROUGHPUT, THROUGHPUT_CHIPS, TailRow, ThroughputRow,
};
use tailcut_sim::chip::workload::Preset;
use tailcut_sim::chip::{Chip, Layout, Point, simulate, slo_throughput};

#[test]
fn tails_up_to_a_load_of_0_7_are_the_reference_ones() {
    for row in tails().filter(|row| row.load <= 0.7) {
        for (chip, reference_ns) in TAIL_CHIPS.into_iter().zip(row.p99_ns) {
            let p99_ns = mean(&p99s_ns(row.preset, chip, row.load, (250_000, 4)));
            check(&format!("{chip}, {} at {}", row.preset, row.load), p99_ns, reference_ns);
        }
    }
}

/// Runs of 400,000 messages, the length that the reference table names for one row: the reference
/// is within two standard deviations of a run from the mean, and within 3 % but for four cells. Two
/// of those, the ideal queue and private queues with fixed work, are further than that from the
/// exact value, see below.
#[test]
fn tails_at_a_load_of_0_9_are_the_reference_ones_within_the_noise_of_a_run() {
    let noisy = [
        (Preset::Fixed, Layout::Ideal, 1),
        (Preset::Fixed, Layout::Single, 2),
        (Preset::Fixed, Layout::Private, 1),
        (Preset::Exponential, Layout::Single, 1),
    ];
    for row in tails().filter(|row| row.load > 0.7) {
        for (chip, reference_ns) in TAIL_CHIPS.into_iter().zip(row.p99_ns) {
            let runs = p99s_ns(row.preset, chip, row.load, (400_000, 8));
            let deviations = (reference_ns - mean(&runs)) / deviation(&runs);
            assert!(
                deviations.abs() < 2.0,
                "{chip}, {}: {deviations} standard deviations",
                row.preset
            );
            if !noisy.contains(&(row.preset, chip.layout, chip.threshold.get())) {
                check(
                    &format!("{chip}, {} at {}", row.preset, row.load),
                    mean(&runs),
                    reference_ns,
                );
            }
        }
    }
}

/// The third of those cells: where all see the same messages, threshold 2 adds to the ideal queue's
/// tail what it adds there.
#[test]
fn threshold_2_adds_the_reference_share_to_the_ideal_tail() {
    let p99_ns = |chip| mean(&p99s_ns(Preset::Fixed, chip, 0.9, (400_000, 4)));
    check("threshold 2 over ideal", p99_ns(SINGLE_2) / p99_ns(IDEAL), 1_965.0 / 1_925.0);
}

#[test]
fn the_ideal_queue_at_a_load_of_0_9_is_theory() {
    let exact_ns = MDk::new(16, 0.9).unwrap().percentile(0.99) * SERVICE_NS;
    check("M/D/16", mean(&p99s_ns(Preset::Fixed, IDEAL, 0.9, (800_000, 5))), exact_ns);
}

/// A private queue adds the way of its messages, 31 ns and 1.5 for each of 2.5 hops on average, and
/// nothing else.
#[test]
fn private_queues_at_a_load_of_0_9_are_theory() {
    let exact_ns = MDk::new(1, 0.9).unwrap().percentile(0.99) * SERVICE_NS + 31.0 + 3.75;
    check(
        "M/D/1",
        mean(&p99s_ns(
            Preset::Fixed,
            Chip::with_threshold(Layout::Private, 1),
            0.9,
            (1_000_000, 8),
        )),
        exact_ns,
    );
}

/// With threshold 1 the bubble is a part of the service: 24.5 ns and two ways over 3.25 hops on
/// average. A message is known at the dispatcher after 14 ns and one row on average.
#[test]
fn threshold_1_is_a_single_queue_with_the_bubble_in_its_service() {
    let service_ns = SERVICE_NS + 24.5 + 3.0 * 3.25;
    let exact_ns = MDk::new(16, 0.9 * service_ns / SERVICE_NS).unwrap().percentile(0.99)
        * service_ns
        + 14.0
        + 1.5;
    let runs = points(Preset::Fixed, Chip::with_threshold(Layout::Single, 1), 0.9, (800_000, 5));
    check(
        "the replenish",
        mean(&runs.iter().map(|run| run.replenished_ns.p99).collect::<Vec<_>>()),
        exact_ns,
    );
}

/// At half load and with fixed work nobody waits, and one message in 64 goes the longest way: 45 ns
/// to the core, 14.5 back.
#[test]
fn the_reference_tails_end_with_the_core_loop() {
    let points = points(Preset::Fixed, SINGLE_2, 0.5, (300_000, 1));
    // The histogram keeps a time to 0.05 %.
    assert!((points[0].latency_ns.p99 - 865.0).abs() < 0.5, "{points:?}");
    assert!((points[0].replenished_ns.p99 - 879.5).abs() < 0.5, "{points:?}");
}

/// The table's 4x4 is at threshold 2: at threshold 1 its throughput would be 4 % lower.
#[test]
fn the_reference_rows_have_threshold_2() {
    let chip = Chip::with_threshold(Layout::Rows, 1);
    assert!(
        p99_ns(
            Preset::Fixed,
            chip,
            18.3 * 0.97 / Preset::Fixed.workload().capacity_mrps(),
            300_000
        ) > 8_200.0
    );
}

#[test]
fn throughput_under_the_limit_is_the_reference_one() {
    for row in THROUGHPUT
        .iter()
        .filter(|row| !matches!(row.preset, Preset::ExtremeValue | Preset::Masstree))
    {
        for (chip, reference_mrps) in THROUGHPUT_CHIPS.into_iter().zip(row.mrps) {
            check_throughput(row, chip, reference_mrps * 0.97..reference_mrps * 1.03, 250_000);
        }
    }
}

/// Its tail hangs on the scans, one message in a hundred, so the runs are longer. Each number
/// stands for all that round to it.
#[test]
fn throughput_of_masstree_is_the_reference_one() {
    for row in THROUGHPUT.iter().filter(|row| row.preset == Preset::Masstree) {
        for (chip, reference_mrps) in THROUGHPUT_CHIPS.into_iter().zip(row.mrps) {
            if !MASSTREE_NOISY.contains(&(row.slo_ns, chip, reference_mrps)) {
                check_throughput(
                    row,
                    chip,
                    (reference_mrps - 0.05) * 0.97..(reference_mrps + 0.05) * 1.03,
                    600_000,
                );
            }
        }
    }
}

/// The two cells of Masstree that are further off: by four runs of 2 M messages 6.14 +- 0.04 is
/// obtained where 6.4 is reference, and 4.85 +- 0.04 where 5.0 is. The throughput of a run of
/// 400,000 messages, in which 4,000 scans make the tail, has a standard deviation of 2 to 4 %; a
/// run that rounds to the reference number is within two of the mean.
#[test]
fn throughput_of_masstree_is_elsewhere_within_the_noise_of_a_run() {
    let workload = Preset::Masstree.workload();
    for (slo_ns, chip, reference_mrps) in MASSTREE_NOISY {
        let find = |seed| {
            slo_throughput(chip, &workload, slo_ns, 400_000, seed)
                .expect("the point is valid")
                .throughput_mrps
        };
        let runs: Vec<f64> = (1..=5).map(find).collect();
        let deviations = (reference_mrps - 0.05 - mean(&runs)) / deviation(&runs);
        assert!(deviations.abs() < 2.0, "{chip}: {deviations} standard deviations, {runs:?}");
        assert!((mean(&runs) / reference_mrps - 1.0).abs() < 0.06, "{chip}: {runs:?}");
    }
}

/// The search finds what the limits of the other tests enclose.
#[test]
fn the_search_finds_the_throughput_under_the_limit() {
    let chip = SINGLE_2;
    let found = slo_throughput(chip, &Preset::Herd.workload(), 5_500.0, 300_000, 1).unwrap();
    check("HERD", found.throughput_mrps, 28.6);
    assert!(
        (found.load * Preset::Herd.workload().capacity_mrps() - found.throughput_mrps).abs() < 1e-9
    );
    assert!(p99_ns(Preset::Herd, chip, found.load, 300_000) <= 5_500.0);
    assert!(p99_ns(Preset::Herd, chip, found.load + 0.0005, 300_000) > 5_500.0);
}

/// The limit is kept at the lower throughput and not at the upper one, by the median run: so the
/// median run's throughput under the limit lies between.
fn check_throughput(row: &ThroughputRow, chip: Chip, mrps: std::ops::Range<f64>, requests: usize) {
    let capacity_mrps = row.preset.workload().capacity_mrps();
    let p99_ns = |mrps: f64| median(p99s_ns(row.preset, chip, mrps / capacity_mrps, (requests, 3)));
    let (below_ns, above_ns) = (p99_ns(mrps.start), p99_ns(mrps.end));
    assert!(
        below_ns <= row.slo_ns,
        "{chip}, {}: {below_ns} ns at {:.3} M/s",
        row.preset,
        mrps.start
    );
    assert!(above_ns > row.slo_ns, "{chip}, {}: {above_ns} ns at {:.3} M/s", row.preset, mrps.end);
}

fn check(what: &str, obtained: f64, expected: f64) {
    let error = obtained / expected - 1.0;
    assert!(
        error.abs() < 0.03,
        "{what}: {obtained:.1}, which is {:+.1} % off {expected:.1}",
        error * 100.0
    );
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
    (1..=seeds)
        .map(|seed| simulate(chip, &workload, load, requests, seed).expect("the point is valid"))
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64)
        .sqrt()
}

const IDEAL: Chip = Chip::with_threshold(Layout::Ideal, 1);
const SINGLE_2: Chip = Chip::with_threshold(Layout::Single, 2);
/// By limit and chip, with the reference throughput.
const MASSTREE_NOISY: [(f64, Chip, f64); 2] =
    [(75_000.0, SINGLE_2, 6.4), (12_500.0, Chip::with_threshold(Layout::Software, 1), 5.0)];
/// Core loop and fixed work.
const SERVICE_NS: f64 = 820.0;
