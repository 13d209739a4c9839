//! One connection to a server: requests in order, and their answers out of its bytes.
//!
//! Invariant: what is sent and what is answered are counted alike, so that an answer is never given
//! to another request. After [`Nonsense`] the connection is of no use: close it.

use std::collections::VecDeque;

use crate::due::{Dialect, Due, Nonsense};
use crate::http::client::{Client, Reply};
use crate::memcached::{BinaryEnd, TextEnd};
use crate::resp::reply::ReplyEnd;

/// A message at a server.
#[derive(Debug)]
pub struct Exchange<J> {
    /// The owner's.
    pub job: J,
    /// Answer that is due for it.
    pub due: Due,
    /// Bytes that were sent.
    pub request: Vec<u8>,
    /// Its answer, as far as that has come.
    pub reply: Vec<u8>,
}

/// The end of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server's bytes.
    Reply(Vec<u8>),
    /// More than a message may have.
    TooLong,
}

/// One connection to a server.
#[derive(Debug)]
pub struct Backend<J> {
    /// Exchanges at the server, in order.
    exchanges: VecDeque<Exchange<J>>,
    /// Parser of the answers.
    speaker: Speaker,
    /// Replies of the first exchange that have ended.
    ended: u32,
    /// The answer that is coming has more bytes than a message may have.
    is_too_long: bool,
    /// Most bytes of an answer.
    reply_len_max: usize,
}

/// Parser of the answers of a connection.
#[derive(Debug)]
enum Speaker {
    /// Finds the end of the answer that is coming.
    Framed(End),
    /// hyper.
    Http(Box<Client>),
}

/// End of the answer that is coming, by protocol.
#[derive(Debug)]
enum End {
    Resp(ReplyEnd),
    Text(TextEnd),
    Binary(BinaryEnd),
}

impl End {
    fn take(&mut self, bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
        match self {
            Self::Resp(end) => end.take(bytes),
            Self::Text(end) => end.take(bytes),
            Self::Binary(end) => end.take(bytes),
        }
    }
}

impl<J> Backend<J> {
    /// A connection that is open, and speaks `dialect`.
    pub fn new(dialect: Dialect, reply_len_max: usize) -> Self {
        let speaker = match dialect {
            Dialect::Resp2 | Dialect::Resp3 => Speaker::Framed(End::Resp(ReplyEnd::default())),
            Dialect::Text => Speaker::Framed(End::Text(TextEnd::default())),
            Dialect::Binary => Speaker::Framed(End::Binary(BinaryEnd::default())),
            Dialect::Http => Speaker::Http(Box::new(Client::new(reply_len_max))),
        };
        Self { exchanges: VecDeque::new(), speaker, ended: 0, is_too_long: false, reply_len_max }
    }

    /// Messages that are at the server.
    pub fn len(&self) -> usize {
        self.exchanges.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// Appends a request, from `start` on, to what is to be sent.
    pub fn send(&mut self, exchange: Exchange<J>, start: usize, out: &mut Vec<u8>) {
        let request = &exchange.request[start..];
        match &mut self.speaker {
            Speaker::Framed(_) => out.extend_from_slice(request),
            Speaker::Http(client) => client.send(request, out),
        }
        self.exchanges.push_back(exchange);
    }

    /// Exchanges at the server, in order.
    pub fn exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange<J>> {
        self.exchanges.iter_mut()
    }

    /// Takes what the server says; `done` is given each exchange that has ended.
    ///
    /// # Errors
    ///
    /// Where it is no answer.
    pub fn receive(
        &mut self,
        mut bytes: &[u8],
        mut done: impl FnMut(Exchange<J>, Answer),
    ) -> Result<(), Nonsense> {
        let end = match &mut self.speaker {
            Speaker::Framed(end) => end,
            Speaker::Http(client) => {
                let reply = client.receive(bytes)?;
                let is_over = client.is_over();
                if let Some(reply) = reply
                    && let Some(exchange) = self.exchanges.pop_front()
                {
                    done(exchange, reply.into());
                }
                return if is_over { Err(Nonsense::Farewell) } else { Ok(()) };
            }
        };
        while !bytes.is_empty() {
            let Some(first) = self.exchanges.front_mut() else { return Err(Nonsense::Unasked) };
            let end = end.take(bytes)?;
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            bytes = rest;
            if first.reply.len() + part.len() > self.reply_len_max {
                self.is_too_long = true;
                first.reply = Vec::new();
            }
            if !self.is_too_long {
                first.reply.extend_from_slice(part);
            }
            self.ended += u32::from(end.is_some());
            if self.ended == first.due.replies
                && let Some(mut exchange) = self.exchanges.pop_front()
            {
                self.ended = 0;
                let is_too_long = std::mem::take(&mut self.is_too_long);
                let reply = std::mem::take(&mut exchange.reply);
                done(exchange, if is_too_long { Answer::TooLong } else { Answer::Reply(reply) });
            }
        }
        Ok(())
    }

    /// The server says no more: the exchange that this ends.
    pub fn finish(&mut self) -> Option<(Exchange<J>, Answer)> {
        let Speaker::Http(client) = &mut self.speaker else { return None };
        let reply = client.finish()?;
        let exchange = self.exchanges.pop_front()?;
        Some((exchange, reply.into()))
    }

    /// The connection has ended: what was at the server, in order. Whether it has run is not known.
    pub fn fail(&mut self) -> impl Iterator<Item = Exchange<J>> + '_ {
        (self.ended, self.is_too_long) = (0, false);
        self.exchanges.drain(..)
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Message(message) => Self::Reply(message),
            Reply::TooLong => Self::TooLong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(due: &[u32]) -> Backend<usize> {
        let mut backend = Backend::new(Dialect::Resp2, 16);
        let mut out = Vec::new();
        for (job, &replies) in due.iter().enumerate() {
            let due = Due { replies };
            let exchange = Exchange { job, due, request: b"+x".to_vec(), reply: Vec::new() };
            backend.send(exchange, 1, &mut out);
        }
        assert_eq!(out.len(), due.len());
        backend
    }

    fn receive(
        backend: &mut Backend<usize>,
        bytes: &[u8],
    ) -> (Vec<(usize, Answer)>, Result<(), Nonsense>) {
        let mut done = Vec::new();
        let result = backend.receive(bytes, |exchange, answer| done.push((exchange.job, answer)));
        (done, result)
    }

    fn reply(text: &str) -> Answer {
        Answer::Reply(text.as_bytes().to_vec())
    }

    #[test]
    fn answers_go_to_requests_in_order() {
        let mut backend = backend(&[1, 2, 1]);
        let (done, result) = receive(&mut backend, b"+a\r\n:1\r\n:");
        assert_eq!((done, result), (vec![(0, reply("+a\r\n"))], Ok(())));
        let (done, _) = receive(&mut backend, b"2\r\n$1\r\nx\r\n");
        assert_eq!(done, [(1, reply(":1\r\n:2\r\n")), (2, reply("$1\r\nx\r\n"))]);
        assert!(backend.is_empty());
    }

    #[test]
    fn an_answer_that_is_too_long_takes_no_memory_and_the_next_is_found() {
        let mut backend = backend(&[1, 1]);
        let long = [&b"$1000\r\n"[..], &[b'x'; 1000], b"\r\n+b\r\n"].concat();
        let mut done = Vec::new();
        for fragment in long.chunks(7) {
            backend
                .receive(fragment, |exchange, answer| done.push((exchange.job, answer)))
                .unwrap();
            assert!(backend.exchanges.front().is_none_or(|first| first.reply.capacity() <= 32));
        }
        assert_eq!(done, [(0, Answer::TooLong), (1, reply("+b\r\n"))]);
    }

    #[test]
    fn what_nobody_asked_for_is_nonsense() {
        let (done, result) = receive(&mut backend(&[1]), b"+a\r\n+b\r\n");
        assert_eq!((done.len(), result), (1, Err(Nonsense::Unasked)));
        assert_eq!(receive(&mut backend(&[1]), b"VALUE").1, Err(Nonsense::Framing));
    }

    #[test]
    fn what_was_at_a_server_that_has_gone_is_given_back() {
        let mut backend = backend(&[2, 1]);
        receive(&mut backend, b"+a\r\n+").1.unwrap();
        assert_eq!(backend.fail().map(|exchange| exchange.job).collect::<Vec<_>>(), [0, 1]);
        assert!(backend.is_empty());
    }
}
