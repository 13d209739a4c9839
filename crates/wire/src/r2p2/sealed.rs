//! The trailer of sealed packets: what is added to a packet of the extension, and which of its
//! bytes a router may change.
//!
//! | `version` | the packet | last 32 bytes |
//! |---|---|---|
//! | [`SEALED_VERSION`] | header clear, payload sealed from end to end | [`Trailer`] |
//! | [`COALESCED_VERSION`] | header of the first of several packets clear, all else sealed | [`Trailer`] |
//! | [`HOP_VERSION`] | clear, authenticated between a router and its neighbour | [`Trailer`], names in place of `tag` |
//! | [`RESET_VERSION`] | clear, answers a packet under a key that is not there | the same |
//!
//! What they mean is in `docs/sealed.md`.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{EXTENDED_LEN, ROUTED_LEN};

/// Version of the extension, its byte 21, of a packet that is sealed from end to end.
pub const SEALED_VERSION: u8 = 2;
/// Version of the extension of a packet that is authenticated for the next hop alone.
pub const HOP_VERSION: u8 = 3;
/// Version of the extension of the first of several packets in one datagram, which are sealed from
/// end to end under one tag. The last [`COALESCED_WORD_LEN`] bytes that are sealed say how long
/// each but the last is.
pub const COALESCED_VERSION: u8 = 4;
/// Bytes of the length of packets, behind those of a coalesced datagram.
pub const COALESCED_WORD_LEN: usize = 2;
/// Version of the extension of an answer to a request of whose epoch a node has no key: a DROP
/// under the client's reset key.
pub const RESET_VERSION: u8 = 5;
/// Bytes that sealing adds to a packet.
pub const TRAILER_LEN: usize = 32;
/// Place of `version` in the header.
pub const VERSION_AT: usize = 21;

/// The last bytes of a sealed packet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Trailer {
    /// The AEAD's tag over header, payload and what follows; with [`HOP_VERSION`] the sender's name
    /// and the receiver's, see [`Trailer::names`].
    pub tag: [u8; 16],
    /// Towards a server the client's number, else the high bits of `low`.
    pub high: [u8; 3],
    /// The epoch of the keys.
    pub epoch: u8,
    /// Towards a server when the session began, else the low bits of a count.
    pub low: U32,
    /// Towards a server, and with [`HOP_VERSION`], the hop tag, but of Homa the pass of the session
    /// and the count of the client's packets; from a server the instance whose reply key it is.
    pub hop: U64,
}

impl Trailer {
    /// The 56 bits of `high` and `low`.
    pub fn count(&self) -> u64 {
        let [a, b, c] = self.high;
        u64::from(u32::from_be_bytes([0, a, b, c])) << 32 | u64::from(self.low.get())
    }

    /// Sender and receiver of a packet with [`HOP_VERSION`]; 0 for one that is not known.
    pub fn names(&self) -> (u64, u64) {
        let name = |at: usize| {
            let bytes = self.tag[at..].first_chunk().expect("the tag has two names");
            u64::from_be_bytes(*bytes)
        };
        (name(0), name(size_of::<u64>()))
    }

    /// Writes what [`Trailer::names`] reads.
    pub fn set_names(&mut self, sender: u64, receiver: u64) {
        let (first, second) = self.tag.split_at_mut(size_of::<u64>());
        first.copy_from_slice(&sender.to_be_bytes());
        second.copy_from_slice(&receiver.to_be_bytes());
    }

    /// `high` as a number.
    pub fn client(&self) -> u32 {
        let [a, b, c] = self.high;
        u32::from_be_bytes([0, a, b, c])
    }
}

/// Blanks what a router may write into packet 0 of a request, in a copy of its header: those bytes
/// are under the hop tag, and the AEAD takes them for zero. All other headers stay as they are.
pub fn blank_route(header: &mut [u8]) {
    if header.len() < ROUTED_LEN {
        return;
    }
    header[FLAGS_AT] &= !FLAGS_OF_ROUTERS;
    header[DEADLINE_AT..DEADLINE_AT + 4].fill(0);
    header[AGE_AT..AGE_AT + 2].fill(0);
    header[EXTENDED_LEN..ROUTED_LEN].fill(0);
}

const FLAGS_AT: usize = 20;
/// The flags that a router may change: RETRANSMIT and the clone mark.
pub const FLAGS_OF_ROUTERS: u8 = 0x0e;
const DEADLINE_AT: usize = 28;
const AGE_AT: usize = 46;
