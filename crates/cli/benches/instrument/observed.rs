//! Cost of logs and metrics to a server: one that is silent, and one that logs and is scraped four
//! times a second.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::programs::on_server_core;
use crate::{measure, rate};

/// Thousands of replies a second of a silent server, and of an observed one.
pub(crate) fn observed_rate(pairs: usize, run_ms: u64) -> Result<Vec<(f64, f64)>, String> {
    let observed = || {
        let server = Server::start(&["--log", "json"], &["--admin", "127.0.0.1:0"]);
        let admin = server.admin.expect("an admin port");
        let (stop, stopped) = mpsc::channel::<()>();
        let scraper = thread::spawn(move || {
            let mut bytes = 0;
            while stopped.recv_timeout(SCRAPE_EVERY) == Err(RecvTimeoutError::Timeout) {
                bytes += scrape(admin);
            }
            bytes
        });
        let rate = server.rate(run_ms);
        drop(stop);
        let bytes = scraper.join().expect("it scrapes");
        assert!(run_ms < 1_000 || bytes > 0, "nothing was scraped");
        rate
    };
    let pair = |_| {
        // The one has ended, and left the core, before the other begins.
        let silent = Server::start(&[], &[]).rate(run_ms);
        (silent, observed())
    };
    Ok((0..pairs).map(pair).collect())
}

/// A `tailcut serve` that runs until it is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    admin: Option<SocketAddr>,
}

impl Server {
    fn start(log: &[&str], more: &[&str]) -> Self {
        let mut command = on_server_core(env!("CARGO_BIN_EXE_tailcut"));
        command.args(log).args(["serve", "--listen", "127.0.0.1:0", "--app", "echo"]);
        command.arg("--busy-poll").args(more).env("TAILCUT_LOG", "info");
        if log.is_empty() {
            command.env("TAILCUT_LOG", "off");
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut address = |name: &str| {
            let line = lines.next().expect("a line").expect("it is text");
            line.strip_prefix(name).and_then(|address| address.parse().ok()).expect("an address")
        };
        let listening = address("listening ");
        let admin = (!more.is_empty()).then(|| address("admin "));
        Self { child, address: listening, admin }
    }

    fn rate(&self, run_ms: u64) -> f64 {
        let load = ["--app", "echo:32", "--outstanding", "64"];
        rate(&measure(self.address, &[], &load, run_ms))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes of the metrics.
fn scrape(admin: SocketAddr) -> usize {
    let mut page = Vec::new();
    let mut stream = TcpStream::connect(admin).expect("an admin port");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("a request");
    stream.read_to_end(&mut page).expect("metrics")
}

const SCRAPE_EVERY: Duration = Duration::from_millis(250);
