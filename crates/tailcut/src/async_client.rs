//! The asynchronous client: a thread drives the socket, futures wait for what it hears. It needs no
//! particular runtime.

use std::collections::VecDeque;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use tailcut_net::driver::{Driver, Waker};
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::rpc::{Call, CallId, CallOptions, Event, Rpc};

use crate::error::Error;
use crate::options::ClientBuilder;

/// A client for tasks. Cloning it is cheap, and clones share one socket and one thread, which end
/// with the last of them.
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

/// What the callers hold: dropping the last ends the thread.
#[derive(Debug)]
struct Handle {
    inbox: Arc<Mutex<Inbox>>,
    waker: Waker,
    target: SocketAddr,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What callers hand to the thread.
#[derive(Debug, Default)]
struct Inbox {
    orders: VecDeque<Order>,
    is_closed: bool,
}

#[derive(Debug)]
enum Order {
    Call { payload: Vec<u8>, options: CallOptions, timeout_ns: u64, state: Arc<Mutex<CallState>> },
    Cancel(Arc<Mutex<CallState>>),
}

#[derive(Debug, Default)]
struct CallState {
    /// Where the thread keeps the call, and its id; known to the thread alone.
    place: Option<(usize, CallId)>,
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
        let waker = driver.waker();
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let theirs = inbox.clone();
        let engine = Engine {
            driver,
            inbox: theirs,
            orders: VecDeque::new(),
            target,
            calls: Calls::default(),
        };
        let thread = std::thread::Builder::new()
            .name("tailcut-client".to_owned())
            .spawn(move || engine.run())?;
        let shared = Arc::new(Handle { inbox, waker, target, thread: Mutex::new(Some(thread)) });
        Ok(Self { shared, timeout: builder.timeout, options: builder.options })
    }

    /// Calls. The request leaves at once, whether or not the future is polled.
    pub fn call(&self, request: impl Into<Vec<u8>>) -> AsyncCall {
        self.call_with(request, self.options, self.timeout)
    }

    /// Calls with options and a timeout of its own.
    pub fn call_with(
        &self,
        request: impl Into<Vec<u8>>,
        options: CallOptions,
        timeout: Duration,
    ) -> AsyncCall {
        let state = Arc::new(Mutex::new(CallState::default()));
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.shared.order(Order::Call {
            payload: request.into(),
            options,
            timeout_ns,
            state: state.clone(),
        });
        AsyncCall { state, shared: self.shared.clone() }
    }

    /// Where calls go.
    pub fn target(&self) -> SocketAddr {
        self.shared.target
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
        state.is_cancelled = true;
        drop(state);
        if !is_over {
            self.shared.order(Order::Cancel(self.state.clone()));
        }
    }
}

impl Handle {
    fn order(&self, order: Order) {
        let mut inbox = lock(&self.inbox);
        if inbox.is_closed {
            if let Order::Call { state, .. } = order {
                end(&state, Err(Error::Closed));
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
    /// Taken from the inbox and not carried out yet.
    orders: VecDeque<Order>,
    target: SocketAddr,
    calls: Calls,
}

impl Engine {
    fn run(mut self) {
        loop {
            {
                let mut inbox = lock(&self.inbox);
                if inbox.is_closed {
                    break;
                }
                self.orders.append(&mut inbox.orders);
            }
            let Self { driver, target, calls, orders, .. } = &mut self;
            let turned = driver.turn_with(|_, node, now| {
                // Events first: an order may free a place that an event still speaks of.
                take_events(node, calls);
                orders.drain(..).for_each(|order| take_order(node, now, *target, order, calls));
            });
            if turned.is_err() || driver.wait(None, None).is_err() {
                break;
            }
        }
    }
}

impl Drop for Engine {
    /// No call is left waiting for ever, however the thread ends.
    fn drop(&mut self) {
        let mut inbox = lock(&self.inbox);
        inbox.is_closed = true;
        self.orders.append(&mut inbox.orders);
        drop(inbox);
        for order in std::mem::take(&mut self.orders) {
            if let Order::Call { state, .. } = order {
                end(&state, Err(Error::Closed));
            }
        }
        self.calls
            .places
            .drain(..)
            .flatten()
            .for_each(|(_, state)| end(&state, Err(Error::Closed)));
    }
}

/// Calls by place, which is their context.
#[derive(Default)]
struct Calls {
    places: Vec<Option<(CallId, Arc<Mutex<CallState>>)>>,
    /// Places without a call.
    free: Vec<usize>,
}

impl Calls {
    /// Takes the call out of a place, if it still is the one of that id.
    fn remove(&mut self, place: usize, id: CallId) -> Option<Arc<Mutex<CallState>>> {
        let (_, state) = self.places[place].take_if(|(known, _)| *known == id)?;
        self.free.push(place);
        Some(state)
    }
}

fn take_order(node: &mut Endpoint, now: u64, target: SocketAddr, order: Order, calls: &mut Calls) {
    match order {
        Order::Call { payload, options, timeout_ns, state } => {
            if lock(&state).is_cancelled {
                return;
            }
            let place = calls.free.pop().unwrap_or_else(|| {
                calls.places.push(None);
                calls.places.len() - 1
            });
            let deadline = now.saturating_add(timeout_ns);
            match node.call(now, Call { target, payload, deadline, context: place as u64, options })
            {
                Ok(id) => {
                    lock(&state).place = Some((place, id));
                    calls.places[place] = Some((id, state));
                }
                Err(error) => {
                    calls.free.push(place);
                    end(&state, Err(error.into()));
                }
            }
        }
        Order::Cancel(state) => {
            let Some((place, id)) = lock(&state).place else { return };
            if calls.remove(place, id).is_some() {
                node.cancel(now, id);
            }
        }
    }
}

fn take_events(node: &mut Endpoint, calls: &mut Calls) {
    while let Some(event) = node.poll_event() {
        let (id, context, result) = match event {
            Event::Replied { id, context, payload, .. } => (id, context, Ok(payload)),
            Event::Failed { id, context, failure, .. } => (id, context, Err(failure.into())),
            Event::Request { .. } | Event::Cancelled { .. } => continue,
        };
        if let Some(state) = calls.remove(context as usize, id) {
            end(&state, result);
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

/// A thread that panicked while holding the lock left nothing half done: every critical section is
/// a few assignments.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
