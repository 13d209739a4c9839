//! Connections by number.
//!
//! Invariant: a number that has been freed is given again with another generation, so that the id
//! of a connection that has ended finds nothing.

use super::ConnectionId;
use super::link::Link;

/// The connections of a thread.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// By index.
    slots: Vec<Slot>,
    /// Slots without a connection, the one freed last at the end.
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    /// Connections that it had before, 31 bits.
    generation: u32,
    /// The connection, while there is one.
    link: Option<Link>,
}

impl Table {
    /// Connections in it.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Numbers that connections may have.
    #[inline]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn insert(&mut self, link: Link) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, link: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.link = Some(link);
        ConnectionId { index, generation: slot.generation }
    }

    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Link> {
        let slot =
            self.slots.get_mut(id.index()).filter(|slot| slot.generation == id.generation)?;
        let link = slot.link.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MAX;
        self.free.push(id.index);
        Some(link)
    }

    #[inline]
    pub(super) fn link(&self, id: ConnectionId) -> Option<&Link> {
        self.slots.get(id.index()).filter(|slot| slot.generation == id.generation)?.link.as_ref()
    }

    #[inline]
    pub(super) fn link_mut(&mut self, id: ConnectionId) -> Option<&mut Link> {
        self.slots
            .get_mut(id.index())
            .filter(|slot| slot.generation == id.generation)?
            .link
            .as_mut()
    }

    /// The connection of a number.
    pub(super) fn at(&self, index: usize) -> Option<(ConnectionId, &Link)> {
        let slot = &self.slots[index];
        slot.link
            .as_ref()
            .map(|link| (ConnectionId { index: index as u32, generation: slot.generation }, link))
    }

    /// The id of a number's connection.
    #[inline]
    pub(super) fn id_at(&self, index: usize) -> Option<ConnectionId> {
        self.at(index).map(|(id, _)| id)
    }
}

/// The id as epoll keeps it; its highest bit is never set.
#[inline]
pub(super) fn key_of(id: ConnectionId) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

/// The id of an epoll key.
#[inline]
pub(super) fn id_of(key: u64) -> ConnectionId {
    ConnectionId { index: key as u32, generation: (key >> 32) as u32 }
}

/// Generations have 31 bits: the last of an epoll key belongs to the ports that are listened at.
const GENERATION_MAX: u32 = u32::MAX >> 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_id() {
        let id = ConnectionId { index: 7, generation: GENERATION_MAX };
        assert_eq!(id_of(key_of(id)), id);
        assert_eq!(key_of(id) >> 63, 0);
    }
}
