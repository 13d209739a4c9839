//! Programs in Python, with the package around the extension that this test was built with.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};

/// A program that runs, and ends with its test.
pub(crate) struct Program {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts one of `programs`.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name);
        let mut process = Command::new("python3")
            .arg(program)
            .args(arguments)
            .env("PYTHONPATH", package())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python runs");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        Self { process, output }
    }

    /// The next line that it prints; empty where it has ended.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// Sends it what Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        kill_process(Pid::from_child(&self.process), Signal::INT).expect("it runs");
    }

    /// Waits until it has ended as it should.
    pub(crate) fn end(mut self) {
        assert!(self.process.wait().expect("it ends").success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        self.process.wait().expect("it has ended");
    }
}

/// A directory with the package `tailcut`: its sources, and the extension, which is beside this
/// test.
fn package() -> &'static PathBuf {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| {
        let test = std::env::current_exe().expect("this test has a path");
        let extension = test.with_file_name("libtailcut_python.so");
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
        let package = root.join("tailcut");
        std::fs::create_dir_all(&package).expect("a directory for tests");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/tailcut");
        for source in std::fs::read_dir(sources).expect("the sources") {
            let source = source.expect("a source").path();
            let Some(name) = source.file_name().filter(|_| source.is_file()) else { continue };
            std::fs::copy(&source, package.join(name)).expect("a copy");
        }
        std::fs::copy(extension, package.join("_core.abi3.so")).expect("the extension");
        root
    })
}
