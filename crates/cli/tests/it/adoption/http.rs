//! NGINX behind a bridge, curl and wrk before a gateway.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::{bridge, gateway, route, wait_until_quiet};
use crate::process::Server;

/// An NGINX that serves files and takes them.
fn nginx() -> Option<Server> {
    Server::start("nginx", "nginx-light", |port, directory| {
        let place = directory.to_string_lossy().into_owned();
        // A worker that serves may not be root.
        fs::create_dir_all(directory.join("files")).expect("a directory");
        fs::write(directory.join("files/small"), b"hello").expect("a file");
        let big: Vec<u8> = (0..8_u32 << 20).map(|at| (at >> 7) as u8).collect();
        fs::write(directory.join("files/big"), big).expect("a file");
        fs::write(directory.join("files/too-long"), vec![b'x'; 9 << 20]).expect("a file");
        let config = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/error.log;
             events {{ worker_connections 256; }}
             http {{ access_log off; client_max_body_size 20m; keepalive_requests 100;
               client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;
               fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
               server {{ listen 127.0.0.1:{port}; root {place}/files;
                 location = /length {{ client_body_in_single_buffer on; proxy_pass http://127.0.0.1:{port}/told; }}
                 location = /told {{ return 200 $content_length; }}
                 location = /chunked {{ gzip on; gzip_min_length 0; gzip_types *; gzip_http_version 1.0;
                   alias {place}/files/big; }}
                 location = /moved {{ return 302 http://example.com/; }} }} }}"
        );
        fs::write(directory.join("nginx.conf"), config).expect("a file");
        vec!["-c".to_owned(), format!("{place}/nginx.conf")]
    })
}

#[test]
fn curl_does_not_notice() {
    let Some(server) = nginx() else { return };
    let to = format!("http://{}", server.address);
    let bridges = [bridge("http", &to, &[]), bridge("http", &to, &["--server-id", "1"])];
    let router = route(&[&bridges[0].0, &bridges[1].0]);
    let (front, front_admin) = gateway("http", router.address(), &[]);
    let (ours, theirs) = (format!("http://{}", front.address()), to);
    let big = server.directory.join("files/big").to_string_lossy().into_owned();
    let cases: &[&[&str]] = &[
        &["/small"],
        &["-I", "/small"],
        &["/none"],
        &["/moved"],
        &["-H", "Range: bytes=1-2", "/small"],
        &["-H", "If-Modified-Since: Fri, 31 Dec 2100 00:00:00 GMT", "/small"],
        &["/big"],
        &["--compressed", "/chunked"],
        &["-X", "POST", "--data-binary", "abc", "/length"],
        &["-H", "Expect: 100-continue", "--data-binary", &format!("@{big}"), "/length"],
        &["-H", "Transfer-Encoding: chunked", "--data-binary", &format!("@{big}"), "/length"],
        &["-0", "/small"],
        &["-0", "-H", "Host:", "/small"],
    ];
    for case in cases {
        let [options @ .., path] = *case else { continue };
        let ask = |place: &str| curl(options, &[&format!("{place}{path}")]);
        let (ours, theirs) = (ask(&ours), ask(&theirs));
        assert!(ours == theirs, "{case:?}: {} and {}", ours.escape_ascii(), theirs.escape_ascii());
    }
    // Several on one connection, one of which ends by an error of the gateway's own.
    let urls = ["/small", "/too-long", "/small"].map(|path| format!("{ours}{path}"));
    let shown =
        curl(&["-w", "%{http_code} %{num_connects}\n"], &urls.each_ref().map(String::as_str));
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(
        shown.contains("200 1\n") && shown.contains("502 0\n") && shown.contains("200 0\n"),
        "{shown}"
    );
    for (_, admin) in &bridges {
        assert!(admin.value("tailcut_bridge_server_answered_total") > 0.0, "both have served");
    }
    wait_until_quiet(&front_admin, &[&bridges[0].1, &bridges[1].1]);
}

/// Bodies and heads; what differs by time and by who ends a connection is left out.
fn curl(options: &[&str], urls: &[&str]) -> Vec<u8> {
    let output = Command::new("curl").args(["-s", "-i"]).args(options).args(urls).output();
    let bytes = output.expect("curl").stdout;
    let is_kept = |line: &&[u8]| {
        let name = line.to_ascii_lowercase();
        ![
            &b"connection:"[..],
            b"date:",
            b"keep-alive:",
            b"transfer-encoding:",
            b"content-length:",
            b"http/1.1 100",
        ]
        .iter()
        .any(|start| name.starts_with(start))
    };
    let mut lines: Vec<&[u8]> =
        bytes.split_inclusive(|&byte| byte == b'\n').filter(is_kept).collect();
    // What stood before was of a 100.
    if lines.first().is_some_and(|line| *line == b"\r\n") {
        lines.remove(0);
    }
    // Headers come in another order, and not as they were written.
    let end = lines.iter().position(|line| *line == b"\r\n").unwrap_or(lines.len());
    let mut head: Vec<Vec<u8>> = lines.drain(..end).map(<[u8]>::to_ascii_lowercase).collect();
    // A client of version 1.0 is answered in that, which NGINX does not do.
    for line in head.iter_mut().filter(|line| line.starts_with(b"http/1.0")) {
        line[7] = b'1';
    }
    head.sort();
    [head.concat(), lines.concat()].concat()
}

#[test]
fn wrk_loses_nothing() {
    let Some(server) = nginx() else { return };
    if Command::new("wrk").arg("-v").output().is_err() {
        println!("SKIPPED: wrk is missing (Debian: wrk)");
        return;
    }
    let (behind, behind_admin) =
        bridge("http", &format!("http://{}", server.address), &["--outstanding", "8"]);
    let (front, front_admin) = gateway("http", behind.address(), &[]);
    let url = format!("http://{}/small", front.address());
    let output = Command::new("wrk").args(["-t1", "-c16", "-d1s", &url]).output().expect("wrk");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!shown.contains("Non-2xx") && !shown.contains("Socket errors"), "{shown}");
    assert!(front_admin.value("tailcut_gateway_gateway_answered_total") > 100.0, "{shown}");
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

#[test]
fn a_server_of_http_that_dies_is_refused_for() {
    let Some(server) = nginx() else { return };
    let (behind, behind_admin) =
        bridge("http", &format!("http://{}", server.address), &["--outstanding", "2"]);
    let (front, _) = gateway("http", behind.address(), &[]);
    let status = || {
        let url = format!("http://{}/small", front.address());
        let output = Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", &url])
            .output();
        String::from_utf8_lossy(&output.expect("curl").stdout).into_owned()
    };
    behind_admin.wait_for("tailcut_bridge_server_up", 1.0);
    assert_eq!(status(), "200");
    drop(server);
    super::wait_until_at_most(&behind_admin, "tailcut_bridge_server_up", 0.0);
    assert_eq!(status(), "503");
}

/// Requests that are sent before the answers of others have come, and in any fragments: answered
/// one after the other, in order.
#[test]
fn requests_of_a_pipeline_are_answered_in_order() {
    let Some(server) = nginx() else { return };
    let (behind, behind_admin) = bridge("http", &format!("http://{}", server.address), &[]);
    let (front, front_admin) = gateway("http", behind.address(), &[]);
    let paths = ["/small", "/none", "/moved", "/big", "/length"];
    let request = |path: &str| match path {
        "/length" => {
            "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /".to_owned()
        }
        path => format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"),
    };
    let count = 40;
    let asked: Vec<&str> = paths.into_iter().cycle().take(count).collect();
    let bytes: String = asked.iter().map(|path| request(path)).collect();
    let mut stream = TcpStream::connect(front.address()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let mut writer = stream.try_clone().expect("a descriptor");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for fragment in bytes.as_bytes().chunks(37) {
                writer.write_all(fragment).expect("it takes bytes");
            }
            writer.shutdown(Shutdown::Write).expect("it is open");
        });
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).expect("answers");
        let mut rest = &answers[..];
        for path in &asked {
            let (status, body, after) = response(rest);
            let expected = match *path {
                "/small" => (200, 5),
                "/none" => (404, body.len()),
                "/moved" => (302, body.len()),
                "/big" => (200, 8 << 20),
                _ => (200, 1),
            };
            assert_eq!((status, body.len()), expected, "{path}");
            assert!(*path != "/length" || body == b"5", "{path}");
            rest = after;
        }
        assert!(rest.is_empty(), "{} bytes more", rest.len());
    });
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

/// The status and the body of the first response, and what follows it.
fn response(bytes: &[u8]) -> (u16, &[u8], &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = head.parse(bytes).expect("it is one") else {
        panic!("it is cut: {}", bytes.escape_ascii());
    };
    let status = head.code.expect("a status");
    let length = headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.expect("it has a length").value;
    let length: usize = std::str::from_utf8(length).expect("text").parse().expect("a number");
    let (body, after) = bytes[start..].split_at(length);
    (status, body, after)
}

/// Clients that go in the middle of a request's body, before the answer, and in the middle of it.
#[test]
fn clients_of_http_that_leave_in_the_middle_leave_nothing_behind() {
    let Some(server) = nginx() else { return };
    let (behind, behind_admin) =
        bridge("http", &format!("http://{}", server.address), &["--outstanding", "4"]);
    let (front, front_admin) = gateway("http", behind.address(), &[]);
    for round in 0..30 {
        let mut stream = TcpStream::connect(front.address()).expect("a connection");
        let said: &[u8] = match round % 3 {
            0 => {
                b"POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nabc"
            }
            1 => b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n",
            _ => b"GET /big HTTP/1.1\r\nHost: x\r\n\r\nGET /big HTTP/1.1\r\nHost: x\r\n\r\n",
        };
        stream.write_all(said).expect("it takes bytes");
        if round % 3 == 2 {
            stream.read_exact(&mut [0; 100_000]).expect("the answer begins");
        }
    }
    wait_until_quiet(&front_admin, &[&behind_admin]);
    assert_eq!(front_admin.value("tailcut_gateway_clients_total"), 30.0);
    let url = format!("http://{}/small", front.address());
    let answer = curl(&[], &[&url]);
    assert!(answer.ends_with(b"hello"), "{}", answer.escape_ascii());
}

/// A server that ends its connection in the middle of each other answer: that is no answer, and
/// nobody gets a part of one.
#[test]
fn a_server_of_http_that_leaves_in_the_middle_has_not_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for (count, mut stream) in listener.incoming().flatten().enumerate() {
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head);
                let body: &[u8] = if count % 2 == 0 { b"whole" } else { b"par" };
                // Whoever has gone need not hear it.
                let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n";
                let _ = stream.write_all(&[head, body].concat());
            });
        }
    });
    let (behind, behind_admin) = bridge("http", &to, &["--outstanding", "1"]);
    behind_admin.wait_for("tailcut_bridge_server_up", 1.0);
    let (front, front_admin) = gateway("http", behind.address(), &["--timeout", "10s"]);
    let mut whole = 0;
    for _ in 0..20 {
        let url = format!("http://{}/", front.address());
        // At most once: it is not asked for again.
        let answer = curl(&["-X", "POST", "-d", "x"], &[&url]);
        let text = String::from_utf8_lossy(&answer).into_owned();
        if text.contains("http/1.1 200 ") {
            assert!(text.ends_with("\r\n\r\nwhole"), "{text}");
            whole += 1;
        } else {
            assert!(text.contains("http/1.1 50"), "{text}");
        }
    }
    println!("{whole} of 20 were answered");
    assert!((5..20).contains(&whole), "{whole}");
    wait_until_quiet(&front_admin, &[&behind_admin]);
}

#[test]
fn a_header_that_never_ends_costs_little() {
    let Some(server) = nginx() else { return };
    let (behind, _) = bridge("http", &format!("http://{}", server.address), &[]);
    let (front, admin) = gateway(
        "http",
        behind.address(),
        &["--client-timeout", "300ms", "--idle-timeout", "300ms"],
    );
    let said = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(front.address()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        // It may be cut off meanwhile.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert_eq!(said(b"GET / HTTP/1.1\r\nHost: x\r\nA: "), "");
    admin.wait_for("tailcut_gateway_clients_ended_partial_total", 1.0);
    assert_eq!(said(b""), "");
    admin.wait_for("tailcut_gateway_clients_ended_idle_total", 1.0);
    let long = [&b"GET / HTTP/1.1\r\nA: "[..], &[b'a'; 60_000]].concat();
    assert_eq!(said(&long), "");
    let smuggled = "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let answer = said(smuggled.as_bytes());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 "), "{answer}");
    assert_eq!(admin.value("tailcut_gateway_held_bytes"), 0.0);
}

/// Two callers are told nothing but a part of an answer, again and again, and give up: their places
/// come back. The server ends each other connection with its answer, and is there all the same.
#[test]
fn answers_without_an_end_keep_no_place() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                let len = stream.read(&mut head).unwrap_or(0);
                if !head[..len].starts_with(b"GET /events") {
                    // Whoever has gone need not hear it.
                    let _ = stream.write_all(
                        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
                    );
                    return;
                }
                let begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                let mut said = stream.write_all(begun);
                while said.is_ok() {
                    std::thread::park_timeout(Duration::from_millis(20));
                    said = stream.write_all(b"1\r\n.\r\n");
                }
            });
        }
    });
    let (behind, behind_admin) = bridge("http", &to, &["--outstanding", "2"]);
    behind_admin.wait_for("tailcut_bridge_server_up", 1.0);
    let (front, front_admin) = gateway("http", behind.address(), &["--timeout", "400ms"]);
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(front.address()).expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it takes bytes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    std::thread::scope(|scope| {
        let endless = [(); 2].map(|()| scope.spawn(|| ask("/events")));
        for answer in endless.map(|caller| caller.join().expect("it is answered")) {
            assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
        }
    });
    wait_until_quiet(&front_admin, &[&behind_admin]);
    for _ in 0..20 {
        let answer = ask("/");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hi"), "{answer}");
    }
    assert_eq!(behind_admin.value("tailcut_bridge_server_outages_total"), 0.0);
}
