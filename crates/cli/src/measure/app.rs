//! What a measured request carries, and what its reply must be.

use std::fmt;

use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::Generator;
use tailcut_measure::quantity::parse_size_bytes;

use crate::distribution_file::parse_times;

/// An application as people write it: `echo:BYTES` or `synthetic:DIST`.
#[derive(Clone, Debug)]
pub(super) enum App {
    /// Requests of so many bytes, returned as they are.
    Echo(usize),
    /// Requests that carry their service time, which returns.
    Synthetic(Distribution),
}

impl App {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("echo", size)) => match parse_size_bytes(size) {
                Ok(bytes) if bytes <= REQUEST_BYTES_MAX => Ok(Self::Echo(bytes as usize)),
                Ok(_) => Err(format!("{size:?} is too large: a request has at most {REQUEST_BYTES_MAX} bytes")),
                Err(error) => Err(error.to_string()),
            },
            Some(("synthetic", times)) => parse_times(times).map(Self::Synthetic),
            _ => Err("write echo:BYTES or synthetic:DIST, such as echo:64 or synthetic:exp:50us".to_owned()),
        }
    }

    /// Writes the next request.
    pub(super) fn write_request(&self, rng: &mut Generator, request: &mut Vec<u8>) {
        match self {
            Self::Echo(bytes) => request.resize(*bytes, FILL),
            Self::Synthetic(times) => request.extend_from_slice(&times.sample_whole(rng).to_be_bytes()),
        }
    }

    /// Whether a reply has the length of this application's.
    pub(super) fn is_reply(&self, reply: &[u8]) -> bool {
        match self {
            Self::Echo(bytes) => reply.len() == *bytes,
            Self::Synthetic(_) => reply.len() == size_of::<u64>(),
        }
    }
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo(bytes) => write!(f, "echo:{bytes}"),
            Self::Synthetic(times) => write!(f, "synthetic:{times}"),
        }
    }
}

/// The longest message that an endpoint takes by default.
const REQUEST_BYTES_MAX: u64 = 8 << 20;

/// What echo requests are full of.
const FILL: u8 = 0x5a;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        match (App::parse(text), expected) {
            (Ok(app), Ok(printed)) => assert_eq!(app.to_string(), printed),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (parsed, _) => panic!("{text}: {parsed:?}"),
        }
    }

    #[test]
    fn apps_are_written_so() {
        check("echo:64", Ok("echo:64"));
        check("echo:1KiB", Ok("echo:1024"));
        check("echo:9MiB", Err("at most"));
        check("echo", Err("echo:BYTES"));
        check("synthetic:exp:50us", Ok("synthetic:exp:50us"));
        check("synthetic:exp:50", Err("no unit"));
        check("redis", Err("echo:BYTES"));
    }
}
