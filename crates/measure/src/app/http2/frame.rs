//! Frames of HTTP/2: their heads, and the names of errors (RFC 9113, sections 4, 6 and 7).

/// A frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// Bytes behind the head.
    pub(super) len: usize,
    /// None for kinds that are passed over.
    pub(super) kind: Option<Kind>,
    flags: u8,
    /// 0 for the connection.
    pub(super) stream_id: u32,
}

/// A kind of frame that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data = 0,
    Headers = 1,
    Reset = 3,
    Settings = 4,
    PushPromise = 5,
    Ping = 6,
    GoAway = 7,
    WindowUpdate = 8,
    Continuation = 9,
}

impl FrameHead {
    /// Reads a head, which is of [`HEAD_LEN`].
    pub(super) fn read(head: &[u8]) -> Self {
        let byte = |at: usize| head.get(at).copied().unwrap_or_default();
        let len = u32::from_be_bytes([0, byte(0), byte(1), byte(2)]) as usize;
        let stream_id = u32::from_be_bytes([byte(5) & 0x7f, byte(6), byte(7), byte(8)]);
        Self { len, kind: Kind::of(byte(3)), flags: byte(4), stream_id }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        const KINDS: [Kind; 9] = [
            Kind::Data,
            Kind::Headers,
            Kind::Reset,
            Kind::Settings,
            Kind::PushPromise,
            Kind::Ping,
            Kind::GoAway,
            Kind::WindowUpdate,
            Kind::Continuation,
        ];
        KINDS.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// Appends a frame.
#[inline]
pub(super) fn write_frame(
    kind: Kind,
    flags: u8,
    stream_id: u32,
    payload: &[u8],
    out: &mut Vec<u8>,
) {
    write_head(payload.len(), kind, flags, stream_id, out);
    out.extend_from_slice(payload);
}

/// Appends the head of a frame.
#[inline]
pub(super) fn write_head(len: usize, kind: Kind, flags: u8, stream_id: u32, out: &mut Vec<u8>) {
    let [_, a, b, c] = (len as u32).to_be_bytes();
    let [d, e, f, g] = stream_id.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind as u8, flags, d, e, f, g]);
}

/// An error's name.
pub(super) fn error_name(error: u32) -> &'static str {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION",
        "CONNECT_ERROR",
        "ENHANCE_CALM",
        "INADEQUATE_SEC",
        "HTTP1_REQUIRED",
    ];
    NAMES.get(error as usize).unwrap_or(&"UNKNOWN_ERROR")
}

pub(super) const HEAD_LEN: usize = 9;

/// The longest frame that is taken, and the least that every peer takes.
pub(super) const FRAME_LEN_MAX: usize = 1 << 14;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;
