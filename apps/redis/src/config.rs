//! The words behind the module's path: `loadmodule tailcut.so listen 10.0.0.2:8000 user calls`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

use tailcut_bridge::MESSAGE_LEN_MAX;
use tailcut_net::keys::{AccessSource, Source};
use tailcut_net::open::Opening;
use tailcut_proto::r2p2::{AskCookies, Prefix};

/// Configuration of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Address at which calls are taken. Default 127.0.0.1:6379, over UDP.
    pub(crate) listen: SocketAddr,
    /// The user of the access control lists that calls run as. Default none: `default`, while that
    /// needs no password, and for clients on this host alone.
    pub(crate) user: Option<String>,
    /// The event loop never sleeps. Default no.
    pub(crate) is_polling: bool,
    /// Networks besides loopback whose addresses cannot be forged. Default none.
    pub(crate) trusted: Vec<Prefix>,
    /// Identity in replies and feedback. Default 0.
    pub(crate) server_id: u32,
    /// A router that keeps clients' addresses, which gets the feedback. Default none.
    pub(crate) router: Option<SocketAddr>,
    /// Key that servers behind one router share, so that clients prove their address once. Default
    /// none.
    pub(crate) pool_key: Option<[u8; 16]>,
    /// Condition under which clients must show a cookie. Default never.
    pub(crate) cookies: AskCookies,
    /// The file of the servers' keys, by which packets are sealed. Default none: the service is
    /// open.
    pub(crate) seal: Option<String>,
    /// The file of a policy that says which clients may call, by the numbers of their keys. Default
    /// none: all may.
    pub(crate) access: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 6379).into(),
            user: None,
            is_polling: false,
            trusted: Vec::new(),
            server_id: 0,
            router: None,
            pool_key: None,
            cookies: AskCookies::Never,
            seal: None,
            access: None,
        }
    }
}

impl Config {
    /// Reads the words, in pairs.
    ///
    /// # Errors
    ///
    /// What is wrong, for the log.
    pub(crate) fn read(words: &[String]) -> Result<Self, String> {
        let mut config = Self::default();
        for pair in words.chunks(2) {
            let [key, value] = pair else {
                return Err(format!("`{}` has no value; {USAGE}", pair[0]));
            };
            config.set(key, value).map_err(|problem| format!("{key} {value}: {problem}"))?;
        }
        if config.user.is_none() && !config.listen.ip().is_loopback() {
            let hint = "say as which user calls from other hosts run, as `user default` or, better, one with few rights";
            return Err(format!("listen {}: {hint}", config.listen));
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "listen" => self.listen = resolve(value)?,
            "user" => self.user = Some(value.to_owned()),
            "polling" => {
                self.is_polling = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err("write yes or no".to_owned()),
                }
            }
            "trust" => self.trusted.push(value.parse()?),
            "server-id" => {
                self.server_id = value.parse().map_err(|_| "write a number".to_owned())?;
            }
            "router" => self.router = Some(resolve(value)?),
            "pool-key-file" => self.pool_key = Some(read_key(value)?),
            "cookies" => self.cookies = value.parse()?,
            "seal" => self.seal = Some(value.to_owned()),
            "access" => self.access = Some(value.to_owned()),
            _ => return Err(format!("there is no such word; {USAGE}")),
        }
        Ok(())
    }

    /// Options by which the endpoint is opened: reads the files of keys and policy, which threads
    /// of their own read again when they change.
    ///
    /// # Errors
    ///
    /// What is wrong with a file, for the log.
    pub(crate) fn opening(&self) -> Result<Opening, String> {
        let mut opening = Opening::default();
        opening.r2p2.message_len_max = MESSAGE_LEN_MAX;
        opening.r2p2.serving.trusted.extend(self.trusted.iter().copied());
        opening.r2p2.pool.server_id = self.server_id;
        opening.r2p2.pool.router = self.router;
        opening.r2p2.pool.key = self.pool_key;
        opening.r2p2.pool.cookies = self.cookies;
        if let Some(file) = &self.seal {
            let keys = Source::open(file).map_err(|error| format!("seal {file}: {error}"))?;
            opening.keys = Some(keys.into());
        }
        if let Some(file) = &self.access {
            let access =
                AccessSource::open(file).map_err(|error| format!("access {file}: {error}"))?;
            opening.access = Some(access.into());
        }
        Ok(opening)
    }
}

fn resolve(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| format!("{error}; write HOST:PORT"))?;
    found.next().ok_or_else(|| "the name has no address".to_owned())
}

fn read_key(path: &str) -> Result<[u8; 16], String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let digits = text.trim();
    let is_key = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = u128::from_str_radix(digits, 16).ok().filter(|_| is_key);
    key.map(u128::to_be_bytes)
        .ok_or_else(|| "a key is 32 hex digits; `openssl rand -hex 16` makes one".to_owned())
}

/// All words.
const USAGE: &str = "write `listen HOST:PORT`, `user NAME`, `polling yes|no`, `trust PREFIX`, `server-id N`, \
    `router HOST:PORT`, `pool-key-file PATH`, `cookies never|under-load|always`, \
    `seal PATH`, `access PATH`";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Config, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Config::read(&words)
    }

    #[test]
    fn words_come_in_pairs() {
        assert_eq!(read(""), Ok(Config::default()));
        let config = read("listen 10.0.0.2:8000 user calls polling yes trust 10.0.0.0/8").unwrap();
        assert_eq!(config.listen, ([10, 0, 0, 2], 8000).into());
        assert_eq!((config.user.as_deref(), config.is_polling), (Some("calls"), true));
        assert_eq!(config.trusted.len(), 1);
        assert!(read("listen").unwrap_err().contains("has no value"));
        assert!(read("lissen 127.0.0.1:1").unwrap_err().contains("no such word"));
        assert!(read("polling maybe").unwrap_err().contains("yes or no"));
        assert!(read("listen 127.0.0.1").unwrap_err().contains("HOST:PORT"));
        assert_eq!(read("cookies always").unwrap().cookies, AskCookies::Always);
        assert!(read("cookies perhaps").unwrap_err().contains("none of never"));
        assert!(read("pool-key-file /dev/null").unwrap_err().contains("32 hex digits"));
    }

    #[test]
    fn files_that_seal_nothing_are_told_before_anything_is_served() {
        let opened = |line| read(line).unwrap().opening().map(drop).unwrap_err();
        let missing = opened("seal /nowhere/keys");
        assert!(missing.starts_with("seal /nowhere/keys: cannot read the keys"), "{missing}");
        let missing = opened("access /nowhere/access");
        assert!(missing.starts_with("access /nowhere/access: "), "{missing}");
        assert!(read("seal").unwrap_err().contains("`seal PATH`"));
    }

    #[test]
    fn beyond_this_host_a_user_is_named() {
        assert!(read("listen 0.0.0.0:8000").unwrap_err().contains("user default"));
        assert!(read("listen 0.0.0.0:8000 user default").is_ok());
        assert!(read("listen [::1]:8000").is_ok());
    }
}
