//! An identity in TLS that follows from a shared secret: agents of measurements and of keys know
//! each other by it.
//!
//! Who has the secret has the Ed25519 key pair that is made from it, and shows so in the handshake
//! by a certificate that is its own root and the only one that is taken.

use std::io;
use std::path::Path;

use aws_lc_rs::hmac;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use super::file::{invalid, read_secret};

/// Certificate that only a holder of the secret can show, and the private key that it is for.
pub type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// The identity of a secret for a purpose, which `label` names, in a certificate for `name`.
///
/// # Errors
///
/// That `name` cannot be in a certificate.
pub fn identity(secret: &[u8; KEY_LEN], label: &[u8], name: &str) -> io::Result<Identity> {
    let seed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), label);
    let pair = Zeroizing::new([PKCS8_ED25519, seed.as_ref()].concat());
    let private = PrivatePkcs8KeyDer::from(pair.to_vec());
    let certified = || {
        let pair = KeyPair::try_from(&private)?;
        CertificateParams::new([name.to_owned()])?.self_signed(&pair)
    };
    let certificate = certified().map_err(io::Error::other)?;
    Ok((certificate.der().clone(), private.into()))
}

/// A pre-shared key of a key agent's client, and the name by which the client says which one it
/// has.
pub(crate) fn pre_shared(path: &Path) -> io::Result<(Identity, String)> {
    let text = read_secret(path)?;
    let secret = parse_hex(text.trim()).map(Zeroizing::new).ok_or_else(|| {
        let shown = path.display();
        invalid(format!(
            "{shown} holds no pre-shared key, which is 64 hexadecimal digits: make one by `tailcut keys psk`"
        ))
    })?;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &*secret), b"tailcut key agent, name");
    let hex: String = tag.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("k{hex}.psk.tailcut");
    Ok((identity(&secret, b"tailcut key agent, Ed25519 seed", &name)?, name))
}

/// The bytes of a secret, as files have them.
pub fn parse_hex(text: &str) -> Option<[u8; KEY_LEN]> {
    if text.len() != 2 * KEY_LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let digits = |place| u8::from_str_radix(&text[2 * place..][..2], 16);
    Some(std::array::from_fn(|place| digits(place).expect("they are hexadecimal")))
}

/// Bytes of a secret.
pub const KEY_LEN: usize = 32;

/// Prefix of the seed of an Ed25519 key in PKCS #8 (RFC 8410, section 7).
const PKCS8_ED25519: &[u8] = &[
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
