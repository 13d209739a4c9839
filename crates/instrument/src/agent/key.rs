//! By what a coordinator and its agents know each other in TLS: a key that they share, or
//! certificates.
//!
//! Who has the key has the Ed25519 key pair that is made from it, and shows so in the handshake by
//! a certificate that is its own root and the only one that is taken. The keys of a session are of
//! that session alone and come from neither: whoever finds the shared key later reads no session
//! that was recorded before.
//!
//! [Certificates] of an authority take its place where a file says so.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};
use tailcut_net::clock::Clock;
use tailcut_net::entropy;
use tailcut_net::keys::certificates::Certificates;
use tailcut_net::keys::pinned::{self, Identity, KEY_LEN, parse_hex};
use tailcut_proto::node::Time;

use crate::text_file::{self, CONFIG_BYTES_MAX};

/// Contents of a key file: a shared key, or certificates.
#[derive(Clone, Debug)]
pub struct Key(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Shared(Shared),
    Certificates(Certificates, Served),
}

/// An agent's end of TLS by certificates, and when they were read: whoever connects has that done,
/// once a second at most.
type Served = Arc<Mutex<Option<(Time, Arc<ServerConfig>)>>>;

/// A shared key.
#[derive(Clone, Debug)]
struct Shared {
    coordinator: Arc<ClientConfig>,
    agent: Arc<ServerConfig>,
}

impl Key {
    /// Reads the file that [`Key::make`] wrote, or one that names [`Certificates`].
    ///
    /// # Errors
    ///
    /// That it cannot be read, is open to other users, or holds neither.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = text_file::read(path, CONFIG_BYTES_MAX)
            .with_context(|| format!("cannot read the key file {shown}"))?;
        let mode = fs::metadata(path)?.mode();
        if mode & 0o077 != 0 {
            bail!(
                "the key file {shown} is open to other users (mode {:o}): chmod 600 {shown}",
                mode & 0o777
            );
        }
        if Certificates::is_title_of(&text) {
            let parsed = Certificates::parse(&text);
            let certificates = parsed.map_err(|problem| anyhow!("{shown}: {problem}"))?;
            return Ok(Self(Kind::Certificates(certificates, Served::default())));
        }
        let bytes = parse_hex(text.trim()).with_context(|| {
            format!("{shown} holds no key, which is {KEY_LEN} bytes in hexadecimal; make one with: tailcut agent --make-key FILE")
        })?;
        Self::of(&bytes)
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
        let secret = || entropy::secret().context("cannot draw a random number");
        let halves = [secret()?, secret()?];
        let text: String = halves.as_flattened().iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(file, "{text}").with_context(|| format!("cannot write {shown}"))
    }

    /// Stand-in for a key where none is needed: both sides know it, and so does everybody.
    pub(super) fn public() -> Result<Self> {
        Self::of(&[0; KEY_LEN])
    }

    pub(super) fn of(bytes: &[u8; KEY_LEN]) -> Result<Self> {
        let (certificate, private) = identity(bytes)?;
        let shared = Shared::new((certificate.clone(), private), certificate);
        Ok(Self(Kind::Shared(shared.context("cannot set up TLS")?)))
    }

    /// The end of TLS of a coordinator that connects to a host.
    pub(super) fn coordinator(&self, host: &str) -> Result<Connection> {
        let (config, name) = match &self.0 {
            Kind::Shared(shared) => (shared.coordinator.clone(), ServerName::try_from(NAME)?),
            Kind::Certificates(certificates, _) => certificates.client(host, ALPN)?,
        };
        Ok(ClientConnection::new(config, name)?.into())
    }

    /// An agent's end of TLS.
    pub(super) fn agent(&self) -> Result<Connection> {
        let config = match &self.0 {
            Kind::Shared(shared) => shared.agent.clone(),
            Kind::Certificates(certificates, served) => {
                let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
                let now = Clock.now();
                match &*served {
                    Some((read_at, config)) if now - read_at < READ_INTERVAL => config.clone(),
                    _ => served.insert((now, certificates.server(ALPN)?)).1.clone(),
                }
            }
        };
        Ok(ServerConnection::new(config)?.into())
    }

    /// True if the other side has said that it speaks the agents' protocol: by ALPN, or by its
    /// certificate where the key is shared.
    pub(super) fn is_spoken_in(&self, tls: &Connection) -> bool {
        matches!(self.0, Kind::Shared(_)) || tls.alpn_protocol() == Some(ALPN)
    }

    /// Checks that somebody can be let in by what it holds.
    pub(super) fn check_agent(&self) -> Result<()> {
        self.agent().map(|_| ())
    }
}

impl Shared {
    /// Shows an identity, and takes nothing but the certificate that is trusted.
    fn new((certificate, private): Identity, trusted: CertificateDer<'static>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted)?;
        let roots = Arc::new(roots);
        let provider = Arc::new(default_provider());
        let coordinator = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(vec![certificate.clone()], private.clone_key())?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build()?;
        let mut agent = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], private)?;
        // Each session shows the key anew.
        agent.send_tls13_tickets = 0;
        Ok(Self { coordinator: Arc::new(coordinator), agent: Arc::new(agent) })
    }
}

fn identity(bytes: &[u8; KEY_LEN]) -> Result<Identity> {
    Ok(pinned::identity(bytes, SEED_LABEL, NAME)?)
}

/// In every certificate, for TLS asks for a name; it tells nobody from another.
const NAME: &str = "tailcut-agent";
const READ_INTERVAL: Time = 1_000_000_000;
/// Certificates are for other things too: the protocol says what for.
const ALPN: &[u8] = b"tailcut-agent/5";
const SEED_LABEL: &[u8] = b"tailcut agents, Ed25519 seed";

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustls::sign::{CertifiedKey, SingleCertAndKey};

    use super::*;
    use crate::agent::tests::Directory;

    /// Both ends of a handshake between holders of two keys, and who refused it, if one did.
    pub(in crate::agent) fn shake_hands(
        coordinator: &[u8; KEY_LEN],
        agent: &[u8; KEY_LEN],
    ) -> Result<(Connection, Connection), Refused> {
        shake(&Key::of(coordinator).unwrap(), &Key::of(agent).unwrap())
    }

    fn shake(coordinator: &Key, agent: &Key) -> Result<(Connection, Connection), Refused> {
        let mut coordinator = coordinator.coordinator("load.example").unwrap();
        let mut agent = agent.agent().unwrap();
        let pass = |from: &mut Connection, to: &mut Connection| {
            let mut bytes = Vec::new();
            while from.wants_write() {
                from.write_tls(&mut bytes).unwrap();
            }
            let mut bytes = bytes.as_slice();
            while !bytes.is_empty() {
                to.read_tls(&mut bytes).unwrap();
                to.process_new_packets()?;
            }
            Ok::<(), rustls::Error>(())
        };
        while coordinator.is_handshaking() || agent.is_handshaking() {
            pass(&mut coordinator, &mut agent).map_err(|_| Refused::ByAgent)?;
            pass(&mut agent, &mut coordinator).map_err(|_| Refused::ByCoordinator)?;
        }
        Ok((coordinator, agent))
    }

    #[derive(Debug)]
    pub(in crate::agent) enum Refused {
        ByAgent,
        ByCoordinator,
    }

    fn check_refused_by_agent(coordinator: &Key, agent: &Key) {
        match shake(coordinator, agent) {
            Err(Refused::ByAgent) => {}
            other => panic!("{other:?}"),
        }
    }

    fn check_refused_by_coordinator(coordinator: &Key, agent: &Key) {
        match shake(coordinator, agent) {
            Err(Refused::ByCoordinator) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Each side sees for itself, also where the other would take anybody.
    #[test]
    fn who_has_another_key_is_refused_by_either_side() {
        let [mine, theirs] = [1, 2].map(|byte| identity(&[byte; KEY_LEN]).unwrap());
        let key = Key::of(&[1; KEY_LEN]).unwrap();
        let credulous = Key(Kind::Shared(Shared::new(theirs, mine.0).unwrap()));
        check_refused_by_agent(&credulous, &key);
        check_refused_by_coordinator(&key, &credulous);
    }

    /// Whoever connects to an agent can see its certificate.
    #[test]
    fn who_has_the_certificate_alone_is_refused_by_either_side() {
        let [mine, theirs] = [1, 2].map(|byte| identity(&[byte; KEY_LEN]).unwrap());
        let signer = default_provider().key_provider.load_private_key(theirs.1).unwrap();
        let stolen = CertifiedKey::new(vec![mine.0], signer);
        let stolen = Arc::new(SingleCertAndKey::from(stolen));
        let key = Key::of(&[1; KEY_LEN]).unwrap();
        let Kind::Shared(shared) = &key.0 else { panic!("it is shared") };
        let mut coordinator = (*shared.coordinator).clone();
        coordinator.client_auth_cert_resolver = stolen.clone();
        let mut agent = (*shared.agent).clone();
        agent.cert_resolver = stolen;
        let (coordinator, agent) = (Arc::new(coordinator), Arc::new(agent));
        let thief = Key(Kind::Shared(Shared { coordinator, agent }));
        check_refused_by_agent(&thief, &key);
        check_refused_by_coordinator(&key, &thief);
    }

    /// With what it promises: TLS 1.3, in which no session's keys outlive it.
    #[test]
    fn sessions_of_one_key_have_version_1_3_and_keys_of_their_own() {
        let exported = || {
            let (coordinator, agent) = shake_hands(&[1; KEY_LEN], &[1; KEY_LEN]).unwrap();
            assert_eq!(agent.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
            let secret =
                |end: &Connection| end.export_keying_material([0; KEY_LEN], b"test", None).unwrap();
            assert_eq!(secret(&coordinator), secret(&agent));
            assert_eq!(agent.handshake_kind(), Some(rustls::HandshakeKind::Full));
            secret(&agent)
        };
        assert_ne!(exported(), exported());
    }

    #[test]
    fn a_key_that_was_made_is_read_and_differs_from_the_next() {
        let directory = Directory::new();
        let [first, second] = ["1", "2"].map(|name| directory.path(name));
        Key::make(&first).unwrap();
        Key::make(&second).unwrap();
        assert_eq!(fs::metadata(&first).unwrap().mode() & 0o777, 0o600);
        let [first, again, second] = [&first, &first, &second].map(|path| Key::read(path).unwrap());
        assert!(shake(&first, &again).is_ok());
        check_refused_by_coordinator(&first, &second);
        check_refused_by_coordinator(&second, &first);
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

    /// As another implementation of HMAC and of Ed25519 makes it: both hosts must agree.
    #[test]
    fn the_identity_of_a_key_is_what_it_always_was() {
        let (certificate, _) = identity(&[1; KEY_LEN]).unwrap();
        let expected =
            parse_hex("c62708892d9cd7f48e3ce3057ad5cb2e8983a536b178b06a6e3bbd3ccc3c4576").unwrap();
        assert!(certificate.windows(KEY_LEN).any(|bytes| bytes == expected));
    }
}
