//! Timers: what is asked for when nothing comes, and what is released when nothing will.
//!
//! | where the RPC stands | due | then |
//! |---|---|---|
//! | calling | silence | RESEND for all of the reply, which makes the server say what it knows |
//! | hearing, receiving | silence, or a hole that is old | RESEND for every hole and the granted tail |
//! | receiving | several questions and no sign of life of the client; no progress for long | released |
//! | waiting | the deadline | taken from the application |
//! | sealed, and another server is there now than the one that may have run it | at once | the call ends |
//! | replying, all sent | silence | NEED_ACK; after so many, or at the deadline, released |
//!
//! While data of the same priority or a better one comes, or the peer goes on with something else
//! that it owes, what does not come is not missed for a while: it waits in the network or in the
//! peer. Nor is it while this host was away: it may have come, unread. A peer that says nothing at
//! all is asked a few things, not everything. Silences double with every question until something
//! new comes. One timer for each RPC; it may be early, and looks again.

use tailcut_wire::homa::PacketType;
use tailcut_wire::r2p2::DropReason;

use super::slot::{Naming, Slot};
use super::transmit::Control;
use super::{Endpoint, Phase, Recovery};
use crate::node::Time;
use crate::rpc::Failure;
use crate::rtt::Bounds;
use tailcut_placement::slab::SlotId;

impl Endpoint {
    /// Has the timer of an RPC look at it by the time that something is due.
    pub(super) fn arm(&mut self, now: Time, index: SlotId) {
        let due = self.due_at(now, &self.rpcs[index]);
        self.wheel.arm_by(index, due);
    }

    /// Has the timer of an RPC whose message is about to leave look at it when its peer will have
    /// been silent for too long, should it leave now. So the timer need not move when it has left.
    #[inline]
    pub(super) fn arm_ahead(&mut self, now: Time, index: SlotId) {
        let slot = &self.rpcs[index];
        let silence_ns = match slot.phase {
            Phase::Calling(_) => {
                let reply_rtt = &self.peers[slot.peer].state.times.reply;
                reply_rtt.timeout_ns(self.config.recovery.bounds(), slot.timing.attempts)
            }
            _ => self.config.recovery.need_ack_ns,
        };
        self.wheel.arm_by(index, now.saturating_add(silence_ns).min(slot.deadline));
    }

    /// True if the timer of an RPC, whose message has just left, will be early enough.
    #[inline]
    pub(super) fn is_armed_ahead(&self, now: Time, index: SlotId) -> bool {
        let recovery = &self.config.recovery;
        let silence_ns = match self.rpcs[index].phase {
            Phase::Replying(_) => recovery.need_ack_ns,
            _ => recovery.silence_min_ns,
        };
        self.wheel.is_armed_by(index, now.saturating_add(silence_ns))
    }

    /// Does what is due for an RPC.
    pub(super) fn handle_due(&mut self, now: Time, index: SlotId) {
        let slot = &self.rpcs[index];
        let deadline = slot.deadline;
        if slot.client.naming == Naming::Changed {
            // It may have run at the server that was there before.
            self.metrics.refused += 1;
            return self.fail(index, Failure::Refused(DropReason::Uncertain));
        }
        match slot.phase {
            Phase::Calling(_) | Phase::Hearing(_) | Phase::Fetching(_) if deadline <= now => {
                self.metrics.deadlines += 1;
                return self.fail(index, Failure::Deadline);
            }
            Phase::Waiting | Phase::Parked(_) if deadline <= now => {
                self.metrics.unanswered += 1;
                return self.withdraw(index);
            }
            Phase::Replying(_) if deadline <= now => {
                // Nobody waits for it any more.
                return self.release_unacknowledged(now, index);
            }
            Phase::Receiving(_) if now >= self.expires_at(slot) => {
                self.metrics.partials_expired += 1;
                return self.release(index);
            }
            _ => {}
        }
        // The timer stands where it was set, and what has come since may have put off what is due.
        if self.silence_over_at(slot) <= now || self.gap_due_at(slot).is_some_and(|at| at <= now) {
            let peer = &mut self.peers[self.rpcs[index].peer];
            let interval_ns = self.config.recovery.silence_min_ns;
            let may_ask = peer.state.pace.may_ask(now, peer.used_at, interval_ns);
            match self.rpcs[index].phase {
                Phase::Calling(_) | Phase::Hearing(_) if self.is_peer_silent(now, index) => {
                    self.metrics.unreachable += 1;
                    return self.fail(index, Failure::Unreachable);
                }
                // It is armed again when all of it has left, whenever the link lets that be.
                Phase::Calling(_) | Phase::Replying(_) if self.is_sending(&self.rpcs[index]) => {
                    let again_at = now.saturating_add(self.config.recovery.silence_max_ns);
                    return self.wheel.arm(index, again_at.min(deadline));
                }
                // Others ask the same of a peer that answers nothing.
                _ if !may_ask => self.rpcs[index].timing.asked_at = now,
                Phase::Replying(_)
                    if self.rpcs[index].timing.need_acks >= self.config.recovery.need_acks_max =>
                {
                    return self.release_unacknowledged(now, index);
                }
                Phase::Replying(_) => self.ask_for_ack(now, index),
                _ => self.ask(now, index),
            }
        }
        self.arm(now, index);
    }

    /// The sender of a message says that it is alive, and has something else to do first.
    pub(super) fn be_patient(&mut self, now: Time, index: SlotId) {
        let slot = &mut self.rpcs[index];
        if slot.is_receiving() {
            slot.timing.asked_at = now;
        }
    }

    /// True if bytes that may come have not, for longer than a hole is left alone.
    pub(super) fn is_starved(&self, now: Time, index: SlotId) -> bool {
        let slot = &self.rpcs[index];
        let is_waiting = match slot.phase {
            Phase::Calling(_) => !slot.out.is_sendable(),
            _ => slot.is_receiving() && slot.inc.message.expected() > 0,
        };
        let since = slot.timing.progress_at.max(slot.timing.asked_at).max(slot.timing.sent_at);
        let since = if slot.is_receiving() { self.past_others(slot, since) } else { since };
        is_waiting && now.saturating_sub(since) >= self.config.recovery.gap_ns_min
    }

    fn release_unacknowledged(&mut self, now: Time, index: SlotId) {
        self.metrics.unacknowledged += 1;
        let peer = self.rpcs[index].peer;
        self.peers[peer].state.unacknowledged_at = Some(now);
        self.release(index);
    }

    fn ask_for_ack(&mut self, now: Time, index: SlotId) {
        let slot = &mut self.rpcs[index];
        slot.timing.asked_at = now;
        slot.timing.need_acks += 1;
        let rpc = self.rpcs.key(index);
        self.push_control(Control::Plain { rpc, packet_type: PacketType::NeedAck });
    }

    fn due_at(&self, now: Time, slot: &Slot) -> Time {
        if slot.client.naming == Naming::Changed {
            return now;
        }
        let next = match slot.phase {
            Phase::Calling(_) | Phase::Hearing(_) => self.silence_over_at(slot).min(slot.deadline),
            Phase::Receiving(_) => self.silence_over_at(slot).min(self.expires_at(slot)),
            Phase::Waiting | Phase::Parked(_) | Phase::Fetching(_) => slot.deadline,
            Phase::Replying(_) => self.silence_over_at(slot).min(slot.deadline),
        };
        // Never now: `handle_timeout` goes on until nothing is due, and would not end.
        self.gap_due_at(slot).map_or(next, |at| at.min(next)).max(now + 1)
    }

    /// Time at which the silence of the peer about an RPC is so long that something is asked.
    fn silence_over_at(&self, slot: &Slot) -> Time {
        let (peer, recovery) = (&self.peers[slot.peer].state, &self.config.recovery);
        let bounds = recovery.bounds();
        // Of a message that comes, only what is new of it breaks the silence.
        let said_at = if slot.is_receiving() {
            slot.timing.progress_at
        } else {
            slot.timing.heard_at.max(slot.timing.sent_at)
        };
        let since = self.past_others(slot, said_at.max(slot.timing.asked_at));
        let silence_ns = match slot.phase {
            // It is this side that has more to send.
            Phase::Calling(_) | Phase::Replying(_) if self.is_sending(slot) => {
                recovery.silence_max_ns
            }
            Phase::Calling(_) => peer.times.reply.timeout_ns(bounds, slot.timing.attempts),
            // Everything that was granted has come: it is for this side to go on.
            Phase::Hearing(_) | Phase::Receiving(_) if slot.inc.message.expected() == 0 => {
                recovery.silence_max_ns
            }
            Phase::Hearing(_) | Phase::Receiving(_) if peer.times.rtt.is_known() => {
                peer.times.rtt.timeout_ns(bounds, slot.timing.attempts)
            }
            Phase::Hearing(_) | Phase::Receiving(_) => {
                // A reply's time has a round trip in it, which is all that is known of one.
                let initial_ns = peer
                    .times
                    .reply
                    .smoothed_or(bounds.initial_ns)
                    .clamp(bounds.min_ns, bounds.initial_ns);
                peer.times.rtt.timeout_ns(Bounds { initial_ns, ..bounds }, slot.timing.attempts)
            }
            // A client that has not all of a reply would ask for what is still under way; while the
            // rest waits for a grant, the question finds out whether the peer lives.
            Phase::Replying(_) if slot.out.sent_len() < slot.out.len() => recovery.silence_max_ns,
            // The end of a reply waits behind the rest of it, for as long as that took to leave.
            Phase::Replying(_) => {
                let span_ns = slot.timing.sent_at.saturating_sub(slot.timing.first_sent_at);
                let need_ack_ns = recovery.need_ack_ns;
                let bounds = Bounds { initial_ns: need_ack_ns, min_ns: need_ack_ns, ..bounds };
                // Whoever has been late once keeps no reply for much longer: that does not double.
                let late_ns =
                    peer.times.ack_delay.timeout_ns(bounds, 0).min(recovery.silence_max_ns);
                (need_ack_ns << slot.timing.need_acks.min(16))
                    .max(late_ns)
                    .saturating_add(if slot.timing.first_sent_at == 0 { 0 } else { span_ns })
            }
            Phase::Waiting | Phase::Parked(_) | Phase::Fetching(_) => return Time::MAX,
        };
        since.saturating_add(silence_ns)
    }

    /// From when on silence counts. While the peer goes on with something else that it owes, or
    /// data come that are ahead in the network's queues, what is awaited waits and is not lost; but
    /// no longer than all of it takes at the peer's pace, or than a crowd may last.
    fn past_others(&self, slot: &Slot, since: Time) -> Time {
        let (peer, recovery) = (&self.peers[slot.peer], &self.config.recovery);
        let pace = &peer.state.pace;
        // A server may have to send much before a reply, or be about to.
        let is_busy = pace.messages > 0 || !peer.state.times.reply.is_known();
        let replies_ns = if is_busy { recovery.crowding_ns_max } else { self.crowding_ns() };
        let within = |at: Time, limit_ns| at.min(since.saturating_add(limit_ns));
        let others_at = match slot.phase {
            // Grants for other requests are a sign that the peer goes on, too.
            Phase::Calling(_) if peer.calls > 1 => within(
                peer.used_at.max(pace.progress_at),
                pace.replies_ns(peer.calls).unwrap_or(replies_ns),
            ),
            Phase::Hearing(_) | Phase::Receiving(_) if slot.inc.message.expected() > 0 => {
                let level = slot.inc.level_of(slot.inc.message.highest(), &self.advice.cutoffs);
                let better_at =
                    self.book.data_at[usize::from(level & 7)..].iter().copied().max().unwrap_or(0);
                let crowding_ns = self.crowding_ns();
                let pace_ns = pace.bytes_ns(slot.inc.message.len());
                let peers_at = within(pace.progress_at, crowding_ns.max(pace_ns));
                within(better_at, crowding_ns).max(peers_at)
            }
            _ => return since,
        };
        // A host that was away has not read what came meanwhile; one that always is has to ask.
        let away_ns_max = recovery.silence_max_ns;
        let read_at = self.book.late_at.min(since.saturating_add(away_ns_max));
        others_at.max(read_at).max(since)
    }

    /// Longest time that what comes may wait in the network behind other data: as what was granted
    /// has of late, or as all takes that may come now.
    fn crowding_ns(&self) -> u64 {
        let Recovery { crowding_ns_max, silence_min_ns, .. } = self.config.recovery;
        let bounds =
            Bounds { initial_ns: crowding_ns_max, min_ns: silence_min_ns, max_ns: crowding_ns_max };
        // Twice as long would find out losses too late, and once not leave out what waits.
        let all_ns = 3 * self.book.pace.span_ns(self.book.expected_bytes) / 2;
        self.book.rtt.timeout_ns(bounds, 0).max(all_ns).min(crowding_ns_max)
    }

    /// Time at which the oldest hole of the message that an RPC receives is so old that it is asked
    /// for.
    fn gap_due_at(&self, slot: &Slot) -> Option<Time> {
        if !slot.is_receiving() || slot.inc.gap_since == 0 {
            return None;
        }
        let recovery = &self.config.recovery;
        let round_trip_ns = self.peers[slot.peer].state.times.rtt.smoothed_or(recovery.gap_ns_min);
        // A longest silence that is configured below the age of a hole must not make `clamp` panic.
        let age_ns = round_trip_ns
            .clamp(recovery.gap_ns_min, recovery.silence_max_ns.max(recovery.gap_ns_min));
        let age_ns = age_ns
            .saturating_mul(1 << slot.timing.attempts.min(10))
            .min(recovery.silence_max_ns.max(age_ns));
        Some(self.past_overtaken(slot, slot.inc.gap_since).saturating_add(age_ns))
    }

    /// From when on the age of a hole counts. In a message that has had one priority it is certain:
    /// what was sent behind it has come. Where it has had several, what fills the hole may have
    /// been overtaken, and waits for as long as data of its priority or a better one come.
    fn past_overtaken(&self, slot: &Slot, since: Time) -> Time {
        if slot.inc.levels.count_ones() < 2 {
            return since;
        }
        let lowest = slot.inc.levels.trailing_zeros() as usize;
        let better_at = self.book.data_at[lowest..].iter().copied().max().unwrap_or(0);
        let pace_ns = self.peers[slot.peer].state.pace.bytes_ns(slot.inc.message.len());
        better_at.min(since.saturating_add(self.crowding_ns().max(pace_ns))).max(since)
    }

    /// True if this side has something to send that nothing but the link holds back.
    pub(super) fn is_sending(&self, slot: &Slot) -> bool {
        slot.out.is_sendable()
            && slot.client.naming == Naming::Settled
            && slot.may_send(tailcut_wire::homa::DATA_LEN + 1 + self.trailer_len())
    }

    /// Time at which a request that is not complete is released: its client is gone, or does not go
    /// on. One that has something else to send first says so when it is asked, or shows that it
    /// lives.
    fn expires_at(&self, slot: &Slot) -> Time {
        let heard_at = self.peers[slot.peer].used_at;
        let progress_at = match slot.inc.message.expected() {
            // It is for this side to go on.
            0 => slot.timing.progress_at.max(heard_at),
            _ => slot.timing.progress_at,
        };
        let without_progress = progress_at.saturating_add(self.config.serving.partial_ns_max);
        let (questions, since) = slot.timing.in_vain;
        let without_a_sign = match questions {
            0..QUESTIONS_MIN => Time::MAX,
            _ => since.max(heard_at).saturating_add(self.config.recovery.partial_silence_ns_max),
        };
        without_progress.min(without_a_sign).min(slot.deadline)
    }

    fn is_peer_silent(&self, now: Time, index: SlotId) -> bool {
        let slot = &self.rpcs[index];
        let (questions, asked_at) = slot.timing.in_vain;
        // While data wait for a name, the question for it is all that has left.
        let is_asked = slot.client.naming == Naming::Awaited && questions > 0;
        let begun_at = if is_asked { asked_at } else { slot.timing.first_sent_at };
        // The peer owed nothing of this call before, and may have had no reason to speak.
        let heard_at = self.peers[slot.peer].used_at.max(begun_at);
        begun_at != 0 && now.saturating_sub(heard_at) > self.config.recovery.peer_silence_ns_max
    }
}

impl Recovery {
    /// Bounds of a silence that makes this side ask.
    #[inline]
    fn bounds(&self) -> Bounds {
        let Self { silence_initial_ns, silence_min_ns, silence_max_ns, .. } = *self;
        Bounds { initial_ns: silence_initial_ns, min_ns: silence_min_ns, max_ns: silence_max_ns }
    }
}

/// Questions that each may have been lost say nothing if they are fewer.
const QUESTIONS_MIN: u8 = 4;
