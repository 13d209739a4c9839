//! One line a packet, in the manner of tcpdump.

use core::fmt;

use super::tagged::tag_of;
use super::{Ack, Body, DataFlags, DataHeader, Packet, PacketType, RESEND_ALL, TimeLeft};

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, common) = (name(self.packet_type()), self.common);
        write!(
            f,
            "Homa {name} {} > {} id {:016x}",
            common.sport,
            common.dport,
            common.sender_id.get()
        )?;
        match self.body {
            Body::Data { header, payload } => write_data(f, header, payload.len()),
            Body::Grant(grant) => write!(f, " below {} priority {}", grant.offset, grant.priority),
            Body::Resend(resend) => {
                match resend.length {
                    RESEND_ALL => f.write_str(" all")?,
                    length => write!(f, " {length} from {}", resend.offset)?,
                }
                resend.priority.map_or(Ok(()), |priority| write!(f, " priority {priority}"))
            }
            Body::Cutoffs(cutoffs) => {
                write!(f, " version {}", cutoffs.version)?;
                cutoffs.cutoffs.iter().try_for_each(|cutoff| write!(f, " {cutoff}"))
            }
            Body::Cookie(packet) if packet.is_demand == 0 => f.write_str(" renewed"),
            Body::Ack(acks) => acks.iter().try_for_each(|&ack| write_ack(f, " ", ack)),
            Body::RpcUnknown | Body::Busy | Body::Freeze | Body::NeedAck | Body::Cookie(_) => {
                Ok(())
            }
        }
    }
}

fn write_data(f: &mut fmt::Formatter<'_>, header: &DataHeader, len: usize) -> fmt::Result {
    write!(
        f,
        " at {} of {} B incoming {}",
        header.offset(),
        header.message_length,
        header.incoming
    )?;
    if header.ack.client_id.get() != 0 {
        write_ack(f, " ack ", header.ack)?;
    }
    if tag_of(header).is_some() {
        f.write_str(" tagged")?;
    }
    if header.retransmit != 0 {
        f.write_str(" retransmit")?;
    }
    let named = [
        (DataFlags::INCAST, " incast"),
        (DataFlags::PART, " part"),
        (DataFlags::REFUSED, " refused"),
        (DataFlags::IDEMPOTENT, " idempotent"),
        (DataFlags::LONG, " long"),
        (DataFlags::EMPTY, " empty"),
    ];
    for (flag, text) in named {
        if header.flags().has(flag) {
            f.write_str(text)?;
        }
    }
    if let Some(ns) =
        TimeLeft(header.time_left.get()).ns().filter(|_| header.flags().has(DataFlags::KNOWN))
    {
        write!(f, " deadline {}us", ns / 1000)?;
    }
    write!(f, ", length {len}")
}

fn write_ack(f: &mut fmt::Formatter<'_>, before: &str, ack: Ack) -> fmt::Result {
    write!(f, "{before}{:016x}", ack.client_id.get())?;
    ack.range_count().map_or(Ok(()), |count| write!(f, "*{count}"))
}

fn name(packet_type: PacketType) -> &'static str {
    match packet_type {
        PacketType::Data => "data",
        PacketType::Grant => "grant",
        PacketType::Resend => "resend",
        PacketType::RpcUnknown => "unknown",
        PacketType::Busy => "busy",
        PacketType::Cutoffs => "cutoffs",
        PacketType::Freeze => "freeze",
        PacketType::NeedAck => "need-ack",
        PacketType::Ack => "ack",
        PacketType::Cookie => "cookie",
    }
}
