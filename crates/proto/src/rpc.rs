//! The edge towards the application: an [`Rpc`] is a [`Node`] that can be called through and asked
//! to serve.
//!
//! Messages are `Vec<u8>` that the application takes from [`Rpc::buffer`] and gives back by
//! [`Rpc::recycle`], so that a warm endpoint allocates nothing.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

pub use tailcut_wire::r2p2::{DropReason, Rejection};

use crate::node::{Node, Time};

/// A call that this endpoint has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(pub u64);

/// A request that this endpoint has been asked to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    /// Its place in a table of requests: no two that are not answered have the same, and places are
    /// used again before new ones are.
    pub fn place(self) -> usize {
        self.0 as u32 as usize
    }
}

/// A call to be made.
#[derive(Clone, Debug)]
pub struct Call {
    /// A server, or a router that picks one.
    pub target: SocketAddr,
    /// The request's bytes.
    pub payload: Vec<u8>,
    /// Deadline at which the caller stops waiting, as an absolute [`Time`].
    pub deadline: Time,
    /// Returned untouched in the call's event.
    pub context: u64,
    /// Treatment of the request that is allowed.
    pub options: CallOptions,
}

/// Bytes that the application lends to a call, so that a long request is not copied. An endpoint
/// releases them before it tells how the call has ended, or when that is cancelled.
pub struct Lent(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Lent {
    /// Bytes that stay what and where they are.
    pub fn new(bytes: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self(bytes)
    }

    /// All of them.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({} bytes)", self.bytes().len())
    }
}

/// Options of a request's treatment on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// The request may run more than once: routers may clone it and it may be retried at another
    /// server.
    pub idempotent: bool,
    /// The router must use its first server ("sticky", FIXED_ROUTE).
    pub fixed: bool,
    /// The peer speaks version 1 only.
    pub v1: bool,
}

/// Sender of a request, where packets are sealed: what a server needs to call its client back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The number in the client's keys.
    pub client: u32,
    /// The session of the request, of 40 bits.
    pub session: u64,
    /// Time at which that began: Unix time, ms.
    pub began_ms: u64,
}

/// An event, in the order in which it happened.
#[derive(Debug)]
pub enum Event {
    /// A request to answer by [`Rpc::reply`] or [`Rpc::refuse`].
    Request {
        /// Names it in the answer.
        id: RequestId,
        /// The client: itself, also behind a router.
        client: SocketAddr,
        /// The request's bytes; give them back by [`Rpc::recycle`].
        payload: Vec<u8>,
        /// Deadline at which the client stops waiting.
        deadline: Time,
        /// Treatment of the request that the client allows.
        options: CallOptions,
    },
    /// The client gave up on a request before it was answered; an answer is now refused with
    /// [`AnswerError::Gone`].
    Cancelled {
        /// The request.
        id: RequestId,
    },
    /// A call was answered.
    Replied {
        /// The call.
        id: CallId,
        /// [`Call::context`].
        context: u64,
        /// The server that answered.
        server: SocketAddr,
        /// The reply's bytes; give them back by [`Rpc::recycle`].
        payload: Vec<u8>,
    },
    /// A call ended without an answer.
    Failed {
        /// The call.
        id: CallId,
        /// [`Call::context`].
        context: u64,
        /// Reason for the failure.
        failure: Failure,
        /// Node that refused it, or is known to have had it: a server, also behind a router, or the
        /// router.
        server: Option<SocketAddr>,
        /// With [`Failure::Rejected`]: what the application said; else empty. Give it back by
        /// [`Rpc::recycle`].
        text: Vec<u8>,
        /// With [`Failure::Refused`] for overload: how long the target is to be left alone, ns;
        /// else 0.
        retry_after_ns: u64,
    },
}

/// Reason why a call ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The deadline passed. The request may or may not have run.
    #[error("no reply by the deadline")]
    Deadline,
    /// The server or the router refused it. It has not run, unless the reason is
    /// [`DropReason::Uncertain`], [`DropReason::Panicked`] or [`DropReason::Unanswered`], the
    /// application refused it, its reply was too long, or it is idempotent and an earlier attempt
    /// ran elsewhere.
    #[error("refused: {0:?}")]
    Refused(DropReason),
    /// The application refused it, with a code of its own and a text.
    #[error("rejected by the application with code {code}")]
    Rejected {
        /// The application's number for why.
        code: u32,
    },
    /// The peer has said nothing for so long that it is taken for dead, or its host says that
    /// nothing listens there. The request may or may not have run.
    #[error("nobody answers there")]
    Unreachable,
    /// A version 1 reply came out of order, which that protocol cannot mend.
    #[error("a packet of a version 1 reply was lost or reordered")]
    Broken,
    /// The reply is longer than this endpoint takes.
    #[error("the reply is longer than the configured limit")]
    ReplyTooLarge,
}

/// Reason why a call could not be made. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// As many calls are outstanding as the configuration allows.
    #[error("{limit} calls are outstanding, which is the limit")]
    TooManyOutstanding {
        /// The configured limit.
        limit: usize,
    },
    /// The request is longer than the configuration, or version 1, allows.
    #[error("the request has {len} bytes, of at most {limit}")]
    TooLarge {
        /// Bytes of the request.
        len: usize,
        /// Most bytes allowed.
        limit: usize,
    },
    /// The call asks for version 1, which has no sealed form, and packets are sealed.
    #[error("version 1 has no sealed form, and packets are sealed")]
    NoSealedForm,
    /// Packets are sealed and this side has a server's keys, which call nobody but back, in a
    /// session that is still known.
    #[error("a server's keys call nobody but back, in a session that is still known")]
    NoSession,
    /// The deadline is not in the future, or further away than the configuration allows.
    #[error("the deadline is in the past or more than {limit_ns} ns ahead")]
    BadDeadline {
        /// Furthest that a deadline may be ahead.
        limit_ns: u64,
    },
}

/// Reason why an answer could not be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The request was cancelled, has expired or has been answered.
    #[error("the request is gone: cancelled, expired or answered before")]
    Gone,
    /// The reply is longer than the configuration, or version 1, allows. The request was refused.
    #[error("the reply has {len} bytes, of at most {limit}")]
    TooLarge {
        /// Bytes of the reply.
        len: usize,
        /// Most bytes allowed.
        limit: usize,
    },
    /// A version 1 client at an address outside the trusted prefixes cannot prove itself, and the
    /// reply is more than three times what it sent. The request was refused.
    #[error(
        "the reply is more than three times the request and the client's address is not validated"
    )]
    Unvalidated,
}

/// An endpoint with an application.
pub trait Rpc: Node {
    /// Begins a call; it ends by exactly one [`Event::Replied`] or [`Event::Failed`], or by
    /// [`Rpc::cancel`].
    fn call(&mut self, now: Time, call: Call) -> Result<CallId, CallError>;

    /// As [`Rpc::call`], with a request that the application lends: [`Call::payload`] is empty.
    fn call_lent(&mut self, now: Time, call: Call, request: Lent) -> Result<CallId, CallError> {
        let mut payload = self.buffer_for(request.bytes().len());
        payload.extend_from_slice(request.bytes());
        self.call(now, Call { payload, ..call })
    }

    /// Sender of a request that has not been answered, where packets are sealed and a server may
    /// call back; else `None`.
    fn caller(&self, _id: RequestId) -> Option<Caller> {
        None
    }

    /// As [`Rpc::call`], to a client that has called: where packets are sealed, its keys and its
    /// session seal the call, and nobody else can read it.
    fn call_back(&mut self, now: Time, call: Call, _to: Caller) -> Result<CallId, CallError> {
        self.call(now, call)
    }

    /// True if packets are sealed: then a peer can call back only in a session in which this side
    /// has called it, and learns of the next one by a call alone.
    fn is_sealed(&self) -> bool {
        false
    }

    /// Cancels a call: no event will come of it. Harmless when it has ended.
    fn cancel(&mut self, now: Time, id: CallId);

    /// Answers a request.
    fn reply(&mut self, now: Time, id: RequestId, payload: Vec<u8>) -> Result<(), AnswerError>;

    /// Refuses a request that has not been answered.
    fn refuse(&mut self, now: Time, id: RequestId, reason: DropReason) -> Result<(), AnswerError>;

    /// Refuses a request that has not been answered, in the application's own words: a code and at
    /// most [`Rejection::TEXT_LEN_MAX`] bytes of text; what is beyond is cut off. Without words
    /// where an endpoint has none.
    fn reject(
        &mut self,
        now: Time,
        id: RequestId,
        _code: u32,
        _text: &[u8],
    ) -> Result<(), AnswerError> {
        self.refuse(now, id, DropReason::Application)
    }

    /// Takes note that the owner goes: what waits for other packets to take it along, such as
    /// acknowledgements, is handed out by the next [`Node::poll_transmit`].
    fn say_farewell(&mut self) {}

    /// The next event; `None` when there is none.
    fn poll_event(&mut self) -> Option<Event>;

    /// An empty buffer for a message, used before where possible.
    fn buffer(&mut self) -> Vec<u8>;

    /// As [`Rpc::buffer`], for a message of `len` bytes: a long one gets memory that a long one has
    /// had, where there is some, and saves the page faults of fresh memory.
    fn buffer_for(&mut self, _len: usize) -> Vec<u8> {
        self.buffer()
    }

    /// Gives a message's buffer back.
    fn recycle(&mut self, buffer: Vec<u8>);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Path, Transmit};

    /// It does no more than an endpoint must: it keeps the calls, and the buffers.
    #[derive(Default)]
    struct Keeper {
        calls: Vec<Call>,
        buffers: Vec<Vec<u8>>,
        refused: Vec<DropReason>,
    }

    impl Node for Keeper {
        fn handle_datagram(&mut self, _: Time, _: Path, _: &mut [u8]) {}

        fn handle_timeout(&mut self, _: Time) {}

        fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Transmit> {
            None
        }

        fn poll_timeout(&self) -> Option<Time> {
            None
        }
    }

    impl Rpc for Keeper {
        fn call(&mut self, _: Time, call: Call) -> Result<CallId, CallError> {
            self.calls.push(call);
            Ok(CallId(self.calls.len() as u64))
        }

        fn cancel(&mut self, _: Time, _: CallId) {}

        fn reply(&mut self, _: Time, _: RequestId, _: Vec<u8>) -> Result<(), AnswerError> {
            Ok(())
        }

        fn refuse(&mut self, _: Time, _: RequestId, why: DropReason) -> Result<(), AnswerError> {
            self.refused.push(why);
            Ok(())
        }

        fn poll_event(&mut self) -> Option<Event> {
            None
        }

        fn buffer(&mut self) -> Vec<u8> {
            self.buffers.pop().unwrap_or_default()
        }

        fn recycle(&mut self, buffer: Vec<u8>) {
            self.buffers.push(buffer);
        }
    }

    #[test]
    fn where_nothing_can_be_lent_a_request_is_copied_to_a_used_buffer() {
        let mut keeper = Keeper::default();
        keeper.recycle(Vec::with_capacity(12_345));
        let target = ([10, 0, 0, 1], 7).into();
        let (payload, options) = (Vec::new(), CallOptions { fixed: true, ..Default::default() });
        let call = Call { target, payload, deadline: 99, context: 5, options };
        let lent = Lent::new(Arc::new(b"ping".to_vec()));
        assert_eq!((lent.bytes(), format!("{lent:?}")), (&b"ping"[..], "Lent(4 bytes)".to_owned()));
        assert_eq!(keeper.call_lent(0, call, lent), Ok(CallId(1)));
        let made = &keeper.calls[0];
        assert_eq!((&made.payload[..], made.payload.capacity()), (&b"ping"[..], 12_345));
        assert_eq!((made.target, made.deadline, made.context), (target, 99, 5));
        assert_eq!(made.options, options);
    }

    #[test]
    fn who_has_no_words_refuses_without() {
        let mut keeper = Keeper::default();
        assert_eq!(keeper.reject(0, RequestId(1), 17, b"no"), Ok(()));
        assert_eq!(keeper.refused, [DropReason::Application]);
    }

    #[test]
    fn a_request_has_its_place_in_the_lower_half_of_its_id() {
        assert_eq!(RequestId(9 << 32 | 7).place(), 7);
        assert_eq!(RequestId(u64::MAX).place(), u32::MAX as usize);
    }
}
