//! The most expensive packets of hostile and other fault plans, and of the corpus of the fuzz
//! target `work`: none may cost its node more than 2 us.
//!
//! `cargo bench -p tailcut-sim --bench packets -- [SEEDS] [RUNS] [SHOWN]`; without, 20 seeds of
//! each family, 15 runs of each, and one packet shown of each. `TAILCUT_BENCH_QUICK=1` makes it 1
//! seed and 3 runs.
//!
//! Runs of a plan are the same, packet by packet, so that the cost of a packet is the least of all
//! runs: what the machine does meanwhile, interrupts and others on its cores, falls on other
//! packets in each, and only adds. What a packet costs in each run remains, page faults of memory
//! that it is the first to touch among it. A cost is the time of `handle_datagram`, two reads of
//! the clock included. It exits with 1 where one is above 2 us.

// A bench reads the clock.
#![allow(clippy::disallowed_methods)]

#[path = "../../../fuzz/fuzz_targets/stage/requests.rs"]
mod requests;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Instant;
use std::{env, fs};

use tailcut_sim::faults::family::Family;
use tailcut_sim::faults::plan::{Host, Plan};
use tailcut_sim::faults::{Cost, Options, run};

/// Most time for a packet.
const NS_MAX: u64 = 2_000;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/work");

/// Costs of packets, and a name of each.
type Costs = Vec<(u64, String)>;

fn main() -> ExitCode {
    let is_quick = env::var_os("TAILCUT_BENCH_QUICK").is_some();
    // Cargo adds `--bench`.
    let mut arguments = env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let mut number = |name: &str, otherwise: u64| {
        let text = arguments.next();
        text.map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let seeds = number("SEEDS", if is_quick { 1 } else { 20 });
    let runs = number("RUNS", if is_quick { 3 } else { 15 });
    let shown = number("SHOWN", 1) as usize;
    println!("plans of                  packets     p50     p99   p99.9   worst  ns; the worst is");
    let row = |name: &str, costs: Costs| row(name, costs, shown);
    let mut worst_ns = 0;
    for family in [Family::Hostile, Family::Feedback, Family::Drawn, Family::Late, Family::Overflow]
    {
        let r2p2 = (0..seeds).filter_map(|seed| family.of_r2p2(seed));
        worst_ns = worst_ns.max(row(&format!("{family}"), costs(r2p2, runs)));
        let homa = (0..seeds).filter_map(|seed| family.of_homa(seed));
        worst_ns = worst_ns.max(row(&format!("{family}, Homa"), costs(homa, runs)));
    }
    worst_ns = worst_ns.max(row("corpus of `work`", corpus(runs)));
    // What is slow for its build says nothing.
    let is_over = worst_ns > NS_MAX && !cfg!(debug_assertions);
    println!("worst: {worst_ns} ns, where {NS_MAX} ns are asked for at most");
    ExitCode::from(u8::from(is_over))
}

/// Prints a row with so many of the worst packets, and tells the worst cost.
fn row(name: &str, mut costs: Costs, shown: usize) -> u64 {
    costs.sort_unstable();
    let Some((worst_ns, what)) = costs.last() else { return 0 };
    let at = |permille: usize| costs[(costs.len() * permille / 1_000).min(costs.len() - 1)].0;
    let (p50, p99, p999) = (at(500), at(990), at(999));
    println!("{name:24} {:8} {p50:7} {p99:7} {p999:7} {worst_ns:7}  {what}", costs.len());
    for (ns, what) in costs.iter().rev().take(shown).skip(1) {
        println!("{:58} {ns:7}  {what}", "");
    }
    *worst_ns
}

/// The least cost of each packet of these plans over so many runs.
fn costs(plans: impl Iterator<Item = Plan>, runs: u64) -> Costs {
    let mut costs = Costs::new();
    for plan in plans {
        let options = Options { clock: Some(clock), ..Options::default() };
        let found: Vec<Vec<Cost>> = (0..runs).map(|_| run(&plan, options).costs).collect();
        costs.extend(found[0].iter().enumerate().map(|(index, cost)| {
            let least = found.iter().map(|costs| costs[index].ns).min().unwrap_or_default();
            let from = Host::at(cost.from).map_or(cost.from.to_string(), |host| host.to_string());
            let Cost { host, kind, len, .. } = cost;
            let seed = plan.seed;
            (
                least,
                format!("seed {seed}, packet {index}: {from} > {host}, type {kind:#04x}, {len} B"),
            )
        }));
    }
    costs
}

/// The least cost of each packet of the corpus over so many runs.
fn corpus(runs: u64) -> Costs {
    let mut found: BTreeMap<(String, usize), Vec<u64>> = BTreeMap::new();
    for entry in fs::read_dir(CORPUS).expect("the corpus is there").flatten() {
        let input = fs::read(entry.path()).expect("a file of the corpus");
        let file = Path::new(&entry.file_name()).display().to_string();
        for _ in 0..runs {
            let mut count = 0;
            requests::play(&input, &mut |whose, handle| {
                let begun = clock();
                handle();
                let ns = clock() - begun;
                found.entry((format!("{file}, {whose}"), count)).or_default().push(ns);
                count += 1;
            });
        }
    }
    let costs = found.into_iter();
    let least = |ns: Vec<u64>| ns.into_iter().min().unwrap_or_default();
    costs.map(|((name, index), ns)| (least(ns), format!("{name} {index}"))).collect()
}

fn clock() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}
