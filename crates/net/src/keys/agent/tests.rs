//! A key agent and those who ask it, over loopback.

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use tailcut_proto::sealed::Cipher;

use super::super::{LiveKeys, Source};
use super::*;

/// Files of one test, which go when it is dropped.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tailcut-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("it is ours");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left is in the directory of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pair = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&pair).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, pair), pem }
    }

    /// Writes NAME.pem and NAME.key, of who has these names.
    fn sign(&self, files: &Files, name: &str, names: Vec<SanType>) {
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.subject_alt_names = names;
        params.serial_number = Some(serial(name));
        let pair = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&pair, &self.issuer).expect("a certificate");
        files.write(&format!("{name}.pem"), &signed.pem());
        files.write(&format!("{name}.key"), &pair.serialize_pem());
    }

    /// Writes the list of those whose certificates are revoked, which holds until a year begins.
    fn revoke(&self, files: &Files, file: &str, names: &[&str], until: i32) {
        let revoked = |name: &&str| RevokedCertParams {
            serial_number: serial(name),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: names.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let signed = list.signed_by(&self.issuer).expect("a list");
        files.write(file, &signed.pem().expect("PEM"));
    }
}

/// The number of a certificate in its authority's lists.
fn serial(name: &str) -> SerialNumber {
    SerialNumber::from_slice(name.as_bytes())
}

fn uri(text: &str) -> Vec<SanType> {
    vec![SanType::URI(text.try_into().expect("ASCII"))]
}

fn dns(text: &str) -> Vec<SanType> {
    vec![SanType::DnsName(text.try_into().expect("ASCII"))]
}

/// An agent that listens, with its files, and whoever is listed.
struct Served {
    files: Files,
    authority: Authority,
    agent: Arc<KeyAgent>,
    address: SocketAddr,
}

/// Answers at a port of its own; tells where.
fn listen(agent: &Arc<KeyAgent>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let door = agent.clone();
    thread::spawn(move || door.serve(&listener));
    address
}

const LIST: &str = "\
tailcut-key-clients 1
# who                  what
spiffe://t/server      server
spiffe://t/router      router
dns:web.example        client 5
";

impl Served {
    fn new(name: &str) -> Self {
        Self::rotating(name, Duration::from_secs(60))
    }

    fn rotating(name: &str, every: Duration) -> Self {
        let (files, authority) = (Files::new(name), Authority::new());
        let epochs = vec![file::new_key(1, Clock.unix_ns() / 1_000_000).expect("random")];
        let group = Keys {
            role: Role::Server,
            group: "g".into(),
            cipher: Cipher::Aes128Gcm,
            reset: None,
            epochs,
        };
        file::create(&files.path("servers.keys"), &group).expect("a file");
        files.write("ca.pem", &authority.pem);
        authority.sign(&files, "agent", dns("agent.example"));
        authority.sign(&files, "server", uri("spiffe://t/server"));
        authority.sign(&files, "router", uri("spiffe://t/router"));
        authority.sign(&files, "web", dns("web.example"));
        authority.sign(&files, "other", dns("other.example"));
        files.write("batch.psk", &"0a".repeat(32));
        files.write("other.psk", &"0b".repeat(32));
        let psk = files.path("batch.psk");
        files.write("clients", &format!("{LIST}psk:{} client 6\n", psk.display()));
        let agent = KeyAgent::open(Self::config(&files, every)).expect("it opens");
        let address = listen(&agent);
        Self { files, authority, agent, address }
    }

    /// Another agent with the same files, but for what `change` makes of its configuration.
    fn reconfigured(mut self, change: impl FnOnce(&Files, &mut AgentConfig)) -> Self {
        let mut config = Self::config(&self.files, Duration::from_secs(60));
        change(&self.files, &mut config);
        self.agent = KeyAgent::open(config).expect("it opens");
        self.address = listen(&self.agent);
        self
    }

    fn config(files: &Files, every: Duration) -> AgentConfig {
        let [cert, key, client_ca] = ["agent.pem", "agent.key", "ca.pem"].map(|at| files.path(at));
        AgentConfig {
            group: files.path("servers.keys"),
            clients: files.path("clients"),
            certificate: Some(Certificate { cert, key, client_ca, client_crl: None }),
            every,
        }
    }

    /// Keys by a certificate.
    fn ask(&self, name: &str) -> io::Result<Arc<Keys>> {
        let [ca, cert, key] = ["ca.pem", &format!("{name}.pem"), &format!("{name}.key")]
            .map(|at| self.files.path(at).display().to_string());
        self.ask_with(name, &format!("name agent.example\nca {ca}\ncert {cert}\nkey {key}"))
    }

    fn ask_by_secret(&self, name: &str) -> io::Result<Arc<Keys>> {
        self.ask_with(name, &format!("psk {}", self.files.path(name).display()))
    }

    fn ask_with(&self, name: &str, lines: &str) -> io::Result<Arc<Keys>> {
        let text = format!("tailcut-keys-from 1\nagent tcp://{}\n{lines}\n", self.address);
        let path = self.files.write(&format!("{name}.from"), &text);
        Source::open(path).map(|source| source.keys().current())
    }

    fn check_refused(&self, asked: io::Result<Arc<Keys>>, expected: &str) {
        let error = asked.expect_err("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn everybody_gets_the_keys_of_its_role_and_no_others() {
    let served = Served::new("agent-roles");
    let group = file::read(&served.files.path("servers.keys")).expect("it is there");
    assert_eq!(group.epochs.len(), 1 + AHEAD, "the next ones were added at the start");
    let check = |asked: io::Result<Arc<Keys>>, role| {
        assert_eq!(*asked.expect("keys"), group.for_role(role).expect("a server's"));
    };
    check(served.ask("server"), Role::Server);
    check(served.ask("router"), Role::Router);
    check(served.ask("web"), Role::Client(5));
    check(served.ask_by_secret("batch.psk"), Role::Client(6));
    served.check_refused(served.ask("other"), "refused: dns:other.example is not listed");
    assert_eq!(served.agent.counts().handed_out.load(Ordering::Relaxed), 4);
    assert_eq!(served.agent.counts().refused.load(Ordering::Relaxed), 1);
    let mode = fs::metadata(served.files.path("servers.keys")).expect("a file").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
}

#[test]
fn who_cannot_show_what_counts_is_refused_by_either_side() {
    let served = Served::new("agent-strangers");
    // Of another authority, with the names of who is listed.
    let stranger = Authority::new();
    stranger.sign(&served.files, "fake", uri("spiffe://t/server"));
    served.check_refused(served.ask("fake"), "it refuses the certificate that it was shown");
    // With the certificate of who is listed, and another's private key.
    fs::copy(served.files.path("server.pem"), served.files.path("thief.pem")).expect("a file");
    fs::copy(served.files.path("web.key"), served.files.path("thief.key")).expect("a file");
    served.check_refused(served.ask("thief"), "");
    served.check_refused(served.ask_by_secret("other.psk"), "its certificate is not the one");
    // An agent that is another's is not believed.
    served.files.write("ca.pem", &stranger.pem);
    served.check_refused(served.ask("web"), "its certificate is not the one that was expected");
    served.files.write("ca.pem", &served.authority.pem);
    // Who has a pre-shared key signs certificates for nobody else.
    let (identity, name) =
        super::super::pinned::pre_shared(&served.files.path("batch.psk")).expect("it is a key");
    let rustls::pki_types::PrivateKeyDer::Pkcs8(private) = identity.1 else { panic!("PKCS #8") };
    let pair = KeyPair::try_from(&private).expect("Ed25519");
    let issuer = Issuer::new(CertificateParams::new([name]).expect("a name"), pair);
    let mut params = CertificateParams::new(Vec::new()).expect("no name");
    params.subject_alt_names = uri("spiffe://t/server");
    let own = KeyPair::generate().expect("a key");
    let signed = params.signed_by(&own, &issuer).expect("a certificate");
    served.files.write("signed.pem", &signed.pem());
    served.files.write("signed.key", &own.serialize_pem());
    served.check_refused(served.ask("signed"), "it refuses the certificate that it was shown");
    assert_eq!(served.agent.counts().handed_out.load(Ordering::Relaxed), 0);
}

#[test]
fn an_agent_without_a_certificate_says_so() {
    let served = Served::new("agent-bare").reconfigured(|_, config| config.certificate = None);
    served.ask_by_secret("batch.psk").expect("keys");
    served.check_refused(served.ask("web"), "it has no certificate: pre-shared keys alone count");
}

/// A list of revoked certificates is read again when it changes, and one that says nothing of who
/// asks lets nobody in.
#[test]
fn whose_certificate_is_revoked_gets_no_keys() {
    let served = Served::new("agent-revokes");
    served.authority.revoke(&served.files, "crl.pem", &["other"], 4_096);
    let served = served.reconfigured(|files, config| {
        config.certificate.as_mut().expect("it has one").client_crl = Some(files.path("crl.pem"));
    });
    let agent = &served.agent;
    let refused = "it refuses the certificate that it was shown: ";
    let ask = |name| served.ask(name);
    ask("web").expect("keys");
    served.check_refused(ask("other"), &format!("{refused}CertificateRevoked"));
    served.authority.revoke(&served.files, "crl.pem", &["web", "other"], 4_096);
    agent.look();
    served.check_refused(ask("web"), &format!("{refused}CertificateRevoked"));
    ask("router").expect("keys");
    served.ask_by_secret("batch.psk").expect("its authority is itself");
    // A file that is none changes nothing.
    served.files.write("crl.pem", &served.authority.pem);
    agent.look();
    let problem = lock(&agent.seen).problem.clone().expect("it is told");
    assert!(problem.contains("there is no revocation list in"), "{problem}");
    served.check_refused(ask("web"), &format!("{refused}CertificateRevoked"));
    ask("router").expect("keys");
    // Of two lists the first would count.
    let list = |names: &[&str]| {
        served.authority.revoke(&served.files, "crl.pem", names, 4_096);
        fs::read_to_string(served.files.path("crl.pem")).expect("it is there")
    };
    served.files.write("crl.pem", &(list(&[]) + &list(&["web"])));
    agent.look();
    let problem = lock(&agent.seen).problem.clone().expect("it is told");
    assert!(problem.contains("has two lists of one authority"), "{problem}");
    // Of an authority with the same name and another key, or no longer true.
    let stranger = Authority::new();
    for (signer, until) in [(&stranger, 4_096), (&served.authority, 2_021)] {
        signer.revoke(&served.files, "crl.pem", &[], until);
        agent.look();
        assert_eq!(lock(&agent.seen).problem, None);
        served.check_refused(ask("router"), refused);
    }
    served.authority.revoke(&served.files, "crl.pem", &[], 4_096);
    agent.look();
    ask("web").expect("keys");
    // Whoever asks may have a list, too.
    let path = |file: &str| served.files.path(file).display().to_string();
    let [ca, cert, key, crl] = ["ca.pem", "web.pem", "web.key", "agents.pem"].map(path);
    let lines = format!("name agent.example\nca {ca}\ncert {cert}\nkey {key}\ncrl {crl}");
    served.authority.revoke(&served.files, "agents.pem", &["other"], 4_096);
    served.ask_with("web", &lines).expect("keys");
    served.authority.revoke(&served.files, "agents.pem", &["agent"], 4_096);
    served.check_refused(served.ask_with("web", &lines), "is not the one that was expected");
    served.authority.revoke(&served.files, "agents.pem", &[], 2_021);
    served.check_refused(served.ask_with("web", &lines), "the revocation lists that are to tell");
}

/// More connections than the agent has places, which say nothing, or what is no TLS, and stay.
#[test]
fn silent_and_lying_peers_keep_nobody_out() {
    let served = Served::new("agent-silent");
    let mut peers: Vec<TcpStream> = Vec::new();
    for count in 0..100 {
        let mut peer = TcpStream::connect(served.address).expect("it listens");
        match count % 3 {
            0 => {}
            1 => drop(peer.write_all(b"GET / HTTP/1.1\r\n\r\n")),
            // The beginning of a record that is as long as can be.
            _ => drop(peer.write_all(&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3])),
        }
        peers.push(peer);
        if count % 20 == 0 {
            served.ask("web").expect("keys");
            served.ask_by_secret("batch.psk").expect("keys");
        }
    }
    served.ask("router").expect("keys");
    // They hear of their end, since others have come or their time is over.
    for peer in &mut peers {
        let mut rest = Vec::new();
        // It may be a reset.
        let _ = peer.read_to_end(&mut rest);
    }
    while !lock(&served.agent.strangers).is_empty() {
        thread::park_timeout(Duration::from_millis(5));
    }
    assert!(served.agent.counts().failed.load(Ordering::Relaxed) >= 90);
}

#[test]
fn what_changes_is_read_again_and_what_is_wrong_changes_nothing() {
    let served = Served::new("agent-reads");
    let agent = &served.agent;
    // A pre-shared key takes the place of one that has leaked.
    served.files.write("leaked.psk", &"0a".repeat(32));
    served.ask_by_secret("leaked.psk").expect("it is the one that counts");
    served.files.write("batch.psk", &"0c".repeat(32));
    agent.look();
    served.ask_by_secret("batch.psk").expect("the new one counts");
    served.check_refused(served.ask_by_secret("leaked.psk"), "");
    served.files.write("clients", "tailcut-key-clients 1\ndns:web.example king\n");
    agent.look();
    assert!(lock(&agent.seen).problem.as_ref().is_some_and(|why| why.contains("line 2 of")));
    served.ask("web").expect("the list is what it was");
    served.files.write("clients", "tailcut-key-clients 1\ndns:other.example client 9\n");
    agent.look();
    served.check_refused(served.ask("web"), "dns:web.example is not listed");
    assert_eq!(served.ask("other").expect("keys").role, Role::Client(9));
    // A key that was taken from the list is known no more.
    served.check_refused(served.ask_by_secret("batch.psk"), "");

    let before = file::read(&served.files.path("servers.keys")).expect("keys");
    served.files.write("servers.keys", "tailcut-keys 1\n");
    agent.look();
    assert_eq!(served.ask("other").expect("keys").epochs.len(), before.epochs.len());
    let now_ms = Clock.unix_ns() / 1_000_000;
    let last_ms = before.epochs.last().expect("a key").from_ms;
    let rotated = file::rotated(before, last_ms + 60_000, now_ms).expect("room");
    served.files.write("servers.keys", &rotated.to_text());
    agent.look();
    assert_eq!(lock(&agent.seen).problem, None);
    assert_eq!(served.ask("other").expect("keys").epochs.len(), rotated.epochs.len());
}

/// With the time that a key is used, keys are added: those who have them from before and those who
/// ask now have the same.
#[test]
fn keys_are_added_ahead_of_time() {
    let served = Served::rotating("agent-rotates", EVERY_MIN);
    let mut config = Served::config(&served.files, EVERY_MIN);
    // What a rotation that was interrupted has left, and what is none of it.
    let half = served.files.write("servers.keys.new", "half");
    let other = served.files.write("servers.new", "other");
    let agent = KeyAgent::open(config.clone()).expect("it opens");
    let first = served.ask("web").expect("keys");
    let live = LiveKeys::from(first);
    assert_eq!((half.exists(), other.exists()), (false, true));
    // A list that is wrong stops no rotation.
    served.files.write("clients", "nonsense");
    let begun = agent.counts().rotations.load(Ordering::Relaxed);
    while agent.counts().rotations.load(Ordering::Relaxed) < begun + 3 {
        thread::park_timeout(agent.interval());
        agent.look();
        let now_ms = Clock.unix_ns() / 1_000_000;
        let keys = lock(&agent.book).keys.clone();
        assert!(keys.epochs.iter().any(|key| key.from_ms > now_ms), "the next one is there");
        live.update(&keys.for_role(Role::Client(5)).expect("a server's")).expect("they follow");
    }
    config.every = Duration::from_millis(10);
    let error = KeyAgent::open(config).expect_err("too often").to_string();
    assert!(error.contains("a key must be used for 1s at least"), "{error}");
}
