//! The published curves of request cloning: 6 servers of 15 workers, Exp(25 us), one copy in a
//! hundred 15 times as slow.
//!
//! The reference values come from single runs of at least 0.6 M requests. Up to a load of 0.8 a p99
//! may differ by 5 % and a mean by 2 %. Beyond, where a p99 varies by 10 to 25 % from run to run, a
//! published value has to be one that a run of ours could have given: within three standard
//! deviations of single runs, over several seeds.

use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_sim::cloning::{Config, Copies, Discard, Outcome, Scheme, Slots, simulate};
use tailcut_sim::sojourn::{Estimate, Figures};

#[test]
fn random_agrees_with_the_table() {
    check_latencies(
        Scheme::None,
        &[
            (0.1, 147.6, Some(33.4)),
            (0.2, 148.1, None),
            (0.3, 147.8, None),
            (0.4, 147.9, None),
            (0.5, 148.1, None),
            (0.6, 148.6, None),
            (0.7, 151.7, Some(34.7)),
            // 157 to 171.
            (0.8, 164.0, Some(38.5)),
        ],
    );
    check_plausible_mean(&config(Scheme::None, 0.9), 55.0);
}

#[test]
fn cclone_agrees_with_the_table() {
    let rows =
        [(0.1, 64.4, Some(17.7)), (0.2, 64.4, None), (0.3, 65.0, None), (0.4, 72.7, Some(20.7))];
    check_latencies(Scheme::CClone, &rows);
}

#[test]
fn netclone_agrees_with_the_table() {
    check_latencies(
        Scheme::NetClone,
        &[
            (0.1, 64.8, Some(18.1)),
            (0.2, 65.0, Some(18.1)),
            (0.3, 69.6, Some(18.7)),
            (0.4, 86.7, Some(21.1)),
            (0.5, 107.0, Some(24.8)),
            (0.6, 122.8, Some(28.8)),
            (0.7, 139.3, Some(32.9)),
            // 154 to 166.
            (0.8, 160.0, Some(39.0)),
        ],
    );
    check_plausible_mean(&config(Scheme::NetClone, 0.9), 61.0);
}

#[test]
fn racksched_agrees_with_the_table() {
    check_latencies(
        Scheme::RackSched,
        &[
            (0.1, 147.6, None),
            (0.4, 147.8, None),
            (0.6, 148.2, None),
            (0.7, 149.2, None),
            (0.8, 148.4, Some(34.1)),
        ],
    );
    check_plausible_mean(&config(Scheme::RackSched, 0.9), 36.3);
    check_plausible_mean(&config(Scheme::RackSched, 0.95), 41.9);
}

#[test]
fn netclone_with_racksched_agrees_with_the_table() {
    check_latencies(
        Scheme::NetCloneRackSched,
        &[
            (0.1, 64.8, None),
            (0.2, 65.0, None),
            (0.3, 68.7, None),
            (0.4, 83.9, None),
            (0.5, 101.9, None),
            (0.6, 118.6, None),
            (0.7, 129.2, Some(30.3)),
            (0.8, 139.3, Some(33.3)),
        ],
    );
    check_plausible_mean(&config(Scheme::NetCloneRackSched, 0.9), 37.2);
    check_plausible_mean(&config(Scheme::NetCloneRackSched, 0.95), 43.2);
}

/// Check 7 asks for 0.02 at the shares of clones. The other two are printed with two digits, hence
/// 0.015.
#[test]
fn netclone_clones_and_discards_as_in_the_table() {
    for (load, cloned, discarded, utilisation) in [
        (0.1, 1.000, 0.0, 0.20),
        (0.2, 0.999, 0.0, 0.40),
        (0.3, 0.973, 0.009, 0.59),
        (0.4, 0.865, 0.04, 0.73),
        (0.5, 0.694, 0.09, 0.82),
        (0.6, 0.517, 0.135, 0.87),
        (0.7, 0.354, 0.175, 0.90),
        (0.8, 0.20, 0.20, 0.93),
        (0.9, 0.074, 0.20, 0.95),
        (0.95, 0.02, 0.20, 0.96),
    ] {
        let outcome = run(&config(Scheme::NetClone, load), 1);
        check_near(&format!("clone share at {load}"), outcome.clone_share(), cloned, 0.02);
        check_near(
            &format!("discarded share at {load}"),
            outcome.discarded_share(),
            discarded,
            0.015,
        );
        check_near(&format!("utilisation at {load}"), outcome.utilisation, utilisation, 0.015);
    }
}

/// Check 5.
#[test]
fn netclone_completes_what_is_offered() {
    for load in [0.1, 0.5, 0.8, 0.9, 0.95] {
        check_near(
            &format!("goodput at {load}"),
            run(&config(Scheme::NetClone, load), 2).goodput_share(),
            1.0,
            0.005,
        );
    }
}

/// Check 6.
#[test]
fn netclone_gains_as_published() {
    for (load, gain) in [(0.1, 2.28), (0.3, 2.12), (0.5, 1.38), (0.7, 1.09)] {
        let p99 = |scheme| average(&config(scheme, load), seeds_at(load)).p99;
        check_ratio(
            &format!("p99 gain at {load}"),
            p99(Scheme::None) / p99(Scheme::NetClone),
            gain,
            0.05,
        );
    }
}

/// Check 8: two choices bring the tail down at high load, and cloning alone does not.
#[test]
fn schemes_are_in_order_at_high_load() {
    let p99 = |scheme| average(&config(scheme, 0.9), 3).p99;
    let [random, netclone] = [Scheme::None, Scheme::NetClone].map(p99);
    let [racksched, both] = [Scheme::RackSched, Scheme::NetCloneRackSched].map(p99);
    for slow in [random, netclone] {
        assert!(
            slow > 1.5 * racksched && slow > 1.5 * both,
            "{random} {netclone} {racksched} {both}"
        );
    }
    check_ratio("RackSched by NetClone with RackSched", racksched / both, 1.0, 0.05);
}

#[test]
fn the_filter_leaks_nothing_at_three_million_a_second() {
    let outcome = run(&config(Scheme::NetClone, 0.95), 3);
    check_near("offered by 3 M/s", outcome.offered_per_s / 3e6, 1.0, 0.001);
    assert_eq!(outcome.counts.duplicates, 0);
    assert!(outcome.counts.filtered > 1000, "{:?}", outcome.counts);
}

/// Published: the p99 rises by 0 to 5 %, the mean by 2 to 5 %, in whole percents. At 0.8 the p99 of
/// one run varies by 3 %, so that only the mean is looked at.
#[test]
fn without_discards_latency_rises_a_little() {
    for load in [0.5, 0.6, 0.7, 0.8] {
        let kept = Config { discard: Discard::Off, ..config(Scheme::NetClone, load) };
        let (with, without) = (average(&config(Scheme::NetClone, load), 4), average(&kept, 4));
        let (mean, p99) = (without.mean / with.mean, without.p99 / with.p99);
        assert!((1.015..1.055).contains(&mean), "mean {mean} at {load}");
        assert!(load > 0.75 || (0.995..1.055).contains(&p99), "p99 {p99} at {load}");
    }
}

/// A clone escapes jitter alone where both copies share their base.
#[test]
fn copies_of_one_base_gain_little() {
    let shared = |load| Config { copies: Copies::Shared, ..config(Scheme::NetClone, load) };
    for (load, p99, gain) in [
        (0.2, Some(120.4), 1.23),
        (0.4, Some(123.5), 1.20),
        (0.6, Some(134.5), 1.09),
        (0.8, None, 0.99),
    ] {
        let [random, netclone] = [config(Scheme::None, load), shared(load)]
            .map(|config| average(&config, seeds_at(load)).p99);
        check_ratio(&format!("p99 gain at {load}"), random / netclone, gain, 0.05);
        if let Some(p99) = p99 {
            check_ratio(&format!("p99 at {load}"), netclone, p99, 0.05);
        }
    }
    // The run behind 0.8 had a slow baseline too: 171 us, by its gain. Such runs are rare, hence
    // more seeds and the full length.
    let full = Config { requests: 600_000, ..shared(0.8) };
    check_plausible("p99 at 0.8", &p99s(&full, 16), 173.0);
    let [random, netclone] =
        [config(Scheme::None, 0.2), shared(0.2)].map(|config| average(&config, 1).mean);
    check_ratio("mean gain at 0.2", random / netclone, 1.12, 0.02);
}

#[test]
fn copies_of_one_bimodal_base_gain_little() {
    let service = service("bimodal:25us:250us:0.9");
    let random = Config::new(Scheme::None, vec![15; 6], service, 0.2);
    let shared = Config { scheme: Scheme::NetClone, copies: Copies::Shared, ..random.clone() };
    check_ratio("random", average(&random, 1).mean, 59.0, 0.02);
    check_ratio("shared", average(&shared, 1).mean, 52.4, 0.02);
}

/// One outstanding request a server leaves 14 of its 15 workers idle.
#[test]
fn laedge_with_a_slot_a_server_agrees_with_its_line() {
    for (rate, p99) in [(13e3, 73.0), (53e3, 115.0)] {
        check_ratio(&format!("p99 at {rate}"), average(&laedge(rate), 1).p99, p99, 0.05);
    }
    for (rate, p99) in [(105e3, 246.0), (131e3, 614.0)] {
        check_plausible(&format!("p99 at {rate}"), &p99s(&laedge(rate), 5), p99);
    }
}

#[test]
fn laedge_with_a_slot_a_server_saturates_at_a_sixteenth_of_the_workers() {
    let outcome = run(&laedge(210e3), 1);
    let rate = outcome.goodput_share() * outcome.offered_per_s;
    assert!((155e3..=158e3).contains(&rate), "{rate}");
    // Nobody is idle, so nothing is cloned and nearly everything queues.
    assert!(outcome.clone_share() < 0.001 && outcome.counts.held > 350_000, "{:?}", outcome.counts);
}

#[test]
fn laedge_with_a_slot_a_worker_is_bound_by_its_coordinator() {
    // Two packets of 0.5 us for a request that is not cloned: 1 M/s.
    let mut config = laedge(900e3);
    config.coordinator.slots = Slots::Worker;
    check_near("goodput at 0.9 M/s", run(&config, 1).goodput_share(), 1.0, 0.005);
    let beyond = Config { load: config.load * 1.2, ..config.clone() };
    assert!(run(&beyond, 1).goodput_share() < 0.95);
    let mut threaded = beyond;
    threaded.coordinator.threads = 15;
    check_near("goodput at 1.08 M/s of 15 threads", run(&threaded, 1).goodput_share(), 1.0, 0.005);
}

fn service(text: &str) -> Distribution {
    Distribution::parse(text, Unit::Time).expect("the constant is in the grammar")
}

fn config(scheme: Scheme, load: f64) -> Config {
    let requests = 450_000;
    Config { requests, ..Config::new(scheme, vec![15; 6], service("exp:25us"), load) }
}

/// 5 servers, because one of the machines is the coordinator.
fn laedge(rate_per_s: f64) -> Config {
    let config = Config { servers: vec![15; 5], requests: 400_000, ..config(Scheme::Laedge, 1.0) };
    let load = rate_per_s / config.capacity_per_s().expect("the mean is finite");
    Config { load, ..config }
}

/// A p99 of 400,000 requests varies by less than 1 % up to a load of 0.65, and by 1 to 3 % up to
/// 0.8.
fn seeds_at(load: f64) -> u64 {
    if load < 0.65 { 1 } else { 4 }
}

fn run(config: &Config, seed: u64) -> Outcome {
    simulate(config, seed).expect("the configuration is complete")
}

/// The figures of each seed, us.
fn runs(config: &Config, seeds: u64) -> Vec<Figures> {
    (1..=seeds).map(|seed| run(config, seed).latency.figures(1e6)).collect()
}

fn p99s(config: &Config, seeds: u64) -> Vec<f64> {
    runs(config, seeds).iter().map(|figures| figures.p99).collect()
}

/// The mean and the p99 over seeds, us.
fn average(config: &Config, seeds: u64) -> Figures {
    let runs = runs(config, seeds);
    let of = |figure: fn(&Figures) -> f64| {
        Estimate::of(&runs.iter().map(figure).collect::<Vec<_>>()).value
    };
    Figures {
        mean: of(|figures| figures.mean),
        p99: of(|figures| figures.p99),
        ..Figures::default()
    }
}

/// Rows of load, p99 and mean, us.
fn check_latencies(scheme: Scheme, rows: &[(f64, f64, Option<f64>)]) {
    for &(load, p99, mean) in rows {
        let found = average(&config(scheme, load), seeds_at(load));
        check_ratio(&format!("{scheme:?} p99 at {load}"), found.p99, p99, 0.05);
        if let Some(mean) = mean {
            check_ratio(&format!("{scheme:?} mean at {load}"), found.mean, mean, 0.02);
        }
    }
}

fn check_plausible_mean(config: &Config, published: f64) {
    let means: Vec<f64> = runs(config, 5).iter().map(|figures| figures.mean).collect();
    check_plausible(&format!("{:?} mean at {}", config.scheme, config.load), &means, published);
}

/// One more run would give the published value with no more than three standard deviations.
fn check_plausible(what: &str, runs: &[f64], published: f64) {
    let Estimate { value, standard_error } = Estimate::of(runs);
    let deviation = standard_error.expect("there are several seeds") * (runs.len() as f64).sqrt();
    assert!(
        (published - value).abs() <= 3.0 * deviation,
        "{what}: {published} published, {runs:?} here"
    );
}

fn check_ratio(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found / expected - 1.0).abs() <= tolerance,
        "{what}: {found}, expected {expected} within {tolerance} of it"
    );
}

fn check_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{what}: {found}, expected {expected} within {tolerance}"
    );
}
