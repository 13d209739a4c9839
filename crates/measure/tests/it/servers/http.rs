//! nginx: lengths, chunks, HEAD, errors, and connections that it closes.

use std::path::Path;

use tailcut_measure::app::{ErrorKind, Tally};

use super::client::{Client, TO_ITS_END, ask};
use super::process::Server;

#[test]
fn pages_of_any_kind_are_framed() {
    let Some(server) = start() else { return };
    let apps = [
        "http:path=\"/small?query=1,2\"",
        "http:GET:/small?query=1,header=Accept: */*",
        "http:requests=\"3 /small\\n1 HEAD:/large\\n2 POST:/echoless,body=x\"",
        "http:/large",
        "http:HEAD:/large",
        "http:GET:/empty",
        "http:/moved",
        // What is compressed on its way out comes in chunks.
        "http:path=/large,header=Accept-Encoding: gzip",
        "http:method=POST,path=/echoless,body=\"a,b\",header=Content-Type: text/plain",
    ];
    for app in apps {
        assert_eq!(Client::connect(server.address, app).run(1_000, 10), ok(1_000), "{app}");
    }
    let head = ask(
        server.address,
        "GET /large HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n",
        "0\r\n\r\n",
    );
    assert!(
        head.contains("Transfer-Encoding: chunked"),
        "nginx must really have sent chunks: {head}"
    );
}

#[test]
fn an_error_is_a_reply_of_its_kind() {
    let Some(server) = start() else { return };
    for (app, kind) in [
        ("http:/missing", ErrorKind::Refused),
        ("http:/forbidden", ErrorKind::Unauthorised),
        ("http:/failing", ErrorKind::Failed),
        ("http:/busy", ErrorKind::Busy),
    ] {
        let mut expected = Tally::default();
        expected.errors[kind as usize] = 500;
        // After some errors it closes the connection.
        assert_eq!(Client::connect(server.address, app).run(500, 1), expected, "{app}");
    }
}

#[test]
fn the_server_counts_the_same_requests() {
    let Some(server) = start() else { return };
    let count = || {
        let answer = ask(
            server.address,
            "GET /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            TO_ITS_END,
        );
        let (_, figures) = answer.split_once("requests\n").expect("it is nginx's status");
        let requests = figures.split_whitespace().nth(2).expect("accepted, handled, requests");
        requests.parse::<u64>().expect("a number")
    };
    let before = count();
    assert_eq!(Client::connect(server.address, "http:/small").run(3_000, 30), ok(3_000));
    // The second question is a request too.
    assert_eq!(count() - before, 3_001);
}

#[test]
fn a_connection_that_the_server_closes_is_opened_again() {
    let Some(server) = start() else { return };
    // A hundred requests a connection, one at a time: the hundredth reply says so.
    let mut client = Client::connect(server.address, "http:/hundred/small");
    assert_eq!(client.run(1_000, 1), ok(1_000));
    assert_eq!((client.closes, client.lost), (10, 0));
    // A body without a length, to a client that speaks 1.0 or to one that asks for it, ends with
    // the connection.
    let mut client = Client::connect(server.address, "http:path=/small,header=Connection: close");
    assert_eq!(client.run(100, 1), ok(100));
    assert_eq!((client.closes, client.lost), (100, 0));
    // What was sent behind is lost, and told.
    let mut client = Client::connect(server.address, "http:/hundred/small");
    assert_eq!(client.run(160, 8), ok(156));
    assert_eq!((client.closes, client.lost), (1, 4));
}

fn ok(count: u64) -> Tally {
    Tally { ok: count, ..Tally::default() }
}

fn start() -> Option<Server> {
    Server::start("nginx", "nginx-light", |port, directory| {
        std::fs::write(directory.join("small"), "hello").expect("its directory is ours");
        std::fs::write(directory.join("empty"), "").expect("its directory is ours");
        let lines: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
        std::fs::write(directory.join("large"), lines).expect("its directory is ours");
        let config = directory.join("nginx.conf");
        std::fs::write(&config, configuration(port, directory)).expect("its directory is ours");
        ["-c", &config.display().to_string(), "-e", "stderr"].map(str::to_owned).to_vec()
    })
}

/// One process, which ends when it is killed.
fn configuration(port: u16, directory: &Path) -> String {
    let root = directory.display();
    format!(
        "daemon off; master_process off; pid {root}/pid;
        events {{ }}
        http {{
            access_log off; error_log stderr crit; default_type text/plain; keepalive_requests 1000000;
            client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
            uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
            gzip on; gzip_min_length 1; gzip_types *;
            server {{
                listen 127.0.0.1:{port}; root {root};
                location /hundred/ {{ alias {root}/; keepalive_requests 100; }}
                location = /echoless {{ return 200 \"taken\"; }}
                location = /moved {{ return 302 /small; }}
                location = /forbidden {{ return 403; }}
                location = /failing {{ return 500; }}
                location = /busy {{ return 503; }}
                location = /status {{ stub_status; }}
            }}
        }}"
    )
}
