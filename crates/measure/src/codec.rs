//! Slices and counts as bytes, for agents that are elsewhere.
//!
//! Numbers are postcard's varints of seven bits a byte, the lowest first. A sample is the distance
//! of its intended send from the one before, its latency and its lateness: seven to nine bytes
//! where requests leave some microseconds apart, a third of what it takes in memory.
//!
//! Invariant: whatever bytes are read, nothing panics; memory is at most in proportion to the bytes
//! that are there, not to what they claim; and what is read can be added up without overflow, for
//! no time exceeds [`TIME_NS_MAX`] and no count [`COUNT_MAX`].

use serde::{Deserialize, Serialize};
use strum::EnumCount;
use thiserror::Error;

use crate::app::{ErrorCode, ErrorKind, Outcome};
use crate::outcome::Failure;
use crate::slices::{Slice, Unanswered, Unusual};
use crate::stamps::{Latencies, MatchCounts};
use crate::statistics::series::Timed;

/// Error in bytes that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// They end too early.
    #[error("it ends in the middle")]
    Cut,
    /// A number has more than 64 bits, or more than what it counts or names can be.
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

    /// The next value.
    ///
    /// # Errors
    ///
    /// When there is none of this type.
    #[inline]
    pub fn value<T: Deserialize<'a>>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = postcard::take_from_bytes(self.bytes).map_err(|error| match error {
            postcard::Error::DeserializeUnexpectedEnd => Malformed::Cut,
            _ => Malformed::Beyond,
        })?;
        self.bytes = rest;
        Ok(value)
    }

    /// The next number.
    ///
    /// # Errors
    ///
    /// When there is none, or it has more than 64 bits.
    pub fn number(&mut self) -> Result<u64, Malformed> {
        self.value()
    }

    /// The next number, which is `max` at most.
    ///
    /// # Errors
    ///
    /// When there is none, or it is larger.
    #[inline]
    pub fn number_up_to(&mut self, max: u64) -> Result<u64, Malformed> {
        self.number().and_then(|value| within(value, max))
    }

    /// The next value, which is of `N` counts, each [`COUNT_MAX`] at most.
    ///
    /// # Errors
    ///
    /// When there is none, or one of its counts is larger.
    pub fn counts<T: Deserialize<'a>, const N: usize>(&mut self) -> Result<T, Malformed> {
        // A copy of the reader takes the value, and the reader itself looks at each of its counts.
        let value = { *self }.value()?;
        for _ in 0..N {
            self.number_up_to(COUNT_MAX)?;
        }
        Ok(value)
    }

    /// Says that this is the end.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Malformed::Rest) }
    }

    /// A list of requests, each by its intended send and what else is put of it.
    fn list<T, R: Deserialize<'a>>(
        &mut self,
        item: impl Fn(u64, R) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let len = self.items()?;
        let mut list = Vec::with_capacity(len);
        let mut before_ns = 0;
        for _ in 0..len {
            let (distance_ns, rest) = self.value()?;
            before_ns = time_after(before_ns, distance_ns)?;
            list.push(item(before_ns, rest)?);
        }
        Ok(list)
    }

    /// Number of items that follow; a claim of more than the bytes can hold is refused before
    /// anything is allocated for it.
    fn items(&mut self) -> Result<usize, Malformed> {
        let claimed = self.number()?;
        let most = (self.bytes.len() / ITEM_LEN_MIN) as u64;
        if claimed <= most { Ok(claimed as usize) } else { Err(Malformed::Claim) }
    }
}

/// Appends a number.
pub fn put_number(value: u64, bytes: &mut Vec<u8>) {
    put(&value, bytes);
}

/// Appends several numbers.
pub fn put_numbers(values: &[u64], bytes: &mut Vec<u8>) {
    values.iter().for_each(|&value| put_number(value, bytes));
}

/// Appends a slice, whose times and counts are within the limits of this module.
pub fn put_slice(slice: &Slice, bytes: &mut Vec<u8>) {
    bytes.reserve(SAMPLE_LEN_TYPICAL * slice.samples.len() + SLICE_LEN_TYPICAL);
    let Slice { index, counts, tally, sent_meanwhile, replied_meanwhile, .. } = slice;
    put(&(index, counts, tally, sent_meanwhile, replied_meanwhile), bytes);
    let samples = slice.samples.iter().map(|sample| (sample.intended_ns, sample));
    put_list(samples, |sample| (sample.latency_ns, sample.late_ns), bytes);
    let unusual = slice.unusual.iter().map(|unusual| (unusual.intended_ns, unusual));
    put_list(unusual, |unusual| (unusual.latency_ns, unusual.outcome, unusual.code), bytes);
    let unanswered = slice.unanswered.iter().map(|unanswered| (unanswered.intended_ns, unanswered));
    let late_ns = |unanswered: &Unanswered| distance(unanswered.intended_ns, unanswered.sent_ns);
    put_list(unanswered, |unanswered| (late_ns(unanswered), unanswered.failure), bytes);
}

/// Reads a slice.
///
/// # Errors
///
/// When there is none, or one of its numbers is beyond its limit.
pub fn read_slice(reader: &mut Reader<'_>) -> Result<Slice, Malformed> {
    let index = reader.value()?;
    let counts = reader.counts::<_, 5>()?;
    let tally = reader.counts::<_, { 2 + ErrorKind::COUNT }>()?;
    let [sent_meanwhile, replied_meanwhile] = reader.counts::<_, 2>()?;
    let samples = reader.list(|intended_ns, (latency_ns, late_ns)| {
        let latency_ns = within(latency_ns, TIME_NS_MAX)?;
        Ok(Timed { intended_ns, latency_ns, late_ns: within(late_ns, TIME_NS_MAX)? })
    })?;
    let unusual =
        reader.list(|intended_ns, (latency_ns, outcome, code): (_, Outcome, ErrorCode)| {
            Ok(Unusual { intended_ns, latency_ns: within(latency_ns, TIME_NS_MAX)?, outcome, code })
        })?;
    let unanswered = reader.list(|intended_ns, (late_ns, failure): (_, Failure)| {
        Ok(Unanswered { intended_ns, sent_ns: time_after(intended_ns, late_ns)?, failure })
    })?;
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

/// Appends what a matcher counted, and latencies by several clocks, which are within the limits of
/// this module.
pub fn put_stamps(counts: &MatchCounts, stamped: &[Latencies], bytes: &mut Vec<u8>) {
    put(&(counts, stamped), bytes);
}

/// Reads what a matcher counted, and latencies by several clocks.
///
/// # Errors
///
/// When there is none, or one of its numbers is beyond its limit.
pub fn read_stamps(reader: &mut Reader<'_>) -> Result<(MatchCounts, Vec<Latencies>), Malformed> {
    let counts = reader.counts::<_, 12>()?;
    let len = reader.items()?;
    let mut stamped = Vec::with_capacity(len);
    for _ in 0..len {
        let latencies: Latencies = reader.value()?;
        let Latencies { user_ns, kernel_ns, hardware_ns } = latencies;
        for ns in [user_ns, kernel_ns, hardware_ns].into_iter().flatten() {
            within(ns, TIME_NS_MAX)?;
        }
        if !latencies.is_by_several() {
            return Err(Malformed::Beyond);
        }
        stamped.push(latencies);
    }
    Ok((counts, stamped))
}

/// Appends a value as postcard writes it.
pub fn put<T: Serialize>(value: &T, bytes: &mut Vec<u8>) {
    *bytes = postcard::to_extend(value, std::mem::take(bytes))
        .expect("memory takes what is put, and all lengths are known");
}

/// Appends a list of requests, each by the distance of its intended send from the one before, and
/// what else is put of it.
fn put_list<T, R: Serialize>(
    items: impl ExactSizeIterator<Item = (u64, T)>,
    rest: impl Fn(T) -> R,
    bytes: &mut Vec<u8>,
) {
    put_number(items.len() as u64, bytes);
    let mut before_ns = 0;
    for (intended_ns, item) in items {
        put(&(distance(before_ns, intended_ns), rest(item)), bytes);
        before_ns = intended_ns;
    }
}

/// Distances go in both directions, the small ones short.
fn distance(earlier_ns: u64, time_ns: u64) -> i64 {
    time_ns.wrapping_sub(earlier_ns) as i64
}

/// A time, by its distance from another.
fn time_after(earlier_ns: u64, distance_ns: i64) -> Result<u64, Malformed> {
    within(earlier_ns.wrapping_add(distance_ns as u64), TIME_NS_MAX)
}

fn within(value: u64, max: u64) -> Result<u64, Malformed> {
    if value <= max { Ok(value) } else { Err(Malformed::Beyond) }
}

/// The largest time, ns: 36 years.
pub const TIME_NS_MAX: u64 = 1 << 60;
/// The largest count: a million a second for twelve days.
pub const COUNT_MAX: u64 = 1 << 40;

/// Three numbers, or as many clocks.
const ITEM_LEN_MIN: usize = 3;
const SAMPLE_LEN_TYPICAL: usize = 9;
const SLICE_LEN_TYPICAL: usize = 128;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use strum::VariantArray;

    use super::*;
    use crate::app::Tally;
    use crate::outcome::Counts;

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
        // Neither is there a third outcome behind an error, nor a kind of error behind the last.
        for outcome in [[3, 0], [2, ErrorKind::COUNT as u64]] {
            let mut bytes = bytes.clone();
            put_numbers(&[1, 0, 0], &mut bytes);
            put_numbers(&outcome, &mut bytes);
            put_number(0, &mut bytes);
            assert_eq!(read_slice(&mut Reader::new(&bytes)), Err(Malformed::Beyond));
        }
    }

    #[test]
    fn a_claim_of_samples_that_are_not_there_allocates_nothing() {
        let mut bytes = Vec::new();
        put_numbers(&[0; 10], &mut bytes);
        put_numbers(&[0; ErrorKind::COUNT], &mut bytes);
        put_number(u64::MAX, &mut bytes);
        bytes.extend([1; 30]);
        let mut error = None;
        let info =
            allocation_counter::measure(|| error = read_slice(&mut Reader::new(&bytes)).err());
        assert_eq!(error, Some(Malformed::Claim));
        assert_eq!(info.bytes_total, 0);
    }

    /// Every number of a slice and of what stamps say has its limit.
    #[test]
    fn a_number_beyond_its_limit_is_refused() {
        let limits = [COUNT_MAX; 15].into_iter().chain([TIME_NS_MAX; 7]);
        for (place, limit) in limits.enumerate() {
            let of = |value: u64| {
                let mut slice = Slice {
                    samples: vec![Timed { intended_ns: 0, latency_ns: 0, late_ns: 0 }],
                    unusual: vec![Unusual {
                        intended_ns: 0,
                        latency_ns: 0,
                        outcome: Outcome::Ok,
                        code: ErrorCode::default(),
                    }],
                    unanswered: vec![Unanswered {
                        intended_ns: 0,
                        sent_ns: 0,
                        failure: Failure::Lost,
                    }],
                    ..Slice::default()
                };
                *numbers(&mut slice).swap_remove(place) = value;
                let mut bytes = Vec::new();
                put_slice(&slice, &mut bytes);
                read_slice(&mut Reader::new(&bytes))
            };
            assert!(of(limit).is_ok(), "{place}");
            assert_eq!(of(limit + 1), Err(Malformed::Beyond), "{place}");
        }
    }

    fn numbers(slice: &mut Slice) -> Vec<&mut u64> {
        let Counts { sent, replied, lost, refused, timeout } = &mut slice.counts;
        let mut all = vec![sent, replied, lost, refused, timeout];
        all.extend([&mut slice.sent_meanwhile, &mut slice.replied_meanwhile]);
        all.extend([&mut slice.tally.ok, &mut slice.tally.misses]);
        all.extend(&mut slice.tally.errors);
        let Timed { intended_ns, latency_ns, late_ns } = &mut slice.samples[0];
        all.extend([intended_ns, latency_ns, late_ns]);
        let Unusual { intended_ns, latency_ns, .. } = &mut slice.unusual[0];
        all.extend([intended_ns, latency_ns]);
        let Unanswered { intended_ns, sent_ns, .. } = &mut slice.unanswered[0];
        all.extend([intended_ns, sent_ns]);
        all
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
        // Of the three clocks there is the first.
        put_numbers(&[1, 1, 500, 0, 0], &mut bytes);
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
                outcome: match code {
                    0 => Outcome::Ok,
                    1 => Outcome::Miss,
                    _ => Outcome::Error(ErrorKind::VARIANTS[code as usize - 2]),
                },
                code: ErrorCode::of(&code.to_string().into_bytes()),
            },
        );
        let unanswered = (0..=TIME_NS_MAX, 0..=TIME_NS_MAX, 0..3_usize).prop_map(
            |(intended_ns, sent_ns, failure)| Unanswered {
                intended_ns,
                sent_ns,
                failure: [Failure::Lost, Failure::Refused, Failure::Timeout][failure],
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
