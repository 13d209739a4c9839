//! Byte streams over RPCs: what the requests say that carry them, and what is replied.
//!
//! | request | says | data |
//! |---|---|---|
//! | OPEN | this host opens a stream | none |
//! | DATA | these bytes stand at this offset; with FIN, nothing comes after them | to the end of the message |
//! | WINDOW | bytes below this limit are taken; also: are you there? | none |
//! | RESET | the stream has ended here | none |
//!
//! The reply says whether the request was taken, and below which offset bytes are taken now.
//! `docs/protocol/stream.md` is the normative text. [`Message::parse`] and [`Reply::parse`] are the
//! only ways in for bytes from the network.

mod message;

pub use message::{Malformed, Message, MessageHeader, MessageKind, Reply, ReplyHeader, Status};

/// Beginning of every message and reply: a name, and version 1.
pub const MAGIC: u32 = 0x7453_7401;
/// Length of the header of a message; data follow.
pub const MESSAGE_LEN: usize = 40;
/// Length of a reply.
pub const REPLY_LEN: usize = 24;
/// Flag of a DATA message after whose bytes nothing comes.
pub const FIN: u8 = 0x01;
/// Flag of every message of the side that opened the stream.
pub const FROM_OPENER: u8 = 0x02;
/// Flag of a DATA message whose sender has as much to send as the limit allows, or more.
pub const BLOCKED: u8 = 0x04;
/// No stream has more bytes than this in a direction, so that offsets never overflow.
pub const OFFSET_MAX: u64 = 1 << 62;
/// Most DATA messages of one direction of a stream that may be unanswered.
pub const IN_FLIGHT_MAX: usize = 64;
