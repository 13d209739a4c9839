//! An agent's door: takes one coordinator at a time, and keeps strangers from keeping it busy.
//!
//! Each connection that comes is let in to show that it has the key. Where its network has all its
//! places, or all are taken, another that has not shown it loses its place: one that has said
//! nothing before one that has, and the newest first, for the others have waited longer for their
//! turn.
//!
//! Invariant: whoever is not authenticated holds one of a few threads for two seconds
//! at most, and nothing else; and those of one network leave places to others.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use tailcut_net::door::{Places, make_room, network_of};
use tailcut_proto::r2p2::Prefix;

use super::frames::lock;
use super::handshake::{Session, accept};
use super::key::Key;
use super::message::Report;
use super::serve::{Service, Watch, serve};
use super::stream::Stream;
use crate::job::AgentEvent;

/// Activity of an agent, for the process around it; clones share it.
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
    /// True if there is a coordinator.
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
    /// Connections that are not authenticated yet, the oldest first.
    strangers: Mutex<Vec<Stranger>>,
}

/// A connection that is not authenticated yet.
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
        let about = |stranger: &Stranger| (stranger.network, stranger.stream.is_silent());
        let displaced = make_room(&mut lock(&self.strangers), network, PLACES, about);
        displaced.into_iter().for_each(|stranger| stranger.stream.close());
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
        let served = serve(session, self.service.clone(), Watch::Stream);
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

/// For a hello and a proof.
const PATIENCE_NS: u64 = 2_000_000_000;

const PLACES: Places = Places { all: 16, of_network: 4 };
