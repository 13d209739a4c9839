//! Bytes to typed headers and back, for every protocol that tailcut speaks.
//!
//! `wire` is the source of truth for the C header, the dissectors and the fixtures of the other
//! data planes, so it holds nothing but layouts: no state, no clock, no allocation.
//! [`r2p2::Packet::parse`], [`homa::Packet::parse`], [`netclone::Packet::parse`] and, of byte
//! streams, [`stream::Message::parse`] are the only ways in for bytes from the network. They check
//! everything that can be checked without state, so that whoever holds a packet need not check
//! again.
//!
//! Invariant: no input of any length panics here.

#![no_std]

pub mod homa;
pub mod netclone;
pub mod r2p2;
pub mod stream;
