//! The tag on DATA of requests, where a server asks for cookies: a mark in the bytes that are
//! reserved, and 64 bits in fields that say nothing there.
//!
//! | byte | in a tagged packet | else |
//! |---|---|---|
//! | 4 | bytes 0 to 3 of the tag | `sequence`, which repeats `seg_offset` |
//! | 8 | [`TAG_MARK`] | 0 |
//! | 9 | bytes 4 and 5 | 0 |
//! | 16 | bytes 6 and 7 | `checksum`, which nobody verifies |
//!
//! NICs that take Homa for TCP rewrite the first and the last of these, so that nothing is tagged
//! there. What a tag is made of is in `docs/sealed.md`.

use super::{DATA_LEN, DataHeader, OFFSET_IN_SEQUENCE, TAG_MARK};

/// The tag of a packet, if it has one.
#[inline]
pub fn tag_of(header: &DataHeader) -> Option<u64> {
    let common = &header.common;
    let [TAG_MARK, middle @ ..] = common.reserved else { return None };
    let is_offset_apart = header.seg_offset.get() != OFFSET_IN_SEQUENCE;
    let (high, low) = (u64::from(common.sequence.get()), u64::from(common.checksum.get()));
    is_offset_apart.then_some(high << 32 | u64::from(u16::from_be_bytes(middle)) << 16 | low)
}

/// Makes the header of a packet one with this tag.
pub fn set_tag(header: &mut DataHeader, tag: u64) {
    let [.., a, b, _, _] = tag.to_be_bytes();
    header.common.sequence = ((tag >> 32) as u32).into();
    header.common.reserved = [TAG_MARK, a, b];
    header.common.checksum = (tag as u16).into();
}

/// A header that is blank where its tag stands, as tags are made of it.
pub fn blanked(header: &DataHeader) -> DataHeader {
    let mut blank = *header;
    set_tag(&mut blank, 0);
    blank
}

const _: () = assert!(size_of::<DataHeader>() == DATA_LEN);

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::super::sealed::is_marked;
    use super::super::{Packet, Ports};
    use super::*;

    #[test]
    fn a_tag_changes_nothing_else() {
        let mut header = DataHeader::new(Ports { source: 1, destination: 2 }, 4, 900, 300);
        assert_eq!(tag_of(&header), None);
        let tag = 0x0102_0304_0506_0708;
        set_tag(&mut header, tag);
        assert_eq!((tag_of(&header), header.offset()), (Some(tag), 300));
        let bytes = header.as_bytes();
        assert_eq!((&bytes[4..11], &bytes[16..18]), (&[1, 2, 3, 4, 4, 5, 6][..], &[7, 8][..]));
        assert!(Packet::parse(bytes).is_ok() && !is_marked(bytes));
        assert_eq!(tag_of(&blanked(&header)), Some(0));
    }

    /// The tag would be taken for where the data begin.
    #[test]
    fn an_offset_that_stands_in_the_sequence_leaves_no_room() {
        let mut header = DataHeader::new(Ports::default(), 4, 900, 300);
        set_tag(&mut header, 7);
        header.seg_offset = OFFSET_IN_SEQUENCE.into();
        assert_eq!(tag_of(&header), None);
    }
}
