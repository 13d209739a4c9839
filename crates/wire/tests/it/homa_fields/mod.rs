//! The fields of a coherent Homa packet, as tshark prints them.

use tailcut_wire::homa::tagged::tag_of;
use tailcut_wire::homa::{Ack, Body, DataFlags, DataHeader, Packet, PartHeader, TimeLeft};
use zerocopy::FromBytes;

/// Every field that the packet has; several values of one field are in one line.
pub(crate) fn of(packet: &Packet) -> Vec<String> {
    let common = packet.common;
    let mut fields = vec![
        format!("homa.sport {}", common.sport),
        format!("homa.dport {}", common.dport),
        format!("homa.sequence {}", common.sequence),
        format!("homa.reserved {}", hex(&common.reserved)),
        format!("homa.type {:#04x}", common.packet_type),
        format!("homa.doff {}", common.doff >> 4),
        format!("homa.flags {:#04x}", common.flags),
        format!("homa.window {}", common.window),
        format!("homa.checksum {:#06x}", common.checksum.get()),
        format!("homa.urgent {:#06x}", common.urgent.get()),
        format!("homa.sender_id {:#018x}", common.sender_id.get()),
        format!("homa.rpc_id {:#018x}", common.sender_id.get() & !1),
        format!("homa.from_client {}", u8::from(packet.is_from_client())),
    ];
    if common.is_stripped() {
        fields.push("homa.stripped 1".to_owned());
    }
    fields.extend(of_body(&packet.body));
    fields
}

fn of_body(body: &Body) -> Vec<String> {
    match body {
        Body::Data { header, payload } => of_data(header, payload),
        Body::Grant(grant) => {
            vec![
                format!("homa.grant.offset {}", grant.offset),
                format!("homa.grant.priority {}", grant.priority),
            ]
        }
        Body::Resend(resend) => {
            let priority =
                resend.priority.map(|priority| format!("homa.resend.priority {priority}"));
            let range = [
                format!("homa.resend.offset {}", resend.offset),
                format!("homa.resend.length {}", resend.length),
            ];
            range.into_iter().chain(priority).collect()
        }
        Body::Cutoffs(packet) => {
            let cutoffs = packet.cutoffs.map(|cutoff| cutoff.to_string()).join(",");
            vec![
                format!("homa.cutoffs.cutoff {cutoffs}"),
                format!("homa.cutoffs.version {}", packet.version),
            ]
        }
        Body::Ack(acks) => of_acks(acks),
        Body::Cookie(packet) => vec![
            format!("homa.cookie.cookie {:#018x}", packet.cookie.get()),
            format!("homa.cookie.is_demand {}", packet.is_demand),
        ],
        Body::RpcUnknown | Body::Busy | Body::Freeze | Body::NeedAck => Vec::new(),
    }
}

/// All five are shown, those that are not meant as well.
fn of_acks(acks: &[Ack]) -> Vec<String> {
    let all = || acks.iter().copied().chain(std::iter::repeat(Ack::default())).take(5);
    let ids: Vec<String> = all().map(|ack| format!("{:#018x}", ack.client_id.get())).collect();
    let ports: Vec<String> = all().map(|ack| ack.server_port.to_string()).collect();
    vec![
        format!("homa.ack.num_acks {}", acks.len()),
        format!("homa.ack.client_id {}", ids.join(",")),
        format!("homa.ack.server_port {}", ports.join(",")),
    ]
}

fn of_data(header: &DataHeader, payload: &[u8]) -> Vec<String> {
    let flags = header.flags();
    let tag = tag_of(header).map(|tag| format!("homa.data.tag {tag:#018x}"));
    let mut fields = vec![
        format!("homa.data.message_length {}", header.message_length),
        format!("homa.data.incoming {}", header.incoming),
        format!("homa.data.ack.client_id {:#018x}", header.ack.client_id.get()),
        format!("homa.data.ack.server_port {}", header.ack.server_port),
        format!("homa.data.cutoff_version {}", header.cutoff_version),
        format!("homa.data.retransmit {}", header.retransmit),
        format!("homa.data.flags {:#04x}", header.flags),
        format!("homa.data.time_left {:#06x}", header.time_left.get()),
        format!("homa.data.seg_offset {:#010x}", header.seg_offset.get()),
        format!("homa.data.offset {}", header.offset()),
        format!("homa.payload_len {}", payload.len()),
    ];
    let named = [
        (DataFlags::KNOWN, "known"),
        (DataFlags::INCAST, "incast"),
        (DataFlags::PART, "part"),
        (DataFlags::REFUSED, "refused"),
        (DataFlags::IDEMPOTENT, "idempotent"),
        (DataFlags::EMPTY, "empty"),
    ];
    fields.extend(named.map(|(mark, name)| {
        format!("homa.data.flags.{name} {}", u8::from(header.flags & mark != 0))
    }));
    if flags.has(DataFlags::KNOWN) {
        let age =
            tailcut_wire::homa::Age(header.retransmit).ns_max().filter(|_| header.retransmit != 0);
        fields.extend(age.map(|ns| format!("homa.data.age_ms {}", ns / 1_000_000)));
        fields.extend(
            TimeLeft(header.time_left.get())
                .ns()
                .map(|ns| format!("homa.data.deadline_us {}", ns / 1000)),
        );
    }
    fields.extend(tag);
    if flags.has(DataFlags::REFUSED) {
        fields.push(format!("homa.refused.reason {}", payload[0]));
    }
    if flags.has(DataFlags::PART) {
        let (part, _) = PartHeader::ref_from_prefix(payload).expect("a part");
        fields.push(format!("homa.part.key {:#018x}", part.key.get()));
        fields.push(format!("homa.part.total_len {}", part.total_len));
        fields.push(format!("homa.part.offset {}", part.offset));
        fields.push(format!("homa.part.kind {}", part.kind));
        fields.push(format!("homa.part.reserved {}", hex(&part.reserved)));
    }
    fields
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
