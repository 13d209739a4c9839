//! Carriers of a client's calls, and the one for tasks.

use std::future::Future;
use std::marker::PhantomData;
use std::net::ToSocketAddrs;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tailcut::{AsyncCall, AsyncClient, CallOptions, Error};

use crate::call::{read_reply, write_request};
use crate::codec::Codec;
use crate::message::{Request, Response};
use crate::method::Method;
use crate::status::Status;

/// Carrier of a client's calls: a client of a service has the same methods over each, which differ
/// in what they return.
///
/// | over | a method returns |
/// |---|---|
/// | [`Channel`] | a future of the response |
/// | [`Client`](crate::Client) | the response, when it has come |
/// | [`Starting`](crate::Starting), [`Enqueuing`](crate::Enqueuing) | a [`Pending`](crate::Pending) call |
pub trait Transport {
    /// A call whose reply is of type `R`.
    type Call<'a, C: Codec<R>, R: Send + 'static>
    where
        Self: 'a;

    /// Calls a method.
    fn call<C, Q, R>(&self, method: &'static Method, request: Request<Q>) -> Self::Call<'_, C, R>
    where
        C: Codec<Q> + Codec<R>,
        R: Send + 'static;
}

/// Carries calls of tasks. Cloning it is cheap; clones share one socket and one thread.
#[derive(Clone, Debug)]
pub struct Channel {
    client: AsyncClient,
}

/// A call in progress: resolves to the response. Dropping it cancels the call.
#[must_use = "a call is made when it is awaited or kept; dropping it cancels it"]
pub struct Calling<C, R> {
    call: CallingBytes,
    reply: PhantomData<fn() -> (C, R)>,
}

/// A call in progress: resolves to the reply's bytes, with their header. Dropping it cancels the
/// call.
#[derive(Debug)]
#[must_use = "a call is made when it is awaited or kept; dropping it cancels it"]
pub struct CallingBytes(State);

#[derive(Debug)]
enum State {
    /// Nothing was sent; `None` once that is told.
    Failed(Option<Status>),
    Sent(AsyncCall),
}

impl Channel {
    /// A channel to the server or router at `target`, with the defaults of
    /// [`tailcut::ClientBuilder`]: calls of a second. A name is resolved on the caller's thread.
    ///
    /// # Errors
    ///
    /// As [`AsyncClient::connect`].
    pub fn connect(target: impl ToSocketAddrs + std::fmt::Debug) -> Result<Self, Error> {
        AsyncClient::connect(target).map(Self::new)
    }

    /// A channel over a client, with its timeout and options; a method that is idempotent is called
    /// as one whatever these say.
    pub fn new(client: AsyncClient) -> Self {
        Self { client }
    }

    /// The client that it is over.
    pub fn client(&self) -> &AsyncClient {
        &self.client
    }

    /// Sends a request that has been written.
    pub(crate) fn send(
        &self,
        method: &Method,
        bytes: Vec<u8>,
        timeout: Option<Duration>,
    ) -> CallingBytes {
        let options = options_for(self.client.options(), method);
        let timeout = timeout.unwrap_or(self.client.timeout());
        CallingBytes(State::Sent(self.client.call_with(bytes, options, timeout)))
    }
}

impl Transport for Channel {
    type Call<'a, C: Codec<R>, R: Send + 'static> = Calling<C, R>;

    fn call<C, Q, R>(&self, method: &'static Method, request: Request<Q>) -> Calling<C, R>
    where
        C: Codec<Q> + Codec<R>,
        R: Send + 'static,
    {
        let mut bytes = Vec::with_capacity(REQUEST_LEN_USUAL);
        let call = match write_request::<C, Q>(&mut bytes, method, request.get_ref()) {
            Ok(()) => self.send(method, bytes, request.timeout()),
            Err(status) => CallingBytes(State::Failed(Some(status))),
        };
        Calling { call, reply: PhantomData }
    }
}

impl Future for CallingBytes {
    type Output = Result<Vec<u8>, Status>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Failed(status) => {
                Poll::Ready(Err(status.take().expect("a call is not polled after its end")))
            }
            State::Sent(call) => Pin::new(call).poll(context).map_err(Status::from),
        }
    }
}

impl<C: Codec<R>, R> Future for Calling<C, R> {
    type Output = Result<Response<R>, Status>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = Pin::new(&mut self.call).poll(context);
        reply.map(|reply| read_reply::<C, R>(&reply?).map(Response::new))
    }
}

impl<C, R> std::fmt::Debug for Calling<C, R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Calling").field(&self.call).finish()
    }
}

/// Options of a method's calls, by a client's options.
pub(crate) fn options_for(options: CallOptions, method: &Method) -> CallOptions {
    CallOptions { idempotent: options.idempotent || method.is_idempotent(), ..options }
}

/// Bytes that a request is given room for.
const REQUEST_LEN_USUAL: usize = 128;
