//! A client's half of a seal of Homa.

use std::net::SocketAddr;

use tailcut_wire::homa::PacketType;

use super::super::Cause;
use super::super::beginning::{Beginning, renewed_secrets, secrets_of};
use super::super::clients::COUNT_BITS;
use super::super::keys::{ClientSecret, Keys, Sealing, Transport};
use super::super::known::Kept;
use super::super::limits::NoKey;
use super::super::names::name_of;
use super::super::neighbours::Targets;
use super::super::packet;
use super::super::primitives::AeadKey;
use super::super::reset::Avoided;
use super::super::wall_clock::WallClock;
use super::super::window::Window;
use super::packet::{
    Glance, SESSION_SHIFT, numbered, open, reply_nonce, request_nonce, seal, written,
};
use super::reset;
use crate::node::Time;

/// A client's half.
#[derive(Debug)]
pub(in super::super) struct HomaClient {
    /// As its keys have it.
    number: u32,
    /// By place of the epoch.
    secrets: Vec<ClientSecret>,
    /// Sessions, each with one server, by the 40 bits of its calls' ids.
    sessions: Kept<u64, Session>,
    /// By server's instance, epoch and member.
    replies: Kept<(u64, u8, u8), Replies>,
    /// Nodes that it sends to.
    targets: Targets,
    /// Epochs of which servers had no key just now.
    pub(in super::super) avoided: Avoided,
    /// Servers may call it back.
    calls_back: bool,
}

#[derive(Debug)]
struct Session {
    /// Beginning of the session.
    began: Beginning,
    /// Key of its packets.
    key: AeadKey,
    /// By which servers know that its client has keys.
    pass: u32,
    /// Packets sealed.
    count: u64,
    /// The first server that a packet has named; 0 before.
    name: u64,
    /// Destination of that packet.
    to: Option<SocketAddr>,
    /// One above the highest number of a call of that server in it.
    called: u32,
}

/// Packets of one server's instance.
#[derive(Debug)]
struct Replies {
    /// Their key.
    key: AeadKey,
    /// Window of those that have come.
    window: Box<Window>,
}

impl HomaClient {
    pub(in super::super) fn new(
        number: u32,
        sealing: &Sealing,
        (servers_max, seed): (usize, u64),
    ) -> Self {
        Self {
            number,
            secrets: secrets_of(&sealing.keys, Transport::Homa),
            calls_back: sealing.calls_back,
            sessions: Kept::new(servers_max.saturating_mul(SESSIONS_EACH), seed),
            replies: Kept::new(servers_max.saturating_mul(INSTANCES_EACH), seed),
            targets: Targets::new(seed),
            avoided: Avoided::default(),
        }
    }

    /// Newer keys take the place of others.
    pub(in super::super) fn update_keys(&mut self, (old, new): (&Keys, &Keys)) {
        renewed_secrets(&mut self.secrets, (old, new), Transport::Homa);
        // A number comes again after 256 of them.
        let kept = new.kept(old);
        self.replies.retain(|(_, epoch, _), _| kept[usize::from(epoch)]);
        self.sessions.retain(|_, session| kept[usize::from(session.began.epoch)]);
    }

    /// As [`super::super::EndpointSeal::name`].
    pub(in super::super) fn name(&self, now: Time, to: SocketAddr, is_again: bool) -> u64 {
        self.targets.name(now, to, is_again)
    }

    /// As [`super::super::EndpointSeal::is_session_over`].
    pub(in super::super) fn is_session_over(
        &self,
        (now, clock): (Time, WallClock),
        (session, to): (u64, SocketAddr),
        current: u8,
    ) -> bool {
        let Some(own) = self.sessions.find(session) else { return true };
        let name = self.targets.name(now, to, false);
        // One that has begun before its server did is refused there.
        let is_of_another = own.name != 0 && name != 0 && own.name != name;
        let is_used_up = own.count >= COUNT_MAX || own.called >= CALLED_MAX;
        is_of_another || is_used_up || own.began.is_over((now, clock), current)
    }

    /// Takes note of the session of a call that begins.
    pub(in super::super) fn note_session(
        &mut self,
        at: (Time, WallClock),
        session: u64,
        keys: &Keys,
    ) {
        if self.sessions.find(session).is_none() {
            let place = self.avoided.place(at, keys);
            if self.avoided.tries_again(at.0, keys.epochs[place].epoch) {
                // What is for nobody goes again if there is still no key.
                self.targets.doubt_all();
            }
            let began = Beginning::new(at, keys, place);
            let key = self.secrets[place].request_key(session, began.ticks);
            let pass = keys.epochs[place].hop.pass(session, began.ticks);
            let (count, name, to, called) = (0, 0, None, 0);
            self.sessions.entry(session, || Session { began, key, pass, count, name, to, called });
        }
    }

    pub(in super::super) fn open(
        &mut self,
        now: Time,
        keys: &Keys,
        peer: SocketAddr,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<(), Cause> {
        self.avoided.evict_told();
        if seen.is_from_client() || seen.is_named || seen.is_back && !self.calls_back {
            return Err(Cause::Unsealed);
        }
        let epoch = seen.trailer.epoch;
        let place = keys.place_of(epoch);
        let at = place.ok_or(Cause::UnknownKeys)?;
        // Whoever makes up an instance has its key derived, and so has to know a session at least.
        let own = self.sessions.find(seen.session()).ok_or(Cause::UnknownKeys)?;
        if seen.is_back && !own.is_with(peer, seen.trailer.hop.get()) {
            return Err(Cause::Misdirected);
        }
        let (instance, count) = (seen.trailer.hop.get(), seen.trailer.count());
        let label = (instance, epoch, (count >> COUNT_BITS) as u8);
        let nonce = reply_nonce(&seen.trailer);
        if let Some(known) = self.replies.find_mut(label) {
            if !known.window.is_fresh(count) {
                return Err(Cause::Replayed);
            }
            if !open(bytes, (&known.key, nonce), seen, None) {
                return Err(Cause::Forged);
            }
            known.window.take(count);
        } else {
            let key = self.secrets[at].reply_key(instance);
            if !open(bytes, (&key, nonce), seen, None) {
                return Err(Cause::Forged);
            }
            let window = Box::new(Window::from(count));
            self.replies.entry(label, || Replies { key, window });
        }
        self.targets.hear(now, peer, (instance, true));
        if seen.is_back {
            self.note_called(seen);
        } else {
            self.targets.learn(now, peer, seen.id & !1, instance);
        }
        Ok(())
    }

    /// Opens what a server says that has no key of a session's epoch.
    #[cold]
    pub(in super::super) fn open_answer(
        &mut self,
        keys: &Keys,
        bytes: &mut [u8],
    ) -> Result<(), Cause> {
        let (trailer, id) = reset::named(bytes).ok_or(Cause::Unsealed)?;
        let own = self.sessions.find(id >> SESSION_SHIFT).zip(keys.reset.as_ref());
        let (own, key) = own.ok_or(Cause::UnknownKeys)?;
        let told = reset::open(bytes, key).ok_or(Cause::Forged)?;
        let named = (trailer.client(), trailer.epoch, trailer.low.get());
        let is_own = named == (self.number, own.began.epoch, own.began.ticks);
        // Of a packet that has gone in it, of this side's own call.
        if !is_own || id & 1 == 0 || reset::count_of(&trailer) >= own.count {
            return Err(Cause::Misdirected);
        }
        self.avoided.tell(told);
        Ok(())
    }

    /// A call of this side's own has been told that a server has no key of its epoch: who is there
    /// is asked.
    pub(in super::super) fn note_no_key(&mut self, now: Time, peer: SocketAddr, told: NoKey) {
        self.avoided.add(now, told.epoch);
        self.targets.doubt(peer);
    }

    /// A packet of a server's call has come.
    fn note_called(&mut self, seen: &Glance) {
        if let Some(own) = self.sessions.find_mut(seen.session()) {
            own.called = own.called.max(seen.sequence() + 1);
        }
    }

    pub(in super::super) fn seal(
        &mut self,
        (keys, now): (&Keys, Time),
        to: SocketAddr,
        bytes: &mut [u8],
    ) -> bool {
        let Some((kind, id)) = written(bytes) else { return false };
        let is_back = id & 1 != 0;
        if is_back && !self.calls_back {
            return false;
        }
        let Some(own) = self.sessions.find_mut(id >> SESSION_SHIFT) else { return false };
        let is_known = keys.epochs.iter().any(|key| key.epoch == own.began.epoch);
        // A question is answered by whoever is there; all else is for one server.
        let is_question = kind == PacketType::Resend && !is_back;
        // Who calls back is whom the session is with.
        let name = if is_back { own.name } else { self.targets.name(now, to, is_question) };
        if !is_known || name == 0 && !is_question || own.count >= COUNT_END {
            return false;
        }
        match name {
            0 => self.targets.ask(now, id, to),
            _ if own.name == 0 => (own.name, own.to) = (name, Some(to)),
            _ => {}
        }
        let Beginning { epoch, ticks, .. } = own.began;
        let trailer = packet::trailer(self.number, epoch, ticks, numbered(own.pass, own.count));
        own.count += 1;
        seal(bytes, (&own.key, request_nonce(&trailer)), &trailer, Some(name))
    }
}

impl Session {
    /// True if it is with a server's instance, at this address.
    fn is_with(&self, address: SocketAddr, instance: u64) -> bool {
        self.name != 0 && self.name == name_of(instance) && self.to == Some(address)
    }
}

/// Packets of a session after which none goes: their trailer has no room for another number.
const COUNT_END: u64 = 1 << 32;

/// Packets of a session after which calls begin another one: AES-GCM is to seal no more than some
/// 2^32 under a key.
const COUNT_MAX: u64 = 1 << 31;

/// Calls of a server in a session after which this side begins another one with its next call: an
/// eighth of those that an id has room for, since that call may come late.
const CALLED_MAX: u32 = 1 << 20;

/// Sessions that are kept for each server that a client may know: one that calls begin in, and
/// those of calls that last.
const SESSIONS_EACH: usize = 2;

/// Instances, epochs and members of each server that a client may know whose packets are told
/// apart.
const INSTANCES_EACH: usize = 4;
