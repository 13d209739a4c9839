//! Groups of servers, each of which has some of the keys: where their calls go, and how many may be
//! under way.
//!
//! Invariant: what one group cannot take holds up nobody who asks another.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use tailcut_bridge::Route;
use tailcut_bridge::resp::keys::{Groups, SLOT_MAX};
use tailcut_net::stream::ConnectionId;

use super::window::Window;
use crate::network;

/// Destinations of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Targets {
    pub(super) reads: SocketAddr,
    /// Destination of writes, if another one.
    pub(super) writes: Option<SocketAddr>,
}

/// A group of servers, as a gateway sees it.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) targets: Targets,
    /// Calls that may be under way.
    pub(super) window: Window,
    /// Calls under way, and those that are made again.
    pub(super) under_way: usize,
    /// Clients whose call there is no room for; those that have given that up may be among them.
    pub(super) waiting: VecDeque<ConnectionId>,
}

/// A group as flags have it: its first slot and its last, and where its calls go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupFlag {
    first: u16,
    last: u16,
    reads: String,
    writes: Option<String>,
}

impl fmt::Display for GroupFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, reads, writes } = self;
        write!(f, "{first}-{last}={reads}")?;
        writes.iter().try_for_each(|writes| write!(f, ",{writes}"))
    }
}

impl Targets {
    /// Those that have these names.
    pub(super) fn resolve(reads: &str, writes: Option<&str>) -> Result<Self> {
        let resolve = |name: &str| {
            let address = network::resolve(name)?;
            ensure!(address.port() != 0, "{name} has no port to call");
            anyhow::Ok(address)
        };
        let writes = writes.map(resolve).transpose()?;
        Ok(Self { reads: resolve(reads)?, writes })
    }

    /// Destination of a call, and true if the router has to send it to its first server.
    pub(super) fn of(self, route: Route) -> (SocketAddr, bool) {
        match route {
            Route::Any => (self.reads, false),
            Route::Same => (self.writes.unwrap_or(self.reads), self.writes.is_none()),
            Route::Primary => (self.writes.unwrap_or(self.reads), false),
        }
    }

    /// In a word: where reads go, and behind a comma where writes do if that is elsewhere.
    pub(super) fn name(self) -> String {
        self.all().map(|address| address.to_string()).collect::<Vec<_>>().join(",")
    }

    fn all(self) -> impl Iterator<Item = SocketAddr> {
        [self.reads].into_iter().chain(self.writes)
    }
}

impl Group {
    /// A group that nothing has been asked of.
    pub(super) fn new(targets: Targets) -> Self {
        Self { targets, window: Window::new(), under_way: 0, waiting: VecDeque::new() }
    }

    /// True if one more call may be made.
    pub(super) fn has_room(&self) -> bool {
        self.window.has_room(self.under_way)
    }

    /// True if a client may make one more call, while so many others wait, at a look at which it
    /// has made some.
    pub(super) fn has_share(&self, rivals: usize, made: usize) -> bool {
        let room = (self.window.size() as usize).saturating_sub(self.under_way);
        rivals == 0 || made < ((room + made) / (rivals + 1)).max(SHARE_MIN)
    }
}

impl GroupFlag {
    /// Reads a flag such as `0-8191=10.0.0.1:8000,10.0.0.2:8000`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let how = || "write FIRST-LAST=READS[,WRITES], such as 0-8191=10.0.0.1:8000,10.0.0.2:8000";
        let (slots, targets) = text.split_once('=').ok_or_else(how)?;
        let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
        let slot = |text: &str| match text.parse() {
            Ok(slot) if slot <= SLOT_MAX && !text.starts_with('+') => Ok(slot),
            _ => Err(format!("`{text}` is no slot: they are 0 to {SLOT_MAX}")),
        };
        let (first, last) = (slot(first)?, slot(last)?);
        if last < first {
            return Err(format!("slot {last} comes before {first}"));
        }
        let (reads, writes) = match targets.split(',').collect::<Vec<_>>()[..] {
            [reads, writes] => (reads, Some(writes.to_owned())),
            [reads] => (reads, None),
            _ => return Err(how().to_owned()),
        };
        Ok(Self { first, last, reads: reads.to_owned(), writes })
    }
}

/// Destinations of each group's calls, and the slots of each: those with the same servers are one.
pub(super) fn of_flags(flags: &[GroupFlag]) -> Result<(Vec<Targets>, Groups)> {
    let (mut all, mut slots) = (Vec::new(), Vec::new());
    for flag in flags {
        let targets = Targets::resolve(&flag.reads, flag.writes.as_deref())
            .with_context(|| format!("--group {flag}"))?;
        let known = all.iter().position(|&known| known == targets);
        slots.push((flag.first, flag.last, known.unwrap_or(all.len())));
        if known.is_none() {
            all.push(targets);
        }
    }
    Ok((all, Groups::new(slots).context("--group")?))
}

/// Refuses targets that cannot be called from one port.
pub(super) fn check_families(targets: &[Targets]) -> Result<()> {
    let mut all = targets.iter().flat_map(|targets| targets.all());
    let is_ipv4 = all.next().is_some_and(|target| target.is_ipv4());
    if all.any(|target| target.is_ipv4() != is_ipv4) {
        bail!("all are called from one port: give IPv4 addresses alone, or IPv6 addresses");
    }
    Ok(())
}

/// Calls that a client may make at once however many others wait: to look at it costs as much as
/// several.
const SHARE_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read() {
        let flag = |text: &str| GroupFlag::parse(text);
        let expected = |writes: Option<&str>| GroupFlag {
            first: 0,
            last: 8191,
            reads: "a:1".to_owned(),
            writes: writes.map(str::to_owned),
        };
        assert_eq!(flag("0-8191=a:1"), Ok(expected(None)));
        assert_eq!(flag("0-8191=a:1,b:2"), Ok(expected(Some("b:2"))));
        assert_eq!(expected(Some("b:2")).to_string(), "0-8191=a:1,b:2");
        assert_eq!(flag("5=a:1").map(|flag| (flag.first, flag.last)), Ok((5, 5)));
        for bad in [
            "",
            "0-1",
            "5-4=a:1",
            "0-16384=a:1",
            "x-1=a:1",
            "-1-4=a:1",
            "+0-9=a:1",
            "0-9=a:1,b:2,c:3",
        ] {
            assert!(flag(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_has_the_same_servers_is_one_group() {
        let flags = ["0-99=127.0.0.1:1", "100-199=127.0.0.1:2", "200-16383=127.0.0.1:1"];
        let flags = flags.map(|text| GroupFlag::parse(text).unwrap());
        assert_eq!(of_flags(&flags).unwrap().0.len(), 2);
        let error = of_flags(&flags[1..]).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "--group: no group has slot 0: all from 0 to 16383 are wanted"
        );
    }

    #[test]
    fn families_do_not_mix() {
        let targets = |reads| Targets::resolve(reads, Some("127.0.0.1:2")).unwrap();
        assert!(check_families(&[targets("127.0.0.1:1")]).is_ok());
        assert!(check_families(&[targets("[::1]:1")]).is_err());
        assert!(check_families(&[targets("127.0.0.1:1"), targets("[::1]:1")]).is_err());
    }

    #[test]
    fn a_client_takes_its_share_where_others_wait() {
        let group = Group::new(Targets::resolve("127.0.0.1:1", None).unwrap());
        assert!(group.has_share(0, 1000));
        assert!(group.has_share(1, 31) && !group.has_share(3, SHARE_MIN + 100));
        assert!(group.has_share(1000, SHARE_MIN - 1) && !group.has_share(1000, SHARE_MIN));
    }
}
