//! One line a packet, in the manner of tcpdump.

use core::fmt;

use super::{DropReason, Kind, Marks, MessageType, Packet, Policy};

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R2P2 {}", name(self.message_type))?;
        match self.kind {
            Kind::V1 if self.message_type == MessageType::Feedback => {}
            Kind::V1 => write!(f, " rid {}", self.rid)?,
            Kind::Extended { header, .. } => write!(f, " id {:016x}", header.ext.rpc_id.get())?,
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
        if let Kind::Extended { header, route } = self.kind {
            let ext = &header.ext;
            if self.is_data() {
                write!(f, " of {} B", ext.message_len)?;
            }
            write_marks(f, Marks(ext.marks))?;
            let is_request = self.message_type == MessageType::Request;
            if is_request && ext.deadline_us.get() != 0 {
                write!(f, " deadline {}us", ext.deadline_us)?;
            }
            if !is_request && (ext.server_id.get() != 0 || ext.server_load.get() != 0) {
                write!(f, " server {} load {}", ext.server_id, ext.server_load)?;
            }
            if let Some(route) = route.filter(|route| route.routed != 0) {
                write!(f, " placement {}", route.placement)?;
            }
        }
        write_body(f, self)?;
        write!(f, ", length {}", self.payload.len())
    }
}

fn write_marks(f: &mut fmt::Formatter<'_>, marks: Marks) -> fmt::Result {
    let named = [
        (Marks::IDEMPOTENT, " idempotent"),
        (Marks::AGAIN, " again"),
        (Marks::RESEND, " resend"),
        (Marks::RESEND_TAIL, " resend-tail"),
    ];
    for (mark, text) in named {
        if marks.has(mark) {
            f.write_str(text)?;
        }
    }
    match marks.clone_mark() {
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
    if packet.message_type == MessageType::Drop && packet.extended().is_some() {
        return write!(f, " {:?}", DropReason::from_payload(packet.payload));
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
    }
}
