//! Calls that come to their method, by each way to serve and each way to call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tailcut::sealed::{Keys, Role};
use tailcut::{ClientBuilder, Server, ServerBuilder, ServerHandle};
use tailcut_net::clock::Clock;
use tailcut_services::{
    Channel, Client, Code, Metrics, Pending, Prost, Request, Response, Services, Status, transport,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::trial::trial_client::TrialClient;
use crate::trial::trial_server::{Trial, TrialServer};
use crate::trial::{Description, Failure, Word};

/// The service that is tried.
#[derive(Default)]
pub(crate) struct Tried {
    released: Notify,
}

impl Trial for Tried {
    async fn echo(&self, request: Request<Word>) -> Result<Response<Word>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn read(&self, request: Request<Word>) -> Result<Response<Word>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn describe(&self, request: Request<()>) -> Result<Response<Description>, Status> {
        let time_left = request.time_left().expect("a server knows");
        Ok(Response::new(Description {
            client: request.remote_addr().expect("a server knows").to_string(),
            time_left_ns: u64::try_from(time_left.as_nanos()).expect("less than a minute"),
            is_idempotent: request.is_idempotent(),
            identity: request.identity(),
        }))
    }

    async fn fail(&self, request: Request<Failure>) -> Result<Response<()>, Status> {
        let Failure { code, message, details } = request.into_inner();
        let code = Code::from_number(u8::try_from(code).expect("a code"));
        Err(Status::with_details(code, message, details))
    }

    async fn hold(&self, request: Request<Word>) -> Result<Response<Word>, Status> {
        self.released.notified().await;
        Ok(Response::new(request.into_inner()))
    }

    async fn release(&self, _request: Request<()>) -> Result<Response<()>, Status> {
        self.released.notify_one();
        Ok(Response::new(()))
    }

    async fn panic(&self, _request: Request<()>) -> Result<Response<()>, Status> {
        panic!("as asked")
    }
}

/// Way in which services are served.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Serving {
    Here,
    Workers,
    Tasks,
}

/// Runs `calls` before a server, and gives what its services have counted.
pub(crate) fn with_server(serving: Serving, calls: impl FnOnce(SocketAddr, &Handle)) -> Metrics {
    with_server_of(ServerBuilder::new(), serving, calls)
}

/// Runs calls against a server that is configured so.
fn with_server_of(
    builder: ServerBuilder,
    serving: Serving,
    calls: impl FnOnce(SocketAddr, &Handle),
) -> Metrics {
    let runtime = runtime();
    let services = Arc::new(Services::new().add_service(TrialServer::new(Tried::default())));
    let mut server = builder.bind("127.0.0.1:0").expect("a server");
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let (tasks, shared) = (runtime.handle(), services.clone());
        let thread = scope.spawn(move || match serving {
            Serving::Here => shared.serve(&mut server, tasks),
            Serving::Workers => shared.serve_workers(&mut server, 2, tasks),
            Serving::Tasks => shared.serve_tasks(&mut server, 100, tasks),
        });
        let stop = StopOnDrop(stop);
        calls(address, tasks);
        drop(stop);
        thread.join().expect("the server does not panic").expect("a socket");
    });
    services.metrics()
}

/// Stops a server, also where a test panics.
struct StopOnDrop(ServerHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `calls` once for each way to serve.
fn with_each_server(calls: impl Fn(SocketAddr, &Handle)) {
    for serving in [Serving::Here, Serving::Workers, Serving::Tasks] {
        println!("{serving:?}");
        with_server(serving, &calls);
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
}

/// A client that waits for longer than a busy machine pauses.
pub(crate) fn blocking(address: SocketAddr) -> Client {
    Client::new(ClientBuilder::new().timeout(PATIENCE).connect(address).expect("a client"))
}

pub(crate) fn channel(address: SocketAddr) -> Channel {
    Channel::new(ClientBuilder::new().timeout(PATIENCE).connect_async(address).expect("a client"))
}

pub(crate) fn word(text: &str) -> Word {
    Word { text: text.to_owned() }
}

#[test]
fn a_thread_s_call_is_answered() {
    with_each_server(|address, _| {
        let client = TrialClient::new(blocking(address));
        let reply = client.echo(word("hello")).expect("a reply");
        assert_eq!(reply.server(), Some(address));
        assert_eq!(reply.into_inner(), word("hello"));
    });
}

#[test]
fn a_task_s_call_is_answered() {
    with_each_server(|address, runtime| {
        let client = TrialClient::new(channel(address));
        let reply = runtime.block_on(async { client.echo(word("hello")).await });
        assert_eq!(reply.expect("a reply").into_inner(), word("hello"));
    });
}

#[test]
fn calls_are_outstanding_together() {
    with_each_server(|address, _| {
        let client = blocking(address);
        let (starting, enqueuing) =
            (TrialClient::new(client.start()), TrialClient::new(client.enqueue()));
        check_many(|word| starting.echo(word));
        check_many(|word| enqueuing.echo(word));
    });
}

/// A hundred calls at once, each with its own reply.
fn check_many<'c>(start: impl Fn(Word) -> Result<Pending<'c, Prost, Word>, Status>) {
    let calls: Vec<_> = (0..100).map(|n| start(word(&n.to_string())).expect("a call")).collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.wait().expect("a reply").into_inner(), word(&n.to_string()));
    }
}

#[test]
fn a_message_of_a_megabyte_goes_there_and_back() {
    with_each_server(|address, _| {
        let client = TrialClient::new(blocking(address));
        let long = word(&"long ".repeat(200_000));
        assert_eq!(client.echo(long.clone()).expect("a reply").into_inner(), long);
    });
}

#[test]
fn an_empty_message_is_a_message() {
    with_each_server(|address, _| {
        let client = TrialClient::new(blocking(address));
        assert_eq!(client.echo(word("")).expect("a reply").into_inner(), word(""));
    });
}

#[test]
fn a_handler_that_waits_lets_others_go_on() {
    for serving in [Serving::Here, Serving::Tasks] {
        with_server(serving, |address, runtime| {
            let client = TrialClient::new(channel(address));
            runtime.block_on(async {
                let held = client.hold(word("held"));
                // The server goes on while it waits.
                assert_eq!(
                    client.echo(word("other")).await.expect("a reply").into_inner(),
                    word("other")
                );
                client.release(()).await.expect("a reply");
                assert_eq!(held.await.expect("a reply").into_inner(), word("held"));
            });
        });
    }
}

#[test]
fn a_server_knows_its_caller() {
    with_each_server(|address, _| {
        let client = blocking(address);
        let own = client.client().local_address();
        let told = TrialClient::new(client).describe(()).expect("a reply").into_inner();
        let told: SocketAddr = told.client.parse().expect("an address");
        assert_eq!((told.ip(), told.port()), (address.ip(), own.port()));
    });
}

/// By the number of its keys, where packets are sealed.
#[test]
fn a_method_knows_whose_keys_its_caller_has() {
    let secret = "07".repeat(32);
    let text = format!(
        "tailcut-keys 1\nrole server\ngroup trial\ncipher aes-128-gcm\nkey 1 {} {secret}\n",
        Clock.unix_ns() / 1_000_000 - 1_000,
    );
    let group: Keys = text.parse().expect("keys");
    let keys = group.for_role(Role::Client(17)).expect("a server's");
    for serving in [Serving::Here, Serving::Workers, Serving::Tasks] {
        with_server_of(ServerBuilder::new().seal(group.clone()), serving, |address, _| {
            let client = ClientBuilder::new().timeout(PATIENCE).seal(keys.clone());
            let client = TrialClient::new(Client::new(client.connect(address).expect("a client")));
            let told = client.describe(()).expect("a reply").into_inner();
            assert_eq!(told.identity, Some(17));
        });
    }
}

#[test]
fn a_deadline_travels() {
    with_each_server(|address, _| {
        let client = TrialClient::new(blocking(address));
        let mut request = Request::new(());
        request.set_timeout(Duration::from_secs(50));
        let told = client.describe(request).expect("a reply").into_inner();
        let left = Duration::from_nanos(told.time_left_ns);
        assert!(left > PATIENCE && left <= Duration::from_secs(50), "{left:?}");
    });
}

#[test]
fn idempotency_is_the_method_s() {
    with_each_server(|address, _| {
        let client = TrialClient::new(blocking(address));
        assert!(client.describe(()).expect("a reply").into_inner().is_idempotent);
    });
}

#[test]
fn a_server_in_a_runtime_ends_by_its_signal() {
    let server = Server::bind("127.0.0.1:0").expect("a server");
    let address = server.local_address();
    runtime().block_on(async {
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let serving = tokio::spawn(async move {
            let services =
                transport::Server::builder().add_service(TrialServer::new(Tried::default()));
            services.serve_on(server, async move { stopped.notified().await }).await
        });
        let client = TrialClient::new(channel(address));
        client.echo(word("hello")).await.expect("a reply");
        stop.notify_one();
        serving.await.expect("no panic").expect("a socket");
    });
}

/// Longer than a busy machine pauses.
const PATIENCE: Duration = Duration::from_secs(30);
