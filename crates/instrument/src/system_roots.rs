//! The certificates that this host trusts.
//!
//! Invariant: one that cannot be used, of which every store has some, keeps no other from being
//! trusted.

use std::sync::OnceLock;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;

/// All of them, PEM; read once.
///
/// # Errors
///
/// That there are none.
pub(crate) fn pem() -> Result<&'static str> {
    static PEM: OnceLock<String> = OnceLock::new();
    let pem = PEM.get_or_init(read);
    ensure!(
        !pem.is_empty(),
        "this host trusts no certificates (Debian: ca-certificates); say which to trust (--ca), or accept any certificate (--insecure)"
    );
    Ok(pem)
}

fn read() -> String {
    let found = rustls_native_certs::load_native_certs();
    let usable = |certificate: &&rustls::pki_types::CertificateDer<'static>| {
        RootCertStore::empty().add((*certificate).clone()).is_ok()
    };
    let mut pem = String::new();
    for certificate in found.certs.iter().filter(usable) {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = STANDARD.encode(certificate);
        // Lines of base64 are 64 letters long, all of ASCII.
        for line in text.as_bytes().chunks(LINE_LEN) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}

const LINE_LEN: usize = 64;
