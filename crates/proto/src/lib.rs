//! Every decision that tailcut makes, as state machines without IO.
//!
//! Time, randomness and bytes are arguments; datagrams, events and the next deadline are results.
//! The same code runs over UDP sockets and in the simulator, and compiles for a machine that has
//! neither clock nor network.
//!
//! | module | what it decides |
//! |---|---|
//! | [`address`] | addresses as keys of tables |
//! | [`node`] | the edge towards the network: what every participant is |
//! | [`rpc`] | the edge towards the application: call, reply, cancel, events |
//! | [`policy`], [`scheduler`] | where a request goes, and who waits: the crate `tailcut-placement` |
//! | [`r2p2`] | the R2P2 endpoint: client and server |
//! | [`homa`] | the Homa endpoint: client and server |
//! | [`endpoint`] | nothing: an endpoint of either, by configuration |
//! | [`stream`] | byte streams over any of these endpoints |
//! | [`router`] | the R2P2 router |
//! | `sealed` | what is encrypted and authenticated, and which packets are genuine |
//! | [`netclone`] | NetClone's switch, of its published format |
//! | [`conformance`] | nothing: traces of decisions, which every data plane replays |
//! | [`reply_filter`] | the filter of a router in the path of replies |
//! | `peer`, `call`, `message` | what every protocol needs: one core |
//! | [`work`] | steps of work, counted in fuzz targets and fault runs |
//!
//! Invariant: input from the network never panics, never fails a call of this crate, and never
//! makes it allocate in proportion to what the input claims.

pub mod address;
mod buffers;
mod call;
pub mod conformance;
pub mod endpoint;
mod gso_batch;
pub mod histogram;
pub mod homa;
mod message;
pub mod netclone;
pub mod node;
mod peer;
pub mod r2p2;
pub mod reply_filter;
pub mod router;
pub mod rpc;
mod rtt;
#[cfg(not(target_family = "wasm"))]
pub mod sealed;
#[cfg(target_family = "wasm")]
#[path = "sealed/absent.rs"]
pub mod sealed;
pub mod stream;
pub mod work;

pub use tailcut_placement::{policy, scheduler};
