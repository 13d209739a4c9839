//! Servers, and what a measurement says of them.

use std::path::Path;

use crate::harness::{Service, assert_all_replied, measure, run, samples_file, serve};
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

/// Homa inside UDP, and its counters at the end. The engine's tests have it directly over IP.
#[test]
fn homa_is_measured() {
    let server = serve("echo", &["--transport", "homa"]);
    for app in ["echo:100", "echo:100kB"] {
        assert_all_replied(&measure_shortly(
            &server,
            &["--transport", "homa", "--app", app, "--rate", "500"],
        ));
    }
    server.signal("TERM");
    let (code, _, stderr) = server.wait();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        ["requests", "grants", "udp_datagrams_in"].iter().all(|counter| stderr.contains(counter)),
        "{stderr}"
    );
}

#[test]
fn names_resolve() {
    let server = Service::start(&["serve", "--listen", "localhost:0", "--app", "echo"], 1);
    let port = server.address().rsplit_once(':').expect("an address").1;
    let target = format!("localhost:{port}");
    assert_all_replied(&measure(
        &target,
        &[&SHORT[..], &["--app", "echo:8", "--rate", "100"]].concat(),
    ));
}

/// The emulated service is the least that a request can take, and wake-ups on a busy machine add to
/// it.
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

/// With requests always waiting, N workers finish N services of 20 ms every 20 ms, however late the
/// replies leave: the throughputs are 8 to 1, but for the one service that the shorter count may
/// miss or have too much at either end.
#[test]
fn workers_serve_side_by_side() {
    let throughput = |workers: &str| {
        let server = serve("synthetic", &["--workers", workers]);
        let load = [
            "--app",
            "synthetic:fixed:20ms",
            "--outstanding",
            "64",
            "--duration",
            "600ms",
            "--warmup",
            "100ms",
        ];
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
    let result = measure_shortly(
        &server,
        &["--app", "synthetic:fixed:900ms", "--rate", "50", "--timeout", "20ms"],
    );
    // What waits is refused before its client gives up; what runs is not.
    let [sent, timeout, refused] =
        ["sent", "timeout", "refused"].map(|name| result["counts"][name].as_u64().unwrap());
    assert!(timeout > 0 && timeout + refused == sent, "{result:#}");
}

#[test]
fn every_port_is_a_server() {
    let server =
        Service::start(&["serve", "--listen", "127.0.0.1:0", "--ports", "3", "--app", "echo"], 3);
    for address in &server.addresses {
        let result =
            measure(address, &[&SHORT[..], &["--app", "echo:64", "--rate", "100"]].concat());
        assert_all_replied(&result);
    }
}

#[test]
fn the_same_seed_offers_the_same_load() {
    let server = serve("echo", &[]);
    let offered = |seed: &str| {
        measure_shortly(&server, &["--app", "echo:8", "--rate", "1k", "--seed", seed])["rate_per_s"]
            ["offered"]
            .clone()
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
    assert_eq!(
        (&result["config"]["seed"], &result["config"]["app"]),
        (&Value::from(9), &Value::from("echo:64"))
    );
}

/// Latency and outcome of each request in a file of samples.
fn read_samples(path: &Path) -> Vec<(Option<u64>, String)> {
    let text = std::fs::read_to_string(path).expect("a file");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("load,agent,intended_ns,sent_ns,latency_ns,outcome"));
    let read = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |cell: &str| cell.parse::<u64>().expect("a number");
        assert_eq!((cells.len(), cells[0], cells[1]), (6, "0", "0"), "{line}");
        assert!(number(cells[3]) >= number(cells[2]), "{line}");
        ((!cells[4].is_empty()).then(|| number(cells[4])), cells[5].to_owned())
    };
    lines.map(read).collect()
}

#[test]
fn the_samples_have_the_percentiles_of_the_result() {
    let (server, path) = (serve("echo", &[]), samples_file("percentiles"));
    let file = path.to_str().expect("it is text");
    let result = measure_shortly(&server, &["--app", "echo:64", "--rate", "5k", "--samples", file]);
    assert_all_replied(&result);
    let samples = read_samples(&path);
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(
        result["samples_file"],
        serde_json::json!({ "path": file, "written": samples.len(), "left_out": 0 })
    );
    assert_eq!(result["counts"]["sent"], samples.len());
    assert!(samples.iter().all(|(_, outcome)| outcome == "ok"));
    let mut latencies: Vec<u64> =
        samples.iter().filter_map(|&(latency_ns, _)| latency_ns).collect();
    latencies.sort_unstable();
    for (name, p) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        let exact_us = latencies[(latencies.len() as f64 * p).ceil() as usize - 1] as f64 / 1e3;
        let told_us = result["latency_us"]["intended"][name].as_f64().expect("enough samples");
        // The histogram tells the upper end of a bucket, a thousandth wide.
        assert!(told_us >= exact_us && told_us <= exact_us * 1.001, "{name}: {told_us} {exact_us}");
    }
    assert_eq!(
        result["latency_us"]["intended"]["max"].as_f64(),
        latencies.last().map(|&ns| ns as f64 / 1e3)
    );
}

#[test]
fn an_agent_that_only_loads_has_no_samples() {
    let (server, path) = (serve("echo", &[]), samples_file("roles"));
    let file = path.to_str().expect("it is text");
    let agents = ["--agent", "local", "--agent", "local,role=throughput"];
    let result = measure_shortly(
        &server,
        &[&["--app", "echo:64", "--rate", "1k", "--samples", file][..], &agents].concat(),
    );
    let written = read_samples(&path).len();
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(result["agents"][0]["sent"], written, "{result:#}");
    assert!(result["agents"][1]["sent"].as_u64() > Some(0), "{result:#}");
    assert_eq!(result["samples_file"]["left_out"], 0, "{result:#}");
}

#[test]
fn samples_without_a_reply_and_those_left_out_are_counted() {
    let (server, path) = (serve("synthetic", &["--service-max", "1ms"]), samples_file("refused"));
    let file = path.to_str().expect("it is text");
    let load =
        ["--app", "synthetic:fixed:2ms", "--rate", "500", "--samples", file, "--samples-max", "20"];
    let result = measure_shortly(&server, &load);
    let samples = read_samples(&path);
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(samples, vec![(None, "refused".to_owned()); 20]);
    let told = &result["samples_file"];
    let all = ["written", "left_out"].map(|name| told[name].as_u64().expect("a count"));
    assert_eq!(
        (all[0], Some(all[0] + all[1])),
        (20, result["counts"]["sent"].as_u64()),
        "{result:#}"
    );
}

/// The user's clock is read before the kernel stamps the request and after it stamped the reply.
#[test]
fn latencies_are_there_by_each_clock() {
    let server = serve("echo", &["--transport", "udp"]);
    let load = ["--transport", "udp", "--app", "echo:64", "--rate", "2k", "--stamp-every", "2"];
    let result = measure_shortly(&server, &load);
    let timestamps = &result["timestamps"];
    assert_eq!(
        (&timestamps["used"], &timestamps["answers"]),
        (&Value::from("kernel"), &Value::from("user")),
        "{result:#}"
    );
    let p50_us =
        |kind: &str| timestamps["latency_us"][kind]["p50"].as_f64().expect("enough samples");
    assert!(p50_us("kernel") < p50_us("user"), "{result:#}");
    assert!(timestamps["stamped"]["user"].as_u64() > Some(300), "{result:#}");
    assert_eq!(timestamps["stamped"]["user"], timestamps["stamped"]["kernel"], "{result:#}");
    assert!(timestamps["bias_us"]["p50"].as_f64() > Some(0.0), "{result:#}");
}

#[test]
fn a_log_of_histograms_has_the_parts_of_the_run_and_the_whole() {
    let (server, path) = (serve("echo", &[]), samples_file("histograms"));
    let file = path.to_str().expect("it is text");
    let result = measure_shortly(&server, &["--app", "echo:64", "--rate", "500", "--hdr", file]);
    let log = std::fs::read_to_string(&path).expect("a log");
    std::fs::remove_file(&path).expect("it is there");
    // 400 ms in slices of 100 ms.
    assert_eq!(result["series"].as_array().map(Vec::len), Some(4), "{result:#}");
    let lines = |tag: &str| {
        log.lines().filter(|line| line.starts_with(&format!("Tag={tag},"))).collect::<Vec<_>>()
    };
    assert_eq!(
        ["intended", "actual", "whole-intended", "whole-actual"].map(|tag| lines(tag).len()),
        [4, 4, 1, 1],
        "{log}"
    );
    let starts: Vec<&str> =
        lines("intended").iter().filter_map(|line| line.split(',').nth(1)).collect();
    assert_eq!(starts, ["0.100", "0.200", "0.300", "0.400"]);
    let last = &result["series"][3]["histograms"]["actual"];
    assert_eq!(lines("actual")[3].rsplit(',').next(), last.as_str());
}

#[test]
fn people_get_a_table() {
    let server = serve("echo", &[]);
    let output = run(&[
        &["measure", "--target", server.address(), "--app", "echo:64", "--rate", "200"],
        &SHORT[..],
    ]
    .concat());
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

/// A load thread that polls must leave room on its core for whoever coordinates it, whatever its
/// priority.
#[test]
fn a_polling_load_with_real_time_priority_ends() {
    if std::env::var_os("TAILCUT_NO_REAL_TIME").is_some() {
        println!("SKIPPED: real-time threads are not run by this kernel");
        return;
    }
    let server = serve("echo", &[]);
    let load = [
        "--app",
        "echo:8",
        "--rate",
        "1000",
        "--duration",
        "300ms",
        "--warmup",
        "100ms",
        "--busy-poll",
        "--json",
        "-",
    ];
    let output = std::process::Command::new("timeout")
        .args([
            "-s",
            "KILL",
            "20",
            "taskset",
            "-c",
            "0",
            "chrt",
            "-f",
            "1",
            env!("CARGO_BIN_EXE_tailcut"),
            "measure",
        ])
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
