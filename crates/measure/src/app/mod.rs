//! Measured applications: their text forms, their requests, and the framing and meaning of their
//! replies.
//!
//! The bytes of a load are made and judged here; connections, sockets and the clock are the
//! driver's. For each load thread it keeps a [`Requests`]; for each connection a [`Conversation`]:
//!
//! 1. [`Conversation::begin`] says what a new connection begins with; requests wait until it
//!    [is ready](Conversation::is_ready);
//! 2. [`Conversation::write`] appends a request of [`Requests::write`], and numbers it;
//! 3. [`Conversation::take`] is fed whatever arrives, in any fragments, and finds each reply's end
//!    and the number of its request;
//! 4. a [`Malformed`] reply ends the connection, for nobody knows where the next one begins.
//!
//! Where the transport keeps the bounds of messages, [`Replies::judge`] judges each.
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
//! | `http2:GET:/path` | the same requests, as streams of HTTP/2 | frames and streams | not spoken |
//! | `grpc:package.Service/Method,hex=0a05` | calls, unary or of streams, with one message | HTTP/2 and `grpc-status` | not spoken |
//! | `http:method=POST,path=/x,host=example.com,header=Accept: */*,body="a,b"` | any request | | |
//!
//! Invariant: an application prints in full, and its text form is read back as equal. Bytes of a
//! peer never panic here and never take memory in proportion to what they claim; how they are cut
//! into fragments changes nothing. Writing and judging do not allocate when warm.

mod codec;
mod conversation;
mod entry;
mod error;
mod exchange;
mod http2;
mod lines;
mod options;
mod payload;
mod registry;
mod reply;
mod requests_file;
pub mod serving;
mod spoken;
mod store;

pub use self::codec::{
    Carrier, Codec, DatagramFramer, Expected, Framer, Key, Loader, Login, Preload, Session,
    Setting, TlsUpgrade, Write, WriteKey,
};
pub use self::conversation::Conversation;
pub use self::entry::{AppOption, Entry, Parse, Serves, WithFiles};
pub use self::error::AppError;
pub use self::exchange::{Replies, Requests};
pub use self::options::{Options, quoted};
pub use self::registry::App;
pub use self::reply::{
    After, Answer, ERRORS_MAX, ErrorCode, ErrorCounts, ErrorKind, Malformed, Outcome, Reply, Tally,
    name as error_name,
};
pub use self::requests_file::ReadFile;
pub use self::spoken::Spoken;

/// Compiles the file of each application and lists its entries.
macro_rules! registry {
    ($($file:ident,)+) => {
        $(mod $file;)+

        /// All applications. A new one is a file with its [`Codec`], and a name here.
        pub const CODECS: &[&[Entry]] = &[$(self::$file::ENTRIES),+];
    };
}

registry! {
    echo,
    synthetic,
    stss,
    memcached,
    redis,
    http,
    grpc,
}

#[cfg(test)]
mod tests;
