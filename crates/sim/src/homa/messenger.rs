//! The interface of an experiment to a transport: to carry a message, and to say when it has
//! arrived.

use std::net::SocketAddr;

use tailcut_proto::node::{Node, Time};

use super::Said;

/// A host's end of a transport of messages.
pub(super) trait Messenger: Node {
    /// Sends a message of `len` bytes that is known by `word`; tells whether it was taken.
    fn send(&mut self, now: Time, to: SocketAddr, len: u64, word: u64) -> bool;

    /// A message that has arrived, at whichever end knows its word.
    fn poll_arrival(&mut self, now: Time) -> Option<Arrival>;

    /// Bytes of messages that it has received so far.
    fn data_received_bytes(&self) -> u64;

    /// The control packets that it has sent, if it is an endpoint of Homa.
    fn said(&self) -> Option<Said> {
        None
    }
}

/// A message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// As it was given to [`Messenger::send`].
    pub(super) word: u64,
    /// When the last of it came.
    pub(super) at: Time,
}
