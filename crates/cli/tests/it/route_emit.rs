//! `tailcut route --emit p4`: the entries for the programs in `p4/`.

use crate::harness::run;

const WAYS: [&str; 4] =
    ["--p4-way", "10.0.0.2=3/02:00:00:00:00:02", "--p4-way", "10.0.0.3=4/02:00:00:00:00:03"];

/// Output for a list of servers.
fn emit(args: &[&str]) -> Result<String, String> {
    let output = run(&[&["route", "--emit", "p4"], args, &WAYS].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn a_router_has_its_address_its_bound_and_its_servers() {
    let args = ["--listen", "10.0.0.1:8000", "--policy", "jbsq:3", "--p4-up-port", "9"];
    let servers = ["--server", "10.0.0.2:8000", "--server", "10.0.0.3:8001"];
    let text = emit(&[&args[..], &servers].concat()).expect("entries");
    assert_eq!(
        text,
        "table_add ingress.listen ingress.router 10.0.0.1 8000 => 9\n\
         register_write ingress.settings 0 3\n\
         register_write ingress.settings 1 2\n\
         register_write ingress.settings 2 0\n\
         register_write ingress.settings 3 16777216\n\
         register_write ingress.settings 4 65536\n\
         table_add ingress.servers ingress.server 0 => 10.0.0.2 8000 02:00:00:00:00:02 3\n\
         table_add ingress.peers ingress.peer 10.0.0.2 8000 => 0\n\
         register_write ingress.in_service 0 1\n\
         table_add ingress.servers ingress.server 1 => 10.0.0.3 8001 02:00:00:00:00:03 4\n\
         table_add ingress.peers ingress.peer 10.0.0.3 8001 => 1\n\
         register_write ingress.in_service 1 1\n\
         table_add ingress.forward ingress.way 10.0.0.2/32 => 02:00:00:00:00:02 3\n\
         table_add ingress.forward ingress.way 10.0.0.3/32 => 02:00:00:00:00:03 4\n"
    );
}

#[test]
fn a_switch_has_its_groups_and_a_multicast_group_for_each() {
    let args = ["--listen", "10.0.0.1:1000", "--transport", "netclone"];
    let servers = ["--server", "10.0.0.2:1000", "--server", "10.0.0.3:1000"];
    let policy = ["--policy", "netclone+racksched"];
    let text = emit(&[&args[..], &servers, &policy].concat()).expect("entries");
    assert_eq!(
        text,
        "register_write ingress.settings 0 1\n\
         register_write ingress.settings 1 131071\n\
         table_add ingress.groups ingress.pair 1 => 0 1 1\n\
         mc_mgrp_create 1\n\
         mc_node_create 1 3\n\
         mc_node_associate 1 0\n\
         mc_node_create 2 4\n\
         mc_node_associate 1 1\n\
         table_add ingress.groups ingress.pair 2 => 1 0 2\n\
         mc_mgrp_create 2\n\
         mc_node_create 1 4\n\
         mc_node_associate 2 2\n\
         mc_node_create 2 3\n\
         mc_node_associate 2 3\n\
         table_add ingress.ports ingress.to_port 0 => 3\n\
         table_add egress.addresses egress.address 0 => 10.0.0.2 02:00:00:00:00:02\n\
         table_add ingress.ports ingress.to_port 1 => 4\n\
         table_add egress.addresses egress.address 1 => 10.0.0.3 02:00:00:00:00:03\n\
         table_add ingress.forward ingress.way 10.0.0.2/32 => 02:00:00:00:00:02 3\n\
         table_add ingress.forward ingress.way 10.0.0.3/32 => 02:00:00:00:00:03 4\n"
    );
}

#[test]
fn what_a_switch_cannot_do_is_refused() {
    let listen = ["--listen", "10.0.0.1:8000", "--p4-up-port", "9"];
    let server = ["--server", "10.0.0.2:8000"];
    for (args, part) in [
        (vec!["--policy", "jsq:2"], "jbsq:N, and not jsq:2"),
        (vec!["--policy", "laedge:2"], "jbsq:N, and not laedge:2"),
        (vec![], "jbsq:N, and not jbsq:auto"),
        (vec!["--policy", "jbsq:2", "--server", "10.0.0.4:8000"], "--p4-way 10.0.0.4=PORT/MAC"),
        (vec!["--policy", "jbsq:2", "--server", "10.0.0.2:9000+40"], "at most 32 servers, not 41"),
        (vec!["--policy", "jbsq:2", "--server-v1", "10.0.0.3:8000"], "--server-v1"),
        (vec!["--transport", "netclone"], "by the port 1000"),
    ] {
        let refused = emit(&[&listen[..], &server, &args].concat()).expect_err("it is refused");
        assert!(refused.contains(part), "{args:?}: {refused}");
    }
    let without = ["--listen", "10.0.0.1:8000", "--policy", "jbsq:2"];
    let refused = emit(&[&without[..], &server].concat()).expect_err("no port leads up");
    assert!(refused.contains("--p4-up-port"), "{refused}");
    let unnamed = ["--listen", "0.0.0.0:8000", "--policy", "jbsq:2"];
    let refused = emit(&[&unnamed[..], &server].concat()).expect_err("no address");
    assert!(refused.contains("one address and port"), "{refused}");
    let refused = emit(&["--listen", "10.0.0.1:8000", "--policy", "jbsq:2"]).expect_err("nobody");
    assert!(refused.contains("no server to route to"), "{refused}");
}
