//! Layouts of messages and replies, and their parsers. Offsets are those of
//! `docs/protocol/stream.md`.

use core::fmt;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCKED, FIN, FROM_OPENER, MAGIC, OFFSET_MAX};

/// Content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageKind {
    /// A stream is opened.
    Open = 1,
    /// Bytes of the stream.
    Data = 2,
    /// A limit alone.
    Window = 3,
    /// The stream has ended at the sender.
    Reset = 4,
}

impl MessageKind {
    /// The kind of byte 4; `None` for any other value.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Open,
            2 => Self::Data,
            3 => Self::Window,
            4 => Self::Reset,
            _ => return None,
        })
    }
}

/// The header of a message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MessageHeader {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`MessageKind`].
    pub kind: u8,
    /// [`FIN`], [`FROM_OPENER`] and [`BLOCKED`]; others are 0 when sent, ignored when received.
    pub flags: u8,
    /// 0 when sent, ignored when received.
    pub reserved: [u8; 2],
    /// The number that the opener has drawn for the stream; never 0.
    pub opener: U64,
    /// The number that the other side has drawn for it; 0 in OPEN alone.
    pub acceptor: U64,
    /// Offset in the stream of the first byte of DATA; 0 in other messages.
    pub offset: U64,
    /// The sender takes bytes of the other direction below this offset.
    pub limit: U64,
}

impl MessageHeader {
    /// True if `flag` is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A reply.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReplyHeader {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`Status`].
    pub status: u8,
    /// 0 when sent, ignored when received.
    pub reserved: [u8; 3],
    /// In the reply to OPEN, the number that the other side has drawn; else 0.
    pub acceptor: U64,
    /// Bytes below this offset are taken now, in the direction of the request.
    pub limit: U64,
}

/// Fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It was taken.
    Taken = 0,
    /// OPEN: nobody takes a stream here now.
    Refused = 1,
    /// The stream is not, or no longer, known.
    Gone = 2,
}

impl Status {
    /// The status of byte 4; `None` for any other value.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Taken,
            1 => Self::Refused,
            2 => Self::Gone,
            _ => return None,
        })
    }
}

/// A coherent message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its header.
    pub header: &'a MessageHeader,
    /// Its content.
    pub kind: MessageKind,
    /// The bytes of DATA; of others none.
    pub data: &'a [u8],
}

/// A coherent reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Fate of the message.
    pub status: Status,
    /// The number that the other side has drawn for the stream, in the reply to OPEN.
    pub acceptor: u64,
    /// Bytes below this offset are taken.
    pub limit: u64,
}

/// Reason why bytes are no message or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than the header has.
    Truncated,
    /// It does not begin as these do: something else, or another version.
    Magic,
    /// A kind or status that there is not.
    Kind,
    /// A field contradicts another, or is out of its range.
    Value,
}

impl<'a> Message<'a> {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// Why the bytes are not one.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, data) =
            MessageHeader::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
        if header.magic.get() != MAGIC {
            return Err(Malformed::Magic);
        }
        let kind = MessageKind::from_byte(header.kind).ok_or(Malformed::Kind)?;
        let (offset, is_last) = (header.offset.get(), header.has(FIN));
        let is_coherent = match kind {
            MessageKind::Open => header.acceptor.get() == 0 && header.has(FROM_OPENER),
            _ => header.acceptor.get() != 0,
        };
        let is_in_place = match kind {
            MessageKind::Data => {
                offset <= OFFSET_MAX - data.len() as u64 && (is_last || !data.is_empty())
            }
            _ => offset == 0 && !is_last && data.is_empty(),
        };
        if !is_coherent
            || !is_in_place
            || header.opener.get() == 0
            || header.limit.get() > OFFSET_MAX
        {
            return Err(Malformed::Value);
        }
        Ok(Self { header, kind, data })
    }
}

impl ReplyHeader {
    /// The reply as it is sent.
    pub fn new(reply: Reply) -> Self {
        Self {
            magic: MAGIC.into(),
            status: reply.status as u8,
            reserved: [0; 3],
            acceptor: reply.acceptor.into(),
            limit: reply.limit.into(),
        }
    }
}

impl Reply {
    /// Reads a reply; what comes after it is ignored.
    ///
    /// # Errors
    ///
    /// Why the bytes are not one.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, _) = ReplyHeader::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
        if header.magic.get() != MAGIC {
            return Err(Malformed::Magic);
        }
        let status = Status::from_byte(header.status).ok_or(Malformed::Kind)?;
        let limit = header.limit.get();
        if limit > OFFSET_MAX {
            Err(Malformed::Value)
        } else {
            Ok(Self { status, acceptor: header.acceptor.get(), limit })
        }
    }
}

/// One line a message, in the manner of tcpdump.
impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, data, .. } = self;
        let name = match self.kind {
            MessageKind::Open => "open",
            MessageKind::Data => "data",
            MessageKind::Window => "window",
            MessageKind::Reset => "reset",
        };
        let side = if header.has(FROM_OPENER) { ">" } else { "<" };
        write!(
            f,
            "stream {name} {:016x} {side} {:016x}",
            header.opener.get(),
            header.acceptor.get()
        )?;
        if self.kind == MessageKind::Data {
            write!(f, " at {} length {}", header.offset, data.len())?;
        }
        if header.has(FIN) {
            f.write_str(" fin")?;
        }
        if header.has(BLOCKED) {
            f.write_str(" blocked")?;
        }
        write!(f, " limit {}", header.limit)
    }
}
