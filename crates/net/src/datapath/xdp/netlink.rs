//! The kernel's tables of links, addresses, routes and neighbours, over netlink.
//!
//! Own messages instead of a library: six kinds are read, and the crates that know all of them drag
//! in an async runtime or some thousand types.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::sys;

/// Message of the kernel about a link, an address, a neighbour or a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// An interface, as it is now.
    Link(Link),
    /// An interface is gone.
    LinkGone(u32),
    /// An address of this host.
    Address(IpAddr),
    /// A neighbour, as it is now.
    Neighbour(Neighbour),
    /// A route, to who has asked for one.
    Route(Route),
    /// Addresses of this host have changed, told without a question.
    AddressesChanged,
    /// Routes or rules have changed, told without a question.
    RoutesChanged,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// Its number.
    pub(super) index: u32,
    /// Its address, where it is Ethernet's.
    pub(super) mac: Option<[u8; 6]>,
    /// The longest packet of IP.
    pub(super) mtu: u32,
    /// It is up.
    pub(super) is_up: bool,
    /// A tag of another interface: its number, and the VLAN.
    pub(super) vlan: Option<(u32, u16)>,
}

/// A host on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    /// The link's number.
    pub(super) interface: u32,
    /// Its address.
    pub(super) ip: IpAddr,
    /// Its address on the link, where it is known.
    pub(super) mac: Option<[u8; 6]>,
    /// It has not been heard of lately: the kernel asks once it sends something to it.
    pub(super) is_stale: bool,
}

/// A way to a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    /// To a single host that is not this one, with no header of its own.
    pub(super) is_plain: bool,
    /// The interface that it leaves by.
    pub(super) interface: u32,
    /// The router, where there is one.
    pub(super) gateway: Option<IpAddr>,
    /// The address to send from.
    pub(super) source: Option<IpAddr>,
    /// The longest packet, where the route says so.
    pub(super) mtu: Option<u32>,
}

/// A question about one thing, or about all of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question<'a> {
    /// The interface of a name.
    LinkNamed(&'a str),
    /// All interfaces.
    Links,
    /// All addresses of this host.
    Addresses,
    /// The way to a host, from an address, and by an interface or 0.
    Route(IpAddr, Option<IpAddr>, u32),
    /// A host on a link.
    Neighbour(u32, IpAddr),
}

/// Asks the kernel.
#[derive(Debug)]
pub(super) struct Asker {
    /// Waits for answers, which the kernel gives at once.
    socket: Socket,
    /// Room for what comes in one read.
    buffer: Vec<u8>,
    /// Number of the last question.
    sequence: u32,
}

impl Asker {
    pub(super) fn open() -> io::Result<Self> {
        let socket = open()?;
        socket.set_read_timeout(Some(ANSWER_TIME))?;
        Ok(Self { socket, buffer: vec![0; BUFFER_LEN], sequence: 0 })
    }

    /// Asks, and hands out what the kernel says.
    ///
    /// # Errors
    ///
    /// What the kernel says: NotFound where there is no such neighbour, NetworkUnreachable where no
    /// route goes there.
    pub(super) fn ask(
        &mut self,
        question: &Question<'_>,
        mut f: impl FnMut(Message),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&question.write(self.sequence))?;
        loop {
            let len = (&self.socket).read(&mut self.buffer)?;
            for (header, body) in Parts(&self.buffer[..len]) {
                if header.sequence != self.sequence {
                    continue;
                }
                match header.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let code = word(body, 0).unwrap_or(0).cast_signed();
                        return match code {
                            0 => Ok(()),
                            code => Err(io::Error::from_raw_os_error(-code)),
                        };
                    }
                    kind => {
                        if let Some(message) = read(kind, body) {
                            f(message);
                        }
                        if header.flags & NLM_F_MULTI == 0 {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }
}

/// Messages that a [`Watch::poll`] has not handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing.
    Nothing,
    /// Perhaps some, for the next call.
    More,
    /// Some were lost, so that all may have changed.
    Unknown,
}

/// Hears of changes.
#[derive(Debug)]
pub(super) struct Watch {
    /// Waits for nothing.
    socket: Socket,
    /// Room for what comes in one read.
    buffer: Vec<u8>,
}

impl Watch {
    pub(super) fn open() -> io::Result<Self> {
        let socket = open()?;
        for group in GROUPS {
            let option = (libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP);
            sys::set_int_option(socket.as_fd(), option, group)?;
        }
        // The kernel names a socket when it first sends, and tells those alone that have a name.
        socket.send(&message((NLMSG_NOOP, 0, 0), &[]))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, buffer: vec![0; BUFFER_LEN] })
    }

    /// Hands out some of the changes since the last call.
    pub(super) fn poll(&mut self, mut f: impl FnMut(Message)) -> Left {
        for _ in 0..READS_MAX {
            match (&self.socket).read(&mut self.buffer) {
                Ok(len) => {
                    for (header, body) in Parts(&self.buffer[..len]) {
                        changed(header.kind, body).into_iter().for_each(&mut f);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Left::Nothing,
                Err(_) => return Left::Unknown,
            }
        }
        Left::More
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open() -> io::Result<Socket> {
    let protocol = Protocol::from(libc::NETLINK_ROUTE);
    Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))
}

impl Question<'_> {
    fn write(&self, sequence: u32) -> Vec<u8> {
        let mut body = Vec::with_capacity(64);
        let (kind, flags) = match self {
            Self::LinkNamed(name) => {
                body.resize(16, 0);
                attribute(&mut body, libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
                (libc::RTM_GETLINK, 0)
            }
            Self::Links => {
                body.resize(16, 0);
                (libc::RTM_GETLINK, NLM_F_DUMP)
            }
            Self::Addresses => {
                body.resize(8, 0);
                (libc::RTM_GETADDR, NLM_F_DUMP)
            }
            Self::Route(to, from, interface) => {
                body.resize(12, 0);
                body[0] = family(*to);
                body[1] = octets(*to).len() as u8 * 8;
                attribute(&mut body, libc::RTA_DST, &octets(*to));
                if let Some(from) = from.filter(|from| from.is_ipv4() == to.is_ipv4()) {
                    body[2] = octets(from).len() as u8 * 8;
                    attribute(&mut body, libc::RTA_SRC, &octets(from));
                }
                if *interface != 0 {
                    attribute(&mut body, libc::RTA_OIF, &interface.to_ne_bytes());
                }
                (libc::RTM_GETROUTE, 0)
            }
            Self::Neighbour(interface, ip) => {
                body.resize(12, 0);
                body[0] = family(*ip);
                body[4..8].copy_from_slice(&interface.to_ne_bytes());
                attribute(&mut body, NDA_DST, &octets(*ip));
                (libc::RTM_GETNEIGH, 0)
            }
        };
        message((kind, NLM_F_REQUEST | flags, sequence), &body)
    }
}

/// A change that nobody has asked for.
fn changed(kind: u16, body: &[u8]) -> Option<Message> {
    match kind {
        libc::RTM_NEWADDR | libc::RTM_DELADDR => Some(Message::AddressesChanged),
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE | RTM_NEWRULE | RTM_DELRULE => {
            Some(Message::RoutesChanged)
        }
        _ => read(kind, body),
    }
}

fn read(kind: u16, body: &[u8]) -> Option<Message> {
    match kind {
        libc::RTM_NEWLINK => read_link(body).map(Message::Link),
        libc::RTM_DELLINK => Some(Message::LinkGone(word(body, 4)?)),
        libc::RTM_NEWADDR => {
            let attributes = Attributes(body.get(8..)?);
            let find = |wanted| attributes.clone().find(|&(kind, _)| kind == wanted);
            // On a link between two hosts the first is the other's.
            let (_, ip) = find(libc::IFA_LOCAL).or_else(|| find(libc::IFA_ADDRESS))?;
            Some(Message::Address(read_ip(ip)?))
        }
        libc::RTM_NEWNEIGH => read_neighbour(body, true).map(Message::Neighbour),
        libc::RTM_DELNEIGH => read_neighbour(body, false).map(Message::Neighbour),
        libc::RTM_NEWROUTE => read_route(body).map(Message::Route),
        _ => None,
    }
}

fn read_link(body: &[u8]) -> Option<Link> {
    let (index, flags) = (word(body, 4)?, word(body, 8)?);
    let is_ethernet = half(body, 2)? == libc::ARPHRD_ETHER;
    let mut link = Link { index, is_up: flags & libc::IFF_UP as u32 != 0, ..Link::default() };
    let (mut parent, mut tag) = (None, None);
    for (kind, value) in Attributes(body.get(16..)?) {
        match kind {
            libc::IFLA_ADDRESS if is_ethernet => link.mac = value.try_into().ok(),
            libc::IFLA_MTU => link.mtu = word(value, 0)?,
            libc::IFLA_LINK => parent = word(value, 0),
            libc::IFLA_LINKINFO => tag = read_tag(value),
            _ => {}
        }
    }
    link.vlan = parent.zip(tag);
    Some(link)
}

/// The VLAN of an interface that is a tag of another.
fn read_tag(info: &[u8]) -> Option<u16> {
    let find = |wanted| Attributes(info).find(|&(kind, _)| kind == wanted).map(|found| found.1);
    if find(libc::IFLA_INFO_KIND)? != b"vlan\0" {
        return None;
    }
    let (_, id) =
        Attributes(find(libc::IFLA_INFO_DATA)?).find(|&(kind, _)| kind == IFLA_VLAN_ID)?;
    half(id, 0)
}

fn read_neighbour(body: &[u8], is_there: bool) -> Option<Neighbour> {
    let (interface, state) = (word(body, 4)?, half(body, 8)?);
    let find =
        |wanted| Attributes(body.get(12..)?).find(|&(kind, _)| kind == wanted).map(|found| found.1);
    let ip = read_ip(find(NDA_DST)?)?;
    let is_valid = is_there && state & NUD_VALID != 0;
    let mac = find(NDA_LLADDR).and_then(|mac| mac.try_into().ok()).filter(|_| is_valid);
    Some(Neighbour { interface, ip, mac, is_stale: state & NUD_STALE != 0 })
}

fn read_route(body: &[u8]) -> Option<Route> {
    let mut route = Route { is_plain: *body.get(7)? == libc::RTN_UNICAST, ..Route::default() };
    for (kind, value) in Attributes(body.get(12..)?) {
        match kind {
            libc::RTA_OIF => route.interface = word(value, 0)?,
            libc::RTA_GATEWAY => route.gateway = read_ip(value),
            libc::RTA_PREFSRC => route.source = read_ip(value),
            libc::RTA_METRICS => {
                let mtu = Attributes(value).find(|&(kind, _)| kind == RTAX_MTU);
                route.mtu = mtu.and_then(|(_, value)| word(value, 0));
            }
            RTA_VIA | RTA_ENCAP => route.is_plain = false,
            _ => {}
        }
    }
    Some(route)
}

fn read_ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(bytes).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into())
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

/// A message of a kind, flags and a sequence number.
fn message((kind, flags, sequence): (u16, u16, u32), body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER_LEN + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes().into_iter().chain(flags.to_ne_bytes()));
    bytes.extend(sequence.to_ne_bytes().into_iter().chain([0; 4]));
    bytes.extend_from_slice(body);
    bytes
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes().into_iter().chain(kind.to_ne_bytes()));
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// The front of a message.
struct Header {
    /// `NLMSG_...` or `RTM_...`.
    kind: u16,
    /// `NLM_F_...`.
    flags: u16,
    /// Number of the question that it answers; 0 of other messages.
    sequence: u32,
}

/// The messages of one read.
struct Parts<'a>(&'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = (Header, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = word(self.0, 0)? as usize;
        let whole = self.0.get(..len)?;
        let body = whole.get(HEADER_LEN..)?;
        let header =
            Header { kind: half(whole, 4)?, flags: half(whole, 6)?, sequence: word(whole, 8)? };
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((header, body))
    }
}

/// Kinds and values.
#[derive(Clone)]
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (len, kind) = (usize::from(half(self.0, 0)?), half(self.0, 2)?);
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        // Its two highest bits say how the value is written.
        Some((kind & 0x3fff, value))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// Changes of links, neighbours, addresses, routes and rules (RTNLGRP_...).
const GROUPS: [i32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];

/// The kernel answers within the call that asks.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// As much as the kernel says at a time.
const BUFFER_LEN: usize = 32 << 10;

/// Reads of one look, of a change each; what is left is read in the next.
const READS_MAX: usize = 16;

const HEADER_LEN: usize = 16;

// Of <linux/netlink.h>, <linux/rtnetlink.h>, <linux/neighbour.h> and <linux/if_link.h>.
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_MULTI: u16 = 2;
const NLM_F_DUMP: u16 = 0x300;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTA_VIA: u16 = 18;
const RTA_ENCAP: u16 = 22;
const RTAX_MTU: u16 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_STALE: u16 = 0x04;
/// Reachable, stale, delayed, probed, without resolution, permanent.
const NUD_VALID: u16 = 0x02 | NUD_STALE | 0x08 | 0x10 | 0x40 | 0x80;
const IFLA_VLAN_ID: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_link_and_address_are_there() {
        let mut asker = Asker::open().expect("netlink");
        let mut links = Vec::new();
        asker.ask(&Question::LinkNamed("lo"), |link| links.push(link)).expect("lo");
        let [Message::Link(link)] = &links[..] else { panic!("{links:?}") };
        assert!(link.mac.is_none() && link.mtu > 0 && link.vlan.is_none());
        let mut found = Vec::new();
        asker.ask(&Question::Addresses, |address| found.push(address)).expect("addresses");
        assert!(found.contains(&Message::Address([127, 0, 0, 1].into())), "{found:?}");
    }

    #[test]
    fn a_way_to_this_host_itself_is_not_plain() {
        let mut asker = Asker::open().expect("netlink");
        let mut found = Vec::new();
        let question = Question::Route([127, 0, 0, 1].into(), None, 0);
        asker.ask(&question, |route| found.push(route)).expect("a route");
        let [Message::Route(route)] = &found[..] else { panic!("{found:?}") };
        assert!(!route.is_plain && route.interface != 0);
    }

    #[test]
    fn what_is_not_there_is_an_error_and_the_next_question_is_answered() {
        let mut asker = Asker::open().expect("netlink");
        let none = |_| panic!("nothing is there");
        let error = asker.ask(&Question::LinkNamed("none-such"), none).expect_err("none");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        let neighbour = Question::Neighbour(1, [192, 0, 2, 1].into());
        assert!(asker.ask(&neighbour, none).is_err());
        let mut count = 0;
        asker.ask(&Question::Links, |_| count += 1).expect("links");
        assert!(count > 0);
    }

    #[test]
    fn nothing_is_told_while_nothing_changes_here() {
        let mut watch = Watch::open().expect("netlink");
        // Others may change this namespace meanwhile; none is lost.
        assert_ne!(watch.poll(|_| ()), Left::Unknown);
    }

    #[test]
    fn a_neighbour_without_a_valid_address_has_none() {
        let mut body = vec![2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        attribute(&mut body, NDA_DST, &[10, 0, 0, 1]);
        attribute(&mut body, NDA_LLADDR, &[2, 0, 0, 0, 0, 1]);
        for (state, is_known) in [(0x01_u16, false), (0x20, false), (0x02, true), (0x04, true)] {
            body[8..10].copy_from_slice(&state.to_ne_bytes());
            let neighbour = read_neighbour(&body, true).expect("a neighbour");
            assert_eq!(neighbour.mac.is_some(), is_known, "{state}");
            assert_eq!((neighbour.interface, neighbour.is_stale), (9, state == 4));
        }
        assert!(read_neighbour(&body, false).expect("a neighbour").mac.is_none());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, kind in 16_u16..34) {
            for (_, body) in Parts(&bytes) {
                read(kind, body);
            }
            read(kind, &bytes);
        }
    }
}
