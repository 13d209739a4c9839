//! One packet, sealed and opened in place, given the keys. No state.

use std::net::SocketAddr;

use siphasher::sip::SipHasher24;
use tailcut_wire::homa::sealed::CONTROL_LEN_MAX;
use tailcut_wire::r2p2::sealed::{
    COALESCED_VERSION, HOP_VERSION, RESET_VERSION, SEALED_VERSION, TRAILER_LEN, Trailer,
    VERSION_AT, blank_route,
};
use tailcut_wire::r2p2::{
    EXTENDED_LEN, EXTENSION_VERSION, MAGIC, MessageType, ROUTED_LEN, RequestHeader, Route, RpcId,
    SackBody,
};
use zerocopy::{FromBytes, IntoBytes};

use super::ClientEpoch;
use super::keys::HopKey;
use super::known::SessionKey;
use super::names::Names;
use super::primitives::{AeadKey, are_equal};

/// A sealed datagram, split.
pub(super) struct Parts<'a> {
    /// The header with the route block, if it has one.
    pub(super) header: &'a mut [u8],
    /// The payload and the AEAD's tag behind it.
    pub(super) payload_and_tag: &'a mut [u8],
    /// Bytes behind the tag.
    pub(super) rest: &'a mut [u8],
}

/// Fields of a sealed datagram that are read before anything of it is authenticated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glance {
    /// Claimed type.
    pub(super) kind: MessageType,
    /// It is sealed from end to end.
    pub(super) is_sealed: bool,
    /// There are several packets, of which this is the first.
    pub(super) is_coalesced: bool,
    /// The caller's number of the call.
    pub(super) rid: u16,
    /// The call, or 0.
    pub(super) rpc_id: u64,
    /// A router has written into the route block.
    pub(super) is_routed: bool,
    /// Its last bytes.
    pub(super) trailer: Trailer,
}

impl Glance {
    /// The session of a client's packet.
    #[inline]
    pub(super) fn session(&self) -> SessionKey {
        let session = RpcId(self.rpc_id).session().0;
        SessionKey { client: self.trailer.client(), session }
    }
}

/// Reads what has the form of a sealed datagram; `None` for all else.
pub(super) fn glance(bytes: &[u8]) -> Option<Glance> {
    let (header, _) = RequestHeader::ref_from_prefix(bytes).ok()?;
    let header_len = usize::from(header.base.header_size);
    let is_long_enough = bytes.len() >= header_len + TRAILER_LEN;
    let is_known = matches!(header_len, EXTENDED_LEN | ROUTED_LEN)
        && matches!(
            header.version,
            SEALED_VERSION | HOP_VERSION | COALESCED_VERSION | RESET_VERSION
        );
    let is_sealed = matches!(header.version, SEALED_VERSION | COALESCED_VERSION);
    let is_too_long = !is_sealed && bytes.len() > HOP_PACKET_LEN_MAX;
    if header.base.magic != MAGIC || !is_known || !is_long_enough || is_too_long {
        return None;
    }
    let has_route = header_len == ROUTED_LEN;
    let (_, trailer) = Trailer::ref_from_suffix(bytes).ok()?;
    Some(Glance {
        kind: MessageType::from_byte(header.base.type_policy)?,
        is_sealed,
        is_coalesced: header.version == COALESCED_VERSION,
        rid: header.base.rid.get(),
        rpc_id: header.rpc_id.get(),
        is_routed: has_route && bytes[ROUTED_AT] != 0,
        trailer: *trailer,
    })
}

/// The client that a packet is to be sealed for, as [`ClientEpoch::addressee`] has written it into
/// the last bytes.
#[inline]
pub(super) fn addressee(bytes: &[u8]) -> Option<ClientEpoch> {
    let word = u64::from_be_bytes(*bytes.last_chunk()?);
    (word >> u32::BITS == 1).then_some(ClientEpoch::from_bits(word as u32))
}

/// Splits what [`glance`] has read, or what is about to be sealed.
fn split(bytes: &mut [u8]) -> Parts<'_> {
    let header_len = usize::from(bytes[1]);
    Parts::of(bytes, header_len)
}

impl<'a> Parts<'a> {
    /// Parts of a datagram that is clear up to `header_len`.
    pub(super) fn of(bytes: &'a mut [u8], header_len: usize) -> Self {
        let (header, rest) = bytes.split_at_mut(header_len);
        let (payload_and_tag, rest) = rest.split_at_mut(rest.len() - REST_LEN);
        Parts { header, payload_and_tag, rest }
    }

    /// Encrypts the payload; `trailer` says what follows the tag.
    pub(super) fn seal(self, (key, nonce): (&AeadKey, [u8; 12]), trailer: &Trailer, aad: &Aad) {
        self.rest.copy_from_slice(&trailer.as_bytes()[TAG_LEN..]);
        let payload_len = self.payload_and_tag.len() - TAG_LEN;
        let (payload, tag) = self.payload_and_tag.split_at_mut(payload_len);
        tag.copy_from_slice(&key.seal(nonce, aad.bytes(), payload));
    }
}

/// Seals a packet whose trailer has yet to be written: `trailer` says what is clear of it. With a
/// hop key, the hop tag is written too, for whom the names say.
pub(super) fn seal(
    bytes: &mut [u8],
    key: &AeadKey,
    nonce: [u8; 12],
    (trailer, hop): (&Trailer, Option<(&HopKey, Names)>),
) {
    bytes[VERSION_AT] = SEALED_VERSION;
    seal_all(bytes, (key, nonce), (trailer, hop));
}

/// Seals several packets as one, up to the trailer: the first one's header stays clear.
pub(super) fn seal_coalesced(
    bytes: &mut [u8],
    by: (&AeadKey, [u8; 12]),
    (trailer, hop): (&Trailer, Option<(&HopKey, Names)>),
) {
    bytes[VERSION_AT] = COALESCED_VERSION;
    seal_all(bytes, by, (trailer, hop));
}

fn seal_all(
    bytes: &mut [u8],
    by: (&AeadKey, [u8; 12]),
    (trailer, hop): (&Trailer, Option<(&HopKey, Names)>),
) {
    let parts = split(bytes);
    let aad = Aad::new(parts.header, trailer, hop.is_none());
    parts.seal(by, trailer, &aad);
    if let Some((hop_key, names)) = hop {
        write_hop(bytes, hop_key, names);
    }
}

/// Opens a packet; `false` if it is forged. `has_hop` says that it bears a hop tag, which has been
/// looked at. What is left is an open packet and, behind it, [`TRAILER_LEN`] bytes.
pub(super) fn open(bytes: &mut [u8], key: &AeadKey, nonce: [u8; 12], has_hop: bool) -> bool {
    let Ok((_, &trailer)) = Trailer::ref_from_suffix(bytes) else { return false };
    let parts = split(bytes);
    let aad = Aad::new(parts.header, &trailer, !has_hop);
    let is_genuine = key.open(nonce, aad.bytes(), parts.payload_and_tag);
    if is_genuine {
        bytes[VERSION_AT] = EXTENSION_VERSION;
    }
    is_genuine
}

/// Authenticates a packet for its next hop: the trailer has yet to be written.
pub(super) fn seal_hop(bytes: &mut [u8], trailer: &Trailer, hop_key: &HopKey) {
    bytes[VERSION_AT] = HOP_VERSION;
    let at = bytes.len() - TRAILER_LEN;
    bytes[at..].copy_from_slice(trailer.as_bytes());
    write_hop(bytes, hop_key, Names::default());
}

/// Writes the hop tag of a packet that is otherwise ready.
pub(super) fn write_hop(bytes: &mut [u8], hop_key: &HopKey, names: Names) {
    let tag = hop_tag(bytes, hop_key, names);
    let at = bytes.len() - HOP_LEN;
    bytes[at..].copy_from_slice(&tag.to_be_bytes());
}

/// True if the hop tag of a packet is that of the key and the names.
#[inline]
pub(super) fn is_hop_genuine(bytes: &[u8], hop_key: &HopKey, names: Names) -> bool {
    let at = bytes.len() - HOP_LEN;
    are_equal(&hop_tag(bytes, hop_key, names).to_be_bytes(), &bytes[at..])
}

/// SipHash-2-4: of what is sealed over the header, the trailer without the AEAD's tag, which stands
/// for the payload, and the names, which are nowhere in the packet; of what is not, over all of it,
/// which has them.
fn hop_tag(bytes: &[u8], hop_key: &HopKey, names: Names) -> u64 {
    let hasher = SipHasher24::new_with_key(hop_key.bytes());
    let covered = &bytes[..bytes.len() - HOP_LEN];
    if bytes[VERSION_AT] == HOP_VERSION {
        return hasher.hash(covered);
    }
    // In one piece, which takes half of the time that several take.
    let mut aad = Aad::of(&covered[..usize::from(bytes[1])]);
    aad.push(&covered[covered.len() + HOP_LEN - TRAILER_LEN..]);
    aad.push(&names.receiver.to_be_bytes());
    aad.push(&names.sender.to_be_bytes());
    hasher.hash(aad.bytes())
}

/// The nonce of a packet to a server: the sequence, the microsecond and the count within it. The
/// session and when it began are in the key.
pub(super) fn request_nonce(header: &[u8]) -> [u8; 12] {
    let mut nonce = [0; 12];
    // The low 24 bits of the id, the client's clock, and the field that is reserved in open
    // packets.
    nonce[1..4].copy_from_slice(&header[13..16]);
    nonce[4..8].copy_from_slice(&header[CLOCK_AT..CLOCK_AT + 4]);
    nonce[8..10].copy_from_slice(&header[COUNT_AT..COUNT_AT + 2]);
    nonce
}

/// The nonce of a packet from a server: its count.
pub(super) fn reply_nonce(trailer: &Trailer) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&trailer.count().to_be_bytes());
    nonce
}

/// A trailer with 56 bits of a count, or with a client and a time.
pub(super) fn trailer(high: u32, epoch: u8, low: u32, hop: u64) -> Trailer {
    let [_, a, b, c] = high.to_be_bytes();
    Trailer { tag: [0; TAG_LEN], high: [a, b, c], epoch, low: low.into(), hop: hop.into() }
}

/// The trailer of a packet for one hop: its names, which are in place of the AEAD's tag, and its
/// time.
pub(super) fn hop_trailer(names: Names, epoch: u8, time: u64) -> Trailer {
    let mut trailer = trailer((time >> 32) as u32, epoch, time as u32, 0);
    trailer.set_names(names.sender, names.receiver);
    trailer
}

/// The names in such a trailer.
pub(super) fn hop_names(trailer: &Trailer) -> Names {
    let (sender, receiver) = trailer.names();
    Names { receiver, sender }
}

/// Associated data.
pub(super) struct Aad {
    /// At their beginning.
    bytes: [u8; AAD_LEN_MAX],
    /// Number of them.
    len: usize,
}

impl Aad {
    /// The header as its sender wrote it, and what follows the AEAD's tag, but a hop tag.
    fn new(header: &[u8], trailer: &Trailer, has_instance: bool) -> Self {
        let mut aad = Self::of(header);
        blank_route(&mut aad.bytes[..header.len()]);
        let rest_len = if has_instance { REST_LEN } else { REST_LEN - HOP_LEN };
        aad.push(&trailer.as_bytes()[TAG_LEN..TAG_LEN + rest_len]);
        aad
    }

    /// A header.
    pub(super) fn of(header: &[u8]) -> Self {
        let mut aad = Self { bytes: [0; AAD_LEN_MAX], len: 0 };
        aad.push(header);
        aad
    }

    /// And these.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The client that a packet says it is from, behind a router too.
pub(super) fn client_address(bytes: &[u8], seen: &Glance, peer: SocketAddr) -> SocketAddr {
    match route_of(bytes, seen) {
        Some(route) if route.client_port.get() != 0 => route.client(),
        _ => peer,
    }
}

/// True if a router has written the client's address into a packet, which then comes from the
/// router's own.
pub(super) fn is_annotated(bytes: &[u8], seen: &Glance) -> bool {
    route_of(bytes, seen).is_some_and(|route| route.client_port.get() != 0)
}

fn route_of<'a>(bytes: &'a [u8], seen: &Glance) -> Option<&'a Route> {
    if !seen.is_routed {
        return None;
    }
    Route::ref_from_bytes(&bytes[EXTENDED_LEN..ROUTED_LEN]).ok()
}

/// True if an ACK gives no credit: who sends it has been named by nobody, and tells its name.
pub(super) fn is_asking_for_name(bytes: &[u8]) -> bool {
    let payload = usize::from(bytes[1])..bytes.len() - TRAILER_LEN;
    let sack = SackBody::ref_from_bytes(&bytes[payload]);
    sack.is_ok_and(|sack| sack.granted.get() == 0)
}

/// Type and id of a packet of the extension that this node has written.
pub(super) fn written(bytes: &[u8]) -> Option<(MessageType, RpcId)> {
    let (header, _) = RequestHeader::ref_from_prefix(bytes).ok()?;
    let is_extended = usize::from(header.base.header_size) >= EXTENDED_LEN;
    let kind = MessageType::from_byte(header.base.type_policy)?;
    is_extended.then(|| (kind, RpcId(header.rpc_id.get())))
}

/// Place of the count within a microsecond, towards a server: reserved in open packets.
pub(super) const COUNT_AT: usize = 22;
/// Place of the client's clock: in sealed packets the microseconds since the session began.
pub(super) const CLOCK_AT: usize = 24;
/// Place of the clock that a server echoes.
pub(super) const ECHO_AT: usize = 28;
/// Place of `routed`.
pub(super) const ROUTED_AT: usize = 66;
pub(super) const TAG_LEN: usize = 16;
const HOP_LEN: usize = 8;
/// Most bytes of a packet that is authenticated for one hop: all of them are hashed before it is
/// believed, and the longest, an ACK, has fewer than 150.
const HOP_PACKET_LEN_MAX: usize = 256;
/// Bytes of the trailer behind the AEAD's tag.
const REST_LEN: usize = TRAILER_LEN - TAG_LEN;
/// Most bytes of associated data, and of what is under a hop tag: the longest header of any
/// transport, the trailer, and two names.
const AAD_LEN_MAX: usize = CONTROL_LEN_MAX + TRAILER_LEN + 2 * size_of::<u64>();
/// Place of what a packet is in its message.
pub(super) const POSITION_AT: usize = 3;
/// Place of the flags.
pub(super) const FLAGS_AT: usize = 20;

#[cfg(test)]
mod tests {
    use tailcut_wire::r2p2::RequestRepr;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// A request of one packet, in whose route block something may have been written.
    fn request(route: Route) -> Vec<u8> {
        let repr = RequestRepr::control(MessageType::Request, 0, RpcId(1));
        let mut bytes = vec![0; repr.header_len() + TRAILER_LEN];
        repr.emit(&mut bytes);
        bytes[VERSION_AT] = SEALED_VERSION;
        bytes[EXTENDED_LEN..ROUTED_LEN].copy_from_slice(route.as_bytes());
        bytes
    }

    /// A router that keeps addresses sends from the client's own, and writes none.
    #[test]
    fn a_client_is_where_its_router_says_or_where_its_packet_is_from() {
        let (client, peer) = (address("10.0.0.1:1000"), address("10.0.0.2:8000"));
        let (none, written) = (Route::default(), Route::to_client(client));
        for (route, expected, annotated) in [
            (none, peer, false),
            (written, peer, false),
            (Route { routed: 1, ..none }, peer, false),
            (Route { routed: 1, ..written }, client, true),
        ] {
            let bytes = request(route);
            let seen = glance(&bytes).unwrap();
            assert_eq!(client_address(&bytes, &seen, peer), expected, "{route:?}");
            assert_eq!(is_annotated(&bytes, &seen), annotated, "{route:?}");
        }
    }

    /// All of a packet for one hop is hashed before it is believed, and that is bounded.
    #[test]
    fn a_packet_for_one_hop_is_short() {
        for (version, len, is_seen) in
            [(HOP_VERSION, 256, true), (HOP_VERSION, 257, false), (SEALED_VERSION, 257, true)]
        {
            let mut bytes = request(Route::default());
            bytes[VERSION_AT] = version;
            bytes.resize(len, 0);
            assert_eq!(glance(&bytes).is_some(), is_seen, "{len} B of version {version}");
        }
    }

    /// Microseconds since 1970 are more than 32 bits tell.
    #[test]
    fn a_packet_for_one_hop_tells_its_names_and_a_time_of_56_bits() {
        let names = Names { receiver: 0x1234_5600, sender: 0x9a00 };
        for time in [0, 1, u64::from(u32::MAX), 1_764_086_400_000_000, (1 << 56) - 1] {
            let trailer = hop_trailer(names, 7, time);
            assert_eq!((trailer.count(), trailer.epoch), (time, 7));
            assert_eq!(hop_names(&trailer), names);
        }
    }
}
