//! Packets on Homa's port that are not Homa, at least one for each way to be malformed, and
//! datagrams on ports that say nothing.

use tailcut_wire::homa::{IP_PROTOCOL, Malformed};

use super::capture::Datagram;
use super::hex;
use super::homa::{TO_SERVER, common, control};

/// Everything in [`cases`], from a client to a server inside UDP, and the first of them in IP.
pub(crate) fn datagrams() -> Vec<Datagram> {
    let in_udp = cases()
        .into_iter()
        .map(|(_, packet)| Datagram::new("10.77.0.3:33000", "10.77.0.4:50146", packet));
    let in_ip = cases()
        .into_iter()
        .take(1)
        .map(|(_, packet)| Datagram::in_ip(IP_PROTOCOL, ["10.77.0.3", "10.77.0.4"], packet));
    in_udp.chain(in_ip).collect()
}

/// Datagrams that a dissector must tell from other traffic by the bytes alone: Homa, then what only
/// looks like it, then R2P2.
pub(crate) fn on_other_ports() -> Vec<Datagram> {
    let mut stripped = control(TO_SERVER, "14", 100, "");
    stripped[13] = 0;
    stripped[18..20].fill(0);
    let packets = [
        control(TO_SERVER, "14", 100, ""),
        data("00000004", "00000000", "31323334"),
        // Without flags and urgent pointer too little is certain to be known without the port.
        stripped,
        control(TO_SERVER, "19", 100, ""),
        control(TO_SERVER, "14", 100, "")[..27].to_vec(),
        hex("cc0800c0 0001 0001 31323334"),
    ];
    packets
        .into_iter()
        .map(|packet| Datagram::new("10.77.0.3:40000", "10.77.0.4:7777", packet))
        .collect()
}

/// Reasons why the parser refuses packets, each with its bytes.
pub(crate) fn cases() -> Vec<(Malformed, Vec<u8>)> {
    let plain = |kind: &str, rest: &str| control(TO_SERVER, kind, 100, rest);
    let id = |id| control(TO_SERVER, "14", id, "");
    let ack = |count: &str, len| plain("18", &(count.to_owned() + &"00".repeat(len)));
    vec![
        (Malformed::Truncated, plain("14", "")[..27].to_vec()),
        (Malformed::Truncated, data("00000001", "00000000", "")[..55].to_vec()),
        (Malformed::Truncated, plain("11", "00004e20")),
        (Malformed::Truncated, plain("12", "00004e20 00000100")),
        (Malformed::Truncated, plain("15", &"00".repeat(33))),
        (Malformed::Truncated, ack("0000", 49)),
        (Malformed::Type, plain("0f", "")),
        (Malformed::Type, plain("19", "")),
        (Malformed::Length, data("00000000", "00000000", "")),
        (Malformed::Length, data("0000000a", "00000000", &"31".repeat(11))),
        (Malformed::Length, data("0000000a", "0000000a", "31")),
        (Malformed::Length, data("0000000a", "fffffffe", "31")),
        (Malformed::Value, id(0)),
        (Malformed::Value, id(1)),
        (Malformed::Value, plain("11", "00004e20 08")),
        (Malformed::Value, plain("12", "00000000 ffffffff 08")),
        (Malformed::Value, ack("0006", 50)),
    ]
}

/// DATA of a message of `len` from `offset` on.
fn data(len: &str, offset: &str, payload: &str) -> Vec<u8> {
    let common = common(TO_SERVER, 0, "10", 100);
    hex(&format!("{common} {len} {len} 00000000000000000000 0001 00 000000 {offset} {payload}"))
}
