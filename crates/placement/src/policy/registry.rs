//! Properties of each policy beside its decisions: its text form, what it does in words, and the
//! queue that it makes of its workers.
//!
//! Invariant: the text of a [`PolicySpec`] reads back to the same one.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::{Policy, REGISTRY};

/// A policy in the registry.
#[derive(Debug)]
pub struct Entry {
    /// Its name, which no other has; what stands before the colon.
    pub name: &'static str,
    /// The forms in which it is written, at least one.
    pub forms: &'static [Form],
    /// Scope in which it may be asked for.
    pub scope: Scope,
    /// Makes it in its initial state.
    pub build: fn(Argument) -> Box<dyn Policy>,
    /// The queue that it makes of its workers.
    pub model: fn(Argument) -> QueueModel,
}

/// One form in which a policy is written.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Parameter after the colon: nothing, `auto`, or a letter for a number from 1 to
    /// [`COUNT_MAX`].
    pub parameter: &'static str,
    /// Description for people; `{}` stands for the number.
    pub about: &'static str,
}

/// Scope in which a policy may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In routers, before workers and in every simulation.
    Everywhere,
    /// In routers, and in the simulations of networks: it reads what servers report, or clones.
    Routers,
    /// In `sim clone` alone: there the client decides, and not a router.
    Simulated,
}

/// Parameter after the colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Nothing.
    None,
    /// A number.
    Count(NonZeroU32),
    /// `auto`.
    Auto,
}

impl Argument {
    /// The number.
    ///
    /// # Panics
    /// When it is none; a text form with a letter has one.
    pub fn count(self) -> NonZeroU32 {
        match self {
            Self::Count(count) => count,
            Self::None | Self::Auto => panic!("a policy of this form has a number, not {self:?}"),
        }
    }
}

/// The queue that a policy makes of its workers: by it theory and simulation know what load the
/// workers can take, and which model answers exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueModel {
    /// A queue at each worker, a request goes to any: M/G/1.
    Independent,
    /// A queue at each worker, requests go to them in turn: `E_k/G/1`.
    Cyclic,
    /// A queue at each worker, a request goes to the shortest of so many random ones.
    Sampled(NonZeroU32),
    /// One queue before workers that each hold at most so many; `None` where the bound is measured.
    Bounded(Option<NonZeroU32>),
    /// None that has an answer here.
    Other,
}

/// A policy as it is configured, in text `random`, `jsq:D`, `jbsq:auto`, `jbsq:N+clone` and so on.
/// A name with a plus sign has its argument before that.
#[derive(Clone, Copy)]
pub struct PolicySpec {
    /// The policy.
    entry: &'static Entry,
    /// Its argument, of a form that the entry has.
    argument: Argument,
}

impl PolicySpec {
    /// A policy with its argument, which is of a form that the entry has. The entry need not be in
    /// the registry: a program may bring its own.
    pub const fn new(entry: &'static Entry, argument: Argument) -> Self {
        Self { entry, argument }
    }

    /// Scope in which it may be asked for.
    pub fn scope(self) -> Scope {
        self.entry.scope
    }

    /// The policy's name.
    pub fn name(self) -> &'static str {
        self.entry.name
    }

    /// The policy in its initial state.
    pub fn build(self) -> Box<dyn Policy> {
        (self.entry.build)(self.argument)
    }

    /// The queue that it makes of its workers.
    pub fn model(self) -> QueueModel {
        (self.entry.model)(self.argument)
    }

    /// This policy with a bound, where its own is measured.
    pub fn with_bound(self, bound: NonZeroU32) -> Self {
        match self.argument {
            Argument::Auto => Self { argument: Argument::Count(bound), ..self },
            Argument::None | Argument::Count(_) => self,
        }
    }

    /// Description for people.
    pub fn describe(self) -> String {
        let is_form = |form: &&Form| match self.argument {
            Argument::None => form.parameter.is_empty(),
            Argument::Count(_) => form.takes_count(),
            Argument::Auto => form.parameter == AUTO,
        };
        let form = self.entry.forms.iter().find(is_form).expect("the argument is of a form");
        match self.argument {
            Argument::Count(count) => form.about.replace("{}", &count.to_string()),
            Argument::None | Argument::Auto => form.about.to_owned(),
        }
    }
}

impl PartialEq for PolicySpec {
    fn eq(&self, other: &Self) -> bool {
        (self.entry.name, self.argument) == (other.entry.name, other.argument)
    }
}

impl Eq for PolicySpec {}

impl fmt::Debug for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicySpec({self})")
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.argument {
            Argument::None => f.write_str(self.entry.name),
            Argument::Count(count) => f.write_str(&written(self.entry.name, &count.to_string())),
            Argument::Auto => f.write_str(&written(self.entry.name, AUTO)),
        }
    }
}

impl FromStr for PolicySpec {
    type Err = PolicyParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, argument) =
            text.split_once(':').map_or((text, None), |(name, argument)| (name, Some(argument)));
        let (argument, suffix) = match argument.map(|argument| argument.split_once('+')) {
            Some(Some((argument, suffix))) => (Some(argument), Some(suffix)),
            _ => (argument, None),
        };
        let name = suffix.map_or_else(|| name.to_owned(), |suffix| format!("{name}+{suffix}"));
        let entry = find(&name).filter(|entry| entry.scope != Scope::Simulated);
        let entry = entry.ok_or_else(|| PolicyParseError::Unknown { name: name.clone() })?;
        let has = |parameter| entry.forms.iter().any(|form| form.parameter == parameter);
        let argument = match argument {
            None if has("") => Argument::None,
            None => return Err(PolicyParseError::NoArgument { name }),
            Some(AUTO) if has(AUTO) => Argument::Auto,
            Some(number) if entry.forms.iter().any(Form::takes_count) => {
                Argument::Count(parse_count(text, number)?)
            }
            Some(_) => return Err(PolicyParseError::Argument { text: text.to_owned() }),
        };
        Ok(Self { entry, argument })
    }
}

/// Reason why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyParseError {
    /// The name is none that is known.
    #[error("no policy is called {name:?}; there are {}", grammar("and"))]
    Unknown {
        /// Name before the colon.
        name: String,
    },
    /// The policy takes no argument.
    #[error("{text:?}: this policy takes no argument")]
    Argument {
        /// The whole text.
        text: String,
    },
    /// The policy needs an argument.
    #[error("{name:?} needs a number: {}, for example", written(name, "2"))]
    NoArgument {
        /// The policy.
        name: String,
    },
    /// The argument is not a number from 1 to [`COUNT_MAX`].
    #[error("{text:?}: {argument:?} is not a whole number from 1 to {COUNT_MAX}")]
    Number {
        /// The whole text.
        text: String,
        /// Parameter after the colon.
        argument: String,
    },
}

impl Form {
    fn takes_count(&self) -> bool {
        !self.parameter.is_empty() && self.parameter != AUTO
    }
}

/// The policy of this name, in whatever scope.
pub fn find(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().copied().flatten().find(|entry| entry.name == name)
}

/// The text forms that a [`PolicySpec`] is read from, such as "random, rr, jsq:D, jbsq:N or
/// jbsq:auto", with the word before the last.
pub fn grammar(conjunction: &str) -> String {
    let forms: Vec<String> = forms().map(|(form, _)| form).collect();
    let (last, others) = forms.split_last().expect("there are policies");
    format!("{} {conjunction} {last}", others.join(", "))
}

/// A line for each text form and what it does, for a help text.
pub fn help() -> String {
    let forms: Vec<(String, String)> = forms().collect();
    let width = forms.iter().map(|(form, _)| form.len()).max().unwrap_or(0);
    forms.iter().map(|(form, about)| format!("  {form:width$}  {about}\n")).collect()
}

/// The text forms of every scope but simulations, and what they do.
fn forms() -> impl Iterator<Item = (String, String)> {
    let entries = REGISTRY.iter().copied().flatten();
    entries.filter(|entry| entry.scope != Scope::Simulated).flat_map(|entry| {
        entry.forms.iter().map(|form| {
            let text = match form.parameter {
                "" => entry.name.to_owned(),
                parameter => written(entry.name, parameter),
            };
            (text, form.about.replace("{}", form.parameter))
        })
    })
}

/// A policy's name with its argument, which stands before a plus sign.
fn written(name: &str, argument: &str) -> String {
    match name.split_once('+') {
        Some((name, suffix)) => format!("{name}:{argument}+{suffix}"),
        None => format!("{name}:{argument}"),
    }
}

fn parse_count(text: &str, argument: &str) -> Result<NonZeroU32, PolicyParseError> {
    let number = argument.parse::<NonZeroU32>().ok().filter(|number| number.get() <= COUNT_MAX);
    number.ok_or_else(|| PolicyParseError::Number {
        text: text.to_owned(),
        argument: argument.to_owned(),
    })
}

/// Largest D of `jsq:D` and N of `jbsq:N`: more outstanding at one worker than any queue here may
/// hold.
pub const COUNT_MAX: u32 = 1 << 20;

/// The argument of a policy that measures what it needs.
const AUTO: &str = "auto";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_read_and_print_alike() {
        let plain = ["random", "rr", "jsq:2", "jsq:16", "jbsq:1", "jbsq:3", "jbsq:auto"];
        let cloning = ["jbsq:3+clone", "netclone", "netclone+racksched", "laedge", "laedge:15"];
        for text in plain.into_iter().chain(cloning).chain(["racksched"]) {
            assert_eq!(text.parse::<PolicySpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_specs_say_what_is_wrong() {
        let known = grammar("and");
        let plain = "random, rr, jsq:D, jbsq:N, jbsq:auto, jbsq:N+clone, racksched";
        for form in [plain, "netclone, netclone+racksched, laedge, laedge:N", "auto-clone"] {
            assert!(known.contains(form), "{known}");
        }
        check_refused("", &format!("no policy is called \"\"; there are {known}"));
        check_refused("fifo:2", &format!("no policy is called \"fifo\"; there are {known}"));
        check_refused("cclone", &format!("no policy is called \"cclone\"; there are {known}"));
        check_refused(
            "jsq:2+clone",
            &format!("no policy is called \"jsq+clone\"; there are {known}"),
        );
        check_refused("jbsq+clone", "\"jbsq+clone\" needs a number: jbsq:2+clone, for example");
        check_refused("rr:2", "\"rr:2\": this policy takes no argument");
        check_refused("jbsq", "\"jbsq\" needs a number: jbsq:2, for example");
        check_refused("jsq:0", "\"jsq:0\": \"0\" is not a whole number from 1 to 1048576");
        check_refused("jsq:auto", "\"jsq:auto\": \"auto\" is not a whole number from 1 to 1048576");
        check_refused("jbsq:-1", "\"jbsq:-1\": \"-1\" is not a whole number from 1 to 1048576");
        check_refused(
            "jbsq:9999999999",
            "\"jbsq:9999999999\": \"9999999999\" is not a whole number from 1 to 1048576",
        );
    }

    fn check_refused(text: &str, message: &str) {
        assert_eq!(text.parse::<PolicySpec>().unwrap_err().to_string(), message);
    }

    #[test]
    fn specs_are_the_same_if_name_and_argument_are() {
        let specs = ["jbsq:1", "jbsq:2", "jbsq:auto", "jsq:2", "rr"];
        let read = |text: &str| text.parse::<PolicySpec>().unwrap();
        for (at, text) in specs.into_iter().enumerate() {
            let is_same = specs.map(|other| read(text) == read(other));
            assert_eq!(is_same, std::array::from_fn(|other| other == at), "{text}");
        }
        assert_eq!(
            (read("jbsq:1").name(), read("netclone+racksched").name()),
            ("jbsq", "netclone+racksched")
        );
    }

    #[test]
    fn a_bound_is_given_to_a_policy_that_measures_its_own() {
        let bound = NonZeroU32::new(7).unwrap();
        for (text, bounded) in [("jbsq:auto", "jbsq:7"), ("jbsq:3", "jbsq:3"), ("rr", "rr")] {
            let spec = text.parse::<PolicySpec>().unwrap();
            assert_eq!(spec.with_bound(bound).to_string(), bounded);
        }
    }

    #[test]
    fn the_help_has_a_line_for_each_form_with_what_it_does() {
        let help = help();
        let lines: Vec<(&str, &str)> =
            help.lines().map(|line| line.trim_start().split_once("  ").unwrap()).collect();
        let written: Vec<&str> = lines.iter().map(|&(form, _)| form).collect();
        let (last, others) = written.split_last().unwrap();
        assert_eq!(format!("{} or {last}", others.join(", ")), grammar("or"));
        assert!(lines.iter().all(|(_, about)| !about.trim().is_empty()));
    }
}
