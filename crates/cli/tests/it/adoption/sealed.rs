//! Redis behind sealed bridges: contents are the same, and who has no keys, or may not, is told.

use std::fs;

use tailcut_measure::generator::generator;

use super::client::{Client, command};
use super::redis::random_command;
use super::{bridge, gateway, route_with, wait_until_quiet};
use crate::harness::{Files, run, succeed};
use crate::servers;

#[test]
fn what_goes_through_sealed_sidecars_is_what_plain_redis_says() {
    let local = ["--enable-debug-command", "local"];
    let (Some(plain), Some(bridged)) = (servers::redis(&local), servers::redis(&local)) else {
        return;
    };
    let files = Files::new("sealed-sidecars");
    let [servers, router, client] = files.keys();
    let to = format!("tcp://{}", bridged.address);
    let bridges =
        ["0", "1"].map(|id| bridge("redis", &to, &["--server-id", id, "--seal", &servers]));
    let router = route_with(&[&bridges[0].0, &bridges[1].0], &["--seal", &router]);
    let (front, front_admin) = gateway("redis", router.address(), &["--seal", &client]);
    let (mut theirs, mut ours) = (Client::connect(plain.address), Client::connect(front.address()));
    let mut rng = generator(23, 1);
    for _ in 0..20 {
        let commands: Vec<_> = (0..50).map(|_| random_command(&mut rng)).collect();
        theirs.send(&commands);
        ours.send(&commands);
        for command in &commands {
            let (theirs, ours) = (theirs.reply(), ours.reply());
            let shown: Vec<_> =
                command.iter().map(|word| word.escape_ascii().to_string()).collect();
            assert!(ours == theirs, "{shown:?}: {} {}", ours.escape_ascii(), theirs.escape_ascii());
        }
    }
    let big = [vec![b"SET".to_vec(), b"big".to_vec(), vec![7; 1 << 20]], command("GET big")];
    theirs.send(&big);
    ours.send(&big);
    assert!((0..2).all(|_| theirs.reply() == ours.reply()));
    let digest = |address| Client::connect(address).ask("DEBUG DIGEST");
    assert_eq!(digest(bridged.address), digest(plain.address));

    // Who has no keys is not heard, and it is counted where that is seen.
    let (open, open_admin) = gateway("redis", bridges[0].0.address(), &["--timeout", "100ms"]);
    let reply = Client::connect(open.address()).ask("PING");
    assert!(reply.starts_with("-UNCERTAIN "), "{reply}");
    assert!(open_admin.value("tailcut_gateway_gateway_timed_out_total") > 0.0);
    bridges[0].1.wait_for("tailcut_bridge_seal_unsealed_total", 1.0);
    drop((theirs, ours));
    wait_until_quiet(&front_admin, &[&bridges[0].1, &bridges[1].1]);
    for (_, admin) in &bridges {
        assert!(admin.value("tailcut_bridge_server_answered_total") > 0.0, "both have served");
        assert_eq!(admin.value("tailcut_bridge_seal_forged_total"), 0.0);
    }
}

/// The contents of a request of any length, and its reply, over the transport that has no routers.
#[test]
fn what_goes_through_sealed_sidecars_over_homa_is_what_redis_says() {
    let Some(server) = servers::redis(&[]) else { return };
    let files = Files::new("sealed-sidecars-homa");
    let [servers, _, client] = files.keys();
    let to = format!("tcp://{}", server.address);
    let homa = ["--transport", "homa", "--seal"];
    let (behind, admin) = bridge("redis", &to, &[&homa[..], &[&servers]].concat());
    let (front, _) = gateway("redis", behind.address(), &[&homa[..], &[&client]].concat());
    let mut ours = Client::connect(front.address());
    assert_eq!(ours.ask("PING"), "+PONG\r\n");
    let big = [vec![b"SET".to_vec(), b"big".to_vec(), vec![7; 1 << 20]], command("STRLEN big")];
    ours.send(&big);
    assert_eq!([ours.reply(), ours.reply()], [b"+OK\r\n".to_vec(), b":1048576\r\n".to_vec()]);
    assert!(admin.value("tailcut_bridge_server_answered_total") > 0.0);
    assert_eq!(admin.value("tailcut_bridge_seal_forged_total"), 0.0);
}

#[test]
fn a_bridge_s_policy_is_told_to_the_gateway_s_clients_and_renewed_at_sighup() {
    let Some(server) = servers::redis(&[]) else { return };
    let files = Files::new("sealed-bridge-access");
    let [servers, _, client] = files.keys();
    let access = files.write("access", "tailcut-access 1\nallow any *\ndeny 17 *\n");
    let guarded = ["--seal", &servers, "--access", &access];
    let (behind, admin) = bridge("redis", &format!("tcp://{}", server.address), &guarded);
    let (front, _) = gateway("redis", behind.address(), &["--seal", &client]);
    let mut client = Client::connect(front.address());
    let reply = client.ask("PING");
    assert!(reply.starts_with('-') && reply.contains("client 17 may not call"), "{reply}");
    // One that is sent again is refused again.
    assert!(admin.value("tailcut_bridge_seal_denied_total") >= 1.0);
    assert_eq!(admin.value("tailcut_bridge_bridge_requests_total"), 0.0);
    fs::write(&access, "tailcut-access 1\nallow 17 *\n").expect("it is ours");
    behind.signal("HUP");
    while client.ask("PING") != "+PONG\r\n" {}
    assert!(admin.value("tailcut_bridge_bridge_requests_total") >= 1.0);
}

#[test]
fn keys_that_cannot_serve_are_told_at_the_start() {
    let files = Files::new("sealed-sidecars-wrong");
    let [servers, router, client] = files.keys();
    let bridge =
        ["bridge", "--listen", "127.0.0.1:0", "--app", "redis", "--to", "tcp://127.0.0.1:9"];
    let gateway =
        ["gateway", "--listen", "tcp://127.0.0.1:0", "--app", "redis", "--to", "127.0.0.1:9"];
    let check = |args: &[&str], more: &[&str], text: &str| {
        let output = run(&[args, more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(text), "{stderr}");
    };
    check(&bridge, &["--seal", &client], "has the keys of client 17");
    check(&bridge, &["--seal", &router], "has the keys of a router");
    check(&gateway, &["--seal", &servers], "has the keys of a server, and this takes a client's");
    check(&gateway, &["--seal", &files.path("missing")], "cannot read the keys from");
    let homa = ["--transport", "homa", "--seal"];
    check(&bridge, &[&homa[..], &[&client]].concat(), "has the keys of client 17");
    check(
        &gateway,
        &[&homa[..], &[&servers]].concat(),
        "has the keys of a server, and this takes a client's",
    );
    check(&bridge, &["--access", &servers], "give --seal too");
    let shown = succeed(&["bridge", "--help"]);
    assert!(shown.contains("--seal") && shown.contains("--access"), "{shown}");
}
