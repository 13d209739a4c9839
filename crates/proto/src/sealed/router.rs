//! The seal of a router: it authenticates what it places and what it is told, and reads no payload.

use std::net::SocketAddr;
use std::sync::Arc;

use tailcut_wire::r2p2::sealed::{SEALED_VERSION, VERSION_AT};
use tailcut_wire::r2p2::{EXTENSION_VERSION, MessageType};

use super::endpoint::{client_address, open_hop, written};
use super::keys::{HopKey, Keys, Master, Role, Sealing, WallClock};
use super::packet::{self, Glance, glance, is_hop_genuine};
use super::{Cause, Latest, Peers, SealMetrics, TRAILER_LEN, Times};
use crate::node::Time;

/// Authenticates the datagrams of one router.
#[derive(Debug)]
pub struct RouterSeal {
    /// By which epochs are told.
    clock: WallClock,
    /// As configured.
    keys: Arc<Keys>,
    /// By place of the epoch.
    masters: Vec<Master>,
    /// Clients that have been heard of, and their hop keys: whoever is refused is told under it.
    clients: Peers<ClientHop>,
    /// Servers and routers, and the latest packet of each.
    neighbours: Latest,
    /// Of its own packets.
    times: Times,
    /// The counters so far.
    metrics: SealMetrics,
}

#[derive(Clone, Debug)]
struct ClientHop {
    /// The client's number.
    client: u32,
    /// Of the key.
    epoch: u8,
    /// The key.
    key: HopKey,
}

impl RouterSeal {
    /// The seal of a router. `seed` is that of its tables; it remembers `clients_max` clients.
    ///
    /// Panics for a client's keys, which authenticate no other's requests.
    pub fn new(sealing: &Sealing, seed: u64, clients_max: usize) -> Self {
        let keys = sealing.keys.clone();
        let master = |key: &super::EpochKey| match keys.role {
            Role::Router => Master::of_router(&key.secret, &keys.group),
            Role::Server => Master::of_server(key, &keys.group),
            Role::Client(_) => panic!("a client's keys place nothing"),
        };
        let masters = keys.epochs.iter().map(master).collect();
        Self {
            clock: WallClock { zero_ns: sealing.clock_ns },
            keys,
            masters,
            clients: Peers::new(clients_max, seed),
            neighbours: Latest::new(seed),
            times: Times::default(),
            metrics: SealMetrics::default(),
        }
    }

    /// The counters so far.
    pub fn metrics(&self) -> SealMetrics {
        self.metrics
    }

    /// Authenticates a datagram, and shows it as an open one. Gives the length of the open packet at its
    /// beginning; of what is for a server too, its payload and all behind it are still sealed.
    pub fn open(&mut self, now: Time, peer: SocketAddr, bytes: &mut [u8]) -> Option<usize> {
        match self.try_open(now, peer, bytes) {
            Ok(()) => Some(bytes.len() - TRAILER_LEN),
            Err(cause) => {
                self.metrics.count(cause);
                None
            }
        }
    }

    fn try_open(&mut self, now: Time, peer: SocketAddr, bytes: &mut [u8]) -> Result<(), Cause> {
        let seen = glance(bytes).ok_or(Cause::Unsealed)?;
        let wall_ms = self.clock.ms(now);
        let at = self.keys.accepted(wall_ms, seen.trailer.epoch).ok_or(Cause::UnknownKeys)?;
        match (seen.kind, seen.is_sealed) {
            (MessageType::Request | MessageType::Cancel, true) => {
                self.open_from_client(at, peer, (&seen, bytes))
            }
            (
                MessageType::Feedback
                | MessageType::Claimed
                | MessageType::Ack
                | MessageType::Probe
                | MessageType::Claim,
                false,
            ) => {
                let key = &self.masters[at].router_key;
                open_hop(bytes, key, (&mut self.neighbours, peer), &seen)
            }
            _ => Err(Cause::Unsealed),
        }
    }

    fn open_from_client(
        &mut self,
        at: usize,
        peer: SocketAddr,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<(), Cause> {
        let (client, epoch) = (seen.trailer.client(), seen.trailer.epoch);
        let address = client_address(bytes, seen, peer);
        let known = self.clients.find(address).cloned();
        let known = known.filter(|known| (known.client, known.epoch) == (client, epoch));
        let master = &self.masters[at];
        let is_known = known.is_some();
        let hop = known.map_or_else(|| master.hop_key(client), |known| known.key);
        let key = if seen.is_routed { &master.router_key } else { &hop };
        if !is_hop_genuine(bytes, key) {
            return Err(Cause::Forged);
        }
        if !is_known {
            let key = ClientHop { client, epoch, key: hop };
            *self.clients.entry(address, || key.clone()) = key.clone();
        }
        bytes[VERSION_AT] = EXTENSION_VERSION;
        Ok(())
    }

    /// Seals a datagram for `to`: what is passed on has its trailer, what the router has written has none
    /// yet. `false` if it must not go.
    pub fn seal(&mut self, now: Time, to: SocketAddr, bytes: &mut Vec<u8>) -> bool {
        let is_sealed = self.try_seal(now, to, bytes);
        if !is_sealed {
            self.metrics.unsealable += 1;
        }
        is_sealed
    }

    fn try_seal(&mut self, now: Time, to: SocketAddr, bytes: &mut Vec<u8>) -> bool {
        let Some((kind, _)) = written(bytes) else { return false };
        let wall_ms = self.clock.ms(now);
        if let MessageType::Request | MessageType::Cancel = kind {
            bytes[VERSION_AT] = SEALED_VERSION;
            // A cancel is passed on as its client has sealed it.
            if kind == MessageType::Cancel {
                return true;
            }
            let epoch = glance(bytes).map(|seen| seen.trailer.epoch);
            // It was accepted when it came, and may have been held since.
            let places = self.keys.epochs.iter().rposition(|key| Some(key.epoch) == epoch);
            let Some(at) = places else { return false };
            packet::write_hop(bytes, &self.masters[at].router_key);
            return true;
        }
        let current = self.keys.current(wall_ms);
        let (key, epoch) = match kind {
            MessageType::Ack | MessageType::Drop => match self.clients.find(to) {
                Some(known) => (known.key.clone(), known.epoch),
                None => return false,
            },
            MessageType::Probe
            | MessageType::Claim
            | MessageType::Feedback
            | MessageType::Claimed => {
                (self.masters[current].router_key.clone(), self.keys.epochs[current].epoch)
            }
            _ => return false,
        };
        let time = self.times.next(self.clock.us(now));
        bytes.resize(bytes.len() + TRAILER_LEN, 0);
        let trailer = packet::trailer((time >> 32) as u32, epoch, time as u32, 0);
        packet::seal_hop(bytes, &trailer, &key);
        true
    }
}
