//! TLS over a connection: rustls with the ring provider, behind the same bytes in and out.
//!
//! Invariant: certificates are verified unless the owner has said [`Verification::Off`], in so many
//! words.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

/// A client's side of TLS. Cheap to clone; one serves any number of connections, which share
/// its session tickets.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// Shared by all connections.
    config: Arc<ClientConfig>,
    /// Sent to the server (SNI) and looked for in its certificate; `None` stands for the address
    /// that is connected to.
    name: Option<ServerName<'static>>,
    /// Question that is asked in clear before the handshake.
    upgrade: Option<Upgrade>,
}

/// A question in clear whether a server speaks TLS.
#[derive(Clone, Copy, Debug)]
struct Upgrade {
    /// Bytes that the client sends, and nothing before them.
    request: &'static [u8],
    /// The byte by which the server agrees, and says no more.
    agreed: u8,
}

/// The verification of the server's certificate.
#[derive(Clone, Copy, Debug)]
pub enum Verification<'a> {
    /// By these root certificates, PEM.
    Roots(&'a [u8]),
    /// Not at all: whoever is on the way can answer. For a laboratory with certificates that nobody
    /// signed.
    Off,
}

impl TlsClient {
    /// A client that asks for `name`, a host name or an address; `None` for the address that is
    /// connected to. No ALPN, unless [`TlsClient::with_alpn`] says otherwise.
    ///
    /// # Errors
    ///
    /// InvalidInput for roots that are none and for a name that cannot be one.
    pub fn new(name: Option<&str>, verification: Verification<'_>) -> io::Result<Self> {
        let name =
            name.map(|name| ServerName::try_from(name.to_owned()).map_err(invalid)).transpose()?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(invalid)?;
        let builder = match verification {
            Verification::Roots(pem) => builder.with_root_certificates(roots(pem)?),
            Verification::Off => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified::new()))
            }
        };
        Ok(Self { config: Arc::new(builder.with_no_client_auth()), name, upgrade: None })
    }

    /// Offers these protocols, the most wanted first (ALPN). A server that takes part in ALPN and
    /// has none of them ends the handshake.
    pub fn with_alpn(mut self, protocols: &[&str]) -> Self {
        let config = Arc::make_mut(&mut self.config);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// Asks in clear first, as protocols do whose port TLS came to later, and begins the handshake
    /// once the server has answered by the byte `agreed`. Any other answer ends the connection with
    /// [`Reason::Tls`](super::Reason::Tls).
    #[must_use]
    pub fn with_upgrade(mut self, request: &'static [u8], agreed: u8) -> Self {
        self.upgrade = Some(Upgrade { request, agreed });
        self
    }

    pub(super) fn session(&self, to: SocketAddr) -> io::Result<Session> {
        let name = self.name.clone().unwrap_or_else(|| ServerName::IpAddress(to.ip().into()));
        let connection = ClientConnection::new(self.config.clone(), name).map_err(invalid)?;
        let clear = self.upgrade.map_or(Clear::Over, Clear::ToAsk);
        Ok(Session { clear, ..Session::new(connection.into()) })
    }
}

/// A server's side of TLS. Cheap to clone. It asks for no certificate of the client's.
#[derive(Clone, Debug)]
pub struct TlsServer {
    /// Shared by all connections.
    config: Arc<ServerConfig>,
}

impl TlsServer {
    /// A server with a certificate chain, its own first, and the key of it, both PEM.
    ///
    /// # Errors
    ///
    /// InvalidInput for a chain or a key that cannot be read, or that do not belong together.
    pub fn new(chain: &[u8], key: &[u8]) -> io::Result<Self> {
        let chain = certificates(chain)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(invalid)?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(invalid)?;
        let config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(invalid)?;
        Ok(Self { config: Arc::new(config) })
    }

    pub(super) fn session(&self) -> io::Result<Session> {
        Ok(Session::new(ServerConnection::new(self.config.clone()).map_err(invalid)?.into()))
    }
}

/// One connection's TLS.
#[derive(Debug)]
pub(super) struct Session {
    /// The state of rustls.
    connection: rustls::Connection,
    /// Bytes that the owner has written and TLS has not taken yet.
    pub(super) plain: Vec<u8>,
    /// The end of the handshake has been told.
    is_told: bool,
    /// State of the session before TLS.
    clear: Clear,
}

/// State of a session before TLS.
#[derive(Clone, Copy, Debug)]
enum Clear {
    ToAsk(Upgrade),
    /// The server's byte is awaited.
    Asked(Upgrade),
    /// All bytes are TLS's.
    Over,
}

impl Session {
    fn new(mut connection: rustls::Connection) -> Self {
        // The link bounds what it gives at a time.
        connection.set_buffer_limit(None);
        Self { connection, plain: Vec::new(), is_told: false, clear: Clear::Over }
    }

    /// The handshake has been completed since the last call that said so.
    pub(super) fn completes(&mut self) -> bool {
        let completes = !self.is_told && !self.connection.is_handshaking();
        self.is_told |= completes;
        completes
    }

    /// Takes bytes from the socket, as many as it can at a time, and takes them off `bytes`.
    pub(super) fn take(&mut self, bytes: &mut &[u8]) -> Result<Taken, rustls::Error> {
        if let Clear::Asked(Upgrade { agreed, .. }) = self.clear {
            let (first, rest) = bytes.split_at(bytes.len().min(1));
            if first != [agreed] {
                return Err(rustls::Error::General("the server has none".to_owned()));
            }
            *bytes = rest;
            self.clear = Clear::Over;
            return Ok(Taken { plain_len: 0, is_end: false });
        }
        // A slice never fails to be read, and what is read out after each call keeps the buffer
        // from filling.
        let _ = self.connection.read_tls(bytes);
        let state = self.connection.process_new_packets()?;
        Ok(Taken { plain_len: state.plaintext_bytes_to_read(), is_end: state.peer_has_closed() })
    }

    /// Reads what [`Session::take`] has opened.
    pub(super) fn read(&mut self, into: &mut [u8]) -> usize {
        self.connection.reader().read(into).unwrap_or(0)
    }

    /// Seals what the owner has written, once the handshake permits it, and appends all that is to
    /// be sent to `out`.
    pub(super) fn seal(&mut self, out: &mut Vec<u8>) {
        match self.clear {
            Clear::ToAsk(upgrade) => {
                out.extend_from_slice(upgrade.request);
                self.clear = Clear::Asked(upgrade);
                return;
            }
            Clear::Asked(_) => return,
            Clear::Over => {}
        }
        if !self.connection.is_handshaking() && !self.plain.is_empty() {
            // Without a limit the writer takes everything.
            let written = self.connection.writer().write(&self.plain).unwrap_or(0);
            self.plain.drain(..written);
        }
        while self.connection.wants_write() {
            // A vector never fails to be written.
            let _ = self.connection.write_tls(out);
        }
    }

    /// TLS itself has something to send.
    pub(super) fn wants_write(&self) -> bool {
        match self.clear {
            Clear::ToAsk(_) => true,
            Clear::Asked(_) => false,
            Clear::Over => self.connection.wants_write(),
        }
    }

    /// Announces the end, so that the peer can tell it from an attack that cuts the stream.
    pub(super) fn end(&mut self) {
        self.connection.send_close_notify();
    }
}

/// The outcome of bytes from the socket.
pub(super) struct Taken {
    /// Bytes to be read.
    pub(super) plain_len: usize,
    /// The peer has announced its end.
    pub(super) is_end: bool,
}

/// Takes every certificate, but checks the handshake's signatures, without which nothing would be a
/// handshake.
#[derive(Debug)]
struct Unverified {
    /// Those of the provider.
    algorithms: WebPkiSupportedAlgorithms,
}

impl Unverified {
    fn new() -> Self {
        Self { algorithms: provider().signature_verification_algorithms }
    }
}

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn roots(pem: &[u8]) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem)? {
        store.add(certificate).map_err(invalid)?;
    }
    Ok(store)
}

fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(invalid)?;
    if certificates.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no certificate in it"));
    }
    Ok(certificates)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
