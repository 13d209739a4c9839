//! The certificate of a server over TLS: the owner's, or one made at start that clients are given
//! to trust.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use tailcut_instrument::text_file::{self, CONFIG_BYTES_MAX};
use tailcut_net::stream::TlsServer;

use super::Args;
use crate::network;

/// Server of TLS by the arguments.
pub(super) fn tls(args: &Args) -> Result<TlsServer> {
    match (&args.cert, &args.key, &args.self_signed) {
        (Some(chain), Some(key), None) => {
            let tls = TlsServer::new(&read(chain)?, &read(key)?);
            tls.with_context(|| {
                format!("cannot serve TLS with {} and {}", chain.display(), key.display())
            })
        }
        (None, None, Some(file)) => self_signed(network::resolve(&args.listen)?, file),
        _ => bail!(
            "TLS needs a certificate: --cert and --key, or --self-signed FILE to have one made"
        ),
    }
}

/// Makes a certificate for this host and writes it, but never its key, to `file`.
fn self_signed(listen: SocketAddr, file: &Path) -> Result<TlsServer> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let own = Some(listen.ip().to_string())
        .filter(|ip| !listen.ip().is_unspecified() && !names.contains(ip));
    let made = rcgen::generate_simple_self_signed(names.into_iter().chain(own).collect::<Vec<_>>());
    let rcgen::CertifiedKey { cert, signing_key } = made.context("cannot make a certificate")?;
    fs::write(file, cert.pem())
        .with_context(|| format!("cannot write the certificate to {}", file.display()))?;
    TlsServer::new(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes())
        .context("cannot serve TLS")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let text = text_file::read(path, CONFIG_BYTES_MAX);
    text.map(String::into_bytes).with_context(|| format!("cannot read {}", path.display()))
}
