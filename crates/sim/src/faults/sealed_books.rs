//! Books of the watch where packets are sealed.
//!
//! Headers are read as if packets were open. Which call a request is of is told by its first
//! packet, that is opened as it leaves its client.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::net::SocketAddr;

use siphasher::sip128::Hasher128 as _;
use siphasher::{sip, sip128};
use tailcut_proto::sealed::Reader;
use tailcut_wire::r2p2::sealed::{
    COALESCED_VERSION, HOP_VERSION, RESET_VERSION, SEALED_VERSION, TRAILER_LEN, Trailer, VERSION_AT,
};
use tailcut_wire::r2p2::{EXTENDED_LEN, EXTENSION_VERSION, Packet};
use zerocopy::FromBytes;

use super::Invariant;
use super::homa_seals;
use super::plan::{Attack, Fault, FaultKind, Host, Plan, Transport};
use super::recorder::{Expected, PacketKind, Recorder, is_answer, may_be_answered};

/// The books of a run whose packets are sealed.
#[derive(Debug)]
pub(super) struct SealedBooks {
    /// With the group's keys.
    reader: Reader,
    /// The transport of all hosts.
    transport: Transport,
    /// There are streams, of which payloads tell whom a server may call.
    has_streams: bool,
    /// Packets that strangers have heard, where they send them again.
    pub(super) recorder: Option<Recorder>,
    /// Largest permitted effect of the datagram that a stranger sends just now.
    pub(super) intruding: Option<Expected>,
    /// Servers that have not the group's keys.
    keyless: BTreeSet<usize>,
    /// By host: answers of who has no key that have yet to leave.
    answers: BTreeMap<Host, u64>,
    /// The group's reset secret, and the number of each client.
    reset: Option<([u8; 16], Vec<u32>)>,
    /// By call: servers whose wall clocks are apart from that of its client.
    apart: BTreeSet<(usize, usize)>,
    /// By call: its client, and the number of that.
    clients: Vec<(usize, u32)>,
    /// Every call is to be answered.
    is_to_be_served: bool,
}

impl SealedBooks {
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        let reader = plan.reader()?;
        let is_heard = plan.has_attack(Attack::Forged) || plan.has_attack(Attack::Replayed);
        let pairs = (0..plan.clients.len())
            .flat_map(|client| (0..plan.servers.len()).map(move |server| (client, server)));
        let is_set = |host: Host| {
            let sets = |fault: &Fault| matches!(fault.kind, FaultKind::WallClock { host: set, .. } if set == host);
            plan.faults.iter().any(sets)
        };
        let are_apart = |&(client, server): &(usize, usize)| {
            let (client, server) = (Host::Client(client), Host::Server(server));
            plan.are_apart(client, server) && !is_set(client) && !is_set(server)
        };
        let seal = plan.seal.unwrap_or_default();
        let secret = seal.reset_secret(plan.seed);
        let numbers = (0..plan.clients.len()).map(|client| seal.number(client));
        Some(Self {
            reader,
            transport: plan.transport,
            has_streams: !plan.streams.is_empty(),
            recorder: is_heard.then(|| Recorder::new(plan.transport)),
            intruding: None,
            keyless: BTreeSet::new(),
            answers: BTreeMap::new(),
            reset: secret.map(|secret| (secret, numbers.collect())),
            apart: pairs.filter(are_apart).collect(),
            clients: (plan.calls.iter())
                .map(|call| (call.client, seal.number(call.client)))
                .collect(),
            is_to_be_served: plan.is_to_be_served || plan.loses_nothing,
        })
    }

    /// A datagram arrives; what it may do, if it is a stranger's.
    pub(super) fn arrives(
        &mut self,
        at: (Host, u32),
        (from, datagram): (SocketAddr, &[u8]),
        numbers: &BTreeMap<u64, u32>,
    ) -> Option<Expected> {
        if let (Some(recorder), None) = (&mut self.recorder, self.intruding) {
            let kind = PacketKind::of(self.transport, datagram);
            let (id, is_for_client) = match self.transport {
                Transport::R2p2 => (rpc_of(datagram), kind.is_some_and(PacketKind::is_for_client)),
                Transport::Homa(_) => {
                    (homa_seals::rpc_of(datagram), homa_seals::is_for_client(datagram))
                }
            };
            let owner = id.and_then(|id| self.clients.get(*numbers.get(&id)? as usize).copied());
            let is_at = |owner: usize| !is_for_client || at.0 == Host::Client(owner);
            // A refusal of what strangers have sent from elsewhere would end a call.
            if !self.is_to_be_served || owner.is_none_or(|(client, _)| is_at(client)) {
                recorder.note(at, (from, owner.map(|(_, number)| number)), datagram);
            }
        }
        self.intruding
    }

    /// Notes that the receiver of the last datagram had not the keys for it.
    pub(super) fn note_unread(&mut self) {
        if let (Some(recorder), None) = (&mut self.recorder, self.intruding) {
            recorder.note_unread();
        }
    }

    /// A client sends: learns the number of the call.
    pub(super) fn leaves(
        &mut self,
        client: Host,
        to: SocketAddr,
        datagram: &[u8],
        numbers: &mut BTreeMap<u64, u32>,
    ) {
        if matches!(self.transport, Transport::Homa(_)) {
            // The client itself has told it.
            return;
        }
        for packet in shown(Some(self), (client.address(), to), datagram) {
            let Ok(packet) = Packet::parse(&packet) else { continue };
            let is_first = packet.is_data() && packet.index == 0;
            let id = packet.rpc_id().filter(|id| is_first && !numbers.contains_key(&id.0));
            let Some(id) = id else { continue };
            let mut opened = datagram.to_vec();
            let payload = match is_coalesced(datagram) {
                true => packet.payload,
                false => {
                    let is_open = self.reader.open((client.address(), to), &mut opened);
                    assert!(is_open, "{packet} is not sealed");
                    opened.get(usize::from(opened[1])..).unwrap_or_default()
                }
            };
            if let Some(number) = payload.first_chunk() {
                numbers.insert(id.0, u32::from_le_bytes(*number));
            }
        }
    }

    /// A host answers that it has no key of a datagram's epoch. What it breaks by that, if
    /// anything.
    pub(super) fn note_answer(&mut self, host: Host, datagram: &[u8]) -> Option<String> {
        *self.answers.entry(host).or_default() += 1;
        (!may_be_answered(self.transport != Transport::R2p2, datagram)).then(|| {
            format!("{host} answers {} B that ask nothing: {datagram:02x?}", datagram.len())
        })
    }

    /// Such an answer leaves; false if nobody has asked.
    pub(super) fn answer_leaves(&mut self, host: Host) -> bool {
        let left = self.answers.get_mut(&host).and_then(|answers| {
            *answers = answers.checked_sub(1)?;
            Some(())
        });
        left.is_some()
    }

    /// True of such an answer.
    pub(super) fn is_answer(&self, datagram: &[u8]) -> bool {
        is_answer(self.transport, datagram)
    }

    /// Makes an answer one to another request.
    pub(super) fn turn_answer(&self, request: &[u8], answer: &mut [u8]) {
        let (of_answer, of_request) = (answer.len() - 16, request.len() - 16);
        answer[of_answer..][..8].copy_from_slice(&request[of_request..][..8]);
        if let Transport::Homa(_) = self.transport {
            return homa_seals::turn_answer(request, answer);
        }
        for field in [6..16, 22..24] {
            answer[field.clone()].copy_from_slice(&request[field]);
        }
    }

    /// Gives what is for a client the tag of whoever knows its reset key.
    pub(super) fn tag_answer(&self, client: Host, answer: &mut [u8]) {
        let (Some((secret, numbers)), Host::Client(index)) = (&self.reset, client) else { return };
        let mut hasher = sip128::SipHasher24::new_with_key(secret);
        hasher.write(&numbers[index].to_be_bytes());
        let key = hasher.finish128().as_bytes();
        let mut hasher = sip::SipHasher24::new_with_key(&key);
        let (rest, tag) = answer.split_at_mut(answer.len() - 8);
        hasher.write(rest);
        tag.copy_from_slice(&hasher.finish().to_be_bytes());
    }

    /// The client of a call.
    pub(super) fn client(&self, number: u32) -> Host {
        Host::Client(self.clients[number as usize].0)
    }

    /// A server has its keys, or has lost them.
    pub(super) fn note_keys(&mut self, server: usize, has_keys: bool) {
        match has_keys {
            true => self.keyless.remove(&server),
            false => self.keyless.insert(server),
        };
    }

    /// A promise that a server breaks by running a call.
    pub(super) fn broken_by_run(&self, server: usize, number: u32) -> Option<(Invariant, String)> {
        let (client, _) = self.clients[number as usize];
        if self.keyless.contains(&server) {
            let detail = format!("server {server}, which has no keys, runs call {number}");
            return Some((Invariant::LostKeys, detail));
        }
        self.apart.contains(&(client, server)).then(|| {
            let detail = format!("server {server} runs call {number}, and their clocks are apart");
            (Invariant::Clocks, detail)
        })
    }
}

/// The id of the call that a packet of R2P2 is about.
fn rpc_of(datagram: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*datagram.get(8..)?.first_chunk()?))
}

/// The names on a packet that is authenticated for one hop, for people.
pub(super) fn names_on(datagram: &[u8]) -> String {
    match Trailer::ref_from_suffix(datagram) {
        Ok((_, trailer)) if datagram.get(VERSION_AT) == Some(&HOP_VERSION) => {
            let (sender, receiver) = trailer.names();
            format!(" from {sender:x} for {receiver:x} at {}", trailer.count())
        }
        _ => String::new(),
    }
}

/// True of a datagram of several packets.
fn is_coalesced(datagram: &[u8]) -> bool {
    datagram.get(VERSION_AT) == Some(&COALESCED_VERSION)
}

/// The packets of a datagram between two addresses as they would be if they were open: nearly
/// always one. The payload of a sealed one is noise, but of streams, and of several that go
/// together.
pub(super) fn shown<'a>(
    mut books: Option<&mut SealedBooks>,
    ends: (SocketAddr, SocketAddr),
    datagram: &'a [u8],
) -> Vec<Cow<'a, [u8]>> {
    if let Some(books) = &mut books
        && books.transport == Transport::R2p2
        && is_coalesced(datagram)
    {
        let mut opened = datagram.to_vec();
        if books.reader.open(ends, &mut opened) {
            let packets = Reader::packets(&opened, true);
            return packets.map(|packet| Cow::Owned(packet.to_vec())).collect();
        }
    }
    vec![shown_alone(books, ends, datagram)]
}

fn shown_alone<'a>(
    mut books: Option<&mut SealedBooks>,
    ends: (SocketAddr, SocketAddr),
    datagram: &'a [u8],
) -> Cow<'a, [u8]> {
    if let Some(books) = &mut books
        && matches!(books.transport, Transport::Homa(_))
    {
        let mut opened = datagram.to_vec();
        // What strangers send again says nothing of which server is where.
        let is_told = books.intruding.is_none() || !homa_seals::is_for_client(datagram);
        let is_read = books.has_streams && is_told && datagram.len() > TRAILER_LEN;
        if is_read && books.reader.open_homa(ends, &mut opened) {
            opened.truncate(datagram.len() - TRAILER_LEN);
            return Cow::Owned(opened);
        }
        return homa_seals::shown(datagram);
    }
    let is_of_seal = books.is_some()
        && datagram.len() >= EXTENDED_LEN + TRAILER_LEN
        && matches!(
            datagram[VERSION_AT],
            SEALED_VERSION | HOP_VERSION | COALESCED_VERSION | RESET_VERSION
        );
    if !is_of_seal {
        return Cow::Borrowed(datagram);
    }
    let mut open = datagram[..datagram.len() - TRAILER_LEN].to_vec();
    open[VERSION_AT] = EXTENSION_VERSION;
    Cow::Owned(open)
}
