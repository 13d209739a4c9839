//! However a stream is cut into fragments, the same replies are found in it, be they replies or
//! garbage.

use proptest::prelude::*;

use super::*;

/// An application, what one of its requests expects, and what it may get; `#` stands for what is
/// made long.
type Kind = (&'static str, u32, &'static [(&'static str, Outcome)]);

const REPLIES: &[Kind] = &[
    ("echo:10", 10, &[("0123456789", OK)]),
    (
        "memcached-ascii",
        GET,
        &[
            ("VALUE k 0 9 7\r\nEND\r\n\r\nEN\r\nEND\r\n", OK),
            ("END\r\n", MISS),
            ("CLIENT_ERROR no #\r\n", REFUSED),
        ],
    ),
    ("memcached-ascii", SET, &[("STORED\r\n", OK), ("ERROR\r\n", REFUSED)]),
    (
        "memcached-binary",
        GET,
        &[
            ("\u{1}\0\0\0\u{4}\0\0\0\0\0\0\u{9}\0\0\0\0\0\0\0\0\0\0\0\u{1}abcdWorld", OK),
            ("\u{1}\0\0\0\0\0\0\u{1}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", MISS),
        ],
    ),
    (
        "redis:resp=3",
        0,
        &[
            ("$9\r\n*1\r\n+OK\r\n\r\n", OK),
            ("+OK #\r\n", OK),
            ("_\r\n", MISS),
            ("-ERR #\r\n", REFUSED),
            (">2\r\n+a\r\n*?\r\n.\r\n*2\r\n%1\r\n+#\r\n$?\r\n;3\r\nabc\r\n;0\r\n$-1\r\n", OK),
            ("|1\r\n+a\r\n~0\r\n(123456789012345678901234567890\r\n", OK),
        ],
    ),
    (
        "http",
        0,
        &[
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: #\r\n\r\nhello", OK),
            ("HTTP/1.1 100 #\r\n\r\nHTTP/1.1 404 \r\ncontent-length:0\r\n\r\n", REFUSED),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;#\r\n\r\n0\r\n\r\n3\r\nabc\r\n0\r\nT: #\r\n\r\n",
                OK,
            ),
            ("HTTP/1.1 204 #\nA: b\n\n", OK),
        ],
    ),
];

proptest! {
    #[test]
    fn replies_are_found_however_they_are_cut(
        (kind, chosen) in kind_and_choices(),
        long in prop_oneof![0usize..10, 490usize..530],
        cuts in prop::collection::vec(1usize..100, 1..40),
    ) {
        let (text, reply, replies) = REPLIES[kind];
        let (stream, outcomes) = stream(text, replies, &chosen, long);
        let expected: Vec<Step> = outcomes.into_iter().map(keep).collect();
        let found = steps(&app(text), Some(due(reply)), cut(&stream, &cuts));
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn garbage_reads_the_same_however_it_is_cut(
        (kind, chosen) in kind_and_choices(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(b'\n'), Just(b'9')]), 1..8),
        long in 490usize..530,
        cuts in prop::collection::vec(1usize..100, 1..40),
    ) {
        let (text, reply, replies) = REPLIES[kind];
        let mut stream = stream(text, replies, &chosen, long).0;
        for (at, byte) in changes {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let whole = steps(&app(text), Some(due(reply)), [&stream[..]]);
        prop_assert_eq!(&steps(&app(text), Some(due(reply)), cut(&stream, &cuts)), &whole);
        prop_assert_eq!(&steps(&app(text), Some(due(reply)), stream.chunks(1)), &whole);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..REPLIES.len()) {
        let (text, reply, _) = REPLIES[kind];
        let (app, due) = (app(text), due(reply));
        prop_assert_eq!(steps(&app, Some(due), [&bytes[..]]), steps(&app, Some(due), bytes.chunks(3)));
        steps(&app, None, [&bytes[..]]);
        let _ = Replies::new(&app).judge(&bytes, due);
        if let Ok(mut datagrams) = app.datagrams() {
            let _ = datagrams.key(&bytes);
            let _ = datagrams.take(&bytes, due);
        }
    }
}

#[test]
fn a_message_is_exactly_a_reply() {
    let redis = app("redis");
    // Whatever one of them was, the next is judged alone.
    let mut replies = Replies::new(&redis);
    let mut judge = |bytes: &[u8]| replies.judge(bytes, due(0)).map(|reply| reply.outcome);
    assert_eq!(judge(b"+OK\r\n"), Ok(OK));
    assert_eq!(judge(b"+OK\r\n+OK\r\n"), Err(Malformed::Unsolicited));
    assert_eq!(judge(b"+OK"), Err(Malformed::Truncated));
    assert_eq!(judge(b""), Err(Malformed::Truncated));
    assert!(judge(b"?").is_err());
    assert_eq!(judge(b"+OK\r\n"), Ok(OK));
    assert!(Replies::new(&app("echo:0")).judge(b"", due(0)).is_ok());
}

/// `bytes` in fragments of the lengths in `cuts`, over and over.
pub(super) fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    let mut fragments = Vec::new();
    for len in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (fragment, after) = rest.split_at(rest.len().min(*len));
        fragments.push(fragment);
        rest = after;
    }
    fragments
}

fn kind_and_choices() -> impl Strategy<Value = (usize, Vec<usize>)> {
    (0..REPLIES.len())
        .prop_flat_map(|kind| (Just(kind), prop::collection::vec(0..REPLIES[kind].2.len(), 1..12)))
}

/// The chosen replies, one after the other, and what they say.
fn stream(
    text: &str,
    replies: &[(&str, Outcome)],
    chosen: &[usize],
    long: usize,
) -> (Vec<u8>, Vec<Outcome>) {
    let mut stream = Vec::new();
    for (reply, _) in chosen.iter().map(|&at| replies[at]) {
        if text == "memcached-binary" {
            // Its first byte is no character of its own.
            stream.push(0x81);
            stream.extend_from_slice(&reply.as_bytes()[1..]);
        } else {
            stream.extend_from_slice(reply.replace('#', &"y".repeat(long)).as_bytes());
        }
    }
    (stream, chosen.iter().map(|&at| replies[at].1).collect())
}
