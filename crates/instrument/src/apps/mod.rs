//! Applications that `measure` cannot hold: what logs in to them draws random words of its own.
//!
//! | module | what it is |
//! |---|---|
//! | `postgres` | PostgreSQL, by its extended protocol |
//!
//! Invariant: [`CODECS`] are all applications that can be measured, and this crate and the command
//! read no other list.

mod postgres;

use tailcut_measure::app::{App, AppError, CODECS as SANS_IO, Entry};

use super::distribution_file;

/// All applications.
pub const CODECS: &[&[Entry]] = &{
    let mut all = [postgres::ENTRIES; SANS_IO.len() + 1];
    let mut place = 0;
    while place < SANS_IO.len() {
        all[place] = SANS_IO[place];
        place += 1;
    }
    all
};

/// Reads an application; distributions may name files.
///
/// # Errors
///
/// What is wrong with the text or with a file.
pub fn parse(text: &str) -> Result<App, AppError> {
    App::parse_among(CODECS, text, &mut distribution_file::read)
}
