//! Sealed services from the command line: their keys, calls through a router, a capture, and the second
//! implementation of their packets.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Service, assert_all_replied, counts, in_one_of_three, measure, run, succeed};

/// Files of keys, which go when they are dropped.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("tailcut-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        Self(directory)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a text").to_owned()
    }

    /// A group's keys, a router's and a client's.
    fn keys(&self) -> [String; 3] {
        let [servers, router, client] = ["servers", "router", "client"].map(|name| self.path(name));
        succeed(&["keys", "new", &servers, "--group", "search"]);
        succeed(&["keys", "derive", &servers, &router, "--router"]);
        succeed(&["keys", "derive", &servers, &client, "--client", "17"]);
        [servers, router, client]
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left is in the directory of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LOAD: [&str; 8] =
    ["--app", "echo:64", "--rate", "500", "--duration", "300ms", "--warmup", "100ms"];

#[test]
fn calls_through_a_router_are_sealed_and_open_ones_are_not_heard() {
    let files = Files::new("sealed-route");
    let [servers, router, client] = files.keys();
    in_one_of_three(|| {
        let server = ["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--seal", &servers];
        let server = Service::start(&server, 1);
        let router = Service::start(
            &[
                "route",
                "--listen",
                "127.0.0.1:0",
                "--server",
                server.address(),
                "--silent-after",
                "30s",
                "--seal",
                &router,
            ],
            1,
        );
        assert_all_replied(&measure(router.address(), &[&LOAD[..], &["--seal", &client]].concat()));
        let target = router.address().to_owned();
        let open = [
            "measure",
            "--target",
            &target,
            "--app",
            "echo:64",
            "--rate",
            "100",
            "--duration",
            "100ms",
        ];
        let output = run(&[&open[..], &["--timeout", "50ms"]].concat());
        assert!(!output.status.success(), "an open client is not answered");
        let [unsealed, forwarded] = counts(router, ["seal_unsealed", "forwarded"]);
        assert!(unsealed > 0 && forwarded > 0, "{unsealed} {forwarded}");
        let [forged, requests] = counts(server, ["seal_forged", "requests"]);
        assert!(requests > 0, "{requests}");
        // A server that was descheduled for 70 ms has counted one of its router's.
        if forged == 0 { Ok(()) } else { Err(format!("{forged} of {requests}")) }
    });
}

#[test]
fn keys_rotate_and_tell_no_secret() {
    let files = Files::new("sealed-keys");
    let [servers, _, client] = files.keys();
    let shown = succeed(&["keys", "show", &servers]);
    assert!(shown.starts_with("keys of servers of the group search, "), "{shown}");
    succeed(&["keys", "rotate", &servers, "--after", "3600s"]);
    let text = fs::read_to_string(&servers).expect("the file");
    let secrets = text.lines().filter_map(|line| line.strip_prefix("key ")?.rsplit(' ').next());
    let shown = succeed(&["keys", "show", &servers]);
    assert!(
        shown.contains("epoch 1 from ") && shown.contains(", current\nepoch 2 from "),
        "{shown}"
    );
    assert!(secrets.clone().all(|secret| secret.len() == 64 && !shown.contains(secret)));
    assert_eq!(secrets.count(), 2);
    let mode = fs::metadata(&servers).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    check_refused(&["keys", "new", &servers], "cannot create");
    check_refused(&["keys", "rotate", &client], "not a server's keys");
    check_refused(&["keys", "derive", &client, "x", "--router"], "only a server's keys");
    let listen = ["--listen", "127.0.0.1:0", "--seal", &client];
    check_refused(&[&["serve", "--app", "echo"], &listen[..]].concat(), "client's keys");
    check_refused(&[&["route", "--server", "127.0.0.1:9"], &listen[..]].concat(), "client's keys");
    fs::set_permissions(&client, Permissions::from_mode(0o644)).expect("it is ours");
    check_refused(&["keys", "show", &client], "others may read the keys");
    // That is looked at before anything of it is read.
    fs::write(&client, [0xff]).expect("it is ours");
    check_refused(&["keys", "show", &client], "others may read the keys");
}

#[test]
fn a_rotation_leaves_a_file_that_works() {
    let files = Files::new("sealed-rotation");
    let [full, ahead, old] = ["full.keys", "ahead.keys", "old.keys"].map(|name| files.path(name));
    succeed(&["keys", "new", &full, "--epochs", "64", "--every", "1s"]);
    let before = fs::read_to_string(&full).expect("the file");
    check_refused(&["keys", "rotate", &full, "--after", "3600s"], "more than 64 keys");
    assert_eq!(fs::read_to_string(&full).expect("the file"), before);

    succeed(&["keys", "new", &ahead, "--epochs", "3"]);
    check_refused(&["keys", "rotate", &ahead, "--after", "300s"], "to be used for 60 s at least");
    succeed(&["keys", "rotate", &ahead, "--after", "7261s"]);

    succeed(&["keys", "new", &old]);
    let text = fs::read_to_string(&old).expect("the file");
    let head: String = text
        .lines()
        .filter(|line| !line.starts_with("key "))
        .flat_map(|line| [line, "\n"])
        .collect();
    let key = |at: usize| format!("key {at} {at}000 {}\n", format!("{at:02x}").repeat(32));
    fs::write(&old, head + &key(1) + &key(2) + &key(3)).expect("it is ours");
    let beside = files.path("old.new");
    fs::write(&beside, "").expect("a file");
    check_refused(&["keys", "rotate", &old], "old.new is in the way");
    fs::remove_file(&beside).expect("it is there");
    succeed(&["keys", "rotate", &old]);
    let shown = succeed(&["keys", "show", &old]);
    let epochs: Vec<&str> =
        shown.lines().filter_map(|line| line.strip_prefix("epoch ")?.split(' ').next()).collect();
    assert_eq!(epochs, ["2", "3", "4"], "that before the current one is still taken");
}

fn check_refused(args: &[&str], text: &str) {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains(text), "{stderr}");
}

/// Python's cryptography computes the same packets from the page alone.
#[test]
fn a_second_implementation_agrees() {
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/sealed/check.py");
    let has = Command::new("python3").args(["-c", "import cryptography"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none_or(|is_ci| is_ci != "true"), "CI has it");
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIPPED: python3 lacks cryptography; `scripts/setup test` installs it")
            .expect("standard error");
        return;
    }
    let output = Command::new("python3").arg(check).output().expect("python3");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("sealed packets are what"));
}
