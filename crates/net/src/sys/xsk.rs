//! AF_XDP sockets: memory of frames that the kernel shares, and rings of descriptors of it.
//!
//! | ring | whose | holds |
//! |---|---|---|
//! | fill | a queue's, kernel reads | chunks to receive into |
//! | completion | a queue's, kernel writes | chunks that have been sent |
//! | receive | a socket's, kernel writes | what has arrived, in chunks |
//! | transmit | a socket's, kernel reads | what is to be sent |
//!
//! A queue of an interface has one [`Pool`] of memory, whose first chunks are received into and
//! whose others are sent from. All sockets at the queue share it, so its two rings are behind a
//! lock, which a socket takes once for several packets. A frame to send is a run of chunks that lie
//! one behind the other, as many as the longest packet takes; a packet that arrives in several
//! chunks is joined.
//!
//! Invariant: a chunk is in one place: a ring, or a list of its pool or of one socket. Who has it
//! there, and nobody else, reads and writes its bytes.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use libc::xdp_desc;
use socket2::{Domain, Socket, Type};

use super::check;
use super::mapping::Mapping;
use super::options::set_int_option;
use super::xsk_ring::{Consumer, Offsets, Producer, option, set_option};

/// Layout of a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of a chunk: 2,048, or 4,096.
    pub(crate) chunk_len: usize,
    /// Chunks to receive into: a power of two.
    pub(crate) receive_chunks: u32,
    /// Frames to send.
    pub(crate) send_frames: u32,
    /// Chunks of each of these.
    pub(crate) frame_chunks: u32,
}

/// Configuration of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueConfig {
    /// The interface's number.
    pub(crate) interface: u32,
    /// The queue's.
    pub(crate) queue: u32,
    /// Its memory.
    pub(crate) shape: Shape,
    /// Copies even where the driver could do without.
    pub(crate) is_copying: bool,
}

/// The memory of a queue of an interface.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Owns the kernel's side of it. No packet reaches it.
    base: OwnedFd,
    /// All chunks: those to receive into, then the frames to send.
    memory: Mapping,
    /// As configured.
    config: QueueConfig,
    /// The kernel moves frames without a copy.
    is_zero_copy: bool,
    /// By frame to send: chunks of it that the kernel still has. Unused where a frame is one chunk.
    under_way: Vec<AtomicU8>,
    /// Part that belongs to no socket.
    spare: Mutex<Spare>,
}

/// The part of a pool that sockets take turns with.
#[derive(Debug)]
struct Spare {
    /// Chunks to receive into.
    fill: Producer<u64>,
    /// Chunks that have been sent.
    completion: Consumer<u64>,
    /// Frames to send that nobody has.
    frames: Vec<u32>,
}

impl Pool {
    /// Takes a queue. The driver is asked for frames without a copy, unless they are to be copied.
    ///
    /// # Errors
    ///
    /// What the kernel says: PermissionDenied without CAP_NET_RAW; InvalidInput where the interface
    /// has no such queue; ResourceBusy where another process has it; StorageFull (ENOBUFS) where
    /// memory may not be locked.
    pub(crate) fn open(config: QueueConfig) -> io::Result<Self> {
        let Shape { chunk_len, receive_chunks, send_frames, frame_chunks } = config.shape;
        let send_chunks = send_frames * frame_chunks;
        let memory = Mapping::anonymous((receive_chunks + send_chunks) as usize * chunk_len)?;
        let base = open_socket()?;
        let region = libc::xdp_umem_reg {
            addr: memory.start().as_ptr() as u64,
            len: memory.len() as u64,
            chunk_size: chunk_len as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set_option(base.as_fd(), libc::XDP_UMEM_REG, &region)?;
        // The kernel says what it has read of it only once it has read all that it saw there, so
        // that as much again may have to wait behind that.
        let fill_len = 2 * receive_chunks;
        set_option(base.as_fd(), libc::XDP_UMEM_FILL_RING, &fill_len)?;
        let completions = send_chunks.next_power_of_two();
        set_option(base.as_fd(), libc::XDP_UMEM_COMPLETION_RING, &completions)?;
        // The kernel binds no socket that has neither of the other rings.
        set_option(base.as_fd(), libc::XDP_RX_RING, &2_u32)?;
        let offsets = Offsets::of(base.as_fd())?;
        let mut fill = offsets.fill(base.as_fd(), fill_len)?;
        let completion = offsets.completion(base.as_fd(), completions)?;
        let mut flags = libc::XDP_USE_NEED_WAKEUP;
        if config.is_copying {
            flags |= libc::XDP_COPY;
        }
        if frame_chunks > 1 {
            flags |= libc::XDP_USE_SG;
        }
        bind(base.as_fd(), &config, (flags, 0))?;
        for chunk in 0..u64::from(receive_chunks) {
            fill.push(chunk * chunk_len as u64);
        }
        fill.submit();
        let options: libc::xdp_options = option(base.as_fd(), libc::XDP_OPTIONS)?;
        let spare = Spare { fill, completion, frames: (0..send_frames).rev().collect() };
        Ok(Self {
            base: base.into(),
            memory,
            config,
            is_zero_copy: options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0,
            under_way: (0..send_frames).map(|_| AtomicU8::new(0)).collect(),
            spare: Mutex::new(spare),
        })
    }

    /// True if the driver moves frames without a copy.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Bytes of a frame to send.
    #[inline]
    pub(crate) fn frame_len(&self) -> usize {
        self.config.shape.frame_chunks as usize * self.config.shape.chunk_len
    }

    fn with_spare<T>(&self, f: impl FnOnce(&mut Spare) -> T) -> T {
        // Whoever has panicked with it has left every chunk in one place at most.
        f(&mut self.spare.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives chunks back to receive into; returns whether the kernel wants to be told.
    fn refill(&self, chunks: &mut Vec<u64>) -> bool {
        self.with_spare(|spare| {
            // There is always room: the ring has two places for each of these chunks.
            chunks.drain(..).for_each(|chunk| spare.fill.push(chunk));
            spare.fill.submit();
            spare.fill.wants_wakeup()
        })
    }

    /// Adds free frames to send to `frames`, up to as many as it has capacity for.
    fn take_frames(&self, frames: &mut Vec<u32>) {
        self.with_spare(|spare| {
            while let Some(at) = spare.completion.pop() {
                spare.frames.extend(self.completed(at));
            }
            spare.completion.release();
            let count = (frames.capacity() - frames.len()).min(spare.frames.len());
            frames.extend(spare.frames.drain(spare.frames.len() - count..));
        });
    }

    /// The frame that is free now that the kernel is done with one of its chunks.
    fn completed(&self, at: u64) -> Option<u32> {
        let Shape { chunk_len, receive_chunks, frame_chunks, .. } = self.config.shape;
        let frame = ((at as usize / chunk_len) as u32 - receive_chunks) / frame_chunks;
        let is_last = frame_chunks == 1
            || self.under_way[frame as usize].fetch_sub(1, Ordering::Relaxed) == 1;
        is_last.then_some(frame)
    }

    /// Notes that the kernel is given so many chunks of a frame.
    #[inline]
    fn note_under_way(&self, frame: u32, count: u8) {
        if self.config.shape.frame_chunks > 1 {
            self.under_way[frame as usize].store(count, Ordering::Relaxed);
        }
    }

    /// Offset of the chunk that a place is in.
    #[inline]
    fn chunk_at(&self, at: u64) -> u64 {
        at & !(self.config.shape.chunk_len as u64 - 1)
    }

    /// The first byte of a frame to send, in the memory.
    #[inline]
    fn frame_at(&self, frame: u32) -> usize {
        let Shape { chunk_len, receive_chunks, frame_chunks, .. } = self.config.shape;
        (receive_chunks as usize + frame as usize * frame_chunks as usize) * chunk_len
    }

    /// Bytes of the memory.
    ///
    /// # Safety
    ///
    /// All of them are in chunks that the caller has, of which it makes no other reference
    /// meanwhile.
    ///
    /// # Panics
    ///
    /// When they are not in the memory.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "each chunk has one owner")]
    unsafe fn bytes(&self, at: usize, len: usize) -> &mut [u8] {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= self.memory.len()),
            "a frame is in the memory"
        );
        // SAFETY: the bytes are in the mapping, which lives as long as `self`; they are the
        // caller's.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().add(at).as_ptr(), len) }
    }
}

/// Packets that the kernel has dropped on their way to a socket or from it, as it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    /// For want of memory, or because they were longer than a frame.
    pub(crate) dropped: u64,
    /// Because the receive ring was full.
    pub(crate) receive_ring_full: u64,
    /// Times that nothing was left in the fill ring; what had come was dropped.
    pub(crate) fill_ring_empty: u64,
    /// Descriptors that it did not take.
    pub(crate) invalid: u64,
}

/// A socket at a queue.
#[derive(Debug)]
pub struct Xsk {
    /// Bound.
    fd: OwnedFd,
    /// The queue's memory.
    pool: Arc<Pool>,
    /// Packets that have arrived.
    receive: Consumer<xdp_desc>,
    /// Packets to be sent.
    transmit: Producer<xdp_desc>,
    /// Chunks that have been read and are to be received into again.
    read: Vec<u64>,
    /// Frames to send that this socket has; never without room for one more.
    frames: Vec<u32>,
    /// The frame that is written next.
    current: u32,
    /// The packet that comes in several chunks, so far.
    joined: Vec<u8>,
    /// Descriptors that the kernel has not been told of.
    unsubmitted: u32,
}

impl Xsk {
    /// Opens a socket at a pool's queue, with rings of so many descriptors: powers of two.
    ///
    /// # Errors
    ///
    /// What the kernel says; OutOfMemory where all frames are other sockets'.
    pub(crate) fn open(
        pool: &Arc<Pool>,
        (receive_len, transmit_len): (u32, u32),
    ) -> io::Result<Self> {
        let socket = open_socket()?;
        set_option(socket.as_fd(), libc::XDP_RX_RING, &receive_len)?;
        set_option(socket.as_fd(), libc::XDP_TX_RING, &transmit_len)?;
        let offsets = Offsets::of(socket.as_fd())?;
        let receive = offsets.receive(socket.as_fd(), receive_len)?;
        let transmit = offsets.transmit(socket.as_fd(), transmit_len)?;
        let base = pool.base.as_raw_fd() as u32;
        bind(socket.as_fd(), &pool.config, (libc::XDP_SHARED_UMEM, base))?;
        // What is under way is bounded by the frames; the kernel's own limit would be a second one.
        super::set_buffers(socket.as_fd(), 0, SEND_BUFFER_BYTES)?;
        // One call takes a whole burst, where the kernel lets it (Linux 6.17): else 32 packets.
        let _ = set_option(socket.as_fd(), MAX_TX_SKB_BUDGET, &transmit_len);
        let mut frames = Vec::with_capacity(FRAMES_HELD_MAX);
        pool.take_frames(&mut frames);
        let current = frames.pop().ok_or_else(|| {
            io::Error::new(io::ErrorKind::OutOfMemory, "all frames of the queue are in use")
        })?;
        Ok(Self {
            fd: socket.into(),
            pool: pool.clone(),
            receive,
            transmit,
            read: Vec::with_capacity(READ_HELD_MAX),
            frames,
            current,
            joined: Vec::with_capacity(if pool.config.shape.frame_chunks > 1 {
                JOINED_LEN_MAX
            } else {
                0
            }),
            unsubmitted: 0,
        })
    }

    /// Lets each look for packets drive the interface's queue, instead of its interrupts.
    ///
    /// # Errors
    ///
    /// What the kernel says; it knows this since 5.11.
    pub(crate) fn prefer_busy_poll(&self) -> io::Result<()> {
        for (name, value) in [(SO_PREFER_BUSY_POLL, 1), (libc::SO_BUSY_POLL, 20)] {
            set_int_option(self.as_fd(), (libc::SOL_SOCKET, name), value)?;
        }
        set_int_option(self.as_fd(), (libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET), 64)
    }

    /// Receives up to `max` packets, each in its memory, which `f` may change. Returns how many.
    #[inline]
    pub fn receive(&mut self, max: u32, mut f: impl FnMut(&mut [u8])) -> usize {
        let Self { pool, receive, read, joined, .. } = self;
        let (mut count, mut left) = (0, max);
        while left > 0
            && let Some(desc) = receive.pop()
        {
            left -= 1;
            // SAFETY: the kernel has given the descriptor's chunk to this socket, which keeps it
            // until it is in `read`, below.
            let bytes = unsafe { pool.bytes(desc.addr as usize, desc.len as usize) };
            let is_last = desc.options & libc::XDP_PKT_CONTD == 0;
            if is_last && joined.is_empty() {
                f(bytes);
                count += 1;
            } else {
                let room = JOINED_LEN_MAX - joined.len();
                joined.extend_from_slice(&bytes[..bytes.len().min(room)]);
                if is_last {
                    f(joined);
                    joined.clear();
                    count += 1;
                }
            }
            read.push(pool.chunk_at(desc.addr));
            if read.len() == READ_HELD_MAX && pool.refill(read) {
                self.fd.as_fd().wake_receive();
            }
        }
        if left < max {
            receive.release();
        }
        count
    }

    /// Gives back what has been read, and drives the queue where it is polled so.
    pub(crate) fn rest(&mut self) {
        if !self.read.is_empty() {
            self.pool.refill(&mut self.read);
        }
    }

    /// Lets the kernel look for packets now.
    pub(crate) fn drive(&self) {
        self.fd.as_fd().wake_receive();
    }

    /// The frame that is written next.
    #[inline]
    pub fn frame(&mut self) -> &mut [u8] {
        let pool = &self.pool;
        // SAFETY: the current frame is this socket's, and `self` is borrowed while the bytes are.
        unsafe { pool.bytes(pool.frame_at(self.current), pool.frame_len()) }
    }

    /// Puts headers and a part of the current frame into the transmit ring. The last part leaves
    /// from where it is, with the headers before it, and another frame is taken; others are copied.
    /// Returns false where there is no frame or no room: then nothing is put there.
    ///
    /// # Panics
    ///
    /// When the part is not in the frame, with as many bytes as the headers have before it.
    #[inline]
    pub fn push(&mut self, headers: &[u8], (part, is_last): (Range<usize>, bool)) -> bool {
        if self.frames.is_empty() {
            self.pool.take_frames(&mut self.frames);
        }
        if self.frames.is_empty() || !self.transmit.has_room(self.pool.config.shape.frame_chunks) {
            return false;
        }
        let other = self.frames.pop().expect("there is one");
        let len = headers.len() + part.len();
        if is_last {
            let start = part.start - headers.len();
            self.frame()[start..part.start].copy_from_slice(headers);
            assert!(part.end <= self.pool.frame_len(), "a packet is in its frame");
            self.post(self.current, start, len);
            self.current = other;
        } else {
            // SAFETY: both frames are this socket's, and they are two; no other reference is made.
            let (from, to) = unsafe {
                let at = self.pool.frame_at(self.current);
                let from = self.pool.bytes(at, self.pool.frame_len());
                (from, self.pool.bytes(self.pool.frame_at(other), len))
            };
            to[..headers.len()].copy_from_slice(headers);
            to[headers.len()..].copy_from_slice(&from[part]);
            self.post(other, 0, len);
        }
        true
    }

    /// Puts bytes of a frame into the transmit ring, which has room.
    #[inline]
    fn post(&mut self, frame: u32, start: usize, len: usize) {
        let chunk_len = self.pool.config.shape.chunk_len;
        let first = self.pool.frame_at(frame) + start;
        let (mut at, end) = (first, first + len);
        let mut count = 0;
        while at < end {
            let next = end.min((at / chunk_len + 1) * chunk_len);
            let options = if next < end { libc::XDP_PKT_CONTD } else { 0 };
            let desc = xdp_desc { addr: at as u64, len: (next - at) as u32, options };
            self.transmit.push(desc);
            (at, count) = (next, count + 1);
        }
        self.pool.note_under_way(frame, count);
        self.unsubmitted += u32::from(count);
    }

    /// Descriptors that the kernel has not been told of.
    #[inline]
    pub(crate) fn unsubmitted(&self) -> u32 {
        self.unsubmitted
    }

    /// True if a packet may be put into the transmit ring.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        if !self.transmit.has_room(self.pool.config.shape.frame_chunks) {
            return false;
        }
        if self.frames.is_empty() {
            self.pool.take_frames(&mut self.frames);
        }
        !self.frames.is_empty()
    }

    /// Lets the kernel send what is in the transmit ring. What it has no room for stays there, for
    /// the next call.
    ///
    /// # Errors
    ///
    /// What the kernel says of the interface: NetworkDown, or that it is gone.
    #[inline]
    pub fn kick(&mut self) -> io::Result<()> {
        self.unsubmitted = 0;
        self.transmit.submit();
        if !self.transmit.wants_wakeup() {
            return Ok(());
        }
        loop {
            let left = self.transmit.len();
            let sent = self.fd.as_fd().wake_transmit();
            match sent.map_err(|error| (error.raw_os_error(), error)) {
                Ok(()) => return Ok(()),
                // It takes so many a call, and a driver may be busy.
                Err((Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS), _)) => {
                    let now_left = self.transmit.len();
                    if now_left == 0 || now_left == left {
                        return Ok(());
                    }
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Descriptors that the kernel has yet to take of those that it was told of.
    #[inline]
    pub(crate) fn backlog(&self) -> u32 {
        self.transmit.len()
    }

    /// Counters of what the kernel has dropped.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is known to make it fail.
    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        let found: libc::xdp_statistics = option(self.as_fd(), libc::XDP_STATISTICS)?;
        Ok(Statistics {
            dropped: found.rx_dropped,
            receive_ring_full: found.rx_ring_full,
            fill_ring_empty: found.rx_fill_ring_empty_descs,
            invalid: found.rx_invalid_descs + found.tx_invalid_descs,
        })
    }
}

impl AsFd for Xsk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Xsk {
    /// Gives frames back to the pool. What the kernel is putting into the ring at this very moment
    /// is lost to it: the packets of one look of the interface, at most, once nothing is directed
    /// to the socket any more.
    fn drop(&mut self) {
        while let Some(desc) = self.receive.pop() {
            self.read.push(self.pool.chunk_at(desc.addr));
        }
        self.pool.refill(&mut self.read);
        self.frames.push(self.current);
        // A driver that does not copy reads the ring whenever it likes.
        let unsent = if self.pool.is_zero_copy { Vec::new() } else { self.transmit.take_back() };
        self.frames.extend(unsent.iter().filter_map(|desc| self.pool.completed(desc.addr)));
        self.pool.with_spare(|spare| spare.frames.append(&mut self.frames));
    }
}

/// The kernel's calls at a socket.
trait Calls {
    /// Receives, as far as the kernel wants to be told to.
    fn wake_receive(&self);

    /// Sends, likewise.
    fn wake_transmit(&self) -> io::Result<()>;
}

impl Calls for BorrowedFd<'_> {
    fn wake_receive(&self) {
        // SAFETY: no bytes are asked for, and no address. What it says is of no use: the rings
        // tell.
        unsafe {
            libc::recvfrom(
                self.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            );
        }
    }

    #[inline]
    fn wake_transmit(&self) -> io::Result<()> {
        // SAFETY: no bytes are passed, and no address: what is sent is in the ring.
        let returned = unsafe {
            libc::sendto(
                self.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        check(returned).map(|_| ())
    }
}

fn open_socket() -> io::Result<Socket> {
    Socket::new(Domain::from(libc::AF_XDP), Type::RAW.nonblocking(), None)
}

fn bind(fd: BorrowedFd<'_>, config: &QueueConfig, (flags, base): (u16, u32)) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: config.interface,
        sxdp_queue_id: config.queue,
        sxdp_shared_umem_fd: base,
    };
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address outlives the call and `len` is its size.
    let returned = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    check(returned as isize).map(|_| ())
}

/// Chunks that a socket has read before it gives them back: few, for each of many sockets may have
/// as many.
const READ_HELD_MAX: usize = 8;

/// Frames that a socket takes at a time.
const FRAMES_HELD_MAX: usize = 16;

/// The longest packet that is joined of several chunks: an MTU of 9,000, with room for a link's
/// headers.
const JOINED_LEN_MAX: usize = 9_216;

/// More than the frames of any pool.
const SEND_BUFFER_BYTES: usize = 64 << 20;

// Of <linux/if_xdp.h> and <asm-generic/socket.h>.
const MAX_TX_SKB_BUDGET: i32 = 9;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
