//! The connections to one server: which of them a request goes to, and when they are opened again.
//!
//! | a connection | event | then |
//! |---|---|---|
//! | is down | the pause after failures has passed | connecting |
//! | is connecting | it is open | greeting, or up where there is nothing to say |
//! | is greeting | the server has answered well | up |
//! | is up | a request is sent | it has one more |
//! | is up | the server ends it with an answer | opened again at once: the server is there |
//! | is up, with one request at a time | nobody waits for that any more | it ends, and is opened again |
//! | any | it ends, says nonsense, or is silent with requests for too long | down: what it had is lost or tried again |
//!
//! Pauses double from `retry_ns_min` to `retry_ns_max` and begin anew when a server has answered.
//!
//! A request that may run more than once is tried on another connection, once; of any other that
//! was sent it is not known whether it has run.
//!
//! Invariant: each request ends exactly once.

use std::collections::VecDeque;

use crate::app::{App, Message};
use crate::backend::{Answer, Backend, Exchange};
use crate::due::{Dialect, Due, Nonsense};
use crate::greeting::{self, Login};

/// Configuration of a pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Application protocol of the server.
    pub app: App,
    /// Connections of one dialect. One of HTTP has one request at a time, others any number.
    pub connections: usize,
    /// Longest answer, bytes.
    pub reply_len_max: usize,
    /// Longest time that a connection that has requests may be silent, ns. It is longer than the
    /// longest service.
    pub silence_ns_max: u64,
    /// The first pause before a connection is opened again, ns. Default 5 ms.
    pub retry_ns_min: u64,
    /// The longest, ns. Default 1 s.
    pub retry_ns_max: u64,
    /// Credentials to give where the server asks.
    pub login: Option<Login>,
}

impl PoolConfig {
    /// The defaults for a server.
    pub fn new(app: App) -> Self {
        Self {
            app,
            connections: 4,
            reply_len_max: crate::MESSAGE_LEN_MAX,
            silence_ns_max: 5_000_000_000,
            retry_ns_min: 5_000_000,
            retry_ns_max: 1_000_000_000,
            login: None,
        }
    }
}

/// Names a connection of a pool, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place(pub usize);

/// A request on its way to the server.
#[derive(Debug)]
pub struct Task<J> {
    /// The owner's.
    pub job: J,
    /// Requirements on the server.
    pub message: Message,
    /// Its bytes.
    pub request: Vec<u8>,
    /// Buffer for the answer.
    pub reply: Vec<u8>,
    /// It was lost once.
    is_again: bool,
}

impl<J> Task<J> {
    /// A request that has not been sent; `reply` is a buffer for its answer.
    pub fn new(job: J, message: Message, request: Vec<u8>, reply: Vec<u8>) -> Self {
        Self { job, message, request, reply, is_again: false }
    }
}

/// Result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was answered.
    Answered(Vec<u8>),
    /// Its answer is longer than a message may be.
    TooLong,
    /// Its connection has ended: it may have run.
    Lost,
    /// No connection has come up for it: it has not run.
    Unavailable,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Ended<J> {
    /// The owner's.
    pub job: J,
    /// Its result.
    pub ending: Ending,
    /// The request's bytes.
    pub request: Vec<u8>,
}

/// Counters of a [`Pool`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolMetrics {
    /// Connections that came up.
    pub connected: u64,
    /// Connections that could not be opened, or were not let in.
    pub connect_failed: u64,
    /// Connections that were up and ended.
    pub disconnected: u64,
    /// Connections ended here because the server was silent for too long.
    pub silent: u64,
    /// Connections ended here because what the server said was no answer.
    pub nonsense: u64,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered.
    pub answered: u64,
    /// Answers that were too long.
    pub too_long: u64,
    /// Requests that were tried again.
    pub retried: u64,
    /// Requests that may have run, and were not answered.
    pub lost: u64,
    /// Requests for which no connection came up.
    pub unavailable: u64,
}

/// The connections to one server.
#[derive(Debug)]
pub struct Pool<J> {
    config: PoolConfig,
    /// By place: first those of the dialect that is spoken anyway, then of others as they are asked
    /// for.
    links: Vec<Link<J>>,
    /// Requests that wait for a connection, and since when.
    parked: VecDeque<(Task<J>, u64)>,
    /// The pause before the next attempt, ns.
    pause_ns: u64,
    /// Time at which the next attempt may be made.
    retry_at: u64,
    /// Text of the server where it did not let a connection in.
    trouble: Option<String>,
    metrics: PoolMetrics,
}

#[derive(Debug)]
struct Link<J> {
    phase: Phase,
    dialect: Dialect,
    backend: Backend<At<J>>,
    /// Time at which the server was heard last, or first had something to say.
    heard_at: u64,
    /// It is not opened again before, ns.
    not_before: u64,
    /// The server has let it in, or has said a part of an answer on it.
    has_answered: bool,
    /// The server was there when it ended, and it has not come up or failed since.
    has_left: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Down,
    Connecting,
    Greeting,
    Up,
}

/// Exchange at the server.
#[derive(Debug)]
enum At<J> {
    Greeting,
    Request { job: J, message: Message, is_again: bool },
}

impl<J> Pool<J> {
    /// A pool that is to be connected.
    pub fn new(config: PoolConfig) -> Self {
        let pause_ns = config.retry_ns_min;
        let mut pool = Self {
            config,
            links: Vec::new(),
            parked: VecDeque::new(),
            pause_ns,
            retry_at: 0,
            trouble: None,
            metrics: PoolMetrics::default(),
        };
        pool.ask_for(pool.config.app.dialect());
        pool
    }

    /// True if the server can be asked now.
    pub fn is_up(&self) -> bool {
        self.links.iter().any(|link| link.phase == Phase::Up || link.has_left)
    }

    /// Connections that are up.
    pub fn up_count(&self) -> usize {
        self.links.iter().filter(|link| link.phase == Phase::Up).count()
    }

    /// Requests that are at the server.
    pub fn outstanding(&self) -> usize {
        self.links.iter().map(|link| link.backend.len()).sum()
    }

    /// Requests that wait for a connection.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// The counters so far.
    pub fn metrics(&self) -> PoolMetrics {
        self.metrics
    }

    /// A connection to open now: [`Pool::handle_connected`] or [`Pool::handle_closed`] follows.
    pub fn poll_connect(&mut self, now: u64) -> Option<Place> {
        if now < self.retry_at {
            return None;
        }
        let may = |link: &Link<J>| link.phase == Phase::Down && now >= link.not_before;
        let index = self.links.iter().position(may)?;
        let link = &mut self.links[index];
        link.phase = Phase::Connecting;
        (link.heard_at, link.not_before) = (now, now.saturating_add(self.config.retry_ns_min));
        Some(Place(index))
    }

    /// A connection is open. Appends what is said first.
    pub fn handle_connected(&mut self, now: u64, place: Place, out: &mut Vec<u8>) {
        let link = &mut self.links[place.0];
        link.heard_at = now;
        let mut words = Vec::new();
        let replies = greeting::write(link.dialect, self.config.login.as_ref(), &mut words);
        if replies == 0 {
            return self.come_up(place);
        }
        link.phase = Phase::Greeting;
        let due = Due { replies };
        let exchange = Exchange { job: At::Greeting, due, request: words, reply: Vec::new() };
        link.backend.send(exchange, 0, out);
    }

    /// A connection has said something; `ended` gets what that ends.
    ///
    /// # Errors
    ///
    /// That it is of no use: close it, and call [`Pool::handle_closed`].
    pub fn handle_bytes(
        &mut self,
        now: u64,
        place: Place,
        bytes: &[u8],
        ended: &mut Vec<Ended<J>>,
    ) -> Result<(), Nonsense> {
        let link = &mut self.links[place.0];
        link.heard_at = now;
        let (metrics, mut greeted, before) = (&mut self.metrics, None, ended.len());
        let received = link.backend.receive(bytes, |exchange, answer| match exchange.job {
            At::Greeting => greeted = Some(answer),
            At::Request { job, .. } => {
                let request = exchange.request;
                ended.push(Ended { job, ending: end(answer, metrics), request });
            }
        });
        link.has_left = ended.len() > before && received == Err(Nonsense::Farewell);
        if link.phase == Phase::Up && (received.is_ok() || link.has_left) {
            self.prove(place);
        }
        if let Some(answer) = greeted {
            let Answer::Reply(words) = answer else { return Err(Nonsense::Greeting) };
            let dialect = self.links[place.0].dialect;
            if !greeting::is_accepted(dialect, &words) {
                let shown = &words[..words.len().min(TROUBLE_LEN_MAX)];
                self.trouble = Some(String::from_utf8_lossy(shown).trim_end().to_owned());
                self.end_parked(dialect, ended);
                return Err(Nonsense::Greeting);
            }
            self.come_up(place);
            self.prove(place);
        }
        let is_nonsense = received.is_err_and(|error| error != Nonsense::Farewell);
        self.metrics.nonsense += u64::from(is_nonsense);
        received
    }

    /// A connection has ended, or could not be opened.
    pub fn handle_closed(&mut self, now: u64, place: Place, ended: &mut Vec<Ended<J>>) {
        let link = &mut self.links[place.0];
        let was_up = link.phase == Phase::Up;
        link.phase = Phase::Down;
        link.has_left &= was_up;
        self.metrics.disconnected += u64::from(was_up);
        self.metrics.connect_failed += u64::from(!was_up);
        if let Some((exchange, answer)) = link.backend.finish()
            && let At::Request { job, .. } = exchange.job
        {
            let request = exchange.request;
            ended.push(Ended { job, ending: end(answer, &mut self.metrics), request });
            (link.has_answered, link.has_left) = (true, true);
        }
        if link.has_left {
            link.not_before = now;
        }
        // One that ends as soon as it is open has come up for nothing.
        let is_brief = now.saturating_sub(link.heard_at) < self.config.retry_ns_max;
        let has_failed = !was_up || !link.has_answered && is_brief;
        link.has_answered = false;
        let lost: Vec<_> = link.backend.fail().collect();
        link.backend = Backend::new(link.dialect, self.config.reply_len_max);
        for Exchange { job: at, request, mut reply, .. } in lost {
            let At::Request { job, message, is_again } = at else { continue };
            if message.is_idempotent && !is_again {
                self.metrics.retried += 1;
                reply.clear();
                let task = Task { job, message, request, reply, is_again: true };
                self.parked.push_back((task, now));
            } else {
                self.metrics.lost += 1;
                ended.push(Ended { job, ending: Ending::Lost, request });
            }
        }
        // Of several that fail at once, one counts.
        if has_failed && now >= self.retry_at {
            self.retry_at = now.saturating_add(self.pause_ns);
            self.pause_ns = (2 * self.pause_ns).min(self.config.retry_ns_max);
        }
    }

    /// A connection that has been silent for too long: close it, and call [`Pool::handle_closed`].
    pub fn poll_silent(&mut self, now: u64) -> Option<Place> {
        let limit = self.config.silence_ns_max;
        let is_silent =
            |link: &Link<J>| link.is_waiting() && now >= link.heard_at.saturating_add(limit);
        let index = self.links.iter().position(is_silent)?;
        self.metrics.silent += u64::from(self.links[index].phase == Phase::Up);
        Some(Place(index))
    }

    /// Requests that have waited for a connection for too long.
    pub fn expire(&mut self, now: u64, ended: &mut Vec<Ended<J>>) {
        let limit = self.config.silence_ns_max;
        let is_due = |&(_, since): &(Task<J>, u64)| now >= since.saturating_add(limit);
        while self.parked.front().is_some_and(is_due) {
            let Some((task, _)) = self.parked.pop_front() else { return };
            self.metrics.unavailable += 1;
            let Task { job, request, .. } = task;
            ended.push(Ended { job, ending: Ending::Unavailable, request });
        }
    }

    /// Nobody waits for a request any more. One that waits for a connection ends, and one that has
    /// a connection for itself ends with that: close what is given, and call
    /// [`Pool::handle_closed`]. Where others share it, it goes on.
    pub fn abandon(
        &mut self,
        is_it: impl Fn(&J) -> bool,
        ended: &mut Vec<Ended<J>>,
    ) -> Option<Place> {
        if let Some(at) = self.parked.iter().position(|(task, _)| is_it(&task.job)) {
            let (Task { job, request, .. }, _) = self.parked.remove(at)?;
            self.metrics.unavailable += 1;
            ended.push(Ended { job, ending: Ending::Unavailable, request });
            return None;
        }
        let is_alone = |(_, link): &(usize, &mut Link<J>)| link.dialect.pipeline_max() == 1;
        for (index, link) in self.links.iter_mut().enumerate().filter(is_alone) {
            for exchange in link.backend.exchanges_mut() {
                if let At::Request { job, is_again, .. } = &mut exchange.job
                    && is_it(job)
                {
                    // Nor is it tried once more.
                    *is_again = true;
                    link.has_left = link.has_answered;
                    return Some(Place(index));
                }
            }
        }
        None
    }

    /// Time at which there is something to do though nothing happens.
    pub fn next_deadline(&self) -> Option<u64> {
        let limit = self.config.silence_ns_max;
        let waiting = self.links.iter().filter(|link| link.is_waiting());
        let parked = self.parked.front().map(|&(_, since)| since);
        let silent = waiting.map(|link| link.heard_at).chain(parked);
        let silent = silent.map(|since| since.saturating_add(limit));
        let down = self.links.iter().filter(|link| link.phase == Phase::Down);
        let retries = down.map(|link| link.not_before.max(self.retry_at));
        silent.chain(retries).min()
    }

    /// Takes a request; it is given out by [`Pool::poll_send`] when there is a connection for it.
    pub fn offer(&mut self, now: u64, task: Task<J>) {
        self.parked.push_back((task, now));
    }

    /// A connection for the request that has waited longest of those that there is one for; its
    /// bytes are appended by [`Pool::send`].
    pub fn poll_send(&mut self) -> Option<(Place, Task<J>)> {
        for index in 0..self.parked.len() {
            let dialect = self.parked[index].0.message.dialect;
            if !self.links.iter().any(|link| link.dialect == dialect) {
                self.ask_for(dialect);
            }
            if let Some(place) = self.pick(dialect) {
                let (task, _) = self.parked.remove(index)?;
                return Some((place, task));
            }
        }
        None
    }

    /// Appends a request that [`Pool::poll_send`] gave.
    pub fn send(&mut self, now: u64, place: Place, task: Task<J>, out: &mut Vec<u8>) {
        let Task { job, message, request, reply, is_again } = task;
        let link = &mut self.links[place.0];
        if link.backend.is_empty() {
            link.heard_at = now;
        }
        self.metrics.sent += 1;
        let at = At::Request { job, message, is_again };
        let exchange = Exchange { job: at, due: message.due, request, reply };
        link.backend.send(exchange, message.start, out);
    }

    /// Last text of the server where it did not let a connection in.
    pub fn take_trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    fn come_up(&mut self, place: Place) {
        let link = &mut self.links[place.0];
        (link.phase, link.has_left) = (Phase::Up, false);
        self.metrics.connected += 1;
    }

    /// The server is there, and what is to be.
    fn prove(&mut self, place: Place) {
        self.links[place.0].has_answered = true;
        self.pause_ns = self.config.retry_ns_min;
    }

    /// Ends what waits for a dialect that the server does not speak, but for the one that it is to
    /// speak.
    fn end_parked(&mut self, dialect: Dialect, ended: &mut Vec<Ended<J>>) {
        let is_spoken = |link: &Link<J>| link.dialect == dialect && link.phase == Phase::Up;
        if dialect == self.config.app.dialect() || self.links.iter().any(is_spoken) {
            return;
        }
        for (task, since) in std::mem::take(&mut self.parked) {
            if task.message.dialect == dialect {
                self.metrics.unavailable += 1;
                let Task { job, request, .. } = task;
                ended.push(Ended { job, ending: Ending::Unavailable, request });
            } else {
                self.parked.push_back((task, since));
            }
        }
    }

    /// The connection of a dialect with the fewest requests.
    fn pick(&self, dialect: Dialect) -> Option<Place> {
        let may = |(_, link): &(usize, &Link<J>)| {
            link.phase == Phase::Up
                && link.dialect == dialect
                && link.backend.len() < dialect.pipeline_max()
        };
        let links = self.links.iter().enumerate().filter(may);
        links.min_by_key(|(_, link)| link.backend.len()).map(|(index, _)| Place(index))
    }

    /// Adds connections of a dialect.
    fn ask_for(&mut self, dialect: Dialect) {
        let link = |_| Link {
            phase: Phase::Down,
            dialect,
            backend: Backend::new(dialect, self.config.reply_len_max),
            heard_at: 0,
            not_before: 0,
            has_answered: false,
            has_left: false,
        };
        self.links.extend((0..self.config.connections).map(link));
    }
}

impl<J> Link<J> {
    /// True if something is waited for.
    fn is_waiting(&self) -> bool {
        match self.phase {
            Phase::Down => false,
            Phase::Connecting | Phase::Greeting => true,
            Phase::Up => !self.backend.is_empty(),
        }
    }
}

/// The end that an answer is.
fn end(answer: Answer, metrics: &mut PoolMetrics) -> Ending {
    match answer {
        Answer::Reply(reply) => {
            metrics.answered += 1;
            Ending::Answered(reply)
        }
        Answer::TooLong => {
            metrics.too_long += 1;
            Ending::TooLong
        }
    }
}

/// Bytes of a server's words that are kept.
const TROUBLE_LEN_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::scan;

    const MS: u64 = 1_000_000;

    /// A pool of two connections, and what its server got on each.
    struct Bench {
        pool: Pool<u32>,
        now: u64,
        got: [Vec<u8>; 4],
        ended: Vec<Ended<u32>>,
    }

    impl Bench {
        fn new() -> Self {
            let config = PoolConfig { connections: 2, ..PoolConfig::new(App::Redis) };
            Self { pool: Pool::new(config), now: 0, got: Default::default(), ended: Vec::new() }
        }

        fn up() -> Self {
            let mut bench = Self::new();
            bench.connect();
            bench
        }

        /// Opens what is to be opened, and greets it back.
        fn connect(&mut self) -> usize {
            let mut count = 0;
            while let Some(place) = self.pool.poll_connect(self.now) {
                let mut said = Vec::new();
                self.pool.handle_connected(self.now, place, &mut said);
                assert_eq!(said, b"*1\r\n$4\r\nPING\r\n");
                self.hear(place.0, "+PONG\r\n").unwrap();
                count += 1;
            }
            count
        }

        fn offer(&mut self, job: u32, line: &str) {
            let mut request = Vec::new();
            let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            scan::write(&arguments, &mut request);
            let message = App::Redis.read(&request).unwrap();
            self.pool.offer(self.now, Task::new(job, message, request, Vec::new()));
            self.send();
        }

        /// Offers a PING in RESP3, and opens the connection for it: which, and what is said there
        /// first.
        fn offer_resp3(&mut self) -> (Place, Vec<u8>) {
            let request = [crate::resp::message::RESP3, b"*1\r\n$4\r\nPING\r\n"].concat();
            let message = App::Redis.read(&request).unwrap();
            self.pool.offer(0, Task::new(0, message, request, Vec::new()));
            self.send();
            let (place, mut out) = (self.pool.poll_connect(0).unwrap(), Vec::new());
            self.pool.handle_connected(0, place, &mut out);
            (place, out)
        }

        fn send(&mut self) {
            while let Some((place, task)) = self.pool.poll_send() {
                self.pool.send(self.now, place, task, &mut self.got[place.0]);
            }
        }

        fn hear(&mut self, place: usize, text: &str) -> Result<(), Nonsense> {
            self.pool.handle_bytes(self.now, Place(place), text.as_bytes(), &mut self.ended)
        }

        fn close(&mut self, place: usize) {
            self.pool.handle_closed(self.now, Place(place), &mut self.ended);
        }

        fn ended(&mut self) -> Vec<(u32, Ending)> {
            self.ended.drain(..).map(|ended| (ended.job, ended.ending)).collect()
        }
    }

    #[test]
    fn requests_go_to_the_connection_with_the_fewest() {
        let mut bench = Bench::up();
        (0..4).for_each(|job| bench.offer(job, "GET a"));
        assert_eq!(bench.got[0].len(), bench.got[1].len());
        bench.hear(1, "+a\r\n+b\r\n").unwrap();
        let answered = |text: &str| Ending::Answered(text.as_bytes().to_vec());
        assert_eq!(bench.ended(), [(1, answered("+a\r\n")), (3, answered("+b\r\n"))]);
        assert_eq!((bench.pool.outstanding(), bench.pool.metrics().answered), (2, 2));
    }

    #[test]
    fn what_may_run_twice_is_tried_once_more_and_the_rest_is_lost() {
        let mut bench = Bench::up();
        bench.offer(0, "GET a");
        bench.offer(1, "SET a 1");
        bench.close(0);
        bench.close(1);
        assert_eq!(bench.ended(), [(1, Ending::Lost)]);
        bench.now += 10 * MS;
        assert_eq!(bench.connect(), 2);
        bench.send();
        assert_eq!(bench.pool.outstanding(), 1);
        bench.close(0);
        bench.close(1);
        assert_eq!(bench.ended(), [(0, Ending::Lost)]);
        assert_eq!((bench.pool.metrics().retried, bench.pool.metrics().lost), (1, 2));
    }

    #[test]
    fn attempts_become_rarer_while_nobody_listens() {
        let mut bench = Bench::new();
        let mut attempts = Vec::new();
        while bench.now < 5_000 * MS {
            while let Some(place) = bench.pool.poll_connect(bench.now) {
                attempts.push(bench.now / MS);
                bench.close(place.0);
            }
            bench.now = bench.pool.next_deadline().unwrap();
        }
        attempts.dedup();
        assert_eq!(attempts[..6], [0, 5, 15, 35, 75, 155]);
        assert!(attempts.len() < 20 && bench.pool.metrics().connected == 0);
    }

    /// As one that has as many clients as it takes.
    #[test]
    fn a_server_that_lets_nobody_in_is_left_alone_for_longer_and_longer() {
        let mut bench = Bench::new();
        let place = bench.pool.poll_connect(0).unwrap();
        bench.pool.handle_connected(0, place, &mut Vec::new());
        assert_eq!(bench.hear(place.0, "-ERR max number of clients\r\n"), Err(Nonsense::Greeting));
        bench.close(place.0);
        assert_eq!(bench.pool.take_trouble().unwrap(), "-ERR max number of clients");
        assert!(!bench.pool.is_up() && bench.pool.poll_connect(0).is_none());
    }

    #[test]
    fn one_that_ends_again_and_again_is_not_opened_in_a_loop() {
        let mut bench = Bench::up();
        bench.close(0);
        assert_eq!(bench.pool.poll_connect(bench.now), None);
        bench.now = bench.pool.next_deadline().unwrap();
        assert_eq!(bench.now, 5 * MS);
        assert_eq!(bench.connect(), 1);
    }

    #[test]
    fn silence_with_requests_ends_a_connection_and_without_does_not() {
        let mut bench = Bench::up();
        assert_eq!(bench.pool.next_deadline(), None);
        bench.now = 60_000 * MS;
        assert_eq!(bench.pool.poll_silent(bench.now), None);
        bench.offer(0, "LPOP a");
        assert_eq!(bench.pool.next_deadline(), Some(65_000 * MS));
        assert_eq!(bench.pool.poll_silent(bench.now), None);
        bench.now = 65_000 * MS;
        assert_eq!(bench.pool.poll_silent(bench.now), Some(Place(0)));
        bench.close(0);
        assert_eq!(bench.ended(), [(0, Ending::Lost)]);
        assert_eq!(bench.pool.metrics().silent, 1);
    }

    #[test]
    fn what_no_connection_comes_up_for_has_not_run() {
        let mut bench = Bench::new();
        bench.offer(0, "SET a 1");
        bench.now = 5_000 * MS;
        let Bench { pool, now, ended, .. } = &mut bench;
        pool.expire(*now, ended);
        assert_eq!(bench.ended(), [(0, Ending::Unavailable)]);
    }

    #[test]
    fn another_dialect_has_connections_of_its_own() {
        let mut bench = Bench::up();
        let (place, out) = bench.offer_resp3();
        assert!(out.starts_with(b"*2\r\n$5\r\nHELLO"), "{}", out.escape_ascii());
        bench.hear(place.0, "%1\r\n+proto\r\n:3\r\n").unwrap();
        bench.send();
        assert_eq!((place, &bench.got[2][..]), (Place(2), &b"*1\r\n$4\r\nPING\r\n"[..]));
    }

    #[test]
    fn what_waits_for_a_dialect_that_is_not_spoken_ends() {
        let mut bench = Bench::up();
        let (place, _) = bench.offer_resp3();
        assert_eq!(bench.hear(place.0, "-ERR unknown command\r\n"), Err(Nonsense::Greeting));
        assert_eq!(bench.ended(), [(0, Ending::Unavailable)]);
        assert!(bench.pool.is_up());
    }

    /// A pool of one connection of HTTP, which is up.
    fn http() -> Bench {
        let config = PoolConfig { connections: 1, ..PoolConfig::new(App::Http) };
        let mut bench = Bench { pool: Pool::new(config), ..Bench::new() };
        assert_eq!(open(&mut bench), Some(Place(0)));
        bench
    }

    fn open(bench: &mut Bench) -> Option<Place> {
        let place = bench.pool.poll_connect(bench.now)?;
        bench.pool.handle_connected(bench.now, place, &mut Vec::new());
        Some(place)
    }

    fn get(bench: &mut Bench, job: u32) {
        let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
        let message = App::Http.read(&request).unwrap();
        bench.pool.offer(bench.now, Task::new(job, message, request, Vec::new()));
        bench.send();
    }

    #[test]
    fn a_server_that_ends_each_connection_with_an_answer_is_there() {
        let mut bench = http();
        let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi";
        for job in 0..5 {
            get(&mut bench, job);
            assert_eq!(bench.hear(0, answer), Err(Nonsense::Farewell));
            bench.close(0);
            assert!(matches!(bench.ended()[..], [(_, Ending::Answered(_))]));
            assert!(bench.pool.is_up(), "it has answered just now");
            assert_eq!(open(&mut bench), Some(Place(0)), "at once");
        }
        // Up to its end.
        get(&mut bench, 5);
        bench.hear(0, "HTTP/1.0 200 OK\r\n\r\nhi").unwrap();
        bench.close(0);
        assert!(matches!(bench.ended()[..], [(5, Ending::Answered(_))]));
        assert!(bench.pool.is_up());
        // It does not come back.
        bench.pool.poll_connect(bench.now).unwrap();
        bench.close(0);
        assert!(!bench.pool.is_up());
    }

    #[test]
    fn a_server_that_takes_connections_and_ends_them_is_left_alone_for_longer_and_longer() {
        let mut bench = http();
        let mut attempts = Vec::new();
        while bench.now < 5_000 * MS {
            bench.close(0);
            bench.now = bench.pool.next_deadline().unwrap();
            attempts.push(bench.now / MS);
            open(&mut bench).unwrap();
        }
        assert_eq!(attempts[..5], [5, 15, 35, 75, 155]);
        assert!(attempts.len() < 20, "{attempts:?}");
    }

    #[test]
    fn what_nobody_waits_for_leaves_its_connection_or_its_place() {
        let mut bench = http();
        get(&mut bench, 0);
        get(&mut bench, 1);
        bench.hear(0, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n").unwrap();
        let Bench { pool, ended, .. } = &mut bench;
        assert_eq!(pool.abandon(|&job| job == 1, ended), None);
        assert_eq!(pool.abandon(|&job| job == 0, ended), Some(Place(0)));
        bench.close(0);
        assert_eq!(bench.ended(), [(1, Ending::Unavailable), (0, Ending::Lost)]);
        // Where others share it, nothing ends.
        let mut bench = Bench::up();
        bench.offer(0, "GET a");
        let Bench { pool, ended, .. } = &mut bench;
        assert_eq!(pool.abandon(|&job| job == 0, ended), None);
        assert_eq!(pool.outstanding(), 1);
    }

    #[test]
    fn nonsense_is_told_and_what_was_sent_is_lost() {
        let mut bench = Bench::up();
        bench.offer(0, "INCR a");
        assert_eq!(bench.hear(0, "HTTP/1.1 400 Bad Request\r\n"), Err(Nonsense::Framing));
        bench.close(0);
        assert_eq!(bench.ended(), [(0, Ending::Lost)]);
        assert_eq!(bench.pool.metrics().nonsense, 1);
    }
}
