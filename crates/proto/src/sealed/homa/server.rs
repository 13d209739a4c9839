//! A server's half of a seal of Homa.

use std::net::SocketAddr;

use tailcut_wire::homa::PacketType;

use super::super::clients::{Begun, Clients, SessionKeys, Start};
use super::super::keys::{Keys, Transport};
use super::super::known::SessionKey;
use super::super::limits::HOMA_ANSWER_LEN;
use super::super::packet::addressee;
use super::super::primitives::are_equal;
use super::super::replay::Arrival;
use super::super::reset::Answers;
use super::super::window::Window;
use super::super::{Cause, ClientEpoch};
use super::packet::{Glance, open, reply_nonce, request_nonce, seal, written};
use crate::call::numbering::Numbers;
use crate::rpc::Caller;

/// A server's half.
#[derive(Debug)]
pub(in super::super) struct HomaServer {
    /// Keys of clients, and what is known of their sessions.
    pub(in super::super) clients: Clients,
    /// To packets of epochs that are not accepted.
    pub(in super::super) answers: Answers<HOMA_ANSWER_LEN>,
    /// It may call them back.
    calls_back: bool,
}

/// Keys, the place among them of a packet's epoch, and the time.
#[derive(Clone, Copy)]
pub(in super::super) struct Accepted<'a> {
    /// A server's.
    pub(in super::super) keys: &'a Keys,
    /// The place of the epoch.
    pub(in super::super) at: usize,
    /// Unix time, ms.
    pub(in super::super) wall_ms: u64,
}

impl HomaServer {
    pub(in super::super) fn new(start: &Start, numbers: &mut Numbers) -> Self {
        let calls_back = start.sealing.calls_back;
        let clients = Clients::new(start, numbers, Transport::Homa);
        Self { clients, answers: Answers::default(), calls_back }
    }

    /// Opens a packet of a client.
    pub(in super::super) fn open(
        &mut self,
        accepted: Accepted<'_>,
        peer: SocketAddr,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<(), Cause> {
        let may_come = match seen.kind {
            PacketType::NeedAck => seen.is_back,
            PacketType::Freeze => false,
            _ => true,
        };
        if !seen.is_from_client() || !may_come || seen.is_back && !self.calls_back {
            return Err(Cause::Unsealed);
        }
        // What answers a call of this server begins nothing.
        let is_question = seen.kind == PacketType::Resend && !seen.is_back;
        let is_data = seen.kind == PacketType::Data && !seen.is_back;
        if !seen.is_named && !is_question {
            return Err(Cause::Misdirected);
        }
        let (key, epoch) = (seen.key(), seen.trailer.epoch);
        let replay = &self.clients.replay;
        if replay.is_of_another(peer, key) {
            return Err(Cause::Forged);
        }
        if !is_data && replay.is_elsewhere(peer, key) {
            return Err(Cause::Replayed);
        }
        let receiver = if seen.is_named { self.clients.own.name } else { 0 };
        let began_ms = accepted.keys.epochs[accepted.at].began_ms(seen.trailer.low.get());
        let (is_hop, is_named) = (false, seen.is_named);
        let mut arrival = Arrival { key, epoch, began_ms, is_hop, is_named, is_known: true };
        match self.clients.sessions.find_mut(key) {
            Some(known) => open_known(known, receiver, (seen, bytes))?,
            None if seen.is_back => return Err(Cause::Replayed),
            None => {
                let opened = self.open_first(accepted, (&arrival, receiver), (seen, bytes));
                arrival.is_known = opened?;
                if !arrival.is_known && !is_question && !is_data {
                    return Err(Cause::Replayed);
                }
            }
        }
        self.clients.arrival = arrival;
        Ok(())
    }

    /// Opens a packet of a session that is not at hand. It is remembered if the packet is genuine
    /// and for this server, and the session began after its start, or is about to, and has not been
    /// known before: true if so.
    fn open_first(
        &mut self,
        Accepted { keys, at, wall_ms }: Accepted<'_>,
        (arrival, receiver): (&Arrival, u64),
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<bool, Cause> {
        let Arrival { key, epoch, began_ms, .. } = *arrival;
        let began = seen.trailer.low.get();
        // The pass comes first: what strangers make up costs no more than that.
        let pass = self.clients.masters[at].hop_key(key.client).pass(key.session, began);
        if !are_equal(&seen.pass().to_be_bytes(), &pass.to_be_bytes()) {
            return Err(Cause::Forged);
        }
        let begun =
            Begun { sender: ClientEpoch::new(key.client, epoch), session: key.session, began };
        let request = self.clients.request_key((keys, at), begun);
        if !open(bytes, (request, request_nonce(&seen.trailer)), seen, Some(receiver)) {
            return Err(Cause::Forged);
        }
        let Clients { sessions, replay, .. } = &self.clients;
        // One that begins in a moment is remembered, so that what is dropped until then comes no
        // more.
        let soon_ms = wall_ms.saturating_add(replay.tolerance_ms);
        let is_new =
            !sessions.may_be_lost(key.client, began_ms) && replay.may_begin(soon_ms, arrival);
        if !arrival.is_named || !is_new {
            return Ok(false);
        }
        // Questions that came before have been answered, and nothing was remembered of them.
        let window = Some(Box::new(Window::from(seen.count())));
        let request = self.clients.validated(begun);
        self.clients.sessions.add(
            key,
            began_ms,
            SessionKeys { epoch, began, request, window, called: 0, takes_coalesced: false },
        );
        Ok(true)
    }

    /// As [`super::super::EndpointSeal::caller`].
    pub(in super::super) fn caller(
        &self,
        keys: &Keys,
        (client, session): (u32, u64),
    ) -> Option<Caller> {
        let known = self.clients.sessions.find(SessionKey { client, session })?;
        let began_ms = keys.epochs[keys.place_of(known.epoch)?].began_ms(known.began);
        Some(Caller { client, session, began_ms })
    }

    /// As [`super::super::EndpointSeal::call_back`].
    pub(in super::super) fn call_back(
        &mut self,
        Caller { client, session, .. }: Caller,
        sequence_max: u32,
    ) -> Option<(ClientEpoch, u32)> {
        let known = self.clients.sessions.find_mut(SessionKey { client, session })?;
        if !self.calls_back || known.called >= sequence_max {
            return None;
        }
        known.called += 1;
        Some((ClientEpoch::new(client, known.epoch), known.called - 1))
    }

    /// Seals a packet for the client that its last bytes say.
    pub(in super::super) fn seal(&mut self, keys: &Keys, bytes: &mut [u8]) -> bool {
        let is_own = written(bytes).is_some_and(|(_, id)| self.calls_back || id & 1 != 0);
        let Some(sender) = addressee(bytes).filter(|_| is_own) else { return false };
        let Some((key, trailer)) = self.clients.next_reply(keys, sender) else { return false };
        seal(bytes, (key, reply_nonce(&trailer)), &trailer, None)
    }
}

/// Opens a packet of a session that is known, and takes its count.
#[inline]
fn open_known(
    known: &mut SessionKeys,
    receiver: u64,
    (seen, bytes): (&Glance, &mut [u8]),
) -> Result<(), Cause> {
    let is_its = (known.epoch, known.began) == (seen.trailer.epoch, seen.trailer.low.get());
    let window = known.window.as_mut().filter(|_| is_its).ok_or(Cause::Forged)?;
    if !window.is_fresh(seen.count()) {
        return Err(Cause::Replayed);
    }
    let nonce = request_nonce(&seen.trailer);
    if !open(bytes, (&known.request, nonce), seen, Some(receiver)) {
        return Err(Cause::Forged);
    }
    window.take(seen.count());
    Ok(())
}
