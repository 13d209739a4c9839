//! Kubernetes: the EndpointSlices of a Service, listed and then watched at its API server, as the
//! service account that a Pod has.
//!
//! | event | then |
//! |---|---|
//! | begin, and after every end of a watch | all slices are listed; the watch goes on from that version |
//! | a slice is added, changed or deleted | it is told |
//! | a bookmark | nothing |
//! | the version is too old (410), or the server ends the watch | begun anew |
//! | refused (401, 403), or anything else | the source is away |
//!
//! An endpoint is a server while it is ready, as kube-proxy takes it; one that is terminating is
//! not. Its zone is the server's. It needs `get`, `list` and `watch` of `endpointslices` in
//! `discovery.k8s.io`.

use std::collections::BTreeMap;
use std::env;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::http::{Ends, Http, TlsFiles};
use super::{Answer, Watch, split_options};
use crate::route::servers::ServerSpec;

/// A Service, and the API server that knows its endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    /// That of the Pod where it is not named.
    namespace: Option<String>,
    name: String,
    /// A number, or the name of a port; where there is neither, the slices' only port.
    port: Option<String>,
    /// `https://HOST:PORT` of the API server; that of the Pod where it is not named.
    api: Option<String>,
    token: Option<PathBuf>,
    tls: TlsFiles,
}

impl Service {
    /// `[NAMESPACE/]SERVICE[:PORT]`, with options.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (place, options) = split_options(text);
        let (place, port) = match place.split_once(':') {
            Some((place, port)) => (place, Some(port.to_owned())),
            None => (place, None),
        };
        let (namespace, name) = match place.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name.to_owned()),
            None => (None, place.to_owned()),
        };
        let is_label = |text: &String| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let are_labels = [Some(&name), namespace.as_ref(), port.as_ref()];
        ensure!(are_labels.into_iter().flatten().all(is_label), FORM);
        let (api, token, tls) = (None, None, TlsFiles::default());
        let mut service = Self { namespace, name, port, api, token, tls };
        for (name, value) in options {
            match name {
                "api" => service.api = Some(value.trim_end_matches('/').to_owned()),
                "token" => service.token = Some(value.into()),
                "ca" => service.tls.ca = Some(value.into()),
                _ => bail!(
                    "{name:?} is no option of kubernetes; there are api=URL, token=FILE and ca=FILE"
                ),
            }
        }
        Ok(service)
    }

    /// Lists the endpoints and tells of them as they change, until the watch ends.
    pub(super) fn watch(&self, watch: &Watch<'_>) -> Result<()> {
        let Access { http, slices } = self.access()?;
        let mut known = BTreeMap::new();
        let (mut page, mut page_count) = (String::new(), 0);
        let version = loop {
            if watch.is_over() {
                return Ok(());
            }
            page_count += 1;
            ensure!(page_count <= PAGES_MAX, "the list of slices has no end");
            let url = format!("{slices}&limit={PAGE_LEN}{page}");
            let listed: List = http.fetch(&url, Ends::Soon)?.json()?;
            known
                .extend(listed.items.into_iter().map(|slice| (slice.metadata.name.clone(), slice)));
            let ListMetadata { version, next } = listed.metadata;
            match next.filter(|next| !next.is_empty()) {
                Some(next) => page = format!("&continue={}", escaped(&next)),
                None => break version,
            }
        };
        (watch.tell)(Ok(self.answer(&known, watch.is_ipv4)));
        let from = format!(
            "{slices}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={}",
            escaped(&version)
        );
        let mut events = http.fetch(&from, Ends::Never)?;
        while !watch.is_over()
            && let Some(Event { kind, object }) = events.next()?
        {
            match kind.as_str() {
                "ADDED" | "MODIFIED" | "DELETED" => {}
                "BOOKMARK" => continue,
                "ERROR" => return too_old(&object),
                other => bail!("it tells of {other:?}"),
            }
            let slice: Slice = serde_json::from_value(object).context("it tells of no slice")?;
            let name = slice.metadata.name.clone();
            if kind == "DELETED" {
                known.remove(&name);
            } else {
                known.insert(name, slice);
            }
            (watch.tell)(Ok(self.answer(&known, watch.is_ipv4)));
        }
        Ok(())
    }

    /// Access to the API server, by what a Pod finds around it where nothing else is named. Read
    /// anew each time: tokens hold for an hour.
    fn access(&self) -> Result<Access> {
        let of_pod = |file| PathBuf::from(ACCOUNT).join(file);
        let is_inside = self.api.is_none();
        let api = match &self.api {
            Some(api) => api.clone(),
            None => {
                let of =
                    |name: &str| env::var(name).with_context(|| format!("no {name}: {OUTSIDE}"));
                let host = of("KUBERNETES_SERVICE_HOST")?;
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                format!("https://{host}:{}", of("KUBERNETES_SERVICE_PORT")?)
            }
        };
        let default =
            |file: &Option<PathBuf>, name| file.clone().or_else(|| is_inside.then(|| of_pod(name)));
        let tls = TlsFiles { ca: default(&self.tls.ca, "ca.crt"), ..self.tls.clone() };
        let token = default(&self.token, "token");
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => std::fs::read_to_string(of_pod("namespace"))
                .context("no namespace: write kubernetes:NAMESPACE/SERVICE")?,
        };
        let slices = format!(
            "{api}/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{}",
            escaped(namespace.trim()),
            escaped(&self.name)
        );
        Ok(Access { http: Http::new(&tls, token.as_deref())?, slices })
    }

    fn answer(&self, slices: &BTreeMap<String, Slice>, is_ipv4: bool) -> Answer {
        let mut answer = Answer::default();
        let family = if is_ipv4 { "IPv4" } else { "IPv6" };
        for slice in slices.values().filter(|slice| slice.kind == family) {
            let ready = slice.endpoints.iter().flatten().filter(|endpoint| endpoint.is_ready());
            let Some(port) = self.port_of(slice) else {
                answer.refused += ready.count();
                continue;
            };
            for endpoint in ready {
                // Of several addresses of one endpoint, which are fungible, the first.
                let ip = endpoint.addresses.first().and_then(|ip| ip.parse::<IpAddr>().ok());
                let Some(ip) = ip.filter(|ip| ip.is_ipv4() == is_ipv4) else {
                    answer.refused += 1;
                    continue;
                };
                let zone = endpoint.zone.as_deref().map(Into::into);
                let server = ServerSpec { zone, ..ServerSpec::of(SocketAddr::new(ip, port)) };
                answer.servers.push(server);
            }
        }
        // One may be in two slices while it moves from one to the other.
        answer.servers.sort_by_key(|server| server.addr);
        answer.servers.dedup_by_key(|server| server.addr);
        answer
    }

    fn port_of(&self, slice: &Slice) -> Option<u16> {
        let ports = slice.ports.as_deref().unwrap_or_default();
        match &self.port {
            Some(port) => port.parse().ok().or_else(|| {
                let named = |named: &&Port| named.name.as_deref() == Some(port);
                ports.iter().find(named)?.port
            }),
            None if ports.len() == 1 => ports[0].port,
            None => None,
        }
    }
}

/// Access to the slices of a Service at an API server.
struct Access {
    http: Http,
    /// URL of the list, with its selector.
    slices: String,
}

#[derive(Debug, Deserialize)]
struct List {
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<Slice>,
}

#[derive(Debug, Deserialize)]
struct ListMetadata {
    #[serde(rename = "resourceVersion")]
    version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: serde_json::Value,
}

/// An EndpointSlice of `discovery.k8s.io/v1`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Slice {
    metadata: Metadata,
    #[serde(rename = "addressType")]
    kind: String,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
    zone: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Conditions {
    /// True if it is ready; `None` is to be taken for true.
    ready: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Port {
    name: Option<String>,
    port: Option<u16>,
}

impl Endpoint {
    fn is_ready(&self) -> bool {
        self.conditions.ready.unwrap_or(true)
    }
}

/// An error that a watch tells: that of a version which is too old ends it and nothing else.
fn too_old(status: &serde_json::Value) -> Result<()> {
    ensure!(status["code"] == 410, "it ends the watch: {}", status["message"]);
    Ok(())
}

/// As a part of a URL.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Directory of a Pod's account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

const OUTSIDE: &str = "outside of a Pod name the API server by ?api=URL";

/// Duration of a watch, seconds: then all is listed again.
const WATCH_S: u32 = 240;

/// Slices in an answer, each of up to 100 endpoints as a rule.
const PAGE_LEN: u32 = 100;

/// More slices than the servers of a router are in.
const PAGES_MAX: u32 = 100;

const FORM: &str = "write kubernetes:[NAMESPACE/]SERVICE[:PORT]";
