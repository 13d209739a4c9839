//! Bytes to typed headers and back, for every protocol that tailcut speaks.
//!
//! `wire` is the source of truth for the C header, the dissectors and the fixtures of the other data planes, so it holds
//! nothing but layouts: no state, no clock, no allocation. [`r2p2::Packet::parse`] is the only way in for bytes from the
//! network. It checks everything that can be checked without state, so that whoever holds a [`r2p2::Packet`] need not check again.
//!
//! Invariant: no input of any length panics here.

#![no_std]

pub mod r2p2;
