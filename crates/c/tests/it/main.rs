//! The C and C++ programs, built by the system's compilers, against each other and against Rust.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tailcut::sealed::{Cipher, Keys, Role};
use tailcut::{CallOptions, Client, ClientBuilder, Error, Failure, Server};
use tailcut_net::keys::file;

/// Programs that this process has built.
static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A program of this crate, built against the shared library.
fn build(compiler: &str, source: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = format!("{compiler}-{source}").replace(['.', '+'], "-");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Once: nobody runs what is being written.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.contains(&program) {
        return program;
    }
    let library = library();
    let standard = if compiler == "c++" { "-std=c++17" } else { "-std=c11" };
    let output = Command::new(compiler)
        .args([standard, "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("include"))
        .arg(root.join("programs").join(source))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .arg("-ltailcut_c")
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    built.push(program.clone());
    program
}

/// Where the library is: beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    test.parent().expect("a directory").to_owned()
}

/// A compiler is missing: a loud line, and true.
fn lacks(compiler: &str) -> bool {
    let is_there = Command::new(compiler).arg("--version").output().is_ok();
    if !is_there {
        println!("SKIPPED: no {compiler} on this machine");
    }
    !is_there
}

/// The C server, which prints its port, and ends with its test.
struct Serving {
    process: Child,
    address: String,
    _output: BufReader<ChildStdout>,
}

impl Serving {
    fn start() -> Self {
        Self::start_with(&[])
    }

    /// With these variables in the environment.
    fn start_with(variables: &[(&str, &Path)]) -> Self {
        let mut process = Command::new(build("cc", "server.c"))
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server runs");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut port = String::new();
        output.read_line(&mut port).expect("a port");
        Self { process, address: format!("127.0.0.1:{}", port.trim()), _output: output }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        self.process.wait().expect("it has ended");
    }
}

fn client(address: &str) -> Client {
    ClientBuilder::new().timeout(PATIENCE).connect(address).expect("a client")
}

/// What a program prints.
fn run(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_server_in_c_answers_a_client_in_rust() {
    if lacks("cc") {
        return;
    }
    let mut server = Serving::start();
    let client = client(&server.address);
    assert_eq!(&client.call(b"hello").expect("a reply")[..], b"HELLO");
    let error = client.call(b"").expect_err("nothing to answer");
    let Error::Rejected { code, text, .. } = error else { panic!("{error}") };
    assert_eq!((code, text.as_str()), (42, "from 1 to 2048 bytes, please"));
    assert_eq!(&client.call(b"may-again").expect("a reply")[..], b"no");
    let options = CallOptions { idempotent: true, ..CallOptions::default() };
    let again = client.call_with(b"may-again", options, PATIENCE).expect("a reply");
    assert_eq!(&again[..], b"yes");
    drop(again);
    // Kept, and answered once another request has come.
    let later = client.start(b"later").expect("a call");
    assert_eq!(&client.call(b"next").expect("a reply")[..], b"NEXT");
    assert_eq!(&later.wait().expect("a reply")[..], b"now");
    assert_eq!(&client.call(b"stop").expect("a reply")[..], b"STOP");
    drop(client);
    assert!(server.process.wait().expect("it ends").success());
}

#[test]
fn a_client_in_c_calls_a_server_in_c() {
    if lacks("cc") {
        return;
    }
    let server = Serving::start();
    let said = run(&build("cc", "client.c"), &[&server.address, "one", "", "two"]);
    let empty = "code 7, number 42: the call to";
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 6, "{said}");
    for half in [&lines[..3], &lines[3..]] {
        assert_eq!((half[0], half[2]), ("one -> ONE", "two -> TWO"));
        assert!(half[1].contains(empty), "{said}");
    }
}

#[test]
fn a_client_in_cpp_calls_a_server_in_rust() {
    if lacks("c++") {
        return;
    }
    let program = build("c++", "client.cpp");
    let mut server = Server::bind("127.0.0.1:0").expect("a server");
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            server.run(|request| {
                // A client that has gone needs no answer.
                let _ = request.reply_in_place(|bytes| bytes.reverse());
            })
        });
        let said = Command::new(program).args([&address.to_string(), "drawer"]).output();
        stop.stop();
        thread.join().expect("the server does not panic").expect("a socket");
        assert_eq!(said.expect("the program runs").stdout, b"drawer -> reward\n");
    });
}

#[test]
fn an_error_is_told_in_words() {
    if lacks("cc") {
        return;
    }
    let client = build("cc", "client.c");
    let output = Command::new(client).arg("nowhere").output().expect("the program runs");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nowhere"), "{said}");
}

/// The file that `scripts/c-install` installs, for a prefix that need not exist.
#[test]
fn pkg_config_tells_how_to_link() {
    if lacks("pkg-config") {
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pkgconfig");
    std::fs::create_dir_all(&directory).expect("a directory for tests");
    let template = include_str!("../../tailcut.pc.in");
    let text = template
        .replace("@PREFIX@", "/opt/tailcut")
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    std::fs::write(directory.join("tailcut.pc"), text).expect("a file for tests");
    let ask = |what: &[&str]| {
        let output = Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", &directory)
            .args(what)
            .arg("tailcut")
            .output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    assert_eq!(ask(&["--cflags"]), "-I/opt/tailcut/include");
    assert_eq!(ask(&["--libs"]), "-L/opt/tailcut/lib -ltailcut_c");
    assert_eq!(ask(&["--modversion"]), env!("CARGO_PKG_VERSION"));
}

/// Longer than a busy machine pauses.
const PATIENCE: Duration = Duration::from_secs(30);

/// Files of keys and of a policy, which go when this is dropped.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let name = format!("sealed-{name}-{}", std::process::id());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&directory).expect("a directory");
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A group's keys as a role has them.
    fn keys(&self, name: &str, group: &Keys, role: Role) -> PathBuf {
        let keys = group.for_role(role).expect("a server's keys");
        file::create(&self.path(name), &keys).expect("a file");
        self.path(name)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left is below the target directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn group() -> Keys {
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    let from_ms = now.as_millis() as u64 - 60_000;
    let epochs = vec![file::new_key(1, from_ms).expect("random numbers")];
    Keys {
        role: Role::Server,
        group: "test".into(),
        cipher: Cipher::Aes128Gcm,
        reset: None,
        epochs,
    }
}

#[test]
fn sealed_ends_in_c_know_who_calls_and_who_may() {
    if lacks("cc") {
        return;
    }
    let (files, group) = (Files::new("ends"), group());
    let servers = files.keys("servers", &group, Role::Server);
    let clients =
        [3, 4].map(|number| files.keys(&number.to_string(), &group, Role::Client(number)));
    let access = files.path("access");
    std::fs::write(&access, "tailcut-access 1\nallow 3 *\n").expect("a file");
    let server = Serving::start_with(&[("SEAL", &servers), ("ACCESS", &access)]);
    let called = |keys: &Path| {
        let mut command = Command::new(build("cc", "client.c"));
        let output = command.args([&server.address, "who"]).env("SEAL", keys).output();
        String::from_utf8(output.expect("the client runs").stdout).expect("text")
    };
    assert_eq!(called(&clients[0]).lines().next(), Some("who -> 3"));
    let denied = called(&clients[1]);
    let text = "client 4 may not call by bytes that name no method";
    assert!(denied.starts_with("who: code 7, number 7: ") && denied.contains(text), "{denied}");
    let hasty = ClientBuilder::new().timeout(Duration::from_millis(100));
    let open = hasty.connect(&*server.address).expect("a client");
    let error = open.call(b"who").map(drop).expect_err("it has no keys");
    let Error::Failed { source: Failure::Deadline | Failure::Unreachable, .. } = error else {
        panic!("{error}")
    };
}

#[test]
fn files_that_hold_no_keys_are_told_in_c() {
    if lacks("cc") {
        return;
    }
    let (files, group) = (Files::new("wrong"), group());
    let servers = files.keys("servers", &group, Role::Server);
    let access = files.path("access");
    std::fs::write(&access, "tailcut-access 1\nallow everybody *\n").expect("a file");
    let check = |program: &str, variables: &[(&str, &Path)], text: &str| {
        let mut command = Command::new(build("cc", program));
        let output = command.arg("127.0.0.1:9").envs(variables.iter().copied()).output();
        let output = output.expect("the program runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(text), "{stderr}");
    };
    check("client.c", &[("SEAL", &servers)], "these are a server's keys");
    check("client.c", &[("SEAL", &files.path("missing"))], "cannot read the keys from");
    check("server.c", &[("SEAL", &access)], "others may read the keys in");
    check("server.c", &[("ACCESS", &servers)], "line 1 of the policy");
    let secured = [("SEAL", &*servers), ("ACCESS", &*access)];
    check("server.c", &secured, "line 2 of the policy: `everybody` names no client");
}
