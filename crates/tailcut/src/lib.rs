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
//! std::thread::spawn(move || server.run(|request| drop(request.reply_in_place(|bytes| bytes.reverse()))));
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
//! [`Config::rto_min_ns`]. Dropping a [`Pending`] or the future of a call cancels it.
//!
//! A [`Client`] works only while one of its methods runs: between calls it sends nothing again and
//! receives nothing. An [`AsyncClient`] has a thread that does.

mod async_client;
mod client;
mod error;
mod options;
mod server;
pub mod stream;

pub use tailcut_net::driver::Wait;
pub use tailcut_net::open::{DatapathKind, Protocol};
pub use tailcut_net::udp::SegmentedSend;
pub use tailcut_proto::endpoint::Metrics;
pub use tailcut_proto::r2p2::{Config, Pool, Prefix, Serving};
pub use tailcut_proto::rpc::{AnswerError, CallError, CallOptions, Failure};
pub use tailcut_proto::{homa, r2p2};

pub use self::async_client::{AsyncCall, AsyncClient};
pub use self::client::{Client, Pending, Reply};
pub use self::error::Error;
pub use self::options::{ClientBuilder, ServerBuilder};
pub use self::server::{Request, Server, Stop};
