//! One client that calls many times what the servers can serve, among others that keep to less than
//! their shares.
//!
//! | invariant | what holds |
//! |---|---|
//! | `Goodput` | the servers' workers spend most of the time on calls that are answered in time |
//! | `Fairness` | every call of the other clients is answered, and 99 of 100 wait for some services at most for each call that their client has |

use rand::RngExt;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::quantity::Unit;
use tailcut_proto::node::Time;

use super::plan::{CallPlan, ClientPlan, Plan, RouterPlan, ServerPlan, in_time_order};
use super::run::Run;
use super::{Ending, Invariant};

impl Plan {
    /// The plan of a seed in which one of ten clients calls for 1.5 to 10 times what the servers
    /// can serve, and the others together for a quarter of it.
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
        let mut answered = vec![Vec::new(); self.plan.clients.len()];
        let (mut useful_ns, mut offered_ns, mut refused) = (0, 0, None);
        for (number, ending, ended_at) in self.applications.endings_at() {
            let call = &self.plan.calls[number];
            let service_ns = self.plan.service_ns(call);
            offered_ns += service_ns;
            let is_answered = ending == Ending::Replied;
            useful_ns += if is_answered { service_ns } else { 0 };
            if is_answered {
                answered[call.client].push(Answered { at: call.at, ended_at, service_ns });
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
        answered.remove(flooding);
        self.check_waits(&answered);
    }

    /// A client that has several calls at once waits for its own too, however the shares are: what
    /// a call waits is divided by the calls that its client has.
    fn check_waits(&self, answered: &[Vec<Answered>]) {
        let mean_ns = |server: &ServerPlan| server.mean_ns() as u64;
        let most_ns = self.plan.servers.iter().map(mean_ns).max().unwrap_or(0) * SERVICES_MAX;
        let mut waits = Vec::new();
        for calls in answered {
            waits.extend(calls.iter().map(|call| call.wait_ns(calls)));
        }
        waits.sort_unstable();
        let within = (waits.len() * 99).div_ceil(100);
        let Some(&p99) = within.checked_sub(1).and_then(|last| waits.get(last)) else { return };
        if p99 > most_ns {
            let detail = || {
                format!(
                    "one of 100 calls of clients that flood nobody waits {p99} ns for each call that its client has, above {most_ns}"
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

/// A call that was answered.
#[derive(Clone)]
struct Answered {
    at: Time,
    ended_at: Time,
    service_ns: u64,
}

impl Answered {
    /// Waiting time, divided by the number of its client's `calls` that were outstanding when it
    /// was made.
    fn wait_ns(&self, calls: &[Self]) -> u64 {
        let is_outstanding = |other: &&Self| other.at <= self.at && self.at < other.ended_at;
        let outstanding = calls.iter().filter(is_outstanding).count() as u64;
        (self.ended_at - self.at).saturating_sub(self.service_ns) / outstanding.max(1)
    }
}

const MS: u64 = 1_000_000;

/// Time of the first call: servers and routers know then what they have had.
const START_NS: Time = 20 * MS;

const CLIENTS: usize = 10;

/// Load of the clients that do not flood, over what the servers can serve.
const OTHERS_LOAD: f64 = 0.25;

/// Calls that each worker can serve in the time of a plan.
const SERVED: u64 = 150;

const TIMEOUT_NS: u64 = 100 * MS;

/// 99 of 100 calls wait no longer than so many mean services for each call that their client has.
const SERVICES_MAX: u64 = 10;

/// Least part of the workers' time that is of use.
const GOODPUT_PERMILLE: u64 = 800;

/// The generator's stream for plans of this file.
const STREAM: u64 = 0x0066_6c6f_6f64;
