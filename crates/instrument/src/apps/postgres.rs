//! `postgres`: one statement of PostgreSQL, prepared once on each connection and executed by each
//! request (the extended protocol, version 3.0).
//!
//! | phase | becomes | when |
//! |---|---|---|
//! | entering | preparing | ReadyForQuery: the login is over; `Parse` is sent |
//! | preparing | ready | ReadyForQuery: the statement is prepared |
//! | entering, preparing | refused | ErrorResponse, which is told to people |
//!
//! A request is `Bind`, `Execute` and `Sync`; its reply ends with ReadyForQuery, and is an error
//! where an ErrorResponse came before. SCRAM-SHA-256, MD5 and passwords in clear are spoken, by the
//! crate postgres-protocol. SCRAM draws a nonce from the system, for which reason this is no file
//! of `measure`.
//!
//! Over TLS the server is asked by `SSLRequest` first, as drivers do it. Channel binding is not
//! spoken, and the server is told so.
//!
//! Invariant: rows are passed over and never held; what is held of a message is bounded.

use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::IsNull;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{ErrorFields, Message};
use postgres_protocol::message::frontend;
use rand::RngExt as _;
use tailcut_measure::app::{
    Answer, AppError, AppOption, Carrier, Codec, Entry, ErrorCode, ErrorKind, Expected, Loader,
    Login, Malformed, Options, Outcome, Reply, Serves, Session, Setting, TlsUpgrade, Write, quoted,
};
use tailcut_measure::generator::Generator;
use tailcut_measure::quantity::parse_count;

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: NAME,
    form: "postgres:query=SQL",
    about: "a statement of PostgreSQL, prepared once and executed by each request",
    options: &[OPTIONS],
    parse,
    carrier: Carrier::Stream,
    with_files: None,
    serves: Serves::Nothing,
}];

/// A statement, and where it is executed.
#[derive(Clone, Debug, PartialEq)]
struct Postgres {
    query: String,
    /// Parameters in their text forms, in which `{index}` stands for a number.
    params: Vec<String>,
    /// Numbers are drawn below it.
    keys: u64,
    /// The user's own, if there is none.
    database: Option<String>,
}

fn parse(text: &str, _: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError> {
    let mut options = Options::parse(NAME, text)?;
    let query = options.take("query")?.unwrap_or_else(|| "SELECT 1".to_owned());
    let params = options.take_all("param")?;
    let keys = match options.take("keys")? {
        Some(text) => {
            parse_count(&text).map_err(|source| AppError::Quantity { option: "keys", source })?
        }
        None => KEYS,
    };
    let database = options.take("database")?;
    options.finish(&[OPTIONS])?;
    for text in params.iter().chain([&query]).chain(&database) {
        if text.contains('\0') {
            let value = text.clone();
            return Err(AppError::Value { option: NAME, rule: "without a zero byte", value });
        }
    }
    if params.len() > PARAMS_MAX {
        let value = params.len().to_string();
        return Err(AppError::Value { option: "param", rule: "given 100 times at most", value });
    }
    Ok(Arc::new(Postgres { query, params, keys, database }))
}

impl Codec for Postgres {
    fn login_advice(&self, said: &str) -> &'static str {
        match said {
            said if said.contains("no encryption") => {
                "Ask over TLS: postgres://USER:PASSWORD@HOST/DATABASE?sslmode=verify-full."
            }
            said if said.starts_with("the login") => {
                "Correct the user, the password or the database in postgres://USER:PASSWORD@HOST/DATABASE."
            }
            _ => "Correct the statement: --app 'postgres:query=...'.",
        }
    }

    fn requests(&self, _: Setting<'_>, _: &mut Generator) -> Result<Write, AppError> {
        let Self { params, keys, .. } = self.clone();
        let mut buffer = BytesMut::new();
        let mut text = String::new();
        Ok(Box::new(move |tag, rng, out| {
            let index: u64 = rng.random_range(0..keys);
            buffer.clear();
            let bound = frontend::bind(
                "",
                STATEMENT,
                [0i16; 0],
                &params,
                |param: &String, into| {
                    text.clear();
                    write_param(param, index, &mut text);
                    into.extend_from_slice(text.as_bytes());
                    Ok(IsNull::No)
                },
                [0i16; 0],
                &mut buffer,
            );
            // Names and counts are checked where they are read.
            debug_assert!(bound.is_ok());
            let _ = frontend::execute("", 0, &mut buffer);
            frontend::sync(&mut buffer);
            out.extend_from_slice(&buffer);
            Expected { tag, due: 0 }
        }))
    }

    fn session(&self) -> Option<Box<dyn Session>> {
        Some(Box::new(Connection::new(self)))
    }

    fn tls_upgrade(&self) -> Option<TlsUpgrade> {
        Some(TlsUpgrade { request: SSL_REQUEST, agreed: b'S' })
    }

    /// As drivers do it: the next request leaves when the one before it is answered.
    fn pipeline_max(&self) -> Option<u32> {
        Some(1)
    }
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query={}", quoted(&self.query))?;
        self.params.iter().try_for_each(|param| write!(f, ",param={}", quoted(param)))?;
        if self.keys != KEYS {
            write!(f, ",keys={}", self.keys)?;
        }
        self.database.iter().try_for_each(|name| write!(f, ",database={}", quoted(name)))
    }
}

/// Writes a parameter with its number in the place of `{index}`.
fn write_param(param: &str, index: u64, text: &mut String) {
    let mut rest = param;
    while let Some((before, after)) = rest.split_once("{index}") {
        text.push_str(before);
        text.push_str(itoa::Buffer::new().format(index));
        rest = after;
    }
    text.push_str(rest);
}

/// One connection.
struct Connection {
    query: String,
    database: Option<String>,
    user: String,
    password: String,
    phase: Phase,
    scram: Option<ScramSha256>,
    /// The head of the message under way, as far as it has come.
    head: [u8; HEAD_LEN],
    head_len: usize,
    /// Bytes of the message that are still to come.
    left: usize,
    /// A message that is read and not passed over, with its head.
    message: BytesMut,
    /// Bytes that have been written and not sent yet.
    buffer: BytesMut,
    /// Requests that have been written, and those that are answered.
    written: u64,
    answered: u64,
    /// The error of the reply under way.
    error: Option<(ErrorKind, ErrorCode)>,
    /// Error code of the last reply.
    code: ErrorCode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Entering,
    Preparing,
    Ready,
    /// Refusal, with its reason for people.
    Refused(String),
}

impl Connection {
    fn new(app: &Postgres) -> Self {
        Self {
            query: app.query.clone(),
            database: app.database.clone(),
            user: String::new(),
            password: String::new(),
            phase: Phase::Entering,
            scram: None,
            head: [0; HEAD_LEN],
            head_len: 0,
            left: 0,
            message: BytesMut::new(),
            buffer: BytesMut::new(),
            written: 0,
            answered: 0,
            error: None,
            code: ErrorCode::default(),
        }
    }

    /// Lets what has been written leave.
    fn send(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.buffer);
        self.buffer.clear();
    }

    /// The head of a message has come: whether the message is read.
    fn is_read(&self, kind: u8) -> Result<bool, Malformed> {
        match (kind, &self.phase) {
            (b'E' | b'R', _) => Ok(true),
            (b'Z' | b'S' | b'K' | b'N' | b'A' | b'v', _) => Ok(false),
            (b'1', Phase::Preparing) => Ok(false),
            (b'2' | b'C' | b'D' | b'I' | b's' | b'n' | b'T', Phase::Ready) => Ok(false),
            _ => Err(NOT_POSTGRES),
        }
    }

    /// A message is over. What was read of it is in `message`.
    fn handle(&mut self, kind: u8, out: &mut Vec<u8>) -> Result<Option<Answer>, Malformed> {
        match kind {
            b'Z' => self.handle_ready(out),
            b'E' | b'R' => {
                let mut message = std::mem::take(&mut self.message);
                let read = Message::parse(&mut message).ok().flatten().ok_or(NOT_POSTGRES)?;
                message.clear();
                self.message = message;
                match read {
                    Message::ErrorResponse(body) => self.handle_error(body.fields()),
                    read => self.authenticate(read)?,
                }
                self.send(out);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn handle_ready(&mut self, out: &mut Vec<u8>) -> Result<Option<Answer>, Malformed> {
        match self.phase {
            Phase::Entering => {
                self.phase = Phase::Preparing;
                self.password.clear();
                let _ = frontend::parse(STATEMENT, &self.query, [0u32; 0], &mut self.buffer);
                frontend::sync(&mut self.buffer);
                self.send(out);
                Ok(None)
            }
            Phase::Preparing => {
                self.phase = Phase::Ready;
                Ok(None)
            }
            Phase::Ready if self.answered == self.written => Err(Malformed::Unsolicited),
            Phase::Ready => {
                let number = self.answered;
                self.answered += 1;
                let outcome = match self.error.take() {
                    Some((kind, code)) => {
                        self.code = code;
                        Outcome::Error(kind)
                    }
                    None => Outcome::Ok,
                };
                Ok(Some(Answer { number, reply: Reply::keep(outcome) }))
            }
            Phase::Refused(_) => Ok(None),
        }
    }

    fn handle_error(&mut self, mut fields: ErrorFields<'_>) {
        let (mut code, mut said) = (ErrorCode::default(), String::new());
        while let Ok(Some(field)) = fields.next() {
            match field.type_() {
                b'C' => code = ErrorCode::of(field.value_bytes()),
                b'M' => said = String::from_utf8_lossy(field.value_bytes()).into_owned(),
                _ => {}
            }
        }
        let what = match self.phase {
            Phase::Entering => "the login",
            Phase::Preparing => "the statement",
            Phase::Ready => {
                self.error = Some((kind(&code.text()), code));
                return;
            }
            Phase::Refused(_) => return,
        };
        self.phase = Phase::Refused(format!("{what}: {said} (SQLSTATE {})", code.text()));
    }

    /// Goes on with the login.
    fn authenticate(&mut self, message: Message) -> Result<(), Malformed> {
        if self.phase != Phase::Entering {
            return Err(NOT_POSTGRES);
        }
        let refused = |why: &str| Phase::Refused(format!("the login: {why}"));
        let password = self.password.as_bytes();
        match message {
            Message::AuthenticationOk => {}
            _ if password.is_empty() => self.phase = refused("it asks for a password"),
            Message::AuthenticationCleartextPassword => {
                frontend::password_message(password, &mut self.buffer).map_err(|_| TOO_LONG)?;
            }
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(self.user.as_bytes(), password, body.salt());
                frontend::password_message(hash.as_bytes(), &mut self.buffer)
                    .map_err(|_| TOO_LONG)?;
            }
            Message::AuthenticationSasl(body) => {
                let is_known = body.mechanisms().any(|name| Ok(name == SCRAM_SHA_256));
                if !is_known.unwrap_or(false) {
                    self.phase = refused("it asks for a login that is not spoken");
                    return Ok(());
                }
                let scram = ScramSha256::new(password, ChannelBinding::unsupported());
                frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut self.buffer)
                    .map_err(|_| TOO_LONG)?;
                self.scram = Some(scram);
            }
            Message::AuthenticationSaslContinue(body) => {
                let scram = self.scram.as_mut().ok_or(NOT_POSTGRES)?;
                scram.update(body.data()).map_err(|_| NOT_POSTGRES)?;
                frontend::sasl_response(scram.message(), &mut self.buffer).map_err(|_| TOO_LONG)?;
            }
            Message::AuthenticationSaslFinal(body) => {
                let mut scram = self.scram.take().ok_or(NOT_POSTGRES)?;
                if scram.finish(body.data()).is_err() {
                    self.phase = refused("the server does not know the password itself");
                }
            }
            _ => self.phase = refused("it asks for a login that is not spoken"),
        }
        Ok(())
    }
}

impl Session for Connection {
    fn begin(&mut self, login: Option<Login<'_>>, out: &mut Vec<u8>) {
        let user = login.and_then(|login| login.user).unwrap_or("postgres");
        self.user = user.to_owned();
        self.password = login.map(|login| login.password.to_owned()).unwrap_or_default();
        let database = self.database.as_deref().unwrap_or(user);
        let said = [
            ("user", user),
            ("database", database),
            ("client_encoding", "UTF8"),
            ("application_name", "tailcut"),
        ];
        // A user with a zero byte in it, which no server knows, is the only thing that it refuses.
        if frontend::startup_message(said, &mut self.buffer).is_err() {
            self.phase = Phase::Refused("the login: a user has no zero byte".to_owned());
        }
        self.send(out);
    }

    fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    fn has_room(&self) -> bool {
        self.phase == Phase::Ready
    }

    fn write(&mut self, request: &[u8], out: &mut Vec<u8>) {
        self.written += 1;
        out.extend_from_slice(request);
    }

    fn take(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>) -> Result<Option<Answer>, Malformed> {
        loop {
            if self.head_len < HEAD_LEN {
                let (part, rest) = bytes.split_at(bytes.len().min(HEAD_LEN - self.head_len));
                self.head[self.head_len..][..part.len()].copy_from_slice(part);
                self.head_len += part.len();
                *bytes = rest;
                if self.head_len < HEAD_LEN {
                    return Ok(None);
                }
                let [kind, a, b, c, d] = self.head;
                let len = u32::from_be_bytes([a, b, c, d]) as usize;
                self.left = len.checked_sub(4).ok_or(NOT_POSTGRES)?;
                if self.is_read(kind)? {
                    if self.left > MESSAGE_LEN_MAX {
                        return Err(TOO_LONG);
                    }
                    self.message.extend_from_slice(&self.head);
                } else if self.left > ROW_LEN_MAX {
                    return Err(TOO_LONG);
                }
            }
            let (part, rest) = bytes.split_at(bytes.len().min(self.left));
            if !self.message.is_empty() {
                self.message.extend_from_slice(part);
            }
            *bytes = rest;
            self.left -= part.len();
            if self.left > 0 {
                return Ok(None);
            }
            self.head_len = 0;
            let answer = self.handle(self.head[0], out)?;
            if answer.is_some() {
                return Ok(answer);
            }
        }
    }

    fn error_code(&self) -> ErrorCode {
        self.code
    }

    fn refusal(&self) -> Option<String> {
        match &self.phase {
            Phase::Refused(why) => Some(why.clone()),
            Phase::Entering | Phase::Preparing | Phase::Ready => None,
        }
    }
}

/// Without the password.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("phase", &self.phase)
            .field("written", &self.written)
            .field("answered", &self.answered)
            .finish_non_exhaustive()
    }
}

/// The kind of a SQLSTATE (PostgreSQL's documentation, appendix A).
fn kind(state: &str) -> ErrorKind {
    match state.get(..2) {
        _ if state == "42501" => ErrorKind::Unauthorised,
        Some("28") => ErrorKind::Unauthorised,
        // Serialization, resources, locks, an operator.
        Some("40" | "53" | "55" | "57") => ErrorKind::Busy,
        Some("54" | "58" | "F0" | "XX") => ErrorKind::Failed,
        _ => ErrorKind::Refused,
    }
}

const NAME: &str = "postgres";
/// Four bytes of length, and the number that stands in the place of a version.
const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
/// The prepared statement's name.
const STATEMENT: &str = "tailcut";
const NOT_POSTGRES: Malformed = Malformed::Syntax("a message of PostgreSQL that may come here");
const TOO_LONG: Malformed = Malformed::TooLong("messages");
/// A message's kind and length.
const HEAD_LEN: usize = 5;
/// Longest message that is read.
const MESSAGE_LEN_MAX: usize = 1 << 16;
/// Longest row, which is passed over: the most that PostgreSQL itself sends.
const ROW_LEN_MAX: usize = 1 << 30;
const PARAMS_MAX: usize = 100;
/// Numbers that `{index}` stands for, by default.
const KEYS: u64 = 10_000;

const OPTIONS: &[AppOption] = &[
    AppOption {
        name: "query",
        form: "query=SQL",
        about: "the statement, in which $1 and so on stand for parameters; SELECT 1 by default",
        example: "postgres:query=SELECT now()",
    },
    AppOption {
        name: "param",
        form: "param=TEXT",
        about: "a parameter, the next one each time; {index} in it is a number below keys",
        example: "postgres:query=SELECT v FROM kv WHERE k = $1,param={index}",
    },
    AppOption {
        name: "keys",
        form: "keys=N",
        about: "how many numbers {index} stands for, each equally likely; 10,000 by default",
        example: "postgres:query=SELECT $1::int,param={index},keys=1M",
    },
    AppOption {
        name: "database",
        form: "database=NAME",
        about: "the database; that of the URL, or of the user's name by default",
        example: "postgres:database=shop,query=SELECT 1",
    },
];

#[cfg(test)]
mod tests {
    use tailcut_measure::app::{App, Conversation, Requests};
    use tailcut_measure::generator::generator;

    use super::super::parse;
    use super::*;

    fn app(text: &str) -> App {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    fn ready() -> Vec<u8> {
        message(b'Z', b"I")
    }

    fn error(state: &str, said: &str) -> Vec<u8> {
        message(b'E', format!("SERROR\0C{state}\0M{said}\0\0").as_bytes())
    }

    /// Messages of the server until a statement is prepared, to a user whom it trusts.
    fn welcome() -> Vec<u8> {
        let parts = [
            message(b'R', &[0; 4]),
            message(b'S', b"server_version\x0015.0\0"),
            message(b'K', &[7; 8]),
            ready(),
            message(b'1', b""),
            ready(),
        ];
        parts.concat()
    }

    /// A connection that is ready, its requests, and what it has written since.
    fn connected(text: &str) -> (Conversation, Requests, Vec<u8>) {
        let app = app(text);
        let (mut conversation, mut out) = (Conversation::new(&app), Vec::new());
        conversation.begin(Some(Login { user: Some("me"), password: "" }), &mut out);
        assert!(out[8..].starts_with(b"user\0me\0database\0"), "{out:?}");
        out.clear();
        assert_eq!(conversation.take(&mut &welcome()[..], &mut out), Ok(None));
        assert!(conversation.is_ready());
        let setting = Setting { carrier: Carrier::Stream, authority: "", is_tls: false };
        let requests = Requests::new(&app, setting, generator(1, 0)).expect("it fits");
        (conversation, requests, out)
    }

    #[test]
    fn it_prints_in_full_and_refuses_what_is_none() {
        for (text, printed) in [
            ("postgres", "postgres:query=SELECT 1"),
            (
                "postgres:param=a,param={index},keys=5",
                "postgres:query=SELECT 1,param=a,param={index},keys=5",
            ),
            (
                "postgres:database=d,query=\"SELECT 1, 2\"",
                "postgres:query=\"SELECT 1, 2\",database=d",
            ),
        ] {
            assert_eq!(app(text).to_string(), printed);
            assert_eq!(app(printed), app(text));
        }
        for (text, part) in [
            ("postgres:x=1", "has no option \"x\""),
            ("postgres:keys=0", "above zero"),
            ("postgres:query=a\0b", "zero byte"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        for option in OPTIONS {
            assert!(app(option.example).to_string().contains(option.name), "{option:?}");
        }
    }

    #[test]
    fn a_statement_is_prepared_once_and_executed_by_each_request() {
        let (mut conversation, mut requests, mut out) =
            connected("postgres:param=k{index}-,keys=1");
        // Parse and Sync.
        assert_eq!(out, [message(b'P', b"tailcut\0SELECT 1\0\0\0"), message(b'S', b"")].concat());
        out.clear();
        conversation.write(&mut out, &mut |out| requests.write(out));
        let bind = message(b'B', b"\0tailcut\0\0\0\0\x01\0\0\0\x03k0-\0\0");
        assert_eq!(out, [bind, message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat());
    }

    #[test]
    fn replies_are_found_however_they_are_cut() {
        let row = message(b'D', &[b'x'; 300]);
        let bytes = [
            [message(b'2', b""), row, message(b'C', b"SELECT 1\0"), ready()].concat(),
            [error("22012", "division by zero"), ready()].concat(),
            [message(b'N', b"SNOTICE\0\0"), message(b'2', b""), message(b'I', b""), ready()]
                .concat(),
        ]
        .concat();
        for fragment_len in [1, 2, 7, 1_000] {
            let (mut conversation, mut requests, mut out) = connected("postgres");
            for _ in 0..3 {
                conversation.write(&mut out, &mut |out| requests.write(out));
            }
            let mut found = Vec::new();
            for mut part in bytes.chunks(fragment_len) {
                while let Some(answer) = conversation.take(&mut part, &mut out).expect("replies") {
                    found.push((answer.number, answer.reply.outcome));
                }
            }
            let refused = Outcome::Error(ErrorKind::Refused);
            assert_eq!(found, [(0, Outcome::Ok), (1, refused), (2, Outcome::Ok)]);
            assert_eq!(conversation.error_code().text(), "22012");
            assert!(conversation.take(&mut &ready()[..], &mut out).is_err(), "nothing is due");
        }
    }

    #[test]
    fn a_refusal_is_told_with_its_words() {
        let (app, mut out) = (app("postgres"), Vec::new());
        let mut refused = |bytes: &[u8], password: &str| {
            let mut conversation = Conversation::new(&app);
            conversation.begin(Some(Login { user: Some("me"), password }), &mut out);
            let _ = conversation.take(&mut &bytes[..], &mut out);
            conversation.refusal().unwrap_or_default()
        };
        let wrong = error("28P01", "password authentication failed");
        assert_eq!(
            refused(&wrong, "x"),
            "the login: password authentication failed (SQLSTATE 28P01)"
        );
        let scram = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
        assert_eq!(refused(&scram, ""), "the login: it asks for a password");
        assert_eq!(refused(&scram, "x"), "");
        let kerberos = message(b'R', &[0, 0, 0, 7]);
        assert!(refused(&kerberos, "x").contains("not spoken"));
        let broken = [message(b'R', &[0; 4]), ready(), error("42601", "syntax error")].concat();
        assert_eq!(refused(&broken, ""), "the statement: syntax error (SQLSTATE 42601)");
    }

    #[test]
    fn what_is_no_postgresql_ends_the_connection() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"-ERR unknown command\r\n",
            b"R\0\0\0\x01",
            b"D\0\0\0\x04",
            b"E\x7f\0\0\0",
        ] {
            let (mut conversation, mut out) = (Conversation::new(&app("postgres")), Vec::new());
            conversation.begin(None, &mut out);
            assert!(conversation.take(&mut &bytes[..], &mut out).is_err(), "{bytes:?}");
            assert_eq!(conversation.refusal(), None);
        }
    }
}
