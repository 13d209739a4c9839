//! Serving NetClone's published format: each datagram is a request, and each reply a datagram.
//!
//! | a request is | event | then |
//! |---|---|---|
//! | the clone of two | requests wait | discarded, without a word |
//! | any other, or a clone where none waits | | served, or dropped where the queue is full |
//! | served | its service ends | answered: `op`, `sid` and `load` are this server's, the rest is the request's |
//!
//! `load` is how many waited when the service ended, before the next of them began, as the published
//! server reports it; of services that threads compute, when the loop learns that they have ended. A request whose body is empty, as those of the published client are, gets a
//! service time that is drawn here. Packets of the published baselines, NoClone and C-Clone, are
//! answered at the same port.
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
use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_wire::netclone::{CloneMark, HEADER_LEN, Header, Op, PACKET_LEN, Packet, Plain};
use zerocopy::FromBytes;

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

/// A server, driven as any node.
pub(super) struct Port {
    /// Its own id, from 0.
    sid: u32,
    handler: RequestHandler<Asked>,
    /// Replies that are to be sent.
    outbox: Outbox,
    /// What workers are done with, empty between turns.
    done: Vec<(Asked, Work)>,
}

/// Replies that are to be sent, in buffers that are used again.
#[derive(Debug, Default)]
struct Outbox {
    /// In their order; at most [`OUTBOX_MAX`].
    queue: VecDeque<(Path, Vec<u8>)>,
    /// Buffers of replies that have been sent.
    spare: Vec<Vec<u8>>,
}

/// What a reply is made of besides its body.
#[derive(Clone, Copy, Debug)]
struct Asked {
    path: Path,
    /// The packet of the request, without its body.
    head: [u8; PACKET_LEN],
    head_len: u8,
    /// The request has a body, and so has the reply.
    has_body: bool,
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
            let config = handler_config(args, index, DATAGRAM_BYTES_MAX - PACKET_LEN as u64);
            let crew = args.crew_config(index);
            let crew = crew.map(|config| Crew::start(&config, &driver.waker())).transpose()?;
            let handler = RequestHandler::new(args.app.clone(), config, crew);
            let sid = args.server_id + index as u32;
            let node = Port { sid, handler, outbox: Outbox::default(), done: Vec::new() };
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
    /// Takes a request; `body` is what the application reads.
    fn take(&mut self, now: Time, asked: Asked, body: &[u8]) {
        if self.handler.leaves() {
            return;
        }
        if matches!(self.handler.app(), App::Echo) {
            if self.handler.crew.is_some() {
                let mut kept = self.outbox.spare.pop().unwrap_or_default();
                kept.extend_from_slice(body);
                // The queue counts what it does not take.
                self.handler.offer_echo(now, asked, kept);
                return;
            }
            self.handler.counts.requests += 1;
            return self.reply(asked, 0, |out| out.extend_from_slice(body));
        }
        // Nobody says how long to serve: the time is drawn here.
        let is_drawn = !asked.has_body && self.handler.app().draws_times();
        match self.handler.read(if is_drawn { &NO_TIME } else { body }) {
            // The queue counts what it does not take.
            Ok(task) => drop(self.handler.offer(now, asked, task)),
            Err(_) => self.handler.counts.malformed += 1,
        }
    }

    fn reply(&mut self, asked: Asked, load: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(reply) = self.outbox.push(asked.path) else {
            self.handler.counts.dropped_queue_full += 1;
            return;
        };
        reply.extend_from_slice(&asked.head[..usize::from(asked.head_len)]);
        if asked.has_body {
            write(reply);
        }
        // The first field of every format.
        reply[..4].copy_from_slice(&(Op::Response as u32).to_be_bytes());
        if asked.is_netclone()
            && let Ok((header, _)) = Header::mut_from_prefix(reply)
        {
            (header.sid, header.load) = (self.sid.into(), load.into());
        }
        self.handler.counts.replies += 1;
    }

    /// Answers what workers are done with.
    fn reply_computed(&mut self, now: Time) {
        let mut done = std::mem::take(&mut self.done);
        self.handler.poll_workers(now, |asked, work| done.push((asked, work)));
        let mut ended_later = done.len();
        for (asked, work) in done.drain(..) {
            ended_later -= 1;
            let crew = self.handler.crew.as_ref();
            let waiting = crew.map_or(0, |crew| crew.waiting_at_finish(ended_later));
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
        self.queue.push_back((path, self.spare.pop().unwrap_or_default()));
        self.queue.back_mut().map(|(_, reply)| reply)
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
        if self.spare.len() < SPARE_MAX {
            self.spare.push(buffer);
        }
    }
}

impl Asked {
    /// Reads a request; nothing for what is none.
    fn read(path: Path, bytes: &[u8]) -> Option<(Self, CloneMark, &[u8])> {
        let (mark, body) = match Plain::parse(bytes) {
            Ok(Plain::NoClone(Op::Request, _) | Plain::CClone(Op::Request, _)) => {
                (CloneMark::Single, &[][..])
            }
            Ok(_) => return None,
            Err(_) => {
                let packet = Packet::parse(bytes).ok()?;
                (packet.op == Op::Request).then_some((packet.mark, packet.body))?
            }
        };
        let (head, has_body) = (&bytes[..bytes.len() - body.len()], !body.is_empty());
        let mut kept = [0; PACKET_LEN];
        kept.get_mut(..head.len())?.copy_from_slice(head);
        let asked = Self { path, head: kept, head_len: head.len() as u8, has_body };
        Some((asked, mark, body))
    }

    /// It is of the format that a switch reads: the baselines' are shorter.
    fn is_netclone(&self) -> bool {
        let len = usize::from(self.head_len);
        len == PACKET_LEN || len == HEADER_LEN
    }
}

impl Node for Port {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.reply_finished(now);
        let Some((asked, mark, body)) = Asked::read(path, bytes) else {
            self.handler.counts.malformed += 1;
            return;
        };
        if mark == CloneMark::Clone && self.handler.waiting() > 0 {
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

/// Replies that may wait to be sent: as many as over UDP.
const OUTBOX_MAX: usize = 8_192;

/// Buffers kept for reuse.
const SPARE_MAX: usize = 256;

/// A service time that nobody asks for.
const NO_TIME: [u8; 8] = [0; 8];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::app::HandlerConfig;
    use crate::serve::emulated::Cancelled;
    use tailcut_measure::app::serving::Limits;
    use tailcut_wire::netclone::{CClone, NoClone, Trailer};
    use zerocopy::IntoBytes;

    fn port(app: &str) -> Port {
        let limits =
            Limits { service_ns_max: 1 << 30, payload_bytes_max: 100, reply_bytes_max: 100 };
        let config = HandlerConfig {
            worker_count: 1,
            queue_len_max: 10,
            limits,
            jitter: 0.0,
            cancelled: Cancelled::Runs,
            seed: 1,
            stream: 0,
        };
        let handler = RequestHandler::new(App::parse(app).unwrap(), config, None);
        Port { sid: 3, handler, outbox: Outbox::default(), done: Vec::new() }
    }

    fn send(port: &mut Port, now: Time, bytes: &[u8]) {
        let path = SocketAddr::from(([10, 0, 0, 1], 40_000)).into();
        port.handle_datagram(now, path, &mut bytes.to_vec());
    }

    fn replies(port: &mut Port, now: Time) -> Vec<Vec<u8>> {
        port.handle_timeout(now);
        let mut buffer = [0; 2_000];
        let next = || {
            let transmit = port.poll_transmit(now, &mut buffer)?;
            Some(buffer[..transmit.len].to_vec())
        };
        std::iter::from_fn(next).collect()
    }

    const TRAILER: Trailer = Trailer { stamp: [7; 8], address: [8; 16] };

    fn request(seq: u32, clo: u32, body: &[u8]) -> Vec<u8> {
        let header = Header {
            seq: seq.into(),
            grp: 5.into(),
            sid: 9.into(),
            clo: clo.into(),
            tidx: 1.into(),
            ..Header::default()
        };
        [header.as_bytes(), TRAILER.as_bytes(), body].concat()
    }

    #[test]
    fn a_reply_differs_from_its_request_in_three_fields() {
        let mut port = port("echo");
        let asked = request(7, 1, b"and more");
        send(&mut port, 0, &asked);
        let header =
            Header { op: 1.into(), sid: 3.into(), ..*Packet::parse(&asked).unwrap().header };
        assert_eq!(replies(&mut port, 0), [[header.as_bytes(), &asked[28..]].concat()]);
    }

    #[test]
    fn the_load_is_what_waits_before_the_next_begins_and_clones_are_discarded_there() {
        let mut port = port("synthetic:fixed:100ns");
        for seq in 1..=3 {
            send(&mut port, 0, &request(seq, 1, &[]));
        }
        // Two wait.
        send(&mut port, 0, &request(4, 2, &[]));
        assert_eq!(port.handler.counts.clones_discarded, 1);
        let loads = |replies: Vec<Vec<u8>>| {
            let header = |reply: &Vec<u8>| *Packet::parse(reply).unwrap().header;
            replies.iter().map(header).map(|it| (it.seq.get(), it.load.get())).collect::<Vec<_>>()
        };
        // However late it looks.
        assert_eq!(loads(replies(&mut port, 250)), [(1, 2), (2, 1)]);
        // One runs and none waits.
        send(&mut port, 250, &request(5, 2, &[]));
        assert_eq!(loads(replies(&mut port, 1_000)), [(3, 1), (5, 0)]);
        assert_eq!(port.handler.counts.clones_discarded, 1);
    }

    #[test]
    fn the_load_counts_what_ended_before_a_request_came() {
        let mut port = port("synthetic:fixed:100ns");
        send(&mut port, 0, &request(1, 0, &[]));
        send(&mut port, 0, &request(2, 0, &[]));
        send(&mut port, 150, &request(3, 0, &[]));
        let found = replies(&mut port, 400);
        let load = |reply: &Vec<u8>| Packet::parse(reply).unwrap().header.load.get();
        assert_eq!(found.iter().map(load).collect::<Vec<_>>(), [1, 1, 0]);
    }

    #[test]
    fn baselines_are_answered_by_their_length() {
        let mut port = port("synthetic:fixed:100ns");
        let plain = NoClone { op: 0.into(), key: 9.into(), trailer: TRAILER };
        let copy = CClone { op: 0.into(), key: 9.into(), seq: [1, 2, 3, 4], trailer: TRAILER };
        send(&mut port, 0, plain.as_bytes());
        send(&mut port, 0, copy.as_bytes());
        let replied = [
            NoClone { op: 1.into(), ..plain }.as_bytes().to_vec(),
            CClone { op: 1.into(), ..copy }.as_bytes().to_vec(),
        ];
        assert_eq!(replies(&mut port, 1_000), replied);
    }

    #[test]
    fn nothing_else_is_answered() {
        let mut port = port("echo");
        let asked = request(1, 0, &[]);
        let mut response = asked.clone();
        response[3] = 1;
        for bytes in [&asked[..27], &response, &[][..]] {
            send(&mut port, 0, bytes);
        }
        assert_eq!(replies(&mut port, 0), [[0; 0]; 0]);
        assert_eq!(port.handler.counts.malformed, 3);
    }
}
