//! `tailcut dissect`: one line for each UDP datagram and each Homa packet of a capture, as R2P2,
//! Homa or NetClone, or why it is not.
//!
//! | step | what it takes |
//! |---|---|
//! | records | classic pcap (both byte orders, microseconds and nanoseconds) and pcapng, streamed |
//! | link | Ethernet with VLAN tags, raw IP, Linux cooked (v1, v2), BSD loopback |
//! | network | IPv4, IPv6 with extension headers; a fragment is counted, not put together |
//! | transport | UDP; Homa as IP protocol 146, and in the disguise of TCP |
//! | R2P2, Homa, NetClone | their `Packet::parse`; the line is its `Display`, or the reason for refusing it |
//!
//! A UDP datagram is Homa's when it is to or from Homa's port, or when it is a coherent packet of
//! Homa with the flags and the urgent pointer that are on all of them; any other is taken for R2P2,
//! unless it is to or from one of NetClone's ports and does not begin as R2P2 does.
//!
//! A datagram that the kernel cuts into segments behind the capture point (UDP GSO) is captured
//! whole and shows as `not R2P2: Length`: capture at the receiver, or with segmentation offload
//! disabled.
//!
//! A comment on a record of pcapng, such as `--trace` writes, stands behind the packet, or alone
//! where the record has none.
//!
//! Invariant: no file makes this panic or hold more than [`RECORD_LEN_MAX`] of it in memory.

mod frame;
mod opened;
mod sealed;

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, bail};
use etherparse::LaxSlicedPacket;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{
    Block, EnhancedPacketBlock, IDB_MAGIC, Linktype, OptionCode, PcapBlockOwned, PcapError,
    create_reader,
};
use tailcut_net::pcapng::PacketRecord;
use tailcut_proto::sealed::{Keys, Reader};
use tailcut_wire::{homa, netclone, r2p2};

use self::frame::{Carrier, Datagram, Skip, datagram, slice};
use self::opened::Opened;
use self::sealed::{OpenPacket, Sealed};

/// Prints every UDP datagram and every Homa packet of the capture at `path` to `out`: when, counted
/// from the first packet; from where to where; what.
/// With a server's keys sealed packets are opened, and written to the file that `opened` names.
pub(crate) fn run(
    path: &Path,
    keys: Option<Keys>,
    opened: Option<&Path>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let opener = keys.map(sealed::opener).transpose()?;
    let file = File::open(path).with_context(|| {
        format!("cannot open the capture {}: give the path of a file", path.display())
    })?;
    let is_file = file.metadata().is_ok_and(|metadata| !metadata.is_dir());
    if !is_file {
        bail!("{} is a directory: give one capture file in it", path.display());
    }
    let opened = opened.map(|opened| Opened::create(opened, path)).transpose()?;
    let mut out = BufWriter::new(out);
    let result = dissect(file, Session { opener, opened, ..Session::default() }, &mut out)
        .with_context(|| format!("cannot read the capture {}", path.display()));
    out.flush().context("cannot write the packets")?;
    result
}

/// State of the capture as far as it has been read.
#[derive(Default)]
struct Session {
    /// Interfaces of the current section, in the order of their descriptions; a classic capture has
    /// one.
    interfaces: Vec<Interface>,
    /// Time of the first record that has one, in nanoseconds.
    start_ns: Option<i128>,
    skipped: Skipped,
    /// Opens sealed packets.
    opener: Option<Reader>,
    /// The copy in which they are open.
    opened: Option<Opened>,
}

/// Interface that records come from.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// `if_tsresol` of pcapng: a negative power of 10, or of 2 with the highest bit set.
    resolution: u8,
    /// Seconds to add to every time.
    offset_s: i64,
    /// Its number in the copy, where there is one.
    copied: u32,
}

/// A record that may hold a frame.
struct Record<'a> {
    link: Linktype,
    /// The number of its interface in the copy.
    interface: u32,
    /// Bytes that it had on the wire.
    wire_len: u32,
    /// Nanoseconds, where it has a time.
    at_ns: Option<i128>,
    frame: &'a [u8],
    /// Printable; empty for none.
    comment: Cow<'a, str>,
}

impl<'a> Record<'a> {
    /// A record of an interface, as it was captured of `wire_len` bytes.
    fn new(interface: Interface, at_ns: Option<i128>, (frame, wire_len): (&'a [u8], u32)) -> Self {
        let (link, interface, comment) = (interface.link, interface.copied, Cow::Borrowed(""));
        Self { link, interface, wire_len, at_ns, frame, comment }
    }
}

/// Frames without a line of their own.
#[derive(Default)]
struct Skipped {
    /// Frames of a link type that this does not read, or shorter than a link or an IP header.
    unreadable: u64,
    /// ARP, TCP and whatever else there is.
    foreign: u64,
    /// Fragments of a UDP datagram or Homa packet.
    fragments: u64,
}

fn dissect(
    input: impl Read + Send,
    mut session: Session,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut reader = match create_reader(BUFFER_LEN, input) {
        Ok(reader) => reader,
        Err(PcapError::Eof) => {
            bail!("it is empty: was the capture stopped before its first packet?")
        }
        Err(PcapError::ReadError) => bail!("reading failed: check the file and its disk"),
        Err(_) => {
            bail!("it is not a capture: give a pcap or pcapng file, such as `tcpdump -w` writes")
        }
    };
    let mut buffer_len = BUFFER_LEN;
    loop {
        let error = match reader.next() {
            Ok((len, block)) => {
                session.handle_block(block, out)?;
                reader.consume(len);
                continue;
            }
            Err(PcapError::Eof) => break,
            Err(error) => error.to_owned_vec(),
        };
        let consumed = reader.consumed();
        match error {
            PcapError::Incomplete(_) | PcapError::BufferTooSmall => {
                refill(&mut *reader, &mut buffer_len)?
            }
            PcapError::UnexpectedEof => {
                bail!(
                    "it ends in the middle of the record at byte {consumed}; all packets before it are printed"
                )
            }
            _ => {
                bail!("the record at byte {consumed} is damaged; all packets before it are printed")
            }
        }
    }
    session.skipped.write(out)?;
    if let Some(opened) = session.opened {
        writeln!(out, "{}", opened.finish()?).context("cannot write the packets")?;
    }
    Ok(())
}

/// Reads more, into a larger buffer where a record fills this one.
fn refill(reader: &mut dyn PcapReaderIterator, buffer_len: &mut usize) -> anyhow::Result<()> {
    if reader.data().len() == *buffer_len {
        if *buffer_len >= RECORD_LEN_MAX {
            bail!(
                "the record at byte {} is longer than {RECORD_LEN_MAX} bytes: the file is damaged",
                reader.consumed()
            );
        }
        *buffer_len *= 2;
        reader.grow(*buffer_len);
    }
    if reader.refill().is_err() {
        bail!("reading failed at byte {}: check the file and its disk", reader.consumed());
    }
    Ok(())
}

impl Session {
    fn handle_block(&mut self, block: PcapBlockOwned, out: &mut impl Write) -> anyhow::Result<()> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let resolution = if header.is_nanosecond_precision() { 9 } else { 6 };
                self.interfaces.clear();
                self.add_interface(header.network, resolution, 0)?;
            }
            PcapBlockOwned::Legacy(record) => {
                let Some(&interface) = self.interfaces.first() else { return Ok(()) };
                let unit_ns = if interface.resolution == 9 { 1 } else { 1000 };
                let at_ns =
                    i128::from(record.ts_sec) * NS_PER_S + i128::from(record.ts_usec) * unit_ns;
                let captured = (record.data, record.origlen);
                self.handle_record(&Record::new(interface, Some(at_ns), captured), out)?;
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => self.interfaces.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                // The library reads it as little-endian in every section.
                let offset_s = match interface.block_type {
                    IDB_MAGIC => interface.if_tsoffset,
                    _ => interface.if_tsoffset.swap_bytes(),
                };
                self.add_interface(interface.linktype, interface.if_tsresol, offset_s)?;
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(record)) => {
                match self.interfaces.get(record.if_id as usize) {
                    Some(&interface) => {
                        let at_ns = interface
                            .time_ns(u64::from(record.ts_high) << 32 | u64::from(record.ts_low));
                        let captured = (record.packet_data(), record.origlen);
                        let frame = Record::new(interface, at_ns, captured);
                        let comment = comment(&record).into();
                        self.handle_record(&Record { comment, ..frame }, out)?;
                    }
                    None => self.skipped.unreadable += 1,
                }
            }
            PcapBlockOwned::NG(Block::SimplePacket(record)) => match self.interfaces.first() {
                Some(&interface) => {
                    let captured = (record.packet_data(), record.origlen);
                    self.handle_record(&Record::new(interface, None, captured), out)?
                }
                None => self.skipped.unreadable += 1,
            },
            PcapBlockOwned::NG(_) => {}
        }
        Ok(())
    }

    fn add_interface(
        &mut self,
        link: Linktype,
        resolution: u8,
        offset_s: i64,
    ) -> anyhow::Result<()> {
        let copied = match &mut self.opened {
            Some(opened) => opened.interface(link)?,
            None => 0,
        };
        self.interfaces.push(Interface { link, resolution, offset_s, copied });
        Ok(())
    }

    fn handle_record(&mut self, record: &Record, out: &mut impl Write) -> anyhow::Result<()> {
        if self.start_ns.is_none() {
            self.start_ns = record.at_ns;
        }
        let since_ns = record.at_ns.zip(self.start_ns).map(|(at_ns, start_ns)| at_ns - start_ns);
        let comment = &record.comment;
        if record.frame.is_empty() && !comment.is_empty() {
            write_time(out, since_ns).context("cannot write the packets")?;
            writeln!(out, " # {comment}").context("cannot write the packets")?;
            return self.copy(record, (record.frame, comment));
        }
        let found = slice(record.link, record.frame);
        match found.as_ref().map_err(|&skip| skip).and_then(datagram) {
            Ok(datagram) => {
                let sealed = sealed::read(&datagram, self.opener.as_mut());
                let mark = if comment.is_empty() { "" } else { " # " };
                let mut write = |sealed: Option<&Sealed>| {
                    write_time(out, since_ns)
                        .and_then(|()| write_datagram(out, &datagram, sealed))
                        .and_then(|()| writeln!(out, "{mark}{comment}"))
                        .context("cannot write the packets")
                };
                if let (Ok(packet), false) = (&found, sealed.is_empty()) {
                    for sealed in sealed {
                        write(Some(&sealed))?;
                        self.copy_sealed(record, (packet, datagram.payload), sealed)?;
                    }
                    return Ok(());
                }
                write(None)?;
            }
            Err(Skip::Unreadable) => self.skipped.unreadable += 1,
            Err(Skip::Foreign) => self.skipped.foreign += 1,
            Err(Skip::Fragment) => self.skipped.fragments += 1,
        }
        self.copy(record, (record.frame, comment))
    }

    /// Writes the record of a sealed packet, which is or was in `payload`, into the copy, where
    /// there is one: open if it could be opened.
    fn copy_sealed(
        &mut self,
        record: &Record,
        (packet, payload): (&LaxSlicedPacket<'_>, &[u8]),
        sealed: Sealed,
    ) -> anyhow::Result<()> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        let comment = &record.comment;
        opened.note(sealed.opened.is_some());
        let Some(OpenPacket { bytes, note }) = sealed.opened else {
            return self.copy(record, (record.frame, comment));
        };
        let frame = opened::rewritten(record.frame, packet, (payload, &bytes));
        let mark = if comment.is_empty() { "" } else { "; " };
        let wire_len = frame.len() as u32;
        let copied = Record { wire_len, comment: Cow::Borrowed(""), ..*record };
        self.copy(&copied, (&frame, &format!("{note}{mark}{comment}")))
    }

    /// Writes a record into the copy, where there is one.
    fn copy(&mut self, record: &Record, (frame, comment): (&[u8], &str)) -> anyhow::Result<()> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        let (interface, wire_len) = (record.interface, record.wire_len);
        opened.record(record.at_ns, PacketRecord { interface, at_ns: 0, frame, wire_len, comment })
    }
}

impl Interface {
    /// Nanoseconds of a pcapng time; `None` where the resolution is nonsense.
    fn time_ns(self, units: u64) -> Option<i128> {
        let units = i128::from(units);
        let exponent = u32::from(self.resolution & 0x7f);
        let since_offset_ns = if self.resolution & 0x80 != 0 {
            (units * NS_PER_S) >> exponent
        } else if exponent <= 9 {
            units * 10i128.pow(9 - exponent)
        } else {
            units / 10i128.checked_pow(exponent - 9)?
        };
        Some(since_offset_ns + i128::from(self.offset_s) * NS_PER_S)
    }
}

impl Skipped {
    fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let counts = [
            (self.foreign, "neither UDP nor Homa"),
            (self.fragments, "IP fragments: capture where they are whole"),
            (
                self.unreadable,
                "of a link type that is not read, or cut before their UDP or Homa header",
            ),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "{count} frames left out: {what}").context("cannot write the packets")?;
        }
        Ok(())
    }
}

/// A packet's comments, on one line.
fn comment(record: &EnhancedPacketBlock) -> String {
    let comments = record.options.iter().filter(|option| option.code == OptionCode::Comment);
    let texts: Vec<&str> = comments.filter_map(|option| option.as_str().ok()).collect();
    // A file must not steer the terminal.
    texts.join("; ").replace(char::is_control, " ")
}

fn write_time(out: &mut impl Write, since_ns: Option<i128>) -> std::io::Result<()> {
    match since_ns {
        Some(ns) => {
            let sign = if ns < 0 { "-" } else { "" };
            let (seconds, fraction) =
                (ns.unsigned_abs() / NS_PER_S as u128, ns.unsigned_abs() % NS_PER_S as u128);
            write!(out, "{sign}{seconds}.{fraction:09}")
        }
        None => write!(out, "-"),
    }
}

fn write_datagram(
    out: &mut impl Write,
    datagram: &Datagram,
    sealed: Option<&Sealed>,
) -> std::io::Result<()> {
    let (from, to) = (datagram.from, datagram.to);
    match datagram.carrier {
        Carrier::Udp(source, target) => {
            write!(out, " {} > {}: ", SocketAddr::new(from, source), SocketAddr::new(to, target))?
        }
        Carrier::Homa => write!(out, " {from} > {to}: ")?,
        Carrier::HijackedTcp => write!(out, " {from} > {to} as TCP: ")?,
    }
    if let Some(Sealed { line, .. }) = sealed {
        return write!(out, "{line}");
    }
    let captured = datagram.payload.len();
    if captured >= datagram.len {
        return write_packet(out, datagram, datagram.payload);
    }
    // Where the whole header is there, what is missing is contents, which are not shown.
    if header_len(datagram).is_some_and(|len| len <= captured) {
        let mut whole = datagram.payload.to_vec();
        whole.resize(datagram.len, 0);
        write_packet(out, datagram, &whole)?;
        write!(out, "; ")?;
    }
    write!(out, "cut by the capture to {captured} of {} B", datagram.len)
}

/// Writes the line of a datagram, whose bytes these are or would be.
fn write_packet(out: &mut impl Write, datagram: &Datagram, bytes: &[u8]) -> std::io::Result<()> {
    if is_homa(datagram) {
        return match homa::Packet::parse(bytes) {
            Ok(packet) => write!(out, "{packet}"),
            Err(reason) => write!(out, "not Homa: {reason:?}"),
        };
    }
    let line = match netclone_port(datagram) {
        Some(netclone::PORT) => netclone::Packet::parse(bytes).map(|it| it.to_string()),
        Some(_) => netclone::Plain::parse(bytes).map(|it| it.to_string()),
        None => return write_r2p2(out, bytes),
    };
    match line {
        Ok(line) => write!(out, "{line}"),
        Err(reason) => write!(out, "not NetClone: {reason:?}"),
    }
}

fn write_r2p2(out: &mut impl Write, payload: &[u8]) -> std::io::Result<()> {
    match r2p2::Packet::parse(payload) {
        Ok(packet) => write!(out, "{packet}"),

        Err(reason) => write!(out, "not R2P2: {reason:?}"),
    }
}

/// Bytes of the header of a packet that was cut, as far as they can be told: all of it where it is
/// a control packet of Homa.
fn header_len(datagram: &Datagram) -> Option<usize> {
    if is_homa(datagram) {
        let is_data = *datagram.payload.get(HOMA_TYPE_AT)? == homa::PacketType::Data as u8;
        return Some(if is_data { homa::DATA_LEN } else { datagram.len });
    }
    if netclone_port(datagram).is_some() {
        return Some(netclone::HEADER_LEN);
    }
    datagram.payload.get(1).copied().map(usize::from)
}

/// The port of NetClone's that a datagram is for or from, the destination first as a switch looks;
/// R2P2 on such a port is known by its first byte.
fn netclone_port(datagram: &Datagram) -> Option<u16> {
    let Carrier::Udp(source, target) = datagram.carrier else { return None };
    let is_its = |port: &u16| [netclone::PORT, netclone::PLAIN_PORT].contains(port);
    let port = [target, source].into_iter().find(is_its);
    port.filter(|_| datagram.payload.first() != Some(&r2p2::MAGIC))
}

fn is_homa(datagram: &Datagram) -> bool {
    match datagram.carrier {
        Carrier::Udp(homa::UDP_PORT, _)
        | Carrier::Udp(_, homa::UDP_PORT)
        | Carrier::Homa
        | Carrier::HijackedTcp => true,
        Carrier::Udp(..) => {
            homa::is_hijacked(datagram.payload) && homa::Packet::parse(datagram.payload).is_ok()
        }
    }
}

/// Longest record that is read; captures have at most 256 KiB a packet.
const RECORD_LEN_MAX: usize = 16 << 20;
const BUFFER_LEN: usize = 64 << 10;
const NS_PER_S: i128 = 1_000_000_000;
/// Offset of the type in a Homa packet.
const HOMA_TYPE_AT: usize = 11;
#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::frame::*;
    use super::*;

    const REQUEST: [u8; 8] = [0xcc, 0x08, 0x00, 0xc0, 0x00, 0x01, 0x00, 0x01];
    const LINE: &str =
        "0.000000000 10.0.0.1:33000 > 10.0.0.2:8000: R2P2 request rid 1 0/1, length 0\n";

    fn printed(capture: &[u8]) -> (String, anyhow::Result<()>) {
        let mut out = Vec::new();
        let result = dissect(capture, Session::default(), &mut out);
        (String::from_utf8(out).unwrap(), result)
    }

    fn check(capture: &[u8], expected: &str) {
        let (text, result) = printed(capture);
        result.unwrap();
        assert_eq!(text, expected);
    }

    fn check_error(capture: &[u8], expected: &str) {
        let error = printed(capture).1.unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }

    fn conformance(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/pcap").join(name)
    }

    fn snapshot(name: &str) {
        let mut out = Vec::new();
        run(&conformance(&format!("{name}.pcap")), None, None, &mut out).unwrap();
        insta::assert_snapshot!(name, String::from_utf8(out).unwrap());
    }

    fn udp(payload: &[u8]) -> Vec<u8> {
        let mut udp = vec![0x80, 0xe8, 0x1f, 0x40, 0, 8 + payload.len() as u8, 0, 0];
        udp.extend(payload);
        udp
    }

    fn ipv4(protocol: u8, fragment: [u8; 2], payload: &[u8]) -> Vec<u8> {
        let [high, low] = (20 + payload.len() as u16).to_be_bytes();
        let mut ip = vec![
            0x45,
            0,
            high,
            low,
            0,
            1,
            fragment[0],
            fragment[1],
            64,
            protocol,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ];
        ip.extend(payload);
        ip
    }

    fn request() -> Vec<u8> {
        ipv4(17, [0x40, 0], &udp(&REQUEST))
    }

    /// A little-endian classic capture in microseconds.
    fn pcap(link: i32, frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
        file.extend(link.to_le_bytes());
        for frame in frames {
            for word in [1_000, 250, frame.len() as u32, frame.len() as u32] {
                file.extend(word.to_le_bytes());
            }
            file.extend(frame);
        }
        file
    }

    /// A pcapng block of either byte order.
    fn block(kind: u32, body: &[u8], is_big: bool) -> Vec<u8> {
        let padded_len = body.len().next_multiple_of(4);
        let mut block = [word(kind, is_big), word(12 + padded_len as u32, is_big)].concat();
        block.extend(body);
        block.resize(8 + padded_len, 0);
        block.extend(word(12 + padded_len as u32, is_big));
        block
    }

    fn word(word: u32, is_big: bool) -> [u8; 4] {
        if is_big { word.to_be_bytes() } else { word.to_le_bytes() }
    }

    fn half(half: u16, is_big: bool) -> [u8; 2] {
        if is_big { half.to_be_bytes() } else { half.to_le_bytes() }
    }

    fn section(is_big: bool) -> Vec<u8> {
        let body = [&word(0x1a2b_3c4d, is_big)[..], &half(1, is_big), &half(0, is_big), &[0xff; 8]]
            .concat();
        block(0x0a0d_0d0a, &body, is_big)
    }

    /// A raw IP interface; `resolution` as in `if_tsresol`, `offset_s` as in `if_tsoffset`.
    fn interface(resolution: u8, offset_s: i64, is_big: bool) -> Vec<u8> {
        let offset = if is_big { offset_s.to_be_bytes() } else { offset_s.to_le_bytes() };
        let mut body = [half(101, is_big), half(0, is_big)].concat();
        body.extend(word(0, is_big));
        body.extend([half(9, is_big), half(1, is_big)].concat());
        body.extend([resolution, 0, 0, 0]);
        body.extend([half(14, is_big), half(8, is_big)].concat());
        body.extend(offset);
        body.extend([0; 4]);
        block(1, &body, is_big)
    }

    fn enhanced(interface: u32, units: u64, frame: &[u8], is_big: bool) -> Vec<u8> {
        let len = frame.len() as u32;
        let words = [interface, (units >> 32) as u32, units as u32, len, len];
        let mut body: Vec<u8> = words.iter().flat_map(|&each| word(each, is_big)).collect();
        body.extend(frame);
        block(6, &body, is_big)
    }

    #[test]
    fn version_1_capture() {
        snapshot("v1");
    }

    #[test]
    fn extended_capture() {
        snapshot("extended");
    }

    #[test]
    fn malformed_capture() {
        snapshot("malformed");
    }

    #[test]
    fn capture_of_other_ports() {
        snapshot("other-ports");
    }

    #[test]
    fn capture_of_homa_in_ip() {
        snapshot("homa-ip");
    }

    #[test]
    fn capture_of_homa_in_udp() {
        snapshot("homa-udp");
    }

    #[test]
    fn capture_of_homa_as_tcp() {
        snapshot("homa-tcp");
    }

    #[test]
    fn capture_of_malformed_homa() {
        snapshot("homa-malformed");
    }

    #[test]
    fn capture_of_homa_on_other_ports() {
        snapshot("homa-other-ports");
    }

    #[test]
    fn capture_of_netclone() {
        snapshot("netclone");
    }

    #[test]
    fn capture_of_malformed_netclone() {
        snapshot("netclone-malformed");
    }

    #[test]
    fn every_link_type_leads_to_the_same_datagram() {
        let ethernet = [&[2; 12][..], &[8, 0]].concat();
        let vlan = [&[2; 12][..], &[0x81, 0, 0, 7, 8, 0]].concat();
        let double_vlan = [&[2; 12][..], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0]].concat();
        let cooked = [&[0; 14][..], &[8, 0]].concat();
        let cooked_2 = [&[8, 0][..], &[0; 18]].concat();
        let forms: [(i32, &[u8]); 13] = [
            (LINK_ETHERNET, &ethernet),
            (LINK_ETHERNET, &vlan),
            (LINK_ETHERNET, &double_vlan),
            (LINK_COOKED, &cooked),
            (LINK_COOKED_2, &cooked_2),
            (LINK_NULL, &[2, 0, 0, 0]),
            (LINK_NULL, &[0, 0, 0, 2]),
            (LINK_LOOP, &[0, 0, 0, 2]),
            (LINK_RAW, &[]),
            (LINK_RAW_BSD, &[]),
            (LINK_RAW_OPENBSD, &[]),
            (LINK_IPV4, &[]),
            (LINK_IPV6, &[]),
        ];
        for (link, header) in forms {
            check(&pcap(link, &[[header, &request()].concat()]), LINE);
        }
    }

    #[test]
    fn options_and_extension_headers_are_stepped_over() {
        let udp = udp(&REQUEST);
        let with_option = [
            &[0x46, 0, 0, 40, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0],
            &udp[..],
        ]
        .concat();
        check(&pcap(LINK_RAW, &[with_option]), LINE);
        let mut ipv6 = vec![0x60, 0, 0, 0, 0, 24, 60, 64];
        ipv6.extend([0; 15].iter().chain(&[1]).chain(&[0; 15]).chain(&[2]));
        ipv6.extend([17, 0, 1, 4, 0, 0, 0, 0]);
        ipv6.extend(&udp);
        check(
            &pcap(LINK_RAW, &[ipv6]),
            "0.000000000 [::1]:33000 > [::2]:8000: R2P2 request rid 1 0/1, length 0\n",
        );
    }

    #[test]
    fn padding_of_a_frame_is_not_payload() {
        let frame = [&[2; 12][..], &[8, 0], &request(), &[0; 10]].concat();
        check(&pcap(LINK_ETHERNET, &[frame]), LINE);
    }

    #[test]
    fn frames_without_a_datagram_are_counted() {
        let arp = [&[2; 12][..], &[8, 6], &[0; 28]].concat();
        let ethernet = |ip: Vec<u8>| [&[2; 12][..], &[8, 0], &ip].concat();
        let frames = [
            arp,
            ethernet(ipv4(6, [0x40, 0], &[0; 20])),
            ethernet(ipv4(17, [0x20, 0], &udp(&REQUEST))),
            ethernet(ipv4(17, [0x00, 1], &REQUEST)),
            vec![2; 5],
            ethernet(request()[..10].to_vec()),
            ethernet(request()[..24].to_vec()),
        ];
        let expected = "2 frames left out: neither UDP nor Homa\n\
            2 frames left out: IP fragments: capture where they are whole\n\
            3 frames left out: of a link type that is not read, or cut before their UDP or Homa header\n";
        check(&pcap(LINK_ETHERNET, &frames), expected);
        check(
            &pcap(9999, &frames[..1]),
            "1 frames left out: of a link type that is not read, or cut before their UDP or Homa header\n",
        );
    }

    #[test]
    fn datagram_that_the_capture_cut_is_not_judged() {
        let frame = request()[..32].to_vec();
        check(
            &pcap(LINK_RAW, &[frame]),
            "0.000000000 10.0.0.1:33000 > 10.0.0.2:8000: cut by the capture to 4 of 8 B\n",
        );
    }

    #[test]
    fn packets_whose_contents_the_capture_cut_are_told() {
        let whole = ipv4(17, [0x40, 0], &udp(&[&REQUEST[..], &[7; 100]].concat()));
        let text = printed(&pcap(LINK_RAW, &[whole.clone(), whole[..60].to_vec()])).0;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("{}; cut by the capture to 32 of 108 B", lines[0]));
        assert!(lines[0].contains("R2P2 request rid 1 0/1, length 100"), "{text}");

        // DATA of RPC 2, all of a message of 100 bytes.
        let mut data = [0; 156];
        (data[11], data[12], data[27], data[31]) = (homa::PacketType::Data as u8, 14 << 4, 2, 100);
        let whole = ipv4(146, [0x40, 0], &data);
        let text = printed(&pcap(LINK_RAW, &[whole.clone(), whole[..80].to_vec()])).0;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("{}; cut by the capture to 60 of 156 B", lines[0]));
        assert!(!lines[0].contains("not Homa"), "{text}");
    }

    #[test]
    fn homa_packet_that_the_capture_cut_is_not_judged() {
        let frame = ipv4(146, [0x40, 0], &[0; 80])[..60].to_vec();
        check(
            &pcap(LINK_RAW, &[frame]),
            "0.000000000 10.0.0.1 > 10.0.0.2: cut by the capture to 40 of 80 B\n",
        );
        let mut ipv6 = vec![0x60, 0, 0, 0, 0, 88, 60, 64];
        ipv6.extend([0; 15].iter().chain(&[1]).chain(&[0; 15]).chain(&[2]));
        ipv6.extend([146, 0, 1, 4, 0, 0, 0, 0]);
        ipv6.extend([0; 30]);
        check(
            &pcap(LINK_RAW, &[ipv6]),
            "0.000000000 ::1 > ::2: cut by the capture to 30 of 80 B\n",
        );
    }

    #[test]
    fn fragments_of_a_homa_packet_are_counted() {
        let expected = "1 frames left out: IP fragments: capture where they are whole\n";
        check(&pcap(LINK_RAW, &[ipv4(146, [0x20, 0], &[0; 80])]), expected);
    }

    #[test]
    fn classic_times_are_relative_in_every_form() {
        let expected = "0.000000000 10.0.0.1:33000 > 10.0.0.2:8000: R2P2 request rid 1 0/1, length 0\n\
            1.000000007 10.0.0.1:33000 > 10.0.0.2:8000: R2P2 request rid 1 0/1, length 0\n\
            -0.000000001 10.0.0.1:33000 > 10.0.0.2:8000: R2P2 request rid 1 0/1, length 0\n";
        for (magic, unit, is_big) in [
            (0xa1b2_c3d4, 1000, false),
            (0xa1b2_c3d4, 1000, true),
            (0xa1b2_3c4d, 1, false),
            (0xa1b2_3c4d, 1, true),
        ] {
            let header =
                [magic, if is_big { 0x0002_0004 } else { 0x0004_0002 }, 0, 0, 0x0004_0000, 101];
            let mut file: Vec<u8> = header.iter().flat_map(|&each| word(each, is_big)).collect();
            for (seconds, fraction) in [(7, 5), (8, 12), (7, 4)] {
                let len = request().len() as u32;
                file.extend(
                    [seconds, fraction, len, len].iter().flat_map(|&each| word(each, is_big)),
                );
                file.extend(request());
            }
            let micros = expected.replace("007 ", "007000 ").replace("001 ", "001000 ");
            let micros = micros.replace("1.000000", "1.000").replace("-0.000000", "-0.000");
            check(&file, if unit == 1 { expected } else { &micros });
        }
    }

    #[test]
    fn pcapng_times_follow_the_interface() {
        for is_big in [false, true] {
            let file = [
                section(is_big),
                interface(6, 100, is_big),
                interface(9, 101, is_big),
                interface(0x80 | 10, 100, is_big),
                interface(127, 0, is_big),
                enhanced(0, 1_000_000, &request(), is_big),
                enhanced(1, 5, &request(), is_big),
                enhanced(2, 1024 + 512, &request(), is_big),
                enhanced(3, u64::MAX, &request(), is_big),
                enhanced(4, 0, &request(), is_big),
                block(3, &[&word(36, is_big)[..], &request()].concat(), is_big),
                block(5, &[0; 12], is_big),
            ]
            .concat();
            let line = LINE.strip_prefix("0.000000000").unwrap();
            let expected = format!(
                "0.000000000{line}0.000000005{line}0.500000000{line}-{line}-{line}\
                1 frames left out: of a link type that is not read, or cut before their UDP or Homa header\n"
            );
            check(&file, &expected);
        }
    }

    #[test]
    fn comments_stand_behind_their_packet_or_alone() {
        let commented = |frame: &[u8], text: &[u8]| {
            let len = frame.len() as u32;
            let mut body: Vec<u8> =
                [0, 0, 7, len, len].iter().flat_map(|&each| word(each, false)).collect();
            body.extend(frame);
            body.resize(body.len().next_multiple_of(4), 0);
            body.extend([half(1, false), half(text.len() as u16, false)].concat());
            body.extend(text);
            body.resize(body.len().next_multiple_of(4) + 4, 0);
            block(6, &body, false)
        };
        let file = [
            section(false),
            interface(9, 0, false),
            commented(&request(), b"placed"),
            commented(&[], b"resent +1\x1b[2J"),
        ];
        let expected = format!("{} # placed\n0.000000000 # resent +1 [2J\n", LINE.trim_end());
        check(&file.concat(), &expected);
    }

    #[test]
    fn record_longer_than_the_buffer_is_read() {
        let long = [request(), vec![0; 3 * BUFFER_LEN]].concat();
        check(&pcap(LINK_RAW, &[long, request()]), &LINE.repeat(2));
    }

    #[test]
    fn errors_say_what_to_do() {
        check_error(&[], "it is empty");
        check_error(
            b"#!/bin/sh\necho this is a script\n",
            "it is not a capture: give a pcap or pcapng file",
        );
        check_error(&[0xd4, 0xc3, 0xb2, 0xa1], "it is not a capture");
        let whole = pcap(LINK_RAW, &[request(), request()]);
        check_error(&whole[..whole.len() - 1], "it ends in the middle of the record at byte 76");
        let mut damaged = [section(false), interface(6, 0, false)].concat();
        check(&damaged, "");
        *damaged.last_mut().unwrap() = 1;
        check_error(&damaged, "the record at byte 28 is damaged");
    }

    #[test]
    fn packets_before_an_error_are_printed() {
        let whole = pcap(LINK_RAW, &[request(), request()]);
        assert_eq!(printed(&whole[..whole.len() - 1]).0, LINE);
    }

    #[test]
    fn record_that_claims_the_whole_memory_is_refused() {
        let mut file = pcap(LINK_RAW, &[]);
        file.extend([0; 8].iter().chain(&[0xff; 8]));
        file.resize(RECORD_LEN_MAX + BUFFER_LEN, 0);
        check_error(&file, "longer than 16777216 bytes");
    }

    #[test]
    fn missing_file_and_directory_are_named() {
        let error =
            |path: &Path| format!("{:#}", run(path, None, None, &mut Vec::new()).unwrap_err());
        assert!(
            error(&conformance("absent.pcap")).contains("absent.pcap: give the path of a file")
        );
        assert!(error(&conformance("")).contains("is a directory: give one capture file"));
    }

    proptest! {
        #[test]
        fn garbage_does_not_panic(magic in prop::sample::select(magics()), rest in vec(any::<u8>(), 0..300)) {
            let _ = printed(&[magic, rest].concat());
        }

        #[test]
        fn garbage_frames_do_not_panic(link in link_types(), frames in vec(vec(any::<u8>(), 0..120), 1..5)) {
            printed(&pcap(link, &frames)).1.unwrap();
        }

        #[test]
        fn damaged_captures_do_not_panic(
            file in prop::sample::select(samples()),
            damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
            len in any::<prop::sample::Index>(),
        ) {
            let mut file = file;
            for (at, byte) in damage {
                let at = at.index(file.len().min(600));
                file[at] = byte;
            }
            let _ = printed(&file);
            let _ = printed(&file[..len.index(file.len())]);
        }
    }

    fn link_types() -> impl Strategy<Value = i32> {
        prop::sample::select(vec![0, 1, 12, 14, 101, 108, 113, 228, 229, 276, 9999])
    }

    /// Beginnings of files that are read at all.
    fn magics() -> Vec<Vec<u8>> {
        let classic = pcap(LINK_RAW, &[]);
        vec![Vec::new(), classic[..4].to_vec(), classic, section(false), section(true)]
    }

    fn samples() -> Vec<Vec<u8>> {
        let pcapng = |is_big| {
            let frames =
                [enhanced(0, 1, &request(), is_big), enhanced(0, 2, &request(), is_big)].concat();
            [section(is_big), interface(6, 0, is_big), frames].concat()
        };
        let names = ["v1.pcap", "extended.pcap", "malformed.pcap", "homa-ip.pcap", "homa-tcp.pcap"];
        let files = names.map(|name| std::fs::read(conformance(name)).unwrap());
        files.into_iter().chain([pcapng(false), pcapng(true)]).collect()
    }
}
