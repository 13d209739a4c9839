//! Requests, one after the other, and what fills a store before them.
//!
//! Invariant: the same application, setting and generator make the same requests; writing one
//! allocates nothing once the buffer has grown.

use rand::RngExt;

use super::http::ReplyBody;
use super::memcached::{self, Dialect};
use super::store::{Keys, Picker, Sizes, Store, Values};
use super::template::{Filling, Template};
use super::{
    App, AppError, Carrier, Command, DATAGRAM_BYTES_MAX, Expected, FILL, MESSAGE_BYTES_MAX, Shape,
    TAG_BYTES,
};
use super::{Redis, Stss, Version, resp, serving};
use crate::distribution::Distribution;
use crate::generator::Generator;

/// What the requests of a run depend on besides their application.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// What carries them.
    pub carrier: Carrier,
    /// The target's name and port, for HTTP.
    pub authority: &'a str,
}

/// The requests of one load thread.
#[derive(Clone, Debug)]
pub struct Requests {
    kind: Kind,
    carrier: Carrier,
    rng: Generator,
    /// Names the next request; it begins anywhere, so that what an earlier run left in the network
    /// names none of this one.
    tag: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Echo(u32),
    Synthetic(Distribution),
    Stss { time: Distribution, request: Sizes, reply: Sizes },
    Memcached(Dialect, Traffic),
    Redis { read: Template, write: Template, traffic: Traffic },
    Http(Vec<u8>, ReplyBody),
}

/// What is drawn for a store.
#[derive(Clone, Debug)]
struct Traffic {
    keys: Keys,
    values: Values,
    picker: Picker,
    /// The share of reads.
    get: f64,
}

impl Requests {
    /// The requests of `app`. Give each load thread a generator of its own stream.
    ///
    /// # Errors
    ///
    /// Where the carrier cannot carry the application, or no request as long as asked for.
    pub fn new(app: &App, setting: Setting<'_>, mut rng: Generator) -> Result<Self, AppError> {
        let carrier = setting.carrier;
        app.check_carrier(carrier)?;
        let kind = match app {
            App::Echo(bytes) => {
                let (min, max) = payload_bounds(carrier, 0);
                if !(min..=max).contains(bytes) {
                    return Err(AppError::EchoBytes { min, max });
                }
                Kind::Echo(*bytes as u32)
            }
            App::Synthetic(times) => Kind::Synthetic(times.clone()),
            App::Stss(stss) => stss_kind(stss, carrier)?,
            App::Memcached(memcached) => {
                let max = (memcached::KEY_BYTES_MAX, memcached::value_bytes_max(carrier));
                Kind::Memcached(memcached.dialect, Traffic::new(&memcached.store, max, &mut rng)?)
            }
            App::Redis(redis) => redis_kind(redis, &mut rng)?,
            App::Http(http) => Kind::Http(http.encode(setting.authority), http.reply_body()),
        };
        let tag = rng.random();
        Ok(Self { kind, carrier, rng, tag })
    }

    /// Appends the next request to `out`, and says what is due for it.
    #[inline]
    pub fn write(&mut self, out: &mut Vec<u8>) -> Expected {
        let Self { kind, carrier, rng, tag } = self;
        let tag = std::mem::replace(tag, tag.wrapping_add(1));
        match kind {
            Kind::Echo(len) => {
                write_payload(tag, *len as usize, out);
                Expected { tag, shape: Shape::Bytes(*len) }
            }
            Kind::Synthetic(times) => {
                out.extend_from_slice(&times.sample_whole(rng).to_be_bytes());
                let mut len = size_of::<u64>() as u32;
                if *carrier == Carrier::Datagram {
                    out.extend_from_slice(&tag.to_be_bytes());
                    len += TAG_BYTES as u32;
                }
                Expected { tag, shape: Shape::Bytes(len) }
            }
            Kind::Stss { time, request, reply } => {
                let (service_ns, payload_len, reply_len) =
                    (time.sample_whole(rng), request.draw(rng), reply.draw(rng));
                for word in [service_ns, payload_len as u64, reply_len as u64] {
                    out.extend_from_slice(&word.to_be_bytes());
                }
                write_payload(tag, payload_len, out);
                Expected { tag, shape: Shape::Bytes(reply_len as u32) }
            }
            Kind::Memcached(dialect, traffic) => {
                let index = traffic.picker.pick(rng);
                let value_len =
                    if traffic.reads(rng) { None } else { Some(traffic.values.draw(rng)) };
                memcached::Request { dialect: *dialect, carrier: *carrier, tag, index, value_len }
                    .write(&traffic.keys, out)
            }
            Kind::Redis { read, write, traffic } => {
                let index = traffic.picker.pick(rng);
                let template = if traffic.reads(rng) { read } else { write };
                let value_len = if template.has_value() { traffic.values.draw(rng) } else { 0 };
                template.write(Filling { keys: &traffic.keys, index, value_len }, out);
                Expected { tag, shape: Shape::Resp }
            }
            Kind::Http(request, body) => {
                out.extend_from_slice(request);
                Expected { tag, shape: Shape::Http(*body) }
            }
        }
    }
}

impl Traffic {
    fn new(
        store: &Store,
        (key_max, value_max): (u64, u64),
        rng: &mut Generator,
    ) -> Result<Self, AppError> {
        Ok(Self {
            keys: Keys::new(store, key_max)?,
            values: Values::new(store, value_max)?,
            picker: Picker::new(store, rng)?,
            get: store.get,
        })
    }

    #[inline]
    fn reads(&self, rng: &mut Generator) -> bool {
        rng.random_bool(self.get)
    }
}

/// What fills a store before a run: every key, once.
///
/// Requests are written by their index, so that several connections may share the work.
#[derive(Clone, Debug)]
pub struct Preload {
    keys: Keys,
    values: Values,
    key_count: u64,
    how: Set,
}

#[derive(Clone, Debug)]
enum Set {
    Memcached(Dialect, Carrier),
    Redis(Template),
}

impl Preload {
    /// What fills the store of `app`; none, where it has no store, or where nobody said how to fill
    /// it.
    ///
    /// # Errors
    ///
    /// As [`Requests::new`].
    pub fn new(app: &App, carrier: Carrier) -> Result<Option<Self>, AppError> {
        app.check_carrier(carrier)?;
        let (store, (key_max, value_max), how) = match app {
            App::Memcached(memcached) => {
                let max = (memcached::KEY_BYTES_MAX, memcached::value_bytes_max(carrier));
                (&memcached.store, max, Set::Memcached(memcached.dialect, carrier))
            }
            App::Redis(redis) => {
                let template = match &redis.command {
                    Command::GetSet | Command::Scan => set_template()?,
                    Command::Template { preload: Some(preload), .. } => preload.clone(),
                    Command::Template { preload: None, .. } => return Ok(None),
                };
                (&redis.store, REDIS_MAX, Set::Redis(template))
            }
            App::Echo(_) | App::Synthetic(_) | App::Stss(_) | App::Http(_) => return Ok(None),
        };
        let (keys, values) = (Keys::new(store, key_max)?, Values::new(store, value_max)?);
        Ok(Some(Self { keys, values, key_count: store.keys, how }))
    }

    /// How many requests there are.
    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Appends the request that sets the key of `index`, which is below [`Preload::key_count`].
    pub fn write(&self, index: u64, out: &mut Vec<u8>) -> Expected {
        let value_len = self.values.len(index);
        match &self.how {
            Set::Memcached(dialect, carrier) => {
                let value_len = Some(value_len);
                memcached::Request {
                    dialect: *dialect,
                    carrier: *carrier,
                    tag: index,
                    index,
                    value_len,
                }
                .write(&self.keys, out)
            }
            Set::Redis(template) => {
                template.write(Filling { keys: &self.keys, index, value_len }, out);
                Expected { tag: index, shape: Shape::Resp }
            }
        }
    }
}

/// Who a connection says that it is. It is no part of an application's text, which goes into
/// results.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// The default user, if there is none.
    pub user: Option<&'a str>,
    /// In clear; use it on a connection that nobody else reads.
    pub password: &'a str,
}

impl App {
    /// Appends what a new connection says first, and what is due for it; none, where it says
    /// nothing.
    ///
    /// An error as its reply means that the server does not speak this version, or does not let the
    /// login in.
    pub fn write_greeting(&self, login: Option<Login<'_>>, out: &mut Vec<u8>) -> Option<Expected> {
        let App::Redis(redis) = self else {
            return None;
        };
        let mut arguments: Vec<&str> = match redis.version {
            Version::V3 => vec!["HELLO", "3"],
            Version::V2 => Vec::new(),
        };
        if let Some(Login { user, password }) = login {
            arguments.push("AUTH");
            // HELLO wants a user in any case.
            arguments.extend(user.or((redis.version == Version::V3).then_some("default")));
            arguments.push(password);
        }
        if arguments.is_empty() {
            return None;
        }
        resp::write_arguments_head(arguments.len(), out);
        for argument in arguments {
            resp::write_bulk(argument.as_bytes(), out);
        }
        Some(Expected { tag: 0, shape: Shape::Resp })
    }

    fn check_carrier(&self, carrier: Carrier) -> Result<(), AppError> {
        match self {
            App::Redis(_) | App::Http(_) if carrier == Carrier::Datagram => {
                Err(AppError::Datagrams { app: self.name() })
            }
            _ => Ok(()),
        }
    }
}

fn stss_kind(stss: &Stss, carrier: Carrier) -> Result<Kind, AppError> {
    let (reply_min, reply_max) = payload_bounds(carrier, 0);
    let (_, request_max) = payload_bounds(carrier, serving::STSS_HEAD_LEN as u64);
    // Over datagrams both carry a tag.
    let tag_min = if carrier == Carrier::Datagram { TAG_BYTES as u64 } else { 0 };
    Ok(Kind::Stss {
        time: stss.time.clone(),
        request: Sizes::new("request payloads", &stss.request, (tag_min, request_max))?,
        reply: Sizes::new("replies", &stss.reply, (reply_min.max(tag_min), reply_max))?,
    })
}

fn redis_kind(redis: &Redis, rng: &mut Generator) -> Result<Kind, AppError> {
    let mut traffic = Traffic::new(&redis.store, REDIS_MAX, rng)?;
    let (read, write) = match &redis.command {
        Command::GetSet => (Template::parse("GET {key}")?, set_template()?),
        // A cursor is a place in the server's table, so that an index below its size begins
        // somewhere else each time.
        Command::Scan => (Template::parse("SCAN {index} COUNT 10")?, set_template()?),
        Command::Template { command, .. } => (command.clone(), command.clone()),
    };
    if redis.command != Command::GetSet {
        traffic.get = 1.0;
    }
    Ok(Kind::Redis { read, write, traffic })
}

fn set_template() -> Result<Template, AppError> {
    Template::parse("SET {key} {value}")
}

/// The least and the most bytes of a payload behind `head_len` others. On a stream nothing tells of
/// an empty one.
fn payload_bounds(carrier: Carrier, head_len: u64) -> (u64, u64) {
    match carrier {
        Carrier::Stream => (1, MESSAGE_BYTES_MAX - head_len),
        Carrier::Message => (0, MESSAGE_BYTES_MAX - head_len),
        Carrier::Datagram => (1, DATAGRAM_BYTES_MAX - head_len),
    }
}

/// Appends a payload that begins with its tag, if it has the room.
#[inline]
fn write_payload(tag: u64, len: usize, out: &mut Vec<u8>) {
    let end = out.len() + len;
    if len >= TAG_BYTES {
        out.extend_from_slice(&tag.to_be_bytes());
    }
    out.resize(end, FILL);
}

/// Bytes of Redis's keys and values: what it takes is half a gigabyte, but nothing that is measured
/// in microseconds is that long.
const REDIS_MAX: (u64, u64) = (1 << 16, MESSAGE_BYTES_MAX);
