//! Any bytes are a coherent Homa packet or a reason why not, and neither reading nor printing a
//! packet panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailcut_wire::homa::{
    ACKS_MAX, Age, Body, Packet, PartHeader, PartKind, TimeLeft, hijack, is_hijacked, tcp_checksum,
};

fuzz_target!(|bytes: &[u8]| {
    is_hijacked(bytes);
    let (source, destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let mut hijacked = bytes.to_vec();
    hijack(&mut hijacked, source, destination);
    assert!(
        bytes.len() < 28 || tcp_checksum(&hijacked, source, destination) == 0,
        "the checksum is right"
    );
    let Ok(packet) = Packet::parse(bytes) else {
        return;
    };
    assert!(packet.common.sender_id.get() >= 2, "ids 0 and 1 are nobody's");
    match packet.body {
        Body::Data { header, payload } => {
            let end = u64::from(header.offset()) + payload.len() as u64;
            assert!(
                end <= u64::from(header.message_length.get()),
                "the data lie within the message"
            );
            Age(header.retransmit).ns_max();
            TimeLeft(header.time_left.get()).ns();
            for kind in [PartKind::Request, PartKind::Fetch, PartKind::Reply] {
                if let Some((_, part)) = PartHeader::split(payload, kind) {
                    assert_eq!(
                        part.is_empty(),
                        kind == PartKind::Fetch,
                        "a part has data, and a fetch none"
                    );
                }
            }
        }
        Body::Grant(grant) => assert!(grant.priority < 8),
        Body::Resend(resend) => assert!(resend.priority.is_none_or(|priority| priority < 8)),
        Body::Ack(acks) => assert!(acks.len() <= ACKS_MAX),
        Body::Cookie(packet) => assert!(packet.cookie.get() != 0 && packet.is_demand < 2),
        Body::RpcUnknown | Body::Busy | Body::Cutoffs(_) | Body::Freeze | Body::NeedAck => {}
    }
    assert!(!packet.to_string().is_empty(), "every packet has a line");
});
