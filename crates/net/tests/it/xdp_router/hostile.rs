//! Packets of strangers at the XDP router, beside calls of clients whom they are not to cost
//! anything.

use std::net::SocketAddr;

use tailcut_net::ebpf::Verdict;
use tailcut_proto::policy::Draws;
use tailcut_proto::policy::WorkerId;
use tailcut_proto::router::SharedPlaces;
use tailcut_wire::r2p2::{MessageType, ReplyRepr, RequestRepr, RpcId};
use zerocopy::IntoBytes;

use super::bench::{Bench, Frame, Report, client, listen_v4, listen_v6, request, server};

/// 10^6: `TAILCUT_HOSTILE_PACKETS=1000000 cargo test -p tailcut-net --test it xdp_router::hostile`.
#[test]
fn strangers_cost_clients_nothing_and_no_map_grows() {
    let count = std::env::var("TAILCUT_HOSTILE_PACKETS");
    let count: u32 = count.map_or(60_000, |count| count.parse().expect("a number of packets"));
    for listen in [listen_v4(), listen_v6()] {
        let Some(run) = Run::new(listen) else { return };
        run.check(count / 2);
    }
}

/// A program before servers that conclude at once what they get.
struct Run {
    bench: Bench,
    servers: u16,
}

impl Run {
    fn new(listen: SocketAddr) -> Option<Self> {
        let servers = 4;
        let bench = Bench::new(listen, "jbsq:2".parse().expect("a policy"), servers)?;
        Some(Self { bench, servers })
    }

    /// So many hostile packets, and a call for each hundred of them, all of which are placed.
    fn check(&self, count: u32) {
        let mut draws = Draws::new(u64::from(count));
        let peers = self.bench.xdp.peers_len().expect("a map");
        assert_eq!(peers, usize::from(self.servers));
        let (mut calls, mut placed) = (0, 0);
        for sent in 0..count {
            let frame = hostile(&mut draws, self.bench.listen);
            self.serve(&frame);
            if sent % 100 == 0 {
                let payload = request(|repr, _| repr.rpc_id = RpcId(draws.word()));
                let from = client(self.bench.listen);
                calls += 1;
                placed +=
                    u32::from(self.serve(&Frame::new(from, self.bench.listen, &payload).bytes()));
            }
        }
        assert!(u64::from(placed) * 1_000 >= u64::from(calls) * 999, "{placed} of {calls} calls");
        assert_eq!(self.bench.xdp.peers_len().expect("a map"), peers, "no map grows");
        let counts = self.bench.xdp.counts();
        assert!(
            counts.iter().sum::<u64>() >= u64::from(count + calls),
            "each is counted: {counts:?}"
        );
        println!("{count} hostile packets, {placed} of {calls} calls placed, counted: {counts:?}");
    }

    /// True if a frame is placed on a server, which then concludes it.
    fn serve(&self, frame: &[u8]) -> bool {
        let tested = self.bench.run(frame);
        if tested.verdict != Verdict::Transmit {
            assert!(matches!(tested.verdict, Verdict::Pass | Verdict::Drop), "{tested:?}");
            return false;
        }
        // The last byte of the next hop's Ethernet address, as `way` has it.
        let slot = u16::from(tested.packet[5]);
        assert!(slot < self.servers, "it leaves for a server: {tested:?}");
        let counts = self.bench.places.counts(WorkerId(slot.into()));
        let report = Report {
            seen: counts.placed,
            received: counts.received.wrapping_add(1),
            concluded: counts.concluded.wrapping_add(1),
        };
        let from = server(self.bench.listen, slot);
        let told = Frame::new(from, self.bench.listen, &report.bytes(|_, _| {})).bytes();
        assert_eq!(self.bench.run(&told).verdict, Verdict::Drop, "its feedback is taken");
        true
    }
}

/// A packet of nobody that the router knows: requests as anybody may send them, what only servers
/// and routers may, and either with bytes that are wrong.
fn hostile(draws: &mut Draws, listen: SocketAddr) -> Vec<u8> {
    let from = stranger(draws, listen);
    let rpc_id = RpcId(draws.word());
    let mut payload = match draws.below(8) {
        0 => request(|repr, _| (repr.rpc_id, repr.flags) = (rpc_id, draws.word() as u8)),
        1 => request(|repr, route| {
            repr.rpc_id = rpc_id;
            (route.routed, route.client_port) = (1, 7.into());
        }),
        2 => Report { seen: draws.word() as u32, received: 9, concluded: 9 }.bytes(|_, _| {}),
        3 => ReplyRepr::control(MessageType::Claimed, 1, rpc_id).header().as_bytes().to_vec(),
        4 => RequestRepr::control(MessageType::Probe, 1, rpc_id).header().as_bytes().to_vec(),
        5 => RequestRepr::control(MessageType::Claim, 1, rpc_id).header().as_bytes().to_vec(),
        6 => RequestRepr::control(MessageType::Cancel, 1, rpc_id).header().as_bytes().to_vec(),
        _ => (0..draws.below(160)).map(|_| draws.word() as u8).collect(),
    };
    for _ in 0..draws.below(3) {
        let at = draws.below(payload.len().max(1) as u32) as usize;
        if let Some(byte) = payload.get_mut(at) {
            *byte = draws.word() as u8;
        }
    }
    let vlan = (draws.below(8) == 0).then(|| draws.word() as u16);
    let mut frame = Frame { vlan, ..Frame::new(from, listen, &payload) }.bytes();
    // Headers of Ethernet, IP and UDP that lie, and frames that end early.
    if draws.below(4) == 0 {
        let at = 12 + draws.below(50) as usize;
        if let Some(byte) = frame.get_mut(at) {
            *byte ^= 1 << draws.below(8);
        }
    }
    if draws.below(8) == 0 {
        frame.truncate(14 + draws.below(frame.len() as u32 - 13) as usize);
    }
    frame
}

/// An address that is no server's.
fn stranger(draws: &mut Draws, listen: SocketAddr) -> SocketAddr {
    let port = draws.word() as u16;
    if listen.is_ipv4() {
        // The servers are in 10.2.3.0.
        return SocketAddr::from(([draws.word() as u8, 99, draws.word() as u8, 1], port));
    }
    SocketAddr::from(([draws.word() as u16, 0xdb8, 0, 0, 0, 0, draws.word() as u16, 1], port))
}
