//! Any bytes are a packet of NetClone or a reason why not; neither reading nor printing one panics,
//! and a switch sends nobody more than it was sent.
#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use tailcut_proto::netclone::{Switch, SwitchConfig};
use tailcut_proto::node::Node;
use tailcut_wire::netclone::{HEADER_LEN, PACKET_LEN, Packet, Plain, TRAILER_LEN};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(packet) = Packet::parse(bytes) {
        let body_at = HEADER_LEN + packet.trailer.map_or(0, |_| TRAILER_LEN);
        assert_eq!(packet.trailer.is_some(), bytes.len() >= PACKET_LEN, "it is there if it fits");
        assert_eq!(packet.body, &bytes[body_at..], "every byte has its place");
        assert_eq!(packet.header.tidx.get().to_be_bytes(), bytes[24..28], "its header is first");
        assert!(!packet.to_string().is_empty(), "every packet has a line");
    }
    if let Ok(packet) = Plain::parse(bytes) {
        assert!(!packet.to_string().is_empty(), "every packet has a line");
    }
    let peers = [1_000, 1_001, 40_000].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
    let config = SwitchConfig {
        servers: peers[..2].to_vec(),
        filter_len: 2,
        flights_len: 2,
        ..SwitchConfig::default()
    };
    let mut switch = Switch::new(0, config).expect("it is sound");
    let mut buffer = [0; 9_000];
    let mut now = 0;
    // From each of them, in pieces that the first byte of each picks.
    for (index, piece) in bytes.chunks(64).enumerate() {
        now += 1 << 28;
        let peer = peers[usize::from(piece[0]).wrapping_add(index) % 3];
        switch.handle_datagram(now, peer.into(), &mut piece.to_vec());
        switch.handle_timeout(now);
        let mut sent = 0;
        while let Some(transmit) = switch.poll_transmit(now, &mut buffer) {
            sent += transmit.len;
        }
        assert!(sent <= 2 * piece.len(), "two copies at most");
    }
});
