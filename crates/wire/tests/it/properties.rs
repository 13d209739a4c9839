//! The parser against arbitrary bytes, against bytes that are nearly packets, and against every
//! packet that can be built.

use proptest::collection::vec;
use proptest::prelude::*;
use tailcut_wire::r2p2::{
    BASE_LEN, ClaimBody, EXTENDED_LEN, FeedbackBody, FeedbackV1, Flags, Kind, Malformed,
    MessageType, Packet, Policy, ROUTED_LEN, ReplyRepr, RequestRepr, Route, RpcId, SackBody,
    Segment, SessionId, V1_ACK, V1_DROP, V1_PACKETS_MAX, V1Repr, packet_count, payload_span,
};
use zerocopy::IntoBytes;

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200), magic in any::<bool>()) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut().filter(|_| magic) {
            *first = 0xcc;
        }
        exercise(&bytes);
    }

    #[test]
    fn damaged_packets_do_not_panic(built in any_packet(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = built.bytes;
        for (at, byte) in damage {
            let at = at.index(bytes.len().min(EXTENDED_LEN + size_of::<SackBody>()));
            bytes[at] = byte;
        }
        exercise(&bytes);
    }

    #[test]
    fn built_packets_parse_to_what_was_built(built in any_packet()) {
        let packet = Packet::parse(&built.bytes).unwrap();
        prop_assert_eq!(packet.message_type, built.message_type);
        prop_assert_eq!(packet.policy, built.policy);
        prop_assert_eq!((packet.index, packet.count, packet.is_last), (built.index, built.count, built.is_last));
        prop_assert_eq!(packet.rid, built.rid);
        prop_assert_eq!(packet.payload, &built.bytes[built.header_len..]);
        prop_assert_eq!(Header::of(&packet), built.header);
        prop_assert_eq!(packet.sack().copied(), built.sack);
        prop_assert_eq!(packet.feedback().copied(), built.feedback);
        match packet.kind {
            Kind::Request { route, .. } | Kind::Reply { route, .. } => prop_assert_eq!(route.is_some(), built.header_len == ROUTED_LEN),
            Kind::V1 => prop_assert_eq!(built.header_len, BASE_LEN),
        }
    }

    /// A version 1 data packet does not say how long it is, so that a shorter one is a packet too;
    /// nothing else is. The first 16 bytes of an extended FEEDBACK read as a version 1 one, whose
    /// header is not to be looked at.
    #[test]
    fn truncated_packets_are_refused_or_coherent(built in any_packet()) {
        for len in 0..built.bytes.len() {
            let Ok(packet) = Packet::parse(&built.bytes[..len]) else { continue };
            prop_assert!(!packet.is_extended(), "{len} bytes of an extended packet");
            prop_assert_eq!(packet.message_type, built.message_type);
            let is_v1_feedback = built.message_type == MessageType::Feedback && len == 16;
            let is_v1 = built.header_len == BASE_LEN && (packet.is_data() || built.message_type == MessageType::Drop);
            prop_assert!(is_v1_feedback || is_v1, "{len} bytes of {built:?}");
        }
    }

    #[test]
    fn extended_packets_with_a_byte_too_many_are_refused(built in any_packet(), byte in any::<u8>()) {
        let mut bytes = built.bytes;
        bytes.push(byte);
        if built.header.is_some() {
            prop_assert_eq!(Packet::parse(&bytes).unwrap_err(), Malformed::Length);
        }
    }

    #[test]
    fn spans_of_a_message_cover_it_once(message_len in 0u32..2_000_000, segment_len in 1u16..) {
        if let Some(count) = packet_count(message_len, segment_len) {
            let mut end = 0;
            for index in 0..count {
                let (offset, len) = payload_span(index, message_len, segment_len);
                prop_assert_eq!(offset, end);
                prop_assert!(len > 0 || message_len == 0);
                end += len;
            }
            prop_assert_eq!(end, message_len as usize);
            prop_assert_eq!(payload_span(count, message_len, segment_len).1, 0);
        } else {
            prop_assert!(message_len.div_ceil(u32::from(segment_len)) >= u32::from(u16::MAX));
        }
    }

    #[test]
    fn sack_knows_the_packets_that_it_was_told(base in any::<u16>(), bitmap in any::<[u8; 32]>(), distance in -20i32..300) {
        let index = (i32::from(base) + distance).clamp(0, i32::from(u16::MAX)) as u16;
        let sack = SackBody { base: base.into(), granted: 0.into(), bitmap };
        let expected = match index.checked_sub(base) {
            None => true,
            Some(0) => false,
            Some(above) => {
                let bit = usize::from(above - 1);
                bit < 256 && bitmap[bit / 8] & 1 << (bit % 8) != 0
            }
        };
        prop_assert_eq!(sack.has(index), expected);
    }

    #[test]
    fn rpc_id_keeps_its_parts(session in 0u64..1 << 40, sequence in 0..=RpcId::SEQUENCE_MAX) {
        let id = RpcId::new(SessionId(session), sequence);
        prop_assert_eq!((id.session(), id.sequence()), (SessionId(session), sequence));
    }
}

/// A packet's bytes and what they must parse to.
#[derive(Clone, Debug)]
struct Built {
    bytes: Vec<u8>,
    header_len: usize,
    message_type: MessageType,
    policy: Policy,
    index: u16,
    count: u16,
    is_last: bool,
    rid: u16,
    header: Option<Header>,
    sack: Option<SackBody>,
    feedback: Option<FeedbackBody>,
}

/// Contents of an extended header, by its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    Request(RequestRepr),
    Reply(ReplyRepr),
}

impl Header {
    /// Reads each field of a packet's header back.
    fn of(packet: &Packet) -> Option<Self> {
        let (kind, rid, rpc_id) = (packet.message_type, packet.rid, packet.rpc_id()?);
        let (message_len, segment_len) = packet.lengths();
        let segment =
            Segment { message_len, segment_len, index: packet.index, count: packet.count };
        let (flags, token) = (packet.flags().0, packet.token());
        if let Some(header) = packet.reply_header() {
            let server_load = header.server_load.get();
            let server_waiting = header.server_waiting.get();
            let server_id = header.server_id.get();
            let clock_echo_us = header.clock_echo_us.get();
            return Some(Self::Reply(ReplyRepr {
                kind,
                rid,
                rpc_id,
                segment,
                flags,
                server_load,
                server_waiting,
                server_id,
                clock_echo_us,
                token,
                detail: header.detail.get(),
            }));
        }
        let header = packet.request_header()?;
        Some(Self::Request(RequestRepr {
            kind,
            policy: packet.policy,
            rid,
            rpc_id,
            segment,
            flags,
            client_clock_us: header.client_clock_us.get(),
            deadline_us: header.deadline_us.get(),
            token,
            floor: header.floor.get(),
            age_ms: header.age_ms.get(),
        }))
    }

    fn with_segment(self, segment: Segment) -> Self {
        match self {
            Self::Request(repr) => Self::Request(RequestRepr { segment, ..repr }),
            Self::Reply(repr) => Self::Reply(ReplyRepr { segment, ..repr }),
        }
    }

    /// The packet as it is emitted.
    fn emit(self, payload: &[u8]) -> Vec<u8> {
        let len = match self {
            Self::Request(repr) => repr.header_len(),
            Self::Reply(_) => EXTENDED_LEN,
        };
        let mut bytes = vec![0xff; len + payload.len()];
        let room = match self {
            Self::Request(repr) => repr.emit(&mut bytes),
            Self::Reply(repr) => repr.emit(&mut bytes),
        };
        room.copy_from_slice(payload);
        bytes
    }

    fn rid(self) -> u16 {
        match self {
            Self::Request(repr) => repr.rid,
            Self::Reply(repr) => repr.rid,
        }
    }
}

/// Does with bytes whatever a receiver does before it knows anything about them.
fn exercise(bytes: &[u8]) {
    if let Ok(packet) = Packet::parse(bytes) {
        assert!(!packet.to_string().is_empty());
        assert!(packet.flags().clone_mark() as u8 <= 2);
        assert_eq!(packet.rpc_id().is_some(), packet.is_extended());
        assert!(packet.count == 0 || packet.index < packet.count);
        if let Some(sack) = packet.sack() {
            assert!(!sack.has(sack.base.get()));
        }
        let is_feedback = packet.message_type == MessageType::Feedback && packet.is_extended();
        assert_eq!(packet.feedback().is_some(), is_feedback);
    }
}

fn any_packet() -> impl Strategy<Value = Built> {
    prop_oneof![v1_data(), v1_control(), v1_feedback(), extended_data(), extended_control()]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Unrestricted), Just(Policy::Fixed)]
}

fn data_type() -> impl Strategy<Value = MessageType> {
    prop_oneof![Just(MessageType::Request), Just(MessageType::Response)]
}

fn v1(repr: V1Repr, payload: &[u8]) -> Built {
    let V1Repr { kind: message_type, policy, rid, index, count } = repr;
    let is_last = index + 1 == count;
    let mut bytes = vec![0xff; BASE_LEN + payload.len()];
    repr.emit(&mut bytes).copy_from_slice(payload);
    Built {
        bytes,
        header_len: BASE_LEN,
        message_type,
        policy,
        index,
        count: if index == 0 { count } else { 0 },
        is_last,
        rid,
        header: None,
        sack: None,
        feedback: None,
    }
}

fn v1_data() -> impl Strategy<Value = Built> {
    let place = (1..=V1_PACKETS_MAX).prop_flat_map(|count| (0..count, Just(count)));
    (data_type(), policy(), any::<u16>(), place, vec(any::<u8>(), 0..100)).prop_map(
        |(message_type, policy, rid, place, payload)| {
            let (index, count) = place;
            v1(V1Repr { kind: message_type, policy, rid, index, count }, &payload)
        },
    )
}

fn v1_control() -> impl Strategy<Value = Built> {
    (any::<bool>(), any::<u16>()).prop_map(|(is_ack, rid)| {
        let (message_type, payload) = if is_ack {
            (MessageType::Ack, &V1_ACK[..])
        } else {
            (MessageType::Drop, &V1_DROP[..])
        };
        let policy = Policy::Fixed;
        v1(V1Repr { kind: message_type, policy, rid, index: 0, count: 1 }, payload)
    })
}

/// A version 1 FEEDBACK, whose other header bytes may be anything.
fn v1_feedback() -> impl Strategy<Value = Built> {
    (any::<[u8; 6]>(), 0u8..16, any::<(u16, u16, [u8; 4])>()).prop_map(
        |(garbage, policy, (rid, port, client_ip))| {
            let body = FeedbackV1 { rid: rid.into(), client_port: port.into(), client_ip };
            let mut built = v1(
                V1Repr {
                    kind: MessageType::Feedback,
                    policy: Policy::Unrestricted,
                    rid: 0,
                    index: 0,
                    count: 1,
                },
                body.as_bytes(),
            );
            built.bytes[1] = garbage[0];
            built.bytes[2] |= policy;
            built.bytes[3..8].copy_from_slice(&garbage[1..]);
            built
        },
    )
}

/// A header of a control packet of any content.
fn ext_header(kind: MessageType, policy: Policy) -> impl Strategy<Value = Header> {
    type Numbers = (u16, u64, u8, u16, u32, u32, u64, u32, u16);
    any::<Numbers>().prop_map(
        move |(rid, id, flags, server_load, server_id, clock_us, token, floor, age_ms)| {
            let rpc_id = RpcId(id);
            if kind.is_from_server() {
                return Header::Reply(ReplyRepr {
                    flags: Flags(flags).0,
                    server_load,
                    server_waiting: age_ms,
                    server_id,
                    clock_echo_us: clock_us,
                    token,
                    detail: floor,
                    ..ReplyRepr::control(kind, rid, rpc_id)
                });
            }
            Header::Request(RequestRepr {
                policy,
                flags: Flags(flags).0,
                client_clock_us: server_id,
                deadline_us: clock_us,
                token,
                floor,
                age_ms,
                ..RequestRepr::control(kind, rid, rpc_id)
            })
        },
    )
}

/// A packet with the header, of 48 bytes, whatever policy its emitter writes.
fn extended(header: Header, message_type: MessageType, policy: Policy, payload: &[u8]) -> Built {
    let mut bytes = header.emit(payload);
    bytes.drain(EXTENDED_LEN..bytes.len() - payload.len());
    bytes[1] = EXTENDED_LEN as u8;
    bytes[2] = (message_type as u8) << 4 | policy as u8;
    Built {
        bytes,
        header_len: EXTENDED_LEN,
        message_type,
        policy,
        index: 0,
        count: 1,
        is_last: true,
        rid: header.rid(),
        header: Some(header),
        sack: None,
        feedback: None,
    }
}

/// A packet of a message of up to 65,534 packets; packet 0 of a request with the route block or
/// without it.
fn extended_data() -> impl Strategy<Value = Built> {
    let message = (1u16..200, 0u32..u32::MAX).prop_map(|(segment_len, len)| {
        (segment_len, len % (u32::from(segment_len) * u32::from(u16::MAX - 1) + 1))
    });
    let header = (data_type(), policy())
        .prop_flat_map(|(kind, policy)| (Just(kind), Just(policy), ext_header(kind, policy)));
    (header, message, any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(
        |((message_type, policy, header), (segment_len, message_len), at, fill, with_route)| {
            let count = packet_count(message_len, segment_len).expect("at most 65,534 packets");
            // Half of the packets are the first, which has the most forms.
            let index = if fill & 1 == 0 { 0 } else { at.index(count.into()) as u16 };
            let header = header.with_segment(Segment { message_len, segment_len, index, count });
            let payload = vec![fill; payload_span(index, message_len, segment_len).1];
            let mut built = extended(header, message_type, policy, &payload);
            (built.index, built.count, built.is_last) = (index, count, index + 1 == count);
            let may_have_route = index == 0 && (message_type == MessageType::Request || count == 1);
            if with_route && may_have_route {
                let route = Route { routed: 1, placement: 7.into(), ..Route::default() };
                built.bytes.splice(EXTENDED_LEN..EXTENDED_LEN, route.as_bytes().iter().copied());
                built.bytes[1] = ROUTED_LEN as u8;
                built.header_len = ROUTED_LEN;
            }
            built
        },
    )
}

fn extended_control() -> impl Strategy<Value = Built> {
    let kinds = vec![
        MessageType::Feedback,
        MessageType::Ack,
        MessageType::Drop,
        MessageType::ReplyAck,
        MessageType::Cancel,
        MessageType::Probe,
        MessageType::Claim,
        MessageType::Claimed,
    ];
    let header = (prop::sample::select(kinds), policy())
        .prop_flat_map(|(kind, policy)| (Just(kind), Just(policy), ext_header(kind, policy)));
    (header, any::<(u16, u16, [u8; 32])>(), any::<[u32; 4]>()).prop_map(
        |((kind, policy, header), sack, counts)| {
            let sack = SackBody { base: sack.0.into(), granted: sack.1.into(), bitmap: sack.2 };
            let [epoch, placement_seen, received, concluded] = counts.map(Into::into);
            let feedback = FeedbackBody { epoch, placement_seen, received, concluded };
            let payload: &[u8] = match kind {
                MessageType::Ack | MessageType::ReplyAck => sack.as_bytes(),
                MessageType::Feedback => feedback.as_bytes(),
                MessageType::Drop => &[3],
                MessageType::Probe => &[0, 0, 0, 9],
                MessageType::Claim => &[7; size_of::<ClaimBody>()],
                MessageType::Claimed => &[2],
                _ => &[],
            };
            let mut built = extended(header, kind, policy, payload);
            built.sack = matches!(kind, MessageType::Ack | MessageType::ReplyAck).then_some(sack);
            built.feedback = (kind == MessageType::Feedback).then_some(feedback);
            built
        },
    )
}
