//! Serving over UDP: each datagram is a request, and each reply a datagram.
//!
//! UDP can refuse nothing: a request that is malformed, or that finds the queue full, is dropped
//! and counted.
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
use super::crew::Crew;
use super::report::{self, Snapshot};
use super::{Args, DATAGRAM_BYTES_MAX, Left, Numbered, Running, handler_config};
use crate::counters::PortSnapshot;

/// The ports.
pub(super) struct Ports {
    pub(super) driver: Driver<Port>,
    count: usize,
}

/// A port's application, driven as any node.
pub(super) struct Port {
    handler: RequestHandler<Path>,
    /// Replies that are to be sent.
    outbox: VecDeque<(Path, Vec<u8>)>,
    /// Buffers of replies that have been sent.
    spare: Vec<Vec<u8>>,
    /// What workers are done with, empty between turns.
    done: Vec<(Path, Work)>,
}

impl Ports {
    pub(super) fn open(args: &Args, places: Vec<Numbered>) -> Result<Self> {
        let mut driver =
            Driver::new(args.serving.polling.wait()).context("cannot set up polling")?;
        let count = places.len();
        let segmented_send =
            if args.no_coalescing { SegmentedSend::Off } else { SegmentedSend::On };
        let opening = Opening { segmented_send, ..Opening::default() };
        for (index, place) in places {
            let config = args.crew_config(index);
            let crew = config.map(|config| Crew::start(&config, &driver.waker())).transpose()?;
            let handler = RequestHandler::new(
                args.app.clone(),
                handler_config(args, index, DATAGRAM_BYTES_MAX),
                crew,
            );
            let (outbox, spare, done) = (VecDeque::new(), Vec::new(), Vec::new());
            let node = Port { handler, outbox, spare, done };
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
                if let Some((path, task)) = port.handler.spin_one() {
                    port.reply(path, |out| task.write_reply(out));
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
        let (mut is_idle, mut until) = (true, look_at);
        for index in 0..self.count {
            if let Some(crew) = &mut self.driver.node_mut(index).handler.crew {
                is_idle &= crew.dispatcher.fall_asleep();
                until = until.into_iter().chain(crew.dispatcher.next_look()).min();
            }
        }
        if is_idle {
            self.driver.wait(None, until)?;
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

impl Port {
    fn reply(&mut self, path: Path, write: impl FnOnce(&mut Vec<u8>)) {
        let mut reply = self.spare.pop().unwrap_or_default();
        write(&mut reply);
        self.send(path, reply);
    }

    fn send(&mut self, path: Path, reply: Vec<u8>) {
        if self.outbox.len() >= OUTBOX_MAX {
            self.handler.counts.dropped_queue_full += 1;
            self.recycle(reply);
            return;
        }
        self.handler.counts.replies += 1;
        self.outbox.push_back((path, reply));
    }

    /// Keeps a buffer for a later reply.
    fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            self.spare.push(buffer);
        }
    }

    /// Answers what workers are done with.
    fn reply_computed(&mut self, now: Time) {
        let mut done = std::mem::take(&mut self.done);
        self.handler.poll_workers(now, |path, work| done.push((path, work)));
        for (path, work) in done.drain(..) {
            match work {
                Work::Task(task) => self.reply(path, |out| task.write_reply(out)),
                Work::Echo(bytes) => self.send(path, bytes),
            }
        }
        self.done = done;
    }

    fn reply_finished(&mut self, now: Time) {
        while let Some((path, task)) = self.handler.poll_finished(now) {
            self.reply(path, |out| task.write_reply(out));
        }
    }
}

impl Node for Port {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        if matches!(self.handler.app(), App::Echo) {
            if self.handler.leaves() {
                return;
            }
            if self.handler.crew.is_some() {
                let mut request = self.spare.pop().unwrap_or_default();
                request.extend_from_slice(bytes);
                // The queue counts what it does not take.
                self.handler.offer_echo(now, path, request);
                return;
            }
            self.handler.counts.requests += 1;
            self.reply(path, |out| out.extend_from_slice(bytes));
            return;
        }
        self.reply_finished(now);
        match self.handler.read(bytes) {
            Ok(_) if self.handler.leaves() => {}
            // The queue counts what it does not take.
            Ok(task) => drop(self.handler.offer(now, path, task)),
            Err(_) => self.handler.counts.malformed += 1,
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.reply_finished(now);
    }

    fn poll_transmit(&mut self, _now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let (path, reply) = self.outbox.pop_front()?;
        let len = reply.len().min(buffer.len());
        buffer[..len].copy_from_slice(&reply[..len]);
        self.recycle(reply);
        Some(Transmit::single(path, len))
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
