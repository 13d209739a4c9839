//! Plans that look for one kind of trouble.
//!
//! | plan | what happens | what must hold |
//! |---|---|---|
//! | [`Plan::late_of_seed`] | beside all other faults but restarts, datagrams are held for up to 300 ms, which is 30 times what nodes are told that the network may take | everything, but that a call may run again that has been over for those 10 ms, as it is after its deadline, or may run although it was refused, which routers and servers remember for twice as long |
//! | [`Plan::overflow_of_seed`] | bursts of long messages to one host through buffers of some packets, and processes that are paused while more comes than their sockets keep; nothing else | `NothingLost` |

use rand::RngExt;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::quantity::Unit;
use tailcut_proto::router::RouterConfig;

use super::plan::{
    CallPlan, ClientPlan, Fault, FaultKind, Host, Plan, RouterPlan, ServerPlan, in_time_order,
};
use crate::fabric::port::{Link, SwitchBuffer};
use crate::fabric::topology::{Switch, Topology};

impl Plan {
    /// The plan of a seed in which datagrams take longer than the protocol is told.
    pub fn late_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM);
        let mut plan = Self::of_seed(seed);
        plan.is_late = true;
        // A restart drops the state of what is still under way: at most once ends there.
        plan.faults.retain(|fault| {
            !matches!(fault.kind, FaultKind::Crash { .. } | FaultKind::Stop { .. })
        });
        let lasts_ns = plan.calls.iter().filter(|call| !call.is_after_all).map(|call| call.at);
        let lasts_ns = lasts_ns.max().unwrap_or(MS).max(MS);
        for _ in 0..dice.random_range(1..=3) {
            let from = dice.random_bool(0.5).then(|| {
                let hosts: Vec<Host> = plan.hosts().collect();
                hosts[dice.random_range(0..hosts.len())]
            });
            let share = [0.01, 0.05, 0.3][dice.random_range(0..3)];
            let held_ns = dice.random_range(10 * MS..300 * MS);
            let kind = match dice.random_range(0..3) {
                0 => FaultKind::Jitter { from, most_ns: held_ns / 4 },
                _ => FaultKind::Reordering { from, share, held_ns },
            };
            plan.faults.push(Fault { at: dice.random_range(0..lasts_ns), lasts_ns, kind });
        }
        let copies = FaultKind::Duplicates { from: None, share: 0.1 };
        plan.faults.push(Fault { at: 0, lasts_ns, kind: copies });
        plan
    }

    /// The plan of a seed in which buffers overflow, and no call may be lost by it.
    pub fn overflow_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM ^ 1);
        let capacity_bytes = [12_000, 40_000, 100_000][dice.random_range(0..3)];
        let buffer = SwitchBuffer { capacity_bytes, mark_bytes: u64::MAX };
        let link = Link::new([10.0, 25.0][dice.random_range(0..2)], 300);
        let switch = Switch { delay_ps: 250_000, buffer };
        let service = Distribution::parse("exp:20us", Unit::Time);
        let server = ServerPlan {
            service: service.unwrap_or_else(|error| panic!("{error}")),
            ..ServerPlan::default()
        };
        let config = RouterConfig::default();
        let router = RouterPlan { config, ..RouterPlan::default() };
        let mut plan = Self {
            seed,
            topology: Some(Topology { link, switch, racks: None }),
            router: dice.random::<bool>().then_some(router),
            servers: vec![server; dice.random_range(2..=8)],
            clients: vec![ClientPlan::default(); dice.random_range(1..=6)],
            loses_nothing: true,
            ..Self::default()
        };
        plan.calls = bursts(dice, &plan);
        for _ in 0..dice.random_range(0..=2) {
            // Who is called much is paused.
            let call = plan.calls[dice.random_range(0..plan.calls.len())];
            let host = if call.request_len > call.reply_len || plan.router.is_none() {
                Host::Server(call.server)
            } else {
                Host::Router
            };
            let (at, lasts_ns) =
                (call.at - dice.random_range(0..MS), dice.random_range(MS..10 * MS));
            plan.faults.push(Fault { at, lasts_ns, kind: FaultKind::Pause { host } });
        }
        plan
    }
}

/// Up to twelve bursts, each of long requests to one server or of long replies to one client.
fn bursts(dice: &mut Generator, plan: &Plan) -> Vec<CallPlan> {
    let mut calls = Vec::new();
    for _ in 0..dice.random_range(2..=12) {
        // Later than what servers that have just started take for older than they are.
        let at = dice.random_range(40 * MS..100 * MS);
        let (one_server, one_client) =
            (dice.random_range(0..plan.servers.len()), dice.random_range(0..plan.clients.len()));
        let is_to_server = dice.random::<bool>();
        let (count, len_max) = if dice.random_bool(0.3) { (800, 1_200) } else { (40, 40_000) };
        for _ in 0..dice.random_range(count / 10..count) {
            let len = dice.random_range(1_000..len_max);
            let (server, client) = if is_to_server {
                (one_server, dice.random_range(0..plan.clients.len()))
            } else {
                (dice.random_range(0..plan.servers.len()), one_client)
            };
            calls.push(CallPlan {
                at: at + dice.random_range(0..20_000),
                client,
                server,
                request_len: if is_to_server { len } else { 100 },
                reply_len: if is_to_server { 100 } else { len },
                timeout_ns: 1_500 * MS,
                is_idempotent: dice.random_bool(0.3),
                word: dice.random(),
                ..CallPlan::default()
            });
        }
    }
    in_time_order(calls)
}

const MS: u64 = 1_000_000;

/// The generator's stream for plans of this file.
const STREAM: u64 = 0x6469_7265;
