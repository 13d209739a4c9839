//! Slices and counts as bytes, for agents that are elsewhere.
//!
//! Numbers are varints of seven bits a byte, the lowest first. A sample is the distance of its intended send from the one
//! before, its latency and its lateness: seven to nine bytes where requests leave some microseconds apart, a third of what
//! it takes in memory.
//!
//! Invariant: whatever bytes are read, nothing panics; memory is at most in proportion to the bytes that are there, not to
//! what they claim; and what is read can be added up without overflow, for no time exceeds [`TIME_NS_MAX`] and no count
//! [`COUNT_MAX`].

use thiserror::Error;

use crate::app::{ErrorKind, Tally};
use crate::recorder::Counts;
use crate::slices::Slice;
use crate::stamps::{Bias, MatchCounts};
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
        self.number().and_then(|value| if value <= max { Ok(value) } else { Err(Malformed::Beyond) })
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
        if claimed <= (self.bytes.len() / item_len_min) as u64 { Ok(claimed as usize) } else { Err(Malformed::Claim) }
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
    let Slice { index, counts, tally, samples, unanswered_sent_ns, sent_meanwhile, replied_meanwhile } = slice;
    let Counts { sent, replied, lost, refused, timeout } = *counts;
    put_numbers(&[u64::from(*index), sent, replied, lost, refused, timeout, *sent_meanwhile, *replied_meanwhile], bytes);
    put_numbers(&[tally.ok, tally.misses], bytes);
    put_numbers(&tally.errors, bytes);
    put_number(samples.len() as u64, bytes);
    let mut before_ns = 0;
    for sample in samples {
        put_time_after(before_ns, sample.intended_ns, bytes);
        put_numbers(&[sample.latency_ns, sample.late_ns], bytes);
        before_ns = sample.intended_ns;
    }
    put_number(unanswered_sent_ns.len() as u64, bytes);
    let mut before_ns = 0;
    for &sent_ns in unanswered_sent_ns {
        put_time_after(before_ns, sent_ns, bytes);
        before_ns = sent_ns;
    }
}

/// Reads a slice.
///
/// # Errors
///
/// When there is none, or one of its numbers is beyond its limit.
pub fn read_slice(reader: &mut Reader<'_>) -> Result<Slice, Malformed> {
    let index = reader.number_up_to(u64::from(u32::MAX))? as u32;
    let [sent, replied, lost, refused, timeout, sent_meanwhile, replied_meanwhile] = reader.counts()?;
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
    let unanswered_len = reader.items(1)?;
    let mut unanswered_sent_ns = Vec::with_capacity(unanswered_len);
    let mut before_ns = 0;
    for _ in 0..unanswered_len {
        before_ns = reader.time_after(before_ns)?;
        unanswered_sent_ns.push(before_ns);
    }
    Ok(Slice { index, counts, tally, samples, unanswered_sent_ns, sent_meanwhile, replied_meanwhile })
}

/// Appends what a matcher counted, and the bias that it found.
pub fn put_stamps(counts: &MatchCounts, bias: &Bias, bytes: &mut Vec<u8>) {
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
    let buckets: Vec<(u64, u64)> = bias.buckets().collect();
    put_numbers(&[bias.sum_ns(), bias.below(), buckets.len() as u64], bytes);
    for (value_ns, count) in buckets {
        put_numbers(&[value_ns, count], bytes);
    }
}

/// Reads what a matcher counted, and the bias that it found.
///
/// # Errors
///
/// When there is none, or one of its numbers is beyond its limit.
pub fn read_stamps(reader: &mut Reader<'_>) -> Result<(MatchCounts, Bias), Malformed> {
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
    let sum_ns = reader.number_up_to(TIME_NS_MAX)?;
    let below = reader.number_up_to(COUNT_MAX)?;
    let mut bias = Bias::of_sums(sum_ns, below);
    // Several values may be of one bucket, so the limit is on all of them together.
    let mut left = COUNT_MAX;
    for _ in 0..reader.items(2)? {
        let value_ns = reader.number()?;
        let count = reader.number_up_to(left)?;
        bias.record_bucket(value_ns, count);
        left -= count;
    }
    Ok((counts, bias))
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
const SLICE_LEN_TYPICAL: usize = 128;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stamps::Latencies;

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
        check_no_number(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], Malformed::Beyond);
    }

    #[test]
    fn a_claim_of_samples_that_are_not_there_allocates_nothing() {
        let mut bytes = Vec::new();
        put_numbers(&[0; 10], &mut bytes);
        put_numbers(&[0; ErrorKind::ALL.len()], &mut bytes);
        put_number(u64::MAX, &mut bytes);
        bytes.extend([1; 30]);
        let mut error = None;
        let info = allocation_counter::measure(|| error = read_slice(&mut Reader::new(&bytes)).err());
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

    /// Found by fuzzing: what was read could not be written so that it was read again.
    #[test]
    fn buckets_that_exceed_a_count_together_are_refused() {
        let mut bytes = Vec::new();
        put_numbers(&[0; 11], &mut bytes);
        put_numbers(&[0, 0, 2, 5, COUNT_MAX, 5, 1], &mut bytes);
        assert_eq!(read_stamps(&mut Reader::new(&bytes)).err(), Some(Malformed::Beyond));
    }

    #[test]
    fn a_bias_is_read_as_it_was() {
        let mut bias = Bias::new();
        for user_ns in (0..5_000).chain([2_000_000_000]) {
            bias.record(&Latencies { user_ns: Some(user_ns * 3), kernel_ns: Some(100), hardware_ns: None });
        }
        let counts = MatchCounts { requests: 1, late: 2, reversed: 3, ..MatchCounts::default() };
        let mut bytes = Vec::new();
        put_stamps(&counts, &bias, &mut bytes);
        let mut reader = Reader::new(&bytes);
        let (counts_read, bias_read) = read_stamps(&mut reader).unwrap();
        assert_eq!(reader.finish(), Ok(()));
        assert_eq!(counts_read, counts);
        assert_eq!(bias_read.summary(), bias.summary());
    }

    fn any_timed() -> impl Strategy<Value = Timed> {
        (0..=TIME_NS_MAX, 0..=TIME_NS_MAX, 0..=TIME_NS_MAX).prop_map(|(intended_ns, latency_ns, late_ns)| Timed {
            intended_ns,
            latency_ns,
            late_ns,
        })
    }

    fn any_slice() -> impl Strategy<Value = Slice> {
        let numbers = (any::<u32>(), prop::array::uniform15(0..=COUNT_MAX));
        let lists = (prop::collection::vec(any_timed(), 0..50), prop::collection::vec(0..=TIME_NS_MAX, 0..20));
        (numbers, lists).prop_map(|((index, counts), (samples, unanswered_sent_ns))| {
            let [sent, replied, lost, refused, timeout, sent_meanwhile, replied_meanwhile, ok, misses, errors @ ..] = counts;
            Slice {
                index,
                counts: Counts { sent, replied, lost, refused, timeout },
                tally: Tally { ok, misses, errors },
                samples,
                unanswered_sent_ns,
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
                prop_assert!(3 * slice.samples.len() + slice.unanswered_sent_ns.len() <= bytes.len());
            }
            let _ = read_stamps(&mut Reader::new(&bytes));
        }
    }
}
