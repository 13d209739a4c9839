//! The floor that the benches compare with: the least code that moves datagrams through the
//! kernel's UDP.
//!
//! | exchange | one side | other side |
//! |---|---|---|
//! | ping-pong, polling | [`ping_spin`] | [`echo_spin`] |
//! | ping-pong, blocking | [`ping_blocking`] | [`echo_blocking`] |
//! | ping-pong over TCP, polling | [`ping_stream_spin`] | [`echo_stream_spin`] |
//! | many outstanding, a message each | [`exchange_batched`] | [`echo_batched`] |
//! | many outstanding, in GSO batches | [`exchange_batches`] | [`echo_batches`] |
//! | one-way stream of GSO batches | [`stream_send`] | [`stream_receive`] |
//! | a hop between two | [`ping_spin`] and [`echo_spin`] | [`hop_spin`] |
//!
//! Each function runs for a slice of time or until its stop flag is set, so that a bench can
//! alternate slices of the floor and of tailcut: on a machine that others share, only the ratio of
//! neighbours means something.

#![allow(unreachable_pub, reason = "benches and a test include it")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use tailcut_net::batches::{self, Outgoing, ReceiveBatch, SendBatch};
use tailcut_net::clock::Clock;

/// A closed-loop exchange with an echo.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The echo.
    pub target: SocketAddr,
    /// Payload bytes of a datagram.
    pub payload_len: usize,
    /// Datagrams on their way at a time; at most 64, and within one GSO batch of 65,507 bytes for
    /// [`exchange_batches`].
    pub outstanding: usize,
    /// Duration of the load.
    pub slice_ns: u64,
}

/// Result of an exchange or a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Datagrams that came back, or were sent or received.
    pub datagrams: u64,
    /// From the first to the last, in nanoseconds.
    pub elapsed_ns: u64,
}

impl Moved {
    /// Datagrams a second.
    pub fn rate(&self) -> f64 {
        self.datagrams as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// A socket with buffers of 4 MiB, as a port of tailcut has by default.
///
/// # Errors
///
/// What the kernel says of the address.
pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    batches::set_buffers(socket.as_fd(), 4 << 20, 4 << 20)?;
    Ok(socket)
}

/// Lets a socket receive GSO batches whole.
///
/// # Errors
///
/// On a kernel without UDP_GRO.
pub fn set_gro(socket: &UdpSocket) -> io::Result<()> {
    batches::set_gro(socket.as_fd(), true)
}

/// Sends each datagram back, polling.
///
/// # Errors
///
/// What the kernel says.
pub fn echo_spin(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    echo(socket, stop)
}

/// Sends each datagram back, asleep in between. Sees the stop flag after the next datagram: a
/// receive with a time limit would arm a timer for each one, and be no floor.
///
/// # Errors
///
/// What the kernel says.
pub fn echo_blocking(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    echo(socket, stop)
}

/// One datagram there and back at a time over a connected socket, polling. Fills `round_trips` with
/// nanoseconds from answer to answer, as far as it has capacity; the clock is read once a round
/// trip, as a driver does.
///
/// # Errors
///
/// What the kernel says.
pub fn ping_spin(
    socket: &UdpSocket,
    payload: &[u8],
    slice_ns: u64,
    round_trips: &mut Vec<u64>,
) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    ping(socket, payload, slice_ns, round_trips)
}

/// As [`ping_spin`], asleep in between.
///
/// # Errors
///
/// What the kernel says.
pub fn ping_blocking(
    socket: &UdpSocket,
    payload: &[u8],
    slice_ns: u64,
    round_trips: &mut Vec<u64>,
) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    ping(socket, payload, slice_ns, round_trips)
}

/// Sends bytes back as they come, polling, until the peer ends the connection or the stop flag is
/// set.
///
/// # Errors
///
/// What the kernel says.
pub fn echo_stream_spin(mut stream: &TcpStream, stop: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let mut buffer = [0; SMALL_LEN];
    while !stop.load(Ordering::Relaxed) {
        match pending(stream.read(&mut buffer))? {
            Some(0) => break,
            Some(len) => stream.write_all(&buffer[..len])?,
            None => {}
        }
    }
    Ok(())
}

/// As [`ping_spin`], over a connection.
///
/// # Errors
///
/// What the kernel says, and UnexpectedEof when the peer ends the connection.
pub fn ping_stream_spin(
    mut stream: &TcpStream,
    payload: &[u8],
    slice_ns: u64,
    round_trips: &mut Vec<u64>,
) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let mut buffer = [0; SMALL_LEN];
    let mut last = Clock.now();
    let end = last + slice_ns;
    while last < end {
        stream.write_all(payload)?;
        let mut missing = payload.len();
        while missing > 0 {
            match pending(stream.read(&mut buffer))? {
                Some(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Some(len) => missing = missing.saturating_sub(len),
                None => {}
            }
        }
        let now = Clock.now();
        if round_trips.len() < round_trips.capacity() {
            round_trips.push(now - last);
        }
        last = now;
    }
    Ok(())
}

/// Sends each datagram back, in bursts of up to 64 messages, polling.
///
/// # Errors
///
/// What the kernel says.
pub fn echo_batched(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<()> {
    let mut batches = Batches::new(SMALL_LEN);
    while !stop.load(Ordering::Relaxed) {
        let received = batches.receive(socket)?;
        batches.send_back(socket, received)?;
    }
    Ok(())
}

/// Keeps datagrams on their way to an echo, in bursts of up to 64 messages, polling. Needs an
/// unconnected socket.
///
/// # Errors
///
/// What the kernel says.
pub fn exchange_batched(socket: &UdpSocket, load: &Load) -> io::Result<Moved> {
    let mut batches = Batches::new(SMALL_LEN);
    let payload = vec![0x5a; load.payload_len];
    for _ in 0..load.outstanding {
        socket.send_to(&payload, load.target)?;
    }
    count(load.slice_ns, || {
        let received = batches.receive(socket)?;
        batches.send_back(socket, received)?;
        Ok(received as u64)
    })
}

/// Sends each message back as it came, as a GSO batch where it is one, polling. Needs [`set_gro`].
///
/// # Errors
///
/// What the kernel says.
pub fn echo_batches(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<()> {
    let mut batches = Batches::new(BATCH_LEN);
    while !stop.load(Ordering::Relaxed) {
        if batches.receive_one(socket)? > 0 {
            batches.send_back(socket, 1)?;
        }
    }
    Ok(())
}

/// Keeps datagrams on their way to an echo, in GSO batches, polling. Needs [`set_gro`] and an
/// unconnected socket.
///
/// # Errors
///
/// What the kernel says.
pub fn exchange_batches(socket: &UdpSocket, load: &Load) -> io::Result<Moved> {
    let mut batches = Batches::new(BATCH_LEN);
    let payload = vec![0x5a; load.payload_len * load.outstanding];
    batches.sender.send(
        socket.as_fd(),
        &payload,
        &[batch(load.target, payload.len(), load.payload_len)],
    )?;
    count(load.slice_ns, || {
        let datagrams = batches.receive_one(socket)?;
        if datagrams > 0 {
            batches.send_back(socket, 1)?;
        }
        Ok(datagrams)
    })
}

/// Sends GSO batches of `outstanding` datagrams as fast as the kernel takes them.
///
/// # Errors
///
/// What the kernel says.
pub fn stream_send(socket: &UdpSocket, load: &Load) -> io::Result<Moved> {
    let mut sender = SendBatch::new(1);
    let payload = vec![0x5a; load.payload_len * load.outstanding];
    let message = [batch(load.target, payload.len(), load.payload_len)];
    count(load.slice_ns, || {
        sender.send(socket.as_fd(), &payload, &message)?;
        Ok(load.outstanding as u64)
    })
}

/// Receives GSO batches, polling, until the stop flag is set and nothing waits any more. Needs
/// [`set_gro`].
///
/// # Errors
///
/// What the kernel says.
pub fn stream_receive(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<Moved> {
    let mut batches = Batches::new(BATCH_LEN);
    let (mut moved, mut first, mut last) = (Moved::default(), None, 0);
    loop {
        let datagrams = batches.receive_one(socket)?;
        if datagrams > 0 {
            moved.datagrams += datagrams;
            last = Clock.now();
            first = first.or(Some(last));
        } else if stop.load(Ordering::Relaxed) {
            moved.elapsed_ns = last - first.unwrap_or(last);
            return Ok(moved);
        }
    }
}

/// Passes each datagram on: those from `server` to whoever sent last, all others to `server`.
/// Polling.
///
/// # Errors
///
/// What the kernel says.
pub fn hop_spin(socket: &UdpSocket, server: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut buffer = [0; SMALL_LEN];
    let mut client = server;
    while !stop.load(Ordering::Relaxed) {
        let Some((len, from)) = pending(socket.recv_from(&mut buffer))? else { continue };
        if from != server {
            client = from;
        }
        socket.send_to(&buffer[..len], if from == server { client } else { server })?;
    }
    Ok(())
}

/// Buffers of both directions.
struct Batches {
    receiver: ReceiveBatch,
    sender: SendBatch,
    answers: Vec<Outgoing>,
}

impl Batches {
    fn new(message_len_max: usize) -> Self {
        Self {
            receiver: ReceiveBatch::new(BURST, message_len_max),
            sender: SendBatch::new(BURST),
            answers: Vec::with_capacity(BURST),
        }
    }

    /// Messages received; 0 when none wait.
    fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        Ok(pending(self.receiver.receive_many(socket.as_fd()))?.unwrap_or(0))
    }

    /// Datagrams of one message; 0 when none waits.
    fn receive_one(&mut self, socket: &UdpSocket) -> io::Result<u64> {
        let received = pending(self.receiver.receive_one(socket.as_fd()))?;
        Ok(received.map_or(0, |()| {
            let message = self.receiver.message(0);
            message.bytes.len().div_ceil(message.segment_len) as u64
        }))
    }

    /// Sends the messages of the last receive back from where they lie.
    fn send_back(&mut self, socket: &UdpSocket, count: usize) -> io::Result<()> {
        self.answers.clear();
        for index in 0..count {
            let message = self.receiver.message(index);
            let Some(to) = message.peer else { continue };
            let answer = batch(to, message.bytes.len(), message.segment_len);
            self.answers.push(Outgoing { offset: self.receiver.offset(index), ..answer });
        }
        let mut rest = &self.answers[..];
        while !rest.is_empty() {
            let sent = self.sender.send(socket.as_fd(), self.receiver.arena(), rest)?;
            rest = &rest[sent..];
        }
        Ok(())
    }
}

fn echo(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<()> {
    let mut buffer = [0; SMALL_LEN];
    while !stop.load(Ordering::Relaxed) {
        if let Some((len, from)) = pending(socket.recv_from(&mut buffer))? {
            socket.send_to(&buffer[..len], from)?;
        }
    }
    Ok(())
}

fn ping(
    socket: &UdpSocket,
    payload: &[u8],
    slice_ns: u64,
    round_trips: &mut Vec<u64>,
) -> io::Result<()> {
    let mut buffer = [0; SMALL_LEN];
    let mut last = Clock.now();
    let end = last + slice_ns;
    while last < end {
        socket.send(payload)?;
        while pending(socket.recv(&mut buffer))?.is_none() {}
        let now = Clock.now();
        if round_trips.len() < round_trips.capacity() {
            round_trips.push(now - last);
        }
        last = now;
    }
    Ok(())
}

/// Repeats `step` for a slice, and adds up what it moved.
fn count(slice_ns: u64, mut step: impl FnMut() -> io::Result<u64>) -> io::Result<Moved> {
    let start = Clock.now();
    let mut moved = Moved::default();
    while moved.elapsed_ns < slice_ns {
        moved.datagrams += step()?;
        moved.elapsed_ns = Clock.now() - start;
    }
    Ok(moved)
}

fn batch(to: SocketAddr, len: usize, segment_len: usize) -> Outgoing {
    Outgoing {
        to: Some(to),
        from: None,
        offset: 0,
        len,
        segment_len,
        traffic_class: 0,
        stamp_flags: 0,
        tag: 0,
    }
}

/// Nothing where nothing waits yet.
fn pending<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Messages in a burst.
const BURST: usize = 64;

/// More than the benches' datagrams have.
const SMALL_LEN: usize = 2048;

/// The longest GSO batch.
const BATCH_LEN: usize = 1 << 16;
