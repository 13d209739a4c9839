//! The only crate of tailcut with sockets and the clock, and its unsafe code but for the edge to C.
//! Linux only.
//!
//! | module | what it is |
//! |---|---|
//! | [`clock`] | the monotonic clock |
//! | [`mod@datapath`] | what moves datagrams: the trait, and either of these |
//! | [`udp`] | a UDP socket that moves bursts and GSO batches (GSO, GRO) |
//! | [`xdp`] | either past the kernel's stack (AF_XDP) |
//! | [`ip`] | a raw socket of IP protocol 146, Homa's, or of TCP's in its disguise |
//! | [`open`] | opens endpoints on datapaths |
//! | [`datagram`] | many connected UDP sockets |
//! | `stream` | many TCP connections, with or without TLS, at either end; the feature `tcp` |
//! | `probe` | which timestamps really arrive; the feature `tcp` |
//! | [`stamps`] | timestamps by the kernel and by the network interface |
//! | [`raw`] | raw IP for datagrams whose source is somebody else's |
//! | [`reuseport`] | several threads on one port, a client's session on one of them |
//! | [`driver`] | drives a [`tailcut_proto::node::Node`] over a port: polls, sleeps, wakes |
//! | [`loan`] | long requests that are sent from where they are |
//! | [`completions`] | what many threads are done with, for the one that began it |
//! | [`dispatch`] | worker threads behind the thread that polls, fed from one queue |
//! | `door` | which TCP connection of strangers makes room for another |
//! | [`entropy`] | secrets |
//! | [`keys`] | keys of sealed services that change while nodes run |
//! | [`affinity`] | pins threads and raises their priority |
//! | [`log`] | log lines about counters that mean trouble, once a second at most |
//! | [`trace`] | packets and decisions of one connection, into a capture file |
//! | [`pcapng`] | the blocks of such a file |
//!
//! Invariant: no unsafe code outside the private module `sys`, and nothing that arrives from the
//! network makes a call of this crate fail: it is counted instead.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "tailcut-net is written for Linux: GSO, GRO, ppoll and reuseport programs have no equal elsewhere"
);

pub mod affinity;
mod cache_line;
pub mod clock;
pub mod datagram;
pub mod datapath;
pub mod dispatch;
#[cfg(feature = "key-agent")]
pub mod door;
pub mod driver;
pub mod ebpf;
pub mod entropy;
pub mod keys;
pub mod log;
pub mod open;
pub mod pcapng;
#[cfg(feature = "tcp")]
pub mod probe;
pub mod raw;
pub mod reuseport;
pub mod stamps;
#[cfg(feature = "tcp")]
pub mod stream;
pub mod trace;
pub use datapath::{ip, udp, xdp};
mod poller;
mod spin;
mod waker;

/// Borrowed bytes for something without a lifetime, such as an endpoint that sends them.
pub mod loan {
    pub use crate::sys::Loan;
}

/// Completed work of many threads, for the one that began it: a stack without locks.
pub mod completions {
    pub use crate::sys::{Completions, Parcel, Taken};
}

/// Batches of system calls, for the floor that benches compare with alone: no part of the
/// interface.
#[doc(hidden)]
pub mod batches {
    pub use crate::sys::{
        Message, Notes, Outgoing, ReceiveBatch, SendBatch, Xsk, set_buffers, set_gro,
    };
}

#[allow(unsafe_code)]
mod sys;
