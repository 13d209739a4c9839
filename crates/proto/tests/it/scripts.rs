//! Runs the packet scripts of `conformance/scripts`, one behaviour each. Their language is
//! described there.

use std::net::SocketAddr;
use std::path::{Path as FilePath, PathBuf};

use tailcut_proto::homa;
use tailcut_proto::node::{GSO_BYTES_MAX, Time};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

/// An endpoint under a script, with its application.
struct Stage {
    now: Time,
    config: Config,
    /// Configuration of a Homa endpoint, where the script is of one.
    homa: Option<homa::Config>,
    endpoint: Option<Box<dyn Rpc>>,
    reply_len: Option<usize>,
    is_silent: bool,
    sent: Vec<(SocketAddr, Vec<u8>)>,
    outcomes: Vec<Result<Vec<u8>, String>>,
    runs: usize,
    cancelled: usize,
}

impl Stage {
    fn new() -> Self {
        let config = Config { secret: [9; 16], ..Config::default() };
        let (sent, outcomes) = (Vec::new(), Vec::new());
        Self {
            now: 0,
            config,
            homa: None,
            endpoint: None,
            reply_len: None,
            is_silent: false,
            sent,
            outcomes,
            runs: 0,
            cancelled: 0,
        }
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "set" => return self.set(rest),
            "at" => {
                self.expect_quiet()?;
                self.now += duration_ns(rest);
                let now = self.now;
                self.endpoint().handle_timeout(now);
                self.settle();
            }
            "<" => {
                self.expect_quiet()?;
                let (peer, bytes) = rest.split_once(' ').unwrap_or((rest, ""));
                let mut bytes: Vec<u8> =
                    pattern(bytes).into_iter().map(|byte| byte.expect("a byte")).collect();
                let now = self.now;
                self.endpoint().handle_datagram(now, address(peer).into(), &mut bytes);
                self.settle();
            }
            ">" => return self.expect_sent(rest),
            "quiet" => return self.expect_quiet(),
            "runs" => return same(self.runs, rest),
            "cancelled" => return same(self.cancelled, rest),
            "call" => self.call(rest),
            "replied" => {
                let outcome = self.outcomes.drain(..1).next().ok_or("no event")?;
                let bytes = outcome.map_err(|failure| format!("failed: {failure}"))?;
                return matches(&pattern(rest), &bytes);
            }
            "failed" => {
                let outcome =
                    self.outcomes.drain(..1.min(self.outcomes.len())).next().ok_or("no event")?;
                let failure = outcome.err().ok_or("it was replied")?;
                return if failure.contains(rest) {
                    Ok(())
                } else {
                    Err(format!("it failed by: {failure}"))
                };
            }
            _ => return Err(format!("`{word}` is not a word of the language")),
        }
        Ok(())
    }

    fn set(&mut self, rest: &str) -> Result<(), String> {
        let (key, value) = rest.split_once(' ').ok_or("set KEY VALUE")?;
        if (key, value) == ("protocol", "homa") {
            self.homa = Some(homa::Config { secret: [9; 16], ..homa::Config::default() });
            return Ok(());
        }
        let config = &mut self.config;
        let serving = match &mut self.homa {
            Some(homa) => &mut homa.serving,
            None => &mut config.serving,
        };
        match key {
            "serving" => serving.is_enabled = value != "off",
            "router" => config.pool.router = Some(address(value)),
            "trust" => serving.trusted.push(value.parse()?),
            "clients-max" => config.clients_max = value.parse().expect("a number"),
            "reply-len" => self.reply_len = Some(value.parse().expect("a number")),
            "answer" => self.is_silent = value == "never",
            _ => return Err(format!("`{key}` cannot be set")),
        }
        Ok(())
    }

    fn endpoint(&mut self) -> &mut dyn Rpc {
        let (config, homa) = (&self.config, &self.homa);
        &mut **self.endpoint.get_or_insert_with(|| match homa {
            Some(homa) => Box::new(homa::Endpoint::new(0, homa.clone())),
            None => Box::new(Endpoint::new(0, config.clone())),
        })
    }

    fn call(&mut self, rest: &str) {
        let mut words = rest.splitn(3, ' ');
        let target = address(words.next().expect("an address"));
        let options = words.next().expect("options");
        let has = |name| options.split(',').any(|option| option == name);
        let options = CallOptions { v1: has("v1"), idempotent: has("idempotent"), fixed: false };
        let payload = pattern(words.next().unwrap_or(""))
            .into_iter()
            .map(|byte| byte.expect("a byte"))
            .collect();
        let (now, deadline) = (self.now, self.now + 1_000_000_000);
        self.endpoint()
            .call(now, Call { target, payload, deadline, context: 0, options })
            .expect("the call is made");
        self.settle();
    }

    /// The application's turn, then everything that goes out.
    fn settle(&mut self) {
        let (now, reply_len, is_silent) = (self.now, self.reply_len, self.is_silent);
        self.endpoint();
        let endpoint = self.endpoint.as_deref_mut().expect("it has just been made");
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Request { id, payload, .. } => {
                    self.runs += 1;
                    if !is_silent {
                        let reply = reply_len.map_or(payload, |len| vec![0x5a; len]);
                        // A reply that may not be sent is refused by the endpoint itself.
                        let _ = endpoint.reply(now, id, reply);
                    }
                }
                Event::Cancelled { .. } => self.cancelled += 1,
                Event::Replied { payload, .. } => self.outcomes.push(Ok(payload)),
                Event::Failed { failure, .. } => self.outcomes.push(Err(failure.to_string())),
            }
        }
        let mut buffer = vec![0; GSO_BYTES_MAX];
        while let Some(transmit) = endpoint.poll_transmit(now, &mut buffer) {
            self.sent.extend(
                buffer[..transmit.len]
                    .chunks(transmit.segment_len)
                    .map(|bytes| (transmit.to, bytes.to_vec())),
            );
        }
    }

    fn expect_sent(&mut self, rest: &str) -> Result<(), String> {
        let (to, bytes) = rest.split_once(' ').ok_or("> ADDR BYTES")?;
        if self.sent.is_empty() {
            return Err("nothing was sent".to_owned());
        }
        let (sent_to, sent) = self.sent.remove(0);
        if sent_to != address(to) {
            return Err(format!("it went to {sent_to}"));
        }
        matches(&pattern(bytes), &sent)
    }

    fn expect_quiet(&self) -> Result<(), String> {
        match self.sent.first() {
            None => Ok(()),
            Some((to, bytes)) => Err(format!("unexpected, to {to}: {}", hex(bytes))),
        }
    }
}

fn same(found: usize, expected: &str) -> Result<(), String> {
    if expected.parse() == Ok(found) { Ok(()) } else { Err(format!("it is {found}")) }
}

fn matches(pattern: &[Option<u8>], bytes: &[u8]) -> Result<(), String> {
    let is_match = pattern.len() == bytes.len()
        && pattern.iter().zip(bytes).all(|(want, have)| want.is_none_or(|want| want == *have));
    if is_match {
        Ok(())
    } else {
        Err(format!("{} bytes, not {}: {}", bytes.len(), pattern.len(), hex(bytes)))
    }
}

/// `None` for a byte that may be anything.
fn pattern(text: &str) -> Vec<Option<u8>> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        let (digits, times) = word
            .split_once('*')
            .map_or((word, 1), |(digits, times)| (digits, times.parse().expect("a count")));
        for _ in 0..times {
            for pair in digits.as_bytes().chunks(2) {
                let pair = str::from_utf8(pair).expect("ASCII");
                bytes.push((pair != "..").then(|| {
                    u8::from_str_radix(pair, 16).unwrap_or_else(|_| panic!("`{pair}` in {text}"))
                }));
            }
        }
    }
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(160).map(|byte| format!("{byte:02x}")).collect()
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no address"))
}

fn duration_ns(text: &str) -> u64 {
    let unit = [("us", 1000), ("ms", 1_000_000)]
        .into_iter()
        .find(|(unit, _)| text.ends_with(unit))
        .expect("us or ms");
    text.trim_end_matches(unit.0).parse::<u64>().expect("a number") * unit.1
}

fn run(path: &FilePath) -> Result<(), String> {
    let mut stage = Stage::new();
    let text = std::fs::read_to_string(path).expect("the script is readable");
    for (number, line) in
        text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        stage
            .line(line)
            .map_err(|error| format!("{}:{}: {line:.60}: {error}", path.display(), number + 1))?;
    }
    stage.expect_quiet().map_err(|error| format!("{}: at the end: {error}", path.display()))
}

#[test]
fn every_script_holds() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../conformance/scripts");
    let entries = std::fs::read_dir(&folder)
        .expect("the scripts are there")
        .map(|entry| entry.expect("an entry").path());
    let scripts: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "script"))
        .collect();
    assert!(scripts.len() >= 15, "{} scripts in {}", scripts.len(), folder.display());
    let failures: Vec<String> = scripts.iter().filter_map(|script| run(script).err()).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn a_script_that_expects_something_else_fails() {
    let mut stage = Stage::new();
    stage.line("< 10.0.0.1:1 cc0800c0 0001 0001 31").unwrap();
    assert!(stage.line("quiet").is_err());
    assert!(stage.line("> 10.0.0.1:1 cc0811c0 0001 0001 32").is_err());
}
