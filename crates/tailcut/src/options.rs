//! How clients and servers are opened.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::ip::IpPort;
use tailcut_net::reuseport::{self, Steering};
use tailcut_net::udp::{Coalescing, UdpConfig, UdpPort};
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::r2p2::Config;
use tailcut_proto::rpc::CallOptions;
use tailcut_proto::{homa, r2p2};

use crate::async_client::AsyncClient;
use crate::client::Client;
use crate::error::Error;
use crate::server::Server;

/// What carries calls. Client and server must be of one; routers speak R2P2 alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// R2P2 over UDP: requests may go to a router, which picks the server.
    #[default]
    R2p2,
    /// Homa inside UDP: short messages overtake long ones where the network has priorities. Its
    /// servers' default port is 50146.
    Homa,
    /// Homa directly over IP, as protocol 146, which the Linux module speaks too. Needs the
    /// capability CAP_NET_RAW. The module's servers have ports up to 32,767.
    HomaIp,
}

/// Opens clients.
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    pub(crate) timeout: Duration,
    pub(crate) options: CallOptions,
    setup: Setup,
}

/// Opens servers.
#[derive(Clone, Debug, Default)]
pub struct ServerBuilder {
    setup: Setup,
}

/// What clients and servers have in common.
#[derive(Clone, Debug)]
struct Setup {
    transport: Transport,
    wait: Wait,
    coalescing: Coalescing,
    r2p2: Config,
    homa: homa::Config,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            transport: Transport::default(),
            wait: Wait::default(),
            coalescing: Coalescing::On,
            r2p2: Config::default(),
            homa: homa::Config::default(),
        }
    }
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            options: CallOptions::default(),
            setup: Setup::default(),
        }
    }
}

impl ClientBuilder {
    /// The defaults: calls of one second, not idempotent, sleeping while waiting.
    pub fn new() -> Self {
        Self::default()
    }

    /// Polls instead of sleeping: seven times less latency at the price of a core.
    #[must_use]
    pub fn busy_poll(mut self) -> Self {
        self.setup.wait = Wait::BusyPoll;
        self
    }

    /// How the client waits.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.setup.wait = wait;
        self
    }

    /// How long a call waits for its reply where it does not say otherwise. Default 1 s, at most 60
    /// s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How calls are treated where they do not say otherwise.
    #[must_use]
    pub fn options(mut self, options: CallOptions) -> Self {
        self.options = options;
        self
    }

    /// Whether consecutive datagrams to one peer leave as one train. Default: they do. Turn it off
    /// only to measure.
    #[must_use]
    pub fn coalescing(mut self, coalescing: Coalescing) -> Self {
        self.setup.coalescing = coalescing;
        self
    }

    /// What carries calls. Default R2P2.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.setup.transport = transport;
        self
    }

    /// The limits and timers of an endpoint of R2P2. Its secret is drawn anew whatever it says.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.setup.r2p2 = config;
        self
    }

    /// The limits, timers and policies of an endpoint of Homa. Its secret is drawn anew whatever it
    /// says, and directly over IP the port of calls and the framing are the socket's.
    #[must_use]
    pub fn homa_config(mut self, config: homa::Config) -> Self {
        self.setup.homa = config;
        self
    }

    /// A client of the server or router at `target`. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Error::NoAddress`] when the name does not resolve, [`Error::Io`] when no socket is to be
    /// had, of kind PermissionDenied where Homa directly over IP lacks CAP_NET_RAW.
    pub fn connect(&self, target: impl ToSocketAddrs + std::fmt::Debug) -> Result<Client, Error> {
        let (target, driver) = self.open(target)?;
        Ok(Client::new(target, driver, self))
    }

    /// The same for asynchronous callers; it runs a thread of its own.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    pub fn connect_async(
        &self,
        target: impl ToSocketAddrs + std::fmt::Debug,
    ) -> Result<AsyncClient, Error> {
        let (target, driver) = self.open(target)?;
        AsyncClient::new(target, driver, self)
    }

    fn open(
        &self,
        target: impl ToSocketAddrs + std::fmt::Debug,
    ) -> Result<(SocketAddr, Driver<Endpoint>), Error> {
        let target = resolve(target)?;
        let mut setup = self.setup.clone();
        setup.r2p2.serving.is_enabled = false;
        setup.homa.serving.is_enabled = false;
        let any = if target.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        Ok((target, setup.open(SocketAddr::new(any, 0))?))
    }
}

impl ServerBuilder {
    /// The defaults: sleeping while there is nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// Polls instead of sleeping: seven times less latency at the price of a core.
    #[must_use]
    pub fn busy_poll(mut self) -> Self {
        self.setup.wait = Wait::BusyPoll;
        self
    }

    /// How the server waits.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.setup.wait = wait;
        self
    }

    /// Whether consecutive datagrams to one peer leave as one train. Default: they do. Turn it off
    /// only to measure.
    #[must_use]
    pub fn coalescing(mut self, coalescing: Coalescing) -> Self {
        self.setup.coalescing = coalescing;
        self
    }

    /// What carries calls. Default R2P2.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.setup.transport = transport;
        self
    }

    /// The limits and timers of an endpoint of R2P2. Its secret is drawn anew whatever it says.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.setup.r2p2 = config;
        self
    }

    /// The limits, timers and policies of an endpoint of Homa. Its secret is drawn anew whatever it
    /// says, and directly over IP the port of calls and the framing are the socket's.
    #[must_use]
    pub fn homa_config(mut self, config: homa::Config) -> Self {
        self.setup.homa = config;
        self
    }

    /// A server at `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// [`Error::NoAddress`] when the name does not resolve, [`Error::Io`] when the port is taken or
    /// not to be had, of kind PermissionDenied where Homa directly over IP lacks CAP_NET_RAW.
    pub fn bind(&self, address: impl ToSocketAddrs + std::fmt::Debug) -> Result<Server, Error> {
        Ok(Server::new(self.setup.open(resolve(address)?)?))
    }

    /// `count` servers that share one port, one for each thread that will run it. All calls of a
    /// client's session reach the same one; a client draws a new session now and then; over Homa
    /// all calls of a client do. Not for servers behind a router, whose trains mix sessions: give
    /// each of these a port of its own.
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::bind`]; [`Error::Io`] of kind Unsupported for Homa directly over IP.
    pub fn bind_group(
        &self,
        address: impl ToSocketAddrs + std::fmt::Debug,
        count: usize,
    ) -> Result<Vec<Server>, Error> {
        let drivers = self.setup.open_group(resolve(address)?, count)?;
        Ok(drivers.into_iter().map(Server::new).collect())
    }
}

impl Setup {
    /// An endpoint on a port at `address`, and what drives both.
    fn open(&self, address: SocketAddr) -> Result<Driver<Endpoint>, Error> {
        let port = match self.transport {
            Transport::R2p2 | Transport::Homa => {
                AnyDatapath::from(UdpPort::bind(address, self.udp())?)
            }
            Transport::HomaIp => AnyDatapath::from(IpPort::bind(address, self.udp())?),
        };
        self.drive(port)
    }

    /// The same on ports of one address.
    fn open_group(
        &self,
        address: SocketAddr,
        count: usize,
    ) -> Result<Vec<Driver<Endpoint>>, Error> {
        let steering = match self.transport {
            Transport::R2p2 => Steering::Session,
            Transport::Homa => Steering::Peer,
            Transport::HomaIp => {
                let text = "directly over IP every socket gets every packet: give each server a port of its own";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text).into());
            }
        };
        let ports = reuseport::bind_group(address, count, (self.udp(), steering))?;
        ports.into_iter().map(|port| self.drive(port.into())).collect()
    }

    /// R2P2's credit is sized to the socket's buffer; Homa's packets to what carries them.
    fn drive(&self, port: AnyDatapath) -> Result<Driver<Endpoint>, Error> {
        let secret = tailcut_net::entropy::secret()?;
        let mut driver = Driver::new(self.wait)?;
        let now = driver.clock().now();
        let endpoint: Endpoint = match self.transport {
            Transport::R2p2 => {
                let credit_bytes = port.receive_buffer_bytes()? / 2;
                r2p2::Endpoint::new(now, Config { secret, credit_bytes, ..self.r2p2.clone() })
                    .into()
            }
            Transport::Homa => {
                homa::Endpoint::new(now, homa::Config { secret, ..self.homa.clone() }).into()
            }
            Transport::HomaIp => {
                let (client_port, framing) = (port.local_address().port(), homa::Framing::IP);
                homa::Endpoint::new(
                    now,
                    homa::Config { secret, client_port, framing, ..self.homa.clone() },
                )
                .into()
            }
        };
        driver.add(endpoint, port, None);
        Ok(driver)
    }

    fn udp(&self) -> UdpConfig {
        let unsent_bytes_max =
            (self.transport != Transport::R2p2).then_some(UdpConfig::HOMA_UNSENT_BYTES);
        UdpConfig { coalescing: self.coalescing, unsent_bytes_max, ..UdpConfig::default() }
    }
}

fn resolve(name: impl ToSocketAddrs + std::fmt::Debug) -> Result<SocketAddr, Error> {
    let described = format!("{name:?}");
    name.to_socket_addrs()?.next().ok_or(Error::NoAddress(described))
}
