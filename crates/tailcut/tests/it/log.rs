//! Log lines that a program gets that calls, by a subscriber of its own.

use std::fmt::Debug;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tailcut::ClientBuilder;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The warnings so far, by their text.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, line: &Metadata<'_>) -> bool {
        *line.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Text(self.0.lock().expect("no test has failed under it")));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Takes the text of a line.
struct Text<'a>(std::sync::MutexGuard<'a, Vec<String>>);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.push(format!("{value:?}"));
        }
    }
}

#[test]
fn a_client_logs_that_its_calls_are_not_answered() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let target = silent.local_addr().expect("its address");
    let warnings = Warnings::default();
    let outcome = tracing::subscriber::with_default(warnings.clone(), || {
        let client = ClientBuilder::new().timeout(Duration::from_millis(300)).connect(target);
        client.expect("a client").call(b"ping").map(drop)
    });
    assert!(outcome.is_err(), "nobody answers");
    let lines = warnings.0.lock().expect("a lock").clone();
    let timeouts = "retransmission timeouts: peers do not answer";
    assert!(lines.iter().any(|line| line == timeouts), "{lines:?}");
}
