//! A reader of captures: opens what has been recorded, given a server's keys.

use std::collections::HashMap;
use std::net::SocketAddr;

use tailcut_wire::r2p2::{MessageType, RpcId};

use super::homa;
use super::keys::{Keys, Master, Role, Transport};
use super::names::name_of;
use super::packet::{self, Glance, client_address, glance, reply_nonce, request_nonce};
use super::{TRAILER_LEN, coalesced};
use tailcut_placement::keyed::KeyedState;

/// Opens packets in the order in which they were captured.
#[derive(Debug)]
pub struct Reader {
    /// A server's.
    keys: Keys,
    /// By place of the epoch.
    masters: Vec<Master>,
    /// Clients of sessions, by address, as their requests have told.
    clients: HashMap<(SocketAddr, u64), u32, KeyedState>,
    /// Names of Homa's servers, as their packets have told.
    names: HashMap<SocketAddr, u64, KeyedState>,
}

impl Reader {
    /// A reader with these keys; `None` unless they are a server's, which alone open everything.
    pub fn new(keys: Keys) -> Option<Self> {
        if keys.role != Role::Server {
            return None;
        }
        let masters = keys.epochs.iter().map(|key| Master::of_server(key, &keys.group)).collect();
        let clients = HashMap::with_hasher(KeyedState::with_seed(0));
        let names = HashMap::with_hasher(KeyedState::with_seed(0));
        Some(Self { keys, masters, clients, names })
    }

    /// Opens a packet that went from one address to another, in place: what is left is an open
    /// packet before the trailer. `false` where it is not sealed by these keys, and of a reply also
    /// where no packet of its client has come before; the packet is then as it was, but for its
    /// payload. Of several packets in a datagram that is all of them: see [`Reader::packets`].
    pub fn open(&mut self, (from, to): (SocketAddr, SocketAddr), bytes: &mut [u8]) -> bool {
        let Some(seen) = glance(bytes).filter(|seen| seen.is_sealed) else { return false };
        let epoch = seen.trailer.epoch;
        let Some(at) = self.keys.epochs.iter().position(|key| key.epoch == epoch) else {
            return false;
        };
        let session = RpcId(seen.rpc_id).session().0;
        match seen.kind {
            MessageType::Request | MessageType::ReplyAck | MessageType::Cancel => {
                self.open_request((at, session), from, &seen, bytes)
            }
            _ => {
                let Some(&client) = self.clients.get(&(to, session)) else { return false };
                let secret = self.masters[at].client(client, (self.keys.cipher, Transport::R2p2));
                let key = secret.reply_key(seen.trailer.hop.get());
                packet::open(bytes, &key, reply_nonce(&seen.trailer), false)
            }
        }
    }

    /// The open packets of a datagram that was [`Reader::open`]ed, and that said before that
    /// `is_coalesced` ([`COALESCED_VERSION`]).
    ///
    /// [`COALESCED_VERSION`]: tailcut_wire::r2p2::sealed::COALESCED_VERSION
    pub fn packets(opened: &[u8], is_coalesced: bool) -> std::slice::Chunks<'_, u8> {
        match coalesced::len_of_each(opened).filter(|_| is_coalesced) {
            Some(len) => opened[..coalesced::packets_len(opened)].chunks(len),
            None => opened[..opened.len() - TRAILER_LEN].chunks(opened.len()),
        }
    }

    /// Opens a packet of Homa, as [`Reader::open`] does. One that names a server is opened once a
    /// packet of that has come.
    pub fn open_homa(&mut self, (from, to): (SocketAddr, SocketAddr), bytes: &mut [u8]) -> bool {
        let Some(seen) = homa::glance(bytes) else { return false };
        let (trailer, session) = (&seen.trailer, seen.session());
        let Some(at) = self.keys.epochs.iter().position(|key| key.epoch == trailer.epoch) else {
            return false;
        };
        let secret = |client| self.masters[at].client(client, (self.keys.cipher, Transport::Homa));
        if seen.is_from_client() {
            let known = if seen.is_named { self.names.get(&to).copied() } else { Some(0) };
            let Some(name) = known else { return false };
            let client = trailer.client();
            let key = secret(client).request_key(session, trailer.low.get());
            let nonce = homa::request_nonce(trailer);
            let is_genuine = homa::open(bytes, (&key, nonce), &seen, Some(name));
            if is_genuine && self.clients.len() < CLIENTS_MAX {
                self.clients.insert((from, session), client);
            }
            return is_genuine;
        }
        let Some(&client) = self.clients.get(&(to, session)) else { return false };
        let key = secret(client).reply_key(trailer.hop.get());
        let is_genuine = homa::open(bytes, (&key, reply_nonce(trailer)), &seen, None);
        if is_genuine {
            self.names.insert(from, name_of(trailer.hop.get()));
        }
        is_genuine
    }

    fn open_request(
        &mut self,
        (at, session): (usize, u64),
        from: SocketAddr,
        seen: &Glance,
        bytes: &mut [u8],
    ) -> bool {
        let client = seen.trailer.client();
        let secret = self.masters[at].client(client, (self.keys.cipher, Transport::R2p2));
        let key = secret.request_key(session, seen.trailer.low.get());
        let nonce = request_nonce(bytes);
        let is_genuine = packet::open(bytes, &key, nonce, true);
        if is_genuine && self.clients.len() < CLIENTS_MAX {
            self.clients.insert((client_address(bytes, seen, from), session), client);
        }
        is_genuine
    }
}

/// Sessions that are remembered; replies of further ones stay sealed.
const CLIENTS_MAX: usize = 1 << 20;
