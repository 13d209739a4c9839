//! Messages on their way in: what every protocol's reassembly has in common.
//!
//! | a packet is | then |
//! |---|---|
//! | within the credit, and something in it is new | [`store`]d where it belongs |
//! | anything else | counted |

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Something in it is new, and the message is not complete.
    New,
    /// Something in it is new, and the message is complete.
    Complete,
    /// All of it had arrived before.
    Duplicate,
    /// It contradicts the packets before it, exceeds the credit, or would leave too many holes.
    Refused,
}

/// Puts the bytes of a packet where they belong in the message. What lies between is zeros until
/// it comes.
#[inline]
pub(crate) fn store(message: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if offset == message.len() {
        return message.extend_from_slice(bytes);
    }
    let end = offset + bytes.len();
    if message.len() < end {
        message.resize(end, 0);
    }
    message[offset..end].copy_from_slice(bytes);
}
