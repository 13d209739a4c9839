//! Servers that die, stop, or are none; clients that leave, or mean no good.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tailcut_net::clock::Clock;

use super::client::{Client, command};
use super::{bridge, gateway, wait_until_quiet};
use crate::harness::{Admin, Service, signal};
use crate::{port, servers};

/// A Redis at a port that stays the same.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start(port: u16) -> Self {
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("redis-server");
        Self { child, port }
    }

    fn restart(&mut self) {
        self.end();
        *self = Self::start(self.port);
    }

    fn end(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.end();
    }
}

/// A bridge before a server that is up, and a gateway with more arguments before that.
fn before(to: &str, more: &[&str]) -> [(Service, Admin); 2] {
    let (behind, behind_admin) = bridge("redis", to, &[]);
    behind_admin.wait_for("tailcut_bridge_server_up", 1.0);
    let front = gateway("redis", behind.address(), more);
    [(behind, behind_admin), front]
}

fn is_there() -> bool {
    // Says that it is skipped, where it is.
    servers::redis(&[]).is_some()
}

#[test]
fn a_server_that_is_killed_is_refused_for_and_comes_back() {
    if !is_there() {
        return;
    }
    let port = port::free();
    let (behind, behind_admin) = bridge("redis", &format!("tcp://127.0.0.1:{port}"), &[]);
    assert_eq!(behind_admin.get("/readyz").0, 503);
    let mut server = Redis::start(port);
    behind_admin.wait_for("tailcut_bridge_server_up", 1.0);
    assert_eq!(behind_admin.get("/readyz").0, 200);
    let (front, front_admin) = gateway("redis", behind.address(), &[]);
    let mut client = Client::connect(front.address());
    for round in 1..=3 {
        assert_eq!(client.ask("SET a 1"), "+OK\r\n");
        server.end();
        super::wait_until_at_most(&behind_admin, "tailcut_bridge_server_up", 0.0);
        let error = client.ask("SET a 2");
        assert!(
            error.starts_with("-REFUSED it has not run: ") || error.starts_with("-UNCERTAIN "),
            "{error}"
        );
        if error.starts_with("-UNCERTAIN ") {
            assert_eq!(client.try_reply(), None, "what comes next could overtake it");
            client = Client::connect(front.address());
        }
        server.restart();
        behind_admin.wait_for("tailcut_bridge_server_up", 1.0);
        assert_eq!(client.ask("GET a"), "$-1\r\n");
        assert!(behind_admin.value("tailcut_bridge_server_outages_total") >= f64::from(round));
    }
    drop(client);
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

/// Writes that were with it may have run, reads are tried again; its places come back.
#[test]
fn a_server_that_is_stopped_is_given_up_and_comes_back() {
    if !is_there() {
        return;
    }
    let server = Redis::start(port::free());
    let to = format!("tcp://127.0.0.1:{}", server.port);
    let (behind, behind_admin) =
        bridge("redis", &to, &["--silence", "300ms", "--outstanding", "4"]);
    behind_admin.wait_for("tailcut_bridge_server_up", 1.0);
    let (front, front_admin) = gateway("redis", behind.address(), &["--timeout", "2s"]);
    let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(front.address())).collect();
    assert_eq!(clients[0].ask("SET a 1"), "+OK\r\n");
    signal("STOP", &server.child);
    for client in &mut clients {
        client.send(&[command("INCR a")]);
    }
    for client in &mut clients {
        let error = String::from_utf8(client.reply()).expect("text");
        assert!(error.starts_with("-REFUSED ") || error.starts_with("-UNCERTAIN "), "{error}");
    }
    signal("CONT", &server.child);
    behind_admin.wait_for("tailcut_bridge_server_up", 1.0);
    assert!(behind_admin.value("tailcut_bridge_server_silent_total") >= 1.0);
    let mut client = Client::connect(front.address());
    let value = (0..1_000).map(|_| client.ask("GET a")).find(|reply| reply.starts_with('$'));
    let value = value.expect("it is answered again");
    let value: u64 = value.lines().nth(1).expect("a value").parse().expect("a number");
    // None has run twice, whoever has been told what.
    assert!((1..=9).contains(&value), "{value}");
    drop((clients, client));
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

/// A write that has not been answered in time may run later, on another connection to the server
/// than the next: so there is no next.
#[test]
fn no_write_overtakes_one_that_may_still_run() {
    if !is_there() {
        return;
    }
    let server = Redis::start(port::free());
    let to = format!("tcp://127.0.0.1:{}", server.port);
    let [(_behind, behind_admin), (front, front_admin)] = before(&to, &["--timeout", "300ms"]);
    let mut client = Client::connect(front.address());
    assert_eq!(client.ask("SET k 0"), "+OK\r\n");
    signal("STOP", &server.child);
    client.send(&[command("SET k 1"), command("LPOP l"), command("SET k 2"), command("GET k")]);
    assert!(client.reply().starts_with(b"-UNCERTAIN "));
    while let Some(reply) = client.try_reply() {
        assert!(reply.starts_with(b"-REFUSED it has not run: "), "{}", reply.escape_ascii());
    }
    signal("CONT", &server.child);
    let mut client = Client::connect(front.address());
    let value = (0..1_000).map(|_| client.ask("GET k")).find(|reply| reply == "$1\r\n1\r\n");
    assert!(value.is_some(), "the first has run, and none of the others");
    drop(client);
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

/// Many more ask than may have calls under way, and nobody is answered: all are told so in the time
/// for one.
#[test]
fn who_waits_for_room_waits_no_longer_than_for_an_answer() {
    let Some(server) = servers::redis(&[]) else { return };
    let [(behind, behind_admin), (front, front_admin)] =
        before(&format!("tcp://{}", server.address), &["--timeout", "1s"]);
    let mut clients: Vec<Client> = (0..1_000).map(|_| Client::connect(front.address())).collect();
    behind.signal("STOP");
    let started = Clock.now();
    for client in &mut clients {
        client.send(&[command("GET a"), command("GET b"), command("GET c")]);
    }
    for client in &mut clients {
        for _ in 0..3 {
            let error = String::from_utf8(client.reply()).expect("text");
            assert!(error.starts_with("-REFUSED ") || error.starts_with("-UNCERTAIN "), "{error}");
        }
    }
    let took_ms = (Clock.now() - started) / 1_000_000;
    println!("3,000 commands are refused in {took_ms} ms");
    // 16 s and more if each waited for those before it.
    assert!(took_ms < 8_000, "{took_ms} ms");
    behind.signal("CONT");
    let mut client = Client::connect(front.address());
    let answer = (0..1_000).map(|_| client.ask("GET a")).find(|reply| reply == "$-1\r\n");
    assert!(answer.is_some(), "it comes back");
    drop((clients, client));
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

/// Requests that have been called for and not answered are held too.
#[test]
fn requests_under_way_count_as_memory() {
    let Some(server) = servers::redis(&[]) else { return };
    let [(behind, behind_admin), (front, front_admin)] =
        before(&format!("tcp://{}", server.address), &["--memory", "20MiB"]);
    behind.signal("STOP");
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut client = TcpStream::connect(front.address()).expect("a connection");
                client.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
                let mut bytes = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$7000000\r\n".to_vec();
                bytes.resize(bytes.len() + 7_000_000, b'x');
                bytes.extend(b"\r\n");
                // It may be cut off meanwhile.
                let _ = client.write_all(&bytes);
                let _ = client.read(&mut [0]);
            });
        }
        let ended = || front_admin.value("tailcut_gateway_clients_ended_memory_total");
        let has_come = (0..10_000).any(|_| ended() >= 9.0);
        let (ended, held) = (ended(), front_admin.value("tailcut_gateway_held_bytes"));
        // Whoever is left is answered.
        behind.signal("CONT");
        assert!(has_come, "{ended}, {held}");
        assert!(held < 20.0 * 1_048_576.0, "{held}");
    });
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

/// Requests that a web page can have a browser send to a gateway on its host.
#[test]
fn a_browser_s_post_is_no_commands() {
    let Some(server) = servers::redis(&[]) else { return };
    let [(_behind, _), (front, _)] = before(&format!("tcp://{}", server.address), &[]);
    let url = format!("http://{}/", front.address());
    for method in ["POST", "PUT"] {
        let body = ["-s", "--http0.9", "-X", method, "--data-binary", "SET by curl\r\nQUIT\r\n"];
        let output = Command::new("curl").args(body).arg(&url).output().expect("curl");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            shown.contains("of HTTP, and ends the connection") && !shown.contains("+OK"),
            "{shown}"
        );
    }
    assert_eq!(Client::connect(front.address()).ask("EXISTS by"), ":0\r\n");
}

/// One says command after command without a pause, and reads all answers: others have their share.
#[test]
fn who_never_pauses_keeps_nobody_waiting() {
    if !is_there() {
        return;
    }
    let server = Redis::start(port::free());
    let to = format!("tcp://127.0.0.1:{}", server.port);
    let [(_behind, behind_admin), (front, front_admin)] = before(&to, &[]);
    let mut greedy = TcpStream::connect(front.address()).expect("a connection");
    let [mut answers, whole] = [(); 2].map(|()| greedy.try_clone().expect("a descriptor"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let many = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n".repeat(1_000);
            while greedy.write_all(&many).is_ok() {}
        });
        scope.spawn(|| {
            let mut bytes = vec![0; 1 << 16];
            while answers.read(&mut bytes).is_ok_and(|len| len > 0) {}
        });
        let mut other = Client::connect(front.address());
        let started = Clock.now();
        let asked = (0..200).filter(|_| other.ask("GET b") == "$-1\r\n").count();
        let took_ms = (Clock.now() - started) / 1_000_000;
        println!("{asked} in {took_ms} ms");
        for why in ["memory", "partial", "unread", "idle"] {
            let name = format!("tailcut_gateway_clients_ended_{why}_total");
            assert_eq!(front_admin.value(&name), 0.0, "{why}");
        }
        whole.shutdown(Shutdown::Both).expect("it is open");
        // Before, for ever.
        assert!(asked == 200 && took_ms < 20_000, "{asked} in {took_ms} ms");
    });
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

#[test]
fn a_server_that_talks_nonsense_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Whoever has gone need not hear it.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let (_behind, admin) = bridge("redis", &format!("tcp://{address}"), &[]);
    admin.wait_for("tailcut_bridge_server_connect_failed_total", 3.0);
    assert_eq!((admin.get("/readyz").0, admin.value("tailcut_bridge_server_up")), (503, 0.0));
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing_behind() {
    let Some(server) = servers::redis(&[]) else { return };
    let (behind, behind_admin) = bridge("redis", &format!("tcp://{}", server.address), &[]);
    let (front, front_admin) = gateway("redis", behind.address(), &[]);
    for round in 0..30 {
        let mut client = Client::connect(front.address());
        match round % 3 {
            // In the middle of a command.
            0 => {
                client.stream.write_all(b"*2\r\n$3\r\nGET\r\n$100\r\nabc").expect("it takes bytes")
            }
            // Before the answers.
            1 => client.send(&vec![command("GET a"); 100]),
            // In the middle of an answer.
            _ => {
                client.send(&[
                    vec![b"SET".to_vec(), b"long".to_vec(), vec![b'x'; 1 << 20]],
                    command("GET long"),
                ]);
                assert_eq!(client.reply(), b"+OK\r\n");
            }
        }
    }
    wait_until_quiet(&front_admin, &[&behind_admin]);
    assert_eq!(front_admin.value("tailcut_gateway_clients_total"), 30.0);
    // A client that says no more is still answered.
    let mut client = Client::connect(front.address());
    client.send(&[command("SET a 1"), command("GET a")]);
    client.stream.shutdown(Shutdown::Write).expect("it can");
    assert_eq!((client.reply(), client.reply()), (b"+OK\r\n".to_vec(), b"$1\r\n1\r\n".to_vec()));
    assert_eq!(client.try_reply(), None);
}

#[test]
fn clients_that_mean_no_good_cost_little_and_are_counted() {
    let Some(server) = servers::redis(&[]) else { return };
    let (behind, behind_admin) = bridge("redis", &format!("tcp://{}", server.address), &[]);
    let limits = ["--client-timeout", "300ms", "--memory", "16MiB", "--connections", "40"];
    let (front, admin) = gateway("redis", behind.address(), &limits);
    let said = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(front.address()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        // It may be cut off meanwhile.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let error = said(b"*2\r\n$3\r\nSET\r\n$1073741824\r\n");
    assert_eq!(error, "-ERR Protocol error: invalid bulk length\r\n");
    assert_eq!(said(b"*1000000000\r\n"), "-ERR Protocol error: invalid multibulk length\r\n");
    assert!(said(&[b'a'; 100_000]).contains("too big inline request"));
    // A request that does not go on.
    assert_eq!(said(b"*2\r\n$3\r\nGET\r\n$10"), "");
    admin.wait_for("tailcut_gateway_clients_ended_partial_total", 1.0);
    // Answers that nobody reads.
    let mut setter = Client::connect(front.address());
    setter.send(&[vec![b"SET".to_vec(), b"long".to_vec(), vec![b'x'; 4 << 20]]]);
    assert_eq!(setter.reply(), b"+OK\r\n");
    let mut deaf: Vec<Client> = (0..4).map(|_| Client::connect(front.address())).collect();
    for client in &mut deaf {
        client.send(&vec![command("GET long"); 8]);
    }
    let ended =
        |reason: &str| admin.value(&format!("tailcut_gateway_clients_ended_{reason}_total"));
    let has_come = (0..10_000).any(|_| ended("unread") + ended("memory") >= 4.0);
    assert!(has_come, "{} {}", ended("unread"), ended("memory"));
    // More than may connect.
    let crowd: Vec<_> = (0..60).map(|_| TcpStream::connect(front.address())).collect();
    admin.wait_for("tailcut_gateway_stream_accepts_refused_total", 1.0);
    drop(crowd);
    // Others have not been kept out.
    super::wait_until_at_most(&admin, "tailcut_gateway_client_connections", 1.0);
    assert_eq!(Client::connect(front.address()).ask("STRLEN long"), ":4194304\r\n");
    drop((deaf, setter));
    wait_until_quiet(&admin, &[&behind_admin]);
}

#[test]
fn a_drained_gateway_answers_what_it_has_and_ends_its_clients() {
    let Some(server) = servers::redis(&[]) else { return };
    let [(behind, _), (front, _)] = before(&format!("tcp://{}", server.address), &[]);
    let address: SocketAddr = front.address().parse().expect("an address");
    let mut idle = Client::connect(address);
    assert_eq!(idle.ask("PING"), "+PONG\r\n");
    front.signal("TERM");
    let (code, _, stderr) = front.wait();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("  gateway_answered"), "{stderr}");
    assert_eq!(idle.try_reply(), None);
    assert!(TcpStream::connect(address).is_err());
    behind.signal("TERM");
    let (code, _, stderr) = behind.wait();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.starts_with("bridged:\n"), "{stderr}");
}

#[test]
fn a_control_socket_shows_how_they_are() {
    let Some(server) = servers::redis(&[]) else { return };
    let path = std::env::temp_dir().join(format!("tailcut-bridge-{}.sock", std::process::id()));
    let path = path.to_string_lossy().into_owned();
    let (_behind, admin) =
        bridge("redis", &format!("tcp://{}", server.address), &["--control", &path]);
    admin.wait_for("tailcut_bridge_server_up", 1.0);
    let shown = crate::harness::succeed(&["control", &path, "status"]);
    assert!(shown.starts_with("bridge  app redis  listen 127.0.0.1:"), "{shown}");
    let json = crate::harness::succeed(&["control", &path, "status", "--json", "-"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((&json["command"], &json["gauges"]["server_up"]), (&"bridge".into(), &1.into()));
    let refused = crate::harness::run(&["control", &path, "drain", "127.0.0.1:1"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no servers to change"));
}
