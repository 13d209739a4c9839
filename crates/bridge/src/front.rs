//! One connection of a client: its bytes to calls, and their answers back in order.

use crate::call::{Call, Failed, Limits};
use crate::http::server::Server;
use crate::resp::keys::Groups;
use crate::resp::session::Session;

/// Protocol of a gateway's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontKind {
    /// Redis' protocol.
    Redis,
    /// HTTP/1.1.
    Http,
}

/// One connection of a client.
#[derive(Debug)]
pub enum Front {
    /// A client of Redis.
    Redis(Session),
    /// A client of HTTP.
    Http(Box<Server>),
}

/// Calls the same method of whichever it is.
macro_rules! each {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self {
            Self::Redis(session) => session.$method($($argument),*),
            Self::Http(server) => server.$method($($argument),*),
        }
    };
}

impl Front {
    /// A connection that has said nothing yet; of HTTP, `groups` mean nothing.
    pub fn new(kind: FrontKind, limits: Limits, groups: &Groups) -> Self {
        match kind {
            FrontKind::Redis => Self::Redis(Session::new(limits, groups.clone())),
            FrontKind::Http => Self::Http(Box::new(Server::new(limits))),
        }
    }

    /// Takes what the client says.
    pub fn receive(&mut self, bytes: &[u8]) {
        each!(self.receive(bytes));
    }

    /// The client says no more: what it has said is still answered.
    pub fn finish(&mut self) {
        each!(self.finish());
    }

    /// The next call to make. To be asked after every other method, until `None`.
    pub fn poll_call(&mut self) -> Option<Call> {
        each!(self.poll_call())
    }

    /// A call has ended.
    pub fn answer(&mut self, ticket: u64, answer: Result<Vec<u8>, Failed>) {
        each!(self.answer(ticket, answer));
    }

    /// Appends what the client is to get.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        each!(self.write(out));
    }

    /// True if more may be read from the client.
    pub fn is_reading(&self) -> bool {
        each!(self.is_reading())
    }

    /// True if it has ended, once what [`Front::write`] gave has been sent.
    pub fn is_over(&self) -> bool {
        each!(self.is_over())
    }

    /// True if a request has begun and not ended.
    pub fn is_partial(&self) -> bool {
        each!(self.is_partial())
    }

    /// True if nothing is under way.
    pub fn is_idle(&self) -> bool {
        each!(self.is_idle())
    }

    /// Bytes held for it.
    pub fn held(&self) -> usize {
        each!(self.held())
    }
}
