//! An agent's door: takes one coordinator at a time, and keeps strangers from keeping it busy.
//!
//! Each connection that comes is let in to show that it has the key. Where its network has all its
//! places, or all are taken, another that has not shown it loses its place: one that has said nothing
//! before one that has, and the newest first, for the others have waited longer for their turn.
//!
//! Invariant: whoever has not proven that it has the key holds one of a few threads for two seconds
//! at most, and nothing else; and those of one network leave places to others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use tailcut_proto::r2p2::Prefix;

use super::frames::lock;
use super::handshake::{Session, accept};
use super::key::Key;
use super::message::Report;
use super::serve::{Service, Watch, serve};
use super::stream::Stream;
use crate::job::AgentEvent;

/// What an agent is busy with, for the process around it; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Activity(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// There is a coordinator.
    is_taken: AtomicBool,
    /// Nobody new is let in.
    is_closed: AtomicBool,
    /// Coordinators that were let in.
    admitted: AtomicU64,
    /// Connections that were not.
    refused: AtomicU64,
}

impl Activity {
    /// Whether there is a coordinator.
    pub fn has_coordinator(&self) -> bool {
        self.0.is_taken.load(Ordering::Relaxed)
    }

    /// Coordinators that were let in.
    pub fn admitted(&self) -> u64 {
        self.0.admitted.load(Ordering::Relaxed)
    }

    /// Connections that were not: strangers, a second coordinator, whoever came when it was closed.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Lets no coordinator in any more. The one that is there stays.
    pub fn close(&self) {
        self.0.is_closed.store(true, Ordering::Relaxed);
    }

    fn refuse(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) struct Door {
    key: Option<Key>,
    service: Service,
    activity: Activity,
    /// Connections that have not proven anything yet, the oldest first.
    strangers: Mutex<Vec<Stranger>>,
}

/// A connection that has not proven anything yet.
struct Stranger {
    /// Counted over all that came.
    number: u64,
    network: Prefix,
    stream: Stream,
}

impl Door {
    pub(super) fn new(key: Option<Key>, service: Service, activity: Activity) -> Arc<Self> {
        Arc::new(Self { key, service, activity, strangers: Mutex::default() })
    }

    /// Lets coordinators in, one after the other, for ever.
    pub(super) fn keep(self: &Arc<Self>, listener: &TcpListener) -> Result<()> {
        for number in 0.. {
            match listener.accept() {
                Ok((stream, from)) => self.receive(number, stream, from)?,
                // Out of descriptors, most likely: some will be free again.
                Err(_) => thread::park_timeout(Duration::from_millis(100)),
            }
        }
        Ok(())
    }

    fn receive(self: &Arc<Self>, number: u64, stream: TcpStream, from: SocketAddr) -> Result<()> {
        let Ok(stream) = Stream::tcp(stream) else {
            self.activity.refuse();
            return Ok(());
        };
        let network = network_of(from.ip());
        self.make_room(network);
        lock(&self.strangers).push(Stranger { number, network, stream: stream.clone() });
        let door = self.clone();
        let work = move || match door.admit(number, &stream) {
            Ok(()) => (door.service.note)(&format!("coordinator {from} left")),
            Err(error) => (door.service.note)(&format!("coordinator {from}: {error:#}")),
        };
        thread::Builder::new()
            .name("coordinator".to_owned())
            .spawn(work)
            .context("cannot start a thread for a coordinator")?;
        Ok(())
    }

    /// Lets a stranger go whose place one of `network` is to have, if there is none for it. The
    /// thread that serves it counts it as refused.
    fn make_room(&self, network: Prefix) {
        let mut strangers = lock(&self.strangers);
        let places: Vec<(Prefix, bool)> = strangers
            .iter()
            .map(|stranger| (stranger.network, stranger.stream.is_silent()))
            .collect();
        if let Some(place) = displaced(&places, network) {
            strangers.remove(place).stream.close();
        }
    }

    fn admit(&self, number: u64, stream: &Stream) -> Result<()> {
        let session = accept(stream, PATIENCE_NS, self.key.as_ref());
        lock(&self.strangers).retain(|stranger| stranger.number != number);
        let session = session.map_err(|refusal| {
            self.activity.refuse();
            anyhow::anyhow!("it {refusal}")
        })?;
        let state = &self.activity.0;
        if state.is_closed.load(Ordering::Relaxed) {
            self.activity.refuse();
            turn_away(session, "it is about to end");
            anyhow::bail!("turned away, because this agent is about to end");
        }
        if state.is_taken.swap(true, Ordering::Acquire) {
            self.activity.refuse();
            turn_away(session, "it is busy with another coordinator");
            anyhow::bail!("turned away, because there is another coordinator");
        }
        state.admitted.fetch_add(1, Ordering::Relaxed);
        let served = serve(session, self.service, Watch::Stream);
        stream.close();
        state.is_taken.store(false, Ordering::Release);
        served
    }
}

/// Reads on until the coordinator hangs up or its time is over, for a socket that is closed over
/// what is unread takes back what it sent.
fn turn_away(mut session: Session, why: &str) {
    let told = AgentEvent::Failed(why.to_owned());
    if session.sealer.send(|body| Report::Event { number: 0, told }.put(body)).is_ok() {
        while session.opener.receive().is_ok() {}
    }
}

/// Whose place one of `network` has, of strangers by their networks and whether they are silent, the
/// oldest first; none where there is room.
fn displaced(strangers: &[(Prefix, bool)], network: Prefix) -> Option<usize> {
    let of = |network: Prefix| strangers.iter().filter(|(other, _)| *other == network).count();
    // Where all places are taken, it is a network with the most that gives one.
    let crowded = if of(network) >= STRANGERS_OF_NETWORK_MAX {
        network
    } else if strangers.len() >= STRANGERS_MAX {
        strangers.iter().map(|&(network, _)| network).max_by_key(|&network| of(network))?
    } else {
        return None;
    };
    let mut places = (0..strangers.len()).filter(|&place| strangers[place].0 == crowded).rev();
    places.clone().find(|&place| strangers[place].1).or_else(|| places.next())
}

/// The network that an address counts to.
fn network_of(ip: IpAddr) -> Prefix {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            Prefix { ip: Ipv4Addr::new(a, b, c, 0).into(), bits: 24 }
        }
        IpAddr::V6(ip) => {
            let network = ip.to_bits() >> 64 << 64;
            Prefix { ip: Ipv6Addr::from_bits(network).into(), bits: 64 }
        }
    }
}

/// For a hello and a proof.
const PATIENCE_NS: u64 = 2_000_000_000;
const STRANGERS_MAX: usize = 16;
const STRANGERS_OF_NETWORK_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u8) -> Prefix {
        network_of(Ipv4Addr::new(10, 0, number, 7).into())
    }

    /// Strangers by the number of their network; those above 100 have said something.
    fn check(strangers: &[u8], of: u8, expected: Option<usize>) {
        let strangers: Vec<_> = strangers.iter().map(|&n| (network(n % 100), n < 100)).collect();
        assert_eq!(displaced(&strangers, network(of)), expected);
    }

    #[test]
    fn the_newest_silent_stranger_of_a_crowded_network_loses_its_place() {
        check(&[], 1, None);
        check(&[1, 1, 1], 1, None);
        check(&[1, 2, 1, 1, 1, 2], 1, Some(4));
        check(&[1, 1, 101, 101], 1, Some(1));
        check(&[101, 101, 101, 101], 1, Some(3));
        check(&[1, 1, 1, 1], 2, None);
    }

    #[test]
    fn where_all_places_are_taken_a_network_with_the_most_gives_one() {
        let full = [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 10, 11, 12, 13, 14];
        check(&full, 20, Some(10));
        check(&full, 1, Some(10));
    }

    #[test]
    fn addresses_of_a_network_count_together() {
        let is_one =
            |a: &str, b: &str| network_of(a.parse().unwrap()) == network_of(b.parse().unwrap());
        assert!(is_one("10.0.0.1", "10.0.0.200") && is_one("::ffff:10.0.0.1", "10.0.0.2"));
        assert!(is_one("fd00::1", "fd00::2:3:4:5") && !is_one("fd00::1", "fd00:0:0:1::1"));
        assert!(!is_one("10.0.0.1", "10.0.1.1"));
    }
}
