//! Commands over AF_XDP, between network namespaces.

use std::process::{Command, Stdio};

use crate::harness::{Service, assert_all_replied, finish};
use crate::veth::VethPair;

/// The binary within a namespace, which the process that is started becomes.
fn tailcut_in(namespace: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_tailcut")]);
    command.env_remove("COLUMNS").stdin(Stdio::null());
    command
}

fn datapath(namespace: &str) -> String {
    format!("xdp:v{namespace}")
}

fn start(namespace: &str, args: &[&str]) -> Service {
    Service::start_command(tailcut_in(namespace).args(args), 1)
}

/// An echo server at the far end, over AF_XDP.
fn serve(hosts: &VethPair, transport: &str) -> Service {
    let datapath = datapath(&hosts.far);
    let listen = ["serve", "--listen", "10.77.0.2:0", "--app", "echo", "--transport", transport];
    start(&hosts.far, &[&listen[..], &["--datapath", &datapath]].concat())
}

/// Calls from the near end, over AF_XDP: all are answered.
fn load(hosts: &VethPair, target: &str, transport: &str) {
    let datapath = datapath(&hosts.near);
    let args = ["measure", "--target", target, "--app", "echo:32", "--json", "-"];
    let load =
        ["--outstanding", "8", "--connections", "4", "--duration", "300ms", "--timeout", "30s"];
    let carried = ["--transport", transport, "--datapath", &datapath];
    let measure = tailcut_in(&hosts.near)
        .args([&args[..], &load, &carried].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    assert_all_replied(&finish(measure.expect("the binary starts")));
}

/// The number of a counter in the report of a command that has ended.
fn reported(stderr: &str, counter: &str) -> u64 {
    let found = stderr.lines().find_map(|line| line.trim().strip_prefix(counter));
    found.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
}

/// True if a program is at the far interface.
fn has_program(hosts: &VethPair) -> bool {
    let far = &hosts.far;
    let output =
        Command::new("ip").args(["-n", far, "-o", "link", "show", &format!("v{far}")]).output();
    String::from_utf8_lossy(&output.expect("ip").stdout).contains("xdp")
}

#[test]
fn a_server_is_measured_past_the_stack() {
    let Some(hosts) = VethPair::create() else { return };
    for transport in ["r2p2", "homa", "homa-ip"] {
        let server = serve(&hosts, transport);
        assert!(has_program(&hosts));
        load(&hosts, server.address(), transport);
        server.signal("TERM");
        let (code, _, stderr) = server.wait();
        assert_eq!(code, Some(0), "{stderr}");
        for counter in ["xdp_direct_in", "xdp_direct_out"] {
            assert!(reported(&stderr, counter) > 100, "{transport}, {counter}: {stderr}");
        }
        assert!(!has_program(&hosts), "it is detached at the end");
    }
}

#[test]
fn a_router_places_past_the_stack() {
    let Some(hosts) = VethPair::create() else { return };
    let up = Command::new("ip").args(["-n", &hosts.far, "link", "set", "lo", "up"]).status();
    assert!(up.expect("ip").success());
    let listen = ["serve", "--listen", "10.77.0.2:0", "--app", "echo"];
    let server = start(&hosts.far, &listen);
    let datapath = datapath(&hosts.far);
    let route = ["route", "--listen", "10.77.0.2:0", "--server", server.address()];
    let router = start(&hosts.far, &[&route[..], &["--datapath", &datapath]].concat());
    load(&hosts, router.address(), "r2p2");
    router.signal("TERM");
    let (code, _, stderr) = router.wait();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(reported(&stderr, "xdp_direct_in") > 100, "{stderr}");
    assert!(reported(&stderr, "xdp_kernel_elsewhere") > 100, "its server is on its host: {stderr}");
}

#[test]
fn the_program_is_gone_with_a_process_that_is_killed() {
    let Some(hosts) = VethPair::create() else { return };
    let server = serve(&hosts, "r2p2");
    assert!(has_program(&hosts));
    server.signal("KILL");
    assert_eq!(server.wait().0, None);
    assert!(!has_program(&hosts));
    let next = serve(&hosts, "r2p2");
    load(&hosts, next.address(), "r2p2");
}

/// Standard error of a `serve` that fails without these capabilities.
fn refused(hosts: &VethPair, without: &str, args: &[&str]) -> String {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &hosts.far, "setpriv", "--bounding-set", without]);
    command.args([
        env!("CARGO_BIN_EXE_tailcut"),
        "serve",
        "--listen",
        "10.77.0.2:0",
        "--app",
        "echo",
    ]);
    let output = command.args(args).stdin(Stdio::null()).output().expect("setpriv");
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_capability_that_is_missing_is_named() {
    let Some(hosts) = VethPair::create() else { return };
    let datapath = datapath(&hosts.far);
    let args = ["--datapath", &datapath];
    let no_program = refused(&hosts, "-all", &args);
    assert!(no_program.contains("CAP_BPF and CAP_NET_ADMIN"), "{no_program}");
    let no_socket = refused(&hosts, "-net_raw", &args);
    assert!(no_socket.contains("CAP_NET_RAW"), "{no_socket}");
    assert!(!has_program(&hosts), "nothing is left behind");
}

#[test]
fn what_does_not_go_past_the_stack_is_refused() {
    let Some(hosts) = VethPair::create() else { return };
    let datapath = datapath(&hosts.far);
    for (args, expected) in [
        (&["--transport", "tcp", "--datapath", &datapath][..], "--datapath is of R2P2 and Homa"),
        (&["--transport", "homa-tcp", "--datapath", &datapath], "through the kernel alone"),
        (&["--threads", "2", "--datapath", &datapath], "leave --threads out"),
        (&["--datapath", "xdp:no-such"], "no interface is named no-such"),
        (&["--datapath", "xdp:lo"], "no Ethernet interface"),
    ] {
        let output = tailcut_in(&hosts.far)
            .args(["serve", "--listen", "10.77.0.2:0", "--app", "echo"])
            .args(args)
            .output()
            .expect("the binary starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}
