//! Python's interpreter against Rust, over loopback: each end in the other language.

mod python;

use std::process::Command;
use std::time::Duration;

use tailcut::{Client, ClientBuilder, Error, Server};

use python::Program;

/// Python is missing: a loud line, and true.
fn lacks_python() -> bool {
    let is_there = Command::new("python3").arg("--version").output().is_ok();
    if !is_there {
        println!("SKIPPED: no python3 on this machine");
    }
    !is_there
}

fn client(address: &str) -> Client {
    ClientBuilder::new().timeout(PATIENCE).connect(address).expect("a client")
}

/// What a server of `programs/server.py` does for a client in Rust.
fn check_server(arguments: &[&str]) {
    if lacks_python() {
        return;
    }
    let mut server = Program::start("server.py", arguments);
    let client = client(&server.line());
    assert_eq!(&client.call(b"hello").expect("a reply")[..], b"HELLO");
    let error = client.call(b"").expect_err("nothing to answer");
    let Error::Rejected { code, text, .. } = error else { panic!("{error}") };
    assert_eq!((code, text.as_str()), (42, "at least one byte, please"));
    let long = vec![b'a'; 8 << 20];
    assert_eq!(client.call(&long).expect("a long reply").to_vec(), vec![b'A'; 8 << 20]);
    let error = client.call(b"fail").expect_err("its handler raises");
    assert!(error.to_string().contains("Panicked"), "{error}");
    assert_eq!(&client.call(b"after").expect("it goes on")[..], b"AFTER");
    server.interrupt();
    assert_eq!(server.line(), "stopped");
    server.end();
}

#[test]
fn a_server_in_python_answers_a_client_in_rust() {
    check_server(&["bytes"]);
}

#[test]
fn a_server_in_python_answers_from_another_thread() {
    check_server(&["later"]);
}

#[test]
fn a_server_in_asyncio_answers_a_client_in_rust() {
    check_server(&["asyncio"]);
}

/// What `programs/client.py` has of a server in Rust.
fn check_client(kind: &str) {
    if lacks_python() {
        return;
    }
    let mut server = Server::bind("127.0.0.1:0").expect("a server");
    let (address, stop) = (server.local_address().to_string(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            server.run(|request| {
                // A client that has gone needs no answer.
                let _ = match request.bytes() {
                    b"reject" => request.reject(7, "not this one"),
                    b"idempotent?" => {
                        let is_idempotent = request.options().idempotent;
                        request.reply(if is_idempotent { b"yes" } else { b"no" })
                    }
                    b"drop" => {
                        drop(request);
                        Ok(())
                    }
                    _ => request.reply_in_place(|bytes| bytes.reverse()),
                };
            })
        });
        let mut program = Program::start("client.py", &[kind, &address]);
        let said = program.line();
        stop.stop();
        thread.join().expect("the server does not panic").expect("a socket");
        assert_eq!(said, "all as expected");
        program.end();
    });
}

#[test]
fn a_client_in_python_calls_a_server_in_rust() {
    check_client("blocking");
}

#[test]
fn a_client_in_asyncio_calls_a_server_in_rust() {
    check_client("asyncio");
}

/// Longer than a busy machine pauses.
const PATIENCE: Duration = Duration::from_secs(30);
