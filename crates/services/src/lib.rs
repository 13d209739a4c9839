//! Typed services over tailcut: a .proto, or a few lines of Rust, becomes a trait for the server
//! and a typed client.
//!
//! `tailcut-build` makes the former from a .proto in a build script; [`service!`] is what it
//! writes, and may be written by hand for messages that are Rust types:
//!
//! ```
//! # #[cfg(not(feature = "prost"))] fn main() {}
//! # #[cfg(feature = "prost")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tailcut_services::{Client, Prost, Request, Response, Services, Status};
//!
//! #[derive(Clone, PartialEq, prost::Message)]
//! pub struct Word {
//!     #[prost(string, tag = "1")]
//!     pub text: String,
//! }
//!
//! tailcut_services::service! {
//!     /// Changes words.
//!     service Words = "demo.Words", server WordsServer, client WordsClient, codec Prost;
//!     /// The word in capitals.
//!     capitals(Word) -> Word = "Capitals", idempotent;
//! }
//!
//! struct Capitals;
//!
//! impl Words for Capitals {
//!     async fn capitals(&self, request: Request<Word>) -> Result<Response<Word>, Status> {
//!         Ok(Response::new(Word { text: request.into_inner().text.to_uppercase() }))
//!     }
//! }
//!
//! let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
//! let services = Services::new().add_service(WordsServer::new(Capitals));
//! let mut server = tailcut::Server::bind("127.0.0.1:0")?;
//! let (address, stop) = (server.local_address(), server.stop_handle());
//! let tasks = runtime.handle().clone();
//! let serving = std::thread::spawn(move || services.serve(&mut server, &tasks));
//!
//! let client = WordsClient::new(Client::connect(address)?);
//! let reply = client.capitals(Word { text: "short".into() })?;
//! assert_eq!(reply.get_ref().text, "SHORT");
//! stop.stop();
//! serving.join().expect("the server does not panic")?;
//! # Ok(()) }
//! ```
//!
//! | you want | use |
//! |---|---|
//! | calls from tasks | `WordsClient<Channel>`, by `WordsClient::connect` |
//! | one call after another, from a thread | `WordsClient<Client>`, over a [`Client`] |
//! | many calls outstanding from a thread | [`Client::start`] and [`Client::enqueue`] |
//! | handlers that await, as tasks | [`Services::serve_tasks`], [`transport::Server`] |
//! | handlers that mostly do not, within microseconds | [`Services::serve`] |
//!
//! What goes over the wire is in [`frame`]: nine bytes before a request's message, one before a
//! reply's. A method that its .proto calls `IDEMPOTENT` or `NO_SIDE_EFFECTS` may be cloned and sent
//! again ([`tailcut::CallOptions::idempotent`]), any other runs once at most.
//!
//! # Features
//!
//! | feature | default | what it brings |
//! |---|---|---|
//! | `prost` | yes | `Prost`, messages of Protocol Buffers |
//! | `postcard`, `json` | no | `Postcard` and `Json`, messages that are types of serde |
//! | `tower` | no | `Layered`, layers of tower around calls, and `Services::serve_layered`, around services |

mod blocking;
mod call;
mod channel;
mod codec;
mod definition;
pub mod frame;
#[cfg(feature = "tower")]
mod layers;
mod message;
mod method;
mod service;
mod status;
pub mod transport;

pub use self::blocking::{Client, Enqueuing, Pending, Starting};
pub use self::channel::{Calling, CallingBytes, Channel, Transport};
#[cfg(feature = "json")]
pub use self::codec::Json;
#[cfg(feature = "postcard")]
pub use self::codec::Postcard;
#[cfg(feature = "prost")]
pub use self::codec::Prost;
pub use self::codec::{Codec, CodecError};
#[cfg(feature = "tower")]
pub use self::layers::{Layered, Outgoing};
pub use self::message::{IntoRequest, Request, Response};
pub use self::method::{Method, MethodId};
pub use self::service::{Answer, Answering, Incoming, Metrics, Service, Services, answer};
pub use self::status::{Code, Status};
pub use tailcut::Error;

/// The messages and services of a package, as `tailcut-build` has written them in the build script.
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}
