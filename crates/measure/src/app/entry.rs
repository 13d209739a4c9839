//! The registration of an application: its name, its parser, and the server's side of it.

use std::sync::Arc;

use super::codec::{Carrier, Codec, Loader};
use super::error::AppError;
use super::requests_file::ReadFile;
use super::serving::TaskForm;

/// The registration of an application under a name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name in front of the colon.
    pub name: &'static str,
    /// Its text form, for people.
    pub form: &'static str,
    /// Reads what stands behind the colon; `load` gives the samples of files.
    pub parse: Parse,
    /// Description of the application, in a sentence for people.
    pub about: &'static str,
    /// Options behind the colon, in tables that several may share.
    pub options: &'static [&'static [AppOption]],
    /// Carrier where nobody says: a stream for what others speak over TCP.
    pub carrier: Carrier,
    /// Function that puts into the text behind the colon what the files hold that it names; `None`
    /// where it names none.
    pub with_files: Option<WithFiles>,
    /// The server's side, where `tailcut serve` has it.
    pub serves: Serves,
}

/// An option of an application's text form. Whoever adds one to a parser adds it here: a parser
/// that takes another one panics in debug builds, and help, manual and docs are made from this, or
/// held to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppOption {
    /// Its name, in front of `=` where it has a value.
    pub name: &'static str,
    /// Written form: `keys=N`.
    pub form: &'static str,
    /// Effect of the option and its default, in a sentence for people.
    pub about: &'static str,
    /// A whole application that has it.
    pub example: &'static str,
}

/// A reader of an application's text form.
pub type Parse = fn(text: &str, load: &mut Loader<'_>) -> Result<Arc<dyn Codec>, AppError>;

/// Replaces the files that a text form names by what they hold.
pub type WithFiles = fn(text: &str, read: &mut ReadFile<'_>) -> Result<String, AppError>;

/// The server's side of an application.
#[derive(Clone, Copy, Debug)]
pub enum Serves {
    /// None: it measures other programs.
    Nothing,
    /// Bytes go back as they come.
    Echo,
    /// Requests are tasks of this form.
    Tasks(&'static dyn TaskForm),
}
