//! HTTP/2 and gRPC by their frames, against RFC 9113.

use proptest::prelude::*;

use super::*;
use crate::generator::generator;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const BOTH: u8 = END_STREAM | END_HEADERS;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The frames in `bytes`: kind, flags, stream and payload.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let len = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let stream = u32::from_be_bytes(bytes[5..9].try_into().unwrap());
        frames.push((bytes[3], bytes[4], stream, bytes[9..9 + len].to_vec()));
        bytes = &bytes[9 + len..];
    }
    frames
}

/// A client's end, and what it has written.
struct Client {
    conversation: Conversation,
    requests: Requests,
    out: Vec<u8>,
}

impl Client {
    /// Its handshake is over once it has these SETTINGS.
    fn new(text: &str, settings: &[u8]) -> Self {
        let app = app(text);
        let setting = Setting { carrier: Carrier::Stream, authority: "target:80", is_tls: false };
        let requests = Requests::new(&app, setting, generator(1, 0)).unwrap();
        let mut client = Self { conversation: Conversation::new(&app), requests, out: Vec::new() };
        client.conversation.begin(None, &mut client.out);
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert!(client.out.starts_with(preface));
        let first = frames(&client.out[preface.len()..]);
        assert_eq!((first[0].0, first[1].0), (SETTINGS, WINDOW));
        assert!(first[0].3.starts_with(&[0, 1, 0, 0, 0, 0]), "no dynamic table");
        client.out.clear();
        assert!(!client.conversation.is_ready() && !client.conversation.has_room());
        assert_eq!(client.take(&frame(SETTINGS, 0, 0, settings)), Ok(vec![]));
        assert!(client.conversation.is_ready());
        assert_eq!(client.written(), [(SETTINGS, ACK, 0, vec![])]);
        client
    }

    fn ask(&mut self) -> u64 {
        assert!(self.conversation.has_room());
        let Self { conversation, requests, out } = self;
        conversation.write(out, &mut |out| requests.write(out))
    }

    fn ask_often(&mut self, count: usize) {
        for _ in 0..count {
            self.ask();
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<Vec<(u64, Outcome, After)>, Malformed> {
        let mut found = Vec::new();
        self.take_into(bytes, &mut found)?;
        Ok(found)
    }

    fn take_into(
        &mut self,
        mut bytes: &[u8],
        found: &mut Vec<(u64, Outcome, After)>,
    ) -> Result<(), Malformed> {
        while let Some(answer) = self.conversation.take(&mut bytes, &mut self.out)? {
            found.push((answer.number, answer.reply.outcome, answer.reply.after));
        }
        assert!(bytes.is_empty());
        Ok(())
    }

    /// The frames that it has written since the last time.
    fn written(&mut self) -> Vec<(u8, u8, u32, Vec<u8>)> {
        frames(&std::mem::take(&mut self.out))
    }
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

fn ok(number: u64) -> (u64, Outcome, After) {
    (number, OK, After::Keep)
}

#[test]
fn a_request_is_a_stream_of_its_own() {
    let mut client = Client::new("http2:POST:/a,header=X-Y: z,body=hi", &[]);
    assert_eq!((client.ask(), client.ask()), (0, 1));
    let written = client.written();
    // POST and http of the static table; path, authority and length by their names there.
    let head = b"\x83\x86\x04\x02/a\x01\x09target:80\x00\x03x-y\x01z\x0f\x0d\x012";
    assert_eq!(written[0], (HEADERS, END_HEADERS, 1, head.to_vec()));
    assert_eq!(written[1], (DATA, END_STREAM, 1, b"hi".to_vec()));
    assert_eq!((written[2].2, written[3].2), (3, 3));
    let mut client = Client::new("http2:HEAD:/", &[]);
    client.ask();
    assert_eq!(client.written()[0].1, BOTH);
}

#[test]
fn streams_are_answered_in_any_order() {
    let mut client = Client::new("http2", &[]);
    (0..3).for_each(|number| assert_eq!(client.ask(), number));
    let whole = [
        frame(HEADERS, END_HEADERS, 5, b"\x88"),
        frame(HEADERS, BOTH, 3, b"\x8d"),
        frame(PING, 0, 0, b"12345678"),
        frame(99, 0, 1, b"an extension"),
        frame(DATA, 0, 5, b"hello"),
        frame(HEADERS, BOTH, 1, b"\x88"),
        frame(DATA, END_STREAM, 5, b""),
    ];
    client.written();
    let found = client.take(&whole.concat()).unwrap();
    assert_eq!(found, [(1, REFUSED, After::Keep), ok(0), ok(2)]);
    assert_eq!(client.written(), [(PING, ACK, 0, b"12345678".to_vec())]);
    // What is answered already is passed over.
    assert_eq!(client.take(&frame(DATA, END_STREAM, 5, b"x")), Ok(vec![]));
}

#[test]
fn heads_come_in_pieces_with_padding_and_after_others() {
    let mut client = Client::new("http2", &[]);
    client.ask();
    // 103, then a padded head with a priority in two frames, a body, and trailers.
    let early = frame(HEADERS, END_HEADERS, 1, b"\x08\x03103");
    let head = frame(HEADERS, 0x28, 1, b"\x02\0\0\0\0\x10\x08\x03200\0\0");
    let rest = frame(CONTINUATION, END_HEADERS, 1, b"\x00\x01a\x01b");
    let body = frame(DATA, 0x8, 1, b"\x03hello\0\0\0");
    let trailers = frame(HEADERS, BOTH, 1, b"\x00\x01t\x01v");
    assert_eq!(client.take(&[early, head, rest, body, trailers].concat()), Ok(vec![ok(0)]));
}

#[test]
fn bodies_wait_for_windows() {
    let text = format!("http2:POST:/,body={}", "x".repeat(30));
    let mut client = Client::new(&text, &setting(4, 10));
    client.ask();
    client.ask();
    let sent = |written: Vec<(u8, u8, u32, Vec<u8>)>| -> Vec<(u32, usize, u8)> {
        let data = written.into_iter().filter(|frame| frame.0 == DATA);
        data.map(|(_, flags, stream, payload)| (stream, payload.len(), flags)).collect()
    };
    assert_eq!(sent(client.written()), [(1, 10, 0), (3, 10, 0)]);
    client.take(&frame(WINDOW, 0, 3, &20u32.to_be_bytes())).unwrap();
    assert_eq!(sent(client.written()), [(3, 20, END_STREAM)]);
    // The first setting counts for what has been sent already too.
    client.take(&frame(SETTINGS, 0, 0, &setting(4, 15))).unwrap();
    assert_eq!(sent(client.written()), [(1, 5, 0)]);
    client.take(&frame(SETTINGS, 0, 0, &setting(4, 5))).unwrap();
    client.take(&frame(WINDOW, 0, 1, &12u32.to_be_bytes())).unwrap();
    assert_eq!(sent(client.written()), [(1, 2, 0)]);
    // An answer that does not wait for the request ends it.
    assert_eq!(client.take(&frame(HEADERS, BOTH, 1, b"\x8d")), Ok(vec![(0, REFUSED, After::Keep)]));
    assert_eq!(client.written(), [(RESET, 0, 1, vec![0, 0, 0, 8])]);
    let mut client = Client::new("http2:POST:/,body=x", &setting(4, 0));
    client.ask();
    assert_eq!(client.take(&frame(WINDOW, 0, 1, &0x7fff_ffffu32.to_be_bytes())), Ok(vec![]));
    let mut client = Client::new("http2:POST:/,body=x", &[]);
    assert!(client.take(&frame(WINDOW, 0, 0, &0x7fff_ffffu32.to_be_bytes())).is_err());
}

#[test]
fn the_connection_has_a_window_of_its_own() {
    let text = format!("http2:POST:/,data={}", "x".repeat(40_000));
    let mut client = Client::new(&text, &setting(4, 1 << 20));
    client.ask();
    client.ask();
    let len = |written: Vec<(u8, u8, u32, Vec<u8>)>| -> usize {
        let data = written.into_iter().filter(|frame| frame.0 == DATA);
        data.map(|frame| frame.3.len()).inspect(|&len| assert!(len <= 16_384)).sum()
    };
    assert_eq!(len(client.written()), 65_535);
    client.take(&frame(WINDOW, 0, 0, &100_000u32.to_be_bytes())).unwrap();
    assert_eq!(len(client.written()), 80_000 - 65_535);
}

#[test]
fn a_server_says_how_many_streams_it_takes() {
    let mut client = Client::new("http2", &setting(3, 2));
    client.ask();
    client.ask();
    assert!(!client.conversation.has_room());
    client.take(&frame(HEADERS, BOTH, 3, b"\x88")).unwrap();
    assert!(client.conversation.has_room());
}

#[test]
fn streams_that_are_cancelled_or_reset_end() {
    let mut client = Client::new("http2", &[]);
    client.ask_often(4);
    client.written();
    assert!(client.conversation.cancel(1, &mut client.out));
    assert!(client.conversation.cancel(1, &mut client.out));
    assert_eq!(client.written(), [(RESET, 0, 3, vec![0, 0, 0, 8])]);
    assert_eq!(client.take(&frame(HEADERS, BOTH, 3, b"\x88")), Ok(vec![]));
    let busy = (2, Outcome::Error(ErrorKind::Busy), After::Keep);
    assert_eq!(client.take(&frame(RESET, 0, 5, &[0, 0, 0, 7])), Ok(vec![busy]));
    assert_eq!(client.conversation.error_code().text(), "REFUSED_STREAM");
}

#[test]
fn a_server_that_goes_away_answers_what_it_has_taken() {
    let mut client = Client::new("http2", &[]);
    client.ask_often(3);
    let goaway = frame(GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]);
    let busy = Outcome::Error(ErrorKind::Busy);
    assert_eq!(client.take(&goaway), Ok(vec![(2, busy, After::Keep)]));
    assert_eq!(client.conversation.error_code().text(), "GOAWAY");
    assert!(!client.conversation.has_room());
    assert_eq!(client.take(&frame(HEADERS, BOTH, 3, b"\x88")), Ok(vec![ok(1)]));
    let last = client.take(&frame(HEADERS, BOTH, 1, b"\x88"));
    assert_eq!(last, Ok(vec![(0, OK, After::Close)]));
}

/// No reply says that it is over, where none is to come.
#[test]
fn a_connection_is_spent_when_its_server_has_gone_away_and_owes_nothing() {
    let goaway = frame(GOAWAY, 0, 0, &[0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0]);
    let mut idle = Client::new("http2", &[]);
    assert!(!idle.conversation.is_spent());
    assert_eq!(idle.take(&goaway), Ok(vec![]));
    assert!(idle.conversation.is_spent());
    let mut given_up = Client::new("http2", &[]);
    given_up.ask_often(2);
    assert_eq!(given_up.take(&goaway), Ok(vec![]));
    let mut cancel = |number| {
        assert!(given_up.conversation.cancel(number, &mut given_up.out));
        given_up.conversation.is_spent()
    };
    assert_eq!([cancel(0), cancel(1)], [false, true]);
}

#[test]
fn what_is_no_http_2_ends_the_connection() {
    let long = vec![0; 16_385];
    for bytes in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        frame(SETTINGS, ACK, 0, b""),
        frame(SETTINGS, 0, 0, b"12345"),
        frame(SETTINGS, 0, 0, &setting(4, 1 << 31)),
        frame(SETTINGS, 0, 0, &setting(5, 100)),
        frame(PING, 0, 0, b"12345678"),
    ] {
        let mut conversation = Conversation::new(&app("http2"));
        let mut out = Vec::new();
        conversation.begin(None, &mut out);
        assert!(conversation.take(&mut &bytes[..], &mut out).is_err(), "{bytes:x?}");
        assert!(conversation.take(&mut &b""[..], &mut out).is_err(), "it stays so");
    }
    for bytes in [
        frame(HEADERS, BOTH, 0, b"\x88"),
        frame(HEADERS, BOTH, 2, b"\x88"),
        frame(HEADERS, BOTH, 3, b"\x88"),
        frame(HEADERS, BOTH, 1, b"\xbe"),
        frame(HEADERS, BOTH, 1, b""),
        frame(HEADERS, BOTH | 8, 1, b"\x05\x88"),
        [frame(HEADERS, 0, 1, b"\x88"), frame(PING, 0, 0, b"12345678")].concat(),
        frame(CONTINUATION, END_HEADERS, 1, b"\x88"),
        frame(PUSH, END_HEADERS, 1, b"\0\0\0\x02\x82"),
        frame(RESET, 0, 1, b"123"),
        frame(PING, 0, 0, b"1234567"),
        frame(PING, 0, 1, b"12345678"),
        frame(GOAWAY, 0, 0, b"1234567"),
        frame(WINDOW, 0, 9, &[0, 0, 0, 1]),
        frame(DATA, 0, 1, &long),
    ] {
        let mut client = Client::new("http2", &[]);
        client.ask();
        assert!(client.take(&bytes).is_err(), "{bytes:x?}");
    }
    let mut client = Client::new("http2", &[]);
    client.ask();
    let mut block = frame(HEADERS, 0, 1, &[0; 16_000]);
    (0..4).for_each(|_| block.extend(frame(CONTINUATION, 0, 1, &[0; 16_000])));
    assert_eq!(client.take(&block), Err(Malformed::TooLong("headers")));
}

#[test]
fn a_call_of_grpc_is_judged_by_its_status() {
    let mut client = Client::new("grpc:echo.Echo/Say,hex=0a026869,header=A: b", &[]);
    client.ask();
    let written = client.written();
    let head = b"\x83\x86\x04\x0e/echo.Echo/Say\x01\x09target:80\x00\x02te\x08trailers\x0f\x10\x10application/grpc\x00\x01a\x01b";
    assert_eq!(written[0], (HEADERS, END_HEADERS, 1, head.to_vec()));
    assert_eq!(written[1].3, b"\0\0\0\0\x04\x0a\x02hi");
    let head = frame(HEADERS, END_HEADERS, 1, b"\x88");
    let body = frame(DATA, 0, 1, b"\0\0\0\0\x02ok");
    let trailers = frame(HEADERS, BOTH, 1, b"\x40\x0bgrpc-status\x010");
    assert_eq!(client.take(&[head, body, trailers].concat()), Ok(vec![ok(0)]));
    for (block, kind, code) in [
        (&b"\x88\x00\x0bgrpc-status\x0212"[..], ErrorKind::Refused, "grpc-12"),
        (b"\x88\x00\x0bgrpc-status\x0216", ErrorKind::Unauthorised, "grpc-16"),
        (b"\x88\x00\x0bgrpc-status\x0214", ErrorKind::Busy, "grpc-14"),
        (b"\x88\x00\x0bgrpc-status\x0213", ErrorKind::Failed, "grpc-13"),
        (b"\x88", ErrorKind::Refused, "200"),
        (b"\x8d", ErrorKind::Refused, "404"),
        (b"\x08\x03503", ErrorKind::Busy, "503"),
    ] {
        let mut client = Client::new("grpc:/echo.Echo/Say", &[]);
        client.ask();
        let found = client.take(&frame(HEADERS, BOTH, 1, block)).unwrap();
        assert_eq!(found, [(0, Outcome::Error(kind), After::Keep)], "{code}");
        assert_eq!(client.conversation.error_code().text(), code);
    }
}

/// The messages of a stream leave one behind the other, and those that come are one reply, which
/// its status ends.
#[test]
fn streams_of_grpc_are_sent_and_taken_whole() {
    let mut client = Client::new("grpc:echo.Echo/Chat,hex=0a,count=3", &[]);
    client.ask();
    let written = client.written();
    assert_eq!(written[1], (DATA, END_STREAM, 1, b"\0\0\0\0\x01\x0a".repeat(3)));
    let head = frame(HEADERS, END_HEADERS, 1, b"\x88");
    let message = frame(DATA, 0, 1, b"\0\0\0\0\x02ok");
    let messages = [head, message.clone(), message.clone(), message].concat();
    assert_eq!(client.take(&messages), Ok(vec![]));
    let trailers = frame(HEADERS, BOTH, 1, b"\x40\x0bgrpc-status\x010");
    assert_eq!(client.take(&trailers), Ok(vec![ok(0)]));
}

/// Each message leaves when one of the reply has come whole, in whatever frames, and the last one
/// ends the request.
#[test]
fn a_conversation_of_grpc_takes_turns() {
    let mut client = Client::new("grpc:echo.Echo/Talk,hex=0a,turns=4", &[]);
    client.ask();
    let message = b"\0\0\0\0\x01\x0a".to_vec();
    let next = |client: &mut Client, flags| {
        assert_eq!(client.written(), [(DATA, flags, 1, message.clone())]);
    };
    client.out.drain(..9 + usize::from(client.out[2]));
    next(&mut client, 0);
    // The head lets nothing go, nor does a message that is not whole, or another stream's.
    client.take(&frame(HEADERS, END_HEADERS, 1, b"\x88")).unwrap();
    client.take(&frame(DATA, 0, 1, b"\0\0\0\0\x02o")).unwrap();
    assert_eq!(client.written(), []);
    client.take(&frame(DATA, 8, 1, b"\x03k\0\0\0")).unwrap();
    next(&mut client, 0);
    // Of two at once the second lets another go at once, as far as there is one.
    client.take(&frame(DATA, 0, 1, &b"\0\0\0\0\0".repeat(2))).unwrap();
    next_two(&mut client, &message);
    client.take(&frame(DATA, 0, 1, b"\0\0\0\0\0")).unwrap();
    assert_eq!(client.written(), []);
    let trailers = frame(HEADERS, BOTH, 1, b"\x40\x0bgrpc-status\x010");
    assert_eq!(client.take(&trailers), Ok(vec![ok(0)]));
    assert!(client.take(&frame(DATA, 0, 3, b"\0")).is_err());
}

/// Two messages in one frame or in two, the last of which ends the request.
fn next_two(client: &mut Client, message: &[u8]) {
    let written = client.written();
    let sent: Vec<u8> = written.iter().flat_map(|frame| frame.3.clone()).collect();
    assert_eq!(sent, message.repeat(2));
    assert_eq!(written.last().map(|frame| frame.1), Some(END_STREAM));
}

/// A server that has heard enough ends the call, and one that breaks off is told apart from it.
#[test]
fn a_conversation_may_end_before_its_last_turn() {
    for (status, outcome) in [(b"0", OK), (b"8", Outcome::Error(ErrorKind::Busy))] {
        let mut client = Client::new("grpc:echo.Echo/Talk,hex=0a,turns=3", &[]);
        client.ask();
        client.written();
        let block = [&b"\x88\x00\x0bgrpc-status\x01"[..], status].concat();
        let found = client.take(&frame(HEADERS, BOTH, 1, &block));
        assert_eq!(found, Ok(vec![(0, outcome, After::Keep)]));
        assert_eq!(client.written(), [(RESET, 0, 1, vec![0, 0, 0, 8])]);
    }
    let mut client = Client::new("grpc:echo.Echo/Talk,hex=0a,turns=3", &[]);
    client.ask();
    assert!(client.take(&frame(DATA, 8, 1, b"\x09short")).is_err(), "padding beyond the frame");
}

#[test]
fn warm_conversations_do_not_allocate() {
    let mut client = Client::new("grpc:echo.Echo/Talk,hex=0a,turns=3", &[]);
    let mut talk = |number: u32| {
        let stream = 2 * number + 1;
        client.ask();
        let [a, b, c, d] = stream.to_be_bytes();
        let message = [0, 0, 5, DATA, 0, a, b, c, d, 0, 0, 0, 0, 0];
        let end = [0, 0, 1, HEADERS, BOTH, a, b, c, d, 0x88];
        for mut part in [&message[..], &message, &message, &end] {
            while client.conversation.take(&mut part, &mut client.out).unwrap().is_some() {}
        }
        client.out.clear();
    };
    talk(0);
    let counted = allocation_counter::measure(|| (1..100).for_each(&mut talk));
    assert_eq!(counted.count_total, 0);
}

#[test]
fn warm_streams_do_not_allocate() {
    let mut client = Client::new("http2:POST:/,body=hello", &[]);
    let turn = |client: &mut Client| {
        client.ask_often(8);
        client.out.clear();
    };
    turn(&mut client);
    let mut number = 0u32;
    let mut bytes = Vec::with_capacity(1_000);
    let mut answer = |client: &mut Client| {
        bytes.clear();
        for _ in 0..8 {
            let [a, b, c, d] = (2 * number + 1).to_be_bytes();
            bytes.extend_from_slice(&[0, 0, 1, HEADERS, END_HEADERS, a, b, c, d, 0x88]);
            bytes.extend_from_slice(&[0, 0, 2, DATA, END_STREAM, a, b, c, d, b'h', b'i']);
            number += 1;
        }
        for part in bytes.chunks(7) {
            let mut part = part;
            while client.conversation.take(&mut part, &mut client.out).unwrap().is_some() {}
        }
    };
    answer(&mut client);
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            turn(&mut client);
            answer(&mut client);
        }
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn it_is_spoken_over_streams_alone() {
    for text in ["http2", "grpc:a.B/C"] {
        for carrier in [Carrier::Datagram, Carrier::Message] {
            let setting = Setting { carrier, authority: "", is_tls: false };
            let error = Requests::new(&app(text), setting, generator(1, 0)).unwrap_err();
            assert!(error.to_string().contains("over"), "{error}");
        }
        assert_eq!(app(text).alpn(), Some("h2"));
    }
}

#[test]
fn a_session_has_no_framer() {
    let mut replies = Replies::new(&app("grpc:a.B/C"));
    assert!(replies.take(&mut &b"x"[..], Some(due(0))).is_err());
}

proptest! {
    /// However garbage and answers are cut, the same is found in them, and nothing panics.
    #[test]
    fn frames_read_the_same_however_they_are_cut(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cuts in prop::collection::vec(1usize..40, 1..20),
    ) {
        let mut bytes = [
            frame(HEADERS, END_HEADERS, 1, b"\x88\x00\x01a\x01b"),
            frame(HEADERS, 0, 5, b"\x88"),
            frame(CONTINUATION, END_HEADERS, 5, b"\x00\x01a\x01b"),
            frame(DATA, END_STREAM, 5, b"hello"),
            frame(SETTINGS, 0, 0, &setting(4, 100)),
            frame(WINDOW, 0, 0, &[0, 0, 1, 0]),
            frame(GOAWAY, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 2]),
            frame(RESET, 0, 3, &[0, 0, 0, 1]),
            frame(DATA, END_STREAM, 1, b"hello"),
        ].concat();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let found = |parts: Vec<&[u8]>| {
            let mut client = Client::new("http2:POST:/,body=hello", &setting(4, 3));
            client.ask_often(4);
            let mut found = Vec::new();
            let ended = parts.into_iter().find_map(|part| client.take_into(part, &mut found).err());
            ((found, ended), client.out)
        };
        let whole = found(bytes.chunks(1).collect());
        prop_assert_eq!(&found(fragments::cut(&bytes, &cuts)), &whole);
    }
}
