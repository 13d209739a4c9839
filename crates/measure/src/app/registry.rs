//! The applications that there are, by name.

use std::fmt;
use std::sync::Arc;

use super::CODECS;
use super::codec::{Carrier, Codec, DatagramFramer, Expected, Loader, Login, Preload, TlsUpgrade};
use super::entry::{Entry, Serves};
use super::error::AppError;
use super::requests_file::ReadFile;
use crate::distribution::Distribution;

/// A measured application: a codec under its name.
#[derive(Clone, Debug)]
pub struct App {
    entry: Entry,
    pub(super) codec: Arc<dyn Codec>,
}

impl App {
    /// Reads an application; a distribution `file:PATH` needs [`App::parse_with`].
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, AppError> {
        Self::parse_with(text, &mut |_, _| Err("there is no loader of files here".to_owned()))
    }

    /// Reads an application; `load` gives the samples of files. This crate does no IO itself.
    ///
    /// # Errors
    ///
    /// What is wrong with the text, or what `load` says.
    pub fn parse_with(text: &str, load: &mut Loader<'_>) -> Result<Self, AppError> {
        Self::parse_among(CODECS, text, load)
    }

    /// The text form with what the files hold that it names, so that whoever reads it needs none:
    /// `http:@FILE`, `redis:@FILE`, `body=@FILE` and `message=@FILE`. Distributions keep theirs.
    ///
    /// # Errors
    ///
    /// A file that `read` cannot give, and what is wrong with the text.
    pub fn with_files(text: &str, read: &mut ReadFile<'_>) -> Result<String, AppError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let entry = CODECS.iter().copied().flatten().find(|entry| entry.name == name);
        match entry.and_then(|entry| entry.with_files) {
            Some(with_files) => Ok(format!("{name}:{}", with_files(rest, read)?)),
            None => Ok(text.to_owned()),
        }
    }

    /// Reads one of these applications.
    ///
    /// # Errors
    ///
    /// As [`App::parse_with`].
    pub fn parse_among(
        codecs: &[&[Entry]],
        text: &str,
        load: &mut Loader<'_>,
    ) -> Result<Self, AppError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut entries = codecs.iter().copied().flatten();
        let Some(&entry) = entries.find(|entry| entry.name == name) else {
            let forms: Vec<&str> = codecs.iter().copied().flatten().map(|e| e.form).collect();
            return Err(AppError::Unknown { name: name.to_owned(), forms: forms.join(", ") });
        };
        Ok(Self { entry, codec: (entry.parse)(rest, load)? })
    }

    /// Its name, without what follows.
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The server's side of it.
    pub fn serves(&self) -> Serves {
        self.entry.serves
    }

    /// Carrier where nobody says otherwise.
    pub fn carrier(&self) -> Carrier {
        self.entry.carrier
    }

    /// The framer of one socket's replies, which may be lost, late, twice and out of order.
    ///
    /// For each datagram ask for its key, find the request that it names, and take it. One that
    /// names no outstanding request is late, or twice: count it. Here a malformed datagram says
    /// nothing about those that follow.
    ///
    /// # Errors
    ///
    /// Where it is not spoken over datagrams.
    pub fn datagrams(&self) -> Result<Box<dyn DatagramFramer>, AppError> {
        self.codec.datagrams().ok_or(AppError::Datagrams { app: self.name() })
    }

    /// Requests that fill its store; none, where it has no store, or where nobody said how to fill
    /// it.
    ///
    /// # Errors
    ///
    /// Where the carrier cannot carry the application, or no request as long as asked for.
    pub fn preload(&self, carrier: Carrier) -> Result<Option<Preload>, AppError> {
        self.check_carrier(carrier)?;
        self.codec.preload(carrier)
    }

    pub(super) fn check_carrier(&self, carrier: Carrier) -> Result<(), AppError> {
        match carrier {
            Carrier::Datagram => self.datagrams().map(drop),
            Carrier::Message if self.codec.session().is_some() => {
                Err(AppError::Messages { app: self.name() })
            }
            Carrier::Message | Carrier::Stream => Ok(()),
        }
    }

    /// Appends what a new connection sends first: [`Codec::write_greeting`].
    pub fn write_greeting(&self, login: Option<Login<'_>>, out: &mut Vec<u8>) -> Option<Expected> {
        self.codec.write_greeting(login, out)
    }

    /// Requests outstanding on a connection at most: [`Codec::pipeline_max`].
    pub fn pipeline_max(&self) -> Option<u32> {
        self.codec.pipeline_max()
    }

    /// The name by which TLS agrees on the protocol: [`Codec::alpn`].
    pub fn alpn(&self) -> Option<&'static str> {
        self.codec.alpn()
    }

    /// Question to a server in clear before TLS begins: [`Codec::tls_upgrade`].
    pub fn tls_upgrade(&self) -> Option<TlsUpgrade> {
        self.codec.tls_upgrade()
    }

    /// Advice to who is refused as `said`: [`Codec::login_advice`].
    pub fn login_advice(&self, said: &str) -> &'static str {
        self.codec.login_advice(said)
    }

    /// Advice to who is asked for credentials: [`Codec::credentials_advice`].
    pub fn credentials_advice(&self) -> &'static str {
        self.codec.credentials_advice()
    }

    /// Service times of the requests: [`Codec::service_times`].
    pub fn service_times(&self) -> Option<&Distribution> {
        self.codec.service_times()
    }
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.entry.name, self.codec)
    }
}

/// Field by field, which is what `Debug` shows of codecs.
impl PartialEq for App {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && format!("{:?}", self.codec) == format!("{:?}", other.codec)
    }
}
