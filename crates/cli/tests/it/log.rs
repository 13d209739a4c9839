//! The log of the real binary: lines of JSON on standard error, and none without being asked.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{run, tailcut};

/// A command that logs until it is dropped.
struct Logged {
    child: Child,
    address: String,
}

impl Logged {
    fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("it is piped")).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening ").expect("it listens").to_owned();
        Self { child, address }
    }

    /// Reads lines until one has `message`, and gives that.
    fn until(&mut self, message: &str) -> Value {
        let lines = BufReader::new(self.child.stderr.as_mut().expect("it is piped")).lines();
        let values = lines.map(|line| {
            let line = line.expect("it is text");
            serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
        });
        let mut found = values.filter(|value| value["message"] == message);
        found.next().unwrap_or_else(|| panic!("no line says {message}"))
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_logs_what_is_no_packet() {
    let args = ["--log", "json", "serve", "--listen", "127.0.0.1:0", "--app", "echo"];
    let mut server = Logged::start(tailcut().args(args));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"no packet", &server.address).unwrap();
    let line = server.until("datagrams that are no packets");
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["at"], server.address);
    assert_eq!((&line["counter"], &line["count"]), (&"malformed".into(), &1.into()));
}

#[test]
fn a_router_logs_a_server_that_is_silent() {
    let args = ["--listen", "127.0.0.1:0", "--server", "127.0.0.1:9", "--silent-after", "20ms"];
    let mut router = Logged::start(tailcut().args(["route", "--log", "json"]).args(args));
    let line = router.until("server silent");
    assert_eq!(line["server"], "127.0.0.1:9");
}

#[test]
fn a_server_says_whose_connection_it_ends_and_why() {
    let args = ["serve", "--listen", "127.0.0.1:0", "--transport", "tcp", "--app", "synthetic"];
    let mut server = Logged::start(tailcut().args(["--log", "json"]).args(args));
    let mut stream = TcpStream::connect(&server.address).unwrap();
    // A service of some 600 years.
    stream.write_all(&[255; 8]).unwrap();
    let why = "it said what is no request, or asked for too much";
    let line = server.until(&format!("connection refused or ended: {why}"));
    assert_eq!(line["peer"], stream.local_addr().unwrap().to_string());
    assert_eq!((&line["level"], &line["count"]), (&"WARN".into(), &1.into()));
}

#[test]
fn an_agent_says_whom_it_turns_away() {
    let mut agent = Logged::start(tailcut().args(["--log", "json", "agent"]));
    let mut stream = TcpStream::connect(&agent.address).unwrap();
    let peer = stream.local_addr().unwrap().to_string();
    stream.write_all(&[7; 64]).unwrap();
    drop(stream);
    let lines = BufReader::new(agent.child.stderr.as_mut().expect("it is piped")).lines();
    let mut lines = lines.map(|line| line.expect("it is text"));
    let said = lines.find(|line| line.contains(&peer)).expect("a line");
    let said: Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!(said["level"], "INFO");
}

/// Nobody watches a router: it warns without being asked.
#[test]
fn a_router_without_any_server_says_so_unasked() {
    let args = ["--listen", "127.0.0.1:0", "--server", "127.0.0.1:9", "--silent-after", "20ms"];
    let mut router = Logged::start(tailcut().arg("route").args(args));
    let stderr = BufReader::new(router.child.stderr.as_mut().expect("it is piped"));
    let mut lines = stderr.lines().map(|line| line.expect("it is text"));
    // A closed port also says so; its counter may come first.
    let silent = lines.find(|line| line.contains("server silent")).expect("a line");
    assert!(silent.contains("WARN"), "{silent}");
    let none = lines.find(|line| line.contains("no server in service")).expect("a line");
    assert!(none.contains("ERROR"), "{none}");
}

#[test]
fn a_filter_that_is_none_is_named() {
    let output = tailcut().env("TAILCUT_LOG", "a=b=c").args(["dissect", "x"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("TAILCUT_LOG is a level"), "{stderr}");
    let unlogged = run(&["dissect", "/nowhere"]);
    assert_eq!(String::from_utf8_lossy(&unlogged.stderr).lines().count(), 1);
}
