//! The round trip to one server and its service time, as a probe and a request show them that find
//! it idle.

use crate::node::Time;

/// Measured times of a server.
#[derive(Debug, Default)]
pub(super) struct Timings {
    /// Time of a probe sent while nothing was outstanding; `None` once something has been placed
    /// since.
    idle_probe: Option<Time>,
    /// Time of a request placed while nothing was outstanding, and the server's concluded count
    /// then.
    lone_request: Option<(Time, u32)>,
    /// Average round trip of idle probes, nanoseconds.
    rtt_ns: Option<u64>,
    /// Average service of lone requests, nanoseconds.
    service_ns: Option<u64>,
}

impl Timings {
    /// Average round trip of idle probes, nanoseconds.
    pub(super) fn rtt_ns(&self) -> Option<u64> {
        self.rtt_ns
    }

    /// Average service of lone requests, nanoseconds.
    pub(super) fn service_ns(&self) -> Option<u64> {
        self.service_ns
    }

    /// A probe goes out, alone or not.
    pub(super) fn note_probe(&mut self, now: Time, is_alone: bool) {
        self.idle_probe = is_alone.then_some(now);
    }

    /// A request is placed on a server that has concluded so many and has none; `None` of one that
    /// has not told.
    pub(super) fn note_lone(&mut self, now: Time, concluded: Option<u32>) {
        self.lone_request = concluded.map(|concluded| (now, concluded));
    }

    /// A request is placed, whatever else the server has.
    pub(super) fn note_placement(&mut self) {
        self.idle_probe = None;
    }

    /// Requests have been placed that show nothing.
    pub(super) fn note_others(&mut self) {
        (self.idle_probe, self.lone_request) = (None, None);
    }

    /// The server has begun anew: the request that was placed alone shows nothing.
    pub(super) fn release_lone(&mut self) {
        self.lone_request = None;
    }

    /// The service time that the conclusion of a lone request shows, if `concluded` is exactly
    /// that.
    pub(super) fn lone_service(&mut self, now: Time, concluded: u32) -> Option<u64> {
        let (placed_at, before) = self.lone_request?;
        let newly = concluded.wrapping_sub(before);
        // It has not ended: this feedback answers a probe, say.
        if newly == 0 {
            return None;
        }
        self.lone_request = None;
        let sojourn = now.saturating_sub(placed_at);
        // Of several that have ended, nobody knows when the lone one did.
        let service = self.rtt_ns.filter(|_| newly == 1).map(|rtt| sojourn.saturating_sub(rtt));
        self.service_ns = smooth(self.service_ns, service);
        service
    }

    /// The round trip that the answer to an idle probe shows.
    pub(super) fn round_trip(&mut self, now: Time) -> Option<u64> {
        let delay_ns = self.idle_probe.take().map(|sent_at| now.saturating_sub(sent_at));
        self.rtt_ns = smooth(self.rtt_ns, delay_ns);
        delay_ns
    }
}

fn smooth(old: Option<u64>, sample: Option<u64>) -> Option<u64> {
    match (old, sample) {
        (Some(old), Some(sample)) => Some(old - old / 8 + sample / 8),
        (old, sample) => sample.or(old),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_follows_by_an_eighth() {
        assert_eq!(smooth(None, Some(800)), Some(800));
        assert_eq!(smooth(Some(800), None), Some(800));
        assert_eq!(smooth(Some(800), Some(1_600)), Some(900));
        assert_eq!(smooth(Some(803), Some(11)), Some(803 - 100 + 1));
    }
}
