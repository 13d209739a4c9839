//! The loop of a load thread, over any clock and anything that carries requests.
//!
//! The same loop runs on sockets by the real clock and in a simulator in virtual time, so that what
//! is measured on hardware was tried on queues with known answers.
//!
//! 1. [`LoadLoop::send_due`] sends what is due, and reads the clock for the rest of the turn;
//! 2. [`LoadLoop::poll_slice`] gives the slices that are finished;
//! 3. [`LoadLoop::wait`] takes what has come, or waits for it until the next send.
//!
//! Invariant: the loop never waits for a reply in order to send. What is due leaves when it is due,
//! or is late because no connection has room for it, which its latency shows.

use crate::app::{Expected, Requests};
use crate::outcome::Failure;
use crate::slices::{Slice, Slices};

/// The clock that a loop goes by.
pub trait Clock {
    /// The time, ns.
    fn now_ns(&self) -> u64;

    /// Returns at `until_ns`, not a microsecond later, whatever it takes; nothing is awaited
    /// meanwhile.
    fn hold_until(&self, until_ns: u64);
}

/// The connections of a load thread, whatever carries them.
pub trait ClientTransport {
    /// Error that ends a load.
    type Error;

    /// True if a connection can take a request.
    fn has_room(&mut self) -> bool;

    /// Sends the load's next request on the connection with room that has waited longest; `write`
    /// writes it. Its time is read once it is written, so that writing it is no part of its
    /// latency. It is lost where that connection has failed meanwhile. Does nothing where none has
    /// room.
    fn send(&mut self, slices: &mut Slices, write: &mut dyn FnMut(&mut Vec<u8>) -> Expected);

    /// Lets what was sent leave.
    fn flush(&mut self);

    /// Takes what has come, gives up what is over, and otherwise waits until `until_ns` where it
    /// may wait.
    ///
    /// # Errors
    ///
    /// That there is nothing to send on any more.
    fn turn(&mut self, slices: &mut Slices, until_ns: u64) -> Result<(), Self::Error>;
}

/// Configuration of a loop's waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopConfig {
    /// Time after which a request that finds no room is given up, counted from when it was due, ns.
    pub timeout_ns: u64,
    /// So long before a send the loop no longer sleeps, ns; and where nothing is awaited it does
    /// not even read, for a read that finds nothing would make the send late.
    pub near_ns: u64,
    /// True if its transport never sleeps.
    pub busy_poll: bool,
}

/// The loop.
#[derive(Debug)]
pub struct LoadLoop<C, T: ?Sized> {
    clock: C,
    transport: Box<T>,
    requests: Requests,
    slices: Slices,
    config: LoopConfig,
    /// Time at which the turn read the clock, ns.
    now_ns: u64,
    /// Turns in which no connection had room for what was due.
    saturated: u64,
}

impl<C: Clock, T: ClientTransport + ?Sized> LoadLoop<C, T> {
    /// A loop that sends `requests` when `slices` say.
    pub fn new(
        clock: C,
        transport: Box<T>,
        requests: Requests,
        slices: Slices,
        config: LoopConfig,
    ) -> Self {
        let now_ns = clock.now_ns();
        Self { clock, transport, requests, slices, config, now_ns, saturated: 0 }
    }

    /// Sends what is due, at most a burst of it so that replies are not kept waiting.
    pub fn send_due(&mut self) {
        for _ in 0..BURST {
            let now_ns = self.clock.now_ns();
            let Some(due_ns) = self.slices.next_send().filter(|&due_ns| due_ns <= now_ns) else {
                break;
            };
            if !self.transport.has_room() {
                self.saturated += 1;
                if now_ns.saturating_sub(due_ns) < self.config.timeout_ns {
                    break;
                }
                // It has waited for room as long as it may wait for a reply.
                let sample = self.slices.handle_sent(now_ns);
                self.slices.handle_failure(sample, Failure::Timeout, now_ns);
                continue;
            }
            let requests = &mut self.requests;
            self.transport.send(&mut self.slices, &mut |out| requests.write(out));
        }
        self.transport.flush();
        self.now_ns = self.clock.now_ns();
    }

    /// The next slice that is finished.
    pub fn poll_slice(&mut self) -> Option<Slice> {
        self.slices.poll_slice(self.now_ns)
    }

    /// Takes what has come, or waits for it until the next send.
    ///
    /// # Errors
    ///
    /// Those of the transport's turn.
    pub fn wait(&mut self) -> Result<(), T::Error> {
        let until_ns = self.until_ns();
        let near_ns = self.config.near_ns;
        if self.slices.in_flight() == 0 && until_ns.saturating_sub(self.now_ns) <= near_ns {
            self.clock.hold_until(until_ns);
            return Ok(());
        }
        let sleep_until_ns =
            if self.config.busy_poll { until_ns } else { until_ns.saturating_sub(near_ns) };
        self.transport.turn(&mut self.slices, sleep_until_ns)
    }

    /// Sends nothing that is intended from now on.
    pub fn stop(&mut self) {
        self.slices.stop(self.now_ns);
    }

    /// True if the load is stopped, and nothing of it is overdue or in flight.
    pub fn is_done(&self) -> bool {
        self.slices.is_done(self.now_ns)
    }

    /// Turns in which no connection had room for what was due.
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// The connections.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Until when there is nothing to do unless something comes: what is overdue for want of room
    /// waits for it.
    fn until_ns(&mut self) -> u64 {
        let look_at_ns = self.now_ns + LOOK_EVERY_NS;
        match self.slices.poll_timeout() {
            Some(due_ns) if due_ns > self.now_ns || self.transport.has_room() => {
                due_ns.min(look_at_ns)
            }
            _ => look_at_ns,
        }
    }
}

/// Requests of one turn: 64 single sends take the kernel some 170 us, and replies wait for no
/// longer.
const BURST: usize = 64;

/// The loop comes round at least so often, so that whoever drives it can stop it.
const LOOK_EVERY_NS: u64 = 10_000_000;
