//! An API server of the test's own: lists and watch events in the form that Kubernetes has for
//! them, over TLS, to whoever has the token of a service account.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use super::{path, router, value, wait_for_servers, wait_until};
use crate::harness::{Service, serve};

/// The API server; it ends with the process.
struct Api {
    url: String,
    ca: PathBuf,
    /// The list as it is at this moment.
    list: Arc<Mutex<String>>,
    /// Lines of the watch that is under way; an empty one ends it.
    watch: Sender<String>,
    /// Targets of the requests.
    asked: Receiver<String>,
}

impl Api {
    fn start(name: &str, list: String) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a key");
        let ca = path(&format!("{name}.pem"));
        fs::write(&ca, made.cert.pem()).expect("a file");
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .expect("a certificate");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let list = Arc::new(Mutex::new(list));
        let (watch, lines) = mpsc::channel();
        let (ask, asked) = mpsc::channel();
        let (config, answers) = (Arc::new(config), list.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = ServerConnection::new(config.clone()).expect("a connection");
                // One that hangs up is its client's to see.
                let _ = converse(StreamOwned::new(connection, stream), &answers, &lines, &ask);
            }
        });
        Self { url, ca, list, watch, asked }
    }

    fn tell(&self, kind: &str, slice: &str) {
        let slice = slice.replace('\n', "");
        let line = format!("{{\"type\":\"{kind}\",\"object\":{slice}}}\n");
        self.watch.send(line).expect("it listens");
    }
}

/// Answers the requests of a connection, until it or the test ends it.
fn converse(
    stream: StreamOwned<ServerConnection, TcpStream>,
    list: &Mutex<String>,
    lines: &Receiver<String>,
    ask: &Sender<String>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while stream.read_line(&mut line)? > 0 && line != "\r\n" {
            head += &line;
            line.clear();
        }
        let Some(target) = head.split(' ').nth(1).map(str::to_owned) else { return Ok(()) };
        // A test that has ended hears nothing.
        let _ = ask.send(target.clone());
        let is_known = head.to_lowercase().contains("authorization: bearer a-token\r\n");
        let status = if is_known { "200 OK" } else { "401 Unauthorized" };
        let mut out = |text: &str| stream.get_mut().write_all(text.as_bytes());
        if is_known && target.contains("watch=true") {
            out(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            )?;
            for line in lines.iter().take_while(|line| !line.is_empty()) {
                out(&format!("{:x}\r\n{line}\r\n", line.len()))?;
            }
            out("0\r\n\r\n")?;
            continue;
        }
        let body =
            if is_known { list.lock().expect("a lock").clone() } else { UNAUTHORIZED.to_owned() };
        out(&format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))?;
    }
}

/// An endpoint of a slice.
fn endpoint(ip: &str, is_ready: bool, zone: &str) -> String {
    format!(
        r#"{{"addresses":["{ip}"],"conditions":{{"ready":{is_ready},"serving":true,"terminating":{}}},
        "nodeName":"node-1","targetRef":{{"kind":"Pod","namespace":"shop","name":"search-{ip}",
        "uid":"4c9f5f0e-6d6a-4b53-8d4f-0f6a5b1f2a11"}},"zone":"{zone}"}}"#,
        !is_ready
    )
}

/// A slice as `kubectl get endpointslices -o json` shows one.
fn slice(name: &str, port: u16, endpoints: &[String]) -> String {
    format!(
        r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4","metadata":{{
        "name":"{name}","generateName":"search-","namespace":"shop","resourceVersion":"48213","generation":4,
        "uid":"1f1c6f6e-0f0c-4b1e-9d6b-4a7a0b7b9d10","creationTimestamp":"2026-11-02T09:12:44Z",
        "labels":{{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io",
        "kubernetes.io/service-name":"search"}},"ownerReferences":[{{"apiVersion":"v1","kind":"Service",
        "name":"search","uid":"0f","controller":true,"blockOwnerDeletion":true}}]}},
        "endpoints":[{}],"ports":[{{"name":"metrics","port":9464,"protocol":"TCP"}},
        {{"name":"tailcut","port":{port},"protocol":"UDP"}}]}}"#,
        endpoints.join(",")
    )
}

fn listed(slices: &[String], version: u32) -> String {
    format!(
        r#"{{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1",
        "metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        slices.join(",")
    )
}

const UNAUTHORIZED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
    "message":"Unauthorized","reason":"Unauthorized","code":401}"#;

const GONE: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
    "message":"too old resource version: 1 (9)","reason":"Expired","code":410}"#;

fn port(server: &Service) -> u16 {
    server.address().rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port")
}

#[test]
fn endpoints_that_are_ready_are_servers_as_the_watch_tells() {
    let servers = [(); 3].map(|()| serve("synthetic", &[]));
    let [first, second, third] = servers.each_ref().map(Service::address);
    let of = |server: &Service, is_ready, zone| {
        slice(server.address(), port(server), &[endpoint("127.0.0.1", is_ready, zone)])
    };
    let begin =
        [of(&servers[0], true, "a"), of(&servers[1], true, "b"), of(&servers[2], false, "a")];
    let api = Api::start("kubernetes", listed(&begin, 100));
    let token = path("kubernetes.token");
    fs::write(&token, "wrong\n").expect("a file");
    let files = format!("token={}&ca={}", token.display(), api.ca.display());
    let source = format!("kubernetes:shop/search:tailcut?api={}&{files}", api.url);
    let (_router, admin) = router(&source, &["--zone", "a"]);
    wait_until("401", || value(&admin, "failures_total") >= 1.0);
    // Tokens are read again: they are others every hour.
    fs::write(&token, "a-token\n").expect("a file");
    wait_for_servers(&admin, &[first, second]);
    let near =
        |server: &str| admin.value(&format!("tailcut_route_server_near{{server=\"{server}\"}}"));
    assert_eq!((near(first), near(second)), (1.0, 0.0));
    api.tell("MODIFIED", &of(&servers[2], true, "a"));
    wait_for_servers(&admin, &[first, second, third]);
    api.tell("BOOKMARK", r#"{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"120","creationTimestamp":null},"addressType":"","endpoints":null,"ports":null}"#);
    api.tell("DELETED", &begin[0]);
    wait_for_servers(&admin, &[second, third]);
    // The version is too old: all is listed again.
    *api.list.lock().expect("a lock") = listed(&begin[..1], 200);
    api.tell("ERROR", GONE);
    api.watch.send(String::new()).expect("it listens");
    wait_for_servers(&admin, &[first]);
    let asked: Vec<String> = api.asked.try_iter().collect();
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?\
                  labelSelector=kubernetes.io%2Fservice-name%3Dsearch&";
    assert!(asked.iter().all(|target| target.starts_with(slices)), "{asked:?}");
    assert!(asked.iter().any(|target| target.ends_with("&resourceVersion=100")), "{asked:?}");
}

/// Answers of Kubernetes itself, as `scripts/kubernetes record` wrote them, about servers that are
/// here now.
#[test]
fn what_a_real_api_server_answered_is_understood() {
    let recorded: Value = serde_json::from_str(include_str!("kubernetes.json")).expect("JSON");
    let servers = [(); 3].map(|()| serve("synthetic", &[]));
    let [first, second, third] = servers.each_ref().map(Service::address);
    let here = |recorded: &Value| {
        let text = recorded.as_str().expect("text").to_owned();
        (1..).zip(&servers).fold(text, |text, (number, server)| {
            let text = text.replace(&format!("\"10.99.0.{number}\""), "\"127.0.0.1\"");
            text.replace(
                &format!("\"port\":{}", 8000 + number),
                &format!("\"port\":{}", port(server)),
            )
        })
    };
    let api = Api::start("recorded", here(&recorded["list"]));
    let token = path("recorded.token");
    fs::write(&token, "a-token\n").expect("a file");
    let files = format!("token={}&ca={}", token.display(), api.ca.display());
    let source = format!("kubernetes:shop/search:tailcut?api={}&{files}", api.url);
    let (_router, admin) = router(&source, &[]);
    wait_for_servers(&admin, &[first, second]);
    let mut expected = [vec![first, second, third], vec![second, third]].into_iter();
    for line in recorded["watch"].as_array().expect("lines") {
        let line = here(line);
        api.watch.send(format!("{line}\n")).expect("it listens");
        if !line.contains("\"BOOKMARK\"") {
            wait_for_servers(&admin, &expected.next().expect("two changes"));
        }
    }
    assert!(expected.next().is_none());
    // All is listed again, as it was.
    api.watch.send(format!("{}\n", here(&recorded["gone"]))).expect("it listens");
    api.watch.send(String::new()).expect("it listens");
    wait_for_servers(&admin, &[first, second]);
}
