//! The keys of a command, and the group of servers that has them.
//!
//! | keys | group |
//! |---|---|
//! | none, and it concerns no data (`PING`) | the first |
//! | all in slots of one group | that |
//! | in slots of several | none: `-CROSSSLOT` |
//! | unknown, or all that there are (`DBSIZE`) | none: an error |
//!
//! Slots are those of [Redis Cluster][spec]: CRC-16/XMODEM of a key, or of what stands in its first
//! braces, modulo 16384.
//!
//! [spec]: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/

use std::sync::{Arc, LazyLock};

use crc::{CRC_16_XMODEM, Crc};

use super::command::{self, Class};
use super::message;
use super::scan::{Arguments, Command};

/// Assignment of keys to groups of servers: each has some of the slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The last slot of each range, and whose it is, in order; none where there is one group.
    ranges: Arc<[(u16, usize)]>,
}

/// Reason why groups are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupsError {
    /// No group has a slot, and clients may ask for it.
    #[error("no group has slot {0}: all from 0 to {SLOT_MAX} are wanted")]
    Missing(u16),
    /// Two groups have a slot.
    #[error("two groups have slot {0}")]
    Twice(u16),
}

/// Reason why no group has all that a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Apart {
    /// Its keys are of several.
    Several,
    /// It has no key that says which, or nobody knows.
    Unknown,
}

impl Default for Groups {
    /// One group, which has all.
    fn default() -> Self {
        Self { ranges: Arc::new([]) }
    }
}

impl Groups {
    /// Groups that have these slots, first and last of each; one may stand several times.
    ///
    /// # Errors
    ///
    /// Where a slot has no group, or two.
    pub fn new(slots: impl IntoIterator<Item = (u16, u16, usize)>) -> Result<Self, GroupsError> {
        let mut slots: Vec<_> = slots.into_iter().collect();
        slots.sort_unstable();
        let mut next = 0;
        for &(first, last, _) in &slots {
            if first < next {
                return Err(GroupsError::Twice(first));
            }
            if first > next || last < first {
                return Err(GroupsError::Missing(next));
            }
            next = last + 1;
        }
        if next <= SLOT_MAX {
            return Err(GroupsError::Missing(next));
        }
        Ok(Self { ranges: slots.into_iter().map(|(_, last, group)| (last, group)).collect() })
    }

    /// The group that has all that a command asks for.
    pub(super) fn of(&self, command: Command<'_>) -> Result<usize, Apart> {
        if self.ranges.is_empty() {
            return Ok(0);
        }
        let keys = keys(command).ok_or(Apart::Unknown)?;
        let mut groups = keys.iter().map(|key| self.of_key(key));
        let first = groups.next().unwrap_or(0);
        if groups.all(|group| group == first) { Ok(first) } else { Err(Apart::Several) }
    }

    /// True if it matters which group a command goes to.
    pub(super) fn has_keys(&self, command: Command<'_>) -> bool {
        !self.ranges.is_empty() && keys(command).is_some_and(|keys| !keys.is_empty())
    }

    fn of_key(&self, key: &[u8]) -> usize {
        let slot = slot(key);
        let index = self.ranges.partition_point(|&(last, _)| last < slot);
        self.ranges.get(index).map_or(0, |&(_, group)| group)
    }
}

impl Apart {
    /// Error that a client is told.
    pub(super) fn error(self, command: Command<'_>) -> Vec<u8> {
        let name = message::name(command);
        let text = match self {
            Self::Several => format!("-CROSSSLOT keys of this {name} are of several groups\r\n"),
            Self::Unknown => {
                format!(
                    "-ERR {name} cannot be called: nothing says which group of keys it is for\r\n"
                )
            }
        };
        text.into_bytes()
    }
}

/// The slot of a key.
pub fn slot(key: &[u8]) -> u16 {
    let tag = memchr::memchr(b'{', key).and_then(|open| {
        let rest = &key[open + 1..];
        memchr::memchr(b'}', rest).map(|close| &rest[..close])
    });
    CRC.checksum(tag.filter(|tag| !tag.is_empty()).unwrap_or(key)) % (SLOT_MAX + 1)
}

/// Positions of a command's keys, counted from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spec {
    /// Nowhere: it is about no data.
    None,
    /// Unknown, or it is about all data.
    All,
    /// At this place alone.
    At(usize),
    /// At the first two.
    Two,
    /// From this place on.
    From(usize),
    /// At the first, the third, and so on.
    Pairs,
    /// Their number is here, and they follow it.
    Counted(usize),
    /// In a script: counted likewise, at the second place. One that names none may ask for any.
    Script,
    /// At the first; the number of others is at the second.
    Stored,
    /// The first half of what follows the word `STREAMS`, which is looked for from here on.
    Streams(usize),
    /// At the first, and where `STORE` says; others may be in patterns.
    Sort,
    /// At the first, and where `STORE` or `STOREDIST` says.
    Radius,
}

/// The keys of a command; `None` where nobody knows, or all that there are.
pub fn keys<'a>(command: Command<'a>) -> Option<Vec<&'a [u8]>> {
    let arguments = || command.arguments();
    let at = |place: usize| arguments().nth(place);
    let keys: Vec<&'a [u8]> = match spec(command) {
        Spec::None => Vec::new(),
        Spec::All => return None,
        Spec::At(place) => at(place).into_iter().collect(),
        Spec::Two => arguments().skip(1).take(2).collect(),
        Spec::From(place) => arguments().skip(place).collect(),
        Spec::Pairs => arguments().skip(1).step_by(2).collect(),
        Spec::Counted(place) => counted(arguments(), place).collect(),
        Spec::Script => {
            Some(counted(arguments(), 2).collect::<Vec<_>>()).filter(|keys| !keys.is_empty())?
        }
        Spec::Stored => at(1).into_iter().chain(counted(arguments(), 2)).collect(),
        Spec::Streams(from) => {
            let mut rest = arguments().skip(from);
            rest.find(|word| word.eq_ignore_ascii_case(b"STREAMS"));
            let rest: Vec<_> = rest.collect();
            rest[..rest.len() / 2].to_vec()
        }
        Spec::Sort => sorted(arguments())?,
        Spec::Radius => at(1).into_iter().chain(stored(arguments(), 5)).collect(),
    };
    Some(keys)
}

/// Keys whose number is at `place`, if all are there.
fn counted<'a>(arguments: Arguments<'a>, place: usize) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = arguments.skip(place);
    let count = rest.next().and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
    let count = count.filter(|&count| rest.clone().count() >= count);
    rest.take(count.unwrap_or(0))
}

/// Word behind the last `STORE` or `STOREDIST`, from a place on.
fn stored<'a>(arguments: Arguments<'a>, from: usize) -> Option<&'a [u8]> {
    let mut rest = arguments.skip(from);
    let found = std::iter::from_fn(|| {
        rest.find(|word| {
            word.eq_ignore_ascii_case(b"STORE") || word.eq_ignore_ascii_case(b"STOREDIST")
        })?;
        rest.next()
    });
    found.last()
}

/// The keys of `SORT`, unless its patterns name others.
fn sorted<'a>(arguments: Arguments<'a>) -> Option<Vec<&'a [u8]>> {
    let mut rest = arguments.skip(1);
    let (source, mut target) = (rest.next(), None);
    while let Some(word) = rest.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"LIMIT" => drop(rest.nth(1)),
            b"STORE" => target = rest.next().or(target),
            b"BY" | b"GET" if rest.next().is_some_and(|pattern| pattern.contains(&b'*')) => {
                return None;
            }
            _ => {}
        }
    }
    Some(source.into_iter().chain(target).collect())
}

/// Positions of a command's keys: those that are known and not among [`SPECS`] have one, at the
/// first place.
fn spec(command: Command<'_>) -> Spec {
    let upper = command.name().to_ascii_uppercase();
    let found = TABLE.binary_search_by_key(&upper.as_slice(), |&(known, _)| known.as_bytes());
    match found {
        Ok(index) => TABLE[index].1,
        Err(_) if command::named(&upper) == Class::Take => Spec::All,
        Err(_) => Spec::At(1),
    }
}

/// Those whose keys are elsewhere, by name.
static TABLE: LazyLock<Vec<(&str, Spec)>> = LazyLock::new(|| command::by_name(SPECS));

/// Positions of the keys in commands of Redis 7; of those that [`command`] does not know, the known
/// ones that have one.
const SPECS: &[(Spec, &str)] = &[
    (Spec::None, "PING ECHO TIME COMMAND INFO LOLWUT"),
    (Spec::All, "DBSIZE KEYS RANDOMKEY SCAN FLUSHDB FLUSHALL PUBLISH"),
    (
        Spec::At(1),
        "GETSET GETDEL GETEX LPOP RPOP SPOP ZPOPMIN ZPOPMAX HGETDEL HGETEX HSETEX HEXPIRE HPEXPIRE \
         HEXPIREAT HPEXPIREAT HPERSIST XCLAIM XAUTOCLAIM XSETID BITFIELD",
    ),
    (Spec::At(2), "OBJECT MEMORY XINFO XGROUP"),
    (Spec::Two, "LCS COPY RENAME RENAMENX SMOVE LMOVE RPOPLPUSH ZRANGESTORE GEOSEARCHSTORE"),
    (
        Spec::From(1),
        "MGET EXISTS TOUCH DEL UNLINK SINTER SUNION SDIFF SINTERSTORE SUNIONSTORE SDIFFSTORE PFCOUNT \
         PFMERGE",
    ),
    (Spec::From(2), "BITOP"),
    (Spec::Pairs, "MSET MSETNX"),
    (Spec::Counted(1), "SINTERCARD ZINTER ZINTERCARD ZUNION ZDIFF LMPOP ZMPOP"),
    (Spec::Script, "EVAL EVALSHA EVAL_RO EVALSHA_RO FCALL FCALL_RO"),
    (Spec::Stored, "ZINTERSTORE ZUNIONSTORE ZDIFFSTORE"),
    (Spec::Streams(1), "XREAD"),
    (Spec::Streams(4), "XREADGROUP"),
    (Spec::Sort, "SORT SORT_RO"),
    (Spec::Radius, "GEORADIUS GEORADIUSBYMEMBER"),
];

/// As Redis Cluster reads keys.
const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The last slot.
pub const SLOT_MAX: u16 = (1 << 14) - 1;

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::*;

    fn bytes(line: &str) -> Vec<u8> {
        let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        scan::write(&arguments, &mut bytes);
        bytes
    }

    fn check(line: &str, expected: Option<&str>) {
        let bytes = bytes(line);
        let found = keys(Command::new(&bytes)).map(|keys| keys.join(&b' '));
        assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{line}");
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        // The check value of the specification's appendix, and examples of its text.
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{}{bar}"), CRC.checksum(b"foo{}{bar}") % 16384);
        assert_eq!(slot(b"foo}{"), CRC.checksum(b"foo}{") % 16384);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn what_a_client_has_cut_short_has_the_keys_that_are_there() {
        for (line, expected) in [
            ("GET", ""),
            ("MSET a", "a"),
            ("ZINTER 3 a", ""),
            ("ZINTER -1 a", ""),
            ("ZINTER y a", ""),
            ("ZINTER", ""),
            ("ZUNIONSTORE d", "d"),
            ("XREAD COUNT 1", ""),
            ("XREAD STREAMS a", ""),
            ("XREADGROUP GROUP streams c STREAMS a >", "a"),
            ("SORT a STORE", "a"),
            ("SORT a LIMIT", "a"),
            ("OBJECT HELP", ""),
        ] {
            check(line, Some(expected));
        }
    }

    #[test]
    fn what_concerns_all_data_has_no_keys_that_anybody_knows() {
        for line in ["DBSIZE", "SCAN 0", "FLUSHALL", "PUBLISH a b", "JSON.GET a", "FUNCTION LIST"] {
            check(line, None);
        }
        check("SCRIPT LOAD a", None);
        check("EVAL a 0", None);
        check("EVAL a 2 b", None);
        check("SORT a BY w*", None);
        check("SORT a GET # GET o*", None);
        check("SORT a BY nosort GET # LIMIT 0 1 STORE b", Some("a b"));
        check("ping", Some(""));
    }

    #[test]
    fn a_name_stands_once_in_the_table() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn each_slot_has_one_group() {
        let missing = |slot| Err(GroupsError::Missing(slot));
        assert_eq!(Groups::new([]), missing(0));
        assert_eq!(Groups::new([(0, 100, 0)]), missing(101));
        assert_eq!(Groups::new([(0, 100, 0), (102, SLOT_MAX, 1)]), missing(101));
        assert_eq!(Groups::new([(1, SLOT_MAX, 0)]), missing(0));
        let twice = Groups::new([(0, 100, 0), (100, SLOT_MAX, 1)]);
        assert_eq!(twice, Err(GroupsError::Twice(100)));
        let groups = Groups::new([(9000, SLOT_MAX, 0), (0, 8999, 1)]).unwrap();
        let of = |line: &str| groups.of(Command::new(&bytes(line)));
        // 12182, 5061 and 866.
        assert_eq!((of("GET foo"), of("GET bar"), of("GET hello")), (Ok(0), Ok(1), Ok(1)));
        assert_eq!(of("MGET bar hello"), Ok(1));
        assert_eq!(of("MGET bar foo"), Err(Apart::Several));
        assert_eq!(of("DBSIZE"), Err(Apart::Unknown));
        assert_eq!(of("PING"), Ok(0));
        let one = Groups::default();
        assert_eq!(one.of(Command::new(&bytes("MGET bar foo"))), Ok(0));
        assert_eq!(one.of(Command::new(&bytes("DBSIZE"))), Ok(0));
    }
}
