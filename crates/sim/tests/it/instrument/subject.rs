//! The instrument in virtual time: its own load loop before a server with habits.
//!
//! The server is one queue before workers that serve in order. The loop is that of the load
//! threads, with a clock and a transport that are simulated; a [`Controller`] drives it through
//! [`Bench::load`], as it drives agents, so that its verdicts can be held against what is known of
//! the server.
//!
//! Invariant: the same seed gives the same samples, however the run is cut into legs.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::convert::Infallible;
use std::rc::Rc;

use tailcut_measure::app::{App, Carrier, Expected, Outcome, Requests, Setting};
use tailcut_measure::arrivals::{Arrivals, ArrivalsError, Process};
use tailcut_measure::control::{Controller, Report, Settings, Step, Window};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::leg::LegRecord;
use tailcut_measure::load::{Load, OpenLoop, Sample};
use tailcut_measure::load_loop::{ClientTransport, Clock, LoadLoop, LoopConfig};
use tailcut_measure::slices::Slices;
use tailcut_measure::statistics::arrival_fit::{ArrivalFit, Asked};
use tailcut_measure::statistics::departures::Departures;

/// A server and the load on it.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// Workers behind the one queue.
    pub(crate) workers: usize,
    /// A request's service time; base unit ns.
    pub(crate) service: Distribution,
    /// Habit of the server besides serving.
    pub(crate) habit: Habit,
    /// The shape of the gaps between intended sends.
    pub(crate) arrivals: Process,
    /// Requests a second.
    pub(crate) rate_per_s: f64,
    /// Requests that the client has outstanding at most; the next leaves when one is answered.
    pub(crate) connections: u32,
}

impl Subject {
    /// A steady server with `workers` at `load` of their capacity, Poisson arrivals, and a client
    /// without a limit.
    ///
    /// # Panics
    /// Where the service has no finite mean above zero.
    pub(crate) fn steady(workers: usize, service: Distribution, load: f64) -> Self {
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
    pub(crate) fn measure(&self, settings: Settings, seed: u64) -> Result<Report, ArrivalsError> {
        let mut bench = Bench::new(self.clone(), seed)?;
        let mut controller = Controller::new(settings);
        let mut step = controller.start();
        loop {
            let leg = match step {
                Step::WarmUp(leg) | Step::Measure(leg) => leg,
                Step::Stop(report) => return Ok(*report),
            };
            bench.raise_connections(leg.setup.connections);
            step = controller.handle_window(&bench.load(leg.for_ns));
        }
    }
}

/// Habit of a server besides serving.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Habit {
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
        /// Duration of each pause, ns; less than `every_ns`.
        for_ns: u64,
    },
}

/// A subject under load.
#[derive(Debug)]
pub(crate) struct Bench {
    load: LoadLoop<VirtualClock, SimulatedServer>,
    asked: Option<Asked>,
    /// Length of a slice, ns.
    slice_ns: u64,
    /// The first slice of the next leg.
    slice: u32,
}

impl Bench {
    /// `subject` under `seed`, idle.
    ///
    /// # Errors
    ///
    /// What is wrong with the arrivals or their rate.
    ///
    /// # Panics
    ///
    /// Never: the requests are those of an application that is known.
    pub(crate) fn new(subject: Subject, seed: u64) -> Result<Self, ArrivalsError> {
        let Subject { arrivals, rate_per_s, .. } = &subject;
        let asked = Asked::new(arrivals, *rate_per_s).ok();
        let slice_ns = (SLICE_REQUESTS * 1e9 / rate_per_s) as u64;
        let arrivals = Arrivals::new(arrivals.clone(), *rate_per_s, generator(seed, ARRIVALS))?;
        let slices = Slices::new(Load::Open(OpenLoop::new(arrivals, 0)), 0, slice_ns);
        let app = App::parse("echo:8").expect("an application");
        let setting = Setting { carrier: Carrier::Message, authority: "", is_tls: false };
        let requests = Requests::new(&app, setting, generator(seed, REQUESTS));
        let clock = VirtualClock::default();
        let server = SimulatedServer::new(subject, clock.clone(), seed);
        // No request is given up, and nothing in virtual time is late by itself.
        let config = LoopConfig { timeout_ns: u64::MAX, near_ns: 0, busy_poll: false };
        let requests = requests.expect("an echo has requests");
        let load = LoadLoop::new(clock, Box::new(server), requests, slices, config);
        Ok(Self { load, asked, slice_ns, slice: 0 })
    }

    /// Lets the client have so many requests outstanding at most, if they are more than now.
    fn raise_connections(&mut self, connections: u32) {
        let subject = &mut self.load.transport_mut().subject;
        subject.connections = subject.connections.max(connections);
    }

    /// Loads for so long, in whole slices, and until all requests of these are answered.
    pub(crate) fn load(&mut self, for_ns: u64) -> Window {
        let slices = for_ns.div_ceil(self.slice_ns).max(1);
        let until = self.slice + slices as u32;
        let (mut leg, mut departures) = (LegRecord::default(), Departures::default());
        while self.slice < until {
            self.load.send_due();
            while self.slice < until
                && let Some(slice) = self.load.poll_slice()
            {
                self.slice = slice.index + 1;
                departures.note(slice.index, slice.departures());
                leg.take(slice, true);
            }
            let Ok(()) = self.load.wait();
        }
        let asked = self.asked.as_ref();
        leg.note_arrivals(
            asked.and_then(|asked| ArrivalFit::of(&mut departures.take(asked).places)),
        );
        leg.finish(slices * self.slice_ns)
    }
}

/// The time of a simulation, ns.
#[derive(Clone, Debug, Default)]
struct VirtualClock(Rc<Cell<u64>>);

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }

    fn hold_until(&self, until_ns: u64) {
        self.0.set(self.0.get().max(until_ns));
    }
}

/// A server, and the connections to it, which take no time.
#[derive(Debug)]
struct SimulatedServer {
    subject: Subject,
    clock: VirtualClock,
    services: Generator,
    /// From the start back to when the first pause began, ns.
    phase_ns: u64,
    /// Time at which each worker has served what it has, ns.
    free_ns: BinaryHeap<Reverse<u64>>,
    /// Requests that wait for their replies, by when these come, ns, and the number of the request.
    pending: BTreeMap<(u64, u64), Sample>,
    /// Requests so far.
    count: u64,
    request: Vec<u8>,
}

impl ClientTransport for SimulatedServer {
    type Error = Infallible;

    fn has_room(&mut self) -> bool {
        self.pending.len() < self.subject.connections as usize
    }

    fn send(&mut self, slices: &mut Slices, write: &mut dyn FnMut(&mut Vec<u8>) -> Expected) {
        self.request.clear();
        write(&mut self.request);
        let now_ns = self.clock.now_ns();
        let sample = slices.handle_sent(now_ns);
        let replied_ns = self.serve(now_ns);
        self.count += 1;
        self.pending.insert((replied_ns, self.count), sample);
    }

    fn flush(&mut self) {}

    /// Time goes on to the next reply, or to `until_ns` if that is sooner.
    fn turn(&mut self, slices: &mut Slices, until_ns: u64) -> Result<(), Infallible> {
        let next_ns = self.pending.first_key_value().map_or(u64::MAX, |(&(at_ns, _), _)| at_ns);
        self.clock.hold_until(next_ns.min(until_ns));
        let now_ns = self.clock.now_ns();
        while let Some(first) = self.pending.first_entry()
            && first.key().0 <= now_ns
        {
            slices.handle_reply(first.remove(), Outcome::Ok, now_ns);
        }
        Ok(())
    }
}

impl SimulatedServer {
    /// `subject` under `seed`, idle.
    fn new(subject: Subject, clock: VirtualClock, seed: u64) -> Self {
        let period_ns = match subject.habit {
            Habit::Pausing { every_ns, .. } => every_ns.max(1),
            _ => 1,
        };
        Self {
            clock,
            services: generator(seed, SERVICES),
            phase_ns: rand::Rng::next_u64(&mut generator(seed, PHASE)) % period_ns,
            free_ns: (0..subject.workers).map(|_| Reverse(0)).collect(),
            pending: BTreeMap::new(),
            count: 0,
            request: Vec::new(),
            subject,
        }
    }

    /// Time at which the reply to a request that comes at `now_ns` is back.
    fn serve(&mut self, now_ns: u64) -> u64 {
        let Reverse(free_ns) = self.free_ns.pop().unwrap_or_default();
        let from_ns = free_ns.max(now_ns);
        let mut service_ns = self.subject.service.sample(&mut self.services);
        if let Habit::Drifting { per_s } = self.subject.habit {
            service_ns *= 1.0 + per_s * from_ns as f64 / 1e9;
        }
        let replied_ns = self.worked(from_ns, service_ns.round() as u64);
        self.free_ns.push(Reverse(replied_ns));
        replied_ns
    }

    /// Time at which `work_ns` that begin at `from_ns` at the earliest are done.
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

/// Streams of the generator.
const ARRIVALS: u64 = 0;
const SERVICES: u64 = 1;
const PHASE: u64 = 2;
const REQUESTS: u64 = 3;

/// Requests of a slice, on average.
const SLICE_REQUESTS: f64 = 1_000.0;
