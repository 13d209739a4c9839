//! The R2P2 endpoint: client and server over one port.
//!
//! [`Endpoint`] is a [`Node`] and an [`Rpc`]. It parses each datagram once and hands it to the half
//! it concerns:
//!
//! | packet | half |
//! |---|---|
//! | REQUEST, REPLY_ACK, CANCEL, PROBE, CLAIM | `server` |
//! | RESPONSE, ACK, DROP | `client` |
//! | FEEDBACK, CLAIMED | none; they are a router's |
//!
//! Both halves speak version 1 to version 1 peers and the extension to the rest; see
//! `docs/protocol/r2p2.md`.

mod admission;
mod alternates;
mod bits;
mod claims;
mod client;
mod client_copies;
mod client_direct;
mod client_moves;
mod client_names;
mod client_proof;
mod client_reset;
mod client_send;
mod client_v1;
mod config;
mod cookies;
mod copies;
mod incoming;
mod metrics;
mod named;
mod outgoing;
mod pace;
mod pacing;
mod queue;
mod renounced;
pub(crate) mod routers;
mod server;
mod server_send;
mod server_v1;
mod servers;
mod shared;
mod terms;

use std::net::SocketAddr;
use std::sync::Arc;

use tailcut_wire::r2p2::{DropReason, MessageType, Packet, Rejection};

pub use self::config::{Cloning, Config, Copies, Hedge, Loser, Pool, Prefix};
pub use self::metrics::Metrics;
pub use crate::call::counters::Counters;
pub use crate::peer::cookies::AskCookies;
pub use crate::peer::limits::{Holdings, Serving};

use self::client::Client;
use self::server::Server;
use self::shared::Shared;
use crate::call::numbering::Numbers;
use crate::node::{Attached, Node, Path, Time, Transmit};
use crate::rpc::{AnswerError, Call, CallError, CallId, Event, Lent, RequestId, Rpc};
use crate::sealed::{Access, ChangedKeys, ClientEpoch, Denial, Keys, LostKeys, TRAILER_LEN};

/// Packets of a reply that a server sends before the client has given credit, and of a request that
/// goes to a server that has taken longer ones: whoever receives takes so many.
pub const UNSCHEDULED_PACKETS: u16 = 12;

/// Most bytes that go unscheduled in packets longer than the default, of which one always goes.
const UNSCHEDULED_BYTES: u16 = UNSCHEDULED_PACKETS * 1_380;

/// Packets of so many bytes that go unscheduled.
#[inline]
fn unscheduled_packets(segment_len: u16) -> u16 {
    // At least one, however long: the first packet is what the other end answers.
    (UNSCHEDULED_BYTES / segment_len.max(1)).clamp(1, UNSCHEDULED_PACKETS)
}

/// Time for which a server that stops still takes what routers send: five of their probes, each of
/// which tells them to stop.
pub const STOPPING_GRACE_NS: u64 = 50_000_000;

/// An R2P2 client and server on one port.
#[derive(Debug)]
pub struct Endpoint {
    /// Calls that it has made.
    client: Client,
    /// Requests that it is asked to answer.
    server: Server,
    /// State that both halves use.
    shared: Shared,
}

impl Endpoint {
    /// An endpoint that starts at `now`.
    pub fn new(now: Time, mut config: Config) -> Self {
        // The most and the longest header fit the 65,507 bytes of a UDP datagram; of the least a
        // seal's trailer leaves something.
        config.segment_len = config.segment_len.clamp(64, 65_000);
        config.local_segment_len = config.local_segment_len.min(65_000);
        if config.seal.is_some() {
            // What sealing adds fits the same datagrams.
            config.segment_len -= TRAILER_LEN as u16;
            config.local_segment_len = config.local_segment_len.saturating_sub(TRAILER_LEN as u16);
        }
        // Secret: keys that were chosen to share a bucket would make every packet cost more.
        let seed = Numbers::new(&config.secret, b"tables").seed();
        let client = Client::new(&config, seed);
        let server = Server::new(now, &config, (seed, (seed >> 32) as u32));
        Self { client, server, shared: Shared::new(now, config) }
    }

    /// Counters since the start.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Everything that it holds now.
    pub fn holdings(&self) -> Holdings {
        Holdings {
            calls: self.client.calls(),
            expected: u64::from(self.shared.expected_packets()),
            ..self.server.held
        }
    }

    /// True if one more call is within the limit of what may be outstanding.
    pub fn may_call(&self, _target: SocketAddr, _len: usize) -> bool {
        // A call's place in the table is its number in packets, of 16 bits.
        self.client.calls() < self.shared.config.calls_max.min(usize::from(u16::MAX))
    }

    /// Says how many requests the application runs at once; see
    /// [`crate::endpoint::Endpoint::set_workers`].
    pub fn set_workers(&mut self, workers: usize) {
        self.server.workers = workers;
    }

    /// Says when to come back; see [`crate::endpoint::Endpoint::set_retry_after`].
    pub fn set_retry_after(&mut self, retry_after_ns: u64) {
        // A DROP tells it in 32 bits, 4.3 s at most.
        self.server.retry_after_ns = u32::try_from(retry_after_ns).unwrap_or(u32::MAX);
    }

    /// Takes no new requests from now on; see [`crate::endpoint::Endpoint::stop`].
    pub fn stop(&mut self, now: Time) {
        self.server.stop(now);
    }

    /// Takes new requests again; see [`crate::endpoint::Endpoint::serve_again`].
    pub fn serve_again(&mut self) {
        self.server.serve_again();
    }

    /// True if the application has yet to answer a request, and somebody waits for it.
    pub fn is_waiting(&self, id: RequestId) -> bool {
        self.server.waiting(id).is_some()
    }

    /// The number of the client whose request this is, where packets are sealed.
    pub fn client_of(&self, id: RequestId) -> Option<u32> {
        // Open packets name no client: what stands in their slots is 0.
        self.shared.seal.as_ref()?;
        self.server.sender_of(id).map(ClientEpoch::client)
    }

    /// Replies of which packets have never been sent.
    pub fn replies_under_way(&self) -> usize {
        self.server.replies_under_way()
    }

    /// Bytes that it remembers of the sessions of its clients, to run no request twice.
    pub fn sessions_bytes(&self) -> usize {
        self.server.clients.sessions_bytes()
    }

    /// Takes a packet that is open, or has been opened.
    fn handle_packet(&mut self, now: Time, path: &Path, bytes: &[u8]) {
        let shared = &mut self.shared;
        // Read where it is, not copied out of the result.
        let parsed = Packet::parse(bytes);
        let packet = match &parsed {
            Ok(packet) => packet,
            Err(reason) => return shared.metrics.malformed(*reason),
        };
        match packet.message_type {
            MessageType::Request => {
                self.server.handle_request(now, *path, packet, bytes.len(), shared)
            }
            MessageType::ReplyAck => {
                self.server.handle_reply_ack(path.peer, packet, bytes.len(), shared)
            }
            MessageType::Cancel => self.server.handle_cancel(path.peer, packet, shared),
            MessageType::Probe => self.server.handle_probe(now, *path, packet, shared),
            MessageType::Claim => self.server.handle_claim(now, *path, packet, shared),
            MessageType::Response => self.client.handle_response(now, path, packet, shared),
            MessageType::Ack => self.client.handle_ack(now, path, packet, shared),
            MessageType::Drop => self.client.handle_drop(now, path.peer, packet, shared),
            MessageType::Feedback | MessageType::Claimed => shared.metrics.unexpected += 1,
        }
    }
}

impl Node for Endpoint {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        let shared = &mut self.shared;
        shared.metrics.datagrams_in += 1;
        let Some(seal) = &mut shared.seal else { return self.handle_packet(now, &path, bytes) };
        let opened = seal.open(now, path.peer, bytes);
        shared.metrics.seal = seal.metrics();
        let packet_len = seal.packet_len();
        let Some(len) = opened else { return shared.answer_no_key(path, bytes) };
        // Under one seal there may be several packets, of one length but for the last.
        for packet in bytes[..len].chunks(packet_len) {
            self.handle_packet(now, &path, packet);
        }
    }

    fn handle_unreachable(&mut self, now: Time, peer: SocketAddr) {
        self.client.handle_unreachable(now, peer, &mut self.shared);
    }

    fn handle_wall_clock(&mut self, now: Time, unix_ns: u64) {
        if let Some(seal) = &mut self.shared.seal {
            seal.set_clock(now, unix_ns);
        }
    }

    fn update_keys(&mut self, now: Time, keys: &Keys) -> Result<(), ChangedKeys> {
        self.shared.seal.as_mut().map_or(Ok(()), |seal| seal.update_keys(now, keys))
    }

    fn update_access(&mut self, access: &Arc<Access>) {
        if let Some(seal) = &mut self.shared.seal {
            seal.update_access(access);
        }
    }

    #[inline]
    fn denials(&self) -> (u64, Option<&Denial>) {
        self.shared.seal.as_ref().map_or((0, None), |seal| seal.denials())
    }

    fn lost_keys(&self) -> LostKeys {
        self.shared.seal.as_ref().map_or_else(LostKeys::default, |seal| seal.lost_keys())
    }

    fn handle_timeout(&mut self, now: Time) {
        self.client.handle_timeout(now, &mut self.shared);
        self.server.handle_timeout(now, &mut self.shared);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        // Most calls find nothing: the one after the last transmit, and those of turns that only
        // took something in.
        if self.server.is_silent() && self.client.is_silent() && !self.shared.has_answer() {
            return None;
        }
        // Apart from the loop: it is not sealed, since the key of its epoch is what is missing.
        if let Some(answer) = self.shared.poll_answer(buffer) {
            return Some(answer);
        }
        loop {
            let from_server = self.server.poll_transmit(buffer, &mut self.shared);
            let transmit =
                from_server.or_else(|| self.client.poll_transmit(now, buffer, &mut self.shared))?;
            // Of one that must not go nothing is left, and what waits behind it goes.
            if let Some(sealed) = self.shared.sealed(now, transmit, buffer) {
                return Some(sealed);
            }
        }
    }

    #[inline]
    fn poll_attached(&mut self, now: Time, buffer: &mut [u8]) -> Option<(Transmit, Attached)> {
        if self.shared.seal.is_some() {
            // A payload is sealed in the driver's buffer.
            return None;
        }
        // What the server half has to say goes first.
        if !self.server.is_silent() {
            return self.server.poll_attached(buffer, &mut self.shared);
        }
        self.client.poll_attached(now, buffer, &mut self.shared)
    }

    fn attached(&self, attached: &Attached) -> &[u8] {
        match attached.is_reply {
            true => self.server.attached(attached),
            false => self.client.attached(attached),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let (client, server) = (self.client.poll_timeout(), self.server.poll_timeout());
        client.into_iter().chain(server).min()
    }
}

impl Rpc for Endpoint {
    fn call(&mut self, now: Time, call: Call) -> Result<CallId, CallError> {
        self.client.call(now, call, None, &mut self.shared)
    }

    fn call_lent(&mut self, now: Time, call: Call, request: Lent) -> Result<CallId, CallError> {
        self.client.call(now, call, Some(request), &mut self.shared)
    }

    fn cancel(&mut self, _now: Time, id: CallId) {
        self.client.cancel(id, &mut self.shared);
    }

    fn reply(&mut self, now: Time, id: RequestId, payload: Vec<u8>) -> Result<(), AnswerError> {
        self.server.reply(now, id, payload, &mut self.shared)
    }

    fn refuse(&mut self, _now: Time, id: RequestId, reason: DropReason) -> Result<(), AnswerError> {
        self.server.refuse(id, reason, &mut self.shared)
    }

    fn reject(
        &mut self,
        _now: Time,
        id: RequestId,
        code: u32,
        text: &[u8],
    ) -> Result<(), AnswerError> {
        self.server.reject(id, Rejection { code, text }, &mut self.shared)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.shared.buffers.take_any()
    }

    fn buffer_for(&mut self, len: usize) -> Vec<u8> {
        self.shared.buffers.take_for(len)
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.shared.buffers.give(buffer);
    }
}
