//! Counters of a serving command, for its report at the end and for the admin port.

use std::net::SocketAddr;

use tailcut_measure::quantity::Unit;
use tailcut_net::dispatch;
use tailcut_net::stream::StreamMetrics;
use tailcut_proto::endpoint::Metrics;

use super::app::HandlerCounts;
use super::kinds::TypedTimes;
use super::times::Times;
use crate::admin::Reading;
use crate::admin::text::{Page, seconds};
use crate::counters::{self, Counters, PortSnapshot};
use crate::output;

/// All ports at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Ports in their order; where threads share one, an entry of each thread.
    pub(super) ports: Vec<Port>,
    /// Number of ports.
    port_count: usize,
    /// Counters of the connections of all ports of a thread.
    pub(super) streams: Vec<StreamMetrics>,
    pub(super) times: Times,
    /// Times by type, where there are several.
    pub(super) typed_times: TypedTimes,
    /// Counters of each port whose services are computed by threads.
    pub(super) dispatch: Vec<dispatch::Metrics>,
    pub(super) uptime_ns: u64,
    pub(super) is_draining: bool,
}

/// A port, by what carries its requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Port {
    Calls(Metrics, PortSnapshot),
    Datagrams(HandlerCounts, PortSnapshot),
    Connections(HandlerCounts),
}

impl Snapshot {
    /// An empty one, with room for so many ports.
    pub(super) fn new(port_count: usize) -> Self {
        Self {
            // So that the loop need not make room.
            ports: Vec::with_capacity(port_count),
            port_count,
            streams: Vec::with_capacity(1),
            times: Times::default(),
            typed_times: TypedTimes::default(),
            dispatch: Vec::with_capacity(port_count),
            uptime_ns: 0,
            is_draining: false,
        }
    }

    /// Adds those of another thread.
    pub(super) fn add(&mut self, other: Self) {
        self.ports.extend(other.ports);
        self.streams.extend(other.streams);
        self.times.add(&other.times);
        self.typed_times.add(&other.typed_times);
        self.dispatch.extend(other.dispatch);
        self.uptime_ns = self.uptime_ns.max(other.uptime_ns);
        self.is_draining |= other.is_draining;
    }

    /// All ports together.
    fn counters(&self) -> Counters {
        let mut all = Counters::new();
        for port in &self.ports {
            counters::add(&mut all, &port.counters());
        }
        let mut streams = Counters::new();
        for metrics in &self.streams {
            counters::add(&mut streams, &counters::of_streams(metrics));
        }
        all.extend(streams);
        let mut dispatched = Counters::new();
        for metrics in &self.dispatch {
            counters::add(&mut dispatched, &of_dispatch(metrics));
        }
        all.extend(dispatched);
        all
    }

    /// The counters of all ports together, and each port's share of the requests, or of each
    /// thread's where they share one.
    pub(super) fn report(&self, addresses: &[SocketAddr]) -> String {
        let shares = addresses.iter().zip(&self.ports);
        let shares: Vec<_> = shares
            .map(|(address, port)| vec![format!("  {address}"), port.requests().to_string()])
            .collect();
        let shares = if shares.len() > 1 {
            let is_shared = addresses.iter().all(|address| *address == addresses[0]);
            let whose = if is_shared { "thread" } else { "port" };
            format!("requests by {whose}:\n{}", output::table(&shares, 1))
        } else {
            String::new()
        };
        let dispatchers: String = self.dispatch.iter().map(dispatcher_line).collect();
        let waited = self.typed_times.report();
        let counters = counters::lines(&self.counters());
        format!("served:\n{counters}{dispatchers}{shares}{waited}")
    }

    /// Adds the state of the dispatchers of all ports, and of their measures the largest.
    fn add_dispatch(&self, page: &mut Page) {
        let sum = |of: fn(&dispatch::Metrics) -> u64| self.dispatch.iter().map(of).sum::<u64>();
        let most = |of: fn(&dispatch::Metrics) -> u64| self.dispatch.iter().map(of).max();
        page.gauge("workers_busy", "Workers that have a request.").value(sum(|all| all.busy));
        page.gauge("queue", "Requests that wait for a worker.").value(sum(|all| all.queue_len));
        let help = "Requests with workers, begun or not.";
        page.gauge("outstanding", help).value(sum(|all| all.outstanding));
        let help = "The most requests that one worker has.";
        page.gauge("outstanding_max", help).value(most(|all| all.outstanding_max).unwrap_or(0));
        let help = "Requests that each worker has, begun or not; none where workers pull.";
        let mut family = page.gauge("worker_outstanding", help);
        let workers = self.dispatch.iter().flat_map(|all| all.outstanding_by_worker.iter());
        for (worker, outstanding) in workers.enumerate() {
            family.sample(&[("worker", &worker.to_string())], outstanding);
        }
        let help = "Requests that a worker may have.";
        page.gauge("bound", help).value(most(|all| all.bound).unwrap_or(0));
        let help =
            "Average round trip to an idle worker less its service, 0 before it is measured.";
        let hand_off_ns = most(|all| all.hand_off_ns.unwrap_or(0)).unwrap_or(0);
        page.gauge("hand_off_seconds", help).value(seconds(hand_off_ns));
    }

    /// For the admin port.
    pub(super) fn reading(&self) -> Reading {
        let mut page = Page::new("tailcut_serve");
        page.gauge("uptime_seconds", "Time since the start.").value(seconds(self.uptime_ns));
        page.gauge("draining", "1 while it takes nothing new.").value(u8::from(self.is_draining));
        page.gauge("ports", "Ports that are served.").value(self.port_count);
        let help = "Time from a request's arrival to the start of its service.";
        page.histogram("queueing", help, &self.times.queueing);
        page.histogram("service", "Time of a request's service.", &self.times.service);
        self.typed_times.write(&mut page);
        if !self.dispatch.is_empty() {
            self.add_dispatch(&mut page);
        }
        page.counters(&self.counters());
        Reading { unready: self.is_draining.then_some("draining"), metrics: page.end() }
    }
}

impl Port {
    fn counters(&self) -> Counters {
        match self {
            Self::Calls(metrics, port) => {
                let mut counters = counters::of_endpoint(metrics);
                counters.extend(port.counters());
                counters
            }
            Self::Datagrams(counts, port) => {
                let mut counters = of_handler(counts);
                counters.extend(port.counters());
                counters
            }
            Self::Connections(counts) => of_handler(counts),
        }
    }

    fn requests(&self) -> u64 {
        match self {
            Self::Calls(metrics, _) => metrics.requests(),
            Self::Datagrams(counts, _) | Self::Connections(counts) => counts.requests,
        }
    }
}

/// Line with what a dispatcher has measured, and what its workers still have.
fn dispatcher_line(metrics: &dispatch::Metrics) -> String {
    let time = |ns: Option<u64>| {
        ns.map_or_else(|| "not measured".to_owned(), |ns| Unit::Time.format(ns as f64))
    };
    let mut line = format!(
        "dispatcher: {} workers, bound {}, hand-off {}, service {}",
        metrics.workers,
        metrics.bound,
        time(metrics.hand_off_ns),
        time(metrics.service_ns)
    );
    if metrics.outstanding_by_worker.iter().any(|&count| count > 0) {
        let counts = metrics.outstanding_by_worker.iter().map(|count| format!(" {count}"));
        line += "; outstanding by worker";
        line.extend(counts);
    }
    line + "\n"
}

fn of_dispatch(metrics: &dispatch::Metrics) -> Counters {
    let dispatch::Counts { dispatched, queued, taken_back, refused_queue_full, expired, wakes } =
        metrics.counts;
    [
        ("dispatched", dispatched),
        ("dispatch_queued", queued),
        ("dispatch_taken_back", taken_back),
        ("dispatch_refused_queue_full", refused_queue_full),
        ("dispatch_expired", expired),
        ("worker_wakes", wakes),
        ("worker_sleeps", metrics.worker_sleeps),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .to_vec()
}

fn of_handler(counts: &HandlerCounts) -> Counters {
    let HandlerCounts {
        requests,
        replies,
        malformed,
        overload,
        draining,
        dropped_queue_full,
        clones_discarded,
    } = *counts;
    [
        ("requests", requests),
        ("replied", replies),
        ("malformed", malformed),
        ("overload", overload),
        ("refused_draining", draining),
        ("dropped_queue_full", dropped_queue_full),
        ("clones_discarded", clones_discarded),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .to_vec()
}
