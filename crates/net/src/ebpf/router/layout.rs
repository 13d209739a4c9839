//! Offsets in the memory of `ebpf/router.bpf.c`, in bytes, as `ebpf/router.h` lays it down.

/// Servers that the program can place on.
pub const SERVERS_MAX: usize = 32;

/// CPUs that count apart.
pub(super) const CPUS_MAX: usize = 256;

/// Counters of each CPU, those without a name among them.
pub(super) const COUNTS_MAX: usize = 32;

/// Places of epochs, by the low bits of their numbers.
pub(super) const EPOCHS_LEN: usize = 4;

/// Slots of ids.
pub(super) const IDS_LEN: usize = 1 << 20;

/// Counts up with each change of what the memory means, where its length is the same.
pub(super) const LAYOUT: u32 = 2;

/// Offsets in `struct router`.
pub(super) mod router {
    /// The router's address.
    pub(crate) const IP: usize = 0;
    /// Its port in network order, and whether its address is one of IPv4; half-words.
    pub(crate) const PORT: usize = 16;
    /// `enum policy`.
    pub(crate) const POLICY: usize = 20;
    /// Bound of `jbsq:N`.
    pub(crate) const BOUND: usize = 24;
    /// Servers up to the last that is used.
    pub(crate) const LEN: usize = 28;
    /// [`super::LAYOUT`], from when the memory was made.
    pub(crate) const LAYOUT: usize = 68;
    /// Longest UDP payload that is placed.
    pub(crate) const PACKET_LEN_MAX: usize = 36;
    /// Most requests on their way to a server.
    pub(crate) const IN_FLIGHT_MAX: usize = 40;
    /// Most requests that a server can have.
    pub(crate) const AT_SERVER_MAX: usize = 44;
    /// User space holds requests until this time; 0 for none.
    pub(crate) const HELD_UNTIL: usize = 48;
    /// The random word of the next decision, for tests.
    pub(crate) const RANDOM: usize = 56;
    /// It is used.
    pub(crate) const IS_RANDOM_SET: usize = 64;
    /// Packets are sealed, from here on.
    pub(crate) const IS_SEALED: usize = 80;
    /// Tolerated difference between clocks, ms.
    pub(crate) const TOLERANCE_MS: usize = 84;
    /// Longest that a call lasts, ms.
    pub(crate) const LIFETIME_MS: usize = 88;
    /// Longest that the network holds a packet, ns.
    pub(crate) const TRANSIT_NS: usize = 96;
    /// Unix time at 0 of the node's time, ns.
    pub(crate) const WALL_ZERO_NS: usize = 104;
    /// The router's name, as in packets.
    pub(crate) const NAME: usize = 112;
    /// With what ids are hashed; 0 before the first router.
    pub(crate) const ID_SECRET: usize = 120;
    /// The epochs whose packets are taken.
    pub(crate) const EPOCHS: usize = 128;
    /// The servers in service, by their indices and in their order: a byte each.
    pub(crate) const IN_SERVICE: usize = EPOCHS + super::EPOCHS_LEN * super::epoch::BYTES;
    /// Number of servers in service.
    pub(crate) const IN_SERVICE_LEN: usize = IN_SERVICE + super::SERVERS_MAX;
    /// The servers, each in cache lines of its own.
    pub(crate) const SERVERS: usize = (IN_SERVICE_LEN + 4).next_multiple_of(64);
    /// The counters of each CPU, behind the servers.
    pub(crate) const COUNTS: usize = SERVERS + super::SERVERS_MAX * super::server::BYTES;
    /// The slots of ids, behind the counters.
    pub(crate) const IDS: usize = COUNTS + 8 * super::CPUS_MAX * super::COUNTS_MAX;
}

/// Offsets in `struct epoch`.
pub(super) mod epoch {
    /// Key of hop tags between routers and servers: two words.
    pub(crate) const ROUTER_KEY: usize = 0;
    /// Time at which it begins: Unix time, ms.
    pub(crate) const FROM_MS: usize = 16;
    /// Its number.
    pub(crate) const NUMBER: usize = 24;
    /// The rest counts.
    pub(crate) const IS_USED: usize = 28;
    /// Size of an epoch.
    pub(crate) const BYTES: usize = 32;
}

/// Offsets in `struct server`.
pub(super) mod server {
    /// Placed in the high half, base in the low one.
    pub(crate) const SLOTS: usize = 0;
    /// Received in the high half, concluded in the low one.
    pub(crate) const COUNTS: usize = 8;
    /// Epoch of the last feedback.
    pub(crate) const EPOCH: usize = 16;
    /// Reported in the high half, waiting in the low one.
    pub(crate) const LOAD: usize = 20;
    /// Feedbacks taken.
    pub(crate) const REPORTS: usize = 24;
    /// The next feedback goes up as well.
    pub(crate) const IS_WANTED: usize = 28;
    /// The counts are those of a feedback.
    pub(crate) const IS_KNOWN: usize = 32;
    /// It may get requests.
    pub(crate) const IS_IN_SERVICE: usize = 36;
    /// Time at which its way was asked for; [`FIXED`] for one that was set.
    pub(crate) const RESOLVED_AT: usize = 40;
    /// Ethernet address and VLAN of its way; 0 where that is not known.
    pub(crate) const NEXT_HOP: usize = 48;
    /// Ethernet address of the interface towards it.
    pub(crate) const SOURCE: usize = 56;
    /// Number of that interface.
    pub(crate) const INTERFACE: usize = 64;
    /// Result of the kernel's lookup of the way.
    pub(crate) const FIB: usize = 68;
    /// Its address.
    pub(crate) const IP: usize = 72;
    /// Its port, in network order, and zeros; 0 of an entry that is free.
    pub(crate) const PORT: usize = 88;
    /// Its name, as in packets; 0 where it is not known.
    pub(crate) const NAME: usize = 96;
    /// The router's alias there, as in packets.
    pub(crate) const ALIAS: usize = 104;
    /// The time of the last feedback that the program has taken alone.
    pub(crate) const HEARD: usize = 112;
    /// The time of the last that it has taken and passed on.
    pub(crate) const PASSED: usize = 120;
    /// Size of a server.
    pub(crate) const BYTES: usize = 128;
}

/// In [`server::RESOLVED_AT`]: the way was set, and is not asked for.
pub(super) const FIXED: u64 = u64::MAX;

/// In [`server::NEXT_HOP`]: the way is known; frames there are tagged with the VLAN beside.
pub(super) const KNOWN: u64 = 1 << 63;
pub(super) const TAGGED: u64 = 0x1000 << 48;

/// The names of the counters, in the order of `enum count`.
pub const COUNT_NAMES: [&str; 31] = [
    "xdp_placed",
    "xdp_feedback_taken",
    "xdp_up_full",
    "xdp_up_held",
    "xdp_up_off",
    "xdp_up_unresolved",
    "xdp_up_retransmit",
    "xdp_up_several",
    "xdp_up_options",
    "xdp_up_ip",
    "xdp_up_control",
    "xdp_up_feedback",
    "xdp_up_session",
    "xdp_up_known",
    "xdp_dropped_truncated",
    "xdp_dropped_magic",
    "xdp_dropped_type",
    "xdp_dropped_policy",
    "xdp_dropped_flags",
    "xdp_dropped_header_size",
    "xdp_dropped_version",
    "xdp_dropped_order",
    "xdp_dropped_length",
    "xdp_dropped_not_first",
    "xdp_dropped_unexpected",
    "xdp_dropped_stranger",
    "xdp_dropped_unsealed",
    "xdp_dropped_forged",
    "xdp_dropped_replayed",
    "xdp_dropped_outdated",
    "xdp_others",
];
