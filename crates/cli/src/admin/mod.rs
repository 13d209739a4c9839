//! The admin port of a serving command: `/metrics` for Prometheus, `/healthz` and `/readyz` for who
//! starts and stops it.
//!
//! | path | 200 | 503 |
//! |---|---|---|
//! | `/metrics` | the counters, gauges and histograms | the loop does not answer |
//! | `/healthz` | the loop answers | it does not |
//! | `/readyz` | it takes work | it drains, has no server in service, or does not answer |
//!
//! A thread of its own answers. The loop of the data path is asked for a copy of its counters and
//! does nothing else for it; text is made here.
//!
//! Invariant: no connection holds more than a buffer and ten seconds, and one too many ends the
//! oldest: whoever is silent or slow keeps nobody out.

pub(crate) mod text;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::{runtime, time};

use crate::life::leave_real_time;
use crate::{network, output};

/// Where a command tells how it is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminFlags {
    /// Answer HTTP at this address: /metrics for Prometheus, /healthz and /readyz. Anyone who can
    /// reach it can read it, so keep it on loopback or an internal network; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
}

/// A command at one moment, as an admin port shows it.
pub(crate) struct Reading {
    /// Reason why it takes no work; `None` if it does.
    pub(crate) unready: Option<&'static str>,
    /// Answer to `/metrics`.
    pub(crate) metrics: String,
}

/// Asks the loop how it is.
type Source = Arc<dyn Fn() -> Result<Reading> + Send + Sync>;

/// An admin port that is bound, if one was asked for.
pub(crate) struct Admin(Option<StdListener>);

impl AdminFlags {
    /// Binds the port, if one was asked for.
    pub(crate) fn bind(&self) -> Result<Admin> {
        let bind = |address: &String| {
            StdListener::bind(network::resolve(address)?)
                .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                .with_context(|| format!("cannot listen for HTTP at {address}"))
        };
        self.admin.as_ref().map(bind).transpose().map(Admin)
    }
}

impl Admin {
    /// Prints `admin ADDR`, and answers by `source` on a thread of its own until the process ends.
    pub(crate) fn start(
        self,
        source: impl Fn() -> Result<Reading> + Send + Sync + 'static,
    ) -> Result<()> {
        let Some(listener) = self.0 else { return Ok(()) };
        let bound: SocketAddr = listener.local_addr()?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .context("cannot set up the admin port")?;
        let source: Source = Arc::new(source);
        let work = move || {
            leave_real_time();
            runtime.block_on(accept(listener, &source));
        };
        thread::Builder::new()
            .name("admin".to_owned())
            .spawn(work)
            .context("cannot start the thread of the admin port")?;
        output::print(&format!("admin {bound}\n"))
    }
}

async fn accept(listener: StdListener, source: &Source) {
    // A socket that the kernel has just given takes a place in epoll.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = VecDeque::<AbortHandle>::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: some will be free again.
            time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let task = tokio::spawn(converse(stream, source.clone()));
        connections.push_back(task.abort_handle());
    }
}

/// Answers one request.
async fn converse(stream: TcpStream, source: Source) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let answered = answer(request.method(), request.uri().path(), &source);
        async move { Ok::<_, Infallible>(answered) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WITHIN)
        .keep_alive(false)
        .max_buf_size(HEADER_LEN_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    // Whatever ends a connection is its client's to see.
    let _ = time::timeout(CONNECTION_WITHIN, connection).await;
}

fn answer(method: &Method, path: &str, source: &Source) -> Response<String> {
    if !["/metrics", "/healthz", "/readyz"].contains(&path) {
        return plain(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n");
    }
    if *method != Method::GET && *method != Method::HEAD {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "this is read by GET\n");
    }
    let reading = match source() {
        Ok(reading) => reading,
        Err(error) => return plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{error:#}\n")),
    };
    match (path, reading.unready) {
        ("/metrics", _) => respond(StatusCode::OK, text::CONTENT_TYPE, reading.metrics),
        ("/readyz", Some(reason)) => plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{reason}\n")),
        _ => plain(StatusCode::OK, "ok\n"),
    }
}

fn plain(status: StatusCode, body: &str) -> Response<String> {
    respond(status, "text/plain; charset=utf-8", body.to_owned())
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let response = Response::builder().status(status).header(CONTENT_TYPE, content_type);
    response.body(body).expect("a status and a header that exist")
}

/// Connections at a time: a few scrapers, probes and people.
const CONNECTIONS_MAX: usize = 64;
/// For the request's head.
const HEADER_WITHIN: Duration = Duration::from_secs(5);
/// For all of a connection.
const CONNECTION_WITHIN: Duration = Duration::from_secs(10);
const HEADER_LEN_MAX: usize = 16 << 10;
