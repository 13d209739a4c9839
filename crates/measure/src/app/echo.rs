//! `echo:BYTES`: requests of so many bytes, which come back as they are.

use std::fmt;
use std::sync::Arc;

use super::codec::{Carrier, Codec, DatagramFramer, Expected, Framer, Loader, Setting, Write};
use super::entry::{Entry, Serves};
use super::error::AppError;
use super::payload::{
    Counted, MESSAGE_BYTES_MAX, TAG_BYTES, Tagged, payload_bounds, write_payload,
};
use crate::generator::Generator;
use crate::quantity::parse_size_bytes;

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "echo",
    form: "echo:BYTES",
    about: "requests of so many bytes, which come back as they are",
    options: &[],
    parse,
    carrier: Carrier::Message,
    with_files: None,
    serves: Serves::Echo,
}];

#[derive(Debug)]
struct Echo {
    bytes: u64,
}

fn parse(text: &str, _: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError> {
    let bytes =
        parse_size_bytes(text).map_err(|source| AppError::Quantity { option: "echo", source })?;
    if bytes > MESSAGE_BYTES_MAX {
        return Err(AppError::EchoBytes { min: 0, max: MESSAGE_BYTES_MAX });
    }
    Ok(Arc::new(Echo { bytes }))
}

impl Codec for Echo {
    fn requests(&self, setting: Setting<'_>, _: &mut Generator) -> Result<Write, AppError> {
        let (min, max) = payload_bounds(setting.carrier, 0);
        if !(min..=max).contains(&self.bytes) {
            return Err(AppError::EchoBytes { min, max });
        }
        let len = self.bytes as u32;
        Ok(Box::new(move |tag, _, out| {
            write_payload(tag, len as usize, out);
            Expected { tag, due: len }
        }))
    }

    fn replies(&self) -> Box<dyn Framer> {
        Box::new(Counted::default())
    }

    fn datagrams(&self) -> Option<Box<dyn DatagramFramer>> {
        Some(Box::new(Tagged { at: (self.bytes >= TAG_BYTES as u64).then_some(0) }))
    }
}

impl fmt::Display for Echo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes)
    }
}
