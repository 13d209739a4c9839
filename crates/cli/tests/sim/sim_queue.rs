//! `tailcut sim queue` as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &str) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_tailcut"))
        .args(["sim", "queue"])
        .args(args.split_whitespace())
        .output();
    command.unwrap_or_else(|error| panic!("{error}"))
}

fn json(args: &str) -> Value {
    let output = sim(&format!("{args} --json -"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn json_has_the_figures_and_the_exact_ones_beside() {
    let found = json(
        "--workers 16 --layout 1x16 --policy jbsq:2 --service exp:1us --load 0.8 --requests 300k --seeds 3",
    );
    assert_eq!(found["schema"], "tailcut.sim.queue/1");
    assert_eq!(found["config"]["layout"], "1x16");
    let (p99, exact) = (&found["sojourn_over_service"]["p99"], &found["exact"]["p99"]);
    // The exact value is of the published table; 810,000 requests have a standard error below 1 %.
    assert!((exact.as_f64().unwrap() - 5.3400).abs() < 1e-4, "{exact}");
    assert!((p99.as_f64().unwrap() / 5.34 - 1.0).abs() < 0.03, "{p99}");
    assert_eq!(found["exact"]["model"], "JBSQ(2) chain");
    assert!(
        (found["sojourn_ns"]["p99"].as_f64().unwrap() / p99.as_f64().unwrap() - 1000.0).abs()
            < 1e-6
    );
    assert!(found["standard_error"]["p99"].as_f64().unwrap() > 0.0);
    assert!((found["utilisation"].as_f64().unwrap() - 0.8).abs() < 0.01);
}

#[test]
fn where_theory_has_nothing_nothing_is_beside() {
    for args in [
        "--policy jsq:2",
        "--to-worker 1us",
        "--jitter 0.01",
        "--speeds 1*15,0.5",
        "--ties tokens",
        "--arrivals fixed",
    ] {
        assert_eq!(json(&format!("{args} --requests 20k"))["exact"], Value::Null, "{args}");
    }
}

#[test]
fn random_placement_of_any_service_has_an_exact_answer() {
    let found = json("--policy random --service bimodal:1us:10us:0.9 --load 0.5 --requests 20k");
    assert_eq!(found["exact"]["model"], "M/G/1");
}

#[test]
fn overload_says_what_was_answered_in_time() {
    let args = "--policy jbsq:1 --service exp:1ms --load 10 --deadline 100ms --requests 600k";
    let found = json(args);
    assert_eq!(
        (&found["config"]["deadline_ns"], &found["exact"]),
        (&100_000_000.into(), &Value::Null)
    );
    let goodput = found["goodput_over_capacity"].as_f64().unwrap();
    assert!((0.95..1.02).contains(&goodput), "{goodput}");
    let count = |name: &str| found[name].as_u64().unwrap();
    assert_eq!(count("requests_counted") + count("refused") + count("late"), 540_000);
    let text = String::from_utf8(sim(args).stdout).unwrap();
    assert!(text.contains("in time, within 100ms: ") && text.contains("goodput"), "{text}");
}

#[test]
fn a_person_gets_a_table() {
    let output = sim("--layout 4x4 --policy jbsq:1 --requests 20k --seeds 2");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("exact: M/M/4") && text.contains("standard error") && text.contains("p999"),
        "{text}"
    );
}

#[test]
fn nonsense_is_refused() {
    for (args, status, reason) in [
        ("--load 1", 1, "the load must be above 0 and below 1, but is 1; more needs a deadline"),
        ("--load 2 --deadline 1ms --policy jsq:2", 1, "requests wait at the workers"),
        ("--load 2000 --deadline 1ms", 1, "at most 1000"),
        ("--deadline 0ns", 2, "must be above zero"),
        ("--layout 4x4 --workers 15", 1, "has not 15 workers"),
        ("--layout 4by4", 2, "write QxU"),
        ("--policy random --ties lowest", 1, "a tie rule is for jbsq alone"),
        ("--ties best", 2, "no tie rule"),
        ("--speeds 1,1", 1, "2 speeds are given for 16 workers"),
        ("--speeds 1*x", 2, "neither SPEED nor SPEED*WORKERS"),
        ("--service pareto:0ns:1us:1.5", 1, "needs a finite mean"),
        ("--policy jbsq:1 --to-worker 1us --feedback 1us", 1, "never settles"),
        ("--service exp:10s", 1, "longer than so many workers allow"),
        (
            "--workers 65536 --policy jsq:32768 --service exp:100s --requests 1000",
            1,
            "longer than so many workers allow",
        ),
        ("--service file:/dev/zero", 2, "longer than 100000000 bytes"),
    ] {
        let output = sim(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args}: {text}");
        assert!(text.contains(reason), "{args}: {text}");
    }
}

#[test]
fn a_trace_of_arrivals_is_replayed() {
    let path = format!("{}/gaps.txt", env!("CARGO_TARGET_TMPDIR"));
    let run = |gaps: &str| {
        std::fs::write(&path, gaps).unwrap();
        let load = "--workers 1 --policy jbsq:1 --service fixed:1us --load 0.5 --requests 10k";
        sim(&format!("{load} --arrivals trace:{path} --json -"))
    };
    let found: Value =
        serde_json::from_slice(&run("# recorded\n0us\n2us\n\n0us\n2us\n").stdout).unwrap();
    // Two at once every 4 us: one waits for the other.
    assert_eq!(found["sojourn_over_service"]["mean"], 1.5, "{found:#}");
    assert_eq!(found["config"]["arrivals"], format!("trace:{path}"));
    assert_eq!(found["exact"], Value::Null);
    for (gaps, reason) in [("", "needs gaps"), ("0us\n", "needs gaps"), ("1us\nlong\n", "line 2")] {
        let output = run(gaps);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(reason), "{gaps:?}: {stderr}");
    }
}
