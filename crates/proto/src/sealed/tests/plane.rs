//! A sealed router and the data plane before it.

use std::sync::Mutex;

use tailcut_wire::r2p2::RequestRepr;

use super::seals::*;
use super::*;
use crate::policy::WorkerId;
use crate::router::{SharedCounts, SharedPlaces};

/// A data plane, as far as it has to do with seals: what a test, in its place, reads and changes.
#[derive(Clone, Debug, Default)]
struct Plane(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    /// Counts of the only server.
    counts: SharedCounts,
    /// Places that the router has taken.
    taken: usize,
    /// It has placed every request before.
    has_placed: bool,
    /// The ids that the router has taken: of which client, when, and until when.
    ids: Vec<(u32, Time, Time)>,
    /// The sessions that it may place, each with its client's address.
    sessions: Vec<(SocketAddr, PlaneSession)>,
    /// The router's.
    seal: Option<PlaneSeal>,
    /// The server's name, and the router's alias there.
    names: Option<(u64, u64)>,
}

impl Plane {
    fn with<R>(&self, change: impl FnOnce(&mut Memory) -> R) -> R {
        change(&mut self.0.lock().unwrap())
    }
}

impl SharedPlaces for Plane {
    fn add(&mut self, _: WorkerId, _: SocketAddr, counts: SharedCounts) -> SharedCounts {
        self.with(|memory| memory.counts = counts);
        counts
    }

    fn add_other(&mut self, _: SocketAddr) {}

    fn remove(&mut self, _: WorkerId, _: SocketAddr) {}

    fn counts(&self, _: WorkerId) -> SharedCounts {
        self.with(|memory| memory.counts)
    }

    fn take(&self, _: WorkerId) -> u32 {
        self.with(|memory| {
            memory.taken += 1;
            memory.counts.placed += 1;
            memory.counts.placed
        })
    }

    fn correct(&self, _: WorkerId, before: &SharedCounts, counts: &SharedCounts) {
        self.with(|memory| {
            let placed = counts.placed + (memory.counts.placed - before.placed);
            memory.counts = SharedCounts { placed, ..*counts };
        });
    }

    fn set_bound(&self, _: u32) {}

    fn set_in_service(&self, _: WorkerId, _: bool) {}

    fn want_feedback(&self, _: WorkerId) {}

    fn set_held(&self, _: Option<Time>) {}

    fn close(&self) {}

    fn set_seal(&self, seal: &PlaneSeal, _: u64) {
        self.with(|memory| memory.seal = Some(seal.clone()));
    }

    fn set_names(&self, _: WorkerId, names: (u64, u64)) {
        self.with(|memory| memory.names = Some(names));
    }

    fn know_session(&self, client: SocketAddr, session: &PlaneSession) {
        self.with(|memory| memory.sessions.push((client, session.clone())));
    }

    fn take_id(&self, now: Time, (client, _): (u32, u64), until: Time) -> Option<WorkerId> {
        self.with(|memory| {
            memory.ids.push((client, now, until));
            memory.has_placed.then_some(WorkerId(0))
        })
    }
}

/// A router that knows its server, and the data plane before it.
fn net_of_plane() -> (Net, Plane) {
    let (mut net, plane) = (net(true), Plane::default());
    net.router.as_mut().unwrap().share_places(net.now, Box::new(plane.clone()));
    for _ in 0..3 {
        net.turn();
        net.now += 10 * MS;
    }
    (net, plane)
}

/// A data plane takes reports alone: what the server said before one of them, and comes after it,
/// is news.
#[test]
fn a_report_that_a_data_plane_has_taken_is_old_and_what_else_comes_late_is_not() {
    for kind in [MessageType::Ack, MessageType::Claimed] {
        let mut seals = Seals::new();
        let now = seals.now;
        acquaint(now, &mut seals.router, &mut seals.server);
        let mut say = |kind| {
            seals.server.says(now, &ReplyRepr::control(kind, 0, RpcId(0))).expect("it is heard of")
        };
        let [mut before, mut other, mut report] =
            [MessageType::Feedback, kind, MessageType::Feedback].map(&mut say);
        let time = |bytes: &[u8]| packet::glance(bytes).unwrap().trailer.count();
        let heard = (time(&report), 0);
        let mut open = |heard, bytes: &mut [u8]| {
            seals.router.heard_before(at(SERVER), heard, bytes);
            seals.router.open(now, at(SERVER), &mut bytes.to_vec()).is_some()
        };
        assert!(open(heard, &mut other), "{kind:?}");
        assert!(!open(heard, &mut other), "{kind:?}, the same again");
        assert!(!open(heard, &mut before), "an earlier report");
        assert!(!open(heard, &mut report), "the one that was taken");
        assert_eq!(seals.router.metrics().replayed, 3);
    }
}

/// It is the last that the data plane has heard, and the router alone can use it: once.
#[test]
fn a_report_that_a_data_plane_has_passed_on_is_taken_once() {
    let mut seals = Seals::new();
    let now = seals.now;
    acquaint(now, &mut seals.router, &mut seals.server);
    let report = ReplyRepr::control(MessageType::Feedback, 0, RpcId(0));
    let report = seals.server.says(now, &report).unwrap();
    let time = packet::glance(&report).unwrap().trailer.count();
    for is_news in [true, false] {
        seals.router.heard_before(at(SERVER), (time - 1, time), &report);
        let opened = seals.router.open(now, at(SERVER), &mut report.clone());
        assert_eq!(opened.is_some(), is_news);
    }
}

#[test]
fn a_data_plane_is_told_the_epochs_that_are_taken() {
    let now = START;
    for (next_ms, expected) in [(u64::MAX, &[7, 8]), (0, &[7, 8])] {
        let sealing = of_role(&keys(Cipher::Aes128Gcm, next_ms), Role::Router);
        let router = router_seal(&sealing, 2);
        let plane = router.plane(now);
        let numbers: Vec<u8> = plane.epochs.iter().map(|epoch| epoch.number).collect();
        assert_eq!(numbers, expected);
        assert_eq!(plane.epochs.iter().map(|epoch| epoch.from_ms).max(), Some(next_ms));
        assert_eq!((plane.lifetime_ms, plane.tolerance_ms), (500, 100));
        assert!(plane.name != 0 && plane.secret != 0);
        let other = router_seal(&sealing, 3).plane(now);
        assert!(plane.name != other.name && plane.secret != other.secret);
        let bytes = |plane: &PlaneSeal| *plane.epochs[0].router_key.bytes();
        assert_eq!(bytes(&plane), bytes(&other), "the group's");
        assert_ne!(bytes(&plane), *plane.epochs[1].router_key.bytes());
    }
}

/// Once a second, and not by what names nobody.
#[test]
fn a_session_in_order_is_offered_once_in_a_while() {
    let mut seals = Seals::new();
    let RpcId(id) = call(1);
    let unnamed = seals.of_client(ROUTER, &request(1));
    assert_eq!(seals.verdict(CLIENT, &unnamed), Some(SealVerdict::Unnamed));
    assert!(seals.router.offer(seals.now, id).is_none());
    seals.introduce(ROUTER);
    let began_ms = seals.now / MS;
    for (later_ms, is_offered) in [(0, true), (999, false), (1, true)] {
        seals.now += later_ms * MS;
        // A client that was idle asks for the name again.
        if seals.client.name(seals.now, at(ROUTER), false) == 0 {
            seals.introduce(ROUTER);
        }
        let named = seals.of_client(ROUTER, &RequestRepr { floor: 1, ..request(1) });
        assert_eq!(seals.verdict(CLIENT, &named), Some(SealVerdict::Fit));
        let offered = seals.router.offer(seals.now, id);
        let told = offered.map(|of| (of.sender, of.session, of.began_ms, of.floor));
        assert_eq!(told, is_offered.then_some((ClientEpoch::new(17, 7), SESSION, began_ms, 1)));
    }
}

/// The first call tells it all that it needs to place the next call of a client, and to take the
/// next report.
#[test]
fn a_data_plane_is_told_of_a_client_and_a_server_that_are_in_order() {
    let (mut net, plane) = net_of_plane();
    net.call(b"first").unwrap();
    plane.with(|memory| {
        let seal = memory.seal.as_ref().expect("it is sealed");
        assert_eq!(seal.epochs[0].number, 7);
        assert!(memory.names.is_some_and(|(name, alias)| name != 0 && alias != 0));
        let [(client, session)] = &memory.sessions[..] else { panic!("one session") };
        assert_eq!((*client, session.sender), (at(CLIENT), ClientEpoch::new(17, 7)));
    });
}

/// Its id is taken for as long as its packets may come, and so is the place.
#[test]
fn what_no_data_plane_has_placed_the_router_places() {
    let (mut net, plane) = net_of_plane();
    for payload in [&b"first"[..], b"second"] {
        assert_eq!(net.call(payload), Ok(payload.to_vec()));
    }
    plane.with(|memory| {
        assert_eq!((memory.taken, memory.ids.len(), net.runs), (2, 2, 2));
        for &(client, now, until) in &memory.ids {
            assert_eq!(client, 17);
            assert!(until > now + 200 * MS, "{now} {until}");
        }
    });
}

/// The copy that the data plane has sent may be lost: another goes to its server, by a number of
/// its own as each does.
#[test]
fn what_a_data_plane_has_placed_goes_to_its_server_again() {
    let (mut net, plane) = net_of_plane();
    net.call(b"first").unwrap();
    plane.with(|memory| memory.has_placed = true);
    let before = net.router.as_ref().unwrap().metrics();
    assert_eq!(net.call(b"second"), Ok(b"second".to_vec()));
    let after = net.router.as_ref().unwrap().metrics();
    assert_eq!(after.duplicates_forwarded, before.duplicates_forwarded + 1);
    assert_eq!((after.forwarded, net.runs), (before.forwarded + 1, 2), "and nowhere else");
}

/// The router has no room to remember which server has it: the client is told that it is uncertain.
#[test]
fn what_a_data_plane_has_placed_is_refused_where_ids_have_no_room() {
    for has_placed in [false, true] {
        let (mut net, plane) = net_of_plane();
        let servers = vec![ServerConfig { addr: at(SERVER), speaks: Speaks::Extension }];
        let seal = sealing(&net.keys, Role::Router);
        let config = RouterConfig { servers, seal, table_len_max: 1, ..RouterConfig::default() };
        let mut router = Router::new(net.now, config).unwrap();
        router.share_places(net.now, Box::new(plane.clone()));
        net.router = Some(router);
        for _ in 0..30 {
            net.turn();
            net.now += 10 * MS;
        }
        net.call(b"first").unwrap();
        plane.with(|memory| memory.has_placed = has_placed);
        let reason = match has_placed {
            true => DropReason::Uncertain,
            false => DropReason::Overload,
        };
        let failure = net.call(b"second").unwrap_err();
        assert_eq!(failure, Failure::Refused(reason));
        assert_eq!(net.runs, 1);
    }
}
