//! Pace at which what a peer owes comes, and so the time that something of it may wait behind the
//! rest: in the peer, which sends what is shortest first, in its device, in the network and in this
//! host.
//!
//! | event | then |
//! |---|---|
//! | bytes of a message, or the first packet of a reply, have come | the peer goes on; the time since the last measure divided by what has come is its pace |
//! | nothing more is awaited | the measure ends: what follows is not slow, it was not asked for |

use crate::node::Time;

/// Bytes and messages that a peer owes, and the pace at which they come.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes that it may send and that have not arrived.
    pub(super) expected: u64,
    /// Bytes of its messages that have not arrived, granted or not.
    pub(super) owed: u64,
    /// Messages that they are of.
    pub(super) messages: u64,
    /// Time at which something new last came.
    pub(super) progress_at: Time,
    /// Pace of bytes of messages.
    bytes: Meter,
    /// Pace of first packets of replies.
    replies: Meter,
    /// Questions since it was last heard of, and when the first of them was put.
    questions: (u32, Time),
}

/// Mean time between units.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Units since the measure began.
    count: u64,
    /// Time at which it began; `None` while nothing is awaited.
    since: Option<Time>,
    /// Nanoseconds for 1024 units, smoothed; 0 before the first measure.
    kilo_ns: u64,
}

impl Pace {
    /// Takes note of new bytes, after which `expected` is up to date.
    #[inline]
    pub(super) fn note_bytes(&mut self, now: Time, bytes: u32) {
        self.progress_at = now;
        self.bytes.note_bytes(now, bytes, self.expected > 0);
    }

    /// Takes note of the first packet of a reply, after which `calls` more are awaited.
    #[inline]
    pub(super) fn note_reply(&mut self, now: Time, calls: usize) {
        self.progress_at = now;
        self.replies.note(now, (1, REPLIES_MEASURED), calls > 0);
    }

    /// Time that takes what may come before a message of `len` bytes, with a margin; 0 where
    /// nothing is known. That is what may be under way, and of each other message as much as this
    /// one has: the peer sends what is shortest first.
    pub(super) fn bytes_ns(&self, len: u32) -> u64 {
        let shorter = self.messages.saturating_mul(u64::from(len));
        MARGIN * self.bytes.span_ns(self.owed.min(self.expected.max(shorter)))
    }

    /// Time that the replies to `calls` take, with a margin; `None` where nothing is known.
    pub(super) fn replies_ns(&self, calls: usize) -> Option<u64> {
        (self.replies.kilo_ns > 0).then(|| MARGIN * self.replies.span_ns(calls as u64))
    }

    /// True if one more question may be put to a peer that was last heard of at `heard_at`: of all
    /// that it does not answer, a few tell whether it lives.
    pub(super) fn may_ask(&mut self, now: Time, heard_at: Time, interval_ns: u64) -> bool {
        let (count, since) = self.questions;
        // What was heard at the very time of a question does not answer it.
        if heard_at > since || now.saturating_sub(since) >= interval_ns {
            self.questions = (1, now);
            return true;
        }
        self.questions.0 = count.saturating_add(1);
        count < QUESTIONS_MAX
    }
}

impl Meter {
    /// Takes note of bytes that have come.
    #[inline]
    pub(super) fn note_bytes(&mut self, now: Time, bytes: u32, is_more_awaited: bool) {
        self.note(now, (u64::from(bytes), BYTES_MEASURED), is_more_awaited);
    }

    #[inline]
    fn note(&mut self, now: Time, (units, measured): (u64, u64), is_more_awaited: bool) {
        match self.since {
            // How long these took is not known: the measure begins when they come, and does not
            // count them.
            None => (self.since, self.count) = (Some(now), 0),
            Some(since) => {
                self.count += units;
                // Many that come at one time say nothing of a pace.
                if self.count >= measured && now > since {
                    let kilo_ns = ((now - since) * 1024 / self.count).max(1);
                    self.kilo_ns = match self.kilo_ns {
                        0 => kilo_ns,
                        smoothed => (3 * smoothed + kilo_ns) / 4,
                    };
                    (self.since, self.count) = (Some(now), 0);
                }
            }
        }
        if !is_more_awaited {
            self.since = None;
        }
    }

    /// Time that so many take; 0 where nothing is known.
    pub(super) fn span_ns(&self, units: u64) -> u64 {
        self.kilo_ns.saturating_mul(units) / 1024
    }
}

/// Bytes of a measure: more than a GSO batch, which comes at once.
const BYTES_MEASURED: u64 = 96 << 10;

/// Replies of a measure: more than a GSO batch.
const REPLIES_MEASURED: u64 = 48;

/// A pace is a mean, and what is waited for may be the last of it.
const MARGIN: u64 = 2;

/// Questions in a row to a peer that says nothing at all.
const QUESTIONS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_the_time_of_what_came_while_more_was_awaited() {
        let mut pace = Pace { expected: 1 << 30, ..Pace::default() };
        assert_eq!((pace.bytes_ns(u32::MAX), pace.replies_ns(10)), (0, None));
        (0..100).for_each(|step| pace.note_bytes(step * 10_000, 10_000));
        (pace.owed, pace.messages) = (100_000, 1);
        assert_eq!(pace.bytes_ns(u32::MAX), 2 * 100_000);
        // What follows a pause in which nothing was awaited is no slower.
        pace.expected = 0;
        pace.note_bytes(1_010_000, 10_000);
        pace.expected = 1 << 30;
        (0..100).for_each(|step| pace.note_bytes(900_000_000 + step * 10_000, 10_000));
        assert_eq!(pace.bytes_ns(u32::MAX), 2 * 100_000);
        // Eleven messages, none of which goes before it with more than it has; and what may be
        // under way.
        (pace.expected, pace.messages) = (5_000, 11);
        assert_eq!((pace.bytes_ns(1_000), pace.bytes_ns(100)), (2 * 11_000, 2 * 5_000));
    }

    #[test]
    fn replies_that_come_in_batches_have_the_pace_of_the_batches() {
        let mut pace = Pace::default();
        for batch in 0..20 {
            (0..32).for_each(|_| pace.note_reply(batch * 16_000, 1000));
        }
        let per_thousand = pace.replies_ns(1000).unwrap() / 2;
        assert!((350_000..650_000).contains(&per_thousand), "{per_thousand}");
    }

    #[test]
    fn a_silent_peer_is_asked_a_few_times_in_an_interval() {
        let mut pace = Pace::default();
        let asked = |pace: &mut Pace, now, heard_at| {
            (0..100).filter(|_| pace.may_ask(now, heard_at, 300_000)).count()
        };
        assert_eq!(asked(&mut pace, 1_000_000, 0), 16);
        assert_eq!(asked(&mut pace, 1_200_000, 0), 0);
        assert_eq!(asked(&mut pace, 1_300_000, 0), 16);
        assert!(pace.may_ask(1_300_001, 1_300_001, 300_000), "it lives");
    }

    #[test]
    fn a_pace_is_of_enough_units_in_some_time() {
        let mut pace = Pace { expected: 1 << 30, owed: 1_000_000, ..Pace::default() };
        pace.note_bytes(0, 1_000);
        pace.note_bytes(1_000_000, 1_000);
        assert_eq!(pace.bytes_ns(u32::MAX), 0, "few say nothing");
        let mut pace = Pace { expected: 1 << 30, owed: 1_000_000, ..Pace::default() };
        (0..3).for_each(|_| pace.note_bytes(5, 100_000));
        assert_eq!(pace.bytes_ns(u32::MAX), 0, "nor do many at one time");
    }

    #[test]
    fn a_pause_without_calls_is_not_slow() {
        let mut pace = Pace::default();
        (0..100).for_each(|step| pace.note_reply(step * 1_000, 10));
        let before = pace.replies_ns(1000);
        assert!(before.is_some());
        pace.note_reply(100_000, 0);
        (0..60).for_each(|step| pace.note_reply(900_000_000 + step * 1_000, 10));
        assert_eq!(pace.replies_ns(1000), before);
    }

    /// Something heard before the question is no answer.
    #[test]
    fn a_question_at_the_time_of_the_last_word_counts() {
        let mut pace = Pace::default();
        let asked = (0..100).filter(|_| pace.may_ask(1_000_000, 1_000_000, 300_000)).count();
        assert_eq!(asked, QUESTIONS_MAX as usize);
    }
}
