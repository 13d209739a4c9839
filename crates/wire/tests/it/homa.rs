//! Homa's packets against golden bytes from the layouts of `docs/protocol/homa.md`, against
//! arbitrary bytes, and against every packet that can be built.

use std::mem::offset_of;
use std::net::IpAddr;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use tailcut_wire::homa::{
    ACKS_MAX, Ack, AckPacket, Age, Body, COMMON_LEN, CommonHeader, CutoffsPacket, DATA_LEN,
    DataFlags, DataHeader, GrantPacket, MESSAGE_LEN_MAX, Malformed, OFFSET_IN_SEQUENCE, Packet,
    PacketType, PartHeader, PartKind, Ports, RESEND_ALL, Resend, ResendPacket, TimeLeft, hijack,
    is_hijacked, tcp_checksum,
};
use zerocopy::IntoBytes;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The common header of the golden packets, from port 0x8001 to port 99, of type `kind`, for RPC
/// 0x1234.
fn common(kind: &str, doff: &str) -> String {
    format!("8001 0063 00000000 000000 {kind} {doff} 06 0000 0000 b97d 0000000000001234")
}

const PORTS: Ports = Ports { source: 0x8001, destination: 99 };

fn check_written(written: &[u8], golden: &str, line: &str) {
    let golden = hex(golden);
    assert_eq!(written, golden);
    assert_eq!(Packet::parse(&golden).unwrap().to_string(), line);
}

#[test]
fn grant_is_33_bytes() {
    let common_header = CommonHeader::new(PacketType::Grant, PORTS, 0x1234);
    let grant = GrantPacket { common: common_header, offset: 20_000.into(), priority: 3 };
    let golden = common("11", "50") + "00004e20 03";
    check_written(
        grant.as_bytes(),
        &golden,
        "Homa grant 32769 > 99 id 0000000000001234 below 20000 priority 3",
    );
    assert_eq!(size_of::<GrantPacket>(), 33);
}

#[test]
fn resend_is_37_bytes() {
    let common_header = CommonHeader::new(PacketType::Resend, PORTS, 0x1234);
    let resend = ResendPacket {
        common: common_header,
        offset: 1424.into(),
        length: 2848.into(),
        priority: 7,
    };
    let golden = common("12", "50") + "00000590 00000b20 07";
    check_written(
        resend.as_bytes(),
        &golden,
        "Homa resend 32769 > 99 id 0000000000001234 2848 from 1424 priority 7",
    );
    let all = ResendPacket { offset: 0.into(), length: RESEND_ALL.into(), ..resend };
    let golden = common("12", "50") + "00000000 ffffffff 07";
    check_written(
        all.as_bytes(),
        &golden,
        "Homa resend 32769 > 99 id 0000000000001234 all priority 7",
    );
    assert_eq!(size_of::<ResendPacket>(), 37);
}

#[test]
fn packets_of_the_header_alone_are_28_bytes() {
    let cases = [
        (PacketType::RpcUnknown, "13", "unknown"),
        (PacketType::Busy, "14", "busy"),
        (PacketType::Freeze, "16", "freeze"),
        (PacketType::NeedAck, "17", "need-ack"),
    ];
    for (packet_type, kind, name) in cases {
        let header = CommonHeader::new(packet_type, PORTS, 0x1234);
        let line = format!("Homa {name} 32769 > 99 id 0000000000001234");
        check_written(header.as_bytes(), &common(kind, "50"), &line);
    }
    assert_eq!(size_of::<CommonHeader>(), COMMON_LEN);
}

#[test]
fn cutoffs_are_62_bytes() {
    let cutoffs = [0, 0, 0, 0, 1_000_000, 15_000, 2800, 200].map(Into::into);
    let packet = CutoffsPacket {
        common: CommonHeader::new(PacketType::Cutoffs, PORTS, 0x1234),
        cutoffs,
        version: 1.into(),
    };
    let golden = common("15", "50")
        + "00000000 00000000 00000000 00000000 000f4240 00003a98 00000af0 000000c8 0001";
    let line =
        "Homa cutoffs 32769 > 99 id 0000000000001234 version 1 0 0 0 0 1000000 15000 2800 200";
    check_written(packet.as_bytes(), &golden, line);
    assert_eq!(size_of::<CutoffsPacket>(), 62);
}

#[test]
fn ack_is_80_bytes_however_few_it_names() {
    let mut packet = AckPacket {
        common: CommonHeader::new(PacketType::Ack, PORTS, 0x1234),
        num_acks: 0.into(),
        acks: [Ack::default(); 5],
    };
    check_written(
        packet.as_bytes(),
        &(common("18", "50") + &"00".repeat(52)),
        "Homa ack 32769 > 99 id 0000000000001234",
    );
    packet.num_acks = 1.into();
    packet.acks[0] = Ack::new(0x1230, 99);
    let golden = common("18", "50") + "0001 0000000000001230 0063" + &"00".repeat(40);
    check_written(
        packet.as_bytes(),
        &golden,
        "Homa ack 32769 > 99 id 0000000000001234 0000000000001230",
    );
    packet.acks[0] = Ack::range(0x1230, 32);
    let range = common("18", "50") + "0001 0000000000001231 0020" + &"00".repeat(40);
    check_written(
        packet.as_bytes(),
        &range,
        "Homa ack 32769 > 99 id 0000000000001234 0000000000001231*32",
    );
    assert_eq!((packet.acks[0].range_count(), packet.acks[1].range_count()), (Some(32), None));
    assert_eq!(size_of::<AckPacket>(), 80);
}

#[test]
fn data_is_56_bytes_and_its_payload() {
    let mut header = DataHeader::new(PORTS, 0x1234, 5000, 1424);
    header.incoming = 5000.into();
    header.ack = Ack::new(0x1232, 98);
    header.cutoff_version = 1.into();
    header.retransmit = 1;
    let golden = "8001 0063 00000590 000000 10 e0 06 0000 0000 b97d 0000000000001234 \
                  00001388 00001388 0000000000001232 0062 0001 01 00 0000 00000590";
    let line = "Homa data 32769 > 99 id 0000000000001234 at 1424 of 5000 B incoming 5000 ack 0000000000001232 retransmit, length 0";
    check_written(header.as_bytes(), golden, line);
    assert_eq!(size_of::<DataHeader>(), DATA_LEN);
}

fn offset(sequence: u32, seg_offset: u32) -> u32 {
    let mut header = DataHeader::new(PORTS, 2, 500_000, 0);
    header.common.sequence = sequence.into();
    header.seg_offset = seg_offset.into();
    header.offset()
}

#[test]
fn single_segments_of_the_module_have_their_offset_in_the_sequence() {
    assert_eq!(offset(1424, OFFSET_IN_SEQUENCE), 1424);
}

#[test]
fn a_segment_cut_by_the_nic_has_a_stale_sequence() {
    assert_eq!(offset(0, 2848), 2848);
}

#[test]
fn hijacked_frames_are_told_from_segments_of_tcp() {
    let homa = hex(&common("14", "50"));
    assert!(is_hijacked(&homa));
    let mut syn = homa.clone();
    syn[13] = 0x02;
    assert!(!is_hijacked(&syn));
    let mut urgent = homa.clone();
    urgent[18] = 0;
    assert!(!is_hijacked(&urgent));
    assert!(!is_hijacked(&homa[..27]));
    assert!(Packet::parse(&homa).is_ok(), "its bytes are those of a packet");
}

/// Checks the frame that comes of a packet that is hijacked between two addresses. The checksums
/// are from a sum by hand (RFC 1071).
fn check_hijacked(packet: &[u8], addresses: [&str; 2], golden: &str) {
    let [source, destination]: [IpAddr; 2] = addresses.map(|address| address.parse().unwrap());
    let mut frame = packet.to_vec();
    hijack(&mut frame, source, destination);
    assert_eq!(frame, hex(golden));
    assert!(is_hijacked(&frame) && Packet::parse(&frame).is_ok());
    assert_eq!(tcp_checksum(&frame, source, destination), 0);
}

const V4: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const V6: [&str; 2] = ["fd00::1", "fd00::2"];

#[test]
fn a_hijacked_control_packet_has_the_checksum_of_tcp() {
    let busy = CommonHeader::new(PacketType::Busy, PORTS, 0x1234);
    let golden = |checksum| {
        format!("8001 0063 00000000 000000 14 50 06 0000 {checksum} b97d 0000000000001234")
    };
    check_hijacked(busy.as_bytes(), V4, &golden("4faa"));
    check_hijacked(busy.as_bytes(), V6, &golden("69a8"));
}

#[test]
fn hijacked_data_leave_their_offset_to_the_sequence() {
    let mut header = DataHeader::new(PORTS, 0x1234, 5000, 1424);
    header.incoming = 5000.into();
    let packet = [header.as_bytes(), b"abc"].concat();
    let golden = |checksum| {
        format!(
            "8001 0063 00000590 000000 10 e0 06 0000 {checksum} b97d 0000000000001234 \
             00001388 00001388 0000000000000000 0000 0000 00 00 0000 ffffffff 616263"
        )
    };
    check_hijacked(&packet, V4, &golden("ce8b"));
    check_hijacked(&packet, V6, &golden("e889"));
}

/// TSO gives every part a copy of the header, in which it corrects the sequence alone.
#[test]
fn parts_that_a_nic_cuts_from_a_hijacked_packet_are_where_they_belong() {
    let mut packet = data(5000, 1424, 2000);
    hijack(&mut packet, [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let (header, payload) = packet.split_at(DATA_LEN);
    for (place, part) in payload.chunks(700).enumerate() {
        let mut cut = [header, part].concat();
        cut[4..8].copy_from_slice(&(1424 + 700 * place as u32).to_be_bytes());
        let Body::Data { header, payload } = Packet::parse(&cut).unwrap().body else {
            panic!("not data")
        };
        assert_eq!((header.offset() as usize, payload), (1424 + 700 * place, part));
    }
}

#[test]
fn what_is_shorter_than_a_header_is_not_hijacked() {
    let mut bytes = hex(&common("14", "50"))[..27].to_vec();
    hijack(&mut bytes, [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    assert_eq!(bytes, hex(&common("14", "50"))[..27]);
}

/// The common header of the variant without grants: what the module gives to TCP's flags and urgent
/// pointer is reserved there.
fn stripped(kind: &str, doff: &str) -> String {
    format!("8001 0063 00000590 000000 {kind} {doff} 00 0000 0000 0000 0000000000001234")
}

#[test]
fn data_of_the_variant_without_grants_is_read_and_told() {
    let bytes = hex(&(stripped("10", "e0")
        + "00001388 00000000 0000000000001232 0062 0000 01 000000 00000590 616263"));
    let packet = Packet::parse(&bytes).unwrap();
    let Body::Data { header, payload } = packet.body else { panic!("not data") };
    assert!(packet.common.is_stripped() && !DataHeader::new(PORTS, 2, 1, 0).common.is_stripped());
    assert_eq!((header.message_length.get(), header.offset(), payload), (5000, 1424, &b"abc"[..]));
    assert_eq!((header.incoming.get(), header.cutoff_version.get(), header.retransmit), (0, 0, 1));
    assert_eq!((header.ack, header.flags()), (Ack::new(0x1232, 98), DataFlags(0)));
}

#[test]
fn resend_of_the_variant_without_grants_ends_before_the_priority() {
    let bytes = hex(&(stripped("12", "50") + "00000590 00000b20"));
    assert_eq!(bytes.len(), 36);
    let packet = Packet::parse(&bytes).unwrap();
    assert!(matches!(
        packet.body,
        Body::Resend(Resend { offset: 1424, length: 2848, priority: None })
    ));
    assert_eq!(packet.to_string(), "Homa resend 32769 > 99 id 0000000000001234 2848 from 1424");
    let of_the_module = hex(&(common("12", "50") + "00000590 00000b20"));
    assert_eq!(Packet::parse(&of_the_module).err(), Some(Malformed::Truncated));
}

#[test]
fn other_control_packets_of_the_variant_without_grants_are_the_modules() {
    for kind in ["13", "14", "17"] {
        assert!(Packet::parse(&hex(&stripped(kind, "50"))).is_ok(), "{kind}");
    }
    let ack = hex(&(stripped("18", "50") + "0001 0000000000001230 0063" + &"00".repeat(40)));
    assert!(matches!(Packet::parse(&ack).unwrap().body, Body::Ack(&[Ack { .. }])));
}

#[test]
fn what_the_module_leaves_in_flags_urgent_and_checksum_does_not_matter() {
    let mut bytes = hex(&common("14", "50"));
    bytes[12..20].copy_from_slice(&[0xd0, 0xff, 1, 2, 3, 4, 5, 6]);
    assert!(Packet::parse(&bytes).is_ok());
}

#[test]
fn a_grant_of_an_earlier_version_is_a_byte_longer() {
    let bytes = hex(&(common("11", "50") + "00004e20 03 01"));
    assert!(
        matches!(Packet::parse(&bytes).unwrap().body, Body::Grant(grant) if grant.offset.get() == 20_000)
    );
}

fn data(message_length: u32, offset: u32, len: usize) -> Vec<u8> {
    [DataHeader::new(PORTS, 2, message_length, offset).as_bytes(), &vec![7; len]].concat()
}

#[test]
fn incoherent_packets_are_refused_for_their_reason() {
    let id_0 = common("14", "50").replace("1234", "0000");
    let cases = [
        (Malformed::Truncated, hex(&common("14", "50"))[..27].to_vec()),
        (Malformed::Truncated, data(1, 0, 0)[..55].to_vec()),
        (Malformed::Truncated, hex(&(common("11", "50") + "00004e20"))),
        (Malformed::Truncated, hex(&(common("18", "50") + &"00".repeat(51)))),
        (Malformed::Type, hex(&common("0f", "50"))),
        (Malformed::Type, hex(&common("19", "50"))),
        (Malformed::Length, data(0, 0, 0)),
        (Malformed::Length, data(10, 0, 11)),
        (Malformed::Length, data(10, 10, 1)),
        (Malformed::Length, data(10, u32::MAX - 1, 1)),
        (Malformed::Value, hex(&id_0)),
        (Malformed::Value, hex(&(common("11", "50") + "00004e20 08"))),
        (Malformed::Value, hex(&(common("12", "50") + "00000000 ffffffff 08"))),
        (Malformed::Value, hex(&(common("18", "50") + "0006" + &"00".repeat(50)))),
    ];
    for (reason, bytes) in cases {
        assert_eq!(Packet::parse(&bytes).err(), Some(reason), "{bytes:02x?}");
    }
}

#[test]
fn a_message_of_the_greatest_length_is_taken() {
    assert!(Packet::parse(&data(MESSAGE_LEN_MAX, MESSAGE_LEN_MAX - 1, 1)).is_ok());
}

#[test]
fn flags_of_a_sender_that_does_not_know_them_mean_nothing() {
    let mut header = DataHeader::new(PORTS, 2, 1, 0);
    header.flags = DataFlags::REFUSED;
    assert_eq!(header.flags(), DataFlags(0));
    header.flags |= DataFlags::KNOWN;
    assert!(header.flags().has(DataFlags::REFUSED));
}

#[test]
fn ages_are_rounded_up_and_end() {
    let ms = 1_000_000;
    for (ns, expected) in [
        (0, 0),
        (1, 1),
        (15 * ms, 15),
        (16 * ms, 16),
        (17 * ms, 18),
        (31 * ms, 32),
        (100 * ms, 104),
    ] {
        assert_eq!(Age::of_ns(ns).ns_max(), Some(expected * ms), "{ns}");
        assert_ne!(Age::of_ns(ns).0, 0, "{ns}");
    }
    assert_eq!(Age(255).ns_max(), None);
    assert_eq!(Age::of_ns(u64::MAX).ns_max(), None);
}

#[test]
fn a_part_begins_where_it_can_and_has_its_length() {
    let total = 2 * PartHeader::PART_LEN as u32 + 10;
    let part = |kind, offset, len| {
        [PartHeader::new(kind, 2, total, offset).as_bytes(), &vec![1; len]].concat()
    };
    let check = |message: &[u8], kind, expected| {
        assert_eq!(PartHeader::split(message, kind).map(|(_, part)| part.len()), expected);
    };
    let (full, request, reply) = (PartHeader::PART_LEN, PartKind::Request, PartKind::Reply);
    check(&part(request, 0, full), request, Some(full));
    check(&part(request, 2 * full as u32, 10), request, Some(10));
    check(&part(request, 2 * full as u32, 11), request, None);
    check(&part(request, 1, full), request, None);
    check(&part(request, 3 * full as u32, 0), request, None);
    check(&part(request, 0, full), reply, None);
    check(PartHeader::new(PartKind::Fetch, 2, 0, full as u32).as_bytes(), PartKind::Fetch, Some(0));
    check(&[0; 19], request, None);
}

/// Checks each row of one table: `| offset | size | field |`.
macro_rules! check_rows {
    ($layout:ty, $($field:ident),+) => {
        $({
            fn size<T>(_: fn(&$layout) -> &T) -> usize {
                size_of::<T>()
            }
            let row = format!("| {} | {} | {} |", offset_of!($layout, $field), size(|l| &l.$field), stringify!($field));
            assert!(page().lines().any(|line| line.starts_with(&row)), "the page lacks `{row}`");
        })+
    };
}

#[test]
fn page_has_the_layouts() {
    check_rows!(
        CommonHeader,
        sport,
        dport,
        sequence,
        reserved,
        packet_type,
        doff,
        flags,
        window,
        checksum,
        urgent,
        sender_id
    );
    check_rows!(
        DataHeader,
        message_length,
        incoming,
        ack,
        cutoff_version,
        retransmit,
        flags,
        time_left,
        seg_offset
    );
    check_rows!(GrantPacket, offset, priority);
    check_rows!(ResendPacket, offset, length, priority);
    check_rows!(CutoffsPacket, cutoffs, version);
    check_rows!(AckPacket, num_acks, acks);
    check_rows!(PartHeader, key, total_len, offset, kind, reserved);
    assert_eq!(size_of::<PartHeader>(), PartHeader::LEN);
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/homa.md");
    std::fs::read_to_string(path).expect("the protocol page")
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(mut bytes in vec(any::<u8>(), 0..200), kind in 0x10u8..0x1a) {
        if let Some(byte) = bytes.get_mut(11) {
            *byte = kind;
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert!(!packet.to_string().is_empty());
        }
    }

    #[test]
    fn data_parses_to_what_was_written(
        id in 2u64..,
        (length, at) in (1..=MESSAGE_LEN_MAX).prop_flat_map(|length| (Just(length), 0..length)),
        (incoming, version, ack) in any::<(u32, u16, u64)>(),
        len in 0usize..1500,
        is_in_sequence in any::<bool>(),
    ) {
        let len = len.min((length - at) as usize);
        let mut header = DataHeader::new(PORTS, id, length, at);
        header.incoming = incoming.into();
        header.cutoff_version = version.into();
        header.ack = Ack::new(ack, 4);
        if is_in_sequence {
            header.seg_offset = OFFSET_IN_SEQUENCE.into();
        } else {
            header.common.sequence = 0.into();
        }
        let bytes = [header.as_bytes(), &vec![9; len]].concat();
        let packet = Packet::parse(&bytes).unwrap();
        let Body::Data { header: found, payload } = packet.body else { return Err(TestCaseError::fail("not data")) };
        prop_assert_eq!(found, &header);
        prop_assert_eq!((found.offset(), payload.len()), (at, len));
        prop_assert_eq!((packet.common.local_id(), packet.is_from_client()), (id ^ 1, id % 2 == 0));
    }

    #[test]
    fn acks_parse_to_what_was_written(ids in vec(any::<u64>(), 0..=ACKS_MAX)) {
        let mut packet = AckPacket {
            common: CommonHeader::new(PacketType::Ack, PORTS, 2),
            num_acks: (ids.len() as u16).into(),
            acks: [Ack::default(); ACKS_MAX],
        };
        for (place, &id) in packet.acks.iter_mut().zip(&ids) {
            *place = Ack::new(id, 7);
        }
        let parsed = Packet::parse(packet.as_bytes()).unwrap();
        let Body::Ack(acks) = parsed.body else { return Err(TestCaseError::fail("not an ack")) };
        prop_assert_eq!(acks.iter().map(|ack| ack.client_id.get()).collect::<Vec<_>>(), ids);
    }

    #[test]
    fn a_deadline_is_rounded_down_by_less_than_a_two_thousandth(ns in 1_000u64..134_000_000_000) {
        let found = TimeLeft::of_ns(ns).ns().unwrap();
        prop_assert!(found <= ns && ns - found <= ns / 2048 + 1000, "{found} of {ns}");
    }

    #[test]
    fn an_age_is_rounded_up_by_at_most_an_eighth(ns in 0u64..1_000_000_000_000) {
        let found = Age::of_ns(ns).ns_max().unwrap();
        prop_assert!(Age::of_ns(ns).ns_min() <= ns);
        prop_assert!(found >= ns && found <= ns + ns / 8 + 1_000_000, "{found} of {ns}");
    }
}
