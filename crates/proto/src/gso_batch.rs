//! Fills the driver's buffer with datagrams of equal size to one destination.

use std::net::{IpAddr, SocketAddr};

use crate::node::{GSO_BATCH_LEN_MAX, GSO_DATAGRAMS_MAX, GSO_LONG_LEN, Path, Source, Transmit};
use crate::peer::table::PeerId;

/// Both ends of what a node sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Source that it leaves from.
    pub(crate) from: Source,
    /// Its destination.
    pub(crate) to: SocketAddr,
}

impl Ends {
    /// So many bytes between them, in datagrams of `segment_len`.
    pub(crate) fn transmit(self, len: usize, segment_len: usize) -> Transmit {
        let Self { from, to } = self;
        Transmit { from, segment_len, ..Transmit::single(to, len) }
    }
}

impl From<Path> for Ends {
    fn from(path: Path) -> Self {
        Self { from: path.local.into(), to: path.peer }
    }
}

/// A GSO batch that is being written: datagrams of one length between the same ends, the last
/// perhaps shorter.
pub(crate) struct GsoBatch<'a> {
    /// The driver's, filled from its beginning.
    buffer: &'a mut [u8],
    /// Those of the first datagram, and so of all.
    ends: Option<Ends>,
    /// The peer at those, and this host's address, once the node has named it by its record.
    peer: Option<(PeerId, Option<IpAddr>)>,
    /// Bytes written.
    len: usize,
    /// Length of the first datagram, and of all but the last.
    segment_len: usize,
    /// Datagrams written.
    count: usize,
    /// A shorter datagram has ended it.
    is_closed: bool,
    /// Bytes behind each datagram that are left for a seal.
    trailer_len: usize,
    /// Addressee of a datagram, told to the seal in the last of them.
    addressee: u64,
}

impl<'a> GsoBatch<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        let (ends, peer, is_closed) = (None, None, false);
        let (segment_len, trailer_len, addressee) = (0, 0, 0);
        let (len, count) = (0, 0);
        Self { buffer, ends, peer, len, segment_len, count, is_closed, trailer_len, addressee }
    }

    /// As [`GsoBatch::new`], with so many bytes left behind each datagram, which count as its own.
    pub(crate) fn with_trailer(buffer: &'a mut [u8], trailer_len: usize) -> Self {
        Self { trailer_len, ..Self::new(buffer) }
    }

    /// Says whom the datagrams from here on are for, to the seal.
    pub(crate) fn set_addressee(&mut self, addressee: u64) {
        self.addressee = addressee;
    }

    /// Room for one more datagram of `len` bytes between `ends`; `None` when it must go in another
    /// GSO batch.
    #[inline(always)]
    pub(crate) fn room(&mut self, ends: impl Into<Ends>, len: usize) -> Option<&mut [u8]> {
        if !self.goes_between(ends.into()) {
            return None;
        }
        self.room_behind(len)
    }

    /// As [`GsoBatch::room`], for a datagram from `local` to the peer that a record is about. That
    /// this is the peer of the one before is told by the record, without both addresses being put
    /// together and compared for each datagram. So a record stands for one address while a batch is
    /// written, and those of a batch are of one table.
    #[inline(always)]
    pub(crate) fn room_to(
        &mut self,
        (peer, local): (PeerId, Option<IpAddr>),
        address: impl FnOnce() -> SocketAddr,
        len: usize,
    ) -> Option<&mut [u8]> {
        if self.peer != Some((peer, local)) {
            if !self.goes_between(Ends { from: local.into(), to: address() }) {
                return None;
            }
            self.peer = Some((peer, local));
        }
        self.room_behind(len)
    }

    /// True if datagrams between these ends go in this batch, which the first decides.
    #[inline(always)]
    fn goes_between(&mut self, ends: Ends) -> bool {
        if self.count == 0 {
            (self.ends, self.peer) = (Some(ends), None);
            return true;
        }
        self.ends == Some(ends)
    }

    /// Room behind what is written.
    #[inline(always)]
    fn room_behind(&mut self, own_len: usize) -> Option<&mut [u8]> {
        let len = own_len + self.trailer_len;
        if self.count == 0 {
            if len > self.buffer.len() {
                // Nothing is left of it.
                (self.ends, self.peer) = (None, None);
                return None;
            }
            self.segment_len = len;
        } else {
            let fits = self.len + len <= self.buffer.len().min(GSO_BATCH_LEN_MAX)
                && (self.count < GSO_DATAGRAMS_MAX || self.segment_len >= GSO_LONG_LEN);
            if self.is_closed || len > self.segment_len || !fits {
                return None;
            }
            self.is_closed = len < self.segment_len;
        }
        let start = self.len;
        self.len += len;
        self.count += 1;
        if self.trailer_len > 0 {
            let end = start + len;
            self.buffer[end - 8..end].copy_from_slice(&self.addressee.to_be_bytes());
        }
        Some(&mut self.buffer[start..start + own_len])
    }

    /// Datagrams written so far.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn finish(self) -> Option<Transmit> {
        Some(self.ends?.transmit(self.len, self.segment_len))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn to(address: &str) -> Path {
        address.parse::<SocketAddr>().unwrap().into()
    }

    #[test]
    fn takes_equal_datagrams_to_one_peer_and_one_shorter_last() {
        let [one, other] = ["10.0.0.1:1", "10.0.0.2:1"].map(to);
        let elsewhere = Path { local: Some([10, 0, 0, 3].into()), ..one };
        let mut buffer = [0; 1000];
        let mut batch = GsoBatch::new(&mut buffer);
        assert!(batch.room(one, 100).is_some());
        assert!(batch.room(one, 100).is_some());
        assert!(batch.room(other, 100).is_none());
        assert!(batch.room(elsewhere, 100).is_none(), "it leaves from another address");
        assert!(batch.room(one, 101).is_none());
        assert!(batch.room(one, 40).is_some());
        assert!(batch.room(one, 40).is_none());
        let transmit = batch.finish().unwrap();
        assert_eq!((transmit.len, transmit.segment_len, transmit.datagram_count()), (240, 100, 3));
    }

    /// A record stands for one address, from one of this host's.
    #[test]
    fn takes_datagrams_to_a_peer_that_is_known_by_its_record() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (here, peer) = (Some(IpAddr::from([10, 0, 0, 9])), PeerId(1));
        let never = || -> SocketAddr { panic!("the record is enough") };
        let mut buffer = [0; 500];
        let mut batch = GsoBatch::new(&mut buffer);
        assert!(batch.room_to((peer, here), || address("10.0.0.1:1"), 100).is_some());
        assert!(batch.room_to((peer, here), never, 100).is_some());
        assert!(batch.room_to((peer, None), || address("10.0.0.1:1"), 100).is_none());
        assert!(batch.room_to((PeerId(2), here), || address("10.0.0.2:1"), 100).is_none());
        let path = Path { local: here, peer: address("10.0.0.1:1") };
        assert!(batch.room(path, 100).is_some(), "the same, by its address");
        assert!(batch.room_to((PeerId(3), here), || address("10.0.0.1:1"), 50).is_some());
        let transmit = batch.finish().unwrap();
        assert_eq!((transmit.to, transmit.from), (path.peer, here.into()));
        assert_eq!((transmit.len, transmit.segment_len), (350, 100));
    }

    #[test]
    fn of_a_datagram_that_does_not_fit_nothing_is_left() {
        let mut buffer = [0; 50];
        let mut batch = GsoBatch::new(&mut buffer);
        let address = || SocketAddr::from(([10, 0, 0, 1], 1));
        assert!(batch.room_to((PeerId(1), None), address, 51).is_none());
        assert!(batch.room_to((PeerId(1), None), address, 50).is_some());
        assert_eq!(
            batch.finish().map(|transmit| (transmit.to, transmit.len)),
            Some((address(), 50))
        );
        let mut batch = GsoBatch::new(&mut buffer);
        assert!(batch.room_to((PeerId(1), None), address, 51).is_none());
        assert!(batch.finish().is_none());
    }

    #[test]
    fn bytes_alone_bound_a_batch_of_long_datagrams() {
        let to = to("10.0.0.1:1");
        for (len, expected) in
            [(64, GSO_DATAGRAMS_MAX), (1023, GSO_DATAGRAMS_MAX), (1024, 63), (1428, 45)]
        {
            let mut buffer = [0; 1 << 16];
            let mut batch = GsoBatch::new(&mut buffer);
            while batch.room(to, len).is_some() {}
            assert_eq!(batch.count(), expected, "{len} B");
        }
    }

    #[test]
    fn a_buffer_of_one_datagram_yields_single_datagrams() {
        let to = to("10.0.0.1:1");
        let mut buffer = [0; 150];
        let mut batch = GsoBatch::new(&mut buffer);
        assert!(batch.room(to, 100).is_some());
        assert!(batch.room(to, 100).is_none());
    }

    #[test]
    fn a_datagram_as_long_as_the_buffer_fits_and_a_longer_one_does_not() {
        let to = to("10.0.0.1:1");
        for (len, fits) in [(149, true), (150, true), (151, false), (1000, false)] {
            let mut buffer = [0; 150];
            assert_eq!(GsoBatch::new(&mut buffer).room(to, len).is_some(), fits, "{len} B");
        }
    }

    #[test]
    fn nothing_but_a_seal_is_told_the_addressee() {
        let mut buffer = [9; 24];
        let mut batch = GsoBatch::new(&mut buffer);
        batch.set_addressee(7);
        assert_eq!(batch.room(to("10.0.0.1:1"), 3).unwrap(), [9; 3]);
        let mut batch = GsoBatch::with_trailer(&mut buffer, 16);
        batch.set_addressee(7);
        assert_eq!(batch.room(to("10.0.0.1:1"), 3).unwrap(), [9; 3]);
        assert_eq!(buffer[..19], [[9; 11].as_slice(), &7_u64.to_be_bytes()].concat());
    }
}
