//! The events of a run, and what they change.

use rand::{Rng, RngExt};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_proto::policy::WorkerId;
use tailcut_proto::reply_filter::Verdict;
use tailcut_proto::scheduler::{Cloning, Workers};

use super::client::{Answered, Departures};
use super::coordinator::Station;
use super::events::{Event, Events, Link, Mark, Packet, Standing};
use super::router::Router;
use super::server::{Admission, Found, Server};
use super::switch::Switch;
use super::{CloningError, Config, Copies, Counts, JITTER_FACTOR, Loser, Outcome, Scheme};
use crate::sojourn::Sojourns;
use crate::{PS_PER_NS, WARMUP_SHARE};

/// A simulation under way.
pub(super) struct Run<'a> {
    config: &'a Config,
    events: Events,
    departures: Departures,
    /// Draws pairs, groups and filter tables.
    placements: Generator,
    services: Services<'a>,
    switch: Switch,
    /// LAEDGE alone has one.
    station: Option<Station>,
    /// In the switch's place, where the scheme is a policy of the router.
    router: Option<Router>,
    /// From the switch to the coordinator or back, ps; 0 without one.
    detour_ps: u64,
    servers: Vec<Server>,
    answered: Answered,
    window: Window,
    /// Requests that have passed the switch.
    passed: u32,
    /// Time of workers within the window that services took, ps.
    busy_ps: f64,
    offered_per_s: f64,
    latency: Sojourns,
    counts: Counts,
}

/// The window of a run that is measured.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// The last request of the warm-up.
    warmup: u32,
    /// Time at which that request was sent, ps; 0 where there is none.
    start_ps: u64,
    /// Time at which the last request was sent, ps.
    end_ps: u64,
}

/// Draws what a copy takes.
struct Services<'a> {
    distribution: &'a Distribution,
    jitter: f64,
    copies: Copies,
    rng: Generator,
}

impl<'a> Run<'a> {
    /// The configuration has been checked.
    pub(super) fn new(config: &'a Config, seed: u64) -> Result<Self, CloningError> {
        let offered_per_s = config.load * config.capacity_per_s().ok_or(CloningError::Service)?;
        let departures = Departures::new(config.sending, offered_per_s, seed, ARRIVALS)?;
        Ok(Self {
            config,
            events: Events::default(),
            window: Window::new(config.requests, departures.clone()),
            departures,
            placements: generator(seed, PLACEMENTS),
            services: Services {
                distribution: &config.service,
                jitter: config.jitter,
                copies: config.copies,
                rng: generator(seed, SERVICES),
            },
            switch: Switch::new(config.scheme, config.servers.len()),
            station: (config.scheme == Scheme::Laedge).then(|| Station::new(config)),
            router: match config.scheme {
                Scheme::Routed(policy) => Some(Router::new(config, policy)),
                _ => None,
            },
            detour_ps: if config.scheme == Scheme::Laedge {
                config.delays.switch_coordinator_ps
            } else {
                0
            },
            servers: config.servers.iter().map(|&workers| Server::new(workers)).collect(),
            answered: Answered::new(config.requests),
            passed: 0,
            busy_ps: 0.0,
            offered_per_s,
            latency: Sojourns::new(),
            counts: Counts::default(),
        })
    }

    /// Runs until the last request has been sent.
    pub(super) fn finish(mut self) -> Outcome {
        let entry_ps = self.config.delays.client_switch_ps.saturating_add(self.detour_ps);
        for _ in 0..self.config.requests {
            let Some(sent_ps) = self.departures.next() else {
                break;
            };
            let enters_ps = sent_ps.saturating_add(entry_ps);
            self.handle_events(enters_ps);
            self.handle_request(enters_ps, sent_ps);
        }
        self.handle_events(self.window.end_ps);
        let worker_ps =
            self.config.workers() as f64 * (self.window.end_ps - self.window.start_ps) as f64;
        let utilisation = if worker_ps > 0.0 { self.busy_ps / worker_ps } else { 0.0 };
        Outcome {
            latency: self.latency,
            counts: self.counts,
            utilisation,
            offered_per_s: self.offered_per_s,
        }
    }

    fn handle_events(&mut self, until_ps: u64) {
        while let Some((now_ps, event)) = self.events.pop_until(until_ps) {
            match event {
                Event::Reached(server, packet) => self.handle_reached(now_ps, server, packet),
                Event::Finished(server, packet) => self.handle_finished(now_ps, server, packet),
                Event::Returned(server, packet, report) => {
                    self.handle_returned(now_ps, (server, report), packet)
                }
                Event::Heard(server, standing) => self.handle_heard(now_ps, server, standing),
                Event::Cancelled(server, packet) => self.handle_cancelled(now_ps, server, packet),
                Event::RequestDone(packet) => self.handle_request_done(now_ps, packet),
                Event::ResponseDone(server, packet) => {
                    self.handle_response_done(now_ps, server, packet)
                }
            }
        }
    }

    /// A request passes the switch, or comes to the coordinator.
    fn handle_request(&mut self, now_ps: u64, sent_ps: u64) {
        self.passed += 1;
        let table = (self.placements.next_u32() >> 31) as u8;
        let packet = Packet {
            sent_ps,
            base_ps: self.services.shared_base(),
            id: self.passed,
            mark: Mark::Sole,
            table,
            other: None,
        };
        self.counts.sent += self.measured(&packet);
        if let Some(station) = &mut self.station {
            let done_ps = station.serve(now_ps);
            self.events.post(done_ps, Event::RequestDone(packet));
            return;
        }
        if self.router.is_some() {
            return self.route(now_ps, packet);
        }
        let placement = self.switch.place(self.placements.next_u64());
        let servers = Workers::of(placement, Cloning::Allowed).expect("every server is in service");
        let reached_ps = now_ps.saturating_add(self.config.delays.switch_server_ps);
        self.send_copies(reached_ps, servers, packet);
    }

    /// The router places a request, or holds it.
    fn route(&mut self, now_ps: u64, packet: Packet) {
        let (random, measured) = (self.placements.next_u64(), self.measured(&packet));
        let Some(router) = &mut self.router else { return };
        self.counts.queue_len_sum += measured * router.queue_len();
        let placed = router.place(packet, random);
        self.counts.queue_len_max = self.counts.queue_len_max.max(router.queue_len());
        match placed {
            Some(servers) => self.dispatch(now_ps, servers, packet),
            None => self.counts.held += measured,
        }
    }

    /// The router hears that a copy is concluded, and sends what it holds where there is room.
    fn handle_heard(&mut self, now_ps: u64, server: WorkerId, standing: Standing) {
        let Some(router) = &mut self.router else { return };
        router.note(server, standing);
        loop {
            let random = self.placements.next_u64();
            let placed = self.router.as_mut().and_then(|router| router.poll_placed(random));
            let Some((servers, packet)) = placed else { return };
            self.dispatch(now_ps, servers, packet);
        }
    }

    /// Tells the router of a copy that its server has concluded.
    fn tell(&mut self, now_ps: u64, server: WorkerId) {
        if self.router.is_some() {
            let heard_ps = now_ps.saturating_add(self.config.delays.switch_server_ps);
            let standing = self.servers[server.index()].standing();
            self.events.send(Link::Feedback, heard_ps, Event::Heard(server, standing));
        }
    }

    /// Sends a request to each of its servers; the original will come to its own at `reached_ps`.
    fn send_copies(&mut self, reached_ps: u64, servers: Workers, packet: Packet) {
        let is_cloned = servers.into_iter().count() > 1;
        if is_cloned {
            self.counts.cloned += self.measured(&packet);
        }
        // A client, a coordinator and a router send both at once; a switch recirculates the clone.
        let is_switch = matches!(self.config.scheme, Scheme::NetClone | Scheme::NetCloneRackSched);
        let recirculation_ps = if is_switch { self.config.delays.recirculation_ps } else { 0 };
        let is_marked = is_cloned && (is_switch || self.router.is_some());
        let marks = if is_marked { [Mark::Original, Mark::Clone] } else { [Mark::Sole; 2] };
        let [first, last] =
            [servers.first(), servers.into_iter().last().unwrap_or(servers.first())];
        for (server, mark) in servers.into_iter().zip(marks) {
            let other = is_cloned.then_some(if server == first { last } else { first });
            let (link, delay_ps) = match mark {
                Mark::Sole | Mark::Original => (Link::Requests, 0),
                Mark::Clone => (Link::Clones, recirculation_ps),
            };
            let reached = Event::Reached(server, Packet { mark, other, ..packet });
            self.events.send(link, reached_ps.saturating_add(delay_ps), reached);
        }
    }

    fn handle_reached(&mut self, now_ps: u64, server: WorkerId, packet: Packet) {
        match self.servers[server.index()].admit(packet, self.config.discard) {
            Admission::Start => self.start(now_ps, server, packet),
            Admission::Wait => {}
            Admission::Discard => {
                self.counts.discarded += self.measured(&packet);
                self.tell(now_ps, server);
            }
        }
    }

    fn start(&mut self, now_ps: u64, server: WorkerId, packet: Packet) {
        let finish_ps = now_ps.saturating_add(self.services.draw_ps(&packet));
        let (from_ps, to_ps) =
            (now_ps.max(self.window.start_ps), finish_ps.min(self.window.end_ps));
        self.busy_ps += to_ps.saturating_sub(from_ps) as f64;
        if self.config.loser != Loser::Runs {
            self.servers[server.index()].note_started(packet.id, finish_ps);
        }
        self.events.post(finish_ps, Event::Finished(server, packet));
    }

    /// The client has an answer: tells the other server, where it does.
    fn cancel_other(&mut self, received_ps: u64, packet: &Packet) {
        let Some(other) = packet.other.filter(|_| self.config.loser != Loser::Runs) else { return };
        self.counts.told += self.measured(packet);
        let delays = self.config.delays;
        let way_ps = delays.client_switch_ps.saturating_add(delays.switch_server_ps);
        let told_ps = received_ps.saturating_add(way_ps);
        self.events.send(Link::Cancels, told_ps, Event::Cancelled(other, *packet));
    }

    /// A server hears that nobody waits for its copy of a request. It concludes it now, whether its
    /// worker can be stopped or not.
    fn handle_cancelled(&mut self, now_ps: u64, server: WorkerId, packet: Packet) {
        let measured = self.measured(&packet);
        match self.servers[server.index()].cancel(packet.id) {
            Found::Ended => return,
            Found::Waiting => self.counts.withdrawn += measured,
            Found::Running(finish_ps) if self.config.loser == Loser::Stops => {
                self.counts.stopped += measured;
                let (from_ps, to_ps) =
                    (now_ps.max(self.window.start_ps), finish_ps.min(self.window.end_ps));
                self.busy_ps -= to_ps.saturating_sub(from_ps) as f64;
                self.free_worker(now_ps, server);
            }
            Found::Running(_) => {}
        }
        self.tell(now_ps, server);
    }

    /// A worker is free and starts the next; what the server reports then.
    fn free_worker(&mut self, now_ps: u64, server: WorkerId) -> u32 {
        let (report, next) = self.servers[server.index()].finish(self.config.report);
        if let Some(next) = next {
            self.start(now_ps, server, next);
        }
        report
    }

    fn handle_finished(&mut self, now_ps: u64, server: WorkerId, packet: Packet) {
        if self.config.loser != Loser::Runs && self.servers[server.index()].note_finished(packet.id)
        {
            // What was stopped has given its worker back before.
            if self.config.loser == Loser::Leaves {
                self.free_worker(now_ps, server);
            }
            return;
        }
        let report = self.free_worker(now_ps, server);
        let returned_ps = now_ps
            .saturating_add(self.config.delays.switch_server_ps)
            .saturating_add(self.detour_ps);
        self.events.send(Link::Responses, returned_ps, Event::Returned(server, packet, report));
        self.tell(now_ps, server);
    }

    /// A response passes the switch or the router, or comes to the coordinator.
    fn handle_returned(&mut self, now_ps: u64, (server, report): (WorkerId, u32), packet: Packet) {
        if let Some(station) = &mut self.station {
            let done_ps = station.serve(now_ps);
            self.events.post(done_ps, Event::ResponseDone(server, packet));
        } else if self.router.is_some()
            || self.switch.pass(server, &packet, report) == Verdict::Forward
        {
            self.handle_reply(now_ps.saturating_add(self.config.delays.client_switch_ps), &packet);
        } else {
            self.counts.filtered += self.measured(&packet);
        }
    }

    /// The coordinator places a request, or holds it.
    fn handle_request_done(&mut self, now_ps: u64, packet: Packet) {
        let (random, measured) = (self.placements.next_u64(), self.measured(&packet));
        let station = self.station.as_mut().expect(ONLY_LAEDGE);
        self.counts.queue_len_sum += measured * station.queue_len();
        let placed = station.place(packet, random);
        self.counts.queue_len_max = self.counts.queue_len_max.max(station.queue_len());
        match placed {
            Some(servers) => self.dispatch(now_ps, servers, packet),
            None => self.counts.held += measured,
        }
    }

    /// The coordinator forwards a first response, and sends a held request where there is room now.
    fn handle_response_done(&mut self, now_ps: u64, server: WorkerId, packet: Packet) {
        let random = self.placements.next_u64();
        let (is_first, held) =
            self.station.as_mut().expect(ONLY_LAEDGE).respond(server, &packet, random);
        if is_first {
            let to_client_ps = self.detour_ps.saturating_add(self.config.delays.client_switch_ps);
            self.handle_reply(now_ps.saturating_add(to_client_ps), &packet);
        } else {
            self.counts.filtered += self.measured(&packet);
        }
        if let Some((servers, packet)) = held {
            self.dispatch(now_ps, servers, packet);
        }
    }

    /// The coordinator or the router sends to one server or to two.
    fn dispatch(&mut self, now_ps: u64, servers: Workers, packet: Packet) {
        let reached_ps = now_ps
            .saturating_add(self.detour_ps)
            .saturating_add(self.config.delays.switch_server_ps);
        self.send_copies(reached_ps, servers, packet);
    }

    /// A response that will come to the client at `received_ps`; responses are told in that order.
    fn handle_reply(&mut self, received_ps: u64, packet: &Packet) {
        if !self.answered.is_first(packet.id) {
            self.counts.duplicates += self.measured(packet);
            return;
        }
        self.cancel_other(received_ps, packet);
        if received_ps <= self.window.start_ps || received_ps > self.window.end_ps {
            return;
        }
        self.counts.completed += 1;
        if self.measured(packet) == 1 {
            self.latency.record(received_ps - packet.sent_ps);
        }
    }

    /// 1 for a packet of a request that was sent after the warm-up.
    fn measured(&self, packet: &Packet) -> u64 {
        u64::from(packet.id > self.window.warmup)
    }
}

impl Window {
    /// Looks ahead at the departures, so that completions are counted to the picosecond.
    fn new(requests: u32, mut departures: Departures) -> Self {
        let warmup = requests / WARMUP_SHARE as u32;
        let start_ps =
            warmup.checked_sub(1).and_then(|at| departures.nth(at as usize)).unwrap_or(0);
        let left = requests - warmup;
        let end_ps = departures.nth(left as usize - 1).unwrap_or(start_ps);
        Self { warmup, start_ps, end_ps }
    }
}

impl Services<'_> {
    /// The base that both copies of a request share; 0 where they share none.
    fn shared_base(&mut self) -> u64 {
        match self.copies {
            Copies::Fresh => 0,
            Copies::Shared => self.base_ps(),
        }
    }

    /// The service time of a copy that starts now.
    fn draw_ps(&mut self, packet: &Packet) -> u64 {
        let base_ps = match self.copies {
            Copies::Fresh => self.base_ps(),
            Copies::Shared => packet.base_ps,
        };
        if self.rng.random_bool(self.jitter) {
            base_ps.saturating_mul(JITTER_FACTOR as u64)
        } else {
            base_ps
        }
    }

    fn base_ps(&mut self) -> u64 {
        // The cast saturates.
        (self.distribution.sample(&mut self.rng) * PS_PER_NS as f64).round() as u64
    }
}

const ONLY_LAEDGE: &str = "only LAEDGE sends to a coordinator";
/// Streams of the generator; the clients' are this one and those after it.
const ARRIVALS: u64 = 16;
const PLACEMENTS: u64 = 1;
const SERVICES: u64 = 2;
