//! What a measurement keeps: whole histograms, the order of latencies within a bound, and the run
//! over time.

use hdrhistogram::Histogram;
use tailcut_measure::app::Tally;
use tailcut_measure::load::Rates;
use tailcut_measure::outcome::{Counts, LATENCY_MAX_NS};
use tailcut_measure::slices::Slice;
use tailcut_measure::statistics::arrival_fit::ArrivalFit;
use tailcut_measure::statistics::series::{Series, Timed};

/// Latencies of one kind.
#[derive(Clone, Debug)]
pub struct Kept {
    /// All of them, ns.
    pub histogram: Histogram<u64>,
    sum_ns: u128,
    /// The highest, ns.
    pub max_ns: u64,
}

/// What is kept of each slice beside its latencies from the intended send.
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
    /// One for each slice.
    pub(super) moments: Vec<Moment>,
    slice_ns: u64,
    keep: Keep,
    /// Number of the first slice.
    first: Option<u32>,
    pub(super) duration_ns: u64,
    /// Times the duration of their legs.
    weighted: Rates,
    /// The worst fit of a thread's gaps, and its gaps.
    pub(super) arrivals: Option<(ArrivalFit, Vec<f64>)>,
}

/// A slice over all agents.
#[derive(Clone, Debug, Default)]
pub(super) struct Moment {
    pub(super) counts: Counts,
    /// From the intended send, ns.
    latencies_ns: Vec<u64>,
    /// From the actual send, ns; where they are kept.
    actual_ns: Vec<u64>,
}

impl Kept {
    /// None yet.
    #[expect(clippy::new_without_default, reason = "nothing wants it by default")]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
            .expect("the bounds and the digits are valid constants");
        Self { histogram, sum_ns: 0, max_ns: 0 }
    }

    /// Takes one.
    pub fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns.min(LATENCY_MAX_NS));
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
            moments: Vec::new(),
            slice_ns,
            keep,
            first: None,
            duration_ns: 0,
            weighted: Rates::default(),
            arrivals: None,
        }
    }

    /// Takes a slice of one thread. Where its latencies are not counted, its counts are.
    pub(super) fn take(&mut self, slice: &Slice, is_counted: bool) {
        let first = *self.first.get_or_insert(slice.index);
        let place = slice.index.saturating_sub(first) as usize;
        if self.moments.len() <= place {
            self.moments.resize_with(place + 1, Moment::default);
        }
        self.moments[place].counts.merge(&slice.counts);
        self.counts.merge(&slice.counts);
        self.tally.merge(&slice.tally);
        if !is_counted {
            return;
        }
        for sample in &slice.samples {
            self.intended.record(sample.latency_ns);
            self.actual.record(sample.actual_ns());
            self.moments[place].latencies_ns.push(sample.latency_ns);
        }
        if self.keep == Keep::Both {
            self.moments[place].actual_ns.extend(slice.samples.iter().map(Timed::actual_ns));
        }
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

    pub(super) fn keep(&self) -> Keep {
        self.keep
    }

    /// The run over time, in at most `moments_max` intervals: from when and how long (s), and what
    /// happened in it.
    pub(super) fn over_time(&self, moments_max: usize) -> Vec<(f64, f64, Moment)> {
        let together = self.moments.len().div_ceil(moments_max.max(1)).max(1);
        let slice_s = self.slice_ns as f64 / 1e9;
        let join = |(index, chunk): (usize, &[Moment])| {
            let mut whole = Moment::default();
            for moment in chunk {
                whole.counts.merge(&moment.counts);
                whole.latencies_ns.extend(&moment.latencies_ns);
                whole.actual_ns.extend(&moment.actual_ns);
            }
            whole.latencies_ns.sort_unstable();
            ((index * together) as f64 * slice_s, chunk.len() as f64 * slice_s, whole)
        };
        self.moments.chunks(together).enumerate().map(join).collect()
    }
}

impl Moment {
    /// A percentile of an interval of [`Record::over_time`], ns, where ten samples lie beyond it.
    pub(super) fn percentile_ns(&self, p: f64) -> Option<u64> {
        let count = self.latencies_ns.len() as f64;
        if count * (1.0 - p) < SAMPLES_BEYOND_MIN - 1e-6 {
            return None;
        }
        self.latencies_ns.get((count * p) as usize).copied()
    }

    pub(super) fn max_ns(&self) -> Option<u64> {
        self.latencies_ns.last().copied()
    }

    /// Its latencies from the intended and from the actual send; `None` where the latter were not
    /// kept.
    pub(super) fn histograms(&self, keep: Keep) -> Option<[Histogram<u64>; 2]> {
        let of = |latencies_ns: &[u64]| {
            let mut kept = Kept::new();
            latencies_ns.iter().for_each(|&latency_ns| kept.record(latency_ns));
            kept.histogram
        };
        (keep == Keep::Both).then(|| [of(&self.latencies_ns), of(&self.actual_ns)])
    }
}

/// Fewer samples beyond a percentile than this leave it to chance.
const SAMPLES_BEYOND_MIN: f64 = 10.0;

/// Latencies kept in order, 16 MiB of them; beyond, every second one is kept, and so on.
const SERIES_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use tailcut_measure::distribution::Distribution;
    use tailcut_measure::generator::generator;
    use tailcut_measure::quantity::Unit;

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
            let histograms: Vec<_> = moments
                .iter()
                .map(|(.., moment)| moment.histograms(record.keep()).unwrap())
                .collect();
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

    #[test]
    fn a_moment_has_the_latencies_of_its_own_slices() {
        let record = record(40, Keep::Both);
        let moments = record.over_time(300);
        let [short, long] =
            [0, 1].map(|place| moments[place].2.histograms(Keep::Both).unwrap()[1].max());
        // Of 19.9 and 199 us less 1 us, to a thousandth.
        assert!(
            (18_900..18_920).contains(&short) && (198_000..198_200).contains(&long),
            "{short} {long}"
        );
    }

    #[test]
    fn without_latencies_from_the_actual_send_there_are_no_histograms() {
        let record = record(4, Keep::Intended);
        assert!(
            record
                .over_time(300)
                .iter()
                .all(|(.., moment)| moment.histograms(record.keep()).is_none())
        );
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
