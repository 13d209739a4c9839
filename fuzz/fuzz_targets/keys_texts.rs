//! Texts that a key agent and those who ask it read: each is refused, without a secret in the
//! reason, or means something.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        tailcut_net::keys::fuzzed::read_texts(text);
    }
});
