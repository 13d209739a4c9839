//! Requests at two servers, by routers and by clients, over loopback.

use crate::harness::{
    Service, assert_all_replied, can_open_raw_sockets, counts, free_port, in_one_of_three, measure,
    run,
};

const LOAD: [&str; 9] = [
    "--app",
    "synthetic:exp:1ms",
    "--rate",
    "500",
    "--duration",
    "600ms",
    "--warmup",
    "200ms",
    "--idempotent",
];

fn servers(count: usize) -> Service {
    let ports = count.to_string();
    let args = ["serve", "--listen", "127.0.0.1:0", "--workers", "4", "--jitter", "0.1", "--ports"];
    Service::start(&[&args[..], &[&ports, "--app", "synthetic:exp:1ms"]].concat(), count)
}

fn route(policy: &str, servers: &Service) -> Service {
    let args = ["route", "--listen", "127.0.0.1:0", "--silent-after", "30s", "--policy", policy];
    let named = servers.addresses.iter().flat_map(|address| ["--server", address]);
    Service::start(&args.into_iter().chain(named).collect::<Vec<_>>(), 1)
}

/// A counter that a service tells of at its end.
fn counted(service: Service, name: &str) -> u64 {
    counts(service, [name.trim()])[0]
}

#[test]
fn a_router_clones_and_each_request_is_answered_once() {
    for policy in ["netclone", "netclone+racksched", "laedge:4", "jbsq:4+clone", "auto-clone"] {
        in_one_of_three(|| {
            let servers = servers(3);
            let router = route(policy, &servers);
            assert_all_replied(&measure(router.address(), &LOAD));
            let cloned = counted(router, "cloned ");
            if cloned > 200 { Ok(()) } else { Err(format!("{policy}: {cloned}")) }
        });
    }
}

/// With the raw sockets of a router that keeps clients' addresses: every second reply of a clone is
/// dropped on its way, none reaches a client.
#[test]
fn a_router_in_the_path_of_replies_drops_the_slower() {
    if !can_open_raw_sockets() {
        println!("SKIPPED: keeping the client's address needs CAP_NET_RAW");
        return;
    }
    let port = free_port();
    let args = ["serve", "--listen", "127.0.0.1:0", "--workers", "4", "--ports", "3", "--router"];
    let servers = Service::start(&[&args[..], &[&port, "--app", "synthetic:exp:1ms"]].concat(), 3);
    let args = ["route", "--listen", &port, "--policy", "netclone", "--silent-after", "30s"];
    let named = servers.addresses.iter().flat_map(|address| ["--server", address]);
    let more = ["--forward", "keep", "--filter", "router"];
    let router = Service::start(&args.into_iter().chain(more).chain(named).collect::<Vec<_>>(), 1);
    let result = measure(router.address(), &LOAD);
    assert_all_replied(&result);
    let counts = counts(router, ["cloned", "replies_forwarded", "replies_filtered"]);
    let [cloned, forwarded, filtered] = counts;
    assert!(cloned > 200 && forwarded >= cloned, "{counts:?}");
    // The server drops clones where somebody waits.
    assert!(filtered > cloned / 2 && filtered <= cloned, "{counts:?}");
}

#[test]
fn what_may_run_once_is_not_cloned() {
    let servers = servers(2);
    let router = route("netclone", &servers);
    assert_all_replied(&measure(router.address(), &LOAD[..8]));
    assert_eq!(counted(router, "cloned "), 0);
}

#[test]
fn a_hedged_request_goes_to_a_second_server_within_the_budget() {
    let servers = servers(3);
    let router = route("random", &servers);
    let hedge = ["--clone", "hedge:p50:20%"];
    assert_all_replied(&measure(router.address(), &[&LOAD[..], &hedge].concat()));
    // Of at most 400 requests and those of the warm-up a fifth.
    let cloned = counted(router, "cloned ");
    assert!((1..=100).contains(&cloned), "{cloned}");
}

#[test]
fn a_client_clones_without_a_router() {
    let servers = servers(2);
    let other = ["--target", servers.addresses[1].as_str(), "--clone", "c-clone"];
    let result = measure(servers.address(), &[&LOAD[..], &other].concat());
    assert_all_replied(&result);
    let sent = result["counts"]["sent"].as_u64().unwrap();
    // Both servers together; the port's sum.
    let requests = counted(servers, "requests ");
    assert!(requests > sent * 3 / 2, "{requests} runs of {sent} requests");
}

#[test]
fn clones_that_make_no_sense_are_refused() {
    let target = ["measure", "--target", "127.0.0.1:9", "--app", "echo:8", "--rate", "1"];
    for (more, part) in [
        (&["--clone", "hedge:p95"][..], "--idempotent"),
        (&["--clone", "c-clone", "--idempotent"], "repeat --target"),
        (&["--clone", "hedge:95", "--idempotent"], "hedge:p95:10%"),
        (&["--clone", "hedge:p95", "--idempotent", "--transport", "homa"], "R2P2"),
    ] {
        let output = run(&[&target[..], more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(part), "{stderr}");
    }
}
