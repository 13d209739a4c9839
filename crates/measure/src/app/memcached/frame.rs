//! The eight bytes in front of each of memcached's datagrams: request id, sequence number, count,
//! and two that are reserved.

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Frame<'a> {
    /// What names the request.
    pub(in super::super) id: u16,
    /// Which of the reply's datagrams this is; below `count`.
    pub(in super::super) sequence: u16,
    /// How many there are.
    pub(in super::super) count: u16,
    /// The reply's bytes in this one.
    pub(in super::super) content: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a datagram; none if it is not coherent.
    #[inline]
    pub(in super::super) fn read(datagram: &'a [u8]) -> Option<Self> {
        let (head, content) = datagram.split_first_chunk::<FRAME_LEN>()?;
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let frame = Self { id: half(0), sequence: half(2), count: half(4), content };
        (frame.sequence < frame.count).then_some(frame)
    }
}

/// Appends the frame of a request, which is one datagram.
#[inline]
pub(in super::super) fn write(id: u16, out: &mut Vec<u8>) {
    let [high, low] = id.to_be_bytes();
    out.extend_from_slice(&[high, low, 0, 0, 0, 1, 0, 0]);
}

const FRAME_LEN: usize = 8;
