//! Requests in files: a line each, with its weight in front, of which one in ten is the second
//! here.
//!
//! ```text
//! # weight  request
//! 9 /items
//! 1 POST:/items
//! ```

use super::error::AppError;

/// Gives what a file holds. This crate does no IO itself.
pub type ReadFile<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

/// A line of such a file.
#[derive(Debug)]
pub(super) struct Weighted<'a> {
    /// Weight of the request against the others; 1 where the line has none.
    pub(super) weight: Result<u32, AppError>,
    pub(super) text: &'a str,
}

/// The lines of a list, but for empty ones and remarks; `option` names it in errors.
pub(super) fn weighted_lines<'a>(
    option: &'static str,
    text: &'a str,
) -> impl Iterator<Item = Weighted<'a>> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(move |line| match line.split_once(char::is_whitespace) {
        Some((weight, request)) if weight.bytes().all(|c| c.is_ascii_digit()) => {
            let read = weight.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
            let rule = "a list of requests whose weights are from 1 to 1,000,000";
            let refused = || AppError::Value { option, rule, value: weight.to_owned() };
            Weighted { weight: read.ok_or_else(refused), text: request.trim() }
        }
        _ => Weighted { weight: Ok(1), text: line },
    })
}

/// The text of a file.
pub(super) fn read_text(path: &str, read: &mut ReadFile<'_>) -> Result<String, AppError> {
    let bytes = read(path).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|_| "it is no text in UTF-8".to_owned())
    });
    bytes.map_err(|reason| AppError::File { path: path.to_owned(), reason })
}

/// Largest weight of a request among several.
const WEIGHT_MAX: u32 = 1_000_000;
