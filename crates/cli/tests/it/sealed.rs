//! Sealed services from the command line: their keys, calls through a router, a capture, and the
//! second implementation of their packets.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tailcut_net::clock::Clock;

use crate::harness::{
    Files, Service, assert_all_replied, counts, finish, measure, run, start_measure, succeed,
    tailcut,
};

impl Files {
    /// A group's keys, a router's and a client's.
    pub(crate) fn keys(&self) -> [String; 3] {
        let [servers, router, client] = ["servers", "router", "client"].map(|name| self.path(name));
        succeed(&["keys", "new", &servers, "--group", "search"]);
        succeed(&["keys", "derive", &servers, &router, "--router"]);
        succeed(&["keys", "derive", &servers, &client, "--client", "17"]);
        [servers, router, client]
    }
}

const LOAD: [&str; 8] =
    ["--app", "echo:64", "--rate", "500", "--duration", "300ms", "--warmup", "100ms"];

#[test]
fn calls_through_a_router_are_sealed_and_open_ones_are_not_heard() {
    let files = Files::new("sealed-route");
    let [servers, router, client] = files.keys();
    let server = ["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--seal", &servers];
    let server = Service::start(&server, 1);
    let control = files.path("control");
    let route = ["route", "--listen", "127.0.0.1:0", "--silent-after", "30s"];
    let sealed = ["--server", server.address(), "--seal", &router, "--control", &control];
    let router = Service::start(&[&route[..], &sealed].concat(), 1);
    let status = succeed(&["control", &control, "status"]);
    assert!(status.contains("\nsealed  group search  "), "{status}");
    assert!(status.contains("  epochs 1  current 1\n"), "{status}");
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
    assert_eq!(forged, 0, "of {requests}");
}

/// Calls go to servers themselves, by one thread or several; and nobody seals what NICs change.
#[test]
fn calls_over_homa_are_sealed_and_open_ones_are_not_heard() {
    let files = Files::new("sealed-homa");
    let [servers, _, client] = files.keys();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--transport", "homa", "--seal", &servers];
    for app in [&["--app", "echo"][..], &["--app", "echo", "--threads", "2"]] {
        let server = Service::start(&[&serve[..], app].concat(), 1);
        let homa = ["--transport", "homa"];
        let sealed = [&LOAD[..], &homa, &["--seal", &client]].concat();
        assert_all_replied(&measure(server.address(), &sealed));
        let target = ["measure", "--target", server.address()];
        let open = [&target[..], &LOAD, &homa, &["--timeout", "50ms"]].concat();
        let output = run(&open);
        assert!(!output.status.success(), "an open client is not answered");
        let [unsealed, forged, requests] =
            counts(server, ["seal_unsealed", "seal_forged", "requests"]);
        assert!(unsealed > 0 && requests > 0, "{unsealed} {requests}");
        assert_eq!(forged, 0, "of {requests}");
    }
    let disguised =
        ["serve", "--listen", "127.0.0.1:0", "--transport", "homa-tcp", "--app", "echo"];
    check_refused(&[&disguised[..], &["--seal", &servers]].concat(), "disguise of TCP");
    let over_tcp = ["serve", "--listen", "127.0.0.1:0", "--transport", "tcp", "--app", "echo"];
    check_refused(&[&over_tcp[..], &["--seal", &servers]].concat(), "--seal is of R2P2 and Homa");
}

/// The host trusts its own addresses of loopback; what is asked of others, tests of the library
/// show.
#[test]
fn cookies_are_of_homa_too_but_not_where_nics_change_packets() {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--cookies", "always"];
    let server = Service::start(&[&serve[..], &["--transport", "homa"]].concat(), 1);
    assert_all_replied(&measure(server.address(), &[&LOAD[..], &["--transport", "homa"]].concat()));
    let disguised = [&serve[..], &["--transport", "homa-tcp"]].concat();
    check_refused(&disguised, "in the disguise of TCP bear no cookies");
    let over_tcp = [&serve[..], &["--transport", "tcp"]].concat();
    check_refused(&over_tcp, "--cookies is of R2P2 and Homa");
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
    let takes = |whose| format!("has the keys of client 17, and this takes {whose}");
    let serve = [&["serve", "--app", "echo"], &listen[..]].concat();
    check_refused(&serve, &takes("the servers' file, which derives the others"));
    let route = [&["route", "--server", "127.0.0.1:9"], &listen[..]].concat();
    check_refused(&route, &takes("a router's: `tailcut keys derive SERVERS FILE --router`"));
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
    let beside = format!("{old}.new");
    fs::write(&beside, "").expect("a file");
    check_refused(&["keys", "rotate", &old], ".new is in the way");
    fs::remove_file(&beside).expect("it is there");
    succeed(&["keys", "rotate", &old]);
    let shown = succeed(&["keys", "show", &old]);
    let epochs: Vec<&str> =
        shown.lines().filter_map(|line| line.strip_prefix("epoch ")?.split(' ').next()).collect();
    assert_eq!(epochs, ["2", "3", "4"], "that before the current one is still taken");
}

/// A file of keys with some epochs of a file that has them all, put in its place as a whole.
pub(crate) fn publish(all: &str, to: &str, epochs: std::ops::Range<usize>) {
    let text = fs::read_to_string(all).expect("the file");
    let (keys, head): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("key "));
    let keys = &keys[epochs.start.min(keys.len())..epochs.end.min(keys.len())];
    let beside = format!("{to}.beside");
    fs::write(&beside, [&head[..], keys].concat().join("\n")).expect("it is ours");
    fs::set_permissions(&beside, Permissions::from_mode(0o600)).expect("it is ours");
    fs::rename(beside, to).expect("one directory");
}

/// A command whose log says what becomes of its keys.
fn told(args: &[&str]) -> Service {
    Service::start_command(tailcut().args(args).env("TAILCUT_LOG", "info"), 1)
}

/// A router that holds nothing, so that nothing is refused for overload where this host is busy.
const ROUTE: [&str; 7] =
    ["route", "--listen", "127.0.0.1:0", "--policy", "rr", "--silent-after", "30s"];

pub(crate) const RENEWED: &str = "keys have been renewed";
const REFUSED: &str = "keys are not renewed, and the old ones stay";

/// Every process reads its file again: three of the five epochs that are used while the load runs
/// are in none of the files that it begins with, and each file is replaced under it.
#[test]
fn keys_rotate_under_load_and_no_call_is_lost() {
    const EVERY_S: u64 = 2;
    let files = Files::new("sealed-live");
    let all = ["all.servers", "all.router", "all.1", "all.2"].map(|name| files.path(name));
    let live = ["servers", "router", "one", "two"].map(|name| files.path(name));
    succeed(&["keys", "new", &all[0], "--epochs", "64", "--every", "2s"]);
    let began = Clock.now();
    let elapsed_s = || (Clock.now() - began) / 1_000_000_000;
    succeed(&["keys", "derive", &all[0], &all[1], "--router"]);
    succeed(&["keys", "derive", &all[0], &all[2], "--client", "1"]);
    succeed(&["keys", "derive", &all[0], &all[3], "--client", "2"]);
    // The epoch before, this one, and two ahead.
    let publish_all = || {
        let now = (elapsed_s() / EVERY_S) as usize;
        let span = now.saturating_sub(1)..now + 3;
        all.iter().zip(&live).for_each(|(all, live)| publish(all, live, span.clone()));
        now
    };
    let first = publish_all();
    let mut server =
        told(&["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--seal", &live[0]]);
    let to_server = ["--server", server.address(), "--seal", &live[1]];
    let mut router = told(&[&ROUTE[..], &to_server].concat());
    let load = ["--app", "echo:64", "--outstanding", "4", "--duration", "10s", "--warmup", "100ms"];
    let start = |keys| start_measure(router.address(), &[&load[..], &["--seal", keys]].concat());
    let mut clients = [start(&live[2]), start(&live[3])];
    let mut last = first;
    while clients.iter_mut().any(|client| client.try_wait().expect("it is ours").is_none()) {
        std::thread::park_timeout(Duration::from_millis(50));
        if (elapsed_s() / EVERY_S) as usize != last {
            last = publish_all();
        }
    }
    for client in clients {
        assert_all_replied(&finish(client));
    }
    assert!(last >= first + 4, "{first} to {last}");
    server.wait_for_line(RENEWED);
    router.wait_for_line(RENEWED);
    // Who knows nothing of what there was at the beginning is understood.
    publish(&all[2], &live[2], last..64);
    assert_all_replied(&measure(router.address(), &[&LOAD[..], &["--seal", &live[2]]].concat()));
    for service in [router, server] {
        let counted = ["seal_unknown_keys", "seal_forged", "seal_outdated"];
        assert_eq!(counts(service, counted), [0; 3]);
    }
}

/// A file that is wrong is told, by itself and at SIGHUP, and the old keys stay.
#[test]
fn a_wrong_file_of_keys_changes_nothing_and_a_right_one_is_taken_at_sighup() {
    let files = Files::new("sealed-wrong");
    let [servers, router, client] = files.keys();
    let before = fs::read_to_string(&servers).expect("the file");
    let mut server =
        told(&["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--seal", &servers]);
    let to_server = ["--server", server.address(), "--seal", &router];
    let mut route = told(&[&ROUTE[..], &to_server].concat());
    let target = route.address().to_owned();
    let check_calls =
        || assert_all_replied(&measure(&target, &[&LOAD[..], &["--seal", &client]].concat()));

    fs::write(&servers, "tailcut-keys 1\nrole server\nkey 9 x y\n").expect("it is ours");
    assert!(server.wait_for_line(REFUSED).contains("line 3 of the keys"));
    server.signal("HUP");
    let line = server.wait_for_line(REFUSED);
    assert!(line.contains("line 3 of the keys") && line.contains(&servers), "{line}");
    fs::rename(&client, files.path("aside")).expect("one directory");
    fs::rename(&router, &client).expect("one directory");
    route.signal("HUP");
    assert!(route.wait_for_line(REFUSED).contains("cannot read the keys"));
    fs::rename(&client, &router).expect("one directory");
    fs::copy(files.path("aside"), &client).expect("one directory");
    check_calls();

    // Another client's keys, and another group's.
    fs::write(&router, fs::read_to_string(&client).expect("the file")).expect("it is ours");
    route.signal("HUP");
    let line = route.wait_for_line("were of router");
    assert!(line.contains(REFUSED) && line.contains("the keys are of client 17"), "{line}");
    fs::write(&servers, before.replace("group search", "group find")).expect("it is ours");
    server.signal("HUP");
    assert!(server.wait_for_line("were of search").contains("the group find"));
    check_calls();

    fs::write(&servers, before).expect("it is ours");
    succeed(&["keys", "rotate", &servers, "--after", "3600s"]);
    server.signal("HUP");
    server.wait_for_line(RENEWED);
    check_calls();
    assert_eq!(counts(server, ["seal_forged", "seal_unknown_keys"]), [0; 2]);
}

/// A policy lets clients call by their numbers, is read again, and a wrong one changes nothing.
#[test]
fn a_policy_says_which_clients_may_call() {
    let files = Files::new("sealed-access");
    let [servers, router, client] = files.keys();
    let other = files.path("other");
    succeed(&["keys", "derive", &servers, &other, "--client", "18"]);
    let policy = files.write("access", "tailcut-access 1\nallow 17 *\n");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--seal", &servers];
    let mut server = told(&[&serve[..], &["--access", &policy]].concat());
    let to_server = ["--server", server.address(), "--seal", &router];
    let route = told(&[&ROUTE[..], &to_server].concat());
    let target = route.address().to_owned();
    let counted = |keys: &str| {
        let result = measure(&target, &[&LOAD[..], &["--no-probe", "--seal", keys]].concat());
        let count = |name: &str| result["counts"][name].as_u64().expect("a count");
        (count("replied") > 0, count("refused") > 0, count("timeout") + count("lost"))
    };
    assert_eq!(counted(&client), (true, false, 0));
    assert_eq!(counted(&other), (false, true, 0));
    let line = server.wait_for_line("requests refused by the access policy");
    assert!(line.contains("client=18") && line.contains("bytes that name no method"), "{line}");

    // A wrong one is told, by itself and at SIGHUP.
    fs::write(&policy, "tailcut-access 1\nallow everybody *\n").expect("it is ours");
    let refused = "the access policy is not renewed, and the old one stays";
    assert!(server.wait_for_line(refused).contains("line 2 of the policy"));
    server.signal("HUP");
    assert!(server.wait_for_line(refused).contains("line 2 of the policy"));
    assert_eq!(counted(&client), (true, false, 0));
    assert_eq!(counted(&other), (false, true, 0));

    let beside = files.write("beside", "tailcut-access 1\nallow any *\ndeny 17 *\n");
    fs::rename(&beside, &policy).expect("one directory");
    server.wait_for_line("the access policy has been renewed");
    assert_eq!(counted(&client), (false, true, 0));
    assert_eq!(counted(&other), (true, false, 0));
    let [denied, forged, drops] =
        counts(server, ["seal_denied", "seal_forged", "drop_application"]);
    assert!(denied > 0 && drops == denied, "{denied} {drops}");
    assert_eq!(forged, 0);
}

/// Before anything is measured, over both transports.
#[test]
fn who_may_not_call_or_has_no_key_that_the_server_has_is_told() {
    let files = Files::new("sealed-told");
    let [servers, router, client] = files.keys();
    let policy = files.write("access", "tailcut-access 1\nallow 18 *\n");
    for transport in ["r2p2", "homa"] {
        let with = ["serve", "--listen", "127.0.0.1:0", "--transport", transport, "--app", "echo"];
        let with = [&with[..], &["--seal", &servers]].concat();
        let check = |server: &Service, keys: &str, text: &str| {
            let target = ["measure", "--target", server.address(), "--transport", transport];
            check_refused(&[&target[..], &LOAD, &["--seal", keys]].concat(), text);
        };
        let guarded = Service::start(&[&with[..], &["--access", &policy]].concat(), 1);
        check(&guarded, &client, "the server's access policy: client 17 may not call");
        check(&guarded, &client, "What would help: Add the client's number");
        let server = Service::start(&with, 1);
        check(&server, &router, "has the keys of a router, and this takes a client's");
        // Another key of the same group, that only the client has.
        let text = fs::read_to_string(&client).expect("the file").replace("key 1 ", "key 9 ");
        let newer = files.write("newer", &text);
        check(&server, &newer, "has no key of the epoch under which this client calls");
        let [denied] = counts(guarded, ["seal_denied"]);
        assert_eq!(denied, 2, "nothing was measured");
    }
}

#[test]
fn a_policy_that_cannot_hold_is_told_at_the_start() {
    let files = Files::new("sealed-no-access");
    let [servers, ..] = files.keys();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--app", "echo"];
    let check = |policy: &str, text: &str| {
        let policy = files.write("access", policy);
        check_refused(&[&serve[..], &["--seal", &servers, "--access", &policy]].concat(), text);
    };
    check("", "line 1 of the policy: it should be `tailcut-access 1`");
    check("tailcut-access 1\n", "it names nobody, and would refuse everything");
    check("tailcut-access 1\nallow 17 /a.B/*\n", "line 2 of the policy: /a.B/*: name each method");
    let missing = files.path("missing");
    let open = [&serve[..], &["--access", &missing]].concat();
    check_refused(&open, "give --seal too, or leave it out");
    check_refused(&[&open[..], &["--seal", &servers]].concat(), "cannot read the policy from");
    let policy = files.write("access", "tailcut-access 1\nallow any *\n");
    fs::set_permissions(&policy, Permissions::from_mode(0o666)).expect("it is ours");
    check_refused(
        &[&serve[..], &["--seal", &servers, "--access", &policy]].concat(),
        "anybody may write to the policy",
    );
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
