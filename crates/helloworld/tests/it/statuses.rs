//! Calls that end by a status, and what is counted of them.

use std::time::Duration;

use tailcut::{ClientBuilder, Error};
use tailcut_services::{Client, Code, Method, Prost, Request, Status, Transport, frame};

use crate::calls::{Serving, blocking, channel, with_server, word};
use crate::trial::trial_client::TrialClient;
use crate::trial::{Failure, Word};

const EACH: [Serving; 3] = [Serving::Here, Serving::Workers, Serving::Tasks];

#[test]
fn a_status_travels_with_its_text_and_details() {
    for serving in EACH {
        let metrics = with_server(serving, |address, runtime| {
            let failure =
                Failure { code: 5, message: "no such word".to_owned(), details: vec![0, 255] };
            let check = |status: Status| {
                assert_eq!(status.code(), Code::NotFound);
                assert_eq!((status.message(), status.details()), ("no such word", &[0, 255][..]));
            };
            check(TrialClient::new(blocking(address)).fail(failure.clone()).expect_err("a status"));
            let client = TrialClient::new(channel(address));
            check(runtime.block_on(async { client.fail(failure).await }).expect_err("a status"));
        });
        assert_eq!((metrics.failed, metrics.replied), (2, 0), "{serving:?}");
    }
}

#[test]
fn each_code_travels() {
    with_server(Serving::Here, |address, _| {
        let client = TrialClient::new(blocking(address));
        for code in 1..=16 {
            let failure = Failure { code, ..Failure::default() };
            let status = client.fail(failure).expect_err("a status");
            assert_eq!(status.code() as u32, code);
        }
    });
}

#[test]
fn a_failure_with_the_code_of_success_is_unknown() {
    with_server(Serving::Here, |address, _| {
        let status = TrialClient::new(blocking(address)).fail(Failure::default());
        assert_eq!(status.expect_err("a status").code(), Code::Unknown);
    });
}

/// A method that nobody serves.
static MISSING: Method = Method::new("/trial.Trial/Missing");

/// A method as somebody with another .proto knows it, whose message is text.
static ECHO: Method = Method::new("/trial.Trial/Echo");

#[test]
fn an_unknown_method_is_not_implemented() {
    for serving in EACH {
        let metrics = with_server(serving, |address, _| {
            let reply =
                blocking(address).call::<Prost, Word, Word>(&MISSING, Request::new(word("")));
            assert_eq!(reply.expect_err("a status").code(), Code::Unimplemented);
        });
        assert_eq!(metrics.unknown_method, 1, "{serving:?}");
    }
}

#[test]
fn a_message_that_cannot_be_read_is_told_and_counted() {
    for serving in EACH {
        let metrics = with_server(serving, |address, _| {
            let mut request = Vec::new();
            frame::begin_request(&mut request, ECHO.id());
            request.extend_from_slice(&[0xff; 3]);
            let client = blocking(address);
            let reply = client.client().call(&request).expect("a reply");
            let status = frame::parse_reply(&reply).expect_err("a status");
            assert_eq!(status.code(), Code::Internal);
        });
        assert_eq!(metrics.undecodable, 1, "{serving:?}");
    }
}

#[test]
fn a_request_of_bytes_is_refused_in_words() {
    for serving in EACH {
        let metrics = with_server(serving, |address, _| {
            let client = blocking(address);
            let error = client.client().call(b"GET / HTTP/1.1").expect_err("no frame");
            let Error::Rejected { code, text, .. } = error else { panic!("{error}") };
            assert_eq!(code, Code::InvalidArgument as u32);
            assert!(text.contains("version 1"), "{text}");
        });
        assert_eq!(metrics.malformed, 1, "{serving:?}");
    }
}

#[test]
fn a_server_of_bytes_is_told_from_one_of_services() {
    let mut server = tailcut::Server::bind("127.0.0.1:0").expect("a server");
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            server.run(|request| {
                // A client that has gone needs no answer.
                let _ = request.reply_in_place(|_| ());
            })
        });
        let reply = TrialClient::new(blocking(address)).echo(word("hello"));
        stop.stop();
        let status = reply.expect_err("an echo");
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().contains("are typed services served there?"), "{status}");
        thread.join().expect("the server does not panic").expect("a socket");
    });
}

#[test]
fn a_handler_that_panics_is_an_internal_error_and_the_server_goes_on() {
    for serving in EACH {
        with_server(serving, |address, _| {
            let client = TrialClient::new(blocking(address));
            assert_eq!(client.panic(()).expect_err("a status").code(), Code::Internal);
            assert_eq!(client.echo(word("on")).expect("a reply").into_inner(), word("on"));
        });
    }
}

#[test]
fn a_deadline_that_passes_is_its_status() {
    for serving in [Serving::Here, Serving::Tasks] {
        with_server(serving, |address, _| {
            let client = TrialClient::new(blocking(address));
            let mut request = Request::new(word("held"));
            request.set_timeout(Duration::from_millis(20));
            let status = client.hold(request).expect_err("nobody releases it");
            assert_eq!(status.code(), Code::DeadlineExceeded);
            assert!(status.error().is_some_and(Error::is_deadline));
        });
    }
}

#[test]
fn where_nobody_serves_it_is_unavailable() {
    // A port that this test has, and nothing answers at, once its socket is closed.
    let address = {
        let server = tailcut::Server::bind("127.0.0.1:0").expect("a server");
        server.local_address()
    };
    let client = ClientBuilder::new().timeout(Duration::from_secs(30)).connect(address);
    let client = TrialClient::new(Client::new(client.expect("a client")));
    assert_eq!(client.echo(word("hello")).expect_err("nobody").code(), Code::Unavailable);
}

#[test]
fn a_service_is_added_once() {
    use crate::calls::Tried;
    use crate::trial::trial_server::TrialServer;
    let services =
        tailcut_services::Services::new().add_service(TrialServer::new(Tried::default()));
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        services.add_service(TrialServer::new(Tried::default()))
    }));
    let text = again.expect_err("twice").downcast::<String>().expect("a text");
    assert!(text.contains("/trial.Trial/"), "{text}");
}
