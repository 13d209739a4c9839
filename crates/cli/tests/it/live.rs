//! The live view, on a pseudoterminal and without one.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;
use tailcut_net::clock::Clock;

use crate::harness::{run, serve, signal, tailcut};

/// A measurement whose standard input and error are a terminal.
struct OnTerminal {
    child: Child,
    keyboard: File,
    /// The end that the measurement has.
    terminal: OwnedFd,
    before: Termios,
    shown: Receiver<Vec<u8>>,
    /// Output that it has shown so far.
    screen: String,
}

impl OnTerminal {
    fn start(target: &str, more: &[&str], environment: &[(&str, &str)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudoterminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("its other end");
        let terminal = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY)
            .expect("its other end");
        tcsetwinsize(&terminal, Winsize { ws_row: 30, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 })
            .expect("a size");
        let before = tcgetattr(&terminal).expect("its modes");
        let end = || Stdio::from(terminal.try_clone().expect("a copy"));
        let mut command = tailcut();
        command.args([
            "measure",
            "--target",
            target,
            "--app",
            "echo:64",
            "--rate",
            "500",
            "--timeout",
            "30s",
        ]);
        command
            .args(["--live", "--json", "-"])
            .args(more)
            .stdin(end())
            .stdout(Stdio::piped())
            .stderr(end());
        command.env("TERM", "xterm").env_remove("NO_COLOR").envs(environment.iter().copied());
        let child = command.spawn().expect("the binary starts");
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().expect("a copy");
        let (show, shown) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(len @ 1..) = screen.read(&mut bytes)
                && show.send(bytes[..len].to_vec()).is_ok()
            {}
        });
        Self { child, keyboard, terminal, before, shown, screen: String::new() }
    }

    /// Waits until it has shown a text.
    fn wait_for(&mut self, text: &str) {
        while !self.screen.contains(text) {
            let bytes = self
                .shown
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("{text:?} is not in {:?}", self.screen));
            self.screen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    /// Looks on for a while.
    fn watch(&mut self, time: Duration) {
        let end = Clock.now() + time.as_nanos() as u64;
        while let left @ 1.. = end.saturating_sub(Clock.now())
            && let Ok(bytes) = self.shown.recv_timeout(Duration::from_nanos(left))
        {
            self.screen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    fn modes(&self) -> Termios {
        tcgetattr(&self.terminal).expect("its modes")
    }

    /// Waits for the end, sees that the terminal is as it was, and gives the exit code and standard
    /// output.
    fn finish(mut self) -> (Option<i32>, String, String) {
        self.wait_for(LEAVE);
        let mut stdout = String::new();
        self.child
            .stdout
            .take()
            .expect("it is piped")
            .read_to_string(&mut stdout)
            .expect("it is text");
        let code = self.child.wait().expect("it ends").code();
        let now = self.modes();
        assert_eq!(
            (now.local_modes, now.input_modes, now.output_modes),
            (self.before.local_modes, self.before.input_modes, self.before.output_modes)
        );
        // Behind all that it has said, which may still be on its way.
        let mut terminal = File::from(self.terminal.try_clone().expect("a copy"));
        terminal.write_all(END.as_bytes()).expect("a terminal");
        self.wait_for(END);
        (code, stdout, std::mem::take(&mut self.screen))
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check_key(key: &[u8]) {
    let server = serve("echo", &[]);
    let mut measure =
        OnTerminal::start(server.address(), &["--duration", "60s", "--warmup", "100ms"], &[]);
    measure.wait_for("measuring");
    let modes = measure.modes().local_modes;
    assert!(
        !modes.contains(LocalModes::ECHO) && !modes.contains(LocalModes::ISIG),
        "the keys are read"
    );
    measure.watch(LONG_ENOUGH);
    measure.keyboard.write_all(key).expect("a key");
    let (code, stdout, _) = measure.finish();
    check_interrupted(code, &stdout);
}

/// Checks that what was measured until then is told, and is not to be relied on.
fn check_interrupted(code: Option<i32>, stdout: &str) {
    let result: Value = serde_json::from_str(stdout).expect("a result");
    let measured_s = result["measured_s"].as_f64().expect("a length");
    let sent = result["counts"]["sent"].as_f64().expect("a count");
    assert!(measured_s > 0.0 && measured_s < 60.0, "{measured_s}");
    // At 500 requests/s, of a Poisson process.
    assert!((sent - 500.0 * measured_s).abs() < 10.0 * sent.sqrt(), "{sent} in {measured_s} s");
    assert_eq!(result["verdict"]["reasons"][0]["name"], "interrupted");
    assert_eq!(code, Some(3));
}

#[test]
fn q_ends_it_and_gives_the_terminal_back() {
    check_key(b"q");
}

#[test]
fn ctrl_c_ends_it_and_gives_the_terminal_back() {
    check_key(b"\x03");
}

#[test]
fn a_signal_ends_it_and_gives_the_terminal_back() {
    let server = serve("echo", &[]);
    let mut measure = OnTerminal::start(server.address(), &["--duration", "60s"], &[]);
    measure.wait_for("warming up");
    signal("TERM", &measure.child);
    measure.wait_for("tailcut: interrupted before anything was measured");
    assert_eq!(measure.finish().0, Some(1));
}

#[test]
fn a_signal_while_it_measures_gives_what_was_measured() {
    let server = serve("echo", &[]);
    let mut measure =
        OnTerminal::start(server.address(), &["--duration", "60s", "--warmup", "100ms"], &[]);
    measure.wait_for("measuring");
    measure.watch(LONG_ENOUGH);
    signal("INT", &measure.child);
    let (code, stdout, _) = measure.finish();
    check_interrupted(code, &stdout);
}

/// A frozen server keeps requests waiting for their timeout of 30 s, and the process with them.
#[test]
fn the_terminal_is_given_back_before_the_last_request_is_given_up() {
    let server = serve("echo", &[]);
    let mut measure = OnTerminal::start(server.address(), &["--duration", "60s"], &[]);
    measure.wait_for("warming up");
    server.signal("STOP");
    measure.keyboard.write_all(b"q").expect("a key");
    measure.wait_for(LEAVE);
    assert_eq!(measure.modes().local_modes, measure.before.local_modes);
    // Whoever does not want to wait ends it, as without a live view.
    signal("TERM", &measure.child);
    signal("INT", &measure.child);
    assert_eq!(measure.finish().0, Some(1));
}

#[test]
fn an_error_is_said_on_the_terminal_as_it_was() {
    let address = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port");
    let mut measure = OnTerminal::start(&address.to_string(), &["--transport", "tcp"], &[]);
    measure.wait_for("nobody listens there");
    let (code, _, screen) = measure.finish();
    let (before, after) = screen.split_once(LEAVE).expect("it leaves");
    assert!(before.contains(ENTER) && after.contains("tailcut: "), "{screen:?}");
    assert_eq!(code, Some(1));
}

#[test]
fn the_result_is_on_standard_output_when_the_screen_is_gone() {
    let server = serve("echo", &[]);
    let mut measure =
        OnTerminal::start(server.address(), &["--duration", "1500ms", "--warmup", "100ms"], &[]);
    measure.wait_for("speaks against it");
    let (code, stdout, screen) = measure.finish();
    assert!(matches!(code, Some(0 | 3)), "{screen:?}");
    let result: Value = serde_json::from_str(&stdout).expect("JSON and nothing else");
    assert_eq!(result["counts"]["replied"], result["counts"]["sent"]);
    assert!(screen.contains(COLOURED), "{screen:?}");
}

#[test]
fn without_colours_there_are_none() {
    let server = serve("echo", &[]);
    let mut measure = OnTerminal::start(
        server.address(),
        &["--duration", "400ms", "--warmup", "100ms"],
        &[("NO_COLOR", "1")],
    );
    measure.wait_for("measuring");
    let (_, _, screen) = measure.finish();
    assert!(!screen.contains(COLOURED) && !screen.contains("\u{1b}[1m"), "{screen:?}");
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_gets_lines() {
    let server = serve("echo", &[]);
    let mut measure = OnTerminal::start(
        server.address(),
        &["--duration", "1s", "--warmup", "1s"],
        &[("TERM", "dumb")],
    );
    measure.wait_for("/s sent, ");
    assert!(!measure.screen.contains('\u{1b}'), "{:?}", measure.screen);
}

#[test]
fn without_a_terminal_there_is_a_line_a_second() {
    let server = serve("echo", &[]);
    let load = [
        "measure",
        "--target",
        server.address(),
        "--app",
        "echo:64",
        "--rate",
        "500",
        "--timeout",
        "30s",
        "--live",
    ];
    let output = run(&[&load[..], &["--duration", "2s", "--warmup", "1s"]].concat());
    let stderr = String::from_utf8(output.stderr).expect("it is text");
    assert!(!stderr.contains('\u{1b}'), "{stderr}");
    // Where the machine was busy two seconds may be told together.
    let (verdict, lines) = stderr
        .lines()
        .collect::<Vec<_>>()
        .split_last()
        .map_or_else(|| panic!("{stderr}"), |(last, lines)| ((*last).to_owned(), lines.to_vec()));
    assert!((1..=3).contains(&lines.len()), "{stderr}");
    assert!(
        lines.iter().all(|line| line.contains("/s sent, ") && line.contains(", max ")),
        "{stderr}"
    );
    assert!(lines.last().is_some_and(|line| line.starts_with("measuring, ")), "{stderr}");
    // What is said last is what the result says.
    let result = String::from_utf8(output.stdout).expect("it is text");
    let said = verdict.strip_prefix("verdict: ").expect("a verdict");
    assert!(
        result.contains(&format!("\n{}\n", said.split(':').next().unwrap_or_default())),
        "{verdict}: {result}"
    );
}

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";
/// Words of the test itself, which come last.
const END: &str = "<end>";
/// The sequence that sets a colour of 256.
const COLOURED: &str = "\u{1b}[38;5;";

/// To have measured something.
const LONG_ENOUGH: Duration = Duration::from_secs(2);
/// A machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);
