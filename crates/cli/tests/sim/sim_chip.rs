//! `tailcut sim chip` as its user runs it.

use std::process::{Command, Output};

use serde_json::Value;

#[test]
fn a_point_has_its_figures_and_what_repeats_it() {
    let args = [
        "--layout",
        "1x16",
        "--threshold",
        "2",
        "--service",
        "300ns+exp:300ns",
        "--load",
        "0.7",
        "--requests",
        "20k",
    ];
    let point = json(&args);
    assert_eq!(point["schema"], "tailcut.sim.chip/1");
    let config = r#"{"layout":"1x16","load":0.7,"requests":20000,"seed":1,"seeds":3,"service":"300ns+exp:300ns",
        "service_mean_ns":820.0,"threshold":2,"workload":null}"#;
    assert_eq!(point["config"], serde_json::from_str::<Value>(config).unwrap());
    let figures =
        ["p50", "p90", "p99", "p999"].map(|name| point["latency_ns"][name].as_f64().unwrap());
    assert!(figures.is_sorted() && figures[0] > 520.0, "{point:#}");
    assert!(
        point["replenished_ns"]["mean"].as_f64() > point["latency_ns"]["mean"].as_f64(),
        "{point:#}"
    );
    assert!(point["standard_error_ns"]["p99"].as_f64() > Some(0.0), "{point:#}");
    // 0.7 of 19.5 M/s; 20,000 gaps have a mean within 3 %.
    assert!((point["throughput_mrps"].as_f64().unwrap() / 13.66 - 1.0).abs() < 0.03, "{point:#}");
    assert_eq!(point, json(&args), "the same seeds give the same result");
}

#[test]
fn a_workload_brings_its_limit() {
    let found = json(&["--workload", "herd", "--requests", "20k", "--seeds", "2"]);
    assert_eq!(found["config"]["slo_ns"], 5_500.0);
    let mrps = found["throughput_under_slo"]["mrps"].as_f64().unwrap();
    let load = found["throughput_under_slo"]["load"].as_f64().unwrap();
    // The capacity is 16 cores of 550 ns.
    assert!(mrps > 20.0 && (mrps / (load * 16e3 / 550.0) - 1.0).abs() < 0.001, "{found:#}");
}

#[test]
fn a_limit_can_be_given() {
    let mrps = |slo: &str| {
        let found = json(&[
            "--layout",
            "4x4",
            "--service",
            "600ns+fixed:0",
            "--slo",
            slo,
            "--requests",
            "20k",
            "--seeds",
            "1",
        ]);
        found["throughput_under_slo"]["mrps"].as_f64().unwrap()
    };
    assert!(mrps("2us") < mrps("8.2us"));
}

#[test]
fn people_get_a_table() {
    let text = succeed(&[
        "--layout",
        "sw",
        "--workload",
        "fixed",
        "--load",
        "0.3",
        "--requests",
        "10k",
        "--seeds",
        "1",
    ]);
    assert!(text.starts_with("sw, 220ns + 300ns+fixed:300ns, load 0.3: "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("core loop's end")), "{text}");
}

#[test]
fn claims_stand_beside_what_is_obtained() {
    let args = ["--claims", "--requests", "2k", "--seeds", "1"];
    let text = succeed(&args);
    for shown in
        ["1x16 threshold 2", "masstree, 75.0 us", "(19.2)", "(1436)", "up to 1.4x", "2.3x to 2.7x"]
    {
        assert!(text.contains(shown), "{shown} is not in\n{text}");
    }
    let claims = json(&args);
    assert_eq!(claims["answers"].as_array().map(Vec::len), Some(7 * 6 + 6 * 5 + 8), "{claims:#}");
    assert_eq!(claims["claims"][3]["obtained"].as_array().map(Vec::len), Some(4), "{claims:#}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    check_refused(&[], 1, "say at which --load, or under which limit with --slo");
    check_refused(
        &["--load", "0.7", "--layout", "sw", "--threshold", "2"],
        1,
        "sw has no threshold",
    );
    check_refused(&["--load", "2.5"], 1, "the load must be above 0 and at most 2, but is 2.5");
    check_refused(&["--load", "NaN"], 1, "the load must be above 0");
    check_refused(&["--load", "0.5", "--service", "pareto:0:1us:1"], 1, "has no finite mean");
    check_refused(&["--load", "0.5", "--requests", "2G"], 1, "the number of requests must be");
    check_refused(&["--load", "0.5", "--requests", "0.5"], 2, "is not a whole number");
    check_refused(&["--load", "0.5", "--layout", "2x8"], 2, "no layout is called");
    check_refused(&["--workload", "redis"], 2, "no workload is called");
    check_refused(&["--load", "0.5", "--slo", "8us"], 2, "cannot be used with");
    check_refused(&["--claims", "--load", "0.5"], 2, "cannot be used with");
}

fn check_refused(args: &[&str], code: i32, reason: &str) {
    let output = chip(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(code) && stderr.contains(reason),
        "{args:?}: {:?} {stderr}",
        output.status
    );
    assert!(output.stdout.is_empty(), "{args:?}");
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&succeed(&[args, &["--json", "-"]].concat()))
        .expect("standard output is JSON and nothing else")
}

fn succeed(args: &[&str]) -> String {
    let output = chip(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

fn chip(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailcut"));
    command
        .env_remove("COLUMNS")
        .args(["sim", "chip"])
        .args(args)
        .output()
        .expect("the binary starts")
}
