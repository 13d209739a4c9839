//! Groups of servers, each of which has some of the keys.

use std::collections::BTreeSet;

use tailcut_bridge::resp::command::{Class, classify};
use tailcut_bridge::resp::keys;
use tailcut_bridge::resp::requests::Requests;
use tailcut_bridge::resp::scan;
use tailcut_net::clock::Clock;

use super::client::{Client, command};
use super::{bridge, gateway_with, wait_until_quiet};
use crate::harness::{Admin, Service, signal};
use crate::process::Server;
use crate::servers;

/// Two servers, a bridge before each, and a gateway that gives each half of the slots.
struct Halves {
    servers: [Server; 2],
    bridges: [(Service, Admin); 2],
    front: (Service, Admin),
}

impl Halves {
    fn start(more: &[&str]) -> Option<Self> {
        let servers = [servers::redis(&[])?, servers::redis(&[])?];
        let bridges = servers.each_ref().map(|server| {
            let (service, admin) =
                bridge("redis", &format!("tcp://{}", server.address), &["--silence", "500ms"]);
            admin.wait_for("tailcut_bridge_server_up", 1.0);
            (service, admin)
        });
        let low = format!("0-8191={}", bridges[0].0.address());
        let high = format!("8192-16383={}", bridges[1].0.address());
        let groups = ["--group", low.as_str(), "--group", high.as_str()];
        let front = gateway_with("redis", &[&groups, more].concat());
        Some(Self { servers, bridges, front })
    }

    fn client(&self) -> Client {
        Client::connect(self.front.0.address())
    }
}

#[test]
fn each_key_is_where_its_group_is() {
    let Some(halves) = Halves::start(&[]) else { return };
    let mut client = halves.client();
    let sets: Vec<_> = (0..1000).map(|key| command(&format!("SET key:{key} {key}"))).collect();
    client.send(&sets);
    assert!(sets.iter().all(|_| client.reply() == b"+OK\r\n"));
    let mut counts = [0; 2];
    for key in 0..1000 {
        let name = format!("key:{key}");
        let group = usize::from(keys::slot(name.as_bytes()) > 8191);
        counts[group] += 1;
        let text = key.to_string();
        let expected = format!("${}\r\n{text}\r\n", text.len());
        assert_eq!(client.ask(&format!("GET {name}")), expected);
    }
    for (server, count) in halves.servers.iter().zip(counts) {
        assert_eq!(Client::connect(server.address).ask("DBSIZE"), format!(":{count}\r\n"));
    }
    // Of one tag, in one group; of several, nowhere.
    assert_eq!(client.ask("MSET {tag}a 1 {tag}b 2"), "+OK\r\n");
    assert_eq!(client.ask("RENAME {tag}a {tag}c"), "+OK\r\n");
    let error = "-CROSSSLOT keys of this MSET are of several groups\r\n";
    assert_eq!(client.ask("MSET foo 1 bar 2"), error);
    assert_eq!(client.ask("EXISTS foo bar {tag}c").split(' ').next(), Some("-CROSSSLOT"));
    assert_eq!(client.ask("EXISTS foo"), ":0\r\n");
    assert!(client.ask("FLUSHALL").starts_with("-ERR FLUSHALL cannot be called: "));
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    drop(client);
    wait_until_quiet(&halves.front.1, &[&halves.bridges[0].1, &halves.bridges[1].1]);
}

/// One group's server is stopped, with more calls waiting for it than may be under way: who asks
/// the other does not notice.
#[test]
fn a_group_that_is_silent_holds_up_no_other() {
    let Some(halves) = Halves::start(&["--timeout", "5s"]) else { return };
    // 12182, and 5061.
    let (mut low, mut high) = (halves.client(), halves.client());
    assert_eq!(low.ask("SET bar 1"), "+OK\r\n");
    assert_eq!(high.ask("SET foo 2"), "+OK\r\n");
    let mut stuck: Vec<Client> = (0..200).map(|_| halves.client()).collect();
    signal("STOP", &halves.servers[0].child);
    for client in &mut stuck {
        client.send(&[command("GET bar"), command("GET foo")]);
    }
    let group = halves.bridges[0].0.address();
    let waiting = format!("tailcut_gateway_group_waiting_clients{{group=\"{group}\"}}");
    halves.front.1.wait_for(&waiting, 1.0);
    let started = Clock.now();
    for _ in 0..200 {
        assert_eq!(high.ask("GET foo"), "$1\r\n2\r\n");
    }
    let took_ms = (Clock.now() - started) / 1_000_000;
    println!("200 calls of the other group in {took_ms} ms");
    assert!(took_ms < 4_000, "no call waited for another's timeout: {took_ms} ms");
    for client in &mut stuck {
        let error = String::from_utf8(client.reply()).expect("text");
        assert!(error.starts_with("-REFUSED ") || error.starts_with("-UNCERTAIN "), "{error}");
        assert_eq!(client.reply(), b"$1\r\n2\r\n");
    }
    signal("CONT", &halves.servers[0].child);
    halves.bridges[0].1.wait_for("tailcut_bridge_server_up", 1.0);
    let answer = (0..1_000).map(|_| low.ask("GET bar")).find(|answer| answer.starts_with('$'));
    assert_eq!(answer.as_deref(), Some("$1\r\n1\r\n"));
    drop((stuck, low, high));
    wait_until_quiet(&halves.front.1, &[&halves.bridges[0].1, &halves.bridges[1].1]);
}

/// For each command that Redis has and a gateway passes on, with up to seven arguments of which one
/// may be a number: the keys are those that Redis names.
#[test]
fn keys_are_where_redis_says() {
    let Some(server) = servers::redis(&[]) else { return };
    let mut client = Client::connect(server.address);
    let mut names = strings(&client.ask("COMMAND LIST"));
    // Its channel is no key, and has a slot as one.
    names.retain(|name| name != "spublish");
    assert!(names.len() > 200, "{}", names.len());
    let mut lines: Vec<Vec<String>> = OTHERS.iter().map(|line| words(line)).collect();
    for name in &names {
        for count in 1..=7 {
            for number in 0..=count {
                let mut line = vec![name.clone()];
                line.extend((1..=count).map(|at| match at == number {
                    true => "2".to_owned(),
                    false => format!("word{at}"),
                }));
                lines.push(line);
            }
        }
    }
    let (mut compared, mut unknown) = (0, BTreeSet::new());
    for chunk in lines.chunks(100) {
        let asked = |line: &Vec<String>| {
            let line = ["COMMAND", "GETKEYS"].into_iter().chain(line.iter().map(String::as_str));
            line.map(|word| word.as_bytes().to_vec()).collect()
        };
        client.send(&chunk.iter().map(asked).collect::<Vec<Vec<Vec<u8>>>>());
        for line in chunk {
            let theirs = String::from_utf8(client.reply()).expect("text");
            let is_keyless = theirs.contains("has no key arguments");
            // By its number of arguments, or by what they say, it is no command.
            if theirs.starts_with('-') && !is_keyless {
                continue;
            }
            let theirs = if is_keyless { Vec::new() } else { strings(&theirs) };
            let Some(ours) = ours(line) else { continue };
            let Some(ours) = ours else {
                if !theirs.is_empty() {
                    unknown.insert(line[0].to_ascii_uppercase());
                }
                continue;
            };
            assert_eq!(ours, theirs, "{line:?}");
            compared += 1;
        }
    }
    println!("{compared} compared; keys of {unknown:?} are not known");
    assert!(compared > 1_000, "{compared}");
    // Where there are several groups, what a newer one has besides is refused.
    if client.ask("INFO server").contains("redis_version:7.") {
        unknown.remove("RESTORE-ASKING");
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

/// The keys that we find, or `None` where nobody knows; nothing where it is not passed on.
fn ours(line: &[String]) -> Option<Option<Vec<String>>> {
    let arguments: Vec<&[u8]> = line.iter().map(|word| word.as_bytes()).collect();
    let mut bytes = Vec::new();
    scan::write(&arguments, &mut bytes);
    let mut requests = Requests::new(1 << 16);
    requests.push(&bytes);
    let command = requests.poll().expect("it is one").expect("all of it is there");
    if let Class::Refused(_) | Class::Session = classify(command) {
        return None;
    }
    let text = |key: &&[u8]| String::from_utf8_lossy(key).into_owned();
    Some(keys::keys(command).map(|found| found.iter().map(text).collect()))
}

/// The bulk strings of a reply.
fn strings(reply: &str) -> Vec<String> {
    let lines: Vec<&str> = reply.split("\r\n").collect();
    let is_string = |pair: &&[&str]| pair[0].starts_with('$');
    lines.windows(2).filter(is_string).map(|pair| pair[1].to_owned()).collect()
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Commands whose words have a meaning.
const OTHERS: &[&str] = &[
    "XREAD COUNT 2 STREAMS a b 0 0",
    "XREAD STREAMS a 0",
    "XREADGROUP GROUP g c COUNT 1 NOACK STREAMS a b > >",
    "XREADGROUP GROUP streams streams STREAMS a >",
    "SORT a LIMIT 0 store STORE b",
    "SORT a BY nosort GET # DESC STORE b",
    "SORT a STORE b STORE c",
    "SORT_RO a LIMIT 0 1",
    "GEORADIUS a 1 2 3 km COUNT 1 STORE b",
    "GEORADIUSBYMEMBER a m 3 km STOREDIST b",
    "ZUNIONSTORE d 3 a b c WEIGHTS 1 2 3",
    "ZINTER 2 a b WITHSCORES",
    "EVAL script 0 a b",
    "EVALSHA hash 3 a b c d e",
    "OBJECT ENCODING a",
    "MEMORY USAGE a SAMPLES 2",
    "XINFO STREAM a FULL",
    "XGROUP CREATE a g $ MKSTREAM",
    "LCS a b LEN",
    "BITOP AND d a b c",
    "COPY a b DB 0 REPLACE",
    "SET a b GET EX 5",
];
