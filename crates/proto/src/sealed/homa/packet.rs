//! One packet of Homa, sealed and opened in place, given the keys. No state.

use tailcut_wire::homa::PacketType;
use tailcut_wire::homa::sealed::{BACK_AT, MARK_AT, NAMED_AT, SEALED_MARK, clear_len, header};
use tailcut_wire::r2p2::sealed::{TRAILER_LEN, Trailer};
use zerocopy::{FromBytes, IntoBytes};

use super::super::known::SessionKey;
pub(in super::super) use super::super::packet::reply_nonce;
use super::super::packet::{Aad, Parts, TAG_LEN};
use super::super::primitives::AeadKey;

/// Fields of a sealed datagram that are read before anything of it is authenticated.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Glance {
    /// Claimed type.
    pub(in super::super) kind: PacketType,
    /// The RPC as its sender numbers it.
    pub(in super::super) id: u64,
    /// It says that it names its receiver.
    pub(in super::super) is_named: bool,
    /// It says that the server has begun the RPC.
    pub(in super::super) is_back: bool,
    /// Bytes that are clear.
    header_len: usize,
    /// Its last bytes.
    pub(in super::super) trailer: Trailer,
}

impl Glance {
    /// True if a client says to have sent it.
    #[inline]
    pub(in super::super) fn is_from_client(&self) -> bool {
        (self.id & 1 == 0) != self.is_back
    }

    /// The number of its RPC in the session.
    #[inline]
    pub(super) fn sequence(&self) -> u32 {
        (self.id & ((1 << SESSION_SHIFT) - 1)) as u32 >> 1
    }

    /// The 40 bits of the session of its RPC.
    #[inline]
    pub(in super::super) fn session(&self) -> u64 {
        self.id >> SESSION_SHIFT
    }

    /// The session of a client's packet.
    #[inline]
    pub(in super::super) fn key(&self) -> SessionKey {
        SessionKey { client: self.trailer.client(), session: self.session() }
    }

    /// The pass of a client's packet.
    #[inline]
    pub(super) fn pass(&self) -> u32 {
        (self.trailer.hop.get() >> u32::BITS) as u32
    }

    /// The count of a client's packet.
    #[inline]
    pub(in super::super) fn count(&self) -> u64 {
        count_of(self.trailer.hop.get())
    }
}

/// Reads what has the form of a sealed datagram; `None` for all else.
pub(in super::super) fn glance(bytes: &[u8]) -> Option<Glance> {
    let (common, kind) = header(bytes)?;
    let [SEALED_MARK, named @ (0 | 1), back @ (0 | 1)] = common.reserved else { return None };
    let header_len = clear_len(kind, bytes.len().checked_sub(TRAILER_LEN)?)?;
    let (_, trailer) = Trailer::ref_from_suffix(bytes).ok()?;
    let (id, is_named, is_back) = (common.sender_id.get(), named == 1, back == 1);
    Some(Glance { kind, id, is_named, is_back, header_len, trailer: *trailer })
}

/// Type and id of a packet that this node has written, behind which there is room for a trailer.
pub(super) fn written(bytes: &[u8]) -> Option<(PacketType, u64)> {
    let (common, kind) = header(bytes)?;
    Some((kind, common.sender_id.get()))
}

/// Seals a packet whose trailer has yet to be written: `trailer` says what is clear of it.
/// `receiver` is whom a packet to a server is for, or 0; `None` of a server's.
pub(super) fn seal(
    bytes: &mut [u8],
    (key, nonce): (&AeadKey, [u8; 12]),
    trailer: &Trailer,
    receiver: Option<u64>,
) -> bool {
    let Some((kind, id)) = written(bytes) else { return false };
    let Some(header_len) = bytes.len().checked_sub(TRAILER_LEN) else { return false };
    let Some(header_len) = clear_len(kind, header_len) else { return false };
    bytes[MARK_AT] = SEALED_MARK;
    bytes[NAMED_AT] = u8::from(receiver.is_some_and(|name| name != 0));
    bytes[BACK_AT] = u8::from(receiver.is_some() != (id & 1 == 0));
    let parts = Parts::of(bytes, header_len);
    let aad = associated(parts.header, trailer, receiver);
    parts.seal((key, nonce), trailer, &aad);
    true
}

/// Opens a packet; `false` if it is forged. What is left is an open packet and, behind it,
/// [`TRAILER_LEN`] bytes.
pub(in super::super) fn open(
    bytes: &mut [u8],
    (key, nonce): (&AeadKey, [u8; 12]),
    seen: &Glance,
    receiver: Option<u64>,
) -> bool {
    let parts = Parts::of(bytes, seen.header_len);
    let aad = associated(parts.header, &seen.trailer, receiver);
    let is_genuine = key.open(nonce, aad.bytes(), parts.payload_and_tag);
    if is_genuine {
        bytes[MARK_AT..=BACK_AT].fill(0);
    }
    is_genuine
}

/// The end of a client's trailer: the pass of its session, and the packet's count.
pub(super) fn numbered(pass: u32, count: u64) -> u64 {
    u64::from(pass) << u32::BITS | count
}

/// The count in such an end.
pub(super) fn count_of(end: u64) -> u64 {
    end & u64::from(u32::MAX)
}

/// The nonce of a packet to a server: its count in its session, which is in the key.
pub(in super::super) fn request_nonce(trailer: &Trailer) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&count_of(trailer.hop.get()).to_be_bytes());
    nonce
}

/// The header, what follows the AEAD's tag, and of a packet to a server the name of that, which is
/// nowhere in the packet.
fn associated(header: &[u8], trailer: &Trailer, receiver: Option<u64>) -> Aad {
    let mut aad = Aad::of(header);
    aad.push(&trailer.as_bytes()[TAG_LEN..]);
    if let Some(name) = receiver {
        aad.push(&name.to_be_bytes());
    }
    aad
}

/// Bits of an id below those of its session.
pub(super) const SESSION_SHIFT: u32 = 24;
