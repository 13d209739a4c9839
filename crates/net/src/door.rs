//! A door for TCP connections that are not authenticated yet: which of them makes room.
//!
//! Where a network has all its places, or all are taken, another that comes takes the place of one:
//! of one that has said nothing before one that has, and the newest first, for the others have
//! waited longer for their turn.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tailcut_proto::r2p2::Prefix;

/// Places for strangers.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// All of them.
    pub all: usize,
    /// Those that one network has at most.
    pub of_network: usize,
}

/// Takes out the stranger whose place one of `network` is to have, if there is none for it; `about`
/// tells a stranger's network and whether it is silent.
pub fn make_room<S>(
    strangers: &mut Vec<S>,
    network: Prefix,
    places: Places,
    about: impl Fn(&S) -> (Prefix, bool),
) -> Option<S> {
    let known: Vec<_> = strangers.iter().map(about).collect();
    displaced(&known, network, places).map(|place| strangers.remove(place))
}

/// Index of the stranger whose place one of `network` has, of strangers by their networks and
/// whether they are silent, the oldest first; `None` where there is room.
fn displaced(strangers: &[(Prefix, bool)], network: Prefix, places: Places) -> Option<usize> {
    let of = |network: Prefix| strangers.iter().filter(|(other, _)| *other == network).count();
    // Where all places are taken, it is a network with the most that gives one.
    let crowded = if of(network) >= places.of_network {
        network
    } else if strangers.len() >= places.all {
        strangers.iter().map(|&(network, _)| network).max_by_key(|&network| of(network))?
    } else {
        return None;
    };
    let mut found = (0..strangers.len()).filter(|&place| strangers[place].0 == crowded).rev();
    found.clone().find(|&place| strangers[place].1).or_else(|| found.next())
}

/// The network that an address counts to.
pub fn network_of(ip: IpAddr) -> Prefix {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            Prefix { ip: Ipv4Addr::new(a, b, c, 0).into(), bits: 24 }
        }
        IpAddr::V6(ip) => {
            let network = ip.to_bits() >> 64 << 64;
            Prefix { ip: Ipv6Addr::from_bits(network).into(), bits: 64 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u8) -> Prefix {
        network_of(Ipv4Addr::new(10, 0, number, 7).into())
    }

    /// Strangers by the number of their network; those above 100 have said something.
    fn check(strangers: &[u8], of: u8, expected: Option<usize>) {
        let strangers: Vec<_> = strangers.iter().map(|&n| (network(n % 100), n < 100)).collect();
        assert_eq!(displaced(&strangers, network(of), Places { all: 16, of_network: 4 }), expected);
    }

    #[test]
    fn the_newest_silent_stranger_of_a_crowded_network_loses_its_place() {
        check(&[], 1, None);
        check(&[1, 1, 1], 1, None);
        check(&[1, 2, 1, 1, 1, 2], 1, Some(4));
        check(&[1, 1, 101, 101], 1, Some(1));
        check(&[101, 101, 101, 101], 1, Some(3));
        check(&[1, 1, 1, 1], 2, None);
    }

    #[test]
    fn where_all_places_are_taken_a_network_with_the_most_gives_one() {
        let full = [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 10, 11, 12, 13, 14];
        check(&full, 20, Some(10));
        check(&full, 1, Some(10));
    }

    #[test]
    fn addresses_of_a_network_count_together() {
        let is_one =
            |a: &str, b: &str| network_of(a.parse().unwrap()) == network_of(b.parse().unwrap());
        assert!(is_one("10.0.0.1", "10.0.0.200") && is_one("::ffff:10.0.0.1", "10.0.0.2"));
        assert!(is_one("fd00::1", "fd00::2:3:4:5") && !is_one("fd00::1", "fd00:0:0:1::1"));
        assert!(!is_one("10.0.0.1", "10.0.1.1"));
    }
}
