//! Identification of the protocol of a server that has not answered in ours.
//!
//! It is sent a line that every protocol of lines answers, if only with a complaint, then a TLS
//! handshake, and then PostgreSQL's question for one. All are harmless: `PING` changes nothing
//! anywhere.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tailcut_measure::app::Spoken;
use tailcut_net::clock::Clock;
use tailcut_net::driver::Wait;
use tailcut_net::stream::{Event, StreamConfig, Streams, TlsClient, Verification};

use super::target::Target;

/// The protocol that is spoken at a TCP port, where it shows.
pub(super) fn identify(target: &Target) -> Option<Spoken> {
    let heard = first_bytes(target, None, LINE);
    match heard.as_deref().and_then(Spoken::of) {
        Some(spoken) => Some(refine(target, spoken)),
        None if accepts_tls(target) => Some(Spoken::Tls),
        None => {
            let answered = first_bytes(target, None, POSTGRES_TLS);
            matches!(answered.as_deref(), Some(b"S" | b"N")).then_some(Spoken::Postgres)
        }
    }
}

/// Protocol of a server that has answered in this one: one of HTTPS may complain in HTTP, without a
/// word of TLS.
pub(super) fn refine(target: &Target, spoken: Spoken) -> Spoken {
    if spoken == Spoken::Http && accepts_tls(target) { Spoken::Tls } else { spoken }
}

/// True if a server of PostgreSQL agrees to TLS.
pub(super) fn upgrades_postgres(target: &Target) -> bool {
    first_bytes(target, None, POSTGRES_TLS).is_some_and(|answered| answered == b"S")
}

fn accepts_tls(target: &Target) -> bool {
    if matches!(target, Target::Unix(_)) {
        return false;
    }
    let tls = TlsClient::new(None, Verification::Off);
    tls.is_ok_and(|tls| first_bytes(target, Some(&tls), &[]).is_some())
}

/// True if somebody listens over TCP at a port.
pub(super) fn accepts_tcp(target: SocketAddr) -> bool {
    TcpStream::connect_timeout(&target, Duration::from_nanos(WAIT_NS)).is_ok()
}

/// The first bytes that come back for those that are sent; with TLS, what comes until its handshake
/// is over. Nothing where nothing comes.
fn first_bytes(target: &Target, tls: Option<&TlsClient>, said: &[u8]) -> Option<Vec<u8>> {
    let config = StreamConfig { connect_timeout_ns: WAIT_NS, ..StreamConfig::default() };
    let mut streams = Streams::new(Wait::Block { spin_ns: 0 }, config).ok()?;
    let id = target.connect(&mut streams, tls).ok()?;
    let until = Clock.now() + WAIT_NS;
    let (mut heard, mut is_over) = (Vec::new(), false);
    while !is_over && Clock.now() < until {
        let polled = streams.poll(Some(until), |connection, event| match event {
            Event::Connected if tls.is_none() => connection.output().extend_from_slice(said),
            Event::Connected => {
                heard.push(0);
                is_over = true;
            }
            Event::Bytes(bytes) => {
                heard.extend_from_slice(&bytes[..bytes.len().min(HEARD_LEN_MAX)]);
                is_over = true;
            }
            Event::Finished | Event::Closed(_) => is_over = true,
            Event::Sent(_) | Event::Accepted(_) => {}
        });
        polled.ok()?;
    }
    streams.close(id);
    Some(heard).filter(|heard| !heard.is_empty())
}

/// An inline command of Redis, an error to memcached, a bad request to HTTP.
const LINE: &[u8] = b"PING\r\n\r\n";

/// SSLRequest, which a server of PostgreSQL answers with one byte.
const POSTGRES_TLS: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];

/// Longest wait for each answer.
const WAIT_NS: u64 = 250_000_000;

const HEARD_LEN_MAX: usize = 1_024;
