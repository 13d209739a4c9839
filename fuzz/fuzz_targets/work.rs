//! Cost of a packet: requests of any sessions, sequences and floors, of one or two packets, with
//! and without the token, direct and as if routed, of which none makes an R2P2 server or a router
//! do more than 256 steps of work, of some 8 ns each. Fault runs count them for all packets, and
//! `cargo bench -p tailcut-sim --bench packets` times them.
#![no_main]

#[path = "stage/requests.rs"]
mod requests;

use libfuzzer_sys::fuzz_target;
use tailcut_proto::work;

fuzz_target!(|bytes: &[u8]| {
    requests::play(bytes, &mut |whose, handle| {
        work::take();
        handle();
        let steps = work::take();
        assert!(steps <= work::STEPS_MAX, "a packet costs the {whose} {steps} steps");
    });
});
