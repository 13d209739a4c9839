//! Detection of dead and slow servers by a router: when it notices one, and when not.

use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_proto::router::OutlierConfig;
use tailcut_proto::scheduler::Rank;
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_sim::failing::{Config, Run};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn run(config: &Config) -> Run {
    config.run().unwrap()
}

/// Pauses of 20 ms of each server, one a second, at a load of 0.9.
fn paused(length_ns: u64) -> Config {
    Config { pauses: Some((SECOND, 20 * MS)), length_ns, ..Config::new() }
}

#[test]
fn pauses_of_20_ms_at_90_percent_are_no_alarm() {
    let run = run(&paused(60 * SECOND));
    assert_eq!((run.alarms, run.metrics.servers_ejected), (0, 0));
    assert!(run.offered > 100_000 && run.sojourns[0].count() * 100 > run.offered * 99);
}

#[test]
fn a_crash_is_seen_within_30_ms_and_the_others_carry_on() {
    for load in [0.0001, 0.3, 0.9] {
        let config = Config { crashes: Some((2 * SECOND, SECOND)), load, ..paused(60 * SECOND) };
        let run = run(&config);
        assert_eq!((run.alarms, run.unseen), (0, 0), "{load}");
        assert!(run.seen_ns.len() >= 29, "{load}");
        // A server that is in the midst of a pause has been silent for that long already.
        let longest = run.seen_ns.iter().max().unwrap();
        assert!(*longest <= 30 * MS, "{load}: {longest}");
        if load > 0.5 {
            // Against a router that never had the fourth.
            let rest = Config { servers: 3, load: load * 4.0 / 3.0, ..paused(60 * SECOND) };
            let rest = rest.run().unwrap().sojourns[0].count() as f64 / 59_900.0;
            let back = &run.capacity[10..50];
            let mean = back.iter().sum::<f64>() / back.len() as f64;
            // Of three servers of 2 ms.
            assert!(mean * 1.5 >= 0.95 * rest, "{mean} of {rest}: {:?}", run.capacity);
        }
    }
}

fn slow(factor: u64, outliers: OutlierConfig) -> Run {
    let mut config = Config {
        slow: Some((5 * SECOND, 15 * SECOND, factor)),
        load: 0.6,
        length_ns: 40 * SECOND,
        ..Config::new()
    };
    // The default policy leaves less behind a slow server by itself.
    config.router.policy = "jbsq:2".parse().unwrap();
    config.router.outliers = outliers;
    run(&config)
}

#[test]
fn a_slow_server_is_ejected_and_comes_back() {
    let run = slow(10, OutlierConfig::DEFAULT);
    let ejected_ns = run.ejected_ns.expect("it is ejected");
    assert!((400 * MS..SECOND).contains(&ejected_ns), "{ejected_ns}");
    // Its time doubles: 1, 2, 4 and 8 s, of which the last may begin just before it is well.
    assert!(run.readmitted_ns.expect("it is back") < 9 * SECOND, "{run:?}");
    assert_eq!(run.metrics.servers_readmitted, 1);
    let never = slow(10, OutlierConfig { factor: 0, ..OutlierConfig::DEFAULT });
    assert_eq!((never.ejected_ns, never.metrics.servers_ejected), (None, 0));
    let p99_ms = |run: &Run, phase: usize| run.sojourns[phase].percentile(0.99) / MS as f64;
    // Almost as if nothing were wrong, with three servers of four.
    assert!(p99_ms(&run, 2) < 0.5 * p99_ms(&never, 1), "{} {}", p99_ms(&run, 2), p99_ms(&never, 1));
}

/// A server that is a little slower than the others is worth more than none.
#[test]
fn a_server_of_twice_the_time_stays() {
    assert_eq!(slow(2, OutlierConfig::DEFAULT).metrics.servers_ejected, 0);
}

/// Services that vary much make the means of windows vary, and nobody is ejected. One of half a
/// second would be: its server gives nothing for as long.
#[test]
fn heavy_tails_are_no_slowness() {
    for service in ["bimodal:100us:50ms:0.99", "lognorm:13:1.5", "exp:2ms"] {
        for load in [0.3, 0.9] {
            let service = Distribution::parse(service, Unit::Time);
            let service = service.unwrap();
            let run = run(&Config { service, load, servers: 8, ..paused(15 * SECOND) });
            let at = format!("{load} {:?}", run.metrics.servers_ejected);
            assert_eq!((run.alarms, run.metrics.servers_ejected), (0, 0), "{at}");
        }
    }
}

/// Against every fixed bound that may suit, at 0.9 of what the servers can do.
#[test]
fn the_default_policy_is_near_the_best_bound_at_any_service_time() {
    for (servers, service, mean_ns) in [
        (2, "exp:1us", 1_000),
        (8, "exp:1us", 1_000),
        (2, "exp:10us", 10_000),
        (16, "exp:10us", 10_000),
        (8, "bimodal:5us:505us:0.99", 10_000),
        (64, "exp:100us", 100_000),
        (8, "exp:1ms", 1_000_000),
        (2, "exp:10ms", 10_000_000),
    ] {
        let p99 = |policy: &str| {
            let mut config = Config {
                servers,
                service: Distribution::parse(service, Unit::Time).unwrap(),
                length_ns: 100 * MS + 60_000 * mean_ns / u64::from(servers),
                ..Config::new()
            };
            config.router.policy = policy.parse().unwrap();
            run(&config).sojourns[0].percentile(0.99)
        };
        let of = |bound| (p99(&format!("jbsq:{bound}")), bound);
        let best = [1, 2, 3, 6, 8, 16, 64].map(of).into_iter();
        let (best, bound) = best.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
        let ratio = p99("jbsq:auto") / best;
        println!("{servers} servers of {service}: {ratio:.3} of jbsq:{bound}");
        assert!(ratio <= 1.15, "{servers} servers of {service}: {ratio} of jbsq:{bound}");
    }
}

/// Servers, workers of each, services, their mean, the way there and the load.
type Place = (u16, u16, &'static str, u64, u64, f64);

/// The p99 of all that is offered, ns, where nothing is refused for having waited.
fn patient_p99(place: Place, policy: &str, wakes: Option<(u64, Distribution)>) -> f64 {
    let (servers, workers, service, mean_ns, delay_ns, load) = place;
    let mut config = Config {
        servers,
        workers,
        service: Distribution::parse(service, Unit::Time).unwrap(),
        delay_ns,
        load,
        wakes,
        length_ns: 100 * MS + 40_000 * mean_ns / u64::from(servers * workers),
        ..Config::new()
    };
    config.router.policy = policy.parse().unwrap();
    config.router.queue_len_max = 60_000;
    let target_ns = 900 * MS;
    config.router.overload = OverloadConfig {
        target_ns,
        interval_ns: target_ns,
        deadline_divisor: 1,
        ..OverloadConfig::DEFAULT
    };
    let run = run(&config);
    match run.sojourns[0].count() as f64 / run.offered as f64 {
        answered @ 0.99.. => run.sojourns[0].percentile(0.99 / answered),
        _ => f64::INFINITY,
    }
}

/// One request for each worker is best where the way is short, two where services are alike, and
/// more where it is long.
#[test]
fn the_default_policy_is_near_the_best_bound_at_any_way_there() {
    for place in [
        (16, 1, "exp:1ms", MS, 1_000, 0.9),
        (16, 1, "exp:1ms", MS, 10_000, 0.8),
        (16, 1, "lognorm:12.97:1.3", MS, 1_000, 0.8),
        (16, 1, "fixed:1ms", MS, 10_000, 0.9),
        (8, 2, "exp:1ms", MS, 1_000, 0.5),
        (4, 16, "fixed:1ms", MS, 1_000, 0.9),
        (16, 1, "exp:10us", 10_000, 1_000, 0.9),
        (16, 1, "exp:100us", 100_000, 100_000, 0.8),
    ] {
        let workers = u64::from(place.1);
        let of = |bound: u64| (patient_p99(place, &format!("jbsq:{bound}"), None), bound);
        let best = [0, 1, 2, 4, 8].into_iter().map(|more| of(workers + more));
        let (best, bound) = best.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
        let ratio = patient_p99(place, "jbsq:auto", None) / best;
        println!("{place:?}: {ratio:.3} of jbsq:{bound}");
        assert!(ratio <= 1.1, "{place:?}: {ratio} of jbsq:{bound}");
    }
}

/// The machine has no core to spare from the third part on, and a server that has nothing waits for
/// one for 7 ms. No probe shows it, for under load no server has nothing; the bound grows by what
/// servers conclude.
#[test]
fn a_way_that_grows_under_load_is_seen() {
    let place = (16, 1, "exp:240us", 240_000, 10_000, 0.4);
    let wakes = || Some((300 * MS, Distribution::parse("exp:7ms", Unit::Time).unwrap()));
    let best = patient_p99(place, "jbsq:3", wakes());
    let ratio = patient_p99(place, "jbsq:auto", wakes()) / best;
    assert!(ratio <= 1.5, "{ratio}");
    assert_eq!(patient_p99(place, "jbsq:1", wakes()), f64::INFINITY);
}

/// The mean sojourn, ms, before four servers of which the first takes four times as long all the
/// time, at 0.8 of what they can do together.
fn before_uneven_servers(policy: &str, weights: &[u8]) -> f64 {
    let rank = |&weight: &u8| Rank {
        weight: weight.try_into().expect("a weight is not 0"),
        ..Rank::default()
    };
    let mut config = Config {
        ranks: weights.iter().map(rank).collect(),
        slow: Some((0, u64::MAX, 4)),
        load: 0.8 * 3.25 / 4.0,
        length_ns: 20 * SECOND,
        ..Config::new()
    };
    config.router.policy = policy.parse().expect("a policy");
    config.router.outliers = OutlierConfig { factor: 0, ..OutlierConfig::DEFAULT };
    run(&config).sojourns[1].mean() / MS as f64
}

#[test]
fn weights_give_servers_what_they_can_do() {
    // By its share the slow one has 0.2 of a server to do and can do 0.25. Each is an M/M/1 queue
    // at 0.8: 2 ms over 0.2, and 8 ms over 0.2 of the thirteenth that goes to the slow one.
    let weighted = before_uneven_servers("random", &[1, 4, 4, 4]);
    let expected = (40.0 + 12.0 * 10.0) / 13.0;
    assert!((weighted / expected - 1.0).abs() < 0.15, "{weighted} ms, not {expected}");
    // Without it gets a quarter, 2.6 times what it can do, and has no end.
    let even = before_uneven_servers("random", &[]);
    assert!(even > 10.0 * weighted, "{even} ms against {weighted}");
}
