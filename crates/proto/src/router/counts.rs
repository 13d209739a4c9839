//! Extended requests at one server, accounted for absolutely.
//!
//! Outstanding = (placed - seen) + (received - concluded), of which the router knows the first and
//! the server says the other three. Nothing else is remembered, so a lost, repeated or reordered
//! feedback heals with the next, and a lost request with the answer to the next probe, which makes
//! the server see everything placed so far. What the server says it has seen is used only if it
//! lies between what it said before and what was placed; else it does not know this router yet
//! (either has restarted), and `seen` stays where it was: the count is then too high, never too
//! low, until the answer to the probe that this causes.

use tailcut_wire::r2p2::FeedbackBody;

use super::shared::SharedCounts;
use crate::node::Time;

/// Placements on a server, and its newest feedback.
#[derive(Debug)]
pub(super) struct Counts {
    /// Placement number of the last extended request placed; begins at a random word. Wraps.
    placed: u32,
    /// Placement number up to which the server has seen or will never see; at most `placed`,
    /// wrapping.
    seen: u32,
    /// The newest feedback taken.
    heard: Option<FeedbackBody>,
    /// The epoch before that of `heard`, and until when it is ignored: it can only be an old
    /// packet.
    retired_epoch: Option<(u32, Time)>,
}

/// Feedback that is older than what is known, or contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stale;

/// Result of a feedback that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// Run of the server that it tells of.
    pub(super) run: Run,
    /// The server does not know this router's placements.
    pub(super) is_unaware: bool,
}

/// Run of a server, beside the one known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// The first that is heard of.
    First,
    /// Run known before, which has concluded so many requests more.
    Same(u32),
    /// Another: the server has restarted.
    New,
}

impl Counts {
    /// No feedback has come. `placed` is a random word, so that a server that remembers an earlier
    /// incarnation of the router does not seem to know this one.
    pub(super) fn new(placed: u32) -> Self {
        Self { placed, seen: placed, heard: None, retired_epoch: None }
    }

    /// Requests placed and not known to be concluded.
    pub(super) fn outstanding(&self) -> u32 {
        let at_server =
            self.heard.map_or(0, |heard| heard.received.get().wrapping_sub(heard.concluded.get()));
        self.placed.wrapping_sub(self.seen).saturating_add(at_server)
    }

    /// Placement number of the last request placed.
    pub(super) fn placed(&self) -> u32 {
        self.placed
    }

    /// Requests that the server has concluded, as it counts; `None` before the first feedback.
    pub(super) fn concluded(&self) -> Option<u32> {
        self.heard.map(|heard| heard.concluded.get())
    }

    /// Places a request. `taken` is the number of a place which was taken at a data plane. Returns
    /// the placement number and how many were placed there before it.
    pub(super) fn place(&mut self, taken: Option<u32>) -> (u32, u32) {
        let number = self.placed.wrapping_add(1);
        self.placed = taken.unwrap_or(number);
        (self.placed, self.placed.wrapping_sub(number))
    }

    /// Counts requests that a data plane has placed.
    pub(super) fn add_placed(&mut self, count: u32) {
        self.placed = self.placed.wrapping_add(count);
    }

    /// Takes a feedback.
    pub(super) fn take(
        &mut self,
        now: Time,
        body: &FeedbackBody,
        retired_ns: u64,
    ) -> Result<Heard, Stale> {
        self.catch_up(body.placement_seen.get());
        let at_server = body.received.get().wrapping_sub(body.concluded.get());
        let in_flight = self.placed.wrapping_sub(body.placement_seen.get());
        let is_backward = is_before(body.placement_seen.get(), self.seen);
        if at_server > AT_SERVER_MAX {
            return Err(Stale);
        }
        let run = match &self.heard {
            Some(heard) if heard.epoch == body.epoch => {
                let counts_back = is_before(body.received.get(), heard.received.get())
                    || is_before(body.concluded.get(), heard.concluded.get());
                // Back by little it is an old packet; by much the server counts another run of this
                // router, which a probe ends.
                if counts_back || (is_backward && in_flight <= IN_FLIGHT_MAX) {
                    return Err(Stale);
                }
                Run::Same(body.concluded.get().wrapping_sub(heard.concluded.get()))
            }
            Some(heard) => {
                let is_retired = self
                    .retired_epoch
                    .is_some_and(|(epoch, until)| epoch == body.epoch.get() && now < until);
                // A server that begins anew has seen something of this router, and sees the rest by
                // the next probe. What knows less than was known is an old packet, also of an epoch
                // that this router has never heard.
                let is_behind = (in_flight > IN_FLIGHT_MAX || is_backward)
                    && heard.placement_seen.get() == self.seen;
                if is_retired || is_behind {
                    return Err(Stale);
                }
                self.retired_epoch = Some((heard.epoch.get(), now.saturating_add(retired_ns)));
                Run::New
            }
            None => Run::First,
        };
        let is_unaware = in_flight > IN_FLIGHT_MAX || is_backward;
        if !is_unaware {
            self.seen = body.placement_seen.get();
        }
        self.heard = Some(*body);
        Ok(Heard { run, is_unaware })
    }

    /// Numbers placements on from where the server is, if it is ahead. It can only be so because it
    /// remembers an earlier incarnation of this router, and would take all that follows, up to
    /// there, for old and reordered.
    fn catch_up(&mut self, placement_seen: u32) {
        let ahead = placement_seen.wrapping_sub(self.placed);
        if (1..=IN_FLIGHT_MAX).contains(&ahead) {
            // As many are in flight as before.
            self.placed = placement_seen.wrapping_add(self.placed.wrapping_sub(self.seen));
            self.seen = placement_seen;
        }
    }

    /// Takes over a feedback that a data plane has taken; how many requests it has concluded.
    pub(super) fn take_over(&mut self, epoch: u32, counts: &SharedCounts) -> u32 {
        let known = self.heard.filter(|heard| heard.epoch.get() == epoch);
        let newly = known.map_or(0, |heard| counts.concluded.wrapping_sub(heard.concluded.get()));
        self.seen = counts.seen;
        self.heard = Some(FeedbackBody {
            epoch: epoch.into(),
            placement_seen: counts.seen.into(),
            received: counts.received.into(),
            concluded: counts.concluded.into(),
        });
        newly
    }

    /// Goes on from the counts of a data plane.
    pub(super) fn adopt(&mut self, counts: &SharedCounts) {
        (self.placed, self.seen) = (counts.placed, counts.seen);
        if let Some(epoch) = counts.epoch {
            self.take_over(epoch, counts);
        }
    }

    /// The counts for a data plane, whose other fields are those of `others`.
    pub(super) fn share(&self, others: SharedCounts) -> SharedCounts {
        let heard = self.heard.unwrap_or_default();
        SharedCounts {
            placed: self.placed,
            seen: self.seen,
            received: heard.received.get(),
            concluded: heard.concluded.get(),
            epoch: self.heard.map(|heard| heard.epoch.get()),
            ..others
        }
    }
}

/// True if count `a` lies before `b`, wrapping.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Most requests on their way to a server: what lies further back is another incarnation's count.
pub const IN_FLIGHT_MAX: u32 = 1 << 16;

/// Most requests that a server can have: more is a count gone wrong.
pub const AT_SERVER_MAX: u32 = 1 << 24;
