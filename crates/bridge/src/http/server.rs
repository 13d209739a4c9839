//! A client's connection of HTTP/1.1: requests to calls, one at a time.
//!
//! | a request | then |
//! |---|---|
//! | has come whole | it is called |
//! | is longer than a message may be, or says so | 413, and the connection ends |
//! | wants CONNECT or a WebSocket, or has a coding besides chunks | 501 |
//! | offers a newer version of HTTP by Upgrade | as any other: the offer is not taken |
//!
//! | a call | the response |
//! |---|---|
//! | is answered | the server's |
//! | has not run | 503 |
//! | may have run | 502; 504 where no answer came in time |
//! | is rejected | 400 |

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};

use super::message;
use super::pipe::{Pipe, Poller};
use crate::call::{Call, Failed, Limits, Route};

/// A client's connection.
pub struct Server {
    pipe: Pipe,
    poller: Poller,
    /// hyper's side; `None` once that has ended.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>>>>>,
    handover: Rc<RefCell<Handover>>,
    /// Nothing more comes, or is wanted.
    is_closing: bool,
}

/// State that the connection and its owner hand each other.
#[derive(Debug, Default)]
struct Handover {
    /// Calls to be made: one at most.
    calls: VecDeque<Call>,
    /// The call that is under way.
    ticket: Option<u64>,
    /// Its answer.
    answer: Option<Result<Vec<u8>, Failed>>,
    /// Names the next call.
    next_ticket: u64,
    /// Bytes of the body that is coming.
    body_len: usize,
    /// Bytes that have come since the last request was whole.
    partial_len: usize,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("handover", &self.handover).finish_non_exhaustive()
    }
}

impl Server {
    /// A connection that has said nothing yet.
    pub fn new(limits: Limits) -> Self {
        let (pipe, handover) = (Pipe::default(), Rc::new(RefCell::new(Handover::default())));
        let theirs = handover.clone();
        let service = service_fn(move |request| serve(request, limits, theirs.clone()));
        let connection = http1::Builder::new()
            .half_close(true)
            .header_read_timeout(None)
            .auto_date_header(false)
            .max_buf_size(HEAD_LEN_MAX)
            .serve_connection(pipe.clone(), service);
        Self {
            pipe,
            poller: Poller::new(),
            connection: Some(Box::pin(connection)),
            handover,
            is_closing: false,
        }
    }

    /// Takes what the client says.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.pipe.push(bytes);
        self.handover.borrow_mut().partial_len += bytes.len();
        self.poll();
    }

    /// The client says no more.
    pub fn finish(&mut self) {
        self.is_closing = true;
        self.pipe.end();
        self.poll();
    }

    /// The next call to make.
    pub fn poll_call(&mut self) -> Option<Call> {
        self.poll();
        self.handover.borrow_mut().calls.pop_front()
    }

    /// A call has ended.
    pub fn answer(&mut self, ticket: u64, answer: Result<Vec<u8>, Failed>) {
        let mut handover = self.handover.borrow_mut();
        if handover.ticket == Some(ticket) {
            handover.answer = Some(answer);
            drop(handover);
            self.poll();
        }
    }

    /// Appends what the client is to get.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        self.pipe.drain(out);
    }

    /// True if more may be read from the client.
    pub fn is_reading(&self) -> bool {
        !self.is_closing && self.connection.is_some() && self.pipe.input_len() < READ_LEN_MAX
    }

    /// True if nothing more will be answered.
    pub fn is_over(&self) -> bool {
        self.connection.is_none() && self.pipe.output_len() == 0
    }

    /// True if a request has begun to come.
    pub fn is_partial(&self) -> bool {
        let handover = self.handover.borrow();
        handover.ticket.is_none() && handover.partial_len > 0 && self.connection.is_some()
    }

    /// True if nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.handover.borrow().ticket.is_none() && self.pipe.output_len() == 0
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        let handover = self.handover.borrow();
        let calls: usize = handover.calls.iter().map(|call| call.message.len()).sum();
        self.pipe.input_len() + self.pipe.output_len() + handover.body_len + calls
    }

    fn poll(&mut self) {
        while let Some(connection) = &mut self.connection {
            if self.poller.poll(connection.as_mut()).is_ready() {
                // What was wrong has been answered where it could be.
                self.connection = None;
            }
            if !self.poller.is_asked() {
                return;
            }
        }
    }
}

/// True of who wants another protocol than HTTP on its connection. A newer version of that is but
/// offered, by many clients with every first request, and need not be taken.
fn asks_for_socket(headers: &HeaderMap) -> bool {
    let protocols = headers.get_all(UPGRADE).into_iter().filter_map(|value| value.to_str().ok());
    let mut protocols = protocols.flat_map(|value| value.split(','));
    protocols.any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
}

/// True of a body with another coding than chunks, which is of the connection alone and would be
/// lost.
fn is_coded(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    values.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

type Answered = Result<Response<Full<Bytes>>, Infallible>;

/// Answers a request by a call.
async fn serve(
    request: Request<Incoming>,
    limits: Limits,
    handover: Rc<RefCell<Handover>>,
) -> Answered {
    let (head, mut body) = request.into_parts();
    let is_foreign = head.method == Method::CONNECT || asks_for_socket(&head.headers);
    let body_len_max = limits.message_len_max - HEAD_LEN_MAX;
    let refused = if is_foreign || is_coded(&head.headers) {
        Some(plain(StatusCode::NOT_IMPLEMENTED, "it is not passed on"))
    } else if body.size_hint().lower() > body_len_max as u64 {
        Some(plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"))
    } else {
        None
    };
    if let Some(refused) = refused {
        handover.borrow_mut().partial_len = 0;
        return Ok(ending(refused));
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Ok(ending(plain(StatusCode::BAD_REQUEST, "the body is malformed, or cut off")));
        };
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
            handover.borrow_mut().body_len = bytes.len();
        }
        if bytes.len() > body_len_max {
            let mut handover = handover.borrow_mut();
            (handover.body_len, handover.partial_len) = (0, 0);
            return Ok(ending(plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long")));
        }
    }
    let is_idempotent = matches!(head.method, Method::GET | Method::HEAD);
    let mut message = Vec::new();
    message::write_request(&head, &bytes, &mut message);
    drop(bytes);
    Handover::call(&handover, message, is_idempotent);
    let answer = poll_fn(|_| match handover.borrow_mut().answer.take() {
        Some(answer) => Poll::Ready(answer),
        None => Poll::Pending,
    });
    let answer = answer.await;
    handover.borrow_mut().ticket = None;
    Ok(respond(answer))
}

impl Handover {
    fn call(handover: &RefCell<Self>, message: Vec<u8>, is_idempotent: bool) {
        let mut handover = handover.borrow_mut();
        let ticket = handover.next_ticket;
        handover.next_ticket += 1;
        (handover.ticket, handover.body_len, handover.partial_len) = (Some(ticket), 0, 0);
        let route = if is_idempotent { Route::Any } else { Route::Primary };
        handover.calls.push_back(Call { ticket, message, route, group: 0, is_idempotent });
    }
}

fn respond(answer: Result<Vec<u8>, Failed>) -> Response<Full<Bytes>> {
    let failed = match answer {
        Ok(message) => match message::read_response(&message) {
            Ok(response) => return response.map(Full::new),
            Err(error) => Failed::Uncertain(error.to_string()),
        },
        Err(failed) => failed,
    };
    let status = match failed {
        Failed::Refused(_) => StatusCode::SERVICE_UNAVAILABLE,
        Failed::Uncertain(_) => StatusCode::BAD_GATEWAY,
        Failed::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Failed::Rejected(_) => StatusCode::BAD_REQUEST,
    };
    plain(status, &failed.to_string())
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("tailcut gateway: {text}\n")));
    *response.status_mut() = status;
    let value = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

/// After it the connection ends.
fn ending(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Bytes of a request's head.
const HEAD_LEN_MAX: usize = 64 << 10;

/// Bytes that wait to be parsed, beyond which none are read.
const READ_LEN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server::new(Limits::default())
    }

    fn written(server: &mut Server) -> String {
        let mut out = Vec::new();
        server.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn called(server: &mut Server) -> Call {
        let call = server.poll_call().expect("a call");
        assert!(server.poll_call().is_none());
        call
    }

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

    #[test]
    fn a_connection_is_kept_alive() {
        let mut server = server();
        for ticket in 0..3 {
            for part in [&b"GET /a HTTP/1.1\r\nHo"[..], b"st: x\r\n\r\n"] {
                server.receive(part);
                assert_eq!(server.is_partial(), server.handover.borrow().ticket.is_none());
            }
            let call = called(&mut server);
            assert_eq!(call.message, b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n");
            assert_eq!((call.ticket, call.is_idempotent, call.route), (ticket, true, Route::Any));
            server.answer(ticket, Ok(OK.to_vec()));
            assert_eq!(written(&mut server), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
            assert!(server.is_reading() && server.is_idle() && server.held() == 0);
        }
    }

    #[test]
    fn a_body_in_chunks_is_called_as_one_and_expect_is_met() {
        let mut server = server();
        server.receive(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(written(&mut server), "HTTP/1.1 100 Continue\r\n\r\n");
        server.receive(b"3\r\nabc\r\n2\r\nde\r\n");
        assert!(server.poll_call().is_none() && server.is_partial());
        server.receive(b"0\r\n\r\n");
        let call = called(&mut server);
        assert_eq!(call.message, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nabcde");
        assert_eq!((call.is_idempotent, call.route), (false, Route::Primary));
    }

    #[test]
    fn a_head_has_a_length_and_no_body() {
        let mut server = server();
        server.receive(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
        let call = called(&mut server);
        server.answer(call.ticket, Ok(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n".to_vec()));
        assert_eq!(written(&mut server), "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n");
    }

    #[test]
    fn requests_in_a_pipeline_are_called_one_after_the_other() {
        let mut server = server();
        server.receive(&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3));
        for _ in 0..3 {
            let call = called(&mut server);
            server.answer(call.ticket, Ok(OK.to_vec()));
        }
        assert_eq!(written(&mut server).matches("200 OK").count(), 3);
    }

    #[test]
    fn calls_that_fail_have_a_status() {
        for (failed, status) in [
            (Failed::Refused("x".to_owned()), "503"),
            (Failed::Uncertain("x".to_owned()), "502"),
            (Failed::TimedOut, "504"),
            (Failed::Rejected("x".to_owned()), "400"),
        ] {
            let mut server = server();
            server.receive(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let call = called(&mut server);
            server.answer(call.ticket, Err(failed));
            let text = written(&mut server);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        }
    }

    #[test]
    fn what_is_too_long_or_malformed_ends_the_connection() {
        let check = |bytes: &[u8], status: &str| {
            let mut server = server();
            for part in bytes.chunks(1 << 16) {
                server.receive(part);
            }
            assert!(server.poll_call().is_none());
            let text = written(&mut server);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
            assert!(server.is_over(), "{status}");
        };
        check(&[b"GET / HTTP/1.1\r\nA: ", &[b'a'; 200_000][..]].concat(), "431");
        check(b"nonsense\r\n\r\n", "400");
        check(
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            "501",
        );
        let long = [
            &b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n"[..],
            &[0; 8_500_000],
        ]
        .concat();
        check(&long, "413");
        // Before any of it has been sent.
        for expect in ["", "Expect: 100-continue\r\n"] {
            let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n";
            check(format!("{head}{expect}\r\n").as_bytes(), "413");
        }
        let coded = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
        check(coded, "501");
    }

    #[test]
    fn an_old_client_need_not_name_the_host() {
        let mut server = server();
        server.receive(b"GET /a HTTP/1.0\r\n\r\n");
        assert_eq!(called(&mut server).message, b"GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n");
    }

    /// Java's client offers it with each first request.
    #[test]
    fn an_offer_of_a_newer_version_is_not_taken() {
        let mut server = server();
        let offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n";
        server.receive(format!("GET / HTTP/1.1\r\nHost: x\r\n{offer}\r\n").as_bytes());
        let call = called(&mut server);
        assert!(!String::from_utf8_lossy(&call.message).to_lowercase().contains("h2c"));
        server.answer(call.ticket, Ok(OK.to_vec()));
        assert!(written(&mut server).ends_with("hi"));
    }

    #[test]
    fn who_says_no_more_is_still_answered() {
        let mut server = server();
        server.receive(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let call = called(&mut server);
        server.finish();
        assert!(!server.is_over());
        server.answer(call.ticket, Ok(OK.to_vec()));
        assert!(written(&mut server).ends_with("hi"));
        assert!(server.is_over());
    }
}
