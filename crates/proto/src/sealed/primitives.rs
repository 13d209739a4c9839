//! The primitives, all of them aws-lc's: HKDF-SHA-256 and two AEADs. SipHash is that of the address
//! tokens.

use std::fmt;

use aws_lc_rs::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::constant_time;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk as LcPrk};
use zeroize::Zeroizing;

/// The AEAD of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cipher {
    /// AES-128-GCM, for hosts with AES instructions.
    #[default]
    Aes128Gcm,
    /// ChaCha20-Poly1305, for groups with hosts that have none.
    ChaCha20Poly1305,
}

/// A key from which keys are derived: HKDF's Expand (RFC 5869) of 32 random bytes.
#[derive(Clone)]
pub(super) struct Prk(LcPrk);

/// A key of the group's AEAD.
pub(super) struct AeadKey(LessSafeKey);

/// Length of what is derived.
#[derive(Clone, Copy)]
struct Len(usize);

impl Cipher {
    /// Bytes of its keys.
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::ChaCha20Poly1305 => 32,
        }
    }
}

/// True if two tags are the same: how long it takes tells nothing.
#[inline]
pub(super) fn are_equal(tag: &[u8], other: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(tag, other).is_ok()
}

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

impl Prk {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self(LcPrk::new_less_safe(HKDF_SHA256, secret))
    }

    /// `N` bytes for a purpose, which `parts` name: at most 255 hashes of them.
    pub(super) fn expand<const N: usize>(&self, parts: &[&[u8]]) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(parts, &mut bytes);
        bytes
    }

    /// A key of an AEAD for a purpose.
    pub(super) fn aead(&self, cipher: Cipher, parts: &[&[u8]]) -> AeadKey {
        let mut bytes = Zeroizing::new([0; 32]);
        let bytes = &mut bytes[..cipher.key_len()];
        self.fill(parts, bytes);
        AeadKey::new(cipher, bytes)
    }

    fn fill(&self, parts: &[&[u8]], bytes: &mut [u8]) {
        let okm = self.0.expand(parts, Len(bytes.len())).expect("fewer than 255 hashes");
        okm.fill(bytes).expect("the length is that which was asked for");
    }
}

impl AeadKey {
    /// Panics if `bytes` are not as many as the cipher's key has.
    pub(super) fn new(cipher: Cipher, bytes: &[u8]) -> Self {
        let algorithm = match cipher {
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        Self(LessSafeKey::new(UnboundKey::new(algorithm, bytes).expect("the key's length")))
    }

    /// Encrypts in place; gives the tag.
    pub(super) fn seal(&self, nonce: [u8; 12], aad: &[u8], payload: &mut [u8]) -> [u8; 16] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(aad), payload);
        let tag = tag.expect("a packet is shorter than 2^36 bytes");
        tag.as_ref().try_into().expect("both tags have 16 bytes")
    }

    /// Decrypts a payload with its tag behind it in place; `false` if it is forged, and then what
    /// it holds is worth nothing.
    pub(super) fn open(&self, nonce: [u8; 12], aad: &[u8], sealed: &mut [u8]) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(aad), sealed).is_ok()
    }
}

impl fmt::Debug for Prk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prk(secret)")
    }
}

impl fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AeadKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use siphasher::sip::SipHasher24;
    use siphasher::sip128::SipHasher24 as SipHasher128;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    fn check(cipher: Cipher, [key, nonce, aad]: [&str; 3], plain: &str, sealed: &str) {
        let key = AeadKey::new(cipher, &bytes(key));
        let nonce: [u8; 12] = bytes(nonce).try_into().unwrap();
        let mut payload = bytes(plain);
        let tag = key.seal(nonce, &bytes(aad), &mut payload);
        payload.extend_from_slice(&tag);
        assert_eq!(payload, bytes(sealed));
        assert!(key.open(nonce, &bytes(aad), &mut payload));
        assert_eq!(payload[..payload.len() - 16], bytes(plain));
    }

    /// RFC 5869, test case 1, from its PRK on.
    #[test]
    fn expand_is_that_of_the_rfc() {
        let prk = bytes("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
        let okm: [u8; 42] = Prk::new(&prk.try_into().unwrap())
            .expand(&[&bytes("f0f1f2f3f4"), &bytes("f5f6f7f8f9")]);
        let expected =
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        assert_eq!(okm[..], bytes(expected));
    }

    /// McGrew and Viega's test case 4, which NIST took.
    #[test]
    fn aes_128_gcm_is_that_of_its_authors() {
        check(
            Cipher::Aes128Gcm,
            [
                "feffe9928665731c6d6a8f9467308308",
                "cafebabefacedbaddecaf888",
                "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            ],
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a47",
        );
    }

    /// Those of SipHash's authors: the key 0 to 15, and the first messages of the bytes from 0 on.
    #[test]
    fn siphash_is_that_of_its_authors() {
        let key: [u8; 16] = std::array::from_fn(|at| at as u8);
        let message: Vec<u8> = (0..15).collect();
        for (len, short, long) in [
            (0, "310e0edd47db6f72", Some("a3817f04ba25a8e66df67214c7550293")),
            (1, "fd67dc93c539f874", Some("da87c1d86b99af44347659119b22fc45")),
            (15, "e545be4961ca29a1", None),
        ] {
            let tag = SipHasher24::new_with_key(&key).hash(&message[..len]);
            assert_eq!(tag.to_le_bytes()[..], bytes(short), "{len}");
            let Some(long) = long else { continue };
            let tag = SipHasher128::new_with_key(&key).hash(&message[..len]);
            assert_eq!(tag.as_bytes()[..], bytes(long), "{len}");
        }
    }

    /// Sealed bytes are opened under their own tag alone.
    #[test]
    fn a_bit_more_or_less_is_forged() {
        for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
            let key = AeadKey::new(cipher, &vec![7; cipher.key_len()]);
            let mut sealed = vec![3; 40];
            let tag = key.seal([1; 12], b"header", &mut sealed);
            sealed.extend_from_slice(&tag);
            for bit in 0..8 * sealed.len() {
                let mut changed = sealed.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(!key.open([1; 12], b"header", &mut changed), "{cipher}: bit {bit}");
            }
            for (nonce, aad) in [([2; 12], &b"header"[..]), ([1; 12], b"Header")] {
                assert!(!key.open(nonce, aad, &mut sealed.clone()), "{cipher}");
            }
            assert!(key.open([1; 12], b"header", &mut sealed));
        }
    }

    /// RFC 8439, 2.8.2.
    #[test]
    fn chacha20_poly1305_is_that_of_the_rfc() {
        let plain = "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
        let plain: String = plain.bytes().map(|byte| format!("{byte:02x}")).collect();
        check(
            Cipher::ChaCha20Poly1305,
            [
                "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
                "070000004041424344454647",
                "50515253c0c1c2c3c4c5c6c7",
            ],
            &plain,
            "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691",
        );
    }
}
