//! Ids of RPCs: sessions of random bits, and sequences in them.
//!
//! An id is 40 bits of session, 23 of sequence and the bit that is 0 at the client. The session is
//! a keyed hash, new for each peer, so that nobody who has not seen a packet to that peer can name
//! an RPC. To the ids of the kernel's module, which count from 2 in steps of 2, the same view
//! applies: sessions that count up.

/// An id as the client numbers it: even.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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

/// Bits below those of the session.
const SESSION_SHIFT: u32 = 24;

/// Sequences of a session.
pub(super) const SEQUENCE_MAX: u32 = (1 << 23) - 1;

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
}
