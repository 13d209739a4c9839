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

    /// Number of bytes.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_buffer_of_its_own_goes_back_and_what_is_lent_does_not() {
        let mut own = Payload::from(b"ping".to_vec());
        assert_eq!((own.bytes(), own.len()), (&b"ping"[..], 4));
        assert_eq!((own.take(), own.len()), (b"ping".to_vec(), 0));
        let bytes = Arc::new(b"pong".to_vec());
        let mut lent = Payload::Lent(Lent::new(bytes.clone()));
        assert_eq!((lent.bytes(), Arc::strong_count(&bytes)), (&b"pong"[..], 2));
        assert!(lent.take().is_empty());
        assert_eq!((lent.len(), Arc::strong_count(&bytes)), (0, 1), "it is released");
    }
}
