//! Opens endpoints on datapaths: the one place where a protocol and a datapath are fitted to each
//! other, for the library, servers, routers and load threads alike.
//!
//! | | [`DatapathKind::Udp`], [`DatapathKind::Xdp`] | [`DatapathKind::Ip`], [`DatapathKind::XdpIp`], [`DatapathKind::HijackedTcp`] |
//! |---|---|---|
//! | [`Protocol::R2p2`] | credit sized to the socket's buffer, or the ring | refused |
//! | [`Protocol::Homa`] | little waits for the device | also: packets of IP protocol 146 or 6, calls from the socket's port |

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::Node;
use tailcut_proto::r2p2::AskCookies;
use tailcut_proto::sealed::{Role, Sealing};
use tailcut_proto::{homa, r2p2};

use crate::datapath::ip::IpPort;
use crate::datapath::udp::{SegmentedSend, UdpConfig, UdpPort};
use crate::datapath::xdp::{XdpConfig, XdpPort};
use crate::datapath::{AnyDatapath, Datapath, routed_source};
use crate::driver::{Driver, Wait};
use crate::entropy;
use crate::keys::{LiveAccess, LiveKeys};
use crate::reuseport::{self, QueueLen, Steering};
use crate::stamps::StampConfig;
use crate::sys;

/// A protocol of endpoints. Client and server must speak the same; routers speak R2P2 alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// R2P2: requests may go to a router, which picks the server.
    #[default]
    R2p2,
    /// Homa: short messages overtake long ones where the network has priorities. Its servers'
    /// default port inside UDP is 50146.
    Homa,
}

/// The kind of datapath that carries packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DatapathKind {
    /// UDP sockets.
    #[default]
    Udp,
    /// Raw sockets of IP protocol 146, which the Linux module speaks too: for Homa alone. Needs the
    /// capability CAP_NET_RAW. The module's servers have ports up to 32,767.
    Ip,
    /// As [`DatapathKind::Ip`], in the disguise of TCP (IP protocol 6), as the Linux module sends
    /// with `hijack_tcp=1`: NICs cut such packets and spread them over cores. Some fabrics drop
    /// them.
    HijackedTcp,
    /// As [`DatapathKind::Udp`], past the kernel's stack at one interface (AF_XDP). Needs the
    /// capabilities CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and, for the memory that it locks,
    /// CAP_IPC_LOCK.
    Xdp(XdpConfig),
    /// As [`DatapathKind::Ip`], likewise.
    XdpIp(XdpConfig),
}

impl DatapathKind {
    /// Datapath of the same packets past the kernel's stack.
    ///
    /// # Errors
    ///
    /// InvalidInput in the disguise of TCP, whose packets are the kernel's to sort.
    pub fn over_xdp(self, config: XdpConfig) -> io::Result<Self> {
        match self {
            Self::Udp | Self::Xdp(_) => Ok(Self::Xdp(config)),
            Self::Ip | Self::XdpIp(_) => Ok(Self::XdpIp(config)),
            Self::HijackedTcp => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "packets in the disguise of TCP go through the kernel alone",
            )),
        }
    }

    /// True if packets of Homa stand directly in IP.
    fn is_directly_over_ip(self) -> bool {
        match self {
            Self::Ip | Self::HijackedTcp | Self::XdpIp(_) => true,
            Self::Udp | Self::Xdp(_) => false,
        }
    }
}

/// Configuration of endpoints. What only a datapath knows is filled in: a secret, credit, and over
/// IP the port of calls and the framing.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Default R2P2.
    pub protocol: Protocol,
    /// Default UDP.
    pub datapath: DatapathKind,
    /// Segmented sends: consecutive datagrams to one peer leave as one message. Default on.
    pub segmented_send: SegmentedSend,
    /// Timestamps of what is sent and received. Default none.
    pub stamps: StampConfig,
    /// The limits and timers of R2P2. A seal in it is by the keys below, where there are any, and
    /// so is Homa's.
    pub r2p2: r2p2::Config,
    /// Keys, where packets are sealed. Default none.
    pub keys: Option<LiveKeys>,
    /// Policy of which clients may call what, of a server whose packets are sealed. Default none:
    /// all may call everything.
    pub access: Option<LiveAccess>,
    /// The limits, timers and policies of Homa.
    pub homa: homa::Config,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            protocol: Protocol::default(),
            datapath: DatapathKind::default(),
            segmented_send: SegmentedSend::On,
            stamps: StampConfig::default(),
            r2p2: r2p2::Config::default(),
            keys: None,
            access: None,
            homa: homa::Config::default(),
        }
    }
}

impl Opening {
    /// Adds an endpoint at an address to a driver; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// InvalidInput for R2P2 over IP, PermissionDenied without CAP_NET_RAW over IP; else what the
    /// kernel says of the address.
    pub fn add(&self, driver: &mut Driver<Endpoint>, address: SocketAddr) -> io::Result<()> {
        let datapath = self.bind(address)?;
        self.attach(driver, datapath, |endpoint| endpoint)
    }

    /// Adds an endpoint that is to call a peer, and serves nobody, at a free port. Where it gets
    /// its replies from none but whom it calls, which is so over Homa and not of R2P2's routers,
    /// its socket hears that peer alone.
    ///
    /// # Errors
    ///
    /// As [`Opening::add`].
    pub fn add_towards(&self, driver: &mut Driver<Endpoint>, peer: SocketAddr) -> io::Result<()> {
        let mut datapath = self.bind(self.source_towards(peer))?;
        if let AnyDatapath::Udp(port) = &mut datapath
            && self.protocol == Protocol::Homa
            && !self.homa.serving.is_enabled
        {
            // Without a route there the calls will tell.
            let _ = port.connect(peer);
        }
        self.attach(driver, datapath, |endpoint| endpoint)
    }

    /// Drivers of `count` endpoints that share a port, one for each thread. They are no server
    /// behind a router, for which all must count what they have as one: they report to none.
    ///
    /// # Errors
    ///
    /// As [`Opening::add`]; Unsupported over IP.
    pub fn group(
        &self,
        wait: Wait,
        address: SocketAddr,
        count: usize,
    ) -> io::Result<Vec<Driver<Endpoint>>> {
        let ports = self.bind_group(address, count)?;
        let name = entropy::seed()?;
        let members = ports.into_iter().enumerate();
        members.map(|(index, port)| self.member(wait, port, (name, index))).collect()
    }

    /// As [`Opening::group`], where each new session of a client joins the shortest queue, of those
    /// that the threads tell; over Homa each new client.
    ///
    /// # Errors
    ///
    /// As [`Opening::group`] and [`reuseport::bind_shortest`].
    pub fn group_by_queue(
        &self,
        wait: Wait,
        address: SocketAddr,
        count: usize,
    ) -> io::Result<Vec<(Driver<Endpoint>, QueueLen)>> {
        let steering = self.steering()?;
        let ports = reuseport::bind_shortest(address, count, (self.socket(), steering))?;
        let name = entropy::seed()?;
        let member = |(index, (port, queue_len)): (usize, (UdpPort, QueueLen))| {
            Ok((self.member(wait, port.into(), (name, index))?, queue_len))
        };
        ports.into_iter().enumerate().map(member).collect()
    }

    /// Datapaths that share a port, one for each thread; a session of R2P2, and a peer of Homa, is
    /// one thread's.
    ///
    /// # Errors
    ///
    /// As [`Opening::group`].
    pub fn bind_group(&self, address: SocketAddr, count: usize) -> io::Result<Vec<AnyDatapath>> {
        let ports = reuseport::bind_group(address, count, (self.socket(), self.steering()?))?;
        Ok(ports.into_iter().map(Into::into).collect())
    }

    /// Steering of a packet to the thread that has to have it.
    fn steering(&self) -> io::Result<Steering> {
        if self.datapath != DatapathKind::Udp {
            let text = "only UDP's sockets share a port, by what the kernel directs: give each server a port of its own";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(match self.protocol {
            Protocol::R2p2 => Steering::Session,
            Protocol::Homa => Steering::Peer,
        })
    }

    /// The driver of one endpoint of a group, whose address has this name, which all of them share.
    fn member(
        &self,
        wait: Wait,
        port: AnyDatapath,
        (name, index): (u64, usize),
    ) -> io::Result<Driver<Endpoint>> {
        let mut member = self.clone();
        member.r2p2.pool.routers_max = 0;
        if let Some(mut seal) = self.sealing() {
            let index = u8::try_from(index).map_err(|_| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "at most 256 threads share a sealed port",
                )
            })?;
            (seal.name, seal.member) = (Some(name), index);
            *member.seal_mut() = Some(seal);
        }
        let mut driver = Driver::new(wait)?;
        member.attach(&mut driver, port, |endpoint| endpoint)?;
        Ok(driver)
    }

    /// By what packets are sealed, if they are.
    fn sealing(&self) -> Option<Sealing> {
        let seal = match self.protocol {
            Protocol::R2p2 => self.r2p2.seal.clone(),
            Protocol::Homa => self.homa.seal.clone(),
        };
        let mut seal = match (self.keys.as_ref().map(LiveKeys::current), seal) {
            (None, seal) => seal?,
            (Some(keys), Some(seal)) => Sealing { keys, ..seal },
            (Some(keys), None) => Sealing::new(keys, 0),
        };
        if let Some(access) = &self.access {
            seal.access = Some(access.current());
        }
        Some(seal)
    }

    /// The seal of this protocol's configuration.
    fn seal_mut(&mut self) -> &mut Option<Sealing> {
        match self.protocol {
            Protocol::R2p2 => &mut self.r2p2.seal,
            Protocol::Homa => &mut self.homa.seal,
        }
    }

    /// A datapath at an address, for a node of this protocol.
    ///
    /// # Errors
    ///
    /// As [`Opening::add`].
    pub fn bind(&self, address: SocketAddr) -> io::Result<AnyDatapath> {
        self.check_carrier()?;
        self.check_cookies()?;
        match (self.protocol, self.datapath) {
            (_, DatapathKind::Udp) => UdpPort::bind(address, self.socket()).map(Into::into),
            (Protocol::Homa, DatapathKind::Ip) => {
                IpPort::bind(address, self.socket()).map(Into::into)
            }
            (Protocol::Homa, DatapathKind::HijackedTcp) => {
                IpPort::bind_hijacked(address, self.socket()).map(Into::into)
            }
            (_, DatapathKind::Xdp(config)) => {
                XdpPort::bind(address, config, self.socket()).map(Into::into)
            }
            (Protocol::Homa, DatapathKind::XdpIp(config)) => {
                XdpPort::bind_ip(address, config, self.socket()).map(Into::into)
            }
            (Protocol::R2p2, datapath) => {
                debug_assert!(datapath.is_directly_over_ip(), "the others are above");
                let text = "R2P2 goes over UDP alone: take the datapath udp, or the protocol homa";
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }

    /// As [`Opening::add`], at a socket that somebody else has bound.
    ///
    /// # Errors
    ///
    /// As [`Opening::adopt`].
    pub fn add_adopted(&self, driver: &mut Driver<Endpoint>, socket: UdpSocket) -> io::Result<()> {
        let datapath = self.adopt(socket)?;
        self.attach(driver, datapath, |endpoint| endpoint)
    }

    /// As [`Opening::bind`], with a socket that somebody else has bound.
    ///
    /// # Errors
    ///
    /// InvalidInput over IP and past the kernel's stack, which have no such sockets; else what the
    /// kernel says of it.
    pub fn adopt(&self, socket: UdpSocket) -> io::Result<AnyDatapath> {
        match self.datapath {
            DatapathKind::Udp => UdpPort::adopt(socket, self.socket()).map(Into::into),
            _ => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket of UDP carries no other"))
            }
        }
    }

    /// The address for an endpoint that is to call a peer, with a free port: any of this host's.
    /// Where TCP's checksum covers it, the one that the kernel sends from to there.
    pub fn source_towards(&self, peer: SocketAddr) -> SocketAddr {
        let any = match peer {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        if self.datapath == DatapathKind::HijackedTcp { routed_source(any, peer) } else { any }
    }

    /// Payload bytes of packets within this host, of those wanted: what its loopback interface
    /// carries at once, where the kernel's UDP or IP does.
    fn local_len(&self, datapath: &AnyDatapath, wanted: u16) -> u16 {
        if !matches!(self.datapath, DatapathKind::Udp | DatapathKind::Ip) {
            return 0;
        }
        let mtu = sys::interface_mtu(datapath.as_fd(), c"lo").unwrap_or_default();
        wanted.min(u16::try_from(mtu).unwrap_or(u16::MAX).saturating_sub(LOCAL_OVERHEAD))
    }

    /// Adds a node to a driver that `make` builds around an endpoint: at a datapath of
    /// [`Opening::bind`].
    ///
    /// # Errors
    ///
    /// InvalidInput for keys and policies with which the endpoint cannot do what it is for; else
    /// what the kernel says.
    pub fn attach<N: Node>(
        &self,
        driver: &mut Driver<N>,
        mut datapath: AnyDatapath,
        make: impl FnOnce(Endpoint) -> N,
    ) -> io::Result<()> {
        self.check_access()?;
        self.check_cookies()?;
        datapath.set_stamps(self.stamps)?;
        let (now, secret) = (driver.clock().now(), entropy::secret()?);
        let (read_at, unix_ns) = driver.clock().both();
        let clock_ns = unix_ns.saturating_sub(read_at);
        let mut seal = self.sealing();
        if let Some(seal) = &mut seal {
            self.check_keys(seal)?;
            seal.clock_ns = clock_ns;
        }
        let live = seal
            .as_ref()
            .map(|seal| self.keys.clone().unwrap_or_else(|| LiveKeys::from(seal.keys.clone())));
        let is_sealed_server = seal.as_ref().is_some_and(|seal| !seal.is_client());
        let endpoint: Endpoint = match self.protocol {
            Protocol::R2p2 => {
                // Half of the buffer, for the kernel charges up to twice a packet's bytes.
                let credit_bytes = datapath.receive_buffer_bytes()? / 2;
                let local_segment_len = self.local_len(&datapath, self.r2p2.local_segment_len);
                let mut config = r2p2::Config {
                    secret,
                    credit_bytes,
                    local_segment_len,
                    seal,
                    ..self.r2p2.clone()
                };
                // Servers that share a key let their tokens expire together.
                config.pool.clock_ns = clock_ns;
                r2p2::Endpoint::new(now, config).into()
            }
            Protocol::Homa => {
                let mut config = homa::Config { secret, seal, ..self.homa.clone() };
                // They are asked for alike, whatever is spoken.
                let (ask, key) = (self.r2p2.pool.cookies, self.r2p2.pool.key);
                config.cookies = homa::CookieConfig { ask, key, clock_ns };
                if self.datapath.is_directly_over_ip() {
                    config.client_port = datapath.local_address().port();
                    config.framing = homa::Framing::IP;
                }
                let wanted = u16::try_from(config.framing.local_len).unwrap_or(u16::MAX);
                config.framing.local_len = self.local_len(&datapath, wanted).into();
                if self.datapath == DatapathKind::HijackedTcp {
                    let source = datapath.local_address().ip();
                    config.carrier = homa::Carrier::HijackedTcp { source };
                }
                homa::Endpoint::new(now, config).into()
            }
        };
        if is_sealed_server {
            pass_millisecond();
        }
        let index = driver.add(make(endpoint), datapath, None);
        if let Some(live) = live {
            driver.watch_keys(index, live, self.access.clone());
        }
        Ok(())
    }

    /// Refuses keys with which the endpoint cannot do what it is for.
    fn check_keys(&self, seal: &Sealing) -> io::Result<()> {
        let is_homa = self.protocol == Protocol::Homa;
        let is_server = match self.protocol {
            Protocol::R2p2 => self.r2p2.serving.is_enabled,
            Protocol::Homa => self.homa.serving.is_enabled,
        };
        let problem = match seal.keys.role {
            Role::Router => "these are a router's keys, which open no payload",
            Role::Server if !is_server => "these are a server's keys: a client has keys of its own",
            Role::Client(_) if is_server && !(is_homa && seal.calls_back) => {
                "these are a client's keys, with which nobody can serve"
            }
            _ => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
    }

    /// Refuses keys for packets that NICs are to change.
    fn check_carrier(&self) -> io::Result<()> {
        if self.datapath != DatapathKind::HijackedTcp {
            return Ok(());
        }
        if self.sealing().is_none() {
            tracing::warn!(
                "packets in the disguise of TCP are open: whoever hears them reads them"
            );
            return Ok(());
        }
        let text = "packets in the disguise of TCP are not sealed: NICs change them, and the kernel's module \
                    opens none; take the datapath ip or udp, or no keys";
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// Refuses a policy that nothing would go by.
    fn check_access(&self) -> io::Result<()> {
        let problem = match (&self.access, self.sealing()) {
            (None, _) => return Ok(()),
            (Some(_), None) => {
                "an access policy names clients by their keys: give the server keys too, or no policy"
            }
            (Some(_), Some(seal)) if seal.is_client() => {
                "an access policy is a server's: leave it out where calls are made"
            }
            (Some(_), Some(_)) => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
    }

    /// Refuses to ask for cookies where nobody could show one, or need not.
    fn check_cookies(&self) -> io::Result<()> {
        let problem = match self.protocol {
            _ if self.r2p2.pool.cookies == AskCookies::Never => return Ok(()),
            _ if self.sealing().is_some() => {
                "sealed requests need no cookies: leave the keys or the cookies out"
            }
            Protocol::Homa if self.datapath == DatapathKind::HijackedTcp => {
                "packets in the disguise of TCP bear no cookies: NICs change them, and the kernel's module \
                 knows none; take the datapath ip or udp, or ask for none"
            }
            _ => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
    }

    fn socket(&self) -> UdpConfig {
        let (tells_local, unsent_bytes_max) = match self.protocol {
            Protocol::R2p2 => (self.r2p2.serving.is_enabled, None),
            Protocol::Homa => (self.homa.serving.is_enabled, Some(UdpConfig::HOMA_UNSENT_BYTES)),
        };
        let segmented_send = self.segmented_send;
        UdpConfig { segmented_send, unsent_bytes_max, tells_local, ..UdpConfig::default() }
    }
}

/// The longest headers of a packet on the loopback interface: 40 bytes of IPv6, 8 of UDP and 72 of
/// R2P2; Homa's are shorter.
const LOCAL_OVERHEAD: u16 = 120;

/// A session that began in the millisecond of a sealed server's start may be older than it, and is
/// refused: nobody is to find the server there before that is over.
#[expect(clippy::disallowed_methods, reason = "nothing is served yet, and nobody waits for long")]
fn pass_millisecond() {
    std::thread::sleep(Duration::from_millis(2));
}

#[cfg(test)]
mod tests {
    use tailcut_proto::sealed::{Cipher, EpochKey, HopKey, Keys, Secret};

    use super::*;

    #[test]
    fn r2p2_over_ip_is_refused_with_what_to_take_instead() {
        let opening = Opening { datapath: DatapathKind::Ip, ..Opening::default() };
        let mut driver = Driver::new(Wait::default()).expect("a driver");
        let error =
            opening.add(&mut driver, ([127, 0, 0, 1], 0).into()).expect_err("no such thing");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("homa"), "{error}");
    }

    /// Changes by NICs could not be told from those by a stranger.
    #[test]
    fn homa_in_the_disguise_of_tcp_is_not_sealed() {
        let secret = Secret::new([7; 32]);
        let epochs = vec![EpochKey { epoch: 1, from_ms: 0, secret, hop: HopKey::default() }];
        let (role, group, cipher) = (Role::Server, "test".to_owned(), Cipher::Aes128Gcm);
        let keys = LiveKeys::new(Keys { role, group, cipher, reset: None, epochs });
        let (protocol, datapath) = (Protocol::Homa, DatapathKind::HijackedTcp);
        let opening = Opening { protocol, datapath, keys: Some(keys), ..Opening::default() };
        let mut driver = Driver::new(Wait::default()).expect("a driver");
        let error =
            opening.add(&mut driver, ([127, 0, 0, 1], 0).into()).expect_err("no such thing");
        assert!(error.to_string().contains("disguise of TCP are not sealed"), "{error}");
    }
}
