//! HTTP towards etcd and Kubernetes, without an asynchronous runtime: a thread waits for each
//! answer.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use tailcut_net::clock::Clock;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Files that a source over TLS is known by, and the other end is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// Certificates of those who may have signed the other's; those of the host where there is
    /// none.
    pub(super) ca: Option<PathBuf>,
    /// A certificate of this end and its key.
    pub(super) own: Option<(PathBuf, PathBuf)>,
}

/// HTTP client of a source.
pub(super) struct Http {
    agent: Agent,
    /// Told as `Authorization: Bearer`, where there is one.
    token: Option<String>,
}

impl Http {
    /// Reads the files, which may be others than before.
    pub(super) fn new(files: &TlsFiles, token: Option<&Path>) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
        let roots = match &files.ca {
            Some(path) => certificates(path)?,
            None => {
                let found = rustls_native_certs::load_native_certs().certs;
                found.iter().map(|der| Certificate::from_der(der).to_owned()).collect()
            }
        };
        tls = tls.root_certs(RootCerts::new_with_certs(&roots));
        if let Some((certificate, key)) = &files.own {
            let chain = certificates(certificate)?;
            let key = PrivateKey::from_pem(&read(key)?)
                .with_context(|| format!("no key in {}", key.display()))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
        let token = token.map(read).transpose()?;
        let token = token.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("tailcut/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_recv_response(Some(ANSWER_WITHIN))
            .timeout_per_read(Some(IDLE_MAX));
        Ok(Self { agent: config.build().new_agent(), token })
    }

    /// The answer of a GET, which is whole in time or goes on.
    pub(super) fn fetch(&self, url: &str, ends: Ends) -> Result<Body> {
        let mut request = self.agent.get(url).config().timeout_global(ends.within()).build();
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        Body::of(request.call()?)
    }

    /// The answer of a POST of JSON, which is whole in time or goes on.
    pub(super) fn send(&self, url: &str, json: &str, ends: Ends) -> Result<Body> {
        let request = self.agent.post(url).config().timeout_global(ends.within()).build();
        Body::of(request.header("Content-Type", "application/json").send(json)?)
    }
}

/// End of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// It is one, and whole in time.
    Soon,
    /// It is a watch.
    Never,
}

impl Ends {
    fn within(self) -> Option<Duration> {
        (self == Self::Soon).then_some(EXCHANGE_WITHIN)
    }
}

/// The body of an answer of status 200.
pub(super) struct Body(BufReader<Box<dyn Read>>);

impl Body {
    fn of(response: Response<ureq::Body>) -> Result<Self> {
        let status = response.status();
        let reader: Box<dyn Read> = Box::new(response.into_body().into_reader());
        let mut body = Self(BufReader::new(reader));
        if status != 200 {
            // What it says beside the status is only shown: what has come of it will do.
            let text = body.0.fill_buf().unwrap_or_default();
            let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN_MAX)]);
            bail!("it answers {status}: {}", text.trim());
        }
        Ok(body)
    }

    /// All of it, as one value.
    pub(super) fn json<T: DeserializeOwned>(mut self) -> Result<T> {
        let mut text = String::new();
        self.0.by_ref().take(LEN_MAX).read_to_string(&mut text)?;
        serde_json::from_str(&text).context("it answers something else than was asked for")
    }

    /// The next of the values that it has one a line; none at its end, or where it has said nothing
    /// for so long that it is better asked again.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let (asked_at, mut line) = (Clock.now(), Vec::new());
        let is_idle = || Clock.now() - asked_at >= IDLE_MAX.as_nanos() as u64;
        match self.read_line(&mut line) {
            Ok(()) if line.is_empty() => return Ok(None),
            Ok(()) => {}
            Err(_) if line.is_empty() && is_idle() => return Ok(None),
            Err(error) => return Err(anyhow!("the watch has ended: {error}")),
        }
        if line.last() != Some(&b'\n') {
            bail!("the watch has ended in the middle of an event");
        }
        serde_json::from_slice(&line).map(Some).context("it tells something that is no event")
    }

    /// Reads up to the end of a line, or of all. A line that has begun has to end in time.
    fn read_line(&mut self, line: &mut Vec<u8>) -> io::Result<()> {
        let mut ends_at = None;
        loop {
            let bytes = match self.0.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            let end = bytes.iter().position(|&byte| byte == b'\n').map(|place| place + 1);
            let len = end.unwrap_or(bytes.len());
            line.extend_from_slice(&bytes[..len]);
            self.0.consume(len);
            if end.is_some() || len == 0 {
                return Ok(());
            }
            let now = Clock.now();
            let ends_at = *ends_at.get_or_insert(now + EXCHANGE_WITHIN.as_nanos() as u64);
            if now >= ends_at || line.len() as u64 > LEN_MAX {
                return Err(io::Error::other("an event has no end"));
            }
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let bytes = read(path)?;
    let items = parse_pem(&bytes).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    let found = items.collect::<Result<Vec<_>, _>>();
    let found = found.with_context(|| format!("cannot read {}", path.display()))?;
    if found.is_empty() {
        bail!("{} has no certificate", path.display());
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Longer than a handshake takes anywhere near.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Until an answer begins.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A whole answer, or an event of a watch from its first byte to its last.
const EXCHANGE_WITHIN: Duration = Duration::from_secs(30);

/// A watch that says nothing for so long is begun again: whoever it comes from may be gone.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A list of ten thousand servers with all that Kubernetes says of them.
const LEN_MAX: u64 = 16 << 20;

/// Longest part shown of the text beside a status.
const SHOWN_MAX: usize = 500;
