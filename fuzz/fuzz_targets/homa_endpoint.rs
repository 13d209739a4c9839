//! A Homa endpoint that serves, and calls, while anybody sends it anything: it never panics, never sends more than three bytes for
//! each byte of an address that has not proven itself, and lets go of everything in the end.
//!
//! The input is a list of steps: a byte that says what happens, a byte that says to or from whom, a length, and the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailcut_proto::homa::{Config, Endpoint};
use tailcut_proto::node::{Node, Path, TRAIN_BYTES_MAX, Time};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

struct Stage {
    now: Time,
    endpoint: Endpoint,
    buffer: Vec<u8>,
    paid_in: usize,
    paid_out: usize,
    calls: u64,
    ended: u64,
}

impl Stage {
    fn step(&mut self, kind: u8, who: u8, bytes: &[u8]) {
        let peer = ([192, 0, 2, who % 4], 33_000).into();
        match kind % 8 {
            0..=4 => {
                // Half of the datagrams get a coherent beginning, which the fuzzer need not find.
                let mut datagram = bytes.to_vec();
                if kind & 8 != 0 && datagram.len() >= 28 {
                    datagram[11] = 0x10 + datagram[11] % 9;
                    datagram[20..27].fill(0);
                }
                if kind & 16 != 0 && datagram.len() >= 56 {
                    datagram[28..30].fill(0);
                    datagram[52..55].fill(0);
                }
                self.paid_in += datagram.len();
                self.endpoint.handle_datagram(self.now, Path { peer }, &datagram);
            }
            5 => {
                let options = CallOptions { idempotent: kind & 8 != 0, fixed: false, v1: false };
                // Some are longer than a Homa message.
                let payload = if kind & 16 != 0 { vec![7; 1_000_000 + bytes.len()] } else { bytes.to_vec() };
                let deadline = self.now + 50_000_000;
                if self.endpoint.call(self.now, Call { target: peer, payload, deadline, context: 0, options }).is_ok() {
                    self.calls += 1;
                }
            }
            _ => {
                self.now += u64::from(who) * 100_000;
                self.endpoint.handle_timeout(self.now);
            }
        }
        self.settle(kind);
    }

    fn settle(&mut self, kind: u8) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Request { id, payload, .. } if kind & 32 == 0 => {
                    // A reply that is too long is refused by the endpoint itself.
                    let _ = self.endpoint.reply(self.now, id, payload.repeat(4));
                }
                Event::Request { .. } | Event::Cancelled { .. } => {}
                Event::Replied { .. } | Event::Failed { .. } => self.ended += 1,
            }
        }
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut self.buffer) {
            self.paid_out += transmit.len;
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let endpoint = Endpoint::new(0, Config { secret: [3; 16], ..Config::default() });
    let buffer = vec![0; TRAIN_BYTES_MAX];
    let mut stage = Stage { now: 1, endpoint, buffer, paid_in: 0, paid_out: 0, calls: 0, ended: 0 };
    let mut rest = bytes;
    while let [kind, who, len, tail @ ..] = rest {
        let (datagram, next) = tail.split_at(usize::from(*len).min(tail.len()));
        stage.step(*kind, *who, datagram);
        rest = next;
    }
    for _ in 0..200 {
        stage.now += 1_000_000_000;
        stage.endpoint.handle_timeout(stage.now);
        stage.settle(0);
    }
    if stage.calls == 0 {
        assert!(stage.paid_out <= 3 * stage.paid_in, "{} bytes in and {} out", stage.paid_in, stage.paid_out);
    }
    assert_eq!(stage.ended, stage.calls, "every call ends");
    assert_eq!(stage.endpoint.holdings(), Default::default(), "nothing is held for ever");
    assert_eq!(stage.endpoint.poll_timeout(), None, "nothing is waited for");
});
