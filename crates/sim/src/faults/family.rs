//! Families of plans by their names, for who runs any number of seeds of one.

use strum::{Display, EnumString, VariantArray, VariantNames};
use tailcut_proto::homa::{GrantPolicy, Grants, Pull};

use super::plan::{Plan, Transport};

/// A family of plans.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString, VariantArray, VariantNames,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = no_family)]
pub enum Family {
    /// Every kind of host, call and fault, as [`Plan::of_seed`] draws them.
    #[default]
    Drawn,
    /// Restarts, reloads and panics, and nothing else: nothing is lost.
    Life,
    /// One of two routers dies under load: nothing is lost.
    Failover,
    /// Servers die and come back: routers know it in time.
    Detection,
    /// Strangers attack: every call is answered.
    Hostile,
    /// Servers and routers ask for cookies: every call is answered, and nothing else runs.
    Cookies,
    /// Reports of servers are forged and replayed: every call is answered.
    Feedback,
    /// Datagrams take longer than the protocol is told.
    Late,
    /// Buffers of switches and sockets overflow: nothing is lost.
    Overflow,
    /// One client of several calls many times what servers can serve: the others do not feel it.
    Flood,
    /// Byte streams under faults: every byte once and in order, or the stream fails.
    Streams,
    /// Packets are sealed, in plans of most other families and of its own: strangers change
    /// nothing.
    Sealed,
    /// Byte streams whose packets are sealed, over Homa: strangers change nothing.
    SealedStreams,
    /// Sealed packets of short calls in bursts without a router, over R2P2: many go in one
    /// datagram.
    SealedTrains,
    /// As drawn, in a network of long packets.
    Long,
}

fn no_family(text: &str) -> String {
    format!("`{text}` is none of {}", Family::VARIANTS_TEXT.join(", "))
}

impl Family {
    /// Its names.
    const VARIANTS_TEXT: &'static [&'static str] = <Self as VariantNames>::VARIANTS;

    /// The plan of a seed over R2P2; `None` for a family that is about Homa.
    pub fn of_r2p2(self, seed: u64) -> Option<Plan> {
        Some(match self {
            Self::Drawn => Plan::of_seed(seed),
            Self::Life => Plan::life_of_seed(seed),
            Self::Failover => Plan::failover_of_seed(seed),
            Self::Detection => Plan::detection_of_seed(seed),
            Self::Hostile => Plan::hostile_of_seed(seed),
            Self::Cookies => Plan::cookies_of_seed(seed),
            Self::Feedback => Plan::feedback_of_seed(seed),
            Self::Late => Plan::late_of_seed(seed),
            Self::Overflow => Plan::overflow_of_seed(seed),
            Self::Flood => Plan::flood_of_seed(seed),
            Self::Streams => Plan::streams_of_seed(seed),
            Self::Sealed => Plan::sealed_of_seed(seed),
            Self::SealedTrains => Plan::sealed_trains_of_seed(seed),
            Self::Long => Plan::long_of_seed(seed),
            Self::SealedStreams => return None,
        })
    }

    /// The plan of a seed over Homa; `None` for a family that is about routers.
    pub fn of_homa(self, seed: u64) -> Option<Plan> {
        match self {
            Self::Drawn => Some(Plan::homa_of_seed(seed)),
            Self::Hostile => Some(Plan::hostile_homa_of_seed(seed)),
            Self::Sealed => Some(Plan::sealed_homa_of_seed(seed)),
            Self::SealedStreams => Some(Plan::sealed_streams_of_seed(seed)),
            Self::Late
            | Self::Overflow
            | Self::Flood
            | Self::Streams
            | Self::Cookies
            | Self::Long => self.of_r2p2(seed).map(Plan::over_homa),
            Self::Life | Self::Failover | Self::Detection | Self::Feedback | Self::SealedTrains => {
                None
            }
        }
    }
}

impl Plan {
    /// The plan with Homa endpoints, and without what only R2P2 has. Odd seeds grant as the
    /// simulations of SIGCOMM'18.
    pub(super) fn over_homa(mut self) -> Self {
        let sigcomm = GrantPolicy::Sigcomm(Pull::default());
        let policy = if self.seed % 2 == 1 { sigcomm } else { Grants::default().policy };
        self.transport = Transport::Homa(policy);
        self = self.without_router();
        if self.servers.iter().any(|server| server.requests_max <= 100) {
            // Half requests of strangers, which may be several packets of Homa's, hold half of so
            // few for as long as they are kept.
            self.calls.retain(|call| !call.is_after_all);
        }
        self
    }

    /// The plan with clients that call servers themselves.
    pub(super) fn without_router(mut self) -> Self {
        self.router = None;
        self.faults.retain(|fault| !fault.kind.concerns_router());
        self.servers.iter_mut().for_each(|server| server.is_pooled = false);
        self
    }
}
