//! `tailcut route --config FILE`: a TOML file whose keys are the command's flags, without their
//! dashes.
//!
//! | on the command line | in the file | then |
//! |---|---|---|
//! | no | no | the default |
//! | no | yes | the file's |
//! | yes | either | the command line's, of a flag that may be repeated too |
//!
//! A key becomes the flag of its name behind the command line, so that no flag is without a key,
//! and what is wrong with a value is what is wrong with the flag's.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches as _};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Args;

/// A command line, and the file that it may name: what can be read again.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    /// Makes the whole command.
    root: fn() -> Command,
    /// Words that were typed, the program's name first.
    words: Vec<OsString>,
}

/// A router's flags and keys as they are at one moment.
#[derive(Debug)]
pub(super) struct Configured {
    pub(super) args: Args,
    pub(super) settings: Settings,
}

/// The values of all flags in text form, defaults among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<String, Vec<String>>);

/// A key of a file as flags.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    name: String,
    line: usize,
    /// `--name=value` for each of its values.
    flags: Vec<String>,
}

impl CommandLine {
    pub(crate) fn new(root: fn() -> Command, words: Vec<OsString>) -> Self {
        Self { root, words }
    }

    /// The words, with the keys of the file that they name behind them, where they name one.
    ///
    /// # Errors
    ///
    /// What is wrong with the file, and where.
    pub(crate) fn complete(&self) -> Result<Vec<OsString>> {
        let mut words = self.words.clone();
        let Some(path) = self.file() else { return Ok(words) };
        let root = (self.root)();
        let keys = read(&path).and_then(|text| {
            keys(&text, &root).with_context(|| format!("configuration {}", path.display()))
        })?;
        for key in keys.iter().filter(|key| !self.has(&key.name)) {
            let at = || format!("configuration {}, line {}", path.display(), key.line);
            key.check(&root).with_context(at)?;
            words.extend(key.flags.iter().map(OsString::from));
        }
        Ok(words)
    }

    /// Reads the file again.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn read(&self) -> Result<Configured> {
        let words = self.complete()?;
        let matches = (self.root)().try_get_matches_from(words).map_err(plain)?;
        let matches = matches.subcommand_matches(ROUTE).context("this is no router")?;
        let args = Args::from_arg_matches(matches).map_err(plain)?;
        Ok(Configured { args, settings: Settings::of(&(self.root)(), matches) })
    }

    /// A file with all keys.
    pub(super) fn example(&self) -> String {
        example(&(self.root)())
    }

    /// The file that a router's command line names.
    fn file(&self) -> Option<PathBuf> {
        let at = self.words.iter().position(|word| word == ROUTE)?;
        let mut words = self.words[at..].iter();
        while let Some(word) = words.next() {
            if word == "--config" {
                return words.next().map(PathBuf::from);
            }
            if let Some(path) = word.to_str().and_then(|word| word.strip_prefix("--config=")) {
                return Some(path.into());
            }
        }
        None
    }

    fn has(&self, flag: &str) -> bool {
        self.words.iter().filter_map(|word| word.to_str()?.strip_prefix("--")).any(|word| {
            word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
    }
}

impl Settings {
    fn of(root: &Command, matches: &ArgMatches) -> Self {
        let of = |arg: &Arg| {
            let values = matches.get_raw(arg.get_id().as_str()).into_iter().flatten();
            let values = values.map(|value| value.to_string_lossy().into_owned());
            Some((arg.get_long()?.to_owned(), values.collect()))
        };
        Self(flags(root).iter().filter_map(of).collect())
    }

    /// The flags whose values differ.
    pub(super) fn changed(&self, other: &Self) -> Vec<&str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(|&name| self.0.get(name) != other.0.get(name)).collect()
    }
}

impl Key {
    /// Refuses values that the flag does not take.
    fn check(&self, root: &Command) -> Result<()> {
        let before = ["tailcut", ROUTE, "--config", "FILE"].map(str::to_owned);
        let parsed = root.clone().try_get_matches_from(before.iter().chain(&self.flags));
        match parsed {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ValueValidation | ErrorKind::InvalidValue | ErrorKind::NoEquals
                ) =>
            {
                Err(plain(error))
            }
            // What does not go together is told of the whole.
            _ => Ok(()),
        }
    }
}

/// A file with every key, commented out, each with its default and what it means.
fn example(root: &Command) -> String {
    let mut text = EXAMPLE_HEAD.to_owned();
    for arg in flags(root) {
        let Some(name) = arg.get_long() else { continue };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let values: Vec<_> = arg.get_possible_values();
        let values: Vec<_> = values.iter().map(|value| value.get_name()).collect();
        let mut about = help;
        if arg.get_action().takes_values() && !values.is_empty() {
            // A string takes whatever is written to it.
            let _ = write!(about, ". One of: {}", values.join(", "));
        }
        if !can_reload(name) {
            about.push_str(". Needs a restart");
        }
        text.push('\n');
        for line in wrapped(&about) {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(text, "#{name} = {}", example_value(&arg));
    }
    text
}

/// A router may take another value of this flag while it runs.
pub(super) fn can_reload(name: &str) -> bool {
    RELOADED.contains(&name)
}

/// The default as TOML, or the name that the help has for a value.
fn example_value(arg: &Arg) -> String {
    let default = arg.get_default_values().first().map(|value| value.to_string_lossy());
    let name = || arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    match arg.get_action() {
        ArgAction::SetTrue => "false".to_owned(),
        ArgAction::Append => format!("[{:?}]", name().unwrap_or_default()),
        _ => match default {
            Some(number) if number.parse::<u64>().is_ok() => number.into_owned(),
            Some(text) => format!("{text:?}"),
            None => format!("{:?}", name().unwrap_or_default()),
        },
    }
}

/// Words in lines of at most 98 letters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.len() + word.len() < 98) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The flags that a file has keys for, sorted.
fn flags(root: &Command) -> Vec<Arg> {
    let mut root = root.clone();
    root.build();
    let route = root.find_subcommand(ROUTE).expect("the command that this is of");
    let is_key = |arg: &&Arg| {
        let is_told =
            matches!(arg.get_action(), ArgAction::Set | ArgAction::Append | ArgAction::SetTrue);
        is_told && arg.get_long().is_some_and(|name| !NOT_IN_A_FILE.contains(&name))
    };
    let mut flags: Vec<Arg> = route.get_arguments().filter(is_key).cloned().collect();
    flags.sort_by(|one, other| one.get_long().cmp(&other.get_long()));
    flags
}

/// The keys of a file, in their order.
fn keys(text: &str, root: &Command) -> Result<Vec<Key>> {
    let table = DeTable::parse(text).map_err(|error| anyhow!("{error}"))?;
    let flags = flags(root);
    let line = |at: usize| text[..at].matches('\n').count() + 1;
    let read = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let (line, name): (usize, &std::borrow::Cow<'_, str>) =
            (line(name.span().start), name.get_ref());
        let arg = flags.iter().find(|arg| arg.get_long() == Some(name));
        let all = || {
            let names: Vec<_> = flags.iter().filter_map(Arg::get_long).collect();
            anyhow!("line {line}: there is no key {name:?}; there are {}", names.join(", "))
        };
        let flags = key_flags(arg.ok_or_else(all)?, value.get_ref())
            .with_context(|| format!("line {line}, {name}"))?;
        Ok(Key { name: name.clone().into_owned(), line, flags })
    };
    let mut keys = table.get_ref().iter().map(read).collect::<Result<Vec<_>>>()?;
    keys.sort_by_key(|key| key.line);
    Ok(keys)
}

fn key_flags(arg: &Arg, value: &DeValue<'_>) -> Result<Vec<String>> {
    let name = arg.get_long().unwrap_or_default();
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        let is_set = value.as_bool().context("write true or false")?;
        return Ok(if is_set { vec![format!("--{name}")] } else { Vec::new() });
    }
    let flag = |value: &DeValue<'_>| scalar(value).map(|text| format!("--{name}={text}"));
    match value {
        DeValue::Array(values) => {
            ensure!(matches!(arg.get_action(), ArgAction::Append), "write one value, not a list");
            values.iter().map(|value| flag(value.get_ref())).collect()
        }
        value => flag(value).map(|flag| vec![flag]),
    }
}

fn scalar(value: &DeValue<'_>) -> Result<String> {
    match value {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        other => bail!("write a text or a decimal number, not a {}", other.type_str()),
    }
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_LEN_MAX + 1).read_to_string(&mut text))
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    ensure!(
        text.len() as u64 <= FILE_LEN_MAX,
        "{} has more than {FILE_LEN_MAX} bytes: this is no configuration",
        path.display()
    );
    Ok(text)
}

/// The first line of what clap says, which goes on with the usage.
fn plain(error: clap::Error) -> anyhow::Error {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    anyhow!("{}", first.trim_start_matches("error: ").trim())
}

/// The command that has a file.
const ROUTE: &str = "route";

/// Flags that are said about a file, not in it.
const NOT_IN_A_FILE: [&str; 5] = ["config", "check", "config-example", "emit", "help"];

/// Flags that a running router takes over when it reloads.
const RELOADED: [&str; 13] = [
    "server",
    "server-v1",
    "servers",
    "zone",
    "discover",
    "discover-empty-after",
    "upstream",
    "queue",
    "hold",
    "probe-interval",
    "silent-after",
    "slow-factor",
    "lease",
];

/// As for a list of servers.
const FILE_LEN_MAX: u64 = 1 << 20;

const EXAMPLE_HEAD: &str = "\
# A router's configuration, for `tailcut route --config FILE`. Each key is the flag of that name; a flag on the
# command line goes before its key. `tailcut route --config FILE --check` tells what is wrong.
# SIGHUP and `tailcut control PATH reload` read it again: all of it holds from then on, or nothing of it.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Command {
        use clap::Args as _;
        let log = Arg::new("log").long("log").global(true);
        Command::new("tailcut").arg(log).subcommand(Args::augment_args(Command::new(ROUTE)))
    }

    fn flags_of(text: &str) -> Result<Vec<String>, String> {
        let keys = keys(text, &root()).map_err(|error| format!("{error:#}"))?;
        keys.iter().try_for_each(|key| key.check(&root())).map_err(|error| format!("{error:#}"))?;
        Ok(keys.into_iter().flat_map(|key| key.flags).collect())
    }

    #[test]
    fn keys_are_flags() {
        let text = "listen = '127.0.0.1:0'\nqueue = 1_000 # held\nhold = \"2s\"\nbusy-poll = true\n\
                    xdp-or-sockets = false\nserver = ['a:1', 'b:2']\nupstream = 'c:3'\nlog = 'json'\n";
        let expected = [
            "--listen=127.0.0.1:0",
            "--queue=1000",
            "--hold=2s",
            "--busy-poll",
            "--server=a:1",
            "--server=b:2",
            "--upstream=c:3",
            "--log=json",
        ];
        assert_eq!(flags_of(text), Ok(expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn mistakes_say_where_and_what() {
        let check = |text: &str, part: &str| {
            let error = flags_of(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        };
        check("\nqeue = 1\n", "line 2: there is no key \"qeue\"; there are admin, busy-poll");
        check("config = 'x'", "there is no key \"config\"");
        check("busy-poll = 1", "line 1, busy-poll: write true or false");
        check("queue = [1]", "write one value, not a list");
        check("queue = 0x10", "write a text or a decimal number");
        check("queue = true", "write a text or a decimal number, not a boolean");
        check("queue = 'many'", "invalid value 'many' for '--queue <N>'");
        check("hold = '5'", "has no unit");
        check("policy = 'fastest'", "no policy is called");
        check("[route]\nqueue = 1", "there is no key \"route\"");
        check("queue = ", "TOML parse error at line 1");
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let path = std::env::temp_dir().join(format!("tailcut-config-{}", std::process::id()));
        std::fs::write(&path, "listen = '[::1]:9'\nqueue = 7\nserver = ['a:1']\n").expect("a file");
        let config = format!("--config={}", path.display());
        let words = ["tailcut", "route", &config, "--queue", "8", "--server=b:2"];
        let line = CommandLine::new(root, words.map(OsString::from).to_vec());
        let completed = line.complete().expect("words");
        assert_eq!(completed[words.len()..], ["--listen=[::1]:9"].map(OsString::from));
        let first = line.read().expect("a configuration");
        std::fs::write(&path, "listen = '[::1]:9'\nqueue = 9\nhold = '3s'\n").expect("a file");
        let second = line.read().expect("a configuration");
        assert_eq!(first.settings.changed(&second.settings), ["hold"]);
        std::fs::remove_file(&path).expect("the file");
        let error = format!("{:#}", line.read().expect_err("it is gone"));
        assert!(error.contains("cannot read the configuration"), "{error}");
    }

    #[test]
    fn the_example_has_every_key_and_its_defaults_are_taken() {
        let text = example(&root());
        let lines = text.lines().filter_map(|line| line.strip_prefix('#'));
        let keys_of = lines.filter(|line| !line.starts_with(' ')).collect::<Vec<_>>();
        assert_eq!(keys_of.len(), flags(&root()).len(), "{text}");
        let keys = keys(&keys_of.join("\n"), &root()).expect("keys");
        assert_eq!(keys.len(), keys_of.len());
        let has_default = |key: &&Key| {
            let arg = flags(&root()).into_iter().find(|arg| arg.get_long() == Some(&key.name));
            arg.is_some_and(|arg| !arg.get_default_values().is_empty())
        };
        keys.iter().filter(has_default).for_each(|key| key.check(&root()).expect("a default"));
        let unwrapped = text.replace("\n# ", " ");
        assert_eq!(unwrapped.matches("Needs a restart").count(), keys.len() - RELOADED.len());
        assert!(text.contains("#queue = 4096") && text.contains("#hold = \"1s\""), "{text}");
    }
}
