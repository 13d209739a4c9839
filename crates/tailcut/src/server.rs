//! The server: one port, a handler on the I/O thread or on worker threads.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Turn, Waker};
use tailcut_net::log::{self, DriverLog};
use tailcut_net::workers::{Job, Workers};
use tailcut_proto::endpoint::{Endpoint, Metrics};
use tailcut_proto::node::Time;
use tailcut_proto::rpc::{AnswerError, DropReason, Event, RequestId, Rpc};

use crate::error::Error;
use crate::options::{ServerBuilder, resolve};

/// A server on one port.
#[derive(Debug)]
pub struct Server {
    driver: Driver<Endpoint>,
    stop: Arc<AtomicBool>,
    log: DriverLog,
}

/// Stops a server from another thread.
#[derive(Clone, Debug)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    waker: Waker,
}

/// A request to answer. Dropping it refuses it.
#[derive(Debug)]
pub struct Request<'a> {
    endpoint: &'a mut Endpoint,
    now: Time,
    id: RequestId,
    client: SocketAddr,
    deadline: Time,
    payload: Vec<u8>,
    is_answered: bool,
}

impl ServerBuilder {
    /// A server at `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// [`Error::NoAddress`] when the name does not resolve, [`Error::Io`] when the port is taken or
    /// not to be had, of kind PermissionDenied where Homa directly over IP lacks CAP_NET_RAW.
    pub fn bind(&self, address: impl ToSocketAddrs + std::fmt::Debug) -> Result<Server, Error> {
        Ok(Server::new(self.setup.open(resolve(address)?)?))
    }

    /// `count` servers that share one port, one for each thread that will run it. All calls of a
    /// client's session reach the same one; a client draws a new session now and then; over Homa
    /// all calls of a client do. Not for servers behind a router, whose GSO batches mix sessions:
    /// give each of these a port of its own.
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::bind`]; [`Error::Io`] of kind Unsupported for Homa directly over IP.
    pub fn bind_group(
        &self,
        address: impl ToSocketAddrs + std::fmt::Debug,
        count: usize,
    ) -> Result<Vec<Server>, Error> {
        let drivers = self.setup.open_group(resolve(address)?, count)?;
        Ok(drivers.into_iter().map(Server::new).collect())
    }
}

impl Server {
    /// A server at `address` with the defaults of [`ServerBuilder`]; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::bind`].
    pub fn bind(address: impl ToSocketAddrs + std::fmt::Debug) -> Result<Self, Error> {
        ServerBuilder::new().bind(address)
    }

    pub(crate) fn new(driver: Driver<Endpoint>) -> Self {
        Self { driver, stop: Arc::new(AtomicBool::new(false)), log: DriverLog::default() }
    }

    /// The server's address.
    pub fn local_address(&self) -> SocketAddr {
        self.driver.port(0).local_address()
    }

    /// Stops [`Server::run`] and [`Server::run_workers`].
    pub fn stop_handle(&self) -> Stop {
        Stop { flag: self.stop.clone(), waker: self.driver.waker() }
    }

    /// Counters since the start.
    pub fn metrics(&self) -> Metrics {
        self.driver.node(0).metrics()
    }

    /// Answers requests on this thread until it is stopped. While the handler runs, nothing else is
    /// received or sent: let it take microseconds, or use [`Server::run_workers`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the socket has become useless.
    pub fn run(&mut self, mut handler: impl FnMut(Request<'_>)) -> Result<(), Error> {
        while !self.stop.load(Ordering::Relaxed) {
            let turn = self.turn_once(&mut handler)?;
            let look_at = self.look(turn);
            self.driver.wait(None, look_at)?;
        }
        Ok(())
    }

    /// Receives one burst, answers it and sends the replies; never waits. For a program with a loop
    /// of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the socket has become useless.
    pub fn turn(&mut self, handler: &mut impl FnMut(Request<'_>)) -> Result<(), Error> {
        let turn = self.turn_once(handler)?;
        self.look(turn);
        Ok(())
    }

    /// Logs what has gone wrong; returns when it wants to look again.
    fn look(&mut self, turn: Turn) -> Option<Time> {
        self.log.look(&self.driver, turn, |_, node| log::of_endpoint(&node.metrics()))
    }

    fn turn_once(&mut self, handler: &mut impl FnMut(Request<'_>)) -> Result<Turn, Error> {
        let turn = self.driver.turn_with(|_, endpoint, now| {
            while let Some(event) = endpoint.poll_event() {
                if let Event::Request { id, client, payload, deadline, .. } = event {
                    handler(Request {
                        endpoint,
                        now,
                        id,
                        client,
                        deadline,
                        payload,
                        is_answered: false,
                    });
                }
            }
        })?;
        Ok(turn)
    }

    /// Answers requests on `count` worker threads until it is stopped. One queue feeds them: a
    /// request goes to the worker that has the fewest, at most two at each (JBSQ(2)), over rings
    /// without locks. `handler` gets the request's bytes and an empty buffer for the reply's; a
    /// request that was cancelled meanwhile still runs to its end, and its reply is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the socket has become useless, no thread is to be had, or a handler has
    /// panicked.
    pub fn run_workers(
        &mut self,
        count: usize,
        handler: impl Fn(&[u8], &mut Vec<u8>) + Send + Sync,
    ) -> Result<(), Error> {
        let waker = self.driver.waker();
        std::thread::scope(|scope| {
            let mut workers = Workers::start(scope, count, &waker, &handler)?;
            while !self.stop.load(Ordering::Relaxed) {
                let mut health = Ok(());
                let turn = self.driver.turn_with(|_, endpoint, now| {
                    health = workers.poll_done(now, |job| {
                        // A request that is gone by now needs no answer.
                        let _ = endpoint.reply(now, job.id, job.reply);
                        endpoint.recycle(job.request);
                    });
                    while let Some(event) = endpoint.poll_event() {
                        if let Event::Request { id, payload, deadline, .. } = event {
                            let job = Job { id, request: payload, reply: endpoint.buffer() };
                            if let Err(job) = workers.offer(job, deadline) {
                                // Gone already is as good as refused.
                                let _ = endpoint.refuse(now, job.id, DropReason::Overload);
                                endpoint.recycle(job.request);
                            }
                        }
                    }
                })?;
                health?;
                let look_at = self.look(turn);
                self.driver.wait(None, look_at)?;
            }
            Ok(())
        })
    }
}

impl Stop {
    /// Stops the server after its current turn.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

impl Request<'_> {
    /// The request's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.payload
    }

    /// Who asks: the client itself, also behind a router.
    pub fn client(&self) -> SocketAddr {
        self.client
    }

    /// How long the client will still wait.
    pub fn time_left(&self) -> Duration {
        Duration::from_nanos(self.deadline.saturating_sub(self.now))
    }

    /// Answers with `reply`.
    ///
    /// # Errors
    ///
    /// [`AnswerError`] when the reply is too long or the request has expired; nothing is left to do
    /// then.
    pub fn reply(self, reply: &[u8]) -> Result<(), AnswerError> {
        self.reply_with(|_, buffer| buffer.extend_from_slice(reply))
    }

    /// Answers with what `write` puts into a buffer, given the request's bytes: no copy.
    ///
    /// # Errors
    ///
    /// As [`Request::reply`].
    pub fn reply_with(
        mut self,
        write: impl FnOnce(&[u8], &mut Vec<u8>),
    ) -> Result<(), AnswerError> {
        let mut buffer = self.endpoint.buffer();
        write(&self.payload, &mut buffer);
        self.is_answered = true;
        self.endpoint.reply(self.now, self.id, buffer)
    }

    /// Answers with the request's own bytes, after `change`.
    ///
    /// # Errors
    ///
    /// As [`Request::reply`].
    pub fn reply_in_place(mut self, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), AnswerError> {
        let mut payload = std::mem::take(&mut self.payload);
        change(&mut payload);
        self.is_answered = true;
        self.endpoint.reply(self.now, self.id, payload)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // Gone already is as good as refused.
            let _ = self.endpoint.refuse(self.now, self.id, DropReason::Application);
        }
        self.endpoint.recycle(std::mem::take(&mut self.payload));
    }
}
