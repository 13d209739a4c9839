//! Stamped calls of an endpoint, told by what their packets say on the wire.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use tailcut_proto::node::Time;
use tailcut_proto::rpc::CallId;
use tailcut_wire::{homa, r2p2};

use crate::job::Transport;

/// Protocol of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    R2p2,
    Homa,
}

/// The calls of an endpoint that are stamped, by their number on the wire.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Those that have not left yet, and when they were made.
    picked: Vec<(u64, Time)>,
    /// Those that have, with what names them to the sampler.
    marked: HashMap<u64, u64, FixedState>,
    /// The numbers of both.
    numbers: HashMap<CallId, u64, FixedState>,
    /// The last key given, which is also the transmit's token; 0 is none.
    key: u64,
}

impl Wire {
    pub(super) fn of(transport: Transport) -> Self {
        match transport {
            Transport::Homa | Transport::HomaIp | Transport::HomaTcp => Self::Homa,
            _ => Self::R2p2,
        }
    }

    /// The number of the call whose request begins in a datagram.
    fn request(self, datagram: &[u8]) -> Option<u64> {
        match self {
            Self::R2p2 => {
                let packet = r2p2::Packet::parse_clear(datagram).ok()?;
                let is_first =
                    packet.message_type == r2p2::MessageType::Request && packet.index == 0;
                is_first.then_some(u64::from(packet.rid))
            }
            Self::Homa => {
                let packet =
                    homa::Packet::parse(datagram).ok().filter(homa::Packet::is_from_client)?;
                let homa::Body::Data { header, .. } = packet.body else { return None };
                (header.offset() == 0).then(|| packet.common.sender_id.get())
            }
        }
    }

    /// The number of the call to whose reply a datagram belongs.
    fn reply(self, datagram: &[u8]) -> Option<u64> {
        match self {
            Self::R2p2 => {
                let packet = r2p2::Packet::parse_clear(datagram).ok()?;
                (packet.message_type == r2p2::MessageType::Response)
                    .then_some(u64::from(packet.rid))
            }
            Self::Homa => {
                let packet =
                    homa::Packet::parse(datagram).ok().filter(|packet| !packet.is_from_client())?;
                matches!(packet.body, homa::Body::Data { .. }).then(|| packet.common.local_id())
            }
        }
    }
}

impl Watch {
    /// A call that has been made is to be stamped.
    pub(super) fn pick(&mut self, id: CallId, number: u64, now: Time) {
        self.picked.push((number, now));
        self.numbers.insert(id, number);
    }

    /// True if a call waits for its request to leave.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.picked.is_empty()
    }

    /// The number of the picked call whose request leaves with a datagram, and when it was made.
    pub(super) fn take_picked(&mut self, wire: Wire, datagram: &[u8]) -> Option<(u64, Time)> {
        let number = wire.request(datagram)?;
        let place = self.picked.iter().position(|&(picked, _)| picked == number)?;
        Some(self.picked.swap_remove(place))
    }

    /// The key that [`Watch::mark`] will give.
    pub(super) fn next_key(&self) -> u64 {
        self.key + 1
    }

    /// A call has left with a stamp to come; gives its key.
    pub(super) fn mark(&mut self, number: u64) -> u64 {
        self.key += 1;
        self.marked.insert(number, self.key);
        self.key
    }

    /// The key of the call to whose reply a datagram belongs.
    #[inline]
    pub(super) fn key_of_reply(&self, wire: Wire, datagram: &[u8]) -> Option<u64> {
        if self.marked.is_empty() {
            return None;
        }
        self.marked.get(&wire.reply(datagram)?).copied()
    }

    /// A call has ended; gives its key where it has left.
    pub(super) fn release(&mut self, id: CallId) -> Option<u64> {
        let number = self.numbers.remove(&id)?;
        self.picked.retain(|&(picked, _)| picked != number);
        self.marked.remove(&number)
    }
}
