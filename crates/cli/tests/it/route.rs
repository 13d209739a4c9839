//! Routers before servers, and the control of a running one.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::harness::{
    Service, assert_all_replied, can_open_raw_sockets, finish, free_port, measure, run,
    start_measure, succeed,
};
use serde_json::Value;

const POLICIES: [&str; 12] = [
    "random",
    "rr",
    "jsq:2",
    "jbsq:2",
    "jbsq:auto",
    "jbsq:2+clone",
    "racksched",
    "netclone",
    "netclone+racksched",
    "laedge",
    "laedge:2",
    "auto-clone",
];

fn four_servers(more: &[&str]) -> Service {
    let args = ["serve", "--listen", "127.0.0.1:0", "--ports", "4", "--app", "synthetic"];
    Service::start(&[&args[..], more].concat(), 4)
}

fn route(servers: &[String], more: &[&str]) -> Service {
    route_at("127.0.0.1:0", servers, more)
}

/// A router with patience: a busy machine may stop servers for longer than any network would.
fn route_at(listen: &str, servers: &[String], more: &[&str]) -> Service {
    let mut args = vec![
        "route",
        "--listen",
        listen,
        "--hold",
        "30s",
        "--silent-after",
        "30s",
        "--lease",
        "30s",
    ];
    args.extend(servers.iter().flat_map(|address| ["--server", address.as_str()]));
    args.extend(more);
    Service::start(&args, 1)
}

const LOAD: [&str; 8] =
    ["--app", "synthetic:exp:500us", "--rate", "500", "--duration", "400ms", "--warmup", "100ms"];

/// Each policy answers every request, and uses every server.
fn check_policies(policies: &[&str], forward: &str) {
    for policy in policies {
        let router_port = free_port();
        let servers = four_servers(&["--router", &router_port]);
        let control = socket_path(&format!("{forward}-{}", policy.replace(':', "-")));
        let more = [
            "--policy",
            policy,
            "--forward",
            forward,
            "--control",
            control.to_str().expect("a text"),
        ];
        let router = route_at(&router_port, &servers.addresses, &more);
        assert_all_replied(&measure(router.address(), &LOAD));
        let status = status(&control);
        assert_eq!(status["config"]["policy"], *policy);
        let placed: Vec<_> = status["servers"]
            .as_array()
            .expect("servers")
            .iter()
            .map(|server| server["placed"].as_u64())
            .collect();
        assert!(
            placed.len() == 4 && placed.iter().all(|&placed| placed > Some(0)),
            "{policy}: {placed:?}"
        );
    }
}

#[test]
fn every_policy_routes_by_annotation() {
    check_policies(&POLICIES, "annotate");
}

/// Forwarding of a request is decided after its server: one policy that clones and one that does
/// not.
#[test]
fn policies_route_keeping_the_client() {
    if !can_open_raw_sockets() {
        println!("SKIPPED: keeping the client's address needs CAP_NET_RAW");
        return;
    }
    check_policies(&["jbsq:2", "netclone"], "keep");
}

#[test]
fn version_1_clients_are_routed_where_the_client_is_kept() {
    if !can_open_raw_sockets() {
        println!("SKIPPED: version 1 through a router needs CAP_NET_RAW");
        return;
    }
    let router_port = free_port();
    let servers = four_servers(&["--router", &router_port]);
    let v1_servers: Vec<&str> =
        servers.addresses.iter().flat_map(|address| ["--server-v1", address.as_str()]).collect();
    let more = [&["--forward", "keep", "--policy", "jbsq:2"], &v1_servers[..]].concat();
    let router = route_at(&router_port, &[], &more);
    assert_all_replied(&measure(router.address(), &[&LOAD[..], &["--v1"]].concat()));
}

/// measure, a router, two routers, four servers each: all is answered, and the inner ones share it.
#[test]
fn a_router_stands_before_routers() {
    let servers = [four_servers(&[]), four_servers(&[])];
    let upstream = ["--upstream", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut inner =
        [route(&servers[0].addresses, &upstream), route(&servers[1].addresses, &upstream)];
    let admins = inner.each_mut().map(Service::admin);
    let addresses = inner.each_ref().map(|router| router.address().to_owned());
    let outer = route(&addresses, &["--policy", "jbsq:2"]);
    assert_all_replied(&measure(outer.address(), &LOAD));
    let placed = admins.map(|admin| admin.value("tailcut_route_forwarded_total"));
    assert!(placed.iter().all(|&placed| placed > 50.0), "{placed:?}");
}

#[test]
fn servers_come_and_go_without_a_failed_call() {
    let servers = four_servers(&[]);
    let control = socket_path("come-and-go");
    let path = control.to_str().expect("a text");
    let router = route(&servers.addresses[..2], &["--policy", "jbsq:2", "--control", path]);
    let load =
        ["--app", "synthetic:exp:500us", "--rate", "500", "--duration", "3s", "--warmup", "0"];
    let measurement = start_measure(router.address(), &load);
    wait_for_placed(&control, 50);
    succeed(&["control", path, "add", &servers.addresses[2]]);
    succeed(&["control", path, "add", &servers.addresses[3]]);
    succeed(&["control", path, "drain", &servers.addresses[0], "--wait"]);
    assert_eq!(state(&control, &servers.addresses[0]), Some("draining".to_owned()));
    succeed(&["control", path, "remove", &servers.addresses[0]]);
    assert_eq!(state(&control, &servers.addresses[0]), None);
    succeed(&["control", path, "drain", &servers.addresses[1]]);
    succeed(&["control", path, "resume", &servers.addresses[1]]);
    assert_eq!(state(&control, &servers.addresses[1]), Some("in_service".to_owned()));
    assert_all_replied(&finish(measurement));
    let last = status(&control);
    let added = last["servers"]
        .as_array()
        .expect("servers")
        .iter()
        .filter(|server| server["placed"].as_u64() > Some(0));
    assert_eq!(added.count(), 3, "{last:#}");
}

#[test]
fn people_get_a_table_of_servers() {
    let servers = four_servers(&[]);
    let control = socket_path("table");
    let path = control.to_str().expect("a text");
    let _router = route(&servers.addresses, &["--control", path]);
    // They are in service with their first answers.
    let is_ready = |address| state(&control, address).as_deref() == Some("in_service");
    assert!((0..1_000).any(|_| servers.addresses.iter().all(|address| is_ready(address))));
    let text = succeed(&["control", path, "status"]);
    assert!(text.starts_with("router 127.0.0.1:") && text.contains("in service"), "{text}");
    assert!(servers.addresses.iter().all(|address| text.contains(address)), "{text}");
}

#[test]
fn the_control_socket_is_its_owners_and_goes_with_the_router() {
    let control = socket_path("mode");
    let path = control.to_str().expect("a text");
    let router = route(&[], &["--control", path]);
    let mode = std::fs::metadata(&control).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = run(&["route", "--listen", "127.0.0.1:0", "--control", path]);
    assert!(String::from_utf8_lossy(&second.stderr).contains("another service"));
    router.signal("TERM");
    let (code, _, stderr) = router.wait();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.starts_with("routed:") && !control.exists());
}

#[test]
fn a_socket_left_behind_is_replaced() {
    let control = socket_path("stale");
    let path = control.to_str().expect("a text");
    let router = route(&[], &["--control", path]);
    router.signal("KILL");
    router.wait();
    assert!(control.exists());
    let _next = route(&[], &["--control", path]);
    status(&control);
}

#[test]
fn mistakes_of_control_say_what_is_wrong() {
    let control = socket_path("mistakes");
    let path = control.to_str().expect("a text");
    check_failure(&["control", path, "status"], "start one by `tailcut route --control ");
    let _router = route(&[], &["--control", path]);
    check_failure(&["control", path, "drain", "127.0.0.1:9"], "there is no server at 127.0.0.1:9");
    check_failure(&["control", path, "add", "[::1]:9"], "give it an IPv4 address");
    check_failure(&["control", path, "add", "127.0.0.1:9+0"], "do not exist");
}

#[test]
fn a_router_without_servers_is_a_mistake() {
    check_failure(&["route", "--listen", "127.0.0.1:0"], "no server to route to");
    check_failure(
        &["route", "--listen", "127.0.0.1:0", "--server", "[::1]:9"],
        "give it an IPv4 address",
    );
}

fn check_failure(args: &[&str], part: &str) {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(part), "{stderr}");
}

fn status(control: &std::path::Path) -> Value {
    let text = succeed(&["control", control.to_str().expect("a text"), "status", "--json", "-"]);
    serde_json::from_str(&text).expect("it prints JSON and nothing else")
}

fn state(control: &std::path::Path, address: &str) -> Option<String> {
    let status = status(control);
    let servers = status["servers"].as_array().expect("servers");
    let server = servers.iter().find(|server| server["address"] == address)?;
    server["state"].as_str().map(str::to_owned)
}

/// Asks until the load has reached the servers.
fn wait_for_placed(control: &std::path::Path, least: u64) {
    let placed = |status: &Value| -> u64 {
        status["servers"]
            .as_array()
            .expect("servers")
            .iter()
            .filter_map(|server| server["placed"].as_u64())
            .sum()
    };
    let has_arrived = (0..1_000).any(|_| placed(&status(control)) >= least);
    assert!(has_arrived, "the load does not arrive: {:#}", status(control));
}

/// A path of this test's own, with nothing there.
fn socket_path(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.sock"));
    // Usually there is none.
    let _ = std::fs::remove_file(&path);
    path
}
