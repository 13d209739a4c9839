//! What the two halves of an endpoint share: configuration, buffers, events, counters, and the
//! credit for what they receive.

use std::collections::VecDeque;

use super::config::Config;
use super::incoming::Incoming;
use super::metrics::Metrics;
use crate::buffers::Buffers;
use crate::rpc::Event;

/// Passed to both halves with every call.
#[derive(Debug)]
pub(super) struct Shared {
    /// The configuration.
    pub(super) config: Config,
    /// Buffers for messages.
    pub(super) buffers: Buffers,
    /// Events that the application has not taken.
    pub(super) events: VecDeque<Event>,
    /// Counters since the start.
    pub(super) metrics: Metrics,
    /// Packets that peers may send at this moment, over all messages.
    expected_packets: u32,
}

impl Shared {
    pub(super) fn new(config: Config) -> Self {
        let buffers = Buffers::new(config.pool_bytes_max);
        Self {
            config,
            buffers,
            events: VecDeque::new(),
            metrics: Metrics::default(),
            expected_packets: 0,
        }
    }

    pub(super) fn expected_packets(&self) -> u32 {
        self.expected_packets
    }

    /// Takes note that `incoming` has changed since `before` packets of it were expected.
    pub(super) fn note_expected(&mut self, before: u32, incoming: &Incoming) {
        self.expected_packets = self.expected_packets + incoming.expected_packets() - before;
    }

    /// Extends the credit of a message by what the others leave of the whole; at least a little, so
    /// that every message moves.
    pub(super) fn extend_credit(&mut self, incoming: &mut Incoming) {
        let own = incoming.expected_packets();
        let others = self.expected_packets - own;
        let ahead = self.config.credit_packets().saturating_sub(others).max(AHEAD_MIN);
        incoming.extend_credit(ahead);
        self.note_expected(own, incoming);
    }

    /// True if the credit that `incoming` has not announced is worth a packet: 60 kB of full
    /// packets, or half of what the peer may still send.
    pub(super) fn is_credit_due(&self, incoming: &Incoming) -> bool {
        let unannounced = incoming.unannounced();
        unannounced >= CREDIT_STEP_MAX
            || unannounced > 0 && incoming.announced_left() <= unannounced
    }

    /// Ends a message and returns its bytes.
    pub(super) fn end(&mut self, incoming: &mut Incoming) -> Vec<u8> {
        let before = incoming.expected_packets();
        let payload = incoming.end();
        self.expected_packets -= before;
        payload
    }
}

/// Credit that a message has whatever the others hold.
const AHEAD_MIN: u32 = 4;

/// Credit is announced at least every so many packets: 60 kB of full ones.
const CREDIT_STEP_MAX: u32 = 44;
