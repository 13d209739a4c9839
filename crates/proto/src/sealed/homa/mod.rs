//! Sealed Homa: from end to end, since there are no routers.
//!
//! | packet of | names | count |
//! |---|---|---|
//! | a client | the server, under the tag; RESEND nobody, where it is not known who is there | of its session, whose pass stands before it |
//! | a server | its instance, in the trailer | of the instance |
//!
//! | an arriving packet is | then |
//! |---|---|
//! | open, of another direction, or for another server | counted, dropped |
//! | one that has come before | counted, dropped |
//! | of a session that is not known and cannot be begun | DATA is refused, RESEND answered; else dropped |
//! | a RESEND that names nobody | answered, by which its client learns the name |
//! | DATA or RESEND under an epoch that is not accepted | counted, answered |
//!
//! Invariant: a packet is taken once, by the one node that it was for.

mod client;
mod packet;
mod reset;
mod server;

pub(super) use self::client::HomaClient;
pub(super) use self::packet::{glance, open, request_nonce};
pub(super) use self::server::{Accepted, HomaServer};
