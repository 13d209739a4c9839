//! redis-server, in both versions of its protocol.

use tailcut_measure::app::{ErrorKind, Login, Tally};

use super::client::{Client, ask, figure};
use super::process::Server;

#[test]
fn what_is_preloaded_is_found_and_the_server_counts_the_same() {
    for app in [
        "redis:keys=1k",
        "redis:keys=1k,resp=3,etc,pick=zipf:0.99",
        "redis:keys=1k,key=uni:300,value=exp:2kB,get=0.5",
    ] {
        let Some(server) = start() else { return };
        let mut client = Client::connect(server.address, app);
        client.tally = Tally::default();
        client.preload(50);
        assert_eq!(client.run(5_000, 50), ok(5_000), "{app}");
        let stats = ask(server.address, "INFO stats\r\nPING\r\n", "+PONG\r\n");
        assert_eq!(figure(&stats, "keyspace_misses"), 0, "{app}");
        // The preload, the requests, perhaps the HELLO; this command is not counted yet.
        let commands = figure(&stats, "total_commands_processed");
        assert!((6_000..=6_001).contains(&commands), "{app}: {commands}");
    }
}

#[test]
fn a_key_that_is_not_there_is_a_miss() {
    for app in ["redis:get=1", "redis:get=1,resp=3"] {
        let Some(server) = start() else { return };
        let mut client = Client::connect(server.address, app);
        client.tally = Tally::default();
        assert_eq!(client.run(2_000, 10), Tally { misses: 2_000, ..Tally::default() }, "{app}");
    }
}

#[test]
fn large_values_come_through() {
    let Some(server) = start() else { return };
    let mut client = Client::connect(server.address, "redis:keys=20,value=1+uni:4MB,get=0.5");
    client.preload(1);
    assert_eq!(client.run(100, 1), ok(100));
}

#[test]
fn any_command_is_measured() {
    let hash = "command=HGET {key} f,preload=HSET {key} f {value},keys=100";
    for app in
        [format!("redis:{hash}"), format!("redis:resp=3,{hash}"), "redis:scan,keys=100".to_owned()]
    {
        let Some(server) = start() else { return };
        let mut client = Client::connect(server.address, &app);
        client.tally = Tally::default();
        client.preload(10);
        assert_eq!(client.run(1_000, 10), ok(1_000), "{app}");
    }
}

#[test]
fn an_error_is_a_reply_of_its_kind() {
    let Some(server) = start() else { return };
    let mut client =
        Client::connect(server.address, "redis:command=INCR {key},preload=SET {key} x,keys=10");
    client.preload(1);
    assert_eq!(client.run(100, 10), errors(ErrorKind::Refused, 100));
}

#[test]
fn every_type_of_the_protocol_is_framed() {
    let types = [
        "string", "integer", "double", "array", "set", "map", "attrib", "verbatim", "true",
        "false", "bignum",
    ];
    let Some(server) = start() else { return };
    for (version, kind) in [2, 3].into_iter().flat_map(|version| types.map(|kind| (version, kind)))
    {
        let app = format!("redis:command=DEBUG PROTOCOL {kind},resp={version}");
        let mut client = Client::connect(server.address, &app);
        client.tally = Tally::default();
        assert_eq!(client.run(100, 10), ok(100), "{app}");
    }
    // The deepest and longest reply that a server has: all that it knows of its commands.
    for app in [
        "redis:command=COMMAND DOCS",
        "redis:command=COMMAND DOCS,resp=3",
        "redis:command=COMMAND,resp=3",
    ] {
        let mut client = Client::connect(server.address, app);
        client.tally = Tally::default();
        assert_eq!(client.run(20, 2), ok(20), "{app}");
    }
}

#[test]
fn push_messages_are_passed_over() {
    let Some(server) = start() else { return };
    let mut client =
        Client::connect(server.address, "redis:command=CLIENT TRACKING ON BCAST,resp=3");
    assert_eq!(client.run(1, 1), ok(2), "HELLO and the command");
    // Each write of this connection now pushes an invalidation to it.
    client.app = tailcut_measure::app::App::parse("redis:resp=3,get=0.5,keys=100").unwrap();
    client.preload(10);
    assert_eq!(client.run(2_000, 10), ok(2_000));
}

#[test]
fn a_login_is_needed_where_the_server_asks_for_one() {
    let Some(server) = start_with(&["--requirepass", "secret"]) else { return };
    for app in ["redis:get=0", "redis:get=0,resp=3"] {
        let mut client =
            Client::login(server.address, app, Some(Login { user: None, password: "secret" }));
        assert_eq!(client.run(100, 10), ok(101), "{app}: the greeting and the requests");
        let mut client = Client::login(
            server.address,
            app,
            Some(Login { user: Some("default"), password: "wrong" }),
        );
        assert_eq!(client.run(100, 10), errors(ErrorKind::Unauthorised, 101), "{app}");
    }
}

fn ok(count: u64) -> Tally {
    Tally { ok: count, ..Tally::default() }
}

fn errors(kind: ErrorKind, count: u64) -> Tally {
    let mut tally = Tally::default();
    tally.errors[kind as usize] = count;
    tally
}

fn start() -> Option<Server> {
    start_with(&[])
}

fn start_with(more: &[&str]) -> Option<Server> {
    Server::start("redis-server", "redis-server", |port, directory| {
        let (port, directory) = (port.to_string(), directory.display().to_string());
        let fixed = [
            "--bind",
            "127.0.0.1",
            "--port",
            &port,
            "--dir",
            &directory,
            "--save",
            "",
            "--enable-debug-command",
            "yes",
        ];
        fixed.iter().chain(more).map(|argument| argument.to_string()).collect()
    })
}
