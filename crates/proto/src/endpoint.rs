//! An endpoint of either transport, for who lets a configuration choose. What costs time is in the
//! endpoints: the choice is one branch a call, which always goes the same way.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::node::{Attached, Node, Path, Time, Transmit};
use crate::r2p2::Holdings;
use crate::rpc::{
    AnswerError, Call, CallError, CallId, Caller, DropReason, Event, Lent, RequestId, Rpc,
};
use crate::sealed::{Access, ChangedKeys, Denial, Keys, LostKeys};
use crate::{homa, r2p2};

/// An endpoint of R2P2 or of Homa. Each stands in a box: they are of very different sizes, and
/// drivers move them.
#[derive(Debug)]
pub enum Endpoint {
    /// R2P2.
    R2p2(Box<r2p2::Endpoint>),
    /// Homa.
    Homa(Box<homa::Endpoint>),
}

/// An endpoint's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metrics {
    /// Counters of an endpoint of R2P2.
    R2p2(r2p2::Metrics),
    /// Counters of an endpoint of Homa.
    Homa(homa::Metrics),
}

/// Calls the same method of whichever endpoint it is.
macro_rules! either {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self {
            Self::R2p2(endpoint) => endpoint.$method($($argument),*),
            Self::Homa(endpoint) => endpoint.$method($($argument),*),
        }
    };
}

impl Endpoint {
    /// Counters since the start.
    pub fn metrics(&self) -> Metrics {
        match self {
            Self::R2p2(endpoint) => Metrics::R2p2(*endpoint.metrics()),
            Self::Homa(endpoint) => Metrics::Homa(*endpoint.metrics()),
        }
    }

    /// True if one more call to `target`, with a request of `len` bytes, is within the limits of
    /// what may be outstanding.
    pub fn may_call(&mut self, target: SocketAddr, len: usize) -> bool {
        either!(self.may_call(target, len))
    }

    /// Everything that it holds now.
    pub fn holdings(&self) -> Holdings {
        either!(self.holdings())
    }

    /// Says how many requests the application runs at once; before that it is one. What it has
    /// beyond them waits, which replies and reports tell apart from what runs, and a copy of a
    /// cloned request is dropped while anything waits. To Homa, which has no clones, it says when
    /// there is load: cookies may be asked for then.
    pub fn set_workers(&mut self, workers: usize) {
        match self {
            Self::R2p2(endpoint) => endpoint.set_workers(workers),
            Self::Homa(endpoint) => endpoint.set_workers(workers),
        }
    }

    /// Says what refusals for overload tell clients of when to come back, ns; see
    /// [`Scheduler::retry_after_ns`](crate::scheduler::Scheduler::retry_after_ns). Homa's have no
    /// place for it.
    pub fn set_retry_after(&mut self, retry_after_ns: u64) {
        match self {
            Self::R2p2(endpoint) => endpoint.set_retry_after(retry_after_ns),
            Self::Homa(_) => {}
        }
    }

    /// Takes no new requests from now on: they are refused with [`DropReason::Stopping`]. Requests
    /// that it has are answered, and routers are told to place no more; what they placed before
    /// they heard of it is taken for [`STOPPING_GRACE_NS`](r2p2::STOPPING_GRACE_NS).
    pub fn stop(&mut self, now: Time) {
        either!(self.stop(now));
    }

    /// Takes new requests again after [`Endpoint::stop`], and tells routers so: for who cannot
    /// serve for a while.
    pub fn serve_again(&mut self) {
        either!(self.serve_again());
    }

    /// True if the application has yet to answer a request, and somebody waits for it.
    pub fn is_waiting(&self, id: RequestId) -> bool {
        either!(self.is_waiting(id))
    }

    /// Replies of which packets have never been sent. What is lost of the others is asked for.
    pub fn replies_under_way(&self) -> usize {
        either!(self.replies_under_way())
    }

    /// The number of the client whose request this is, where packets are sealed.
    #[inline]
    pub fn client_of(&self, id: RequestId) -> Option<u32> {
        either!(self.client_of(id))
    }
}

impl Metrics {
    /// The counters of an endpoint of R2P2.
    pub fn r2p2(&self) -> Option<&r2p2::Metrics> {
        match self {
            Self::R2p2(metrics) => Some(metrics),
            Self::Homa(_) => None,
        }
    }

    /// The counters of an endpoint of Homa.
    pub fn homa(&self) -> Option<&homa::Metrics> {
        match self {
            Self::Homa(metrics) => Some(metrics),
            Self::R2p2(_) => None,
        }
    }

    /// Requests handed to the application.
    pub fn requests(&self) -> u64 {
        match self {
            Self::R2p2(metrics) => metrics.requests,
            Self::Homa(metrics) => metrics.requests,
        }
    }
}

impl From<r2p2::Endpoint> for Endpoint {
    fn from(endpoint: r2p2::Endpoint) -> Self {
        Self::R2p2(Box::new(endpoint))
    }
}

impl From<homa::Endpoint> for Endpoint {
    fn from(endpoint: homa::Endpoint) -> Self {
        Self::Homa(Box::new(endpoint))
    }
}

impl Node for Endpoint {
    #[inline]
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        either!(self.handle_datagram(now, path, bytes));
    }

    fn handle_unreachable(&mut self, now: Time, peer: SocketAddr) {
        either!(self.handle_unreachable(now, peer));
    }

    fn handle_wall_clock(&mut self, now: Time, unix_ns: u64) {
        either!(self.handle_wall_clock(now, unix_ns));
    }

    fn update_keys(&mut self, now: Time, keys: &Keys) -> Result<(), ChangedKeys> {
        either!(self.update_keys(now, keys))
    }

    fn update_access(&mut self, access: &Arc<Access>) {
        either!(self.update_access(access));
    }

    #[inline]
    fn denials(&self) -> (u64, Option<&Denial>) {
        either!(self.denials())
    }

    fn lost_keys(&self) -> LostKeys {
        either!(self.lost_keys())
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time) {
        either!(self.handle_timeout(now));
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        either!(self.poll_transmit(now, buffer))
    }

    #[inline]
    fn poll_attached(&mut self, now: Time, buffer: &mut [u8]) -> Option<(Transmit, Attached)> {
        either!(self.poll_attached(now, buffer))
    }

    #[inline]
    fn attached(&self, attached: &Attached) -> &[u8] {
        either!(self.attached(attached))
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        either!(self.poll_timeout())
    }
}

impl Rpc for Endpoint {
    #[inline]
    fn call(&mut self, now: Time, call: Call) -> Result<CallId, CallError> {
        either!(self.call(now, call))
    }

    fn call_lent(&mut self, now: Time, call: Call, request: Lent) -> Result<CallId, CallError> {
        either!(self.call_lent(now, call, request))
    }

    fn caller(&self, id: RequestId) -> Option<Caller> {
        either!(self.caller(id))
    }

    fn call_back(&mut self, now: Time, call: Call, to: Caller) -> Result<CallId, CallError> {
        either!(self.call_back(now, call, to))
    }

    fn is_sealed(&self) -> bool {
        either!(self.is_sealed())
    }

    #[inline]
    fn cancel(&mut self, now: Time, id: CallId) {
        either!(self.cancel(now, id));
    }

    #[inline]
    fn reply(&mut self, now: Time, id: RequestId, payload: Vec<u8>) -> Result<(), AnswerError> {
        either!(self.reply(now, id, payload))
    }

    #[inline]
    fn refuse(&mut self, now: Time, id: RequestId, reason: DropReason) -> Result<(), AnswerError> {
        either!(self.refuse(now, id, reason))
    }

    #[inline]
    fn reject(
        &mut self,
        now: Time,
        id: RequestId,
        code: u32,
        text: &[u8],
    ) -> Result<(), AnswerError> {
        either!(self.reject(now, id, code, text))
    }

    fn say_farewell(&mut self) {
        either!(self.say_farewell());
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        either!(self.poll_event())
    }

    #[inline]
    fn buffer(&mut self) -> Vec<u8> {
        either!(self.buffer())
    }

    #[inline]
    fn buffer_for(&mut self, len: usize) -> Vec<u8> {
        either!(self.buffer_for(len))
    }

    #[inline]
    fn recycle(&mut self, buffer: Vec<u8>) {
        either!(self.recycle(buffer));
    }
}
