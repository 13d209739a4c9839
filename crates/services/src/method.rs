//! Methods, and the numbers that name them on the wire.

/// A method of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    path: &'static str,
    id: MethodId,
    is_idempotent: bool,
}

/// A method's number: the 64-bit FNV-1a hash of its path, so that both ends know it without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MethodId(pub u64);

impl Method {
    /// A method by its path, `/package.Service/Method` as gRPC writes it. It runs once at most.
    pub const fn new(path: &'static str) -> Self {
        Self { path, id: MethodId::of(path), is_idempotent: false }
    }

    /// A method that may run more than once: routers may clone its calls and send them again.
    #[must_use]
    pub const fn idempotent(self) -> Self {
        Self { is_idempotent: true, ..self }
    }

    /// Its path.
    pub const fn path(&self) -> &'static str {
        self.path
    }

    /// Its number.
    pub const fn id(&self) -> MethodId {
        self.id
    }

    /// Whether it may run more than once.
    pub const fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }
}

impl MethodId {
    /// The number of the method at `path`.
    pub const fn of(path: &str) -> Self {
        let bytes = path.as_bytes();
        let (mut hash, mut index) = (FNV_OFFSET, 0);
        while index < bytes.len() {
            hash = (hash ^ bytes[index] as u64).wrapping_mul(FNV_PRIME);
            index += 1;
        }
        Self(hash)
    }
}

/// The parameters of the 64-bit hash: draft-eastlake-fnv, "The FNV
/// Non-Cryptographic Hash Algorithm".
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that the authors of the hash publish.
    #[test]
    fn an_id_is_the_fnv_1a_hash() {
        assert_eq!(MethodId::of(""), MethodId(0xcbf2_9ce4_8422_2325));
        assert_eq!(MethodId::of("a"), MethodId(0xaf63_dc4c_8601_ec8c));
        assert_eq!(MethodId::of("foobar"), MethodId(0x8594_4171_f739_67e8));
    }
}
