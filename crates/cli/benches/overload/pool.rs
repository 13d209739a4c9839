//! The processes under load: servers with emulated workers, and a router before them.

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::Way;

/// Servers and what is before them; ended when it is dropped.
pub(crate) struct Pool {
    children: Vec<Child>,
    /// Destination of clients' requests.
    pub(crate) target: SocketAddr,
}

impl Pool {
    /// So many workers in all.
    pub(crate) fn start(way: Way, workers: usize) -> Self {
        let ports = if way == Way::Routed { SERVERS } else { 1 };
        let workers = (workers / ports).to_string();
        let ports_text = ports.to_string();
        let serve = ["serve", "--listen", "127.0.0.1:0", "--app", "synthetic"];
        let serve =
            [&serve[..], &["--service-max", "10s", "--workers", &workers, "--ports", &ports_text]];
        let (child, mut lines) = start(&serve.concat());
        let servers: Vec<SocketAddr> = (0..ports).map(|_| listening(&mut lines)).collect();
        let mut pool = Self { children: vec![child], target: servers[0] };
        if way == Way::Routed {
            let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
            let mut route = vec!["route", "--listen", "127.0.0.1:0"];
            servers.iter().for_each(|server| route.extend(["--server", server.as_str()]));
            let (child, mut lines) = start(&route);
            pool.children.push(child);
            pool.target = listening(&mut lines);
        }
        pool
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(args: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailcut"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    (child, lines)
}

fn listening(lines: &mut Lines<BufReader<ChildStdout>>) -> SocketAddr {
    let line = lines.next().expect("a line").expect("it is text");
    let address = line.strip_prefix("listening ").and_then(|address| address.parse().ok());
    address.expect("an address")
}

/// Servers behind the router.
const SERVERS: usize = 4;
