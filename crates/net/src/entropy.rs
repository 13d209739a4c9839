//! Secrets from the kernel: what ids, tokens and table seeds are derived from.

use std::fs::File;
use std::io::{self, Read};

/// Sixteen bytes that nobody can guess, different at every call.
///
/// # Errors
///
/// What the kernel says when `/dev/urandom` cannot be read, as in a root directory without devices.
pub fn secret() -> io::Result<[u8; 16]> {
    let mut secret = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_secrets_are_alike() {
        assert_ne!(secret().expect("a secret"), secret().expect("a secret"));
    }
}
