//! Redis commands in text form: `HSET {key} f {value}`.
//!
//! Words are arguments; single quotes keep spaces within one. `{key}`, `{value}` and `{index}`
//! stand for the picked key, a value, and the key's number; `{{` and `}}` for braces.
//!
//! Invariant: a template prints as it was written, and all that does not depend on the request is
//! encoded once.

use std::fmt;

use super::super::error::AppError;
use super::super::store::{Keys, write_value};
use super::resp::{write_arguments_head, write_bulk_head};

/// A command with places to fill.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    /// Bytes of the protocol that are the same in every request.
    Encoded(Vec<u8>),
    /// An argument with places in it.
    Argument(Vec<Part>),
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Literal(Vec<u8>),
    Key,
    Value,
    Index,
}

/// Contents of a template's places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling<'a> {
    pub(super) keys: &'a Keys,
    pub(super) index: u64,
    pub(super) value_len: usize,
}

impl Template {
    /// Reads a command.
    pub(super) fn parse(text: &str) -> Result<Self, AppError> {
        let words =
            words(text).map_err(|reason| AppError::Template { text: text.to_owned(), reason })?;
        let mut head = Vec::new();
        write_arguments_head(words.len(), &mut head);
        let mut pieces = vec![Piece::Encoded(head)];
        for word in words {
            let parts = parts(&word)
                .map_err(|reason| AppError::Template { text: text.to_owned(), reason })?;
            add_argument(&mut pieces, parts);
        }
        Ok(Self { text: text.to_owned(), pieces })
    }

    /// True if the template writes values.
    pub(super) fn has_value(&self) -> bool {
        let is_value =
            |piece: &Piece| matches!(piece, Piece::Argument(parts) if parts.contains(&Part::Value));
        self.pieces.iter().any(is_value)
    }

    /// Appends the command.
    pub(super) fn write(&self, filling: Filling<'_>, out: &mut Vec<u8>) {
        let key_len = filling.keys.len(filling.index);
        let mut buffer = itoa::Buffer::new();
        let index = buffer.format(filling.index).as_bytes();
        for piece in &self.pieces {
            let parts = match piece {
                Piece::Encoded(bytes) => {
                    out.extend_from_slice(bytes);
                    continue;
                }
                Piece::Argument(parts) => parts,
            };
            let lens = parts.iter().map(|part| match part {
                Part::Literal(bytes) => bytes.len(),
                Part::Key => key_len,
                Part::Value => filling.value_len,
                Part::Index => index.len(),
            });
            write_bulk_head(lens.sum(), out);
            for part in parts {
                match part {
                    Part::Literal(bytes) => out.extend_from_slice(bytes),
                    Part::Key => filling.keys.write(filling.index, key_len, out),
                    Part::Value => write_value(filling.value_len, out),
                    Part::Index => out.extend_from_slice(index),
                }
            }
            out.extend_from_slice(b"\r\n");
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Appends an argument; one without places joins the encoded bytes before it.
fn add_argument(pieces: &mut Vec<Piece>, parts: Vec<Part>) {
    let literal = match parts.as_slice() {
        [] => &[][..],
        [Part::Literal(bytes)] => bytes,
        _ => return pieces.push(Piece::Argument(parts)),
    };
    if !matches!(pieces.last(), Some(Piece::Encoded(_))) {
        pieces.push(Piece::Encoded(Vec::new()));
    }
    if let Some(Piece::Encoded(bytes)) = pieces.last_mut() {
        write_bulk_head(literal.len(), bytes);
        bytes.extend_from_slice(literal);
        bytes.extend_from_slice(b"\r\n");
    }
}

fn words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_whitespace() {
            continue;
        }
        let mut word = String::new();
        if c == '\'' {
            loop {
                match chars.next().ok_or("a quote is not closed")? {
                    '\'' => break,
                    c => word.push(c),
                }
            }
            if chars.peek().is_some_and(|c| !c.is_whitespace()) {
                return Err("a closing quote ends its argument");
            }
        } else {
            word.push(c);
            while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
                word.push(c);
            }
        }
        words.push(word);
    }
    match words.len() {
        0 => Err("there is no command"),
        1..=ARGUMENTS_MAX => Ok(words),
        _ => Err("there are more than 1,000 arguments"),
    }
}

fn parts(word: &str) -> Result<Vec<Part>, &'static str> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = word;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '{' | '}' if rest.starts_with(c) => {
                rest = &rest[1..];
                literal.push(c);
            }
            '{' => {
                let (name, after) =
                    rest.split_once('}').ok_or("a brace is not closed; {{ is a brace")?;
                let part = match name {
                    "key" => Part::Key,
                    "value" => Part::Value,
                    "index" => Part::Index,
                    _ => return Err("the places are {key}, {value} and {index}; {{ is a brace"),
                };
                flush(&mut literal, &mut parts);
                parts.push(part);
                rest = after;
            }
            '}' => return Err("a brace is not opened; }} is a brace"),
            c => literal.push(c),
        }
    }
    flush(&mut literal, &mut parts);
    Ok(parts)
}

fn flush(literal: &mut String, parts: &mut Vec<Part>) {
    if !literal.is_empty() {
        parts.push(Part::Literal(std::mem::take(literal).into_bytes()));
    }
}

const ARGUMENTS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::store::Store;

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        check("PING", "*1\r\n$4\r\nPING\r\n");
        check("GET {key}", "*2\r\n$3\r\nGET\r\n$4\r\n7...\r\n");
        check(
            "SET {key} {value} EX 10",
            "*5\r\n$3\r\nSET\r\n$4\r\n7...\r\n$3\r\nZZZ\r\n$2\r\nEX\r\n$2\r\n10\r\n",
        );
        check("GET user:{index}:{key}", "*2\r\n$3\r\nGET\r\n$11\r\nuser:7:7...\r\n");
    }

    #[test]
    fn quotes_keep_spaces_and_braces_are_doubled() {
        check(
            "EVAL 'return 1' 0 ''",
            "*4\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n0\r\n$0\r\n\r\n",
        );
        check("SET k {{}}", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n{}\r\n");
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for text in [
            "",
            "  ",
            "GET {kex}",
            "GET {key",
            "GET key}",
            "EVAL 'x",
            "EVAL 'x'y",
            &"x ".repeat(1_001),
        ] {
            assert!(matches!(Template::parse(text), Err(AppError::Template { .. })), "{text}");
        }
    }

    fn check(text: &str, expected: &str) {
        let store = Store {
            keys: 10,
            key: crate::distribution::Distribution::parse("fixed:4", crate::quantity::Unit::Size)
                .unwrap(),
            ..Store::default()
        };
        let keys = Keys::new(&store, 250).unwrap();
        let mut bytes = Vec::new();
        let template = Template::parse(text).unwrap();
        template.write(Filling { keys: &keys, index: 7, value_len: 3 }, &mut bytes);
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        assert_eq!(template.to_string(), text);
    }
}
