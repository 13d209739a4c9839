//! The commands of a call.
//!
//! | message | reply |
//! |---|---|
//! | a command of any kind | the server's, in RESP2 |
//! | a run of writes, up to 64 | theirs, one after the other |
//! | `MULTI`, up to 1,024 commands, and `EXEC` | theirs, of which the last has the replies of all commands |
//! | `HELLO 3`, and one of these | the same in RESP3; HELLO has no reply |

use super::command::{Class, Why, classify};
use super::scan::{Command, ProtocolError, Scan};

/// Commands of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commands {
    /// Offset of the first one.
    pub start: usize,
    /// Number of commands, one or more.
    pub count: u32,
    /// The replies are to be in RESP3.
    pub is_resp3: bool,
    /// They may run more than once.
    pub is_idempotent: bool,
    /// They run as a whole: the first is `MULTI`, the last `EXEC`.
    pub is_transaction: bool,
}

impl Commands {
    /// The commands themselves, of the message that was read.
    pub fn of(self, message: &[u8]) -> impl Iterator<Item = Command<'_>> {
        let mut rest = message.get(self.start..).unwrap_or_default();
        std::iter::from_fn(move || {
            let len = Scan::default().advance(rest, LEN_MAX).ok()??;
            let (command, after) = rest.split_at(len);
            rest = after;
            Some(Command::new(command))
        })
    }
}

/// Reason why a message is not to be sent to a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is no array of bulk strings.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// It ends within a command, or has none.
    #[error("the message ends within a command")]
    Cut,
    /// Too many commands, or a run with another than a write in it.
    #[error("a message has one command, up to {COMMANDS_MAX} writes, or a transaction")]
    Run,
    /// A command that no call can be.
    #[error("{name} cannot be called: {}", .why.text())]
    Refused {
        /// The command.
        name: String,
        /// Reason for the refusal.
        why: Why,
    },
}

/// Reads a message.
///
/// # Errors
///
/// Where it is not for a server: nothing of it may be sent.
pub fn read(message: &[u8]) -> Result<Commands, MessageError> {
    let start = if message.starts_with(RESP3) { RESP3.len() } else { 0 };
    let (mut at, mut count, mut is_idempotent) = (start, 0, true);
    let (mut is_run, mut is_transaction, mut is_ended) = (true, false, false);
    while at < message.len() || count == 0 {
        let rest = &message[at..];
        let len = Scan::default().advance(rest, LEN_MAX)?.ok_or(MessageError::Cut)?;
        let command = Command::new(&rest[..len]);
        let class = classify(command);
        let is_first = count == 0 && is_alone(command, b"MULTI");
        is_transaction |= is_first;
        is_ended = is_transaction && is_alone(command, b"EXEC") && len == rest.len();
        let why = match class {
            _ if is_first || is_ended => None,
            Class::Refused(why) => Some(why),
            Class::Session => Some(Why::Connection),
            _ => None,
        };
        if let Some(why) = why {
            return Err(MessageError::Refused { name: name(command), why });
        }
        // No server answers it, so that the next one's answer would be taken for its own.
        if command.is_empty() {
            return Err(MessageError::Cut);
        }
        (at, count) = (at + len, count + 1);
        is_run &= class == Class::Write;
        is_idempotent &= class.is_idempotent();
        let count_max = if is_transaction { QUEUED_MAX + 2 } else { COMMANDS_MAX };
        if count > 1 && !is_run && !is_transaction || count > count_max {
            return Err(MessageError::Run);
        }
    }
    // Else the next message's commands would be of this transaction.
    if is_transaction && !is_ended {
        return Err(MessageError::Refused { name: "MULTI".to_owned(), why: Why::Transaction });
    }
    Ok(Commands { start, count, is_resp3: start > 0, is_idempotent, is_transaction })
}

/// True if a command has this name and nothing else.
pub(super) fn is_alone(command: Command<'_>, name: &[u8]) -> bool {
    command.name().eq_ignore_ascii_case(name) && command.arguments().count() == 1
}

/// A command's name as it may be shown.
pub fn name(command: Command<'_>) -> String {
    let name = command.name();
    let shown = &name[..name.len().min(NAME_SHOWN_MAX)];
    String::from_utf8_lossy(shown).to_uppercase().escape_default().to_string()
}

/// Beginning of a message for RESP3.
pub const RESP3: &[u8] = b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";

/// Most commands of a message: a long pipeline's round trips without a reply that is long.
pub const COMMANDS_MAX: u32 = 64;

/// Most commands of a transaction.
pub const QUEUED_MAX: u32 = 1024;

/// Longer than any message.
const LEN_MAX: usize = 1 << 40;

/// Bytes of a name that are shown.
const NAME_SHOWN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::*;

    fn message(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            scan::write(&arguments, &mut bytes);
        }
        bytes
    }

    fn check(lines: &[&str], start: usize, count: u32, is_idempotent: bool) {
        let is_transaction = lines.contains(&"MULTI");
        let expected =
            Commands { start, count, is_resp3: start > 0, is_idempotent, is_transaction };
        assert_eq!(read(&message(lines)), Ok(expected), "{lines:?}");
    }

    #[test]
    fn a_message_is_a_command_or_a_run_of_writes() {
        check(&["GET a"], 0, 1, true);
        check(&["LPOP a"], 0, 1, false);
        check(&["SET a b", "DEL c"], 0, 2, false);
        check(&["HELLO 3", "GET a"], RESP3.len(), 1, true);
        // A name of no letters is one that the server does not know, and says so.
        check(&[""], 0, 1, false);
    }

    #[test]
    fn the_commands_of_a_message_are_those_that_were_written() {
        for lines in [&["HELLO 3", "GET a"][..], &["SET a b", "DEL c", "INCR d"]] {
            let message = message(lines);
            let read = read(&message).unwrap();
            let names: Vec<&[u8]> = read.of(&message).map(Command::name).collect();
            let expected = lines.iter().map(|line| line.split(' ').next().unwrap().as_bytes());
            let expected: Vec<_> = expected.filter(|&name| name != b"HELLO").collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn a_transaction_is_whole() {
        check(&["MULTI", "GET a", "LPOP b", "EXEC"], 0, 4, false);
        check(&["HELLO 3", "MULTI", "EXEC"], RESP3.len(), 2, false);
        for lines in [
            &["MULTI"][..],
            &["MULTI", "GET a"],
            &["MULTI", "EXEC", "GET a"],
            &["MULTI", "EXEC", "EXEC"],
            &["MULTI", "MULTI", "EXEC"],
            &["MULTI", "BLPOP a 0", "EXEC"],
            &["MULTI", "DISCARD", "EXEC"],
            &["MULTI", "WATCH a", "EXEC"],
            &["MULTI now", "GET a", "EXEC"],
            &["MULTI", "GET a", "EXEC now"],
            &["GET a", "MULTI", "EXEC"],
            &["SET a 1", "MULTI", "EXEC"],
            &["EXEC"],
        ] {
            assert!(read(&message(lines)).is_err(), "{lines:?}");
        }
        let long = [&["MULTI"][..], &["GET a"; 1025], &["EXEC"]].concat();
        assert_eq!(read(&message(&long)), Err(MessageError::Run));
    }

    #[test]
    fn other_runs_are_refused() {
        assert_eq!(read(&message(&["GET a", "GET b"])), Err(MessageError::Run));
        assert_eq!(read(&message(&["SET a b", "LPOP b"])), Err(MessageError::Run));
        assert_eq!(read(&message(&["DEL a"; 65])), Err(MessageError::Run));
    }

    #[test]
    fn what_would_disturb_a_connection_is_refused() {
        assert_eq!(read(b""), Err(MessageError::Cut));
        assert_eq!(read(RESP3), Err(MessageError::Cut));
        assert_eq!(read(b"*1\r\n$4\r\nPING"), Err(MessageError::Cut));
        assert_eq!(read(b"*0\r\n"), Err(MessageError::Cut));
        assert!(matches!(read(b"PING\r\n"), Err(MessageError::Protocol(_))));
        let error = read(&message(&["DEL a", "MULTI"])).unwrap_err();
        assert!(error.to_string().starts_with("MULTI cannot be called: "), "{error}");
        assert!(read(&message(&["HELLO 2"])).is_err());
    }
}
