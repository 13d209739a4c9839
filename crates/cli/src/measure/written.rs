//! Values that are kept as people wrote them: the same text on the command line, in an experiment
//! file, and in a result.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use serde::de;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Kind of value that is read from its text.
pub(crate) trait Read: Sized {
    /// The value that the text stands for.
    type Value: Clone + fmt::Debug;

    /// Reads it; the error says what to write.
    fn read(text: &str) -> Result<Self::Value, String>;
}

/// A value of kind `K` with its text.
pub(crate) struct Written<K: Read> {
    text: String,
    value: K::Value,
}

impl<K: Read> Written<K> {
    /// The text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl<K: Read> Clone for Written<K> {
    fn clone(&self) -> Self {
        Self { text: self.text.clone(), value: self.value.clone() }
    }
}

impl<K: Read> fmt::Debug for Written<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl<K: Read> Deref for Written<K> {
    type Target = K::Value;

    fn deref(&self) -> &K::Value {
        &self.value
    }
}

impl<K: Read> FromStr for Written<K> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self { value: K::read(text)?, text: text.to_owned() })
    }
}

impl<K: Read> fmt::Display for Written<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<K: Read> Serialize for Written<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, K: Read> Deserialize<'de> for Written<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Word::deserialize(deserializer)? {
            Word::Text(text) => text,
            Word::Whole(number) => number.to_string(),
            Word::Number(number) => number.to_string(),
        };
        text.parse().map_err(de::Error::custom)
    }
}

/// Text, or a number without a unit, which may stand in a file as such.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a number")]
enum Word {
    Text(String),
    Whole(i64),
    Number(f64),
}
