//! `tailcut measure` and `tailcut gateway` before the module, as they are before a bridge.
//! `TAILCUT` names the command.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::LISTEN;
use crate::server::{RedisServer, line, programs};

#[test]
fn a_measurement_has_all_its_replies() {
    let Some(command) = command() else { return };
    for program in programs() {
        let module = RedisServer::with_module(&program, LISTEN, &[]);
        let address = module.address().to_string();
        let app = ["--transport", "r2p2", "--app", "redis:keys=10,value=fixed:2kB"];
        let load = [
            "--timeout",
            "20s",
            "--rate",
            "200",
            "--duration",
            "500ms",
            "--warmup",
            "100ms",
            "--json",
            "-",
        ];
        let measured = Command::new(&command)
            .args(["measure", "--target", &address])
            .args(app)
            .args(load)
            .output()
            .expect("the command");
        let text = String::from_utf8_lossy(&measured.stdout).into_owned();
        let text = text.split_once("\"counts\"").map_or(text.as_str(), |(_, counts)| counts);
        let count = |name: &str| -> u64 {
            let at = text
                .find(&format!("\"{name}\""))
                .unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&measured.stderr)));
            let digits = text[at + name.len() + 2..].trim_start_matches([':', ' ']);
            let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(0);
            digits[..end].parse().unwrap_or_else(|_| panic!("{name} in {text}"))
        };
        assert!(count("sent") > 0 && count("replied") == count("sent"), "{text}");
        assert_eq!((count("lost"), count("refused")), (0, 0), "{text}");
        assert_eq!(module.info("errors"), "0");
    }
}

#[test]
fn a_gateway_brings_unchanged_clients_to_the_module() {
    let Some(command) = command() else { return };
    for program in programs() {
        let module = RedisServer::with_module(&program, LISTEN, &[]);
        let gateway = Gateway::start(&command, &module.address().to_string());
        let mut client = TcpStream::connect(&gateway.address).expect("the gateway");
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let asked =
            ["SET a 1", "INCR a", "GET a", "LPUSH a 1", "HELLO 3", "HSET h f v", "HGETALL h"];
        client.write_all(&asked.map(line).concat()).expect("the gateway takes it");
        client.shutdown(std::net::Shutdown::Write).expect("a connection");
        let mut replies = String::new();
        client.read_to_string(&mut replies).expect("replies in time");
        assert!(replies.starts_with("+OK\r\n:2\r\n$1\r\n2\r\n-WRONGTYPE "), "{replies}");
        assert!(replies.ends_with(":1\r\n%1\r\n$1\r\nf\r\n$1\r\nv\r\n"), "{replies}");
    }
}

/// The command, where one is named.
fn command() -> Option<std::ffi::OsString> {
    let command = std::env::var_os("TAILCUT");
    if command.is_none() {
        println!("SKIPPED: no command, for TAILCUT names none");
    }
    command
}

/// A gateway, ended when this is dropped.
struct Gateway {
    child: Child,
    address: String,
}

impl Gateway {
    fn start(command: &std::ffi::OsStr, to: &str) -> Self {
        let mut child = Command::new(command)
            .args(["gateway", "--listen", "tcp://127.0.0.1:0", "--app", "redis", "--to", to])
            .args(["--timeout", "20s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        let address = line.trim().strip_prefix("listening ").expect("an address");
        let address = address.trim_start_matches("tcp://").to_owned();
        Self { child, address }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
