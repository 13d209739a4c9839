//! Identity of a program in TLS and of those whom it lets in, by certificates: the same as they
//! show to a key agent.
//!
//! ```text
//! tailcut-certificates 1
//! ca /etc/tailcut/ca.pem             who has signed the other side's certificate
//! cert /etc/tailcut/load.pem         what is shown to it
//! key /etc/tailcut/load.key
//! crl /etc/tailcut/crl.pem           those of that authority that are revoked; may be left out
//! admit spiffe://example.org/bench   who may connect: one or more, of who is connected to
//! name load-1.example.org            the name of who is connected to; the host's if left out
//! ```
//!
//! Files are read each time that an end of TLS is asked for, so that who renews certificates
//! restarts nothing.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::file::invalid;
use super::identities;
use super::tls::{self, Pem};

/// Certificates and identities that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// Files of the certificates.
    pem: Pem<PathBuf>,
    /// Identities of who may connect.
    admitted: Vec<String>,
    /// The name of who is connected to, where it is another than the host.
    name: Option<String>,
}

impl Certificates {
    /// True if a text has the title of one of these.
    pub fn is_title_of(text: &str) -> bool {
        lines(text).next().is_some_and(|(_, line)| line.starts_with(TITLE))
    }

    /// Reads a text.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and in which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = lines(text);
        if lines.next().is_none_or(|(_, line)| line != format!("{TITLE} 1")) {
            return Err(format!("the first line should be `{TITLE} 1`"));
        }
        let mut found: [Option<&str>; WORDS.len()] = [None; WORDS.len()];
        let mut admitted = Vec::new();
        for (number, line) in lines {
            let (word, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let value = value.trim();
            let place = WORDS.iter().position(|known| *known == word);
            match (word, place) {
                (_, Some(place)) if !value.is_empty() => {
                    if found[place].replace(value).is_some() {
                        return Err(format!("line {number}: {word} is there twice"));
                    }
                }
                ("admit", _) if identities::is_identity(value) => admitted.push(value.to_owned()),
                ("admit", _) => {
                    return Err(format!(
                        "line {number}: who is admitted is spiffe://DOMAIN/PATH, or dns:name in small letters"
                    ));
                }
                _ => {
                    let words = WORDS.join(", ");
                    return Err(format!("line {number} is none of {words}, admit with a value"));
                }
            }
        }
        let [ca, cert, key, crl, name] = found;
        let path = |found: Option<&str>, word: &str| {
            found.map(PathBuf::from).ok_or_else(|| format!("{word} is missing"))
        };
        let (ca, cert, key) = (path(ca, "ca")?, path(cert, "cert")?, path(key, "key")?);
        let pem = Pem { ca, cert, key, crl: crl.map(PathBuf::from) };
        Ok(Self { pem, admitted, name: name.map(str::to_owned) })
    }

    /// The end of TLS that connects to a host, with the name that the other side must show.
    ///
    /// # Errors
    ///
    /// That a file cannot be read or holds something else, or that the host is no name.
    pub fn client(
        &self,
        host: &str,
        alpn: &[u8],
    ) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
        let name = self.name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name.clone())
            .map_err(|_| invalid(format!("{name} cannot be a name in a certificate")))?;
        Ok((tls::client_by_certificate(&self.pem, alpn)?, name))
    }

    /// The end of TLS that is connected to, and takes those who are admitted.
    ///
    /// # Errors
    ///
    /// That nobody is admitted; that a file cannot be read or holds something else.
    pub fn server(&self, alpn: &[u8]) -> io::Result<Arc<ServerConfig>> {
        if self.admitted.is_empty() {
            return Err(invalid("nobody is admitted: add a line `admit IDENTITY`".to_owned()));
        }
        tls::server_for(&self.pem, self.admitted.clone(), alpn)
    }
}

/// Lines with something in them, from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

const TITLE: &str = "tailcut-certificates";

/// Words that are there once.
const WORDS: [&str; 5] = ["ca", "cert", "key", "crl", "name"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_who_is_who() {
        let text = "# who is who\ntailcut-certificates 1\nca a b\ncert c\nkey k\nadmit dns:x\n\
                    admit spiffe://d/p\nname n\n";
        assert!(Certificates::is_title_of(text));
        assert!(!Certificates::is_title_of(&"0".repeat(64)));
        let pem = Pem { ca: "a b".into(), cert: "c".into(), key: "k".into(), crl: None };
        let admitted = vec!["dns:x".to_owned(), "spiffe://d/p".to_owned()];
        let expected = Certificates { pem, admitted, name: Some("n".to_owned()) };
        assert_eq!(Certificates::parse(text), Ok(expected));
    }

    #[test]
    fn a_text_that_is_wrong_is_told() {
        let check = |lines: &[&str], expected: &str| {
            let text = [&["tailcut-certificates 1"], lines].concat().join("\n");
            let error = Certificates::parse(&text).expect_err("something is wrong");
            assert!(error.contains(expected), "{error}");
        };
        check(&["ca a", "cert c"], "key is missing");
        check(&["ca a", "ca b"], "line 3: ca is there twice");
        check(&["psk a"], "line 2 is none of ca, cert, key, crl, name, admit with a value");
        check(&["ca"], "line 2 is none of");
        check(&["admit example.org"], "line 2: who is admitted is");
        let error = Certificates::parse("tailcut-certificates 2\n").expect_err("another version");
        assert!(error.contains("tailcut-certificates 1"), "{error}");
    }

    #[test]
    fn who_admits_nobody_cannot_be_connected_to() {
        let text = "tailcut-certificates 1\nca a\ncert c\nkey k\n";
        let error = Certificates::parse(text).expect("it is sound").server(b"x");
        assert!(error.expect_err("nobody").to_string().contains("nobody is admitted"));
    }
}
