//! A client's half of a seal.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use tailcut_wire::r2p2::sealed::VERSION_AT;
use tailcut_wire::r2p2::{DropReason, EXTENSION_VERSION, Flags, MessageType, RpcId, position};

use super::beginning::{Beginning, renewed_secrets, secrets_of};
use super::clients::COUNT_BITS;
use super::coalesced;
use super::keys::{ClientSecret, EpochKey, HopKey, Keys, Transport};
use super::limits::NoKey;
use super::names::Names;
use super::neighbours::Targets;
use super::packet::{
    self, CLOCK_AT, COUNT_AT, ECHO_AT, FLAGS_AT, Glance, POSITION_AT, hop_names,
    is_asking_for_name, is_hop_genuine, reply_nonce, request_nonce, written,
};
use super::primitives::AeadKey;
use super::reset::{self, Avoided};
use super::wall_clock::WallClock;
use super::{Cause, TRAILER_LEN};
use crate::node::Time;
use tailcut_placement::keyed::KeyedState;

/// A client's half.
#[derive(Debug)]
pub(super) struct Client {
    /// As its keys have it.
    number: u32,
    /// By place of the epoch.
    secrets: Vec<ClientSecret>,
    /// Sessions of calls under way, the newest last.
    sessions: VecDeque<Session>,
    /// By server's instance, epoch and member.
    replies: HashMap<(u64, u8, u8), Replies, KeyedState>,
    /// Nodes that it sends to.
    targets: Targets,
    /// Counts of the datagrams that it has sealed.
    counts: Counts,
    /// Epochs of which servers have no key.
    pub(super) avoided: Avoided,
}

/// Tells datagrams of one microsecond apart.
#[derive(Debug, Default)]
struct Counts {
    /// The microsecond of the last one, and the count of the first in it.
    microsecond: (u64, u16),
    /// Sealed so far, wrapping.
    count: u16,
}

#[derive(Debug)]
struct Session {
    /// The 40 bits of its calls' ids.
    session: u64,
    /// Beginning of the session.
    began: Beginning,
    /// Key of its packets.
    key: AeadKey,
}

/// Replies of one server's instance.
#[derive(Debug)]
struct Replies {
    /// The key.
    key: AeadKey,
    /// The count that is above those of all that have come.
    next: u64,
    /// The last addresses from which one has come that was later than all before, the latest first.
    sources: [SocketAddr; SOURCES_LEN],
}

impl Client {
    pub(super) fn new(number: u32, keys: &Keys, seed: u64) -> Self {
        Self {
            number,
            secrets: secrets_of(keys, Transport::R2p2),
            sessions: VecDeque::new(),
            replies: HashMap::with_hasher(KeyedState::with_seed(seed)),
            targets: Targets::new(seed),
            counts: Counts::default(),
            avoided: Avoided::default(),
        }
    }

    /// True if the next call should begin a session.
    #[inline]
    pub(super) fn is_session_due(&self, (now, clock): (Time, WallClock), current: u8) -> bool {
        self.sessions.back().is_some_and(|session| session.began.is_over((now, clock), current))
    }

    /// As [`super::EndpointSeal::name`].
    pub(super) fn name(&self, now: Time, to: SocketAddr, is_again: bool) -> u64 {
        self.targets.name(now, to, is_again)
    }

    /// Newer keys take the place of others.
    pub(super) fn update_keys(&mut self, (old, new): (&Keys, &Keys)) {
        renewed_secrets(&mut self.secrets, (old, new), Transport::R2p2);
        // A number comes again after 256 of them.
        let kept = new.kept(old);
        self.replies.retain(|&(_, epoch, _), _| kept[usize::from(epoch)]);
        self.sessions.retain(|session| kept[usize::from(session.began.epoch)]);
    }

    /// Takes note of the session of a call that begins.
    pub(super) fn note_session(
        &mut self,
        (now, clock): (Time, WallClock),
        session: u64,
        keys: &Keys,
    ) {
        if self.sessions.back().is_some_and(|newest| newest.session == session) {
            return;
        }
        let at = self.avoided.place((now, clock), keys);
        if self.avoided.tries_again(now, keys.epochs[at].epoch) {
            // What is for nobody goes again if there is still no key.
            self.targets.doubt_all();
        }
        let began = Beginning::new((now, clock), keys, at);
        let key = self.secrets[at].request_key(session, began.ticks);
        if self.sessions.len() >= SESSIONS_MAX {
            self.sessions.pop_front();
        }
        self.sessions.push_back(Session { session, began, key });
    }

    pub(super) fn open(
        &mut self,
        now: Time,
        keys: &Keys,
        peer: SocketAddr,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<usize, Cause> {
        self.avoided.evict_told();
        let epoch = seen.trailer.epoch;
        let place = keys.place_of(epoch);
        let at = place.ok_or(Cause::UnknownKeys)?;
        let session = RpcId(seen.rpc_id).session().0;
        let own = self.sessions.iter().position(|own| own.session == session);
        // A router may say that it holds a request, refuses it, or has been named by nobody, and
        // nothing else.
        let may_be_hop = match seen.kind {
            MessageType::Ack => bytes[FLAGS_AT] & Flags::HELD != 0,
            kind => kind == MessageType::Drop,
        };
        if !seen.is_sealed && may_be_hop && !reset::is_answer(bytes) {
            own.ok_or(Cause::UnknownKeys)?;
            self.open_hop((now, peer), &keys.epochs[at].hop, (seen, bytes))?;
            return Ok(bytes.len() - TRAILER_LEN);
        }
        if reset::is_answer(bytes) {
            self.open_answer(keys, own, (seen, bytes))?;
            return Ok(bytes.len() - TRAILER_LEN);
        }
        let is_for_client =
            matches!(seen.kind, MessageType::Response | MessageType::Ack | MessageType::Drop);
        if !seen.is_sealed || !is_for_client {
            return Err(Cause::Unsealed);
        }
        let (instance, count) = (seen.trailer.hop.get(), seen.trailer.count());
        let label = (instance, epoch, (count >> COUNT_BITS) as u8);
        let nonce = reply_nonce(&seen.trailer);
        if let Some(known) = self.replies.get_mut(&label) {
            if !packet::open(bytes, &known.key, nonce, false) {
                return Err(Cause::Forged);
            }
            let is_there = self.targets.has_told(peer, instance);
            let is_news = known.note((peer, is_there), count)?;
            self.targets.hear(now, peer, (instance, is_news));
        } else {
            // Whoever makes up an instance has it derived, and so has to know a session at least.
            own.ok_or(Cause::UnknownKeys)?;
            let key = self.secrets[at].reply_key(instance);
            if !packet::open(bytes, &key, nonce, false) {
                return Err(Cause::Forged);
            }
            if self.replies.len() >= SERVERS_MAX {
                self.replies.clear();
            }
            self.replies
                .insert(label, Replies { key, next: count + 1, sources: [peer; SOURCES_LEN] });
            self.targets.hear(now, peer, (instance, true));
        }
        let (len, packets_len) = match seen.is_coalesced {
            true => {
                let len = coalesced::packet_len(bytes, session, false).ok_or(Cause::Forged)?;
                (len, coalesced::packets_len(bytes))
            }
            false => (bytes.len() - TRAILER_LEN, bytes.len() - TRAILER_LEN),
        };
        if seen.kind == MessageType::Ack && is_asking_for_name(bytes) {
            let takes_coalesced = coalesced::take_taken(bytes);
            if self.targets.learn(now, peer, seen.rpc_id, instance) && takes_coalesced {
                self.targets.note_taken(peer);
            }
        }
        for packet in bytes[..packets_len].chunks_mut(len) {
            self.restore_clock(own, packet);
        }
        Ok(len)
    }

    /// Opens what a router says itself.
    fn open_hop(
        &mut self,
        (now, peer): (Time, SocketAddr),
        key: &HopKey,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<(), Cause> {
        let names = hop_names(&seen.trailer);
        let is_genuine = is_hop_genuine(bytes, key, Names::default());
        if !is_genuine || seen.kind == MessageType::Drop && !is_refusal_of_router(bytes) {
            return Err(Cause::Forged);
        }
        if seen.kind == MessageType::Ack && is_asking_for_name(bytes) {
            self.targets.learn(now, peer, seen.rpc_id, names.sender);
        }
        bytes[VERSION_AT] = EXTENSION_VERSION;
        Ok(())
    }

    /// A call of the client's own has been told that a node has no key of its epoch: what goes
    /// there next is for nobody, so that it runs nowhere before that is known to have keys.
    pub(super) fn note_no_key(&mut self, now: Time, peer: SocketAddr, told: NoKey) {
        self.avoided.add(now, told.epoch);
        self.targets.doubt(peer);
    }

    /// Opens what a node says that has no key of a session's epoch.
    fn open_answer(
        &mut self,
        keys: &Keys,
        own: Option<usize>,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<(), Cause> {
        let (Some(key), Some(at)) = (&keys.reset, own) else { return Err(Cause::UnknownKeys) };
        let began = self.sessions[at].began;
        let named = (seen.trailer.client(), seen.trailer.epoch, seen.trailer.low.get());
        let told = reset::open(bytes, key).ok_or(Cause::Forged)?;
        if seen.kind != MessageType::Drop || named != (self.number, began.epoch, began.ticks) {
            return Err(Cause::Misdirected);
        }
        self.restore_clock(own, bytes);
        self.avoided.tell(told);
        Ok(())
    }

    /// The clock that a server echoes counts from the beginning of the session: makes it the
    /// node's.
    fn restore_clock(&self, own: Option<usize>, bytes: &mut [u8]) {
        let echo: &mut [u8; 4] =
            (&mut bytes[ECHO_AT..ECHO_AT + 4]).try_into().expect("four bytes are four");
        let since = u32::from_be_bytes(*echo);
        let restored = match own {
            Some(own) if since != 0 => {
                ((self.sessions[own].began.zero_us + u64::from(since)) as u32).max(1)
            }
            _ => 0,
        };
        *echo = restored.to_be_bytes();
    }

    pub(super) fn seal(
        &mut self,
        (keys, now): (&Keys, Time),
        to: SocketAddr,
        bytes: &mut [u8],
    ) -> bool {
        let Some((kind, rpc_id)) = written(bytes) else { return false };
        let is_for_server =
            matches!(kind, MessageType::Request | MessageType::ReplyAck | MessageType::Cancel);
        if !is_for_server {
            return false;
        }
        let Some((own, epoch, since_us)) = under(&self.sessions, keys, rpc_id, now) else {
            return false;
        };
        let Some(count) = self.counts.next(now) else { return false };
        stamp(bytes, count, since_us);
        let is_request = kind == MessageType::Request;
        let is_again = is_request && bytes[FLAGS_AT] & Flags::RETRANSMIT != 0;
        // A cancel keeps its tag through routers, and so names nobody.
        let receiver = match kind {
            MessageType::Cancel => 0,
            MessageType::Request if is_first(bytes) => self.targets.name(now, to, is_again),
            _ => self.targets.heard_name(now, to, is_again),
        };
        if is_request && receiver == 0 {
            self.targets.ask(now, rpc_id.0, to);
        }
        let trailer = packet::trailer(self.number, epoch.epoch, own.began.ticks, 0);
        let nonce = request_nonce(bytes);
        let names = Names { receiver, sender: 0 };
        packet::seal(bytes, &own.key, nonce, (&trailer, Some((&epoch.hop, names))));
        true
    }

    /// True if these packets may go to an address together: to a server that takes them so, by its
    /// name.
    pub(super) fn may_gather<'a>(
        &self,
        now: Time,
        to: SocketAddr,
        packets: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        self.targets.takes_coalesced(to)
            && self.targets.name(now, to, false) != 0
            && coalesced::session_of_client(packets).is_some()
    }

    /// Seals what [`Client::may_gather`] has said may go, packets of this length each but the last.
    pub(super) fn seal_coalesced(
        &mut self,
        (keys, now): (&Keys, Time),
        to: SocketAddr,
        (bytes, packet_len): (&mut [u8], usize),
    ) -> bool {
        let Some((_, rpc_id)) = written(bytes) else { return false };
        let Some((own, epoch, since_us)) = under(&self.sessions, keys, rpc_id, now) else {
            return false;
        };
        let Some(count) = self.counts.next(now) else { return false };
        let end = coalesced::packets_len(bytes);
        for packet in bytes[..end].chunks_mut(packet_len) {
            stamp(packet, count, since_us);
        }
        let names = Names { receiver: self.targets.name(now, to, false), sender: 0 };
        let trailer = packet::trailer(self.number, epoch.epoch, own.began.ticks, 0);
        let by = (&own.key, request_nonce(bytes));
        packet::seal_coalesced(bytes, by, (&trailer, Some((&epoch.hop, names))));
        true
    }
}

impl Counts {
    /// Count of the next datagram; `None` if it would have the nonce of the first one of this
    /// microsecond.
    fn next(&mut self, now: Time) -> Option<u16> {
        let microsecond = now / 1_000;
        if microsecond != self.microsecond.0 {
            self.microsecond = (microsecond, self.count);
        } else if self.count == self.microsecond.1.wrapping_sub(1) {
            return None;
        }
        let count = self.count;
        self.count = count.wrapping_add(1);
        Some(count)
    }
}

/// The session of a packet, its epoch, and the microseconds since it began.
fn under<'a>(
    sessions: &'a VecDeque<Session>,
    keys: &'a Keys,
    rpc_id: RpcId,
    now: Time,
) -> Option<(&'a Session, &'a EpochKey, u32)> {
    let session = rpc_id.session().0;
    let own = sessions.iter().rev().find(|own| own.session == session)?;
    let epoch = keys.epochs.iter().rfind(|key| key.epoch == own.began.epoch)?;
    Some((own, epoch, u32::try_from(own.began.age_us(now)).ok()?))
}

/// True of the first packet of a message.
fn is_first(bytes: &[u8]) -> bool {
    bytes[POSITION_AT] & position::FIRST != 0
}

/// Says when a packet leaves, and of which count it is.
fn stamp(packet: &mut [u8], count: u16, since_us: u32) {
    packet[COUNT_AT..COUNT_AT + 2].copy_from_slice(&count.to_be_bytes());
    packet[CLOCK_AT..CLOCK_AT + 4].copy_from_slice(&since_us.to_be_bytes());
}

impl Replies {
    /// Takes a genuine packet; true if it is later than all before. One that is not was recorded,
    /// if it comes from where none was heard, and the server has not told its name there: the call
    /// would go on there.
    fn note(&mut self, (from, is_there): (SocketAddr, bool), count: u64) -> Result<bool, Cause> {
        let is_news = count >= self.next;
        let known = self.sources.iter().position(|&source| source == from);
        if !is_news {
            return (is_there || known.is_some()).then_some(false).ok_or(Cause::Replayed);
        }
        self.next = count + 1;
        self.sources[..=known.unwrap_or(SOURCES_LEN - 1)].rotate_right(1);
        self.sources[0] = from;
        Ok(true)
    }
}

/// True if a DROP for one hop says what a router has to say: one of its reasons, and none of the
/// words in which an application refuses.
fn is_refusal_of_router(bytes: &[u8]) -> bool {
    let payload = usize::from(bytes[1])..bytes.len() - TRAILER_LEN;
    let reason = DropReason::from_payload(&bytes[payload.clone()]);
    payload.len() == 1
        && matches!(
            reason,
            DropReason::Unspecified
                | DropReason::Overload
                | DropReason::TooLarge
                | DropReason::Expired
                | DropReason::NoServer
                | DropReason::Uncertain
                | DropReason::Stopping
        )
}

/// Sessions of a client whose keys are kept: one that calls has ended in, and those of calls that
/// last.
const SESSIONS_MAX: usize = 64;

/// Addresses of a server that are told from others.
const SOURCES_LEN: usize = 4;

/// Servers of which a client keeps the reply keys.
const SERVERS_MAX: usize = 1 << 12;

#[cfg(test)]
mod tests {
    use super::super::Cipher;
    use super::*;

    fn address(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 9_000))
    }

    /// Four addresses of a server that are heard in turns stay known; the one not heard for longest
    /// is evicted first.
    #[test]
    fn late_packets_count_from_where_the_server_is_heard() {
        let key = AeadKey::new(Cipher::Aes128Gcm, &[7; 16]);
        let mut replies = Replies { key, next: 1, sources: [address(0); SOURCES_LEN] };
        for (count, host) in (1..).zip([1, 2, 3, 0, 1, 4]) {
            assert_eq!(replies.note((address(host), false), count), Ok(true));
        }
        for host in [0, 1, 3, 4] {
            assert_eq!(replies.note((address(host), false), 6), Ok(false), "{host}");
        }
        assert_eq!(replies.note((address(2), false), 6), Err(Cause::Replayed));
        assert_eq!(replies.note((address(2), true), 6), Ok(false), "it has told its name there");
        assert_eq!(replies.note((address(2), false), 7), Ok(true), "news from anywhere");
    }
}
