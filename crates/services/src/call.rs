//! A call as its client writes and reads it.

use crate::codec::Codec;
use crate::frame;
use crate::method::Method;
use crate::status::Status;

/// Appends a request.
pub(crate) fn write_request<C: Codec<Q>, Q>(
    bytes: &mut Vec<u8>,
    method: &Method,
    message: &Q,
) -> Result<(), Status> {
    frame::begin_request(bytes, method.id());
    C::encode(message, bytes).map_err(|error| {
        Status::internal(format!("the request of {} cannot be written: {error}", method.path()))
    })
}

/// The message of a reply.
pub(crate) fn read_reply<C: Codec<R>, R>(bytes: &[u8]) -> Result<R, Status> {
    let message = frame::parse_reply(bytes)?;
    C::decode(message)
        .map_err(|error| Status::internal(format!("the reply's message cannot be read: {error}")))
}
