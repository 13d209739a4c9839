//! One server as its router accounts for it.
//!
//! | a server is | event | then |
//! |---|---|---|
//! | starting | its first feedback; version 1: at once | in service |
//! | in service, starting | extended: its probes stay unanswered for its patience | silent |
//! | in service | version 1: `v1_failures_max` leases expire in a row | silent, with a trial request now and then |
//! | silent | feedback that is taken | in service |
//! | in service | feedback that says that it is stopping | stopping |
//! | stopping | feedback that does not, as of the server after its restart or when it resumes | in service |
//! | in service | it is much slower than the others, as [`super::outliers`] says | ejected, and tried again |
//! | in service, silent | `drain` | draining: no new requests, feedback counts on |
//!
//! Extended requests are accounted for absolutely: outstanding = (placed - seen) + (received -
//! concluded), of which the router knows the first and the server says the other three. Nothing
//! else is remembered, so a lost, repeated or reordered feedback heals with the next, and a lost
//! request with the answer to the next probe, which makes the server see everything placed so far.
//! What the server says it has seen is used only if it lies between what it said before and what
//! was placed; else it does not know this router yet (either has restarted), and `seen` stays where
//! it was: the count is then too high, never too low, until the answer to the probe that this
//! causes.
//!
//! A server's patience is `silent_ns`, or an eighth more than the longest that it has let a probe
//! wait of late: one whose handlers keep its thread, or whose machine pauses, is silent for longer
//! before it is given up. Probes follow traffic: the first that stays unanswered leaves a twelfth
//! of `silent_ns` after the last report of a server that has requests, so that it is out after 13
//! twelfths. It is `silent_ns_max` at most, and always where more than half of the servers would be
//! silent: then it is rather the router that does not hear.
//!
//! Version 1 requests have no placement and are leases instead: each counts until a feedback of
//! version 1 or its expiry takes the oldest away.
//!
//! Invariant: `outstanding` is never below what has been placed and can still be on its way or at
//! the server, as far as packets in flight allow.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use tailcut_wire::r2p2::FeedbackBody;

use super::busy::{Busy, Rate, Report};
use super::config::{RouterConfig, ServerConfig, Speaks};
use super::ids::ServerKey;
use super::metrics::{ServerState, ServerStatus};
use super::pace::Pace;
use super::shared::SharedCounts;
use crate::node::Time;
use crate::policy;
use crate::scheduler::Rank;

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    /// Names it.
    pub(super) key: ServerKey,
    /// Its address and what it speaks.
    config: ServerConfig,
    /// The router's address that the server last reported to: what is sent to it leaves from there,
    /// so that it counts towards one router.
    pub(super) local: Option<IpAddr>,
    /// Token that shows it that the router receives at its address; 0 before it has asked.
    pub(super) token: u64,
    /// No probe has echoed it yet.
    is_token_new: bool,
    /// It gets no new requests, because it has not answered yet.
    pub(super) is_starting: bool,
    /// It gets no new requests, because it is to be removed.
    pub(super) is_draining: bool,
    /// It gets no new requests, because it does not answer.
    pub(super) is_silent: bool,
    /// It gets no new requests, because it says that it is stopping.
    pub(super) is_stopping: bool,
    /// Placement number of the last extended request placed; begins at a random word. Wraps.
    placed: u32,
    /// Placement number up to which the server has seen or will never see; at most `placed`,
    /// wrapping.
    seen: u32,
    /// The newest feedback taken.
    heard: Option<FeedbackBody>,
    /// Load that the newest feedback reports: requests queued or running at the server. 0 before
    /// the first, and for version 1.
    pub(super) reported: u32,
    /// Of these, the requests that wait for a worker there.
    pub(super) waiting: u32,
    /// Servers that it stands for, which its load is divided by: a router tells how many, at
    /// least 1.
    members: u32,
    /// How it stands among the others.
    pub(super) rank: Rank,
    /// How fast it is.
    pub(super) pace: Pace,
    /// Its part of the sum over all servers.
    pub(super) summed: Load,
    /// The epoch before that of `heard`, and until when it is ignored: it can only be an old
    /// packet.
    retired_epoch: Option<(u32, Time)>,
    /// Expiries of the version 1 requests placed, oldest first; at most `lease_len_max`.
    leases: VecDeque<Time>,
    /// Leases expired since the last feedback.
    failures: u32,
    /// When the next trial request may go to a silent version 1 server.
    pub(super) trial_at: Time,
    /// When the next probe in turn is due; never for version 1.
    probe_at: Time,
    /// When a probe was last sent.
    probed_at: Option<Time>,
    /// When a probe out of turn is due, for the server has requests; `None` when it has none.
    stall_at: Option<Time>,
    /// Probes sent since feedback was last taken.
    unanswered: u32,
    /// When the first of them was sent.
    asked_at: Option<Time>,
    /// When they will have been unanswered for too long.
    silence_at: Time,
    /// The time under which it is among the servers that have something due; [`Time::MAX`] if it is
    /// not. Nothing is due before.
    pub(super) due_at: Time,
    /// Standing that it was counted under last.
    counted: Standing,
    /// An eighth more than the longest wait for an answer, which decays within seconds,
    /// nanoseconds.
    patience_ns: u64,
    /// When it was last heard after it had been asked.
    answered_at: Time,
    /// A probe sent while nothing was outstanding, when it was sent; `None` once something has been
    /// placed since.
    idle_probe: Option<Time>,
    /// A request placed while nothing was outstanding, when it was placed, and the server's
    /// concluded count then.
    lone_request: Option<(Time, u32)>,
    /// What it shows while requests are held.
    busy: Busy,
    /// Requests placed since the server was added.
    placed_total: u64,
    /// Requests concluded since then.
    concluded_total: u64,
    /// Average round trip of idle probes, nanoseconds.
    rtt_ns: Option<u64>,
    /// Average service of lone requests, nanoseconds.
    service_ns: Option<u64>,
    /// Workers that it seems to have, at least 1.
    pub(super) workers: u32,
    /// A report has shown that requests wait when so many run.
    pub(super) is_counted: bool,
    /// The counts that a data plane had of it last, where there is one.
    pub(super) shared: SharedCounts,
}

/// Findings of a taken feedback besides the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// The server has restarted.
    pub(super) is_restart: bool,
    /// The server does not know this router's placements.
    pub(super) is_unaware: bool,
    /// Round trip to the idle server, nanoseconds.
    pub(super) delay_ns: Option<u64>,
    /// Service time of a request that found it idle, nanoseconds.
    pub(super) service_ns: Option<u64>,
    /// Requests concluded since the feedback before.
    pub(super) newly: u32,
    /// The time in which each of the servers that it stands for concluded so many requests, while
    /// others were held.
    pub(super) busy: Option<Rate>,
}

/// Feedback that is older than what is known, or contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stale;

/// How the other servers are when one does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crowd {
    /// At least half of all would still answer.
    Answers,
    /// More than half of all would be silent.
    IsSilent,
}

/// Standing of a server among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing: it is not probed, or on its way out.
    Aside,
    /// It has not answered yet.
    Starting,
    /// It answers.
    Answering,
    /// It does not.
    Silent,
}

/// Sums over the servers that answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Requests placed and not known to be concluded.
    pub(super) outstanding: u32,
    /// Of what they report, requests that wait for a worker.
    pub(super) waiting: u32,
    /// Servers in service, those behind other routers among them.
    pub(super) servers: u32,
}

impl Load {
    /// The load of one server; none of one that does not answer, since that may last for ever.
    pub(super) fn of(server: &Server) -> Self {
        if server.is_silent {
            return Self::default();
        }
        let is_there = server.is_able() && !server.pace.is_ejected();
        let servers = if is_there { server.members() } else { 0 };
        Self { outstanding: server.outstanding(), waiting: server.waiting, servers }
    }

    /// Puts the load of a server in the place of what it had.
    pub(super) fn replace(&mut self, before: Self, now: Self) {
        let change = |sum: u32, before: u32, now: u32| sum.wrapping_sub(before).wrapping_add(now);
        self.outstanding = change(self.outstanding, before.outstanding, now.outstanding);
        self.waiting = change(self.waiting, before.waiting, now.waiting);
        self.servers = change(self.servers, before.servers, now.servers);
    }
}

/// How many servers there are of each standing, and what they have together.
#[derive(Debug, Default)]
pub(super) struct Census([u32; 4], Load);

impl Census {
    pub(super) fn count(&self, standing: Standing) -> u32 {
        self.0[standing as usize]
    }

    /// How it would be if one more server were silent.
    pub(super) fn crowd(&self) -> Crowd {
        let silent = self.count(Standing::Silent);
        let all = silent + self.count(Standing::Starting) + self.count(Standing::Answering);
        if 2 * (silent + 1) <= all { Crowd::Answers } else { Crowd::IsSilent }
    }

    /// What all have together.
    pub(super) fn load(&self) -> Load {
        self.1
    }

    /// Counts a server as what it is now; true if that is something else than before.
    pub(super) fn recount(&mut self, server: &mut Server) -> bool {
        let load = Load::of(server);
        self.1.replace(std::mem::replace(&mut server.summed, load), load);
        let standing = server.standing();
        if standing == server.counted {
            return false;
        }
        self.leave(server);
        server.counted = standing;
        if standing != Standing::Aside {
            self.0[standing as usize] += 1;
        }
        true
    }

    /// A server is removed.
    pub(super) fn remove(&mut self, server: &Server) {
        self.1.replace(server.summed, Load::default());
        self.leave(server);
    }

    fn leave(&mut self, server: &Server) {
        if server.counted != Standing::Aside {
            self.0[server.counted as usize] -= 1;
        }
    }
}

/// Why a server is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeCause {
    /// It is its turn.
    Turn,
    /// It has requests, and gives no feedback.
    Stall,
}

impl Server {
    /// A server that is probed at once, and in service with its first answer. `placed` is a random
    /// word, so that a server that remembers an earlier incarnation of the router does not seem to
    /// know this one.
    pub(super) fn new(key: ServerKey, config: ServerConfig, now: Time, placed: u32) -> Self {
        Self {
            key,
            config,
            local: None,
            token: 0,
            is_token_new: false,
            is_starting: config.speaks == Speaks::Extension,
            is_draining: false,
            is_silent: false,
            is_stopping: false,
            placed,
            seen: placed,
            heard: None,
            reported: 0,
            waiting: 0,
            members: 1,
            rank: Rank::default(),
            pace: Pace::default(),
            summed: Load::default(),
            retired_epoch: None,
            leases: VecDeque::new(),
            failures: 0,
            trial_at: 0,
            probe_at: if config.speaks == Speaks::V1 { Time::MAX } else { now },
            probed_at: None,
            stall_at: None,
            unanswered: 0,
            asked_at: None,
            silence_at: Time::MAX,
            due_at: Time::MAX,
            counted: Standing::Aside,
            patience_ns: 0,
            answered_at: now,
            idle_probe: None,
            lone_request: None,
            busy: Busy::default(),
            placed_total: 0,
            concluded_total: 0,
            rtt_ns: None,
            service_ns: None,
            workers: 1,
            is_counted: false,
            shared: SharedCounts::default(),
        }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.config.addr
    }

    pub(super) fn speaks(&self) -> Speaks {
        self.config.speaks
    }

    /// True if it gets new requests.
    pub(super) fn is_in_service(&self) -> bool {
        self.is_able() && !self.pace.is_out()
    }

    /// True if it would get new requests, were it not too slow.
    pub(super) fn is_able(&self) -> bool {
        !(self.is_starting || self.is_draining || self.is_silent || self.is_stopping)
    }

    /// Requests concluded since it was added.
    pub(super) fn concluded_total(&self) -> u64 {
        self.concluded_total
    }

    fn standing(&self) -> Standing {
        match self.config.speaks {
            Speaks::V1 => Standing::Aside,
            Speaks::Extension if self.is_draining || self.is_stopping => Standing::Aside,
            Speaks::Extension if self.is_silent => Standing::Silent,
            Speaks::Extension if self.is_starting => Standing::Starting,
            Speaks::Extension => Standing::Answering,
        }
    }

    /// Requests placed and not known to be concluded.
    pub(super) fn outstanding(&self) -> u32 {
        let at_server =
            self.heard.map_or(0, |heard| heard.received.get().wrapping_sub(heard.concluded.get()));
        let in_flight = self.placed.wrapping_sub(self.seen);
        in_flight.saturating_add(at_server).saturating_add(self.leases.len() as u32)
    }

    /// Servers that it stands for.
    pub(super) fn members(&self) -> u32 {
        self.members
    }

    /// How often a bound is to be had of it: once for each unit of weight of each server that it
    /// stands for.
    pub(super) fn units(&self) -> u32 {
        self.members * u32::from(self.rank.weight.get())
    }

    /// It says how many servers it stands for; 0 of one alone.
    pub(super) fn note_members(&mut self, count: u32) {
        self.members = count.clamp(1, u32::from(u16::MAX));
    }

    /// Its load as policies see it: of each of the servers that it stands for. Somebody waits where
    /// that is likely of the one that a request would get.
    pub(super) fn load(&self) -> policy::Load {
        let (outstanding, reported, waiting) = (self.outstanding(), self.reported, self.waiting);
        // Nearly all are one, and divisions cost.
        if self.members == 1 {
            return policy::Load { outstanding, reported, waiting };
        }
        policy::Load {
            outstanding: outstanding / self.members,
            reported: reported / self.members,
            waiting: waiting.saturating_add(self.members / 2) / self.members,
        }
    }

    /// Places an extended request; its placement number. `taken` is that of a place which was taken
    /// at a data plane.
    pub(super) fn place(&mut self, now: Time, taken: Option<u32>) -> u32 {
        self.note_placement(now);
        let number = self.placed.wrapping_add(1);
        let taken = taken.unwrap_or(number);
        self.placed_total += u64::from(taken.wrapping_sub(number));
        (self.placed, self.shared.placed) = (taken, taken);
        taken
    }

    /// What it shares with a data plane.
    pub(super) fn shared_counts(&self) -> SharedCounts {
        let heard = self.heard.unwrap_or_default();
        SharedCounts {
            placed: self.placed,
            seen: self.seen,
            received: heard.received.get(),
            concluded: heard.concluded.get(),
            epoch: self.heard.map(|heard| heard.epoch.get()),
            reported: self.reported,
            waiting: self.waiting,
            reports: self.shared.reports,
            is_in_service: self.is_in_service(),
        }
    }

    /// It is added to a data plane, which knows these counts of it. Where that has placed on it
    /// until now, it is in service.
    pub(super) fn adopt(&mut self, counts: SharedCounts) {
        (self.placed, self.seen, self.shared) = (counts.placed, counts.seen, counts);
        if let Some(epoch) = counts.epoch {
            self.hear(epoch, &counts);
            self.is_starting &= !counts.is_in_service;
        }
    }

    /// Takes over what a data plane has placed and heard since; whether there was something.
    pub(super) fn take_over(
        &mut self,
        now: Time,
        counts: SharedCounts,
        config: &RouterConfig,
    ) -> bool {
        if counts == self.shared {
            return false;
        }
        let placed = counts.placed.wrapping_sub(self.shared.placed);
        if placed != 0 {
            self.placed = self.placed.wrapping_add(placed);
            self.placed_total += u64::from(placed);
            (self.idle_probe, self.lone_request) = (None, None);
        }
        if let Some(epoch) = counts.epoch.filter(|_| counts.reports != self.shared.reports) {
            let known = self.heard.filter(|heard| heard.epoch.get() == epoch);
            let newly =
                known.map_or(0, |heard| counts.concluded.wrapping_sub(heard.concluded.get()));
            self.concluded_total += u64::from(newly);
            self.seen = counts.seen;
            self.hear(epoch, &counts);
            self.note_answer(now, false, config);
            self.is_silent = false;
            self.rewatch_bound();
        }
        self.shared = counts;
        true
    }

    fn hear(&mut self, epoch: u32, counts: &SharedCounts) {
        self.heard = Some(FeedbackBody {
            epoch: epoch.into(),
            placement_seen: counts.seen.into(),
            received: counts.received.into(),
            concluded: counts.concluded.into(),
        });
        (self.reported, self.waiting) = (counts.reported, counts.waiting);
    }

    /// Places a version 1 request; whether the oldest lease had to give way.
    #[must_use]
    pub(super) fn lease(&mut self, now: Time, config: &RouterConfig) -> bool {
        self.note_placement(now);
        let gives_way = self.leases.len() >= config.lease_len_max;
        if gives_way {
            self.leases.pop_front();
        }
        self.leases.push_back(now.saturating_add(config.lease_ns));
        gives_way
    }

    /// Takes a version 1 feedback; whether a lease was there for it. A version 1 server is back in
    /// service.
    pub(super) fn conclude_lease(&mut self) -> bool {
        if self.config.speaks == Speaks::V1 {
            self.failures = 0;
            self.is_silent = false;
        }
        let had_lease = self.leases.pop_front().is_some();
        self.concluded_total += u64::from(had_lease);
        had_lease
    }

    /// Ends the oldest lease if it has expired.
    pub(super) fn expire_lease(&mut self, now: Time, config: &RouterConfig) -> bool {
        if self.leases.front().is_none_or(|&expiry| expiry > now) {
            return false;
        }
        self.leases.pop_front();
        self.failures = self.failures.saturating_add(1);
        if self.config.speaks == Speaks::V1
            && self.failures >= config.v1_failures_max
            && !self.is_silent
        {
            self.is_silent = true;
            self.trial_at = now.saturating_add(config.v1_trial_interval_ns);
        }
        true
    }

    /// Takes an extended feedback.
    pub(super) fn take_feedback(
        &mut self,
        now: Time,
        body: &FeedbackBody,
        reported: u16,
        config: &RouterConfig,
    ) -> Result<Shown, Stale> {
        let mut shown = Shown::default();
        self.catch_up(body.placement_seen.get());
        let at_server = body.received.get().wrapping_sub(body.concluded.get());
        let in_flight = self.placed.wrapping_sub(body.placement_seen.get());
        let is_backward = is_before(body.placement_seen.get(), self.seen);
        if at_server > AT_SERVER_MAX {
            return Err(Stale);
        }
        match &self.heard {
            Some(heard) if heard.epoch == body.epoch => {
                let counts_back = is_before(body.received.get(), heard.received.get())
                    || is_before(body.concluded.get(), heard.concluded.get());
                if counts_back || (is_backward && in_flight <= IN_FLIGHT_MAX) {
                    return Err(Stale);
                }
                let newly = body.concluded.get().wrapping_sub(heard.concluded.get());
                self.concluded_total += u64::from(newly);
                shown.newly = newly;
                shown.service_ns = self.lone_service(now, body.concluded.get());
            }
            Some(heard) => {
                let is_retired = self
                    .retired_epoch
                    .is_some_and(|(epoch, until)| epoch == body.epoch.get() && now < until);
                // A server that begins anew has seen something of this router, and sees the rest by
                // the next probe. What knows less than was known is an old packet, also of an epoch
                // that this router has never heard.
                let is_behind = (in_flight > IN_FLIGHT_MAX || is_backward)
                    && heard.placement_seen.get() == self.seen;
                if is_retired || is_behind {
                    return Err(Stale);
                }
                self.retired_epoch =
                    Some((heard.epoch.get(), now.saturating_add(config.silent_ns)));
                self.lone_request = None;
                self.busy.clear();
                shown.is_restart = true;
            }
            None => self.lone_request = None,
        }
        if in_flight > IN_FLIGHT_MAX || is_backward {
            shown.is_unaware = true;
        } else {
            self.seen = body.placement_seen.get();
        }
        self.heard = Some(*body);
        self.reported = reported.into();
        self.note_answer(now, shown.is_restart, config);
        self.is_silent = false;
        if std::mem::take(&mut self.is_starting) {
            self.probe_at = now.saturating_add(config.probe_interval_ns);
        }
        if shown.is_unaware {
            // Not at once: a server that never learns would be probed for each answer to a probe.
            let soonest = self.probed_at.map_or(now, |at| at.saturating_add(config.stall_probe_ns));
            self.probe_at = self.probe_at.min(soonest.max(now));
        } else {
            shown.delay_ns = self.idle_probe.take().map(|sent_at| now.saturating_sub(sent_at));
            self.rtt_ns = smooth(self.rtt_ns, shown.delay_ns);
        }
        Ok(shown)
    }

    /// The server is heard: learns how long it let the first probe wait that nothing came for. Not
    /// of one that has restarted, or was away for longer than any is given: that was no pause.
    fn note_answer(&mut self, now: Time, is_restart: bool, config: &RouterConfig) {
        self.unanswered = 0;
        self.silence_at = Time::MAX;
        if let Some(asked_at) = self.asked_at.take() {
            // By time, since busy servers answer often: half of it in 3 s.
            let since_ns = now.saturating_sub(std::mem::replace(&mut self.answered_at, now));
            let lost_ns = (self.patience_ns >> 16) * (since_ns.min(PATIENCE_DECAY_NS) >> 16);
            let forgotten = self.patience_ns.saturating_sub(lost_ns);
            let waited_ns = now.saturating_sub(asked_at);
            if is_restart || waited_ns > config.silent_ns_max {
                self.patience_ns = forgotten;
                return;
            }
            self.patience_ns = forgotten.max(waited_ns.saturating_add(waited_ns / 8));
        }
    }

    /// Numbers placements on from where the server is, if it is ahead. It can only be so because it
    /// remembers an earlier incarnation of this router, and would take all that follows, up to
    /// there, for old and reordered.
    fn catch_up(&mut self, placement_seen: u32) {
        let ahead = placement_seen.wrapping_sub(self.placed);
        if (1..=IN_FLIGHT_MAX).contains(&ahead) {
            // As many are in flight as before.
            self.placed = placement_seen.wrapping_add(self.placed.wrapping_sub(self.seen));
            self.seen = placement_seen;
        }
    }

    /// The server tells a token that probes are to echo: one goes out at once, if it is news.
    pub(super) fn learn_token(&mut self, now: Time, token: u64) {
        if self.config.speaks == Speaks::Extension && self.token != token {
            self.token = token;
            self.is_token_new = true;
            self.probe_at = now;
        }
    }

    /// A probe is to go out at once.
    pub(super) fn ask(&mut self, now: Time) {
        self.probe_at = self.probe_at.min(now);
    }

    /// A request has been placed. Where it shows how many workers there are, a probe goes out
    /// behind it: at a server that is seldom asked for more than it has workers, reports of
    /// conclusions do not.
    pub(super) fn ask_whether_some_wait(&mut self, now: Time, config: &RouterConfig) {
        // Some never have enough for any to wait.
        let is_soon = |at: Time| now < at.saturating_add(config.stall_probe_ns);
        let is_unknown =
            !self.is_counted && self.unanswered == 0 && !self.probed_at.is_some_and(is_soon);
        if is_unknown && self.outstanding() > self.workers * u32::from(self.rank.weight.get()) {
            self.ask(now);
        }
    }

    /// The cause, if a probe is due.
    pub(super) fn probe_due(&self, now: Time) -> Option<ProbeCause> {
        if self.config.speaks == Speaks::V1 {
            None
        } else if self.stall_at.is_some_and(|at| at <= now) {
            Some(ProbeCause::Stall)
        } else {
            (self.probe_at <= now).then_some(ProbeCause::Turn)
        }
    }

    /// A probe goes out; the placement number it carries. `jitter_ns` shortens the time to the
    /// next.
    pub(super) fn probe(&mut self, now: Time, jitter_ns: u64, config: &RouterConfig) -> u32 {
        let in_turn_ns = config.probe_interval_ns - jitter_ns;
        // Requests may wait for the first answer, so its probes come quickly at first.
        let first_ns = config.stall_probe_ns.saturating_mul(1 << self.unanswered.min(16));
        let interval_ns = if self.is_starting { first_ns.min(in_turn_ns) } else { in_turn_ns };
        self.probe_at = now.saturating_add(interval_ns);
        self.probed_at = Some(now);
        self.stall_at = None;
        self.unanswered = self.unanswered.saturating_add(1);
        let asked_at = *self.asked_at.get_or_insert(now);
        if self.unanswered == UNANSWERED_MIN && !self.is_silent {
            // The last of them is given time too.
            let patience_end = asked_at.saturating_add(self.patience(config));
            self.silence_at = patience_end.max(now.saturating_add(config.stall_probe_ns));
        }
        // Feedback that comes is of this probe: of those before, the server has answered all, or
        // none whose token it did not know.
        let is_only = self.unanswered == 1 && self.heard.is_some();
        let is_only = std::mem::take(&mut self.is_token_new) || is_only;
        self.idle_probe = (is_only && self.outstanding() == 0).then_some(now);
        self.placed
    }

    /// Takes the server out if its probes have stayed unanswered for too long. The number of probes
    /// counts besides the time, lest a pause of the router itself looks like the silence of all
    /// servers.
    pub(super) fn check_silence(&mut self, now: Time, crowd: Crowd, config: &RouterConfig) {
        if self.silence_at > now {
            return;
        }
        let longest_end = self.asked_at.unwrap_or(now).saturating_add(config.silent_ns_max);
        if crowd == Crowd::IsSilent && now < longest_end {
            // Others may answer before.
            self.silence_at = longest_end.min(now.saturating_add(self.patience(config) / 4 + 1));
            return;
        }
        self.is_silent = true;
        self.is_starting = false;
        self.stall_at = None;
        self.silence_at = Time::MAX;
    }

    /// How long its probes may stay unanswered while the others answer.
    fn patience(&self, config: &RouterConfig) -> u64 {
        self.patience_ns.max(config.silent_ns).min(config.silent_ns_max)
    }

    /// Starts or stops the time to a probe out of turn. A silent server waits for its turn.
    pub(super) fn watch_bound(&mut self, now: Time, bound: Option<u32>, config: &RouterConfig) {
        let outstanding = self.outstanding();
        let is_full = |bound: u32| outstanding >= bound.saturating_mul(self.units());
        let wait_ns = if bound.is_some_and(is_full) {
            config.stall_probe_ns
        } else {
            // So often that a server that is gone leaves enough of them unanswered.
            (config.silent_ns / 12).max(config.stall_probe_ns)
        };
        let at = now.saturating_add(wait_ns);
        self.stall_at = (outstanding > 0 && !self.is_silent)
            .then(|| self.stall_at.map_or(at, |before| before.min(at)));
    }

    /// Feedback was taken: the time to a probe out of turn begins anew.
    pub(super) fn rewatch_bound(&mut self) {
        self.stall_at = None;
    }

    /// When something is due here; [`Time::MAX`] for never.
    pub(super) fn next_event(&self) -> Time {
        let lease = self.leases.front().copied().unwrap_or(Time::MAX);
        let stall =
            self.stall_at.filter(|_| self.config.speaks == Speaks::Extension).unwrap_or(Time::MAX);
        lease.min(stall).min(self.probe_at).min(self.silence_at)
    }

    pub(super) fn status(&self) -> ServerStatus {
        ServerStatus {
            addr: self.config.addr,
            speaks: self.config.speaks,
            state: match () {
                () if self.is_draining => ServerState::Draining,
                () if self.is_silent => ServerState::Silent,
                () if self.is_stopping => ServerState::Stopping,
                () if self.is_starting => ServerState::Starting,
                () if self.pace.is_ejected() => ServerState::Ejected,
                () => ServerState::InService,
            },
            outstanding: self.outstanding(),
            reported: self.reported,
            waiting: self.waiting,
            placed: self.placed_total,
            // Behind a router others' requests are concluded too.
            concluded: self.concluded_total.min(self.placed_total),
            rtt_ns: self.rtt_ns,
            service_ns: self.service_ns,
            rank: self.rank,
        }
    }

    /// Feedback was taken, which has concluded `newly`: what that shows, if others were held all
    /// along.
    pub(super) fn busy_rate(&mut self, now: Time, newly: u32, is_holding: bool) -> Option<Rate> {
        let concluded = self.heard?.concluded.get();
        if !is_holding {
            self.busy.clear();
            return None;
        }
        let is_full = self.is_counted && self.reported.saturating_sub(self.waiting) >= self.workers;
        let full = (is_full && self.units() == 1).then_some(self.workers);
        let load = (self.outstanding() + newly).saturating_sub(self.waiting);
        let rate = self.busy.note(now, Report { concluded, load, full })?;
        let time_ns = rate.time_ns.saturating_mul(self.members.into());
        Some(Rate { time_ns, ..rate })
    }

    fn note_placement(&mut self, now: Time) {
        self.placed_total += 1;
        self.idle_probe = None;
        if self.outstanding() == 0 {
            self.lone_request = self.heard.map(|heard| (now, heard.concluded.get()));
        }
    }

    /// The service time that the conclusion of a lone request shows, if `concluded` is exactly
    /// that.
    fn lone_service(&mut self, now: Time, concluded: u32) -> Option<u64> {
        let (placed_at, before) = self.lone_request?;
        let newly = concluded.wrapping_sub(before);
        if newly == 0 {
            return None;
        }
        self.lone_request = None;
        let sojourn = now.saturating_sub(placed_at);
        let service = self.rtt_ns.filter(|_| newly == 1).map(|rtt| sojourn.saturating_sub(rtt));
        self.service_ns = smooth(self.service_ns, service);
        service
    }
}

/// True if count `a` lies before `b`, wrapping.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

fn smooth(old: Option<u64>, sample: Option<u64>) -> Option<u64> {
    match (old, sample) {
        (Some(old), Some(sample)) => Some(old - old / 8 + sample / 8),
        (old, sample) => sample.or(old),
    }
}

/// Time in which a server's patience decays, about, nanoseconds.
const PATIENCE_DECAY_NS: u64 = 1 << 32;

/// Fewer probes without an answer say nothing: each may have been lost.
const UNANSWERED_MIN: u32 = 3;

/// Most requests on their way to a server: what lies further back is another incarnation's count.
pub const IN_FLIGHT_MAX: u32 = 1 << 16;

/// Most requests that a server can have: more is a count gone wrong.
pub const AT_SERVER_MAX: u32 = 1 << 24;

#[cfg(test)]
mod tests;
