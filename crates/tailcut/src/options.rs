//! How clients and servers are opened.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use tailcut_net::driver::{Driver, Wait};
use tailcut_net::reuseport;
use tailcut_net::udp::{Coalescing, UdpConfig, UdpPort};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::CallOptions;

use crate::async_client::AsyncClient;
use crate::client::Client;
use crate::error::Error;
use crate::server::Server;

/// Opens clients.
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    pub(crate) wait: Wait,
    pub(crate) timeout: Duration,
    pub(crate) options: CallOptions,
    coalescing: Coalescing,
    config: Config,
}

/// Opens servers.
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    wait: Wait,
    coalescing: Coalescing,
    config: Config,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        let mut config = Config::default();
        config.serving.is_enabled = false;
        Self {
            wait: Wait::default(),
            timeout: Duration::from_secs(1),
            options: CallOptions::default(),
            coalescing: Coalescing::On,
            config,
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
        self.wait = Wait::BusyPoll;
        self
    }

    /// How the client waits.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How long a call waits for its reply where it does not say otherwise. Default 1 s, at most 60 s.
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

    /// Whether consecutive datagrams to one peer leave as one train. Default: they do. Turn it off only to measure.
    #[must_use]
    pub fn coalescing(mut self, coalescing: Coalescing) -> Self {
        self.coalescing = coalescing;
        self
    }

    /// The endpoint's limits and timers. Its secret is drawn anew whatever it says.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// A client of the server or router at `target`. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Error::NoAddress`] when the name does not resolve, [`Error::Io`] when no socket is to be had.
    pub fn connect(&self, target: impl ToSocketAddrs + std::fmt::Debug) -> Result<Client, Error> {
        let (target, driver) = self.open(target)?;
        Ok(Client::new(target, driver, self))
    }

    /// The same for asynchronous callers; it runs a thread of its own.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    pub fn connect_async(&self, target: impl ToSocketAddrs + std::fmt::Debug) -> Result<AsyncClient, Error> {
        let (target, driver) = self.open(target)?;
        AsyncClient::new(target, driver, self)
    }

    fn open(&self, target: impl ToSocketAddrs + std::fmt::Debug) -> Result<(SocketAddr, Driver<Endpoint>), Error> {
        let target = resolve(target)?;
        let mut config = self.config.clone();
        config.serving.is_enabled = false;
        let any = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let port = UdpPort::bind(SocketAddr::new(any, 0), udp_config(self.coalescing))?;
        Ok((target, drive(port, self.wait, &config)?))
    }
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self { wait: Wait::default(), coalescing: Coalescing::On, config: Config::default() }
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
        self.wait = Wait::BusyPoll;
        self
    }

    /// How the server waits.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Whether consecutive datagrams to one peer leave as one train. Default: they do. Turn it off only to measure.
    #[must_use]
    pub fn coalescing(mut self, coalescing: Coalescing) -> Self {
        self.coalescing = coalescing;
        self
    }

    /// The endpoint's limits and timers. Its secret is drawn anew whatever it says.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// A server at `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// [`Error::NoAddress`] when the name does not resolve, [`Error::Io`] when the port is taken or not to be had.
    pub fn bind(&self, address: impl ToSocketAddrs + std::fmt::Debug) -> Result<Server, Error> {
        let port = UdpPort::bind(resolve(address)?, udp_config(self.coalescing))?;
        Ok(Server::new(drive(port, self.wait, &self.config)?))
    }

    /// `count` servers that share one port, one for each thread that will run it. All calls of a client's session reach the same
    /// one; a client draws a new session now and then. Not for servers behind a router, whose trains mix sessions: give each of
    /// these a port of its own.
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::bind`].
    pub fn bind_group(&self, address: impl ToSocketAddrs + std::fmt::Debug, count: usize) -> Result<Vec<Server>, Error> {
        let ports = reuseport::bind_group(resolve(address)?, count, udp_config(self.coalescing))?;
        ports.into_iter().map(|port| Ok(Server::new(drive(port, self.wait, &self.config)?))).collect()
    }
}

fn udp_config(coalescing: Coalescing) -> UdpConfig {
    UdpConfig { coalescing, ..UdpConfig::default() }
}

/// An endpoint on a port, its credit sized to the socket's buffer.
fn drive(port: UdpPort, wait: Wait, config: &Config) -> Result<Driver<Endpoint>, Error> {
    let mut config = config.clone();
    config.secret = tailcut_net::entropy::secret()?;
    config.credit_bytes = port.receive_buffer_bytes()? / 2;
    let mut driver = Driver::new(wait)?;
    let endpoint = Endpoint::new(driver.clock().now(), config);
    driver.add(endpoint, port, None);
    Ok(driver)
}

fn resolve(name: impl ToSocketAddrs + std::fmt::Debug) -> Result<SocketAddr, Error> {
    let described = format!("{name:?}");
    name.to_socket_addrs()?.next().ok_or(Error::NoAddress(described))
}
