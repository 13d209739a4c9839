//! A test of this binary that serves in a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// A process that is killed when this is dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Runs a test, which a variable tells to serve; it says where on a line of its output.
    pub(crate) fn start(test: &str, (variable, value): (&str, &str)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--nocapture"])
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let find =
            |line: std::io::Result<String>| line.ok()?.strip_prefix("serving on ")?.parse().ok();
        let address = lines.into_iter().find_map(find).expect("it serves");
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
