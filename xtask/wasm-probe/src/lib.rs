//! Links wire, proto and measure into one WebAssembly module, whose imports `cargo xtask wasm` lists.
//!
//! Only what an exported function reaches is linked, so [`probe`] walks through the entrances of the three crates.

use tailcut_measure as _;
use tailcut_proto::node::Transmit;
use tailcut_wire::r2p2::Packet;

/// Parses a packet made of the seed, and answers it. The result depends on every call, so that none is optimized away.
#[unsafe(no_mangle)]
pub extern "C" fn probe(seed: u64) -> u64 {
    let bytes: Vec<u8> = seed.to_le_bytes().repeat(9);
    let text = match Packet::parse(&bytes) {
        Ok(packet) => packet.to_string(),
        Err(malformed) => format!("{malformed:?}"),
    };
    let transmit = Transmit::single(([127, 0, 0, 1], 9000).into(), text.len());
    transmit.datagram_count() as u64 + transmit.len as u64
}
