//! The example's programs: that they run, and what of them differs from those of tonic's API.

use std::process::{Child, Command, Stdio};

/// An address that no other process of this machine asks for: the loopback network is large.
fn address() -> String {
    let [.., a, b, c] = std::process::id().to_be_bytes();
    format!("127.{}.{b}.{c}:50051", 1 + a % 250)
}

/// A server that ends with its test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it has ended");
    }
}

/// Output of the client.
fn greet(address: &str, names: &[&str]) -> String {
    let client = Command::new(env!("CARGO_BIN_EXE_helloworld-client"))
        .arg(address)
        .args(names)
        .output()
        .expect("the client runs");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    String::from_utf8(client.stdout).expect("text")
}

#[test]
fn the_programs_speak_to_each_other() {
    let address = address();
    let server = Command::new(env!("CARGO_BIN_EXE_helloworld-server"))
        .arg(&address)
        .stdout(Stdio::null())
        .spawn()
        .expect("the server runs");
    let _server = Serving(server);
    // Until it listens, nobody does.
    let patience = 1000;
    let is_there = (0..patience).any(|_| !greet(&address, &["you"]).starts_with("Unavailable"));
    assert!(is_there, "no server at {address}");
    let said = greet(&address, &["Ada", ""]);
    assert_eq!(said, "Hello Ada!\nInvalidArgument: whom am I to greet?\n");
}

/// The lines that come in the place of others, or of none, and are no comments: of the new text
/// those that are not in the longest common part, or of the old where those are more.
fn changed_lines(old: &str, new: &str) -> usize {
    let keep = |line: &&str| !line.trim_start().starts_with("//");
    let (old, new): (Vec<&str>, Vec<&str>) =
        (old.lines().filter(keep).collect(), new.lines().filter(keep).collect());
    // By rows of the table of longest common parts.
    let mut row = vec![0; new.len() + 1];
    for line in &old {
        let above = row.clone();
        for (index, other) in new.iter().enumerate() {
            row[index + 1] =
                if line == other { above[index] + 1 } else { above[index + 1].max(row[index]) };
        }
    }
    let same = row[new.len()];
    (old.len() - same).max(new.len() - same)
}

#[test]
fn lines_that_change_are_counted() {
    assert_eq!(changed_lines("a\nb\nc\n", "a\nb\nc\n"), 0);
    assert_eq!(changed_lines("a\nb\nc\n", "a\nx\nc\n"), 1);
    assert_eq!(changed_lines("a\nb\nc\n", "a\nc\n"), 1);
    assert_eq!(changed_lines("a\nc\n", "a\nb\nc\nd\n"), 2);
    assert_eq!(changed_lines("// a\nc\n", "// b\nc\n"), 0);
}

#[test]
fn a_program_of_tonic_s_api_changes_in_few_lines() {
    let server =
        changed_lines(include_str!("../../tonic/server.rs"), include_str!("../../src/server.rs"));
    let client =
        changed_lines(include_str!("../../tonic/client.rs"), include_str!("../../src/client.rs"));
    // What docs/from-tonic.md says.
    assert_eq!((server, client), (4, 3));
    assert!(server + client <= 10);
}
