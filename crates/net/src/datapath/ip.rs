//! A raw socket of IP protocol 146, Homa's, or of TCP's in its disguise: packets directly over IP,
//! as the kernel's module speaks them.
//!
//! | way | what is done |
//! |---|---|
//! | in | the IPv4 header is taken off (IPv6 sockets show none); the source address and the Homa header's source port tell the peer |
//! | out | the kernel writes the IP header and its checksum, with DF; the priority goes into the DSCP bits of each packet |
//!
//! All raw sockets of a host get a copy of every packet of their protocol, also of those that this
//! host sends to itself. So a program in the kernel passes only packets for this port, or a busy
//! neighbour would wake and occupy everybody; what slipped in before it was there is told by the
//! same port, counted and ignored. And since the kernel knows nothing of Homa's ports, a name in
//! the network namespace (an abstract Unix socket) keeps two processes from taking the same one.
//!
//! Bursts, errors, metrics and the kernel's timestamps are those of a UDP port. GSO batches leave
//! packet by packet, in bursts: raw sockets know no segmentation.
//!
//! In disguise the kernel's own TCP gets every packet too, and drops it, since RST is set: it
//! answers nothing and no listener on the same port sees it.
//!
//! Invariant: what is handed out came over the port's IP protocol, for this port, from a source
//! port that is not 0; in disguise it has the marks that no segment of TCP has.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use libc::sock_filter;
use socket2::{Domain, Protocol, Socket, Type};
use tailcut_proto::node::Path;
use tailcut_wire::homa;

use super::socket::{Framing, SocketPort};
use super::udp::{SegmentedSend, UdpConfig};
use crate::entropy;
use crate::sys;

/// A Homa port directly over IP, of one address family.
pub type IpPort = SocketPort<HomaIp>;

/// Homa's packets in IP: whose they are, and as what they stand.
#[derive(Debug)]
pub struct HomaIp {
    /// The address and the Homa port.
    local: SocketAddr,
    /// The form of its packets in IP.
    form: Form,
    /// Holds the port's name.
    _claim: UnixDatagram,
    /// Counters of packets that were not handed out.
    strays: Strays,
}

/// Counters of packets that an [`IpPort`] did not hand out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// For another Homa port, or TCP's own: they came before the socket had its filter.
    pub foreign: u64,
    /// Too short for an IP header and Homa's ports, or from port 0.
    pub malformed: u64,
}

impl Framing for HomaIp {
    #[inline]
    fn unwrap<'a>(&mut self, path: Path, bytes: &'a mut [u8]) -> Option<(Path, &'a mut [u8])> {
        let (peer, packet) = self.strays.sort(self.local, self.form, (path.peer, bytes))?;
        Some((Path { peer, ..path }, packet))
    }

    /// A raw socket takes the destination's address alone: IPv6 reads a port as a protocol. The
    /// port is the one that the packet itself names.
    #[inline]
    fn destination(mut to: SocketAddr) -> SocketAddr {
        to.set_port(0);
        to
    }
}

impl IpPort {
    /// Opens a raw socket at an address and Homa port; port 0 takes a free one of those for
    /// clients, 32,768 and up. Of `config`, segmented sends have no effect.
    ///
    /// # Errors
    ///
    /// PermissionDenied, naming the capability, for a process without CAP_NET_RAW; AddrInUse when a
    /// process of this network namespace has the port at the same address; else what the kernel
    /// says of the address.
    pub fn bind(address: SocketAddr, config: UdpConfig) -> io::Result<Self> {
        Self::open(address, Form::Own, config)
    }

    /// As [`IpPort::bind`], in the disguise of TCP: for an endpoint whose configuration is to send
    /// [`tailcut_proto::homa::Carrier::HijackedTcp`] from this address, and to take what has its
    /// marks.
    ///
    /// # Errors
    ///
    /// As [`IpPort::bind`].
    pub fn bind_hijacked(address: SocketAddr, config: UdpConfig) -> io::Result<Self> {
        Self::open(address, Form::HijackedTcp, config)
    }

    fn open(address: SocketAddr, form: Form, config: UdpConfig) -> io::Result<Self> {
        let domain = Domain::for_address(address);
        let protocol = Some(Protocol::from(i32::from(form.protocol())));
        let socket =
            Socket::new(domain, Type::RAW.nonblocking(), protocol).map_err(name_capability)?;
        let (local, claim) = claim(address, form)?;
        sys::attach_filter(socket.as_fd(), &port_program(local, form))?;
        // A raw socket has an address alone.
        socket.bind(&SocketAddr::new(local.ip(), 0).into())?;
        leave_out_strangers(&socket);
        let framing = HomaIp { local, form, _claim: claim, strays: Strays::default() };
        Self::new(
            socket,
            local,
            framing,
            UdpConfig { segmented_send: SegmentedSend::Off, ..config },
        )
    }

    /// The protocol that IP says its packets have.
    pub fn ip_protocol(&self) -> u8 {
        self.framing.form.protocol()
    }

    /// Counters of packets that were not handed out.
    pub fn strays(&self) -> Strays {
        self.framing.strays
    }
}

/// The form of packets in IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Own,
    HijackedTcp,
}

impl Form {
    fn protocol(self) -> u8 {
        match self {
            Self::Own => homa::IP_PROTOCOL,
            Self::HijackedTcp => homa::HIJACKED_IP_PROTOCOL,
        }
    }
}

impl Strays {
    /// The peer and the packet in what a raw socket received from a source, if it is for the port
    /// of `local` in this form.
    #[inline]
    fn sort<'a>(
        &mut self,
        local: SocketAddr,
        form: Form,
        (source, bytes): (SocketAddr, &'a mut [u8]),
    ) -> Option<(SocketAddr, &'a mut [u8])> {
        let header_len = if local.is_ipv4() {
            bytes.first().map_or(0, |byte| usize::from(byte & 0x0f) * 4)
        } else {
            0
        };
        let packet = bytes.get_mut(header_len..).unwrap_or_default();
        let port_at =
            |at: usize| packet.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
        let (Some(from @ 1..), Some(to)) = (port_at(0), port_at(2)) else {
            self.malformed += 1;
            return None;
        };
        if to != local.port() || form == Form::HijackedTcp && !homa::is_hijacked(packet) {
            self.foreign += 1;
            return None;
        }
        let mut peer = source;
        peer.set_port(from);
        Some((peer, packet))
    }
}

/// Before it has its filter and its address, a raw socket takes everybody's packets.
fn leave_out_strangers(socket: &Socket) {
    for _ in 0..STRANGERS_MAX {
        if socket.recv(&mut [MaybeUninit::uninit(); 1]).is_err() {
            break;
        }
    }
}

/// More than a receive buffer holds that nobody has enlarged.
const STRANGERS_MAX: usize = 65_536;

/// Takes the name of a port, which ends with the socket that is returned.
fn claim(address: SocketAddr, form: Form) -> io::Result<(SocketAddr, UnixDatagram)> {
    if address.port() != 0 {
        return Ok((address, take_name(address, form)?));
    }
    for word in entropy::secret()?.chunks_exact(2) {
        let drawn = u16::from_be_bytes([word[0], word[1]]) | CLIENT_PORT_MIN;
        let local = SocketAddr::new(address.ip(), drawn);
        match take_name(local, form) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            taken => return Ok((local, taken?)),
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no Homa port for clients was free"))
}

fn take_name(local: SocketAddr, form: Form) -> io::Result<UnixDatagram> {
    let name = UnixAddress::from_abstract_name(format!("tailcut/ip/{}/{local}", form.protocol()))?;
    UnixDatagram::bind_addr(&name)
}

/// Passes packets whose destination port, the second word of 16 bits after the IP header, is that
/// of `local`, and which in disguise have its marks. A load beyond the packet ends a program with
/// 0, which drops it.
fn port_program(local: SocketAddr, form: Form) -> Vec<sock_filter> {
    let statement = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // X is the length of the IPv4 header, four times the low half of its first byte; IPv6 sockets
    // begin behind theirs.
    let header = if local.is_ipv4() {
        statement(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0)
    } else {
        statement(libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM, 0)
    };
    let mut wanted = vec![(libc::BPF_H, 2, u32::from(local.port()))];
    if form == Form::HijackedTcp {
        wanted.extend([
            (libc::BPF_B, 13, u32::from(homa::FLAGS)),
            (libc::BPF_H, 18, u32::from(homa::URGENT)),
        ]);
    }
    let mut program = vec![header];
    for (place, &(size, at, value)) in wanted.iter().enumerate() {
        program.push(statement(libc::BPF_LD | size | libc::BPF_IND, at));
        let is_equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        // Else over what else is wanted, and over the return that passes.
        let jf = (2 * (wanted.len() - 1 - place) + 1) as u8;
        program.push(sock_filter { code: is_equal, jt: 0, jf, k: value });
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, u32::MAX));
    program.push(statement(libc::BPF_RET | libc::BPF_K, 0));
    program
}

fn name_capability(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let text =
                "Homa directly over IP needs raw sockets, which need the capability CAP_NET_RAW";
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        }
        _ => error,
    }
}

/// Homa ports from here on are for clients.
const CLIENT_PORT_MIN: u16 = homa::CLIENT_PORT_MIN;

#[cfg(test)]
mod tests {
    use tailcut_proto::node::Transmit;

    use super::super::Datapath;
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// Checks the result of bytes from 10.0.0.1 or 2001:db8::1 at port 4000: the peer's port and
    /// the packet's length.
    fn check(local: &str, bytes: &[u8], expected: Result<(u16, usize), Strays>) {
        check_form(Form::Own, local, bytes, expected);
    }

    fn check_form(form: Form, local: &str, bytes: &[u8], expected: Result<(u16, usize), Strays>) {
        let local = address(local);
        let source = address(if local.is_ipv4() { "10.0.0.1:0" } else { "[2001:db8::1]:0" });
        let mut strays = Strays::default();
        let mut received = bytes.to_vec();
        let sorted = strays.sort(local, form, (source, &mut received));
        let found = sorted.map(|(peer, packet)| {
            assert_eq!(peer.ip(), source.ip());
            (peer.port(), packet.len())
        });
        assert_eq!(found.ok_or(strays), expected, "{bytes:?}");
    }

    /// An IPv4 header of `words` words, and then the ports of a Homa packet.
    fn ipv4(words: u8, from: u16, to: u16) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(words) * 4];
        bytes[0] = 0x40 | words;
        bytes.extend(from.to_be_bytes().into_iter().chain(to.to_be_bytes()));
        bytes
    }

    const FOREIGN: Strays = Strays { foreign: 1, malformed: 0 };
    const MALFORMED: Strays = Strays { foreign: 0, malformed: 1 };

    #[test]
    fn the_peer_is_the_source_address_with_the_headers_port() {
        check("10.0.0.2:4000", &ipv4(5, 40_000, 4000), Ok((40_000, 4)));
        check("10.0.0.2:4000", &ipv4(15, 40_000, 4000), Ok((40_000, 4)));
        check("[::1]:4000", &ipv4(5, 40_000, 4000)[20..], Ok((40_000, 4)));
    }

    #[test]
    fn packets_for_other_ports_are_counted() {
        check("10.0.0.2:4000", &ipv4(5, 40_000, 4001), Err(FOREIGN));
        check("[::1]:4000", &ipv4(5, 40_000, 4001)[20..], Err(FOREIGN));
    }

    #[test]
    fn segments_of_tcp_itself_are_counted() {
        let mut packet = ipv4(5, 40_000, 4000);
        packet.resize(48, 0);
        check_form(Form::HijackedTcp, "10.0.0.2:4000", &packet, Err(FOREIGN));
        packet[33] = homa::FLAGS;
        packet[38..40].copy_from_slice(&homa::URGENT.to_be_bytes());
        check_form(Form::HijackedTcp, "10.0.0.2:4000", &packet, Ok((40_000, 28)));
        check_form(Form::HijackedTcp, "[::1]:4000", &packet[20..], Ok((40_000, 28)));
    }

    #[test]
    fn what_cannot_be_a_packet_is_counted() {
        for bytes in [&[][..], &[0x4f], &ipv4(5, 1, 4000)[..23], &ipv4(5, 0, 4000)] {
            check("10.0.0.2:4000", bytes, Err(MALFORMED));
        }
        check("[::1]:4000", &[1, 2, 3], Err(MALFORMED));
    }

    #[test]
    fn a_refusal_names_the_capability() {
        let error = name_capability(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    }

    #[test]
    fn a_port_has_one_owner_at_an_address() {
        // Another address than the tests of whole ports use, so that nobody else has the name.
        let (local, claimed) = claim(address("127.7.7.7:0"), Form::Own).expect("a port");
        assert!(local.port() >= CLIENT_PORT_MIN);
        assert_eq!(
            claim(local, Form::Own).expect_err("it is taken").kind(),
            io::ErrorKind::AddrInUse
        );
        assert!(
            claim(SocketAddr::new(address("127.7.7.8:1").ip(), local.port()), Form::Own).is_ok()
        );
        drop(claimed);
        assert!(claim(local, Form::Own).is_ok());
    }

    #[test]
    fn the_ip_header_has_the_priority_and_forbids_fragments() {
        let bind = || IpPort::bind(address("127.7.7.9:0"), UdpConfig::default());
        let (mut receiver, mut sender) = match (bind(), bind()) {
            (Ok(receiver), Ok(sender)) => (receiver, sender),
            // Tests of whole ports say it past the harness's capture, and CI must have the
            // capability there.
            (Err(error), _) | (_, Err(error)) => return println!("SKIPPED: {error}"),
        };
        let packet = &ipv4(5, sender.local_address().port(), receiver.local_address().port())[20..];
        for priority in 0..8 {
            sender.frame(0, 0).payload()[..4].copy_from_slice(packet);
            sender.queue(&Transmit { priority, ..Transmit::single(receiver.local_address(), 4) });
        }
        sender.flush();
        let mut headers = Vec::new();
        while headers.len() < 8 {
            // Class, flags and protocol of RFC 791's header; flag 2 is "don't fragment".
            let IpPort { receiver, socket, account, .. } = &mut receiver;
            let note = |_, bytes: &mut [u8], _: sys::Notes<'_>| {
                headers.push((bytes[1], bytes[6], bytes[9]));
            };
            receiver.receive(socket.as_fd(), account, note).expect("a receive");
        }
        let expected: Vec<_> = (0..8).map(|priority| (priority << 5, 0x40, 146)).collect();
        assert_eq!(headers, expected);
    }
}
