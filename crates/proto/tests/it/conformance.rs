//! The traces that data planes replay are what the Rust policies decide, and no others.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use tailcut_proto::conformance::{CloningStep, Copies, NAMES, PlacementStep, STEPS, Trace};

/// Hash and beginning of a committed trace: its first line is a comment, then comes the hash, then
/// the beginning.
fn committed(name: &str) -> (String, String) {
    let file = format!("{}.txt", name.replace([':', '+'], "-"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/traces").join(file);
    let text = std::fs::read_to_string(&path).expect("the trace is committed");
    let mut lines = text.splitn(3, '\n').skip(1);
    let hash = lines.next().and_then(|line| line.strip_prefix("hash ")).expect("a hash");
    (hash.to_owned(), lines.next().expect("a beginning").to_owned())
}

/// As `git hash-object` hashes it.
fn hash(text: &str) -> String {
    let mut git = Command::new("git")
        .args(["hash-object", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git is there");
    git.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("git reads");
    let output = git.wait_with_output().expect("git ends");
    String::from_utf8(output.stdout).expect("a hash").trim().to_owned()
}

#[test]
fn traces_are_those_that_are_committed() {
    for name in NAMES {
        let text = Trace::named(name).expect("a trace").to_string();
        let (committed_hash, beginning) = committed(name);
        assert!(text.starts_with(&beginning), "{name} begins otherwise: run `cargo xtask p4`");
        assert_eq!(hash(&text), committed_hash, "{name} goes on otherwise: run `cargo xtask p4`");
    }
}

#[test]
fn a_trace_of_a_policy_has_all_that_can_happen() {
    let Some(Trace::Placement(trace)) = Trace::named("jbsq:3") else { panic!("a trace") };
    let steps: Vec<_> = trace.parts.iter().flat_map(|part| &part.steps).collect();
    let count = |is: fn(&PlacementStep) -> bool| steps.iter().filter(|step| is(step)).count();
    assert_eq!(steps.len(), STEPS);
    let held = count(|step| matches!(step, PlacementStep::Place { chosen: None, .. }));
    let placed = count(|step| matches!(step, PlacementStep::Place { chosen: Some(_), .. }));
    let left = count(|step| matches!(step, PlacementStep::Service { is_in_service: false, .. }));
    assert!(held > 2_000 && placed > 2_000 && left > 200, "{held} {placed} {left}");
}

#[test]
fn a_trace_of_a_switch_has_all_that_can_happen() {
    for name in ["netclone", "netclone+racksched"] {
        let Some(Trace::Cloning(trace)) = Trace::named(name) else { panic!("a trace") };
        let steps: Vec<_> = trace.parts.iter().flat_map(|part| &part.steps).collect();
        let count = |is: fn(&CloningStep) -> bool| steps.iter().filter(|step| is(step)).count();
        assert_eq!(steps.len(), STEPS);
        let cloned =
            count(|step| matches!(step, CloningStep::Request { copies: Copies::Two(..), .. }));
        let single =
            count(|step| matches!(step, CloningStep::Request { copies: Copies::One(..), .. }));
        let dropped = count(|step| matches!(step, CloningStep::Response { passes: false, .. }));
        assert!(
            cloned > 2_000 && single > 1_000 && dropped > 1_000,
            "{name}: {cloned} {single} {dropped}"
        );
    }
    assert!(Trace::named("jbsq:4").is_none());
}
