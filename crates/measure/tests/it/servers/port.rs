//! Ports for servers that must be told theirs.
//!
//! They are below those that the kernel hands out by itself, from 32,768 unless somebody has
//! changed that: there a port that is free stays free until the server takes it, and an attempt to
//! connect to it cannot be given the same port and meet itself.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// One that nobody has, over TCP nor UDP, and that no other test of this process is given.
pub(crate) fn free() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Processes side by side begin far apart.
    let start = (process::id().wrapping_mul(61) % u32::from(COUNT)) as u16;
    let is_free = |&port: &u16| {
        let at = (Ipv4Addr::LOCALHOST, port);
        TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
    };
    let mut ports = std::iter::repeat_with(|| {
        FIRST + (start + GIVEN.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT
    });
    ports.find(is_free).expect("some port is free")
}

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;
