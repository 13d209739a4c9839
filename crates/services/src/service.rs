//! The server's side: which service has a request's method, and what becomes of it.
//!
//! | a request | is answered by | counted |
//! |---|---|---|
//! | that is no frame | a refusal with code 3 | `malformed` |
//! | of a method that no service has | [`Code::Unimplemented`] | `unknown_method` |
//! | whose message cannot be read | [`Code::Internal`] | `undecodable` |
//! | whose handler gives a status | that | `failed` |
//! | whose handler gives a response | its message | `replied` |

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tailcut::{DispatchConfig, Error, Responder};
use tokio::runtime::Handle;
use tracing::{Instrument as _, Span, debug_span, field};

use crate::codec::Codec;
use crate::frame;
use crate::message::{Origin, Request, Response};
use crate::method::{Method, MethodId};
use crate::status::{Code, Status};

/// A service, as [`service!`](crate::service) makes one of a trait.
pub trait Service: Send + Sync + 'static {
    /// Its methods.
    fn methods(&self) -> &'static [Method];

    /// Answers a request to the method that has this place among [`Service::methods`].
    fn call(&self, method: usize, incoming: Incoming) -> Answering;
}

/// A request of which nothing but the method has been read.
#[derive(Debug)]
pub struct Incoming {
    bytes: Vec<u8>,
    origin: Origin,
}

/// An answer in the making.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// An answer's bytes, and how it came about.
#[derive(Debug)]
pub struct Answer {
    bytes: Vec<u8>,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Replied,
    Failed,
    UnknownMethod,
    Undecodable,
    /// The bytes are the text of a refusal.
    Malformed,
}

/// Services that one server has.
#[derive(Default)]
pub struct Services {
    services: Vec<Box<dyn Service>>,
    /// Place of each method, in the order of their numbers.
    places: Vec<(MethodId, Place)>,
    counters: Arc<Counters>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    service: usize,
    method: usize,
}

/// Counters of services since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Requests answered by a message.
    pub replied: u64,
    /// Requests answered by a status of their handler's.
    pub failed: u64,
    /// Requests of a method that no service has.
    pub unknown_method: u64,
    /// Requests whose message could not be read.
    pub undecodable: u64,
    /// Requests that are none of typed services.
    pub malformed: u64,
}

/// [`Metrics`], as threads count them.
#[derive(Debug, Default)]
struct Counters {
    replied: AtomicU64,
    failed: AtomicU64,
    unknown_method: AtomicU64,
    undecodable: AtomicU64,
    malformed: AtomicU64,
}

/// Result of the admission of a request.
enum Admitted {
    Runs(Answering),
    Answered(Answer),
}

/// Answers a request by a handler: what [`service!`](crate::service) makes each method of.
pub async fn answer<C, Q, R, F>(incoming: Incoming, handler: impl FnOnce(Request<Q>) -> F) -> Answer
where
    C: Codec<Q> + Codec<R>,
    F: Future<Output = Result<Response<R>, Status>>,
{
    let Incoming { mut bytes, origin } = incoming;
    let message = match C::decode(&bytes[frame::REQUEST_HEADER_LEN..]) {
        Ok(message) => message,
        Err(error) => {
            let status = Status::internal(format!("the request's message cannot be read: {error}"));
            return Answer::status(bytes, &status, Outcome::Undecodable);
        }
    };
    match handler(Request::received(message, origin)).await {
        Ok(response) => {
            bytes.clear();
            frame::begin_reply(&mut bytes);
            match C::encode(response.get_ref(), &mut bytes) {
                Ok(()) => Answer { bytes, outcome: Outcome::Replied },
                Err(error) => {
                    let status = Status::internal(format!("the reply cannot be written: {error}"));
                    Answer::status(bytes, &status, Outcome::Failed)
                }
            }
        }
        Err(status) => Answer::status(bytes, &status, Outcome::Failed),
    }
}

impl Answer {
    /// Its status code, which its first byte has.
    fn code(&self) -> Code {
        frame::code(&self.bytes)
    }

    /// A status, in the place of what is in the buffer.
    fn status(mut bytes: Vec<u8>, status: &Status, outcome: Outcome) -> Self {
        bytes.clear();
        match status.code() {
            // A failure of this code would read as a reply without a message.
            Code::Ok => frame::write_status(
                &mut bytes,
                &Status::unknown("the handler failed with the code of success"),
            ),
            _ => frame::write_status(&mut bytes, status),
        }
        Self { bytes, outcome }
    }

    /// The text of a refusal.
    fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

impl Services {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// These, and one more.
    ///
    /// # Panics
    ///
    /// When a method of it has the number of another one's: the same service twice, or two paths of
    /// the same 64-bit hash.
    #[must_use]
    pub fn add_service(mut self, service: impl Service) -> Self {
        let index = self.services.len();
        for (method, known) in service.methods().iter().enumerate() {
            let place = Place { service: index, method };
            match self.places.binary_search_by_key(&known.id(), |&(id, _)| id) {
                Ok(_) => panic!("two methods have the number of {}", known.path()),
                Err(at) => self.places.insert(at, (known.id(), place)),
            }
        }
        self.services.push(Box::new(service));
        self
    }

    /// Serves on this thread until the server is stopped. A handler runs on the thread that
    /// receives and sends, up to where it first waits for something; from there on it is a task of
    /// `runtime`. So one that does not wait costs no hand-over, and nothing else is received or
    /// sent while it computes: let that be microseconds.
    ///
    /// A handler that has become a task is not dropped when its request is cancelled.
    ///
    /// # Errors
    ///
    /// As [`tailcut::Server::run`].
    pub fn serve(&self, server: &mut tailcut::Server, runtime: &Handle) -> Result<(), Error> {
        let _context = runtime.enter();
        server.run(|request| self.handle(request, runtime))
    }

    /// Serves as [`Services::serve`] does, on worker threads; handlers shorter than a hand-off also
    /// on this one and one more, unless the configuration has
    /// [`InPlace::Never`](tailcut::InPlace::Never).
    ///
    /// # Errors
    ///
    /// As [`tailcut::Server::run_workers`].
    pub fn serve_workers(
        &self,
        server: &mut tailcut::Server,
        config: impl Into<DispatchConfig>,
        runtime: &Handle,
    ) -> Result<(), Error> {
        server.run_workers(config, |request| {
            let _context = runtime.enter();
            self.handle(request, runtime);
        })
    }

    /// Serves by tasks on `runtime`, at most `running_max` at once, until the server is stopped. It
    /// blocks the thread that it is called on, which must not be one of the runtime's. A handler
    /// whose request is cancelled is dropped where it waits.
    ///
    /// # Errors
    ///
    /// As [`tailcut::Server::run_async`].
    pub fn serve_tasks(
        self: Arc<Self>,
        server: &mut tailcut::Server,
        running_max: u32,
        runtime: &Handle,
    ) -> Result<(), Error> {
        server.run_async(runtime, running_max, move |mut responder| {
            let admitted = self.admit(Incoming::deferred(&mut responder));
            let counters = self.counters.clone();
            async move { counters.give(admitted.answer().await, responder) }
        })
    }

    /// Counters since the start.
    pub fn metrics(&self) -> Metrics {
        self.counters.read()
    }

    /// Answers a request here, or where it waits for something by a task.
    fn handle(&self, mut request: tailcut::Request<'_>, runtime: &Handle) {
        let origin = Origin {
            client: request.client(),
            identity: request.identity(),
            deadline: request.deadline(),
            is_idempotent: request.options().idempotent,
        };
        let answer = match self.admit(Incoming { bytes: request.take_bytes(), origin }) {
            Admitted::Answered(answer) => answer,
            Admitted::Runs(mut answering) => {
                match answering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => {
                        let (responder, counters) = (request.defer(), self.counters.clone());
                        // The runtime polls it again, so that no wake-up is missed.
                        runtime.spawn(async move { counters.give(answering.await, responder) });
                        return;
                    }
                }
            }
        };
        self.counters.count(answer.outcome);
        // A client that has gone needs no answer, and one whose reply is too long has been refused.
        let _ = match answer.outcome {
            Outcome::Malformed => request.reject(MALFORMED, &answer.text()),
            _ => request.reply_in_place(|bytes| *bytes = answer.bytes),
        };
    }

    fn admit(&self, incoming: Incoming) -> Admitted {
        let method = match frame::parse_request(&incoming.bytes) {
            Ok((method, _)) => method,
            Err(error) => {
                let bytes = error.to_string().into_bytes();
                return Admitted::Answered(Answer { bytes, outcome: Outcome::Malformed });
            }
        };
        let Ok(at) = self.places.binary_search_by_key(&method, |&(id, _)| id) else {
            let status = Status::unimplemented(format!("no method has the number {:#x}", method.0));
            let answer = Answer::status(incoming.bytes, &status, Outcome::UnknownMethod);
            return Admitted::Answered(answer);
        };
        let Place { service, method } = self.places[at].1;
        let service = &self.services[service];
        let client = incoming.origin.client;
        let span = debug_span!(
            "call",
            method = service.methods()[method].path(),
            %client,
            code = field::Empty
        );
        let answering = service.call(method, incoming);
        Admitted::Runs(if span.is_disabled() { answering } else { traced(answering, span) })
    }
}

/// An answer whose handler runs in a span, which ends with the answer's code.
fn traced(answering: Answering, span: Span) -> Answering {
    let answering = async move {
        let answer = answering.await;
        Span::current().record("code", field::debug(answer.code()));
        answer
    };
    Box::pin(answering.instrument(span))
}

impl Incoming {
    /// A request that is answered later.
    fn deferred(responder: &mut Responder) -> Self {
        let origin = Origin {
            client: responder.client(),
            identity: responder.identity(),
            deadline: responder.deadline(),
            is_idempotent: responder.options().idempotent,
        };
        Self { bytes: responder.take_bytes(), origin }
    }
}

impl Admitted {
    async fn answer(self) -> Answer {
        match self {
            Self::Runs(answering) => answering.await,
            Self::Answered(answer) => answer,
        }
    }
}

impl std::fmt::Debug for Services {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let methods = self.services.iter().flat_map(|service| service.methods());
        formatter.debug_list().entries(methods.map(Method::path)).finish()
    }
}

impl Counters {
    /// Gives an answer to whoever waits for it, from another thread than the server's.
    fn give(&self, answer: Answer, responder: Responder) {
        self.count(answer.outcome);
        match answer.outcome {
            Outcome::Malformed => responder.reject(MALFORMED, &answer.text()),
            _ => responder.reply_in_place(|bytes| *bytes = answer.bytes),
        }
    }

    fn count(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Replied => &self.replied,
            Outcome::Failed => &self.failed,
            Outcome::UnknownMethod => &self.unknown_method,
            Outcome::Undecodable => &self.undecodable,
            Outcome::Malformed => &self.malformed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Metrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            replied: read(&self.replied),
            failed: read(&self.failed),
            unknown_method: read(&self.unknown_method),
            undecodable: read(&self.undecodable),
            malformed: read(&self.malformed),
        }
    }
}

/// The code by which a request is refused that is none of typed services.
const MALFORMED: u32 = Code::InvalidArgument as u32;

/// Services within layers of tower, and layers as what serves.
#[cfg(feature = "tower")]
mod layered {
    use std::convert::Infallible;
    use std::future::poll_fn;

    use tower::{BoxError, Service as Layer};

    use super::{
        Answer, Arc, Context, Error, Future, Handle, Incoming, Outcome, Pin, Poll, Services,
    };
    use crate::layers::status_of;

    impl Layer<Incoming> for Arc<Services> {
        type Response = Answer;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

        fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, incoming: Incoming) -> Self::Future {
            let admitted = self.admit(incoming);
            Box::pin(async move { Ok(admitted.answer().await) })
        }
    }

    impl Services {
        /// As [`Services::serve_tasks`], with layers around these services: `layer` makes of them
        /// what answers. An error of a layer is a status: of [`Code::DeadlineExceeded`] for tower's
        /// timeout, itself where it is a [`Status`], and else of [`Code::Unknown`]; it counts as
        /// `failed`.
        ///
        /// # Errors
        ///
        /// As [`tailcut::Server::run_async`].
        ///
        /// [`Code::DeadlineExceeded`]: crate::Code::DeadlineExceeded
        /// [`Code::Unknown`]: crate::Code::Unknown
        /// [`Status`]: crate::Status
        pub fn serve_layered<S>(
            self: Arc<Self>,
            server: &mut tailcut::Server,
            running_max: u32,
            runtime: &Handle,
            layer: impl FnOnce(Arc<Self>) -> S,
        ) -> Result<(), Error>
        where
            S: Layer<Incoming, Response = Answer, Error: Into<BoxError>, Future: Send>
                + Clone
                + Send
                + Sync
                + 'static,
        {
            let (counters, service) = (self.counters.clone(), layer(self));
            server.run_async(runtime, running_max, move |mut responder| {
                let (counters, service) = (counters.clone(), service.clone());
                let incoming = Incoming::deferred(&mut responder);
                async move { counters.give(answer(service, incoming).await, responder) }
            })
        }
    }

    async fn answer<S>(mut service: S, incoming: Incoming) -> Answer
    where
        S: Layer<Incoming, Response = Answer, Error: Into<BoxError>>,
    {
        let answered = async {
            poll_fn(|context| service.poll_ready(context)).await?;
            service.call(incoming).await
        };
        let answering: Result<Answer, S::Error> = answered.await;
        answering.unwrap_or_else(|error| {
            Answer::status(Vec::new(), &status_of(error.into()), Outcome::Failed)
        })
    }
}
