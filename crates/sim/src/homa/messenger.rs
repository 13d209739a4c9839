//! The interface of an experiment to a transport: to carry a message, and to say when it has
//! arrived.

use std::net::SocketAddr;

use tailcut_proto::node::{Node, Time};

use super::Said;

/// A host's end of a transport of messages.
pub(super) trait Messenger: Node + Send {
    /// Sends a message of `len` bytes that is known by `word`; tells whether it was taken.
    fn send(&mut self, now: Time, to: SocketAddr, len: u64, word: u64) -> bool;

    /// Asks another host for a message of `len` bytes, at least [`ASKED_LEN_MIN`], as for the reply
    /// of a call; tells whether it was taken. What has no calls takes none.
    fn ask(&mut self, now: Time, of: SocketAddr, len: u64, word: u64) -> bool {
        let _ = (now, of, len, word);
        false
    }

    /// A message that has arrived, at whichever end knows its word.
    fn poll_arrival(&mut self, now: Time) -> Option<Arrival>;

    /// Bytes of messages that it has received so far.
    fn data_received_bytes(&self) -> u64;

    /// The control packets that it has sent, if it is an endpoint of Homa.
    fn said(&self) -> Option<Said> {
        None
    }
}

/// Bytes of a message that asks for another.
pub(super) const ASK_LEN: usize = 8;
/// Bytes of the shortest message that a host is asked for: longer than one that asks, or an
/// acknowledgement.
pub(super) const ASKED_LEN_MIN: u64 = ASK_LEN as u64 + 1;

/// A message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// As it was given to [`Messenger::send`] or [`Messenger::ask`].
    pub(super) word: u64,
    /// Arrival time of the last of it.
    pub(super) at: Time,
}
