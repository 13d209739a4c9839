//! `synthetic:DIST`: requests that carry their service time, which comes back.
//!
//! A request is the time in ns, 8 bytes, big-endian; over datagrams a tag of 8 more is behind it.

use std::fmt;
use std::sync::Arc;

use super::codec::{
    Carrier, Codec, DatagramFramer, Expected, Framer, Loader, Setting, Write, distribution,
};
use super::entry::{Entry, Serves};
use super::error::AppError;
use super::payload::{Counted, TAG_BYTES, Tagged};
use super::reply::Malformed;
use super::serving::{Limits, NO_REQUEST, Task, TaskForm, words};
use crate::distribution::Distribution;
use crate::generator::Generator;
use crate::quantity::Unit;

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "synthetic",
    form: "synthetic:DIST",
    about: "requests that carry their service time, for `tailcut serve --app synthetic` and `spin`",
    options: &[],
    parse,
    carrier: Carrier::Message,
    with_files: None,
    serves: Serves::Tasks(&SyntheticTasks),
}];

#[derive(Debug)]
struct Synthetic {
    times: Distribution,
}

fn parse(text: &str, load: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError> {
    let times = distribution("synthetic", text, Unit::Time, load)?;
    Ok(Arc::new(Synthetic { times }))
}

impl Codec for Synthetic {
    fn requests(&self, setting: Setting<'_>, _: &mut Generator) -> Result<Write, AppError> {
        let (times, carrier) = (self.times.clone(), setting.carrier);
        Ok(Box::new(move |tag, rng, out| {
            out.extend_from_slice(&times.sample_whole(rng).to_be_bytes());
            let mut due = REQUEST_LEN as u32;
            if carrier == Carrier::Datagram {
                out.extend_from_slice(&tag.to_be_bytes());
                due += TAG_BYTES as u32;
            }
            Expected { tag, due }
        }))
    }

    fn replies(&self) -> Box<dyn Framer> {
        Box::new(Counted::default())
    }

    fn datagrams(&self) -> Option<Box<dyn DatagramFramer>> {
        Some(Box::new(Tagged { at: Some(REQUEST_LEN) }))
    }

    fn service_times(&self) -> Option<&Distribution> {
        Some(&self.times)
    }
}

impl fmt::Display for Synthetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.times.fmt(f)
    }
}

/// Its requests, as a server reads them: the reply is the request.
#[derive(Debug)]
struct SyntheticTasks;

impl TaskForm for SyntheticTasks {
    fn head_len(&self) -> usize {
        REQUEST_LEN
    }

    fn read_head(&self, head: &[u8], limits: Limits) -> Result<(Task, u64), Malformed> {
        let [service_ns] = words(head);
        let mut task = Task::new(service_ns, REQUEST_LEN, limits)?;
        task.hold(head, REQUEST_LEN);
        Ok((task, 0))
    }

    fn read_payload(&self, task: &mut Task, payload: &[u8], _: u64) -> Result<(), Malformed> {
        if !matches!(payload.len(), 0 | TAG_BYTES) {
            return Err(NO_REQUEST);
        }
        task.reply_len += payload.len();
        task.hold(payload, REQUEST_LEN + TAG_BYTES);
        Ok(())
    }

    fn is_time_alone(&self) -> bool {
        true
    }
}

const REQUEST_LEN: usize = 8;
