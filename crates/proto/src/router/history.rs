//! Since when a router knows what, and for how long packets have waited for it.
//!
//! | since | it knows |
//! |---|---|
//! | it was made | what it has placed |
//! | it last refused for want of room what may run once | what it has refused: it could not remember that one |
//! | a server was last removed | every server that may have a request: that one it can ask nothing any more |

use crate::node::Time;

/// Times of a router's life.
#[derive(Debug)]
pub(super) struct History {
    /// Time of its making.
    started_at: Time,
    /// Time of the last refusal of a request that may run once, for want of room to remember it.
    full_at: Option<Time>,
    /// Time since which it knows every server that may have a request.
    complete_since: Time,
    /// Time of the last thing that it was given to do.
    turned_at: Time,
    /// Time at which it last came back after it had been given nothing for long, and for how long:
    /// what comes then may have waited in its socket for so long.
    pause: (Time, u64),
    /// Longest time that the network holds a packet, nanoseconds.
    transit_ns_max: u64,
}

impl History {
    /// That of a router that starts at `now`.
    pub(super) fn new(now: Time, transit_ns_max: u64) -> Self {
        Self {
            started_at: now,
            full_at: None,
            complete_since: now,
            turned_at: now,
            pause: (now, 0),
            transit_ns_max,
        }
    }

    /// Takes note of the time: a router that was paused finds what came meanwhile in its socket.
    #[inline]
    pub(super) fn note_turn(&mut self, now: Time) {
        let gap_ns = now.saturating_sub(self.turned_at);
        self.turned_at = now;
        if gap_ns > self.transit_ns_max / 2 {
            self.pause = (now, gap_ns);
        }
    }

    /// Time of the last turn.
    pub(super) fn turned_at(&self) -> Time {
        self.turned_at
    }

    /// A request that may run once was refused, and could not be remembered.
    pub(super) fn note_full(&mut self, now: Time) {
        self.full_at = Some(now);
    }

    /// A server was removed.
    pub(super) fn note_removal(&mut self, now: Time) {
        self.complete_since = now;
    }

    /// The time at which a packet came that is handled now, at the earliest: ids that have expired
    /// while it waited in the socket are still known to it.
    pub(super) fn came_at(&self, now: Time) -> Time {
        let (resumed_at, pause_ns) = self.pause;
        // What had waited in the socket is taken to have been read by then.
        let is_of_pause = now.saturating_sub(resumed_at) <= self.transit_ns_max;
        if is_of_pause { now.saturating_sub(pause_ns) } else { now }
    }

    /// Longest time that a packet which is handled now may have waited in the socket: it is so much
    /// older than it says.
    pub(super) fn waited_ns(&self, now: Time) -> u64 {
        now - self.came_at(now)
    }

    /// True if what is so old may have been sent before the router started, or been refused without
    /// being remembered.
    pub(super) fn was_before(&self, now: Time, age_ns: u64) -> bool {
        let may_precede = |since| self.may_precede(since, now, age_ns);
        may_precede(self.started_at) || self.full_at.is_some_and(may_precede)
    }

    /// True if what is so old may have gone to a server that is not there any more.
    pub(super) fn was_before_removal(&self, now: Time, age_ns: u64) -> bool {
        self.may_precede(self.complete_since, now, age_ns)
    }

    /// True if what is so old `now` may have been sent before `since`.
    fn may_precede(&self, since: Time, now: Time, age_ns: u64) -> bool {
        now.saturating_sub(since) <= age_ns.saturating_add(self.transit_ns_max)
    }
}
