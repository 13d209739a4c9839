//! An interface whose packets go to AF_XDP sockets: the program at it, and the memory of its
//! queues.
//!
//! The kernel lets a queue have one memory and an interface one program, so all ports of a process
//! at an interface share them: they find each other here, by the network namespace and the
//! interface's number. The program is detached when the last of them is closed, or the process
//! ends, however it ends.
//!
//! The interface of an XDP router has that program instead, which hands the one port of its router
//! what it does not place.
//!
//! Invariant: the program directs to a port's sockets what is sent to an address of this host and
//! the port, while a [`Claim`] of it lives.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::config::XdpConfig;
use super::headers::ETHERNET_LEN_MAX;
use super::netlink::{Asker, Link, Message, Question};
use crate::clock::Clock;
use crate::ebpf::router::XdpRouter;
use crate::ebpf::{Attached, DIRECT, Mode, Object};
use crate::sys::{self, Pool, QueueConfig, Shape};

/// An interface and its queues.
#[derive(Debug)]
pub(super) struct Interface {
    /// The namespace and the number.
    identity: (u64, u32),
    /// As whoever opened it first has asked for.
    config: XdpConfig,
    /// The memory of each queue.
    pools: Vec<Arc<Pool>>,
    /// Ports that are taken.
    taken: Mutex<[bool; PORTS_MAX]>,
    /// Program that brings packets to the sockets.
    steering: Steering,
}

/// A program that brings packets to sockets.
#[derive(Debug)]
enum Steering {
    /// One that finds ports by a map, and is there while the interface is open.
    Ports {
        /// Mode of the program.
        mode: Mode,
        /// The program and its maps.
        object: Object,
        /// The program at the interface.
        attached: Attached,
    },
    /// The router's, which is there already, and knows the one port by itself.
    Router {
        /// Mode of the program.
        mode: Mode,
        /// The program and its maps.
        object: Arc<Object>,
    },
}

impl Steering {
    fn object(&self) -> &Object {
        match self {
            Self::Ports { object, .. } => object,
            Self::Router { object, .. } => object,
        }
    }

    fn mode(&self) -> Mode {
        let (Self::Ports { mode, .. } | Self::Router { mode, .. }) = self;
        *mode
    }
}

impl Interface {
    /// The interface of a configuration, which this process may have already; with what the kernel
    /// says of it now.
    ///
    /// # Errors
    ///
    /// PermissionDenied, naming the capabilities; InvalidInput for an interface that is none of
    /// Ethernet, or whose ports ask for something else; ResourceBusy where another process has it;
    /// else what the kernel says.
    pub(super) fn open(config: XdpConfig, asker: &mut Asker) -> io::Result<(Arc<Self>, Link)> {
        let link = find(config, asker)?;
        let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
        let identity = (namespace, link.index);
        let mut known = INTERFACES.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|interface| interface.strong_count() > 0);
        let found = known.iter().filter_map(Weak::upgrade).find(|found| found.identity == identity);
        if let Some(found) = found {
            if found.config != config {
                let text = format!(
                    "{} is in use here with other options: give the same",
                    config.interface
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            return Ok((found, link));
        }
        let interface = Arc::new(Self::start(config, (identity, link.mtu))?);
        known.push(Arc::downgrade(&interface));
        Ok((interface, link))
    }

    /// The interface at which a router's program is, for the router's port alone.
    ///
    /// # Errors
    ///
    /// As [`Interface::open`].
    pub(super) fn behind(
        router: &XdpRouter,
        config: XdpConfig,
        asker: &mut Asker,
    ) -> io::Result<(Arc<Self>, Link)> {
        let link = find(config, asker)?;
        let mode = config.mode.unwrap_or(Mode::Native);
        let steering = Steering::Router { mode, object: router.object() };
        let interface = Self::with_queues(config, ((0, link.index), link.mtu), steering)?;
        Ok((Arc::new(interface), link))
    }

    fn start(config: XdpConfig, (identity, mtu): ((u64, u32), u32)) -> io::Result<Self> {
        let shape = shape_of(mtu);
        let object = Object::load(DIRECT)?;
        let name = if shape.frame_chunks > 1 { "direct_parts" } else { "direct_whole" };
        let attach = |mode| object.attach(name, identity.1, mode);
        let (attached, mode) = match config.mode {
            Some(mode) => (attach(mode)?, mode),
            None => match attach(Mode::Native) {
                Ok(attached) => (attached, Mode::Native),
                Err(error) if is_final(&error) => return Err(error),
                Err(_) => (attach(Mode::Generic)?, Mode::Generic),
            },
        };
        let steering = Steering::Ports { mode, object, attached };
        Self::with_queues(config, (identity, mtu), steering)
    }

    fn with_queues(
        config: XdpConfig,
        (identity, mtu): ((u64, u32), u32),
        steering: Steering,
    ) -> io::Result<Self> {
        let shape = shape_of(mtu);
        let mut pools: Vec<Arc<Pool>> = Vec::new();
        for queue in 0..QUEUES_MAX as u32 {
            let is_copying = config.is_copying;
            let config_of = QueueConfig { interface: identity.1, queue, shape, is_copying };
            match open_pool(config_of) {
                Ok(pool) => pools.push(Arc::new(pool)),
                // There is no such queue.
                Err(error) if queue > 0 && error.raw_os_error() == Some(libc::EINVAL) => break,
                Err(error) => return Err(explain(error, config)),
            }
        }
        let is_zero_copy = pools.iter().all(|pool| pool.is_zero_copy());
        let (mode_text, queues) = (text_of(steering.mode()), pools.len());
        let interface = config.interface.as_str();
        tracing::info!(interface, mode = mode_text, queues, is_zero_copy, "AF_XDP");
        let taken = Mutex::new([false; PORTS_MAX]);
        Ok(Self { identity, config, pools, taken, steering })
    }

    /// Memory of the queues.
    pub(super) fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// Description of how packets come: where the program runs, whether frames are copied, and how
    /// many queues.
    pub(super) fn describe(&self) -> String {
        let copies = if self.pools.iter().all(|pool| pool.is_zero_copy()) {
            "zero copy"
        } else if self.config.is_copying {
            "copying, as asked for"
        } else {
            "copying, for the driver has no zero copy"
        };
        let (queues, plural) = (self.pools.len(), if self.pools.len() == 1 { "" } else { "s" });
        let interface = self.config.interface;
        format!(
            "AF_XDP at {interface}: {}, {copies}, {queues} queue{plural}",
            text_of(self.steering.mode())
        )
    }

    fn with_taken<T>(&self, f: impl FnOnce(&mut [bool; PORTS_MAX]) -> T) -> T {
        f(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Interface {
    /// Now, and not once every copy of the descriptor is closed: a child of this process that has
    /// yet to become another program has one.
    fn drop(&mut self) {
        if let Steering::Ports { attached, .. } = &self.steering {
            // Of an interface that is gone it is detached already.
            let _ = attached.detach();
        }
    }
}

/// A port to which packets are directed.
#[derive(Debug)]
pub(super) struct Claim {
    /// Interface that the port is at.
    interface: Arc<Interface>,
    /// Its number there.
    number: u32,
    /// Its address, and its protocol in IP.
    port: (SocketAddr, u8),
    /// Keys by which the program finds it.
    keys: Mutex<Vec<Key>>,
}

impl Claim {
    /// Takes a number for a port.
    ///
    /// # Errors
    ///
    /// ResourceBusy where all are taken.
    pub(super) fn take(interface: &Arc<Interface>, port: (SocketAddr, u8)) -> io::Result<Self> {
        let number = interface.with_taken(|taken| {
            let number = taken.iter().position(|taken| !taken)?;
            taken[number] = true;
            Some(number as u32)
        });
        let number = number.ok_or_else(|| {
            let text = format!("an interface has at most {PORTS_MAX} ports over AF_XDP");
            io::Error::new(io::ErrorKind::ResourceBusy, text)
        })?;
        Ok(Self { interface: interface.clone(), number, port, keys: Mutex::new(Vec::new()) })
    }

    /// The interface.
    pub(super) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// True if the program is a router's, which hands over what is for its address alone.
    pub(super) fn is_of_router(&self) -> bool {
        matches!(self.interface.steering, Steering::Router { .. })
    }

    /// Directs what comes at a queue to a socket.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let place = self.number * QUEUES_MAX as u32 + queue;
        self.interface.steering.object().set_socket("sockets", place, socket)
    }

    /// Directs what is sent to the port, at its address or at all that this host has now.
    pub(super) fn direct(&self, asker: &mut Asker) -> io::Result<()> {
        let Steering::Ports { object, .. } = &self.interface.steering else { return Ok(()) };
        let (address, protocol) = self.port;
        let mut wanted = Vec::new();
        if address.ip().is_unspecified() {
            asker.ask(&Question::Addresses, |message| match message {
                Message::Address(ip)
                    if ip.is_ipv4() == address.is_ipv4()
                        && !ip.is_loopback()
                        && wanted.len() < ADDRESSES_MAX =>
                {
                    wanted.push(key(ip, address.port(), protocol));
                }
                _ => {}
            })?;
        } else {
            wanted.push(key(address.ip(), address.port(), protocol));
        }
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|key| wanted.contains(key) || object.remove("ports", key).is_err());
        let place = self.number * QUEUES_MAX as u32;
        for key in wanted {
            if !keys.contains(&key) {
                object.insert("ports", &key, &place.to_ne_bytes())?;
                keys.push(key);
            }
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for key in self.keys.get_mut().unwrap_or_else(PoisonError::into_inner) {
            // It is there, since nobody else removes it.
            let _ = self.interface.steering.object().remove("ports", &key[..]);
        }
        self.interface.with_taken(|taken| taken[self.number as usize] = false);
    }
}

/// An address, port and protocol, as `struct key` of the program has them.
type Key = [u8; 20];

fn key(ip: IpAddr, port: u16, protocol: u8) -> Key {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut key = [0; 20];
    key[..16].copy_from_slice(&ip.octets());
    key[16..18].copy_from_slice(&port.to_be_bytes());
    key[18..].copy_from_slice(&u16::from(protocol).to_ne_bytes());
    key
}

/// The interface, as the kernel describes it.
fn find(config: XdpConfig, asker: &mut Asker) -> io::Result<Link> {
    let name = config.interface;
    let mut link = None;
    let asked = asker.ask(&Question::LinkNamed(name.as_str()), |message| {
        if let Message::Link(found) = message {
            link = Some(found);
        }
    });
    if asked.is_err() {
        let text = format!("no interface is named {name}");
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let link = link.filter(|link| link.mac.is_some() && link.vlan.is_none());
    link.ok_or_else(|| {
        let text = format!(
            "{name} is no Ethernet interface, which AF_XDP needs; of a VLAN name the interface below"
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

/// Takes a queue, which the kernel gives back some time after it was closed.
fn open_pool(config: QueueConfig) -> io::Result<Pool> {
    let until = Clock.now() + BUSY_NS_MAX;
    loop {
        match Pool::open(config) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Clock.now() < until => {
                sys::poll(&mut [], Some(BUSY_WAIT_NS))?;
            }
            opened => return opened,
        }
    }
}

/// The layout of frames for an MTU.
fn shape_of(mtu: u32) -> Shape {
    let len = mtu.min(MTU_MAX) as usize + ETHERNET_LEN_MAX;
    let (chunk_len, frame_chunks) = if len <= SMALL_LEN_MAX {
        (2048, 1)
    } else if len <= LARGE_LEN_MAX {
        (4096, 1)
    } else {
        // At least two, for what is received fits no chunk.
        (4096, (PAYLOAD_AT + len).div_ceil(4096).max(2) as u32)
    };
    Shape { chunk_len, receive_chunks: 4096, send_frames: 1024, frame_chunks }
}

/// No other mode helps.
fn is_final(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy)
}

fn explain(error: io::Error, config: XdpConfig) -> io::Error {
    let name = config.interface;
    let text = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "AF_XDP sockets need the capability CAP_NET_RAW, besides CAP_BPF and CAP_NET_ADMIN".to_owned()
        }
        Some(libc::ENOBUFS) => {
            "AF_XDP locks 10 MB of memory for each queue: it needs the capability CAP_IPC_LOCK, or a higher limit (ulimit -l)".to_owned()
        }
        Some(libc::EBUSY) => format!("another process has a queue of {name} for AF_XDP"),
        Some(libc::EAFNOSUPPORT) => "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)".to_owned(),
        _ => format!("AF_XDP cannot take the queues of {name}: {error}"),
    };
    io::Error::new(error.kind(), text)
}

fn text_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Native => "native program",
        Mode::Generic => "generic program",
    }
}

/// Offset of payloads in frames to send: behind room for headers, at a cache line.
pub(super) const PAYLOAD_AT: usize = 128;

/// The longest packet of IP that frames are laid out for.
pub(super) const MTU_MAX: u32 = 9_000;

/// Interfaces that this process has.
static INTERFACES: Mutex<Vec<Weak<Interface>>> = Mutex::new(Vec::new());

/// For how long a queue is asked for, and how often: each try maps its memory.
const BUSY_NS_MAX: u64 = 1_000_000_000;
const BUSY_WAIT_NS: u64 = 10_000_000;

// As in ebpf/direct.bpf.c; queues also as in ebpf/router.h.
const PORTS_MAX: usize = 256;
const QUEUES_MAX: usize = 64;
const ADDRESSES_MAX: usize = 64;

/// The kernel keeps 256 bytes of a chunk that it receives into.
const SMALL_LEN_MAX: usize = 2048 - 256;
const LARGE_LEN_MAX: usize = 4096 - 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(mtu: u32) -> (usize, u32) {
        let shape = shape_of(mtu);
        (shape.chunk_len, shape.frame_chunks)
    }

    #[test]
    fn frames_hold_the_longest_packet() {
        assert_eq!(chunks(1500), (2048, 1));
        assert_eq!(chunks(1774), (2048, 1));
        assert_eq!(chunks(1775), (4096, 1));
        assert_eq!(chunks(3822), (4096, 1));
        assert_eq!(chunks(3823), (4096, 2));
        assert_eq!(chunks(9000), (4096, 3));
        assert_eq!(chunks(65_535), (4096, 3));
    }

    #[test]
    fn a_key_has_ipv4_mapped_and_the_port_in_network_order() {
        let expected = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3, 0x12, 0x34];
        assert_eq!(key([10, 1, 2, 3].into(), 0x1234, 17)[..18], expected);
    }
}
