//! Plans whose packets are sealed.
//!
//! | of 12 seeds | the plan is | what must hold besides |
//! |---|---|---|
//! | 8 | one of another family: `hostile` (twice), `feedback`, `drawn` (twice), `life`, `failover`, and by turns `late`, `detection`, `overflow` and `flood` | what holds there |
//! | 2 | `hostile`, while keys rotate and each host takes its own when it will | every call is answered |
//! | 1 | `hostile`, with clients whose wall clocks are a day ahead or behind | `Clocks`, and every call of the others is answered |
//! | 1 | restarts, servers that have lost their keys, wall clocks that are set, keys that rotate, all attacks | everything |
//!
//! In all of them strangers forge and replay what they have heard ([`super::intruder`]).
//!
//! | differs from an open run | why |
//! |---|---|
//! | no copy is lost because it would run again after a restart | there is no such hole |
//! | what a flipped bit may do is checked where it is delivered, too | it is forged |
//! | a call may be refused as `Uncertain` where something was restarted | its session is older; the client's next one is not |

use rand::RngExt;
use tailcut_measure::generator::{Generator, generator};
use tailcut_proto::sealed::Cipher;

use super::plan::{Attack, CallPlan, Fault, FaultKind, Host, Plan, SealPlan};
use super::recorder::mixed;
use super::{Ending, Invariant};
use crate::network::Damage;

impl Plan {
    /// The plan of a seed whose packets are sealed.
    pub fn sealed_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM);
        let round = seed / 12;
        let plan = match seed % 12 {
            0 | 1 => Self::hostile_of_seed(seed),
            2 => Self::feedback_of_seed(seed),
            3 | 4 => Self::of_seed(seed),
            5 => Self::life_of_seed(seed),
            6 => Self::failover_of_seed(seed),
            7 => match round % 4 {
                0 => Self::late_of_seed(seed),
                1 => Self::detection_of_seed(seed),
                2 => Self::overflow_of_seed(seed),
                _ => Self::flood_of_seed(seed),
            },
            8 | 9 => rotating(dice, seed),
            10 => with_clocks_apart(dice, seed),
            _ => exposed(dice, seed),
        };
        plan.with_seals(dice, round)
    }

    /// The plan of a seed whose packets are sealed over Homa, which has no routers:
    ///
    /// | of 8 seeds | the plan is |
    /// |---|---|
    /// | 5 | one of another family: `hostile` (twice), `drawn` (twice), and by turns `late`, `overflow` and `flood` |
    /// | 3 | as above, each once |
    pub fn sealed_homa_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM ^ 1);
        let round = seed / 8;
        let plan = match seed % 8 {
            0 | 1 => Self::hostile_homa_of_seed(seed),
            2 | 3 => Self::homa_of_seed(seed),
            4 => match round % 3 {
                0 => Self::late_of_seed(seed).over_homa(),
                1 => Self::overflow_of_seed(seed).over_homa(),
                _ => Self::flood_of_seed(seed).over_homa(),
            },
            5 => rotating(dice, seed).over_homa(),
            6 => with_clocks_apart(dice, seed).over_homa(),
            _ => exposed(dice, seed).over_homa(),
        };
        plan.with_seals(dice, round)
    }

    /// The plan of a seed whose clients open streams that are sealed, over Homa:
    ///
    /// | of 4 seeds | the plan is one of [`Plan::streams_of_seed`], and |
    /// |---|---|
    /// | 3, both even ones among them | keys rotate, and each host takes its own when it will |
    /// | every other one | servers also lose their keys, and wall clocks are set |
    pub fn sealed_streams_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM ^ 2);
        let mut plan = Self::streams_of_seed(seed).over_homa();
        set_clocks(dice, &mut plan, 20);
        let every_ns = dice.random_range(220 * MS..500 * MS);
        let every_ns = (seed % 4 != 3).then_some(every_ns);
        plan.seal = Some(SealPlan { every_ns, ..SealPlan::default() });
        if every_ns.is_some() {
            // Streams are opened, and faults begin, under several keys.
            let stretch = dice.random_range(3..12);
            plan.streams.iter_mut().for_each(|stream| stream.at *= stretch);
            plan.faults.iter_mut().for_each(|fault| fault.at *= stretch);
        }
        if !plan.loses_nothing {
            let lasts_ns = plan.quiet_at();
            for _ in 0..dice.random_range(0..=2) {
                let (at, lasts_ns) =
                    (dice.random_range(0..lasts_ns), dice.random_range(MS..30 * MS));
                plan.faults.push(Fault { at, lasts_ns, kind: loss(dice, &plan) });
            }
        }
        plan.with_seals(dice, seed / 4)
    }

    /// The plan of a seed whose clients call servers themselves, in bursts of short calls that go
    /// together:
    ///
    /// | of 4 seeds | the plan is |
    /// |---|---|
    /// | 1 | `hostile` |
    /// | 1 | `drawn` |
    /// | 1 | `hostile`, while keys rotate |
    /// | 1 | with restarts, lost keys, wall clocks that are set, and all attacks |
    pub fn sealed_trains_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM ^ 3);
        let plan = match seed % 4 {
            0 => Self::hostile_of_seed(seed),
            1 => Self::of_seed(seed),
            2 => rotating(dice, seed),
            _ => exposed(dice, seed),
        };
        let mut plan = plan.without_router();
        if seed % 4 == 3 {
            // Where clocks are apart, a server drops what is ahead of its own, which a stranger can
            // then bring first from elsewhere: such a call is not answered.
            plan.calls.retain(|call| !call.is_after_all);
        }
        let (every_ns, len) = (dice.random_range(MS..8 * MS), dice.random_range(8..200));
        for call in plan.calls.iter_mut().filter(|call| !call.is_after_all) {
            call.at -= call.at % every_ns;
            (call.request_len, call.reply_len) = (len, len);
            call.is_fixed = false;
        }
        // Those of a client come one after the other.
        plan.calls.sort_by_key(|call| (call.at, call.client));
        plan.is_together = true;
        if dice.random() {
            plan.servers.iter_mut().for_each(|server| server.service_factor = 0.0);
        }
        plan.with_seals(dice, seed / 4)
    }

    /// The plan with all that seals add to it.
    fn with_seals(mut self, dice: &mut Generator, round: u64) -> Self {
        let cipher =
            if round.is_multiple_of(2) { Cipher::Aes128Gcm } else { Cipher::ChaCha20Poly1305 };
        let drawn = self.seal.unwrap_or_default();
        let is_shared = dice.random_bool(0.3);
        let has_reset = !mixed(self.seed ^ STREAM).is_multiple_of(4);
        self.seal = Some(SealPlan { cipher, is_shared, has_reset, ..drawn });
        // What began in the millisecond in which a server has started may be older.
        self.calls.iter_mut().for_each(|call| call.at = call.at.max(3 * MS));
        self.renew_after_all();
        self.add_intruders(dice);
        self
    }

    /// Clients may have to begin a session when all is over: each makes calls after that.
    fn renew_after_all(&mut self) {
        let last = self.calls.iter().filter(|call| call.is_after_all).map(|call| call.at).max();
        let Some(last) = last else { return };
        for client in 0..self.clients.len() {
            for round in 1..=2 {
                self.calls.push(call_after_all(
                    client,
                    client + round,
                    last + round as u64 * ROUND_NS,
                ));
            }
        }
    }

    /// Strangers forge and replay in all the run.
    fn add_intruders(&mut self, dice: &mut Generator) {
        let lasts_ns = self.quiet_at();
        for attack in [Attack::Forged, Attack::Replayed] {
            // What was damaged and is changed may be what it was.
            if attack == Attack::Forged && self.damage == Damage::Delivered {
                continue;
            }
            let every_ns = dice.random_range(20_000..400_000).max(lasts_ns / INTRUSIONS_MAX);
            let kind = FaultKind::Hostile { attack, every_ns };
            self.faults.push(Fault { at: 0, lasts_ns, kind });
        }
    }

    /// True if something is started anew in a run, so that sessions may be older than it.
    pub(super) fn has_restarts(&self) -> bool {
        let is_one = |fault: &Fault| {
            matches!(
                fault.kind,
                FaultKind::Crash { .. } | FaultKind::Stop { .. } | FaultKind::LostKeys { .. }
            )
        };
        self.faults.iter().any(is_one)
    }

    /// True if a host may be asked for what is sealed under a key that it has not.
    pub(super) fn may_lack_keys(&self) -> bool {
        let is_one = |fault: &Fault| {
            matches!(fault.kind, FaultKind::LostKeys { .. } | FaultKind::WallClock { .. })
        };
        let mut hosts = self.hosts();
        let first = hosts.next();
        let is_apart = hosts.any(|host| first.is_some_and(|first| self.are_apart(first, host)));
        is_apart || self.faults.iter().any(is_one)
    }

    /// True if a call may end as `Uncertain` because its session is older than who refuses it.
    pub(super) fn may_be_stale(&self, ending: Ending) -> bool {
        self.seal.is_some() && ending == Ending::Uncertain && self.has_restarts()
    }

    /// A promise that is broken by how a call ends whose client's wall clock is apart from all
    /// others; `None` where the client keeps time.
    pub(super) fn judge_apart(&self, call: &CallPlan, ending: Ending) -> Option<Option<Invariant>> {
        let client = Host::Client(call.client);
        let mut others = (0..self.servers.len()).map(Host::Server).chain(self.routers());
        if self.seal.is_none() || !others.all(|other| self.are_apart(client, other)) {
            return None;
        }
        // A router ignores what was sent long ago, as it must.
        let is_ignored = self.router.is_some() && self.off_ms(client) < 0;
        let is_told = match ending {
            Ending::Uncertain | Ending::Cancelled | Ending::NotMade | Ending::ClientDied => true,
            Ending::Deadline => is_ignored || !self.is_to_be_served,
            _ => !self.is_to_be_served && ending != Ending::Replied,
        };
        Some((!is_told).then_some(Invariant::Clocks))
    }
}

/// Every call is answered while keys rotate.
fn rotating(dice: &mut Generator, seed: u64) -> Plan {
    let mut plan = Plan::hostile_of_seed(seed);
    // Calls last for up to 400 ms, and are to end before two rotations.
    let every_ns = dice.random_range(220 * MS..500 * MS);
    plan.seal = Some(SealPlan { every_ns: Some(every_ns), ..SealPlan::default() });
    let stretch = dice.random_range(10..30);
    for call in &mut plan.calls {
        call.at *= stretch;
    }
    for fault in &mut plan.faults {
        fault.lasts_ns *= stretch;
        if let FaultKind::Hostile { every_ns, .. } = &mut fault.kind {
            *every_ns *= stretch;
        }
    }
    plan
}

/// The wall clocks of hosts that keep time are off by at most so much, ms.
fn set_clocks(dice: &mut Generator, plan: &mut Plan, most_ms: i64) {
    let mut off_ms = || dice.random_range(-most_ms..=most_ms);
    plan.router.iter_mut().for_each(|router| router.off_ms = off_ms());
    plan.servers.iter_mut().for_each(|server| server.off_ms = off_ms());
    plan.clients.iter_mut().for_each(|client| client.off_ms = off_ms());
}

/// Some clients are off by a day.
fn with_clocks_apart(dice: &mut Generator, seed: u64) -> Plan {
    let mut plan = Plan::hostile_of_seed(seed);
    let count = dice.random_range(1..=plan.clients.len());
    for client in plan.clients.iter_mut().take(count) {
        client.off_ms += if dice.random() { DAY_MS } else { -DAY_MS };
    }
    plan
}

/// Everything that hosts may lose, and all attacks.
fn exposed(dice: &mut Generator, seed: u64) -> Plan {
    let mut plan = Plan::hostile_of_seed(seed);
    plan.is_to_be_served = false;
    if let Some(router) = &mut plan.router {
        router.has_standby = dice.random_bool(0.4);
    }
    // Clocks are up to 40 ms apart, and files are late by up to half of that time.
    let every_ns = dice.random_range(120 * MS..300 * MS);
    let every_ns = dice.random_bool(0.5).then_some(every_ns);
    plan.seal = Some(SealPlan { every_ns, ..SealPlan::default() });
    set_clocks(dice, &mut plan, 20);
    if dice.random_bool(0.3) {
        let server = dice.random_range(0..plan.servers.len());
        plan.servers[server].off_ms = if dice.random() { DAY_MS } else { -DAY_MS };
    }
    for call in &mut plan.calls {
        call.at *= 2;
    }
    let lasts_ns = plan.calls.last().map_or(MS, |call| call.at);
    let share = dice.random_range(0.01..0.3);
    let faults = [
        FaultKind::Duplicates { from: None, share },
        FaultKind::Reordering { from: None, share, held_ns: dice.random_range(50_000..2 * MS) },
    ];
    plan.faults.extend(faults.map(|kind| Fault { at: 0, lasts_ns, kind }));
    for _ in 0..dice.random_range(1..=6) {
        let at = dice.random_range(0..lasts_ns);
        let kind = loss(dice, &plan);
        plan.faults.push(Fault { at, lasts_ns: dice.random_range(1_000..30 * MS), kind });
    }
    add_calls_after_all(&mut plan);
    plan
}

/// A host loses what it knows: all of it, its keys, or the time.
fn loss(dice: &mut Generator, plan: &Plan) -> FaultKind {
    let hosts: Vec<Host> = plan.hosts().collect();
    let host = hosts[dice.random_range(0..hosts.len())];
    let server = Host::Server(dice.random_range(0..plan.servers.len()));
    match dice.random_range(0..5) {
        0 | 1 => FaultKind::Crash { host },
        2 => FaultKind::LostKeys { host: server, is_old: dice.random() },
        3 => FaultKind::Stop { host: server },
        _ => {
            let by_ms = [-DAY_MS, -HOUR_MS, -150, -50, 50, 150, HOUR_MS, DAY_MS];
            FaultKind::WallClock { host, by_ms: by_ms[dice.random_range(0..by_ms.len())] }
        }
    }
}

/// Calls of each client when all is over, unless a server may refuse them for two minutes: one
/// whose clock is wrong, or was ahead.
fn add_calls_after_all(plan: &mut Plan) {
    let was_ahead = |fault: &Fault| match fault.kind {
        FaultKind::WallClock { host: Host::Server(_), by_ms } => by_ms > 0,
        _ => false,
    };
    let is_off = plan.servers.iter().any(|server| server.off_ms.abs() >= HOUR_MS);
    if is_off || plan.faults.iter().any(was_ahead) {
        return;
    }
    let begin = plan.quiet_at() + RECOVERY_NS;
    for client in 0..plan.clients.len() {
        plan.calls.push(call_after_all(client, client, begin));
    }
}

fn call_after_all(client: usize, word: usize, at: u64) -> CallPlan {
    CallPlan {
        at,
        client,
        request_len: 8,
        reply_len: 100,
        timeout_ns: 400 * MS,
        is_after_all: true,
        word: word as u64,
        ..CallPlan::default()
    }
}

const MS: u64 = 1_000_000;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Datagrams of each kind of intruder in a run.
const INTRUSIONS_MAX: u64 = 3_000;

/// After the last fault all is well again within this.
const RECOVERY_NS: u64 = 500 * MS;

/// Between two calls of a client when all is over: a call that is refused has been by then.
const ROUND_NS: u64 = 450 * MS;

/// The generator's stream for plans of this file.
const STREAM: u64 = 0x7365_616c;
