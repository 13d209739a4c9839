//! Messages of a service to systemd, the sockets that systemd passes, and its units.

use std::fs;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Service, measure, run, tailcut};

fn temporary(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Usually there is none.
    let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    path
}

/// Next message of a service, without the watchdog's beats.
fn heard(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 512];
    loop {
        let len = socket.recv(&mut bytes).expect("it says something");
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        if text != "WATCHDOG=1\n" {
            return text;
        }
    }
}

#[test]
fn systemd_hears_of_start_reload_and_stop_and_of_a_loop_that_lives() {
    let commands: [&[&str]; 5] = [
        &["route", "--server", "127.0.0.1:9"],
        &["serve", "--app", "echo"],
        &["serve", "--app", "echo", "--transport", "tcp"],
        &["bridge", "--app", "redis", "--to", "tcp://127.0.0.1:9"],
        &["gateway", "--app", "redis", "--to", "127.0.0.1:9"],
    ];
    for (index, args) in commands.into_iter().enumerate() {
        let path = temporary(&format!("notify-{index}"));
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        let mut command = tailcut();
        let scheme = if args[0] == "gateway" { "tcp://" } else { "" };
        command.args(args).args(["--listen", &format!("{scheme}127.0.0.1:0")]);
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "30000");
        let service = Service::start_command(&mut command, 1);
        assert_eq!(heard(&socket), "READY=1\n");
        let mut bytes = [0; 64];
        for _ in 0..3 {
            let len = socket.recv(&mut bytes).expect("a beat");
            assert_eq!(&bytes[..len], b"WATCHDOG=1\n");
        }
        service.signal("HUP");
        let reloading = heard(&socket);
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        assert_eq!(heard(&socket), "READY=1\n");
        service.signal("TERM");
        assert_eq!(heard(&socket), "STOPPING=1\n");
        assert_eq!(service.wait().0, Some(0));
    }
}

/// A command that has a socket passed as systemd does it: descriptor 3, for this process.
fn passed(socket: UdpSocket, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_tailcut")]).args(args);
    command.stdin(Stdio::from(OwnedFd::from(socket)));
    command
}

#[test]
fn a_socket_that_systemd_passes_is_served() {
    let load = ["--app", "echo:8", "--rate", "200", "--duration", "300ms", "--warmup", "0"];
    for transport in ["r2p2", "udp"] {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address").to_string();
        let args = ["serve", "--listen", "systemd", "--app", "echo", "--transport", transport];
        let server = Service::start_command(&mut passed(socket, &args), 1);
        assert_eq!(server.address(), address);
        let result = measure(&address, &[&load[..], &["--transport", transport]].concat());
        assert_eq!(result["counts"]["replied"], result["counts"]["sent"], "{result:#}");
    }
}

#[test]
fn a_router_takes_the_socket_that_systemd_passes() {
    let server = Service::start(&["serve", "--listen", "127.0.0.1:0", "--app", "echo"], 1);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let args = ["route", "--listen", "systemd", "--server", server.address()];
    let router = Service::start_command(&mut passed(socket, &args), 1);
    let load = ["--app", "echo:8", "--rate", "200", "--duration", "300ms", "--warmup", "0"];
    let result = measure(router.address(), &load);
    assert_eq!(result["counts"]["replied"], result["counts"]["sent"], "{result:#}");
}

#[test]
fn no_socket_from_systemd_is_a_mistake() {
    let check = |more: &[&str], part: &str| {
        let args = [&["serve", "--listen", "systemd", "--app", "echo"], more].concat();
        let output = run(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains(part), "{stderr}");
    };
    check(&[], "systemd has passed no socket");
    check(&["--transport", "tcp"], "--listen systemd is for datagrams");
}

#[test]
fn the_units_are_right_and_expose_little() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    }
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/systemd");
    let directory = temporary("units");
    fs::create_dir_all(&directory).expect("a directory");
    let mut copies = Vec::new();
    for entry in fs::read_dir(units).expect("units") {
        let path = entry.expect("an entry").path();
        let copy = directory.join(path.file_name().expect("a name"));
        let unit = fs::read_to_string(&path).expect("a unit");
        let unit = unit.replace("/usr/bin/tailcut", env!("CARGO_BIN_EXE_tailcut"));
        fs::write(&copy, unit).expect("a copy");
        copies.push(copy);
    }
    assert_eq!(copies.len(), 5);
    let output = Command::new("systemd-analyze").arg("verify").args(&copies).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    for service in
        copies.iter().filter(|path| path.extension().is_some_and(|kind| kind == "service"))
    {
        // 2.0 of 10; a service that says nothing has 9.6.
        let args = ["security", "--offline=yes", "--threshold=20"];
        let output = Command::new("systemd-analyze").args(args).arg(service).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
    }
}
