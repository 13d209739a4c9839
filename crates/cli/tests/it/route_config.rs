//! A router's configuration file: what is told of mistakes, and what a reload changes; and weights
//! and zones.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{
    Service, assert_all_replied, finish, measure, run, serve, start_measure, succeed,
};

/// A file of this test's own.
fn file(name: &str, text: &str) -> PathBuf {
    let path = path(name);
    fs::write(&path, text).expect("a file");
    path
}

/// A path of this test's own, with nothing there.
fn path(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Usually there is none.
    let _ = fs::remove_file(&path);
    path
}

fn status(control: &str) -> Value {
    let text = succeed(&["control", control, "status", "--json", "-"]);
    serde_json::from_str(&text).expect("it prints JSON and nothing else")
}

/// Exit code of `--check` on a file, and its output.
fn check(name: &str, text: &str) -> (Option<i32>, String) {
    let path = file(name, text);
    let output = run(&["route", "--config", path.to_str().expect("a text"), "--check"]);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).expect("it is text"))
}

#[test]
fn a_check_finds_what_a_start_would() {
    let good = "listen = '127.0.0.1:0'\nserver = ['127.0.0.1:9+2']\nqueue = 100\n";
    assert_eq!(
        check("good.toml", good),
        (Some(0), "sound: 2 servers are named, and 0 sources of more\n".to_owned())
    );
    let is_refused = |text: &str, part: &str| {
        let (code, said) = check("bad.toml", text);
        assert!(code == Some(1) && said.contains(part), "{text}: {code:?} {said}");
    };
    is_refused("listen = '127.0.0.1:0'\n", "no server to route to");
    is_refused("server = '127.0.0.1:9'\n", "no address to route at");
    is_refused("listen = '127.0.0.1:0'\nservers_file = 'x'\n", "line 2: there is no key");
    is_refused("listen = '127.0.0.1:0'\nserver = '[::1]:9'\n", "give it an IPv4 address");
    is_refused(&format!("{good}filter = 'router'\n"), "take --forward keep");
    is_refused(&format!("{good}hold = '0s'\n"), "line 4");
    is_refused(&format!("{good}threads = 2\nforward = 'keep'\n"), "leave --threads out");
    is_refused(&format!("{good}transport = 'netclone'\n"), "leave --queue");
    is_refused(&format!("{good}dataplane = 'xdp'\n"), "needs --interface");
}

#[test]
fn the_example_is_a_file_that_can_be_filled_in() {
    let example = succeed(&["route", "--config-example"]);
    let listen = example.replace("#listen = \"ADDR\"", "listen = \"127.0.0.1:0\"");
    let filled = listen.replace("#server = [\"ADDR\"]", "server = [\"127.0.0.1:9\"]");
    let (code, said) = check("example.toml", &filled);
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "sound: 1 servers are named, and 0 sources of more\n"),
        "{filled}"
    );
}

/// Servers come and go, and limits change, under load; what is wrong changes nothing.
#[test]
fn a_reload_changes_all_or_nothing_and_loses_no_call() {
    let servers = [(); 3].map(|()| serve("synthetic", &[]));
    let [first, second, third] = servers.each_ref().map(Service::address);
    let socket = path("config-reload.sock");
    let control = socket.to_str().expect("a text");
    let text = |servers: &[&str], more: &str| {
        format!(
            "listen = '127.0.0.1:0'\ncontrol = '{control}'\npolicy = 'jbsq:2'\nhold = '30s'\n\
             silent-after = '30s'\nserver = {servers:?}\n{more}"
        )
    };
    let path = file("reload.toml", &text(&[first, second], ""));
    let router = Service::start(&["route", "--config", path.to_str().expect("a text")], 1);
    let load =
        ["--app", "synthetic:exp:500us", "--rate", "400", "--duration", "2s", "--warmup", "0"];
    let measurement = start_measure(router.address(), &load);
    let sent = |status: &Value| status["counters"]["forwarded"].as_u64();
    assert!((0..10_000).any(|_| sent(&status(control)) >= Some(50)));
    fs::write(&path, text(&[second, third], "queue = 99\n")).expect("a file");
    let said = succeed(&["control", control, "reload"]);
    assert_eq!(said, "reloaded: 1 servers added, 1 drained; changed: queue, server\n");
    let addresses = |status: &Value| -> Vec<String> {
        let servers = status["servers"].as_array().expect("servers");
        servers.iter().map(|server| server["address"].as_str().expect("one").to_owned()).collect()
    };
    assert!((0..10_000).any(|_| addresses(&status(control)) == [second, third]));
    for (wrong, part) in [
        (text(&[first], "policy = 'rr'\n"), "TOML parse error"),
        (text(&[first], "threads = 2\n"), "a change of threads needs a restart"),
        (text(&[first], "qeue = 1\n"), "there is no key"),
        (text(&["nonsense"], ""), "cannot resolve"),
        (text(&[], ""), "no server"),
    ] {
        fs::write(&path, wrong).expect("a file");
        let output = run(&["control", control, "reload"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(part), "{part}: {stderr}");
        let status = status(control);
        assert_eq!(addresses(&status), [second, third]);
        assert!(status["reloads"]["refusal"].as_str().is_some_and(|why| why.contains(part)));
    }
    assert_all_replied(&finish(measurement));
    let last = status(control);
    let reloads = (last["reloads"]["done"].as_u64(), last["reloads"]["refused"].as_u64());
    assert_eq!(reloads, (Some(1), Some(5)));
}

/// Requests placed on each of two servers, one of which weighs three times as much and is in zone
/// a, by a router of a zone.
fn placed(name: &str, zone: &[&str]) -> [u64; 2] {
    let servers = [(); 2].map(|()| serve("synthetic", &[]));
    let [first, second] = servers.each_ref().map(Service::address);
    let named = [format!("{first},weight=3,zone=a"), format!("{second},zone=b")];
    let socket = path(name);
    let control = socket.to_str().expect("a text");
    let args = ["route", "--listen", "127.0.0.1:0", "--policy", "rr", "--control", control];
    let more = [
        "--server",
        &named[0],
        "--server",
        &named[1],
        "--silent-after",
        "30s",
        "--slow-factor",
        "0",
    ];
    let router = Service::start(&[&args[..], &more, zone].concat(), 1);
    let is_ready = || {
        let status = status(control);
        let mut all = status["servers"].as_array().expect("servers").iter();
        all.all(|server| server["state"] == "in_service")
    };
    assert!((0..1_000).any(|_| is_ready()));
    let load =
        ["--app", "synthetic:exp:100us", "--rate", "500", "--duration", "400ms", "--warmup", "0"];
    assert_all_replied(&measure(router.address(), &load));
    let status = status(control);
    [0, 1].map(|index| status["servers"][index]["placed"].as_u64().expect("a count"))
}

#[test]
fn weights_are_shares_and_the_own_zone_comes_first() {
    let [heavy, light] = placed("weights.sock", &[]);
    // Exactly three times, but for what either is not given while the machine is busy.
    assert!(light > 20 && (5 * light..7 * light).contains(&(2 * heavy)), "{heavy} {light}");
    let [near, far] = placed("zones.sock", &["--zone", "a"]);
    assert!(near > 100 && far == 0, "{near} {far}");
    let [far, near] = placed("zones.sock", &["--zone", "b"]);
    assert!(near > 100 && far == 0, "{near} {far}");
}
