//! Frames: a length, a body, and a tag that proves who sent it and that nothing is missing,
//! repeated, moved or changed.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the body, little endian |
//! | so many | the body |
//! | 32 | HMAC-SHA-256, under the direction's key, of the frame's number (8 bytes from 0), the length and the body |
//!
//! Invariant: a body's buffer grows with what has arrived, whatever the length says, and no body
//! that fails its tag is handed out. After any error the stream is of no more use.

use std::io::{self, ErrorKind, Read, Write};

use ring::hmac;
use thiserror::Error;

use super::key::{TAG_LEN, tag_of};

/// Why there is no next frame.
#[derive(Debug, Error)]
pub(super) enum Broken {
    #[error("closed the connection")]
    Ended,
    #[error("sent a frame of {0} bytes, which is too long")]
    TooLong(u32),
    #[error(
        "sent a frame that was not made with the key of this session, or that was changed on its way"
    )]
    Forged,
    #[error("cannot be read from: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                Self::Ended
            }
            _ => Self::Failed(error),
        }
    }
}

/// Writes frames.
#[derive(Debug)]
pub(super) struct Sealer<W> {
    writer: W,
    key: hmac::Key,
    number: u64,
    frame: Vec<u8>,
}

impl<W: Write> Sealer<W> {
    pub(super) fn new(writer: W, key: hmac::Key) -> Self {
        Self { writer, key, number: 0, frame: Vec::new() }
    }

    /// Sends a frame whose body `write` appends.
    pub(super) fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.frame.clear();
        self.frame.extend(self.number.to_le_bytes());
        self.frame.extend([0; LENGTH_LEN]);
        write(&mut self.frame);
        let body_len = self.frame.len() - HEAD_LEN;
        let length = u32::try_from(body_len).ok().filter(|&length| length <= BODY_LEN_MAX);
        let Some(length) = length else {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                format!("a message of {body_len} bytes is too long"),
            ));
        };
        self.frame[NUMBER_LEN..HEAD_LEN].copy_from_slice(&length.to_le_bytes());
        let tag = tag_of(&hmac::sign(&self.key, &self.frame));
        self.frame.extend(tag);
        self.number += 1;
        self.writer.write_all(&self.frame[NUMBER_LEN..])
    }
}

/// Reads frames.
#[derive(Debug)]
pub(super) struct Opener<R> {
    reader: R,
    key: hmac::Key,
    number: u64,
    body_len_max: u32,
    frame: Vec<u8>,
}

impl<R: Read> Opener<R> {
    /// Takes bodies of so many bytes at most.
    pub(super) fn new(reader: R, key: hmac::Key, body_len_max: u32) -> Self {
        Self { reader, key, number: 0, body_len_max, frame: Vec::new() }
    }

    /// Waits for the next frame and gives its body.
    pub(super) fn receive(&mut self) -> Result<&[u8], Broken> {
        let mut length = [0; LENGTH_LEN];
        self.reader.read_exact(&mut length)?;
        let body_len = u32::from_le_bytes(length);
        if body_len > self.body_len_max {
            return Err(Broken::TooLong(body_len));
        }
        self.frame.clear();
        self.frame.extend(self.number.to_le_bytes());
        self.frame.extend(length);
        let read = (&mut self.reader).take(u64::from(body_len)).read_to_end(&mut self.frame)?;
        let mut tag = [0; TAG_LEN];
        self.reader.read_exact(&mut tag)?;
        if read < body_len as usize {
            return Err(Broken::Ended);
        }
        hmac::verify(&self.key, &self.frame, &tag).map_err(|_| Broken::Forged)?;
        self.number += 1;
        Ok(&self.frame[HEAD_LEN..])
    }

    /// The same frames from another reader of the same stream.
    pub(super) fn map<S>(self, change: impl FnOnce(R) -> io::Result<S>) -> io::Result<Opener<S>> {
        let Self { reader, key, number, body_len_max, frame } = self;
        Ok(Opener { reader: change(reader)?, key, number, body_len_max, frame })
    }
}

/// The longest body that is sent: a slice of about two million samples.
pub(super) const BODY_LEN_MAX: u32 = 16 << 20;

const NUMBER_LEN: usize = 8;
const LENGTH_LEN: usize = 4;
const HEAD_LEN: usize = NUMBER_LEN + LENGTH_LEN;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, b"key")
    }

    fn sealed(bodies: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut sealer = Sealer::new(&mut bytes, key());
        bodies.iter().for_each(|body| sealer.send(|frame| frame.extend(*body)).unwrap());
        let mut rest = bytes.as_slice();
        let frame = |body: &&[u8]| {
            let (frame, after) = rest.split_at(LENGTH_LEN + body.len() + TAG_LEN);
            rest = after;
            frame.to_vec()
        };
        bodies.iter().map(frame).collect()
    }

    fn check_forged(frames: &[&[u8]], opened_first: usize) {
        let bytes = frames.concat();
        let mut opener = Opener::new(bytes.as_slice(), key(), 100);
        for _ in 0..opened_first {
            opener.receive().unwrap();
        }
        assert!(matches!(opener.receive(), Err(Broken::Forged)));
    }

    #[test]
    fn a_frame_that_is_repeated_moved_or_left_out_is_refused() {
        let frames = sealed(&[b"one", b"two", b"three"]);
        let [one, two, three] = [0, 1, 2].map(|place| frames[place].as_slice());
        check_forged(&[one, one], 1);
        check_forged(&[two, one], 0);
        check_forged(&[one, three], 1);
    }

    #[test]
    fn a_claim_beyond_the_limit_is_refused_before_anything_is_kept() {
        let bytes = [0xff; 64];
        let mut opener = Opener::new(bytes.as_slice(), key(), 100);
        assert!(matches!(opener.receive(), Err(Broken::TooLong(u32::MAX))));
        assert_eq!(opener.frame.capacity(), 0);
    }

    #[test]
    fn a_claim_within_the_limit_takes_memory_for_what_has_come() {
        let bytes = [&BODY_LEN_MAX.to_le_bytes()[..], &[7; 100]].concat();
        let mut opener = Opener::new(bytes.as_slice(), key(), BODY_LEN_MAX);
        assert!(matches!(opener.receive(), Err(Broken::Ended)));
        assert!(opener.frame.capacity() < 1_000);
    }

    #[test]
    fn a_body_beyond_the_limit_is_not_sent() {
        let mut bytes = Vec::new();
        let mut sealer = Sealer::new(&mut bytes, key());
        assert!(sealer.send(|frame| frame.resize(BODY_LEN_MAX as usize + 100, 0)).is_err());
        assert!(bytes.is_empty());
    }

    proptest! {
        #[test]
        fn frames_arrive_as_they_were_sent(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8)) {
            let bytes = sealed(&bodies.iter().map(Vec::as_slice).collect::<Vec<_>>()).concat();
            let mut opener = Opener::new(bytes.as_slice(), key(), 100);
            for body in &bodies {
                prop_assert_eq!(opener.receive().unwrap(), body.as_slice());
            }
            prop_assert!(matches!(opener.receive(), Err(Broken::Ended)));
        }

        #[test]
        fn a_frame_with_any_bit_changed_is_refused(body in prop::collection::vec(any::<u8>(), 1..100), place in 0..1_000_usize) {
            let mut bytes = sealed(&[&body]).concat();
            let bit = place % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Opener::new(bytes.as_slice(), key(), 1_000).receive().is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Opener::new(bytes.as_slice(), key(), 100).receive().is_err());
        }
    }
}
