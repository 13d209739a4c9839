//! memcached, in both of its protocols, over TCP and UDP.

use tailcut_measure::app::{ErrorKind, Tally};

use super::client::{Client, ask, figure, run_datagrams};
use super::process::Server;

const DIALECTS: [&str; 2] = ["memcached-binary", "memcached-ascii"];

#[test]
fn what_is_preloaded_is_found_and_the_server_counts_the_same() {
    for (dialect, store) in
        DIALECTS.into_iter().flat_map(|dialect| STORES.map(|store| (dialect, store)))
    {
        let Some(server) = start() else { return };
        let mut client = Client::connect(server.address, &format!("{dialect}:{store}"));
        client.preload(50);
        let tally = client.run(5_000, 50);
        assert_eq!(tally, Tally { ok: 5_000, ..Tally::default() }, "{dialect} {store}");
        let stats = ask(server.address, "stats\r\n", "END\r\n");
        assert_eq!(figure(&stats, "STAT get_misses"), 0, "{dialect} {store}");
        assert_eq!(
            figure(&stats, "STAT cmd_set") + figure(&stats, "STAT get_hits"),
            1_000 + 5_000,
            "{dialect} {store}"
        );
    }
}

#[test]
fn a_key_that_is_not_there_is_a_miss() {
    for dialect in DIALECTS {
        let Some(server) = start() else { return };
        let tally = Client::connect(server.address, &format!("{dialect}:get=1")).run(2_000, 10);
        assert_eq!(tally, Tally { misses: 2_000, ..Tally::default() }, "{dialect}");
        assert_eq!(
            figure(&ask(server.address, "stats\r\n", "END\r\n"), "STAT get_misses"),
            2_000,
            "{dialect}"
        );
    }
}

#[test]
fn large_values_come_through() {
    for dialect in DIALECTS {
        let Some(server) = start() else { return };
        let mut client = Client::connect(
            server.address,
            &format!("{dialect}:keys=50,value=1+uni:999999,get=0.5"),
        );
        client.preload(1);
        assert_eq!(client.run(500, 1), Tally { ok: 500, ..Tally::default() }, "{dialect}");
    }
}

#[test]
fn a_server_that_cannot_store_says_so() {
    // Items of a megabyte do not fit a limit of 64 kB.
    for (dialect, kind) in
        [("memcached-binary", ErrorKind::Refused), ("memcached-ascii", ErrorKind::Failed)]
    {
        let Some(server) = start_with(&["-I", "64k", "-o", "slab_chunk_max=32768"]) else { return };
        let tally = Client::connect(server.address, &format!("{dialect}:value=fixed:900kB,get=0"))
            .run(20, 1);
        let mut expected = Tally::default();
        expected.errors[kind as usize] = 20;
        assert_eq!(tally, expected, "{dialect}");
    }
}

#[test]
fn datagrams_are_matched_and_joined() {
    // Beyond some 1,400 bytes a reply takes several.
    for (dialect, value) in
        DIALECTS.into_iter().flat_map(|dialect| [(dialect, "fixed:200"), (dialect, "uni:30kB")])
    {
        let Some(server) = start() else { return };
        let app = format!("{dialect}:keys=300,value={value}");
        let misses = run_datagrams(server.address, &format!("{app},get=1"), 100, 5);
        assert_eq!(misses, Tally { misses: 100, ..Tally::default() }, "{app}");
        Client::connect(server.address, &app).preload(10);
        let tally = run_datagrams(server.address, &app, 3_000, 3);
        assert_eq!(tally, Tally { ok: 3_000, ..Tally::default() }, "{app}");
    }
}

const STORES: [&str; 3] = [
    "keys=1k",
    "keys=1k,etc,pick=zipf:0.99",
    "keys=1k,pick=rr,key=gev:30:8:0.5,value=lognorm:5:1,get=0.5",
];

fn start() -> Option<Server> {
    start_with(&[])
}

fn start_with(more: &[&str]) -> Option<Server> {
    Server::start("memcached", "memcached", |port, _| {
        let port = port.to_string();
        let fixed =
            ["-l", "127.0.0.1", "-p", &port, "-U", &port, "-t", "1", "-m", "256", "-u", "nobody"];
        fixed.iter().chain(more).map(|argument| argument.to_string()).collect()
    })
}
