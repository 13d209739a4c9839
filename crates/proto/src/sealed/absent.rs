//! Sealed R2P2 on a machine that aws-lc does not know: there is no seal, and no way to make one.

mod client_epoch;
mod limits;

use std::net::SocketAddr;
use std::sync::Arc;

pub use self::client_epoch::{CLIENT_MAX, ClientEpoch};
pub(crate) use self::limits::{ANSWER_LEN, ANSWERS_MAX, HOMA_ANSWER_LEN};
pub use self::limits::{LostKeys, NoKey, RouterLimits, SealVerdict};

use crate::node::{Time, Transmit};
use crate::rpc::Caller;

/// Bytes that sealing adds to a packet.
pub use tailcut_wire::r2p2::sealed::TRAILER_LEN;

/// Configuration of a seal; there is none here.
#[derive(Clone, Debug)]
pub enum Sealing {}

/// Keys; there are none here.
#[derive(Clone, Debug)]
pub enum Keys {}

/// Reason why keys are refused; there are none here.
#[derive(Clone, Debug)]
pub enum ChangedKeys {}

/// State of a seal that a data plane is told; there is none here.
#[derive(Clone, Debug)]
pub struct PlaneSeal;

/// A session that it is told of; there is none here.
#[derive(Clone, Debug)]
pub struct PlaneSession;

/// A policy; there is none here.
#[derive(Clone, Debug)]
pub enum Access {}

/// A request that a policy has refused; there is none here.
#[derive(Clone, Debug)]
pub enum Denial {}

impl std::fmt::Display for Denial {
    fn fmt(&self, _formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

/// The code with which a policy's refusals go; there are none here.
pub const DENIED_CODE: u32 = 7;

impl Sealing {
    /// True if the keys are a client's.
    pub fn is_client(&self) -> bool {
        match *self {}
    }

    /// See the seal.
    pub(crate) fn slack_ns(&self) -> u64 {
        match *self {}
    }
}

/// The seal of an endpoint; there is none here.
#[derive(Debug)]
pub enum EndpointSeal {}

/// The seal of a router; there is none here.
#[derive(Debug)]
pub enum RouterSeal {}

/// Counters of a seal: zero here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealMetrics {}

#[expect(missing_docs, reason = "they are those of the seal, and are never called")]
impl EndpointSeal {
    pub fn new(
        _now: Time,
        sealing: &Sealing,
        _secret: &[u8; 16],
        _tables: (usize, Option<SocketAddr>),
    ) -> Self {
        match *sealing {}
    }

    pub fn of_homa(_now: Time, sealing: &Sealing, _secret: &[u8; 16], _peers_max: usize) -> Self {
        match *sealing {}
    }

    pub fn gathering(self, _coalesced_len_max: usize) -> Self {
        match self {}
    }

    pub fn metrics(&self) -> SealMetrics {
        match *self {}
    }

    pub fn packet_len(&self) -> usize {
        match *self {}
    }

    pub fn open(&mut self, _now: Time, _peer: SocketAddr, _bytes: &mut [u8]) -> Option<usize> {
        match *self {}
    }

    pub fn set_clock(&mut self, _now: Time, _unix_ns: u64) {
        match *self {}
    }

    pub fn update_keys(&mut self, _now: Time, _keys: &Keys) -> Result<(), ChangedKeys> {
        match *self {}
    }

    pub fn has_access(&self) -> bool {
        match *self {}
    }

    pub fn seal_transmit(
        &mut self,
        _now: Time,
        _transmit: Transmit,
        _buffer: &mut [u8],
    ) -> Option<Transmit> {
        match *self {}
    }

    pub fn is_session_over(&self, _now: Time, _of: (u64, SocketAddr)) -> bool {
        match *self {}
    }

    pub fn is_session_unknown(&self) -> bool {
        match *self {}
    }

    pub fn update_access(&mut self, _access: &Arc<Access>) {
        match *self {}
    }

    pub fn answer(
        &mut self,
        _peer: SocketAddr,
        _bytes: &[u8],
    ) -> Option<(SocketAddr, [u8; ANSWER_LEN])> {
        match *self {}
    }

    pub fn answer_homa(&mut self) -> Option<[u8; HOMA_ANSWER_LEN]> {
        match *self {}
    }

    pub fn lost_keys(&self) -> LostKeys {
        match *self {}
    }

    pub fn note_no_key(&mut self, _now: Time, _peer: SocketAddr, _told: NoKey) -> bool {
        match *self {}
    }

    pub fn take_no_key(&mut self) -> Option<NoKey> {
        match *self {}
    }

    pub fn denials(&self) -> (u64, Option<&Denial>) {
        match *self {}
    }

    pub fn check_access(&mut self, _first: &[u8], _is_whole: bool) -> Result<(), &Denial> {
        match *self {}
    }

    pub fn seal(&mut self, _now: Time, _to: SocketAddr, _bytes: &mut [u8]) -> bool {
        match *self {}
    }

    pub fn is_session_due(&self, _now: Time) -> bool {
        match *self {}
    }

    pub fn note_session(&mut self, _now: Time, _session: u64) {
        match *self {}
    }

    pub fn name(&self, _now: Time, _to: SocketAddr, _is_again: bool) -> u64 {
        match *self {}
    }

    pub fn may_run(&mut self, _now: Time, _address: SocketAddr, _is_sound: bool) -> bool {
        match *self {}
    }

    pub fn note_known(&mut self, _address: SocketAddr) {
        match *self {}
    }

    pub fn is_unnamed(&self) -> bool {
        match *self {}
    }

    pub fn is_server(&self) -> bool {
        match *self {}
    }

    pub fn caller(&self, _client: u32, _session: u64) -> Option<Caller> {
        match *self {}
    }

    pub fn call_back(&mut self, _to: Caller, _sequence_max: u32) -> Option<(ClientEpoch, u32)> {
        match *self {}
    }

    pub fn sender(&self) -> ClientEpoch {
        match *self {}
    }

    pub fn addressee(&self) -> u64 {
        match *self {}
    }
}

#[expect(missing_docs, reason = "they are those of the seal, and are never called")]
impl RouterSeal {
    pub fn new(sealing: &Sealing, _seed: u64, _limits: RouterLimits) -> Self {
        match *sealing {}
    }

    pub fn plane(&self, _now: Time) -> PlaneSeal {
        match *self {}
    }

    pub fn offer(&mut self, _now: Time, _rpc_id: u64) -> Option<PlaneSession> {
        match *self {}
    }

    pub fn names_at(&self, _address: SocketAddr) -> Option<(u64, u64)> {
        match *self {}
    }

    pub fn heard_before(&mut self, _from: SocketAddr, _heard: (u64, u64), _bytes: &[u8]) {
        match *self {}
    }

    pub fn metrics(&self) -> SealMetrics {
        match *self {}
    }

    pub fn open(&mut self, _now: Time, _peer: SocketAddr, _bytes: &mut [u8]) -> Option<usize> {
        match *self {}
    }

    pub fn set_clock(&mut self, _now: Time, _unix_ns: u64) {
        match *self {}
    }

    pub fn update_keys(&mut self, _now: Time, _keys: &Keys) -> Result<(), ChangedKeys> {
        match *self {}
    }

    pub fn seal(
        &mut self,
        _now: Time,
        _to: (SocketAddr, Option<ClientEpoch>),
        _bytes: &mut Vec<u8>,
    ) -> bool {
        match *self {}
    }

    pub fn answer(
        &mut self,
        _peer: SocketAddr,
        _bytes: &[u8],
    ) -> Option<(SocketAddr, [u8; ANSWER_LEN])> {
        match *self {}
    }

    pub fn lost_keys(&self) -> LostKeys {
        match *self {}
    }

    pub fn verdict(&self) -> SealVerdict {
        match *self {}
    }

    pub fn sender(&self) -> ClientEpoch {
        match *self {}
    }

    pub fn age_ns(&self) -> Option<u64> {
        match *self {}
    }

    pub fn slack_ns(&self) -> u64 {
        match *self {}
    }
}
