//! What goes out: control packets first, then the message with the fewest bytes left (SRPT).

use tailcut_wire::homa::{
    AckPacket, Age, COMMON_LEN, CommonHeader, CutoffsPacket, DATA_LEN, DataFlags, DataHeader,
    GrantPacket, PacketType, Ports, ResendPacket, TimeLeft, hijack,
};
use tailcut_wire::r2p2::DropReason;
use zerocopy::IntoBytes;

use super::ids::ClientId;
use super::outgoing::{Level, Piece};
use super::peers::Echo;
use super::{Carrier, Endpoint, Phase, UnscheduledRank};
use crate::call::slab::{SlotId, SlotKey};
use crate::gso_batch::GsoBatch;
use crate::node::{GSO_DATAGRAMS_MAX, Path, Time, Transmit};
use crate::peer::table::PeerId;

/// A control packet that waits to be sent. What is said of an RPC is read from it when it goes, and
/// not at all when it has ended.
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
    /// A packet that is nothing but its type: BUSY or NEED_ACK.
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
    },
    /// An RPC that has ended at its client, and others with the same server.
    Ack {
        to: Path,
        ports: Ports,
        id: ClientId,
    },
    /// All RPCs with a server that have ended at their client and that it has not been told of.
    Acks {
        peer: PeerId,
    },
    /// Our cutoffs to a stranger, who must tell their version back.
    Prove {
        to: Path,
        ports: Ports,
        id: ClientId,
    },
    /// A request that is not served.
    Refused {
        to: Path,
        ports: Ports,
        id: ClientId,
        reason: DropReason,
    },
}

impl Endpoint {
    /// Writes the next control packet.
    pub(super) fn write_control(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        while let Some(&control) = self.egress.control.front() {
            if buffer.len() < CONTROL_LEN_MAX {
                return None;
            }
            self.egress.control.pop_front();
            if let Control::Acks { peer } = control {
                match self.write_acks(peer, buffer) {
                    Some(transmit) => return Some(transmit),
                    None => continue,
                }
            }
            if let Some((to, len)) = self.write_one(now, control, buffer) {
                disguise(self.config.carrier, to, &mut buffer[..len]);
                self.metrics.datagrams_out += 1;
                return Some(Transmit { priority: CONTROL_PRIORITY, ..Transmit::single(to, len) });
            }
        }
        None
    }

    /// Writes data: a GSO batch of equal packets to one peer at one priority, in the order of SRPT.
    pub(super) fn write_data(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let mut batch = GsoBatch::new(buffer);
        let mut train_priority = None;
        let count_max = self.config.gso_batch_len_max.clamp(1, GSO_DATAGRAMS_MAX);
        let lens = (self.config.framing.unscheduled_len, self.config.framing.scheduled_len);
        while let Some(index) = self.egress.first() {
            let slot = &self.slots[index];
            let Some(piece) = slot.out.peek(lens).filter(|_| batch.count() < count_max) else {
                break;
            };
            let priority = self.priority_of(index, piece);
            if train_priority.is_some_and(|same| same != priority)
                || !self.egress.nic.takes(now, slot.out.len())
            {
                break;
            }
            let len = DATA_LEN + piece.len as usize;
            if !slot.may_send(len) {
                self.hold_back(now, index);
                continue;
            }
            let Some(room) = batch.room(&self.path_of(index), len) else {
                if batch.count() == 0 {
                    self.egress.device.refuse(now);
                }
                break;
            };
            self.write_piece(now, index, piece, room);
            train_priority = Some(priority);
        }
        self.metrics.datagrams_out += batch.count() as u64;
        let priority = train_priority.unwrap_or(0);
        batch.finish().map(|transmit| Transmit { priority, ..transmit })
    }

    fn priority_of(&self, index: SlotId, piece: Piece) -> u8 {
        let slot = &self.slots[index];
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
    fn write_piece(&mut self, now: Time, index: SlotId, piece: Piece, room: &mut [u8]) {
        let slot = &mut self.slots[index];
        let peer = &mut self.peers[slot.peer];
        let mut header = DataHeader::new(slot.ports, slot.local_id(), slot.out.len(), piece.offset);
        header.incoming = slot.out.granted().into();
        header.cutoff_version = peer.state.cutoffs.version.into();
        header.common.window = peer.state.tag_told.into();
        header.flags = slot.flags;
        // At the client alone: a reply comes from another port than the calls that are
        // acknowledged.
        if matches!(slot.phase, Phase::Calling(_))
            && let Some(ack) = peer.state.acks.pop()
        {
            header.ack = ack;
            self.metrics.acks_piggybacked += 1;
        }
        if piece.is_again {
            header.retransmit = Age::of_ns(now.saturating_sub(slot.timing.first_sent_at)).0;
        }
        if matches!(slot.phase, Phase::Calling(_)) {
            header.time_left = TimeLeft::of_ns(slot.deadline.saturating_sub(now)).0.into();
        }
        room[..DATA_LEN].copy_from_slice(header.as_bytes());
        let bytes = slot.out.bytes(piece);
        let (stored, padding) = room[DATA_LEN..].split_at_mut(bytes.len());
        stored.copy_from_slice(bytes);
        padding.fill(0);
        slot.out.sent(piece);
        slot.timing.sent_at = now;
        if slot.timing.first_sent_at == 0 {
            slot.timing.first_sent_at = now.max(1);
        }
        slot.allowance.sent += room.len() as u64;
        let to = Path { local: slot.local, peer: peer.address };
        disguise(self.config.carrier, to, room);
        let framing = &self.config.framing;
        self.egress.nic.add(now, piece.len + framing.unscheduled_overhead);
        self.egress.device.send(now, piece.len);
        self.metrics.data_bytes_out += u64::from(piece.len);
        self.rank_out(index);
        if !self.slots[index].out.is_sendable() {
            // From now on it is for the peer to say something.
            self.arm(now, index);
        }
    }

    /// A reply must wait until its client's address is validated: tell it the version to tell back.
    fn hold_back(&mut self, now: Time, index: SlotId) {
        self.metrics.amplification_limited += 1;
        self.egress.unrank(index);
        self.advise(now, index);
    }

    /// Writes what a server is to be told of RPCs that have ended, as a GSO batch; `None` when
    /// other packets have taken them along.
    fn write_acks(&mut self, peer: PeerId, buffer: &mut [u8]) -> Option<Transmit> {
        let count_max = self.config.gso_batch_len_max.clamp(1, GSO_DATAGRAMS_MAX);
        let (mut batch, to) = (GsoBatch::new(buffer), Path::from(self.peers[peer].address));
        let acks = &mut self.peers[peer].state.acks;
        while !acks.is_empty() {
            let Some(room) = (batch.count() < count_max)
                .then(|| batch.room(&to, size_of::<AckPacket>()))
                .flatten()
            else {
                self.egress.control.push_front(Control::Acks { peer });
                break;
            };
            let first = acks.pop().unwrap_or_default();
            let ports =
                Ports { source: self.config.client_port, destination: first.server_port.get() };
            let common = CommonHeader::new(PacketType::Ack, ports, first.client_id.get());
            let (others, count) = acks.take(ClientId(first.client_id.get()));
            put(room, &AckPacket { common, num_acks: (count as u16).into(), acks: others });
            disguise(self.config.carrier, to, room);
        }
        self.metrics.acks += batch.count() as u64;
        self.metrics.datagrams_out += batch.count() as u64;
        batch.finish().map(|transmit| Transmit { priority: CONTROL_PRIORITY, ..transmit })
    }

    /// Writes a control packet; `None` when there is no longer a reason to.
    fn write_one(
        &mut self,
        now: Time,
        control: Control,
        buffer: &mut [u8],
    ) -> Option<(Path, usize)> {
        match control {
            Control::Grant { rpc } => {
                let index = self.speaker(rpc, size_of::<GrantPacket>())?;
                Some(self.write_grant(now, index, buffer))
            }
            Control::Resend { rpc, offset, length } => {
                let index = self.speaker(rpc, size_of::<ResendPacket>())?;
                self.metrics.resends += 1;
                let priority = CONTROL_PRIORITY.min(self.advice.scheduled_levels);
                let (offset, length) = (offset.into(), length.into());
                let common = self.common(index, PacketType::Resend);
                Some((
                    self.path_of(index),
                    put(buffer, &ResendPacket { common, offset, length, priority }),
                ))
            }
            Control::Plain { rpc, packet_type } => {
                let index = self.speaker(rpc, COMMON_LEN)?;
                let is_busy = packet_type == PacketType::Busy;
                *(if is_busy { &mut self.metrics.busy } else { &mut self.metrics.need_acks }) += 1;
                Some((self.path_of(index), put(buffer, &self.common(index, packet_type))))
            }
            Control::Cutoffs { rpc } => {
                let index = self.speaker(rpc, size_of::<CutoffsPacket>())?;
                self.metrics.cutoffs += 1;
                let common = self.common(index, PacketType::Cutoffs);
                let peer = &self.peers[self.slots[index].peer];
                let echo = peer.echo(self.advice.cutoffs.version);
                Some((self.path_of(index), put(buffer, &self.cutoffs_packet(common, echo))))
            }
            Control::Unknown { to, ports, local_id } => {
                self.metrics.unknowns += 1;
                Some((to, put(buffer, &CommonHeader::new(PacketType::RpcUnknown, ports, local_id))))
            }
            Control::Ack { to, ports, id } => {
                self.metrics.acks += 1;
                let common = CommonHeader::new(PacketType::Ack, ports, id.0);
                let (acks, count) = self
                    .peers
                    .find(to.peer)
                    .map_or(Default::default(), |peer| self.peers[peer].state.acks.take(id));
                Some((
                    to,
                    put(buffer, &AckPacket { common, num_acks: (count as u16).into(), acks }),
                ))
            }
            // Written as GSO batches.
            Control::Acks { .. } => None,
            Control::Prove { to, ports, id } => {
                self.metrics.cutoffs += 1;
                let common = CommonHeader::new(PacketType::Cutoffs, ports, id.0 | 1);
                let echo = self.echo_for(to.peer);
                Some((to, put(buffer, &self.cutoffs_packet(common, echo))))
            }
            Control::Refused { to, ports, id, reason } => {
                let mut header = DataHeader::new(ports, id.0 | 1, 1, 0);
                header.incoming = 1.into();
                header.flags = DataFlags::KNOWN | DataFlags::REFUSED;
                let len = put(buffer, &header);
                buffer[len] = reason as u8;
                Some((to, len + 1))
            }
        }
    }

    /// Our cutoffs, with what their receiver is to echo.
    fn cutoffs_packet(&self, common: CommonHeader, echo: Echo) -> CutoffsPacket {
        let common = CommonHeader { window: echo.tag.into(), ..common };
        let cutoffs = self.advice.cutoffs.by_level.map(Into::into);
        CutoffsPacket { common, cutoffs, version: echo.version.into() }
    }

    fn write_grant(&mut self, now: Time, index: SlotId, buffer: &mut [u8]) -> (Path, usize) {
        self.metrics.grants += 1;
        let common = self.common(index, PacketType::Grant);
        let slot = &mut self.slots[index];
        slot.is_grant_queued = false;
        if slot.inc.probe.is_none() {
            slot.inc.probe = Some((slot.inc.message.highest(), now));
        }
        let grant = GrantPacket {
            common,
            offset: slot.inc.message.granted().into(),
            priority: slot.inc.priority,
        };
        (self.path_of(index), put(buffer, &grant))
    }

    /// The RPC of which `len` bytes are to be said, if it still lives and its peer may be sent so
    /// much.
    fn speaker(&mut self, rpc: SlotKey, len: usize) -> Option<SlotId> {
        let index = self.slots.find(rpc)?;
        let slot = &mut self.slots[index];
        if !slot.may_send(len) {
            slot.is_grant_queued = false;
            return None;
        }
        slot.allowance.sent += len as u64;
        Some(index)
    }

    fn common(&self, index: SlotId, packet_type: PacketType) -> CommonHeader {
        let slot = &self.slots[index];
        CommonHeader::new(packet_type, slot.ports, slot.local_id())
    }

    /// The way to the peer of an RPC.
    pub(super) fn path_of(&self, index: SlotId) -> Path {
        let slot = &self.slots[index];
        Path { local: slot.local, peer: self.peers[slot.peer].address }
    }
}

/// Makes a packet that has been written what the carrier wants.
fn disguise(carrier: Carrier, path: Path, packet: &mut [u8]) {
    if let Carrier::HijackedTcp { source } = carrier {
        hijack(packet, path.local.unwrap_or(source), path.peer.ip());
    }
}

fn put(buffer: &mut [u8], packet: &(impl IntoBytes + zerocopy::Immutable)) -> usize {
    let bytes = packet.as_bytes();
    buffer[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

/// Control packets go at the highest priority.
const CONTROL_PRIORITY: u8 = 7;

/// The longest control packet.
const CONTROL_LEN_MAX: usize = size_of::<AckPacket>();
