//! The module in real servers: Redis, and Valkey where there is one.

mod command;
mod sealed;
mod server;

use std::time::Duration;

use tailcut::{CallOptions, Client, ClientBuilder, Config, Error};

use self::server::{RedisServer, command, line, programs};

#[test]
fn replies_and_contents_are_those_of_a_plain_server() {
    for program in programs() {
        let options = ["--enable-debug-command", "yes"];
        let module = RedisServer::with_module(&program, LISTEN, &options);
        let plain = RedisServer::plain(&program);
        let (client, mut connection) = (connect(&module), plain.connect());
        for command in random_commands(2_000) {
            let expected = connection.ask_bytes(&command);
            assert_eq!(call(&client, &command), expected, "{}", command.escape_ascii());
        }
        let digest = module.connect().ask(&["DEBUG", "DIGEST"]);
        assert_eq!(digest, connection.ask(&["DEBUG", "DIGEST"]), "{}", program.display());
        assert!(
            digest.starts_with(b"+") && digest != b"+0000000000000000000000000000000000000000\r\n"
        );
        assert!(module.info("commands").parse::<u64>().unwrap() >= 2_000);
    }
}

#[test]
fn replies_are_in_the_version_that_a_call_asks_for() {
    for program in programs() {
        let module = RedisServer::with_module(&program, LISTEN, &[]);
        let client = connect(&module);
        assert_eq!(call(&client, &line("HSET h a 1")), b":1\r\n");
        assert_eq!(call(&client, &line("HGETALL h")), b"*2\r\n$1\r\na\r\n$1\r\n1\r\n");
        let resp3 = [line("HELLO 3"), line("HGETALL h")].concat();
        assert_eq!(call(&client, &resp3), b"%1\r\n$1\r\na\r\n$1\r\n1\r\n");
        let run = [line("INCR n"), line("INCR n"), line("LPUSH n 1"), line("INCR n")].concat();
        let reply = String::from_utf8(call(&client, &run)).unwrap();
        assert!(reply.starts_with(":1\r\n:2\r\n-WRONGTYPE ") && reply.ends_with("\r\n:3\r\n"));
    }
}

#[test]
fn errors_are_those_of_the_server() {
    for program in programs() {
        let module = RedisServer::with_module(&program, LISTEN, &[]);
        let (client, mut connection) = (connect(&module), module.connect());
        call(&client, &line("SET a 1"));
        for text in
            ["LPUSH a 1", "GET", "NOSUCH a b", "SET a 1 XX NX", "OBJECT NOSUCH a", "EVALSHA 0 0"]
        {
            let expected = connection.ask_bytes(&line(text));
            assert!(expected.starts_with(b"-"), "{text}");
            assert_eq!(call(&client, &line(text)), expected, "{text}");
        }
        assert_eq!(
            call(&client, &line("EVAL return{1,redis.call('INCR','a')} 0")),
            b"*2\r\n:1\r\n:2\r\n"
        );
        assert!(module.info("errors").parse::<u64>().unwrap() >= 6);
    }
}

#[test]
fn what_is_no_call_is_refused_with_the_reason() {
    for program in programs() {
        let module = RedisServer::with_module(&program, LISTEN, &[]);
        let client = connect(&module);
        for text in
            ["MULTI", "SUBSCRIBE a", "BLPOP a 0", "MONITOR", "SHUTDOWN", "CLIENT LIST", "SELECT 1"]
        {
            let name = text.split(' ').next().unwrap();
            assert!(rejection(&client, &line(text)).starts_with(name), "{text}");
        }
        let whole = [line("MULTI"), line("INCR a"), line("EXEC")].concat();
        assert!(rejection(&client, &whole).starts_with("MULTI cannot be called: "));
        assert!(rejection(&client, b"GET a\r\n").contains("Protocol error"));
        assert!(rejection(&client, b"").contains("ends within a command"));
        assert_eq!((module.info("forbidden"), module.info("malformed")), ("8".into(), "2".into()));
        assert_eq!(call(&client, &line("PING")), b"+PONG\r\n");
    }
}

#[test]
fn values_have_up_to_8_mib() {
    for program in programs() {
        let module = RedisServer::with_module(&program, LISTEN, &[]);
        let client = connect(&module);
        let value: Vec<u8> = (0..8_u32 << 20).map(|at| (at % 251) as u8).collect();
        assert_eq!(call(&client, &command(&[b"SET", b"a", &value])), b"+OK\r\n");
        let reply = call(&client, &line("GET a"));
        let expected = [&b"$8388608\r\n"[..], &value, b"\r\n"].concat();
        assert!(reply == expected, "{} bytes", reply.len());
        // Longer than any reply may be: it has run, and cannot be answered.
        call(&client, &command(&[b"APPEND", b"a", &vec![0; 1 << 20]]));
        let error = client.call(&line("GET a")).unwrap_err();
        assert!(error.to_string().contains("TooLarge"), "{error}");
        assert_eq!(module.info("too_long"), "1");
    }
}

#[test]
fn calls_run_as_a_user_of_the_access_control_lists() {
    for program in programs() {
        let words = format!("{LISTEN} user calls");
        let module = RedisServer::with_module(&program, &words, &[]);
        let mut connection = module.connect();
        let rights = ["ACL", "SETUSER", "calls", "on", ">secret", "~a*", "+@read", "+set"];
        assert_eq!(connection.ask(&rights), b"+OK\r\n");
        let client = connect(&module);
        assert_eq!(call(&client, &line("SET a 1")), b"+OK\r\n");
        for text in ["SET b 1", "DEL a"] {
            let reply = call(&client, &line(text));
            let is_denied = reply.starts_with(b"-ERR acl") || reply.starts_with(b"-NOPERM");
            assert!(is_denied, "{text}: {}", reply.escape_ascii());
        }
        assert_eq!(connection.ask(&["ACL", "DELUSER", "calls"]), b":1\r\n");
        let denied = rejection(&client, &line("GET a"));
        assert!(denied.starts_with("NOAUTH"), "{denied}");
        assert_eq!(module.info("denied"), "1");
    }
}

#[test]
fn without_a_user_a_password_is_not_passed_by() {
    for program in programs() {
        let started = RedisServer::try_with_module(&program, LISTEN, &["--requirepass", "secret"]);
        let log = started.err().expect("it does not start");
        assert!(log.contains("the user `default` has a password"), "{log}");
        let started = RedisServer::try_with_module(&program, "listen 0.0.0.0:0", &[]);
        let log = started.err().expect("it does not start");
        assert!(log.contains("say as which user calls from other hosts run"), "{log}");
    }
}

#[test]
fn what_has_been_answered_is_in_the_log_of_commands() {
    for (program, listen) in programs().into_iter().flat_map(|program| {
        [LISTEN.to_owned(), format!("{LISTEN} polling yes")].map(|words| (program.clone(), words))
    }) {
        let options = ["--appendonly", "yes", "--appendfsync", "always"];
        let module = RedisServer::with_module(&program, &listen, &options);
        let client = connect(&module);
        for at in 0..50 {
            call(&client, &line(&format!("RPUSH a {at}")));
        }
        assert!(module.info("logged").parse::<u64>().unwrap() >= 50);
        let module = module.restart(&program, &listen, &options);
        assert_eq!(call(&connect(&module), &line("LLEN a")), b":50\r\n");
    }
}

#[test]
fn a_replica_takes_reads_alone_and_gets_what_calls_have_written() {
    for program in programs() {
        let primary =
            RedisServer::with_module(&program, LISTEN, &["--repl-diskless-sync-delay", "0"]);
        let port = free_port();
        let mut connection = primary.connect();
        assert_eq!(connection.ask(&["CONFIG", "SET", "port", &port]), b"+OK\r\n");
        let options = ["--replicaof", &format!("127.0.0.1 {port}")];
        let replica = RedisServer::with_module(&program, LISTEN, &options);
        let (writer, reader) = (connect(&primary), connect(&replica));
        assert_eq!(call(&writer, &line("SET a 1")), b"+OK\r\n");
        // Until then Valkey's WAIT does not tell that the replica has loaded what it was sent.
        wait_for_link(&replica);
        assert_eq!(call(&writer, &line("SET b 1")), b"+OK\r\n");
        assert_eq!(connection.ask(&["SET", "c", "1"]), b"+OK\r\n");
        assert_eq!(connection.ask(&["WAIT", "1", "20000"]), b":1\r\n", "{}", program.display());
        for key in ["a", "b", "c"] {
            let value = call(&reader, &line(&format!("GET {key}")));
            assert_eq!(value, b"$1\r\n1\r\n", "{key}: {}", program.display());
        }
        let refused = call(&reader, &line("SET a 2"));
        assert!(refused.starts_with(b"-READONLY"), "{}", refused.escape_ascii());
    }
}

#[test]
fn calls_under_way_end_when_the_server_does() {
    for program in programs() {
        let mut module = RedisServer::with_module(&program, LISTEN, &[]);
        let client = connect(&module);
        let value = vec![b'x'; 1 << 20];
        call(&client, &command(&[b"SET", b"a", &value]));
        let get = line("GET a");
        let pending: Vec<_> = (0..32).map(|_| client.start(&get).unwrap()).collect();
        let mut connection = module.connect();
        let ending = std::thread::spawn(move || {
            // It closes the connection instead of a reply.
            let ask = || connection.ask(&["SHUTDOWN", "NOSAVE"]);
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask));
        });
        let (mut answered, mut failed) = (0, 0);
        for pending in pending {
            match pending.wait() {
                Ok(reply) => {
                    assert_eq!(reply.len(), value.len() + 12);
                    answered += 1;
                }
                Err(Error::Failed { .. }) => failed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(answered + failed, 32);
        ending.join().expect("a connection");
        assert!(module.wait().success(), "{}", program.display());
    }
}

#[test]
fn the_module_can_be_unloaded_and_loaded_again() {
    for program in programs() {
        let options = ["--enable-module-command", "yes"];
        let module = RedisServer::with_module(&program, LISTEN, &options);
        let mut connection = module.connect();
        assert_eq!(call(&connect(&module), &line("PING")), b"+PONG\r\n");
        assert_eq!(connection.ask(&["MODULE", "UNLOAD", "tailcut"]), b"+OK\r\n");
        assert_eq!(connection.ask(&["PING"]), b"+PONG\r\n");
    }
}

#[test]
fn a_loop_that_never_sleeps_serves_calls_and_plain_clients() {
    for program in programs() {
        let module = RedisServer::with_module(&program, "listen 127.0.0.1:0 polling yes", &[]);
        let (client, mut connection) = (connect(&module), module.connect());
        for at in 0..50 {
            assert_eq!(
                call(&client, &line(&format!("RPUSH a {at}"))),
                format!(":{}\r\n", at + 1).as_bytes()
            );
            assert_eq!(
                connection.ask(&["LINDEX", "a", "-1"]),
                format!("${}\r\n{at}\r\n", at.to_string().len()).as_bytes()
            );
        }
    }
}

/// A plain client pauses all: no write runs until then, and reads do.
#[test]
fn while_clients_are_paused_nothing_is_written() {
    for program in programs() {
        let module = RedisServer::with_module(&program, LISTEN, &[]);
        let (client, mut connection) = (connect(&module), module.connect());
        assert_eq!(connection.ask(&["CLIENT", "PAUSE", "20000", "WRITE"]), b"+OK\r\n");
        let error = client.call(&line("SET a 1")).unwrap_err();
        assert!(error.to_string().contains("Overload"), "{error}");
        assert_eq!(call(&client, &line("GET a")), b"$-1\r\n");
        assert_eq!(connection.ask(&["CLIENT", "UNPAUSE"]), b"+OK\r\n");
        assert_eq!(module.info("paused"), "1");
    }
}

fn connect(server: &RedisServer) -> Client {
    let config = Config { message_len_max: 9 << 20, ..Config::default() };
    let builder = ClientBuilder::new().timeout(Duration::from_secs(20)).config(config);
    builder.connect(server.address()).expect("a socket")
}

fn call(client: &Client, request: &[u8]) -> Vec<u8> {
    let options = CallOptions::default();
    let reply = client.call_with(request, options, Duration::from_secs(20));
    reply.unwrap_or_else(|error| panic!("{}: {error}", request.escape_ascii())).into_vec()
}

fn rejection(client: &Client, request: &[u8]) -> String {
    match client.call(request) {
        Err(Error::Rejected { text, .. }) => text,
        other => panic!("{}: {other:?}", request.escape_ascii()),
    }
}

/// Waits until a replica has what its primary had; it tries to reach that once a second.
fn wait_for_link(replica: &RedisServer) {
    let mut connection = replica.connect();
    let mut is_up = || {
        let text = connection.ask(&["INFO", "replication"]);
        String::from_utf8_lossy(&text).contains("master_link_status:up")
    };
    assert!((0..1_000_000).any(|_| is_up()), "the replica is not linked to its primary");
}

fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port().to_string()
}

/// Commands over few keys, of which some fail, from a seed: replies do not depend on the time or on
/// chance.
fn random_commands(count: usize) -> Vec<Vec<u8>> {
    let mut state = 1_u64;
    let mut draw = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % limit
    };
    let templates = [
        "SET K V",
        "GET K",
        "APPEND K V",
        "INCR K",
        "DEL K",
        "STRLEN K",
        "LPUSH L V",
        "RPOP L",
        "LRANGE L 0 -1",
        "LLEN L",
        "HSET H V V",
        "HGET H V",
        "HGETALL H",
        "HINCRBY H V 2",
        "ZADD Z N V",
        "ZRANGE Z 0 -1 WITHSCORES",
        "ZINCRBY Z N V",
        "SADD S V",
        "SISMEMBER S V",
        "SCARD S",
        "SETRANGE K N V",
        "GETRANGE K 0 N",
        "TYPE K",
        "EXISTS K L H",
        "RENAME K K",
        "MSET K V K V",
        "MGET K K",
        "BITCOUNT K",
        "SETBIT K N 1",
        "XADD X N-1 f V",
        "XLEN X",
        "EXPIRE K 1000",
        "PERSIST K",
        "COPY K K REPLACE",
        "LPUSH K V",
        "SINTERCARD 1 S",
        "GET",
    ];
    (0..count)
        .map(|_| {
            let template = templates[draw(templates.len() as u64) as usize];
            let words = template.split(' ').map(|word| match word {
                "K" | "L" | "H" | "Z" | "S" | "X" => format!("{word}{}", draw(5)),
                "V" => format!("v{}", draw(30)),
                "N" => draw(100).to_string(),
                other => other.to_owned(),
            });
            line(&words.collect::<Vec<_>>().join(" "))
        })
        .collect()
}

/// Behind the module's path.
const LISTEN: &str = "listen 127.0.0.1:0";
