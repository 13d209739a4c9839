//! The admin port: who is answered, and that what dashboards and alerts name is there.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::harness::{Admin, Service, serve};

fn ask(admin: &Admin, request: &str) -> String {
    let mut stream = TcpStream::connect(&admin.0).expect("an admin port");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is text");
    answer
}

#[test]
fn who_is_silent_or_slow_keeps_nobody_out() {
    let mut server = serve("echo", &["--admin", "127.0.0.1:0"]);
    let admin = server.admin();
    let crowd: Vec<TcpStream> = (0..300)
        .map(|index| {
            let mut stream = TcpStream::connect(&admin.0).expect("an admin port");
            let begun: &[u8] = if index % 2 == 0 { b"" } else { b"GET /metrics HTTP/1.1\r\nHo" };
            stream.write_all(begun).expect("some bytes");
            stream
        })
        .collect();
    assert_eq!(admin.get("/healthz"), (200, "ok\n".to_owned()));
    drop(crowd);
}

#[test]
fn it_answers_get_at_three_paths() {
    let mut server = serve("echo", &["--admin", "127.0.0.1:0"]);
    let admin = server.admin();
    let (status, page) = admin.get("/metrics");
    assert!(status == 200 && page.starts_with("# HELP tailcut_serve_build_info"), "{page}");
    assert_eq!(admin.get("/").0, 404);
    let post = ask(&admin, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    assert!(post.starts_with("HTTP/1.1 405"), "{post}");
    let head = ask(&admin, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let mut stream = TcpStream::connect(&admin.0).expect("an admin port");
    // It may be cut off while it is still being written.
    let _ = stream.write_all(long.as_bytes());
    assert_eq!(admin.get("/healthz").0, 200);
}

#[test]
fn a_router_is_not_ready_without_a_server() {
    let args = ["route", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:9"];
    let more = ["--silent-after", "20ms", "--admin", "127.0.0.1:0"];
    let mut router = Service::start(&[&args[..], &more].concat(), 1);
    let admin = router.admin();
    let out = "tailcut_route_server_state{server=\"127.0.0.1:9\",state=\"silent\"}";
    admin.wait_for(out, 1.0);
    assert_eq!(admin.get("/readyz"), (503, "no server in service\n".to_owned()));
    assert_eq!(admin.get("/healthz").0, 200);
}

/// Metrics of all commands, with what histograms add to their names.
fn names() -> BTreeSet<String> {
    let admin = ["--admin", "127.0.0.1:0"];
    let listen = ["--listen", "127.0.0.1:0"];
    let route = [&["route"], &listen[..], &["--server", "127.0.0.1:9"], &admin].concat();
    let serve = [&["serve", "--app", "echo"], &listen[..], &admin].concat();
    let agent = [&["agent"], &listen[..], &admin].concat();
    let mut names = BTreeSet::new();
    for (name, kind) in [route, serve, agent].iter().flat_map(|args| families(args)) {
        let ends = if kind == "histogram" { ["_bucket", "_sum", "_count"] } else { [""; 3] };
        names.extend(ends.map(|end| format!("{name}{end}")));
    }
    names
}

/// Names and kinds of what a service has at its admin port.
fn families(args: &[&str]) -> Vec<(String, String)> {
    let mut service = Service::start(args, 1);
    let (_, page) = service.admin().get("/metrics");
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let types = types.filter_map(|line| line.split_once(' '));
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// As `/metrics` has a counter: `udp_bytes_in` as `udp_in_bytes_total`.
fn counter_name(name: &str) -> String {
    let (units, mut parts): (Vec<&str>, Vec<&str>) =
        name.split('_').partition(|part| *part == "bytes");
    parts.extend(units);
    format!("{}_total", parts.join("_"))
}

#[test]
fn every_metric_has_its_place_in_the_book() {
    let page = include_str!("../../../../docs/metrics.md");
    let words: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    let counters: BTreeSet<String> = words.iter().map(|word| counter_name(word)).collect();
    let admin = ["--admin", "127.0.0.1:0"];
    let redis = ["--app", "redis"];
    let listen = ["--listen", "127.0.0.1:0"];
    let commands = [
        [&["serve", "--app", "spin", "--workers", "2", "--types", "10us", "--darc"], &listen[..]]
            .concat(),
        [&["serve", "--app", "echo", "--transport", "homa"], &listen[..]].concat(),
        [&["serve", "--app", "echo", "--transport", "tcp"], &listen[..]].concat(),
        [&["route", "--server", "127.0.0.1:9"], &listen[..]].concat(),
        [&["bridge", "--to", "tcp://127.0.0.1:9"], &redis[..], &listen].concat(),
        [&["gateway", "--to", "127.0.0.1:9", "--listen", "tcp://127.0.0.1:0"], &redis[..]].concat(),
        [&["agent"], &listen[..]].concat(),
    ];
    let mut missing = BTreeSet::new();
    for command in commands {
        for (name, _) in families(&[&command[..], &admin].concat()) {
            let own = name.strip_prefix(&format!("tailcut_{}_", command[0])).expect("a prefix");
            let of_all = format!("tailcut_COMMAND_{own}");
            let has_place = counters.contains(own) || words.contains(&&*name);
            if !has_place && !words.contains(&&*of_all) {
                missing.insert(name);
            }
        }
    }
    assert!(missing.is_empty(), "not in docs/metrics.md: {missing:?}");
}

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_is_there() {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools");
    let dashboard = fs::read_to_string(tools.join("grafana/tailcut.json")).expect("a dashboard");
    let parsed: serde_json::Value = serde_json::from_str(&dashboard).expect("it is JSON");
    assert!(parsed["panels"].as_array().is_some_and(|panels| !panels.is_empty()));
    let alerts = fs::read_to_string(tools.join("prometheus/alerts.yml")).expect("alerts");
    let names = names();
    let text = [dashboard, alerts].concat();
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let used: BTreeSet<&str> = words.filter(|word| word.starts_with("tailcut_")).collect();
    assert!(used.len() > 20, "{used:?}");
    let missing: Vec<_> = used.iter().filter(|&&name| !names.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
