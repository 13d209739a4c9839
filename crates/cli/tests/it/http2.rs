//! HTTP/2 and gRPC, asked of servers of others.

use std::fs;
use std::path::Path;

use crate::servers::{Server, nghttpd, nginx, nginx_2, redis};
use crate::urls::{self, measure};
use crate::wrong_uses;

#[test]
fn http_2_is_measured_in_clear() {
    let Some(server) = nginx_2(false) else { return };
    let at = server.address;
    let result = urls::check(&format!("h2://{at}"), &[], "tcp");
    assert_eq!(result["config"]["app"], "http2:/");
    urls::check(&format!("http://{at}"), &["--app", "http2:/large"], "tcp");
    // More at a time than the server takes on a connection: 128.
    urls::check(&format!("h2://{at}/a,b"), &["--pipeline", "1000"], "tcp");
}

#[test]
fn http_2_is_measured_over_tls() {
    let Some(server) = nginx_2(true) else { return };
    let url = format!("h2s://localhost:{}/", server.address.port());
    urls::check(&url, &["--insecure"], "tls");
    let url = format!("https://{}", server.address);
    urls::check(&url, &["--insecure", "--app", "http2:/large"], "tls");
}

/// A body is longer than the windows that a connection begins with: it waits for them.
#[test]
fn a_body_is_sent_as_windows_open() {
    let page = |directory: &Path| {
        fs::write(directory.join("page"), "hello").expect("a file");
        fs::write(directory.join("body"), "x".repeat(100_000)).expect("a file");
        vec![]
    };
    let Some(server) = nghttpd(page) else { return };
    let body = server.directory.join("body");
    let app = format!("http2:POST:/page,body=@{}", body.display());
    urls::check(&format!("h2://{}", server.address), &["--app", &app], "tcp");
}

#[test]
fn statuses_are_counted_by_kind() {
    let Some(server) = nginx_2(false) else { return };
    let url = format!("h2://{}/failing", server.address);
    let (result, _) = measure(&url, &["--rate", "300"]);
    let errors = &result["counts"]["error_codes"]["500 Internal Server Error"];
    assert_eq!(errors, &result["counts"]["sent"], "{result:#}");
}

/// Its trailers are a page's, as those of an answer of gRPC are.
fn grpc(status: &str) -> Option<Server> {
    nghttpd(|directory| {
        fs::create_dir_all(directory.join("echo.Echo")).expect("a directory");
        fs::write(directory.join("echo.Echo/Say"), b"\0\0\0\0\x02\x0a\0").expect("a file");
        let messages = b"\0\0\0\0\x02\x0a\0".repeat(1_000);
        fs::write(directory.join("echo.Echo/Chat"), messages).expect("a file");
        ["--trailer", &format!("grpc-status: {status}")].map(str::to_owned).to_vec()
    })
}

#[test]
fn grpc_is_measured() {
    let Some(server) = grpc("0") else { return };
    let message = server.directory.join("message");
    fs::write(&message, [0x0a, 0x02, 0xff, 0xfe]).expect("a file");
    urls::check(&format!("grpc://{}/echo.Echo/Say", server.address), &[], "tcp");
    let app = format!("grpc:echo.Echo/Say,message=@{}", message.display());
    urls::check(&format!("grpc://{}", server.address), &["--app", &app], "tcp");
    // Ten thousand messages there, beyond what a stream may send at first, and a thousand back.
    let app = format!("grpc:echo.Echo/Chat,message=@{},count=10000", message.display());
    urls::check(&format!("grpc://{}", server.address), &["--app", &app], "tcp");
}

#[test]
fn a_status_of_grpc_is_an_error_of_its_name() {
    let Some(server) = grpc("8") else { return };
    let url = format!("grpc://{}/echo.Echo/Say", server.address);
    let (result, _) = measure(&url, &["--rate", "300"]);
    let errors = &result["counts"]["error_codes"]["8 RESOURCE_EXHAUSTED"];
    assert_eq!(errors, &result["counts"]["sent"], "{result:#}");
    drop(server);
    let Some(server) = grpc("12") else { return };
    let url = format!("grpc://{}/echo.Echo/Say", server.address);
    wrong_uses::check(&[&url], &["answers grpc with an error: 12 UNIMPLEMENTED"]);
}

#[test]
fn what_does_not_speak_http_2_is_told() {
    if let Some(server) = nginx(false) {
        let at = server.address;
        wrong_uses::check(&[&format!("h2://{at}")], &["speaks HTTP", "asked for http2"]);
        let url = format!("grpc://{at}/a.B/C");
        wrong_uses::check(&[&url], &["speaks HTTP", "asked for grpc"]);
    }
    if let Some(server) = nginx(true) {
        let at = server.address;
        let args = [&format!("h2s://{at}"), "--insecure"];
        wrong_uses::check(&args, &[&at.to_string(), "http2"]);
        wrong_uses::check(&[&format!("h2://{at}")], &["speaks TLS", "without it"]);
    }
    if let Some(server) = redis(&[]) {
        let url = format!("h2://{}", server.address);
        wrong_uses::check(&[&url], &["speaks Redis", "asked for http2"]);
    }
}

#[test]
fn what_is_not_asked_for_in_http_2_is_told() {
    let Some(server) = nginx_2(false) else { return };
    let at = server.address;
    wrong_uses::check(&[&format!("http://{at}")], &["speaks HTTP/2", "asked for http"]);
    wrong_uses::check(&[&format!("redis://{at}")], &["speaks HTTP/2", "asked for redis"]);
    let url = format!("grpc://{at}/a.B/C");
    wrong_uses::check(&[&url], &["speaks HTTP/2 without gRPC", "404 Not Found"]);
    let url = format!("h2://{at}/nope");
    wrong_uses::check(&[&url], &["answers http2 with an error: 404 Not Found"]);
}
