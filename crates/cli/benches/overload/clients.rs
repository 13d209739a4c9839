//! Clients in an open loop: each calls when its arrivals say so, whatever became of earlier calls,
//! normally, then too much, then normally again.

use std::net::SocketAddr;

use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::quantity::Unit;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::entropy;
use tailcut_net::open::Opening;
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::r2p2::Config;
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

use crate::MS;

/// A client, and how much it calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    /// Its place; its address follows from it, and all that it draws.
    pub(crate) number: usize,
    /// Before and after the overload.
    pub(crate) normal_per_s: f64,
    /// Meanwhile.
    pub(crate) loaded_per_s: f64,
}

/// The phases of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Deadline of each call, from the time at which it is intended.
    pub(crate) deadline_ns: u64,
    /// Duration of the overload.
    pub(crate) overload_ns: u64,
}

impl Shape {
    /// Beginning of the overload, from the start.
    pub(crate) fn begins_at(self) -> u64 {
        BEFORE_NS
    }

    /// End of the overload, from the start.
    pub(crate) fn ends_at(self) -> u64 {
        BEFORE_NS + self.overload_ns
    }

    /// End of each phase, and true if it is the overload.
    fn phases(self) -> [(u64, bool); 3] {
        [(BEFORE_NS, false), (self.ends_at(), true), (self.ends_at() + AFTER_NS, false)]
    }
}

/// Outcome of a call; times from the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) client: usize,
    pub(crate) intended_at: u64,
    /// Time of the reply; `None` without one.
    replied_at: Option<u64>,
}

impl Record {
    /// From the intended call to the reply.
    pub(crate) fn latency_ns(&self) -> Option<u64> {
        self.replied_at.map(|replied_at| replied_at - self.intended_at)
    }
}

/// Loads `target` by all clients from one thread; the calls, and how late one was made at most, ns.
pub(crate) fn run(
    target: SocketAddr,
    clients: &[Client],
    shape: Shape,
    service_ns: u64,
) -> (Vec<Record>, u64) {
    let service = Distribution::parse(&format!("exp:{service_ns}ns"), Unit::Time);
    let service = service.expect("a distribution");
    let mut driver = Driver::new(Wait::default()).expect("a driver");
    for client in clients {
        let config = Config { secret: entropy::secret().expect("entropy"), ..Config::default() };
        let opening = Opening { r2p2: config, ..Opening::default() };
        // Each a host of its own, in a network of its own: shares are by address.
        let address = SocketAddr::from(([127, 0, client.number as u8 + 1, 1], 0));
        opening.add(&mut driver, address).expect("a port");
    }
    let start = driver.clock().now();
    let mut loads: Vec<Load> =
        clients.iter().map(|&client| Load::new(client, shape, (target, start), &service)).collect();
    let mut records = Vec::new();
    let ends_at = start + shape.ends_at() + AFTER_NS + shape.deadline_ns + 10 * MS;
    loop {
        let turned = driver.turn_with(|index, endpoint, now| {
            loads[index].make_due(now, endpoint, &mut records);
            loads[index].take_ended(now, endpoint, &mut records);
        });
        let now = turned.expect("a turn").now;
        let is_over = loads.iter().all(|load| load.phase == 3 && load.under_way == 0);
        if is_over || now >= ends_at {
            let late_ns = loads.iter().map(|load| load.late_ns).max().unwrap_or(0);
            return (records, late_ns);
        }
        let next = loads.iter().map(|load| load.next_at).min().unwrap_or(u64::MAX);
        driver.wait(None, Some(next.saturating_add(start).min(now + 5 * MS))).expect("a wait");
    }
}

/// A client under way.
struct Load {
    client: Client,
    shape: Shape,
    target: SocketAddr,
    /// All times but this are from it.
    start: u64,
    /// Index in [`Shape::phases`].
    phase: usize,
    phase_began_at: u64,
    arrivals: Arrivals,
    services: Generator,
    service: Distribution,
    next_at: u64,
    under_way: usize,
    /// Most time from when a call was intended until it was made.
    late_ns: u64,
}

impl Load {
    fn new(
        client: Client,
        shape: Shape,
        (target, start): (SocketAddr, u64),
        service: &Distribution,
    ) -> Self {
        let mut load = Self {
            client,
            shape,
            target,
            start,
            phase: 0,
            phase_began_at: 0,
            arrivals: arrivals(client, client.normal_per_s, 0),
            services: generator(client.number as u64, SERVICES),
            service: service.clone(),
            next_at: 0,
            under_way: 0,
            late_ns: 0,
        };
        load.advance();
        load
    }

    /// Finds the next arrival, in this phase or a later one.
    fn advance(&mut self) {
        while let Some(&(ends_at, _)) = self.shape.phases().get(self.phase) {
            self.next_at = self.phase_began_at + self.arrivals.next_ns();
            if self.next_at < ends_at {
                return;
            }
            self.phase += 1;
            self.phase_began_at = ends_at;
            let is_loaded = self.shape.phases().get(self.phase).is_some_and(|&(_, is)| is);
            let Client { normal_per_s, loaded_per_s, .. } = self.client;
            let rate_per_s = if is_loaded { loaded_per_s } else { normal_per_s };
            self.arrivals = arrivals(self.client, rate_per_s, self.phase);
        }
        self.next_at = u64::MAX;
    }

    fn make_due(&mut self, now: u64, endpoint: &mut Endpoint, records: &mut Vec<Record>) {
        while self.next_at <= now - self.start {
            let intended_at = self.next_at;
            self.advance();
            self.late_ns = self.late_ns.max(now - self.start - intended_at);
            let mut payload = endpoint.buffer();
            let service_ns = self.service.sample_whole(&mut self.services);
            payload.extend_from_slice(&service_ns.to_be_bytes());
            payload.extend_from_slice(&(records.len() as u64).to_be_bytes());
            let call = Call {
                target: self.target,
                payload,
                deadline: self.start + intended_at + self.shape.deadline_ns,
                context: records.len() as u64,
                options: CallOptions::default(),
            };
            // What is refused at once is a call that was not answered.
            self.under_way += usize::from(endpoint.call(now, call).is_ok());
            records.push(Record { client: self.client.number, intended_at, replied_at: None });
        }
    }

    fn take_ended(&mut self, now: u64, endpoint: &mut Endpoint, records: &mut [Record]) {
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Replied { context, payload, .. } => {
                    records[context as usize].replied_at = Some(now - self.start);
                    endpoint.recycle(payload);
                    self.under_way -= 1;
                }
                Event::Failed { .. } => self.under_way -= 1,
                Event::Request { .. } | Event::Cancelled { .. } => {}
            }
        }
    }
}

fn arrivals(client: Client, rate_per_s: f64, phase: usize) -> Arrivals {
    let gaps = generator(client.number as u64, phase as u64);
    Arrivals::new(Process::Poisson, rate_per_s, gaps).expect("a rate")
}

/// Normal load before the overload, in which everybody gets to know each other, and after it.
const BEFORE_NS: u64 = 300 * MS;
const AFTER_NS: u64 = 600 * MS;

/// The generator's stream of services; those before are of the phases.
const SERVICES: u64 = 8;
