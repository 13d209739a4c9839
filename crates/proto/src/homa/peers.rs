//! State that a Homa endpoint keeps of each peer: its cutoffs, its round trips, the ids of calls to
//! it and the acknowledgements that it is owed.
//!
//! An address is validated when its peer echoes 32 bits of a keyed hash of the address: half of
//! them, the salt, are added to the version of our cutoffs, and the others travel in a field of the
//! common header that the kernel's module leaves at 0. Half alone would be guessed by 65,536
//! packets.

use std::net::SocketAddr;

use tailcut_wire::homa::{DataFlags, DataHeader};

use super::acks::Acks;
use super::config::Config;
use super::cutoffs::Cutoffs;
use super::ids::ClientId;
use super::pace::Pace;
use super::{Endpoint, Origin, Shown};
use crate::call::numbering::Numbering;
use crate::node::Time;
use crate::peer::table::{Peer, PeerId};
use crate::rtt::Rtt;
use tailcut_placement::order::heap::Heap;

/// State of a peer besides that of every protocol.
#[derive(Debug)]
pub(super) struct HomaPeer {
    /// It knows neither grants nor priorities.
    pub(super) is_stripped: bool,
    /// It has said something of an RPC that is, or was, under way.
    pub(super) is_heard: bool,
    /// It knows the flags of DATA, and so ranges of acknowledgements.
    pub(super) knows_flags: bool,
    /// It is on this host, and takes long packets.
    pub(super) takes_long: bool,
    /// Priorities that it has told.
    pub(super) cutoffs: Cutoffs,
    /// State of the validation of both addresses.
    pub(super) shown: Showing,
    /// Its measured times.
    pub(super) times: Times,
    /// Bytes and messages that it owes, and the pace at which they come.
    pub(super) pace: Pace,
    /// Ids of calls to it.
    pub(super) numbering: Numbering,
    /// Calls to it that have ended and that it has not been told of.
    pub(super) acks: Acks,
    /// Addressee, for the seal, of acknowledgements to it, where packets are sealed and it has been
    /// called back.
    pub(super) addressee: u64,
    /// Its messages that want grants, by what the policy ranks them by.
    pub(super) wanting: Heap,
    /// It gets no grant before.
    pub(super) grant_at: Time,
    /// Request of a peer without flags that looks like one that has run, about which the peer was
    /// asked whether it still waits, and when that was.
    pub(super) asked_about: Option<(ClientId, Time)>,
    /// RPCs that carry parts of long replies to it.
    pub(super) fetches: usize,
    /// Time at which a reply to it was last released that it had not acknowledged; it may still
    /// wait for it.
    pub(super) unacknowledged_at: Option<Time>,
}

/// State of address validation: what two ends have told each other to show their addresses by.
#[derive(Debug)]
pub(super) struct Showing {
    /// Time at which the peer was last told of our cutoffs, and what it was to echo.
    pub(super) advised: Option<(Time, Echo)>,
    /// Proof that it must echo; zeros where it need not.
    pub(super) proof: Proof,
    /// [`Proof::tag`] that it has told us, to be echoed in what goes there; 0 before.
    pub(super) tag_told: u16,
    /// The cookie that it has told, by which what goes there is tagged; 0 for none.
    pub(super) cookie: u64,
}

/// Measured times of a peer.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// From a grant or a question to what answers it.
    pub(super) rtt: Rtt,
    /// From a request to its reply, service included.
    pub(super) reply: Rtt,
    /// From the last packet of a reply to its acknowledgement, once that has taken long.
    pub(super) ack_delay: Rtt,
}

/// Values that a peer echoes to show that it receives at its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    /// Added to the version of our cutoffs: the first, and what follows it for a peer that echoes
    /// no tag.
    salts: [u16; 2],
    /// In `window` of CUTOFFS and of DATA.
    tag: u16,
    /// Salts that a peer without tags has echoed, one after the other.
    rounds: u8,
    /// Versions that it was never told and that it echoed all the same.
    wrong: u16,
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
            knows_flags: false,
            takes_long: false,
            cutoffs: self.config.assumed,
            shown: Showing {
                advised: None,
                proof: if is_trusted { Proof::default() } else { self.gate.proof(address) },
                tag_told: 0,
                cookie: 0,
            },
            times: Times::default(),
            pace: Pace::default(),
            numbering: Numbering::default(),
            acks: Acks::default(),
            addressee: 0,
            wanting: Heap::default(),
            grant_at: 0,
            asked_about: None,
            fetches: 0,
            unacknowledged_at: None,
        };
        self.peers.add(now, (address, is_trusted), state, &self.config.serving)
    }

    /// True if a stranger who shows its address, or echoes in `header` what it was told, may be
    /// added. May evict an idle peer to make room.
    pub(super) fn takes_stranger(
        &mut self,
        now: Time,
        origin: &Origin,
        header: &DataHeader,
    ) -> bool {
        let address = origin.path.peer;
        self.peers.has_room_for_unvalidated(now, &self.config.serving)
            || self.config.serving.is_trusted(address.ip())
            || origin.shown == Shown::Tag
            || Echo::of(header) == self.echo_for(address)
    }

    /// Echo expected of a stranger at `address`.
    pub(super) fn echo_for(&self, address: SocketAddr) -> Echo {
        self.gate.proof(address).echo(self.advice.cutoffs.version)
    }
}

impl Peer<HomaPeer> {
    /// Learns from a DATA packet whether packets to this peer may be long.
    #[inline]
    pub(super) fn note_long(&mut self, flags: DataFlags, config: &Config) {
        self.state.takes_long = flags.has(DataFlags::LONG) && config.is_local(self.address);
    }

    /// Echo that this peer is told for our cutoffs of a `version`.
    pub(super) fn echo(&self, version: u16) -> Echo {
        self.state.shown.proof.echo(version)
    }

    /// True if an echo shows that the peer receives at its address: of our cutoffs' `version`, or
    /// of the one before.
    pub(super) fn is_validated_by(&self, echo: Echo, version: u16) -> bool {
        // What was under way when the cutoffs changed echoes the version before.
        self.is_validated
            || echo == self.echo(version)
            || echo == self.echo(version.wrapping_sub(1))
            || self.state.shown.proof.is_complete(echo, version)
    }
}

/// Values that a peer is told with our cutoffs, and echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Echo {
    /// Version of the cutoffs, salted.
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
    /// That of an address, of whose keyed hash it is half.
    pub(super) fn of(token: u64) -> Self {
        // The lowest bit of a token is always 1, and has no part in this.
        let salts = [(token >> 16) as u16, (token >> 48) as u16];
        Self { salts, tag: (token >> 32) as u16, ..Self::default() }
    }

    fn echo(self, version: u16) -> Echo {
        let salt = self.salts[usize::from(self.rounds.min(1))];
        Echo { version: salted(version, salt), tag: self.tag }
    }

    /// Takes note of what a peer without tags, the kernel's module, echoes. It has 16 bits for an
    /// echo, so that it is asked for two, the second one after the first.
    pub(super) fn advance(&mut self, echo: Echo, version: u16) {
        // 0 says that no cutoffs have come yet, and a tag that it is not the module.
        if echo.version == 0 || echo.tag != 0 || self.wrong >= WRONG_MAX {
            return;
        }
        let [first, second] = self.salts.map(|salt| salted(version, salt));
        match self.rounds {
            0 if echo.version == first => self.rounds = 1,
            1 if echo.version == second => self.rounds = 2,
            // Under way when it was told the other one, and no guess.
            _ if echo.version == first || echo.version == second => {}
            rounds => {
                self.wrong += 1;
                self.rounds = if rounds < 2 { 0 } else { rounds };
            }
        }
    }

    /// True if a peer without tags has echoed both salts, the last of them with this packet.
    fn is_complete(self, echo: Echo, version: u16) -> bool {
        self.rounds == 2 && echo.tag == 0 && echo.version == salted(version, self.salts[1])
    }
}

/// The version that a peer with `salt` is told for `version`; never 0, which stands for none.
fn salted(version: u16, salt: u16) -> u16 {
    version.wrapping_add(salt).max(1)
}

/// Wrong echoes after which a peer without tags is validated no more: who guesses has found both of
/// two in so many with a chance of 1 in 8,000.
const WRONG_MAX: u16 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const PROOF: Proof = Proof { salts: [0x1111, 0x2222], tag: 0x3333, rounds: 0, wrong: 0 };

    fn echo(version: u16) -> Echo {
        Echo { version, tag: 0 }
    }

    /// Checks how many rounds echoes without a tag make, where the version is 1.
    fn check(echoed: &[u16], rounds: u8) {
        let mut proof = PROOF;
        echoed.iter().for_each(|&version| proof.advance(echo(version), 1));
        assert_eq!(proof.rounds, rounds, "{echoed:x?}");
        let is_complete = rounds == 2 && echoed.last() == Some(&0x2223);
        assert_eq!(proof.is_complete(echo(*echoed.last().unwrap()), 1), is_complete);
    }

    #[test]
    fn who_echoes_no_tag_echoes_two_salts_one_after_the_other() {
        check(&[0], 0);
        check(&[0x1112], 1);
        check(&[0x2223], 0);
        check(&[0x1112, 0x2223], 2);
        check(&[0x1112, 0x1112, 0, 0x2223, 0x2223], 2);
        check(&[0x1112, 5, 0x2223], 0);
        check(&[0x1112, 0x2223, 5], 2);
    }

    #[test]
    fn who_guesses_too_often_is_not_validated_any_more() {
        let mut proof = PROOF;
        (10..10 + WRONG_MAX).for_each(|guess| proof.advance(echo(guess), 1));
        [0x1112, 0x2223].into_iter().for_each(|version| proof.advance(echo(version), 1));
        assert_eq!(proof.rounds, 0);
    }

    /// One that was the same for all, or known, would be guessed.
    #[test]
    fn each_stranger_has_two_salts_and_a_tag_of_its_own() {
        let endpoint = Endpoint::new(0, Config::default());
        let proofs: Vec<Proof> = (1..=8)
            .map(|port| endpoint.gate.proof(SocketAddr::from(([192, 0, 2, 1], port))))
            .collect();
        let of_all: [fn(&Proof) -> u16; 3] =
            [|proof| proof.salts[0], |proof| proof.salts[1], |proof| proof.tag];
        for of in of_all {
            let mut found: Vec<u16> = proofs.iter().map(of).collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), proofs.len(), "{found:x?}");
        }
    }
}
