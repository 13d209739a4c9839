//! Cost of the XDP router's program for a request that it places: by the kernel's own test runs
//! (BPF_PROG_TEST_RUN), over a program that passes everything, in turns.
//!
//! Each run is of a fresh packet, since a placed one is not placed again, so that both columns hold
//! the kernel's reading of the clock around one run.

use tailcut_net::ebpf::{Object, PASS, Verdict};

use crate::bench::{Bench, Frame, client, listen_v4, listen_v6, request};

#[allow(dead_code, reason = "the tests of the program use the rest")]
#[path = "../tests/it/xdp_router/bench.rs"]
mod bench;
#[allow(dead_code, reason = "the tests of the program use the rest")]
#[path = "../tests/it/xdp_router/seal.rs"]
mod seal;

fn main() {
    let pass = Object::load(PASS).expect("XDP programs need root");
    println!(
        "a request placed, over a program that passes it, ns and ratio: medians and quartiles of pairs"
    );
    for (policy, servers) in [
        ("rr", 4),
        ("random", 4),
        ("jsq:2", 4),
        ("jbsq:1000000", 1),
        ("jbsq:1000000", 4),
        ("jbsq:1000000", 32),
    ] {
        for listen in [listen_v4(), listen_v6()] {
            let spec = policy.parse().expect("a policy");
            let bench = Bench::new(listen, spec, servers).expect("XDP programs need root");
            let payload = request(|_, _| {});
            let frame = Frame::new(client(listen), listen, &payload).bytes();
            let passed = || {
                let tested = pass.test("pass", &frame, 1).expect("a run");
                assert_eq!(tested.verdict, Verdict::Pass);
                tested.ns
            };
            let placed = || {
                let tested = bench.run(&frame);
                assert_eq!(tested.verdict, Verdict::Transmit);
                tested.ns
            };
            let family = if listen.is_ipv4() { "IPv4" } else { "IPv6" };
            let (mut bases, mut costs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..PAIRS {
                let (base, cost) = (median(passed), median(placed));
                bases.push(f64::from(base));
                costs.push(f64::from(cost));
                ratios.push(f64::from(cost) / f64::from(base));
            }
            println!(
                "{policy} {servers} servers {family}: {} over {}: {}",
                spread(costs),
                spread(bases),
                spread(ratios)
            );
        }
    }
}

/// The median of many runs.
fn median(run: impl Fn() -> u32) -> u32 {
    let mut times: Vec<u32> = (0..RUNS).map(|_| run()).collect();
    times.sort_unstable();
    times[RUNS / 2]
}

fn spread(mut values: Vec<f64>) -> String {
    values.sort_unstable_by(f64::total_cmp);
    let at = |part: usize| values[part * (values.len() - 1) / 4];
    format!("{:.2} ({:.2}-{:.2})", at(2), at(1), at(3))
}

const PAIRS: usize = 9;
const RUNS: usize = 4_000;
