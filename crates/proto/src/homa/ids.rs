//! Ids of RPCs: sessions of random bits, and sequences in them.
//!
//! An id is 40 bits of session, 23 of sequence and the bit that is 0 at the client. The session is
//! a keyed hash, new for each peer, so that nobody who has not seen a packet to that peer can name
//! an RPC. To the ids of the kernel's module, which count from 2 in steps of 2, the same view
//! applies: sessions that count up.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::peer::once::{Once, WINDOW};

/// An id as the client numbers it: even.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientId(pub(super) u64);

impl ClientId {
    pub(super) fn new(session: u64, sequence: u32) -> Self {
        Self(session << SESSION_SHIFT | u64::from(sequence) << 1)
    }

    pub(super) fn session(self) -> u64 {
        self.0 >> SESSION_SHIFT
    }

    pub(super) fn sequence(self) -> u32 {
        (self.0 >> 1) as u32 & SEQUENCE_MAX
    }
}

/// Draws sessions that nobody can guess.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    hasher: SipHasher24,
    drawn: u64,
}

impl Sessions {
    pub(super) fn new(secret: &[u8; 16]) -> Self {
        Self { hasher: SipHasher24::new_with_key(secret), drawn: 0 }
    }

    fn draw(&mut self) -> u64 {
        loop {
            let mut hasher = self.hasher;
            hasher.write(b"session");
            hasher.write_u64(self.drawn);
            self.drawn += 1;
            let session = hasher.finish() >> SESSION_SHIFT;
            // Session 0 holds the ids that are nobody's.
            if session != 0 {
                return session;
            }
        }
    }
}

/// The ids that a client gives to its calls to one peer.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    /// 0 before the first call.
    session: u64,
    next: u32,
    ended: Once,
}

impl Numbering {
    /// An id for a new call. A new session begins before the oldest call that has not ended leaves
    /// the server's window.
    pub(super) fn draw(&mut self, sessions: &mut Sessions) -> ClientId {
        if self.session == 0
            || self.next - self.ended.floor() >= WINDOW - 1
            || self.next >= SEQUENCE_MAX
        {
            self.session = sessions.draw();
            self.next = 0;
            self.ended.clear();
        }
        self.next += 1;
        ClientId::new(self.session, self.next - 1)
    }

    /// The call has ended.
    pub(super) fn end(&mut self, id: ClientId) {
        if id.session() == self.session {
            self.ended.take(id.sequence(), |_| true);
        }
    }
}

const SESSION_SHIFT: u32 = 24;
const SEQUENCE_MAX: u32 = (1 << 23) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_its_parts_and_is_even() {
        let id = ClientId::new(0xff_1234_5678, SEQUENCE_MAX);
        assert_eq!((id.session(), id.sequence(), id.0 & 1), (0xff_1234_5678, SEQUENCE_MAX, 0));
    }

    #[test]
    fn the_modules_ids_are_sequences_of_sessions_that_count_up() {
        let ids: Vec<(u64, u32)> =
            [2, 4, 1 << 24].map(ClientId).iter().map(|id| (id.session(), id.sequence())).collect();
        assert_eq!(ids, [(0, 1), (0, 2), (1, 0)]);
    }

    #[test]
    fn a_straggler_never_leaves_the_window_of_its_session() {
        let (mut sessions, mut numbering) = (Sessions::new(&[1; 16]), Numbering::default());
        let straggler = numbering.draw(&mut sessions);
        let mut last = straggler;
        for _ in 0..2 * WINDOW {
            let id = numbering.draw(&mut sessions);
            assert_ne!(id, last);
            assert!(id.session() != straggler.session() || id.sequence() < WINDOW);
            numbering.end(id);
            last = id;
        }
        assert_ne!(last.session(), straggler.session());
    }

    #[test]
    fn sessions_depend_on_the_secret() {
        assert_ne!(Sessions::new(&[1; 16]).draw(), Sessions::new(&[2; 16]).draw());
    }
}
