//! What a Homa endpoint remembers of each peer: its cutoffs, its round trips, the ids of calls to
//! it and the acknowledgements that it is owed.
//!
//! An address is validated when its peer echoes 32 bits of a keyed hash of the address: half of
//! them, the salt, are added to the version of our cutoffs, and the others travel in a field of the
//! common header that the kernel's module leaves at 0. Half alone would be guessed by 65,536
//! packets.

use std::net::SocketAddr;

use tailcut_wire::homa::{ACKS_MAX, Ack, DataHeader};

use super::Endpoint;
use super::cutoffs::Cutoffs;
use super::ids::ClientId;
use crate::call::numbering::Numbering;
use crate::node::Time;
use crate::order::heap::Heap;
use crate::peer::table::{Peer, PeerId};
use crate::rtt::Rtt;

/// State of a peer besides that of every protocol.
#[derive(Debug)]
pub(super) struct HomaPeer {
    /// It knows neither grants nor priorities.
    pub(super) is_stripped: bool,
    /// It has said something of an RPC that is, or was, under way.
    pub(super) is_heard: bool,
    /// Priorities that it has told.
    pub(super) cutoffs: Cutoffs,
    /// When it was last told of ours.
    pub(super) advised_at: Option<Time>,
    /// What it must echo; zeros where it need not.
    proof: Proof,
    /// [`Proof::tag`] that it has told us, to be echoed in what goes there; 0 before.
    pub(super) tag_told: u16,
    /// From a grant or a question to what answers it.
    pub(super) rtt: Rtt,
    /// From a request to its reply, service included.
    pub(super) reply_rtt: Rtt,
    /// Ids of calls to it.
    pub(super) numbering: Numbering,
    /// Calls to it that have ended and that it has not been told of.
    pub(super) acks: Acks,
    /// Its messages that want grants, by what the policy ranks them by.
    pub(super) wanting: Heap,
    /// It gets no grant before.
    pub(super) grant_at: Time,
}

/// What a peer echoes to show that it receives at its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    /// Added to the version of our cutoffs.
    salt: u16,
    /// In `window` of CUTOFFS and of DATA.
    tag: u16,
}

/// Calls that have ended and whose server has not been told.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// At most [`ACKS_HELD_MAX`].
    waiting: Vec<Ack>,
    /// Bytes of their replies, which the server keeps.
    reply_bytes: usize,
    /// They are about to be said in packets of their own.
    is_called: bool,
    /// A timer will look whether they still wait.
    is_timed: bool,
}

/// Next step for a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckAction {
    /// Nothing: a packet to the server or a timer will see to it.
    Waits,
    /// Set the timer.
    Later,
    /// Say all that wait.
    Now,
}

impl Endpoint {
    /// The peer at `address`, added if need be; `None` when the table is full of peers that are not
    /// idle.
    pub(super) fn peer_of(&mut self, now: Time, address: SocketAddr) -> Option<PeerId> {
        if let Some(found) = self.peers.find(address) {
            return Some(found);
        }
        let is_trusted = self.config.serving.is_trusted(address.ip());
        let state = HomaPeer {
            is_stripped: false,
            is_heard: false,
            cutoffs: self.config.assumed,
            advised_at: None,
            proof: if is_trusted { Proof::default() } else { self.proof(address) },
            tag_told: 0,
            rtt: Rtt::default(),
            reply_rtt: Rtt::default(),
            numbering: Numbering::default(),
            acks: Acks::default(),
            wanting: Heap::default(),
            grant_at: 0,
        };
        self.peers.add(now, (address, is_trusted), state, &self.config.serving)
    }

    /// True if a stranger at `address`, who echoes in `header` what it was told, may be added. May
    /// evict an idle peer to make room.
    pub(super) fn takes_stranger(
        &mut self,
        now: Time,
        address: SocketAddr,
        header: &DataHeader,
    ) -> bool {
        self.peers.has_room_for_unvalidated(now, &self.config.serving)
            || self.config.serving.is_trusted(address.ip())
            || Echo::of(header) == self.echo_for(address)
    }

    /// What a stranger at `address` is to echo.
    pub(super) fn echo_for(&self, address: SocketAddr) -> Echo {
        self.proof(address).echo(self.advice.cutoffs.version)
    }

    fn proof(&self, address: SocketAddr) -> Proof {
        let token = self.tokens.token(address);
        Proof { salt: (token >> 16) as u16, tag: (token >> 32) as u16 }
    }
}

impl Peer<HomaPeer> {
    /// What this peer is told for our cutoffs of a `version`.
    pub(super) fn echo(&self, version: u16) -> Echo {
        self.state.proof.echo(version)
    }

    /// True if an echo shows that the peer receives at its address: of our cutoffs' `version`, or of
    /// the one before.
    pub(super) fn is_validated_by(&self, echo: Echo, version: u16) -> bool {
        self.is_validated
            || echo == self.echo(version)
            || echo == self.echo(version.wrapping_sub(1))
    }
}

/// What a peer is told with our cutoffs, and echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Echo {
    /// Of the cutoffs, salted.
    pub(super) version: u16,
    /// [`Proof::tag`].
    pub(super) tag: u16,
}

impl Echo {
    /// The echo in DATA.
    pub(super) fn of(header: &DataHeader) -> Self {
        Self { version: header.cutoff_version.get(), tag: header.common.window.get() }
    }
}

impl Proof {
    fn echo(self, version: u16) -> Echo {
        Echo { version: salted(version, self.salt), tag: self.tag }
    }
}

impl Acks {
    /// Adds a call that has ended with a reply of so many bytes; tells what is to be done. One that
    /// is too many is left for the server to ask about.
    pub(super) fn push(&mut self, id: ClientId, server_port: u16, reply_len: usize) -> AckAction {
        if self.waiting.len() < ACKS_HELD_MAX {
            self.waiting.push(Ack::new(id.0, server_port));
            self.reply_bytes += reply_len;
        }
        let is_much =
            self.waiting.len() == ACKS_HELD_MAX || self.reply_bytes > REPLY_BYTES_HELD_MAX;
        if is_much && !self.is_called {
            self.is_called = true;
            AckAction::Now
        } else if !self.is_timed {
            self.is_timed = true;
            AckAction::Later
        } else {
            AckAction::Waits
        }
    }

    /// The timer has come; tells whether any are to be said.
    pub(super) fn expire(&mut self) -> bool {
        self.is_timed = false;
        let is_due = !self.waiting.is_empty() && !self.is_called;
        self.is_called |= is_due;
        is_due
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes one, to go with a DATA packet or to head an ACK packet.
    pub(super) fn pop(&mut self) -> Option<Ack> {
        let ack = self.waiting.pop();
        if self.waiting.is_empty() {
            self.reply_bytes = 0;
            self.is_called = false;
        }
        ack
    }

    /// Takes as many as go with `named`, which an ACK packet has in its header.
    pub(super) fn take(&mut self, named: ClientId) -> ([Ack; ACKS_MAX], usize) {
        self.waiting.retain(|ack| ack.client_id.get() != named.0);
        let mut acks = [Ack::default(); ACKS_MAX];
        let count = self.waiting.len().min(ACKS_MAX);
        acks[..count].fill_with(|| self.pop().unwrap_or_default());
        (acks, count)
    }
}

/// The version that a peer with `salt` is told for `version`; never 0, which stands for none.
fn salted(version: u16, salt: u16) -> u16 {
    version.wrapping_add(salt).max(1)
}

/// Calls that have ended and that a client keeps to itself at most: those of several GSO batches of
/// replies, so that under load each goes with a request and none needs a packet of its own.
const ACKS_HELD_MAX: usize = 4 * crate::node::GSO_DATAGRAMS_MAX;

/// Bytes of replies that a server keeps for them at most.
const REPLY_BYTES_HELD_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_wait_for_a_packet_until_they_are_many_or_late() {
        let mut acks = Acks::default();
        let told: Vec<AckAction> = (1..=129).map(|id| acks.push(ClientId(2 * id), 9, 10)).collect();
        assert_eq!((told[0], told[127]), (AckAction::Later, AckAction::Now));
        assert!(
            told[1..127].iter().chain(&told[128..]).all(|&telling| telling == AckAction::Waits)
        );
        assert!(!acks.expire(), "they are about to be said");
        assert_eq!(acks.pop().unwrap(), Ack::new(256, 9));
        let (taken, count) = acks.take(ClientId(252));
        assert_eq!(
            (taken[..count].iter().map(|ack| ack.client_id.get()).collect::<Vec<_>>()),
            [254, 250, 248, 246, 244]
        );
        assert_eq!(std::iter::from_fn(|| acks.pop()).count(), 121);
        assert_eq!(acks.push(ClientId(2), 9, 10), AckAction::Later);
        assert!(acks.expire() && !acks.expire());
    }

    #[test]
    fn acks_of_long_replies_do_not_wait() {
        let mut acks = Acks::default();
        let told: Vec<AckAction> =
            (1..=3).map(|id| acks.push(ClientId(2 * id), 9, 60_000)).collect();
        assert_eq!(told, [AckAction::Later, AckAction::Now, AckAction::Waits]);
    }
}
