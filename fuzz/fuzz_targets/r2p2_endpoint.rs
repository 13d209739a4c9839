//! An endpoint that serves, and calls, while anybody sends it anything: it never panics, never sends more than three bytes for
//! each byte of an address that has not proven itself, and lets go of everything in the end.
//!
//! The input is a list of steps: a byte that says what happens, a byte that says to or from whom, a length, and the bytes.
#![no_main]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use tailcut_proto::node::{Node, Path, TRAIN_BYTES_MAX, Time};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

struct Stage {
    now: Time,
    endpoint: Endpoint,
    buffer: Vec<u8>,
    /// Bytes in and out, by address.
    paid: BTreeMap<SocketAddr, (u64, u64)>,
    calls: u64,
    ended: u64,
}

impl Stage {
    fn step(&mut self, kind: u8, who: u8, bytes: &[u8]) {
        let peer = SocketAddr::from(([10, 0, 0, who % 4], 33_000));
        match kind % 8 {
            0..=4 => {
                // Half of the datagrams get a coherent beginning, which the fuzzer need not find.
                let mut datagram = bytes.to_vec();
                if kind & 8 != 0 && datagram.len() >= 22 {
                    datagram[0] = 0xcc;
                    datagram[21] = 1;
                }
                self.paid.entry(peer).or_default().0 += datagram.len() as u64;
                self.endpoint.handle_datagram(self.now, Path { peer }, &datagram);
            }
            5 => {
                let options = CallOptions { idempotent: kind & 8 != 0, fixed: false, v1: kind & 16 != 0 };
                let (payload, deadline) = (bytes.to_vec(), self.now + 50_000_000);
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
                    // A reply that may not be sent is refused by the endpoint itself.
                    let _ = self.endpoint.reply(self.now, id, payload.repeat(4));
                }
                Event::Request { .. } | Event::Cancelled { .. } => {}
                Event::Replied { .. } | Event::Failed { .. } => self.ended += 1,
            }
        }
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut self.buffer) {
            self.paid.entry(transmit.to).or_default().1 += transmit.len as u64;
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let endpoint = Endpoint::new(0, Config { secret: [3; 16], ..Config::default() });
    let (buffer, paid) = (vec![0; TRAIN_BYTES_MAX], BTreeMap::new());
    let mut stage = Stage { now: 1, endpoint, buffer, paid, calls: 0, ended: 0 };
    let mut rest = bytes;
    while let [kind, who, len, tail @ ..] = rest {
        let (datagram, next) = tail.split_at(usize::from(*len).min(tail.len()));
        stage.step(*kind, *who, datagram);
        rest = next;
    }
    // A router may name another address than its own, so that only the sums must agree.
    if stage.calls == 0 {
        let (paid_in, paid_out) = stage.paid.values().fold((0, 0), |sum, paid| (sum.0 + paid.0, sum.1 + paid.1));
        assert!(paid_out <= 3 * paid_in, "{paid_in} bytes in and {paid_out} out");
    }
    stage.now += 120_000_000_000;
    stage.endpoint.handle_timeout(stage.now);
    stage.settle(0);
    assert_eq!(stage.ended, stage.calls, "every call ends");
    assert_eq!(stage.endpoint.poll_timeout(), None, "nothing is held for ever");
});
