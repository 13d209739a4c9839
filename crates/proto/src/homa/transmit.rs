//! Transmission: control packets first, then the message with the fewest bytes left (SRPT).

use tailcut_wire::homa::{
    AckPacket, Age, COMMON_LEN, CommonHeader, CookiePacket, CutoffsPacket, DATA_LEN, DataFlags,
    DataHeader, GrantPacket, PacketType, Ports, ResendPacket, TimeLeft, hijack,
};
use tailcut_wire::r2p2::DropReason;
use zerocopy::IntoBytes;

use super::ids::ClientId;
use super::outgoing::{Level, Piece};
use super::peers::Echo;
use super::slot::Slot;
use super::{Carrier, Endpoint, Phase, UnscheduledRank};
use crate::gso_batch::GsoBatch;
use crate::node::{Attached, GSO_DATAGRAMS_MAX, Path, Time, Transmit};
use crate::peer::table::Peer;
use tailcut_placement::slab::{SlotId, SlotKey};

/// A control packet that waits to be sent. What is said of an RPC is read from it when it goes, and
/// not at all when it has ended. Where packets are sealed, `addressee` says to the seal whom a
/// packet of none is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    /// As far as the message that an RPC receives is granted.
    Grant {
        rpc: SlotKey,
    },
    Resend {
        rpc: SlotKey,
        offset: u32,
        length: u32,
    },
    /// A packet that is nothing but its type: BUSY, NEED_ACK or RPC_UNKNOWN.
    Plain {
        rpc: SlotKey,
        packet_type: PacketType,
    },
    /// Our cutoffs, to the peer of an RPC.
    Cutoffs {
        rpc: SlotKey,
    },
    /// Answers a packet of no RPC.
    Unknown {
        to: Path,
        ports: Ports,
        local_id: u64,
        addressee: u64,
    },
    /// An RPC that has ended at its client, and others with the same server.
    Ack {
        to: Path,
        ports: Ports,
        id: ClientId,
        addressee: u64,
    },
    /// Our cutoffs to a stranger, who must tell their version back.
    Validate {
        to: Path,
        ports: Ports,
        id: ClientId,
        addressee: u64,
    },
    /// The cookie of whoever has sent a packet of this request.
    Cookie {
        to: Path,
        ports: Ports,
        id: ClientId,
        is_demand: u8,
    },
    /// A request that is not served.
    Refused {
        to: Path,
        ports: Ports,
        id: ClientId,
        reason: DropReason,
        addressee: u64,
    },
}

impl Endpoint {
    /// Writes control packets that wait: a GSO batch of those to one peer that follow each other
    /// and are as long.
    pub(super) fn write_control(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let mut batch = GsoBatch::with_trailer(buffer, self.trailer_len());
        let count_max = self.config.gso_batch_len_max.clamp(1, GSO_DATAGRAMS_MAX);
        while batch.count() < count_max
            && let Some(&control) = self.egress.control.front()
        {
            let Some((to, len, addressee)) = self.outline(control) else {
                self.egress.control.pop_front();
                continue;
            };
            batch.set_addressee(addressee);
            // It stays queued: what does not fit begins the next GSO batch.
            let Some(room) = batch.room(to, len) else {
                break;
            };
            self.egress.control.pop_front();
            self.write_one(control, room);
            disguise(self.config.carrier, to, room);
        }
        self.metrics.datagrams_out += batch.count() as u64;
        batch.finish().map(|transmit| Transmit { priority: CONTROL_PRIORITY, ..transmit })
    }

    /// Writes data: a GSO batch of equal packets to one peer at one priority, in the order of SRPT.
    pub(super) fn write_data(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let trailer_len = self.trailer_len();
        let mut batch = GsoBatch::with_trailer(buffer, trailer_len);
        let mut batch_priority = None;
        let count_max = match self.config.gso_batch_len_max {
            // What a batch holds at most it knows itself.
            GSO_DATAGRAMS_MAX.. => usize::MAX,
            fewer => fewer.max(1),
        };
        while let Some(index) = self.egress.first() {
            let slot = &self.rpcs[index];
            let lens = self.lens(slot);
            let Some(piece) = slot.out.peek(lens).filter(|_| batch.count() < count_max) else {
                break;
            };
            let priority = self.priority_of(index, piece);
            // All of a GSO batch has one IP header, and so one priority.
            if batch_priority.is_some_and(|same| same != priority)
                || !self.egress.nic.takes(now, slot.out.len())
            {
                break;
            }
            let len = DATA_LEN + piece.len as usize;
            // This takes it out of the ranks, as a name that is awaited does: so the loop comes to
            // an end.
            if !slot.may_send(len + trailer_len) {
                self.hold_back(now, index);
                continue;
            }
            if trailer_len > 0 {
                if !self.may_go_by_name(now, index) {
                    continue;
                }
                batch.set_addressee(self.addressee_of(index));
            }
            let Some(room) = batch.room(self.path_of(index), len) else {
                // No room for a single packet: the driver says that as much waits as may.
                if batch.count() == 0 {
                    self.egress.device.refuse(now);
                }
                break;
            };
            self.write_piece(now, index, piece, room);
            if trailer_len > 0 {
                self.rpcs[index].server.allowance.sent += trailer_len as u64;
            }
            batch_priority = Some(priority);
        }
        self.metrics.datagrams_out += batch.count() as u64;
        let priority = batch_priority.unwrap_or(0);
        batch.finish().map(|transmit| Transmit { priority, ..transmit })
    }

    /// Writes the headers of a GSO batch of a long message, if that goes next.
    pub(super) fn write_attached(
        &mut self,
        now: Time,
        buffer: &mut [u8],
    ) -> Option<(Transmit, Attached)> {
        let index = self.egress.first()?;
        let slot = &self.rpcs[index];
        // All else has to see each packet: its checksum, its seal, the queue of the link, a shorter
        // batch.
        let is_plain = self.config.carrier == Carrier::Own
            && self.config.link.is_none()
            && self.seal.is_none()
            && self.config.gso_batch_len_max >= GSO_DATAGRAMS_MAX;
        let lens = self.lens(slot);
        let datagram_len = DATA_LEN + lens.0.max(lens.1) as usize;
        let count_max = Attached::datagrams_max(datagram_len, buffer);
        let (run, piece_len) = slot.out.run(lens, count_max)?;
        // By what is left, each packet may have another priority.
        let is_ranked_whole = run.level != Level::Unscheduled
            || self.config.priorities.rank == UnscheduledRank::Message;
        // What may go to an address that is not validated is counted by the packet, and a tag
        // covers the payload, which is not at hand.
        if !is_plain
            || !slot.server.is_validated
            || !is_ranked_whole
            || self.cookie_for(index, run) != 0
        {
            return None;
        }
        let priority = self.priority_of(index, run);
        let mut count = 0;
        for (from, room) in
            (0..run.len).step_by(piece_len as usize).zip(buffer.chunks_exact_mut(DATA_LEN))
        {
            let len = piece_len.min(run.len - from);
            let piece = Piece { offset: run.offset + from, len, ..run };
            let header = self.data_header(now, index, piece);
            room.copy_from_slice(header.as_bytes());
            self.note_sent(now, index, piece);
            count += 1;
        }
        self.metrics.datagrams_out += count as u64;
        self.note_batch_sent(now, index);
        let attached = Attached {
            header_len: DATA_LEN,
            message: self.rpcs.key(index).0,
            is_reply: !self.rpcs[index].is_client(),
            offset: run.offset as usize,
            len: run.len as usize,
        };
        let single = Transmit::single(self.path_of(index), count * DATA_LEN + attached.len);
        let segment_len = DATA_LEN + piece_len as usize;
        Some((Transmit { segment_len, priority, ..single }, attached))
    }

    /// The payload that has been left where it is.
    pub(super) fn attached_payload(&self, attached: &Attached) -> &[u8] {
        let Some(index) = self.rpcs.at(SlotKey(attached.message)) else { return &[] };
        let (offset, len) = (attached.offset as u32, attached.len as u32);
        let piece = Piece { offset, len, level: Level::Unscheduled, is_again: false };
        self.rpcs[index].out.bytes(piece)
    }

    /// Bytes of data in the packets of what an RPC sends, unscheduled and scheduled.
    #[inline]
    pub(super) fn lens(&self, slot: &Slot) -> (u32, u32) {
        self.config.framing.lens(&slot.out, self.peers[slot.peer].state.takes_long)
    }

    fn priority_of(&self, index: SlotId, piece: Piece) -> u8 {
        let slot = &self.rpcs[index];
        match (piece.level, self.config.priorities.rank) {
            (Level::Granted(level), _) => level,
            (Level::Unscheduled, UnscheduledRank::Message) => {
                self.peers[slot.peer].state.cutoffs.level(slot.out.len())
            }
            (Level::Unscheduled, UnscheduledRank::Remaining) => {
                self.peers[slot.peer].state.cutoffs.level(slot.out.len() - piece.offset)
            }
        }
    }

    /// Writes a piece of the message that an RPC sends to `room`, which is as long as it, and takes
    /// note that it went.
    #[inline]
    fn write_piece(&mut self, now: Time, index: SlotId, piece: Piece, room: &mut [u8]) {
        let header = self.data_header(now, index, piece);
        room[..DATA_LEN].copy_from_slice(header.as_bytes());
        let slot = &self.rpcs[index];
        let bytes = slot.out.bytes(piece);
        let (stored, padding) = room[DATA_LEN..].split_at_mut(bytes.len());
        stored.copy_from_slice(bytes);
        padding.fill(0);
        self.tag_piece(index, piece, room);
        let slot = &self.rpcs[index];
        let to = Path { local: slot.local, peer: self.peers[slot.peer].address };
        disguise(self.config.carrier, to, room);
        self.note_sent(now, index, piece);
        self.note_batch_sent(now, index);
    }

    /// The header of a piece of the message that an RPC sends.
    #[inline(always)]
    fn data_header(&mut self, now: Time, index: SlotId, piece: Piece) -> DataHeader {
        let slot = &mut self.rpcs[index];
        let peer = &mut self.peers[slot.peer];
        let mut header = DataHeader::new(slot.ports, slot.local_id(), slot.out.len(), piece.offset);
        header.incoming = slot.out.granted().into();
        header.cutoff_version = peer.state.cutoffs.version.into();
        // With the version, the echo by which a server validates this address.
        header.common.window = peer.state.shown.tag_told.into();
        header.flags = slot.flags;
        // At the client alone: a reply comes from another port than the calls that are
        // acknowledged.
        if matches!(slot.phase, Phase::Calling(_))
            && let Some(ack) = peer.state.acks.pop(peer.state.knows_flags)
        {
            header.ack = ack;
            self.metrics.acks_piggybacked += 1;
            // Whoever sleeps until then need not be woken.
            if peer.state.acks.is_empty() && self.egress.stop_acks_due(slot.peer) {
                peer.state.acks.note_untimed();
            }
        }
        if piece.is_again {
            header.retransmit = Age::of_ns(now.saturating_sub(slot.timing.first_sent_at)).0;
        }
        // Also what goes again when the reply has begun: a server that has released the request
        // takes it for a new one.
        if slot.is_client() {
            header.time_left = TimeLeft::of_ns(slot.deadline.saturating_sub(now)).0.into();
        }
        header
    }

    /// Takes note that a piece of the message that an RPC sends goes.
    #[inline(always)]
    fn note_sent(&mut self, now: Time, index: SlotId, piece: Piece) {
        let slot = &mut self.rpcs[index];
        slot.out.sent(piece);
        slot.timing.sent_at = now;
        if slot.timing.first_sent_at == 0 {
            slot.timing.first_sent_at = now.max(1);
        }
        slot.server.allowance.sent += DATA_LEN as u64 + u64::from(piece.len);
        let framing = &self.config.framing;
        self.egress.nic.add(now, piece.len + framing.unscheduled_overhead);
        self.egress.device.send(now, piece.len);
        self.metrics.data_bytes_out += u64::from(piece.len);
        self.metrics.resent_bytes += if piece.is_again { u64::from(piece.len) } else { 0 };
    }

    /// Ranks the message that an RPC sends after some of it went.
    #[inline(always)]
    fn note_batch_sent(&mut self, now: Time, index: SlotId) {
        self.rank_out(index);
        // From now on it is for the peer to say something.
        if !self.rpcs[index].out.is_sendable() && !self.is_armed_ahead(now, index) {
            self.arm(now, index);
        }
    }

    /// A reply must wait until its client's address is validated: tell it the version to tell back,
    /// and have it do so.
    fn hold_back(&mut self, now: Time, index: SlotId) {
        self.metrics.amplification_limited += 1;
        self.egress.unrank(index);
        self.arm(now, index);
        self.advise(now, index);
        if self.rpcs[index].server.flags & DataFlags::KNOWN != 0 {
            // Who has not heard of the version before, or only with a call that had ended, takes
            // note of the first; the second is the demand for a packet that says it.
            self.advise(now, index);
        } else {
            // The kernel's module does not send its request again because of CUTOFFS.
            let rpc = self.rpcs.key(index);
            self.push_control(Control::Plain { rpc, packet_type: PacketType::RpcUnknown });
        }
    }

    /// Writes what a server is to be told of RPCs that have ended, as a GSO batch; `None` when no
    /// server is, or other packets have taken everything along.
    pub(super) fn write_acks(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let count_max = self.config.gso_batch_len_max.clamp(1, GSO_DATAGRAMS_MAX);
        let mut batch = GsoBatch::with_trailer(buffer, self.trailer_len());
        while let Some(&peer) = self.egress.acks_called.front() {
            let Peer { address, state, .. } = &mut self.peers[peer];
            if state.acks.is_empty() {
                self.egress.acks_called.pop_front();
                continue;
            }
            let to = Path::from(*address);
            batch.set_addressee(state.addressee);
            let Some(room) = (batch.count() < count_max)
                .then(|| batch.room(to, size_of::<AckPacket>()))
                .flatten()
            else {
                break;
            };
            let first = state.acks.pop_one().unwrap_or_default();
            let ports =
                Ports { source: self.config.client_port, destination: first.server_port.get() };
            let common = CommonHeader::new(PacketType::Ack, ports, first.client_id.get());
            let named = ClientId(first.client_id.get());
            let (acks, count) = state.acks.take(named, state.knows_flags);
            put(room, &AckPacket { common, num_acks: (count as u16).into(), acks });
            disguise(self.config.carrier, to, room);
        }
        self.metrics.acks += batch.count() as u64;
        self.metrics.datagrams_out += batch.count() as u64;
        batch.finish().map(|transmit| Transmit { priority: CONTROL_PRIORITY, ..transmit })
    }

    /// Way and length of a control packet, and what it says to the seal; `None` when there is no
    /// longer a reason for it.
    fn outline(&mut self, control: Control) -> Option<(Path, usize, u64)> {
        let (rpc, len) = match control {
            Control::Grant { rpc } => (rpc, size_of::<GrantPacket>()),
            Control::Resend { rpc, .. } => (rpc, size_of::<ResendPacket>()),
            Control::Plain { rpc, .. } => (rpc, COMMON_LEN),
            Control::Cutoffs { rpc } => (rpc, size_of::<CutoffsPacket>()),
            Control::Unknown { to, addressee, .. } => return Some((to, COMMON_LEN, addressee)),
            Control::Ack { to, addressee, .. } => {
                return Some((to, size_of::<AckPacket>(), addressee));
            }
            Control::Cookie { to, .. } => return Some((to, size_of::<CookiePacket>(), 0)),
            Control::Validate { to, addressee, .. } => {
                return Some((to, size_of::<CutoffsPacket>(), addressee));
            }
            Control::Refused { to, addressee, .. } => return Some((to, DATA_LEN + 1, addressee)),
        };
        let index = self.rpcs.at(rpc)?;
        let trailer_len = self.trailer_len();
        let slot = &mut self.rpcs[index];
        // What is dropped here is said again: a GRANT names all that is granted, and questions are
        // repeated.
        if !slot.may_send(len + trailer_len) {
            slot.is_grant_queued = false;
            return None;
        }
        Some((self.path_of(index), len, self.addressee_of(index)))
    }

    /// Writes a control packet to `room`, which is as long as it.
    fn write_one(&mut self, control: Control, room: &mut [u8]) {
        match control {
            Control::Grant { rpc } => self.write_grant(rpc, room),
            Control::Resend { rpc, offset, length } => {
                self.metrics.resends += 1;
                // The lowest level above scheduled data, which what is missing is to pass.
                let priority = CONTROL_PRIORITY.min(self.advice.scheduled_levels);
                let (offset, length) = (offset.into(), length.into());
                let Some((_, common)) = self.speak(rpc, PacketType::Resend, room.len()) else {
                    return;
                };
                put(room, &ResendPacket { common, offset, length, priority });
            }
            Control::Plain { rpc, packet_type } => {
                *match packet_type {
                    PacketType::Busy => &mut self.metrics.busy,
                    PacketType::NeedAck => &mut self.metrics.need_acks,
                    _ => &mut self.metrics.unknowns,
                } += 1;
                if let Some((_, common)) = self.speak(rpc, packet_type, room.len()) {
                    put(room, &common);
                }
            }
            Control::Cutoffs { rpc } => {
                self.metrics.cutoffs += 1;
                let Some((index, common)) = self.speak(rpc, PacketType::Cutoffs, room.len()) else {
                    return;
                };
                let peer = &self.peers[self.rpcs[index].peer];
                let echo = peer.echo(self.advice.cutoffs.version);
                put(room, &self.cutoffs_packet(common, echo));
            }
            Control::Unknown { ports, local_id, .. } => {
                self.metrics.unknowns += 1;
                put(room, &CommonHeader::new(PacketType::RpcUnknown, ports, local_id));
            }
            Control::Ack { to, ports, id, .. } => {
                self.metrics.acks += 1;
                let common = CommonHeader::new(PacketType::Ack, ports, id.0);
                let (acks, count) = self.peers.find(to.peer).map_or(Default::default(), |peer| {
                    let state = &mut self.peers[peer].state;
                    state.acks.take(id, state.knows_flags)
                });
                put(room, &AckPacket { common, num_acks: (count as u16).into(), acks });
            }
            Control::Validate { to, ports, id, .. } => {
                self.metrics.cutoffs += 1;
                let common = CommonHeader::new(PacketType::Cutoffs, ports, id.0 | 1);
                put(room, &self.cutoffs_packet(common, self.echo_for(to.peer)));
            }
            Control::Cookie { .. } => {
                if let Some(packet) = self.cookie_packet(control) {
                    put(room, &packet);
                }
            }
            Control::Refused { ports, id, reason, .. } => {
                let mut header = DataHeader::new(ports, id.0 | 1, 1, 0);
                header.incoming = 1.into();
                header.flags = DataFlags::KNOWN | DataFlags::REFUSED;
                put(room, &header);
                room[DATA_LEN] = reason as u8;
            }
        }
    }

    /// Our cutoffs, with what their receiver is to echo.
    fn cutoffs_packet(&self, common: CommonHeader, echo: Echo) -> CutoffsPacket {
        let common = CommonHeader { window: echo.tag.into(), ..common };
        let cutoffs = self.advice.cutoffs.by_level.map(Into::into);
        CutoffsPacket { common, cutoffs, version: echo.version.into() }
    }

    fn write_grant(&mut self, rpc: SlotKey, room: &mut [u8]) {
        self.metrics.grants += 1;
        let Some((index, common)) = self.speak(rpc, PacketType::Grant, room.len()) else {
            return;
        };
        let slot = &mut self.rpcs[index];
        slot.is_grant_queued = false;
        let offset = slot.inc.message.granted().into();
        put(room, &GrantPacket { common, offset, priority: slot.inc.priority });
    }

    /// The RPC of which `len` bytes are said, which [`Endpoint::outline`] has found alive, and the
    /// header.
    fn speak(
        &mut self,
        rpc: SlotKey,
        packet_type: PacketType,
        len: usize,
    ) -> Option<(SlotId, CommonHeader)> {
        let index = self.rpcs.at(rpc)?;
        self.rpcs[index].server.allowance.sent += (len + self.trailer_len()) as u64;
        Some((index, self.common(index, packet_type)))
    }

    fn common(&self, index: SlotId, packet_type: PacketType) -> CommonHeader {
        let slot = &self.rpcs[index];
        CommonHeader::new(packet_type, slot.ports, slot.local_id())
    }

    /// The way to the peer of an RPC.
    pub(super) fn path_of(&self, index: SlotId) -> Path {
        let slot = &self.rpcs[index];
        Path { local: slot.local, peer: self.peers[slot.peer].address }
    }
}

/// Makes a packet that has been written what the carrier wants.
fn disguise(carrier: Carrier, path: Path, packet: &mut [u8]) {
    if let Carrier::HijackedTcp { source } = carrier {
        // TCP's checksum covers the source, which is not known from a peer before it has answered.
        hijack(packet, path.local.unwrap_or(source), path.peer.ip());
    }
}

fn put(room: &mut [u8], packet: &(impl IntoBytes + zerocopy::Immutable)) {
    let bytes = packet.as_bytes();
    room[..bytes.len()].copy_from_slice(bytes);
}

/// Control packets go at the highest priority.
pub(super) const CONTROL_PRIORITY: u8 = 7;
