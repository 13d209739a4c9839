//! The bytes of a message on its way out: this endpoint's own, or lent by the application.

use crate::rpc::Lent;

/// The bytes of a message that is being sent.
#[derive(Debug)]
pub(crate) enum Payload {
    /// In a buffer that goes back to the pool.
    Own(Vec<u8>),
    /// In the application's memory.
    Lent(Lent),
}

impl Payload {
    /// All of them.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(buffer) => buffer,
            Self::Lent(lent) => lent.bytes(),
        }
    }

    /// How many they are.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Ends their use, and hands over the buffer that they stood in, if it is this endpoint's.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        match std::mem::take(self) {
            Self::Own(buffer) => buffer,
            Self::Lent(_) => Vec::new(),
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl From<Vec<u8>> for Payload {
    fn from(buffer: Vec<u8>) -> Self {
        Self::Own(buffer)
    }
}
