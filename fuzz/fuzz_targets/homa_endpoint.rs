//! A Homa endpoint in the face of anything: it never panics, never sends more than three bytes for
//! each byte of an address that has not been validated, and releases everything in the end.
#![no_main]

mod stage;

use libfuzzer_sys::fuzz_target;
use tailcut_proto::homa::{Config, Endpoint};
use tailcut_proto::rpc::CallOptions;

const MANNER: stage::Manner = stage::Manner {
    adorn: |kind, datagram| {
        if kind & 8 != 0 && datagram.len() >= 28 {
            datagram[11] = 0x10 + datagram[11] % 9;
            datagram[20..27].fill(0);
        }
        if kind & 16 != 0 && datagram.len() >= 56 {
            datagram[28..30].fill(0);
            datagram[52..55].fill(0);
        }
    },
    call: |kind, bytes| {
        let options = CallOptions { idempotent: kind & 8 != 0, fixed: false, v1: false };
        // Some are longer than a Homa message.
        (if kind & 16 != 0 { vec![7; 1_000_000 + bytes.len()] } else { bytes.to_vec() }, options)
    },
};

fuzz_target!(|bytes: &[u8]| {
    let endpoint = stage::play(
        Endpoint::new(0, Config { secret: [3; 16], ..Config::default() }),
        &MANNER,
        bytes,
    );
    assert_eq!(endpoint.holdings(), Default::default(), "nothing is held for ever");
});
