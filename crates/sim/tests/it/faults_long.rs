//! Long packets under faults: every promise is kept, and packets really are long.

use tailcut_sim::faults::family::Family;
use tailcut_sim::faults::plan::Plan;
use tailcut_sim::faults::{Coverage, Options, check_plan, run};

use crate::lanes::cover;

/// Runs the seeds of such plans, and the first of them with packets of one length too, which must
/// be more.
fn check_seeds(plan_of: fn(u64) -> Plan, command: &str) {
    let check = |seed| check_plan(&plan_of(seed), 16, Options::default());
    if let Err(broken) = cover(240, check, command) {
        panic!("{broken}");
    }
    let mut packets = [0, 0];
    for seed in 0..40 {
        let long = plan_of(seed);
        let short = Plan { long_len: 0, ..long.clone() };
        for (count, plan) in packets.iter_mut().zip([long, short]) {
            let Coverage { packets, .. } = run(&plan, Options::default()).coverage;
            *count += packets;
        }
    }
    assert!(packets[0] * 10 < packets[1] * 9, "{packets:?}");
}

#[test]
fn long_packets_keep_every_promise() {
    check_seeds(Plan::long_of_seed, "tailcut sim faults --plan long");
}

#[test]
fn long_packets_of_homa_keep_every_promise() {
    let plan_of = |seed| Family::Long.of_homa(seed).expect("a family of Homa too");
    check_seeds(plan_of, "tailcut sim faults --plan long --transport homa");
}
