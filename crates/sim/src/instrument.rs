//! The grain of queues, for the instrument: an open loop before a server with habits, which hands
//! over latencies as agents do.
//!
//! The server is one queue before workers that serve in order. A [`Controller`] drives it through
//! [`Bench::load`], as it drives agents, so that its verdicts can be held against what is known of
//! the server.
//!
//! Invariant: the same seed gives the same samples, however the run is cut into windows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tailcut_measure::arrivals::{Arrivals, ArrivalsError, Process};
use tailcut_measure::control::{Controller, Report, Settings, Step, Window};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::load::Rates;
use tailcut_measure::recorder::Counts;
use tailcut_measure::statistics::arrival_fit::{ArrivalFit, Asked};
use tailcut_measure::statistics::departures::Departures;
use tailcut_measure::statistics::series::Timed;

/// A server and the load on it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Workers behind the one queue.
    pub workers: usize,
    /// A request's service time; base unit ns.
    pub service: Distribution,
    /// What the server does besides serving.
    pub habit: Habit,
    /// The shape of the gaps between intended sends.
    pub arrivals: Process,
    /// Requests a second.
    pub rate_per_s: f64,
    /// Requests that the client has outstanding at most; the next leaves when one is answered.
    pub connections: u32,
}

impl Subject {
    /// A steady server with `workers` at `load` of their capacity, Poisson arrivals, and a client
    /// without a limit.
    ///
    /// # Panics
    /// Where the service has no finite mean above zero.
    pub fn steady(workers: usize, service: Distribution, load: f64) -> Self {
        let mean_ns =
            service.mean().filter(|&mean| mean > 0.0).expect("a load needs a mean service time");
        let rate_per_s = load * workers as f64 * 1e9 / mean_ns;
        Self {
            workers,
            service,
            habit: Habit::Steady,
            arrivals: Process::Poisson,
            rate_per_s,
            connections: u32::MAX,
        }
    }

    /// Lets a controller with `settings` measure this server under `seed`.
    ///
    /// # Errors
    ///
    /// What is wrong with the arrivals or their rate.
    pub fn measure(&self, settings: Settings, seed: u64) -> Result<Report, ArrivalsError> {
        let mut bench = Bench::new(self.clone(), seed)?;
        let mut controller = Controller::new(settings);
        let mut step = controller.start();
        loop {
            let leg = match step {
                Step::WarmUp(leg) | Step::Measure(leg) => leg,
                Step::Stop(report) => return Ok(*report),
            };
            bench.subject.connections = bench.subject.connections.max(leg.setup.connections);
            step = controller.handle_window(&bench.load(leg.for_ns));
        }
    }
}

/// What a server does besides serving.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Habit {
    /// Nothing.
    Steady,
    /// Its services take longer by this share of the first ones with every second.
    Drifting {
        /// The share.
        per_s: f64,
    },
    /// It stops now and then, at a phase that the seed decides.
    Pausing {
        /// From one pause to the next, ns.
        every_ns: u64,
        /// How long each lasts, ns; less than `every_ns`.
        for_ns: u64,
    },
}

/// A subject under load.
#[derive(Clone, Debug)]
pub struct Bench {
    subject: Subject,
    asked: Option<Asked>,
    arrivals: Arrivals,
    /// The next intended send, ns.
    next_ns: u64,
    /// Where the last window ended, ns.
    now_ns: u64,
    services: Generator,
    /// When the first pause begins, ns before the start.
    phase_ns: u64,
    /// When each worker has served what it has, ns.
    free_ns: BinaryHeap<Reverse<u64>>,
    /// When each connection in use is free again, ns.
    busy_ns: BinaryHeap<Reverse<u64>>,
    /// The last actual send, ns.
    sent_ns: u64,
    /// Actual sends and replies after the last window, ns.
    sends_ahead_ns: Vec<u64>,
    replies_ahead_ns: Vec<u64>,
}

impl Bench {
    /// `subject` under `seed`, idle.
    ///
    /// # Errors
    ///
    /// What is wrong with the arrivals or their rate.
    pub fn new(subject: Subject, seed: u64) -> Result<Self, ArrivalsError> {
        let mut arrivals =
            Arrivals::new(subject.arrivals.clone(), subject.rate_per_s, generator(seed, ARRIVALS))?;
        let period_ns = match subject.habit {
            Habit::Pausing { every_ns, .. } => every_ns.max(1),
            _ => 1,
        };
        Ok(Self {
            asked: Asked::new(&subject.arrivals, subject.rate_per_s).ok(),
            next_ns: arrivals.next_ns(),
            arrivals,
            now_ns: 0,
            services: generator(seed, SERVICES),
            phase_ns: rand::Rng::next_u64(&mut generator(seed, PHASE)) % period_ns,
            free_ns: (0..subject.workers).map(|_| Reverse(0)).collect(),
            busy_ns: BinaryHeap::new(),
            sent_ns: 0,
            sends_ahead_ns: Vec::new(),
            replies_ahead_ns: Vec::new(),
            subject,
        })
    }

    /// Loads for so long, and waits for all replies, which later windows do not wait for.
    pub fn load(&mut self, for_ns: u64) -> Window {
        let until_ns = self.now_ns + for_ns;
        let mut samples = Vec::new();
        let mut departures = Vec::new();
        while self.next_ns < until_ns {
            let intended_ns = self.next_ns;
            self.next_ns = self.arrivals.next_ns();
            let (sent_ns, replied_ns) = self.serve(intended_ns);
            departures.push((intended_ns, sent_ns));
            self.sent_ns = sent_ns;
            self.sends_ahead_ns.push(sent_ns);
            self.replies_ahead_ns.push(replied_ns);
            samples.push(Timed {
                intended_ns,
                latency_ns: replied_ns - intended_ns,
                late_ns: sent_ns - intended_ns,
            });
        }
        self.now_ns = until_ns;
        let per_s = |count: usize| count as f64 * 1e9 / for_ns as f64;
        let count = samples.len() as u64;
        Window {
            duration_ns: for_ns,
            counts: Counts { sent: count, replied: count, ..Counts::default() },
            rates: Rates {
                offered_per_s: per_s(samples.len()),
                sent_per_s: per_s(take_until(&mut self.sends_ahead_ns, until_ns)),
                replied_per_s: per_s(take_until(&mut self.replies_ahead_ns, until_ns)),
            },
            arrivals: self
                .asked
                .as_ref()
                .and_then(|asked| fit(&departures, asked))
                .into_iter()
                .collect(),
            samples,
            ..Window::default()
        }
    }

    /// When a request intended for `intended_ns` leaves, and when its reply is back.
    fn serve(&mut self, intended_ns: u64) -> (u64, u64) {
        let sent_ns = self.send(intended_ns);
        let Reverse(free_ns) = self.free_ns.pop().unwrap_or_default();
        let from_ns = free_ns.max(sent_ns);
        let mut service_ns = self.subject.service.sample(&mut self.services);
        if let Habit::Drifting { per_s } = self.subject.habit {
            service_ns *= 1.0 + per_s * from_ns as f64 / 1e9;
        }
        let replied_ns = self.worked(from_ns, service_ns.round() as u64);
        self.free_ns.push(Reverse(replied_ns));
        if self.subject.connections < u32::MAX {
            self.busy_ns.push(Reverse(replied_ns));
        }
        (sent_ns, replied_ns)
    }

    /// When the client has a connection for what is intended for `intended_ns`, and has sent all
    /// before it.
    fn send(&mut self, intended_ns: u64) -> u64 {
        let mut sent_ns = intended_ns.max(self.sent_ns);
        if self.busy_ns.len() >= self.subject.connections as usize
            && let Some(Reverse(free_ns)) = self.busy_ns.pop()
        {
            sent_ns = sent_ns.max(free_ns);
        }
        sent_ns
    }

    /// When `work_ns` that begin at `from_ns` at the earliest are done.
    fn worked(&self, from_ns: u64, work_ns: u64) -> u64 {
        let Habit::Pausing { every_ns, for_ns } = self.subject.habit else {
            return from_ns + work_ns;
        };
        // Each period begins with its pause.
        let at_ns = from_ns + self.phase_ns;
        let (period, within_ns) = (at_ns / every_ns, at_ns % every_ns);
        let work_per_period_ns = every_ns - for_ns;
        let done_ns = within_ns.saturating_sub(for_ns) + work_ns;
        let periods = period + done_ns / work_per_period_ns;
        (periods * every_ns + for_ns + done_ns % work_per_period_ns)
            .saturating_sub(self.phase_ns)
            .max(from_ns)
    }
}

/// Whether `departures` are those asked for.
fn fit(departures: &[(u64, u64)], asked: &Asked) -> Option<ArrivalFit> {
    let mut noted = Departures::default();
    for (part, departures) in (0..).zip(departures.chunks(PART_LEN)) {
        noted.note(part, departures.iter().copied());
    }
    ArrivalFit::of(&mut noted.take(asked).places)
}

/// Takes out the times before `until_ns`, and counts them.
fn take_until(times_ns: &mut Vec<u64>, until_ns: u64) -> usize {
    let count = times_ns.len();
    times_ns.retain(|&time_ns| time_ns >= until_ns);
    count - times_ns.len()
}

/// Streams of the generator.
const ARRIVALS: u64 = 0;
const SERVICES: u64 = 1;
const PHASE: u64 = 2;
/// Departures that are left out together where there are too many.
const PART_LEN: usize = 1_000;
