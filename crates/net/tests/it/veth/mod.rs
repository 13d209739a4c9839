//! Two network namespaces and a wire between them.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::Write;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Two namespaces with an interface each, and a wire between; gone with this.
pub(crate) struct VethPair {
    pub(crate) near: String,
    pub(crate) far: String,
}

impl VethPair {
    /// `None`, said past the test harness's capture, where this process may not.
    pub(crate) fn create() -> Option<Self> {
        Self::with_queues(1)
    }

    /// As [`VethPair::create`], with so many queues at each end, by which it spreads flows.
    pub(crate) fn with_queues(queues: u32) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let pair = Self { near: format!("tc{id}n"), far: format!("tc{id}f") };
        let (near, far) = (&pair.near, &pair.far);
        if let Err(error) = ip(&format!("netns add {near}")) {
            writeln!(std::io::stderr(), "SKIPPED: no network namespace: {}", error.trim())
                .expect("standard error");
            return None;
        }
        let lanes = format!("numrxqueues {queues} numtxqueues {queues}");
        for command in [
            format!("netns add {far}"),
            format!(
                "link add v{near} netns {near} {lanes} type veth peer name v{far} netns {far} {lanes}"
            ),
            format!("-n {near} addr add 10.77.0.1/24 dev v{near}"),
            format!("-n {far} addr add 10.77.0.2/24 dev v{far}"),
            format!("-n {near} link set v{near} up"),
            format!("-n {far} link set v{far} up"),
        ] {
            ip(&command).expect("a veth pair");
        }
        Some(pair)
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        for namespace in [&self.near, &self.far] {
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    run("ip", arguments)
}

/// Runs a program with arguments between blanks; fails with what it says.
pub(crate) fn run(program: &str, arguments: &str) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments.split(' '))
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Moves this thread into a namespace.
pub(crate) fn enter(namespace: &str) {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).expect("the namespace");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("to enter it");
}
