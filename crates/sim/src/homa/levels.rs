//! Priorities of unscheduled data: cutoffs from a workload, as the published simulation drew them.
//!
//! What counts is what is left of a message at a packet. The packets that need no grant and those
//! of the last 10 kB on the wire, which are sent like them, are put in the order of what is left,
//! with all grants before; and every level gets as many bytes of the wire.

use tailcut_measure::workload::Workload;

use super::paper::{self, Cut};

/// Number of messages that a receiver grants at once, which is also the number of levels for
/// granted data where there are eight.
///
/// The paper has 1, 3, 4, 7 and 7 for W1 to W5: the fewer bytes need no grant, the more.
pub fn overcommit(workload: &Workload) -> u8 {
    match workload.share_within(paper::UNSCHEDULED_BYTES) {
        0.9.. => 1,
        0.5.. => 3,
        0.15.. => 4,
        _ => 7,
    }
}

/// Number of levels for granted data: the share of `levels` that `overcommit` has of eight; at
/// least one, and one is left for what needs no grant where there are two or more.
pub fn scheduled_levels(levels: u8, overcommit: u8) -> u8 {
    let share = f64::from(levels) * f64::from(overcommit.min(8)) / 8.0;
    (share.round() as u8).clamp(1, levels.saturating_sub(1).max(1))
}

/// The most that is left of a message at a packet of each of `levels` levels, the highest first;
/// the last has no end.
pub fn cutoffs(workload: &Workload, levels: u8, cut: Cut) -> Vec<u64> {
    let mut packets = Vec::new();
    let mut before = 0.0;
    for &(size, cumulative) in workload.points() {
        let probability = cumulative - before;
        before = cumulative;
        message_packets(size, cut, |left, wire_bytes| {
            packets.push((left, wire_bytes as f64 * probability))
        });
    }
    packets.sort_unstable_by_key(|&(left, _)| left);
    let total: f64 = packets.iter().map(|&(_, bytes)| bytes).sum();
    let mut cutoffs = Vec::new();
    let mut below = 0.0;
    for (left, bytes) in packets {
        below += bytes;
        while cutoffs.len() + 1 < usize::from(levels)
            && below >= total * (cutoffs.len() + 1) as f64 / f64::from(levels)
        {
            cutoffs.push(left);
        }
    }
    cutoffs.push(u64::MAX);
    cutoffs
}

/// The rest of a message of `size` bytes at each of its packets that are sent as unscheduled
/// ones, with their bytes on the wire.
fn message_packets(size: u64, cut: Cut, mut packet: impl FnMut(u64, u64)) {
    let unscheduled = size.min(paper::UNSCHEDULED_BYTES);
    let packet_len = cut.packet_len(size);
    for offset in (0..unscheduled).step_by(packet_len as usize) {
        let data_len = (unscheduled - offset).min(packet_len);
        packet(size - offset, u64::from(paper::unscheduled_wire_bytes(data_len as u32)));
    }
    let granted = size - unscheduled;
    let (granted_len, grant_len) = cut.granted_lens();
    let (packets, grants) = (granted.div_ceil(granted_len), granted.div_ceil(grant_len));
    if grants > 0 {
        packet(0, grants * u64::from(paper::CONTROL_WIRE_BYTES));
    }
    let mut wire_left = 0;
    for left in (0..packets).rev().map(|index| granted - index * granted_len) {
        let wire_bytes = u64::from(paper::scheduled_wire_bytes(left.min(granted_len) as u32));
        wire_left += wire_bytes;
        if wire_left >= paper::RTT_BYTES {
            break;
        }
        packet(left, wire_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published for W1 to W5: 1, 3, 4, 7, 7.
    #[test]
    fn the_overcommitment_is_the_published_one() {
        let all =
            Workload::names().map(|name| overcommit(&Workload::named(name).expect("it is kept")));
        assert_eq!(all.collect::<Vec<_>>(), [1, 3, 4, 7, 7]);
    }

    /// RAMCloud's settings: of four levels two are for granted data, of two one.
    #[test]
    fn fewer_levels_are_shared_out_alike() {
        let of = |levels| [1, 3, 4, 7].map(|overcommit| scheduled_levels(levels, overcommit));
        assert_eq!(
            (of(8), of(4), of(2), of(1)),
            ([1, 3, 4, 7], [1, 2, 2, 3], [1, 1, 1, 1], [1, 1, 1, 1])
        );
    }

    /// Messages of 100 bytes alone have equal packets, all with 100 bytes left.
    #[test]
    fn cutoffs_of_one_size_are_that_size() {
        let workload = Workload::parse("test", "100\n100 1\n").expect("a workload");
        assert_eq!(cutoffs(&workload, 3, Cut::Full), [100, 100, u64::MAX]);
    }

    /// Half of the bytes on the wire are of 1,000 bytes, and half of 100, which have 96 bytes of
    /// headers each.
    #[test]
    fn levels_have_equal_shares_of_the_wire() {
        let small = (1000.0 + 96.0) / (1000.0 + 96.0 + 100.0 + 96.0);
        let workload =
            Workload::parse("test", &format!("1\n100 {small}\n1000 1\n")).expect("a workload");
        assert_eq!(cutoffs(&workload, 4, Cut::Full), [100, 100, 1000, u64::MAX]);
    }
    /// A message of 1,500 bytes is a full packet of 1,442 and one of 58, or two of 750.
    #[test]
    fn short_packets_leave_half_of_a_message_of_two() {
        let workload = Workload::parse("test", "1500\n1500 1\n").expect("a workload");
        assert_eq!(cutoffs(&workload, 2, Cut::Full), [1500, u64::MAX]);
        assert_eq!(cutoffs(&workload, 2, Cut::Short), [750, u64::MAX]);
    }
}
