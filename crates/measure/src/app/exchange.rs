//! Requests, one after the other, and their replies out of a connection's bytes or a socket's
//! datagrams.
//!
//! Invariant: the same application, setting and generator make the same requests. After a malformed
//! reply nothing more is found on the connection. Over datagrams a reply is matched by the name
//! that its request carried, so that a late one is never taken for another.

use std::fmt;

use rand::RngExt;

use super::codec::{Carrier, DatagramFramer, Expected, Framer, Key, Preload, Setting, Write};
use super::error::AppError;
use super::registry::App;
use super::reply::{Malformed, Reply};
use crate::generator::Generator;

/// The requests of one load thread.
pub struct Requests {
    write: Write,
    rng: Generator,
    /// Names the next request; it begins anywhere, so that what an earlier run left in the network
    /// names none of this one.
    tag: u64,
}

impl Requests {
    /// The requests of `app`. Give each load thread a generator of its own stream.
    ///
    /// # Errors
    ///
    /// Where the carrier cannot carry the application, or no request as long as asked for.
    pub fn new(app: &App, setting: Setting<'_>, mut rng: Generator) -> Result<Self, AppError> {
        check_carrier(app, setting.carrier)?;
        let write = app.codec.requests(setting, &mut rng)?;
        let tag = rng.random();
        Ok(Self { write, rng, tag })
    }

    /// Appends the next request to `out`, and returns the reply that is due for it.
    #[inline]
    pub fn write(&mut self, out: &mut Vec<u8>) -> Expected {
        let tag = self.tag;
        self.tag = tag.wrapping_add(1);
        (self.write)(tag, &mut self.rng, out)
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("tag", &self.tag).finish_non_exhaustive()
    }
}

impl Preload {
    /// What fills the store of `app`; none, where it has no store, or where nobody said how to fill
    /// it.
    ///
    /// # Errors
    ///
    /// As [`Requests::new`].
    pub fn new(app: &App, carrier: Carrier) -> Result<Option<Self>, AppError> {
        check_carrier(app, carrier)?;
        app.codec.preload(carrier)
    }

    /// How many requests there are.
    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Appends the request that sets the key of `index`, which is below [`Preload::key_count`].
    pub fn write(&self, index: u64, out: &mut Vec<u8>) -> Expected {
        (self.write)(index, out)
    }
}

impl fmt::Debug for Preload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preload").field("key_count", &self.key_count).finish_non_exhaustive()
    }
}

/// The replies of one connection. It holds some hundred bytes, however long they are.
#[derive(Debug)]
pub struct Replies {
    app: App,
    framer: Box<dyn Framer>,
    /// What ended the connection.
    malformed: Option<Malformed>,
}

/// A step in finding replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All bytes are taken, and the reply goes on.
    More,
    /// The reply has ended; bytes behind it are left for the next.
    Reply(Reply),
    /// There is no more to be had from this connection: close it.
    Malformed(Malformed),
}

impl Replies {
    /// For a new connection of `app`.
    pub fn new(app: &App) -> Self {
        Self { app: app.clone(), framer: app.codec.replies(), malformed: None }
    }

    /// Takes bytes up to the end of the reply that is due, which is the oldest request's; `None`
    /// where nothing is outstanding.
    ///
    /// Call it again, with the next one due, until no bytes are left: where nothing is due, some
    /// servers still push messages, which are passed over.
    #[inline]
    pub fn take(&mut self, bytes: &mut &[u8], expected: Option<Expected>) -> Step {
        if let Some(malformed) = self.malformed {
            return Step::Malformed(malformed);
        }
        let taken = match expected {
            Some(expected) => self.framer.take(bytes, expected),
            None => self.framer.take_unasked(bytes).map(|()| None),
        };
        let step = step(taken);
        if let Step::Malformed(malformed) = step {
            self.malformed = Some(malformed);
        }
        step
    }

    /// The server has closed the connection: the reply that ended so, if one did. All that is
    /// outstanding besides is lost.
    ///
    /// # Errors
    ///
    /// Where that cut a reply short.
    pub fn finish(&mut self) -> Result<Option<Reply>, Malformed> {
        if let Some(malformed) = self.malformed {
            return Err(malformed);
        }
        match self.framer.finish() {
            None if self.framer.is_within() => Err(Malformed::Truncated),
            reply => Ok(reply),
        }
    }

    /// Judges a reply whose bounds the transport keeps ([`Carrier::Message`]), whatever the one
    /// before it was.
    ///
    /// # Errors
    ///
    /// Where the message is not exactly the reply that is due.
    pub fn judge(&mut self, mut message: &[u8], expected: Expected) -> Result<Reply, Malformed> {
        let reply = match self.take(&mut message, Some(expected)) {
            Step::Reply(reply) => Ok(reply),
            Step::More => self.finish().and_then(|reply| reply.ok_or(Malformed::Truncated)),
            Step::Malformed(malformed) => Err(malformed),
        };
        if reply.is_err() {
            // The next message begins anew; this allocates, but for a server that is broken alone.
            self.framer = self.app.codec.replies();
            self.malformed = None;
        }
        if message.is_empty() { reply } else { reply.and(Err(Malformed::Unsolicited)) }
    }
}

/// The replies of one socket, in datagrams that may be lost, late, twice and out of order.
///
/// For each datagram ask for its [`Datagrams::key`], find the request that it names, and
/// [`Datagrams::take`] it. One that names no outstanding request is late, or twice: count it. Here
/// a malformed datagram says nothing about those that follow.
#[derive(Debug)]
pub struct Datagrams(Box<dyn DatagramFramer>);

impl Datagrams {
    /// For a new socket of `app`.
    ///
    /// # Errors
    ///
    /// Where it is not spoken over datagrams.
    pub fn new(app: &App) -> Result<Self, AppError> {
        app.codec.datagrams().map(Self).ok_or(AppError::Datagrams { app: app.name() })
    }

    /// The request that the datagram answers.
    ///
    /// # Errors
    ///
    /// Where it names none.
    #[inline]
    pub fn key(&self, datagram: &[u8]) -> Result<Key, Malformed> {
        self.0.key(datagram)
    }

    /// Takes a datagram of the reply that is due; [`Step::More`] says that others are to come.
    #[inline]
    pub fn take(&mut self, datagram: &[u8], expected: Expected) -> Step {
        step(self.0.take(datagram, expected).map(|outcome| outcome.map(Reply::keep)))
    }

    /// The driver no longer waits for the request of this tag.
    pub fn forget(&mut self, tag: u64) {
        self.0.forget(tag);
    }

    /// Replies that were given up because too many had come in part; their requests will time out.
    pub fn evicted(&self) -> u64 {
        self.0.evicted()
    }
}

fn step(taken: Result<Option<Reply>, Malformed>) -> Step {
    match taken {
        Ok(None) => Step::More,
        Ok(Some(reply)) => Step::Reply(reply),
        Err(malformed) => Step::Malformed(malformed),
    }
}

fn check_carrier(app: &App, carrier: Carrier) -> Result<(), AppError> {
    if carrier == Carrier::Datagram { Datagrams::new(app).map(drop) } else { Ok(()) }
}
