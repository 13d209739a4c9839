//! Receiving: how many messages to ask for, and splitting GSO batches.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use super::config::UdpMetrics;
use crate::stamps::Stamps;
use crate::sys;

/// Counters of a port, and the peers that have refused its datagrams.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// The counters so far.
    pub(super) metrics: UdpMetrics,
    /// Peers where nothing listens, by ICMP's word, each once; at most [`REFUSED_MAX`].
    refused: Vec<SocketAddr>,
}

impl Account {
    fn note_refused(&mut self, peer: SocketAddr) {
        if self.refused.len() < REFUSED_MAX && !self.refused.contains(&peer) {
            self.refused.push(peer);
        }
    }

    /// A peer where nothing listens, once.
    #[inline]
    pub(super) fn take_refused(&mut self) -> Option<SocketAddr> {
        self.refused.pop()
    }

    /// True if there is a refused peer to take.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }
}

/// The receiving half of a port.
///
/// A lone message is cheapest by recvfrom, without control messages, and next by recvmsg (recvmmsg
/// costs 13 % of a ping-pong more), a crowd by recvmmsg. Which it will be is guessed from the last
/// calls: [`DENSE_AFTER`] calls in a row that each found a message mean a crowd, a recvmmsg that
/// found one message or none means it is over.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Buffers of a burst.
    batch: sys::ReceiveBatch,
    /// Calls in a row that found one message.
    streak: u32,
    /// Ask for a burst next time.
    is_dense: bool,
    /// Messages of a burst: fewer where they are long.
    burst_len: usize,
    /// Information that is received beside bytes and sender.
    beside: Beside,
}

/// Information that a socket gives beside a datagram's bytes and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing: GSO batches arrive cut.
    Nothing,
    /// Nothing yet; where the datagrams of a GSO batch end, so that it arrives whole, once one
    /// seems to have been cut.
    Batches,
    /// All that it has been asked for.
    All,
}

impl Receiver {
    pub(super) fn new(burst_max: usize, message_len_max: usize) -> Self {
        Self {
            batch: sys::ReceiveBatch::new(burst_max, message_len_max),
            streak: 0,
            is_dense: false,
            burst_len: burst_max,
            beside: Beside::All,
        }
    }

    /// Receives one message or one burst, and hands out the datagrams.
    #[inline]
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        account: &mut Account,
        mut f: impl FnMut(SocketAddr, &mut [u8], sys::Notes<'_>),
    ) -> io::Result<usize> {
        let received = if self.is_dense {
            self.batch.receive_up_to(fd, self.burst_len)
        } else if self.beside == Beside::All {
            self.batch.receive_one(fd).map(|()| 1)
        } else {
            self.batch.receive_bare(fd).map(|()| 1)
        };
        let messages = match received {
            Ok(messages) => messages,
            Err(error) => {
                (self.streak, self.is_dense) = (0, false);
                return failed(fd, account, error);
            }
        };
        self.adapt(fd, messages);
        let bytes_before = account.metrics.bytes_in;
        let datagrams =
            (0..messages).map(|index| hand_out(self.batch.message(index), account, &mut f)).sum();
        let message_len = (account.metrics.bytes_in - bytes_before) / messages.max(1) as u64;
        let is_long = message_len >= LONG_MESSAGE_LEN;
        self.burst_len = if is_long { LONG_BURST_MAX } else { usize::MAX };
        Ok(datagrams)
    }

    /// True if at least half of the messages of a burst came from the sender of the one before, as
    /// those of a GSO batch that the kernel has cut.
    fn is_cut(&mut self, messages: usize) -> bool {
        let mut before = None;
        let follows = |index: &usize| {
            let peer = self.batch.message(*index).peer;
            std::mem::replace(&mut before, peer) == peer
        };
        messages > 1 && 2 * (0..messages).filter(follows).count() >= messages
    }

    /// Sets what the socket tells from now on.
    pub(super) fn set_beside(&mut self, beside: Beside) {
        self.beside = beside;
    }

    #[inline]
    fn adapt(&mut self, fd: BorrowedFd<'_>, messages: usize) {
        if self.is_dense {
            self.is_dense = messages > 1;
            self.streak = 0;
            if self.beside == Beside::Batches && self.is_cut(messages) {
                // A kernel that does not know the option goes on as before.
                let is_whole = sys::set_gro(fd, true).is_ok();
                self.beside = if is_whole { Beside::All } else { Beside::Nothing };
            }
        } else {
            self.streak += 1;
            self.is_dense = self.streak >= DENSE_AFTER;
        }
    }
}

/// Splits a message into its datagrams; returns how many.
#[inline]
fn hand_out<F>(message: sys::Message<'_>, account: &mut Account, f: &mut F) -> usize
where
    F: FnMut(SocketAddr, &mut [u8], sys::Notes<'_>),
{
    if message.is_truncated {
        account.metrics.truncated += 1;
        return 0;
    }
    let Some(peer) = message.peer else {
        account.metrics.nameless += 1;
        return 0;
    };
    account.metrics.bytes_in += message.bytes.len() as u64;
    if message.bytes.len() <= message.segment_len {
        account.metrics.datagrams_in += 1;
        f(peer, message.bytes, message.notes);
        return 1;
    }
    let datagrams = message.bytes.chunks_mut(message.segment_len);
    let count = datagrams.len();
    account.metrics.gso_batches_in += 1;
    account.metrics.datagrams_in += count as u64;
    datagrams.for_each(|datagram| f(peer, datagram, message.notes));
    count
}

/// No message: because there is none, because of something that the network or the device did, or
/// for good.
#[inline]
fn failed(fd: BorrowedFd<'_>, account: &mut Account, error: io::Error) -> io::Result<usize> {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Ok(0),
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL) => Err(error),
        _ => {
            // Of a peer that is gone the queue says more, and counts it.
            if take_errors(fd, account, |_, _| ()) == 0 {
                account.metrics.receive_errors += 1;
            }
            Ok(0)
        }
    }
}

/// Mean bytes of messages that are GSO batches of long ones.
const LONG_MESSAGE_LEN: u64 = 16 << 10;

/// Most of them in a burst: who sent them hears of none before all have been taken, and would send
/// again what a whole burst of 64 keeps waiting; and the second-level cache holds as many buffers.
const LONG_BURST_MAX: usize = 8;

/// Peers that are remembered between two turns of a driver to listen nowhere.
const REFUSED_MAX: usize = 16;

/// Messages found in a row before a burst is asked for. Two would already be wrong in a ping-pong
/// over a driver that sleeps between messages, where no call is ever empty; with four, only one
/// call in five is a recvmmsg there.
const DENSE_AFTER: u32 = 4;

/// Empties the error queue, at most 64 entries a call so that the work is bounded; returns how many
/// came from the network.
pub(super) fn take_errors(
    fd: BorrowedFd<'_>,
    account: &mut Account,
    mut stamped: impl FnMut(u32, Stamps),
) -> usize {
    let mut count = 0;
    for entry in std::iter::from_fn(|| sys::take_error(fd).ok()).take(64) {
        match entry {
            sys::NetworkError::Icmp(number, to) => {
                count += 1;
                to.filter(|_| number == libc::ECONNREFUSED)
                    .into_iter()
                    .for_each(|peer| account.note_refused(peer));
            }
            sys::NetworkError::Stamp(number, stamps) => stamped(number, stamps),
            sys::NetworkError::Local => {}
        }
    }
    account.metrics.icmp_errors += count as u64;
    count
}
