//! Configuration of streams, with the defaults and their reasons, and their counters.

/// Configuration of the streams of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// True if streams are taken that others open. Default true.
    pub is_listening: bool,
    /// Bytes of the stream in a message. Default 64 KiB: what programs write at a time, and several
    /// fit into a window, so that the receiver's grants of one overlap with the packets of another.
    pub message_len_max: usize,
    /// Bytes that are taken of a stream before the application has read them, and as many that are
    /// taken from the application before the peer has them, when all of the window was in use
    /// before. Default 1 MiB: a round trip of 800 us at 10 Gbit/s.
    pub window_max: usize,
    /// Window of a stream that has used no more; also of one whose opener has not shown that it
    /// hears. Default 16 KiB, what TCP sends at first: `streams_max` of them are half of
    /// `windows_bytes_max`.
    pub window_min: usize,
    /// Sum of the windows of all streams. Default 256 MiB, of which half at most is for windows
    /// longer than the least; of the upper half of that one host, an address or a /64 of IPv6, has
    /// at most three times what is left. As much again may wait to be sent.
    pub windows_bytes_max: usize,
    /// Streams open at once. Default 8192. Of the upper half, one host has at most three times what
    /// is left: 6144 alone.
    pub streams_max: usize,
    /// Streams with one peer, an address and port. Default 4096.
    pub streams_per_peer_max: usize,
    /// Streams whose opener has not shown that it hears at its address. Default 4096, so that a
    /// peer may open as many at once as it may have. The oldest makes room for the next, which
    /// takes an attacker as many datagrams within a round trip of an honest opener.
    pub half_open_max: usize,
    /// Streams that the application has not accepted. Default 4096, as sockets have.
    pub backlog_max: usize,
    /// Messages unanswered at once, of all streams. Default 4096; not above what the transport lets
    /// be outstanding.
    pub messages_max: usize,
    /// Longest time to wait for the answer to a message. Default 30 s: longer than the transport
    /// takes to find a peer dead.
    pub message_ns_max: u64,
    /// Longest time to wait for an answer when a stream is opened, and on the other side for the
    /// next message. Default 5 s.
    pub open_ns_max: u64,
    /// Silence after which the peer is asked whether it still knows the stream. Where packets are
    /// sealed, also the longest that an opener sends nothing: at most half of the time for which a
    /// key is used. Default 30 s.
    pub keepalive_ns: u64,
    /// Longest time that a stream that the application has closed may take to send the rest and to
    /// hear that the other direction has ended. Default 30 s.
    pub linger_ns_max: u64,
    /// Secret of the numbers of streams. Must be random and different at every start.
    pub secret: [u8; 16],
}

impl Default for Config {
    fn default() -> Self {
        Self {
            is_listening: true,
            message_len_max: 64 << 10,
            window_max: 1 << 20,
            window_min: 16 << 10,
            windows_bytes_max: 256 << 20,
            streams_max: 8192,
            streams_per_peer_max: 4096,
            half_open_max: 4096,
            backlog_max: 4096,
            messages_max: 4096,
            message_ns_max: 30_000_000_000,
            open_ns_max: 5_000_000_000,
            keepalive_ns: 30_000_000_000,
            linger_ns_max: 30_000_000_000,
            secret: [0; 16],
        }
    }
}

impl Config {
    /// This configuration, with what contradicts itself mended: no limit is 0, and no window is
    /// below the least.
    pub(super) fn mended(mut self) -> Self {
        self.message_len_max = self.message_len_max.max(1);
        self.window_min = self.window_min.max(1);
        self.window_max = self.window_max.max(self.window_min);
        self.half_open_max = self.half_open_max.max(1);
        self.messages_max = self.messages_max.max(1);
        self.keepalive_ns = self.keepalive_ns.max(1);
        self
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Streams opened from here that the peer took.
    pub opened: u64,
    /// Streams of others whose opener has shown that it hears.
    pub taken: u64,
    /// Streams that were refused to others.
    pub refused: u64,
    /// Half-open streams that were evicted, for their age or to make room.
    pub half_open_dropped: u64,
    /// Streams that ended by a fault.
    pub failed: u64,
    /// Failed streams whose peer broke the protocol.
    pub broken: u64,
    /// Messages sent.
    pub messages_out: u64,
    /// Messages that came.
    pub messages_in: u64,
    /// Messages that came and that no stream is known of.
    pub gone: u64,
    /// Requests that are no messages.
    pub malformed: u64,
    /// Bytes of streams sent.
    pub bytes_out: u64,
    /// Bytes of streams that came.
    pub bytes_in: u64,
    /// Bytes of streams that came before earlier ones.
    pub early_bytes: u64,
    /// WINDOW messages sent.
    pub windows: u64,
    /// RESET messages sent.
    pub resets: u64,
    /// Times that a window was in use and could not become longer, for the sake of other streams.
    pub windows_denied: u64,
}

/// Everything held now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Streams in any state, those included of which the application has not yet learnt that they
    /// have failed.
    pub streams: usize,
    /// Half-open streams among these.
    pub half_open: usize,
    /// Messages unanswered.
    pub messages: usize,
    /// Sum of the windows of the streams.
    pub windows_bytes: usize,
    /// Bytes that wait to be sent or to be read.
    pub buffered_bytes: usize,
}
