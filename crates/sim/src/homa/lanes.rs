//! Transports to compare Homa with: messages without priorities and grants, as lanes that share the
//! NIC in turns.
//!
//! | transport | a lane is | under way in a lane |
//! |---|---|---|
//! | plain | one message | all of it |
//! | streams | all messages to one host, in order | a window, which acknowledgements open |
//!
//! A stream has the window that TCP has without scaling. Nothing is lost here, because buffers have
//! no end, so nothing would make it smaller.
//!
//! Invariant: a lane with something that may leave is in the ring exactly once.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use foldhash::fast::FixedState;
use tailcut_proto::address::AddressKey;
use tailcut_proto::node::{Node, Path, Time, Transmit};

use super::messenger::{Arrival, Messenger};
use super::paper;
use crate::network::Carriage;

/// Sharing of lanes by messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Each message has its own.
    Plain,
    /// One for each host that messages go to.
    Streams,
}

/// A host's end of either transport.
#[derive(Debug)]
pub(super) struct Lanes {
    sharing: Sharing,
    lanes: Vec<Lane>,
    free: Vec<u32>,
    /// The stream to each host.
    streams: HashMap<AddressKey, u32, FixedState>,
    /// Lanes that have something to send, in turns.
    ring: VecDeque<u32>,
    /// Acknowledgements to send: to whom, of which lane, and bytes.
    acks: VecDeque<(SocketAddr, u32, u32)>,
    /// Bytes received of messages that are not whole.
    received: HashMap<u64, u64, FixedState>,
    arrived: VecDeque<u64>,
    data_received_bytes: u64,
}

#[derive(Debug)]
struct Lane {
    to: SocketAddr,
    messages: VecDeque<Outgoing>,
    /// Bytes that are sent and not acknowledged.
    outstanding: u64,
    is_in_ring: bool,
}

#[derive(Clone, Copy, Debug)]
struct Outgoing {
    word: u64,
    len: u64,
    sent: u64,
}

/// The header of a datagram. Its data is not there: only the number of its bytes is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Header {
    /// The message; of an acknowledgement [`RECEIPT`].
    word: u64,
    /// Bytes of the message.
    len: u64,
    /// Bytes of data, or bytes that are acknowledged.
    data_len: u32,
    /// The sender's lane.
    lane: u32,
}

impl Lanes {
    /// Nothing to send.
    pub(super) fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            lanes: Vec::new(),
            free: Vec::new(),
            streams: HashMap::with_hasher(FixedState::default()),
            ring: VecDeque::new(),
            acks: VecDeque::new(),
            received: HashMap::with_hasher(FixedState::default()),
            arrived: VecDeque::new(),
            data_received_bytes: 0,
        }
    }

    fn lane_to(&mut self, to: SocketAddr) -> u32 {
        let known =
            self.streams.get(&AddressKey(to)).copied().filter(|_| self.sharing == Sharing::Streams);
        if let Some(lane) = known {
            return lane;
        }
        let lane = Lane { to, messages: VecDeque::new(), outstanding: 0, is_in_ring: false };
        let place = self.free.pop().unwrap_or(self.lanes.len() as u32);
        match self.lanes.get_mut(place as usize) {
            Some(old) => *old = lane,
            None => self.lanes.push(lane),
        }
        if self.sharing == Sharing::Streams {
            self.streams.insert(AddressKey(to), place);
        }
        place
    }

    /// Puts a lane in the ring if it has something that may leave.
    fn enlist(&mut self, place: u32) {
        let is_open =
            self.sharing == Sharing::Plain || self.lanes[place as usize].outstanding < WINDOW_BYTES;
        let lane = &mut self.lanes[place as usize];
        if is_open && !lane.is_in_ring && !lane.messages.is_empty() {
            lane.is_in_ring = true;
            self.ring.push_back(place);
        }
    }

    fn take_packet(&mut self) -> Option<(SocketAddr, Header)> {
        let place = self.ring.pop_front()?;
        let lane = &mut self.lanes[place as usize];
        lane.is_in_ring = false;
        let message = lane.messages.front_mut().expect("a lane in the ring has a message");
        let data_len = (message.len - message.sent).min(paper::UNSCHEDULED_DATA_LEN);
        let header =
            Header { word: message.word, len: message.len, data_len: data_len as u32, lane: place };
        message.sent += data_len;
        lane.outstanding += data_len;
        if message.sent == message.len {
            lane.messages.pop_front();
        }
        let to = lane.to;
        if self.sharing == Sharing::Plain && lane.messages.is_empty() {
            self.free.push(place);
        } else {
            self.enlist(place);
        }
        Some((to, header))
    }
}

impl Node for Lanes {
    fn handle_datagram(&mut self, _now: Time, path: Path, bytes: &mut [u8]) {
        let Some(header) = Header::parse(bytes) else { return };
        if header.word == RECEIPT {
            let lane = &mut self.lanes[header.lane as usize];
            lane.outstanding -= u64::from(header.data_len);
            return self.enlist(header.lane);
        }
        if self.sharing == Sharing::Streams {
            self.acks.push_back((path.peer, header.lane, header.data_len));
        }
        self.data_received_bytes += u64::from(header.data_len);
        let received = self.received.entry(header.word).or_default();
        *received += u64::from(header.data_len);
        if *received == header.len {
            self.received.remove(&header.word);
            self.arrived.push_back(header.word);
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let ack = self.acks.pop_front();
        let (to, header) = match ack {
            Some((to, lane, data_len)) => (to, Header { word: RECEIPT, len: 0, data_len, lane }),
            None => self.take_packet()?,
        };
        buffer[..HEADER_LEN].copy_from_slice(&header.bytes());
        Some(Transmit::single(to, HEADER_LEN))
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

impl Messenger for Lanes {
    fn send(&mut self, _now: Time, to: SocketAddr, len: u64, word: u64) -> bool {
        let place = self.lane_to(to);
        self.lanes[place as usize].messages.push_back(Outgoing { word, len, sent: 0 });
        self.enlist(place);
        true
    }

    fn poll_arrival(&mut self, now: Time) -> Option<Arrival> {
        self.arrived.pop_front().map(|word| Arrival { word, at: now })
    }

    fn data_received_bytes(&self) -> u64 {
        self.data_received_bytes
    }
}

impl Header {
    fn bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.word.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.data_len.to_be_bytes());
        bytes[20..].copy_from_slice(&self.lane.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (word, rest) = bytes.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (data_len, rest) = rest.split_first_chunk()?;
        let lane = rest.first_chunk()?;
        let (word, len) = (u64::from_be_bytes(*word), u64::from_be_bytes(*len));
        Some(Self {
            word,
            len,
            data_len: u32::from_be_bytes(*data_len),
            lane: u32::from_be_bytes(*lane),
        })
    }
}

/// The framing of datagrams: as much as a packet of Homa with the same data.
pub(super) fn framing(bytes: &[u8]) -> Carriage {
    let header = Header::parse(bytes).unwrap_or_default();
    let is_ack = header.word == RECEIPT;
    Carriage::Links(if is_ack {
        paper::CONTROL_WIRE_BYTES
    } else {
        paper::unscheduled_wire_bytes(header.data_len)
    })
}

pub(super) const HEADER_LEN: usize = 24;
/// The word of an acknowledgement.
const RECEIPT: u64 = u64::MAX;
/// Bytes of a stream under way.
const WINDOW_BYTES: u64 = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that a node sends in its next `count` packets, to hosts 1 (words below 10) and 2.
    fn order(sharing: Sharing, messages: &[(u64, u64)], count: usize) -> Vec<u64> {
        let mut node = Lanes::new(sharing);
        for &(word, len) in messages {
            let to = SocketAddr::from(([10, 0, 0, if word < 10 { 1 } else { 2 }], 1));
            node.send(0, to, len, word);
        }
        let mut buffer = [0; HEADER_LEN];
        let words = std::iter::from_fn(|| {
            node.poll_transmit(0, &mut buffer)?;
            Header::parse(&buffer).map(|header| header.word)
        });
        words.take(count).collect()
    }

    #[test]
    fn plain_messages_take_turns() {
        assert_eq!(
            order(Sharing::Plain, &[(1, 3000), (2, 100), (11, 2000)], 9),
            [1, 2, 11, 1, 11, 1]
        );
    }

    #[test]
    fn a_stream_sends_its_messages_in_order() {
        assert_eq!(
            order(Sharing::Streams, &[(1, 3000), (2, 100), (11, 2000)], 9),
            [1, 11, 1, 11, 1, 2]
        );
    }

    #[test]
    fn a_stream_stops_at_its_window() {
        assert_eq!(order(Sharing::Streams, &[(1, 1_000_000)], 999).len(), 46);
    }
}
