//! One line a packet, in the manner of tcpdump.

use core::fmt;

use super::{DropReason, Flags, Kind, MessageType, Packet, Policy, Rejection, Verdict};

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R2P2 {}", name(self.message_type))?;
        match self.rpc_id() {
            Some(id) => write!(f, " id {:016x}", id.0)?,
            None if self.message_type == MessageType::Feedback => {}
            None => write!(f, " rid {}", self.rid)?,
        }
        if self.is_data() {
            match self.count {
                0 => write!(f, " {}{}", self.index, if self.is_last { " last" } else { "" })?,
                count => write!(f, " {}/{count}", self.index)?,
            }
            if self.policy == Policy::Fixed && self.message_type == MessageType::Request {
                write!(f, " fixed")?;
            }
        }
        if self.is_data() && self.is_extended() {
            write!(f, " of {} B", self.lengths().0)?;
        }
        write_flags(f, self)?;
        match self.kind {
            Kind::V1 => {}
            Kind::Request { header, route } => {
                if header.deadline_us.get() != 0 {
                    write!(f, " deadline {}us", header.deadline_us)?;
                }
                if let Some(route) = route.filter(|route| route.routed != 0) {
                    write!(f, " placement {}", route.placement)?;
                    if route.returns != 0 {
                        f.write_str(" returns")?;
                    }
                }
            }
            Kind::Reply { header, route } => {
                if header.server_id.get() != 0 || header.server_load.get() != 0 {
                    write!(f, " server {} load {}", header.server_id, header.server_load)?;
                }
                if header.server_waiting.get() != 0 {
                    write!(f, " waiting {}", header.server_waiting)?;
                }
                if let detail @ 1.. = header.detail.get() {
                    match self.message_type {
                        MessageType::Feedback => write!(f, " servers {detail}")?,
                        MessageType::Ack => write!(f, " for {detail}ns")?,
                        _ => write!(f, " retry-after {detail}ns")?,
                    }
                }
                if route.is_some() {
                    f.write_str(" to-router")?;
                }
            }
        }
        write_body(f, self)?;
        write!(f, ", length {}", self.payload.len())
    }
}

fn write_flags(f: &mut fmt::Formatter<'_>, packet: &Packet) -> fmt::Result {
    let flags = packet.flags();
    let named = [
        (Flags::IDEMPOTENT, " idempotent"),
        (Flags::RETRANSMIT, " retransmit"),
        match packet.message_type {
            MessageType::Request => (Flags::UNSCHEDULED, " unscheduled"),
            _ => (Flags::RESEND, " resend"),
        },
        match packet.message_type {
            MessageType::Request | MessageType::Response => (Flags::LONG, " long"),
            _ => (Flags::RESEND_TAIL, " resend-tail"),
        },
        match packet.message_type {
            MessageType::Feedback => (Flags::STOPPING, " stopping"),
            _ => (Flags::COOKIE, " cookie"),
        },
        match packet.message_type {
            MessageType::Ack => (Flags::HELD, " held"),
            _ => (Flags::MOVED, " moved"),
        },
    ];
    for (flag, text) in named {
        if flags.has(flag) {
            f.write_str(text)?;
        }
    }
    match flags.clone_mark() {
        super::CloneMark::Single => Ok(()),
        super::CloneMark::Original => f.write_str(" clone-original"),
        super::CloneMark::Copy => f.write_str(" clone-copy"),
    }
}

fn write_body(f: &mut fmt::Formatter<'_>, packet: &Packet) -> fmt::Result {
    if let Some(sack) = packet.sack() {
        let more: u32 = sack.bitmap.iter().map(|byte| byte.count_ones()).sum();
        return write!(f, " below {} and {more} more, granted {}", sack.base, sack.granted);
    }
    if let Some(body) = packet.feedback() {
        return write!(
            f,
            " epoch {:08x} seen {} received {} concluded {}",
            body.epoch, body.placement_seen, body.received, body.concluded
        );
    }
    if packet.message_type == MessageType::Claimed {
        write!(f, " {:?}", Verdict::from_payload(packet.payload))?;
    }
    if packet.message_type == MessageType::Drop && packet.is_extended() {
        write!(f, " {:?}", DropReason::from_payload(packet.payload))?;
        if let Some(Rejection { code, .. }) = Rejection::from_payload(packet.payload) {
            write!(f, " code {code}")?;
        }
    }
    Ok(())
}

fn name(message_type: MessageType) -> &'static str {
    match message_type {
        MessageType::Request => "request",
        MessageType::Response => "reply",
        MessageType::Feedback => "feedback",
        MessageType::Ack => "ack",
        MessageType::Drop => "drop",
        MessageType::ReplyAck => "reply-ack",
        MessageType::Cancel => "cancel",
        MessageType::Probe => "probe",
        MessageType::Claim => "claim",
        MessageType::Claimed => "claimed",
    }
}
