//! A server: one queue before its workers, first come first served, and nobody is interrupted.

use std::collections::VecDeque;

use super::events::{Mark, Packet, Standing};
use super::{Discard, Report};

/// A server and what it has.
#[derive(Debug)]
pub(super) struct Server {
    workers: u32,
    /// Workers that run a request.
    busy: u32,
    /// Requests that wait; empty while a worker is free.
    queue: VecDeque<Packet>,
    /// Requests that run, where copies are cancelled, and when each will finish, ps. Empty
    /// elsewhere.
    running: Vec<(u32, u64)>,
    /// Requests whose copy was cancelled as it ran, and whose finish is to come.
    cancelled: Vec<u32>,
}

/// The fate of a copy that comes to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// A free worker starts it now.
    Start,
    /// It waits.
    Wait,
    /// It is discarded.
    Discard,
}

/// The state of a copy when its cancel comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It waited, and has left the queue.
    Waiting,
    /// It runs, and would finish then, ps.
    Running(u64),
    /// It has ended, or was discarded.
    Ended,
}

impl Server {
    pub(super) fn new(workers: u32) -> Self {
        Self {
            workers,
            busy: 0,
            queue: VecDeque::new(),
            running: Vec::new(),
            cancelled: Vec::new(),
        }
    }

    /// Takes a copy, or discards it.
    pub(super) fn admit(&mut self, packet: Packet, discard: Discard) -> Admission {
        if packet.mark == Mark::Clone && discard == Discard::On && !self.queue.is_empty() {
            return Admission::Discard;
        }
        if self.busy < self.workers {
            self.busy += 1;
            return Admission::Start;
        }
        self.queue.push_back(packet);
        Admission::Wait
    }

    /// Remembers what a worker has started, so that it can be cancelled.
    pub(super) fn note_started(&mut self, id: u32, finish_ps: u64) {
        self.running.push((id, finish_ps));
    }

    /// Releases what a worker has finished; whether it was cancelled before.
    pub(super) fn note_finished(&mut self, id: u32) -> bool {
        if let Some(at) = self.running.iter().position(|&(running, _)| running == id) {
            self.running.swap_remove(at);
            return false;
        }
        let cancelled = self.cancelled.iter().position(|&cancelled| cancelled == id);
        cancelled.map(|at| self.cancelled.swap_remove(at)).is_some()
    }

    /// Nobody waits for its copy of a request any more. One that runs is remembered until its
    /// finish.
    pub(super) fn cancel(&mut self, id: u32) -> Found {
        if let Some(at) = self.queue.iter().position(|packet| packet.id == id) {
            self.queue.remove(at);
            return Found::Waiting;
        }
        let Some(at) = self.running.iter().position(|&(running, _)| running == id) else {
            return Found::Ended;
        };
        self.cancelled.push(id);
        Found::Running(self.running.swap_remove(at).1)
    }

    /// Its load now.
    pub(super) fn standing(&self) -> Standing {
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        Standing { outstanding: waiting.saturating_add(self.busy), waiting }
    }

    /// A worker has finished: the report that goes with the response, and what the worker runs
    /// next.
    pub(super) fn finish(&mut self, report: Report) -> (u32, Option<Packet>) {
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let load = match report {
            Report::Waiting => waiting,
            Report::Outstanding => waiting.saturating_add(self.busy - 1),
        };
        let next = self.queue.pop_front();
        if next.is_none() {
            self.busy -= 1;
        }
        (load, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(id: u32, mark: Mark) -> Packet {
        Packet { sent_ps: 0, base_ps: 0, id, mark, table: 0, other: None }
    }

    /// A server of two workers, both busy, and `waiting` requests behind them.
    fn busy(waiting: u32) -> Server {
        let mut server = Server::new(2);
        for id in 1..=2 {
            assert_eq!(server.admit(packet(id, Mark::Original), Discard::On), Admission::Start);
        }
        for id in 3..3 + waiting {
            assert_eq!(server.admit(packet(id, Mark::Original), Discard::On), Admission::Wait);
        }
        server
    }

    #[test]
    fn a_clone_is_discarded_where_somebody_waits() {
        assert_eq!(busy(1).admit(packet(9, Mark::Clone), Discard::On), Admission::Discard);
    }

    #[test]
    fn a_clone_waits_where_all_workers_are_busy_and_nobody_waits() {
        assert_eq!(busy(0).admit(packet(9, Mark::Clone), Discard::On), Admission::Wait);
    }

    #[test]
    fn an_original_is_never_discarded() {
        assert_eq!(busy(1).admit(packet(9, Mark::Original), Discard::On), Admission::Wait);
        assert_eq!(busy(1).admit(packet(9, Mark::Sole), Discard::On), Admission::Wait);
    }

    #[test]
    fn a_clone_is_kept_when_told() {
        assert_eq!(busy(1).admit(packet(9, Mark::Clone), Discard::Off), Admission::Wait);
    }

    #[test]
    fn the_report_is_the_queue_before_its_first_leaves() {
        let mut server = busy(2);
        let reports: Vec<_> = (0..4)
            .map(|_| server.finish(Report::Waiting))
            .map(|(load, next)| (load, next.map(|next| next.id)))
            .collect();
        assert_eq!(reports, [(2, Some(3)), (1, Some(4)), (0, None), (0, None)]);
    }

    #[test]
    fn a_cancelled_copy_leaves_the_queue_or_is_remembered() {
        let mut server = busy(2);
        for id in 1..=2 {
            server.note_started(id, 10 * u64::from(id));
        }
        assert_eq!(server.cancel(3), Found::Waiting);
        assert_eq!(server.cancel(2), Found::Running(20));
        assert_eq!([server.cancel(2), server.cancel(3)], [Found::Ended; 2]);
        assert_eq!([1, 2].map(|id| server.note_finished(id)), [false, true]);
        assert_eq!(server.finish(Report::Waiting).1.map(|next| next.id), Some(4));
    }

    #[test]
    fn an_outstanding_report_counts_the_running_without_the_answered() {
        let mut server = busy(1);
        assert_eq!([0; 3].map(|_| server.finish(Report::Outstanding).0), [2, 1, 0]);
    }
}
