//! Files that a person names, read up to a limit: a name may be one of a device, which never ends.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The text of a file of `bytes_max` bytes at most.
///
/// # Errors
///
/// That it cannot be read, is longer, or is no text.
pub fn read(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read_bytes(path, bytes_max)?).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8")
    })
}

/// Contents of a file of `bytes_max` bytes at most.
///
/// # Errors
///
/// That it cannot be read or is longer.
pub fn read_bytes(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Largest size of configurations, keys and certificates, bytes.
pub const CONFIG_BYTES_MAX: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(read(manifest, CONFIG_BYTES_MAX).unwrap().contains("tailcut-instrument"));
        let error = |path: &str, bytes_max| read(path, bytes_max).unwrap_err().to_string();
        assert!(error(manifest, 10).contains("longer than 10 bytes"));
        // It has no end, and says that it has no bytes.
        assert!(error("/dev/zero", 1 << 20).contains("longer than 1048576 bytes"));
    }
}
