//! Cost of answering later: calls a second with 64 outstanding, answered in place, by workers, from
//! another thread and by tasks; and 100,000 calls at once, of which each waits for its permit.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use tailcut::{AsyncClient, Client, Error, Request, Responder, Server};
use tailcut_net::clock::Clock;
use tailcut_net::driver::Wait;

fn main() -> Result<(), Error> {
    let ways: [(&str, Run); 3] = [
        ("by two workers", |server| server.run_workers(2, answer)),
        ("from another thread", |server| {
            let (sender, receiver) = channel::<Responder>();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::iter::from_fn(|| receive(&receiver)).for_each(reverse);
                });
                server.run(move |request| drop(sender.send(request.defer())))
            })
        }),
        ("by tasks", |server| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
            server.run_async(runtime.handle(), 1000, |responder| async move { reverse(responder) })
        }),
    ];
    for (name, run) in ways {
        // Each beside its own slice in place, since a machine is not as fast all the time.
        let mut found = Vec::new();
        for _ in 0..ROUNDS {
            let in_place = calls_a_second(|server| server.run(answer))?;
            let later = calls_a_second(run)?;
            found.push((later / in_place, later, in_place));
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, later, in_place) = found[ROUNDS / 2];
        let (least, most) = (found[0].0, found[ROUNDS - 1].0);
        println!(
            "{name:<19} {later:>8.0} calls/s, in place {in_place:>8.0}: {ratio:.2} \
             (median of {ROUNDS}, {least:.2} to {most:.2})"
        );
    }
    with_server(|server| server.run(answer), many_at_once)
}

/// Slices of each way.
const ROUNDS: usize = 9;

/// Length of each slice.
const SLICE_NS: u64 = 300_000_000;

/// A way to run a server.
type Run = fn(&mut Server) -> Result<(), Error>;

fn answer(request: Request<'_>) {
    // A client that has gone needs no answer.
    let _ = request.reply_in_place(|bytes| bytes.reverse());
}

fn reverse(responder: Responder) {
    responder.reply_in_place(|bytes| bytes.reverse());
}

/// The next, for which it looks as long as a server does before it sleeps.
fn receive<T>(receiver: &Receiver<T>) -> Option<T> {
    let until = Clock.now() + Wait::SPIN_NS;
    while Clock.now() < until {
        match receiver.try_recv() {
            Err(TryRecvError::Empty) => std::thread::yield_now(),
            received => return received.ok(),
        }
    }
    receiver.recv().ok()
}

/// Calls a second of one client with 64 outstanding, over a slice.
fn calls_a_second(run: impl FnOnce(&mut Server) -> Result<(), Error> + Send) -> Result<f64, Error> {
    with_server(run, |target| {
        let client = Client::connect(target)?;
        let mut calls = VecDeque::new();
        let (mut count, began) = (0_u64, Clock.now());
        while Clock.now() - began < SLICE_NS {
            while calls.len() < 64 {
                calls.push_back(client.enqueue(&[7; 64])?);
            }
            calls.pop_front().map(tailcut::Pending::wait).transpose()?;
            count += 1;
        }
        Ok(count as f64 * 1e9 / (Clock.now() - began) as f64)
    })
}

fn many_at_once(target: SocketAddr) -> Result<(), Error> {
    const COUNT: usize = 100_000;
    let client = AsyncClient::connect(target)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        for round in 0..2 {
            let began = Clock.now();
            let calls: Vec<_> = (0..COUNT).map(|_| client.call([7; 64])).collect();
            for call in calls {
                call.await?;
            }
            let seconds = (Clock.now() - began) as f64 / 1e9;
            println!(
                "{COUNT} at once, round {round}: {seconds:.2} s, {} MB resident",
                resident_mb()
            );
        }
        Ok(())
    })
}

/// Result of `client` against a server that `run` runs.
fn with_server<T>(
    run: impl FnOnce(&mut Server) -> Result<(), Error> + Send,
    client: impl FnOnce(SocketAddr) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut server = Server::bind("127.0.0.1:0")?;
    let (target, handle) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || run(&mut server));
        let result = client(target);
        handle.stop();
        serving.join().expect("the server does not panic")?;
        result
    })
}

/// Megabytes of this process that are in memory.
fn resident_mb() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = pages.split(' ').nth(1).and_then(|count| count.parse().ok()).unwrap_or(0);
    pages * 4096 / 1_000_000
}
