//! An R2P2 endpoint in the face of anything: it never panics, never sends more than three bytes for
//! each byte of an address that has not been validated, and releases everything in the end.
#![no_main]

mod stage;

use libfuzzer_sys::fuzz_target;
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::CallOptions;

const MANNER: stage::Manner = stage::Manner {
    adorn: |kind, datagram| {
        if kind & 8 != 0 && datagram.len() >= 22 {
            datagram[0] = 0xcc;
            datagram[21] = 1;
        }
    },
    call: |kind, bytes| {
        (
            bytes.to_vec(),
            CallOptions { idempotent: kind & 8 != 0, fixed: false, v1: kind & 16 != 0 },
        )
    },
};

fuzz_target!(|bytes: &[u8]| {
    stage::play(Endpoint::new(0, Config { secret: [3; 16], ..Config::default() }), &MANNER, bytes);
});
