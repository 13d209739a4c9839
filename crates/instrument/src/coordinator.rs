//! One load, measured by a self-correcting run over any number of agents.
//!
//! The controller of `measure` decides how long to warm up and to measure; this gives it what the
//! agents tell, leg by leg. The load never pauses between legs: a leg is a number of slices, and is
//! over once every thread of every agent has told them all.
//!
//! A leg's latencies go to the controller in the order of their intended sends, as soon as every
//! thread has told of their slice, and are kept by nobody.
//!
//! Invariant: samples and histograms are merged, percentiles never. An agent that is lost is in the
//! verdict, by name.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use tailcut_measure::arrivals::Process;
use tailcut_measure::control::{Controller, Leg, Report, Settings, Step, Window};
use tailcut_measure::leg::LegRecord;
use tailcut_measure::outcome::Counts;
use tailcut_measure::slices::Slice;
use tailcut_measure::statistics::arrival_fit::{ArrivalFit, Asked};
use tailcut_measure::statistics::departures::{Departures, Gaps};
use tailcut_net::clock::Clock;

use super::clocks::Clocks;
use super::host_load::CpuCounts;
use super::job::{Agent, AgentEvent, ClientCounts, Job, LoadShare, Role, StampKind};
use super::record::{Keep, Kept, Record};
use super::result::Host;
use super::samples::Samples;
use super::view::{AgentStatus, Phase, View};

/// An agent with its share.
pub(super) struct AgentSession {
    agent: Box<dyn Agent>,
    pub(super) job: Job,
    state: State,
    pub(super) host: Host,
    pub(super) stamps: StampKind,
    /// By thread.
    threads: Vec<Thread>,
    /// Counts of the requests of the measurement.
    pub(super) counts: Counts,
    /// Their latencies from the intended send.
    pub(super) kept: Kept,
    /// Over the whole run.
    pub(super) client: ClientCounts,
    /// CPU times of the measurement.
    pub(super) cpu: CpuCounts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Preparing,
    Running,
    Done,
    Lost(String),
}

/// State of a load thread, as far as it has told.
struct Thread {
    slices: VecDeque<Slice>,
    /// Slices told in all.
    told: u32,
    /// Departures of the leg.
    departures: Departures,
    asked: Option<Asked>,
}

/// Result of a measured load.
pub(super) struct Measured {
    pub(super) report: Report,
    pub(super) record: Record,
    pub(super) sessions: Vec<AgentSession>,
    pub(super) clocks: Clocks,
}

impl AgentSession {
    pub(super) fn new(agent: Box<dyn Agent>, job: Job) -> Result<Self> {
        let asked = asked(&job)?;
        let thread = || Thread {
            slices: VecDeque::new(),
            told: 0,
            departures: Departures::default(),
            asked: asked.clone(),
        };
        Ok(Self {
            threads: (0..job.threads).map(|_| thread()).collect(),
            agent,
            job,
            state: State::Preparing,
            host: Host::default(),
            stamps: StampKind::User,
            counts: Counts::default(),
            kept: Kept::new(),
            client: ClientCounts::default(),
            cpu: CpuCounts::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.agent.name()
    }

    /// By how much its start may differ from the others'; `None` for an agent of this process.
    pub(super) fn start_uncertainty_us(&self) -> Option<f64> {
        match self.agent.start_uncertainty_ns() {
            0 => None,
            uncertainty_ns => Some(uncertainty_ns as f64 / 1e3),
        }
    }

    /// Reason why the agent is lost.
    pub(super) fn lost(&self) -> Option<&str> {
        if let State::Lost(reason) = &self.state { Some(reason) } else { None }
    }

    /// Status of the agent, as it is shown.
    fn status(&self) -> AgentStatus<'_> {
        AgentStatus {
            name: self.name(),
            role: self.job.role,
            threads: self.job.threads,
            connections: self.job.connections,
            sent: self.counts.sent,
            replied: self.counts.replied,
            standing: self.standing(),
            is_lost: self.lost().is_some(),
        }
    }

    fn is_alive(&self) -> bool {
        matches!(self.state, State::Preparing | State::Running)
    }

    fn standing(&self) -> &str {
        match &self.state {
            State::Preparing => "preparing",
            State::Running => "running",
            State::Done => "done",
            State::Lost(reason) => reason,
        }
    }

    /// Slices that all of its threads have told.
    fn told(&self) -> u32 {
        self.threads.iter().map(|thread| thread.told).min().unwrap_or(0)
    }

    /// Takes what the agent tells.
    fn handle(&mut self, told: AgentEvent, clocks: &mut Clocks) {
        match told {
            AgentEvent::Ready { host, stamps } => {
                (self.host, self.stamps) = (host, stamps);
                self.state = State::Running;
            }
            AgentEvent::Slice { thread, slice } => {
                if let Some(thread) = self.threads.get_mut(thread as usize) {
                    thread.told = slice.index + 1;
                    thread.slices.push_back(slice);
                }
            }
            AgentEvent::Client { client, stamps, stamped } => {
                self.client.add(&client);
                self.cpu.add(&client.cpu);
                clocks.take(&stamps, &stamped);
            }
            AgentEvent::Done => self.state = State::Done,
            AgentEvent::Failed(reason) => {
                tracing::warn!(reason, "an agent is lost");
                self.state = State::Lost(reason);
            }
        }
    }

    /// Samples that wait to be taken.
    fn backlog(&self) -> usize {
        let slices = self.threads.iter().flat_map(|thread| &thread.slices);
        slices.map(|slice| slice.samples.len() + slice.unanswered.len()).sum()
    }

    /// Takes the slices of `span`: to where they go, and what the controller wants of them into
    /// what is gathered of the leg. Those before it are left out.
    fn take(&mut self, span: &Range<u32>, leg: &mut LegRecord, sink: &mut Sink<'_>) {
        let is_counted = self.job.role != Role::Throughput;
        for thread in &mut self.threads {
            while thread.slices.front().is_some_and(|slice| slice.index < span.end)
                && let Some(slice) = thread.slices.pop_front()
            {
                if slice.index < span.start {
                    continue;
                }
                self.counts.merge(&slice.counts);
                if thread.asked.is_some() {
                    thread.departures.note(slice.index, slice.departures());
                }
                sink.take(&slice, self.job.role);
                slice.samples.iter().for_each(|sample| self.kept.record(sample.latency_ns));
                leg.take(slice, is_counted);
            }
        }
    }

    /// The leg is over: whether its requests left as they should have.
    fn fit(&mut self, record: &mut Record, leg: &mut LegRecord) {
        let mut all = Gaps::default();
        for thread in &mut self.threads {
            if let Some(asked) = &thread.asked {
                let gaps = thread.departures.take(asked);
                all.seen_ns.extend(gaps.seen_ns);
                all.places.extend(gaps.places);
            }
        }
        leg.note_arrivals(
            ArrivalFit::of(&mut all.places).inspect(|&fit| record.note_arrivals(fit, &all.seen_ns)),
        );
    }
}

/// Destinations of a leg's slices beside the controller.
struct Sink<'a> {
    record: &'a mut Record,
    view: &'a mut dyn View,
    /// Samples of a measured leg, where they are wanted.
    samples: Option<&'a mut Samples>,
    /// Index of the agent whose slices they are.
    agent: usize,
}

impl Sink<'_> {
    fn take(&mut self, slice: &Slice, role: Role) {
        let is_counted = role != Role::Throughput;
        self.record.take(slice, is_counted);
        self.view.take(slice, role);
        if let Some(samples) = self.samples.as_mut().filter(|_| is_counted) {
            samples.take(self.agent, slice);
        }
    }
}

/// A run over agents.
pub(super) struct Coordinator<'a> {
    sessions: Vec<AgentSession>,
    slice_ns: u64,
    clocks: Clocks,
    watch: Watch<'a>,
}

/// Observers of a run.
pub(super) struct Watch<'a> {
    pub(super) view: &'a mut dyn View,
    /// Takes every sample, where that is wanted.
    pub(super) samples: Option<&'a mut Samples>,
    /// Latencies kept of the run over time.
    pub(super) keep: Keep,
    /// Set from outside to end it.
    pub(super) is_interrupted: &'a AtomicBool,
}

/// State of a run.
struct Place {
    is_measuring: bool,
    sampling: f64,
    connections: u32,
    /// The next slice.
    slice: u32,
}

impl<'a> Coordinator<'a> {
    pub(super) fn new(sessions: Vec<AgentSession>, watch: Watch<'a>) -> Self {
        let slice_ns = sessions.first().map_or(1, |session| session.job.slice_ns);
        Self { sessions, slice_ns, clocks: Clocks::new(), watch }
    }

    /// Measures until the controller is content, the limits are reached, or somebody interrupts;
    /// `None` where nothing was measured until then.
    ///
    /// # Errors
    ///
    /// What keeps an agent from starting. An agent that is lost later is in the verdict.
    pub(super) fn run(mut self, settings: Settings) -> Result<Option<Measured>> {
        if !self.prepare()? {
            return Ok(None);
        }
        if let Some(samples) = &mut self.watch.samples {
            samples.begin();
        }
        let start = Clock.now() + HEAD_START_NS;
        for session in &mut self.sessions {
            session.agent.start(start.saturating_sub(Clock.now()))?;
        }
        let mut place = Place {
            is_measuring: false,
            sampling: settings.setup.sampling,
            connections: settings.setup.connections,
            slice: 0,
        };
        let mut controller = Controller::new(settings);
        let mut record = Record::new(self.slice_ns, self.watch.keep);
        let mut step = controller.start();
        let report = loop {
            let (leg, is_measured) = match step {
                Step::WarmUp(leg) => (leg, false),
                Step::Measure(leg) => (leg, true),
                Step::Stop(report) => break *report,
            };
            if is_measured != place.is_measuring || place.sampling != leg.setup.sampling {
                record = Record::new(self.slice_ns, self.watch.keep);
                self.clocks = Clocks::new();
                if let Some(samples) = &mut self.watch.samples {
                    samples.restart();
                }
                self.sessions.iter_mut().for_each(|session| {
                    (session.counts, session.kept) = (Counts::default(), Kept::new());
                    session.cpu = CpuCounts::default();
                });
            }
            if leg.setup.connections != place.connections {
                self.set_connections(leg.setup.connections)?;
            }
            if is_measured && !place.is_measuring {
                // What the warm-up's statistics took may have kept a load thread on the same core
                // from its schedule.
                place.slice += 1;
            }
            (place.is_measuring, place.sampling, place.connections) =
                (is_measured, leg.setup.sampling, leg.setup.connections);
            let window = self.leg(&mut place, leg, &mut record, &mut controller);
            step = controller.handle_window(&window);
            self.watch.view.note_look(controller.found().as_ref());
        };
        self.finish()?;
        let is_measured = place.is_measuring && report.measured_ns > 0;
        if !is_measured && let Some(text) = self.sessions.iter().find_map(lost_text) {
            bail!("{text}");
        }
        Ok(is_measured.then_some(Measured {
            report,
            record,
            sessions: self.sessions,
            clocks: self.clocks,
        }))
    }

    /// Gives all agents their jobs and waits until they can start; whether nobody has interrupted
    /// before.
    fn prepare(&mut self) -> Result<bool> {
        self.watch.view.begin(Phase::Preparing, None);
        for session in &mut self.sessions {
            session.agent.prepare(&session.job)?;
        }
        let deadline = Clock.now() + PREPARE_NS_MAX;
        while self.sessions.iter().any(|session| session.state == State::Preparing) {
            self.look();
            self.show(0);
            if self.is_interrupted() {
                return Ok(false);
            }
            if let Some(text) = self.sessions.iter().find_map(lost_text) {
                // Of this process alone there is no need to say who.
                let own = format!("{}: ", LOCAL);
                let is_alone = self.sessions.len() == 1;
                bail!("{}", text.strip_prefix(&own).filter(|_| is_alone).unwrap_or(&text));
            }
            if Clock.now() > deadline {
                bail!("the agents are not ready after {} s", PREPARE_NS_MAX / 1_000_000_000);
            }
        }
        Ok(true)
    }

    /// Waits until a leg is over, or somebody interrupts, and gives what came of it.
    fn leg(
        &mut self,
        place: &mut Place,
        leg: Leg,
        record: &mut Record,
        controller: &mut Controller,
    ) -> Window {
        let slices = u32::try_from(leg.for_ns.div_ceil(self.slice_ns)).unwrap_or(u32::MAX).max(1);
        let until = place.slice.saturating_add(slices);
        self.watch.view.begin(
            if place.is_measuring { Phase::Measuring } else { Phase::WarmingUp },
            Some(&leg),
        );
        let mut gathered = LegRecord::default();
        let (first, is_interrupted) = (
            place.slice,
            loop {
                let is_interrupted = self.is_interrupted();
                // Where no agent is left, what they have told is all there is.
                let told = self
                    .sessions
                    .iter()
                    .filter(|session| session.is_alive())
                    .map(AgentSession::told)
                    .min()
                    .unwrap_or(until)
                    .min(until);
                let is_over = told == until || is_interrupted;
                // What a long leg gathers is not kept until its end.
                let backlog: usize = self.sessions.iter().map(AgentSession::backlog).sum();
                let is_due = is_over || backlog > BACKLOG_MAX || self.watch.view.follows();
                let taken = if is_due { self.sessions.as_mut_slice() } else { &mut [] };
                for (agent, session) in taken.iter_mut().enumerate() {
                    let samples = self.watch.samples.as_deref_mut().filter(|_| place.is_measuring);
                    let mut sink =
                        Sink { record: &mut *record, view: &mut *self.watch.view, samples, agent };
                    session.take(&(place.slice..told), &mut gathered, &mut sink);
                }
                let samples = gathered.drain();
                controller.handle_samples(&samples);
                record.note_samples(samples.iter().map(|sample| sample.latency_ns));
                self.show(u64::from(told.saturating_sub(place.slice)) * self.slice_ns);
                if is_over {
                    place.slice = told.max(place.slice);
                    break told < until;
                }
                self.look();
            },
        );
        for session in &mut self.sessions {
            session.fit(record, &mut gathered);
        }
        let duration_ns = u64::from(place.slice - first) * self.slice_ns;
        let agents_lost = self.sessions.iter().filter_map(lost_text).collect();
        let window = Window { agents_lost, is_interrupted, ..gathered.finish(duration_ns) };
        record.note_leg(duration_ns, window.rates);
        window
    }

    fn show(&mut self, passed_ns: u64) {
        let agents: Vec<AgentStatus<'_>> = self.sessions.iter().map(AgentSession::status).collect();
        self.watch.view.show(passed_ns, &agents);
    }

    /// True if somebody has ended the run: by a signal, or by a key of a live view, which gives the
    /// terminal back then.
    fn is_interrupted(&mut self) -> bool {
        if self.watch.view.is_stopped() {
            self.watch.is_interrupted.store(true, Ordering::Relaxed);
        }
        let is_interrupted = self.watch.is_interrupted.load(Ordering::Relaxed);
        if is_interrupted {
            self.watch.view.close();
        }
        is_interrupted
    }

    /// Lets each agent tell something, if it has anything to tell.
    fn look(&mut self) {
        let wait_ns = LOOK_NS / self.sessions.len().max(1) as u64;
        for session in self.sessions.iter_mut().filter(|session| session.is_alive()) {
            let mut patience_ns = wait_ns;
            while session.is_alive()
                && let Some(told) = session.agent.poll(patience_ns)
            {
                session.handle(told, &mut self.clocks);
                patience_ns = 0;
            }
        }
    }

    /// Spreads so many connections over the agents as their jobs have them now.
    fn set_connections(&mut self, connections: u32) -> Result<()> {
        // One that only measures has one request at a time, and a connection for it.
        let mut sessions: Vec<&mut AgentSession> =
            self.sessions.iter_mut().filter(|session| session.job.role != Role::Latency).collect();
        let now: u32 = sessions.iter().map(|session| session.job.connections).sum();
        for session in &mut sessions {
            let own =
                u64::from(session.job.connections) * u64::from(connections) / u64::from(now.max(1));
            session.agent.set_connections(own as u32)?;
        }
        Ok(())
    }

    /// Ends the load, and waits for what agents still have to tell, so that nothing of it meets the
    /// next load.
    fn finish(&mut self) -> Result<()> {
        self.watch.view.begin(Phase::Ending, None);
        for session in &mut self.sessions {
            session.agent.stop()?;
        }
        let timeout_ns =
            self.sessions.iter().map(|session| session.job.timeout_ns).max().unwrap_or(0);
        let deadline = Clock.now() + timeout_ns + FINISH_SLACK_NS;
        while self.sessions.iter().any(AgentSession::is_alive) && Clock.now() < deadline {
            self.is_interrupted();
            self.look();
        }
        Ok(())
    }
}

/// Text that names a lost agent, and the reason.
pub(super) fn lost_text(session: &AgentSession) -> Option<String> {
    // An agent elsewhere says itself which it is.
    session.lost().map(|reason| {
        if reason.starts_with("agent ") {
            reason.to_owned()
        } else {
            format!("{}: {reason}", session.name())
        }
    })
}

/// Gaps asked of each thread of a job; `None` in a closed loop.
fn asked(job: &Job) -> Result<Option<Asked>> {
    let LoadShare::Open { rate_per_s, arrivals } = &job.load else { return Ok(None) };
    let process = Process::parse(arrivals)?;
    Ok(Some(Asked::new(&process, rate_per_s / f64::from(job.threads))?))
}

/// The name of the agent of this process.
const LOCAL: &str = "local";

/// From the order to start to the start: longer than it takes to reach any agent.
const HEAD_START_NS: u64 = 300_000_000;

/// Longest time that agents may take to connect and to fill stores.
const PREPARE_NS_MAX: u64 = 120_000_000_000;

/// Agents are looked at so often.
const LOOK_NS: u64 = 10_000_000;

/// Samples that may wait for the end of their leg, 24 MiB of them. Beyond, they are taken while the
/// load goes on, so that the memory of a run is bounded by what comes within a look, a slice and a
/// timeout, however long its legs are.
const BACKLOG_MAX: usize = 1 << 20;

/// After the last timeout.
const FINISH_SLACK_NS: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tailcut_measure::control::Limits;
    use tailcut_measure::statistics::series::Timed;

    use super::*;
    use crate::experiment::{Experiment, Load};
    use crate::job::Transport;
    use crate::view::Silent;

    /// A few slices at a look, however much time they stand for.
    struct Hasty {
        told: VecDeque<AgentEvent>,
        next: u32,
    }

    impl Agent for Hasty {
        fn name(&self) -> &str {
            "hasty"
        }

        fn prepare(&mut self, _: &Job) -> Result<()> {
            let ready = AgentEvent::Ready { host: Host::default(), stamps: StampKind::User };
            self.told.push_back(ready);
            Ok(())
        }

        fn start(&mut self, _: u64) -> Result<()> {
            Ok(())
        }

        fn set_connections(&mut self, _: u32) -> Result<()> {
            Ok(())
        }

        fn stop(&mut self) -> Result<()> {
            self.told = VecDeque::from([AgentEvent::Done]);
            Ok(())
        }

        fn poll(&mut self, wait_ns: u64) -> Option<AgentEvent> {
            if wait_ns > 0 && self.told.is_empty() {
                self.told.extend((self.next..self.next + 8).map(slice));
                self.next += 8;
            }
            self.told.pop_front()
        }
    }

    fn slice(index: u32) -> AgentEvent {
        let begin_ns = u64::from(index) * SLICE_NS;
        let timed = |place| Timed {
            intended_ns: begin_ns + place,
            latency_ns: 10_000 + place % 977,
            late_ns: 0,
        };
        let counts = Counts { sent: SAMPLES, replied: SAMPLES, ..Counts::default() };
        let samples = (0..SAMPLES).map(timed).collect();
        AgentEvent::Slice { thread: 0, slice: Slice { index, counts, samples, ..Slice::default() } }
    }

    /// Each is 24 bytes until it is taken, and 24 more while it is put in order.
    #[test]
    fn the_samples_of_a_long_leg_are_not_kept_until_its_end() {
        let slices = 4 * BACKLOG_MAX as u64 / SAMPLES;
        let load = Load::Outstanding(1);
        let experiment =
            Experiment::new(Transport::Udp, "echo:8", vec!["127.0.0.1:1".to_owned()], load);
        let (_, mut job) = experiment.unwrap().jobs(None).swap_remove(0);
        job.slice_ns = SLICE_NS;
        let leg_ns = slices * SLICE_NS;
        let limits = Limits {
            warmup_min_ns: SLICE_NS,
            warmup_max_ns: SLICE_NS,
            measure_min_ns: leg_ns,
            measure_max_ns: leg_ns,
            restarts_max: 0,
            samples_max: 10_000,
            ..Limits::default()
        };
        let mut sent = 0;
        let memory = allocation_counter::measure(|| {
            let agent = Box::new(Hasty { told: VecDeque::new(), next: 0 });
            let session = AgentSession::new(agent, job).unwrap();
            let (view, is_interrupted) = (&mut Silent, &AtomicBool::new(false));
            let watch = Watch { view, samples: None, keep: Keep::Intended, is_interrupted };
            let settings = Settings { limits, ..Settings::new(0.99) };
            let measured = Coordinator::new(vec![session], watch).run(settings).unwrap().unwrap();
            assert_eq!(measured.record.intended.histogram.len(), slices * SAMPLES);
            sent = measured.record.series.seen();
        });
        assert_eq!(sent, slices * SAMPLES);
        let all_bytes = sent * size_of::<Timed>() as u64;
        assert!(memory.bytes_max < all_bytes, "{} of {all_bytes} bytes", memory.bytes_max);
    }

    const SLICE_NS: u64 = 100_000_000;
    const SAMPLES: u64 = 1 << 14;
}
