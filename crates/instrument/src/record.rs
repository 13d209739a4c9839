//! Record of a measurement: whole histograms, the order of latencies within a bound, and the run
//! over time.
//!
//! Invariant: however long the run is, a record takes some 16 MiB for the order of latencies, and
//! for the run over time `MOMENTS_MAX` histograms, or twice as many, of 230 kB at most: less where
//! no latency is long.

use std::ops::Range;

use hdrhistogram::Histogram;
use tailcut_measure::app::{ErrorCounts, Tally};
use tailcut_measure::load::Rates;
use tailcut_measure::outcome::{Counts, LATENCY_MAX_NS};
use tailcut_measure::slices::Slice;
use tailcut_measure::statistics::arrival_fit::ArrivalFit;
use tailcut_measure::statistics::series::Series;

/// Latencies of one kind.
#[derive(Clone, Debug)]
pub struct Kept {
    /// All of them, ns.
    pub histogram: Histogram<u64>,
    sum_ns: u128,
    /// The highest, ns.
    pub max_ns: u64,
}

/// Latencies kept of each slice beside those from the intended send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Intended,
    /// Those from the actual send, so that both have histograms over time.
    Both,
}

/// The record of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) intended: Kept,
    pub(super) actual: Kept,
    /// Latencies from the intended send, in the order of sending.
    pub(super) series: Series,
    pub(super) counts: Counts,
    pub(super) tally: Tally,
    /// Errors by what they say.
    pub(super) errors: ErrorCounts,
    /// The run over time, in order, `MOMENTS_MAX` at most.
    moments: Vec<Moment>,
    /// Slices of a moment; a power of two.
    width: u32,
    slice_ns: u64,
    keep: Keep,
    /// Requests due and heard in each slice from the first on; `None` where no thread has told of
    /// it.
    heard: Vec<Option<Heard>>,
    /// Number of the first slice, and of the one behind the last.
    span: Option<Range<u32>>,
    pub(super) duration_ns: u64,
    /// Times the duration of their legs.
    weighted: Rates,
    /// The worst fit of a thread's gaps, and its gaps.
    pub(super) arrivals: Option<(ArrivalFit, Vec<f64>)>,
}

/// Requests due and replies heard while a slice lasted, over all agents.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// Requests that should have left.
    due: u64,
    /// Replies that came, to whichever.
    replied: u64,
}

/// A time without any reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    pub(super) length_ns: u64,
    /// Requests that should have left meanwhile.
    pub(super) due: u64,
}

/// Slices that follow each other, over all agents.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub(super) counts: Counts,
    /// From the intended send.
    pub(super) intended: Kept,
    /// From the actual send, where they are kept.
    actual: Option<Kept>,
}

impl Kept {
    /// None yet.
    #[expect(clippy::new_without_default, reason = "nothing wants it by default")]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
            .expect("the bounds and the digits are valid constants");
        Self { histogram, sum_ns: 0, max_ns: 0 }
    }

    /// None yet, in no more memory than the longest latency asks for.
    fn compact() -> Self {
        let histogram = Histogram::new(3).expect("the digits are a valid constant");
        Self { histogram, sum_ns: 0, max_ns: 0 }
    }

    /// Adds others.
    fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all bounds are equal, or grow");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Takes one.
    pub fn record(&mut self, latency_ns: u64) {
        let recorded = self.histogram.record(latency_ns.min(LATENCY_MAX_NS));
        recorded.expect("it is within the bounds, or they grow");
        self.sum_ns += u128::from(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Their mean, ns; `None` where there are none.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.histogram.is_empty()).then(|| self.sum_ns as f64 / self.histogram.len() as f64)
    }

    /// A percentile in ns, where ten samples lie beyond it.
    pub fn percentile_ns(&self, p: f64) -> Option<f64> {
        let beyond = self.histogram.len() as f64 * (1.0 - p);
        // The histogram gives the upper end of a bucket, which may exceed every sample in it.
        (beyond >= SAMPLES_BEYOND_MIN - 1e-6)
            .then(|| self.histogram.value_at_quantile(p).min(self.max_ns) as f64)
    }
}

impl Record {
    pub(super) fn new(slice_ns: u64, keep: Keep) -> Self {
        Self {
            intended: Kept::new(),
            actual: Kept::new(),
            series: Series::new(SERIES_MAX),
            counts: Counts::default(),
            tally: Tally::default(),
            errors: ErrorCounts::default(),
            moments: Vec::new(),
            width: 1,
            slice_ns,
            keep,
            heard: Vec::new(),
            span: None,
            duration_ns: 0,
            weighted: Rates::default(),
            arrivals: None,
        }
    }

    /// Takes a slice of one thread. Where its latencies are not counted, its counts are.
    pub(super) fn take(&mut self, slice: &Slice, is_counted: bool) {
        let place = self.place(slice.index);
        self.note_heard(slice);
        let moment = &mut self.moments[place];
        moment.counts.merge(&slice.counts);
        self.counts.merge(&slice.counts);
        self.tally.merge(&slice.tally);
        slice.errors().for_each(|(kind, code)| self.errors.add(kind, code, 1));
        if !is_counted {
            return;
        }
        for sample in &slice.samples {
            self.intended.record(sample.latency_ns);
            self.actual.record(sample.actual_ns());
            moment.intended.record(sample.latency_ns);
            if let Some(actual) = &mut moment.actual {
                actual.record(sample.actual_ns());
            }
        }
    }

    /// Index of a slice's moment. Where moments become too many, each takes in its neighbour.
    fn place(&mut self, slice: u32) -> usize {
        let span = self.span.get_or_insert(slice..slice);
        span.end = span.end.max(slice + 1);
        let index = slice.saturating_sub(span.start);
        while (index / self.width) as usize >= MOMENTS_MAX {
            self.width *= 2;
            self.moments = self.moments.chunks(2).map(Moment::join).collect();
        }
        let (place, keep) = ((index / self.width) as usize, self.keep);
        if self.moments.len() <= place {
            self.moments.resize_with(place + 1, || Moment::new(keep));
        }
        place
    }

    fn note_heard(&mut self, slice: &Slice) {
        let first = self.span.as_ref().map_or(slice.index, |span| span.start);
        let place = slice.index.saturating_sub(first) as usize;
        if place >= HEARD_MAX {
            return;
        }
        if self.heard.len() <= place {
            self.heard.resize(place + 1, None);
        }
        let heard = self.heard[place].get_or_insert_default();
        heard.due += slice.counts.sent;
        heard.replied += slice.replied_meanwhile;
    }

    /// The longest time in which no reply came though many requests were due, in whole slices, two
    /// at least.
    pub(super) fn longest_silence(&self) -> Option<Silence> {
        let silences = self.heard.split(|heard| heard.is_none_or(|heard| heard.replied > 0));
        let silences = silences.filter(|slices| slices.len() >= 2).map(|slices| Silence {
            length_ns: slices.len() as u64 * self.slice_ns,
            due: slices.iter().flatten().map(|heard| heard.due).sum(),
        });
        silences.filter(|silence| silence.due >= DUE_MIN).max_by_key(|silence| silence.length_ns)
    }

    /// Takes the latencies of a leg in the order of their intended sends.
    pub(super) fn note_samples(&mut self, latencies_ns: impl Iterator<Item = u64>) {
        latencies_ns.for_each(|latency_ns| self.series.push(latency_ns));
    }

    pub(super) fn note_arrivals(&mut self, fit: ArrivalFit, gaps_ns: &[f64]) {
        if self.arrivals.as_ref().is_none_or(|&(worst, _)| worst != worst.worse(fit)) {
            self.arrivals = Some((fit, gaps_ns.to_vec()));
        }
    }

    /// A leg is over.
    pub(super) fn note_leg(&mut self, duration_ns: u64, rates: Rates) {
        let weight = duration_ns as f64;
        self.duration_ns += duration_ns;
        self.weighted.offered_per_s += rates.offered_per_s * weight;
        self.weighted.sent_per_s += rates.sent_per_s * weight;
        self.weighted.replied_per_s += rates.replied_per_s * weight;
    }

    /// Over the measurement.
    pub(super) fn rates(&self) -> Rates {
        let weight = (self.duration_ns as f64).max(1.0);
        Rates {
            offered_per_s: self.weighted.offered_per_s / weight,
            sent_per_s: self.weighted.sent_per_s / weight,
            replied_per_s: self.weighted.replied_per_s / weight,
        }
    }

    /// The run over time, in at most `moments_max` intervals: from when and how long (s), and what
    /// happened in it.
    pub(super) fn over_time(&self, moments_max: usize) -> Vec<(f64, f64, Moment)> {
        let together = self.moments.len().div_ceil(moments_max.max(1)).max(1);
        let slices = together as u32 * self.width;
        let all = self.span.as_ref().map_or(0, ExactSizeIterator::len) as u32;
        let slice_s = self.slice_ns as f64 / 1e9;
        let join = |(index, chunk): (usize, &[Moment])| {
            let at = index as u32 * slices;
            let length = slices.min(all - at);
            (f64::from(at) * slice_s, f64::from(length) * slice_s, Moment::join(chunk))
        };
        self.moments.chunks(together).enumerate().map(join).collect()
    }
}

impl Moment {
    fn new(keep: Keep) -> Self {
        let actual = (keep == Keep::Both).then(Kept::compact);
        Self { counts: Counts::default(), intended: Kept::compact(), actual }
    }

    /// Several that follow each other, as one.
    fn join(moments: &[Self]) -> Self {
        let mut whole = moments[0].clone();
        for moment in &moments[1..] {
            whole.counts.merge(&moment.counts);
            whole.intended.merge(&moment.intended);
            if let (Some(whole), Some(actual)) = (&mut whole.actual, &moment.actual) {
                whole.merge(actual);
            }
        }
        whole
    }

    /// Its latencies from the intended and from the actual send, with the bounds of all; `None`
    /// where the latter were not kept.
    pub(super) fn histograms(&self) -> Option<[Histogram<u64>; 2]> {
        let whole = |kept: &Kept| {
            let mut whole = Kept::new();
            whole.merge(kept);
            whole.histogram
        };
        Some([whole(&self.intended), whole(self.actual.as_ref()?)])
    }
}

/// Moments of a run: a page shows no more.
pub(super) const MOMENTS_MAX: usize = 300;

/// Fewer samples beyond a percentile than this leave it to chance.
const SAMPLES_BEYOND_MIN: f64 = 10.0;

/// Slices of which it is kept what was heard: seven hours of 100 ms.
const HEARD_MAX: usize = 1 << 18;

/// Requests at random gaps that leave so many of them out by chance do so once in 10^8 times.
const DUE_MIN: u64 = 20;

/// Latencies kept in order, 16 MiB of them; beyond, every second one is kept, and so on.
const SERIES_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use tailcut_measure::distribution::Distribution;
    use tailcut_measure::generator::generator;
    use tailcut_measure::quantity::Unit;
    use tailcut_measure::statistics::series::Timed;

    use super::*;

    /// Slices of 100 ms with a hundred latencies each, ten times as long in every second one, all
    /// sent 1 us late.
    fn record(slices: u32, keep: Keep) -> Record {
        let mut record = Record::new(100_000_000, keep);
        for index in 5..5 + slices {
            let factor = if index.is_multiple_of(2) { 10 } else { 1 };
            let sample = |place| Timed {
                intended_ns: place,
                latency_ns: (10_000 + place * 100) * factor,
                late_ns: 1_000,
            };
            let counts = Counts { sent: 100, replied: 100, ..Counts::default() };
            record.take(
                &Slice {
                    index,
                    counts,
                    samples: (0..100).map(sample).collect(),
                    ..Slice::default()
                },
                true,
            );
        }
        record
    }

    fn sum(histograms: impl Iterator<Item = Histogram<u64>>) -> Histogram<u64> {
        histograms.fold(Kept::new().histogram, |mut sum, histogram| {
            sum.add(&histogram).unwrap();
            sum
        })
    }

    #[test]
    fn the_histograms_over_time_add_up_to_those_of_the_run() {
        for moments_max in [300, 7, 1] {
            let record = record(40, Keep::Both);
            let moments = record.over_time(moments_max);
            assert!(moments.len() <= moments_max);
            let histograms: Vec<_> =
                moments.iter().map(|(.., moment)| moment.histograms().unwrap()).collect();
            assert_eq!(
                sum(histograms.iter().map(|[intended, _]| intended.clone())),
                record.intended.histogram
            );
            assert_eq!(
                sum(histograms.iter().map(|[_, actual]| actual.clone())),
                record.actual.histogram
            );
        }
    }

    /// Longest silence in slices from the third on, each given by what was due and replied to; -1
    /// for a slice that nobody has told of.
    fn silence(slices: &[(i64, u64)]) -> Option<Silence> {
        let mut record = Record::new(100_000_000, Keep::Intended);
        for (index, &(due, replied)) in (2..).zip(slices) {
            let Ok(sent) = u64::try_from(due) else { continue };
            let counts = Counts { sent, replied: sent, ..Counts::default() };
            record.take(
                &Slice { index, counts, replied_meanwhile: replied, ..Slice::default() },
                true,
            );
        }
        record.longest_silence()
    }

    #[test]
    fn the_longest_time_without_replies_is_found() {
        let found = |slices: u64, due| Some(Silence { length_ns: slices * 100_000_000, due });
        let (answered, silent) = ((50, 50), (50, 0));
        assert_eq!(silence(&[answered, silent, silent, answered]), found(2, 100));
        let slices = [silent, silent, answered, silent, silent, silent, (50, 350)];
        assert_eq!(silence(&slices), found(3, 150));
        // One slice, few requests, and what nobody has told of are no silence.
        assert_eq!(silence(&[answered, silent, answered]), None);
        assert_eq!(silence(&[(5, 5), (5, 0), (5, 0), (5, 0), (5, 5)]), None);
        assert_eq!(silence(&[answered, silent, (-1, 0), silent, answered]), None);
    }

    /// Some two hours in slices of 100 ms, the last of which fills no moment.
    #[test]
    fn a_long_run_has_as_many_moments_as_a_short_one() {
        let (slices, mut record) = (70_001, Record::new(100_000_000, Keep::Both));
        for index in 0..slices {
            let timed = Timed { intended_ns: 0, latency_ns: 1_000, late_ns: 0 };
            let counts = Counts { sent: 1, replied: 1, ..Counts::default() };
            record.take(&Slice { index, counts, samples: vec![timed], ..Slice::default() }, true);
        }
        let moments = record.over_time(MOMENTS_MAX);
        assert!(moments.len() <= MOMENTS_MAX && record.moments.len() <= MOMENTS_MAX);
        assert_eq!(moments.iter().map(|(.., moment)| moment.counts.sent).sum::<u64>(), 70_001);
        let (at_s, length_s, last) = moments.last().unwrap();
        assert!((at_s + length_s - 7_000.1).abs() < 1e-6, "{at_s} {length_s}");
        assert_eq!(last.counts.sent, (length_s * 10.0).round() as u64);
        let histograms = moments.iter().map(|(.., moment)| moment.histograms().unwrap());
        assert_eq!(sum(histograms.map(|[intended, _]| intended)), record.intended.histogram);
    }

    #[test]
    fn a_moment_has_the_latencies_of_its_own_slices() {
        let record = record(40, Keep::Both);
        let moments = record.over_time(300);
        let [short, long] = [0, 1].map(|place| moments[place].2.histograms().unwrap()[1].max());
        // Of 19.9 and 199 us less 1 us, to a thousandth.
        assert!(
            (18_900..18_920).contains(&short) && (198_000..198_200).contains(&long),
            "{short} {long}"
        );
    }

    #[test]
    fn without_latencies_from_the_actual_send_there_are_no_histograms() {
        let record = record(4, Keep::Intended);
        assert!(record.over_time(300).iter().all(|(.., moment)| moment.histograms().is_none()));
    }

    /// The average of their p99s would be 1.6 ms, for the slowest makes the tail of all.
    #[test]
    fn sixteen_agents_have_the_percentiles_of_the_union() {
        let mut record = Record::new(1_000_000, Keep::Intended);
        let mut union = Vec::new();
        for agent in 0..16 {
            let mean_us = if agent == 15 { 4_000 } else { 100 };
            let latency = Distribution::parse(&format!("exp:{mean_us}us"), Unit::Time).unwrap();
            let mut random = generator(1, agent);
            let mut slice = Slice::default();
            for index in 0..5_000 {
                let latency_ns = latency.sample(&mut random) as u64;
                slice.samples.push(Timed { intended_ns: index, latency_ns, late_ns: 0 });
                union.push(latency_ns);
            }
            record.take(&slice, true);
        }
        union.sort_unstable();
        for p in [0.5, 0.9, 0.99, 0.999] {
            let exact_ns = union[(union.len() as f64 * p).ceil() as usize - 1] as f64;
            let found_ns = record.intended.percentile_ns(p).unwrap();
            assert!(
                (found_ns / exact_ns - 1.0).abs() < 1e-3,
                "p{}: {found_ns} ns, {exact_ns} ns",
                100.0 * p
            );
        }
        assert!(record.intended.percentile_ns(0.99).unwrap() > 5e6);
    }
}
