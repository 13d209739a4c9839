//! Addressees of a call: who may answer it, and by which names it goes where packets are sealed.
//!
//! | event | then |
//! |---|---|
//! | who was sent what names nobody tells its name | packet 0 goes again, by that name |
//! | somebody else asks for it by name | nothing: it would run there too |
//! | packet 0 goes to one address under two names, and may run once | it goes as one that has moved |

use std::net::SocketAddr;

use super::client::{Client, Slot};
use super::pace::Start;
use super::shared::Shared;
use crate::node::Time;
use tailcut_placement::slab::SlotId;

impl Client {
    /// True if what asks for packet 0 by name is where that has been sent, and has told its name.
    pub(super) fn may_name(
        &self,
        now: Time,
        index: SlotId,
        peer: SocketAddr,
        shared: &mut Shared,
    ) -> bool {
        if !self.slots[index].is_sent_to(peer) {
            // A stranger has sent there what names nobody: by name it would run there too.
            shared.metrics.protocol_violation += 1;
            return false;
        }
        // Else the answer to another call tells it: to ask again at once would be to ask without
        // end.
        shared.seal.as_ref().is_some_and(|seal| seal.name(now, peer, true) != 0)
    }

    /// A router has told its name, since packet 0 has named nobody: it goes again, as the seal now
    /// names it. If that was all that has gone out of the call, it can be nowhere, and so goes as
    /// for the first time.
    pub(super) fn take_name(&mut self, index: SlotId) {
        let slot = &mut self.slots[index];
        if slot.start == Start::Now && slot.server.is_none() && !slot.reply.is_begun() {
            if !std::mem::replace(&mut slot.recovery.is_again, true) && !slot.moves.is_moved {
                slot.recovery.first_sent_at = 0;
            }
            slot.request.resend_first();
            self.queue_data(index);
        }
    }
}

impl Slot {
    /// True if `peer` may have the request: the target, or the server behind it that has answered
    /// so far. A router may have placed what is idempotent on several, and the next router's claim
    /// may have found another server than the one that answered a copy by way of the first.
    pub(super) fn may_be_answered_by(&self, peer: SocketAddr) -> bool {
        self.options.idempotent
            || self.moves.is_moved
            || self.target.address == peer
            || self.server_address().is_none_or(|server| server == peer)
    }

    /// Packet 0 goes to an address, for who has this name, or for nobody if it is 0. Who had
    /// another name there may get that packet from a stranger, even if it never was there: a
    /// request that may run once then goes as one that has moved.
    pub(super) fn note_name(&mut self, to: SocketAddr, name: u64) {
        let known = &mut self.moves.names.known[usize::from(to != self.target.address)];
        self.moves.names.latest = name;
        if name != 0 && !self.options.idempotent {
            self.moves.is_renamed |= *known != 0 && *known != name;
            self.moves.is_moved |= self.moves.is_renamed;
            *known = name;
        }
    }

    /// True if the request goes to this address.
    pub(super) fn is_sent_to(&self, peer: SocketAddr) -> bool {
        self.target.address == peer || self.server_address() == Some(peer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tailcut_wire::r2p2::{Flags, RequestHeader};
    use zerocopy::FromBytes;

    use super::*;
    use crate::node::Node;
    use crate::r2p2::{Config, Endpoint};
    use crate::router::{Router, RouterConfig, ServerConfig, Speaks};
    use crate::rpc::{Call, CallOptions, Rpc};
    use crate::sealed::{Cipher, EpochKey, HopKey, Keys, Role, Sealing, Secret};

    const MS: Time = 1_000_000;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    /// A client at port 1, and a router at port 2 that holds all that it can place.
    struct Pair {
        client: Endpoint,
        router: Router,
        now: Time,
    }

    fn seal(role: Role) -> Option<Sealing> {
        let (secret, hop) = (Secret::new([1; 32]), HopKey::default());
        let epochs = vec![EpochKey { epoch: 1, from_ms: 0, secret, hop }];
        let (group, cipher) = ("test".into(), Cipher::Aes128Gcm);
        let keys = Keys { role: Role::Server, group, cipher, reset: None, epochs };
        Some(Sealing::new(Arc::new(keys.for_role(role).unwrap()), 0))
    }

    /// A router by another name for each seed.
    fn router(now: Time, seed: u64) -> Router {
        let servers = vec![ServerConfig { addr: address(3), speaks: Speaks::Extension }];
        let seal = seal(Role::Router);
        Router::new(now, RouterConfig { servers, seal, seed, ..RouterConfig::default() }).unwrap()
    }

    impl Pair {
        fn new() -> Self {
            let seal = seal(Role::Client(17));
            let config = Config { secret: [1; 16], seal, ..Config::default() };
            let client = Endpoint::new(0, config);
            Self { client, router: router(0, 1), now: 1_000 * MS }
        }

        /// A client that has been told the router's name, and whose calls are over since.
        fn knowing() -> Self {
            let mut pair = Self::new();
            let first = pair.call();
            pair.named(first);
            pair.now += 300 * MS;
            pair.client.handle_timeout(pair.now);
            while pair.sent().is_some() {}
            while pair.client.poll_event().is_some() {}
            pair
        }

        /// A call that may run once begins: its packet 0.
        fn call(&mut self) -> Vec<u8> {
            let (target, options) = (address(2), CallOptions::default());
            let (payload, deadline) = (vec![7; 10], self.now + 250 * MS);
            let call = Call { target, payload, deadline, context: 0, options };
            self.client.call(self.now, call).unwrap();
            self.sent().expect("packet 0")
        }

        fn sent(&mut self) -> Option<Vec<u8>> {
            let mut buffer = [0; 2_000];
            let transmit = self.client.poll_transmit(self.now, &mut buffer)?;
            Some(buffer[..transmit.len].to_vec())
        }

        /// Packet 0 as it goes again when nothing answers.
        fn sent_again(&mut self) -> Vec<u8> {
            loop {
                self.now = self.now.max(self.client.poll_timeout().expect("it is sent again"));
                self.client.handle_timeout(self.now);
                if let Some(bytes) = self.sent() {
                    return bytes;
                }
            }
        }

        /// Gives packet 0 to the router, and the name that it tells to the client: what follows.
        fn named(&mut self, mut packet: Vec<u8>) -> Vec<u8> {
            self.router.handle_datagram(self.now, address(1).into(), &mut packet);
            let mut buffer = [0; 2_000];
            while let Some(transmit) = self.router.poll_transmit(self.now, &mut buffer) {
                if transmit.to == address(1) {
                    let answer = &mut buffer[..transmit.len];
                    self.client.handle_datagram(self.now, address(2).into(), answer);
                }
            }
            self.sent().expect("packet 0 by name")
        }
    }

    fn flags(packet: &[u8]) -> (bool, bool) {
        let flags = Flags(RequestHeader::ref_from_prefix(packet).unwrap().0.flags);
        (flags.has(Flags::RETRANSMIT), flags.has(Flags::MOVED))
    }

    /// By itself it can be nowhere; what was sent twice may be.
    #[test]
    fn a_request_goes_as_new_by_name_only_if_it_went_once_for_nobody() {
        let mut pair = Pair::new();
        let first = pair.call();
        assert_eq!(flags(&pair.named(first)), (false, false));
        let mut pair = Pair::new();
        pair.call();
        let again = pair.sent_again();
        assert_eq!(flags(&again), (true, false));
        assert_eq!(flags(&pair.named(again)), (true, false));
    }

    /// It was long ago that the name was told, so that it is asked for again.
    #[test]
    fn a_request_that_goes_again_to_the_same_name_has_not_moved() {
        let mut pair = Pair::knowing();
        pair.call();
        let again = pair.sent_again();
        assert_eq!(flags(&again), (true, false));
        assert_eq!(flags(&pair.named(again)), (true, false));
    }

    /// The first may have placed it.
    #[test]
    fn a_request_that_goes_again_to_another_name_has_moved() {
        let mut pair = Pair::knowing();
        pair.call();
        pair.router = router(pair.now, 2);
        let again = pair.sent_again();
        assert_eq!(flags(&again), (true, false));
        assert_eq!(flags(&pair.named(again)), (true, true));
    }

    #[test]
    fn a_request_that_went_by_a_name_has_moved_once_another_call_has_learnt_another() {
        let mut pair = Pair::knowing();
        pair.call();
        pair.now += 5 * MS;
        pair.call();
        pair.router = router(pair.now, 2);
        let first_again = pair.sent_again();
        pair.named(first_again);
        assert_eq!(flags(&pair.sent_again()), (true, true), "the second");
    }
}
