//! NetClone's published format: a request through the switch, cloned and not, the baselines, and
//! what is none of these.

use tailcut_wire::netclone::{CClone, CloneMark, Header, Malformed, NoClone, Trailer};
use zerocopy::IntoBytes;

use super::capture::Datagram;

/// A cloned request and one that is not, as they pass the switch, then the baselines.
pub(crate) fn datagrams() -> Vec<Datagram> {
    let request = Header { grp: 5.into(), sid: 4.into(), tidx: 1.into(), ..Header::default() };
    let placed = Header { seq: 77.into(), sid: 2.into(), ..request };
    let copy = |mark| placed.marked(mark);
    let response = |header: Header, sid: u32, load: u32| Header {
        op: 1.into(),
        sid: sid.into(),
        load: load.into(),
        ..header
    };
    let (original, clone) = (copy(CloneMark::Original), copy(CloneMark::Clone));
    let single = Header { seq: 100_000_000.into(), grp: 30.into(), ..request };
    vec![
        Datagram::new(CLIENT, SERVERS[0], packet(request, b"")),
        Datagram::new(CLIENT, SERVERS[0], packet(original, b"")),
        Datagram::new(CLIENT, SERVERS[1], packet(clone, b"")),
        Datagram::new(SERVERS[1], CLIENT, packet(response(clone, 2, 0), b"")),
        Datagram::new(SERVERS[0], CLIENT, packet(response(original, 0, 3), b"")),
        Datagram::new(CLIENT, SERVERS[1], packet(single, b"\0\0\0\0\0\0\x61\xa8")),
        Datagram::new(SERVERS[1], CLIENT, packet(response(single, 5, 1), b"\0\0\0\0\0\0\x61\xa8")),
        Datagram::new(CLIENT, SERVERS[0], request.as_bytes().to_vec()),
        Datagram::new(CLIENT, PLAIN, no_clone(0)),
        Datagram::new(PLAIN, CLIENT, no_clone(1)),
        Datagram::new(CLIENT, PLAIN, c_clone(0)),
        Datagram::new(PLAIN, CLIENT, c_clone(1)),
    ]
}

/// Datagrams that are no packet, to the port that they are none of.
pub(crate) fn malformed() -> Vec<Datagram> {
    let packets = cases().into_iter().map(|(_, bytes)| Datagram::new(CLIENT, SERVERS[0], bytes));
    let plain = plain_cases().into_iter().map(|(_, bytes)| Datagram::new(CLIENT, PLAIN, bytes));
    packets.chain(plain).filter(|datagram| !datagram.payload.is_empty()).collect()
}

/// Reasons why the parser refuses packets, each with its bytes.
pub(crate) fn cases() -> Vec<(Malformed, Vec<u8>)> {
    let packet = packet(Header::default(), b"");
    vec![
        (Malformed::Length, Vec::new()),
        (Malformed::Length, packet[..27].to_vec()),
        (Malformed::Op, changed(&packet, 3, 2)),
        (Malformed::Op, changed(&packet, 0, 1)),
        (Malformed::Mark, changed(&packet, 23, 3)),
    ]
}

/// Reasons why the parser refuses packets of the baselines, each with its bytes.
pub(crate) fn plain_cases() -> Vec<(Malformed, Vec<u8>)> {
    vec![
        (Malformed::Length, no_clone(0)[..31].to_vec()),
        (Malformed::Length, [&no_clone(0)[..], &[0]].concat()),
        (Malformed::Length, [&c_clone(0)[..], &[0]].concat()),
        (Malformed::Op, changed(&no_clone(0), 3, 2)),
        (Malformed::Op, changed(&c_clone(0), 2, 1)),
    ]
}

fn packet(header: Header, body: &[u8]) -> Vec<u8> {
    [header.as_bytes(), TRAILER.as_bytes(), body].concat()
}

fn no_clone(op: u32) -> Vec<u8> {
    let packet = NoClone { op: op.into(), key: 9.into(), trailer: TRAILER };
    packet.as_bytes().to_vec()
}

fn c_clone(op: u32) -> Vec<u8> {
    // The published client writes its id as its host has it.
    let packet = CClone { op: op.into(), key: 9.into(), seq: [7, 0, 0, 0], trailer: TRAILER };
    packet.as_bytes().to_vec()
}

fn changed(bytes: &[u8], at: usize, to: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] = to;
    bytes
}

/// 0x123456789abcdef0 ns in the order of the published hosts, and a `sockaddr_in`.
const TRAILER: Trailer = Trailer {
    stamp: 0x1234_5678_9abc_def0_u64.to_le_bytes(),
    address: [2, 0, 0x9c, 0x40, 10, 0, 1, 101, 0, 0, 0, 0, 0, 0, 0, 0],
};

const CLIENT: &str = "10.0.1.101:40000";
const SERVERS: [&str; 2] = ["10.0.1.103:1000", "10.0.1.105:1000"];
const PLAIN: &str = "10.0.1.103:2000";
