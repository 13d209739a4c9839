//! Byte streams for programs that are written for sockets: [`StreamListener`] and [`Stream`] in the
//! place of TCP's.
//!
//! ```no_run
//! use tailcut::stream::{Stream, StreamListener};
//!
//! # async fn example() -> std::io::Result<()> {
//! let mut listener = StreamListener::bind("127.0.0.1:50146")?;
//! let mut client = Stream::connect("127.0.0.1:50146").await?;
//! let (mut server, peer) = listener.accept().await?;
//! client.write_all(b"hello").await?;
//! client.shutdown().await?;
//! assert_eq!(server.read_to_end().await?, b"hello");
//! # Ok(()) }
//! ```
//!
//! With the feature `tokio`, which is on by default, a [`Stream`] is tokio's `AsyncRead` and
//! `AsyncWrite`, so that an HTTP library takes it as it takes a socket (`examples/http.rs`). It
//! needs no runtime of tokio's: any executor polls it.
//!
//! The bytes travel as Homa messages, inside UDP unless [`StreamBuilder::datapath`] says otherwise;
//! `docs/protocol/stream.md` is the normative text. A listener, and a connector with all its
//! streams, has one socket and one thread, which live until the last of its streams has ended.
//!
//! | | promise |
//! |---|---|
//! | bytes | in order and once, or an error |
//! | `write` | takes what fits into the stream's window; nothing need be flushed |
//! | `shutdown` | resolves when the peer's host has everything; only then may the process end without loss |
//! | `read` | 0 after the peer's shutdown; what came before an error is read before it |
//! | drop | what was written is still sent, in the background; with bytes unread, the stream is reset |

mod engine;
mod pipe;
mod seal;
#[cfg(feature = "tokio")]
mod tokio;

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::task::{Context, Poll};

use tailcut_net::driver::{Driver, Wait};
use tailcut_net::keys::{LiveAccess, LiveKeys};
use tailcut_net::open::{DatapathKind, Opening, Protocol};
use tailcut_proto::endpoint::Endpoint;
pub use tailcut_proto::homa::Config as HomaConfig;
use tailcut_proto::stream::Streams;
pub use tailcut_proto::stream::{Config, Fault};

use self::engine::Handle;
use self::pipe::Pipe;
use self::seal::{End, Seal};

/// Opens listeners, connectors and streams.
#[derive(Clone, Debug, Default)]
pub struct StreamBuilder {
    wait: Wait,
    datapath: DatapathKind,
    streams: Config,
    homa: HomaConfig,
    seal: Seal,
}

/// Takes streams that others open.
#[derive(Debug)]
pub struct StreamListener {
    handle: Arc<Handle>,
}

/// Opens streams, all of them over one socket and one thread. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct StreamConnector {
    handle: Arc<Handle>,
}

/// A byte stream to a peer.
#[derive(Debug)]
pub struct Stream {
    pipe: Arc<Pipe>,
    handle: Arc<Handle>,
    peer: SocketAddr,
    identity: Option<u32>,
}

impl StreamBuilder {
    /// The defaults: sleeping while there is nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wait mode of the thread. Busy-polling is a core for less latency.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Datapath that carries its packets. Default UDP.
    #[must_use]
    pub fn datapath(mut self, datapath: DatapathKind) -> Self {
        self.datapath = datapath;
        self
    }

    /// Limits and timers of streams. The secret is drawn anew whatever it says.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.streams = config;
        self
    }

    /// Limits, timers and policies of the transport. Its secret is drawn anew whatever it says, and
    /// what the datapath decides is as that has it: lengths of packets over IP and within this
    /// host, the port of calls, the clock of cookies.
    #[must_use]
    pub fn homa_config(mut self, config: HomaConfig) -> Self {
        self.homa = config;
        self
    }

    /// Seals streams by these keys, the servers' for a listener and a client's for who connects:
    /// what is carried is encrypted, both ends are authenticated, and what is not sealed is
    /// dropped. `docs/sealed.md` tells how keys are made. Either [`Keys`](crate::sealed::Keys) or
    /// what newer ones may follow, as for [`ServerBuilder::seal`](crate::ServerBuilder::seal):
    /// streams go on under those.
    #[must_use]
    pub fn seal(mut self, keys: impl Into<LiveKeys>) -> Self {
        self.seal.keys = Some(keys.into());
        self
    }

    /// Access policy of a listener that is sealed: clients to whom it allows `*` may open streams.
    /// To others it is [`Fault::Denied`].
    #[must_use]
    pub fn access(mut self, access: impl Into<LiveAccess>) -> Self {
        self.seal.access = Some(access.into());
        self
    }

    /// Takes streams at `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// When keys are another role's, or beside cookies or the disguise of TCP, which seals none;
    /// when the name does not resolve, or the port is taken or not to be had; without the
    /// capability that the datapath needs.
    pub fn bind(&self, address: impl ToSocketAddrs) -> io::Result<StreamListener> {
        let handle = self.start(resolve(address)?, &self.streams)?;
        Ok(StreamListener { handle })
    }

    /// Opens streams from `local`, such as `0.0.0.0:0`.
    ///
    /// # Errors
    ///
    /// As [`StreamBuilder::bind`].
    pub fn connector(&self, local: impl ToSocketAddrs) -> io::Result<StreamConnector> {
        let config = Config { is_listening: false, ..self.streams.clone() };
        let handle = self.start(resolve(local)?, &config)?;
        Ok(StreamConnector { handle })
    }

    /// Opens a stream to `target`, with a socket and a thread of its own.
    ///
    /// # Errors
    ///
    /// As [`StreamConnector::connect`], and when no socket is to be had.
    pub async fn connect(&self, target: impl ToSocketAddrs) -> io::Result<Stream> {
        let target = resolve(target)?;
        let opening = Opening { datapath: self.datapath, ..Opening::default() };
        self.connector(opening.source_towards(target))?.connect(target).await
    }

    fn start(&self, address: SocketAddr, config: &Config) -> io::Result<Arc<Handle>> {
        if self.datapath == DatapathKind::HijackedTcp && address.ip().is_unspecified() {
            // Both ends of a stream call, and the checksum of what calls covers its source.
            let text =
                "in the disguise of TCP a stream leaves from one address: name one of this host's";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let end = if config.is_listening { End::Listener } else { End::Connector };
        let sealed = self.seal.sealing(self.homa.seal.clone(), end)?;
        let (seal, keys) = sealed.unzip();
        let mut homa = HomaConfig { seal, ..self.homa.clone() };
        // Each side of a stream is a server. A message that it refused would end its stream, so
        // that messages are bounded by what they hold, which one peer may have all of.
        homa.serving.is_enabled = true;
        let held_bytes = homa.serving.held_bytes_max.max(config.windows_bytes_max);
        (homa.serving.held_bytes_max, homa.serving.held_bytes_per_client_max) =
            (held_bytes, held_bytes);
        homa.serving.partials_max = homa.serving.partials_max.max(homa.serving.requests_max);
        let streams = Config { secret: tailcut_net::entropy::secret()?, ..config.clone() };
        let (protocol, datapath) = (Protocol::Homa, self.datapath);
        let access = self.seal.access.clone();
        let mut opening = Opening { protocol, datapath, keys, access, homa, ..Opening::default() };
        let cookies = self.homa.cookies;
        (opening.r2p2.pool.cookies, opening.r2p2.pool.key) = (cookies.ask, cookies.key);
        let (port, mut driver) = (opening.bind(address)?, Driver::new(self.wait)?);
        opening.attach(&mut driver, port, |endpoint| {
            let Endpoint::Homa(endpoint) = endpoint else {
                unreachable!("the opening is of Homa");
            };
            Streams::new(*endpoint, streams)
        })?;
        Handle::start(driver)
    }
}

impl StreamListener {
    /// Takes streams at `address` with the defaults of [`StreamBuilder`]; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// As [`StreamBuilder::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        StreamBuilder::new().bind(address)
    }

    /// The next stream that a peer has opened, and the peer. May be dropped without losing one.
    ///
    /// # Errors
    ///
    /// When the socket has become useless.
    pub async fn accept(&mut self) -> io::Result<(Stream, SocketAddr)> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// As [`StreamListener::accept`], for who polls.
    pub fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(Stream, SocketAddr)>> {
        self.handle.poll_accept(context).map_ok(|(pipe, peer, identity)| {
            let handle = self.handle.clone();
            (Stream { pipe, handle, peer, identity }, peer)
        })
    }

    /// The listener's address.
    pub fn local_address(&self) -> SocketAddr {
        self.handle.local()
    }
}

impl Drop for StreamListener {
    /// Streams that were accepted go on; those that were not are reset.
    fn drop(&mut self) {
        self.handle.stop_listening();
    }
}

impl StreamConnector {
    /// Opens a stream to `target`.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused` when nobody listens there, `TimedOut` when nobody answers, who has keys
    /// of the same group where the stream is sealed ([`Fault::NoKeys`]), `PermissionDenied` when
    /// the listener's policy does not allow it, and when a limit is reached.
    pub async fn connect(&self, target: impl ToSocketAddrs) -> io::Result<Stream> {
        let peer = resolve(target)?;
        // From here on dropping the future drops the stream.
        let (pipe, handle) = (self.handle.connect(peer), self.handle.clone());
        let stream = Stream { pipe, handle, peer, identity: None };
        poll_fn(|context| stream.pipe.lock().poll_open(context)).await?;
        Ok(stream)
    }

    /// The address that streams come from.
    pub fn local_address(&self) -> SocketAddr {
        self.handle.local()
    }
}

impl Stream {
    /// Opens a stream to `target` with the defaults of [`StreamBuilder`], with a socket and a
    /// thread of its own. For many streams, use a [`StreamConnector`].
    ///
    /// # Errors
    ///
    /// As [`StreamBuilder::connect`].
    pub async fn connect(target: impl ToSocketAddrs) -> io::Result<Self> {
        StreamBuilder::new().connect(target).await
    }

    /// The other side's address.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// This side's address.
    pub fn local_address(&self) -> SocketAddr {
        self.handle.local()
    }

    /// The number of the client whose keys have opened the stream; `None` where it was opened here,
    /// or is not sealed.
    pub fn identity(&self) -> Option<u32> {
        self.identity
    }

    /// Reads what has come; 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// The [`Fault`] of the stream, when everything that came before it has been read.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, buffer)).await
    }

    /// Reads up to the end of the stream, whatever its length.
    ///
    /// # Errors
    ///
    /// As [`Stream::read`].
    pub async fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; READ_LEN]);
        loop {
            match self.read(&mut buffer).await? {
                0 => return Ok(bytes),
                len => bytes.extend_from_slice(&buffer[..len]),
            }
        }
    }

    /// Writes some of `bytes`; tells how many.
    ///
    /// # Errors
    ///
    /// The [`Fault`] of the stream.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_write(context, bytes)).await
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    ///
    /// The [`Fault`] of the stream.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.write(bytes).await?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Ends this side's direction; resolves when the peer's host has everything. The other
    /// direction goes on.
    ///
    /// # Errors
    ///
    /// The [`Fault`] of the stream.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_shutdown(context)).await
    }

    /// As [`Stream::read`], for who polls.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.pipe.lock();
        let read = state.poll_read(context, buffer);
        let is_wanted = state.has_more && state.incoming.len() <= pipe::INCOMING_MAX / 2;
        state.has_more &= !is_wanted;
        drop(state);
        if is_wanted {
            self.handle.look(&self.pipe);
        }
        read
    }

    /// As [`Stream::write`], for who polls.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.pipe.lock().poll_write(context, bytes);
        if let Poll::Ready(Ok(1..)) = written {
            self.handle.look(&self.pipe);
        }
        written
    }

    /// As [`Stream::shutdown`], for who polls.
    pub fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.pipe.lock();
        let is_new = !std::mem::replace(&mut state.wants_end, true);
        let shut = state.poll_shutdown(context);
        drop(state);
        if is_new {
            self.handle.look(&self.pipe);
        }
        shut
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.pipe.lock().is_dropped = true;
        self.handle.look(&self.pipe);
    }
}

fn resolve(name: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    let nothing = || io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
    name.to_socket_addrs()?.next().ok_or_else(nothing)
}

/// Bytes read at a time by [`Stream::read_to_end`].
const READ_LEN: usize = 64 << 10;
