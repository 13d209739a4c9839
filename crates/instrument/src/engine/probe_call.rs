//! A request to each target before the load: whoever asks the wrong port, or in the wrong protocol,
//! hears at once which.
//!
//! | the target | then |
//! |---|---|
//! | answers, though it may be busy or have failed | the load begins |
//! | says with an error that it will not, or knows none of the keys | that is said, with its words |
//! | says what is no reply | the protocol is named by its first bytes |
//! | ends the connection, or is silent | it is asked what it speaks, by [`identify`](super::identify) |
//! | cannot be reached | why |
//!
//! Invariant: nobody is told of a wrong target but by what it said, or because it was silent for as
//! long as any request of the load might wait.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use anyhow::Result;
use tailcut_measure::app::{
    After, App, Conversation, ErrorCode, ErrorKind, Expected, Outcome, Requests, Spoken, error_name,
};
use tailcut_measure::generator::generator;
use tailcut_net::clock::Clock;
use tailcut_net::datagram::{DatagramConfig, DatagramEvent, Datagrams};
use tailcut_net::driver::Wait;
use tailcut_net::stream::{Connection, Event, Reason, StreamConfig, Streams, TlsClient};
use tailcut_proto::node::Time;

use super::calls::{self, CallEnd};
use super::identify::{accepts_tcp, identify, refine, upgrades_postgres};
use super::plan::Plan;
use super::target::Target;
use crate::job::{Job, Transport};

/// Fault of a target, and what would help: a line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
struct Complaint {
    cause: String,
    advice: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nWhat would help: {}", self.cause, self.advice)
    }
}

fn complain<T>(cause: String, advice: impl Into<String>) -> Result<T, Complaint> {
    Err(Complaint { cause, advice: advice.into() })
}

/// Asks each target that the plan names for that.
///
/// # Errors
///
/// What is wrong with one.
pub(super) fn run(plan: &Plan, tls: Option<&TlsClient>) -> Result<()> {
    for &target in &plan.probed {
        let asked = Asked::new(plan, target, tls)?;
        match plan.job.transport {
            Transport::Tcp | Transport::Tls => asked.stream()?,
            Transport::Udp => asked.datagrams()?,
            Transport::R2p2 | Transport::Homa | Transport::HomaIp | Transport::HomaTcp => {
                asked.calls(plan)?;
            }
            // A switch would place it as any request.
            Transport::NetClone => {}
        }
    }
    Ok(())
}

/// A target that is asked.
struct Asked<'a> {
    target: Target,
    /// Its address; of no meaning for a Unix socket.
    address: SocketAddr,
    app: &'a App,
    job: &'a Job,
    tls: Option<&'a TlsClient>,
    /// Requests, and the replies that are due for them.
    requests: VecDeque<(Vec<u8>, Expected)>,
    /// Time at which the asking was begun.
    start: Time,
}

impl<'a> Asked<'a> {
    fn new(plan: &'a Plan, target: SocketAddr, tls: Option<&'a TlsClient>) -> Result<Self> {
        let mut drawn = Requests::new(
            &plan.app,
            plan.setting(),
            generator(plan.job.seed, plan.request_stream()),
        )?;
        // Where a store may be empty, one key that is missing says nothing.
        let may_miss =
            !plan.job.preload && plan.app.preload(plan.job.transport.carrier())?.is_some();
        let paced = 1 + (PACED_NS / plan.gap_ns().max(1)).min(KEYS_ASKED as u64 - 1) as usize;
        let count = if may_miss && plan.job.transport.is_stream() { paced } else { 1 };
        let requests = (0..count).map(|_| {
            let mut request = Vec::new();
            let expected = drawn.write(&mut request);
            (request, expected)
        });
        let (app, job, start) = (&plan.app, &plan.job, Clock.now());
        let (address, target) = (target, Target::of(plan.unix.as_ref(), target));
        Ok(Self { target, address, app, job, tls, requests: requests.collect(), start })
    }

    /// Longest wait for a silent target, ns: as long as a request of the load might wait.
    fn patience_ns(&self) -> u64 {
        self.job.timeout_ns.max(SILENT_NS)
    }

    fn stream(&self) -> Result<()> {
        let mut dialogue = self.converse()?;
        // A server that is being started may not listen yet; it has all its time from then on.
        while dialogue.end == Some(End::Closed(Reason::Refused))
            && Clock.now() < self.start + STARTING_NS
        {
            std::thread::park_timeout(std::time::Duration::from_millis(50));
            dialogue = self.converse()?;
        }
        Ok(self.judge_stream(&dialogue)?)
    }

    /// Speaks with the target until the outcome is known.
    fn converse(&self) -> Result<Dialogue> {
        let config = StreamConfig { connect_timeout_ns: SILENT_NS, ..StreamConfig::default() };
        let mut streams = Streams::new(WAIT, config)?;
        let mut dialogue = Dialogue::new(self.app);
        let id = match self.target.connect(&mut streams, self.tls) {
            Err(error) if self.target.refusal(&error).is_some() => {
                dialogue.end = self.target.refusal(&error).map(End::Closed);
                return Ok(dialogue);
            }
            id => id?,
        };
        let start = Clock.now();
        let until = start + self.patience_ns();
        // Who speaks a protocol of its own is asked in others only when nothing else is left.
        let is_known = IDENTIFIED.iter().any(|spoken| spoken.is_of(self.app.name()));
        let mut identify_at = Some(if is_known { start + IDENTIFY_NS } else { until });
        while dialogue.end.is_none() {
            let next = identify_at.filter(|_| dialogue.heard.is_empty()).unwrap_or(until);
            streams.poll(Some(next.min(until)), |connection, event| {
                dialogue.handle(self, connection, event);
            })?;
            let now = Clock.now();
            if dialogue.end.is_some() {
                break;
            }
            // It may be slow, or understand nothing.
            if identify_at.is_some_and(|at| at <= now) && dialogue.heard.is_empty() {
                identify_at = None;
                let other = identify(&self.target).filter(|&spoken| !self.expects(spoken));
                dialogue.end = other.map(|spoken| End::Silent(Some(spoken)));
            } else if now >= until {
                dialogue.end = Some(End::Silent(None));
            }
        }
        streams.close(id);
        Ok(dialogue)
    }

    /// True if the target may well speak this protocol.
    fn expects(&self, spoken: Spoken) -> bool {
        let over_tls = self.job.transport == Transport::Tls;
        match spoken {
            Spoken::Tls => over_tls,
            // It speaks in clear at first, whatever it agrees to then.
            Spoken::Postgres if over_tls => {
                spoken.is_of(self.app.name()) && upgrades_postgres(&self.target)
            }
            _ => spoken.is_of(self.app.name()) && !over_tls,
        }
    }

    fn judge_stream(&self, dialogue: &Dialogue) -> Result<(), Complaint> {
        let (target, app) = (&self.target, self.app.name());
        match dialogue.end.as_ref() {
            Some(End::Answered) | None => self.judge_outcomes(dialogue),
            Some(End::Malformed) => match self.spoken(dialogue) {
                Some(spoken) if !spoken.is_of(app) => self.speaks(spoken),
                _ => complain(
                    format!(
                        "{target} answers with what is no reply of {app}: {:?}",
                        shown(&dialogue.heard)
                    ),
                    "Look which protocol the server speaks there, and correct the port or --app.",
                ),
            },
            Some(End::Silent(Some(spoken))) => self.speaks(*spoken),
            Some(End::Silent(None)) => self.silent(""),
            Some(End::Closed(reason)) => self.judge_closed(reason),
        }
    }

    /// The protocol in which the target has answered.
    fn spoken(&self, dialogue: &Dialogue) -> Option<Spoken> {
        let spoken = Spoken::of(&dialogue.heard)?;
        Some(if self.tls.is_some() { spoken } else { refine(&self.target, spoken) })
    }

    /// The target has answered every request.
    fn judge_outcomes(&self, dialogue: &Dialogue) -> Result<(), Complaint> {
        let target = &self.target;
        if let Some(said) = dialogue.conversation.refusal() {
            let said = match said.as_str() {
                "" => format!("the login: {}", shown_line(&dialogue.heard)),
                said => shown(said.as_bytes()),
            };
            let advice = self.app.login_advice(&said);
            return complain(format!("{target} refuses {said}"), advice);
        }
        if let Some(error) = dialogue.outcomes.iter().find(|outcome| is_fatal(**outcome)) {
            let said = dialogue.said();
            if self.app.name() == "grpc" && !dialogue.is_of_grpc() {
                return complain(
                    format!("{target} speaks HTTP/2 without gRPC: it answers {said}"),
                    "Correct the port or the method, or measure h2://HOST:PORT/PATH.",
                );
            }
            if Spoken::of(&dialogue.heard) == Some(Spoken::Tls) {
                return self.speaks(Spoken::Tls);
            }
            if *error == Outcome::Error(ErrorKind::Unauthorised) {
                let advice = self.app.credentials_advice();
                return complain(format!("{target} asks for credentials: {said}"), advice);
            }
            return complain(
                format!("{target} answers {} with an error: {said}", self.app.name()),
                "Correct what is asked for; --no-probe loads it all the same.",
            );
        }
        let (misses, all) = (dialogue.misses(), dialogue.outcomes.len());
        if 2 * misses > all && all >= KEYS_ASKED {
            return complain(
                format!("the store at {target} is empty: {misses} of {all} keys are not there"),
                "Fill it first, with --preload (in a store for tests); --no-probe loads it all the same.",
            );
        }
        Ok(())
    }

    fn judge_closed(&self, reason: &Reason) -> Result<(), Complaint> {
        let target = &self.target;
        match reason {
            Reason::Refused if matches!(target, Target::Unix(_)) => complain(
                format!("nobody listens there: {target}"),
                "Start the server or correct the path; `ss -lx` lists the sockets of a host.",
            ),
            Reason::Refused => complain(
                format!("nobody listens there: {target} over TCP"),
                "Start the server or correct host and port; `ss -ltn` lists what listens on a host.",
            ),
            Reason::TimedOut => complain(
                format!("{target} lets no connection be opened: nothing came back"),
                "Correct host and port, or see whether a firewall drops packets on the way.",
            ),
            Reason::Unreachable => complain(
                format!("{target} cannot be reached: there is no way to it"),
                "Correct the host, or see to the routes of this one.",
            ),
            Reason::Other(number) => complain(
                format!("{target}: {}", std::io::Error::from_raw_os_error(*number)),
                "Correct host and port.",
            ),
            Reason::Tls(why) => self.judge_tls(why),
            Reason::Reset | Reason::Ended => match identify(&self.target) {
                Some(spoken) if !self.expects(spoken) => self.speaks(spoken),
                _ => complain(
                    format!(
                        "{target} ends the connection when it is asked for {}",
                        self.app.name()
                    ),
                    "Look which protocol the server speaks there, and into its log.",
                ),
            },
        }
    }

    fn judge_tls(&self, why: &str) -> Result<(), Complaint> {
        let target = &self.target;
        if why.contains("ApplicationProtocol") {
            return complain(
                format!("{target} does not offer {} over TLS", self.app.name()),
                format!("Measure https://{target}, or let the server speak HTTP/2 (ALPN h2)."),
            );
        }
        if !why.contains("certificate") {
            return match identify(&self.target) {
                Some(spoken) if !self.expects(spoken) => self.speaks(spoken),
                _ => complain(
                    format!("{target} speaks no TLS that fits: {why}"),
                    "Measure it without TLS, or look into the server's log.",
                ),
            };
        }
        let (fault, advice) = match why {
            _ if why.contains("CaUsedAsEndEntity") => (
                "it is one for signing others, as `openssl req -x509` makes them",
                "Make one for a server (openssl req -x509 -addext basicConstraints=CA:FALSE), or trust it: --insecure.",
            ),
            _ if ["UnknownIssuer", "BadSignature", "UnsupportedSignature"]
                .iter()
                .any(|kind| why.contains(kind)) =>
            {
                (
                    "nobody that is trusted has signed it",
                    "Say whom to trust: --ca FILE; or accept any certificate: --insecure.",
                )
            }
            _ if why.contains("not valid for name") || why.contains("NotValidForName") => {
                ("it is for another name", "Say which name to ask for: --server-name NAME.")
            }
            _ if why.contains("expired") || why.contains("Expired") => {
                ("it has expired", "Renew it, or trust it: --insecure.")
            }
            why => (why, "Say whom to trust: --ca FILE; or accept any certificate: --insecure."),
        };
        complain(format!("the certificate of {target} cannot be relied on: {fault}"), advice)
    }

    /// The target speaks another protocol.
    fn speaks(&self, spoken: Spoken) -> Result<(), Complaint> {
        let (target, app, name) = (&self.target, self.app.name(), spoken.as_ref());
        let over_tls = self.job.transport == Transport::Tls;
        let cause = match spoken {
            Spoken::Tls => format!("{target} speaks TLS, but was asked for {app} without it"),
            _ if spoken.is_of(app) && over_tls => {
                format!("{target} speaks {name} without TLS, but was asked over TLS")
            }
            _ => format!("{target} speaks {name}, but was asked for {app}"),
        };
        let advice = match (spoken, spoken.scheme()) {
            (Spoken::Tls, _) => match app {
                "http" => format!("Measure https://{target}, or take --transport tls."),
                "redis" => format!("Measure rediss://{target}, or take --transport tls."),
                _ => "Take --transport tls.".to_owned(),
            },
            (_, Some(scheme)) => format!("Measure {scheme}://{target}, or correct the port."),
            (_, None) => "Correct the port: this protocol is not measured.".to_owned(),
        };
        complain(cause, advice)
    }

    fn silent(&self, why: &str) -> Result<(), Complaint> {
        let seconds = self.patience_ns() as f64 / 1e9;
        complain(
            format!(
                "{} does not answer {}: nothing within {seconds:.1} s{why}",
                self.target,
                self.app.name()
            ),
            "See whether the server runs, is stopped, or speaks something else; --timeout waits for longer.",
        )
    }

    fn datagrams(&self) -> Result<()> {
        let mut framer = self.app.datagrams()?;
        let mut datagrams = Datagrams::new(WAIT, DatagramConfig::default())?;
        let flow = datagrams.open(self.address)?;
        let Some((request, expected)) = self.requests.front() else { return Ok(()) };
        let (mut end, mut heard) = (None, Vec::new());
        let until = self.start + self.patience_ns();
        while end.is_none() && Clock.now() < until {
            datagrams.queue(flow, request);
            datagrams.flush();
            let again = (Clock.now() + AGAIN_NS).min(until);
            while end.is_none() && Clock.now() < again {
                datagrams.poll(Some(again), |_, event| match event {
                    DatagramEvent::Bytes(bytes, _) => {
                        heard = bytes[..bytes.len().min(HEARD_LEN_MAX)].to_vec();
                        end = match framer.take(bytes, *expected) {
                            Ok(_) => Some(End::Answered),
                            Err(_) => Some(End::Malformed),
                        };
                    }
                    DatagramEvent::Refused => end = Some(End::Closed(Reason::Refused)),
                    DatagramEvent::Unreachable => end = Some(End::Closed(Reason::Unreachable)),
                    DatagramEvent::Sent(_) => {}
                })?;
            }
        }
        match end {
            Some(End::Answered) => Ok(()),
            Some(End::Closed(Reason::Refused)) => Ok(self.closed_port()?),
            None => Ok(self.silent("; UDP tells nobody that it was dropped")?),
            end => Ok(self.judge_stream(&Dialogue { end, heard, ..Dialogue::new(self.app) })?),
        }
    }

    fn calls(&self, plan: &Plan) -> Result<()> {
        let Some((request, _)) = self.requests.front() else { return Ok(()) };
        let name = self.job.transport.as_ref();
        match calls::ask(plan, self.address, request, self.patience_ns())? {
            CallEnd::Answered => Ok(()),
            CallEnd::Denied(why) => Ok(self.denied(&why)?),
            CallEnd::NoKey => Ok(self.without_key()?),
            CallEnd::Undeliverable => Ok(self.closed_port()?),
            CallEnd::Silent if accepts_tcp(self.address) => Ok(self.closed_port()?),
            CallEnd::Silent if self.job.seal.is_some() => {
                let why =
                    format!(" over {name}, sealed: it may also have no keys, or another group's");
                Ok(self.silent(&why)?)
            }
            CallEnd::Silent => Ok(self.silent(&format!(" over {name}"))?),
        }
    }

    /// The server's policy does not allow what is asked.
    fn denied(&self, why: &str) -> Result<(), Complaint> {
        complain(
            format!("{} refuses {}", self.target, shown(why.as_bytes())),
            "Add the client's number to the server's policy (--access), or take keys of one that may call.",
        )
    }

    fn without_key(&self) -> Result<(), Complaint> {
        complain(
            format!("{} has no key of the epoch under which this client calls", self.target),
            "Give both the group's keys of now: `tailcut keys show FILE` tells epochs and times.",
        )
    }

    /// Nothing listens at the port over UDP; perhaps something does over TCP.
    fn closed_port(&self) -> Result<(), Complaint> {
        let (target, transport) = (&self.target, self.job.transport.as_ref());
        if !accepts_tcp(self.address) {
            return complain(
                format!("nobody listens there: {target} over UDP, which {transport} goes by"),
                "Start the server or correct host and port; `ss -lun` lists what listens on a host.",
            );
        }
        match identify(&self.target) {
            Some(spoken) => {
                let name = spoken.as_ref();
                let advice = spoken.scheme().map_or_else(
                    || "Correct the port, or take --transport tls.".to_owned(),
                    |scheme| format!("Measure {scheme}://{target}, or take --transport tcp."),
                );
                complain(
                    format!("{target} speaks {name} over TCP, but was asked over {transport}"),
                    advice,
                )
            }
            None => complain(
                format!(
                    "{target} listens over TCP, but was asked over {transport}, which goes over UDP"
                ),
                "Take --transport tcp, or correct the port.",
            ),
        }
    }
}

/// Requests and replies on a connection.
struct Dialogue {
    conversation: Conversation,
    /// The next request.
    next: usize,
    outcomes: Vec<Outcome>,
    /// The error that was answered last.
    error: Option<(ErrorKind, ErrorCode)>,
    /// The first bytes that came.
    heard: Vec<u8>,
    end: Option<End>,
}

/// Outcome of a dialogue.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Answered,
    Malformed,
    Closed(Reason),
    /// With the protocol that was found to be spoken instead.
    Silent(Option<Spoken>),
}

impl Dialogue {
    fn new(app: &App) -> Self {
        Self {
            conversation: Conversation::new(app),
            next: 0,
            outcomes: Vec::new(),
            error: None,
            heard: Vec::new(),
            end: None,
        }
    }

    /// The error that was answered, in words of its protocol.
    fn said(&self) -> String {
        match self.error.filter(|_| self.conversation.is_session()) {
            Some((kind, code)) => error_name(kind, code),
            None => shown_line(&self.heard),
        }
    }

    /// True if the error that was answered is one of gRPC.
    fn is_of_grpc(&self) -> bool {
        self.error.is_some_and(|(_, code)| code.text().starts_with("grpc-"))
    }

    fn misses(&self) -> usize {
        self.outcomes.iter().filter(|&&outcome| outcome == Outcome::Miss).count()
    }

    fn handle(&mut self, asked: &Asked<'_>, connection: &mut Connection<'_>, event: Event<'_>) {
        match event {
            Event::Connected => {
                let login = asked.job.login.as_ref().map(|login| login.login());
                self.conversation.begin(login, connection.output());
                self.ask(asked, connection.output());
            }
            Event::Bytes(bytes) => {
                let room = HEARD_LEN_MAX.saturating_sub(self.heard.len());
                self.heard.extend_from_slice(&bytes[..bytes.len().min(room)]);
                self.take(bytes, connection.output());
                if self.end.is_none() {
                    self.ask(asked, connection.output());
                }
            }
            Event::Finished => {
                self.end = Some(match self.conversation.finish() {
                    Ok(Some(reply)) => {
                        self.outcomes.push(reply.outcome);
                        End::Answered
                    }
                    _ => End::Closed(Reason::Ended),
                });
            }
            Event::Closed(reason) => self.end = Some(End::Closed(reason)),
            Event::Sent(_) | Event::Accepted(_) => {}
        }
    }

    /// Sends the next request once the one before it is answered; where there is none, everything
    /// is.
    fn ask(&mut self, asked: &Asked<'_>, out: &mut Vec<u8>) {
        if !self.conversation.has_room() || self.outcomes.len() < self.next {
            return;
        }
        let Some((request, expected)) = asked.requests.get(self.next) else {
            self.end = Some(End::Answered);
            return;
        };
        self.next += 1;
        self.conversation.write(out, &mut |out| {
            out.extend_from_slice(request);
            *expected
        });
    }

    fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        let was_ready = self.conversation.is_ready();
        while self.end.is_none() {
            let reply = match self.conversation.take(&mut bytes, out) {
                Ok(None) => break,
                Err(_) if self.conversation.refusal().is_some() => {
                    self.end = Some(End::Answered);
                    break;
                }
                Err(_) => {
                    self.end = Some(End::Malformed);
                    break;
                }
                Ok(Some(answer)) => answer.reply,
            };
            self.outcomes.push(reply.outcome);
            if let Outcome::Error(kind) = reply.outcome {
                self.error = Some((kind, self.conversation.error_code()));
                self.end = Some(End::Answered);
            }
            if reply.after == After::Close {
                self.end = Some(End::Answered);
            }
        }
        if self.conversation.refusal().is_some() {
            self.end = Some(End::Answered);
        } else if !was_ready && self.conversation.is_ready() && self.outcomes.is_empty() {
            // What was heard of a login is what is told only of one that is refused.
            self.heard.clear();
        }
    }
}

/// True if a load of such answers would be none.
fn is_fatal(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Error(ErrorKind::Refused | ErrorKind::Unauthorised))
}

/// The first line of what came, without control characters.
fn shown_line(heard: &[u8]) -> String {
    let line = heard.split(|&byte| byte == b'\r' || byte == b'\n').next().unwrap_or_default();
    shown(line)
}

fn shown(heard: &[u8]) -> String {
    let text = String::from_utf8_lossy(&heard[..heard.len().min(SHOWN_LEN_MAX)]);
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

const WAIT: Wait = Wait::Block { spin_ns: 0 };

/// A target is silent after that long at least: less than a person waits.
const SILENT_NS: u64 = 1_000_000_000;

/// Protocols of applications whose servers answer at once, if only with a complaint.
const IDENTIFIED: [Spoken; 5] =
    [Spoken::Http, Spoken::Http2, Spoken::Redis, Spoken::Memcached, Spoken::Postgres];

/// Silence after which a target is asked what it speaks.
const IDENTIFY_NS: u64 = 300_000_000;

/// Longest time that a port may take to be listened at.
const STARTING_NS: u64 = 500_000_000;

/// From a datagram to the next.
const AGAIN_NS: u64 = 100_000_000;

/// Keys that are asked for: most of them are missing of a store that has nine in ten less than once
/// in ten million times.
const KEYS_ASKED: usize = 20;

/// Longest time that asking may take where requests are paced.
const PACED_NS: u64 = 200_000_000;

/// Bytes of an answer that are kept: enough to know a protocol and an error page by.
const HEARD_LEN_MAX: usize = 1_024;
const SHOWN_LEN_MAX: usize = 160;
