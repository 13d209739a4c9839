//! The test of arrivals is as strict at a thousand requests a second as at a hundred thousand:
//! right loads pass, and loads of which a tenth is bursts do not.

use rand::RngExt;
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::generator::generator;
use tailcut_measure::statistics::arrival_fit::{ArrivalFit, Asked, Lateness};
use tailcut_measure::statistics::departures::{DEPARTURES_MAX, Departures, Gaps};

/// At most 2 % of right loads fail; here, none of 100 at each rate and shape.
#[test]
fn a_right_load_passes_at_every_rate() {
    for process in PROCESSES {
        for rate_per_s in RATES_PER_S {
            let wrong = (0..100)
                .filter(|&seed| is_wrong(process, rate_per_s, |gaps| gaps.to_vec(), seed))
                .count();
            assert!(wrong <= 2, "{process} at {rate_per_s}: {wrong} of 100");
        }
    }
}

/// At least 95 % of loads fail of which a tenth of the gaps is 1 us, as of sends that were missed
/// and are caught up with.
#[test]
fn bursts_are_found_at_every_rate() {
    for process in PROCESSES {
        for rate_per_s in RATES_PER_S {
            let found = (0..100)
                .filter(|&seed| is_wrong(process, rate_per_s, |gaps| with_bursts(gaps, seed), seed))
                .count();
            assert!(found >= 95, "{process} at {rate_per_s}: {found} of 100");
        }
    }
}

/// A send over TCP takes up to 14 us where the kernel does the receiver's work within it, and what
/// comes due meanwhile waits.
#[test]
fn a_sender_passes_that_is_late_by_what_a_send_takes() {
    for process in PROCESSES {
        for (rate_per_s, send_ns) in SENDERS {
            let wrong = (0..100)
                .filter(|&seed| {
                    departs_wrong(
                        process,
                        rate_per_s,
                        Sender { send_ns, ..Sender::default() },
                        seed,
                    )
                })
                .count();
            assert!(wrong <= 2, "{process} at {rate_per_s}, {send_ns} ns a send: {wrong} of 100");
        }
    }
}

/// A sender that pauses for the time of ten requests now and then, as if for every tenth of
/// them, and catches up.
#[test]
fn a_sender_is_found_that_holds_a_tenth_of_its_requests_back() {
    for process in PROCESSES {
        for (rate_per_s, send_ns) in SENDERS {
            let found = (0..100)
                .filter(|&seed| {
                    departs_wrong(
                        process,
                        rate_per_s,
                        Sender { send_ns, still: 0.1, from: 0.0 },
                        seed,
                    )
                })
                .count();
            assert!(found >= 95, "{process} at {rate_per_s}, {send_ns} ns a send: {found} of 100");
        }
    }
}

/// A client with room for one request waits for the server, not for its own sends.
#[test]
fn who_waits_for_a_server_is_found() {
    for process in PROCESSES {
        let waits = Sender { send_ns: 200_000, ..Sender::default() };
        let found = (0..100).filter(|&seed| departs_wrong(process, 1e3, waits, seed)).count();
        // Gaps that are hardly ever as short as that do not wait.
        let expected =
            if ["fixed", "gamma:4:1", "bimodal:1:3:0.5"].contains(&process) { 0 } else { 95 };
        assert!(found >= expected, "{process}: {found} of 100");
    }
}

/// More departures than are kept, of which a tenth is bursts, all in the last third.
#[test]
fn bursts_that_come_late_are_found() {
    let late = Sender { send_ns: 1_000, still: 0.3, from: 0.66 };
    let mut gaps =
        departures(&so_many_gaps("poisson", 1e5, 8 * DEPARTURES_MAX, 1), ("poisson", 1e5), late, 1);
    assert!(
        (DEPARTURES_MAX / 4..=DEPARTURES_MAX).contains(&gaps.places.len()),
        "{} gaps",
        gaps.places.len()
    );
    assert!(ArrivalFit::of(&mut gaps.places).unwrap().is_wrong());
}

/// As many senders as a large host has cores, each with too few gaps to be judged alone.
#[test]
fn many_slow_senders_are_judged_together() {
    let judged = |still, seed: u64| {
        let habits = Sender { send_ns: 3_000, still, from: 0.0 };
        let seen = |seed| {
            departures(&gaps("poisson", 31.25, seed), ("poisson", 31.25), habits, seed).places
        };
        let mut places: Vec<f64> = (32 * seed..32 * seed + 32).flat_map(seen).collect();
        ArrivalFit::of(&mut places).unwrap().is_wrong()
    };
    let wrong = (0..100).filter(|&seed| judged(0.0, seed)).count();
    let found = (0..100).filter(|&seed| judged(0.1, seed)).count();
    assert!(wrong <= 2 && found >= 95, "{wrong} of 100 right ones, {found} of 100 with bursts");
}

#[test]
fn gaps_of_another_shape_are_found() {
    let asked = Asked::new(&Process::Fixed, 1e4).unwrap();
    assert!(fit(&gaps("poisson", 1e4, 1), &asked).unwrap().is_wrong());
    let asked = Asked::new(&Process::Poisson, 1e4).unwrap();
    assert!(fit(&gaps("fixed", 1e4, 1), &asked).unwrap().is_wrong());
    // The shape is right and the rate is a third too low.
    assert!(fit(&gaps("poisson", 1.5e4, 1), &asked).unwrap().is_wrong());
}

#[test]
fn a_few_gaps_are_not_judged() {
    let asked = Asked::new(&Process::Poisson, 1e4).unwrap();
    assert_eq!(fit(&gaps("poisson", 1e4, 1)[..499], &asked), None);
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
    fit(&sent(&gaps(process, rate_per_s, seed)), &asked).unwrap().is_wrong()
}

/// Ten seconds of gaps in ns, and at most 20,000.
fn gaps(process: &str, rate_per_s: f64, seed: u64) -> Vec<f64> {
    so_many_gaps(process, rate_per_s, ((rate_per_s * 10.0) as usize).min(20_000), seed)
}

fn so_many_gaps(process: &str, rate_per_s: f64, count: usize, seed: u64) -> Vec<f64> {
    let process = Process::parse(process).unwrap();
    let times: Vec<u64> =
        Arrivals::new(process, rate_per_s, generator(seed, 0)).unwrap().take(count).collect();
    times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
}

/// A tenth of the gaps becomes 1 us; the rest takes up their time, so that the rate stays.
fn with_bursts(gaps: &[f64], seed: u64) -> Vec<f64> {
    let mut rng = generator(seed, 1);
    let mut burst: Vec<f64> =
        gaps.iter().map(|&gap| if rng.random::<f64>() < 0.1 { 1_000.0 } else { gap }).collect();
    let scale = gaps.iter().sum::<f64>() / burst.iter().sum::<f64>();
    burst.iter_mut().filter(|gap| **gap != 1_000.0).for_each(|gap| *gap *= scale);
    burst
}

/// Fit of gaps that are looked at as they are.
fn fit(gaps_ns: &[f64], asked: &Asked) -> Option<ArrivalFit> {
    let mut places: Vec<f64> = asked.places(gaps_ns).collect();
    ArrivalFit::of(&mut places)
}

/// The verdict on one sender.
fn departs_wrong(process: &str, rate_per_s: f64, habits: Sender, seed: u64) -> bool {
    let mut gaps =
        departures(&gaps(process, rate_per_s, seed), (process, rate_per_s), habits, seed);
    ArrivalFit::of(&mut gaps.places).unwrap().is_wrong()
}

/// A sender with habits.
#[derive(Clone, Copy, Default)]
struct Sender {
    /// Duration of a send.
    send_ns: u64,
    /// It pauses for ten mean gaps at a time, and for this share of the time.
    still: f64,
    /// But not before this share of the run.
    from: f64,
}

/// Gaps seen of a sender that was to leave `gaps` of this process and rate.
fn departures(gaps: &[f64], (process, rate_per_s): (&str, f64), habits: Sender, seed: u64) -> Gaps {
    let Sender { send_ns, still, from } = habits;
    let mut rng = generator(seed, 2);
    let gap_ns = 1e9 / rate_per_s;
    let (mut departures, mut intended_ns, mut free_ns) = (Departures::default(), 0, 0);
    let mut next_stop_ns = from * gaps.iter().sum::<f64>();
    let mut sends = Vec::new();
    for gap in gaps {
        intended_ns += *gap as u64;
        if still > 0.0 && intended_ns as f64 > next_stop_ns {
            free_ns = free_ns.max(intended_ns + (10.0 * gap_ns) as u64);
            next_stop_ns = intended_ns as f64 + 10.0 * gap_ns / still;
        }
        let sent_ns = free_ns.max(intended_ns) + rng.random_range(0..500);
        sends.push((intended_ns, sent_ns));
        free_ns = sent_ns + send_ns * rng.random_range(90..110) / 100;
    }
    for (part, sends) in (0..).zip(sends.chunks((rate_per_s / 10.0) as usize)) {
        departures.note(part, sends.iter().copied());
    }
    departures.take(&Asked::new(&Process::parse(process).unwrap(), rate_per_s).unwrap())
}

const PROCESSES: [&str; 6] =
    ["poisson", "fixed", "pareto:0:16.0292:0.154971", "gamma:4:1", "uni:2", "bimodal:1:3:0.5"];
const RATES_PER_S: [f64; 3] = [1e3, 1e4, 1e5];
/// Requests a second, and what a send takes, ns.
const SENDERS: [(f64, u64); 6] =
    [(1e3, 1_000), (1e3, 14_000), (1e4, 5_000), (1e4, 14_000), (1e5, 1_000), (1e5, 2_000)];
