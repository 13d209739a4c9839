//! One client that calls many times what the servers can serve, among others that keep to less than
//! their shares.
//!
//! | invariant | what holds |
//! |---|---|
//! | `Goodput` | the servers' workers spend most of the time on calls that are answered in time |
//! | `Fairness` | every call of the other clients is answered, and 99 of 100 of a client's within the time of some services |

use rand::RngExt;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::quantity::Unit;
use tailcut_proto::node::Time;

use super::plan::{CallPlan, ClientPlan, Plan, RouterPlan, ServerPlan, in_time_order};
use super::run::Run;
use super::{Ending, Invariant};

impl Plan {
    /// The plan of a seed in which one of ten clients calls for 1.5 to 10 times what the servers can
    /// serve, and the others together for a quarter of it.
    pub fn flood_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM);
        let service = ["exp:500us", "fixed:500us", "bimodal:300us:2ms:0.9"];
        let service = Distribution::parse(service[dice.random_range(0..3)], Unit::Time);
        let server = ServerPlan {
            workers: dice.random_range(2..=4),
            service: service.unwrap_or_else(|error| panic!("{error}")),
            ..ServerPlan::default()
        };
        let mut plan = Self {
            seed,
            router: dice.random::<bool>().then(RouterPlan::default),
            servers: vec![server; dice.random_range(1..=2)],
            clients: vec![ClientPlan::default(); CLIENTS],
            flooding_client: Some(dice.random_range(0..CLIENTS)),
            ..Self::default()
        };
        let load = [1.5, 2.0, 4.0, 10.0][dice.random_range(0..4)];
        let count = (f64::from(plan.servers[0].workers) * plan.servers.len() as f64 * load) as u64;
        plan.calls = calls(dice, &plan, (count * SERVED, OTHERS_LOAD / load));
        plan.at_load(load)
    }
}

/// So many calls, of which this share is of clients that do not flood.
fn calls(dice: &mut Generator, plan: &Plan, (count, others): (u64, f64)) -> Vec<CallPlan> {
    let flooding = plan.flooding_client.unwrap_or(0);
    in_time_order((0..count).map(|_| {
        let other = (flooding + dice.random_range(1..CLIENTS)) % CLIENTS;
        CallPlan {
            at: START_NS + dice.random_range(0..200 * MS),
            client: if dice.random_bool(others) { other } else { flooding },
            server: dice.random_range(0..plan.servers.len()),
            request_len: 32,
            reply_len: 32,
            timeout_ns: TIMEOUT_NS,
            word: dice.random(),
            ..CallPlan::default()
        }
    }))
}

impl Run<'_> {
    /// Notes work that was of no use, and clients that felt the flood.
    pub(super) fn check_shares(&self) {
        let Some(flooding) = self.plan.flooding_client else { return };
        let mut times = vec![Vec::new(); self.plan.clients.len()];
        let (mut useful_ns, mut offered_ns, mut refused) = (0, 0, None);
        for (number, ending, ended_at) in self.applications.endings_at() {
            let call = &self.plan.calls[number];
            let service_ns = self.plan.service_ns(call);
            offered_ns += service_ns;
            let is_answered = ending == Ending::Replied;
            useful_ns += if is_answered { service_ns } else { 0 };
            if is_answered {
                times[call.client].push(ended_at - call.at);
            } else if call.client != flooding {
                refused = refused.or(Some((number, call.client, ending)));
            }
        }
        self.check_goodput(useful_ns, offered_ns);
        if let Some((number, client, ending)) = refused {
            let detail =
                || format!("call {number} of client {client}, which floods nobody: {ending:?}");
            self.watch.borrow_mut().violate(Invariant::Fairness, detail);
        }
        times.remove(flooding);
        self.check_waits(&times);
    }

    fn check_waits(&self, times: &[Vec<u64>]) {
        let mean_ns = |server: &ServerPlan| server.mean_ns() as u64;
        let most_ns = self.plan.servers.iter().map(mean_ns).max().unwrap_or(0) * SERVICES_MAX;
        let mut times = times.concat();
        times.sort_unstable();
        let within = (times.len() * 99).div_ceil(100);
        let Some(&p99) = within.checked_sub(1).and_then(|last| times.get(last)) else { return };
        if p99 > most_ns {
            let detail = || {
                format!(
                    "one of 100 calls of clients that flood nobody takes {p99} ns, above {most_ns}"
                )
            };
            self.watch.borrow_mut().violate(Invariant::Fairness, detail);
        }
    }

    fn check_goodput(&self, useful_ns: u64, offered_ns: u64) {
        let times = || self.plan.calls.iter().map(|call| call.at);
        let lasts_ns = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        let workers: u64 = self.plan.servers.iter().map(|server| u64::from(server.workers)).sum();
        let due_ns = offered_ns.min(workers * lasts_ns);
        // A handful of calls says nothing of a rate.
        if self.plan.calls.len() as u64 >= SERVED && useful_ns * 1_000 < due_ns * GOODPUT_PERMILLE {
            let detail = || {
                format!(
                    "workers have worked for {useful_ns} ns on what was answered in time, of {due_ns}"
                )
            };
            self.watch.borrow_mut().violate(Invariant::Goodput, detail);
        }
    }
}

const MS: u64 = 1_000_000;

/// When the first call is made: servers and routers know then what they have had.
const START_NS: Time = 20 * MS;

const CLIENTS: usize = 10;

/// Load of the clients that do not flood, over what the servers can serve.
const OTHERS_LOAD: f64 = 0.25;

/// Calls that each worker can serve in the time of a plan.
const SERVED: u64 = 150;

const TIMEOUT_NS: u64 = 100 * MS;

/// 99 of 100 calls take no longer than so many mean services.
const SERVICES_MAX: u64 = 15;

/// Least part of the workers' time that is of use.
const GOODPUT_PERMILLE: u64 = 800;

/// The generator's stream for plans of this file.
const STREAM: u64 = 0x0066_6c6f_6f64;
