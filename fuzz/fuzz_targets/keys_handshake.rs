//! The handshake with a key agent, which someone on the way changes, or which a stranger makes up:
//! whatever it is, the client gets its own keys or none, and a stranger nothing.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tailcut_net::keys::fuzzed::Exchanges;

static EXCHANGES: LazyLock<Exchanges> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("tailcut-fuzz-{}", std::process::id()));
    let exchanges = Exchanges::new(&path).expect("files");
    exchanges.exchange(&[]).expect("what nobody changes succeeds");
    exchanges
});

fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        Some((0, said)) => assert!(EXCHANGES.say(said).is_err()),
        // Either is fine: some bytes mean nothing.
        Some((_, changes)) => drop(EXCHANGES.exchange(changes)),
        None => {}
    }
});
