//! The tutorial of the book: what it tells readers to type runs, in its order.

use std::path::Path;
use std::process::Command;

/// All of its commands in one shell, in a network namespace of their own, so that its fixed ports
/// are free. Runs are shorter than a reader's, and who measures before a server is up tries again.
#[test]
fn every_command_of_the_tutorial_runs() {
    let page = include_str!("../../../../docs/tutorial.md");
    let blocks =
        page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().expect("an end"));
    let script = blocks.collect::<String>();
    let script = ["10s", "20s"].iter().fold(script, |script, time| {
        script.replace(&format!("--duration {time}"), "--duration 300ms --warmup 0")
    });
    assert!(script.matches("tailcut measure").count() >= 4, "{script}");
    if !has_namespaces() {
        println!("SKIPPED: a network namespace, which needs root or unprivileged user namespaces");
        return;
    }
    let directory = std::env::temp_dir().join(format!("tailcut-{}-tutorial", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let output = unshare()
        .args(["timeout", "120", "bash", "-uc"])
        .arg(format!("{PRELUDE}{script}"))
        .current_dir(&directory)
        .env("TAILCUT", env!("CARGO_BIN_EXE_tailcut"))
        .output()
        .expect("a shell");
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && !stdout.contains("FAILED"), "{stdout}\n{stderr}");
    // Both runs behind the router, and what the simulator says beside the first.
    for part in ["In short:", "exact: M/M/1", "B - A", "in service"] {
        assert!(stdout.contains(part), "{part}: {stdout}\n{stderr}");
    }
    std::fs::remove_dir_all(&directory).expect("it was there");
}

#[test]
fn the_programs_of_the_tutorial_are_the_examples() {
    let page = include_str!("../../../../docs/tutorial.md");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tailcut/examples");
    for name in ["server.rs", "client.rs"] {
        let example = std::fs::read_to_string(examples.join(name)).expect("an example");
        let (_, program) = example.split_once("\n\n").expect("a doc before the program");
        assert!(page.contains(program), "{name}");
    }
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--"]);
    command
}

fn has_namespaces() -> bool {
    unshare().arg("true").output().is_ok_and(|output| output.status.success())
}

/// A measurement that is not trustworthy is a measurement: 3.
const PRELUDE: &str = "\
ip link set lo up
set -m
tailcut() {
    local status try
    # What runs in the background takes the shell's place, so that it is what a job's number means.
    case $1 in serve | route) exec \"$TAILCUT\" \"$@\" ;; esac
    for try in 1 2 3 4 5; do
        command \"$TAILCUT\" \"$@\" && return
        status=$?
        [ $status -eq 3 ] && return
    done
    echo \"FAILED: tailcut $*: $status\"
}
";
