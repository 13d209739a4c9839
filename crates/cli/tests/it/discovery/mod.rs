//! Servers that a router finds while it runs: in a file, by DNS, in etcd and in Kubernetes.

mod dns;
mod etcd;
mod kubernetes;

use std::fs;
use std::path::PathBuf;

use crate::harness::{Admin, Service, assert_all_replied, finish, serve, start_measure};

/// A path of this test's own, with nothing there.
fn path(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Usually there is none.
    let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    path
}

/// A router with patience, which finds its servers at a source.
fn router(source: &str, more: &[&str]) -> (Service, Admin) {
    let args = ["route", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--discover", source];
    let patience = ["--hold", "30s", "--silent-after", "30s"];
    let mut router = Service::start(&[&args[..], &patience, more].concat(), 1);
    let admin = router.admin();
    (router, admin)
}

/// A source's metric.
fn value(admin: &Admin, name: &str) -> f64 {
    let (_, page) = admin.get("/metrics");
    let start = format!("tailcut_route_discovery_{name}{{");
    let line = page.lines().find(|line| line.starts_with(&start));
    line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or(-1.0)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    assert!((0..20_000).any(|_| is_so()), "it does not come about: {what}");
}

/// Waits until a router has these servers in service and no others.
fn wait_for_servers(admin: &Admin, servers: &[&str]) {
    wait_until(&format!("{servers:?}"), || {
        let (_, page) = admin.get("/metrics");
        let is_state = |line: &&str| line.starts_with("tailcut_route_server_state{");
        let states: Vec<&str> = page.lines().filter(is_state).collect();
        let is_in = |server: &&str| {
            let line =
                format!("tailcut_route_server_state{{server=\"{server}\",state=\"in_service\"}} 1");
            states.contains(&line.as_str())
        };
        states.len() == 6 * servers.len() && servers.iter().all(is_in)
    });
}

const LOAD: [&str; 8] =
    ["--app", "synthetic:exp:500us", "--rate", "400", "--duration", "1500ms", "--warmup", "0"];

#[test]
fn a_watched_file_brings_servers_and_takes_them_away() {
    let servers = [(); 3].map(|()| serve("synthetic", &[]));
    let [first, second, third] = servers.each_ref().map(Service::address);
    let list = path("watched");
    fs::write(&list, format!("{first}\n{second} weight=2\n")).expect("a file");
    let (router, admin) = router(&format!("file:{}", list.display()), &[]);
    wait_for_servers(&admin, &[first, second]);
    let weight = format!("tailcut_route_server_weight{{server=\"{second}\"}}");
    assert_eq!(admin.value(&weight), 2.0);
    let measurement = start_measure(router.address(), &LOAD);
    admin.wait_for("tailcut_route_forwarded_total", 50.0);
    // Another file in its place, as configuration management has it.
    let next = path("watched.next");
    fs::write(&next, format!("{second}\n{third}\n")).expect("a file");
    fs::rename(&next, &list).expect("a file");
    wait_for_servers(&admin, &[second, third]);
    assert_eq!(admin.value(&weight), 1.0);
    // It is away, and comes back as it was.
    fs::rename(&list, &next).expect("a file");
    wait_until("away", || value(&admin, "up") == 0.0);
    fs::rename(&next, &list).expect("a file");
    wait_until("back", || value(&admin, "up") == 1.0);
    // Neither nonsense nor nothing is believed.
    fs::write(&list, "nonsense\n").expect("a file");
    wait_until("away", || value(&admin, "up") == 0.0);
    fs::write(&list, "").expect("a file");
    wait_until("empty", || value(&admin, "empty") == 1.0);
    wait_for_servers(&admin, &[second, third]);
    assert_all_replied(&finish(measurement));
}

#[test]
fn a_file_that_stays_empty_is_believed() {
    let server = serve("synthetic", &[]);
    let list = path("emptied");
    fs::write(&list, server.address()).expect("a file");
    let source = format!("file:{}", list.display());
    let (_router, admin) = router(&source, &["--discover-empty-after", "300ms"]);
    wait_for_servers(&admin, &[server.address()]);
    fs::write(&list, "# nobody\n").expect("a file");
    wait_for_servers(&admin, &[]);
    assert_eq!(admin.get("/readyz").0, 503);
}
