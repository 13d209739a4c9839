//! Several threads on one port, each with a socket of its own, and a program in the kernel that
//! picks the socket.
//!
//! | packet | picked by |
//! |---|---|
//! | extended (header_size of 48 or more) | the session, the high 40 bits of the RPC id (payload bytes 8..13) |
//! | version 1 | the request id (payload bytes 4..6) |
//! | too short for its form | the first socket, which counts it as malformed |
//!
//! So all packets of an RPC reach one thread, and so do all RPCs of a client's session. The session
//! and not the RPC, because a GSO batch is steered whole by its first datagram: a client's GSO
//! batches hold RPCs of one session, but not of one id.
//!
//! Whoever sends GSO batches to such a port must therefore keep each GSO batch to one session, and
//! to one request id where it speaks version 1: a router before a group sends single datagrams.

mod shortest;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use libc::sock_filter;

pub use self::shortest::{COUNT_MAX as SHORTEST_COUNT_MAX, QueueLen, bind_shortest};

use crate::datapath::Datapath;
use crate::datapath::udp::{self, UdpConfig, UdpPort};
use crate::sys;

/// Binds `count` ports to one address, each for a thread; port 0 lets the kernel pick one number
/// for all.
///
/// The ports count in the order returned. One that is closed hands its place to the last one, which
/// moves sessions: close all or none.
///
/// # Errors
///
/// InvalidInput when `count` is 0; else what the kernel says of the address. AddrInUse can also
/// mean that somebody else has the port without sharing it.
pub fn bind_group(
    address: SocketAddr,
    count: usize,
    (config, steering): (UdpConfig, Steering),
) -> io::Result<Vec<UdpPort>> {
    let groups = u32::try_from(count).ok().filter(|&count| count > 0);
    let groups = groups.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "a group has at least one port")
    })?;
    let mut ports: Vec<UdpPort> = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = udp::open(address)?;
        socket.set_reuse_port(true)?;
        let bound = ports.first().map_or(address, UdpPort::local_address);
        socket.bind(&bound.into())?;
        if ports.is_empty() && steering == Steering::Session {
            // Before the others join: sockets inherit the program, and no packet is ever steered
            // without it.
            sys::attach_reuseport_filter(socket.as_fd(), &steering_program(groups))?;
        }
        ports.push(UdpPort::from_socket(socket, config)?);
    }
    Ok(ports)
}

/// The rule that picks the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// The program above: R2P2.
    #[default]
    Session,
    /// The kernel's hash of the peer's address and port, for what has no sessions: Homa.
    Peer,
}

/// Returns the index of the socket, of `count`, for a packet whose UDP payload begins at offset 0.
/// A load beyond the packet ends a program with 0.
fn steering_program(count: u32) -> [sock_filter; 12] {
    [
        statement(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 1),
        sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16,
            jt: 0,
            jf: 5,
            k: EXTENDED_LEN_MIN,
        },
        statement(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 12),
        statement(libc::BPF_MISC | libc::BPF_TAX, 0),
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 8),
        statement(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        statement(libc::BPF_JMP | libc::BPF_JA, 1),
        statement(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 4),
        // Fibonacci hashing: the product's high half depends on every bit, also of ids that count
        // up.
        statement(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, FIBONACCI),
        statement(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        statement(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count),
        statement(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// 2^32 over the golden ratio.
const FIBONACCI: u32 = 0x9e37_79b1;

/// Header size from which on a packet has the extension, and with it the RPC id.
const EXTENDED_LEN_MIN: u32 = 48;
