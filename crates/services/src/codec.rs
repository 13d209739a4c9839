//! Codecs: messages as bytes, and back.

/// A way to write messages of a type as bytes. It is a type without values, so that a service names
/// it and nothing is looked up at run time.
pub trait Codec<T>: 'static {
    /// Appends the message's bytes.
    ///
    /// # Errors
    ///
    /// When the format cannot hold the value.
    fn encode(message: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError>;

    /// The message that the bytes stand for.
    ///
    /// # Errors
    ///
    /// When they stand for none.
    fn decode(bytes: &[u8]) -> Result<T, CodecError>;
}

/// Reason why a message could not be written, or read, in the words of its format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(pub String);

/// Protocol Buffers.
#[cfg(feature = "prost")]
#[derive(Debug)]
pub enum Prost {}

#[cfg(feature = "prost")]
impl<T: prost::Message + Default> Codec<T> for Prost {
    fn encode(message: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        message.encode(bytes).map_err(|error| CodecError(error.to_string()))
    }

    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        T::decode(bytes).map_err(|error| CodecError(error.to_string()))
    }
}

/// postcard, of serde: as short as Protocol Buffers, for messages whose Rust types both ends have.
/// Fields are told apart by their order alone, so that both ends change together.
#[cfg(feature = "postcard")]
#[derive(Debug)]
pub enum Postcard {}

#[cfg(feature = "postcard")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> for Postcard {
    fn encode(message: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        *bytes = postcard::to_extend(message, std::mem::take(bytes))
            .map_err(|error| CodecError(error.to_string()))?;
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        match postcard::take_from_bytes(bytes) {
            Ok((message, [])) => Ok(message),
            Ok((_, rest)) => Err(CodecError(format!("{} bytes are left over", rest.len()))),
            Err(error) => Err(CodecError(error.to_string())),
        }
    }
}

/// JSON, of serde: for messages that people read on the wire.
#[cfg(feature = "json")]
#[derive(Debug)]
pub enum Json {}

#[cfg(feature = "json")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> for Json {
    fn encode(message: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        serde_json::to_writer(bytes, message).map_err(|error| CodecError(error.to_string()))
    }

    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        serde_json::from_slice(bytes).map_err(|error| CodecError(error.to_string()))
    }
}
