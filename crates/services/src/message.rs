//! Requests and responses: a message, and what is known of its call.

use std::net::SocketAddr;
use std::time::Duration;

use tailcut::Deadline;

/// A request's message. A client may set its timeout, a server may ask who called and for how long
/// they will wait.
#[derive(Clone, Debug)]
pub struct Request<T> {
    message: T,
    timeout: Option<Duration>,
    origin: Option<Origin>,
}

/// Caller of a request, as the server knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) client: SocketAddr,
    pub(crate) identity: Option<u32>,
    pub(crate) deadline: Deadline,
    pub(crate) is_idempotent: bool,
}

/// A response's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<T> {
    message: T,
    server: Option<SocketAddr>,
}

/// Argument of a client's method: a [`Request`], or a message alone.
pub trait IntoRequest<T> {
    /// The request.
    fn into_request(self) -> Request<T>;
}

impl<T> IntoRequest<T> for T {
    fn into_request(self) -> Request<T> {
        Request::new(self)
    }
}

impl<T> IntoRequest<T> for Request<T> {
    fn into_request(self) -> Self {
        self
    }
}

impl<T> Request<T> {
    /// A request with the client's timeout.
    pub fn new(message: T) -> Self {
        Self { message, timeout: None, origin: None }
    }

    pub(crate) fn received(message: T, origin: Origin) -> Self {
        Self { message, timeout: None, origin: Some(origin) }
    }

    /// Sets the timeout of the call, at most a minute; the deadline travels to the server.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    /// Timeout that [`Request::set_timeout`] has set.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// At a server: the client's address, its own also behind a router.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.origin.map(|origin| origin.client)
    }

    /// At a server whose packets are sealed: the number of the client's keys, which is who calls,
    /// also behind a router.
    pub fn identity(&self) -> Option<u32> {
        self.origin.and_then(|origin| origin.identity)
    }

    /// At a server: how long the client will still wait.
    pub fn time_left(&self) -> Option<Duration> {
        self.origin.map(|origin| origin.deadline.time_left())
    }

    /// At a server: whether the call is one that may run more than once, here or elsewhere.
    pub fn is_idempotent(&self) -> bool {
        self.origin.is_some_and(|origin| origin.is_idempotent)
    }

    /// The message.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// The message.
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }
}

impl<T> Response<T> {
    /// A response.
    pub fn new(message: T) -> Self {
        Self { message, server: None }
    }

    pub(crate) fn from_server(message: T, server: SocketAddr) -> Self {
        Self { message, server: Some(server) }
    }

    /// At a blocking client: who answered, the server itself also behind a router.
    pub fn server(&self) -> Option<SocketAddr> {
        self.server
    }

    /// The message.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// The message.
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }
}

impl<T> From<T> for Response<T> {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}
