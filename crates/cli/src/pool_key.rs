//! The key that the servers of a pool share, in a file.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use tailcut_instrument::text_file::{self, CONFIG_BYTES_MAX};

/// Reads it.
pub(crate) fn read(path: &Path) -> Result<[u8; 16]> {
    let text = text_file::read(path, CONFIG_BYTES_MAX)
        .with_context(|| format!("cannot read the pool's key from {}", path.display()))?;
    let is_private =
        std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o077 == 0);
    if !is_private {
        let file = path.display();
        tracing::warn!(%file, "others may read the pool's key, and could speak for its servers: chmod 600");
    }
    let digits = text.trim();
    let is_key = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = u128::from_str_radix(digits, 16).ok().filter(|_| is_key);
    let hint = "the pool's key is 32 hex digits; `openssl rand -hex 16` makes one";
    Ok(key.with_context(|| format!("{}: {hint}", path.display()))?.to_be_bytes())
}
