//! AF_XDP: datagrams past the kernel's network stack, between an interface's rings and memory of
//! this process.
//!
//! | datagrams | go |
//! |---|---|
//! | in, for this port, by the interface | past the stack: a program at the interface directs them here (`interface`) |
//! | in, any other way: another interface, fragments, IP options | through the kernel's socket |
//! | out, to a peer whose next hop is known and on the interface or a VLAN of it | past the stack, with headers of our own (`headers`) |
//! | out, to any other | through the kernel's socket, which finds the way (`hops`) |
//!
//! Each port has a socket of the kernel too, at the same address: it keeps the port from others,
//! carries what does not go past the stack, and is told what comes back by ICMP. So a datagram is
//! never lost for want of a way around the kernel, and the first ones to a new neighbour make the
//! kernel ask for it.
//!
//! The rings of arrived frames are shared memory, so that a look at them costs no system call. A
//! send is one call for a burst. The kernel's socket and its news are looked at when the descriptor
//! is ready, or after so many looks while it is polled.
//!
//! A router's port behind its XDP program ([`Lanes::behind`]) is such a one too: the program hands
//! it what it does not place.
//!
//! Invariants: as of any [`Datapath`]; nothing is learned from packets; netfilter does not see what
//! goes past the stack.

mod config;
mod headers;
mod hops;
mod interface;
mod kernel;
mod netlink;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{Timespec, epoll};
use tailcut_proto::node::{Path, Source, Transmit};

pub use self::config::{InterfaceName, RingMetrics, XdpConfig, XdpMetrics};
use self::headers::{IPV4_LEN, IPV6_LEN, Parsed, Refusal, UDP, UDP_LEN, Varying};
use self::hops::{Found, Hops, Way, Whom};
use self::interface::{Claim, Interface, MTU_MAX, PAYLOAD_AT};
use self::kernel::KernelPort;
use self::netlink::{Asker, Left, Link, Message, Question, Watch};
use super::source::Sources;
use super::udp::{SegmentedSend, UdpConfig, UdpMetrics, UdpPort};
use super::{Datapath, Frame};
use crate::ebpf::router::XdpRouter;
use crate::stamps::{StampConfig, Stamps};
use crate::sys::Xsk;

/// A port whose datagrams go past the kernel's stack where they can.
#[derive(Debug)]
pub struct XdpPort {
    /// Directs packets here; dropped before the sockets are.
    claim: Arc<Claim>,
    /// A socket at each queue that is this port's. The first one sends.
    lanes: Vec<Xsk>,
    /// This end of the port's datagrams, and the counters.
    ends: LocalEnd,
    /// Ways to peers.
    hops: Hops,
    /// Asks for them.
    asker: Asker,
    /// Hears of changes.
    watch: Watch,
    /// The kernel's socket.
    kernel: KernelPort,
    /// Something waits in that socket to be sent.
    has_queued: bool,
    /// Ready when any of the descriptors is.
    ready: OwnedFd,
    /// Room in the transmit ring is waited for.
    awaits_room: bool,
    /// The descriptor was ready.
    is_ready: bool,
    /// The sockets drive the queues when they are looked at.
    is_driving: bool,
    /// Looks at the rings since the other descriptors were looked at.
    looks: u32,
    /// Looks after which they are.
    looks_max: u32,
    /// Peers that may still be looked up before the next burst.
    asks_left: u32,
    /// The most descriptors that may wait for the device; above that it has no room.
    backlog_max: u32,
}

/// The way past the stack of a port that is yet to be opened.
#[derive(Debug)]
pub struct Lanes {
    /// Directs packets here.
    claim: Arc<Claim>,
    /// A socket at each queue.
    lanes: Vec<Xsk>,
    /// Asks the kernel's tables.
    asker: Asker,
    /// Hears of changes in them since before anything was asked.
    watch: Watch,
    /// The interface.
    link: Link,
    /// As asked for.
    config: XdpConfig,
}

impl Lanes {
    /// The way for the port at a router's address, behind the router's program at the interface.
    ///
    /// # Errors
    ///
    /// As [`XdpPort::bind`].
    pub fn behind(router: &XdpRouter, listen: SocketAddr, config: XdpConfig) -> io::Result<Self> {
        let port = (listen, UDP);
        Self::open(port, config, |asker| Interface::behind(router, config, asker))
    }

    fn open(
        port: (SocketAddr, u8),
        config: XdpConfig,
        open: impl FnOnce(&mut Asker) -> io::Result<(Arc<Interface>, Link)>,
    ) -> io::Result<Self> {
        let mut asker = Asker::open()?;
        // Before anything is asked, so that no change goes unheard.
        let watch = Watch::open()?;
        let (interface, link) = open(&mut asker)?;
        let claim = Arc::new(Claim::take(&interface, port)?);
        let mut lanes = Vec::new();
        for (queue, pool) in interface.pools().iter().enumerate() {
            let lane = Xsk::open(pool, (RECEIVE_LEN, TRANSMIT_LEN))?;
            if config.busy_poll {
                lane.prefer_busy_poll()?;
            }
            claim.set_socket(queue as u32, lane.as_fd())?;
            lanes.push(lane);
        }
        claim.direct(&mut asker)?;
        Ok(Self { claim, lanes, asker, watch, link, config })
    }
}

/// This end of a port's datagrams, and the counters of them.
#[derive(Debug)]
struct LocalEnd {
    /// The address; the IP may be unspecified.
    local: SocketAddr,
    /// The protocol in IP.
    protocol: u8,
    /// The interface's number.
    interface: u32,
    /// Addresses of this host in paths: at which a datagram has arrived, and from which one leaves.
    sources: Sources,
    /// The program has looked whose frames are: a VLAN may be one of a bond or a bridge above the
    /// interface.
    takes_any_vlan: bool,
    /// Bytes of the longest datagram that frames have room for.
    payload_len_max: usize,
    /// Those of all datapaths, as far as they are of what goes past the stack.
    common: UdpMetrics,
    /// Those of this one.
    metrics: XdpMetrics,
}

impl XdpPort {
    /// Opens a port for datagrams of UDP; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// PermissionDenied, naming the capabilities that the process lacks; NotFound, InvalidInput or
    /// ResourceBusy for an interface that cannot be had; else what the kernel says of the address.
    pub fn bind(address: SocketAddr, config: XdpConfig, udp: UdpConfig) -> io::Result<Self> {
        let kernel = KernelPort::udp(address, plain(udp))?;
        Self::open(kernel, config, udp)
    }

    /// As [`XdpPort::bind`], for packets of Homa directly over IP.
    ///
    /// # Errors
    ///
    /// As [`XdpPort::bind`] and `IpPort::bind`.
    pub fn bind_ip(address: SocketAddr, config: XdpConfig, udp: UdpConfig) -> io::Result<Self> {
        let kernel = KernelPort::ip(address, plain(udp))?;
        Self::open(kernel, config, udp)
    }

    /// Puts a port of UDP behind a router's program, at whose address it is. It must have no
    /// segmented sends.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is known to make it fail.
    pub fn behind(lanes: Lanes, port: UdpPort, udp: UdpConfig) -> io::Result<Self> {
        Self::with(lanes, KernelPort::Udp(port), udp)
    }

    fn open(kernel: KernelPort, config: XdpConfig, udp: UdpConfig) -> io::Result<Self> {
        let port = (kernel.local_address(), kernel.protocol());
        let lanes = Lanes::open(port, config, |asker| Interface::open(config, asker))?;
        Self::with(lanes, kernel, udp)
    }

    fn with(lanes: Lanes, kernel: KernelPort, udp: UdpConfig) -> io::Result<Self> {
        let Lanes { claim, lanes, mut asker, watch, link, config } = lanes;
        let (local, protocol) = (kernel.local_address(), kernel.protocol());
        let mtu = link.mtu.min(MTU_MAX);
        let ends = LocalEnd {
            local,
            protocol,
            interface: link.index,
            sources: Sources::new(local, udp.tells_local),
            takes_any_vlan: claim.is_of_router(),
            payload_len_max: mtu as usize - ip_overhead(local, protocol),
            common: UdpMetrics::default(),
            metrics: XdpMetrics::default(),
        };
        let mut hops = Hops::new(link, protocol);
        asker.ask(&Question::Links, |message| hops.handle(&message))?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let others = [(watch.as_fd(), WATCH), (kernel.as_fd(), KERNEL)];
        let fds = lanes.iter().zip(LANES..).map(|(lane, key)| (lane.as_fd(), key));
        for (fd, key) in fds.chain(others) {
            epoll::add(&ready, fd, epoll::EventData::new_u64(key), epoll::EventFlags::IN)?;
        }
        Ok(Self {
            claim,
            lanes,
            ends,
            hops,
            asker,
            watch,
            kernel,
            has_queued: false,
            ready,
            awaits_room: false,
            is_ready: false,
            is_driving: config.busy_poll,
            looks: 0,
            looks_max: LOOKS_MAX,
            asks_left: ASKS_MAX,
            backlog_max: udp.unsent_bytes_max.map_or(u32::MAX, |max| (max / mtu as usize) as u32),
        })
    }

    /// Description of how packets come: where the program runs, whether frames are copied, and how
    /// many queues.
    pub fn describe(&self) -> String {
        self.claim.interface().describe()
    }

    /// The protocol that IP says its packets have.
    pub fn ip_protocol(&self) -> u8 {
        self.ends.protocol
    }

    /// The counters that this datapath alone has.
    pub fn xdp_metrics(&self) -> XdpMetrics {
        let (peers_evicted, ways_flushed) = self.hops.counts();
        XdpMetrics { peers_evicted, ways_flushed, ..self.ends.metrics }
    }

    /// Counters that the kernel keeps of the rings. A system call: for reports.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is known to make it fail.
    pub fn ring_metrics(&self) -> io::Result<RingMetrics> {
        let mut metrics = RingMetrics::default();
        for lane in &self.lanes {
            let found = lane.statistics()?;
            metrics.ring_dropped += found.dropped;
            metrics.ring_receive_full += found.receive_ring_full;
            metrics.ring_fill_empty += found.fill_ring_empty;
            metrics.ring_invalid += found.invalid;
        }
        Ok(metrics)
    }

    /// The rings that send, for a bench that moves frames of its own.
    #[doc(hidden)]
    pub fn rings_mut(&mut self) -> &mut Xsk {
        &mut self.lanes[0]
    }

    /// Receives a burst of each ring, and what waits elsewhere when that is to be looked at.
    #[inline]
    fn receive(&mut self, mut f: impl FnMut(Path, &mut [u8], Stamps)) -> io::Result<usize> {
        let Self { lanes, ends, hops, .. } = self;
        let mut count = 0;
        for lane in lanes.iter_mut() {
            if self.is_driving {
                lane.drive();
            }
            lane.receive(BURST_MAX, |frame| {
                if let Some((path, payload)) = ends.unwrap(frame, hops) {
                    count += 1;
                    f(path, payload, Stamps::default());
                }
            });
        }
        self.looks += 1;
        if self.looks >= self.looks_max || (self.is_ready && count == 0) {
            count += self.look(&mut f)?;
        }
        Ok(count)
    }

    /// Looks at the descriptors besides the rings.
    #[cold]
    fn look(&mut self, f: &mut impl FnMut(Path, &mut [u8], Stamps)) -> io::Result<usize> {
        self.looks = 0;
        self.is_ready = false;
        self.lanes.iter_mut().for_each(Xsk::rest);
        if self.awaits_room && self.lanes[0].has_room() {
            self.await_room(epoll::EventFlags::IN)?;
        }
        let mut events = [const { EVENT }; EVENTS_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = match epoll::wait(&self.ready, &mut events[..], Some(&now)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            found => found?,
        };
        let (mut count, mut has_more) = (0, false);
        for event in &events[..found] {
            let epoll::Event { flags, data } = *event;
            match data.u64() {
                WATCH => has_more = self.hear(),
                KERNEL => {
                    if flags.contains(epoll::EventFlags::ERR) {
                        self.kernel.take_errors();
                    }
                    count += self.kernel.recv_burst_stamped(&mut *f)?;
                }
                lane if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) => {
                    // The interface is gone: the kernel's socket goes on.
                    let lane = &self.lanes[(lane - LANES) as usize];
                    let _ = epoll::delete(&self.ready, lane.as_fd());
                    self.ends.metrics.interface_errors += 1;
                }
                _ => {}
            }
        }
        self.looks_max = if count > 0 { LOOKS_MIN } else { (self.looks_max * 2).min(LOOKS_MAX) };
        if has_more {
            // A hundred neighbours answer at once, and until their news is read the kernel carries
            // what is theirs.
            self.looks = self.looks_max;
        }
        Ok(count)
    }

    /// Takes note of what the kernel tells of; says whether it may have more to tell.
    fn hear(&mut self) -> bool {
        let mut has_other_addresses = false;
        let hops = &mut self.hops;
        let left = self.watch.poll(|message| {
            has_other_addresses |= message == Message::AddressesChanged;
            hops.handle(&message);
        });
        if left == Left::Unknown {
            hops.evict_all();
            let _ = self.asker.ask(&Question::Links, |message| hops.handle(&message));
        }
        if has_other_addresses || left == Left::Unknown {
            // What fails leaves packets to the kernel's socket.
            let _ = self.claim.direct(&mut self.asker);
        }
        left == Left::More
    }

    /// The place of the way to a peer; `None` where it is not to be looked up now.
    #[inline]
    fn place_of(&mut self, whom: Whom) -> Option<usize> {
        self.hops.find(&whom).or_else(|| self.look_up(whom))
    }

    /// Asks the kernel for the way to a peer.
    #[cold]
    fn look_up(&mut self, whom: Whom) -> Option<usize> {
        self.asks_left = self.asks_left.checked_sub(1)?;
        self.ends.metrics.lookups += 1;
        let mut found = Found::default();
        // What the kernel does not know it will say to whom it sends for.
        let _ = self.asker.ask(&Question::Route(whom.to, whom.from, whom.scope), |message| {
            if let Message::Route(route) = message {
                found.route = Some(route);
            }
        });
        let route = found.route.as_ref();
        if let Some(route) = route.filter(|route| self.hops.link(route.interface).is_some()) {
            let question = Question::Neighbour(route.interface, Hops::next_hop(&whom, route));
            let mut neighbour = None;
            let _ = self.asker.ask(&question, |message| {
                if let Message::Neighbour(told) = message {
                    neighbour = Some(told);
                }
            });
            found.neighbour = neighbour;
        }
        Some(self.hops.insert(whom, found))
    }

    /// Puts what was written to the frame into the transmit ring, datagram by datagram.
    #[inline]
    fn queue_direct(&mut self, place: usize, transmit: &Transmit) -> Result<(), Detour> {
        let Self { lanes, ends, hops, .. } = self;
        let lane = &mut lanes[0];
        let (template, mtu) = match hops.way(place) {
            Way::Direct(template, mtu) => (template, mtu as usize),
            Way::Unresolved => return Err(Detour::Unresolved),
            Way::Elsewhere => return Err(Detour::Elsewhere),
        };
        let segment_len = transmit.segment_len.clamp(1, transmit.len.max(1));
        let count = transmit.len.div_ceil(segment_len).max(1);
        if segment_len > mtu - ip_overhead(ends.local, ends.protocol) {
            ends.common.dropped_too_large += count as u64;
            return Ok(());
        }
        let ports = (ends.protocol == UDP).then(|| (ends.local.port(), transmit.to.port()));
        let varying = Varying { ports, priority: transmit.priority };
        for index in 0..count {
            let (start, is_last) = (index * segment_len, index + 1 == count);
            let end = if is_last { transmit.len } else { start + segment_len };
            let part = PAYLOAD_AT + start..PAYLOAD_AT + end;
            let headers = template.headers(&lane.frame()[part.clone()], varying);
            if ends.push(lane, headers.bytes(), (part, is_last)) {
                ends.metrics.direct_out += 1;
                ends.common.datagrams_out += 1;
                ends.common.bytes_out += (end - start) as u64;
            }
        }
        Ok(())
    }

    /// Hands what was written to the frame to the kernel's socket.
    #[cold]
    fn queue_to_kernel(&mut self, transmit: &Transmit) {
        let written = &self.lanes[0].frame()[PAYLOAD_AT..PAYLOAD_AT + transmit.len];
        self.kernel.frame(0, 0).payload()[..transmit.len].copy_from_slice(written);
        self.kernel.queue(transmit);
        self.has_queued = true;
    }

    /// Waits for room in the transmit ring too, or no more.
    fn await_room(&mut self, flags: epoll::EventFlags) -> io::Result<()> {
        self.awaits_room = flags.contains(epoll::EventFlags::OUT);
        let key = epoll::EventData::new_u64(LANES);
        Ok(epoll::modify(&self.ready, self.lanes[0].as_fd(), key, flags)?)
    }
}

/// Reason why a datagram goes through the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detour {
    /// The neighbour is not known, or is to be confirmed.
    Unresolved,
    /// The way is another.
    Elsewhere,
}

impl LocalEnd {
    /// The path and the datagram in a frame; `None`, counted, for what is none for this port.
    #[inline]
    fn unwrap<'a>(&mut self, frame: &'a mut [u8], hops: &Hops) -> Option<(Path, &'a mut [u8])> {
        let Parsed { vlan, peer, destination, port, protocol, payload, is_partial } =
            match headers::parse(frame, self.interface) {
                Ok(parsed) => parsed,
                Err(refusal) => {
                    self.note(refusal);
                    return None;
                }
            };
        if !self.takes_any_vlan && vlan.is_some_and(|vlan| !hops.has_vlan(vlan)) {
            self.metrics.foreign_vlan += 1;
            return None;
        }
        // The program sees to both.
        if port != self.local.port() || protocol != self.protocol {
            self.metrics.malformed += 1;
            return None;
        }
        self.metrics.partial_checksums += u64::from(is_partial);
        self.metrics.direct_in += 1;
        self.common.datagrams_in += 1;
        self.common.bytes_in += payload.len() as u64;
        let local: Option<IpAddr> = self.sources.tells_local.then_some(destination);
        Some((Path { local, peer }, &mut frame[payload]))
    }

    #[cold]
    fn note(&mut self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::Malformed => &mut self.metrics.malformed,
            Refusal::IpChecksum => &mut self.metrics.bad_ip_checksum,
            Refusal::UdpChecksum => &mut self.metrics.bad_udp_checksum,
            Refusal::Martian => &mut self.metrics.martian,
        };
        *counter += 1;
    }

    /// Puts a datagram into the transmit ring, if need be once the kernel has made room.
    #[inline]
    fn push(
        &mut self,
        lane: &mut Xsk,
        headers: &[u8],
        part: (std::ops::Range<usize>, bool),
    ) -> bool {
        if lane.unsubmitted() >= KICK_AT {
            self.kick(lane);
        }
        if lane.push(headers, part.clone()) {
            return true;
        }
        self.kick(lane);
        let is_pushed = lane.push(headers, part);
        self.metrics.dropped_ring_full += u64::from(!is_pushed);
        is_pushed
    }

    #[inline]
    fn kick(&mut self, lane: &mut Xsk) {
        if lane.kick().is_err() {
            self.metrics.interface_errors += 1;
        }
    }
}

impl Datapath for XdpPort {
    type Metrics = UdpMetrics;

    fn local_address(&self) -> SocketAddr {
        self.ends.local
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Counters of both ways together.
    fn metrics(&self) -> UdpMetrics {
        let mut metrics = self.kernel.metrics();
        let own = &self.ends.common;
        metrics.datagrams_in += own.datagrams_in;
        metrics.bytes_in += own.bytes_in;
        metrics.datagrams_out += own.datagrams_out;
        metrics.bytes_out += own.bytes_out;
        metrics.dropped_too_large += own.dropped_too_large;
        metrics
    }

    /// Bytes that the receive ring has places for, each with a full packet.
    fn receive_buffer_bytes(&self) -> io::Result<usize> {
        Ok(RECEIVE_LEN as usize * 2048)
    }

    fn kernel_drops(&self) -> io::Result<u32> {
        let rings = self.ring_metrics()?;
        let dropped = rings.ring_dropped + rings.ring_receive_full + rings.ring_fill_empty;
        Ok(self.kernel.kernel_drops()?.saturating_add(u32::try_from(dropped).unwrap_or(u32::MAX)))
    }

    #[inline]
    fn recv_burst(&mut self, mut f: impl FnMut(Path, &mut [u8])) -> io::Result<usize> {
        self.receive(|path, bytes, _| f(path, bytes))
    }

    /// There are no stamps past the stack.
    #[inline]
    fn recv_burst_stamped(&mut self, f: impl FnMut(Path, &mut [u8], Stamps)) -> io::Result<usize> {
        self.receive(f)
    }

    /// As long as the longest datagram of the interface.
    #[inline]
    fn frame(&mut self, headroom: usize, tailroom: usize) -> Frame<'_> {
        let end = PAYLOAD_AT + self.ends.payload_len_max;
        Frame::new(&mut self.lanes[0].frame()[PAYLOAD_AT..end], headroom, tailroom)
    }

    #[inline]
    fn queue(&mut self, transmit: &Transmit) {
        assert!(transmit.len <= self.ends.payload_len_max, "the transmit fits its frame");
        let from = match transmit.from {
            Source::Spoofed(_) => Source::Any,
            Source::Toward(_) => self.ends.sources.find(transmit.from, &self.ends.common).into(),
            from => from,
        };
        let Some(place) = self.place_of(Whom::new(transmit.to, from, self.ends.local)) else {
            self.ends.metrics.kernel_unasked += 1;
            return self.queue_to_kernel(transmit);
        };
        match self.queue_direct(place, transmit) {
            Ok(()) => {}
            Err(detour) => {
                match detour {
                    Detour::Unresolved => {
                        self.ends.metrics.kernel_unresolved += 1;
                        // The kernel has asked for the neighbour when this burst has left, and soon
                        // tells.
                        self.looks_max = 1;
                    }
                    Detour::Elsewhere => self.ends.metrics.kernel_elsewhere += 1,
                }
                self.queue_to_kernel(transmit);
            }
        }
    }

    #[inline]
    fn flush(&mut self) {
        self.asks_left = ASKS_MAX;
        if self.lanes[0].unsubmitted() > 0 {
            self.ends.kick(&mut self.lanes[0]);
        }
        if self.has_queued {
            self.has_queued = false;
            self.kernel.flush();
        }
    }

    fn is_segmenting(&self) -> bool {
        false
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        let lane = &mut self.lanes[0];
        if lane.has_room() && (self.backlog_max == u32::MAX || lane.backlog() <= self.backlog_max) {
            return true;
        }
        self.ends.metrics.without_room += 1;
        self.ends.kick(lane);
        if !self.awaits_room {
            // Without it the owner sleeps until its deadline.
            let _ = self.await_room(epoll::EventFlags::IN | epoll::EventFlags::OUT);
        }
        false
    }

    /// Past the stack there are none, as on an interface whose stamps never arrive.
    fn set_stamps(&mut self, _config: StampConfig) -> io::Result<()> {
        Ok(())
    }

    fn take_stamps(&mut self, _f: impl FnMut(u64, Stamps)) {}

    fn take_errors(&mut self) -> usize {
        self.kernel.take_errors()
    }

    fn take_refused(&mut self) -> Option<SocketAddr> {
        self.kernel.take_refused()
    }

    fn has_refused(&self) -> bool {
        self.kernel.has_refused()
    }

    fn handle_ready(&mut self) {
        self.is_ready = true;
    }
}

/// The kernel's socket has datagrams alone: a batch that GRO makes would come past the stack as
/// one.
fn plain(udp: UdpConfig) -> UdpConfig {
    UdpConfig { segmented_send: SegmentedSend::Off, ..udp }
}

/// Bytes of headers that a packet of IP has before a datagram.
#[inline]
fn ip_overhead(local: SocketAddr, protocol: u8) -> usize {
    let ip_len = if local.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
    ip_len + if protocol == UDP { UDP_LEN } else { 0 }
}

// Keys of descriptors; those of the rings come last.
const WATCH: u64 = 0;
const KERNEL: u64 = 1;
const LANES: u64 = 2;

const EVENT: epoll::Event =
    epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };

/// Descriptors that one look finds ready.
const EVENTS_MAX: usize = 8;

/// Frames of one burst of a ring.
const BURST_MAX: u32 = 64;

/// Places of the rings.
const RECEIVE_LEN: u32 = 2048;
const TRANSMIT_LEN: u32 = 512;

/// Descriptors at which the kernel is told of them while a burst is still being made: it sends as
/// many in one call, and the peer works on them meanwhile.
const KICK_AT: u32 = 32;

/// Looks at the rings after which the other descriptors are looked at (a system call): many, but
/// few once something has come there.
const LOOKS_MAX: u32 = 1024;
const LOOKS_MIN: u32 = 16;

/// Peers that are looked up in one burst, of some microseconds each.
const ASKS_MAX: u32 = 16;
