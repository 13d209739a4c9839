//! Counters and status of a router: [`RouterMetrics`] and [`RouterStatus`].
//!
//! | a datagram is | counted in |
//! |---|---|
//! | any | `received` |
//! | no packet, or none that a router can use | one of `malformed` |
//! | a packet for somebody else | `not_first`, `unexpected` |
//! | a request | `validations`, `forwarded`, `clones_unplaced`, `duplicates_held`, one of `refused`, `outbox_full`; before that perhaps `held` |
//! | feedback | `feedback_taken`, `feedback_stale`, `feedback_unmatched`, `feedback_mismatched`, `feedback_stranger` |
//! | a request that another router may have placed | `claims`, `claims_dropped`; later `claims_placed`, `claims_expired` |
//! | an answer to a claim | `claimed_unmatched`, where it is of none |
//! | a reply | `replies_forwarded`, `replies_filtered`, `replies_stranger`, `outbox_full` |
//! | a probe | `probes_answered`, `probes_stranger` |
//! | a cancel | `cancelled_held`, `cancelled_forwarded`, `clones_cancelled`, `cancels_unknown` |
//!
//! Invariant: counters only rise.

use std::net::SocketAddr;

use tailcut_wire::r2p2::{DropReason, Malformed};

use super::config::Speaks;
use crate::scheduler::Rank;
use crate::sealed::SealMetrics;

/// A router's counters since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterMetrics {
    /// Datagrams received.
    pub received: u64,
    /// Requests sent to a server, duplicates among them.
    pub forwarded: u64,
    /// Requests that had to wait in the queue.
    pub held: u64,
    /// Clients told that their request is held.
    pub told_held: u64,
    /// Clients that had to show a cookie first.
    pub validations: u64,
    /// Requests refused, by reason.
    pub refused: Refused,
    /// Datagrams that are not packets, by reason.
    pub malformed: MalformedCounts,
    /// Request packets other than the first, which go to the server directly.
    pub not_first: u64,
    /// Packets that a router does not accept: replies without a route block, ACKs except those of
    /// servers, DROPs, and claims of routers that are not configured.
    pub unexpected: u64,
    /// Requests of the fixed policy forwarded to the first server.
    pub fixed: u64,
    /// Requests of the fixed policy forwarded past the policy's bound.
    pub fixed_past_bound: u64,
    /// Requests of a known id sent to the same server again.
    pub duplicates_forwarded: u64,
    /// Requests of an id that is held already, dropped.
    pub duplicates_held: u64,
    /// Idempotent requests of a known id placed anew, for their server is gone.
    pub duplicates_moved: u64,
    /// Idempotent requests forwarded without being remembered, for the table was full.
    pub untracked: u64,
    /// Feedback that was taken into account.
    pub feedback_taken: u64,
    /// Extended feedback that is older than what is known, or contradicts itself.
    pub feedback_stale: u64,
    /// Version 1 feedback from a server without a lease: its lease had expired, or it was sent
    /// twice.
    pub feedback_unmatched: u64,
    /// Extended feedback from a server that is configured as version 1.
    pub feedback_mismatched: u64,
    /// Feedback from an address that is no server's.
    pub feedback_stranger: u64,
    /// Feedback that shows a restart of the server.
    pub server_restarts: u64,
    /// Leases that expired without feedback, or gave way to newer ones.
    pub leases_expired: u64,
    /// Trial requests to version 1 servers that are out.
    pub trials: u64,
    /// Looks at a server for what is due there.
    pub server_looks: u64,
    /// Probes sent, those out of turn among them.
    pub probes: u64,
    /// Probes sent out of turn, since a server had requests and gave no feedback.
    pub stall_probes: u64,
    /// Probes of routers before this one, answered.
    pub probes_answered: u64,
    /// Probes of routers that are not named as such, ignored.
    pub probes_stranger: u64,
    /// Reports sent to routers before this one.
    pub reports: u64,
    /// Servers taken out because they were silent.
    pub servers_silenced: u64,
    /// Silent servers that returned.
    pub servers_returned: u64,
    /// Times that a server was taken out because it was much slower than the others.
    pub servers_ejected: u64,
    /// Times that one was taken back.
    pub servers_readmitted: u64,
    /// Cancels of held requests.
    pub cancelled_held: u64,
    /// Cancels sent on to the server.
    pub cancelled_forwarded: u64,
    /// Cancels of requests that are not known, or whose server is gone.
    pub cancels_unknown: u64,
    /// Requests placed on two servers, by the policy or because the client asked for a copy.
    pub cloned: u64,
    /// Copies that a client asked for and no second server could take.
    pub clones_unplaced: u64,
    /// Cloned requests that the client says were answered by the copy first; it says so where it
    /// cancels the other.
    pub clones_won: u64,
    /// Servers told that the other copy has been answered.
    pub clones_cancelled: u64,
    /// Replies that came back through the router and were sent on to their clients.
    pub replies_forwarded: u64,
    /// Replies dropped because the other copy's has been forwarded.
    pub replies_filtered: u64,
    /// Replies that came from no server of the router, or that were not asked to come back here.
    pub replies_stranger: u64,
    /// Calls whose cell in the filter another has taken: the clone was discarded, or both replies
    /// reach the client.
    pub filter_evicted: u64,
    /// Requests that another router may have placed, for which the servers were asked.
    pub claims: u64,
    /// Claimed requests that were placed.
    pub claims_placed: u64,
    /// Claims that ended because a server did not answer.
    pub claims_expired: u64,
    /// Requests that another router may have placed, dropped because no server is in service or too
    /// many claims are under way.
    pub claims_dropped: u64,
    /// Answers to claims that are not known.
    pub claimed_unmatched: u64,
    /// Datagrams dropped because the driver does not drain the outbox.
    pub outbox_full: u64,
    /// Datagrams dropped because they are longer than the driver's buffer.
    pub oversize: u64,
    /// Those of the seal; zero where packets are open.
    pub seal: SealMetrics,
}

/// Requests refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The queue or the table was full.
    pub overload: u64,
    /// Longer than the configuration allows.
    pub too_large: u64,
    /// Held to the deadline or for the longest time allowed.
    pub expired: u64,
    /// No server in service can take it.
    pub no_server: u64,
    /// May have run at a server that can no longer tell.
    pub uncertain: u64,
    /// Version 1 requests at a router that annotates.
    pub v1_annotate: u64,
    /// Version 1 requests, which know no cookies, where those are asked for.
    pub v1_cookies: u64,
    /// It is about to end.
    pub stopping: u64,
}

impl Refused {
    /// Requests refused for any reason.
    pub fn total(&self) -> u64 {
        self.overload
            + self.too_large
            + self.expired
            + self.no_server
            + self.uncertain
            + self.v1_annotate
            + self.v1_cookies
            + self.stopping
    }

    pub(super) fn count(&mut self, reason: DropReason) {
        match reason {
            DropReason::TooLarge => self.too_large += 1,
            DropReason::Expired => self.expired += 1,
            DropReason::NoServer => self.no_server += 1,
            DropReason::Uncertain => self.uncertain += 1,
            DropReason::Unspecified => self.v1_annotate += 1,
            DropReason::Unvalidated => self.v1_cookies += 1,
            DropReason::Stopping => self.stopping += 1,
            _ => self.overload += 1,
        }
    }
}

/// Datagrams that are not packets, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MalformedCounts {
    /// [`Malformed::Truncated`].
    pub truncated: u64,
    /// [`Malformed::Magic`].
    pub magic: u64,
    /// [`Malformed::HeaderSize`].
    pub header_size: u64,
    /// [`Malformed::Type`].
    pub message_type: u64,
    /// [`Malformed::Policy`].
    pub policy: u64,
    /// [`Malformed::Flags`].
    pub flags: u64,
    /// [`Malformed::Order`].
    pub order: u64,
    /// [`Malformed::Version`].
    pub version: u64,
    /// [`Malformed::Length`].
    pub length: u64,
    /// Extended requests without room for the route.
    pub no_route: u64,
    /// Extended requests, and replies on their way back, whose route names a client address that
    /// no answer can reach.
    pub client_address: u64,
}

impl MalformedCounts {
    /// Malformed datagrams of any kind.
    pub fn total(&self) -> u64 {
        let header = self.truncated
            + self.magic
            + self.header_size
            + self.message_type
            + self.policy
            + self.flags;
        header + self.order + self.version + self.length + self.no_route + self.client_address
    }

    pub(super) fn count(&mut self, malformed: Malformed) {
        match malformed {
            Malformed::Truncated => self.truncated += 1,
            Malformed::Magic => self.magic += 1,
            Malformed::HeaderSize => self.header_size += 1,
            Malformed::Type => self.message_type += 1,
            Malformed::Policy => self.policy += 1,
            Malformed::Flags => self.flags += 1,
            Malformed::Order => self.order += 1,
            Malformed::Version => self.version += 1,
            Malformed::Length => self.length += 1,
        }
    }
}

/// A router at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterStatus {
    /// The servers, the first of them first.
    pub servers: Vec<ServerStatus>,
    /// Requests held.
    pub queue_len: usize,
    /// RPC ids remembered.
    pub table_len: usize,
    /// The policy's bound, where it has one.
    pub bound: Option<u32>,
    /// The counters.
    pub metrics: RouterMetrics,
}

/// A server as its router sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its address.
    pub addr: SocketAddr,
    /// Its protocol.
    pub speaks: Speaks,
    /// Its state of service.
    pub state: ServerState,
    /// Requests placed and not known to be concluded.
    pub outstanding: u32,
    /// Load that the server reported last: requests queued or running there. 0 for version 1.
    pub reported: u32,
    /// Number of these that wait for a worker there.
    pub waiting: u32,
    /// Requests placed since it was added.
    pub placed: u64,
    /// Number of these that are known to be concluded; expired leases are not among them. Where the
    /// server is a router, those of its other clients may be.
    pub concluded: u64,
    /// Average round trip of probes to the idle server, nanoseconds.
    pub rtt_ns: Option<u64>,
    /// Average service of requests that found it idle, nanoseconds.
    pub service_ns: Option<u64>,
    /// Its weight, and whether it is of the preferred zone.
    pub rank: Rank,
}

/// State of service of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It does not yet, because it has not answered yet.
    Starting,
    /// It does.
    InService,
    /// It does not, because it is to be removed.
    Draining,
    /// It does not, because it does not answer.
    Silent,
    /// It does not, because it says that it is stopping.
    Stopping,
    /// It does not for a while, because it is much slower than the others.
    Ejected,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_a_refusal_counts_for_itself_and_in_the_sum() {
        let mut refused = Refused::default();
        let reasons = [
            DropReason::Overload,
            DropReason::TooLarge,
            DropReason::Expired,
            DropReason::NoServer,
            DropReason::Uncertain,
            DropReason::Unspecified,
            DropReason::Unvalidated,
            DropReason::Stopping,
        ];
        // As often as its place in the list says, so that no two are alike.
        for (count, reason) in (1..).zip(reasons) {
            (0..count).for_each(|_| refused.count(reason));
        }
        let Refused { overload, too_large, expired, no_server, uncertain, .. } = refused;
        let Refused { v1_annotate, v1_cookies, stopping, .. } = refused;
        let of_both = [overload, too_large, expired, no_server, uncertain];
        let counts = (of_both, [v1_annotate, v1_cookies, stopping]);
        assert_eq!((counts, refused.total()), (([1, 2, 3, 4, 5], [6, 7, 8]), 36));
    }

    #[test]
    fn each_kind_of_malformed_datagram_counts_for_itself_and_in_the_sum() {
        let mut counts = MalformedCounts { no_route: 10, client_address: 11, ..Default::default() };
        let kinds = [
            Malformed::Truncated,
            Malformed::Magic,
            Malformed::HeaderSize,
            Malformed::Type,
            Malformed::Policy,
            Malformed::Flags,
            Malformed::Order,
            Malformed::Version,
            Malformed::Length,
        ];
        for (count, kind) in (1..).zip(kinds) {
            (0..count).for_each(|_| counts.count(kind));
        }
        let MalformedCounts { truncated, magic, header_size, message_type, .. } = counts;
        let MalformedCounts { policy, flags, order, version, length, .. } = counts;
        assert_eq!([truncated, magic, header_size, message_type, policy], [1, 2, 3, 4, 5]);
        assert_eq!(([flags, order, version, length], counts.total()), ([6, 7, 8, 9], 66));
    }
}
