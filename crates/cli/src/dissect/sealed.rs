//! The lines of sealed packets: of all the header, which is clear, and given the servers' keys the rest.

use std::net::SocketAddr;

use anyhow::Context as _;
use tailcut_proto::sealed::{Keys, Reader};
use tailcut_wire::r2p2::sealed::{HOP_VERSION, SEALED_VERSION, TRAILER_LEN, Trailer, VERSION_AT};
use tailcut_wire::r2p2::{EXTENSION_VERSION, MAGIC, Packet};
use zerocopy::FromBytes;

use super::{Carrier, Datagram};

/// What opens packets, given a server's keys.
pub(super) fn opener(keys: Keys) -> anyhow::Result<Reader> {
    Reader::new(keys).context("only a server's keys open packets")
}

/// The line of a datagram; `None` if it is no sealed packet, or was not captured whole.
pub(super) fn line(datagram: &Datagram, reader: Option<&mut Reader>) -> Option<String> {
    let Carrier::Udp(source, target) = datagram.carrier else { return None };
    let ends = (SocketAddr::new(datagram.from, source), SocketAddr::new(datagram.to, target));
    let is_whole = datagram.payload.len() >= datagram.len;
    let payload = datagram.payload;
    if !is_whole || payload.first() != Some(&MAGIC) {
        return None;
    }
    let version = *payload.get(VERSION_AT)?;
    if version != SEALED_VERSION && version != HOP_VERSION {
        return None;
    }
    let open_len = payload.len().checked_sub(TRAILER_LEN)?;
    let (_, trailer) = Trailer::ref_from_suffix(payload).ok()?;
    let mut bytes = payload.to_vec();
    let is_open = reader.is_some_and(|reader| reader.open(ends, &mut bytes));
    *bytes.get_mut(VERSION_AT)? = EXTENSION_VERSION;
    let packet = Packet::parse(bytes.get(..open_len)?).ok()?;
    let epoch = trailer.epoch;
    if version == HOP_VERSION {
        let (sender, receiver) = trailer.names();
        let to = if receiver == 0 { String::new() } else { format!(" to {receiver:016x}") };
        return Some(format!("{packet}, authenticated, epoch {epoch}, from {sender:016x}{to}"));
    }
    let by = match packet.request_header() {
        Some(_) => format!("by client {}, ", trailer.client()),
        None => String::new(),
    };
    if is_open {
        let payload = match packet.payload {
            [] => String::new(),
            payload => format!(": \"{}\"", payload[..payload.len().min(SHOWN_MAX)].escape_ascii()),
        };
        return Some(format!("{packet}, opened, {by}epoch {epoch}{payload}"));
    }
    let text = packet.to_string();
    // What follows the id of a control packet is read from its payload, which is sealed.
    let shown =
        if packet.is_data() { text } else { text.split(' ').take(4).collect::<Vec<_>>().join(" ") };
    Some(format!("{shown}, sealed, {by}epoch {epoch}"))
}

/// Bytes of a payload that are shown.
const SHOWN_MAX: usize = 32;
