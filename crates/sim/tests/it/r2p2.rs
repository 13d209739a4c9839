//! R2P2 over links and switches against what can be computed: the time on the wire, and the queues
//! behind it.

use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_measure::queueing::{Jbsq, MMk, Sojourn};
use tailcut_sim::fabric::port::{Link, SwitchBuffer};
use tailcut_sim::fabric::topology::{Racks, Spreading, Switch, Topology};
use tailcut_sim::impair::Impairment;
use tailcut_sim::network::HostDelays;
use tailcut_sim::r2p2::{Experiment, ExperimentError, Findings, run};

/// At next to no load a call takes its service, the software of two hosts, twice, and twice two
/// links and a switch.
#[test]
fn an_unloaded_call_takes_the_time_of_its_path() {
    let experiment = Experiment {
        policy: None,
        load: 0.0001,
        calls: 1000,
        service: times("fixed:10us"),
        ..plan()
    };
    let findings = run_to_end(&experiment);
    // 64 bytes of payload, at most 72 of header and 66 of frame, at 80 ps: 10 to 16 ns on a link.
    let (least, most) = (
        10_000 + 4 * 500 + 2 * (250 + 2 * 100) + 4 * 10,
        10_000 + 4 * 500 + 2 * (250 + 2 * 100) + 4 * 17,
    );
    let (p50, p999) = (findings.latencies.percentile(0.5), findings.latencies.percentile(0.999));
    assert!(
        p50 >= f64::from(least) && p50 <= f64::from(most) * 1.001,
        "{p50} of {least} to {most}"
    );
    // One call in ten thousand meets another.
    assert!(p999 < 1.01 * p50 + 10_000.0, "{p999}");
}

/// A router adds its link, its software and a switch.
#[test]
fn a_routed_call_takes_one_path_more() {
    let plan = Experiment { load: 0.0001, calls: 1000, service: times("fixed:10us"), ..plan() };
    let direct = run_to_end(&Experiment { policy: None, ..plan.clone() }).latencies.percentile(0.5);
    let routed = run_to_end(&plan).latencies.percentile(0.5);
    let added = routed - direct;
    assert!((added - f64::from(2 * 500 + 250 + 2 * 100 + 2 * 14)).abs() < 20.0, "{added}");
}

/// One server with 16 workers behind long services is M/M/16. 360,000 calls: the p99 has a standard
/// error below 1 %.
#[test]
fn a_server_of_many_workers_is_one_queue() {
    let experiment = Experiment {
        servers: 1,
        workers: 16,
        policy: None,
        service: times("exp:500us"),
        load: 0.8,
        calls: 400_000,
        ..plan()
    };
    check_sojourn(&experiment, &MMk::new(16, 0.8).unwrap());
}

/// A router with JBSQ(2) before 16 servers of one worker is the chain of the bounds, where the path
/// is short against a service.
#[test]
fn a_router_before_servers_is_the_chain_of_its_policy() {
    let experiment = Experiment {
        servers: 16,
        workers: 1,
        service: times("exp:500us"),
        load: 0.8,
        calls: 400_000,
        ..plan()
    };
    check_sojourn(&experiment, &Jbsq::new(16, 2, 0.8).unwrap());
}

#[test]
fn a_seed_replays_to_the_byte_and_another_differs() {
    let experiment = Experiment { calls: 5000, ..plan() };
    let hash = |seed| run_to_end(&Experiment { seed, ..experiment.clone() }).network.trace_hash;
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

/// Nodes, hosts and network keep what they have used. What still grows after 100,000 calls is a
/// table here and a buffer there, when more is under way than ever before: less than one allocation
/// for a hundred calls, which are a thousand events.
#[test]
fn a_call_allocates_nothing_when_warm() {
    let count = |calls| {
        let experiment = Experiment { calls, ..plan() };
        allocation_counter::measure(|| drop(run_to_end(&experiment))).count_total
    };
    let (few, many) = (count(100_000), count(200_000));
    assert!(many < few + 1000, "{few} allocations with 100,000 calls, {many} with 200,000");
}

/// A lost request or report holds a slot until it is missed, a millisecond later. The bound leaves
/// room for that: at JBSQ(2), which uses half of the workers here, the queue would stand.
#[test]
fn lost_packets_are_sent_again() {
    let impairment = Impairment { loss: 0.02, ..Impairment::NONE };
    let policy = Some("jbsq:8".parse().unwrap());
    let findings = run_to_end(&Experiment { calls: 20_000, policy, impairment, ..plan() });
    assert!(
        findings.network.lost > 500 && findings.resent > 300,
        "{:?} {}",
        findings.network,
        findings.resent
    );
    assert_eq!(findings.counts.replied, findings.counts.sent, "{:?}", findings.counts);
}

/// Servers of their own and servers behind a router, both with the defaults for what waits, under
/// ten times the load of clients that keep no pace.
#[test]
fn ten_times_the_load_leaves_the_goodput() {
    // A bound that lets every worker work.
    for policy in [None, Some("jbsq:6".parse().unwrap())] {
        let experiment = Experiment {
            policy,
            load: 10.0,
            calls: 100_000,
            timeout_ns: 100_000_000,
            service: times("exp:1ms"),
            ..plan()
        };
        let findings = run_to_end(&experiment);
        let (goodput, p99_ns) = (goodput(&findings), findings.latencies.percentile(0.99));
        assert!(goodput >= 0.9, "{policy:?}: goodput {goodput}");
        assert!(p99_ns <= 50e6, "{policy:?}: p99 {p99_ns} ns");
    }
}

/// The bound of the default policy covers a server's workers, of which it is not told.
#[test]
fn the_default_policy_keeps_every_worker_busy_under_overload() {
    let experiment = Experiment {
        policy: Some("jbsq:auto".parse().unwrap()),
        load: 10.0,
        calls: 200_000,
        timeout_ns: 100_000_000,
        service: times("exp:1ms"),
        ..plan()
    };
    let findings = run_to_end(&experiment);
    let goodput = goodput(&findings);
    assert!(goodput >= 0.9, "goodput {goodput}");
}

/// A held call hears that it is held, and does not send itself again.
#[test]
fn held_calls_are_not_sent_again() {
    let experiment = Experiment {
        policy: Some("jbsq:5".parse().unwrap()),
        load: 2.0,
        calls: 50_000,
        service: times("exp:100us"),
        ..plan()
    };
    let findings = run_to_end(&experiment);
    let router = findings.router.expect("there is a router");
    assert!(router.held > 10_000, "{router:?}");
    assert!(router.duplicates_held * 20 < router.held, "{router:?}");
}

/// Clients that keep the pace send less of what would be refused, and the servers no less to do.
#[test]
fn clients_that_keep_the_pace_spare_the_router() {
    let run = |is_paced| {
        let experiment = Experiment {
            policy: Some("jbsq:5".parse().unwrap()),
            load: 10.0,
            calls: 400_000,
            timeout_ns: 100_000_000,
            service: times("exp:1ms"),
            is_paced,
            ..plan()
        };
        let findings = run_to_end(&experiment);
        let router = findings.router.expect("there is a router");
        (goodput(&findings), router.refused.overload, findings.latencies.percentile(0.99))
    };
    let ((all, all_refused, _), (paced, refused, p99_ns)) = (run(false), run(true));
    println!(
        "goodput {all} and paced {paced}, refused {all_refused} and {refused}, p99 {p99_ns} ns"
    );
    assert!(paced >= 0.8, "goodput {paced}, of {all} where nobody keeps it");
    assert!(refused < all_refused / 2, "{refused} of {all_refused}");
    assert!(p99_ns <= 50e6, "p99 {p99_ns} ns");
}

#[test]
fn full_buffers_drop_and_every_call_still_ends() {
    let buffer = SwitchBuffer { capacity_bytes: 20_000, mark_bytes: 10_000 };
    let switch = Switch { delay_ps: 250_000, buffer };
    let topology = Topology { link: Link::new(10.0, 100), switch, racks: None };
    let findings =
        run_to_end(&Experiment { calls: 5000, reply_len: 30_000, load: 0.5, topology, ..plan() });
    assert!(
        findings.switches.dropped > 0 && findings.switches.marked > 0,
        "{:?}",
        findings.switches
    );
    assert_eq!(
        findings.counts.replied + findings.counts.timeout + findings.counts.refused,
        findings.counts.sent
    );
}

#[test]
fn racks_are_joined_by_spines() {
    let (link, spreading) = (Link::new(100.0, 100), Spreading::Spray);
    let topology = Topology {
        link: Link::new(25.0, 100),
        switch: Switch { delay_ps: 250_000, ..Switch::default() },
        racks: Some(Racks { hosts: 4, spines: 2, link, spreading, pods: None }),
    };
    let findings = run_to_end(&Experiment { calls: 20_000, topology, ..plan() });
    assert_eq!(findings.counts.replied, findings.counts.sent);
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert_eq!(
        run(&Experiment { servers: 0, ..plan() }).unwrap_err(),
        ExperimentError::Zero("the number of servers")
    );
    assert_eq!(run(&Experiment { load: 0.0, ..plan() }).unwrap_err(), ExperimentError::Load(0.0));
    assert!(matches!(
        run(&Experiment { reply_len: 1 << 30, ..plan() }),
        Err(ExperimentError::Limit(_))
    ));
    assert!(matches!(run(&Experiment { timeout_ns: 0, ..plan() }), Err(ExperimentError::Limit(_))));
    assert!(matches!(
        run(&Experiment { service: times("pareto:0ns:1us:2"), ..plan() }),
        Err(ExperimentError::Service(_))
    ));
}

/// Mean, median and p99 within 3 %, after the time of the path (measured without load) is taken
/// off.
fn check_sojourn(experiment: &Experiment, exact: &dyn Sojourn) {
    let idle =
        Experiment { service: times("fixed:1us"), load: 0.0001, calls: 1000, ..experiment.clone() };
    let path_ns = run_to_end(&idle).latencies.percentile(0.5) - 1000.0;
    let findings = run_to_end(experiment);
    let service_ns = experiment.service.mean().unwrap();
    let of = |latency_ns: f64| (latency_ns - path_ns) / service_ns;
    assert_eq!(findings.counts.replied, findings.counts.sent);
    for (what, found, expected) in [
        ("mean", of(findings.latencies.mean()), exact.mean()),
        ("p50", of(findings.latencies.percentile(0.5)), exact.percentile(0.5)),
        ("p99", of(findings.latencies.percentile(0.99)), exact.percentile(0.99)),
    ] {
        assert!((found / expected - 1.0).abs() < 0.03, "{what}: {found} of {expected}");
    }
    assert!(
        (findings.utilisation / experiment.load - 1.0).abs() < 0.02,
        "{}",
        findings.utilisation
    );
}

/// Calls answered over what the servers can serve, under ten times as many.
fn goodput(findings: &Findings) -> f64 {
    findings.counts.replied as f64 / findings.counts.sent as f64 * 10.0
}

fn run_to_end(experiment: &Experiment) -> Findings {
    run(experiment).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn times(text: &str) -> Distribution {
    Distribution::parse(text, Unit::Time).unwrap()
}

pub(super) fn plan() -> Experiment {
    Experiment {
        clients: 4,
        servers: 4,
        workers: 4,
        policy: Some("jbsq:2".parse().unwrap()),
        dispatch: "jbsq:1".parse().unwrap(),
        service: times("exp:20us"),
        request_len: 64,
        reply_len: 64,
        load: 0.5,
        load_after: None,
        calls: 10_000,
        timeout_ns: 1_000_000_000,
        is_paced: false,
        topology: Topology {
            link: Link::new(100.0, 100),
            switch: Switch { delay_ps: 250_000, ..Switch::default() },
            racks: None,
        },
        delays: HostDelays { transmit_ns: 500, receive_ns: 500 },
        impairment: Impairment::NONE,
        seal: None,
        seed: 1,
    }
}
