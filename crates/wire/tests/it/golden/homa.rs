//! Homa in its three carriers. In IP as the kernel's module sends it, and as literals, so that they
//! do not depend on the code that they test; inside UDP with what this make adds; as TCP, some of
//! it cut by a NIC.

use tailcut_wire::homa::tagged::set_tag;
use tailcut_wire::homa::{
    Ack, Age, DATA_LEN, DataFlags, DataHeader, IP_PROTOCOL, PartHeader, PartKind, Ports, TimeLeft,
    hijack, tcp_checksum,
};
use tailcut_wire::r2p2::DropReason;
use zerocopy::IntoBytes;

use super::capture::Datagram;
use super::{hex, message};

/// As the module sends it: short calls, a long request with each control packet, an older and a
/// stripped peer, IPv6.
pub(crate) fn in_ip() -> Vec<Datagram> {
    [short_calls(), long_request(), other_peers()].into_iter().flatten().collect()
}

fn v4(ends: [&str; 2], packet: Vec<u8>) -> Datagram {
    Datagram::in_ip(IP_PROTOCOL, ends, packet)
}

fn to_server(priority: u8, packet: Vec<u8>) -> Datagram {
    v4([CLIENT, SERVER], packet).at(priority)
}

fn to_client(priority: u8, packet: Vec<u8>) -> Datagram {
    v4([SERVER, CLIENT], packet).at(priority)
}

fn short_calls() -> Vec<Datagram> {
    vec![
        // A first call, before cutoffs are known; its reply; a second one, which acknowledges it.
        to_server(
            6,
            data(
                &common(TO_SERVER, 0, "10", 100),
                "00000064 00000064",
                NO_ACK,
                "0000 00",
                (0, 100),
            ),
        ),
        to_client(7, control(TO_CLIENT, "15", 101, CUTOFFS)),
        to_client(
            7,
            data(
                &common(TO_CLIENT, 0, "10", 101),
                "00000064 00000064",
                NO_ACK,
                "0000 00",
                (0, 100),
            ),
        ),
        to_server(
            7,
            data(
                &common(TO_SERVER, 0, "10", 102),
                "00000001 00000001",
                "0000000000000064 0063",
                "0001 00",
                (0, 1),
            ),
        ),
    ]
}

fn long_request() -> Vec<Datagram> {
    vec![
        // A long request: a packet by itself, two that a NIC has cut with the sequence of their
        // GSO batch, the end of the unscheduled.
        to_server(4, data(&common(TO_SERVER, 0, "10", 104), LONG, NO_ACK, "0001 00", (0, 1424))),
        to_server(4, cut(1424, 1424, 1424)),
        to_server(4, cut(1424, 2848, 1424)),
        to_server(
            4,
            data(&common(TO_SERVER, 39_872, "10", 104), LONG, NO_ACK, "0001 00", (39_872, 128)),
        ),
        to_client(7, control(TO_CLIENT, "11", 105, "0000afc8 03")),
        to_server(
            3,
            data(
                &common(TO_SERVER, 40_000, "10", 104),
                "0000afc8 0000afc8",
                NO_ACK,
                "0001 00",
                (40_000, 60),
            ),
        ),
        to_client(7, control(TO_CLIENT, "12", 105, "00000590 00000590 07")),
        to_server(
            7,
            data(
                &common(TO_SERVER, 1424, "10", 104),
                "0000afc8 0000afc8",
                NO_ACK,
                "0001 01",
                (1424, 60),
            ),
        ),
        to_server(7, control(TO_SERVER, "12", 104, "00000000 ffffffff 07")),
        to_client(7, control(TO_CLIENT, "14", 105, "")),
        to_client(7, control(TO_CLIENT, "13", 105, "")),
        to_client(7, control(TO_CLIENT, "17", 105, "")),
        to_server(7, control(TO_SERVER, "18", 104, &("0000".to_owned() + &"00".repeat(50)))),
        to_server(7, control(TO_SERVER, "18", 106, FIVE_ACKS)),
        to_server(7, control(TO_SERVER, "16", 104, "")),
    ]
}

fn other_peers() -> Vec<Datagram> {
    vec![
        // An earlier version's GRANT has a byte more.
        to_client(7, control(TO_CLIENT, "11", 105, "0000afc8 03 01")),
        // The variant without grants: no flags, no urgent pointer, and RESEND ends before the
        // priority.
        to_server(
            0,
            strip(
                data(
                    &common(TO_SERVER, 0, "10", 108),
                    "00000064 00000000",
                    NO_ACK,
                    "0000 00",
                    (0, 100),
                ),
                0,
            ),
        ),
        to_client(0, strip(control(TO_CLIENT, "12", 109, "00000000 ffffffff"), 0)),
        v4(
            [CLIENT_V6, SERVER_V6],
            data(
                &common(TO_SERVER, 0, "10", 110),
                "00000064 00000064",
                NO_ACK,
                "0001 00",
                (0, 100),
            ),
        )
        .at(7),
        v4([SERVER_V6, CLIENT_V6], control(TO_CLIENT, "14", 111, "")).at(7),
        v4([CLIENT_V6, SERVER_V6], control(TO_SERVER, "18", 110, FIVE_ACKS)).at(7),
    ]
}

/// Inside UDP: every mark, ages, deadlines, refusals and parts of long messages.
pub(crate) fn in_udp() -> Vec<Datagram> {
    let to_server =
        |priority, packet| Datagram::new("10.77.0.3:33000", "10.77.0.4:50146", packet).at(priority);
    let to_client =
        |priority, packet| Datagram::new("10.77.0.4:50146", "10.77.0.3:33000", packet).at(priority);
    let request = |change: fn(&mut DataHeader)| marked(ID, change, message(0, 8));
    let reply =
        |change: fn(&mut DataHeader)| marked(ID | 1, change, vec![DropReason::Overload as u8]);
    let part = |id, kind, total_len, offset| {
        let header = PartHeader::new(kind, ID, total_len, offset);
        marked(
            id,
            |header| header.flags |= DataFlags::PART,
            [header.as_bytes(), &message(0, 10)].concat(),
        )
    };
    let mut fetch = part(ID + 4, PartKind::Fetch, 0, PART_LEN);
    fetch.truncate(DATA_LEN + PartHeader::LEN);
    fetch[28..36].copy_from_slice(&[0, 0, 0, 20, 0, 0, 0, 20]);
    let mut begun = part(ID, PartKind::Request, PART_LEN + 10, 0);
    begun[28..36].copy_from_slice(&hex("000f4240 00009c40"));
    vec![
        to_server(7, request(|header| header.time_left = TimeLeft::of_ns(500_000).0.into())),
        to_server(7, request(|header| header.flags |= DataFlags::IDEMPOTENT | DataFlags::INCAST)),
        to_server(7, request(|header| header.retransmit = Age::of_ns(2_500_000).0)),
        to_server(7, request(|header| header.retransmit = Age::of_ns(100_000_000).0)),
        to_server(7, request(|header| header.retransmit = 255)),
        to_server(7, request(|header| header.time_left = TimeLeft::of_ns(60_000_000_000).0.into())),
        to_client(7, reply(|header| header.flags |= DataFlags::REFUSED)),
        to_client(7, reply(|header| header.flags |= DataFlags::EMPTY)),
        to_client(7, reply(|_| {})),
        to_server(4, begun),
        to_server(7, part(ID + 2, PartKind::Request, PART_LEN + 10, PART_LEN)),
        to_server(7, fetch),
        to_client(7, part(ID | 5, PartKind::Reply, PART_LEN + 10, PART_LEN)),
        to_client(7, control("c3e28000", "11", ID | 1, "00013880 02")),
        to_server(7, control("8000c3e2", "18", ID, &("0000".to_owned() + &"00".repeat(50)))),
        to_server(7, request(|header| header.ack = Ack::range(ID - 2, 64))),
        to_server(
            7,
            control(
                "8000c3e2",
                "18",
                ID,
                &format!("0001 {:016x} 0003 {}", (ID - 2) | 1, "00".repeat(40)),
            ),
        ),
        to_client(7, control("c3e28000", "1f", ID | 1, "2388e24c26cac801 01")),
        to_server(7, request(|header| set_tag(header, 0x52c8_6fdd_3137_c8f1))),
        to_client(7, control("c3e28000", "1f", ID | 1, "a94180958902 88fb 00")),
        Datagram::new("[fd00::3]:33000", "[fd00::4]:50146", request(|_| {})).at(7),
        Datagram::new(
            "[fd00::4]:50146",
            "[fd00::3]:33000",
            control("c3e28000", "15", ID | 1, CUTOFFS),
        )
        .at(7),
    ]
}

/// As TCP: control packets, data, data that a NIC has cut, IPv6; and segments of TCP itself.
pub(crate) fn in_tcp() -> Vec<Datagram> {
    let request =
        data(&common(TO_SERVER, 0, "10", 100), "00000064 00000064", NO_ACK, "0001 00", (0, 100));
    let long = data(&common(TO_SERVER, 1424, "10", 104), LONG, NO_ACK, "0001 00", (1424, 250));
    let mut frames = vec![
        as_tcp([CLIENT, SERVER], request.clone()),
        as_tcp([SERVER, CLIENT], control(TO_CLIENT, "14", 101, "")),
        as_tcp([SERVER, CLIENT], control(TO_CLIENT, "11", 105, "0000afc8 03")),
    ];
    // TSO copies the header to every part, and corrects the sequence and the checksum.
    for (place, part) in long[DATA_LEN..].chunks(100).enumerate() {
        let mut cut = [&long[..DATA_LEN], part].concat();
        cut[4..8].copy_from_slice(&(1424 + 100 * place as u32).to_be_bytes());
        frames.push(as_tcp([CLIENT, SERVER], cut));
    }
    frames.push(as_tcp([CLIENT, SERVER], control(TO_SERVER, "18", 106, FIVE_ACKS)));
    frames.push(as_tcp([CLIENT_V6, SERVER_V6], request));
    frames.push(as_tcp([SERVER_V6, CLIENT_V6], control(TO_CLIENT, "17", 101, "")));
    frames.extend(segments_of_tcp());
    frames
}

/// Segments that are TCP's own: a SYN, a RST, and one with both flags but another urgent pointer.
fn segments_of_tcp() -> impl Iterator<Item = Datagram> {
    let segments = [("02", "0000"), ("04", "b97d"), ("06", "0001")];
    segments.into_iter().map(|(flags, urgent)| {
        let mut segment =
            hex(&format!("8002 0050 00000001 00000000 50 {flags} ffff 0000 {urgent}"));
        let ends = [CLIENT, SERVER].map(|ip| ip.parse().expect("an address"));
        let checksum = tcp_checksum(&segment, ends[0], ends[1]);
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        Datagram::in_ip(6, [CLIENT, SERVER], segment)
    })
}

fn as_tcp(ends: [&str; 2], mut packet: Vec<u8>) -> Datagram {
    let [source, destination] = ends.map(|ip| ip.parse().expect("an address"));
    hijack(&mut packet, source, destination);
    Datagram::in_ip(6, ends, packet).at(7)
}

/// The common header as the module writes it, with what its checksum field shows where no NIC has
/// filled it.
pub(crate) fn common(ports: &str, sequence: u32, kind: &str, id: u64) -> String {
    let doff = if kind == "10" { "e0" } else { "50" };
    format!("{ports} {sequence:08x} 000000 {kind} {doff} 06 0000 1c2d b97d {id:016x}")
}

/// DATA as the module writes it: lengths, acknowledgement, version and retransmit as digits; where
/// the bytes begin, how many.
fn data(common: &str, lens: &str, ack: &str, rest: &str, (offset, len): (usize, usize)) -> Vec<u8> {
    [hex(&format!("{common} {lens} {ack} {rest} 000000 ffffffff")), message(offset, len)].concat()
}

/// A part of a packet that a NIC has cut without knowing TCP: 52 bytes are copied, its own offset
/// follows.
fn cut(sequence: u32, offset: usize, len: usize) -> Vec<u8> {
    let common = common(TO_SERVER, sequence, "10", 104).replace(" e0 ", " d0 ");
    [hex(&format!("{common} {LONG} {NO_ACK} 0001 00 000000 {offset:08x}")), message(offset, len)]
        .concat()
}

/// A control packet: its ports, type and id, and what follows the common header.
pub(crate) fn control(ports: &str, kind: &str, id: u64, rest: &str) -> Vec<u8> {
    hex(&(common(ports, 0, kind, id) + rest))
}

/// This packet from the variant without grants; its `seg_offset` always holds the offset.
fn strip(mut packet: Vec<u8>, offset: u32) -> Vec<u8> {
    packet[13] = 0;
    packet[16..20].fill(0);
    if packet[11] == 0x10 {
        packet[52..56].copy_from_slice(&offset.to_be_bytes());
    }
    packet
}

/// DATA of this implementation: a whole message.
fn marked(id: u64, change: impl FnOnce(&mut DataHeader), message: Vec<u8>) -> Vec<u8> {
    let ports = Ports { source: 32_768, destination: 50_146 };
    let ports = if id & 1 == 0 {
        ports
    } else {
        Ports { source: ports.destination, destination: ports.source }
    };
    let mut header = DataHeader::new(ports, id, message.len() as u32, 0);
    header.incoming = header.message_length;
    header.cutoff_version = 0x5a31.into();
    header.flags = DataFlags::KNOWN;
    change(&mut header);
    [header.as_bytes(), &message].concat()
}

const CLIENT: &str = "10.77.0.3";
const SERVER: &str = "10.77.0.4";
const CLIENT_V6: &str = "fd00::3";
const SERVER_V6: &str = "fd00::4";
/// Ports 32770 and 99.
pub(crate) const TO_SERVER: &str = "80020063";
const TO_CLIENT: &str = "00638002";
const NO_ACK: &str = "0000000000000000 0000";
/// 45,000 bytes, of which 40,000 are unscheduled.
const LONG: &str = "0000afc8 00009c40";
const CUTOFFS: &str =
    "00000000 00000000 00000000 00000000 000f4240 00003a98 00000af0 000000c8 0001";
const FIVE_ACKS: &str = "0005 000000000000005a 0063 000000000000005c 0063 000000000000005e 0063 0000000000000060 0063 \
                         0000000000000062 0064";
/// An id of this implementation: session, sequence, and the bit that tells the ends apart.
const ID: u64 = 0x5e55_1000_0100_0010;
const PART_LEN: u32 = PartHeader::PART_LEN as u32;
