//! `tailcut sim clone` as its user runs it.

use std::process::{Command, Output};

use serde_json::{Value, json};

#[test]
fn a_point_has_its_figures_and_what_repeats_it() {
    let args = [
        "--scheme",
        "netclone",
        "--load",
        "0.5",
        "--requests",
        "60k",
        "--seeds",
        "2",
        "--seed",
        "7",
    ];
    let point = json(&args);
    assert_eq!(point["schema"], "tailcut.sim.clone/1");
    let config = json!({
        "scheme": "netclone", "workers": [15, 15, 15, 15, 15, 15], "service": "exp:25us", "jitter": 0.01,
        "jitter_factor": 15.0, "load": 0.5, "requests": 60_000, "seed": 7, "seeds": 2, "copies": "fresh", "arrivals": "poisson",
        "report": "waiting", "discard": true, "loser": "runs",
        "delays_us": { "client_switch": 1.5, "switch_server": 1.0, "recirculation": 0.7, "switch_coordinator": 0.5 },
        "coordinator": { "packet_us": 0.5, "threads": 1, "slots": "server" },
    });
    assert_eq!(point["config"], config);
    let figures =
        ["p50", "p90", "p99", "p999"].map(|name| point["latency_us"][name].as_f64().unwrap());
    assert!(figures.is_sorted() && figures[0] > 5.0, "{point:#}");
    assert!(point["standard_error_us"]["p99"].as_f64() > Some(0.0), "{point:#}");
    assert_eq!(point["counts"]["sent"], 108_000);
    assert_eq!(point["counts"]["duplicates"], 0);
    // 0.694 at this load; two runs of 54,000 are within a few hundredths.
    assert!((point["shares"]["cloned"].as_f64().unwrap() - 0.694).abs() < 0.05, "{point:#}");
    assert!(point["baseline"].is_null() && point["gain"].is_null(), "{point:#}");
    assert_eq!(point, json(&args), "the same seeds give the same result");
}

#[test]
fn a_comparison_gives_the_gain_over_random() {
    let point = json(&["--load", "0.1", "--requests", "100k", "--seeds", "1", "--compare"]);
    let [p99, baseline, gain] =
        [&point["latency_us"], &point["baseline"]["latency_us"], &point["gain"]]
            .map(|of| of["p99"].as_f64().unwrap());
    assert!((gain - baseline / p99).abs() < 1e-9, "{point:#}");
    assert!(gain > 2.0, "{point:#}");
    assert!(point["standard_error_us"]["p99"].is_null(), "one seed has no error: {point:#}");
}

#[test]
fn the_closed_form_stands_beside() {
    let point =
        json(&["--scheme", "cclone", "--load", "0.01", "--requests", "10k", "--seeds", "1"]);
    // Published: 12.734 and 59.54 us, and 5 us of round trip.
    let exact = |name: &str| point["exact"]["zero_load_us"][name].as_f64().unwrap();
    assert!(
        (exact("mean") - 17.734).abs() < 0.001 && (exact("p99") - 64.54).abs() < 0.01,
        "{point:#}"
    );
    let without = json(&["--service", "gamma:2:10us", "--requests", "10k", "--seeds", "1"]);
    assert!(without["exact"].is_null(), "{without:#}");
}

#[test]
fn a_percentile_on_a_knife_edge_is_null() {
    let point = json(&[
        "--scheme",
        "none",
        "--service",
        "bimodal:25us:250us:0.9",
        "--requests",
        "10k",
        "--seeds",
        "1",
    ]);
    assert!(point["exact"]["zero_load_us"]["p99"].is_null(), "{point:#}");
    assert_eq!(point["exact"]["zero_load_us"]["p50"], 30.0);
}

#[test]
fn servers_may_differ() {
    let args = [
        "--scheme",
        "racksched",
        "--workers",
        "7*2,4*1",
        "--report",
        "outstanding",
        "--requests",
        "10k",
        "--seeds",
        "1",
    ];
    let point = json(&args);
    assert_eq!(point["config"]["workers"], json!([7, 7, 4]));
    assert_eq!(point["counts"]["cloned"], 0);
}

#[test]
fn a_coordinator_shows_its_queue() {
    let args = [
        "--scheme",
        "laedge",
        "--servers",
        "5",
        "--load",
        "0.04",
        "--requests",
        "50k",
        "--seeds",
        "1",
    ];
    let point = json(&args);
    assert!(point["counts"]["held"].as_u64() > Some(10_000), "{point:#}");
    assert!(point["coordinator_queue_len"]["mean"].as_f64() > Some(0.5), "{point:#}");
    assert!(stdout(&args).contains("coordinator's queue"));
}

#[test]
fn people_get_a_table() {
    let text = stdout(&["--load", "0.1", "--requests", "50k", "--compare"]);
    let head: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head.join(" "), "latency, us error random gain exact at load 0");
    for name in ["mean", "p999", "requests cloned", "duplicates at clients"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} in {text}");
    }
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    check_refused(&["--scheme", "netclon"], "no scheme is called \"netclon\"");
    check_refused(&["--servers", "1"], "this scheme needs at least 2 servers, but there are 1");
    check_refused(
        &["--workers", "7*4", "--servers", "3"],
        "--workers lists 4 servers, but --servers says 3",
    );
    check_refused(&["--workers", "0"], "every server needs a worker");
    check_refused(&["--load", "0"], "the load must be above 0");
    check_refused(&["--load", "1e-300"], "days of virtual time");
    check_refused(&["--service", "fixed:1000000000s"], "days of virtual time");
    check_refused(&["--jitter", "2"], "the probability of jitter must be from 0 to 1");
    check_refused(&["--service", "pareto:0:1us:1"], "the service must be a time with a mean");
    check_refused(
        &["--scheme", "laedge", "--slots", "worker", "--workers", "7*1,4*1"],
        "the same number of workers",
    );
}

fn check_refused(args: &[&str], reason: &str) {
    let output = tailcut(args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains(reason), "{args:?}: {stderr}");
}

fn json(args: &[&str]) -> Value {
    let text = stdout(&[args, &["--json", "-"]].concat());
    serde_json::from_str(&text).expect("standard output is JSON and nothing else")
}

fn stdout(args: &[&str]) -> String {
    let output = tailcut(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

fn tailcut(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tailcut"))
        .args(["sim", "clone"])
        .args(args)
        .output()
        .expect("the binary starts")
}
