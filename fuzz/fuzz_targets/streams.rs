//! Streams while peers send anything and answer anything, and the application does whatever it may:
//! they never panic, hold no more than their windows, say nothing to an address that has not shown
//! that it hears, and release everything in the end.
//!
//! The input is a list of steps: a byte that says what happens, a byte that says to or from whom, a
//! length, and the bytes.
#![no_main]

#[expect(dead_code, reason = "the tests of proto ask it for more")]
#[path = "../../crates/proto/tests/it/stream_support/mod.rs"]
mod support;

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use support::Fake;
use tailcut_proto::node::{Node, Time};
use tailcut_proto::rpc::{Call, CallId, DropReason, Failure};
use tailcut_proto::stream::{Config, Holdings, StreamId, Streams};
use tailcut_wire::stream::{MAGIC, MESSAGE_LEN, Message, MessageKind, Reply, Status};

struct Stage {
    now: Time,
    streams: Streams<Fake>,
    fake: Fake,
    config: Config,
    ids: Vec<StreamId>,
    /// Calls that have not ended.
    calls: Vec<(CallId, Call)>,
    /// By peer: the number that it was last told, and whether it has told one back, or was asked
    /// first.
    told: [u64; PEERS],
    is_known: [bool; PEERS],
}

impl Stage {
    fn new() -> Self {
        let config = Config {
            secret: [3; 16],
            message_len_max: 50,
            window_max: 200,
            window_min: 60,
            windows_bytes_max: 1000,
            streams_max: 8,
            streams_per_peer_max: 4,
            half_open_max: 3,
            backlog_max: 2,
            messages_max: 20,
            ..Config::default()
        };
        let fake = Fake::default();
        let streams = Streams::new(fake.clone(), config.clone());
        let (ids, calls) = (Vec::new(), Vec::new());
        Self {
            now: 1,
            streams,
            fake,
            config,
            ids,
            calls,
            told: [0; PEERS],
            is_known: [false; PEERS],
        }
    }

    fn step(&mut self, kind: u8, who: u8, bytes: &[u8]) {
        let place = usize::from(who) % PEERS;
        match kind % 8 {
            0..=2 => self.hear(kind, place, bytes),
            3 => self.end_call(kind, who, bytes),
            4 => {
                self.is_known[place] = true;
                self.ids.extend(self.streams.connect(self.now, peer(place)));
            }
            5 | 6 => self.act(kind, who, bytes),
            _ => self.now += u64::from(who) * 100_000_000,
        }
        self.settle();
    }

    fn hear(&mut self, kind: u8, place: usize, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        // Most messages get a coherent beginning, and the number that was told, which the fuzzer
        // cannot find.
        if kind & 8 != 0 && bytes.len() >= MESSAGE_LEN {
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
            bytes[4] = 1 + bytes[4] % 4;
            bytes[8..15].fill(0);
            bytes[15] = 1 + bytes[15] % 3;
            let told = if bytes[4] == MessageKind::Open as u8 { 0 } else { self.told[place] };
            bytes[16..24].copy_from_slice(&told.to_be_bytes());
            bytes[24..31].fill(0);
            bytes[32..39].fill(0);
        }
        let message =
            Message::parse(&bytes).map(|message| (message.kind, message.header.acceptor.get()));
        self.fake.request(peer(place), bytes);
        self.streams.handle_timeout(self.now);
        let answer = self.fake.next_answer().expect("every request is answered at once");
        assert!(self.fake.next_answer().is_none(), "and once");
        match (message, answer) {
            (Ok((kind, acceptor)), Ok(bytes)) => {
                let reply = Reply::parse(&bytes).expect("a reply");
                if kind != MessageKind::Open {
                    self.is_known[place] |= acceptor == self.told[place];
                } else if reply.status == Status::Taken {
                    self.told[place] = reply.acceptor;
                }
            }
            (Err(_), Err(_)) => {}
            (message, answer) => panic!("{message:?} is answered with {answer:?}"),
        }
    }

    fn end_call(&mut self, kind: u8, who: u8, bytes: &[u8]) {
        if self.calls.is_empty() {
            return;
        }
        let call = self.calls.swap_remove(usize::from(who) % self.calls.len());
        let mut bytes = bytes.to_vec();
        if kind & 8 != 0 && bytes.len() >= 24 {
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
            bytes[4] %= 3;
            bytes[16..23].fill(0);
        }
        let failures =
            [Failure::Deadline, Failure::Unreachable, Failure::Refused(DropReason::Overload)];
        let result = if kind & 16 != 0 { Err(failures[usize::from(who) % 3]) } else { Ok(bytes) };
        self.fake.end(&call, result);
    }

    fn act(&mut self, kind: u8, who: u8, bytes: &[u8]) {
        self.ids.extend(self.streams.accept().map(|(id, _)| id));
        if self.ids.is_empty() {
            return;
        }
        let place = usize::from(who) % self.ids.len();
        let id = self.ids[place];
        // Whatever a call says, it says without harm.
        match kind >> 3 {
            0..10 => drop(self.streams.write(id, bytes)),
            10..20 => drop(self.streams.read(id, &mut bytes.to_vec())),
            20..24 => drop(self.streams.finish(id)),
            24..28 => self.streams.close(self.now, id),
            _ => self.streams.reset(self.now, id),
        }
        if self.streams.status(id).is_none() {
            self.ids.swap_remove(place);
        }
    }

    fn settle(&mut self) {
        self.streams.handle_timeout(self.now);
        assert!(self.streams.poll_transmit(self.now, &mut []).is_none());
        while self.streams.poll_changed().is_some() {}
        while let Some(call) = self.fake.next_call() {
            Message::parse(&call.1.payload).expect("what is sent is coherent");
            let place = (0..PEERS).find(|&place| peer(place) == call.1.target).expect("a peer");
            assert!(self.is_known[place], "nothing is sent to who has not shown that it hears");
            self.calls.push(call);
        }
        self.calls.retain(|(id, _)| !self.fake.is_cancelled(*id));
        let held = self.streams.holdings();
        let half_open_bytes = self.config.half_open_max * self.config.window_min;
        assert!(held.windows_bytes <= self.config.windows_bytes_max, "{held:?}");
        assert!(
            held.buffered_bytes <= 2 * self.config.windows_bytes_max + half_open_bytes,
            "{held:?}"
        );
        assert!(
            held.messages == self.calls.len() && held.messages <= self.config.messages_max,
            "{held:?}"
        );
        assert!(held.streams - held.half_open <= self.config.streams_max, "{held:?}");
    }
}

fn peer(place: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, place as u8], 33_000))
}

const PEERS: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let mut stage = Stage::new();
    let mut rest = bytes;
    while let [kind, who, len, tail @ ..] = rest {
        let (message, next) = tail.split_at(usize::from(*len).min(tail.len()));
        stage.step(*kind, *who, message);
        rest = next;
    }
    while let Some((id, _)) = stage.streams.accept() {
        stage.ids.push(id);
    }
    for id in std::mem::take(&mut stage.ids) {
        stage.streams.close(stage.now, id);
    }
    for _ in 0..100 {
        stage.settle();
        for call in std::mem::take(&mut stage.calls) {
            stage.fake.end(&call, Err(Failure::Unreachable));
        }
        stage.now += 1_000_000_000;
        stage.streams.handle_timeout(stage.now);
    }
    assert_eq!(stage.streams.holdings(), Holdings::default(), "nothing is held for ever");
    assert_eq!(stage.streams.poll_timeout(), None, "nothing is waited for");
});
