//! Sealed packets: of all the header, which is clear, and given the servers' keys the rest.

use std::net::SocketAddr;

use anyhow::Context as _;
use tailcut_proto::sealed::{Keys, Reader};
use tailcut_wire::homa;
use tailcut_wire::r2p2::sealed::{
    COALESCED_VERSION, HOP_VERSION, RESET_VERSION, SEALED_VERSION, TRAILER_LEN, Trailer, VERSION_AT,
};
use tailcut_wire::r2p2::{EXTENSION_VERSION, MAGIC, Packet};
use zerocopy::FromBytes;

use super::frame::{Carrier, Datagram};

/// A sealed packet, as far as it is read.
pub(super) struct Sealed {
    /// Its line.
    pub(super) line: String,
    /// `None` where it stays sealed.
    pub(super) opened: Option<OpenPacket>,
}

/// A packet as it would have been sent without a seal.
pub(super) struct OpenPacket {
    /// The packet, without the trailer.
    pub(super) bytes: Vec<u8>,
    /// Description of the trailer, for people.
    pub(super) note: String,
}

/// Reader that opens packets, given a server's keys.
pub(super) fn opener(keys: Keys) -> anyhow::Result<Reader> {
    Reader::new(keys).context("only a server's keys open packets")
}

/// Reads a datagram: its sealed packets, of which nearly always there is one. None if it is not
/// sealed, or was not captured whole.
pub(super) fn read(datagram: &Datagram, mut reader: Option<&mut Reader>) -> Vec<Sealed> {
    match read_homa(datagram, reader.as_deref_mut()) {
        Some(sealed) => vec![sealed],
        None => read_r2p2(datagram, reader).unwrap_or_default(),
    }
}

/// A packet of Homa, whose header and trailer are clear.
fn read_homa(datagram: &Datagram, reader: Option<&mut Reader>) -> Option<Sealed> {
    let payload = datagram.payload;
    let is_whole = payload.len() >= datagram.len;
    if is_whole && homa::sealed::is_answer(payload) {
        return read_answer(payload, reader.is_some());
    }
    if !is_whole || !homa::is_hijacked(payload) || !homa::sealed::is_marked(payload) {
        return None;
    }
    let (common, _) = homa::sealed::header(payload)?;
    let (source, target) = match datagram.carrier {
        Carrier::Udp(source, target) => (source, target),
        _ => (common.sport.get(), common.dport.get()),
    };
    let ends = (SocketAddr::new(datagram.from, source), SocketAddr::new(datagram.to, target));
    let open_len = payload.len().checked_sub(TRAILER_LEN)?;
    let (_, trailer) = Trailer::ref_from_suffix(payload).ok()?;
    let mut bytes = payload.to_vec();
    let is_open = reader.is_some_and(|reader| reader.open_homa(ends, &mut bytes));
    bytes.truncate(open_len);
    let packet = homa::Packet::parse(&bytes).ok()?;
    // Of a call back the client is who answers.
    let is_back = payload[homa::sealed::BACK_AT] == 1;
    let by = match packet.is_from_client() != is_back {
        true => format!("by client {}, ", trailer.client()),
        false => String::new(),
    };
    let (state, shown) = match (is_open, packet.body) {
        (true, homa::Body::Data { payload, .. }) => ("opened", quoted(payload)),
        (true, _) => ("opened", String::new()),
        (false, _) => ("sealed", String::new()),
    };
    let epoch = trailer.epoch;
    let line = format!("{packet}, {state}, {by}epoch {epoch}{shown}");
    let note = format!("was sealed, {by}epoch {epoch}");
    Some(Sealed { line, opened: is_open.then_some(OpenPacket { bytes, note }) })
}

/// An answer of a server that has no key, which is clear.
fn read_answer(payload: &[u8], has_keys: bool) -> Option<Sealed> {
    let (open, trailer) = Trailer::ref_from_suffix(payload).ok()?;
    let mut bytes = open.to_vec();
    bytes[homa::sealed::MARK_AT..=homa::sealed::REASON_AT].fill(0);
    let packet = homa::Packet::parse(&bytes).ok()?;
    let note = no_key(trailer);
    let line = format!("{packet}, {note}");
    Some(Sealed { line, opened: has_keys.then_some(OpenPacket { bytes, note }) })
}

/// Description of an answer of a server without the key, for people.
fn no_key(trailer: &Trailer) -> String {
    format!("answers client {}, no key of epoch {}", trailer.client(), trailer.epoch)
}

/// The beginning of a payload, for people.
fn quoted(payload: &[u8]) -> String {
    match payload {
        [] => String::new(),
        payload => format!(": \"{}\"", payload[..payload.len().min(SHOWN_MAX)].escape_ascii()),
    }
}

fn read_r2p2(datagram: &Datagram, reader: Option<&mut Reader>) -> Option<Vec<Sealed>> {
    let Carrier::Udp(source, target) = datagram.carrier else { return None };
    let ends = (SocketAddr::new(datagram.from, source), SocketAddr::new(datagram.to, target));
    let is_whole = datagram.payload.len() >= datagram.len;
    let payload = datagram.payload;
    if !is_whole || payload.first() != Some(&MAGIC) {
        return None;
    }
    let version = *payload.get(VERSION_AT)?;
    let is_coalesced = version == COALESCED_VERSION;
    if !is_coalesced && ![SEALED_VERSION, HOP_VERSION, RESET_VERSION].contains(&version) {
        return None;
    }
    let open_len = payload.len().checked_sub(TRAILER_LEN)?;
    let (_, trailer) = Trailer::ref_from_suffix(payload).ok()?;
    let mut bytes = payload.to_vec();
    let has_keys = reader.is_some();
    let is_open = reader.is_some_and(|reader| reader.open(ends, &mut bytes));
    *bytes.get_mut(VERSION_AT)? = EXTENSION_VERSION;
    let epoch = trailer.epoch;
    if is_coalesced && is_open {
        let packets = Reader::packets(&bytes, true);
        return packets.map(|packet| opened(packet, (epoch, trailer.client()))).collect();
    }
    bytes.truncate(open_len);
    if is_coalesced {
        // Of the others nothing is told.
        bytes.truncate(Packet::first_len(&bytes)?);
    }
    let packet = Packet::parse(&bytes).ok()?;
    if version == RESET_VERSION {
        let note = no_key(trailer);
        let line = format!("{packet}, {note}");
        return Some(vec![Sealed { line, opened: has_keys.then_some(OpenPacket { bytes, note }) }]);
    }
    if version == HOP_VERSION {
        let (sender, receiver) = trailer.names();
        let to = if receiver == 0 { String::new() } else { format!(" to {receiver:016x}") };
        let note = format!("authenticated, epoch {epoch}, from {sender:016x}{to}");
        let line = format!("{packet}, {note}");
        // It is clear, whoever reads it.
        return Some(vec![Sealed { line, opened: has_keys.then_some(OpenPacket { bytes, note }) }]);
    }
    if is_open {
        return Some(vec![opened(&bytes, (epoch, trailer.client()))?]);
    }
    let by = by(&packet, trailer.client());
    let text = packet.to_string();
    // What follows the id of a control packet is read from its payload, which is sealed.
    let shown =
        if packet.is_data() { text } else { text.split(' ').take(4).collect::<Vec<_>>().join(" ") };
    let others = if is_coalesced { " and others" } else { "" };
    let line = format!("{shown}{others}, sealed, {by}epoch {epoch}");
    Some(vec![Sealed { line, opened: None }])
}

/// A packet that has been opened.
fn opened(bytes: &[u8], (epoch, client): (u8, u32)) -> Option<Sealed> {
    let packet = Packet::parse(bytes).ok()?;
    let by = by(&packet, client);
    let line = format!("{packet}, opened, {by}epoch {epoch}{}", quoted(packet.payload));
    let note = format!("was sealed, {by}epoch {epoch}");
    Some(Sealed { line, opened: Some(OpenPacket { bytes: bytes.to_vec(), note }) })
}

/// Client of a packet, in words; empty unless the packet is a client's.
fn by(packet: &Packet, client: u32) -> String {
    packet.request_header().map_or_else(String::new, |_| format!("by client {client}, "))
}

/// Bytes of a payload that are shown.
const SHOWN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const HOMA: &str = include_str!("../../../../conformance/sealed/homa.txt");
    const COALESCED: &str = include_str!("../../../../conformance/sealed/coalesced.txt");
    const RESETS: &str = include_str!("../../../../conformance/sealed/homa-resets.txt");
    const STREAMS: &str = include_str!("../../../../conformance/sealed/streams.txt");

    /// The lines of the packets of a file under its first keys.
    fn lines(text: &str, opens: bool) -> Vec<String> {
        let (keys, packets) = text.split_once('\n').expect("keys, then packets");
        // The second key is of no time that a file can say.
        let keys = keys.strip_prefix("keys ").expect("keys").split('|');
        let keys: Vec<&str> = keys.filter(|line| !line.starts_with("key 8 ")).collect();
        let keys = keys.join("\n");
        let mut reader = opens.then(|| opener(keys.parse().expect("a file")).expect("a server's"));
        let packets = packets.lines().take_while(|line| !line.starts_with("keys "));
        let line_of = |packet: &str| {
            let words: Vec<&str> = packet.split(' ').collect();
            let [from, to] = [0, 1].map(|at| words[at].parse::<SocketAddr>().expect("an address"));
            let digits =
                words[2].as_bytes().chunks(2).map(|two| str::from_utf8(two).expect("ASCII"));
            let bytes: Vec<u8> =
                digits.map(|two| u8::from_str_radix(two, 16).expect("digits")).collect();
            let carrier = Carrier::Udp(from.port(), to.port());
            let (from, to, len) = (from.ip(), to.ip(), bytes.len());
            let datagram = Datagram { from, to, carrier, payload: &bytes, len };
            let sealed = read(&datagram, reader.as_mut());
            assert!(!sealed.is_empty(), "it is sealed");
            sealed.into_iter().map(|sealed| sealed.line)
        };
        packets.flat_map(line_of).collect()
    }

    #[test]
    fn packets_of_homa_are_opened_by_the_servers_keys_and_their_headers_shown_without() {
        let (opened, sealed) = (lines(HOMA, true), lines(HOMA, false));
        assert_eq!(opened.len(), sealed.len());
        let state = |line: &str| line.contains(", opened, ");
        assert!(opened.iter().all(|line| state(line)) && !sealed.iter().any(|line| state(line)));
        assert!(opened[0].starts_with("Homa resend"), "{}", opened[0]);
        assert!(opened[0].ends_with(", opened, by client 17, epoch 7"), "{}", opened[0]);
        assert!(sealed[0].ends_with(", sealed, by client 17, epoch 7"), "{}", sealed[0]);
        assert!(opened.iter().any(|line| line.ends_with(": \"the first\"")), "{opened:#?}");
    }

    #[test]
    fn an_answer_of_who_has_no_key_is_told_with_keys_and_without() {
        for opens in [false, true] {
            let lines = lines(RESETS, opens);
            assert!(lines[1].starts_with("Homa unknown"), "{}", lines[1]);
            assert!(lines[1].ends_with(", answers client 17, no key of epoch 8"), "{}", lines[1]);
        }
    }

    /// All packets of a datagram are told with keys, the header of the first without.
    #[test]
    fn several_packets_of_a_datagram_are_opened_each() {
        let (opened, sealed) = (lines(COALESCED, true), lines(COALESCED, false));
        let of = |lines: &[String], kind: &str, end: &str| {
            lines.iter().filter(|line| line.contains(kind) && line.contains(end)).count()
        };
        assert_eq!(of(&opened, "request", ", opened, by client 17, epoch 7"), 22);
        assert_eq!(of(&opened, "reply", ", opened, epoch 7"), 21);
        let others = " and others, sealed, ";
        assert_eq!((of(&sealed, "request", others), of(&sealed, "reply", others)), (2, 2));
    }

    /// The number of a client is told of what it has sent, also of what answers a call of the
    /// listener.
    #[test]
    fn packets_of_streams_are_opened_whoever_has_begun_their_calls() {
        let (opened, sealed) = (lines(STREAMS, true), lines(STREAMS, false));
        let packets = STREAMS.lines().skip(1).zip(opened.iter().zip(&sealed));
        for (packet, (opened, sealed)) in packets {
            let is_of_client = packet.starts_with("10.0.0.1:");
            assert!(opened.contains(", opened, ") && sealed.contains(", sealed, "), "{opened}");
            for line in [opened, sealed] {
                assert_eq!(line.contains("by client 17, "), is_of_client, "{line}");
            }
        }
    }
}
