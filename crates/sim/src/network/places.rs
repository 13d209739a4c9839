//! Places of a network's hosts by their addresses.

use std::collections::HashMap;
use std::net::SocketAddr;

use foldhash::fast::FixedState;
use tailcut_proto::address::AddressKey;

/// Places by address, of IPv4 apart: their keys are a word.
#[derive(Debug)]
pub(super) struct Places {
    /// By IPv4 address and port in one word.
    v4: HashMap<u64, u32, FixedState>,
    /// By IPv6 address.
    others: HashMap<AddressKey, u32, FixedState>,
}

impl Places {
    pub(super) fn new() -> Self {
        let hash = FixedState::default;
        Self { v4: HashMap::with_hasher(hash()), others: HashMap::with_hasher(hash()) }
    }

    /// Says where an address is; tells the place that had it.
    pub(super) fn insert(&mut self, address: SocketAddr, place: u32) -> Option<u32> {
        match word_of(&address) {
            Some(word) => self.v4.insert(word, place),
            None => self.others.insert(AddressKey(address), place),
        }
    }

    /// The place of an address.
    #[inline]
    pub(super) fn find(&self, address: &SocketAddr) -> Option<u32> {
        match word_of(address) {
            Some(word) => self.v4.get(&word).copied(),
            None => self.others.get(&AddressKey(*address)).copied(),
        }
    }
}

/// An IPv4 address and its port as one word.
#[inline]
fn word_of(address: &SocketAddr) -> Option<u64> {
    match address {
        SocketAddr::V4(v4) => Some(u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port())),
        SocketAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_addresses_of_both_families_and_no_others() {
        let all = ["10.0.0.1:1", "10.0.0.1:2", "[fd00::1]:1", "[::ffff:10.0.0.1]:1"];
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let mut places = Places::new();
        for (place, text) in (0..).zip(all) {
            assert_eq!(places.insert(address(text), place), None, "{text}");
        }
        for (place, text) in (0..).zip(all) {
            assert_eq!(places.find(&address(text)), Some(place), "{text}");
        }
        assert_eq!(places.find(&address("10.0.0.2:1")), None);
        assert_eq!(places.insert(address(all[2]), 9), Some(2));
    }
}
