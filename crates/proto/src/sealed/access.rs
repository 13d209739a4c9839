//! Access policy of a sealed server: who may call what. It is read from text:
//!
//! ```text
//! tailcut-access 1
//! allow 17,20-29  /demo.Words/Capitals /demo.Words/Lengths
//! allow any       /demo.Words/Capitals
//! allow 40        *
//! deny  25        *
//! ```
//!
//! Lines that begin with `#` and blank ones mean nothing.
//!
//! | a request | then |
//! |---|---|
//! | of a client that a `deny` line names, for this method or for all | refused, whatever else says |
//! | else of one that an `allow` line names, for this method or for all | the application has it |
//! | else | refused |
//! | of several packets, of which the first does not tell the method | refused |
//!
//! Invariant: in which order lines stand counts for nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::CLIENT_MAX;

/// Access policy of a server: which clients may call which methods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// For requests of every method, and of none.
    all: Rules,
    /// For those of one method, by its number.
    methods: BTreeMap<u64, Method>,
}

/// A text that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the policy: {problem}")]
pub struct AccessError {
    /// Counted from 1.
    line: usize,
    /// Problem on that line.
    problem: String,
}

/// A request that the policy has refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Number of the client that sent it.
    pub client: u32,
    /// Method that it was for.
    pub called: Called,
}

/// Method that a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Called {
    /// A method that the policy names.
    Named(Arc<str>),
    /// One that it does not name, by its number.
    Numbered(u64),
    /// None: the request is bytes.
    Bytes,
    /// Unknown, since the first packet is too short to tell.
    Untold,
}

/// Rules for one method.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Method {
    /// As it is named.
    name: Arc<str>,
    /// Rules for its requests.
    rules: Rules,
}

/// Clients of which something is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rules {
    /// By `allow` lines.
    allowed: Ranges,
    /// By `deny` lines.
    denied: Ranges,
}

/// Clients' numbers, as ranges with both ends: in order and apart, once they are tidy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges(Vec<(u32, u32)>);

/// The number of the method at a path, `/package.Service/Method`: its 64-bit FNV-1a hash.
pub const fn method_number(path: &str) -> u64 {
    let bytes = path.as_bytes();
    let (mut hash, mut index) = (FNV_OFFSET, 0);
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(FNV_PRIME);
        index += 1;
    }
    hash
}

/// The number of the method that a request of typed services is for; `None` where its bytes are no
/// such.
pub fn method_of(request: &[u8]) -> Option<u64> {
    match request.first_chunk::<METHOD_LEN>() {
        Some(&[METHOD_VERSION, number @ ..]) => Some(u64::from_be_bytes(number)),
        _ => None,
    }
}

/// The first byte of requests that name a method.
pub const METHOD_VERSION: u8 = 1;

/// The code with which requests are rejected that the policy refuses: gRPC's `PERMISSION_DENIED`.
pub const DENIED_CODE: u32 = 7;

impl Access {
    /// Checks that a client may send a request, of which `first` is the first packet's payload; all
    /// of it, if it `is_whole`.
    ///
    /// # Errors
    ///
    /// What is refused, if it may not.
    pub fn check(&self, client: u32, first: &[u8], is_whole: bool) -> Result<(), Denial> {
        let number = method_of(first);
        let method = number.and_then(|number| self.methods.get(&number));
        let is_told = is_whole || first.len() >= METHOD_LEN;
        let is_in = |ranges: fn(&Rules) -> &Ranges| {
            ranges(&self.all).has(client)
                || method.is_some_and(|method| ranges(&method.rules).has(client))
        };
        if is_told && !is_in(|rules| &rules.denied) && is_in(|rules| &rules.allowed) {
            return Ok(());
        }
        let called = match (method, number) {
            (Some(method), _) => Called::Named(method.name.clone()),
            (None, Some(number)) => Called::Numbered(number),
            (None, None) if is_told => Called::Bytes,
            (None, None) => Called::Untold,
        };
        Err(Denial { client, called })
    }

    /// Takes a line; gives the pairs of clients and methods that it has.
    fn add(&mut self, words: &[&str]) -> Result<usize, String> {
        let (verdict, clients, methods) = match *words {
            [verdict @ ("allow" | "deny"), clients, ref methods @ ..] if !methods.is_empty() => {
                (verdict, clients, methods)
            }
            _ => return Err(FORM.to_owned()),
        };
        let clients = Ranges::read(clients)?;
        let pairs = clients.0.len() * methods.len();
        if pairs > PAIRS_MAX {
            return Err(TOO_MANY.to_owned());
        }
        for method in methods {
            let rules = self.rules(method)?;
            let ranges = match verdict {
                "allow" => &mut rules.allowed,
                _ => &mut rules.denied,
            };
            ranges.0.extend_from_slice(&clients.0);
        }
        Ok(pairs)
    }

    /// Rules for a method, by its word.
    fn rules(&mut self, word: &str) -> Result<&mut Rules, String> {
        if word == "*" {
            return Ok(&mut self.all);
        }
        let number = match word.strip_prefix("0x") {
            Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16)
                .map_err(|_| format!("{word} is no method: 0x and up to 16 hexadecimal digits"))?,
            _ if is_path(word) => method_number(word),
            _ if word.contains('*') => {
                let hint = "requests tell a number of their method and not its service";
                return Err(format!("{word}: name each method, or * for all; {hint}"));
            }
            _ => {
                return Err(format!("{word} is no method: /package.Service/Method, 0xNUMBER or *"));
            }
        };
        let known = self
            .methods
            .entry(number)
            .or_insert_with(|| Method { name: word.into(), rules: Rules::default() });
        if word.starts_with('/') && known.name.starts_with('/') && *known.name != *word {
            return Err(format!("{word} and {} have the same number", known.name));
        }
        if word.starts_with('/') {
            known.name = word.into();
        }
        Ok(&mut known.rules)
    }

    fn tidy(&mut self) {
        let methods = self.methods.values_mut().map(|method| &mut method.rules);
        for rules in methods.chain([&mut self.all]) {
            rules.allowed.tidy();
            rules.denied.tidy();
        }
    }
}

impl FromStr for Access {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let (mut access, mut has_title) = (Self::default(), false);
        let (mut last, mut pairs) = (1, 0);
        for (line, words) in (1..).zip(text.lines()) {
            last = line;
            let words: Vec<&str> = words.split_whitespace().collect();
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            let wrong = |problem: String| AccessError { line, problem };
            if !has_title {
                has_title = words == ["tailcut-access", "1"];
                has_title
                    .then_some(())
                    .ok_or_else(|| wrong("it should be `tailcut-access 1`".to_owned()))?;
                continue;
            }
            pairs += access.add(&words).map_err(wrong)?;
            if pairs > PAIRS_MAX {
                return Err(wrong(TOO_MANY.to_owned()));
            }
        }
        if pairs == 0 {
            let problem = match has_title {
                true => "it names nobody, and would refuse everything: `deny any *` says so",
                false => "it should be `tailcut-access 1`",
            };
            return Err(AccessError { line: last, problem: problem.to_owned() });
        }
        access.tidy();
        Ok(access)
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, called } = self;
        write!(formatter, "the server's access policy: client {client} may not call {called}")
    }
}

impl fmt::Display for Called {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => formatter.write_str(name),
            Self::Numbered(number) => write!(formatter, "method {number:#018x}"),
            Self::Bytes => formatter.write_str("by bytes that name no method"),
            Self::Untold => formatter.write_str("by a first packet that is too short"),
        }
    }
}

impl Ranges {
    /// `any`, or numbers and ranges of them with commas between.
    fn read(text: &str) -> Result<Self, String> {
        if text == "any" {
            return Ok(Self(vec![(0, CLIENT_MAX)]));
        }
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }

    /// Puts them in order, and makes one of those that meet.
    fn tidy(&mut self) {
        self.0.sort_unstable();
        self.0.dedup_by(|(first, last), (_, before)| {
            let meets = *first <= before.saturating_add(1);
            if meets {
                *before = (*before).max(*last);
            }
            meets
        });
    }

    fn has(&self, client: u32) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= client);
        after.checked_sub(1).is_some_and(|at| self.0[at].1 >= client)
    }
}

/// A number, or two with a hyphen between.
fn range(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|&number| is_number && number <= CLIENT_MAX)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        (Some(first), Some(last)) => Err(format!("the range {text} is empty: {last} < {first}")),
        _ => {
            Err(format!("`{text}` names no client: any, or numbers up to {CLIENT_MAX} as 17,20-29"))
        }
    }
}

/// `/package.Service/Method`, as gRPC writes it.
fn is_path(word: &str) -> bool {
    let segments = word.strip_prefix('/').and_then(|path| path.split_once('/'));
    let is_name = |name: &str| !name.is_empty() && !name.contains(['/', '*']);
    segments.is_some_and(|(service, method)| is_name(service) && is_name(method))
}

/// The parameters of the 64-bit hash: draft-eastlake-fnv, "The FNV
/// Non-Cryptographic Hash Algorithm".
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Bytes of a request that tell its method.
const METHOD_LEN: usize = 9;

/// Pairs of ranges and methods, which take some MB.
const PAIRS_MAX: usize = 1 << 16;

const TOO_MANY: &str = "there are more than 65536 pairs of clients and methods";

const FORM: &str = "it should be `allow CLIENTS METHOD...` or `deny CLIENTS METHOD...`, such as `allow 17,20-29 *`";

#[cfg(test)]
mod tests {
    use super::*;

    fn access(lines: &str) -> Access {
        format!("tailcut-access 1\n{lines}").parse().expect("a policy")
    }

    fn request(path: &str) -> Vec<u8> {
        [&[1][..], &method_number(path).to_be_bytes(), b"message"].concat()
    }

    fn may(access: &Access, client: u32, request: &[u8]) -> bool {
        access.check(client, request, true).is_ok()
    }

    #[test]
    fn who_is_not_allowed_is_refused_and_who_is_denied_is_whatever_else_says() {
        let rules =
            "allow 17,20-29 /a.B/C\nallow any /a.B/D\nallow 40 *\ndeny 25 *\ndeny 41,17 /a.B/D";
        // In which order lines stand counts for nothing.
        let reversed = rules.lines().rev().collect::<Vec<_>>().join("\n");
        for access in [access(rules), access(&reversed)] {
            let [c, d, other] = ["/a.B/C", "/a.B/D", "/a.B/E"].map(request);
            let allowed = |request: &[u8]| -> Vec<u32> {
                (0..50).filter(|&client| may(&access, client, request)).collect()
            };
            let is_not = |clients: &[u32]| -> Vec<u32> {
                (0..50).filter(|client| !clients.contains(client)).collect()
            };
            assert_eq!(allowed(&c), [17, 20, 21, 22, 23, 24, 26, 27, 28, 29, 40]);
            assert_eq!(allowed(&d), is_not(&[17, 25, 41]));
            assert_eq!(allowed(&other), [40]);
            assert_eq!(allowed(b"bytes"), [40]);
            assert_eq!(allowed(b""), [40]);
        }
    }

    #[test]
    fn a_first_packet_that_hides_its_method_is_refused() {
        let access = access("allow any *\ndeny 5 /a.B/C");
        let request = request("/a.B/C");
        assert!(!may(&access, 5, &request));
        for len in 0..METHOD_LEN {
            let denied = access.check(5, &request[..len], false).expect_err("untold");
            assert_eq!(denied.called, Called::Untold);
        }
        assert!(access.check(6, &request[..METHOD_LEN], false).is_ok());
        assert!(access.check(5, b"bytes, and more of them", false).is_ok());
    }

    #[test]
    fn what_is_refused_is_told() {
        let access = access("allow 1 /a.B/C 0xff");
        let text = |first: &[u8]| access.check(2, first, true).expect_err("denied").to_string();
        let expected =
            |called| format!("the server's access policy: client 2 may not call {called}");
        assert_eq!(text(&request("/a.B/C")), expected("/a.B/C"));
        assert_eq!(text(&[1, 0, 0, 0, 0, 0, 0, 0, 255]), expected("0xff"));
        assert_eq!(text(&[1, 0, 0, 0, 0, 0, 0, 0, 9]), expected("method 0x0000000000000009"));
        assert_eq!(text(b"bytes"), expected("by bytes that name no method"));
    }

    #[test]
    fn a_number_and_its_path_are_one_method() {
        let number = format!("{:#x}", method_number("/a.B/C"));
        for rules in [
            format!("allow any {number}\ndeny 3 /a.B/C"),
            format!("deny 3 /a.B/C\nallow any {number}"),
        ] {
            let access = access(&rules);
            assert!(may(&access, 4, &request("/a.B/C")));
            let denied = access.check(3, &request("/a.B/C"), true).expect_err("denied");
            assert_eq!(denied.called, Called::Named("/a.B/C".into()));
        }
    }

    #[test]
    fn ranges_that_meet_are_one() {
        let ranges = |text| {
            let mut ranges = Ranges::read(text).expect("clients");
            ranges.tidy();
            ranges.0
        };
        assert_eq!(ranges("5-9,1,7-12,13,20,2"), [(1, 2), (5, 13), (20, 20)]);
        assert_eq!(ranges("any"), [(0, CLIENT_MAX)]);
        assert_eq!(ranges("1-10,2-3"), [(1, 10)]);
    }

    #[test]
    fn a_text_that_is_no_policy_is_told_with_its_line() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<Access>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        };
        check("", "line 1 of the policy: it should be `tailcut-access 1`");
        check("tailcut-access 2\n", "line 1");
        check("\n# title\nallow any *", "line 3 of the policy: it should be `tailcut-access 1`");
        check("tailcut-access 1\n# nobody\n", "line 2 of the policy: it names nobody");
        for (rule, problem) in [
            ("allow", "it should be `allow CLIENTS METHOD...`"),
            ("allow any", "it should be `allow CLIENTS METHOD...`"),
            ("permit any *", "it should be `allow CLIENTS METHOD...`"),
            ("allow 16777216 *", "`16777216` names no client"),
            ("allow 1- *", "`1-` names no client"),
            ("allow +1 *", "`+1` names no client"),
            ("allow 1,,2 *", "`` names no client"),
            ("allow any,1 *", "`any` names no client"),
            ("allow 9-2 *", "the range 9-2 is empty"),
            ("allow any Capitals", "Capitals is no method"),
            ("allow any /a.B", "/a.B is no method"),
            ("allow any /a.B/", "/a.B/ is no method"),
            ("allow any /a.B/*", "/a.B/*: name each method"),
            ("allow any 0x", "0x is no method"),
            ("allow any 0x+1", "0x+1 is no method"),
            ("allow any 0x12345678123456789", "up to 16 hexadecimal digits"),
        ] {
            check(&format!("tailcut-access 1\n\n{rule}\nallow any *"), problem);
            check(&format!("tailcut-access 1\n\n{rule}\nallow any *"), "line 3");
        }
        let many = (0..300).map(|at| (2 * at).to_string()).collect::<Vec<_>>().join(",");
        let methods = (0..300).map(|at| format!("{at:#x}")).collect::<Vec<_>>().join(" ");
        check(&format!("tailcut-access 1\nallow {many} {methods}"), "more than 65536 pairs");
        let line = format!("deny {many} *\n");
        check(&format!("tailcut-access 1\n{}", line.repeat(300)), "line 220");
    }

    #[test]
    fn a_policy_may_have_as_many_pairs_as_there_is_room_for() {
        let clients = (0..256).map(|at| (2 * at).to_string()).collect::<Vec<_>>().join(",");
        let methods = (0..256).map(|at| format!("{at:#x}")).collect::<Vec<_>>().join(" ");
        let access = access(&format!("allow {clients} {methods}"));
        assert!(may(&access, 510, &[1, 0, 0, 0, 0, 0, 0, 0, 255]));
        assert!(!may(&access, 509, &[1, 0, 0, 0, 0, 0, 0, 0, 255]));
        let one_more = format!("tailcut-access 1\nallow {clients} {methods}\nallow 1 *");
        let error = one_more.parse::<Access>().unwrap_err().to_string();
        assert!(error.starts_with("line 3") && error.ends_with(TOO_MANY), "{error}");
    }

    /// The vectors that the authors of the hash publish.
    #[test]
    fn a_methods_number_is_the_fnv_1a_hash() {
        assert_eq!(method_number(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(method_number("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(method_number("foobar"), 0x8594_4171_f739_67e8);
    }
}
