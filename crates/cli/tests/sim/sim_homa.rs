//! `tailcut sim homa` as a user runs it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &str) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_tailcut"))
        .args(["sim", "homa"])
        .args(args.split_whitespace())
        .output();
    command.unwrap_or_else(|error| panic!("{error}"))
}

fn json(args: &str) -> Value {
    let output = sim(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}"))
}

fn file(name: &str, content: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap_or_else(|error| panic!("{error}"));
    path.to_str().expect("the path is text").to_owned()
}

#[test]
fn json_has_a_row_for_each_bucket_and_says_how_full_links_were() {
    let found = json(&format!("{SHORT} --workload w2 --json -"));
    assert_eq!(
        (&found["schema"], &found["config"]["workload"]),
        (&Value::from("tailcut.sim.homa/1"), &Value::from("w2"))
    );
    assert_eq!(found["counts"]["sent"], found["counts"]["received"]);
    let buckets = found["buckets"].as_array().unwrap();
    let counts: u64 = buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum();
    assert_eq!(Some(counts), found["counts"]["received"].as_u64());
    assert_eq!(
        (&found["homa"]["resends"], &found["config"]["overcommit"]),
        (&Value::from(0), &Value::from(3))
    );
    for bucket in buckets {
        let [p50, p99] = ["p50", "p99"].map(|name| bucket[name].as_f64().unwrap());
        assert!(p50 >= 0.99 && p99 >= p50, "{bucket}");
    }
    let up = found["links"]["uplink_share"].as_f64().unwrap();
    assert!((up / 0.8 - 1.0).abs() < 0.1, "{up}");
}

#[test]
fn the_same_messages_go_beside() {
    let found = json(&format!("{SHORT} --workload w1 --beside plain,streams,oracle --json -"));
    let beside = found["beside"].as_array().unwrap();
    assert_eq!(
        beside.iter().map(|one| one["transport"].as_str().unwrap()).collect::<Vec<_>>(),
        ["plain", "streams", "oracle"]
    );
    for one in beside {
        assert_eq!(one["counts"]["sent"], found["counts"]["sent"]);
        assert!(one["buckets"][0]["p99"].as_f64().unwrap() >= 1.0, "{one}");
    }
}

#[test]
fn a_workload_and_buckets_come_from_files() {
    let workload = file("homa-sizes.txt", "550\n100 0.5\n1000 1\n");
    let buckets = file("homa-buckets.txt", "# upper sizes\n100\n2000\n");
    let found = json(&format!("{SHORT} --workload {workload} --buckets {buckets} --json -"));
    let sizes: Vec<u64> = found["buckets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["size_max"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [100, 2000]);
}

#[test]
fn echoes_come_back() {
    let found = json("--echo --hosts 8 --duration 2ms --workload w1 --json -");
    assert_eq!(found["counts"]["sent"], found["counts"]["received"]);
    assert!(found["buckets"][0]["p50"].as_f64().unwrap() >= 0.99, "{}", found["buckets"][0]);
}

#[test]
fn policies_carry_the_same_messages() {
    let of = |policy: &str| {
        json(&format!("{SHORT} --workload w2 --policy {policy} --timers network --json -"))
    };
    let found = ["sigcomm", "module", "short-packets"].map(of);
    for one in &found {
        assert_eq!(
            (&one["counts"]["received"], &one["config"]["timers"]),
            (&found[0]["counts"]["sent"], &Value::from("network"))
        );
    }
    assert_eq!(found[2]["config"]["policy"], "short-packets");
}

#[test]
fn a_seed_replays() {
    let args = format!("{SHORT} --workload w1 --seed 7 --json -");
    assert_eq!(json(&args), json(&args));
}

#[test]
fn a_person_gets_a_table() {
    let output = sim(&format!("{SHORT} --workload w1"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("p99")
            && text.contains("queues towards hosts")
            && text.contains("unfinished"),
        "{text}"
    );
}

#[test]
fn nonsense_is_refused() {
    let descending = file("homa-descending.txt", "10\n5\n");
    for (args, status, reason) in [
        ("--load 0", 1, "the load must be above 0"),
        ("--hosts 17", 1, "whole racks of 16"),
        ("--hosts 1", 1, "there can be 2 to 16 hosts"),
        ("--workload w9", 2, "neither one of w1, w2, w3, w4, w5 nor a file"),
        ("--priorities 9", 2, "9 is not in 1..=8"),
        ("--echo", 1, "at one switch"),
        ("--echo --hosts 16 --transport plain", 1, "echoed by Homa"),
        ("--warmup 20ms", 1, "the warm-up must be shorter"),
        ("--duration 0s", 2, "must be above zero"),
        (&format!("--buckets {descending}"), 1, "must ascend"),
        (&format!("--workload {descending}"), 2, "line 2"),
    ] {
        let output = sim(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), stderr.contains(reason)),
            (Some(status), true),
            "{args}: {stderr}"
        );
    }
}

/// Few hosts and little time.
const SHORT: &str = "--hosts 16 --duration 4ms";
