//! Crews that a server gives its requests to: workers, tasks, or its own thread when their turn
//! comes.

use tailcut_net::completions::Parcel;
use tailcut_net::dispatch::{Dispatcher, Metrics as DispatchMetrics};
use tailcut_proto::node::Time;
use tailcut_proto::scheduler::{Ticket, Wait};

use crate::request::{Job, Task};

/// Crew that runs requests: others, or the server's own thread when their turn comes.
pub(crate) trait Crew {
    /// It is others, who are given a buffer for the reply.
    const IS_ELSEWHERE: bool = true;

    /// Takes a request, now or for as long as it may wait; the ticket of one that waits.
    fn offer(&mut self, job: Parcel<Job>, wait: Wait) -> Result<Option<Ticket>, Parcel<Job>>;

    /// Takes a request out of the queue, if it still waits there.
    fn withdraw(&mut self, ticket: Ticket) -> Option<Parcel<Job>>;

    /// Hands back what is done or has expired, and begins what has waited.
    fn poll_done(&mut self, now: Time, done: impl FnMut(Parcel<Job>));

    /// Begins what has been offered since.
    fn flush(&mut self) {}

    /// The server's thread is about to sleep; false when something is done, and it must not.
    fn fall_asleep(&mut self) -> bool {
        true
    }

    /// It is awake.
    fn get_up(&mut self) {}

    /// Time at which to poll again though nothing is done.
    fn next_look(&self) -> Option<Time> {
        None
    }

    /// Time for which those that it refuses now are to stay away, ns.
    fn retry_after_ns(&self) -> u64;

    /// Counters, where it has some.
    fn metrics(&self) -> Option<DispatchMetrics> {
        None
    }
}

impl Crew for Dispatcher<Task> {
    fn offer(&mut self, job: Parcel<Job>, wait: Wait) -> Result<Option<Ticket>, Parcel<Job>> {
        let Err(task) = self.offer_in_place(Some(job), wait) else { return Ok(None) };
        self.offer(task, wait).map_err(|task| task.expect("it was offered"))
    }

    fn withdraw(&mut self, ticket: Ticket) -> Option<Parcel<Job>> {
        self.withdraw(ticket).flatten()
    }

    fn poll_done(&mut self, now: Time, mut done: impl FnMut(Parcel<Job>)) {
        self.poll_done(now, |task| task.into_iter().for_each(&mut done));
    }

    fn flush(&mut self) {
        self.flush();
    }

    fn fall_asleep(&mut self) -> bool {
        self.fall_asleep()
    }

    fn get_up(&mut self) {
        self.get_up();
    }

    fn next_look(&self) -> Option<Time> {
        self.next_look()
    }

    fn retry_after_ns(&self) -> u64 {
        self.retry_after_ns()
    }

    fn metrics(&self) -> Option<DispatchMetrics> {
        Some(self.metrics())
    }
}
