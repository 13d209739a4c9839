//! Servers and load generators of others, on free ports and ended with their owner.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tailcut_net::clock::Clock;

use super::port;
use super::support::SERVER_CORE;

/// A server that runs until this is dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Directory of its files.
    folder: PathBuf,
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A memcached with one thread.
pub(crate) fn memcached() -> Result<Program, String> {
    let program = find("memcached", "memcached")?;
    start(|address, _| {
        let mut command = on_server_core(program);
        command.args([
            "-l",
            "127.0.0.1",
            "-p",
            &address.port().to_string(),
            "-t",
            "1",
            "-u",
            "nobody",
        ]);
        command
    })
}

/// An NGINX with one process, which serves a page of 100 bytes.
pub(crate) fn nginx() -> Result<Program, String> {
    let program = find("nginx", "nginx-light")?;
    start(|address, folder| {
        std::fs::write(folder.join("index.html"), [b'x'; 100]).expect("the folder is ours");
        let (place, path) = (folder.display(), folder.join("nginx.conf"));
        let config = format!(
            "daemon off; master_process off; pid {place}/pid; error_log stderr crit; events {{}}\n\
             http {{ access_log off; keepalive_requests 1000000000; server {{ listen {address}; root {place}; }} }}\n"
        );
        std::fs::write(&path, config).expect("the folder is ours");
        let mut command = on_server_core(program);
        command.arg("-p").arg(folder).arg("-c").arg(path);
        command
    })
}

/// Thousands of replies a second that wrk gets over 64 connections on this core.
pub(crate) fn wrk(server: SocketAddr, run_ms: u64) -> Result<f64, String> {
    let program = find("wrk", "wrk")?;
    let seconds = format!("{}s", run_ms.div_ceil(1000));
    let output = Command::new(program)
        .args(["-t", "1", "-c", "64", "-d", &seconds, &format!("http://{server}/")])
        .output()
        .map_err(|error| format!("wrk does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"))
        .and_then(|rate| rate.trim().parse::<f64>().ok());
    rate.map(|rate| rate / 1e3).ok_or_else(|| format!("wrk said no rate: {text}"))
}

pub(crate) fn on_server_core(program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &SERVER_CORE.to_string(), program]);
    command
}

/// The program's path, or which package has it.
fn find(name: &str, package: &str) -> Result<&'static str, String> {
    let path =
        PLACES.iter().map(|place| format!("{place}/{name}")).find(|path| Path::new(path).exists());
    path.map(|path| &*path.leak())
        .ok_or_else(|| format!("there is no {name} (Debian's package {package})"))
}

/// Starts what `command` says at a free port, and waits until it takes connections.
fn start(command: impl FnOnce(SocketAddr, &Path) -> Command) -> Result<Program, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()));
    let folder = std::env::temp_dir().join(format!(
        "tailcut-bench-{}-{}",
        std::process::id(),
        address.port()
    ));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut command = command(address, &folder);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.map_err(|error| format!("{command:?} does not start: {error}"))?;
    let program = Program { child, address, folder };
    let end = Clock.now() + PATIENCE_NS;
    while TcpStream::connect(address).is_err() {
        if Clock.now() > end {
            return Err(format!("{command:?} takes no connections"));
        }
        std::thread::yield_now();
    }
    Ok(program)
}

const PATIENCE_NS: u64 = 5_000_000_000;
const PLACES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/bin"];
