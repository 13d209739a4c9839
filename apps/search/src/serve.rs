//! A replica: R2P2 and HTTP in front of one thread that searches.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result};

use crate::http;
use crate::index::Searcher;

/// A query, and who waits for its answer.
struct Job {
    query: String,
    asker: Asker,
}

enum Asker {
    Call(tailcut::Responder),
    Connection(SyncSender<Result<String>>),
}

/// Answers queries for ever, one after the other, in the order of their arrival.
///
/// # Errors
///
/// That an address cannot be served at.
pub fn serve(
    searcher: &Searcher,
    calls: Option<SocketAddr>,
    http: Option<SocketAddr>,
) -> Result<()> {
    let (jobs, queue) = sync_channel(QUEUE_MAX);
    if let Some(address) = calls {
        let server = tailcut::Server::bind(address)?;
        println!("listening {}", server.local_address());
        let jobs = jobs.clone();
        thread::spawn(move || serve_calls(server, &jobs));
    }
    if let Some(address) = http {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
        println!("listening {}", listener.local_addr()?);
        let jobs = jobs.clone();
        thread::spawn(move || serve_connections(&listener, &jobs));
    }
    drop(jobs);
    search(searcher, &queue);
    Ok(())
}

fn search(searcher: &Searcher, queue: &Receiver<Job>) {
    for Job { query, asker } in queue {
        let answer = searcher.answer(&query);
        // Whoever does not wait any more misses nothing.
        match (asker, answer) {
            (Asker::Call(call), answer) => call.reply(&http::response(Some(answer))),
            (Asker::Connection(connection), answer) => drop(connection.send(answer)),
        }
    }
}

fn serve_calls(mut server: tailcut::Server, jobs: &SyncSender<Job>) {
    let served = server.run(|request| {
        // A call's bytes are a request of HTTP, as those of clients of `tailcut bridge --app http`.
        let Ok(Some((query, _))) = http::request(request.bytes()) else {
            // Who withdrew the call needs no answer.
            let _ = request.reject(BAD_REQUEST, "no request of HTTP");
            return;
        };
        let call = request.defer();
        match query {
            None => call.reply(&http::response(None)),
            // Calls that find the queue full are refused when their responder is dropped.
            Some(query) => drop(jobs.try_send(Job { query, asker: Asker::Call(call) })),
        }
    });
    if let Err(error) = served {
        eprintln!("R2P2 is served no more: {error}");
    }
}

fn serve_connections(listener: &TcpListener, jobs: &SyncSender<Job>) {
    for stream in listener.incoming().flatten() {
        let jobs = jobs.clone();
        let spawned = thread::Builder::new().spawn(move || {
            let (sender, answers) = sync_channel(1);
            let answer = |query| {
                jobs.send(Job { query, asker: Asker::Connection(sender.clone()) })?;
                answers.recv()?
            };
            // A client that ends or talks nonsense concerns itself alone.
            let _ = http::serve(stream, answer);
        });
        // Without a thread the client's connection ends.
        drop(spawned);
    }
}

const QUEUE_MAX: usize = 65_536;
/// The code that clients read where a call is no request.
const BAD_REQUEST: u32 = 400;
