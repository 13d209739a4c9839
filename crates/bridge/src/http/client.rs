//! A connection to a server of HTTP/1.1: one request at a time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Method, Request, StatusCode};

use super::message;
use super::pipe::{Pipe, Poller};
use crate::due::Nonsense;

/// A connection to a server.
pub struct Client {
    pipe: Pipe,
    poller: Poller,
    /// hyper's side; `None` once that has ended.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>>>>>,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// The response that is due.
    response: Option<Pin<Box<dyn Future<Output = Response>>>>,
    reply_len_max: usize,
}

/// A response as a call carries it.
type Response = Result<Reply, Nonsense>;

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// As a call carries it.
    Message(Vec<u8>),
    /// It is longer than a message may be.
    TooLong,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("is_busy", &self.response.is_some()).finish_non_exhaustive()
    }
}

impl Client {
    /// A connection that is open.
    pub(crate) fn new(reply_len_max: usize) -> Self {
        let (pipe, poller) = (Pipe::default(), Poller::new());
        let mut handshake = Box::pin(Builder::new().handshake(pipe.clone()));
        // It waits for nothing.
        let (sender, connection) = match poller.poll(handshake.as_mut()) {
            Poll::Ready(Ok((sender, connection))) => (Some(sender), Some(connection)),
            Poll::Ready(Err(_)) | Poll::Pending => (None, None),
        };
        let connection = connection
            .map(|connection| -> Pin<Box<dyn Future<Output = _>>> { Box::pin(connection) });
        let mut client = Self { pipe, poller, connection, sender, response: None, reply_len_max };
        client.poll();
        client
    }

    /// Appends a request to what is to be sent. Where it cannot be, the connection is found to have
    /// ended.
    pub(crate) fn send(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let Some((sender, request)) = self.sender.as_mut().zip(message::read_request(message).ok())
        else {
            self.connection = None;
            return;
        };
        let is_head = request.method() == Method::HEAD;
        let request: Request<Full<Bytes>> = request.map(Full::new);
        let (sent, len_max) = (sender.send_request(request), self.reply_len_max);
        self.response = Some(Box::pin(async move {
            let (head, mut body) = sent.await.map_err(|_| Nonsense::Framing)?.into_parts();
            // Nobody has asked for another protocol.
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(Nonsense::Framing);
            }
            let mut bytes = Vec::new();
            let mut is_too_long = false;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|_| Nonsense::Framing)?;
                let Some(data) = frame.data_ref() else { continue };
                is_too_long |= bytes.len() + data.len() > len_max;
                if is_too_long {
                    bytes = Vec::new();
                } else {
                    bytes.extend_from_slice(data);
                }
            }
            let mut message = Vec::new();
            message::write_response(&head, is_head, &bytes, &mut message);
            is_too_long |= message.len() > len_max;
            Ok(if is_too_long { Reply::TooLong } else { Reply::Message(message) })
        }));
        // It cannot be answered before it has been sent: this is that it will not be.
        if let Some(early) = self.poll() {
            debug_assert!(early.is_err(), "an answer to nothing");
            self.connection = None;
        }
        self.pipe.drain(out);
    }

    /// Takes what the server says; the answer, where that is whole.
    ///
    /// # Errors
    ///
    /// Where it is none.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<Option<Reply>, Nonsense> {
        self.pipe.push(bytes);
        self.poll().transpose()
    }

    /// The server says no more: the answer that this ends.
    pub(crate) fn finish(&mut self) -> Option<Reply> {
        self.pipe.end();
        self.poll()?.ok()
    }

    /// True if the connection is of no more use.
    pub(crate) fn is_over(&self) -> bool {
        self.connection.is_none()
    }

    fn poll(&mut self) -> Option<Response> {
        let mut reply = None;
        loop {
            let connection = self.connection.as_mut();
            if connection.is_some_and(|at| self.poller.poll(at.as_mut()).is_ready()) {
                self.connection = None;
            }
            let response = self.response.as_mut();
            if let Some(Poll::Ready(ended)) = response.map(|at| self.poller.poll(at.as_mut())) {
                self.response = None;
                reply = Some(ended);
            } else if !self.poller.is_asked() {
                return reply;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(client: &mut Client, message: &str) -> String {
        let mut out = Vec::new();
        client.send(message.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn message(text: &str) -> Reply {
        Reply::Message(text.as_bytes().to_vec())
    }

    #[test]
    fn a_connection_is_used_again() {
        let mut client = Client::new(1 << 10);
        for _ in 0..3 {
            let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
            assert_eq!(sent(&mut client, request), request);
            assert_eq!(client.receive(b"HTTP/1.1 200 OK\r\nContent-Le"), Ok(None));
            let reply =
                client.receive(b"ngth: 2\r\nKeep-Alive: timeout=5\r\n\r\nhi").unwrap().unwrap();
            assert_eq!(reply, message("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"));
            assert!(!client.is_over());
        }
    }

    #[test]
    fn chunks_and_bodies_up_to_the_end_have_a_length_then() {
        let mut client = Client::new(1 << 10);
        sent(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
        assert_eq!(
            client.receive(chunked).unwrap().unwrap(),
            message("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
        );
        sent(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(
            client.receive(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nno"),
            Ok(None)
        );
        assert_eq!(
            client.finish().unwrap(),
            message("HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno")
        );
        assert!(client.is_over());
    }

    #[test]
    fn a_head_is_answered_without_a_body() {
        let mut client = Client::new(1 << 10);
        sent(&mut client, "HEAD / HTTP/1.1\r\nhost: x\r\n\r\n");
        let reply =
            client.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n").unwrap().unwrap();
        assert_eq!(reply, message("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n"));
        assert!(!client.is_over());
    }

    #[test]
    fn a_long_answer_is_told_and_the_next_is_found() {
        let mut client = Client::new(100);
        sent(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        let long =
            [&b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"[..], &[b'x'; 5000]].concat();
        let replies: Vec<_> =
            long.chunks(999).filter_map(|part| client.receive(part).unwrap()).collect();
        assert_eq!(replies, [Reply::TooLong]);
        sent(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        let reply = client.receive(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap();
        assert_eq!(reply, message("HTTP/1.1 204 No Content\r\n\r\n"));
    }

    #[test]
    fn another_protocol_that_nobody_asked_for_is_nonsense() {
        let mut client = Client::new(1 << 10);
        sent(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        let switched =
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
        assert_eq!(client.receive(switched), Err(Nonsense::Framing));
    }

    #[test]
    fn nonsense_and_an_end_amid_an_answer_are_told() {
        let mut client = Client::new(1 << 10);
        sent(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(client.receive(b"-ERR unknown command\r\n"), Err(Nonsense::Framing));
        assert!(client.is_over());
        let mut client = Client::new(1 << 10);
        sent(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(client.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"), Ok(None));
        assert_eq!(client.finish(), None);
    }
}
