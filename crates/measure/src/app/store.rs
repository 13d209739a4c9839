//! The keys and values of a store: which key a request picks, and how long keys and values are.
//!
//! Invariant: a key is a function of its index and the distribution of sizes alone, so that whoever
//! preloads a store and whoever reads it mean the same keys, and no two indices share one. Sizes
//! are drawn, rounded, and bounded to what the protocol takes.

use std::fmt;

use rand::{Rng, RngExt};

use super::codec::{Loader, distribution};
use super::entry::AppOption;
use super::error::AppError;
use super::options::{Options, quoted};
use super::payload::FILL;
use crate::distribution::{Distribution, Form};
use crate::generator::{Generator, generator};
use crate::quantity::{Unit, parse_count};

/// A store, in text form `keys=10k,pick=uniform,key=fixed:30,value=fixed:200,get=0.9`, the
/// defaults, or `etc`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Store {
    /// Number of keys, 1 to 2^40.
    pub(super) keys: u64,
    /// Rule by which a request picks its key.
    pub(super) pick: Pick,
    /// Bytes of a key, bounded to what the protocol takes and to what tells the keys apart.
    pub(super) key: Distribution,
    /// Bytes of a value, bounded to what the protocol takes.
    pub(super) value: Distribution,
    /// The share of requests that read, 0 to 1, of which the others write; none for other commands.
    pub(super) get: Option<f64>,
}

/// Rule by which requests pick keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pick {
    /// Each key equally likely: `uniform`.
    Uniform,
    /// One after the other, from a place that each load thread draws: `rr`.
    RoundRobin,
    /// The key of index i with a probability that goes as (i + 1)^-exponent: `zipf:S`.
    Zipf {
        /// 0 to 100.
        exponent: f64,
    },
}

impl Default for Store {
    fn default() -> Self {
        Self {
            keys: 10_000,
            pick: Pick::Uniform,
            key: size_of_all(30.0),
            value: size_of_all(200.0),
            get: Some(0.9),
        }
    }
}

impl Store {
    /// Facebook's ETC pool: the sizes as Lancet gives them, and 30 reads for each write (Atikoglu
    /// et al., SIGMETRICS 2012).
    ///
    /// Its gaps between arrivals are `pareto:0:16.0292:0.154971`, which the load is told apart.
    fn etc() -> Self {
        let key = Form::ExtremeValue { location: 30.7984, scale: 8.20449, shape: 0.078_688 };
        let value = Form::Pareto { location: 0.0, scale: 214.476, shape: 0.348_238 };
        let checked = |form| {
            Distribution::new(form, Unit::Size).expect("the published parameters are in range")
        };
        Self { key: checked(key), value: checked(value), get: Some(30.0 / 31.0), ..Self::default() }
    }

    /// Takes the options of a store.
    pub(super) fn take(options: &mut Options, load: &mut Loader<'_>) -> Result<Self, AppError> {
        let mut store = if options.take_word("etc") { Self::etc() } else { Self::default() };
        if let Some(text) = options.take("keys")? {
            store.keys = parse_count(&text)
                .map_err(|source| AppError::Quantity { option: "keys", source })?;
            if store.keys > KEYS_MAX {
                return Err(AppError::Value { option: "keys", rule: "at most 2^40", value: text });
            }
        }
        if let Some(text) = options.take("pick")? {
            store.pick = Pick::parse(&text, store.keys)?;
        }
        if let Some(text) = options.take("key")? {
            store.key = distribution("key", &text, Unit::Size, load)?;
        }
        if let Some(text) = options.take("value")? {
            store.value = distribution("value", &text, Unit::Size, load)?;
        }
        if let Some(text) = options.take("get")? {
            let share = Unit::Plain
                .parse(&text)
                .map_err(|source| AppError::Quantity { option: "get", source })?;
            if !(0.0..=1.0).contains(&share) {
                return Err(AppError::Value { option: "get", rule: "from 0 to 1", value: text });
            }
            store.get = Some(share);
        }
        Ok(store)
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [key, value] = [&self.key, &self.value].map(|sizes| quoted(&sizes.to_string()));
        write!(f, "keys={},pick={},key={key},value={value}", self.keys, self.pick)?;
        self.get.map_or(Ok(()), |get| write!(f, ",get={get}"))
    }
}

impl Pick {
    fn parse(text: &str, keys: u64) -> Result<Self, AppError> {
        let refuse = || AppError::Value {
            option: "pick",
            rule: "uniform, rr or zipf:S; keys=N counts the keys",
            value: text.to_owned(),
        };
        match text.split_once(':') {
            None if text == "uniform" => Ok(Self::Uniform),
            None if text == "rr" => Ok(Self::RoundRobin),
            Some(("zipf", exponent)) => {
                let exponent = Unit::Plain.parse(exponent).map_err(|_| refuse())?;
                // What the grammar of distributions takes, it can draw.
                Distribution::parse(&format!("zipf:{keys}:{exponent}"), Unit::Plain)
                    .map_err(|source| AppError::Distribution { option: "pick", source })?;
                Ok(Self::Zipf { exponent })
            }
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::RoundRobin => f.write_str("rr"),
            Self::Zipf { exponent } => write!(f, "zipf:{exponent}"),
        }
    }
}

/// Draws for the requests of one load thread.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) keys: Keys,
    pub(super) values: Sizes,
    picker: Picker,
    /// The share of reads.
    get: f64,
}

impl Traffic {
    /// Refuses keys and values of which none is within these bytes.
    pub(super) fn new(
        store: &Store,
        key_max: u64,
        value_max: u64,
        rng: &mut Generator,
    ) -> Result<Self, AppError> {
        Ok(Self {
            keys: Keys::new(store, key_max)?,
            values: store.values(value_max)?,
            picker: Picker::new(store, rng)?,
            get: store.get.unwrap_or(1.0),
        })
    }

    /// The index of the next request's key, and whether it reads.
    #[inline]
    pub(super) fn draw(&mut self, rng: &mut Generator) -> (u64, bool) {
        (self.picker.pick(rng), rng.random_bool(self.get))
    }
}

/// Sizes within bounds, drawn or computed.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    distribution: Distribution,
    min: u64,
    max: u64,
    /// Set where every draw is the same.
    constant: Option<usize>,
}

impl Sizes {
    /// Refuses a distribution of which no draw lies within the bounds; `what` names it.
    pub(super) fn new(
        what: &'static str,
        distribution: &Distribution,
        min: u64,
        max: u64,
    ) -> Result<Self, AppError> {
        let at = |p| distribution.quantile(p).map_or(0.0, f64::round);
        if min > max || at(0.0) > max as f64 || at(1.0) < min as f64 {
            return Err(AppError::Sizes { what, distribution: distribution.to_string(), min, max });
        }
        let constant = match distribution.form() {
            Form::Fixed { value } => Some((value + distribution.offset()).round() as usize),
            _ => None,
        };
        Ok(Self { distribution: distribution.clone(), min, max, constant })
    }

    #[inline]
    pub(super) fn draw<R: Rng>(&self, rng: &mut R) -> usize {
        match self.constant {
            Some(size) => size,
            None => self.distribution.sample_whole(rng).clamp(self.min, self.max) as usize,
        }
    }

    /// The length of the value that a preload puts under the key of `index`.
    pub(super) fn of_value(&self, index: u64) -> usize {
        self.of_index(VALUE_STREAM, index)
    }

    /// The size that belongs to `index`, the same in every run; `stream` tells uses apart.
    #[inline]
    fn of_index(&self, stream: u64, index: u64) -> usize {
        match self.constant {
            Some(size) => size,
            None => self.draw(&mut generator(stream, index)),
        }
    }
}

/// Names every key of a store.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    sizes: Sizes,
    /// Digits that tell the indices apart.
    digits: u32,
}

impl Keys {
    /// Refuses keys of which none could be told apart in at most `bytes_max` bytes.
    pub(super) fn new(store: &Store, bytes_max: u64) -> Result<Self, AppError> {
        let bits = u64::BITS - (store.keys - 1).leading_zeros();
        let digits = bits.div_ceil(DIGIT_BITS).max(1);
        let sizes = Sizes::new("keys", &store.key, u64::from(digits), bytes_max)?;
        Ok(Self { sizes, digits })
    }

    #[inline]
    pub(super) fn len(&self, index: u64) -> usize {
        self.sizes.of_index(KEY_STREAM, index)
    }

    /// Appends the key of `index`, whose length is `len`: its digits, the least significant first,
    /// and filling.
    #[inline]
    pub(super) fn write(&self, index: u64, len: usize, out: &mut Vec<u8>) {
        let mut digits = [FILL_KEY; 16];
        for (at, digit) in digits.iter_mut().take(self.digits as usize).enumerate() {
            *digit = ALPHABET[(index >> (DIGIT_BITS * at as u32)) as usize & (ALPHABET.len() - 1)];
        }
        let end = out.len() + len;
        out.extend_from_slice(&digits[..len.min(digits.len())]);
        out.resize(end, FILL_KEY);
    }
}

impl Store {
    /// Bytes of values; refuses sizes that no value may have.
    pub(super) fn values(&self, bytes_max: u64) -> Result<Sizes, AppError> {
        Sizes::new("values", &self.value, 0, bytes_max)
    }
}

/// Appends a value.
#[inline]
pub(super) fn write_value(len: usize, out: &mut Vec<u8>) {
    out.resize(out.len() + len, FILL);
}

/// Picks keys.
#[derive(Clone, Debug)]
enum Picker {
    Uniform { keys: u64 },
    RoundRobin { keys: u64, next: u64 },
    Zipf { keys: u64, ranks: Distribution },
}

impl Picker {
    fn new(store: &Store, rng: &mut Generator) -> Result<Self, AppError> {
        let keys = store.keys;
        Ok(match store.pick {
            Pick::Uniform => Self::Uniform { keys },
            Pick::RoundRobin => Self::RoundRobin { keys, next: rng.random_range(0..keys) },
            Pick::Zipf { exponent } => {
                let ranks = Distribution::new(Form::Zipf { ranks: keys, exponent }, Unit::Plain);
                let ranks =
                    ranks.map_err(|source| AppError::Distribution { option: "pick", source })?;
                Self::Zipf { keys, ranks }
            }
        })
    }

    /// The index of the next request's key.
    #[inline]
    fn pick(&mut self, rng: &mut Generator) -> u64 {
        match self {
            Self::Uniform { keys } => rng.random_range(0..*keys),
            Self::RoundRobin { keys, next } => {
                let index = *next;
                *next = (index + 1) % *keys;
                index
            }
            // Ranks begin at one.
            Self::Zipf { keys, ranks } => ranks.sample_whole(rng).clamp(1, *keys) - 1,
        }
    }
}

fn size_of_all(value: f64) -> Distribution {
    Distribution::new(Form::Fixed { value }, Unit::Size).expect("a size is no less than zero")
}

/// Options of a store.
pub(super) const OPTIONS: &[AppOption] = &[
    AppOption {
        name: "keys",
        form: "keys=N",
        about: "keys of the store; 10,000 by default",
        example: "redis:keys=1M",
    },
    AppOption {
        name: "pick",
        form: "pick=uniform|rr|zipf:S",
        about: "which key a request names: each equally likely (the default), one after the other, or some far more often than others",
        example: "redis:pick=zipf:0.99",
    },
    AppOption {
        name: "key",
        form: "key=DIST",
        about: "bytes of a key; fixed:30 by default",
        example: "redis:key=fixed:40",
    },
    AppOption {
        name: "value",
        form: "value=DIST",
        about: "bytes of a value; fixed:200 by default",
        example: "redis:value=exp:2kB",
    },
    AppOption {
        name: "get",
        form: "get=SHARE",
        about: "share of requests that read, the others write; 0.9 by default",
        example: "redis:get=1",
    },
    AppOption {
        name: "etc",
        form: "etc",
        about: "sizes and shares of Facebook's ETC pool, before other options",
        example: "memcached-binary:etc,keys=100k",
    },
];

/// The most keys of a store.
const KEYS_MAX: u64 = 1 << 40;

/// Digits of keys: no protocol gives any of them a meaning.
const ALPHABET: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
const DIGIT_BITS: u32 = ALPHABET.len().ilog2();
const FILL_KEY: u8 = b'.';

/// Seeds of what belongs to an index; to change them makes every store loaded before another one.
const KEY_STREAM: u64 = 0x6b65_7973;
const VALUE_STREAM: u64 = 0x7661_6c75;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_index_has_a_key_of_its_own_at_any_size() {
        for (keys, size) in [
            (1, "fixed:1"),
            (64, "fixed:1"),
            (65, "fixed:2"),
            (5_000, "uni:4"),
            (5_000, "gev:30:8:0.08"),
        ] {
            let named = keys_of(keys, size).unwrap();
            let all: BTreeSet<Vec<u8>> = (0..keys).map(|index| key(&named, index)).collect();
            assert_eq!(all.len() as u64, keys, "{keys} {size}");
            assert!(all.iter().all(|key| (1..=250).contains(&key.len())));
        }
    }

    #[test]
    fn sizes_that_no_key_may_have_are_refused() {
        for (keys, size) in [(65, "fixed:1"), (10, "fixed:0"), (10, "fixed:251"), (10, "300+exp:5")]
        {
            assert!(matches!(keys_of(keys, size), Err(AppError::Sizes { .. })), "{keys} {size}");
        }
    }

    #[test]
    fn key_sizes_follow_their_distribution() {
        // The mean of the ETC pool's keys: loc + scale (Gamma(1 - shape) - 1) / shape, and rounding
        // adds nothing to it.
        let named = keys_of(200_000, "gev:30.7984:8.20449:0.078688").unwrap();
        let mean = (0..200_000).map(|index| named.len(index) as f64).sum::<f64>() / 200_000.0;
        let expected = 30.7984 + 8.20449 * (libm::tgamma(1.0 - 0.078_688) - 1.0) / 0.078_688;
        // The standard deviation is about 12, so this is five standard errors.
        assert!((mean - expected).abs() < 0.14, "{mean} {expected}");
    }

    #[test]
    fn round_robin_names_every_key_once_a_round() {
        let picked: BTreeSet<u64> = picks(Pick::RoundRobin, 100, 100).into_iter().collect();
        assert_eq!(picked.len(), 100);
    }

    #[test]
    fn zipf_names_the_first_key_as_often_as_its_law_says() {
        // 1 / H(100) = 0.19278 of 100,000; five standard errors are 620.
        let picked = picks(Pick::Zipf { exponent: 1.0 }, 100, 100_000);
        let first = picked.iter().filter(|&&index| index == 0).count();
        assert!(first.abs_diff(19_278) < 630, "{first}");
        assert!(picked.iter().all(|&index| index < 100));
    }

    #[test]
    fn uniform_names_every_key_alike() {
        // A hundredth of 100,000 each; five standard errors are 158.
        let picked = picks(Pick::Uniform, 100, 100_000);
        for index in 0..100 {
            let count = picked.iter().filter(|&&picked| picked == index).count();
            assert!(count.abs_diff(1_000) < 160, "{index} {count}");
        }
    }

    fn keys_of(keys: u64, size: &str) -> Result<Keys, AppError> {
        let key = Distribution::parse(size, Unit::Size).unwrap();
        Keys::new(&Store { keys, key, ..Store::default() }, 250)
    }

    fn key(keys: &Keys, index: u64) -> Vec<u8> {
        let mut key = Vec::new();
        keys.write(index, keys.len(index), &mut key);
        key
    }

    fn picks(pick: Pick, keys: u64, count: usize) -> Vec<u64> {
        let mut rng = generator(3, 1);
        let mut picker = Picker::new(&Store { keys, pick, ..Store::default() }, &mut rng).unwrap();
        (0..count).map(|_| picker.pick(&mut rng)).collect()
    }
}
