//! The thread that drives a socket and its streams, and what tasks hand to it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Waker};
use tailcut_net::log::{self, DriverLog};
use tailcut_proto::endpoint::Metrics;
use tailcut_proto::homa::Endpoint;
use tailcut_proto::node::Time;
use tailcut_proto::stream::{Fault, StreamId, Streams};

use super::pipe::{Pipe, error};
use crate::lock;

/// Handle of tasks to an engine, which ends when the last of these has gone and every stream has
/// been closed.
#[derive(Debug)]
pub(super) struct Handle {
    inbox: Arc<Mutex<Inbox>>,
    waker: Waker,
    local: SocketAddr,
}

/// Orders that tasks hand to the thread, and streams that it hands to who accepts.
#[derive(Debug, Default)]
struct Inbox {
    orders: VecDeque<Order>,
    accepted: VecDeque<Accepted>,
    acceptor: Option<std::task::Waker>,
    /// Nobody accepts any more.
    is_deaf: bool,
    /// Nobody holds a handle any more.
    is_closed: bool,
    /// The thread has ended.
    is_dead: bool,
}

/// A stream that a peer has opened: with that, and the number of the client in its keys.
pub(super) type Accepted = (Arc<Pipe>, SocketAddr, Option<u32>);

#[derive(Debug)]
enum Order {
    Connect(SocketAddr, Arc<Pipe>),
    /// A task has changed something.
    Look(Arc<Pipe>),
    StopListening,
}

impl Handle {
    /// Starts the thread of an engine.
    pub(super) fn start(driver: Driver<Streams<Endpoint>>) -> io::Result<Arc<Self>> {
        let (waker, local) = (driver.waker(), driver.port(0).local_address());
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let theirs = inbox.clone();
        let engine = Engine { driver, inbox: theirs, orders: VecDeque::new(), pipes: Vec::new() };
        // Nobody waits for the thread: a task that drops the last handle must not block.
        std::thread::Builder::new()
            .name("tailcut-streams".to_owned())
            .spawn(move || engine.run())?;
        Ok(Arc::new(Self { inbox, waker, local }))
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Opens a stream.
    pub(super) fn connect(&self, target: SocketAddr) -> Arc<Pipe> {
        let pipe = Arc::new(Pipe::default());
        self.order(Order::Connect(target, pipe.clone()));
        pipe
    }

    /// Has the engine look at a stream that a task has changed.
    pub(super) fn look(&self, pipe: &Arc<Pipe>) {
        let is_listed = std::mem::replace(&mut pipe.lock().is_listed, true);
        if !is_listed {
            self.order(Order::Look(pipe.clone()));
        }
    }

    pub(super) fn poll_accept(&self, context: &Context<'_>) -> Poll<io::Result<Accepted>> {
        let mut inbox = lock(&self.inbox);
        let was_full = inbox.accepted.len() >= ACCEPTED_MAX;
        if let Some(next) = inbox.accepted.pop_front() {
            drop(inbox);
            if was_full {
                self.waker.wake();
            }
            return Poll::Ready(Ok(next));
        }
        if inbox.is_dead {
            return Poll::Ready(Err(error(Fault::Closed)));
        }
        inbox.acceptor = Some(context.waker().clone());
        Poll::Pending
    }

    /// Takes no further stream, and drops those that nobody has accepted.
    pub(super) fn stop_listening(&self) {
        let mut inbox = lock(&self.inbox);
        inbox.is_deaf = true;
        let waiting = std::mem::take(&mut inbox.accepted);
        drop(inbox);
        self.order(Order::StopListening);
        for (pipe, ..) in waiting {
            pipe.lock().is_dropped = true;
            self.look(&pipe);
        }
    }

    fn order(&self, order: Order) {
        let mut inbox = lock(&self.inbox);
        if inbox.is_dead {
            drop(inbox);
            if let Order::Connect(_, pipe) | Order::Look(pipe) = order {
                pipe.end(Fault::Closed);
            }
            return;
        }
        inbox.orders.push_back(order);
        drop(inbox);
        self.waker.wake();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.inbox).is_closed = true;
        self.waker.wake();
    }
}

/// The thread's side.
struct Engine {
    driver: Driver<Streams<Endpoint>>,
    inbox: Arc<Mutex<Inbox>>,
    /// Taken from the inbox and not carried out yet.
    orders: VecDeque<Order>,
    /// By the place of their stream.
    pipes: Vec<Option<(StreamId, Arc<Pipe>)>>,
}

impl Engine {
    fn run(mut self) {
        let mut log = DriverLog::default();
        loop {
            let is_closed = {
                let mut inbox = lock(&self.inbox);
                self.orders.append(&mut inbox.orders);
                inbox.is_closed
            };
            let Self { driver, inbox, orders, pipes } = &mut self;
            let turned = driver.turn_with(|_, streams, now| {
                let mut work = Work { streams, now, pipes };
                orders.drain(..).for_each(|order| work.carry_out(order));
                work.accept(inbox);
                work.look_at_changes();
            });
            // Who has not acknowledged an answer may not have heard it, and would find nobody to
            // ask.
            let is_over = is_closed
                && driver.node(0).is_empty()
                && driver.node(0).rpc().holdings().requests == 0;
            if is_over {
                // The other side waits for this before it ends.
                let now = driver.clock().now();
                driver.node_mut(0).say_farewell();
                driver.flush_all(now);
            }
            let Ok(turn) = turned else { break };
            let of_rpc = |_, streams: &Streams<Endpoint>| {
                log::of_endpoint(&Metrics::Homa(*streams.rpc().metrics()))
            };
            let look_at = log.look(driver, turn, of_rpc);
            if is_over || driver.wait(None, look_at).is_err() {
                break;
            }
        }
    }
}

impl Drop for Engine {
    /// No task is left waiting for ever, however the thread ends.
    fn drop(&mut self) {
        let mut inbox = lock(&self.inbox);
        inbox.is_dead = true;
        self.orders.append(&mut inbox.orders);
        let acceptor = inbox.acceptor.take();
        drop(inbox);
        acceptor.into_iter().for_each(std::task::Waker::wake);
        for order in self.orders.drain(..) {
            if let Order::Connect(_, pipe) | Order::Look(pipe) = order {
                pipe.end(Fault::Closed);
            }
        }
        self.pipes.drain(..).flatten().for_each(|(_, pipe)| pipe.end(Fault::Closed));
    }
}

/// One turn of the engine.
struct Work<'a> {
    streams: &'a mut Streams<Endpoint>,
    now: Time,
    pipes: &'a mut Vec<Option<(StreamId, Arc<Pipe>)>>,
}

impl Work<'_> {
    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Connect(target, pipe) => match self.streams.connect(self.now, target) {
                Ok(id) => {
                    pipe.lock().id = Some(id);
                    self.keep(id, pipe.clone());
                    self.look(&pipe);
                }
                Err(fault) => pipe.end(fault),
            },
            Order::Look(pipe) => {
                pipe.lock().is_listed = false;
                self.look(&pipe);
            }
            Order::StopListening => self.streams.stop_listening(self.now),
        }
    }

    /// Hands streams that peers have opened to who accepts them, as many as may wait there.
    fn accept(&mut self, inbox: &Mutex<Inbox>) {
        while lock(inbox).accepted.len() < ACCEPTED_MAX
            && let Some((id, peer)) = self.streams.accept()
        {
            let pipe = Arc::new(Pipe::default());
            pipe.lock().id = Some(id);
            self.keep(id, pipe.clone());
            let identity = self.streams.identity(id);
            let mut inbox = lock(inbox);
            let acceptor = inbox.acceptor.take();
            if inbox.is_deaf {
                pipe.lock().is_dropped = true;
            } else {
                inbox.accepted.push_back((pipe.clone(), peer, identity));
            }
            drop(inbox);
            self.look(&pipe);
            acceptor.into_iter().for_each(std::task::Waker::wake);
        }
    }

    fn look_at_changes(&mut self) {
        while let Some(id) = self.streams.poll_changed() {
            let known =
                self.pipes.get(id.place()).and_then(Option::as_ref).filter(|known| known.0 == id);
            if let Some(pipe) = known.map(|known| known.1.clone()) {
                self.look(&pipe);
            }
        }
    }

    /// Moves bytes between a stream and its task, and releases it when the task has.
    fn look(&mut self, pipe: &Arc<Pipe>) {
        let mut state = pipe.lock();
        let is_dropped = state.exchange(self.streams);
        let (id, has_unread, woken) = (state.id, !state.incoming.is_empty(), state.woken());
        drop(state);
        woken.wake();
        if let Some(id) = id.filter(|_| is_dropped) {
            pipe.lock().id = None;
            self.pipes[id.place()] = None;
            // As sockets do: what was not read is lost, and the peer is to know.
            if has_unread {
                self.streams.reset(self.now, id);
            } else {
                self.streams.close(self.now, id);
            }
        }
    }

    fn keep(&mut self, id: StreamId, pipe: Arc<Pipe>) {
        if self.pipes.len() <= id.place() {
            self.pipes.resize_with(id.place() + 1, || None);
        }
        self.pipes[id.place()] = Some((id, pipe));
    }
}

/// Streams that wait between the engine and who accepts them; more wait in the backlog.
const ACCEPTED_MAX: usize = 16;
