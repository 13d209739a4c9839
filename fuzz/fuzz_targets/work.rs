//! What a packet costs: requests of any sessions, sequences and floors, of one or two packets, with
//! and without the token, direct and as if routed, of which none makes an R2P2 server or a router
//! do more than 256 steps of work, of some nanoseconds each. `cargo bench -p tailcut-sim --bench
//! packets` times the same.
#![no_main]

#[path = "stage/requests.rs"]
mod requests;

use libfuzzer_sys::fuzz_target;
use tailcut_proto::work;

/// About 2 us.
const STEPS_MAX: u64 = 256;

fuzz_target!(|bytes: &[u8]| {
    requests::play(bytes, &mut |whose, handle| {
        work::take();
        handle();
        let steps = work::take();
        assert!(steps <= STEPS_MAX, "a packet costs the {whose} {steps} steps");
    });
});
