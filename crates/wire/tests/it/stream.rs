//! Messages of byte streams: what is coherent, what is not, and that the page and the code agree.

use core::mem::offset_of;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use tailcut_wire::stream::{
    BLOCKED, FIN, FROM_OPENER, MAGIC, MESSAGE_LEN, Malformed, Message, MessageHeader, MessageKind,
    OFFSET_MAX, REPLY_LEN, Reply, ReplyHeader, Status,
};
use zerocopy::IntoBytes;

fn header(kind: u8, flags: u8, numbers: [u64; 4]) -> MessageHeader {
    let [opener, acceptor, offset, limit] = numbers.map(Into::into);
    MessageHeader {
        magic: MAGIC.into(),
        kind,
        flags,
        reserved: [0; 2],
        opener,
        acceptor,
        offset,
        limit,
    }
}

fn check(header: MessageHeader, data_len: usize, expected: Result<MessageKind, Malformed>) {
    let bytes = [header.as_bytes(), &vec![7; data_len]].concat();
    let found = Message::parse(&bytes).map(|message| (message.kind, message.data.len()));
    assert_eq!(found, expected.map(|kind| (kind, data_len)), "{header:?}, {data_len} bytes");
}

#[test]
fn a_message_is_what_the_page_says_to_the_byte() {
    let header = header(2, 7, [0x0102_0304_0506_0708, 0x1112_1314_1516_1718, 0x21, 0x31]);
    assert_eq!(header.flags, FIN | FROM_OPENER | BLOCKED);
    let bytes = [header.as_bytes(), b"data"].concat();
    let expected = [
        &[0x74, 0x53, 0x74, 1, 2, 7, 0, 0][..],
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18],
        &[0, 0, 0, 0, 0, 0, 0, 0x21],
        &[0, 0, 0, 0, 0, 0, 0, 0x31],
        b"data",
    ];
    assert_eq!(bytes, expected.concat());
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(
        (message.header, message.kind, message.data),
        (&header, MessageKind::Data, &b"data"[..])
    );
    assert_eq!(
        message.to_string(),
        "stream data 0102030405060708 > 1112131415161718 at 33 length 4 fin blocked limit 49"
    );
}

#[test]
fn a_reply_is_what_the_page_says_to_the_byte() {
    let reply = Reply { status: Status::Gone, acceptor: 0x0102, limit: 0x0304 };
    let bytes = [
        &[0x74, 0x53, 0x74, 1, 2, 0, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 1, 2],
        &[0, 0, 0, 0, 0, 0, 3, 4],
    ]
    .concat();
    assert_eq!(ReplyHeader::new(reply).as_bytes(), bytes);
    assert_eq!(Reply::parse(&bytes), Ok(reply));
    assert_eq!(Reply::parse(&bytes[..23]), Err(Malformed::Truncated));
}

#[test]
fn a_message_that_contradicts_itself_is_refused() {
    let value = Err(Malformed::Value);
    check(header(1, FROM_OPENER, [1, 0, 0, 9]), 0, Ok(MessageKind::Open));
    check(header(1, FROM_OPENER, [1, 0, 0, 9]), 1, value);
    check(header(1, 0, [1, 0, 0, 9]), 0, value);
    check(header(1, FROM_OPENER, [1, 2, 0, 9]), 0, value);
    check(header(1, FROM_OPENER, [0, 0, 0, 9]), 0, value);
    check(header(2, 0, [1, 2, 5, 9]), 3, Ok(MessageKind::Data));
    check(header(2, 0xfc, [1, 2, 5, 9]), 3, Ok(MessageKind::Data));
    check(header(2, 0, [1, 2, 5, 9]), 0, value);
    check(header(2, FIN, [1, 2, 5, 9]), 0, Ok(MessageKind::Data));
    check(header(2, 0, [1, 0, 5, 9]), 3, value);
    check(header(2, 0, [1, 2, OFFSET_MAX - 3, 9]), 3, Ok(MessageKind::Data));
    check(header(2, 0, [1, 2, OFFSET_MAX - 2, 9]), 3, value);
    check(header(2, 0, [1, 2, u64::MAX, 9]), 3, value);
    check(header(3, 0, [1, 2, 0, OFFSET_MAX]), 0, Ok(MessageKind::Window));
    check(header(3, 0, [1, 2, 0, OFFSET_MAX + 1]), 0, value);
    check(header(3, FIN, [1, 2, 0, 9]), 0, value);
    check(header(3, 0, [1, 2, 1, 9]), 0, value);
    check(header(4, 0, [1, 2, 0, 0]), 0, Ok(MessageKind::Reset));
    check(header(4, 0, [1, 2, 0, 0]), 1, value);
    check(header(5, 0, [1, 2, 0, 0]), 0, Err(Malformed::Kind));
    let mut other = header(3, 0, [1, 2, 0, 0]);
    other.magic = (MAGIC + 1).into();
    check(other, 0, Err(Malformed::Magic));
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
    check_rows!(MessageHeader, magic, kind, flags, reserved, opener, acceptor, offset, limit);
    check_rows!(ReplyHeader, magic, status, reserved, acceptor, limit);
    assert_eq!((size_of::<MessageHeader>(), size_of::<ReplyHeader>()), (MESSAGE_LEN, REPLY_LEN));
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/stream.md");
    std::fs::read_to_string(path).expect("the protocol page")
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(mut bytes in vec(any::<u8>(), 0..80), kind in 0u8..6, is_named in any::<bool>()) {
        if is_named && bytes.len() > 4 {
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
            bytes[4] = kind;
        }
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert!(!message.to_string().is_empty());
        }
        let _ = Reply::parse(&bytes);
    }

    #[test]
    fn data_parse_to_what_was_written(
        numbers in (1..=u64::MAX, 1..=u64::MAX, 0..OFFSET_MAX - 100, 0..=OFFSET_MAX),
        len in 1usize..100,
        flags in any::<u8>(),
    ) {
        let header = header(MessageKind::Data as u8, flags, numbers.into());
        let bytes = [header.as_bytes(), &vec![9; len]].concat();
        let message = Message::parse(&bytes).unwrap();
        prop_assert_eq!((message.header, message.data.len()), (&header, len));
    }

    #[test]
    fn replies_parse_to_what_was_written(status in 0u8..3, acceptor in any::<u64>(), limit in 0..=OFFSET_MAX) {
        let reply = Reply { status: Status::from_byte(status).unwrap(), acceptor, limit };
        prop_assert_eq!(Reply::parse(ReplyHeader::new(reply).as_bytes()), Ok(reply));
    }
}
