//! The protocols of existing servers as calls, sans-IO: what `tailcut gateway` makes of a client's
//! bytes, and what `tailcut bridge` says to a backend.
//!
//! | | in front | behind |
//! |---|---|---|
//! | gateway | [`Front`]: bytes of one client's connection | [`Call`]s, and their answers |
//! | bridge | messages, read by [`App::read`] | [`Backend`]: bytes of one connection to the server |
//!
//! A message is what a client of that protocol would say itself: for Redis one command, or a run of
//! writes, as arrays of bulk strings; for memcached one command; a reply is the server's own bytes.
//! So any client of tailcut can call a bridge, and whatever a server answers reaches its client as
//! it was.
//!
//! Invariants: no input panics, and none takes memory in proportion to what it claims; how bytes
//! are cut into fragments changes nothing; what leaves for a backend is whole requests alone, each
//! of which has exactly the answers that are waited for.

mod app;
mod backend;
mod call;
mod due;
mod front;
mod greeting;
pub mod http;
pub mod memcached;
mod pool;
pub mod resp;

pub use self::app::{App, Message, Refusal};
pub use self::backend::{Answer, Backend, Exchange};
pub use self::call::{Call, Failed, Limits, MESSAGE_LEN_MAX, Route};
pub use self::due::{Dialect, Due, Nonsense};
pub use self::front::{Front, FrontKind};
pub use self::greeting::Login;
pub use self::pool::{Ended, Ending, Place, Pool, PoolConfig, PoolMetrics, Task};
