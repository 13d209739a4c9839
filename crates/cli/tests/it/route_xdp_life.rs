//! Life of an XDP program: how it outlives routers, and how it does not.

use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tailcut_wire::r2p2::{MessageType, Policy, RequestRepr, Route, RpcId, Segment};
use zerocopy::IntoBytes;

use crate::harness::Service;
use crate::route_xdp::{HOSTS, Network, ROUTER, counter, must, settle, within};

/// The program at an interface: `xdp` in its driver, `xdpgeneric` behind it.
fn program(network: &Network, interface: &str) -> Option<String> {
    let place = network.name("r");
    let shown = Command::new("ip").args(["-n", &place, "link", "show", "dev", interface]).output();
    let shown = String::from_utf8(shown.expect("it runs").stdout).expect("a text");
    shown.split_whitespace().find(|word| word.starts_with("xdp")).map(str::to_owned)
}

/// The program settles a moment after the last that held it has gone.
fn wait_for_program(network: &Network, expected: Option<&str>) {
    let interface = network.interface("r");
    let holds = (0..2_000).any(|_| program(network, &interface).as_deref() == expected);
    assert!(holds, "{:?} instead of {expected:?}", program(network, &interface));
}

fn control(network: &Network) -> PathBuf {
    std::env::temp_dir().join(format!("{}.sock", network.id))
}

fn start(network: &Network, more: &[&str]) -> Service {
    let mut command = network.tailcut("r");
    let control = control(network);
    let control = control.to_str().expect("a text");
    let patience = ["--silent-after", "30s", "--control", control];
    network.route(&mut command, &network.interface("r"), &[&patience, more].concat());
    Service::start_command(&mut command, 1)
}

fn end(router: Service, signal: &str) -> String {
    router.signal(signal);
    let (code, _, errors) = router.wait();
    assert_eq!(code, Some(0).filter(|_| signal != "KILL"), "{errors}");
    errors
}

/// All calls of a client have their replies.
fn call(network: &Network) {
    call_at(network, &["--target", ROUTER]);
}

fn call_at(network: &Network, target: &[&str]) {
    let mut measure = network.tailcut("c");
    measure.arg("measure").args(target);
    measure.args(["--app", "synthetic:fixed:10us", "--rate", "500"]);
    measure.args(["--duration", "300ms", "--warmup", "100ms", "--timeout", "30s", "--json", "-"]);
    let output = measure.output().expect("the binary starts");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let counts = &result["counts"];
    assert!(counts["sent"].as_u64() > Some(50) && counts["sent"] == counts["replied"], "{counts}");
}

#[test]
fn a_program_that_is_to_stay_places_until_the_next_router() {
    let Some(network) = Network::create() else { return };
    let _servers = network.servers();
    let router = start(&network, &["--xdp-keep"]);
    settle(&control(&network));
    call(&network);
    let placed = counter(&control(&network), "xdp_placed");
    end(router, "TERM");
    assert_eq!(program(&network, &network.interface("r")).as_deref(), Some("xdp"));
    let router = start(&network, &[]);
    settle(&control(&network));
    assert!(counter(&control(&network), "xdp_placed") >= placed, "its counts go on");
    call(&network);
    end(router, "TERM");
    wait_for_program(&network, None);
    assert!(!network.pinned().exists());
}

#[test]
fn requests_over_ipv6_are_placed_and_tcp_goes_on_beside() {
    let Some(network) = Network::create() else { return };
    network.add_ipv6();
    let forwarding = format!("net.ipv6.conf.{}.forwarding=1", network.interface("r"));
    network.run("r", "sysctl", &["-qw", &forwarding]);
    let serve = |host: &str, args: &[&str]| {
        let mut command = network.tailcut(host);
        command.args(["serve", "--app", "synthetic"]).args(args);
        Service::start_command(&mut command, 1)
    };
    let _server = serve("a", &["--router", "[fd88::2]:8000", "--listen", "[fd88::3]:8000"]);
    let control = control(&network);
    let mut command = network.tailcut("r");
    command.args(["route", "--listen", "[fd88::2]:8000", "--dataplane", "xdp"]);
    command.args(["--interface", &network.interface("r"), "--server", "[fd88::3]:8000"]);
    command.args(["--silent-after", "30s", "--control"]).arg(&control);
    let router = Service::start_command(&mut command, 1);
    settle(&control);
    let _beside = serve("r", &["--transport", "tcp", "--listen", "10.88.0.2:9000"]);
    call_at(&network, &["--target", "[fd88::2]:8000"]);
    call_at(&network, &["--target", "10.88.0.2:9000", "--transport", "tcp"]);
    let placed = counter(&control, "xdp_placed");
    assert!(placed > 100, "XDP has placed {placed} of some 200");
    end(router, "TERM");
}

#[test]
fn a_start_that_fails_leaves_what_places() {
    let Some(network) = Network::create() else { return };
    end(start(&network, &[]), "KILL");
    let mut command = network.tailcut("r");
    network.route(&mut command, &network.interface("r"), &["--control", "/no/such/folder/socket"]);
    let output = command.output().expect("it runs");
    assert_eq!(output.status.into_raw() >> 8, 1);
    assert!(network.pinned().join("native").exists());
    assert_eq!(program(&network, &network.interface("r")).as_deref(), Some("xdp"));
}

#[test]
fn a_router_without_xdp_removes_what_would_take_its_requests() {
    let Some(network) = Network::create() else { return };
    let _servers = network.servers();
    end(start(&network, &[]), "KILL");
    // A policy that the program has not.
    let router = start(&network, &["--policy", "jsq:3", "--xdp-or-sockets"]);
    wait_for_program(&network, None);
    assert!(!network.pinned().exists());
    settle(&control(&network));
    call(&network);
    let errors = end(router, "TERM");
    assert!(errors.contains("no XDP, the router goes on without"), "{errors}");
    // More servers than the program takes; nobody is there.
    let many = ["--policy", "rr", "--xdp-or-sockets", "--server", "10.88.0.3:9000+40"];
    let errors = end(start(&network, &many), "TERM");
    assert!(errors.contains("takes at most 32 servers"), "{errors}");
    assert!(!network.pinned().exists());
}

#[test]
fn a_router_over_sockets_tells_of_what_takes_its_requests() {
    let Some(network) = Network::create() else { return };
    end(start(&network, &[]), "KILL");
    let mut command = network.tailcut("r");
    command.args(["route", "--listen", ROUTER, "--server", "10.88.0.3:8000"]);
    let errors = end(Service::start_command(&mut command, 1), "TERM");
    let pinned = network.pinned();
    assert!(errors.contains(pinned.to_str().expect("a text")), "{errors}");
    assert!(errors.contains("XDP program is still attached"), "{errors}");
}

/// Two hosts may call their interfaces the same.
#[test]
fn routers_of_two_namespaces_have_a_program_each() {
    let (Some(one), Some(two)) = (Network::create(), Network::create()) else { return };
    let (name, own) = (one.interface("r"), two.interface("r"));
    let place = two.name("r");
    must(&format!("-n {place} link set {own} down"));
    must(&format!("-n {place} link set {own} name {name}"));
    must(&format!("-n {place} link set {name} up"));
    let first = start(&one, &[]);
    let mut command = two.tailcut("r");
    two.route(&mut command, &name, &["--policy", "rr"]);
    let second = Service::start_command(&mut command, 1);
    assert_eq!(program(&two, &name).as_deref(), Some("xdp"));
    assert!(two.pinned_as(&name).exists());
    end(second, "TERM");
    assert!(!two.pinned_as(&name).exists());
    assert_eq!(program(&one, &name).as_deref(), Some("xdp"), "it is another's");
    end(first, "TERM");
}

#[test]
fn the_next_router_may_take_another_mode() {
    let Some(network) = Network::create() else { return };
    end(start(&network, &[]), "KILL");
    wait_for_program(&network, Some("xdp"));
    let router = start(&network, &["--xdp-mode", "generic"]);
    wait_for_program(&network, Some("xdpgeneric"));
    end(router, "TERM");
}

/// Requests may have several buffers there.
#[test]
fn an_interface_of_long_frames_has_its_program_before_the_stack_too() {
    let Some(network) = Network::create() else { return };
    let _servers = network.servers();
    for host in HOSTS {
        for place in [host, "sw"] {
            must(&format!(
                "-n {} link set {} mtu 9000",
                network.name(place),
                network.interface(host)
            ));
        }
    }
    let router = start(&network, &["--xdp-mode", "native"]);
    let control = control(&network);
    settle(&control);
    assert_eq!(program(&network, &network.interface("r")).as_deref(), Some("xdp"));
    call(&network);
    assert!(counter(&control, "xdp_placed") > 100);
    let segment = Segment { message_len: 8_000, segment_len: 8_000, ..Segment::CONTROL };
    let control_packet = RequestRepr::control(MessageType::Request, 7, RpcId(1 << 24));
    let repr = RequestRepr { policy: Policy::Unrestricted, segment, ..control_packet };
    let mut long = [repr.header().as_bytes(), Route::default().as_bytes()].concat();
    long.resize(72 + 8_000, 0);
    let before = counter(&control, "xdp_placed");
    let reply = within(&network.name("c"), || {
        let socket = UdpSocket::bind("10.88.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        socket.send_to(&long, ROUTER).expect("it is sent");
        let mut reply = [0; 2_048];
        let (len, _) = socket.recv_from(&mut reply).expect("a server has it");
        reply[..len].to_vec()
    });
    assert_eq!(reply[8..16], (1u64 << 24).to_be_bytes(), "its id");
    assert_eq!(counter(&control, "xdp_placed"), before + 1);
    end(router, "TERM");
}

#[test]
fn a_capability_that_is_missing_is_named_and_sockets_need_none() {
    let Some(network) = Network::create() else { return };
    let _servers = network.servers();
    let interface = network.interface("r");
    for (without, named) in [
        ("-bpf,-sys_admin", "CAP_BPF"),
        ("-net_admin,-sys_admin", "CAP_NET_ADMIN"),
        ("-net_raw", "CAP_NET_RAW"),
    ] {
        let route = |more: &[&str]| {
            let mut command = network.command("r", "setpriv");
            command.args(["--bounding-set", without, "--inh-caps", without]);
            command.arg(env!("CARGO_BIN_EXE_tailcut"));
            network.route(&mut command, &interface, more);
            command
        };
        let output = route(&[]).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(named), "{without}: {errors}");
        assert!(!network.pinned().exists(), "{without}: a start that fails leaves nothing");
        let router = Service::start_command(&mut route(&["--xdp-or-sockets"]), 1);
        assert_eq!(program(&network, &interface), None, "{without}");
        call(&network);
        router.signal("TERM");
        let (code, _, errors) = router.wait();
        assert!(code == Some(0) && errors.contains(named), "{without}: {errors}");
    }
}

#[test]
fn a_datapath_of_its_own_is_refused() {
    let args = ["route", "--listen", "10.0.0.1:1", "--server", "10.0.0.2:1", "--dataplane", "xdp"];
    let more = ["--interface", "lo", "--datapath", "xdp:lo"];
    let output = crate::harness::run(&[&args[..], &more].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("--dataplane xdp has the interface"), "{errors}");
    assert!(!Path::new("/sys/fs/bpf/tailcut/lo").exists());
}
