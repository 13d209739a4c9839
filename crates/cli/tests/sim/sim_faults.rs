//! `tailcut sim faults` as a person or a program meets it.

use std::process::{Command, Output};

use serde_json::Value;

fn faults(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailcut"));
    command.args(["sim", "faults"]).args(args).output().expect("the binary starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("standard output is JSON and nothing else")
}

#[test]
fn the_same_seeds_give_the_same_result() {
    let runs = [0, 1].map(|_| faults(&["--seeds", "10", "--seed", "5", "--json", "-"]));
    let [first, second] = runs.each_ref().map(json);
    assert!(runs[0].status.success());
    assert_eq!(first["schema"], "tailcut.sim.faults/1");
    assert_eq!((&first["hash"], &first["counts"]), (&second["hash"], &second["counts"]));
    assert_eq!(first["failure"], Value::Null);
    assert!(first["counts"]["calls"]["replied"].as_u64() > Some(100), "{first}");
}

#[test]
fn a_bug_fails_the_command_and_is_shown_minimised_with_its_replay() {
    let output = faults(&["--seeds", "50", "--sabotage", "duplicate-runs-twice"]);
    let text = String::from_utf8(output.stdout).expect("it is text");
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("AtMostOnce does not hold"), "{text}");
    assert!(text.contains("The least that breaks it"), "{text}");
    let replay = text
        .lines()
        .find_map(|line| line.strip_prefix("Replay it by `tailcut ")?.strip_suffix("`."));
    let arguments: Vec<&str> =
        replay.expect("it says how to replay it").split(' ').skip(2).collect();
    let again = faults(&arguments);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stdout).contains("AtMostOnce does not hold"));
}

#[test]
fn a_bug_is_told_in_json_too() {
    let failure = json(&faults(&[
        "--seeds",
        "50",
        "--sabotage",
        "reply-is-changed",
        "--json",
        "-",
    ]))["failure"]
        .clone();
    assert_eq!(failure["invariant"], "Content");
    assert!(failure["minimised"]["items"].as_u64() <= Some(20), "{failure}");
    assert!(failure["minimised"]["trace"].as_array().is_some_and(|lines| !lines.is_empty()));
}

#[test]
fn a_load_is_kept_by_the_replay() {
    let found = json(&faults(&["--seeds", "10", "--load", "20", "--json", "-"]));
    assert_eq!((&found["config"]["load"], &found["failure"]), (&20.0.into(), &Value::Null));
    assert!(found["counts"]["calls"]["overload"].as_u64() > Some(100), "{found}");
    let broken = ["--seeds", "50", "--load", "20", "--sabotage", "reply-is-changed", "--json", "-"];
    let replay = json(&faults(&broken))["failure"]["replay"].clone();
    assert!(replay.as_str().is_some_and(|replay| replay.contains(" --load 20")), "{replay}");
}

#[test]
fn a_load_that_makes_no_sense_is_refused() {
    for (args, reason) in [
        (&["--load", "0"][..], "no load from 0.1 to 100"),
        (&["--load", "2", "--plan", "hostile"][..], "cannot be used with"),
    ] {
        let output = faults(args);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(reason), "{args:?}");
    }
}

#[test]
fn an_unknown_sabotage_is_refused_with_those_that_there_are() {
    let output = faults(&["--sabotage", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("lost-feedback-leaks-slot"));
}
