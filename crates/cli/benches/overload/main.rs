//! Behaviour of a service that gets more than it can serve, over loopback sockets: goodput over the
//! capacity at twice, ten and a hundred times of it, the p99 of what is answered, the time until
//! all is normal again, and what one flooding client takes from nine others.
//!
//! `cargo bench -p tailcut-cli --bench overload -- [ROW]` starts `tailcut serve` with emulated
//! workers, and `tailcut route` before them in the routed rows, all with their defaults. The
//! workers serve 2,000 requests a second in all, so that the machine itself has little to do.
//! Clients are endpoints with the defaults of the library. `TAILCUT_BENCH_QUICK=1` runs few rows
//! briefly.

mod clients;
mod pool;

use crate::clients::{Client, Record, Shape, run};
use crate::pool::Pool;

fn main() {
    let is_quick = std::env::var_os("TAILCUT_BENCH_QUICK").is_some()
        || !std::env::args().any(|argument| argument == "--bench");
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    println!(
        "{:<32} {:>8} {:>8} {:>6} {:>9} {:>8} {:>10} {:>8}  as asked",
        "", "goodput", "of peak", "asked", "p99", "asked", "normal in", "asked"
    );
    let (loads, overload_ms) = if is_quick { (&LOADS[1..3], 600) } else { (&LOADS[..], 4_000) };
    let deadlines_ms = if is_quick { &[100][..] } else { &[100, 1_000] };
    for way in [Way::Direct, Way::Routed] {
        for &deadline_ms in deadlines_ms {
            let name = format!("{} {deadline_ms} ms", way.name());
            if is_wanted(&name) {
                print_overloads(&name, way, loads, (deadline_ms, overload_ms));
            }
        }
    }
    println!();
    println!(
        "{:<32} {:>10} {:>10} {:>7} {:>7} {:>8}  as asked",
        "", "p99 alone", "flooded", "ratio", "asked", "refused"
    );
    let flood_ms = if is_quick { 600 } else { 10_000 };
    for way in [Way::Direct, Way::Routed] {
        let name = format!("{} flood of one in ten", way.name());
        if is_wanted(&name) {
            print_flood(&name, way, flood_ms);
        }
    }
}

/// Path of clients to the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// One server.
    Direct,
    /// A router before four.
    Routed,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Routed => "routed",
        }
    }
}

/// Results of a load.
struct Overloaded {
    /// Answers in time over the capacity.
    goodput: f64,
    /// Latency of the calls that were answered.
    p99_ms: f64,
    normal_ms: f64,
    late_ns: u64,
}

/// A row for each load and the least of the peak that it must leave. The peak is the highest
/// goodput of them.
fn print_overloads(
    name: &str,
    way: Way,
    loads: &[(f64, f64)],
    (deadline_ms, overload_ms): (u64, u64),
) {
    let rows: Vec<Overloaded> =
        loads.iter().map(|&(load, _)| overload(way, load, (deadline_ms, overload_ms))).collect();
    let peak = rows.iter().map(|row| row.goodput).fold(0.0, f64::max);
    let p99_asked_ms = deadline_ms as f64 / 2.0;
    for (&(load, asked), Overloaded { goodput, p99_ms, normal_ms, late_ns }) in
        loads.iter().zip(rows)
    {
        let of_peak = goodput / peak;
        let is_well = of_peak >= asked && p99_ms <= p99_asked_ms && normal_ms <= NORMAL_MS;
        println!(
            "{:<32} {:>7.1}% {:>7.1}% {:>5.0}% {p99_ms:>6.1} ms {p99_asked_ms:>5.0} ms {normal_ms:>7.1} ms {NORMAL_MS:>5.0} ms  {}",
            format!("{name}, load {load}"),
            goodput * 100.0,
            of_peak * 100.0,
            asked * 100.0,
            yes(is_well),
        );
        warn_if_late(late_ns, deadline_ms);
    }
}

/// Loads a pool, and looks at what was called after the queues were full: a quarter of the time, as
/// in the simulator.
fn overload(way: Way, load: f64, (deadline_ms, overload_ms): (u64, u64)) -> Overloaded {
    let pool = Pool::start(way, OVERLOADED.workers);
    let each_per_s = CAPACITY_PER_S / CLIENT_COUNT as f64;
    let client =
        |number| Client { number, normal_per_s: 0.5 * each_per_s, loaded_per_s: load * each_per_s };
    let shape = Shape { deadline_ns: deadline_ms * MS, overload_ns: overload_ms * MS };
    let clients: Vec<Client> = (0..CLIENT_COUNT).map(client).collect();
    let (records, late_ns) = run(pool.target, &clients, shape, OVERLOADED.service_ns);
    let (from, until) = (shape.begins_at() + shape.overload_ns / 4, shape.ends_at());
    let counted = records.iter().filter(|record| (from..until).contains(&record.intended_at));
    let mut latencies: Vec<u64> = counted.filter_map(Record::latency_ns).collect();
    latencies.sort_unstable();
    let seconds = (until - from) as f64 / 1e9;
    Overloaded {
        goodput: latencies.len() as f64 / seconds / CAPACITY_PER_S,
        p99_ms: percentile(&latencies, 0.99) as f64 / 1e6,
        normal_ms: normal_after_ns(&records, until) as f64 / 1e6,
        late_ns,
    }
}

/// From the end of the overload until the last call was made that failed, or took longer than a
/// standing queue and ten services.
fn normal_after_ns(records: &[Record], ends_at: u64) -> u64 {
    let is_abnormal = |record: &&Record| {
        record.intended_at >= ends_at
            && record.latency_ns().is_none_or(|latency_ns| latency_ns > NORMAL_LATENCY_NS)
    };
    let last = records.iter().filter(is_abnormal).map(|record| record.intended_at).max();
    last.unwrap_or(ends_at) - ends_at
}

/// Nine clients that use half of the workers, beside one that sends as little, and then ten times
/// what all of them can serve.
fn print_flood(name: &str, way: Way, flood_ms: u64) {
    let others = |loaded_per_s| {
        let pool = Pool::start(way, FLOODED.workers);
        let each_per_s = 0.5 * CAPACITY_PER_S / 9.0;
        let client = |number| Client { number, normal_per_s: each_per_s, loaded_per_s: each_per_s };
        let mut clients: Vec<Client> = (0..10).map(client).collect();
        (clients[9].normal_per_s, clients[9].loaded_per_s) = (0.1 * each_per_s, loaded_per_s);
        let shape = Shape { deadline_ns: 1_000 * MS, overload_ns: flood_ms * MS };
        let (records, late_ns) = run(pool.target, &clients, shape, FLOODED.service_ns);
        warn_if_late(late_ns, 100);
        let is_counted = |record: &&Record| {
            record.client != 9 && (shape.begins_at()..shape.ends_at()).contains(&record.intended_at)
        };
        let counted = || records.iter().filter(is_counted);
        let mut latencies: Vec<u64> = counted().filter_map(Record::latency_ns).collect();
        latencies.sort_unstable();
        (percentile(&latencies, 0.99) as f64 / 1e6, counted().count() - latencies.len())
    };
    let (alone_ms, _) = others(0.05 * CAPACITY_PER_S);
    let (flooded_ms, failed) = others(10.0 * CAPACITY_PER_S);
    let ratio = flooded_ms / alone_ms;
    println!(
        "{name:<32} {alone_ms:>7.1} ms {flooded_ms:>7.1} ms {ratio:>7.2} {FLOOD_RATIO:>7.2} {failed:>8}  {}",
        yes(ratio <= FLOOD_RATIO && failed == 0),
    );
}

fn yes(is_well: bool) -> &'static str {
    if is_well { "yes" } else { "NO" }
}

/// Says where the load came so late that it says little of who serves it.
fn warn_if_late(late_ns: u64, deadline_ms: u64) {
    if late_ns > deadline_ms * MS / 10 {
        println!("  the load itself was late by up to {:.1} ms", late_ns as f64 / 1e6);
    }
}

/// The value that a share of the sorted ones does not exceed.
fn percentile(sorted: &[u64], share: f64) -> u64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(u64::MAX)
}

const MS: u64 = 1_000_000;

/// Loads, and the share of the peak that each must leave.
const LOADS: [(f64, f64); 4] = [(1.0, 0.0), (2.0, 0.95), (10.0, 0.9), (100.0, 0.8)];

/// Clients that overload together.
const CLIENT_COUNT: usize = 10;

/// Requests a second that the workers can serve.
const CAPACITY_PER_S: f64 = 2_000.0;

/// Workers, and the mean of their exponential services.
struct Crew {
    workers: usize,
    service_ns: u64,
}

/// Services of a fiftieth of the shorter deadline.
const OVERLOADED: Crew = Crew { workers: 4, service_ns: 2 * MS };

/// Many workers, as in the simulator's test: where there are few, whoever finds all of them busy
/// waits for a good part of a service, however short its queue is.
const FLOODED: Crew = Crew { workers: 16, service_ns: 8 * MS };

/// Longest that a call may take that says that all is normal.
const NORMAL_LATENCY_NS: u64 = 5 * MS + 10 * OVERLOADED.service_ns;

/// Longest time until all is normal again.
const NORMAL_MS: f64 = 200.0;

/// Most that a flood may lengthen the p99 of others.
const FLOOD_RATIO: f64 = 1.2;
