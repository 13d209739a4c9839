//! The loop of a load thread.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use tailcut_measure::app::{Requests, TlsUpgrade};
use tailcut_measure::generator::generator;
use tailcut_measure::load_loop::{self, LoadLoop, LoopConfig};
use tailcut_measure::slices::Slices;
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_net::driver::Wait;
use tailcut_net::stream::{TlsClient, Verification};

use super::calls::Endpoints;
use super::connections::Connections;
use super::datagram::Flows;
use super::plan::Plan;
use super::stamped::{Found, Sampler};
use super::stream::StreamLanes;
use super::{probe_call, probing};
use crate::job::{AgentEvent, ClientCounts, Transport};
use crate::result::Host;
use crate::system_roots;

/// Does what the plan says until it is stopped.
pub(super) fn run(plan: Plan, controls: &Controls, tell: &Sender<AgentEvent>) -> Result<()> {
    // Without it a timed sleep ends up to 50 us late.
    let _ = affinity::set_precise_sleeps();
    let wait =
        if plan.job.busy_poll { Wait::BusyPoll } else { Wait::Block { spin_ns: plan.job.spin_ns } };
    let tls = (plan.job.transport == Transport::Tls).then(|| tls(&plan)).transpose()?;
    probe_call::run(&plan, tls.as_ref())?;
    let (found, held) = probing::find(&plan, tls.as_ref(), &controls.found);
    let sampler = Sampler::new(plan.job.stamp_every, found);
    let mut connections: Box<dyn Connections> = match plan.job.transport {
        Transport::Tcp | Transport::Tls => Box::new(StreamLanes::new(&plan, wait, tls, sampler)?),
        Transport::Udp | Transport::NetClone => Box::new(Flows::new(&plan, wait, sampler)?),
        Transport::R2p2 | Transport::Homa | Transport::HomaIp | Transport::HomaTcp => {
            Box::new(Endpoints::new(&plan, wait, sampler)?)
        }
    };
    connections.open(Clock.now() + OPEN_NS_MAX)?;
    drop(held);
    let _ = tell.send(AgentEvent::Ready { host: Host::default(), stamps: found.kind() });
    let Some(start) = await_start(controls) else { return Ok(()) };
    let requests =
        Requests::new(&plan.app, plan.setting(), generator(plan.job.seed, plan.request_stream()))?;
    let slices = Slices::new(plan.load(start)?, start, plan.job.slice_ns);
    let near_ns = match wait {
        Wait::BusyPoll => NEAR_NS,
        Wait::Block { spin_ns } => spin_ns.min(NEAR_NS),
    };
    let busy_poll = plan.job.busy_poll;
    let config = LoopConfig { timeout_ns: plan.job.timeout_ns, near_ns, busy_poll };
    let load = LoadLoop::new(RealClock, connections, requests, slices, config);
    Worker { plan, load, told: ClientCounts::default() }.work(controls, tell)
}

fn tls(plan: &Plan) -> Result<TlsClient> {
    let tls = plan.job.tls.clone().unwrap_or_default();
    let roots = tls.roots_pem.as_deref().map(str::as_bytes);
    let verification = match (tls.insecure, roots) {
        (true, _) => Verification::Off,
        (false, Some(pem)) => Verification::Roots(pem),
        (false, None) => Verification::Roots(system_roots::pem()?.as_bytes()),
    };
    let client = TlsClient::new(tls.name.as_deref(), verification).context("cannot set up TLS")?;
    let client = match plan.app.alpn() {
        Some(protocol) => client.with_alpn(&[protocol]),
        None => client,
    };
    Ok(match plan.app.tls_upgrade() {
        Some(TlsUpgrade { request, agreed }) => client.with_upgrade(request, agreed),
        None => client,
    })
}

/// Waits until the start is known; `None` when stopped before.
fn await_start(controls: &Controls) -> Option<u64> {
    loop {
        let start = controls.start.load(Ordering::Acquire);
        if controls.is_stopped.load(Ordering::Acquire) {
            return None;
        }
        if start != NOT_YET {
            return Some(start);
        }
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

/// The clock of this host.
struct RealClock;

impl load_loop::Clock for RealClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        Clock.now()
    }

    fn hold_until(&self, until_ns: u64) {
        // Not told that it spins: a hypervisor that hears of it may take the core away.
        while Clock.now() < until_ns {}
    }
}

/// Controls that the threads of an agent look at.
#[derive(Debug)]
pub(super) struct Controls {
    /// Time at which the load begins; `NOT_YET` until that is known.
    pub(super) start: AtomicU64,
    pub(super) is_stopped: AtomicBool,
    /// Over all threads.
    pub(super) connections: AtomicU32,
    /// Stamps that arrive, once a thread has probed.
    pub(super) found: OnceLock<Found>,
}

struct Worker {
    plan: Plan,
    load: LoadLoop<RealClock, dyn Connections>,
    /// Counters as last told.
    told: ClientCounts,
}

impl Worker {
    fn work(&mut self, controls: &Controls, tell: &Sender<AgentEvent>) -> Result<()> {
        let mut is_stopped = false;
        loop {
            self.load.send_due();
            while let Some(slice) = self.load.poll_slice() {
                if tell.send(AgentEvent::Slice { thread: self.plan.index, slice }).is_err() {
                    return Ok(());
                }
                self.tell_counts(tell);
                self.add_lanes(controls.connections.load(Ordering::Relaxed));
                // A thread that polls with real-time priority on the coordinator's core would keep
                // it from ever looking.
                std::thread::yield_now();
            }
            if !is_stopped && controls.is_stopped.load(Ordering::Relaxed) {
                is_stopped = true;
                self.load.stop();
            }
            if is_stopped && self.load.is_done() {
                // Whoever stopped the load needs no slice that the stop has cut.
                self.tell_counts(tell);
                let _ = tell.send(AgentEvent::Done);
                return Ok(());
            }
            self.load.wait()?;
        }
    }

    /// Tells what was counted since the last time.
    fn tell_counts(&mut self, tell: &Sender<AgentEvent>) {
        let saturated = self.load.saturated();
        let connections = self.load.transport_mut();
        let counts = ClientCounts { saturated, ..connections.counts() };
        let client = counts.since(&self.told);
        self.told = counts;
        let (stamps, stamped) = connections.sampler().take(Clock.now());
        let _ = tell.send(AgentEvent::Client { client, stamps, stamped });
    }

    /// Opens the connections that this thread still lacks of so many in all.
    fn add_lanes(&mut self, connections: u32) {
        let (threads, targets) = (self.plan.job.threads, self.plan.lanes.len());
        let own = connections / threads + u32::from(self.plan.index < connections % threads);
        for place in targets..own as usize {
            let lane = self.plan.lanes[place % targets.max(1)];
            self.load.transport_mut().add_lane(lane.target);
            self.plan.lanes.push(lane);
        }
    }
}

/// As long as a sleep may end late where this was measured.
const NEAR_NS: u64 = 50_000;

/// Longest time that connections may take to open, and stores to fill.
const OPEN_NS_MAX: u64 = 60_000_000_000;

/// No start is known.
pub(super) const NOT_YET: u64 = u64::MAX;
