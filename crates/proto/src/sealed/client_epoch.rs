//! The client that has sealed a packet, or is to open it.

/// A client in an epoch, whose keys it is known by. The default stands for none, where packets are
/// open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientEpoch(u32);

impl ClientEpoch {
    /// The client of a number, in an epoch.
    pub fn new(client: u32, epoch: u8) -> Self {
        Self(u32::from(epoch) << CLIENT_BITS | client)
    }

    /// Number of the client.
    #[inline]
    pub fn client(self) -> u32 {
        self.0 & CLIENT_MAX
    }

    /// The epoch.
    pub fn epoch(self) -> u8 {
        (self.0 >> CLIENT_BITS) as u8
    }

    /// Both as one number, by which a data plane finds the client.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Addressee to write behind a packet that is to be sealed for the client.
    #[inline]
    pub(crate) fn addressee(self) -> u64 {
        1 << u32::BITS | u64::from(self.0)
    }

    /// The client that [`ClientEpoch::bits`] told.
    #[inline]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// The largest number of a client.
pub const CLIENT_MAX: u32 = (1 << CLIENT_BITS) - 1;

/// Bits of a client's number.
const CLIENT_BITS: u32 = 24;
