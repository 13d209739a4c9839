//! Typed calls over calls of bytes: the same client and server, with a .proto's messages and
//! without.
//!
//! `cargo bench -p tailcut-helloworld` runs it. Each row alternates slices of both on the same two
//! pinned cores and prints the median of the ratios with its quartiles. `TAILCUT_BENCH_QUICK=1`
//! runs every row briefly.

#[path = "../../net/benches/support/mod.rs"]
mod support;

/// The service that tests try.
mod trial {
    tailcut_services::include_proto!("trial");
}

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Barrier;

use support::{CLIENT_CORE, Plan, SERVER_CORE, compare, p50_us, print_head, shielded};
use tailcut::{ClientBuilder, Error, Server, ServerBuilder};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_services::{Client, Request, Response, Services, Status};
use tokio::runtime::Builder;
use trial::trial_client::TrialClient;
use trial::trial_server::{Trial, TrialServer};
use trial::{Description, Failure, Word};

fn main() {
    let plan = Plan { pairs: 15, slice_ns: 100_000_000 }.or_brief(3);
    print_head("bytes", "typed");
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    compare("T1 ping-pong 32 B, polling: p50", "us", &plan, (ping_bytes, ping_typed));
    compare("T2 64 outstanding 32 B", "M/s", &plan, (exchange_bytes, exchange_typed));
}

/// A text of so many bytes that its message has 32.
fn text() -> String {
    "a".repeat(30)
}

fn ping_bytes(slice_ns: u64) -> f64 {
    with_server(echo_bytes, |target| {
        let client = connect(target);
        ping(slice_ns, || drop(client.call(&[1; 32]).expect("a reply")))
    })
}

fn ping_typed(slice_ns: u64) -> f64 {
    with_server(echo_typed, |target| {
        let client = TrialClient::new(Client::new(connect(target)));
        let text = text();
        ping(slice_ns, || {
            let reply = client.echo(Word { text: text.clone() }).expect("a reply");
            assert_eq!(reply.get_ref().text.len(), text.len());
        })
    })
}

/// The median of round trips.
fn ping(slice_ns: u64, call: impl Fn()) -> f64 {
    let mut round_trips = Vec::with_capacity(1 << 20);
    let mut now = Clock.now();
    let end = now + slice_ns;
    while now < end {
        call();
        let after = Clock.now();
        round_trips.push(after - now);
        now = after;
    }
    p50_us(&mut round_trips)
}

fn exchange_bytes(slice_ns: u64) -> f64 {
    with_server(echo_bytes, |target| {
        let client = connect(target);
        keep_outstanding(
            slice_ns,
            || client.enqueue(&[1; 32]).expect("a call"),
            |call| drop(call.wait().expect("a reply")),
        )
    })
}

fn exchange_typed(slice_ns: u64) -> f64 {
    with_server(echo_typed, |target| {
        let client = Client::new(connect(target));
        let calls = TrialClient::new(client.enqueue());
        let text = text();
        keep_outstanding(
            slice_ns,
            || calls.echo(Word { text: text.clone() }).expect("a call"),
            |call| assert_eq!(call.wait().expect("a reply").get_ref().text.len(), text.len()),
        )
    })
}

/// Millions of calls a second with 64 outstanding.
fn keep_outstanding<C>(slice_ns: u64, start: impl Fn() -> C, end: impl Fn(C)) -> f64 {
    let mut calls: VecDeque<C> = (0..64).map(|_| start()).collect();
    let started = Clock.now();
    let mut completed: u64 = 0;
    while !completed.is_multiple_of(64) || Clock.now() - started < slice_ns {
        end(calls.pop_front().expect("calls are outstanding"));
        calls.push_back(start());
        completed += 1;
    }
    completed as f64 * 1e3 / (Clock.now() - started) as f64
}

fn connect(target: SocketAddr) -> tailcut::Client {
    ClientBuilder::new().busy_poll().connect(target).expect("a client")
}

fn echo_bytes(server: &mut Server) -> Result<(), Error> {
    server.run(|request| {
        // A client that has gone needs no answer.
        let _ = request.reply_in_place(|_| ());
    })
}

fn echo_typed(server: &mut Server) -> Result<(), Error> {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    Services::new().add_service(TrialServer::new(Echo)).serve(server, runtime.handle())
}

/// A server on the server's core while `client` runs here.
fn with_server<T>(
    serve: fn(&mut Server) -> Result<(), Error>,
    client: impl FnOnce(SocketAddr) -> T,
) -> T {
    let mut server = ServerBuilder::new().busy_poll().bind("127.0.0.1:0").expect("a server");
    let (target, stop, start) = (server.local_address(), server.stop_handle(), Barrier::new(2));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(|| serve(&mut server))
        });
        start.wait();
        let result = shielded(|| client(target));
        stop.stop();
        thread.join().expect("the server").expect("the server's calls");
        result
    })
}

/// Echoes, and has nothing else.
struct Echo;

impl Trial for Echo {
    async fn echo(&self, request: Request<Word>) -> Result<Response<Word>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn read(&self, request: Request<Word>) -> Result<Response<Word>, Status> {
        self.echo(request).await
    }

    async fn describe(&self, _request: Request<()>) -> Result<Response<Description>, Status> {
        Err(Status::unimplemented("this echoes"))
    }

    async fn fail(&self, _request: Request<Failure>) -> Result<Response<()>, Status> {
        Err(Status::unimplemented("this echoes"))
    }

    async fn hold(&self, request: Request<Word>) -> Result<Response<Word>, Status> {
        self.echo(request).await
    }

    async fn release(&self, _request: Request<()>) -> Result<Response<()>, Status> {
        Err(Status::unimplemented("this echoes"))
    }

    async fn panic(&self, _request: Request<()>) -> Result<Response<()>, Status> {
        Err(Status::unimplemented("this echoes"))
    }
}
