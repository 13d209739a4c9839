//! Which links and switches lie between hosts, and which way packets take.
//!
//! Ports are numbered so that no table is needed to find them: first the NICs of the hosts, then
//! the ports of leaves towards hosts, then those of leaves towards spines, then those of spines
//! towards leaves.

use tailcut_proto::policy::Draws;

use super::Packet;
use super::port::{Element, Link, Port, SwitchBuffer};

/// A switch: how long it takes a packet to its egress, and what each egress can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// From the last bit received until the packet is queued.
    pub delay_ps: u64,
    /// The buffer of each egress.
    pub buffer: SwitchBuffer,
}

/// How a leaf chooses a spine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spreading {
    /// Each packet takes a spine at random.
    #[default]
    Spray,
    /// All packets of a pair of hosts take the same one (ECMP).
    Flow,
}

/// Hosts and what joins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// All hosts at one switch.
    Single {
        /// Hosts.
        hosts: u32,
        /// Each host's link, both ways.
        link: Link,
        /// The switch.
        switch: Switch,
    },
    /// Racks of hosts under a leaf each, all leaves joined by every spine.
    LeafSpine {
        /// Leaves.
        racks: u32,
        /// Hosts at each leaf.
        hosts_per_rack: u32,
        /// Spines.
        spines: u32,
        /// Each host's link, both ways.
        host_link: Link,
        /// Each link between leaf and spine, both ways.
        spine_link: Link,
        /// Every switch.
        switch: Switch,
        /// How a leaf chooses a spine.
        spreading: Spreading,
    },
}

impl Topology {
    /// The ports, in the order that [`Map`] computes with.
    pub(super) fn build(&self) -> (Map, Vec<Port>) {
        match *self {
            Self::Single { hosts, link, switch } => {
                let nics = (0..hosts).map(|_| {
                    Port::new(link, Element::Leaf(0), switch.delay_ps, SwitchBuffer::default())
                });
                let down =
                    (0..hosts).map(|host| Port::new(link, Element::Host(host), 0, switch.buffer));
                let map = Map {
                    hosts,
                    hosts_per_rack: hosts.max(1),
                    racks: 1,
                    spines: 0,
                    spreading: Spreading::Spray,
                };
                (map, nics.chain(down).collect())
            }
            Self::LeafSpine {
                racks,
                hosts_per_rack,
                spines,
                host_link,
                spine_link,
                switch,
                spreading,
            } => {
                assert!(
                    racks > 0 && hosts_per_rack > 0 && spines > 0,
                    "a leaf-spine of {racks} x {hosts_per_rack}, {spines}"
                );
                let hosts = racks * hosts_per_rack;
                let delay_ps = switch.delay_ps;
                let nic = |host: u32| Element::Leaf(host / hosts_per_rack);
                let nics = (0..hosts)
                    .map(|host| Port::new(host_link, nic(host), delay_ps, SwitchBuffer::default()));
                let down = (0..hosts)
                    .map(|host| Port::new(host_link, Element::Host(host), 0, switch.buffer));
                let up = (0..racks * spines).map(|index| {
                    Port::new(spine_link, Element::Spine(index % spines), delay_ps, switch.buffer)
                });
                let across = (0..spines * racks).map(|index| {
                    Port::new(spine_link, Element::Leaf(index % racks), delay_ps, switch.buffer)
                });
                let map = Map { hosts, hosts_per_rack, racks, spines, spreading };
                (map, nics.chain(down).chain(up).chain(across).collect())
            }
        }
    }
}

/// Where ports are, by arithmetic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    hosts: u32,
    hosts_per_rack: u32,
    racks: u32,
    spines: u32,
    spreading: Spreading,
}

impl Map {
    pub(super) fn host_count(&self) -> usize {
        self.hosts as usize
    }

    /// The port of a leaf that leads to a host.
    pub(super) fn last_hop(&self, host: u32) -> u32 {
        self.hosts + host
    }

    /// The port by which a packet leaves a switch.
    pub(super) fn egress(&self, switch: Element, packet: &Packet, draws: &mut Draws) -> u32 {
        let rack = packet.to / self.hosts_per_rack;
        match switch {
            Element::Leaf(leaf) if leaf == rack => self.last_hop(packet.to),
            Element::Leaf(leaf) => 2 * self.hosts + leaf * self.spines + self.spine(packet, draws),
            Element::Spine(spine) => {
                2 * self.hosts + self.racks * self.spines + spine * self.racks + rack
            }
            Element::Host(host) => unreachable!("host {host} is no switch"),
        }
    }

    fn spine(&self, packet: &Packet, draws: &mut Draws) -> u32 {
        match self.spreading {
            Spreading::Spray => draws.below(self.spines),
            Spreading::Flow => {
                let flow = u64::from(packet.from) << 32 | u64::from(packet.to);
                Draws::new(flow).below(self.spines)
            }
        }
    }
}
