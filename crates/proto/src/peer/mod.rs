//! State that an endpoint keeps of each peer, and its bounds.
//!
//! | module | what it holds |
//! |---|---|
//! | `table` | peers by address, with eviction of idle ones |
//! | `once` | the sequences of a session that have run: the memory behind "at most once" |
//! | `sessions` | the sessions of a peer, and the budget of bytes that all of them share |
//! | `cookies` | keyed hashes of addresses and time, and tags of packets by them |
//! | `validation` | keyed hashes of addresses, and three bytes for one until an address is validated |
//! | `limits` | configuration of a server, and what it holds against it |
//! | `crowd` | the share of that which clients of one address, or /64, have |
//! | `holdings` | each request's part of it, and who may have one more |

pub(crate) mod cookies;
pub(crate) mod crowd;
pub(crate) mod holdings;
pub(crate) mod limits;
pub(crate) mod once;
pub(crate) mod sessions;
pub(crate) mod table;
pub(crate) mod validation;
