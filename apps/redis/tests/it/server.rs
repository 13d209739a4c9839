//! Servers of Redis with the module, and plain connections to them.

#![allow(dead_code, unreachable_pub, reason = "tests and the bench use their parts")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A server, ended when this is dropped.
pub struct RedisServer {
    child: Child,
    directory: PathBuf,
    /// The rest of what it prints is read by a thread, so that it never waits for a reader.
    output: std::sync::mpsc::Receiver<String>,
}

impl RedisServer {
    /// A server with the module, and `words` behind its path; `options` are Redis' own.
    pub fn with_module(program: &Path, words: &str, options: &[&str]) -> Self {
        Self::try_with_module(program, words, options).unwrap_or_else(|log| panic!("{log}"))
    }

    /// A server with the module, or what it printed where it did not start.
    pub fn try_with_module(program: &Path, words: &str, options: &[&str]) -> Result<Self, String> {
        let arguments = module_arguments(words, options);
        let directory = fresh_directory();
        let started = Self::start(program, &directory, &arguments);
        if started.is_err() {
            std::fs::remove_dir_all(&directory).expect("the directory");
        }
        started
    }

    /// The module's path.
    pub fn module() -> String {
        module_path().display().to_string()
    }

    /// A server without the module.
    pub fn plain(program: &Path) -> Self {
        let options = ["--enable-debug-command", "yes"].map(str::to_owned);
        Self::start(program, &fresh_directory(), &options).unwrap_or_else(|log| panic!("{log}"))
    }

    /// This server again, with what it has on disk.
    pub fn restart(mut self, program: &Path, words: &str, options: &[&str]) -> Self {
        self.child.kill().expect("a process");
        self.child.wait().expect("a status");
        let arguments = module_arguments(words, options);
        let directory = std::mem::take(&mut self.directory);
        Self::start(program, &directory, &arguments).unwrap_or_else(|log| panic!("{log}"))
    }

    fn start(program: &Path, directory: &Path, arguments: &[String]) -> Result<Self, String> {
        let mut child = Command::new(program)
            .args(["--port", "0", "--unixsocket", SOCKET, "--save", "", "--daemonize", "no"])
            .arg("--dir")
            .arg(directory)
            .args(arguments)
            .current_dir(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let (lines, output) = std::sync::mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let mut log = String::new();
        while let Ok(line) = output.recv_timeout(START_TIME_MAX) {
            if line.contains("eady to accept connections") {
                return Ok(Self { child, directory: directory.to_owned(), output });
            }
            log += &line;
            log.push('\n');
        }
        // It has ended, or is silent.
        let _ = child.kill();
        let _ = child.wait();
        Err(log)
    }

    /// A connection of a plain client.
    pub fn connect(&self) -> Plain {
        Plain::connect(&self.directory.join(SOCKET))
    }

    /// Address at which the module takes calls.
    pub fn address(&self) -> SocketAddr {
        self.info("listen").parse().expect("an address")
    }

    /// A field of the module's section of INFO.
    pub fn info(&self, field: &str) -> String {
        let reply = self.connect().ask(&["INFO", "tailcut"]);
        let text = String::from_utf8(reply).expect("text");
        let start = format!("tailcut_{field}:");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
    }

    /// Its process.
    pub fn process(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        // The pipe closes when the process ends; a server that does not end is found here, not by
        // CI's patience.
        while self.output.recv_timeout(START_TIME_MAX).is_ok() {}
        let ended = self.child.try_wait().expect("a status");
        ended.unwrap_or_else(|| self.child.wait().expect("a status"))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.directory.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// A connection of a plain client.
pub struct Plain {
    stream: BufReader<UnixStream>,
}

impl Plain {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("a server");
        stream.set_read_timeout(Some(START_TIME_MAX)).expect("a timeout");
        Self { stream: BufReader::new(stream) }
    }

    /// The reply's bytes.
    pub fn ask(&mut self, words: &[&str]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.ask_bytes(&command(&words))
    }

    /// The reply's bytes to a command in bytes.
    pub fn ask_bytes(&mut self, command: &[u8]) -> Vec<u8> {
        self.stream.get_mut().write_all(command).expect("the server takes it");
        let mut reply = Vec::new();
        self.read(&mut reply);
        reply
    }

    /// Reads a reply, of RESP2 or RESP3.
    fn read(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        self.stream.read_until(b'\n', out).expect("a reply in time");
        let line = std::str::from_utf8(&out[start..]).expect("text").trim_end();
        let kind = line.bytes().next().expect("a reply");
        let number = || line[1..].parse::<i64>().unwrap_or(-1);
        match kind {
            b'$' | b'=' if number() >= 0 => {
                let end = out.len() + number() as usize + 2;
                let at = out.len();
                out.resize(end, 0);
                self.stream.read_exact(&mut out[at..]).expect("the rest of a reply");
            }
            b'*' | b'~' => (0..number()).for_each(|_| self.read(out)),
            b'%' => (0..2 * number()).for_each(|_| self.read(out)),
            _ => {}
        }
    }
}

/// A command as clients write it.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A command of a line, whose words are between blanks.
pub fn line(line: &str) -> Vec<u8> {
    command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// The servers to try: Debian's Redis, and Valkey where `TAILCUT_VALKEY` names one.
pub fn programs() -> Vec<PathBuf> {
    let mut programs = vec![PathBuf::from("redis-server")];
    match std::env::var_os("TAILCUT_VALKEY") {
        Some(valkey) => programs.push(valkey.into()),
        None => println!("SKIPPED: no Valkey, for TAILCUT_VALKEY names none"),
    }
    programs
}

/// Arguments that have a server load the module, `words` behind its path, and its own options.
fn module_arguments(words: &str, options: &[&str]) -> Vec<String> {
    let path = module_path().to_str().expect("UTF-8").to_owned();
    let mut arguments = vec!["--loadmodule".to_owned(), path];
    arguments.extend(words.split_whitespace().chain(options.iter().copied()).map(str::to_owned));
    arguments
}

/// The module that cargo has built beside this test.
fn module_path() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.parent().expect("a directory").join("libtailcut_redis.so")
}

fn fresh_directory() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("tailcut-redis-{}-{count}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory).expect("a directory for a server");
    directory
}

/// In a server's directory, since a path of a socket has 107 bytes at most.
const SOCKET: &str = "s";

/// A server that has said nothing for as long does not work.
const START_TIME_MAX: Duration = Duration::from_secs(20);
