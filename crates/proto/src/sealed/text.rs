//! The text form of keys, which files of them hold:
//!
//! ```text
//! tailcut-keys 1
//! role server                     or: router, or: client 17
//! group search
//! cipher aes-128-gcm              or: chacha20-poly1305
//! reset HEX                       the reset secret, a client's reset key; may be left out
//! key 1 1764086400000 HEX         epoch, Unix time in ms from which it is used, secret
//! key 2 1764090000000 HEX         (of a client: the secret and, after a blank, the hop key)
//! ```
//!
//! Lines that begin with `#` and blank ones mean nothing.

use std::fmt::{self, Write};
use std::str::FromStr;

use zeroize::Zeroizing;

use super::CLIENT_MAX;
use super::keys::{EpochKey, HopKey, Keys, Role, Secret};
use super::primitives::Cipher;

/// A text that is not a file of keys. It never quotes what may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the keys: {problem}")]
pub struct KeysError {
    /// Counted from 1.
    line: usize,
    /// Problem on that line.
    problem: &'static str,
}

/// Contents of a file of keys that have been read so far.
#[derive(Default)]
struct Reading {
    /// The first line has been read.
    has_title: bool,
    /// The last that was named.
    role: Option<Role>,
    /// The last group that was named.
    group: Option<String>,
    /// The last cipher that was named.
    cipher: Option<Cipher>,
    /// The last reset key that was named.
    reset: Option<HopKey>,
    /// In the order in which they stand there.
    epochs: Vec<EpochKey>,
}

impl FromStr for Keys {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<Self, KeysError> {
        let mut reading = Reading::default();
        let mut last = 0;
        for (line, words) in (1..).zip(text.lines()) {
            last = line;
            let words: Vec<&str> = words.split_whitespace().collect();
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            reading.read(&words).map_err(|problem| KeysError { line, problem })?;
        }
        reading.end().map_err(|problem| KeysError { line: last, problem })
    }
}

impl Reading {
    fn read(&mut self, words: &[&str]) -> Result<(), &'static str> {
        if !self.has_title {
            self.has_title = words == ["tailcut-keys", "1"];
            return self.has_title.then_some(()).ok_or("it should be `tailcut-keys 1`");
        }
        match *words {
            ["role", ref role @ ..] => self.role = Some(role_of(role)?),
            ["group", group] if group.len() <= GROUP_LEN_MAX => self.group = Some(group.to_owned()),
            ["cipher", cipher] => {
                let known = Cipher::ALL.into_iter().find(|known| known.to_string() == cipher);
                self.cipher = Some(known.ok_or("the cipher is aes-128-gcm or chacha20-poly1305")?);
            }
            ["reset", reset] => {
                let reset = unhex(reset).ok_or("a reset secret is 32 hexadecimal digits")?;
                self.reset = Some(HopKey::new(reset));
            }
            ["key", epoch, from, secret] => self.add((epoch, from), secret, None)?,
            ["key", epoch, from, secret, hop] => self.add((epoch, from), secret, Some(hop))?,
            _ => return Err("it is none of role, group, cipher, reset and key, or not all of one"),
        }
        Ok(())
    }

    fn add(
        &mut self,
        (epoch, from): (&str, &str),
        secret: &str,
        hop: Option<&str>,
    ) -> Result<(), &'static str> {
        let epoch = epoch.parse().map_err(|_| "an epoch is a number up to 255")?;
        let from_ms = from.parse().ok().filter(|&from_ms| from_ms <= FROM_MS_MAX);
        let from_ms = from_ms.ok_or("a key begins at a Unix time in milliseconds")?;
        let secret = Secret::new(unhex(secret).ok_or("a secret is 64 hexadecimal digits")?);
        let hop = match (hop, self.role) {
            (Some(hop), Some(Role::Client(_))) => {
                HopKey::new(unhex(hop).ok_or("a hop key is 32 hexadecimal digits")?)
            }
            (None, Some(Role::Server | Role::Router)) => HopKey::default(),
            (_, None) => return Err("a key comes after the role"),
            _ => return Err("a client's keys have a hop key, and no others"),
        };
        self.epochs.push(EpochKey { epoch, from_ms, secret, hop });
        Ok(())
    }

    fn end(mut self) -> Result<Keys, &'static str> {
        let role = self.role.ok_or("the role is missing")?;
        let group = self.group.ok_or("the group is missing")?;
        self.epochs.sort_by_key(|key| key.from_ms);
        if self.epochs.is_empty() {
            return Err("there is no key");
        }
        if self.epochs.len() > EPOCHS_MAX {
            return Err("there are more than 64 keys");
        }
        for (at, key) in self.epochs.iter().enumerate() {
            let is_again =
                |other: &EpochKey| other.epoch == key.epoch || other.from_ms == key.from_ms;
            if self.epochs[..at].iter().any(is_again) {
                return Err("two keys have one epoch or begin at one time");
            }
        }
        let cipher = self.cipher.unwrap_or_default();
        Ok(Keys { role, group, cipher, reset: self.reset, epochs: self.epochs })
    }
}

impl Keys {
    /// The text that is read as these keys. It holds the secrets.
    pub fn to_text(&self) -> Zeroizing<String> {
        let len = HEAD_LEN_MAX + self.group.len() + LINE_LEN_MAX * self.epochs.len();
        // A text that grew would leave copies of itself.
        let mut text = Zeroizing::new(String::with_capacity(len));
        text.push_str("tailcut-keys 1\n");
        let Self { role, group, cipher, .. } = self;
        let _ = writeln!(text, "role {role}\ngroup {group}\ncipher {cipher}");
        if let Some(reset) = &self.reset {
            let _ = writeln!(text, "reset {}", Hex(reset.bytes()));
        }
        for EpochKey { epoch, from_ms, secret, hop } in &self.epochs {
            let _ = write!(text, "key {epoch} {from_ms} {}", Hex(secret.bytes()));
            if let Role::Client(_) = self.role {
                let _ = write!(text, " {}", Hex(hop.bytes()));
            }
            text.push('\n');
        }
        debug_assert!(text.len() <= len, "{} of {len}", text.len());
        text
    }
}

impl Cipher {
    const ALL: [Self; 2] = [Self::Aes128Gcm, Self::ChaCha20Poly1305];
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("server"),
            Self::Router => f.write_str("router"),
            Self::Client(client) => write!(f, "client {client}"),
        }
    }
}

impl FromStr for Role {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        role_of(&text.split_whitespace().collect::<Vec<_>>())
    }
}

fn role_of(words: &[&str]) -> Result<Role, &'static str> {
    match words {
        ["server"] => Ok(Role::Server),
        ["router"] => Ok(Role::Router),
        ["client", number] => {
            let number = number.parse().ok().filter(|&number| number <= CLIENT_MAX);
            number.map(Role::Client).ok_or("a client's number is at most 16777215")
        }
        _ => Err("the role is server, router or client NUMBER"),
    }
}

/// Bytes, to be written as digits: nothing of them stays anywhere else.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn unhex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    if digits.len() != 2 * N || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Bytes of all lines but those of keys, without the name of the group.
const HEAD_LEN_MAX: usize = 160;

/// Bytes of the line of a key.
const LINE_LEN_MAX: usize = 144;

/// The end of the year 9999, which no date is after.
const FROM_MS_MAX: u64 = 253_402_300_799_999;

/// Longest name of a group, so that every label fits HKDF.
const GROUP_LEN_MAX: usize = 64;

/// Most keys of a file: two days of them, hourly.
const EPOCHS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[&str]) -> String {
        let key = format!("key 1 1000 {}", "0a".repeat(32));
        let mut all = vec!["tailcut-keys 1", "# a comment", "", "role server", "group g", &key];
        all.extend(lines);
        all.join("\n")
    }

    fn check(text: &str, error: &str) {
        assert_eq!(text.parse::<Keys>().unwrap_err().to_string(), error);
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        let server: Keys =
            text(&["cipher chacha20-poly1305", &format!("key 2 9 {}", "0b".repeat(32))])
                .parse()
                .unwrap();
        assert_eq!(server.epochs[0].epoch, 2, "in the order of their times");
        for role in [Role::Server, Role::Router, Role::Client(CLIENT_MAX)] {
            let keys = server.for_role(role).unwrap();
            assert_eq!(keys.to_text().parse::<Keys>().unwrap(), keys);
        }
    }

    #[test]
    fn what_is_wrong_is_told_without_a_secret() {
        check("", "line 0 of the keys: the role is missing");
        check("role server", "line 1 of the keys: it should be `tailcut-keys 1`");
        check(
            &text(&["role king"]),
            "line 7 of the keys: the role is server, router or client NUMBER",
        );
        check(&text(&["key 2 5 00"]), "line 7 of the keys: a secret is 64 hexadecimal digits");
        let again = format!("key 1 5 {}", "0c".repeat(32));
        check(&text(&[&again]), "line 7 of the keys: two keys have one epoch or begin at one time");
        check(
            &text(&["role client 16777216"]),
            "line 7 of the keys: a client's number is at most 16777215",
        );
        check(
            &text(&["cipher rot13"]),
            "line 7 of the keys: the cipher is aes-128-gcm or chacha20-poly1305",
        );
        let all = "it is none of role, group, cipher, reset and key, or not all of one";
        check(&text(&["key 2"]), &format!("line 7 of the keys: {all}"));
    }

    #[test]
    fn a_key_is_of_a_role_that_was_named_before_it() {
        let key = format!("key 1 1000 {}", "0a".repeat(32));
        let lines = ["tailcut-keys 1", "group g", &key, "role server"].join("\n");
        check(&lines, "line 3 of the keys: a key comes after the role");
        let hop = "0b".repeat(16);
        let problem = "a client's keys have a hop key, and no others";
        check(&text(&[&format!("{key} {hop}")]), &format!("line 7 of the keys: {problem}"));
        check(&text(&["role client 1", &key]), &format!("line 8 of the keys: {problem}"));
    }

    #[test]
    fn names_of_groups_and_numbers_of_keys_are_bounded() {
        let group = |len: usize| text(&[&format!("group {}", "g".repeat(len))]);
        assert_eq!(group(64).parse::<Keys>().unwrap().group.len(), 64);
        let all = "it is none of role, group, cipher, reset and key, or not all of one";
        check(&group(65), &format!("line 7 of the keys: {all}"));
        let keys = |count: usize| {
            let line = |epoch| format!("key {epoch} {} {}", 2_000 + epoch, "0c".repeat(32));
            let lines: Vec<String> = (2..=count).map(line).collect();
            text(&lines.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(keys(64).parse::<Keys>().unwrap().epochs.len(), 64);
        for count in [65, 200] {
            let last = 6 + count - 1;
            check(&keys(count), &format!("line {last} of the keys: there are more than 64 keys"));
        }
    }

    #[test]
    fn other_roles_derive_nothing_for_others() {
        let server: Keys = text(&[]).parse().unwrap();
        let router = server.for_role(Role::Router).unwrap();
        assert_eq!(router.for_role(Role::Client(1)), None);
        assert_ne!(router.epochs[0].secret, server.epochs[0].secret);
        assert!(!format!("{server:?}").contains("10, 10"), "a secret is not printed");
    }
}
