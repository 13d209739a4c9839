//! The hash of tables whose keys strangers choose: strongly universal, with secret factors.
//!
//! A hash with public constants, seeded or not, lets a stranger choose keys that share a bucket,
//! and then every packet pays for all of them. Here a key of words x is hashed to the upper half of
//! b + a0 x0 + a1 x1 + ... modulo 2^128 with all of a and b secret: any two keys that are chosen
//! without knowing them collide, in any of the bits, as rarely as random numbers do
//! (Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer
//! arithmetic without primes", STACS 1996). That costs two multiplications for each word, a fifth
//! of SipHash.

use std::hash::{BuildHasher, Hasher};

use siphasher::sip::SipHasher13;

/// Makes hashers with the same secret factors.
#[derive(Clone, Copy, Debug)]
pub struct KeyedState {
    /// One for each word of a key.
    factors: [u128; FACTORS],
    /// The summand.
    summand: u128,
}

/// Hashes one key.
#[derive(Clone, Copy, Debug)]
pub struct KeyedHasher {
    /// The factors of its maker.
    state: KeyedState,
    /// The sum so far.
    sum: u128,
    /// Words in it.
    at: usize,
}

impl KeyedState {
    /// The factors that follow from a secret seed.
    pub fn with_seed(seed: u64) -> Self {
        let half = |count: u64| {
            let mut hasher = SipHasher13::new_with_keys(seed, !seed);
            hasher.write_u64(count);
            hasher.finish()
        };
        let word =
            |at: usize| u128::from(half(2 * at as u64)) << 64 | u128::from(half(2 * at as u64 + 1));
        Self { factors: std::array::from_fn(word), summand: word(FACTORS) }
    }
}

impl BuildHasher for KeyedState {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: *self, sum: self.summand, at: 0 }
    }
}

impl Hasher for KeyedHasher {
    #[inline]
    fn finish(&self) -> u64 {
        (self.sum >> 64) as u64
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        if self.at == FACTORS {
            // A longer key: what there is becomes the first word.
            let first = self.finish();
            self.sum =
                self.state.summand.wrapping_add(self.state.factors[0].wrapping_mul(first.into()));
            self.at = 1;
        }
        self.sum = self.sum.wrapping_add(self.state.factors[self.at].wrapping_mul(word.into()));
        self.at += 1;
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// Words of the longest key of a table: an IPv6 address, its port and a number.
const FACTORS: usize = 4;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn bucket(seed: u64, key: impl std::hash::Hash) -> u64 {
        KeyedState::with_seed(seed).hash_one(key) % 128
    }

    /// Keys that share one of 128 buckets under one secret are spread under another: of 65,536 some
    /// 512 are together, and then 4 of these in a bucket.
    #[test]
    fn keys_chosen_against_one_secret_do_not_collide_under_another() {
        let chosen: Vec<u64> = (0..1 << 16).filter(|&key| bucket(1, key) == 0).collect();
        assert!((300..800).contains(&chosen.len()), "{}", chosen.len());
        for at in 0..128 {
            let together = chosen.iter().filter(|&&key| bucket(2, key) == at).count();
            assert!(together <= 24, "{together} keys in bucket {at}");
        }
    }

    #[test]
    fn every_word_and_its_place_counts_in_keys_of_any_length() {
        let state = KeyedState::with_seed(7);
        for len in 1..10 {
            let mut seen = BTreeSet::new();
            for at in 0..len {
                let mut key = vec![0u64; len];
                key[at] = 1;
                let mut hasher = state.build_hasher();
                key.iter().for_each(|&word| hasher.write_u64(word));
                assert!(seen.insert(hasher.finish()), "{at} of {len}");
            }
        }
    }

    #[test]
    fn words_of_every_width_count() {
        let spread = |hashes: [u64; 2]| assert_ne!(hashes[0], hashes[1]);
        let state = KeyedState::with_seed(7);
        spread([1u8, 2].map(|key| state.hash_one(key)));
        spread([1u16, 2].map(|key| state.hash_one(key)));
        spread([1u32, 2].map(|key| state.hash_one(key)));
        spread([1usize, 2].map(|key| state.hash_one(key)));
        spread([1u128, 2].map(|key| state.hash_one(key)));
        spread([1u128 << 64, 2 << 64].map(|key| state.hash_one(key)));
    }

    #[test]
    fn bytes_are_hashed_in_words() {
        let mut whole = KeyedState::with_seed(7).build_hasher();
        whole.write(b"0123456789");
        let mut words = KeyedState::with_seed(7).build_hasher();
        words.write_u64(u64::from_le_bytes(*b"01234567"));
        words.write_u64(u64::from_le_bytes(*b"89\0\0\0\0\0\0"));
        assert_eq!(whole.finish(), words.finish());
    }

    /// Two factors with a half in common would let chosen keys collide more often than at random.
    #[test]
    fn no_two_halves_of_the_secret_words_are_the_same() {
        let KeyedState { factors, summand } = KeyedState::with_seed(7);
        let words = factors.into_iter().chain([summand]);
        let halves: BTreeSet<u64> =
            words.flat_map(|word| [word as u64, (word >> 64) as u64]).collect();
        assert_eq!(halves.len(), 2 * (FACTORS + 1));
    }

    #[test]
    fn the_hash_is_the_upper_half_of_the_sum_of_products() {
        let state = KeyedState::with_seed(7);
        let key = [u64::MAX, 3, 1 << 40, 9];
        for len in 1..=FACTORS {
            let mut hasher = state.build_hasher();
            key[..len].iter().for_each(|&word| hasher.write_u64(word));
            let products = state.factors.iter().zip(&key[..len]);
            let sum = products.fold(state.summand, |sum, (factor, &word)| {
                sum.wrapping_add(factor.wrapping_mul(word.into()))
            });
            assert_eq!(hasher.finish(), (sum >> 64) as u64, "{len} words");
        }
    }
}
