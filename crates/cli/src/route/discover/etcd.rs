//! etcd: a key for each server under a prefix, read and then watched over its JSON gateway, which
//! every etcd of version 3.4 and later has at its client port.
//!
//! A value is a server as in a list; of one without value, what follows the prefix in its key is
//! the server. So `etcdctl put --lease=ID /tailcut/servers/10.0.0.2:8000 ''` is a server for as
//! long as the lease lives.
//!
//! | event | then |
//! |---|---|
//! | begin, and after every end of a watch | all keys are read; the watch goes on from that revision |
//! | a key is put or deleted | it is told |
//! | the watch is cancelled, compacted, or silent for a minute | begun anew |
//! | an endpoint does not answer | the next is asked; after the last the source is away |
//! | a value is no server, or a name that was never known | it is counted, the others are servers |
//! | the name of a value cannot be looked up now | the value is the servers that it was |

use std::cell::RefCell;
use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::json;
use tailcut_net::clock::Clock;

use super::http::{Ends, Http, TlsFiles};
use super::{Answer, LookedUp, Watch, split_options};
use crate::route::servers;

/// Location of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Etcd {
    /// `http://HOST:PORT` of each member.
    endpoints: Vec<String>,
    prefix: String,
    tls: TlsFiles,
}

impl Etcd {
    /// `URL[,URL...]/PREFIX`, with options.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (place, options) = split_options(text);
        let mut tls = TlsFiles::default();
        let (mut certificate, mut key) = (None, None);
        for (name, value) in options {
            match name {
                "ca" => tls.ca = Some(value.into()),
                "cert" => certificate = Some(value.into()),
                "key" => key = Some(value.into()),
                _ => bail!(
                    "{name:?} is no option of etcd; there are ca=FILE, cert=FILE and key=FILE"
                ),
            }
        }
        ensure!(certificate.is_some() == key.is_some(), "cert and key go together");
        tls.own = certificate.zip(key);
        // The first slash behind the last scheme begins the prefix.
        let last = place.rfind("://").context(FORM)? + 3;
        let slash = last + place[last..].find('/').context(FORM)?;
        let (endpoints, prefix) = place.split_at(slash);
        let endpoints: Vec<String> = endpoints.split(',').map(str::to_owned).collect();
        let is_url = |url: &String| {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
        };
        ensure!(endpoints.iter().all(is_url) && prefix.len() > 1, FORM);
        Ok(Self { endpoints, prefix: prefix.to_owned(), tls })
    }

    /// Reads the servers and tells of them as they change, until the watch ends.
    pub(super) fn watch(&self, watch: &Watch<'_>) -> Result<()> {
        let http = Http::new(&self.tls, None)?;
        let (endpoint, read) = self.read(&http)?;
        let mut servers = read.servers()?;
        (watch.tell)(Ok(self.answer(&servers, watch.looked_up)?));
        let from = json!({ "create_request": {
            "key": encode(&self.prefix),
            "range_end": self.range_end(),
            "start_revision": read.header.revision()? + 1,
        }});
        let mut events =
            http.send(&format!("{endpoint}/v3/watch"), &from.to_string(), Ends::Never)?;
        while !watch.is_over()
            && let Some(told) = events.next::<WatchLine>()?
        {
            let Some(told) = told.result else { bail!("it refuses the watch") };
            if told.canceled {
                return Ok(());
            }
            if told.events.is_empty() {
                continue;
            }
            for Event { kind, kv } in told.events {
                let (key, value) = kv.text()?;
                match kind.as_str() {
                    "DELETE" => _ = servers.remove(&key),
                    _ => {
                        // A server that registers anew may have moved under its name.
                        if let Some(known) =
                            watch.looked_up.borrow_mut().get_mut(self.line(&key, &value))
                        {
                            known.looked_up_at = None;
                        }
                        servers.insert(key, value);
                    }
                }
            }
            (watch.tell)(Ok(self.answer(&servers, watch.looked_up)?));
        }
        Ok(())
    }

    /// All keys, of the first endpoint that answers.
    fn read<'a>(&'a self, http: &Http) -> Result<(&'a str, Range)> {
        let range = json!({ "key": encode(&self.prefix), "range_end": self.range_end() });
        let mut failed = anyhow!("no endpoint is named");
        for endpoint in &self.endpoints {
            let url = format!("{endpoint}/v3/kv/range");
            let body = http.send(&url, &range.to_string(), Ends::Soon);
            match body.and_then(super::http::Body::json) {
                Ok(range) => return Ok((endpoint, range)),
                Err(error) => failed = error.context(endpoint.clone()),
            }
        }
        Err(failed)
    }

    /// The first key behind all with the prefix.
    fn range_end(&self) -> String {
        let mut end = self.prefix.clone().into_bytes();
        // Of UTF-8 no byte is the last that there is.
        *end.last_mut().expect("a prefix is not empty") += 1;
        BASE64_STANDARD.encode(end)
    }

    fn answer(
        &self,
        servers: &BTreeMap<String, String>,
        looked_up: &RefCell<LookedUp>,
    ) -> Result<Answer> {
        let lines = servers.iter().map(|(key, value)| self.line(key, value));
        Answer::of_lines(lines, (Clock.now(), looked_up), servers::parse_line)
    }

    /// The line of a server: the value, or the key's end where there is none.
    fn line<'a>(&self, key: &'a str, value: &'a str) -> &'a str {
        match value.trim() {
            "" => key.strip_prefix(&self.prefix).unwrap_or(key).trim_start_matches('/'),
            value => value,
        }
    }
}

fn encode(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

/// An answer to a range.
#[derive(Debug, Deserialize)]
struct Range {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Debug, Deserialize)]
struct Header {
    /// A number as text, as the gateway writes 64 bits.
    revision: String,
}

#[derive(Debug, Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: String,
}

/// A line of a watch.
#[derive(Debug, Deserialize)]
struct WatchLine {
    result: Option<Watched>,
}

#[derive(Debug, Deserialize)]
struct Watched {
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    /// Left out of a PUT.
    #[serde(default, rename = "type")]
    kind: String,
    kv: KeyValue,
}

impl Range {
    fn servers(&self) -> Result<BTreeMap<String, String>> {
        self.kvs.iter().map(KeyValue::text).collect()
    }
}

impl Header {
    fn revision(&self) -> Result<i64> {
        self.revision.parse().context("a revision is a number")
    }
}

impl KeyValue {
    fn text(&self) -> Result<(String, String)> {
        let decode = |text: &str| -> Result<String> {
            let bytes = BASE64_STANDARD.decode(text).context("keys and values are in base64")?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok((decode(&self.key)?, decode(&self.value)?))
    }
}

const FORM: &str =
    "write etcd:http://HOST:PORT/PREFIX, with more URLs behind commas before the prefix";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, endpoints: &[&str], prefix: &str) {
        let etcd = Etcd::parse(text).expect(text);
        assert_eq!(
            (etcd.endpoints.as_slice(), etcd.prefix.as_str()),
            (&endpoints.iter().map(|&url| url.to_owned()).collect::<Vec<_>>()[..], prefix)
        );
    }

    #[test]
    fn endpoints_come_before_the_prefix() {
        check("http://a:2379/s/", &["http://a:2379"], "/s/");
        check("http://a:1,https://b:2/s/t", &["http://a:1", "https://b:2"], "/s/t");
        for bad in [
            "a:1/s",
            "http://a:1",
            "http://a:1/",
            "http:///s",
            "http://a:1/s?x=1",
            "http://a:1/s?cert=f",
        ] {
            assert!(Etcd::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_range_ends_behind_the_prefix() {
        let etcd = Etcd::parse("http://a:1/s/").expect("a source");
        assert_eq!(BASE64_STANDARD.decode(etcd.range_end()).expect("base64"), b"/s0");
    }

    #[test]
    fn what_a_server_says_or_else_its_key_is_a_server() {
        let etcd = Etcd::parse("http://a:1/s/").expect("a source");
        let servers =
            [("/s/127.0.0.1:1", ""), ("/s/x", "127.0.0.1:2+2"), ("/s/y", "nonsense here")];
        let servers = servers.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let answer = etcd.answer(&servers, &RefCell::default()).expect("servers");
        let ports: Vec<u16> = answer.servers.iter().map(|server| server.addr.port()).collect();
        assert_eq!((ports, answer.refused), (vec![1, 2, 3], 1));
        let many = [("/s/127.0.0.1:1+65535".to_owned(), String::new())].into();
        let error = etcd.answer(&many, &RefCell::default()).expect_err("too many");
        assert_eq!(error.to_string(), "more than 1024 servers");
    }
}
