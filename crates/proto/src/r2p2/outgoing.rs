//! A message on its way out: which packets may go, which have arrived, which must go again.
//!
//! Used for request data at the client and for reply data at the server. It knows nothing of time:
//! its owner decides when a hole is a loss.

use tailcut_wire::r2p2::{SackBody, Segment, packet_count, payload_span};

use super::bits::Bits;
use super::{UNSCHEDULED_PACKETS, unscheduled_packets};
use crate::message::payload::Payload;
use crate::node::Attached;
use crate::work;

/// A message that is being sent.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// The message.
    payload: Payload,
    /// Bytes of each packet but the last, and the first after a lead.
    segment_len: u16,
    /// Bytes by which packet 0 is shorter than the others; 0 but for version 1 requests of several
    /// packets.
    lead: u16,
    /// Packets of the message.
    count: u16,
    /// Packets below this have been sent at least once.
    next: u16,
    /// Packets below this may be sent.
    granted: u16,
    /// Packets below this have arrived.
    base: u16,
    /// Arrived, at or above `base`.
    arrived: Bits,
    /// One past the highest that has arrived.
    arrived_end: u16,
    /// To be sent again.
    resend: Bits,
    /// Members of `resend`.
    resend_count: u16,
    /// Packet 0 is to be sent again although it may have arrived, to make the peer speak.
    is_first_due: bool,
    /// It stands in the queue of what is to be sent.
    pub(super) is_queued: bool,
}

impl Outgoing {
    /// Begins a message in a slot where the last has ended.
    ///
    /// # Panics
    ///
    /// When it has more packets than a message can have, which whoever took the payload has to see.
    #[inline(always)]
    pub(super) fn begin(&mut self, payload: Payload, segment_len: u16, granted: u16) {
        self.begin_after_lead(payload, segment_len, 0, granted);
    }

    /// As [`Outgoing::begin`], with packets of `segment_len_max` at most and credit for the first:
    /// those of a short message are equal, so that one GSO batch holds several such messages.
    #[inline(always)]
    pub(super) fn begin_even(&mut self, payload: Payload, segment_len_max: u16) {
        let len = payload.len() as u32;
        let segment_len = match packet_count(len, segment_len_max) {
            Some(count @ 2..=UNSCHEDULED_PACKETS) => len.div_ceil(count.into()) as u16,
            _ => segment_len_max,
        };
        self.begin(payload, segment_len, 1);
    }

    /// As [`Outgoing::begin`], with a first packet that is `lead` bytes shorter than the others.
    #[inline(always)]
    pub(super) fn begin_after_lead(
        &mut self,
        payload: Payload,
        segment_len: u16,
        lead: u16,
        granted: u16,
    ) {
        let count = packet_count((payload.len() + usize::from(lead)) as u32, segment_len);
        self.payload = payload;
        self.segment_len = segment_len;
        self.lead = lead;
        self.count = count.expect("the longest message is bounded by the packets that it may have");
        self.granted = granted.min(self.count);
    }

    /// Drops the record of what was sent and what has arrived, so that all of it goes again.
    pub(super) fn restart(&mut self) {
        // Whoever takes it now gives credit anew; packet 0 goes without.
        self.granted = self.granted.min(1);
        self.next = 0;
        self.base = 0;
        self.arrived_end = 0;
        self.resend_count = 0;
        self.is_first_due = false;
        self.arrived.clear();
        self.resend.clear();
    }

    /// Holds what was sent behind packet 0 until there is credit: it has gone to somebody who has
    /// no use for it.
    pub(super) fn hold_rest(&mut self) {
        self.granted = self.granted.min(1);
        self.next = self.next.min(1);
    }

    /// Ends the message and hands its buffer back.
    pub(super) fn end(&mut self) -> Vec<u8> {
        self.count = 0;
        self.granted = 0;
        self.is_queued = false;
        self.restart();
        self.payload.take()
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    pub(super) fn len(&self) -> usize {
        self.payload.len()
    }

    /// The place of packet `index` in the message.
    #[inline]
    pub(super) fn place(&self, index: u16) -> Segment {
        let Self { segment_len, count, .. } = *self;
        Segment { message_len: self.len() as u32, segment_len, index, count }
    }

    /// True if a GSO batch of packets as long as `index` cannot go on with the one that is next,
    /// and there are so few that others should go on in its place.
    pub(super) fn is_uneven_after(&self, index: u16) -> bool {
        let len = |index| payload_span(index, self.len() as u32, self.segment_len).1;
        self.count <= UNSCHEDULED_PACKETS && self.peek().is_some_and(|next| len(next) != len(index))
    }

    /// Bytes of each packet but the last.
    pub(super) fn segment_len(&self) -> u16 {
        self.segment_len
    }

    /// True if every packet has arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.base == self.count
    }

    /// True if some packets have never been sent.
    pub(super) fn is_partly_unsent(&self) -> bool {
        self.next < self.count
    }

    /// True if packets beyond the first have been sent.
    pub(super) fn is_under_way(&self) -> bool {
        self.next > 1
    }

    /// True if packet 0 has never been sent.
    pub(super) fn is_unsent(&self) -> bool {
        self.next == 0
    }

    /// Raises the credit to packets below `granted`.
    pub(super) fn grant(&mut self, granted: u16) {
        self.granted = self.granted.max(granted.min(self.count));
    }

    /// Raises the credit to what goes unscheduled.
    pub(super) fn grant_unscheduled(&mut self) {
        self.grant(unscheduled_packets(self.segment_len));
    }

    /// The packet to send next.
    pub(super) fn peek(&self) -> Option<u16> {
        if self.is_first_due {
            return Some(0);
        }
        // What is missing goes before what is new, which the other end could only keep.
        if self.resend_count > 0 {
            return self.resend.first_from(self.base);
        }
        (self.next < self.granted).then_some(self.next)
    }

    /// Takes note that packet `index`, the one that [`Outgoing::peek`] gave, is sent.
    pub(super) fn sent(&mut self, index: u16) {
        if self.is_first_due {
            self.is_first_due = false;
            self.next = self.next.max(1);
        } else if self.resend_count > 0 {
            self.resend.remove(index);
            self.resend_count -= 1;
        } else {
            self.next = index + 1;
        }
    }

    /// The bytes of packet `index`.
    pub(super) fn segment(&self, index: u16) -> &[u8] {
        let lead = usize::from(self.lead);
        // Cut as if the lead stood before the message, and then without it.
        let (offset, len) =
            payload_span(index, (self.payload.len() + lead) as u32, self.segment_len);
        &self.payload.bytes()[offset.saturating_sub(lead)..(offset + len).saturating_sub(lead)]
    }

    /// The packets of a GSO batch that may go next, at most `count_max`: the first of them and how
    /// many. `None` where something else goes first, or they are few.
    pub(super) fn run(&self, count_max: usize) -> Option<(u16, u16)> {
        let left = usize::from(self.granted.saturating_sub(self.next));
        // What goes again is not in a row, and a lead shifts the packets behind it.
        let is_run = !self.is_first_due && self.resend_count == 0 && self.lead == 0;
        let count = left.min(count_max);
        let len = count * usize::from(self.segment_len);
        (is_run && count > 1 && len >= Attached::LEN_MIN).then_some((self.next, count as u16))
    }

    /// Takes note that the packets that [`Outgoing::run`] gave are sent; returns what is attached.
    pub(super) fn sent_run(&mut self, (first, count): (u16, u16), attached: Attached) -> Attached {
        self.next = first + count;
        let offset = usize::from(first) * usize::from(self.segment_len);
        let end = (offset + usize::from(count) * usize::from(self.segment_len)).min(self.len());
        Attached { offset, len: end - offset, ..attached }
    }

    /// The payload of packets that were sent so.
    pub(super) fn attached(&self, attached: &Attached) -> &[u8] {
        &self.payload.bytes()[attached.offset..attached.offset + attached.len]
    }

    /// Takes an ACK; tells whether anything is new in it.
    pub(super) fn apply(&mut self, sack: &SackBody) -> bool {
        let before = (self.base, self.arrived_end, self.granted);
        let mut is_new = false;
        // The ACK for all of a message has the highest base, whatever its count.
        let base = sack.base.get().min(self.count);
        if base > self.base {
            // By words: one ACK may tell of a whole message.
            self.resend_count -= self.resend.remove_range(self.base, base);
            self.arrived_end = self.arrived_end.max(base);
            self.base = base;
        }
        if sack.bitmap != [0; SackBody::BITMAP_LEN] {
            work::step(usize::from(SackBody::BITS) / BITS_IN_STEP);
            for bit in 0..SackBody::BITS {
                // A forged base at the end of its 16 bits must not wrap round to the first packets.
                let index = sack.base.get().saturating_add(1).saturating_add(bit);
                if index >= self.count {
                    break;
                }
                if sack.has(index) && index >= self.base && !self.arrived.has(index) {
                    self.arrived.insert(index);
                    self.arrive(index);
                    is_new = true;
                }
            }
        }
        self.base = self.base.max(self.arrived.first_absent_from(self.base)).min(self.count);
        self.arrived_end = self.arrived_end.max(self.base);
        // After a restart an ACK may tell of packets that have not gone again: they need not.
        self.next = self.next.max(self.base);
        self.grant(sack.granted.get());
        is_new || before != (self.base, self.arrived_end, self.granted)
    }

    /// Marks to be sent again what was sent, has not arrived, and lies at least `reorder` below the
    /// highest that has. Tells how many.
    pub(super) fn resend_holes(&mut self, reorder: u16) -> u16 {
        self.resend_below(self.arrived_end.saturating_sub(reorder))
    }

    /// Marks to be sent again what was sent unscheduled and has not arrived.
    pub(super) fn resend_unscheduled(&mut self) -> u16 {
        self.resend_all(unscheduled_packets(self.segment_len))
    }

    /// Marks to be sent again what was sent and has not arrived, at most 60 kB of full packets.
    pub(super) fn resend_some(&mut self) -> u16 {
        let full = RESEND_PACKETS_MAX * FULL_LEN;
        self.resend_all((full / self.segment_len.max(1)).clamp(1, RESEND_PACKETS_MAX))
    }

    /// Marks to be sent again everything that was sent and has not arrived, at most `limit`
    /// packets.
    fn resend_all(&mut self, limit: u16) -> u16 {
        let end = self.next.min(self.base.saturating_add(limit));
        self.resend_below(end)
    }

    /// Marks packet 0 to be sent again, whatever has arrived.
    pub(super) fn resend_first(&mut self) {
        self.is_first_due = self.count > 0;
    }

    fn resend_below(&mut self, end: u16) -> u16 {
        // What lies at or above `next` has never gone, and so is not lost.
        let marked = self.resend.insert_range(self.base, end.min(self.next), &self.arrived);
        self.resend_count += marked;
        marked
    }

    fn arrive(&mut self, index: u16) {
        self.arrived_end = self.arrived_end.max(index + 1);
        if self.resend_count > 0 && self.resend.has(index) {
            self.resend.remove(index);
            self.resend_count -= 1;
        }
    }
}

/// Packets that one ACK or timeout makes go again; fewer if they are longer than those of a
/// network.
const RESEND_PACKETS_MAX: u16 = 44;

/// Bytes of a full packet of a network.
const FULL_LEN: u16 = 1380;

/// Bits of an ACK that a step looks at.
const BITS_IN_STEP: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn sack(base: u16, more: &[u16], granted: u16) -> SackBody {
        let mut bitmap = [0; SackBody::BITMAP_LEN];
        for index in more {
            let bit = usize::from(index - base - 1);
            bitmap[bit / 8] |= 1 << (bit % 8);
        }
        SackBody { base: base.into(), granted: granted.into(), bitmap }
    }

    fn message(packets: usize, granted: u16) -> Outgoing {
        let mut message = Outgoing::default();
        message.begin(vec![7; packets * 10].into(), 10, granted);
        message
    }

    fn drain(message: &mut Outgoing) -> Vec<u16> {
        std::iter::from_fn(|| message.peek().inspect(|&index| message.sent(index))).collect()
    }

    #[test]
    fn sends_no_further_than_its_credit() {
        let mut message = message(10, 1);
        assert_eq!(drain(&mut message), [0]);
        assert!(message.apply(&sack(1, &[], 4)));
        assert_eq!(drain(&mut message), [1, 2, 3]);
    }

    #[test]
    fn resends_exactly_the_holes() {
        let mut message = message(10, 10);
        drain(&mut message);
        assert!(message.apply(&sack(2, &[3, 4, 7], 10)));
        assert_eq!(message.resend_holes(0), 3);
        assert_eq!(drain(&mut message), [2, 5, 6]);
        assert_eq!(message.resend_holes(3), 1);
        assert_eq!(drain(&mut message), [2]);
    }

    /// Whatever their lengths, 60 kB of packets go again.
    #[test]
    fn long_packets_go_again_by_their_bytes() {
        for (segment_len, expected) in [(256, 44), (1_380, 44), (8_000, 7), (65_000, 1)] {
            let mut message = Outgoing::default();
            message.begin(vec![7; 6_500_000].into(), segment_len, u16::MAX);
            drain(&mut message);
            assert_eq!(message.resend_some(), expected);
        }
    }

    #[test]
    fn an_arrival_takes_back_a_resend() {
        let mut message = message(4, 4);
        drain(&mut message);
        assert_eq!(message.resend_all(64), 4);
        assert!(message.apply(&sack(2, &[], 4)));
        assert_eq!(drain(&mut message), [2, 3]);
    }

    #[test]
    fn a_repeated_ack_is_no_progress() {
        let mut message = message(4, 4);
        drain(&mut message);
        assert!(message.apply(&sack(1, &[2], 4)));
        assert!(!message.apply(&sack(1, &[2], 4)));
        assert!(!message.is_complete());
        assert!(message.apply(&sack(4, &[], 4)));
        assert!(message.is_complete());
    }

    #[test]
    fn a_lead_shortens_the_first_packet_alone() {
        let mut message = Outgoing::default();
        message.begin_after_lead((0..35).collect::<Vec<u8>>().into(), 10, 6, 9);
        let lengths: Vec<usize> =
            drain(&mut message).into_iter().map(|index| message.segment(index).len()).collect();
        assert_eq!(lengths, [4, 10, 10, 10, 1]);
        assert_eq!(message.segment(1), &[4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    }

    #[test]
    fn an_ack_beyond_the_message_is_harmless() {
        let mut message = message(4, 4);
        message.apply(&sack(60_000, &[60_100], 65_535));
        assert!(message.is_complete());
        assert_eq!(message.peek(), None);
    }

    #[test]
    fn what_an_ack_takes_back_leaves_the_rest_and_what_is_new_in_order() {
        let mut message = message(8, 6);
        drain(&mut message);
        assert_eq!(message.resend_all(64), 6);
        assert!(message.apply(&sack(2, &[4], 8)));
        assert_eq!(drain(&mut message), [2, 3, 5, 6, 7]);
    }

    #[test]
    fn an_arrival_that_was_not_to_go_again_takes_nothing_back() {
        let mut message = message(8, 8);
        drain(&mut message);
        message.apply(&sack(1, &[3], 8));
        assert_eq!(message.resend_holes(0), 2);
        message.apply(&sack(1, &[3, 6], 8));
        assert_eq!(drain(&mut message), [1, 2]);
    }

    #[test]
    fn holes_are_counted_from_the_highest_that_has_arrived() {
        let mut message = message(10, 10);
        drain(&mut message);
        message.apply(&sack(2, &[5], 10));
        assert_eq!(message.resend_holes(3), 1, "packet 2 lies three below packet 5");
        assert_eq!(drain(&mut message), [2]);
    }

    #[test]
    fn nothing_of_a_message_that_has_ended_is_sent_again() {
        let mut message = message(4, 4);
        drain(&mut message);
        message.end();
        message.resend_first();
        assert_eq!(message.peek(), None);
    }

    #[test]
    fn a_message_is_under_way_from_its_second_packet_on() {
        let mut message = message(3, 3);
        let mut seen = Vec::new();
        for index in 0..3 {
            seen.push((message.is_unsent(), message.is_under_way(), message.is_partly_unsent()));
            message.sent(index);
        }
        assert_eq!(seen, [(true, false, true), (false, false, true), (false, true, true)]);
        assert!(!message.is_partly_unsent());
    }

    #[test]
    fn a_short_message_is_uneven_before_its_shorter_packet() {
        let uneven = |len: usize| -> Vec<bool> {
            let mut message = Outgoing::default();
            message.begin(vec![7; len].into(), 10, u16::MAX);
            (0..message.count())
                .map(|index| {
                    message.sent(index);
                    message.is_uneven_after(index)
                })
                .collect()
        };
        assert_eq!(uneven(25), [false, true, false]);
        assert_eq!(uneven(30), [false; 3]);
        assert_eq!(uneven(10 * usize::from(UNSCHEDULED_PACKETS) + 5), [false; 13]);
    }

    #[test]
    fn a_run_is_of_packets_that_were_never_sent() {
        let mut long = Outgoing::default();
        long.begin(vec![7; 40 * 1380].into(), 1380, 30);
        assert_eq!(long.run(20), Some((0, 20)));
        assert_eq!(long.run(15), None, "they are few");
        long.resend_first();
        assert_eq!(long.run(20), None, "packet 0 goes first");
        long.sent(0);
        assert_eq!(long.run(64), Some((1, 29)));
        assert_eq!(long.resend_all(64), 1);
        assert_eq!(long.run(64), None, "what goes again goes first");
        let mut led = Outgoing::default();
        led.begin_after_lead(vec![7; 40 * 1380].into(), 1380, 6, 40);
        assert_eq!(led.run(64), None, "its packets differ");
        let mut longer = Outgoing::default();
        longer.begin(vec![7; 40_000].into(), 8_000, 5);
        assert_eq!((longer.run(2), longer.run(64)), (None, Some((0, 5))), "their bytes count");
        longer.begin(vec![7; 100_000].into(), 30_000, 4);
        assert_eq!((longer.run(1), longer.run(2)), (None, Some((0, 2))), "one is no batch");
    }

    #[test]
    fn the_packets_of_a_run_have_their_bytes_attached() {
        let whole: Vec<u8> = (0..255).collect();
        let mut message = Outgoing::default();
        message.begin(whole.clone().into(), 10, 26);
        message.sent(0);
        message.sent(1);
        let attached = Attached { header_len: 48, message: 3, is_reply: true, offset: 0, len: 0 };
        let first = message.sent_run((2, 16), attached);
        assert_eq!(first, Attached { offset: 20, len: 160, ..attached });
        assert_eq!(message.attached(&first), &whole[20..180]);
        let last = message.sent_run((18, 8), attached);
        assert_eq!(message.attached(&last), &whole[180..], "the last packet is shorter");
        assert_eq!(message.peek(), None);
    }
}
