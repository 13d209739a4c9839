//! Redis behind a bridge: what clients see is what Redis says.

use std::process::Command;

use tailcut_measure::generator::{Generator, generator};

use super::client::{Client, command};
use super::{bridge, gateway, route, wait_until_quiet};
use crate::servers;

/// Through gateway, router and two bridges before one Redis, and through nothing: every reply and,
/// at the end, all contents are the same.
#[test]
fn random_commands_are_answered_as_by_plain_redis() {
    let local = ["--enable-debug-command", "local"];
    let (Some(plain), Some(bridged)) = (servers::redis(&local), servers::redis(&local)) else {
        return;
    };
    let to = format!("tcp://{}", bridged.address);
    let bridges = [bridge("redis", &to, &[]), bridge("redis", &to, &["--server-id", "1"])];
    let router = route(&[&bridges[0].0, &bridges[1].0]);
    let (front, front_admin) = gateway("redis", router.address(), &[]);
    let mut rng = generator(21, 1);
    for protocol in ["2", "3"] {
        let (mut theirs, mut ours) =
            (Client::connect(plain.address), Client::connect(front.address()));
        for client in [&mut theirs, &mut ours] {
            assert!(client.ask(&format!("HELLO {protocol}")).contains("proto"));
        }
        let mut left = COMMANDS / 2;
        while left > 0 {
            let count = (1 + draw(&mut rng, 100)).min(left);
            let mut commands: Vec<_> = (0..count).map(|_| random_command(&mut rng)).collect();
            if draw(&mut rng, 4) == 0 {
                // What is no command is told of at once by Redis, and at EXEC by a gateway.
                commands.retain(|command| {
                    command.len() > 1
                        && !["NONSENSE", "SELECT"].map(str::as_bytes).contains(&&*command[0])
                });
                let end = if draw(&mut rng, 4) == 0 { "DISCARD" } else { "EXEC" };
                commands.insert(0, command("MULTI"));
                commands.push(command(end));
            }
            theirs.send(&commands);
            ours.send(&commands);
            for command in &commands {
                let (theirs, ours) = (theirs.reply(), ours.reply());
                let words: Vec<_> =
                    command.iter().map(|word| word.escape_ascii().to_string()).collect();
                assert_eq!(
                    ours.escape_ascii().to_string(),
                    theirs.escape_ascii().to_string(),
                    "{words:?}"
                );
            }
            left -= count;
        }
    }
    let digest = |address| Client::connect(address).ask("DEBUG DIGEST");
    assert_eq!(digest(bridged.address), digest(plain.address));
    assert_ne!(digest(plain.address), format!("+{}\r\n", "0".repeat(40)));
    for (_, admin) in &bridges {
        assert!(admin.value("tailcut_bridge_server_answered_total") > 0.0, "both have served");
    }
    wait_until_quiet(&front_admin, &[&bridges[0].1, &bridges[1].1]);
}

#[test]
fn values_of_8_mib_go_both_ways() {
    let Some(server) = servers::redis(&[]) else { return };
    let (behind, behind_admin) = bridge("redis", &format!("tcp://{}", server.address), &[]);
    let (front, front_admin) = gateway("redis", behind.address(), &[]);
    let mut client = Client::connect(front.address());
    let mut rng = generator(21, 2);
    let value: Vec<u8> = (0..8 << 20).map(|_| draw(&mut rng, 256) as u8).collect();
    client.send(&[
        vec![b"SET".to_vec(), b"big".to_vec(), value.clone()],
        command("GET big"),
        command("STRLEN big"),
    ]);
    assert_eq!(client.reply(), b"+OK\r\n");
    let reply = client.reply();
    assert!(reply == [b"$8388608\r\n", &value[..], b"\r\n"].concat(), "{} bytes", reply.len());
    assert_eq!(client.reply(), b":8388608\r\n");
    // What is longer is refused where it is made, and the connection goes on.
    assert_eq!(client.ask("SETRANGE big 8500000 x"), ":8500001\r\n");
    assert!(client.ask("GET big").starts_with("-UNCERTAIN "));
    assert_eq!(client.ask("STRLEN big"), ":8500001\r\n");
    drop(client);
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

/// Writes go to the primary, reads to whoever is free.
#[test]
fn writes_go_to_the_primary_and_reads_anywhere() {
    let Some(primary) = servers::redis(&[]) else { return };
    let port = primary.address.port().to_string();
    let Some(replica) = servers::redis(&["--replicaof", "127.0.0.1", &port]) else { return };
    let bridges = [&primary, &replica]
        .map(|server| bridge("redis", &format!("tcp://{}", server.address), &[]));
    let router = route(&[&bridges[0].0, &bridges[1].0]);
    let (front, _) = gateway("redis", router.address(), &["--writes-to", bridges[0].0.address()]);
    let mut client = Client::connect(front.address());
    for key in 0..100 {
        assert_eq!(client.ask(&format!("SET key:{key} {key}")), "+OK\r\n");
    }
    let mut behind = Client::connect(replica.address);
    while behind.ask("DBSIZE") != ":100\r\n" {}
    for key in (0..100).cycle().take(1_000) {
        let text = key.to_string();
        assert_eq!(client.ask(&format!("GET key:{key}")), format!("${}\r\n{text}\r\n", text.len()));
    }
    // A script is where it was loaded.
    let script = b"return redis.call('GET', KEYS[1])".to_vec();
    client.send(&[vec![b"SCRIPT".to_vec(), b"LOAD".to_vec(), script]]);
    let loaded = String::from_utf8(client.reply()).expect("text");
    let hash = loaded.lines().nth(1).expect("a hash").to_owned();
    for _ in 0..40 {
        assert_eq!(client.ask(&format!("EVALSHA_RO {hash} 1 key:7")), "$1\r\n7\r\n");
    }
    let answered = |index: usize| bridges[index].1.value("tailcut_bridge_server_answered_total");
    assert!(answered(0) > 100.0 && answered(1) > 0.0, "{} {}", answered(0), answered(1));
    assert_eq!(bridges[1].1.value("tailcut_bridge_server_errors_total"), 0.0);
}

/// Redis' own client, pipelines of its own making and Homa in between.
#[test]
fn redis_cli_does_not_notice() {
    let Some(server) = servers::redis(&[]) else { return };
    let (behind, _) =
        bridge("redis", &format!("tcp://{}", server.address), &["--transport", "homa"]);
    let (front, _) = gateway("redis", behind.address(), &["--transport", "homa"]);
    let port = front.address().rsplit(':').next().expect("a port").to_owned();
    let cli = |args: &[&str]| {
        let output =
            Command::new("redis-cli").args(["-p", &port]).args(args).output().expect("redis-cli");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    };
    assert_eq!(cli(&["set", "a", "1"]), "OK");
    assert_eq!(cli(&["-3", "incr", "a"]), "2");
    assert_eq!(cli(&["-n", "0", "get", "a"]), "2");
    assert_eq!(cli(&["-r", "100", "incr", "a"]).lines().last(), Some("102"));
    assert!(cli(&["blpop", "a", "0"]).starts_with("ERR BLPOP cannot be called: "));
}

/// Programs with redis-py, through gateway, router and bridge.
#[test]
fn redis_py_does_not_notice() {
    let Some(server) = servers::redis(&[]) else { return };
    // A Python of one's own may be before the system's, whose packages it lacks.
    let has_it = |python: &&str| {
        let output = Command::new(python).args(["-c", "import redis.asyncio"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has_it) else {
        println!("SKIPPED: redis-py is missing (Debian: python3-redis)");
        return;
    };
    let (behind, behind_admin) = bridge("redis", &format!("tcp://{}", server.address), &[]);
    behind_admin.wait_for("tailcut_bridge_server_up", 1.0);
    let router = route(&[&behind]);
    let (front, front_admin) = gateway("redis", router.address(), &[]);
    let port = front.address().rsplit(':').next().expect("a port").to_owned();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/adoption/redis_py.py");
    let output = Command::new(python).args([program, &port]).output().expect("it runs");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout, "redis-py does not notice\n", "{stderr}");
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

fn draw(rng: &mut Generator, count: usize) -> usize {
    use rand::RngExt;
    rng.random_range(0..count)
}

/// A command whose answer depends on nothing but what came before.
pub(super) fn random_command(rng: &mut Generator) -> Vec<Vec<u8>> {
    let key = format!("k{}", draw(rng, 40));
    let other = format!("k{}", draw(rng, 40));
    let field = format!("f{}", draw(rng, 8));
    let number = draw(rng, 2_000) as i64 - 1_000;
    let line = LINES[draw(rng, LINES.len())];
    let value: Vec<u8> = (0..draw(rng, 60)).map(|_| draw(rng, 256) as u8).collect();
    let word = |word: &str| match word {
        "K" => key.as_bytes().to_vec(),
        "O" => other.as_bytes().to_vec(),
        "F" => field.as_bytes().to_vec(),
        "N" => number.to_string().into_bytes(),
        "V" => value.clone(),
        word => word.as_bytes().to_vec(),
    };
    line.split(' ').map(word).collect()
}

const COMMANDS: usize = 10_000;

/// Commands whose K and O are keys, F a field, N a number and V a value.
const LINES: &[&str] = &[
    "SET K V",
    "GET K",
    "GET K",
    "MGET K O",
    "SET K V GET",
    "SETNX K V",
    "APPEND K V",
    "STRLEN K",
    "GETRANGE K 0 5",
    "INCR K",
    "INCRBY K N",
    "DECR K",
    "DEL K O",
    "EXISTS K O",
    "TYPE K",
    "GETDEL K",
    "SETRANGE K 3 V",
    "LPUSH K V O",
    "RPUSH K V",
    "LPOP K",
    "RPOP K 2",
    "LRANGE K 0 -1",
    "LLEN K",
    "LINDEX K 1",
    "LSET K 0 V",
    "HSET K F V",
    "HGET K F",
    "HDEL K F",
    "HLEN K",
    "HINCRBY K F N",
    "HEXISTS K F",
    "SADD K V F",
    "SREM K V",
    "SISMEMBER K V",
    "SCARD K",
    "ZADD K N F",
    "ZSCORE K F",
    "ZRANGE K 0 -1 WITHSCORES",
    "ZRANK K F",
    "ZINCRBY K N F",
    "ZPOPMIN K",
    "ZCARD K",
    "RENAME K O",
    "COPY K O",
    "SETBIT K 7 1",
    "BITCOUNT K",
    "XLEN K",
    "PING",
    "NONSENSE K",
    "GET",
    "SELECT 0",
    "PFCOUNT K",
    "UNLINK K",
    "LMOVE K O LEFT RIGHT",
    "EVAL return_1 0",
    "DBSIZE",
];
