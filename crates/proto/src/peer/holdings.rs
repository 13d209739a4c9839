//! The limits of what a server holds for its clients, for each of them and for the share of each.

use super::crowd::{Part, may_have_more};
use super::limits::{Holdings, Serving};
use super::table::{PeerId, Table};
use crate::address::share_of;

/// Holdings of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Bytes against the limits.
    pub(crate) bytes: usize,
    /// Number of these that were taken above the half.
    above_bytes: usize,
    /// It was begun above the half of the requests.
    is_above: bool,
}

/// Bytes by which a request may exceed limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spare {
    /// That of its client.
    pub(crate) client: usize,
    /// That of all, and its share of it.
    pub(crate) all: usize,
}

impl<T> Table<T> {
    /// True if one more request of a peer would exceed a limit, if it holds `bytes`.
    pub(crate) fn is_full(
        &self,
        peer: PeerId,
        all: &Holdings,
        bytes: usize,
        serving: &Serving,
    ) -> bool {
        let free = serving.requests_max.saturating_sub(all.requests);
        free == 0
            || self[peer].requests >= serving.requests_per_client_max
            || all.requests > self.crowd.requests_half
                && !may_have_more(self.part(peer).requests, free)
            || self.is_crowded(peer, all, bytes, serving)
    }

    /// True if `bytes` more for a request of a peer would exceed a limit.
    pub(crate) fn is_crowded(
        &self,
        peer: PeerId,
        all: &Holdings,
        bytes: usize,
        serving: &Serving,
    ) -> bool {
        self.is_crowded_beyond(peer, all, bytes, serving, Spare::default())
    }

    /// True if `bytes` more for a request that may exceed limits by `spare` would exceed one.
    pub(crate) fn is_crowded_beyond(
        &self,
        peer: PeerId,
        all: &Holdings,
        bytes: usize,
        serving: &Serving,
        spare: Spare,
    ) -> bool {
        let held_bytes = (all.held_bytes + bytes).saturating_sub(spare.all);
        let of_client = (self[peer].held_bytes + bytes).saturating_sub(spare.client);
        held_bytes > serving.held_bytes_max
            || of_client > serving.held_bytes_per_client_max
            || self.has_its_bytes(peer, held_bytes, serving)
    }

    /// True if the share of a peer takes no more bytes where `held_bytes` are held in all.
    pub(crate) fn has_its_bytes(&self, peer: PeerId, held_bytes: usize, serving: &Serving) -> bool {
        let free = serving.held_bytes_max.saturating_sub(held_bytes);
        held_bytes > self.crowd.bytes_half && !may_have_more(self.part(peer).bytes, free)
    }

    /// A request of a peer begins.
    pub(crate) fn begin_request(&mut self, peer: PeerId, all: &mut Holdings, held: &mut Held) {
        all.requests += 1;
        self[peer].requests += 1;
        held.is_above = all.requests > self.crowd.requests_half;
        // Packets cost no hash while half of the requests are free.
        if held.is_above {
            let share = self.share(peer);
            self.crowd.change(share, |part| part.requests += 1);
        }
    }

    /// A request of a peer holds so many bytes from now on.
    #[inline]
    pub(crate) fn hold(&mut self, peer: PeerId, all: &mut Holdings, held: &mut Held, bytes: usize) {
        let before = std::mem::replace(&mut held.bytes, bytes);
        all.held_bytes = all.held_bytes - before + bytes;
        let client = &mut self[peer];
        client.held_bytes = client.held_bytes - before + bytes;
        let above_bytes = if bytes > before && all.held_bytes > self.crowd.bytes_half {
            held.above_bytes + (bytes - before)
        } else {
            held.above_bytes.min(bytes)
        };
        let above_before = std::mem::replace(&mut held.above_bytes, above_bytes);
        if above_before != above_bytes {
            let share = self.share(peer);
            self.crowd.change(share, |part| part.bytes = part.bytes - above_before + above_bytes);
        }
    }

    /// A request of a peer ends.
    #[inline]
    pub(crate) fn end_request(&mut self, peer: PeerId, all: &mut Holdings, held: &mut Held) {
        self.hold(peer, all, held, 0);
        all.requests -= 1;
        self[peer].requests -= 1;
        if std::mem::take(&mut held.is_above) {
            let share = self.share(peer);
            self.crowd.change(share, |part| part.requests -= 1);
        }
    }

    fn part(&self, peer: PeerId) -> Part {
        self.crowd.part(self.share(peer))
    }

    fn share(&self, peer: PeerId) -> u64 {
        share_of(self[peer].address.ip())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// A table, what it holds, and the requests that it has taken.
    struct Host {
        table: Table<()>,
        serving: Serving,
        all: Holdings,
        taken: Vec<(PeerId, Held)>,
    }

    impl Host {
        fn new(requests_max: usize, held_bytes_max: usize) -> Self {
            let serving = Serving { requests_max, held_bytes_max, ..Serving::default() };
            let table = Table::new(0, 4096, &serving, 1);
            Self { table, serving, all: Holdings::default(), taken: Vec::new() }
        }

        /// Takes a request, if there is room.
        fn offer(&mut self, from: SocketAddr, bytes: usize) -> bool {
            let Self { table, serving, all, taken } = self;
            let peer = match table.find(from) {
                Some(peer) => peer,
                None => table.add(0, (from, true), (), serving).unwrap(),
            };
            if table.is_full(peer, all, bytes, serving) {
                return false;
            }
            let mut held = Held::default();
            table.begin_request(peer, all, &mut held);
            table.hold(peer, all, &mut held, bytes);
            taken.push((peer, held));
            true
        }

        /// Number of requests, of `count`, that one share takes, each from a port, or an address,
        /// of its own.
        fn flood(&mut self, at: impl Fn(u16) -> SocketAddr, count: u16, bytes: usize) -> usize {
            (0..count).filter(|&number| self.offer(at(number), bytes)).count()
        }

        fn end_all(&mut self) {
            for (peer, mut held) in self.taken.drain(..) {
                self.table.end_request(peer, &mut self.all, &mut held);
            }
        }
    }

    fn port(number: u16) -> SocketAddr {
        ([10, 0, 0, 1], 1000 + number).into()
    }

    fn of_one_64(number: u16) -> SocketAddr {
        ([0x2001, 0xdb8, 0, 0, 0, 0, 0, number], 7).into()
    }

    #[test]
    fn one_share_leaves_an_eighth_of_the_requests_to_others() {
        for flooder in [port, of_one_64] {
            let mut host = Host::new(800, usize::MAX / 2);
            // Half, and then while it has at most three times what is left: 301 of 400.
            assert_eq!(host.flood(flooder, 2000, 0), 400 + 301);
            let others = (0..20).filter(|&net| host.offer(([10, 0, net, 9], 7).into(), 0));
            assert_eq!(others.count(), 20);
            assert!(!host.offer(flooder(3), 0), "it still has its share");
        }
    }

    #[test]
    fn one_share_leaves_an_eighth_of_the_bytes_to_others() {
        let mut host = Host::new(65_536, 80_000);
        // The hundred bytes that exceed three times what is left were the last.
        assert_eq!(host.flood(port, 2000, 100), 400 + 300);
        assert!(host.offer(([10, 0, 7, 9], 7).into(), 5_000));
        assert!(!host.offer(([10, 0, 8, 9], 7).into(), 6_000), "that is more than there is");
    }

    #[test]
    fn bytes_that_come_later_count_too() {
        let mut host = Host::new(65_536, 80_000);
        assert_eq!(host.flood(port, 700, 1), 700);
        let Host { table, all, taken, .. } = &mut host;
        for (peer, held) in taken {
            table.hold(*peer, all, held, 100);
        }
        assert!(!host.offer(port(1), 100));
        assert!(host.offer(([10, 0, 7, 9], 7).into(), 5_000));
    }

    #[test]
    fn what_ends_is_given_back() {
        let mut host = Host::new(800, 80_000);
        host.flood(port, 2000, 100);
        host.flood(|number| ([10, 1, 1, 1], number).into(), 500, 10);
        assert!(!host.table.crowd.is_empty());
        let first = host.table.find(port(0)).unwrap();
        assert_eq!(host.table[first].requests, 1);
        host.end_all();
        assert_eq!(host.all, Holdings::default());
        let peer = &host.table[first];
        assert_eq!((peer.requests, peer.held_bytes), (0, 0));
        assert!(host.table.crowd.is_empty());
        assert_eq!(host.flood(port, 2000, 0), 400 + 301);
    }

    #[test]
    fn a_request_may_fill_what_there_is_and_take_no_byte_more() {
        let mut host = Host::new(800, 80_000);
        assert!(!host.offer(port(1), 80_001));
        assert!(host.offer(port(1), 80_000));
        let mut host = Host::new(800, 80_000);
        host.serving.held_bytes_per_client_max = 1_000;
        assert!(!host.offer(port(1), 1_001));
        assert!(host.offer(port(1), 1_000));
        assert!(!host.offer(port(1), 1));
        assert!(host.offer(port(2), 1), "it has a limit of its own");
    }

    #[test]
    fn bytes_are_a_share_s_from_the_half_on() {
        let mut host = Host::new(800, 80_000);
        assert!(host.offer(port(1), 40_000));
        assert!(host.table.crowd.is_empty(), "half is taken, and no more");
        assert!(host.offer(port(2), 100));
        let Host { table, all, taken, .. } = &mut host;
        let (peer, held) = taken.last_mut().unwrap();
        assert_eq!(table.part(*peer).bytes, 100);
        table.hold(*peer, all, held, 150);
        assert_eq!(table.part(*peer).bytes, 150);
        table.hold(*peer, all, held, 60);
        assert_eq!(table.part(*peer).bytes, 60);
        host.end_all();
        assert!(host.table.crowd.is_empty());
    }
}
