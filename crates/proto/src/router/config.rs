//! A router's configuration: [`RouterConfig`], a default and a reason for each of its limits, and
//! what is wrong with one.
//!
//! | limit | what happens when it is reached |
//! |---|---|
//! | `queue_len_max`, and what a client may have of it | the request is refused: overload |
//! | `overload` | the request is refused: overload |
//! | `hold_ns_max` | the request is refused: expired |
//! | `packet_len_max` | the request is refused: too large |
//! | `outbox_len_max` | the datagram is dropped and counted; the driver does not drain |
//! | `table_len_max` | idempotent requests are forwarded untracked, the others refused: overload |
//! | `lease_len_max` | the oldest lease gives way |
//! | `servers_max` | adding a server fails |

use std::net::SocketAddr;

use super::pace::OutlierConfig;
use crate::address::Prefix;
use crate::node::Time;
use crate::peer::cookies::Cookies;
use crate::peer::limits::Serving;
use crate::policy::{Draws, Jbsq, PolicySpec};
use crate::r2p2::AskCookies;
use crate::reply_filter::ReplyFilter;
use crate::scheduler::overload::OverloadConfig;
use crate::sealed::Sealing;

/// One server behind the router: one queue, at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Address that requests go to and feedback comes from.
    pub addr: SocketAddr,
    /// Protocol that the server speaks. A server of the reference must be marked, or it would take
    /// the extension for payload.
    pub speaks: Speaks,
}

/// Protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// Version 1 only: no probes, feedback counts one, and tailcut requests do not go there.
    V1,
    /// The extension, and version 1 to clients that have nothing else.
    Extension,
}

/// Method of forwarding a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The client stays the datagram's source, so that the server answers it directly. Needs a raw
    /// datapath and a network that lets such datagrams through, and clients and servers of one IP
    /// family.
    Keep,
    /// The router is the source and the route block carries the client's address. Works everywhere;
    /// version 1 requests have no route block and are refused.
    Annotate,
}

/// Place at which the slower of two replies to a cloned request is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterAt {
    /// At the client, by the call's id: replies go there directly.
    Client,
    /// At the router, through which replies of one packet come back, as NetClone's switch does it.
    /// Spares clients the second packet and costs the first a hop. Needs [`Forward::Keep`], and
    /// servers that have the router configured. The client drops what the router lets through.
    Router,
}

/// A router's configuration.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Placement policy. Default `jbsq:auto`: the bound follows what is measured. Take `jbsq:N`
    /// where the service time and the network are known and constant, the others to compare.
    pub policy: PolicySpec,
    /// Method of forwarding requests. Default [`Forward::Annotate`], which needs no privilege. Take
    /// [`Forward::Keep`] for version 1 clients.
    pub forward: Forward,
    /// Place at which the slower of two replies is dropped. Default [`FilterAt::Client`]: replies
    /// take the shortest way. Take [`FilterAt::Router`] where clients have no time for second
    /// replies.
    pub filter: FilterAt,
    /// Cells in each of the filter's two tables. Default 131,072, as published: a request's cell is
    /// taken by another only where as many are under way. It takes 16 bytes a cell, where it
    /// filters.
    pub filter_len: usize,
    /// The servers; the first takes the requests of the fixed policy. Default none: they may be
    /// added at run time.
    pub servers: Vec<ServerConfig>,
    /// Routers before this one: their word for a request's client is taken, and they are told what
    /// the servers have together. Port 0 stands for every port of the host. Of others the
    /// datagram's source is the client. Default none.
    pub upstreams: Vec<SocketAddr>,
    /// Most requests held, for each generation of servers. Default 4,096: at a million requests a
    /// second 4 ms of them, and who waits longer is better refused. Raise it for long services.
    pub queue_len_max: usize,
    /// Overload control: limits of the time that requests wait, by their deadlines and by how long
    /// the queue stands. Its seed is not looked at. Default [`OverloadConfig::DEFAULT`].
    pub overload: OverloadConfig,
    /// Longest that a request is held, if its own deadline is not sooner. Default 1 s: a client's
    /// default deadline, and longer than a busy machine stalls a router, which would find
    /// everything expired at once.
    pub hold_ns_max: u64,
    /// Longest datagram of a request. Default 8,972: a jumbo frame less IPv4 and UDP. It bounds the
    /// memory of what is held.
    pub packet_len_max: usize,
    /// Most datagrams waiting for the driver. Default 8,192: what the queue may release at once,
    /// and as much again.
    pub outbox_len_max: usize,
    /// Most RPC ids remembered. Default 524,288. An id is remembered until its client says in a
    /// later request that the call has ended, `transit_ns_max` more, and a thousandth of
    /// `lifetime_ns_max`, which is how late it is released: at a million requests a second 70,000.
    /// Of the last calls of a client to their deadlines. Above half of the limit those that are
    /// placed are remembered for 250 ms at most, so that strangers who never say that a call has
    /// ended need to begin a million a second to fill it; what is sent again later than that is
    /// then refused, `Uncertain`. It takes about 250 bytes an id.
    pub table_len_max: usize,
    /// Longest that an RPC id is remembered, and how long where the request has no deadline.
    /// Default 60 s. Longer deadlines are at most once only for so long.
    pub lifetime_ns_max: u64,
    /// Longest that the network takes to carry a datagram. A retransmission that is not idempotent
    /// and may have been sent first before this router started is refused, since the router cannot
    /// know where it went. Default 10 ms: more than a datacenter's queues hold.
    pub transit_ns_max: u64,
    /// Time between two probes of a server, less up to an eighth at random. Default 5 ms: a lost
    /// request or feedback is made good after that, and an idle server that is gone is out within
    /// 30 ms, for 200 small packets a second and server. Raise it with hundreds of servers.
    pub probe_interval_ns: u64,
    /// Longest time that a server may be at its bound without feedback before it is probed out of
    /// turn. Default 1 ms. Raise it where services take longer than that as a rule. Below its bound
    /// a server with requests is probed after a twelfth of `silent_ns`, if that is longer.
    pub stall_probe_ns: u64,
    /// Longest time that a server may leave probes unanswered before it is taken out. Default 24
    /// ms: longer than the pauses of 20 ms that a busy machine makes, and short enough that one
    /// that is gone is out within 30 ms (`tailcut sim reproduce detection` shows the trade). A
    /// server that has paused for longer is given an eighth more than its pause.
    pub silent_ns: u64,
    /// The longest that any server is given, and what all are given where more than half of them
    /// would be out. Default 200 ms: when everybody is silent, it is rather the network, or a
    /// machine that they share.
    pub silent_ns_max: u64,
    /// Criteria by which a server that answers is too slow. Default [`OutlierConfig::DEFAULT`].
    pub outliers: OutlierConfig,
    /// Longest time that a version 1 request counts as outstanding without feedback. Default 1 s;
    /// longer than the longest service, for a lost feedback costs a slot for so long.
    pub lease_ns: u64,
    /// Most leases of one server. Default 4,096: policies without a bound would otherwise remember
    /// every request that goes to a server that sends no feedback.
    pub lease_len_max: usize,
    /// Leases of a version 1 server that expire in a row before it is taken out. Default 3, as many
    /// as the reference loses.
    pub v1_failures_max: u32,
    /// Time between two trial requests to a version 1 server that is out. Default 1 s: each may be
    /// lost.
    pub v1_trial_interval_ns: u64,
    /// Most servers. Default 1,024: a placement looks at each.
    pub servers_max: usize,
    /// Seed of every random choice. Default 0; a router in service takes one that nobody can guess.
    pub seed: u64,
    /// Keys, where packets are sealed: a router's. Then nothing open is taken, and version 1 is not
    /// spoken. Default none.
    pub seal: Option<Sealing>,
    /// Cookies by which clients must show that they receive at their addresses. Default: never
    /// asked for.
    pub cookies: CookieConfig,
}

/// Configuration of a router's cookies: when it asks clients for them, and by what it makes them.
#[derive(Clone, Debug)]
pub struct CookieConfig {
    /// Condition on which it asks. Default never: then servers may. Version 1 clients, who know
    /// none, are refused then. Sealed packets need none.
    pub ask: AskCookies,
    /// Key of the cookies, the servers' [`Pool::key`](crate::r2p2::Pool::key), so that one cookie
    /// serves for all. `None` derives one from the seed: fit where the servers ask for none.
    pub key: Option<[u8; 16]>,
    /// Wall-clock time at the router's time 0, nanoseconds, by which cookies expire: who shares the
    /// key must agree on it to a minute.
    pub clock_ns: u64,
    /// Networks whose addresses cannot be forged, whose clients show none. Default the loopback
    /// networks.
    pub trusted: Vec<Prefix>,
}

impl Default for CookieConfig {
    fn default() -> Self {
        let trusted = Serving::default().trusted;
        Self { ask: AskCookies::Never, key: None, clock_ns: 0, trusted }
    }
}

impl CookieConfig {
    /// The source of the cookies.
    pub(super) fn make(&self, draws: &mut Draws) -> Cookies {
        let key = match (self.key, self.ask) {
            (Some(key), _) => key,
            // There are none to be made.
            (None, AskCookies::Never) => [0; 16],
            (None, _) => (u128::from(draws.word()) << 64 | u128::from(draws.word())).to_be_bytes(),
        };
        Cookies::new(self.ask, &key, self.clock_ns)
    }
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            policy: Jbsq::AUTO,
            forward: Forward::Annotate,
            filter: FilterAt::Client,
            filter_len: ReplyFilter::<u64>::PUBLISHED_LEN,
            servers: Vec::new(),
            upstreams: Vec::new(),
            queue_len_max: 4_096,
            overload: OverloadConfig::DEFAULT,
            hold_ns_max: SECOND,
            packet_len_max: 8_972,
            outbox_len_max: 8_192,
            table_len_max: 1 << 19,
            lifetime_ns_max: 60 * SECOND,
            transit_ns_max: 10 * MILLISECOND,
            probe_interval_ns: 5 * MILLISECOND,
            stall_probe_ns: MILLISECOND,
            silent_ns: 24 * MILLISECOND,
            silent_ns_max: 200 * MILLISECOND,
            outliers: OutlierConfig::DEFAULT,
            lease_ns: SECOND,
            lease_len_max: 4_096,
            v1_failures_max: 3,
            v1_trial_interval_ns: SECOND,
            servers_max: 1_024,
            seed: 0,
            seal: None,
            cookies: CookieConfig::default(),
        }
    }
}

impl RouterConfig {
    /// Longest that an id may be remembered, ns.
    pub(super) fn remembered_ns_max(&self) -> u64 {
        let slack_ns = self.seal.as_ref().map_or(0, Sealing::slack_ns);
        self.lifetime_ns_max + self.transit_ns_max + slack_ns
    }

    /// Checks what can be checked without a server.
    pub(super) fn check(&self) -> Result<(), RouterError> {
        let at_least_one = [
            ("hold_ns_max", self.hold_ns_max),
            ("filter_len", self.filter_len as u64),
            ("outbox_len_max", self.outbox_len_max as u64),
            ("table_len_max", self.table_len_max as u64),
            ("lifetime_ns_max", self.lifetime_ns_max),
            ("probe_interval_ns", self.probe_interval_ns),
            ("stall_probe_ns", self.stall_probe_ns),
            ("outliers.window_ns", self.outliers.window_ns),
            ("outliers.windows", self.outliers.windows.into()),
            ("outliers.servers_per_ejected", self.outliers.servers_per_ejected.into()),
            ("silent_ns", self.silent_ns),
            ("silent_ns_max", self.silent_ns_max),
            ("lease_ns", self.lease_ns),
            ("lease_len_max", self.lease_len_max as u64),
            ("v1_failures_max", u64::from(self.v1_failures_max)),
            ("v1_trial_interval_ns", self.v1_trial_interval_ns),
        ];
        if let Some((field, _)) = at_least_one.into_iter().find(|&(_, value)| value == 0) {
            return Err(RouterError::Zero { field });
        }
        if self.filter == FilterAt::Router && self.forward != Forward::Keep {
            return Err(RouterError::FilterWithoutKeep);
        }
        if self.filter == FilterAt::Router && self.seal.is_some() {
            return Err(RouterError::FilterSealed);
        }
        if self.cookies.ask != AskCookies::Never && self.seal.is_some() {
            return Err(RouterError::CookiesSealed);
        }
        if self.seal.as_ref().is_some_and(Sealing::is_client) {
            return Err(RouterError::KeysOfClient);
        }
        let at_most = [
            ("queue_len_max", self.queue_len_max, LEN_MAX),
            ("filter_len", self.filter_len, LEN_MAX),
            ("outbox_len_max", self.outbox_len_max, LEN_MAX),
            ("table_len_max", self.table_len_max, LEN_MAX),
            ("lease_len_max", self.lease_len_max, LEN_MAX),
            ("packet_len_max", self.packet_len_max, crate::node::GSO_BYTES_MAX),
            ("servers_max", self.servers_max, SERVERS_MAX),
        ];
        match at_most.into_iter().find(|&(_, value, limit)| value > limit) {
            Some((field, _, limit)) => Err(RouterError::TooLarge { field, limit }),
            None => Ok(()),
        }
    }
}

/// Reason why a router cannot be made, or its servers cannot be changed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouterError {
    /// A field that must be at least 1 is 0.
    #[error("{field} must be at least 1")]
    Zero {
        /// The field.
        field: &'static str,
    },
    /// A field is above what the implementation can hold.
    #[error("{field} must be at most {limit}")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// Its largest value.
        limit: usize,
    },
    /// Replies are to come back through a router that does not keep the clients' addresses.
    #[error("a router filters replies only where it keeps the clients' addresses")]
    FilterWithoutKeep,
    /// Sealed replies are to come back through a router, which has no key of them.
    #[error("a router does not filter sealed replies: leave that to the clients")]
    FilterSealed,
    /// Cookies are asked for of those whom their keys prove.
    #[error("sealed requests need no cookies: leave the keys or the cookies out")]
    CookiesSealed,
    /// The keys are a client's.
    #[error("these are a client's keys, by which no other's requests are known: take a router's")]
    KeysOfClient,
    /// There is a server at that address.
    #[error("there is already a server at {addr}")]
    Exists {
        /// The address.
        addr: SocketAddr,
    },
    /// There is no server at that address.
    #[error("there is no server at {addr}")]
    Unknown {
        /// The address.
        addr: SocketAddr,
    },
    /// There are as many servers as the configuration allows.
    #[error("{limit} servers are the limit")]
    TooManyServers {
        /// The limit.
        limit: usize,
    },
}

const MILLISECOND: Time = 1_000_000;
const SECOND: Time = 1_000 * MILLISECOND;
const LEN_MAX: usize = 1 << 30;
/// The most that any table of servers is made for.
const SERVERS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed::{Cipher, EpochKey, HopKey, Keys, Role, Secret};

    fn check(change: impl Fn(&mut RouterConfig), message: &str) {
        let mut config = RouterConfig::default();
        change(&mut config);
        assert_eq!(config.check().map_err(|error| error.to_string()), Err(message.to_owned()));
    }

    #[test]
    fn the_default_is_sound() {
        assert_eq!(RouterConfig::default().check(), Ok(()));
    }

    #[test]
    fn senseless_limits_are_refused() {
        check(|config| config.probe_interval_ns = 0, "probe_interval_ns must be at least 1");
        check(|config| config.filter_len = 0, "filter_len must be at least 1");
        check(
            |config| config.filter = FilterAt::Router,
            "a router filters replies only where it keeps the clients' addresses",
        );
        check(|config| config.packet_len_max = 70_000, "packet_len_max must be at most 65507");
        check(|config| config.table_len_max = 1 << 31, "table_len_max must be at most 1073741824");
    }

    #[test]
    fn the_largest_limits_are_sound() {
        let config = RouterConfig {
            queue_len_max: LEN_MAX,
            table_len_max: LEN_MAX,
            packet_len_max: crate::node::GSO_BYTES_MAX,
            servers_max: SERVERS_MAX,
            ..RouterConfig::default()
        };
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn an_id_is_remembered_while_a_request_lives_and_its_last_copy_travels() {
        let config =
            RouterConfig { lifetime_ns_max: 70, transit_ns_max: 9, ..RouterConfig::default() };
        assert_eq!(config.remembered_ns_max(), 79);
    }

    fn sealed() -> RouterConfig {
        let (secret, hop) = (Secret::new([1; 32]), HopKey::default());
        let epochs = vec![EpochKey { epoch: 1, from_ms: 0, secret, hop }];
        let (role, group, cipher) = (Role::Router, "test".into(), Cipher::Aes128Gcm);
        let keys = std::sync::Arc::new(Keys { role, group, cipher, reset: None, epochs });
        let sealing = Sealing { clock_tolerance_ms: 3, ..Sealing::new(keys, 0) };
        RouterConfig { seal: Some(sealing), ..RouterConfig::default() }
    }

    #[test]
    fn sealed_requests_need_no_cookies() {
        let cookies = CookieConfig { ask: AskCookies::Always, ..CookieConfig::default() };
        let config = RouterConfig { cookies, ..sealed() };
        assert_eq!((sealed().check(), config.check()), (Ok(()), Err(RouterError::CookiesSealed)));
    }

    /// Clocks of either end may be off: what is sealed says when it was sent.
    #[test]
    fn an_id_of_a_sealed_request_is_remembered_for_as_long_as_clocks_are_apart_too() {
        let open = RouterConfig::default().remembered_ns_max();
        assert_eq!(sealed().remembered_ns_max(), open + 6 * MILLISECOND);
    }
}
