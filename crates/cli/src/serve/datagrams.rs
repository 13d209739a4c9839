//! Serving over datagrams: each is a request, and each reply one.
//!
//! What lies around requests and replies is a [`Framing`]: nothing over plain UDP ([`Bare`]).
//! Datagrams can refuse nothing: a request that is malformed, or that finds the queue full, is
//! dropped and counted.
//!
//! Invariant: replies that wait to be sent are bounded; what is beyond is dropped and counted.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Driver;
use tailcut_net::log::DriverLog;
use tailcut_net::open::Opening;
use tailcut_net::udp::SegmentedSend;
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path, Time, Transmit};

use super::app::{App, RequestHandler, Work};
use super::crew::{Crew, Sleep};
use super::report::{self, Snapshot};
use super::{Args, DATAGRAM_BYTES_MAX, Left, Numbered, Running, handler_config};
use crate::counters::PortSnapshot;

/// Framing of requests and replies in their datagrams.
pub(super) trait Framing {
    /// Part of a request that its reply takes besides the body.
    type Asked: Copy + Send + 'static;

    /// The most bytes of a datagram that are not the application's.
    const FRAME_BYTES_MAX: usize;

    /// Reads a request and its body; nothing for what is none.
    fn read(path: Path, bytes: &[u8]) -> Option<(Self::Asked, &[u8])>;

    /// Path of the reply.
    fn path(asked: &Self::Asked) -> Path;

    /// True if another server has the request as well, so that it is not to wait here.
    fn is_clone(_asked: &Self::Asked) -> bool {
        false
    }

    /// True if a request without a body asks for a service time that is drawn here.
    fn draws_time(_asked: &Self::Asked) -> bool {
        false
    }

    /// Writes a reply to `out`, its body by `write`. `load` requests waited when its service ended.
    fn reply(
        &self,
        asked: &Self::Asked,
        load: u32,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    );
}

/// No framing: a datagram is the request, or the reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bare;

impl Framing for Bare {
    type Asked = Path;

    const FRAME_BYTES_MAX: usize = 0;

    fn read(path: Path, bytes: &[u8]) -> Option<(Path, &[u8])> {
        Some((path, bytes))
    }

    fn path(asked: &Path) -> Path {
        *asked
    }

    fn reply(
        &self,
        _asked: &Path,
        _load: u32,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        write(out);
    }
}

/// The ports.
pub(super) struct Ports<F: Framing> {
    pub(super) driver: Driver<Port<F>>,
    count: usize,
}

/// A port's application, driven as any node.
pub(super) struct Port<F: Framing> {
    framing: F,
    pub(super) handler: RequestHandler<F::Asked>,
    /// Replies that are to be sent.
    outbox: Outbox,
    /// Requests that workers are done with, empty between turns.
    done: Vec<(F::Asked, Work)>,
}

/// Replies that are to be sent, in buffers that are used again.
#[derive(Debug, Default)]
struct Outbox {
    /// In their order; at most [`OUTBOX_MAX`].
    queue: VecDeque<(Path, Vec<u8>)>,
    /// Buffers of replies that have been sent; at most [`SPARE_MAX`].
    spare: Vec<Vec<u8>>,
}

impl<F: Framing> Ports<F> {
    /// Opens them; `framing` is told the number of each.
    pub(super) fn open(
        args: &Args,
        places: Vec<Numbered>,
        framing: impl Fn(usize) -> F,
    ) -> Result<Self> {
        let mut driver =
            Driver::new(args.serving.polling.wait()).context("cannot set up polling")?;
        let count = places.len();
        let segmented_send =
            if args.no_segmented_send { SegmentedSend::Off } else { SegmentedSend::On };
        let opening = Opening { segmented_send, ..Opening::default() };
        for (index, place) in places {
            let crew = args.crew_config(index);
            let crew = crew.map(|config| Crew::start(&config, &driver.waker())).transpose()?;
            let config =
                handler_config(args, index, DATAGRAM_BYTES_MAX - F::FRAME_BYTES_MAX as u64);
            let handler = RequestHandler::new(args.app.clone(), config, crew);
            let node = Port::new(framing(index), handler);
            driver.add(node, place.open(&opening)?, None);
        }
        Ok(Self { driver, count })
    }

    pub(super) fn serve(&mut self, running: &mut Running) -> Result<()> {
        let mut log = DriverLog::default();
        loop {
            let mut left = Left::Nothing;
            let is_draining = running.life.is_draining();
            let turn = self.driver.turn_with(|_, port, now| {
                if is_draining {
                    port.handler.close();
                }
                port.reply_computed(now);
                // One service a turn, as over R2P2: what has arrived meanwhile is received before
                // the next.
                if let Some((asked, task)) = port.handler.spin_one() {
                    let load = port.handler.waiting();
                    port.reply(asked, load, |out| task.write_reply(out));
                }
                if port.handler.has_to_spin() {
                    left = Left::Requests;
                }
            })?;
            running.follow(turn.now, |snapshot| self.fill(snapshot));
            if running.life.is_over(turn.now, || self.is_busy()) {
                return Ok(());
            }
            let look_at = log.look(&self.driver, turn, |_, _| []);
            if left == Left::Nothing {
                let look_at = look_at.into_iter().chain(running.life.look_at()).min();
                self.wait(look_at)?;
            }
        }
    }

    /// Passes the time until there is something to do, unless a worker has done something.
    fn wait(&mut self, look_at: Option<Time>) -> Result<()> {
        if self.driver.keeps_turning() {
            return Ok(());
        }
        let mut sleep = Sleep::until(look_at);
        for index in 0..self.count {
            let crew = self.driver.node_mut(index).handler.crew.as_mut();
            sleep = crew.into_iter().fold(sleep, Sleep::tell);
        }
        if sleep.is_idle {
            self.driver.wait(None, sleep.until)?;
        }
        for index in 0..self.count {
            let crew = self.driver.node_mut(index).handler.crew.as_mut();
            crew.into_iter().for_each(|crew| crew.dispatcher.get_up());
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        let mut ports = (0..self.count).map(|index| self.driver.node(index));
        ports.any(|port| !port.handler.is_idle() || !port.outbox.is_empty())
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.count).map(|index| self.driver.port(index).local_address()).collect()
    }

    pub(super) fn fill(&self, snapshot: &mut Snapshot) {
        for index in 0..self.count {
            let (handler, port) = (&self.driver.node(index).handler, self.driver.port(index));
            snapshot.ports.push(report::Port::Datagrams(handler.counts, PortSnapshot::of(port)));
            handler.add_times(&mut snapshot.times);
            snapshot.dispatch.extend(handler.crew.as_ref().map(Crew::metrics));
        }
    }
}

impl<F: Framing> Port<F> {
    pub(super) fn new(framing: F, handler: RequestHandler<F::Asked>) -> Self {
        Self { framing, handler, outbox: Outbox::default(), done: Vec::new() }
    }

    /// Takes a request; `body` is what the application reads.
    fn take(&mut self, now: Time, asked: F::Asked, body: &[u8]) {
        if self.handler.leaves() {
            return;
        }
        if matches!(self.handler.app(), App::Echo) {
            if self.handler.crew.is_some() {
                let mut kept = self.outbox.empty();
                kept.extend_from_slice(body);
                if let Err(kept) = self.handler.offer_echo(now, asked, kept) {
                    self.outbox.recycle(kept);
                }
                return;
            }
            self.handler.counts.requests += 1;
            return self.reply(asked, 0, |out| out.extend_from_slice(body));
        }
        let is_drawn = F::draws_time(&asked) && self.handler.app().draws_times();
        match self.handler.read(if is_drawn { &NO_TIME } else { body }) {
            // The queue counts what it does not take.
            Ok(task) => drop(self.handler.offer(now, asked, task)),
            Err(_) => self.handler.counts.malformed += 1,
        }
    }

    fn reply(&mut self, asked: F::Asked, load: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(out) = self.outbox.push(F::path(&asked)) else {
            self.handler.counts.dropped_queue_full += 1;
            return;
        };
        self.framing.reply(&asked, load, out, write);
        self.handler.counts.replies += 1;
    }

    /// Answers what workers are done with.
    fn reply_computed(&mut self, now: Time) {
        let mut done = std::mem::take(&mut self.done);
        self.handler.poll_workers(now, |asked, work| done.push((asked, work)));
        // When the first of them ended.
        let crew = self.handler.crew.as_ref();
        let mut unfinished = crew.map_or(0, |crew| crew.dispatcher.len() + done.len());
        for (asked, work) in done.drain(..) {
            unfinished -= 1;
            let crew = self.handler.crew.as_ref();
            let waiting = crew.map_or(0, |crew| crew.waiting_at_finish(unfinished));
            let load = u32::try_from(waiting).unwrap_or(u32::MAX);
            match work {
                Work::Task(task) => self.reply(asked, load, |out| task.write_reply(out)),
                Work::Echo(bytes) => {
                    self.reply(asked, load, |out| out.extend_from_slice(&bytes));
                    self.outbox.recycle(bytes);
                }
            }
        }
        self.done = done;
    }

    fn reply_finished(&mut self, now: Time) {
        while let Some((asked, task, load)) = self.handler.poll_finished_with_load(now) {
            self.reply(asked, load, |out| task.write_reply(out));
        }
    }
}

impl Outbox {
    /// An empty reply behind the others, to be written; none where too many wait.
    fn push(&mut self, path: Path) -> Option<&mut Vec<u8>> {
        if self.queue.len() >= OUTBOX_MAX {
            return None;
        }
        let reply = self.empty();
        self.queue.push_back((path, reply));
        self.queue.back_mut().map(|(_, reply)| reply)
    }

    /// An empty buffer.
    fn empty(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Writes the next reply to `buffer`.
    fn poll(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (path, reply) = self.queue.pop_front()?;
        let len = reply.len().min(buffer.len());
        buffer[..len].copy_from_slice(&reply[..len]);
        self.recycle(reply);
        Some(Transmit::single(path, len))
    }

    /// Keeps a buffer for a later reply.
    fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            self.spare.push(buffer);
        }
    }
}

impl<F: Framing> Node for Port<F> {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.reply_finished(now);
        let Some((asked, body)) = F::read(path, bytes) else {
            self.handler.counts.malformed += 1;
            return;
        };
        if F::is_clone(&asked) && self.handler.waiting() > 0 {
            // It would run after what waits, when the original has been answered.
            self.handler.counts.clones_discarded += 1;
            return;
        }
        self.take(now, asked, body);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.reply_finished(now);
    }

    fn poll_transmit(&mut self, _now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.outbox.poll(buffer)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.handler.next_finish()
    }
}

/// Replies that may wait to be sent: one turn receives at most 64 messages, and each may be a GSO
/// batch of 64.
const OUTBOX_MAX: usize = 8_192;

/// Buffers kept for reuse, and how long each may be.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = GSO_BYTES_MAX;

/// A service time that nobody asks for.
const NO_TIME: [u8; 8] = [0; 8];
