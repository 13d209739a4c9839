//! Requests of any sessions, sequences and floors, at an R2P2 server and a router.
//!
//! The input is a list of steps of eight bytes: from whom, the session, the sequence and the floor
//! as powers of two and what is added to them, and how it is sent.

use std::net::SocketAddr;

use tailcut_proto::node::{GSO_BYTES_MAX, Node, Time};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::router::{Router, RouterConfig, ServerConfig, Speaks};
use tailcut_proto::rpc::{Event, Rpc};
use tailcut_wire::r2p2::{MessageType, Packet, RequestRepr, RpcId, Segment, SessionId};

/// Runs what a node does for one datagram; told whose node it is.
pub(crate) type Gauge<'a> = &'a mut dyn FnMut(&'static str, &mut dyn FnMut());

/// Plays `input`, each datagram within `gauge`.
pub(crate) fn play(input: &[u8], gauge: Gauge<'_>) {
    let (mut server, mut router) = (server(), router());
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let (mut now, mut token): (Time, u64) = (1_000_000_000, 0);
    for step in input.chunks_exact(8) {
        let [who, _, _, _, _, _, how, wait] = *step else {
            unreachable!("a chunk has eight bytes");
        };
        now += u64::from(wait) << (how % 4 * 8);
        let mut datagram = request(step, token);
        let net = if how & 64 == 0 { [10, 0, 2] } else { [192, 0, 2] };
        let peer = SocketAddr::from(([net[0], net[1], net[2], who], 33_000));
        let mut copy = datagram.clone();
        gauge("server", &mut || server.handle_datagram(now, peer.into(), &mut datagram));
        gauge("router", &mut || router.handle_datagram(now, peer.into(), &mut copy));
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
}

fn server() -> Endpoint {
    let mut config = Config { secret: [3; 16], clients_max: 40, ..Config::default() };
    config.serving.sessions_bytes_max = 200_000;
    config.serving.trusted.push("10.0.0.0/8".parse().unwrap());
    Endpoint::new(0, config)
}

fn router() -> Router {
    let addr = ([10, 0, 1, 1], 8000).into();
    let config = RouterConfig {
        policy: "rr".parse().unwrap(),
        servers: vec![ServerConfig { addr, speaks: Speaks::Extension }],
        table_len_max: 64,
        ..RouterConfig::default()
    };
    Router::new(0, config).unwrap()
}

fn request(step: &[u8], token: u64) -> Vec<u8> {
    let [_, session, power, more, floor_power, floor_more, how, _] = *step else {
        unreachable!("a chunk has eight bytes");
    };
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
    datagram
}
