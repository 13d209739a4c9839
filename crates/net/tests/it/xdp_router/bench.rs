//! The XDP router in the kernel without an interface: frames in, frames out.

use std::io;
use std::net::{IpAddr, SocketAddr};

use etherparse::{IpNumber, Ipv4Header, Ipv6Header, UdpHeader};
use tailcut_net::ebpf::router::{COUNT_NAMES, Way, XdpConfig, XdpPlaces, XdpRouter};
use tailcut_net::ebpf::{Tested, Verdict};
use tailcut_proto::policy::PolicySpec;
use tailcut_proto::policy::WorkerId;
use tailcut_proto::router::{SharedCounts, SharedPlaces};
use tailcut_wire::r2p2::{
    FeedbackBody, MessageType, Policy, ReplyRepr, RequestRepr, Route, RpcId, Segment,
};
use zerocopy::IntoBytes;

use super::seal::Seal;

/// A program and its servers, each with a way through the interface that frames come from.
pub(super) struct Bench {
    pub(super) xdp: XdpRouter,
    pub(super) places: XdpPlaces,
    pub(super) listen: SocketAddr,
    /// The seal of what is sent, where it is sealed.
    pub(super) seal: Option<Seal>,
}

impl Bench {
    /// `None`, said aloud, where this process may not load programs.
    pub(super) fn new(listen: SocketAddr, policy: PolicySpec, servers: u16) -> Option<Self> {
        Self::with(listen, (policy, servers), None)
    }

    /// As [`Bench::new`], with a seal where there is one.
    pub(super) fn with(
        listen: SocketAddr,
        (policy, servers): (PolicySpec, u16),
        seal: Option<Seal>,
    ) -> Option<Self> {
        let xdp = match XdpRouter::load() {
            Ok(xdp) => xdp,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                println!("SKIPPED: {error}");
                return None;
            }
            Err(error) => panic!("the kernel takes it: {error}"),
        };
        let is_sealed = seal.is_some();
        xdp.configure(&XdpConfig { listen, policy, packet_len_max: 1_500, is_sealed });
        let mut places = xdp.places();
        for slot in 0..servers {
            let counts = SharedCounts {
                epoch: Some(EPOCH),
                placed: 100,
                seen: 100,
                ..SharedCounts::default()
            };
            places.add(WorkerId(slot.into()), server(listen, slot), counts);
            places.set_way(WorkerId(slot.into()), way(slot, None));
            places.set_in_service(WorkerId(slot.into()), true);
        }
        let bench = Self { xdp, places, listen, seal };
        if let Some(seal) = &bench.seal {
            seal.tell(&bench, servers);
        }
        Some(bench)
    }

    /// Takes requests as long as routers do.
    pub(super) fn take_long(&self, policy: PolicySpec) {
        let config = XdpConfig {
            listen: self.listen,
            policy,
            packet_len_max: 8_952,
            is_sealed: self.seal.is_some(),
        };
        self.xdp.configure(&config);
    }

    /// Result of the program for a frame.
    pub(super) fn run(&self, frame: &[u8]) -> Tested {
        self.xdp.test(frame, 1).expect("a run")
    }

    /// Result of the program for a payload from a peer.
    pub(super) fn send(&self, from: SocketAddr, payload: &[u8]) -> Tested {
        self.run(&Frame::new(from, self.listen, payload).bytes())
    }

    /// The one counter that a frame raises, and the verdict.
    pub(super) fn judge(&self, frame: &[u8]) -> (Verdict, &'static str) {
        let before = self.xdp.counts();
        let verdict = self.run(frame).verdict;
        let after = self.xdp.counts();
        let raised: Vec<usize> =
            (0..COUNT_NAMES.len()).filter(|&index| after[index] != before[index]).collect();
        let [index] = raised[..] else { panic!("it raises {raised:?}") };
        assert_eq!(after[index], before[index] + 1);
        (verdict, COUNT_NAMES[index])
    }
}

/// A UDP datagram in its frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) vlan: Option<u16>,
    pub(crate) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    pub(crate) fn new(from: SocketAddr, to: SocketAddr, payload: &'a [u8]) -> Self {
        Self { from, to, vlan: None, payload }
    }

    /// With whole checksums.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = [ROUTER_MAC, CLIENT_MAC].concat();
        if let Some(vlan) = self.vlan {
            bytes.extend_from_slice(&[0x81, 0x00]);
            bytes.extend_from_slice(&vlan.to_be_bytes());
        }
        let mut udp =
            UdpHeader::without_ipv4_checksum(self.from.port(), self.to.port(), self.payload.len())
                .expect("it fits");
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                bytes.extend_from_slice(&[0x08, 0x00]);
                let mut ip =
                    Ipv4Header::new(udp.length, 64, IpNumber::UDP, from.octets(), to.octets())
                        .expect("it fits");
                ip.header_checksum = ip.calc_header_checksum();
                udp.checksum = udp.calc_checksum_ipv4(&ip, self.payload).expect("it fits");
                bytes.extend_from_slice(&ip.to_bytes());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                bytes.extend_from_slice(&[0x86, 0xdd]);
                let ip = Ipv6Header {
                    payload_length: udp.length,
                    next_header: IpNumber::UDP,
                    hop_limit: 64,
                    source: from.octets(),
                    destination: to.octets(),
                    ..Ipv6Header::default()
                };
                udp.checksum = udp.calc_checksum_ipv6(&ip, self.payload).expect("it fits");
                bytes.extend_from_slice(&ip.to_bytes());
            }
            _ => panic!("ends of two families"),
        }
        bytes.extend_from_slice(&udp.to_bytes());
        bytes.extend_from_slice(self.payload);
        bytes
    }
}

/// The frame that a request leaves in, whole checksums and all.
pub(super) fn placed_frame(
    (from, to): (SocketAddr, SocketAddr),
    (slot, vlan): (u16, Option<u16>),
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = Frame { vlan, ..Frame::new(from, to, payload) }.bytes();
    bytes[..12].copy_from_slice(&[way(slot, None).to, ROUTER_MAC].concat());
    bytes
}

/// A request as a server gets it.
pub(super) fn placed_payload(request: &[u8], placement: u32) -> Vec<u8> {
    let mut bytes = request.to_vec();
    bytes[66] = 1;
    bytes[68..72].copy_from_slice(&placement.to_be_bytes());
    bytes
}

/// The server of a slot, beside the router.
pub(super) fn server(listen: SocketAddr, slot: u16) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(_) => SocketAddr::from(([10, 2, 3, slot as u8], 8_000 + slot)),
        IpAddr::V6(_) => {
            SocketAddr::from(([0x2001, 0xdb8, 7, 0x1111, 0, 0, 0xff, slot], 8_000 + slot))
        }
    }
}

/// The way to the server of a slot. 1 is the loopback interface, which tests of the kernel come
/// from.
pub(super) fn way(slot: u16, vlan: Option<u16>) -> Way {
    Way { to: [2, 0, 0, 0, 1, slot as u8], from: ROUTER_MAC, interface: 1, vlan }
}

/// A request of one packet.
pub(super) fn request(change: impl FnOnce(&mut RequestRepr, &mut Route)) -> Vec<u8> {
    let mut repr = RequestRepr {
        policy: Policy::Unrestricted,
        segment: Segment { message_len: 4, segment_len: 1_400, ..Segment::CONTROL },
        ..RequestRepr::control(MessageType::Request, 7, RpcId(0x0102_0304_0506_0708))
    };
    let mut route = Route::default();
    change(&mut repr, &mut route);
    [repr.header().as_bytes(), route.as_bytes(), b"ping"].concat()
}

/// Counts that a server reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Report {
    pub(super) seen: u32,
    pub(super) received: u32,
    pub(super) concluded: u32,
}

impl Report {
    pub(super) fn bytes(self, change: impl FnOnce(&mut ReplyRepr, &mut FeedbackBody)) -> Vec<u8> {
        let mut repr = ReplyRepr::control(MessageType::Feedback, 0, RpcId(0));
        let mut body = FeedbackBody {
            epoch: EPOCH.into(),
            placement_seen: self.seen.into(),
            received: self.received.into(),
            concluded: self.concluded.into(),
        };
        change(&mut repr, &mut body);
        [repr.header().as_bytes(), body.as_bytes()].concat()
    }
}

pub(super) fn client(listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(_) => SocketAddr::from(([10, 9, 8, 7], 40_000)),
        IpAddr::V6(_) => SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9], 40_000)),
    }
}

pub(super) fn listen_v4() -> SocketAddr {
    SocketAddr::from(([10, 2, 3, 200], 8_000))
}

pub(super) fn listen_v6() -> SocketAddr {
    SocketAddr::from(([0x2001, 0xdb8, 7, 0, 0, 0, 0, 200], 8_000))
}

/// Epoch of the counts that servers begin with.
pub(super) const EPOCH: u32 = 0x0bad_cafe;
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
