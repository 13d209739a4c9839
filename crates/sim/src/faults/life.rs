//! Processes that are told to stop and are replaced, servers that a reload takes away and brings
//! back, and handlers that panic.
//!
//! | plan | what happens | what must hold besides |
//! |---|---|---|
//! | [`Plan::of_seed`], one in six | stops of servers and the router, and panics, among all other faults | nothing |
//! | [`Plan::life_of_seed`] | a rolling restart, reloads, restarts of the router, panics; no other fault | `NothingLost` |

use rand::RngExt;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::quantity::Unit;
use tailcut_proto::node::Time;
use tailcut_proto::router::{Router, RouterConfig};

use super::hosted::Hosted;
use super::plan::{
    CallPlan, ClientPlan, Fault, FaultKind, Host, Plan, RouterPlan, ServerPlan, in_time_order,
};
use super::run::Run;
use super::{Ending, Invariant};

impl Plan {
    /// The plan of a seed in which servers behind a router are restarted, drained, removed and
    /// added under load, one at a time, and some handlers panic, while nothing else goes wrong.
    /// Every fourth restarts the router too, which refuses what comes meanwhile.
    pub fn life_of_seed(seed: u64) -> Self {
        let mut dice = generator(seed, STREAM);
        let mut between = |least: u64, most: u64| dice.random_range(least..=most);
        let server_count = between(3, 8);
        let service = ["fixed:200us", "exp:200us", "exp:1ms", "bimodal:100us:2ms:0.9"];
        let service = Distribution::parse(service[between(0, 3) as usize], Unit::Time)
            .unwrap_or_else(|error| panic!("{error}"));
        let workers = between(1, 4) as u32;
        let server = ServerPlan { workers, service, ..ServerPlan::default() };
        let policy = ["jbsq:1", "jbsq:2", "jbsq:auto", "jsq:2", "rr"][between(0, 4) as usize];
        let policy = policy.parse().unwrap_or_else(|error| panic!("{error}"));
        let config = RouterConfig { policy, ..RouterConfig::default() };
        let mut plan = Self {
            seed,
            router: Some(RouterPlan { config, ..RouterPlan::default() }),
            servers: vec![server; server_count as usize],
            clients: vec![ClientPlan::default(); between(1, 4) as usize],
            loses_nothing: true,
            ..Self::default()
        };
        let mut at = between(MS, 5 * MS);
        for index in 0..plan.servers.len() {
            let host = Host::Server(index);
            let lasts_ns = between(40 * MS, 60 * MS);
            let kind = FaultKind::Stop { host };
            if between(0, 2) > 0 {
                plan.faults.push(Fault { at, lasts_ns, kind });
            } else {
                // A reload: what is drained goes when it has nothing left.
                let kind = FaultKind::Drain { host };
                plan.faults.push(Fault { at, lasts_ns, kind });
                let (at, lasts_ns) = (at + 35 * MS, lasts_ns - 35 * MS);
                plan.faults.push(Fault { at, lasts_ns, kind: FaultKind::Removal { host } });
            }
            // The next goes when this one is back: after a probe.
            at += lasts_ns + between(25 * MS, 40 * MS);
        }
        if seed.is_multiple_of(4) {
            let (kind, lasts_ns) =
                (FaultKind::Stop { host: Host::Router }, between(20 * MS, 40 * MS));
            plan.faults.push(Fault { at, lasts_ns, kind });
            at += lasts_ns + 40 * MS;
        }
        plan.calls = calls(&mut dice, &plan, at);
        plan
    }

    /// Adds stops of processes and panics of handlers to one plan in six, by dice of their own:
    /// what else a seed draws stays.
    pub(super) fn add_stops(&mut self, lasts_ns: u64) {
        let mut dice = generator(self.seed, STREAM ^ 1);
        if !dice.random_bool(1.0 / 6.0) {
            return;
        }
        for _ in 0..dice.random_range(1..=4) {
            let place = dice.random_range(0..=self.servers.len());
            let host = match place.checked_sub(usize::from(self.router.is_some())) {
                None => Host::Router,
                Some(index) => Host::Server(index.min(self.servers.len() - 1)),
            };
            let (at, lasts_ns) = (dice.random_range(0..lasts_ns), dice.random_range(MS..60 * MS));
            self.faults.push(Fault { at, lasts_ns, kind: FaultKind::Stop { host } });
        }
        for call in &mut self.calls {
            call.panics = dice.random_bool(0.03);
        }
    }
}

/// Up to 60 % of what the servers can do, or a burst now and then, until `until`.
fn calls(dice: &mut Generator, plan: &Plan, until: Time) -> Vec<CallPlan> {
    let burst = [1, 1, 8][dice.random_range(0..3)];
    let count = until / MS * plan.servers.len() as u64 / 2;
    let mut at = 0;
    in_time_order((0..count).map(|number| {
        if number % burst == 0 {
            at = dice.random_range(0..until);
        }
        CallPlan {
            at,
            client: dice.random_range(0..plan.clients.len()),
            request_len: dice.random_range(8..200),
            reply_len: if dice.random_bool(0.02) { 20_000 } else { 100 },
            timeout_ns: 1_000 * MS,
            is_idempotent: dice.random_bool(0.3),
            panics: dice.random_bool(0.02),
            word: dice.random(),
            ..CallPlan::default()
        }
    }))
}

impl Run<'_> {
    /// Has a host drain, or puts another process in its place, as the active faults say.
    pub(super) fn stop_or_replace(&mut self, host: Host, now: Time) {
        if self.is_down(host) {
            return;
        }
        let place = self.plan.place(host);
        if self.active().any(|kind| kind == FaultKind::Stop { host }) {
            let local = self.network.local(place);
            let node = &mut self.network.node_mut(place).node;
            node.router_mut().into_iter().for_each(Router::close);
            node.endpoint_mut().into_iter().for_each(|endpoint| endpoint.stop(local));
        } else {
            self.refuse_held(place, now);
            self.crashed(host, now);
            let station = self.station(host);
            self.network.replace(place, station);
        }
        self.network.flush(place);
    }

    /// A router that ends tells who waits for what it holds.
    fn refuse_held(&mut self, place: usize, now: Time) {
        let refuses = |node: &mut Hosted| node.router_mut().is_some_and(|it| it.refuse_held(now));
        while refuses(&mut self.network.node_mut(place).node) {
            self.network.flush(place);
        }
    }

    /// Notes a call that was lost, where none may be.
    pub(super) fn check_losses(&self) {
        if !self.plan.loses_nothing {
            return;
        }
        let stops_router = FaultKind::Stop { host: Host::Router };
        let refuses = self.plan.faults.iter().any(|fault| fault.kind == stops_router);
        let is_lost = |&(number, ending): &(usize, Ending)| match ending {
            _ if self.plan.may_be_stale(ending) => false,
            Ending::Replied => self.plan.calls[number].panics,
            Ending::Panicked => !self.plan.calls[number].panics,
            Ending::Application => !self.plan.calls[number].is_refused,
            // A router that stops says so.
            Ending::Stopping => !refuses,
            _ => true,
        };
        if let Some((number, ending)) = self.applications.endings().find(is_lost) {
            let detail = || format!("call {number} ends: {ending:?}");
            self.watch.borrow_mut().violate(Invariant::NothingLost, detail);
        }
    }
}

const MS: u64 = 1_000_000;

/// The generator's stream for plans of this file.
const STREAM: u64 = 0x6c69_6665;
