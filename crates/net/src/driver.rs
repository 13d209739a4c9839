//! Drives nodes over their ports: the data-path loop.
//!
//! | step of a turn | calls |
//! |---|---|
//! | newer keys and the wall clock, where packets are sealed | [`Node::update_keys`], [`Node::handle_wall_clock`] |
//! | receive one burst of each port | [`Node::handle_datagram`] for each datagram |
//! | what is due, after all that has arrived by then | [`Node::handle_timeout`] |
//! | the owner's work | the closure: drain events, call, reply |
//! | send one burst | [`Node::poll_transmit`] until `None`, or until the burst is full |
//!
//! A turn reads the clock once for each burst, after its first datagram has been received and
//! before it is handled, so that a latency measured in a node's time never lacks a part of the way.
//! What comes after the bursts has the time of the last. Between turns, [`Driver::wait`] spins or
//! sleeps.
//!
//! Invariants: a turn does bounded work however much arrives or is to be sent; a warm driver
//! allocates nothing; one driver lives on one thread, and other threads reach it by a [`Waker`].

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use tailcut_proto::node::{Node, Source, Time, Transmit};

use crate::clock::Clock;
use crate::datapath::{AnyDatapath, Datapath};
use crate::keys::{LiveAccess, LiveKeys, Watch};
use crate::raw::RawPort;
use crate::spin::SpinTime;
use crate::stamps::Stamps;
use crate::sys;
pub use crate::waker::Waker;
use crate::waker::{Sleeper, poll_entry};

/// The wait of a driver between turns that find nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing: it turns again. Shortest latency, a whole core. [`Driver::wait`] returns at once.
    BusyPoll,
    /// Sleeps until a datagram, a deadline or a wake-up.
    Block {
        /// Longest time that it keeps turning after the last traffic before it sleeps: where few
        /// gaps between traffic are that short it sleeps at once. [`Wait::SPIN_NS`] by default; 0
        /// never spins.
        spin_ns: u64,
    },
}

impl Wait {
    /// Two to four wake-ups (13-25 us each where this was measured): as long as a round trip takes
    /// on which another thread is woken, so that not both ends of it sleep each time.
    pub const SPIN_NS: u64 = 50_000;

    /// The longest spin before a sleep, nanoseconds.
    pub(crate) fn spin_ns(self) -> u64 {
        match self {
            Self::BusyPoll => 0,
            Self::Block { spin_ns } => spin_ns,
        }
    }
}

impl Default for Wait {
    fn default() -> Self {
        Self::Block { spin_ns: Self::SPIN_NS }
    }
}

/// An observer of the datagrams of a driver's ports, with their timestamps where
/// [`Datapath::set_stamps`]
/// gave the port some: an instrument, which tells by the bytes whose they are.
pub trait Observer {
    /// Node `node` is about to be given a datagram.
    fn handle_received(&mut self, node: usize, peer: SocketAddr, bytes: &[u8], stamps: Stamps);

    /// Node `node` has handed out a transmit, which is about to be sent. Setting
    /// [`Transmit::token`] asks for its stamp.
    fn handle_transmit(&mut self, node: usize, transmit: &mut Transmit, bytes: &[u8]);

    /// A transmit of node `node` that had a token has left.
    fn handle_sent(&mut self, node: usize, token: u64, stamps: Stamps);

    /// Nobody watches: what it would be told is not even asked for.
    const IS_BLIND: bool = false;
}

/// Watches nothing, at no cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn handle_received(&mut self, _node: usize, _peer: SocketAddr, _bytes: &[u8], _stamps: Stamps) {
    }

    fn handle_transmit(&mut self, _node: usize, _transmit: &mut Transmit, _bytes: &[u8]) {}

    fn handle_sent(&mut self, _node: usize, _token: u64, _stamps: Stamps) {}

    const IS_BLIND: bool = true;
}

/// The counts of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The turn's time, to pass to the nodes until the next turn.
    pub now: Time,
    /// Datagrams received.
    pub received: usize,
    /// Nodes whose deadline was due.
    pub timeouts: usize,
    /// Transmits sent; a GSO batch is one.
    pub sent: usize,
}

impl Turn {
    /// Nothing happened.
    pub fn is_idle(&self) -> bool {
        self.received == 0 && self.timeouts == 0 && self.sent == 0
    }
}

/// Result of a wait for a driver's ports and other descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// The others are ready.
    pub extra: bool,
    /// A port is, a deadline has passed, or another thread has called.
    pub own: bool,
}

impl Woken {
    /// Whatever there may be.
    pub const ALL: Self = Self { extra: true, own: true };
}

/// Counters of a [`Driver`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverMetrics {
    /// Times that the thread was put to sleep.
    pub sleeps: u64,
    /// Bursts that were full before a node had handed out everything; the rest left in the next
    /// turn.
    pub bursts_full: u64,
    /// Datagrams dropped because they name a source of their own and there is no [`RawPort`].
    pub dropped_no_raw: u64,
}

/// One thread's nodes, each on its port. Numbered in the order they were added.
#[derive(Debug)]
pub struct Driver<N, D = AnyDatapath> {
    /// By number, in the order added.
    stations: Vec<Station<N, D>>,
    /// Read once for each burst of a turn.
    clock: Clock,
    /// As configured.
    wait: Wait,
    /// Sleeps of its thread.
    sleeper: Sleeper,
    /// The waker's event, the owner's descriptor, then one per station.
    fds: Vec<libc::pollfd>,
    /// `fds` says what is ready, as of the sleep that has just ended.
    is_poll_fresh: bool,
    /// Transmits are left over from a full burst.
    has_backlog: bool,
    /// Time of the last turn.
    now: Time,
    /// Time of the last turn or flush with traffic.
    active: Time,
    /// Time for which it turns after that.
    spin: SpinTime,
    /// The counters so far.
    metrics: DriverMetrics,
}

impl<N: Node> Driver<N> {
    /// A driver without nodes, over the datapaths of this crate.
    ///
    /// # Errors
    ///
    /// What the kernel says when it gives no event descriptor for the waker.
    pub fn new(wait: Wait) -> io::Result<Self> {
        Self::over(wait)
    }
}

impl<N: Node, D: Datapath> Driver<N, D> {
    /// A driver without nodes, over datapaths of one kind.
    ///
    /// # Errors
    ///
    /// As [`Driver::new`].
    pub fn over(wait: Wait) -> io::Result<Self> {
        let sleeper = Sleeper::new()?;
        let fds = vec![sleeper.entry(), poll_entry(NO_FD)];
        Ok(Self {
            stations: Vec::new(),
            clock: Clock,
            wait,
            sleeper,
            fds,
            is_poll_fresh: false,
            has_backlog: false,
            now: 0,
            active: 0,
            spin: SpinTime::new(wait.spin_ns()),
            metrics: DriverMetrics::default(),
        })
    }

    /// Adds a node on its port; returns its number. `raw` honours sources that are not the port's
    /// own.
    pub fn add(&mut self, node: N, port: impl Into<D>, raw: Option<RawPort>) -> usize {
        let port = port.into();
        self.fds.push(poll_entry(port.as_fd().as_raw_fd()));
        self.stations.push(Station { node, port, raw, watch: None });
        self.stations.len() - 1
    }

    /// Gives a node newer keys as they come, and the wall clock once a second: one whose packets
    /// are sealed, and which was made with these keys. And where it was made with a policy of who
    /// may call what, the policy as it changes; what is refused by it is logged. Panics for a
    /// number that was never given.
    pub fn watch_keys(&mut self, index: usize, keys: LiveKeys, access: Option<LiveAccess>) {
        assert!(index < self.stations.len(), "there is no node {index}");
        self.stations[index].watch = Some(Watch::new(keys, access));
        self.refresh(self.clock.now());
    }

    /// Gives sealed nodes what is new. A node is given that before anything else in each turn; who
    /// calls one between turns, after a while without one, does so before, with the time of the
    /// call.
    #[inline]
    pub fn refresh(&mut self, now: Time) {
        self.stations.iter_mut().for_each(|station| station.look(now));
    }

    /// Number of nodes that have been added.
    pub fn count(&self) -> usize {
        self.stations.len()
    }

    /// A node. Panics for a number that was never given.
    pub fn node(&self, index: usize) -> &N {
        &self.stations[index].node
    }

    /// A node, to call between turns with the last turn's time; [`Driver::flush`] then sends what
    /// came of it. Panics for a number that was never given.
    pub fn node_mut(&mut self, index: usize) -> &mut N {
        &mut self.stations[index].node
    }

    /// A node's port. Panics for a number that was never given.
    pub fn port(&self, index: usize) -> &D {
        &self.stations[index].port
    }

    /// A node's raw port, if it has one. Panics for a number that was never given.
    pub fn raw(&self, index: usize) -> Option<&RawPort> {
        self.stations[index].raw.as_ref()
    }

    /// The clock that the turns read.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The waker by which other threads end this driver's sleep.
    pub fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    /// The counters so far.
    pub fn metrics(&self) -> DriverMetrics {
        self.metrics
    }

    /// Lets another thread have this one's core, if one wants it and that has not taken long
    /// lately.
    pub fn give_way(&mut self) {
        self.spin.give_way(self.now);
    }

    /// One turn without work of the owner's.
    ///
    /// # Errors
    ///
    /// As [`Driver::turn_with`].
    #[inline]
    pub fn turn(&mut self) -> io::Result<Turn> {
        self.turn_with(|_, _, _| ())
    }

    /// One turn. `work` is called for each node, with its number, after the node's inputs and
    /// before its transmits, also when nothing arrived: what it calls and replies leaves in the
    /// same burst.
    ///
    /// # Errors
    ///
    /// Only what makes a socket useless, and that a node whose packets are sealed was made by a
    /// parent of this process: a child takes and sends nothing by it. Whatever the network does is
    /// counted in the ports' metrics.
    #[inline]
    pub fn turn_with(&mut self, work: impl FnMut(usize, &mut N, Time)) -> io::Result<Turn> {
        self.turn_observed(&mut Unobserved, work)
    }

    /// As [`Driver::turn_with`], watched. Transmits that a [`Driver::flush`] sends are not; those
    /// of [`Driver::flush_observed`] are.
    ///
    /// # Errors
    ///
    /// As [`Driver::turn_with`].
    #[inline]
    pub fn turn_observed<O: Observer>(
        &mut self,
        observer: &mut O,
        mut work: impl FnMut(usize, &mut N, Time),
    ) -> io::Result<Turn> {
        if self.stations.iter().any(Station::is_of_parent) {
            return Err(io::Error::other(OF_PARENT));
        }
        let mut reading = Reading { clock: self.clock, now: None };
        let mut received = self.receive(&mut reading, observer)?;
        let mut now = reading.now();
        let mut timeouts = 0;
        for (index, station) in self.stations.iter_mut().enumerate() {
            station.look(now);
            while let Some(peer) = station.port.take_refused() {
                station.node.handle_unreachable(now, peer);
            }
            if station.node.poll_timeout().is_some_and(|deadline| deadline <= now) {
                // What has arrived and waits in the socket is no silence of a peer's. A burst that
                // has found nothing has already said so.
                for _ in 0..if received > 0 { CATCH_UP_BURSTS_MAX } else { 0 } {
                    match station.receive(index, &mut reading, observer)? {
                        0 => break,
                        more => received += more,
                    }
                }
                now = reading.now();
                station.node.handle_timeout(now);
                timeouts += 1;
            }
            work(index, &mut station.node, now);
        }
        self.now = now;
        let sent = self.send(now, observer);
        for Station { node, watch, .. } in &mut self.stations {
            watch.iter_mut().for_each(|watch| watch.tell(now, node));
        }
        let turn = Turn { now, received, timeouts, sent };
        // A timer that only looks is no traffic: nothing more is near because of it.
        if received > 0 || sent > 0 {
            self.spin.note_gap(now.saturating_sub(self.active));
            self.active = now;
        } else if self.wait != Wait::BusyPoll && self.keeps_turning() {
            self.spin.give_way(now);
        }
        Ok(turn)
    }

    /// Sends a burst of what calls of [`Driver::node_mut`] have queued, and says how many transmits
    /// that were. `now` is the time that the calls were given.
    pub fn flush(&mut self, now: Time) -> usize {
        self.flush_observed(&mut Unobserved, now)
    }

    /// Sends all of it, however many bursts that takes. What the device has no room for is left.
    pub fn flush_all(&mut self, now: Time) {
        while self.flush(now) > 0 {}
    }

    /// As [`Driver::flush`], watched.
    pub fn flush_observed<O: Observer>(&mut self, observer: &mut O, now: Time) -> usize {
        let sent = self.send(now, observer);
        if sent > 0 {
            self.active = now;
        }
        sent
    }

    /// Passes the time until there is something to do: returns at once when busy-polling, within
    /// the spin time after the last traffic, or when a burst is left over; otherwise sleeps until a
    /// datagram, a node's deadline, `until`, a [`Waker`], or until `extra` is readable. While it
    /// does not sleep, `extra` is not looked at. May return for no reason.
    ///
    /// # Errors
    ///
    /// What the kernel says of `extra`, and when it lacks memory.
    #[inline]
    pub fn wait(&mut self, extra: Option<BorrowedFd<'_>>, until: Option<Time>) -> io::Result<()> {
        if self.keeps_turning() { Ok(()) } else { self.sleep(extra, until) }
    }

    /// As [`Driver::wait`], asleep by the owner's call of the kernel, which is given this driver's
    /// descriptors and the time that it may take, nanoseconds; it says which of them are ready, and
    /// returns whether something of the owner's is.
    ///
    /// # Errors
    ///
    /// What the kernel says of the descriptors, and when it lacks memory.
    #[inline]
    #[cfg(feature = "tcp")]
    pub(crate) fn wait_by(
        &mut self,
        until: Option<Time>,
        sleep: impl FnOnce(&mut [libc::pollfd], Option<u64>) -> io::Result<bool>,
    ) -> io::Result<Woken> {
        if self.keeps_turning() {
            return Ok(Woken::ALL);
        }
        let until = self.deadline().into_iter().chain(until).min();
        self.fds[EXTRA].fd = NO_FD;
        let Self { sleeper, fds, .. } = self;
        let Some(is_extra) = sleeper.sleep_by(until, |timeout_ns| sleep(fds, timeout_ns))? else {
            return Ok(Woken::ALL);
        };
        if self.fds[WAKER].revents != 0 {
            self.sleeper.take_event();
        }
        self.metrics.sleeps += 1;
        let is_ready = self.fds.iter().any(|fd| fd.revents != 0);
        self.is_poll_fresh = is_ready;
        self.take_errors();
        let is_due = || self.deadline().is_some_and(|deadline| deadline <= self.clock.now());
        // Where nothing is ready, a deadline or a waker has ended the sleep.
        Ok(Woken { extra: is_extra, own: is_ready || !is_extra || is_due() })
    }

    /// True if [`Driver::wait`] would return at once, for an owner who has something to announce
    /// before a sleep.
    #[inline]
    pub fn keeps_turning(&self) -> bool {
        match self.wait {
            Wait::BusyPoll => true,
            Wait::Block { .. } => {
                self.has_backlog || self.now.saturating_sub(self.active) < self.spin.get(self.now)
            }
        }
    }

    fn sleep(&mut self, extra: Option<BorrowedFd<'_>>, until: Option<Time>) -> io::Result<()> {
        let until = self.deadline().into_iter().chain(until).min();
        self.fds[EXTRA].fd = extra.map_or(NO_FD, |fd| fd.as_raw_fd());
        if let Some(ready) = self.sleeper.sleep(&mut self.fds, until)? {
            self.metrics.sleeps += 1;
            self.is_poll_fresh = ready > 0;
            self.take_errors();
        }
        Ok(())
    }

    /// The first deadline of a node.
    #[inline]
    fn deadline(&self) -> Option<Time> {
        self.stations.iter().filter_map(|station| station.node.poll_timeout()).min()
    }

    /// Receives one burst of each port that has something. A single port is simply asked.
    #[inline]
    fn receive<O: Observer>(
        &mut self,
        reading: &mut Reading,
        observer: &mut O,
    ) -> io::Result<usize> {
        if let [only] = &mut self.stations[..] {
            return only.receive(0, reading, observer);
        }
        if !self.is_poll_fresh {
            sys::poll(&mut self.fds[STATIONS..], Some(0))?;
            self.take_errors();
        }
        self.is_poll_fresh = false;
        let mut received = 0;
        for (index, (station, fd)) in
            self.stations.iter_mut().zip(&self.fds[STATIONS..]).enumerate()
        {
            if fd.revents != 0 {
                received += station.receive(index, reading, observer)?;
            }
        }
        Ok(received)
    }

    /// Empties the error queues that the last poll found something in: they would end every sleep.
    /// Tells the datapaths which are ready.
    fn take_errors(&mut self) {
        for (station, fd) in self.stations.iter_mut().zip(&self.fds[STATIONS..]) {
            if fd.revents != 0 {
                station.port.handle_ready();
            }
            if fd.revents & libc::POLLERR != 0 {
                station.port.take_errors();
            }
        }
    }

    #[inline]
    fn send<O: Observer>(&mut self, now: Time, observer: &mut O) -> usize {
        self.has_backlog = false;
        let mut sent = 0;
        for (index, station) in self.stations.iter_mut().enumerate() {
            let burst = station.send(now, &mut self.metrics, (index, observer));
            sent += burst.transmits;
            // Of a peer that is gone the next turn tells the node, and it shall not sleep before.
            self.has_backlog |= burst.is_full || station.port.has_refused();
            // What the node has left wants the next sleep to end when the device has taken enough.
            self.fds[STATIONS + index].events =
                if burst.lacks_room { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
        }
        sent
    }
}

/// A node and its ports.
#[derive(Debug)]
struct Station<N, D> {
    /// The node.
    node: N,
    /// Its datapath.
    port: D,
    /// Sends from sources that are not the port's own.
    raw: Option<RawPort>,
    /// State of the keys of a node whose packets are sealed.
    watch: Option<Watch>,
}

impl<N: Node, D: Datapath> Station<N, D> {
    #[inline]
    fn receive<O: Observer>(
        &mut self,
        index: usize,
        reading: &mut Reading,
        observer: &mut O,
    ) -> io::Result<usize> {
        let Self { node, port, watch, .. } = self;
        reading.renew();
        let mut handle = |path, bytes: &mut [u8]| {
            let now = reading.now();
            if let Some(watch) = watch {
                watch.look(now, node);
            }
            node.handle_datagram(now, path, bytes);
        };
        if !O::IS_BLIND {
            port.take_stamps(|token, stamps| observer.handle_sent(index, token, stamps));
            return port.recv_burst_stamped(|path, bytes, stamps| {
                observer.handle_received(index, path.peer, bytes, stamps);
                handle(path, bytes);
            });
        }
        port.recv_burst(handle)
    }

    /// True of a sealed node in a child of the process that made it.
    #[inline]
    fn is_of_parent(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_of_parent)
    }

    /// Gives the node what is new of its keys.
    #[inline]
    fn look(&mut self, now: Time) {
        if let Some(watch) = &mut self.watch {
            watch.look(now, &mut self.node);
        }
    }

    /// Drains the node's transmits into one burst.
    #[inline]
    fn send<O: Observer>(
        &mut self,
        now: Time,
        metrics: &mut DriverMetrics,
        (index, observer): (usize, &mut O),
    ) -> Burst {
        let mut burst = Burst { transmits: 0, is_full: false, lacks_room: false };
        // Its owner may have forked in this turn.
        if self.is_of_parent() {
            return burst;
        }
        let is_segmenting = self.port.is_segmenting();
        // Who watches is shown whole datagrams.
        let is_gathering = O::IS_BLIND && self.port.gathers();
        let (mut messages, mut bytes) = (0, 0);
        loop {
            if messages >= TURN_MESSAGES_MAX || bytes >= TURN_BYTES_MAX {
                burst.is_full = true;
                metrics.bursts_full += 1;
                break;
            }
            burst.lacks_room = !self.port.has_room();
            let space = self.port.frame(0, 0).payload();
            let space = if burst.lacks_room { &mut space[..OVERTAKING_LEN_MAX] } else { space };
            if is_gathering && let Some((transmit, attached)) = self.node.poll_attached(now, space)
            {
                let payload = self.node.attached(&attached);
                self.port.queue_attached(&transmit, attached.header_len, payload);
                burst.transmits += 1;
                messages += 1;
                bytes += transmit.len;
                continue;
            }
            let Some(mut transmit) = self.node.poll_transmit(now, space) else { break };
            let len = transmit.len;
            observer.handle_transmit(index, &mut transmit, &space[..len]);
            burst.transmits += 1;
            messages += if is_segmenting { 1 } else { transmit.datagram_count() };
            bytes += transmit.len;
            match (transmit.from, &mut self.raw) {
                (Source::Any | Source::Local(_) | Source::Toward(_), _) => {
                    self.port.queue(&transmit)
                }
                (Source::Spoofed(_), Some(raw)) => raw.send(&transmit, space),
                (Source::Spoofed(_), None) => {
                    metrics.dropped_no_raw += transmit.datagram_count().max(1) as u64
                }
            }
        }
        if burst.transmits > 0 {
            self.port.flush();
        }
        burst
    }
}

/// The transmits of a station in one turn.
struct Burst {
    /// Transmits that the node has handed out.
    transmits: usize,
    /// The turn's bound was reached before the node had handed out everything.
    is_full: bool,
    /// The device has yet to take what was sent.
    lacks_room: bool,
}

/// The turn's latest reading of the clock: one for each burst, made at its first datagram. An older
/// one would lie before the arrival of what came to a port while another was read.
struct Reading {
    /// The clock to read.
    clock: Clock,
    /// The reading, once made.
    now: Option<Time>,
}

impl Reading {
    #[inline]
    fn now(&mut self) -> Time {
        *self.now.get_or_insert_with(|| self.clock.now())
    }

    /// Drops the reading, so that what comes next has one of its own.
    #[inline]
    fn renew(&mut self) {
        self.now = None;
    }
}

/// Places in [`Driver::fds`].
#[cfg(feature = "tcp")]
const WAKER: usize = 0;
const EXTRA: usize = 1;
const STATIONS: usize = 2;

/// Error of a turn in a child.
const OF_PARENT: &str = "this process was forked after its sealed endpoint was opened, and would seal under the nonces of its parent: \
                         open it in the child";

/// A descriptor that ppoll passes over.
const NO_FD: i32 = -1;

/// Bytes of the longest transmit that goes whatever waits for the device: control packets and short
/// messages, as in Homa's kernel module (`defer_min_bytes`).
const OVERTAKING_LEN_MAX: usize = 1000;

/// Bursts that a turn receives besides its own before it looks at timers that are due.
const CATCH_UP_BURSTS_MAX: usize = 16;

/// Messages of one node in one turn, each a datagram or, where the device or the kernel segments, a
/// GSO batch: single datagrams cost 2.7 us each, so that whoever waits to be received waits for 170
/// us at most, or for a batch more than that.
const TURN_MESSAGES_MAX: usize = 64;

/// Bytes of one node in one turn: eight of the longest GSO batches, which cost about 6 us each.
const TURN_BYTES_MAX: usize = 1 << 19;
