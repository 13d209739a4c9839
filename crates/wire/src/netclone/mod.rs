//! NetClone's own format, as its published switch program, clients and servers speak it over UDP
//! and IPv4.
//!
//! | packet | bytes | to port | what it is |
//! |---|---|---|---|
//! | [`Header`], [`Trailer`] | 28 + 24 | [`PORT`] | a request that a switch may clone, and its response from that port |
//! | [`CClone`] | 36 | [`PLAIN_PORT`] | one of two copies that its client sends, and its response |
//! | [`NoClone`] | 32 | [`PLAIN_PORT`] | a request of the baseline, and its response |
//!
//! Fields are 32 bits, big-endian, packed, but for what is opaque: the client's send timestamp and
//! the address that a server puts down there, both in the order of the host that wrote them. The
//! switch reads the header alone; end hosts append the trailer. What follows the trailer is the
//! application's: nothing in the published programs, which also cut off what is there.
//!
//! `docs/protocol/netclone.md` says what the fields mean and which traps the published programs
//! have.

mod display;
mod header;
mod packet;

pub use header::{CClone, CloneMark, Header, NoClone, Op, Trailer};
pub use packet::{Malformed, Packet, Plain};

/// UDP port of servers of [`Packet`]s: a switch knows requests by it, and responses by their
/// source.
pub const PORT: u16 = 1_000;
/// UDP port of servers of [`Plain`] packets, which no switch looks at.
pub const PLAIN_PORT: u16 = 2_000;
/// Bytes that a switch reads.
pub const HEADER_LEN: usize = 28;
/// Bytes that end hosts append to them.
pub const TRAILER_LEN: usize = 24;
/// Bytes of a packet of the published programs.
pub const PACKET_LEN: usize = HEADER_LEN + TRAILER_LEN;
/// Bytes of a [`CClone`].
pub const C_CLONE_LEN: usize = 36;
/// Bytes of a [`NoClone`].
pub const NO_CLONE_LEN: usize = 32;
/// The last id of a switch, which goes on with 1; 0 is none.
pub const SEQ_MAX: u32 = 100_000_000;
/// Most servers behind a switch: their 240 ordered pairs are the groups, of which its table has
/// room for 256.
pub const SERVERS_MAX: u32 = 16;
