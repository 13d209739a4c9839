//! Clients, a router and servers over bad paths, in virtual time. What must hold whatever happens
//! is checked by the fault run itself; here is what comes of it.

use tailcut_proto::router::{Forward, RouterConfig};
use tailcut_sim::faults::plan::{
    CallPlan, ClientPlan, Fault, FaultKind, Host, Plan, RouterPlan, ServerPlan,
};
use tailcut_sim::faults::{Ending, Options, Report, run};

const US: u64 = 1000;
const MS: u64 = 1000 * US;
const SECOND: u64 = 1000 * MS;

/// Four servers behind JBSQ(2), two clients, and a call each 42 us: 60 % of what the servers carry.
/// They are up for a second before the first, so that nothing may be older than they are.
fn plan(seed: u64, forward: Forward, calls: u64) -> Plan {
    let call = |number: u64| CallPlan {
        at: at(number),
        client: (number % 2) as usize,
        request_len: if number % 50 == 7 { 5000 } else { 32 },
        reply_len: if number % 50 == 7 { 5000 } else { 32 },
        timeout_ns: SECOND,
        word: number,
        ..CallPlan::default()
    };
    let policy = "jbsq:2".parse().unwrap();
    let config = RouterConfig { policy, forward, ..RouterConfig::default() };
    Plan {
        seed,
        router: Some(RouterPlan { config, ..RouterPlan::default() }),
        servers: vec![ServerPlan::default(); 4],
        clients: vec![ClientPlan::default(); 2],
        calls: (0..calls).map(call).collect(),
        ..Plan::default()
    }
}

/// Time at which call `number` is made.
fn at(number: u64) -> u64 {
    SECOND + 42 * US * number
}

fn fault(calls: std::ops::Range<u64>, kind: FaultKind) -> Fault {
    Fault { at: at(calls.start), lasts_ns: at(calls.end) - at(calls.start), kind }
}

fn bad_paths(calls: u64, share: f64, most_ns: u64) -> Vec<Fault> {
    let kinds = [
        FaultKind::Loss { from: None, share },
        FaultKind::Duplicates { from: None, share },
        FaultKind::Jitter { from: None, most_ns },
    ];
    kinds.map(|kind| fault(0..calls, kind)).to_vec()
}

/// Runs the plan, in which every promise must be kept.
fn check(plan: &Plan) -> Report {
    let report = run(plan, Options::default());
    assert_eq!(report.violation, None, "seed {}", plan.seed);
    report
}

#[test]
fn a_perfect_network_answers_every_call_in_both_forms() {
    for forward in [Forward::Annotate, Forward::Keep] {
        let report = check(&plan(1, forward, 2000));
        assert_eq!(report.count(Ending::Replied), 2000, "{forward:?}");
        // Four servers of a bound of two: the load is spread.
        assert!(report.served.iter().all(|&served| served > 300), "{:?}", report.served);
    }
}

#[test]
fn loss_duplication_and_reordering_lose_no_slot_and_run_nothing_twice() {
    for seed in 0..6 {
        for forward in [Forward::Annotate, Forward::Keep] {
            let plan = Plan { faults: bad_paths(1500, 0.03, 40 * US), ..plan(seed, forward, 1500) };
            let answered = check(&plan).count(Ending::Replied);
            assert!(answered >= 1490, "seed {seed}, {forward:?}: {answered}");
        }
    }
}

#[test]
fn a_server_that_dies_is_taken_out_and_comes_back() {
    for seed in 0..4 {
        let mut plan = plan(seed, Forward::Annotate, 8000);
        plan.calls.iter_mut().for_each(|call| call.is_idempotent = true);
        plan.faults = vec![fault(500..4000, FaultKind::Crash { host: Host::Server(1) })];
        let report = check(&plan);
        assert_eq!(
            report.count(Ending::Replied),
            8000,
            "seed {seed}: idempotent calls survive a server"
        );
        // Of its share of 500 calls before it has at most 200.
        assert!(report.served[1] > 200 + 500, "seed {seed}: it got {} requests", report.served[1]);
    }
}

#[test]
fn a_call_that_may_run_once_never_runs_twice_across_crashes() {
    for seed in 0..6 {
        let mut plan = plan(seed, Forward::Annotate, 6000);
        plan.faults = bad_paths(6000, 0.02, 20 * US);
        for round in 0..6 {
            let host = Host::Server(round as usize % 4);
            plan.faults
                .push(fault(1000 * round + 300..1000 * round + 500, FaultKind::Crash { host }));
            let restart = FaultKind::Crash { host: Host::Router };
            plan.faults.push(Fault {
                lasts_ns: 1,
                ..fault(1000 * round + 800..1000 * round + 801, restart)
            });
        }
        let answered = check(&plan).count(Ending::Replied);
        assert!(answered > 5000, "seed {seed}: {answered}");
    }
}
