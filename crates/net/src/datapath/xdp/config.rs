//! Configuration and counters of the AF_XDP datapath.

use std::fmt;
use std::str::FromStr;

use crate::ebpf::Mode;

/// Configuration of how packets of an interface are taken. Its text form is the interface's name
/// and, behind commas, `native` or `generic`, `copy`, `busy-poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The interface. Routes through VLANs over it are its own too.
    pub interface: InterfaceName,
    /// Mode of the program. Default: in the driver, and behind it where the driver knows no XDP.
    /// Behind it, batches that a sender on this machine has not segmented (GSO over veth) come as
    /// one datagram: such senders must not have segmented sends.
    pub mode: Option<Mode>,
    /// Copies frames also where the driver could do without. Default off.
    pub is_copying: bool,
    /// The sockets drive the interface's queues when they are polled, instead of its interrupts,
    /// for whom who polls has a core of its own. Default off.
    pub busy_poll: bool,
}

impl XdpConfig {
    /// The defaults for an interface.
    pub fn new(interface: InterfaceName) -> Self {
        Self { interface, mode: None, is_copying: false, busy_poll: false }
    }
}

impl XdpConfig {
    /// Parses the value of `--datapath`: `xdp:` and the text form.
    ///
    /// # Errors
    ///
    /// In words, what is no datapath.
    pub fn from_datapath(text: &str) -> Result<Self, String> {
        let config = text.strip_prefix("xdp:");
        let config = config.ok_or_else(|| {
            format!("`{text}` is no datapath: take xdp:IF, IF being an interface, or leave it out for sockets")
        })?;
        config.parse()
    }
}

impl FromStr for XdpConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let mut config = Self::new(parts.next().unwrap_or_default().parse()?);
        for part in parts {
            match part {
                "native" => config.mode = Some(Mode::Native),
                "generic" => config.mode = Some(Mode::Generic),
                "copy" => config.is_copying = true,
                "busy-poll" => config.busy_poll = true,
                _ => {
                    return Err(format!(
                        "`{part}` is no option of an interface: take native, generic, copy, busy-poll"
                    ));
                }
            }
        }
        Ok(config)
    }
}

/// The name of an interface.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InterfaceName {
    /// Its bytes, then zeros.
    bytes: [u8; NAME_LEN_MAX],
    /// Number of bytes in the name.
    len: u8,
}

impl InterfaceName {
    /// As text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("it was made of text")
    }
}

impl FromStr for InterfaceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_fit = (1..=NAME_LEN_MAX).contains(&text.len())
            && !text.contains(|letter: char| letter.is_whitespace() || "/:\0".contains(letter));
        if !is_fit {
            return Err(format!("`{text}` is no name of an interface, as `ip link` lists them"));
        }
        let mut bytes = [0; NAME_LEN_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes, len: text.len() as u8 })
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Counters of an [`XdpPort`](super::XdpPort) since it was bound, beside those that all datapaths
/// have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpMetrics {
    /// Datagrams that came past the kernel's stack.
    pub direct_in: u64,
    /// Number of these with a checksum that a host on this machine has left to an interface.
    pub partial_checksums: u64,
    /// Datagrams that left past the kernel's stack.
    pub direct_out: u64,
    /// Datagrams that left through the kernel, because their way is not by this interface.
    pub kernel_elsewhere: u64,
    /// Datagrams that left through the kernel, because the neighbour's address was not known yet or
    /// was to be confirmed.
    pub kernel_unresolved: u64,
    /// Datagrams that left through the kernel, because a burst had too many new peers to look them
    /// up.
    pub kernel_unasked: u64,
    /// Peers whose way was looked up.
    pub lookups: u64,
    /// Peers evicted to make room for others.
    pub peers_evicted: u64,
    /// Times that all ways were dropped because a route, an address or a link had changed.
    pub ways_flushed: u64,
    /// Packets dropped because their lengths contradict each other.
    pub malformed: u64,
    /// Packets dropped because IPv4's header has another checksum.
    pub bad_ip_checksum: u64,
    /// Datagrams dropped because UDP's checksum is another.
    pub bad_udp_checksum: u64,
    /// Packets dropped because no host has their source.
    pub martian: u64,
    /// Packets dropped because their VLAN is none of this host's.
    pub foreign_vlan: u64,
    /// Datagrams dropped because no frame was free or the transmit ring was full.
    pub dropped_ring_full: u64,
    /// Looks that found no room in the transmit ring.
    pub without_room: u64,
    /// Sends that the interface refused: it is down, or gone.
    pub interface_errors: u64,
}

/// Counters that the kernel keeps of an [`XdpPort`](super::XdpPort)'s rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingMetrics {
    /// Packets dropped for want of memory, or because they were longer than a frame.
    pub ring_dropped: u64,
    /// Packets dropped because the receive ring was full.
    pub ring_receive_full: u64,
    /// Packets dropped because no frame was left to receive into.
    pub ring_fill_empty: u64,
    /// Descriptors that the kernel did not take.
    pub ring_invalid: u64,
}

/// The most bytes of a name, of IFNAMSIZ with a zero.
const NAME_LEN_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_and_its_options_are_read() {
        let config: XdpConfig = "eth0,generic,copy".parse().expect("a configuration");
        assert_eq!(config.interface.as_str(), "eth0");
        assert_eq!(
            (config.mode, config.is_copying, config.busy_poll),
            (Some(Mode::Generic), true, false)
        );
        let config: XdpConfig = "a".parse().expect("a configuration");
        assert_eq!((config.mode, config.is_copying), (None, false));
    }

    #[test]
    fn a_datapath_names_its_kind() {
        let config = XdpConfig::from_datapath("xdp:eth0,busy-poll").expect("a datapath");
        assert!(config.busy_poll && config.interface.as_str() == "eth0");
        for text in ["eth0", "xdp", "xdp:", "udp:eth0"] {
            assert!(XdpConfig::from_datapath(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_interface_or_option_is_refused() {
        for text in ["", "a b", "a/b", "sixteen-letters-", "eth0,", "eth0,fast"] {
            assert!(text.parse::<XdpConfig>().is_err(), "{text}");
        }
    }
}
