//! The servers that a router is told of, by flags and by a file. Names and the file are read again
//! at SIGHUP.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tailcut_proto::router::{ServerConfig, Speaks};

use crate::network;

/// Where the servers are.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ServerFlags {
    /// A server, or ADDR+COUNT for consecutive ports. May be repeated
    #[arg(long, value_name = "ADDR")]
    server: Vec<String>,
    /// The same for servers that speak version 1 only
    #[arg(long, value_name = "ADDR")]
    server_v1: Vec<String>,
    /// More servers, from a file: ADDR or ADDR+COUNT on each line, with `v1` behind it for servers
    /// that speak version 1 only; `#` begins a comment. SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    servers: Option<PathBuf>,
}

impl ServerFlags {
    /// The servers as names, addresses and the file say at this moment, for a router that listens
    /// at `listen`.
    pub(super) fn resolve(&self, listen: SocketAddr) -> Result<Vec<ServerConfig>> {
        let mut servers = Vec::new();
        let mut add = |text: &str, speaks| -> Result<()> {
            for addr in network::resolve_range(text)? {
                check_family(listen, addr)?;
                servers.push(ServerConfig { addr, speaks });
            }
            Ok(())
        };
        self.server.iter().try_for_each(|text| add(text, Speaks::Extension))?;
        self.server_v1.iter().try_for_each(|text| add(text, Speaks::V1))?;
        if let Some(path) = &self.servers {
            for (number, line) in read(path)?.lines().enumerate() {
                add_line(line, &mut add)
                    .with_context(|| format!("{}, line {}", path.display(), number + 1))?;
            }
        }
        Ok(servers)
    }
}

fn add_line(line: &str, add: &mut impl FnMut(&str, Speaks) -> Result<()>) -> Result<()> {
    let words = line.split('#').next().unwrap_or_default();
    match words.split_whitespace().collect::<Vec<_>>()[..] {
        [] => Ok(()),
        [address] => add(address, Speaks::Extension),
        [address, "v1"] => add(address, Speaks::V1),
        _ => bail!("{words:?} is no server: write ADDR, ADDR+COUNT or ADDR v1"),
    }
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_LEN_MAX + 1).read_to_string(&mut text))
        .with_context(|| format!("cannot read the servers from {}", path.display()))?;
    if text.len() as u64 > FILE_LEN_MAX {
        bail!("{} has more than {FILE_LEN_MAX} bytes: this is no list of servers", path.display());
    }
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

/// A thousand servers with comments.
const FILE_LEN_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_server_or_a_comment() {
        let mut found = Vec::new();
        let mut check = |line: &str, is_good: bool| {
            let mut add = |address: &str, speaks| {
                found.push((address.to_owned(), speaks));
                Ok(())
            };
            assert_eq!(add_line(line, &mut add).is_ok(), is_good, "{line}");
        };
        check(" 10.0.0.2:8000+8  # the first rack", true);
        check("old:8000\tv1", true);
        check("# nothing", true);
        check("", true);
        check("10.0.0.2:8000 10.0.0.3:8000", false);
        let expected = [("10.0.0.2:8000+8", Speaks::Extension), ("old:8000", Speaks::V1)];
        assert_eq!(found, expected.map(|(address, speaks)| (address.to_owned(), speaks)));
    }
}
