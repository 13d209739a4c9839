//! Replies out of a connection's bytes, one after the other.
//!
//! Invariant: after a malformed reply nothing more is found on the connection.

use super::http;
use super::lines::skip;
use super::memcached::{Dialect, ascii, binary};
use super::resp::{self, Due};
use super::{After, App, Expected, Malformed, Outcome, Reply, Shape};

/// Finds the replies of one connection. It holds some hundred bytes, however long they are.
#[derive(Clone, Debug)]
pub struct Replies {
    framer: Framer,
    /// What ended the connection.
    malformed: Option<Malformed>,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All bytes are taken, and the reply goes on.
    More,
    /// The reply has ended; bytes behind it are left for the next.
    Reply(Reply),
    /// There is no more to be had from this connection: close it.
    Malformed(Malformed),
}

#[derive(Clone, Debug)]
enum Framer {
    /// So many bytes of the reply under way are left.
    Bytes(Option<u64>),
    Binary(binary::Framer),
    Ascii(ascii::Framer),
    Resp(resp::Framer),
    Http(http::Framer),
}

impl Replies {
    /// For a new connection of `app`.
    pub fn new(app: &App) -> Self {
        let framer = match app {
            App::Echo(_) | App::Synthetic(_) | App::Stss(_) => Framer::Bytes(None),
            App::Memcached(memcached) => match memcached.dialect {
                Dialect::Binary => Framer::Binary(binary::Framer::new()),
                Dialect::Ascii => Framer::Ascii(ascii::Framer::new()),
            },
            App::Redis(_) => Framer::Resp(resp::Framer::new()),
            App::Http(_) => Framer::Http(http::Framer::new()),
        };
        Self { framer, malformed: None }
    }

    /// Takes bytes up to the end of the reply that is due, which is the oldest request's; `None`
    /// where nothing is outstanding.
    ///
    /// Call it again, with the next one due, until no bytes are left: where nothing is due, some
    /// servers still push messages, which are passed over.
    ///
    /// # Panics
    ///
    /// Where `expected` is of another application.
    #[inline]
    pub fn take(&mut self, bytes: &mut &[u8], expected: Option<Expected>) -> Step {
        if let Some(malformed) = self.malformed {
            return Step::Malformed(malformed);
        }
        match self.framer.take(bytes, expected) {
            Ok(None) => Step::More,
            Ok(Some(reply)) => Step::Reply(reply),
            Err(malformed) => {
                self.malformed = Some(malformed);
                Step::Malformed(malformed)
            }
        }
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
        if let Framer::Http(framer) = &mut self.framer
            && let Some(reply) = framer.finish()
        {
            return Ok(Some(reply));
        }
        if self.framer.is_within() { Err(Malformed::Truncated) } else { Ok(None) }
    }

    /// Judges a reply whose bounds the transport keeps
    /// ([`Carrier::Message`](super::Carrier::Message)).
    ///
    /// # Errors
    ///
    /// Where the message is not exactly the reply that is due.
    pub fn judge(app: &App, mut message: &[u8], expected: Expected) -> Result<Reply, Malformed> {
        let mut replies = Self::new(app);
        let reply = match replies.take(&mut message, Some(expected)) {
            Step::Reply(reply) => reply,
            Step::More => replies.finish()?.ok_or(Malformed::Truncated)?,
            Step::Malformed(malformed) => return Err(malformed),
        };
        if message.is_empty() { Ok(reply) } else { Err(Malformed::Unsolicited) }
    }
}

impl Framer {
    #[inline]
    fn take(
        &mut self,
        bytes: &mut &[u8],
        expected: Option<Expected>,
    ) -> Result<Option<Reply>, Malformed> {
        let Some(expected) = expected else {
            return self.take_nothing(bytes);
        };
        let outcome = match (self, expected.shape) {
            (Framer::Bytes(left), Shape::Bytes(len)) => {
                if !skip(bytes, left.get_or_insert(u64::from(len))) {
                    return Ok(None);
                }
                *left = None;
                Some(Outcome::Ok)
            }
            (Framer::Binary(framer), Shape::MemcachedGet | Shape::MemcachedSet) => {
                framer.take(bytes, expected)?
            }
            (Framer::Ascii(framer), Shape::MemcachedGet | Shape::MemcachedSet) => {
                framer.take(bytes, expected)?
            }
            (Framer::Resp(framer), Shape::Resp) => framer.take(bytes, Due::Reply)?,
            (Framer::Http(framer), Shape::Http(body)) => return framer.take(bytes, body),
            (_, shape) => panic!("{shape:?} is what another application expects"),
        };
        Ok(outcome.map(|outcome| Reply { outcome, after: After::Keep }))
    }

    fn take_nothing(&mut self, bytes: &mut &[u8]) -> Result<Option<Reply>, Malformed> {
        match self {
            Framer::Resp(framer) => framer.take(bytes, Due::Nothing).map(|_| None),
            _ if bytes.is_empty() => Ok(None),
            _ => Err(Malformed::Unsolicited),
        }
    }

    fn is_within(&self) -> bool {
        match self {
            Framer::Bytes(left) => left.is_some(),
            Framer::Binary(framer) => framer.is_within(),
            Framer::Ascii(framer) => framer.is_within(),
            Framer::Resp(framer) => framer.is_within(),
            Framer::Http(framer) => framer.is_within(),
        }
    }
}
