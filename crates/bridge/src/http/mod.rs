//! HTTP/1.1, by hyper: connections of clients, and to a server.
//!
//! | module | what |
//! |---|---|
//! | [`message`] | what a call carries: a request or a response with a body of known length |
//! | `pipe` | bytes in memory in the place of a socket, and what polls a connection over them |
//! | [`server`] | a client's connection |
//! | [`client`] | a connection to a server |
//!
//! hyper knows how messages are framed, in chunks or by the end of a connection, and what Expect,
//! HEAD and Connection mean. It is polled where bytes have come and by nobody else: there is no
//! runtime.

pub mod client;
pub mod message;
pub(crate) mod pipe;
pub mod server;
