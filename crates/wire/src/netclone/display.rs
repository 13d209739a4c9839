//! A packet in a line, for `tailcut dissect`.

use core::fmt;

use super::{CloneMark, Op, Packet, Plain};

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header;
        match self.op {
            Op::Request => write!(f, "NetClone REQUEST seq {} grp {}", header.seq, header.grp)?,
            Op::Response => {
                let (seq, sid, load) = (header.seq, header.sid, header.load);
                write!(f, "NetClone RESPONSE seq {seq} server {sid} load {load}")?;
            }
        }
        match self.mark {
            CloneMark::Single => {}
            CloneMark::Original => write!(f, " original")?,
            CloneMark::Clone => write!(f, " clone")?,
        }
        write!(f, " table {}, length {}", header.tidx, self.body.len())
    }
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, op, key) = match self {
            Self::NoClone(op, packet) => ("NoClone", op, packet.key),
            Self::CClone(op, packet) => ("C-Clone", op, packet.key),
        };
        let op = match op {
            Op::Request => "REQUEST",
            Op::Response => "RESPONSE",
        };
        write!(f, "{name} {op} key {key}")
    }
}
