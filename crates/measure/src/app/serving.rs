//! The other side: what a server of tailcut's own reads and answers.
//!
//! Echo needs no framing: on a stream bytes go back as they come, and elsewhere the transport keeps
//! the bounds. The requests of synthetic and stss are framed here.
//!
//! | application | request | reply |
//! |---|---|---|
//! | synthetic | service time in ns, 8 bytes; over datagrams a tag of 8 more | the same |
//! | stss | service time, payload size, reply size, 8 bytes each; the payload | that size; the payload's first 8 bytes, then filling |
//!
//! All numbers are big-endian. Invariant: a request that asks for more than the limits is malformed
//! before anything is done for it; payloads are passed over and not held.

use super::lines::skip;
use super::{FILL, Malformed, TAG_BYTES};

/// Which requests a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// Those that carry their service time.
    Synthetic,
    /// Those that carry the sizes too.
    Stss,
}

/// What a request may ask for.
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
    /// How long the service takes, ns.
    pub service_ns: u64,
    reply_len: usize,
    /// What the reply begins with.
    head: [u8; HEAD_BYTES_MAX],
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

    fn new(service_ns: u64, reply_len: usize) -> Self {
        Self { service_ns, reply_len, head: [0; HEAD_BYTES_MAX], head_len: 0 }
    }

    /// Adds bytes that the reply begins with, as many as fit.
    fn hold(&mut self, bytes: &[u8], len_max: usize) {
        let taken = bytes.len().min(len_max - self.head_len);
        self.head[self.head_len..][..taken].copy_from_slice(&bytes[..taken]);
        self.head_len += taken;
    }
}

/// Finds the requests of one stream.
#[derive(Clone, Debug)]
pub struct Tasks {
    serves: Serves,
    limits: Limits,
    /// The head in the making.
    held: [u8; STSS_HEAD_LEN],
    held_len: usize,
    /// The request whose payload is under way, and what is left of that.
    within: Option<(Task, u64)>,
    malformed: Option<Malformed>,
}

/// What was found on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStep {
    /// All bytes are taken, and the request goes on.
    More,
    /// A request; bytes behind it are left for the next.
    Task(Task),
    /// Close the connection.
    Malformed(Malformed),
}

impl Tasks {
    /// For a new connection.
    pub fn new(serves: Serves, limits: Limits) -> Self {
        Self {
            serves,
            limits,
            held: [0; STSS_HEAD_LEN],
            held_len: 0,
            within: None,
            malformed: None,
        }
    }

    /// Takes bytes up to the end of a request.
    pub fn take(&mut self, bytes: &mut &[u8]) -> TaskStep {
        if let Some(malformed) = self.malformed {
            return TaskStep::Malformed(malformed);
        }
        match self.find(bytes) {
            Ok(None) => TaskStep::More,
            Ok(Some(task)) => TaskStep::Task(task),
            Err(malformed) => {
                self.malformed = Some(malformed);
                TaskStep::Malformed(malformed)
            }
        }
    }

    fn find(&mut self, bytes: &mut &[u8]) -> Result<Option<Task>, Malformed> {
        if self.within.is_none() {
            let head_len = head_len(self.serves);
            let (part, rest) = bytes.split_at(bytes.len().min(head_len - self.held_len));
            *bytes = rest;
            self.held[self.held_len..][..part.len()].copy_from_slice(part);
            self.held_len += part.len();
            if self.held_len < head_len {
                return Ok(None);
            }
            self.held_len = 0;
            self.within = Some(read_head(self.serves, &self.held[..head_len], self.limits)?);
        }
        let Some((task, left)) = &mut self.within else {
            return Ok(None);
        };
        if self.serves == Serves::Stss {
            task.hold(&bytes[..bytes.len().min(*left as usize)], TAG_BYTES);
        }
        Ok(if skip(bytes, left) { self.within.take().map(|(task, _)| task) } else { None })
    }

    /// Reads a request that is a datagram or a message of its own.
    ///
    /// # Errors
    ///
    /// Where it is not exactly a request, or asks for more than the limits.
    pub fn read(serves: Serves, limits: Limits, message: &[u8]) -> Result<Task, Malformed> {
        let (head, payload) = message.split_at_checked(head_len(serves)).ok_or(NO_REQUEST)?;
        let (mut task, left) = read_head(serves, head, limits)?;
        match serves {
            Serves::Synthetic if payload.is_empty() => {}
            Serves::Synthetic if payload.len() == TAG_BYTES => {
                task.hold(payload, HEAD_BYTES_MAX);
                task.reply_len += TAG_BYTES;
            }
            Serves::Stss if payload.len() as u64 == left => task.hold(payload, TAG_BYTES),
            Serves::Synthetic | Serves::Stss => return Err(NO_REQUEST),
        }
        Ok(task)
    }
}

/// Reads a head of the right length: the request, and the length of the payload behind it.
fn read_head(serves: Serves, head: &[u8], limits: Limits) -> Result<(Task, u64), Malformed> {
    let word = |index: usize| {
        let bytes = head.get(8 * index..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
    };
    let service_ns = word(0);
    if service_ns > limits.service_ns_max {
        return Err(Malformed::TooLong("service times"));
    }
    if serves == Serves::Synthetic {
        let mut task = Task::new(service_ns, SYNTHETIC_LEN);
        task.hold(head, SYNTHETIC_LEN);
        return Ok((task, 0));
    }
    let (payload_len, reply_len) = (word(1), word(2));
    if payload_len > limits.payload_bytes_max {
        return Err(Malformed::TooLong("payloads"));
    }
    if reply_len > limits.reply_bytes_max {
        return Err(Malformed::TooLong("replies"));
    }
    Ok((Task::new(service_ns, reply_len as usize), payload_len))
}

fn head_len(serves: Serves) -> usize {
    match serves {
        Serves::Synthetic => SYNTHETIC_LEN,
        Serves::Stss => STSS_HEAD_LEN,
    }
}

const NO_REQUEST: Malformed = Malformed::Syntax("a request of the length that its head says");
const SYNTHETIC_LEN: usize = 8;
pub(super) const STSS_HEAD_LEN: usize = 24;
/// A service time and a tag.
const HEAD_BYTES_MAX: usize = SYNTHETIC_LEN + TAG_BYTES;
