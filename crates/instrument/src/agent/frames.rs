//! Frames: a length and a body, inside the TLS of a session, which hides them and proves who sent
//! them and that nothing is missing, repeated, moved or changed.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the body, little endian |
//! | so many | the body |
//!
//! One thread seals while another opens: TLS is locked to do either, never while a socket is waited
//! for.
//!
//! Invariant: a body's buffer grows with what has arrived, whatever the length says, and nothing
//! that TLS refuses is handed out. After any error the stream is of no more use.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::{AlertDescription, Connection};
use thiserror::Error;

use super::stream::Hurried;

/// Reason why there is no next frame.
#[derive(Debug, Error)]
pub(super) enum Broken {
    #[error("closed the connection")]
    Ended,
    #[error("sent a frame of {0} bytes, which is too long")]
    TooLong(u32),
    #[error(
        "sent a frame that was not made with the keys of this session, or that was changed on its way"
    )]
    Forged,
    /// By an alert of TLS, which comes after its own end of the handshake.
    #[error("does not take the certificate that it was shown, or who has it")]
    NotAdmitted,
    #[error("cannot be read from: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                Self::Ended
            }
            // What TLS refuses, here or there; sockets have no such error.
            ErrorKind::InvalidData => match error.get_ref().and_then(|why| why.downcast_ref()) {
                Some(rustls::Error::AlertReceived(
                    AlertDescription::AccessDenied
                    | AlertDescription::BadCertificate
                    | AlertDescription::CertificateExpired
                    | AlertDescription::CertificateRevoked
                    | AlertDescription::CertificateUnknown
                    | AlertDescription::UnknownCA
                    | AlertDescription::DecryptError,
                )) => Self::NotAdmitted,
                _ => Self::Forged,
            },
            _ => Self::Failed(error),
        }
    }
}

/// The TLS of a session, after its handshake.
pub(super) type Tls = Arc<Mutex<Connection>>;

/// Writes frames.
#[derive(Debug)]
pub(super) struct Sealer<W> {
    writer: W,
    tls: Tls,
    frame: Vec<u8>,
    /// Output of TLS for a part of the frame.
    sealed: Vec<u8>,
}

impl<W: Write> Sealer<W> {
    pub(super) fn new(writer: W, tls: Tls) -> Self {
        Self { writer, tls, frame: Vec::new(), sealed: Vec::new() }
    }

    /// Sends a frame whose body `write` appends.
    pub(super) fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut frame = mem::take(&mut self.frame);
        frame.clear();
        frame.extend([0; LENGTH_LEN]);
        write(&mut frame);
        let body_len = frame.len() - LENGTH_LEN;
        let length = u32::try_from(body_len).ok().filter(|&length| length <= BODY_LEN_MAX);
        let Some(length) = length else {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                format!("a message of {body_len} bytes is too long"),
            ));
        };
        frame[..LENGTH_LEN].copy_from_slice(&length.to_le_bytes());
        self.write(&frame)?;
        self.frame = frame;
        Ok(())
    }

    /// Seals and sends bytes as they are.
    pub(super) fn write(&mut self, plain: &[u8]) -> io::Result<()> {
        for part in plain.chunks(PART_LEN_MAX) {
            self.sealed.clear();
            let mut tls = lock(&self.tls);
            tls.writer().write_all(part)?;
            while tls.wants_write() {
                tls.write_tls(&mut self.sealed)?;
            }
            drop(tls);
            self.writer.write_all(&self.sealed)?;
        }
        Ok(())
    }
}

/// Reads frames.
#[derive(Debug)]
pub(super) struct Opener<R> {
    reader: Opened<R>,
    body_len_max: u32,
    frame: Vec<u8>,
}

impl<R: Read> Opener<R> {
    /// Takes bodies of so many bytes at most.
    pub(super) fn new(reader: R, tls: Tls, body_len_max: u32) -> Self {
        let reader = Opened { reader: BufReader::new(reader), tls };
        Self { reader, body_len_max, frame: Vec::new() }
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
        let read = (&mut self.reader).take(u64::from(body_len)).read_to_end(&mut self.frame)?;
        if read < body_len as usize {
            return Err(Broken::Ended);
        }
        Ok(&self.frame)
    }
}

impl Opener<Hurried> {
    /// Waits for as long as it takes from now on.
    pub(super) fn relax(&mut self) -> io::Result<()> {
        self.reader.reader.get_mut().relax()
    }
}

/// Reader of the plaintext that TLS opens from another reader's bytes.
#[derive(Debug)]
struct Opened<R> {
    reader: BufReader<R>,
    tls: Tls,
}

impl<R: Read> Read for Opened<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut tls = lock(&self.tls);
            // An error stays, so that what came before it can be handed out first.
            let state = tls.process_new_packets();
            match tls.reader().read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            drop(tls);
            state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            // All that was opened has been handed out, so TLS takes more.
            let mut sealed = self.reader.fill_buf()?;
            let sealed_len = sealed.len();
            lock(&self.tls).read_tls(&mut sealed)?;
            let taken = sealed_len - sealed.len();
            self.reader.consume(taken);
        }
    }
}

/// Locks a mutex, poisoned or not: what it holds is whole whenever a thread may panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The longest body that is sent: a slice of about two million samples.
pub(super) const BODY_LEN_MAX: u32 = 16 << 20;

const LENGTH_LEN: usize = 4;
/// A record of TLS, after which the other thread may have its turn.
const PART_LEN_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::agent::key::tests::shake_hands;

    /// Both ends, and each frame as it is on its way.
    fn sealed(bodies: &[&[u8]]) -> (Tls, Vec<Vec<u8>>) {
        let (coordinator, agent) = shake_hands(&[7; 32], &[7; 32]).unwrap();
        let mut sealer = Sealer::new(Vec::new(), Arc::new(Mutex::new(coordinator)));
        let frame = |body: &&[u8]| {
            sealer.send(|frame| frame.extend(*body)).unwrap();
            mem::take(&mut sealer.writer)
        };
        let frames = bodies.iter().map(frame).collect();
        (Arc::new(Mutex::new(agent)), frames)
    }

    fn check_forged(choose: impl FnOnce([Vec<u8>; 3]) -> Vec<Vec<u8>>, opened_first: usize) {
        let (tls, frames) = sealed(&[b"one", b"two", b"three"]);
        let bytes = choose(frames.try_into().unwrap()).concat();
        let mut opener = Opener::new(bytes.as_slice(), tls, 100);
        for _ in 0..opened_first {
            opener.receive().unwrap();
        }
        assert!(matches!(opener.receive(), Err(Broken::Forged)));
    }

    #[test]
    fn a_frame_that_is_repeated_moved_or_left_out_is_refused() {
        check_forged(|[one, _, _]| vec![one.clone(), one], 1);
        check_forged(|[one, two, _]| vec![two, one], 0);
        check_forged(|[one, _, three]| vec![one, three], 1);
    }

    #[test]
    fn what_is_sent_cannot_be_read_on_its_way() {
        let (_, frames) = sealed(&[b"a token in a header"]);
        assert!(!frames[0].windows(5).any(|bytes| bytes == b"token"));
    }

    /// An opener that takes so much, of bytes that were sealed as they are.
    fn check_claim(plain: &[u8], body_len_max: u32, check: impl FnOnce(Opener<&[u8]>)) {
        let (coordinator, agent) = shake_hands(&[7; 32], &[7; 32]).unwrap();
        let mut sealer = Sealer::new(Vec::new(), Arc::new(Mutex::new(coordinator)));
        sealer.write(plain).unwrap();
        check(Opener::new(&sealer.writer, Arc::new(Mutex::new(agent)), body_len_max));
    }

    #[test]
    fn a_claim_beyond_the_limit_is_refused_before_anything_is_kept() {
        check_claim(&[0xff; 64], 100, |mut opener| {
            assert!(matches!(opener.receive(), Err(Broken::TooLong(u32::MAX))));
            assert_eq!(opener.frame.capacity(), 0);
        });
    }

    #[test]
    fn a_claim_within_the_limit_takes_memory_for_what_has_come() {
        let plain = [&BODY_LEN_MAX.to_le_bytes()[..], &[7; 100]].concat();
        check_claim(&plain, BODY_LEN_MAX, |mut opener| {
            assert!(matches!(opener.receive(), Err(Broken::Ended)));
            assert!(opener.frame.capacity() < 1_000);
        });
    }

    #[test]
    fn a_body_of_many_parts_arrives() {
        let body: Vec<u8> = (0..1_000_000_u32).map(|place| (place % 251) as u8).collect();
        let (tls, frames) = sealed(&[&body]);
        let mut opener = Opener::new(frames[0].as_slice(), tls, BODY_LEN_MAX);
        assert!(opener.receive().unwrap() == body);
    }

    #[test]
    fn a_body_beyond_the_limit_is_not_sent() {
        let (tls, _) = sealed(&[]);
        let mut sealer = Sealer::new(Vec::new(), tls);
        assert!(sealer.send(|frame| frame.resize(BODY_LEN_MAX as usize + 100, 0)).is_err());
        assert!(sealer.writer.is_empty());
    }

    proptest! {
        #[test]
        fn frames_arrive_as_they_were_sent(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8)) {
            let (tls, frames) = sealed(&bodies.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let bytes = frames.concat();
            let mut opener = Opener::new(bytes.as_slice(), tls, 100);
            for body in &bodies {
                prop_assert_eq!(opener.receive().unwrap(), body.as_slice());
            }
            prop_assert!(matches!(opener.receive(), Err(Broken::Ended)));
        }

        /// TLS reads past the type and the version that a record's first three bytes say, which
        /// are the same in all: another changes nothing of what is handed out.
        #[test]
        fn a_frame_with_any_bit_changed_is_refused(body in prop::collection::vec(any::<u8>(), 1..100), place in 0..1_000_usize) {
            let (tls, frames) = sealed(&[&body]);
            let mut bytes = frames.concat();
            let bit = place % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(arrived) = Opener::new(bytes.as_slice(), tls, 1_000).receive() {
                prop_assert!(bit / 8 < 3 && arrived == body);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (tls, _) = sealed(&[]);
            prop_assert!(Opener::new(bytes.as_slice(), tls, 100).receive().is_err());
        }
    }
}
