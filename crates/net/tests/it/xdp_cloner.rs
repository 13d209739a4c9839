//! The XDP cloner: long traces frame by frame, what it refuses, and copies between two namespaces.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use tailcut_net::clock::Clock;
use tailcut_net::ebpf::cloner::{COUNT_NAMES, ClonerConfig, XdpCloner};
use tailcut_net::ebpf::{Mode, PASS, Verdict, interface_index};
use tailcut_proto::conformance::{CloningPart, CloningStep, CloningTrace, Copies};
use tailcut_proto::netclone::Fallback;
use tailcut_wire::netclone::{CloneMark, Header, Op, Trailer};
use zerocopy::{FromBytes, IntoBytes};

use crate::ebpf;
use crate::veth::{VethPair, run};
use crate::xdp::within;
use crate::xdp_router::bench::Frame;

/// A program before servers whose ways it knows.
struct Bench {
    xdp: XdpCloner,
    epoch: u32,
    network: Network,
}

/// Address family and VLAN of frames.
#[derive(Clone, Copy, Debug)]
struct Network {
    is_ipv6: bool,
    vlan: Option<u16>,
}

impl Bench {
    /// `None`, said aloud, where this process may not load programs.
    fn new(servers: u16, change: impl FnOnce(&mut ClonerConfig)) -> Option<Self> {
        Self::in_network(IPV4, servers, change)
    }

    fn in_network(
        network: Network,
        servers: u16,
        change: impl FnOnce(&mut ClonerConfig),
    ) -> Option<Self> {
        // The second copy is told by the first on the same CPU.
        let mut cpu = CpuSet::new();
        cpu.set(sched_getcpu());
        sched_setaffinity(None, &cpu).expect("this thread stays where it is");
        let mut config = ClonerConfig {
            listen: network.switch(),
            servers: (0..servers).map(|index| network.server(index)).collect(),
            fallback: Fallback::First,
            filter_len: 1 << 17,
            first: (1, 0x00ab_cdee),
        };
        change(&mut config);
        let bench = Self { xdp: load(&config)?, epoch: config.first.1, network };
        for index in 0..servers {
            // A response to nothing of this run shows the way.
            let header = Header { sid: u32::from(index).into(), op: 1.into(), ..Header::default() };
            assert_eq!(
                bench.judge(&network.of_server(index, header)),
                (Verdict::Pass, "xdp_up_unknown")
            );
        }
        Some(bench)
    }

    /// The verdict, and the last counter that a frame raises.
    fn judge(&self, frame: &[u8]) -> (Verdict, &'static str) {
        let before = self.xdp.counts();
        let verdict = self.xdp.test(frame).expect("a run").verdict;
        let after = self.xdp.counts();
        let raised = (0..COUNT_NAMES.len()).rfind(|&index| after[index] != before[index]);
        (verdict, COUNT_NAMES[raised.expect("every packet is counted")])
    }

    /// The frames that leave for one.
    fn send(&self, frame: &[u8]) -> Vec<Vec<u8>> {
        let tested = self.xdp.test(frame).expect("a run");
        match tested.verdict {
            Verdict::Transmit => vec![tested.packet],
            Verdict::Redirect => {
                let copy = || self.xdp.test_egress(&tested.packet).expect("a run").packet;
                vec![copy(), copy()]
            }
            Verdict::Drop => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    /// Frames that leave at a step, and those that must.
    fn replay(&self, step: CloningStep) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let network = self.network;
        match step {
            CloningStep::Request { group, table, seq, copies } => {
                let sent = Header { grp: group.into(), tidx: (TIDX | table).into(), ..HEADER };
                let header = Header { seq: seq.into(), tidx: (self.epoch | table).into(), ..sent };
                let expected = match copies {
                    Copies::One(to) => {
                        vec![network.to_server(to, header.marked(CloneMark::Single))]
                    }
                    Copies::Two(first, second) => {
                        let header = Header { sid: u32::from(second).into(), ..header };
                        let copy = |to, mark| network.to_server(to, header.marked(mark));
                        vec![copy(first, CloneMark::Original), copy(second, CloneMark::Clone)]
                    }
                };
                (self.send(&network.to_switch(sent)), expected)
            }
            CloningStep::Response { server, seq, table, mark, load, passes } => {
                let header = Header {
                    op: (Op::Response as u32).into(),
                    seq: seq.into(),
                    sid: u32::from(server).into(),
                    load: load.into(),
                    tidx: (self.epoch | table).into(),
                    ..HEADER.marked(mark)
                };
                let passed = network.to_client(Header { tidx: (TIDX | table).into(), ..header });
                let expected = if passes { vec![passed] } else { Vec::new() };
                (self.send(&network.of_server(server, header)), expected)
            }
        }
    }
}

fn load(config: &ClonerConfig) -> Option<XdpCloner> {
    let xdp = match XdpCloner::load() {
        Ok(xdp) => xdp,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            println!("SKIPPED: {error}");
            return None;
        }
        Err(error) => panic!("the kernel takes it: {error}"),
    };
    xdp.configure(config).expect("a configuration");
    Some(xdp)
}

/// The first step of a part whose frames are others than the trace asks for; nothing where programs
/// cannot be loaded.
fn first_difference(
    part: &CloningPart,
    network: Network,
    (fallback, filter_len): (Fallback, u32),
) -> Option<Option<usize>> {
    let bench = Bench::in_network(network, part.servers, |config| {
        *config = ClonerConfig {
            fallback,
            filter_len,
            first: (part.first_seq, part.epoch),
            ..config.clone()
        }
    })?;
    let differs = |step: &CloningStep| {
        let (found, expected) = bench.replay(*step);
        found != expected
    };
    Some(part.steps.iter().position(differs))
}

fn check(network: Network, fallback: Fallback) {
    for part in &CloningTrace::new(fallback).parts {
        let programmed = (fallback, part.filter_len);
        let Some(found) = first_difference(part, network, programmed) else { return };
        let step = found.map(|index| part.steps[index].to_string());
        assert_eq!(step, None, "{fallback:?} over {} servers, step {found:?}", part.servers);
    }
}

#[test]
fn netclone_decides_as_the_switch() {
    check(IPV4, Fallback::First);
}

#[test]
fn netclone_with_racksched_decides_as_the_switch() {
    check(IPV4, Fallback::Shorter);
}

#[test]
fn it_decides_so_over_ipv6_and_in_a_vlan() {
    check(Network { is_ipv6: true, vlan: None }, Fallback::First);
    check(Network { is_ipv6: true, vlan: Some(77) }, Fallback::Shorter);
    check(Network { is_ipv6: false, vlan: Some(4_000) }, Fallback::First);
}

/// User space sends by the kernel's routes, which may lead from one to the other.
#[test]
fn a_request_in_another_vlan_than_its_servers_goes_up_and_a_response_from_another_finds_no_request()
{
    for is_ipv6 in [false, true] {
        let network = Network { is_ipv6, vlan: Some(7) };
        let Some(bench) = Bench::in_network(network, 2, |_| {}) else { return };
        let request = Header { grp: 1.into(), ..HEADER };
        for vlan in [None, Some(8)] {
            let other = Network { vlan, ..network };
            assert_eq!(
                bench.judge(&other.to_switch(request)),
                (Verdict::Pass, "xdp_up_unresolved")
            );
        }
        assert_eq!(bench.judge(&network.to_switch(request)), (Verdict::Redirect, "xdp_cloned"));
        let response = Header {
            op: 1.into(),
            seq: 1.into(),
            sid: 0.into(),
            tidx: bench.epoch.into(),
            ..HEADER
        };
        let other = Network { vlan: None, ..network };
        let found = bench.judge(&other.of_server(0, response));
        assert_eq!(found, (Verdict::Drop, "xdp_dropped_unknown"));
    }
}

/// An outer tag (802.1ad) is none of a VLAN of the same number.
#[test]
fn ways_are_of_one_kind_of_tag() {
    let network = Network { is_ipv6: false, vlan: Some(7) };
    let Some(bench) = Bench::in_network(network, 2, |_| {}) else { return };
    let outer = |mut frame: Vec<u8>| {
        frame[12..14].copy_from_slice(&[0x88, 0xa8]);
        frame
    };
    let request = network.to_switch(Header { grp: 1.into(), ..HEADER });
    assert_eq!(bench.judge(&outer(request.clone())), (Verdict::Pass, "xdp_up_unresolved"));
    assert_eq!(bench.judge(&request), (Verdict::Redirect, "xdp_cloned"));
    for index in 0..2 {
        let header = Header { sid: u32::from(index).into(), op: 1.into(), ..Header::default() };
        bench.judge(&outer(network.of_server(index, header)));
    }
    assert_eq!(bench.judge(&request), (Verdict::Pass, "xdp_up_unresolved"));
    assert_eq!(bench.judge(&outer(request)), (Verdict::Redirect, "xdp_cloned"));
}

/// A program that asks for packets of one buffer takes none of several: their end is not where it
/// can see it.
#[test]
fn a_packet_of_several_buffers_is_placed_and_keeps_its_rest() {
    for is_ipv6 in [false, true] {
        let network = Network { is_ipv6, vlan: None };
        let Some(bench) = Bench::in_network(network, 2, |_| {}) else { return };
        let rest: Vec<u8> = (0..6_000u32).map(|place| place as u8).collect();
        let long = |header: Header| [header.as_bytes(), &rest].concat();
        let request = Header { grp: 1.into(), tidx: TIDX.into(), ..HEADER };
        let frame = Frame::new(network.client(), network.switch(), &long(request)).bytes();
        let sent = bench.send(&frame);
        let header = Header { seq: 1.into(), tidx: bench.epoch.into(), sid: 1.into(), ..request };
        for (to, mark) in [(0, CloneMark::Original), (1, CloneMark::Clone)] {
            let server = network.server(to);
            let expected = Frame::new(network.switch(), server, &long(header.marked(mark))).bytes();
            assert_eq!(sent[usize::from(to)], addressed(expected, mac(to)), "{mark:?}");
        }
        let len = frame.len();
        assert_eq!(bench.judge(&frame[..len - 1]), (Verdict::Drop, "xdp_dropped_length"));
    }
}

#[test]
fn a_wrong_fallback_and_a_wrong_filter_are_seen() {
    let trace = CloningTrace::new(Fallback::First);
    let part = &trace.parts[0];
    for (fallback, filter_len) in
        [(Fallback::Shorter, part.filter_len), (Fallback::First, 2 * part.filter_len)]
    {
        let Some(found) = first_difference(part, IPV4, (fallback, filter_len)) else { return };
        assert!(found.is_some(), "no step tells {fallback:?} and {filter_len} cells");
    }
}

#[test]
fn what_is_no_packet_or_of_a_stranger_is_dropped_by_reason() {
    let Some(bench) = Bench::new(2, |_| {}) else { return };
    let request = Header { grp: 1.into(), ..HEADER };
    let response = Header { op: 1.into(), ..HEADER };
    let short = Frame::new(IPV4.client(), IPV4.switch(), &request.as_bytes()[..27]).bytes();
    let other_port = SocketAddr::new(IPV4.switch().ip(), 1_001);
    for (frame, expected) in [
        (short, (Verdict::Drop, "xdp_dropped_length")),
        (IPV4.to_switch(Header { op: 2.into(), ..request }), (Verdict::Drop, "xdp_dropped_op")),
        (IPV4.to_switch(Header { clo: 3.into(), ..request }), (Verdict::Drop, "xdp_dropped_mark")),
        (IPV4.to_switch(response), (Verdict::Drop, "xdp_dropped_stranger")),
        (IPV4.of_server(1, response), (Verdict::Drop, "xdp_dropped_stranger")),
        (
            IPV4.of_server(0, Header { sid: 0.into(), tidx: bench.epoch.into(), ..response }),
            (Verdict::Drop, "xdp_dropped_unknown"),
        ),
        (Frame::new(IPV4.client(), other_port, b"others").bytes(), (Verdict::Pass, "xdp_others")),
        (
            Frame::new(SocketAddr::from(([224, 0, 0, 1], 7)), IPV4.switch(), &packet(request))
                .bytes(),
            (Verdict::Drop, "xdp_dropped_stranger"),
        ),
    ] {
        assert_eq!(bench.judge(&frame), expected);
    }
    let mut fragment = IPV4.to_switch(request);
    fragment[20] |= 0x20;
    assert_eq!(bench.judge(&fragment), (Verdict::Pass, "xdp_up_ip"));
}

#[test]
fn a_server_that_has_never_answered_leaves_requests_to_user_space() {
    let config = ClonerConfig {
        listen: IPV4.switch(),
        servers: vec![IPV4.server(0), IPV4.server(1)],
        fallback: Fallback::First,
        filter_len: 1,
        first: (1, 0),
    };
    let Some(xdp) = load(&config) else { return };
    let bench = Bench { xdp, epoch: 0, network: IPV4 };
    let request = IPV4.to_switch(Header { grp: 1.into(), ..HEADER });
    assert_eq!(bench.judge(&request), (Verdict::Pass, "xdp_up_unresolved"));
    assert_eq!(bench.xdp.test(&request).expect("a run").packet, request, "untouched");
}

#[test]
fn a_configuration_out_of_range_is_refused() {
    let Some(bench) = Bench::new(2, |_| {}) else { return };
    let good = ClonerConfig {
        listen: IPV4.switch(),
        servers: vec![IPV4.server(0)],
        fallback: Fallback::First,
        filter_len: 64,
        first: (1, 0),
    };
    for bad in [
        ClonerConfig { servers: Vec::new(), ..good.clone() },
        ClonerConfig { servers: vec![IPV4.server(0); 17], ..good.clone() },
        ClonerConfig { filter_len: 65, ..good.clone() },
        ClonerConfig { filter_len: 1 << 18, ..good.clone() },
        ClonerConfig { servers: vec![Network { is_ipv6: true, ..IPV4 }.server(0)], ..good.clone() },
        ClonerConfig { first: (0, 0), ..good },
    ] {
        let error = bench.xdp.configure(&bad).expect_err("it is refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn two_servers_get_a_copy_each_and_the_client_one_response() {
    let Some(hosts) = VethPair::create() else { return };
    let switch: SocketAddr = "10.77.0.1:1000".parse().expect("an address");
    let address = |port| SocketAddr::from(([10, 77, 0, 2], port));
    let config = ClonerConfig {
        listen: switch,
        servers: vec![address(1_001), address(1_002)],
        fallback: Fallback::First,
        filter_len: 1 << 17,
        first: (77, 0x1234_5678),
    };
    let Some(mut xdp) = load(&config) else { return };
    // A veth takes what XDP sends back where a program waits for it.
    let Some(pass) = ebpf::load(PASS) else { return };
    let _passing = within(&hosts.far, || {
        let far = format!("v{}", hosts.far);
        run("ethtool", &format!("-K {far} tx off")).expect("ethtool (Debian: ethtool)");
        let interface = interface_index(&far).expect("the interface");
        pass.attach("pass", interface, Mode::Native).expect("it is attached")
    });
    within(&hosts.near, || {
        let interface = interface_index(&format!("v{}", hosts.near)).expect("the interface");
        xdp.attach(interface, Mode::Native).expect("it is attached");
    });
    within(&hosts.far, || {
        let open = |port| {
            let socket = UdpSocket::bind(address(port)).expect("a socket");
            socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
            socket
        };
        let (servers, client) = ([open(1_001), open(1_002)], open(0));
        for (sid, server) in (0u32..).zip(&servers) {
            let header = Header { op: 1.into(), sid: sid.into(), ..HEADER };
            server.send_to(&packet(header), switch).expect("it is sent");
        }
        // The second request shows that nothing more came of the first.
        for seq in [77, 78] {
            let request = Header { grp: 2.into(), tidx: 1.into(), ..HEADER };
            client.send_to(&packet(request), switch).expect("it is sent");
            // Group 2 is the server 1, then the server 0.
            let marks = [0, 1].map(|sid| answer(&servers[sid as usize], sid, seq));
            assert_eq!(marks, [CloneMark::Clone as u32, CloneMark::Original as u32]);
            let (from, header) = receive(&client);
            assert_eq!((from, header.seq.get(), header.tidx.get()), (switch, seq, 1));
        }
    });
    let count = |name| {
        let index = COUNT_NAMES.iter().position(|known| *known == name).expect("a counter");
        xdp.counts()[index]
    };
    let deadline = Clock.now() + 10_000_000_000;
    while count("xdp_dropped_filtered") < 2 && Clock.now() < deadline {
        std::thread::yield_now();
    }
    let counts = ["xdp_cloned", "xdp_replies_forwarded", "xdp_dropped_filtered"].map(count);
    assert_eq!(counts, [2, 2, 2]);
}

/// Sender and header of a datagram that a socket receives.
fn receive(socket: &UdpSocket) -> (SocketAddr, Header) {
    let mut bytes = [0; 128];
    let (len, from) = socket.recv_from(&mut bytes).expect("a datagram");
    (from, Header::read_from_prefix(&bytes[..len]).expect("a header").0)
}

/// A server answers the copy that it gets, whose mark this returns.
fn answer(socket: &UdpSocket, sid: u32, seq: u32) -> u32 {
    let (switch, header) = receive(socket);
    assert_eq!(header.seq.get(), seq);
    let response = Header { op: 1.into(), sid: sid.into(), ..header };
    socket.send_to(&packet(response), switch).expect("it is sent");
    header.clo.get()
}

fn packet(header: Header) -> Vec<u8> {
    let trailer = Trailer { stamp: *b"whenever", address: [9; 16] };
    [header.as_bytes(), trailer.as_bytes()].concat()
}

impl Network {
    fn switch(self) -> SocketAddr {
        self.address(200, 1_000)
    }

    fn client(self) -> SocketAddr {
        self.address(100, 40_000)
    }

    fn server(self, index: u16) -> SocketAddr {
        self.address(index as u8, 1_000 + index)
    }

    fn address(self, host: u8, port: u16) -> SocketAddr {
        let ip = match self.is_ipv6 {
            false => IpAddr::from([10, 2, 3, host]),
            true => IpAddr::from([0xfd00, 2, 0, 0, 0, 0, 0xabcd, u16::from(host)]),
        };
        SocketAddr::new(ip, port)
    }

    fn frame(self, from: SocketAddr, to: SocketAddr, header: Header) -> Vec<u8> {
        Frame { vlan: self.vlan, ..Frame::new(from, to, &packet(header)) }.bytes()
    }

    fn to_switch(self, header: Header) -> Vec<u8> {
        self.frame(self.client(), self.switch(), header)
    }

    fn of_server(self, index: u16, header: Header) -> Vec<u8> {
        let mut bytes = self.frame(self.server(index), self.switch(), header);
        bytes[6..12].copy_from_slice(&mac(index));
        bytes
    }

    fn to_server(self, index: u16, header: Header) -> Vec<u8> {
        addressed(self.frame(self.switch(), self.server(index), header), mac(index))
    }

    fn to_client(self, header: Header) -> Vec<u8> {
        let frame = self.frame(self.switch(), self.client(), header);
        let back: [u8; 6] = frame[6..12].try_into().expect("an address");
        addressed(frame, back)
    }
}

/// A frame that the switch sends.
fn addressed(mut frame: Vec<u8>, to: [u8; 6]) -> Vec<u8> {
    frame.copy_within(..6, 6);
    frame[..6].copy_from_slice(&to);
    frame
}

fn mac(index: u16) -> [u8; 6] {
    [2, 0, 0, 0, 7, index as u8]
}

const IPV4: Network = Network { is_ipv6: false, vlan: None };
/// Value that a client sends in the bits of `tidx` that nobody reads.
const TIDX: u32 = 0x00c0_ffee;
const HEADER: Header = {
    use zerocopy::byteorder::big_endian::U32;
    let zero = U32::ZERO;
    Header { op: zero, seq: zero, grp: zero, sid: U32::new(77), load: zero, clo: zero, tidx: zero }
};
