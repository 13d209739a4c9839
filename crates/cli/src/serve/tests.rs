//! Servers on threads of the test's process.

mod loaded;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// Serves until it is dropped.
struct Served {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<String>>,
}

impl Served {
    /// Stops it, and gives its report.
    fn stop(&mut self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        self.thread.take().map(|thread| thread.join().expect("it serves")).unwrap_or_default()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A server with these arguments after `--listen`.
fn serve(words: &[&str]) -> Served {
    let line = Line::try_parse_from(["serve", "--listen"].iter().chain(words)).expect("arguments");
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut server = Server::open_all(&line.args, None).expect("a port").remove(0);
        let (_, mut running) = Running::new(Life::new(line.args.serving.life), server.waker());
        let stop = running.life.stop_flag();
        sender.send((server.addresses()[0], stop, server.waker())).expect("the test");
        server.serve(&mut running).expect("it serves");
        report([&server].into_iter())
    });
    let (address, stop, waker) = receiver.recv().expect("a server");
    Served { address, stop, waker, thread: Some(thread) }
}
