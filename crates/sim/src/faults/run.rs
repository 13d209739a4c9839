//! Carries a plan out, event by event.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::{Node, Time};
use tailcut_proto::r2p2::{AskCookies, Cloning, Config};
use tailcut_proto::router::{Forward, Router, RouterConfig, ServerConfig, ServerStatus, Speaks};
use tailcut_proto::stream::Streams;
use tailcut_proto::{homa, r2p2};

use super::application::Applications;
use super::host::{Sabotage, Station};
use super::hosted::Hosted;
use super::hostile;
use super::plan::{Fault, FaultKind, Host, Plan, Transport};
use super::streams::{self, Flows};
use super::watch::Watch;
use super::{Coverage, Effect, Invariant, Options, Report, Violation};
use crate::clock::Clock;
use crate::impair::{Bursts, Impairment};
use crate::member::Member;
use crate::network::{Damage, HostDelays, Network};

/// Runs a plan to its end, or to the first invariant that does not hold.
pub fn run(plan: &Plan, options: Options) -> Report {
    let watch = Rc::new(RefCell::new(Watch::new(plan, options)));
    let result = catch_unwind(AssertUnwindSafe(|| Run::new(plan, &watch, options).complete()));
    let mut report = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let detail = text.unwrap_or_else(|| "a panic without a message".to_owned());
        let violation = Violation { invariant: Invariant::NoPanic, at: watch.borrow().now, detail };
        Report { violation: Some(violation), ..Report::default() }
    });
    report.trace = watch.borrow_mut().take_trace();
    report.costs = std::mem::take(&mut watch.borrow_mut().costs);
    report
}

/// A plan under way.
pub(super) struct Run<'a> {
    pub(super) plan: &'a Plan,
    pub(super) options: Options,
    pub(super) network: Network<Station>,
    pub(super) watch: Rc<RefCell<Watch>>,
    pub(super) applications: Applications<'a>,
    flows: Flows<'a>,
    /// The steps of the plan that are to come, latest last.
    script: Vec<(Time, Step)>,
    /// By fault: true if it is active now.
    is_active: Vec<bool>,
    /// Time by which the clocks of hosts have leapt, by place.
    leaps: Vec<u64>,
    pub(super) coverage: Coverage,
}

/// A step of the script.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(usize),
    End(usize),
    Call(u32),
    Cancel(u32),
    Connect(u32),
    /// A datagram of a stranger, by its fault and its number.
    Forged(usize, u64),
    /// A host takes the file of keys with this index.
    Keys(Host, u64),
    /// A look at what routers know of the server of this fault.
    Judge(usize),
    /// A look whether all is quiet, after the faults.
    Look,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, watch: &Rc<RefCell<Watch>>, options: Options) -> Self {
        let network = match &plan.topology {
            Some(topology) => Network::over(topology, plan.hosts().count() as u32, plan.seed),
            None => Network::new(),
        };
        let mut run = Self {
            plan,
            options,
            network,
            watch: Rc::clone(watch),
            applications: Applications::new(plan, watch, options.sabotage),
            flows: Flows::new(plan, watch),
            script: script(plan),
            is_active: vec![false; plan.faults.len()],
            leaps: vec![0; plan.hosts().count()],
            coverage: Coverage::default(),
        };
        run.network.set_damage(plan.damage);
        for host in plan.hosts() {
            let station = run.station(host);
            let place = run.network.add(
                host.address(),
                station,
                run.impairment(host),
                run.seed_of(host, 0),
            );
            run.network.set_clock(place, plan.clock(host));
            if let Some(transit_ns_max) = plan.transit_ns_max(host) {
                run.network.set_transit_ns_max(place, transit_ns_max);
            }
        }
        run
    }

    fn complete(mut self) -> Report {
        while self.watch.borrow().violation.is_none() {
            let Some(&(script_at, step)) = self.script.last() else { break };
            let network_at = self.network.next_time().unwrap_or(Time::MAX);
            let now = network_at.min(script_at);
            self.watch.borrow_mut().now = now;
            if network_at <= script_at {
                let (applications, flows) = (&mut self.applications, &mut self.flows);
                self.network.step(now, |turn| {
                    applications.turn(turn);
                    flows.turn(turn);
                });
            } else {
                self.network.run(now, |turn| {
                    unreachable!("nothing is due before the script at place {}", turn.place)
                });
                self.script.pop();
                self.take(now, step);
            }
            self.applications.check_due(now);
            self.check_storm();
        }
        self.report()
    }

    /// Notes datagrams that beget each other without end.
    fn check_storm(&self) {
        let mut watch = self.watch.borrow_mut();
        if watch.left > LEFT_MAX {
            watch.violate(Invariant::Amplification, || format!("{LEFT_MAX} datagrams have left"));
        }
    }

    fn take(&mut self, now: Time, step: Step) {
        match step {
            Step::Begin(fault) => self.begin(fault, now),
            Step::End(fault) => self.end(fault, now),
            Step::Call(number) => {
                let host = Host::Client(self.plan.calls[number as usize].client);
                if self.is_down(host) {
                    return self.applications.call_of_the_dead(number, now);
                }
                if self.is_paused(host) {
                    return self.applications.call_of_the_paused(number, now);
                }
                let place = self.plan.place(host);
                let times = (now, self.network.local(place));
                self.applications.call(number, self.network.node_mut(place), times);
                if !self.is_another_with(host, now) {
                    self.network.flush(place);
                }
            }
            Step::Cancel(number) => {
                let place = self.plan.place(Host::Client(self.plan.calls[number as usize].client));
                let times = (now, self.network.local(place));
                self.applications.cancel(number, self.network.node_mut(place), times);
                self.network.flush(place);
            }
            Step::Connect(number) => self.connect(number, now),
            Step::Forged(fault, count) if self.plan.seal.is_some() => self.intrude(fault, count),
            Step::Forged(fault, count) => self.forge(fault, count),
            Step::Keys(host, index) => self.renew_keys(host, index),
            Step::Judge(fault) => self.judge_routers(fault),
            Step::Look => self.look(now),
        }
    }

    /// True if the next step is another call that leaves together with the last one of this client.
    fn is_another_with(&self, host: Host, now: Time) -> bool {
        let is_its = |step: Step| match step {
            Step::Call(next) => Host::Client(self.plan.calls[next as usize].client) == host,
            _ => false,
        };
        let next = self.script.last().filter(|_| self.plan.is_together);
        next.is_some_and(|&(at, step)| at == now && is_its(step))
    }

    fn connect(&mut self, number: u32, now: Time) {
        let host = Host::Client(self.plan.streams[number as usize].client);
        if self.is_down(host) || self.is_paused(host) {
            return self.flows.not_opened(number, now);
        }
        let place = self.plan.place(host);
        let times = (now, self.network.local(place));
        self.flows.connect(number, self.network.node_mut(place), times);
        self.network.flush(place);
    }

    /// A host has lost what it knew.
    pub(super) fn crashed(&mut self, host: Host, now: Time) {
        self.watch.borrow_mut().crashed(host);
        self.applications.crashed(host, now);
        self.flows.crashed(host, now);
    }

    /// A stranger's datagram arrives.
    fn forge(&mut self, fault: usize, count: u64) {
        let FaultKind::Hostile { attack, .. } = self.plan.faults[fault].kind else { return };
        let forged = hostile::forge(self.plan, attack, count, &self.watch.borrow());
        let is_heard = |host| !self.is_down(host) && !self.is_paused(host);
        let Some(mut forged) = forged.filter(|forged| is_heard(forged.to)) else { return };
        let place = self.plan.place(forged.to);
        let local = self.network.local(place);
        self.network.node_mut(place).handle_datagram(local, forged.from.into(), &mut forged.bytes);
        self.network.flush(place);
    }

    fn begin(&mut self, index: usize, now: Time) {
        let fault = self.plan.faults[index];
        self.watch.borrow_mut().say(|| format!("begins: {fault}"));
        self.coverage.faults[fault.kind.index()] += 1;
        if let FaultKind::Crash { host } = fault.kind
            && !self.is_down(host)
        {
            self.crashed(host, now);
            self.network.set_up(self.plan.place(host), false);
        }
        self.is_active[index] = true;
        self.apply(&fault, now);
    }

    fn end(&mut self, index: usize, now: Time) {
        let fault = self.plan.faults[index];
        self.watch.borrow_mut().say(|| format!("ends: {fault}"));
        self.is_active[index] = false;
        if let FaultKind::Crash { host } = fault.kind
            && !self.is_down(host)
        {
            let place = self.plan.place(host);
            let station = self.station(host);
            self.network.replace(place, station);
            self.network.flush(place);
        }
        self.apply(&fault, now);
    }

    /// Makes what a fault concerns as the active faults say.
    fn apply(&mut self, fault: &Fault, now: Time) {
        match fault.kind {
            FaultKind::Loss { .. }
            | FaultKind::Bursts { .. }
            | FaultKind::Duplicates { .. }
            | FaultKind::Corruption { .. }
            | FaultKind::Jitter { .. }
            | FaultKind::Reordering { .. } => {
                for host in self.plan.hosts() {
                    let (place, seed) = (self.plan.place(host), self.seed_of(host, now));
                    self.network.impair(place, self.impairment(host), seed);
                }
            }
            FaultKind::OneWayPartition { from, to } => self.separate(from, to),
            FaultKind::Partition { one, other } => {
                self.separate(one, other);
                self.separate(other, one);
            }
            FaultKind::Crash { .. } | FaultKind::Hostile { .. } => {}
            FaultKind::Pause { host } => self.pause(host, now),
            FaultKind::ClockJump { host, by_ns } => self.leap(fault, host, by_ns),
            FaultKind::FailedSends { host, .. } => self.fail_sends(host),
            FaultKind::Slowness { host, .. } => self.slow(host),
            FaultKind::Drain { host } | FaultKind::Removal { host } => self.reconfigure(host),
            FaultKind::Stop { host } => self.stop_or_replace(host, now),
            FaultKind::LostKeys { host, .. } => self.replace_for_keys(host, now),
            FaultKind::WallClock { host, .. } => self.read_wall_clock(host),
        }
    }

    /// The impairments of the datagrams of a host: the worst of every active fault.
    fn impairment(&self, host: Host) -> Impairment {
        let delay_ns = if self.plan.topology.is_some() { 0 } else { DELAY_NS };
        let mut path = Impairment { delay_ns, ..Impairment::NONE };
        let concerns = |from: Option<Host>| from.is_none_or(|from| from == host);
        for kind in self.active() {
            match kind {
                FaultKind::Loss { from, share } if concerns(from) => {
                    path.loss = path.loss.max(share)
                }
                FaultKind::Bursts { from, begin, end } if concerns(from) => {
                    path.bursts = Bursts { begin, end }
                }
                FaultKind::Duplicates { from, share } if concerns(from) => {
                    path.duplicate = path.duplicate.max(share)
                }
                FaultKind::Corruption { from, share } if concerns(from) => {
                    path.corrupt = path.corrupt.max(share)
                }
                FaultKind::Jitter { from, most_ns } if concerns(from) => {
                    path.jitter_ns = path.jitter_ns.max(most_ns)
                }
                FaultKind::Reordering { from, share, held_ns } if concerns(from) => {
                    path.reorder = path.reorder.max(share);
                    path.reorder_ns = path.reorder_ns.max(held_ns);
                }
                _ => {}
            }
        }
        path
    }

    fn separate(&mut self, from: Host, to: Host) {
        let is_apart = self.active().any(|kind| match kind {
            FaultKind::OneWayPartition { from: one, to: other } => (one, other) == (from, to),
            FaultKind::Partition { one, other } => {
                (one, other) == (from, to) || (other, one) == (from, to)
            }
            _ => false,
        });
        let (from, to) = (self.plan.place(from), self.plan.place(to));
        if is_apart {
            self.network.block(from, to);
        } else {
            self.network.unblock(from, to);
        }
    }

    fn slow(&mut self, host: Host) {
        let of_host = |kind| match kind {
            FaultKind::Slowness { host: slow, delay_ns, factor } if slow == host => {
                Some((delay_ns, factor))
            }
            _ => None,
        };
        let (delay_ns, factor) = self.active().filter_map(of_host).max().unwrap_or((0, 1));
        self.network.set_delays(
            self.plan.place(host),
            HostDelays { transmit_ns: delay_ns, receive_ns: delay_ns },
        );
        if let Host::Server(server) = host {
            self.applications.set_factor(server, factor);
        }
    }

    fn pause(&mut self, host: Host, now: Time) {
        let place = self.plan.place(host);
        if !self.is_paused(host) {
            return self.network.resume(place);
        }
        // A socket makes packets older than they say, which a host that has restarted counts on:
        // what waits there longer than the network may carry it is lost (docs/concepts.md).
        let buffer = if self.watch.borrow().has_restarted(host) { 0 } else { SOCKET_BUFFER };
        self.network.pause(place, buffer);
        let concerned = self.plan.faults.iter().zip(&self.is_active);
        let ends = concerned
            .filter(|(fault, is_active)| **is_active && fault.kind == FaultKind::Pause { host })
            .map(|(fault, _)| fault.at + fault.lasts_ns);
        self.applications.paused(host, ends.max().unwrap_or(now));
    }

    /// A leap has no end; by then the host has read its wall clock again.
    fn leap(&mut self, fault: &Fault, host: Host, by_ns: u64) {
        if self.active().any(|kind| kind == fault.kind) {
            let place = self.plan.place(host);
            self.leaps[place] += by_ns;
            let clock = self.clock(host);
            self.network.set_clock(place, clock);
        } else {
            self.read_wall_clock(host);
        }
    }

    /// The clock of a host, with its leaps.
    fn clock(&self, host: Host) -> Clock {
        let clock = self.plan.clock(host);
        Clock { offset_ns: clock.offset_ns + self.leaps[self.plan.place(host)], ..clock }
    }

    fn fail_sends(&mut self, host: Host) {
        let of_host = |kind| match kind {
            FaultKind::FailedSends { host: failing, one_of } if failing == host => Some(one_of),
            _ => None,
        };
        let one_of = self.active().filter_map(of_host).min().unwrap_or(0);
        self.network.node_mut(self.plan.place(host)).fails_one_of = one_of;
    }

    /// Tells the routers of a server what the active faults say. Whatever it was told before may be
    /// so already.
    fn reconfigure(&mut self, host: Host) {
        let is_removed = self.active().any(|kind| kind == FaultKind::Removal { host });
        let is_drained = self.active().any(|kind| kind == FaultKind::Drain { host });
        let addr = host.address();
        for router in self.plan.routers() {
            let place = self.plan.place(router);
            let local = self.network.local(place);
            let Some(router) = self.network.node_mut(place).node.router_mut() else { return };
            if is_removed {
                let _ = router.remove_server(local, addr);
            } else {
                let _ = router.add_server(local, ServerConfig { addr, speaks: Speaks::Extension });
                let _ = if is_drained {
                    router.drain_server(local, addr)
                } else {
                    router.resume_server(local, addr)
                };
            }
            // A server that comes back may have more workers than the others.
            self.network.node(place).note_bound();
            self.network.flush(place);
        }
    }

    /// Ends the run when all is quiet, or when it should be.
    fn look(&mut self, now: Time) {
        let busy = self.busy();
        if busy.is_none() {
            self.script.clear();
        } else if self.script.is_empty()
            && self.plan.damage == Damage::Noticed
            && let Some((invariant, detail)) = busy
        {
            self.watch.borrow_mut().now = now;
            self.watch.borrow_mut().violate(invariant, || detail);
        }
    }

    /// The first thing that is still held, where there is one.
    fn busy(&self) -> Option<(Invariant, String)> {
        if !self.applications.is_idle() {
            return Some((Invariant::Floor, "a call has not ended".to_owned()));
        }
        if let Some(detail) = self.flows.busy() {
            return Some((Invariant::StreamEnds, detail));
        }
        for host in self.plan.hosts() {
            let station = self.network.node(self.plan.place(host));
            if let Some(held) = station.node.streams().and_then(streams::held) {
                return Some((Invariant::StreamEnds, format!("{host} still holds {held}")));
            }
            if let Some(holdings) = station.holds() {
                return Some((Invariant::Floor, format!("{host} still holds {holdings}")));
            }
            let Some(status) = station.node.router().map(Router::status) else { continue };
            let is_reached = |server: &&ServerStatus| {
                let at = Host::at(server.addr);
                at.is_none_or(|server| !self.plan.lose_each_other(host, server))
            };
            let mut reached = status.servers.iter().filter(is_reached);
            if let Some(server) = reached.find(|server| server.outstanding > 0) {
                let detail =
                    format!("the router still counts {} at {}", server.outstanding, server.addr);
                return Some((Invariant::SlotsHome, detail));
            }
            if status.queue_len > 0 {
                return Some((
                    Invariant::SlotsHome,
                    format!("the router still holds {} requests", status.queue_len),
                ));
            }
        }
        None
    }

    fn report(mut self) -> Report {
        self.check_losses();
        self.check_shares();
        let hash = self.applications.report(&mut self.coverage);
        let hash = hash ^ self.flows.report(&mut self.coverage);
        let network = self.network.statistics();
        self.coverage.packets = network.sent;
        self.coverage.virtual_ns = self.network.now();
        let is_wrong = |&host: &Host| self.plan.clock(host) != Default::default();
        let has_racks = self.plan.topology.map(|topology| topology.racks.is_some());
        let watch = self.watch.borrow();
        let mut effects = vec![
            (Effect::Lost, network.lost),
            (Effect::Duplicated, network.duplicated),
            (Effect::Damaged, network.damaged),
            (Effect::Partitioned, network.blocked),
            (Effect::DroppedBySwitches, network.dropped),
            (Effect::HeldTooLong, network.late),
            (Effect::ToDeadHosts, network.unheard),
            (Effect::Overtaken, watch.overtaken),
            (Effect::Excused, watch.excused),
            (Effect::WrongClocks, self.plan.hosts().filter(is_wrong).count() as u64),
            (Effect::Overflowed, network.overflowed),
            (Effect::TwoRouters, self.plan.has_standby().into()),
            (Effect::WithoutRouter, self.plan.router.is_none().into()),
            (Effect::SingleSwitch, (has_racks == Some(false)).into()),
            (Effect::LeafSpine, (has_racks == Some(true)).into()),
        ];
        for host in self.plan.hosts() {
            effects.extend(self.network.node(self.plan.place(host)).efforts());
        }
        for (effect, count) in effects {
            self.coverage.effects[effect as usize] += count;
        }
        let hash = hash ^ network.trace_hash.rotate_left(17);
        let (violation, served) = (watch.violation.clone(), self.applications.served().to_vec());
        Report { violation, coverage: self.coverage, served, hash, ..Report::default() }
    }

    pub(super) fn active(&self) -> impl Iterator<Item = FaultKind> {
        let active =
            self.plan.faults.iter().zip(&self.is_active).filter(|(_, is_active)| **is_active);
        active.map(|(fault, _)| fault.kind)
    }

    pub(super) fn is_down(&self, host: Host) -> bool {
        self.active().any(|kind| kind == FaultKind::Crash { host })
    }

    pub(super) fn is_paused(&self, host: Host) -> bool {
        self.active().any(|kind| kind == FaultKind::Pause { host })
    }

    /// The seed of a host's secrets, and of what happens to its datagrams, from `now` on. It
    /// depends on nothing else, so that it stays when something is taken away from the plan.
    fn seed_of(&self, host: Host, now: Time) -> u64 {
        let place = self.plan.place(host) as u64;
        self.plan
            .seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(now)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            ^ place
    }

    /// A node for a host that starts now.
    pub(super) fn station(&self, host: Host) -> Station {
        let (now, seed) = (self.network.now(), self.seed_of(host, self.network.now()));
        let secret = (u128::from(self.plan.seed) << 64 | u128::from(seed)).to_be_bytes();
        let local = self.clock(host).local(now);
        if let Transport::Homa(policy) = self.plan.transport {
            let seal = self.seal_of(host, local);
            let config = homa::Config { secret, seal, ..self.homa_config(host, policy) };
            let mut endpoint = homa::Endpoint::new(self.started_at(host, local), config);
            if let Host::Server(index) = host {
                endpoint.set_workers(self.plan.servers[index].workers as usize);
            }
            return self.stand(host, endpoint.into());
        }
        let (segment_len, seal) = (self.plan.segment_len, self.seal_of(host, local));
        let (local_segment_len, long_networks) = (self.plan.long_len, every_host());
        let mut config = Config {
            secret,
            segment_len,
            local_segment_len,
            long_networks,
            seal,
            ..Config::default()
        };
        match host {
            Host::Router | Host::Standby => return self.router(host, local),
            Host::Server(index) => {
                let server = &self.plan.servers[index];
                let is_kept =
                    self.plan.router.as_ref().is_some_and(|it| it.config.forward == Forward::Keep);
                config.message_len_max = server.message_len_max;
                config.pool.router = is_kept.then(|| Host::Router.address());
                config.pool.server_id = index as u32;
                config.serving.requests_max = server.requests_max;
                config.serving.partials_max = server.partials_max;
                config.clients_max = server.clients_max;
                config.pool.key = server.is_pooled.then_some(POOL_KEY);
                config.pool.clock_ns = POOL_CLOCK_NS;
                config.pool.cookies = self.cookies_asked();
                if server.is_trusting {
                    config.serving.trusted = every_host();
                }
            }
            Host::Client(index) => {
                let client = &self.plan.clients[index];
                config.message_len_max = client.message_len_max;
                config.calls_max = client.calls_max;
                config.credit_bytes = client.credit_bytes;
                config.serving.is_enabled = !self.plan.streams.is_empty();
                config.cloning = self.cloning();
                if self.plan.has_standby() {
                    config.alternates = self.plan.routers().map(Host::address).collect();
                }
            }
        }
        let mut endpoint = r2p2::Endpoint::new(self.started_at(host, local), config);
        if let Host::Server(index) = host {
            endpoint.set_workers(self.plan.servers[index].workers as usize);
        }
        self.stand(host, endpoint.into())
    }

    /// Condition under which servers ask for cookies.
    fn cookies_asked(&self) -> AskCookies {
        match self.options.sabotage {
            Some(Sabotage::CookiesAreNotAsked) => AskCookies::Never,
            _ => self.plan.cookies,
        }
    }

    /// A client's configuration of copies: a router places them, or they go to any server.
    fn cloning(&self) -> Cloning {
        let count = if self.plan.router.is_some() { 0 } else { self.plan.servers.len() };
        let servers = (0..count).map(|server| Host::Server(server).address()).collect();
        Cloning { copies: self.plan.copies, servers, loser: self.plan.loser }
    }

    /// An endpoint at its host.
    fn stand(&self, host: Host, endpoint: Endpoint) -> Station {
        let node = if self.plan.streams.is_empty() {
            Hosted::Member(Member::Endpoint(Box::new(endpoint)))
        } else {
            let seed = self.seed_of(host, self.network.now());
            let secret = (u128::from(seed) << 64 | u128::from(!self.plan.seed)).to_be_bytes();
            Hosted::Streams(Box::new(Streams::new(endpoint, Plan::stream_config(secret))))
        };
        let mut station = Station::new(host, node, &self.watch, self.options.sabotage);
        station.is_former = match host {
            Host::Server(index) => self.plan.servers[index].is_former,
            Host::Router | Host::Standby | Host::Client(_) => false,
        };
        station
    }

    fn homa_config(&self, host: Host, policy: homa::GrantPolicy) -> homa::Config {
        let mut config = homa::Config::default();
        config.grants.policy = policy;
        config.framing.unscheduled_len = self.plan.segment_len.into();
        config.framing.scheduled_len = self.plan.segment_len.into();
        config.framing.local_len = self.plan.long_len.into();
        config.long_networks = every_host();
        if self.plan.seed.is_multiple_of(2) {
            // Long calls are carried by several RPCs then.
            config.rpc_len_max = tailcut_wire::homa::MESSAGE_LEN_MAX;
        }
        match host {
            Host::Router | Host::Standby => {}
            Host::Server(index) => {
                let server = &self.plan.servers[index];
                config.message_len_max = server.message_len_max;
                config.cookies.ask = self.cookies_asked();
                config.cookies.clock_ns = POOL_CLOCK_NS;
                config.peers_max = server.clients_max;
                config.serving.requests_max = server.requests_max;
                config.serving.partials_max = server.partials_max;
                if server.is_trusting {
                    config.serving.trusted = every_host();
                }
            }
            Host::Client(index) => {
                let client = &self.plan.clients[index];
                config.message_len_max = client.message_len_max;
                config.calls_max = client.calls_max;
                config.serving.is_enabled = !self.plan.streams.is_empty();
            }
        }
        config
    }

    fn router(&self, host: Host, local: Time) -> Station {
        let is_removed = |server: &usize| {
            self.active().any(|kind| kind == FaultKind::Removal { host: Host::Server(*server) })
        };
        let servers = (0..self.plan.servers.len()).filter(|server| !is_removed(server));
        let addresses = servers.map(|server| ServerConfig {
            addr: Host::Server(server).address(),
            speaks: Speaks::Extension,
        });
        let seed = self.seed_of(host, self.network.now());
        let plan = self.plan.router.clone().unwrap_or_default();
        let seal = self.sealing(host, local);
        let mut config = RouterConfig { servers: addresses.collect(), seed, seal, ..plan.config };
        config.cookies.key = Some(POOL_KEY);
        config.cookies.clock_ns = POOL_CLOCK_NS;
        if self.options.sabotage == Some(Sabotage::RouterIsPatient) {
            config.silent_ns = config.silent_ns_max;
        }
        let router = Router::new(local, config).unwrap_or_else(|error| panic!("{error}"));
        let sabotage = self.options.sabotage;
        Station::new(host, Hosted::Member(Member::Router(Box::new(router))), &self.watch, sabotage)
    }
}

/// Key of tokens and cookies of a pool.
const POOL_KEY: [u8; 16] = [7; 16];

/// Time that a pool's clocks show at the beginning: 50 ms later cookies are others.
const POOL_CLOCK_NS: u64 = 119_950_000_000;

/// The steps of a plan, latest last; at equal times ends before beginnings, and calls last.
fn script(plan: &Plan) -> Vec<(Time, Step)> {
    let mut script = Vec::new();
    for (index, fault) in plan.faults.iter().enumerate() {
        script.push((fault.at, Step::Begin(index)));
        script.push((fault.at + fault.lasts_ns, Step::End(index)));
        if let Some(times) = plan.judged_at(fault) {
            script.extend(times.map(|at| (at, Step::Judge(index))));
        }
        if let FaultKind::Hostile { every_ns, .. } = fault.kind {
            let forged = |count| (fault.at + count * every_ns, Step::Forged(index, count));
            script.extend((0..fault.lasts_ns / every_ns.max(1)).map(forged));
        }
    }
    for (number, call) in plan.calls.iter().enumerate() {
        script.push((call.at, Step::Call(number as u32)));
        script.extend(
            call.cancel_after_ns.map(|after_ns| (call.at + after_ns, Step::Cancel(number as u32))),
        );
    }
    let opened = plan.streams.iter().enumerate();
    script.extend(opened.map(|(number, stream)| (stream.at, Step::Connect(number as u32))));
    for host in plan.hosts() {
        script.extend(plan.files(host).map(|(at, index)| (at, Step::Keys(host, index))));
    }
    let looks = (1..=LOOKS).map(|look| (plan.quiet_at() + look * QUIET_NS / LOOKS, Step::Look));
    script.extend(looks);
    script.sort_by_key(|&(at, step)| (at, order(step)));
    script.reverse();
    script
}

fn order(step: Step) -> u8 {
    match step {
        Step::End(_) => 0,
        Step::Begin(_) => 1,
        Step::Call(_) | Step::Connect(_) => 2,
        Step::Cancel(_) => 3,
        Step::Forged(..) => 4,
        Step::Keys(..) => 5,
        Step::Judge(_) => 6,
        Step::Look => 7,
    }
}

/// Datagrams that a socket keeps for a paused process.
const SOCKET_BUFFER: usize = 256;

/// The network of all hosts.
fn every_host() -> Vec<homa::Prefix> {
    "10.0.0.0/8".parse().into_iter().collect()
}

/// Between two hosts where no links are.
const DELAY_NS: u64 = 5_000;

/// After the faults all must be quiet within so long.
const QUIET_NS: u64 = 2_000_000_000;

/// Number of looks whether all is quiet.
const LOOKS: u64 = 200;

/// More datagrams than leave in any run but one in which they beget each other: of thousands of
/// seeds the most that left were 78,000.
const LEFT_MAX: u64 = 500_000;
