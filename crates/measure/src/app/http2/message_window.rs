//! A conversation of gRPC: each message of the request waits for one of the reply.

/// Part of a request's body that may be sent.
///
/// Messages of the reply are counted as they end. Five bytes are before each: whether it is
/// compressed, and its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageWindow {
    /// Bytes of each message of the request, the five included.
    message_len: usize,
    /// Bytes that may be sent beyond those that have been.
    allowed: usize,
    /// Bytes that have come of what is before the next message of the reply.
    prefix_len: usize,
    /// Bytes to come of the message that has begun; while its length comes, what is known of that.
    left: u32,
}

impl MessageWindow {
    /// The first message may be sent.
    pub(super) fn of(message_len: usize) -> Self {
        Self { message_len, allowed: message_len, prefix_len: 0, left: 0 }
    }

    /// Bytes that may still be sent.
    pub(super) fn allowed(self) -> usize {
        self.allowed
    }

    /// So much has been sent.
    pub(super) fn note_sent(&mut self, len: usize) {
        self.allowed -= len;
    }

    /// Takes a part of the reply's body, however it is cut: each message that ends in it lets one
    /// of the request go.
    pub(super) fn take(&mut self, mut part: &[u8]) {
        while let Some((&byte, rest)) = part.split_first() {
            if self.prefix_len == PREFIX_LEN {
                let len = part.len().min(self.left as usize);
                self.left -= len as u32;
                part = &part[len..];
            } else {
                let is_flag = self.prefix_len == 0;
                self.left = if is_flag { 0 } else { self.left << 8 | u32::from(byte) };
                self.prefix_len += 1;
                part = rest;
            }
            if self.prefix_len == PREFIX_LEN && self.left == 0 {
                self.prefix_len = 0;
                self.allowed = self.allowed.saturating_add(self.message_len);
            }
        }
    }
}

/// Before each message.
pub(in crate::app) const PREFIX_LEN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_when_its_last_byte_has_come() {
        let bytes = b"\0\0\0\0\x02ok\0\0\0\0\0\x01\0\0\x01\x00";
        let whole = |window: &MessageWindow| window.allowed() / 10 - 1;
        // One of two bytes, an empty one, and the beginning of a long one.
        for (len, messages) in [(6, 0), (7, 1), (11, 1), (12, 2), (bytes.len(), 2)] {
            for size in 1..=len {
                let mut window = MessageWindow::of(10);
                bytes[..len].chunks(size).for_each(|part| window.take(part));
                assert_eq!(whole(&window), messages, "{len} bytes, {size} at a time");
            }
        }
        let mut window = MessageWindow::of(10);
        window.take(bytes);
        window.take(&[0; 255]);
        assert_eq!(whole(&window), 2);
        window.take(&[0]);
        assert_eq!(whole(&window), 3);
    }
}
