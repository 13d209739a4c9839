//! The files that are committed and generated from code: the captures of `conformance/pcap` and the seeds of the fuzz
//! target. The example `write_pcaps` writes them; the test `pcaps` proves that they are fresh.
//!
//! Invariant: no clock and no randomness, so that the same code yields the same bytes.

pub(crate) mod capture;
mod extended;
pub(crate) mod malformed;
mod v1;

use capture::{Capture, Form};

/// One generated file.
pub(crate) struct File {
    /// Path below the workspace's root.
    pub(crate) path: String,
    /// Its content.
    pub(crate) bytes: Vec<u8>,
}

/// Every capture, in the order of its name.
pub(crate) fn captures() -> Vec<Capture> {
    vec![
        Capture { name: "extended", form: Form::RawNanoseconds, datagrams: extended::datagrams() },
        Capture { name: "malformed", form: Form::VlanBigEndian, datagrams: malformed::datagrams() },
        Capture { name: "other-ports", form: Form::Ethernet, datagrams: malformed::on_other_ports() },
        Capture { name: "v1", form: Form::Ethernet, datagrams: v1::datagrams() },
    ]
}

/// Every generated file.
pub(crate) fn files() -> Vec<File> {
    captures().iter().flat_map(|capture| std::iter::once(pcap(capture)).chain(seeds(capture))).collect()
}

/// The bytes that `text` spells, whatever stands between the digits.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|char| char.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// `len` bytes of a message from `offset` on: a pattern that shows a packet in the wrong place.
pub(crate) fn message(offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len).map(|position| (position % 251) as u8).collect()
}

fn pcap(capture: &Capture) -> File {
    File { path: format!("conformance/pcap/{}.pcap", capture.name), bytes: capture.to_bytes() }
}

/// The short datagrams of a capture; the long ones would teach a fuzzer nothing but their length.
fn seeds(capture: &Capture) -> impl Iterator<Item = File> {
    capture.datagrams.iter().enumerate().filter(|(_, datagram)| datagram.payload.len() <= SEED_LEN_MAX).map(
        |(index, datagram)| File {
            path: format!("{SEED_FOLDER}/{}-{:02}", capture.name, index + 1),
            bytes: datagram.payload.clone(),
        },
    )
}

/// Where the seeds of the packet fuzz target are.
pub(crate) const SEED_FOLDER: &str = "fuzz/corpus/r2p2_header";

const SEED_LEN_MAX: usize = 160;
