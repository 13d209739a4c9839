//! Configuration and counters of the sockets of datapaths.

/// Configuration of a [`UdpPort`](super::udp::UdpPort).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Kernel memory for received and unread datagrams. Default 4 MiB, which holds 10,000 datagrams
    /// of 64 bytes or 3,600 of 1,400 bytes. More for a server with many clients; without
    /// CAP_NET_ADMIN the kernel cuts it to net.core.rmem_max, see
    /// [`receive_buffer_bytes`](super::Datapath::receive_buffer_bytes).
    pub receive_buffer_bytes: usize,
    /// Kernel memory for datagrams on their way to the device. Default 4 MiB: 3 ms of a 10 Gb/s
    /// link.
    pub send_buffer_bytes: usize,
    /// Longest message received, a datagram or a GSO batch. Default 64 KiB, as much as a GSO batch
    /// can have; longer ones are counted and dropped. Less saves memory where segmented sends are
    /// off.
    pub message_len_max: usize,
    /// Bytes, by the kernel's own accounting, that may wait for the device: above that a driver
    /// asks its node only for what is short, so that the rest waits in the node, where what is more
    /// urgent still overtakes it. Takes the place of `send_buffer_bytes`. Default none. For Homa
    /// [`UdpConfig::HOMA_UNSENT_BYTES`]. Loopback takes everything at once.
    pub unsent_bytes_max: Option<usize>,
    /// Messages that one receive or one send moves. Default 64: above it, no call gets cheaper, and
    /// the others wait longer. Costs `message_len_max` bytes of memory each, once used.
    pub burst_max: usize,
    /// Segmented sends: GSO batches travel as one message. Default on; off to measure one datagram
    /// a message.
    pub segmented_send: SegmentedSend,
    /// Longest time that a burst may wait for room in the send buffer before it is dropped. Default
    /// 1 ms, in which a 10 Gb/s link drains a third of the buffer: longer, and the peer's datagrams
    /// wait behind ours.
    pub send_wait_ns: u64,
    /// Local addresses: a socket at all addresses of the host says at which of them a datagram
    /// arrived, so that the answer leaves from there. Default on; a node that only asks is spared a
    /// control message with each answer.
    pub tells_local: bool,
}

impl UdpConfig {
    /// Bytes that Homa lets wait for the device: two long GSO batches. A link of 25 Gbit/s drains
    /// them in 40 us, to which the kernel's module keeps its queue.
    pub const HOMA_UNSENT_BYTES: usize = 128 << 10;
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            unsent_bytes_max: None,
            tells_local: true,
            message_len_max: 1 << 16,
            burst_max: 64,
            segmented_send: SegmentedSend::On,
            send_wait_ns: 1_000_000,
        }
    }
}

/// Segmented sends: several datagrams travel the kernel as one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentedSend {
    /// GSO batches leave by GSO and arrive by GRO, once several datagrams in a row have come from
    /// one peer.
    On,
    /// Each datagram is a message of its own.
    Off,
}

/// Counters of a [`UdpPort`](super::udp::UdpPort) since it was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpMetrics {
    /// Datagrams handed out.
    pub datagrams_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Messages that held more than one of them.
    pub gso_batches_in: u64,
    /// Messages dropped because they were longer than [`UdpConfig::message_len_max`].
    pub truncated: u64,
    /// Messages dropped because the kernel named no sender.
    pub nameless: u64,
    /// Datagrams that the kernel took.
    pub datagrams_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Messages that held more than one of them.
    pub gso_batches_out: u64,
    /// Looks that found more waiting for the device than [`UdpConfig::unsent_bytes_max`].
    pub without_room: u64,
    /// Sends that found no room in the send buffer at first.
    pub would_block: u64,
    /// Datagrams dropped because there was no room within [`UdpConfig::send_wait_ns`].
    pub dropped_full: u64,
    /// Datagrams dropped because the device's queue or the kernel's memory was full.
    pub dropped_no_buffers: u64,
    /// Datagrams dropped because they do not fit the route without fragments.
    pub dropped_too_large: u64,
    /// Datagrams dropped because there is no route or the neighbour does not answer.
    pub dropped_unreachable: u64,
    /// Datagrams dropped for another reason: a filter, an address of the other family, port 0.
    pub dropped_other: u64,
    /// GSO batches that the kernel refused to segment and that left as single datagrams.
    pub gso_batches_refused: u64,
    /// ICMP errors that came back: nothing listens at the peer's port, or there is no route.
    pub icmp_errors: u64,
    /// Receives that failed for a reason in the network or the device, except ICMP errors.
    pub receive_errors: u64,
}
