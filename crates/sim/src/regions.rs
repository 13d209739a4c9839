//! A network over links and switches in regions that run at the same time, one by one or on several
//! threads.
//!
//! All regions run through a window of virtual time that is no longer than the least time from one
//! to another; then each takes what has left others meanwhile, and the next window begins. So a
//! region needs to know nothing of another while it runs, and keeps to few nodes and ports for as
//! long.
//!
//! | in window | a region | reads what has left in |
//! |---|---|---|
//! | even | writes its outbox of even windows | the window before, odd |
//! | odd | writes its outbox of odd ones | the window before, even |
//!
//! Invariant: what a region takes comes in the order of the regions that it left, and in each as it
//! left. So the same run has the same trace, to the byte, on any number of threads.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use tailcut_proto::node::{Node, Time};

use crate::PS_PER_NS;
use crate::fabric::topology::{Split, Topology};
use crate::impair::Impairment;
use crate::network::{Framing, HostDelays, Network, Outbox, Statistics, Turn};

/// A network in regions.
#[derive(Debug)]
pub(crate) struct Regions<N> {
    networks: Vec<Network<N>>,
    /// Region of each place.
    region_of: Vec<u32>,
    /// Datagrams that have left each region in even windows, and in odd ones.
    outboxes: [Vec<RwLock<Outbox>>; 2],
    /// Windows so far.
    windows: usize,
}

/// The applications of a region's nodes.
pub(crate) trait Application<N>: Send {
    /// Has a turn after each input to a node.
    fn handle(&mut self, turn: &mut Turn<'_, N>);

    /// Looks at the region, each time that a look is due.
    fn look(&mut self, network: &Network<N>);
}

/// Extent of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) until: Time,
    /// Between two looks, ns; none at 0.
    pub(crate) look_ns: Time,
    /// Threads at most.
    pub(crate) threads: usize,
}

impl<N: Node + Send> Regions<N> {
    /// A network over `topology`, whose hosts have these addresses and nodes.
    pub(crate) fn new(
        topology: &Topology,
        addresses: &[SocketAddr],
        seed: u64,
        node: impl Fn(u32) -> N,
    ) -> Self {
        let split = Split::of(topology, addresses.len() as u32);
        let region = |region| {
            let seed = seed ^ (u64::from(region) << 32);
            let mut network = Network::region(topology, (split, region), addresses, seed);
            for host in network.region_hosts() {
                network.add(addresses[host as usize], node(host), Impairment::NONE, 0);
            }
            network
        };
        let networks: Vec<_> = (0..split.regions()).map(region).collect();
        let region_of = networks.iter().zip(0..).flat_map(|(network, region)| {
            let hosts = network.region_hosts();
            std::iter::repeat_n(region, hosts.len())
        });
        let region_of = region_of.collect();
        let outboxes = [(); 2].map(|()| networks.iter().map(|_| RwLock::default()).collect());
        Self { networks, region_of, outboxes, windows: 0 }
    }

    /// The regions.
    pub(crate) fn networks(&self) -> &[Network<N>] {
        &self.networks
    }

    /// The region in which a host is.
    pub(crate) fn of(&self, place: usize) -> &Network<N> {
        &self.networks[self.region_of[place] as usize]
    }

    /// As [`Regions::of`].
    pub(crate) fn of_mut(&mut self, place: usize) -> &mut Network<N> {
        &mut self.networks[self.region_of[place] as usize]
    }

    /// The virtual time.
    pub(crate) fn now(&self) -> Time {
        self.networks[0].now()
    }

    /// As [`Network::set_delays`].
    pub(crate) fn set_delays(&mut self, place: usize, delays: HostDelays) {
        for (network, region) in self.networks.iter_mut().zip(0..) {
            if region == self.region_of[place] {
                network.set_delays(place, delays);
            } else {
                network.set_delays_beyond(place, delays);
            }
        }
    }

    /// As [`Network::set_framing`].
    pub(crate) fn set_framing(&mut self, framing: Framing) {
        self.networks.iter_mut().for_each(|network| network.set_framing(framing));
    }

    /// As [`Network::keep_heads`].
    pub(crate) fn keep_heads(&mut self, head_len_max: usize) {
        self.networks.iter_mut().for_each(|network| network.keep_heads(head_len_max));
    }

    /// Counters of all regions; the hash is over theirs.
    pub(crate) fn statistics(&self) -> Statistics {
        let all = self.networks.iter().map(Network::statistics);
        all.reduce(Statistics::plus).unwrap_or_default()
    }

    /// Runs all regions, each with its applications.
    ///
    /// # Panics
    ///
    /// Where there are several and the software of a host takes no time, so that nothing tells how
    /// far one may run ahead.
    pub(crate) fn run<A: Application<N>>(&mut self, span: Span, applications: &mut [A]) {
        let Self { networks, outboxes, windows, .. } = self;
        let window_ps = match &networks[..] {
            [_] => u64::MAX,
            several => several[0].lookahead_ps(),
        };
        assert!(window_ps > 0, "regions are no time apart");
        let plan = Plan { span, window_ps, outboxes, first_window: *windows };
        let per_thread = networks.len().div_ceil(span.threads.max(1));
        let barrier = Barrier::new(networks.len().div_ceil(per_thread));
        let count = std::thread::scope(|scope| {
            let chunks = networks.chunks_mut(per_thread).zip(applications.chunks_mut(per_thread));
            let mut parts = chunks.enumerate().map(|(index, (networks, applications))| Part {
                first: (index * per_thread) as u32,
                networks,
                applications,
            });
            let own = parts.next();
            for part in parts {
                let (plan, barrier) = (&plan, &barrier);
                scope.spawn(move || part.run(plan, barrier));
            }
            own.map_or(0, |part| part.run(&plan, &barrier))
        });
        *windows += count;
    }
}

/// State of a run that all threads share.
struct Plan<'a> {
    span: Span,
    window_ps: u64,
    outboxes: &'a [Vec<RwLock<Outbox>>; 2],
    first_window: usize,
}

/// The regions of a thread.
struct Part<'a, N, A> {
    /// Number of the first.
    first: u32,
    networks: &'a mut [Network<N>],
    applications: &'a mut [A],
}

impl<N: Node, A: Application<N>> Part<'_, N, A> {
    /// Runs window by window; tells how many.
    fn run(self, plan: &Plan<'_>, barrier: &Barrier) -> usize {
        let Self { first, networks, applications } = self;
        let _breaks = Breaks(barrier);
        let until_ps = plan.span.until.saturating_mul(PS_PER_NS);
        let own = first..first + networks.len() as u32;
        let mut now_ps = networks.first().map_or(until_ps, |network| network.now() * PS_PER_NS);
        let look_ps = plan.span.look_ns * PS_PER_NS;
        let mut count = 0;
        while now_ps < until_ps {
            let end_ps = if look_ps > 0 { now_ps - now_ps % look_ps + look_ps } else { u64::MAX };
            let end_ps = end_ps.min(now_ps.saturating_add(plan.window_ps)).min(until_ps);
            let window = plan.first_window + count;
            let [before, after] = [window + 1, window].map(|at| &plan.outboxes[at % 2]);
            take_in(networks, &own, before);
            let is_look = look_ps > 0 && end_ps % look_ps == 0;
            let regions = networks.iter_mut().zip(&mut *applications);
            for ((network, application), outbox) in regions.zip(&after[first as usize..]) {
                network.run_to_ps(end_ps, &mut |turn| application.handle(turn));
                network.swap_left(&mut write(outbox));
                if is_look {
                    application.look(network);
                }
            }
            (now_ps, count) = (end_ps, count + 1);
            barrier.wait();
        }
        count
    }
}

/// Takes what has left for some regions.
fn take_in<N: Node>(networks: &mut [Network<N>], own: &Range<u32>, outboxes: &[RwLock<Outbox>]) {
    for outbox in outboxes {
        for (region, crossing, head) in read(outbox).to(own.clone()) {
            networks[(region - own.start) as usize].enter(crossing, head);
        }
    }
}

fn read(outbox: &RwLock<Outbox>) -> RwLockReadGuard<'_, Outbox> {
    outbox.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn write(outbox: &RwLock<Outbox>) -> RwLockWriteGuard<'_, Outbox> {
    outbox.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Barrier at which threads wait for each other, for so short a time that to sleep would take
/// longer.
struct Barrier {
    threads: usize,
    /// Arrivals so far.
    arrived: AtomicUsize,
    /// One of the threads has panicked, and does not come.
    is_broken: AtomicBool,
}

/// Breaks the barrier when its thread panics.
struct Breaks<'a>(&'a Barrier);

impl Drop for Breaks<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_broken.store(true, Ordering::Release);
        }
    }
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0), is_broken: AtomicBool::new(false) }
    }

    /// Waits until all have come as often.
    fn wait(&self) {
        if self.threads == 1 {
            return;
        }
        let own = self.arrived.fetch_add(1, Ordering::AcqRel);
        let all = own - own % self.threads + self.threads;
        let mut looks = 0;
        while self.arrived.load(Ordering::Acquire) < all {
            looks += 1;
            if looks % LOOKS_MAX == 0 {
                assert!(!self.is_broken.load(Ordering::Acquire), "another thread has panicked");
                // Another may be waiting for this core.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Looks at a barrier before another has the core.
const LOOKS_MAX: u32 = 2_000;
