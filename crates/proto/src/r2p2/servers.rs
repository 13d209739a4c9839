//! What a client remembers of each server or router it has spoken to: its token and its round
//! trips.

use std::net::SocketAddr;

use super::config::Config;
use super::copies::Quantile;
use super::pace::Pace;
use crate::node::Time;
use crate::peer::limits::Serving;
use crate::peer::table::{NOBODY, PeerId, Table};
use crate::rtt::Rtt;

/// Servers and routers of a client, and one record of [`NOBODY`] that newcomers share once the
/// table is full, which costs them precise timeouts.
pub(super) type Servers = Table<ServerState>;

/// State of one besides that of every protocol.
#[derive(Debug, Default)]
pub(super) struct ServerState {
    /// Validates this host's address there; 0 before the server has given one.
    pub(super) token: u64,
    /// It has taken requests of several packets at the address that was called: no router stands
    /// before it.
    pub(super) is_direct: bool,
    /// From a packet to its ACK.
    pub(super) ack: Rtt,
    /// From a request to its reply, service included.
    pub(super) reply: Rtt,
    /// Quantile of that after which calls are sent twice, if they are hedged.
    pub(super) reply_times: Quantile,
    /// Requests that wait for a worker there, by the latest reply; of a router at the server that
    /// gave it.
    pub(super) waiting: u16,
    /// When the next call may go, where it refuses.
    pub(super) pace: Pace,
}

impl Servers {
    /// An empty table.
    pub(super) fn of_client(config: &Config, seed: u64) -> Self {
        let mut servers = Self::new(0, config.servers_max + 1, &config.serving, seed);
        servers.add(0, (NOBODY, true), ServerState::default(), &config.serving);
        servers
    }

    /// The record of `address`, in use from now on.
    #[inline(always)]
    pub(super) fn find_or_add(
        &mut self,
        now: Time,
        address: SocketAddr,
        serving: &Serving,
    ) -> PeerId {
        let place = match self.find(address) {
            Some(found) => found,
            None => {
                let state = ServerState::default();
                self.add(now, (address, true), state, serving).unwrap_or_default()
            }
        };
        self[place].used_at = now;
        place
    }
}
