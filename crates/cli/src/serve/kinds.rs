//! Types of requests, by their service times.
//!
//! | `--types 10us` | a request of | is of type |
//! |---|---|---|
//! | | up to 10 us | 0 |
//! | | more | 1 |

use tailcut_measure::quantity::Unit;
use tailcut_net::dispatch::TypeMetrics;
use tailcut_proto::scheduler::typed::{TYPES_MAX, TypeId};

use super::times::Times;
use crate::admin::text::{Page, seconds};
use crate::output;

/// The types of requests, and what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    /// The longest service of each type but the last, ascending, ns.
    limits_ns: Vec<u64>,
    /// Each has a queue, and workers are reserved for short ones.
    has_queues: bool,
}

impl Kinds {
    /// Types that these service times part.
    pub(super) fn parse(limits_ns: &[u64], has_queues: bool) -> Result<Self, String> {
        if limits_ns.len() >= TYPES_MAX || !limits_ns.is_sorted_by(|a, b| a < b) {
            return Err(format!("--types are ascending times, {} at most", TYPES_MAX - 1));
        }
        Ok(Self { limits_ns: limits_ns.to_vec(), has_queues })
    }

    /// The queues that they ask for.
    pub(super) fn queues(&self) -> usize {
        if self.has_queues { self.limits_ns.len() + 1 } else { 1 }
    }

    /// The type of a request with this service.
    #[inline]
    pub(super) fn of(&self, service_ns: u64) -> TypeId {
        TypeId(self.limits_ns.partition_point(|&limit_ns| limit_ns < service_ns) as u8)
    }

    /// Empty statistics of each type; of no types where there is one.
    pub(super) fn times(&self) -> TypedTimes {
        let count = if self.limits_ns.is_empty() { 0 } else { self.limits_ns.len() + 1 };
        let limit_ns = |at: usize| self.limits_ns.get(at).copied();
        let typed = |at| Typed { limit_ns: limit_ns(at), ..Typed::default() };
        TypedTimes((0..count).map(typed).collect())
    }
}

/// Statistics of the requests of each type.
#[derive(Clone, Debug, Default)]
pub(super) struct TypedTimes(Vec<Typed>);

/// Statistics of the requests of a type.
#[derive(Clone, Debug, Default)]
struct Typed {
    /// Its longest service, ns; `None` for the last.
    limit_ns: Option<u64>,
    times: Times,
    /// Requests of it that wait now, where it has a queue.
    queue_len: u64,
    /// Workers that longer types never get now, of all ports.
    reserved: u64,
}

impl TypedTimes {
    /// Counts a request.
    #[inline]
    pub(super) fn record(&mut self, kind: TypeId, queueing_ns: u64, service_ns: u64) {
        if let Some(typed) = self.0.get_mut(kind.index()) {
            typed.times.record(queueing_ns, service_ns);
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), Default::default);
        }
        for (typed, other) in self.0.iter_mut().zip(&other.0) {
            typed.limit_ns = other.limit_ns;
            typed.times.add(&other.times);
            typed.queue_len += other.queue_len;
            typed.reserved += other.reserved;
        }
    }

    /// Adds what a dispatcher has of each type.
    pub(super) fn note(&mut self, types: &[TypeMetrics]) {
        for (typed, metrics) in self.0.iter_mut().zip(types) {
            typed.queue_len += metrics.queue_len;
            typed.reserved += metrics.reserved;
        }
    }

    /// For the admin port: nothing where there is one type.
    pub(super) fn write(&self, page: &mut Page) {
        if self.0.is_empty() {
            return;
        }
        let limit =
            |typed: &Typed| typed.limit_ns.map_or("+Inf".into(), |ns| seconds(ns).to_string());
        let limits: Vec<_> = self.0.iter().map(limit).collect();
        let typed = || limits.iter().map(|limit| [(LABEL, &limit[..])]).zip(&self.0);
        let mut family =
            page.gauge("type_queue", "Requests of a type that wait, where it has a queue.");
        typed().for_each(|(labels, typed)| family.sample(&labels, typed.queue_len));
        let help = "Workers that requests of longer types never get.";
        let mut family = page.gauge("type_reserved_workers", help);
        typed().for_each(|(labels, typed)| family.sample(&labels, typed.reserved));
        let help = "Time from the arrival of a request of a type to the start of its service.";
        let queueing = typed().map(|(labels, typed)| (labels, &typed.times.queueing));
        page.histograms("type_queueing", help, queueing);
        let help = "Time of the service of a request of a type.";
        let service = typed().map(|(labels, typed)| (labels, &typed.times.service));
        page.histograms("type_service", help, service);
    }

    /// A table of how long each type waited; empty where there is one type.
    pub(super) fn report(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let row = |Typed { limit_ns, times, .. }: &Typed| {
            let name = limit_ns.map_or_else(
                || "longer".to_owned(),
                |limit_ns| format!("up to {}", Unit::Time.format(limit_ns as f64)),
            );
            let waited = [0.5, 0.99, 0.999].map(|share| within(times, share));
            let count = times.service.count().to_string();
            [vec![format!("  {name}"), count], waited.to_vec()].concat()
        };
        let head = ["  service", "requests", "p50 <=", "p99 <=", "p99.9 <="].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(head.to_vec()).chain(self.0.iter().map(row)).collect();
        format!("waited, by type:\n{}", output::table(&rows, 1))
    }
}

/// Names a type by its longest service, seconds.
const LABEL: &str = "service_up_to";

/// The bound of the bucket that holds a quantile of the waiting.
fn within(times: &Times, share: f64) -> String {
    let queueing = &times.queueing;
    if queueing.count() == 0 {
        return "-".to_owned();
    }
    let wanted = (queueing.count() as f64 * share).ceil() as u64;
    let bucket = queueing.cumulative().find(|&(_, count)| count >= wanted);
    let bound_ns = bucket.and_then(|(bound_ns, _)| bound_ns);
    bound_ns.map_or_else(|| "more".to_owned(), |bound_ns| Unit::Time.format(bound_ns as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_of_the_first_type_that_has_it() {
        let kinds = Kinds::parse(&[10, 100], true).unwrap();
        assert_eq!([1, 10, 11, 100, 101].map(|ns| kinds.of(ns).0), [0, 0, 1, 1, 2]);
        assert_eq!((kinds.queues(), Kinds::default().queues()), (3, 1));
    }

    #[test]
    fn types_out_of_order_are_refused() {
        assert!(Kinds::parse(&[10, 10], false).is_err());
        assert!(Kinds::parse(&(0..16).collect::<Vec<_>>(), false).is_err());
    }

    #[test]
    fn a_report_has_the_waiting_of_each_type() {
        let mut times = Kinds::parse(&[10_000], true).unwrap().times();
        (0..1000).for_each(|_| times.record(TypeId(0), 900, 1_000));
        times.record(TypeId(1), 3_000_000, 500_000);
        let mut all = TypedTimes::default();
        all.add(&times);
        let report = all.report();
        assert!(report.contains("up to 10us"), "{report}");
        assert!(report.contains("1000") && report.contains("longer"), "{report}");
        assert_eq!(TypedTimes::default().report(), "");
    }

    #[test]
    fn a_page_has_the_times_of_each_type() {
        let mut times = Kinds::parse(&[10_000], true).unwrap().times();
        times.record(TypeId(1), 3_000_000, 500_000);
        let metrics = [(4, 1), (7, 15)].map(|(queue_len, reserved)| TypeMetrics {
            queue_len,
            reserved,
            ..TypeMetrics::default()
        });
        times.note(&metrics);
        let mut page = Page::new("x");
        times.write(&mut page);
        let text = page.end();
        for line in [
            "x_type_queue{service_up_to=\"+Inf\"} 7",
            "x_type_reserved_workers{service_up_to=\"0.00001\"} 1",
            "x_type_queueing_seconds_count{service_up_to=\"0.00001\"} 0",
            "x_type_queueing_seconds_sum{service_up_to=\"+Inf\"} 0.003",
            "x_type_service_seconds_bucket{service_up_to=\"+Inf\",le=\"+Inf\"} 1",
        ] {
            assert!(text.lines().any(|at| at == line), "{line}: {text}");
        }
    }
}
