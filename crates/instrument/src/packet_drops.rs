//! Packets that this host dropped while it loaded, as the kernel counts them for all of the host.
//!
//! | place | from |
//! |---|---|
//! | interfaces | `drop` and `fifo` of both directions in `/proc/net/dev` |
//! | the backlog of a CPU, before any protocol | the second column of `/proc/net/softnet_stat` |
//! | sockets without room | `RcvbufErrors` and `SndbufErrors` of UDP in `/proc/net/snmp`, and over IPv6 in `/proc/net/snmp6` |
//!
//! Invariant: what a kernel does not tell counts as nothing, and no load thread does anything for
//! it.

use std::fs;

use serde::{Deserialize, Serialize};
use tailcut_net::clock::Clock;

/// Packets dropped, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCounts {
    /// By interfaces, received or to be sent.
    pub interfaces: u64,
    /// Because a CPU had too many to handle.
    pub backlog: u64,
    /// Because a UDP socket had no room.
    pub sockets: u64,
}

impl DropCounts {
    /// Counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            interfaces: self.interfaces.saturating_sub(earlier.interfaces),
            backlog: self.backlog.saturating_sub(earlier.backlog),
            sockets: self.sockets.saturating_sub(earlier.sockets),
        }
    }

    /// Adds what was counted at another time, or on another host.
    pub fn add(&mut self, other: &Self) {
        self.interfaces += other.interfaces;
        self.backlog += other.backlog;
        self.sockets += other.sockets;
    }

    /// All of them. The kernel counts a packet that its backlog drops at the interface too.
    pub fn sum(&self) -> u64 {
        self.interfaces.max(self.backlog) + self.sockets
    }

    /// These counts, if any packet was dropped.
    pub fn any(self) -> Option<Self> {
        (self.sum() > 0).then_some(self)
    }

    fn read() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            interfaces: of_interfaces(&read("/proc/net/dev")),
            backlog: of_backlog(&read("/proc/net/softnet_stat")),
            sockets: of_sockets(&read("/proc/net/snmp")) + of_sockets_6(&read("/proc/net/snmp6")),
        }
    }
}

/// Reads what the kernel counts.
#[derive(Debug)]
pub(crate) struct DropWatch {
    /// Time of the last reading, ns.
    read_ns: u64,
    last: DropCounts,
}

impl DropWatch {
    /// Watches from now on.
    pub(crate) fn new() -> Self {
        Self { read_ns: Clock.now(), last: DropCounts::read() }
    }

    /// Counts since the last reading; nothing where that was a moment ago, unless this one
    /// `is_last`.
    pub(crate) fn take(&mut self, is_last: bool) -> DropCounts {
        let now = Clock.now();
        if !is_last && now < self.read_ns + READ_EVERY_NS {
            return DropCounts::default();
        }
        self.read_ns = now;
        let counts = DropCounts::read();
        let since = counts.since(&self.last);
        self.last = counts;
        since
    }
}

/// Columns 4 and 5 behind the name are received and dropped, 12 and 13 the same of those sent.
fn of_interfaces(dev: &str) -> u64 {
    let of_line = |line: &str| {
        let (_, columns) = line.split_once(':')?;
        let columns: Vec<u64> =
            columns.split_whitespace().map(|column| column.parse().unwrap_or(0)).collect();
        Some([3, 4, 11, 12].iter().filter_map(|&column| columns.get(column)).sum::<u64>())
    };
    dev.lines().filter_map(of_line).sum()
}

/// A line for each CPU, in hexadecimal.
fn of_backlog(softnet: &str) -> u64 {
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    softnet.lines().filter_map(dropped).sum()
}

/// The line of UDP's names, and that of its counts.
fn of_sockets(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (Some(names), Some(counts)) = (lines.next(), lines.next()) else { return 0 };
    let counts = counts.split_whitespace().map(|count| count.parse::<u64>().unwrap_or(0));
    let named = names.split_whitespace().zip(counts);
    named
        .filter(|(name, _)| matches!(*name, "RcvbufErrors" | "SndbufErrors"))
        .map(|(_, count)| count)
        .sum()
}

/// A line for each count, its name before it.
fn of_sockets_6(snmp6: &str) -> u64 {
    let count = |line: &str| {
        let (name, count) = line.split_once(char::is_whitespace)?;
        matches!(name, "Udp6RcvbufErrors" | "Udp6SndbufErrors")
            .then(|| count.trim().parse::<u64>().ok())?
    };
    snmp6.lines().filter_map(count).sum::<u64>()
}

/// Least time between two readings.
const READ_EVERY_NS: u64 = 200_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed\n    \
                   lo: 2942972863 19775467    0    1    2     0          0         0 2942972863 19775467    0    3    4     0       0          0\n  \
                   eth0:     9 8    7   10   20     6          5         4 3 2    1   30   40     0       0          0\n";
        assert_eq!(of_interfaces(dev), 1 + 2 + 3 + 4 + 10 + 20 + 30 + 40);
        let softnet = "0077cb4b 00000000 00000000 00000000\n00c21f79 0000001f 00000001 00000000\n";
        assert_eq!(of_backlog(softnet), 31);
        let snmp = "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n\
                    Udp: 2623819 3036 438 2640765 438 7 0\nUdpLite: InDatagrams\nUdpLite: 0\n";
        assert_eq!(of_sockets(snmp), 445);
        let snmp6 = "Udp6InErrors                    \t9\nUdp6RcvbufErrors                \t3\n\
                     Udp6SndbufErrors                \t4\nUdpLite6RcvbufErrors            \t8\n";
        assert_eq!(of_sockets_6(snmp6), 7);
        let empty = (of_interfaces(""), of_backlog(""), of_sockets("Udp: InDatagrams\n"));
        assert_eq!((empty, of_sockets_6("")), ((0, 0, 0), 0));
    }

    #[test]
    fn only_what_came_since_counts() {
        let earlier = DropCounts { interfaces: 5, backlog: 1, sockets: 2 };
        let now = DropCounts { interfaces: 7, backlog: 1, sockets: 5 };
        let since = now.since(&earlier);
        assert_eq!(since, DropCounts { interfaces: 2, backlog: 0, sockets: 3 });
        assert_eq!((since.sum(), since.any()), (5, Some(since)));
        // A counter that begins anew.
        assert_eq!(earlier.since(&now).any(), None);
    }
}
