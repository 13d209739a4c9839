//! NetClone's published format between `serve`, `route` and `measure`, over loopback; and with the
//! published client's and server's bytes, by hand.

use std::net::UdpSocket;
use std::time::Duration;

use crate::harness::{Service, assert_all_replied, counts, measure, run};

fn servers(count: usize, workers: &str) -> Service {
    let ports = count.to_string();
    let args = ["serve", "--listen", "127.0.0.1:0", "--transport", "netclone", "--workers"];
    let more = [workers, "--ports", &ports, "--app", "synthetic:exp:1ms", "--jitter", "0.1"];
    Service::start(&[&args[..], &more].concat(), count)
}

fn route(servers: &Service, more: &[&str]) -> Service {
    let args = ["route", "--listen", "127.0.0.1:0", "--transport", "netclone"];
    let named = servers.addresses.iter().flat_map(|address| ["--server", address]);
    let args: Vec<_> = args.into_iter().chain(named).chain(more.iter().copied()).collect();
    Service::start(&args, 1)
}

/// With the published client's requests, which have no body: servers draw their times.
const LOAD: [&str; 12] = [
    "--transport",
    "netclone",
    "--netclone-servers",
    "3",
    "--app",
    "echo:0",
    "--rate",
    "500",
    "--duration",
    "600ms",
    "--warmup",
    "200ms",
];

#[test]
fn a_switch_clones_between_client_and_servers_and_filters() {
    for more in [&[][..], &["--policy", "netclone+racksched"]] {
        let servers = servers(3, "4");
        let switch = route(&servers, more);
        let result = measure(switch.address(), &LOAD);
        assert_all_replied(&result);
        assert_eq!(result["config"]["transport"], "netclone");
        let names = ["placed", "cloned", "replies_filtered", "replies_forwarded", "clones_won"];
        let counted = counts(switch, names);
        let [placed, cloned, filtered, forwarded, won] = counted;
        assert!(placed == forwarded && cloned > placed / 2, "{counted:?}");
        let discarded = counts(servers, ["clones_discarded"])[0];
        assert_eq!(filtered + discarded, cloned, "{counted:?}");
        assert!(won > cloned / 10 && won < cloned, "{counted:?}");
    }
}

#[test]
fn requests_with_times_of_their_own_are_served_so() {
    let args = ["serve", "--listen", "127.0.0.1:0", "--transport", "netclone", "--ports", "2"];
    let servers = Service::start(&[&args[..], &["--app", "synthetic"]].concat(), 2);
    let switch = route(&servers, &[]);
    let mut load = LOAD;
    (load[3], load[5]) = ("2", "synthetic:fixed:100us");
    let result = measure(switch.address(), &load);
    assert_all_replied(&result);
    let p50_us = result["latency_us"]["intended"]["p50"].as_f64().unwrap();
    assert!(p50_us >= 100.0, "{p50_us}");
}

#[test]
fn a_server_answers_the_published_clients_bytes_without_a_switch() {
    let server = servers(1, "1");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.connect(server.address()).unwrap();
    let mut request = [0; 52];
    // grp, sid and tidx as the client draws them, its clock, and its address.
    (request[11], request[15], request[27]) = (7, 3, 1);
    request[28..36].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    socket.send(&request).unwrap();
    let mut reply = [0; 100];
    let len = socket.recv(&mut reply).unwrap();
    let mut expected = request;
    // op, and sid of the first port.
    (expected[3], expected[15]) = (1, 0);
    assert_eq!(reply[..len], expected);
    // The baselines, at the same port.
    for len in [32, 36] {
        socket.send(&[&[0; 7][..], &[9; 29]].concat()[..len]).unwrap();
        let found = socket.recv(&mut reply).unwrap();
        assert_eq!((found, &reply[..9]), (len, &[0, 0, 0, 1, 0, 0, 0, 9, 9][..]));
    }
}

#[test]
fn threads_report_what_waits_and_a_clone_is_discarded_there() {
    let args = ["serve", "--listen", "127.0.0.1:0", "--transport", "netclone", "--app", "spin"];
    let server = Service::start(&[&args[..], &["--workers", "2"]].concat(), 1);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.connect(server.address()).unwrap();
    let send = |clo: u8| {
        let mut request = [0; 60];
        request[23] = clo;
        request[52..].copy_from_slice(&50_000_000_u64.to_be_bytes());
        socket.send(&request).unwrap();
    };
    // Two run and two wait.
    [1, 1, 1, 1, 2].into_iter().for_each(send);
    let loads = [(); 4].map(|()| {
        let mut reply = [0; 100];
        assert_eq!(socket.recv(&mut reply).unwrap(), 60);
        (reply[19], reply[23])
    });
    assert_eq!(loads, [(2, 1), (1, 1), (0, 1), (0, 1)]);
    assert_eq!(counts(server, ["clones_discarded"]), [1]);
}

#[test]
fn what_the_format_has_not_is_refused() {
    let route = ["route", "--listen", "127.0.0.1:0", "--transport", "netclone"];
    let measure = ["measure", "--target", "127.0.0.1:9", "--rate", "1", "--app", "echo:0"];
    let server = ["--server", "127.0.0.1:9"];
    for (args, more, part) in [
        (&route[..], &[][..], "1 to 16 servers, not 0"),
        (&route, &["--server", "127.0.0.1:9+17"], "1 to 16 servers, not 17"),
        (&route, &[&server[..], &["--policy", "jsq:2"]].concat(), "netclone+racksched"),
        (&route, &[&server[..], &["--forward", "keep"]].concat(), "--transport r2p2"),
        (&route, &["--server-v1", "127.0.0.1:9"], "--server-v1"),
        (&measure, &["--netclone-servers", "3"], "--transport netclone"),
        (&measure, &["--transport", "netclone", "--preload"], "--preload"),
        (&measure, &["--transport", "netclone", "--clone", "hedge:p95"], "--clone is R2P2's"),
    ] {
        let output = run(&[args, more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(part), "{more:?}: {stderr}");
    }
}
