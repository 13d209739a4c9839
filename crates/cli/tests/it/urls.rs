//! A URL says where, over what and what to ask.

use serde_json::Value;

use crate::harness::{run, serve, tailcut};
use crate::servers::{memcached, nginx, redis, say};

const SHORT: [&str; 6] = ["--duration", "300ms", "--warmup", "100ms", "--timeout", "30s"];

/// Measures a URL shortly; the result, and all that was printed on standard error.
fn measure(url: &str, more: &[&str]) -> (Value, String) {
    let args = [&["measure", url, "--json", "-"], &SHORT[..], more].concat();
    let output = run(&args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    (serde_json::from_slice(&output.stdout).expect("it is JSON"), stderr)
}

/// All requests are answered, none with an error, and the settings say over what.
fn check(url: &str, more: &[&str], transport: &str) -> Value {
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
        (&["redis+unix:///run/redis.sock"], "Unix sockets are not spoken"),
        (&["r2p2://127.0.0.1:1"], "say what to ask"),
    ] {
        let output = run(&[&["measure", "--rate", "1"], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.lines().next().is_some_and(|line| line.contains(part)), "{stderr}");
    }
}
