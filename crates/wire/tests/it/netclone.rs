//! NetClone's format, to the byte.

use std::mem::offset_of;
use std::path::Path;

use tailcut_wire::netclone::{
    C_CLONE_LEN, CClone, HEADER_LEN, Header, Malformed, NO_CLONE_LEN, NoClone, Op, PACKET_LEN,
    Packet, Plain, TRAILER_LEN, Trailer,
};

use crate::golden::{hex, netclone as golden};

#[test]
fn structures_have_their_announced_lengths() {
    assert_eq!(size_of::<Header>(), HEADER_LEN);
    assert_eq!(size_of::<Trailer>(), TRAILER_LEN);
    assert_eq!(size_of::<NoClone>(), NO_CLONE_LEN);
    assert_eq!(size_of::<CClone>(), C_CLONE_LEN);
    assert_eq!(PACKET_LEN, 52);
}

#[test]
fn a_packet_is_what_the_published_structure_lays_out() {
    let expected = original_by_hand();
    assert_eq!(golden::datagrams()[1].payload, expected);
    let packet = Packet::parse(&expected).unwrap();
    let line = packet.to_string();
    assert_eq!(line, "NetClone REQUEST seq 77 grp 5 original table 1, length 0");
    assert_eq!(packet.trailer.unwrap().stamp, 0x1234_5678_9abc_def0_u64.to_le_bytes());
}

#[test]
fn the_page_has_the_header() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/netclone.md");
    let page = std::fs::read_to_string(path).expect("the protocol page");
    macro_rules! check_rows {
        ($start:expr, $layout:ty, $($field:ident),+) => {
            $({
                fn size<T>(_: fn(&$layout) -> &T) -> usize {
                    size_of::<T>()
                }
                let (at, len) =
                    ($start + offset_of!($layout, $field), size(|layout| &layout.$field));
                let row = format!("| {at} | {len} | {} |", stringify!($field));
                assert!(page.lines().any(|line| line.starts_with(&row)), "it lacks `{row}`");
            })+
        };
    }
    check_rows!(0, Header, op, seq, grp, sid, load, clo, tidx);
    check_rows!(HEADER_LEN, Trailer, stamp, address);
}

#[test]
fn malformed_datagrams_are_refused_for_their_reason() {
    for (reason, bytes) in golden::cases() {
        assert_eq!(Packet::parse(&bytes).err(), Some(reason), "{bytes:02x?}");
    }
    for (reason, bytes) in golden::plain_cases() {
        assert_eq!(Plain::parse(&bytes).err(), Some(reason), "{bytes:02x?}");
    }
}

#[test]
fn a_header_alone_is_a_packet_and_a_trailer_in_part_is_a_body() {
    let bytes = original_by_hand();
    let packet = Packet::parse(&bytes[..28]).unwrap();
    assert!(packet.trailer.is_none() && packet.body.is_empty() && packet.op == Op::Request);
    let packet = Packet::parse(&bytes[..51]).unwrap();
    assert!(packet.trailer.is_none() && packet.body.len() == 23);
    assert_eq!(Packet::parse(&bytes[..27]).err(), Some(Malformed::Length));
}

/// A cloned request between switch and server, digit by digit as the published structure lays it
/// out, from the specification and not from this code.
fn original_by_hand() -> Vec<u8> {
    hex(concat!(
        "00000000 0000004d 00000005 00000002 00000000 00000001 00000001",
        "f0debc9a78563412",
        "0200 9c40 0a000165 0000000000000000",
    ))
}
