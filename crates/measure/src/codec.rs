//! Slices and counts as bytes, for agents that are elsewhere.
//!
//! Numbers are varints of seven bits a byte, the lowest first. A sample is the distance of its
//! intended send from the one before, its latency and its lateness: seven to nine bytes where
//! requests leave some microseconds apart, a third of what it takes in memory.
//!
//! Invariant: whatever bytes are read, nothing panics; memory is at most in proportion to the bytes
//! that are there, not to what they claim; and what is read can be added up without overflow, for
//! no time exceeds [`TIME_NS_MAX`] and no count [`COUNT_MAX`].

use thiserror::Error;

use crate::app::{ErrorKind, Outcome, Tally};
use crate::recorder::{Counts, Failure};
use crate::slices::{Slice, Unanswered, Unusual};
use crate::stamps::{Latencies, MatchCounts};
use crate::statistics::series::Timed;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// They end too early.
    #[error("it ends in the middle")]
    Cut,
    /// A number has more than 64 bits, or more than what it counts can be.
    #[error("a number is beyond its limit")]
    Beyond,
    /// More is said to follow than there is.
    #[error("it claims more than there is")]
    Claim,
    /// There is more after the end.
    #[error("more follows than belongs to it")]
    Rest,
}

/// Reads numbers from bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the first byte on.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The next number.
    ///
    /// # Errors
    ///
    /// When there is none, or it has more than 64 bits.
    #[inline]
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (place, &byte) in self.bytes.iter().take(NUMBER_LEN_MAX).enumerate() {
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * place as u32;
            if bits << shift >> shift != bits {
                return Err(Malformed::Beyond);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[place + 1..];
                return Ok(value);
            }
        }
        Err(if self.bytes.len() < NUMBER_LEN_MAX { Malformed::Cut } else { Malformed::Beyond })
    }

    /// The next number, which is `max` at most.
    ///
    /// # Errors
    ///
    /// When there is none, or it is larger.
    #[inline]
    pub fn number_up_to(&mut self, max: u64) -> Result<u64, Malformed> {
        self.number()
            .and_then(|value| if value <= max { Ok(value) } else { Err(Malformed::Beyond) })
    }

    /// Several counts, each [`COUNT_MAX`] at most.
    ///
    /// # Errors
    ///
    /// When there are fewer, or one is larger.
    pub fn counts<const N: usize>(&mut self) -> Result<[u64; N], Malformed> {
        let mut counts = [0; N];
        for count in &mut counts {
            *count = self.number_up_to(COUNT_MAX)?;
        }
        Ok(counts)
    }

    /// Says that this is the end.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Malformed::Rest) }
    }

    /// How many items follow, of so many bytes each at least.
    fn items(&mut self, item_len_min: usize) -> Result<usize, Malformed> {
        let claimed = self.number()?;
        if claimed <= (self.bytes.len() / item_len_min) as u64 {
            Ok(claimed as usize)
        } else {
            Err(Malformed::Claim)
        }
    }

    /// A time, by its distance from another.
    fn time_after(&mut self, earlier_ns: u64) -> Result<u64, Malformed> {
        let distance = self.number()?;
        let time_ns = earlier_ns.wrapping_add((distance >> 1) ^ (distance & 1).wrapping_neg());
        if time_ns <= TIME_NS_MAX { Ok(time_ns) } else { Err(Malformed::Beyond) }
    }
}

/// Appends a number.
#[inline]
pub fn put_number(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends several numbers.
pub fn put_numbers(values: &[u64], bytes: &mut Vec<u8>) {
    for &value in values {
        put_number(value, bytes);
    }
}

/// Appends a slice, whose times and counts are within the limits of this module.
pub fn put_slice(slice: &Slice, bytes: &mut Vec<u8>) {
    bytes.reserve(SAMPLE_LEN_TYPICAL * slice.samples.len() + SLICE_LEN_TYPICAL);
    let Slice {
        index,
        counts,
        tally,
        samples,
        unusual,
        unanswered,
        sent_meanwhile,
        replied_meanwhile,
    } = slice;
    let Counts { sent, replied, lost, refused, timeout } = *counts;
    put_numbers(
        &[
            u64::from(*index),
            sent,
            replied,
            lost,
            refused,
            timeout,
            *sent_meanwhile,
            *replied_meanwhile,
        ],
        bytes,
    );
    put_numbers(&[tally.ok, tally.misses], bytes);
    put_numbers(&tally.errors, bytes);
    put_number(samples.len() as u64, bytes);
    let mut before_ns = 0;
    for sample in samples {
        put_time_after(before_ns, sample.intended_ns, bytes);
        put_numbers(&[sample.latency_ns, sample.late_ns], bytes);
        before_ns = sample.intended_ns;
    }
    put_number(unusual.len() as u64, bytes);
    let mut before_ns = 0;
    for unusual in unusual {
        put_time_after(before_ns, unusual.intended_ns, bytes);
        put_numbers(&[unusual.latency_ns, outcome_code(unusual.outcome)], bytes);
        before_ns = unusual.intended_ns;
    }
    put_number(unanswered.len() as u64, bytes);
    let mut before_ns = 0;
    for unanswered in unanswered {
        put_time_after(before_ns, unanswered.intended_ns, bytes);
        put_time_after(unanswered.intended_ns, unanswered.sent_ns, bytes);
        put_number(failure_code(unanswered.failure), bytes);
        before_ns = unanswered.intended_ns;
    }
}

/// Reads a slice.
///
/// # Errors
///
/// When there is none, or one of its numbers is beyond its limit.
pub fn read_slice(reader: &mut Reader<'_>) -> Result<Slice, Malformed> {
    let index = reader.number_up_to(u64::from(u32::MAX))? as u32;
    let [sent, replied, lost, refused, timeout, sent_meanwhile, replied_meanwhile] =
        reader.counts()?;
    let counts = Counts { sent, replied, lost, refused, timeout };
    let [ok, misses] = reader.counts()?;
    let tally = Tally { ok, misses, errors: reader.counts::<{ ErrorKind::ALL.len() }>()? };
    let samples_len = reader.items(SAMPLE_LEN_MIN)?;
    let mut samples = Vec::with_capacity(samples_len);
    let mut before_ns = 0;
    for _ in 0..samples_len {
        let intended_ns = reader.time_after(before_ns)?;
        let latency_ns = reader.number_up_to(TIME_NS_MAX)?;
        let late_ns = reader.number_up_to(TIME_NS_MAX)?;
        samples.push(Timed { intended_ns, latency_ns, late_ns });
        before_ns = intended_ns;
    }
    let unusual = read_unusual(reader)?;
    let unanswered = read_unanswered(reader)?;
    Ok(Slice {
        index,
        counts,
        tally,
        samples,
        unusual,
        unanswered,
        sent_meanwhile,
        replied_meanwhile,
    })
}

fn read_unusual(reader: &mut Reader<'_>) -> Result<Vec<Unusual>, Malformed> {
    let len = reader.items(SAMPLE_LEN_MIN)?;
    let mut read = Vec::with_capacity(len);
    let mut before_ns = 0;
    for _ in 0..len {
        let intended_ns = reader.time_after(before_ns)?;
        let latency_ns = reader.number_up_to(TIME_NS_MAX)?;
        let outcome = outcome_of(reader.number()?).ok_or(Malformed::Beyond)?;
        read.push(Unusual { intended_ns, latency_ns, outcome });
        before_ns = intended_ns;
    }
    Ok(read)
}

fn read_unanswered(reader: &mut Reader<'_>) -> Result<Vec<Unanswered>, Malformed> {
    let len = reader.items(SAMPLE_LEN_MIN)?;
    let mut read = Vec::with_capacity(len);
    let mut before_ns = 0;
    for _ in 0..len {
        let intended_ns = reader.time_after(before_ns)?;
        let sent_ns = reader.time_after(intended_ns)?;
        let failure = FAILURES.get(reader.number()? as usize).copied().ok_or(Malformed::Beyond)?;
        read.push(Unanswered { intended_ns, sent_ns, failure });
        before_ns = intended_ns;
    }
    Ok(read)
}

/// 0 for what was asked for, 1 for a miss, and from 2 on the errors in their order.
fn outcome_code(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Ok => 0,
        Outcome::Miss => 1,
        Outcome::Error(kind) => {
            2 + ErrorKind::ALL.iter().position(|&other| other == kind).expect("all are in the list")
                as u64
        }
    }
}

fn outcome_of(code: u64) -> Option<Outcome> {
    match code {
        0 => Some(Outcome::Ok),
        1 => Some(Outcome::Miss),
        _ => ErrorKind::ALL.get(usize::try_from(code - 2).ok()?).map(|&kind| Outcome::Error(kind)),
    }
}

fn failure_code(failure: Failure) -> u64 {
    FAILURES.iter().position(|&other| other == failure).expect("all are in the list") as u64
}

const FAILURES: [Failure; 3] = [Failure::Lost, Failure::Refused, Failure::Timeout];

/// Appends what a matcher counted, and latencies by several clocks, which are within the limits of
/// this module.
pub fn put_stamps(counts: &MatchCounts, stamped: &[Latencies], bytes: &mut Vec<u8>) {
    let MatchCounts {
        requests,
        refused,
        samples,
        missing_kernel,
        missing_hardware,
        unanswered,
        late,
        duplicates,
        unexpected,
        reversed,
        ambiguous,
    } = *counts;
    put_numbers(&[requests, refused, samples, missing_kernel, missing_hardware], bytes);
    put_numbers(&[unanswered, late, duplicates, unexpected, reversed, ambiguous], bytes);
    put_number(stamped.len() as u64, bytes);
    for latencies in stamped {
        let by_clock = [latencies.user_ns, latencies.kernel_ns, latencies.hardware_ns];
        let clocks = by_clock
            .iter()
            .enumerate()
            .fold(0, |clocks, (place, ns)| clocks | u8::from(ns.is_some()) << place);
        bytes.push(clocks);
        by_clock.into_iter().flatten().for_each(|ns| put_number(ns, bytes));
    }
}

/// Reads what a matcher counted, and latencies by several clocks.
///
/// # Errors
///
/// When there is none, or one of its numbers is beyond its limit.
pub fn read_stamps(reader: &mut Reader<'_>) -> Result<(MatchCounts, Vec<Latencies>), Malformed> {
    let [requests, refused, samples, missing_kernel, missing_hardware] = reader.counts()?;
    let [unanswered, late, duplicates, unexpected, reversed, ambiguous] = reader.counts()?;
    let counts = MatchCounts {
        requests,
        refused,
        samples,
        missing_kernel,
        missing_hardware,
        unanswered,
        late,
        duplicates,
        unexpected,
        reversed,
        ambiguous,
    };
    let len = reader.items(STAMPED_LEN_MIN)?;
    let mut stamped = Vec::with_capacity(len);
    for _ in 0..len {
        let clocks = reader.number_up_to(CLOCKS_MAX)?;
        let mut next = |place: u64| match clocks >> place & 1 {
            0 => Ok(None),
            _ => reader.number_up_to(TIME_NS_MAX).map(Some),
        };
        let latencies = Latencies { user_ns: next(0)?, kernel_ns: next(1)?, hardware_ns: next(2)? };
        if !latencies.is_by_several() {
            return Err(Malformed::Beyond);
        }
        stamped.push(latencies);
    }
    Ok((counts, stamped))
}

/// Distances in both directions, the small ones short.
fn put_time_after(earlier_ns: u64, time_ns: u64, bytes: &mut Vec<u8>) {
    let distance = time_ns.wrapping_sub(earlier_ns) as i64;
    put_number(((distance << 1) ^ (distance >> 63)) as u64, bytes);
}

/// The largest time, ns: 36 years.
pub const TIME_NS_MAX: u64 = 1 << 60;
/// The largest count: a million a second for twelve days.
pub const COUNT_MAX: u64 = 1 << 40;

/// Ten times seven bits.
const NUMBER_LEN_MAX: usize = 10;
/// Three numbers.
const SAMPLE_LEN_MIN: usize = 3;
const SAMPLE_LEN_TYPICAL: usize = 9;
/// Which clocks, and two of them.
const STAMPED_LEN_MIN: usize = 3;
/// A bit for each clock.
const CLOCKS_MAX: u64 = 7;
const SLICE_LEN_TYPICAL: usize = 128;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check_number(value: u64, expected: &[u8]) {
        let mut bytes = Vec::new();
        put_number(value, &mut bytes);
        assert_eq!(bytes, expected);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.number(), Ok(value));
        assert_eq!(reader.finish(), Ok(()));
    }

    fn check_no_number(bytes: &[u8], expected: Malformed) {
        assert_eq!(Reader::new(bytes).number(), Err(expected), "{bytes:?}");
    }

    /// The examples of the LEB128 of DWARF, section 7.6, and the largest number.
    #[test]
    fn numbers_are_leb128() {
        check_number(2, &[2]);
        check_number(127, &[127]);
        check_number(128, &[0x80, 1]);
        check_number(129, &[0x81, 1]);
        check_number(12_857, &[57 + 0x80, 100]);
        check_number(u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        check_no_number(&[], Malformed::Cut);
        check_no_number(&[0x80; 9], Malformed::Cut);
        check_no_number(&[0x80; 10], Malformed::Beyond);
        check_no_number(
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            Malformed::Beyond,
        );
    }

    #[test]
    fn an_outcome_that_there_is_not_is_refused() {
        let mut bytes = Vec::new();
        put_slice(&Slice::default(), &mut bytes);
        // Neither of the last two lists has an item; then the first of them has one.
        bytes.truncate(bytes.len() - 2);
        put_numbers(&[1, 0, 0, 2 + ErrorKind::ALL.len() as u64, 0], &mut bytes);
        assert_eq!(read_slice(&mut Reader::new(&bytes)), Err(Malformed::Beyond));
    }

    #[test]
    fn a_claim_of_samples_that_are_not_there_allocates_nothing() {
        let mut bytes = Vec::new();
        put_numbers(&[0; 10], &mut bytes);
        put_numbers(&[0; ErrorKind::ALL.len()], &mut bytes);
        put_number(u64::MAX, &mut bytes);
        bytes.extend([1; 30]);
        let mut error = None;
        let info =
            allocation_counter::measure(|| error = read_slice(&mut Reader::new(&bytes)).err());
        assert_eq!(error, Some(Malformed::Claim));
        assert_eq!(info.bytes_total, 0);
    }

    /// The bound that a network between agents and coordinator is planned with.
    #[test]
    fn ten_thousand_samples_take_less_than_100_kb() {
        let samples = (0..10_000_u64).map(|place| Timed {
            intended_ns: 5_000_000_000 + place * 10_000 + place * place % 7_001,
            latency_ns: 15_000 + place * 7_919 % 2_000_000,
            late_ns: place * 104_729 % 16_000,
        });
        let slice = Slice { samples: samples.collect(), ..Slice::default() };
        let mut bytes = Vec::new();
        put_slice(&slice, &mut bytes);
        assert!(bytes.len() < 100_000, "{} bytes", bytes.len());
    }

    #[test]
    fn stamps_are_read_as_they_were() {
        let by = |user_ns, kernel_ns, hardware_ns| Latencies { user_ns, kernel_ns, hardware_ns };
        let stamped = [
            by(Some(TIME_NS_MAX), Some(100), None),
            by(Some(0), None, Some(7)),
            by(None, Some(300), Some(200)),
            by(Some(1), Some(2), Some(3)),
        ];
        let counts = MatchCounts { requests: 1, late: 2, reversed: 3, ..MatchCounts::default() };
        let mut bytes = Vec::new();
        put_stamps(&counts, &stamped, &mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(read_stamps(&mut reader), Ok((counts, stamped.to_vec())));
        assert_eq!(reader.finish(), Ok(()));
    }

    /// One clock's latency says nothing beside none.
    #[test]
    fn stamps_of_one_clock_are_refused() {
        let mut bytes = Vec::new();
        put_stamps(&MatchCounts::default(), &[], &mut bytes);
        bytes.pop();
        put_numbers(&[1, 1, 500, 0], &mut bytes);
        assert_eq!(read_stamps(&mut Reader::new(&bytes)), Err(Malformed::Beyond));
    }

    fn any_timed() -> impl Strategy<Value = Timed> {
        (0..=TIME_NS_MAX, 0..=TIME_NS_MAX, 0..=TIME_NS_MAX).prop_map(
            |(intended_ns, latency_ns, late_ns)| Timed { intended_ns, latency_ns, late_ns },
        )
    }

    fn any_slice() -> impl Strategy<Value = Slice> {
        let numbers = (any::<u32>(), prop::array::uniform15(0..=COUNT_MAX));
        let unusual = (0..=TIME_NS_MAX, 0..=TIME_NS_MAX, 0..8_u64).prop_map(
            |(intended_ns, latency_ns, code)| Unusual {
                intended_ns,
                latency_ns,
                outcome: outcome_of(code).unwrap(),
            },
        );
        let unanswered = (0..=TIME_NS_MAX, 0..=TIME_NS_MAX, 0..3_usize).prop_map(
            |(intended_ns, sent_ns, failure)| Unanswered {
                intended_ns,
                sent_ns,
                failure: FAILURES[failure],
            },
        );
        let lists = (
            prop::collection::vec(any_timed(), 0..50),
            prop::collection::vec(unusual, 0..20),
            prop::collection::vec(unanswered, 0..20),
        );
        (numbers, lists).prop_map(|((index, counts), (samples, unusual, unanswered))| {
            let [
                sent,
                replied,
                lost,
                refused,
                timeout,
                sent_meanwhile,
                replied_meanwhile,
                ok,
                misses,
                errors @ ..,
            ] = counts;
            Slice {
                index,
                counts: Counts { sent, replied, lost, refused, timeout },
                tally: Tally { ok, misses, errors },
                samples,
                unusual,
                unanswered,
                sent_meanwhile,
                replied_meanwhile,
            }
        })
    }

    proptest! {
        #[test]
        fn slices_are_read_as_they_were(slice in any_slice()) {
            let mut bytes = Vec::new();
            put_slice(&slice, &mut bytes);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(read_slice(&mut reader), Ok(slice));
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        #[test]
        fn a_slice_that_is_cut_is_refused(slice in any_slice(), share in 0.0..1.0) {
            let mut bytes = Vec::new();
            put_slice(&slice, &mut bytes);
            bytes.truncate((bytes.len() as f64 * share) as usize);
            prop_assert!(matches!(read_slice(&mut Reader::new(&bytes)), Err(Malformed::Cut | Malformed::Claim)));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(slice) = read_slice(&mut Reader::new(&bytes)) {
                prop_assert!(3 * (slice.samples.len() + slice.unusual.len() + slice.unanswered.len()) <= bytes.len());
            }
            if let Ok((_, stamped)) = read_stamps(&mut Reader::new(&bytes)) {
                prop_assert!(3 * stamped.len() <= bytes.len());
            }
        }
    }
}
