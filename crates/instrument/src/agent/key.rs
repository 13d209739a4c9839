//! The key that a coordinator and its agents share, and what it proves.
//!
//! Each session has keys of its own, one for each direction, made from the shared key and from what
//! both sides said first, which has a random number of each. So nothing of one session means
//! anything in another, and nothing that one side sent can be sent back to it.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use ring::hmac;
use tailcut_net::entropy;

/// A shared key.
#[derive(Clone, Debug)]
pub struct Key(hmac::Key);

impl Key {
    /// Reads the file that [`Key::make`] wrote.
    ///
    /// # Errors
    ///
    /// That it cannot be read, is open to other users, or holds no key.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the key file {shown}"))?;
        let mode = fs::metadata(path)?.mode();
        if mode & 0o077 != 0 {
            bail!(
                "the key file {shown} is open to other users (mode {:o}): chmod 600 {shown}",
                mode & 0o777
            );
        }
        let bytes = parse_hex(text.trim()).with_context(|| {
            format!("{shown} holds no key, which is {KEY_LEN} bytes in hexadecimal; make one with: tailcut agent --make-key FILE")
        })?;
        Ok(Self::of(&bytes))
    }

    /// Writes a new key to a new file that its owner alone can read.
    ///
    /// # Errors
    ///
    /// That the file is there already, or cannot be written.
    pub fn make(path: &Path) -> Result<()> {
        let shown = path.display();
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot make {shown}"))?;
        let mut text = String::new();
        for byte in random()? {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
        file.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))
    }

    /// What takes the place of a key where none is needed: both sides know it, and so does
    /// everybody.
    pub(super) fn public() -> Self {
        Self::of(&[0; KEY_LEN])
    }

    pub(super) fn of(bytes: &[u8; KEY_LEN]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// What only a holder of the key can say about a transcript.
    pub(super) fn prove(&self, purpose: Purpose, transcript: &[u8]) -> [u8; TAG_LEN] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(purpose.label());
        context.update(transcript);
        tag_of(&context.sign())
    }

    /// Whether a proof is right; it takes the same time wherever it differs.
    pub(super) fn verify(&self, purpose: Purpose, transcript: &[u8], proof: &[u8]) -> bool {
        hmac::verify(&self.0, &[purpose.label(), transcript].concat(), proof).is_ok()
    }

    /// The key of one direction of a session.
    pub(super) fn session(&self, purpose: Purpose, transcript: &[u8]) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.prove(purpose, transcript))
    }
}

/// What something is proved, or a key made, for. What serves one purpose serves no other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    AgentHasKey,
    CoordinatorHasKey,
    FromAgent,
    FromCoordinator,
}

impl Purpose {
    fn label(self) -> &'static [u8; 8] {
        match self {
            Self::AgentHasKey => b"proof  a",
            Self::CoordinatorHasKey => b"proof  c",
            Self::FromAgent => b"frames a",
            Self::FromCoordinator => b"frames c",
        }
    }
}

/// Bytes that nobody can guess.
pub(super) fn random() -> Result<[u8; KEY_LEN]> {
    let mut bytes = [0; KEY_LEN];
    for half in bytes.chunks_mut(KEY_LEN / 2) {
        half.copy_from_slice(&entropy::secret().context("cannot draw a random number")?);
    }
    Ok(bytes)
}

pub(super) fn tag_of(tag: &hmac::Tag) -> [u8; TAG_LEN] {
    tag.as_ref().try_into().expect("HMAC-SHA-256 has 32 bytes")
}

fn parse_hex(text: &str) -> Option<[u8; KEY_LEN]> {
    if text.len() != 2 * KEY_LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; KEY_LEN];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

pub(super) const KEY_LEN: usize = 32;
pub(super) const TAG_LEN: usize = 32;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::agent::tests::Directory;

    #[test]
    fn a_key_that_was_made_is_read_and_differs_from_the_next() {
        let directory = Directory::new();
        let [first, second] = ["1", "2"].map(|name| directory.path(name));
        Key::make(&first).unwrap();
        Key::make(&second).unwrap();
        assert_eq!(fs::metadata(&first).unwrap().mode() & 0o777, 0o600);
        let [first, second] = [first, second].map(|path| Key::read(&path).unwrap());
        let proof = first.prove(Purpose::AgentHasKey, b"x");
        assert!(first.verify(Purpose::AgentHasKey, b"x", &proof));
        assert!(!first.verify(Purpose::CoordinatorHasKey, b"x", &proof));
        assert!(!first.verify(Purpose::AgentHasKey, b"y", &proof));
        assert!(!second.verify(Purpose::AgentHasKey, b"x", &proof));
    }

    #[test]
    fn a_key_is_not_written_over_a_file() {
        let directory = Directory::new();
        let path = directory.path("key");
        fs::write(&path, "precious").unwrap();
        assert!(Key::make(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_key_that_others_can_read_or_that_is_none_is_refused() {
        let directory = Directory::new();
        let path = directory.path("key");
        Key::make(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = |path: &Path| format!("{:#}", Key::read(path).err().unwrap());
        assert!(error(&path).contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "abc", &"g".repeat(64), &"0".repeat(63), &"+1".repeat(32)] {
            fs::write(&path, text).unwrap();
            assert!(error(&path).contains("--make-key"), "{text}");
        }
    }

    /// RFC 4231, test case 2, whose key is padded with zeroes as HMAC itself would.
    #[test]
    fn the_proof_is_hmac_sha_256() {
        let mut bytes = [0; KEY_LEN];
        bytes[..4].copy_from_slice(b"Jefe");
        let tag = hmac::sign(&Key::of(&bytes).0, b"what do ya want for nothing?");
        let expected =
            parse_hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843").unwrap();
        assert_eq!(tag_of(&tag), expected);
    }
}
