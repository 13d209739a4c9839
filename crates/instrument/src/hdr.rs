//! Histograms as others read them: HdrHistogram V2, compressed, in base64, and the log of them that
//! viewers open.
//!
//! What is read comes from files of anybody and from other hosts, so it is refused before it costs
//! more than a histogram of ours: the format claims its own sizes.
//!
//! Invariant: what [`encode`] wrote, [`decode`] reads to the same counts; decoding allocates a few
//! hundred kB at most.

use std::io::Read as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use tailcut_measure::statistics::quantile::samples_needed;

use super::result::{Histograms, MeasureResult};

/// A histogram in HdrHistogram V2, compressed, in base64.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("writing to memory does not fail");
    STANDARD.encode(bytes)
}

/// The histogram that [`encode`] wrote, or another program of three significant digits at most.
///
/// # Errors
///
/// That the text is no such histogram, or a larger one than is read.
pub fn decode(text: &str) -> Result<Histogram<u64>> {
    ensure!(text.len() <= TEXT_LEN_MAX, "the histogram is longer than {TEXT_LEN_MAX} letters");
    let bytes = STANDARD.decode(text).context("the histogram is not base64")?;
    let Some((head, compressed)) = bytes.split_at_checked(COMPRESSED_HEAD_LEN) else {
        bail!("the histogram is cut short")
    };
    ensure!(
        be_u32(head, 0) == COOKIE_COMPRESSED,
        "the histogram is not HdrHistogram V2, compressed"
    );
    let mut plain = Vec::new();
    let limit = PLAIN_LEN_MAX as u64 + 1;
    ZlibDecoder::new(compressed)
        .take(limit)
        .read_to_end(&mut plain)
        .context("the histogram cannot be decompressed")?;
    check_claims(&plain)?;
    let read = Deserializer::new().deserialize(&mut plain.as_slice());
    let histogram: Histogram<u64> =
        read.map_err(|error| anyhow::anyhow!("the histogram is broken: {error}"))?;
    let count = histogram
        .iter_recorded()
        .try_fold(0u64, |sum, step| sum.checked_add(step.count_at_value()));
    ensure!(
        count.is_some_and(|count| count <= COUNT_MAX),
        "the histogram has more samples than can be"
    );
    Ok(histogram)
}

/// A log of the run: for each moment with histograms a line tagged `intended` and one tagged
/// `actual`, and before them `whole-intended` and `whole-actual` for all of it. Values are ns; the
/// maximum of a line is in ms.
///
/// # Errors
///
/// That a histogram of the result cannot be read.
pub fn log(result: &MeasureResult) -> Result<String> {
    let mut log = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut head = IntervalLogWriterBuilder::new();
    head.add_comment(&format!(
        "[Latencies in ns, by tailcut {}]",
        result.environment.version.escape_default()
    ));
    head.add_comment("[Histogram log format version 1.3]");
    head.with_start_time(started(result));
    head.begin_log_with(&mut log, &mut serializer).context("cannot write the log")?;
    // The crate has no call for this line, which other programs write below the head.
    log.extend_from_slice(LEGEND.as_bytes());
    let mut lines = IntervalLogWriterBuilder::new();
    let lines = lines.with_max_value_divisor(NS_PER_MS);
    let mut lines =
        lines.begin_log_with(&mut log, &mut serializer).context("cannot write the log")?;
    for line in intervals(result) {
        let Line { tag, at_s, length_s, text } = line;
        let histogram = decode(text).with_context(|| format!("{tag} latencies at {at_s} s"))?;
        let tag = Tag::new(tag).context("a tag holds no comma or space")?;
        let written =
            lines.write_histogram(&histogram, seconds(at_s), seconds(length_s), Some(tag));
        written.map_err(|error| anyhow::anyhow!("cannot write the log: {error}"))?;
    }
    String::from_utf8(log).context("the log is text")
}

/// The value at a percentile, us, where ten samples lie beyond it; at a share of zero the least
/// that was seen.
pub fn supported_us(histogram: &Histogram<u64>, share: f64) -> Option<f64> {
    let needed = if share > 0.0 { samples_needed(share).ok()? } else { 1 };
    // A bucket ends above the largest sample in it.
    (histogram.len() >= needed)
        .then(|| histogram.value_at_quantile(share).min(histogram.max()) as f64 / NS_PER_US)
}

/// A line of the log.
struct Line<'a> {
    tag: &'static str,
    /// From the beginning of the run, s.
    at_s: f64,
    length_s: f64,
    /// The histogram, as it is in a result.
    text: &'a str,
}

fn intervals(result: &MeasureResult) -> impl Iterator<Item = Line<'_>> {
    let point = &result.point;
    let whole = lines(
        ["whole-intended", "whole-actual"],
        point.warmup_s,
        point.measured_s,
        &point.histograms,
    );
    let moments = point.series.iter().filter_map(|moment| {
        let histograms = moment.histograms.as_ref()?;
        Some(lines(
            ["intended", "actual"],
            point.warmup_s + moment.at_s,
            moment.length_s,
            histograms,
        ))
    });
    whole.into_iter().chain(moments.flatten())
}

/// A line for each clock.
fn lines<'a>(
    tags: [&'static str; 2],
    at_s: f64,
    length_s: f64,
    histograms: &'a Histograms,
) -> [Line<'a>; 2] {
    let Histograms { intended, actual } = histograms;
    [(tags[0], intended), (tags[1], actual)].map(|(tag, text)| Line { tag, at_s, length_s, text })
}

/// Time at which the run began; the Unix epoch where the result does not say it in a way that can
/// be read.
fn started(result: &MeasureResult) -> SystemTime {
    humantime::parse_rfc3339(&result.environment.started).unwrap_or(UNIX_EPOCH)
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}

/// Refuses what would make the reader allocate or overflow.
fn check_claims(plain: &[u8]) -> Result<()> {
    ensure!(plain.len() <= PLAIN_LEN_MAX, "the histogram is larger than {PLAIN_LEN_MAX} bytes");
    let Some((head, counts)) = plain.split_at_checked(PLAIN_HEAD_LEN) else {
        bail!("the histogram is cut short")
    };
    ensure!(be_u32(head, 0) == COOKIE_PLAIN, "the histogram is not HdrHistogram V2");
    ensure!(be_u32(head, 4) as usize <= counts.len(), "the histogram is cut short");
    ensure!(
        be_u32(head, 12) <= DIGITS_MAX,
        "the histogram has more than {DIGITS_MAX} significant digits"
    );
    // Nine such bytes are the one number whose negation overflows.
    ensure!(
        !counts.windows(9).any(|bytes| bytes == [0xff; 9]),
        "the histogram is broken: a count beyond all"
    );
    Ok(())
}

/// Four bytes at a place that the caller has checked.
fn be_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

const COOKIE_COMPRESSED: u32 = 0x1c84_9314;
const COOKIE_PLAIN: u32 = 0x1c84_9313;
/// Cookie and length.
const COMPRESSED_HEAD_LEN: usize = 8;
/// Cookie, length, offset, digits, lowest and highest value, and ratio.
const PLAIN_HEAD_LEN: usize = 40;
/// With these a histogram of any range has less than 60,000 counts.
const DIGITS_MAX: u32 = 3;
/// Nine bytes for each of those counts.
const PLAIN_LEN_MAX: usize = 600_000;
/// Letters of a histogram that compresses to more than itself, in base64.
const TEXT_LEN_MAX: usize = 1_000_000;
/// Ten million a second for thirty years.
const COUNT_MAX: u64 = 1 << 53;
const NS_PER_US: f64 = 1e3;
const NS_PER_MS: f64 = 1e6;
const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::sample;

    #[test]
    fn what_is_written_is_read_to_the_same_counts() {
        let histogram = sample::histogram(20_000.0, 15_000.0);
        assert_eq!(decode(&encode(&histogram)).unwrap(), histogram);
    }

    #[test]
    fn an_independent_implementation_wrote_what_is_read() {
        let vector = vector();
        let histogram = decode(vector["histogram"].as_str().unwrap()).unwrap();
        assert_eq!(histogram.len(), vector["count"].as_u64().unwrap());
        for pair in vector["values_ns"].as_array().unwrap() {
            let (share, value) = (pair[0].as_f64().unwrap(), pair[1].as_u64().unwrap());
            assert_eq!(histogram.value_at_quantile(share), value, "{share}");
        }
    }

    #[test]
    fn the_log_has_a_line_for_each_moment_and_clock() {
        let log = log(&sample::full()).unwrap();
        let head: Vec<&str> = log.lines().take(5).collect();
        assert_eq!(
            head[1..4],
            [
                "#[Histogram log format version 1.3]",
                "#[StartTime: 1795322096.000 (seconds since epoch)]",
                LEGEND.trim_end()
            ]
        );
        let lines: Vec<&str> = log.lines().filter(|line| line.starts_with("Tag=")).collect();
        assert_eq!(lines.len(), 22, "the whole run and ten moments, two clocks");
        assert!(lines[0].starts_with("Tag=whole-intended,2.000,10.000,"), "{}", lines[0]);
        assert!(lines[1].starts_with("Tag=whole-actual,2.000,10.000,"), "{}", lines[1]);
        // The second moment begins 1 s after the 2 s of warm-up.
        assert!(lines[4].starts_with("Tag=intended,3.000,1.000,"), "{}", lines[4]);
        assert!(lines[5].starts_with("Tag=actual,3.000,1.000,"), "{}", lines[5]);
    }

    #[test]
    fn the_lines_of_the_log_are_read_as_intervals() {
        let result = sample::full();
        let log = log(&result).unwrap();
        let entries = IntervalLogIterator::new(log.as_bytes())
            .map(|entry| entry.expect("a line that can be read"));
        let intervals = entries.filter_map(|entry| match entry {
            LogEntry::Interval(interval) => Some(interval),
            _ => None,
        });
        let intervals: Vec<_> = intervals.collect();
        assert_eq!(intervals.len(), 22);
        let tags: Vec<&str> = intervals
            .iter()
            .take(4)
            .filter_map(|interval| Some(interval.tag()?.as_str()))
            .collect();
        assert_eq!(tags, ["whole-intended", "whole-actual", "intended", "actual"]);
        let histograms = result.point.series[9].histograms.as_ref().unwrap();
        let last = decode(intervals[21].encoded_histogram()).unwrap();
        assert_eq!(last, decode(&histograms.actual).unwrap());
        assert_eq!(intervals[21].duration(), Duration::from_secs(1));
        assert!((intervals[21].max() - last.max() as f64 / NS_PER_MS).abs() < 1e-3);
    }

    #[test]
    fn without_histograms_of_moments_the_log_has_the_whole_run() {
        let mut result = sample::full();
        result.point.series.iter_mut().for_each(|moment| moment.histograms = None);
        let log = log(&result).unwrap();
        assert_eq!(log.lines().filter(|line| line.starts_with("Tag=whole-")).count(), 2, "{log}");
        assert_eq!(log.lines().filter(|line| line.starts_with("Tag=")).count(), 2, "{log}");
    }

    #[test]
    fn a_histogram_that_claims_too_much_is_refused() {
        check(|plain| plain[15] = 5, "more than 3 significant digits");
        check(|plain| plain[4] = 0xff, "cut short");
        check(|plain| plain.truncate(PLAIN_HEAD_LEN - 1), "cut short");
        check(|plain| plain.resize(PLAIN_LEN_MAX + 1, 0), "larger than");
        check(|plain| plain[0] = 0, "not HdrHistogram V2");
        check(|plain| plain[40..49].fill(0xff), "a count beyond all");
        check(|plain| plain[24..32].fill(0), "broken");
    }

    #[test]
    fn no_byte_that_changed_makes_it_panic() {
        let plain = plain();
        for at in 0..plain.len() {
            for value in [0, 1, 0x7f, 0x80, 0xfe, 0xff] {
                let mut changed = plain.clone();
                changed[at] = value;
                // Many changes give another histogram that is one.
                let _ = decode(&packed(&changed));
            }
        }
    }

    #[test]
    fn text_that_is_no_histogram_is_refused() {
        for (text, part) in [
            ("", "cut short"),
            ("?", "not base64"),
            ("AAAAAAAAAAAA", "not HdrHistogram V2"),
            ("HISTFAAAAAEB", "decompressed"),
        ] {
            let error = format!("{:#}", decode(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    fn vector() -> serde_json::Value {
        serde_json::from_str(include_str!("../tests/vectors/hdr.json")).unwrap()
    }

    fn check(change: impl Fn(&mut Vec<u8>), part: &str) {
        let mut plain = plain();
        change(&mut plain);
        let error = format!("{:#}", decode(&packed(&plain)).unwrap_err());
        assert!(error.contains(part), "{error}");
    }

    /// A small histogram, V2 and not compressed.
    fn plain() -> Vec<u8> {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 1_000_000, 2).unwrap();
        (1..=200u64).for_each(|step| histogram.record_n(step * step, step * step * step).unwrap());
        let mut plain = Vec::new();
        hdrhistogram::serialization::V2Serializer::new().serialize(&histogram, &mut plain).unwrap();
        plain
    }

    fn packed(plain: &[u8]) -> String {
        let mut bytes = COOKIE_COMPRESSED.to_be_bytes().to_vec();
        let mut compressed = Vec::new();
        flate2::read::ZlibEncoder::new(plain, flate2::Compression::fast())
            .read_to_end(&mut compressed)
            .unwrap();
        bytes.extend((compressed.len() as u32).to_be_bytes());
        bytes.extend(compressed);
        STANDARD.encode(bytes)
    }
}
