//! A codec that this crate does not have: one file and its line in the list. What is shown in
//! docs/adding-a-codec.md is this file.
//!
//! `counter:STEP` asks a server for its next number: a request is `+STEP` and a line end, a reply
//! the number and a line end, or `busy`. Over datagrams the request's name stands in front of both.

use std::fmt;
use std::sync::Arc;

use tailcut_measure::app::{
    App, AppError, CODECS, Carrier, Codec, DatagramFramer, Entry, ErrorKind, Expected, Framer, Key,
    Loader, Malformed, Outcome, Replies, Reply, Requests, Serves, Setting, Write,
};
use tailcut_measure::generator::{Generator, generator};

// The file: the codec, and its entry.

const ENTRIES: &[Entry] = &[Entry {
    name: "counter",
    form: "counter:STEP",
    about: "the server's next number",
    options: &[],
    parse,
    carrier: Carrier::Stream,
    with_files: None,
    serves: Serves::Nothing,
}];

#[derive(Debug)]
struct Counter {
    step: u32,
}

fn parse(text: &str, _: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError> {
    let refused =
        || AppError::Value { option: "counter", rule: "a whole number", value: text.to_owned() };
    Ok(Arc::new(Counter { step: text.parse().map_err(|_| refused())? }))
}

impl Codec for Counter {
    fn requests(&self, setting: Setting<'_>, _: &mut Generator) -> Result<Write, AppError> {
        let (request, carrier) = (format!("+{}\n", self.step), setting.carrier);
        Ok(Box::new(move |tag, _, out| {
            if carrier == Carrier::Datagram {
                out.extend_from_slice(&tag.to_be_bytes());
            }
            out.extend_from_slice(request.as_bytes());
            Expected { tag, due: 0 }
        }))
    }

    fn replies(&self) -> Box<dyn Framer> {
        Box::new(Line { seen: 0, first: 0 })
    }

    fn datagrams(&self) -> Option<Box<dyn DatagramFramer>> {
        Some(Box::new(Tagged))
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)
    }
}

/// The line under way.
#[derive(Debug)]
struct Line {
    /// Bytes of it that have come.
    seen: usize,
    /// The first of them.
    first: u8,
}

impl Framer for Line {
    fn take(&mut self, bytes: &mut &[u8], _: Expected) -> Result<Option<Reply>, Malformed> {
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            if byte == b'\n' {
                self.seen = 0;
                return outcome(self.first).map(|outcome| Some(Reply::keep(outcome)));
            }
            self.first = if self.seen == 0 { byte } else { self.first };
            self.seen += 1;
            if self.seen > LINE_LEN_MAX {
                return Err(Malformed::TooLong("lines"));
            }
        }
        Ok(None)
    }

    fn is_within(&self) -> bool {
        self.seen > 0
    }
}

/// Datagrams that begin with the name of their request.
#[derive(Debug)]
struct Tagged;

impl DatagramFramer for Tagged {
    fn key(&self, datagram: &[u8]) -> Result<Key, Malformed> {
        let tag = datagram.first_chunk().ok_or(Malformed::Syntax("a tagged number"))?;
        Ok(Key::Tag(u64::from_be_bytes(*tag)))
    }

    fn take(&mut self, datagram: &[u8], _: Expected) -> Result<Option<Outcome>, Malformed> {
        outcome(datagram.get(8).copied().unwrap_or_default()).map(Some)
    }
}

fn outcome(first: u8) -> Result<Outcome, Malformed> {
    match first {
        b'0'..=b'9' => Ok(Outcome::Ok),
        b'b' => Ok(Outcome::Error(ErrorKind::Busy)),
        _ => Err(Malformed::Syntax("a number")),
    }
}

const LINE_LEN_MAX: usize = 64;

// The line, which stands in the list of src/app/registry.rs for those of this crate.

fn codecs() -> Vec<&'static [Entry]> {
    [CODECS, &[ENTRIES]].concat()
}

fn read(text: &str) -> Result<App, AppError> {
    App::parse_among(&codecs(), text, &mut |_, _| Err("no files".to_owned()))
}

#[test]
fn it_is_found_beside_the_others_and_prints_in_full() {
    let app = read("counter:3").unwrap();
    assert_eq!((app.name(), app.to_string()), ("counter", "counter:3".to_owned()));
    assert_eq!(read(&app.to_string()), Ok(app));
    assert_eq!(read("echo:64"), App::parse("echo:64"));
    assert!(read("counter:x").unwrap_err().to_string().contains("a whole number"));
    assert!(read("gopher").unwrap_err().to_string().contains("counter:STEP"));
}

#[test]
fn its_requests_and_replies_are_exchanged_on_a_stream() {
    let app = read("counter:3").unwrap();
    let (bytes, expected) = request(&app, Carrier::Stream);
    assert_eq!(bytes, b"+3\n");
    let mut replies = Replies::new(&app);
    let mut found = Vec::new();
    for mut part in b"17\nbusy\n4".chunks(2) {
        while !part.is_empty() {
            match replies.take(&mut part, Some(expected)) {
                Ok(Some(reply)) => found.push(reply.outcome),
                step => assert_eq!(step, Ok(None)),
            }
        }
    }
    assert_eq!(found, [Outcome::Ok, Outcome::Error(ErrorKind::Busy)]);
    assert_eq!(replies.finish(), Err(Malformed::Truncated));
    assert_eq!(Replies::new(&app).take(&mut &b"5\n"[..], None), Err(Malformed::Unsolicited));
}

#[test]
fn its_datagrams_and_messages_are_judged() {
    let app = read("counter:3").unwrap();
    let (bytes, expected) = request(&app, Carrier::Datagram);
    let mut datagrams = app.datagrams().unwrap();
    assert_eq!(datagrams.key(&bytes), Ok(Key::Tag(expected.tag)));
    let reply = [&expected.tag.to_be_bytes()[..], b"17"].concat();
    assert_eq!(datagrams.take(&reply, expected), Ok(Some(Outcome::Ok)));
    let judged = Replies::new(&app).judge(b"17\n", expected);
    assert_eq!(judged, Ok(Reply::keep(Outcome::Ok)));
}

fn request(app: &App, carrier: Carrier) -> (Vec<u8>, Expected) {
    let setting = Setting { carrier, authority: "", is_tls: false };
    let mut bytes = Vec::new();
    let expected = Requests::new(app, setting, generator(1, 0)).unwrap().write(&mut bytes);
    (bytes, expected)
}
