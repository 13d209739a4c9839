//! Matching datagrams to requests.

use proptest::prelude::*;

use super::*;
use crate::generator::generator;

#[test]
fn a_reply_names_the_request_that_it_answers() {
    for text in [
        "echo:8",
        "echo:100",
        "synthetic:exp:1us",
        "stss:time=exp:1us,request=fixed:8,reply=fixed:8",
    ] {
        let app = app(text);
        let setting = Setting { carrier: Carrier::Datagram, authority: "", is_tls: false };
        let mut requests = Requests::new(&app, setting, generator(1, 0)).unwrap();
        let mut datagrams = app.datagrams().unwrap();
        let mut tags = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let (mut request, mut reply) = (Vec::new(), Vec::new());
            let expected = requests.write(&mut request);
            match text.split_once(':').unwrap().0 {
                "echo" => reply = request,
                name => answer(name, &request, &mut reply),
            }
            assert_eq!(datagrams.key(&reply), Ok(Key::Tag(expected.tag)), "{text}");
            assert_eq!(datagrams.take(&reply, expected), Ok(Some(OK)));
            reply.push(0);
            assert!(matches!(datagrams.take(&reply, expected), Err(Malformed::Mismatched(_))));
            tags.insert(expected.tag);
        }
        assert_eq!(tags.len(), 100);
        assert!(datagrams.key(b"short").is_err());
    }
}

#[test]
fn what_has_no_room_for_a_name_answers_the_oldest() {
    assert_eq!(app("echo:7").datagrams().unwrap().key(b"1234567"), Ok(Key::Oldest));
}

#[test]
fn a_memcached_reply_in_one_datagram_is_found() {
    let mut datagrams = app("memcached-ascii").datagrams().unwrap();
    let expected = Expected { tag: 0x1234, due: GET };
    let hit = frame(0x1234, 0, 1, b"VALUE k 0 1\r\nx\r\nEND\r\n");
    assert_eq!(datagrams.key(&hit), Ok(Key::Tag(0x1234)));
    assert_eq!(datagrams.take(&hit, expected), Ok(Some(OK)));
    assert_eq!(datagrams.take(&frame(0x1234, 0, 1, b"END\r\n"), expected), Ok(Some(MISS)));
    for content in [&b"VALUE k 0 2\r\nx\r\nEND\r\n"[..], b"", b"STORED\r\n", b"EN"] {
        assert!(datagrams.take(&frame(0x1234, 0, 1, content), expected).is_err());
    }
}

#[test]
fn what_is_no_frame_names_no_request() {
    let datagrams = app("memcached-binary").datagrams().unwrap();
    for datagram in
        [&b"\x00\x01\x00\x00\x00\x01\x00"[..], &frame(1, 0, 0, b""), &frame(1, 3, 3, b"x")]
    {
        assert!(datagrams.key(datagram).is_err());
    }
}

#[test]
fn replies_in_part_are_bounded() {
    let mut datagrams = app("memcached-ascii").datagrams().unwrap();
    let take = |datagrams: &mut Box<dyn DatagramFramer>, id: u16, sequence| {
        let expected = Expected { tag: u64::from(id), due: GET };
        let content: &[u8] = if sequence == 0 { b"VALUE k 0 1\r\nx\r\n" } else { b"END\r\n" };
        datagrams.take(&frame(id, sequence, 2, content), expected)
    };
    for id in 0..65 {
        assert_eq!(take(&mut datagrams, id, 0), Ok(None));
    }
    assert_eq!(datagrams.evicted(), 1);
    assert_eq!(take(&mut datagrams, 1, 1), Ok(Some(OK)));
    datagrams.release(2);
    assert_eq!(take(&mut datagrams, 2, 1), Ok(None), "its first half is forgotten");
    let many = frame(3, 0, 5_000, b"VALUE k 0 1\r\n");
    let expected = Expected { tag: 3, due: GET };
    assert_eq!(
        datagrams.take(&many, expected),
        Err(Malformed::TooLong("the datagrams of a reply"))
    );
}

proptest! {
    #[test]
    fn a_reply_is_whole_when_each_of_its_datagrams_has_come(
        value_len in 0usize..20_000,
        piece_len in 200usize..2_000,
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..300),
        binary in any::<bool>(),
    ) {
        let (text, reply) = if binary {
            let mut head = [0; 24];
            (head[0], head[4]) = (0x81, 4);
            head[8..12].copy_from_slice(&(value_len as u32 + 4).to_be_bytes());
            head[15] = 7;
            ("memcached-binary", [&head[..], &vec![b'v'; value_len + 4]].concat())
        } else {
            let head = format!("VALUE k 0 {value_len}\r\n");
            ("memcached-ascii", [head.as_bytes(), &vec![b'v'; value_len], b"\r\nEND\r\n"].concat())
        };
        let pieces: Vec<&[u8]> = reply.chunks(piece_len).collect();
        let mut datagrams = app(text).datagrams().unwrap();
        let expected = Expected { tag: 7, due: GET };
        let mut missing: std::collections::BTreeSet<usize> = (0..pieces.len()).collect();
        // In any order, some twice, and then whatever is missing.
        let drawn = order.iter().map(|index| index.index(pieces.len()));
        for at in drawn.chain(0..pieces.len()) {
            let step = datagrams.take(&frame(7, at as u16, pieces.len() as u16, pieces[at]), expected);
            missing.remove(&at);
            prop_assert_eq!(step, if missing.is_empty() { Ok(Some(OK)) } else { Ok(None) });
            if missing.is_empty() {
                break;
            }
        }
        prop_assert!(missing.is_empty());
    }
}

/// The answer of a server of our own to a datagram.
fn answer(name: &str, request: &[u8], reply: &mut Vec<u8>) {
    use super::super::serving::{Limits, Tasks};
    let limits = Limits { service_ns_max: u64::MAX, payload_bytes_max: 100, reply_bytes_max: 100 };
    Tasks::read(form(name), limits, request).unwrap().write_reply(reply);
}

fn frame(id: u16, sequence: u16, count: u16, content: &[u8]) -> Vec<u8> {
    let head = [id, sequence, count, 0].map(u16::to_be_bytes).concat();
    [&head, content].concat()
}
