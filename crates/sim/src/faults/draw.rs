//! Draws plans from seeds: every kind of host, call and fault now and then, and combinations of
//! them.
//!
//! What holds a datagram for long stays within what the protocol is told (`transit_ns_max`, 10 ms):
//! jitter, reordering and slow hosts add up to less than 5 ms, links of 10 Gbit/s and more drain
//! the longest queue of a limited buffer in less than 1 ms, and what waits in others for longer is
//! lost (`Plan::transit_ns_max`).

use rand::RngExt;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::quantity::Unit;
use tailcut_proto::policy::PolicySpec;
use tailcut_proto::router::{Forward, RouterConfig};

use super::hostile;
use super::plan::{
    CallPlan, ClientPlan, Fault, FaultKind, Host, Plan, RouterPlan, ServerPlan, in_time_order,
};
use crate::clock::Clock;
use crate::fabric::port::{Link, SwitchBuffer};
use crate::fabric::topology::{Racks, Spreading, Switch, Topology};
use crate::network::Damage;

impl Plan {
    /// The plan of a seed; the same for years.
    pub fn of_seed(seed: u64) -> Self {
        let mut dice = Dice(generator(seed, STREAM));
        let servers = (0..dice.between(1, 8)).map(|_| server(&mut dice)).collect::<Vec<_>>();
        let clients = (0..dice.between(1, 6)).map(|_| client(&mut dice)).collect::<Vec<_>>();
        let router = dice.chance(0.8).then(|| router(&mut dice));
        let hosts = servers.len() + clients.len() + usize::from(router.is_some());
        let mut plan = Self {
            seed,
            topology: topology(&mut dice, hosts as u32),
            damage: if dice.chance(0.1) { Damage::Delivered } else { Damage::Noticed },
            segment_len: dice.one_of(&[1380, 1380, 1380, 256, 8900]),
            router,
            servers,
            clients,
            ..Self::default()
        };
        let lasts_ns = dice.log_between(20 * MS, 200 * MS);
        plan.calls = calls(&mut dice, &plan, lasts_ns);
        plan.faults = (0..dice.between(1, 10)).map(|_| fault(&mut dice, &plan, lasts_ns)).collect();
        if dice.chance(0.25) {
            plan.faults.extend(storm(&mut dice, &plan, lasts_ns));
        }
        if dice.chance(0.1) {
            plan.faults.push(hostile::any_fault(&mut dice.0, lasts_ns));
        }
        plan.add_stops(lasts_ns);
        // Of another generator, so that what came before stays as it was.
        let mut dice = Dice(generator(seed, STREAM + 1));
        add_standby(&mut dice, &mut plan, lasts_ns);
        add_host_faults(&mut dice, &mut plan, lasts_ns);
        if dice.chance(0.15) {
            let factor = 1 << dice.between(1, 4);
            plan.calls.iter_mut().for_each(|call| call.at /= factor);
        }
        add_calls_after_all(&mut dice, &mut plan);
        plan
    }
}

/// Now and then a second router, and what makes clients move on from one to the other.
fn add_standby(dice: &mut Dice, plan: &mut Plan, calls_ns: u64) {
    let Some(router) = plan.router.as_mut().filter(|_| dice.chance(0.35)) else { return };
    router.has_standby = true;
    // A server counts for one router that keeps clients' addresses.
    router.config.forward = Forward::Annotate;
    plan.servers.iter_mut().for_each(|server| server.is_former = dice.chance(0.04));
    for _ in 0..dice.between(0, 3) {
        let host = dice.one_of(&[Host::Router, Host::Standby]);
        let server = Host::Server(dice.index(plan.servers.len()));
        let kind = match dice.between(0, 3) {
            0 => FaultKind::Partition { one: host, other: server },
            1 => FaultKind::Pause { host },
            _ => FaultKind::Crash { host },
        };
        let lasts_ns = dice.log_between(MS, 200 * MS);
        plan.faults.push(Fault { at: dice.between(0, calls_ns), lasts_ns, kind });
    }
}

/// Adds faults of hosts themselves.
fn add_host_faults(dice: &mut Dice, plan: &mut Plan, calls_ns: u64) {
    for _ in 0..dice.between(0, 3) {
        let host = host(dice, plan);
        let kind = match dice.between(0, 3) {
            // A node's clock is monotonic: only a machine that is moved makes it leap. A router
            // that leaps expires what its clients still wait for, and a server that has restarted
            // and leaps believes that it knows of longer ago than it does: that is outside of the
            // promises.
            0 if matches!(host, Host::Client(_)) => {
                FaultKind::ClockJump { host, by_ns: dice.log_between(1_000, 400 * MS) }
            }
            1 => FaultKind::FailedSends { host, one_of: dice.between(1, 12) as u32 },
            _ => FaultKind::Pause { host },
        };
        let longest = if dice.chance(0.03) { 10_000 * MS } else { 100 * MS };
        let lasts_ns = dice.log_between(MS, longest);
        plan.faults.push(Fault { at: dice.between(0, calls_ns), lasts_ns, kind });
    }
}

/// A call or two of each client when all is over, where no limit may refuse them.
fn add_calls_after_all(dice: &mut Dice, plan: &mut Plan) {
    // Strangers may have taken what is left of less.
    let is_roomy = |server: &ServerPlan| server.clients_max > 100 && server.partials_max > 1;
    let has_room = plan.servers.iter().all(is_roomy);
    if !has_room || plan.damage == Damage::Delivered {
        return;
    }
    let begin = plan.quiet_at() + RECOVERY_NS;
    for client in 0..plan.clients.len() {
        for _ in 0..dice.between(1, 2) {
            plan.calls.push(CallPlan {
                at: begin + dice.between(0, 20 * MS),
                client,
                server: dice.index(plan.servers.len()),
                request_len: 8,
                reply_len: dice.between(0, 400) as usize,
                timeout_ns: 400 * MS,
                is_idempotent: dice.chance(0.3),
                is_after_all: true,
                word: dice.between(0, u64::MAX),
                ..CallPlan::default()
            });
        }
    }
}

fn topology(dice: &mut Dice, hosts: u32) -> Option<Topology> {
    let capacity_bytes = dice.one_of(&[u64::MAX, 200_000, 40_000, 12_000]);
    let switch =
        Switch { delay_ps: 250_000, buffer: SwitchBuffer { capacity_bytes, mark_bytes: u64::MAX } };
    let link = Link::new(dice.one_of(&[10.0, 25.0, 100.0]), dice.between(1, 500));
    let racks = match dice.between(0, 2) {
        0 => return None,
        1 => None,
        _ => Some(Racks {
            hosts: hosts.div_ceil(dice.between(2, 4) as u32),
            spines: dice.between(1, 4) as u32,
            link: Link::new(dice.one_of(&[10.0, 40.0, 100.0]), dice.between(1, 500)),
            spreading: dice.one_of(&[Spreading::Spray, Spreading::Flow]),
            pods: None,
        }),
    };
    Some(Topology { link, switch, racks })
}

fn router(dice: &mut Dice) -> RouterPlan {
    let policies = ["jbsq:1", "jbsq:2", "jbsq:2", "jbsq:3", "jbsq:auto", "jsq:2", "rr", "random"];
    let policy: PolicySpec =
        dice.one_of(&policies).parse().unwrap_or_else(|error| panic!("{error}"));
    let mut config = RouterConfig {
        policy,
        forward: dice.one_of(&[Forward::Annotate, Forward::Keep]),
        queue_len_max: dice.one_of(&[4096, 4096, 4096, 8]),
        hold_ns_max: dice.one_of(&[1000 * MS, 1000 * MS, 3 * MS]),
        table_len_max: dice.one_of(&[1 << 19, 1 << 19, 1 << 19, 64]),
        probe_interval_ns: dice.one_of(&[10 * MS, 4 * MS]),
        silent_ns: dice.one_of(&[24 * MS, 200 * MS, 40 * MS]),
        ..RouterConfig::default()
    };
    config.silent_ns_max = config.silent_ns_max.max(config.silent_ns);
    RouterPlan { config, clock: clock(dice), has_standby: false, off_ms: 0 }
}

fn server(dice: &mut Dice) -> ServerPlan {
    let services = [
        "fixed:20us",
        "exp:50us",
        "uni:200us",
        "bimodal:10us:500us:0.9",
        "lognorm:10.5:1",
        "10us+gamma:0.5:100us",
        "exp:1ms",
    ];
    let service = Distribution::parse(dice.one_of(&services), Unit::Time)
        .unwrap_or_else(|error| panic!("{error}"));
    ServerPlan {
        workers: dice.between(1, 4) as u32,
        service,
        service_factor: 1.0,
        requests_max: dice.one_of(&[65_536, 65_536, 65_536, 65_536, 65_536, 65_536, 65_536, 12]),
        partials_max: dice.one_of(&[4096, 4096, 4096, 1]),
        clients_max: dice.one_of(&[4096, 4096, 4096, 3]),
        message_len_max: dice.one_of(&[8 << 20, 8 << 20, 8 << 20, 20_000]),
        is_pooled: dice.chance(0.3),
        is_trusting: dice.chance(0.2),
        is_former: false,
        clock: clock(dice),
        off_ms: 0,
    }
}

fn client(dice: &mut Dice) -> ClientPlan {
    ClientPlan {
        calls_max: dice.one_of(&[16_384, 16_384, 16_384, 16_384, 16_384, 8]),
        message_len_max: dice.one_of(&[8 << 20, 8 << 20, 8 << 20, 60_000]),
        credit_bytes: dice.one_of(&[104_000, 104_000, 20_000]),
        clock: clock(dice),
        off_ms: 0,
    }
}

/// Off by up to 10 s, fast or slow by up to 200 ppm, as crystals are.
fn clock(dice: &mut Dice) -> Clock {
    if dice.chance(0.5) {
        return Clock::default();
    }
    Clock {
        offset_ns: dice.between(0, 10_000 * MS),
        drift_ppb: dice.between(0, 400_000) as i64 - 200_000,
    }
}

fn calls(dice: &mut Dice, plan: &Plan, lasts_ns: u64) -> Vec<CallPlan> {
    let idempotent = dice.one_of(&[0.0, 0.3, 0.3, 1.0]);
    let burst = dice.one_of(&[1, 1, 4, 32]);
    let count = dice.log_between(30, 1_000);
    let mut at = 0;
    in_time_order((0..count).map(|index| {
        if index % burst == 0 {
            at = dice.between(0, lasts_ns);
        }
        CallPlan {
            at,
            client: dice.index(plan.clients.len()),
            server: dice.index(plan.servers.len()),
            request_len: len(dice).max(8),
            reply_len: len(dice),
            timeout_ns: dice.log_between(MS, 400 * MS),
            cancel_after_ns: dice.chance(0.03).then(|| dice.log_between(10_000, 20 * MS)),
            is_idempotent: dice.chance(idempotent),
            is_fixed: dice.chance(0.02),
            is_refused: dice.chance(0.03),
            panics: false,
            is_after_all: false,
            word: dice.between(0, u64::MAX),
        }
    }))
}

/// Most are small, some have several packets, few are long.
fn len(dice: &mut Dice) -> usize {
    let (least, most) = match dice.between(0, 199) {
        0..164 => (1, 200),
        164..190 => (200, 8_000),
        190..198 => (8_000, 60_000),
        198 => (60_000, 400_000),
        _ => return 0,
    };
    dice.log_between(least, most) as usize
}

fn fault(dice: &mut Dice, plan: &Plan, calls_ns: u64) -> Fault {
    let lasts_ns = if dice.chance(0.2) { calls_ns } else { dice.log_between(MS / 2, 60 * MS) };
    let from = dice.chance(0.5).then(|| host(dice, plan));
    let share = dice.log_between(5, 500) as f64 / 1000.0;
    let (one, other) = pair(dice, plan);
    let at = dice.between(0, calls_ns);
    let kinds = if plan.router.is_some() { 11 } else { 9 };
    let kind = match dice.between(0, kinds) {
        0 => FaultKind::Loss { from, share },
        1 => FaultKind::Bursts { from, begin: share / 20.0, end: dice.one_of(&[0.5, 0.1, 0.05]) },
        2 => FaultKind::Duplicates { from, share },
        3 => FaultKind::Corruption { from, share },
        4 => FaultKind::Jitter { from, most_ns: dice.log_between(1_000, MS) },
        5 => FaultKind::Reordering { from, share, held_ns: dice.log_between(2_000, 2 * MS) },
        6 => FaultKind::OneWayPartition { from: one, to: other },
        7 => FaultKind::Partition { one, other },
        8 => {
            // Some are so short that what is under way outlasts them.
            let lasts_ns = if dice.chance(0.5) { dice.log_between(1_000, MS) } else { lasts_ns };
            return Fault { at, lasts_ns, kind: FaultKind::Crash { host: one } };
        }
        9 => FaultKind::Slowness {
            host: one,
            delay_ns: dice.log_between(1_000, MS / 2),
            factor: dice.log_between(1, 50),
        },
        10 => FaultKind::Drain { host: Host::Server(dice.index(plan.servers.len())) },
        _ => FaultKind::Removal { host: Host::Server(dice.index(plan.servers.len())) },
    };
    Fault { at, lasts_ns, kind }
}

/// Copies that are late, and hosts that die for less long than the copies take: what puts at most
/// once to the test.
fn storm(dice: &mut Dice, plan: &Plan, lasts_ns: u64) -> Vec<Fault> {
    let share = dice.one_of(&[0.05, 0.2, 0.5]);
    let held_ns = dice.log_between(50_000, 2 * MS);
    let copies = FaultKind::Duplicates { from: None, share };
    let late = FaultKind::Reordering { from: None, share: dice.one_of(&[0.1, 0.5]), held_ns };
    let mut faults = [copies, late].map(|kind| Fault { at: 0, lasts_ns, kind }).to_vec();
    for _ in 0..dice.between(2, 12) {
        let host =
            if plan.router.is_some() && dice.chance(0.5) { Host::Router } else { host(dice, plan) };
        let (at, lasts_ns) = (dice.between(0, lasts_ns), dice.log_between(1_000, held_ns));
        faults.push(Fault { at, lasts_ns, kind: FaultKind::Crash { host } });
    }
    faults
}

/// The router as often as a server, and a client.
fn host(dice: &mut Dice, plan: &Plan) -> Host {
    match dice.between(0, 2) {
        0 if plan.router.is_some() => Host::Router,
        1 => Host::Client(dice.index(plan.clients.len())),
        _ => Host::Server(dice.index(plan.servers.len())),
    }
}

/// Two hosts.
fn pair(dice: &mut Dice, plan: &Plan) -> (Host, Host) {
    let one = host(dice, plan);
    loop {
        let other = host(dice, plan);
        if other != one {
            return (one, other);
        }
    }
}

struct Dice(Generator);

impl Dice {
    fn chance(&mut self, share: f64) -> bool {
        self.0.random::<f64>() < share
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0.random_range(least..=most)
    }

    fn index(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }

    /// Every doubling is as likely as another; both are at least 1. In whole numbers, which are the
    /// same on every machine.
    fn log_between(&mut self, least: u64, most: u64) -> u64 {
        let low = least << self.between(0, u64::from((most / least).ilog2()));
        self.between(low, most.min(2 * low))
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

const MS: u64 = 1_000_000;

/// After the last fault and the last call all is well again within this: every call has ended, and
/// every server has been probed.
const RECOVERY_NS: u64 = 500 * MS;

/// The generator's stream for plans; the run itself takes others.
const STREAM: u64 = 0x706c_616e;
