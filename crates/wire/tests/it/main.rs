//! Headers and their parsers against golden bytes, captures, pages of docs and arbitrary bytes.

mod golden;
mod homa;
mod homa_fields;
mod layout;
mod netclone;
mod pcaps;
mod properties;
mod stream;
