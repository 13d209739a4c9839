//! Words of the command line: help, mistakes, exit codes, and what packages install.

use crate::harness::{run, succeed};

#[test]
fn mistakes_of_the_command_line_exit_with_2() {
    check(&[], 2, "Usage: tailcut [OPTIONS] <COMMAND>");
    check(&["serve", "--app", "echo"], 2, "--listen <ADDR>");
    check(&["serve", "--listen", "127.0.0.1:0", "--app", "http"], 2, "write echo, synthetic");
    check(
        &["serve", "--listen", "127.0.0.1:0", "--app", "synthetic:exp:50"],
        2,
        "has no unit: a time takes ns, us, ms or s",
    );
    check(
        &["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--trust", "10.0.0.0"],
        2,
        "such as 10.0.0.0/8",
    );
    check(
        &["route", "--listen", "127.0.0.1:0", "--policy", "fastest"],
        2,
        "there are random, rr, jsq:D, jbsq:N, jbsq:auto, ",
    );
    check(&["measure", "--target", "127.0.0.1:9", "--app", "echo:64"], 2, "--rate <R>");
    check(&["compare", "a.json"], 2, "<B.json>");
    check(
        &[
            "measure",
            "--target",
            "127.0.0.1:9",
            "--app",
            "echo:64",
            "--rate",
            "1",
            "--outstanding",
            "2",
        ],
        2,
        "cannot be used with",
    );
    check(
        &[
            "measure",
            "--target",
            "127.0.0.1:9",
            "--app",
            "echo:64",
            "--rate",
            "1",
            "--timeout",
            "61s",
        ],
        2,
        "60s at most",
    );
}

#[test]
fn what_cannot_be_done_exits_with_1_and_says_what_to_do() {
    check(&["serve", "--listen", "127.0.0.1", "--app", "echo"], 1, "write HOST:PORT");
    check(
        &["serve", "--listen", "127.0.0.1:65535", "--ports", "2", "--app", "echo"],
        1,
        "do not exist",
    );
    check(
        &["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--workers=2", "--transport=tcp"],
        1,
        "drop --workers",
    );
    check(
        &["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--pool-key-file", "/dev/null"],
        1,
        "openssl rand -hex 16",
    );
    let homa = ["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--transport", "homa"];
    for [flag, value] in [["--router", "127.0.0.1:1"], ["--pool-key-file", "/dev/null"]] {
        check(&[&homa[..], &[flag, value]].concat(), 1, "take --transport r2p2, or leave them out");
    }
    let tcp = ["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--transport", "tcp"];
    check(&[&tcp[..], &["--trust", "10.0.0.0/8"]].concat(), 1, "leave it out");
    check(
        &["measure", "--target", "127.0.0.1:9", "--app", "echo:64", "--rate", "2M"],
        1,
        "raise --rate-max",
    );
    check(
        &["measure", "--target", "127.0.0.1:9", "--app", "echo:64", "--rate", "1", "--json", "/"],
        1,
        "cannot write /",
    );
    check(
        &[
            "measure",
            "--target",
            "127.0.0.1:9",
            "--app",
            "echo:64",
            "--rate",
            "1",
            "--arrivals",
            "fixed:0",
        ],
        1,
        "--arrivals",
    );
}

/// 192.0.2.0/24 is for documentation; nothing is sent there.
#[test]
fn a_foreign_target_is_refused() {
    check(
        &["measure", "--target", "192.0.2.1:9", "--app", "echo:64", "--rate", "1"],
        1,
        "--i-own-this-target",
    );
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(succeed(&["completions", shell]).contains("measure"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = format!("{}/man", env!("CARGO_TARGET_TMPDIR"));
    succeed(&["man", &dir]);
    for page in [
        "tailcut.1",
        "tailcut-serve.1",
        "tailcut-route.1",
        "tailcut-control.1",
        "tailcut-measure.1",
        "tailcut-apps.1",
        "tailcut-compare.1",
        "tailcut-dissect.1",
        "tailcut-sim-queue.1",
    ] {
        let text = std::fs::read_to_string(format!("{dir}/{page}")).expect(page);
        assert!(text.contains(".SH"), "{page}");
    }
    let page = std::fs::read_to_string(format!("{dir}/tailcut-measure.1")).expect("the page");
    let page = page.replace("\\-", "-");
    for entry in tailcut_instrument::apps::CODECS.iter().copied().flatten() {
        for option in entry.options.iter().copied().flatten() {
            assert!(page.contains(option.form), "the page does not name {}", option.form);
        }
    }
}

#[test]
fn help_lists_what_applications_take() {
    for args in [["help", "apps"], ["help", "measure"], ["apps", "--help"], ["measure", "--help"]] {
        let text = succeed(&args);
        for part in ["pick=uniform|rr|zipf:S", "body=TEXT|@FILE", "command=COMMAND"] {
            assert!(text.contains(part), "{args:?}: {part}");
        }
    }
    assert!(succeed(&["apps"]).contains("get=SHARE"));
}

fn check(args: &[&str], code: i32, part: &str) {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "tailcut {}: {stderr}", args.join(" "));
    assert!(stderr.contains(part), "tailcut {}: {stderr}", args.join(" "));
}
