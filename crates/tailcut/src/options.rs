//! Options with which clients and servers are opened.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use tailcut_net::driver::{Driver, Wait};
use tailcut_net::keys::{LiveAccess, LiveKeys};
use tailcut_net::open::{DatapathKind, Opening, Protocol};
use tailcut_net::udp::SegmentedSend;
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::homa;
use tailcut_proto::r2p2::{AskCookies, Config, Prefix};
use tailcut_proto::rpc::CallOptions;

use crate::error::Error;

/// Opens clients.
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    pub(crate) timeout: Duration,
    pub(crate) options: CallOptions,
    pub(crate) setup: Setup,
}

/// Opens servers.
#[derive(Clone, Debug, Default)]
pub struct ServerBuilder {
    pub(crate) setup: Setup,
}

/// Options that clients and servers have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    wait: Wait,
    opening: Opening,
}

/// The setters that both builders have.
macro_rules! shared_setters {
    ($builder:ident) => {
        impl $builder {
            /// Polls instead of sleeping: seven times less latency at the price of a core.
            #[must_use]
            pub fn busy_poll(mut self) -> Self {
                self.setup.wait = Wait::BusyPoll;
                self
            }

            /// Wait mode. Default: sleeping while there is nothing to do.
            #[must_use]
            pub fn wait(mut self, wait: Wait) -> Self {
                self.setup.wait = wait;
                self
            }

            /// Segmented sending: consecutive datagrams to one peer leave as one message. Default
            /// on. Turn it off only to measure.
            #[must_use]
            pub fn segmented_send(mut self, segmented_send: SegmentedSend) -> Self {
                self.setup.opening.segmented_send = segmented_send;
                self
            }

            /// The protocol of calls. Default R2P2.
            #[must_use]
            pub fn protocol(mut self, protocol: Protocol) -> Self {
                self.setup.opening.protocol = protocol;
                self
            }

            /// Datapath that carries its packets. Default UDP.
            #[must_use]
            pub fn datapath(mut self, datapath: DatapathKind) -> Self {
                self.setup.opening.datapath = datapath;
                self
            }

            /// The limits and timers of an endpoint of R2P2. Its secret is drawn anew whatever it
            /// says, and the clock of its seal is this host's.
            #[must_use]
            pub fn config(mut self, config: Config) -> Self {
                self.setup.opening.r2p2 = config;
                self
            }

            /// Seals packets by these keys, a client's for a client and a server's for a server:
            /// payloads are encrypted and both ends authenticated, and what is not sealed is
            /// dropped. Opening refuses keys of another role, and
            /// [`DatapathKind::HijackedTcp`](crate::DatapathKind::HijackedTcp), whose packets NICs
            /// change. `docs/sealed.md` tells how keys are made.
            ///
            /// Either [`Keys`](crate::sealed::Keys), or [`LiveKeys`](crate::LiveKeys) where newer
            /// ones are to follow: whoever keeps a clone of those updates them for all that were
            /// opened with them, and a [`KeySource`](crate::KeySource) does by itself.
            #[must_use]
            pub fn seal(mut self, keys: impl Into<LiveKeys>) -> Self {
                self.setup.opening.keys = Some(keys.into());
                self
            }

            /// The limits, timers and policies of an endpoint of Homa. Its secret is drawn anew
            /// whatever it says, and directly over IP the port of calls and the framing are the
            /// socket's.
            #[must_use]
            pub fn homa_config(mut self, config: homa::Config) -> Self {
                self.setup.opening.homa = config;
                self
            }
        }
    };
}

shared_setters!(ClientBuilder);
shared_setters!(ServerBuilder);

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

    /// Timeout of calls that do not say otherwise. Default 1 s, at most 60 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Options of calls that do not say otherwise.
    #[must_use]
    pub fn options(mut self, options: CallOptions) -> Self {
        self.options = options;
        self
    }

    /// Another router before the same servers, R2P2 only: calls move on to it, within 100 ms, when
    /// the one that the client is connected to does not answer any more, and back when it does not
    /// either. Repeat it for more. Calls that may run once still run once at most, as long as all
    /// routers know the same servers. What it resolves to counts from the next connect on.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`] where the name has no address.
    pub fn fallback(mut self, target: impl ToSocketAddrs + std::fmt::Debug) -> Result<Self, Error> {
        self.setup.opening.r2p2.alternates.push(resolve(target)?);
        Ok(self)
    }

    /// The address that `target` resolves to, and the driver of an endpoint for calls to it.
    pub(crate) fn open(
        &self,
        target: impl ToSocketAddrs + std::fmt::Debug,
    ) -> Result<(SocketAddr, Driver<Endpoint>), Error> {
        let target = resolve(target)?;
        let mut setup = self.setup.clone();
        setup.opening.r2p2.serving.is_enabled = false;
        setup.opening.homa.serving.is_enabled = false;
        if !setup.opening.r2p2.alternates.is_empty() {
            setup.opening.r2p2.alternates.insert(0, target);
        }
        let opened = Driver::new(setup.wait).and_then(|mut driver| {
            setup.opening.add_towards(&mut driver, target)?;
            Ok(driver)
        });
        Ok((target, opened.map_err(|error| Error::open(target, error))?))
    }
}

impl ServerBuilder {
    /// The defaults: sleeping while there is nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the addresses of a network for validated, besides loopback, over either transport: its
    /// clients need not show that they receive at theirs. For networks whose addresses cannot be
    /// forged from where strangers are. May be repeated.
    #[must_use]
    pub fn trust(mut self, network: Prefix) -> Self {
        self.setup.opening.r2p2.serving.trusted.push(network);
        self.setup.opening.homa.serving.trusted.push(network);
        self
    }

    /// Address validation: when clients must show by a cookie that they receive at their addresses
    /// before anything is done for them, `docs/sealed.md` tells against whom that helps. Clients
    /// need no option for it. Servers behind one router share
    /// [`Pool::key`](tailcut_proto::r2p2::Pool::key) then. By default never.
    #[must_use]
    pub fn cookies(mut self, ask: AskCookies) -> Self {
        self.setup.opening.r2p2.pool.cookies = ask;
        self
    }

    /// Access policy: which clients may call what, by the numbers of their keys, of a server that
    /// has keys ([`ServerBuilder::seal`]); opening refuses a policy without them. A call that is
    /// not allowed ends by [`Error::Rejected`] with the code
    /// [`DENIED_CODE`](crate::sealed::DENIED_CODE), and no handler hears of it. It is counted
    /// (`SealMetrics::denied`) and logged. `docs/sealed.md` has the text form.
    ///
    /// Either [`Access`](crate::sealed::Access), or [`LiveAccess`] where another is to follow, or
    /// an [`AccessSource`](crate::AccessSource), which is read again when its file changes. By
    /// default all may call everything.
    #[must_use]
    pub fn access(mut self, access: impl Into<LiveAccess>) -> Self {
        self.setup.opening.access = Some(access.into());
        self
    }
}

impl Setup {
    /// An endpoint at `address`, and what drives it.
    pub(crate) fn open(&self, address: SocketAddr) -> Result<Driver<Endpoint>, Error> {
        let opened = Driver::new(self.wait).and_then(|mut driver| {
            self.opening.add(&mut driver, address)?;
            Ok(driver)
        });
        opened.map_err(|error| Error::open(address, error))
    }

    /// Calls that an endpoint may have outstanding to one peer.
    pub(crate) fn calls_max(&self) -> usize {
        match self.opening.protocol {
            Protocol::R2p2 => self.opening.r2p2.calls_max.min(usize::from(u16::MAX)),
            Protocol::Homa => self.opening.homa.calls_max.min(self.opening.homa.calls_per_peer_max),
        }
    }

    /// Drivers of `count` endpoints on ports of one address.
    pub(crate) fn open_group(
        &self,
        address: SocketAddr,
        count: usize,
    ) -> Result<Vec<Driver<Endpoint>>, Error> {
        let opened = self.opening.group(self.wait, address, count);
        opened.map_err(|error| Error::open(address, error))
    }
}

pub(crate) fn resolve(name: impl ToSocketAddrs + std::fmt::Debug) -> Result<SocketAddr, Error> {
    // What was written, without the quotation marks of a string.
    let described = format!("{name:?}").trim_matches('"').to_owned();
    if described.contains("://") {
        // A program that spoke gRPC or HTTP. No name server is asked about it.
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "a URL is no address");
        return Err(Error::open(described, source));
    }
    match name.to_socket_addrs() {
        Ok(mut addresses) => addresses.next().ok_or(Error::NoAddress(described)),
        Err(error) => Err(Error::open(described, error)),
    }
}
