//! A URL says where, over what and what to ask.

use serde_json::Value;

use crate::harness::{run, serve, tailcut};
use crate::servers::{memcached, nginx, redis, say};
use crate::wrong_uses;

const SHORT: [&str; 6] = ["--duration", "300ms", "--warmup", "100ms", "--timeout", "30s"];

/// Measures a URL shortly; the result, and all that was printed on standard error.
pub(crate) fn measure(url: &str, more: &[&str]) -> (Value, String) {
    let args = [&["measure", url, "--json", "-"], &SHORT[..], more].concat();
    let output = run(&args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    (serde_json::from_slice(&output.stdout).expect("it is JSON"), stderr)
}

/// All requests are answered, none with an error, and the settings say over what.
pub(crate) fn check(url: &str, more: &[&str], transport: &str) -> Value {
    let (result, stderr) = measure(url, &[&["--rate", "300"], more].concat());
    let counts = &result["counts"];
    assert!(counts["sent"].as_u64() > Some(0), "{url}: {result:#}");
    assert_eq!(counts["replied"], counts["sent"], "{url}: {result:#}");
    assert_eq!(
        counts["errors"].as_object().map(serde_json::Map::len),
        Some(0),
        "{url}: {result:#}"
    );
    assert_eq!(result["config"]["transport"], transport, "{url}");
    let first = stderr.lines().next().unwrap_or_default();
    assert!(first.ends_with(&format!(" over {transport}")), "{url}: {stderr}");
    result
}

#[test]
fn redis_is_measured_by_its_url() {
    let Some(server) = redis(&[]) else { return };
    let url = format!("redis://{}", server.address);
    let result = check(&url, &["--preload"], "tcp");
    assert_eq!(result["counts"]["misses"], 0, "{result:#}");
    assert_eq!(result["config"]["app"], "redis");
    check(&url, &["--app", "redis:command=PING"], "tcp");
}

#[test]
fn the_transport_follows_from_the_application() {
    let Some(server) = redis(&[]) else { return };
    let target = server.address.to_string();
    let load = ["--app", "redis", "--preload", "--rate", "300", "--json", "-"];
    let output = run(&[&["measure", "--target", &target], &load[..], &SHORT[..]].concat());
    let result: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(result["counts"]["replied"], result["counts"]["sent"], "{result:#}");
    assert_eq!(result["config"]["transport"], "tcp");
}

#[test]
fn a_password_logs_in_and_is_nowhere_again() {
    let Some(server) = redis(&["--requirepass", "hidden%word"]) else { return };
    assert!(say(&server, "PING\r\n").starts_with("-NOAUTH"));
    for user in ["", "default"] {
        let url = format!("redis://{user}:hidden%25word@{}/0", server.address);
        let (result, stderr) = measure(&url, &["--preload", "--rate", "300"]);
        assert_eq!(result["counts"]["errors"], serde_json::json!({}), "{result:#}");
        assert!(result["counts"]["replied"].as_u64() > Some(0), "{result:#}");
        assert!(!format!("{result}{stderr}").contains("hidden"), "{result:#} {stderr}");
        let command = result["environment"]["command"].as_str().expect("a command");
        assert!(command.contains("redis://***@127.0.0.1"), "{command}");
    }
}

/// Measures shortly with a password in the environment; the result, and standard error.
fn measure_with(password: &str, args: &[&str]) -> (Value, String) {
    let mut command = tailcut();
    command.env("TAILCUT_PASSWORD", password).arg("measure");
    let args = [args, &["--rate", "300", "--json", "-"], &SHORT[..]].concat();
    let output = command.args(args).output().expect("the binary starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    (serde_json::from_slice(&output.stdout).expect("it is JSON"), stderr)
}

#[test]
fn a_password_is_not_on_the_command_line() {
    let Some(server) = redis(&["--requirepass", "hidden word"]) else { return };
    let file = server.directory.join("password");
    std::fs::write(&file, "hidden word\n").expect("a file");
    let (url, file) = (format!("redis://{}", server.address), file.display().to_string());
    let from_file = measure(&url, &["--preload", "--rate", "300", "--password-file", &file]);
    let target = server.address.to_string();
    let args = ["--target", &target, "--app", "redis:resp=3", "--user", "default"];
    for (result, stderr) in [from_file, measure_with("hidden word", &args)] {
        assert_eq!(result["counts"]["errors"], serde_json::json!({}), "{result:#}");
        assert!(result["counts"]["replied"].as_u64() > Some(0), "{result:#}");
        assert!(!format!("{result}{stderr}").contains("hidden"), "{result:#} {stderr}");
    }
}

#[test]
fn unix_sockets_are_measured() {
    let Some(server) = redis(&["--unixsocket", "redis.sock"]) else { return };
    let path = server.directory.join("redis.sock");
    for url in [format!("redis+unix://{}", path.display()), format!("unix:{}", path.display())] {
        let (result, stderr) = measure(&url, &["--app", "redis", "--preload", "--rate", "300"]);
        let counts = &result["counts"];
        assert!(counts["sent"].as_u64() > Some(0), "{result:#}");
        assert_eq!(counts["replied"], counts["sent"], "{result:#}");
        assert_eq!(counts["misses"], 0, "{result:#}");
        let first = stderr.lines().next().unwrap_or_default();
        assert!(first.ends_with(" over a Unix socket"), "{stderr}");
    }
    let url = format!("http+unix://{}", path.display());
    wrong_uses::check(&[&url], &["redis.sock speaks Redis", "asked for http"]);
    drop(server);
    let url = format!("redis+unix://{}", path.display());
    wrong_uses::check(&[&url], &["nobody listens there: unix:/"]);
}

#[test]
fn commands_come_from_a_file_by_their_weights() {
    let Some(server) = redis(&[]) else { return };
    let script = server.directory.join("commands.txt");
    std::fs::write(&script, "# a mix\n3 HSET {key} f {value}\n1 INCR counter\n").expect("a file");
    let app = format!("redis:@{},keys=10", script.display());
    let result = check(&format!("redis://{}", server.address), &["--app", &app], "tcp");
    let sent = result["counts"]["sent"].as_u64().expect("a count");
    let counted = say(&server, "GET counter\r\n");
    let counted: u64 = counted.lines().nth(1).and_then(|line| line.parse().ok()).expect("a number");
    assert!(counted > 0 && counted < sent, "{counted} of {sent}");
    assert!(say(&server, "DBSIZE\r\n").starts_with(":11\r\n"));
}

#[test]
fn an_experiment_of_a_url_has_the_usual_keys() {
    let path = std::env::temp_dir().join(format!("tailcut-{}-url.toml", std::process::id()));
    let file = path.to_str().expect("a path");
    let args = ["measure", "rediss://me:hidden@h:7000", "--rate", "5", "--insecure", "--check"];
    let output = run(&[&args[..], &["--save-experiment", file]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let saved = std::fs::read_to_string(&path).expect("a file");
    std::fs::remove_file(&path).expect("it is there");
    let saved: toml::Table = saved.parse().expect("it is TOML");
    assert_eq!(saved["target"], toml::Value::from(vec!["h:7000"]));
    assert_eq!(saved["transport"].as_str(), Some("tls"));
    assert_eq!(saved["app"].as_str(), Some("redis"));
    assert!(!saved.to_string().contains("hidden"), "{saved}");
}

#[test]
fn memcached_is_measured_by_its_url() {
    let Some(server) = memcached() else { return };
    let url = format!("memcached://{}", server.address);
    check(&url, &["--preload"], "tcp");
    check(&url, &["--preload", "--app", "memcached-binary"], "tcp");
    check(&url, &["--preload", "--app", "memcached-binary", "--transport", "udp"], "udp");
}

#[test]
fn http_is_measured_by_its_url() {
    let Some(server) = nginx(false) else { return };
    check(&format!("http://{}", server.address), &[], "tcp");
    check(&format!("http://{}/a,b", server.address), &[], "tcp");
    check(&format!("http://{}/?q=1", server.address), &[], "tcp");
}

#[test]
fn https_is_measured_by_its_url() {
    let Some(server) = nginx(true) else { return };
    let port = server.address.port();
    check(&format!("https://localhost:{port}/"), &["--insecure"], "tls");
    check(&format!("https://{}/", server.address), &["--insecure"], "tls");
}

/// The host trusts what `SSL_CERT_FILE` names, as with other programs.
#[test]
fn https_is_verified_by_what_the_host_trusts() {
    let Some(server) = nginx(true) else { return };
    let port = server.address.port();
    let certificate = server.directory.join("cert.pem");
    for host in ["localhost", "127.0.0.1"] {
        for target in [vec![format!("https://{host}:{port}")], by_flags(&format!("{host}:{port}"))]
        {
            let mut command = tailcut();
            command.env("SSL_CERT_FILE", &certificate).env_remove("SSL_CERT_DIR").arg("measure");
            let output =
                command.args(&target).args(["--rate", "200", "--json", "-"]).args(SHORT).output();
            let output = output.expect("the binary starts");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(0 | 3)), "{target:?}: {stderr}");
            let result: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
            assert_eq!(result["counts"]["replied"], result["counts"]["sent"], "{result:#}");
        }
    }
}

fn by_flags(target: &str) -> Vec<String> {
    ["--target", target, "--transport", "tls", "--app", "http:/"].map(str::to_owned).to_vec()
}

#[test]
fn our_own_transports_are_measured_by_their_urls() {
    let server = serve("echo", &[]);
    check(&format!("r2p2://{}", server.address()), &["--app", "echo:64"], "r2p2");
    for transport in ["homa", "tcp", "udp"] {
        let server = serve("echo", &["--transport", transport]);
        let url = format!("{transport}://{}", server.address());
        check(&url, &["--app", "echo:64"], transport);
    }
}

#[test]
fn what_contradicts_a_url_is_said() {
    for (args, part) in [
        (&["redis://h", "--target", "h:1"][..], "leave one of them out"),
        (&["redis://h", "--app", "http:/"], "--app for http"),
        (&["rediss://h", "--transport", "tcp"], "--transport says tcp"),
        (&["rediss+unix:///run/redis.sock"], "without TLS"),
        (&["unix:/run/x", "--app", "echo:4", "--transport", "udp"], "says udp"),
        (&["unix:/run/x", "--app", "echo:4", "--agent", "tcp:h:1"], "from its own host"),
        (&["http://h", "--user", "me"], "redis and postgres alone"),
        (&["r2p2://127.0.0.1:1"], "say what to ask"),
    ] {
        let output = run(&[&["measure", "--rate", "1"], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.lines().next().is_some_and(|line| line.contains(part)), "{stderr}");
    }
}
