//! The log of a server's connections: its ports, and whose connections it ended or refused.
//!
//! A line at once, then at most one a second: with how many there were since the last line, and the
//! latest of them.

use std::borrow::Cow;
use std::net::SocketAddr;

use tailcut_net::stream::{Reason, Streams};
use tailcut_proto::node::Time;

/// The log of all ports.
#[derive(Debug)]
pub(super) struct PeerLog {
    ports: Vec<SocketAddr>,
    /// Connections since the last line.
    count: u64,
    /// The latest of them, and what became of it.
    latest: Option<(SocketAddr, Cow<'static, str>)>,
    /// Refused accepts that were counted at the last look.
    refused: u64,
    /// Time from which the next line may be written.
    next_at: Time,
}

impl PeerLog {
    /// The log of these ports, which says that they are open.
    pub(super) fn new(ports: Vec<SocketAddr>) -> Self {
        for at in &ports {
            tracing::info!(%at, "port opened");
        }
        Self { ports, count: 0, latest: None, refused: 0, next_at: 0 }
    }

    /// A connection was ended by this server.
    pub(super) fn note(&mut self, peer: SocketAddr, why: impl Into<Cow<'static, str>>) {
        self.count += 1;
        self.latest = Some((peer, why.into()));
    }

    /// A connection has ended. That peers leave as they please is no trouble.
    pub(super) fn note_end(&mut self, peer: SocketAddr, reason: Reason) {
        match reason {
            Reason::Tls(text) => self.note(peer, text),
            Reason::TimedOut => self.note(peer, "it was too slow"),
            _ => {}
        }
    }

    /// To call after each turn; returns when it wants to be called again.
    #[inline]
    pub(super) fn look(&mut self, now: Time, streams: &Streams) -> Option<Time> {
        let refused = streams.metrics().accepts_refused;
        if let Some(peer) = streams.refused_peer().filter(|_| refused > self.refused) {
            self.count += refused - self.refused - 1;
            self.refused = refused;
            self.note(peer, "there are as many connections as are permitted");
        }
        let (peer, why) = self.latest.as_ref()?;
        if now < self.next_at {
            return Some(self.next_at);
        }
        tracing::warn!(%peer, count = self.count, "connection refused or ended: {why}");
        (self.count, self.latest) = (0, None);
        self.next_at = now.saturating_add(LINE_INTERVAL_NS);
        None
    }
}

impl Drop for PeerLog {
    fn drop(&mut self) {
        for at in &self.ports {
            tracing::info!(%at, "port closed");
        }
    }
}

/// Between two lines.
const LINE_INTERVAL_NS: Time = 1_000_000_000;
