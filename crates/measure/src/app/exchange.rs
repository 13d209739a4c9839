//! Requests, one after the other, and their replies out of a connection's bytes.
//!
//! Invariant: the same application, setting and generator make the same requests. After a malformed
//! reply nothing more is found on the connection.

use std::fmt;

use rand::RngExt;

use super::codec::{Expected, Framer, Setting, Write};
use super::error::AppError;
use super::registry::App;
use super::reply::{ErrorCode, Malformed, Reply};
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
        app.check_carrier(setting.carrier)?;
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

/// The replies of one connection. It holds some hundred bytes, however long they are.
#[derive(Debug)]
pub struct Replies {
    app: App,
    framer: Box<dyn Framer>,
    /// Error that ended the connection.
    malformed: Option<Malformed>,
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
    /// servers still push messages, which are passed over. `None` says that all bytes are taken,
    /// and the reply goes on.
    ///
    /// # Errors
    ///
    /// That there is no more to be had from this connection: close it.
    #[inline]
    pub fn take(
        &mut self,
        bytes: &mut &[u8],
        expected: Option<Expected>,
    ) -> Result<Option<Reply>, Malformed> {
        if let Some(malformed) = self.malformed {
            return Err(malformed);
        }
        let taken = match expected {
            Some(expected) => self.framer.take(bytes, expected),
            None => self.framer.take_unasked(bytes).map(|()| None),
        };
        self.malformed = taken.err();
        taken
    }

    /// The protocol's own name of the error that the last reply was.
    pub fn error_code(&self) -> ErrorCode {
        self.framer.error_code()
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

    /// Judges a reply whose bounds the transport keeps (`Carrier::Message`), whatever the one
    /// before it was.
    ///
    /// # Errors
    ///
    /// Where the message is not exactly the reply that is due.
    pub fn judge(&mut self, mut message: &[u8], expected: Expected) -> Result<Reply, Malformed> {
        let reply = match self.take(&mut message, Some(expected)) {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => self.finish().and_then(|reply| reply.ok_or(Malformed::Truncated)),
            Err(malformed) => Err(malformed),
        };
        if reply.is_err() {
            // The next message begins anew; this allocates, but for a server that is broken alone.
            self.framer = self.app.codec.replies();
            self.malformed = None;
        }
        if message.is_empty() { reply } else { reply.and(Err(Malformed::Unsolicited)) }
    }
}
