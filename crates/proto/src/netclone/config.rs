//! A switch's configuration: [`SwitchConfig`], a default and a reason for each of its limits.

use std::net::SocketAddr;

use tailcut_wire::netclone::SERVERS_MAX;

use crate::reply_filter::ReplyFilter;

/// Placement of a request that is not cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// It goes to the first of its pair, which makes it random placement.
    First,
    /// It goes to the one where less wait, the first on a tie (RackSched).
    Shorter,
}

/// A switch's configuration.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// The servers, by their ids, which they must send: 1 to 16, as many as the published table has
    /// pairs for. Default none, which is refused.
    pub servers: Vec<SocketAddr>,
    /// Placement of a request that is not cloned. Default [`Fallback::First`], plain NetClone.
    pub fallback: Fallback,
    /// Cells in each of the filter's two tables. Default 131,072, as published: 1 MiB.
    pub filter_len: usize,
    /// Requests whose clients are remembered. Default 131,072, as many as a table has cells: an id
    /// that comes so much later takes the cell, and what is answered then is lost. 5 MiB.
    pub flights_len: usize,
    /// Longest datagram of a request. Default 8,972: a jumbo frame less IPv4 and UDP.
    pub packet_len_max: usize,
    /// Most datagrams waiting for the driver. Default 8,192; at least 2, the copies of a request.
    pub outbox_len_max: usize,
    /// Longest time that a server may leave an original unanswered before it is taken out. Default
    /// 1 s, longer than services and queues last: the format has no probes, so nothing tells a slow
    /// server from one that is gone.
    pub silent_ns: u64,
    /// Time between two requests that try a server that is out. Default 1 s: each may be lost.
    pub trial_interval_ns: u64,
    /// Seed of the first id and of the epoch. Default 0; a switch in service takes one that nobody
    /// can guess.
    pub seed: u64,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            fallback: Fallback::First,
            filter_len: ReplyFilter::<u32>::PUBLISHED_LEN,
            flights_len: ReplyFilter::<u32>::PUBLISHED_LEN,
            packet_len_max: 8_972,
            outbox_len_max: 8_192,
            silent_ns: SECOND,
            trial_interval_ns: SECOND,
            seed: 0,
        }
    }
}

impl SwitchConfig {
    pub(super) fn check(&self) -> Result<(), SwitchError> {
        let at_least_one = [
            ("filter_len", self.filter_len as u64),
            ("flights_len", self.flights_len as u64),
            ("silent_ns", self.silent_ns),
            ("trial_interval_ns", self.trial_interval_ns),
        ];
        if let Some((field, _)) = at_least_one.into_iter().find(|&(_, value)| value == 0) {
            return Err(SwitchError::Zero { field });
        }
        if self.outbox_len_max < 2 {
            return Err(SwitchError::Outbox { limit: self.outbox_len_max });
        }
        if !(1..=SERVERS_MAX as usize).contains(&self.servers.len()) {
            return Err(SwitchError::Servers { count: self.servers.len() });
        }
        let mut before = self.servers.iter().enumerate();
        match before.find(|&(at, addr)| self.servers[..at].contains(addr)) {
            Some((_, &addr)) => Err(SwitchError::Exists { addr }),
            None => Ok(()),
        }
    }
}

/// Reason why a switch cannot be made, or its servers cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// A field that must be at least 1 is 0.
    #[error("{field} must be at least 1")]
    Zero {
        /// The field.
        field: &'static str,
    },
    /// The outbox has no room for the two copies of a request.
    #[error("outbox_len_max must be at least 2, the copies of a request, and not {limit}")]
    Outbox {
        /// Its limit.
        limit: usize,
    },
    /// None, or more than there are groups for.
    #[error("a NetClone switch has 1 to {SERVERS_MAX} servers, not {count}")]
    Servers {
        /// Number of servers.
        count: usize,
    },
    /// Two servers share an address.
    #[error("there is already a server at {addr}")]
    Exists {
        /// The address.
        addr: SocketAddr,
    },
    /// No server has this address.
    #[error("there is no server at {addr}")]
    Unknown {
        /// The address.
        addr: SocketAddr,
    },
    /// All others are drained, and somebody must have the requests.
    #[error("{addr} is the last server that is not drained")]
    Last {
        /// The address.
        addr: SocketAddr,
    },
    /// The clients' groups count as many servers as there were at the start.
    #[error("a NetClone switch has as many servers as at its start: remove one first")]
    NoId,
}

const SECOND: u64 = 1_000_000_000;
