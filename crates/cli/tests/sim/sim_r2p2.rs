//! `tailcut sim r2p2` as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &str) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_tailcut"))
        .args(["sim", "r2p2"])
        .args(args.split_whitespace())
        .output();
    command.unwrap_or_else(|error| panic!("{error}"))
}

fn json(args: &str) -> Value {
    let output = sim(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn json_says_what_was_run_and_what_came_of_it() {
    let found = json("--requests 5k --seeds 2 --json -");
    assert_eq!(found["schema"], "tailcut.sim.r2p2/1");
    assert_eq!(found["config"]["policy"], "jbsq:3");
    assert_eq!(found["counts"]["sent"], found["counts"]["replied"]);
    let [p50, p99] = ["p50", "p99"].map(|name| found["latency_us"][name].as_f64().unwrap());
    assert!(p50 > 3.0 && p99 > p50, "{p50} {p99}");
    assert!(found["standard_error_us"]["p99"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_seed_replays() {
    assert_eq!(json("--requests 2k --seed 7 --json -"), json("--requests 2k --seed 7 --json -"));
}

#[test]
fn where_nothing_is_answered_there_is_no_latency() {
    let found = json("--requests 200 --loss 1 --timeout 10ms --json -");
    assert_eq!(
        (&found["latency_us"]["p99"], &found["counts"]["timeout"]),
        (&Value::Null, &Value::from(180))
    );
}

#[test]
fn a_person_gets_a_table() {
    let output = sim("--requests 2k --policy none --topology leaf-spine --loss 0.01");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("p99") && text.contains("resent") && text.contains("utilisation"),
        "{text}"
    );
}

#[test]
fn nonsense_is_refused() {
    for (args, status, reason) in [
        ("--load 1001", 1, "the load must be above 0 and at most 1000"),
        ("--servers 0", 2, "0 is not in 1.."),
        ("--policy fifo", 2, "no policy is called"),
        ("--loss 2", 2, "no share from 0 to 1"),
        ("--requests 0", 2, "must be above zero"),
        ("--link-delay 1000000000s", 2, "more than a second"),
        ("--delay-jitter 2s", 2, "more than a second"),
        ("--load 1e-300", 1, "of virtual time"),
        ("--service fixed:100000000s", 1, "of virtual time"),
        (
            "--topology leaf-spine --rack 1 --spines 4294967295",
            1,
            "hosts or links between switches",
        ),
        ("--topology leaf-spine --rack 300000000", 1, "hosts or links between switches"),
        ("--seeds 18446744073709551615", 2, "is not in 1..=10000"),
    ] {
        let output = sim(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args}: {text}");
        assert!(text.contains(reason), "{args}: {text}");
    }
}
