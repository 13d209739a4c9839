//! An endpoint that serves, and calls, while anybody sends it anything.
//!
//! The input is a list of steps: a byte that says what happens, a byte that says to or from whom, a
//! length, and the bytes.

use std::net::SocketAddr;

use tailcut_proto::node::{GSO_BYTES_MAX, Time};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};
use tailcut_proto::work;

/// Functions that are a protocol's own.
pub struct Manner {
    /// Gives a datagram a coherent beginning, as the bits of its step's first byte say; the fuzzer
    /// need not find it.
    pub adorn: fn(u8, &mut [u8]),
    /// Call that a step's first byte and its bytes make.
    pub call: fn(u8, &[u8]) -> (Vec<u8>, CallOptions),
}

/// Plays `input`, waits for longer than any endpoint holds anything, and gives the endpoint back.
///
/// # Panics
///
/// When a packet costs more than [`STEPS_MAX`] steps of work, when the endpoint sends more than
/// three bytes for each that it got of addresses that are not validated, when a call does not end,
/// or when the endpoint still waits for something in the end.
pub fn play<E: Rpc>(endpoint: E, manner: &Manner, input: &[u8]) -> E {
    let mut stage = Stage {
        now: 1,
        endpoint,
        buffer: vec![0; GSO_BYTES_MAX],
        paid_in: 0,
        paid_out: 0,
        calls: 0,
        ended: 0,
    };
    let mut rest = input;
    while let [kind, who, len, tail @ ..] = rest {
        let (bytes, next) = tail.split_at(usize::from(*len).min(tail.len()));
        stage.step(manner, (*kind, *who), bytes);
        rest = next;
    }
    for _ in 0..END_S {
        stage.now += 1_000_000_000;
        stage.endpoint.handle_timeout(stage.now);
        stage.settle(0);
    }
    if stage.calls == 0 {
        // The sums, for a router may name another address than its own.
        assert!(
            stage.paid_out <= 3 * stage.paid_in,
            "{} bytes in and {} out",
            stage.paid_in,
            stage.paid_out
        );
    }
    assert_eq!(stage.ended, stage.calls, "every call ends");
    assert_eq!(stage.endpoint.poll_timeout(), None, "nothing is waited for");
    stage.endpoint
}

struct Stage<E> {
    now: Time,
    endpoint: E,
    buffer: Vec<u8>,
    paid_in: usize,
    paid_out: usize,
    calls: u64,
    ended: u64,
}

impl<E: Rpc> Stage<E> {
    fn step(&mut self, manner: &Manner, (kind, who): (u8, u8), bytes: &[u8]) {
        let peer: SocketAddr = ([192, 0, 2, who % 4], 33_000).into();
        match kind % 8 {
            0..=4 => {
                let mut datagram = bytes.to_vec();
                (manner.adorn)(kind, &mut datagram);
                self.paid_in += datagram.len();
                work::take();
                self.endpoint.handle_datagram(self.now, peer.into(), &mut datagram);
                let steps = work::take();
                assert!(steps <= STEPS_MAX, "a packet costs {steps} steps");
            }
            5 => {
                let (payload, options) = (manner.call)(kind, bytes);
                let deadline = self.now + 50_000_000;
                if self
                    .endpoint
                    .call(self.now, Call { target: peer, payload, deadline, context: 0, options })
                    .is_ok()
                {
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
            self.paid_out += transmit.len;
        }
    }
}

/// Steps of work that one packet may cost: of some nanoseconds each, about 2 us.
const STEPS_MAX: u64 = 256;

/// So long after the last step all must be released, s.
const END_S: u32 = 200;
