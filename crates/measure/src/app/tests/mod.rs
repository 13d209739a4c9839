//! Tests of applications, against the documents of their protocols.

mod datagrams;
mod fragments;
mod grammar;
mod http;
mod http2;
mod memcached;
mod requests;
mod resp;
mod serving;

use super::serving::TaskForm;
use super::*;

/// Commands that replies of memcached's answer.
const GET: u32 = 0;
const SET: u32 = 1;

const OK: Outcome = Outcome::Ok;
const MISS: Outcome = Outcome::Miss;
const REFUSED: Outcome = Outcome::Error(ErrorKind::Refused);

fn app(text: &str) -> App {
    App::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The form of the requests that a server of tailcut's own takes.
fn form(name: &str) -> &'static dyn TaskForm {
    let mut entries = CODECS.iter().copied().flatten();
    match entries.find(|entry| entry.name == name).unwrap().serves {
        Serves::Tasks(form) => form,
        other => panic!("{other:?}"),
    }
}

fn due(due: u32) -> Expected {
    Expected { tag: 0, due }
}

/// Result of a step in finding replies.
type Step = Result<Option<Reply>, Malformed>;

fn keep(outcome: Outcome) -> Step {
    Ok(Some(Reply { outcome, after: After::Keep }))
}

fn close(outcome: Outcome) -> Step {
    Ok(Some(Reply { outcome, after: After::Close }))
}

/// Steps found in the fragments, one after the other, with always the same due; they end with what
/// is malformed.
fn steps<'a>(
    app: &App,
    expected: Option<Expected>,
    fragments: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Step> {
    let mut replies = Replies::new(app);
    let mut found = Vec::new();
    for mut fragment in fragments {
        while !fragment.is_empty() {
            match replies.take(&mut fragment, expected) {
                Ok(None) => assert!(fragment.is_empty(), "more is asked for while there is some"),
                step @ Err(malformed) => {
                    found.push(step);
                    assert_eq!(replies.take(&mut &b""[..], expected), step, "it stays malformed");
                    assert_eq!(replies.finish(), Err(malformed));
                    return found;
                }
                step @ Ok(Some(_)) => found.push(step),
            }
        }
    }
    match replies.finish() {
        Ok(None) => {}
        Ok(Some(reply)) => found.push(Ok(Some(reply))),
        Err(malformed) => found.push(Err(malformed)),
    }
    found
}

/// The only thing found in `bytes`, whole and byte by byte.
fn check(app: &App, reply: u32, bytes: &[u8], expected: Step) {
    let shown = String::from_utf8_lossy(bytes);
    assert_eq!(steps(app, Some(due(reply)), [bytes]), [expected], "{shown:?} whole");
    assert_eq!(steps(app, Some(due(reply)), bytes.chunks(1)), [expected], "{shown:?} byte by byte");
}

fn check_malformed(app: &App, reply: u32, bytes: &[u8]) {
    let shown = String::from_utf8_lossy(bytes);
    for found in
        [steps(app, Some(due(reply)), [bytes]), steps(app, Some(due(reply)), bytes.chunks(1))]
    {
        assert!(
            matches!(found[..], [Err(malformed)] if malformed != Malformed::Truncated),
            "{shown:?}: {found:?}"
        );
    }
}
