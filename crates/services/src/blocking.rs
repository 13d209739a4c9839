//! Carries calls of a thread that waits for them.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::net::ToSocketAddrs;

use tailcut::{CallOptions, Error};

use crate::call::{read_reply, write_request};
use crate::channel::{Transport, options_for};
use crate::codec::Codec;
use crate::message::{Request, Response};
use crate::method::Method;
use crate::status::Status;

/// Carries calls of one thread, each of which waits for its reply. Make one for each thread.
///
/// It works only while one of its calls waits, as [`tailcut::Client`] does.
#[derive(Debug)]
pub struct Client {
    client: tailcut::Client,
    /// A request while it is written; empty in between.
    buffer: RefCell<Vec<u8>>,
}

/// Carries calls that leave at once and are waited for later, so that many can be outstanding.
#[derive(Clone, Copy, Debug)]
pub struct Starting<'c>(&'c Client);

/// Carries calls that leave together, with the next [`Client::flush`] or wait.
#[derive(Clone, Copy, Debug)]
pub struct Enqueuing<'c>(&'c Client);

/// A call that has been started. Dropping it cancels the call.
#[must_use = "dropping a pending call cancels it"]
pub struct Pending<'c, C, R> {
    call: tailcut::Pending<'c>,
    reply: PhantomData<fn() -> (C, R)>,
}

impl Client {
    /// A client of the server or router at `target`, with the defaults of
    /// [`tailcut::ClientBuilder`]: calls of a second.
    ///
    /// # Errors
    ///
    /// As [`tailcut::Client::connect`].
    pub fn connect(target: impl ToSocketAddrs + std::fmt::Debug) -> Result<Self, Error> {
        tailcut::Client::connect(target).map(Self::new)
    }

    /// Carries calls over a client, with its timeout and options; a method that is idempotent is
    /// called as one whatever these say.
    pub fn new(client: tailcut::Client) -> Self {
        Self { client, buffer: RefCell::default() }
    }

    /// The client that it is over.
    pub fn client(&self) -> &tailcut::Client {
        &self.client
    }

    /// For calls that leave at once and are waited for later: a client of a service over this
    /// returns [`Pending`] calls.
    pub fn start(&self) -> Starting<'_> {
        Starting(self)
    }

    /// For calls that leave together and are waited for later.
    pub fn enqueue(&self) -> Enqueuing<'_> {
        Enqueuing(self)
    }

    /// Sends what has been enqueued.
    pub fn flush(&self) {
        self.client.flush();
    }

    /// Writes a request and gives it to `send`.
    fn send<'c, C: Codec<Q>, Q, T>(
        &'c self,
        method: &Method,
        request: &Request<Q>,
        send: impl FnOnce(
            &'c tailcut::Client,
            &[u8],
            CallOptions,
            std::time::Duration,
        ) -> Result<T, Error>,
    ) -> Result<T, Status> {
        let mut buffer = self.buffer.borrow_mut();
        buffer.clear();
        write_request::<C, Q>(&mut buffer, method, request.get_ref())?;
        let options = options_for(self.client.options(), method);
        let timeout = request.timeout().unwrap_or(self.client.timeout());
        Ok(send(&self.client, &buffer, options, timeout)?)
    }
}

impl Transport for Client {
    type Call<'a, C: Codec<R>, R: Send + 'static> = Result<Response<R>, Status>;

    fn call<C, Q, R>(
        &self,
        method: &'static Method,
        request: Request<Q>,
    ) -> Result<Response<R>, Status>
    where
        C: Codec<Q> + Codec<R>,
        R: Send + 'static,
    {
        let reply = self.send::<C, Q, _>(method, &request, tailcut::Client::call_with)?;
        read_reply::<C, R>(&reply).map(|message| Response::from_server(message, reply.server()))
    }
}

impl<'c> Transport for Starting<'c> {
    type Call<'a, C: Codec<R>, R: Send + 'static>
        = Result<Pending<'c, C, R>, Status>
    where
        Self: 'a;

    fn call<C, Q, R>(
        &self,
        method: &'static Method,
        request: Request<Q>,
    ) -> Result<Pending<'c, C, R>, Status>
    where
        C: Codec<Q> + Codec<R>,
        R: Send + 'static,
    {
        let call = self.0.send::<C, Q, _>(method, &request, tailcut::Client::start_with)?;
        Ok(Pending { call, reply: PhantomData })
    }
}

impl<'c> Transport for Enqueuing<'c> {
    type Call<'a, C: Codec<R>, R: Send + 'static>
        = Result<Pending<'c, C, R>, Status>
    where
        Self: 'a;

    fn call<C, Q, R>(
        &self,
        method: &'static Method,
        request: Request<Q>,
    ) -> Result<Pending<'c, C, R>, Status>
    where
        C: Codec<Q> + Codec<R>,
        R: Send + 'static,
    {
        let call = self.0.send::<C, Q, _>(method, &request, tailcut::Client::enqueue_with)?;
        Ok(Pending { call, reply: PhantomData })
    }
}

impl<C: Codec<R>, R> Pending<'_, C, R> {
    /// Waits for the response.
    ///
    /// # Errors
    ///
    /// The status that the server gave, or that says why the call came to nothing.
    pub fn wait(self) -> Result<Response<R>, Status> {
        let reply = self.call.wait()?;
        read_reply::<C, R>(&reply).map(|message| Response::from_server(message, reply.server()))
    }

    /// True if the call has ended, after looking at the socket once. Never waits.
    ///
    /// # Errors
    ///
    /// When the socket has become useless.
    pub fn is_done(&self) -> Result<bool, Status> {
        Ok(self.call.is_done()?)
    }
}

impl<C, R> std::fmt::Debug for Pending<'_, C, R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Pending").field(&self.call).finish()
    }
}
