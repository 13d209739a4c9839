//! Bytes of a message on its way out: its own, or a part of a whole that the messages of a long call
//! share, so that none of them is a copy.

use std::sync::Arc;

use tailcut_wire::homa::PartHeader;
use zerocopy::IntoBytes;

/// Bytes of a message.
#[derive(Debug)]
pub(super) enum Payload {
    /// They are the message's alone.
    Own(Vec<u8>),
    /// A header, and a part of a whole.
    Part {
        /// Says which part it is.
        header: PartHeader,
        /// The whole request or reply.
        whole: Arc<Vec<u8>>,
        /// First byte of the part in the whole.
        from: usize,
        /// The byte behind its last one.
        to: usize,
    },
}

impl Payload {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Part { from, to, .. } => PartHeader::LEN + to - from,
        }
    }

    /// Keeps the first bytes alone of a message that has its own.
    pub(super) fn truncate(&mut self, len: usize) {
        if let Self::Own(bytes) = self {
            bytes.truncate(len);
        }
    }

    /// Appends to a message that has its own bytes.
    pub(super) fn extend(&mut self, more: &[u8]) {
        if let Self::Own(bytes) = self {
            bytes.extend_from_slice(more);
        }
    }

    /// Writes the bytes from `offset` on to `room`, and zeros where there are none.
    #[inline]
    pub(super) fn write(&self, offset: usize, room: &mut [u8]) {
        match self {
            Self::Own(bytes) => put(bytes, offset, room),
            Self::Part { header, whole, from, to } => {
                let in_header = PartHeader::LEN.saturating_sub(offset).min(room.len());
                let (first, rest) = room.split_at_mut(in_header);
                put(header.as_bytes(), offset, first);
                put(&whole[..*to], from + offset.saturating_sub(PartHeader::LEN), rest);
            }
        }
    }

    /// The buffer, to be used again, once nobody else has it.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Own(bytes) => bytes,
            Self::Part { whole, .. } => Arc::into_inner(whole).unwrap_or_default(),
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Own(bytes)
    }
}

#[inline]
fn put(bytes: &[u8], from: usize, room: &mut [u8]) {
    let stored = bytes.get(from..).unwrap_or_default();
    let len = stored.len().min(room.len());
    room[..len].copy_from_slice(&stored[..len]);
    room[len..].fill(0);
}

#[cfg(test)]
mod tests {
    use tailcut_wire::homa::PartKind;

    use super::*;

    #[test]
    fn a_part_is_its_header_and_its_bytes_wherever_it_is_cut() {
        let whole = Arc::new((0..100).collect::<Vec<u8>>());
        let header = PartHeader::new(PartKind::Request, 2, 100, 30);
        let part = Payload::Part { header, whole: whole.clone(), from: 30, to: 80 };
        let expected = [header.as_bytes(), &whole[30..80], &[0; 7]].concat();
        assert_eq!(part.len(), 70);
        for cut in [1, 7, 19, 20, 21, 33, 77] {
            let mut written = vec![0xff; 77];
            for (place, room) in written.chunks_mut(cut).enumerate() {
                part.write(place * cut, room);
            }
            assert_eq!(written, expected, "in pieces of {cut}");
        }
    }

    #[test]
    fn the_last_part_gives_the_buffer_back() {
        let whole = Arc::new(vec![1; 100]);
        let header = PartHeader::new(PartKind::Reply, 2, 100, 0);
        let [one, other] =
            [0, 50].map(|from| Payload::Part { header, whole: whole.clone(), from, to: from + 50 });
        drop(whole);
        assert_eq!(one.into_buffer().capacity(), 0);
        assert_eq!(other.into_buffer(), [1; 100]);
    }
}
