//! Output of a `tracing` subscriber about calls.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tailcut::ServerBuilder;
use tailcut_services::{Response, Services};
use tokio::runtime::Builder;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::calls::{Tried, blocking, word};
use crate::trial::Failure;
use crate::trial::trial_client::TrialClient;
use crate::trial::trial_server::TrialServer;

/// Lines of a subscriber.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that a server writes about calls, in spans of this level and above.
fn heard(level: Level) -> String {
    let lines = Lines::default();
    let runtime = Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let services = Services::new().add_service(TrialServer::new(Tried::default()));
    let mut server = ServerBuilder::new().bind("127.0.0.1:0").expect("a server");
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let (written, runtime) = (lines.clone(), runtime.handle());
        let thread = scope.spawn(move || {
            let subscriber = tracing_subscriber::fmt()
                .with_max_level(level)
                .with_span_events(FmtSpan::CLOSE)
                .with_ansi(false)
                .with_writer(move || written.clone())
                .finish();
            // Of this thread alone, on which handlers that need not wait run.
            tracing::subscriber::with_default(subscriber, || services.serve(&mut server, runtime))
        });
        let client = TrialClient::new(blocking(address));
        let reply = client.echo(word("hello")).map(Response::into_inner);
        let failed = client.fail(Failure { code: 5, ..Failure::default() });
        stop.stop();
        thread.join().expect("the server does not panic").expect("a socket");
        assert_eq!(reply.expect("a reply"), word("hello"));
        failed.expect_err("a status");
    });
    let lines = lines.0.lock().expect("no panic");
    String::from_utf8(lines.clone()).expect("text")
}

#[test]
fn a_handler_runs_in_a_span_of_its_method_and_its_client_that_ends_with_its_code() {
    let lines = heard(Level::DEBUG);
    let spans: Vec<&str> = lines.lines().filter(|line| line.contains("call{")).collect();
    assert_eq!(spans.len(), 2, "{lines}");
    for (span, path, code) in [(spans[0], "Echo", "Ok"), (spans[1], "Fail", "NotFound")] {
        assert!(span.contains(&format!("method=\"/trial.Trial/{path}\"")), "{span}");
        assert!(
            span.contains("client=127.0.0.1:") && span.contains(&format!("code={code}")),
            "{span}"
        );
        assert!(span.contains("close"), "{span}");
    }
}

#[test]
fn calls_are_no_lines_of_a_log_for_operators() {
    assert!(!heard(Level::INFO).contains("call{"));
}
