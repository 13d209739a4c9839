//! `redis`: GET and SET of a store, SCAN, or any command, in Redis's protocol.

mod resp;
mod template;

use std::fmt;
use std::sync::Arc;

use rand::RngExt;

use self::template::{Filling, Template};
use super::codec::{Carrier, Codec, Expected, Framer, Loader, Login, Preload, Setting, Write};
use super::entry::{AppOption, Entry, Serves};
use super::error::AppError;
use super::options::{Options, quoted};
use super::payload::MESSAGE_BYTES_MAX;
use super::requests_file::{ReadFile, Weighted, read_text, weighted_lines};
use super::store::{self, Keys, Store, Traffic};
use crate::generator::Generator;

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "redis",
    form: "redis",
    about: "GET and SET of a store, SCAN, or any commands, in Redis' protocol; redis:@FILE has a command a line and its weight in front",
    options: &[OPTIONS, store::OPTIONS],
    parse,
    carrier: Carrier::Stream,
    with_files: Some(with_files),
    serves: Serves::Nothing,
}];

#[derive(Debug)]
struct Redis {
    /// Commands of the load.
    command: Command,
    /// Version of the protocol.
    version: Version,
    /// Keys and values; the share of reads is chosen for GET and SET alone.
    store: Store,
}

/// Commands for Redis.
#[derive(Debug)]
enum Command {
    /// GET and SET, in the store's shares.
    GetSet,
    /// SCAN, ten keys from anywhere: `scan`.
    Scan,
    /// Any others with their weights: `command=`, `commands=`, and `preload=`, which fills the
    /// store before, once for each key.
    Others { commands: Vec<(u32, Template)>, preload: Option<Template> },
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Version that every server speaks: `resp=2`.
    V2 = 2,
    /// Agreed on with HELLO when a connection begins: `resp=3`.
    V3 = 3,
}

fn parse(text: &str, load: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError> {
    if text.starts_with('@') {
        let value = text.to_owned();
        return Err(AppError::Value {
            option: "@FILE",
            rule: "read where the command is given",
            value,
        });
    }
    let mut options = Options::parse("redis", text)?;
    let command = options.take("command")?.map(|text| Template::parse(&text)).transpose()?;
    let listed = options.take("commands")?.map(|text| commands(&text)).transpose()?;
    let others = match (command, listed) {
        (Some(command), None) => Some(vec![(1, command)]),
        (None, listed) => listed,
        (Some(_), Some(_)) => return Err(AppError::Together("command and commands")),
    };
    let command = match (others, options.take_word("scan")) {
        (None, false) => Command::GetSet,
        (None, true) => Command::Scan,
        (Some(commands), false) => {
            let preload =
                options.take("preload")?.map(|text| Template::parse(&text)).transpose()?;
            Command::Others { commands, preload }
        }
        (Some(_), true) => return Err(AppError::Together("scan and command")),
    };
    let version = match options.take("resp")?.as_deref() {
        None | Some("2") => Version::V2,
        Some("3") => Version::V3,
        Some(other) => {
            let value = other.to_owned();
            return Err(AppError::Value { option: "resp", rule: "2 or 3", value });
        }
    };
    let has_share = options.has("get");
    let mut store = Store::take(&mut options, load)?;
    if !matches!(command, Command::GetSet) {
        if has_share {
            return Err(AppError::Together("get and another command"));
        }
        store.get = None;
    }
    options.finish(&[OPTIONS, store::OPTIONS])?;
    Ok(Arc::new(Redis { command, version, store }))
}

/// Reads commands, a line each, with their weights.
fn commands(text: &str) -> Result<Vec<(u32, Template)>, AppError> {
    let read = |line: Weighted<'_>| Ok((line.weight?, Template::parse(line.text)?));
    let commands =
        weighted_lines("commands", text).map(read).collect::<Result<Vec<_>, AppError>>()?;
    if commands.is_empty() {
        let (rule, value) = ("one command a line", text.to_owned());
        return Err(AppError::Value { option: "commands", rule, value });
    }
    Ok(commands)
}

/// Replaces a file of commands in front by what it holds.
fn with_files(text: &str, read: &mut ReadFile<'_>) -> Result<String, AppError> {
    let Some(named) = text.strip_prefix('@') else { return Ok(text.to_owned()) };
    let (path, rest) = named.split_once(',').unwrap_or((named, ""));
    let list = read_text(path, read)?;
    let separator = if rest.is_empty() { "" } else { "," };
    Ok(format!("commands={}{separator}{rest}", quoted(&list)))
}

/// Templates by their weights: each with the sum of its own and those before it.
fn bounds(commands: &[(u32, Template)]) -> Vec<(u32, Template)> {
    let mut bound = 0;
    let add = |(weight, template): &(u32, Template)| {
        bound += weight;
        (bound, template.clone())
    };
    commands.iter().map(add).collect()
}

impl Codec for Redis {
    fn login_advice(&self, _: &str) -> &'static str {
        "Correct the user or the password in redis://USER:PASSWORD@HOST."
    }

    fn credentials_advice(&self) -> &'static str {
        "Log in: redis://USER:PASSWORD@HOST or redis://:PASSWORD@HOST."
    }

    fn requests(&self, _: Setting<'_>, rng: &mut Generator) -> Result<Write, AppError> {
        let mut traffic = Traffic::new(&self.store, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, rng)?;
        let reading = match &self.command {
            Command::GetSet => vec![(1, Template::parse("GET {key}")?)],
            // A cursor is a place in the server's table, so that an index below its size begins
            // somewhere else each time.
            Command::Scan => vec![(1, Template::parse("SCAN {index} COUNT 10")?)],
            Command::Others { commands, .. } => bounds(commands),
        };
        let write = Template::parse(SET)?;
        Ok(Box::new(move |tag, rng, out| {
            let (index, reads) = traffic.draw(rng);
            let template = match reading.as_slice() {
                _ if !reads => &write,
                [(_, only)] => only,
                several => {
                    let all = several.last().map_or(1, |&(bound, _)| bound);
                    let drawn = rng.random_range(0..all);
                    &several[several.partition_point(|&(bound, _)| bound <= drawn)].1
                }
            };
            let value_len = if template.has_value() { traffic.values.draw(rng) } else { 0 };
            template.write(Filling { keys: &traffic.keys, index, value_len }, out);
            Expected { tag, due: 0 }
        }))
    }

    fn replies(&self) -> Box<dyn Framer> {
        Box::new(resp::Replies::new())
    }

    fn preload(&self, _: Carrier) -> Result<Option<Preload>, AppError> {
        let template = match &self.command {
            Command::GetSet | Command::Scan => Template::parse(SET)?,
            Command::Others { preload: Some(preload), .. } => preload.clone(),
            Command::Others { preload: None, .. } => return Ok(None),
        };
        let keys = Keys::new(&self.store, KEY_BYTES_MAX)?;
        let values = self.store.values(MESSAGE_BYTES_MAX)?;
        let write = move |index, out: &mut Vec<u8>| {
            template.write(Filling { keys: &keys, index, value_len: values.of_value(index) }, out);
            Expected { tag: index, due: 0 }
        };
        Ok(Some(Preload { key_count: self.store.keys, write: Arc::new(write) }))
    }

    fn write_greeting(&self, login: Option<Login<'_>>, out: &mut Vec<u8>) -> Option<Expected> {
        let mut arguments: Vec<&str> = match self.version {
            Version::V3 => vec!["HELLO", "3"],
            Version::V2 => Vec::new(),
        };
        if let Some(Login { user, password }) = login {
            arguments.push("AUTH");
            // HELLO wants a user in any case.
            arguments.extend(user.or((self.version == Version::V3).then_some("default")));
            arguments.push(password);
        }
        if arguments.is_empty() {
            return None;
        }
        resp::write_arguments_head(arguments.len(), out);
        for argument in arguments {
            resp::write_bulk(argument.as_bytes(), out);
        }
        Some(Expected { tag: 0, due: 0 })
    }
}

impl fmt::Display for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.command {
            Command::GetSet => {}
            Command::Scan => f.write_str("scan,")?,
            Command::Others { commands, preload } => {
                match commands.as_slice() {
                    [(1, only)] => write!(f, "command={},", quoted(&only.to_string()))?,
                    several => {
                        let line =
                            |(weight, command): &(u32, Template)| format!("{weight} {command}");
                        let lines: Vec<String> = several.iter().map(line).collect();
                        write!(f, "commands={},", quoted(&lines.join("\n")))?;
                    }
                }
                if let Some(preload) = preload {
                    write!(f, "preload={},", quoted(&preload.to_string()))?;
                }
            }
        }
        write!(f, "resp={},{}", self.version as u8, self.store)
    }
}

const SET: &str = "SET {key} {value}";
const OPTIONS: &[AppOption] = &[
    AppOption {
        name: "command",
        form: "command=COMMAND",
        about: "any command instead of GET and SET; {key}, {value} and {index} stand for those of the request",
        example: "redis:command=HGET {key} field",
    },
    AppOption {
        name: "commands",
        form: "commands=LIST",
        about: "several commands, a line each with its weight in front; what redis:@FILE reads from a file",
        example: "redis:commands=\"9 GET {key}\\n1 INCR hits\"",
    },
    AppOption {
        name: "preload",
        form: "preload=COMMAND",
        about: "with command or commands: what --preload runs once for each key",
        example: "redis:command=HGET {key} f,preload=HSET {key} f {value}",
    },
    AppOption {
        name: "scan",
        form: "scan",
        about: "SCAN of ten keys, from anywhere, instead of GET and SET",
        example: "redis:scan",
    },
    AppOption {
        name: "resp",
        form: "resp=2|3",
        about: "version of the protocol; 2 by default",
        example: "redis:resp=3",
    },
];

/// The longest key, as that of a value: what Redis takes is half a gigabyte, but nothing that is
/// measured in microseconds is that long.
const KEY_BYTES_MAX: u64 = 1 << 16;
