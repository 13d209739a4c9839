//! The client's side of call ids: numbers that nobody can guess, a session of them to each server
//! or to all, and sequences in it.
//!
//! | event | then |
//! |---|---|
//! | a call is made | it gets the next sequence |
//! | the oldest call that has not ended would leave the server's window, or sequences run out | a new session |
//! | a call of the session ends | the floor rises past all that have ended without a gap |
//!
//! Invariant: no id is drawn twice, and every call under way is in the window that a server
//! remembers of its session.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::peer::once::{Once, WINDOW};

/// Numbers that nobody can guess: a keyed hash of a count.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    /// Has taken the key and what the numbers are for.
    hasher: SipHasher24,
    /// Numbers drawn so far.
    drawn: u64,
}

/// The ids that a client gives to its calls.
#[derive(Debug, Default)]
pub(crate) struct Numbering {
    /// 0 before the first call.
    session: u64,
    /// Sequence of the next call.
    next: u32,
    /// Sequences of calls that have ended.
    ended: Once,
}

impl Numbers {
    /// Numbers from a secret, others for each `purpose`.
    pub(crate) fn new(secret: &[u8; 16], purpose: &[u8]) -> Self {
        let mut hasher = SipHasher24::new_with_key(secret);
        hasher.write(purpose);
        Self { hasher, drawn: 0 }
    }

    /// A seed for the hashes of tables, apart from all numbers drawn.
    pub(crate) fn seed(&self) -> u64 {
        self.hasher.finish()
    }

    /// A number of `bits` bits; never 0, which stands for none.
    pub(crate) fn draw(&mut self, bits: u32) -> u64 {
        loop {
            let mut hasher = self.hasher;
            hasher.write_u64(self.drawn);
            self.drawn += 1;
            let number = hasher.finish() >> (u64::BITS - bits);
            if number != 0 {
                return number;
            }
        }
    }
}

impl Numbering {
    /// Session and sequence of a new call, the sequence below `sequence_max`.
    #[inline]
    pub(crate) fn draw(&mut self, sessions: &mut Numbers, sequence_max: u32) -> (u64, u32) {
        if self.session == 0
            || self.next >= sequence_max
            || self.next - self.ended.floor() >= WINDOW - 1
        {
            self.session = sessions.draw(SESSION_BITS);
            self.next = 0;
            self.ended.clear();
        }
        self.next += 1;
        (self.session, self.next - 1)
    }

    /// The session of the last call; 0 before the first.
    #[inline]
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// The next call begins a session.
    pub(crate) fn renew(&mut self) {
        self.next = u32::MAX;
    }

    /// The call of these has ended.
    #[inline]
    pub(crate) fn end(&mut self, session: u64, sequence: u32) {
        if session == self.session {
            self.ended.take(sequence, |_| true);
        }
    }

    /// The sequence below which every call of `session` has ended; 0 for a session of the past.
    #[inline]
    pub(crate) fn floor_of(&self, session: u64) -> u32 {
        if session == self.session { self.ended.floor() } else { 0 }
    }

    /// Sequences from the floor to that of a call; 0 for a session of the past.
    pub(crate) fn floor_lag(&self, session: u64, sequence: u32) -> u32 {
        if session == self.session { sequence.saturating_sub(self.ended.floor()) } else { 0 }
    }
}

/// Bits of a session in the ids of both protocols.
const SESSION_BITS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE_MAX: u32 = (1 << 23) - 1;

    fn start() -> (Numbers, Numbering) {
        (Numbers::new(&[1; 16], b"session"), Numbering::default())
    }

    #[test]
    fn the_floor_follows_the_oldest_unfinished_call() {
        let (mut numbers, mut numbering) = start();
        let [first, .., last] = [0; 4].map(|_| numbering.draw(&mut numbers, SEQUENCE_MAX));
        numbering.end(first.0, 1);
        numbering.end(first.0, 2);
        assert_eq!(numbering.floor_of(last.0), 0);
        numbering.end(first.0, 0);
        assert_eq!((numbering.floor_of(last.0), numbering.floor_of(last.0 + 1)), (3, 0));
    }

    #[test]
    fn a_straggler_never_leaves_the_window_of_its_session() {
        let (mut numbers, mut numbering) = start();
        let straggler = numbering.draw(&mut numbers, SEQUENCE_MAX);
        let mut last = straggler;
        for _ in 0..3 * WINDOW {
            let id = numbering.draw(&mut numbers, SEQUENCE_MAX);
            assert_ne!(id, last);
            assert!(id.0 != straggler.0 || id.1 < WINDOW);
            numbering.end(id.0, id.1);
            last = id;
        }
        assert_ne!(last.0, straggler.0);
    }

    #[test]
    fn sequences_go_on_where_calls_end_and_start_anew_where_they_run_out() {
        let (mut numbers, mut numbering) = start();
        let mut last = (0, 0);
        for _ in 0..5 * WINDOW {
            let id = numbering.draw(&mut numbers, 2 * WINDOW);
            if last.1 + 1 == 2 * WINDOW || last.0 == 0 {
                assert!(id.0 != last.0 && id.1 == 0);
            } else {
                assert_eq!(id, (last.0, last.1 + 1));
            }
            numbering.end(id.0, id.1);
            assert_eq!(numbering.floor_of(id.0), id.1 + 1);
            last = id;
        }
    }

    #[test]
    fn numbers_depend_on_the_secret_and_the_purpose() {
        let draw = |secret, purpose: &[u8]| Numbers::new(&[secret; 16], purpose).draw(64);
        assert_ne!(draw(1, b"session"), draw(2, b"session"));
        assert_ne!(draw(1, b"session"), draw(1, b""));
    }

    #[test]
    fn a_call_lags_behind_the_floor_by_those_that_have_not_ended() {
        let (mut numbers, mut numbering) = start();
        let [first, .., last] = [0; 5].map(|_| numbering.draw(&mut numbers, SEQUENCE_MAX));
        assert_eq!(numbering.floor_lag(last.0, last.1), 4);
        numbering.end(first.0, 0);
        numbering.end(first.0, 1);
        assert_eq!(numbering.floor_lag(last.0, last.1), 2);
        assert_eq!(numbering.floor_lag(last.0, first.1), 0, "it has ended");
        assert_eq!(numbering.floor_lag(last.0 + 1, last.1), 0, "a session of the past");
    }
}
