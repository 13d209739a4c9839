//! A load without an end, and what became of it slice by slice.
//!
//! A self-correcting run does not know beforehand how long it will warm up and measure. So the load
//! goes on until it is stopped, and each request belongs to the slice of time that its intended
//! send lies in. A slice is handed out when its time has passed and all of its requests have an
//! outcome; whoever takes the slices decides which of them were warm-up and which are the
//! measurement.
//!
//! 1. while [`Slices::next_send`] is due, send a request and call [`Slices::handle_sent`];
//! 2. give the sample back with the request's outcome, to [`Slices::handle_reply`] or
//!    [`Slices::handle_failure`];
//! 3. take finished slices from [`Slices::poll_slice`].
//!
//! Invariant: each request is in exactly one slice, whatever became of it, and slices come in
//! order, without gaps. A request that leaves late belongs to the slice in which it should have
//! left.

use std::collections::VecDeque;

use crate::app::{ErrorCode, ErrorKind, Outcome, Tally};
use crate::load::{Load, Sample};
use crate::outcome::{Counts, Failure};
use crate::statistics::series::Timed;

/// Outcomes of the requests whose intended sends lie in one slice of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Number of the slice, from 0 at the start of the load.
    pub index: u32,
    /// Counts of its requests by outcome.
    pub counts: Counts,
    /// Counts of the replies by outcome.
    pub tally: Tally,
    /// Its replies in the order of their intended sends; times in ns since the start of the load.
    pub samples: Vec<Timed>,
    /// Those of the replies that do not say what was asked for, in the order of their samples.
    pub unusual: Vec<Unusual>,
    /// Its requests without a reply, in the order of their intended sends; times in ns since the
    /// start of the load.
    pub unanswered: Vec<Unanswered>,
    /// Requests that left while the slice lasted, of whichever slices.
    pub sent_meanwhile: u64,
    /// Replies that arrived while the slice lasted, to requests of whichever slices.
    pub replied_meanwhile: u64,
}

impl Slice {
    /// The errors among its replies.
    pub fn errors(&self) -> impl Iterator<Item = (ErrorKind, ErrorCode)> + '_ {
        self.unusual.iter().filter_map(|unusual| match unusual.outcome {
            Outcome::Error(kind) => Some((kind, unusual.code)),
            Outcome::Ok | Outcome::Miss => None,
        })
    }

    /// Times at which its requests should have left, and at which they did, replied to or not.
    pub fn departures(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let replied = self.samples.iter();
        let replied =
            replied.map(|sample| (sample.intended_ns, sample.intended_ns + sample.late_ns));
        let unanswered = self.unanswered.iter();
        replied.chain(unanswered.map(|request| (request.intended_ns, request.sent_ns)))
    }
}

/// Reply that is not what was asked for, beside the sample of the same times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusual {
    /// Time at which its request should have left, ns.
    pub intended_ns: u64,
    /// From then to the reply, ns.
    pub latency_ns: u64,
    /// A miss or an error.
    pub outcome: Outcome,
    /// The protocol's own name of the error.
    pub code: ErrorCode,
}

/// A request without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Time at which the request should have left, ns.
    pub intended_ns: u64,
    /// Time at which the request left, ns.
    pub sent_ns: u64,
    /// Failure that the request ended with.
    pub failure: Failure,
}

/// A load and its slices.
#[derive(Debug)]
pub struct Slices {
    start_ns: u64,
    length_ns: u64,
    load: Load,
    /// No request is intended at or after this.
    stop_ns: u64,
    /// Slices that are not over or not resolved, oldest first, with their requests in flight.
    open: VecDeque<(Slice, u64)>,
    /// Number of the oldest open slice.
    first: u32,
    in_flight: u64,
}

impl Slices {
    /// The slices of `load`, which begins at `start_ns`; each is `length_ns` long, at least 1.
    pub fn new(load: Load, start_ns: u64, length_ns: u64) -> Self {
        let length_ns = length_ns.max(1);
        Self {
            start_ns,
            length_ns,
            load,
            stop_ns: u64::MAX,
            open: VecDeque::new(),
            first: 0,
            in_flight: 0,
        }
    }

    /// Time at which the next request should leave, ns; in the past where it is overdue. `None`
    /// once the load is stopped, and in a closed loop whose places are all taken.
    #[inline]
    pub fn next_send(&self) -> Option<u64> {
        self.load.next_send().filter(|&next_ns| next_ns < self.stop_ns)
    }

    /// A request leaves at `now_ns`; keep the sample with it. Call when [`Slices::next_send`] is
    /// due.
    #[inline]
    pub fn handle_sent(&mut self, now_ns: u64) -> Sample {
        let sample = self.load.handle_sent(now_ns);
        self.in_flight += 1;
        let (slice, in_flight) = self.slice_of(sample.intended_ns);
        slice.counts.sent += 1;
        *in_flight += 1;
        self.slice_of(now_ns).0.sent_meanwhile += 1;
        sample
    }

    /// The reply to `sample`'s request arrived at `now_ns`, and said `outcome`.
    ///
    /// # Panics
    ///
    /// When more requests are resolved than were sent.
    pub fn handle_reply(&mut self, sample: Sample, outcome: Outcome, now_ns: u64) {
        let start_ns = self.start_ns;
        let slice = self.resolve(&sample, now_ns);
        slice.counts.replied += 1;
        slice.tally.record(outcome);
        let intended_ns = sample.intended_ns.saturating_sub(start_ns);
        let latency_ns = now_ns.saturating_sub(sample.intended_ns);
        let late_ns = sample.sent_ns.saturating_sub(sample.intended_ns);
        slice.samples.push(Timed { intended_ns, latency_ns, late_ns });
        if outcome != Outcome::Ok {
            let code = ErrorCode::default();
            slice.unusual.push(Unusual { intended_ns, latency_ns, outcome, code });
        }
        self.slice_of(now_ns).0.replied_meanwhile += 1;
    }

    /// As [`Slices::handle_reply`], of an error that its protocol has a name for.
    ///
    /// # Panics
    ///
    /// As [`Slices::handle_reply`].
    pub fn handle_error(
        &mut self,
        sample: Sample,
        (kind, code): (ErrorKind, ErrorCode),
        now_ns: u64,
    ) {
        let intended_ns = sample.intended_ns;
        self.handle_reply(sample, Outcome::Error(kind), now_ns);
        if let Some(unusual) = self.slice_of(intended_ns).0.unusual.last_mut() {
            unusual.code = code;
        }
    }

    /// `sample`'s request ended at `now_ns` without a reply.
    ///
    /// # Panics
    ///
    /// When more requests are resolved than were sent.
    pub fn handle_failure(&mut self, sample: Sample, failure: Failure, now_ns: u64) {
        let start_ns = self.start_ns;
        let slice = self.resolve(&sample, now_ns);
        match failure {
            Failure::Lost => slice.counts.lost += 1,
            Failure::Refused => slice.counts.refused += 1,
            Failure::Timeout => slice.counts.timeout += 1,
        }
        let [intended_ns, sent_ns] =
            [sample.intended_ns, sample.sent_ns].map(|at_ns| at_ns.saturating_sub(start_ns));
        slice.unanswered.push(Unanswered { intended_ns, sent_ns, failure });
    }

    /// Sends nothing that is intended at `at_ns` or later. What should have left before still does.
    pub fn stop(&mut self, at_ns: u64) {
        self.stop_ns = self.stop_ns.min(at_ns);
    }

    /// The next finished slice: its time is over at `now_ns`, nothing of it is overdue, and all its
    /// requests have an outcome.
    pub fn poll_slice(&mut self, now_ns: u64) -> Option<Slice> {
        let end_ns = self.end_of(self.first);
        if now_ns < end_ns || self.next_send().is_some_and(|next_ns| next_ns < end_ns) {
            return None;
        }
        if self.open.front().is_some_and(|&(_, in_flight)| in_flight > 0) {
            return None;
        }
        let capacity = self.open.front().map_or(0, |(slice, _)| slice.samples.len());
        let (mut slice, _) = self
            .open
            .pop_front()
            .unwrap_or_else(|| (Slice { index: self.first, ..Slice::default() }, 0));
        // Stable, so that both lists have what was intended for the same time in the same order.
        slice.samples.sort_by_key(|sample| sample.intended_ns);
        slice.unusual.sort_by_key(|unusual| unusual.intended_ns);
        slice.unanswered.sort_by_key(|unanswered| (unanswered.intended_ns, unanswered.sent_ns));
        self.first += 1;
        // Slices are much alike: the newest open one grows to the same length.
        if let Some((newest, _)) = self.open.back_mut() {
            newest.samples.reserve(capacity.saturating_sub(newest.samples.len()));
        }
        Some(slice)
    }

    /// Time at which to look at the load again, ns: the next send, or the end of the oldest slice.
    /// In the past where either is overdue. A slice with requests in flight is not waited for: an
    /// outcome ends it. `None` where only an outcome can change anything.
    pub fn poll_timeout(&self) -> Option<u64> {
        let is_answered = self.open.front().is_none_or(|&(_, in_flight)| in_flight == 0);
        let end_ns = is_answered.then(|| self.end_of(self.first));
        self.next_send().into_iter().chain(end_ns).min()
    }

    /// Requests without an outcome.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// True if the load is stopped at `now_ns` and nothing of it is overdue or in flight.
    pub fn is_done(&self, now_ns: u64) -> bool {
        now_ns >= self.stop_ns && self.in_flight == 0 && self.next_send().is_none()
    }

    fn resolve(&mut self, sample: &Sample, now_ns: u64) -> &mut Slice {
        self.in_flight =
            self.in_flight.checked_sub(1).expect("no more requests are resolved than were sent");
        self.load.handle_resolved(now_ns);
        let (slice, in_flight) = self.slice_of(sample.intended_ns);
        *in_flight -= 1;
        slice
    }

    fn end_of(&self, index: u32) -> u64 {
        self.start_ns.saturating_add(self.length_ns.saturating_mul(u64::from(index) + 1))
    }

    /// The open slice of a time, with its requests in flight. What should have left before the
    /// oldest open slice counts to it: only an outcome or a send after its slice was handed out,
    /// which a driver that keeps to the order never makes.
    fn slice_of(&mut self, at_ns: u64) -> (&mut Slice, &mut u64) {
        let index = at_ns.saturating_sub(self.start_ns) / self.length_ns;
        let place = index.saturating_sub(u64::from(self.first)) as usize;
        while self.open.len() <= place {
            let index = self.first + self.open.len() as u32;
            self.open.push_back((Slice { index, ..Slice::default() }, 0));
        }
        let (slice, in_flight) = &mut self.open[place];
        (slice, in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::{Arrivals, Process};
    use crate::generator::generator;
    use crate::load::{ClosedLoop, OpenLoop};

    const MS: u64 = 1_000_000;

    /// One request a millisecond from 1 s on, in slices of 10 ms.
    fn steady() -> Slices {
        let arrivals = Arrivals::new(Process::Fixed, 1000.0, generator(1, 0)).unwrap();
        Slices::new(Load::Open(OpenLoop::new(arrivals, 1000 * MS)), 1000 * MS, 10 * MS)
    }

    /// Sends what is due at `now_ns`.
    fn send(slices: &mut Slices, now_ns: u64) -> Vec<Sample> {
        let mut sent = Vec::new();
        while slices.next_send().is_some_and(|due_ns| due_ns <= now_ns) {
            sent.push(slices.handle_sent(now_ns));
        }
        sent
    }

    #[test]
    fn a_slice_with_requests_in_flight_is_not_waited_for() {
        let mut slices = steady();
        assert_eq!(slices.poll_timeout(), Some(1001 * MS));
        let mut sent = send(&mut slices, 1009 * MS);
        slices.stop(1010 * MS);
        assert_eq!(slices.poll_timeout(), None);
        for sample in sent.drain(..) {
            slices.handle_reply(sample, Outcome::Ok, 1009 * MS);
        }
        assert_eq!(slices.poll_timeout(), Some(1010 * MS));
    }

    #[test]
    fn a_slice_comes_when_its_time_is_over_and_all_its_requests_have_an_outcome() {
        let mut slices = steady();
        let mut sent = send(&mut slices, 1009 * MS);
        assert_eq!(sent.len(), 9);
        let last = sent.pop().unwrap();
        for sample in sent {
            slices.handle_reply(sample, Outcome::Ok, 1009 * MS);
        }
        assert_eq!(slices.poll_slice(1010 * MS), None);
        slices.handle_failure(last, Failure::Timeout, 1010 * MS);
        let slice = slices.poll_slice(1010 * MS).unwrap();
        assert_eq!(slice.index, 0);
        assert_eq!(slice.counts, Counts { sent: 9, replied: 8, timeout: 1, ..Counts::default() });
        assert_eq!(slice.tally.ok, 8);
        assert_eq!(
            slice.unanswered,
            [Unanswered { intended_ns: 9 * MS, sent_ns: 9 * MS, failure: Failure::Timeout }]
        );
        assert_eq!(
            slice.samples[0],
            Timed { intended_ns: MS, latency_ns: 8 * MS, late_ns: 8 * MS }
        );
        assert_eq!(slices.poll_slice(1010 * MS), None);
    }

    #[test]
    fn a_late_request_belongs_to_the_slice_in_which_it_should_have_left() {
        let mut slices = steady();
        assert_eq!(
            slices.poll_slice(1025 * MS),
            None,
            "the requests of the first slice are overdue"
        );
        for sample in send(&mut slices, 1025 * MS) {
            slices.handle_reply(sample, Outcome::Ok, 1026 * MS);
        }
        let [first, second] = [0, 1].map(|_| slices.poll_slice(1026 * MS).unwrap());
        assert_eq!((first.counts.sent, first.sent_meanwhile), (9, 0));
        assert_eq!((second.counts.sent, second.index), (10, 1));
        assert_eq!(first.samples[0].latency_ns, 25 * MS);
        assert_eq!(slices.poll_slice(1026 * MS), None);
        for sample in send(&mut slices, 1029 * MS) {
            slices.handle_reply(sample, Outcome::Ok, 1029 * MS);
        }
        assert_eq!(slices.poll_slice(1029 * MS), None, "its time is not over");
        assert_eq!(slices.poll_slice(1030 * MS).unwrap().sent_meanwhile, 29);
    }

    #[test]
    fn samples_are_in_the_order_of_their_intended_sends() {
        let mut slices = steady();
        for sample in send(&mut slices, 1009 * MS).into_iter().rev() {
            slices.handle_reply(sample, Outcome::Miss, 1009 * MS);
        }
        send(&mut slices, 1010 * MS);
        let slice = slices.poll_slice(1010 * MS).unwrap();
        assert!(slice.samples.is_sorted_by_key(|sample| sample.intended_ns));
        assert_eq!(slice.tally.misses, 9);
    }

    #[test]
    fn replies_that_say_something_else_are_listed_beside_their_samples() {
        let mut slices = steady();
        for (place, sample) in send(&mut slices, 1009 * MS).into_iter().enumerate() {
            slices.handle_reply(
                sample,
                if place == 3 { Outcome::Miss } else { Outcome::Ok },
                1009 * MS,
            );
        }
        send(&mut slices, 1010 * MS);
        let slice = slices.poll_slice(1010 * MS).unwrap();
        assert_eq!(
            slice.unusual,
            [Unusual {
                intended_ns: 4 * MS,
                latency_ns: 5 * MS,
                outcome: Outcome::Miss,
                code: ErrorCode::default()
            }]
        );
    }

    #[test]
    fn a_slice_without_requests_comes_too() {
        let arrivals = Arrivals::new(Process::Fixed, 1.0, generator(1, 0)).unwrap();
        let mut slices = Slices::new(Load::Open(OpenLoop::new(arrivals, 0)), 0, 10 * MS);
        let empty: Vec<Slice> = std::iter::from_fn(|| slices.poll_slice(35 * MS)).collect();
        assert_eq!(empty.iter().map(|slice| slice.index).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_stopped_load_sends_what_is_overdue_and_then_is_done() {
        let mut slices = steady();
        slices.stop(1005 * MS);
        assert!(!slices.is_done(1005 * MS));
        let sent = send(&mut slices, 2000 * MS);
        assert_eq!(sent.len(), 4);
        sent.into_iter().for_each(|sample| slices.handle_reply(sample, Outcome::Ok, 2000 * MS));
        assert!(slices.is_done(2000 * MS));
    }

    #[test]
    fn a_closed_loop_has_slices_too() {
        let mut slices = Slices::new(Load::Closed(ClosedLoop::new(2, 0)), 0, 10 * MS);
        for now_ns in 0..10 {
            for sample in send(&mut slices, now_ns * MS) {
                slices.handle_reply(sample, Outcome::Ok, now_ns * MS);
            }
        }
        // Places that are free since before the end of the slice are overdue until taken.
        send(&mut slices, 10 * MS)
            .into_iter()
            .for_each(|sample| slices.handle_reply(sample, Outcome::Ok, 10 * MS));
        assert_eq!(slices.poll_slice(10 * MS).unwrap().counts.replied, 22);
    }
}
