//! Any bytes are a coherent R2P2 packet or a reason why not, and neither reading nor printing a
//! packet panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailcut_wire::r2p2::{DropReason, Packet};

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = Packet::parse(bytes) else {
        return;
    };
    assert!(packet.payload.len() <= bytes.len(), "the payload is a part of the datagram");
    assert!(packet.count == 0 || packet.index < packet.count, "the index lies within the count");
    assert_eq!(packet.rpc_id().is_some(), packet.is_extended(), "the extension carries the id");
    if let Some(sack) = packet.sack() {
        sack.has(packet.index);
    }
    packet.feedback();
    packet.flags().clone_mark();
    DropReason::from_payload(packet.payload);
    assert!(!packet.to_string().is_empty(), "every packet has a line");
});
