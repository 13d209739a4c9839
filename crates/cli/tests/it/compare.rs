//! `tailcut compare` as people run it, on results in files.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{run, succeed};

#[test]
fn runs_of_the_same_do_not_differ() {
    let (a, b) =
        (save("same-a", &result(1.0, &[])), save("same-b", &result(1.0, &[("started", "later")])));
    let text = succeed(&["compare", &a, &b]);
    assert!(
        text.starts_with(&format!(
            "A: {a}, trustworthy\nB: {b}, trustworthy\n\nthe settings are the same\n"
        )),
        "{text}"
    );
    assert_eq!(text.matches("no difference shown").count(), 2, "p50 and p99: {text}");
}

#[test]
fn json_names_what_differs_and_prints_nothing_else() {
    let (a, b) =
        (save("json-a", &result(1.0, &[])), save("json-b", &result(1.5, &[("app", "echo:128")])));
    let comparison: Value =
        serde_json::from_str(&succeed(&["compare", &a, &b, "--json", "-"])).unwrap();
    assert_eq!(comparison["schema"], "tailcut.compare/1");
    assert_eq!(comparison["trustworthy"], true);
    assert_eq!(
        comparison["changes"],
        json!([{ "key": "app", "before": "\"echo:64\"", "after": "\"echo:128\"" }])
    );
    let names: Vec<&Value> =
        comparison["percentiles"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    // 10,000 samples support the p99.9 and no more.
    assert_eq!(names, ["p50", "p90", "p95", "p99", "p999"]);
    // Both have intervals of the p50 and the p99 alone.
    assert_eq!(comparison["percentiles"][1]["differs"], Value::Null);
    let p99 = &comparison["percentiles"][3];
    // 80 to 100 us against 120 to 150 us: the ends that face each other are 10 and 15 away.
    assert_eq!((p99["before_us"].as_f64(), p99["after_us"].as_f64()), (Some(90.0), Some(135.0)));
    let half = 10f64.hypot(15.0);
    for (end, expected) in [("value", 45.0), ("low", 45.0 - half), ("high", 45.0 + half)] {
        let found = p99["difference_us"][end].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-9, "{end}: {found} is not {expected}");
    }
    assert_eq!(p99["differs"], true);
}

#[test]
fn a_result_that_is_not_trustworthy_exits_with_3_and_is_compared() {
    let mut doubted = result(1.5, &[]);
    let advice = "lower the rate";
    doubted["verdict"] = json!({
        "trustworthy": false,
        "reasons": [{ "name": "losses", "what": "1 % got no reply", "advice": advice }],
        "tried": [],
    });
    let (a, b) = (save("doubt-a", &result(1.0, &[])), save("doubt-b", &doubted));
    for files in [[&a, &b], [&b, &a]] {
        let output = run(&["compare", files[0], files[1]]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{text}");
        for part in [
            "not trustworthy\n  losses: 1 % got no reply\n    what would help: lower the rate\n",
            "p99 ",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

/// 80 to 100 us against 120 to 150 us at the p99: the difference is 45 us, by 18 less or more.
#[test]
fn a_condition_that_is_met_exits_with_4() {
    let (a, b) = (save("gate-a", &result(1.0, &[])), save("gate-b", &result(1.5, &[])));
    let junit = format!("{}/junit.xml", env!("CARGO_TARGET_TMPDIR"));
    for (files, condition, code, word) in [
        ([&a, &b], "p99>+5%", 4, "fails: p99>+5% (p99 was 90.0 us and is 135 us (+50.0 %)"),
        ([&a, &b], "p99>+50%", 0, "not decided: p99>+50%"),
        ([&a, &b], "p99>+100us", 0, "passes: p99>+100us"),
        ([&b, &a], "p99>+5%", 0, "passes: p99>+5%"),
        ([&a, &b], "p90>+5%", 0, "not decided: p90>+5%"),
    ] {
        let args = ["compare", files[0], files[1], "--fail-if", condition];
        let output = run(&[&args[..], &["--junit", &junit, "--annotate", "github"]].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{condition}: {text}");
        assert!(text.contains(&format!("\n{word}")), "{condition}: {text}");
        let annotation = match word.split(':').next() {
            Some("fails") => "::error title=",
            Some("passes") => "::notice title=",
            _ => "::warning title=",
        };
        assert!(
            text.contains(&format!("\n{annotation}{}", condition.replace('%', "%25"))),
            "{text}"
        );
        let report = fs::read_to_string(&junit).unwrap();
        let failures = format!("tests=\"3\" failures=\"{}\"", u8::from(code == 4));
        assert!(report.starts_with("<?xml ") && report.contains(&failures), "{report}");
        assert!(report.contains(&condition.replace('>', "&gt;")), "{report}");
    }
    let args = ["compare", &a, &b, "--fail-if", "p99>+5%", "--fail-if", "p50>+90%", "--json", "-"];
    let output = run(&args);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &json["conditions"][0]["outcome"]),
        (Some(4), &json!("fails"))
    );
    assert_eq!(json["conditions"][1]["asked"], "p50>+90%");
    assert_eq!(run(&["compare", &a, &b, "--fail-if", "p99>5"]).status.code(), Some(2));
}

#[test]
fn the_page_is_one_file() {
    let (a, b) = (save("page-a", &result(1.0, &[])), save("page-b", &result(1.5, &[])));
    let page = format!("{}/comparison.html", env!("CARGO_TARGET_TMPDIR"));
    succeed(&["compare", &a, &b, "--html", &page]);
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.starts_with("<!doctype html>")
            && page.contains("<svg")
            && page.contains("longer in B")
    );
}

#[test]
fn a_file_that_is_no_result_is_refused_by_its_name() {
    let whole = result(1.0, &[]);
    let good = save("good", &whole);
    check(&good, "/no/such/file", "cannot read /no/such/file");
    let text = whole.to_string();
    check(&good, &save_text("short", &text[..text.len() - 9]), "cannot be used: it is cut short");
    check(&good, &save_text("text", "p99 is 5 us"), "cannot be used: it is no JSON");
    check(&good, &save("schemaless", &json!({ "p99": 5 })), "it names no schema");
    check(
        &good,
        &save("older", &with(&whole, "schema", json!("tailcut.measure/1"))),
        "this tailcut reads tailcut.measure/2",
    );
    check(
        &good,
        &save("other", &with(&whole, "schema", json!("tailcut.demo/1"))),
        "it is no result of tailcut measure",
    );
    check(
        &good,
        &save("partial", &with(&whole, "counts", Value::Null)),
        "it is no whole tailcut.measure/2",
    );
    let broken = json!({ "intended": "HISTFAAAAAE=", "actual": "" });
    check(
        &save("broken", &with(&whole, "histograms", broken)),
        &good,
        "latencies from the intended send: the histogram",
    );
}

/// A trustworthy result whose p99 is 90 us with the interval from 80 to 100 us, times `scale`;
/// `more` are settings.
fn result(scale: f64, more: &[(&str, &str)]) -> Value {
    let vector: Value =
        serde_json::from_str(include_str!("../../../instrument/tests/vectors/hdr.json")).unwrap();
    let interval = |value: f64, half: f64| {
        let (low, high) = (scale * (value - half), scale * (value + half));
        json!({ "value": scale * value, "low": low, "high": high, "confidence": 0.95, "effective_samples": 4_000.0 })
    };
    let mut config = json!({ "app": "echo:64", "target": "127.0.0.1:8000", "seed": 1 });
    let started = more.iter().find(|(key, _)| *key == "started").map_or("now", |(_, value)| value);
    for (key, value) in more.iter().filter(|(key, _)| *key != "started") {
        config[key] = json!(value);
    }
    json!({
        "schema": "tailcut.measure/2",
        "config": config,
        "environment": { "version": "0.1.0", "command": "tailcut measure", "started": started, "hosts": [] },
        "verdict": { "trustworthy": true, "reasons": [], "tried": [] },
        "rate_per_s": { "offered": 1e3, "sent": 1e3, "achieved": 1e3 },
        "counts": {
            "sent": 10_000, "replied": 10_000, "lost": 0, "refused": 0, "timeout": 0, "misses": 0, "reconnects": 0,
        },
        "latency_us": { "intended": {}, "actual": {} },
        "intervals_us": { "p50": interval(30.0, 2.0), "p99": interval(90.0, 10.0) },
        "histograms": { "intended": vector["histogram"], "actual": vector["histogram"] },
        "client": {
            "mismatched": 0, "saturated": 0, "resent": 0, "sleeps": 0, "icmp_errors": 0, "kernel_drops": 0,
        },
        "warmup_s": 1.0,
        "measured_s": 10.0,
    })
}

fn with(result: &Value, key: &str, value: Value) -> Value {
    let mut result = result.clone();
    result[key] = value;
    result
}

/// Writes the file of a test, whose path it gives.
fn save(name: &str, result: &Value) -> String {
    save_text(name, &result.to_string())
}

fn save_text(name: &str, text: &str) -> String {
    let path = format!("{}/compare-{name}.json", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&path, text).unwrap();
    path
}

fn check(a: &str, b: &str, part: &str) {
    let output = run(&["compare", a, b]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(part), "{stderr}");
}
