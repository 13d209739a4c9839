//! Control messages (cmsg): a GSO batch's segment size, a datagram's traffic class, timestamps and
//! local address, written and read as bytes.

use crate::stamps::Stamps;

/// Room for the control messages of one call: 24 bytes each, a local address 40, a timestamp and an
/// error 64; at most an error with its stamp and its local address.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control([u8; Control::CAPACITY]);

impl Control {
    /// Bytes of room.
    pub(super) const CAPACITY: usize = 192;

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

    /// The data of the first message of that kind among the first `used` bytes, which the kernel
    /// wrote.
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

    /// The timestamps among the first `used` bytes, which the kernel wrote: software's and raw
    /// hardware's, where they are set.
    #[inline]
    pub(super) fn stamps(&self, used: usize) -> Stamps {
        let Some(data) = self.find(used, TIMESTAMPING) else { return Stamps::default() };
        Stamps { kernel_ns: time_at(data, 0), hardware_ns: time_at(data, 2) }
    }

    /// The first `used` bytes.
    #[cfg(feature = "tcp")]
    #[inline]
    pub(super) fn bytes(&self, used: usize) -> &[u8] {
        &self.0[..used]
    }

    /// Pointer to the buffer, by which the kernel reads or writes it.
    #[inline]
    pub(super) fn as_ptr(&self) -> *const libc::c_void {
        self.0.as_ptr().cast()
    }
}

/// One of the three times of a scm_timestamping, each of seconds and nanoseconds; zero stands for
/// none.
fn time_at(data: &[u8], index: usize) -> Option<u64> {
    let word = |at: usize| Some(u64::from_ne_bytes(*data.get(at * 8..)?.first_chunk()?));
    let (seconds, ns) = (word(2 * index)?, word(2 * index + 1)?);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns).filter(|&time| time > 0)
}

/// Mark of a send, and the carrier of stamps back: the two have the same number.
pub(super) const TIMESTAMPING: (i32, i32) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);

/// Control messages with the address of this host: that a datagram came to, and that one is to
/// leave from.
pub(super) const PKTINFO_V4: (i32, i32) = (libc::IPPROTO_IP, libc::IP_PKTINFO);
pub(super) const PKTINFO_V6: (i32, i32) = (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);

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
        assert_eq!(
            control.find(used, (libc::IPPROTO_IP, libc::IP_TOS)),
            Some(&32_i32.to_ne_bytes()[..])
        );
        assert_eq!(
            control.find(used, (libc::SOL_UDP, libc::UDP_SEGMENT)),
            Some(&1200_u16.to_ne_bytes()[..])
        );
    }

    /// A scm_timestamping as the kernel lays it out on a 64-bit machine.
    fn times(software: (u64, u64), hardware: (u64, u64)) -> Vec<u8> {
        let words = [software.0, software.1, 0, 0, hardware.0, hardware.1];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn check_stamps(data: &[u8], kernel_ns: Option<u64>, hardware_ns: Option<u64>) {
        let mut control = Control::EMPTY;
        let used = control.push(0, TIMESTAMPING, data);
        assert_eq!(control.stamps(used), Stamps { kernel_ns, hardware_ns });
    }

    #[test]
    fn stamps_are_seconds_and_nanoseconds() {
        check_stamps(&times((2, 5), (0, 0)), Some(2_000_000_005), None);
        check_stamps(&times((0, 0), (3, 7)), None, Some(3_000_000_007));
        check_stamps(&times((1, 0), (0, 1)), Some(1_000_000_000), Some(1));
    }

    #[test]
    fn stamps_that_are_cut_or_cannot_be_are_none() {
        check_stamps(&times((1, 1), (1, 1))[..20], Some(1_000_000_001), None);
        check_stamps(&[], None, None);
        check_stamps(&times((u64::MAX, 0), (1, 1)), None, Some(1_000_000_001));
        assert_eq!(Control::EMPTY.stamps(0), Stamps::default());
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
