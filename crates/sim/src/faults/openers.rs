//! Clients that have shown a server that they hear at their address, by the number that it has
//! drawn for a stream of theirs: only of such streams may it send anything by itself
//! (docs/protocol/stream.md).

use std::collections::BTreeSet;

use tailcut_wire::stream::{MAGIC, MessageHeader};
use zerocopy::FromBytes;

/// The streams of which servers have heard their number.
#[derive(Debug, Default)]
pub(super) struct Openers(BTreeSet<Stream>);

/// A stream: its server, its client, and both numbers.
type Stream = (usize, usize, u64, u64);

impl Openers {
    /// The first bytes of a request of a client have come to a server.
    pub(super) fn note(&mut self, server: usize, client: usize, bytes: &[u8]) {
        self.0.extend(stream(server, client, bytes).filter(|stream| stream.3 != 0));
    }

    /// True if a server may send a client a request that begins so.
    pub(super) fn has(&self, server: usize, client: usize, bytes: &[u8]) -> bool {
        stream(server, client, bytes).is_some_and(|stream| self.0.contains(&stream))
    }

    /// A server has lost what it knew.
    pub(super) fn crashed(&mut self, server: usize) {
        self.0.retain(|stream| stream.0 != server);
    }
}

fn stream(server: usize, client: usize, bytes: &[u8]) -> Option<Stream> {
    let (header, _) = MessageHeader::ref_from_prefix(bytes).ok()?;
    let numbers = (header.opener.get(), header.acceptor.get());
    (header.magic.get() == MAGIC).then_some((server, client, numbers.0, numbers.1))
}
