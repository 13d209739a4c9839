//! Messages of a control socket, of a router, a bridge or a gateway: one JSON object a line, a
//! request and then its reply.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Request at a control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Tell how it is.
    Status,
    /// Read its files again.
    Reload,
    /// Take a server into service.
    Add { address: SocketAddr, speaks: Speaks },
    /// Release a server, and what is placed there.
    Remove { address: SocketAddr },
    /// Give a server nothing more.
    Drain { address: SocketAddr },
    /// Give a draining server requests again.
    Resume { address: SocketAddr },
}

/// Reply to a [`Request`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Done {},
    /// Servers that have come, that are drained to go, and flags that have other values.
    Reloaded {
        added: usize,
        gone: usize,
        changed: Vec<String>,
    },
    Status(Box<Status>),
    Service(Box<ServiceStatus>),
    Error(String),
}

/// Protocol version of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Speaks {
    Extension,
    V1,
}

/// A router at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) schema: String,
    pub(crate) config: Config,
    /// Since its start.
    pub(crate) uptime_ns: u64,
    /// Requests that one server may have, where the policy bounds them.
    pub(crate) bound: Option<u32>,
    /// Requests held.
    pub(crate) queue_len: usize,
    /// RPC ids remembered.
    pub(crate) table_len: usize,
    pub(crate) reloads: Reloads,
    /// Its keys; `None` where packets are open.
    #[serde(default)]
    pub(crate) seal: Option<Seal>,
    /// The sources of servers.
    pub(crate) discovery: Vec<Source>,
    pub(crate) servers: Vec<Server>,
    /// Counters since the start, all of them by name.
    pub(crate) counters: BTreeMap<String, u64>,
}

/// The keys of a sealed router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal {
    pub(crate) group: String,
    pub(crate) cipher: String,
    /// The epochs that it has keys of, in their order.
    pub(crate) epochs: Vec<u8>,
    /// The one under which clients begin sessions now.
    pub(crate) current: u8,
}

/// Outcomes of reloads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reloads {
    pub(crate) done: u64,
    pub(crate) refused: u64,
    /// Reason why the last reload was refused; `None` if it was not.
    pub(crate) refusal: Option<String>,
}

/// A source of servers, as it was named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) source: String,
    /// Its servers that hold.
    pub(crate) servers: usize,
    /// Number of its entries that are no servers.
    pub(crate) refused: usize,
    pub(crate) answers: u64,
    pub(crate) failures: u64,
    /// It names nobody, which is not believed yet.
    pub(crate) is_empty: bool,
    /// Error while it is away; `None` otherwise.
    pub(crate) problem: Option<String>,
}

/// A bridge or a gateway at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServiceStatus {
    pub(crate) schema: String,
    /// Kind of the service: `bridge` or `gateway`.
    pub(crate) command: String,
    /// Configuration at its start.
    pub(crate) config: BTreeMap<String, String>,
    /// Since its start.
    pub(crate) uptime_ns: u64,
    /// Reason why it takes no work; `None` if it does.
    pub(crate) unready: Option<String>,
    /// Current values by name.
    pub(crate) gauges: BTreeMap<String, u64>,
    /// Counters since the start, all of them by name.
    pub(crate) counters: BTreeMap<String, u64>,
}

/// Configuration of the router at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) policy: String,
    pub(crate) forward: String,
}

/// A server as its router sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) speaks: Speaks,
    pub(crate) state: State,
    /// Requests placed and not known to be concluded.
    pub(crate) outstanding: u32,
    /// Requests placed since it was added.
    pub(crate) placed: u64,
    /// Number of placed requests that are known to be concluded.
    pub(crate) concluded: u64,
    /// Round-trip time of probes that find it idle.
    pub(crate) round_trip_us: Option<f64>,
    /// Service time of requests that find it idle.
    pub(crate) service_us: Option<f64>,
    pub(crate) weight: u8,
    /// It is of the zone that is preferred.
    pub(crate) is_near: bool,
}

/// Service state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Starting,
    InService,
    Draining,
    Silent,
    Stopping,
    Ejected,
}

/// The schema of [`ServiceStatus`].
pub(crate) const SERVICE_SCHEMA: &str = "tailcut.service-status/1";

/// The schema of [`Status`].
pub(crate) const STATUS_SCHEMA: &str = "tailcut.router-status/1";

/// Longest line that either side reads: a status of 1,024 servers has 250 kB.
pub(crate) const LINE_LEN_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(request: Request, line: &str) {
        assert_eq!(serde_json::to_string(&request).expect("it serializes"), line);
        assert_eq!(serde_json::from_str::<Request>(line).expect("it parses"), request);
    }

    #[test]
    fn requests_are_written_so() {
        let address = "127.0.0.1:8001".parse().expect("an address");
        check(Request::Status, r#"{"command":"status"}"#);
        check(Request::Reload, r#"{"command":"reload"}"#);
        check(
            Request::Add { address, speaks: Speaks::V1 },
            r#"{"command":"add","address":"127.0.0.1:8001","speaks":"v1"}"#,
        );
        check(Request::Drain { address }, r#"{"command":"drain","address":"127.0.0.1:8001"}"#);
    }

    #[test]
    fn replies_are_objects() {
        let line = |reply: Reply| serde_json::to_string(&reply).expect("it serializes");
        assert_eq!(line(Reply::Done {}), r#"{"done":{}}"#);
        assert_eq!(line(Reply::Error("no".to_owned())), r#"{"error":"no"}"#);
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(
            serde_json::from_str::<Request>(
                r#"{"command":"drain","address":"127.0.0.1:1","force":true}"#
            )
            .is_err()
        );
    }
}
