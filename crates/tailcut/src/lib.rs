//! Microsecond RPCs with a short tail.
//!
//! A [`Server`] answers requests, a [`Client`] makes calls and blocks, an [`AsyncClient`] makes
//! calls from any asynchronous runtime. A call goes to a server or to a `tailcut route` router that
//! picks one; the code is the same.
//!
//! ```no_run
//! # fn main() -> Result<(), tailcut::Error> {
//! let client = tailcut::Client::connect("127.0.0.1:8000")?;
//! let reply = client.call(b"hello")?;
//! assert_eq!(&reply[..], b"hello");
//! # Ok(()) }
//! ```
//!
//! | you want | use |
//! |---|---|
//! | one call after another | [`Client::call`] |
//! | many calls outstanding from one thread | [`Client::start`], then [`Pending::wait`] |
//! | calls from many threads | a [`Client`] each: it is one socket |
//! | calls from tasks | [`AsyncClient::call`] |
//! | a handler that answers at once | [`Server::run`] |
//! | a handler that computes for longer than a few microseconds | [`Server::run_workers`] |
//! | a handler that answers later, from another thread | [`Request::defer`] |
//! | a handler that awaits | `Server::run_async`, of the feature `tokio` |
//! | several I/O threads on one port | [`ServerBuilder::bind_group`] |
//! | a program that is written for sockets | [`stream`] |
//!
//! # Transports
//!
//! R2P2 is the default, and what routers speak. Homa lets short messages overtake long ones in a
//! network that has priorities. Both ends say which:
//!
//! ```no_run
//! use tailcut::{ClientBuilder, Protocol, ServerBuilder};
//!
//! # fn main() -> Result<(), tailcut::Error> {
//! let mut server = ServerBuilder::new().protocol(Protocol::Homa).bind("127.0.0.1:50146")?;
//! std::thread::spawn(move || {
//!     server.run(|request| drop(request.reply_in_place(|bytes| bytes.reverse())))
//! });
//! let client = ClientBuilder::new().protocol(Protocol::Homa).connect("127.0.0.1:50146")?;
//! assert_eq!(&client.call(b"stressed")?[..], b"desserts");
//! # Ok(()) }
//! ```
//!
//! [`DatapathKind::Ip`] carries Homa as IP protocol 146, without a kernel module; it needs the
//! capability CAP_NET_RAW.
//!
//! # What a call promises
//!
//! Every call ends: by the reply, by a [`Failure`] that says why, or by its deadline. A request
//! runs at most once unless it is marked idempotent ([`CallOptions::idempotent`]), which lets it be
//! retried elsewhere; `docs/concepts.md` has the exact extent. Messages may have up to
//! [`Config::message_len_max`] bytes, 8 MiB by default. A packet lost from the middle of a long
//! message is sent again within about two round trips, any other after a timeout of at least
//! [`Config::rto_min_ns`]. Dropping a [`Pending`] or the future of a call cancels it. When a
//! quarter of [`Config::calls_max`] calls of an [`AsyncClient`] are outstanding, the next one
//! waits.
//!
//! # What ends a handler
//!
//! A handler that panics refuses its own request, and the server goes on. One that drops its
//! request refuses it. A cancelled request is dropped where it waits, and one that runs can ask. A
//! stop lets what runs be answered, within a limit, and refuses the rest with a reason that sends
//! clients elsewhere.
//!
//! # Features
//!
//! | feature | default | what it brings |
//! |---|---|---|
//! | `tokio` | yes | `Server::run_async`, and streams that are tokio's `AsyncRead` and `AsyncWrite` |
//! | `key-agent` | no | [`KeySource`] asks a key agent, over TLS |
//!
//! Without `key-agent` no TLS is compiled.
//!
//! A [`Client`] works only while one of its methods runs: between calls it sends nothing again and
//! receives nothing. An [`AsyncClient`] has a thread that does.

mod async_client;
mod backlog;
mod client;
mod crew;
mod error;
mod leader;
mod options;
mod request;
mod server;
pub mod stream;
#[cfg(feature = "tokio")]
mod tasks;
#[cfg(feature = "tokio")]
mod time_slice;
mod workers;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use tailcut_net::dispatch::{
    Bound, ByWorker as DispatchByWorker, Config as DispatchConfig, Counts as DispatchCounts,
    Delivery, InPlace, InPlaceCounts, Metrics as DispatchMetrics,
    TypeMetrics as DispatchTypeMetrics,
};
pub use tailcut_net::driver::Wait;
pub use tailcut_net::keys::{AccessSource, LiveAccess, LiveKeys, Source as KeySource};
pub use tailcut_net::open::{DatapathKind, Protocol};
pub use tailcut_net::udp::SegmentedSend;
pub use tailcut_net::xdp::{InterfaceName, XdpConfig};
pub use tailcut_proto::endpoint::Metrics;
pub use tailcut_proto::r2p2::{AskCookies, Config, Pool, Prefix, Serving};
pub use tailcut_proto::rpc::{AnswerError, CallError, CallOptions, DropReason, Failure};
pub use tailcut_proto::{homa, r2p2, sealed};

pub use self::async_client::{AsyncCall, AsyncClient};
pub use self::client::{Client, Pending, Reply};
pub use self::error::Error;
pub use self::options::{ClientBuilder, ServerBuilder};
pub use self::request::{Deadline, Request, Responder};
pub use self::server::{Server, ServerHandle};
#[cfg(feature = "tokio")]
pub use self::time_slice::TimeSlice;

/// A thread that panicked while holding a lock left nothing half done: every critical section is a
/// few assignments.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
