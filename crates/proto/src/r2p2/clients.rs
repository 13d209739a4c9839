//! What a server remembers of each client: whether its address is proven, what it holds, and its
//! sessions.
//!
//! Invariant: the table is bounded, and a client is forgotten only when it holds nothing and has
//! been idle for longer than the network can hold a duplicate. Above half of the bound, an address
//! must be proven before it is added, so that forged addresses cannot fill it.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use foldhash::fast::FixedState;
use tailcut_wire::r2p2::SessionId;

use super::config::Serving;
use super::token::Tokens;
use super::window::Window;
use crate::address::AddressKey;
use crate::node::Time;

/// Clients of a server, by address.
#[derive(Debug)]
pub(super) struct Clients {
    index: HashMap<AddressKey, u32, FixedState>,
    records: Vec<ClientRecord>,
    tokens: Tokens,
    /// Found last; most packets come from the client of the one before.
    last: u32,
    /// Where the search for a client to forget goes on.
    hand: usize,
    /// Records of clients that have been forgotten.
    vacant: Vec<u32>,
}

/// One client.
#[derive(Debug)]
pub(super) struct ClientRecord {
    pub(super) address: SocketAddr,
    pub(super) token: u64,
    pub(super) is_validated: bool,
    /// Requests of it that the server holds, in any state.
    pub(super) requests: usize,
    /// Bytes of them.
    pub(super) held_bytes: usize,
    used_at: Time,
    sessions: Vec<Session>,
}

/// One session of a client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) window: Window,
    /// A request of this session that was first sent after this has run only if the window says so.
    pub(super) known_since: Time,
    /// Replies kept, in the order they were given: sequence and slot.
    pub(super) kept: VecDeque<(u32, u32)>,
    used_at: Time,
}

impl Clients {
    pub(super) fn new(tokens: Tokens, seed: u64) -> Self {
        let index = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { index, records: Vec::new(), tokens, last: 0, hand: 0, vacant: Vec::new() }
    }

    pub(super) fn record(&self, client: u32) -> &ClientRecord {
        &self.records[client as usize]
    }

    pub(super) fn record_mut(&mut self, client: u32) -> &mut ClientRecord {
        &mut self.records[client as usize]
    }

    /// Whether `token` proves `address`.
    pub(super) fn is_proof(&self, address: SocketAddr, token: u64) -> bool {
        token != 0 && token == self.tokens.token(address)
    }

    /// The token to give to `address`.
    pub(super) fn token(&self, address: SocketAddr) -> u64 {
        self.tokens.token(address)
    }

    pub(super) fn find(&mut self, address: SocketAddr) -> Option<u32> {
        if self.records.get(self.last as usize).is_some_and(|record| record.address == address) {
            return Some(self.last);
        }
        self.last = self.index.get(&AddressKey(address)).copied()?;
        Some(self.last)
    }

    /// Whether a client that has not proven its address would still be added. May forget an idle
    /// one to make room.
    pub(super) fn takes_unproven(&mut self, now: Time, serving: &Serving) -> bool {
        let limit = serving.clients_max / 2;
        if self.index.len() >= limit {
            self.forget_idle(now, serving);
        }
        self.index.len() < limit
    }

    /// Adds a client; `None` when the table is full of clients that may not be forgotten.
    pub(super) fn add(&mut self, now: Time, address: SocketAddr, serving: &Serving) -> Option<u32> {
        let token = self.tokens.token(address);
        let (is_validated, requests, held_bytes, sessions) = (false, 0, 0, Vec::new());
        let record = ClientRecord {
            address,
            token,
            is_validated,
            requests,
            held_bytes,
            used_at: now,
            sessions,
        };
        if self.vacant.is_empty() && self.records.len() >= serving.clients_max {
            self.forget_idle(now, serving);
        }
        let added = if let Some(place) = self.vacant.pop() {
            self.records[place as usize] = record;
            place
        } else if self.records.len() < serving.clients_max {
            self.records.push(record);
            self.records.len() as u32 - 1
        } else {
            return None;
        };
        self.index.insert(AddressKey(address), added);
        self.last = added;
        Some(added)
    }

    /// Forgets one client that holds nothing and has been idle for long, if a few steps find one.
    fn forget_idle(&mut self, now: Time, serving: &Serving) {
        for _ in 0..FORGET_STEPS.min(self.records.len()) {
            self.hand = (self.hand + 1) % self.records.len();
            let record = &mut self.records[self.hand];
            if record.requests == 0 && now.saturating_sub(record.used_at) > serving.session_idle_ns
            {
                self.index.remove(&AddressKey(record.address));
                record.sessions = Vec::new();
                record.used_at = Time::MAX;
                record.address = NOBODY;
                return self.vacant.push(self.hand as u32);
            }
        }
    }
}

impl ClientRecord {
    /// Looks at what proves the address: the token, or that the address and whoever sent the
    /// packet, which may be a router that names the address, are both trusted.
    pub(super) fn validate(&mut self, token: u64, sender: SocketAddr, serving: &Serving) {
        if !self.is_validated {
            let is_trusted = |ip| serving.trusted.iter().any(|prefix| prefix.contains(ip));
            self.is_validated =
                token == self.token || is_trusted(self.address.ip()) && is_trusted(sender.ip());
        }
    }

    /// Its session `id`, most recently used first.
    pub(super) fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        let place = self.sessions.iter().position(|session| session.id == id)?;
        self.sessions.get_mut(place)
    }

    /// Adds a session; `None` when the limit is reached by sessions that may not be forgotten.
    pub(super) fn add_session(
        &mut self,
        now: Time,
        started_at: Time,
        id: SessionId,
        serving: &Serving,
    ) -> Option<&mut Session> {
        // The session may have been known before, and forgotten after it was idle for so long.
        let known_since = started_at.max(now.saturating_sub(serving.session_idle_ns));
        let limit = if self.is_validated {
            serving.sessions_per_client_max
        } else {
            serving.sessions_unproven_max
        };
        if self.sessions.len() < limit {
            self.sessions.push(Session {
                id,
                window: Window::new(),
                known_since,
                kept: VecDeque::with_capacity(KEPT_LEN),
                used_at: now,
            });
            return self.sessions.last_mut();
        }
        let idlest = self
            .sessions
            .iter_mut()
            .filter(|session| session.kept.is_empty())
            .min_by_key(|session| session.used_at)?;
        if now.saturating_sub(idlest.used_at) <= serving.session_idle_ns {
            return None;
        }
        idlest.id = id;
        idlest.known_since = known_since;
        idlest.used_at = now;
        idlest.window.clear();
        Some(idlest)
    }

    /// Takes note that a request of session `id` came.
    pub(super) fn touch(&mut self, now: Time, id: SessionId) {
        self.used_at = now;
        if let Some(session) = self.session(id) {
            session.used_at = now;
        }
    }
}

/// Clients looked at for one that may be forgotten, each time one is needed.
const FORGET_STEPS: usize = 32;

/// The address of a record that is vacant.
const NOBODY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// Replies of one session for which there is room from the start.
const KEPT_LEN: usize = 256;
