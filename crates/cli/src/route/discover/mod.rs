//! Discovery: sources that know which servers there are, each watched by a thread of its own.
//!
//! | a source | then |
//! |---|---|
//! | answers with servers | these are its servers |
//! | answers with nobody, and had none | nothing |
//! | answers with nobody, and had some | its servers stay until it has said so, and nothing else, for `--discover-empty-after` |
//! | names names | at an event each is looked up that was not within 30 s, or that has registered anew |
//! | ends a watch within a second | it is asked again after a pause, as if it were away |
//! | is away, or answers nonsense or more than 1,024 servers | its servers stay, the reason is logged, and it is asked again: after 100 ms, then up to 5 s |
//!
//! The threads tell the roster what they hear and decide nothing.

mod dns;
mod etcd;
pub(super) mod feeds;
mod file;
mod http;
mod kubernetes;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, Thread};
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use tailcut_net::clock::Clock;
use tailcut_proto::node::Time;

use super::servers::{ServerSpec, check_count};
use crate::distribution_file::parse_positive_ns;
use crate::life::leave_real_time;

/// Where servers are found while a router runs.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DiscoverFlags {
    /// Find servers while it runs. `file:PATH` is a list as of --servers that is watched;
    /// `dns:NAME:PORT` the addresses of a name and `srv:NAME` its SRV records, resolved again as
    /// they expire (?resolver=IP:PORT asks another server than those of /etc/resolv.conf);
    /// `etcd:URL[,URL...]/PREFIX` the keys with a prefix (?ca=FILE&cert=FILE&key=FILE);
    /// `kubernetes:[NAMESPACE/]SERVICE[:PORT]` the EndpointSlices of a Service, from inside of a
    /// Pod or with ?api=URL&token=FILE&ca=FILE. May be repeated
    #[arg(long, value_name = "SOURCE")]
    pub(super) discover: Vec<Source>,
    /// How long a source that named servers must have named nobody before its servers are drained
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_positive_ns)]
    pub(super) discover_empty_after: u64,
}

/// A place that knows servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// As it was written.
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    File(PathBuf),
    Dns(dns::Question),
    Etcd(etcd::Etcd),
    Kubernetes(kubernetes::Service),
}

/// Message of a source: its number, and its servers or what is wrong.
pub(super) type News = (u64, Result<Answer>);

/// Answer of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) servers: Vec<ServerSpec>,
    /// Number of its other entries, which are no servers.
    pub(super) refused: usize,
}

/// The thread that watches a source; it ends after this is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    is_over: Arc<AtomicBool>,
    thread: Thread,
}

/// The servers that lines stood for when their names were looked up last.
type LookedUp = BTreeMap<String, Known>;

/// Servers that a line stood for.
#[derive(Clone, Debug)]
struct Known {
    servers: Vec<ServerSpec>,
    /// Time at which its name was looked up; `None` where it is to be looked up again.
    looked_up_at: Option<Time>,
}

/// Context in which a source is watched.
struct Watch<'a> {
    /// Whoever listens wants IPv4 servers, where it is known, and not IPv6 ones.
    is_ipv4: bool,
    is_over: &'a AtomicBool,
    /// Kept from one session to the next.
    looked_up: &'a RefCell<LookedUp>,
    tell: &'a dyn Fn(Result<Answer>),
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        let kind = match scheme {
            "file" if !rest.is_empty() => Kind::File(rest.into()),
            "dns" => Kind::Dns(dns::Question::addresses(rest)?),
            "srv" => Kind::Dns(dns::Question::services(rest)?),
            "etcd" => Kind::Etcd(etcd::Etcd::parse(rest)?),
            "kubernetes" => Kind::Kubernetes(kubernetes::Service::parse(rest)?),
            _ => bail!(
                "write file:PATH, dns:NAME:PORT, srv:NAME, etcd:URL/PREFIX or kubernetes:[NAMESPACE/]SERVICE[:PORT]"
            ),
        };
        Ok(Self { text: text.to_owned(), kind })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Source {
    /// Watches it on a thread, for a router of one family, under a number.
    pub(super) fn watch(&self, is_ipv4: bool, number: u64, news: Sender<News>) -> Result<Watcher> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (source, ends) = (self.clone(), is_over.clone());
        let work = move || {
            leave_real_time();
            // Nobody listens any more only when the process ends.
            follow(&source, is_ipv4, &ends, &|heard| _ = news.send((number, heard)));
        };
        let thread = thread::Builder::new().name("discovery".to_owned()).spawn(work);
        let thread = thread.context("cannot start a thread for discovery")?.thread().clone();
        Ok(Watcher { is_over, thread })
    }

    fn session(&self, watch: &Watch<'_>) -> Result<()> {
        match &self.kind {
            Kind::File(path) => file::watch(path, watch),
            Kind::Dns(question) => question.watch(watch),
            Kind::Etcd(etcd) => etcd.watch(watch),
            Kind::Kubernetes(service) => service.watch(watch),
        }
    }
}

impl Answer {
    /// The servers of lines, and how many lines are none. A name that has been looked up within
    /// [`LOOK_UP_AGAIN_AFTER`] is not looked up again: one of a thousand lines that changes costs
    /// one look-up. A line whose name cannot be looked up now stands for the servers that it stood
    /// for last: names that fail say nothing of servers.
    ///
    /// # Errors
    ///
    /// That there are too many.
    fn of_lines<'a>(
        lines: impl Iterator<Item = &'a str>,
        (now, looked_up): (Time, &RefCell<LookedUp>),
        parse: impl Fn(&str) -> Result<Vec<ServerSpec>>,
    ) -> Result<Self> {
        let mut answer = Self::default();
        let before = looked_up.take();
        let mut known = LookedUp::new();
        for line in lines {
            let old = before.get(line);
            let is_fresh = |old: &&Known| {
                let again_after = LOOK_UP_AGAIN_AFTER.as_nanos() as u64;
                old.looked_up_at.is_some_and(|at| now.saturating_sub(at) < again_after)
            };
            let found = match old.filter(is_fresh) {
                Some(old) => Ok(old.clone()),
                // Of one that was servers before, nothing but a name can fail.
                None => parse(line)
                    .map(|servers| Known { servers, looked_up_at: Some(now) })
                    .or_else(|error| old.cloned().ok_or(error)),
            };
            match found {
                Ok(found) => {
                    answer.servers.extend(found.servers.iter().cloned());
                    known.insert(line.to_owned(), found);
                }
                Err(error) => {
                    tracing::debug!(line, why = %error, "this is no server");
                    answer.refused += 1;
                }
            }
            if let Err(error) = check_count(answer.servers.len()) {
                looked_up.replace(before);
                return Err(error);
            }
        }
        looked_up.replace(known);
        Ok(answer)
    }

    /// One of no more servers than a router has.
    fn checked(self) -> Result<Self> {
        check_count(self.servers.len())?;
        Ok(self)
    }
}

impl From<Vec<ServerSpec>> for Answer {
    fn from(servers: Vec<ServerSpec>) -> Self {
        Self { servers, refused: 0 }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

impl Watch<'_> {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Passes the time, less where it is over before.
    fn pause(&self, time: Duration) {
        let ends_at = Clock.now() + time.as_nanos() as u64;
        while !self.is_over()
            && let Some(left) = ends_at.checked_sub(Clock.now())
        {
            thread::park_timeout(Duration::from_nanos(left));
        }
    }
}

/// Text before a question mark, and the options behind it.
fn split_options(text: &str) -> (&str, Vec<(&str, &str)>) {
    let (place, options) = text.split_once('?').unwrap_or((text, ""));
    let options = options.split('&').filter(|option| !option.is_empty());
    (place, options.map(|option| option.split_once('=').unwrap_or((option, ""))).collect())
}

/// Watches a source until it is over, anew after each failure.
fn follow(source: &Source, is_ipv4: bool, is_over: &AtomicBool, tell: &dyn Fn(Result<Answer>)) {
    let looked_up = RefCell::default();
    let session = |watch: &Watch<'_>| source.session(watch);
    let watch = Watch { is_ipv4, is_over, looked_up: &looked_up, tell };
    follow_by(&watch, &session, &|pause| watch.pause(pause));
}

/// Watches by sessions, which are begun again after pauses that grow while they do no good.
fn follow_by(
    watch: &Watch<'_>,
    session: &dyn Fn(&Watch<'_>) -> Result<()>,
    pass: &dyn Fn(Duration),
) {
    let tell = watch.tell;
    let has_answered = Cell::new(false);
    let heard = |heard: Result<Answer>| {
        let heard = heard.and_then(Answer::checked);
        has_answered.set(has_answered.get() || heard.is_ok());
        tell(heard);
    };
    let watch = Watch { tell: &heard, ..*watch };
    let mut pause = PAUSE_MIN;
    while !watch.is_over() {
        let begun_at = Clock.now();
        let ended = session(&watch);
        let was_long = Clock.now() - begun_at >= SESSION_MIN.as_nanos() as u64;
        if has_answered.take() && was_long {
            pause = PAUSE_MIN;
        }
        match ended {
            Ok(()) if was_long => continue,
            // One that is ended as soon as it has begun would be begun all the time.
            Ok(()) => {}
            Err(error) => tell(Err(error)),
        }
        pass(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Time that a name stands for what it was looked up as, where nothing says how long it does.
const LOOK_UP_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// A session that has lasted for less has done no good, even if it ended well.
const SESSION_MIN: Duration = Duration::from_secs(1);

/// Between a failure and the next attempt.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// After many failures.
const PAUSE_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    use anyhow::ensure;

    #[test]
    fn a_name_that_fails_stands_for_what_it_stood_for() {
        let looked_up = RefCell::default();
        let mut now = 0;
        let mut answer = |lines: &[&str], is_up: bool| {
            let parse = |_: &str| {
                ensure!(is_up, "no name server answers");
                Ok(vec![ServerSpec::of(([127, 0, 0, 1], 1).into())])
            };
            now += LOOK_UP_AGAIN_AFTER.as_nanos() as u64;
            let answer = Answer::of_lines(lines.iter().copied(), (now, &looked_up), parse);
            answer.map(|answer| (answer.servers.len(), answer.refused)).expect("an answer")
        };
        assert_eq!(answer(&["name:1"], true), (1, 0));
        assert_eq!(answer(&["name:1", "other:1"], false), (1, 1));
        assert_eq!(answer(&["name:1"], false), (1, 0));
        // What is not named any more is dropped.
        assert_eq!(answer(&["other:1"], false), (0, 1));
        assert_eq!(answer(&["name:1"], false), (0, 1));
    }

    #[test]
    fn a_name_is_looked_up_once_in_a_while() {
        let (looked_up, asked) = (RefCell::default(), RefCell::new(Vec::new()));
        let answer = |now_s: u64, lines: &[&str]| {
            let parse = |line: &str| {
                asked.borrow_mut().push(line.to_owned());
                Ok(vec![ServerSpec::of(([127, 0, 0, 1], 1).into())])
            };
            let now = now_s * 1_000_000_000;
            let answer = Answer::of_lines(lines.iter().copied(), (now, &looked_up), parse);
            assert_eq!(answer.expect("an answer").servers.len(), lines.len());
            asked.take()
        };
        assert_eq!(answer(0, &["a:1", "b:1"]), ["a:1", "b:1"]);
        // Another event: nothing but what is new.
        assert_eq!(answer(20, &["a:1", "b:1", "c:1"]), ["c:1"]);
        assert_eq!(answer(29, &["b:1", "c:1"]), [""; 0]);
        assert_eq!(answer(30, &["a:1", "b:1", "c:1"]), ["a:1", "b:1"]);
        assert_eq!(answer(50, &["a:1", "b:1", "c:1"]), ["c:1"]);
        looked_up.borrow_mut().get_mut("b:1").expect("it is known").looked_up_at = None;
        assert_eq!(answer(51, &["a:1", "b:1", "c:1"]), ["b:1"], "it has registered anew");
    }

    type Session = fn(&Watch<'_>) -> Result<()>;

    /// The pauses, ms, before sessions of which each ends so.
    fn pauses(sessions: &[Session]) -> Vec<u128> {
        let (is_over, looked_up) = (AtomicBool::new(false), RefCell::default());
        let (left, passed) = (Cell::new(sessions), RefCell::new(Vec::new()));
        let watch =
            Watch { is_ipv4: true, is_over: &is_over, looked_up: &looked_up, tell: &|_| () };
        let session = |watch: &Watch<'_>| {
            let (next, rest) = left.get().split_first().expect("there are more");
            left.set(rest);
            is_over.store(rest.is_empty(), Ordering::Relaxed);
            next(watch)
        };
        follow_by(&watch, &session, &|pause| passed.borrow_mut().push(pause.as_millis()));
        passed.take()
    }

    /// Answers, and is ended at once.
    fn ends(watch: &Watch<'_>) -> Result<()> {
        (watch.tell)(Ok(Answer::default()));
        Ok(())
    }

    fn fails(_watch: &Watch<'_>) -> Result<()> {
        bail!("it is away")
    }

    /// Answers, and lasts for as long as one that does good.
    fn lasts(watch: &Watch<'_>) -> Result<()> {
        (watch.tell)(Ok(Answer::default()));
        let ends_at = Clock.now() + SESSION_MIN.as_nanos() as u64;
        while Clock.now() < ends_at {
            thread::park_timeout(SESSION_MIN);
        }
        Ok(())
    }

    #[test]
    fn a_watch_that_ends_at_once_is_begun_again_after_ever_longer_pauses() {
        assert_eq!(pauses(&[ends as Session; 8]), [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(pauses(&[fails, ends, fails]), [100, 200, 400]);
    }

    #[test]
    fn a_watch_that_has_lasted_is_begun_again_at_once() {
        assert_eq!(pauses(&[ends, ends, lasts, ends]), [100, 200, 100]);
    }

    #[test]
    fn sources_are_written_so() {
        for good in [
            "file:/etc/servers",
            "dns:servers.example:8000",
            "srv:_t._udp.example",
            "etcd:http://a:1,http://b:1/s/",
            "kubernetes:n/s:tailcut",
        ] {
            assert_eq!(
                good.parse::<Source>().map(|source| source.to_string()).ok(),
                Some(good.to_owned())
            );
        }
        for (bad, part) in [
            ("servers", "write file:PATH"),
            ("file:", "write file:PATH"),
            ("dns:name", "dns:NAME:PORT"),
            ("dns:name:port", "dns:NAME:PORT"),
            ("dns:name:1?resolver=x", "IP:PORT"),
            ("srv:name?server=1", "there is resolver"),
            ("etcd:a:1/s", "etcd:http://HOST:PORT/PREFIX"),
            ("kubernetes:a/b/c", "kubernetes:[NAMESPACE/]"),
            ("kubernetes:s?key=f", "there are api=URL"),
        ] {
            let error = format!("{:#}", bad.parse::<Source>().expect_err(bad));
            assert!(error.contains(part), "{bad}: {error}");
        }
    }
}
