//! Terms of a request, which its first packet states.

use tailcut_wire::r2p2::{CloneMark, Flags, Packet, Policy, Route};

use crate::rpc::CallOptions;

/// Terms of a request and its reply, as the request's first packet states them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Terms {
    /// Treatment of the request that the client allows.
    pub(super) options: CallOptions,
    /// Mark of the copy that it is, for its reply.
    pub(super) mark: CloneMark,
    /// A reply of one packet goes back through the configured router, which drops the slower of
    /// two.
    pub(super) returns: bool,
    /// Its client is on this host and takes long packets.
    pub(super) takes_long: bool,
}

impl Terms {
    /// Those of a request whose client is on this host, or is not (`Config::is_local`).
    #[inline]
    pub(super) fn of(packet: &Packet, is_local: bool) -> Self {
        Self {
            options: CallOptions {
                idempotent: packet.flags().has(Flags::IDEMPOTENT),
                fixed: packet.policy == Policy::Fixed,
                v1: false,
            },
            mark: packet.flags().clone_mark(),
            returns: asks_back(packet),
            takes_long: packet.flags().has(Flags::LONG) && is_local,
        }
    }

    /// The request comes again: what is lost behind a filter would be lost there once more.
    pub(super) fn hear_again(&mut self, packet: &Packet) {
        self.returns &= asks_back(packet);
    }
}

/// True if a router that keeps the client's address asks for the reply. What the client sends again
/// it does not ask for: an answer that was lost behind its filter would be lost there once more.
fn asks_back(packet: &Packet) -> bool {
    let asks = |route: &Route| route.returns != 0 && route.client_port.get() == 0;
    packet.route().is_some_and(asks) && !packet.flags().has(Flags::RETRANSMIT)
}
