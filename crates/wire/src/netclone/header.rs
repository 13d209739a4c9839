//! Header layouts and the enumerations in them. Offsets are those of `docs/protocol/netclone.md`.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Fields that a switch reads of a packet to or from [`super::PORT`].
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// [`Op`]; a switch drops anything else.
    pub op: U32,
    /// The switch's id of the request, 1 to [`super::SEQ_MAX`]; 0 from the client.
    pub seq: U32,
    /// Group that the client draws: an ordered pair of servers, from 1.
    pub grp: U32,
    /// On a response the server's own id, from 0; on both copies of a request the id of the second
    /// server; from the client nothing.
    pub sid: U32,
    /// On a response the requests that wait at the server, those that run left out.
    pub load: U32,
    /// [`CloneMark`]; servers echo it.
    pub clo: U32,
    /// Filter table that the client draws, 0 or 1; servers echo it.
    pub tidx: U32,
}

impl Header {
    /// This header with a clone mark.
    #[must_use]
    pub fn marked(self, mark: CloneMark) -> Self {
        Self { clo: (mark as u32).into(), ..self }
    }
}

/// Fields that end hosts append to a [`Header`]. No switch reads them, and servers echo the first
/// part.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Trailer {
    /// The client's own: the published one puts the time of the send there.
    pub stamp: [u8; 8],
    /// The server's own: the published one keeps the client's `sockaddr_in` there while the request
    /// waits.
    pub address: [u8; 16],
}

/// A packet of the baseline without clones.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NoClone {
    /// [`Op`].
    pub op: U32,
    /// The key that is asked for; servers echo it.
    pub key: U32,
    /// As on other packets.
    pub trailer: Trailer,
}

/// A packet of the baseline whose client sends two copies.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CClone {
    /// [`Op`].
    pub op: U32,
    /// The key that is asked for; servers echo it.
    pub key: U32,
    /// The client's id of the request, in the order of its host; servers echo it.
    pub seq: [u8; 4],
    /// As on other packets.
    pub trailer: Trailer,
}

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// Client to server.
    Request = 0,
    /// Server to client.
    Response = 1,
}

impl Op {
    /// The direction that a field names.
    pub fn from_field(op: U32) -> Option<Self> {
        match op.get() {
            0 => Some(Self::Request),
            1 => Some(Self::Response),
            _ => None,
        }
    }
}

/// Mark of a packet: which of two copies it is, or belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CloneMark {
    /// Not cloned.
    Single = 0,
    /// The original of two, which servers never discard.
    Original = 1,
    /// The clone, which a server discards where requests wait.
    Clone = 2,
}

impl CloneMark {
    /// The mark that a field names.
    pub fn from_field(clo: U32) -> Option<Self> {
        match clo.get() {
            0 => Some(Self::Single),
            1 => Some(Self::Original),
            2 => Some(Self::Clone),
            _ => None,
        }
    }
}
