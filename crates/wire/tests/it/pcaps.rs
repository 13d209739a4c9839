//! The committed captures, their expected fields and the fuzz seeds are what the code makes of
//! them.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use tailcut_wire::r2p2::{BaseHeader, Flags, Kind, MessageType, Packet};
use tailcut_wire::{homa, netclone};

use crate::golden::capture::{Capture, Protocol};
use crate::{golden, homa_fields};

#[test]
fn committed_files_are_fresh() {
    for file in golden::files() {
        let committed = fs::read(root().join(&file.path)).unwrap_or_default();
        assert!(committed == file.bytes, "{} is stale: {REGENERATE}", file.path);
    }
}

#[test]
fn no_file_is_left_over() {
    let generated: BTreeSet<String> = golden::files().into_iter().map(|file| file.path).collect();
    let seed_folders =
        [Protocol::R2p2, Protocol::Homa, Protocol::NetClone].map(golden::seed_folder);
    for folder in ["conformance/pcap"].into_iter().chain(seed_folders) {
        for entry in fs::read_dir(root().join(folder)).expect("the folder is committed") {
            let name = entry.expect("an entry").file_name().into_string().expect("a name in UTF-8");
            let path = format!("{folder}/{name}");
            // Seeds of other origin have names instead of numbers.
            let number = name.rsplit_once('-').map_or("", |(_, number)| number);
            let is_generated = name.ends_with(".pcap") || number.parse::<u8>().is_ok();
            assert!(!is_generated || generated.contains(&path), "{path} is left over: remove it");
        }
    }
}

/// The dissector's summary, which tshark printed, is this crate's Display; so one text serves both.
#[test]
fn dissector_says_what_display_says() {
    for capture in golden::captures().iter().filter(|capture| capture.protocol == Protocol::R2p2) {
        for (index, (frame, datagram)) in
            expected_frames(capture).iter().zip(&capture.datagrams).enumerate()
        {
            let found = value_of(frame, "r2p2.summary");
            let is_claimed = match capture.name {
                "other-ports" => is_recognised(&datagram.payload),
                // Wireshark calls no dissector for an empty datagram.
                _ => !datagram.payload.is_empty(),
            };
            let summary = is_claimed.then(|| summary(&datagram.payload));
            assert_eq!(found, summary.as_deref(), "{}, frame {}", capture.name, index + 1);
        }
    }
}

#[test]
fn dissector_reads_what_the_parser_reads() {
    for capture in
        golden::captures().iter().filter(|capture| ["v1", "extended"].contains(&capture.name))
    {
        for (index, (frame, datagram)) in
            expected_frames(capture).iter().zip(&capture.datagrams).enumerate()
        {
            let found: BTreeSet<&str> = frame.lines().map(str::trim).collect();
            for field in fields(&Packet::parse(&datagram.payload).expect("a packet")) {
                assert!(
                    found.contains(field.as_str()),
                    "{}, frame {} lacks `{field}`",
                    capture.name,
                    index + 1
                );
            }
        }
    }
}

#[test]
fn captures_show_every_message_type() {
    let all = [
        MessageType::Request,
        MessageType::Response,
        MessageType::Feedback,
        MessageType::Ack,
        MessageType::Drop,
        MessageType::ReplyAck,
        MessageType::Cancel,
        MessageType::Probe,
        MessageType::Claim,
        MessageType::Claimed,
    ];
    for capture in golden::captures() {
        let parsed = || {
            capture.datagrams.iter().filter_map(|datagram| Packet::parse(&datagram.payload).ok())
        };
        let expected: &[MessageType] = match capture.name {
            "v1" => &all[..5],
            "extended" => &all,
            _ => continue,
        };
        assert_eq!(
            parsed().count(),
            capture.datagrams.len(),
            "{} has a malformed packet",
            capture.name
        );
        for wanted in expected {
            assert!(
                parsed().any(|packet| packet.message_type == *wanted),
                "{} lacks {wanted:?}",
                capture.name
            );
        }
        assert!(parsed().all(|packet| matches!(packet.kind, Kind::V1) == (capture.name == "v1")));
    }
}

#[test]
fn malformed_datagrams_are_refused_for_their_reason() {
    for (reason, bytes) in golden::malformed::cases() {
        assert_eq!(Packet::parse(&bytes).err(), Some(reason), "{bytes:02x?}");
    }
    for (reason, bytes) in golden::homa_malformed::cases() {
        assert_eq!(homa::Packet::parse(&bytes).err(), Some(reason), "{bytes:02x?}");
    }
}

#[test]
fn dissector_of_homa_says_what_display_says() {
    for (name, frame, datagram) in homa_frames() {
        let bytes = &datagram.payload[..];
        let is_claimed = match &name[..] {
            "homa-other-ports" => homa::is_hijacked(bytes) && homa::Packet::parse(bytes).is_ok(),
            "homa-tcp" => homa::is_hijacked(bytes),
            _ => true,
        };
        let line = match homa::Packet::parse(bytes) {
            Ok(packet) => packet.to_string(),
            Err(reason) => format!("not Homa: {reason:?}"),
        };
        assert_eq!(
            value_of(&frame, "homa.summary"),
            is_claimed.then_some(&line[..]),
            "{name}, {bytes:02x?}"
        );
    }
}

#[test]
fn dissector_of_homa_reads_what_the_parser_reads() {
    let frames = homa_frames().into_iter().filter(|(_, frame, _)| frame.contains("homa.rpc_id"));
    for (name, frame, datagram) in frames {
        let packet = homa::Packet::parse(&datagram.payload).expect("a packet");
        let found: Vec<&str> = frame.lines().map(str::trim).collect();
        for field in homa_fields::of(&packet) {
            assert!(found.contains(&&field[..]), "{name}, `{packet}` lacks `{field}`");
        }
        let hijacked = value_of(&frame, "homa.hijacked").is_some();
        assert_eq!(
            hijacked,
            datagram.ip_protocol == homa::HIJACKED_IP_PROTOCOL,
            "{name}, `{packet}`"
        );
    }
}

#[test]
fn dissector_of_netclone_says_what_display_says() {
    let captures = golden::captures();
    for capture in captures.iter().filter(|capture| capture.protocol == Protocol::NetClone) {
        for (frame, datagram) in expected_frames(capture).iter().zip(&capture.datagrams) {
            let bytes = &datagram.payload[..];
            let ports = [datagram.from.port(), datagram.to.port()];
            let line = if ports.contains(&netclone::PORT) {
                netclone::Packet::parse(bytes).map(|packet| packet.to_string())
            } else {
                netclone::Plain::parse(bytes).map(|packet| packet.to_string())
            };
            let line = line.unwrap_or_else(|reason| format!("not NetClone: {reason:?}"));
            assert_eq!(value_of(frame, "netclone.summary"), Some(&line[..]), "{bytes:02x?}");
        }
    }
}

#[test]
fn captures_show_every_packet_of_homa_in_every_carrier() {
    let kinds = |name: &str| -> BTreeSet<u8> {
        let of_capture = golden::captures()
            .into_iter()
            .find(|capture| capture.name == name)
            .expect("a capture")
            .datagrams;
        of_capture
            .iter()
            .filter_map(|datagram| homa::Packet::parse(&datagram.payload).ok())
            .map(|p| p.common.packet_type)
            .collect()
    };
    assert_eq!(kinds("homa-ip"), (0x10..=0x18).collect());
    assert_eq!(kinds("homa-udp"), [0x10, 0x11, 0x15, 0x18, 0x1f].into());
    assert_eq!(kinds("homa-tcp"), [0x10, 0x11, 0x14, 0x17, 0x18].into());
    let is_v6 = |datagram: &golden::capture::Datagram| datagram.to.is_ipv6();
    for name in ["homa-ip", "homa-udp", "homa-tcp"] {
        let capture =
            golden::captures().into_iter().find(|capture| capture.name == name).expect("a capture");
        assert!(
            capture.datagrams.iter().any(is_v6) && !capture.datagrams.iter().all(is_v6),
            "{name}"
        );
    }
}

/// Each frame of Homa's captures: the capture, what tshark printed of the frame, and what it was
/// made from.
fn homa_frames() -> Vec<(String, String, golden::capture::Datagram)> {
    let captures =
        golden::captures().into_iter().filter(|capture| capture.protocol == Protocol::Homa);
    captures
        .flat_map(|capture| {
            let frames = expected_frames(&capture);
            frames
                .into_iter()
                .zip(capture.datagrams)
                .map(move |(frame, datagram)| (capture.name.to_owned(), frame, datagram))
        })
        .collect()
}

/// Value that tshark printed of a field that occurs once.
fn value_of<'a>(frame: &'a str, field: &str) -> Option<&'a str> {
    frame.lines().find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(' '))
}

/// True if a dissector takes it on a port that says nothing: a coherent packet that is not a
/// version 1 FEEDBACK.
fn is_recognised(bytes: &[u8]) -> bool {
    Packet::parse(bytes)
        .is_ok_and(|packet| packet.message_type != MessageType::Feedback || packet.is_extended())
}

/// The expected text of each frame.
fn expected_frames(capture: &Capture) -> Vec<String> {
    let name = format!("conformance/pcap/{}.expected.txt", capture.name);
    let text = fs::read_to_string(root().join(&name))
        .unwrap_or_else(|error| panic!("{name}: {error}; {BLESS}"));
    let frames: Vec<String> = text.split("frame.number ").skip(1).map(str::to_owned).collect();
    assert_eq!(frames.len(), capture.datagrams.len(), "{name}: {BLESS}");
    frames
}

/// The fields of a coherent packet as tshark prints them.
fn fields(packet: &Packet) -> Vec<String> {
    let mut fields = vec![
        format!("r2p2.type {}", packet.message_type as u8),
        format!("r2p2.index {}", packet.index),
        format!("r2p2.payload_len {}", packet.payload.len()),
    ];
    if packet.count != 0 {
        fields.push(format!("r2p2.count {}", packet.count));
    }
    if packet.is_extended() {
        let (message_len, segment_len) = packet.lengths();
        fields.push(format!("r2p2.ext.message_len {message_len}"));
        fields.push(format!("r2p2.ext.flags {:#04x}", packet.flags().0));
        fields.push(format!("r2p2.ext.token {:#018x}", packet.token()));
        fields.push(format!("r2p2.ext.segment_len {segment_len}"));
    }
    let base_fields = |base: &BaseHeader, version: u8, rpc_id: u64| {
        [
            format!("r2p2.header_size {}", base.header_size),
            format!("r2p2.flags {:#04x}", base.flags),
            format!("r2p2.rid {}", base.rid),
            format!("r2p2.p_order {}", base.p_order),
            format!("r2p2.ext.version {version}"),
            format!("r2p2.ext.rpc_id {rpc_id:#018x}"),
        ]
    };
    if let Some(header) = packet.reply_header() {
        fields.extend(base_fields(&header.base, header.version, header.rpc_id.get()));
        fields.push(format!("r2p2.ext.server_load {}", header.server_load));
        fields.push(format!("r2p2.ext.server_id {}", header.server_id));
        fields.push(format!("r2p2.ext.server_waiting {}", header.server_waiting));
        fields.push(format!("r2p2.ext.clock_echo_us {}", header.clock_echo_us));
        let detail = match packet.message_type {
            MessageType::Feedback => "servers",
            MessageType::Ack if packet.flags().has(Flags::HELD) => "held_ns",
            _ => "retry_after_ns",
        };
        fields.push(format!("r2p2.ext.{detail} {}", header.detail));
    }
    if let Kind::Request { header, .. } = packet.kind {
        fields.extend(base_fields(&header.base, header.version, header.rpc_id.get()));
        fields.push(format!("r2p2.ext.client_clock_us {}", header.client_clock_us));
        fields.push(format!("r2p2.ext.deadline_us {}", header.deadline_us));
        fields.push(format!("r2p2.ext.floor {}", header.floor));
        fields.push(format!("r2p2.ext.age_ms {}", header.age_ms));
    }
    if let Some(route) = packet.route() {
        fields.push(format!("r2p2.route.client_ip {}", Ipv6Addr::from(route.client_ip)));
        fields.push(format!("r2p2.route.client_port {}", route.client_port));
        fields.push(format!("r2p2.route.routed {}", route.routed));
        fields.push(format!("r2p2.route.returns {}", route.returns));
        fields.push(format!("r2p2.route.placement {}", route.placement));
    }
    if let Some(id) = packet.rpc_id() {
        fields.push(format!("r2p2.ext.session {:#018x}", id.session().0));
        fields.push(format!("r2p2.ext.sequence {}", id.sequence()));
    }
    if let Some(sack) = packet.sack() {
        fields.push(format!("r2p2.sack.base {}", sack.base));
        fields.push(format!("r2p2.sack.granted {}", sack.granted));
    }
    if let Some(feedback) = packet.feedback() {
        fields.push(format!("r2p2.feedback.epoch {:#010x}", feedback.epoch));
        fields.push(format!("r2p2.feedback.placement_seen {}", feedback.placement_seen));
        fields.push(format!("r2p2.feedback.received {}", feedback.received));
        fields.push(format!("r2p2.feedback.concluded {}", feedback.concluded));
    }
    fields
}

fn summary(bytes: &[u8]) -> String {
    match Packet::parse(bytes) {
        Ok(packet) => packet.to_string(),
        Err(reason) => format!("not R2P2: {reason:?}"),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const REGENERATE: &str = "run `cargo run -p tailcut-wire --example write_pcaps`, then `tools/wireshark/check.sh --bless`";
const BLESS: &str = "run `tools/wireshark/check.sh --bless`";
