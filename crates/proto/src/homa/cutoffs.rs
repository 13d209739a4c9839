//! Priorities of unscheduled bytes: the cutoffs that a receiver tells its senders, recomputed from
//! the traffic that it sees.
//!
//! | levels | for |
//! |---|---|
//! | the lower `scheduled` ones | bytes that a grant gave a priority |
//! | the others, the highest for the shortest messages | bytes that no grant was needed for |
//!
//! The levels are divided as the bytes are, and each unscheduled level gets the same share of the
//! unscheduled bytes (SIGCOMM'18 section 3.4).

use tailcut_wire::homa::LEVELS;

use crate::node::Time;

/// The longest message, by level, whose unscheduled bytes go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutoffs {
    /// By level, 0 the lowest. The highest level that is not below a length takes it; below all of
    /// them, level 0 does.
    pub by_level: [u32; LEVELS],
    /// Tells versions of one receiver apart; 0 for a guess.
    pub version: u16,
}

/// Configuration of the priorities that peers choose for what they send here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priorities {
    /// Levels of the network that are used, 1 to 8, from the lowest. Default 8.
    pub levels: u8,
    /// The cutoffs, or the first of them.
    pub cutoffs: Cutoffs,
    /// Number of the lower levels that are for scheduled data, or at first are. Default 4, with the
    /// module's cutoffs.
    pub scheduled_levels: u8,
    /// Recomputes both from the traffic; `None` keeps them. Default after 10 000 messages, at most
    /// once a second.
    pub adaptive: Option<Adaptive>,
    /// By what the unscheduled priority of a packet is chosen from a peer's cutoffs. Default
    /// [`UnscheduledRank::Message`].
    pub rank: UnscheduledRank,
}

/// Conditions on which cutoffs are recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    /// Messages that must have come since the last time.
    pub messages_min: u64,
    /// Time that must have passed since the last time.
    pub interval_ns: u64,
}

/// Length that is compared with a peer's cutoffs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnscheduledRank {
    /// The message's length, as the module does it.
    Message,
    /// The rest of the message at that packet, as the simulations of SIGCOMM'18 did it. As
    /// there, a granted packet then also has the priority of its own grant, and not of the last.
    Remaining,
}

impl Cutoffs {
    /// The module's assumption before it has told them: level 6 for everything.
    pub const UNKNOWN: Self = Self {
        by_level: [u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX, 0],
        version: 0,
    };
    /// The module's own at first.
    pub const MODULE: Self = Self {
        by_level: [u32::MAX, u32::MAX, u32::MAX, u32::MAX, 1_000_000, 15_000, 2800, 200],
        version: 1,
    };

    /// Cutoffs from the highest level down: messages up to `lengths[0]` go to level 7, and so on,
    /// and all longer ones to the level after the last. At most seven lengths are looked at.
    pub fn descending(lengths: &[u32], version: u16) -> Self {
        let mut by_level = [u32::MAX; LEVELS];
        for (level, &length) in by_level.iter_mut().rev().zip(lengths.iter().take(LEVELS - 1)) {
            *level = length;
        }
        Self { by_level, version }
    }

    /// The level of a message of `length` bytes.
    #[inline]
    pub fn level(&self, length: u32) -> u8 {
        (1..LEVELS).rev().find(|&level| self.by_level[level] >= length).unwrap_or(0) as u8
    }
}

impl Default for Priorities {
    fn default() -> Self {
        Self {
            levels: 8,
            cutoffs: Cutoffs::MODULE,
            scheduled_levels: 4,
            adaptive: Some(Adaptive { messages_min: 10_000, interval_ns: 1_000_000_000 }),
            rank: UnscheduledRank::Message,
        }
    }
}

/// Cutoffs that an endpoint tells its senders, and the traffic behind them.
#[derive(Debug)]
pub(super) struct Advice {
    /// The cutoffs.
    pub(super) cutoffs: Cutoffs,
    /// Lower levels that grants give, at least 1.
    pub(super) scheduled_levels: u8,
    /// Levels of the network in use, 1 to 8.
    levels: u8,
    /// Conditions on which both are recomputed; `None` for never.
    adaptive: Option<Adaptive>,
    /// Bytes of a message that need no grant.
    unscheduled_len: u32,
    /// Unscheduled bytes by class of message length, and their sum with the scheduled ones. Halved
    /// when they have been used.
    unscheduled_bytes: Box<[u64; CLASSES]>,
    /// Bytes of all messages since, halved likewise.
    total_bytes: u64,
    /// Messages since the last time.
    messages: u64,
    /// Time at which they were last recomputed, or the endpoint started.
    computed_at: Time,
}

impl Advice {
    pub(super) fn new(now: Time, priorities: Priorities, unscheduled_len: u32) -> Self {
        let Priorities { levels, cutoffs, scheduled_levels, adaptive, .. } = priorities;
        let levels = levels.clamp(1, LEVELS as u8);
        Self {
            cutoffs,
            scheduled_levels: scheduled_levels.clamp(1, levels),
            levels,
            adaptive,
            unscheduled_len,
            unscheduled_bytes: Box::new([0; CLASSES]),
            total_bytes: 0,
            messages: 0,
            computed_at: now,
        }
    }

    /// Takes note of a message of `length` bytes that has arrived; tells whether the cutoffs have
    /// changed.
    #[inline]
    pub(super) fn observe(&mut self, now: Time, length: u32) -> bool {
        let Some(adaptive) = self.adaptive else {
            return false;
        };
        self.unscheduled_bytes[class(length)] += u64::from(length.min(self.unscheduled_len));
        self.total_bytes += u64::from(length);
        self.messages += 1;
        let is_due = self.messages >= adaptive.messages_min
            && now.saturating_sub(self.computed_at) >= adaptive.interval_ns;
        is_due && self.recompute(now)
    }

    fn recompute(&mut self, now: Time) -> bool {
        self.computed_at = now;
        self.messages = 0;
        let (scheduled_levels, by_level) =
            divide(&self.unscheduled_bytes, self.total_bytes, self.levels);
        self.unscheduled_bytes.iter_mut().for_each(|bytes| *bytes /= 2);
        self.total_bytes /= 2;
        let is_same = scheduled_levels == self.scheduled_levels
            && by_level.iter().zip(&self.cutoffs.by_level).all(|(&new, &old)| is_near(new, old));
        // Each new version has to be told to every sender.
        if is_same {
            return false;
        }
        // 0 stands for a sender that has none.
        let version = self.cutoffs.version.wrapping_add(1).max(1);
        self.scheduled_levels = scheduled_levels;
        self.cutoffs = Cutoffs { by_level, version };
        true
    }
}

/// Scheduled levels and cutoffs for such traffic on `levels` levels.
fn divide(unscheduled_bytes: &[u64; CLASSES], total_bytes: u64, levels: u8) -> (u8, [u32; LEVELS]) {
    let unscheduled: u64 = unscheduled_bytes.iter().sum();
    let share = unscheduled as f64 / total_bytes.max(1) as f64;
    // Where there are two levels or more, scheduled data has one of them.
    let levels_max = levels.saturating_sub(1).max(1);
    let own = ((f64::from(levels) * share).round() as u8).clamp(1, levels_max);
    let mut by_level = [u32::MAX; LEVELS];
    // No message is so short that it would go at a level which is not used.
    (usize::from(levels)..LEVELS).for_each(|unused| by_level[unused] = 0);
    let (mut below, mut class) = (0, 0);
    for step in 1..u64::from(own) {
        let target = unscheduled * step / u64::from(own);
        while class < CLASSES && below < target {
            below += unscheduled_bytes[class];
            class += 1;
        }
        by_level[usize::from(levels) - step as usize] = longest(class.max(1) - 1);
    }
    (levels.saturating_sub(own).max(1), by_level)
}

/// True if a cutoff has hardly moved: by less than an eighth, a class of lengths.
fn is_near(new: u32, old: u32) -> bool {
    new.abs_diff(old) <= old / 8
}

/// Eight classes to each power of two, up to 2^20.
const CLASSES: usize = 8 * 18 + 8;

/// The class of a length: its leading four bits.
fn class(length: u32) -> usize {
    if length < 16 {
        return length as usize;
    }
    let exponent = 31 - length.leading_zeros();
    let index = (exponent as usize - 4) * 8 + ((length >> (exponent - 3)) as usize & 7) + 16;
    index.min(CLASSES - 1)
}

/// The longest length of a class.
fn longest(class: usize) -> u32 {
    if class < 16 {
        return class as u32;
    }
    let (exponent, part) = ((class - 16) / 8 + 4, (class - 16) % 8);
    ((8 + part as u32 + 1) << (exponent - 3)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homa::Config;

    fn check(length: u32, level: u8) {
        assert_eq!(Cutoffs::MODULE.level(length), level, "{length}");
    }

    #[test]
    fn the_highest_level_that_takes_a_length_is_its() {
        check(1, 7);
        check(200, 7);
        check(201, 6);
        check(2800, 6);
        check(15_000, 5);
        check(15_001, 4);
        check(1_000_000, 4);
        assert_eq!(Cutoffs::UNKNOWN.level(1), 6);
        assert_eq!(Cutoffs::UNKNOWN.level(1_000_000), 6);
    }

    #[test]
    fn lengths_from_the_highest_level_down() {
        let cutoffs = Cutoffs::descending(&[469, 5521, 15_267], 1);
        let found: Vec<u8> =
            [469, 470, 5521, 15_267, 15_268].iter().map(|&length| cutoffs.level(length)).collect();
        assert_eq!(found, [7, 6, 6, 5, 4]);
    }

    #[test]
    fn classes_cover_every_length_once_and_in_order() {
        for length in 1..1_100_000u32 {
            let class = class(length);
            assert!(longest(class) >= length.min(1 << 20), "{length}");
            assert!(class == 0 || longest(class - 1) < length, "{length}");
        }
        assert_eq!(class(u32::MAX), CLASSES - 1, "longer ones are in the last");
    }

    /// Half of the bytes in messages of 100 and half in those of 1000, all unscheduled: seven
    /// unscheduled levels, with the cutoff between the two lengths after three and a half of them.
    #[test]
    fn levels_get_equal_shares_of_the_unscheduled_bytes() {
        let adaptive = Some(Adaptive { messages_min: 11, interval_ns: 10 });
        let mut config = Config::default();
        config.priorities.adaptive = adaptive;
        let mut advice = Advice::new(0, config.priorities, config.unscheduled_len);
        (0..10).for_each(|_| assert!(!advice.observe(5, 100)));
        assert!(advice.observe(20, 1000));
        assert_eq!((advice.scheduled_levels, advice.cutoffs.version), (1, 2));
        let found: Vec<u8> =
            [100, 1000].iter().map(|&length| advice.cutoffs.level(length)).collect();
        assert_eq!(found, [7, 4], "{:?}", advice.cutoffs);
        (0..10).for_each(|_| assert!(!advice.observe(40, 100)));
        assert!(!advice.observe(40, 1000), "the same traffic needs no other cutoffs");
    }

    /// W5-like: nearly all bytes need grants, so that one level is left for the unscheduled ones.
    #[test]
    fn long_messages_leave_the_levels_to_grants() {
        let mut config = Config::default();
        config.priorities.adaptive = Some(Adaptive { messages_min: 1, interval_ns: 0 });
        let mut advice = Advice::new(0, config.priorities, config.unscheduled_len);
        assert!(advice.observe(1, 1_000_000));
        assert_eq!(advice.scheduled_levels, 7);
        assert_eq!([1, 1_000_000].map(|length| advice.cutoffs.level(length)), [7, 7]);
    }

    #[test]
    fn what_is_longer_than_seven_lengths_has_the_lowest_level() {
        let cutoffs = Cutoffs::descending(&[1, 2, 3, 4, 5, 6, 7, 8], 1);
        assert_eq!(cutoffs.by_level, [u32::MAX, 7, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn each_power_of_two_has_eight_classes_that_end_where_the_next_begin() {
        for exponent in 4..20 {
            let eighth = 1 << (exponent - 3);
            for part in 8..16 {
                let (first, next) = (part * eighth, (part + 1) * eighth);
                let class_of = class(first);
                assert_eq!((class_of, longest(class_of)), (class(next - 1), next - 1), "{first}");
                assert_eq!(class(next), class_of + 1, "{next}");
            }
        }
        assert!((0..16).all(|length| longest(class(length)) == length), "one each of the shortest");
    }

    /// A quarter of all bytes needs no grant, so that two levels of eight are for those: half of
    /// them each.
    #[test]
    fn a_cutoff_is_the_end_of_the_class_that_fills_a_level() {
        let mut bytes = [0; CLASSES];
        bytes[class(50)] = 100;
        bytes[class(1000)] = 100;
        let (scheduled_levels, by_level) = divide(&bytes, 800, 8);
        assert_eq!((scheduled_levels, by_level[7], by_level[6]), (6, 51, u32::MAX));
    }

    #[test]
    fn a_cutoff_is_near_another_within_an_eighth_of_it() {
        for (new, expected) in [(88, true), (87, false), (104, true), (112, true), (113, false)] {
            assert_eq!(is_near(new, 100), expected, "{new}");
        }
    }

    fn advice(unscheduled_len: u32) -> Advice {
        let mut priorities = Config::default().priorities;
        priorities.adaptive = Some(Adaptive { messages_min: 1, interval_ns: 0 });
        Advice::new(0, priorities, unscheduled_len)
    }

    /// Messages of 100 bytes, and then of 200 of which 100 need a grant, the first half as heavy:
    /// 150 of 250 are unscheduled, and 0.6 of eight levels are five.
    #[test]
    fn what_has_been_used_weighs_half() {
        let mut advice = advice(100);
        assert!(advice.observe(1, 100));
        assert_eq!(advice.scheduled_levels, 1);
        assert!(advice.observe(2, 200));
        assert_eq!(advice.scheduled_levels, 3);
    }

    #[test]
    fn other_lengths_of_the_same_share_change_the_cutoffs() {
        let mut advice = advice(40_000);
        assert!(advice.observe(1, 100));
        let before = advice.cutoffs;
        assert!(advice.observe(2, 30_000));
        assert_eq!((advice.scheduled_levels, advice.cutoffs.version), (1, before.version + 1));
        assert_ne!(advice.cutoffs.by_level, before.by_level);
    }
}
