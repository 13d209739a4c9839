//! System calls that no library wraps the way the data path needs them, behind safe functions. The
//! only unsafe code of tailcut.
//!
//! Invariant: a pointer handed to the kernel points into memory that the function's arguments or
//! `self` hold, and the kernel keeps none after the call returns.

mod address;
mod bpf;
mod completions;
mod control;
pub(crate) mod epoll;
mod fork;
mod lane;
mod loan;
mod mapping;
mod options;
mod program;
mod receive;
mod send;
mod shared_queue;
mod slot;
#[cfg(feature = "tcp")]
mod stream;
mod thread;
mod xsk;
mod xsk_ring;

pub use bpf::SharedMemory;
pub(crate) use bpf::{Instruction, Map, MapKind, attach_reuseport_program};
pub use completions::{Completions, Parcel, Taken};
pub(crate) use fork::{count_forks, forks};
pub(crate) use lane::{Sender, Taken as LaneTaken, Taker, lane};
pub use loan::Loan;
pub(crate) use mapping::Arena;
#[cfg(test)]
pub(crate) use options::int_option;
pub(crate) use options::{
    attach_filter, attach_reuseport_filter, disconnect, interface_mtu, memory_info, set_int_option,
    set_timestamping,
};
pub use options::{set_buffers, set_gro};
pub(crate) use program::{Link, Program, ProgramKind, interface_index};
pub use program::{Tested, Verdict};
pub use receive::{Message, Notes, ReceiveBatch};
pub(crate) use receive::{NetworkError, take_error};
pub use send::{Outgoing, SendBatch};
pub(crate) use send::{Parts, send_connected, send_one};
pub(crate) use shared_queue::{Feeder, Puller, shared_queue};
#[cfg(feature = "tcp")]
pub(crate) use stream::{receive_stamped, send_stamped};
pub(crate) use thread::{is_realtime, monotonic_ns, poll, random, set_scheduler, thread_usage};
pub use xsk::Xsk;
pub(crate) use xsk::{Pool, QueueConfig, Shape};

use std::io;

/// The result of a call, with -1 turned to the thread's error.
#[inline]
fn check(returned: isize) -> io::Result<usize> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned.unsigned_abs()) }
}
