//! Identities and the keys of a group that each may have: the list of a key agent.
//!
//! ```text
//! tailcut-key-clients 1
//! spiffe://example.org/search/server     server
//! spiffe://example.org/search/router     router
//! dns:web-1.example.org                  client 18
//! psk:/etc/tailcut/batch.psk             client 19
//! ```
//!
//! | a certificate has | its identity |
//! |---|---|
//! | a SPIFFE URI among its names, and no other URI | that URI, and nothing else |
//! | a SPIFFE URI and another URI | none: SPIFFE allows one |
//! | no SPIFFE URI | its DNS names, of which one is listed, or several for one role |
//! | neither | none: what is in its subject counts for nothing |

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use tailcut_proto::sealed::Role;

use super::file::{invalid, read_text};
use super::pinned::{self, Identity};

/// The list.
#[derive(Debug, Default)]
pub(super) struct Identities {
    /// By X.509 identity: a SPIFFE URI, or `dns:` and a name.
    named: BTreeMap<String, Role>,
    /// By pre-shared key.
    pub(super) pinned: Vec<Pinned>,
}

/// Holder of a pre-shared key.
#[derive(Debug)]
pub(super) struct Pinned {
    /// As listed.
    pub(super) listed: String,
    /// Its keys.
    pub(super) role: Role,
    /// Identity that it shows, and that is shown to it.
    pub(super) identity: Identity,
    /// Name that it asks for.
    pub(super) name: String,
}

impl Pinned {
    /// The file of the key.
    pub(super) fn file(&self) -> &Path {
        Path::new(self.listed.strip_prefix(SECRET).unwrap_or(&self.listed))
    }
}

impl Identities {
    /// Reads the list, and the pre-shared keys that it names.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let text = read_text(path)?;
        let mut list = Self::default();
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let wrong = |number: usize, problem: String| {
            invalid(format!("line {number} of {}: {problem}", path.display()))
        };
        match lines.next() {
            Some((_, "tailcut-key-clients 1")) => {}
            first => {
                let number = first.map_or(1, |(number, _)| number);
                return Err(wrong(number, "it should be `tailcut-key-clients 1`".to_owned()));
            }
        }
        for (number, line) in lines {
            list.add(line).map_err(|problem| wrong(number, problem))?;
        }
        Ok(list)
    }

    /// Adds what a line says.
    pub(super) fn add(&mut self, line: &str) -> Result<(), String> {
        let (identity, role) = line.split_once(char::is_whitespace).ok_or(FORM)?;
        let role: Role = role.trim().parse().map_err(str::to_owned)?;
        let mut pinned = self.pinned.iter().map(|known| &known.listed);
        if self.named.contains_key(identity) || pinned.any(|known| known == identity) {
            return Err(format!("{identity} is listed twice"));
        }
        if let Some(file) = identity.strip_prefix(SECRET) {
            let (shown, name) =
                pinned::pre_shared(&PathBuf::from(file)).map_err(|error| error.to_string())?;
            if self.pinned.iter().any(|known| known.name == name) {
                return Err(format!("{identity} is a key that is listed already"));
            }
            let listed = identity.to_owned();
            self.pinned.push(Pinned { listed, role, identity: shown, name });
            return Ok(());
        }
        if !is_identity(identity) {
            return Err(FORM.to_owned());
        }
        self.named.insert(identity.to_owned(), role);
        Ok(())
    }

    /// Those who are listed by certificate.
    pub(super) fn named_count(&self) -> usize {
        self.named.len()
    }

    /// The identity and the role of who has shown a certificate, which has been verified; or why it
    /// has none.
    pub(super) fn of(&self, certificate: &CertificateDer<'_>) -> Result<(String, Role), String> {
        let pinned = self.pinned.iter().find(|known| known.identity.0 == *certificate);
        if let Some(known) = pinned {
            return Ok((known.listed.clone(), known.role));
        }
        let names = names_of(certificate)?;
        let mut found = names.iter().filter_map(|name| self.named.get_key_value(name));
        let Some((first, role)) = found.next() else {
            return Err(format!("{} is not listed", names.join(", ")));
        };
        match found.all(|(_, other)| other == role) {
            true => Ok((first.clone(), *role)),
            false => Err(format!("{} are listed for several roles", names.join(", "))),
        }
    }
}

/// The identity of who has shown a certificate: a SPIFFE URI, or each of its DNS names; or why it
/// has none.
pub(super) fn names_of(certificate: &CertificateDer<'_>) -> Result<Vec<String>, String> {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    let parsed = parsed.map_err(|error| format!("the certificate is unreadable: {error}"))?;
    let uris: Vec<&str> = parsed.valid_uri_names().collect();
    if let Some(&id) = uris.iter().find(|uri| uri.starts_with("spiffe://")) {
        if uris.len() > 1 {
            return Err(format!("{id} is not the only URI in the certificate"));
        }
        return Ok(vec![id.to_owned()]);
    }
    let names: Vec<String> =
        parsed.valid_dns_names().map(|name| format!("dns:{}", name.to_ascii_lowercase())).collect();
    if names.is_empty() {
        return Err("the certificate has neither a SPIFFE URI nor a DNS name".to_owned());
    }
    Ok(names)
}

/// True if a text names a holder of a certificate.
pub(super) fn is_identity(text: &str) -> bool {
    is_spiffe_id(text) || text.strip_prefix("dns:").is_some_and(is_host_name)
}

/// SPIFFE's form: a trust domain and a path, of the characters that it allows, and nothing behind
/// them.
fn is_spiffe_id(text: &str) -> bool {
    let Some((domain, path)) = text.strip_prefix("spiffe://").and_then(|id| id.split_once('/'))
    else {
        return false;
    };
    let is_domain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    let is_segment = |segment: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        !matches!(segment, "" | "." | "..") && segment.bytes().all(is_allowed)
    };
    text.len() <= 2_048
        && !domain.is_empty()
        && domain.bytes().all(is_domain)
        && path.split('/').all(is_segment)
}

/// In small letters, as certificates' names are compared; no wildcard.
fn is_host_name(text: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    !text.is_empty() && text.len() <= 253 && text.bytes().all(is_allowed)
}

/// Prefix of the file of a pre-shared key.
const SECRET: &str = "psk:";

const FORM: &str = "it should be an identity (spiffe://DOMAIN/PATH, dns:name in small letters, or psk:FILE) and a role \
    (server, router, or client N)";

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(uris: &[&str], names: &[&str]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.distinguished_name.push(rcgen::DnType::CommonName, "spiffe://a/server");
        let uri = |uri: &&str| SanType::URI((*uri).try_into().expect("ASCII"));
        let name = |name: &&str| SanType::DnsName((*name).try_into().expect("ASCII"));
        params.subject_alt_names = uris.iter().map(uri).chain(names.iter().map(name)).collect();
        let pair = KeyPair::generate().expect("a key");
        params.self_signed(&pair).expect("a certificate").der().clone()
    }

    fn list(lines: &[&str]) -> Identities {
        let mut list = Identities::default();
        lines.iter().for_each(|line| list.add(line).expect(line));
        list
    }

    #[test]
    fn a_certificate_is_known_by_its_spiffe_uri_or_its_dns_names() {
        let list = list(&[
            "spiffe://a/server  server",
            "dns:r.example router",
            "dns:s.example router",
            "dns:w.example client 5",
        ]);
        let check = |uris: &[&str], names: &[&str], expected: Result<Role, &str>| {
            let found = list.of(&certificate(uris, names)).map(|(_, role)| role);
            assert_eq!(found, expected.map_err(str::to_owned), "{uris:?} {names:?}");
        };
        check(&["spiffe://a/server"], &[], Ok(Role::Server));
        check(&["spiffe://a/server"], &["w.example"], Ok(Role::Server));
        // A SPIFFE identity stands alone: no other name makes up for it.
        check(&["spiffe://a/other"], &["w.example"], Err("spiffe://a/other is not listed"));
        check(
            &["spiffe://a/server", "spiffe://a/other"],
            &[],
            Err("spiffe://a/server is not the only URI in the certificate"),
        );
        check(
            &["https://a", "spiffe://a/server"],
            &[],
            Err("spiffe://a/server is not the only URI in the certificate"),
        );
        check(&[], &["W.example", "unknown"], Ok(Role::Client(5)));
        check(&[], &["r.example", "s.example"], Ok(Role::Router));
        check(
            &[],
            &["r.example", "w.example"],
            Err("dns:r.example, dns:w.example are listed for several roles"),
        );
        check(&[], &["*.web.example"], Err("dns:*.web.example is not listed"));
        check(&[], &[], Err("the certificate has neither a SPIFFE URI nor a DNS name"));
    }

    #[test]
    fn a_line_that_is_wrong_is_told() {
        let check = |lines: &[&str], expected: &str| {
            let mut list = Identities::default();
            let error = lines.iter().find_map(|line| list.add(line).err()).expect("one is wrong");
            assert!(error.contains(expected), "{error}");
        };
        for line in [
            "spiffe://a/server",
            "example.org server",
            "dns:*.example client 1",
            "dns:Web client 1",
            "spiffe://a server",
            "spiffe://a/b?c server",
            "spiffe://a/../b server",
            "spiffe://A/b server",
        ] {
            check(&[line], "it should be an identity");
        }
        check(&["dns:a king"], "the role is server, router or client NUMBER");
        check(&["dns:a client 16777216"], "16777215");
        check(&["dns:a client 1", "dns:a client 2"], "dns:a is listed twice");
        check(&["psk:/nowhere client 1"], "cannot read the keys from /nowhere");
    }
}
