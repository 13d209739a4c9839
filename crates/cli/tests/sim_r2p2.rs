//! `tailcut sim r2p2` as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &str) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_tailcut")).args(["sim", "r2p2"]).args(args.split_whitespace()).output();
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
fn a_person_gets_a_table() {
    let output = sim("--requests 2k --policy none --topology leaf-spine --loss 0.01");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("p99") && text.contains("resent") && text.contains("utilisation"), "{text}");
}

#[test]
fn nonsense_is_refused() {
    for (args, status, reason) in [
        ("--load 1.5", 1, "the load must be above 0 and below 1"),
        ("--servers 0", 2, "0 is not in 1.."),
        ("--policy fifo", 2, "no policy is called"),
        ("--loss 2", 2, "no share from 0 to 1"),
        ("--requests 0", 2, "must be above zero"),
    ] {
        let output = sim(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args}: {text}");
        assert!(text.contains(reason), "{args}: {text}");
    }
}
