//! The loop of a load thread.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use tailcut_measure::app::{Requests, Setting};
use tailcut_measure::generator::generator;
use tailcut_measure::recorder::Failure;
use tailcut_measure::slices::Slices;
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_net::driver::Wait;
use tailcut_net::stream::{TlsClient, Verification};

use super::calls::Endpoints;
use super::datagram::Flows;
use super::stamped::{self, Sampler};
use super::stream::StreamLanes;
use super::{Carries, Controls, NOT_YET, Plan};
use crate::job::{ClientCounts, Told, Transport};
use crate::result::Host;

/// Does what the plan says until it is stopped.
pub(super) fn run(plan: Plan, controls: &Controls, tell: &Sender<Told>) -> Result<()> {
    // Without it a timed sleep ends up to 50 us late.
    let _ = affinity::set_precise_sleeps();
    let wait =
        if plan.job.busy_poll { Wait::BusyPoll } else { Wait::Block { spin_ns: plan.job.spin_ns } };
    let tls = (plan.transport == Transport::Tls).then(|| tls(&plan)).transpose()?;
    let (found, held) = stamped::find(&plan, tls.as_ref(), &controls.found);
    let sampler = Sampler::new(&plan, found);
    let mut carries: Box<dyn Carries> = match plan.transport {
        Transport::Tcp | Transport::Tls => Box::new(StreamLanes::new(&plan, wait, tls, sampler)?),
        Transport::Udp => Box::new(Flows::new(&plan, wait, sampler)?),
        Transport::R2p2 | Transport::Homa | Transport::HomaIp => {
            Box::new(Endpoints::new(&plan, wait, sampler)?)
        }
    };
    carries.open(Clock.now() + OPEN_NS_MAX)?;
    drop(held);
    let _ = tell.send(Told::Ready { host: Host::default(), stamps: found.kind() });
    let Some(start) = await_start(controls) else { return Ok(()) };
    let setting = Setting { carrier: plan.carrier(), authority: &plan.authority };
    let requests =
        Requests::new(&plan.app, setting, generator(plan.job.seed, plan.request_stream()))?;
    let slices = Slices::new(plan.load(start)?, start, plan.slice_ns);
    let near_ns = match wait {
        Wait::BusyPoll => NEAR_NS,
        Wait::Block { spin_ns } => spin_ns.min(NEAR_NS),
    };
    Worker { near_ns, plan, carries, requests, slices, saturated: 0, told: ClientCounts::default() }
        .work(controls, tell)
}

fn tls(plan: &Plan) -> Result<TlsClient> {
    let tls = plan.job.tls.clone().unwrap_or_default();
    let roots = tls.roots_pem.as_deref().map(str::as_bytes);
    let verification = match (tls.insecure, roots) {
        (true, _) => Verification::Off,
        (false, Some(pem)) => Verification::Roots(pem),
        (false, None) => anyhow::bail!(
            "say which certificates to trust (--ca), or to trust whatever it shows (--insecure)"
        ),
    };
    TlsClient::new(tls.name.as_deref(), verification).context("cannot set up TLS")
}

/// Looks at nothing but the clock.
fn hold_until(until: u64) {
    // Not told that it spins: a hypervisor that hears of it may take the core away.
    while Clock.now() < until {}
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

struct Worker {
    plan: Plan,
    carries: Box<dyn Carries>,
    requests: Requests,
    slices: Slices,
    /// So long before a send the thread no longer sleeps, and where nothing is awaited it does not
    /// even read: a read that finds nothing would make the send late.
    near_ns: u64,
    /// Turns in which no connection had room for what was due.
    saturated: u64,
    /// What was told of the counters.
    told: ClientCounts,
}

impl Worker {
    fn work(&mut self, controls: &Controls, tell: &Sender<Told>) -> Result<()> {
        let mut is_stopped = false;
        loop {
            self.send_due();
            let now = Clock.now();
            while let Some(slice) = self.slices.poll_slice(now) {
                if tell.send(Told::Slice { thread: self.plan.index, slice }).is_err() {
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
                self.slices.stop(now);
            }
            if is_stopped && self.slices.is_done(now) {
                // Whoever stopped the load needs no slice that the stop has cut.
                self.tell_counts(tell);
                let _ = tell.send(Told::Done);
                return Ok(());
            }
            let until = self.until(now);
            if self.slices.in_flight() == 0 && until.saturating_sub(now) <= self.near_ns {
                hold_until(until);
                continue;
            }
            let sleep_until =
                if self.plan.job.busy_poll { until } else { until.saturating_sub(self.near_ns) };
            self.carries.turn(&mut self.slices, sleep_until)?;
        }
    }

    /// Until when there is nothing to do unless something comes: what is overdue for want of room
    /// waits for it.
    fn until(&mut self, now: u64) -> u64 {
        let look_at = now + LOOK_EVERY_NS;
        match self.slices.poll_timeout() {
            Some(due) if due > now || self.carries.has_room() => due.min(look_at),
            _ => look_at,
        }
    }

    /// Sends what is due, at most a burst of it so that replies are not kept waiting.
    fn send_due(&mut self) {
        for _ in 0..BURST {
            let now = Clock.now();
            let Some(due) = self.slices.next_send().filter(|&due| due <= now) else { break };
            if !self.carries.has_room() {
                self.saturated += 1;
                if now.saturating_sub(due) < self.plan.timeout_ns {
                    break;
                }
                let sample = self.slices.handle_sent(now);
                self.slices.handle_failure(sample, Failure::Timeout, now);
                continue;
            }
            let requests = &mut self.requests;
            self.carries.send(&mut self.slices, &mut |out| requests.write(out));
        }
        self.carries.flush();
    }

    /// Tells what was counted since the last time.
    fn tell_counts(&mut self, tell: &Sender<Told>) {
        let counts = ClientCounts { saturated: self.saturated, ..self.carries.counts() };
        let client = counts.since(&self.told);
        self.told = counts;
        let (stamps, stamped) = self.carries.sampler().take(Clock.now());
        let _ = tell.send(Told::Client { client, stamps, stamped });
    }

    /// Opens the connections that this thread still lacks of so many in all.
    fn add_lanes(&mut self, connections: u32) {
        let (threads, targets) = (self.plan.job.threads, self.plan.lanes.len());
        let own = connections / threads + u32::from(self.plan.index < connections % threads);
        for place in targets..own as usize {
            let lane = self.plan.lanes[place % targets.max(1)];
            self.carries.add_lane(lane.target);
            self.plan.lanes.push(lane);
        }
    }
}

/// Requests of one turn: 64 single sends take the kernel some 170 us, and replies wait for no
/// longer.
const BURST: usize = 64;

/// The thread looks at least so often whether it is stopped.
const LOOK_EVERY_NS: u64 = 10_000_000;

/// As long as a sleep may end late where this was measured.
const NEAR_NS: u64 = 50_000;

/// How long connections may take to open, and stores to fill.
const OPEN_NS_MAX: u64 = 60_000_000_000;
