//! Environment of the host that loads: whatever a result depends on besides the load.
//!
//! Invariant: what the host does not say is left out or empty, and never keeps a measurement from
//! being made.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use super::result::Host;

/// This host, and its interface towards `target`.
pub(super) fn host(target: Option<SocketAddr>) -> Host {
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Host {
        name: first_line("/proc/sys/kernel/hostname").unwrap_or_default(),
        cpu: cpu_model(&cpu_info).unwrap_or(std::env::consts::ARCH).to_owned(),
        cores: cpu_info.lines().filter(|line| line.starts_with("processor")).count(),
        kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        interface: target
            .and_then(|target| interface_towards(target.ip()))
            .map(|name| describe_interface(&name)),
    }
}

fn cpu_model(cpu_info: &str) -> Option<&str> {
    let model = cpu_info.lines().find(|line| line.starts_with("model name"))?;
    model.split_once(':').map(|(_, model)| model.trim())
}

fn first_line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The interface that packets to `target` leave by.
fn interface_towards(target: IpAddr) -> Option<String> {
    // What a host sends to itself takes the loopback interface, whatever address it names.
    if target.is_loopback() || local_address(target)? == target {
        return Some("lo".to_owned());
    }
    match target {
        IpAddr::V4(target) => {
            interface_of_route(&fs::read_to_string("/proc/net/route").ok()?, target)
        }
        IpAddr::V6(_) => match local_address(target)? {
            IpAddr::V6(local) => {
                interface_of_address(&fs::read_to_string("/proc/net/if_inet6").ok()?, local)
            }
            IpAddr::V4(_) => None,
        },
    }
}

/// The address that packets to `target` would carry as their source; connecting a UDP socket sends
/// nothing.
fn local_address(target: IpAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((target, DISCARD_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The interface of the longest prefix that holds `target`, of the lowest metric, in the kernel's
/// table of routes.
fn interface_of_route(table: &str, target: Ipv4Addr) -> Option<String> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let address = |index: usize| {
            u32::from_str_radix(fields.get(index)?, 16)
                .ok()
                .map(|raw| Ipv4Addr::from(raw.to_ne_bytes()))
        };
        let (network, mask) = (u32::from(address(1)?), u32::from(address(7)?));
        let metric: u32 = fields.get(6)?.parse().ok()?;
        (u32::from(target) & mask == network)
            .then(|| ((mask.count_ones(), std::cmp::Reverse(metric)), fields[0].to_owned()))
    });
    routes.max_by_key(|&(rank, _)| rank).map(|(_, name)| name)
}

/// The interface that has `local`, in the kernel's table of IPv6 addresses.
fn interface_of_address(table: &str, local: Ipv6Addr) -> Option<String> {
    let digits = format!("{:032x}", u128::from(local));
    let line = table.lines().find(|line| line.starts_with(&digits))?;
    line.split_whitespace().last().map(str::to_owned)
}

/// Its name, with its driver and its speed as far as the host says.
fn describe_interface(name: &str) -> String {
    let device = Path::new("/sys/class/net").join(name);
    let driver = fs::read_link(device.join("device/driver")).ok();
    let driver = driver
        .as_deref()
        .and_then(Path::file_name)
        .map(|driver| driver.to_string_lossy().into_owned());
    let speed = first_line(device.join("speed"))
        .filter(|speed| !speed.starts_with('-'))
        .map(|speed| format!("{speed} Mb/s"));
    let known: Vec<String> = driver.into_iter().chain(speed).collect();
    if known.is_empty() { name.to_owned() } else { format!("{name} ({})", known.join(", ")) }
}

const DISCARD_PORT: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_of_the_lowest_metric_is_taken() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                     eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth1\t0000000A\t00000000\t0001\t0\t0\t200\t000000FF\t0\t0\t0\n\
                     eth2\t0000000A\t00000000\t0001\t0\t0\t50\t000000FF\t0\t0\t0\n";
        // The kernel prints addresses as it holds them, which this table is written for.
        if cfg!(target_endian = "big") {
            println!("SKIPPED: the table is a little-endian kernel's");
            return;
        }
        let interface = |target: [u8; 4]| interface_of_route(table, target.into());
        assert_eq!(interface([10, 1, 2, 3]).as_deref(), Some("eth2"));
        assert_eq!(interface([192, 168, 1, 9]).as_deref(), Some("eth0"));
        assert_eq!(interface_of_route("Iface\n", Ipv4Addr::new(10, 0, 0, 1)), None);
    }

    #[test]
    fn an_ipv6_address_names_its_interface() {
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n\
                     fd000000000000000000000000000002 02 40 00 80     eth7\n";
        assert_eq!(
            interface_of_address(table, "fd00::2".parse().unwrap()).as_deref(),
            Some("eth7")
        );
        assert_eq!(interface_of_address(table, "fd00::3".parse().unwrap()), None);
    }

    #[test]
    fn a_host_knows_itself() {
        let host = host(Some("127.0.0.1:1".parse().unwrap()));
        assert!(!host.name.is_empty() && !host.kernel.is_empty() && host.cores > 0, "{host:?}");
        assert!(host.interface.is_some_and(|interface| interface.starts_with("lo")));
    }
}
