//! Seals without the nodes around them: what each makes of a packet, and what it counts.

use tailcut_wire::r2p2::{Flags, ReplyHeader, RequestRepr, Route, SackBody, SessionId};

use super::*;

/// The seals of a client, and of the router and the server that it may send to.
pub(crate) struct Seals {
    pub(crate) now: Time,
    pub(crate) keys: Keys,
    pub(crate) client: EndpointSeal,
    pub(crate) router: RouterSeal,
    pub(crate) server: EndpointSeal,
}

impl Seals {
    /// Seals of a client that has begun a session, some time after the others have started.
    pub(crate) fn new() -> Self {
        let keys = keys(Cipher::Aes128Gcm, u64::MAX);
        let now = START + 10 * MS;
        let mut client = endpoint(&of_role(&keys, Role::Client(17)), 1);
        client.note_session(now, SESSION);
        let router = router_seal(&of_role(&keys, Role::Router), 2);
        let server = endpoint(&of_role(&keys, Role::Server), 3);
        Self { now, keys, client, router, server }
    }

    /// A packet that the client sends to an address now.
    pub(crate) fn of_client(&mut self, to: &str, repr: &RequestRepr) -> Vec<u8> {
        let mut bytes = to_server(repr);
        assert!(self.client.seal(self.now, at(to), &mut bytes), "{repr:?}");
        bytes
    }

    /// Has the client learn the name of who is at an address.
    pub(crate) fn introduce(&mut self, to: &str) {
        let mut asking = self.of_client(to, &request(0));
        let mut answer = match to {
            ROUTER => {
                assert!(self.router.open(self.now, at(CLIENT), &mut asking).is_some());
                self.held(0, 0)
            }
            _ => {
                assert!(self.server.open(self.now, at(CLIENT), &mut asking).is_some());
                answer(&mut self.server, self.now, &ack(0), &sack(0))
            }
        };
        assert!(self.client.open(self.now, at(to), &mut answer).is_some());
        assert_ne!(self.client.name(self.now, at(to), false), 0);
    }

    /// Verdict of the router on a packet of a client, from an address.
    pub(crate) fn verdict(&mut self, from: &str, bytes: &[u8]) -> Option<SealVerdict> {
        let opened = self.router.open(self.now, at(from), &mut bytes.to_vec());
        opened.map(|_| self.router.verdict())
    }

    /// The router's ACK that it holds the request of that sequence, with so much credit.
    pub(crate) fn held(&mut self, sequence: u32, granted: u16) -> Vec<u8> {
        let repr = ReplyRepr { flags: Flags::HELD, ..ack(sequence) };
        self.of_router(&repr, &sack(granted))
    }

    /// Packet that the router sends to the client.
    pub(crate) fn of_router(&mut self, repr: &ReplyRepr, payload: &[u8]) -> Vec<u8> {
        let mut bytes = [repr.header().as_bytes(), payload].concat();
        let to = (at(CLIENT), Some(ClientEpoch::new(17, 7)));
        assert!(self.router.seal(self.now, to, &mut bytes), "{repr:?}");
        bytes
    }
}

/// Node at the far end of a router: a server, or another router.
pub(crate) trait Neighbour {
    fn opens(&mut self, now: Time, bytes: &[u8]) -> bool;
    /// A packet for the router, if it may go.
    fn says(&mut self, now: Time, repr: &ReplyRepr) -> Option<Vec<u8>>;
    /// True if what was opened last asks for the name.
    fn is_asked(&self) -> bool;
}

impl Neighbour for EndpointSeal {
    fn opens(&mut self, now: Time, bytes: &[u8]) -> bool {
        self.open(now, at(ROUTER), &mut bytes.to_vec()).is_some()
    }

    fn says(&mut self, now: Time, repr: &ReplyRepr) -> Option<Vec<u8>> {
        let mut bytes = from_server(repr, &[]);
        self.seal(now, at(ROUTER), &mut bytes).then_some(bytes)
    }

    fn is_asked(&self) -> bool {
        self.is_unnamed()
    }
}

impl Neighbour for RouterSeal {
    fn opens(&mut self, now: Time, bytes: &[u8]) -> bool {
        self.open(now, at(ROUTER), &mut bytes.to_vec()).is_some()
    }

    fn says(&mut self, now: Time, repr: &ReplyRepr) -> Option<Vec<u8>> {
        let mut bytes = repr.header().as_bytes().to_vec();
        self.seal(now, (at(ROUTER), None), &mut bytes).then_some(bytes)
    }

    fn is_asked(&self) -> bool {
        self.verdict() == SealVerdict::Unnamed
    }
}

/// Has a router at [`ROUTER`], and who is at [`SERVER`], hear of each other.
pub(crate) fn acquaint(now: Time, router: &mut RouterSeal, server: &mut impl Neighbour) {
    for (answer, is_asked) in [(MessageType::Ack, true), (MessageType::Feedback, false)] {
        let probe = of_router(now, router, MessageType::Probe).expect("anybody may be probed");
        assert!(server.opens(now, &probe));
        assert_eq!(server.is_asked(), is_asked, "the first probe names nobody");
        let answer = ReplyRepr::control(answer, 0, RpcId(0));
        let mut answer = server.says(now, &answer).expect("the router has been heard of");
        assert!(router.open(now, at(SERVER), &mut answer).is_some());
    }
}

/// Packet of a router's own to the node at [`SERVER`], if it may send one.
pub(crate) fn of_router(now: Time, router: &mut RouterSeal, kind: MessageType) -> Option<Vec<u8>> {
    let mut bytes = RequestRepr::control(kind, 0, RpcId(0)).header().as_bytes().to_vec();
    router.seal(now, (at(SERVER), None), &mut bytes).then_some(bytes)
}

/// A client's request as a router passes it on to who is at [`SERVER`].
pub(crate) fn passed_on(now: Time, router: &mut RouterSeal, request: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_vec();
    let route = Route { routed: 1, ..Route::to_client(at(CLIENT)) };
    bytes[48..72].copy_from_slice(route.as_bytes());
    assert!(router.seal(now, (at(SERVER), None), &mut bytes));
    bytes
}

/// Has three routers be at one address, one after the other; tells of which of them the neighbour
/// takes requests in the end.
pub(crate) fn taken_of_three(seals: &mut Seals, neighbour: &mut impl Neighbour) -> Vec<bool> {
    let (now, sealing) = (seals.now, of_role(&seals.keys, Role::Router));
    let request = seals.of_client(ROUTER, &request(1));
    let mut routers: Vec<RouterSeal> = (10..13).map(|seed| router_seal(&sealing, seed)).collect();
    for router in &mut routers {
        acquaint(now, router, neighbour);
        let request = passed_on(now, router, &request);
        assert!(neighbour.opens(now, &request), "of the one that is known there");
    }
    let mut taken = |router| neighbour.opens(now, &passed_on(now, router, &request));
    routers.iter_mut().map(&mut taken).collect()
}

/// Configuration that a role seals with: by one clock for all, unless it is changed.
pub(crate) fn of_role(keys: &Keys, role: Role) -> Sealing {
    Sealing::new(Arc::new(keys.for_role(role).unwrap()), 0)
}

/// The seal of a node that has started at [`START`].
pub(crate) fn endpoint(sealing: &Sealing, secret: u8) -> EndpointSeal {
    EndpointSeal::new(START, sealing, &[secret; 16], (64, None))
}

pub(crate) fn router_seal(sealing: &Sealing, seed: u64) -> RouterSeal {
    RouterSeal::new(sealing, seed, RouterLimits { clients_max: 16, lifetime_ns_max: LIFETIME })
}

pub(crate) fn call(sequence: u32) -> RpcId {
    RpcId::new(SessionId(SESSION), sequence)
}

pub(crate) fn request(sequence: u32) -> RequestRepr {
    RequestRepr::control(MessageType::Request, 0, call(sequence))
}

pub(crate) fn ack(sequence: u32) -> ReplyRepr {
    ReplyRepr::control(MessageType::Ack, 0, call(sequence))
}

pub(crate) fn response(sequence: u32) -> ReplyRepr {
    ReplyRepr::control(MessageType::Response, 0, call(sequence))
}

/// The payload of an ACK that lets so many packets go.
pub(crate) fn sack(granted: u16) -> Vec<u8> {
    let sack = SackBody { base: 0.into(), granted: granted.into(), bitmap: [0; 32] };
    sack.as_bytes().to_vec()
}

/// A packet that has yet to be sealed.
pub(crate) fn to_server(repr: &RequestRepr) -> Vec<u8> {
    let mut bytes = vec![0; repr.header_len() + TRAILER_LEN];
    repr.emit(&mut bytes);
    bytes
}

/// A server's packet that has yet to be sealed.
pub(crate) fn from_server(repr: &ReplyRepr, payload: &[u8]) -> Vec<u8> {
    [repr.header().as_bytes(), payload, &[0; TRAILER_LEN]].concat()
}

/// Answer of a server to the client whose packet it has opened last.
pub(crate) fn answer(
    server: &mut EndpointSeal,
    now: Time,
    repr: &ReplyRepr,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = from_server(repr, payload);
    assert!(server.seal(now, at(CLIENT), addressed_to(server.addressee(), &mut bytes)));
    bytes
}

/// Says behind a packet whom it is to be sealed for.
pub(crate) fn addressed_to(addressee: u64, bytes: &mut [u8]) -> &mut [u8] {
    *bytes.last_chunk_mut().unwrap() = addressee.to_be_bytes();
    bytes
}

/// The clock that a server's packet echoes.
pub(crate) fn echo(bytes: &[u8]) -> u32 {
    ReplyHeader::ref_from_prefix(bytes).unwrap().0.clock_echo_us.get()
}

/// The client's 40 bits of its calls' ids.
pub(crate) const SESSION: u64 = 0x12_3456_789a;

/// The longest that a call lasts.
pub(crate) const LIFETIME: Time = 500 * MS;

#[test]
fn a_stranger_cannot_make_a_captured_reply_another_clients() {
    let mut seals = Seals::new();
    let request = seals.of_client(SERVER, &request(1));
    seals.server.open(seals.now, at(CLIENT), &mut request.clone());
    let mut reply = answer(&mut seals.server, seals.now, &response(1), b"reply");
    let mut forged = request.clone();
    let client = forged.len() - 14;
    forged[client] ^= 1;
    let mut reader = Reader::new(seals.keys).unwrap();
    let (there, back) = ((at(CLIENT), at(SERVER)), (at(SERVER), at(CLIENT)));
    assert!(reader.open(there, &mut request.clone()));
    assert!(!reader.open(there, &mut forged));
    assert!(reader.open(back, &mut reply));
    assert_eq!(reply[48..53], *b"reply");
}

/// Packets that seals do not pass are counted by each of them.
#[test]
fn what_may_not_be_sealed_is_counted() {
    let mut seals = Seals::new();
    let now = seals.now;
    let other = RequestRepr { rpc_id: RpcId::new(SessionId(SESSION + 1), 1), ..request(1) };
    for wrong in [to_server(&other), from_server(&response(1), &[])] {
        assert!(!seals.client.seal(now, at(SERVER), &mut wrong.clone()), "{wrong:?}");
    }
    assert_eq!(seals.client.metrics().unsealable, 2);
    // To a server that has not been heard of.
    let mut request = seals.of_client(ROUTER, &request(1));
    assert!(!seals.router.seal(now, (at(SERVER), None), &mut request));
    assert!(!seals.router.seal(now, (at(SERVER), None), &mut request));
    assert_eq!(seals.router.metrics().unsealable, 2);
    // To a router that has not; and through one, which would have to know the client.
    let mut returned = [0; 72 + TRAILER_LEN];
    response(1).emit_returned(at(CLIENT), &mut returned);
    let returned = addressed_to(ClientEpoch::new(17, 7).addressee(), &mut returned);
    assert!(!seals.server.seal(now, at(CLIENT), returned));
    let feedback = ReplyRepr::control(MessageType::Feedback, 0, RpcId(0));
    assert_eq!(seals.server.says(now, &feedback), None);
    assert_eq!(seals.server.metrics().unsealable, 2);
}

/// 0 names nobody: a name whose low byte alone is drawn or given would.
#[test]
fn every_node_has_a_name() {
    let sealing = of_role(&keys(Cipher::Aes128Gcm, u64::MAX), Role::Server);
    for (given, drawn) in [(None, 0x7f), (Some(0x7f), 0), (Some(0), 0)] {
        let own = Sealing { name: given, ..sealing.clone() }.own_name(|| drawn);
        assert!(own.name != 0 && own.name & 0xff == 0, "{own:?}");
    }
}

#[test]
fn a_client_s_keys_make_no_router() {
    let seal = sealing(&keys(Cipher::Aes128Gcm, u64::MAX), Role::Client(17));
    let config = RouterConfig { seal, ..RouterConfig::default() };
    let error = Router::new(START, config).unwrap_err();
    assert!(matches!(error, crate::router::RouterError::KeysOfClient), "{error}");
}
