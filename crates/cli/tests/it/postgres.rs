//! PostgreSQL, asked of a server that the test starts.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::free_port;
use crate::servers::{Server, certificate, redis};
use crate::urls::{self, measure};
use crate::wrong_uses;

/// A server with the users `trusted`, `md5`, `scram` and `sealed`, who has to come over TLS, and a
/// table `kv` in the database `shop`. It listens at its port and at a socket in its directory.
fn postgres() -> Option<Server> {
    let Some(programs) = programs() else {
        println!("SKIPPED: postgres is missing (Debian: postgresql)");
        return None;
    };
    // It refuses to run as root.
    let server = programs.join("postgres").to_string_lossy().into_owned();
    let program = if is_root() { "setpriv".to_owned() } else { server.clone() };
    let own = ["--reuid=65534", "--regid=65534", "--clear-groups", &server].map(str::to_owned);
    let server = Server::start(&program, "util-linux", |port, directory| {
        let data = prepare(&programs, directory);
        let place = directory.to_string_lossy().into_owned();
        let settings = [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".to_owned(),
            "fsync=off".to_owned(),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={place}/cert.pem"),
            format!("ssl_key_file={place}/key.pem"),
            // What it logs is in the way of what the tests say.
            "log_min_messages=panic".to_owned(),
        ];
        let settings = settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]);
        let before = own.iter().filter(|_| is_root()).cloned();
        before.chain(["-D".to_owned(), data, "-k".to_owned(), place]).chain(settings).collect()
    });
    server.inspect(|server| wait_until_ready(server.address))
}

/// It listens before it lets anybody in.
fn wait_until_ready(address: SocketAddr) {
    let startup = b"\0\0\0\x16\0\x03\0\0user\0trusted\0\0";
    let answered = (0..10_000).find_map(|_| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        stream.write_all(startup).ok()?;
        let mut first = [0];
        stream.read_exact(&mut first).ok()?;
        // An authentication, and not an error.
        (first == *b"R").then_some(())
    });
    assert!(answered.is_some(), "PostgreSQL at {address} lets nobody in");
}

/// Makes its files, and gives their directory.
fn prepare(programs: &Path, directory: &Path) -> String {
    let data = directory.join("data").to_string_lossy().into_owned();
    certificate(directory);
    // It takes no key that others may read.
    let key = directory.join("key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is ours");
    if is_root() {
        for path in [directory, &key] {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
    }
    let run = |program: &str, args: &[&str], said: &str| {
        let mut command = Command::new(programs.join(program));
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.args(args).current_dir(directory).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect(program);
        child.stdin.take().expect("a pipe").write_all(said.as_bytes()).expect("it reads");
        assert!(child.wait().expect("it ends").success(), "{program} {args:?}");
    };
    run("initdb", &["-D", &data, "-U", "postgres", "-A", "trust", "--no-sync"], "");
    let users = "CREATE ROLE trusted LOGIN SUPERUSER;\nSET password_encryption = 'md5';\n\
        CREATE ROLE md5 LOGIN SUPERUSER PASSWORD 'hidden5';\n\
        SET password_encryption = 'scram-sha-256';\n\
        CREATE ROLE scram LOGIN SUPERUSER PASSWORD 'hidden,word';\n\
        CREATE ROLE sealed LOGIN SUPERUSER PASSWORD 'hidden,word';\nCREATE DATABASE shop;\n";
    run("postgres", &["--single", "-D", &data, "-c", "fsync=off", "postgres"], users);
    let table = "CREATE TABLE kv AS SELECT i AS k, 'v' || i AS v FROM generate_series(0, 99) i;\n";
    run("postgres", &["--single", "-D", &data, "-c", "fsync=off", "shop"], table);
    let rules = "host all trusted 127.0.0.1/32 trust\nhost all md5 127.0.0.1/32 md5\n\
        host all scram 127.0.0.1/32 scram-sha-256\n\
        hostssl all sealed 127.0.0.1/32 scram-sha-256\nlocal all all trust\n";
    fs::write(Path::new(&data).join("pg_hba.conf"), rules).expect("a file");
    data
}

fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.find(|programs| programs.join("postgres").exists())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user and the group of that name in Debian.
const NOBODY: u32 = 65_534;

/// One server for all: to make its files takes seconds.
#[test]
fn a_statement_is_measured_and_what_is_wrong_is_told() {
    let Some(server) = postgres() else { return };
    let at = server.address;
    urls::check(&format!("postgres://trusted@{at}/shop"), &[], "tcp");
    urls::check(&format!("postgres://md5:hidden5@{at}/shop"), &[], "tcp");
    let url = format!("postgres://scram:hidden%2Cword@{at}/shop");
    let query = "postgres:query=\"SELECT k, v FROM kv WHERE k = $1\",param={index},keys=100";
    let result = urls::check(&url, &["--app", query, "--connections", "4"], "tcp");
    assert!(!result.to_string().contains("hidden"), "{result:#}");
    urls::check(&url, &["--app", query, "--pipeline", "16"], "tcp");
    // An error of some requests: their kind is counted, and others go on.
    let divides = "postgres:query=SELECT 1 / $1::int,param={index},keys=2";
    let (result, _) = measure(&url, &["--app", divides, "--rate", "300", "--no-probe"]);
    let counts = &result["counts"];
    let errors = counts["error_codes"]["22012"].as_u64().expect("divisions by zero");
    let replied = counts["replied"].as_u64().expect("a count");
    assert!(errors > 0 && errors < replied && counts["sent"] == replied, "{result:#}");

    let socket = server.directory.join(format!(".s.PGSQL.{}", at.port()));
    let over_unix = format!("postgres+unix://trusted@{}", socket.display());
    let app = ["--app", "postgres:database=shop,query=SELECT 1", "--rate", "300"];
    let (result, _) = measure(&over_unix, &app);
    assert_eq!(result["counts"]["replied"], result["counts"]["sent"], "{result:#}");
    assert!(result["counts"]["sent"].as_u64() > Some(0), "{result:#}");

    let place = at.port();
    let sealed = format!("postgres://sealed:hidden%2Cword@localhost:{place}/shop");
    let over_tls = format!("{sealed}?sslmode=require");
    let trusted = server.directory.join("cert.pem").to_string_lossy().into_owned();
    urls::check(&over_tls, &["--app", query, "--ca", &trusted], "tls");

    let told = |url: &str, more: &[&str], parts: &[&str]| {
        wrong_uses::check(&[&[url][..], more].concat(), parts);
    };
    let wrong = format!("postgres://scram:guess@{at}/shop");
    told(&wrong, &[], &["refuses the login", "password authentication failed", "28P01"]);
    told(&format!("postgres://scram@{at}/shop"), &[], &["refuses the login", "for a password"]);
    let nowhere = format!("postgres://trusted@{at}/nowhere");
    told(&nowhere, &[], &["refuses the login", "\"nowhere\" does not exist"]);
    let syntax = ["--app", "postgres:query=SELEC 1"];
    told(&url, &syntax, &["refuses the statement", "syntax error", "42601"]);
    told(&format!("redis://{at}"), &[], &["speaks PostgreSQL", "asked for redis"]);
    told(&sealed, &[], &["refuses the login", "no encryption"]);
    told(&over_tls, &[], &["the certificate of", "nobody that is trusted has signed it"]);
    told(&format!("http://{at}"), &[], &["speaks PostgreSQL", "asked for http"]);
}

/// Answers as a server does where it is asked for TLS, and not at all otherwise or after it. It
/// ends with its thread's process.
fn answering(answer: u8) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let answered = move |mut stream: TcpStream| {
        let mut question = [0; 8];
        if stream.read_exact(&mut question).is_ok() && question == *b"\0\0\0\x08\x04\xd2\x16\x2f" {
            let _ = stream.write_all(&[answer]);
            // Whoever asked ends the connection.
            while stream.read(&mut question).is_ok_and(|len| len > 0) {}
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            std::thread::spawn(move || answered(stream));
        }
    });
    address
}

#[test]
fn a_server_without_tls_is_told() {
    let url = format!("postgres://{}?sslmode=require", answering(b'N'));
    wrong_uses::check(&[&url, "--insecure"], &["speaks PostgreSQL without TLS", "asked over TLS"]);
}

#[test]
fn a_server_that_is_slow_to_shake_hands_is_not_one_without_tls() {
    let url = format!("postgres://{}?sslmode=require", answering(b'S'));
    let says = ["lets no connection be opened", "nothing came back"];
    wrong_uses::check(&[&url, "--insecure"], &says);
}

#[test]
fn what_is_no_postgresql_is_told() {
    let url = format!("postgres://{}", free_port());
    wrong_uses::check(&[&url], &["nobody listens there"]);
    if let Some(server) = redis(&[]) {
        let url = format!("postgres://{}", server.address);
        wrong_uses::check(&[&url], &["speaks Redis", "asked for postgres"]);
        let url = format!("{url}?sslmode=require");
        wrong_uses::check(&[&url, "--insecure"], &["speaks Redis", "asked for postgres"]);
    }
}
