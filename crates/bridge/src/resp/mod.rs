//! Redis' protocol, RESP2 and RESP3.
//!
//! | module | what |
//! |---|---|
//! | [`scan`] | where a command ends |
//! | [`requests`] | the commands of a connection, inline ones too |
//! | [`command`] | what a command is: a read, a write, or nothing that a call can be |
//! | [`keys`] | its keys, and the group of servers that has them |
//! | [`message`] | the commands of a call |
//! | [`reply`] | where a reply ends |
//! | [`session`] | a client's connection: commands to calls, answers in order |
//!
//! The parser is our own: those that there are make values of what they read, or begin an array
//! anew at each fragment, which for values of 8 MiB is 128 times.

pub mod command;
pub mod keys;
pub mod message;
pub mod reply;
pub mod requests;
pub mod scan;
pub mod session;
