//! A client's connection: commands to calls, answers in order.
//!
//! | next command | under way | then |
//! |---|---|---|
//! | read | reads alone | it is called |
//! | read | a write | it waits for that |
//! | write | nothing | it is called, with the writes that stand behind it |
//! | write | anything | it waits for all of that |
//! | of no group of servers, or of several | any | it is answered by an error |
//! | of the connection | any | it is answered here |
//! | refused | any | it is answered by an error |
//! | any, behind a MULTI | any | it is kept for EXEC, and answered here |
//! | EXEC | nothing | all of the transaction is called, as a write that stands alone |
//! | any, behind a WATCH that was refused and a MULTI | any | it is refused, up to EXEC |
//! | any, behind a write that may still run | any | it is refused, and the connection ends |
//! | a line of HTTP | any | it is answered by an error, and the connection ends |
//!
//! Invariant: what a client sends on one connection happens in that order, as far as anybody can
//! see: reads may pass each other, and nothing passes a write.

use std::collections::VecDeque;

use super::command::{Class, Why, classify};
use super::keys::{Apart, Groups};
use super::message::{self, COMMANDS_MAX, QUEUED_MAX, RESP3};
use super::requests::Requests;
use super::scan::Command;
use crate::call::{Call, Failed, Limits, Route};

/// A client's connection.
#[derive(Debug)]
pub struct Session {
    /// Bytes that are no command yet.
    requests: Requests,
    limits: Limits,
    groups: Groups,
    /// Answers that are due, in order.
    due: VecDeque<Due>,
    /// The ticket of the first of them.
    first: u64,
    /// A command that has been read, and must wait.
    next: Option<Step>,
    /// Reads under way.
    reads: usize,
    /// Writes under way.
    writes: usize,
    /// Bytes of answers in `due`.
    answers_len: usize,
    /// Bytes of the longest answer of late, which those under way may have too.
    recent_len: usize,
    state: State,
    /// No more bytes are taken.
    is_closing: bool,
}

/// State of its connection that the client has changed.
#[derive(Clone, Debug, Default)]
struct State {
    /// It has asked for RESP3.
    is_resp3: bool,
    /// A WATCH was refused: the transaction that follows would run whatever has changed.
    is_unwatched: bool,
    /// It has begun.
    transaction: Option<Transaction>,
}

/// A transaction that has begun and not ended.
#[derive(Clone, Debug, Default)]
struct Transaction {
    /// Its commands, one behind the other.
    queued: Vec<u8>,
    commands: u32,
    /// Group of the servers that have its keys; `None` while none has been named.
    group: Option<usize>,
    /// One of them was refused, so that none may run.
    is_failed: bool,
}

/// An answer that is due.
#[derive(Debug)]
enum Due {
    /// It is here.
    Ready(Vec<u8>),
    /// It is called for.
    Called {
        /// Commands of the call.
        commands: u32,
        is_read: bool,
        /// Replies that the client has been given already.
        given: u32,
    },
}

/// A command, or a run of writes, that is to be called.
#[derive(Debug)]
struct Next {
    message: Vec<u8>,
    commands: u32,
    class: Class,
    /// Group of the servers that have its keys.
    group: usize,
    /// Replies that the client has been given already.
    given: u32,
}

/// Next step of the session for a command.
#[derive(Debug)]
enum Step {
    /// To be called.
    Call(Next),
    /// Answered.
    Answer(Vec<u8>),
    /// Answered, and the last.
    Farewell(Vec<u8>),
}

impl Session {
    /// A connection that has said nothing yet, to servers in these groups.
    pub fn new(limits: Limits, groups: Groups) -> Self {
        Self {
            requests: Requests::new(limits.message_len_max - RESP3.len()),
            limits,
            groups,
            due: VecDeque::new(),
            first: 0,
            next: None,
            reads: 0,
            writes: 0,
            answers_len: 0,
            recent_len: 0,
            state: State::default(),
            is_closing: false,
        }
    }

    /// Takes what the client says.
    pub fn receive(&mut self, bytes: &[u8]) {
        if !self.is_closing {
            self.requests.push(bytes);
        }
    }

    /// The client says no more: what has come whole is still called.
    pub fn finish(&mut self) {
        self.is_closing = true;
    }

    /// The next call to make.
    pub fn poll_call(&mut self) -> Option<Call> {
        loop {
            match self.next.take().or_else(|| self.read())? {
                Step::Call(next) => {
                    let is_read = next.class.is_idempotent();
                    let must_wait = self.writes > 0 || !is_read && self.reads > 0;
                    if must_wait || self.has_enough_under_way() {
                        self.next = Some(Step::Call(next));
                        return None;
                    }
                    return Some(self.begin(next, is_read));
                }
                Step::Answer(bytes) => self.ready(bytes),
                Step::Farewell(bytes) => {
                    self.ready(bytes);
                    self.is_closing = true;
                    self.requests = Requests::new(0);
                }
            }
        }
    }

    /// A call has ended.
    pub fn answer(&mut self, ticket: u64, answer: Result<Vec<u8>, Failed>) {
        let index = ticket.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let due = index.and_then(|index| self.due.get_mut(index));
        let Some(due @ &mut Due::Called { commands, is_read, given }) = due else { return };
        let may_run = matches!(answer, Err(Failed::Uncertain(_) | Failed::TimedOut));
        let mut bytes = answer.unwrap_or_else(|failed| {
            let given = b"\n".repeat(given as usize);
            [given, error(&failed).repeat(commands as usize)].concat()
        });
        // Each of those is a line.
        let ends = memchr::memchr_iter(b'\n', &bytes).take(given as usize);
        bytes.drain(..ends.last().map_or(0, |end| end + 1));
        self.answers_len += bytes.len();
        self.recent_len = bytes.len().max(self.recent_len - self.recent_len / 8);
        *due = Due::Ready(bytes);
        *(if is_read { &mut self.reads } else { &mut self.writes }) -= 1;
        if may_run && !is_read {
            self.end_behind_write();
        }
    }

    /// A write may still run, and what the client says next could come before it.
    fn end_behind_write(&mut self) {
        self.is_closing = true;
        self.requests = Requests::new(0);
        if let Some(Step::Call(next)) = self.next.take() {
            let refused = Failed::Refused("a write before it may still run".to_owned());
            self.ready(error(&refused).repeat(next.commands as usize));
        }
    }

    /// Appends the answers whose turn it is.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        while let Some(Due::Ready(bytes)) = self.due.front() {
            out.extend_from_slice(bytes);
            self.answers_len -= bytes.len();
            self.due.pop_front();
            self.first += 1;
        }
    }

    /// True if more may be read.
    pub fn is_reading(&self) -> bool {
        !self.is_closing && self.next.is_none() && !self.is_full()
    }

    /// True if nothing more will be answered.
    pub fn is_over(&self) -> bool {
        self.is_closing && self.is_idle()
    }

    /// True if a command has begun to come and is waited for.
    pub fn is_partial(&self) -> bool {
        self.is_reading() && !self.requests.is_empty()
    }

    /// True if nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.due.is_empty() && self.next.is_none()
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        let next = match &self.next {
            Some(Step::Call(next)) => next.message.len(),
            _ => 0,
        };
        let queued =
            self.state.transaction.as_ref().map_or(0, |transaction| transaction.queued.len());
        self.requests.len() + self.answers_len + next + queued
    }

    /// True if what is under way may answer as much as may wait.
    fn has_enough_under_way(&self) -> bool {
        let expected = self.answers_len + self.reads * self.recent_len;
        self.reads >= self.limits.calls_max
            || self.reads > 0 && expected >= self.limits.answers_len_max
    }

    fn is_full(&self) -> bool {
        self.due.len() >= self.limits.pipeline_max
            || self.answers_len >= self.limits.answers_len_max
    }

    /// Reads a command.
    fn read(&mut self) -> Option<Step> {
        if self.is_full() {
            return None;
        }
        match self.requests.poll() {
            Ok(command) => Some(self.state.step(command?, &self.groups, &self.limits)),
            Err(error) => Some(Step::Farewell(format!("-ERR {error}\r\n").into_bytes())),
        }
    }

    fn ready(&mut self, bytes: Vec<u8>) {
        self.answers_len += bytes.len();
        self.due.push_back(Due::Ready(bytes));
    }

    /// Makes a call, with the writes for the same servers that stand behind a write.
    fn begin(&mut self, next: Next, is_read: bool) -> Call {
        let Next { mut message, mut commands, class, group, given } = next;
        // One that is long is moved once more only where the client speaks RESP3.
        if self.state.is_resp3 {
            message.splice(..0, RESP3.iter().copied());
        }
        while class == Class::Write && commands < COMMANDS_MAX && message.len() < RUN_LEN_MAX {
            match self.read() {
                Some(Step::Call(next))
                    if (next.class, next.group) == (Class::Write, group)
                        && next.message.len() < RUN_LEN_MAX =>
                {
                    message.extend_from_slice(&next.message);
                    commands += 1;
                }
                step => {
                    self.next = step;
                    break;
                }
            }
        }
        let route = match class {
            Class::Read => Route::Any,
            Class::Scan => Route::Same,
            _ => Route::Primary,
        };
        let ticket = self.first + self.due.len() as u64;
        self.due.push_back(Due::Called { commands, is_read, given });
        *(if is_read { &mut self.reads } else { &mut self.writes }) += 1;
        Call { ticket, message, route, group, is_idempotent: is_read }
    }
}

impl State {
    fn step(&mut self, command: Command<'_>, groups: &Groups, limits: &Limits) -> Step {
        let class = classify(command);
        let name = || message::name(command);
        let refused =
            |why: Why| format!("-ERR {} cannot be called: {}\r\n", name(), why.text()).into_bytes();
        if class == Class::Refused(Why::Http) {
            return Step::Farewell(refused(Why::Http));
        }
        if let Class::Refused(Why::Transaction) = class {
            return self.transact(command);
        }
        if let Some(transaction) = &mut self.transaction
            && !command.name().eq_ignore_ascii_case(b"QUIT")
        {
            return Step::Answer(transaction.queue(command, groups, limits));
        }
        match class {
            Class::Session => self.converse(command),
            Class::Refused(why) => Step::Answer(refused(why)),
            class => match groups.of(command) {
                Ok(group) => {
                    let message = command.bytes().to_vec();
                    Step::Call(Next { message, commands: 1, class, group, given: 0 })
                }
                Err(apart) => Step::Answer(apart.error(command)),
            },
        }
    }

    /// A transaction begins, ends, or would be watched for.
    fn transact(&mut self, command: Command<'_>) -> Step {
        let name = command.name().to_ascii_uppercase();
        let answer = |text: &str| Step::Answer(format!("{text}\r\n").into_bytes());
        if command.arguments().count() > 1 && name != b"WATCH" {
            let name = message::name(command);
            self.transaction.iter_mut().for_each(|transaction| transaction.is_failed = true);
            return answer(&format!("-ERR wrong number of arguments for '{name}' command"));
        }
        match (name.as_slice(), &mut self.transaction) {
            (b"MULTI", None) => {
                let is_failed = self.is_unwatched;
                self.transaction = Some(Transaction { is_failed, ..Transaction::default() });
                answer("+OK")
            }
            (b"MULTI" | b"WATCH" | b"UNWATCH", Some(transaction)) => {
                transaction.is_failed = true;
                answer("-ERR MULTI calls can not be nested, and WATCH inside MULTI is not allowed")
            }
            (b"WATCH", None) => {
                self.is_unwatched = true;
                answer(&format!("-ERR WATCH cannot be called: {}", Why::Transaction.text()))
            }
            (b"UNWATCH", None) => {
                self.is_unwatched = false;
                answer("+OK")
            }
            (_, None) => answer(&format!("-ERR {} without MULTI", message::name(command))),
            (name, Some(_)) => {
                let is_exec = name == b"EXEC";
                self.is_unwatched = false;
                match self.transaction.take().filter(|_| is_exec) {
                    None => answer("+OK"),
                    Some(transaction) => transaction.execute(),
                }
            }
        }
    }

    /// Handles commands that are the connection's own.
    fn converse(&mut self, command: Command<'_>) -> Step {
        let mut arguments = command.arguments();
        let name = arguments.next().unwrap_or_default();
        let first = arguments.next();
        if name.eq_ignore_ascii_case(b"QUIT") {
            return Step::Farewell(b"+OK\r\n".to_vec());
        }
        if name.eq_ignore_ascii_case(b"SELECT") {
            return Step::Answer(match (first, arguments.next()) {
                (Some(b"0"), None) => b"+OK\r\n".to_vec(),
                _ => b"-ERR there is database 0 alone behind a gateway\r\n".to_vec(),
            });
        }
        let is_resp3 = match first {
            None => self.is_resp3,
            Some(b"2") => false,
            Some(b"3") => true,
            Some(_) => return Step::Answer(b"-NOPROTO unsupported protocol version\r\n".to_vec()),
        };
        while let Some(option) = arguments.next() {
            let text = match option.to_ascii_uppercase().as_slice() {
                b"SETNAME" if arguments.next().is_some() => continue,
                b"AUTH" => format!("AUTH cannot be called: {}", Why::Connection.text()),
                _ => format!("Syntax error in HELLO option '{}'", option.escape_ascii()),
            };
            return Step::Answer(format!("-ERR {text}\r\n").into_bytes());
        }
        self.is_resp3 = is_resp3;
        Step::Answer(hello(is_resp3))
    }
}

impl Transaction {
    /// Keeps a command for EXEC; what its client is told.
    fn queue(&mut self, command: Command<'_>, groups: &Groups, limits: &Limits) -> Vec<u8> {
        let name = || message::name(command);
        let refused =
            |text: &str| format!("-ERR {} cannot be called: {text}\r\n", name()).into_bytes();
        let len = self.queued.len() + command.bytes().len();
        let is_full = self.commands >= QUEUED_MAX || len > limits.message_len_max - AROUND_LEN;
        let error = match (classify(command), groups.of(command)) {
            (Class::Refused(why), _) => refused(why.text()),
            (Class::Session, _) => refused(Why::Connection.text()),
            (_, Err(apart)) => apart.error(command),
            (_, Ok(group))
                if groups.has_keys(command) && self.group.is_some_and(|own| own != group) =>
            {
                Apart::Several.error(command)
            }
            _ if is_full => refused("the transaction is too long"),
            (_, Ok(group)) => {
                if groups.has_keys(command) {
                    self.group = Some(group);
                }
                self.queued.extend_from_slice(command.bytes());
                self.commands += 1;
                return b"+QUEUED\r\n".to_vec();
            }
        };
        self.is_failed = true;
        error
    }

    fn execute(self) -> Step {
        let Self { queued, commands, group, is_failed } = self;
        if is_failed {
            let text = &b"-EXECABORT Transaction discarded because of previous errors.\r\n"[..];
            return Step::Answer(text.to_vec());
        }
        let message = [MULTI, &queued, EXEC].concat();
        let (class, group) = (Class::Take, group.unwrap_or(0));
        Step::Call(Next { message, commands: 1, class, group, given: commands + 1 })
    }
}

/// Answer to HELLO.
fn hello(is_resp3: bool) -> Vec<u8> {
    let (head, version) = if is_resp3 { ("%7", 3) } else { ("*14", 2) };
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let text = [
        format!("{head}\r\n"),
        bulk("server") + &bulk("redis"),
        bulk("version") + &bulk(VERSION),
        bulk("proto") + &format!(":{version}\r\n"),
        bulk("id") + ":0\r\n",
        bulk("mode") + &bulk("standalone"),
        bulk("role") + &bulk("master"),
        bulk("modules") + "*0\r\n",
    ];
    text.concat().into_bytes()
}

/// Reason why there is no answer, as an error of Redis.
fn error(failed: &Failed) -> Vec<u8> {
    let code = match failed {
        Failed::Refused(_) => "REFUSED",
        Failed::Uncertain(_) | Failed::TimedOut => "UNCERTAIN",
        Failed::Rejected(_) => "ERR",
    };
    // A line, whatever others have put into it.
    let text = format!("{code} {failed}").replace(['\r', '\n'], " ");
    format!("-{text}\r\n").into_bytes()
}

/// The version of Redis that clients are told: the oldest that has all that is passed on.
const VERSION: &str = "7.0.0";

/// Beginning and end of a transaction.
const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// Bytes around the commands of a transaction.
const AROUND_LEN: usize = MULTI.len() + EXEC.len() + RESP3.len();

/// Bytes of a run of writes, beyond which none is added.
const RUN_LEN_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::scan;
    use super::*;

    fn session() -> Session {
        Session::new(
            Limits { pipeline_max: 8, calls_max: 3, ..Limits::default() },
            Groups::default(),
        )
    }

    fn lines(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            scan::write(&arguments, &mut bytes);
        }
        bytes
    }

    fn calls(session: &mut Session) -> Vec<Call> {
        std::iter::from_fn(|| session.poll_call()).collect()
    }

    fn written(session: &mut Session) -> String {
        let mut out = Vec::new();
        session.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn reads_pass_each_other_and_are_answered_in_order() {
        let mut session = session();
        session.receive(&lines(&["GET a", "GET b"]));
        let calls = calls(&mut session);
        assert_eq!(calls.len(), 2);
        assert!(calls.iter().all(|call| call.is_idempotent && call.route == Route::Any));
        session.answer(calls[1].ticket, Ok(b"$1\r\nb\r\n".to_vec()));
        assert_eq!(written(&mut session), "");
        session.answer(calls[0].ticket, Ok(b"$1\r\na\r\n".to_vec()));
        assert_eq!(written(&mut session), "$1\r\na\r\n$1\r\nb\r\n");
        assert!(session.is_idle() && session.held() == 0);
    }

    #[test]
    fn nothing_passes_a_write() {
        let mut session = session();
        session.receive(&lines(&["GET a", "SET a 1", "SET b 2", "LPOP c", "GET a"]));
        let first = calls(&mut session);
        assert_eq!(first.len(), 1);
        assert!(!session.is_reading());
        session.answer(first[0].ticket, Ok(b"1".to_vec()));
        let writes = calls(&mut session);
        assert_eq!(writes.len(), 1);
        assert_eq!(writes[0].message, lines(&["SET a 1", "SET b 2"]));
        assert_eq!((writes[0].is_idempotent, writes[0].route), (false, Route::Primary));
        session.answer(writes[0].ticket, Ok(b"23".to_vec()));
        let pop = calls(&mut session);
        assert_eq!(pop[0].message, lines(&["LPOP c"]));
        session.answer(pop[0].ticket, Ok(b"4".to_vec()));
        let last = calls(&mut session);
        session.answer(last[0].ticket, Ok(b"5".to_vec()));
        assert_eq!(written(&mut session), "12345");
    }

    #[test]
    fn each_group_gets_what_its_keys_ask_for() {
        // 12182, 5061 and 866.
        let groups = Groups::new([(0, 8999, 0), (9000, 16383, 1)]).unwrap();
        let mut session = Session::new(Limits::default(), groups);
        session.receive(&lines(&["GET bar", "GET foo", "MGET bar foo", "DBSIZE", "PING"]));
        let reads = calls(&mut session);
        assert_eq!(reads.iter().map(|call| call.group).collect::<Vec<_>>(), [0, 1, 0]);
        for call in reads {
            session.answer(call.ticket, Ok(b"_".to_vec()));
        }
        assert_eq!(
            written(&mut session),
            "__-CROSSSLOT keys of this MGET are of several groups\r\n\
             -ERR DBSIZE cannot be called: nothing says which group of keys it is for\r\n_"
        );
        // Nothing passes a write of another group either.
        session.receive(&lines(&["SET bar 1", "SET hello 2", "SET foo 3", "GET bar"]));
        let mut messages = Vec::new();
        while let [call] = &calls(&mut session)[..] {
            messages.push((call.group, call.message.clone()));
            session.answer(call.ticket, Ok(b"_".to_vec()));
        }
        let expected = [
            (0, lines(&["SET bar 1", "SET hello 2"])),
            (1, lines(&["SET foo 3"])),
            (0, lines(&["GET bar"])),
        ];
        assert_eq!(messages, expected);
    }

    #[test]
    fn where_answers_are_long_few_calls_are_under_way() {
        let mut session =
            Session::new(Limits { answers_len_max: 1000, ..Limits::default() }, Groups::default());
        session.receive(&lines(&["GET a"; 2]));
        for call in calls(&mut session) {
            session.answer(call.ticket, Ok(vec![b'x'; 400]));
        }
        written(&mut session);
        session.receive(&lines(&["GET a"; 50]));
        assert_eq!(calls(&mut session).len(), 3);
    }

    #[test]
    fn a_run_that_fails_answers_each_of_its_commands() {
        let mut session = session();
        session.receive(&lines(&["SET a 1", "SET b 2"]));
        let call = calls(&mut session).remove(0);
        session.answer(call.ticket, Err(Failed::Refused("the queue\r\nis full".to_owned())));
        let error = "-REFUSED it has not run: the queue  is full\r\n";
        assert_eq!(written(&mut session), error.repeat(2));
    }

    fn codes(text: &str) -> Vec<&str> {
        text.lines().map(|line| line.split(' ').next().unwrap()).collect()
    }

    #[test]
    fn a_transaction_is_one_call_and_answered_command_by_command() {
        let mut session = session();
        session.receive(&lines(&["GET a", "MULTI", "SET a 1", "LPOP b", "GET a"]));
        let read = calls(&mut session).remove(0);
        session.answer(read.ticket, Ok(b"_".to_vec()));
        assert_eq!(written(&mut session), "_+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n");
        assert!(session.held() > 0);
        session.receive(&lines(&["EXEC", "GET a"]));
        let made = calls(&mut session);
        assert_eq!(made.len(), 1, "nothing passes it");
        let whole = ["MULTI", "SET a 1", "LPOP b", "GET a", "EXEC"];
        assert_eq!(made[0].message, lines(&whole));
        assert_eq!((made[0].is_idempotent, made[0].route), (false, Route::Primary));
        assert!(message::read(&made[0].message).unwrap().is_transaction);
        let reply = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n$-1\r\n$1\r\n1\r\n";
        session.answer(made[0].ticket, Ok(reply.to_vec()));
        assert_eq!(written(&mut session), "*3\r\n+OK\r\n$-1\r\n$1\r\n1\r\n");
        let last = calls(&mut session).remove(0);
        session.answer(last.ticket, Ok(b"_".to_vec()));
        assert!(written(&mut session) == "_" && session.is_idle() && session.held() == 0);
    }

    #[test]
    fn a_transaction_that_fails_is_answered_once() {
        let mut session = session();
        session.receive(&lines(&["MULTI", "INCR a", "EXEC"]));
        let call = calls(&mut session).remove(0);
        session.answer(call.ticket, Err(Failed::Refused("the queue is full".to_owned())));
        assert_eq!(codes(&written(&mut session)), ["+OK", "+QUEUED", "-REFUSED"]);
    }

    #[test]
    fn nothing_of_a_transaction_runs_that_has_an_error_or_is_given_up() {
        for (middle, expected) in [
            (&["BLPOP a 0"][..], &["+QUEUED", "-ERR", "-EXECABORT"][..]),
            (&["SELECT 0"], &["+QUEUED", "-ERR", "-EXECABORT"]),
            (&["MULTI"], &["+QUEUED", "-ERR", "-EXECABORT"]),
            (&["WATCH a"], &["+QUEUED", "-ERR", "-EXECABORT"]),
            (&["UNWATCH"], &["+QUEUED", "-ERR", "-EXECABORT"]),
            (&["DISCARD"], &["+QUEUED", "+OK", "-ERR"]),
            (&["QUIT"], &["+QUEUED", "+OK"]),
        ] {
            let mut session = session();
            session.receive(&lines(&[&["MULTI", "SET a 1"], middle, &["EXEC"]].concat()));
            assert!(session.poll_call().is_none(), "{middle:?}");
            let text = written(&mut session);
            assert_eq!(codes(&text)[1..], *expected, "{middle:?}");
        }
        // What was to be watched may have changed.
        let mut session = session();
        session.receive(&lines(&["WATCH a", "MULTI", "SET a 1", "EXEC"]));
        assert!(session.poll_call().is_none());
        assert_eq!(codes(&written(&mut session)), ["-ERR", "+OK", "+QUEUED", "-EXECABORT"]);
        session.receive(&lines(&["WATCH a", "UNWATCH", "MULTI", "EXEC"]));
        assert_eq!(calls(&mut session).len(), 1);
    }

    #[test]
    fn a_transaction_is_of_one_group() {
        let groups = Groups::new([(0, 8999, 0), (9000, 16383, 1)]).unwrap();
        let mut session = Session::new(Limits::default(), groups);
        session.receive(&lines(&["MULTI", "PING", "SET foo 1", "PING", "EXEC"]));
        assert_eq!(calls(&mut session)[0].group, 1);
        let mut session =
            Session::new(Limits::default(), Groups::new([(0, 8999, 0), (9000, 16383, 1)]).unwrap());
        session.receive(&lines(&["MULTI", "SET foo 1", "SET bar 1", "EXEC"]));
        assert!(session.poll_call().is_none());
        assert_eq!(codes(&written(&mut session))[2..], ["-CROSSSLOT", "-EXECABORT"]);
    }

    #[test]
    fn the_connection_has_a_protocol_and_database_0() {
        let mut session = session();
        session.receive(&lines(&[
            "HELLO 3",
            "GET a",
            "SELECT 0",
            "SELECT 1",
            "HELLO 4",
            "HELLO 2 AUTH a b",
        ]));
        let call = calls(&mut session).remove(0);
        assert_eq!(call.message, [RESP3, &lines(&["GET a"])].concat());
        session.answer(call.ticket, Ok(b"_\r\n".to_vec()));
        let text = written(&mut session);
        assert!(text.starts_with("%7\r\n$6\r\nserver\r\n"), "{text}");
        let rest = text.split_once("_\r\n").unwrap().1;
        assert!(
            rest.starts_with("+OK\r\n-ERR there is database 0") && rest.contains("-NOPROTO"),
            "{rest}"
        );
    }

    #[test]
    fn a_hello_that_is_refused_changes_nothing() {
        let mut session = session();
        session.receive(&lines(&["HELLO 3 AUTH a b", "HELLO 3 SETNAME", "HELLO 3 JUNK", "GET a"]));
        assert_eq!(calls(&mut session).remove(0).message, lines(&["GET a"]));
        let text = written(&mut session);
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.starts_with("-ERR ")));
        session.answer(3, Ok(b"_".to_vec()));
        session.receive(&lines(&["HELLO 3 SETNAME me", "GET a"]));
        assert_eq!(calls(&mut session).remove(0).message, [RESP3, &lines(&["GET a"])].concat());
    }

    #[test]
    fn nothing_follows_a_line_of_http() {
        for head in ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: here\r\n"] {
            let mut session = session();
            session.receive(head.as_bytes());
            session.receive(b"\r\nSET a 1\r\n");
            let made = calls(&mut session);
            assert!(made.iter().all(|call| call.is_idempotent), "{made:?}");
            for call in made {
                session.answer(call.ticket, Ok(b"-ERR wrong number of arguments\r\n".to_vec()));
            }
            assert!(written(&mut session).contains("it is of HTTP, and ends the connection\r\n"));
            assert!(session.poll_call().is_none() && session.is_over());
        }
    }

    #[test]
    fn nothing_follows_a_write_that_may_still_run() {
        for failed in [Failed::TimedOut, Failed::Uncertain("it is silent".to_owned())] {
            let mut session = session();
            session.receive(&lines(&["LPOP a", "SET a 1", "SET a 2"]));
            let call = calls(&mut session).remove(0);
            session.answer(call.ticket, Err(failed));
            assert!(session.poll_call().is_none());
            let text = written(&mut session);
            let codes: Vec<_> = text.lines().map(|line| line.split(' ').next().unwrap()).collect();
            assert_eq!(
                codes,
                ["-UNCERTAIN", "-REFUSED"],
                "what has not been read has not run either"
            );
            assert!(session.is_over() && !session.is_reading());
        }
        // A read changes nothing, and what has not run will not.
        let mut session = session();
        session.receive(&lines(&["GET a", "SET a 1", "GET a"]));
        let call = calls(&mut session).remove(0);
        session.answer(call.ticket, Err(Failed::TimedOut));
        let call = calls(&mut session).remove(0);
        session.answer(call.ticket, Err(Failed::Refused("the queue is full".to_owned())));
        assert_eq!(calls(&mut session).len(), 1);
    }

    #[test]
    fn a_connection_that_has_said_all_is_over_when_it_has_been_answered() {
        for end in [false, true] {
            let mut session = session();
            session.receive(&lines(if end { &["GET a", "QUIT", "GET b"] } else { &["GET a"] }));
            session.receive(if end { b"" } else { b"*1\r\n" });
            session.finish();
            let calls = calls(&mut session);
            assert_eq!((calls.len(), session.is_over()), (1, false));
            session.answer(calls[0].ticket, Ok(b"+a\r\n".to_vec()));
            assert_eq!(written(&mut session), if end { "+a\r\n+OK\r\n" } else { "+a\r\n" });
            assert!(session.poll_call().is_none() && session.is_over());
        }
    }

    #[test]
    fn what_is_no_command_ends_the_connection() {
        let mut session = session();
        session.receive(b"*1\r\n$1073741824\r\n");
        assert!(session.poll_call().is_none());
        assert_eq!(written(&mut session), "-ERR Protocol error: invalid bulk length\r\n");
        assert!(session.is_over() && session.held() == 0);
    }

    #[test]
    fn a_pipeline_that_is_too_long_is_not_read() {
        let mut session = session();
        session.receive(&lines(&["GET a"; 20]));
        let mut answered = 0;
        while answered < 20 {
            let calls = calls(&mut session);
            assert!((1..=3).contains(&calls.len()) && session.due.len() <= 8);
            for call in calls {
                session.answer(call.ticket, Ok(b"_".to_vec()));
                answered += 1;
            }
            written(&mut session);
        }
        assert!(session.is_reading() && session.is_idle());
    }

    proptest! {
        /// Whatever a client says, however its calls end: each is answered once and in order, and
        /// nothing passes a write.
        #[test]
        fn answers_are_in_order_and_nothing_passes_a_write(
            words in prop::collection::vec(prop::sample::select(vec!["GET a", "SET a 1", "LPOP a", "SELECT 0", "BLPOP a 0"]), 0..40),
            cut in 1_usize..60,
            pick in any::<prop::sample::Index>(),
        ) {
            let mut session = session();
            let bytes = lines(&words);
            let (mut fragments, mut under_way) = (bytes.chunks(cut), Vec::<Call>::new());
            let (mut out, mut is_over) = (String::new(), false);
            while !is_over {
                under_way.extend(calls(&mut session));
                let writes = under_way.iter().filter(|call| !call.is_idempotent).count();
                prop_assert!(writes == 0 || under_way.len() == 1);
                if session.is_reading() && let Some(fragment) = fragments.next() {
                    session.receive(fragment);
                    continue;
                }
                is_over = under_way.is_empty() && session.is_idle();
                if !under_way.is_empty() {
                    let call = under_way.swap_remove(pick.index(under_way.len()));
                    let count = call.message.iter().filter(|&&byte| byte == b'*').count();
                    let answer = if call.is_idempotent { "R" } else { "W" };
                    session.answer(call.ticket, Ok(answer.repeat(count).into_bytes()));
                }
                out += &written(&mut session);
            }
            let expected: String = words.iter().map(|word| match *word {
                "GET a" => "R".to_owned(),
                "SET a 1" | "LPOP a" => "W".to_owned(),
                "SELECT 0" => "+OK\r\n".to_owned(),
                _ => format!("-ERR BLPOP cannot be called: {}\r\n", Why::Blocking.text()),
            }).collect();
            prop_assert_eq!(out, expected);
        }
    }
}
