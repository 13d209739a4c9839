//! The server's side: how a server of tailcut's own reads requests and answers them.
//!
//! Echo needs no framing: on a stream bytes go back as they come, and elsewhere the transport keeps
//! the bounds. Other applications that are served have a [`TaskForm`].
//!
//! Invariant: a request that asks for more than the limits is malformed before anything is done for
//! it; payloads are passed over and not held.

use std::fmt;

use super::lines::{HeldHead, skip};
use super::payload::{FILL, TAG_BYTES};
use super::reply::Malformed;

/// The form of an application's requests: a head of a fixed length, and a payload.
pub trait TaskForm: fmt::Debug + Sync {
    /// Bytes of the head, [`HEAD_LEN_MAX`] at most.
    fn head_len(&self) -> usize;

    /// Reads a head of that length: the request, and the length of the payload behind it on a
    /// stream.
    ///
    /// # Errors
    ///
    /// Where it asks for more than the limits.
    fn read_head(&self, head: &[u8], limits: Limits) -> Result<(Task, u64), Malformed>;

    /// Reads the payload of a request that is a message of its own, in which `len` bytes are due.
    ///
    /// # Errors
    ///
    /// Where it has another length.
    fn read_payload(&self, task: &mut Task, payload: &[u8], len: u64) -> Result<(), Malformed>;

    /// True if a request says its service time and nothing else, so that a server may draw it.
    fn is_time_alone(&self) -> bool {
        false
    }
}

/// Limits on what a request may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest service, ns.
    pub service_ns_max: u64,
    /// The longest payload.
    pub payload_bytes_max: u64,
    /// The longest reply, which the server must be ready to hold for each request.
    pub reply_bytes_max: u64,
}

/// A request: how long to serve it, and what to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Duration of the service, ns.
    pub service_ns: u64,
    /// Bytes of the reply.
    pub(super) reply_len: usize,
    /// First bytes of the reply.
    head: [u8; REPLY_HEAD_MAX],
    /// Bytes of that.
    head_len: usize,
}

impl Task {
    /// Appends the reply.
    pub fn write_reply(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.reply_len;
        out.extend_from_slice(&self.head[..self.head_len.min(self.reply_len)]);
        out.resize(end, FILL);
    }

    /// Bytes of the reply.
    pub fn reply_len(&self) -> usize {
        self.reply_len
    }

    /// A task of this service time, whose reply has so many bytes.
    ///
    /// # Errors
    ///
    /// Where the service would be too long.
    pub fn new(service_ns: u64, reply_len: usize, limits: Limits) -> Result<Self, Malformed> {
        if service_ns > limits.service_ns_max {
            return Err(Malformed::TooLong("service times"));
        }
        Ok(Self { service_ns, reply_len, head: [0; REPLY_HEAD_MAX], head_len: 0 })
    }

    /// Adds bytes that the reply begins with, up to `len_max` in all, 16 at most.
    pub fn hold(&mut self, bytes: &[u8], len_max: usize) {
        let room = &mut self.head[self.head_len..len_max];
        let taken = bytes.len().min(room.len());
        room[..taken].copy_from_slice(&bytes[..taken]);
        self.head_len += taken;
    }
}

/// Finds the requests of one stream.
#[derive(Clone, Debug)]
pub struct Tasks {
    form: &'static dyn TaskForm,
    limits: Limits,
    head: HeldHead<HEAD_LEN_MAX>,
    /// The request whose payload is under way, and what is left of that.
    within: Option<(Task, u64)>,
    /// Error that ended the connection.
    malformed: Option<Malformed>,
}

impl Tasks {
    /// For a new connection.
    pub fn new(form: &'static dyn TaskForm, limits: Limits) -> Self {
        Self { form, limits, head: HeldHead::new(), within: None, malformed: None }
    }

    /// Takes bytes up to the end of a request; bytes behind it are left for the next. `None` says
    /// that all bytes are taken, and the request goes on.
    ///
    /// # Errors
    ///
    /// That the connection is of no more use: close it.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Task>, Malformed> {
        if let Some(malformed) = self.malformed {
            return Err(malformed);
        }
        let found = self.find(bytes);
        self.malformed = found.err();
        found
    }

    fn find(&mut self, bytes: &mut &[u8]) -> Result<Option<Task>, Malformed> {
        if self.within.is_none() {
            let Some(head) = self.head.take(bytes, self.form.head_len()) else {
                return Ok(None);
            };
            self.within = Some(self.form.read_head(head, self.limits)?);
        }
        let Some((task, left)) = &mut self.within else {
            return Ok(None);
        };
        // The reply repeats what may be a tag, and nothing behind it.
        task.hold(&bytes[..bytes.len().min(*left as usize)], TAG_BYTES);
        Ok(if skip(bytes, left) { self.within.take().map(|(task, _)| task) } else { None })
    }

    /// Reads a request that is a datagram or a message of its own.
    ///
    /// # Errors
    ///
    /// Where it is not exactly a request, or asks for more than the limits.
    pub fn read(form: &dyn TaskForm, limits: Limits, message: &[u8]) -> Result<Task, Malformed> {
        let (head, payload) = message.split_at_checked(form.head_len()).ok_or(NO_REQUEST)?;
        let (mut task, len) = form.read_head(head, limits)?;
        form.read_payload(&mut task, payload, len)?;
        Ok(task)
    }
}

/// The big-endian numbers of a head that has as many.
pub fn words<const N: usize>(head: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(head.as_chunks().0) {
        *word = u64::from_be_bytes(*bytes);
    }
    words
}

/// A message that is not exactly a request.
pub const NO_REQUEST: Malformed = Malformed::Syntax("a request of the length that its head says");
/// The longest head of a request: three numbers.
pub const HEAD_LEN_MAX: usize = 24;
/// A service time and a tag.
const REPLY_HEAD_MAX: usize = 8 + TAG_BYTES;
