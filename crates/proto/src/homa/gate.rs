//! Gate that new requests must pass besides the limits: whether any are taken, and by what clients
//! show that they receive at their addresses.

use std::net::SocketAddr;

use super::config::{Carrier, Config};
use super::peers::Proof;
use crate::peer::cookies::{AskCookies, Cookies};
use crate::peer::validation::Tokens;

/// The gate.
#[derive(Debug)]
pub(super) struct Gate {
    /// Keyed hashes of addresses, which validate them.
    tokens: Tokens,
    /// Makes the cookies that clients show, where they must.
    pub(super) cookies: Cookies,
    /// Requests that the application runs at once; what it has beyond them waits.
    pub(super) workers: usize,
    /// Half-received requests of clients whose addresses were not validated when they began.
    pub(super) unvalidated_partials: usize,
    /// New requests are refused.
    pub(super) is_closed: bool,
}

impl Gate {
    /// An open one.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            // One secret has several uses, with a key of its own for each.
            tokens: Tokens::new(&config.secret.map(|byte| byte ^ 0x36), 0),
            cookies: cookies_of(config),
            workers: 1,
            unvalidated_partials: 0,
            is_closed: false,
        }
    }

    /// Proof that a peer at `address` must echo.
    pub(super) fn proof(&self, address: SocketAddr) -> Proof {
        Proof::of(self.tokens.token(address))
    }
}

/// The source of an endpoint's cookies.
fn cookies_of(config: &Config) -> Cookies {
    // Who seals packets is known by that, and NICs that take packets for TCP's change what a tag
    // covers.
    let is_fit = config.seal.is_none() && config.carrier == Carrier::Own;
    let ask = if is_fit { config.cookies.ask } else { AskCookies::Never };
    let key = config.cookies.key.unwrap_or_else(|| config.secret.map(|byte| byte ^ 0x5c));
    Cookies::new(ask, &key, config.cookies.clock_ns)
}
