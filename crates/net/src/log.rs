//! Log lines about what nodes and ports count: [`DriverLog`], and [`CounterLog`] beneath it.
//!
//! The data path counts and says nothing. This reads the counters of trouble at most ten times a
//! second, outside of it, and logs each that has risen: at once when it first rises, then at most
//! once a second, with how much it has risen since its last line. While nothing listens at WARN it
//! does no more than find that out, once a turn.

use std::net::SocketAddr;

use tailcut_proto::endpoint::Metrics;
use tailcut_proto::node::{Node, Time};
use tailcut_wire::r2p2::DropReason;

use crate::datapath::{AnyDatapath, Datapath};
use crate::driver::{Driver, Turn};

/// A counter that means trouble when it rises.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// The counter's name, as in reports.
    pub counter: &'static str,
    /// Meaning of a rise.
    pub text: &'static str,
    /// Value of the counter by now.
    pub total: u64,
}

/// The log of counters at one origin.
#[derive(Debug)]
pub struct CounterLog {
    /// Address whose counters these are.
    at: SocketAddr,
    /// By place in what is looked at: total at the last line, and when the next may be written.
    lines: Vec<(u64, Time)>,
}

impl CounterLog {
    /// A log of counters that are 0, or that nothing has been said of.
    pub fn new(at: SocketAddr) -> Self {
        Self { at, lines: Vec::new() }
    }

    /// Writes a line for each counter that has risen and may have one. `troubles` come in the same
    /// order each time. Returns whether some that have risen must wait for theirs.
    pub fn look(&mut self, now: Time, troubles: impl IntoIterator<Item = Trouble>) -> bool {
        let mut is_pending = false;
        for (place, Trouble { counter, text, total }) in troubles.into_iter().enumerate() {
            if place == self.lines.len() {
                self.lines.push((0, 0));
            }
            let (told, next_at) = &mut self.lines[place];
            if total <= *told {
                continue;
            }
            if now < *next_at {
                is_pending = true;
                continue;
            }
            tracing::warn!(at = %self.at, counter, count = total - *told, total, "{text}");
            (*told, *next_at) = (total, now.saturating_add(LINE_INTERVAL_NS));
        }
        is_pending
    }
}

/// The log of a driver's nodes and ports, which says also when ports open and close.
#[derive(Debug, Default)]
pub struct DriverLog {
    /// By node.
    logs: Vec<CounterLog>,
    /// Time at which counters are next looked at.
    look_at: Time,
    /// Counters may have risen since they were looked at.
    is_stale: bool,
}

impl DriverLog {
    /// To call after each turn: `read` gives what a node counts as trouble, which its port's are
    /// added to. Returns when it wants to be called again, for [`Driver::wait`].
    pub fn look<N: Node, T: IntoIterator<Item = Trouble>>(
        &mut self,
        driver: &Driver<N>,
        turn: Turn,
        read: impl Fn(usize, &N) -> T,
    ) -> Option<Time> {
        if !tracing::enabled!(tracing::Level::WARN) {
            return None;
        }
        self.is_stale |= !turn.is_idle();
        if self.is_stale && turn.now >= self.look_at {
            self.is_stale = false;
            self.look_at = turn.now.saturating_add(LOOK_INTERVAL_NS);
            for index in self.logs.len()..driver.count() {
                let at = driver.port(index).local_address();
                tracing::info!(%at, "port opened");
                self.logs.push(CounterLog::new(at));
            }
            for (index, log) in self.logs.iter_mut().enumerate() {
                let port = of_port(driver.port(index));
                let troubles = read(index, driver.node(index)).into_iter().chain(port);
                self.is_stale |= log.look(turn.now, troubles);
            }
        }
        self.is_stale.then_some(self.look_at)
    }
}

impl Drop for DriverLog {
    fn drop(&mut self) {
        for log in &self.logs {
            tracing::info!(at = %log.at, "port closed");
        }
    }
}

/// Troubles that an endpoint counts.
pub fn of_endpoint(metrics: &Metrics) -> Vec<Trouble> {
    let (common, malformed, own) = match metrics {
        Metrics::R2p2(metrics) => (
            &metrics.common,
            metrics.malformed.iter().sum(),
            ("timeouts", "retransmission timeouts: peers do not answer", metrics.timeouts),
        ),
        Metrics::Homa(metrics) => (
            &metrics.common,
            metrics.malformed.iter().sum(),
            ("unknowns", "peers ask for RPCs that are unknown here: RPC_UNKNOWN", metrics.unknowns),
        ),
    };
    let drops = common.drops;
    let common = [
        malformed,
        common.unknown,
        common.protocol_violation,
        common.amplification_limited,
        common.control_dropped_queue_full,
        common.partials_expired,
        common.unanswered,
        common.deadlines,
        common.failed,
        common.sessions_refused,
        common.sessions_refused_by_prefix,
    ];
    let common = COMMON.iter().zip(common).map(|(&(counter, text), total)| (counter, text, total));
    let drops = DROPS.iter().zip(drops).map(|(&(counter, text), total)| (counter, text, total));
    common.chain([own]).chain(drops).map(trouble).collect()
}

/// Troubles that a port counts.
pub fn of_port(port: &AnyDatapath) -> impl Iterator<Item = Trouble> + use<> {
    let metrics = port.metrics();
    [
        (
            "kernel_drops",
            "the socket's receive buffer overflows",
            port.kernel_drops().map_or(0, u64::from),
        ),
        ("truncated", "datagrams longer than a buffer", metrics.truncated),
        ("dropped_full", "the device's queue is full", metrics.dropped_full),
        ("dropped_no_buffers", "the kernel lacks buffers to send", metrics.dropped_no_buffers),
        ("dropped_too_large", "datagrams exceed the path's MTU", metrics.dropped_too_large),
        ("dropped_unreachable", "destinations are unreachable", metrics.dropped_unreachable),
        ("dropped_other", "sends fail", metrics.dropped_other),
        (
            "gso_batches_refused",
            "the device lacks segmented sends (GSO)",
            metrics.gso_batches_refused,
        ),
        ("receive_errors", "receives fail", metrics.receive_errors),
    ]
    .into_iter()
    .map(trouble)
}

fn trouble((counter, text, total): (&'static str, &'static str, u64)) -> Trouble {
    Trouble { counter, text, total }
}

const COMMON: [(&str, &str); 11] = [
    ("malformed", "datagrams that are no packets"),
    ("unknown", "packets of calls that are unknown here"),
    ("protocol_violation", "packets that contradict what is known: another sender, other lengths"),
    ("amplification_limited", "replies wait until their client's address is validated"),
    ("control_dropped_queue_full", "control packets dropped: too many wait to be sent"),
    ("partials_expired", "half-received messages expired"),
    ("unanswered", "requests expired before the application answered"),
    ("deadlines", "calls passed their deadline"),
    ("failed", "calls failed"),
    ("sessions_refused", "requests refused: at-most-once memory is full"),
    ("sessions_refused_by_prefix", "requests refused: at-most-once memory is full for a network"),
];

/// By [`DropReason`].
const DROPS: [(&str, &str); DropReason::COUNT] = [
    ("drop_unspecified", "requests refused"),
    ("drop_overload", "requests refused: a queue or a table is full"),
    ("drop_too_large", "requests refused: longer than the limit"),
    ("drop_too_old", "requests refused: below the at-most-once window"),
    ("drop_expired", "requests refused: waited too long"),
    ("drop_no_server", "requests refused: no server in service"),
    ("drop_application", "requests refused by the application, or nothing serves"),
    ("drop_uncertain", "requests refused: they may have run before"),
    ("drop_unvalidated", "requests refused: the client's address is not validated"),
    ("drop_panicked", "requests refused: their handler panicked"),
    ("drop_stopping", "requests refused: the server is stopping"),
    ("drop_unanswered", "requests refused: their handler gave no answer"),
    ("drop_no_key", "requests refused: no key of their epoch"),
];

/// Between two looks at the counters.
const LOOK_INTERVAL_NS: u64 = 100_000_000;

/// Between two lines about one counter.
const LINE_INTERVAL_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span;

    use super::*;

    /// Counts lines, and keeps what they say of `count`.
    #[derive(Clone, Default)]
    struct Lines(Arc<(AtomicUsize, Mutex<Vec<u64>>)>);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            self.0.0.fetch_add(1, Ordering::Relaxed);
            event.record(&mut Counts(&self.0.1));
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    struct Counts<'a>(&'a Mutex<Vec<u64>>);

    impl Visit for Counts<'_> {
        fn record_u64(&mut self, field: &Field, value: u64) {
            if field.name() == "count" {
                self.0.lock().unwrap().push(value);
            }
        }
        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }

    #[test]
    fn a_counter_has_a_line_at_once_and_then_one_a_second_at_most() {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let mut log = CounterLog::new(([127, 0, 0, 1], 8000).into());
            // It rises by 1 each millisecond, for 2.5 seconds.
            for ms in 0..2_500 {
                let total = ms + 1;
                log.look(ms * 1_000_000, [Trouble { counter: "unknown", text: "", total }]);
            }
        });
        assert_eq!(*lines.0.1.lock().unwrap(), [1, 1000, 1000]);
    }

    #[test]
    fn what_has_risen_within_a_second_waits_and_is_not_lost() {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let mut log = CounterLog::new(([127, 0, 0, 1], 8000).into());
            let at = |total| [Trouble { counter: "unknown", text: "", total }];
            assert!(!log.look(0, at(3)));
            assert!(log.look(1, at(5)), "the rest waits");
            assert!(!log.look(LINE_INTERVAL_NS, at(5)));
            assert!(!log.look(LINE_INTERVAL_NS + 1, at(5)), "nothing has risen");
        });
        assert_eq!(*lines.0.1.lock().unwrap(), [3, 2]);
    }
}
