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

/// Links and switches that join hosts, however many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Each host's link, both ways.
    pub link: Link,
    /// Every switch.
    pub switch: Switch,
    /// Racks under a leaf each, all leaves joined by every spine; `None` for one switch.
    pub racks: Option<Racks>,
}

/// Racks of hosts, and what joins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Racks {
    /// Hosts at each leaf, at least 1. Hosts fill the racks in order.
    pub hosts: u32,
    /// Spines, at least 1.
    pub spines: u32,
    /// Each link between leaf and spine, both ways.
    pub link: Link,
    /// How a leaf chooses a spine.
    pub spreading: Spreading,
}

impl Topology {
    /// Leaves, hosts at each and spines of a topology for `hosts` hosts. One switch is a leaf
    /// without spines.
    fn shape(&self, hosts: u32) -> (u32, u32, u32) {
        let hosts_per_rack = self.racks.map_or(hosts, |racks| racks.hosts).max(1);
        let spines = self.racks.map_or(0, |racks| racks.spines.max(1));
        (hosts.div_ceil(hosts_per_rack), hosts_per_rack, spines)
    }

    /// The ports for whole racks of at least `hosts` hosts, in the order that [`Map`] computes
    /// with.
    pub(super) fn build(&self, hosts: u32) -> (Map, Vec<Port>) {
        let (racks, hosts_per_rack, spines) = self.shape(hosts);
        let hosts = racks * hosts_per_rack;
        let Self { link, switch: Switch { delay_ps, buffer }, .. } = *self;
        let Racks { link: spine_link, spreading, .. } =
            self.racks.unwrap_or(Racks { hosts, spines, link, spreading: Spreading::Spray });
        let nics = (0..hosts).map(|host| {
            Port::new(link, Element::Leaf(host / hosts_per_rack), delay_ps, SwitchBuffer::default())
        });
        let down = (0..hosts).map(|host| Port::new(link, Element::Host(host), 0, buffer));
        let between = |to: Element| Port::new(spine_link, to, delay_ps, buffer);
        let up = (0..racks * spines).map(|index| between(Element::Spine(index % spines)));
        let across = (0..spines * racks).map(|index| between(Element::Leaf(index % racks)));
        let ports = nics.chain(down).chain(up).chain(across).collect();
        (Map { hosts, hosts_per_rack, racks, spines, spreading }, ports)
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
