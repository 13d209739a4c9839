//! The client's side of NetClone's published format, around what an application says.
//!
//! A request's own name stands where the published client puts the time of its send: servers echo
//! it, and no switch reads it. So a reply is known whatever ids the switch has given, also after
//! the switch has begun anew, and a second reply finds nobody waiting.

use tailcut_measure::app::{App, DatagramFramer, Expected, Key, Malformed, Outcome, Replies};
use tailcut_proto::policy::Draws;
use tailcut_wire::netclone::{Header, Op, PACKET_LEN, Packet, Trailer};
use zerocopy::IntoBytes;

/// Writes what stands before a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope {
    /// Groups of the switch: the ordered pairs of its servers.
    groups: u32,
    draws: Draws,
}

impl Envelope {
    /// Before a switch of so many servers.
    pub(super) fn new(servers: u32, seed: u64) -> Self {
        Self { groups: (servers * servers.saturating_sub(1)).max(1), draws: Draws::new(seed) }
    }

    /// Makes room for it in an empty buffer.
    pub(super) fn open(buffer: &mut Vec<u8>) {
        buffer.resize(PACKET_LEN, 0);
    }

    /// Writes it, before what the application has appended under this name.
    pub(super) fn seal(&mut self, tag: u64, buffer: &mut [u8]) {
        let grp = 1 + self.draws.below(self.groups);
        let tidx = self.draws.below(2);
        let header = Header { grp: grp.into(), tidx: tidx.into(), ..Header::default() };
        let trailer = Trailer { stamp: tag.to_be_bytes(), ..Trailer::default() };
        let (head, rest) = buffer.split_at_mut(size_of::<Header>());
        head.copy_from_slice(header.as_bytes());
        rest[..size_of::<Trailer>()].copy_from_slice(trailer.as_bytes());
    }
}

/// Takes replies out of their envelopes.
#[derive(Debug)]
pub(super) struct Enveloped(Replies);

impl Enveloped {
    pub(super) fn new(app: &App) -> Self {
        Self(Replies::new(app))
    }
}

impl DatagramFramer for Enveloped {
    fn key(&self, datagram: &[u8]) -> Result<Key, Malformed> {
        match Packet::parse(datagram) {
            Ok(Packet { op: Op::Response, trailer: Some(trailer), .. }) => {
                Ok(Key::Tag(u64::from_be_bytes(trailer.stamp)))
            }
            _ => Err(Malformed::Unsolicited),
        }
    }

    fn take(&mut self, datagram: &[u8], expected: Expected) -> Result<Option<Outcome>, Malformed> {
        let body = datagram.get(PACKET_LEN..).ok_or(Malformed::Truncated)?;
        self.0.judge(body, expected).map(|reply| Some(reply.outcome))
    }
}
