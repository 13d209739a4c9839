//! Serving over TCP and TLS, at any number of ports.
//!
//! Replies leave in the order of a connection's requests, which is all that a stream has to match
//! them by; a service that ends before an earlier one of its connection waits for it.
//!
//! | a connection | then |
//! |---|---|
//! | says what is no request, or asks for more than the limits | it is closed |
//! | finds the queue full, for a stream has no way to refuse | it is closed |
//! | does not read its replies | it is not read from either |
//! | is open when the server drains | it is closed when what it has asked for is answered |
//!
//! Invariant: what is held for a connection is bounded: requests in number, unsent replies in bytes
//! but for the last one.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use tailcut_measure::app::serving::{Task, Tasks};
use tailcut_net::clock::Clock;
use tailcut_net::stream::{
    Connection, ConnectionId, Event, ListenerId, StreamConfig, Streams, TlsServer,
};
use tailcut_proto::node::Time;

use super::app::{RequestHandler, Work};
use super::crew::{Crew, Sleep};
use super::peer_log::PeerLog;
use super::report::{self, Snapshot};
use super::{Args, MESSAGE_BYTES_MAX, Numbered, Running, handler_config};

/// The ports and their connections.
pub(super) struct Listeners {
    pub(super) streams: Streams,
    ids: Vec<ListenerId>,
    addresses: Vec<SocketAddr>,
    handlers: Vec<RequestHandler<Who>>,
    /// By the index of the connection.
    lines: Vec<Option<Line>>,
    /// Connections with replies that had no room.
    stuck: Vec<ConnectionId>,
    /// Requests that workers are done with, empty between turns.
    done: Vec<(Who, Task)>,
    /// It drains.
    is_closed: bool,
    log: PeerLog,
}

/// A request of a connection.
#[derive(Clone, Copy, Debug)]
struct Who {
    id: ConnectionId,
    /// Counted over the connection's life.
    number: u64,
}

/// A connection's requests.
struct Line {
    id: ConnectionId,
    handler: usize,
    /// Nothing for echo.
    tasks: Option<Tasks>,
    /// Requests whose replies have not been written, in order; those that have been served hold
    /// what to say.
    due: VecDeque<Option<Task>>,
    /// Number of the first of them.
    first: u64,
    /// The peer sends no more.
    is_finished: bool,
}

impl Listeners {
    pub(super) fn open(
        args: &Args,
        tls: Option<&TlsServer>,
        places: Vec<Numbered>,
    ) -> Result<Self> {
        let config = StreamConfig { connections_max: CONNECTIONS_MAX, ..StreamConfig::default() };
        let mut streams =
            Streams::new(args.serving.polling.wait(), config).context("cannot set up polling")?;
        let (mut ids, mut addresses, mut handlers) = (Vec::new(), Vec::new(), Vec::new());
        for (index, place) in places {
            let address = place.address()?;
            let id = streams.listen(address, tls.cloned());
            let id = id.with_context(|| format!("cannot listen at {address}"))?;
            addresses.push(streams.listen_address(id).context("cannot tell the address")?);
            ids.push(id);
            let config = args.crew_config(index);
            let crew = config.map(|config| Crew::start(&config, &streams.waker())).transpose()?;
            handlers.push(RequestHandler::new(
                args.app.clone(),
                handler_config(args, index, MESSAGE_BYTES_MAX),
                crew,
            ));
        }
        let log = PeerLog::new(addresses.clone());
        Ok(Self {
            streams,
            ids,
            addresses,
            handlers,
            lines: Vec::new(),
            stuck: Vec::new(),
            done: Vec::new(),
            is_closed: false,
            log,
        })
    }

    pub(super) fn serve(&mut self, running: &mut Running) -> Result<()> {
        let mut look_at = running.life.look_at();
        loop {
            self.wait_for_events(look_at)?;
            let now = Clock.now();
            for index in 0..self.handlers.len() {
                self.finish_computed(index, now);
                while let Some((who, task)) = self.handlers[index].poll_finished(now) {
                    self.finish(index, who, task);
                }
                if let Some((who, task)) = self.handlers[index].spin_one() {
                    self.finish(index, who, task);
                }
            }
            for id in std::mem::take(&mut self.stuck) {
                self.say(id);
            }
            running.follow(now, |snapshot| self.fill(snapshot));
            if running.life.is_draining() && !self.is_closed {
                self.close();
            }
            if running.life.is_over(now, || !self.streams.is_empty()) {
                return Ok(());
            }
            let line_at = self.log.look(now, &self.streams);
            look_at = line_at.into_iter().chain(running.life.look_at()).min();
        }
    }

    /// Takes events, and waits for them where no worker has done something.
    fn wait_for_events(&mut self, look_at: Option<Time>) -> Result<()> {
        if self.handlers.iter().all(|handler| handler.crew.is_none()) {
            self.take_events(look_at)?;
            return Ok(());
        }
        if self.streams.keeps_turning() {
            // One look at a time: workers are looked at in between.
            if self.take_events(Some(0))? == 0 {
                self.streams.give_way();
            }
            return Ok(());
        }
        let crews = self.handlers.iter_mut().filter_map(|handler| handler.crew.as_mut());
        let sleep = crews.fold(Sleep::until(look_at), Sleep::tell);
        self.take_events(if sleep.is_idle { sleep.until } else { Some(0) })?;
        let crews = self.handlers.iter_mut().filter_map(|handler| handler.crew.as_mut());
        crews.for_each(|crew| crew.dispatcher.get_up());
        Ok(())
    }

    /// Answers what workers are done with, and gives them what has come.
    fn finish_computed(&mut self, handler: usize, now: Time) {
        let mut done = std::mem::take(&mut self.done);
        self.handlers[handler].poll_workers(now, |who, work| match work {
            Work::Task(task) => done.push((who, task)),
            Work::Echo(_) => unreachable!("a stream has no requests to echo"),
        });
        for (who, task) in done.drain(..) {
            self.finish(handler, who, task);
        }
        self.done = done;
    }

    /// Takes no connection and no request any more, and closes those to which nothing is due; the
    /// others close when they have been served.
    fn close(&mut self) {
        self.is_closed = true;
        self.streams.close_listeners();
        self.handlers.iter_mut().for_each(RequestHandler::close);
        for place in &mut self.lines {
            if let Some(line) = place
                && line.finish()
            {
                self.streams.close(line.id);
                *place = None;
            }
        }
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    pub(super) fn fill(&self, snapshot: &mut Snapshot) {
        snapshot.streams.push(self.streams.metrics());
        for handler in &self.handlers {
            snapshot.ports.push(report::Port::Connections(handler.counts));
            handler.add_times(&mut snapshot.times);
            snapshot.dispatch.extend(handler.crew.as_ref().map(Crew::metrics));
        }
    }

    /// Time at which there is something to do besides events.
    fn next(&self) -> Option<Time> {
        if self.handlers.iter().any(RequestHandler::has_to_spin) {
            return Some(0);
        }
        let stuck = (!self.stuck.is_empty()).then(|| Clock.now() + STUCK_AGAIN_NS);
        self.handlers.iter().filter_map(RequestHandler::next_finish).chain(stuck).min()
    }

    /// Takes events, and says how many.
    fn take_events(&mut self, look_at: Option<Time>) -> Result<usize> {
        let next = self.next().into_iter().chain(look_at).min();
        let Self { streams, ids, handlers, lines, log, .. } = self;
        let events = streams.poll(next, |connection, event| {
            let id = connection.id();
            if lines.len() <= id.index() {
                lines.resize_with(id.index() + 1, || None);
            }
            let place = &mut lines[id.index()];
            match event {
                Event::Accepted(listener) => {
                    let handler = ids.iter().position(|&id| id == listener).unwrap_or(0);
                    *place = Some(Line::new(id, handler, handlers[handler].tasks()));
                }
                Event::Bytes(bytes) => {
                    let Some(line) = place else { return };
                    // A connection that is about to close takes nothing more.
                    if handlers[line.handler].leaves() {
                        return;
                    }
                    let taken = line.take(bytes, connection, &mut handlers[line.handler]);
                    if let Err(why) = taken {
                        log.note(connection.peer(), why);
                        connection.close();
                        *place = None;
                    }
                }
                Event::Finished => {
                    // What is due is still said to a peer that may read it.
                    if place.as_mut().is_none_or(Line::finish) {
                        connection.close();
                        *place = None;
                    }
                }
                Event::Closed(reason) => {
                    log.note_end(connection.peer(), reason);
                    *place = None;
                }
                Event::Connected | Event::Sent(_) => {}
            }
        })?;
        Ok(events)
    }

    /// A service has ended; says it, unless an earlier one of the connection has not.
    fn finish(&mut self, handler: usize, who: Who, task: Task) {
        let line = self
            .lines
            .get_mut(who.id.index())
            .and_then(Option::as_mut)
            .filter(|line| line.id == who.id);
        let Some(line) = line else {
            self.handlers[handler].counts.dropped_queue_full += 1;
            return;
        };
        if let Some(place) = line.due.get_mut((who.number - line.first) as usize) {
            *place = Some(task);
        }
        self.say(who.id);
    }

    /// Writes the replies that are next, as far as there is room.
    fn say(&mut self, id: ConnectionId) {
        let Self { streams, handlers, lines, stuck, .. } = self;
        let Some(place) = lines.get_mut(id.index()) else { return };
        let Some(line) = place.as_mut().filter(|line| line.id == id) else { return };
        while let Some(Some(task)) = line.due.front() {
            let Some(output) = streams.output(id) else {
                stuck.push(id);
                break;
            };
            task.write_reply(output);
            handlers[line.handler].counts.replies += 1;
            line.due.pop_front();
            line.first += 1;
        }
        streams.flush(id);
        if line.is_finished && line.due.is_empty() {
            streams.close(id);
            *place = None;
        }
    }
}

impl Line {
    fn new(id: ConnectionId, handler: usize, tasks: Option<Tasks>) -> Self {
        Self { id, handler, tasks, due: VecDeque::new(), first: 0, is_finished: false }
    }

    /// Takes bytes.
    ///
    /// # Errors
    ///
    /// Why the connection is of no more use.
    fn take(
        &mut self,
        mut bytes: &[u8],
        connection: &mut Connection<'_>,
        handler: &mut RequestHandler<Who>,
    ) -> Result<(), &'static str> {
        let Some(tasks) = &mut self.tasks else {
            connection.output().extend_from_slice(bytes);
            return Ok(());
        };
        let now = Clock.now();
        while !bytes.is_empty() {
            let task = match tasks.take(&mut bytes) {
                Ok(None) => return Ok(()),
                Ok(Some(task)) => task,
                Err(_) => {
                    handler.counts.malformed += 1;
                    return Err("it said what is no request, or asked for too much");
                }
            };
            let who = Who { id: self.id, number: self.first + self.due.len() as u64 };
            if self.due.len() >= DUE_MAX || !handler.offer(now, who, task) {
                return Err("the queue is full");
            }
            self.due.push_back(None);
        }
        Ok(())
    }

    /// The peer sends no more; tells whether nothing is due to it.
    fn finish(&mut self) -> bool {
        self.is_finished = true;
        self.due.is_empty()
    }
}

/// Connections at a time.
const CONNECTIONS_MAX: usize = 16_384;

/// Requests of a connection without a reply.
const DUE_MAX: usize = 4_096;

/// Delay until a connection that had no room is looked at again.
const STUCK_AGAIN_NS: u64 = 1_000_000;
