//! The memory that the XDP cloner shares: `ebpf/cloner.h` has the same offsets.

/// CPUs that count apart.
pub(super) const CPUS_MAX: usize = 256;

/// Counters of each CPU, those without a name among them.
pub(super) const COUNTS_MAX: usize = 16;

/// Cells of each of the filter's tables.
pub(super) const FILTER_LEN: u32 = 1 << 17;

/// Offsets in `struct cloner`.
pub(super) mod cloner {
    /// Ids given so far.
    pub(crate) const IDS: usize = 0;
    /// The switch's address, 16 bytes.
    pub(crate) const IP: usize = 8;
    /// Its port in network order, a half-word; then a byte each, whether it is of IPv4, and whether
    /// what is not cloned goes to the shorter.
    pub(crate) const PORT: usize = 24;
    /// The bits of `tidx` above the lowest.
    pub(crate) const EPOCH: usize = 28;
    /// Cells of a table less one.
    pub(crate) const FILTER_MASK: usize = 32;
    /// Number of servers.
    pub(crate) const SERVERS_LEN: usize = 36;
    /// The last group that there is.
    pub(crate) const GROUPS_LEN: usize = 40;
    /// The servers.
    pub(crate) const SERVERS: usize = 48;
    /// The pairs by group, two bytes each; that of groups that there are not at 0.
    pub(crate) const PAIRS: usize = SERVERS + 16 * super::server::BYTES;
    /// Entries of that table.
    pub(crate) const GROUPS_MAX: usize = 256;
    /// The counters of each CPU.
    pub(crate) const COUNTS: usize = PAIRS + 2 * GROUPS_MAX;
}

/// Offsets in `struct clone_server`.
pub(super) mod server {
    /// Its address, 16 bytes.
    pub(crate) const IP: usize = 0;
    /// Its port in network order, a half-word. The way there is behind it.
    pub(crate) const PORT: usize = 16;
    /// Number of the interface that its responses come in by; 0 until one has.
    pub(crate) const INTERFACE: usize = 32;
    /// True if user space deals with its pairs.
    pub(crate) const IS_OUT: usize = 36;
    /// Requests that wait there.
    pub(crate) const LOAD: usize = 40;
    /// Requests placed there, without clones. Wraps.
    pub(crate) const ASKED: usize = 44;
    /// Responses from there. Wraps.
    pub(crate) const ANSWERED: usize = 48;
    /// Size of a server.
    pub(crate) const BYTES: usize = 56;
}

/// The names of the counters, in the order of `enum cloner_count`.
pub const COUNT_NAMES: [&str; 16] = [
    "xdp_placed",
    "xdp_cloned",
    "xdp_unknown_group",
    "xdp_replies_forwarded",
    "xdp_clones_won",
    "xdp_filter_evicted",
    "xdp_up_unresolved",
    "xdp_up_ip",
    "xdp_up_unknown",
    "xdp_dropped_filtered",
    "xdp_dropped_length",
    "xdp_dropped_op",
    "xdp_dropped_mark",
    "xdp_dropped_stranger",
    "xdp_dropped_unknown",
    "xdp_others",
];
