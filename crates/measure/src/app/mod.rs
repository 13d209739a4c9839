//! Measured applications: their text forms, their requests, and the framing and meaning of their
//! replies.
//!
//! The bytes of a load are made and judged here; connections, sockets and the clock are the
//! driver's. For each load thread it keeps a [`Requests`]; for each connection a [`Replies`], and
//! the [`Expected`] of what is outstanding on it, in order:
//!
//! 1. on a new connection it sends [`App::write_greeting`], if there is one, and waits for its
//!    reply;
//! 2. [`Requests::write`] appends a request and says what reply is due;
//! 3. [`Replies::take`] is fed whatever arrives, in any fragments, with the oldest [`Expected`],
//!    and finds each reply's end;
//! 4. a [`Malformed`] reply ends the connection, for nobody knows where the next one begins.
//!
//! Each application is a [`Codec`] in a file of its own, which its line in [`CODECS`] registers:
//!
//! | text form | meaning | framing of replies on a stream | over datagrams |
//! |---|---|---|---|
//! | `echo:64` | requests of 64 bytes, which come back | their count | an 8-byte tag in front, if there is room |
//! | `synthetic:exp:10us` | requests that carry their service time | 8 bytes | 8 more: a tag |
//! | `stss:time=exp:10us,request=fixed:64,reply=fixed:1kB` | requests that carry the size of the reply too | the size asked for | a tag in front of the payload |
//! | `memcached-binary`, `memcached-ascii` | GET and SET of a store | its protocol; the opaque word is checked | its frame header |
//! | `memcached-binary:keys=1M,pick=zipf:0.99,key=fixed:30,value=fixed:200,get=0.9` | a store of another kind | | |
//! | `memcached-ascii:etc` | sizes and shares of Facebook's ETC pool | | |
//! | `redis`, `redis:scan,resp=3` | GET and SET, or SCAN | RESP2 and RESP3 | not spoken |
//! | `redis:command=HSET {key} f {value}` | any command; `preload=` says how to fill the store for it | | |
//! | `http:GET:/path?query`, `http:/path` | a page | HTTP/1.1 | not spoken |
//! | `http:method=POST,path=/x,host=example.com,header=Accept: */*,body="a,b"` | any request | | |
//!
//! Invariant: an application prints in full, and its text form is read back as equal. Bytes of a
//! peer never panic here and never take memory in proportion to what they claim; how they are cut
//! into fragments changes nothing. Writing and judging do not allocate when warm.

mod codec;
mod echo;
mod entry;
mod error;
mod exchange;
mod http;
mod lines;
mod memcached;
mod options;
mod payload;
mod redis;
mod registry;
mod reply;
pub mod serving;
mod spoken;
mod store;
mod stss;
mod synthetic;

pub use self::codec::{
    Carrier, Codec, DatagramFramer, Expected, Framer, Key, Loader, Login, Preload, Setting, Write,
    WriteKey,
};
pub use self::entry::{AppOption, Entry, Parse, Serves};
pub use self::error::AppError;
pub use self::exchange::{Replies, Requests};
pub use self::http::ReadText;
pub use self::registry::{App, CODECS};
pub use self::reply::{
    After, ERRORS_MAX, ErrorCode, ErrorCounts, ErrorKind, Malformed, Outcome, Reply, Tally,
};
pub use self::spoken::Spoken;

#[cfg(test)]
mod tests;
