//! The blocking client: one socket, driven by whoever waits.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Driver;
use tailcut_net::loan::Loan;
use tailcut_net::log::{self, DriverLog};
use tailcut_proto::endpoint::{Endpoint, Metrics};
use tailcut_proto::node::{Node, Time};
use tailcut_proto::rpc::{Call, CallId, CallOptions, Event, Lent, Rpc};

use crate::error::{Ending, Error};
use crate::options::ClientBuilder;

/// A client of one server or router. It belongs to one thread at a time and costs one socket; make
/// one for each thread.
#[derive(Debug)]
pub struct Client {
    inner: RefCell<Inner>,
    target: SocketAddr,
    timeout: Duration,
    options: CallOptions,
}

/// A call that has been started. Dropping it cancels the call: a server drops the request where it
/// waits, and one that runs may ask.
#[derive(Debug)]
#[must_use = "dropping a pending call cancels it"]
pub struct Pending<'a> {
    client: &'a Client,
    place: usize,
}

/// A reply's bytes. Dropping it gives the buffer back to its client.
#[derive(Debug)]
pub struct Reply<'a> {
    client: &'a Client,
    bytes: Vec<u8>,
    server: SocketAddr,
}

#[derive(Debug)]
struct Inner {
    driver: Driver<Endpoint>,
    /// By a call's context: what is known of it.
    calls: Vec<Slot>,
    free: Vec<usize>,
    /// Calls that have not ended.
    waiting: usize,
    /// Time of the first of the calls that have not left yet: the time of all of them.
    queued_at: Option<Time>,
    /// The log of what goes wrong, and when that is next looked at.
    log: (DriverLog, Option<Time>),
}

#[derive(Debug)]
enum Slot {
    Free,
    Waiting(CallId),
    Replied(Vec<u8>, SocketAddr),
    Failed(Ending),
}

/// A request as a caller gives it.
enum Given<'a> {
    /// To be copied.
    Copied(&'a [u8]),
    /// To be sent from where it is.
    Lent(Lent),
}

impl Given<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Lent(lent) => lent.bytes().len(),
        }
    }
}

impl ClientBuilder {
    /// A client of the server or router at `target`. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Error::NoAddress`] when the name has no address, [`Error::Open`] when it does not resolve
    /// or no socket is to be had, of kind PermissionDenied where Homa directly over IP lacks
    /// CAP_NET_RAW.
    pub fn connect(&self, target: impl ToSocketAddrs + std::fmt::Debug) -> Result<Client, Error> {
        let (target, driver) = self.open(target)?;
        Ok(Client::new(target, driver, self))
    }
}

impl Client {
    /// A client of the server or router at `target`, with the defaults of [`ClientBuilder`].
    /// Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    pub fn connect(target: impl ToSocketAddrs + std::fmt::Debug) -> Result<Self, Error> {
        ClientBuilder::new().connect(target)
    }

    pub(crate) fn new(
        target: SocketAddr,
        driver: Driver<Endpoint>,
        builder: &ClientBuilder,
    ) -> Self {
        let (calls, free, waiting, queued_at) = (Vec::new(), Vec::new(), 0, None);
        let log = (DriverLog::default(), None);
        let inner = RefCell::new(Inner { driver, calls, free, waiting, queued_at, log });
        Self { inner, target, timeout: builder.timeout, options: builder.options }
    }

    /// Calls and waits for the reply.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the call could not be made, [`Error::Rejected`] when the server's
    /// application refused it, [`Error::Failed`] when it was refused otherwise or its deadline
    /// passed.
    pub fn call(&self, request: &[u8]) -> Result<Reply<'_>, Error> {
        self.call_with(request, self.options, self.timeout)
    }

    /// Calls with options and a timeout of its own and waits for the reply.
    ///
    /// # Errors
    ///
    /// As [`Client::call`].
    pub fn call_with(
        &self,
        request: &[u8],
        options: CallOptions,
        timeout: Duration,
    ) -> Result<Reply<'_>, Error> {
        if request.len() < LENT_LEN_MIN {
            return self.start_with(request, options, timeout)?.wait();
        }
        // Nobody touches a long request before its call has ended: it is sent from where it is.
        Loan::scope(request, |loan| {
            let lent = Given::Lent(Lent::new(loan.lend()));
            self.start_given(lent, options, timeout)?.wait()
        })
    }

    /// Starts a call and returns at once, so that many can be outstanding; when as many are as the
    /// configuration allows, it waits until one has ended. The request's first packet has left when
    /// this returns, and so has what was enqueued before; the rest of a longer request leaves while
    /// something waits.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the request is too long or its timeout out of range, [`Error::Io`] when
    /// the socket has become useless.
    pub fn start(&self, request: &[u8]) -> Result<Pending<'_>, Error> {
        self.start_with(request, self.options, self.timeout)
    }

    /// Starts a call as [`Client::start`] does, with options and a timeout of its own.
    ///
    /// # Errors
    ///
    /// As [`Client::start`].
    pub fn start_with(
        &self,
        request: &[u8],
        options: CallOptions,
        timeout: Duration,
    ) -> Result<Pending<'_>, Error> {
        self.start_given(Given::Copied(request), options, timeout)
    }

    /// Starts a call as [`Client::start`] does, of which nothing is copied: the request is sent
    /// from where it is, which several calls may share. The client releases it when the call ends
    /// or its [`Pending`] is dropped.
    ///
    /// # Errors
    ///
    /// As [`Client::start`].
    pub fn start_shared(
        &self,
        request: Arc<dyn AsRef<[u8]> + Send + Sync>,
    ) -> Result<Pending<'_>, Error> {
        self.start_given(Given::Lent(Lent::new(request)), self.options, self.timeout)
    }

    fn start_given(
        &self,
        request: Given<'_>,
        options: CallOptions,
        timeout: Duration,
    ) -> Result<Pending<'_>, Error> {
        let place = self.inner.borrow_mut().queue(self.target, request, options, timeout)?;
        // It cancels the call, whatever happens from now on.
        let pending = Pending { client: self, place };
        self.flush();
        Ok(pending)
    }

    /// Starts a call that leaves with the next [`Client::flush`] or [`Client::start`], or the next
    /// [`Pending::wait`] or [`Pending::is_done`] of a call that has not ended, so that several
    /// leave together: as one GSO batch where their sizes are equal. The timeout of all of them
    /// counts from the first.
    ///
    /// # Errors
    ///
    /// As [`Client::start`].
    pub fn enqueue(&self, request: &[u8]) -> Result<Pending<'_>, Error> {
        self.enqueue_with(request, self.options, self.timeout)
    }

    /// Enqueues a call as [`Client::enqueue`] does, with options and a timeout of its own.
    ///
    /// # Errors
    ///
    /// As [`Client::start`].
    pub fn enqueue_with(
        &self,
        request: &[u8],
        options: CallOptions,
        timeout: Duration,
    ) -> Result<Pending<'_>, Error> {
        let request = Given::Copied(request);
        let place = self.inner.borrow_mut().queue(self.target, request, options, timeout)?;
        Ok(Pending { client: self, place })
    }

    /// Sends what has been enqueued.
    pub fn flush(&self) {
        self.inner.borrow_mut().flush();
    }

    /// Timeout of calls that do not say otherwise.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Options of calls that do not say otherwise.
    pub fn options(&self) -> CallOptions {
        self.options
    }

    /// The client's own address.
    pub fn local_address(&self) -> SocketAddr {
        self.inner.borrow().driver.port(0).local_address()
    }

    /// Counters since the start.
    pub fn metrics(&self) -> Metrics {
        self.inner.borrow().driver.node(0).metrics()
    }
}

impl<'a> Pending<'a> {
    /// Waits for the reply.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] when the server's application refused the call, [`Error::Failed`] when
    /// it was refused otherwise or its deadline passed; [`Error::Io`] when the socket has become
    /// useless.
    pub fn wait(self) -> Result<Reply<'a>, Error> {
        let mut inner = self.client.inner.borrow_mut();
        while !inner.is_done(self.place) {
            inner.turn()?;
            if !inner.is_done(self.place) {
                inner.sleep(None)?;
            }
        }
        let ended = std::mem::replace(&mut inner.calls[self.place], Slot::Free);
        inner.free.push(self.place);
        drop(inner);
        let client = self.client;
        // Its place is free, and nothing is left to cancel.
        std::mem::forget(self);
        match ended {
            Slot::Replied(bytes, server) => Ok(Reply { client, bytes, server }),
            Slot::Failed(ending) => Err(Error::failed(client.target, ending)),
            Slot::Free | Slot::Waiting(_) => unreachable!("the call has ended"),
        }
    }

    /// Waits for `limit` at most, and says whether the call has ended: [`Pending::wait`] returns at
    /// once then. For a program that has to look at something else now and then.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the socket has become useless.
    pub fn wait_for(&self, limit: Duration) -> Result<bool, Error> {
        let mut inner = self.client.inner.borrow_mut();
        if inner.is_done(self.place) {
            return Ok(true);
        }
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let mut until = None;
        loop {
            let now = inner.turn()?;
            if inner.is_done(self.place) {
                return Ok(true);
            }
            let until = *until.get_or_insert(now.saturating_add(limit_ns));
            if now >= until {
                return Ok(false);
            }
            inner.sleep(Some(until))?;
        }
    }

    /// True if the call has ended, after looking at the socket once. Never waits.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the socket has become useless.
    pub fn is_done(&self) -> Result<bool, Error> {
        let mut inner = self.client.inner.borrow_mut();
        if !inner.is_done(self.place) {
            inner.turn()?;
        }
        Ok(inner.is_done(self.place))
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.client.inner.borrow_mut().abandon(self.place);
    }
}

impl Reply<'_> {
    /// Address of the server that answered: the server itself, also behind a router.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// Keeps the bytes.
    pub fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Deref for Reply<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.client.inner.borrow_mut().driver.node_mut(0).recycle(bytes);
    }
}

impl Drop for Inner {
    /// A server keeps the last reply, and asks for it, until it hears that it has come.
    fn drop(&mut self) {
        let now = self.driver.clock().now();
        self.driver.node_mut(0).say_farewell();
        self.driver.flush_all(now);
    }
}

impl Inner {
    fn queue(
        &mut self,
        target: SocketAddr,
        request: Given<'_>,
        options: CallOptions,
        timeout: Duration,
    ) -> Result<usize, Error> {
        while self.waiting > 0 && !self.driver.node_mut(0).may_call(target, request.len()) {
            self.wait_for_end()?;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.calls.push(Slot::Free);
            self.calls.len() - 1
        });
        let now = self.queued_at.unwrap_or_else(|| self.driver.clock().now());
        // A turn may have been long ago.
        self.driver.refresh(now);
        let node = self.driver.node_mut(0);
        let deadline = now.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let call = |payload| Call { target, payload, deadline, context: place as u64, options };
        let begun = match request {
            Given::Copied(bytes) => {
                let mut payload = node.buffer_for(bytes.len());
                payload.extend_from_slice(bytes);
                node.call(now, call(payload))
            }
            Given::Lent(lent) => node.call_lent(now, call(Vec::new()), lent),
        };
        match begun {
            Ok(id) => {
                self.queued_at = Some(now);
                self.calls[place] = Slot::Waiting(id);
                self.waiting += 1;
                Ok(place)
            }
            Err(source) => {
                self.free.push(place);
                Err(Error::Call { target, source })
            }
        }
    }

    /// Waits until one of the calls has ended; each does by its deadline.
    fn wait_for_end(&mut self) -> Result<(), Error> {
        let before = self.waiting;
        loop {
            self.turn()?;
            if self.waiting < before {
                return Ok(());
            }
            self.sleep(None)?;
        }
    }

    fn flush(&mut self) {
        if self.queued_at.take().is_some() {
            let now = self.driver.clock().now();
            self.driver.flush_all(now);
        }
    }

    /// Sends what has been enqueued before what has come is worked on: the server works on it
    /// meanwhile. Not once something is due, which is looked at when all that has come is known: a
    /// call that has waited here for so long would go twice, or after its deadline.
    fn send_ahead(&mut self) {
        let now = self.driver.clock().now();
        self.driver.refresh(now);
        if self.driver.node(0).poll_timeout().is_none_or(|due| due > now) {
            self.driver.flush(now);
        }
    }

    fn is_done(&self, place: usize) -> bool {
        !matches!(self.calls[place], Slot::Waiting(_))
    }

    /// One turn; returns its time.
    fn turn(&mut self) -> Result<Time, Error> {
        if self.queued_at.take().is_some() {
            self.send_ahead();
        }
        let Self { driver, calls, waiting, .. } = self;
        let turn = driver.turn_with(|_, node, _now: Time| {
            while let Some(event) = node.poll_event() {
                // A call that was abandoned before its end was heard of may have left its place to
                // another one.
                let is_awaited = |context: u64, id| matches!(calls.get(context as usize), Some(Slot::Waiting(known)) if *known == id);
                match event {
                    Event::Replied { context, id, payload, server } if is_awaited(context, id) => {
                        calls[context as usize] = Slot::Replied(payload, server);
                        *waiting -= 1;
                    }
                    Event::Failed { context, id, failure, server, text, retry_after_ns }
                        if is_awaited(context, id) =>
                    {
                        let ending = Ending { failure, server, text, retry_after_ns };
                        calls[context as usize] = Slot::Failed(ending);
                        *waiting -= 1;
                    }
                    Event::Replied { payload, .. } | Event::Request { payload, .. } => {
                        node.recycle(payload);
                    }
                    Event::Failed { .. } | Event::Cancelled { .. } => {}
                }
            }
        })?;
        let Self { driver, log: (log, look_at), .. } = self;
        *look_at = log.look(driver, turn, |_, node| log::of_endpoint(&node.metrics()));
        Ok(turn.now)
    }

    /// Waits for the socket, until a time at most.
    fn sleep(&mut self, until: Option<Time>) -> io::Result<()> {
        self.driver.wait(None, until.into_iter().chain(self.log.1).min())
    }

    /// A pending call is dropped: cancels it, or drops its result.
    fn abandon(&mut self, place: usize) {
        match std::mem::replace(&mut self.calls[place], Slot::Free) {
            // It is not there: who waits, and frees the place, forgets the call.
            Slot::Free => return,
            Slot::Waiting(id) => {
                self.waiting -= 1;
                let now = self.driver.clock().now();
                self.driver.node_mut(0).cancel(now, id);
                self.queued_at = None;
                self.driver.flush(now);
            }
            Slot::Replied(bytes, _) => self.driver.node_mut(0).recycle(bytes),
            Slot::Failed(..) => {}
        }
        self.free.push(place);
    }
}

/// Bytes of a request from which on a call that waits sends it from where it is: fewer are copied
/// sooner than lent.
const LENT_LEN_MIN: usize = 16 << 10;
