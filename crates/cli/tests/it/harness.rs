//! Runs the real binary: servers and routers that are waited for by what they print, and commands
//! that end.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use serde_json::Value;

use crate::port;

/// A `serve` or `route` that runs until it is dropped.
pub(crate) struct Service {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Text that was read from standard error to find a line.
    told: String,
    stderr: BufReader<ChildStderr>,
    /// Addresses that it listens at, in the order of its ports.
    pub(crate) addresses: Vec<String>,
}

impl Service {
    /// Starts `tailcut` and waits until it listens at `ports` ports.
    pub(crate) fn start(args: &[&str], ports: usize) -> Self {
        Self::start_command(tailcut().args(args), ports)
    }

    /// Starts a command that ends in `tailcut`, as [`Service::start`].
    pub(crate) fn start_command(command: &mut Command, ports: usize) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let addresses = (0..ports).map(|_| listening(&mut child, &mut stdout)).collect();
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        Self { child, stdout, told: String::new(), stderr, addresses }
    }

    /// The address of the first port.
    pub(crate) fn address(&self) -> &str {
        &self.addresses[0]
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its admin port, whose line follows those of its ports.
    pub(crate) fn admin(&mut self) -> Admin {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it is text");
        Admin(line.trim_end().strip_prefix("admin ").expect("an admin port").to_owned())
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(name, &self.child);
    }

    /// Waits until it writes a line on standard error that has this text, and gives that.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let len = self.stderr.read_line(&mut line).expect("it is text");
            assert!(len > 0, "it has ended without {text:?}: {}", self.told);
            self.told += &line;
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for the end; gives the exit code, and what was left on standard output and error.
    pub(crate) fn wait(mut self) -> (Option<i32>, String, String) {
        let (mut stdout, mut stderr) = (String::new(), std::mem::take(&mut self.told));
        self.stdout.read_to_string(&mut stdout).expect("it is text");
        self.stderr.read_to_string(&mut stderr).expect("it is text");
        (self.child.wait().expect("it ends").code(), stdout, stderr)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An admin port.
pub(crate) struct Admin(pub(crate) String);

impl Admin {
    /// The status and the body at a path.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.0).expect("an admin port");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: tailcut\r\n\r\n").expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    /// The body at a path, if anybody answers well.
    pub(crate) fn try_get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(&self.0).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: tailcut\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        (head.split(' ').nth(1) == Some("200")).then(|| body.to_owned())
    }

    /// The value of a sample; 0 where there is none.
    pub(crate) fn value(&self, sample: &str) -> f64 {
        let (_, page) = self.get("/metrics");
        let mut lines = page.lines().filter_map(|line| line.rsplit_once(' '));
        let found = lines.find(|(name, _)| *name == sample);
        found.map_or(0.0, |(_, value)| value.parse().expect("a number"))
    }

    /// Asks until a sample has reached a value.
    pub(crate) fn wait_for(&self, sample: &str, least: f64) {
        let has_come = (0..10_000).any(|_| self.value(sample) >= least);
        assert!(has_come, "{sample} stays at {}", self.value(sample));
    }
}

/// A server of `app` with more arguments, on a free port of loopback.
pub(crate) fn serve(app: &str, more: &[&str]) -> Service {
    Service::start(&[&["serve", "--listen", "127.0.0.1:0", "--app", app], more].concat(), 1)
}

/// The binary, deaf to the environment's width.
pub(crate) fn tailcut() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailcut"));
    command.env_remove("COLUMNS").stdin(Stdio::null());
    command
}

/// Runs `tailcut` to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    tailcut().args(args).output().expect("the binary starts")
}

/// Runs `tailcut` to its success and gives its standard output.
pub(crate) fn succeed(args: &[&str]) -> String {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tailcut {}: {stderr}", args.join(" "));
    String::from_utf8(output.stdout).expect("it is text")
}

/// Starts a measurement whose JSON [`finish`] reads. Its requests wait long, for a busy machine may
/// stop any of the processes.
pub(crate) fn start_measure(target: &str, more: &[&str]) -> Child {
    let patience: &[&str] = if more.contains(&"--timeout") { &[] } else { &["--timeout", "30s"] };
    let args = [&["measure", "--target", target, "--json", "-"], patience, more].concat();
    tailcut()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

/// The result of a measurement.
pub(crate) fn finish(measure: Child) -> Value {
    let output = measure.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    // 3 says that the machine was too busy for a result to be relied on, which is not what is
    // tested.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    serde_json::from_slice(&output.stdout).expect("it prints JSON and nothing else")
}

/// Measures to the end.
pub(crate) fn measure(target: &str, more: &[&str]) -> Value {
    finish(start_measure(target, more))
}

/// Sends a process a signal by its name.
pub(crate) fn signal(name: &str, child: &Child) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(status.expect("kill").success());
}

/// Path of a file that a test lets be written.
pub(crate) fn samples_file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tailcut-{}-{name}.csv", std::process::id()))
}

/// Asserts that every request sent was answered, and that there were some.
pub(crate) fn assert_all_replied(result: &Value) {
    let counts = &result["counts"];
    assert!(counts["sent"].as_u64() > Some(0), "{result:#}");
    assert_eq!(counts["replied"], counts["sent"], "{result:#}");
    assert_eq!(result["client"]["mismatched"], 0, "{result:#}");
}

/// Asserts what a machine shows that runs the servers beside the load, in one of three tries: for
/// what a busy one may not show at every moment, and a broken program never shows.
pub(crate) fn in_one_of_three(mut attempt: impl FnMut() -> Result<(), String>) {
    let failures: Vec<String> = (0..3).map_while(|_| attempt().err()).collect();
    assert!(failures.len() < 3, "{}", failures.join("\n"));
}

fn listening(child: &mut Child, stdout: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    stdout.read_line(&mut line).expect("it is text");
    let Some(address) = line.trim_end().strip_prefix("listening ") else {
        let mut stderr = String::new();
        // Whatever it says is only shown.
        let _ = child
            .kill()
            .and_then(|()| child.stderr.take().expect("it is piped").read_to_string(&mut stderr));
        panic!("{line:?} instead of an address: {stderr}");
    };
    address.to_owned()
}

/// An address that is free now: the servers must know their router's before it exists.
pub(crate) fn free_port() -> String {
    format!("127.0.0.1:{}", port::free())
}

/// By trying: a router that must not, says so and ends.
pub(crate) fn can_open_raw_sockets() -> bool {
    let address = free_port();
    let output = run(&["route", "--listen", &address, "--forward", "keep", "--server", "[::1]:9"]);
    !String::from_utf8_lossy(&output.stderr).contains("CAP_NET_RAW")
}

/// Counters that a service tells of at its end, by their names.
pub(crate) fn counts<const N: usize>(service: Service, names: [&str; N]) -> [u64; N] {
    service.signal("INT");
    let (code, _, stderr) = service.wait();
    assert_eq!(code, Some(0), "{stderr}");
    names.map(|name| {
        let value =
            |line: &str| line.trim().strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        stderr.lines().find_map(value).unwrap_or(0)
    })
}

/// Files of one test, which go when it is dropped.
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("tailcut-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        Self(directory)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a text").to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("it is ours");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        path
    }

    /// An authority's certificate, and those that it has signed, by name.
    pub(crate) fn certify(&self, named: &[(&str, SanType)]) {
        let mut authority = CertificateParams::new(Vec::new()).expect("no name");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pair = KeyPair::generate().expect("a key");
        self.write("ca.pem", &authority.self_signed(&pair).expect("a certificate").pem());
        let issuer = Issuer::new(authority, pair);
        for (name, identity) in named {
            let mut params = CertificateParams::new(Vec::new()).expect("no name");
            params.subject_alt_names = vec![identity.clone()];
            let pair = KeyPair::generate().expect("a key");
            let signed = params.signed_by(&pair, &issuer).expect("a certificate");
            self.write(&format!("{name}.pem"), &signed.pem());
            self.write(&format!("{name}.key"), &pair.serialize_pem());
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left is in the directory of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A name in a certificate.
pub(crate) fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().expect("ASCII"))
}

/// Another one.
pub(crate) fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().expect("ASCII"))
}
