//! The first call of a new client, from its files to the reply: keys from an agent and a sealed
//! call, beside a channel of tonic with TLS and a unary call on it.
//!
//! `cargo run --release --manifest-path apps/peers/Cargo.toml first-call`
//!
//! Both ends of either show a certificate of the same authority (TLS 1.3, P-256, aws-lc); the bytes
//! are the same, 32 there and back; clients are on one core, servers and the agent, in a process of
//! their own, on another. Slices take turns; what is printed is the median of the slices' medians,
//! and of the pairs' ratios, with quartiles.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tailcut::{ClientBuilder, KeySource, ServerBuilder};
use tailcut_net::affinity;
use tailcut_net::keys::agent::{AgentConfig, Certificate, KeyAgent};

use crate::files::Files;
use crate::grpc;
use crate::slices::{LOOPBACK, MESSAGE, on_server_core, runtime};
use crate::support::CLIENT_CORE;

/// The clients, or their servers, which are told where the files are.
pub(crate) fn run(directory: Option<OsString>) {
    if let Some(directory) = directory {
        return serve(&Files::at(directory.into()));
    }
    let files = Files::write();
    let (mut servers, [agent, sealed, peer]) = start_servers(&files);
    let asking = files.asking(agent);
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    let runtime = runtime();
    let mut ours = || {
        let keys = KeySource::open(&asking).expect("the agent answers");
        let client = ClientBuilder::new().seal(&keys).connect(sealed).expect("a client");
        drop(client.call(&MESSAGE).expect("a reply"));
    };
    let mut theirs = || runtime.block_on(grpc::call(&files, peer));
    // What is made once is made before, and what the next client finds ready.
    for _ in 0..10 {
        (ours(), theirs());
    }
    let slices = Vec::from_iter((0..PAIRS).map(|_| (slice(&mut ours), slice(&mut theirs))));
    let spread_of = |value: fn(&(f64, f64)) -> f64| spread(slices.iter().map(value).collect());
    println!("first call of a new client, us: tailcut sealed {}", spread_of(|pair| pair.0));
    println!("                                tonic with TLS {}", spread_of(|pair| pair.1));
    println!(
        "                                ratio          {}",
        spread_of(|pair| pair.0 / pair.1)
    );
    // They end with their standard input.
    drop(servers.stdin.take());
    servers.wait().expect("it is a child");
}

/// This program as servers, and the addresses of the agent, its server, and the peer.
fn start_servers(files: &Files) -> (Child, [SocketAddr; 3]) {
    let program = std::env::current_exe().expect("this program");
    let mut servers = Command::new(program)
        .arg("first-call")
        .arg(files.directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs once more");
    let told = BufReader::new(servers.stdout.take().expect("it is piped"));
    let mut addresses = told.lines().map(|line| {
        let line = line.expect("it tells");
        line.parse().expect("an address")
    });
    let mut next = || addresses.next().expect("one of three addresses");
    let addresses = [next(), next(), next()];
    (servers, addresses)
}

/// Tells the addresses, and serves until standard input ends.
fn serve(files: &Files) {
    let [agent, sealed] = serve_sealed(files);
    println!("{agent}\n{sealed}\n{}", grpc::serve(files));
    // Whatever is said there.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The addresses of an agent and of a server of its group.
fn serve_sealed(files: &Files) -> [SocketAddr; 2] {
    let group = files.path("servers.keys");
    let config = AgentConfig {
        group: group.clone(),
        clients: files.path("clients"),
        certificate: Some(Certificate {
            cert: files.path("server.pem"),
            key: files.path("server.key"),
            client_ca: files.path("ca.pem"),
            client_crl: None,
        }),
        every: Duration::from_secs(3_600),
    };
    let agent = KeyAgent::open(config).expect("its files are sound");
    let listener = TcpListener::bind(LOOPBACK).expect("a port");
    let asked = listener.local_addr().expect("it is bound");
    on_server_core(move || agent.serve(&listener).expect("its port holds"));
    let keys = KeySource::open(&group).expect("the group's keys");
    let mut server = ServerBuilder::new().seal(&keys).bind(LOOPBACK).expect("a server");
    let address = server.local_address();
    on_server_core(move || {
        let run = server.run(|request| {
            // A client that has gone needs no answer.
            let _ = request.reply_in_place(|_| ());
        });
        run.expect("the server's calls");
    });
    [asked, address]
}

/// Microseconds of a run, at the median.
fn slice(run: &mut impl FnMut()) -> f64 {
    let (mut times, end) = (Vec::new(), Instant::now() + SLICE);
    while times.is_empty() || Instant::now() < end {
        let began = Instant::now();
        run();
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    quartiles(times)[1]
}

fn spread(values: Vec<f64>) -> String {
    let [low, middle, high] = quartiles(values);
    format!("{middle:8.2} ({low:.2} to {high:.2})")
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|part| values[part * (values.len() - 1) / 4])
}

const PAIRS: usize = 9;
const SLICE: Duration = Duration::from_millis(500);
