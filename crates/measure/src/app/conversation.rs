//! Conversation on one connection, whichever way its application speaks: in order, or as a session
//! of its own.
//!
//! | state | becomes | when |
//! |---|---|---|
//! | new | greeting | [`Conversation::begin`], where there is something to be said first |
//! | new, greeting | ready | nothing is to be said first, or it has been answered |
//! | ready | over | the server closes, or says what is no reply |
//!
//! Invariant: requests are numbered from 0 in the order in which they were written, and each number
//! is answered once at most.

use std::collections::VecDeque;
use std::fmt;

use super::codec::{Expected, Login, Session};
use super::exchange::Replies;
use super::registry::App;
use super::reply::{After, Answer, ErrorCode, Malformed, Outcome, Reply};

/// One connection's requests and replies.
#[derive(Debug)]
pub struct Conversation {
    app: App,
    way: Way,
}

enum Way {
    InOrder(InOrder),
    Session {
        session: Box<dyn Session>,
        /// The next request, before the session puts it on the wire.
        request: Vec<u8>,
        /// Number of the next request.
        next: u64,
        malformed: Option<Malformed>,
    },
}

/// A connection on which replies come in the order of requests.
struct InOrder {
    replies: Replies,
    /// Replies that are due, the oldest first; the greeting's before all others.
    due: VecDeque<Expected>,
    /// Number of the oldest.
    first: u64,
    greeting: Greeting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    /// [`Conversation::begin`] is to come.
    ToCome,
    Due,
    Over(Outcome),
}

impl Conversation {
    /// For a new connection of `app`.
    pub fn new(app: &App) -> Self {
        let way = match app.codec.session() {
            Some(session) => {
                Way::Session { session, request: Vec::new(), next: 0, malformed: None }
            }
            None => Way::InOrder(InOrder {
                replies: Replies::new(app),
                due: VecDeque::new(),
                first: 0,
                greeting: Greeting::ToCome,
            }),
        };
        Self { app: app.clone(), way }
    }

    /// Appends what the connection begins with, if anything; call it once, first of all.
    pub fn begin(&mut self, login: Option<Login<'_>>, out: &mut Vec<u8>) {
        match &mut self.way {
            Way::Session { session, .. } => session.begin(login, out),
            Way::InOrder(order) => {
                let greeting = self.app.write_greeting(login, out);
                let over = Greeting::Over(Outcome::Ok);
                order.greeting = if greeting.is_some() { Greeting::Due } else { over };
                order.due.extend(greeting);
            }
        }
    }

    /// True if the greeting or handshake is over, so that requests may be written.
    #[inline]
    pub fn is_ready(&self) -> bool {
        match &self.way {
            Way::Session { session, .. } => session.is_ready(),
            Way::InOrder(order) => matches!(order.greeting, Greeting::Over(_)),
        }
    }

    /// True if the server takes another request now.
    #[inline]
    pub fn has_room(&self) -> bool {
        match &self.way {
            Way::Session { session, .. } => session.has_room(),
            Way::InOrder(order) => matches!(order.greeting, Greeting::Over(_)),
        }
    }

    /// True if nothing more is to be had from the connection, though no reply has said so: close
    /// it. To be looked at when all bytes are taken, and when a request has been given up.
    pub fn is_spent(&self) -> bool {
        match &self.way {
            Way::Session { session, .. } => session.is_spent(),
            Way::InOrder(_) => false,
        }
    }

    /// Reason why the server does not let the connection in, if it has said so: in its words as far
    /// as the codec reads them, which may be none.
    pub fn refusal(&self) -> Option<String> {
        match &self.way {
            Way::Session { session, .. } => session.refusal(),
            Way::InOrder(InOrder { greeting: Greeting::Over(Outcome::Error(_)), .. }) => {
                Some(String::new())
            }
            Way::InOrder(_) => None,
        }
    }

    /// True if its requests are framed by a protocol in which bytes say nothing to people.
    pub fn is_session(&self) -> bool {
        matches!(self.way, Way::Session { .. })
    }

    /// Appends the request that `write` writes, and returns its number. To be called where
    /// [`Conversation::has_room`].
    #[inline]
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        write: &mut dyn FnMut(&mut Vec<u8>) -> Expected,
    ) -> u64 {
        match &mut self.way {
            Way::InOrder(order) => {
                order.due.push_back(write(out));
                order.first + order.due.len() as u64 - 1
            }
            Way::Session { session, request, next, .. } => {
                request.clear();
                write(request);
                session.write(request, out);
                *next += 1;
                *next - 1
            }
        }
    }

    /// Takes bytes up to the end of a reply; what the server is owed for them is appended to `out`.
    /// `None` says that all bytes are taken: call it until then, for one frame may answer several
    /// requests.
    ///
    /// # Errors
    ///
    /// That there is no more to be had from this connection: close it.
    #[inline]
    pub fn take(
        &mut self,
        bytes: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Answer>, Malformed> {
        match &mut self.way {
            Way::InOrder(order) => order.take(bytes),
            Way::Session { malformed: Some(malformed), .. } => Err(*malformed),
            Way::Session { session, malformed, .. } => {
                let taken = session.take(bytes, out);
                *malformed = taken.as_ref().err().copied();
                taken
            }
        }
    }

    /// A request is given up. Whether its number is released now; otherwise its reply is still to
    /// come.
    pub fn cancel(&mut self, number: u64, out: &mut Vec<u8>) -> bool {
        match &mut self.way {
            Way::Session { session, .. } => session.cancel(number, out),
            Way::InOrder(_) => false,
        }
    }

    /// The protocol's own name of the error that the last reply was.
    pub fn error_code(&self) -> ErrorCode {
        match &self.way {
            Way::Session { session, .. } => session.error_code(),
            Way::InOrder(order) => order.replies.error_code(),
        }
    }

    /// The server has closed the connection: the reply that ended so, if one did.
    ///
    /// # Errors
    ///
    /// Where that cut a reply short.
    pub fn finish(&mut self) -> Result<Option<Reply>, Malformed> {
        match &mut self.way {
            Way::Session { .. } => Ok(None),
            Way::InOrder(order) => order.replies.finish(),
        }
    }
}

impl InOrder {
    #[inline]
    fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Answer>, Malformed> {
        while !bytes.is_empty() {
            let Some(reply) = self.replies.take(bytes, self.due.front().copied())? else {
                return Ok(None);
            };
            self.due.pop_front();
            if self.greeting != Greeting::Due {
                self.first += 1;
                return Ok(Some(Answer { number: self.first - 1, reply }));
            }
            self.greeting = Greeting::Over(reply.outcome);
            if reply.after == After::Close {
                return Err(Malformed::Truncated);
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InOrder(order) => f
                .debug_struct("InOrder")
                .field("due", &order.due.len())
                .field("greeting", &order.greeting)
                .finish_non_exhaustive(),
            Self::Session { session, next, .. } => {
                f.debug_struct("Session").field("session", session).field("next", next).finish()
            }
        }
    }
}
