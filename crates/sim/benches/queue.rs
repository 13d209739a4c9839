//! Cost of a request at the request level: requests a second on one core, exponential service, load
//! 0.8.
//!
//! Systems are timed in turns, so that a slow moment of the machine hits all of them, and a rate is
//! the median over the turns.

// A bench reads the clock.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_sim::queue::System;

fn main() {
    let (turns, requests) = if std::env::var_os("TAILCUT_BENCH_QUICK").is_some() {
        (5, 200_000)
    } else {
        (9, 2_000_000)
    };
    let systems = SYSTEMS.map(|(groups, policy)| {
        let service = Distribution::parse("exp:1us", Unit::Time).unwrap();
        let system =
            System { groups, ..System::new(16 / groups, policy.parse().unwrap(), service) };
        system.at_load(0.8).for_requests(requests)
    });
    let mut rates = SYSTEMS.map(|_| Vec::new());
    for turn in 0..turns {
        for (system, rates) in systems.iter().zip(&mut rates) {
            let start = Instant::now();
            let run = system.run(turn).unwrap();
            rates.push(run.requests as f64 / start.elapsed().as_secs_f64() / 1e6);
        }
    }
    println!("request level, {turns} turns of {requests} requests, medians:");
    for ((groups, policy), mut rates) in SYSTEMS.into_iter().zip(rates) {
        rates.sort_unstable_by(f64::total_cmp);
        let goal = if (groups, policy) == (1, "jbsq:2") { "   (at least 10)" } else { "" };
        println!(
            "  {groups:>2}x{:<2} {policy:<7} {:6.1} M requests/s{goal}",
            16 / groups,
            rates[rates.len() / 2]
        );
    }
}

/// Groups of the 16 workers, and the policy before each group.
const SYSTEMS: [(usize, &str); 6] =
    [(1, "jbsq:2"), (1, "jbsq:1"), (1, "jsq:2"), (1, "random"), (1, "rr"), (16, "jbsq:2")];
