//! TLS 1.3 between a key agent and those who ask it, and what they say in it.
//!
//! ```text
//! client -> agent   the handshake, with a certificate; nothing else
//! agent  -> client  tailcut-keys-answer 1 MS      ask again after so many ms
//!                   tailcut-keys 1 ...            as in a file
//! or                tailcut-keys-refused 1 WHY
//! ```
//!
//! The version is the protocol of ALPN. Nothing is resumed: each time both show who they are.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::aws_lc_rs::sign::{any_ecdsa_type, any_supported_type};
use rustls::crypto::{CryptoProvider, KeyProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};

use webpki::{BorrowedCertRevocationList, CertRevocationList};

use super::file::{invalid, read_secret, read_text};
use super::identities::{Identities, names_of};
use super::pinned::Identity;

/// Files of certificates, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pem<P> {
    /// Authority that the other side's certificate is to be signed by.
    pub(super) ca: P,
    /// This side's, and those between it and its authority.
    pub(super) cert: P,
    /// Its private key, which nobody else may read.
    pub(super) key: P,
    /// The certificates of that authority that are revoked: its lists, where there are any.
    pub(super) crl: Option<P>,
}

/// Contents of the files of a [`Pem`].
struct Read {
    /// The authority.
    roots: RootCertStore,
    /// This side's certificate, and those between it and its authority.
    chain: Vec<CertificateDer<'static>>,
    /// Its private key.
    key: PrivateKeyDer<'static>,
    /// The authority's lists. Without one nothing is revoked.
    crls: Vec<CertificateRevocationListDer<'static>>,
}

impl<P: AsRef<Path>> Pem<P> {
    fn read(&self) -> io::Result<Read> {
        let mut roots = RootCertStore::empty();
        for root in all(self.ca.as_ref(), "certificate")? {
            roots.add(root).map_err(|error| named(self.ca.as_ref(), &error))?;
        }
        let path = self.key.as_ref();
        let text = read_secret(path)?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
        let key = key.map_err(|error| named(path, &error))?;
        let chain = all(self.cert.as_ref(), "certificate")?;
        let crls = self.crl.as_ref().map(|path| revocations(path.as_ref()));
        Ok(Read { roots, chain, key, crls: crls.transpose()?.unwrap_or_default() })
    }
}

/// The revocation lists in a file, one of each authority: of several the first would count, which
/// may be the oldest.
fn revocations(path: &Path) -> io::Result<Vec<CertificateRevocationListDer<'static>>> {
    let lists: Vec<CertificateRevocationListDer<'_>> = all(path, "revocation list")?;
    let mut issuers = Vec::new();
    for list in &lists {
        let list: CertRevocationList<'_> =
            BorrowedCertRevocationList::from_der(list).map_err(|error| named(path, &error))?.into();
        let part = list.issuing_distribution_point().map(<[u8]>::to_vec);
        let issuer = (list.issuer().to_vec(), part);
        if issuers.contains(&issuer) {
            let shown = path.display();
            return Err(invalid(format!(
                "{shown} has two lists of one authority: replace the old one"
            )));
        }
        issuers.push(issuer);
    }
    Ok(lists)
}

/// Everything of a kind in a file, of which there must be one.
fn all<T: PemObject>(path: &Path, kind: &str) -> io::Result<Vec<T>> {
    let text = read_text(path)?;
    let found: Result<Vec<_>, _> = T::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|error| named(path, &error))?;
    if found.is_empty() {
        return Err(invalid(format!("there is no {kind} in {}", path.display())));
    }
    Ok(found)
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    invalid(format!("{}: {error}", path.display()))
}

/// A client that shows an X.509 certificate, for a protocol of ALPN.
pub(super) fn client_by_certificate(
    pem: &Pem<impl AsRef<Path>>,
    alpn: &[u8],
) -> io::Result<Arc<ClientConfig>> {
    client(pem.read()?, alpn)
}

/// A client that shows a pre-shared key, and takes nobody who has not the same.
pub(super) fn client_by_secret((certificate, key): Identity) -> io::Result<Arc<ClientConfig>> {
    let read = Read { roots: root(&certificate)?, chain: vec![certificate], key, crls: Vec::new() };
    client(read, ALPN)
}

fn root(certificate: &CertificateDer<'static>) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).map_err(io::Error::other)?;
    Ok(roots)
}

fn client(read: Read, alpn: &[u8]) -> io::Result<Arc<ClientConfig>> {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(read.roots), provider())
        .with_crls(read.crls)
        .enforce_revocation_expiration()
        .build()
        .map_err(|error| invalid(format!("the authority, or its revocation list: {error}")))?;
    let built = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .and_then(|builder| {
            builder.with_webpki_verifier(verifier).with_client_auth_cert(read.chain, read.key)
        });
    let mut config = built.map_err(|error| invalid(format!("the certificate: {error}")))?;
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// An agent that shows what its clients can verify: its certificate, or the pre-shared key that
/// they name.
pub(super) fn agent(
    pem: Option<&Pem<impl AsRef<Path>>>,
    identities: &Identities,
) -> io::Result<Arc<ServerConfig>> {
    let provider = provider();
    let (own, by_authority) = pem.map(ends).transpose()?.unzip();
    let mut shown = Vec::new();
    let mut pinned = Vec::new();
    for known in &identities.pinned {
        let (certificate, key) = &known.identity;
        let certified =
            CertifiedKey::from_der(vec![certificate.clone()], key.clone_key(), &provider);
        shown.push((known.name.clone(), Arc::new(certified.map_err(io::Error::other)?)));
        let verifier = verifier(root(certificate)?, Vec::new()).map_err(io::Error::other)?;
        pinned.push((certificate.clone(), verifier));
    }
    server(Shown { own, pinned: shown }, Verifier::new(by_authority, pinned, None), ALPN)
}

/// A server of a protocol of ALPN that shows a certificate, and takes those of its authority that
/// have one of these identities.
pub(super) fn server_for(
    pem: &Pem<impl AsRef<Path>>,
    admitted: Vec<String>,
    alpn: &[u8],
) -> io::Result<Arc<ServerConfig>> {
    let (own, by_authority) = ends(pem)?;
    let verifier = Verifier::new(Some(by_authority), Vec::new(), Some(admitted));
    server(Shown { own: Some(own), pinned: Vec::new() }, verifier, alpn)
}

/// Certificate that a server shows, and the verifier of who connects.
fn ends(
    pem: &Pem<impl AsRef<Path>>,
) -> io::Result<(Arc<CertifiedKey>, Arc<dyn ClientCertVerifier>)> {
    let Read { roots, chain, key, crls } = pem.read()?;
    let own = CertifiedKey::from_der(chain, key, &provider());
    let own = own.map_err(|error| named(pem.cert.as_ref(), &error))?;
    let at = pem.crl.as_ref().unwrap_or(&pem.ca);
    let verifier = verifier(roots, crls).map_err(|error| named(at.as_ref(), &error))?;
    Ok((Arc::new(own), verifier))
}

fn verifier(
    roots: RootCertStore,
    crls: Vec<CertificateRevocationListDer<'static>>,
) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .with_crls(crls)
        .enforce_revocation_expiration()
        .build()
}

fn server(shown: Shown, verifier: Verifier, alpn: &[u8]) -> io::Result<Arc<ServerConfig>> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?;
    let mut config =
        builder.with_client_cert_verifier(Arc::new(verifier)).with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![alpn.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Cryptography provider of rustls, AES-128-GCM first: SHA-384 beside AES-256 is hashed without the
/// CPU's instructions, some hundred times in a handshake, and the exchange of keys (X25519) is no
/// stronger than the former.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = default_provider();
    provider.cipher_suites.sort_by_key(|suite| *suite != TLS13_AES_128_GCM_SHA256);
    provider.key_provider = &CurvesFirst;
    Arc::new(provider)
}

/// Takes private keys as rustls does, which tries RSA first: one of a curve would be read and
/// checked twice.
#[derive(Debug)]
struct CurvesFirst;

impl KeyProvider for CurvesFirst {
    fn load_private_key(
        &self,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        any_ecdsa_type(&key).or_else(|_| any_supported_type(&key))
    }
}

/// Certificates that an agent shows.
#[derive(Debug)]
struct Shown {
    /// Its certificate, if it has one.
    own: Option<Arc<CertifiedKey>>,
    /// By the name that a client asks for.
    pinned: Vec<(String, Arc<CertifiedKey>)>,
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked = hello.server_name();
        let pinned = self.pinned.iter().find(|(name, _)| Some(name.as_str()) == asked);
        pinned.map(|(_, shown)| shown).or(self.own.as_ref()).cloned()
    }
}

/// Verifier of clients' certificates: the pinned ones as they are, and what the authority has
/// signed. A pinned one signs no other.
#[derive(Debug)]
struct Verifier {
    /// Verifier of the authority, if there is one.
    by_authority: Option<Arc<dyn ClientCertVerifier>>,
    /// Each with what verifies it.
    pinned: Vec<(CertificateDer<'static>, Arc<dyn ClientCertVerifier>)>,
    /// Identities of certificates by the authority that are taken; all of them, where it is left
    /// out.
    admitted: Option<Vec<String>>,
    /// The authority's names.
    hints: Vec<DistinguishedName>,
    /// Provider of the algorithms that verify signatures.
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(
        by_authority: Option<Arc<dyn ClientCertVerifier>>,
        pinned: Vec<(CertificateDer<'static>, Arc<dyn ClientCertVerifier>)>,
        admitted: Option<Vec<String>>,
    ) -> Self {
        let hints = by_authority.iter().flat_map(|known| known.root_hint_subjects().to_vec());
        let (hints, provider) = (hints.collect(), provider());
        Self { by_authority, pinned, admitted, hints, provider }
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let pinned = self.pinned.iter().find(|(known, _)| known == end_entity);
        let verifier = pinned.map(|(_, verifier)| verifier).or(self.by_authority.as_ref());
        let unknown = rustls::CertificateError::UnknownIssuer;
        let verified =
            verifier.ok_or(unknown)?.verify_client_cert(end_entity, intermediates, now)?;
        let is_admitted = |admitted: &Vec<String>| {
            names_of(end_entity).is_ok_and(|names| names.iter().any(|name| admitted.contains(name)))
        };
        if self.admitted.as_ref().is_some_and(|admitted| !is_admitted(admitted)) {
            return Err(rustls::CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The protocol of ALPN, with its version.
pub(super) const ALPN: &[u8] = b"tailcut-keys/1";

/// The first line of an answer, before the time.
pub(super) const ANSWER: &str = "tailcut-keys-answer 1 ";

/// The only line of a refusal, before the reason.
pub(super) const REFUSED: &str = "tailcut-keys-refused 1 ";

/// Most bytes of an exchange: a chain of certificates, or 64 keys, and what TLS adds.
pub(super) const BYTES_MAX: usize = 1 << 16;
