//! The servers of a router: by their slots and addresses, in the order in which they were added,
//! and by when something is due at them.
//!
//! A server's slot is that of its worker in the schedulers. It is used again once the server is
//! removed; [`ServerKey`] is not.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::{Index, IndexMut};

use foldhash::fast::FixedState;

use super::census::{Census, Counted};
use super::config::{ServerConfig, Speaks};
use super::ids::ServerKey;
use super::server::Server;
use crate::address::AddressKey;
use crate::node::Time;
use crate::policy::WorkerId;
use tailcut_placement::order::heap::{Heap, Places};
use tailcut_placement::slab::SlotId;

/// The servers.
#[derive(Debug)]
pub(super) struct Fleet {
    /// The servers by slot; `None` where one was removed.
    servers: Vec<Option<Server>>,
    /// Slot of each server's address.
    slots: HashMap<AddressKey, WorkerId, FixedState>,
    /// Slots in the order in which the servers were added; the first takes the fixed policy.
    order: Vec<WorkerId>,
    /// Servers ever added.
    serial: u32,
    /// Servers by when something is due there at the earliest.
    due: Heap<Time>,
    /// Place of each of them in `due`.
    due_places: Places,
    /// Time under which each is in `due`; [`Time::MAX`] of one that is not. Nothing is due there
    /// before.
    due_at: Vec<Time>,
    /// Servers by their standing.
    census: Census,
    /// The part of each in the census.
    counted: Vec<Counted>,
    /// No silent version 1 server may get a trial request before this.
    trial_at: Time,
}

impl Fleet {
    /// No servers, whose addresses will be hashed with `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            servers: Vec::new(),
            slots: HashMap::with_hasher(FixedState::with_seed(seed)),
            order: Vec::new(),
            serial: 0,
            due: Heap::default(),
            due_places: Places::default(),
            due_at: Vec::new(),
            census: Census::default(),
            counted: Vec::new(),
            trial_at: Time::MAX,
        }
    }

    /// Adds a server in a slot that is free, behind the others. `placed` is a random word.
    pub(super) fn add(&mut self, now: Time, at: WorkerId, config: ServerConfig, placed: u32) {
        let key = ServerKey { slot: at, serial: self.serial };
        self.serial += 1;
        if at.index() == self.servers.len() {
            self.servers.push(None);
            self.due_at.push(Time::MAX);
            self.counted.push(Counted::default());
        }
        self.servers[at.index()] = Some(Server::new(key, config, now, placed));
        self.slots.insert(AddressKey(config.addr), at);
        self.order.push(at);
    }

    /// Removes the server of an address.
    pub(super) fn remove(&mut self, addr: SocketAddr) -> Option<Server> {
        let at = self.slots.remove(&AddressKey(addr))?;
        self.order.retain(|&other| other != at);
        self.due.remove(&mut self.due_places, SlotId(at.0));
        self.due_at[at.index()] = Time::MAX;
        self.census.remove(std::mem::take(&mut self.counted[at.index()]));
        self.servers[at.index()].take()
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Slot of the server of an address.
    #[inline]
    pub(super) fn find(&self, addr: SocketAddr) -> Option<WorkerId> {
        self.slots.get(&AddressKey(addr)).copied()
    }

    /// The server in a slot, unless it was removed.
    #[inline]
    pub(super) fn get(&self, at: WorkerId) -> Option<&Server> {
        self.servers[at.index()].as_ref()
    }

    /// The server of a key, unless it was removed.
    pub(super) fn of(&self, key: ServerKey) -> Option<&Server> {
        self.get(key.slot).filter(|server| server.key == key)
    }

    /// Slot of the server that was added as number `index` of those that are left.
    pub(super) fn nth(&self, index: usize) -> WorkerId {
        self.order[index]
    }

    /// Slot of the first server.
    pub(super) fn first(&self) -> Option<WorkerId> {
        self.order.first().copied()
    }

    /// Slots in the order in which the servers were added.
    pub(super) fn slots(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.order.iter().copied()
    }

    /// The servers in the order in which they were added.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Server> + '_ {
        self.order.iter().filter_map(|&at| self.get(at))
    }

    /// The servers by slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Server> + '_ {
        self.servers.iter().flatten()
    }

    /// Their sums.
    pub(super) fn census(&self) -> &Census {
        &self.census
    }

    /// Takes note of what a server is now, and of when something is due there; true if it has
    /// another standing than before.
    #[inline]
    pub(super) fn note(&mut self, at: WorkerId) -> bool {
        let server = self.servers[at.index()].as_ref().expect(CONFIGURED);
        let has_changed = self.census.recount(&mut self.counted[at.index()], server.counted());
        // The heap knows the earliest time that was ever due, and a look there finds out the next:
        // so most requests and reports leave it alone.
        let next_event = server.next_event();
        let due_at = &mut self.due_at[at.index()];
        if next_event < *due_at {
            *due_at = next_event;
            self.due.set(&mut self.due_places, SlotId(at.0), next_event);
        }
        has_changed
    }

    /// Time at which something is due at a server at the earliest.
    #[inline]
    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.peek().map(|(at, _)| at)
    }

    /// A server at which something was due by `now`; it may have been put off since.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<WorkerId> {
        let (_, SlotId(index)) = self.due.peek().filter(|&(at, _)| at <= now)?;
        self.due.remove(&mut self.due_places, SlotId(index));
        self.due_at[index as usize] = Time::MAX;
        Some(WorkerId(index))
    }

    /// A version 1 server is silent from now on, and gets a trial request at its time.
    pub(super) fn await_trial(&mut self, at: WorkerId) {
        self.trial_at = self.trial_at.min(self[at].leases.trial_at);
    }

    /// A silent version 1 server that is due for a trial request, the next of which it gets after
    /// `interval_ns`. Without trials it could never return: the reference's router gave a revived
    /// server 0 of 200 requests.
    pub(super) fn take_trial(&mut self, now: Time, interval_ns: u64) -> Option<WorkerId> {
        if now < self.trial_at {
            return None;
        }
        let is_out = |server: &&mut Server| {
            server.speaks() == Speaks::V1 && server.is_silent && !server.is_draining
        };
        let mut chosen = None;
        self.trial_at = Time::MAX;
        for server in self.servers.iter_mut().flatten().filter(is_out) {
            if chosen.is_none() && server.leases.trial_at <= now {
                server.leases.trial_at = now.saturating_add(interval_ns);
                chosen = Some(server.key.slot);
            }
            self.trial_at = self.trial_at.min(server.leases.trial_at);
        }
        chosen
    }
}

impl Index<WorkerId> for Fleet {
    type Output = Server;

    #[inline]
    fn index(&self, at: WorkerId) -> &Server {
        self.servers[at.index()].as_ref().expect(CONFIGURED)
    }
}

impl IndexMut<WorkerId> for Fleet {
    #[inline]
    fn index_mut(&mut self, at: WorkerId) -> &mut Server {
        self.servers[at.index()].as_mut().expect(CONFIGURED)
    }
}

/// Invariant of every index: who names a slot has it from this table, and drops it with the
/// server.
const CONFIGURED: &str = "a slot names a configured server";
