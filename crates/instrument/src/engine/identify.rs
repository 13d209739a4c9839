//! Which protocol a server speaks that has not answered in ours.
//!
//! It is sent a line that every protocol of lines answers, if only with a complaint, and then a TLS
//! handshake. Both are harmless: `PING` changes nothing anywhere.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tailcut_measure::app::Spoken;
use tailcut_net::clock::Clock;
use tailcut_net::driver::Wait;
use tailcut_net::stream::{Event, StreamConfig, Streams, TlsClient, Verification};

/// The protocol that is spoken at a TCP port, where it shows.
pub(super) fn identify(target: SocketAddr) -> Option<Spoken> {
    let heard = first_bytes(target, None);
    match heard.as_deref().and_then(Spoken::of) {
        Some(spoken) => Some(refine(target, spoken)),
        None => accepts_tls(target).then_some(Spoken::Tls),
    }
}

/// What a server speaks that has answered in this: one of HTTPS may complain in HTTP, without a word
/// of TLS.
pub(super) fn refine(target: SocketAddr, spoken: Spoken) -> Spoken {
    if spoken == Spoken::Http && accepts_tls(target) { Spoken::Tls } else { spoken }
}

fn accepts_tls(target: SocketAddr) -> bool {
    let tls = TlsClient::new(None, Verification::Off);
    tls.is_ok_and(|tls| first_bytes(target, Some(&tls)).is_some())
}

/// Whether somebody listens over TCP at a port.
pub(super) fn accepts_tcp(target: SocketAddr) -> bool {
    TcpStream::connect_timeout(&target, Duration::from_nanos(WAIT_NS)).is_ok()
}

/// The first bytes that come back on a line; with TLS, what comes until its handshake is over. Nothing
/// where nothing comes.
fn first_bytes(target: SocketAddr, tls: Option<&TlsClient>) -> Option<Vec<u8>> {
    let config = StreamConfig { connect_timeout_ns: WAIT_NS, ..StreamConfig::default() };
    let mut streams = Streams::new(Wait::Block { spin_ns: 0 }, config).ok()?;
    let id = streams.connect(target, tls).ok()?;
    let until = Clock.now() + WAIT_NS;
    let (mut heard, mut is_over) = (Vec::new(), false);
    while !is_over && Clock.now() < until {
        let polled = streams.poll(Some(until), |connection, event| match event {
            Event::Connected if tls.is_none() => connection.output().extend_from_slice(LINE),
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

/// How long to wait for each answer.
const WAIT_NS: u64 = 250_000_000;

const HEARD_LEN_MAX: usize = 1_024;
