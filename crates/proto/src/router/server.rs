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
//! Extended requests are accounted for in `counts`, those of version 1 in `leases`; `probes` says
//! when it is asked, and `timings` what that shows.
//!
//! Invariant: `outstanding` is never below what has been placed and can still be on its way or at
//! the server, as far as packets in flight allow.

use std::net::{IpAddr, SocketAddr};

use tailcut_wire::r2p2::FeedbackBody;

use super::busy::{Busy, Rate, Report};
use super::census::{Counted, Crowd, Load, Standing};
use super::config::{RouterConfig, ServerConfig, Speaks};
use super::counts::{Counts, Heard, Run, Stale};
use super::crew::Crew;
use super::ids::ServerKey;
use super::leases::Leases;
use super::metrics::{ServerState, ServerStatus};
use super::pace::Pace;
use super::probes::{ProbeCause, Probes};
use super::shared::SharedCounts;
use super::timings::Timings;
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
    /// It gets no new requests, because it has not answered yet.
    pub(super) is_starting: bool,
    /// It gets no new requests, because it is to be removed.
    pub(super) is_draining: bool,
    /// It gets no new requests, because it does not answer.
    pub(super) is_silent: bool,
    /// It gets no new requests, because it says that it is stopping.
    pub(super) is_stopping: bool,
    /// Extended requests.
    counts: Counts,
    /// Requests of version 1.
    pub(super) leases: Leases,
    /// Requests placed since the server was added, and of these, concluded.
    totals: Totals,
    /// Load that the newest feedback reports; none before the first, and for version 1.
    pub(super) reported: Reported,
    /// Servers that it stands for, which its load is divided by: a router tells how many, at
    /// least 1.
    members: u32,
    /// Its weight, and whether it is of the preferred zone.
    pub(super) rank: Rank,
    /// Its speed and health.
    pub(super) pace: Pace,
    /// Its probes.
    probes: Probes,
    /// Its round trip and service time.
    timings: Timings,
    /// Its measurements while requests are held.
    busy: Busy,
    /// Its workers.
    pub(super) crew: Crew,
    /// The counts that a data plane had of it last, where there is one.
    shared: SharedCounts,
}

/// Load that a server reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported {
    /// Requests queued or running at the server.
    pub(super) requests: u32,
    /// Number of these that wait for a worker there.
    pub(super) waiting: u32,
}

/// Sums since the server was added.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    /// Requests placed.
    placed: u64,
    /// Requests concluded.
    concluded: u64,
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

impl Server {
    /// A server that is probed at once, and in service with its first answer. `placed` is a random
    /// word, so that a server that remembers an earlier incarnation of the router does not seem to
    /// know this one.
    pub(super) fn new(key: ServerKey, config: ServerConfig, now: Time, placed: u32) -> Self {
        Self {
            key,
            config,
            local: None,
            is_starting: config.speaks == Speaks::Extension,
            is_draining: false,
            is_silent: false,
            is_stopping: false,
            counts: Counts::new(placed),
            leases: Leases::default(),
            totals: Totals::default(),
            reported: Reported::default(),
            members: 1,
            rank: Rank::default(),
            pace: Pace::default(),
            probes: Probes::new(now, config.speaks),
            timings: Timings::default(),
            busy: Busy::default(),
            crew: Crew::default(),
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
        self.totals.concluded
    }

    /// Its part of the router's sums; without load of one that does not answer, since that may last
    /// for ever.
    #[inline]
    pub(super) fn counted(&self) -> Counted {
        let standing = self.standing();
        if self.is_silent {
            return Counted { standing, load: Load::default() };
        }
        let is_there = self.is_able() && !self.pace.is_ejected();
        let servers = if is_there { self.members } else { 0 };
        let load =
            Load { outstanding: self.outstanding(), waiting: self.reported.waiting, servers };
        Counted { standing, load }
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
        self.counts.outstanding().saturating_add(self.leases.len())
    }

    /// Servers that it stands for.
    pub(super) fn members(&self) -> u32 {
        self.members
    }

    /// Multiple of the bound that it may have: one for each unit of weight of each server that it
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
        let Reported { requests: reported, waiting } = self.reported;
        let outstanding = self.outstanding();
        // Nearly all are one, and divisions cost.
        if self.members == 1 {
            return policy::Load { outstanding, reported, waiting };
        }
        policy::Load {
            outstanding: outstanding / self.members,
            reported: reported / self.members,
            // Rounded: 1 as soon as half as many wait as it stands for.
            waiting: waiting.saturating_add(self.members / 2) / self.members,
        }
    }

    /// Places an extended request; its placement number. `taken` is that of a place which was taken
    /// at a data plane.
    pub(super) fn place(&mut self, now: Time, taken: Option<u32>) -> u32 {
        self.note_placement(now);
        let (number, before) = self.counts.place(taken);
        self.totals.placed += u64::from(before);
        self.shared.placed = number;
        number
    }

    /// Its counts for a data plane, if they are not those that it had of it last; those then.
    pub(super) fn correction(&mut self) -> Option<(SharedCounts, SharedCounts)> {
        let counts = self.shared_counts();
        let before = std::mem::replace(&mut self.shared, counts);
        (before != counts).then_some((before, counts))
    }

    /// Its counts for a data plane.
    pub(super) fn shared_counts(&self) -> SharedCounts {
        self.counts.share(SharedCounts {
            reported: self.reported.requests,
            waiting: self.reported.waiting,
            reports: self.shared.reports,
            is_in_service: self.is_in_service(),
            ..SharedCounts::default()
        })
    }

    /// It is added to a data plane, which knows these counts of it. Where that has placed on it
    /// until now, it is in service.
    pub(super) fn adopt(&mut self, counts: SharedCounts) {
        self.counts.adopt(&counts);
        self.shared = counts;
        if counts.epoch.is_some() {
            self.reported = Reported { requests: counts.reported, waiting: counts.waiting };
            self.is_starting &= !counts.is_in_service;
        }
    }

    /// Takes over what a data plane has placed and heard since; true if there was something.
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
            self.counts.add_placed(placed);
            self.totals.placed += u64::from(placed);
            // When the data plane placed these is not known here.
            self.timings.note_others();
        }
        if let Some(epoch) = counts.epoch.filter(|_| counts.reports != self.shared.reports) {
            self.totals.concluded += u64::from(self.counts.take_over(epoch, &counts));
            self.reported = Reported { requests: counts.reported, waiting: counts.waiting };
            self.probes.note_answer(now, false, config);
            self.is_silent = false;
            self.probes.unwatch();
        }
        self.shared = counts;
        true
    }

    /// Places a version 1 request; true if the oldest lease had to give way.
    #[must_use]
    pub(super) fn lease(&mut self, now: Time, config: &RouterConfig) -> bool {
        self.note_placement(now);
        self.leases.add(now, config)
    }

    /// Takes a version 1 feedback; true if a lease was there for it. A version 1 server is back in
    /// service.
    pub(super) fn conclude_lease(&mut self) -> bool {
        if self.config.speaks == Speaks::V1 {
            self.leases.end_failures();
            self.is_silent = false;
        }
        let had_lease = self.leases.conclude();
        self.totals.concluded += u64::from(had_lease);
        had_lease
    }

    /// Ends the oldest lease if it has expired.
    pub(super) fn expire_lease(&mut self, now: Time, config: &RouterConfig) -> bool {
        if !self.leases.expire(now) {
            return false;
        }
        if self.config.speaks == Speaks::V1
            && self.leases.failures() >= config.v1_failures_max
            && !self.is_silent
        {
            self.is_silent = true;
            self.leases.trial_at = now.saturating_add(config.v1_trial_interval_ns);
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
        let Heard { run, is_unaware } = self.counts.take(now, body, config.silent_ns)?;
        let mut shown = Shown { is_restart: run == Run::New, is_unaware, ..Shown::default() };
        match run {
            Run::First => self.timings.release_lone(),
            Run::Same(newly) => {
                self.totals.concluded += u64::from(newly);
                shown.newly = newly;
                shown.service_ns = self.timings.lone_service(now, body.concluded.get());
            }
            Run::New => {
                self.timings.release_lone();
                self.busy.clear();
            }
        }
        self.reported.requests = reported.into();
        self.probes.note_answer(now, shown.is_restart, config);
        self.is_silent = false;
        if std::mem::take(&mut self.is_starting) {
            self.probes.begin_turns(now, config);
        }
        if is_unaware {
            self.probes.ask_again(now, config);
        } else {
            shown.delay_ns = self.timings.round_trip(now);
        }
        Ok(shown)
    }

    /// A reply tells the load; true if that is news.
    pub(super) fn hear_load(&mut self, requests: u16, waiting: u16) -> bool {
        let told = Reported { requests: requests.into(), waiting: waiting.into() };
        std::mem::replace(&mut self.reported, told) != told
    }

    /// The server tells a token that probes are to echo: one goes out at once, if it is news.
    pub(super) fn learn_token(&mut self, now: Time, token: u64) {
        if self.config.speaks == Speaks::Extension {
            self.probes.learn_token(now, token);
        }
    }

    /// The token that probes echo.
    pub(super) fn token(&self) -> u64 {
        self.probes.token()
    }

    /// A probe is to go out at once.
    pub(super) fn ask(&mut self, now: Time) {
        self.probes.ask(now);
    }

    /// A request has been placed. Where it shows how many workers there are, a probe goes out
    /// behind it: at a server that is seldom asked for more than it has workers, reports of
    /// conclusions do not.
    pub(super) fn ask_whether_some_wait(&mut self, now: Time, config: &RouterConfig) {
        // Some never have enough for any to wait.
        let is_unknown = !self.crew.is_counted && self.probes.are_quiet(now, config);
        if is_unknown && self.outstanding() > self.crew.seen * u32::from(self.rank.weight.get()) {
            self.probes.ask(now);
        }
    }

    /// The cause, if a probe is due.
    pub(super) fn probe_due(&self, now: Time) -> Option<ProbeCause> {
        self.probes.due(now).filter(|_| self.config.speaks == Speaks::Extension)
    }

    /// A probe goes out; the placement number it carries. `jitter_ns` shortens the time to the
    /// next.
    pub(super) fn probe(&mut self, now: Time, jitter_ns: u64, config: &RouterConfig) -> u32 {
        let in_turn_ns = config.probe_interval_ns - jitter_ns;
        let first_ns = self.probes.first_interval_ns(config);
        let interval_ns = if self.is_starting { first_ns.min(in_turn_ns) } else { in_turn_ns };
        let is_only = self.probes.note_sent(now, interval_ns, self.counts.concluded().is_some());
        if !self.is_silent {
            self.probes.begin_silence(now, config);
        }
        // Only then is it certain which probe an answer is of, and that the server was idle.
        self.timings.note_probe(now, is_only && self.outstanding() == 0);
        self.counts.placed()
    }

    /// Takes the server out if its probes have stayed unanswered for too long.
    pub(super) fn check_silence(&mut self, now: Time, crowd: Crowd, config: &RouterConfig) {
        if self.probes.are_in_vain(now, crowd, config) {
            (self.is_silent, self.is_starting) = (true, false);
        }
    }

    /// Starts or stops the time to a probe out of turn. A silent server waits for its turn, and one
    /// of version 1 answers none.
    pub(super) fn watch_bound(&mut self, now: Time, bound: Option<u32>, config: &RouterConfig) {
        let outstanding = self.outstanding();
        if outstanding == 0 || self.is_silent || self.config.speaks == Speaks::V1 {
            return self.probes.unwatch();
        }
        let is_full = |bound: u32| outstanding >= bound.saturating_mul(self.units());
        let wait_ns = if bound.is_some_and(is_full) {
            config.stall_probe_ns
        } else {
            // So often that a server that is gone leaves enough of them unanswered.
            (config.silent_ns / 12).max(config.stall_probe_ns)
        };
        self.probes.watch(now.saturating_add(wait_ns));
    }

    /// Feedback was taken: the time to a probe out of turn begins anew.
    pub(super) fn rewatch_bound(&mut self) {
        self.probes.unwatch();
    }

    /// Time of what is due next here; [`Time::MAX`] for never.
    pub(super) fn next_event(&self) -> Time {
        self.leases.next_expiry().unwrap_or(Time::MAX).min(self.probes.next_event())
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
            reported: self.reported.requests,
            waiting: self.reported.waiting,
            placed: self.totals.placed,
            // Behind a router others' requests are concluded too.
            concluded: self.totals.concluded.min(self.totals.placed),
            rtt_ns: self.timings.rtt_ns(),
            service_ns: self.timings.service_ns(),
            rank: self.rank,
        }
    }

    /// Feedback was taken, which has concluded `newly`: what that shows, if others were held all
    /// along.
    pub(super) fn busy_rate(&mut self, now: Time, newly: u32, is_holding: bool) -> Option<Rate> {
        let concluded = self.counts.concluded()?;
        if !is_holding {
            self.busy.clear();
            return None;
        }
        let Crew { seen, is_counted } = self.crew;
        let Reported { requests, waiting } = self.reported;
        let is_full = is_counted && requests.saturating_sub(waiting) >= seen;
        // Of several servers together nobody knows whether each of them is busy.
        let full = (is_full && self.units() == 1).then_some(seen);
        let load = (self.outstanding() + newly).saturating_sub(waiting);
        let rate = self.busy.note(now, Report { concluded, load, full })?;
        // Each of the servers that it stands for takes so many times as long as all together.
        let time_ns = rate.time_ns.saturating_mul(self.members.into());
        Some(Rate { time_ns, ..rate })
    }

    fn note_placement(&mut self, now: Time) {
        self.totals.placed += 1;
        self.timings.note_placement();
        if self.outstanding() == 0 {
            self.timings.note_lone(now, self.counts.concluded());
        }
    }
}

#[cfg(test)]
mod tests;
