//! `tailcut route --emit p4`: the entries of a P4 data plane's tables, for the programs in `p4/`,
//! from the servers and the policy that a router would be started with. They are printed as
//! commands of bmv2's `simple_switch_CLI`.
//!
//! A switch sends frames, so it is told where each host is: the port that leads there and the
//! Ethernet address of the host, or of the gateway on the way.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use tailcut_proto::netclone::{Fallback, pair};
use tailcut_proto::policy::{Jbsq, QueueModel};
use tailcut_proto::router::{AT_SERVER_MAX, IN_FLIGHT_MAX, Speaks};
use tailcut_proto::scheduler::Rank;

use super::{Args, RoutedTransport, netclone, policy};
use crate::{network, output};

/// A data plane whose entries are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Emitted {
    /// The v1model programs in p4/
    P4,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct EmitFlags {
    /// Print the control-plane entries of a data plane for these servers, and end
    #[arg(long, value_name = "PLANE")]
    emit: Option<Emitted>,
    /// For --emit p4: where a host is, by the switch's port that leads there and the Ethernet
    /// address of the host or of the gateway on the way. Once for each server, and for other hosts
    /// that packets go to
    #[arg(long, value_name = "IP=PORT/MAC", requires = "emit", value_parser = parse_way)]
    p4_way: Vec<Way>,
    /// For --emit p4: the switch's port that leads to the user-space router, which gets what the
    /// switch cannot place
    #[arg(long, value_name = "PORT", requires = "emit")]
    p4_up_port: Option<u16>,
    /// For --emit p4: how often a request that finds no room recirculates before it goes up
    #[arg(long, value_name = "N", requires = "emit", default_value_t = 0)]
    p4_rounds: u32,
}

/// Way to a host: its addresses, and the port of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Way {
    ip: Ipv4Addr,
    port: u16,
    mac: String,
}

impl EmitFlags {
    /// Prints the entries, if they are asked for; whether they were.
    pub(super) fn emit(&self, args: &Args) -> Result<bool> {
        if self.emit.is_none() {
            return Ok(false);
        }
        let listen = v4(network::resolve(args.listen()?)?)?;
        if listen.ip().is_unspecified() || listen.port() == 0 {
            bail!("--emit p4 needs one address and port in --listen");
        }
        let text = match args.transport {
            RoutedTransport::R2p2 => self.router(args, listen)?,
            RoutedTransport::NetClone => self.switch(args, listen)?,
        };
        output::print(&text)?;
        Ok(true)
    }

    /// For p4/router_v1model.p4.
    fn router(&self, args: &Args, listen: SocketAddrV4) -> Result<String> {
        let spec = policy(args);
        let QueueModel::Bounded(Some(bound)) = spec.model() else {
            bail!("p4/router_v1model.p4 has --policy jbsq:N, and not {spec}");
        };
        if spec != Jbsq::spec(bound) {
            bail!("p4/router_v1model.p4 has --policy jbsq:N, and not {spec}");
        }
        let named = args.servers.resolve(Some(SocketAddr::V4(listen)))?;
        if named.iter().any(|server| server.speaks == Speaks::V1) {
            bail!("--server-v1 is for the router in user space: its feedback counts nothing");
        }
        let zone = args.servers.zone.as_deref();
        if named.iter().any(|server| server.rank(zone) != Rank::default()) {
            bail!("p4/router_v1model.p4 knows neither weights nor zones");
        }
        let servers = self.servers(named.iter().map(|server| server.addr), ROUTER_SERVERS_MAX)?;
        let up_port = self.p4_up_port.context("--emit p4 needs --p4-up-port PORT")?;
        let (ip, port) = (listen.ip(), listen.port());
        let mut text =
            format!("table_add ingress.listen ingress.router {ip} {port} => {up_port}\n");
        let settings =
            [bound.get(), servers.len() as u32, self.p4_rounds, AT_SERVER_MAX, IN_FLIGHT_MAX];
        for (index, value) in settings.into_iter().enumerate() {
            writeln!(text, "register_write ingress.settings {index} {value}")?;
        }
        for (index, (addr, way)) in servers.iter().enumerate() {
            let (ip, port) = (addr.ip(), addr.port());
            writeln!(
                text,
                "table_add ingress.servers ingress.server {index} => {ip} {port} {} {}",
                way.mac, way.port
            )?;
            writeln!(text, "table_add ingress.peers ingress.peer {ip} {port} => {index}")?;
            writeln!(text, "register_write ingress.in_service {index} 1")?;
        }
        self.add_ways(&mut text)?;
        Ok(text)
    }

    /// For p4/netclone_v1model.p4.
    fn switch(&self, args: &Args, listen: SocketAddrV4) -> Result<String> {
        let config = netclone::config(args, Some(SocketAddr::V4(listen)))?;
        let servers_max = tailcut_wire::netclone::SERVERS_MAX as usize;
        let servers = self.servers(config.servers.iter().copied(), servers_max)?;
        let port = tailcut_wire::netclone::PORT;
        if listen.port() != port || servers.iter().any(|(addr, _)| addr.port() != port) {
            bail!("p4/netclone_v1model.p4 knows requests and responses by the port {port}");
        }
        let is_shorter = u32::from(config.fallback == Fallback::Shorter);
        let mut text = format!("register_write ingress.settings 0 {is_shorter}\n");
        writeln!(text, "register_write ingress.settings 1 {}", config.filter_len - 1)?;
        let count = servers.len() as u32;
        for group in 1..=count * (count - 1) {
            let (first, second) =
                pair(group, count).context("the group is one of these servers'")?;
            writeln!(
                text,
                "table_add ingress.groups ingress.pair {group} => {first} {second} {group}"
            )?;
            writeln!(text, "mc_mgrp_create {group}")?;
            // The switch numbers nodes as they come.
            for (rid, server) in [(1, first), (2, second)] {
                let node = 2 * (group - 1) + rid - 1;
                writeln!(text, "mc_node_create {rid} {}", servers[server].1.port)?;
                writeln!(text, "mc_node_associate {group} {node}")?;
            }
        }
        if count == 1 {
            writeln!(text, "table_set_default ingress.groups ingress.pair 0 0 0")?;
        }
        for (index, (addr, way)) in servers.iter().enumerate() {
            writeln!(text, "table_add ingress.ports ingress.to_port {index} => {}", way.port)?;
            let (ip, mac) = (addr.ip(), &way.mac);
            writeln!(text, "table_add egress.addresses egress.address {index} => {ip} {mac}")?;
        }
        self.add_ways(&mut text)?;
        Ok(text)
    }

    /// Adds the ways for what is not for the router, and for what servers answer.
    fn add_ways(&self, text: &mut String) -> Result<()> {
        for Way { ip, port, mac } in &self.p4_way {
            writeln!(text, "table_add ingress.forward ingress.way {ip}/32 => {mac} {port}")?;
        }
        Ok(())
    }

    /// The servers, each with its way.
    fn servers(
        &self,
        addrs: impl Iterator<Item = SocketAddr>,
        servers_max: usize,
    ) -> Result<Vec<(SocketAddrV4, &Way)>> {
        let mut servers = Vec::new();
        for addr in addrs {
            let addr = v4(addr)?;
            let way = self.p4_way.iter().find(|way| way.ip == *addr.ip());
            let missing = || format!("--emit p4 needs --p4-way {}=PORT/MAC", addr.ip());
            servers.push((addr, way.with_context(missing)?));
        }
        if servers.is_empty() {
            bail!("no server to route to; name one by --server");
        }
        if servers.len() > servers_max {
            bail!("the P4 program has at most {servers_max} servers, not {}", servers.len());
        }
        Ok(servers)
    }
}

fn v4(addr: SocketAddr) -> Result<SocketAddrV4> {
    match addr {
        SocketAddr::V4(addr) => Ok(addr),
        SocketAddr::V6(addr) => Err(anyhow!("the P4 programs read IPv4 alone, and not {addr}")),
    }
}

fn parse_way(text: &str) -> Result<Way, String> {
    let wrong =
        || format!("{text:?} is no way: write IP=PORT/MAC, such as 10.0.0.2=3/02:00:00:00:00:02");
    let (ip, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (port, mac) = rest.split_once('/').ok_or_else(wrong)?;
    let bytes: Vec<&str> = mac.split(':').collect();
    let is_byte =
        |byte: &&str| byte.len() == 2 && byte.chars().all(|digit| digit.is_ascii_hexdigit());
    if bytes.len() != 6 || !bytes.iter().all(is_byte) {
        return Err(wrong());
    }
    let ip = ip.parse().map_err(|_| wrong())?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    // 511 drops in bmv2, and ports have 9 bits.
    if port > PORT_MAX {
        return Err(format!("{port} is no port: a switch has 0 to {PORT_MAX}"));
    }
    Ok(Way { ip, port, mac: mac.to_owned() })
}

/// Servers of p4/router_v1model.p4.
const ROUTER_SERVERS_MAX: usize = 32;
/// The last port of a switch.
const PORT_MAX: u16 = 510;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_an_address_a_port_and_an_ethernet_address() {
        let way = parse_way("10.0.0.2=3/02:00:00:00:0a:02").expect("a way");
        assert_eq!(
            (way.ip, way.port, way.mac.as_str()),
            ([10, 0, 0, 2].into(), 3, "02:00:00:00:0a:02")
        );
        for wrong in [
            "10.0.0.2",
            "10.0.0.2=3",
            "10.0.0=3/02:00:00:00:0a:02",
            "10.0.0.2=x/02:00:00:00:0a:02",
            "10.0.0.2=511/02:00:00:00:0a:02",
            "10.0.0.2=3/02:00:00:00:0a",
            "10.0.0.2=3/02:00:00:00:0a:+2",
            "10.0.0.2=3/02:00:00:00:0a:002",
        ] {
            assert!(parse_way(wrong).is_err(), "{wrong}");
        }
    }
}
