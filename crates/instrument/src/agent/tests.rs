//! Agents with an engine that only tells, over sockets of loopback, as processes, and over ssh.

mod engine;
mod processes;
mod sockets;
mod ssh;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use super::limits::{Limits, Targets};
use crate::job::{Granted, Job, LoadShare, R2p2, Role, Transport};

pub(super) const LIMITS: Limits = Limits { rate_max_per_s: 1e6, targets: Targets::Private };

/// A job that an agent does.
pub(super) fn job() -> Job {
    Job {
        transport: Transport::Tcp,
        app: "echo:64".to_owned(),
        targets: vec!["127.0.0.1:1".to_owned()],
        load: LoadShare::Open { rate_per_s: 100_000.0, arrivals: "exp".to_owned() },
        role: Role::Symmetric,
        threads: 2,
        connections: 4,
        pipeline: 1,
        timeout_ns: 1_000_000_000,
        seed: 7,
        first_stream: 0,
        slice_ns: 10_000_000,
        stamp_every: 0,
        tls: None,
        login: None,
        r2p2: R2p2::default(),
        netclone_servers: 2,
        datapath: None,
        preload: false,
        no_probe: false,
        busy_poll: false,
        spin_ns: 20_000,
        trace: None,
        is_sealed: false,
        seal: None,
        granted: Granted::default(),
    }
}

/// A directory that goes when it is dropped.
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("tailcut-agent-{}-{count}", process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left of it harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
