//! Known ways to peers: whether a datagram goes past the kernel's stack, and with which headers.
//!
//! | state | a datagram goes | until |
//! |---|---|---|
//! | direct | past the kernel's stack | the neighbour changes or is gone, or a route, an address or a link changes |
//! | stale | through the kernel, once, which thereby asks whether the neighbour is still there; then direct | that one |
//! | unresolved | through the kernel, which asks for the neighbour's address | the kernel tells of it |
//! | elsewhere | through the kernel: this host itself, another interface, a tunnel, no route | as above |
//!
//! Everything here comes from the kernel's own tables and what it tells of changes; nothing is
//! learned from packets, which anybody can forge.
//!
//! Invariant: there are no more than a limit; the ones that came first make room.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use tailcut_proto::node::Source;

use super::headers::{Ends, Template};
use super::netlink::{Link, Message, Neighbour, Route};

/// Peer that a datagram is for, and the address that it is to leave from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Whom {
    /// The peer.
    pub(super) to: IpAddr,
    /// The link that the address holds on, or 0.
    pub(super) scope: u32,
    /// The source, where the datagram or the port has one.
    pub(super) from: Option<IpAddr>,
}

impl Whom {
    /// Peer and source of a datagram that leaves a port.
    #[inline]
    pub(super) fn new(to: SocketAddr, from: Source, own: SocketAddr) -> Self {
        let scope = match to {
            SocketAddr::V6(to) => to.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let own = Some(own.ip()).filter(|own| !own.is_unspecified());
        Self { to: to.ip(), scope, from: from.local().or(own) }
    }
}

/// Answer of the kernel about the way to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The route, where there is one.
    pub(super) route: Option<Route>,
    /// The next hop, where the kernel knows it.
    pub(super) neighbour: Option<Neighbour>,
}

/// Way of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way<'a> {
    /// Past the kernel's stack: headers, and the longest packet of IP.
    Direct(&'a Template, u32),
    /// Through the kernel, for it is to ask for the neighbour.
    Unresolved,
    /// Through the kernel, which has another way.
    Elsewhere,
}

/// The ways that are known.
#[derive(Debug)]
pub(super) struct Hops {
    /// The interface.
    own: Link,
    /// Its VLANs.
    tags: Vec<Link>,
    /// The protocol in IP.
    protocol: u8,
    /// By peer: a place in `hops`.
    places: HashMap<Whom, usize>,
    /// At most [`PEERS_MAX`].
    hops: Vec<Hop>,
    /// The one that makes room next.
    oldest: usize,
    /// The one that was found last.
    last: usize,
    /// Ways that made room.
    evicted: u64,
    /// Times that all were evicted.
    flushed: u64,
}

/// A way to a peer.
#[derive(Debug)]
struct Hop {
    /// The peer.
    whom: Whom,
    /// State of the way.
    state: State,
    /// The route.
    route: Route,
    /// Headers, in the states direct and stale.
    template: Option<Template>,
    /// The longest packet of IP.
    mtu: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Direct,
    Stale,
    Unresolved,
    Elsewhere,
}

impl Hops {
    /// No ways, for packets of a protocol of IP through an interface.
    pub(super) fn new(own: Link, protocol: u8) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "strangers choose keys, and no trace shows the order"
        )]
        let places = HashMap::new();
        Self {
            own,
            tags: Vec::new(),
            protocol,
            places,
            hops: Vec::new(),
            oldest: 0,
            last: 0,
            evicted: 0,
            flushed: 0,
        }
    }

    /// Place of the way to a peer.
    #[inline]
    pub(super) fn find(&mut self, whom: &Whom) -> Option<usize> {
        if self.hops.get(self.last).is_none_or(|hop| hop.whom != *whom) {
            self.last = *self.places.get(whom)?;
        }
        Some(self.last)
    }

    /// The way at a place, for one datagram.
    #[inline]
    pub(super) fn way(&mut self, place: usize) -> Way<'_> {
        let hop = &mut self.hops[place];
        match (hop.state, &hop.template) {
            (State::Direct, Some(template)) => Way::Direct(template, hop.mtu),
            (State::Stale, _) => {
                hop.state = State::Direct;
                Way::Unresolved
            }
            (State::Unresolved, _) => Way::Unresolved,
            (State::Direct | State::Elsewhere, _) => Way::Elsewhere,
        }
    }

    /// Keeps what the kernel said of a peer; returns its place.
    pub(super) fn insert(&mut self, whom: Whom, found: Found) -> usize {
        let mut hop = Hop {
            whom,
            state: State::Elsewhere,
            route: found.route.unwrap_or_default(),
            template: None,
            mtu: 0,
        };
        if self.link(hop.route.interface).is_some() && hop.route.is_plain {
            hop.state = State::Unresolved;
            self.resolve(&mut hop, found.neighbour.as_ref());
        }
        let place = if self.hops.len() < PEERS_MAX {
            self.hops.push(hop);
            self.hops.len() - 1
        } else {
            let place = self.oldest;
            self.oldest = (place + 1) % PEERS_MAX;
            self.places.remove(&self.hops[place].whom);
            self.hops[place] = hop;
            self.evicted += 1;
            place
        };
        self.places.insert(whom, place);
        place
    }

    /// Takes note of what the kernel tells of.
    pub(super) fn handle(&mut self, message: &Message) {
        match message {
            Message::Neighbour(neighbour) => self.handle_neighbour(neighbour),
            Message::Link(link) => self.handle_link(link),
            Message::LinkGone(index) => {
                self.tags.retain(|tag| tag.index != *index);
                self.evict_all();
            }
            Message::AddressesChanged | Message::RoutesChanged => self.evict_all(),
            Message::Address(_) | Message::Route(_) => {}
        }
    }

    /// Looks all ways up again.
    pub(super) fn evict_all(&mut self) {
        if !self.hops.is_empty() {
            self.places.clear();
            self.hops.clear();
            (self.oldest, self.last) = (0, 0);
            self.flushed += 1;
        }
    }

    /// The next hop of a route to a peer.
    pub(super) fn next_hop(whom: &Whom, route: &Route) -> IpAddr {
        route.gateway.unwrap_or(whom.to)
    }

    /// The interface, or a VLAN of it, by its number.
    pub(super) fn link(&self, index: u32) -> Option<&Link> {
        std::iter::once(&self.own).chain(&self.tags).find(|link| link.index == index)
    }

    /// True if the interface has a VLAN.
    #[inline]
    pub(super) fn has_vlan(&self, vlan: u16) -> bool {
        self.tags.iter().any(|tag| tag.vlan.is_some_and(|(_, id)| id == vlan))
    }

    /// Ways that made room, and times that all were evicted.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.evicted, self.flushed)
    }

    fn handle_link(&mut self, link: &Link) {
        let known = if link.index == self.own.index {
            &mut self.own
        } else if link.vlan.is_some_and(|(parent, _)| parent == self.own.index) {
            match self.tags.iter().position(|tag| tag.index == link.index) {
                Some(place) => &mut self.tags[place],
                None => {
                    self.tags.push(link.clone());
                    return self.evict_all();
                }
            }
        } else {
            return;
        };
        if known != link {
            known.clone_from(link);
            self.evict_all();
        }
    }

    fn handle_neighbour(&mut self, neighbour: &Neighbour) {
        if self.link(neighbour.interface).is_none() {
            return;
        }
        let mut hops = std::mem::take(&mut self.hops);
        for hop in &mut hops {
            let is_next = hop.state != State::Elsewhere
                && hop.route.interface == neighbour.interface
                && Self::next_hop(&hop.whom, &hop.route) == neighbour.ip;
            if is_next {
                self.resolve(hop, Some(neighbour));
            }
        }
        self.hops = hops;
    }

    /// Makes headers for a peer whose next hop is known, or drops them.
    fn resolve(&self, hop: &mut Hop, neighbour: Option<&Neighbour>) {
        let link = self.link(hop.route.interface).filter(|link| link.is_up);
        let known = neighbour.and_then(|neighbour| Some((neighbour.mac?, neighbour.is_stale)));
        hop.state = State::Unresolved;
        hop.template = None;
        let (Some(link), Some((peer_mac, is_stale))) = (link, known) else { return };
        let source = hop.whom.from.or(hop.route.source);
        let (Some(source), Some(own_mac)) = (source, link.mac) else { return };
        let vlan = link.vlan.map(|(_, id)| id).filter(|_| link.index != self.own.index);
        let ends = Ends { own_mac, peer_mac, vlan, source, destination: hop.whom.to };
        hop.template = Template::new(&ends, self.protocol);
        hop.mtu = hop.route.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)).min(self.own.mtu);
        if hop.template.is_some() {
            hop.state = if is_stale { State::Stale } else { State::Direct };
        }
    }
}

/// Peers whose ways are known: 250 bytes each, once there are so many.
const PEERS_MAX: usize = if cfg!(test) { 8 } else { 16_384 };

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 3;
    const TAG: u32 = 9;

    fn link(index: u32, vlan: Option<(u32, u16)>) -> Link {
        Link { index, mac: Some([2, 0, 0, 0, 0, 1]), mtu: 1500, is_up: true, vlan }
    }

    fn hops() -> Hops {
        let mut hops = Hops::new(link(OWN, None), 17);
        hops.handle(&Message::Link(link(TAG, Some((OWN, 5)))));
        hops
    }

    fn whom(last: u8) -> Whom {
        Whom { to: [10, 0, 0, last].into(), scope: 0, from: None }
    }

    fn route(interface: u32) -> Route {
        let source = Some([10, 0, 0, 1].into());
        Route { is_plain: true, interface, source, ..Route::default() }
    }

    fn neighbour(last: u8, mac: Option<u8>) -> Neighbour {
        let mac = mac.map(|last| [2, 0, 0, 0, 0, last]);
        Neighbour { interface: OWN, ip: [10, 0, 0, last].into(), mac, is_stale: false }
    }

    /// The state of a peer's way, as one letter, and the last byte of the next hop's address.
    fn way(hops: &mut Hops, last: u8) -> (char, u8) {
        let Some(place) = hops.find(&whom(last)) else { return ('?', 0) };
        match hops.way(place) {
            Way::Direct(template, _) => {
                let payload: &[u8] = &[];
                let varying = super::super::headers::Varying { ports: Some((1, 2)), priority: 0 };
                ('d', template.headers(payload, varying).bytes()[5])
            }
            Way::Unresolved => ('u', 0),
            Way::Elsewhere => ('e', 0),
        }
    }

    fn known(last: u8) -> Found {
        Found { route: Some(route(OWN)), neighbour: Some(neighbour(last, Some(last))) }
    }

    #[test]
    fn a_known_neighbour_is_reached_directly() {
        let mut hops = hops();
        assert_eq!(way(&mut hops, 2), ('?', 0));
        hops.insert(whom(2), known(2));
        hops.insert(whom(3), known(3));
        assert_eq!([way(&mut hops, 2), way(&mut hops, 3)], [('d', 2), ('d', 3)]);
    }

    #[test]
    fn an_unknown_neighbour_is_the_kernels_until_it_appears() {
        let mut hops = hops();
        hops.insert(whom(2), Found { route: Some(route(OWN)), neighbour: None });
        assert_eq!(way(&mut hops, 2), ('u', 0));
        hops.handle(&Message::Neighbour(neighbour(3, Some(3))));
        assert_eq!(way(&mut hops, 2), ('u', 0));
        hops.handle(&Message::Neighbour(neighbour(2, Some(7))));
        assert_eq!(way(&mut hops, 2), ('d', 7));
        hops.handle(&Message::Neighbour(neighbour(2, Some(8))));
        assert_eq!(way(&mut hops, 2), ('d', 8));
        hops.handle(&Message::Neighbour(neighbour(2, None)));
        assert_eq!(way(&mut hops, 2), ('u', 0));
    }

    #[test]
    fn of_a_stale_neighbour_the_kernel_is_asked_once() {
        let mut hops = hops();
        hops.insert(whom(2), known(2));
        let stale = Neighbour { is_stale: true, ..neighbour(2, Some(2)) };
        hops.handle(&Message::Neighbour(stale));
        let ways = [way(&mut hops, 2), way(&mut hops, 2), way(&mut hops, 2)];
        assert_eq!(ways, [('u', 0), ('d', 2), ('d', 2)]);
    }

    #[test]
    fn other_interfaces_and_no_route_are_the_kernels() {
        let mut hops = hops();
        hops.insert(whom(2), Found { route: Some(route(1)), neighbour: None });
        hops.insert(whom(3), Found::default());
        let local = Route { is_plain: false, ..route(OWN) };
        hops.insert(whom(4), Found { route: Some(local), neighbour: Some(neighbour(4, Some(4))) });
        assert_eq!([2, 3, 4].map(|last| way(&mut hops, last).0), ['e'; 3]);
    }

    #[test]
    fn a_router_is_the_next_hop_of_those_behind_it() {
        let mut hops = hops();
        let gateway = Some([10, 0, 0, 9].into());
        let behind = Route { gateway, ..route(OWN) };
        hops.insert(whom(2), Found { route: Some(behind), neighbour: None });
        hops.handle(&Message::Neighbour(neighbour(2, Some(2))));
        assert_eq!(way(&mut hops, 2), ('u', 0));
        hops.handle(&Message::Neighbour(neighbour(9, Some(9))));
        assert_eq!(way(&mut hops, 2), ('d', 9));
    }

    #[test]
    fn a_vlan_has_its_tag_and_the_smaller_mtu() {
        let mut hops = hops();
        let mut tag = link(TAG, Some((OWN, 5)));
        tag.mtu = 1400;
        hops.handle(&Message::Link(tag));
        let found = Found {
            route: Some(route(TAG)),
            neighbour: Some(Neighbour { interface: TAG, ..neighbour(2, Some(2)) }),
        };
        let place = hops.insert(whom(2), found);
        let Way::Direct(template, mtu) = hops.way(place) else { panic!("it is known") };
        let varying = super::super::headers::Varying { ports: Some((1, 2)), priority: 6 };
        assert_eq!(template.headers(&[], varying).bytes()[12..16], [0x81, 0, 6 << 5, 5]);
        assert_eq!(mtu, 1400);
        assert!(hops.has_vlan(5) && !hops.has_vlan(6));
        hops.handle(&Message::LinkGone(TAG));
        assert!(!hops.has_vlan(5) && hops.find(&whom(2)).is_none());
    }

    #[test]
    fn a_change_of_routes_or_of_the_link_forgets_all() {
        let down = Link { is_up: false, ..link(OWN, None) };
        for message in [Message::RoutesChanged, Message::AddressesChanged, Message::Link(down)] {
            let mut hops = hops();
            hops.insert(whom(2), known(2));
            hops.handle(&Message::Link(link(OWN, None)));
            assert_eq!(way(&mut hops, 2), ('d', 2), "nothing has changed");
            hops.handle(&message);
            assert_eq!((way(&mut hops, 2), hops.counts().1), (('?', 0), 1), "{message:?}");
        }
    }

    #[test]
    fn who_came_first_makes_room() {
        let mut hops = hops();
        for last in 0..PEERS_MAX as u8 + 2 {
            hops.insert(whom(last), known(last));
        }
        assert_eq!([0, 1].map(|last| way(&mut hops, last)), [('?', 0); 2]);
        assert_eq!([2, 9].map(|last| way(&mut hops, last)), [('d', 2), ('d', 9)]);
        assert_eq!((hops.counts().0, hops.places.len()), (2, PEERS_MAX));
    }
}
