//! The RPCs of both halves: in slots, by what names them in packets, and the parts of requests that
//! wait for each other.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

use super::ids::ClientId;
use super::slot::Slot;
use crate::peer::table::PeerId;
use tailcut_placement::keyed::KeyedState;
use tailcut_placement::slab::{Slab, SlotId, SlotKey};

/// The RPCs.
#[derive(Debug)]
pub(super) struct Rpcs {
    /// Each in its slot.
    slots: Slab<Slot>,
    /// Live RPCs by peer and by their id as this side numbers it.
    live: HashMap<(PeerId, u64), SlotId, KeyedState>,
    /// Parts of requests that wait for the others, by peer and key.
    parts: HashMap<(PeerId, ClientId), Vec<SlotId>, KeyedState>,
    /// Messages begun so far, in and out: what ranks them by age.
    births: u32,
}

impl Rpcs {
    /// None; there will be `rpcs_max` at most, and places for `room` at once.
    pub(super) fn new(rpcs_max: usize, room: usize, seed: u64) -> Self {
        // Strangers choose ids and keys: by a known hash they would choose such that collide.
        let hasher = KeyedState::with_seed(seed);
        Self {
            slots: Slab::of_at_most(rpcs_max),
            live: HashMap::with_capacity_and_hasher(room, hasher),
            parts: HashMap::with_hasher(hasher),
            births: 0,
        }
    }

    /// A slot for an RPC that begins.
    pub(super) fn take(&mut self) -> SlotId {
        self.slots.take(Slot::default)
    }

    /// Makes the RPC in a slot one that packets find.
    pub(super) fn enlist(&mut self, index: SlotId) {
        let slot = &self.slots[index];
        self.live.insert((slot.peer, slot.local_id()), index);
    }

    /// Makes it one that no packet finds any more.
    pub(super) fn unlist(&mut self, index: SlotId) {
        let slot = &self.slots[index];
        self.live.remove(&(slot.peer, slot.local_id()));
    }

    /// The RPC that a peer's packets name so.
    #[inline]
    pub(super) fn find(&self, peer: PeerId, local_id: u64) -> Option<SlotId> {
        self.live.get(&(peer, local_id)).copied()
    }

    /// Gives the slot of an RPC back that no packet finds.
    pub(super) fn release(&mut self, index: SlotId) {
        self.slots.release(index);
    }

    /// The RPC that a key names, unless it has ended.
    #[inline]
    pub(super) fn at(&self, key: SlotKey) -> Option<SlotId> {
        self.slots.find(key)
    }

    /// The key of an RPC, which names no other after it.
    #[inline]
    pub(super) fn key(&self, index: SlotId) -> SlotKey {
        self.slots.key(index)
    }

    /// Number of slots, in use or free.
    pub(super) fn places(&self) -> u32 {
        self.slots.places()
    }

    /// The RPC in a slot, if there is one.
    pub(super) fn in_place(&self, place: u32) -> Option<SlotId> {
        self.slots.at(place)
    }

    /// All of them.
    pub(super) fn values(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    /// The age rank of a message that begins.
    pub(super) fn next_birth(&mut self) -> u32 {
        self.births = self.births.wrapping_add(1);
        self.births
    }

    /// A part of a request waits for the others of `key`.
    pub(super) fn park(&mut self, index: SlotId, key: ClientId) {
        self.parts.entry((self.slots[index].peer, key)).or_default().push(index);
    }

    /// A part of a request waits no more.
    pub(super) fn unpark(&mut self, index: SlotId, key: ClientId) {
        let place = (self.slots[index].peer, key);
        if let Some(waiting) = self.parts.get_mut(&place) {
            waiting.retain(|&part| part != index);
            if waiting.is_empty() {
                self.parts.remove(&place);
            }
        }
    }

    /// The parts of a request that wait.
    pub(super) fn parked(&self, peer: PeerId, key: ClientId) -> &[SlotId] {
        self.parts.get(&(peer, key)).map_or(&[], Vec::as_slice)
    }

    /// Takes the parts of a request, which are all there.
    pub(super) fn take_parked(&mut self, peer: PeerId, key: ClientId) -> Vec<SlotId> {
        self.parts.remove(&(peer, key)).unwrap_or_default()
    }
}

impl Index<SlotId> for Rpcs {
    type Output = Slot;

    #[inline]
    fn index(&self, index: SlotId) -> &Slot {
        &self.slots[index]
    }
}

impl IndexMut<SlotId> for Rpcs {
    #[inline]
    fn index_mut(&mut self, index: SlotId) -> &mut Slot {
        &mut self.slots[index]
    }
}
