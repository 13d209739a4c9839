//! Layers of tower around a client's calls.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tower::timeout::error::Elapsed;
use tower::{BoxError, Service};

use crate::call::{read_reply, write_request};
use crate::channel::{CallingBytes, Channel, Transport};
use crate::codec::Codec;
use crate::message::{Request, Response};
use crate::method::Method;
use crate::status::Status;

/// A call on its way to a server, as layers see it.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The method.
    pub method: &'static Method,
    /// The request's bytes, with its header ([`frame`](crate::frame)).
    pub bytes: Vec<u8>,
    /// Timeout of the call; `None` as the client says.
    pub timeout: Option<Duration>,
}

/// Carries a client's calls through a service of tower that ends in a [`Channel`].
///
/// An error of a layer is a status: of [`Code::DeadlineExceeded`](crate::Code::DeadlineExceeded)
/// for tower's timeout, itself where it is a [`Status`], and else of
/// [`Code::Unknown`](crate::Code::Unknown).
#[derive(Clone, Debug)]
pub struct Layered<S>(S);

impl<S> Layered<S> {
    /// Carries calls through `service`.
    pub fn new(service: S) -> Self {
        Self(service)
    }
}

impl Service<Outgoing> for Channel {
    type Response = Vec<u8>;
    type Error = Status;
    type Future = CallingBytes;

    /// A channel takes any call: one too many waits for its turn.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, outgoing: Outgoing) -> CallingBytes {
        self.send(outgoing.method, outgoing.bytes, outgoing.timeout)
    }
}

impl<S> Transport for Layered<S>
where
    S: Service<Outgoing, Response = Vec<u8>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    type Call<'a, C: Codec<R>, R: Send + 'static> =
        Pin<Box<dyn Future<Output = Result<Response<R>, Status>> + Send>>;

    fn call<C, Q, R>(&self, method: &'static Method, request: Request<Q>) -> Self::Call<'_, C, R>
    where
        C: Codec<Q> + Codec<R>,
        R: Send + 'static,
    {
        let mut bytes = Vec::new();
        let written = write_request::<C, Q>(&mut bytes, method, request.get_ref());
        let outgoing = Outgoing { method, bytes, timeout: request.timeout() };
        let service = self.0.clone();
        Box::pin(async move {
            written?;
            let reply = pass(service, outgoing).await.map_err(|error| status_of(error.into()))?;
            read_reply::<C, R>(&reply).map(Response::new)
        })
    }
}

async fn pass<S: Service<Outgoing>>(
    mut service: S,
    outgoing: Outgoing,
) -> Result<S::Response, S::Error> {
    poll_fn(|context| service.poll_ready(context)).await?;
    service.call(outgoing).await
}

/// The status that an error of a layer stands for.
pub(crate) fn status_of(error: BoxError) -> Status {
    match error.downcast::<Status>() {
        Ok(status) => *status,
        Err(error) if error.is::<Elapsed>() => {
            Status::deadline_exceeded("a layer's timeout passed")
        }
        Err(error) => Status::unknown(error.to_string()),
    }
}
