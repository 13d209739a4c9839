//! The client's side of call ids: a random session, a sequence in it, and the floor below which
//! every call has ended.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use tailcut_wire::r2p2::{RpcId, SessionId};

use crate::peer::once::WINDOW;

/// Draws ids for calls.
#[derive(Debug)]
pub(super) struct Sessions {
    secret: [u8; 16],
    drawn: u64,
    session: SessionId,
    next: u32,
    /// Every sequence below this has ended.
    floor: u32,
    /// Ring of bits: ended, at or above `floor`.
    ended: Box<[u64]>,
}

impl Sessions {
    pub(super) fn new(secret: [u8; 16]) -> Self {
        let ended = vec![0; WINDOW as usize / 64].into_boxed_slice();
        let mut sessions =
            Self { secret, drawn: 0, session: SessionId(0), next: 0, floor: 0, ended };
        sessions.renew();
        sessions
    }

    /// An id for a new call. A new session begins when the oldest call that has not ended would
    /// leave the server's window.
    pub(super) fn draw(&mut self) -> RpcId {
        if self.next - self.floor >= WINDOW - 1 || self.next >= RpcId::SEQUENCE_MAX {
            self.renew();
        }
        let id = RpcId::new(self.session, self.next);
        self.next += 1;
        id
    }

    /// The call has ended.
    pub(super) fn end(&mut self, id: RpcId) {
        if id.session() != self.session {
            return;
        }
        self.set(id.sequence(), 1);
        while self.floor < self.next && self.bit(self.floor) {
            self.set(self.floor, 0);
            self.floor += 1;
        }
    }

    /// The floor to tell with a packet of call `id`; 0 for a session of the past.
    pub(super) fn floor_for(&self, id: RpcId) -> u32 {
        if id.session() == self.session { self.floor } else { 0 }
    }

    /// Whether the floor lags so far behind the call that the server must be told of its reply.
    pub(super) fn is_far_from_floor(&self, id: RpcId) -> bool {
        id.session() == self.session
            && id.sequence() - self.floor.min(id.sequence()) > FLOOR_LAG_MAX
    }

    fn renew(&mut self) {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write_u64(self.drawn);
        self.drawn += 1;
        self.session = SessionId(hasher.finish() >> RpcId::SEQUENCE_BITS);
        self.next = 0;
        self.floor = 0;
        self.ended.fill(0);
    }

    fn bit(&self, sequence: u32) -> bool {
        let position = (sequence % WINDOW) as usize;
        self.ended[position / 64] >> (position % 64) & 1 == 1
    }

    fn set(&mut self, sequence: u32, value: u64) {
        let position = (sequence % WINDOW) as usize;
        let word = &mut self.ended[position / 64];
        *word = *word & !(1 << (position % 64)) | value << (position % 64);
    }
}

/// Replies that a server keeps for a session because an older call has not ended.
const FLOOR_LAG_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_follows_the_oldest_unfinished_call() {
        let mut sessions = Sessions::new([1; 16]);
        let ids: Vec<RpcId> = (0..4).map(|_| sessions.draw()).collect();
        sessions.end(ids[1]);
        sessions.end(ids[2]);
        assert_eq!(sessions.floor_for(ids[3]), 0);
        sessions.end(ids[0]);
        assert_eq!(sessions.floor_for(ids[3]), 3);
    }

    #[test]
    fn a_straggler_never_leaves_the_window_of_its_session() {
        let mut sessions = Sessions::new([1; 16]);
        let straggler = sessions.draw();
        for _ in 0..3 * WINDOW {
            let id = sessions.draw();
            if id.session() == straggler.session() {
                assert!(id.sequence() < WINDOW);
            }
            sessions.end(id);
        }
    }

    #[test]
    fn sequences_run_through_the_ring_and_no_id_repeats() {
        let mut sessions = Sessions::new([2; 16]);
        let mut last = RpcId(0);
        for _ in 0..5 * WINDOW {
            let id = sessions.draw();
            assert_ne!(id, last);
            sessions.end(id);
            assert_eq!(sessions.floor_for(id), id.sequence() + 1);
            last = id;
        }
    }
}
