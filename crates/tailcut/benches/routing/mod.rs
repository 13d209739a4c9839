//! The router's rows: what a routed call costs it, and how many it routes beside NGINX's UDP proxy.
//!
//! Both sides of a row use the same client and the same server; only what stands between them
//! differs. The server and what stands between share the server's core, as two cores force it.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tailcut::{Client, ClientBuilder, SegmentedSend, ServerBuilder, ServerHandle, Wait};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Driver;
use tailcut_net::udp::{UdpConfig, UdpPort};
use tailcut_proto::node::Node;
use tailcut_proto::router::{Forward, Router, RouterConfig, ServerConfig, Speaks};

use super::keep_outstanding;
use super::support::{CLIENT_CORE, SERVER_CORE, Side, gro_socket, shielded};

pub(crate) fn rows() -> Vec<(&'static str, &'static str, Side, Side)> {
    let mut rows: Vec<(_, _, Side, Side)> = vec![
        ("router: busy time of a routed RPC over a hop's", "us", hop_cost, router_cost),
        (
            "default policy over jbsq:64, 64 calls, 1 server",
            "M/s",
            |slice| routed(slice, "jbsq:64", 64, 1),
            |slice| routed(slice, DEFAULT_POLICY, 64, 1),
        ),
        (
            "default policy over jbsq:64, 64 calls, 8 servers",
            "M/s",
            |slice| routed(slice, "jbsq:64", 64, 8),
            |slice| routed(slice, DEFAULT_POLICY, 64, 8),
        ),
        (
            "default policy over random, 64 calls, 8 servers",
            "M/s",
            |slice| routed(slice, "random", 64, 8),
            |slice| routed(slice, DEFAULT_POLICY, 64, 8),
        ),
        (
            "default policy over jbsq:64, 1,024 calls, 1 server",
            "M/s",
            |slice| routed(slice, "jbsq:64", 1_024, 1),
            |slice| routed(slice, DEFAULT_POLICY, 1_024, 1),
        ),
        (
            "default policy over random, 1,024 calls, 8 servers",
            "M/s",
            |slice| routed(slice, "random", 1_024, 8),
            |slice| routed(slice, DEFAULT_POLICY, 1_024, 8),
        ),
    ];
    if nginx_module().is_some() {
        rows.push(("routed RPC/s over NGINX's UDP proxy", "M/s", through_nginx, |slice| {
            routed(slice, "jbsq:64", 64, 1)
        }));
        rows.push(("the same with the default policy", "M/s", through_nginx, |slice| {
            routed(slice, DEFAULT_POLICY, 64, 1)
        }));
    } else {
        println!(
            "SKIPPED: NGINX with its stream module is missing (Debian: nginx-light libnginx-mod-stream)"
        );
    }
    rows
}

/// Busy time of the hop, a bare receive and send, for each datagram that it moves; in microseconds.
fn hop_cost(slice_ns: u64) -> f64 {
    let (hop, sink) = (gro_socket(), gro_socket());
    let (hop_address, sink_address) = (address_of(&hop), address_of(&sink));
    let (stop, busy_ns, moved) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                let before = Clock.now();
                if let Ok((len, _)) = hop.recv_from(&mut buffer) {
                    hop.send_to(&buffer[..len], sink_address).expect("a send");
                    busy_ns.fetch_add(Clock.now() - before, Ordering::Relaxed);
                    moved.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        feed(&hop_address, &sink, slice_ns);
        stop.store(true, Ordering::Relaxed);
        thread.join().expect("the hop");
    });
    busy_ns.into_inner() as f64 / moved.into_inner() as f64 / 1e3
}

/// Keeps eight datagrams on their way from here through the hop and back here.
fn feed(hop: &SocketAddr, sink: &UdpSocket, slice_ns: u64) {
    let source = gro_socket();
    let mut buffer = [0; 2048];
    let send = || assert_eq!(source.send_to(&[1; 104], hop).expect("a send"), 104);
    (0..ROUTED_OUTSTANDING).for_each(|_| send());
    let end = Clock.now() + slice_ns;
    while Clock.now() < end {
        match sink.recv_from(&mut buffer) {
            Ok(_) => send(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

/// Busy time of the router for each call that it routes, feedback and probes included; in
/// microseconds.
fn router_cost(slice_ns: u64) -> f64 {
    let (busy_ns, routed) = (AtomicU64::new(0), AtomicU64::new(0));
    let server = Background::server(CLIENT_CORE);
    let mut driver = router("jbsq:64", std::iter::once(server.address));
    let target = driver.port(0).local_address();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            while !stop.load(Ordering::Relaxed) {
                let before = Clock.now();
                let turn = driver.turn().expect("a turn");
                if !turn.is_idle() {
                    busy_ns.fetch_add(Clock.now() - before, Ordering::Relaxed);
                }
            }
            routed.store(driver.node(0).metrics().forwarded, Ordering::Relaxed);
        });
        let wait = Wait::Block { spin_ns: 0 };
        let client = ClientBuilder::new()
            .wait(wait)
            .segmented_send(SegmentedSend::Off)
            .connect(target)
            .expect("a client");
        keep_outstanding(&client, (ROUTED_OUTSTANDING, &[1; 32]), slice_ns);
        stop.store(true, Ordering::Relaxed);
        thread.join().expect("the router");
    });
    busy_ns.into_inner() as f64 / routed.into_inner() as f64 / 1e3
}

/// Millions of calls a second through a router with a policy before so many servers.
fn routed(slice_ns: u64, policy: &str, outstanding: usize, server_count: usize) -> f64 {
    let servers: Vec<_> = (0..server_count).map(|_| Background::server(SERVER_CORE)).collect();
    let mut driver = router(policy, servers.iter().map(|server| server.address));
    let target = driver.port(0).local_address();
    let (stop, waker) = (AtomicBool::new(false), driver.waker());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            while !stop.load(Ordering::Relaxed) {
                driver.turn().expect("a turn");
                driver.wait(None, None).expect("a sleep");
            }
        });
        let rate = call_through(target, outstanding, slice_ns);
        stop.store(true, Ordering::Relaxed);
        waker.wake();
        thread.join().expect("the router");
        rate
    })
}

fn through_nginx(slice_ns: u64) -> f64 {
    let server = Background::server(SERVER_CORE);
    let nginx = Nginx::start(server.address);
    call_through(nginx.address, 64, slice_ns)
}

fn call_through(target: SocketAddr, outstanding: usize, slice_ns: u64) -> f64 {
    let client =
        ClientBuilder::new().wait(Wait::Block { spin_ns: 0 }).connect(target).expect("a client");
    // What stands between may still be starting.
    while client.call(&[1; 32]).is_err() {}
    shielded(|| keep_answered(&client, (outstanding, &[1; 32]), slice_ns))
}

/// As [`keep_outstanding`], where calls may be refused for overload: those that are answered count.
fn keep_answered(client: &Client, (outstanding, request): (usize, &[u8]), slice_ns: u64) -> f64 {
    let mut calls = VecDeque::new();
    let started = Clock.now();
    let (mut ended, mut answered): (u64, u64) = (0, 0);
    while !ended.is_multiple_of(64) || Clock.now() - started < slice_ns {
        while calls.len() < outstanding {
            calls.push_back(client.enqueue(request).expect("a call"));
        }
        let oldest = calls.pop_front().expect("calls are outstanding");
        answered += u64::from(oldest.wait().is_ok());
        ended += 1;
    }
    answered as f64 * 1e3 / (Clock.now() - started) as f64
}

/// A router before servers, sleeping when it shares a core.
fn router(policy: &str, servers: impl Iterator<Item = SocketAddr>) -> Driver<Router> {
    let mut driver = Driver::new(Wait::Block { spin_ns: 0 }).expect("a driver");
    let port = UdpPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).expect("a port");
    let config = RouterConfig {
        policy: policy.parse().expect("a policy"),
        forward: Forward::Annotate,
        servers: servers.map(|addr| ServerConfig { addr, speaks: Speaks::Extension }).collect(),
        ..RouterConfig::default()
    };
    let router = Router::new(driver.clock().now(), config).expect("a router");
    assert!(router.poll_timeout().is_some(), "a router probes its servers");
    driver.add(router, port, None);
    driver
}

/// An echo server on a thread of its own, stopped when this is dropped.
struct Background {
    address: SocketAddr,
    stop: ServerHandle,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Background {
    fn server(core: usize) -> Self {
        let mut server = ServerBuilder::new()
            .wait(Wait::Block { spin_ns: 0 })
            .bind("127.0.0.1:0")
            .expect("a server");
        let (address, stop, start) =
            (server.local_address(), server.stop_handle(), std::sync::Arc::new(Barrier::new(2)));
        let ready = start.clone();
        let thread = std::thread::spawn(move || {
            affinity::pin_to(core).expect("two cores");
            ready.wait();
            let run = server.run(|request| {
                // A client that has gone needs no answer.
                let _ = request.reply_in_place(|_| {});
            });
            run.expect("the server's calls");
        });
        start.wait();
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server");
        }
    }
}

/// NGINX as a UDP proxy with one worker on the server's core, ended when this is dropped.
struct Nginx {
    address: SocketAddr,
    child: Child,
    folder: PathBuf,
}

impl Nginx {
    fn start(server: SocketAddr) -> Self {
        let address = address_of(&gro_socket());
        let folder = std::env::temp_dir().join(format!(
            "tailcut-nginx-{}-{}",
            std::process::id(),
            address.port()
        ));
        std::fs::create_dir_all(&folder).expect("a folder");
        let module = nginx_module().expect("the stream module");
        let config = format!(
            "load_module {};\nworker_processes 1;\ndaemon off;\nmaster_process off;\npid {}/pid;\nerror_log {}/error.log;\n\
             events {{ worker_connections 1024; }}\n\
             stream {{ server {{ listen {address} udp; proxy_pass {server}; proxy_timeout 10s; }} }}\n",
            module.display(),
            folder.display(),
            folder.display()
        );
        let path = folder.join("nginx.conf");
        std::fs::write(&path, config).expect("a configuration");
        let mut command = Command::new("taskset");
        command.args(["-c", &SERVER_CORE.to_string(), "nginx", "-c"]).arg(&path);
        let child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("taskset and nginx");
        Self { address, child, folder }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end or to wait for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn nginx_module() -> Option<PathBuf> {
    let module = PathBuf::from("/usr/lib/nginx/modules/ngx_stream_module.so");
    let is_installed = Command::new("nginx")
        .arg("-v")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    (is_installed && module.exists()).then_some(module)
}

fn address_of(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("an address")
}

/// Default policy of `tailcut route`.
const DEFAULT_POLICY: &str = "jbsq:auto";

const ROUTED_OUTSTANDING: usize = 8;
