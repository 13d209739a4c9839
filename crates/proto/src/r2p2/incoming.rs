//! A message on its way in: reassembly tolerant of reordering and duplication, and the credit given
//! to its sender.
//!
//! Invariant: memory grows with what has arrived plus the credit that was given, never with what a
//! header claims.

use tailcut_wire::r2p2::{SackBody, packet_count, payload_span};

use super::bits::Bits;
use crate::message::{Arrival, store};

/// A message that is being received.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// What has arrived; zeros where something is missing.
    payload: Vec<u8>,
    /// Bytes of the message.
    message_len: u32,
    /// Bytes of each packet but the last.
    segment_len: u16,
    /// Packets of the message; 0 when none has begun.
    count: u16,
    /// Every packet below this has arrived.
    base: u16,
    /// Packets that have arrived, at or above `base`.
    arrived: Bits,
    /// Packets that have arrived.
    arrived_count: u16,
    /// One past the highest that has arrived.
    end: u16,
    /// Packets below this may be sent by the peer.
    granted: u16,
    /// What the peer was last told of `granted`.
    announced: u16,
    /// An ACK for it stands in the queue of what is to be sent.
    pub(super) is_sack_queued: bool,
}

/// A message whose packets must come in order, as version 1 wants it.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    /// What has come.
    payload: Vec<u8>,
    /// Packets of the message.
    count: u16,
    /// The packet that comes next.
    next: u16,
}

impl InOrder {
    /// Begins a message of `count` packets into `payload`, an empty buffer.
    pub(super) fn begin(payload: Vec<u8>, count: u16) -> Self {
        Self { payload, count, next: 0 }
    }

    /// Takes the next packet; tells whether the message is complete.
    pub(super) fn accept(&mut self, bytes: &[u8]) -> bool {
        self.payload.extend_from_slice(bytes);
        self.next += 1;
        self.next == self.count
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    pub(super) fn next(&self) -> u16 {
        self.next
    }

    pub(super) fn len(&self) -> usize {
        self.payload.len()
    }

    /// Ends the message and hands over its bytes.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self).payload
    }
}

impl Incoming {
    /// Begins a message into `payload`, an empty buffer, with credit for `granted` packets. The
    /// lengths come from a parsed packet, so that they are coherent.
    pub(super) fn begin(
        &mut self,
        payload: Vec<u8>,
        message_len: u32,
        segment_len: u16,
        granted: u16,
    ) {
        let count = packet_count(message_len, segment_len).unwrap_or(1);
        self.payload = payload;
        self.message_len = message_len;
        self.segment_len = segment_len;
        self.count = count;
        self.base = 0;
        self.arrived_count = 0;
        self.end = 0;
        self.granted = granted.min(count);
        self.announced = self.granted;
        self.arrived.clear();
    }

    /// Takes packet `index` of a message that its header says has these lengths.
    pub(super) fn accept(&mut self, index: u16, lengths: (u32, u16), bytes: &[u8]) -> Arrival {
        if lengths != (self.message_len, self.segment_len) || index >= self.granted {
            return Arrival::Refused;
        }
        if index < self.base || !self.arrived.insert(index) {
            return Arrival::Duplicate;
        }
        let (offset, _) = payload_span(index, self.message_len, self.segment_len);
        store(&mut self.payload, offset, bytes);
        self.arrived_count += 1;
        self.end = self.end.max(index + 1);
        if index == self.base {
            self.base = self.arrived.first_absent_from(index).min(self.count);
        }
        if self.arrived_count == self.count { Arrival::Complete } else { Arrival::New }
    }

    /// Ends the message and hands over its bytes.
    pub(super) fn end(&mut self) -> Vec<u8> {
        self.count = 0;
        self.granted = 0;
        self.announced = 0;
        self.arrived_count = 0;
        self.arrived.clear();
        std::mem::take(&mut self.payload)
    }

    pub(super) fn is_begun(&self) -> bool {
        self.count > 0
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// Bytes that have arrived or that the credit allows to arrive.
    pub(super) fn held_bytes(&self) -> usize {
        (usize::from(self.granted) * usize::from(self.segment_len)).min(self.message_len as usize)
    }

    /// Packets that the peer may send and that have not arrived.
    pub(super) fn expected_packets(&self) -> u16 {
        self.granted - self.arrived_count
    }

    /// Raises the credit so that `ahead` packets are expected; tells by how many packets it rose.
    pub(super) fn extend_credit(&mut self, ahead: u16) -> u16 {
        let granted = self.arrived_count.saturating_add(ahead).min(self.count);
        let rise = granted.saturating_sub(self.granted);
        self.granted += rise;
        rise
    }

    /// Packets of credit that the peer has not been told of.
    pub(super) fn unannounced(&self) -> u16 {
        self.granted - self.announced
    }

    /// Packets that the peer knows it may send and that have not arrived.
    pub(super) fn announced_left(&self) -> u16 {
        self.announced.saturating_sub(self.arrived_count)
    }

    /// Whether a packet is missing at least `reorder` below the highest that has arrived.
    pub(super) fn has_gap(&self, reorder: u16) -> bool {
        self.base.saturating_add(reorder) < self.end
    }

    /// The ACK and credit to send.
    pub(super) fn sack(&mut self) -> SackBody {
        self.announced = self.granted;
        let mut bitmap = [0; SackBody::BITMAP_LEN];
        let mut next = self.base.saturating_add(1);
        while let Some(index) = self.arrived.first_from(next) {
            let bit = usize::from(index - self.base - 1);
            if bit >= usize::from(SackBody::BITS) {
                break;
            }
            bitmap[bit / 8] |= 1 << (bit % 8);
            next = index + 1;
        }
        SackBody { base: self.base.into(), granted: self.granted.into(), bitmap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: (u32, u16) = (35, 10);

    fn check(order: &[u16], expected: &[Arrival]) {
        let whole: Vec<u8> = (0..35).collect();
        let mut message = Incoming::default();
        message.begin(Vec::new(), LENGTHS.0, LENGTHS.1, 4);
        for (&index, &arrival) in order.iter().zip(expected) {
            let (offset, len) = payload_span(index, 35, 10);
            assert_eq!(
                message.accept(index, LENGTHS, &whole[offset..offset + len]),
                arrival,
                "packet {index}"
            );
        }
        if expected.last() == Some(&Arrival::Complete) {
            assert_eq!(message.end(), whole);
        }
    }

    #[test]
    fn reassembles_in_any_order() {
        use Arrival::{Complete, New};
        check(&[0, 1, 2, 3], &[New, New, New, Complete]);
        check(&[3, 2, 1, 0], &[New, New, New, Complete]);
        check(&[2, 0, 3, 1], &[New, New, New, Complete]);
    }

    #[test]
    fn tells_duplicates() {
        use Arrival::{Duplicate, New};
        check(&[0, 0, 2, 2, 1, 1], &[New, Duplicate, New, Duplicate, New, Duplicate]);
    }

    #[test]
    fn refuses_what_exceeds_the_credit_or_contradicts_the_first_packet() {
        let mut message = Incoming::default();
        message.begin(Vec::new(), LENGTHS.0, LENGTHS.1, 2);
        assert_eq!(message.accept(2, LENGTHS, &[0; 10]), Arrival::Refused);
        assert_eq!(message.accept(0, (36, 10), &[0; 10]), Arrival::Refused);
    }

    #[test]
    fn an_ack_names_what_has_arrived() {
        let mut message = Incoming::default();
        message.begin(Vec::new(), 1000, 10, 100);
        for index in [0, 1, 3, 9, 70] {
            message.accept(index, (1000, 10), &[0; 10]);
        }
        let sack = message.sack();
        let said: Vec<u16> = (0..100).filter(|&index| sack.has(index)).collect();
        assert_eq!(said, [0, 1, 3, 9, 70]);
        assert!(message.has_gap(3));
        assert_eq!(message.unannounced(), 0);
    }
}
