//! Class of a command of Redis as a call.
//!
//! | class | what | a call |
//! |---|---|---|
//! | read | changes nothing | idempotent, to any server |
//! | scan | a read that goes on where another ended, or is by a script that was loaded | idempotent, always to the same server |
//! | write | its reply is short | once, with other writes |
//! | take | a write, or unknown; its reply may be of any length | once, alone |
//! | session | what it changes is the connection's own | none: the gateway answers |
//! | refused | needs a connection of its own, or is the administrator's | none |

use std::sync::LazyLock;

use super::scan::Command;

/// Class of a command as a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It changes nothing.
    Read,
    /// A read that goes on where another ended.
    Scan,
    /// It changes something, and its reply is short.
    Write,
    /// It changes something, or nobody knows, and its reply may be long.
    Take,
    /// Its changes are the connection's own.
    Session,
    /// It is no call.
    Refused(Why),
}

/// Reason why a command is no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It begins or ends a transaction, of which all is one call, or watches for one.
    Transaction,
    /// It waits at the server until something happens.
    Blocking,
    /// It asks for what comes later and unasked.
    Subscription,
    /// It changes how the connection is used, or asks about it.
    Connection,
    /// It is for who runs the server.
    Administration,
    /// It is a line of HTTP, of which a web page may have had a browser say the rest: nothing that
    /// follows it counts.
    Http,
}

impl Why {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Transaction => {
                "a transaction is one call, from MULTI to EXEC, and nothing is watched for it"
            }
            Self::Blocking => "a command that waits would keep a connection that others share",
            Self::Subscription => "messages that come unasked are no reply of a call",
            Self::Connection => "the state of a connection is not kept, for calls share some",
            Self::Administration => "it is for who runs the server: ask that directly",
            Self::Http => "it is of HTTP, and ends the connection",
        }
    }
}

impl Class {
    /// True if it may run more than once, and at any time.
    pub fn is_idempotent(self) -> bool {
        matches!(self, Self::Read | Self::Scan)
    }
}

/// The class of a command.
pub fn classify(command: Command<'_>) -> Class {
    let name = command.name();
    let mut upper = [0; NAME_LEN_MAX];
    let Some(upper) = upper.get_mut(..name.len()) else { return Class::Take };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    let has = |word: &[u8], from: usize| {
        command.arguments().skip(from).any(|argument| argument.eq_ignore_ascii_case(word))
    };
    match &*upper {
        b"XREAD" if has(b"BLOCK", 1) => Class::Refused(Why::Blocking),
        b"XREADGROUP" if has(b"BLOCK", 1) => Class::Refused(Why::Blocking),
        b"SET" if has(b"GET", 3) => Class::Take,
        // What a script stops at is read by its connection.
        b"SCRIPT" if has(b"DEBUG", 1) => Class::Refused(Why::Connection),
        name => named(name),
    }
}

/// The class of a name, in capitals.
pub(super) fn named(name: &[u8]) -> Class {
    let found = TABLE.binary_search_by_key(&name, |&(known, _)| known.as_bytes());
    found.map_or(Class::Take, |index| TABLE[index].1)
}

/// The commands that are known, by name.
static TABLE: LazyLock<Vec<(&str, Class)>> = LazyLock::new(|| by_name(COMMANDS));

/// Table of what lists say of each name, by name.
pub(super) fn by_name<T: Copy>(lists: &[(T, &'static str)]) -> Vec<(&'static str, T)> {
    let lists = lists.iter();
    let mut table: Vec<_> = lists
        .flat_map(|&(what, names)| names.split_whitespace().map(move |name| (name, what)))
        .collect();
    table.sort_unstable_by_key(|&(name, _)| name);
    table
}

/// The commands of Redis 7, by class; others are [`Class::Take`].
const COMMANDS: &[(Class, &str)] = &[
    (
        Class::Read,
        "PING ECHO TIME GET MGET STRLEN GETRANGE SUBSTR LCS GETBIT BITCOUNT BITPOS BITFIELD_RO \
         EXISTS TYPE TTL PTTL EXPIRETIME PEXPIRETIME DUMP KEYS RANDOMKEY DBSIZE TOUCH OBJECT \
         MEMORY LLEN LRANGE LINDEX LPOS SCARD SISMEMBER SMISMEMBER SMEMBERS SRANDMEMBER SINTER \
         SINTERCARD SUNION SDIFF HGET HMGET HGETALL HKEYS HVALS HLEN HEXISTS HSTRLEN HRANDFIELD \
         HTTL HPTTL HEXPIRETIME HPEXPIRETIME ZCARD ZSCORE ZMSCORE ZRANK ZREVRANK ZRANGE ZREVRANGE \
         ZRANGEBYSCORE ZREVRANGEBYSCORE ZRANGEBYLEX ZREVRANGEBYLEX ZCOUNT ZLEXCOUNT ZRANDMEMBER \
         ZINTER ZINTERCARD ZUNION ZDIFF PFCOUNT GEODIST GEOHASH GEOPOS GEOSEARCH GEORADIUS_RO \
         GEORADIUSBYMEMBER_RO XLEN XRANGE XREVRANGE XPENDING XINFO XREAD SORT_RO EVAL_RO FCALL_RO \
         COMMAND INFO LOLWUT",
    ),
    // A script is known where it was loaded, which replicas do not hear of.
    (Class::Scan, "SCAN HSCAN SSCAN ZSCAN EVALSHA_RO"),
    (
        Class::Write,
        "SET SETNX SETEX PSETEX MSET MSETNX APPEND SETRANGE SETBIT BITOP INCR DECR INCRBY DECRBY \
         INCRBYFLOAT DEL UNLINK COPY RENAME RENAMENX EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST \
         RESTORE LPUSH RPUSH LPUSHX RPUSHX LSET LTRIM LREM LINSERT SADD SREM SMOVE SINTERSTORE \
         SUNIONSTORE SDIFFSTORE HSET HMSET HSETNX HDEL HINCRBY HINCRBYFLOAT ZADD ZREM ZINCRBY \
         ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX ZRANGESTORE ZINTERSTORE ZUNIONSTORE \
         ZDIFFSTORE PFADD PFMERGE GEOADD GEOSEARCHSTORE XADD XDEL XTRIM XACK PUBLISH SPUBLISH \
         FLUSHDB FLUSHALL",
    ),
    (Class::Session, "HELLO SELECT QUIT"),
    (Class::Refused(Why::Transaction), "MULTI EXEC DISCARD WATCH UNWATCH"),
    (
        Class::Refused(Why::Blocking),
        "BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP BZPOPMIN BZPOPMAX BZMPOP WAIT WAITAOF",
    ),
    (
        Class::Refused(Why::Subscription),
        "SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE MONITOR",
    ),
    (Class::Refused(Why::Connection), "CLIENT AUTH RESET READONLY READWRITE ASKING SWAPDB MOVE"),
    (Class::Refused(Why::Http), "POST HOST:"),
    (
        Class::Refused(Why::Administration),
        "SHUTDOWN DEBUG CONFIG SAVE BGSAVE BGREWRITEAOF LASTSAVE REPLICAOF SLAVEOF FAILOVER SYNC \
         PSYNC REPLCONF CLUSTER MODULE ACL LATENCY SLOWLOG ROLE MIGRATE PFDEBUG PFSELFTEST",
    ),
];

/// Longest name that is known.
const NAME_LEN_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::*;

    fn check(line: &str, class: Class) {
        let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        scan::write(&arguments, &mut bytes);
        assert_eq!(classify(Command::new(&bytes)), class, "{line}");
    }

    #[test]
    fn commands_are_known_in_any_case() {
        check("get a", Class::Read);
        check("GeT a", Class::Read);
        check("sscan a 0", Class::Scan);
        check("evalsha_ro abc 1 k", Class::Scan);
        check("incr a", Class::Write);
        check("LPOP a", Class::Take);
        check("hello 3", Class::Session);
    }

    #[test]
    fn a_name_stands_once() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(TABLE.iter().all(|(name, _)| name.len() <= NAME_LEN_MAX));
    }

    #[test]
    fn options_count() {
        check("SET a b", Class::Write);
        check("SET get b", Class::Write);
        check("SET a b EX 5 get", Class::Take);
        check("XREAD STREAMS a 0", Class::Read);
        check("XREAD block 0 STREAMS a 0", Class::Refused(Why::Blocking));
        check("XREADGROUP GROUP g c STREAMS a >", Class::Take);
    }

    #[test]
    fn what_is_unknown_runs_once_and_alone() {
        check("JSON.GET a", Class::Take);
        check("A.VERY.LONG.NAME.THAT.NOBODY.KNOWS", Class::Take);
    }

    #[test]
    fn what_needs_a_connection_is_refused() {
        check("MULTI", Class::Refused(Why::Transaction));
        check("BLPOP a 0", Class::Refused(Why::Blocking));
        check("SUBSCRIBE a", Class::Refused(Why::Subscription));
        check("CLIENT SETNAME a", Class::Refused(Why::Connection));
        check("SHUTDOWN", Class::Refused(Why::Administration));
        check("script debug yes", Class::Refused(Why::Connection));
        check("SCRIPT LOAD debug", Class::Refused(Why::Connection));
        check("EVAL debug 0", Class::Take);
        // By which Redis ends the connection: they are HTTP's.
        check("POST / HTTP/1.1", Class::Refused(Why::Http));
        check("Host: here", Class::Refused(Why::Http));
    }
}
