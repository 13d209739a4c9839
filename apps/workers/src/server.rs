//! Servers with a worker and a queue each, over epoll and a timer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};

use crate::protocol::{App, Request};

/// Protocol and service times of servers.
#[derive(Debug)]
pub struct Services {
    /// Protocol that clients speak.
    pub app: App,
    /// Service times of commands that read, ns.
    pub read: Distribution,
    /// Service times of commands that write, ns.
    pub write: Distribution,
    /// Seed of what is drawn of these.
    pub seed: u64,
}

/// Servers, their clients and what they serve.
#[derive(Debug)]
pub struct Servers {
    /// Poller of the sockets.
    epoll: OwnedFd,
    /// Goes off at the next end of a service.
    timer: OwnedFd,
    /// Time at which it goes off; `None` while it does not.
    timer_at: Option<Instant>,
    /// The servers' sockets, by server.
    listeners: Vec<TcpListener>,
    /// By server, when its worker has done all that it has.
    free_at: Vec<Instant>,
    /// Clients by their token, which is never used again.
    clients: BTreeMap<u64, Client>,
    /// Token of the next client.
    token_next: u64,
    /// Requests that are being served or wait, by the end of their service; of equal ends by
    /// arrival.
    under_way: BinaryHeap<Reverse<(Instant, u64, u64, Reply)>>,
    /// Requests so far.
    count: u64,
    /// Protocol and service times.
    services: Services,
    /// Draws their times.
    rng: Generator,
}

/// The bytes that answer a request.
type Reply = &'static [u8];

/// A connection.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    /// Index of its server.
    server: usize,
    /// Bytes of the next request that have come.
    input: Vec<u8>,
    /// Bytes that the socket has not taken yet.
    output: Vec<u8>,
}

impl Servers {
    /// Servers that listen.
    ///
    /// # Errors
    ///
    /// That the kernel gives no epoll or timer.
    pub fn new(listeners: Vec<TcpListener>, services: Services) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll")?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, flags).context("cannot make a timer")?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        for (index, listener) in listeners.iter().enumerate() {
            listener.set_nonblocking(true)?;
            epoll::add(&epoll, listener, EventData::new_u64(index as u64), EventFlags::IN)?;
        }
        Ok(Self {
            epoll,
            timer,
            timer_at: None,
            free_at: vec![Instant::now(); listeners.len()],
            token_next: listeners.len() as u64,
            listeners,
            clients: BTreeMap::new(),
            under_way: BinaryHeap::new(),
            count: 0,
            rng: generator(services.seed, 0),
            services,
        })
    }

    /// Serves for ever.
    ///
    /// # Errors
    ///
    /// That the kernel's epoll or timer has become useless.
    pub fn run(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            self.turn(&mut events)?;
        }
    }

    fn turn(&mut self, events: &mut Vec<Event>) -> Result<()> {
        self.set_timer()?;
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for sockets"),
        }
        for event in events.iter() {
            match event.data.u64() {
                TIMER => {
                    // Read so that it is not ready any more; that it has nothing to say is well
                    // too.
                    let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                    self.timer_at = None;
                }
                token if (token as usize) < self.listeners.len() => self.accept(token as usize),
                token => self.handle_client(token),
            }
        }
        self.answer();
        Ok(())
    }

    fn set_timer(&mut self) -> Result<()> {
        let Some(Reverse((end, ..))) = self.under_way.peek() else { return Ok(()) };
        if self.timer_at == Some(*end) {
            return Ok(());
        }
        // A timer of zero never goes off.
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let value = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)
            .context("cannot set a timer")?;
        self.timer_at = Some(*end);
        Ok(())
    }

    /// Takes the clients that wait. Where the kernel has no more descriptors they go on to wait.
    fn accept(&mut self, server: usize) {
        while let Ok((stream, _)) = self.listeners[server].accept() {
            let token = self.token_next;
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            let is_ready = stream.set_nonblocking(true).is_ok()
                && stream.set_nodelay(true).is_ok()
                && epoll::add(&self.epoll, stream.as_fd(), EventData::new_u64(token), flags)
                    .is_ok();
            if is_ready {
                self.token_next += 1;
                let client = Client { stream, server, input: Vec::new(), output: Vec::new() };
                self.clients.insert(token, client);
            }
        }
    }

    fn handle_client(&mut self, token: u64) {
        let Some(mut client) = self.clients.remove(&token) else { return };
        // A client whose connection ends keeps its place at the worker, as at a server that only
        // notices when it answers.
        if client.flush().is_ok()
            && client.read().is_ok()
            && self.take_requests(token, &mut client).is_ok()
        {
            self.clients.insert(token, client);
        }
    }

    fn take_requests(&mut self, token: u64, client: &mut Client) -> Result<()> {
        let mut taken = 0;
        while let Some((request, length)) = self.services.app.request(&client.input[taken..])? {
            taken += length;
            self.begin(token, client.server, request);
        }
        client.input.drain(..taken);
        Ok(())
    }

    fn begin(&mut self, token: u64, server: usize, request: Request) {
        let service_ns = match request {
            Request::Timed(service_ns) => service_ns,
            Request::Read => self.services.read.sample_whole(&mut self.rng),
            Request::Write => self.services.write.sample_whole(&mut self.rng),
            Request::Ping => 0,
        };
        let start = self.free_at[server].max(Instant::now());
        let end = start + Duration::from_nanos(service_ns);
        self.free_at[server] = end;
        self.count += 1;
        self.under_way.push(Reverse((end, self.count, token, self.services.app.reply(request))));
    }

    /// Answers all whose service has ended.
    fn answer(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((end, ..))) = self.under_way.peek()
            && *end <= now
        {
            let Some(Reverse((_, _, token, reply))) = self.under_way.pop() else { return };
            if let Some(client) = self.clients.get_mut(&token) {
                client.output.extend_from_slice(reply);
                if client.flush().is_err() {
                    self.clients.remove(&token);
                }
            }
        }
    }
}

impl Client {
    /// Reads all that has come; an error where the connection has ended.
    fn read(&mut self) -> std::io::Result<()> {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.input.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what the socket takes.
    fn flush(&mut self) -> std::io::Result<()> {
        let mut written = 0;
        while written < self.output.len() {
            match self.stream.write(&self.output[written..]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.drain(..written);
        // A client that asks and does not read.
        if self.output.len() > OUTPUT_BYTES_MAX {
            Err(ErrorKind::OutOfMemory.into())
        } else {
            Ok(())
        }
    }
}

/// Token of the timer, above those of all sockets.
const TIMER: u64 = u64::MAX;
/// Events that are taken at once.
const EVENTS_MAX: usize = 256;
/// Replies that wait for a client to read; with more its connection ends.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use tailcut_measure::quantity::Unit;

    use super::*;

    #[test]
    fn a_worker_serves_one_request_after_the_other_and_answers_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let times = |text| Distribution::parse(text, Unit::Time).expect("a distribution");
        let services = Services {
            app: App::Redis,
            read: times("fixed:2ms"),
            write: times("fixed:1ms"),
            seed: 1,
        };
        let mut servers = Servers::new(vec![listener], services).expect("epoll is there");
        let mut client = TcpStream::connect(address).expect("it listens");
        client.set_nonblocking(true).expect("a socket");
        let began = Instant::now();
        let get = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        let set = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
        client.write_all(format!("{get}{set}{get}").as_bytes()).expect("it takes that");
        let wanted = b"$8\r\nemulated\r\n+OK\r\n$8\r\nemulated\r\n";
        let (mut events, mut found, mut buffer) = (Vec::with_capacity(8), Vec::new(), [0; 64]);
        // Each turn ends by a socket or the timer, of which there are few.
        for _ in 0..1000 {
            servers.turn(&mut events).expect("epoll is there");
            if let Ok(length) = client.read(&mut buffer) {
                found.extend_from_slice(&buffer[..length]);
            }
            if found.len() == wanted.len() {
                break;
            }
        }
        assert_eq!(found, wanted);
        assert!(began.elapsed() >= Duration::from_millis(5), "{:?}", began.elapsed());
    }
}
