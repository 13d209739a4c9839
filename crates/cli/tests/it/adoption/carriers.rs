//! Load of `tailcut measure` on servers of others: their protocols over R2P2 and Homa, through
//! bridges.

use tailcut::Client;

use super::bridge;
use crate::harness::{Admin, Service, assert_all_replied, measure};
use crate::servers;

fn check(server: &str, bridged: &str, app: &str, transport: &str) {
    let more = ["--transport", transport];
    let (behind, admin): (Service, Admin) = bridge(bridged, server, &more);
    admin.wait_for("tailcut_bridge_server_up", 1.0);
    let load = [
        "--transport",
        transport,
        "--app",
        app,
        "--rate",
        "200",
        "--duration",
        "1s",
        "--warmup",
        "100ms",
    ];
    let result = measure(behind.address(), &load);
    assert_all_replied(&result);
    assert!(admin.value("tailcut_bridge_server_answered_total") > 0.0);
    assert_eq!(admin.value("tailcut_bridge_bridge_malformed_total"), 0.0);
}

#[test]
fn redis_is_measured_over_both_transports() {
    let Some(server) = servers::redis(&[]) else { return };
    for transport in ["r2p2", "homa"] {
        check(
            &format!("tcp://{}", server.address),
            "redis",
            "redis:keys=10,value=fixed:2kB",
            transport,
        );
    }
}

#[test]
fn memcached_is_measured_in_both_of_its_protocols() {
    let Some(server) = servers::memcached() else { return };
    for app in ["memcached-ascii:keys=10", "memcached-binary:keys=10"] {
        for transport in ["r2p2", "homa"] {
            check(&format!("tcp://{}", server.address), "memcached", app, transport);
        }
    }
}

#[test]
fn http_is_measured() {
    let Some(server) = servers::nginx(false) else { return };
    for transport in ["r2p2", "homa"] {
        check(&format!("http://{}", server.address), "http", "http:/", transport);
    }
}

/// A call's message is what a client of memcached says itself.
#[test]
fn memcached_answers_calls_as_it_answers_connections() {
    let Some(server) = servers::memcached() else { return };
    let (behind, admin) = bridge("memcached", &format!("tcp://{}", server.address), &[]);
    admin.wait_for("tailcut_bridge_server_up", 1.0);
    let client = Client::connect(behind.address()).expect("a client");
    let ask = |message: &[u8]| {
        client.call(message).map(|reply| String::from_utf8_lossy(&reply).into_owned())
    };
    assert_eq!(ask(b"set a 5 0 3\r\nabc\r\n").expect("an answer"), "STORED\r\n");
    assert_eq!(ask(b"get a b\r\n").expect("an answer"), "VALUE a 5 3\r\nabc\r\nEND\r\n");
    assert_eq!(
        ask(b"incr a 1\r\n").expect("an answer"),
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
    );
    assert_eq!(ask(b"mg a v\r\n").expect("an answer"), "VA 3\r\nabc\r\n");
    assert!(ask(b"stats\r\n").expect("an answer").ends_with("END\r\n"));
    let long = [&b"set b 0 0 900000\r\n"[..], &[b'x'; 900_000], b"\r\n"].concat();
    assert_eq!(ask(&long).expect("an answer"), "STORED\r\n");
    assert_eq!(
        ask(b"get b\r\n").expect("an answer").len(),
        "VALUE b 0 900000\r\n".len() + 900_000 + "\r\nEND\r\n".len()
    );
    for (message, word) in
        [(&b"quit\r\n"[..], "cannot be called"), (b"get a", "not one whole command")]
    {
        let error = ask(message).expect_err("a refusal").to_string();
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(ask(b"delete a\r\n").expect("an answer"), "DELETED\r\n");
    drop(server);
    super::wait_until_at_most(&admin, "tailcut_bridge_server_up", 0.0);
    assert!(ask(b"get a\r\n").is_err());
}
