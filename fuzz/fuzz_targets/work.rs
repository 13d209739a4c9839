//! What a packet costs: requests of any sessions, sequences and floors, of one or two packets, with
//! and without the token, direct and as if routed, of which none makes an R2P2 server or a router
//! do more than 256 steps of work, of some nanoseconds each.
//!
//! The input is a list of steps of eight bytes: from whom, the session, the sequence and the floor
//! as powers of two and what is added to them, and how it is sent.
#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Time};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::router::{Router, RouterConfig, ServerConfig, Speaks};
use tailcut_proto::rpc::{Event, Rpc};
use tailcut_proto::work;
use tailcut_wire::r2p2::{MessageType, Packet, RequestRepr, RpcId, Segment, SessionId};

/// About 2 us.
const STEPS_MAX: u64 = 256;

fuzz_target!(|bytes: &[u8]| {
    let mut config = Config { secret: [3; 16], clients_max: 40, ..Config::default() };
    config.serving.sessions_bytes_max = 200_000;
    config.serving.trusted.push("10.0.0.0/8".parse().unwrap());
    let mut server = Endpoint::new(0, config);
    let addr = ([10, 0, 1, 1], 8000).into();
    let mut router = Router::new(
        0,
        RouterConfig {
            policy: "rr".parse().unwrap(),
            servers: vec![ServerConfig { addr, speaks: Speaks::Extension }],
            table_len_max: 64,
            ..RouterConfig::default()
        },
    )
    .unwrap();
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let (mut now, mut token): (Time, u64) = (1_000_000_000, 0);
    for step in bytes.chunks_exact(8) {
        let [who, session, power, more, floor_power, floor_more, how, wait] = *step else {
            unreachable!("a chunk has eight bytes");
        };
        now += u64::from(wait) << (how % 4 * 8);
        let number = |power: u8, more: u8| ((1u32 << (power % 24)) - 1).wrapping_add(more.into());
        let rpc_id = RpcId::new(SessionId(u64::from(session) + 1), number(power, more));
        let (message_len, len) = if how & 16 == 0 { (8, 8) } else { (128, 64) };
        let (count, segment_len) = if how & 16 == 0 { (1, 1380) } else { (2, 64) };
        let repr = RequestRepr {
            segment: Segment { message_len, segment_len, index: 0, count },
            floor: number(floor_power, floor_more),
            deadline_us: 1_000_000,
            token: if how & 32 == 0 { 0 } else { token },
            ..RequestRepr::control(MessageType::Request, 1, rpc_id)
        };
        let mut datagram = vec![0; 72 + len];
        repr.emit(&mut datagram);
        let net = if how & 64 == 0 { [10, 0, 2] } else { [192, 0, 2] };
        let peer = SocketAddr::from(([net[0], net[1], net[2], who], 33_000));
        let mut copy = datagram.clone();
        work::take();
        server.handle_datagram(now, peer.into(), &mut datagram);
        check("server");
        router.handle_datagram(now, peer.into(), &mut copy);
        check("router");
        while let Some(event) = server.poll_event() {
            if let Event::Request { id, payload, .. } = event {
                let _ = server.reply(now, id, payload);
            }
        }
        while let Some(transmit) = server.poll_transmit(now, &mut buffer) {
            let first = &buffer[..transmit.segment_len.min(transmit.len)];
            token = Packet::parse(first).map_or(token, |packet| packet.token());
        }
        while router.poll_transmit(now, &mut buffer).is_some() {}
        server.handle_timeout(now);
        router.handle_timeout(now);
    }
});

fn check(whose: &str) {
    let steps = work::take();
    assert!(steps <= STEPS_MAX, "a packet costs the {whose} {steps} steps");
}
