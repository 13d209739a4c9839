//! An endpoint of which every call and answer is the test's: what streams say to it is kept, and
//! what it says to them is made up.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::rpc::{
    AnswerError, Call, CallError, CallId, CallOptions, DropReason, Event, Failure, RequestId, Rpc,
};

/// The endpoint; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    calls: VecDeque<(CallId, Call)>,
    cancelled: Vec<CallId>,
    answers: VecDeque<Result<Vec<u8>, DropReason>>,
    events: VecDeque<Event>,
    drawn: u64,
    farewells: u32,
}

impl Fake {
    /// The oldest call that was made and not taken by this.
    pub(crate) fn next_call(&self) -> Option<(CallId, Call)> {
        self.0.borrow_mut().calls.pop_front()
    }

    /// The oldest answer that was given and not taken by this.
    pub(crate) fn next_answer(&self) -> Option<Result<Vec<u8>, DropReason>> {
        self.0.borrow_mut().answers.pop_front()
    }

    /// True if a call has been cancelled.
    pub(crate) fn is_cancelled(&self, id: CallId) -> bool {
        self.0.borrow().cancelled.contains(&id)
    }

    /// Number of times that it was told to say farewell.
    pub(crate) fn farewells(&self) -> u32 {
        self.0.borrow().farewells
    }

    /// A request comes; whoever owns the endpoint hears of it with its next input.
    pub(crate) fn request(&self, client: SocketAddr, payload: Vec<u8>) {
        let mut state = self.0.borrow_mut();
        state.drawn += 1;
        let id = RequestId(state.drawn);
        state.events.push_back(Event::Request {
            id,
            client,
            payload,
            deadline: Time::MAX,
            options: CallOptions::default(),
        });
    }

    /// A call ends.
    pub(crate) fn end(&self, (id, call): &(CallId, Call), result: Result<Vec<u8>, Failure>) {
        let (id, context) = (*id, call.context);
        let event = match result {
            Ok(payload) => Event::Replied { id, context, server: call.target, payload },
            Err(failure) => Event::Failed {
                id,
                context,
                failure,
                server: None,
                text: Vec::new(),
                retry_after_ns: 0,
            },
        };
        self.0.borrow_mut().events.push_back(event);
    }
}

impl Node for Fake {
    fn handle_datagram(&mut self, _now: Time, _path: Path, _bytes: &mut [u8]) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, _buffer: &mut [u8]) -> Option<Transmit> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

impl Rpc for Fake {
    fn call(&mut self, _now: Time, call: Call) -> Result<CallId, CallError> {
        let mut state = self.0.borrow_mut();
        state.drawn += 1;
        let id = CallId(state.drawn);
        state.calls.push_back((id, call));
        Ok(id)
    }

    fn cancel(&mut self, _now: Time, id: CallId) {
        self.0.borrow_mut().cancelled.push(id);
    }

    fn reply(&mut self, _now: Time, _id: RequestId, payload: Vec<u8>) -> Result<(), AnswerError> {
        self.0.borrow_mut().answers.push_back(Ok(payload));
        Ok(())
    }

    fn refuse(
        &mut self,
        _now: Time,
        _id: RequestId,
        reason: DropReason,
    ) -> Result<(), AnswerError> {
        self.0.borrow_mut().answers.push_back(Err(reason));
        Ok(())
    }

    fn say_farewell(&mut self) {
        self.0.borrow_mut().farewells += 1;
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.0.borrow_mut().events.pop_front()
    }

    fn buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn recycle(&mut self, _buffer: Vec<u8>) {}
}
