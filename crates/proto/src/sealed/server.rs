//! A server's half of a seal of R2P2.

use std::net::SocketAddr;

use tailcut_wire::r2p2::sealed::VERSION_AT;
use tailcut_wire::r2p2::{EXTENDED_LEN, EXTENSION_VERSION, MessageType};

use super::clients::{Begun, Clients, SessionKeys, Start};
use super::keys::{Keys, Transport};
use super::known::SessionKey;
use super::limits::ANSWER_LEN;
use super::names::Names;
use super::neighbours::Routers;
use super::packet::{
    self, Glance, addressee, client_address, is_annotated, is_asking_for_name, is_hop_genuine,
    reply_nonce, request_nonce, written,
};
use super::replay::Arrival;
use super::reset::Answers;
use super::wall_clock::WallClock;
use super::{Cause, ClientEpoch, TRAILER_LEN, Times, coalesced};
use crate::call::numbering::Numbers;
use crate::node::Time;

/// A server's half.
#[derive(Debug)]
pub(super) struct Server {
    /// Keys of clients, and what is known of their sessions.
    pub(super) clients: Clients,
    /// Routers that it has heard of.
    pub(super) routers: Routers,
    /// The router that keeps clients' addresses.
    keeper: Option<SocketAddr>,
    /// Times of its own packets to routers.
    times: Times,
    /// Answers about keys that are not there.
    pub(super) answers: Answers<ANSWER_LEN>,
}

impl Server {
    pub(super) fn new(start: &Start, numbers: &mut Numbers) -> Self {
        Self {
            routers: Routers::new(numbers.seed()),
            clients: Clients::new(start, numbers, Transport::R2p2),
            keeper: start.keeper,
            times: Times::default(),
            answers: Answers::default(),
        }
    }

    pub(super) fn open(
        &mut self,
        (keys, at): (&Keys, usize),
        peer: SocketAddr,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<usize, Cause> {
        match (seen.kind, seen.is_sealed) {
            (MessageType::Request | MessageType::ReplyAck | MessageType::Cancel, true) => {
                self.open_sealed((keys, at), peer, (seen, bytes))
            }
            (MessageType::Probe | MessageType::Claim, false) => {
                if !is_hop_genuine(bytes, &self.clients.masters[at].router_key, Names::default()) {
                    return Err(Cause::Forged);
                }
                let is_named =
                    self.routers.hear(self.clients.own, peer, (seen.kind, &seen.trailer))?;
                self.clients.arrival = Arrival { is_hop: true, is_named, ..Arrival::default() };
                bytes[VERSION_AT] = EXTENSION_VERSION;
                Ok(bytes.len() - TRAILER_LEN)
            }
            _ => Err(Cause::Unsealed),
        }
    }

    fn open_sealed(
        &mut self,
        (keys, at): (&Keys, usize),
        peer: SocketAddr,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<usize, Cause> {
        let key = seen.session();
        let (epoch, began) = (seen.trailer.epoch, seen.trailer.low.get());
        // The hop tag comes first: a forged packet costs no more than that.
        let is_named = self.check_hop(at, peer, (seen, bytes))?;
        // Several packets come from their client itself, by the server's name.
        if seen.is_coalesced && (seen.is_routed || !is_named) {
            return Err(Cause::Misdirected);
        }
        let nonce = request_nonce(bytes);
        let is_genuine = match self.clients.sessions.find(key) {
            Some(known) => {
                (known.epoch, known.began) == (epoch, began)
                    && packet::open(bytes, &known.request, nonce, true)
            }
            None => self.open_first((keys, at), (seen, bytes)),
        };
        let address = client_address(bytes, seen, peer);
        if !is_genuine || self.clients.replay.is_of_another(address, key) {
            return Err(Cause::Forged);
        }
        let began_ms = keys.epochs[at].began_ms(began);
        let len = match seen.is_coalesced {
            true => {
                let len = coalesced::packet_len(bytes, key.session, true).ok_or(Cause::Forged)?;
                if let Some(session) = self.clients.sessions.find_mut(key) {
                    session.takes_coalesced = true;
                }
                len
            }
            false => bytes.len() - TRAILER_LEN,
        };
        self.clients.arrival =
            Arrival { key, epoch, began_ms, is_hop: false, is_named, is_known: true };
        Ok(len)
    }

    /// Looks at the hop tag; true if the packet names this server, false if it names nobody.
    fn check_hop(
        &self,
        at: usize,
        peer: SocketAddr,
        (seen, bytes): (&Glance, &[u8]),
    ) -> Result<bool, Cause> {
        let (master, receiver) = (&self.clients.masters[at], self.clients.own.name);
        if seen.is_routed {
            let router = if is_annotated(bytes, seen) { Some(peer) } else { self.keeper };
            let known = router.and_then(|router| self.routers.at(router));
            let [latest, before] = known.ok_or(Cause::UnknownKeys)?;
            let is_by =
                |sender| is_hop_genuine(bytes, &master.router_key, Names { receiver, sender });
            let is_genuine = is_by(latest) || before != latest && is_by(before);
            return is_genuine.then_some(true).ok_or(Cause::Forged);
        }
        let client = seen.trailer.client();
        let known = self.clients.find(ClientEpoch::new(client, seen.trailer.epoch));
        let derived = if known.is_none() { Some(master.hop_key(client)) } else { None };
        let hop = known.map(|known| &known.hop).or(derived.as_ref()).expect("one of them is there");
        // A cancel keeps its tag through routers, and so names nobody.
        let may_be_named = seen.kind != MessageType::Cancel;
        if may_be_named && is_hop_genuine(bytes, hop, Names { receiver, sender: 0 }) {
            return Ok(true);
        }
        is_hop_genuine(bytes, hop, Names::default()).then_some(false).ok_or(Cause::Forged)
    }

    /// Opens a packet of a session whose key is not at hand, and remembers that if it is genuine.
    fn open_first(
        &mut self,
        (keys, at): (&Keys, usize),
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> bool {
        let key = seen.session();
        let (epoch, began) = (seen.trailer.epoch, seen.trailer.low.get());
        let begun =
            Begun { sender: ClientEpoch::new(key.client, epoch), session: key.session, began };
        let nonce = request_nonce(bytes);
        if !packet::open(bytes, self.clients.request_key((keys, at), begun), nonce, true) {
            return false;
        }
        let request = self.clients.validated(begun);
        let began_ms = keys.epochs[at].began_ms(began);
        let known =
            SessionKeys { epoch, began, request, window: None, called: 0, takes_coalesced: false };
        self.clients.sessions.add(key, began_ms, known);
        true
    }

    pub(super) fn seal(
        &mut self,
        (keys, clock): (&Keys, &WallClock),
        now: Time,
        to: SocketAddr,
        bytes: &mut [u8],
    ) -> bool {
        let Some((kind, _)) = written(bytes) else { return false };
        match addressee(bytes) {
            Some(sender) => self.seal_for_client(keys, (kind, sender), bytes),
            None => {
                let at = keys.current(clock.ms(now));
                let time = self.times.next(clock.us(now));
                let alias = match kind {
                    MessageType::Feedback | MessageType::Claimed => {
                        self.routers.at(to).map(|[latest, _]| latest)
                    }
                    MessageType::Ack => self.routers.answered(to),
                    _ => None,
                };
                let Some(receiver) = alias else { return false };
                let names = Names { receiver, sender: self.clients.own.instance() };
                let trailer = packet::hop_trailer(names, keys.epochs[at].epoch, time);
                packet::seal_hop(bytes, &trailer, &self.clients.masters[at].router_key);
                true
            }
        }
    }

    fn seal_for_client(
        &mut self,
        keys: &Keys,
        (kind, sender): (MessageType, ClientEpoch),
        bytes: &mut [u8],
    ) -> bool {
        let is_for_client =
            matches!(kind, MessageType::Response | MessageType::Ack | MessageType::Drop);
        if !is_for_client || usize::from(bytes[1]) != EXTENDED_LEN {
            return false;
        }
        if kind == MessageType::Ack && is_asking_for_name(bytes) {
            coalesced::set_taken(bytes);
        }
        let Some((reply, trailer)) = self.clients.next_reply(keys, sender) else { return false };
        packet::seal(bytes, reply, reply_nonce(&trailer), (&trailer, None));
        true
    }

    /// Addressee of these packets, if they may go together: a client that has sent such itself.
    pub(super) fn may_gather<'a>(
        &self,
        packets: impl Iterator<Item = &'a [u8]>,
    ) -> Option<ClientEpoch> {
        let (session, sender) = coalesced::session_of_server(packets)?;
        let session = SessionKey { client: sender.client(), session };
        self.clients
            .sessions
            .find(session)
            .is_some_and(|known| known.takes_coalesced)
            .then_some(sender)
    }

    /// Seals what [`Server::may_gather`] has said may go.
    pub(super) fn seal_coalesced(
        &mut self,
        keys: &Keys,
        sender: ClientEpoch,
        bytes: &mut [u8],
    ) -> bool {
        let Some((reply, trailer)) = self.clients.next_reply(keys, sender) else { return false };
        packet::seal_coalesced(bytes, (reply, reply_nonce(&trailer)), (&trailer, None));
        true
    }

    /// As [`super::EndpointSeal::addressee`].
    pub(super) fn addressee(&self) -> u64 {
        if self.clients.arrival.is_hop { 0 } else { self.clients.sender().addressee() }
    }
}
