//! Links and switches between hosts, and the paths that packets take.
//!
//! Ports are numbered so that no table is needed to find them: first the NICs of the hosts, then
//! the ports of leaves towards hosts, then those of leaves towards spines, then those of spines
//! towards leaves, and where there are pods those of spines towards cores and of cores towards
//! spines.

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

/// Choice of a spine by a leaf, and of a core by a spine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spreading {
    /// Each packet takes one at random.
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
    /// Racks under a leaf each, all leaves of a pod joined by each of its spines; `None` for one
    /// switch.
    pub racks: Option<Racks>,
}

/// Racks of hosts, and what joins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Racks {
    /// Hosts at each leaf, at least 1. Hosts fill the racks in order.
    pub hosts: u32,
    /// Spines, of each pod where there are pods, at least 1.
    pub spines: u32,
    /// Each link between leaf and spine, both ways.
    pub link: Link,
    /// Choice of a spine by a leaf, and of a core by a spine.
    pub spreading: Spreading,
    /// Groups of racks, joined by cores; `None` where all racks are under the same spines.
    pub pods: Option<Pods>,
}

/// Pods of racks, and what joins them (a fat tree): each spine of a pod, and those at its place in
/// the others, are joined by cores of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pods {
    /// Racks of each pod, at least 1. Racks fill the pods in order.
    pub racks: u32,
    /// Cores above each spine, at least 1.
    pub cores: u32,
    /// Each link between spine and core, both ways. Where those of a pod carry less than those of
    /// its racks, the core is oversubscribed.
    pub link: Link,
}

impl Topology {
    /// The ports for whole racks and pods of at least `hosts` hosts, in the order that [`Map`]
    /// computes with. One switch is a leaf without spines.
    pub(super) fn build(&self, hosts: u32) -> (Map, Vec<Port>) {
        let Self { link, switch: Switch { delay_ps, buffer }, .. } = *self;
        let racks = self.racks.unwrap_or(Racks {
            hosts,
            spines: 0,
            link,
            spreading: Spreading::Spray,
            pods: None,
        });
        let hosts_per_rack = racks.hosts.max(1);
        let spines = if self.racks.is_some() { racks.spines.max(1) } else { 0 };
        let count = hosts.div_ceil(hosts_per_rack);
        let one = Pods { racks: count, cores: 0, link: racks.link };
        let pods = racks.pods.map_or(one, |pods| Pods { cores: pods.cores.max(1), ..pods });
        let racks_per_pod = pods.racks.max(1);
        let pod_count = count.div_ceil(racks_per_pod);
        let map = Map {
            hosts: pod_count * racks_per_pod * hosts_per_rack,
            hosts_per_rack,
            racks_per_pod,
            pods: pod_count,
            spines,
            cores: pods.cores,
            spreading: racks.spreading,
        };
        let to_leaf = |host: u32| Element::Leaf(host / hosts_per_rack);
        let nics = (0..map.hosts)
            .map(|host| Port::new(link, to_leaf(host), delay_ps, SwitchBuffer::default()));
        let to_hosts = (0..map.hosts).map(|host| Port::new(link, Element::Host(host), 0, buffer));
        let between = |link: Link, to: Element| Port::new(link, to, delay_ps, buffer);
        let to_spines = (0..map.racks() * spines)
            .map(|at| between(racks.link, map.spine_at(at / spines / racks_per_pod, at % spines)));
        let to_leaves = (0..map.spines() * racks_per_pod).map(|at| {
            let (spine, rack) = (at / racks_per_pod, at % racks_per_pod);
            between(racks.link, Element::Leaf(spine / spines * racks_per_pod + rack))
        });
        let to_cores = (0..map.spines() * map.cores).map(|at| {
            let (spine, core) = (at / map.cores, at % map.cores);
            between(pods.link, Element::Core(spine % spines * map.cores + core))
        });
        let from_cores = (0..spines * map.cores * map.pods).map(|at| {
            let (core, pod) = (at / map.pods, at % map.pods);
            between(pods.link, map.spine_at(pod, core / map.cores))
        });
        let ports = nics.chain(to_hosts).chain(to_spines).chain(to_leaves);
        (map, ports.chain(to_cores).chain(from_cores).collect())
    }
}

/// A topology in regions, between which packets take their time: racks in order, and what joins
/// them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    map: Map,
    regions: u32,
    /// The least time from one to another, ps.
    lookahead_ps: u64,
}

impl Split {
    /// The topology for `hosts` hosts in as many regions as it has racks, or in [`REGIONS_MAX`].
    pub(crate) fn of(topology: &Topology, hosts: u32) -> Self {
        let (map, ports) = topology.build(hosts);
        let between_switches = ports.iter().skip(2 * map.host_count());
        let lookahead_ps = between_switches.map(|port| port.delay_ps).min().unwrap_or(u64::MAX);
        Self { map, regions: map.racks().min(REGIONS_MAX), lookahead_ps }
    }

    pub(crate) fn regions(&self) -> u32 {
        self.regions
    }

    pub(crate) fn lookahead_ps(&self) -> u64 {
        self.lookahead_ps
    }

    /// The region of a host.
    pub(crate) fn of_host(&self, host: u32) -> u32 {
        self.of_rack(host / self.map.hosts_per_rack)
    }

    /// The region that has the port by which a packet for `to` leaves an element. Those of spines
    /// towards a leaf are that leaf's, so that a packet between racks of a pod is handed over once.
    pub(super) fn of_egress(&self, element: Element, to: u32) -> u32 {
        let rack = to / self.map.hosts_per_rack;
        match element {
            Element::Host(host) => self.of_host(host),
            Element::Leaf(leaf) => self.of_rack(leaf),
            Element::Spine(spine) if spine / self.map.spines == rack / self.map.racks_per_pod => {
                self.of_rack(rack)
            }
            Element::Spine(number) | Element::Core(number) => number % self.regions,
        }
    }

    fn of_rack(&self, rack: u32) -> u32 {
        rack * self.regions / self.map.racks()
    }
}

/// Regions of a topology, each of which has all ports, though it uses few of them.
const REGIONS_MAX: u32 = 16;

/// Numbering of ports, by arithmetic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    /// Hosts, of whole pods.
    hosts: u32,
    /// Hosts at each leaf.
    hosts_per_rack: u32,
    /// Racks of each pod.
    racks_per_pod: u32,
    /// Pods; one where there are no cores.
    pods: u32,
    /// Spines of each pod.
    spines: u32,
    /// Cores above each spine; 0 where there is one pod.
    cores: u32,
    /// Choice of one of several paths.
    spreading: Spreading,
}

impl Map {
    pub(super) fn host_count(&self) -> usize {
        self.hosts as usize
    }

    fn racks(&self) -> u32 {
        self.pods * self.racks_per_pod
    }

    /// Spines of all pods.
    fn spines(&self) -> u32 {
        self.pods * self.spines
    }

    /// A spine of a pod.
    fn spine_at(&self, pod: u32, place: u32) -> Element {
        Element::Spine(pod * self.spines + place)
    }

    /// The port of a leaf that leads to a host.
    pub(super) fn last_hop(&self, host: u32) -> u32 {
        self.hosts + host
    }

    /// The port by which a packet leaves a switch.
    #[inline]
    pub(super) fn egress(&self, switch: Element, packet: &Packet, draws: &mut Draws) -> u32 {
        let rack = packet.to / self.hosts_per_rack;
        match switch {
            Element::Leaf(leaf) if leaf == rack => self.last_hop(packet.to),
            Element::Leaf(leaf) => {
                2 * self.hosts + leaf * self.spines + self.way(Tier::Spines, packet, draws)
            }
            Element::Spine(spine) => {
                let to_leaves = 2 * self.hosts + self.racks() * self.spines;
                // There are no pods to tell apart, which would be two divisions a packet.
                if self.cores == 0 {
                    return to_leaves + spine * self.racks_per_pod + rack;
                }
                let (pod, place) = (rack / self.racks_per_pod, rack % self.racks_per_pod);
                if spine / self.spines == pod {
                    return to_leaves + spine * self.racks_per_pod + place;
                }
                let to_cores = to_leaves + self.spines() * self.racks_per_pod;
                to_cores + spine * self.cores + self.way(Tier::Cores, packet, draws)
            }
            Element::Core(core) => {
                let to_cores = 2 * self.hosts + 2 * self.racks() * self.spines;
                let from_cores = to_cores + self.spines() * self.cores;
                from_cores + core * self.pods + rack / self.racks_per_pod
            }
            Element::Host(host) => unreachable!("host {host} is no switch"),
        }
    }

    /// One of the ways up to a tier, all of which lead to the same end.
    fn way(&self, to: Tier, packet: &Packet, draws: &mut Draws) -> u32 {
        // Were both drawn from one number, flows that share a spine would share a core too.
        let (count, salt) = match to {
            Tier::Spines => (self.spines, 0),
            Tier::Cores => (self.cores, 1 << 63),
        };
        match self.spreading {
            Spreading::Spray => draws.below(count),
            Spreading::Flow => {
                let flow = u64::from(packet.from) << 32 | u64::from(packet.to);
                Draws::new(flow | salt).below(count)
            }
        }
    }
}

/// Switches with only switches below.
#[derive(Clone, Copy, Debug)]
enum Tier {
    /// Above leaves.
    Spines,
    /// Above spines.
    Cores,
}
