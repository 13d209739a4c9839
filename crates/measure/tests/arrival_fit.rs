//! The test of arrivals is as strict at a thousand requests a second as at a hundred thousand: right loads pass, and loads of
//! which a tenth is bursts do not.

use rand::RngExt;
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::generator::generator;
use tailcut_measure::statistics::arrival_fit::{ArrivalFit, Asked, Lateness};
use tailcut_measure::statistics::departures::Departures;

/// At most 2 % of right loads fail; here, none of 100 at each rate and shape.
#[test]
fn a_right_load_passes_at_every_rate() {
    for process in PROCESSES {
        for rate_per_s in RATES_PER_S {
            let wrong = (0..100).filter(|&seed| is_wrong(process, rate_per_s, |gaps| gaps.to_vec(), seed)).count();
            assert!(wrong <= 2, "{process} at {rate_per_s}: {wrong} of 100");
        }
    }
}

/// At least 95 % of loads fail of which a tenth of the gaps is 1 us, as of sends that were missed and are caught up with.
#[test]
fn bursts_are_found_at_every_rate() {
    for process in PROCESSES {
        for rate_per_s in RATES_PER_S {
            let found = (0..100).filter(|&seed| is_wrong(process, rate_per_s, |gaps| with_bursts(gaps, seed), seed)).count();
            assert!(found >= 95, "{process} at {rate_per_s}: {found} of 100");
        }
    }
}

/// A send over TCP takes up to 14 us where the kernel does the receiver's work within it, and what comes due meanwhile waits.
#[test]
fn a_sender_passes_that_is_late_by_what_a_send_takes() {
    for process in PROCESSES {
        for (rate_per_s, send_ns) in SENDERS {
            let wrong = (0..100).filter(|&seed| departs_wrong(process, rate_per_s, (send_ns, 0.0), seed)).count();
            assert!(wrong <= 2, "{process} at {rate_per_s}, {send_ns} ns a send: {wrong} of 100");
        }
    }
}

/// A sender that stands still for the time of ten requests now and then, as if for every tenth of them, and catches up.
#[test]
fn a_sender_is_found_that_holds_a_tenth_of_its_requests_back() {
    for process in PROCESSES {
        for (rate_per_s, send_ns) in SENDERS {
            let found = (0..100).filter(|&seed| departs_wrong(process, rate_per_s, (send_ns, 10.0), seed)).count();
            assert!(found >= 95, "{process} at {rate_per_s}, {send_ns} ns a send: {found} of 100");
        }
    }
}

#[test]
fn gaps_of_another_shape_are_found() {
    let asked = Asked::new(&Process::Fixed, 1e4).unwrap();
    assert!(ArrivalFit::of(&gaps("poisson", 1e4, 1), &asked).unwrap().is_wrong());
    let asked = Asked::new(&Process::Poisson, 1e4).unwrap();
    assert!(ArrivalFit::of(&gaps("fixed", 1e4, 1), &asked).unwrap().is_wrong());
    // The shape is right and the rate is a third too low.
    assert!(ArrivalFit::of(&gaps("poisson", 1.5e4, 1), &asked).unwrap().is_wrong());
}

#[test]
fn a_few_gaps_are_not_judged() {
    let asked = Asked::new(&Process::Poisson, 1e4).unwrap();
    assert_eq!(ArrivalFit::of(&gaps("poisson", 1e4, 1)[..499], &asked), None);
}

#[test]
fn lateness_is_told_by_its_percentiles_and_by_what_was_overtaken() {
    let mut late_ns: Vec<u64> = (0..100).collect();
    let expected = Lateness { p50_ns: 50, p99_ns: 99, max_ns: 99, overtaken: 0.25 };
    let found = Lateness::of(&mut late_ns, 74.0);
    assert_eq!(Lateness { overtaken: 0.25, ..found }, expected);
    assert!((found.overtaken - 0.25).abs() < 1e-12);
}

fn is_wrong(process: &str, rate_per_s: f64, sent: impl Fn(&[f64]) -> Vec<f64>, seed: u64) -> bool {
    let asked = Asked::new(&Process::parse(process).unwrap(), rate_per_s).unwrap();
    ArrivalFit::of(&sent(&gaps(process, rate_per_s, seed)), &asked).unwrap().is_wrong()
}

/// Ten seconds of gaps in ns, and at most 20,000.
fn gaps(process: &str, rate_per_s: f64, seed: u64) -> Vec<f64> {
    let process = Process::parse(process).unwrap();
    let count = ((rate_per_s * 10.0) as usize).min(20_000);
    let times: Vec<u64> = Arrivals::new(process, rate_per_s, generator(seed, 0)).unwrap().take(count).collect();
    times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
}

/// A tenth of the gaps becomes 1 us; the rest takes up their time, so that the rate stays.
fn with_bursts(gaps: &[f64], seed: u64) -> Vec<f64> {
    let mut rng = generator(seed, 1);
    let mut burst: Vec<f64> = gaps.iter().map(|&gap| if rng.random::<f64>() < 0.1 { 1_000.0 } else { gap }).collect();
    let scale = gaps.iter().sum::<f64>() / burst.iter().sum::<f64>();
    burst.iter_mut().filter(|gap| **gap != 1_000.0).for_each(|gap| *gap *= scale);
    burst
}

/// The verdict on a sender that takes so long for a send, and stands still for so many mean gaps in each ten times as many.
fn departs_wrong(process: &str, rate_per_s: f64, (send_ns, still): (u64, f64), seed: u64) -> bool {
    let mut rng = generator(seed, 2);
    let gap_ns = 1e9 / rate_per_s;
    let (mut departures, mut intended_ns, mut free_ns, mut next_stop_ns) = (Departures::default(), 0, 0, 0.0);
    for gap in gaps(process, rate_per_s, seed) {
        intended_ns += gap as u64;
        if still > 0.0 && intended_ns as f64 > next_stop_ns {
            free_ns = free_ns.max(intended_ns + (still * gap_ns) as u64);
            next_stop_ns = intended_ns as f64 + 10.0 * still * gap_ns;
        }
        let sent_ns = free_ns.max(intended_ns) + rng.random_range(0..500);
        departures.note([(intended_ns, sent_ns)]);
        free_ns = sent_ns + send_ns * rng.random_range(90..110) / 100;
    }
    departures.take(&Asked::new(&Process::parse(process).unwrap(), rate_per_s).unwrap()).0.unwrap().is_wrong()
}

const PROCESSES: [&str; 6] = ["poisson", "fixed", "pareto:0:16.0292:0.154971", "gamma:4:1", "uni:2", "bimodal:1:3:0.5"];
const RATES_PER_S: [f64; 3] = [1e3, 1e4, 1e5];
/// Requests a second, and what a send takes, ns.
const SENDERS: [(f64, u64); 6] = [(1e3, 1_000), (1e3, 14_000), (1e4, 5_000), (1e4, 14_000), (1e5, 1_000), (1e5, 2_000)];
