//! An authority, a certificate for each end, and the files of keys.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A directory, gone with who has written it.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    is_own: bool,
}

impl Files {
    pub(crate) fn write() -> Self {
        let directory = std::env::temp_dir().join(format!("tailcut-peers-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let files = Self { directory, is_own: true };
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pair = KeyPair::generate().expect("a key");
        files.put("ca.pem", &params.self_signed(&pair).expect("a certificate").pem());
        let issuer = Issuer::new(params, pair);
        for name in ["server", "client"] {
            let params = CertificateParams::new([format!("{name}.example")]).expect("a name");
            let pair = KeyPair::generate().expect("a key");
            let signed = params.signed_by(&pair, &issuer).expect("a certificate");
            files.put(&format!("{name}.pem"), &signed.pem());
            files.put(&format!("{name}.key"), &pair.serialize_pem());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set");
        let from_ms = now.as_millis() - 60_000;
        let secret = "07".repeat(32);
        files.put(
            "servers.keys",
            &format!("tailcut-keys 1\nrole server\ngroup echo\ncipher aes-128-gcm\nkey 1 {from_ms} {secret}\n"),
        );
        files.put("clients", "tailcut-key-clients 1\ndns:client.example client 17\n");
        files
    }

    /// Files that another process has written.
    pub(crate) fn at(directory: PathBuf) -> Self {
        Self { directory, is_own: false }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of a client that asks an agent.
    pub(crate) fn asking(&self, agent: SocketAddr) -> PathBuf {
        let at = |name: &str| self.path(name).display().to_string();
        let (ca, cert, key) = (at("ca.pem"), at("client.pem"), at("client.key"));
        let text = format!(
            "tailcut-keys-from 1\nagent tcp://{agent}\nname {SERVER_NAME}\nca {ca}\ncert {cert}\nkey {key}\n"
        );
        self.put("client.from", &text)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("it was written")
    }

    /// Writes a file that nobody else reads.
    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("it is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.is_own {
            // What is left is in the directory of temporary files.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// By which clients know either server.
pub(crate) const SERVER_NAME: &str = "server.example";
