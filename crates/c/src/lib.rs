//! tailcut for C and C++: what `include/tailcut.h` declares.
//!
//! Each function of the header is one here, which turns pointers into references, calls the library
//! and turns its answer into a code, with a text kept for [`tailcut_last_error`]. A panic is caught
//! and told as a code. No decision is made here.
//!
//! Invariant: nothing of C outlives the call that it came with, but a handler's context for as long
//! as its server runs. Calls, replies and requests keep their client alive, so that C may free
//! things in any order.
#![allow(unsafe_code, reason = "C's pointers: each block says what C promises")]

mod client;
mod error;
mod pointer;
mod server;

pub use self::client::*;
pub use self::error::*;
pub use self::server::*;
