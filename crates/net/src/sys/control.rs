//! Control messages (cmsg): a train's segment size and a datagram's traffic class, written and read as bytes.

/// Room for the control messages of one call: each is 24 bytes, a send carries at most two, and an error 64.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control([u8; Control::CAPACITY]);

impl Control {
    /// Bytes of room.
    pub(super) const CAPACITY: usize = 128;

    /// No messages.
    pub(super) const EMPTY: Self = Self([0; Self::CAPACITY]);

    /// Appends a message after the first `used` bytes; returns the bytes then used.
    #[inline]
    pub(super) fn push(&mut self, used: usize, (level, kind): (i32, i32), data: &[u8]) -> usize {
        let at = &mut self.0[used..];
        let len = HEADER_LEN + data.len();
        at[..WORD].copy_from_slice(&len.to_ne_bytes());
        at[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        at[WORD + 4..HEADER_LEN].copy_from_slice(&kind.to_ne_bytes());
        at[HEADER_LEN..len].copy_from_slice(data);
        used + len.next_multiple_of(WORD)
    }

    /// The data of the first message of that kind among the first `used` bytes, which the kernel wrote.
    #[inline]
    pub(super) fn find(&self, used: usize, (level, kind): (i32, i32)) -> Option<&[u8]> {
        let mut rest = self.0.get(..used)?;
        loop {
            let len = usize::from_ne_bytes(*rest.first_chunk()?);
            let header = rest.get(WORD..HEADER_LEN)?;
            let data = rest.get(HEADER_LEN..len)?;
            if header[..4] == level.to_ne_bytes() && header[4..] == kind.to_ne_bytes() {
                return Some(data);
            }
            rest = rest.get(len.next_multiple_of(WORD)..)?;
        }
    }

    /// Where the kernel reads or writes.
    #[inline]
    pub(super) fn as_ptr(&self) -> *const libc::c_void {
        self.0.as_ptr().cast()
    }
}

/// Messages are aligned to the kernel's size_t, their first field.
const WORD: usize = size_of::<usize>();

/// Bytes of a `cmsghdr`: size_t, level, type.
const HEADER_LEN: usize = WORD + 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_the_kernels() {
        assert_eq!(HEADER_LEN, size_of::<libc::cmsghdr>());
    }

    #[test]
    fn finds_the_second_message() {
        let mut control = Control::EMPTY;
        let used = control.push(0, (libc::SOL_UDP, libc::UDP_SEGMENT), &1200_u16.to_ne_bytes());
        let used = control.push(used, (libc::IPPROTO_IP, libc::IP_TOS), &32_i32.to_ne_bytes());
        assert_eq!(control.find(used, (libc::IPPROTO_IP, libc::IP_TOS)), Some(&32_i32.to_ne_bytes()[..]));
        assert_eq!(control.find(used, (libc::SOL_UDP, libc::UDP_SEGMENT)), Some(&1200_u16.to_ne_bytes()[..]));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let mut control = Control::EMPTY;
        let used = control.push(0, (libc::SOL_UDP, libc::UDP_SEGMENT), &[1, 2]);
        assert_eq!(control.find(used, (libc::SOL_UDP, libc::UDP_GRO)), None);
        assert_eq!(control.find(0, (libc::SOL_UDP, libc::UDP_GRO)), None);
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_search() {
        let mut control = Control::EMPTY;
        assert_eq!(control.find(Control::CAPACITY, (libc::SOL_UDP, libc::UDP_GRO)), None);
        control.0[..WORD].fill(0xff);
        assert_eq!(control.find(Control::CAPACITY, (libc::SOL_UDP, libc::UDP_GRO)), None);
    }
}
