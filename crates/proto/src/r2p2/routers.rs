//! A server's counts towards each router: what it has received of the router and what of that is
//! concluded.
//!
//! The counts are absolute, so that lost feedback heals with the next. They begin anew, under a new
//! epoch, when the router's own count leaps, which is how a restarted router looks.
//!
//! | who says that it is a router | event | then |
//! |---|---|---|
//! | the configured one | a PROBE or a request | counted |
//! | another | a PROBE without its token | told the token, and nothing is kept |
//! | another | a PROBE that echoes its token | counted, and believed what it writes into routes |
//! | not counted | a request that it says to be of another | it is told its token; the request is not taken |
//! | counted, and packets are sealed | a request whose placement leaps | not counted: it was recorded, or is of before |
//!
//! Where the records are full, the network that has most of them makes room, so that whoever
//! receives at many addresses of one displaces himself.

use std::net::{IpAddr, SocketAddr};

use tailcut_wire::r2p2::FeedbackBody;

use crate::node::{Path, Time};
use crate::peer::sessions::prefix_of;
use crate::sealed::Sealing;

/// Routers of a server.
#[derive(Debug)]
pub(crate) struct Routers {
    /// Routers known, at most one for each address.
    records: Vec<RouterRecord>,
    /// Most of them besides the configured one.
    records_max: usize,
    /// This one keeps its place whoever else pretends to be a router.
    configured: Option<SocketAddr>,
    /// Epoch of the counts that begin next.
    next_epoch: u32,
}

#[derive(Debug)]
struct RouterRecord {
    /// The router's.
    address: SocketAddr,
    /// This host's address that the router last sent to: reports leave from there.
    local: Option<IpAddr>,
    /// Names this run of the counts.
    epoch: u32,
    /// The latest placement that it has told of.
    placement_seen: u32,
    /// Requests received through it in this epoch, modulo 2^32.
    received: u32,
    /// Requests of these that have ended, modulo 2^32.
    concluded: u32,
    /// Time at which it was last heard of.
    used_at: Time,
    /// Something has changed since its last report, or it has asked.
    is_report_due: bool,
}

/// The router that a request came through, and the epoch it was counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Via {
    /// Place of the router.
    router: u32,
    /// Counts that the request belongs to.
    epoch: u32,
}

/// Sender of the packet that told of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedbackSource {
    /// The router's own.
    Router,
    /// A client's, as far as its source says.
    Client,
    /// A router's, which may have been recorded long ago: a sealed request. Of PROBEs, which come
    /// before any request, each is taken once.
    Recorded,
}

impl FeedbackSource {
    /// That of the requests which come from a router.
    pub(crate) fn of_requests(seal: Option<&Sealing>) -> Self {
        if seal.is_some() { Self::Recorded } else { Self::Router }
    }
}

impl Routers {
    /// Counts towards at most `records_max` routers besides the `configured` one.
    pub(crate) fn new(records_max: usize, configured: Option<SocketAddr>, epoch: u32) -> Self {
        // Another one at each start, by which routers tell these counts from those of before.
        Self { records: Vec::new(), records_max, configured, next_epoch: epoch }
    }

    /// True if what `address` writes into the route of a request is believed.
    pub(crate) fn believes(&self, address: SocketAddr) -> bool {
        Some(address) == self.configured || self.place(address).is_some()
    }

    /// True if a request came through the router at `address`.
    pub(crate) fn is_through(&self, via: Via, address: SocketAddr) -> bool {
        self.records.get(via.router as usize).is_some_and(|record| record.address == address)
    }

    /// A PROBE of a router that is configured, or has echoed its token.
    pub(crate) fn probe(&mut self, now: Time, path: Path, placement: u32) -> Option<Via> {
        if self.place(path.peer).is_none() {
            self.add(now, path.peer, placement)?;
        }
        self.see(now, path, placement, FeedbackSource::Router)
    }

    /// Takes note of what the router at `path` says that it has placed here. Only the router
    /// itself, not a client behind one that keeps clients' addresses, nor whoever sends again what
    /// was recorded, may begin the counts anew. `None` when the router is not counted.
    pub(crate) fn see(
        &mut self,
        now: Time,
        path: Path,
        placement: u32,
        source: FeedbackSource,
    ) -> Option<Via> {
        let place = match self.place(path.peer) {
            Some(place) => place,
            None if Some(path.peer) == self.configured => self.add(now, path.peer, placement)?,
            None => return None,
        };
        let record = &mut self.records[place];
        let ahead = placement.wrapping_sub(record.placement_seen);
        // The counts wrap. A little ahead is newer; a little behind was overtaken, and the highest
        // stands; anything else is of a router that has restarted.
        if ahead < LEAP {
            record.placement_seen = placement;
        } else if ahead.wrapping_neg() >= LEAP {
            if source != FeedbackSource::Router {
                return None;
            }
            record.epoch = self.next_epoch;
            self.next_epoch = self.next_epoch.wrapping_add(1);
            record.placement_seen = placement;
            record.received = 0;
            record.concluded = 0;
        }
        record.used_at = now;
        record.local = path.local;
        Some(Via { router: place as u32, epoch: record.epoch })
    }

    /// A request came through a router.
    pub(crate) fn receive(&mut self, via: Via) {
        if let Some(record) = self.current(via) {
            record.received = record.received.wrapping_add(1);
        }
    }

    /// A request that came through a router has ended.
    pub(crate) fn conclude(&mut self, via: Via) {
        if let Some(record) = self.current(via) {
            record.concluded = record.concluded.wrapping_add(1);
            record.is_report_due = true;
        }
    }

    /// A router asked for a report.
    pub(crate) fn ask(&mut self, via: Via) {
        if let Some(record) = self.current(via) {
            record.is_report_due = true;
        }
    }

    /// Every router is to have a report.
    pub(crate) fn ask_all(&mut self) {
        self.records.iter_mut().for_each(|record| record.is_report_due = true);
    }

    /// True if any router is to have a report.
    pub(crate) fn is_report_due(&self) -> bool {
        self.records.iter().any(|record| record.is_report_due)
    }

    /// A report that is due, and to whom.
    pub(crate) fn peek_report(&self) -> Option<(Path, FeedbackBody)> {
        let record = self.records.iter().find(|record| record.is_report_due)?;
        let body = FeedbackBody {
            epoch: record.epoch.into(),
            placement_seen: record.placement_seen.into(),
            received: record.received.into(),
            concluded: record.concluded.into(),
        };
        Some((Path { local: record.local, peer: record.address }, body))
    }

    /// The report that [`Routers::peek_report`] gave has been written.
    pub(crate) fn report_sent(&mut self) {
        if let Some(record) = self.records.iter_mut().find(|record| record.is_report_due) {
            record.is_report_due = false;
        }
    }

    fn current(&mut self, via: Via) -> Option<&mut RouterRecord> {
        // What was received in a former epoch would conclude more than this one has received.
        self.records.get_mut(via.router as usize).filter(|record| record.epoch == via.epoch)
    }

    fn place(&self, address: SocketAddr) -> Option<usize> {
        self.records.iter().position(|record| record.address == address)
    }

    fn add(&mut self, now: Time, address: SocketAddr, placement: u32) -> Option<usize> {
        let epoch = self.next_epoch;
        let (received, concluded, is_report_due) = (0, 0, false);
        let record = RouterRecord {
            address,
            local: None,
            epoch,
            placement_seen: placement,
            received,
            concluded,
            used_at: now,
            is_report_due,
        };
        let others =
            self.records.iter().filter(|record| Some(record.address) != self.configured).count();
        let place = if others < self.records_max || Some(address) == self.configured {
            self.records.push(record);
            self.records.len() - 1
        } else {
            let place = self.place_to_clear(now, prefix_of(address.ip()))?;
            // Requests of whoever had the place are of another epoch, and count for nobody.
            self.records[place] = record;
            place
        };
        self.next_epoch = epoch.wrapping_add(1);
        Some(place)
    }
}

impl Routers {
    /// The idlest record of the network that has most of them, if it has more than the newcomer's
    /// will have or the record has been idle for long. The configured router keeps its place.
    fn place_to_clear(&self, now: Time, newcomer: u64) -> Option<usize> {
        let prefix = |record: &RouterRecord| prefix_of(record.address.ip());
        let count =
            |wanted: u64| self.records.iter().filter(|record| prefix(record) == wanted).count();
        let others = (0..self.records.len())
            .filter(|&place| Some(self.records[place].address) != self.configured);
        // Of equals the one that was used longest ago.
        let place = others.min_by_key(|&place| {
            let record = &self.records[place];
            (std::cmp::Reverse(count(prefix(record))), record.used_at)
        })?;
        let record = &self.records[place];
        let is_idle = now.saturating_sub(record.used_at) >= IDLE_NS;
        let is_crowd = prefix(record) != newcomer && count(prefix(record)) > count(newcomer) + 1;
        (is_idle || is_crowd).then_some(place)
    }
}

/// A count this far from the last is another router's, or the same one restarted.
const LEAP: u32 = 1 << 16;

/// A router silent for this long makes room for another.
const IDLE_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn router() -> Path {
        SocketAddr::from(([10, 0, 0, 9], 9000)).into()
    }

    fn other() -> Path {
        SocketAddr::from(([10, 0, 0, 8], 9000)).into()
    }

    fn counts(routers: &Routers) -> (u32, u32, u32) {
        let (_, body) = routers.peek_report().unwrap();
        (body.placement_seen.get(), body.received.get(), body.concluded.get())
    }

    #[test]
    fn counts_are_absolute_and_reported_once_for_a_burst() {
        let mut routers = Routers::new(4, None, 77);
        routers.probe(0, router(), 1000);
        for placement in 1000..1010 {
            let via = routers.see(0, router(), placement, FeedbackSource::Router).unwrap();
            routers.receive(via);
            routers.conclude(via);
        }
        assert_eq!(counts(&routers), (1009, 10, 10));
        routers.report_sent();
        assert!(routers.peek_report().is_none());
    }

    #[test]
    fn a_reordered_placement_does_not_go_back() {
        let mut routers = Routers::new(4, None, 77);
        routers.probe(0, router(), u32::MAX);
        routers.see(0, router(), 2, FeedbackSource::Router);
        let via = routers.see(0, router(), 1, FeedbackSource::Router).unwrap();
        routers.ask(via);
        assert_eq!(counts(&routers).0, 2);
    }

    #[test]
    fn a_restarted_router_begins_a_new_epoch_and_old_requests_do_not_count() {
        let mut routers = Routers::new(4, None, 77);
        let before = routers.probe(0, router(), 5).unwrap();
        routers.receive(before);
        let after = routers.see(0, router(), 1 << 30, FeedbackSource::Router).unwrap();
        routers.receive(after);
        routers.conclude(before);
        assert!(routers.peek_report().is_none());
        routers.conclude(after);
        assert_eq!(counts(&routers), (1 << 30, 1, 1));
    }

    #[test]
    fn a_router_that_is_not_counted_is_not_believed() {
        let mut routers = Routers::new(4, None, 77);
        assert_eq!(routers.see(0, router(), 5, FeedbackSource::Router), None);
        assert!(!routers.believes(router().peer));
        let via = routers.probe(0, router(), 5).unwrap();
        assert!(routers.believes(router().peer) && routers.is_through(via, router().peer));
        assert!(!routers.is_through(via, other().peer));
    }

    #[test]
    fn an_idle_router_makes_room() {
        let mut routers = Routers::new(1, None, 77);
        assert!(routers.probe(0, router(), 5).is_some());
        assert!(routers.probe(1, other(), 5).is_none());
        assert!(routers.probe(IDLE_NS + 1, other(), 5).is_some());
    }

    /// One host with many ports that echo their tokens displaces its own records, not others.
    #[test]
    fn a_crowd_of_one_network_makes_room_for_another() {
        let mut routers = Routers::new(4, None, 77);
        let crowd = |port| Path::from(SocketAddr::from(([10, 9, 0, 1], port)));
        assert!((0..4).all(|port| routers.probe(port.into(), crowd(port), 1).is_some()));
        assert!(routers.probe(9, crowd(9), 1).is_none());
        assert!(routers.probe(9, router(), 1).is_some());
        assert!(routers.believes(router().peer) && !routers.believes(crowd(0).peer));
        for port in 20..30 {
            routers.probe(port.into(), crowd(port), 1);
            assert!(routers.believes(router().peer));
        }
    }

    #[test]
    fn strangers_never_take_the_place_of_the_configured_router() {
        let mut routers = Routers::new(1, Some(router().peer), 77);
        assert!(routers.probe(0, other(), 5).is_some());
        assert!(routers.see(1, router(), 5, FeedbackSource::Router).is_some());
    }

    #[test]
    fn a_client_cannot_begin_the_counts_anew() {
        let mut routers = Routers::new(4, None, 77);
        let before = routers.probe(0, router(), 5);
        assert_eq!(routers.see(0, router(), 1 << 30, FeedbackSource::Client), None);
        assert_eq!(routers.see(0, router(), 6, FeedbackSource::Client), before);
    }

    /// Recorded requests, placed before the router was told of the server anew, come again: they do
    /// not begin the counts anew.
    #[test]
    fn a_recorded_request_cannot_begin_the_counts_anew() {
        let mut routers = Routers::new(4, None, 77);
        let before = routers.probe(0, router(), 1 << 30);
        for recorded in [5, 1 << 31, (1 << 30) + LEAP] {
            let seen = routers.see(0, router(), recorded, FeedbackSource::Recorded);
            assert_eq!(seen, None, "{recorded}");
        }
        let placed = routers.see(0, router(), (1 << 30) + 1, FeedbackSource::Recorded);
        assert_eq!((placed, before.is_some()), (before, true));
        let again = routers.probe(0, router(), 1 << 31);
        assert!(again.is_some() && again != before, "a probe begins them");
    }

    #[test]
    fn a_placement_as_far_ahead_as_a_leap_is_of_a_router_that_has_restarted() {
        for (ahead, is_restart) in [(LEAP - 1, false), (LEAP, true)] {
            let mut routers = Routers::new(4, None, 77);
            let before = routers.probe(0, router(), 5).unwrap();
            let after = routers.see(0, router(), 5 + ahead, FeedbackSource::Router).unwrap();
            assert_eq!(after.epoch != before.epoch, is_restart, "{ahead}");
        }
    }

    /// They would only take turns.
    #[test]
    fn a_network_makes_no_room_for_another_that_would_then_have_as_many() {
        let of = |net, port| Path::from(SocketAddr::from(([10, 9, net, 1], port)));
        for (has, newcomer_has, is_taken) in [(3, 1, true), (2, 1, false), (2, 2, false)] {
            let mut routers = Routers::new(has + newcomer_has, None, 77);
            let probe = |routers: &mut Routers, net, port| {
                routers.probe(port as Time, of(net, port), 1).is_some()
            };
            assert!((0..has as u16).all(|port| probe(&mut routers, 1, port)));
            assert!((10..10 + newcomer_has as u16).all(|port| probe(&mut routers, 2, port)));
            assert_eq!(probe(&mut routers, 2, 99), is_taken, "{has} and {newcomer_has}");
        }
    }
}
