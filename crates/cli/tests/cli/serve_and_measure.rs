//! Servers, and what a measurement says of them.

use crate::harness::{Service, assert_all_replied, measure, run, serve};
use serde_json::Value;

const SHORT: [&str; 4] = ["--duration", "400ms", "--warmup", "100ms"];

fn measure_shortly(server: &Service, more: &[&str]) -> Value {
    measure(server.address(), &[&SHORT[..], more].concat())
}

/// Echoes at a modest rate; every request must be answered.
fn check_echo(listen: &str, more: &[&str]) {
    let server = Service::start(&["serve", "--listen", listen, "--app", "echo"], 1);
    let result = measure_shortly(&server, &[&["--rate", "500"], more].concat());
    assert_all_replied(&result);
}

#[test]
fn echo_is_measured() {
    check_echo("127.0.0.1:0", &["--app", "echo:64"]);
}

#[test]
fn echo_is_measured_over_ipv6() {
    check_echo("[::1]:0", &["--app", "echo:64"]);
}

#[test]
fn large_messages_are_measured() {
    check_echo("127.0.0.1:0", &["--app", "echo:20kB"]);
}

#[test]
fn version_1_is_measured() {
    check_echo("127.0.0.1:0", &["--app", "echo:64", "--v1"]);
}

#[test]
fn names_resolve() {
    let server = Service::start(&["serve", "--listen", "localhost:0", "--app", "echo"], 1);
    let port = server.address().rsplit_once(':').expect("an address").1;
    let target = format!("localhost:{port}");
    assert_all_replied(&measure(&target, &[&SHORT[..], &["--app", "echo:8", "--rate", "100"]].concat()));
}

/// The emulated service is the least that a request can take, and wake-ups on a busy machine add to it.
#[test]
fn a_synthetic_service_takes_its_time() {
    let server = serve("synthetic", &[]);
    let result = measure_shortly(&server, &["--app", "synthetic:fixed:2ms", "--rate", "100"]);
    assert_all_replied(&result);
    let latency_us = &result["latency_us"]["actual"];
    let p50 = latency_us["p50"].as_f64().expect("enough samples");
    assert!((2_000.0..20_000.0).contains(&p50), "{result:#}");
}

#[test]
fn a_server_draws_services_of_its_own() {
    let server = serve("synthetic:fixed:3ms", &[]);
    let result = measure_shortly(&server, &["--app", "synthetic:fixed:0", "--rate", "100"]);
    assert_all_replied(&result);
    assert!(result["latency_us"]["actual"]["p50"].as_f64() >= Some(3_000.0), "{result:#}");
}

/// With requests always waiting, N workers finish N services of 20 ms every 20 ms, however late the replies leave: the
/// throughputs are 8 to 1, but for the one service that the shorter count may miss or have too much at either end.
#[test]
fn workers_serve_side_by_side() {
    let throughput = |workers: &str| {
        let server = serve("synthetic", &["--workers", workers]);
        let load = ["--app", "synthetic:fixed:20ms", "--outstanding", "64", "--duration", "600ms", "--warmup", "100ms"];
        let result = measure(server.address(), &load);
        assert_all_replied(&result);
        result["rate_per_s"]["achieved"].as_f64().expect("a rate")
    };
    // The median of three, for a stall of the machine may move services over an end.
    let mut ratios = [(); 3].map(|()| throughput("8") / throughput("1"));
    ratios.sort_by(f64::total_cmp);
    assert!((7.0..=9.0).contains(&ratios[1]), "{ratios:?}");
}

#[test]
fn spinning_takes_its_time_too() {
    let server = serve("spin", &[]);
    let result = measure_shortly(&server, &["--app", "synthetic:fixed:200us", "--rate", "100"]);
    assert_all_replied(&result);
    assert!(result["latency_us"]["actual"]["p50"].as_f64() >= Some(200.0), "{result:#}");
}

#[test]
fn services_that_are_too_long_are_refused_and_counted() {
    let server = serve("synthetic", &["--service-max", "1ms"]);
    let result = measure_shortly(&server, &["--app", "synthetic:fixed:2ms", "--rate", "100"]);
    assert_eq!(result["counts"]["refused"], result["counts"]["sent"], "{result:#}");
    assert!(result["latency_us"]["intended"]["mean"].is_null());
}

#[test]
fn timeouts_are_counted() {
    let server = serve("synthetic", &[]);
    let result = measure_shortly(&server, &["--app", "synthetic:fixed:900ms", "--rate", "50", "--timeout", "20ms"]);
    assert_eq!(result["counts"]["timeout"], result["counts"]["sent"], "{result:#}");
}

#[test]
fn every_port_is_a_server() {
    let server = Service::start(&["serve", "--listen", "127.0.0.1:0", "--ports", "3", "--app", "echo"], 3);
    for address in &server.addresses {
        let result = measure(address, &[&SHORT[..], &["--app", "echo:64", "--rate", "100"]].concat());
        assert_all_replied(&result);
    }
}

#[test]
fn the_same_seed_offers_the_same_load() {
    let server = serve("echo", &[]);
    let offered = |seed: &str| {
        measure_shortly(&server, &["--app", "echo:8", "--rate", "1k", "--seed", seed])["rate_per_s"]["offered"].clone()
    };
    assert_eq!(offered("7"), offered("7"));
    assert_ne!(offered("7"), offered("8"));
}

#[test]
fn a_result_names_what_repeats_it() {
    let server = serve("echo", &[]);
    let result = measure_shortly(&server, &["--app", "echo:64", "--rate", "100", "--seed", "9"]);
    assert_eq!(result["schema"], "tailcut.measure/2");
    let command = result["environment"]["command"].as_str().expect("a text");
    assert!(command.starts_with("tailcut measure --target 127.0.0.1:"), "{command}");
    assert_eq!((&result["config"]["seed"], &result["config"]["app"]), (&Value::from(9), &Value::from("echo:64")));
}

#[test]
fn people_get_a_table() {
    let server = serve("echo", &[]);
    let output = run(&[&["measure", "--target", server.address(), "--app", "echo:64", "--rate", "200"], &SHORT[..]].concat());
    let text = String::from_utf8(output.stdout).expect("it is text");
    assert!(text.contains("trustworthy") && text.contains("from intended send"), "{text}");
}

#[test]
fn a_server_ends_well_by_sigterm_and_sigint() {
    for signal in ["TERM", "INT"] {
        let server = serve("echo", &[]);
        assert_all_replied(&measure_shortly(&server, &["--app", "echo:64", "--rate", "100"]));
        server.signal(signal);
        let (code, _, stderr) = server.wait();
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stderr.starts_with("served:") && stderr.contains("requests"), "{stderr}");
    }
}

#[test]
fn a_busy_port_is_said() {
    let server = serve("echo", &[]);
    let output = run(&["serve", "--listen", server.address(), "--app", "echo"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains(&format!("cannot listen at {}", server.address())), "{stderr}");
}

/// A load thread that polls must leave room on its core for whoever coordinates it, whatever its priority.
#[test]
fn a_polling_load_with_real_time_priority_ends() {
    let server = serve("echo", &[]);
    let load = ["--app", "echo:8", "--rate", "1000", "--duration", "300ms", "--warmup", "100ms", "--busy-poll", "--json", "-"];
    let output = std::process::Command::new("timeout")
        .args(["-s", "KILL", "20", "taskset", "-c", "0", "chrt", "-f", "1", env!("CARGO_BIN_EXE_tailcut"), "measure"])
        .args(["--target", server.address()])
        .args(load)
        .output()
        .expect("timeout is there");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("Operation not permitted") {
        println!("SKIPPED: real-time priority is not permitted here");
        return;
    }
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}: {stderr}", output.status);
}
