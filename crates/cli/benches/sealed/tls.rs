//! TLS over TCP, as others have it, and a key agent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use tailcut::{ClientBuilder, KeySource, Wait};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_net::keys::agent::{AgentConfig, Certificate, KeyAgent};

use super::support::{SERVER_CORE, p50_us};
use super::{GROUP, MESSAGE_LEN, Mode, serving};

/// GB a second of messages of 1 MB, each answered by 8 bytes.
pub(super) fn goodput(slice_ns: u64) -> f64 {
    let serve = |mut stream: StreamOwned<ServerConnection, TcpStream>| {
        let mut message = vec![0; MESSAGE_LEN];
        while stream.read_exact(&mut message).is_ok() && stream.write_all(&[0; 8]).is_ok() {}
    };
    with_tls(serve, |connect| {
        let (message, mut answer, mut moved) = (vec![7; MESSAGE_LEN], [0; 8], 0);
        let mut stream = connect();
        let started = Clock.now();
        while Clock.now() - started < slice_ns {
            stream.write_all(&message).expect("the server reads");
            stream.read_exact(&mut answer).expect("an answer");
            moved += MESSAGE_LEN as u64;
        }
        moved as f64 / (Clock.now() - started) as f64
    })
}

/// Microseconds, at the median, for a connection and 32 bytes there and back on it.
pub(super) fn first_echo(slice_ns: u64) -> f64 {
    let serve = |mut stream: StreamOwned<ServerConnection, TcpStream>| {
        let mut bytes = [0; 32];
        while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
    };
    with_tls(serve, |connect| {
        each(slice_ns, || {
            let mut stream = connect();
            stream.write_all(&[1; 32]).expect("the server reads");
            stream.read_exact(&mut [0; 32]).expect("an answer");
        })
    })
}

/// Microseconds, at the median, for keys from an agent, and a call by them.
pub(super) fn first_call(slice_ns: u64) -> f64 {
    // The agent has the server's core too.
    serving(Mode::Sealed, (Wait::default(), usize::MAX), |target| {
        each(slice_ns, || {
            let keys = KeySource::open(&*ASKING).expect("the agent answers");
            let client = ClientBuilder::new().seal(&keys).connect(target);
            drop(client.expect("a client").call(&[1; 32]).expect("a reply"));
        })
    })
}

fn each(slice_ns: u64, mut run: impl FnMut()) -> f64 {
    let (mut times, end) = (Vec::new(), Clock.now() + slice_ns);
    while Clock.now() < end || times.is_empty() {
        let began = Clock.now();
        run();
        times.push(Clock.now() - began);
    }
    p50_us(&mut times)
}

/// Connections to who shows a certificate of the authority, each served on the server's core.
fn with_tls(
    serve: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Sync,
    run: impl FnOnce(&dyn Fn() -> StreamOwned<ClientConnection, TcpStream>) -> f64,
) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, is_over) = (listener.local_addr().expect("it is bound"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            while let Ok((stream, _)) = listener.accept()
                && !is_over.load(Ordering::Relaxed)
            {
                stream.set_nodelay(true).expect("the option");
                let tls = ServerConnection::new(FILES.server.clone()).expect("a configuration");
                serve(StreamOwned::new(tls, stream));
            }
        });
        let connect = || {
            let stream = TcpStream::connect(address).expect("it listens");
            stream.set_nodelay(true).expect("the option");
            let name = "agent.example".try_into().expect("a name");
            let tls = ClientConnection::new(FILES.client.clone(), name).expect("a configuration");
            StreamOwned::new(tls, stream)
        };
        let result = run(&connect);
        is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(address));
        thread.join().expect("the server");
        result
    })
}

/// Certificates, and both ends of TLS.
struct Files {
    directory: PathBuf,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

static FILES: LazyLock<Files> = LazyLock::new(Files::new);

/// The file of a client that asks an agent, which answers from now on.
static ASKING: LazyLock<PathBuf> = LazyLock::new(|| {
    let at = |name: &str| FILES.directory.join(name);
    let group = write(&FILES.directory, "servers.keys", GROUP.to_text().as_str());
    let clients =
        write(&FILES.directory, "clients", "tailcut-key-clients 1\ndns:web.example client 17\n");
    let (cert, key) = (at("agent.pem"), at("agent.key"));
    let certificate = Certificate { cert, key, client_ca: at("ca.pem"), client_crl: None };
    let every = Duration::from_secs(3_600);
    let config = AgentConfig { group, clients, certificate: Some(certificate), every };
    let agent = KeyAgent::open(config).expect("its files are sound");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        affinity::pin_to(SERVER_CORE).expect("two cores");
        agent.serve(&listener).expect("its port holds");
    });
    let [ca, cert, key] =
        ["ca.pem", "web.pem", "web.key"].map(|name| at(name).display().to_string());
    let text = format!(
        "tailcut-keys-from 1\nagent tcp://{address}\nname agent.example\nca {ca}\ncert {cert}\nkey {key}\n"
    );
    write(&FILES.directory, "web.from", &text)
});

impl Files {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("tailcut-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pair = KeyPair::generate().expect("a key");
        write(&directory, "ca.pem", &params.self_signed(&pair).expect("a certificate").pem());
        let issuer = Issuer::new(params, pair);
        for name in ["agent", "web"] {
            let params = CertificateParams::new([format!("{name}.example")]).expect("a name");
            let pair = KeyPair::generate().expect("a key");
            let signed = params.signed_by(&pair, &issuer).expect("a certificate");
            write(&directory, &format!("{name}.pem"), &signed.pem());
            write(&directory, &format!("{name}.key"), &pair.serialize_pem());
        }
        let cert = |name: &str| CertificateDer::from_pem_file(directory.join(name)).expect("PEM");
        let key = |name: &str| PrivateKeyDer::from_pem_file(directory.join(name)).expect("PEM");
        let mut roots = RootCertStore::empty();
        roots.add(cert("ca.pem")).expect("an authority");
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider
            .cipher_suites
            .retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        let provider = Arc::new(provider);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider.clone())
                .build()
                .expect("an authority");
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("it has a suite")
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![cert("agent.pem")], key("agent.key"))
            .expect("a certificate");
        // A first call resumes nothing.
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("it has a suite")
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![cert("web.pem")], key("web.key"))
            .expect("a certificate");
        Self { server: Arc::new(server), client: Arc::new(client), directory }
    }
}

/// Removes the files.
pub(super) fn remove_files() {
    // What is left is in the directory of temporary files.
    let _ = std::fs::remove_dir_all(&FILES.directory);
}

/// Writes a file that nobody else reads.
fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("it is ours");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("it is ours");
    path
}
