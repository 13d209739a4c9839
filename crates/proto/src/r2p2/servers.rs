//! State that a client keeps of each server or router it has spoken to: its token and its round
//! trips.

use std::net::SocketAddr;

use tailcut_wire::r2p2::{Flags, ReplyHeader};

use super::config::Config;
use super::cookies::write_tag;
use super::copies::Quantile;
use super::pace::Pace;
use crate::node::Time;
use crate::peer::table::{NOBODY, PeerId, Table};
use crate::rtt::Rtt;

/// Servers and routers of a client, and one record of [`NOBODY`] that newcomers share once the
/// table is full, which costs them precise timeouts.
pub(super) type Servers = Table<ServerState>;

/// State of one besides that of every protocol.
#[derive(Debug, Default)]
pub(super) struct ServerState {
    /// Validates this host's address there.
    pub(super) proof: Proof,
    /// It has taken requests of several packets at the address that was called: no router stands
    /// before it.
    pub(super) is_direct: bool,
    /// As [`Config::is_local`]; of the record that newcomers share nothing.
    pub(super) is_local: bool,
    /// It has replied from the address that was called, on this host, that it takes long packets.
    pub(super) takes_long: bool,
    /// From a packet to its ACK.
    pub(super) ack: Rtt,
    /// From a request to its reply, service included.
    pub(super) reply: Rtt,
    /// Quantile of that after which calls are sent twice, if they are hedged.
    pub(super) reply_times: Quantile,
    /// Requests that wait for a worker there, by the latest reply; of a router at the server that
    /// gave it.
    pub(super) waiting: u16,
    /// Pacing of calls to it, where it refuses.
    pub(super) pace: Pace,
}

/// Proof of its address that a client shows to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Proof {
    /// Nothing: the server has given nothing.
    #[default]
    None,
    /// A token, which packets echo.
    Token(u64),
    /// A cookie, by which the first packets of requests bear tags.
    Cookie(u64),
}

impl Proof {
    /// Proof that a header gives, if any.
    #[inline]
    pub(super) fn given(header: &ReplyHeader) -> Option<Self> {
        match (header.token.get(), Flags(header.flags).has(Flags::COOKIE)) {
            // 0 stands for none, as in what routers say.
            (0, _) => None,
            (cookie, true) => Some(Self::Cookie(cookie)),
            (token, false) => Some(Self::Token(token)),
        }
    }

    /// Token that headers echo; 0 for none.
    #[inline]
    pub(super) fn token(self) -> u64 {
        if let Self::Token(token) = self { token } else { 0 }
    }

    /// Writes the tag of the first packet of a request, if it is to bear one.
    #[inline]
    pub(super) fn tag(self, packet: &mut [u8]) {
        if let Self::Cookie(cookie) = self {
            write_tag(packet, cookie);
        }
    }
}

impl Servers {
    /// An empty table.
    pub(super) fn of_client(config: &Config, seed: u64) -> Self {
        let mut servers = Self::new(0, config.servers_max + 1, &config.serving, seed);
        // At place 0, which `PeerId::default` names: newcomers get it where the table is full.
        servers.add(0, (NOBODY, true), ServerState::default(), &config.serving);
        servers
    }

    /// The record of `address`, in use from now on.
    #[inline(always)]
    pub(super) fn find_or_add(
        &mut self,
        now: Time,
        address: &SocketAddr,
        config: &Config,
    ) -> PeerId {
        let place = match self.find_at(address) {
            Some(found) => found,
            None => {
                let is_local = config.is_local(*address);
                let state = ServerState { is_local, ..ServerState::default() };
                self.add(now, (*address, true), state, &config.serving).unwrap_or_default()
            }
        };
        self[place].used_at = now;
        place
    }

    /// True if an address is on this host, as its record knows but for one that newcomers share.
    #[inline(always)]
    pub(super) fn is_local(&self, record: PeerId, address: &SocketAddr, config: &Config) -> bool {
        match record == PeerId::default() {
            true => config.is_local(*address),
            false => self[record].state.is_local,
        }
    }
}
