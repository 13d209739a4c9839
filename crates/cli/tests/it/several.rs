//! Several loads, and several agents: patterns, roles, and who is lost in the middle.

use std::io::{BufRead, BufReader};
use std::process::Child;

use super::harness::{
    Service, finish, in_one_of_three, measure, samples_file, serve, signal, start_measure,
};

const SHORT: [&str; 4] = ["--warmup", "100ms", "--duration", "300ms"];

#[test]
fn steps_are_measured_one_after_the_other() {
    let server = serve("echo", &[]);
    let result = measure(
        server.address(),
        &[&["--app", "echo:64", "--pattern", "steps:200:600:200"], &SHORT[..]].concat(),
    );
    let points = result["points"].as_array().expect("points");
    let offered: Vec<f64> = points
        .iter()
        .map(|point| point["rate_per_s"]["offered"].as_f64().expect("a rate"))
        .collect();
    assert_eq!(offered.len(), 3, "{result:#}");
    for (offered, asked) in offered.into_iter().zip([200.0, 400.0, 600.0]) {
        // Of a Poisson process in 300 ms.
        assert!(
            (offered - asked).abs() < 6.0 * (asked / 0.3).sqrt(),
            "{offered} instead of {asked}"
        );
    }
    assert!(
        points.iter().all(|point| point["counts"]["replied"] == point["counts"]["sent"]),
        "{result:#}"
    );
}

/// Four workers serve 4,000 requests/s.
#[test]
fn the_highest_load_that_meets_an_objective_is_found() {
    let server = serve("synthetic", &["--workers", "4"]);
    let search = [
        "--app",
        "synthetic:fixed:1ms",
        "--pattern",
        "find:500:20k",
        "--slo",
        "p50<20ms",
        "--timeout",
        "1s",
    ];
    in_one_of_three(|| {
        let result = measure(server.address(), &[&search[..], &SHORT].concat());
        let met_per_s = result["search"]["met_per_s"].as_f64().unwrap_or(0.0);
        let search = &result["search"];
        let missed_per_s = search["missed_per_s"].as_f64().or(search["not_judged_per_s"].as_f64());
        let missed_per_s = missed_per_s.expect("a load that is too high");
        let is_found = (500.0..4_500.0).contains(&met_per_s) && missed_per_s > met_per_s;
        if is_found { Ok(()) } else { Err(format!("{result:#}")) }
    });
}

#[test]
fn a_pattern_that_is_interrupted_tells_the_loads_until_then() {
    let server = serve("echo", &[]);
    let load = [
        "--app",
        "echo:64",
        "--pattern",
        "steps:200:2000:200",
        "--warmup",
        "100ms",
        "--duration",
        "1s",
    ];
    let mut measure = start_measure(server.address(), &load);
    wait_for(&mut measure, "offered");
    signal("INT", &measure);
    let result = finish(measure);
    let points = result["points"].as_array().expect("points").len();
    assert!((1..10).contains(&points), "{result:#}");
    assert_eq!(result["verdict"]["reasons"][0]["name"], "interrupted", "{result:#}");
}

/// A thousand requests a second, however much the others load.
#[test]
fn an_agent_that_measures_only_asks_one_request_at_a_time() {
    let (server, path) = (serve("echo", &["--transport", "udp"]), samples_file("one-at-a-time"));
    let file = path.to_str().expect("it is text");
    let load = [
        "--transport",
        "udp",
        "--app",
        "echo:64",
        "--rate",
        "3k",
        "--connections-max",
        "64",
        "--samples",
        file,
    ];
    let agents = ["--agent", "local,role=latency", "--agent", "local,role=throughput"];
    let result = measure(server.address(), &[&load[..], &agents, &SHORT].concat());
    let text = std::fs::read_to_string(&path).expect("a file");
    std::fs::remove_file(&path).expect("it is there");
    let sent: Vec<f64> =
        [0, 1].map(|agent| result["agents"][agent]["sent"].as_f64().expect("a count")).to_vec();
    assert!((200.0..400.0).contains(&sent[0]) && (700.0..1_100.0).contains(&sent[1]), "{result:#}");
    assert_eq!(result["counts"]["replied"], result["counts"]["sent"], "{result:#}");
    let times = |line: &str| {
        let cell = |at| {
            line.split(',').nth(at).and_then(|cell| cell.parse::<u64>().ok()).expect("a number")
        };
        // When it left, and when its reply came.
        (cell(3), cell(2) + cell(4))
    };
    let mut requests: Vec<(u64, u64)> = text.lines().skip(1).map(times).collect();
    requests.sort_unstable();
    assert_eq!(requests.len() as f64, sent[0]);
    assert!(requests.windows(2).all(|pair| pair[1].0 >= pair[0].1), "two requests at a time");
}

#[test]
fn an_agent_that_is_lost_while_it_measures_is_named_in_the_verdict() {
    let (_server, measure) =
        lose(&["--rate", "500", "--warmup", "2s", "--duration", "2s"], "measuring");
    let result = finish(measure);
    assert_eq!(result["verdict"]["reasons"][0]["name"], "agent_lost", "{result:#}");
    assert!(
        result["verdict"]["reasons"][0]["what"]
            .as_str()
            .is_some_and(|what| what.contains("tcp:127.0.0.1")),
        "{result:#}"
    );
}

#[test]
fn an_agent_that_is_lost_while_it_warms_up_is_named_and_nobody_said_to_have_interrupted() {
    let (_server, measure) =
        lose(&["--rate", "500", "--warmup", "2s", "--duration", "2s"], "warming up");
    let output = measure.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("tcp:127.0.0.1") && !stderr.contains("interrupted"), "{stderr}");
}

#[test]
fn a_pattern_that_loses_an_agent_tells_the_loads_until_then_and_why() {
    let load = ["--pattern", "steps:200:2000:200", "--warmup", "100ms", "--duration", "1s"];
    let (_server, measure) = lose(&load, "offered");
    let result = finish(measure);
    let points = result["points"].as_array().expect("points").len();
    assert!((1..10).contains(&points), "{result:#}");
    assert_eq!(result["verdict"]["trustworthy"], false, "{result:#}");
    assert_eq!(result["verdict"]["reasons"][0]["name"], "agent_lost", "{result:#}");
}

/// A load, partly by an agent that is killed once the run says `when`.
fn lose(load: &[&str], when: &str) -> (Service, Child) {
    let server = serve("echo", &[]);
    let agent = Service::start(&["agent", "--listen", "127.0.0.1:0"], 1);
    let place = format!("tcp:{}", agent.address());
    let agents = ["--app", "echo:64", "--timeout", "1s", "--agent", &place, "--agent", "local"];
    let mut measure = start_measure(server.address(), &[load, &agents].concat());
    wait_for(&mut measure, when);
    agent.signal("KILL");
    (server, measure)
}

/// Reads standard error up to a line with `text`.
fn wait_for(measure: &mut Child, text: &str) {
    let stderr = measure.stderr.as_mut().expect("it is piped");
    let mut said = Vec::new();
    for line in BufReader::with_capacity(1, stderr).lines() {
        said.push(line.expect("it is text"));
        if said.last().is_some_and(|line| line.contains(text)) {
            return;
        }
    }
    panic!("it never says {text:?}: {said:#?}");
}
