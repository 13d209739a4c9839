//! State that the router keeps of a request, and the writing of a placement into it.

use std::net::SocketAddr;

use tailcut_wire::r2p2::{CloneMark, Flags, RequestHeader, Route, RpcId};
use zerocopy::FromBytes;

use super::config::{Forward, RouterConfig};
use super::ids::EntryId;
use super::replies::ask_back;
use crate::node::{Path, Time};
use crate::sealed::ClientEpoch;

/// A request that waits for a server.
#[derive(Debug)]
pub(super) struct Request {
    /// Properties of the request, as read at its arrival.
    pub(super) arrival: Arrival,
    /// The datagram as it came.
    pub(super) bytes: Vec<u8>,
}

/// A request as the router has read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Way of the datagram: a refusal leaves from where it arrived.
    pub(super) path: Path,
    /// The client in its epoch, as the seal has told; `None` where packets are open.
    pub(super) sender: Option<ClientEpoch>,
    /// Receiver of the reply: another than the peer behind a chain of routers.
    pub(super) client: SocketAddr,
    /// The client's own number of it.
    pub(super) rid: u16,
    /// `None` for version 1.
    pub(super) rpc_id: Option<RpcId>,
    /// Its entry in the table; `None` when it is not tracked.
    pub(super) entry: Option<EntryId>,
    /// The first server is to have it.
    pub(super) is_fixed: bool,
    /// It may run more than once.
    pub(super) is_idempotent: bool,
    /// Calls of its session below this sequence have ended.
    pub(super) floor: u32,
    /// It is one of two copies, which its client or another router has made.
    pub(super) mark: CloneMark,
    /// No router has passed it on before.
    pub(super) is_unrouted: bool,
    /// It may run once, and another router may have placed it.
    pub(super) is_moved: bool,
    /// Upper bound of the time since it was first sent, if it was sent before, or has waited here
    /// for so long that another copy may have run and been evicted.
    pub(super) age_ns: Option<u64>,
    /// Time of its arrival.
    pub(super) arrived_at: Time,
    /// Time at which the client stops waiting, or its id expires.
    pub(super) deadline: Time,
}

/// Writes the placement, the time left and, where the router shows itself as the source, the client
/// into the route. A client that a router of [`super::RouterConfig::upstreams`] has written stays.
pub(super) fn write_route(
    request: &mut Request,
    (now, placement): (Time, u32),
    config: &RouterConfig,
) {
    let arrival = &request.arrival;
    let (header, rest) =
        RequestHeader::mut_from_prefix(&mut request.bytes).expect("the request was parsed");
    let (route, _) = Route::mut_from_prefix(rest).expect("the request was parsed with a route");
    let waited_ns = now.saturating_sub(arrival.arrived_at);
    let waited_us = u32::try_from(waited_ns / 1_000).unwrap_or(u32::MAX);
    // 0 means no deadline, and stays; else some time is left, for the request has not expired.
    let deadline_us = header.deadline_us.get();
    header.deadline_us.set(deadline_us.saturating_sub(waited_us).max(deadline_us.min(1)));
    if let Some(age_ns) = arrival.age_ns {
        header.flags |= Flags::RETRANSMIT;
        // Rounded up: a server refuses what may be older than what it remembers.
        let age_ms = age_ns.saturating_add(waited_ns).div_ceil(1_000_000);
        header.age_ms.set(u16::try_from(age_ms).unwrap_or(u16::MAX));
    }
    route.routed = 1;
    route.placement.set(placement);
    if config.forward == Forward::Annotate || arrival.client != arrival.path.peer {
        let Route { client_ip, client_port, .. } = Route::to_client(arrival.client);
        (route.client_ip, route.client_port) = (client_ip, client_port);
    } else {
        // What a stranger has written there is nobody's word.
        (route.client_ip, route.client_port) = ([0; 16], 0.into());
    }
    ask_back(route, (arrival.mark, Flags(header.flags).clone_mark()), config.filter);
}
