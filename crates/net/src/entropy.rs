//! Randomness from the operating system, for secrets that must differ at every start.

use std::io;

use crate::sys;

/// A seed of a table whose keys strangers choose.
///
/// # Errors
///
/// As [`secret`].
pub fn seed() -> io::Result<u64> {
    Ok(u128::from_ne_bytes(secret()?) as u64)
}

/// As [`seed`], or 0 without random numbers: tables of shares are as good then, but for strangers
/// who know their key.
pub fn seed_or_zero() -> u64 {
    seed().unwrap_or_default()
}

/// Sixteen bytes that nobody can guess.
///
/// # Errors
///
/// When the system has no random numbers.
pub fn secret() -> io::Result<[u8; 16]> {
    sys::random()
}
