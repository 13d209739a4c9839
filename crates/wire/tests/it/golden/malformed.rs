//! Datagrams that are not R2P2, at least one for each way to be malformed, and datagrams on ports
//! that say nothing.

use tailcut_wire::r2p2::{
    EXTENDED_LEN, Malformed, MessageType, ROUTED_LEN, RequestRepr, Route, RpcId,
};
use zerocopy::IntoBytes;

use super::capture::Datagram;
use super::extended::{Message, control, sack};
use super::hex;

/// Everything in [`cases`], from a client to a server.
pub(crate) fn datagrams() -> Vec<Datagram> {
    cases()
        .into_iter()
        .map(|(_, payload)| Datagram::new("10.77.0.3:33000", "10.77.0.4:8000", payload))
        .collect()
}

/// Datagrams that a dissector must tell from other traffic by the bytes alone: R2P2 in both
/// versions, then what only looks like it.
pub(crate) fn on_other_ports() -> Vec<Datagram> {
    let payloads = [
        hex("cc0800c0 0001 0001 31323334"),
        Message::request(9, 5).packet(0),
        sack(MessageType::Ack, 9, (1, &[]), 1, 0),
        // A version 1 FEEDBACK has too few certain bits to be known without its port.
        hex("ccec202c fd7f0000 0002 a7f9 7f000001"),
        hex("cc0800c0 0001 0002 31323334"),
        hex("cccccccc cccccccc cccccccc cccccccc"),
    ];
    payloads
        .into_iter()
        .map(|payload| Datagram::new("10.77.0.3:40000", "10.77.0.4:7777", payload))
        .collect()
}

/// Reasons why the parser refuses packets, each with its bytes.
pub(crate) fn cases() -> Vec<(Malformed, Vec<u8>)> {
    let request = Message::request(1, 5).packet(0);
    let long = Message::request(2, 5000);
    let ack = sack(MessageType::Ack, 2, (1, &[]), 4, 0);
    vec![
        (Malformed::Truncated, Vec::new()),
        (Malformed::Truncated, hex("cc0800c0 0001 00")),
        (Malformed::Truncated, request[..47].to_vec()),
        (Malformed::Truncated, request[..71].to_vec()),
        (Malformed::Magic, hex("cd0800c0 0001 0001 31323334")),
        (Malformed::HeaderSize, hex("ccc800c0 0001 0001 31323334")),
        (Malformed::HeaderSize, with_route(&long.unrouted(1))),
        (Malformed::HeaderSize, with_route(&ack)),
        (Malformed::HeaderSize, with_route(&Message::reply(2, 5000).packet(0))),
        (Malformed::Type, hex("cc0870c0 0001 0001")),
        (Malformed::Type, hex("cc08e1c0 0001 0001")),
        (Malformed::Policy, hex("cc0802c0 0001 0001 31323334")),
        (Malformed::Flags, hex("cc0800c1 0001 0001 31323334")),
        (Malformed::Order, hex("cc0800c0 0001 0002 31323334")),
        (Malformed::Order, hex("cc080080 0001 00ff 31323334")),
        (Malformed::Order, hex("cc083100 0001 0001 41434b")),
        (Malformed::Order, changed(&long.packet(0), 7, 5)),
        (Malformed::Order, changed(&long.unrouted(3), 3, 0)),
        (Malformed::Order, changed(&ack, 3, 0x80)),
        (Malformed::Version, changed(&request, 21, 2)),
        (Malformed::Length, hex("cc0831c0 0001 0001 4143")),
        (Malformed::Length, hex("cc0821c0 0001 0001 0001")),
        (Malformed::Length, request[..request.len() - 1].to_vec()),
        (Malformed::Length, changed(&changed(&request, 44, 0), 45, 0)),
        (Malformed::Length, ack[..ack.len() - 1].to_vec()),
        (Malformed::Length, control(MessageType::Drop, 1, 0)),
        (Malformed::Length, control(MessageType::Feedback, 0, 0)),
        (
            Malformed::Length,
            RequestRepr::control(MessageType::Probe, 0, RpcId(0)).header().as_bytes().to_vec(),
        ),
        (Malformed::Length, [&control(MessageType::Cancel, 1, 0)[..], b"x"].concat()),
    ]
}

/// The packet with one byte replaced.
fn changed(packet: &[u8], offset: usize, byte: u8) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[offset] = byte;
    packet
}

/// The packet with a route block that it must not have.
fn with_route(packet: &[u8]) -> Vec<u8> {
    let (header, payload) = packet.split_at(EXTENDED_LEN);
    changed(&[header, Route::default().as_bytes(), payload].concat(), 1, ROUTED_LEN as u8)
}
