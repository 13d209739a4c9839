//! Randomness from the operating system, for secrets that must differ at every start.

use std::fs::File;
use std::io::{self, Read};

/// Sixteen bytes that nobody can guess.
///
/// # Errors
///
/// When the system's random device cannot be read.
pub fn secret() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
