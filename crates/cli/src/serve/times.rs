//! Times that requests waited and ran.

use tailcut_proto::histogram::Histogram;

/// Times of requests that have been served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// From its arrival to the start of its service.
    pub(super) queueing: Histogram,
    /// Its service.
    pub(super) service: Histogram,
}

impl Times {
    /// Counts a request.
    pub(super) fn record(&mut self, queueing_ns: u64, service_ns: u64) {
        self.queueing.record(queueing_ns);
        self.service.record(service_ns);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.queueing.add(&other.queueing);
        self.service.add(&other.service);
    }
}
