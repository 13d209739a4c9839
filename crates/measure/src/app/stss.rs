//! `stss:time=DIST,request=DIST,reply=DIST`, synthetic time and synthetic size: requests that carry
//! their service time and the size of their reply.
//!
//! A request is the service time in ns, the payload's size and the reply's, 8 bytes each,
//! big-endian, and the payload. The reply has the size asked for; it begins with the payload's
//! first 8 bytes, a tag over datagrams.

use std::fmt;
use std::sync::Arc;

use super::codec::{
    Carrier, Codec, DatagramFramer, Expected, Framer, Loader, Setting, Write, distribution,
};
use super::entry::{AppOption, Entry, Serves};
use super::error::AppError;
use super::options::{Options, quoted};
use super::payload::{Counted, TAG_BYTES, Tagged, payload_bounds, write_payload};
use super::reply::Malformed;
use super::serving::{Limits, NO_REQUEST, Task, TaskForm, words};
use super::store::Sizes;
use crate::distribution::Distribution;
use crate::generator::Generator;
use crate::quantity::Unit;

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "stss",
    form: "stss:time=DIST,request=DIST,reply=DIST",
    about: "requests that carry their service time and the size of their reply, for `tailcut serve --app stss`",
    options: &[OPTIONS],
    parse,
    carrier: Carrier::Message,
    with_files: None,
    serves: Serves::Tasks(&StssTasks),
}];

#[derive(Debug)]
struct Stss {
    /// Time of the service, ns.
    time: Distribution,
    /// Bytes that a request carries behind its head.
    request: Distribution,
    /// Bytes of a reply.
    reply: Distribution,
}

fn parse(text: &str, load: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError> {
    let mut options = Options::parse("stss", text)?;
    let mut take = |option: &'static str, unit: Unit| {
        let text = options.take(option)?.ok_or(AppError::Required { app: "stss", option })?;
        distribution(option, &text, unit, load)
    };
    let stss = Stss {
        time: take("time", Unit::Time)?,
        request: take("request", Unit::Size)?,
        reply: take("reply", Unit::Size)?,
    };
    options.finish(&[OPTIONS])?;
    Ok(Arc::new(stss))
}

impl Codec for Stss {
    fn requests(&self, setting: Setting<'_>, _: &mut Generator) -> Result<Write, AppError> {
        let (reply_min, reply_max) = payload_bounds(setting.carrier, 0);
        let (_, request_max) = payload_bounds(setting.carrier, HEAD_LEN as u64);
        // Over datagrams both carry a tag.
        let tag_min = if setting.carrier == Carrier::Datagram { TAG_BYTES as u64 } else { 0 };
        let time = self.time.clone();
        let request = Sizes::new("request payloads", &self.request, tag_min, request_max)?;
        let reply = Sizes::new("replies", &self.reply, reply_min.max(tag_min), reply_max)?;
        Ok(Box::new(move |tag, rng, out| {
            let (service_ns, payload_len, reply_len) =
                (time.sample_whole(rng), request.draw(rng), reply.draw(rng));
            for word in [service_ns, payload_len as u64, reply_len as u64] {
                out.extend_from_slice(&word.to_be_bytes());
            }
            write_payload(tag, payload_len, out);
            Expected { tag, due: reply_len as u32 }
        }))
    }

    fn replies(&self) -> Box<dyn Framer> {
        Box::new(Counted::default())
    }

    fn datagrams(&self) -> Option<Box<dyn DatagramFramer>> {
        Some(Box::new(Tagged { at: Some(0) }))
    }
}

impl fmt::Display for Stss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [time, request, reply] =
            [&self.time, &self.request, &self.reply].map(|drawn| quoted(&drawn.to_string()));
        write!(f, "time={time},request={request},reply={reply}")
    }
}

/// Its requests, as a server reads them.
#[derive(Debug)]
struct StssTasks;

impl TaskForm for StssTasks {
    fn head_len(&self) -> usize {
        HEAD_LEN
    }

    fn read_head(&self, head: &[u8], limits: Limits) -> Result<(Task, u64), Malformed> {
        let [service_ns, payload_len, reply_len] = words(head);
        if payload_len > limits.payload_bytes_max {
            return Err(Malformed::TooLong("payloads"));
        }
        if reply_len > limits.reply_bytes_max {
            return Err(Malformed::TooLong("replies"));
        }
        Ok((Task::new(service_ns, reply_len as usize, limits)?, payload_len))
    }

    fn read_payload(&self, task: &mut Task, payload: &[u8], len: u64) -> Result<(), Malformed> {
        if payload.len() as u64 != len {
            return Err(NO_REQUEST);
        }
        task.hold(payload, TAG_BYTES);
        Ok(())
    }
}

const OPTIONS: &[AppOption] = &[
    AppOption { name: "time", form: "time=DIST", about: "service time", example: EXAMPLE },
    AppOption {
        name: "request",
        form: "request=DIST",
        about: "bytes of a request",
        example: EXAMPLE,
    },
    AppOption { name: "reply", form: "reply=DIST", about: "bytes of a reply", example: EXAMPLE },
];
const EXAMPLE: &str = "stss:time=exp:10us,request=fixed:64,reply=fixed:1kB";
const HEAD_LEN: usize = 24;
