//! Clients, a router and servers over bad paths, in virtual time: what must hold whatever happens.

use tailcut_proto::router::Forward;
use tailcut_proto::rpc::CallOptions;
use tailcut_sim::cluster::{Cluster, Plan};
use tailcut_sim::impair::Impairment;

const US: u64 = 1000;
const SECOND: u64 = 1_000_000_000;
const ONCE: CallOptions = CallOptions { idempotent: false, fixed: false, v1: false };
const IDEMPOTENT: CallOptions = CallOptions { idempotent: true, fixed: false, v1: false };

fn plan(seed: u64, forward: Forward, impairment: Impairment) -> Plan {
    Plan { servers: 4, clients: 2, service_ns: 100 * US, bound: 2, forward, impairment, seed }
}

/// Calls at a steady rate of one each 50 us, 60 % of what four servers carry, with `fault` before each.
fn load(cluster: &mut Cluster, calls: u64, options: CallOptions, mut fault: impl FnMut(&mut Cluster, u64)) {
    for number in 0..calls {
        fault(cluster, number);
        let len = if number % 50 == 7 { 5000 } else { 32 };
        cluster.call((number % 2) as usize, len, SECOND, options);
        cluster.run_for(42 * US);
    }
}

/// Every call has ended, right, and none ran twice; all slots come home within two seconds.
fn check_end(cluster: &mut Cluster, calls: u64, is_once: bool) -> u64 {
    cluster.run_for(2 * SECOND);
    let mut ended: Vec<u64> = cluster.outcomes.iter().map(|(number, _)| *number).collect();
    ended.sort_unstable();
    assert_eq!(ended, (0..calls).collect::<Vec<u64>>(), "every call ends once");
    for (number, result) in &cluster.outcomes {
        if let Ok(reply) = result {
            assert_eq!(reply.last_chunk().map(|bytes| u64::from_le_bytes(*bytes)), Some(*number), "its own reply");
        }
    }
    if is_once {
        let twice: Vec<usize> = (0..cluster.runs.len()).filter(|&number| cluster.runs[number] > 1).collect();
        assert!(twice.is_empty(), "ran twice: {twice:?}");
    }
    let status = cluster.router().status();
    let outstanding: Vec<u32> = status.servers.iter().map(|server| server.outstanding).collect();
    assert!(outstanding.iter().all(|&count| count == 0), "slots come home: {outstanding:?}");
    assert_eq!(status.queue_len, 0);
    cluster.outcomes.iter().filter(|(_, result)| result.is_ok()).count() as u64
}

#[test]
fn a_perfect_network_answers_every_call_in_both_forms() {
    for forward in [Forward::Annotate, Forward::Keep] {
        let mut cluster = Cluster::new(plan(1, forward, Impairment::default()));
        load(&mut cluster, 2000, ONCE, |_, _| {});
        assert_eq!(check_end(&mut cluster, 2000, true), 2000, "{forward:?}");
        // Four servers of a bound of two: the load is spread.
        let placed: Vec<u64> = cluster.router().status().servers.iter().map(|server| server.placed).collect();
        assert!(placed.iter().all(|&placed| placed > 300), "{placed:?}");
    }
}

#[test]
fn loss_duplication_and_reordering_lose_no_slot_and_run_nothing_twice() {
    for seed in 0..6 {
        for forward in [Forward::Annotate, Forward::Keep] {
            let impairment = Impairment {
                loss: 0.03,
                duplicate: 0.03,
                corrupt: 0.0,
                delay_ns: 5 * US,
                jitter_ns: 40 * US,
                ..Impairment::NONE
            };
            let mut cluster = Cluster::new(plan(seed, forward, impairment));
            load(&mut cluster, 1500, ONCE, |_, _| {});
            let answered = check_end(&mut cluster, 1500, true);
            assert!(answered >= 1490, "seed {seed}, {forward:?}: {answered}");
        }
    }
}

#[test]
fn a_server_that_dies_is_taken_out_and_comes_back() {
    for seed in 0..4 {
        let mut cluster = Cluster::new(plan(seed, Forward::Annotate, Impairment::default()));
        let before = |cluster: &Cluster| cluster.router().status().servers[1].placed;
        let mut placed_before_return = 0;
        load(&mut cluster, 8000, IDEMPOTENT, |cluster, number| match number {
            500 => cluster.crash_server(1),
            4000 => {
                placed_before_return = before(cluster);
                cluster.restart_server(1);
            }
            _ => {}
        });
        assert_eq!(check_end(&mut cluster, 8000, false), 8000, "seed {seed}: idempotent calls survive a server");
        let since = before(&cluster) - placed_before_return;
        assert!(since > 500, "seed {seed}: it got {since} requests after its return");
    }
}

#[test]
fn a_call_that_may_run_once_never_runs_twice_across_crashes() {
    for seed in 0..6 {
        let impairment =
            Impairment { loss: 0.02, duplicate: 0.02, corrupt: 0.0, delay_ns: 5 * US, jitter_ns: 20 * US, ..Impairment::NONE };
        let mut cluster = Cluster::new(plan(seed, Forward::Annotate, impairment));
        load(&mut cluster, 6000, ONCE, |cluster, number| match number % 1000 {
            300 => cluster.crash_server((number / 1000 % 4) as usize),
            500 => cluster.restart_server((number / 1000 % 4) as usize),
            800 => cluster.restart_router(),
            _ => {}
        });
        let answered = check_end(&mut cluster, 6000, true);
        assert!(answered > 5000, "seed {seed}: {answered}");
    }
}
