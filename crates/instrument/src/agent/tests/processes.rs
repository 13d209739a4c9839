//! Agents and coordinators that are processes, which end, or freeze, in the middle. The process is
//! this test's binary again.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use tailcut_net::clock::Clock;

use super::{engine, job};
use crate::agent::key::Key;
use crate::agent::remote::{connect, connect_with};
use crate::agent::ssh::Payload;
use crate::agent::{Activity, listen, serve_stdio};
use crate::job::{Agent, AgentEvent};

/// The arguments of `tailcut agent`.
pub(super) const AGENT: &str = "TAILCUT_TEST_AGENT";
/// Agents to coordinate, apart by spaces.
pub(super) const COORDINATOR: &str = "TAILCUT_TEST_COORDINATOR";
/// Binary to copy to hosts instead of this one.
pub(super) const PAYLOAD: &str = "TAILCUT_TEST_PAYLOAD";
pub(super) const TEST: &str = "agent::tests::processes::the_process_of_other_tests";

/// Does what the environment says; without, it sees that the default is what the documents say.
#[test]
fn the_process_of_other_tests() {
    if let Ok(specs) = env::var(COORDINATOR) {
        return coordinate(&specs);
    }
    let line = env::var(AGENT).unwrap_or_else(|_| "--listen 192.0.2.1:0".to_owned());
    let error = run(&line).err().map(|error| format!("{error:#}")).unwrap_or_default();
    if env::var(AGENT).is_err() {
        assert!(
            error.contains("listens on loopback only") && error.contains("--make-key"),
            "{error}"
        );
    }
}

/// An agent as a line says: `--stdio`, or `--listen ADDR` and perhaps `--key-file FILE`.
fn run(line: &str) -> anyhow::Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |flag| Some(words[words.iter().position(|&word| word == flag)? + 1]);
    let Some(address) = after("--listen") else { return serve_stdio(engine::SERVICE) };
    let key = after("--key-file").map(|path| Key::read(path.as_ref())).transpose()?;
    listen(address.parse()?, key, engine::SERVICE, Activity::default(), &|bound| {
        println!("listening {bound}");
        Ok(())
    })
}

/// Begins a load on all agents, says so, and polls until one fails or standard input ends.
fn coordinate(specs: &str) {
    let payload = env::var(PAYLOAD).ok().map(|path| Payload::of(path.as_ref()).unwrap());
    let connect = |spec: &str| {
        let spec = spec.parse().unwrap();
        match &payload {
            Some(payload) => connect_with(&spec, None, payload),
            None => connect(&spec, None),
        }
    };
    let connected: anyhow::Result<Vec<Box<dyn Agent>>> =
        specs.split_whitespace().map(connect).collect();
    let mut agents = match connected {
        Ok(agents) => agents,
        Err(error) => return println!("refused: {error:#}"),
    };
    for agent in &mut agents {
        agent.prepare(&job()).unwrap();
        let told = agent.poll(20_000_000_000);
        assert!(matches!(told, Some(AgentEvent::Ready { .. })), "{told:?}");
    }
    agents.iter_mut().for_each(|agent| agent.start(300_000_000).unwrap());
    let mut slices = vec![0; agents.len()];
    let mut has_said = false;
    loop {
        for (agent, slices) in agents.iter_mut().zip(&mut slices) {
            match agent.poll(10_000_000) {
                Some(AgentEvent::Slice { .. }) => *slices += 1,
                Some(AgentEvent::Failed(why)) => return println!("failed: {why}"),
                _ => {}
            }
        }
        if !has_said && slices.iter().all(|&slices| slices > 10) {
            let uncertain_us: Vec<u64> =
                agents.iter().map(|agent| agent.start_uncertainty_ns() / 1_000).collect();
            println!("loading, start within {uncertain_us:?} us");
            has_said = true;
        }
    }
}

/// A process that is killed when this is dropped, and its lines.
pub(super) struct Process {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Process {
    /// This test's binary with one of the variables above.
    pub(super) fn of_this_test(variable: &str, value: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env(variable, value);
        Self::start(&mut command)
    }

    pub(super) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    /// Text behind `mark` in the next line that has it.
    pub(super) fn says(&self, mark: &str) -> String {
        wait_for(&self.stdout, mark)
    }

    /// Waits for the next line on standard error that has `mark`.
    pub(super) fn warns(&self, mark: &str) {
        wait_for(&self.stderr, mark);
    }

    pub(super) fn signal(&self, name: &str) {
        let status =
            Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status();
        assert!(status.expect("a shell").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(reader: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            // The test may have seen enough.
            let _ = sender.send(line);
        }
    });
    lines
}

fn wait_for(lines: &Receiver<String>, mark: &str) -> String {
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(Duration::from_secs(40)) {
            Ok(line) => match line.split_once(mark) {
                Some((_, rest)) => return rest.to_owned(),
                None => seen.push(line),
            },
            Err(error) => panic!("no line with {mark:?} ({error}) in {seen:#?}"),
        }
    }
}

fn agent() -> (Process, String) {
    let agent = Process::of_this_test(AGENT, "--listen 127.0.0.1:0");
    let address = agent.says("listening ");
    (agent, format!("tcp:{address}"))
}

fn check_lost(signal: &str, says: &str) {
    let (agent, spec) = agent();
    let coordinator = Process::of_this_test(COORDINATOR, &spec);
    coordinator.says("loading");
    agent.signal(signal);
    let why = coordinator.says("failed: ");
    assert!(why.contains(&spec) && why.contains(says), "{why}");
}

#[test]
fn an_agent_that_is_killed_is_told_by_name_and_reason() {
    check_lost("KILL", "closed the connection");
}

#[test]
fn an_agent_that_freezes_is_told_by_name_and_reason() {
    check_lost("STOP", "said nothing for 2");
}

/// Time for which the load goes on without its coordinator, ms.
fn load_after(signal: &str) -> u64 {
    let (agent, spec) = agent();
    let coordinator = Process::of_this_test(COORDINATOR, &spec);
    coordinator.says("loading");
    let signalled_ns = Clock.now();
    coordinator.signal(signal);
    agent.warns("load ended");
    (Clock.now() - signalled_ns) / 1_000_000
}

#[test]
fn the_load_ends_when_its_coordinator_is_killed() {
    let after_ms = load_after("KILL");
    assert!(after_ms < 2_000, "{after_ms} ms");
}

/// Two seconds of silence; a busy machine may see it later.
#[test]
fn the_load_ends_when_its_coordinator_freezes() {
    let after_ms = load_after("STOP");
    assert!((1_500..6_000).contains(&after_ms), "{after_ms} ms");
}

#[test]
fn an_agent_of_one_coordinator_ends_with_its_standard_input() {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture"]).env(AGENT, "--stdio");
    let mut agent = Process::start(&mut command);
    assert!(agent.child.wait().unwrap().success());
}
