//! A server that a test starts on a free port, waits for, and ends.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::port;

/// A running server; it is killed when dropped, and its directory removed.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    /// Its own, removed with it.
    pub(crate) directory: PathBuf,
}

impl Server {
    /// Starts `program`; `arguments` are told the port and a directory of its own. None, where it
    /// is not installed.
    pub(crate) fn start(
        program: &str,
        package: &str,
        arguments: impl Fn(u16, &Path) -> Vec<String>,
    ) -> Option<Self> {
        let Some(path) = find(program) else {
            println!("SKIPPED: {program} is missing (Debian: {package})");
            return None;
        };
        // Somebody else may take the port before the server does.
        let started = (0..5).find_map(|_| Self::try_start(&path, &arguments));
        Some(started.unwrap_or_else(|| panic!("{program} does not start")))
    }

    fn try_start(path: &Path, arguments: &impl Fn(u16, &Path) -> Vec<String>) -> Option<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()));
        let directory = std::env::temp_dir().join(format!(
            "tailcut-servers-{}-{}",
            std::process::id(),
            address.port()
        ));
        std::fs::create_dir_all(&directory).expect("the temporary directory takes a directory");
        let mut command = Command::new(path);
        command
            .args(arguments(address.port(), &directory))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command.spawn().expect("the program starts");
        let mut server = Self { child, address, directory };
        server.listens().then_some(server)
    }

    /// Waits until it listens; false if it ended instead.
    fn listens(&mut self) -> bool {
        for _ in 0..ATTEMPTS_MAX {
            if TcpStream::connect(self.address).is_ok() {
                return true;
            }
            if self.child.try_wait().expect("it is a child of ours").is_some() {
                return false;
            }
            std::thread::yield_now();
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already, and what cannot be removed is left.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // A user's PATH need not have it.
    directories.push("/usr/sbin".into());
    directories.into_iter().map(|directory| directory.join(program)).find(|path| path.exists())
}

/// A refused connection takes some ten microseconds, so this is tens of seconds.
const ATTEMPTS_MAX: u32 = 2_000_000;
