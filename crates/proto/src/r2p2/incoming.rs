//! A message on its way in: the credit given to its sender, and what is acknowledged to it.

use tailcut_wire::r2p2::{SackBody, packet_count, payload_span};

use crate::message::reassembly::{Arrival, Reassembly};

/// A message that is being received.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// It has begun, and not ended.
    is_begun: bool,
    /// Its packets, once one has been received here: in a box, since most messages are whole in
    /// their only packet, and slots of those fit a cache. It stays for the next in the slot.
    message: Option<Box<Reassembly>>,
    /// Bytes of the message.
    message_len: u32,
    /// Bytes of each packet but the last.
    segment_len: u16,
    /// Packets as long as ours that one of them counts for.
    weight: u32,
    /// Credit that the peer was last told.
    announced: u32,
    /// An ACK for it stands in the queue of what is to be sent.
    pub(super) is_sack_queued: bool,
}

/// A message whose packets must come in order, as version 1 wants it.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    /// Bytes that have come.
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
    /// Begins a message into an empty buffer, with credit for `granted` packets. The
    /// lengths come from a parsed packet, so that they are coherent.
    pub(super) fn begin(
        &mut self,
        buffer: Vec<u8>,
        message_len: u32,
        segment_len: u16,
        granted: u16,
    ) {
        let count = packet_count(message_len, segment_len).unwrap_or(1);
        self.message_len = message_len;
        self.segment_len = segment_len;
        self.weight = 1;
        // The credit alone bounds the holes.
        let message = self.message.get_or_insert_default();
        message.begin(count.into(), granted.into(), usize::MAX);
        message.store_in(buffer, message_len as usize);
        self.announced = message.granted();
        self.is_begun = true;
    }

    /// Takes packet `index` of a message that its header says has these lengths.
    pub(super) fn accept(&mut self, index: u16, lengths: (u32, u16), bytes: &[u8]) -> Arrival {
        // By other lengths its bytes would belong elsewhere, over what has come already.
        if lengths != (self.message_len, self.segment_len) {
            return Arrival::Refused;
        }
        let Some(message) = &mut self.message else { return Arrival::Refused };
        let (offset, _) = payload_span(index, self.message_len, self.segment_len);
        message.accept(index.into(), u32::from(index) + 1, offset, bytes).0
    }

    /// Ends the message and hands over its bytes.
    pub(super) fn end(&mut self) -> Vec<u8> {
        (self.announced, self.is_begun) = (0, false);
        self.message.as_mut().map(|message| message.end()).unwrap_or_default()
    }

    /// A buffer that the message which has ended last did not need any more.
    pub(super) fn take_spare(&mut self) -> Vec<u8> {
        self.message.as_mut().map(|message| message.take_spare()).unwrap_or_default()
    }

    #[inline]
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// A count of its packets; 0 where none has ever been received here.
    fn ask(&self, ask: impl FnOnce(&Reassembly) -> u32) -> u32 {
        self.message.as_deref().map_or(0, ask)
    }

    pub(super) fn count(&self) -> u16 {
        self.ask(Reassembly::len) as u16
    }

    /// Bytes that have arrived or that the credit allows to arrive.
    pub(super) fn held_bytes(&self) -> usize {
        (self.ask(Reassembly::granted) as usize * usize::from(self.segment_len))
            .min(self.message_len as usize)
    }

    /// Credit is counted in packets of `segment_len` bytes: longer ones count for several.
    pub(super) fn count_by(&mut self, segment_len: u16) {
        self.weight = u32::from(self.segment_len.div_ceil(segment_len.max(1)).max(1));
    }

    /// Packets that the peer may send and that have not arrived.
    pub(super) fn expected_packets(&self) -> u32 {
        self.ask(Reassembly::expected) * self.weight
    }

    /// Raises the credit so that `ahead` packets are expected.
    pub(super) fn extend_credit(&mut self, ahead: u32) {
        // At least one, so that a message moves whose packets are longer than its share.
        let ahead = if self.weight <= 1 { ahead } else { (ahead / self.weight).max(1) };
        if let Some(message) = &mut self.message {
            message.grant(message.received().saturating_add(ahead));
        }
    }

    /// Packets of credit that the peer has not been told of.
    pub(super) fn unannounced(&self) -> u32 {
        (self.ask(Reassembly::granted) - self.announced) * self.weight
    }

    /// Packets that the peer knows it may send and that have not arrived.
    pub(super) fn announced_left(&self) -> u32 {
        // Who sends within credit that it has not been told of is ahead of what was announced.
        self.announced.saturating_sub(self.ask(Reassembly::received)) * self.weight
    }

    /// True if a packet is missing at least `reorder` below the highest that has arrived.
    pub(super) fn has_gap(&self, reorder: u16) -> bool {
        self.ask(Reassembly::base) + u32::from(reorder) < self.ask(Reassembly::highest)
    }

    /// The ACK and credit to send.
    pub(super) fn sack(&mut self) -> SackBody {
        self.announced = self.ask(Reassembly::granted);
        let mut bitmap = [0; SackBody::BITMAP_LEN];
        let base = self.ask(Reassembly::base);
        for &(from, to) in self.message.iter().flat_map(|message| message.ranges()) {
            // Packet `base` has no bit, since it is missing: no range begins there. What lies
            // beyond the last bit is told when the base has moved.
            for bit in from - base - 1..(to - base - 1).min(SackBody::BITS.into()) {
                bitmap[bit as usize / 8] |= 1 << (bit % 8);
            }
        }
        let granted = self.announced as u16;
        SackBody { base: (base as u16).into(), granted: granted.into(), bitmap }
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
    fn packets_far_beyond_the_others_are_where_they_belong_in_the_end() {
        const LENGTHS: (u32, u16) = (200_000, 1000);
        let whole: Vec<u8> = (0..LENGTHS.0).map(|at| (at / 7) as u8).collect();
        let mut message = Incoming::default();
        message.begin(Vec::new(), LENGTHS.0, LENGTHS.1, 200);
        let mut take = |index: u16| {
            let (offset, len) = payload_span(index, LENGTHS.0, LENGTHS.1);
            message.accept(index, LENGTHS, &whole[offset..offset + len])
        };
        assert!([0, 199, 120, 60, 198].map(&mut take).iter().all(|&it| it == Arrival::New));
        assert!((1..60).chain(61..120).all(|index| take(index) == Arrival::New));
        assert!((121..197).all(|index| take(index) == Arrival::New));
        assert_eq!(take(197), Arrival::Complete);
        assert_eq!(message.end(), whole);
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

    #[test]
    fn a_gap_is_as_wide_as_packets_overtake_each_other() {
        for (highest, is_gap) in [(3, false), (4, true)] {
            let mut message = Incoming::default();
            message.begin(Vec::new(), 1000, 10, 100);
            for index in [0, 1, highest] {
                message.accept(index, (1000, 10), &[0; 10]);
            }
            assert_eq!(message.has_gap(2), is_gap, "packet 2 is missing, {highest} is here");
        }
        let mut message = Incoming::default();
        message.begin(Vec::new(), 1000, 10, 100);
        message.accept(0, (1000, 10), &[0; 10]);
        assert!(!message.has_gap(0));
    }

    /// 35 bytes in packets of 10.
    #[test]
    fn a_message_holds_what_its_credit_allows() {
        for (granted, bytes) in [(1, 10), (3, 30), (4, 35), (100, 35)] {
            let mut message = Incoming::default();
            message.begin(Vec::new(), LENGTHS.0, LENGTHS.1, granted);
            assert_eq!((message.held_bytes(), message.count()), (bytes, 4));
        }
    }

    #[test]
    fn credit_is_announced_by_acks() {
        let mut message = Incoming::default();
        message.begin(Vec::new(), 1000, 10, 12);
        for index in 0..3 {
            message.accept(index, (1000, 10), &[0; 10]);
        }
        assert_eq!((message.expected_packets(), message.announced_left()), (9, 9));
        message.extend_credit(20);
        assert_eq!((message.expected_packets(), message.announced_left()), (20, 9));
        assert_eq!((message.unannounced(), message.sack().granted.get()), (11, 23));
        assert_eq!((message.unannounced(), message.announced_left()), (0, 20));
    }

    #[test]
    fn packets_in_order_add_up() {
        let mut message = InOrder::begin(Vec::new(), 2);
        assert!(!message.accept(&[1, 2, 3]));
        assert_eq!((message.len(), message.next(), message.count()), (3, 1, 2));
        assert!(message.accept(&[4]));
        assert_eq!(message.take(), [1, 2, 3, 4]);
    }

    /// One that was meant for the whole, of which a part was kept aside.
    #[test]
    fn a_buffer_that_was_not_needed_is_given_back() {
        let mut message = Incoming::default();
        message.begin(Vec::with_capacity(40), LENGTHS.0, LENGTHS.1, 4);
        message.accept(0, LENGTHS, &[0; 10]);
        let whole = message.end();
        let spare = message.take_spare();
        assert!(whole.capacity() + spare.capacity() >= 40);
        assert!(spare.is_empty() && message.take_spare().capacity() == 0);
    }
}
