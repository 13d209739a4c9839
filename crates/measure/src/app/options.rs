//! The options behind an application's name: `word,name=value,name="quoted, value"`.
//!
//! A value runs to the next comma, so that distributions and paths need no quotes. One that begins
//! with a double quote runs to the closing one; within it `\"`, `\\`, `\r`, `\n` and `\t` stand for
//! what they stand for everywhere.
//!
//! Invariant: what [`quoted`] writes is read back unchanged, and no option is ignored: each is
//! taken once, or refused.

use std::iter::Peekable;
use std::str::Chars;

use super::entry::AppOption;
use super::error::AppError;

/// The options of an application that are still to be taken.
#[derive(Debug)]
pub struct Options {
    app: &'static str,
    /// Names, with their values; a word has none.
    items: Vec<(String, Option<String>)>,
    /// Names that were asked for, there or not.
    asked: Vec<&'static str>,
}

impl Options {
    /// Reads the options of `app`; an empty text has none.
    ///
    /// # Errors
    ///
    /// Quotes that are broken.
    pub fn parse(app: &'static str, text: &str) -> Result<Self, AppError> {
        let mut items = Vec::new();
        let mut chars = text.chars().peekable();
        while chars.peek().is_some() {
            items.push(item(app, &mut chars)?);
        }
        Ok(Self { app, items, asked: Vec::new() })
    }

    /// The value of an option that may be given once.
    ///
    /// # Errors
    ///
    /// One that is given twice, or without a value.
    pub fn take(&mut self, name: &'static str) -> Result<Option<String>, AppError> {
        let mut values = self.take_all(name)?;
        if values.len() > 1 {
            return Err(AppError::Repeated { app: self.app, option: name });
        }
        Ok(values.pop())
    }

    /// The values of an option that may be given often.
    ///
    /// # Errors
    ///
    /// One without a value.
    pub fn take_all(&mut self, name: &'static str) -> Result<Vec<String>, AppError> {
        self.asked.push(name);
        let taken = self.items.extract_if(.., |(given, _)| given == name);
        taken
            .map(|(_, value)| value.ok_or(AppError::ValueMissing { app: self.app, option: name }))
            .collect()
    }

    /// Takes a word; true if it is given.
    pub fn take_word(&mut self, name: &'static str) -> bool {
        self.asked.push(name);
        let before = self.items.len();
        self.items.retain(|(given, value)| given != name || value.is_some());
        before != self.items.len()
    }

    /// True if an option is given and not taken.
    pub(super) fn has(&self, name: &str) -> bool {
        self.items.iter().any(|(given, _)| given == name)
    }

    /// Refuses what nobody took; `known` has all that there is.
    ///
    /// # Errors
    ///
    /// An option that nobody took.
    ///
    /// # Panics
    ///
    /// In debug builds, where one was asked for that `known` does not have.
    pub fn finish(self, known: &[&[AppOption]]) -> Result<(), AppError> {
        let known = || known.iter().copied().flatten();
        debug_assert!(
            self.asked.iter().all(|name| known().any(|option| option.name == *name)),
            "{:?} are not all in the table of {}",
            self.asked,
            self.app
        );
        let Some((option, _)) = self.items.into_iter().next() else { return Ok(()) };
        let known: Vec<&str> = known().map(|option| option.form).collect();
        Err(AppError::OptionUnknown { app: self.app, option, known: known.join(", ") })
    }

    /// All that is left, as it is written.
    pub(super) fn written(self) -> Vec<String> {
        let item = |(name, value): (String, Option<String>)| match value {
            Some(value) => format!("{name}={}", quoted(&value)),
            None => name,
        };
        self.items.into_iter().map(item).collect()
    }

    /// Replaces the value of an option that is given.
    pub(super) fn replace(&mut self, name: &str, with: (&str, String)) {
        for item in self.items.iter_mut().filter(|(given, _)| given == name) {
            *item = (with.0.to_owned(), Some(with.1.clone()));
        }
    }

    /// The value of an option, which stays.
    pub(super) fn look(&self, name: &str) -> Option<&str> {
        let mut values = self.items.iter().filter(|(given, _)| given == name);
        values.next().and_then(|(_, value)| value.as_deref())
    }
}

/// A value as it is written: in quotes, if it needs them.
pub fn quoted(value: &str) -> String {
    if !value.contains([',', '"', '\\', '\r', '\n', '\t']) {
        return value.to_owned();
    }
    let mut text = String::from('"');
    for c in value.chars() {
        match ESCAPES.iter().find(|(_, meant)| *meant == c) {
            Some((written, _)) => text.extend(['\\', *written]),
            None => text.push(c),
        }
    }
    text.push('"');
    text
}

fn item(
    app: &'static str,
    chars: &mut Peekable<Chars<'_>>,
) -> Result<(String, Option<String>), AppError> {
    let mut name = String::new();
    loop {
        match chars.next() {
            None | Some(',') => return Ok((name, None)),
            Some('=') => break,
            Some(c) => name.push(c),
        }
    }
    if chars.next_if_eq(&'"').is_some() {
        let value = unquote(app, chars)?;
        return match chars.next() {
            None | Some(',') => Ok((name, Some(value))),
            Some(_) => Err(AppError::Quotes { app }),
        };
    }
    let mut value = String::new();
    while let Some(c) = chars.next().filter(|&c| c != ',') {
        value.push(c);
    }
    Ok((name, Some(value)))
}

fn unquote(app: &'static str, chars: &mut Peekable<Chars<'_>>) -> Result<String, AppError> {
    let mut value = String::new();
    loop {
        match chars.next() {
            Some('"') => return Ok(value),
            Some('\\') => {
                let written = chars.next();
                let (_, meant) = ESCAPES
                    .iter()
                    .find(|(c, _)| Some(*c) == written)
                    .ok_or(AppError::Quotes { app })?;
                value.push(*meant);
            }
            Some(c) => value.push(c),
            None => return Err(AppError::Quotes { app }),
        }
    }
}

/// Characters behind a backslash, and what they mean.
const ESCAPES: [(char, char); 5] =
    [('"', '"'), ('\\', '\\'), ('r', '\r'), ('n', '\n'), ('t', '\t')];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn option(name: &'static str, form: &'static str) -> AppOption {
        AppOption { name, form, about: "", example: "" }
    }
    const B: AppOption = option("b", "b=N");
    const TABLE: &[&[AppOption]] = &[&[option("a", "a=N"), option("word", "word")], &[B]];

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "not all in the table of x")]
    fn an_option_that_no_table_has_is_seen() {
        let mut options = Options::parse("x", "").unwrap();
        options.take("c").unwrap();
        let _ = options.finish(TABLE);
    }

    #[test]
    fn a_quoted_value_may_hold_anything() {
        let mut options = Options::parse("x", r#"a="1,2=\"\\\r\n",word,b=c:d=e"#).unwrap();
        assert_eq!(options.take("a"), Ok(Some("1,2=\"\\\r\n".to_owned())));
        assert_eq!(options.take("b"), Ok(Some("c:d=e".to_owned())));
        assert!(options.take_word("word"));
        assert_eq!(options.finish(TABLE), Ok(()));
    }

    #[test]
    fn what_nobody_takes_is_refused() {
        let options = Options::parse("x", "a=1").unwrap();
        let error = options.finish(&[&[B]]).unwrap_err();
        assert_eq!(error.to_string(), "x has no option \"a\"; it has b=N");
    }

    #[test]
    fn an_option_given_twice_is_refused() {
        let mut options = Options::parse("x", "a=1,a=2").unwrap();
        assert_eq!(options.take("a"), Err(AppError::Repeated { app: "x", option: "a" }));
    }

    #[test]
    fn broken_quotes_are_refused() {
        for text in ["a=\"", "a=\"b\"c", "a=\"\\q\"", "a=\"\\"] {
            assert_eq!(
                Options::parse("x", text).unwrap_err(),
                AppError::Quotes { app: "x" },
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in ".*") {
            let mut options = Options::parse("x", &format!("a={},b", quoted(&value))).unwrap();
            prop_assert_eq!(options.take("a"), Ok(Some(value)));
        }
    }
}
