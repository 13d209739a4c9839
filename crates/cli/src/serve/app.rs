//! Application of a served port: its answers, and who of its clients is served when.
//!
//! Services that take a core run on the thread that serves, or on workers of their own ([`Crew`]).
//!
//! | app | service time | reply |
//! |---|---|---|
//! | echo | none | the request's bytes |
//! | synthetic | emulated: the request's, or drawn | the request's bytes; over R2P2 the service time, 8 bytes |
//! | spin | computed: the request's, or drawn | the same |
//! | stss | emulated: the request's | as long as the request asks |

use std::collections::VecDeque;

use tailcut_measure::app::serving::{Limits, NO_REQUEST, Task, TaskForm, Tasks};
use tailcut_measure::app::{App as Measured, CODECS, Malformed, Serves};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_net::clock::Clock;
use tailcut_proto::node::Time;
use tailcut_proto::policy::Draws;
use tailcut_proto::rpc::RequestId;
use tailcut_proto::scheduler::overload::OverloadConfig;

use super::crew::{Crew, spin};
use super::emulated::{Cancelled, Emulated, Job};
use super::times::Times;
use crate::distribution_file;

/// A served application, in text form `echo`, `synthetic`, `synthetic:DIST`, `spin`, `spin:DIST` or
/// `stss`.
#[derive(Clone, Debug)]
pub(super) enum App {
    /// Bytes go back as they come.
    Echo,
    /// Requests are tasks.
    Tasks {
        /// Form in which they are read.
        form: &'static dyn TaskForm,
        /// Service times that are drawn here, where they are not those of the requests.
        times: Option<Distribution>,
        /// Way to serve them.
        service: Service,
    },
}

/// A way to serve a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// On an emulated worker.
    Emulated,
    /// By computing.
    Spin,
}

impl App {
    /// Reads an application. What follows its name is read as `tailcut measure` reads it, so that
    /// both are told the same.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) =
            text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        // A spinning server is a synthetic one that computes.
        let (name, service) = match name {
            "spin" => ("synthetic", Service::Spin),
            name => (name, Service::Emulated),
        };
        let mut entries = CODECS.iter().copied().flatten();
        let form = match entries.find(|entry| entry.name == name).map(|entry| entry.serves) {
            Some(Serves::Tasks(form)) => Some(form),
            Some(Serves::Echo) => None,
            Some(Serves::Nothing) | None => return Err("write echo, synthetic, synthetic:DIST, spin, spin:DIST or stss, such as synthetic:exp:50us".to_owned()),
        };
        let times = match rest {
            None => None,
            Some(rest) => {
                let text = format!("{name}:{rest}");
                let measured = Measured::parse_with(&text, &mut distribution_file::read);
                measured.map_err(|error| error.to_string())?.service_times().cloned()
            }
        };
        Ok(form.map_or(Self::Echo, |form| Self::Tasks { form, times, service }))
    }

    /// True if its services are computed.
    pub(super) fn is_spun(&self) -> bool {
        matches!(self, Self::Tasks { service: Service::Spin, .. })
    }

    /// True if its services run on emulated workers.
    pub(super) fn is_emulated(&self) -> bool {
        matches!(self, Self::Tasks { service: Service::Emulated, .. })
    }

    /// True if its service times are drawn here.
    pub(super) fn draws_times(&self) -> bool {
        matches!(self, Self::Tasks { times: Some(_), .. })
    }
}

/// Configuration of a handler besides its application.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandlerConfig {
    pub(super) worker_count: u32,
    pub(super) queue_len_max: usize,
    /// Limits of what a request may ask for.
    pub(super) limits: Limits,
    /// Probability that a drawn service takes much longer.
    pub(super) jitter: f64,
    /// Fate of emulated services that are cancelled.
    pub(super) cancelled: Cancelled,
    /// Seed of the drawn services.
    pub(super) seed: u64,
    /// Index of this port.
    pub(super) stream: u64,
}

/// Counters of a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HandlerCounts {
    /// Requests taken.
    pub(super) requests: u64,
    /// Replies given.
    pub(super) replies: u64,
    /// Malformed requests, and those that ask for more than the limits.
    pub(super) malformed: u64,
    /// Requests that found the queue full.
    pub(super) overload: u64,
    /// Requests that came while it drained.
    pub(super) draining: u64,
    /// Replies dropped: their connection has gone, or too many replies wait to be sent.
    pub(super) dropped_queue_full: u64,
    /// Second copies of requests that found others waiting.
    pub(super) clones_discarded: u64,
}

/// Part of a request that workers are given, and hand back.
#[derive(Debug)]
pub(super) enum Work {
    /// A task, to be computed.
    Task(Task),
    /// Bytes that go back.
    Echo(Vec<u8>),
}

/// The application of one port, whose requests `W` tells apart.
#[derive(Debug)]
pub(super) struct RequestHandler<W> {
    app: App,
    emulated: Emulated<(W, Task)>,
    /// Threads that serve in this one's place.
    pub(super) crew: Option<Crew<(W, Work)>>,
    /// Services that had ended before a request came and that nobody has polled yet, and how many
    /// requests waited then.
    finished: VecDeque<(W, Task, u32)>,
    /// Requests that wait for this thread to compute, and since when.
    spun: VecDeque<(W, Task, Time)>,
    /// Times of the requests that this thread has computed.
    spun_times: Times,
    /// It drains: nothing new is taken.
    is_closed: bool,
    config: HandlerConfig,
    rng: Generator,
    hits: Jitter,
    next_id: u64,
    pub(super) counts: HandlerCounts,
}

impl<W: Copy + Send + 'static> RequestHandler<W> {
    pub(super) fn new(app: App, config: HandlerConfig, crew: Option<Crew<(W, Work)>>) -> Self {
        Self {
            app,
            emulated: Emulated::new(
                config.worker_count,
                config.queue_len_max,
                OverloadConfig::DEFAULT,
            ),
            crew,
            finished: VecDeque::new(),
            spun: VecDeque::new(),
            spun_times: Times::default(),
            is_closed: false,
            config,
            rng: generator(config.seed, config.stream),
            hits: Jitter::new(config),
            next_id: 0,
            counts: HandlerCounts::default(),
        }
    }

    pub(super) fn app(&self) -> &App {
        &self.app
    }

    /// Reader of the requests of a new connection; nothing where bytes go back as they come.
    pub(super) fn tasks(&self) -> Option<Tasks> {
        match self.app {
            App::Tasks { form, .. } => Some(Tasks::new(form, self.config.limits)),
            App::Echo => None,
        }
    }

    /// Reads a request that is a message of its own.
    pub(super) fn read(&mut self, message: &[u8]) -> Result<Task, Malformed> {
        match self.app {
            App::Tasks { form, .. } => Tasks::read(form, self.config.limits, message),
            App::Echo => Err(NO_REQUEST),
        }
    }

    /// Takes nothing more.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// True if a request is to be left: it drains. Counts it.
    pub(super) fn leaves(&mut self) -> bool {
        self.counts.draining += u64::from(self.is_closed);
        self.is_closed
    }

    /// Nothing waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        let has_workers_idle = self.crew.as_ref().is_none_or(|crew| crew.dispatcher.is_empty());
        has_workers_idle
            && self.emulated.is_idle()
            && self.finished.is_empty()
            && self.spun.is_empty()
    }

    /// Adds how long what has been served waited and ran.
    pub(super) fn add_times(&self, times: &mut Times) {
        times.add(self.emulated.times());
        times.add(&self.spun_times);
        self.crew.iter().for_each(|crew| times.add(crew.times()));
    }

    /// Takes bytes that workers hand back, unless the queue is full, which it counts.
    ///
    /// # Errors
    ///
    /// The bytes.
    pub(super) fn offer_echo(&mut self, now: Time, who: W, bytes: Vec<u8>) -> Result<(), Vec<u8>> {
        self.counts.requests += 1;
        self.offer_work(now, (who, Work::Echo(bytes)), 0).map_err(|work| {
            self.counts.overload += 1;
            match work {
                Work::Echo(bytes) => bytes,
                Work::Task(_) => Vec::new(),
            }
        })
    }

    /// Hands back what workers are done with, and gives them what waits.
    pub(super) fn poll_workers(&mut self, now: Time, mut done: impl FnMut(W, Work)) {
        if let Some(crew) = &mut self.crew {
            // Nothing expires here: no deadline comes with it.
            crew.poll_ended(now, |job, _| {
                let (who, work) = job.what;
                done(who, work);
            });
        }
    }

    fn offer_work(&mut self, now: Time, what: (W, Work), service_ns: u64) -> Result<(), Work> {
        let Some(crew) = &mut self.crew else { return Err(what.1) };
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let job = Job { id, what, arrived_at: now, service_ns };
        crew.offer(job, Time::MAX, Time::MAX.into()).map_err(|job| job.what.1)
    }

    /// Takes a request; false where the queue is full.
    pub(super) fn offer(&mut self, now: Time, who: W, task: Task) -> bool {
        self.counts.requests += 1;
        let is_taken = if self.app.is_emulated() {
            let service_ns = self.drawn_ns().unwrap_or(task.service_ns);
            let id = RequestId(self.next_id);
            let job = Job { id, what: (who, task), arrived_at: now, service_ns };
            self.next_id += 1;
            // A worker whose service has ended is free for this request and not before it.
            while let Some(done) = self.emulated.poll_finished(now) {
                let (who, task) = done.what;
                self.finished.push_back((who, task, self.emulated.waiting_at_finish()));
            }
            self.emulated.offer(job, Time::MAX)
        } else if self.crew.is_some() {
            let service_ns = self.drawn_ns().unwrap_or(task.service_ns);
            self.offer_work(now, (who, Work::Task(task)), service_ns).is_ok()
        } else {
            let has_room = self.spun.len() < self.config.queue_len_max;
            if has_room {
                self.spun.push_back((who, task, now));
            }
            has_room
        };
        self.counts.overload += u64::from(!is_taken);
        is_taken
    }

    /// The next request whose emulated service has ended by `now`.
    pub(super) fn poll_finished(&mut self, now: Time) -> Option<(W, Task)> {
        self.poll_finished_with_load(now).map(|(who, task, _)| (who, task))
    }

    /// As [`RequestHandler::poll_finished`], and how many requests waited when it ended.
    pub(super) fn poll_finished_with_load(&mut self, now: Time) -> Option<(W, Task, u32)> {
        self.finished.pop_front().or_else(|| {
            let (who, task) = self.emulated.poll_finished(now)?.what;
            Some((who, task, self.emulated.waiting_at_finish()))
        })
    }

    /// Requests that wait for a worker.
    pub(super) fn waiting(&self) -> u32 {
        let with_crew = self.crew.as_ref().map_or(0, Crew::waiting);
        let others = u32::try_from(self.spun.len() + with_crew).unwrap_or(u32::MAX);
        self.emulated.waiting().saturating_add(others)
    }

    /// Computes one service, if one waits.
    pub(super) fn spin_one(&mut self) -> Option<(W, Task)> {
        let (who, task, arrived_at) = self.spun.pop_front()?;
        let (now, service_ns) = (Clock.now(), self.drawn_ns().unwrap_or(task.service_ns));
        spin(now, service_ns);
        self.spun_times.record(now.saturating_sub(arrived_at), service_ns);
        Some((who, task))
    }

    /// True if a service waits to be computed.
    pub(super) fn has_to_spin(&self) -> bool {
        !self.spun.is_empty()
    }

    /// Time at which the next emulated service ends.
    pub(super) fn next_finish(&self) -> Option<Time> {
        if !self.finished.is_empty() {
            return Some(0);
        }
        self.emulated.next_finish()
    }

    fn drawn_ns(&mut self) -> Option<u64> {
        match &self.app {
            App::Tasks { times: Some(times), .. } => {
                let service_ns = times.sample_whole(&mut self.rng);
                Some(self.hits.apply(service_ns))
            }
            App::Tasks { times: None, .. } | App::Echo => None,
        }
    }
}

/// Services that take much longer now and then, as where their server was interrupted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jitter {
    probability: f64,
    draws: Draws,
}

impl Jitter {
    pub(super) fn new(config: HandlerConfig) -> Self {
        let draws = Draws::new(config.seed.wrapping_mul(31) ^ config.stream);
        Self { probability: config.jitter, draws }
    }

    /// Time that a service takes.
    pub(super) fn apply(&mut self, service_ns: u64) -> u64 {
        // From 0 to 1, in steps that a float holds exactly.
        let drawn = (self.draws.word() >> 11) as f64 / (1u64 << 53) as f64;
        if drawn < self.probability { service_ns.saturating_mul(JITTER_FACTOR) } else { service_ns }
    }
}

/// The factor on the time of a service that jitter hits, that of NetClone's evaluation.
const JITTER_FACTOR: u64 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        match (App::parse(text), expected) {
            (Ok(app), Ok(printed)) => assert!(format!("{app:?}").starts_with(printed), "{app:?}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (parsed, _) => panic!("{text}: {parsed:?}"),
        }
    }

    #[test]
    fn apps_are_written_so() {
        check("echo", Ok("Echo"));
        check("echo:64", Ok("Echo"));
        check("synthetic", Ok("Tasks { form: SyntheticTasks, times: None, service: Emulated"));
        check("synthetic:exp:50us", Ok("Tasks { form: SyntheticTasks, times: Some"));
        check("spin:fixed:1us", Ok("Tasks { form: SyntheticTasks, times: Some"));
        assert!(App::parse("synthetic:exp:50us").unwrap().is_emulated());
        assert!(!App::parse("spin:fixed:1us").unwrap().is_emulated());
        check("stss", Ok("Tasks { form: StssTasks, times: None, service: Emulated"));
        check("synthetic:exp:50", Err("no unit"));
        check("echo:x", Err("echo"));
        check("redis", Err("write echo"));
    }
}
