//! Applications as people write them.
//!
//! | text | meaning |
//! |---|---|
//! | `echo:64` | requests of 64 bytes, which come back |
//! | `synthetic:exp:10us` | requests that say how long their service takes |
//! | `stss:time=exp:10us,request=fixed:64,reply=fixed:1kB` | which say the size of the reply too |
//! | `memcached-binary`, `memcached-ascii` | GET and SET of a store |
//! | `memcached-binary:keys=1M,pick=zipf:0.99,key=fixed:30,value=fixed:200,get=0.9` | a store of another kind |
//! | `memcached-ascii:etc` | sizes and shares of Facebook's ETC pool |
//! | `redis`, `redis:scan,resp=3` | GET and SET, or SCAN |
//! | `redis:command=HSET {key} f {value}` | any command; `preload=` says how to fill the store for it |
//! | `http:GET:/path?query`, `http:/path` | a page |
//! | `http:method=POST,path=/x,host=example.com,header=Accept: */*,body="a,b"` | any request |
//!
//! Options are those of the module `options`. Invariant: an application prints in full, and what it
//! prints is read back as equal.

use std::fmt;

use thiserror::Error;

use super::options::{Options, quoted};
use super::store::{KEYS_MAX, Pick, Store};
use super::template::Template;
use super::{Dialect, Http, MESSAGE_BYTES_MAX, Memcached, Version};
use crate::distribution::{Distribution, DistributionError};
use crate::quantity::{QuantityError, Unit, parse_count, parse_size_bytes};

/// A measured application.
#[derive(Clone, Debug, PartialEq)]
pub enum App {
    /// Requests of so many bytes, returned as they are: `echo:BYTES`.
    Echo(u64),
    /// Requests that carry their service time, ns, which returns: `synthetic:DIST`.
    Synthetic(Distribution),
    /// Requests that carry their service time and the size of their reply:
    /// `stss:time=DIST,request=DIST,reply=DIST`.
    Stss(Stss),
    /// `memcached-binary` and `memcached-ascii`.
    Memcached(Memcached),
    /// `redis`.
    Redis(Redis),
    /// `http`.
    Http(Http),
}

/// Synthetic time, synthetic size.
#[derive(Clone, Debug, PartialEq)]
pub struct Stss {
    /// Of the service, ns.
    pub time: Distribution,
    /// Bytes that a request carries behind its 24.
    pub request: Distribution,
    /// Bytes of a reply.
    pub reply: Distribution,
}

/// What a measured Redis is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Redis {
    /// Which commands.
    pub command: Command,
    /// Which version of the protocol.
    pub version: Version,
    /// Keys and values.
    pub store: Store,
}

/// Commands for Redis.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// GET and SET, in the store's shares.
    GetSet,
    /// SCAN, ten keys from anywhere: `scan`.
    Scan,
    /// Any other.
    Template {
        /// What is measured: `command=`.
        command: Template,
        /// What fills the store before, once for each key: `preload=`.
        preload: Option<Template>,
    },
}

/// Gives the samples of `file:PATH`, in the base unit of what is drawn, or says why it cannot.
pub type Loader<'a> = dyn FnMut(&str, Unit) -> Result<Vec<f64>, String> + 'a;

impl App {
    /// Reads an application; a distribution `file:PATH` needs [`App::parse_with`].
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, AppError> {
        Self::parse_with(text, &mut |_, _| Err("there is no loader of files here".to_owned()))
    }

    /// Reads an application; `load` gives the samples of files. This crate does no IO itself.
    ///
    /// # Errors
    ///
    /// What is wrong with the text, or what `load` says.
    pub fn parse_with(text: &str, load: &mut Loader<'_>) -> Result<Self, AppError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "echo" => {
                let bytes = parse_size_bytes(rest)
                    .map_err(|source| AppError::Quantity { option: "echo", source })?;
                if bytes > MESSAGE_BYTES_MAX {
                    return Err(AppError::EchoBytes { min: 0, max: MESSAGE_BYTES_MAX });
                }
                Ok(App::Echo(bytes))
            }
            "synthetic" => distribution("synthetic", rest, Unit::Time, load).map(App::Synthetic),
            "stss" => parse_stss(rest, load).map(App::Stss),
            "memcached-binary" => parse_memcached(Dialect::Binary, rest, load).map(App::Memcached),
            "memcached-ascii" => parse_memcached(Dialect::Ascii, rest, load).map(App::Memcached),
            "redis" => parse_redis(rest, load).map(App::Redis),
            "http" => parse_http(rest).map(App::Http),
            _ => Err(AppError::Unknown(name.to_owned())),
        }
    }

    /// Its name, without what follows.
    pub fn name(&self) -> &'static str {
        match self {
            App::Echo(_) => "echo",
            App::Synthetic(_) => "synthetic",
            App::Stss(_) => "stss",
            App::Memcached(Memcached { dialect: Dialect::Binary, .. }) => "memcached-binary",
            App::Memcached(Memcached { dialect: Dialect::Ascii, .. }) => "memcached-ascii",
            App::Redis(_) => "redis",
            App::Http(_) => "http",
        }
    }
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name())?;
        match self {
            App::Echo(bytes) => write!(f, "{bytes}"),
            App::Synthetic(times) => write!(f, "{times}"),
            App::Stss(Stss { time, request, reply }) => {
                let [time, request, reply] =
                    [time, request, reply].map(|distribution| quoted(&distribution.to_string()));
                write!(f, "time={time},request={request},reply={reply}")
            }
            App::Memcached(memcached) => write_store(&memcached.store, Reads::Shared, f),
            App::Redis(redis) => write_redis(redis, f),
            App::Http(http) => write_http(http, f),
        }
    }
}

fn parse_stss(text: &str, load: &mut Loader<'_>) -> Result<Stss, AppError> {
    let mut options = Options::parse("stss", text)?;
    let mut take = |option: &'static str, unit: Unit| {
        let text = options.take(option)?.ok_or(AppError::Required { app: "stss", option })?;
        distribution(option, &text, unit, load)
    };
    let stss = Stss {
        time: take("time", Unit::Time)?,
        request: take("request", Unit::Size)?,
        reply: take("reply", Unit::Size)?,
    };
    options.finish("time=DIST, request=DIST and reply=DIST")?;
    Ok(stss)
}

fn parse_memcached(
    dialect: Dialect,
    text: &str,
    load: &mut Loader<'_>,
) -> Result<Memcached, AppError> {
    let name = if dialect == Dialect::Binary { "memcached-binary" } else { "memcached-ascii" };
    let mut options = Options::parse(name, text)?;
    let store = take_store(&mut options, load)?;
    options.finish(STORE_OPTIONS)?;
    Ok(Memcached { dialect, store })
}

fn parse_redis(text: &str, load: &mut Loader<'_>) -> Result<Redis, AppError> {
    let mut options = Options::parse("redis", text)?;
    let template = options.take("command")?.map(|text| Template::parse(&text)).transpose()?;
    let command = match (template, options.take_word("scan")) {
        (None, false) => Command::GetSet,
        (None, true) => Command::Scan,
        (Some(command), false) => {
            let preload =
                options.take("preload")?.map(|text| Template::parse(&text)).transpose()?;
            Command::Template { command, preload }
        }
        (Some(_), true) => return Err(AppError::Together("scan and command")),
    };
    let version = match options.take("resp")?.as_deref() {
        None | Some("2") => Version::V2,
        Some("3") => Version::V3,
        Some(other) => {
            return Err(AppError::Value {
                option: "resp",
                rule: "2 or 3",
                value: other.to_owned(),
            });
        }
    };
    let has_share = options.has("get");
    let mut store = take_store(&mut options, load)?;
    if command != Command::GetSet {
        if has_share {
            return Err(AppError::Together("get and another command"));
        }
        store.get = 1.0;
    }
    options.finish(REDIS_OPTIONS)?;
    Ok(Redis { command, version, store })
}

fn take_store(options: &mut Options, load: &mut Loader<'_>) -> Result<Store, AppError> {
    let mut store = if options.take_word("etc") { Store::etc() } else { Store::default() };
    if let Some(text) = options.take("keys")? {
        store.keys =
            parse_count(&text).map_err(|source| AppError::Quantity { option: "keys", source })?;
        if store.keys > KEYS_MAX {
            return Err(AppError::Value { option: "keys", rule: "at most 2^40", value: text });
        }
    }
    if let Some(text) = options.take("pick")? {
        store.pick = parse_pick(&text, store.keys)?;
    }
    if let Some(text) = options.take("key")? {
        store.key = distribution("key", &text, Unit::Size, load)?;
    }
    if let Some(text) = options.take("value")? {
        store.value = distribution("value", &text, Unit::Size, load)?;
    }
    if let Some(text) = options.take("get")? {
        let share = Unit::Plain
            .parse(&text)
            .map_err(|source| AppError::Quantity { option: "get", source })?;
        if !(0.0..=1.0).contains(&share) {
            return Err(AppError::Value { option: "get", rule: "from 0 to 1", value: text });
        }
        store.get = share;
    }
    Ok(store)
}

fn parse_pick(text: &str, keys: u64) -> Result<Pick, AppError> {
    let refuse = || AppError::Value {
        option: "pick",
        rule: "uniform, rr or zipf:S; keys=N counts the keys",
        value: text.to_owned(),
    };
    match text.split_once(':') {
        None if text == "uniform" => Ok(Pick::Uniform),
        None if text == "rr" => Ok(Pick::RoundRobin),
        Some(("zipf", exponent)) => {
            let exponent = Unit::Plain.parse(exponent).map_err(|_| refuse())?;
            // What the grammar of distributions takes, it can draw.
            Distribution::parse(&format!("zipf:{keys}:{exponent}"), Unit::Plain)
                .map_err(|source| AppError::Distribution { option: "pick", source })?;
            Ok(Pick::Zipf { exponent })
        }
        _ => Err(refuse()),
    }
}

fn parse_http(text: &str) -> Result<Http, AppError> {
    let mut http = Http::default();
    let (method, path) = text.split_once(':').unwrap_or(("", ""));
    if text.starts_with('/') {
        text.clone_into(&mut http.path);
    } else if path.starts_with('/')
        && !method.is_empty()
        && method.bytes().all(|c| c.is_ascii_alphabetic())
    {
        (http.method, http.path) = (method.to_owned(), path.to_owned());
    } else {
        let mut options = Options::parse("http", text)?;
        http.method = options.take("method")?.unwrap_or(http.method);
        http.path = options.take("path")?.unwrap_or(http.path);
        http.host = options.take("host")?;
        http.headers = options.take_all("header")?;
        http.body = options.take("body")?.unwrap_or_default();
        options.finish("METHOD:/PATH, or method=, path=, host=, header= (often) and body=")?;
    }
    http.check()?;
    Ok(http)
}

fn distribution(
    option: &'static str,
    text: &str,
    unit: Unit,
    load: &mut Loader<'_>,
) -> Result<Distribution, AppError> {
    Distribution::parse_with(text, unit, |path| load(path, unit))
        .map_err(|source| AppError::Distribution { option, source })
}

/// Whether a store's share of reads is chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Shared,
    All,
}

fn write_store(store: &Store, reads: Reads, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "keys={},pick=", store.keys)?;
    match store.pick {
        Pick::Uniform => f.write_str("uniform")?,
        Pick::RoundRobin => f.write_str("rr")?,
        Pick::Zipf { exponent } => write!(f, "zipf:{exponent}")?,
    }
    write!(
        f,
        ",key={},value={}",
        quoted(&store.key.to_string()),
        quoted(&store.value.to_string())
    )?;
    if reads == Reads::Shared { write!(f, ",get={}", store.get) } else { Ok(()) }
}

fn write_redis(redis: &Redis, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut reads = Reads::All;
    match &redis.command {
        Command::GetSet => reads = Reads::Shared,
        Command::Scan => f.write_str("scan,")?,
        Command::Template { command, preload } => {
            write!(f, "command={},", quoted(&command.to_string()))?;
            if let Some(preload) = preload {
                write!(f, "preload={},", quoted(&preload.to_string()))?;
            }
        }
    }
    let version = if redis.version == Version::V2 { 2 } else { 3 };
    write!(f, "resp={version},")?;
    write_store(&redis.store, reads, f)
}

fn write_http(http: &Http, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let short = Http { method: http.method.clone(), path: http.path.clone(), ..Http::default() };
    if *http == short && http.method.bytes().all(|c| c.is_ascii_alphabetic()) {
        return write!(f, "{}:{}", http.method, http.path);
    }
    write!(f, "method={},path={}", http.method, quoted(&http.path))?;
    if let Some(host) = &http.host {
        write!(f, ",host={}", quoted(host))?;
    }
    for header in &http.headers {
        write!(f, ",header={}", quoted(header))?;
    }
    if http.body.is_empty() { Ok(()) } else { write!(f, ",body={}", quoted(&http.body)) }
}

/// Why an application was refused.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum AppError {
    /// A name that there is not.
    #[error("{0:?} is no application; write {FORMS}")]
    Unknown(String),
    /// An option that the application does not have.
    #[error("{app} has no option {option:?}; it has {known}")]
    OptionUnknown {
        /// Which application.
        app: &'static str,
        /// What was given.
        option: String,
        /// What there is.
        known: &'static str,
    },
    /// An option given twice.
    #[error("{app}: {option} is given twice")]
    Repeated {
        /// Which application.
        app: &'static str,
        /// Which option.
        option: &'static str,
    },
    /// An option without its value.
    #[error("{app}: write {option}=VALUE")]
    ValueMissing {
        /// Which application.
        app: &'static str,
        /// Which option.
        option: &'static str,
    },
    /// An option that has no default.
    #[error("{app} needs {option}=")]
    Required {
        /// Which application.
        app: &'static str,
        /// Which option.
        option: &'static str,
    },
    /// Quotes that are not closed, or go on behind it.
    #[error("{app}: a value in quotes ends with them; within it write \\\" \\\\ \\r \\n \\t")]
    Quotes {
        /// Which application.
        app: &'static str,
    },
    /// Options that exclude each other.
    #[error("{0} do not go together")]
    Together(&'static str),
    /// A value that the option does not take.
    #[error("{option} must be {rule}, but is {value:?}")]
    Value {
        /// Which option.
        option: &'static str,
        /// What it takes.
        rule: &'static str,
        /// What was given.
        value: String,
    },
    /// A number that is none.
    #[error("{option}: {source}")]
    Quantity {
        /// Of what.
        option: &'static str,
        /// What is wrong with it.
        source: QuantityError,
    },
    /// A distribution that is none.
    #[error("{option}: {source}")]
    Distribution {
        /// Of what.
        option: &'static str,
        /// What is wrong with it.
        source: DistributionError,
    },
    /// A distribution of sizes of which none would do.
    #[error("no size of {distribution} would do for {what}: they have {min} to {max} bytes here")]
    Sizes {
        /// Of what.
        what: &'static str,
        /// The distribution.
        distribution: String,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// An echo that the carrier does not carry.
    #[error("an echo has {min} to {max} bytes here")]
    EchoBytes {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A command that is none.
    #[error("the command {text:?}: {reason}")]
    Template {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A request that is none.
    #[error("http: {0}")]
    Http(&'static str),
    /// An application that needs a connection.
    #[error("{app} is not spoken over UDP")]
    Datagrams {
        /// Which application.
        app: &'static str,
    },
}

const FORMS: &str = "echo:BYTES, synthetic:DIST, stss:time=DIST,request=DIST,reply=DIST, memcached-binary, memcached-ascii, \
    redis or http:METHOD:/PATH";
const STORE_OPTIONS: &str =
    "etc, keys=N, pick=uniform|rr|zipf:S, key=DIST, value=DIST and get=SHARE";
const REDIS_OPTIONS: &str = "scan, command=COMMAND, preload=COMMAND (with command), resp=2|3, etc, keys=N, \
    pick=uniform|rr|zipf:S, key=DIST, value=DIST and get=SHARE (without command)";
