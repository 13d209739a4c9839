//! A load that blocks: over one connection, or one UDP socket, a few requests at a time.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use tailcut_measure::app::{
    After, App, Carrier, Expected, Key, Login, Outcome, Replies, Requests, Setting, Tally,
};
use tailcut_measure::generator::generator;

/// A connection and what is outstanding on it.
pub(crate) struct Client {
    pub(crate) app: App,
    address: SocketAddr,
    stream: TcpStream,
    replies: Replies,
    due: VecDeque<Expected>,
    pub(crate) tally: Tally,
    /// Number of times that the server closed the connection.
    pub(crate) closes: u64,
    /// Requests that were outstanding when it did.
    pub(crate) lost: u64,
}

impl Client {
    /// Connects, and says what is said first.
    pub(crate) fn connect(address: SocketAddr, app: &str) -> Self {
        Self::login(address, app, None)
    }

    /// Connects with a login, and says what is said first.
    pub(crate) fn login(address: SocketAddr, app: &str, login: Option<Login<'_>>) -> Self {
        let app = parse(app);
        let replies = Replies::new(&app);
        let (stream, tally) = (connect(address), Tally::default());
        let mut client =
            Self { app, address, stream, replies, due: VecDeque::new(), tally, closes: 0, lost: 0 };
        let mut out = Vec::new();
        let expected = client.app.write_greeting(login, &mut out);
        client.due.extend(expected);
        client.send(&out);
        client.receive_all();
        client
    }

    /// Sets every key, `depth` at a time.
    pub(crate) fn preload(&mut self, depth: u64) {
        let preload =
            self.app.preload(Carrier::Stream).expect("it fits").expect("there is a store");
        let indices: Vec<u64> = (0..preload.key_count).collect();
        for batch in indices.chunks(depth as usize) {
            let mut out = Vec::new();
            self.due.extend(batch.iter().map(|&index| (preload.write)(index, &mut out)));
            self.send(&out);
            self.receive_all();
        }
        let expected = Tally { ok: preload.key_count, ..Tally::default() };
        assert_eq!(std::mem::take(&mut self.tally), expected, "the preload of {}", self.app);
    }

    /// Sends `count` requests, `depth` at a time, and takes their replies; what is lost with a
    /// connection counts too.
    pub(crate) fn run(&mut self, count: u64, depth: u64) -> Tally {
        let authority = self.address.to_string();
        let setting = Setting { carrier: Carrier::Stream, authority: &authority, is_tls: false };
        let mut requests = Requests::new(&self.app, setting, generator(7, 0)).expect("it fits");
        for _ in 0..count / depth {
            let mut out = Vec::new();
            self.due.extend((0..depth).map(|_| requests.write(&mut out)));
            self.send(&out);
            self.receive_all();
        }
        std::mem::take(&mut self.tally)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes it");
    }

    /// Reads until nothing is outstanding.
    fn receive_all(&mut self) {
        let mut buffer = vec![0; 64 << 10];
        while !self.due.is_empty() {
            let len = self.stream.read(&mut buffer).expect("the server replies in time");
            if len == 0 {
                let reply = self
                    .replies
                    .finish()
                    .expect("no reply is cut short")
                    .expect("a reply ends with the connection");
                self.finish(reply.outcome, reply.after);
                continue;
            }
            let mut bytes = &buffer[..len];
            while !bytes.is_empty() {
                match self.replies.take(&mut bytes, self.due.front().copied()) {
                    Ok(None) => {}
                    Ok(Some(reply)) => {
                        self.finish(reply.outcome, reply.after);
                        if reply.after == After::Close {
                            bytes = &[];
                        }
                    }
                    Err(malformed) => {
                        panic!("{}: {malformed}: {:?}", self.app, String::from_utf8_lossy(bytes))
                    }
                }
            }
        }
    }

    fn finish(&mut self, outcome: Outcome, after: After) {
        self.due.pop_front().expect("a reply was due");
        self.tally.record(outcome);
        if after == After::Close {
            self.closes += 1;
            self.lost += self.due.len() as u64;
            self.due.clear();
            self.stream = connect(self.address);
            self.replies = Replies::new(&self.app);
        }
    }
}

/// Sends `count` requests over UDP, `depth` at a time.
pub(crate) fn run_datagrams(address: SocketAddr, app: &str, count: u64, depth: usize) -> Tally {
    let app = parse(app);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has free ports");
    socket.connect(address).expect("an address of loopback");
    socket.set_read_timeout(Some(PATIENCE)).expect("above zero");
    let setting = Setting { carrier: Carrier::Datagram, authority: "", is_tls: false };
    let mut requests = Requests::new(&app, setting, generator(7, 0)).expect("it fits");
    let mut datagrams = app.datagrams().expect("it is spoken over UDP");
    let mut buffer = vec![0; 64 << 10];
    let mut tally = Tally::default();
    for _ in 0..count / depth as u64 {
        let mut due = Vec::new();
        for _ in 0..depth {
            let mut out = Vec::new();
            due.push(requests.write(&mut out));
            socket.send(&out).expect("it leaves");
        }
        while !due.is_empty() {
            let len = socket
                .recv(&mut buffer)
                .expect("the server replies in time, and loopback loses nothing");
            let key = datagrams.key(&buffer[..len]).expect("it names its request");
            let at = due
                .iter()
                .position(|expected| key == Key::Tag(expected.tag))
                .expect("it names one that is outstanding");
            match datagrams.take(&buffer[..len], due[at]) {
                Ok(None) => {}
                Ok(Some(outcome)) => {
                    tally.record(outcome);
                    due.swap_remove(at);
                }
                Err(malformed) => panic!("{app}: {malformed}"),
            }
        }
    }
    tally
}

/// Sends `bytes` on a connection of its own and reads until the answer ends so, or the connection
/// does.
pub(crate) fn ask(address: SocketAddr, bytes: &str, end: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(bytes.as_bytes()).expect("the server takes it");
    let mut answer = Vec::new();
    while !answer.ends_with(end.as_bytes()) {
        let mut buffer = [0; 4096];
        let len = stream.read(&mut buffer).expect("the server answers in time");
        if len == 0 {
            break;
        }
        answer.extend_from_slice(&buffer[..len]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The number behind `name` in such an answer.
pub(crate) fn figure(answer: &str, name: &str) -> u64 {
    let (_, rest) = answer.split_once(name).unwrap_or_else(|| panic!("no {name} in {answer}"));
    let digits: String =
        rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

fn parse(app: &str) -> App {
    App::parse(app).unwrap_or_else(|error| panic!("{app}: {error}"))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_nodelay(true).expect("TCP has it");
    stream.set_read_timeout(Some(PATIENCE)).expect("above zero");
    stream
}

/// Ending that no answer has, so that it is read to the connection's end.
pub(crate) const TO_ITS_END: &str = "\0";

/// A server that is silent for so long never answers.
const PATIENCE: Duration = Duration::from_secs(30);
