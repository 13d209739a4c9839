//! A log of queries, as from people who search what is there.
//!
//! Half of them are one to three words, a fifth several words that must all be there, a fifth
//! phrases that passages have, and a tenth a word among passages of some sizes. Words are drawn by
//! Zipf's law over their rank, the most frequent ones left out, for which nobody asks.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::index::{SAMPLES, Searcher};

/// The queries, which follow from the index and the seed.
///
/// # Errors
///
/// That there is no index, or too little in it.
pub fn log(directory: &Path, count: u32, seed: u64) -> Result<Vec<String>> {
    let words = Searcher::open(directory)?.words()?;
    let samples = fs::read_to_string(directory.join(SAMPLES)).context("cannot read the samples")?;
    let samples: Vec<&str> = samples.lines().filter(|line| line.split(' ').count() > 4).collect();
    ensure!(words.len() > 2 * STOP_WORDS && !samples.is_empty(), "the index has too few words");
    let mut words: Vec<String> = words.into_iter().map(|(_, word)| word).collect();
    let stop_words = words.drain(..STOP_WORDS).collect();
    let mut draw = Draw {
        zipf: zipf(words.len()),
        words,
        stop_words,
        samples,
        rng: Pcg64::seed_from_u64(seed),
    };
    Ok((0..count).map(|_| draw.query()).collect())
}

struct Draw<'a> {
    /// By word, the share of what is asked that is it or one more frequent.
    zipf: Vec<f64>,
    words: Vec<String>,
    stop_words: BTreeSet<String>,
    samples: Vec<&'a str>,
    rng: Pcg64,
}

impl Draw<'_> {
    fn query(&mut self) -> String {
        match self.rng.random_range(0..10) {
            0..5 => self.some(1, 3).join(" "),
            5..7 => {
                self.some(2, 3).iter().map(|word| format!("+{word}")).collect::<Vec<_>>().join(" ")
            }
            7..9 => self.phrase(),
            _ => {
                let from = self.rng.random_range(0..900);
                format!("+{} +size:[{from} TO {}]", self.word(), from + 200)
            }
        }
    }

    fn some(&mut self, least: usize, most: usize) -> Vec<String> {
        let count = self.rng.random_range(least..=most);
        (0..count).map(|_| self.word()).collect()
    }

    fn word(&mut self) -> String {
        let drawn: f64 = self.rng.random();
        self.words[self.zipf.partition_point(|share| *share < drawn).min(self.words.len() - 1)]
            .clone()
    }

    /// Two or three words that stand together somewhere, one of which says something.
    fn phrase(&mut self) -> String {
        let sample: Vec<&str> =
            self.samples.choose(&mut self.rng).unwrap_or(&"").split(' ').collect();
        let length = self.rng.random_range(2..=3);
        let begin = self.rng.random_range(0..=sample.len() - length);
        let plain = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric());
        let words: Vec<&str> =
            sample[begin..begin + length].iter().copied().filter(plain).collect();
        let is_said = |word: &&str| !self.stop_words.contains(&word.to_ascii_lowercase());
        // What is no words, such as code, or says nothing, such as "is the", is asked for by a
        // word.
        if words.len() == length && words.iter().any(is_said) {
            format!("\"{}\"", words.join(" "))
        } else {
            self.word()
        }
    }
}

/// By rank the share of all draws up to it, by Zipf's law with an exponent of one.
fn zipf(ranks: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = (1..=ranks)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    sums.iter_mut().for_each(|share| *share /= sum);
    sums
}

/// Words that nobody searches for, since nearly everything has them.
const STOP_WORDS: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64) -> Vec<String> {
        let words: Vec<String> = (0..100).map(|rank| format!("word{rank}")).collect();
        let samples = vec!["one two three four five six"];
        let rng = Pcg64::seed_from_u64(seed);
        let stop_words = BTreeSet::new();
        let mut draw = Draw { zipf: zipf(words.len()), words, stop_words, samples, rng };
        (0..1000).map(|_| draw.query()).collect()
    }

    #[test]
    fn a_seed_gives_its_log() {
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn the_log_has_all_kinds_and_frequent_words_often() {
        let log = drawn(1);
        let count = |is: fn(&&String) -> bool| log.iter().filter(is).count();
        assert!((150..250).contains(&count(|query| query.starts_with('"'))));
        assert!((60..140).contains(&count(|query| query.contains("size:["))));
        // Of a hundred words by Zipf's law the first is a fifth of what is asked.
        assert!(
            count(|query| query.contains("word0")) > 10 * count(|query| query.contains("word99"))
        );
    }
}
