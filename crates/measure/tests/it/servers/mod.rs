//! The applications against the real servers: memcached, redis-server and nginx as Debian has them.
//!
//! Each test starts its own on a free port of loopback and ends it. What a server counts itself is
//! what our tally is compared with.

mod client;
mod http;
mod memcached;
mod port;
mod process;
mod redis;
