//! Plans in which one host dies and hardly anything else goes wrong, and in which that is to be
//! seen, to be over, and to lose nothing, within the times that users are promised.
//!
//! | plan | what happens | what must hold besides |
//! |---|---|---|
//! | [`Plan::failover_of_seed`] | of two routers one dies for good under load, while a client does not hear a server for up to 80 ms; every call may run once and has 200 ms | `NothingLost` |
//! | [`Plan::detection_of_seed`] | servers die one after the other and come back, under load or idle | `Detects`, `Returns`, `NothingLost` for calls that may run again |

use rand::RngExt;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::quantity::Unit;
use tailcut_proto::node::Time;
use tailcut_proto::router::{Router, ServerState};

use super::Invariant;
use super::plan::{
    CallPlan, ClientPlan, Fault, FaultKind, Host, Plan, RouterPlan, ServerPlan, in_time_order,
};
use super::run::Run;

impl Plan {
    /// The plan of a seed in which one of two routers dies under load, and no call that has 200 ms
    /// may be lost, or run twice. Around that time a client does not hear one of the servers.
    pub fn failover_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM);
        let mut plan = Self::service(seed, dice);
        plan.router = Some(RouterPlan { has_standby: true, ..RouterPlan::default() });
        let host = if dice.random() { Host::Router } else { Host::Standby };
        let at = START_NS + dice.random_range(0..LOAD_NS);
        // It is back when everything has ended.
        let lasts_ns = 2 * LOAD_NS + TIMEOUT_NS;
        plan.faults.push(Fault { at, lasts_ns, kind: FaultKind::Crash { host } });
        // What runs or has run already is asked for again through the other router.
        let from = Host::Server(dice.random_range(0..plan.servers.len()));
        let to = Host::Client(dice.random_range(0..plan.clients.len()));
        let (at, lasts_ns) = (at.saturating_sub(5 * MS), dice.random_range(5 * MS..80 * MS));
        plan.faults.push(Fault { at, lasts_ns, kind: FaultKind::OneWayPartition { from, to } });
        plan.calls = calls(dice, &plan, LOAD_NS);
        plan
    }

    /// The plan of a seed in which servers behind a router, or two, die and come back.
    pub fn detection_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM ^ 1);
        let mut plan = Self::service(seed, dice);
        let has_standby = dice.random_bool(0.3);
        plan.router = Some(RouterPlan { has_standby, ..RouterPlan::default() });
        plan.is_timed = true;
        let mut at = START_NS;
        for _ in 0..dice.random_range(1..=3) {
            at += dice.random_range(10 * MS..50 * MS);
            let host = Host::Server(dice.random_range(0..plan.servers.len()));
            let lasts_ns = dice.random_range(SEEN_NS + MS..150 * MS);
            plan.faults.push(Fault { at, lasts_ns, kind: FaultKind::Crash { host } });
            at += lasts_ns + BACK_NS;
        }
        plan.calls = calls(dice, &plan, at - START_NS);
        plan.calls.iter_mut().for_each(|call| call.is_idempotent = true);
        plan
    }

    /// Times at which it is judged what routers know of a server that dies: 30 ms after its death,
    /// and 100 ms after its return.
    pub(super) fn judged_at(&self, fault: &Fault) -> Option<[Time; 2]> {
        let is_server = matches!(fault.kind, FaultKind::Crash { host: Host::Server(_) });
        let times = [fault.at + SEEN_NS, fault.at + fault.lasts_ns + BACK_NS];
        (self.is_timed && is_server).then_some(times)
    }

    /// Servers and clients of a plan of this file.
    fn service(seed: u64, dice: &mut Generator) -> Self {
        let service = Distribution::parse("exp:100us", Unit::Time);
        let server = ServerPlan {
            workers: dice.random_range(1..=4),
            service: service.unwrap_or_else(|error| panic!("{error}")),
            ..ServerPlan::default()
        };
        Self {
            seed,
            servers: vec![server; dice.random_range(3..=6)],
            clients: vec![ClientPlan::default(); dice.random_range(1..=5)],
            loses_nothing: true,
            ..Self::default()
        }
    }
}

/// From hardly any to half of what the servers can do.
fn calls(dice: &mut Generator, plan: &Plan, lasts_ns: u64) -> Vec<CallPlan> {
    let capacity = u64::from(plan.servers[0].workers) * (plan.servers.len() as u64 - 1);
    let most = lasts_ns / 200_000 * capacity;
    let count = dice.random_range(10..most.min(1_500));
    in_time_order((0..count).map(|_| CallPlan {
        at: START_NS + dice.random_range(0..lasts_ns),
        client: dice.random_range(0..plan.clients.len()),
        request_len: dice.random_range(8..300),
        reply_len: if dice.random_bool(0.05) { 5_000 } else { 100 },
        timeout_ns: TIMEOUT_NS,
        word: dice.random(),
        ..CallPlan::default()
    }))
}

impl Run<'_> {
    /// Notes a router that does not know that a server is dead, or is back.
    pub(super) fn judge_routers(&self, fault: usize) {
        let FaultKind::Crash { host } = self.plan.faults[fault].kind else { return };
        let is_down = self.is_down(host);
        for router in self.plan.routers().filter(|&router| !self.is_down(router)) {
            let node = &self.network.node(self.plan.place(router)).node;
            let mut servers = node.router().into_iter().flat_map(Router::servers);
            let server = servers.find(|server| server.addr == host.address());
            let Some(state) = server.map(|server| server.state) else { continue };
            let (invariant, told) = match (is_down, state == ServerState::InService) {
                (true, true) => (Invariant::Detects, "has been dead"),
                (false, false) => (Invariant::Returns, "has been back"),
                _ => continue,
            };
            let detail = || format!("{host} {told} for long, and is {state:?} to {router}");
            self.watch.borrow_mut().violate(invariant, detail);
        }
    }
}

const MS: u64 = 1_000_000;

/// Time of the first call: servers and routers know then what they have had.
const START_NS: u64 = 20 * MS;

/// Time for which calls are made.
const LOAD_NS: u64 = 200 * MS;

/// Time that a call has left when its router dies.
const TIMEOUT_NS: u64 = 200 * MS;

/// A router sees within so long that a server is dead.
const SEEN_NS: u64 = 30 * MS;

/// A server that is back has its share after so long.
const BACK_NS: u64 = 100 * MS;

/// The generator's stream for plans of this file.
const STREAM: u64 = 0x7365_7276_6963;
