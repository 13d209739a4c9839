//! An agent's door: takes one coordinator at a time, and keeps strangers from keeping it busy.
//!
//! Invariant: whoever has not proven that it has the key holds one of a few threads for two seconds
//! at most, and nothing else.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

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
    /// Connections that have not proven anything yet.
    strangers: AtomicUsize,
}

impl Door {
    pub(super) fn new(key: Option<Key>, service: Service, activity: Activity) -> Arc<Self> {
        Arc::new(Self { key, service, activity, strangers: AtomicUsize::new(0) })
    }

    /// Lets coordinators in, one after the other, for ever.
    pub(super) fn keep(self: &Arc<Self>, listener: &TcpListener) -> Result<()> {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) if self.strangers.load(Ordering::Relaxed) < STRANGERS_MAX => {
                    self.receive(stream)?
                }
                Ok(_) => self.activity.refuse(),
                // Out of descriptors, most likely: some will be free again.
                Err(_) => thread::park_timeout(Duration::from_millis(100)),
            }
        }
        Ok(())
    }

    fn receive(self: &Arc<Self>, stream: TcpStream) -> Result<()> {
        let door = self.clone();
        door.strangers.fetch_add(1, Ordering::Relaxed);
        let work = move || {
            let from = stream
                .peer_addr()
                .map_or_else(|_| "gone".to_owned(), |address| address.to_string());
            match door.admit(stream) {
                Ok(()) => (door.service.note)(&format!("coordinator {from} left")),
                Err(error) => (door.service.note)(&format!("coordinator {from}: {error:#}")),
            }
        };
        thread::Builder::new()
            .name("coordinator".to_owned())
            .spawn(work)
            .context("cannot start a thread for a coordinator")?;
        Ok(())
    }

    fn admit(&self, stream: TcpStream) -> Result<()> {
        let greeted = Stream::tcp(stream)
            .map(|stream| (accept(&stream, PATIENCE_NS, self.key.as_ref()), stream));
        self.strangers.fetch_sub(1, Ordering::Relaxed);
        let greeted = greeted.inspect_err(|_| self.activity.refuse());
        let (session, stream) = greeted?;
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

/// For a hello and a proof.
const PATIENCE_NS: u64 = 2_000_000_000;
const STRANGERS_MAX: usize = 16;
