//! Names: A or AAAA records for a port, or SRV records, which bring their ports, asked of the name
//! servers that the host has and again when the first of the records expires.
//!
//! | an answer | then |
//! |---|---|
//! | records | they are the servers; asked again after the least TTL, between 1 s and 5 minutes |
//! | the name does not exist, or has no such records | nobody; asked again after 5 s |
//! | refused, failed, or none within 2 s | the next name server is asked; after the last the source is away |
//! | truncated | asked again over TCP |
//!
//! SRV: servers of the lowest priority alone.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use resolv_conf::Config;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE};
use tailcut_net::clock::Clock;
use tailcut_net::entropy;

use super::{Watch, split_options};
use crate::route::servers::{ServerSpec, check_count};

/// Question to a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    name: String,
    /// Port of addresses; services bring theirs.
    port: Option<u16>,
    /// Asked in the place of the host's name servers.
    resolver: Option<SocketAddr>,
}

/// Records of one name, and for how long they hold.
#[derive(Debug, Default)]
struct Found {
    servers: Vec<SocketAddr>,
    /// Seconds; of no record, [`u32::MAX`].
    ttl: u32,
}

impl Question {
    /// `NAME:PORT`, with options.
    pub(super) fn addresses(text: &str) -> Result<Self> {
        let (place, resolver) = options(text)?;
        let named =
            place.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
        let (name, port) =
            named.context("write dns:NAME:PORT, such as dns:servers.internal:8000")?;
        Self { name: name.to_owned(), port: Some(port), resolver }.checked()
    }

    /// `NAME`, with options.
    pub(super) fn services(text: &str) -> Result<Self> {
        let (name, resolver) = options(text)?;
        Self { name: name.to_owned(), port: None, resolver }.checked()
    }

    fn checked(self) -> Result<Self> {
        let is_name = !self.name.is_empty() && Name::new(&self.name).is_ok();
        ensure!(is_name, "{:?} is no name", self.name);
        Ok(self)
    }

    /// Tells of the name's servers whenever they have been asked for.
    pub(super) fn watch(&self, watch: &Watch<'_>) -> Result<()> {
        while !watch.is_over() {
            let found = self.ask(watch)?;
            let pause = if found.servers.is_empty() {
                EMPTY_TTL
            } else {
                Duration::from_secs(found.ttl.into()).clamp(TTL_MIN, TTL_MAX)
            };
            let servers: Vec<_> = found.servers.into_iter().map(ServerSpec::of).collect();
            (watch.tell)(Ok(servers.into()));
            watch.pause(pause);
        }
        Ok(())
    }

    fn ask(&self, watch: &Watch<'_>) -> Result<Found> {
        let stub = Stub::new(self.resolver)?;
        let mut found = Found::default();
        for name in stub.names(&self.name) {
            found = match self.port {
                Some(port) => stub.addresses(&name, port, watch)?,
                None => stub.services(&name, watch)?,
            };
            if !found.servers.is_empty() {
                break;
            }
        }
        Ok(found)
    }
}

/// `NAME?resolver=IP:PORT`.
fn options(text: &str) -> Result<(&str, Option<SocketAddr>)> {
    let (name, options) = split_options(text);
    let mut resolver = None;
    for (option, value) in options {
        ensure!(
            option == "resolver",
            "{option:?} is no option of a name; there is resolver=IP:PORT"
        );
        let place = value.parse().context("a resolver is IP:PORT, such as 10.0.0.53:53")?;
        resolver = Some(place);
    }
    Ok((name, resolver))
}

/// The name servers of this host, as they are at this moment.
struct Stub {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    /// Dots from which on a name is tried as it stands first.
    dots: usize,
}

impl Stub {
    fn new(resolver: Option<SocketAddr>) -> Result<Self> {
        if let Some(resolver) = resolver {
            return Ok(Self { servers: vec![resolver], search: Vec::new(), dots: 0 });
        }
        let text = fs::read(RESOLV_CONF).with_context(|| format!("cannot read {RESOLV_CONF}"))?;
        let config = Config::parse(text).with_context(|| format!("cannot read {RESOLV_CONF}"))?;
        let servers = config.nameservers.iter();
        let servers = servers.map(|server| SocketAddr::new(IpAddr::from(server), 53));
        let search = config.get_last_search_or_domain().cloned().collect();
        Ok(Self { servers: servers.collect(), search, dots: config.ndots as usize })
    }

    /// A name as it may be meant, the likeliest first.
    fn names(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.trim_end_matches('.').to_owned()];
        }
        let mut names: Vec<String> = self
            .search
            .iter()
            .map(|domain| format!("{name}.{}", domain.trim_end_matches('.')))
            .collect();
        let is_first = name.matches('.').count() >= self.dots;
        names.insert(if is_first { 0 } else { names.len() }, name.to_owned());
        names
    }

    fn addresses(&self, name: &str, port: u16, watch: &Watch<'_>) -> Result<Found> {
        let kind = if watch.is_ipv4 { TYPE::A } else { TYPE::AAAA };
        let mut found = Found { ttl: u32::MAX, ..Found::default() };
        self.ask(name, kind, watch, |record| {
            let ip: IpAddr = match &record.rdata {
                RData::A(of) => Ipv4Addr::from(of.address).into(),
                RData::AAAA(of) => Ipv6Addr::from(of.address).into(),
                // The name's other name, which the answer has too.
                _ => return,
            };
            found.servers.push(SocketAddr::new(ip, port));
            found.ttl = found.ttl.min(record.ttl);
        })?;
        found.servers.sort_unstable();
        Ok(found)
    }

    fn services(&self, name: &str, watch: &Watch<'_>) -> Result<Found> {
        let mut targets: Vec<(u16, String, u16)> = Vec::new();
        let mut found = Found { ttl: u32::MAX, ..Found::default() };
        self.ask(name, TYPE::SRV, watch, |record| {
            if let RData::SRV(of) = &record.rdata {
                targets.push((of.priority, of.target.to_string(), of.port));
                found.ttl = found.ttl.min(record.ttl);
            }
        })?;
        let least = targets.iter().map(|target| target.0).min();
        targets.retain(|target| Some(target.0) == least);
        check_count(targets.len())?;
        for (_, target, port) in &targets {
            let addresses = self.addresses(target, *port, watch)?;
            found.servers.extend(addresses.servers);
            found.ttl = found.ttl.min(addresses.ttl);
        }
        found.servers.sort_unstable();
        found.servers.dedup();
        Ok(found)
    }

    /// Asks the name servers one after the other and hands on the records of the first that
    /// answers.
    fn ask(
        &self,
        name: &str,
        kind: TYPE,
        watch: &Watch<'_>,
        mut see: impl FnMut(&ResourceRecord<'_>),
    ) -> Result<()> {
        let id = entropy::seed().context("cannot draw an id")? as u16;
        let query = query(id, name, kind)?;
        let mut failed = anyhow!("{RESOLV_CONF} names no server");
        for &server in &self.servers {
            ensure!(!watch.is_over(), "nobody asks any more");
            match exchange(server, &query).and_then(|bytes| read(&bytes, &mut see)) {
                Ok(()) => return Ok(()),
                Err(error) => failed = error.context(format!("name server {server}: {name}")),
            }
        }
        Err(failed)
    }
}

fn query(id: u16, name: &str, kind: TYPE) -> Result<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).map_err(|_| anyhow!("{name:?} is no name"))?;
    let (kind, class) = (QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN));
    packet.questions.push(simple_dns::Question::new(name, kind, class, false));
    packet.build_bytes_vec().map_err(|error| anyhow!("cannot ask: {error}"))
}

/// Sends a question and returns the answer to it, over TCP where it is too long for a datagram.
fn exchange(server: SocketAddr, query: &[u8]) -> Result<Vec<u8>> {
    let local: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((local, 0))?;
    // The kernel drops what others send.
    socket.connect(server)?;
    socket.send(query)?;
    let ends_at = Clock.now() + ANSWER_WITHIN.as_nanos() as u64;
    let mut bytes = vec![0; usize::from(u16::MAX)];
    loop {
        socket.set_read_timeout(Some(left(ends_at)?))?;
        let len = match socket.recv(&mut bytes) {
            Ok(len) => len,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if !is_answer(&bytes[..len], query) {
            continue;
        }
        bytes.truncate(len);
        let is_truncated = bytes[2] & TRUNCATED != 0;
        return if is_truncated { exchange_stream(server, query) } else { Ok(bytes) };
    }
}

/// Sends a question over TCP and returns the answer; all of it ends in time.
fn exchange_stream(server: SocketAddr, query: &[u8]) -> Result<Vec<u8>> {
    let ends_at = Clock.now() + ANSWER_WITHIN.as_nanos() as u64;
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_WITHIN)?;
    stream.set_write_timeout(Some(left(ends_at)?))?;
    let len = u16::try_from(query.len()).context("a question fits")?;
    stream.write_all(&[&len.to_be_bytes(), query].concat())?;
    let mut len = [0; 2];
    read_whole(&mut stream, &mut len, ends_at)?;
    let mut bytes = vec![0; u16::from_be_bytes(len).into()];
    read_whole(&mut stream, &mut bytes, ends_at)?;
    ensure!(is_answer(&bytes, query), "an answer to another question");
    Ok(bytes)
}

fn read_whole(stream: &mut TcpStream, mut bytes: &mut [u8], ends_at: u64) -> Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(ends_at)?))?;
        match stream.read(bytes) {
            Ok(0) => bail!("it ends in the middle of an answer"),
            Ok(len) => bytes = &mut bytes[len..],
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The time that is left for an answer.
fn left(ends_at: u64) -> Result<Duration> {
    let left = Duration::from_nanos(ends_at.saturating_sub(Clock.now()));
    ensure!(!left.is_zero(), "no answer within {ANSWER_WITHIN:?}");
    Ok(left)
}

/// True if a packet answers a query: by its id, and by its question, in any case of letters.
fn is_answer(bytes: &[u8], query: &[u8]) -> bool {
    let question = &query[HEADER_LEN..];
    bytes.len() >= query.len()
        && bytes[..2] == query[..2]
        && bytes[2] & RESPONSE != 0
        && bytes[HEADER_LEN..query.len()].eq_ignore_ascii_case(question)
}

/// Hands on the records of an answer: none where the name does not exist.
fn read(bytes: &[u8], see: &mut impl FnMut(&ResourceRecord<'_>)) -> Result<()> {
    let answer = Packet::parse(bytes).map_err(|error| anyhow!("no answer: {error}"))?;
    ensure!(answer.has_flags(PacketFlag::RESPONSE), "no answer, but a question");
    match answer.rcode() {
        RCODE::NoError => answer.answers.iter().for_each(see),
        RCODE::NameError => {}
        code => bail!("it answers {code:?}"),
    }
    Ok(())
}

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Longest time for the answer of one name server.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Records that hold for a shorter time are not asked for more often.
const TTL_MIN: Duration = Duration::from_secs(1);
/// Records that hold for longer are asked for all the same.
const TTL_MAX: Duration = Duration::from_secs(300);
/// After an answer without a record.
const EMPTY_TTL: Duration = Duration::from_secs(5);

const HEADER_LEN: usize = 12;
/// In the third byte of a packet.
const RESPONSE: u8 = 0x80;
const TRUNCATED: u8 = 2;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn stub(dots: usize) -> Stub {
        let search = ["a.example", "example."].map(str::to_owned).to_vec();
        Stub { servers: Vec::new(), search, dots }
    }

    #[test]
    fn names_are_tried_as_the_host_tries_them() {
        assert_eq!(stub(1).names("s.b"), ["s.b", "s.b.a.example", "s.b.example"]);
        assert_eq!(stub(5).names("s.b"), ["s.b.a.example", "s.b.example", "s.b"]);
        assert_eq!(stub(5).names("s.b."), ["s.b"]);
    }

    #[test]
    fn a_question_is_a_name_a_kind_and_a_wish_for_recursion() {
        let bytes = query(0x1234, "a.example", TYPE::SRV).expect("a question");
        let expected = b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0\x01a\x07example\0\0\x21\0\x01";
        assert_eq!(bytes, expected);
    }

    #[test]
    fn an_answer_is_known_by_its_id_and_its_question() {
        let query = query(0x1234, "a.example", TYPE::SRV).expect("a question");
        let changed = |place: usize, value: u8| {
            let mut bytes = query.clone();
            bytes[2] |= RESPONSE;
            bytes[place] = value;
            is_answer(&bytes, &query)
        };
        assert!(changed(0, 0x12) && changed(13, b'A'));
        assert!(!changed(1, 0x35) && !changed(13, b'b') && !changed(2, 1));
        assert!(!is_answer(&query[..HEADER_LEN], &query));
    }

    #[test]
    fn an_answer_that_trickles_ends_in_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let trickle = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let began_at = Clock.now();
            // Until the other end is gone.
            while stream.write_all(&[0xFF]).is_ok() && Clock.now() - began_at < 60_000_000_000 {
                std::thread::park_timeout(ANSWER_WITHIN / 10);
            }
        });
        let query = query(1, "a.example", TYPE::A).expect("a question");
        let error = exchange_stream(address, &query).expect_err("it has no end");
        assert_eq!(error.to_string(), "no answer within 2s");
        trickle.join().expect("it ends");
    }
}
