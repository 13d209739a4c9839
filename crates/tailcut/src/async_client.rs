//! The asynchronous client: a thread drives the socket, futures wait for what it hears. It needs no
//! particular runtime.

use std::collections::VecDeque;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Waker};
use tailcut_net::log::{self, DriverLog};
use tailcut_proto::endpoint::{Endpoint, Metrics};
use tailcut_proto::node::Time;
use tailcut_proto::rpc::{Call, CallId, CallOptions, Event, Rpc};

use crate::error::{Ending, Error};
use crate::lock;
use crate::options::ClientBuilder;

/// A client for tasks. Cloning it is cheap, and clones share one socket and one thread, which end
/// with the last of them and of their calls.
#[derive(Clone, Debug)]
pub struct AsyncClient {
    shared: Arc<Handle>,
    timeout: Duration,
    options: CallOptions,
}

/// A call in progress: resolves to the reply's bytes. Dropping it cancels the call.
#[derive(Debug)]
#[must_use = "a call is made when it is awaited or kept; dropping it cancels it"]
pub struct AsyncCall {
    state: Arc<Mutex<CallState>>,
    shared: Arc<Handle>,
}

/// Handle of the callers: dropping the last ends the thread.
#[derive(Debug)]
struct Handle {
    inbox: Arc<Mutex<Inbox>>,
    waker: Waker,
    target: SocketAddr,
    local: SocketAddr,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Inbox of the thread, which callers fill. Its orders are bounded by the permits: each call has
/// one from when it is ordered until it has ended, and is cancelled once.
#[derive(Debug)]
struct Inbox {
    orders: VecDeque<Order>,
    /// Calls that may still be ordered.
    permits: usize,
    /// Calls that wait for a permit, first come first served, some of which have been dropped.
    waiting: VecDeque<(Outgoing, Arc<Mutex<CallState>>)>,
    /// Number of those that have been dropped.
    dropped: usize,
    is_closed: bool,
    /// Counters at the end of the thread.
    metrics: Option<Metrics>,
}

/// A request on its way to the thread.
#[derive(Debug)]
struct Outgoing {
    payload: Vec<u8>,
    options: CallOptions,
    timeout_ns: u64,
}

#[derive(Debug)]
enum Order {
    Call(Outgoing, Arc<Mutex<CallState>>),
    Cancel(Arc<Mutex<CallState>>),
    Metrics(SyncSender<Metrics>),
}

#[derive(Debug, Default)]
struct CallState {
    /// Index at which the thread keeps the call, and its id; known to the thread alone.
    place: Option<(usize, CallId)>,
    /// It waits for a permit.
    is_waiting: bool,
    is_cancelled: bool,
    /// The result has been taken.
    is_over: bool,
    result: Option<Result<Vec<u8>, Error>>,
    task: Option<std::task::Waker>,
}

impl ClientBuilder {
    /// A client of the server or router at `target` for asynchronous callers; it runs a thread of
    /// its own.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    pub fn connect_async(
        &self,
        target: impl ToSocketAddrs + std::fmt::Debug,
    ) -> Result<AsyncClient, Error> {
        let (target, driver) = self.open(target)?;
        AsyncClient::new(target, driver, self)
    }
}

impl AsyncClient {
    /// A client of the server or router at `target`, with the defaults of [`ClientBuilder`].
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect_async`].
    pub fn connect(target: impl ToSocketAddrs + std::fmt::Debug) -> Result<Self, Error> {
        ClientBuilder::new().connect_async(target)
    }

    pub(crate) fn new(
        target: SocketAddr,
        driver: Driver<Endpoint>,
        builder: &ClientBuilder,
    ) -> Result<Self, Error> {
        let (waker, local) = (driver.waker(), driver.port(0).local_address());
        let inbox =
            Arc::new(Mutex::new(Inbox::new(builder.setup.calls_max().div_ceil(PERMITS_DIVISOR))));
        let theirs = inbox.clone();
        let engine = Engine {
            driver,
            inbox: theirs,
            orders: VecDeque::new(),
            target,
            calls: Calls::default(),
        };
        let open = |error| Error::open(target, error);
        let thread = std::thread::Builder::new()
            .name("tailcut-client".to_owned())
            .spawn(move || engine.run())
            .map_err(open)?;
        let thread = Mutex::new(Some(thread));
        let shared = Arc::new(Handle { inbox, waker, target, local, thread });
        Ok(Self { shared, timeout: builder.timeout, options: builder.options })
    }

    /// Calls. The request leaves at once, or, when a quarter of `calls_max` are outstanding, as
    /// soon as it is its turn; whether or not the future is polled.
    pub fn call(&self, request: impl Into<Vec<u8>>) -> AsyncCall {
        self.call_with(request, self.options, self.timeout)
    }

    /// Calls with options and a timeout of its own, which counts from when the request leaves.
    pub fn call_with(
        &self,
        request: impl Into<Vec<u8>>,
        options: CallOptions,
        timeout: Duration,
    ) -> AsyncCall {
        let state = Arc::new(Mutex::new(CallState::default()));
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let request = Outgoing { payload: request.into(), options, timeout_ns };
        self.shared.begin(request, state.clone());
        AsyncCall { state, shared: self.shared.clone() }
    }

    /// Timeout of calls that do not say otherwise.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Options of calls that do not say otherwise.
    pub fn options(&self) -> CallOptions {
        self.options
    }

    /// Address that calls go to.
    pub fn target(&self) -> SocketAddr {
        self.shared.target
    }

    /// The client's own address.
    pub fn local_address(&self) -> SocketAddr {
        self.shared.local
    }

    /// Counters since the start. It asks the client's thread, and blocks for as long as that takes:
    /// a turn of its loop.
    pub fn metrics(&self) -> Metrics {
        let (sender, receiver) = sync_channel(1);
        self.shared.order(Order::Metrics(sender));
        receiver.recv().unwrap_or_else(|_| {
            lock(&self.shared.inbox).metrics.expect("a thread that has ended has left its counters")
        })
    }
}

impl Future for AsyncCall {
    type Output = Result<Vec<u8>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.state);
        if let Some(result) = state.result.take() {
            state.is_over = true;
            return Poll::Ready(result);
        }
        state.task = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for AsyncCall {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        let is_over = state.is_over || state.result.is_some();
        let is_waiting = state.is_waiting;
        state.is_cancelled = true;
        drop(state);
        if is_waiting {
            lock(&self.shared.inbox).drop_one();
        } else if !is_over {
            self.shared.order(Order::Cancel(self.state.clone()));
        }
    }
}

impl Inbox {
    fn new(permits: usize) -> Self {
        Self {
            orders: VecDeque::new(),
            permits,
            waiting: VecDeque::new(),
            dropped: 0,
            is_closed: false,
            metrics: None,
        }
    }

    /// Calls have ended: others are ordered.
    fn release(&mut self, count: usize) {
        self.permits += count;
        while self.permits > 0
            && let Some((request, call)) = self.waiting.pop_front()
        {
            let mut state = lock(&call);
            state.is_waiting = false;
            if state.is_cancelled {
                self.dropped = self.dropped.saturating_sub(1);
                continue;
            }
            drop(state);
            self.permits -= 1;
            self.orders.push_back(Order::Call(request, call));
        }
    }

    /// A call that waits for a permit has been dropped. The queue is swept when half of it has.
    fn drop_one(&mut self) {
        self.dropped += 1;
        if 2 * self.dropped > self.waiting.len() {
            self.waiting.retain(|(_, state)| !lock(state).is_cancelled);
            self.dropped = 0;
        }
    }
}

impl Handle {
    /// Orders a call, or has it wait for a permit.
    fn begin(&self, request: Outgoing, state: Arc<Mutex<CallState>>) {
        let mut inbox = lock(&self.inbox);
        if inbox.permits == 0 && !inbox.is_closed {
            lock(&state).is_waiting = true;
            inbox.waiting.push_back((request, state));
            return;
        }
        inbox.permits = inbox.permits.saturating_sub(1);
        drop(inbox);
        self.order(Order::Call(request, state));
    }

    fn order(&self, order: Order) {
        let mut inbox = lock(&self.inbox);
        if inbox.is_closed {
            if let Order::Call(_, state) = order {
                end(&state, Err(Error::Closed { target: self.target }));
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
        if let Some(thread) = lock(&self.thread).take()
            && thread.thread().id() != std::thread::current().id()
        {
            // The thread has nothing to report, and a panic in it has been printed.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct Engine {
    driver: Driver<Endpoint>,
    inbox: Arc<Mutex<Inbox>>,
    /// Orders taken from the inbox; empty between turns.
    orders: VecDeque<Order>,
    target: SocketAddr,
    calls: Calls,
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
            if is_closed {
                self.say_farewell();
                break;
            }
            let Self { driver, target, calls, orders, .. } = &mut self;
            let turned = driver.turn_with(|_, node, now| {
                // Events first: an order may free a place that an event still speaks of.
                calls.take_events(node, *target);
                for order in orders.drain(..) {
                    calls.take_order(node, now, order);
                }
                calls.place_waiting(node, now, *target);
            });
            let ended = std::mem::take(&mut self.calls.ended);
            // What has waited for these goes now.
            let has_orders = ended > 0 && {
                let mut inbox = lock(&self.inbox);
                inbox.release(ended);
                !inbox.orders.is_empty()
            };
            let Ok(turn) = turned else { break };
            let look_at = log.look(&self.driver, turn, |_, node| log::of_endpoint(&node.metrics()));
            if !has_orders && self.driver.wait(None, look_at).is_err() {
                break;
            }
        }
    }

    /// Nobody is left who could wait for a call: the servers hear so.
    fn say_farewell(&mut self) {
        let now = self.driver.clock().now();
        let node = self.driver.node_mut(0);
        for (id, _) in self.calls.places.iter().flatten() {
            node.cancel(now, *id);
        }
        node.say_farewell();
        self.driver.flush_all(now);
    }
}

impl Drop for Engine {
    /// No call is left waiting for ever, however the thread ends.
    fn drop(&mut self) {
        let mut inbox = lock(&self.inbox);
        inbox.is_closed = true;
        inbox.metrics = Some(self.driver.node(0).metrics());
        self.orders.append(&mut inbox.orders);
        let waiting = std::mem::take(&mut inbox.waiting);
        drop(inbox);
        let orders = std::mem::take(&mut self.orders).into_iter();
        let ordered = orders.filter_map(|order| match order {
            Order::Call(_, state) => Some(state),
            Order::Cancel(_) | Order::Metrics(_) => None,
        });
        let placed = self.calls.places.drain(..).flatten().map(|(_, state)| state);
        let waiting = waiting.into_iter().chain(self.calls.waiting.drain(..));
        let waiting = waiting.map(|(_, state)| state);
        for state in ordered.chain(waiting).chain(placed) {
            end(&state, Err(Error::Closed { target: self.target }));
        }
    }
}

/// Calls by place, which is their context.
#[derive(Default)]
struct Calls {
    places: Vec<Option<(CallId, Arc<Mutex<CallState>>)>>,
    /// Calls that have a permit; a long one may still have to wait for others to end.
    waiting: VecDeque<(Outgoing, Arc<Mutex<CallState>>)>,
    /// Places without a call.
    free: Vec<usize>,
    /// Calls that have ended and whose permits have not been given back.
    ended: usize,
}

impl Calls {
    /// Takes the call out of a place, if it still is the one of that id.
    fn remove(&mut self, place: usize, id: CallId) -> Option<Arc<Mutex<CallState>>> {
        let (_, state) = self.places[place].take_if(|(known, _)| *known == id)?;
        self.free.push(place);
        self.ended += 1;
        Some(state)
    }

    /// Carries an order out; a call at the next [`Calls::place_waiting`].
    fn take_order(&mut self, node: &mut Endpoint, now: Time, order: Order) {
        match order {
            Order::Call(request, state) => self.waiting.push_back((request, state)),
            Order::Cancel(state) => {
                // Without a place it waits still, and is passed over.
                let place = lock(&state).place;
                if let Some((place, id)) = place
                    && self.remove(place, id).is_some()
                {
                    node.cancel(now, id);
                }
            }
            // Whoever asked may have gone.
            Order::Metrics(asker) => drop(asker.send(node.metrics())),
        }
    }

    /// Begins the calls that wait, for as long as the endpoint has room.
    fn place_waiting(&mut self, node: &mut Endpoint, now: Time, target: SocketAddr) {
        while let Some((request, state)) = self.waiting.pop_front() {
            if lock(&state).is_cancelled {
                self.ended += 1;
                continue;
            }
            let is_alone = self.free.len() == self.places.len();
            if !is_alone && !node.may_call(target, request.payload.len()) {
                self.waiting.push_front((request, state));
                return;
            }
            self.place(node, now, target, (request, state));
        }
    }

    fn place(
        &mut self,
        node: &mut Endpoint,
        now: Time,
        target: SocketAddr,
        (request, state): (Outgoing, Arc<Mutex<CallState>>),
    ) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        let Outgoing { payload, options, timeout_ns } = request;
        let deadline = now.saturating_add(timeout_ns);
        match node.call(now, Call { target, payload, deadline, context: place as u64, options }) {
            Ok(id) => {
                lock(&state).place = Some((place, id));
                self.places[place] = Some((id, state));
            }
            Err(source) => {
                self.free.push(place);
                self.ended += 1;
                end(&state, Err(Error::Call { target, source }));
            }
        }
    }

    fn take_events(&mut self, node: &mut Endpoint, target: SocketAddr) {
        while let Some(event) = node.poll_event() {
            let (id, context, result) = match event {
                Event::Replied { id, context, payload, .. } => (id, context, Ok(payload)),
                Event::Failed { id, context, failure, server, text, retry_after_ns } => {
                    let ending = Ending { failure, server, text, retry_after_ns };
                    (id, context, Err(Error::failed(target, ending)))
                }
                Event::Request { .. } | Event::Cancelled { .. } => continue,
            };
            if let Some(state) = self.remove(context as usize, id) {
                end(&state, result);
            }
        }
    }
}

fn end(state: &Mutex<CallState>, result: Result<Vec<u8>, Error>) {
    let mut state = lock(state);
    state.result = Some(result);
    if let Some(task) = state.task.take() {
        drop(state);
        task.wake();
    }
}

/// Share of the calls that an endpoint can have outstanding which one async client has, as a
/// divisor: 4096 by default. More would wait at the server only, where a slow one refuses them.
const PERMITS_DIVISOR: usize = 4;
