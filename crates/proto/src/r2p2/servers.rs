//! What a client remembers of each server or router it has spoken to: its token and its round
//! trips.

use std::collections::HashMap;
use std::net::SocketAddr;

use foldhash::fast::FixedState;

use crate::address::AddressKey;
use crate::peer::table::PeerId;
use crate::rtt::Rtt;

/// Peers of a client, by address.
#[derive(Debug)]
pub(super) struct Servers {
    index: HashMap<AddressKey, PeerId, FixedState>,
    peers: Vec<Peer>,
    peers_max: usize,
    /// The peer found last; most packets come from the one before.
    last: PeerId,
}

/// One server or router.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) address: Option<SocketAddr>,
    /// 0 before the peer has given one.
    pub(super) token: u64,
    /// From a packet to its ACK.
    pub(super) ack: Rtt,
    /// From a request to its reply, service included.
    pub(super) reply: Rtt,
}

impl Servers {
    pub(super) fn new(peers_max: usize, seed: u64) -> Self {
        let nobody = Peer { address: None, token: 0, ack: Rtt::default(), reply: Rtt::default() };
        Self {
            index: HashMap::with_hasher(FixedState::with_seed(seed)),
            peers: vec![nobody],
            peers_max,
            last: PeerId::default(),
        }
    }

    /// The record of `address`. Once the table is full, newcomers share one record, which costs
    /// them precise timeouts.
    #[inline]
    pub(super) fn find_or_add(&mut self, address: SocketAddr) -> PeerId {
        match &self.peers[self.last.index()].address {
            Some(last) if *last == address => self.last,
            _ => self.search(address),
        }
    }

    /// Finds or adds a peer that is not the last one.
    fn search(&mut self, address: SocketAddr) -> PeerId {
        if let Some(&found) = self.index.get(&AddressKey(address)) {
            self.last = found;
            return found;
        }
        if self.peers.len() > self.peers_max {
            return PeerId::default();
        }
        let added = PeerId(self.peers.len() as u32);
        self.peers.push(Peer { address: Some(address), ..self.peers[0] });
        self.peers[added.index()].token = 0;
        self.index.insert(AddressKey(address), added);
        self.last = added;
        added
    }

    pub(super) fn peer(&self, index: PeerId) -> &Peer {
        &self.peers[index.index()]
    }

    pub(super) fn peer_mut(&mut self, index: PeerId) -> &mut Peer {
        &mut self.peers[index.index()]
    }
}
