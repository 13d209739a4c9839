//! State that the two halves of an endpoint share: configuration, buffers, events, counters, and
//! the credit for what they receive.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tailcut_wire::r2p2::{EXTENDED_LEN, Packet};

use super::config::Config;
use super::incoming::Incoming;
use super::metrics::Metrics;
use super::unscheduled_packets;
use crate::buffers::Buffers;
use crate::node::{Path, Time, Transmit, is_unanswerable};
use crate::peer::table::NOBODY;
use crate::rpc::{CallId, CallOptions, Event, RequestId};
use crate::sealed::{ANSWER_LEN, ANSWERS_MAX, ClientEpoch, EndpointSeal, TRAILER_LEN};

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
    /// The seal, where packets are sealed.
    pub(super) seal: Option<Box<EndpointSeal>>,
    /// Answers to requests of whose epoch there is no key, to be sent.
    answers: VecDeque<(Path, [u8; ANSWER_LEN])>,
    /// Packets that peers may send at this moment, over all messages.
    expected_packets: u32,
}

impl Shared {
    pub(super) fn new(now: Time, config: Config) -> Self {
        let buffers = Buffers::new(config.pool_bytes_max);
        let seal = config.seal.as_ref().map(|sealing| {
            let tables = (config.clients_max, config.pool.router);
            // Several packets are no longer than the longest one.
            let len_max = || EXTENDED_LEN + usize::from(config.segment_len) + TRAILER_LEN;
            let secret = &config.secret;
            Box::new(EndpointSeal::new(now, sealing, secret, tables).gathering(len_max()))
        });
        Self {
            config,
            buffers,
            events: VecDeque::new(),
            metrics: Metrics::default(),
            seal,
            answers: VecDeque::new(),
            expected_packets: 0,
        }
    }

    /// Answers a packet that the seal could not open, if it is a request of whose epoch there is no
    /// key.
    #[cold]
    pub(super) fn answer_no_key(&mut self, path: Path, bytes: &[u8]) {
        let answer = self.seal.as_mut().and_then(|seal| seal.answer(path.peer, bytes));
        let Some((peer, answer)) = answer else { return };
        // Clients of a lost epoch may all ask at once: who is left out asks again.
        if !is_unanswerable(peer.ip()) && self.answers.len() < ANSWERS_MAX {
            self.answers.push_back((Path { peer, ..path }, answer));
        }
    }

    /// True if an answer is to be sent.
    #[inline]
    pub(super) fn has_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Writes one that is to be sent; it is not sealed.
    #[inline]
    pub(super) fn poll_answer(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (path, answer) = self.answers.pop_front()?;
        buffer.get_mut(..answer.len())?.copy_from_slice(&answer);
        self.metrics.datagrams_out += 1;
        Some(Transmit::single(path, answer.len()))
    }

    /// The number of the client whose packet is being handled; 0 where packets are open.
    #[inline]
    pub(super) fn sender(&self) -> ClientEpoch {
        self.seal.as_ref().map_or_else(ClientEpoch::default, |seal| seal.sender())
    }

    /// True if the packet that is being handled names nobody as its receiver, and is sealed: its
    /// sender is to be told whom it has reached.
    #[inline]
    pub(super) fn is_unnamed(&self) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.is_unnamed())
    }

    /// Addressee, for the seal, of the answer to the packet that is being handled.
    #[inline]
    pub(super) fn addressee(&self) -> u64 {
        self.seal.as_ref().map_or(0, |seal| seal.addressee())
    }

    /// Addressee, for the seal, of a packet for a client.
    #[inline]
    pub(super) fn addressed(&self, sender: ClientEpoch) -> u64 {
        if self.seal.is_some() { sender.addressee() } else { 0 }
    }

    /// True if the access policy allows the request, of which this is the first packet, and which
    /// was opened last.
    #[inline]
    pub(super) fn is_allowed(&mut self, packet: &Packet) -> bool {
        let Some(seal) = &mut self.seal else { return true };
        let is_allowed = seal.check_access(packet.payload, packet.count == 1).is_ok();
        self.metrics.seal = seal.metrics();
        is_allowed
    }

    /// Bytes that each datagram leaves for the seal.
    #[inline]
    pub(super) fn trailer_len(&self) -> usize {
        if self.seal.is_some() { TRAILER_LEN } else { 0 }
    }

    /// Seals a transmit in place, if packets are sealed. What must not go is taken out of it;
    /// `None` if nothing is left.
    #[inline]
    pub(super) fn sealed(
        &mut self,
        now: Time,
        transmit: Transmit,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        match &mut self.seal {
            None => Some(transmit),
            Some(seal) => {
                let sealed = seal.seal_transmit(now, transmit, buffer);
                self.metrics.seal = seal.metrics();
                sealed
            }
        }
    }

    /// Tells the application that a call, of a context, is answered. The event is written where it
    /// stands: one that is put together first is read back in other pieces than it was written in,
    /// for which the processor waits.
    #[inline]
    pub(super) fn tell_replied(
        &mut self,
        (call, of): (CallId, u64),
        by: SocketAddr,
        reply: Vec<u8>,
    ) {
        self.events.push_back(NO_REPLY);
        if let Some(Event::Replied { id, context, server, payload }) = self.events.back_mut() {
            (*id, *context, *server, *payload) = (call, of, by, reply);
        }
    }

    /// Tells the application that there is a request, until a deadline, in the same way.
    #[inline]
    pub(super) fn tell_request(
        &mut self,
        (request, until): (RequestId, Time),
        from: &SocketAddr,
        terms: CallOptions,
        bytes: Vec<u8>,
    ) {
        self.events.push_back(NO_REQUEST);
        if let Some(Event::Request { id, client, payload, deadline, options }) =
            self.events.back_mut()
        {
            (*id, *client, *payload, *deadline, *options) = (request, *from, bytes, until, terms);
        }
    }

    pub(super) fn expected_packets(&self) -> u32 {
        self.expected_packets
    }

    /// Begins a message of which a packet has come that says these lengths, of the message and of
    /// packets, into an empty buffer.
    pub(super) fn begin_incoming(
        &mut self,
        incoming: &mut Incoming,
        buffer: Vec<u8>,
        (message_len, segment_len): (u32, u16),
    ) {
        incoming.begin(buffer, message_len, segment_len, unscheduled_packets(segment_len));
        incoming.count_by(self.config.segment_len);
        self.note_expected(0, incoming);
    }

    /// Takes note that `incoming` has changed since `before` packets of it were expected.
    pub(super) fn note_expected(&mut self, before: u32, incoming: &Incoming) {
        // In this order: `before` is part of the sum, so that nothing falls below 0.
        self.expected_packets = self.expected_packets + incoming.expected_packets() - before;
    }

    /// Extends the credit of a message by what the others leave of the whole, which is all of it
    /// where it is alone, else half: so those that are there come to equal shares, and a new one
    /// finds some (dynamic thresholds, Choudhury and Hahne, ToN'98). At least a little, so that
    /// every message moves.
    pub(super) fn extend_credit(&mut self, incoming: &mut Incoming) {
        let own = incoming.expected_packets();
        let others = self.expected_packets - own;
        let left = self.config.credit_packets().saturating_sub(others);
        let share = if others == 0 { left } else { left / 2 };
        incoming.extend_credit(share.max(AHEAD_MIN));
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
        // Credit that was not used goes back to the others.
        let before = incoming.expected_packets();
        let payload = incoming.end();
        self.buffers.give(incoming.take_spare());
        self.expected_packets -= before;
        payload
    }
}

/// An answer of nobody.
const NO_REPLY: Event =
    Event::Replied { id: CallId(0), context: 0, server: NOBODY, payload: Vec::new() };

/// A request of nobody.
const NO_REQUEST: Event = Event::Request {
    id: RequestId(0),
    client: NOBODY,
    payload: Vec::new(),
    deadline: 0,
    options: CallOptions { idempotent: false, fixed: false, v1: false },
};

/// Credit that a message has whatever the others hold.
const AHEAD_MIN: u32 = 4;

/// Credit is announced at least every so many packets: 60 kB of full ones.
const CREDIT_STEP_MAX: u32 = 44;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use tailcut_wire::r2p2::sealed::{SEALED_VERSION, VERSION_AT};
    use tailcut_wire::r2p2::{EXTENDED_LEN, MessageType, RequestRepr, RpcId, SessionId};

    use super::*;
    use crate::sealed::{Cipher, EpochKey, HopKey, Keys, Role, Sealing, Secret};

    const LENGTHS: (u32, u16) = (100_000, 100);

    /// An end that gives credit for so many packets of 100 bytes.
    fn shared(credit_packets: usize) -> Shared {
        let config =
            Config { segment_len: 100, credit_bytes: 100 * credit_packets, ..Config::default() };
        Shared::new(0, config)
    }

    fn begin(shared: &mut Shared, granted: u16) -> Incoming {
        let mut incoming = Incoming::default();
        incoming.begin(Vec::new(), LENGTHS.0, LENGTHS.1, granted);
        shared.note_expected(0, &incoming);
        incoming
    }

    fn take(shared: &mut Shared, incoming: &mut Incoming, indexes: std::ops::Range<u16>) {
        let before = incoming.expected_packets();
        for index in indexes {
            incoming.accept(index, LENGTHS, &[0; 100]);
        }
        shared.note_expected(before, incoming);
    }

    #[test]
    fn messages_share_the_credit_and_each_moves() {
        let mut shared = shared(30);
        let mut first = begin(&mut shared, 12);
        shared.extend_credit(&mut first);
        assert_eq!((first.expected_packets(), shared.expected_packets()), (30, 30));
        let mut second = begin(&mut shared, 2);
        shared.extend_credit(&mut second);
        assert_eq!(second.expected_packets(), AHEAD_MIN);
        take(&mut shared, &mut first, 0..20);
        shared.extend_credit(&mut second);
        assert_eq!((second.expected_packets(), shared.expected_packets()), (10, 20));
        shared.end(&mut first);
        assert_eq!(shared.expected_packets(), 10);
        shared.extend_credit(&mut second);
        assert_eq!(second.expected_packets(), 30);
        shared.end(&mut second);
        assert_eq!(shared.expected_packets(), 0);
    }

    #[test]
    fn messages_come_to_equal_shares_of_the_credit() {
        let mut shared = shared(100);
        let mut first = begin(&mut shared, 12);
        shared.extend_credit(&mut first);
        let mut second = begin(&mut shared, 2);
        // Packets of both arrive in turns, as many of each.
        for index in 0..100 {
            take(&mut shared, &mut first, index..index + 1);
            shared.extend_credit(&mut first);
            if second.expected_packets() > 0 {
                take(&mut shared, &mut second, index..index + 1);
            }
            shared.extend_credit(&mut second);
        }
        let shares = (first.expected_packets(), second.expected_packets());
        assert!((32..=34).contains(&shares.0) && (32..=34).contains(&shares.1), "{shares:?}");
    }

    #[test]
    fn credit_is_worth_a_packet_when_half_of_it_is_not_announced() {
        let mut shared = shared(12);
        let mut incoming = begin(&mut shared, 12);
        let mut due = Vec::new();
        for index in 0..8 {
            take(&mut shared, &mut incoming, index..index + 1);
            shared.extend_credit(&mut incoming);
            due.push(shared.is_credit_due(&incoming));
        }
        // After six, six are left of what was announced, and six are not.
        assert_eq!(due, [false, false, false, false, false, true, true, true]);
        incoming.sack();
        assert!(!shared.is_credit_due(&incoming));
    }

    #[test]
    fn credit_without_an_end_is_announced_every_44_packets() {
        for (taken, is_due) in [(43, false), (44, true)] {
            let mut shared = shared(200);
            let mut incoming = begin(&mut shared, 200);
            take(&mut shared, &mut incoming, 0..taken);
            shared.extend_credit(&mut incoming);
            assert_eq!(shared.is_credit_due(&incoming), is_due, "{taken} taken");
        }
    }

    #[test]
    fn nothing_is_due_where_all_credit_is_announced() {
        let mut shared = shared(12);
        let mut incoming = begin(&mut shared, 12);
        take(&mut shared, &mut incoming, 0..12);
        assert!(!shared.is_credit_due(&incoming));
    }

    /// A client's seal, which knows session 1 alone.
    fn sealing() -> Shared {
        let (secret, hop) = (Secret::new([1; 32]), HopKey::default());
        let epochs = vec![EpochKey { epoch: 1, from_ms: 0, secret, hop }];
        let (role, group, cipher) = (Role::Server, "test".into(), Cipher::Aes128Gcm);
        let keys =
            Keys { role, group, cipher, reset: None, epochs }.for_role(Role::Client(17)).unwrap();
        let seal = Some(Sealing::new(Arc::new(keys), 0));
        let mut shared = Shared::new(0, Config { seal, ..Config::default() });
        shared.seal.as_mut().expect("it has keys").note_session(1, 1);
        shared
    }

    /// A batch of ACKs for calls of these sessions, each as long, the last one `shorter` by so
    /// many bytes: what is left of it.
    fn seal(sessions: &[u64], shorter: usize) -> Option<(usize, usize)> {
        let mut shared = sealing();
        let segment_len = EXTENDED_LEN + 20 + shared.trailer_len();
        let mut buffer = vec![0; segment_len * sessions.len()];
        for (datagram, &session) in buffer.chunks_mut(segment_len).zip(sessions) {
            let id = RpcId::new(SessionId(session), 7);
            RequestRepr::control(MessageType::ReplyAck, 0, id).emit(datagram);
        }
        let len = buffer.len() - shorter;
        let to = SocketAddr::from(([10, 0, 0, 1], 7));
        let transmit = Transmit { segment_len, ..Transmit::single(to, len) };
        let sealed = shared.sealed(2_000, transmit, &mut buffer)?;
        let left = buffer[..sealed.len].chunks(sealed.segment_len);
        assert!(left.into_iter().all(|datagram| datagram[VERSION_AT] == SEALED_VERSION));
        Some((sealed.len, sealed.segment_len))
    }

    #[test]
    fn what_cannot_be_sealed_is_taken_out_of_a_batch() {
        let len = EXTENDED_LEN + 20 + TRAILER_LEN;
        assert_eq!(seal(&[1, 2, 1, 1], 5), Some((3 * len - 5, len)));
        assert_eq!(seal(&[2, 1], 5), Some((len - 5, len - 5)), "a batch of one, as long as that");
        assert_eq!(seal(&[2, 2], 0), None);
    }
}
