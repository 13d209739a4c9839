//! `tailcut demo` as its user runs it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// Three seconds at 4,000 requests a second are 12,000, of which 10,000 make a p99.9. What the tail
/// is depends on what else the machine does, so it is not looked at here. The point of the panel on
/// cloning runs at the same time.
#[test]
fn a_short_run_gives_a_page_a_picture_and_json() {
    let dir = Directory::new("short-run");
    let cloning = ["--clone-policies", "netclone", "--clone-loads", "0.5"];
    let output =
        demo(&dir, &[&["--json", "-", "--svg", "demo.svg", "--seed", "7"], &cloning[..]].concat())
            .output()
            .expect("the demo runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let json: Value =
        serde_json::from_slice(&output.stdout).expect("standard output is JSON and nothing else");
    assert_eq!(json["schema"], "tailcut.demo/1");
    assert_eq!(
        json["config"]["command"],
        "tailcut demo --seed 7 --loads 0.5 --policies jbsq:2 --clone-loads 0.5 --clone-policies netclone --duration 3s --normal-priority"
    );
    assert!(json["points"][0]["counts"]["replied"].as_u64() > Some(10_000), "{json:#}");
    let jittered = &json["cloning"]["points"][0];
    assert!(jittered["counts"]["replied"].as_u64() > Some(10_000), "{json:#}");
    assert_eq!(jittered["predicted"]["basis"], "simulated");
    let page = dir.read("tailcut-demo.html");
    assert!(page.contains("jbsq:2 (JBSQ(2) chain)"));
    assert!(page.contains("A second copy against jitter"));
    assert!(dir.read("demo.svg").starts_with("<svg xmlns="));
    assert!(stderr(&output).contains("/2] jbsq:2 at 50 %: p99 "), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("/2] netclone at 50 % with jitter: p99 "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_interrupted_run_leaves_no_process() {
    let dir = Directory::new("interrupted");
    let mut command = demo(&dir, &["--duration", "3600s"]);
    let mut demo =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the demo starts");
    let mut seen = BTreeSet::new();
    // Servers, a router and a load.
    while seen.len() < 3 && demo.try_wait().expect("the demo is a child").is_none() {
        seen.extend(children(&demo));
    }
    let signalled =
        Command::new("kill").args(["-TERM", &demo.id().to_string()]).status().expect("kill runs");
    assert!(signalled.success());
    let output = demo.wait_with_output().expect("the demo ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).ends_with("tailcut: jbsq:2 at 50 %: interrupted\n"),
        "{}",
        stderr(&output)
    );
    assert_eq!(seen.len(), 3);
    let left: Vec<&u32> = seen
        .iter()
        .filter(|pid| fs::exists(format!("/proc/{pid}")).expect("/proc can be read"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_check_of_nothing_is_refused() {
    let dir = Directory::new("check");
    let output = demo(&dir, &["--check"]).output().expect("the demo runs");
    assert_eq!(output.status.code(), Some(1));
    let expected =
        "tailcut: --check looks at random and jbsq:N at a load of 0.7, and neither is run\n";
    assert_eq!(stderr(&output), expected);
}

fn demo(dir: &Directory, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailcut"));
    command
        .current_dir(&dir.0)
        .args(["demo", "--policies", "jbsq:2", "--loads", "0.5", "--normal-priority"])
        .args(words);
    if !words.contains(&"--duration") {
        command.args(["--duration", "3s"]);
    }
    if !words.contains(&"--clone-loads") {
        command.arg("--no-cloning");
    }
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The processes that this one has started.
fn children(parent: &Child) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc can be read").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // The parent is the second field after the command's name, which ends with the last
    // parenthesis.
    let parent_of = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    pids.filter(|pid| parent_of(pid) == Some(parent.id())).collect()
}

/// A directory below the tests' own, emptied at the start.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the tests' directory can be written");
        Self(path)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("the demo wrote it")
    }
}
