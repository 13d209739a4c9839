//! The files that are committed and generated from code: the captures of `conformance/pcap` and the
//! seeds of the fuzz targets. The example `write_pcaps` writes them; the test `pcaps` proves that
//! they are fresh.
//!
//! Invariant: no clock and no randomness, so that the same code yields the same bytes.

pub(crate) mod capture;
mod extended;
pub(crate) mod homa;
pub(crate) mod homa_malformed;
pub(crate) mod malformed;
pub(crate) mod netclone;
mod v1;

use capture::{Capture, Form, Protocol};

/// One generated file.
pub(crate) struct File {
    /// Path below the workspace's root.
    pub(crate) path: String,
    /// Its content.
    pub(crate) bytes: Vec<u8>,
}

/// Every capture, in the order of its name.
pub(crate) fn captures() -> Vec<Capture> {
    let r2p2 = |name, form, datagrams| Capture { name, form, protocol: Protocol::R2p2, datagrams };
    let homa = |name, form, datagrams| Capture { name, form, protocol: Protocol::Homa, datagrams };
    let netclone = |name, datagrams| Capture {
        name,
        form: Form::Ethernet,
        protocol: Protocol::NetClone,
        datagrams,
    };
    vec![
        r2p2("extended", Form::RawNanoseconds, extended::datagrams()),
        homa("homa-ip", Form::Ethernet, homa::in_ip()),
        homa("homa-malformed", Form::Ethernet, homa_malformed::datagrams()),
        homa("homa-other-ports", Form::Ethernet, homa_malformed::on_other_ports()),
        homa("homa-tcp", Form::VlanBigEndian, homa::in_tcp()),
        homa("homa-udp", Form::RawNanoseconds, homa::in_udp()),
        r2p2("malformed", Form::VlanBigEndian, malformed::datagrams()),
        netclone("netclone", netclone::datagrams()),
        netclone("netclone-malformed", netclone::malformed()),
        r2p2("other-ports", Form::Ethernet, malformed::on_other_ports()),
        r2p2("v1", Form::Ethernet, v1::datagrams()),
    ]
}

/// Every generated file.
pub(crate) fn files() -> Vec<File> {
    captures()
        .iter()
        .flat_map(|capture| std::iter::once(pcap(capture)).chain(seeds(capture)))
        .collect()
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
    capture
        .datagrams
        .iter()
        .enumerate()
        .filter(|(_, datagram)| datagram.payload.len() <= SEED_LEN_MAX)
        .map(|(index, datagram)| File {
            path: format!("{}/{}-{:02}", seed_folder(capture.protocol), capture.name, index + 1),
            bytes: datagram.payload.clone(),
        })
}

/// Folder of the seeds of the fuzz target of a protocol's packets.
pub(crate) fn seed_folder(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::R2p2 => "fuzz/corpus/r2p2_header",
        Protocol::Homa => "fuzz/corpus/homa_packet",
        Protocol::NetClone => "fuzz/corpus/netclone_packet",
    }
}

const SEED_LEN_MAX: usize = 160;
