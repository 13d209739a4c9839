//! The servers that a router is told of, by flags and by a file, in text form. Names and the file
//! are read again by a reload.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use tailcut_proto::router::{RouterError, ServerConfig, Speaks};
use tailcut_proto::scheduler::{Rank, WEIGHT_MAX};

use crate::network;

/// Where the servers are.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ServerFlags {
    /// A server, or ADDR+COUNT for consecutive ports; with `,weight=N` (up to 64) it gets N times
    /// as much, and N times the bound, and `,zone=NAME` says where it is. May be repeated
    #[arg(long, value_name = "ADDR")]
    server: Vec<String>,
    /// The same for servers that speak version 1 only
    #[arg(long, value_name = "ADDR")]
    server_v1: Vec<String>,
    /// More servers, from a file: ADDR or ADDR+COUNT on each line, behind it `v1` for servers that
    /// speak version 1 only, `weight=N` and `zone=NAME`; `#` begins a comment. A reload reads it
    /// again
    #[arg(long, value_name = "FILE")]
    servers: Option<PathBuf>,
    /// The router's zone: its servers get requests before those of others, until they are full, or
    /// less than half of them are in service
    #[arg(long, value_name = "NAME")]
    pub(super) zone: Option<String>,
}

/// A server, and how it stands among the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerSpec {
    pub(super) addr: SocketAddr,
    pub(super) speaks: Speaks,
    pub(super) weight: NonZeroU8,
    pub(super) zone: Option<Arc<str>>,
}

impl ServerSpec {
    /// One that is as servers are of which nothing more is said.
    pub(super) fn of(addr: SocketAddr) -> Self {
        Self { addr, speaks: Speaks::Extension, weight: NonZeroU8::MIN, zone: None }
    }

    pub(super) fn config(&self) -> ServerConfig {
        ServerConfig { addr: self.addr, speaks: self.speaks }
    }

    /// Rank towards a router of a zone. One that has none prefers nobody.
    pub(super) fn rank(&self, own_zone: Option<&str>) -> Rank {
        let is_near = own_zone.is_none() || self.zone.as_deref() == own_zone;
        Rank { weight: self.weight, is_near }
    }
}

impl ServerFlags {
    /// The servers as names, addresses and the file say at this moment, for a router that listens
    /// at `listen`, where that is known.
    pub(super) fn resolve(&self, listen: Option<SocketAddr>) -> Result<Vec<ServerSpec>> {
        let mut servers = Vec::new();
        for text in &self.server {
            servers.extend(parse_line(text)?);
        }
        for text in &self.server_v1 {
            servers.extend(
                parse_line(text)?
                    .into_iter()
                    .map(|server| ServerSpec { speaks: Speaks::V1, ..server }),
            );
        }
        if let Some(path) = &self.servers {
            servers.extend(parse_list(&read(path)?, path)?);
        }
        let mut seen = BTreeSet::new();
        for server in &servers {
            listen.map_or(Ok(()), |listen| check_family(listen, server.addr))?;
            if !seen.insert(server.addr) {
                return Err(RouterError::Exists { addr: server.addr }.into());
            }
        }
        Ok(servers)
    }
}

/// The servers of a list, which `path` is the name of.
///
/// # Errors
///
/// A line that is none, or that there are more than [`SERVERS_MAX`].
pub(super) fn parse_list(text: &str, path: &Path) -> Result<Vec<ServerSpec>> {
    let mut servers = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let parsed = parse_line(line.split('#').next().unwrap_or_default());
        servers.extend(parsed.with_context(|| format!("{}, line {number}", path.display()))?);
        check_count(servers.len()).with_context(|| path.display().to_string())?;
    }
    Ok(servers)
}

/// The servers of a line: ADDR or ADDR+COUNT, and what is said of them behind commas or blanks;
/// none of an empty one.
pub(super) fn parse_line(line: &str) -> Result<Vec<ServerSpec>> {
    let mut words = line.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    let Some(place) = words.next() else { return Ok(Vec::new()) };
    // Names are looked up when all else is known to be good.
    let (mut speaks, mut weight, mut zone) = (Speaks::Extension, NonZeroU8::MIN, None);
    for word in words {
        match word.split_once('=') {
            None if word == "v1" => speaks = Speaks::V1,
            Some(("weight", number)) => {
                let number =
                    number.parse().ok().filter(|number: &NonZeroU8| number.get() <= WEIGHT_MAX);
                weight = number.with_context(|| {
                    format!("{word:?}: a weight is a number from 1 to {WEIGHT_MAX}")
                })?;
            }
            Some(("zone", name)) if !name.is_empty() => zone = Some(Arc::from(name)),
            _ => bail!(
                "{line:?} is no server: write ADDR or ADDR+COUNT, then v1, weight=N and zone=NAME"
            ),
        }
    }
    let addresses = network::resolve_range(place)?;
    Ok(addresses
        .into_iter()
        .map(|addr| ServerSpec { addr, speaks, weight, zone: zone.clone() })
        .collect())
}

/// Refuses more servers than a router has: one line stands for as many as there are ports.
pub(super) fn check_count(count: usize) -> Result<()> {
    ensure!(count <= SERVERS_MAX, "more than {SERVERS_MAX} servers");
    Ok(())
}

/// The text of a list.
pub(super) fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_LEN_MAX + 1).read_to_string(&mut text))
        .with_context(|| format!("cannot read the servers from {}", path.display()))?;
    ensure!(
        text.len() as u64 <= FILE_LEN_MAX,
        "{} has more than {FILE_LEN_MAX} bytes: this is no list of servers",
        path.display()
    );
    Ok(text)
}

/// One socket sends to servers of one family.
pub(super) fn check_family(listen: SocketAddr, server: SocketAddr) -> Result<()> {
    if listen.is_ipv4() != server.is_ipv4() {
        let family = if listen.is_ipv4() { "IPv4" } else { "IPv6" };
        bail!(
            "the router listens at {listen} and cannot reach {server}; give it an {family} address"
        );
    }
    Ok(())
}

/// As many as a router has by default.
pub(super) const SERVERS_MAX: usize = 1_024;

/// A thousand servers with comments.
const FILE_LEN_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[(u16, Speaks, u8, Option<&str>)]) {
        let servers = parse_line(line).expect(line);
        let seen: Vec<_> = servers
            .iter()
            .map(|of| (of.addr.port(), of.speaks, of.weight.get(), of.zone.as_deref()))
            .collect();
        assert_eq!(seen, expected, "{line}");
    }

    #[test]
    fn a_line_is_servers_and_what_is_said_of_them() {
        let plain = |port| (port, Speaks::Extension, 1, None);
        check(" 127.0.0.1:8000+2  ", &[plain(8000), plain(8001)]);
        check("127.0.0.1:8\tv1", &[(8, Speaks::V1, 1, None)]);
        check("127.0.0.1:8,weight=4,zone=a", &[(8, Speaks::Extension, 4, Some("a"))]);
        check("127.0.0.1:8 zone=b v1, weight=64", &[(8, Speaks::V1, 64, Some("b"))]);
        check("  ", &[]);
        let bad = [
            "127.0.0.1:8 127.0.0.1:9",
            "127.0.0.1:8 weight=0",
            "127.0.0.1:8 weight=65",
            "127.0.0.1:8,zone=",
        ];
        for line in bad {
            assert!(parse_line(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_list_has_comments_and_says_which_line_is_wrong() {
        let list = |text| parse_list(text, Path::new("list"));
        assert_eq!(list("# none\n127.0.0.1:1 # one\n\n").expect("a list").len(), 1);
        let error = format!("{:#}", list("\n127.0.0.1\n").expect_err("no port"));
        assert!(error.starts_with("list, line 2: "), "{error}");
        assert_eq!(list("127.0.0.1:1+1024").expect("a list").len(), SERVERS_MAX);
        let error = format!("{:#}", list("127.0.0.1:1+65535").expect_err("too many"));
        assert_eq!(error, "list: more than 1024 servers");
    }

    #[test]
    fn those_of_the_own_zone_are_near() {
        let server = parse_line("127.0.0.1:1,zone=a").expect("a server").remove(0);
        assert_eq!(
            [None, Some("a"), Some("b")].map(|own| server.rank(own).is_near),
            [true, true, false]
        );
        assert!(!ServerSpec::of(server.addr).rank(Some("a")).is_near);
    }
}
