//! The clients of a gateway, and the calls that are made for them.
//!
//! | a client | event | then |
//! |---|---|---|
//! | has connected | it says something | calls are made of it, as far as limits let |
//! | has calls under way | one ends | what it answers is written when its turn comes |
//! | any | its share of the memory is used up, and all of it | it ends |
//! | any | a request takes too long to come, an answer to be read, or it says nothing for too long | it ends |
//! | has calls under way | one is refused that has not run, for overload | it is called again a little later, up to its deadline |
//! | has asked for more than its group has room for | no room comes in time | what it asked for is refused |
//! | has calls under way | it ends | those that may run twice are cancelled, others run |
//!
//! Invariant: a client is read from while its session wants more and its answers are read; whoever
//! does not read holds up nobody else.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use tailcut_bridge::resp::keys::Groups;
use tailcut_bridge::{Call, Failed, Front, FrontKind, Limits, Route};
use tailcut_net::stream::{Connection, ConnectionId, Event as StreamEvent, Streams};
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::Time;
use tailcut_proto::rpc::{
    self, CallError, CallId, CallOptions, DropReason, Event, Failure, Lent, Rpc,
};

use super::group::{Group, Targets};
use crate::counters::Counters;
use crate::sidecar::Labelled;

/// Configuration of a desk.
#[derive(Debug)]
pub(super) struct DeskConfig {
    pub(super) app: FrontKind,
    /// Targets of each group of servers.
    pub(super) targets: Vec<Targets>,
    /// Group of each key.
    pub(super) groups: Groups,
    /// Longest time that a call may take, ns.
    pub(super) timeout_ns: u64,
    /// Bytes held for all clients.
    pub(super) memory_max: usize,
    /// Longest time that a request may take to come, and an answer to be read, ns.
    pub(super) client_ns_max: u64,
    /// Longest silence of a client, ns.
    pub(super) idle_ns_max: u64,
    pub(super) limits: Limits,
}

/// The clients, and their calls.
pub(super) struct Desk {
    config: DeskConfig,
    /// By the index of their connection.
    clients: Vec<Option<Client>>,
    /// Number of clients.
    count: usize,
    /// By the context of the call.
    calls: Slab<Outgoing>,
    /// Clients that have ended and whose calls have not; empty between turns.
    gone: Vec<Client>,
    /// Clients to look after; empty between turns.
    touched: Vec<ConnectionId>,
    /// Calls that were refused and are made again, and when.
    again: VecDeque<(Time, Outgoing)>,
    /// Groups of servers.
    groups: Vec<Group>,
    /// Clients that do not read, each once.
    stuck: Vec<ConnectionId>,
    /// Time of the next look at clients that do not read.
    stuck_at: Time,
    /// Bytes held for all.
    held: usize,
    /// Time of the next sweep, which checks all times.
    sweep_at: Time,
    counts: Counts,
}

/// A client.
#[derive(Debug)]
struct Client {
    id: ConnectionId,
    front: Front,
    /// A call that there was no room for.
    next: Option<Call>,
    /// Deadline of the call in `next`.
    deadline: Time,
    /// One was given up, and none has been made since: others that wait behind it are given up at
    /// once.
    is_starved: bool,
    /// Bytes of requests in calls under way.
    called_len: usize,
    /// It is among those that wait for this group.
    waits_for: Option<usize>,
    /// It is among those that do not read.
    is_stuck: bool,
    /// Bytes held for it, of those of all.
    held: usize,
    /// Time at which it last said something, or an answer was begun.
    active_at: Time,
    /// Since when a request has been coming.
    partial_since: Option<Time>,
    /// Since when nothing of what is written has been read, and what had been.
    unread_since: Option<(Time, u64)>,
    /// Calls under way that may run twice.
    reads: Vec<(u64, CallId)>,
}

/// A call under way.
#[derive(Clone, Debug)]
struct Outgoing {
    client: ConnectionId,
    ticket: u64,
    message: Arc<Vec<u8>>,
    route: Route,
    /// Group of servers.
    group: usize,
    is_idempotent: bool,
    deadline: Time,
    /// Times that it was refused because its server is stopping.
    stops: u32,
}

/// Counters of clients and their requests.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Connections of clients taken.
    clients: u64,
    /// Clients whose connection broke.
    clients_lost: u64,
    /// Calls begun.
    calls: u64,
    /// Calls made again: they were refused for overload, or by a server that stops.
    again: u64,
    /// Calls answered by a server.
    answered: u64,
    /// Calls that were refused and have not run.
    refused: u64,
    /// Calls without an answer that may have run.
    uncertain: u64,
    /// Calls without an answer by their deadline.
    timed_out: u64,
    /// Calls that a bridge refused with a text of its own.
    rejected: u64,
    /// Calls given up because their client went away.
    cancelled: u64,
    /// Clients disconnected because they used up the memory.
    ended_memory: u64,
    /// Clients disconnected because they did not finish a request.
    ended_partial: u64,
    /// Clients disconnected because they did not read their answers.
    ended_unread: u64,
    /// Clients disconnected because they were idle.
    ended_idle: u64,
}

impl Desk {
    /// No clients yet.
    pub(super) fn new(config: DeskConfig) -> Self {
        Self {
            groups: config.targets.iter().copied().map(Group::new).collect(),
            config,
            clients: Vec::new(),
            count: 0,
            calls: Slab::new(),
            gone: Vec::new(),
            touched: Vec::new(),
            again: VecDeque::new(),
            stuck: Vec::new(),
            stuck_at: Time::MAX,
            held: 0,
            sweep_at: 0,
            counts: Counts::default(),
        }
    }

    /// Takes how calls have ended.
    pub(super) fn take_events(&mut self, endpoint: &mut Endpoint, now: Time) {
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Replied { context, payload, .. } => {
                    self.counts.answered += 1;
                    if let Some(call) = self.take_call(context) {
                        let group = &mut self.groups[call.group];
                        group.window.note_answered(group.under_way + 1);
                        self.conclude(&call, Ok(payload));
                    }
                }
                Event::Failed { context, failure, text, .. } => {
                    if let Some(call) = self.take_call(context) {
                        self.handle_failed(now, call, (failure, &text));
                    }
                    endpoint.recycle(text);
                }
                // Nobody is to call a gateway; the request does not last long enough to be gone.
                Event::Request { id, .. } => {
                    let _ = endpoint.refuse(now, id, DropReason::Application);
                }
                Event::Cancelled { .. } => {}
            }
        }
        while self.again.front().is_some_and(|&(at, _)| at <= now) {
            let Some((_, call)) = self.again.pop_front() else { break };
            self.groups[call.group].under_way -= 1;
            self.call_again(endpoint, now, call);
        }
    }

    /// A call that has ended.
    fn take_call(&mut self, context: u64) -> Option<Outgoing> {
        let call = self.calls.try_remove(context as usize)?;
        self.groups[call.group].under_way -= 1;
        Some(call)
    }

    /// A call has no answer: it is made again where it has not run and might.
    fn handle_failed(&mut self, now: Time, mut call: Outgoing, (failure, text): (Failure, &[u8])) {
        let again_at = now.saturating_add(AGAIN_NS);
        let is_again = again_at < call.deadline
            && match failure {
                Failure::Refused(DropReason::Overload) => {
                    self.groups[call.group].window.note_overload(now);
                    true
                }
                Failure::Refused(DropReason::Stopping) => {
                    call.stops += 1;
                    call.stops <= STOPS_MAX
                }
                _ => false,
            };
        if is_again {
            self.counts.again += 1;
            self.groups[call.group].under_way += 1;
            self.again.push_back((again_at, call));
            return;
        }
        let failed = failed(failure, text);
        self.count_failed(&failed);
        self.conclude(&call, Err(failed));
    }

    /// A client gets the answer to a call.
    fn conclude(&mut self, call: &Outgoing, answer: Result<Vec<u8>, Failed>) {
        if let Some(client) = self.client(call.client) {
            client.reads.retain(|&(known, _)| known != call.ticket);
            client.called_len -= call.message.len();
            client.front.answer(call.ticket, answer);
            self.touched.push(call.client);
        }
    }

    /// Makes a call that was refused once more, if anybody wants it.
    fn call_again(&mut self, endpoint: &mut Endpoint, now: Time, call: Outgoing) {
        if call.is_idempotent && self.client(call.client).is_none() {
            return;
        }
        if let Err((call, failed)) = self.make(endpoint, now, call) {
            self.conclude(&call, Err(failed));
        }
    }

    /// Makes a call.
    fn make(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        call: Outgoing,
    ) -> Result<(), (Outgoing, Failed)> {
        let (target, fixed) = self.groups[call.group].targets.of(call.route);
        let options =
            CallOptions { idempotent: call.is_idempotent, fixed, ..CallOptions::default() };
        let entry = self.calls.vacant_entry();
        let (deadline, context) = (call.deadline, entry.key() as u64);
        let lent = Lent::new(call.message.clone());
        let made = rpc::Call { target, payload: Vec::new(), deadline, context, options };
        match endpoint.call_lent(now, made, lent) {
            Ok(id) => {
                let (client, ticket, is_idempotent) =
                    (call.client, call.ticket, call.is_idempotent);
                self.groups[call.group].under_way += 1;
                entry.insert(call);
                self.counts.calls += 1;
                if is_idempotent && let Some(client) = self.client(client) {
                    client.reads.retain(|&(known, _)| known != ticket);
                    client.reads.push((ticket, id));
                }
                Ok(())
            }
            Err(error) => {
                let failed = uncalled(error);
                self.count_failed(&failed);
                Err((call, failed))
            }
        }
    }

    /// Takes what has happened to a connection.
    pub(super) fn handle(
        &mut self,
        now: Time,
        connection: &Connection<'_>,
        event: &StreamEvent<'_>,
    ) {
        let id = connection.id();
        match event {
            StreamEvent::Accepted(_) => self.add(now, id),
            StreamEvent::Bytes(bytes) => {
                if let Some(client) = self.client(id) {
                    client.active_at = now;
                    client.front.receive(bytes);
                    self.touched.push(id);
                }
            }
            StreamEvent::Finished => {
                if let Some(client) = self.client(id) {
                    client.front.finish();
                    self.touched.push(id);
                }
            }
            StreamEvent::Closed(_) => {
                self.counts.clients_lost += 1;
                // Its place may be another's before it is looked after.
                let client = self.clients.get_mut(id.index());
                let client = client.and_then(|client| client.take_if(|client| client.id == id));
                self.gone.extend(client);
            }
            StreamEvent::Connected | StreamEvent::Sent(_) => {}
        }
    }

    /// Makes the calls that clients ask for, and writes their answers.
    pub(super) fn work(&mut self, endpoint: &mut Endpoint, now: Time, streams: &mut Streams) {
        while let Some(client) = self.gone.pop() {
            self.release(endpoint, now, client);
        }
        if now >= self.stuck_at {
            for id in std::mem::take(&mut self.stuck) {
                self.client(id).into_iter().for_each(|client| client.is_stuck = false);
                self.touched.push(id);
            }
            self.stuck_at = Time::MAX;
        }
        if now >= self.sweep_at {
            self.sweep(endpoint, now, streams);
        }
        // Who has waited comes before those who have been answered just now.
        for group in 0..self.groups.len() {
            let Group { waiting, .. } = &self.groups[group];
            let count = if self.groups[group].has_room() { waiting.len() } else { 0 };
            for rivals in (0..count).rev() {
                let Some(id) = self.groups[group].waiting.pop_front() else { break };
                let client = self.client(id).filter(|client| client.waits_for == Some(group));
                if let Some(client) = client {
                    client.waits_for = None;
                    self.look_after((endpoint, streams), now, id, Some((group, rivals)));
                }
            }
        }
        let mut touched = std::mem::take(&mut self.touched);
        for id in touched.drain(..) {
            self.look_after((endpoint, streams), now, id, None);
        }
        self.touched = touched;
    }

    /// No client says anything more: they end when they have been answered.
    pub(super) fn drain(&mut self) {
        for client in self.clients.iter_mut().flatten() {
            client.front.finish();
            self.touched.push(client.id);
        }
    }

    /// Clients that there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Calls under way.
    pub(super) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Calls that may be under way.
    pub(super) fn window(&self) -> u64 {
        self.groups.iter().map(|group| group.window.size()).sum()
    }

    /// Values of groups, where there are several: names, what they are, and the value of each by
    /// the destinations of its calls.
    pub(super) fn groups(&self) -> Vec<Labelled> {
        if self.groups.len() < 2 {
            return Vec::new();
        }
        let of = |value: fn(&Group) -> u64| {
            let values = self.groups.iter();
            values.map(|group| (group.targets.name(), value(group))).collect()
        };
        vec![
            ("group_outstanding_calls", "Calls under way.", of(|group| group.under_way as u64)),
            ("group_window_calls", "Calls that may be under way.", of(|group| group.window.size())),
            (
                "group_waiting_clients",
                "Clients that wait for room.",
                of(|group| group.waiting.len() as u64),
            ),
        ]
    }

    /// Bytes held for clients.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Time at which it wants to work though nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let again = self.again.front().map(|&(at, _)| at);
        let times = (self.count > 0).then(|| self.sweep_at.min(self.stuck_at));
        again.into_iter().chain(times).min()
    }

    /// The counters by their names.
    pub(super) fn counters(&self) -> Counters {
        let Counts {
            clients,
            clients_lost,
            calls,
            again,
            answered,
            refused,
            uncertain,
            timed_out,
            rejected,
            cancelled,
            ended_memory,
            ended_partial,
            ended_unread,
            ended_idle,
        } = self.counts;
        [
            ("clients", clients),
            ("clients_lost", clients_lost),
            ("gateway_calls", calls),
            ("gateway_called_again", again),
            ("gateway_answered", answered),
            ("gateway_refused", refused),
            ("gateway_uncertain", uncertain),
            ("gateway_timed_out", timed_out),
            ("gateway_rejected", rejected),
            ("gateway_cancelled", cancelled),
            ("clients_ended_memory", ended_memory),
            ("clients_ended_partial", ended_partial),
            ("clients_ended_unread", ended_unread),
            ("clients_ended_idle", ended_idle),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .to_vec()
    }

    fn add(&mut self, now: Time, id: ConnectionId) {
        let index = id.index();
        if self.clients.len() <= index {
            self.clients.resize_with(index + 1, || None);
        }
        self.clients[index] = Some(Client {
            id,
            front: Front::new(self.config.app, self.config.limits, &self.config.groups),
            next: None,
            deadline: 0,
            is_starved: false,
            called_len: 0,
            waits_for: None,
            is_stuck: false,
            held: 0,
            active_at: now,
            partial_since: None,
            unread_since: None,
            reads: Vec::new(),
        });
        self.count += 1;
        self.counts.clients += 1;
    }

    fn client(&mut self, id: ConnectionId) -> Option<&mut Client> {
        self.clients.get_mut(id.index())?.as_mut().filter(|client| client.id == id)
    }

    /// Does for a client what can be done now; `turn` is the group that it has waited for, and how
    /// many others do.
    fn look_after(
        &mut self,
        (endpoint, streams): (&mut Endpoint, &mut Streams),
        now: Time,
        id: ConnectionId,
        turn: Option<(usize, usize)>,
    ) {
        let is_open = streams.is_open(id);
        let (mut is_stuck, mut made) = (false, 0);
        // What is answered makes room for what is called.
        let mut is_done = !is_open;
        while !is_done {
            let before = made;
            made = self.call(endpoint, now, (id, turn), made);
            let Some(client) = self.client(id) else { return };
            let Some(out) = streams.output(id) else {
                is_stuck = true;
                break;
            };
            let len = out.len();
            client.front.write(out);
            is_done = out.len() == len && made == before;
        }
        streams.flush(id);
        let is_hog = self.weigh(id, streams.unsent(id));
        let Some(client) = self.client(id) else { return };
        // What waits here is whole, and so was what has been called.
        let waits_for = client.next.as_ref().map(|call| call.group);
        let waits = waits_for.is_some();
        let is_partial = !waits && client.front.is_partial();
        let since = client.partial_since.filter(|_| made == 0).unwrap_or(now);
        client.partial_since = is_partial.then_some(since);
        if !is_open || is_hog || client.front.is_over() && !is_stuck {
            streams.close(id);
            let client = self.clients[id.index()].take();
            client.into_iter().for_each(|client| self.release(endpoint, now, client));
            return;
        }
        streams.set_reading(id, client.front.is_reading() && !is_stuck && !waits);
        let waited_for = client.waits_for;
        client.waits_for = waits_for.or(waited_for);
        let sticks = is_stuck && !std::mem::replace(&mut client.is_stuck, is_stuck);
        if sticks {
            self.stuck.push(id);
            self.stuck_at = self.stuck_at.min(now + STUCK_LOOK_NS);
        }
        if let Some(group) = waits_for.filter(|_| waits_for != waited_for) {
            self.groups[group].waiting.push_back(id);
        }
    }

    /// Counts what is held for a client; true if that is too much.
    fn weigh(&mut self, id: ConnectionId, unsent: usize) -> bool {
        let Some(client) = self.client(id) else { return false };
        let waiting = client.next.as_ref().map_or(0, |call| call.message.len());
        let before = std::mem::replace(
            &mut client.held,
            client.front.held() + unsent + waiting + client.called_len,
        );
        let now = client.held;
        self.held = self.held + now - before;
        let memory_max = self.config.memory_max;
        let is_hog = self.held > memory_max && now > memory_max / self.count.max(1);
        self.counts.ended_memory += u64::from(is_hog);
        is_hog
    }

    /// Makes the calls that a client asks for, as many as its share, of which `made` are; how many
    /// are then.
    fn call(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        (id, turn): (ConnectionId, Option<(usize, usize)>),
        mut made: usize,
    ) -> usize {
        loop {
            let timeout_ns = self.config.timeout_ns;
            let Some(client) = self.client(id) else { return made };
            if client.next.is_none() {
                let wait_ns = if client.is_starved { 0 } else { timeout_ns };
                client.deadline = now.saturating_add(wait_ns);
            }
            let next = client.next.take().or_else(|| client.front.poll_call());
            let Some(next) = next else { return made };
            let deadline = client.deadline;
            let group = &self.groups[next.group];
            let of_turn = turn.filter(|&(of, _)| of == next.group).map(|(_, rivals)| rivals);
            let has_room = group.has_room()
                && group.has_share(of_turn.unwrap_or(group.waiting.len()), made)
                && endpoint.may_call(group.targets.of(next.route).0, next.message.len());
            if !has_room && group.under_way > 0 {
                if now >= deadline {
                    self.give_up(id, next.ticket);
                    continue;
                }
                if let Some(client) = self.client(id) {
                    client.next = Some(next);
                }
                return made;
            }
            let Call { ticket, message, route, group, is_idempotent } = next;
            made += 1;
            if let Some(client) = self.client(id) {
                client.is_starved = false;
                client.called_len += message.len();
            }
            let deadline = if deadline > now { deadline } else { now.saturating_add(timeout_ns) };
            let message = Arc::new(message);
            let stops = 0;
            let call = Outgoing {
                client: id,
                ticket,
                message,
                route,
                group,
                is_idempotent,
                deadline,
                stops,
            };
            if let Err((call, failed)) = self.make(endpoint, now, call)
                && let Some(client) = self.client(id)
            {
                client.called_len -= call.message.len();
                client.front.answer(call.ticket, Err(failed));
            }
        }
    }

    /// No room has come in time for what a client asks for.
    fn give_up(&mut self, id: ConnectionId, ticket: u64) {
        let failed = Failed::Refused("no server has had room for it in time".to_owned());
        self.count_failed(&failed);
        if let Some(client) = self.client(id) {
            client.is_starved = true;
            client.front.answer(ticket, Err(failed));
        }
    }

    /// A client has gone.
    fn release(&mut self, endpoint: &mut Endpoint, now: Time, client: Client) {
        self.held -= client.held;
        self.count -= 1;
        for (ticket, id) in client.reads {
            endpoint.cancel(now, id);
            self.counts.cancelled += 1;
            let Self { calls, groups, .. } = self;
            calls.retain(|_, call| {
                let is_its = call.client == client.id && call.ticket == ticket;
                groups[call.group].under_way -= usize::from(is_its);
                !is_its
            });
        }
    }

    /// Ends clients that have let too much time pass, and has those looked after who have waited
    /// long enough.
    fn sweep(&mut self, endpoint: &mut Endpoint, now: Time, streams: &mut Streams) {
        self.sweep_at = now.saturating_add(SWEEP_NS);
        let (client_ns, idle_ns) = (self.config.client_ns_max, self.config.idle_ns_max);
        let has_passed = |since: Time, limit: u64| now.saturating_sub(since) >= limit;
        for index in 0..self.clients.len() {
            let Some(client) = &mut self.clients[index] else { continue };
            if client.next.is_some() && now >= client.deadline {
                self.touched.push(client.id);
            }
            let (written, unsent) = (streams.written(client.id), streams.unsent(client.id));
            client.unread_since = match client.unread_since {
                _ if unsent == 0 => None,
                Some((since, before)) if before == written => Some((since, before)),
                _ => Some((now, written)),
            };
            let is_partial = client.partial_since.is_some_and(|since| has_passed(since, client_ns));
            let is_unread =
                client.unread_since.is_some_and(|(since, _)| has_passed(since, client_ns));
            let is_idle =
                client.front.is_idle() && unsent == 0 && has_passed(client.active_at, idle_ns);
            self.counts.ended_partial += u64::from(is_partial);
            self.counts.ended_unread += u64::from(is_unread && !is_partial);
            self.counts.ended_idle += u64::from(is_idle && !is_partial);
            if (is_partial || is_unread || is_idle)
                && let Some(client) = self.clients[index].take()
            {
                streams.close(client.id);
                self.release(endpoint, now, client);
            }
        }
    }

    fn count_failed(&mut self, failed: &Failed) {
        let counts = &mut self.counts;
        *match failed {
            Failed::Refused(_) => &mut counts.refused,
            Failed::Uncertain(_) => &mut counts.uncertain,
            Failed::TimedOut => &mut counts.timed_out,
            Failed::Rejected(_) => &mut counts.rejected,
        } += 1;
    }
}

/// Reason why a call has no answer, for a client.
fn failed(failure: Failure, text: &[u8]) -> Failed {
    let words = |text: &str| text.to_owned();
    match failure {
        Failure::Deadline => Failed::TimedOut,
        Failure::Rejected { .. } => Failed::Rejected(String::from_utf8_lossy(text).into_owned()),
        Failure::Refused(DropReason::Application) => {
            Failed::Rejected(words("it cannot be called there"))
        }
        Failure::Refused(DropReason::TooLarge) => {
            Failed::Uncertain(words("the request or its answer is too long"))
        }
        Failure::Refused(DropReason::Uncertain) => {
            Failed::Uncertain(words("the server has gone, or is silent"))
        }
        Failure::Refused(DropReason::Panicked | DropReason::Unanswered) => {
            Failed::Uncertain(words("the server has not answered"))
        }
        Failure::Refused(reason) => Failed::Refused(words(match reason {
            DropReason::Overload => "too much waits for the servers",
            DropReason::Expired => "it has waited for a server for too long",
            DropReason::NoServer => "no server is in service",
            DropReason::Stopping => "the server is stopping, or cannot be reached",
            DropReason::NoKey => "the server does not have the key of this epoch",
            _ => "a server refuses it",
        })),
        Failure::ReplyTooLarge => Failed::Uncertain(words("the answer is too long")),
        failure => Failed::Uncertain(failure.to_string()),
    }
}

/// Reason why a call was not made.
fn uncalled(error: CallError) -> Failed {
    Failed::Refused(error.to_string())
}

/// Before a call that was refused is made again: about what stands in a queue that refuses.
const AGAIN_NS: u64 = 2_000_000;

/// Servers that are stopping, one after the other, that a call is tried at.
const STOPS_MAX: u32 = 3;

/// Between two looks at times.
const SWEEP_NS: u64 = 250_000_000;

/// Between two looks at clients that do not read.
const STUCK_LOOK_NS: u64 = 1_000_000;
