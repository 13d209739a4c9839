//! The ways in for bytes from the network: [`Packet::parse`] and [`Plain::parse`].

use zerocopy::FromBytes;

use super::{CClone, CloneMark, Header, NoClone, Op, Trailer};

/// A datagram to or from [`super::PORT`].
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The header.
    pub header: &'a Header,
    /// Its direction.
    pub op: Op,
    /// Mark of the copy that it is, or answers.
    pub mark: CloneMark,
    /// Fields that end hosts append; a switch does without.
    pub trailer: Option<&'a Trailer>,
    /// Bytes that follow, which are the application's.
    pub body: &'a [u8],
}

/// A datagram to or from [`super::PLAIN_PORT`], told by its length.
#[derive(Clone, Copy, Debug)]
pub enum Plain<'a> {
    /// A packet of the baseline without clones.
    NoClone(Op, &'a NoClone),
    /// A packet of the baseline whose client sends two copies.
    CClone(Op, &'a CClone),
}

/// Reason why bytes are not a packet. Each is a counter at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than the header, or of no length that there is.
    Length,
    /// Neither a request nor a response.
    Op,
    /// A clone mark above 2.
    Mark,
}

impl<'a> Packet<'a> {
    /// Reads a datagram. Never panics, whatever the bytes.
    ///
    /// # Errors
    /// Why it is no packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = Header::ref_from_prefix(bytes).map_err(|_| Malformed::Length)?;
        let op = Op::from_field(header.op).ok_or(Malformed::Op)?;
        let mark = CloneMark::from_field(header.clo).ok_or(Malformed::Mark)?;
        let (trailer, body) = match Trailer::ref_from_prefix(rest) {
            Ok((trailer, body)) => (Some(trailer), body),
            Err(_) => (None, rest),
        };
        Ok(Self { header, op, mark, trailer, body })
    }
}

impl<'a> Plain<'a> {
    /// Reads a datagram. Never panics, whatever the bytes.
    ///
    /// # Errors
    /// Why it is no packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if let Ok(packet) = NoClone::ref_from_bytes(bytes) {
            let op = Op::from_field(packet.op).ok_or(Malformed::Op)?;
            return Ok(Self::NoClone(op, packet));
        }
        let packet = CClone::ref_from_bytes(bytes).map_err(|_| Malformed::Length)?;
        let op = Op::from_field(packet.op).ok_or(Malformed::Op)?;
        Ok(Self::CClone(op, packet))
    }
}
