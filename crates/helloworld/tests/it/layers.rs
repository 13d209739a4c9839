//! tower's layers around calls and around services.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tailcut::Server;
use tailcut_services::{Code, Layered, Metrics, Request, Response, Services, Status};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tower::ServiceBuilder;
use tower::limit::ConcurrencyLimit;
use tower::timeout::Timeout;

use crate::calls::{Serving, channel, with_server, word};
use crate::trial::trial_client::TrialClient;
use crate::trial::trial_server::{Trial, TrialServer};
use crate::trial::{Description, Failure, Word};

/// Counts who is in [`Trial::hold`] at once.
#[derive(Default)]
struct Counting {
    inside: AtomicUsize,
    inside_max: AtomicUsize,
    /// Release that those who hold wait for; without it, they go on at once.
    released: Option<Notify>,
}

impl Trial for Counting {
    async fn hold(&self, request: Request<Word>) -> Result<Response<Word>, Status> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.inside_max.fetch_max(inside, Ordering::SeqCst);
        match &self.released {
            Some(released) => released.notified().await,
            // Others get a chance to come in too.
            None => {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Ok(Response::new(request.into_inner()))
    }

    async fn echo(&self, request: Request<Word>) -> Result<Response<Word>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn read(&self, _request: Request<Word>) -> Result<Response<Word>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn describe(&self, _request: Request<()>) -> Result<Response<Description>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn fail(&self, _request: Request<Failure>) -> Result<Response<()>, Status> {
        Err(Status::not_found("nothing"))
    }

    async fn release(&self, _request: Request<()>) -> Result<Response<()>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn panic(&self, _request: Request<()>) -> Result<Response<()>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

/// Layer around the services.
#[derive(Clone, Copy)]
enum Around {
    LimitOf(usize),
    Timeout(Duration),
}

/// Runs `calls` before services within a layer.
fn with_layers(
    tried: Arc<Counting>,
    around: Around,
    calls: impl FnOnce(SocketAddr, &Handle),
) -> Metrics {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let services = Arc::new(Services::new().add_service(TrialServer::from_arc(tried)));
    let mut server = Server::bind("127.0.0.1:0").expect("a server");
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let (tasks, shared) = (runtime.handle(), services.clone());
        let thread = scope.spawn(move || match around {
            Around::LimitOf(limit) => shared.serve_layered(&mut server, 100, tasks, |services| {
                ConcurrencyLimit::new(services, limit)
            }),
            Around::Timeout(timeout) => shared
                .serve_layered(&mut server, 100, tasks, |services| Timeout::new(services, timeout)),
        });
        let called =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| calls(address, tasks)));
        stop.stop();
        thread.join().expect("the server does not panic").expect("a socket");
        called.expect("the calls go well");
    });
    services.metrics()
}

/// Fifty calls at once over a channel.
async fn hold_fifty<T>(client: &TrialClient<T>)
where
    T: for<'a> tailcut_services::Transport<
            Call<'a, tailcut_services::Prost, Word> = std::pin::Pin<
                Box<dyn Future<Output = Result<Response<Word>, Status>> + Send>,
            >,
        > + 'static,
{
    let calls: Vec<_> = (0..50).map(|n| tokio::spawn(client.hold(word(&n.to_string())))).collect();
    for (n, call) in calls.into_iter().enumerate() {
        let reply = call.await.expect("no panic").expect("a reply");
        assert_eq!(reply.into_inner(), word(&n.to_string()));
    }
}

#[test]
fn a_limit_around_calls_holds() {
    let tried = Arc::new(Counting::default());
    with_layers(tried.clone(), Around::LimitOf(1000), |address, runtime| {
        let calls = ServiceBuilder::new().concurrency_limit(3).service(channel(address));
        let client = TrialClient::new(Layered::new(calls));
        runtime.block_on(hold_fifty(&client));
    });
    let inside_max = tried.inside_max.load(Ordering::SeqCst);
    assert!((1..=3).contains(&inside_max), "{inside_max} at once");
}

#[test]
fn a_limit_around_services_holds() {
    let tried = Arc::new(Counting::default());
    let metrics = with_layers(tried.clone(), Around::LimitOf(2), |address, runtime| {
        let client = TrialClient::new(Layered::new(channel(address)));
        runtime.block_on(hold_fifty(&client));
    });
    assert_eq!(metrics.replied, 50);
    let inside_max = tried.inside_max.load(Ordering::SeqCst);
    assert!((1..=2).contains(&inside_max), "{inside_max} at once");
}

#[test]
fn a_timeout_around_services_is_a_status() {
    let tried = Arc::new(Counting { released: Some(Notify::new()), ..Counting::default() });
    let around = Around::Timeout(Duration::from_millis(20));
    let metrics = with_layers(tried, around, |address, runtime| {
        let client = TrialClient::new(channel(address));
        runtime.block_on(async {
            let status = client.hold(word("")).await.expect_err("nobody releases it");
            assert_eq!(status.code(), Code::DeadlineExceeded);
            // It came from the server, long before the call's own deadline.
            assert!(status.error().is_none(), "{status:?}");
        });
    });
    assert_eq!(metrics.failed, 1);
}

#[test]
fn a_timeout_around_calls_is_a_status() {
    with_server(Serving::Tasks, |address, _| {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let calls = Timeout::new(channel(address), Duration::from_millis(20));
        let client = TrialClient::new(Layered::new(calls));
        runtime.block_on(async {
            let status = client.hold(word("")).await.expect_err("nobody releases it");
            assert_eq!(status.code(), Code::DeadlineExceeded);
        });
    });
}

#[test]
fn a_status_goes_through_layers_as_it_is() {
    let tried = Arc::new(Counting::default());
    with_layers(tried, Around::LimitOf(1), |address, runtime| {
        let calls = ServiceBuilder::new().concurrency_limit(1).service(channel(address));
        let client = TrialClient::new(Layered::new(calls));
        runtime.block_on(async {
            let status = client.fail(Failure::default()).await.expect_err("a status");
            assert_eq!((status.code(), status.message()), (Code::NotFound, "nothing"));
        });
    });
}
