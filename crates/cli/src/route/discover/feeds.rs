//! The sources that are watched, and which of their servers hold.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::Result;
use tailcut_net::clock::Clock;
use tailcut_proto::node::Time;

use super::{Answer, News, Source, Watcher};
use crate::route::facts::SourceFacts;
use crate::route::servers::ServerSpec;

/// All sources of a router.
pub(in crate::route) struct Feeds {
    all: Vec<Feed>,
    /// Sources that were ever watched.
    count: u64,
    /// Address that the router listens at.
    listen: SocketAddr,
    /// Channel on which the threads of sources tell what they hear.
    news: Sender<News>,
}

/// A source that is watched.
pub(in crate::route) struct Feed {
    number: u64,
    source: Source,
    /// `None` of one that is not named any more, whose servers stay for a while.
    watcher: Option<Watcher>,
    /// Its servers, which hold.
    servers: Vec<ServerSpec>,
    /// It has named a server. Whose first answer is empty may not know yet.
    has_named: bool,
    /// Since when it says that it has none, though it had some; or is not named any more.
    empty_since: Option<Time>,
    /// Number of its entries that are no servers.
    refused: usize,
    answers: u64,
    failures: u64,
    /// Error while it is away; `None` otherwise.
    problem: Option<String>,
}

impl Feeds {
    pub(in crate::route) fn new(listen: SocketAddr, news: Sender<News>) -> Self {
        Self { all: Vec::new(), count: 0, listen, news }
    }

    /// The servers of all that hold, in the order of the sources.
    pub(in crate::route) fn servers(&self) -> impl Iterator<Item = &ServerSpec> {
        self.all.iter().flat_map(|feed| &feed.servers)
    }

    pub(in crate::route) fn facts(&self) -> Vec<SourceFacts> {
        self.all.iter().map(Feed::facts).collect()
    }

    /// Watches these sources and no others.
    pub(in crate::route) fn watch(&mut self, sources: &[Source]) -> Result<()> {
        let begun = self.prepare(sources)?;
        self.adopt(sources, begun);
        Ok(())
    }

    /// Begins to watch those of the sources that are not watched. What they tell is heard when they
    /// are adopted.
    pub(in crate::route) fn prepare(&mut self, sources: &[Source]) -> Result<Vec<Feed>> {
        let mut begun: Vec<Feed> = Vec::new();
        for source in sources {
            let is_watched = |feed: &Feed| feed.watcher.is_some() && feed.source == *source;
            if self.all.iter().chain(&begun).any(is_watched) {
                continue;
            }
            self.count += 1;
            let watcher = source.watch(self.listen.is_ipv4(), self.count, self.news.clone())?;
            begun.push(Feed::new(self.count, source.clone(), watcher));
        }
        Ok(begun)
    }

    /// Watches these sources, of which some have been begun, and no others.
    pub(in crate::route) fn adopt(&mut self, sources: &[Source], begun: Vec<Feed>) {
        for feed in &mut self.all {
            if !sources.contains(&feed.source) && feed.watcher.take().is_some() {
                feed.empty_since = Some(Clock.now());
            }
        }
        self.all.extend(begun);
        // What is to go is looked at now.
        self.wake();
    }

    /// Has whoever listens look at everything again.
    pub(in crate::route) fn wake(&self) {
        let nothing: News = (0, Ok(Answer::default()));
        // The other end lives as long as the process.
        let _ = self.news.send(nothing);
    }

    /// Takes what a source has said; whether other servers hold now.
    pub(in crate::route) fn take(&mut self, number: u64, heard: Result<Answer>, now: Time) -> bool {
        let is_it = |feed: &&mut Feed| feed.number == number && feed.watcher.is_some();
        let Some(feed) = self.all.iter_mut().find(is_it) else { return false };
        match heard {
            Ok(answer) => feed.answer(answer, now),
            Err(error) => {
                feed.fail(&error);
                false
            }
        }
    }

    /// Believes what has been said for long enough; whether other servers hold now.
    pub(in crate::route) fn believe(&mut self, now: Time, limit_ns: u64) -> bool {
        let all_have_named =
            self.all.iter().filter(|feed| feed.watcher.is_some()).all(|feed| feed.has_named);
        let mut has_changed = false;
        self.all.retain_mut(|feed| {
            let is_over = feed.empty_since.is_some_and(|since| now >= since.saturating_add(limit_ns));
            if feed.watcher.is_none() {
                let goes = is_over || all_have_named;
                has_changed |= goes;
                return !goes;
            }
            if is_over {
                tracing::warn!(source = %feed.source, "it still names no server: those that it named go");
                (feed.servers, feed.empty_since) = (Vec::new(), None);
                has_changed = true;
            }
            true
        });
        has_changed
    }

    pub(in crate::route) fn due_in(&self, now: Time, limit_ns: u64) -> Option<Duration> {
        let since = self.all.iter().filter_map(|feed| feed.empty_since).min()?;
        Some(Duration::from_nanos(since.saturating_add(limit_ns).saturating_sub(now)))
    }
}

impl Feed {
    fn new(number: u64, source: Source, watcher: Watcher) -> Self {
        Self {
            number,
            source,
            watcher: Some(watcher),
            servers: Vec::new(),
            has_named: false,
            empty_since: None,
            refused: 0,
            answers: 0,
            failures: 0,
            problem: None,
        }
    }

    /// It has answered; whether other servers hold now.
    fn answer(&mut self, Answer { servers, refused }: Answer, now: Time) -> bool {
        self.answers += 1;
        if refused > self.refused {
            tracing::warn!(source = %self.source, refused, "it names what is no server");
        }
        self.refused = refused;
        self.has_named |= !servers.is_empty();
        if self.problem.take().is_some() {
            tracing::info!(source = %self.source, "it answers again");
        }
        if servers.is_empty() && !self.servers.is_empty() {
            if self.empty_since.is_none() {
                tracing::warn!(source = %self.source, "it names no server: those that it named stay for now");
                self.empty_since = Some(now);
            }
            return false;
        }
        self.empty_since = None;
        let has_changed = servers != self.servers;
        self.servers = servers;
        has_changed
    }

    /// It is away: what it said before holds.
    fn fail(&mut self, error: &anyhow::Error) {
        self.failures += 1;
        self.empty_since = None;
        let why = format!("{error:#}");
        if self.problem.as_ref() != Some(&why) {
            tracing::warn!(source = %self.source, why, "no answer: the servers that it named stay");
        }
        self.problem = Some(why);
    }

    fn facts(&self) -> SourceFacts {
        SourceFacts {
            source: self.source.to_string(),
            servers: self.servers.len(),
            refused: self.refused,
            answers: self.answers,
            failures: self.failures,
            is_empty: self.empty_since.is_some(),
            problem: self.problem.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc;

    use anyhow::Context as _;

    const LIMIT: u64 = 30 * SECOND;
    const SECOND: u64 = 1_000_000_000;

    fn feeds(sources: &[&str]) -> Feeds {
        let mut feeds = Feeds::new(([127, 0, 0, 1], 1).into(), mpsc::channel().0);
        feeds.watch(&parsed(sources)).expect("threads");
        feeds
    }

    fn parsed(sources: &[&str]) -> Vec<Source> {
        sources.iter().map(|source| source.parse().expect("a source")).collect()
    }

    fn answer(ports: &[u16]) -> Answer {
        let servers: Vec<_> =
            ports.iter().map(|&port| ServerSpec::of(([127, 0, 0, 1], port).into())).collect();
        servers.into()
    }

    fn held(feeds: &Feeds) -> Vec<u16> {
        feeds.servers().map(|server| server.addr.port()).collect()
    }

    /// Checks the servers that hold at a second, after a source has said this at these seconds;
    /// `None` is away.
    fn check(said: &[(u64, Option<&[u16]>)], at_s: u64, expected: &[u16]) {
        let mut feeds = feeds(&["file:/nowhere"]);
        for &(second, ports) in said {
            let now = second * SECOND;
            feeds.believe(now, LIMIT);
            feeds.take(1, ports.map(answer).context("it is away"), now);
        }
        feeds.believe(at_s * SECOND, LIMIT);
        assert_eq!(held(&feeds), expected, "{said:?} at {at_s}");
    }

    #[test]
    fn an_empty_answer_is_believed_when_it_has_stood() {
        let (two, none): (Option<&[u16]>, Option<&[u16]>) = (Some(&[1, 2]), Some(&[]));
        check(&[(0, two), (1, none)], 30, &[1, 2]);
        check(&[(0, two), (1, none)], 31, &[]);
        check(&[(0, two), (1, none), (20, none)], 31, &[]);
        check(&[(0, two), (1, none), (20, Some(&[2])), (21, none)], 50, &[2]);
        // While it is away it says nothing.
        check(&[(0, two), (1, none), (20, None), (25, none)], 54, &[1, 2]);
        check(&[(0, two), (1, none), (20, None), (25, none)], 55, &[]);
        check(&[(0, two), (1, None)], 1_000, &[1, 2]);
        check(&[(0, none)], 0, &[]);
    }

    #[test]
    fn servers_of_a_source_that_is_replaced_stay_until_the_other_has_named_some() {
        let (mut feeds, now) = (feeds(&["file:/one", "file:/two"]), Clock.now());
        feeds.take(1, Ok(answer(&[1])), now);
        feeds.take(2, Ok(answer(&[2])), now);
        feeds.watch(&parsed(&["file:/two", "file:/three"])).expect("threads");
        assert!(!feeds.believe(now, LIMIT));
        assert_eq!(held(&feeds), [1, 2]);
        // It is not heard any more.
        assert!(!feeds.take(1, Ok(answer(&[9])), now));
        // The other knows nobody yet.
        assert!(!feeds.take(3, Ok(answer(&[])), now) && !feeds.believe(now, LIMIT));
        assert_eq!(held(&feeds), [1, 2]);
        assert!(feeds.take(3, Ok(answer(&[3])), now) && feeds.believe(now, LIMIT));
        assert_eq!(held(&feeds), [2, 3]);
        // Nobody comes in its place.
        feeds.watch(&parsed(&["file:/three"])).expect("threads");
        assert!(feeds.believe(now, LIMIT));
        assert_eq!(held(&feeds), [3]);
    }
}
